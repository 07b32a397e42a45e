"""The command `peerage`, also `python -m peerage`: a fleet seen from outside.

    peerage keygen               a new secret
    peerage status               the members, their states and versions, and whose view differs
    peerage owner CHANNEL        who owns a channel, who would after it, their scores
    peerage doctor               what keeps this host and its peers apart, and how to mend it

The settings are the environment's, as the workers have them. `status` and `owner` join as
observers, which own nothing. `--json` prints one JSON value on standard output. Exit codes:
0 all is well; 1 it is not (views differ, nobody found, a fault found); 2 wrong usage or a
wrong setting.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import _native, settings
from ._native import Error, SettingError
from .doctor import PROVEN, THREADS, Doctor, Finding, Seen, probe, span
from .peers import Peers

WELL, NOT_WELL, WRONG = 0, 1, 2
FOUND_S = 3.0       # for the first member to be known
SETTLED_S = 2.5     # news of a change is everywhere by then
LIVE = ("alive", "suspect")
STATES = (*LIVE, "dead", "left")


class Wrong(Exception):
    """One line for standard error, and exit code 2."""


# -- what is printed -----------------------------------------------------------------------------


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """By rich on a terminal, where it is installed; else columns, for people and for awk."""
    if sys.stdout.isatty():
        try:
            from rich import box
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            pass
        else:
            table = Table(*heads, box=box.SIMPLE_HEAD)
            for row in rows:
                table.add_row(*row)
            Console(markup=False, highlight=False).print(table)
            return
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    for row in (heads, *rows):
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip())


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


# -- joining -------------------------------------------------------------------------------------


def observer(env: Mapping[str, str]) -> Peers:
    """Joined, if there is anybody to join."""
    peers = Peers.from_env(env, observer=True, enable_peers=True)
    peers.start()
    until = time.monotonic() + FOUND_S
    while not others(peers) and time.monotonic() < until:
        time.sleep(0.05)
    return peers


def others(peers: Peers) -> list[Any]:
    return [m for m in peers.members() if m.live and not m.self and not m.observer]


def nobody(as_json: bool) -> int:
    if as_json:
        print_json({"error": "no peer answers"})
    else:
        print("peerage: no peer answers; peerage doctor finds out why", file=sys.stderr)
    return NOT_WELL


# -- status --------------------------------------------------------------------------------------


def views(given: Mapping[str, Any], addresses: Sequence[str]) -> dict[str, list[Seen] | None]:
    """Each member's own table; None: it did not give it."""
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda address: probe(given, address), addresses))
    return {a: f.seen if f.stage == PROVEN else None for a, f in zip(addresses, found)}


def live_in(table: list[Seen]) -> set[str]:
    return {m.address for m in table if STATES[m.state] in LIVE and not m.observer}


def compare(tables: Mapping[str, list[Seen] | None]) -> dict[str, dict[str, list[str]]]:
    """What each view lacks and has too much, against what at least half of them hold."""
    seen = {address: live_in(table) for address, table in tables.items() if table is not None}
    counts: dict[str, int] = {}
    for view in seen.values():
        for address in view:
            counts[address] = counts.get(address, 0) + 1
    common = {address for address, n in counts.items() if 2 * n >= len(seen)}
    return {
        address: {"lacks": sorted(common - view), "extra": sorted(view - common)}
        for address, view in seen.items()
    }


def agree(tables: Mapping[str, Any], differences: Mapping[str, Mapping[str, list[str]]]) -> bool:
    return len(differences) == len(tables) and not any(
        d["lacks"] or d["extra"] for d in differences.values()
    )


def describe(
    address: str, tables: Mapping[str, list[Seen] | None],
    differences: Mapping[str, Mapping[str, list[str]]], coordinator: str | None,
) -> dict[str, Any]:  # fmt: skip
    """One member, in its own words where it gave them, else in another's."""
    own = tables[address]
    at = [table for table in (own, *tables.values()) if table is not None]
    record = next((m for table in at for m in table if m.address == address), None)
    told = {"address": address, "coordinator": address == coordinator, "answers": own is not None}
    if record is not None:
        state = STATES[record.state]
        if state == "alive":
            state = "warming" if record.warming else "draining" if record.draining else "ready"
        told |= {
            "state": state, "node_id": f"{record.node_id:016x}", "started_ms": record.started_ms,
            "protocol": [record.speaks_min, record.speaks_max],
        }  # fmt: skip
    if own is not None:
        told |= {"sees": len(live_in(own)), **differences[address]}
    return told


def row(told: Mapping[str, Any]) -> list[str]:
    differs = [f"lacks {a}" for a in told.get("lacks", ())]
    differs += [f"has {a}" for a in told.get("extra", ())]
    if not told["answers"]:
        differs = ["does not answer this host"]
    low, high = told.get("protocol", ("?", "?"))
    up = span(time.time() - told["started_ms"] / 1000) if "started_ms" in told else "?"
    return [
        told["address"] + (" *" if told["coordinator"] else ""), told.get("state", "?"), up,
        f"{low}" if low == high else f"{low}-{high}", str(told.get("sees", "?")),
        ", ".join(differs),
    ]  # fmt: skip


def status(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    given = settings.from_env(env)
    with_observer = observer(env)
    try:
        if not others(with_observer):
            return nobody(options.json)
        until = time.monotonic() + SETTLED_S
        while True:
            members = [m.address for m in others(with_observer)]
            tables = views(given, members)
            differences = compare(tables)
            known = all(live_in(table or []) == set(members) for table in tables.values())
            if (known and agree(tables, differences)) or time.monotonic() > until:
                break
            time.sleep(0.5)
        coordinator = with_observer.coordinator()
        at = coordinator.address if coordinator is not None else None
        own = with_observer.address
    finally:
        with_observer.close(0)
    told = [describe(address, tables, differences, at) for address in members]
    well = agree(tables, differences)
    if options.json:
        print_json({"observer": own, "release": _native.VERSION, "coordinator": at, "agree": well,
                    "members": told})  # fmt: skip
    else:
        print_table(("MEMBER", "STATE", "UP", "PROTOCOL", "SEES", "DIFFERS"), [row(t) for t in told])
        print(f"{len(told)} members, {'all views agree' if well else 'VIEWS DIFFER'}; "
              f"* coordinates; seen from {own}")
    return WELL if well else NOT_WELL


# -- the other commands --------------------------------------------------------------------------


def owner(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    peers = observer(env)
    try:
        ranks = peers._node.owner(options.channel.encode()) if others(peers) else []
    finally:
        peers.close(0)
    if not ranks:
        return nobody(options.json)
    roles = ("owner", "heir", "third")
    told = [{"role": role, "address": member.address, "score": f"{score:016x}"}
            for role, (member, score) in zip(roles, ranks)]  # fmt: skip
    if options.json:
        print_json({"channel": options.channel, "ranks": told})
    else:
        print_table(("ROLE", "MEMBER", "SCORE"), [list(t.values()) for t in told])
    return WELL


def keygen(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    secret = secrets.token_hex(32)
    if options.json:
        print_json({"secret": secret})
    else:
        print(secret)
    return WELL


def tell(found: Finding) -> None:
    print(f"{found.level:5}  {found.about}: {found.said}", flush=True)
    if found.fix:
        print(f"       -> {found.fix}", flush=True)


def doctor(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    it = Doctor(env, (lambda found: None) if options.json else tell)
    it.look()
    if options.json:
        print_json({"well": not it.faults, "findings": [found._asdict() for found in it.findings]})
    elif it.faults:
        print(f"{it.faults} {'fault' if it.faults == 1 else 'faults'}")
    else:
        print("all is well")
    return NOT_WELL if it.faults else WELL


# -- arguments -----------------------------------------------------------------------------------


def read_env_file(path: str) -> dict[str, str]:
    """NAME=value lines, as systemd's EnvironmentFile and docker's --env-file have them."""
    found = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                name, sign, value = line.strip().partition("=")
                if sign and not name.startswith("#"):
                    found[name.removeprefix("export ").strip()] = value.strip().strip("\"'")
    except (OSError, UnicodeDecodeError) as error:
        raise Wrong(f"--env-file: {error}") from None
    return found


def parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="one JSON value on standard output")
    asking = argparse.ArgumentParser(add_help=False, parents=[common])
    asking.add_argument("--env-file", metavar="FILE", help="settings on top of the environment's")
    asking.add_argument("--peers", metavar="LIST", help="in place of PEERS")
    asking.add_argument("--verbose", action="store_true", help="the node's log on standard error")
    made = argparse.ArgumentParser(
        prog="peerage", description="A fleet of peerage workers seen from outside.",
        epilog="Exit codes: 0 all is well; 1 it is not (views differ, nobody found, a fault "
        "found); 2 wrong usage or a wrong setting. Settings are those of the environment.")  # fmt: skip
    made.add_argument("--version", action="version", version=f"peerage {_native.VERSION}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, run, parent, text in (
        ("keygen", keygen, common, "print a new secret"),
        ("status", status, asking, "members, states, versions, views that differ"),
        ("owner", owner, asking, "owner and heir of a channel, with their scores"),
        ("doctor", doctor, asking, "find what keeps this host and its peers apart"),
    ):
        command = commands.add_parser(name, parents=[parent], help=text, description=text)
        command.set_defaults(run=run)
        if name == "owner":
            command.add_argument("channel", metavar="CHANNEL")
    return made


def run(options: argparse.Namespace) -> int:
    env = dict(os.environ)
    if getattr(options, "env_file", None):
        env |= read_env_file(options.env_file)
    if getattr(options, "peers", None) is not None:
        env["PEERS"] = options.peers
    log = logging.getLogger("peerage")
    if getattr(options, "verbose", False):
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    else:
        log.addHandler(logging.NullHandler())
        log.propagate = False
    return options.run(options, env)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return run(options)
    except (Wrong, SettingError) as error:
        print(f"peerage: {error}", file=sys.stderr)
        return WRONG
    except (Error, OSError) as error:
        print(f"peerage: {error}", file=sys.stderr)
        return NOT_WELL
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
