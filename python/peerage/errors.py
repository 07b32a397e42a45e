"""Errors of loaders, made to travel: who waits for a load gets the loader's error, with the
traceback of the process where it happened.

An exception object does not travel, because rebuilding an arbitrary one may fail or hang.
What travels is its type, the classes it derives from, its text and its traceback, as JSON.
A class that the reader listed in `raises=` is rebuilt from the text; any other becomes
RemoteLoadError.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable

from . import checks
from ._native import (
    ClosedError,
    Error,
    ForkedError,
    FullError,
    LoadLostError,
    LoadTimeout,
    MissingError,
    RecursiveLoadError,
    SettingError,
    SystemCallError,
    TooBigError,
    UnreachableError,
    UnsupportedError,
)

TRACEBACK_BYTES_MAX = 16 << 10
TEXT_BYTES_MAX = 16 << 10


class RemoteTraceback(Exception):
    """The cause of a loader's error at everyone who waited: where it was raised."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0]) if self.args else ""


class RemoteLoadError(Error):
    """The loader raised, here or on another node. `type_name` is what it raised; the
    remote traceback is the cause."""

    def __init__(self, text: str, type_name: str = "", remote_traceback: str = "") -> None:
        super().__init__(text, type_name, remote_traceback)
        self.text = text
        self.type_name = type_name
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        return f"{self.type_name}: {self.text}" if self.type_name else self.text


class LoopError(Error, RuntimeError):
    """A call that would block the event loop it depends on."""


# Rebuilt everywhere without being listed: they say something about the layer itself.
OWN = (
    ClosedError, ForkedError, FullError, LoadLostError, LoadTimeout, LoopError, MissingError,
    RecursiveLoadError, SettingError, SystemCallError, TooBigError, UnreachableError,
    UnsupportedError,
)  # fmt: skip


def class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _cut(text: str, limit: int) -> str:
    """The end of a text that is too long: of a traceback the end says where."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else "...\n" + raw[-limit + 4 :].decode("utf-8", "ignore")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text could not be made)"


def encode(error: BaseException) -> bytes:
    """A loader's error as it travels."""
    if isinstance(error, RemoteLoadError):
        # A load inside a load: what matters is the error that began it.
        # An application may raise it too, and give it what is no text.
        name, text = str(error.type_name), str(error.text)
        below = str(error.remote_traceback)
    else:
        name, text, below = class_name(type(error)), _text(error), ""
    frames = error.__traceback__
    own_frame_skipped = frames.tb_next if frames is not None and frames.tb_next else frames
    try:
        trace = "".join(traceback.format_exception(type(error), error, own_frame_skipped))
    except Exception:
        trace = f"{name}: {text}\n"
    bases = [class_name(c) for c in type(error).__mro__ if issubclass(c, Exception)]
    return json.dumps({
        "type": name,
        "bases": bases,
        "text": _cut(text, TEXT_BYTES_MAX),
        "traceback": _cut(below + trace, TRACEBACK_BYTES_MAX),
    }).encode()  # fmt: skip


class Raises:
    """The classes a reader wants rebuilt."""

    def __init__(self, classes: Iterable[type[Exception]] = ()) -> None:
        listed = tuple(classes) if isinstance(classes, (tuple, list)) else (classes,)
        for cls in listed:
            if not (isinstance(cls, type) and issubclass(cls, Exception)):
                raise TypeError(f"raises= takes exception classes, not {checks.shown(cls)}")
        self.classes = (*listed, *OWN)
        self._by_name = {class_name(cls): cls for cls in self.classes}

    def rebuild(self, encoded: bytes) -> Exception:
        """An exception object of its own for one who waited."""
        try:
            said = json.loads(encoded)
            name, text, trace = str(said["type"]), str(said["text"]), str(said["traceback"])
            bases = [str(base) for base in said["bases"]]
        except (ValueError, KeyError, TypeError):
            return RemoteLoadError("an error that can't be read", "", "")
        error: Exception | None = None
        for base in bases:
            cls = self._by_name.get(base)
            if cls is not None:
                try:
                    error = cls(text)
                except Exception:
                    error = None  # its constructor takes more than a text
                break
        if error is None:
            error = RemoteLoadError(text, name, trace)
        error.__cause__ = RemoteTraceback(trace)
        return error

    def own(self, error: BaseException) -> Exception:
        """What the loader's own caller gets for it: the object itself if its class is
        listed. Else what everybody gets, with the object as the cause, so that an
        application sees one kind of error however the load came to be run."""
        if isinstance(error, (RemoteLoadError, *self.classes)):
            return error
        said = RemoteLoadError(_text(error), class_name(type(error)), "")
        said.remote_traceback = "".join(
            traceback.format_exception(type(error), error, error.__traceback__)
        )
        said.__cause__ = error
        return said
