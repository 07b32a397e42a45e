"""Rows of an owner's hit: one round trip to another process on this host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from . import rivals
from .measure import Row, Size, cpu_us, row_of, time_awaits, time_calls
from .nodes import KB56, Pair, socket_of, value_of

NATIVE = Path(__file__).resolve().parents[2] / "native"
SIZES = {"1k": 1024, "56k": KB56}


def _count(size: Size, label: str) -> int:
    if size.quick:
        return 64 if label == "56k" else 1200
    return 400 if label == "56k" else 4000


def _redis(keys: list[str], bytes_each: int) -> rivals.Redis:
    server = rivals.Redis()
    client = server.client()
    for key in keys:
        client.set(key, value_of(key, bytes_each), ex=3600)
    client.close()
    return server


@contextlib.contextmanager
def _both(size: Size, label: str, encrypted: bool = False):
    """A pair of nodes and a Redis with the same entries; every value hashed once, as one
    that anybody has asked for before is."""
    with contextlib.ExitStack() as stack:
        pair = Pair(SIZES[label], _count(size, label), encrypted, over_tcp=True)
        stack.callback(pair.close)
        server = _redis(pair.keys, pair.size)
        stack.callback(server.close)
        for key in pair.asked(pair.keys):
            assert pair.cache.get(key) == value_of(key, pair.size)
        for key in pair.asked(pair.keys):
            assert pair.cache_tcp.get(key) == value_of(key, pair.size)
        yield pair, server


def _native(name: str) -> str:
    """One of native/bench, compiled as an installation's library is."""
    build = os.environ.get("PEERAGE_BUILD") or str(NATIVE / "build")
    target = str(Path(build).resolve() / "bench" / name)
    subprocess.run(["make", "-s", "-C", str(NATIVE), f"BUILD={Path(build).resolve()}", target],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    return target


@contextlib.contextmanager
def _bare(value_bytes: int):
    """A server that does nothing but read and write: the kernel's share."""
    server = subprocess.Popen([_native("bench_bare"), str(value_bytes)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        yield server.pid, int(server.stdout.readline())
    finally:
        server.stdin.close()
        server.wait(10)
        server.stdout.close()


def some(count: int) -> int:
    if not count:
        raise EOFError("the bare server has gone")
    return count


BARE = "peerage bare"   # and its port: what the bare server's Unix socket is called


def connected(port: int) -> socket.socket:
    near = socket.socket(socket.AF_UNIX)
    near.connect(f"\0{BARE} {port}")
    return near


class PingPong:
    """What the machine and the event loop take when nobody does anything: as many bytes as a
    request and an answer of Redis' have, unprotected, from a bare server, into one buffer, the
    way ours go."""

    REQUEST = b"*2\r\n$3\r\nGET\r\n$10\r\nkey-000000\r\n"

    def __init__(self, port: int, value_bytes: int) -> None:
        self.socket = connected(port)
        self.answer = memoryview(bytearray(len(f"${value_bytes}\r\n") + value_bytes + 2))

    def get(self, key: str) -> None:
        self.socket.sendall(self.REQUEST)
        have = 0
        while have < len(self.answer):
            have += some(self.socket.recv_into(self.answer[have:]))

    async def aget(self, key: str) -> None:
        loop = asyncio.get_running_loop()
        self.socket.setblocking(False)
        await loop.sock_sendall(self.socket, self.REQUEST)
        have = 0
        while have < len(self.answer):
            have += some(await loop.sock_recv_into(self.socket, self.answer[have:]))


class BareProtocol(asyncio.Protocol):
    """The same way and bytes over an asyncio transport, waited for with one future: what a client takes
    at least that is written as asyncio's own documentation would have it."""

    def __init__(self, value_bytes: int) -> None:
        self.missing = self.answer_bytes = len(f"${value_bytes}\r\n") + value_bytes + 2

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if self.missing <= 0:
            self.missing = self.answer_bytes
            self.answered.set_result(data)

    async def aget(self, key: str) -> bytes:
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(PingPong.REQUEST)
        return await self.answered


def _rounds_of(pair: Pair, asked: int) -> tuple[Callable[[], list[str]], Callable[[], list[str]]]:
    """What gives the keys of a round of ours, and of another's, which are no questions."""
    return lambda: pair.shuffled(asked), lambda: pair.shuffled(asked, ours=False)


def owner_hit_sync(size: Size, label: str, encrypted: bool = False) -> Iterator[Row]:
    asked = size.calls(1000, 40)
    with _both(size, label, encrypted) as (pair, server), _bare(pair.size) as (_, port):
        keys, theirs = _rounds_of(pair, asked)
        clients = {way: server.client(way) for way in ("TLS", "TCP", "Unix")}
        bare = PingPong(port, pair.size)

        timed = time_calls({
            "ours": (pair.cache.get, keys),
            "ours TCP": (pair.cache_tcp.get, keys),
            "redis-py TLS": (clients["TLS"].get, theirs),
            "redis-py": (clients["TCP"].get, theirs),
            "redis-py Unix": (clients["Unix"].get, theirs),
            "ping-pong": (bare.get, theirs),
        }, size)  # fmt: skip
        bare.socket.close()
        note = f"{pair.check_travelled()}; {rivals.versions()}"
    name = f"owner_hit_sync_{label}" + ("_encrypted" if encrypted else "")
    goal = 0.55 if encrypted else {"56k": 0.6, "1k": 0.7}[label]
    yield row_of(name, "us", timed, "redis-py TLS", goal, note)
    if not encrypted:
        goal = {"56k": 1.3, "1k": 0.8}[label]
        yield row_of(name + "_plain", "us", timed, "redis-py", goal, "the same run")


def owner_hit_async(size: Size, label: str) -> Iterator[Row]:
    """Under asyncio, and again under uvloop."""
    async def run(pair: Pair, server: rivals.Redis, port: int) -> dict[str, list[float]]:
        keys, theirs = _rounds_of(pair, size.calls(700, 40))
        clients = {way: server.async_client(way) for way in ("TLS", "TCP", "Unix")}
        bare = PingPong(port, pair.size)
        transport, protocol = await asyncio.get_running_loop().create_unix_connection(
            lambda: BareProtocol(pair.size), sock=connected(port))
        timed = await time_awaits({
            "ours": (pair.cache.aget, keys),
            "ours TCP": (pair.cache_tcp.aget, keys),
            "redis.asyncio TLS": (clients["TLS"].get, theirs),
            "redis.asyncio": (clients["TCP"].get, theirs),
            "redis.asyncio Unix": (clients["Unix"].get, theirs),
            "ping-pong": (bare.aget, theirs),
            "Protocol": (protocol.aget, theirs),
        }, size)  # fmt: skip
        transport.close()
        bare.socket.close()
        for client in clients.values():
            await client.aclose()
        return timed

    with _both(size, label) as (pair, server), _bare(pair.size) as (_, port):
        runs = {"": asyncio.run(run(pair, server, port))}
        try:
            import uvloop
        except ModuleNotFoundError:
            pass
        else:
            runs["_uvloop"] = uvloop.run(run(pair, server, port))
        note = f"{pair.check_travelled()}; {rivals.versions()}"
    for under, timed in runs.items():
        name = f"owner_hit_async_{label}"
        yield row_of(name + under, "us", timed, "redis.asyncio TLS", 0.5, note)
        goal = {"56k": 1.0, "1k": 0.7}[label]
        yield row_of(f"{name}_plain{under}", "us", timed, "redis.asyncio", goal, "the same run")


# -- the C side -----------------------------------------------------------------------------


def owner_floor(size: Size) -> Iterator[Row]:
    """From C: our hit beside a ping-pong of as many bytes that hashes them once; both also the other
    way, for ours looks before it sleeps and the ping-pong only sleeps."""
    program = _native("bench_ask")
    shows = [
        (["56000", "0", "sync"], {"ours": "owner_hit_sync_56k"}),
        (["56000", "0", "asleep"], {"ours asleep": "owner_hit_asleep_56k"}),
        (["floor"], {"ping-pong": "floor_56k", "ping-pong looking": "floor_56k_looking"}),
    ]
    timed: dict[str, list[float]] = {who: [] for _, lines in shows for who in lines}
    tails: dict[str, list[float]] = {who: [] for who in timed}
    for _ in range(1 if size.quick else 5):
        for arguments, lines in shows:
            out = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=True)
            for who, line in lines.items():
                found = re.search(line + r"\s+median\s+([\d.]+) us\s+p99\s+([\d.]+)", out.stdout)
                timed[who].append(float(found[1]))
                tails[who].append(float(found[2]))
    row = row_of("owner_floor_56k", "us", timed, "ping-pong", 1.25)
    row.p99 = {who: sorted(values)[len(values) // 2] for who, values in tails.items()}
    yield row


def owner_cpu(size: Size, label: str, deep: int = 1) -> Iterator[Row]:
    """What a hit costs the one process that answers it, asked by one and the same client
    over 50 connections."""
    program = _native("bench_flood")
    hits = size.calls({"1k": 60000, "56k": 15000}[label] * (4 if deep > 1 else 1), 2000)
    with _both(size, label) as (pair, server), contextlib.ExitStack() as stack:
        bare_pid, bare_port = stack.enter_context(_bare(pair.size))
        memcached = rivals.Memcached()
        stack.callback(memcached.close)
        memcached.fill({key: value_of(key, pair.size) for key in pair.keys})
        canonical = [bytes(pair.cache.key(key)).decode() for key in pair.keys]
        secret = pair.environment["PEER_SECRET"], pair.environment["PEER_LABEL"]
        targets = {
            "ours": (pair.owner.pid, ["peerage", socket_of(pair.address), *secret]),
            "ours TCP": (pair.owner.pid, ["peerage", pair.address, *secret]),
            "redis": (server.pid, ["redis", f"127.0.0.1:{server.port}"]),
            "redis Unix": (server.pid, ["redis", server.socket]),
            "memcached": (memcached.pid, ["memcached", f"127.0.0.1:{memcached.port}"]),
            "bare": (bare_pid, ["redis", f"@{BARE} {bare_port}"]),
            "bare TCP": (bare_pid, ["redis", f"127.0.0.1:{bare_port}"]),
        }  # fmt: skip
        spent: dict[str, list[float]] = {who: [] for who in targets}
        rate: dict[str, list[float]] = {who: [] for who in targets}
        for turn in range(size.rounds):
            for who, (pid, arguments) in targets.items():
                before = cpu_us(pid)
                out = subprocess.run(
                    [program, str(hits), "50", str(deep), str(pair.size), *arguments], text=True,
                    input="\n".join(canonical if "peerage" in arguments else pair.keys), stdout=subprocess.PIPE, check=True,
                )  # fmt: skip
                said = json.loads(out.stdout)
                if turn or size.quick:
                    spent[who].append((cpu_us(pid) - before) / said["hits"])
                    rate[who].append(said["hits_per_s"])
    note = "requests/s: " + ", ".join(
        f"{who} {statistics.median(values):,.0f}" for who, values in rate.items()
    ) + "; the client checks every head, and one value in 16"  # fmt: skip
    name = f"owner_cpu_{label}" + ("_pipelined" if deep > 1 else "")
    goal = 1.3 if deep > 1 else {"1k": 0.8, "56k": 1.0}[label]
    yield row_of(name, "us CPU", spent, "redis", goal, note)


def grow_owner(size: Size) -> Iterator[Row]:
    """From C: who owns a channel, among ever more members; asked for the first time, and again."""
    allowed = {"new": 2.0, "remembered": 0.1}
    out = subprocess.run([_native("bench_owner")], stdout=subprocess.PIPE, text=True, check=True)
    for found in re.finditer(r"among +(\d+) members +new +(\d+) ns +remembered +(\d+) ns", out.stdout):
        for which, ns in zip(("new", "remembered"), found.groups()[1:], strict=True):
            name = f"grow_owner_{found[1]}" + ("_remembered" if which == "remembered" else "")
            yield Row(name, "us", int(ns) / 1000, {"allowed": allowed[which]}, "allowed", 1.0,
                      note="the name's hash among it")  # fmt: skip
