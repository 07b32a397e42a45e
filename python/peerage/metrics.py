"""The counters for Prometheus: a collector for prometheus_client, and the text of the
exposition format (version 0.0.4) without it.

    from peerage import metrics
    from prometheus_client import REGISTRY
    REGISTRY.register(metrics.Collector(peers))

    text = metrics.text(peers)      # or serve this yourself, as metrics.CONTENT_TYPE

Each name of `stats()` becomes `peerage_<name>`, what only grows `peerage_<name>_total`; what
they mean stands in docs/ARCHITECTURE.md. A worker is a scrape target of its own: behind one
port of several workers each scrape would meet another of them, and counters would jump.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native

if TYPE_CHECKING:
    from .peers import Peers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# What a worker has, as against what it has counted.
GAUGES = frozenset({
    "cache_bytes", "cache_bytes_max", "connections_idle", "connections_in", "entries", "flights",
    "members", "owned_share", "redis_state", "state", "tally_keys",
})  # fmt: skip


class Sample(NamedTuple):
    name: str       # as stats() has it
    metric: str     # as Prometheus does, without _total
    kind: str
    value: float

    @property
    def help(self) -> str:
        return self.name.replace("_", " ")


def samples(peers: Peers) -> list[Sample]:
    """All of them, by name. Labels are left to the scraper, which knows the worker."""
    numbers: dict[str, Any] = peers._node.stats()
    return [
        Sample(name, f"peerage_{name}", "gauge" if name in GAUGES else "counter", float(value))
        for name, value in sorted(numbers.items())
    ]


def text(peers: Peers) -> str:
    lines = [
        "# HELP peerage_build_info the release of peerage this worker runs",
        "# TYPE peerage_build_info gauge",
        f'peerage_build_info{{version="{_native.VERSION}"}} 1',
    ]
    for s in samples(peers):
        name = s.metric if s.kind == "gauge" else s.metric + "_total"
        lines += [f"# HELP {name} {s.help}", f"# TYPE {name} {s.kind}", f"{name} {s.value:.17g}"]
    return "\n".join(lines) + "\n"


class Collector:
    """For `prometheus_client.REGISTRY.register`. Looks at the node when it is scraped."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def describe(self) -> list[Any]:
        """Nothing: else registering it would look at a node before it starts."""
        return []

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        info = GaugeMetricFamily(
            "peerage_build_info", "the release of peerage this worker runs", labels=["version"]
        )
        info.add_metric([_native.VERSION], 1)
        yield info
        for s in samples(self._peers):
            family = GaugeMetricFamily if s.kind == "gauge" else CounterMetricFamily
            yield family(s.metric, s.help, value=s.value)
