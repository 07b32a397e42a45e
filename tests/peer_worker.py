"""A worker process of the tests: one node, driven by lines of JSON on its standard input.

Imported by name, never run as __main__, so that its functions are registered under one name
in every process, as an application's are. A question runs on a thread of its own, or, if it
is a coroutine function, on the process's event loop; answers come in any order, by id.
"""

import asyncio
import inspect
import json
import os
import signal
import sys
import threading
import time
import traceback

import peerage

peers = peerage.Peers.from_env()
cache = peers.cache("tests", ttl=float(os.environ.get("TEST_TTL", "60")))
loads = {}          # key -> how often this process has loaded it
gate = threading.Event()
gate.set()


class Listed(Exception):
    """An error that readers rebuild."""


def count(key):
    loads[key] = loads.get(key, 0) + 1
    return loads[key]


# -- what the application would write -------------------------------------------------------


@cache.cached("{key}", channel="{key}")
def plain(key, size=0, seconds=0.0):
    """A closure: its parameters are not all in the key."""
    count(key)
    time.sleep(seconds)
    return f"{key} by {os.getpid()}".encode() + b"." * size


@cache.cached("{key}/{size}/{seconds}", channel="{key}")
def value(key, size=0, seconds=0.0):
    count(key)
    gate.wait()
    time.sleep(seconds)
    return f"{key} by {os.getpid()}".encode() + b"." * size


@cache.cached("{key}/{seconds}", channel="{key}")
def numbered(key, seconds=0.0):
    """No two loads make the same value."""
    number = count(key)
    time.sleep(seconds)
    return f"{key}#{number} by {os.getpid()}"


@cache.cached("{key}/{size}/{seconds}", channel="{key}")
async def avalue(key, size=0, seconds=0.0):
    count(key)
    await asyncio.sleep(seconds)
    return f"{key} by {os.getpid()}".encode() + b"." * size


@cache.cached("{key}", channel="{key}")
async def page(key):
    count("page " + key)
    return peerage.Loaded({"key": key, "pid": os.getpid()}, also={body.key(key): f"<p>{key}</p>"})


@cache.cached("{key}", channel="{key}")
async def body(key):
    count("body " + key)
    found = await page.lookup(key)
    return f"<p>{found.value['key']}</p>"


@cache.cached("{key}/{seconds}", channel="{key}", raises=Listed)
def boom(key, seconds=0.0):
    count(key)
    time.sleep(seconds)
    raise ValueError(f"no {key}")


@cache.cached("{key}/{seconds}", channel="{key}", raises=Listed)
async def aboom(key, seconds=0.0):
    count(key)
    await asyncio.sleep(seconds)
    raise Listed(f"no {key}")


@cache.cached("{key}", channel="{key}", ttl=2, early=0.8)
def hot(key):
    count(key)
    time.sleep(0.4)
    return f"{key}#{loads[key]} by {os.getpid()}"


switches = {"fail": False}


@cache.cached("{key}", channel="{key}", ttl=1, stale=30)
def aging(key):
    """Served stale for long; the load behind it may fail."""
    count(key)
    time.sleep(0.1)
    if switches["fail"]:
        raise ValueError(f"no {key}")
    return f"{key}#{loads[key]} by {os.getpid()}"


@cache.cached("{key}", channel="{key}", negative_ttl=3, raises=Listed)
def refused(key):
    count(key)
    raise Listed(f"no {key}")


@cache.cached("{key}", channel="{key}", ttl=3, jitter=2.5)
def uneven(key):
    count(key)
    return key


@cache.cached("{key}", channel="{key}")
def exits(key):
    count(key)
    raise SystemExit(f"no {key}")


@cache.cached("{key}/{how}", channel="{key}")
async def aexits(key, how="exit"):
    count(key)
    raise {"exit": SystemExit, "interrupt": KeyboardInterrupt}[how](f"no {key}")


@cache.cached("{key}", channel="{key}")
def itself(key):
    return itself(key)


@cache.cached("{key}", channel="{key}")
async def aitself(key):
    return await aitself(key)


@cache.cached("{key}", channel="{key}")
def outer(key):
    return inner(key) + b"!"


@cache.cached("{key}", channel="{key}")
def inner(key):
    count("inner " + key)
    return key.encode()


# -- what the tests ask ------------------------------------------------------------------------


def hit(found):
    value_ = found.value
    if isinstance(value_, bytes):
        value_ = value_[:200].decode()
    return {"value": value_, "tier": found.tier, "age_ms": found.age_ms, "stale": found.stale}


def start():
    peers.start()
    return peers.address


async def astart():
    await peers.astart()
    return peers.address


def close(drain=5.0):
    peers.close(drain)


async def aclose(drain=5.0):
    await peers.aclose(drain)


def members():
    return [m._asdict() for m in peers.members()]


def coordinator():
    found = peers.coordinator()
    return found and found.address


def owner(channel):
    found = peers.owner(channel)
    return found and found.address


def stats():
    return peers.stats()


def state():
    return peers.state


def loaded():
    return loads


FUNCTIONS = {
    f.__name__: f
    for f in (
        plain, value, numbered, avalue, page, body, boom, aboom, aging, refused, uneven, hot,
        itself, aitself, outer, inner, exits, aexits,
    )
}


def lookup(name, *args, **kwargs):
    return hit(FUNCTIONS[name].lookup(*args, **kwargs))


async def alookup(name, *args, **kwargs):
    return hit(await FUNCTIONS[name].lookup(*args, **kwargs))


async def blocked_lookup(seconds, name, *args):
    """Ask, then let the event loop stand still while the answer comes."""
    task = asyncio.create_task(alookup(name, *args))
    await asyncio.sleep(0)
    time.sleep(seconds)
    return await task


async def aboom_many(keys):
    """Every key at once; what each question got, the traceback of its cause included."""
    got = await asyncio.gather(*(aboom(key, 0.02) for key in keys), return_exceptions=True)
    return [error(e) if isinstance(e, BaseException) else {"value": e} for e in got]


def invalidate(name, *args):
    return FUNCTIONS[name].invalidate(*args)._asdict()


def get(key):
    found = cache.lookup(key)
    return found and hit(found)


async def aget(key, default):
    return await cache.aget(key, default)


def put(key, given):
    return cache.set(key, given)._asdict()


def owner_of(key):
    return owner(bytes(cache.key(key)))


def delete(key):
    return cache.delete(key)._asdict()


async def aput(key, given):
    return (await cache.aset(key, given))._asdict()


def get_or_load(key, seconds=0.0, timeout=None):
    def closure():
        count(key)
        time.sleep(seconds)
        return f"{key} by {os.getpid()}"

    return cache.get_or_load(key, closure, timeout=timeout)


async def aget_or_load(key, seconds=0.0):
    async def closure():
        count(key)
        await asyncio.sleep(seconds)
        return f"{key} by {os.getpid()}"

    return await cache.aget_or_load(key, closure)


async def cancelled(key, after=0.05, seconds=5.0):
    """Ask on the loop, give up after a while; was the loader told?"""
    told = []

    async def closure():
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            told.append(True)
            raise
        return "late"

    task = asyncio.create_task(cache.aget_or_load(key, closure))
    await asyncio.sleep(after)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    until = time.monotonic() + 3
    while not told and time.monotonic() < until:
        await asyncio.sleep(0.01)
    return bool(told)


async def callers(key, patience, seconds):
    """Each asks for the key with its own patience, all at once; what came of each."""

    async def closure():
        count(key)
        await asyncio.sleep(seconds)
        return f"{key} by {os.getpid()}"

    async def ask(timeout):
        begun = time.monotonic()
        try:
            got = await cache.aget_or_load(key, closure, timeout=timeout)
        except Exception as e:
            got = type(e).__name__
        return got, time.monotonic() - begun

    return await asyncio.gather(*map(ask, patience))


async def many(name, keys, *args):
    """Every key at once: what came of each, and after how long."""

    async def ask(key):
        begun = time.monotonic()
        function = FUNCTIONS[name]
        try:
            if function.definition.is_async:
                got = hit(await function.lookup(key, *args))
            else:
                got = hit(await asyncio.to_thread(function.lookup, key, *args))
        except Exception as e:
            got = error(e)
        return {**got, "seconds": time.monotonic() - begun}

    return await asyncio.gather(*map(ask, keys))


async def give_up(name, keys, after, *args):
    """Ask for all of them, then cancel every question."""
    tasks = [asyncio.create_task(FUNCTIONS[name].lookup(key, *args)) for key in keys]
    await asyncio.sleep(after)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sum(task.cancelled() for task in tasks)


def owned(count_, prefix):
    """Channels that this node owns."""
    found, i = [], 0
    while len(found) < count_:
        if owner(f"{prefix}-{i}") == peers.address:
            found.append(f"{prefix}-{i}")
        i += 1
    return found


def turn(switch, on):
    switches[switch] = on


def invalidate_channel(channel):
    return cache.invalidate_channel(channel)._asdict()


def delete_many(keys):
    return cache.delete_many(keys)._asdict()


def come_and_go(times):
    """Other nodes of this process join the fleet and leave it, again and again."""
    for _ in range(times):
        other = peerage.Peers.from_env()
        other.start()
        other.close(0)


def explain(name, *args):
    found = peers.explain(FUNCTIONS[name], *args)
    return {**found._asdict(), "local": found.local and hit(found.local)}


def address():
    return peers.address


coordinators = []       # each that was told of
peers.on_coordinator(coordinators.append)


def coordinators_told():
    return coordinators


def tally_add(name, window, key, n):
    return peers.tally(name, window=window).add(key, n)


def tally_total(name, window, key):
    return peers.tally(name, window=window).total(key)


def add_and_close(name, window, key, n):
    """At once, so that no round is held in between."""
    peers.tally(name, window=window).add(key, n)
    peers.close()


def take_many(name, window, key, limit, times):
    """How each of some requests fared, one after the other."""
    tally = peers.tally(name, window=window)
    return [int(tally.take(key, limit)) for _ in range(times)]


async def atake_many(name, window, key, limit, times):
    """The same, all at once on the event loop."""
    tally = peers.tally(name, window=window)
    return [int(t) for t in await asyncio.gather(*(tally.atake(key, limit) for _ in range(times)))]


def shut_gate():
    gate.clear()


def open_gate():
    gate.set()


def spin(seconds):
    """Hold the GIL: no other Python thread of this process runs meanwhile."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    sys.setswitchinterval(interval)


def fork(name, *args):
    """Ask for a key in a forked child, and say what it saw and how it ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            before = peers.state
            found = hit(FUNCTIONS[name].lookup(*args))
            said = {"pid": os.getpid(), "state_before": before, "hit": found,
                    "address": peers.address, "members": len(peers.members())}
            peers.close(0)
            status = 0
        except BaseException:
            said = {"error": traceback.format_exc()}
        os.write(writing, json.dumps(said).encode())
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = json.loads(pipe.read())
    return {**said, "status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}


def fork_idle():
    """A child that goes the whole way of a Python exit without having used the layer."""
    pid = os.fork()
    if pid == 0:
        import atexit

        atexit._run_exitfuncs()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def descriptors():
    return len(os.listdir("/proc/self/fd"))


# -- the protocol ---------------------------------------------------------------------------------


def error(e):
    cause = e.__cause__
    return {
        "error": type(e).__name__, "text": str(e), "type_name": getattr(e, "type_name", None),
        "object": id(e), "cause": f"{type(cause).__name__}: {cause}" if cause else None,
    }


def say(**said):
    with say.lock:
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


say.lock = threading.Lock()


def answer(asked, function):
    try:
        say(id=asked, value=function())
    except BaseException as e:
        say(id=asked, **error(e))


def main():
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="loop", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    say(id=0, value=os.getpid())
    for line in sys.stdin:
        question = json.loads(line)
        function = globals()[question["do"]]
        args, kwargs = question.get("args", ()), question.get("kwargs", {})
        if inspect.iscoroutinefunction(function) and not hasattr(function, "definition"):
            future = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), loop)
            future.add_done_callback(lambda f, n=question["id"]: answer(n, f.result))
        else:
            threading.Thread(
                target=answer, daemon=True,
                args=(question["id"], lambda f=function, a=args, k=kwargs: f(*a, **k)),
            ).start()
