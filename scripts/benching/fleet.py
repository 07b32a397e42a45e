"""Rows about loads, memory, idleness and growth."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import rivals
from .measure import (
    Row, Size, best_of, cpu_us, elsewhere, private_dirty, row_of, time_calls, time_fresh,
)  # fmt: skip
from .nodes import MADE, Pair, Process, settings


def load_overhead(size: Size) -> Iterator[Row]:
    """What the layer adds to a load that takes no time itself: asked from another node, run
    by a Python thread of the owner. Beside it what an application does with Redis: take the
    lease, load, set the value, get it."""
    asked = size.calls(300, 20)
    fresh = itertools.count()
    with contextlib.ExitStack() as stack:
        pair = Pair(1024, 8)
        stack.callback(pair.close)
        server = rivals.Redis()
        stack.callback(server.close)

        def leased(client) -> Callable[[str], bytes]:
            def load(key: str) -> bytes:
                client.set("lease:" + key, "me", nx=True, px=10000)
                client.set(key, MADE, px=3600_000)
                return client.get(key)

            return load

        def loaded(key: str) -> bytes:
            return pair.made(key)

        keys = pair.unseen(asked * (size.rounds + 1), "load")
        unseen = iter([keys[n : n + asked] for n in range(0, len(keys), asked)])

        def others() -> list[str]:
            turn = next(fresh)
            return [f"{turn}-{n}" for n in range(asked)]

        timed = time_calls({
            "ours": (loaded, lambda: next(unseen)),
            "redis-py": (leased(server.client()), others),
            "redis-py TLS": (leased(server.client("TLS")), others),
        }, size)  # fmt: skip
        loads = pair.owner("stats")["loads_finished"]
        assert loads >= asked * size.rounds, "not every question was a load of the owner's"
        note = f"the owner ran {loads} loads"
    yield row_of("load_overhead", "us", timed, "redis-py", 0.4, note)


# -- memory -------------------------------------------------------------------------------------


def _filled(what: str, entries: int) -> float:
    """In a process of its own: what so many entries add to the memory that is its alone."""
    import cachebox
    import cachetools
    import peerage

    if what == "ours":
        cache = peerage.Peers(enable_peers=False, cache_bytes=2 << 30).cache("c", ttl=3600)
        put = cache.set
    elif what == "cachebox":
        put = cachebox.TTLCache(entries, 3600).insert
    else:
        put = cachetools.TTLCache(entries, 3600).__setitem__
    put("first", os.urandom(100))
    before = private_dirty(os.getpid())
    for n in range(entries):
        put(f"key:{n:08}", os.urandom(100))
    return (private_dirty(os.getpid()) - before) / entries


def memory_per_entry(size: Size) -> Iterator[Row]:
    entries = size.calls(1_000_000, 20_000)
    found = {what: elsewhere(_filled, what, entries) for what in ("ours", "cachebox", "cachetools")}
    server = rivals.Redis()
    try:
        client = server.client()
        before = client.info("memory")["used_memory"]
        for start in range(0, entries, 10_000):
            pipe = client.pipeline(transaction=False)
            for n in range(start, min(start + 10_000, entries)):
                pipe.set(f"key:{n:08}", os.urandom(100), ex=3600)
            pipe.execute()
        found["redis"] = (client.info("memory")["used_memory"] - before) / entries
        client.close()
    finally:
        server.close()
    ours = found.pop("ours")
    yield Row("memory_per_entry", "bytes", ours, found, best_of(found), 1.0,
              note=f"{entries:,} entries of 100 bytes, keys of 12, with a TTL")  # fmt: skip


# -- nobody asks ---------------------------------------------------------------------------------


def idle(size: Size) -> Iterator[Row]:
    """Nodes of one host that nobody asks: processor time, and the memory the layer takes."""
    count, seconds = (3, 2.0) if size.quick else (16, 20.0)
    environment = settings()
    on = [Process(environment) for _ in range(count)]
    off = [Process({**environment, "ENABLE_PEERS": "0"}) for _ in range(3)]
    try:
        for process in on + off:
            process("start")
        until = time.monotonic() + 30
        while any(process("live") != count for process in on):
            if time.monotonic() > until:
                raise RuntimeError("the nodes did not find each other")
            time.sleep(0.2)
        time.sleep(min(5.0, seconds))
        before = [cpu_us(process.pid) for process in on]
        began = time.monotonic()
        time.sleep(seconds)
        spent = [cpu_us(p.pid) - b for p, b in zip(on, before, strict=True)]
        share = 100 * sum(spent) / count / ((time.monotonic() - began) * 1e6)
        dirty = sum(private_dirty(p.pid) for p in on) / count
        without = sum(private_dirty(p.pid) for p in off) / len(off)
    finally:
        for process in on + off:
            process.process.stdin.close()
        for process in on + off:
            process.close()
    yield Row("idle_cpu", "% of a core", share, {"allowed": 0.2}, "allowed", 1.0,
              note=f"{count} nodes on one host, the mean of them")  # fmt: skip
    yield Row("idle_memory", "MB", (dirty - without) / 1e6, {"allowed": 3.0}, "allowed", 1.0,
              note="Private_Dirty with peers on minus off")  # fmt: skip


# -- growth ---------------------------------------------------------------------------------------


def grow_get(size: Size) -> Iterator[Row]:
    """A get, among ever more entries, in an order that no cache of the processor foresees. From
    the second row on the ratio is of the growths: what ours costs by what it cost among the
    fewest, beside the same of dict's."""
    import peerage

    counts = (1_000, 10_000) if size.quick else (1_000, 100_000, 1_000_000, 10_000_000)
    first = None
    for entries in counts:
        cache = peerage.Peers(enable_peers=False, cache_bytes=4 << 30).cache("c", ttl=3600)
        names = [f"key:{n:08}" for n in range(entries)]
        plain = dict.fromkeys(names, b"x" * 16)
        for key in names:
            cache.set(key, b"x" * 16)
        asked = random.Random(1).sample(names, min(entries, 20_000))
        assert cache.peers.stats()["entries"] == entries and cache.get(asked[0]) == b"x" * 16
        timed = time_fresh({"ours": cache.get, "dict": plain.get}, asked, size)
        row = row_of(f"grow_get_{entries}", "ns", timed, "dict", None)
        if first:
            ours, theirs = row.ours / first.ours, row.others["dict"] / first.others["dict"]
            row.note = (f"{row.ratio:.2f} of dict; since {counts[0]:,} entries ours grew "
                        f"{ours:.2f}-fold, dict {theirs:.2f}-fold: the ratio is of these")  # fmt: skip
            row.ratio_is, row.goal = ours / theirs, 1.0
        else:
            first = row
        yield row
        del cache, plain, names


def grow_nodes(size: Size) -> Iterator[Row]:
    """How often a fleet fetches a key within its TTL, with ever more nodes (see
    scripts/coalescing_load.py, which counts in the upstream's own log)."""
    import peerage.demo.load.run  # noqa: F401 (what is missing is said before anything starts)

    script = Path(__file__).resolve().parents[1] / "coalescing_load.py"
    for count in (2,) if size.quick else (2, 6, 12, 24):
        load = subprocess.run(
            [sys.executable, str(script), "--nodes", str(count), "--seconds",
             str(size.calls(10, 3)), "--coordination", "peers", "--json"],
            capture_output=True, text=True,
        )  # fmt: skip
        if load.returncode:
            raise RuntimeError(f"{count} nodes: {load.stdout}{load.stderr}")
        said = json.loads(load.stdout)
        assert said["errors"] == said["wrong"] == 0 and said["nodes"] == count
        note = (
            f"{said['requests'] / said['seconds']:,.0f} requests/s, {said['distinct']} keys, "
            f"{said['errors']} errors, {said['wrong']} wrong; "
            f"p50 {said['p50_ms']} ms, p99 {said['p99_ms']} ms, of hits {said['p99_hit_ms']} ms"
        )  # fmt: skip
        yield Row(f"grow_nodes_{count}", "fetches per key and TTL",
                  said["fetches_per_key_per_ttl"], {"allowed": 1.1}, "allowed", 1.0, note=note)  # fmt: skip
