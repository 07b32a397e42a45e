"""The other servers, private to one run: Redis with and without TLS, memcached. Their
certificate is made here, signed by itself."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path


class Missing(Exception):
    """What a row needs is not installed."""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def await_port(port: int, seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise Missing(f"{name} is not installed")
    return found


class Server:
    def __init__(self, command: list[str], port: int) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="peerage-bench-")
        self.port = port
        self.process = subprocess.Popen(
            command, cwd=self.folder.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_port(port)

    @property
    def pid(self) -> int:
        return self.process.pid

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self.folder.cleanup()


class Redis(Server):
    def __init__(self) -> None:
        self.certificates = tempfile.TemporaryDirectory(prefix="peerage-bench-tls-")
        folder = Path(self.certificates.name)
        self.certificate = folder / "cert.pem"
        subprocess.run(
            [program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
             "-keyout", str(folder / "key.pem"), "-out", str(self.certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        port, self.tls_port = free_port(), free_port()
        super().__init__(
            [program("redis-server"), "--bind", "127.0.0.1", "--port", str(port),
             "--tls-port", str(self.tls_port), "--tls-cert-file", str(self.certificate),
             "--tls-key-file", str(folder / "key.pem"), "--tls-ca-cert-file",
             str(self.certificate), "--tls-auth-clients", "no", "--save", "", "--appendonly", "no",
             "--unixsocket", "redis.sock"],
            port,
        )  # fmt: skip
        self.socket = str(Path(self.folder.name) / "redis.sock")

    def _options(self, way: str) -> dict:
        return {
            "TCP": {"host": "127.0.0.1", "port": self.port},
            "TLS": {"host": "127.0.0.1", "port": self.tls_port, "ssl": True,
                    "ssl_ca_certs": str(self.certificate)},
            "Unix": {"unix_socket_path": self.socket},
        }[way]  # fmt: skip

    def client(self, way: str = "TCP"):
        import redis

        return redis.Redis(**self._options(way))

    def async_client(self, way: str = "TCP"):
        import redis.asyncio

        return redis.asyncio.Redis(**self._options(way))

    def close(self) -> None:
        super().close()
        self.certificates.cleanup()


class Memcached(Server):
    def __init__(self) -> None:
        port = free_port()
        user = ["-u", "root"] if Path.home() == Path("/root") else []
        super().__init__(
            [program("memcached"), "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "512",
             "-t", "1", *user], port)  # fmt: skip

    def fill(self, values: dict[str, bytes]) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            for key, value in values.items():
                s.sendall(b"set %s 0 0 %d\r\n" % (key.encode(), len(value)) + value + b"\r\n")
                if s.recv(64) != b"STORED\r\n":
                    raise RuntimeError("memcached stored nothing")


def versions() -> str:
    import redis
    from redis.utils import HIREDIS_AVAILABLE

    server = subprocess.run([program("redis-server"), "--version"], capture_output=True, text=True)
    parser = "hiredis" if HIREDIS_AVAILABLE else "Python"
    return f"redis-py {redis.__version__} ({parser} parser), Redis {server.stdout.split()[2][2:]}"
