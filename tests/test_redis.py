"""Redis as the fallback, against a real server: the second tier, the lease to load, deletes,
markers, and a server that goes away."""

import concurrent.futures
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import peerage
import pytest
from redis_server import PROGRAM, RedisServer
from workers import joined, until

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="no redis-server"),
    pytest.mark.timeout(120),
]
UP, AWAY = 2, 3


@pytest.fixture
def redis(ports, tmp_path):
    server = RedisServer(ports.base + ports.count - 1, tmp_path)
    yield server
    server.kill()


@pytest.fixture
def alone(redis, label):
    """alone(**settings) -> Peers of this process with the layer off and Redis set, started."""
    made = []

    def make(**settings):
        peers = peerage.Peers(enable_peers=False, redis_url=redis.url, label=label, **settings)
        made.append(peers)
        return peers.start()

    yield make
    for peers in made:
        peers.close(0)


def stats(peers):
    return {k: v for k, v in peers.stats().items() if k.startswith("redis_")}


def written(peers, count=1):
    until(lambda: peers.stats()["redis_writes"] >= count, 5, f"nothing written: {stats(peers)}")


def never():
    raise AssertionError("loaded although it was there")


# -- the second tier ------------------------------------------------------------------------------


def test_what_one_process_loaded_another_finds(alone, redis):
    first, second = alone(), alone()
    one, two = first.cache("t", ttl=20), second.cache("t", ttl=20)
    assert one.get_or_load("a", lambda: {"deep": [1, None, "ü"]}) == {"deep": [1, None, "ü"]}
    written(first)
    time.sleep(0.3)
    found = two.lookup("a")
    assert (found.value, found.tier) == ({"deep": [1, None, "ü"]}, "redis")
    assert 300 <= found.age_ms < 5000
    assert two.get_or_load("a", never) == {"deep": [1, None, "ü"]}
    assert two.lookup("a").tier == "local"
    [key] = redis.values()
    assert key.endswith(b":t=a") and 15000 < redis("PTTL", key) <= 19700


def test_a_ttl_goes_on_where_it_was(alone):
    """A copy lives no longer than the entry it was made from."""
    first, second = alone(), alone()
    first.cache("t", ttl=1.0).get_or_load("a", lambda: b"old")
    written(first)
    time.sleep(0.6)
    cache = second.cache("t", ttl=1.0)
    assert cache.get_or_load("a", never) == b"old"
    time.sleep(0.5)
    assert cache.get_or_load("a", lambda: b"new") == b"new"


def test_two_labels_share_a_server_and_no_value(alone, redis):
    first = alone()
    first.cache("t", ttl=20).get_or_load("a", lambda: b"mine")
    written(first)
    other = peerage.Peers(enable_peers=False, redis_url=redis.url, label="other").start()
    try:
        assert other.cache("t", ttl=20).get("a") is None
        assert other.cache("u", ttl=20).get_or_load("a", lambda: b"its") == b"its"
    finally:
        other.close(0)


def test_a_get_without_a_loader_takes_no_lease(alone):
    peers = alone()
    assert peers.cache("t", ttl=20).get("nothing") is None
    assert stats(peers)["redis_leases"] == 0


def test_whatever_else_lies_under_the_name_is_loaded_over(alone, redis, label):
    redis("SET", f"peerage:v1:value:{label}:t=a", b"not one of ours" * 10, "PX", 60000)
    peers = alone()
    assert peers.cache("t", ttl=20).get_or_load("a", lambda: b"good") == b"good"
    written(peers)
    assert b"good" in next(iter(redis.values().values()))


# -- the lease ---------------------------------------------------------------------------------------


def test_of_many_processes_one_loads(worker, redis):
    workers = [worker(ENABLE_PEERS="false", REDIS_URL=redis.url) for _ in range(4)]
    for one in workers:
        one("start")
    asked = [one.ask("lookup", "value", "key", 0, 0.5) for one in workers for _ in range(5)]
    found = [a.result(20) for a in asked]
    assert len({f["value"] for f in found}) == 1
    assert sum(sum(one("loaded").values()) for one in workers) == 1
    assert sum(one("stats")["redis_leases"] for one in workers) == 1
    assert not redis.keys("*:lease:*"), "the lease is let go when the value is there"


def test_an_async_loader_takes_the_same_way(worker, redis):
    workers = [worker(ENABLE_PEERS="false", REDIS_URL=redis.url) for _ in range(3)]
    for started in [one.ask("astart") for one in workers]:
        started.result(20)
    asked = [one.ask("alookup", "avalue", "key", 0, 0.5) for one in workers for _ in range(3)]
    assert len({a.result(20)["value"] for a in asked}) == 1
    assert sum(sum(one("loaded").values()) for one in workers) == 1


def test_a_long_load_keeps_its_lease(alone):
    """Longer than a lease lasts: it is renewed while the load runs."""
    first, second = alone(), alone()
    caches = [p.cache("t", ttl=20) for p in (first, second)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        slow = pool.submit(caches[0].get_or_load, "a", lambda: time.sleep(4.5) or b"slow")
        time.sleep(0.2)
        assert pool.submit(caches[1].get_or_load, "a", never).result(10) == b"slow"
        assert slow.result(10) == b"slow"


def test_a_killed_holder_costs_the_others_its_lease(worker, redis):
    holder, other = [worker(ENABLE_PEERS="false", REDIS_URL=redis.url) for _ in range(2)]
    holder("start")
    other("start")
    holder.ask("get_or_load", "key", 60)
    until(lambda: redis.keys("*:lease:*"), 5)
    waiting = other.ask("get_or_load", "key", 0.05)
    time.sleep(0.3)
    assert not waiting.done()
    os.kill(holder.pid, signal.SIGKILL)
    began = time.monotonic()
    assert waiting.result(10) == f"key by {other.pid}"
    assert time.monotonic() - began < 4.5


def test_a_raising_loader_lets_go_at_once(alone):
    first, second = alone(), alone()

    def boom():
        raise ValueError("no")

    with pytest.raises(peerage.RemoteLoadError):
        first.cache("t", ttl=20).get_or_load("a", boom)
    began = time.monotonic()
    assert second.cache("t", ttl=20).get_or_load("a", lambda: b"yes") == b"yes"
    assert time.monotonic() - began < 1


def test_a_holder_that_closes_lets_go_at_once(alone, redis):
    first, second = alone(), alone()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        begun = threading.Event()
        slow = pool.submit(first.cache("t", ttl=20).get_or_load, "a",
                           lambda: begun.set() or time.sleep(2) or b"x")
        assert begun.wait(5) and redis.keys("*:lease:*")
        first.close(0)
        began = time.monotonic()
        assert second.cache("t", ttl=20).get_or_load("a", lambda: b"next") == b"next"
        assert time.monotonic() - began < 1
        slow.result(5)


def test_nobody_waits_longer_than_a_load_may_take(alone, redis, label):
    """A lease that somebody renews for ever."""
    peers = alone(load_timeout=0.5)
    redis("SET", f"peerage:v1:lease:{label}:t=a", "somebody", "PX", 60000)
    began = time.monotonic()
    assert peers.cache("t", ttl=20).get_or_load("a", lambda: b"own") == b"own"
    assert 0.4 < time.monotonic() - began < 1.5
    assert redis("GET", f"peerage:v1:lease:{label}:t=a") == b"somebody"


# -- deletes ---------------------------------------------------------------------------------------------


def test_a_delete_removes_it_there_too(alone, redis):
    first, second = alone(), alone()
    one, two = first.cache("t", ttl=20), second.cache("t", ttl=20)
    one.get_or_load("a", lambda: b"old")
    written(first)
    assert two.delete("a") == peerage.Report(("redis",), ())
    assert not redis.values()
    assert redis("PTTL", redis.keys("*:gone:*")[0]) <= 10000


def test_a_load_older_than_a_delete_does_not_come_back(alone, redis):
    """The holder of the lease began before the delete, which another process ran."""
    first, second = alone(), alone()
    cache = first.cache("t", ttl=20)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        loading = pool.submit(cache.get_or_load, "a", lambda: time.sleep(0.6) or b"old")
        until(lambda: redis.keys("*:lease:*"), 5)
        assert second.cache("t", ttl=20).delete("a").acknowledged == ("redis",)
        assert loading.result(5) == b"old"
    until(lambda: stats(first)["redis_writes_refused"] == 1, 5)
    assert not redis.values()
    # and the next load after it is kept, though the mark is still there
    third = alone()
    assert third.cache("t", ttl=20).get_or_load("a", lambda: b"new") == b"new"
    written(third)
    assert redis.keys("*:gone:*") and len(redis.values()) == 1


def test_a_set_is_there_for_all(alone):
    first, second = alone(), alone()
    assert first.cache("t", ttl=20).set("a", "given").acknowledged == ("redis",)
    assert second.cache("t", ttl=20).get_or_load("a", never) == "given"


@pytest.mark.parametrize("gone", ["gone", "gone-channel"])
def test_a_later_delete_is_not_undone_by_an_earlier_set(alone, redis, gone):
    """D5: another node has run it meanwhile. Their ids say which is the later."""
    cache = alone().cache("t", ttl=20)
    cache.delete("key")
    cache.invalidate_channel("all")
    cache.set("key", "old", channel="all")
    assert len(redis.values()) == 1
    name, mark = redis.keys(f"*:{gone}:*")[0], b"f" * 16
    redis("SET", name, mark, "PX", "30000")
    cache.set("key", "new", channel="all")
    cache.delete("key") if gone == "gone" else cache.invalidate_channel("all")
    assert not redis.values() and redis("GET", name) == mark


def test_a_channel_goes_whole(alone, redis):
    peers = alone()
    cache = peers.cache("t", ttl=20)
    for key in "abc":
        cache.get_or_load(key, lambda: b"x", channel="page" if key != "c" else "other")
    written(peers, 3)
    assert len(redis.values()) == 3
    assert cache.invalidate_channel("page").acknowledged == ("redis",)
    assert [key[-1:] for key in redis.values()] == [b"c"]


def test_what_was_deleted_during_an_outage_is_gone_after_it(alone, redis, tmp_path):
    """The server was stopped, not ended: it still has the value when it goes on."""
    first = alone()
    cache = first.cache("t", ttl=60)
    cache.get_or_load("a", lambda: b"old")
    written(first)
    redis.stop()
    began = time.monotonic()
    assert cache.delete("a") == peerage.Report((), ("redis",))
    assert time.monotonic() - began < 1
    until(lambda: stats(first)["redis_state"] == AWAY, 5)
    redis.go_on()
    until(lambda: stats(first)["redis_state"] == UP, 15)
    until(lambda: not redis.values(), 5)


# -- values at rest ------------------------------------------------------------------------------------------


def test_sealed_values_say_nothing_and_are_bound_to_their_name(alone, redis, secret):
    sealed = {"encryption": True, "secret": secret}
    first = alone(**sealed)
    cache = first.cache("t", ttl=60)
    cache.get_or_load("a", lambda: "MARKER" * 100)
    cache.get_or_load("b", lambda: "other")
    written(first, 2)
    raw = redis.values()
    assert len(raw) == 2 and not any(b"MARKER" in v for v in raw.values())
    assert alone(**sealed).cache("t", ttl=60).get_or_load("a", never) == "MARKER" * 100
    # rotation: both secrets open it; another secret, and another name, do not
    new = "ab" * 32
    rotated = alone(encryption=True, secret=f"{new},{secret}")
    assert rotated.cache("t", ttl=60).get_or_load("a", never) == "MARKER" * 100
    stranger = alone(encryption=True, secret=new)
    assert stranger.cache("t", ttl=60).get("a") is None
    [a, b] = sorted(raw)
    redis("SET", b, raw[a], "PX", 60000)
    assert alone(**sealed).cache("t", ttl=60).get("b") is None


# -- with peers ------------------------------------------------------------------------------------------------


def owned_by(workers, index, heir=None):
    """A key whose owner is workers[index]."""
    address = [w("start") for w in workers]
    for n in range(500):
        key = f"key{n}"
        ranks = [rank[0] for rank in workers[0]("explain", "value", key)["ranks"]]
        if ranks[0] == address[index] and (heir is None or ranks[1] == address[heir]):
            return key
    raise AssertionError("no such key")


def test_with_peers_up_nobody_takes_a_lease(fleet, redis):
    workers = fleet(3, REDIS_URL=redis.url)
    for n in range(20):
        workers[n % 3]("lookup", "value", f"key{n}")
    until(lambda: sum(w("stats")["redis_writes"] for w in workers) == 20, 10)
    assert sum(w("stats")["redis_leases"] for w in workers) == 0
    report = workers[0]("invalidate", "value", "key1")
    assert "redis" in report["acknowledged"] and len(report["acknowledged"]) == 4
    assert len(redis.values()) == 19


def test_when_owner_and_heir_are_silent_redis_is_read(fleet, redis):
    workers = fleet(3, REDIS_URL=redis.url)
    key = owned_by(workers, 0, heir=1)
    workers[0]("lookup", "value", key)
    until(lambda: len(redis.values()) == 1, 5)
    for one in workers[:2]:
        os.kill(one.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        found = workers[2]("lookup", "value", key)
        assert time.monotonic() - began < 1.5
        assert found["tier"] == "redis" and found["value"] == f"{key} by {workers[0].pid}"
    finally:
        for one in workers[:2]:
            os.kill(one.pid, signal.SIGCONT)


def test_askers_whom_nobody_helps_load_once_by_the_lease(fleet, redis):
    workers = fleet(4, REDIS_URL=redis.url)
    key = owned_by(workers, 0, heir=1)
    for one in workers[:2]:
        os.kill(one.pid, signal.SIGSTOP)
    try:
        asked = [w.ask("lookup", "value", key, 0, 0.4) for w in workers[2:] for _ in range(4)]
        assert len({a.result(20)["value"] for a in asked}) == 1
        assert sum(sum(w("loaded").values()) for w in workers[2:]) == 1
    finally:
        for one in workers[:2]:
            os.kill(one.pid, signal.SIGCONT)


def test_markers_make_nodes_find_each_other(worker, redis, base_port):
    """Without PEERS, on port ranges that do not meet; a marker goes with its node."""
    workers = [
        worker(REDIS_URL=redis.url, PEER_PORT=base_port + 8 * i, PEER_PORT_RANGE=4)
        for i in range(2)
    ]
    for started in [w.ask("start") for w in workers]:
        started.result(20)
    joined(workers)
    marks = {key: redis("GET", key) for key in redis.keys("peerage:v1:node:*")}
    assert {key.rpartition(b":")[2] for key in marks} == {str(w.pid).encode() for w in workers}
    assert all(f'"peer": "{w("start")}"'.encode() in b"".join(marks.values()) for w in workers)
    assert all(0 < redis("PTTL", key) <= 30000 for key in marks)
    workers[0]("close", 0)
    assert len(redis.keys("peerage:v1:node:*")) == 1


def test_a_node_of_another_cluster_is_left_alone(worker, redis, base_port):
    mine = worker(REDIS_URL=redis.url, PEER_PORT=base_port, PEER_PORT_RANGE=4)
    its = worker(REDIS_URL=redis.url, PEER_PORT=base_port + 8, PEER_PORT_RANGE=4, PEER_LABEL="b")
    for started in [w.ask("start") for w in (mine, its)]:
        started.result(20)
    time.sleep(2.5)
    assert len(mine("members")) == 1
    assert mine("stats")["refused_label"] == 0 and its("stats")["refused_label"] == 0


# -- a server that goes away ---------------------------------------------------------------------------------------


def test_killed_and_restarted_under_load(worker, redis):
    workers = [worker(ENABLE_PEERS="false", REDIS_URL=redis.url, TEST_TTL="0.5") for _ in range(2)]
    for one in workers:
        one("start")
    going, errors, answers = True, [], []

    def ask(one):
        n = 0
        while going:
            n += 1
            try:
                answers.append(one("lookup", "value", f"key{n % 7}", 0, 0.01))
            except Exception as e:
                errors.append(e)

    threads = [threading.Thread(target=ask, args=(w,)) for w in workers for _ in range(2)]
    for t in threads:
        t.start()
    try:
        time.sleep(1)
        redis.kill()
        until(lambda: all(w("stats")["redis_state"] == AWAY for w in workers), 5)
        before = len(answers)
        late = worker(ENABLE_PEERS="false", REDIS_URL=redis.url)    # one recycled meanwhile
        late("start")
        assert late("lookup", "value", "late")["tier"] == "load"
        time.sleep(1)
        assert len(answers) > before + 100
        redis.start()
        until(lambda: all(w("stats")["redis_state"] == UP for w in [*workers, late]), 15)
        hits = [w("stats")["hits_redis"] for w in workers]
        until(lambda: all(w("stats")["hits_redis"] > h for w, h in zip(workers, hits)), 10)
    finally:
        going = False
        for t in threads:
            t.join()
    assert not errors


def test_a_server_that_hangs_costs_two_seconds_once(alone, redis):
    peers = alone()
    cache = peers.cache("t", ttl=20)
    redis.stop()
    began = time.monotonic()
    assert cache.get_or_load("a", lambda: b"own") == b"own"
    assert 1.5 < time.monotonic() - began < 3
    began = time.monotonic()
    assert cache.get_or_load("b", lambda: b"own") == b"own"
    assert time.monotonic() - began < 0.5
    assert stats(peers)["redis_timeouts"] >= 1
    redis.go_on()
    until(lambda: stats(peers)["redis_state"] == UP, 15)


def test_lines_are_few_and_name_no_password(redis, label, caplog, ports):
    redis("CONFIG", "SET", "requirepass", "topsecret")
    caplog.set_level(logging.INFO, "peerage")
    url = f"redis://:wrongsecret@127.0.0.1:{redis.port}/0"
    peers = peerage.Peers(enable_peers=False, redis_url=url, label=label).start()
    right = peerage.Peers(enable_peers=False, redis_url=url.replace("wrong", "top"), label=label)
    right.start()
    try:
        assert stats(right)["redis_state"] == UP
        time.sleep(1.5)
        lines = [r.getMessage() for r in caplog.records if f"127.0.0.1:{redis.port}" in r.getMessage()]
        assert len([line for line in lines if "is away" in line]) == 1
        assert len([line for line in lines if "is there" in line]) == 1
        assert not any("secret" in line for line in lines)
    finally:
        peers.close(0)
        right.close(0)


# -- starts without it ------------------------------------------------------------------------------------------------


def test_an_explicit_start_with_neither_redis_nor_peers_fails(ports, secret, label):
    port = ports.base + 20
    peers = peerage.Peers(
        enable_peers=True, secret=secret, label=label, port=ports.base, listen="127.0.0.1",
        advertise_addr="127.0.0.1", redis_url=f"redis://somebody:topsecret@127.0.0.1:{port}/0",
    )  # fmt: skip
    with pytest.raises(peerage.UnreachableError) as raised:
        peers.start()
    assert f"127.0.0.1:{port}" in str(raised.value)
    assert "topsecret" not in str(raised.value) and "somebody" not in str(raised.value)
    assert "\n" not in str(raised.value)
    # a question goes on without both
    assert peers.cache("t", ttl=5).get_or_load("a", lambda: b"own") == b"own"
    peers.close(0)


def test_a_worker_recycled_during_an_outage_comes_up(worker, ports):
    url = f"redis://127.0.0.1:{ports.base + 20}/0"
    first = worker()
    first("start")
    second = worker(REDIS_URL=url)
    second("start")
    joined([first, second])
    assert second("lookup", "value", "key")["value"]


def test_with_the_layer_off_it_comes_up_too(ports):
    url = f"redis://127.0.0.1:{ports.base + 20}/0"
    peers = peerage.Peers(enable_peers=False, redis_url=url).start()
    assert peers.cache("t", ttl=5).get_or_load("a", lambda: b"own") == b"own"
    assert peers.stats()["redis_state"] == AWAY
    peers.close(0)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1", "redis://h:0", "redis://h:99999", "redis://:topsecret@h:x/0",
     "redis://h/one", "redis://[::1", "unix://relative", "redis://:top%2@h"],
)  # fmt: skip
def test_a_wrong_url_stops_with_one_line(url):
    with pytest.raises(peerage.SettingError) as raised:
        peerage.Peers(redis_url=url)
    assert str(raised.value).startswith("REDIS_URL: ") and "secret" not in str(raised.value)


def test_other_ways_to_reach_it(ports, tmp_path):
    """A name instead of an address, user and password, another database, a Unix socket."""
    path = tmp_path / "r.sock"
    server = RedisServer(ports.base + ports.count - 1, tmp_path, "--unixsocket", str(path))
    try:
        server("ACL", "SETUSER", "us:er", "on", ">p@ss/word", "~*", "&*", "+@all")
        for url in (
            f"redis://localhost:{server.port}",
            f"redis://us%3Aer:p%40ss%2Fword@127.0.0.1:{server.port}/3",
            f"unix://{path}?db=2",
        ):
            peers = peerage.Peers(enable_peers=False, redis_url=url).start()
            assert peers.stats()["redis_state"] == UP, url
            peers.cache("t", ttl=5).get_or_load("a", lambda: b"x")
            written(peers)
            peers.close(0)
        assert "db2" in server("INFO", "keyspace").decode()
        assert "db3" in server("INFO", "keyspace").decode()
    finally:
        server.kill()


# -- life --------------------------------------------------------------------------------------------------------------


def test_a_forked_child_closes_what_it_inherited_and_goes_its_own_way(alone, redis):
    peers = alone()
    cache = peers.cache("t", ttl=20)
    cache.get_or_load("a", lambda: b"parent")
    written(peers)
    clients = len(redis("CLIENT", "LIST").splitlines())
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if cache.get_or_load("a", never) == b"parent":
                status = 0
            peers.close(0)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert cache.get_or_load("b", lambda: b"still") == b"still"
    assert len(redis("CLIENT", "LIST").splitlines()) == clients


def test_descriptors_are_flat_over_outages(alone, redis):
    peers = alone()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        redis.kill()
        until(lambda: stats(peers)["redis_state"] == AWAY, 5)
        redis.start()
        until(lambda: stats(peers)["redis_state"] == UP, 15)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_it_ends_with_its_process(redis):
    """No close: atexit has it, with values on their way and a load under way."""
    script = (
        "import peerage, threading, time\n"
        f"peers = peerage.Peers(enable_peers=False, redis_url={redis.url!r}).start()\n"
        "cache = peers.cache('t', ttl=9)\n"
        "cache.get_or_load('a', lambda: b'x' * 100000)\n"
        "threading.Thread(target=cache.get_or_load, args=('b', lambda: time.sleep(1)),\n"
        "                 daemon=True).start()\n"
        "time.sleep(0.1)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=20, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
