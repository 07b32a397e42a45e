"""Peers of one host talk over Unix sockets (W9), and over TCP wherever that can't be. Whatever
sits on a node's name, a question is answered."""

import itertools
import os
import re
import socket
import subprocess
import sys
import time

import pytest
from attack_fleet import Attacked
from attacker import HELLO
from workers import a_key_of, until

NAME = "\0peerage {}"


def listens(address):
    """Does anybody, under a node's name?"""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(NAME.format(address))
        except ConnectionRefusedError:
            return False
        return True


def connections(worker):
    """Of a process: how many of its connected sockets are TCP, how many Unix with a name of
    ours at one end."""
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
        sum(f[6] in inodes and f[3] != listening and f[-1].startswith("@peerage ") for f in unix),
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


@pytest.mark.parametrize("who", ["asker", "owner", "both"])
def test_tcp_where_one_of_them_does_without(fleet, worker, who):
    off = {"PEER_HEIR": "false", "PEER_UNIX_SOCKETS": "false"}
    on = {"PEER_HEIR": "false"}
    asker = worker(**(on if who == "owner" else off))
    owner = worker(**(on if who == "asker" else off))
    for one in (asker, owner):
        one("astart")
    until(lambda: all(sum(m["owns"] and not m["warming"] for m in one("members")) == 2
                      for one in (asker, owner)))  # fmt: skip
    assert ask(asker, owner) == "owner"
    assert over_unix(asker) == 0
    assert connections(asker)[0] and not connections(asker)[1]
    address = next(m["address"] for m in owner("members") if m["self"])
    assert listens(address) is (who == "asker")


def test_a_name_that_is_taken_costs_no_question(worker, base_port):
    """By a process of our own user, that never says a word."""
    owner_address = f"127.0.0.1:{base_port}"
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(NAME.format(owner_address))
        squatter.listen(100)
        owner, asker = worker(PEER_HEIR="false"), worker(PEER_HEIR="false")
        owner("astart")
        asker("astart")
        until(lambda: all(sum(m["owns"] and not m["warming"] for m in one("members")) == 2
                          for one in (asker, owner)))  # fmt: skip
        key = a_key_of(owner)
        assert asker("lookup", "value", key)["value"] == f"{key} by {asker.pid}", \
            "silent: loaded by who asked, as with any peer that says nothing"  # fmt: skip
    # It has gone, and the name is free: TCP is dialled, once the owner is no longer avoided.
    later = itertools.count()
    by_owner = f"{key} by {owner.pid}"
    until(lambda: asker("lookup", "value", key, next(later))["value"].startswith(by_owner), 20)


TAKE = """
import os, socket, sys
os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.bind("\\0peerage " + sys.argv[1])
s.listen(100)
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to become another user")
def test_a_listener_of_another_user_is_passed_by(worker, base_port):
    squatter = subprocess.Popen([sys.executable, "-c", TAKE, f"127.0.0.1:{base_port}"], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert squatter.stdout.readline() == "listening\n"
        owner, asker = worker(PEER_HEIR="false"), worker(PEER_HEIR="false")
        owner("astart")
        asker("astart")
        until(lambda: all(sum(m["owns"] and not m["warming"] for m in one("members")) == 2
                          for one in (asker, owner)))  # fmt: skip
        assert ask(asker, owner) == "owner"
        assert over_unix(asker) == 0 and asker("stats")["dials_failed"] == 0
        assert ask(owner, asker) == "owner" and over_unix(owner) > 0, "the other way has its name"
    finally:
        squatter.stdin.close()
        squatter.wait(10)
        squatter.stdout.close()


def test_a_killed_node_is_refused_at_once_and_its_successor_has_the_name(fleet, worker):
    owner, asker = fleet(2, PEER_HEIR="false")
    ask(asker, owner)
    address = owner.address
    assert listens(address)
    owner.end()
    assert not listens(address)
    began = time.monotonic()
    key = "anything"
    assert asker("lookup", "value", key)["value"] == f"{key} by {asker.pid}"
    assert time.monotonic() - began < 5
    successor = worker(PEER_HEIR="false")
    successor("astart")
    assert next(m["address"] for m in successor("members") if m["self"]) == address
    assert listens(address)


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
    with Attacked(tmp_path) as fleet, fleet.unharmed(connections_refused_full=50):
        crowd = [fleet.client(near=True) for _ in range(120)]
        fleet.serves()
        for one in crowd:
            one.close()
