"""What an application gives, judged where it enters: one line that says what was wrong, what
it got and what it takes. A wrong kind is a TypeError, a wrong value a ValueError."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

SHOWN_CHARS_MAX = 60


def kind(value: Any) -> str:
    return type(value).__name__


def line(text: str) -> str:
    """A text as it may stand in an error's one line."""
    cut = text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 3] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def shown(value: Any) -> str:
    """A wrong value in an error's line, whatever it is."""
    try:
        # of a long text no more is written than is shown
        return line(repr(value[:SHOWN_CHARS_MAX] if isinstance(value, (str, bytes)) else value))
    except Exception:
        return f"{kind(value)} that can't be shown"


def encoded(what: str, value: str | bytes) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            takes = "text without lone surrogates"
            raise ValueError(f"{what} is {takes}, not {shown(value)}") from None
    if not isinstance(value, bytes):
        raise TypeError(f"{what} is str or bytes, not {kind(value)}")
    return value


def name(what: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{what} has a name, a str, not {kind(value)}")
    if not value:
        raise ValueError(f"{what} has a name, not an empty one")
    return encoded(f"the name of {what}", value)


def function(what: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{what}, not {kind(value)}")


def mapping(what: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what}, such as a dict, not {kind(value)}")


def several(what: str, value: Any) -> Any:
    """A text has letters to walk through, but nobody means these."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"several {what}, such as a list, not one {kind(value)}")
    return value


def seconds(what: str, value: Any) -> float:
    """What is beyond any float is infinite."""
    number: float | None = None
    if not isinstance(value, bool) and hasattr(value, "__float__"):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf if value > 0 else -math.inf
        except (TypeError, ValueError):
            pass
    if number is None:
        raise TypeError(f"{what}: seconds, a number, not {kind(value)}")
    if math.isnan(number):
        raise ValueError(f"{what}: seconds, not NaN")
    return number


def whole(what: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what}: a whole number, not {kind(value)}")
    if not 0 <= value <= most:
        raise ValueError(f"{what}: from 0 to {most}, not {shown(value)}")
    return value
