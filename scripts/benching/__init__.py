"""The rows of scripts/bench.py, by what they measure."""
