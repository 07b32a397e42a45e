"""Forks (P1, P2): the child forgets what it inherited and becomes a node of its own when it
is used; the parent keeps serving."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

from workers import a_key_of, until

import peerage


def test_a_fork_after_import_makes_two_nodes(worker):
    """Nothing had started when the process forked, as with a preloading server."""
    parent = worker()
    child = parent("fork", "value", "k")
    assert child.get("error") is None and child["status"] == 0, child
    assert child["state_before"] == "new"
    assert child["hit"]["value"] == f"k by {child['pid']}" and child["address"]
    parent("start")
    assert parent("lookup", "value", "k")["value"] == f"k by {parent.pid}"


def test_a_fork_after_start_makes_a_node_of_its_own(fleet):
    parent, other = fleet(2)
    mine = next(m["address"] for m in parent("members") if m["self"])
    key = a_key_of(other)
    other("lookup", "value", key)
    held = parent("descriptors")
    child = parent("fork", "value", key)
    assert child.get("error") is None and child["status"] == 0, child
    assert child["state_before"] == "new", "the inherited node is forgotten"
    assert child["address"] not in ("", mine)
    assert child["hit"]["value"] == f"{key} by {other.pid}"
    assert child["hit"]["tier"] in ("owner", "heir")

    assert parent("lookup", "value", key)["tier"] in ("owner", "local")
    assert parent("alookup", "avalue", a_key_of(other, "later"))["tier"] == "load"
    assert other("lookup", "value", a_key_of(parent, "back"))["value"].endswith(str(parent.pid))
    assert parent("descriptors") <= held + 4
    assert next(m["address"] for m in parent("members") if m["self"]) == mine


def test_a_node_that_is_killed_while_its_child_lives_refuses_connections(fleet, peer_env, tmp_path):
    """The child has closed what it inherited, so the port is nobody's at once."""
    (other,) = fleet(1)
    program = (
        "import os, sys, time, peer_worker as w\n"
        "w.start()\n"
        "address = w.peers.address\n"
        "if os.fork() == 0:\n"
        "    print(address, flush=True)\n"     # the fork's handlers have run
        "    time.sleep(60)\n"
        "    os._exit(0)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], text=True, stdout=subprocess.PIPE, start_new_session=True,
        env={**peer_env(), "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])},
    )  # fmt: skip
    try:
        address = process.stdout.readline().strip()
        until(lambda: address in [m["address"] for m in other("members") if m["live"]])
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        host, port = address.split(":")
        with socket.socket() as sock:
            sock.settimeout(2)
            assert sock.connect_ex((host, int(port))) != 0, "the child keeps the port open"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


def test_a_child_that_does_not_use_the_layer_ends_without_a_trace(fleet):
    (parent,) = fleet(1)
    for _ in range(3):
        child = parent("fork_idle")
        assert child == 0
    assert parent("lookup", "value", "k")["value"] == f"k by {parent.pid}"


def test_a_fork_with_the_layer_off():
    peers = peerage.Peers()
    cache = peers.cache("c", ttl=60)
    value = bytes(10_000)
    cache.set("k", value)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            # the store was the parent's; the child's own begins empty
            assert cache.get("k") is None
            assert cache.get_or_load("k", lambda: "child's") == "child's"
            peers.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert cache.get("k") is value


def test_a_fork_while_threads_are_asking():
    """No lock that another thread held is waited for in the child."""
    peers = peerage.Peers()
    cache = peers.cache("c", ttl=60)
    stop = threading.Event()

    def busy(n):
        i = 0
        while not stop.is_set():
            i += 1
            cache.get_or_load(f"{n}-{i % 50}", lambda: bytes(5000))
            cache.delete(f"{n}-{i % 50}")

    threads = [threading.Thread(target=busy, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    assert cache.get_or_load("mine", lambda: 1) == 1
                    status = 0
                finally:
                    os._exit(status)
            end = time.monotonic() + 10
            while True:
                done, how = os.waitpid(pid, os.WNOHANG)
                if done:
                    break
                if time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    raise AssertionError("the child hangs")
                time.sleep(0.01)
            assert os.waitstatus_to_exitcode(how) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
