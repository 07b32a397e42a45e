"""One measurement: a fleet, a schedule, and what came of it."""
from __future__ import annotations

import asyncio
import gc
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .. import recorded
from ..upstream import Fetch
from . import counting, schedule
from .client import Answer, ConnectionEnded
from .fleet import Fleet, FleetError, Settings, Worker

TIMEOUT_S = 5.0
AGE_SLACK_S = 0.25


@dataclass(frozen=True)
class Plan:
    settings: Settings
    rate: float = 200.0
    seconds: float = 20.0
    seed: int = 1
    kill_every_s: float | None = None
    recycle_every_s: float | None = None
    join_every_s: float | None = None
    logs: Path | None = None

    def events(self) -> list[schedule.Event]:
        made = [event for kind, every_s in (("kill", self.kill_every_s),
                                            ("recycle", self.recycle_every_s),
                                            ("join", self.join_every_s))
                for event in schedule.events(self.seed, kind, every_s, self.seconds)]
        return sorted(made, key=lambda e: e.due_s)


@dataclass
class Tally:
    """What the generator saw. Latencies are from the instant a request was due, not from when it was
    sent: a generator that is late must not make the fleet look fast."""

    requests: int = 0
    wrong: int = 0
    retried: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    tiers: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)
    hit_latencies_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    age_ms_max: float = 0.0

    def judge(self, target: schedule.Target, answer: Answer, ttl_s: float) -> None:
        """Counts one complete answer."""
        if answer.status != 200:
            self.errors[f"status {answer.status}"] += 1
            return
        self.tiers[answer.headers.get("peerage-tier", "none")] += 1
        stamp = recorded.find_stamp(answer.body)
        if stamp is None or (stamp.channel, stamp.request) != (target.channel, target.request):
            self.wrong += 1
            return
        age_s = answer.first_byte_at - stamp.at
        self.age_ms_max = max(self.age_ms_max, age_s * 1000)
        if age_s > ttl_s + AGE_SLACK_S:
            self.errors["older than its TTL"] += 1


@dataclass(frozen=True)
class Result:
    plan: Plan
    tally: Tally
    counts: counting.Counts

    def as_json(self) -> dict[str, object]:
        plan, tally, counts = self.plan, self.tally, self.counts
        fields: dict[str, object] = {
            "nodes": plan.settings.nodes,
            "coordination": plan.settings.coordination,
            "encryption": plan.settings.encryption,
            "rate": plan.rate,
            "seconds": plan.seconds,
            "ttl_s": plan.settings.ttl_s,
            "distinct": counts.distinct,
            "requests": tally.requests,
            "errors": sum(tally.errors.values()),
            "wrong": tally.wrong,
            "retried": tally.retried,
            "kills": tally.events["kill"],
            "fetches": counts.fetches,
            "lost": counts.lost,
            "needed": counts.needed,
            "fetches_per_key_per_ttl": round(counts.per_key_per_ttl, 3),
            "age_ms_max": round(tally.age_ms_max, 1),
            "p50_ms": percentile(tally.latencies_ms, 50),
            "p99_ms": percentile(tally.latencies_ms, 99),
            "p99_hit_ms": percentile(tally.hit_latencies_ms, 99),
        }
        for kind, every_s in (("recycle", plan.recycle_every_s), ("join", plan.join_every_s)):
            if every_s is not None:
                fields[f"{kind}s"] = tally.events[kind]
        return fields


def percentile(values: list[float], rank: float) -> float:
    """Nearest rank: a value that really occurred."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(rank / 100 * len(ordered)) - 1)], 2)


async def measure(plan: Plan, said: Callable[[str], None],
                  progressed: Callable[[float, Tally], None]) -> Result:
    """Runs the plan. `said` gets a line per phase, `progressed` the seconds gone, several a second."""
    events = plan.events()
    joins = sum(e.kind == "join" for e in events)
    said(f"starting {plan.settings.nodes} workers and the upstream")
    async with Fleet(plan.settings, extra_slots=joins, logs=plan.logs) as fleet:
        said(f"all {plan.settings.nodes} ready; measuring {plan.seconds:g} s "
             f"at {plan.rate:g} requests/s")
        generator = _Generator(plan, fleet)
        gc.collect()
        gc.freeze()
        try:
            await generator.run(events, progressed)
            log = await fleet.log()
            counts = counting.count(log, fleet.killed_at, plan.settings.ttl_s)
        finally:
            gc.unfreeze()
        if plan.logs is not None:
            _keep(plan.logs / "fetches.json", log, counts, fleet)
    return Result(plan, generator.tally, counts)


def _keep(path: Path, log: list[Fetch], counts: counting.Counts, fleet: Fleet) -> None:
    """What the count was made from, and which fetches it found needless: why they happened is then
    to be read from the workers' logs."""
    path.write_text(json.dumps({
        "events": fleet.events,
        "extra": [[asdict(extra), asdict(served)] for extra, served in counts.extra],
        "fetches": [asdict(fetch) for fetch in log],
    }, indent=1))


class _Generator:
    def __init__(self, plan: Plan, fleet: Fleet) -> None:
        self.plan, self.fleet, self.tally = plan, fleet, Tally()
        self.loop = asyncio.get_running_loop()
        self.arrivals = schedule.arrivals(plan.seed, plan.rate, plan.seconds, schedule.targets())

    async def run(self, events: list[schedule.Event],
                  progressed: Callable[[float, Tally], None]) -> None:
        start = self.loop.time() + 0.05
        asked = [asyncio.ensure_future(self.offer(start)),
                 asyncio.ensure_future(self.disturb(start, events))]
        side = asyncio.ensure_future(self.watch(start, progressed))
        try:
            done, left = await asyncio.wait([*asked, side], return_when=asyncio.FIRST_EXCEPTION,
                                            timeout=self.plan.seconds + 60)
            for each in done:
                each.result()
            if left:
                raise FleetError("the run did not end within 60 s after its last request")
        finally:
            for each in (*asked, side):
                each.cancel()
            await asyncio.gather(*asked, side, return_exceptions=True)

    async def offer(self, start: float) -> None:
        flying: list[asyncio.Future[None]] = []
        try:
            for arrival in self.arrivals:
                due = start + arrival.due_s
                wait = due - self.loop.time()
                if wait > 0:
                    await asyncio.sleep(wait)
                self.tally.late_ms.append(max(0.0, (self.loop.time() - due) * 1000))
                flying.append(asyncio.ensure_future(self.ask(arrival, due)))
            await asyncio.gather(*flying)
        finally:
            for one in flying:
                one.cancel()

    async def ask(self, arrival: schedule.Arrival, due: float) -> None:
        self.tally.requests += 1
        give_up_at = self.loop.time() + TIMEOUT_S
        answer = await self.attempt(arrival, give_up_at)
        latency_ms = (self.loop.time() - due) * 1000
        self.tally.latencies_ms.append(latency_ms)
        if answer is None:
            return
        if answer.headers.get("peerage-tier", "load") != "load":
            self.tally.hit_latencies_ms.append(latency_ms)
        self.tally.judge(arrival.target, answer, self.plan.settings.ttl_s)

    async def attempt(self, arrival: schedule.Arrival, give_up_at: float) -> Answer | None:
        """As a balancer does it: once more, at another worker, where there was no answer."""
        tried: list[Worker] = []
        for _ in range(2):
            up = [w for w in self.fleet.up() if w not in tried]
            if not up:
                self.tally.errors["no worker up"] += 1
                return None
            worker = up[arrival.pick % len(up)]
            if tried:
                self.tally.retried += 1
            tried.append(worker)
            try:
                return await worker.client.get(arrival.target.path, give_up_at - self.loop.time())
            except asyncio.TimeoutError:
                self.tally.errors[f"no answer in {TIMEOUT_S:g} s"] += 1
                return None
            except ConnectionEnded:
                if worker.ending or worker.is_gone:
                    worker.up = False
        self.tally.errors["ended twice"] += 1
        return None

    async def disturb(self, start: float, events: list[schedule.Event]) -> None:
        under_way: list[asyncio.Future[None]] = []
        try:
            for event in events:
                await asyncio.sleep(max(0.0, start + event.due_s - self.loop.time()))
                up = [w for w in self.fleet.up() if not w.ending]
                if event.kind == "join":
                    under_way.append(asyncio.ensure_future(self.fleet.join()))
                elif len(up) > 1:
                    act = self.fleet.kill if event.kind == "kill" else self.fleet.recycle
                    under_way.append(asyncio.ensure_future(act(up[event.pick % len(up)])))
                else:
                    continue        # the last one up is never taken: no fleet could answer then
                self.tally.events[event.kind] += 1
            await asyncio.gather(*under_way)
        finally:
            for each in under_way:
                each.cancel()

    async def watch(self, start: float, progressed: Callable[[float, Tally], None]) -> None:
        end = start + self.plan.seconds
        while self.loop.time() < end:
            self.fleet.check()
            progressed(max(0.0, self.loop.time() - start), self.tally)
            await asyncio.sleep(0.2)
        progressed(self.plan.seconds, self.tally)
