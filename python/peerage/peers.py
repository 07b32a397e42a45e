"""Peers: one node of this process, its life, and the asking that its caches share.

Importing and constructing start nothing. The node starts by a hook (`start`, a context
manager) or on the first question that the local store can't answer. A forked child finds
that what it inherited belongs to its parent, forgets it, and becomes a node of its own when
it is used.

Threads: each started node keeps one, the attendant, which writes the log lines, calls the
callbacks and lets the pool for sync loaders grow. Native threads never call Python.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import _native, checks, settings
from ._native import MISS, ClosedError, Failed, Future, Hit, Load, LoadLostError, Waiter
from .cache import Cache, Report, channel_name
from .errors import LoopError, encode
from .functions import Definition, Key
from .loads import Leader, Terms, Work, arun, by_signal, run, to_ms
from .tallies import Tally

log = logging.getLogger("peerage")

DRAIN_S = 5.0
JOIN_S = 5.0
LOOP_LOOK_S = 1.0       # how often who waits for a loader on a loop looks whether it still runs
IDLE_MS = 60_000        # a loader thread that had nothing to do for so long ends
STATES = ("new", "looking", "warming", "ready", "draining", "closed", "conflict")


_of_process: weakref.WeakSet[Peers] = weakref.WeakSet()


class Member(NamedTuple):
    """What this node knows of one member."""

    address: str
    node_id: int
    started_ms: int
    self: bool
    live: bool
    coordinates: bool
    warming: bool
    draining: bool
    observer: bool
    owns: bool

    def __str__(self) -> str:
        return self.address


class Explanation(NamedTuple):
    """What would happen to a question for a key, and why."""

    key: str
    channel: str
    ranks: tuple[tuple[str, int], ...]      # address and rendezvous score, best first
    owner: str | None
    heir: str | None
    owned_here: bool
    local: Hit | None                       # what the local store has
    registered: bool
    would: str


class Peers:
    """One node: a cache, and its part in the fleet. Settings are keyword arguments named as the
    environment's, in lower case without `PEER_`; a wrong one is a SettingError here. Making it
    starts nothing: the first question does, or `start()`. Any thread and any event loop may
    use it; what may block has a twin with an `a` in front for event loops. In a fork's child
    it becomes a node of its own when it is used."""

    def __init__(self, *, observer: bool = False, **given: Any) -> None:
        self._settings = settings.check(given)
        self.enabled: bool = self._settings["enable_peers"]
        # A loop thread runs: for the peers, or for the second tier alone.
        self._threaded = self.enabled or bool(self._settings.get("redis_url"))
        self._caches: dict[str, Cache] = {}
        self._definitions: dict[bytes, Definition] = {}
        self._life = threading.RLock()      # starting and closing
        self._pool = threading.Lock()       # the list of threads; also while closing drains
        self._pooled = False            # the layer off: are there loads for threads of a pool?
        self._members_callbacks: list[Callable[[list[Member]], Any]] = []
        self._coordinator_callbacks: list[Callable[[str | None], Any]] = []
        self._reset()
        self._node = _native.Node(
            settings.native_options(self._settings, observer), _weakly(self._renewed)
        )
        self._finalizer = weakref.finalize(self, _end, self._node, self._threads)
        _of_process.add(self)

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ, **overrides: Any) -> Peers:
        """Of the variables ENABLE_PEERS, PEER_..., PEERS, REDIS_URL; starts nothing yet."""
        observer = bool(overrides.pop("observer", False))
        return cls(observer=observer, **settings.from_env(env, **overrides))

    def __repr__(self) -> str:
        return f"<peerage.Peers {self.address or 'off' if not self.enabled else self.state}>"

    def _reset(self) -> None:
        """As it is before the first start, in this process."""
        self._running = False
        self._closed = False
        self._context = contextvars.copy_context()
        self._threads: list[threading.Thread] = []
        self._starting: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._start_loop: Callable[[], Any] = _nothing
        self._tasks: dict[int, Callable[[], Any]] = {}
        # Keys whose loads run on an event loop, and which: a call that blocks that loop must
        # not wait for them. Added and removed on the loop, or by the thread that borrows it.
        self._loading: dict[bytes, Any] = {}

    # -- life ------------------------------------------------------------------------------

    def _renewed(self) -> None:
        """In a fork's child, or after reopening: the native node is a fresh one."""
        self._life, self._pool = threading.RLock(), threading.Lock()
        self._reset()
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _end, self._node, self._threads)
        for loader, definition in self._definitions.items():
            self._register(loader, definition)

    def start(self) -> Peers:
        """Join the others; returns when this node knows them, after about a second at most.
        With the layer off and no REDIS_URL there is nothing to start. UnreachableError where
        neither Redis nor any peer answers; a start by the first question goes on without."""
        return self._start(True)

    def _start(self, demanded: bool) -> Peers:
        if self._node.inherited():
            self._node.state()      # renews
        with self._life:
            if self._running:
                return self
            if self._closed:
                self._node.reopen()
                self._renewed_in_place()
            self._context = contextvars.copy_context()
            self._node.start(demanded)
            self._running = True
            if self._threaded or self._pooled:
                with self._pool:
                    self._park("attendant", _attend)
        if self._in_loop():
            self._adopt(asyncio.get_running_loop())
        return self

    def _renewed_in_place(self) -> None:
        life = self._life
        self._renewed()
        self._life = life

    async def astart(self) -> Peers:
        """`start`, from an event loop."""
        return await self._astart(True)

    async def _astart(self, demanded: bool) -> Peers:
        loop = asyncio.get_running_loop()
        if not self._threaded:
            return self._start(demanded)
        context = contextvars.copy_context()
        await loop.run_in_executor(None, context.run, self._start, demanded)
        self._adopt(loop)
        return self

    def close(self, drain: float = DRAIN_S) -> None:
        """Leave the others: finish what runs for at most `drain` seconds, hand entries on,
        wake every waiter with ClosedError. The cache still answers local hits."""
        if not 0 <= checks.seconds("drain", drain) < math.inf:
            raise ValueError(f"drain: seconds, 0 or more, not {checks.shown(drain)}")
        if self._node.inherited():
            return
        with self._life:
            self._closed = True
            self._node.close(to_ms(drain))
            self._running = False
            self._start_loop = _nothing
            with self._pool:
                threads, self._threads[:] = list(self._threads), []
        _join(threads)
        if self._in_loop():
            self._drop_port(asyncio.get_running_loop())

    async def aclose(self, drain: float = DRAIN_S) -> None:
        """`close`, from an event loop."""
        loop = asyncio.get_running_loop()
        if self._threaded:
            await loop.run_in_executor(None, self.close, drain)
        else:
            self.close(drain)
        self._drop_port(loop)

    def __enter__(self) -> Peers:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Peers:
        return await self.astart()

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _ensure(self) -> None:
        if self._node.inherited():
            self._node.state()
        if self._closed:
            raise ClosedError("the peer layer is closed")
        if not self._running:
            self._start(False)

    async def _aensure(self) -> None:
        """Many questions at once start it once, and none of them blocks the loop."""
        if self._node.inherited():
            self._node.state()
        if self._closed:
            raise ClosedError("the peer layer is closed")
        loop = asyncio.get_running_loop()
        starting = self._starting.get(loop)
        if starting is None or (starting.done() and not self._running):
            starting = self._starting[loop] = loop.create_task(self._astart(False))
        await asyncio.shield(starting)

    # -- threads -----------------------------------------------------------------------------

    def _park(self, name: str, target: Callable[..., None]) -> None:
        thread = threading.Thread(
            target=target, args=(weakref.ref(self), self._node), name=f"peerage-{name}", daemon=True
        )
        thread.start()      # may be refused; only what runs can be joined
        self._threads.append(thread)

    def _grow(self) -> None:
        with self._pool:
            self._threads[:] = [t for t in self._threads if t.is_alive()]
            loaders = sum(t.name == "peerage-loader" for t in self._threads)
            if self._running and loaders < self._settings["loaders"]:
                self._park("loader", _serve_loads)

    def _noticed(self, kind: int, level: int, line: str) -> None:
        if kind == _native.NOTICE_LOG:
            log.log(level, "%s", line)
        elif kind == _native.NOTICE_MEMBERS:
            log.info("%s", line)
            members = [m for m in self.members() if m.live]
            self._call_back(self._members_callbacks, members)
        elif kind == _native.NOTICE_COORDINATOR:
            self._call_back(self._coordinator_callbacks, line or None)
        elif kind == _native.NOTICE_POOL:
            self._grow()

    @staticmethod
    def _call_back(callbacks: list[Callable[[Any], Any]], argument: Any) -> None:
        for callback in list(callbacks):
            try:
                callback(argument)
            except Exception:
                log.exception("a callback failed")

    def on_members(self, callback: Callable[[list[Member]], Any]) -> Callable[[list[Member]], Any]:
        """Call back, on the attendant's thread, with the live members when they change."""
        checks.function("a callback is a function of the members", callback)
        self._members_callbacks.append(callback)
        return callback

    def on_coordinator(self, callback: Callable[[str | None], Any]) -> Callable[[str | None], Any]:
        """Call back, on the attendant's thread, with the new coordinator's address, or None."""
        checks.function("a callback is a function of the coordinator's address", callback)
        self._coordinator_callbacks.append(callback)
        return callback

    # -- loads --------------------------------------------------------------------------------

    def _add_definition(self, prefix: bytes, definition: Definition) -> None:
        old = self._definitions.get(prefix)
        if old is not None and (old.function.__module__, old.function.__qualname__) != (
            definition.function.__module__, definition.function.__qualname__
        ):  # fmt: skip
            raise ValueError(
                f"two functions named {checks.shown(definition.name)} in one cache; use name=")
        self._definitions[prefix] = definition
        self._register(prefix, definition)

    def _register(self, prefix: bytes, definition: Definition) -> None:
        if not definition.loader:
            return
        terms = definition.terms
        self._node.register(prefix, definition.is_async, terms.early_ms)
        if (terms.stale_ms or terms.early_ms) and not definition.is_async and not self._pooled:
            # Alone, too, a stale value is loaded again behind its caller, by the pool.
            self._pooled = True
            with self._pool:
                if self._running and not self._threaded:
                    self._park("attendant", _attend)

    def _work_of(self, load: Load) -> Work | None:
        """The call another node asks for; None: reported already, it can't be made."""
        try:
            return self._definitions[load.loader].work_of(load.key)
        except Exception as error:
            self._node.fail(load.load_id, encode(error), 0)
            return None

    def _run_taken(self, load: Load) -> None:
        """On a thread of the pool."""
        work = self._work_of(load)
        if work is not None:
            try:
                self._context.copy().run(run, self, work, load, load.key, True)
            except BaseException:
                # Reported to whoever waits; there is no caller here.
                pass

    def _load_here(self, load: Load) -> None:
        """On the start loop."""
        work = self._work_of(load)
        if work is not None:
            self._spawn(work, load, None)

    def _spawn(self, work: Work, load: Load, leader: Leader | None) -> None:
        """Run a load as a task of its own: a registered loader on the start loop in the
        context captured at start, anything else here in its caller's."""
        here = asyncio.get_running_loop()
        if work.loader or leader is None:
            start_loop = self._start_loop()
            context = self._context
            if start_loop is not None and start_loop is not here and _alive(start_loop):
                start_loop.call_soon_threadsafe(
                    self._begin, start_loop, context, work, load, leader, True)
                return
        else:
            context = leader.context
        self._begin(here, context, work, load, leader, leader is None)

    def _begin(
        self, loop: Any, context: contextvars.Context, work: Work, load: Load,
        leader: Leader | None, for_others: bool,
    ) -> None:  # fmt: skip
        task = context.copy().run(
            loop.create_task, self._task(loop, work, load, leader, for_others))
        if task.done():         # by an eager task factory: it has said all it had to
            return
        # Held by the port, that is, by the loop: with it go its tasks, and their loads are
        # lost to whoever may still wait for them elsewhere.
        self._port(loop).tasks[load.load_id] = task
        self._tasks[load.load_id] = weakref.ref(task)
        key = load.key if leader is None else leader.key
        self._loading[key] = weakref.ref(loop)
        task.add_done_callback(lambda _: self._loading.pop(key, None))

    async def _task(
        self, loop: Any, work: Work, load: Load, leader: Leader | None, for_others: bool
    ) -> None:
        try:
            await arun(self, work, load, leader, for_others)
        finally:
            self._tasks.pop(load.load_id, None)
            port = None if loop.is_closed() else self._node.port(loop)
            if port is not None:
                port.tasks.pop(load.load_id, None)
                # who waits on this loop need not wait for its next turn
                port.run()

    def _cancel(self, load_id: int) -> None:
        task = self._tasks.get(load_id, _nothing)()
        if task is not None and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(task.cancel)

    def _wait_for(self, awaitable: Any, key: bytes) -> Any:
        """A sync caller whose loader turned out to be async."""
        if self._in_loop():
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise LoopError("an async loader in a sync call from within an event loop")

        async def wait() -> Any:
            return await awaitable

        loop = self._start_loop()
        if loop is None or not _alive(loop):
            return asyncio.run(wait())

        async def lend() -> Any:
            """What ends the caller must not end the loop that it borrowed."""
            try:
                return await awaitable
            except (SystemExit, KeyboardInterrupt) as error:
                if by_signal(error):
                    raise
                waiting.set_exception(error)

        context = contextvars.copy_context()
        waiting: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def begin() -> None:
            def done(task: Any) -> None:
                if waiting.done():
                    return
                if task.cancelled():
                    waiting.set_exception(LoadLostError("the loader was cancelled"))
                elif task.exception() is not None:
                    waiting.set_exception(task.exception())
                else:
                    waiting.set_result(task.result())

            context.run(loop.create_task, lend()).add_done_callback(done)

        self._loading[key] = weakref.ref(loop)
        waiting.add_done_callback(lambda _: self._loading.pop(key, None))
        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError:
            self._loading.pop(key, None)
            raise LoadLostError("the loader's event loop has ended") from None
        while True:
            try:
                return waiting.result(LOOP_LOOK_S)
            except concurrent.futures.TimeoutError:
                # Ours, or the loader's own. A loop that ended runs it no more.
                if waiting.done():
                    return waiting.result()
                if not _alive(loop):
                    self._loading.pop(key, None)
                    raise LoadLostError("the loader's event loop has ended") from None

    # -- event loops ---------------------------------------------------------------------------

    @staticmethod
    def _in_loop() -> bool:
        return asyncio._get_running_loop() is not None

    def _port(self, loop: Any) -> _native.Port:
        """This loop's port. The loop's own reader handle is what keeps it."""
        port = self._node.port(loop)
        if port is not None:
            return port
        port = _native.Port(self._node, loop, _weakly(self._load_here), _weakly(self._cancel))
        # Where a task may run its loop within itself (nest_asyncio), it must not go on inside of
        # the reader: that can't be called again before it returns.
        nests = hasattr(loop, "_nest_patched")
        loop.add_reader(port.fileno(), port.run if nests else port.readable)
        if self._start_loop is _nothing:
            self._adopt(loop)
        return port

    def _adopt(self, loop: Any) -> None:
        """The first loop that starts or calls the layer runs the registered async loaders.
        A loop that starts it afresh takes the place of one that is closed."""
        current = self._start_loop()
        if current is loop or (current is not None and not current.is_closed()):
            return
        self._start_loop = weakref.ref(loop)
        self._node.start_port(self._port(loop))

    def _drop_port(self, loop: Any) -> None:
        """After close: tell this loop's waiters, then leave the loop alone."""
        port = self._node.port(loop)
        if port is not None:
            port.run()
            loop.remove_reader(port.fileno())
            port.gone()

    # -- asking --------------------------------------------------------------------------------

    @staticmethod
    def _arguments(
        loader: bytes, terms: Terms, key: bytes, channel: bytes, flags: int
    ) -> tuple[Any, ...]:  # fmt: skip
        return (
            key, channel, loader, terms.ttl_ms, terms.stale_ms, terms.load_timeout_ms,
            terms.timeout_ms, flags, terms.pickle,
        )  # fmt: skip

    def _ask(
        self, work: Work | None, key: bytes, channel: bytes, flags: int,
        terms: Terms | None = None,
    ) -> Any:  # fmt: skip
        """From a plain thread: a Hit, or MISS where there is no loader. An event loop's own
        thread may call it too, and blocks its loop meanwhile; but what that loop itself is
        loading would never come."""
        terms = work.terms if work is not None else terms
        assert terms is not None
        loop = asyncio._get_running_loop()
        if loop is not None and self._loading.get(key, _nothing)() is loop:
            raise LoopError(
                "a sync call on an event loop, for a key that this loop is loading: await the "
                "async call, or make this one on another thread")
        if not self._running or self._node.inherited():
            self._ensure()
        loader = work.loader if work is not None else b""
        answer = self._node.ask(*self._arguments(loader, terms, key, channel, flags))
        if type(answer) is Load:
            assert work is not None
            return run(self, work, answer, key)
        if type(answer) is Failed:
            raise terms.raises.rebuild(answer.error)
        return answer

    async def _aask(
        self, work: Work | None, key: bytes, channel: bytes, flags: int,
        terms: Terms | None = None,
    ) -> Any:  # fmt: skip
        """The same from an event loop."""
        terms = work.terms if work is not None else terms
        assert terms is not None
        if not self._running or self._node.inherited():
            await self._aensure()
        loop = asyncio.get_running_loop()
        port = self._port(loop)
        leader = Leader(self, work, key) if work is not None else None
        loader = work.loader if work is not None else b""
        future = Future(loop)
        answer = port.ask(self._arguments(loader, terms, key, channel, flags), future, leader)
        if type(answer) is Waiter:
            waiter = answer
            if leader is not None:
                leader.asked = port, waiter, future
            try:
                answer = await future
            except asyncio.CancelledError:
                port.leave(waiter)
                raise
            finally:
                if leader is not None:
                    leader.asked = None     # a cycle
        if type(answer) is Failed:
            raise (leader or terms.raises).rebuild(answer.error)
        return answer

    # -- changing ------------------------------------------------------------------------------

    def _change(self, key: bytes, channel: bytes, item: Any, by_channel: bool) -> Report:
        if not self._running or self._node.inherited():
            self._ensure()
        return Report(*self._node.change(key, channel, item, by_channel, 0))

    async def _achange(self, key: bytes, channel: bytes, item: Any, by_channel: bool) -> Report:
        if not self._running or self._node.inherited():
            await self._aensure()
        loop = asyncio.get_running_loop()
        port = self._port(loop)
        future = Future(loop)
        waiter = port.change(key, channel, item, by_channel, 0, future)
        try:
            return Report(*await future)
        except asyncio.CancelledError:
            port.leave(waiter)
            raise

    # -- what the application sees --------------------------------------------------------------

    def cache(
        self, name: str, *, ttl: float | None = None, jitter: float = 0.0, stale: float = 0.0,
        negative_ttl: float = 0.0, load_timeout: float | None = None,
        timeout: float | None = None, pickle: bool = False, early: float = 0.0,
    ) -> Cache:  # fmt: skip
        """A cache of this name. Seconds: `ttl` (None: for ever), `jitter` by which the ttl
        is shortened at random, `stale` for which a value is served past it while it is
        loaded again, `negative_ttl` for which a loader's error is kept, `load_timeout` for
        a load, `timeout` for a caller's patience, `early` so long before its end a value that is
        asked for is loaded anew (decorated functions that run at the owner)."""
        checks.name("a cache", name)
        if name in self._caches:
            raise ValueError(f"there is a cache named {checks.shown(name)} already")
        made = Cache(
            self, name, ttl, jitter, stale, negative_ttl, load_timeout, timeout, pickle,
            early)
        self._caches[name] = made
        return made

    def tally(self, name: str, *, window: float = 60.0) -> Tally:
        """A counter summed over all nodes, in windows of `window` seconds of wall time. Ask for
        it as often as you like: the same name and window are the same counts."""
        return Tally(self, name, window)

    @property
    def state(self) -> str:
        """One of STATES. "conflict": another node has this one's address; it works alone."""
        return STATES[self._node.state()]

    @property
    def address(self) -> str:
        """This node's advertised address; empty before the start and with the layer off."""
        return self._node.address()

    def members(self) -> list[Member]:
        """Everyone this node knows, by address, itself included."""
        return [Member._make(found) for found in self._node.members()]

    def owner(self, channel: str | bytes) -> Member | None:
        """Who owns a channel's keys; None with the layer off, or while nobody is known."""
        ranks = self._node.owner(channel_name(channel))
        return Member._make(ranks[0][0]) if ranks else None

    def coordinator(self) -> Member | None:
        """The member for what one node should do for all: the lowest address that may coordinate.
        None while nobody is past its start, and with the layer off. For a moment after a change
        two nodes may see themselves in its place."""
        found = self._node.coordinator()
        return None if found is None else Member._make(found)

    def stats(self) -> dict[str, Any]:
        """Counters and gauges by name, and the node's state in words."""
        return {**self._node.stats(), "state": self.state}

    def explain(
        self, key: Any, *args: Any, channel: str | bytes | None = None, **kwargs: Any
    ) -> Explanation:
        """What would happen to a question: `explain(fn, *args)`, `explain(fn.key(...))` or
        `explain(cache.key("raw"), channel=...)`."""
        definition = getattr(key, "definition", None)
        if isinstance(definition, Definition):
            key = definition.key(*args, **kwargs)
        elif args or kwargs or not isinstance(key, Key):
            raise TypeError("explain takes a decorated function and its arguments, or a Key")
        else:
            definition = self._definitions.get(key.rpartition(b":")[0])
        if channel is not None:
            routed = Cache._channel(channel)
        else:
            routed = definition._channel(key) if definition is not None else b""
        routed = routed or bytes(key)
        ranks = self._node.owner(routed)
        registered = definition is not None and bool(definition.loader)
        pickle = definition.terms.pickle if definition is not None else False
        local = self._node.peek(bytes(key), pickle)
        here = bool(ranks) and ranks[0][0].self
        if local is not MISS:
            would = "answer from the local store"
        elif here or not ranks:
            would = "load here"
        elif registered:
            would = f"ask {ranks[0][0].address}, which loads what it does not have"
        else:
            would = f"ask {ranks[0][0].address}, which grants a permit for what it does not have"
        return Explanation(
            str(key), routed.decode("utf-8", "backslashreplace"),
            tuple((member.address, score) for member, score in ranks),
            ranks[0][0].address if ranks else None,
            ranks[1][0].address if len(ranks) > 1 else None,
            here or not ranks, None if local is MISS else local, registered, would,
        )  # fmt: skip


def close_all(drain: float = DRAIN_S) -> None:
    """Close every Peers of this process that runs: for the hooks of servers."""
    for peers in list(_of_process):
        if peers._running and not peers._node.inherited():
            peers.close(drain)


def _nothing() -> None:
    return None


def _alive(loop: Any) -> bool:
    return not loop.is_closed() and loop.is_running()


def _weakly(method: Any) -> Callable[..., Any]:
    """A bound method that does not keep its object."""
    weak = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        found = weak()
        if found is None:
            raise ClosedError("the peer layer is closed")
        return found(*args)

    return call


def _attend(weak: Any, node: _native.Node) -> None:
    """The attendant. It must not keep its Peers: when the last user of that is gone, the
    finaliser closes the node, and that ends the threads."""
    while True:
        try:
            notice = node.attend(IDLE_MS)
        except ClosedError:
            return
        except Exception:
            log.exception("the attendant ends")
            return
        peers = weak()
        if peers is None:
            return
        if notice is not None:
            try:
                peers._noticed(*notice)
            except Exception:
                log.exception("a notice was lost")
        del peers


def _serve_loads(weak: Any, node: _native.Node) -> None:
    """A thread of the pool for sync loaders."""
    while True:
        try:
            load = node.take(IDLE_MS)
        except ClosedError:
            return
        except Exception:
            log.exception("a loader thread ends")
            return
        if load is None:
            return
        peers = weak()
        if peers is None:
            node.lose(load.load_id)
            return
        peers._run_taken(load)
        del peers


def _join(threads: list[threading.Thread]) -> None:
    until = time.monotonic() + JOIN_S
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))


def _end(node: _native.Node, threads: list[threading.Thread]) -> None:
    """At exit, or when a Peers is dropped."""
    if not node.inherited():
        node.close(int(DRAIN_S * 1000))
        _join(threads)
