"""A fleet of real processes on loopback: they find each other, each key is loaded once, and
who asks drives the asking."""

import collections
import os
import signal
import subprocess
import sys
import time

import pytest
from workers import Failed, a_key_of, until

import peerage


def total(workers, key):
    """How often a key was loaded in all."""
    return sum(w("loaded").get(key, 0) for w in workers)


def moved(worker, before, *names):
    after = worker("stats")
    return [after[name] - before[name] for name in names]


# -- finding each other ---------------------------------------------------------------------


def test_workers_of_one_machine_find_each_other_without_being_told(fleet):
    workers = fleet(4, PEERS=None)
    seen = [sorted(m["address"] for m in w("members")) for w in workers]
    assert all(s == seen[0] for s in seen) and len(set(seen[0])) == 4
    assert {w("coordinator") for w in workers} == {min(seen[0], key=lambda a: int(a.split(":")[1]))}
    owners = collections.Counter(workers[0]("owner", f"c{i}") for i in range(200))
    assert set(owners) == set(seen[0]), "everyone owns some channels"
    for i in range(20):
        assert len({w("owner", f"c{i}") for w in workers}) == 1, "and all agree on whose is whose"


def test_the_log_says_who_this_is_and_who_is_there(worker, peer_env, tmp_path):
    program = (
        "import logging, sys, time, peerage\n"
        "logging.basicConfig(stream=sys.stdout, level='INFO', format='%(message)s')\n"
        "seen = []\n"
        "peers = peerage.Peers.from_env()\n"
        "peers.on_members(lambda members: seen.append(len(members)))\n"
        "with peers:\n"
        "    sys.stdout.write(f'address {peers.address}\\n')\n"
        "    end = time.monotonic() + 15\n"
        "    while 2 not in seen and time.monotonic() < end: time.sleep(0.05)\n"
        "print('seen', seen)\n"
    )
    other = worker()
    other("start")
    printed = subprocess.run(
        [sys.executable, "-c", program], env=peer_env(), text=True, timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ).stdout  # fmt: skip
    assert "address " in printed, printed
    address = printed.split("address ")[1].split()[0]
    assert f"Peer layer on: this node is {address}\n" in printed, printed
    there = next(m["address"] for m in other("members") if m["self"])
    assert any(line.startswith("Peers: ") and there in line for line in printed.splitlines()), printed
    assert "seen [" in printed and "2" in printed.split("seen [")[1]


LINK = "ip link add d0 type veth peer name d1 && ip link set d0 up && ip link set d1 up && "
ROUTES = {
    "no default route": "",
    "a private one": LINK + "ip addr add 10.9.8.7/24 dev d0 && ip route add default via 10.9.8.1 && ",
    "a public one": LINK + "ip addr add 203.0.113.7/24 dev d0 && "
                           "ip route add default via 203.0.113.1 && ",
}  # fmt: skip
FIND = """
import os, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from workers import Worker, joined
workers = [Worker(dict(os.environ), Path({logs!r}) / f"worker-{{i}}.log") for i in range(4)]
try:
    for started in [w.ask("start") for w in workers]: started.result(20)
    joined(workers)
    print("found", sorted(m["address"] for m in workers[0]("members")))
finally:
    for w in workers: w.end()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("route", ROUTES)
def test_whatever_the_default_route_is(route, peer_env, tmp_path):
    """M9, M10: with PEERS empty a host's workers meet, even where the default route's source
    address is one that the allowed ranges do not hold."""
    env = peer_env(PEER_LISTEN=None, PEER_ADVERTISE_ADDR=None)
    program = FIND.format(tests=os.path.dirname(__file__), logs=str(tmp_path))
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c",
         f'ip link set lo up && {ROUTES[route]}exec "$0" -c "$1"', sys.executable, program],
        env=env, text=True, timeout=90, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert "found [" in done.stdout, done.stdout
    advertised = "10.9.8.7:" if route == "a private one" else "127.0.0.1:"
    assert done.stdout.split("found ")[1].count(advertised) == 4, done.stdout


def test_a_node_that_starts_among_six_owns_and_loads_nothing_before_it_knows_them(fleet, worker):
    """M1: a question at the very start waits for the looking to end, and goes to the owner."""
    workers = fleet(6)
    keys = [a_key_of(w, f"early{i}-") for i, w in enumerate(workers)]
    for key in keys:
        workers[0]("lookup", "value", key)
    late = worker()
    known = [late.ask("lookup", "value", key) for key in keys]
    fresh = [late.ask("lookup", "value", f"fresh-{i}") for i in range(30)]
    assert {answer.result(20)["tier"] for answer in known} <= {"owner", "heir"}
    assert {answer.result(20)["tier"] for answer in fresh} == {"load"}
    assert late("loaded") == {}, "others have loaded it"
    assert all(total(workers, f"fresh-{i}") == 1 for i in range(30))
    until(lambda: late("state") == "ready")
    address = next(m["address"] for m in late("members") if m["self"])
    assert address in {late("owner", f"later-{i}") for i in range(100)}, "now it takes its part"


# -- one load for all ------------------------------------------------------------------------------


@pytest.mark.parametrize("encryption", ["false", "true"])
def test_each_key_is_loaded_once_in_the_fleet(fleet, encryption):
    workers = fleet(3, PEER_ENCRYPTION=encryption)
    keys = [f"k{i}" for i in range(10)]
    asked = [
        (key, w.ask(how, name, key, 56_000, 0.05))
        for key in keys
        for w in workers
        for how, name in (("lookup", "value"), ("alookup", "avalue"))
    ]
    values = collections.defaultdict(set)
    for key, answer in asked:
        values[key].add(answer.result(30)["value"])
    assert all(len(v) == 1 for v in values.values()), "both functions ran at the key's owner"
    assert all(total(workers, key) == 2 for key in keys), "and once each"


def test_registered_loaders_run_at_the_owner_and_closures_where_they_are(fleet):
    workers = fleet(3)
    key = a_key_of(workers[1])
    owner = workers[1].pid
    assert workers[0]("lookup", "value", key)["value"].startswith(f"{key} by {owner}.") or (
        workers[0]("lookup", "value", key)["value"] == f"{key} by {owner}")
    assert workers[2]("alookup", "avalue", key)["value"] == f"{key} by {owner}"
    assert workers[0]("get_or_load", "x") == workers[2]("get_or_load", "x")
    got = [w.ask(how, "y", 0.3) for w in workers for how in ("get_or_load", "aget_or_load")]
    values = {g.result(20) for g in got}
    assert len(values) == 1 and total(workers, "y") == 1, "one permit; the others waited"
    assert values.pop() in {f"y by {w.pid}" for w in workers}


def test_a_page_travels_with_what_was_made_from_it(fleet):
    workers = fleet(3)
    key = a_key_of(workers[0])
    assert workers[1]("alookup", "page", key)["tier"] == "load"
    got = workers[1]("alookup", "body", key)
    assert got["value"] == f"<p>{key}</p>" and got["tier"] in ("local", "owner")
    assert workers[2]("alookup", "body", key)["value"] == f"<p>{key}</p>"
    assert total(workers, "body " + key) == 0


def test_a_miss_that_becomes_a_load_costs_one_request_and_the_asker_drives_it(fleet):
    """O9, O13: one request frame per miss; hits from threads and from event loops are driven
    by who asks, the loop thread has no part in them.

    The loop thread sends frames for itself too: it offers entries to a member that has become
    owner (O8) and pulls or answers table pages (M4). These come once, a miss in each round: so
    a round that they disturbed is played again, and only what they can't touch is asserted in
    every round."""
    asker, owner = fleet(2, PEER_HEIR="false", PEER_TIMEOUT="2")
    warm = a_key_of(owner, "warm")
    asker("lookup", "value", warm)          # connections are dialled
    asker("alookup", "avalue", warm)

    def cost(how, name, keys, size=0):
        before = asker("stats")
        tiers = {asker(how, name, key, size)["tier"] for key in keys}
        return tiers, *moved(asker, before, "asks_by_threads", "asks_by_loops", "requests_sent",
                             "calls", "frames_out")

    def nothing_is_sent():
        before = asker("stats")
        time.sleep(0.3)
        return moved(asker, before, "frames_out") == [0]

    rounds = []
    for i in range(5):
        until(nothing_is_sent)
        keys = [a_key_of(owner, f"one{i}.{j}-") for j in range(8)]
        by_thread = cost("lookup", "value", keys)
        by_loop = cost("alookup", "avalue", keys)
        for key in keys:
            owner("lookup", "value", key, 1)        # the owner's own
        hit = cost("lookup", "value", keys, 1)
        assert by_thread[:4] == ({"load"}, 8, 0, 8)
        assert by_loop[:4] == ({"load"}, 0, 8, 8)
        assert hit[:4] == ({"owner"}, 8, 0, 8)
        rounds.append([r[4:] for r in (by_thread, by_loop, hit)])
        if rounds[-1] == [(0, 8)] * 3:
            return
    pytest.fail(f"calls of the loop thread and frames, besides 8 requests: {rounds}")


@pytest.mark.parametrize("encryption", ["false", "true"])
def test_what_the_owner_has_comes_by_one_request_of_an_event_loop(fleet, encryption):
    """The first question of a loop makes its port; the others take no step in Python."""
    asker, owner = fleet(2, PEER_HEIR="false", PEER_ENCRYPTION=encryption)

    def owned(prefix):
        found = (f"{prefix}-{i}" for i in range(1000))
        return next(key for key in found if asker("owner_of", key) == owner.address)

    keys = [owned(f"had{i}") for i in range(4)]
    made = [owner("get_or_load", key) for key in keys]
    assert asker("aget", owned("missing"), 5) == 5
    before = asker("stats")
    assert [asker("aget", key, 5) for key in keys] == made
    assert asker("aget", owned("another"), 5) == 5
    assert moved(asker, before, "asks_by_loops", "hits_owner", "requests_sent") == [5, 4, 5]
    assert [asker("aget", key, 5) for key in keys] == made
    assert moved(asker, before, "hits_local", "requests_sent") == [4, 5]


def test_an_owners_hit_is_served_while_its_python_spins(fleet):
    """The owner's Python never gives the GIL away meanwhile, and is not asked."""
    asker, owner = fleet(2, PEER_HEIR="false")
    key = a_key_of(owner)
    owner("lookup", "value", key, 56_000)
    asker("lookup", "value", a_key_of(owner, "warm"))
    spinning = owner.ask("spin", 3.0)
    time.sleep(0.3)
    begun = time.monotonic()
    got = asker("lookup", "value", key, 56_000)
    took = time.monotonic() - begun
    assert got["tier"] == "owner" and took < 0.2, (got["tier"], took)
    assert not spinning.done(), "it was still spinning"
    spinning.result(10)


def test_a_blocked_event_loop_is_not_booked_as_the_peers_silence(fleet):
    """O9: what lies there already is read before a deadline is declared."""
    asker, owner = fleet(2, PEER_HEIR="false")
    keys = [a_key_of(owner, f"blocked{i}-") for i in range(2)]
    for key in keys:
        owner("alookup", "avalue", key)
    asker("alookup", "avalue", keys[0])
    before = asker("stats")
    assert asker("blocked_lookup", 1.0, "avalue", keys[1])["tier"] == "owner"
    assert moved(asker, before, "asks_silent", "asks_by_loops", "loads") == [0, 1, 0]


def test_a_load_goes_elsewhere_while_the_owners_python_is_stuck(fleet):
    """O5: not accepted within the budget, so the heir, then the asker itself."""
    workers = fleet(3)
    asker, owner = workers[:2]
    key = a_key_of(owner)
    spinning = owner.ask("spin", 5.0)
    time.sleep(0.3)
    begun = time.monotonic()
    got = asker("lookup", "value", key)
    assert time.monotonic() - begun < 2
    assert not got["value"].endswith(f"by {owner.pid}")
    assert not spinning.done()


# -- errors ------------------------------------------------------------------------------------------


def test_200_loaders_that_raise(fleet):
    """Every waiter on every node gets the error with its remote traceback, an object of its
    own; the next call loads afresh."""
    workers = fleet(3)
    keys = [f"bad{i}" for i in range(200)]
    asked = [w.ask("aboom_many", keys) for w in workers]
    for worker, answer in zip(workers, asked, strict=True):
        got = answer.result(60)
        assert len(got) == 200
        for key, said in zip(keys, got, strict=True):
            assert said["error"] == "Listed" and said["text"] == f"no {key}", said
            own = said["cause"] is None       # its own caller has the traceback itself
            assert own or "in aboom" in said["cause"], said
        assert len({said["object"] for said in got}) == 200
    first = sum(total(workers, key) for key in keys)
    assert first >= 200
    workers[0]("aboom_many", keys[:5])
    assert sum(total(workers, key) for key in keys) == first + 5


def test_an_unlisted_error_is_told_with_its_traceback(fleet):
    workers = fleet(3)
    key = a_key_of(workers[0])
    asked = [w.ask("lookup", "boom", key, 0.3) for w in workers for _ in range(2)]
    for answer in asked:
        with pytest.raises(Failed) as caught:
            answer.result(20)
        said = caught.value.said
        assert said["error"] == "RemoteLoadError" and said["type_name"] == "builtins.ValueError"
        assert f"no {key}" in said["text"]
    with pytest.raises(Failed) as caught:
        workers[1]("lookup", "boom", key, 0.3)
    assert "peer_worker.py" in caught.value.said["cause"], "a remote traceback names the file"
    assert total(workers, key) == 2


def test_a_loader_that_asks_for_its_own_key_gets_an_error_in_a_fleet(fleet):
    workers = fleet(2)
    for name, how in (("itself", "lookup"), ("aitself", "alookup")):
        for owner in workers:
            begun = time.monotonic()
            with pytest.raises(Failed, match="RecursiveLoadError"):
                workers[0](how, name, a_key_of(owner, name))
            assert time.monotonic() - begun < 2


def test_loaders_may_ask_for_other_keys_wherever_they_are(fleet):
    workers = fleet(2, PEER_LOADERS="2")
    keys = [f"nested{i}" for i in range(30)]
    asked = [(key, w.ask("lookup", "outer", key)) for key in keys for w in workers]
    for key, answer in asked:
        assert answer.result(20)["value"] == key + "!"
    assert all(total(workers, "inner " + key) == 1 for key in keys)


# -- giving up -----------------------------------------------------------------------------------------


def test_a_load_is_cancelled_when_nobody_waits_on_any_node(fleet):
    workers = fleet(2)
    key = "cancel-me"
    assert workers[0]("cancelled", key) is True
    assert workers[1]("aget_or_load", key) == f"{key} by {workers[1].pid}"


def test_ctrl_c_during_a_wait_for_another_node_returns_at_once(fleet, peer_env):
    """P3: the main thread waits in poll(), lets the handler run, and leaves."""
    (owner,) = fleet(1)
    program = (
        "import signal, sys, time, peer_worker as w\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # else as we inherited it
        "w.start()\n"
        "time.sleep(1.5)\n"
        "mine = w.peers.address\n"
        "key = next(f'k{i}' for i in range(1000) if w.owner(f'k{i}') != mine)\n"
        "print('asking', flush=True)\n"
        "try: w.value(key, 0, 8.0)\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], text=True, stdout=subprocess.PIPE,
        env={**peer_env(), "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])},
    )  # fmt: skip
    with process:
        try:
            assert process.stdout.readline() == "asking\n"
            until(lambda: owner("loaded"), 5, "the owner was not asked")
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - begun < 1
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_an_owner_that_is_killed_costs_no_error(fleet):
    workers = fleet(3)
    owner, asker, other = workers
    keys = [a_key_of(owner, f"gone{i}-") for i in range(5)]
    asked = [asker.ask("lookup", "value", key, 0, 0.5) for key in keys]
    time.sleep(0.2)
    owner.end()
    for key, answer in zip(keys, asked, strict=True):
        assert answer.result(20)["value"].startswith(key)
    for key in keys:
        assert other("lookup", "value", key, 0, 0.5)["value"].startswith(key)
    until(lambda: len([m for m in asker("members") if m["live"]]) == 2, 20)


def test_a_delete_says_who_acknowledged(fleet):
    workers = fleet(3)
    addresses = {m["address"] for m in workers[0]("members")}
    key = a_key_of(workers[1])
    for w in workers:
        w("lookup", "value", key)
    report = workers[2]("invalidate", "value", key)
    assert set(report["acknowledged"]) | {next(
        m["address"] for m in workers[2]("members") if m["self"])} == addresses
    assert report["unreached"] == []
    assert workers[0]("lookup", "value", key)["tier"] == "load"
    assert total(workers, key) == 2
    workers[0]("put", "raw", {"a": 1})
    assert [w("get", "raw")["value"] for w in workers] == [{"a": 1}] * 3
    workers[1]("aput", "raw", [2])
    assert [w("get", "raw")["value"] for w in workers] == [[2]] * 3
    workers[2]("delete", "raw")
    assert [w("get", "raw") for w in workers] == [None] * 3


# -- the end -----------------------------------------------------------------------------------------------


def test_close_leaves_at_once_and_can_start_again(fleet):
    workers = fleet(3)
    workers[0]("aclose")
    until(lambda: len([m for m in workers[1]("members") if m["live"]]) == 2, 3,
          "a leave is announced, not suspected")
    workers[0]("astart")
    until(lambda: len([m for m in workers[1]("members") if m["live"]]) == 3)
    assert workers[0]("lookup", "value", "again")["value"].startswith("again")


def test_a_process_ends_by_itself_with_everything_running(fleet, peer_env):
    """P4: from atexit, with loops, loader threads and connections: no hang, no crash."""
    others = fleet(1)
    program = (
        "import asyncio, sys, peer_worker as w\n"
        "async def main():\n"
        "    await w.peers.astart()\n"
        "    await w.avalue('a'), w.value('b')\n"
        "    asyncio.ensure_future(w.avalue('c', 0, 30.0))\n"
        "    await asyncio.sleep(0.1)\n"
        "asyncio.run(main())\n"
        "w.value('d')\n"
        "print('end', flush=True)\n"
    )
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], text=True, timeout=60,
        env={**peer_env(), "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.strip().endswith("end"), done.stdout
    assert time.monotonic() - begun < 15
    until(lambda: len([m for m in others[0]("members") if m["live"]]) == 1, 5)


def test_stats_have_documented_names(fleet):
    worker = fleet(1)[0]
    stats = worker("stats")
    assert stats["state"] in ("warming", "ready")
    wanted = {"members", "owned_share", "hits_local", "hits_owner", "hits_heir", "loads",
              "asks_by_threads", "asks_by_loops", "frames_in", "frames_out"}  # fmt: skip
    assert wanted <= set(stats), wanted - set(stats)


def test_explain_names_owner_and_heir(fleet):
    workers = fleet(3)
    key = a_key_of(workers[1])
    said = workers[0]("explain", "value", key)
    assert said["owner"] == workers[0]("owner", key) and said["heir"] not in (None, said["owner"])
    assert said["registered"] and not said["owned_here"] and "which loads" in said["would"]
    assert len({score for _, score in said["ranks"]}) == 3
    assert "permit" in workers[0]("explain", "plain", key)["would"]


def test_importing_starts_nothing():
    program = (
        "import os, threading\n"
        "before = len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd'))\n"
        "import peerage\n"
        f"peerage.Peers(enable_peers=True, secret='{'ab' * 32}')\n"
        "after = len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd'))\n"
        "assert before == after, (before, after)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip


def test_a_second_interpreter_is_refused():
    """P5: one interpreter only."""
    program = (
        "import peerage, sys\n"
        "try: import _xxsubinterpreters as sub\n"
        "except ImportError: import _interpreters as sub\n"
        "number = sub.create()\n"
        "code = f'import sys; sys.path[:] = {sys.path}; import peerage._native'\n"
        "try: said = sub.run_string(number, code)\n"
        "except Exception as e: said = e\n"
        "print(type(said).__name__, said)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0 and "ImportError" in done.stdout, done.stdout


def test_the_version_is_one(root):
    assert f'version = "{peerage.__version__}"' in (root / "pyproject.toml").read_text()
