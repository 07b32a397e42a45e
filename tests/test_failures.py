"""No failure of a peer fails a request, and none makes the fleet load twice: real processes,
killed, stopped, cut off, stuck.

Each situation of the failure table has a test here or, where only virtual time can hold it
still, a story in native/tests/test_fleet*.c. Times are the product's own (PEER_TIMEOUT 0.25)
with room for a busy machine.
"""

import os
import signal
import time
from pathlib import Path

import pytest
from hosts import Hosts, why_not
from workers import COMMAND, Failed, Worker, a_key_of, joined, until

pytestmark = pytest.mark.both_ways
TIMEOUT = 0.25
SLACK = 1.0         # a machine with other things to do
LOAD = 0.2


def total(workers, key):
    return sum(w("loaded").get(key, 0) for w in workers)


def by_rank(workers, key):
    """Owner, heir, and the others."""
    said = workers[0]("explain", "value", key)
    at = {w.address: w for w in workers}
    owner, heir = at[said["owner"]], at[said["heir"]]
    return owner, heir, [w for w in workers if w not in (owner, heir)]


def stop(worker):
    """Until every thread stands: on a full machine one may answer for a while yet."""
    os.kill(worker.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{worker.pid}/task")
    until(lambda: all(
        stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in tasks.glob("*/stat")
    ), 5, "it was not stopped")  # fmt: skip


def go_on(worker):
    os.kill(worker.pid, signal.SIGCONT)


def pushed(workers):
    """Until the heirs have what their owners sent them: who is killed at once keeps it back."""
    def arrived():
        stats = [w("stats") for w in workers]
        return sum(s["pushes_taken"] for s in stats) == sum(s["pushes"] for s in stats)

    until(arrived, 5, "an heir did not take what it was sent")


def is_dead_for(workers, address):
    return all(address not in [m["address"] for m in w("members") if m["live"]] for w in workers)


# -- the owner does not answer ----------------------------------------------------------------


@pytest.mark.alone
def test_askers_of_a_silent_owner_meet_at_its_heir(fleet):
    """It takes connections and says nothing: within the budget its heir is asked, which loads
    once for all; then the owner is left alone for 3 s."""
    workers = fleet(5)
    owner, heir, others = by_rank(workers, "silent")
    stop(owner)
    begun = time.monotonic()
    asked = [w.ask("many", "value", ["silent"] * 4, 0, LOAD) for w in others]
    for answer in asked:
        for got in answer.result(20):
            assert got["value"] == f"silent by {heir.pid}"
            assert got["seconds"] < 2 * TIMEOUT + LOAD + SLACK
    assert time.monotonic() - begun < 10
    assert total([heir, *others], "silent") == 1
    other = next(key for i in range(1000)
                 if others[0]("owner", key := f"n{i}") == owner.address)
    begun = time.monotonic()
    assert others[0]("lookup", "value", other)["value"].startswith(other)
    assert time.monotonic() - begun < TIMEOUT, "avoided: no timeout is paid again"
    go_on(owner)


@pytest.mark.alone
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
@pytest.mark.parametrize("function", ["value", "plain"])
def test_a_black_holed_owner(function, peer_env, tmp_path):
    """Eight hosts; packets to and from the owner are dropped, not refused: at most two loads,
    every caller answered within twice PEER_TIMEOUT and the load."""
    hosts = Hosts(8)
    workers = []
    try:
        for i in range(8):
            env = peer_env(PEERS=hosts.address(0) + "," + hosts.address(1),
                           PEER_LISTEN=hosts.address(i), PEER_ADVERTISE_ADDR=hosts.address(i))
            workers.append(Worker(env, tmp_path / f"worker-{i}.log",
                                  command=hosts.command(i, *COMMAND)))
        for started in [w.ask("astart") for w in workers]:
            started.result(20)
        joined(workers, 20)
        owner, _, _ = by_rank(workers, "hole")
        asking = [w for w in workers if w is not owner]
        for w in asking:        # connections are there, as in a fleet at work
            w("lookup", "value", a_key_of(owner, f"warm{w.pid}"))
        hosts.cut(workers.index(owner))
        asked = [w.ask("many", function, ["hole"] * 3, 0, LOAD) for w in asking]
        for answer in asked:
            for got in answer.result(20):
                assert got.get("value", got)[:4] == "hole"
                assert got["seconds"] < 2 * TIMEOUT + LOAD + SLACK
        assert 1 <= total(asking, "hole") <= 2
        gone = owner.address
        until(lambda: is_dead_for(asking, gone), 30, "it was not found dead")
        hosts.mend(workers.index(owner))
        until(lambda: not is_dead_for(asking[:1], gone), 30, "it did not come back")
    finally:
        for w in workers:
            w.end()
        hosts.close()


@pytest.mark.alone
def test_a_stopped_owner_with_an_accepted_load_then_a_delete(fleet):
    """No caller fails, and when it goes on, nothing that was deleted comes back: a node that
    was declared dead drops everything before it serves again (D3). After a delete a key is loaded
    at most twice: nodes that for a moment disagree on who lives may both load it."""
    workers = fleet(4, PEER_LOAD_TIMEOUT="6")
    owner, heir, others = by_rank(workers, "held")
    living = [heir, *others]
    old = a_key_of(owner, "old")
    takes = {old: 0.0, "held": 1.0}
    deleted, seen = {}, {key: set() for key in takes}

    def loads(nodes, key):
        return {f"{key}#{n + 1} by {w.pid}" for w in nodes for n in range(w("loaded").get(key, 0))}

    def delete(node, key):
        deleted[key] |= loads(living, key)
        report = node("invalidate", "numbered", key, takes[key])
        assert set(report["acknowledged"]) == {w.address for w in living}
        return report["unreached"]

    def look(node, key):
        value = node("lookup", "numbered", key, takes[key])["value"]
        assert value.startswith(f"{key}#") and value not in deleted[key]
        seen[key].add(value)

    assert others[0]("lookup", "numbered", old, takes[old])["value"] == f"{old}#1 by {owner.pid}"
    before = owner("stats")["served_loads"]
    asked = [w.ask("lookup", "numbered", "held", takes["held"]) for w in others]
    until(lambda: owner("stats")["served_loads"] == before + 2, 5, "it was not asked by both")
    until(lambda: owner("loaded").get("held"), 5, "it did not load")
    deleted.update({key: loads([owner], key) for key in takes})
    stop(owner)
    gone = owner.address
    assert delete(others[0], old) == [gone]
    delete(others[1], "held")
    for answer in asked:
        assert answer.result(30)["value"].startswith("held#")
    until(lambda: is_dead_for(living, gone), 30, "it was not found dead")
    for key in takes:
        look(others[0], key)
    go_on(owner)
    until(lambda: not is_dead_for(others, gone), 30, "it did not come back")
    for _ in range(10):
        for w in workers:
            for key in takes:
                look(w, key)
        time.sleep(0.1)
    for key in takes:
        anew = loads(workers, key) - deleted[key]
        assert seen[key] <= anew, (anew, seen[key], deleted[key])
        assert len(anew) <= 2, anew


def test_a_node_stopped_for_longer_than_the_suspicion(fleet):
    """It comes back by itself, empty; nobody had an error meanwhile."""
    workers = fleet(3)
    owner, heir, (other,) = by_rank(workers, "pause")
    gone = owner.address
    stop(owner)
    until(lambda: other("lookup", "value", f"p{time.monotonic()}")
          and is_dead_for([heir, other], gone), 30)
    go_on(owner)
    joined(workers, 30)
    assert owner("lookup", "value", "back")["value"].startswith("back")
    assert owner("state") == "ready"


@pytest.mark.alone
def test_a_stuck_python_is_left_by_every_asker(fleet):
    """O5: a load that Python does not take in time goes to the heir, once for all; what the
    stuck node has in its store it goes on answering."""
    workers = fleet(4)
    owner, heir, others = by_rank(workers, "stuck")
    there = a_key_of(owner, "there")
    owner("lookup", "value", there)
    asker = next(w for w in others if w is not by_rank(workers, there)[1])  # keeps no copy
    spinning = owner.ask("spin", 4)
    time.sleep(0.3)
    asked = [w.ask("many", "value", ["stuck"] * 3, 0, LOAD) for w in others]
    for answer in asked:
        for got in answer.result(20):
            assert got["value"] == f"stuck by {heir.pid}"
            assert got["seconds"] < 2 * TIMEOUT + LOAD + SLACK
    assert asker("lookup", "value", there)["tier"] == "owner", "its hits are still asked for"
    assert not spinning.done()
    assert total([heir, *others], "stuck") == 1


# -- the owner is killed ------------------------------------------------------------------------


def test_a_killed_loader(fleet):
    """The process that runs the load for all is killed: the next who waits loads."""
    workers = fleet(4)
    owner, heir, others = by_rank(workers, "killed")
    asked = [w.ask("many", "value", ["killed"] * 5, 0, 1.0) for w in [heir, *others]]
    until(lambda: owner("loaded").get("killed"), 5)
    owner.end()
    values = {got["value"] for answer in asked for got in answer.result(20)}
    assert len(values) == 1 and total([heir, *others], "killed") == 1


def test_a_killed_permit_holder(fleet):
    """A closure runs where it is; its permit dies with its process, and the next loads."""
    workers = fleet(3)
    owner, heir, (other,) = by_rank(workers, "permit")
    key = next(k for i in range(500) if workers[0]("owner", k := f"tests-{i}") == owner.address)
    first = other.ask("get_or_load", key, 5.0)
    until(lambda: other("loaded").get(key), 5)
    second = heir.ask("get_or_load", key, 0.1)
    time.sleep(0.3)
    other.end()
    assert isinstance(first.exception(10), EOFError)
    assert second.result(3) == f"{key} by {heir.pid}"


def test_a_replacement_on_a_killed_nodes_port(fleet, worker):
    """W6: it says who it is, the asker goes to the heir at once, and what the dead node had
    loaded is not loaded again."""
    workers = fleet(3)
    owner, heir, (other,) = by_rank(workers, "place")
    keys = owner("owned", 5, "place")
    for key in keys:
        owner("lookup", "value", key)
    pushed(workers)
    owner.end()
    port = owner.address.rpartition(":")[2]
    fresh = worker(PEER_PORT=port, PEER_PORT_RANGE="1", PEERS=heir.address)
    starting = fresh.ask("astart")
    begun = time.monotonic()
    for key in keys:
        assert other("lookup", "value", key)["value"] == f"{key} by {owner.pid}"
    assert time.monotonic() - begun < 5 * TIMEOUT + SLACK
    starting.result(20)
    joined([fresh, heir, other])
    assert fresh("stats")["loads"] == 0
    for key in keys:
        assert fresh("lookup", "value", key)["value"] == f"{key} by {owner.pid}"


def test_two_nodes_killed_one_after_the_other_lose_nothing(fleet):
    """Entries stand at two nodes again after a crash."""
    workers = fleet(4, PEER_TIMEOUT="0.5")
    keys = [f"twice{i}" for i in range(40)]
    for got in workers[0]("many", "value", keys):
        assert got["value"]
    pushed(workers)
    for victim in (workers[2], workers[3]):
        gone = victim.address
        victim.end()
        rest = [w for w in workers if w.process.poll() is None]
        until(lambda gone=gone, rest=rest: is_dead_for(rest, gone), 30)
        time.sleep(1)
    for w in workers[:2]:
        for got in w("many", "value", keys):
            assert got["tier"] != "load"


# -- strangers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [
    {"PEER_SECRET": "ab" * 32}, {"PEER_LABEL": "another"}, {"PEER_ENCRYPTION": "true"},
])  # fmt: skip
def test_a_node_of_another_cluster_never_joins(fleet, worker, change):
    """Its datagrams are dropped, counted and logged; both clusters work on."""
    workers = fleet(2)
    stranger = worker(**change, PEERS=workers[0].address)
    stranger("astart")
    time.sleep(1.5)
    assert len(stranger("members")) <= 1
    assert len([m for m in workers[0]("members") if m["live"]]) == 2
    refused = sum(w("stats")["datagrams_refused"] for w in workers)
    assert refused > 0
    assert stranger("lookup", "value", "alone")["value"] == f"alone by {stranger.pid}"
    assert workers[0]("lookup", "value", "alone")["value"] != f"alone by {stranger.pid}"


# -- flights -----------------------------------------------------------------------------------------


@pytest.mark.alone
def test_one_impatient_caller_and_fifty_patient_ones(fleet):
    """One caller's deadline is its own: fifty succeed, with one load."""
    workers = fleet(3)
    key = "patience"
    asked = [w.ask("callers", key, [5.0] * 17, 0.5) for w in workers[1:]]
    first = workers[0]("callers", key, [0.01] + [5.0] * 16, 0.5)
    assert first[0][0] == "LoadTimeout" and first[0][1] < 0.01 + SLACK
    patient = [got for got, _ in first[1:]] + [g for a in asked for g, _ in a.result(20)]
    assert len(patient) == 50 and len(set(patient)) == 1 and patient[0].startswith(key)
    assert total(workers, key) == 1


def test_the_first_callers_cancellation_fails_nobody(fleet):
    workers = fleet(3)
    owner, heir, (other,) = by_rank(workers, "first")
    first = other.ask("give_up", "avalue", ["first"], 0.2, 0, 0.7)
    until(lambda: owner("loaded").get("first"), 5)
    asked = [w.ask("many", "avalue", ["first"] * 3, 0, 0.7) for w in workers]
    assert first.result(10) == 1
    for answer in asked:
        for got in answer.result(10):
            assert got["value"] == f"first by {owner.pid}"
    assert total(workers, "first") == 1


def test_a_hundred_cancelled_callers_leave_the_peer_healthy(fleet):
    """A client that hangs up is not the peer's fault."""
    workers = fleet(2)
    owner, other = workers
    keys = owner("owned", 101, "hangup")
    before = other("stats")
    assert other("give_up", "avalue", keys[:100], 0.05, 0, 2.0) == 100
    begun = time.monotonic()
    got = other("alookup", "avalue", keys[100], 0, 0.0)
    assert got["value"] == f"{keys[100]} by {owner.pid}" and time.monotonic() - begun < SLACK
    after = other("stats")
    assert after["asks_silent"] == before["asks_silent"]
    assert after["asks_busy"] == before["asks_busy"]
    until(lambda: owner("stats")["flights"] == 0 and other("stats")["flights"] == 0, 5)


def test_a_long_load_runs_once(fleet):
    """O5: longer than many PEER_TIMEOUTs and several "still working", within the load timeout:
    asked from every node, run once, without an error."""
    workers = fleet(4, PEER_LOAD_TIMEOUT="8")
    asked = [w.ask("many", name, [f"report-{name}"] * 2, 0, 5.0)
             for w in workers for name in ("value", "avalue", "plain")]
    for answer in asked:
        for got in answer.result(30):
            assert got.get("value", "").startswith("report-"), got
    for name in ("value", "avalue", "plain"):
        assert total(workers, f"report-{name}") == 1


@pytest.mark.alone
def test_forty_sync_loads_for_one_owner_at_once(fleet):
    """More than the pool has threads: they queue for a moment, and no key goes elsewhere."""
    workers = fleet(3, PEER_TIMEOUT="0.5")
    owner = workers[0]
    keys = owner("owned", 40, "forty")
    half = [w.ask("many", "value", part, 0, 0.15)
            for w, part in zip(workers[1:], (keys[:20], keys[20:]), strict=True)]
    for answer in half:
        for got in answer.result(20):
            assert got["value"].endswith(f"by {owner.pid}")
    assert sum(w("stats")["asks_busy"] for w in workers) == 0


def test_a_loader_that_raises_and_the_next_call(fleet):
    """All who wait get the error; nothing is kept of it unless the function asks for that."""
    workers = fleet(3)
    owner, _, _ = by_rank(workers, "bad")
    for w in workers:
        with pytest.raises(Failed, match="no bad"):
            w("lookup", "boom", "bad", 0.0)
    assert total(workers, "bad") == 3, "each call loads afresh"
    for _ in range(2):
        for w in workers:
            with pytest.raises(Failed, match="no kept"):
                w("lookup", "refused", "kept")
    assert total(workers, "kept") == 1, "a negative TTL was asked for"
    time.sleep(3.2)
    with pytest.raises(Failed, match="no kept"):
        workers[1]("lookup", "refused", "kept")
    assert total(workers, "kept") == 2


def test_a_value_that_no_frame_can_hold(fleet):
    """Returned to its caller, not shared, counted; the next reader loads for itself."""
    workers = fleet(2)
    key = a_key_of(workers[0], "huge")
    size = 9 << 20
    assert workers[1]("lookup", "value", key, size)["value"].startswith(key)
    assert workers[0]("lookup", "value", key, size)["value"].startswith(key)
    assert sum(w("stats")["too_big"] for w in workers) > 0
    assert workers[1]("lookup", "value", a_key_of(workers[0], "small"))["tier"] in ("load", "owner")
    assert workers[1]("stats")["asks_silent"] == 0


def test_stale_is_served_while_and_after_a_failing_refresh(fleet):
    """Past its TTL a value is served at once while the owner loads behind it, also when that
    load fails; when it succeeds, its value is the next answer."""
    workers = fleet(3)
    owner, heir, (other,) = by_rank(workers, "old")
    assert other("lookup", "aging", "old")["value"] == f"old#1 by {owner.pid}"
    for w in workers:
        w("turn", "fail", True)
    time.sleep(1.1)
    for _ in range(3):
        for w in workers:
            begun = time.monotonic()
            got = w("lookup", "aging", "old")
            assert got["value"] == f"old#1 by {owner.pid}" and got["stale"]
            assert time.monotonic() - begun < 0.1 + SLACK
        time.sleep(0.3)
    assert owner("loaded")["old"] > 1 and total([heir, other], "old") == 0
    for w in workers:
        w("turn", "fail", False)
    until(lambda: other("lookup", "aging", "old")["value"] != f"old#1 by {owner.pid}", 5)
    assert not other("lookup", "aging", "old")["stale"]


def test_a_hot_value_is_refreshed_before_it_ends(fleet):
    """Where a function asks for it (`early`): nobody waits for the load of a key that is read,
    and one that is read no more is not loaded for nobody."""
    workers = fleet(3)
    owner, _, _ = by_rank(workers, "hot")
    for w in workers:
        w("lookup", "hot", "hot")
    slowest = 0.0
    until_at = time.monotonic() + 5
    while time.monotonic() < until_at:
        for w in workers:
            begun = time.monotonic()
            w("lookup", "hot", "hot")
            slowest = max(slowest, time.monotonic() - begun)
        time.sleep(0.02)
    assert slowest < 0.35, "the load takes 0.4 s"
    assert owner("stats")["refreshes_early"] >= 2
    assert total(workers, "hot") == owner("loaded")["hot"] <= 6
    time.sleep(2.5)
    last = total(workers, "hot")
    time.sleep(2.5)
    assert total(workers, "hot") == last


def test_jitter_only_ever_shortens(fleet):
    """Values that were made at one moment do not all end at one moment."""
    workers = fleet(2)
    keys = [f"jitter{i}" for i in range(60)]
    workers[0]("many", "uneven", keys)
    time.sleep(1.5)
    workers[1]("many", "uneven", keys)
    again = sum(total(workers, key) == 2 for key in keys)
    assert 5 < again < 55, "of a ttl between 0.5 and 3 s some are over, and some are not"
    time.sleep(1.6)
    workers[0]("many", "uneven", keys)
    assert all(total(workers, key) >= 2 for key in keys), "nothing gets older than its ttl"


# -- descriptors --------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_members_that_change_and_many_gets_leave_the_descriptors_flat(fleet, worker):
    """A thousand updates of the members, five hundred gets at once."""
    workers = fleet(2)
    watched, other = workers
    rotating = [worker() for _ in range(3)]
    watched("lookup", "value", a_key_of(other, "warm"))
    watched("many", "avalue", other("owned", 500, "many"))
    before = watched("descriptors")
    # 510 come and leave: at least two updates each
    for answer in [w.ask("come_and_go", 170) for w in rotating]:
        answer.result(250)
    watched("many", "avalue", other("owned", 500, "again"))
    until(lambda: watched("descriptors") <= before + 8, 40, "descriptors leak")
    assert watched("lookup", "value", a_key_of(other, "after"))["value"]


# -- deletes and sets ------------------------------------------------------------------------------------


def test_a_delete_reports_a_stopped_node(fleet):
    """Who acknowledged and who could not be reached; those two make up the fleet."""
    workers = fleet(4)
    owner, heir, (third, fourth) = by_rank(workers, "report")
    for w in workers:
        w("lookup", "value", "report")
    stop(fourth)
    report = third("invalidate", "value", "report")
    assert report["unreached"] == [fourth.address]
    assert sorted(report["acknowledged"]) == sorted(w.address for w in (owner, heir, third))
    for w in (owner, heir, third):
        assert w("explain", "value", "report")["local"] is None
    report = third("delete_many", ["a", "b", "c"])
    assert report["unreached"] == [fourth.address] and len(report["acknowledged"]) == 3
    go_on(fourth)


def test_a_silent_owners_heir_runs_the_delete(fleet):
    """D3: the owner is stopped; everyone else drops the entry, and the report names it."""
    workers = fleet(4)
    owner, heir, others = by_rank(workers, "run")
    for w in workers:
        w("lookup", "value", "run")
    stop(owner)
    report = others[0]("invalidate", "value", "run")
    assert report["unreached"] == [owner.address]
    assert sorted(report["acknowledged"]) == sorted(w.address for w in [heir, *others])
    go_on(owner)


def test_a_load_begun_before_a_delete_does_not_store_after_it(fleet):
    """D1, D2: on the owner, at its heir, and with those who waited."""
    workers = fleet(3)
    owner, _, _ = by_rank(workers, "race")
    asked = [w.ask("lookup", "value", "race", 0, 0.8) for w in workers]
    until(lambda: owner("loaded").get("race"), 5)
    assert workers[1]("invalidate", "value", "race", 0, 0.8)["unreached"] == []
    for answer in asked:
        assert answer.result(10)["value"].startswith("race")
    for w in workers:
        assert w("explain", "value", "race", 0, 0.8)["local"] is None
    workers[2]("lookup", "value", "race", 0, 0.8)
    assert total(workers, "race") == 2


def test_what_came_along_goes_along(fleet):
    """D4: `also` entries are deleted with their page, by whichever node it is asked for and also
    where the page's owner is another one by now; a channel goes as a whole."""
    workers = fleet(3)
    for w in workers:
        w("alookup", "page", "site")
        w("alookup", "body", "site")
    assert workers[0]("invalidate_channel", "site")["unreached"] == []
    for w in workers:
        assert w("explain", "page", "site")["local"] is None
        assert w("explain", "body", "site")["local"] is None
    assert workers[1]("alookup", "body", "site")["value"] == "<p>site</p>"
    assert total(workers, "page site") == 2
    for name in ("site", "other", "third"):
        for w in workers:
            w("alookup", "page", name)
            w("alookup", "body", name)
    assert workers[2]("invalidate", "page", "site")["unreached"] == []
    next(w for w in workers if w.address == workers[0]("owner", "other"))("aclose")
    left = [w for w in workers if w("state") == "ready"]
    until(lambda: all(len(w("members")) == 2 for w in left), 5)
    time.sleep(0.5)
    left[0]("invalidate", "page", "other")
    for name in ("site", "other"):
        for w in left:
            assert w("explain", "page", name)["local"] is None
            assert w("explain", "body", name)["local"] is None
    assert left[0]("explain", "body", "third")["local"] is not None
    assert left[1]("alookup", "body", "other")["value"] == "<p>other</p>"


def test_a_set_is_seen_by_its_caller_and_at_the_owner(fleet):
    """D4: owner and heir store it, all others drop theirs; a set is never undone by a load
    that began before it."""
    workers = fleet(4)
    for i, setter in enumerate(workers):
        for w in workers:
            w("get_or_load", f"set{i}")
        report = setter("put", f"set{i}", i)
        assert report["unreached"] == [] and len(report["acknowledged"]) == 4
        assert setter("get", f"set{i}")["value"] == i
        assert [w("get", f"set{i}")["value"] for w in workers] == [i] * 4


@pytest.mark.alone
def test_a_set_that_a_stopped_owner_finds_late_is_not_made(fleet):
    """D1: the owner stands still for longer than who asks it waits. What it was asked to set
    lies in its socket when it goes on; its heir has set it meanwhile, and something newer."""
    workers = fleet(4)
    setter, owner = workers[0], workers[1]
    keys = [key for i in range(100) if setter("owner_of", key := f"late{i}") == owner.address][:8]
    for key in keys:        # and a connection is there
        assert setter("put", key, "first")["unreached"] == []
    stop(owner)
    for said in ("second", "third"):
        for told in [setter.ask("put", key, said) for key in keys]:
            assert owner.address in told.result(20)["unreached"]
    go_on(owner)
    until(lambda: owner("stats")["changes_late"] >= len(keys), 10, "nothing came late")
    for _ in range(10):
        for w in workers:
            for key in keys:
                found = w("get", key)
                assert found is None or found["value"] == "third", (w is owner, found)
        time.sleep(0.1)
    assert setter("put", keys[0], "fourth")["unreached"] == []
    assert [w("get", keys[0])["value"] for w in workers] == ["fourth"] * 4


def test_sets_at_the_same_moment_leave_one_value(fleet):
    """D4: whoever sets, and whoever owns, the last of overlapping changes is what all have."""
    workers = fleet(4)
    for i in range(40):
        key = f"moment{i}"
        changes = [w.ask("put", key, n) for n, w in enumerate(workers[:3])]
        changes.append(workers[3].ask("delete", key) if i % 4 == 3 else workers[3].ask("put", key, 3))
        for told in changes:
            assert told.result(10)["unreached"] == []
        found = [w("get", key) for w in workers]
        values = {f and f["value"] for f in found}
        assert len(values) == 1, found


@pytest.mark.alone
def test_who_knows_of_a_delete_is_not_told_what_was_before(fleet):
    """D2: the owner stands still while a key is deleted, and hears of that some moments after it
    goes on. It answers meanwhile; who has applied the delete does not believe it."""
    workers = fleet(4)
    owner, others = workers[0], workers[1:]
    keys = [key for i in range(200) if others[0]("owner_of", key := f"before{i}") == owner.address][:12]
    for key in keys:
        assert others[0]("put", key, "old")["unreached"] == []
    stop(owner)
    for told in [others[0].ask("delete", key) for key in keys]:
        assert owner.address in told.result(20)["unreached"]
    time.sleep(3)           # nobody avoids it any more
    asked = [w.ask("get", key) for key in keys for w in others]
    time.sleep(0.1)
    go_on(owner)
    for told in asked:
        assert told.result(20) is None


def test_a_copy_that_a_stopped_heir_finds_late_is_not_kept(fleet):
    """D3: it was pushed before the heir was declared dead, and deleted after; the heir empties its
    cache when it goes on, and only then reads it off its socket."""
    workers = fleet(3)
    keys = {}
    for i in range(60):
        owner, heir, (other,) = by_rank(workers, f"copy{i}")
        keys.setdefault((owner.address, heir.address), []).append(f"copy{i}")
    owner, heir, (other,) = by_rank(workers, max(keys.values(), key=len)[0])
    warm, *late = keys[owner.address, heir.address][:7]
    owner("lookup", "value", warm)      # the connection is there
    until(lambda: heir("lookup", "value", warm)["tier"] == "local")
    stop(heir)
    for key in late:
        owner("lookup", "value", key)
    until(lambda: is_dead_for([owner, other], heir.address), 30, "it was not found dead")
    for key in late:
        assert other("invalidate", "value", key)["unreached"] == []
    go_on(heir)
    joined(workers, 30)
    for key in late:
        assert heir("lookup", "value", key)["value"]
        assert total(workers, key) == 2, "what was deleted is loaded anew"


# -- leaving -------------------------------------------------------------------------------------------------


def test_a_node_that_closes_hands_on_what_it_had(fleet):
    """O8: it leaves the contest, hands its entries on, and is `left`: the next reader of any key
    loads nothing, also without an heir that had a copy already."""
    for heir in ("true", "false"):
        workers = fleet(3, PEER_HEIR=heir)
        keys = workers[0]("owned", 30, f"leave-{heir}")
        for got in workers[0]("many", "value", keys, 2000):
            assert got["value"]
        gone = workers[0].address
        begun = time.monotonic()
        workers[0]("aclose")
        assert time.monotonic() - begun < 5
        until(lambda gone=gone, rest=workers[1:]: is_dead_for(rest, gone), 2, "left, not suspected")
        for got in workers[1]("many", "value", keys, 2000):
            assert got["value"].endswith("." * 50) and got["tier"] != "load"
        for w in workers:
            w("aclose")


def test_a_closing_owner_finishes_its_loads(fleet):
    """Whoever waits for them gets them; nobody loads a second time."""
    workers = fleet(3)
    owner, heir, (other,) = by_rank(workers, "last")
    before = [w("stats")["asks_by_threads"] for w in (heir, other)]
    asked = [w.ask("many", "value", ["last"] * 3, 0, 1.5) for w in (heir, other)]
    until(lambda: owner("loaded").get("last"), 5)
    for w, count in zip((heir, other), before, strict=True):
        until(lambda w=w, count=count: w("stats")["asks_by_threads"] > count, 5)
    closing = owner.ask("aclose")
    time.sleep(0.3)
    asked.append(other.ask("many", "value", ["last"], 0, 1.5))
    for answer in asked:
        for got in answer.result(20):
            assert got["value"] == f"last by {owner.pid}", got
    closing.result(10)
    assert total(workers, "last") == 1
