"""The layer switched off, which is the default: everything works in one process, with local
coalescing, so that an application is written once."""

import asyncio
import concurrent.futures
import contextvars
import gc
import os
import signal
import sys
import threading
import time
import weakref

import pytest

import peerage


# its repr, an address, would give the test another name in each process of a run
OPAQUE = pytest.param(object(), id="object()")


def run_together(function, count):
    """Call it on so many threads at once; results or exceptions in order of start."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(function) for _ in range(count)]
        return [f.exception() or f.result() for f in futures]


# -- coalescing -----------------------------------------------------------------------------


def test_threads_that_ask_together_load_once(cache):
    calls = []

    def loader():
        calls.append(1)
        time.sleep(0.2)
        return {"n": len(calls)}

    assert run_together(lambda: cache.get_or_load("k", loader), 8) == [{"n": 1}] * 8
    assert len(calls) == 1


def test_tasks_that_ask_together_load_once(cache):
    calls = []

    @cache.cached("{x}", name="f")
    async def f(x):
        calls.append(x)
        await asyncio.sleep(0.05)
        return [x, len(calls)]

    async def main():
        assert await asyncio.gather(*(f(1) for _ in range(50))) == [[1, 1]] * 50
        assert await f(1) == [1, 1]

    asyncio.run(main())
    assert calls == [1]


def test_threads_and_loops_share_one_load(cache):
    calls, started = [], threading.Event()

    def loader():
        calls.append(1)
        started.set()
        time.sleep(0.3)
        return "made"

    async def ask():
        return await cache.aget_or_load("k", loader_of_loop)

    async def loader_of_loop():
        calls.append(2)
        return "made by the loop"

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get_or_load, "k", loader)
        assert started.wait(5)
        second = pool.submit(asyncio.run, ask())
        assert first.result() == second.result() == "made"
    assert calls == [1]


# -- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [b"", b"\0" * 5000, "", "ü🐟" * 1000, None, True, 0, 10**30, 1.5, [], {}, [1, [2, {"a": None}]],
     {"日本": ["x", 1.5]}],
    ids=lambda v: repr(v)[:20],
)  # fmt: skip
def test_values_come_back_as_they_are(cache, value):
    calls = []

    def loader():
        calls.append(1)
        return value

    for _ in range(3):
        got = cache.get_or_load("k", loader)
        assert got == value and type(got) is type(value)
    assert len(calls) == 1
    assert cache.get("k", "absent") == value
    cache.set("s", value)
    assert cache.get("s", "absent") == value


def test_large_bytes_are_the_loaders_own_object(cache):
    """V1: exact bytes are aliased; a hit makes no copy."""
    value = bytes(100_000)
    assert cache.get_or_load("k", lambda: value) is value
    assert cache.get("k") is value
    held = cache.get("k")
    cache.delete("k")
    assert held is value


def test_more_keys_than_are_found_by_their_hash(cache):
    """Of keys asked for again 512 are; the others, and equal keys of other objects, as before."""
    values = {f"k{n}": bytes([n % 256]) * 2048 for n in range(2000)}
    for key, value in values.items():
        cache.set(key, value)
    for some in (list(values)[:64], list(values), list(values)[::-1], list(values)[:64]):
        for _ in range(3):
            assert all(cache.get(key) is values[key] for key in some)
            assert all(cache.get("".join(key)) is values[key] for key in some)
    changed = {key: value + b"!" for key, value in values.items()}
    for key, value in changed.items():
        cache.set(key, value)
        assert cache.get(key) is value
    cache.delete("k7")
    assert cache.get("k7") is None and cache.get("k8") is changed["k8"]


def test_objects_that_the_store_held_are_let_go(cache, peers):
    """References to drop are dropped by the next call, whoever makes it."""

    class Big(bytes):
        """A subclass is not aliased: only exact bytes are known never to change."""



    value = b"x" * 50_000
    before = sys.getrefcount(value)
    cache.set("k", value)
    assert sys.getrefcount(value) > before
    cache.delete("k")
    cache.get("other")
    assert sys.getrefcount(value) == before
    with pytest.raises(TypeError):
        cache.set("k", Big(b"x" * 50_000))


def test_a_hit_is_never_a_shared_mutable_object(cache):
    """V3: JSON hits decode anew; the loader's own caller too gets what everybody gets."""
    made = {"a": [1, (2, 3)]}
    first = cache.get_or_load("k", lambda: made)
    assert first == {"a": [1, [2, 3]]} and first is not made
    first["a"].append("mine")
    made["a"].append("later")
    assert cache.get_or_load("k", lambda: 1 / 0) == {"a": [1, [2, 3]]}


@pytest.mark.parametrize(
    "value", [{1: 2}, float("nan"), [float("inf")], {1, 2}, OPAQUE, {"a": b"x"}, bytearray(b"x")],
    ids=repr,
)  # fmt: skip
def test_what_json_would_change_is_refused(cache, value):
    with pytest.raises(TypeError, match="can't be shared"):
        cache.set("k", value)
    with pytest.raises(peerage.RemoteLoadError) as caught:
        cache.get_or_load("k", lambda: value)
    assert caught.value.type_name == "builtins.TypeError"


def test_pickle_only_where_asked_for(peers):
    plain, pickled = peers.cache("p1", ttl=60), peers.cache("p2", ttl=60, pickle=True)
    with pytest.raises(TypeError):
        plain.set("k", {1, 2})
    pickled.set("k", {1, 2})
    assert pickled.get("k") == {1, 2}

    @plain.cached("{x}", name="f", pickle=True)
    def f(x):
        return {x}

    assert f(1) == f(1) == {1}


def test_none_is_a_value_and_no_miss(cache):
    calls = []
    for _ in range(3):
        assert cache.get_or_load("k", lambda: calls.append(1)) is None
    assert len(calls) == 1
    assert cache.get("k", "default") is None
    assert cache.get("absent", "default") == "default"


# -- lives ---------------------------------------------------------------------------------------


def test_a_value_ends_with_its_ttl(peers):
    cache = peers.cache("short", ttl=0.15)
    calls = []

    def loader():
        calls.append(1)
        return len(calls)

    assert [cache.get_or_load("k", loader) for _ in range(3)] == [1, 1, 1]
    time.sleep(0.25)
    assert cache.get("k") is None
    assert cache.get_or_load("k", loader) == 2


stale_calls = []


def counts(x):
    stale_calls.append(x)
    return len(stale_calls)


async def acounts(x):
    return counts(x)


def test_stale_serves_at_once_and_loads_behind(peers):
    cache = peers.cache("stale", ttl=0.2, stale=30)
    f = cache.cached("{x}")(counts)
    stale_calls.clear()
    assert f(1) == 1
    time.sleep(0.3)
    assert f(1) == 1, "the old value at once"
    until = time.monotonic() + 5
    while f(1) == 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert f(1) >= 2
    assert 2 <= len(stale_calls) <= 4


def test_stale_on_an_event_loop(peers):
    cache = peers.cache("stale", ttl=0.2, stale=30)
    f = cache.cached("{x}")(acounts)
    stale_calls.clear()

    async def main():
        assert await f(1) == 1
        await asyncio.sleep(0.3)
        hit = await f.lookup(1)
        assert (hit.value, hit.stale) == (1, True)
        until = time.monotonic() + 5
        while await f(1) == 1 and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert await f(1) >= 2

    asyncio.run(main())
    assert 2 <= len(stale_calls) <= 4


def test_refresh_loads_although_there_is_a_value(cache):
    calls = []

    @cache.cached("{x}", name="f")
    def f(x):
        calls.append(x)
        return len(calls)

    assert (f(1), f(1), f.refresh(1), f(1)) == (1, 1, 2, 2)


def test_a_load_may_bring_more_entries(cache):
    """O14: further entries of the channel, and a lifetime of its own."""
    @cache.cached("{x}", channel="{x}", name="page")
    def page(x):
        return peerage.Loaded({"x": x}, also={body.key(x): f"<{x}>", "raw": b"r"})

    @cache.cached("{x}", channel="{x}", name="body")
    def body(x):
        raise AssertionError("came with its page")

    assert page(1) == {"x": 1}
    assert body(1) == "<1>"
    assert cache.get("raw") == b"r"
    assert cache.get_or_load("short", lambda: peerage.Loaded("x", ttl=0.05)) == "x"
    assert cache.get_or_load("none", lambda: peerage.Loaded("x", ttl=0)) == "x"
    assert cache.get("none") is None
    time.sleep(0.1)
    assert cache.get("short") is None


def test_set_and_delete(cache):
    assert cache.set("k", "v") == peerage.Report((), ())
    assert cache.get("k") == "v"
    cache.delete("k")
    assert cache.get("k") is None
    cache.set_many({"a": 1, "b": 2})
    assert cache.get_many(["a", "b", "c"]) == {"a": 1, "b": 2}
    cache.delete_many(["a", "b"])
    assert cache.get_many(["a", "b"]) == {}

    async def main():
        await cache.aset("k", [1])
        assert await cache.aget("k") == [1]
        await cache.adelete("k")
        assert await cache.aget("k", 5) == 5
        await cache.aset_many({"a": 1, "b": 2})
        assert await cache.aget_many(["a", "b", "c"]) == {"a": 1, "b": 2}
        await cache.adelete_many(["a"])
        assert await cache.aget_many(["a", "b"]) == {"b": 2}

    asyncio.run(main())


def test_a_channel_is_dropped_as_a_whole(cache, peers):
    other = peers.cache("other", ttl=60)
    cache.set("a", 1, channel="page")
    other.set("b", 2, channel="page")
    cache.set("c", 3, channel="elsewhere")
    cache.invalidate_channel("page")
    assert cache.get("a", channel="page") is None and other.get("b", channel="page") is None
    assert cache.get("c", channel="elsewhere") == 3


def test_a_load_that_began_before_a_delete_never_stores_after_it(cache):
    started, go = threading.Event(), threading.Event()

    def loader():
        started.set()
        go.wait(5)
        return "old"

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cache.get_or_load, "k", loader)
        assert started.wait(5)
        cache.delete("k")
        go.set()
        assert asked.result() == "old"
    assert cache.get("k") is None


def test_invalidate_and_cache_info(cache):
    calls = []

    @cache.cached("{x}", name="f")
    def f(x):
        calls.append(x)
        return x

    f(1), f(1), f(1)
    info = f.cache_info()
    assert (info.local, info.load, info.error) == (2, 1, 0)
    f.invalidate(1)
    f(1)
    assert calls == [1, 1]
    hit = f.lookup(1)
    assert (hit.value, hit.tier, hit.stale) == (1, "local", False) and hit.age_ms < 5000


# -- errors ----------------------------------------------------------------------------------------


class NotFound(Exception):
    pass


class Gone(NotFound):
    pass


class Awkward(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def test_everyone_who_waits_gets_the_error_and_the_next_call_loads_afresh(cache):
    calls = []

    def loader():
        calls.append(1)
        time.sleep(0.2)
        raise KeyError("nothing there")

    errors = run_together(lambda: cache.get_or_load("k", loader), 6)
    assert len(calls) == 1
    assert all(type(e) is peerage.RemoteLoadError for e in errors)
    assert len({id(e) for e in errors}) == 6, "an object of its own for each"
    assert {e.type_name for e in errors} == {"builtins.KeyError"}
    for e in errors:
        assert "nothing there" in str(e)
        assert isinstance(e.__cause__, KeyError) or "KeyError" in str(e.__cause__)
    assert sum("in loader" in str(e.__cause__) for e in errors) == 5, "its remote traceback"
    assert cache.get_or_load("k", lambda: "now") == "now"


def test_listed_errors_are_rebuilt(cache):
    """K3: a listed class, or one derived from it, from its text; any other is told by name."""
    def raising(error, raises):
        def loader():
            time.sleep(0.1)
            raise error

        return run_together(lambda: cache.get_or_load("k", loader, raises=raises), 3)

    got = raising(NotFound("x"), (NotFound,))
    assert all(type(e) is NotFound and str(e) == "x" for e in got)
    got = raising(Gone("x"), NotFound)
    assert all(isinstance(e, NotFound) for e in got)
    got = raising(Awkward(1, 2), (Awkward,))
    assert sorted(type(e).__name__ for e in got) == ["Awkward", "RemoteLoadError", "RemoteLoadError"]
    got = raising(ValueError("x"), (NotFound,))
    assert all(type(e) is peerage.RemoteLoadError for e in got)


def test_errors_are_kept_only_where_asked_for(cache):
    calls = []

    def loader():
        calls.append(1)
        raise ValueError("x")

    for _ in range(3):
        with pytest.raises(peerage.RemoteLoadError):
            cache.get_or_load("kept", loader, negative_ttl=30)
    assert len(calls) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_ends_a_process_is_no_error_of_the_key(cache, error):
    """It goes to its own caller; the next one who waits loads."""
    started, calls = threading.Event(), []

    def loader():
        calls.append(1)
        started.set()
        time.sleep(0.2)
        if len(calls) == 1:
            raise error
        return "second"

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get_or_load, "k", loader)
        assert started.wait(5)
        second = pool.submit(cache.get_or_load, "k", loader)
        assert second.result(5) == "second"
        assert isinstance(first.exception(5), error)


def test_a_loader_that_asks_for_its_own_key_gets_an_error(cache):
    @cache.cached("{x}", name="f")
    def f(x):
        return f(x)

    with pytest.raises(peerage.RecursiveLoadError):
        f(1)

    @cache.cached("{x}", name="g")
    async def g(x):
        return await h(x)

    @cache.cached("{x}", name="h")
    async def h(x):
        return await g(x)

    with pytest.raises(peerage.RecursiveLoadError):
        asyncio.run(asyncio.wait_for(g(1), 5))


def test_loaders_may_ask_for_other_keys(cache):
    @cache.cached("{x}", name="fib")
    def fib(x):
        return x if x < 2 else fib(x - 1) + fib(x - 2)

    assert fib(7) == 13
    assert fib.cache_info().load == 8, "each key once"


# -- waiting and giving up ---------------------------------------------------------------------------


def test_the_first_caller_may_give_up_and_the_others_get_the_value(cache):
    async def main():
        async def loader():
            await asyncio.sleep(0.2)
            return "made"

        first = asyncio.create_task(cache.aget_or_load("k", loader))
        await asyncio.sleep(0.02)
        others = [asyncio.create_task(cache.aget_or_load("k", loader)) for _ in range(3)]
        await asyncio.sleep(0.02)
        first.cancel()
        assert await asyncio.gather(*others) == ["made"] * 3
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(main())


def test_a_load_is_cancelled_when_nobody_waits(cache):
    async def main():
        told = asyncio.Event()

        async def loader():
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                told.set()
                raise

        tasks = [asyncio.create_task(cache.aget_or_load("k", loader)) for _ in range(2)]
        await asyncio.sleep(0.02)
        tasks[0].cancel()
        await asyncio.sleep(0.05)
        assert not told.is_set()
        tasks[1].cancel()
        await asyncio.wait_for(told.wait(), 2)

        async def quick():
            return "fresh"

        assert await cache.aget_or_load("k", quick) == "fresh"

    asyncio.run(main())


def test_a_loader_that_cancels_itself_does_not_go_round_for_ever(cache):
    async def main():
        async def loader():
            raise asyncio.CancelledError

        with pytest.raises(peerage.LoadLostError):
            await asyncio.wait_for(cache.aget_or_load("k", loader), 5)

    asyncio.run(main())


def test_a_callers_patience_ends_and_the_load_goes_on(cache):
    started = threading.Event()

    def loader():
        started.set()
        time.sleep(0.5)
        return "made"

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(cache.get_or_load, "k", loader)
        assert started.wait(5)
        begun = time.monotonic()
        with pytest.raises(peerage.LoadTimeout) as caught:
            cache.get_or_load("k", loader, timeout=0.1)
        assert 0.05 < time.monotonic() - begun < 0.4
        assert isinstance(caught.value, TimeoutError)
        assert first.result() == "made"
    assert cache.get("k") == "made"


def test_ctrl_c_during_a_wait_returns_at_once(cache):
    """P3: a thread that waits lets the signal's handler run, and leaves if it raises."""
    started, go = threading.Event(), threading.Event()

    def loader():
        started.set()
        go.wait(10)
        return "made"

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(cache.get_or_load, "k", loader)
        assert started.wait(5)
        main_thread = threading.main_thread().ident
        threading.Timer(0.1, signal.pthread_kill, (main_thread, signal.SIGINT)).start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            cache.get_or_load("k", loader)
        assert time.monotonic() - begun < 2
        go.set()
        assert first.result(5) == "made"


# -- event loops -----------------------------------------------------------------------------------------


def test_a_loop_may_end_and_another_begin(cache):
    @cache.cached("{x}", name="f")
    async def f(x):
        await asyncio.sleep(0)
        return x

    for i in range(20):
        assert asyncio.run(f(i)) == i


def test_a_question_takes_few_steps_in_python(cache):
    """All of them lie in the time of every owner's hit. (`aget` takes none: test_asking.py)"""
    called = []

    def note(frame, event, argument):
        if event == "call":
            called.append(frame.f_code.co_name)

    cache.get("missing")
    sys.setprofile(note)
    cache.get("missing")
    sys.setprofile(None)
    assert called == ["get", "key", "encoded", "_channel", "_ask", "_arguments"]


def test_two_loops_at_once_have_a_port_each(cache, peers):
    """None is taken for another's, whichever was looked for last."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def port():
        assert await cache.alookup("missing") is None
        return peers._node.port(asyncio.get_running_loop())

    try:
        ports = [loop.run_until_complete(port()) for loop in (first, second, first, second)]
        assert ports[0] is ports[2] and ports[1] is ports[3] and ports[0] is not ports[1]
        second.run_until_complete(peers.aclose())
        assert peers._node.port(second) is None and peers._node.port(first) is ports[0]
    finally:
        first.close()
        second.close()


def test_a_loop_that_is_closed_in_the_middle_leaves_nothing_behind(cache):
    """O10: its waiters leave, its loads are lost, its descriptors are closed."""
    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    async def never():
        await asyncio.sleep(100)

    async def begin():
        asyncio.ensure_future(cache.aget_or_load("k", never))
        await asyncio.sleep(0.02)

    async def quick():
        return "fresh"

    asyncio.run(cache.aget_or_load("first", quick))
    before = descriptors()
    for _ in range(5):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin())
        gone = weakref.ref(loop)
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False
        loop.close()
        del loop, task
    gc.collect()
    assert gone() is None
    assert descriptors() == before
    assert asyncio.run(asyncio.wait_for(cache.aget_or_load("k", quick), 5)) == "fresh"


def test_an_async_loader_from_a_plain_thread(cache, peers):
    async def loader():
        return "made"

    assert cache.get_or_load("k", loader) == "made"
    assert cache.get_or_load("k2", lambda: loader()) == "made"

    async def main():
        with pytest.raises(peerage.LoopError):
            cache.get_or_load("k3", loader)

    asyncio.run(main())


def test_a_registered_loader_runs_in_the_context_captured_at_start():
    variable = contextvars.ContextVar("variable", default="none")

    async def main():
        variable.set("at start")
        async with peerage.Peers() as peers:
            cache = peers.cache("c", ttl=60)
            f = cache.cached("{x}")(reads_the_variable)
            assert f.cache_info().registered
            variable.set("of the caller")
            assert await f(1) == "at start"

            async def closure():
                return variable.get()

            assert await cache.aget_or_load("k", closure) == "of the caller"

    global _variable
    _variable = variable
    asyncio.run(main())


async def reads_the_variable(x):
    return _variable.get()


def test_an_async_hit_is_a_coroutine_to_everyone(cache):
    @cache.cached("{x}", name="f")
    async def f(x):
        return x

    async def main():
        await f((1, 2))
        assert await f((1, 2)) == [1, 2]
        assert await asyncio.create_task(f((1, 2))) == [1, 2]
        assert await asyncio.wait_for(f((1, 2)), 1) == [1, 2]
        assert await asyncio.gather(f((1, 2)), f((3,))) == [[1, 2], [3]]
        ready = f((1, 2))
        await ready
        with pytest.raises(RuntimeError, match="already awaited"):
            await ready

    asyncio.run(main())
    assert asyncio.iscoroutinefunction(f)
    assert f.__name__ == "f" and f.__wrapped__


# -- methods ------------------------------------------------------------------------------------------------


def test_methods_are_closures_and_static_ones_are_functions(cache):
    class Shop:
        def __init__(self, name):
            self.name = name

        @cache.cached("{item}", name="Shop.price")
        def price(self, item):
            return [self.name, item]

        @cache.cached("{item}", name="Shop.kind")
        @classmethod
        def kind(cls, item):
            return [cls.__name__, item]

        @cache.cached("{item}", name="Shop.twice")
        @staticmethod
        def twice(item):
            return item * 2

    assert Shop("a").price(1) == Shop("b").price(1) == ["a", 1]
    assert Shop("a").price.lookup(1).value == ["a", 1]
    Shop("a").price.invalidate(1)
    assert Shop("b").price(1) == ["b", 1]
    assert Shop.kind(1) == Shop("x").kind(1) == ["Shop", 1]
    assert Shop.twice(2) == 4 and Shop.twice.key(2) == Shop("x").twice.key(2)


# -- the end -------------------------------------------------------------------------------------------------


def test_close_wakes_waiters_and_local_hits_go_on(cache, peers):
    started, go = threading.Event(), threading.Event()

    def loader():
        started.set()
        go.wait(10)
        return "made"

    cache.set("there", 1)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(cache.get_or_load, "k", loader)
        assert started.wait(5)
        waiter = pool.submit(cache.get_or_load, "k", loader)
        time.sleep(0.1)
        peers.close(0)
        assert isinstance(waiter.exception(5), peerage.ClosedError)
        go.set()
    assert cache.get("there") == 1
    with pytest.raises(peerage.ClosedError):
        cache.get_or_load("new", lambda: 1)
    peers.start()
    assert cache.get_or_load("new", lambda: 1) == 1


def test_a_dropped_peers_is_gone():
    peers = peerage.Peers()
    cache = peers.cache("c", ttl=60)
    cache.set("k", bytes(5000))
    gone = weakref.ref(peers)
    del peers, cache
    gc.collect()
    assert gone() is None


def test_explain_says_what_would_happen(cache, peers):
    @cache.cached("{x}", channel="p-{x}", name="f")
    def f(x):
        return x

    before = peers.explain(f, 1)
    assert (before.channel, before.owner, before.would) == ("p-1", None, "load here")
    f(1)
    after = peers.explain(f.key(1))
    assert after.local.value == 1 and after.would == "answer from the local store"
    assert peers.explain(cache.key("raw"), channel="x").channel == "x"


@pytest.mark.parametrize("channel", [5, [1, 2], 1.5, object()])
def test_a_channel_of_another_type_is_refused(channel):
    cache = peerage.Peers().cache("c", ttl=1)
    with pytest.raises(TypeError, match="a channel is str or bytes, not"):
        cache.set("k", b"v", channel=channel)
    with pytest.raises(TypeError, match="a channel is str or bytes, not"):
        cache.invalidate_channel(channel)


def test_an_empty_channel_is_refused_in_words():
    with pytest.raises(ValueError, match="a channel is not empty"):
        peerage.Peers().cache("c", ttl=1).invalidate_channel("")


def test_a_key_asked_for_again_is_found_only_as_long_as_the_store_has_it(peers):
    cache = peers.cache("again", ttl=60)
    short = peers.cache("short", ttl=0.3)
    first, second = b"1" * 4000, b"2" * 4000
    cache.set("k", first)
    before = peers.stats()["hits_local"]
    assert all(cache.get("k") is first for _ in range(10))
    assert cache.get("".join(["k"])) is first
    assert peers.stats()["hits_local"] == before + 11
    cache.set("k", second)
    assert cache.get("k") is second and cache.get("k") is second
    cache.delete("k")
    assert cache.get("k") is None
    short.set("k", first)
    assert short.get("k") is first and short.get("k") is first
    time.sleep(0.4)
    assert short.get("k") is None


def test_hits_beside_a_thread_that_replaces_and_deletes(peers):
    cache = peers.cache("beside", ttl=60)
    values = [bytes([n]) * 3000 for n in range(8)]
    done = threading.Event()

    def change():
        for n in range(4000):
            cache.set("k", bytes([n % 8]) * 3000)
            if n % 3 == 0:
                cache.delete("k")
        done.set()

    thread = threading.Thread(target=change)
    thread.start()
    while not done.is_set():
        for _ in range(50):
            assert cache.get("k") in (None, *values)
    thread.join()
    cache.delete("k")
    assert cache.get("k") is None
