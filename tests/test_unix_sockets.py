"""Peers of one host and user talk over Unix sockets (W9), and over TCP wherever that can't be."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time

import pytest
from attack_fleet import Attacked
from attacker import HELLO
from workers import Worker, a_key_of, joined, unix_path


def listens(address):
    """Does anybody, under a node's name?"""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(str(unix_path(address)))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True


def connections(worker):
    """Of a process: how many of its connected sockets are TCP, how many are Unix and were
    accepted."""
    inodes = set()
    for fd in os.scandir(f"/proc/{worker.pid}/fd"):
        found = re.match(r"socket:\[(\d+)\]", os.readlink(fd.path))
        if found:
            inodes.add(found[1])
    with open("/proc/net/tcp") as lines:
        tcp = [line.split() for line in lines][1:]
    with open("/proc/net/unix") as lines:
        unix = [line.rstrip("\n").split(maxsplit=7) for line in lines][1:]
    established, listening = "01", "00010000"
    return (
        sum(f[9] in inodes and f[3] == established for f in tcp),
        sum(f[6] in inodes and f[3] != listening and f[-1].startswith(str(unix_path(""))) for f in unix),
    )


def ask(asker, owner, prefix="key"):
    key = a_key_of(owner, prefix)
    owner("lookup", "value", key)
    got = asker("lookup", "value", key)
    assert got["value"] == f"{key} by {owner.pid}"
    return got["tier"]


def over_unix(worker):
    return worker("stats")["dials_unix"]


def test_peers_of_one_host_use_no_tcp(fleet):
    one, two = fleet(2, PEER_HEIR="false")
    assert ask(one, two) == "owner" and ask(two, one) == "owner"
    assert over_unix(one) and over_unix(two)
    for worker in (one, two):
        assert worker("stats")["dials_failed"] == 0
        tcp, unix = connections(worker)
        assert unix and not tcp, "the joins' connections were not kept"


@pytest.mark.parametrize(
    "changes, looks",
    [({}, True), ({"PEER_SPIN_US": "0"}, False), ({"PEER_UNIX_SOCKETS": "false"}, False)],
)
def test_threads_look_before_they_sleep(fleet, changes, looks):
    """W10: only for a peer of the host, and not where it is turned off."""
    asker, owner = fleet(2, PEER_HEIR="false", **changes)
    for n in range(20):
        assert ask(asker, owner, f"key-{n}") == "owner"
    stats = asker("stats")
    assert (stats["spins"] > 0) is looks
    assert stats["spins_in_vain"] <= stats["spins"]


@pytest.mark.parametrize("who", ["asker", "owner", "both"])
def test_tcp_where_one_of_them_does_without(fleet, worker, who):
    off = {"PEER_HEIR": "false", "PEER_UNIX_SOCKETS": "false"}
    on = {"PEER_HEIR": "false"}
    asker = worker(**(on if who == "owner" else off))
    owner = worker(**(on if who == "asker" else off))
    for one in (asker, owner):
        one("astart")
    joined([asker, owner])
    assert ask(asker, owner) == "owner"
    assert over_unix(asker) == 0
    assert connections(asker)[0] and not connections(asker)[1]
    assert listens(owner.address) is (who == "asker")


def two(worker, **changes):
    pair = [worker(PEER_HEIR="false", **changes) for _ in range(2)]
    for one in pair:
        one("astart")
    return joined(pair)


TAKE = """
import os, socket, sys
os.setuid(65534)
os.mkdir(sys.argv[1], 0o777)
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[2])
s.listen(100)
print("listening", flush=True)
sys.stdin.read()
os.unlink(sys.argv[2])
os.rmdir(sys.argv[1])
"""
AS = "import asyncio, concurrent.futures.thread, os, traceback, peer_worker; os.setuid(12345); peer_worker.main()"


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to become other users")
def test_a_folder_of_another_user_is_passed_by(peer_env, base_port, tmp_path):
    """Who made it first could keep askers waiting."""
    path = str(unix_path(f"127.0.0.1:{base_port}")).replace(f"peerage-{os.geteuid()}", "peerage-12345")
    squatter = subprocess.Popen([sys.executable, "-c", TAKE, os.path.dirname(path), path],
                                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert squatter.stdout.readline() == "listening\n"
        with contextlib.ExitStack() as stack:
            def worker(**changes):
                made = Worker(peer_env(**changes), tmp_path / "log", [sys.executable, "-c", AS])
                stack.callback(made.end)
                return made

            owner, asker = two(worker)
            assert ask(asker, owner) == "owner" and ask(owner, asker) == "owner"
            assert over_unix(asker) == over_unix(owner) == 0
            assert asker("stats")["dials_failed"] == 0
    finally:
        squatter.stdin.close()
        squatter.wait(10)
        squatter.stdout.close()


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to become another user")
def test_no_other_user_gets_as_far_as_the_socket(fleet):
    (node,) = fleet(1)
    tries = f"""
import os, socket
os.setuid(65534)
socket.socket(socket.AF_UNIX).connect({str(unix_path(node.address))!r})
"""
    said = subprocess.run([sys.executable, "-c", tries], stderr=subprocess.PIPE, text=True).stderr
    assert "PermissionError" in said


def test_a_killed_node_is_refused_at_once_and_its_successor_has_the_name(fleet, worker):
    owner, asker = fleet(2, PEER_HEIR="false")
    ask(asker, owner)
    address = owner.address
    assert listens(address)
    owner.end()
    assert unix_path(address).exists() and not listens(address)
    began = time.monotonic()
    key = "anything"
    assert asker("lookup", "value", key)["value"] == f"{key} by {asker.pid}"
    assert time.monotonic() - began < 5
    successor = worker(PEER_HEIR="false")
    successor("astart")
    assert next(m["address"] for m in successor("members") if m["self"]) == address
    assert listens(address)
    successor("close")
    assert not unix_path(address).exists()


@pytest.mark.parametrize("mode", ["clear", "encrypted"])
def test_who_comes_by_it_has_to_prove_itself_too(tmp_path, mode):
    with Attacked(tmp_path, mode) as fleet:
        with fleet.unharmed(refused_tag=1, frames_in=1, connections_cut=1):
            with fleet.client(fleet.identity(secret="ab" * 32), near=True) as stranger:
                stranger.send(HELLO, request_id=1)
                assert stranger.rest() == b"", "closed without a word"
            with fleet.client(near=True) as silent:
                began = time.monotonic()
                assert silent.rest() == b""
                assert time.monotonic() - began < 4, "two seconds to prove itself"
            with fleet.client(near=True) as member:
                member.hello()


def test_silent_connections_keep_nobody_out(tmp_path):
    """They are of our own user, so there is no share of each; in all there are so many."""
    with Attacked(tmp_path) as fleet, fleet.unharmed(connections_refused_full=50):
        crowd = [fleet.client(near=True) for _ in range(600)]
        fleet.serves()
        for one in crowd:
            one.close()
