"""The demo's fleet under an open-loop load, counted from the upstream's own log.

`counting` and `schedule` are pure. `client` speaks HTTP, `fleet` starts and ends processes, `run` puts
them together for one measurement, `report` shows what came out.
"""
