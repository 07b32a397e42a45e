"""Real worker processes for tests, asked over a line protocol (see peer_worker.py)."""

import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

TESTS = Path(__file__).parent
COMMAND = [sys.executable, "-c", "import peer_worker; peer_worker.main()"]


class Failed(Exception):
    """A question that raised in the worker; `said` is what is known of the error."""

    def __init__(self, said):
        super().__init__(f"{said['error']}: {said['text']}")
        self.said = said


class Worker:
    def __init__(self, env, log, command=COMMAND):
        self.log = log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                command, env={**env, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}, text=True, bufsize=1,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self.lock = threading.Lock()
        self.asked = {0: concurrent.futures.Future()}
        self.last = 0
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.pid = self.asked[0].result(20)

    def read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            future = self.asked[said.pop("id")]
            if "error" in said:
                future.set_exception(Failed(said))
            else:
                future.set_result(said["value"])
        for future in self.asked.values():
            if not future.done():
                future.set_exception(EOFError(f"the worker ended: {self.log.read_text()[-4000:]}"))

    def ask(self, do, *args, **kwargs):
        """A future of the answer."""
        future = concurrent.futures.Future()
        with self.lock:
            self.last += 1
            self.asked[self.last] = future
            line = json.dumps({"id": self.last, "do": do, "args": args, "kwargs": kwargs})
            self.process.stdin.write(line + "\n")
        return future

    def __call__(self, do, *args, **kwargs):
        return self.ask(do, *args, **kwargs).result(30)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass    # what it did not read any more


def until(condition, seconds=15.0, what="it did not come true"):
    """Wait for a condition; its last value."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, what
        time.sleep(0.05)


def joined(workers, seconds=15.0):
    """Wait until each of them sees all of them, past their warm-up."""

    def see():
        for worker in workers:
            members = worker("members")
            owning = [m for m in members if m["live"] and m["owns"] and not m["warming"]]
            if len(owning) != len(workers):
                return False
        return True

    until(see, seconds, "the workers did not find each other")
    for worker in workers:
        worker.address = next(m["address"] for m in worker("members") if m["self"])
    return workers


def unix_path(address):
    """Where a node of this user and network listens for peers of its host."""
    return Path(f"/tmp/peerage-{os.geteuid()}/{os.stat('/proc/self/ns/net').st_ino}-{address}")


def a_key_of(worker, prefix="key"):
    """A channel that this worker owns."""
    mine = next(m["address"] for m in worker("members") if m["self"])
    for i in range(1000):
        if worker("owner", f"{prefix}-{i}") == mine:
            return f"{prefix}-{i}"
    raise AssertionError("owns none of 1000 channels")
