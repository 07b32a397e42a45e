"""The processes of one run: the recorded upstream and the workers, on loopback, on ports of their own.

Every run has a fresh secret and label and a block of free ports below the ephemeral range, so two runs
on one machine never meet. Whatever ends this process ends the others: `close()` in the ordinary way,
and the pipe on their standard input where there was no time for it (`lifetime`).
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..upstream import Fetch
from .client import Answer, Client, ConnectionEnded

START_S = 40.0
END_S = 8.0
_FOREIGN = ("PEER", "REDIS", "DEMO_", "ENABLE_PEERS")


class FleetError(Exception):
    """Something of the fleet did not start, or ended by itself: one line a person can act on."""


@dataclass(frozen=True)
class Settings:
    nodes: int
    coordination: str = "peers"
    encryption: bool = False
    ttl_s: float = 10.0
    upstream_delay_ms: float = 150.0
    redis_delay_ms: float = 0.0


class Worker:
    """One process that serves HTTP. `up` is a balancer's view: cleared when a request met a dead
    end and the process is gone or going, never set again (a replacement is a new Worker)."""

    def __init__(self, name: str, command: list[str], env: Mapping[str, str], port: int,
                 log: Path) -> None:
        self.name, self.port, self.log = name, port, log
        self.client = Client("127.0.0.1", port)
        self.up = False
        self.ending = False
        with log.open("wb") as out:
            # Of its own session: Ctrl-C is ours to handle, and the order of ending too.
            self.process = subprocess.Popen(command, env=dict(env), stdin=subprocess.PIPE, stdout=out,
                                            stderr=subprocess.STDOUT, start_new_session=True)

    @property
    def is_gone(self) -> bool:
        return self.process.poll() is not None

    def last_words(self) -> str:
        """The last line it wrote that says why, so not the server's own good-bye after a traceback."""
        lines = [line.strip() for line in self.log.read_text("utf-8", "replace").splitlines()]
        telling = [line for line in lines if line and not line.endswith("startup failed. Exiting.")]
        return telling[-1] if telling else "it said nothing"

    def signal(self, number: int) -> None:
        self.ending = True
        if not self.is_gone:
            self.process.send_signal(number)

    async def ended(self) -> None:
        while not self.is_gone:
            await asyncio.sleep(0.02)

    def release(self) -> None:
        self.client.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


class Fleet:
    """Use as an async context manager; leaves no process behind."""

    def __init__(self, settings: Settings, extra_slots: int = 0, logs: Path | None = None) -> None:
        self.settings = settings
        slots = settings.nodes + extra_slots
        # A replacement may look for its port while the one it replaces still closes, hence the spare.
        peer_ports = max(16, slots + 4)
        base = free_ports(2 + slots + peer_ports)
        self.upstream_port = base
        self.redis_port = base + 1
        self.web_port = base + 2
        self.workers: list[Worker] = []
        self.killed_at: dict[str, float] = {}
        self.events: list[tuple[float, str, str]] = []      # when, what, which worker
        self._past: list[Worker] = []
        self._upstream: Worker | None = None
        self._redis: Worker | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="peerage-load-")
        self.logs = logs if logs is not None else Path(self._folder.name)
        self.logs.mkdir(parents=True, exist_ok=True)
        own = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        self._env = own | {
            "PYTHONUNBUFFERED": "1",
            "DEMO_UPSTREAM": f"http://127.0.0.1:{base}",
            "DEMO_TTL": str(settings.ttl_s),
            "ENABLE_PEERS": "true" if settings.coordination == "peers" else "false",
            "PEER_SECRET": secrets.token_hex(32),
            "PEER_LABEL": f"load-{secrets.token_hex(4)}",
            "PEER_PORT": str(base + 2 + slots),
            "PEER_PORT_RANGE": str(peer_ports),
            "PEER_LISTEN": "127.0.0.1",
            "PEER_ADVERTISE_ADDR": "127.0.0.1",
            "PEER_ENCRYPTION": "true" if settings.encryption else "false",
        }
        if settings.coordination == "redis":
            self._env["REDIS_URL"] = f"redis://127.0.0.1:{self.redis_port}/0"

    async def __aenter__(self) -> Fleet:
        try:
            self._upstream = self._spawn("upstream", "peerage.demo.upstream", self.upstream_port,
                                         "--delay-ms", str(self.settings.upstream_delay_ms))
            if self.settings.coordination == "redis":
                self._redis = self._spawn("redis", "peerage.demo.load.redis", self.redis_port,
                                          "--delay-ms", str(self.settings.redis_delay_ms))
                await self._listening(self._redis)
            self.workers = [self._start(slot, 0) for slot in range(self.settings.nodes)]
            await self._answering(self._upstream, "/_control")
            await asyncio.gather(*(self._ready(w) for w in self.workers))
            await self._see_each_other()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def up(self) -> list[Worker]:
        return [w for w in self.workers if w.up]

    def check(self) -> None:
        """Raises if a process ended that nobody ended."""
        for each in [*self.workers, *(w for w in (self._upstream, self._redis) if w)]:
            if each.is_gone and not each.ending:
                raise FleetError(f"{each.name} ended by itself ({each.process.returncode}): "
                                 f"{each.last_words()}")

    async def kill(self, worker: Worker) -> None:
        """SIGKILL, and another one in its place: same port, new name, up as soon as it is ready."""
        # Taken before the signal: the upstream sees the connection end after it.
        self.killed_at[worker.name] = time.monotonic()
        await self._replace(worker, signal.SIGKILL)

    async def recycle(self, worker: Worker) -> None:
        """SIGTERM, as a server that limits its workers' requests does, and another in its place."""
        await self._replace(worker, signal.SIGTERM)

    async def join(self) -> None:
        worker = self._start(len(self.workers), 0)
        self.workers.append(worker)
        await self._ready(worker)

    async def log(self) -> list[Fetch]:
        """The upstream's log, once nothing in it is open any more (or 3 s have passed)."""
        assert self._upstream is not None
        deadline = time.monotonic() + 3
        while True:
            answer = await self._upstream.client.get("/_log", 5)
            log = [Fetch(**entry) for entry in json.loads(answer.body)]
            if time.monotonic() > deadline or all(f.outcome != "open" for f in log):
                return log
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """Ends everything that was started, politely at first."""
        workers = [*self._past, *self.workers]
        with _uninterrupted():
            _end(workers)
            _end([w for w in (self._upstream, self._redis) if w])
            self._past, self.workers, self._upstream, self._redis = [], [], None, None
            self._folder.cleanup()

    async def _replace(self, worker: Worker, number: int) -> None:
        slot = self.workers.index(worker)
        self._happened(signal.Signals(number).name, worker)
        worker.signal(number)
        await worker.ended()
        self._happened("ended", worker)
        worker.up = False
        worker.release()
        self._past.append(worker)
        slot_name, _, generation = worker.name.partition(".")
        self.workers[slot] = self._start(slot, int(generation) + 1)
        await self._ready(self.workers[slot])

    def _start(self, slot: int, generation: int) -> Worker:
        return self._spawn(f"w{slot}.{generation}", "peerage.demo", self.web_port + slot,
                           "--log-level", "warning")

    def _spawn(self, name: str, module: str, port: int, *arguments: str) -> Worker:
        command = [sys.executable, "-m", module, "--port", str(port), "--with-parent", *arguments]
        return Worker(name, command, self._env | {"DEMO_WORKER": name}, port,
                      self.logs / f"{name}.log")

    async def _ready(self, worker: Worker) -> None:
        await self._answering(worker, "/readyz")
        worker.up = True
        self._happened("up", worker)

    def _happened(self, what: str, worker: Worker) -> None:
        """On the clock of the upstream's log."""
        self.events.append((time.monotonic(), what, worker.name))

    async def _answering(self, worker: Worker, path: str) -> Answer:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if worker.is_gone:
                raise FleetError(f"{worker.name} did not start: {worker.last_words()}")
            with contextlib.suppress(ConnectionEnded, asyncio.TimeoutError):
                answer = await worker.client.get(path, 2)
                if answer.status == 200:
                    return answer
            await asyncio.sleep(0.05)
        raise FleetError(f"{worker.name} was not ready within {START_S:.0f} s: {worker.last_words()}")

    async def _listening(self, worker: Worker) -> None:
        """Until it answers a Redis PING."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if worker.is_gone:
                raise FleetError(f"{worker.name} did not start: {worker.last_words()}")
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
                try:
                    writer.write(b"PING\r\n")
                    if await asyncio.wait_for(reader.read(5), 2) == b"+PONG":
                        return
                finally:
                    writer.close()
            await asyncio.sleep(0.05)
        raise FleetError(f"{worker.name} was not ready within {START_S:.0f} s: {worker.last_words()}")

    async def _see_each_other(self) -> None:
        if self.settings.coordination != "peers":
            return
        deadline = time.monotonic() + START_S
        seen: list[Any] = []
        while time.monotonic() < deadline:
            self.check()
            answers = [await self._answering(w, "/readyz") for w in self.workers]
            seen = [json.loads(a.body) for a in answers]
            if all(s["members"] == self.settings.nodes and s["settled"] and not s["warming"]
                   for s in seen):
                return
            await asyncio.sleep(0.1)
        counts = ", ".join(f"{s['worker']} sees {s['members']}, {s['warming']} warming ({s['state']})"
                           for s in seen)
        raise FleetError(f"the workers did not all see {self.settings.nodes} members "
                         f"within {START_S:.0f} s: {counts}")


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that are free for TCP and UDP on loopback."""
    dice = random.SystemRandom()
    for _ in range(200):
        base = dice.randrange(12000, 32000 - count)
        if all(_is_free(port) for port in range(base, base + count)):
            return base
    raise FleetError(f"found no {count} free ports in a row between 12000 and 32000 on 127.0.0.1")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def _end(workers: list[Worker]) -> None:
    for worker in workers:
        worker.signal(signal.SIGTERM)
    deadline = time.monotonic() + END_S
    for worker in workers:
        worker.client.close()
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        worker.release()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not leave half of the fleet running; it takes seconds at most."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:      # not the main thread: no signal reaches us here
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
