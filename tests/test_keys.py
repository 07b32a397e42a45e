"""Canonical keys (K1): one call has one key however it is spelled, different calls never
share one, and the owner reads the arguments back from it."""

import datetime
import enum
import itertools
import subprocess
import sys
import uuid

import pytest

import peerage

UTC = datetime.timezone.utc
IN_TOKYO = datetime.timezone(datetime.timedelta(hours=9))
# its repr, an address, would give the test another name in each process of a run
OPAQUE = pytest.param(object(), id="object()")

VALUES = [
    "", "a", "a/b", "a%2Fb", "a:b", "a=b", "(a)", "a,b", " ", "\0", "\x7f", "n", "None", "i1",
    "ü", "日本語", "🐟", 0, 1, -1, 2**63 - 1, -(2**63), 2**63, 10**40, True, False, None,
    b"", b"\0\xff", b"a", "00ff", 0.0, -0.0, 1.0, 1.5, 1e300, 5e-324, float("inf"), float("-inf"),
    0.1, uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4, UTC), datetime.datetime(2024, 2, 29, 10, 2, 3, 4, IN_TOKYO),
    (), ("a",), ("a", "b"), (("a",), "b"), ("a", ("b",)), (1, (2, (3, ()))), (None,), ("",), ((),),
]  # fmt: skip


@pytest.fixture
def cache():
    return peerage.Peers().cache("keys", ttl=10)


@pytest.fixture
def one(cache):
    @cache.cached("{x}", name="one")
    def one(x):
        return x

    return one


@pytest.fixture
def pair(cache):
    @cache.cached("{channel}/{before}", name="pair")
    def pair(channel, before=None, *, deep=False):
        return b""

    return pair


def test_every_spelling_of_a_call_gives_one_key(pair):
    spellings = [
        pair.key("durov"), pair.key("durov", None), pair.key(channel="durov"),
        pair.key("durov", before=None), pair.key(before=None, channel="durov"),
        pair.key("durov", deep=False),
    ]  # fmt: skip
    assert len(set(spellings)) == 1
    assert pair.key("durov", 5) == pair.key(before=5, channel="durov") != spellings[0]


def test_different_arguments_never_share_a_key(one, pair):
    keys = [one.key(value) for value in VALUES]
    assert len(set(keys)) == len(VALUES)
    assert pair.key("a/b", None) != pair.key("a", "b/None")
    assert pair.key("a", "b") != pair.key("b", "a")
    some = VALUES[:20]
    pairs = {pair.key(a, b) for a, b in itertools.product(some, some)}
    assert len(pairs) == len(some) ** 2


def test_functions_and_caches_and_raw_keys_do_not_meet():
    peers = peerage.Peers()
    keys = set()
    for cache_name in ("a", "a:b"):
        cache = peers.cache(cache_name)
        for name in ("f", "b:f", "=f"):
            keys.add(cache.cached("{x}", name=name)(lambda x: b"").key("x"))
        keys |= {cache.key("f:sx"), cache.key("b:f:sx"), cache.key(b"\xff")}
    assert len(keys) == 2 * (3 + 3)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_the_owner_reads_the_arguments_back(one, value):
    args, kwargs = one.definition.template.arguments(one.key(value))
    assert kwargs == {}
    (back,) = args
    assert repr(back) == repr(value) and type(back) is type(value)
    if isinstance(value, datetime.datetime):
        assert back.utcoffset() == value.utcoffset()


def test_what_is_not_in_the_key_comes_back_as_its_default(cache):
    @cache.cached("{b}/{a}", name="kinds", ignore=("session", "retries"))
    def kinds(a, /, b, *, session="none", retries=3):
        return b""

    key = kinds.key("x", 7, session=object())
    assert kinds.definition.template.arguments(key) == (("x", 7), {"session": "none", "retries": 3})


class Text(str):
    pass


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [[1], {"a": 1}, {1}, OPAQUE, float("nan"), Text("a"), Colour.RED, 1j, bytearray(b"a"),
     datetime.datetime(2024, 1, 1), ("a", [1]), "\ud800", datetime.timedelta(1)],
    ids=repr,
)  # fmt: skip
def test_what_has_no_canonical_form_is_refused_by_the_parameters_name(pair, value):
    with pytest.raises(TypeError, match="'before'"):
        pair.key("durov", value)
    with pytest.raises(TypeError, match="'before'"):
        pair("durov", before=value)


@pytest.mark.parametrize(
    "args, kwargs, says",
    [
        ((), {}, "missing a required argument: 'channel'"),
        (("a", 1, 2), {}, "at most 2 positional arguments but 3"),
        (("a",), {"channel": "b"}, "multiple values for argument 'channel'"),
        (("a",), {"later": 1}, "unexpected keyword argument 'later'"),
    ],
)
def test_a_wrong_call_is_refused_as_python_would(pair, args, kwargs, says):
    with pytest.raises(TypeError, match=says):
        pair(*args, **kwargs)


def test_a_key_is_bounded(one):
    assert len(one.key("x" * 1000)) <= 1024
    with pytest.raises(peerage.TooBigError):
        one.key("x" * 1020)
    with pytest.raises(ValueError):
        one.key("/" * 400)      # three bytes each


@pytest.mark.parametrize(
    "template, channel, ignore, says",
    [
        ("{nobody}", None, (), "no parameter 'nobody'"),
        ("{channel.name}", None, (), "plain names"),
        ("{channel!r}", None, (), "plain names"),
        ("{channel:>10}", None, (), "plain names"),
        ("{}", None, (), "plain names"),
        ("{channel", None, (), "key"),
        ("{before}", "{channel}", (), "several owners"),
        ("{before}", None, ("channel",), "needs a default"),
        ("{channel}", None, ("channel",), "are in the key"),
    ],
)
def test_a_wrong_template_is_refused_where_it_is_written(cache, template, channel, ignore, says):
    def pair(channel, before=None):
        return b""

    with pytest.raises(ValueError, match=says):
        cache.cached(template, channel=channel, ignore=ignore, name="wrong")(pair)


def module_level(a, b=1):
    return b""


def test_who_is_registered(cache):
    """K2: only what every process finds under one name, with all arguments in the key."""
    def info(function, template, **how):
        return cache.cached(template, **how)(function).cache_info()

    assert info(module_level, "{a}/{b}").registered
    assert info(module_level, "{a}", ignore=["b"], name="m2").registered is True

    def local(a):
        return b""

    assert not info(local, "{a}", name="local").registered
    assert not info(lambda a: b"", "{a}", name="lambda").registered
    partly = peerage.Peers().cache("keys").cached("{a}")(module_level)
    assert not partly.cache_info().registered, "b is neither in the key nor ignored"


def test_two_functions_of_one_name_are_refused(cache):
    cache.cached("{a}/{b}", name="same")(module_level)
    with pytest.raises(ValueError, match="use name="):
        cache.cached("{a}", name="same")(lambda a: b"")


def test_the_same_keys_in_another_process(one):
    """Not of hash() or repr: a process with another hash seed writes the same bytes."""
    program = (
        "import peerage, uuid, datetime\n"
        "c = peerage.Peers().cache('keys')\n"
        "f = c.cached('{x}', name='one')(lambda x: b'')\n"
        "print(f.key(('ü', 1.5, uuid.UUID(int=7), datetime.date(2020, 1, 2), None)).hex())\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], check=True, text=True, stdout=subprocess.PIPE,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert printed == {
        one.key(("ü", 1.5, uuid.UUID(int=7), datetime.date(2020, 1, 2), None)).hex()
    }
