"""Settings: the environment's variables, the same as keyword arguments, one line for a
wrong one (the variable, what it got, what it takes).

Here a text becomes a number or a flag; what the numbers and names may be is checked by the
native part, which words its errors in the same way.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ._native import SettingError
from .checks import line, mapping, shown

FLAGS = {"true": True, "1": True, "yes": True, "on": True,
         "false": False, "0": False, "no": False, "off": False}  # fmt: skip
UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


class Wrong(Exception):
    """What a setting takes."""


def flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    takes = "true or false"
    try:
        return FLAGS[written(value, takes).lower()]
    except KeyError:
        raise Wrong(takes) from None


def written(value: Any, takes: str) -> str:
    """A number as the environment would have it. Python makes no text of a really large one."""
    if isinstance(value, str):
        return value.strip()
    try:
        number = operator.index(value)
    except TypeError:
        raise Wrong(takes) from None
    if isinstance(value, bool) or not 0 <= number < 1 << 63:
        raise Wrong(takes)
    return str(number)


def whole(least: int, most: int, what: str) -> Callable[[Any], int]:
    takes = f"{what}, {least} to {most}"

    def read(value: Any) -> int:
        text = written(value, takes)
        if not text.isascii() or not text.isdigit():
            raise Wrong(takes)
        number = int(text[:20])
        if not least <= number <= most:
            raise Wrong(takes)
        return number

    return read


def seconds(value: Any) -> float:
    takes = "seconds, such as 0.25"
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise Wrong(takes) from None
    if isinstance(value, bool) or not math.isfinite(number) or number <= 0:
        raise Wrong(takes)
    return number


def size(value: Any) -> int:
    takes = "bytes, as a number or with KiB, MiB, GiB"
    text = written(value, takes)
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = UNITS.get(text[len(digits) :].strip().lower())
    if unit is None or not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise Wrong(takes)
    number = int(digits) * unit
    if not 0 < number < 1 << 63:
        raise Wrong(takes)
    return number


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong("text")
    return value


def texts(value: Any) -> str:
    """Comma-separated in the environment; a list is as good in Python."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        parts = list(value)
        if all(isinstance(part, str) for part in parts):
            return ",".join(parts)
        raise Wrong("a list of texts")
    return text(value)


class Setting(NamedTuple):
    variable: str
    keyword: str
    option: str | None      # of the native part; None: the Python layer's own
    read: Callable[[Any], Any]


SETTINGS = [
    Setting("ENABLE_PEERS", "enable_peers", "enabled", flag),
    Setting("PEER_SECRET", "secret", "secret", texts),
    Setting("PEERS", "peers", "peers", texts),
    Setting("PEER_PORT", "port", "port", whole(1, 65535, "a port")),
    Setting("PEER_PORT_RANGE", "port_range", "port_range", whole(1, 1024, "how many ports")),
    Setting("PEER_LISTEN", "listen", "listen", text),
    Setting("PEER_ADVERTISE_ADDR", "advertise_addr", "advertise", text),
    Setting("PEER_ALLOW_CIDR", "allow_cidr", "allow_cidr", texts),
    Setting("PEER_ENCRYPTION", "encryption", "encryption", flag),
    Setting("PEER_LABEL", "label", "label", text),
    Setting("PEER_TIMEOUT", "timeout", "timeout_s", seconds),
    Setting("PEER_LOAD_TIMEOUT", "load_timeout", "load_timeout_s", seconds),
    Setting("PEER_LOADERS", "loaders", None, whole(1, 1024, "how many threads")),
    Setting("PEER_HEIR", "heir", "heir", flag),
    Setting("PEER_COORDINATE", "coordinate", "coordinate", flag),
    Setting("PEER_UNIX_SOCKETS", "unix_sockets", "unix_sockets", flag),
    Setting("PEER_SPIN_US", "spin_us", "spin_us", whole(0, 200, "microseconds")),
    Setting("PEER_CACHE_BYTES", "cache_bytes", "cache_bytes", size),
    Setting("REDIS_URL", "redis_url", "redis_url", text),
    Setting("PEER_REDIS_PREFIX", "redis_prefix", "redis_prefix", text),
]
SECRETS = {"PEER_SECRET", "REDIS_URL"}  # never shown
BY_KEYWORD = {setting.keyword: setting for setting in SETTINGS}
DEFAULTS = {"enable_peers": False, "loaders": 32}


def wrong(variable: str, got: Any, takes: str) -> SettingError:
    said = f'"{line(got)}"' if isinstance(got, str) else shown(got)
    if variable in SECRETS:
        said = "something else"
    return SettingError(f"{variable}: got {said}, takes {takes}")


def is_plain(text: str) -> bool:
    """Can it be handed to the native part as it is?"""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def check(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments, checked and of their own types; defaults that Python needs added."""
    checked: dict[str, Any] = dict(DEFAULTS)
    for keyword, value in settings.items():
        setting = BY_KEYWORD.get(keyword)
        if setting is None:
            raise TypeError(f"Peers() got an unexpected setting {shown(keyword)}")
        if value is None:
            continue
        try:
            checked[keyword] = setting.read(value)
        except Wrong as error:
            raise wrong(setting.variable, value, str(error)) from None
        said = checked[keyword]
        if isinstance(said, str) and not is_plain(said):
            raise wrong(setting.variable, value, "text in UTF-8, without NUL")
    return checked


def from_env(env: Mapping[str, str] = os.environ, **overrides: Any) -> dict[str, Any]:
    """What the environment says; an empty variable is one that is not set."""
    mapping("env: variables and their values", env)
    given = {s.keyword: env.get(s.variable) for s in SETTINGS}
    found = {k: v for k, v in given.items() if not isinstance(v, str) or v.strip()}
    return check({**found, **overrides})


def native_options(settings: Mapping[str, Any], observer: bool) -> dict[str, Any]:
    options = {
        s.option: settings[s.keyword] for s in SETTINGS if s.option and s.keyword in settings
    }
    options["observer"] = observer
    return options
