"""A member that lies. It holds the secret, so what it says verifies; the bounds on the harm it
can do, which docs/SECURITY.md writes down, are shown here: accused nodes refute, forged
incarnations are refused, invented members are found out and dropped, and addresses that
nobody may use are neither stored nor sent to."""

import os
import subprocess
import sys
import time

import pytest
from attack_fleet import Attacked, Datagrams
from attacker import (
    ALIVE, CHALLENGE, DEAD, JOIN, LEFT, NEWS, PING, PROOF, RELAY, SUSPECT, Rogue, gossip,
    random_id, sized, update,
)  # fmt: skip
from workers import until

NOBODY = bytes(12)      # a join's: how many it knows, and their digest


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with Attacked(tmp_path_factory.mktemp("members")) as made:
        yield made


@pytest.fixture
def liar(fleet):
    """A member like any other, so far."""
    with Rogue(fleet.identity(), fleet.free_port()) as rogue:
        until(lambda: rogue.join(fleet.port) or (
            fleet.live(fleet.victim) == 3 and fleet.live(fleet.honest) == 3), 10)  # fmt: skip
        yield rogue
        for worker in fleet.workers:
            rogue.leave(fleet.port_of(worker), fleet.id_of(worker))
    until(lambda: fleet.live(fleet.victim) == 2 and fleet.live(fleet.honest) == 2, 30)


def member(fleet, worker):
    port = f":{fleet.port_of(worker)}"
    return next(m for m in fleet.honest("members") if m["address"].endswith(port))


def tell(fleet, liar, updates, worker=None):
    worker = worker or fleet.honest
    liar.say(NEWS, fleet.port_of(worker), fleet.id_of(worker), updates=updates)


def keeps_serving(fleet, seconds):
    """The honest node gets the victim's hits all the while, with the victim a member."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert member(fleet, fleet.victim)["live"]
        fleet.serves()
        time.sleep(0.05)


@pytest.mark.parametrize("state", ["suspect", "dead", "left"])
def test_a_lie_that_another_member_is_gone(fleet, liar, state):
    """Believed until its subject hears of it, at the latest with the answer to its next ping,
    and refutes; till then a key may be fetched twice. Who hears that it was dead drops its
    cache."""
    me = member(fleet, fleet.victim)
    lie, first = {"suspect": (SUSPECT, 100), "dead": (DEAD, 1000), "left": (LEFT, 2000)}[state]
    accusers = ["127.0.0.1"] if state == "suspect" else []
    emptied = "declared this node dead: its cache is emptied"
    before = fleet.victim.log.read_text().count(emptied)
    for version in range(first, first + 30, 10):
        tell(fleet, liar, update("127.0.0.1", fleet.port, me["node_id"], me["started_ms"], version,
                                 lie, accusers=accusers))  # fmt: skip
        time.sleep(0.1)
        until(lambda: member_or_none(fleet, fleet.victim), 12, "the victim refutes")
    until(lambda: member(fleet, fleet.victim)["live"], 3)
    keeps_serving(fleet, 1)
    assert fleet.victim("state") == "ready"
    assert (fleet.victim.log.read_text().count(emptied) > before) == (state != "suspect")


def member_or_none(fleet, worker):
    return [m for m in fleet.honest("members")
            if m["live"] and m["address"].endswith(f":{fleet.port_of(worker)}")]  # fmt: skip


def test_forged_versions_and_starts_far_ahead(fleet, liar):
    """A version that jumps by more than 2^16, and a start more than 60 s ahead of the clock,
    are refused: one message can't use a member's incarnations up."""
    me = member(fleet, fleet.victim)
    now = int(time.time() * 1000)
    lies = [
        {"version": 2**64 - 1, "state": DEAD},
        {"version": 2**63, "state": DEAD},
        {"version": 2**17, "state": DEAD},
        {"started_ms": now + 3_600_000, "node_id": random_id(), "state": ALIVE},
        {"started_ms": 2**64 - 1, "node_id": random_id(), "state": DEAD},
        {"started_ms": 2**64 - 1, "state": DEAD},
    ]
    true = {"host": "127.0.0.1", "port": fleet.port, "node_id": me["node_id"],
            "started_ms": me["started_ms"], "version": 1}  # fmt: skip
    for worker in fleet.honest, fleet.victim:
        before = worker("stats")["updates_refused"]
        for lie in lies:
            tell(fleet, liar, update(**true | lie), worker)
        least = len(lies) if worker is fleet.honest else 2
        until(lambda w=worker, b=before, n=least: w("stats")["updates_refused"] >= b + n, 3)
    keeps_serving(fleet, 1)
    assert fleet.victim("state") == fleet.honest("state") == "ready"


def test_invented_members(fleet, liar):
    """Addresses where nobody is: they are believed, probed, found silent and dropped, and
    questions for what they would own are answered meanwhile. The more of them in a small
    fleet, the longer it takes (docs/SECURITY.md has figures)."""
    ghosts = int(os.environ.get("PEERAGE_TEST_GHOSTS", "3"))
    with fleet.unharmed(dead=-1):
        now, began = int(time.time() * 1000) - 1000, time.monotonic()
        for first in range(0, ghosts, 20):
            tell(fleet, liar, b"".join(
                update("127.0.0.1", 2000 + n, random_id(), now)
                for n in range(first, min(first + 20, ghosts))))  # fmt: skip
        until(lambda: fleet.live(fleet.honest) > 3 + ghosts // 2, 5, "they are believed at first")
        for n in range(20):
            key = f"ghostly{n}"
            assert fleet.honest("lookup", "value", key)["value"].startswith(key)
        until(lambda: fleet.live(fleet.honest) == 3 and fleet.live(fleet.victim) == 3,
              60 + 10 * ghosts, "they are found out")  # fmt: skip
        print(f"{ghosts} invented members were gone after {time.monotonic() - began:.1f} s")


def test_a_ghost_on_an_address_outside_the_blocks_is_never_stored(fleet, liar):
    for host in "8.8.8.8", "203.0.113.5", "255.255.255.255", "0.0.0.0", "224.0.0.1":
        before = fleet.honest("stats")["updates_refused"]
        tell(fleet, liar, update(host, 7946, random_id(), int(time.time() * 1000)))
        until(lambda b=before: fleet.honest("stats")["updates_refused"] > b, 3, host)
    assert fleet.live(fleet.honest) == 3


def test_a_join_for_somebody_elses_address(fleet):
    """Who gives an address at which it does not answer, over UDP and over TCP, is not
    admitted; a member that is there already stays who it is."""
    with fleet.unharmed(), Datagrams(fleet) as d:
        for port in fleet.port_of(fleet.honest), fleet.port, 9:
            record = update("127.0.0.1", port, d.me.id, int(time.time() * 1000))
            payload = gossip(JOIN, "127.0.0.1", port, NOBODY, record)
            d.send(d.me.datagram(0, payload, pad_to=1300))
        # UDP alone is not enough
        record = update(d.host, d.port, d.me.id, int(time.time() * 1000))
        d.send(d.me.datagram(0, gossip(JOIN, d.host, d.port, NOBODY, record), pad_to=1300))
        for answer in d.answers():
            _, fields = d.me.open(answer, b"")
            payload = fields[2 : 2 + int.from_bytes(fields[:2], "big")]
            if payload[1] == CHALLENGE:
                token = payload[3 + 7 : 3 + payload[2]]
                d.send(d.me.datagram(fleet.node_id, gossip(PROOF, d.host, d.port, token)))
        time.sleep(2.5)
        assert fleet.live(fleet.victim) == fleet.live(fleet.honest) == 2
    assert "does not answer at the address it gives" in fleet.victim.log.read_text()


def test_a_flood_of_joins_holds_a_bounded_number(fleet):
    """Joins that verify, each for another address: at most 256 are being proven at a time."""
    with fleet.unharmed(mib=8, dials=100), Datagrams(fleet) as d:
        now = int(time.time() * 1000)
        for n in range(1000):
            record = update("127.0.0.1", 3000 + n, d.me.id, now)
            d.send(d.me.datagram(0, gossip(JOIN, "127.0.0.1", 3000 + n, NOBODY, record), pad_to=700))
            if n % 50 == 49:
                time.sleep(0.01)
        time.sleep(0.5)
        assert fleet.victim("stats")["connections_in"] < 20
        time.sleep(2)


def test_gossip_that_does_not_parse(fleet, liar):
    wrong = [
        b"", b"\x01", bytes([9, NEWS, 0]), bytes([1, NEWS, 255]), bytes([1, 200, 7]) + bytes(7),
        gossip(NEWS, "127.0.0.1", 0), gossip(PING, "127.0.0.1", liar.port, b"short"),
        gossip(NEWS, "127.0.0.1", liar.port, updates=b"\xff" * 100),
        gossip(NEWS, "127.0.0.1", liar.port, updates=update("127.0.0.1", 0, 5, 5)),
        gossip(NEWS, "127.0.0.1", liar.port, updates=update("127.0.0.1", 77, 0, 5)),
        gossip(NEWS, "127.0.0.1", liar.port, updates=update("127.0.0.1", 77, 5, 5, state=SUSPECT)),
        gossip(NEWS, "8.8.8.8", 7946),
    ]  # fmt: skip
    with fleet.unharmed(dead=-1, gossip_refused=len(wrong)), Datagrams(fleet, liar.me) as d:
        for payload in wrong:
            d.send(liar.me.datagram(fleet.node_id, payload))
        time.sleep(0.3)


def test_relays_for_whoever_asks_are_few(fleet, liar):
    """A member may have others probe addresses for it: at most 32 at a time, one datagram
    each, and never outside the blocks."""
    with fleet.unharmed(dead=-1):
        before = fleet.victim("stats")["datagrams_out"]
        for n in range(500):
            target = random_id().to_bytes(8, "big") + sized("127.0.0.1", 4000 + n)
            liar.say(RELAY, fleet.port, fleet.node_id, n.to_bytes(4, "big") + target)
        time.sleep(0.1)
        assert fleet.victim("stats")["datagrams_out"] - before < 200
        time.sleep(1)


def test_two_nodes_that_advertise_one_address(tmp_path):
    """M6. The second is not admitted while the first answers there. If gossip names a later
    start on a node's address (a moved address, or a liar), that node stops its part, works
    alone, and says both ids; the application goes on."""
    with Attacked(tmp_path) as fleet:
        second = fleet.add(PEER_LISTEN="127.0.0.2", PEER_PORT=str(fleet.port), PEER_PORT_RANGE="1",
                           PEERS=f"127.0.0.1:{fleet.port_of(fleet.honest)}")  # fmt: skip
        second("start")
        fleet.workers.remove(second)
        time.sleep(2)
        assert fleet.id_of(fleet.victim) == fleet.node_id
        fleet.serves()
        assert second("lookup", "value", "alone")["value"].startswith("alone")
        assert fleet.live(fleet.honest) == 2
        second.end()

        with Rogue(fleet.identity(), fleet.free_port()) as liar:
            until(lambda: liar.join(fleet.port) or fleet.live(fleet.victim) == 3, 10)
            forged = random_id()
            liar.say(NEWS, fleet.port, fleet.node_id, updates=update(
                "127.0.0.1", fleet.port, forged, int(time.time() * 1000) + 1000))  # fmt: skip
            until(lambda: fleet.victim("state") == "conflict", 5)
            ids = f"{forged:016x}", f"{fleet.node_id:016x}"
            until(lambda: all(i in fleet.victim.log.read_text() for i in ids), 5)
            key = "after the conflict"
            for worker in fleet.workers:
                assert worker("lookup", "value", key)["value"].startswith(key)


LOOPBACK = """
import sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from attack_fleet import *
from attacker import *
from workers import until
with Attacked(Path({folder!r}), PEER_LISTEN="0.0.0.0", PEER_ADVERTISE_ADDR="10.9.8.7") as fleet:
    assert all(m["address"].startswith("10.9.8.7:") for m in fleet.honest("members"))
    me = fleet.identity()
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("10.9.8.7", 0))
    with fleet.unharmed(gossip_refused=2, updates_refused=1):
        now = int(time.time() * 1000)
        ghost = update("127.0.0.1", 7000, me.id, now)
        join = gossip(JOIN, "127.0.0.1", 7000, bytes(12), ghost)
        sock.sendto(me.datagram(0, join, pad_to=1300), ("10.9.8.7", fleet.port))
        news = gossip(NEWS, "127.0.0.1", 7000, updates=ghost)
        sock.sendto(me.datagram(fleet.node_id, news), ("10.9.8.7", fleet.port))
        news = gossip(NEWS, "10.9.8.7", sock.getsockname()[1], updates=ghost)
        sock.sendto(me.datagram(fleet.node_id, news), ("10.9.8.7", fleet.port))
        time.sleep(1)
    said = "Refused the loopback address 127.0.0.1:7000 from another host"
    assert said in fleet.victim.log.read_text()
    print("refused")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_loopback_address_from_elsewhere(tmp_path):
    """M2: it would make every node that believes it talk to itself."""
    program = LOOPBACK.format(tests=os.path.dirname(__file__), folder=str(tmp_path))
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c",
         'ip link set lo up && ip link add d0 type veth peer name d1 && ip link set d0 up && '
         'ip link set d1 up && ip addr add 10.9.8.7/24 dev d0 && exec "$0" -c "$1"',
         sys.executable, program],
        env=dict(os.environ), text=True, timeout=90, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.stdout.strip().endswith("refused"), done.stdout
