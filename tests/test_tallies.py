"""Tallies over real processes: a counter summed over all nodes, and the limit that is made of it.

The fleet's story is a limit of 100 per window for one client, and 1,000 requests spread over
six nodes, beginning just after a window's boundary. Told in 5 s instead of 20, which asks more
of it: news has the same time to travel, and four times as many requests come meanwhile. In full:
TALLY_SECONDS=20 TALLY_WINDOW=60 pytest -rP tests/test_tallies.py -k limit
"""

import asyncio
import concurrent.futures
import os
import time

import peerage
import pytest
from redis_server import PROGRAM, RedisServer
from workers import joined, until

pytestmark = pytest.mark.timeout(120)
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="no redis-server")
NODES, LIMIT, REQUESTS = 6, 100, 1000
SECONDS = float(os.environ.get("TALLY_SECONDS", "5"))
WINDOW = float(os.environ.get("TALLY_WINDOW", "8"))
BATCHES = 250         # evenly in time: in step with the rounds of news a burst would be told of whole


@pytest.fixture
def redis(ports, tmp_path):
    server = RedisServer(ports.base + ports.count - 1, tmp_path)
    yield server
    server.kill()


def after_a_boundary(window):
    """Wait until a window has just begun."""
    time.sleep(window - time.time() % window + 0.01)


def rush(workers, midway=None, how="atake_many"):
    """The requests, evenly in time, each batch from all nodes at once; how many got through."""
    after_a_boundary(WINDOW)
    alive, begun, through = list(workers), time.monotonic(), 0
    each, done = REQUESTS // BATCHES, False
    with concurrent.futures.ThreadPoolExecutor(NODES) as pool:
        for batch in range(BATCHES):
            # Half-way is when half of the limit is used up: later nothing is left to get wrong.
            if midway is not None and not done and through >= LIMIT // 2:
                done = True
                alive = midway(alive)
            time.sleep(max(0.0, begun + SECONDS * batch / BATCHES - time.monotonic()))
            shares = [each // len(alive)] * len(alive)
            for i in range(each - sum(shares)):
                shares[(batch * each + i) % len(alive)] += 1
            asked = [
                pool.submit(worker, how, "clients", WINDOW, "one client", LIMIT, share)
                for worker, share in zip(alive, shares)
                if share
            ]
            through += sum(sum(future.result()) for future in asked)
    assert time.monotonic() - begun < WINDOW - 1, "too slow a machine: the window has ended"
    assert midway is None or done
    print(f"{through} of {REQUESTS} requests let through in {SECONDS:g} s")
    return through


# -- alone ----------------------------------------------------------------------------------


def test_alone_a_process_counts_for_itself():
    peers = peerage.Peers(enable_peers=False)
    hits = peers.tally("hits", window=60)
    after_a_boundary_of_seconds = hits.ends_in()
    if after_a_boundary_of_seconds < 5:
        time.sleep(after_a_boundary_of_seconds + 0.01)
    assert hits.total("durov") == 0
    assert hits.add("durov") == 1
    assert hits.add(b"durov", 4) == 5
    assert peers.tally("hits", window=60).total("durov") == 5
    assert peers.tally("hits", window=61).total("durov") == 0
    assert peers.tally("others", window=60).total("durov") == 0
    assert hits.total("another") == 0


def test_take_adds_within_the_limit_only():
    visits = peerage.Peers(enable_peers=False).tally("visits", window=3600)
    if visits.ends_in() < 5:
        time.sleep(visits.ends_in() + 0.01)
    assert [bool(visits.take("a", 3)) for _ in range(5)] == [True, True, True, False, False]
    assert visits.total("a") == 3
    refused = visits.take("a", 10, 8)
    assert (refused, refused.total) == (0, 3)
    assert visits.take("a", 11, 8).total == 11
    assert not visits.take("b", 0)


def test_a_window_ends():
    short = peerage.Peers(enable_peers=False).tally("short", window=0.3)
    time.sleep(short.ends_in() + 0.01)
    assert short.add("a", 7) == 7
    assert 0 < short.ends_in() <= 0.3
    time.sleep(short.ends_in() + 0.01)
    assert short.total("a") == 0


def test_the_async_twins_say_the_same():
    async def story():
        async with peerage.Peers(enable_peers=False) as peers:
            visits = peers.tally("visits", window=3600)
            if visits.ends_in() < 5:
                await asyncio.sleep(visits.ends_in() + 0.01)
            taken = [await visits.atake("a", 2) for _ in range(3)]
            return taken, await visits.atotal("a"), visits.total("a")

    assert asyncio.run(story()) == ([1, 1, 0], 2, 2)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda t: t.add("a", True), TypeError),
        (lambda t: t.take("a", True), TypeError),
        (lambda t: t.take("a", 5, False), TypeError),
        (lambda t: t.add("a", 10**5000), ValueError),
        (lambda t: t.add("\udcff"), ValueError),
        (lambda t: t.peers.tally("x", window=None), TypeError),
        (lambda t: t.peers.tally("x", window="5"), TypeError),
        (lambda t: t.peers.tally("x", window=10**400), ValueError),
        (lambda t: t.peers.tally("x", window=float("nan")), ValueError),
        (lambda t: t.peers.tally(5), TypeError),
        (lambda t: t.peers.tally("\udcff"), ValueError),
        (lambda t: t.add("k" * 1025), peerage.TooBigError),
        (lambda t: t.add(3), TypeError),
        (lambda t: t.add("a", -1), ValueError),
        (lambda t: t.add("a", 1.0), TypeError),
        (lambda t: t.take("a", -1), ValueError),
        (lambda t: t.take("a", 2**60), ValueError),
        (lambda t: t.peers.tally("", window=1), ValueError),
        (lambda t: t.peers.tally("n" * 256, window=1), ValueError),
        (lambda t: t.peers.tally("x", window=0), ValueError),
        (lambda t: t.peers.tally("x", window=float("inf")), ValueError),
        (lambda t: t.peers.tally("x", window=2**32), ValueError),
    ],
)
def test_what_is_no_count_is_refused(call, error):
    hits = peerage.Peers(enable_peers=False).tally("hits")
    hits.add("a", 3)
    with pytest.raises(error) as caught:
        call(hits)
    assert type(caught.value) is error, "and none of Python's own, from inside"
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
    assert hits.total("a") == 3


def test_keys_are_bounded_and_a_full_table_says_so():
    """T2: whoever invents a client name a request must not fill the memory."""
    hits = peerage.Peers(enable_peers=False).tally("hits", window=3600)
    with pytest.raises(peerage.FullError):
        for i in range(70_000):
            hits.add(f"client {i}")
    assert 60_000 < i <= 65_536
    assert hits.add("client 1") == 2        # who is known is still counted


# -- a fleet --------------------------------------------------------------------------------


def test_every_node_knows_the_sum_of_all(fleet):
    workers = fleet(3)
    for i, worker in enumerate(workers):
        worker("tally_add", "hits", 3600, "durov", 1 + i)
    for worker in workers:
        until(lambda: worker("tally_total", "hits", 3600, "durov") == 6, 2)


def test_a_limit_holds_over_the_fleet(fleet):
    through = rush(fleet(NODES))
    assert LIMIT <= through <= 150


def test_a_limit_holds_while_a_node_is_killed(fleet):
    def kill(alive):
        alive[0].end()
        return alive[1:]

    through = rush(fleet(NODES), kill)
    assert LIMIT <= through <= 150


def test_a_joiner_is_told_of_the_dead_as_well(fleet, worker):
    workers = fleet(3)
    workers[2]("tally_add", "hits", 3600, "durov", 40)
    workers[1]("tally_add", "hits", 3600, "durov", 2)
    for one in workers:
        until(lambda: one("tally_total", "hits", 3600, "durov") == 42, 2)
    workers[2].end()
    until(lambda: sum(m["live"] for m in workers[0]("members")) == 2)
    late = worker()
    late("astart")
    joined([*workers[:2], late])
    until(lambda: late("tally_total", "hits", 3600, "durov") == 42, 3)


def test_nothing_is_sent_while_nothing_is_counted(fleet):
    workers = fleet(2)
    workers[0]("tally_add", "hits", 3600, "durov", 1)
    until(lambda: workers[1]("tally_total", "hits", 3600, "durov") == 1, 2)
    time.sleep(1.5)
    before = workers[0]("stats")["tally_pages_sent"]
    time.sleep(2.5)
    assert workers[0]("stats")["tally_pages_sent"] == before > 0


def test_what_was_counted_before_the_start_is_told_after_it(fleet, worker):
    [first] = fleet(1)
    late = worker()
    late("tally_add", "hits", 3600, "durov", 4)
    assert late("state") == "new"       # counting starts nothing
    late("astart")
    until(lambda: first("tally_total", "hits", 3600, "durov") == 4, 5)


def test_who_leaves_says_its_last_word(fleet):
    stays, goes = fleet(2)
    goes("tally_add", "hits", 3600, "durov", 1)
    until(lambda: stays("tally_total", "hits", 3600, "durov") == 1, 2)
    goes("add_and_close", "hits", 3600, "durov", 5)
    until(lambda: stays("tally_total", "hits", 3600, "durov") == 6, 2)


def test_a_forked_child_counts_for_itself():
    hits = peerage.Peers(enable_peers=False).tally("hits", window=3600)
    hits.add("durov", 5)
    child = os.fork()
    if child == 0:
        os._exit(hits.add("durov", 2))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert hits.total("durov") == 5


# -- with Redis -----------------------------------------------------------------------------


@needs_redis
@pytest.mark.parametrize("how", ["atake_many", "take_many"])
def test_with_redis_a_limit_is_exact(fleet, redis, how):
    workers = fleet(NODES, REDIS_URL=redis.url)
    for one in workers:
        until(lambda: one("stats")["redis_state"] == 2)
    assert rush(workers, how=how) == LIMIT
    assert sum(int(redis("GET", key)) for key in redis.keys("*:tally:*")) == LIMIT
    [key] = redis.keys("*:tally:*")
    assert 0 < redis("PTTL", key) <= (WINDOW + 60) * 1000


@needs_redis
def test_a_limit_holds_while_redis_is_killed(fleet, redis):
    def kill(alive):
        redis.kill()
        return alive

    workers = fleet(NODES, REDIS_URL=redis.url)
    for one in workers:
        until(lambda: one("stats")["redis_state"] == 2)
    through = rush(workers, kill)
    assert LIMIT <= through <= 150


@needs_redis
def test_a_redis_that_comes_back_empty_lifts_no_limit(fleet, redis):
    def forget(alive):
        redis("FLUSHALL")
        return alive

    workers = fleet(NODES, REDIS_URL=redis.url)
    for one in workers:
        until(lambda: one("stats")["redis_state"] == 2)
    assert LIMIT <= rush(workers, forget) <= 150


@needs_redis
def test_an_add_reaches_redis_behind(redis, label):
    with peerage.Peers(enable_peers=False, redis_url=redis.url, label=label) as peers:
        hits = peers.tally("hits", window=3600)
        if hits.ends_in() < 5:
            time.sleep(hits.ends_in() + 0.01)
        assert hits.add("durov", 3) == 3
        until(lambda: [redis("GET", key) for key in redis.keys("*:tally:*")] == [b"3"], 3)
        other = peerage.Peers(enable_peers=False, redis_url=redis.url, label=label).start()
        try:
            assert other.tally("hits", window=3600).total("durov") == 3
            assert other.tally("hits", window=3600).take("durov", 3) == 0
            assert other.tally("hits", window=3600).take("durov", 4).total == 4
        finally:
            other.close(0)


@needs_redis
def test_a_redis_that_hangs_costs_the_timeout_and_no_error(redis, label):
    with peerage.Peers(
        enable_peers=False, redis_url=redis.url, label=label, timeout=0.2
    ) as peers:
        hits = peers.tally("hits", window=3600)
        assert hits.take("durov", 10)
        redis.stop()
        try:
            begun = time.monotonic()
            assert hits.take("durov", 10)
            assert 0.15 < time.monotonic() - begun < 1
        finally:
            redis.go_on()


@needs_redis
def test_who_is_cancelled_leaves_the_others(redis, label):
    async def story():
        async with peerage.Peers(
            enable_peers=False, redis_url=redis.url, label=label, timeout=2
        ) as peers:
            hits = peers.tally("hits", window=3600)
            assert await hits.atake("durov", 10)
            redis.stop()
            try:
                one = asyncio.create_task(hits.atake("durov", 10))
                two = asyncio.create_task(hits.atake("durov", 10))
                await asyncio.sleep(0.1)
                one.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await one
            finally:
                redis.go_on()
            return await two, await hits.atotal("durov")

    taken, total = asyncio.run(story())
    assert (taken, taken.total, total) == (1, 3, 3)     # the cancelled one was on its way


# -- the coordinator ------------------------------------------------------------------------


def test_the_coordinator_is_the_lowest_and_moves_when_it_is_killed(fleet):
    workers = fleet(3)
    by_port = sorted(workers, key=lambda w: int(w("address").rpartition(":")[2]))
    first, second = (one("address") for one in by_port[:2])
    for one in workers:
        until(lambda: one("coordinator") == first)
    by_port[0].end()
    for one in by_port[1:]:
        until(lambda: one("coordinator") == second)
        until(lambda: one("coordinators_told")[-1:] == [second])
