"""`await cache.aget(...)`, and an async decorated function, for what is not here: asked and answered
without a step in Python, and still to everyone the coroutine that it stands for. With the layer
off a question waits where somebody else is loading its key; what another node answers is in
test_peers.py."""

import asyncio
import contextlib
import contextvars
import gc
import os
import sys
import threading
import weakref

import pytest

import peerage
from peerage.functions import Definition


def in_peerage(frame):
    return os.path.dirname(peerage.__file__) in frame.f_code.co_filename


class Loading:
    """A load of the key "k" on another thread, until it is let go."""

    def __init__(self, cache, made, raised=peerage.RemoteLoadError):
        self.raised = raised
        self.begun, self.go, self.made = threading.Event(), threading.Event(), made
        self.thread = threading.Thread(target=self.run, args=(cache,))

    def load(self):
        self.begun.set()
        assert self.go.wait(10)
        if isinstance(self.made, Exception):
            raise self.made
        return self.made

    def run(self, cache):
        try:
            cache.get_or_load("k", self.load)
        except self.raised:
            pass

    def __enter__(self):
        self.thread.start()
        assert self.begun.wait(5)
        return self

    def __exit__(self, *error):
        self.go.set()
        self.thread.join(10)


async def with_a_port(cache):
    """The loop's first question goes through Python, and makes its port."""
    assert await cache.aget("first") is None


async def waiting(question):
    task = asyncio.ensure_future(question)
    await asyncio.sleep(0.05)
    assert not task.done()
    return task


def test_a_question_takes_no_step_in_python(cache):
    called = []

    def note(frame, event, argument):
        if event == "call" and in_peerage(frame):
            called.append(frame.f_code.co_name)

    async def main():
        await with_a_port(cache)
        gc.collect()                # what ends other tests' nodes is Python, too
        with Loading(cache, "made") as loading:
            threading.Timer(0.1, loading.go.set).start()
            sys.setprofile(note)
            assert await cache.aget("missing", 5) == 5
            assert await cache.aget("missing", default=6, channel="of it") == 6
            assert await cache.aget("k", channel=b"of it") == "made"
            sys.setprofile(None)

    try:
        asyncio.run(main())
    finally:
        sys.setprofile(None)
    assert called == []


@pytest.mark.parametrize("made", [b"x" * 2000, b"", "text", None, {"a": [1]}], ids=repr)
def test_who_waits_gets_the_value_itself(cache, made):
    async def main():
        await with_a_port(cache)
        with Loading(cache, made) as loading:
            tasks = [await waiting(cache.aget("k", "none")) for _ in range(2)]
            loading.go.set()
            first, second = await asyncio.gather(*tasks)
        assert first == second == made
        assert first is not second or not isinstance(made, dict), "JSON is decoded anew for each"

    asyncio.run(main())


def test_who_waits_for_a_loader_that_fails_gets_its_error(cache):
    async def main():
        await with_a_port(cache)
        with Loading(cache, KeyError("no")) as loading:
            tasks = [await waiting(cache.aget("k")) for _ in range(2)]
            loading.go.set()
            errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(type(e) is peerage.RemoteLoadError for e in errors)
        assert errors[0] is not errors[1] and "no" in str(errors[0])

    asyncio.run(main())


def test_an_error_that_is_kept_is_raised(cache):
    def loader():
        raise KeyError("no")

    async def main():
        await with_a_port(cache)
        with pytest.raises(peerage.RemoteLoadError):
            cache.get_or_load("kept", loader, negative_ttl=30)
        for _ in range(2):
            with pytest.raises(peerage.RemoteLoadError):
                await cache.aget("kept", 5)

    asyncio.run(main())


def test_a_loader_that_asks_for_its_own_key_gets_an_error(cache):
    async def loader():
        return await cache.aget("k")

    async def main():
        await with_a_port(cache)
        with pytest.raises(peerage.RecursiveLoadError):
            await asyncio.wait_for(cache.aget_or_load("k", loader), 5)

    asyncio.run(main())


def test_a_reader_that_did_not_ask_for_pickle_is_told(peers):
    pickling, plain = peers.cache("p", pickle=True), peers.cache("q")

    async def main():
        await with_a_port(plain)
        await pickling.aset("k", {1, 2})
        key = pickling.key("k")
        assert await plain.aget(key.replace(b"p=", b"q="), 5) == 5
        with pytest.raises(peerage.Error, match="pickled"):
            await plain.aget(key)
        assert await pickling.aget(key) == {1, 2}

    asyncio.run(main())


def test_a_question_is_asked_when_it_is_awaited(cache):
    async def main():
        await with_a_port(cache)
        question = cache.aget("k")
        cache.set("k", "since")
        assert await question == "since"

    asyncio.run(main())
    assert asyncio.run(cache.aget("nowhere", 5)) == 5, "made where no loop runs"


def test_it_is_a_coroutine_to_everyone(cache):
    async def main():
        await with_a_port(cache)
        assert await asyncio.create_task(cache.aget("a", 1)) == 1
        assert await asyncio.wait_for(cache.aget("a", 1), 1) == 1
        assert await asyncio.gather(cache.aget("a", 1), cache.aget("b", 2)) == [1, 2]
        task = asyncio.create_task(cache.aget("a"))
        assert "Cache.aget" in repr(task)
        await task
        question = cache.aget("a")
        await question
        with pytest.raises(RuntimeError, match="already awaited"):
            await question
        with Loading(cache, "made") as loading:
            question = cache.aget("k")
            future = question.send(None)
            assert asyncio.isfuture(future) and future.get_loop() is asyncio.get_running_loop()
            loading.go.set()
            await asyncio.sleep(0.05)
            with pytest.raises(StopIteration) as stop:
                question.send(None)
            assert stop.value.value == "made"

    asyncio.run(main())


def test_one_that_is_never_awaited_says_so(cache):
    async def main():
        await with_a_port(cache)
        with pytest.warns(RuntimeWarning, match="coroutine 'Cache.aget' was never awaited"):
            cache.aget("k")
            gc.collect()
        cache.aget("k").close()     # said not to be wanted
        with pytest.raises(ZeroDivisionError):
            cache.aget("k").throw(ZeroDivisionError)

    asyncio.run(main())


@pytest.mark.parametrize("slowly", [False, True], ids=["by the port", "by the slow path"])
def test_who_gives_up_waits_no_more_and_the_others_do(cache, slowly):
    async def main():
        if not slowly:
            await with_a_port(cache)
        with Loading(cache, "made") as loading:
            tasks = [await waiting(cache.aget("k")) for _ in range(3)]
            tasks[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(cache.aget("k"), 0.05)
            closed = cache.aget("k")
            closed.send(None)
            closed.close()
            with pytest.raises(RuntimeError, match="already awaited"):
                closed.send(None)
            dropped = cache.aget("k")
            dropped.send(None)
            del dropped
            thrown = cache.aget("k")
            thrown.send(None)
            with pytest.raises(ZeroDivisionError):
                thrown.throw(ZeroDivisionError("x"))
            loading.go.set()
            assert await asyncio.gather(*tasks[1:]) == ["made"] * 2

    asyncio.run(main())


def test_a_cancelled_question_is_no_waiter_of_the_node_any_more(cache):
    """The load that only it waits for is cancelled."""
    async def main():
        await with_a_port(cache)
        told = asyncio.Event()

        async def loader():
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                told.set()
                raise

        first = asyncio.create_task(cache.aget_or_load("k", loader))
        await asyncio.sleep(0.02)
        second = await waiting(cache.aget("k"))
        first.cancel()
        await asyncio.sleep(0.05)
        assert not told.is_set(), "the other still waits"
        second.cancel()
        await asyncio.wait_for(told.wait(), 2)

    asyncio.run(main())


def test_what_is_wrong_with_a_question_is_worded_when_it_is_awaited(cache):
    async def main():
        await with_a_port(cache)
        for wrong in ((), ("k", 1, 2)):
            with pytest.raises(TypeError, match=r"aget\(\)"):
                await cache.aget(*wrong)
        for named in ({"of": 1}, {"default": 1, "channel": None, "more": 2}):
            with pytest.raises(TypeError, match="unexpected keyword argument"):
                await cache.aget("k", **named)
        with pytest.raises(TypeError, match="multiple values"):
            await cache.aget("k", 1, default=2)
        questions = [
            cache.aget("", channel="x"), cache.aget("k", channel="\ud800"),
            cache.aget("k", channel=5), cache.aget("k", channel="x" * 256), cache.aget(5),
        ]
        errors = await asyncio.gather(*questions, return_exceptions=True)
        assert [type(e) for e in errors] == [
            ValueError, ValueError, TypeError, peerage.TooBigError, TypeError]

    asyncio.run(main())


def test_every_loop_is_asked_by_its_own_port(cache, peers):
    """Also one that was made before the node was closed and started again."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        for loop in (first, second, first, second):
            loop.run_until_complete(with_a_port(cache))
        ports = [peers._node.port(loop) for loop in (first, second)]
        assert None not in ports and ports[0] is not ports[1]
        peers.close()
        for loop in (first, second):
            with pytest.raises(peerage.ClosedError):
                loop.run_until_complete(cache.aget("k"))
        peers.start()
        for loop in (first, second):
            assert peers._node.port(loop) is None
            assert loop.run_until_complete(cache.aget("k", 5)) == 5
            assert loop.run_until_complete(cache.aget("k", 5)) == 5
            assert peers._node.port(loop) is not None
    finally:
        first.close()
        second.close()
    del loop, first, second, ports
    gc.collect()


def a_child_asks_anew(cache):
    """A fork's, from within a running loop: nothing of its parent's is there."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            asyncio._set_running_loop(None)
            assert asyncio.run(cache.aget("k", 5)) == 5
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_forks_child_asks_anew(cache):
    async def main():
        await with_a_port(cache)
        cache.set("k", "parent's")
        a_child_asks_anew(cache)
        assert await cache.aget("k") == "parent's"

    asyncio.run(main())


def test_a_loop_that_is_closed_while_a_question_waits(cache):
    """O10: nothing of it is left."""
    with Loading(cache, "made"):
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(with_a_port(cache))
            task = loop.run_until_complete(waiting_task(cache))
            task._log_destroy_pending = False
            loop.close()
            del loop, task
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) == before


async def waiting_task(cache):
    return await waiting(cache.aget("k"))


# -- decorated functions ------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", [None, "{x}"])
def test_a_call_that_waits_for_anothers_load_takes_no_step_in_python_but_for_its_channel(
    cache, channel
):
    begun, go = threading.Event(), threading.Event()

    @cache.cached("{x}", name="f", channel=channel)
    async def f(x):
        begun.set()
        await asyncio.get_running_loop().run_in_executor(None, go.wait, 10)
        return [x]

    called = []

    def note(frame, event, argument):
        if event == "call" and in_peerage(frame) and frame.f_code.co_name != "<genexpr>":
            called.append(frame.f_code.co_name)

    async def main():
        await with_a_port(cache)
        gc.collect()                # as above
        loading = threading.Thread(target=asyncio.run, args=(awaited(f, 1),))
        loading.start()
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, 5)
        threading.Timer(0.1, go.set).start()
        sys.setprofile(note)
        try:
            assert await f(1) == [1]
        finally:
            sys.setprofile(None)
        loading.join(5)

    asyncio.run(main())
    assert called == ([] if channel is None else ["_channel", "encoded"])
    assert f.cache_info().load == 2 and f.cache_info().error == 0


async def awaited(function, *args):
    return await function(*args)


class Listed(Exception):
    pass


def test_a_call_that_loads(cache):
    """In its caller's context, for all who ask meanwhile; and what comes of it is counted."""
    variable, calls = contextvars.ContextVar("variable"), []

    @cache.cached("{x}", name="f")
    async def f(x, unseen=None):
        calls.append(x)
        await asyncio.sleep(0.05)
        return {"x": x, "of": variable.get(), "unseen": unseen}

    async def main():
        await with_a_port(cache)
        variable.set("the caller")
        question = f(1, unseen=3)
        assert "f" in repr(asyncio.ensure_future(question))
        made = await asyncio.gather(*(f(1) for _ in range(5)))
        assert made == [{"x": 1, "of": "the caller", "unseen": 3}] * 5
        assert len({id(each) for each in made}) == 5 and calls == [1]
        assert await f(1) == made[0]
        info = f.cache_info()
        assert (info.load, info.local, info.error) == (6, 1, 0)
        with pytest.warns(RuntimeWarning, match=r"coroutine '.*<locals>\.f' was never awaited"):
            f(2)
            gc.collect()

    asyncio.run(main())
    assert calls == [1]


def test_a_call_whose_loader_raises(cache):
    """Its own caller gets the object itself, the others one of their own."""
    error = Listed("no")

    @cache.cached("{x}", name="f", raises=Listed)
    async def f(x):
        await asyncio.sleep(0.05)
        raise error if x else ValueError("other")

    async def main():
        await with_a_port(cache)
        errors = await asyncio.gather(*(f(1) for _ in range(3)), return_exceptions=True)
        assert errors[0] is error and [type(e) for e in errors] == [Listed] * 3
        assert errors[1] is not error and errors[1] is not errors[2]
        errors = await asyncio.gather(*(f(0) for _ in range(2)), return_exceptions=True)
        assert [type(e) for e in errors] == [peerage.RemoteLoadError] * 2
        assert isinstance(errors[0].__cause__, ValueError)
        assert f.cache_info().error == 5 and f.cache_info().load == 0

    asyncio.run(main())


class Unreadable:
    def __reduce__(self):
        return next, (iter(()),)


def test_an_error_that_no_future_takes_is_told_all_the_same(peers):
    """A StopIteration, of a value that can't be read."""
    pickling = peers.cache("p", pickle=True)

    async def main():
        await with_a_port(pickling)
        with Loading(pickling, Unreadable(), StopIteration) as loading:
            task = await waiting(pickling.aget("k"))
            loading.go.set()
            with pytest.raises((TypeError, RuntimeError), match="StopIteration"):
                await asyncio.wait_for(task, 5)

    asyncio.run(main())


def test_a_call_whose_loader_cancels_itself_does_not_go_round_for_ever(cache):
    @cache.cached("{x}", name="f")
    async def f(x):
        raise asyncio.CancelledError

    async def main():
        await with_a_port(cache)
        with pytest.raises(peerage.LoadLostError, match="was cancelled"):
            await asyncio.wait_for(f(1), 5)

    asyncio.run(main())


def test_a_call_that_is_given_up_while_it_loads(cache):
    """The others get the value; where nobody is left, the loader is cancelled."""
    told = []

    @cache.cached("{x}", name="f")
    async def f(x):
        try:
            await asyncio.sleep(0.2 if x else 10)
        except asyncio.CancelledError:
            told.append(x)
            raise
        return "made"

    async def main():
        await with_a_port(cache)
        tasks = [await waiting(f(1)) for _ in range(3)]
        tasks[0].cancel()
        assert await asyncio.gather(*tasks[1:]) == ["made"] * 2
        tasks = [await waiting(f(0)) for _ in range(2)]
        for task in tasks:
            task.cancel()
        until = asyncio.get_running_loop().time() + 5
        while not told and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        assert told == [0]

    asyncio.run(main())


def test_nothing_keeps_a_call_that_has_loaded(cache):
    class Argument:
        def __str__(self):
            return "a"

    @cache.cached("{x}", name="f")
    async def f(x, argument=None):
        return x

    async def main():
        await with_a_port(cache)
        argument = Argument()
        gone = weakref.ref(argument)
        assert await f(1, argument) == 1
        del argument
        await asyncio.sleep(0.01)
        assert gone() is None, "without the collector"

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_a_channel_that_is_wrong_is_worded_when_it_is_awaited(cache):
    @cache.cached("{x}", name="f", channel="{x}")
    async def f(x):
        return x

    async def main():
        await with_a_port(cache)
        question = f("x" * 300)
        with pytest.raises(peerage.TooBigError):
            await question
        assert f.cache_info().error == 1

    asyncio.run(main())


# -- what a coroutine would do ------------------------------------------------------------------------


class Lost:
    """A load that is lost: it falls to the next one who waits."""

    def __init__(self, cache, key):
        self.begun, self.go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, args=(cache, key))

    def load(self):
        self.begun.set()
        assert self.go.wait(10)
        raise SystemExit

    def run(self, cache, key):
        with contextlib.suppress(SystemExit):
            cache.get_or_load(key, self.load)

    def __enter__(self):
        self.thread.start()
        assert self.begun.wait(5)
        return self

    def lose(self):
        self.go.set()
        self.thread.join()

    def __exit__(self, *_):
        self.lose()


@pytest.mark.parametrize("how", [
    lambda question: question, asyncio.ensure_future, lambda question: asyncio.gather(question),
], ids=["awaited", "a task", "gathered"])  # fmt: skip
def test_a_stop_iteration_that_is_kept_is_no_value(cache, how):
    @cache.cached("{x}", name="f", raises=(StopIteration,), negative_ttl=30)
    async def f(x):
        return x

    def load():
        raise StopIteration("not the value")

    async def main():
        await f("first")
        with pytest.raises(peerage.RemoteLoadError):
            cache.get_or_load(f.key("k"), load, negative_ttl=30)

        async def asks():
            return await how(f("k"))

        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(asks(), 5)

    asyncio.run(main())


@pytest.mark.parametrize("spawns", [True, False])
def test_a_call_that_is_dropped_leaves(cache, peers, monkeypatch, spawns):
    ran = []

    @cache.cached("{x}", name="f")
    async def f(x):
        ran.append(x)
        return x

    async def main():
        await f("first")
        with Lost(cache, f.key("k")) as lost:
            dropped = f("k")
            future = weakref.ref(dropped.send(None))
            if not spawns:      # as a user's task factory may
                monkeypatch.setattr(peers, "_spawn", lambda *_: 1 / 0)
            del dropped
            gc.collect()
            assert future() is None
            lost.lose()
            await asyncio.sleep(0.1)
        assert ran == ["first"], "nobody waits for it"

    asyncio.run(main())


def test_a_hook_that_raises_while_its_call_is_dropped(cache, peers, monkeypatch):
    """The call waits no longer when the load falls to it, and the report names it all the same."""
    @cache.cached("{x}", name="f")
    async def f(x):
        return x

    async def main():
        await f("first")
        with Lost(cache, f.key("k")) as lost:
            waits = await waiting(f("k"))
            monkeypatch.setattr(peers, "_spawn", lambda *_: 1 / 0)
            monkeypatch.setattr(sys, "unraisablehook", lambda said: seen.append(said.exc_type))
            lost.lose()
            with pytest.raises(peerage.LoadLostError):
                await asyncio.wait_for(waits, 5)

    seen = []
    asyncio.run(main())
    assert ZeroDivisionError in seen


@pytest.mark.parametrize("call", [
    lambda question: question.send(None), lambda question: question.close(),
    lambda question: question.throw(ZeroDivisionError),
], ids=["send", "close", "throw"])  # fmt: skip
def test_one_that_is_executing_is_left_alone(cache, peers, monkeypatch, call):
    ensure, said = peers._aensure, []

    async def ensured():
        with pytest.raises(ValueError, match="already executing") as raised:
            call(question)
        said.append(raised.value)
        gc.collect()
        return await ensure()

    async def main():
        assert await question == 5

    monkeypatch.setattr(peers, "_aensure", ensured)
    question = cache.aget("k", 5)
    asyncio.run(main())
    assert said


def test_an_interrupt_while_the_channel_is_made_is_raised(cache, monkeypatch):
    channel, interrupted = Definition._channel, []

    def interrupting(self, key):
        if interrupted:
            raise KeyboardInterrupt
        return channel(self, key)

    monkeypatch.setattr(Definition, "_channel", interrupting)

    @cache.cached("{x}", channel="{x}", name="f")
    async def f(x):
        return x

    async def main():
        await f("first")
        interrupted.append(True)
        with pytest.raises(KeyboardInterrupt):
            f("k")

    asyncio.run(main())


def test_what_is_done_keeps_nothing_that_it_was_called_with(cache):
    """A task keeps its coroutine."""
    class Large:
        pass

    @cache.cached("{x}", ignore=["extra"], name="f")
    async def f(x, extra=None):
        return x

    async def main():
        await f("first")
        for ask in (lambda large: f("k", extra=large), lambda large: cache.aget("none", large)):
            large = Large()
            seen = weakref.ref(large)
            question = ask(large)
            await question
            del large
            gc.collect()
            assert seen() is None

    asyncio.run(main())
