"""The committed vectors are what their generators, which share nothing with the C, write."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(name, *arguments):
    program = [sys.executable, str(ROOT / "tests/vectors" / name), *arguments]
    return subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)


def test_frames_are_as_made():
    made = run("make_frames.py", "--check")
    assert (made.returncode, made.stderr) == (0, "")


def test_rendezvous_is_as_made():
    made = run("make_rendezvous.py")
    assert made.returncode == 0, made.stderr
    assert made.stdout == (ROOT / "native/tests/rendezvous_vectors.h").read_text()
