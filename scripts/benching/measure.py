"""How a row is measured: ours and the others take turns within one run, round by round, so
that what else the machine does meets all of them alike. A row's numbers are medians over
everything that was timed; ratios are what to trust on a shared machine, more than times."""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any


@dataclass
class Row:
    name: str
    unit: str
    ours: float
    others: dict[str, float]
    against: str                # the name among `others` that the ratio is of
    goal: float | None = None   # the ratio to reach
    p99: dict[str, float] = field(default_factory=dict)
    note: str = ""
    ratio_is: float | None = None   # where it is not ours / against

    @property
    def ratio(self) -> float:
        if self.ratio_is is not None:
            return self.ratio_is
        return self.ours / self.others[self.against] if self.others[self.against] else float("inf")

    def as_json(self) -> dict:
        return {
            "name": self.name, "ours": self.ours, "others": self.others, "unit": self.unit,
            "ratio": self.ratio, "against": self.against, "goal": self.goal, "p99": self.p99,
            "note": self.note,
        }  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How much is measured; `quick` is for a smoke test and its numbers say nothing."""

    quick: bool = False

    def calls(self, normal: int, quick: int) -> int:
        return quick if self.quick else normal

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 9


def row_of(name: str, unit: str, timed: dict[str, list[float]], against: str, goal: float | None,
           note: str = "") -> Row:  # fmt: skip
    medians = {who: statistics.median(values) for who, values in timed.items()}
    p99 = {who: sorted(values)[len(values) * 99 // 100] for who, values in timed.items()}
    ours = medians.pop("ours")
    return Row(name, unit, ours, medians, against, goal, p99, note)


def best_of(others: dict[str, float]) -> str:
    return min(others, key=lambda who: others[who])


def time_rounds(subjects: dict[str, Callable[[Any], None]], calls: int, size: Size,
                fresh: Callable[[], Any], turns: int = 9) -> dict[str, list[float]]:  # fmt: skip
    """Nanoseconds a call, the mean of a round. A subject makes so many calls itself, of what
    `fresh` has made before its time begins."""
    timed: dict[str, list[float]] = {who: [] for who in subjects}
    order = list(subjects.items())
    gc.collect()
    gc.disable()
    try:
        for turn in range(size.rounds * turns + 1):
            # whoever comes after a slow one would meet the scheduler more often
            random.shuffle(order)
            for who, run in order:
                given = fresh()
                began = time.perf_counter_ns()
                run(given)
                spent = (time.perf_counter_ns() - began) / calls
                if turn:                # the first round warms up
                    timed[who].append(spent)
    finally:
        gc.enable()
    return timed


def time_tight(subjects: dict[str, Callable[[int], None]], loops: int, size: Size, turns: int = 9,
               ) -> dict[str, list[float]]:  # fmt: skip
    """A subject runs its statement so many times itself (`tight`)."""
    return time_rounds(subjects, loops, size, lambda: loops, turns)


def time_fresh(subjects: dict[str, Callable[[str], object]], keys: list[str], size: Size,
               ) -> dict[str, list[float]]:  # fmt: skip
    """A subject is called with every key. These are made anew for each round: as an
    application has them, their hashes not known yet."""
    def all_of(get: Callable[[str], object]) -> Callable[[list[str]], None]:
        def run(fresh: list[str]) -> None:
            for key in fresh:
                get(key)

        return run

    return time_rounds({who: all_of(get) for who, get in subjects.items()}, len(keys), size,
                       lambda: [key[:1] + key[1:] for key in keys])  # fmt: skip


def time_calls(subjects: dict[str, tuple[Callable[[str], object], Callable[[], list[str]]]],
               size: Size) -> dict[str, list[float]]:  # fmt: skip
    """Microseconds of every single call. A subject is what is called with a key, and what
    gives the keys of a round."""
    timed: dict[str, list[float]] = {who: [] for who in subjects}
    clock = time.perf_counter_ns
    for turn in range(size.rounds + 1):
        for who, (call, keys) in subjects.items():
            spent = []
            for key in keys():
                began = clock()
                call(key)
                spent.append((clock() - began) / 1000)
            if turn:                    # the first round warms up
                timed[who] += spent
    return timed


async def time_awaits(
    subjects: dict[str, tuple[Callable[[str], Awaitable[object]], Callable[[], list[str]]]],
    size: Size,
) -> dict[str, list[float]]:
    timed: dict[str, list[float]] = {who: [] for who in subjects}
    clock = time.perf_counter_ns
    for turn in range(size.rounds + 1):
        for who, (call, keys) in subjects.items():
            spent = []
            for key in keys():
                began = clock()
                await call(key)
                spent.append((clock() - began) / 1000)
            if turn:
                timed[who] += spent
    return timed


def tight(statement: str, **names: object) -> Callable[[int], None]:
    """A function that runs a statement so many times, the names being its locals."""
    source = f"def run(loops):\n    for _ in repeat(None, loops):\n        {statement}\n"
    space: dict[str, object] = {"repeat": repeat}
    given = ", ".join(f"{name}={name}" for name in names)
    source = source.replace("def run(loops)", f"def run(loops, *, {given})" if given else "def run(loops)")
    space.update(names)
    exec(source, space)
    return space["run"]     # type: ignore[return-value]


def elsewhere(function: Callable[..., float], *given: object) -> float:
    """What a function of a module gives in a process of its own, whose memory is its alone."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *given).result()


def cpu_us(pid: int) -> float:
    """Processor time of all threads of a process, user and system, from the scheduler's own
    count (ticks of 10 ms would be too coarse)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1000


def private_dirty(pid: int) -> int:
    """Bytes that are this process's alone."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no Private_Dirty in smaps_rollup")
