"""The counters from outside: as Prometheus reads them, and as the health answer words them.
(That documents, alerts and dashboard name them all: test_docs.py, test_deploy.py.)"""

import re

import pytest

import peerage
from peerage import metrics
from peerage.health import health
from workers import until


@pytest.fixture
def alone():
    with peerage.Peers() as peers:
        yield peers


def parsed(text):
    """{metric: (type, value)} of the exposition format, read strictly."""
    found, kinds = {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            name, value = re.fullmatch(r'([a-z_]+)(?:\{version="[^"]+"\})? (\S+)', line).groups()
            found[name] = (kinds[name], float(value))
    return found


def test_every_counter_is_a_metric(alone):
    cache = alone.cache("things", ttl=60)
    cache.get_or_load("key", lambda: b"value", channel="c")
    assert cache.get("key", channel="c") == b"value"
    found = parsed(metrics.text(alone))
    numbers = alone._node.stats()
    assert len(numbers) > 60
    for name, value in numbers.items():
        gauge = name in metrics.GAUGES
        metric = f"peerage_{name}" + ("" if gauge else "_total")
        assert found.pop(metric) == ("gauge" if gauge else "counter", value)
    assert found == {"peerage_build_info": ("gauge", 1.0)}
    assert numbers["loads"] == 1 and numbers["hits_local"] >= 1


def test_gauges_are_names_that_exist(alone):
    assert metrics.GAUGES <= set(alone._node.stats())


def test_the_collector_says_the_same_as_the_text(alone):
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    registry.register(metrics.Collector(alone))
    ours, theirs = parsed(metrics.text(alone)), client.generate_latest(registry).decode()
    assert ours == parsed(theirs)


def test_prometheus_own_reader_takes_the_text(alone):
    pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families as read

    names = {sample.name for family in read(metrics.text(alone)) for sample in family.samples}
    assert names == set(parsed(metrics.text(alone)))


# -- the health answer -----------------------------------------------------------------------------


def test_off_is_healthy_and_says_so(alone):
    said = health(alone)
    assert said["ready"] and not said["alone"] and said["redis"] == "unused"
    assert "off" in said["notes"][0]


def test_alone_is_reported_and_stays_ready(peer_env):
    with peerage.Peers.from_env(peer_env()) as peers:
        said = health(peers)
        assert said["ready"] and said["alone"] and said["members"] == 1
        assert "no peer" in said["notes"][0]
    assert health(peers)["ready"] is False      # closed


def test_members_that_own_nothing_yet_are_counted(peer_env, fleet):
    """A newcomer is let in, warms, and only then takes part (M1): `settled` says so of the worker itself,
    `warming` of all, as this one has heard."""
    fleet(1)
    with peerage.Peers.from_env(peer_env()) as peers:
        said = until(lambda: (s := health(peers))["members"] == 2 and s)
        assert (said["state"], said["settled"], said["warming"]) == ("warming", False, 1)
        until(lambda: health(peers)["settled"])
        assert health(peers)["warming"] == 0


def test_without_redis_is_reported_and_stays_ready(peer_env, ports, fleet):
    fleet(1)    # so that an explicit start does not fail for want of Redis
    url = f"redis://127.0.0.1:{ports.base + 30}"
    with peerage.Peers.from_env(peer_env(REDIS_URL=url)) as peers:
        said = health(peers)
        assert said["ready"] and not said["alone"]
        if said["redis"] != "unused":       # built without it
            assert said["redis"] in ("connecting", "away")
