"""Rows within one process: what a hit costs where no network is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .measure import Row, Size, best_of, row_of, tight, time_tight
from .nodes import KB56, value_of


def _alone(**settings):
    import peerage

    return peerage.Peers(enable_peers=False, **settings)


def local_hit(size: Size) -> Iterator[Row]:
    import cachebox
    import cachetools

    keys = [f"durov/{n}" for n in range(64)]
    values = {key: value_of(key, KB56) for key in keys}
    cache = _alone().cache("pages", ttl=3600)
    box = cachebox.TTLCache(1000, 3600)
    tools = cachetools.TTLCache(1000, 3600)
    plain = dict(values)
    for key, value in values.items():
        cache.set(key, value)
        box[key] = tools[key] = value
    assert all(cache.get(key) is values[key] for key in keys)      # no copy
    statement = "for key in keys: get(key)"
    timed = time_tight({
        "ours": tight(statement, keys=keys, get=cache.get),
        "cachebox": tight(statement, keys=keys, get=box.get),
        "cachetools": tight(statement, keys=keys, get=tools.get),
        "dict": tight(statement, keys=keys, get=plain.get),
    }, size.calls(50, 5), size)  # fmt: skip
    for who in timed:
        timed[who] = [ns / len(keys) for ns in timed[who]]
    row = row_of("local_hit", "ns", timed, "cachebox", 1.0)
    yield row
    yield Row("local_hit_dict", "ns", row.ours, {"dict": row.others["dict"]}, "dict", 3.5,
              note="the same run")  # fmt: skip


def _decorated(name: str, made, kept, decode: str, size: Size, loops: int, turns: int = 9,
               ) -> Iterator[Row]:  # fmt: skip
    """Functions of one str and one int, by each library's own decorator. `made` is what the
    application wants, `kept` what the others keep of it, to be decoded at each hit as ours."""
    import cachebox
    import cachetools

    cache = _alone().cache("pages", ttl=3600)
    ours = cache.cached("{channel}/{before}")(lambda channel, before: made)

    def theirs(channel, before):
        return kept

    box = cachebox.cached(cachebox.TTLCache(1000, 3600))(theirs)
    tools = cachetools.cached(cachetools.TTLCache(1000, 3600))(theirs)
    assert ours("durov", 3) == made
    space = {"loads": json.loads}
    statement = decode.format("f('durov', 3)")
    timed = time_tight({
        "ours": tight("f('durov', 3)", f=ours),
        "cachebox": tight(statement, f=box, **space),
        "cachetools": tight(statement, f=tools, **space),
    }, size.calls(loops, 20), size, turns)  # fmt: skip
    row = row_of(name, "ns", timed, "cachebox", 1.0)
    row.against = best_of(row.others)
    yield row


def local_hit_decorated(size: Size) -> Iterator[Row]:
    value = value_of("durov", KB56)
    yield from _decorated("local_hit_decorated", value, value, "{}", size, 4000)


def local_hit_str(size: Size) -> Iterator[Row]:
    text = value_of("durov", KB56 // 2).hex()
    yield from _decorated("local_hit_str", text, text.encode(), "{}.decode()", size, 400)


def local_hit_json(size: Size) -> Iterator[Row]:
    page = [{"id": n, "text": f"post {n} " + "x" * 80, "views": n * 7} for n in range(440)]
    kept = json.dumps(page, separators=(",", ":")).encode()
    # nearly all of it is the decoding, the same for all: short blocks and many, or the machine's
    # moods decide
    yield from _decorated("local_hit_json", page, kept, "loads({})", size, 4, 90)
