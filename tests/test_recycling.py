"""Workers come and go as servers make them: recycled by their number of requests, replaced one
after the other, more and fewer of them. No request fails, and nothing is loaded twice (of 40 keys at most two, where the machine is so
busy that nodes take each other for silent)."""

import collections
import http.client
import os
import signal
import sys
import threading
import time

import pytest
from workers import until

KEYS = 40


class Load:
    """Asks for all keys, again and again, from some threads, until it is stopped."""

    def __init__(self, port, threads=2):
        self.port, self.errors, self.answers, self.over = port, [], 0, threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(threads)]
        for thread in self.threads:
            thread.start()

    def ask(self, i):
        while not self.over.is_set():
            i += 7
            # gunicorn resets connections that a worker has accepted and not read yet when it is
            # told to go; a balancer asks again.
            for attempt in range(3):
                try:
                    self.ask_once(f"/k{i % KEYS}")
                    break
                except OSError as error:
                    if attempt == 2:
                        self.errors.append(repr(error))
            self.answers += 1
            time.sleep(0.02)

    def ask_once(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path, headers={"connection": "close"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status != 200 or body != path.encode() * 500:
            self.errors.append((answer.status, body[:200]))

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def workers_of(master):
    with open(f"/proc/{master.pid}/task/{master.pid}/children") as children:
        return [int(pid) for pid in children.read().split()]


@pytest.fixture
def gunicorn(spawn, peer_env, ports, root, tmp_path):
    def start(kind, application, **more):
        port = ports.base + 30
        loads = tmp_path / f"loads-{kind.rpartition('.')[2]}"
        loads.touch()
        env = peer_env(
            APPLICATION=f"recycled_app:{application}", WORKER_CLASS=kind, WEB_CONCURRENCY="3",
            WEB_LISTEN=f"127.0.0.1:{port}", TEST_LOADS=loads, PEER_TIMEOUT="1",
            PYTHONPATH=os.pathsep.join([str(root / "tests"), *filter(None, sys.path)]), **more,
        )  # fmt: skip
        master = spawn([sys.executable, "-m", "gunicorn", "-c", root / "deploy/gunicorn.conf.py"],
                       env=env, cwd=tmp_path)
        until(lambda: b"Peer layer on" in master.log.read_bytes() or answers(port), 30,
              "gunicorn did not start")
        return master, port, loads

    return start


def answers(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/k0")
        return connection.getresponse().status == 200
    except OSError:
        return False


@pytest.mark.parametrize("kind,application", [
    ("gthread", "wsgi"), ("uvicorn_worker.UvicornWorker", "asgi"),
])  # fmt: skip
def test_workers_that_come_and_go_under_load(gunicorn, kind, application):
    pytest.importorskip("gunicorn")
    if "." in kind:
        pytest.importorskip("uvicorn_worker")
    master, port, loads = gunicorn(kind, application, MAX_REQUESTS="200")
    load = Load(port)
    try:
        # While the first ones still find each other a key may be loaded by two of them.
        time.sleep(4)
        settled = len(loads.read_text().splitlines())
        # `max_requests`: each worker is replaced some times
        until(lambda: load.answers > 1500, 60)
        # a rolling restart: one after the other, each as soon as its successor works
        for pid in workers_of(master):
            if pid in workers_of(master):
                os.kill(pid, signal.SIGTERM)
            time.sleep(2)
        # more workers, and fewer
        for _ in range(2):
            os.kill(master.pid, signal.SIGTTIN)
        time.sleep(3)
        for _ in range(3):
            os.kill(master.pid, signal.SIGTTOU)
            time.sleep(1)
    finally:
        load.stop()
    assert not load.errors, load.errors[:5]
    log = master.log.read_text()
    assert log.count("Peer layer on") > 8, "workers were replaced"
    assert " is down" not in log and " left" in log, "everyone who went had said so"
    counts = collections.Counter(line.split()[0] for line in loads.read_text().splitlines())
    assert len(counts) == KEYS
    assert counts.total() - settled <= KEYS // 20, counts.most_common(5)
    os.kill(master.pid, signal.SIGTERM)
    assert master.wait(20) == 0


def test_celery_tells_the_node_when_its_process_goes():
    signals = pytest.importorskip("celery.signals")
    import peerage
    from peerage.integrations import celery

    celery.connect()
    peers = peerage.Peers()
    peers.start()
    signals.worker_process_shutdown.send(sender=None, pid=os.getpid(), exitcode=0)
    assert peers.state == "closed"
