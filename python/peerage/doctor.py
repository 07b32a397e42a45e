"""What keeps two nodes apart, found by trying it and said in words, each with its fix.

A node that refuses another says nothing to it, on purpose; so from the inside a wrong
secret, a firewall and a wrong clock all look like being alone. From outside they differ:

  this host's settings, its ports, its PEER_ALLOW_CIDR
  TCP to every port of every peer          firewall, nobody there, somebody else there
  the peer closes before it speaks         its PEER_ALLOW_CIDR
  its challenge, in the clear              label, mode
  it closes at our first frame             its clock, if another clock of ours is welcome;
                                           else the secret
  joining it alone, from a port of the     UDP there and back, TCP back: it challenges us on
  range, as an observer                    both, each on its own (rule M2)

Nothing stays behind: observers own nothing and leave when they are done.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from . import _native, settings
from ._native import Error, SettingError
from .peers import Peers

UNREACHED, SHUT, MUTE, FOREIGN, OTHER_LABEL, OTHER_MODE, REFUSED, PROVEN = range(8)
PROBE_MS = 1500
JOIN_S = 4.0
SKEW_NEAR_S = 10        # said, though 30 s are allowed
THREADS = 32
log = logging.getLogger("peerage")


class Finding(NamedTuple):
    level: str      # ok, note, fault
    about: str      # what was looked at: settings, ports, an address
    kind: str       # one word for programs: secret, clock, udp-out...
    said: str
    fix: str = ""


class Seen(NamedTuple):
    """A member, as another member's table has it."""

    address: str
    node_id: int
    started_ms: int
    state: int      # 0 alive, 1 suspect, 2 dead, 3 left
    coordinates: bool
    warming: bool
    draining: bool
    observer: bool
    speaks_min: int
    speaks_max: int


class Probed(NamedTuple):
    stage: int
    error: int
    allowed: bool
    node_id: int
    ahead_ms: int
    seen: list[Seen] | None


def probe(
    given: Mapping[str, Any], address: str, *, timeout_ms: int = PROBE_MS, clock_ms: int = 0
) -> Probed:
    """How far the node at `address` lets us; `given` are checked settings."""
    *found, seen = _native.probe(
        given["secret"], given.get("label", "default"), given.get("encryption", False),
        given.get("allow_cidr"), address, timeout_ms, clock_ms,
    )  # fmt: skip
    return Probed(*found, None if seen is None else [Seen(*one) for one in seen])


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(entry: str) -> tuple[str, int | None]:
    """An entry of PEERS, which the settings have checked: its host, its port if it names one."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, int(rest[1:]) if rest else None
    if entry.count(":") > 1:
        return entry, None
    host, colon, port = entry.partition(":")
    return host, int(port) if colon else None


def listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def is_free(host: str, port: int) -> bool:
    """Can this port be bound, for UDP and TCP both?"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as sock:
            if kind == socket.SOCK_STREAM:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, port))
            except OSError:
                return False
    return True


def span(seconds: float) -> str:
    whole = round(abs(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"


def proves(stats: Mapping[str, Any]) -> bool:
    """It has challenged us both ways. To be in its table is not enough: it may join us, at that
    moment, and believe what we then say of ourselves."""
    return stats["joins_challenged"] > 0 and stats["connections_accepted"] > 0


class Doctor:
    """`findings` grows as it looks; `tell` hears of each at once."""

    def __init__(self, env: Mapping[str, str], tell: Callable[[Finding], Any]) -> None:
        self.env = env
        self.tell = tell
        self.findings: list[Finding] = []
        self.met: set[int] = set()      # node ids that were looked at
        self.given: dict[str, Any] = {}
        self.port, self.count, self.own_port = 7946, 16, 7946

    def find(self, level: str, about: str, kind: str, said: str, fix: str = "") -> None:
        found = Finding(level, about, kind, said, fix)
        self.findings.append(found)
        self.tell(found)

    @property
    def faults(self) -> int:
        return sum(found.level == "fault" for found in self.findings)

    def look(self) -> None:
        if not self._settings():
            return
        self._own_ports()
        targets = self._targets()
        with ThreadPoolExecutor(THREADS) as pool:
            for name, host, ports in targets:
                self._host(pool, name, host, ports)
        if not self.met and not self.faults:
            self.find("fault", "peers", "nobody", "no node was found",
                      "Start a worker, or set PEERS to an address where one runs")

    # -- this host ---------------------------------------------------------------------------

    def _settings(self) -> bool:
        try:
            self.given = settings.from_env(self.env)
            Peers.from_env(self.env, enable_peers=True)     # the native part's checks too
        except (SettingError, TypeError) as error:
            kind = "secret" if str(error).startswith("PEER_SECRET") else "settings"
            self.find("fault", "settings", kind, str(error), "Set it as it says, on every node")
            return False
        self.port = self.given.get("port", self.port)
        self.count = self.given.get("port_range", self.count)
        label = self.given.get("label", "default")
        mode = "encrypted" if self.given.get("encryption") else "authenticated"
        self.find("ok", "settings", "settings", f'label "{label}", {mode}, ports {self.range()}')
        if not self.given["enable_peers"]:
            self.find("note", "settings", "off", "ENABLE_PEERS is not true: workers with this "
                      "environment run without the peer layer", "Set ENABLE_PEERS=true")
        return True

    def range(self) -> str:
        return f"{self.port}-{self.port + self.count - 1}"

    def _own_ports(self) -> None:
        """Also picks the port from which to join: the last free one, as the workers take the
        first."""
        listen = self.given.get("listen", "0.0.0.0")
        free = [p for p in range(self.port, self.port + self.count) if is_free(listen, p)]
        self.own_port = free[-1] if free else self.port + self.count - 1
        said = f"{len(free)} of the {self.count} ports {self.range()} are free here"
        if free:
            self.find("ok", "ports", "ports", said)
        else:
            self.find("fault", "ports", "ports", f"no port of {self.range()} is free here for UDP "
                      "and TCP: a further worker would own nothing",
                      "Raise PEER_PORT_RANGE to the number of workers and one more, and open as many")

    def _targets(self) -> list[tuple[str, str, Iterable[int]]]:
        """(what to call it, numeric host, ports), this host's own range first."""
        everywhere = range(self.port, self.port + self.count)
        listen = self.given.get("listen", "0.0.0.0")
        own = self.given.get("advertise_addr") or listen
        if own in ("0.0.0.0", "::"):
            own = "127.0.0.1"
        found: list[tuple[str, str, Iterable[int]]] = [("this host", own, everywhere)]
        for entry in listed(self.given.get("peers")):
            name, port = split_address(entry)
            try:
                resolved = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except OSError as error:
                self.find("fault", entry, "name", f"the name does not resolve: {error}",
                          "Look at the name in PEERS, and at DNS on this host")
                continue
            for host in sorted({str(info[4][0]) for info in resolved}):
                called = host if host == name else f"{host} ({name})"
                found.append((called, host, everywhere if port is None else [port]))
        return found

    # -- one of the others -------------------------------------------------------------------

    def _host(
        self, pool: ThreadPoolExecutor, name: str, host: str, ports: Iterable[int]
    ) -> None:
        addresses = [join_address(host, port) for port in ports]
        probed = list(pool.map(lambda address: probe(self.given, address), addresses))
        there = [(a, p) for a, p in zip(addresses, probed) if p.stage != UNREACHED]
        if not there:
            if name != "this host":
                self._unreached(name, {p.error for p in probed}, addresses)
            return
        hidden: Finding | None = None
        # Several clusters may share a host: that is a fault only where none of them is ours.
        shared = name == "this host" or any(p.node_id for _, p in there)
        for address, found in there:
            if found.node_id in self.met:
                continue
            if found.node_id:
                self.met.add(found.node_id)
            if found.stage == OTHER_LABEL and shared:
                self.find("note", address, "label", "another cluster's: it has another PEER_LABEL")
                continue
            if found.stage == REFUSED and hidden is not None:
                self.find("fault", address, hidden.kind, hidden.said, hidden.fix)
                continue
            self._node(address, found)
            if found.stage == REFUSED:
                hidden = self.findings[-1]

    def _unreached(self, name: str, errors: set[int], addresses: list[str]) -> None:
        ports = self.range() if len(addresses) > 1 else addresses[0].rpartition(":")[2]
        firewall = (f"Open {ports}, UDP and TCP, there: in the host's firewall "
                    "(deploy/bootstrap-server.sh) and in the cloud's security list")
        if errors == {errno.ECONNREFUSED}:
            self.find("fault", name, "nobody", f"no worker listens on TCP {ports}: refused",
                      "Start a worker there; is PEER_PORT the same on both, and are a container's "
                      "ports published on this address?")
        elif errno.ETIMEDOUT in errors:
            self.find("fault", name, "tcp-out", f"TCP {ports}: no answer", firewall)
        else:
            words = ", ".join(os.strerror(e) for e in sorted(errors - {errno.ECONNREFUSED}))
            self.find("fault", name, "tcp-out", f"TCP {ports}: {words}",
                      firewall + '. "No route to host" is what a final REJECT rule answers')

    def _node(self, address: str, found: Probed) -> None:
        if not found.allowed:
            self.find("fault", address, "cidr", "it is outside this host's PEER_ALLOW_CIDR: what "
                      "it sends is dropped here", "Add its network to PEER_ALLOW_CIDR, on all nodes")
        elif found.stage == SHUT:
            self.find("fault", address, "cidr", "it closes the connection before it says a word: "
                      "this host's address is outside its PEER_ALLOW_CIDR", "Add this host's "
                      "network to PEER_ALLOW_CIDR there; a container's peers may arrive from its "
                      "network's gateway")
        elif found.stage in (MUTE, FOREIGN):
            self.find("fault", address, "foreign", "what answers there is no node of this release",
                      "Another program has this port, or a release too far apart: choose another "
                      "PEER_PORT, or roll the older one")
        elif found.stage == OTHER_LABEL:
            self.find("fault", address, "label", "it has another PEER_LABEL",
                      "Set one PEER_LABEL on both, or take it out of PEERS: it is another cluster")
        elif found.stage == OTHER_MODE:
            here = "on" if self.given.get("encryption") else "off"
            self.find("fault", address, "mode", f"PEER_ENCRYPTION is {here} here and not there",
                      "Set PEER_ENCRYPTION the same on all nodes, and start them all again")
        elif found.stage == REFUSED:
            self._refused(address)
        else:
            self._proven(address, found)

    def _refused(self, address: str) -> None:
        ahead = self._skew(address)
        if ahead is None:
            self.find("fault", address, "secret", "it refuses what this host's secret seals: it has "
                      "another PEER_SECRET", "Set the same PEER_SECRET on both; during a rotation, "
                      "did every node take the step before this one?")
        else:
            way = "ahead of" if ahead > 0 else "behind"
            self.find("fault", address, "clock", f"its clock is {span(ahead)} {way} this host's; "
                      "30 s are allowed", "Look at the time service (timedatectl, chronyc tracking) "
                      "of both hosts")

    def _skew(self, address: str) -> float | None:
        """With which clock of ours does it talk to us? Seconds; None: with none."""
        near = [sign * k * 55 for k in range(1, 21) for sign in (1, -1)]
        zones = [sign * k * 1800 for k in range(1, 29) for sign in (1, -1)]
        for seconds in near + zones:
            found = probe(self.given, address, clock_ms=seconds * 1000)
            if found.stage == PROVEN:
                return found.ahead_ms / 1000
        return None

    def _proven(self, address: str, found: Probed) -> None:
        ahead = found.ahead_ms / 1000
        if abs(ahead) > SKEW_NEAR_S:
            self.find("note", address, "clock", f"its clock differs by {span(ahead)}; 30 s are "
                      "allowed", "Look at the time service of both hosts")
        try:
            joined, stats, own = self._join(address)
        except (Error, OSError) as error:
            self.find("fault", address, "settings", str(error), "Set it as it says")
            return
        if joined:
            self.find("ok", address, "reached", "TCP and UDP both ways, the secret, the label, the "
                      "mode, the clock")
            return
        # Its challenge came: UDP works both ways. It dialled: our join has arrived, and TCP comes
        # here. Any datagram: it may be a join of its own, which says nothing of the way there.
        challenged = stats["joins_challenged"] > 0
        dialled = stats["connections_accepted"] > 0
        open_here = f"Open {self.range()} here for its address: "
        firewalls = "in the host's firewall (deploy/bootstrap-server.sh) and the cloud's security list"
        if dialled and not challenged:
            self.find("fault", address, "udp-in", f"UDP from it to {own} is lost; UDP to it arrives, "
                      "and TCP works both ways", open_here + "UDP, " + firewalls)
        elif challenged and not dialled:
            self.find("fault", address, "tcp-in", f"it can't open a TCP connection to {own}; UDP "
                      "works both ways", open_here + "TCP, " + firewalls + "; is "
                      "PEER_ADVERTISE_ADDR an address that it reaches?")
        elif not challenged:
            less = "" if stats["datagrams_in"] else " (or all that it sends back)"
            self.find("fault", address, "udp-out", f"UDP to it is lost{less}; TCP to it works", f"Open {self.range()} there for UDP, " + firewalls +
                      f"; if that is done, here for {own}, UDP and TCP")
        else:
            self.find("fault", address, "refused", "reached both ways, and it does not let this host "
                      "in", 'Look for "Refused" in its log')

    def _has(self, address: str, node_id: int) -> bool:
        """Does it count this node among its live members?"""
        return any(m.node_id == node_id and m.state < 2 for m in probe(self.given, address).seen or ())

    def _join(self, address: str) -> tuple[bool, dict[str, Any], str]:
        """Join this one node, from a port of the range that only it is told of."""
        env = {k: v for k, v in self.env.items() if k not in ("PEERS", "REDIS_URL")}
        peers = Peers.from_env(
            env, observer=True, enable_peers=True, peers=address, port=self.own_port, port_range=1
        )
        until = time.monotonic() + JOIN_S
        try:
            peers.start()
            me = next(m.node_id for m in peers.members() if m.self)
            while True:
                stats = peers.stats()
                joined = self._has(address, me) and proves(stats)
                if joined or time.monotonic() > until:
                    return joined, stats, peers.address
                time.sleep(0.1)
        finally:
            peers.close(0)
