"""Nodes to be attacked: a victim, and an honest node that goes on asking it. `unharmed` is
what every attack has to leave behind: the victim serves, what it holds is back where it was,
nobody was declared dead, and a counter says what was dropped."""

import contextlib
import itertools
import os
import re
import secrets
import socket
import sys

from attacker import AEAD, HMAC, PING, Client, Identity, gossip
from conftest import clean_environment
from ports import Ports
from workers import Worker, a_key_of, joined, until

MODES = {"clear": HMAC, "encrypted": AEAD}
COMMAND = [
    sys.executable, "-c", "import attack_worker, peer_worker; peer_worker.main()"
]  # fmt: skip
# ASan keeps what was freed, so that it can tell who touches it.
SANITIZED = "san" in os.environ.get("LD_PRELOAD", "")  # libasan, libtsan
numbers = itertools.count()


class Attacked:
    """`victim` and `honest`, which know each other; the victim's heir gets no copies, so that
    the honest one's hits are the victim's."""

    def __init__(self, folder, mode="clear", count=2, **changes):
        self.folder, self.mode = folder, MODES[mode]
        self.secret = changes.get("PEER_SECRET", secrets.token_hex(32))
        self.label = "attack-" + secrets.token_hex(8)
        self.reserved = Ports()
        self.changes = changes
        self.workers = []
        for _ in range(count):
            self.add()
        for started in [worker.ask("astart") for worker in self.workers]:
            started.result(20)
        joined(self.workers)
        self.victim, self.honest = self.workers[:2]
        self.port, self.node_id = self.port_of(self.victim), self.id_of(self.victim)
        self.serves()

    def env(self, **changes):
        environment = clean_environment() | {
            "ENABLE_PEERS": "true", "PEER_SECRET": self.secret, "PEER_LABEL": self.label,
            "PEER_PORT": str(self.reserved.base), "PEER_PORT_RANGE": "16",
            "PEER_LISTEN": "127.0.0.1", "PEER_ADVERTISE_ADDR": "127.0.0.1",
            "PEER_ENCRYPTION": "true" if self.mode == AEAD else "false", "PEER_HEIR": "false",
        }  # fmt: skip
        return {k: v for k, v in (environment | self.changes | changes).items() if v is not None}

    def add(self, **changes):
        log = self.folder / f"worker-{len(self.workers)}.log"
        self.workers.append(Worker(self.env(**changes), log, COMMAND))
        return self.workers[-1]

    @staticmethod
    def port_of(worker):
        address = next(m["address"] for m in worker("members") if m["self"])
        return int(address.rsplit(":", 1)[1])

    def id_of(self, worker):
        with Client(self.identity(), self.port_of(worker)) as client:
            return client.peer

    def identity(self, **changes):
        return Identity(**{"secret": self.secret, "label": self.label, "mode": self.mode} | changes)

    def client(self, identity=None, **options):
        return Client(identity or self.identity(), self.port, **options)

    def free_port(self):
        """One of the range that nodes of this test look at, from its end."""
        self.last_free = getattr(self, "last_free", self.reserved.base + 16) - 1
        return self.last_free

    def key(self, worker=None):
        return a_key_of(worker or self.victim, f"key{next(numbers)}")

    def serves(self):
        """An owner's hit from the honest node."""
        key = self.key()
        self.victim("lookup", "value", key)
        got = self.honest("lookup", "value", key)
        tiers = ("owner",) if self.env()["PEER_HEIR"] == "false" else ("owner", "local")
        assert got["tier"] in tiers, got
        assert got["value"] == f"{key} by {self.victim.pid}"

    def live(self, worker):
        return sum(m["live"] for m in worker("members"))

    def memory_mib(self, worker):
        with open(f"/proc/{worker.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) / 1024

    def log_lines(self, worker):
        return worker.log.read_text().count("\n")

    @contextlib.contextmanager
    def unharmed(self, mib=8, dead=0, **counters):
        """`counters`: by how much each must have moved at least. Memory: the process's
        resident set may grow by `mib`, for what Python and malloc keep for themselves, and by
        what the test itself has put into the cache."""
        self.serves()
        # the honest node's own connections may be one or two more
        held = {"connections_in": 2, "flights": 0}
        before, descriptors = self.victim("stats"), self.victim("descriptors")
        memory = self.memory_mib(self.victim)
        yield
        until(lambda: all(self.victim("stats")[n] <= before[n] + more for n, more in held.items()),
              20, "it still holds something")  # fmt: skip
        self.serves()
        after = self.victim("stats")
        for name, least in counters.items():
            assert after[name] - before[name] >= least, (
                name, least, {n: after[n] - v for n, v in before.items()
                              if isinstance(v, (int, float)) and after[n] != v})  # fmt: skip
        assert self.victim("descriptors") <= descriptors + 4
        kept = max(0, after["cache_bytes"] - before["cache_bytes"]) / 2**20
        if not SANITIZED:
            assert self.memory_mib(self.victim) <= memory + 2 * kept + mib
        for worker in self.victim, self.honest:
            assert self.live(worker) == len(self.workers) - dead, worker("members")

    def close(self):
        for worker in self.workers:
            worker.end()
        self.reserved.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Datagrams:
    """A UDP socket that sends to the victim and tells what came back."""

    def __init__(self, fleet, identity=None, source="127.0.0.1"):
        self.fleet, self.me = fleet, identity or fleet.identity()
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((source, 0))
        self.host, self.port = self.sock.getsockname()

    def ping(self, receiver=None, **wrong):
        """A ping's bytes; every node answers one that verifies."""
        payload = gossip(PING, self.host, self.port, bytes(16))
        return self.me.datagram(self.fleet.node_id if receiver is None else receiver, payload,
                                **wrong)  # fmt: skip

    def send(self, data, port=None):
        self.sock.sendto(data, ("127.0.0.1", port or self.fleet.port))

    def answers(self, seconds=0.3):
        """What comes until nothing comes for so long."""
        self.sock.settimeout(seconds)
        got = []
        with contextlib.suppress(TimeoutError):
            while True:
                got.append(self.sock.recv(4096))
        return got

    def answered(self, data, port=None):
        self.send(data, port)
        return bool(self.answers())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()
