"""The reader as a web application: where caching is said, and nothing else has to know of it.

All keys of one channel have one owner in the fleet, because each function names the channel. A page
that is loaded brings everything that is made from it along (`also`), so that no node renders again
what another one rendered. What is made from a page that is already some seconds old lives only as
long as that page does: a body must not make its page look younger.

Two settings show tallies, both off by default: DEMO_LIMIT, how many pages a client may read in
DEMO_LIMIT_WINDOW seconds over the whole fleet, and DEMO_REFRESH, how many of the most popular pages the
coordinator loads again before they expire.

Run it with `python -m peerage.demo`, or with `uvicorn --workers 4 peerage.demo.app:app`.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import peerage
from peerage import metrics
from peerage.health import health

from . import reader, recorded, render
from .limit import Limit
from .refresher import Refresher

TTL_S = float(os.environ.get("DEMO_TTL", "10"))
WORKER = os.environ.get("DEMO_WORKER") or str(os.getpid())
LIMIT = int(os.environ.get("DEMO_LIMIT", "0"))
LIMIT_WINDOW_S = float(os.environ.get("DEMO_LIMIT_WINDOW", "60"))
REFRESH = int(os.environ.get("DEMO_REFRESH", "0"))
_EXPECTED = (reader.NotFound, reader.UpstreamFailed)

peers = peerage.Peers.from_env()
pages = peers.cache("pages", ttl=TTL_S)
visits = peers.tally("visits", window=LIMIT_WINDOW_S)
popularity = peers.tally("popularity", window=60)
counts = {"demo_limit_passed": 0, "demo_limit_refused": 0, "demo_refreshing": 0, "demo_refreshed": 0}
_upstream: reader.Upstream


@pages.cached("{channel}", channel="{channel}", raises=_EXPECTED)
async def page(channel: str) -> peerage.Loaded:
    read = await _upstream.page(channel)
    return peerage.Loaded(read, also={
        body.key(channel): render.body(read),
        preview.key(channel): render.preview(read),
        feed.key(channel): render.feed(read),
    })


@pages.cached("{channel}", channel="{channel}", raises=_EXPECTED)
async def body(channel: str) -> peerage.Loaded:
    return await _from_page(channel, render.body)


@pages.cached("{channel}", channel="{channel}", raises=_EXPECTED)
async def preview(channel: str) -> peerage.Loaded:
    return await _from_page(channel, render.preview)


@pages.cached("{channel}", channel="{channel}", raises=_EXPECTED)
async def feed(channel: str) -> peerage.Loaded:
    return await _from_page(channel, render.feed)


@pages.cached("{channel}/{before}", channel="{channel}", raises=_EXPECTED)
async def more(channel: str, before: int) -> str:
    return render.more(await _upstream.before(channel, before))


@pages.cached("{channel}/{number}", channel="{channel}", raises=_EXPECTED)
async def post(channel: str, number: int) -> str:
    return render.post(await _upstream.post(channel, number))


async def _from_page(channel: str, make: Callable[[dict[str, Any]], str]) -> peerage.Loaded:
    found = await page.lookup(channel)
    return peerage.Loaded(make(found.value), ttl=max(0.0, TTL_S - found.age_ms / 1000))


def _answer(found: peerage.Hit, kind: str) -> Response:
    content = found.value
    if not isinstance(content, str):
        content = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(content, media_type=kind, headers={
        "peerage-tier": found.tier, "peerage-age-ms": str(round(found.age_ms))})


def _channel(request: Request) -> str:
    name = request.path_params["channel"]
    if not reader.is_channel_name(name):
        raise HTTPException(404, "no such channel")
    if REFRESH:
        with contextlib.suppress(peerage.FullError):
            popularity.add(name)
    return name


async def get_page(request: Request) -> Response:
    return _answer(await page.lookup(_channel(request)), "application/json")


async def get_body(request: Request) -> Response:
    return _answer(await body.lookup(_channel(request)), "text/html")


async def get_preview(request: Request) -> Response:
    return _answer(await preview.lookup(_channel(request)), "text/html")


async def get_feed(request: Request) -> Response:
    return _answer(await feed.lookup(_channel(request)), "application/rss+xml")


async def get_more(request: Request) -> Response:
    before = request.query_params.get("before", "")
    if not (before.isascii() and before.isdigit() and len(before) < 10):
        raise HTTPException(400, "before: the number of a post")
    return _answer(await more.lookup(_channel(request), int(before)), "text/html")


async def get_post(request: Request) -> Response:
    number = request.path_params["number"]
    if number >= 10**9:
        raise HTTPException(404, "no such post")
    return _answer(await post.lookup(_channel(request), number), "text/html")


def _live() -> list[peerage.Member]:
    return [m for m in peers.members() if m.live and not m.observer]


async def get_index(request: Request) -> Response:
    channels = list(recorded.CHANNELS.values())
    return HTMLResponse(render.index(
        channels=channels, worker=WORKER, state=peers.stats()["state"],
        members=_live(), coordinator=peers.coordinator(),
        owners={c.name: peers.owner(c.name) for c in channels}))


async def get_ready(request: Request) -> Response:
    """Whether to send requests here; says too how many members this worker sees, and whether it has
    found its place among them."""
    said = health(peers)
    return JSONResponse({**said, "worker": WORKER}, 200 if said["ready"] else 503)


async def get_metrics(request: Request) -> Response:
    """Of this worker: behind one port of several workers, Prometheus would meet any of them."""
    return Response(metrics.text(peers), headers={"content-type": metrics.CONTENT_TYPE})


async def get_stats(request: Request) -> Response:
    return JSONResponse({**peers.stats(), **counts})


async def not_found(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"not found: {error}"}, 404)


async def upstream_failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"upstream: {error}"}, 502)


class SafeHeaders:
    """What the upstream wrote may be shown, never run: only this site's own script and style load."""

    HEADERS = [
        (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; "
                                     b"connect-src 'self'; img-src 'self'; base-uri 'none'; "
                                     b"form-action 'none'; frame-ancestors 'none'"),
        (b"x-content-type-options", b"nosniff"),
        (b"demo-worker", WORKER.encode()),
    ]

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self.HEADERS]
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


async def _age_s(channel: str) -> float:
    return float((await page.lookup(channel)).age_ms / 1000)


@contextlib.asynccontextmanager
async def refreshing() -> AsyncIterator[None]:
    if not REFRESH:
        yield
        return
    task = asyncio.create_task(Refresher(
        peers, popularity, recorded.CHANNELS, ttl=TTL_S, most=REFRESH, age=_age_s,
        refresh=page.refresh, counts=counts).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    global _upstream
    _upstream = reader.from_env()
    try:
        async with peers, refreshing():
            yield
    finally:
        await _upstream.close()


app = Starlette(
    lifespan=lifespan,
    middleware=[Middleware(SafeHeaders),
                *([Middleware(Limit, visits=visits, limit=LIMIT, counts=counts)] if LIMIT else [])],
    exception_handlers={reader.NotFound: not_found, reader.UpstreamFailed: upstream_failed},
    routes=[
        Route("/", get_index),
        Route("/readyz", get_ready),
        Route("/stats", get_stats),
        Route("/metrics", get_metrics),
        Route("/c/{channel}", get_page),
        Route("/c/{channel}/body", get_body),
        Route("/c/{channel}/preview", get_preview),
        Route("/c/{channel}/more", get_more),
        Route("/c/{channel}/feed.xml", get_feed),
        Route("/c/{channel}/{number:int}", get_post),
        Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
    ],
)
