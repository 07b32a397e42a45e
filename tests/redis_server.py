"""A redis-server (or valkey-server) of a test's own: started on a free port, killed by its pid,
and asked in a few lines of its protocol, so that what lies in it is seen as it lies there."""

import shutil
import signal
import socket
import subprocess
import time

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")


class RedisServer:
    def __init__(self, port, folder, *arguments):
        self.port, self.folder, self.arguments = port, folder, arguments
        self.process = None
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        with open(self.folder / "redis.log", "ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                 "--dir", str(self.folder), *self.arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, "redis-server does not start"
                time.sleep(0.02)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def __call__(self, *words, password=None):
        """One command's answer; an error raises."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            with connection.makefile("rwb") as stream:
                if password:
                    self._ask(stream, "AUTH", password)
                return self._ask(stream, *words)

    def _ask(self, stream, *words):
        parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        stream.write(b"*%d\r\n" % len(parts))
        for part in parts:
            stream.write(b"$%d\r\n%s\r\n" % (len(part), part))
        stream.flush()
        return self._read(stream)

    def _read(self, stream):
        line = stream.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._read(stream) for _ in range(int(rest))]
        return rest.decode()

    def keys(self, pattern="*"):
        return sorted(self("KEYS", pattern))

    def values(self):
        return {key: self("GET", key) for key in self.keys("*:value:*")}
