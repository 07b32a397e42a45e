"""scripts/bench.py runs and says what its readers count on. Never what it measured: a test's
machine is busy with tests."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIELDS = {"name", "ours", "others", "unit", "ratio"}


def bench(*arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "bench.py"), *arguments], text=True, timeout=100,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )  # fmt: skip


def rows_of(*arguments):
    done = bench("--quick", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


def check_shape(row):
    assert FIELDS <= set(row)
    numbers = [row["ours"], row["ratio"], *row["others"].values()]
    assert all(isinstance(n, (int, float)) and math.isfinite(n) and n >= 0 for n in numbers)
    assert row["others"] and row["against"] in row["others"] and row["unit"]


def test_rows_of_one_process():
    for needed in ("cachebox", "cachetools", "theine"):
        pytest.importorskip(needed)
    rows = rows_of("--only", "local_hit", "--only", "hit_ratio")
    assert {"local_hit", "hit_ratio_zipf", "hit_ratio_scan", "hit_ratio_loop"} <= set(rows)
    for row in rows.values():
        check_shape(row)
    assert {"cachebox", "cachetools", "dict"} == set(rows["local_hit"]["others"])


def test_an_owners_hit_beside_redis():
    pytest.importorskip("redis")
    for program in ("redis-server", "openssl"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    rows = rows_of("--only", "owner_hit_sync_56k", "--only", "owner_hit_async_1k")
    names = {name for name in rows if not name.endswith("_uvloop")}    # which may be missing
    assert names == {
        "owner_hit_sync_56k", "owner_hit_sync_56k_plain",
        "owner_hit_async_1k", "owner_hit_async_1k_plain"}
    for row in rows.values():
        check_shape(row)
    assert rows["owner_hit_sync_56k"]["against"] == "redis-py TLS"
    assert "ping-pong" in rows["owner_hit_sync_56k"]["others"]
    assert {"ping-pong", "Protocol"} < rows["owner_hit_async_1k"]["others"].keys()
    # that the questions really went to the owner is checked where they are asked
    assert "travelled" in rows["owner_hit_sync_56k"]["note"]


def test_owners_of_channels_new_and_remembered():
    rows = rows_of("--only", "grow_owner")
    counts = ("2", "24", "1000")
    assert set(rows) == {f"grow_owner_{n}{which}" for n in counts for which in ("", "_remembered")}
    for row in rows.values():
        check_shape(row)
        assert row["ours"] > 0


def test_a_row_that_is_not_there_is_named():
    done = bench("--only", "owner_hits")
    assert done.returncode != 0
    assert "no row 'owner_hits'" in done.stderr and "owner_cpu_1k" in done.stderr
