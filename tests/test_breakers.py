"""What an application may do to the layer by mistake: loaders that never end, that end the
process, or that raise what can't be told to others; times that are no times; event loops that
are gone. None of it may hang a caller or cost more than one load."""

import asyncio
import decimal
import fractions
import math
import os
import subprocess
import sys
import threading
import time

import pytest

import peerage
from workers import Failed, a_key_of


LONE = "x\udcff"         # of bytes that are not UTF-8
ITSELF: list = []
ITSELF.append(ITSELF)


def one(x):
    return b"v"


@pytest.fixture
def peers():
    made = peerage.Peers()
    yield made
    made.close(drain=0)


@pytest.fixture
def cache(peers):
    return peers.cache("breakers", ttl=60, load_timeout=0.3)


def within(seconds, call):
    """call() on a thread; fails if it takes longer, and does not wait for it then."""
    out = []

    def work():
        try:
            out.append(call())
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert out, "it hangs"
    return out[0]


# -- loaders that never end ----------------------------------------------------------------


def test_an_async_loader_out_of_time_is_cancelled_and_not_run_again(cache):
    loads, cancelled = [], []

    async def hung():
        loads.append(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def main():
        asked = (cache.aget_or_load("k", hung) for _ in range(5))
        return await asyncio.gather(*asked, return_exceptions=True)

    answers = within(3, lambda: asyncio.run(main()))
    assert [type(a) for a in answers] == [peerage.LoadTimeout] * 5
    assert len(loads) == len(cancelled) == 1
    # and the key is as good as before
    assert cache.get_or_load("k", lambda: b"v") == b"v"


def test_a_sync_loader_out_of_time_still_answers_its_caller(cache):
    assert cache.get_or_load("k", lambda: time.sleep(0.6) or b"v") == b"v"


def test_a_registered_async_loader_that_hangs_on_its_owner_ends_in_a_bound(fleet):
    """Owner, heir, and the asker itself: one load each at most, then an error."""
    workers = fleet(3, PEER_LOAD_TIMEOUT="0.5")
    began = time.monotonic()
    with pytest.raises(Exception, match="LoadTimeout"):
        workers[0]("alookup", "avalue", "hung", 0, 60.0)
    assert time.monotonic() - began < 4
    loads = sum(w("loaded").get("hung", 0) for w in workers)
    assert loads <= 3


# -- loaders that raise what is no ordinary error ----------------------------------------------


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit])
def test_a_loader_that_was_cancelled_is_not_run_again_for_the_same_caller(cache, error):
    loads = []

    async def ends():
        loads.append(1)
        raise error

    async def main():
        await cache.aget_or_load("k", ends)

    said = within(3, lambda: asyncio.run(main()))
    assert type(said) is peerage.LoadLostError
    assert len(loads) == 1


def test_a_loader_that_ends_its_event_loop_leaves_nothing_behind(peers):
    cache = peers.cache("exits", ttl=60)    # its loads may take 10 s

    async def leaves():
        raise SystemExit(3)

    async def main():
        await cache.aget_or_load("k", leaves)

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert within(3, lambda: cache.get_or_load("k", lambda: b"v")) == b"v"


@pytest.mark.parametrize("function, args, raised", [
    ("exits", [], "builtins.SystemExit"),
    ("aexits", [], "builtins.SystemExit"),
    ("aexits", ["interrupt"], "builtins.KeyboardInterrupt"),
])  # fmt: skip
def test_a_loader_that_exits_ends_no_worker_it_was_run_for_others_on(fleet, function, args, raised):
    """Else one bad key would take one owner after the other."""
    workers = fleet(3)
    owner, asker = workers[:2]
    key = a_key_of(owner)
    with pytest.raises(Failed) as caught:
        asker("alookup" if function == "aexits" else "lookup", function, key, *args)
    assert caught.value.said["error"] == "RemoteLoadError"
    assert caught.value.said["type_name"] == raised
    assert f"no {key}" in caught.value.said["text"]
    assert [w("loaded").get(key, 0) for w in workers] == [1, 0, 0], "nobody else tries it"
    good = a_key_of(owner, "good")
    assert f"{good} by {owner.pid}" in asker("alookup", "avalue", good)["value"], "the loop goes on"


STOPPED = """
import asyncio, signal, sys, threading, peerage
from peerage.loads import by_signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
cache = peerage.Peers().cache("c", ttl=60)

async def loader():
    signal.raise_signal(getattr(signal, sys.argv[1]))
    await asyncio.sleep(5)

def ask():
    try:
        cache.get_or_load("k", loader)
    except BaseException as error:
        print(type(error).__name__, flush=True)

async def main():
    await cache.peers.astart()
    threading.Thread(target=ask, daemon=True).start()
    await asyncio.sleep(5)
    print("went on", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("name, status", [("SIGTERM", 7), ("SIGINT", -2)])
def test_a_signal_that_comes_while_a_loader_runs_stops_the_process(name, status):
    """What its handler raises goes through the loader's frame and is no error of the key."""
    ended = subprocess.run(
        [sys.executable, "-c", STOPPED, name], timeout=30, text=True, stdout=subprocess.PIPE
    )
    assert ended.returncode == status
    assert "went on" not in ended.stdout and "RemoteLoadError" not in ended.stdout


def test_a_thread_that_borrows_a_loop_does_not_end_it(peers):
    """A plain thread's async loader runs on the loop that started the layer: what it raises
    is the thread's."""
    cache = peers.cache("borrows", ttl=60)

    async def leaves():
        raise SystemExit(3)

    async def main():
        await peers.astart()
        said = await asyncio.to_thread(within, 3, lambda: cache.get_or_load("k", leaves))
        assert type(said) is SystemExit
        return "went on"

    assert asyncio.run(main()) == "went on"


def test_an_error_whose_text_is_no_text_reaches_its_callers(cache):
    def raises():
        raise peerage.RemoteLoadError(404)

    with pytest.raises(peerage.RemoteLoadError):
        cache.get_or_load("k", raises)
    assert within(0.2, lambda: cache.get_or_load("k", lambda: b"v")) == b"v"


# -- misuse that is said in one line ---------------------------------------------------------------


@pytest.mark.parametrize("call, error, said", [
    (lambda c: c.get("k" * 1020), peerage.TooBigError, "in front is 1028 bytes, at most 1024"),
    (lambda c: c.get_or_load("k" * 1020, bytes), peerage.TooBigError, "1028 bytes, at most 1024"),
    (lambda c: c.get("k", channel="c" * 300), peerage.TooBigError, "channel is 300 bytes, at most 255"),
    (lambda c: c.set("k", b"v", ttl="5"), TypeError, "seconds, a number, not str"),
    (lambda c: c.peers.cache("other", ttl="5"), TypeError, "ttl: seconds, a number, not str"),
    (lambda c: c.peers.cache("other", ttl=-1), ValueError, "ttl: seconds, .* not -1"),
    (lambda c: c.peers.close("5"), TypeError, "drain: seconds, a number, not str"),
    (lambda c: c.get_or_load("k", 5), TypeError, "a loader is a function .*, not int"),
    (lambda c: c.get_many("abc"), TypeError, "several keys, .* not one str"),
    (lambda c: c.delete_many(b"abc"), TypeError, "several keys, .* not one bytes"),
    (lambda c: c.cached(5)(len), TypeError, "key: a template .* not int"),
    (lambda c: c.peers.owner(5), TypeError, "a channel is str or bytes, not int"),
    (lambda c: c.peers.owner(None), TypeError, "a channel is str or bytes, not NoneType"),
    (lambda c: c.invalidate_channel(None), TypeError, "a channel is str or bytes, not NoneType"),
    (lambda c: c.get(LONE), ValueError, r"a key is text without lone surrogates, not 'x\\udcff'"),
    (lambda c: c.get("k", channel=LONE), ValueError, "a channel is text without lone"),
    (lambda c: c.set("k", LONE), TypeError, "type str can't be shared .* lone surrogates"),
    (lambda c: c.set("k", [LONE]), TypeError, "type list can't be shared .* lone surrogates"),
    (lambda c: c.set("k", ITSELF), TypeError, "type list can't be shared .* contains itself"),
    (lambda c: c.set("k", {"a": [ITSELF]}), TypeError, "can't be shared .* contains itself"),
    (lambda c: c.set("k", 10**5000), TypeError, "type int can't be shared .* too many digits"),
    (lambda c: c.set_many("x"), TypeError, "several values: .* such as a dict, not str"),
    (lambda c: c.set_many([1]), TypeError, "several values: .* such as a dict, not list"),
    (lambda c: c.get_many(5), TypeError, "several keys, such as a list, not one int"),
    (lambda c: c.set("k", 1, stale=[]), TypeError, "stale: seconds, a number, not list"),
    (lambda c: c.set("k", 1, ttl=math.nan), ValueError, "ttl: seconds, not NaN"),
    (lambda c: peerage.Loaded(1, also=[1]), TypeError, "also: keys .* such as a dict, not list"),
    (lambda c: peerage.Loaded(1, ttl="5"), TypeError, "ttl: seconds, a number, not str"),
    (lambda c: peerage.Loaded(1, stale=[]), TypeError, "stale: seconds, a number, not list"),
    (lambda c: c.get_or_load("k", bytes, ttl="5"), TypeError, "ttl: seconds, a number, not str"),
    (lambda c: c.peers.cache("other", jitter=None), TypeError, "jitter: .* not NoneType"),
    (lambda c: c.peers.cache("other", stale=None), TypeError, "stale: .* not NoneType"),
    (lambda c: c.peers.cache("other", early="1"), TypeError, "early: .* not str"),
    (lambda c: c.peers.cache("other", negative_ttl=None), TypeError, "negative_ttl: .* NoneType"),
    (lambda c: c.peers.cache("other", early=-1), ValueError, "early: seconds, not negative, not -1"),
    (lambda c: c.peers.cache("other", timeout=0), ValueError, "timeout: seconds, more than 0, .* 0"),
    (lambda c: c.peers.cache("other", pickle=1), TypeError, "pickle: True or False, not int"),
    (lambda c: c.peers.cache("b", ttl=9, jitter=1).cached("{x}", ttl="9"), TypeError, "ttl: .* str"),
    (lambda c: c.peers.cache([]), TypeError, "a cache has a name, a str, not list"),
    (lambda c: c.peers.cache(""), ValueError, "a cache has a name, not an empty one"),
    (lambda c: c.peers.cache(LONE), ValueError, "the name of a cache is text without lone"),
    (lambda c: c.cached("{x}", name=5)(one), TypeError, "a function has a name, a str, not int"),
    (lambda c: c.cached("{x}", ignore=5), TypeError, "several parameters to ignore, .* one int"),
    (lambda c: c.cached("{x}", channel=LONE)(one)("a"), ValueError, "a channel is text without"),
    (lambda c: c.cached("{x}")(5), TypeError, r"cached\(\) decorates a function, not int"),
    (lambda c: c.cached("{x}")(one)(ITSELF), TypeError, "'x' has no canonical form .* list is none"),
    (lambda c: c.cached("{x}")(one)(10**5000), peerage.TooBigError, "make a key above 1024 bytes"),
    (lambda c: c.peers.on_members(5), TypeError, "a callback is a function .*, not int"),
    (lambda c: c.peers.on_coordinator(None), TypeError, "a callback is a function .*, not NoneType"),
    (lambda c: c.cached("{x", name="long" * 25_000)(one), ValueError, "too long: 'longl"),
    (lambda c: c.cached("{" + "\n" * 100_000)(one), ValueError, r"key '{\\n"),
    (lambda c: c.cached("{x}", raises="e" * 100_000), TypeError, "takes exception classes, not 'e"),
    (lambda c: c.cached("{x}")(one)(**{"\n" * 99: 1}), TypeError, r"keyword argument '\\n"),
    (lambda c: peerage.Peers(**{"p" * 100_000: 1}), TypeError, "unexpected setting 'p"),
])  # fmt: skip
def test_misuse_is_told_by_what_it_got_and_what_it_takes(peers, call, error, said):
    cache = peers.cache("misused", ttl=60)
    cache.set("kept", b"v")
    with pytest.raises(error, match=said) as caught:
        call(cache)
    assert type(caught.value) is error, "and none of Python's own, from inside"
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    assert cache.get("kept") == b"v"


@pytest.mark.parametrize("drain", [math.inf, math.nan, -1, 10**400, "x", None, True], ids=repr)
def test_a_close_that_is_refused_closes_nothing(peers, drain):
    cache = peers.cache("open", ttl=60)
    cache.set("kept", b"v")
    with pytest.raises((TypeError, ValueError), match="drain: seconds, "):
        peers.close(drain)
    with pytest.raises((TypeError, ValueError), match="drain: seconds, "):
        asyncio.run(peers.aclose(drain))
    assert cache.get_or_load("new", lambda: b"made") == b"made", "it is open"
    assert cache.get("kept") == b"v"


@pytest.mark.parametrize("channel", ["", b"", None], ids=repr)
def test_an_empty_channel_is_none_whether_the_value_is_here_or_not(peers, channel):
    cache = peers.cache("judged", ttl=60)
    cache.set("here", b"v", channel=channel)
    for key in ("here", "there"):
        assert cache.get_or_load(key, lambda: b"v", channel=channel) == b"v"
        assert asyncio.run(_awaited(cache.aget(key, channel=channel))) == b"v"
    assert cache.get("nowhere", channel=channel) is None
    assert cache.cached("{x}", channel="{x}")(one)("") == b"v"
    with pytest.raises(ValueError, match="a channel is not empty"):
        cache.invalidate_channel(b"")


async def _awaited(answer):
    return await answer


# -- a loop that would wait for itself ------------------------------------------------------------


@pytest.mark.parametrize("borrowed", [False, True])
def test_a_sync_call_for_what_its_own_loop_is_loading_is_an_error_at_once(peers, borrowed):
    """It blocks the loop, so the load could never end. Another key's call only blocks it."""
    cache = peers.cache("itself", ttl=60)
    begun = threading.Event()

    async def slow():
        begun.set()
        await asyncio.sleep(0.3)
        return b"v"

    async def main():
        await peers.astart()
        if borrowed:    # a plain thread's async loader runs on this loop
            load = asyncio.ensure_future(asyncio.to_thread(cache.get_or_load, "k", slow))
        else:
            load = asyncio.ensure_future(cache.aget_or_load("k", slow))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        for ask in (lambda: cache.get_or_load("k", lambda: b"other"), lambda: cache.get("k")):
            with pytest.raises(peerage.LoopError, match="this loop is loading"):
                ask()
        assert cache.get_or_load("else", lambda: b"e") == b"e"
        assert await load == b"v"
        assert cache.get_or_load("k", lambda: b"other") == b"v", "a local hit is fine"

    assert within(5, lambda: asyncio.run(main())) is None


# -- event loops that are gone -------------------------------------------------------------------


def test_who_waits_for_a_loader_on_a_loop_notices_that_the_loop_ended(cache):
    begun = threading.Event()

    async def slow():
        begun.set()
        await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(cache.aget_or_load("first", as_value))
    waiting = []

    async def main():
        waiting.append(threading.Thread(target=ask, daemon=True))
        waiting[0].start()
        while not begun.is_set():
            await asyncio.sleep(0.01)

    said = []

    def slow_by_call():
        return slow()

    def ask():
        try:
            cache.get_or_load("k", slow_by_call, load_timeout=60)
        except peerage.LoadLostError as error:
            said.append(error)

    loop.run_until_complete(main())     # stops with the loader's task unfinished
    waiting[0].join(4)
    loop.close()
    assert said


async def as_value():
    return b"v"


# -- times that are none ---------------------------------------------------------------------------


def test_infinity_is_for_ever(peers, cache):
    forever = peers.cache("forever", ttl=math.inf, stale=math.inf)
    assert forever.get_or_load("k", lambda: b"v") == b"v"
    assert forever.get("k") == b"v"
    cache.set("k", b"v", ttl=math.inf)
    assert cache.get("k") == b"v"
    assert cache.get_or_load("l", lambda: peerage.Loaded(b"v", ttl=1e306)) == b"v"
    assert cache.get("l") == b"v"


@pytest.mark.parametrize("ttl", [10**400, decimal.Decimal(60), fractions.Fraction(60)], ids=repr)
def test_whatever_is_a_number_is_a_time(peers, ttl):
    cache = peers.cache("numbers", ttl=ttl, jitter=decimal.Decimal("0.5"))
    cache.set("k", b"v")
    cache.set("l", b"v", ttl=ttl)
    assert cache.get("k") == cache.get("l") == cache.cached("{x}", ttl=ttl)(one)("a") == b"v"


@pytest.mark.parametrize(
    "wrong",
    [{"ttl": math.nan}, {"stale": math.nan}, {"jitter": math.nan}, {"negative_ttl": math.nan},
     {"load_timeout": 0}, {"load_timeout": math.nan}, {"timeout": 0}, {"timeout": -1}],
    ids=str,
)  # fmt: skip
def test_what_is_no_time_is_refused(peers, wrong):
    with pytest.raises(ValueError):
        peers.cache("wrong", **{"ttl": 60, **wrong})


def test_nan_stores_nothing_in_silence(cache):
    with pytest.raises(ValueError):
        cache.set("k", b"v", ttl=math.nan)


# -- no descriptors left -----------------------------------------------------------------------

FULL = """
import errno
import os, resource, sys, threading
import peerage

peers = peerage.Peers.from_env()
cache = peers.cache("full", ttl=60)
spare = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))


def use_up():
    files = []
    try:
        while True:
            files.append(open(os.devnull))
    except OSError:
        return files


if spare < 0:
    peers.start()
files = use_up()
for _ in range(spare):
    files.pop().close()
failed = []


def ask(key):
    try:
        assert cache.get_or_load(key, lambda: key) == key
    except Exception as error:
        failed.append(f"{error} {type(error).__name__}.{errno.errorcode.get(error.errno)}")


threads = [threading.Thread(target=ask, args=(f"k{i}",)) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
files.clear()
assert cache.get_or_load("later", lambda: "v") == "v"
assert cache.get("later") == "v"
print(sorted(set(failed)))
peers.close()
"""


def run_full(peer_env, spare):
    return subprocess.run(
        [sys.executable, "-c", FULL, str(spare)], env=peer_env(PYTHONPATH=os.environ.get(
            "PYTHONPATH")), capture_output=True, text=True, timeout=30)  # fmt: skip


def test_a_node_without_descriptors_loads_by_itself(peer_env):
    """Started before the process ran out of them: no question fails, and later all is well."""
    done = run_full(peer_env, -1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("spare", range(6))
def test_a_start_without_descriptors_is_an_error_that_says_so(peer_env, spare):
    """And not the end of the process, at whichever descriptor it fails."""
    done = run_full(peer_env, spare)
    assert done.returncode == 0, done.stderr
    said = "Too many open files SystemCallError.EMFILE"
    assert done.stdout.strip() == "[]" or said in done.stdout, done
