"""The load test itself: what it counts, what it offers, how it takes a broken connection, how it ends."""
from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from peerage.demo import recorded
from peerage.demo.load import report, schedule
from peerage.demo.load.client import Answer, Client, ConnectionEnded
from peerage.demo.load.counting import Counts, count
from peerage.demo.load.fleet import Fleet, FleetError, free_ports
from peerage.demo.load.run import Plan, Result, Settings, Tally, percentile
from peerage.demo.upstream import Fetch

SCRIPT = Path(__file__).parents[1] / "scripts" / "coalescing_load.py"
FIELDS = ("nodes coordination encryption rate seconds ttl_s distinct requests errors wrong retried "
          "kills fetches lost needed fetches_per_key_per_ttl age_ms_max p50_ms p99_ms "
          "p99_hit_ms").split()


def fetch(key: str, start: float, end: float | None, worker: str = "w0.0",
          outcome: str = "answered") -> Fetch:
    return Fetch(key, worker, start, end, outcome)


# log, killed workers -> distinct, fetches, lost, needed; TTL 10 s
COUNTED = {
    "nothing": ([], {}, (0, 0, 0, 0)),
    "the first of a key is needed":
        ([fetch("a", 1, 1.15)], {}, (1, 1, 0, 1)),
    "a second one within the TTL is extra":
        ([fetch("a", 1, 1.15), fetch("a", 5, 5.15)], {}, (1, 2, 0, 1)),
    "two at once: one of them is extra":
        ([fetch("a", 1, 1.15), fetch("a", 1.01, 1.16, "w1.0")], {}, (1, 2, 0, 1)),
    "keys are counted apart":
        ([fetch("a", 1, 1.15), fetch("b", 1, 1.15)], {}, (2, 2, 0, 2)),
    "the TTL runs from the end of the needed one":
        ([fetch("a", 1, 1.15), fetch("a", 11.1, 11.25)], {}, (1, 2, 0, 1)),
    "one after the TTL is needed":
        ([fetch("a", 1, 1.15), fetch("a", 11.15, 11.3)], {}, (1, 2, 0, 2)),
    "five milliseconds early is on time":
        ([fetch("a", 1, 1.15), fetch("a", 11.146, 11.3)], {}, (1, 2, 0, 2)),
    "six are not":
        ([fetch("a", 1, 1.15), fetch("a", 11.144, 11.3)], {}, (1, 2, 0, 1)),
    "an extra one does not move the TTL":
        ([fetch("a", 1, 1.15), fetch("a", 5, 5.15), fetch("a", 11.2, 11.35)], {}, (1, 3, 0, 2)),
    "the log's order is not that of the starts":
        ([fetch("a", 11.2, 11.35), fetch("a", 1, 1.15)], {}, (1, 2, 0, 2)),
    "cut by its worker's death: lost, and the next is the needed one":
        ([fetch("a", 1, 1.1, "w0.0", "cut"), fetch("a", 1.2, 1.35, "w1.0")],
         {"w0.0": 1.09}, (1, 1, 1, 1)),
    "answered to a worker that was dead already: lost":
        ([fetch("a", 1, 1.15, "w0.0")], {"w0.0": 1.1}, (1, 0, 1, 0)),
    "answered before its worker was killed: a fetch like any other":
        ([fetch("a", 1, 1.15, "w0.0"), fetch("a", 2, 2.15, "w1.0")],
         {"w0.0": 1.5}, (1, 2, 0, 1)),
    "cut while its worker lives: a fetch, made for nothing":
        ([fetch("a", 1, 1.1, "w0.0", "cut"), fetch("a", 1.2, 1.35)], {}, (1, 2, 0, 1)),
    "the replacement of a killed worker has its own name":
        ([fetch("a", 1, 1.05, "w0.0", "cut"), fetch("a", 3, 3.15, "w0.1")],
         {"w0.0": 1.04}, (1, 1, 1, 1)),
    "one still open after its worker's death: lost":
        ([fetch("a", 1, None, "w0.0", "open")], {"w0.0": 1.1}, (1, 0, 1, 0)),
    "one still open otherwise: a fetch, and no later one is needed":
        ([fetch("a", 1, None, "w0.0", "open"), fetch("a", 20, 20.15)], {}, (1, 2, 0, 1)),
}


@pytest.mark.parametrize("log, killed_at, expected", COUNTED.values(), ids=COUNTED.keys())
def test_fetches_are_counted(log, killed_at, expected):
    counts = count(log, killed_at, ttl_s=10)
    assert (counts.distinct, counts.fetches, counts.lost, counts.needed) == expected


def test_one_fetch_per_key_per_ttl_is_perfect():
    assert Counts(distinct=1, fetches=3, lost=0, needed=3).per_key_per_ttl == 1.0
    assert Counts(distinct=0, fetches=0, lost=0, needed=0).per_key_per_ttl == 0.0


def test_every_endpoint_of_every_channel_is_a_target():
    targets = schedule.targets()
    assert len(targets) == 9 * 6
    assert len({t.path for t in targets}) == len(targets)
    assert len({(t.channel, t.request) for t in targets}) == 27


def test_the_schedule_is_open_loop_even_and_heavy_in_duplicates():
    targets = schedule.targets()
    made = schedule.arrivals(1, rate=200, seconds=20, among=targets)
    assert made == schedule.arrivals(1, rate=200, seconds=20, among=targets)
    assert made != schedule.arrivals(2, rate=200, seconds=20, among=targets)
    assert [a.due_s for a in made] == [i / 200 for i in range(4000)]
    asked = Counter(a.target for a in made)
    assert set(asked) == set(targets)
    assert max(asked.values()) < 3 * min(asked.values())
    workers = Counter(a.pick % 6 for a in made)
    assert min(workers.values()) > 4000 / 6 * 0.9
    repeated = [(a, b) for a, b in zip(made, made[1:], strict=False) if a.target == b.target]
    assert len(repeated) > len(made) / 2
    assert all(a.pick % 6 != b.pick % 6 for a, b in repeated)


def test_kills_come_at_seeded_instants_with_the_given_mean():
    made = schedule.events(7, "kill", 5, 30)
    assert made == schedule.events(7, "kill", 5, 30)
    assert all(len(schedule.events(seed, "kill", 5, 30)) >= 3 for seed in range(200))
    long = schedule.events(7, "kill", 5, 5000)
    assert 4.7 < 5000 / len(long) < 5.3
    assert schedule.events(7, "kill", None, 30) == []


def answer(body: bytes, status: int = 200, at: float = 0.0, tier: str = "local") -> Answer:
    return Answer(status, {"peerage-tier": tier}, body, at, at)


def page(stamp: recorded.Stamp) -> bytes:
    return recorded.page(recorded.CHANNELS[stamp.channel], stamp).encode()


def test_answers_are_judged_by_the_stamp_they_carry():
    target = schedule.Target("/c/gartenpost", "gartenpost", "page")
    stamp = recorded.Stamp("gartenpost", "page", 5, 100.0)

    def judged(body: bytes, status: int = 200, at: float = 101.0) -> tuple[int, dict[str, int]]:
        tally = Tally()
        tally.judge(target, answer(body, status, at), ttl_s=10)
        return tally.wrong, dict(tally.errors)

    assert judged(page(stamp)) == (0, {})
    assert judged(page(recorded.Stamp("midori_techo", "page", 5, 100.0))) == (1, {})
    assert judged(page(recorded.Stamp("gartenpost", "before.923", 5, 100.0))) == (1, {})
    assert judged(b"no stamp at all") == (1, {})
    assert judged(page(stamp), status=502) == (0, {"status 502": 1})
    assert judged(page(stamp), at=110.2) == (0, {})
    assert judged(page(stamp), at=110.3) == (0, {"older than its TTL": 1})


def test_percentiles_are_values_that_occurred():
    assert percentile([], 99) == 0
    assert percentile([3.0], 99) == 3
    assert percentile([float(n) for n in range(1, 101)], 50) == 50
    assert percentile([float(n) for n in range(1, 101)], 99) == 99


def test_medians_are_taken_per_mode():
    def run(mode: str, p99: float, errors: int) -> dict[str, object]:
        made = Result(Plan(Settings(2, mode)), Tally(), Counts(27, 54, 0, 27)).as_json()
        return made | {"p99_ms": p99, "errors": errors}

    found = report.medians([run("none", 10, 0), run("peers", 5, 1), run("none", 30, 0),
                            run("peers", 6, 0), run("none", 20, 3), run("peers", 90, 0)])
    assert found["none"]["p99_ms"] == 20 and found["none"]["errors"] == 0
    assert found["peers"]["p99_ms"] == 6 and found["peers"]["coordination"] == "peers"
    assert found["none"]["fetches_per_key_per_ttl"] == 2.0


def test_the_fields_are_the_documented_ones_in_their_order():
    made = Result(Plan(Settings(2)), Tally(), Counts(27, 54, 0, 27)).as_json()
    assert list(made) == FIELDS


async def serve_once(behave):
    """A server that does `behave(reader, writer)` for each connection, and a client for it."""
    server = await asyncio.start_server(behave, "127.0.0.1", 0)
    return server, Client("127.0.0.1", server.sockets[0].getsockname()[1])


def against(behave, path: str = "/", timeout_s: float = 2.0, times: int = 1) -> list[Answer]:
    async def run() -> list[Answer]:
        server, client = await serve_once(behave)
        async with server:
            try:
                return [await client.get(path, timeout_s) for _ in range(times)]
            finally:
                client.close()

    return asyncio.run(run())


def test_the_client_reads_a_large_answer_in_pieces_and_keeps_its_connection():
    connections = 0

    async def behave(reader, writer):
        nonlocal connections
        connections += 1
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\nx-a: b\r\n\r\n" + b"a" * 100)
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(b"b" * 59900)
        await writer.drain()

    got = against(behave, times=2)
    assert [len(a.body) for a in got] == [60000, 60000]
    assert got[0].headers["x-a"] == "b" and got[0].status == 200
    assert got[0].first_byte_at < got[0].done_at
    assert connections == 1


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n",
                                  b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"])
def test_a_connection_that_ends_before_its_answer_is_said_to_have(sent):
    async def behave(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()

    with pytest.raises(ConnectionEnded):
        against(behave)


def test_a_refused_connection_is_one_that_ended():
    async def run() -> None:
        await Client("127.0.0.1", free_ports(1)).get("/", 1)

    with pytest.raises(ConnectionEnded):
        asyncio.run(run())


def test_no_answer_is_a_timeout_and_its_connection_is_not_used_again():
    connections = 0

    async def run() -> Answer:
        nonlocal connections

        async def behave(reader, writer):
            nonlocal connections
            connections += 1
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.3 if connections == 1 else 0)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % connections)

        server, client = await serve_once(behave)
        async with server:
            with pytest.raises(asyncio.TimeoutError):
                await client.get("/", 0.1)
            got = await client.get("/", 1)
            client.close()
            return got

    assert asyncio.run(run()).body == b"2"


def start(*arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(SCRIPT), *arguments], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | env)


def test_a_whole_run_without_the_layer_counts_a_fetch_per_worker(tmp_path):
    process = start("--nodes", "2", "--seconds", "3", "--coordination", "none", "--json",
                    "--kill-every", "2", "--logs", str(tmp_path))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    run = json.loads(out)
    assert list(run) == FIELDS
    assert (run["distinct"], run["requests"], run["errors"], run["wrong"]) == (27, 600, 0, 0)
    assert run["kills"] >= 1
    assert run["needed"] == 27 and run["fetches"] > 40
    assert 0 < run["p50_ms"] < run["p99_ms"]
    assert 140 < run["age_ms_max"] < 4000
    assert (tmp_path / "none-1" / "upstream.log").exists()


def test_a_worker_that_cannot_start_is_named_with_what_it_said():
    started = time.monotonic()

    async def run() -> None:
        fleet = Fleet(Settings(1, "none"))
        fleet._env["DEMO_TTL"] = "soon"
        async with fleet:
            pass

    with pytest.raises(FleetError, match="w0.0 did not start: .*'soon'"):
        asyncio.run(run())
    assert time.monotonic() - started < 20


def test_measuring_begins_when_all_take_all_for_owners(tmp_path):
    """A worker that is ready itself may still be taken for one that warms: who asks by that knows
    another owner, and what is measured is how a fleet comes up."""
    async def beginnings() -> list[dict]:
        async with Fleet(Settings(8, "peers"), logs=tmp_path) as fleet:
            answers = await asyncio.gather(*(w.client.get("/readyz", 2) for w in fleet.workers))
            return [json.loads(a.body) for a in answers]

    for _ in range(2):
        for said in asyncio.run(beginnings()):
            assert (said["members"], said["settled"], said["warming"]) == (8, True, 0)


def children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_it_leaves_no_process_behind(number, tmp_path):
    # Killed outright it cannot remove its folder of logs; here that is the test's own.
    process = start("--nodes", "2", "--seconds", "30", "--coordination", "none", TMPDIR=str(tmp_path))
    try:
        deadline = time.monotonic() + 30
        while len(children_of(process.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.5)
        children = children_of(process.pid)
        assert len(children) == 3
        process.send_signal(number)
        process.communicate(timeout=20)
        deadline = time.monotonic() + 10
        while any(is_running(child) for child in children) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [child for child in children if is_running(child)] == []
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("arguments", [["--nodes", "0"], ["--rate", "-1"], ["--compare", "none,magic"],
                                       ["--coordination", "magic"], ["--seconds", "soon"]])
def test_a_wrong_argument_is_refused_before_anything_starts(arguments):
    process = start(*arguments)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert arguments[0] in err
