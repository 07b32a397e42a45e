"""A limit for each client that holds across the fleet: whichever worker it asks, its requests count
for all of them. A tally and a few lines; what is refused is not counted, so who keeps asking gets its
full share of the next window.

The client is the address the server names. Behind a proxy let the server take it from the proxy's
header (`uvicorn --proxy-headers --forwarded-allow-ips ...`); here no header is believed.
"""
from __future__ import annotations

import math
from typing import Any

from starlette.responses import JSONResponse

import peerage


class Limit:
    def __init__(self, app: Any, *, visits: peerage.Tally, limit: int, counts: dict[str, int]) -> None:
        self.app, self.visits, self.limit, self.counts = app, visits, limit, counts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/c/"):
            await self.app(scope, receive, send)
            return
        client = scope["client"][0] if scope["client"] else ""
        try:
            taken = await self.visits.atake(client, self.limit)
            left = max(0, self.limit - taken.total)
        except peerage.FullError:       # more clients than a node counts: then no newcomers
            taken, left = peerage.Taken(False, 0), 0
        headers = [(b"ratelimit-limit", str(self.limit).encode()),
                   (b"ratelimit-remaining", str(left).encode())]

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        self.counts["demo_limit_passed" if taken else "demo_limit_refused"] += 1
        if taken:
            await self.app(scope, receive, send_with_headers)
            return
        wait = max(1, math.ceil(self.visits.ends_in()))
        refusal = JSONResponse({"error": f"too many requests: {self.limit} in {self.visits.window:g} s"},
                               429, headers={"retry-after": str(wait)})
        await refusal(scope, receive, send_with_headers)
