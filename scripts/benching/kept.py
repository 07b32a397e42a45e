"""Rows about what is kept under pressure: hits, when more is asked for than there is room.

The basis is memory. Ours gets CAPACITY * ENTRY bytes as its budget; what a process then really
takes for it is measured, and each of the others holds as many entries as take the same: keys,
bookkeeping, sketches and what the heap adds, for all of them alike. In the note is what they
score with CAPACITY entries: the bytes of their values alone, out of which ours has to pay its
keys and bookkeeping.

All are filled by loads. A `set` of ours is also remembered as a change for a while, which may
take up to 3 MB of a node's, whatever its budget: with one so small as here it would show."""

from __future__ import annotations

import itertools
import os
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache

from . import traces
from .measure import Row, Size, elsewhere, private_dirty

CAPACITY = 2000
ENTRY = 4096

Ask = Callable[[str, Callable[[], bytes]], object]      # a key, and what loads its value


def _ours(entries: int) -> Ask:
    import peerage

    peers = peerage.Peers(enable_peers=False, cache_bytes=entries * ENTRY)
    return peers.cache("kept", ttl=3600).get_or_load


def _lru(entries: int) -> Ask:
    kept: OrderedDict[str, bytes] = OrderedDict()

    def ask(key: str, load: Callable[[], bytes]) -> None:
        if key in kept:
            kept.move_to_end(key)
            return
        kept[key] = load()
        if len(kept) > entries:
            kept.popitem(last=False)

    return ask


def _theine(entries: int) -> Ask:
    import theine

    cache = theine.Cache(entries)

    def ask(key: str, load: Callable[[], bytes]) -> None:
        if not cache.get(key)[1]:
            cache.set(key, load())

    return ask


def _cachebox(entries: int) -> Ask:
    import cachebox

    cache = cachebox.LFUCache(entries)

    def ask(key: str, load: Callable[[], bytes]) -> None:
        if cache.get(key) is None:
            cache.insert(key, load())

    return ask


RIVALS = {"LRU": _lru, "W-TinyLFU (theine)": _theine, "LFU (cachebox)": _cachebox}
MAKE: dict[str, Callable[[int], Ask]] = {"ours": _ours, **RIVALS}


def _bytes_taken(who: str) -> float:
    """In a process of its own: what a store with room for CAPACITY entries adds to the memory
    that is its alone, once four times as many were asked for. Before it come a small one, since
    what a library takes once is not the store's, and ballast for what is free in the heap."""
    def load() -> bytes:
        return os.urandom(ENTRY)

    small = MAKE[who](CAPACITY // 10)
    for n in range(CAPACITY // 2):
        small(f"small{n}", load)
    ballast = [load() for _ in range(CAPACITY // 2)]
    before = private_dirty(os.getpid())
    ask = MAKE[who](CAPACITY)
    for n in range(4 * CAPACITY):
        ask(f"k{n}", load)
    taken = private_dirty(os.getpid()) - before
    del ballast, small
    return taken


@lru_cache(None)
def _bytes_per_entry() -> dict[str, float]:
    """Of the room that was asked for: ours holds fewer entries than its budget has ENTRY bytes."""
    return {who: elsewhere(_bytes_taken, who) / CAPACITY for who in MAKE}


def _hits(ask: Ask, trace: list[str]) -> float:
    value = bytes(ENTRY)
    missed = 0

    def load() -> bytes:
        nonlocal missed
        missed += 1
        return value

    for key in trace:
        ask(key, load)
    return 100 * (len(trace) - missed) / len(trace)


def _row(name: str, trace: list[str]) -> Row:
    taken = _bytes_per_entry()
    room = {who: int(CAPACITY * taken["ours"] / taken[who]) for who in RIVALS}
    ours = _hits(_ours(CAPACITY), trace)
    others = {who: _hits(make(room[who]), trace) for who, make in RIVALS.items()}
    unpaid = {who: _hits(make(CAPACITY), trace) for who, make in RIVALS.items()}
    against = max(("LRU", "W-TinyLFU (theine)"), key=lambda who: others[who])
    # Here more is better: the ratio is of the misses.
    missed = 100 - others[against]
    row = Row(f"hit_ratio_{name}", "% hits", ours, others, against, (missed + 1) / missed)
    row.ratio_is = (100 - ours) / missed
    row.note = (
        f"{ours - others[against]:+.2f} points; the ratio is of misses; in the same "
        f"{CAPACITY * taken['ours'] / 1e6:.2f} MB of a process: "
        + ", ".join(f"{who} {entries:,} entries" for who, entries in room.items())
        + f"; were each given {CAPACITY:,}: "
        + ", ".join(f"{who} {value:.2f}" for who, value in unpaid.items())
    )  # fmt: skip
    return row


def hit_ratio(size: Size) -> Iterator[Row]:
    """Made traces: popular keys, popular keys between scans, a loop larger than the room."""
    n, rng = size.calls(400_000, 20_000), random.Random(7)
    population = 50_000
    weights = list(itertools.accumulate(1 / rank**0.9 for rank in range(1, population + 1)))
    zipf = rng.choices(range(population), cum_weights=weights, k=n)
    scan = []       # every so often a run over keys nobody asks for again
    once = itertools.count(population)
    for start in range(0, n, 20_000):
        scan += zipf[start : start + 12_000] + [next(once) for _ in range(8_000)]
    loop = [turn % (CAPACITY * 3 // 2) for turn in range(n)]
    for name, numbers in (("zipf", zipf), ("scan", scan), ("loop", loop)):
        yield _row(name, [f"k{number}" for number in numbers])


def hit_ratio_public(size: Size) -> Iterator[Row]:
    """Recorded ones, which others measure with too. Their keys alone: every value has ENTRY
    bytes, since of the others none counts bytes."""
    for name, keys in traces.public().items():
        yield _row(name, keys[: size.calls(len(keys), 20_000)])
