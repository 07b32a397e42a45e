"""The command `peerage`, run as its users run it, against real workers; and the doctor on two
hosts (network namespaces) between which one thing is wrong."""

import json
import os
import pty
import re
import secrets
import subprocess
import sys
from pathlib import Path

import hosts as namespaces
import pytest
from conftest import clean_environment
from workers import COMMAND, Worker, until

PEERAGE = [sys.executable, "-m", "peerage"]
REASON = namespaces.why_not()


def peerage(*arguments, env=None, host=()):
    """(exit code, standard output, standard error)"""
    done = subprocess.run([*host, *PEERAGE, *arguments], env=env or clean_environment(),
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def told(*arguments, env=None, host=(), code=0):
    """What `--json` printed."""
    found, out, errors = peerage(*arguments, "--json", env=env, host=host)
    assert found == code, (out, errors)
    return json.loads(out)


# -- keygen, usage -----------------------------------------------------------------------------


def test_keygen_makes_a_new_secret_each_time():
    code, first, _ = peerage("keygen")
    assert code == 0 and re.fullmatch(r"[0-9a-f]{64}\n", first)
    assert told("keygen")["secret"] != first.strip()


def test_wrong_usage_and_wrong_settings_are_one_line_and_exit_2(peer_env):
    for wrong in ([], ["nonsense"], ["status", "--nonsense"], ["owner"]):
        code, out, errors = peerage(*wrong)
        assert (code, out) == (2, "") and "usage: peerage" in errors, errors
    code, out, errors = peerage("status", env=peer_env(PEER_SECRET="abc123wrong"))
    assert (code, out) == (2, "") and errors.count("\n") == 1
    assert errors.startswith("peerage: PEER_SECRET: ") and "abc123wrong" not in errors
    code, _, errors = peerage("owner", "durov", "--env-file", "/nonexistent", env=peer_env())
    assert code == 2 and errors.startswith("peerage: --env-file: ")


def test_nobody_there_is_said_and_is_exit_1(peer_env):
    for command in (["status"], ["owner", "durov"]):
        code, out, errors = peerage(*command, env=peer_env())
        assert (code, out) == (1, "") and "no peer answers" in errors and "doctor" in errors
    assert told("status", env=peer_env(), code=1) == {"error": "no peer answers"}


# -- status and owner --------------------------------------------------------------------------


@pytest.mark.parametrize("encrypted", ["false", "true"])
def test_status_lists_every_member_and_its_view(fleet, peer_env, encrypted):
    workers = fleet(3, PEER_ENCRYPTION=encrypted)
    env = peer_env(PEER_ENCRYPTION=encrypted)
    found = told("status", env=env)
    assert [m["address"] for m in found["members"]] == sorted(w.address for w in workers)
    assert found["agree"] is True
    for m in found["members"]:
        assert (m["state"], m["sees"], m["lacks"], m["extra"]) == ("ready", 3, [], [])
        assert m["protocol"] == [1, 1] and m["answers"]
    assert found["coordinator"] == min(w.address for w in workers)
    # it looked on, from a port of the range, and is gone: nobody counts it
    assert found["observer"] not in {w.address for w in workers}
    assert int(found["observer"].rpartition(":")[2]) == int(env["PEER_PORT"]) + 15
    for worker in workers:
        assert sum(m["live"] and not m["observer"] for m in worker("members")) == 3


def test_plain_tables_are_columns_and_a_terminal_gets_rich(fleet, peer_env):
    fleet(2)
    code, out, _ = peerage("status", env=peer_env())
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["MEMBER", "STATE", "UP", "PROTOCOL", "SEES", "DIFFERS"]
    assert len(lines) == 4 and "all views agree" in lines[3]
    assert "\x1b" not in out and "│" not in out and "─" not in out
    pytest.importorskip("rich")
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*PEERAGE, "status"], env=peer_env() | {"TERM": "xterm", "COLUMNS": "120"},
                               stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL)  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:     # the other end is closed
            break
        if not more:
            break
        shown += more
    os.close(ours)
    assert process.wait(20) == 0
    assert "─" in shown.decode() and "MEMBER" in shown.decode()


def test_owner_says_what_the_workers_say(fleet, peer_env):
    workers = fleet(3)
    for channel in ("durov", "key-1", "key-2", "ключ"):
        found = told("owner", channel, env=peer_env())
        assert [r["role"] for r in found["ranks"]] == ["owner", "heir", "third"]
        assert found["ranks"][0]["address"] == workers[0]("owner", channel)
        scores = [int(r["score"], 16) for r in found["ranks"]]
        assert scores == sorted(scores, reverse=True)


def test_settings_may_come_from_a_file(fleet, peer_env, tmp_path):
    fleet(2)
    env = peer_env()
    given = {name: env.pop(name) for name in list(env) if name.startswith("PEER")}
    path = tmp_path / "environment"
    path.write_text("# as systemd reads it\n" + "".join(f'{n}="{v}"\n' for n, v in given.items()))
    assert len(told("status", "--env-file", str(path), env=env)["members"]) == 2


def test_views_that_differ_are_told_from_views_that_agree():
    """Against what at least half of the members hold."""
    from peerage.cli import agree, compare
    from peerage.doctor import Seen

    def table(*live, dead=()):
        return [Seen(a, 1, 1, 0, True, False, False, False, 1, 1) for a in live] + [
            Seen(a, 1, 1, 2, True, False, False, False, 1, 1) for a in dead
        ]

    one = {"a": table("a", "b", "c"), "b": table("a", "b", "c"), "c": table("a", "b", "c")}
    assert agree(one, compare(one))
    lost = one | {"b": table("a", "b", dead="c")}
    assert compare(lost)["b"] == {"lacks": ["c"], "extra": []}
    assert compare(lost)["a"] == {"lacks": [], "extra": []} and not agree(lost, compare(lost))
    ghost = one | {"c": table("a", "b", "c", "d")}
    assert compare(ghost)["c"] == {"lacks": [], "extra": ["d"]}
    two = {"a": table("a", "b"), "b": table("b")}
    assert compare(two)["b"] == {"lacks": ["a"], "extra": []}
    silent = one | {"c": None}
    assert not agree(silent, compare(silent))


# -- the doctor ----------------------------------------------------------------------------------


def faults(found):
    return [(f["about"], f["kind"]) for f in found["findings"] if f["level"] == "fault"]


def test_the_doctor_finds_a_well_fleet_well(fleet, peer_env):
    workers = fleet(2)
    found = told("doctor", env=peer_env())
    reached = {f["about"] for f in found["findings"] if f["kind"] == "reached"}
    assert found["well"] and reached == {w.address for w in workers}
    code, out, _ = peerage("doctor", env=peer_env())
    assert code == 0 and out.endswith("all is well\n")


def test_the_doctor_tells_settings_of_this_host(peer_env, ports):
    found = told("doctor", env=peer_env(PEER_SECRET="zz"), code=1)
    assert faults(found) == [("settings", "secret")]
    found = told("doctor", env=peer_env(PEERS="no-such-name.invalid"), code=1)
    assert ("no-such-name.invalid", "name") in faults(found)
    found = told("doctor", env=peer_env(), code=1)
    assert faults(found) == [("peers", "nobody")]


def test_the_doctor_tells_a_full_range(fleet, peer_env):
    fleet(2, PEER_PORT_RANGE=2)
    found = told("doctor", env=peer_env(PEER_PORT_RANGE=2), code=1)
    assert ("ports", "ports") in faults(found)


def test_another_cluster_on_a_shared_host_is_no_fault(fleet, worker, peer_env):
    workers = fleet(1)
    worker(PEER_LABEL="another")("astart")
    found = told("doctor", env=peer_env())
    assert found["well"] and len(workers) == 1
    assert [f["level"] for f in found["findings"] if f["kind"] == "label"] == ["note"]


@pytest.fixture
def pair():
    if REASON:
        pytest.skip(REASON)
    made = namespaces.Hosts(2)
    yield made
    made.close()


@pytest.fixture
def far(pair, tmp_path):
    """far(**changes) -> the worker on host 1; settings of the cluster in `far.env(host)`."""
    secret, workers = secrets.token_hex(32), []

    def env(i, **changes):
        return clean_environment() | {
            "ENABLE_PEERS": "true", "PEER_SECRET": secret, "PEER_PORT": "7946", "PEER_PORT_RANGE": "4",
            "PEERS": pair.address(1 - i), "PEER_ADVERTISE_ADDR": pair.address(i),
        } | changes  # fmt: skip

    def start(**changes):
        workers.append(Worker(env(1, **changes), tmp_path / "far.log", pair.command(1, *COMMAND)))
        workers[-1]("astart")
        return workers[-1]

    start.env = env
    yield start
    for worker in workers:
        worker.end()


PEER = "10.77.0.2:7946"


def near(pair, far, code=1, **changes):
    """The doctor on host 0."""
    return told("doctor", env=far.env(0, **changes), host=pair.command(0), code=code)


def rules(pair, i, *lines):
    namespaces.run(*pair.command(i, "nft", "add table inet wrong; "
        "add chain inet wrong in { type filter hook input priority 0; }; "
        + "; ".join(f"add rule inet wrong in {line}" for line in lines)))  # fmt: skip


def test_two_hosts_with_nothing_wrong(pair, far):
    far()
    found = near(pair, far, code=0)
    assert found["well"] and PEER in {f["about"] for f in found["findings"] if f["kind"] == "reached"}


@pytest.mark.parametrize(
    "where, rule, kind, says",
    [
        (1, "udp dport 7946-7949 drop", "udp-out", "UDP to it is lost"),
        (0, "udp dport 7946-7949 drop", "udp-in", "UDP from it"),
        (0, "tcp dport 7946-7949 drop", "tcp-in", "can't open a TCP connection"),
    ],
)
def test_a_closed_port_is_named_with_its_direction(pair, far, where, rule, kind, says):
    far()
    rules(pair, where, rule)
    found = near(pair, far)
    assert faults(found) == [(PEER, kind)]
    (fault,) = [f for f in found["findings"] if f["level"] == "fault"]
    assert says in fault["said"] and "7946-7949" in fault["fix"]


@pytest.mark.parametrize(
    "rule, kind, says",
    [
        ("tcp dport 7946-7949 drop", "tcp-out", "no answer"),
        ("tcp dport 7946-7949 reject with icmpx type host-unreachable", "tcp-out", "No route to host"),
        ("tcp dport 7946-7949 reject with tcp reset", "nobody", "refused"),
    ],
)
def test_a_firewall_before_the_peer_is_told_from_an_empty_host(pair, far, rule, kind, says):
    far()
    rules(pair, 1, rule)
    found = near(pair, far)
    assert faults(found) == [("10.77.0.2", kind)]
    assert says in str(found)


def test_another_secret(pair, far):
    far(PEER_SECRET=secrets.token_hex(32))
    assert faults(near(pair, far)) == [(PEER, "secret")]


def test_a_rotation_is_no_other_secret(pair, far):
    """Both of two secrets are accepted, whichever seals."""
    far()
    own = far.env(0)["PEER_SECRET"]
    new = secrets.token_hex(32)
    assert near(pair, far, code=0, PEER_SECRET=f"{own},{new}")["well"]


@pytest.mark.parametrize("change, kind", [({"PEER_LABEL": "other"}, "label"),
                                          ({"PEER_ENCRYPTION": "true"}, "mode")])  # fmt: skip
def test_another_label_and_another_mode(pair, far, change, kind):
    far(**change)
    assert faults(near(pair, far)) == [(PEER, kind)]


@pytest.mark.parametrize("skew, way", [("+40", "ahead of"), ("-40", "behind")])
def test_forty_seconds_of_clock_skew(pair, far, skew, way):
    library = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
    if library is None:
        pytest.skip("libfaketime is not installed")
    # by hand: the program of that name stays between us and the worker
    far(LD_PRELOAD=str(library), FAKETIME=f"{skew}s", FAKETIME_DONT_FAKE_MONOTONIC="1")
    found = near(pair, far)
    assert faults(found) == [(PEER, "clock")]
    (said,) = [f["said"] for f in found["findings"] if f["kind"] == "clock"]
    assert re.search(rf"\b(39|40|41) s {way} this host's", said)


def test_a_cidr_of_this_host_that_excludes_the_peer(pair, far):
    far()
    found = near(pair, far, PEER_ALLOW_CIDR="10.77.0.1/32,192.168.0.0/16")
    assert faults(found) == [(PEER, "cidr")] and "this host's PEER_ALLOW_CIDR" in str(found)


def test_a_cidr_of_the_peer_that_excludes_this_host(pair, far):
    far(PEER_ALLOW_CIDR="10.77.0.2/32,192.168.0.0/16")
    found = near(pair, far)
    assert faults(found) == [(PEER, "cidr")] and "its PEER_ALLOW_CIDR" in str(found)


def test_status_names_the_member_whose_view_differs(tmp_path):
    """Three hosts, and the list of the first leaves out the third: to the others all three are
    members, and it alone never knows the third."""
    if REASON:
        pytest.skip(REASON)
    made, workers, secret = namespaces.Hosts(3), [], secrets.token_hex(32)
    try:
        def env(i, **changes):
            return clean_environment() | {
                "ENABLE_PEERS": "true", "PEER_SECRET": secret, "PEERS": made.address(1),
                "PEER_ADVERTISE_ADDR": made.address(i),
            } | changes  # fmt: skip

        lists = [{"PEER_ALLOW_CIDR": f"{made.address(0)}/32,{made.address(1)}/32"}, {}, {}]
        for i in (1, 0, 2):
            workers.append(Worker(env(i, **lists[i]), tmp_path / f"host-{i}.log",
                                  made.command(i, *COMMAND)))  # fmt: skip
            workers[-1]("astart")
        second = workers[0]
        until(lambda: sum(m["live"] and not m["observer"] for m in second("members")) == 3)
        found = told("status", env=env(1), host=made.command(1), code=1)
        assert not found["agree"]
        differs = {m["address"]: m["lacks"] for m in found["members"] if m["lacks"] or m["extra"]}
        assert differs == {"10.77.0.1:7946": ["10.77.0.3:7946"]}
        code, out, _ = peerage("status", env=env(1), host=made.command(1))
        assert code == 1 and "VIEWS DIFFER" in out
        (line,) = [line for line in out.splitlines() if line.startswith("10.77.0.1:7946")]
        assert line.endswith("lacks 10.77.0.3:7946")
    finally:
        for worker in workers:
            worker.end()
        made.close()
