"""peerage: a fleet of Python workers fetches each key once.

    peers = peerage.Peers.from_env()
    pages = peers.cache("pages", ttl=10)

    @pages.cached("{channel}", channel="{channel}")
    async def page(channel): ...
"""

from ._native import VERSION as __version__
from ._native import (
    ClosedError,
    Error,
    ForkedError,
    FullError,
    Hit,
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
from .cache import Cache, Report
from .errors import LoopError, RemoteLoadError, RemoteTraceback
from .functions import CacheInfo, Key
from .loads import Loaded
from .peers import Explanation, Member, Peers
from .tallies import Taken, Tally

__all__ = [
    "Cache", "CacheInfo", "ClosedError", "Error", "Explanation", "ForkedError", "FullError",
    "Hit", "Key", "LoadLostError", "LoadTimeout", "Loaded", "LoopError", "Member",
    "MissingError", "Peers", "RecursiveLoadError", "RemoteLoadError", "RemoteTraceback",
    "Report", "SettingError", "SystemCallError", "Taken", "Tally", "TooBigError",
    "UnreachableError", "UnsupportedError", "__version__",
]  # fmt: skip
