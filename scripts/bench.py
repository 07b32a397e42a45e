#!/usr/bin/env python3
"""What the layer costs, beside what else there is: each row runs ours and the others by
turns, and prints medians, p99 and the ratio (ours / the rival named; below 1 is ahead).

    scripts/bench.py                          every row, some twenty minutes
    scripts/bench.py --only local_hit         rows whose name begins so; may be repeated
    scripts/bench.py --json                   one object per row
    scripts/bench.py --chart docs/bench.png   and draw it
    scripts/bench.py --quick                  does every row run? Its numbers say nothing

Needs: pip install 'peerage[bench,demo]', redis-server, memcached, openssl, a compiler for the
rows of the C side, and PyPI for recorded traces (hit_ratio_public: 81 MB once, see traces.py). A
row whose needs are missing is left out, and said so on stderr.
Exit status: 0, 1 if a row failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from benching import chart, fleet, kept, local, owner  # noqa: E402
from benching.measure import Row, Size  # noqa: E402
from benching.rivals import Missing  # noqa: E402

ROWS: dict[str, Callable[[Size], Iterator[Row]]] = {
    "local_hit": local.local_hit,
    "local_hit_decorated": local.local_hit_decorated,
    "local_hit_str": local.local_hit_str,
    "local_hit_json": local.local_hit_json,
    "owner_hit_sync_56k": partial(owner.owner_hit_sync, label="56k"),
    "owner_hit_sync_1k": partial(owner.owner_hit_sync, label="1k"),
    "owner_hit_sync_56k_encrypted": partial(owner.owner_hit_sync, label="56k", encrypted=True),
    "owner_hit_async_56k": partial(owner.owner_hit_async, label="56k"),
    "owner_hit_async_1k": partial(owner.owner_hit_async, label="1k"),
    "owner_floor_56k": owner.owner_floor,
    "owner_cpu_1k": partial(owner.owner_cpu, label="1k"),
    "owner_cpu_56k": partial(owner.owner_cpu, label="56k"),
    "owner_cpu_1k_pipelined": partial(owner.owner_cpu, label="1k", deep=16),
    "load_overhead": fleet.load_overhead,
    "hit_ratio": kept.hit_ratio,
    "hit_ratio_public": kept.hit_ratio_public,
    "memory_per_entry": fleet.memory_per_entry,
    "idle": fleet.idle,
    "grow_get": fleet.grow_get,
    "grow_owner": owner.grow_owner,
    "grow_nodes": fleet.grow_nodes,
}


def show(row: Row) -> str:
    def said(who: str, value: float) -> str:
        tail = f" (p99 {row.p99[who]:.4g})" if who in row.p99 else ""
        return f"{who} {value:.4g}{tail}"

    goal = "" if row.goal is None else f"  to reach {row.goal:.3g}" + (
        "" if row.ratio <= row.goal else "  MISSED")
    others = ", ".join(said(who, value) for who, value in row.others.items())
    head = f"{row.name:34} {said('ours', row.ours)} {row.unit}  ratio {row.ratio:.3f}{goal}"
    return head + f"\n    {others}" + (f"\n    {row.note}" if row.note else "")


def chosen(only: list[str]) -> dict[str, Callable[[Size], Iterator[Row]]]:
    """`local_hit` means just that row where there is one of this name, else a prefix."""
    if not only:
        return ROWS
    found = {}
    for name in only:
        these = {name: ROWS[name]} if name in ROWS else {
            row: run for row, run in ROWS.items() if row.startswith(name)}  # fmt: skip
        if not these:
            sys.exit(f"bench: no row {name!r}; there are: {', '.join(ROWS)}")
        found.update(these)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="ROW")
    parser.add_argument("--json", action="store_true", help="one object per row")
    parser.add_argument("--quick", action="store_true", help="does it run? numbers say nothing")
    parser.add_argument("--chart", metavar="PNG", help="draw the ratios")
    arguments = parser.parse_args()
    rows: list[Row] = []
    failed = False
    for name, run in chosen(arguments.only).items():
        try:
            for row in run(Size(arguments.quick)):
                rows.append(row)
                print(json.dumps(row.as_json()) if arguments.json else show(row), flush=True)
        except (Missing, ModuleNotFoundError) as missing:
            print(f"bench: {name} is left out: {missing}", file=sys.stderr)
        except Exception:
            print(f"bench: {name} failed", file=sys.stderr)
            traceback.print_exc()
            failed = True
    if arguments.chart and rows:
        chart.draw(rows, Path(arguments.chart))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
