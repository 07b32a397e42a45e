"""Settings: the environment's variables, the same as keyword arguments, one line for a
wrong one (the variable, what it got, what it takes).

Here a text becomes a number or a flag; what the numbers and names may be is checked by the
native part, which words its errors in the same way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ._native import SettingError

FLAGS = {"true": True, "1": True, "yes": True, "on": True,
         "false": False, "0": False, "no": False, "off": False}  # fmt: skip
UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


class Wrong(Exception):
    """What a setting takes."""


def flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    try:
        return FLAGS[str(value).strip().lower()]
    except KeyError:
        raise Wrong("true or false") from None


def whole(least: int, most: int, what: str) -> Callable[[Any], int]:
    takes = f"{what}, {least} to {most}"

    def read(value: Any) -> int:
        text = str(value).strip()
        if isinstance(value, (bool, float)) or not text.isascii() or not text.isdigit():
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
    except (TypeError, ValueError):
        raise Wrong(takes) from None
    if isinstance(value, bool) or not math.isfinite(number) or number <= 0:
        raise Wrong(takes)
    return number


def size(value: Any) -> int:
    takes = "bytes, as a number or with KiB, MiB, GiB"
    text = str(value).strip()
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
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
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
    Setting("PEER_CACHE_BYTES", "cache_bytes", "cache_bytes", size),
    Setting("REDIS_URL", "redis_url", "redis_url", text),
    Setting("PEER_REDIS_PREFIX", "redis_prefix", "redis_prefix", text),
]
SECRETS = {"PEER_SECRET", "REDIS_URL"}  # never shown
BY_KEYWORD = {setting.keyword: setting for setting in SETTINGS}
DEFAULTS = {"enable_peers": False, "loaders": 32}


def wrong(variable: str, got: Any, takes: str) -> SettingError:
    shown = "something else" if variable in SECRETS else f'"{got}"'
    return SettingError(f"{variable}: got {shown}, takes {takes}")


def check(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments, checked and of their own types; defaults that Python needs added."""
    checked: dict[str, Any] = dict(DEFAULTS)
    for keyword, value in settings.items():
        setting = BY_KEYWORD.get(keyword)
        if setting is None:
            raise TypeError(f"Peers() got an unexpected setting {keyword!r}")
        if value is None:
            continue
        try:
            checked[keyword] = setting.read(value)
        except Wrong as error:
            raise wrong(setting.variable, value, str(error)) from None
        said = checked[keyword]
        if isinstance(said, str) and "\0" in said:
            raise wrong(setting.variable, value, "text without NUL")
    return checked


def from_env(env: Mapping[str, str] = os.environ, **overrides: Any) -> dict[str, Any]:
    """What the environment says; an empty variable is one that is not set."""
    found = {s.keyword: env[s.variable] for s in SETTINGS if env.get(s.variable, "").strip()}
    return check({**found, **overrides})


def native_options(settings: Mapping[str, Any], observer: bool) -> dict[str, Any]:
    options = {
        s.option: settings[s.keyword] for s in SETTINGS if s.option and s.keyword in settings
    }
    options["observer"] = observer
    return options
