"""Running loaders: what a loader may return, and how its result or its error is reported.

A question that has a loader behind it carries a Work: what to call, and how long the result
may live. Whoever is told to load (the caller's thread, a task on its loop, a thread of the
pool, the start loop for another node) runs the same Work and reports to the node once.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from opcode import opname
from typing import TYPE_CHECKING, Any

from . import checks, errors
from ._native import Hit, LoadLostError, chain, decode, encode

if TYPE_CHECKING:
    from .cache import Cache
    from .peers import Peers

FOREVER_MS = 2**32 - 1


def to_ms(seconds: float | None, what: str = "a time") -> int:
    """None and infinity: for ever. What is over already is 0: for who waits, and stored
    nowhere."""
    if seconds is None:
        return FOREVER_MS
    seconds = checks.seconds(what, seconds)
    return max(round(min(seconds * 1000, FOREVER_MS)), 1) if seconds > 0 else 0


class Loaded:
    """What a loader may return to say more than the value: further entries of the same
    channel, by key, which are stored and travel along; and a lifetime of its own."""

    __slots__ = ("value", "also", "ttl", "stale")

    def __init__(
        self, value: Any, also: Mapping[Any, Any] | None = None,
        ttl: float | None = None, stale: float | None = None,
    ) -> None:  # fmt: skip
        if also is not None:
            checks.mapping("also: keys and their values", also)
        to_ms(ttl, "ttl")
        to_ms(stale, "stale")
        self.value = value
        self.also = also
        self.ttl = ttl
        self.stale = stale

    def __repr__(self) -> str:
        return f"Loaded({self.value!r}, also={self.also!r}, ttl={self.ttl!r})"


class Terms:
    """How values of a cache or function live, and which errors are rebuilt."""

    __slots__ = (
        "cache", "ttl", "jitter", "negative_ms", "load_timeout_ms", "timeout_ms",
        "pickle", "raises", "ttl_ms", "stale_ms", "early_ms",
    )  # fmt: skip

    def __init__(
        self, cache: Cache, ttl: float | None, jitter: float, stale: float, negative_ttl: float,
        load_timeout: float | None, timeout: float | None, pickle: bool, raises: errors.Raises,
        early: float = 0.0,
    ) -> None:  # fmt: skip
        for what, value in (("ttl", ttl), ("load_timeout", load_timeout), ("timeout", timeout)):
            if value is not None and not checks.seconds(what, value) > 0:
                raise ValueError(
                    f"{what}: seconds, more than 0, or None, not {checks.shown(value)}")
        for what, value in (
            ("jitter", jitter), ("stale", stale), ("negative_ttl", negative_ttl), ("early", early),
        ):  # fmt: skip
            if not checks.seconds(what, value) >= 0:
                raise ValueError(f"{what}: seconds, not negative, not {checks.shown(value)}")
        # floats from here on: the jitter is taken off the ttl
        jitter = checks.seconds("jitter", jitter)
        ttl = None if ttl is None else checks.seconds("ttl", ttl)
        if ttl is not None and jitter >= ttl:
            raise ValueError("jitter shortens the ttl and must be less than it")
        if not isinstance(pickle, bool):
            raise TypeError(f"pickle: True or False, not {checks.kind(pickle)}")
        self.cache = cache
        self.ttl, self.jitter = ttl, jitter
        self.ttl_ms, self.stale_ms, self.early_ms = to_ms(ttl), to_ms(stale), to_ms(early)
        self.negative_ms = to_ms(negative_ttl)
        self.load_timeout_ms = to_ms(load_timeout) if load_timeout is not None else 0
        self.timeout_ms = to_ms(timeout) if timeout is not None else 0
        self.pickle = pickle
        self.raises = raises

    def lifetime_ms(self) -> int:
        """Jitter only ever shortens: nothing gets older than its ttl."""
        if self.ttl is None or not self.jitter:
            return self.ttl_ms
        return to_ms(self.ttl - random.random() * self.jitter)


class Work:
    """One call of a loader."""

    __slots__ = ("terms", "function", "args", "kwargs", "loader", "is_async")

    def __init__(
        self, terms: Terms, function: Callable[..., Any], args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None, loader: bytes = b"", is_async: bool = False,
    ) -> None:  # fmt: skip
        self.terms = terms
        self.function = function
        self.args = args
        self.kwargs = kwargs or {}
        self.loader = loader            # its registered name; empty: a closure
        self.is_async = is_async

    def call(self) -> Any:
        return self.function(*self.args, **self.kwargs)


def items(terms: Terms, result: Any) -> list[tuple[bytes, int, bytes, int, int]]:
    """A loader's result as the entries it makes, the value itself first."""
    ttl_ms, stale_ms = terms.lifetime_ms(), terms.stale_ms
    also: Mapping[Any, Any] = {}
    if isinstance(result, Loaded):
        if result.ttl is not None:
            ttl_ms = to_ms(result.ttl)
        if result.stale is not None:
            stale_ms = to_ms(result.stale)
        also = result.also or {}
        result = result.value
    made = [(b"", *encode(result, terms.pickle), ttl_ms, stale_ms)]
    for key, value in also.items():
        mine, mine_stale = ttl_ms, stale_ms
        if isinstance(value, Loaded):
            if value.ttl is not None:
                mine = to_ms(value.ttl)
            if value.stale is not None:
                mine_stale = to_ms(value.stale)
            value = value.value
        made.append((terms.cache.key(key), *encode(value, terms.pickle), mine, mine_stale))
    return made


def _handlers() -> set[Any]:
    """The code of every signal handler that is written in Python."""
    found = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while hasattr(handler, "func"):     # a partial
            handler = handler.func
        found.add(getattr(handler, "__code__", None))   # a bound method has its function's
    return found - {None}


def by_signal(error: BaseException) -> bool:
    """Was it raised by a signal that came while a loader ran, and not by the loader? What a
    handler raises has passed through the handler's frame. Python's own one for Ctrl-C has
    none, so its KeyboardInterrupt stands where no `raise` is."""
    if threading.current_thread() is not threading.main_thread():
        return False
    steps = list(traceback.walk_tb(error.__traceback__))
    codes = _handlers()
    if any(frame.f_code in codes for frame, _ in steps):
        return True
    if not isinstance(error, KeyboardInterrupt):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is None or (
        opname[last.tb_frame.f_code.co_code[last.tb_lasti]] not in ("RAISE_VARARGS", "RERAISE"))


def _says_of_the_key(error: BaseException, for_others: bool) -> bool:
    """A failed load, or a lost one? What a loader raises that is no Exception goes to its own
    caller, who asked for it, and the next one loads. Run for somebody else it has no caller
    here whom it could end: it is an error of the key as any other, or one bad key would end
    the workers one after the other. What stops this process or cancels the load is lost."""
    if isinstance(error, Exception):
        return True
    cancelled = isinstance(error, (asyncio.CancelledError, GeneratorExit))
    return for_others and not cancelled and not by_signal(error)


def run(peers: Peers, work: Work, load: Any, key: bytes, for_others: bool = False) -> Hit:
    """Run a loader in this thread and report; for its own caller, the value as everyone
    else will see it."""
    node, terms = peers._node, work.terms
    token = chain.set(load.chain)
    try:
        result = work.call()
        if inspect.isawaitable(result):
            result = peers._wait_for(result, key)
        made = items(terms, result)
    except BaseException as error:
        if not _says_of_the_key(error, for_others):
            node.lose(load.load_id)
            raise
        node.fail(load.load_id, errors.encode(error), terms.negative_ms)
        said = terms.raises.own(error)
        if said is error:
            raise
        raise said from error
    finally:
        chain.reset(token)
    node.finish(load.load_id, made)
    _, kind, encoded, _, _ = made[0]
    return Hit((decode(kind, encoded, terms.pickle), "load", 0, False))


async def arun(
    peers: Peers, work: Work, load: Any, leader: Leader | None, for_others: bool
) -> None:
    """The same as a task on an event loop. Reports only; who waits is told by the node."""
    node, terms = peers._node, work.terms
    chain.set(load.chain)
    try:
        result = work.call()
        if inspect.isawaitable(result):
            result = await result
        made = items(terms, result)
    except BaseException as error:
        if not _says_of_the_key(error, for_others):
            if leader is not None:
                leader.lost = True
            node.lose(load.load_id)
            raise
        if leader is not None:
            leader.error = error
        node.fail(load.load_id, errors.encode(error), terms.negative_ms)
    else:
        node.finish(load.load_id, made)


class Leader:
    """One question from an event loop: called with the Load if it falls to this question
    to run the loader, and remembers what came of it."""

    __slots__ = ("peers", "work", "key", "context", "error", "lost", "asked")

    def __init__(
        self, peers: Peers, work: Work, key: bytes, context: contextvars.Context | None = None
    ) -> None:
        self.peers = peers
        self.work = work
        self.key = key
        self.context = contextvars.copy_context() if context is None else context
        self.error: BaseException | None = None
        self.lost = False
        self.asked: tuple[Any, Any, Any] | None = None  # port, waiter, future

    def __call__(self, load: Any) -> None:
        if self.lost and self.asked is not None:
            # It was cancelled, or ended the loop: it would be so again. The leave goes back
            # to who still waits, and the asker is told.
            port, waiter, future = self.asked
            port.leave(waiter)
            self.peers._node.lose(load.load_id)
            if not future.done():
                future.set_exception(LoadLostError("the loader was cancelled"))
            return
        self.peers._spawn(self.work, load, self)

    def rebuild(self, encoded: bytes) -> Exception:
        """The error that its loader raised, or what another's was encoded as."""
        raises = self.work.terms.raises
        return raises.rebuild(encoded) if self.error is None else raises.own(self.error)
