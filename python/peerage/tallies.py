"""Tallies: counters summed over all nodes, in fixed windows of wall time.

How often a client asked in this minute, how popular a page is in this hour. Every node counts
its own and tells the others within about 100 ms while anything is counted; so a sum is what
this node knows. With the layer off it is this process's own. With Redis the sums live there,
exact for all who share it; while it is away, what the nodes know of each other stands in.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from . import checks
from ._native import Future, Waiter

if TYPE_CHECKING:
    from .peers import Peers

WINDOW_MS_MAX = 2**32 - 1


class Taken(int):
    """1, and true, where the amount was added; 0, and false, where the limit forbade it.
    `total` is the sum of the window, as it is now."""

    total: int

    def __new__(cls, added: bool, total: int) -> Taken:
        made = super().__new__(cls, added)
        made.total = total
        return made

    def __repr__(self) -> str:
        return f"Taken({bool(self)}, total={self.total})"


class Tally:
    """Made by `Peers.tally`. Keys are str or bytes, at most 1,024 bytes (TooBigError); a node
    keeps 65,536 of them in all (FullError). Every method may be called from any thread; only
    `take` and `total` may wait, and only with Redis, for at most PEER_TIMEOUT: on an event
    loop await `atake` and `atotal`."""

    def __init__(self, peers: Peers, name: str, window: float) -> None:
        self._name = checks.name("a tally", name)
        if len(self._name) > 255:
            raise ValueError("a tally's name has at most 255 bytes")
        if not 0.001 <= checks.seconds("window", window) <= WINDOW_MS_MAX // 1000:
            raise ValueError(f"window: seconds from 0.001 to {WINDOW_MS_MAX // 1000}, "
                             f"not {checks.shown(window)}")  # fmt: skip
        self.peers, self.name, self.window = peers, name, window
        self._window_ms = round(window * 1000)

    def __repr__(self) -> str:
        return f"<peerage.Tally {self.name!r} of {self.window} s>"

    def add(self, key: str | bytes, n: int = 1) -> int:
        """Count `n` more, whatever the sum; the sum as it is known here. Never waits, never
        starts the layer: with Redis the sum there follows behind."""
        return self.peers._node.tally_add(self._name, _key(key), self._window_ms, _whole("n", n))

    def take(self, key: str | bytes, limit: int, n: int = 1) -> Taken:
        """Count `n` more if the sum then stays within `limit`; true if so. What is refused is
        not counted."""
        return self._take(key, n, _whole("limit", limit))

    async def atake(self, key: str | bytes, limit: int, n: int = 1) -> Taken:
        """`take`, from an event loop."""
        return await self._atake(key, n, _whole("limit", limit))

    def total(self, key: str | bytes) -> int:
        """The sum of the window that runs."""
        return self._take(key, 0, None).total

    async def atotal(self, key: str | bytes) -> int:
        """`total`, from an event loop."""
        return (await self._atake(key, 0, None)).total

    def ends_in(self) -> float:
        """Seconds until the window that runs has ended, and counting begins anew."""
        return (self._window_ms - time.time_ns() // 1_000_000 % self._window_ms) / 1000

    def _take(self, key: str | bytes, n: int, limit: int | None) -> Taken:
        peers = self.peers
        if not peers._running or peers._node.inherited():
            peers._ensure()
        return Taken(*peers._node.tally_take(
            self._name, _key(key), self._window_ms, _whole("n", n), limit))

    async def _atake(self, key: str | bytes, n: int, limit: int | None) -> Taken:
        peers = self.peers
        if not peers._running or peers._node.inherited():
            await peers._aensure()
        loop = asyncio.get_running_loop()
        port = peers._port(loop)
        future = Future(loop)
        found = port.tally(
            self._name, _key(key), self._window_ms, _whole("n", n), limit, future)
        if type(found) is not Waiter:
            return Taken(*found)
        try:
            return Taken(*await future)
        except asyncio.CancelledError:
            port.leave(found)
            raise


def _key(key: str | bytes) -> bytes:
    return checks.encoded("a tally's key", key)


def _whole(what: str, value: int) -> int:
    return checks.whole(what, value, 2**53 - 1)
