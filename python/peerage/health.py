"""A health answer: what a worker's readiness endpoint says of the peer layer.

A worker whose layer is alone, or whose Redis is away, serves all the same: it fetches for
itself. So that is said and never makes it unready; a load balancer that took such workers
away would turn a lost link into an outage. Ready is false only before the start and once
the worker drains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .peers import Peers

REDIS = ("unused", "connecting", "there", "away")


def health(peers: Peers) -> dict[str, Any]:
    """JSON-like: `ready`, `state`, `settled` (it has found its place among the others),
    `members` (live ones, itself included), `warming` (of these, who own nothing yet, as far as
    this worker has heard), `alone`, `redis`, and `notes` in words."""
    stats = peers.stats()
    state = stats["state"]
    redis = REDIS[int(stats["redis_state"])]
    live = [m for m in peers.members() if m.live and not m.observer]
    members = len(live)
    alone = peers.enabled and members <= 1
    notes = []
    if not peers.enabled:
        notes.append("the peer layer is off: this worker works alone")
    elif state == "conflict":
        notes.append("another node has this node's address: this worker works alone")
    elif alone:
        notes.append("no peer is known: this worker fetches every key itself")
    if redis == "away":
        notes.append("Redis is away: this worker goes on without it")
    return {
        "ready": not peers.enabled or state not in ("new", "draining", "closed"),
        "state": state,
        "settled": state not in ("new", "looking", "warming"),
        "members": members,
        "warming": sum(m.warming for m in live),
        "alone": alone,
        "redis": redis,
        "notes": notes,
    }
