#!/usr/bin/env python3
"""Runs the membership figures in the simulator, checks each against its limit,
and writes them to docs/: a table (membership-figures.md) and a drawing
(membership-figures.png, if matplotlib is there).

    make -C native sim && scripts/swim_report.py [--quick] [--jobs N] [--only WORD]

--quick runs a tenth of the seeds and leaves out the largest, and writes nothing.
The exit status says whether every figure holds.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


class Limit:
    """One figure that must hold: a path into the JSON, and the most it may be."""

    def __init__(self, path, most, unit=""):
        self.path, self.most, self.unit = path, most, unit

    def value(self, run):
        for part in self.path.split("."):
            run = None if run is None else run[part]
        return run

    def holds(self, run):
        value = self.value(run)
        return value is not None and value <= self.most

    def text(self, run):
        value = self.value(run)
        shown = "never" if value is None else f"{value:g}"
        mark = "" if self.holds(run) else " **(missed)**"
        return f"{self.path.replace('_', ' ')} {shown} (at most {self.most:g}{self.unit}){mark}"


def crash(p50, p99=None):
    limits = [Limit("known_by_all_ms.p50", p50), Limit("unknown", 0), Limit("false_deaths", 0)]
    return limits + ([Limit("known_by_all_ms.p99", p99)] if p99 else [])


def load(most):
    return [Limit("messages_per_member_per_period.sent.mean", most), Limit("false_deaths", 0)]


NOBODY = [Limit("false_deaths", 0)]
NO_HEALTHY = [Limit("false_deaths_healthy", 0), Limit("unconverged", 0)]

# (name, options, seeds, limits)
TABLE = [
    ("crash, N = 2, no loss", "--nodes 2 --crash 1 --seconds 20", 500, crash(4000)),
    ("crash, N = 2, 5% loss", "--nodes 2 --hosts 2 --crash 1 --loss 0.05 --seconds 20", 500,
     crash(4000)),
    ("crash, N = 6, one host, 5% loss", "--nodes 6 --crash 1 --loss 0.05 --seconds 20", 500,
     crash(5000)),
    ("crash, N = 8, two hosts, 5% loss",
     "--nodes 8 --hosts 2 --crash 1 --loss 0.05 --seconds 30", 500, crash(5000)),
    ("crash, N = 16, one host, 5% loss", "--nodes 16 --crash 1 --loss 0.05 --seconds 20", 500,
     crash(5000)),
    ("crash, N = 64, 8 hosts, 5% loss",
     "--nodes 64 --hosts 8 --crash 1 --loss 0.05 --seconds 30", 500, crash(5000, 8000)),
    ("crash of 4, N = 1000, 64 hosts, 5% loss",
     "--nodes 1000 --hosts 64 --crash 4 --loss 0.05 --seconds 30", 20, crash(6500, 8000)),
    ("one of two hosts goes, 16 workers each, 5% loss",
     "--nodes 32 --hosts 2 --host-down --loss 0.05 --seconds 60", 50, crash(10000)),
    ("one of three hosts goes, 16 workers each, 5% loss",
     "--nodes 48 --hosts 3 --host-down --loss 0.05 --seconds 60", 50, crash(6000)),
    ("10 minutes, N = 64, 10% loss", "--nodes 64 --hosts 8 --loss 0.1 --seconds 600", 10, NOBODY),
    ("all 16 workers of the only host stall 3 s", "--nodes 16 --stall 3000 --seconds 20", 50,
     NOBODY),
    ("16 workers of one host of 4 stall 3 s",
     "--nodes 64 --hosts 4 --stall 3000 --loss 0.02 --seconds 20", 50, NOBODY),
    ("the same, 3 s stalled / 0.3 s running",
     "--nodes 64 --hosts 4 --stall 3000 --run 300 --loss 0.02 --seconds 120", 20, NOBODY),
    ("16 workers of one host of 2, 3 s / 0.3 s",
     "--nodes 32 --hosts 2 --stall 3000 --run 300 --loss 0.02 --seconds 120", 20, NOBODY),
    ("4 s stalled / 0.5 s running",
     "--nodes 64 --hosts 4 --stall 4000 --run 500 --loss 0.02 --seconds 120", 20, NO_HEALTHY),
    ("4 s stalled / 0.5 s running, two hosts",
     "--nodes 32 --hosts 2 --stall 4000 --run 500 --loss 0.02 --seconds 120", 20, NO_HEALTHY),
    *[(f"load, N = {n}, {'no' if loss == 0 else '5%'} loss",
       f"--nodes {n} --hosts {hosts} --loss {loss} --seconds 120", max(1, min(20, 2000 // n)),
       load(4.0 if loss else 2.5))
      for n, hosts in ((2, 1), (4, 2), (16, 4), (64, 8), (256, 16), (1000, 64))
      for loss in (0, 0.05)],
    ("1,999 others join one seed within 10 s",
     "--nodes 2000 --hosts 128 --join 10 --seconds 1", 3,
     [Limit("converge_ms.max", 15000), Limit("unconverged", 0), Limit("false_deaths", 0)]),
    ("10 of 1,000 lose all ingress, 20 s on, 20 s off",
     "--nodes 1000 --hosts 64 --deaf 10,20 --seconds 120", 4,
     NO_HEALTHY + [Limit("converge_ms.max", 15000)]),
    ("2/2 partition for 60 s", "--nodes 4 --hosts 2 --partition 60 --seconds 60", 200,
     NO_HEALTHY + [Limit("converge_ms.max", 15000)]),
    ("500/500 partition for 60 s", "--nodes 1000 --hosts 64 --partition 60 --seconds 60", 4,
     NO_HEALTHY + [Limit("converge_ms.max", 15000)]),
    ("10,000 nodes, one crash, 60 s", "--nodes 10000 --hosts 640 --crash 1 --seconds 60", 1,
     [Limit("unknown", 0), Limit("false_deaths", 0), Limit("bytes_per_record", 100),
      Limit("rss_mb", 12288)]),
]

CHAOS_SEEDS = 4096


def run(binary, options, seeds):
    command = [binary, *options.split(), "--seeds", str(seeds), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_chaos(binary, seeds):
    command = [binary, "--chaos", "--seeds", str(seeds)]
    done = subprocess.run(command, capture_output=True, text=True)
    failed = re.search(r"chaos: (\d+) of", done.stdout)
    return {"failed": int(failed.group(1)) if failed else None, "text": done.stdout}


def times(run_, key):
    t = run_.get(key)
    return "" if t is None else f"{t['p50']:.0f} / {t['p99']:.0f} / {t['max']:.0f}"


def markdown(rows, chaos, command, took_s):
    out = [
        "# Membership: figures",
        "",
        f"Made by `{command}` ({took_s:.0f} s), which runs `native/build/check/peerage-sim` with the",
        "options below, `--seeds` as in the second column and `--json`. Simulated time and",
        "network: 0.5 to 1 ms between hosts, a tenth of it within one; loss is per datagram,",
        "within a host too. Times are p50 / p99 / max in ms over all crashes of all seeds; load",
        "is of datagrams, and of bytes with the frame's 114, per member. False deaths count",
        "once for every node that holds a running member dead.",
        "",
        "| setting | seeds | known by all | converged | false deaths, healthy / all "
        "| sent per period, mean / p99 | bytes per s, mean | holds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, options, seeds, limits, r in rows:
        sent = r["messages_per_member_per_period"]["sent"]
        out.append(
            f"| {name} | {seeds} | {times(r, 'known_by_all_ms')} | {times(r, 'converge_ms')} "
            f"| {r['false_deaths_healthy']} / {r['false_deaths']} "
            f"| {sent['mean']:.2f} / {sent['p99']:.2f} "
            f"| {r['bytes_per_member_per_s']['sent']['mean']:.0f} "
            f"| {'yes' if all(l.holds(r) for l in limits) else 'NO'} |")
    out += ["", f"Chaos, then calm: {chaos['failed']} of {CHAOS_SEEDS} seeds failed "
            f"(`peerage-sim --chaos --seeds {CHAOS_SEEDS}`).", "",
            "## What was asked, and what came out", ""]
    for name, options, seeds, limits, r in rows:
        out.append(f"- **{name}** (`{options}`): " + "; ".join(l.text(r) for l in limits)
                   + f". {r['wall_s']:.1f} s, {r['rss_mb']:.0f} MB.")
    return "\n".join(out) + "\n"


def draw(rows, path):
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: nothing is drawn", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5))
    crashes = [(n, l, r) for n, _, _, l, r in rows if r["known_by_all_ms"]]
    for k, (name, limits, r) in enumerate(crashes):
        t = r["known_by_all_ms"]
        left.barh(k, t["p99"] / 1000, color="#c9d8ee")
        left.barh(k, t["p50"] / 1000, color="#3b6fb6")
        for limit in limits:
            if limit.path.startswith("known_by_all_ms"):
                style = "-" if limit.path.endswith("p50") else ":"
                left.plot([limit.most / 1000] * 2, [k - 0.4, k + 0.4], style, color="#b03030")
    left.set_yticks(range(len(crashes)), [name for name, _, _ in crashes], fontsize=8)
    left.invert_yaxis()
    left.set_xlabel("s until every survivor knows: p50 dark, p99 light, limits red")
    left.set_title("A crash")

    for loss, colour, most in ((0, "#3b6fb6", 2.5), (0.05, "#d07a20", 4.0)):
        points = [(r["nodes"], r["messages_per_member_per_period"]["sent"])
                  for n, _, _, _, r in rows if n.startswith("load") and r["loss"] == loss]
        xs = [x for x, _ in points]
        right.plot(xs, [s["mean"] for _, s in points], "o-", color=colour,
                   label=f"{loss:.0%} loss, mean")
        right.plot(xs, [s["p99"] for _, s in points], "o:", color=colour,
                   label=f"{loss:.0%} loss, p99 of members")
        right.axhline(most, color=colour, linewidth=0.7, linestyle="--")
    right.set_xscale("log")
    right.set_ylim(0, 5)
    right.set_xlabel("N")
    right.set_ylabel("datagrams sent per member and period")
    right.set_title("Load (dashed: the most the mean may be)")
    right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the seeds, no 10,000")
    parser.add_argument("--jobs", type=int, default=1, help="simulators at one time")
    parser.add_argument("--only", default="", help="rows whose name contains this; writes nothing")
    parser.add_argument("--sim", default=str(ROOT / "native/build/check/peerage-sim"))
    args = parser.parse_args()
    if not pathlib.Path(args.sim).exists():
        sys.exit(f"{args.sim} is missing: make -C native sim")

    began = time.monotonic()
    table = [row for row in TABLE if args.only in row[0]
             and not (args.quick and "10000" in row[1])]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        seeds = [max(1, row[2] // 10) if args.quick else row[2] for row in table]
        runs = [pool.submit(run, args.sim, row[1], n) for row, n in zip(table, seeds)]
        chaos_run = pool.submit(run_chaos, args.sim, CHAOS_SEEDS // (10 if args.quick else 1))
        rows = []
        for (name, options, _, limits), n, future in zip(table, seeds, runs):
            r = future.result()
            rows.append((name, options, n, limits, r))
            good = all(l.holds(r) for l in limits)
            print(f"{'ok    ' if good else 'MISSED'} {name}: "
                  + "; ".join(l.text(r) for l in limits), flush=True)
        chaos = chaos_run.result()
    print(f"{'ok    ' if chaos['failed'] == 0 else 'MISSED'} chaos: {chaos['failed']} seeds failed")
    if not args.quick and not args.only:
        DOCS.mkdir(exist_ok=True)
        text = markdown(rows, chaos, "scripts/swim_report.py", time.monotonic() - began)
        (DOCS / "membership-figures.md").write_text(text)
        draw(rows, DOCS / "membership-figures.png")
    good = chaos["failed"] == 0 and all(l.holds(r) for *_, limits, r in rows for l in limits)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
