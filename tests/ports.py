"""Port ranges for nodes under test, such that nothing else on the machine meets them.

A range lies below 32768, where Linux hands out no ephemeral ports, and is reserved by a
locked file for as long as the process lives: two test runs, of one checkout or of two,
never get the same range. That a port is free is tested by binding it, UDP and TCP.
"""

import contextlib
import fcntl
import os
import random
import socket
import tempfile

FIRST, END, RANGE = 10240, 32768, 32


def bindable(port):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with contextlib.closing(socket.socket(socket.AF_INET, kind)) as sock:
            try:
                sock.bind(("0.0.0.0", port))
            except OSError:
                return False
    return True


class Ports:
    """`base` and the RANGE - 1 ports behind it, until `close()`."""

    def __init__(self):
        folder = os.path.join(tempfile.gettempdir(), f"peerage-ports-{os.getuid()}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        candidates = list(range(FIRST, END, RANGE))
        random.SystemRandom().shuffle(candidates)
        for base in candidates:
            lock = os.open(os.path.join(folder, str(base)), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                continue
            if all(bindable(port) for port in range(base, base + RANGE)):
                self.base, self.count, self._lock = base, RANGE, lock
                return
            os.close(lock)
        raise RuntimeError("no free range of ports")

    def close(self):
        os.close(self._lock)
