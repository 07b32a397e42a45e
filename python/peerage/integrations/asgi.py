"""ASGI servers, for an application that has no lifespan of its own:

    application = peerage.integrations.asgi.Lifespan(application, peers)

One that has starts its node there: `async with peers: yield`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ..peers import Peers

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Lifespan:
    """Answers the lifespan's messages for `app`: starts `peers` before the first request,
    closes them after the last. A start that fails stops the server."""
    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], peers: Peers) -> None:
        self.app, self.peers = app, peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        await receive()         # startup
        try:
            await self.peers.astart()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()         # shutdown
        await self.peers.aclose()
        await send({"type": "lifespan.shutdown.complete"})
