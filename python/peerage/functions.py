"""Decorated functions: which key a call has, whether other nodes may ask for it to be run
here, and what is asked when the local store has nothing.

The hit itself is native (`_native.Function`, one call into C); a Definition is all the rest.

A function is *registered*, that is, runs at the key's owner, if every process can find it
under the same name and its arguments can be read back from the key: module-level, static or
a classmethod, not in `__main__` unless named, every parameter in the template or ignored.
Anything else is a closure: it runs where it was called, by leave of the owner.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import string
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native, checks
from ._native import MISS, Function, Hit, Template
from .loads import Leader, Terms, Work

if TYPE_CHECKING:
    from .cache import Cache, Report

LOADER_BYTES_MAX = 255


class CacheInfo(NamedTuple):
    """What calls of a function in this process came to."""

    local: int
    owner: int
    heir: int
    redis: int
    load: int
    error: int
    registered: bool
    name: str


class Key(bytes):
    """A canonical key, as `fn.key(...)` and `cache.key(...)` make it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Key({bytes.__repr__(self)})"

    def __str__(self) -> str:
        return self.decode("utf-8", "backslashreplace")


def template_names(template: str, what: str) -> list[tuple[str, str | None]]:
    """[(literal, name or None)] of a template whose fields are plain names."""
    if not isinstance(template, str):
        raise TypeError(f"{what}: a template such as '{{name}}', not {checks.kind(template)}")
    parts: list[tuple[str, str | None]] = []
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{what} {checks.shown(template)}: {error}") from None
    for literal, name, spec, conversion in parsed:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise ValueError(
                f"{what} {checks.shown(template)}: fields are plain names of parameters")
        parts.append((literal, name))
    return parts


class Definition:
    """One decorated function."""

    def __init__(
        self, cache: Cache, function: Any, template: str, channel: str | None, terms: Terms,
        name: str | None, ignore: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.cache, self.peers, self.terms = cache, cache.peers, terms
        if name is not None:
            checks.name("a function", name)
        self.kind = type(function) if isinstance(function, (staticmethod, classmethod)) else None
        self.function: Callable[..., Any] = function.__func__ if self.kind else function
        if not callable(self.function) or not hasattr(self.function, "__qualname__"):
            raise TypeError(f"cached() decorates a function, not {checks.kind(self.function)}")
        self.is_async = inspect.iscoroutinefunction(self.function)
        self.owner: type | None = None  # of a classmethod, told by __set_name__

        module, qualname = self.function.__module__, self.function.__qualname__
        self.name = name if name is not None else f"{module}.{qualname}"
        prefix = _native.escape(cache.name) + b":" + _native.escape(self.name)
        slots = self._read_signature(prefix + b":", qualname, template, channel, ignore)
        self.loader = b""
        if self._is_registered(module, qualname, name is not None, slots, ignore):
            if len(prefix) > LOADER_BYTES_MAX:
                raise ValueError(f"{self.name}: names above {LOADER_BYTES_MAX} bytes; use name=")
            self.loader = prefix
        self.counts = {"owner": 0, "heir": 0, "redis": 0, "load": 0, "local": 0}
        self.errors = 0
        asked = self.peers._arguments(self.loader, terms, b"", b"", _native.LOADS)
        self.fast = Function(
            self.peers._node, self.template, self._amiss if self.is_async else self._miss,
            _bind, self.is_async, terms.pickle, asked if self.is_async else None,
            terms.raises.rebuild, self._lead, self._channel if channel is not None else None,
        )  # fmt: skip
        self._dress()
        self.peers._add_definition(prefix, self)

    # -- what a call is ------------------------------------------------------------------

    def _read_signature(
        self, prefix: bytes, qualname: str, template: str, channel: str | None,
        ignore: tuple[str, ...],
    ) -> set[str]:  # fmt: skip
        parameters = list(inspect.signature(self.function).parameters.values())
        if self.kind is classmethod:
            parameters = parameters[1:]
        plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        known = {p.name for p in plain}
        names = list(dict.fromkeys(n for _, n in template_names(template, "key") if n is not None))
        self.channel_parts = template_names(channel, "channel") if channel is not None else None
        in_channel = {n for _, n in self.channel_parts or () if n is not None}
        for missing in [n for n in (*names, *ignore, *in_channel) if n not in known]:
            raise ValueError(f"{qualname}() has no parameter {checks.shown(missing)}")
        if in_channel - set(names):
            raise ValueError(
                f"{qualname}(): {sorted(in_channel - set(names))} stand in the channel but not in "
                "the key: one key would have several owners"
            )
        if set(ignore) & set(names):
            raise ValueError(f"{qualname}(): {sorted(set(ignore) & set(names))} are in the key")
        for p in plain:
            if p.name in ignore and p.default is p.empty:
                raise ValueError(f"{qualname}(): the ignored parameter {p.name!r} needs a default")
        self.template = Template(
            prefix, qualname,
            tuple((p.name, int(p.kind)) if p.default is p.empty
                  else (p.name, int(p.kind), p.default) for p in plain),
            tuple(names),
            any(p.kind is p.VAR_POSITIONAL for p in parameters),
            any(p.kind is p.VAR_KEYWORD for p in parameters),
        )  # fmt: skip
        self._every_parameter = {p.name for p in parameters}
        return set(names)

    def _is_registered(
        self, module: str, qualname: str, named: bool, slots: set[str], ignore: tuple[str, ...]
    ) -> bool:
        return (
            "<locals>" not in qualname
            and "<lambda>" not in qualname
            and (module != "__main__" or named)
            and self._every_parameter <= slots | set(ignore)
        )

    def _dress(self) -> None:
        """Make the native object look like the function and give it its methods."""
        functools.update_wrapper(self.fast, self.function)
        fast: Any = self.fast
        for method in METHODS:
            setattr(fast, method, getattr(self, method))
        fast.definition = self
        if self.is_async:
            mark = getattr(inspect, "markcoroutinefunction", None)
            if mark is not None:
                mark(fast)
            marker = getattr(asyncio.coroutines, "_is_coroutine", None)
            if marker is not None:
                fast._is_coroutine = marker

    def _channel(self, key: bytes) -> bytes:
        if self.channel_parts is None:
            return b""
        values = self.template.values(key)
        text = "".join(
            literal + (str(values[name]) if name is not None else "")
            for literal, name in self.channel_parts
        )
        return checks.encoded("a channel", text)

    def _work(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
        if self.kind is classmethod:
            args = (self.owner, *args)
        return Work(self.terms, self.function, args, kwargs, self.loader, self.is_async)

    def work_of(self, key: bytes) -> Work:
        """For another node: the call that has this key."""
        return self._work(*self.template.arguments(key))

    # -- asking ----------------------------------------------------------------------------

    def _ask(self, key: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], flags: int) -> Hit:
        try:
            hit: Hit = self.peers._ask(self._work(args, kwargs), key, self._channel(key), flags)
        except Exception:
            self.errors += 1
            raise
        self.counts[hit.tier] += 1
        return hit

    async def _aask(
        self, key: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], flags: int
    ) -> Hit:
        try:
            hit: Hit = await self.peers._aask(
                self._work(args, kwargs), key, self._channel(key), flags)
        except Exception:
            self.errors += 1
            raise
        self.counts[hit.tier] += 1
        return hit

    def _miss(self, key: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._ask(key, args, kwargs, _native.LOADS).value

    async def _amiss(self, key: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (await self._aask(key, args, kwargs, _native.LOADS)).value

    def _lead(
        self, context: contextvars.Context, asked: tuple[Any, Any, Any],
        call: tuple[bytes, tuple[Any, ...], dict[str, Any]],
    ) -> Leader:  # fmt: skip
        """For a call that was asked for without a step in Python, and is to run the loader."""
        key, args, kwargs = call
        leader = Leader(self.peers, self._work(args, kwargs), key, context)
        leader.asked = asked
        return leader

    # -- what hangs on the function ----------------------------------------------------------

    def key(self, *args: Any, **kwargs: Any) -> Key:
        """The canonical key of a call."""
        return Key(self.template.key(*args, **kwargs))

    def lookup(self, *args: Any, **kwargs: Any) -> Any:
        """As the call itself, but a Hit: the value, where it came from, its age. To be
        awaited if the function is async."""
        key = self.template.key(*args, **kwargs)
        if self.is_async:
            return self._alookup(key, args, kwargs)
        hit = self.peers._node.peek(key, self.terms.pickle)
        if hit is MISS:
            return self._ask(key, args, kwargs, _native.LOADS)
        self.counts["local"] += 1
        return hit

    async def _alookup(self, key: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hit:
        hit: Hit = self.peers._node.peek(key, self.terms.pickle)
        if hit is MISS:
            return await self._aask(key, args, kwargs, _native.LOADS)
        self.counts["local"] += 1
        return hit

    def refresh(self, *args: Any, **kwargs: Any) -> Any:
        """Load although there is a value; what was there serves until the new one is."""
        key = self.template.key(*args, **kwargs)
        flags = _native.LOADS | _native.FRESH
        if not self.is_async:
            return self._ask(key, args, kwargs, flags).value
        return self._arefresh(key, args, kwargs, flags)

    async def _arefresh(
        self, key: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], flags: int
    ) -> Any:
        return (await self._aask(key, args, kwargs, flags)).value

    def invalidate(self, *args: Any, **kwargs: Any) -> Report:
        """Delete the value of this call on every node; says who acknowledged."""
        key = self.template.key(*args, **kwargs)
        return self.peers._change(key, self._channel(key), None, False)

    async def ainvalidate(self, *args: Any, **kwargs: Any) -> Report:
        """`invalidate`, from an event loop."""
        key = self.template.key(*args, **kwargs)
        return await self.peers._achange(key, self._channel(key), None, False)

    def cache_info(self) -> CacheInfo:
        """What became of this process's calls of the function so far."""
        there = self.fast.counts
        counts = {tier: here + there[tier] for tier, here in self.counts.items()}
        return CacheInfo(
            **counts, error=self.errors + there["error"], registered=bool(self.loader),
            name=self.name)


METHODS = ("key", "lookup", "refresh", "invalidate", "ainvalidate", "cache_info")


class BoundFunction:
    """A decorated method of an instance."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: Any, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__func__, name)
        if name in METHODS and name != "cache_info":
            return functools.partial(found, self.__self__)
        return found


def _bind(function: Any, instance: Any) -> BoundFunction:
    return BoundFunction(function, instance)


class OfClass:
    """A decorated staticmethod or classmethod: what the class body's name becomes. Learns
    its class, and gives the bare function, since the class is no part of the key."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition

    def __set_name__(self, owner: type, name: str) -> None:
        self.definition.owner = owner

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.definition.fast

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.definition.fast(*args, **kwargs)
