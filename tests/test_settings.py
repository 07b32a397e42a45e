"""Settings: a wrong one stops the start with one line that names the variable, what it got
and what it takes, before anything starts; the secret is never shown."""

import gc
import os
import threading

import pytest

import peerage

SECRET = "ab" * 32


def env(**changes):
    given = {"ENABLE_PEERS": "true", "PEER_SECRET": SECRET, **changes}
    return {name: value for name, value in given.items() if value is not None}


@pytest.mark.parametrize(
    "variable, got",
    [
        ("PEER_SECRET", "a" * 63), ("PEER_SECRET", "g" * 64), ("PEER_SECRET", None),
        ("PEER_SECRET", f"{SECRET},{SECRET[:-1]}"),
        ("PEER_PORT", "70000"), ("PEER_PORT", "0"), ("PEER_PORT", "http"), ("PEER_PORT", "-1"),
        ("PEER_PORT_RANGE", "0"), ("PEER_PORT_RANGE", "x"),
        ("PEERS", "bad name"), ("PEERS", "host:99999"), ("PEERS", "[::1"), ("PEERS", "a..b"),
        ("PEER_ALLOW_CIDR", "10.0.0.1/8"), ("PEER_ALLOW_CIDR", "10.0.0.0/33"),
        ("PEER_ALLOW_CIDR", "ten"),
        ("PEER_TIMEOUT", "abc"), ("PEER_TIMEOUT", "0"), ("PEER_TIMEOUT", "nan"),
        ("PEER_LOAD_TIMEOUT", "-1"), ("PEER_LOADERS", "0"), ("PEER_LOADERS", "many"),
        ("PEER_HEIR", "maybe"), ("PEER_ENCRYPTION", "2"), ("ENABLE_PEERS", "ja"),
        ("PEER_SPIN_US", "201"), ("PEER_SPIN_US", "-1"), ("PEER_SPIN_US", "long"),
        ("PEER_CACHE_BYTES", "64 MB"), ("PEER_CACHE_BYTES", "-1"), ("PEER_LISTEN", "nowhere"),
        ("PEER_ADVERTISE_ADDR", "nowhere"),
        ("PEER_ADVERTISE_ADDR", "::1"),         # while PEER_LISTEN is IPv4
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_line_before_anything_starts(variable, got):
    # what earlier tests left to the collector may end in the middle: there may be less after
    gc.collect()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with pytest.raises(peerage.SettingError) as caught:
        peerage.Peers.from_env(env(**{variable: got}))
    line = str(caught.value)
    assert "\n" not in line and line.startswith(variable), line
    assert "takes" in line
    if variable == "PEER_SECRET":
        assert got is None or got[:20] not in line, "the secret is never shown"
    else:
        assert got in line
    assert isinstance(caught.value, ValueError)
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors


LONE, LONG = "x\udcff", "ü" * 100_000


@pytest.mark.parametrize(
    "wrong, line",
    [
        ({"label": LONE}, r'PEER_LABEL: got "x\udcff", takes text in UTF-8, without NUL'),
        ({"peers": [LONE]}, r"PEERS: got ['x\udcff'], takes text in UTF-8, without NUL"),
        ({"secret": LONE}, "PEER_SECRET: got something else, takes text in UTF-8, without NUL"),
        ({"peers": {}}, "PEERS: got {}, takes text"),
        ({"peers": b"host"}, "PEERS: got b'host', takes text"),
        ({"timeout": 10**400}, f"PEER_TIMEOUT: got 1{'0' * 56}..., takes seconds, such as 0.25"),
        ({"timeout": 10**5000}, "PEER_TIMEOUT: got int that can't be shown, takes seconds, "),
        ({"port": 10**5000}, "PEER_PORT: got int that can't be shown, takes a port, 1 to 65535"),
        ({"port": -1}, "PEER_PORT: got -1, takes a port, 1 to 65535"),
        ({"port": 1.0}, "PEER_PORT: got 1.0, takes a port, 1 to 65535"),
        ({"loaders": True}, "PEER_LOADERS: got True, takes how many threads, 1 to 1024"),
        ({"cache_bytes": 10**5000}, "PEER_CACHE_BYTES: got int that can't be shown, takes bytes, "),
        ({"heir": 10**5000}, "PEER_HEIR: got int that can't be shown, takes true or false"),
        ({"heir": []}, "PEER_HEIR: got [], takes true or false"),
        ({"port": "9" * 100_000}, f'PEER_PORT: got "{"9" * 57}...", takes a port, 1 to 65535'),
        ({"listen": "no\nwhere"}, r'PEER_LISTEN: got "no\x0awhere", takes an address '),
        ({"label": LONG}, f'PEER_LABEL: got "{"ü" * 30}"..., takes 1 to 255 characters'),
        ({"label": "x" + LONG}, f'PEER_LABEL: got "x{"ü" * 29}"..., takes 1 to 255 characters'),
        ({"peers": "\n" * 99}, r'PEERS: got "' + r"\x0a" * 60 + '"..., takes addresses: '),
        ({"peers": LONG}, f'PEERS: got "{"ü" * 30}"..., takes addresses: '),
        ({"allow_cidr": "x" + LONG}, f'PEER_ALLOW_CIDR: got "x{"ü" * 29}" ('),
        ({"allow_cidr": "10.0.0.0/8\n"}, r'PEER_ALLOW_CIDR: got "10.0.0.0/8\x0a" ('),
    ],
    ids=lambda of: str(of)[:30].encode("ascii", "replace").decode() if isinstance(of, str) else "",
)
def test_a_wrong_value_is_shown_on_its_line_whatever_it_is(wrong, line):
    with pytest.raises(peerage.SettingError) as caught:
        peerage.Peers(**{"enable_peers": True, "secret": SECRET, **wrong})
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [None, 5, "PEERS=a", [("PEERS", "a")]], ids=repr)
def test_an_environment_is_a_mapping(wrong):
    with pytest.raises(TypeError, match="env: variables and their values, such as a dict, not "):
        peerage.Peers.from_env(wrong)


def test_values_of_an_environment_may_be_what_keyword_arguments_may():
    with pytest.raises(peerage.SettingError, match="^PEER_PORT: got 70000, "):
        peerage.Peers.from_env({"PEER_PORT": 70000})
    assert peerage.Peers.from_env({"ENABLE_PEERS": False, "PEER_PORT": None}).enabled is False


def test_keyword_arguments_are_the_variables():
    with pytest.raises(peerage.SettingError, match="^PEER_PORT"):
        peerage.Peers(enable_peers=True, secret=SECRET, port=70000)
    with pytest.raises(TypeError, match="unexpected setting 'prot'"):
        peerage.Peers(prot=7946)
    peerage.Peers(
        enable_peers=True, secret=SECRET, peers=["10.0.0.1", "[::1]:7946", "cache.internal"],
        allow_cidr=["10.0.0.0/8"], cache_bytes="64MiB", timeout=0.5, loaders=4,
    )  # fmt: skip


def test_overrides_win_over_the_environment():
    with pytest.raises(peerage.SettingError, match="PEER_PORT.*70000"):
        peerage.Peers.from_env(env(PEER_PORT="7000"), port=70000)
    assert peerage.Peers.from_env(env(), enable_peers=False).enabled is False


def test_off_is_the_default_and_an_empty_variable_is_none():
    assert peerage.Peers.from_env({}).enabled is False
    assert peerage.Peers.from_env({"PEER_TIMEOUT": "", "ENABLE_PEERS": " "}).enabled is False
