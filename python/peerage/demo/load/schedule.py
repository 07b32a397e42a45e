"""What is asked when, and what is done to the workers when: all of it fixed before the run begins.

Open loop: the instants do not depend on the answers, so a slow fleet cannot slow its own load down.
The load is heavy in duplicates: the same thing is asked a few times in a row, each time at another
worker, well within the time one upstream request takes.
"""
from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from .. import recorded

BURST_MAX = 8


@dataclass(frozen=True)
class Target:
    """A path of the reader, and the upstream request whose stamp its answer must bear."""

    path: str
    channel: str
    request: str


@dataclass(frozen=True)
class Arrival:
    due_s: float
    target: Target
    pick: int           # which of the workers that are up, modulo their number


@dataclass(frozen=True)
class Event:
    due_s: float
    kind: str           # kill, recycle or join
    pick: int


def targets() -> list[Target]:
    """Every endpoint of every recorded channel."""
    found = []
    for channel in recorded.CHANNELS.values():
        page, before, post = recorded.requests(channel)
        at = f"/c/{channel.name}"
        found += [
            Target(at, channel.name, page),
            Target(f"{at}/body", channel.name, page),
            Target(f"{at}/preview", channel.name, page),
            Target(f"{at}/feed.xml", channel.name, page),
            Target(f"{at}/more?before={channel.oldest_on_page}", channel.name, before),
            Target(f"{at}/{channel.newest - 3}", channel.name, post),
        ]
    return found


def arrivals(seed: int, rate: float, seconds: float, among: Sequence[Target]) -> list[Arrival]:
    dice = random.Random(f"arrivals/{seed}")
    total = int(rate * seconds)
    made: list[Arrival] = []
    deck: list[Target] = []
    while len(made) < total:
        if not deck:
            deck = list(among)
            dice.shuffle(deck)
        target, first = deck.pop(), dice.randrange(1 << 16)
        for step in range(min(dice.randint(1, BURST_MAX), total - len(made))):
            made.append(Arrival(len(made) / rate, target, first + step))
    return made


def events(seed: int, kind: str, every_s: float | None, seconds: float) -> list[Event]:
    """Random instants with the given mean, between half and one and a half of it apart: random enough
    to meet every phase of a TTL, regular enough that a short run has some."""
    if every_s is None:
        return []
    dice = random.Random(f"{kind}/{seed}")
    made: list[Event] = []
    at = dice.uniform(0.5, 1.5) * every_s
    while at < seconds:
        made.append(Event(at, kind, dice.randrange(1 << 16)))
        at += dice.uniform(0.5, 1.5) * every_s
    return made
