"""Caches: a name in front of keys, and how long values live where nothing else is said."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native, checks
from ._native import MISS, Hit, TooBigError
from .errors import LoopError, Raises
from .functions import Definition, Key, OfClass
from .loads import Terms, Work, items, to_ms

if TYPE_CHECKING:
    from .peers import Peers

UNSET: Any = object()
KEY_BYTES_MAX = 1024
CHANNEL_BYTES_MAX = 255


class Report(NamedTuple):
    """Who acknowledged a set or delete, and who could not be reached: addresses. With the
    layer off both are empty."""

    acknowledged: tuple[str, ...]
    unreached: tuple[str, ...]

    @classmethod
    def merged(cls, reports: Iterable[Report]) -> Report:
        """Of several changes: acknowledged is who acknowledged every one."""
        reports = list(reports)
        unreached = dict.fromkeys(a for r in reports for a in r.unreached)
        everywhere = dict.fromkeys(a for r in reports for a in r.acknowledged)
        return cls(tuple(a for a in everywhere if a not in unreached), tuple(unreached))


class Cache:
    """Made by `Peers.cache`. Keys of `get`, `set`, ... are str or bytes, apart from those of
    decorated functions; a Key (`fn.key(...)`) names a function's value as well."""

    def __init__(
        self, peers: Peers, name: str, ttl: float | None, jitter: float, stale: float,
        negative_ttl: float, load_timeout: float | None, timeout: float | None, pickle: bool,
        early: float = 0.0,
    ) -> None:  # fmt: skip
        self.peers, self.name = peers, name
        self._prefix = _native.escape(name) + b"="
        self._standard = {
            "ttl": ttl, "jitter": jitter, "stale": stale, "negative_ttl": negative_ttl,
            "load_timeout": load_timeout, "timeout": timeout, "pickle": pickle,
            "early": early,
        }  # fmt: skip
        self._terms = self._make_terms((), {})
        # Local hits are found without a step in Python, and `aget` asks without one; the
        # methods below are what these call for everything else.
        asked = peers._arguments(b"", self._terms, b"", b"", 0)
        for method in ("get", "get_or_load", "aget", "aget_or_load"):
            vars(self)[method] = _native.Fast(
                peers._node, self._prefix, getattr(self, method), method.startswith("a"), pickle,
                asked if method == "aget" else None, self._terms.raises.rebuild,
            )

    def __repr__(self) -> str:
        return f"<peerage.Cache {self.name!r}>"

    def _make_terms(self, raises: Any, changes: Mapping[str, Any]) -> Terms:
        said = {name: value for name, value in changes.items() if value is not UNSET}
        if "ttl" in said and "jitter" not in said and self._standard["jitter"]:
            said["jitter"] = 0.0 if said["ttl"] is None else min(
                self._standard["jitter"], checks.seconds("ttl", said["ttl"]) / 2)  # fmt: skip
        return Terms(self, **{**self._standard, **said}, raises=Raises(raises))

    # -- functions -----------------------------------------------------------------------

    def cached(
        self, template: str, *, channel: str | None = None, ttl: Any = UNSET, jitter: Any = UNSET,
        stale: Any = UNSET, negative_ttl: Any = UNSET, load_timeout: Any = UNSET,
        timeout: Any = UNSET, pickle: Any = UNSET, early: Any = UNSET, raises: Any = (),
        name: str | None = None, ignore: Iterable[str] = (),
    ) -> Callable[[Any], Any]:  # fmt: skip
        """Decorate a function, `def` or `async def`. The template's fields name the
        parameters that make the key, in its order; other text in it is for the reader."""
        terms = self._make_terms(raises, {
            "ttl": ttl, "jitter": jitter, "stale": stale, "negative_ttl": negative_ttl,
            "load_timeout": load_timeout, "timeout": timeout, "pickle": pickle, "early": early,
        })  # fmt: skip

        ignored = tuple(checks.several("parameters to ignore", ignore))

        def decorate(function: Any) -> Any:
            made = Definition(self, function, template, channel, terms, name, ignored)
            return made.fast if made.kind is None else OfClass(made)

        return decorate

    # -- keys ------------------------------------------------------------------------------

    def key(self, key: str | bytes) -> Key:
        """The canonical form of a raw key; a Key is one already."""
        if isinstance(key, Key):
            return key
        raw = checks.encoded("a key", key)
        if not raw:
            raise ValueError("a key is not empty")
        whole = Key(self._prefix + raw)
        if len(whole) > KEY_BYTES_MAX:
            raise TooBigError(
                f"a key with its cache's name in front is {len(whole)} bytes, at most "
                f"{KEY_BYTES_MAX}")
        return whole

    @staticmethod
    def _channel(channel: str | bytes | None) -> bytes:
        """An empty one is as good as none, in a question for a key as in a decorated function: a
        hit does not look at its channel, so a question must not fail by it either."""
        empty = channel is None or (isinstance(channel, (str, bytes)) and not channel)
        return b"" if empty else channel_name(channel)

    # -- loading -----------------------------------------------------------------------------

    def _loader_terms(self, raises: Any, changes: dict[str, Any]) -> Terms:
        if not raises and all(value is UNSET for value in changes.values()):
            return self._terms
        return self._make_terms(raises, changes)

    def get_or_load(
        self, key: str | bytes, loader: Callable[[], Any], *, channel: str | bytes | None = None,
        ttl: Any = UNSET, stale: Any = UNSET, negative_ttl: Any = UNSET,
        load_timeout: Any = UNSET, timeout: Any = UNSET, pickle: Any = UNSET, raises: Any = (),
    ) -> Any:  # fmt: skip
        """The value of a key, or what `loader()` makes of it: once in the whole fleet. On an
        event loop's thread it blocks that loop until the value is there; for a key which that
        very loop is loading it is a LoopError, since it could never end."""
        terms = self._loader_terms(raises, {
            "ttl": ttl, "stale": stale, "negative_ttl": negative_ttl,
            "load_timeout": load_timeout, "timeout": timeout, "pickle": pickle,
        })  # fmt: skip
        checks.function("a loader is a function without arguments", loader)
        is_async = inspect.iscoroutinefunction(loader)
        if is_async and self.peers._in_loop():
            raise LoopError("an async loader from within an event loop: await aget_or_load")
        work = Work(terms, loader, is_async=is_async)
        return self.peers._ask(work, self.key(key), self._channel(channel), _native.LOADS).value

    async def aget_or_load(
        self, key: str | bytes, loader: Callable[[], Any], *, channel: str | bytes | None = None,
        ttl: Any = UNSET, stale: Any = UNSET, negative_ttl: Any = UNSET,
        load_timeout: Any = UNSET, timeout: Any = UNSET, pickle: Any = UNSET, raises: Any = (),
    ) -> Any:  # fmt: skip
        """The same from an event loop. `loader()` is called on the loop; if it gives an
        awaitable, that is awaited in a task of its own."""
        terms = self._loader_terms(raises, {
            "ttl": ttl, "stale": stale, "negative_ttl": negative_ttl,
            "load_timeout": load_timeout, "timeout": timeout, "pickle": pickle,
        })  # fmt: skip
        checks.function("a loader is a function without arguments", loader)
        work = Work(terms, loader, is_async=True)
        answer = await self.peers._aask(
            work, self.key(key), self._channel(channel), _native.LOADS
        )
        return answer.value

    # -- one key -------------------------------------------------------------------------------

    def lookup(self, key: str | bytes, *, channel: str | bytes | None = None) -> Hit | None:
        """A Hit, or None if nobody has the key."""
        answer = self.peers._ask(None, self.key(key), self._channel(channel), 0, self._terms)
        return None if answer is MISS else answer

    async def alookup(self, key: str | bytes, *, channel: str | bytes | None = None) -> Hit | None:
        """`lookup`, from an event loop."""
        answer = await self.peers._aask(None, self.key(key), self._channel(channel), 0, self._terms)
        return None if answer is MISS else answer

    def get(
        self, key: str | bytes, default: Any = None, *, channel: str | bytes | None = None
    ) -> Any:
        """The value here or at the key's owner, else `default`. None is a value."""
        hit = self.peers._ask(None, self.key(key), self._channel(channel), 0, self._terms)
        return default if hit is MISS else hit.value

    async def aget(
        self, key: str | bytes, default: Any = None, *, channel: str | bytes | None = None
    ) -> Any:
        """`get`, from an event loop."""
        hit = await self.peers._aask(None, self.key(key), self._channel(channel), 0, self._terms)
        return default if hit is MISS else hit.value

    def _item(self, value: Any, ttl: Any, stale: Any) -> tuple[bytes, int, bytes, int, int]:
        item = items(self._terms, value)[0]
        ttl_ms = item[3] if ttl is UNSET else to_ms(ttl, "ttl")
        stale_ms = item[4] if stale is UNSET else 0 if stale is None else to_ms(stale, "stale")
        return (*item[:3], ttl_ms, stale_ms)

    def set(
        self, key: str | bytes, value: Any, *, channel: str | bytes | None = None,
        ttl: Any = UNSET, stale: Any = UNSET,
    ) -> Report:  # fmt: skip
        """Put a value at the key's owner and heir and drop it everywhere else."""
        item = self._item(value, ttl, stale)
        return self.peers._change(self.key(key), self._channel(channel), item, False)

    async def aset(
        self, key: str | bytes, value: Any, *, channel: str | bytes | None = None,
        ttl: Any = UNSET, stale: Any = UNSET,
    ) -> Report:  # fmt: skip
        """`set`, from an event loop."""
        item = self._item(value, ttl, stale)
        return await self.peers._achange(self.key(key), self._channel(channel), item, False)

    def delete(self, key: str | bytes, *, channel: str | bytes | None = None) -> Report:
        """Delete a key on every node; says who acknowledged."""
        return self.peers._change(self.key(key), self._channel(channel), None, False)

    async def adelete(self, key: str | bytes, *, channel: str | bytes | None = None) -> Report:
        """`delete`, from an event loop."""
        return await self.peers._achange(self.key(key), self._channel(channel), None, False)

    def invalidate_channel(self, channel: str | bytes) -> Report:
        """Delete all keys of a channel, of whatever cache."""
        name = channel_name(channel)
        return self.peers._change(name, name, None, True)

    async def ainvalidate_channel(self, channel: str | bytes) -> Report:
        """`invalidate_channel`, from an event loop."""
        name = channel_name(channel)
        return await self.peers._achange(name, name, None, True)

    # -- many keys -------------------------------------------------------------------------------

    def get_many(
        self, keys: Iterable[str | bytes], *, channel: str | bytes | None = None
    ) -> dict[Any, Any]:
        """Those that were found. Asked one after the other: what is not in this process costs
        a round trip to its owner each. `aget_many` asks all at once."""
        found = {key: self.get(key, MISS, channel=channel) for key in checks.several("keys", keys)}
        return {key: value for key, value in found.items() if value is not MISS}

    async def aget_many(
        self, keys: Iterable[str | bytes], *, channel: str | bytes | None = None
    ) -> dict[Any, Any]:
        """`get_many`, from an event loop: all are asked at once."""
        keys = list(dict.fromkeys(checks.several("keys", keys)))
        values = await _all([self.aget(key, MISS, channel=channel) for key in keys])
        return {k: value for k, value in zip(keys, values, strict=True) if value is not MISS}

    def set_many(
        self, values: Mapping[Any, Any], *, channel: str | bytes | None = None,
        ttl: Any = UNSET, stale: Any = UNSET,
    ) -> Report:  # fmt: skip
        """`set` for each, one after the other (`aset_many`: all at once); the report names a
        node as reached if it acknowledged them all."""
        return Report.merged(
            self.set(key, value, channel=channel, ttl=ttl, stale=stale)
            for key, value in _pairs(values)
        )

    async def aset_many(
        self, values: Mapping[Any, Any], *, channel: str | bytes | None = None,
        ttl: Any = UNSET, stale: Any = UNSET,
    ) -> Report:  # fmt: skip
        """`set_many`, from an event loop: all at once."""
        return Report.merged(await _all([
            self.aset(key, value, channel=channel, ttl=ttl, stale=stale)
            for key, value in _pairs(values)
        ]))  # fmt: skip

    def delete_many(
        self, keys: Iterable[str | bytes], *, channel: str | bytes | None = None
    ) -> Report:
        """`delete` for each, one after the other, with one report. Each takes as long as its
        slowest node; `adelete_many` deletes all at once."""
        each = checks.several("keys", keys)
        return Report.merged(self.delete(key, channel=channel) for key in each)

    async def adelete_many(
        self, keys: Iterable[str | bytes], *, channel: str | bytes | None = None
    ) -> Report:
        """`delete_many`, from an event loop: all at once."""
        return Report.merged(await _all([
            self.adelete(key, channel=channel) for key in checks.several("keys", keys)
        ]))


def channel_name(channel: str | bytes) -> bytes:
    raw = checks.encoded("a channel", channel)
    if not raw:
        raise ValueError("a channel is not empty")
    if len(raw) > CHANNEL_BYTES_MAX:
        raise TooBigError(f"a channel is {len(raw)} bytes, at most {CHANNEL_BYTES_MAX}")
    return raw


def _pairs(values: Any) -> Any:
    checks.mapping("several values: keys and their values", values)
    return values.items()


async def _all(questions: list[Any]) -> list[Any]:
    return list(await asyncio.gather(*questions))
