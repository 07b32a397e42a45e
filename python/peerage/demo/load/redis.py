"""A Redis of its own for one run, as far away as asked: `--delay-ms` is added to each round trip.

    python -m peerage.demo.load.redis --port 20000 --delay-ms 90

With a delay the server listens on a Unix socket only, and this process stands before it as a
proxy that keeps every byte back for half of the delay in each direction, pipelining included.
Ends with the one that started it, and redis-server with this.
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ..lifetime import end_with_parent

CHUNK = 1 << 16


def end_with_us() -> None:
    """In the child, before exec: the kernel ends it when this process is gone (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def start_server(port: int, socket_path: Path | None, folder: str) -> subprocess.Popen[bytes]:
    command = ["redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1",
               "--port", "0" if socket_path else str(port), "--dir", folder]
    if socket_path:
        command += ["--unixsocket", str(socket_path)]
    return subprocess.Popen(command, preexec_fn=end_with_us)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    kept: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def give() -> None:
        while True:
            due, piece = await kept.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                sink.close()
                return
            sink.write(piece)
            await sink.drain()

    giving = asyncio.ensure_future(give())
    try:
        while True:
            piece = await source.read(CHUNK)
            kept.put_nowait((loop.time() + delay_s, piece))
            if not piece:
                break
        await giving
    finally:
        giving.cancel()


async def proxy(port: int, socket_path: Path, delay_s: float) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(str(socket_path))
        except OSError:
            writer.close()
            return
        pumps = [asyncio.ensure_future(pump(reader, up_writer, delay_s / 2)),
                 asyncio.ensure_future(pump(up_reader, writer, delay_s / 2))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for one in pumps:
            one.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        writer.close()
        up_writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        await server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--with-parent", action="store_true", help="end at the end of standard input")
    args = parser.parse_args()
    if args.with_parent:
        end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="peerage-redis-") as folder:
        socket_path = Path(folder, "redis.sock") if args.delay_ms else None
        try:
            server = start_server(args.port, socket_path, folder)
        except FileNotFoundError:
            print("redis-server is missing (Debian package redis-server)", flush=True)
            return 1
        try:
            if socket_path:
                asyncio.run(proxy(args.port, socket_path, args.delay_ms / 1000))
            return server.wait()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
