"""A small HTTP/1.1 client for the load generator.

General clients spend more of the processor on a request than the workers under test do. This one
knows GET, keep-alive and Content-Length, which is all the reader's answers need, and tells apart what
a balancer tells apart: an answer, and a connection that ended before there was one.
"""
from __future__ import annotations

import asyncio
from dataclasses import dataclass


class ConnectionEnded(Exception):
    """Refused, reset or closed before the response was complete."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    first_byte_at: float
    done_at: float


class _Connection(asyncio.Protocol):
    """One request at a time. `answer` is the future of the one in progress."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[Answer] | None = None
        self.buffer = bytearray()
        self.body_at = 0
        self.status = 0
        self.length = 0
        self.headers: dict[str, str] = {}
        self.first_byte_at = 0.0
        self.reusable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.answer is None or self.answer.done():
            self.abort()
            return
        if not self.buffer:
            self.first_byte_at = self.loop.time()
        self.buffer += data
        if not self.body_at:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self.body_at = end + 4
            try:
                self.parse_head(bytes(self.buffer[:end]))
            except (ValueError, KeyError):
                self.abort()
                return
        if len(self.buffer) - self.body_at < self.length:
            return
        body = bytes(self.buffer[self.body_at:])
        self.buffer.clear()
        self.body_at = 0
        self.answer.set_result(
            Answer(self.status, self.headers, body, self.first_byte_at, self.loop.time()))

    def parse_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ", 2)[1])
        self.headers = {name.lower(): value.strip()
                        for name, _, value in (line.partition(":") for line in lines)}
        self.length = int(self.headers["content-length"])
        self.reusable = self.headers.get("connection", "").lower() != "close"

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionEnded(str(error or "closed")))

    def abort(self) -> None:
        self.reusable = False
        if self.transport is not None:
            self.transport.abort()


class Client:
    """Keep-alive connections to one server, as many as there are requests in flight."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._idle: list[_Connection] = []

    async def get(self, path: str, timeout_s: float) -> Answer:
        """Raises ConnectionEnded, or asyncio.TimeoutError when `timeout_s` passed without an answer."""
        return await self.request(f"GET {path} HTTP/1.1\r\nhost: {self.host}\r\n\r\n".encode(),
                                  timeout_s)

    async def post(self, path: str, body: bytes, timeout_s: float) -> Answer:
        head = f"POST {path} HTTP/1.1\r\nhost: {self.host}\r\ncontent-length: {len(body)}\r\n\r\n"
        return await self.request(head.encode() + body, timeout_s)

    async def request(self, request: bytes, timeout_s: float) -> Answer:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        connection = self._take_idle() or await self._dial(timeout_s)
        answer = connection.answer = loop.create_future()
        timer = loop.call_at(deadline, _give_up, answer)
        assert connection.transport is not None
        connection.transport.write(request)
        try:
            got = await answer
        except BaseException:
            # Late or cancelled: what still comes on this connection belongs to nobody.
            connection.abort()
            raise
        finally:
            timer.cancel()
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.transport.close()
        return got

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _dial(self, timeout_s: float) -> _Connection:
        dialling = asyncio.get_running_loop().create_connection(_Connection, self.host, self.port)
        try:
            _, made = await asyncio.wait_for(dialling, timeout_s)
        except asyncio.TimeoutError:
            raise       # an OSError too, since Python 3.11
        except OSError as error:
            raise ConnectionEnded(str(error)) from error
        return made

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()


def _give_up(answer: asyncio.Future[Answer]) -> None:
    if not answer.done():
        answer.set_exception(asyncio.TimeoutError())
