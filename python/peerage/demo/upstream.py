"""The recorded upstream: a real HTTP server that answers for nine channels after a fixed delay.

It keeps the log from which the load test counts. `end` is taken just before the answer is handed to
the kernel: whoever stores the page does so later, so a fetch that starts a TTL after the storing can
never look too early here because this process was off the CPU in between.

`GET /_log` gives the log, `POST /_control` a JSON object with any of `mode` (`ok`, `fail`, `hang`),
`match` (only paths that contain it; empty for all) and `delay_ms`.
"""
from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import asdict, dataclass
from typing import Any

import uvicorn

from . import recorded
from .lifetime import end_with_parent

WORKER_HEADER = "demo-worker"


@dataclass
class Fetch:
    """One request as the upstream saw it. `outcome` is `open`, `answered`, `failed` (told to), or
    `cut`: the asker was gone before it had its answer. Times are CLOCK_MONOTONIC seconds."""

    key: str
    worker: str
    start: float
    end: float | None = None
    outcome: str = "open"
    serial: int = 0


class Upstream:
    """The ASGI application. Raw ASGI, because it must know when the asker hangs up."""

    def __init__(self, delay_ms: float = 150.0) -> None:
        self.delay_ms = delay_ms
        self.mode = "ok"
        self.match = ""
        self.log: list[Fetch] = []
        self.released = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        path = scope["path"]
        if path == "/_log":
            await _respond(send, 200, _json([asdict(f) for f in self.log]))
        elif path == "/_control":
            status, body = self.control(scope["method"], await _body(receive))
            await _respond(send, status, body)
        else:
            await self.serve(scope, receive, send)

    def control(self, method: str, body: bytes) -> tuple[int, bytes]:
        if method == "POST":
            try:
                asked = json.loads(body)
                mode = asked.get("mode", self.mode)
                delay_ms = float(asked.get("delay_ms", self.delay_ms))
                match = str(asked.get("match", self.match))
            except (ValueError, AttributeError, TypeError):
                return 400, _json({"error": "a JSON object with mode, match, delay_ms"})
            if mode not in ("ok", "fail", "hang"):
                return 400, _json({"error": "mode is ok, fail or hang"})
            self.mode, self.match, self.delay_ms = mode, match, delay_ms
            # Those that hang look again: a test that says `ok` expects its answers.
            self.released.set()
            self.released = asyncio.Event()
        return 200, _json({"mode": self.mode, "match": self.match, "delay_ms": self.delay_ms})

    async def serve(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        query = scope["query_string"].decode()
        key = scope["path"] + (f"?{query}" if query else "")
        make = find_page(scope["path"], query)
        if make is None:
            await _respond(send, 404, b"no such channel or post", "text/plain")
            return
        worker = dict(scope["headers"]).get(WORKER_HEADER.encode(), b"").decode()
        fetch = Fetch(key, worker, time.monotonic(), serial=len(self.log) + 1)
        self.log.append(fetch)
        gone = asyncio.ensure_future(_disconnected(receive))
        answer = asyncio.ensure_future(self.wait(key))
        try:
            await asyncio.wait((gone, answer), return_when=asyncio.FIRST_COMPLETED)
            fetch.end = time.monotonic()
            if gone.done():
                fetch.outcome = "cut"
            elif self.tells(key, "fail"):
                fetch.outcome = "failed"
                await _respond(send, 503, b"told to fail", "text/plain")
            else:
                fetch.outcome = "answered"
                await _respond(send, 200, make(fetch.serial, fetch.end), "text/html; charset=utf-8")
        finally:
            if fetch.outcome == "open":
                fetch.end, fetch.outcome = time.monotonic(), "cut"
            gone.cancel()
            answer.cancel()

    def tells(self, key: str, mode: str) -> bool:
        return self.mode == mode and self.match in key

    async def wait(self, key: str) -> None:
        await asyncio.sleep(self.delay_ms / 1000)
        while self.tells(key, "hang"):
            await self.released.wait()


def find_page(path: str, query: str) -> Any:
    """A function (serial, instant) -> bytes for a path, or None where nothing is recorded."""
    parts = path.strip("/").split("/")
    if len(parts) != 2:
        return None
    if parts[0] == "s":
        channel = recorded.CHANNELS.get(parts[1])
        name, _, value = query.partition("=")
        if channel is None or (query and (name != "before" or not _is_number(value))):
            return None
        before = int(value) if query else None
        asked = "page" if before is None else f"before.{before}"
        return lambda serial, at: recorded.page(
            channel, recorded.Stamp(channel.name, asked, serial, at), before).encode()
    channel = recorded.CHANNELS.get(parts[0])
    if channel is None or not _is_number(parts[1]) or not 1 <= int(parts[1]) <= channel.newest:
        return None
    number = int(parts[1])
    return lambda serial, at: recorded.single_post(
        channel, recorded.Stamp(channel.name, f"post.{number}", serial, at), number).encode()


def write_pages() -> None:
    """Writes what is recorded once, so that the first who ask wait no longer than the others."""
    for channel in recorded.CHANNELS.values():
        for path in recorded.requests(channel).values():
            bare, _, query = path.partition("?")
            make = find_page(bare, query)
            assert make is not None
            make(0, 0.0)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Any) -> bytes:
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            return body


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


async def _respond(send: Any, status: int, body: bytes, kind: str = "application/json") -> None:
    await send({"type": "http.response.start", "status": status, "headers": [
        (b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        event = await receive()
        await send({"type": event["type"] + ".complete"})
        if event["type"] == "lifespan.shutdown":
            return


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m peerage.demo.upstream", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--delay-ms", type=float, default=150.0)
    parser.add_argument("--with-parent", action="store_true",
                        help="end when standard input closes")
    args = parser.parse_args()
    if args.with_parent:
        end_with_parent()

    async def serve() -> None:
        write_pages()
        config = uvicorn.Config(Upstream(args.delay_ms), host=args.host, port=args.port,
                                log_level="warning", access_log=False, timeout_keep_alive=75)
        await uvicorn.Server(config).serve()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
