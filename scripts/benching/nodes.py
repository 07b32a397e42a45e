"""Nodes: the owner is a process of its own, the asker lives in the measuring one.

Every cluster has a fresh secret and label and binds 127.0.0.1. The asker's cache is so small
that the copies it keeps of what it asked for are gone before it asks again, so nearly every
question travels; how many did is checked. All that production does happens: the seal at both
ends, the copy into the asker's store, its eviction, the expiry check."""

from __future__ import annotations

import json
import os
import random
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KB56 = 56 * 1024


def value_of(key: str, size: int) -> bytes:
    """Bytes that differ from key to key and don't compress."""
    return random.Random(key).randbytes(size)


def base_port() -> int:
    """A port below those Linux hands out, with some free ones behind it."""
    for _ in range(1000):
        base = random.SystemRandom().randrange(10240, 32768 - 64)
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                for port in range(base, base + 24):
                    with socket.socket(socket.AF_INET, kind) as s:
                        s.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise RuntimeError("no free range of ports")


def socket_of(address: str) -> str:
    """The path of a node's Unix socket (docs/PROTOCOL.md)."""
    network = os.stat("/proc/self/ns/net").st_ino
    return f"/tmp/peerage-{os.geteuid()}/{network}-{address}"


def settings(encrypted: bool = False) -> dict[str, str]:
    return {
        "ENABLE_PEERS": "1", "PEER_SECRET": secrets.token_hex(32),
        "PEER_LABEL": "bench-" + secrets.token_hex(4), "PEER_LISTEN": "127.0.0.1",
        "PEER_ADVERTISE_ADDR": "127.0.0.1", "PEER_PORT": str(base_port()),
        "PEER_PORT_RANGE": "24", "PEER_HEIR": "0", "PEER_ENCRYPTION": "1" if encrypted else "0",
    }  # fmt: skip


def made(key: str) -> bytes:
    """A loader that takes no time."""
    return MADE


MADE = value_of("made", 1024)


def registered(cache):
    return cache.cached("{key}", name="made")(made)


class Process:
    """A node in a process of its own, driven by lines of JSON (see main)."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from benching import nodes; nodes.main()"], text=True,
            bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **environment,
                 "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])},
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def __call__(self, do: str, *args):
        self.process.stdin.write(json.dumps([do, *args]) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the node's process has ended")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Pair:
    """An asker here and an owner there, and keys that the owner owns. They talk over a Unix
    socket, as processes of one host do; a second asker here, if it is wanted, over TCP."""

    def __init__(
        self, size: int, count: int, encrypted: bool = False, over_tcp: bool = False
    ) -> None:
        import peerage

        self.environment = settings(encrypted)
        self.size, self.count = size, count
        self.owner = Process({**self.environment, "PEER_CACHE_BYTES": str(512 << 20)})
        try:
            self.address = self.owner("start")
            room = max(65536, size * count // 16)
            self.askers = [
                peerage.Peers.from_env({**self.environment, "PEER_CACHE_BYTES": str(room), **more})
                for more in [{}, {"PEER_UNIX_SOCKETS": "false"}][: 1 + over_tcp]
            ]
            for asker in self.askers:
                asker.start()
            self.peers = self.askers[0]
            self._await_owners(1 + len(self.askers))
            self.cache, *more = [asker.cache("bench", ttl=3600) for asker in self.askers]
            self.cache_tcp = more[0] if more else None
            self.made = registered(self.cache)
            self.keys = self._owned(self.cache.key, count)
            self.owner("fill", self.keys, size)
            self._hits, self._asked = self._owner_hits(), 0
        except BaseException:
            self.owner.close()
            raise

    def _owner_hits(self) -> int:
        return sum(asker.stats()["hits_owner"] for asker in self.askers)

    def _await_owners(self, count: int) -> None:
        until = time.monotonic() + 15
        while time.monotonic() < until:
            if all(sum(m.live and m.owns and not m.warming for m in asker.members()) == count
                   for asker in self.askers):
                return
            time.sleep(0.05)
        raise RuntimeError("the nodes did not find each other")

    def _owned(self, channel, count: int, prefix: str = "key") -> list[str]:
        found, n = [], 0
        while len(found) < count:
            key = f"{prefix}-{n}"
            n += 1
            if self.peers.owner(bytes(channel(key))).address == self.address:
                found.append(key)
        return found

    def unseen(self, count: int, prefix: str) -> list[str]:
        """Keys of the loader's that the owner owns and has not loaded."""
        return self._owned(self.made.key, count, prefix)

    def asked(self, keys: list[str]) -> list[str]:
        """Counts them as questions to come."""
        self._asked += len(keys)
        return keys

    def shuffled(self, count: int, ours: bool = True) -> list[str]:
        """The next keys to ask for, each once before any comes again."""
        keys: list[str] = []
        while len(keys) < count:
            keys += random.sample(self.keys, len(self.keys))
        return self.asked(keys[:count]) if ours else keys[:count]

    def check_travelled(self) -> str:
        """Were they the owner's answers?"""
        hits = self._owner_hits() - self._hits
        share = hits / max(1, self._asked)
        if share < 0.85:
            raise RuntimeError(f"only {share:.0%} of the questions travelled")
        return f"{share:.1%} of the questions travelled"

    def close(self) -> None:
        for asker in self.askers:
            asker.close(0)
        self.owner.close()


def main() -> None:
    import peerage

    peers = peerage.Peers.from_env()
    cache = peers.cache("bench", ttl=3600)
    registered(cache)

    def start() -> str:
        if peers.enabled:
            peers.start()
        return peers.address

    def fill(keys: list[str], size: int) -> int:
        for key in keys:
            cache.set(key, value_of(key, size))
        return len(keys)

    def live() -> int:
        return sum(m.live for m in peers.members())

    commands = {"start": start, "fill": fill, "live": live, "stats": peers.stats}
    for line in sys.stdin:
        do, *args = json.loads(line)
        print(json.dumps(commands[do](*args)), flush=True)
    peers.close(0)
