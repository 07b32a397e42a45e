"""The demo's two users of tallies: a limit for each client over the whole fleet, and a refresher that
runs on the coordinator alone."""
from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from test_demo import get, log_of, serving

from peerage.demo.load.fleet import free_ports
from ports import Ports

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with serving("peerage.demo.upstream", free_ports(1), "/_control") as base:
        yield base


@contextlib.contextmanager
def fleet(count: int, upstream: str, **env: str) -> Iterator[list[str]]:
    """Workers that know each other; each one's WORKER is its pid."""
    ports = Ports()
    own = {"ENABLE_PEERS": "true", "PEER_SECRET": secrets.token_hex(32),
           "PEER_LABEL": "test-" + secrets.token_hex(8), "PEER_PORT": str(ports.base),
           "PEER_LISTEN": "127.0.0.1", "PEER_ADVERTISE_ADDR": "127.0.0.1",
           "DEMO_UPSTREAM": upstream}
    try:
        with contextlib.ExitStack() as stack:
            bases = [stack.enter_context(serving(
                "peerage.demo", ports.base + 20 + i, "/readyz", "--log-level", "warning", **own | env))
                for i in range(count)]
            until(lambda: all(ready(b)["settled"] and ready(b)["members"] == count for b in bases))
            yield bases
    finally:
        ports.close()


def ready(base: str) -> dict[str, Any]:
    return json.loads(get(f"{base}/readyz")[2])


def stats(base: str) -> dict[str, Any]:
    return json.loads(get(f"{base}/stats")[2])


def until(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)


def refreshing(bases: list[str]) -> list[str]:
    return [base for base in bases if stats(base)["demo_refreshing"]]


def test_a_client_has_one_limit_over_all_workers(upstream):
    with fleet(3, upstream, DEMO_LIMIT="30", DEMO_LIMIT_WINDOW="10", DEMO_TTL="60") as bases:
        time.sleep(10 - time.time() % 10 + 0.01)
        answers = []
        for i in range(90):
            answers.append(get(f"{bases[i % 3]}/c/gartenpost/body"))
            time.sleep(0.02)
        passed = [headers for status, headers, _ in answers if status == 200]
        refused = [(headers, body) for status, headers, body in answers if status == 429]
        assert len(passed) + len(refused) == 90
        assert 30 <= len(passed) <= 45
        assert [h["ratelimit-limit"] for h in passed] == ["30"] * len(passed)
        left = [int(h["ratelimit-remaining"]) for h in passed]
        assert left[0] == 29 and min(left) <= 3      # by what its worker had heard
        for headers, body in refused:
            assert 1 <= int(headers["retry-after"]) <= 10
            assert headers["ratelimit-remaining"] == "0"
            assert "30 in 10 s" in json.loads(body)["error"]
        # The rest of the site is not limited, and counts what was let through.
        assert sum(stats(b)["demo_limit_passed"] for b in bases) == len(passed)
        assert sum(stats(b)["demo_limit_refused"] for b in bases) == len(refused)
        time.sleep(10 - time.time() % 10 + 0.01)
        assert get(f"{bases[0]}/c/gartenpost/body")[0] == 200


def test_popular_pages_are_refreshed_by_one_worker_and_nobody_waits(upstream):
    ttl = 2.0
    with fleet(3, upstream, DEMO_REFRESH="1", DEMO_TTL=str(ttl)) as bases:
        until(lambda: len(refreshing(bases)) == 1)
        name = "midori_techo"
        tiers: list[str] = []

        def read(seconds: float, among: list[str]) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for base in among:
                    tiers.append(get(f"{base}/c/{name}/body")[1]["peerage-tier"])
                assert len(refreshing(among)) <= 1
                time.sleep(0.05)

        read(0.5, bases)
        before, tiers[:] = len(log_of(upstream)), []
        read(3 * ttl, bases)
        assert "load" not in tiers
        fetched = log_of(upstream)[before:]
        # Each time a little before the TTL's end: three or four times in three TTLs.
        assert 2 <= len(fetched) <= 5
        assert {entry["key"] for entry in fetched} == {f"/s/{name}"}
        assert sum(stats(b)["demo_refreshed"] for b in bases) >= len(fetched)

        [first] = refreshing(bases)
        os.kill(int(ready(first)["worker"]), signal.SIGKILL)
        others = [base for base in bases if base != first]
        until(lambda: len(refreshing(others)) == 1)
        read(1.5 * ttl, others)
        assert len(refreshing(others)) == 1
        assert stats(refreshing(others)[0])["demo_refreshed"] >= 1


def test_both_are_off_unless_asked_for(upstream):
    with serving("peerage.demo", free_ports(1), "/readyz", "--log-level", "warning",
                 DEMO_UPSTREAM=upstream) as base:
        status, headers, _ = get(f"{base}/c/gartenpost/body")
        assert status == 200 and headers["ratelimit-limit"] is None
        said = stats(base)
        assert (said["demo_limit_passed"], said["demo_refreshing"], said["tally_keys"]) == (0, 0, 0)
