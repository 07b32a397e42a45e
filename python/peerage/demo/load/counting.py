"""How many of the upstream's fetches were needed, from its log alone.

Per key, in order of start: a fetch is needed if it is the first, or starts no earlier than the end of
the last needed one + TTL - 5 ms. All others are extra. The 5 ms are for the two clocks that a TTL
passes through (milliseconds, and the kernel's coarse one); they are far below anything worth saving.
A fetch whose worker was killed before the upstream had answered is lost and counts as neither: nobody
could have used it.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..upstream import Fetch

SLACK_S = 0.005


@dataclass(frozen=True)
class Counts:
    distinct: int
    fetches: int
    lost: int
    needed: int
    extra: tuple[tuple[Fetch, Fetch], ...] = ()     # each with the fetch that made it needless

    @property
    def per_key_per_ttl(self) -> float:
        return self.fetches / self.needed if self.needed else 0.0


def count(log: Iterable[Fetch], killed_at: Mapping[str, float], ttl_s: float) -> Counts:
    """`killed_at` says when each killed worker was killed, on the log's clock."""
    keys: set[str] = set()
    fetches = lost = needed = 0
    fresh_until: dict[str, float] = {}
    served_by: dict[str, Fetch] = {}
    extra: list[tuple[Fetch, Fetch]] = []
    for fetch in sorted(log, key=lambda f: f.start):
        keys.add(fetch.key)
        if _is_lost(fetch, killed_at):
            lost += 1
            continue
        fetches += 1
        if fetch.key not in fresh_until or fetch.start >= fresh_until[fetch.key]:
            needed += 1
            # One that never ended keeps all later ones from being needed: nobody waited for it.
            end = fetch.end if fetch.end is not None else float("inf")
            fresh_until[fetch.key] = end + ttl_s - SLACK_S
            served_by[fetch.key] = fetch
        else:
            extra.append((fetch, served_by[fetch.key]))
    return Counts(len(keys), fetches, lost, needed, tuple(extra))


def _is_lost(fetch: Fetch, killed_at: Mapping[str, float]) -> bool:
    killed = killed_at.get(fetch.worker)
    return killed is not None and (fetch.end is None or fetch.end >= killed)
