"""Popular pages are loaded again just before they expire, so that nobody waits for them: a job that one
worker does for all, the coordinator. Which pages are popular says a tally, summed over the fleet.

Every worker runs this loop and does nothing in it while another one coordinates. When the coordinator
goes, the next one takes over within the time in which the others notice; for a moment there may be two
or none, which costs a fetch or a wait, no more.
"""
from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable

import peerage

log = logging.getLogger("peerage.demo")


class Refresher:
    """`age` gives a page's age in seconds, `refresh` loads it again; `most` is how many pages."""

    def __init__(self, peers: peerage.Peers, popularity: peerage.Tally, names: Iterable[str], *,
                 ttl: float, most: int, age: Callable[[str], Awaitable[float]],
                 refresh: Callable[[str], Awaitable[object]], counts: dict[str, int]) -> None:
        self.peers, self.popularity, self.names = peers, popularity, list(names)
        self.ttl, self.most, self.age, self.refresh, self.counts = ttl, most, age, refresh, counts
        self._now: dict[str, int] = {}          # sums of the window that runs, as last seen
        self._before: dict[str, int] = {}       # and of the one before
        self._left = 0.0
        self._lead: dict[str, float] = {}

    def coordinates(self) -> bool:
        coordinator = self.peers.coordinator()
        return coordinator.self if coordinator else not self.peers.enabled

    async def popular(self) -> list[str]:
        """In this window and the last: at its beginning a window knows nobody."""
        left = self.popularity.ends_in()
        if left > self._left:
            self._before = self._now
        self._left = left
        self._now = {name: await self.popularity.atotal(name) for name in self.names}
        sums = {name: self._now[name] + self._before.get(name, 0) for name in self.names}
        asked = [name for name in self.names if sums[name]]
        return sorted(asked, key=lambda name: -sums[name])[:self.most]

    async def turn(self) -> None:
        self.counts["demo_refreshing"] = int(self.coordinates())
        if not self.counts["demo_refreshing"]:
            return
        for name in await self.popular():
            # A lead of its own for every page and time, so that they don't all come at once.
            lead = self._lead.setdefault(name, random.uniform(0.1, 0.25) * self.ttl)
            if self.ttl - await self.age(name) <= lead and self.coordinates():
                self._lead.pop(name)
                await self.refresh(name)
                self.counts["demo_refreshed"] += 1

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.ttl / 40 * random.uniform(0.8, 1.2))
            try:
                await self.turn()
            except peerage.ClosedError:
                return
            except Exception as error:
                log.warning("the refresher goes on after: %s", error)
