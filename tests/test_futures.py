"""What a task waits for while a port asks: it goes on where its answer comes, and all else is as
with a future of asyncio's. (The questions themselves: test_asking.py)"""

import asyncio
import contextvars
import gc
import weakref

import pytest
from test_asking import Loading, a_child_asks_anew, waiting, with_a_port

from peerage._native import Future

EAGER = getattr(asyncio, "eager_task_factory", None)


def python_task(loop, coroutine, **options):
    return asyncio.tasks._PyTask(coroutine, loop=loop, **options)


def watch(peers):
    """[True] while the loop has called the port."""
    port, inside = peers._node.port(asyncio.get_running_loop()), [False]

    def readable():
        inside[0] = True
        try:
            port.readable()
        finally:
            inside[0] = False

    asyncio.get_running_loop().add_reader(port.fileno(), readable)
    return inside


async def answered(cache, questions, made="made"):
    """The tasks of these questions, which wait for the same load: it is made."""
    with Loading(cache, made) as loading:
        tasks = [await waiting(question) for question in questions]
        loading.go.set()
        await asyncio.wait(tasks, timeout=5)
    return tasks


# -- going on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
@pytest.mark.parametrize("factory", [
    None, python_task,
    pytest.param(EAGER, marks=pytest.mark.skipif(EAGER is None, reason="since Python 3.12")),
], ids=["C", "Python", "eager"])  # fmt: skip
def test_a_task_goes_on_where_its_answer_comes(cache, peers, factory, debug):
    """In its own context, as the one that runs, and before the loop's next turn."""
    variable, seen = contextvars.ContextVar("variable", default="nobody's"), []

    async def asks(n, inside):
        variable.set(n)
        assert await cache.aget("k") == "made"
        seen.append((n, variable.get(), inside[0]))
        assert asyncio.current_task() is tasks[n]
        await asyncio.sleep(0)
        assert not inside[0]

    async def main():
        await with_a_port(cache)
        asyncio.get_running_loop().set_task_factory(factory)
        inside = watch(peers)
        with Loading(cache, "made") as loading:
            tasks.extend([asyncio.create_task(asks(n, inside)) for n in range(3)])
            await asyncio.sleep(0.05)
            loading.go.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 5)
        assert variable.get() == "nobody's"

    tasks = []
    asyncio.run(main(), debug=debug)
    assert seen == [(n, n, True) for n in range(3)]


@pytest.mark.parametrize("factory", [None, python_task], ids=["C", "Python"])
def test_who_is_cancelled_or_too_late_is_told_so(cache, factory):
    async def main():
        await with_a_port(cache)
        asyncio.get_running_loop().set_task_factory(factory)
        with Loading(cache, "made") as loading:
            task, shielded = await waiting(cache.aget("k")), await waiting(cache.aget("k"))
            task.cancel("enough")
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(cache.aget("k"), 0.02)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(shielded), 0.02)
            loading.go.set()
            assert await asyncio.wait_for(shielded, 5) == "made"

    asyncio.run(main())


def test_one_that_cancels_those_whose_answer_came_with_its_own(cache):
    tasks = []

    async def asks():
        await cache.aget("k")
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        return await cache.aget("k")

    async def main():
        await with_a_port(cache)
        with Loading(cache, "made") as loading:
            tasks.extend([await waiting(asks()) for _ in range(3)])
            loading.go.set()
            got = await asyncio.gather(*tasks, return_exceptions=True)
        assert got[0] == "made"
        assert [type(error) for error in got[1:]] == [asyncio.CancelledError] * 2

    asyncio.run(main())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("factory", [None, python_task], ids=["C", "Python"])
def test_one_that_ends_the_loop_takes_no_answer_from_the_others(cache, factory, error):
    """They get what came with its own when the loop runs again."""
    got, tasks = [], []

    async def asks(n):
        value = await cache.aget("k")
        if n == 1:
            raise error(n)
        got.append((n, value))

    async def main():
        await with_a_port(cache)
        loop.set_task_factory(factory)
        with Loading(cache, "made") as loading:
            tasks.extend([await waiting(asks(n)) for n in range(4)])
            loading.go.set()
            await asyncio.sleep(5)

    async def others():
        await asyncio.wait(tasks, timeout=5)

    loop = asyncio.new_event_loop()
    try:
        first = loop.create_task(main())
        with pytest.raises(error, match="1"):
            loop.run_until_complete(first)
        assert got == [(0, "made")]
        loop.run_until_complete(others())
        assert got == [(n, "made") for n in (0, 2, 3)]
        with pytest.raises(error):
            tasks[1].result()
        first.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


def test_a_callback_that_raises_is_told_to_the_loop_and_the_others_get_theirs(peers, cache):
    told = []

    async def main():
        await with_a_port(cache)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))
        with Loading(cache, "made") as loading:
            question = cache.aget("k")
            question.send(None).add_done_callback(lambda future: 1 / 0)
            tasks = [await waiting(cache.aget("k")) for _ in range(2)]
            loading.go.set()
            assert await asyncio.wait_for(asyncio.gather(*tasks), 5) == ["made"] * 2
        question.close()

    asyncio.run(main())
    assert [type(error) for error in told] == [ZeroDivisionError]


@pytest.mark.parametrize("how", ["close", "aclose"])
@pytest.mark.parametrize("again", [False, True], ids=["", "and starts it again"])
def test_one_that_closes_the_node_takes_no_answer_from_the_others(cache, peers, how, again):
    async def asks(n):
        value = await cache.aget("k")
        if n == 1:
            done = getattr(peers, how)()
            if done is not None:
                await done
            if again:
                await peers.astart()
                assert await cache.aget("other", n) == n
        return value

    async def main():
        await with_a_port(cache)
        tasks = await answered(cache, [asks(n) for n in range(4)])
        assert [task.result() for task in tasks] == ["made"] * 4

    asyncio.run(main())


def test_one_that_forks_where_its_answer_came(cache):
    """The answers of the others are the parent's."""
    async def asks(n):
        value = await cache.aget("k")
        if n == 1:
            a_child_asks_anew(cache)
        return value

    async def main():
        await with_a_port(cache)
        tasks = await answered(cache, [asks(n) for n in range(3)])
        assert [task.result() for task in tasks] == ["made"] * 3

    asyncio.run(main())


def test_a_loader_may_ask_and_its_task_tell_the_others(cache):
    """Its end completes who waits on its loop, within the call that completed its own question."""
    async def loader():
        return await cache.aget("k")

    async def main():
        await with_a_port(cache)
        tasks = await answered(
            cache, [cache.aget_or_load("outer", loader), cache.aget("outer"), cache.aget("k")])
        assert [task.result() for task in tasks] == ["made"] * 3

    asyncio.run(main())


@pytest.mark.skipif(EAGER is None, reason="since Python 3.12")
def test_a_load_that_ends_while_its_task_is_made_leaves_nothing_behind(cache, peers):
    async def loader():
        return "made"

    async def main():
        await with_a_port(cache)
        asyncio.get_running_loop().set_task_factory(EAGER)
        assert await cache.aget_or_load("k", loader) == "made"
        assert not peers._node.port(asyncio.get_running_loop()).tasks
        assert not peers._tasks and not peers._loading

    asyncio.run(main())


class Nesting(asyncio.SelectorEventLoop):
    """As nest_asyncio makes them: a task may run it."""

    _nest_patched = True

    def run_within(self, coroutine, seconds=5):
        task, until = asyncio.current_task(), self.time() + seconds
        inner = self.create_task(coroutine)
        self.call_later(seconds, lambda: None)
        asyncio._leave_task(self, task)
        try:
            while not inner.done() and self.time() < until:
                self._run_once()
        finally:
            asyncio._enter_task(self, task)
        assert inner.done(), "its answer never came"
        return inner.result()


def test_a_task_may_run_its_loop_where_that_nests(cache, peers):
    other = peers.cache("other")

    async def asks(loading):
        assert await cache.aget("k") == "made"
        loop.call_later(0.05, loading.go.set)
        return loop.run_within(other.aget("k"))

    async def main():
        await with_a_port(cache)
        with Loading(other, "made there") as loading:
            (task,) = await answered(cache, [asks(loading)])
        assert task.result() == "made there"

    loop = Nesting()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


# -- the future ----------------------------------------------------------------------------------------


def test_it_is_for_one_task(cache):
    async def main():
        future = Future(asyncio.get_running_loop())

        async def awaits():
            return await future

        first = await waiting(awaits())
        with pytest.raises(RuntimeError, match="waits for this future already"):
            await awaits()
        with pytest.raises(RuntimeError, match="waits for this future already"):
            future.add_done_callback(print)
        with pytest.raises(RuntimeError, match="not done"):
            future.result()
        future.set_exception(KeyError("no"))
        for _ in range(2):
            with pytest.raises(KeyError):
                await awaits()
        with pytest.raises(KeyError):
            await first
        assert future.done() and not future.cancelled() and not future.cancel()
        with pytest.raises(RuntimeError, match="done"):
            future.set_exception(KeyError("again"))

    asyncio.run(main())


def test_one_that_is_cancelled_says_why(cache):
    async def main():
        future = Future(asyncio.get_running_loop())
        called = []
        future.add_done_callback(called.append)
        assert future.cancel(msg="enough") and future.cancelled() and not future.cancel()
        assert called == [], "by the loop"
        await asyncio.sleep(0)
        assert called == [future]
        future.add_done_callback(called.append)
        assert called == [future], "by the loop"
        await asyncio.sleep(0)
        assert called == [future] * 2
        with pytest.raises(asyncio.CancelledError, match="enough"):
            future.result()

    asyncio.run(main())


@pytest.mark.parametrize("wrong, said", [
    (lambda port, future: Future(), r"Future\(\) takes exactly 1 argument \(0 given\)"),
    (lambda port, future: Future(loop=None), "Future takes a loop and no keywords"),
    (lambda port, future: future.set_exception("no"), "set_exception takes an exception"),
    (lambda port, future: future.cancel(1, 2), r"cancel\(\) takes at most 1 argument"),
    (lambda port, future: future.add_done_callback(), r"add_done_callback\(\) missing required argument 'callback'"),
    (lambda port, future: port.change(b"k", b"k", None, False, 0, "no"), "takes a Future, got 'no'"),
], ids=["none", "named", "set_exception", "cancel", "add_done_callback", "a port"])  # fmt: skip
def test_wrong_arguments_are_told_in_a_line(cache, peers, wrong, said):
    async def main():
        await with_a_port(cache)
        loop = asyncio.get_running_loop()
        with pytest.raises(TypeError, match=said):
            wrong(peers._node.port(loop), Future(loop))

    asyncio.run(main())


# Python 3.10 closes the loop's sockets first, and says that it then can't close the loop.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_waits_on_a_loop_that_is_dropped_goes_with_it(cache):
    async def main():
        await with_a_port(cache)
        asks = asyncio.create_task(in_vain())
        await asyncio.sleep(0.02)
        return weakref.ref(asks), weakref.ref(asks._fut_waiter)

    async def in_vain():
        await cache.aget("k")

    with Loading(cache, "made"):
        loop = asyncio.new_event_loop()
        seen = [*loop.run_until_complete(main()), weakref.ref(loop)]
        loop.set_exception_handler(lambda *_: None)     # "Task was destroyed but it is pending!"
        with pytest.warns(ResourceWarning, match="unclosed event loop"):
            del loop
            gc.collect()
        assert [each() for each in seen] == [None] * 3
