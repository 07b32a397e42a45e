"""What a run says: a progress bar while it lasts, a table and medians when it is over."""
from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from .run import Plan, Result, Tally, percentile

# Above this the generator itself was starved; latencies are still true, as they count from the
# instant a request was due, but they then say more about the machine than about the fleet.
LATE_P99_MS = 50.0


class Live:
    """Progress on standard error: a bar on a terminal, a line per phase where there is none."""

    def __init__(self, console: Console, title: str, seconds: float) -> None:
        self.console, self.title = console, title
        self.bar = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[seen]}"), console=console, transient=True,
            disable=not console.is_terminal)
        self.task: TaskID = self.bar.add_task(title, total=seconds, seen="")

    def __enter__(self) -> Live:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def said(self, line: str) -> None:
        self.bar.console.print(f"[dim]{self.title}:[/dim] {line}", highlight=False, soft_wrap=True)

    def progressed(self, gone_s: float, tally: Tally) -> None:
        events = "".join(f", {count} {kind}s" for kind, count in tally.events.items())
        self.bar.update(self.task, completed=gone_s, seen=(
            f"{tally.requests} requests, {sum(tally.errors.values())} errors{events}"))


def title(plan: Plan) -> str:
    sealed = ", encrypted" if plan.settings.encryption else ""
    away = f", {plan.settings.redis_delay_ms:g} ms away" if plan.settings.redis_delay_ms else ""
    return f"{plan.settings.nodes} nodes, {plan.settings.coordination}{away}{sealed}"


def remarks(result: Result) -> list[str]:
    """What the fields don't say: which errors, from where the answers came, how true the generator was."""
    tally = result.tally
    lines = []
    if tally.errors:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in tally.errors.most_common())
        lines.append(f"errors: {kinds}")
    tiers = ", ".join(f"{count} {tier}" for tier, count in tally.tiers.most_common())
    late = percentile(tally.late_ms, 99)
    lines.append(f"answered from: {tiers or 'nowhere'}; generator late by {late:g} ms at p99")
    if late > LATE_P99_MS:
        lines.append(f"the generator was starved (more than {LATE_P99_MS:g} ms late): "
                     "latencies are the machine's, not the fleet's")
    return lines


_NOT_NUMBERS = ("nodes", "coordination", "encryption", "rate", "seconds", "ttl_s")


def medians(runs: Iterable[dict[str, object]]) -> dict[str, dict[str, object]]:
    """Per coordination, the median of every measured field over its runs."""
    grouped: dict[str, list[dict[str, object]]] = {}
    for run in runs:
        grouped.setdefault(str(run["coordination"]), []).append(run)
    return {mode: {name: each[0][name] if name in _NOT_NUMBERS
                   else round(statistics.median([float(str(run[name])) for run in each]), 3)
                   for name in each[0]}
            for mode, each in grouped.items()}


# Headers short enough that a row of a churned fleet still fits eighty columns.
_SHOWN = {
    "errors": "errors", "wrong": "wrong", "retried": "retried", "kills": "kills",
    "recycles": "recycled", "joins": "joined", "fetches": "fetches", "lost": "lost",
    "needed": "needed", "fetches_per_key_per_ttl": "per\nTTL", "age_ms_max": "oldest\nms",
    "p50_ms": "p50\nms", "p99_ms": "p99\nms", "p99_hit_ms": "hits\np99",
}
_SHOWN_IF_ANY = ("wrong", "retried", "kills", "recycles", "joins", "lost")


def table(runs: Sequence[dict[str, object]], medians_of: dict[str, dict[str, object]]) -> Table:
    first = runs[0]
    made = Table(title=f"{first['nodes']} workers, {first['requests']} requests in "
                       f"{first['seconds']:g} s, {first['distinct']} distinct upstream requests, "
                       f"TTL {first['ttl_s']:g} s",
                 box=box.SIMPLE, padding=(0, 1, 0, 0))
    shown = [name for name in _SHOWN
             if name in first and (name not in _SHOWN_IF_ANY or any(run[name] for run in runs))]
    made.add_column("layer", no_wrap=True)
    for name in shown:
        made.add_column(_SHOWN[name], justify="right", no_wrap=True)
    for run in runs:
        made.add_row(_mode(run), *(_cell(name, run[name]) for name in shown))
    if medians_of:
        made.add_section()
        for run in medians_of.values():
            made.add_row(f"median {_mode(run)}", *(_cell(name, run[name]) for name in shown),
                         style="bold")
    return made


def _mode(run: dict[str, object]) -> str:
    return f"{run['coordination']}{' sealed' if run['encryption'] else ''}"


def _cell(name: str, value: object) -> str:
    if name == "fetches_per_key_per_ttl":
        return f"{value:.2f}"
    if name.endswith("_ms") or name == "age_ms_max":
        return f"{value:.0f}" if float(str(value)) >= 100 else f"{value:.1f}"
    return f"{value:g}"
