#!/usr/bin/env python3
"""Does a fleet fetch each key once per TTL? Starts the recorded upstream and N real workers on
loopback, offers requests at a fixed rate (open loop), and counts from the upstream's own log.

    scripts/coalescing_load.py --nodes 6 --seconds 20 --coordination peers --json
    scripts/coalescing_load.py --nodes 6 --compare none,peers --repeat 3
    scripts/coalescing_load.py --nodes 6 --compare none,redis,peers --redis-delay-ms 90

Exit status: 0, 1 if there were errors or wrong answers, 2 if the run could not be made.
"""
from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

try:
    from rich.console import Console

    from peerage.demo.load import report
    from peerage.demo.load.fleet import FleetError, Settings
    from peerage.demo.load.run import Plan, Result, measure
except ModuleNotFoundError as missing:
    sys.exit(f"coalescing_load: {missing.name} is missing; "
             "scripts/demo.sh sets everything up, or: pip install '.[demo]'")

MODES = ("none", "redis", "peers")


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def delay(text: str) -> float:
    value = float(text)
    if not 0 <= value < 2000:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 2000")
    return value


def count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 100")
    return value


def modes(text: str) -> list[str]:
    asked = text.split(",")
    if not asked or len(set(asked)) != len(asked) or not set(asked) <= set(MODES):
        raise argparse.ArgumentTypeError(f"{text} is not a list of {', '.join(MODES)}")
    return asked


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=count, default=2, help="workers (2)")
    parser.add_argument("--seconds", type=positive, default=20.0, help="how long to measure (20)")
    parser.add_argument("--rate", type=positive, default=200.0, help="requests offered a second (200)")
    parser.add_argument("--coordination", choices=MODES, default="peers",
                        help="none: the layer is off, each worker coalesces for itself; redis: the "
                             "lease in a Redis of its own, without peers (peers)")
    parser.add_argument("--redis-delay-ms", type=delay, default=0.0, metavar="MS",
                        help="that Redis is so far away: added to each round trip (0)")
    parser.add_argument("--encryption", action="store_true", help="PEER_ENCRYPTION in every worker")
    parser.add_argument("--kill-every", type=positive, metavar="S",
                        help="SIGKILL a worker about every S seconds and start another")
    parser.add_argument("--recycle-every", type=positive, metavar="S",
                        help="SIGTERM a worker about every S seconds and start another")
    parser.add_argument("--join-every", type=positive, metavar="S",
                        help="start one more worker about every S seconds")
    parser.add_argument("--compare", type=modes, metavar="A,B",
                        help="alternate these modes on the same schedule, and give medians")
    parser.add_argument("--repeat", type=count, default=1, metavar="K", help="runs of each mode (1)")
    parser.add_argument("--ttl", type=positive, default=10.0, metavar="S", help="TTL of pages (10)")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule and the kills (1)")
    parser.add_argument("--json", action="store_true", help="one object per run on standard output")
    parser.add_argument("--logs", type=Path, metavar="DIR",
                        help="keep what the upstream and the workers print (not kept)")
    return parser.parse_args()


async def run_all(args: argparse.Namespace, errors: Console) -> list[Result]:
    # A plain `kill` of this script ends the fleet as Ctrl-C does.
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    results = []
    for turn in range(args.repeat):
        for mode in args.compare or [args.coordination]:
            plan = Plan(
                Settings(args.nodes, mode, args.encryption and mode != "none", args.ttl,
                         redis_delay_ms=args.redis_delay_ms if mode == "redis" else 0.0),
                args.rate, args.seconds, args.seed,
                args.kill_every, args.recycle_every, args.join_every,
                args.logs and args.logs / f"{mode}-{turn + 1}")
            title = report.title(plan) + (f" ({turn + 1}/{args.repeat})" if args.repeat > 1 else "")
            with report.Live(errors, title, args.seconds) as live:
                result = await measure(plan, live.said, live.progressed)
                for line in report.remarks(result):
                    live.said(line)
            results.append(result)
            if args.json:
                print(json.dumps(result.as_json()), flush=True)
    return results


def main() -> int:
    args = arguments()
    errors = Console(stderr=True)
    try:
        results = asyncio.run(run_all(args, errors))
    except FleetError as error:
        errors.print(f"coalescing_load: {error}", style="red", highlight=False, soft_wrap=True)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        errors.print("coalescing_load: stopped; everything it started has ended")
        return 130
    runs = [result.as_json() for result in results]
    medians = report.medians(runs) if args.compare or args.repeat > 1 else {}
    if args.json and args.compare:
        print(json.dumps({"medians": medians}), flush=True)
    (errors if args.json else Console()).print(report.table(runs, medians))
    return 1 if any(run["errors"] or run["wrong"] for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
