"""The application's work: ask the upstream for a channel's preview and understand it.

Nothing here knows of caching. What comes from the upstream is foreign text: it is read into plain runs
of text with a known style, and only `http` and `https` links survive, so that no template can be made
to emit somebody else's markup.
"""
from __future__ import annotations

import os
import re
import time
from datetime import datetime
from typing import Any

import httpx
from selectolax.lexbor import LexborHTMLParser, LexborNode

from .upstream import WORKER_HEADER

_NAME = re.compile(r"[a-z0-9_]{3,64}")


class NotFound(Exception):
    """The upstream has no such channel or post."""


class UpstreamFailed(Exception):
    """The upstream answered with an error, or not at all."""


def is_channel_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


class Upstream:
    """One client a process: its connections are kept and shared by all loads."""

    def __init__(self, base_url: str, worker: str, timeout_s: float = 8.0) -> None:
        self._client = httpx.AsyncClient(
            base_url=base_url, timeout=timeout_s, headers={WORKER_HEADER: worker},
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20))

    async def get(self, path: str, **params: int) -> str:
        try:
            answer = await self._client.get(path, params=params)
        except httpx.HTTPError as error:
            raise UpstreamFailed(f"{path}: {type(error).__name__}") from error
        if answer.status_code == 404:
            raise NotFound(path)
        if answer.status_code != 200:
            raise UpstreamFailed(f"{path}: {answer.status_code}")
        return answer.text

    async def page(self, channel: str) -> dict[str, Any]:
        return parse(await self.get(f"/s/{channel}"), channel)

    async def before(self, channel: str, number: int) -> dict[str, Any]:
        return parse(await self.get(f"/s/{channel}", before=number), channel)

    async def post(self, channel: str, number: int) -> dict[str, Any]:
        page = parse(await self.get(f"/{channel}/{number}"), channel)
        if not page["posts"]:
            raise NotFound(f"/{channel}/{number}")
        return page

    async def close(self) -> None:
        await self._client.aclose()


def from_env() -> Upstream:
    return Upstream(os.environ.get("DEMO_UPSTREAM", "http://127.0.0.1:8100"),
                    os.environ.get("DEMO_WORKER") or str(os.getpid()))


def parse(html: str, channel: str) -> dict[str, Any]:
    """A preview page as a JSON-like value: the channel, its posts in order, where the older ones begin."""
    tree = LexborHTMLParser(html)
    root = tree.css_first("html")
    title = tree.css_first(".channel-title")
    if root is None or title is None:
        raise UpstreamFailed(f"{channel}: not a channel's page")
    older = tree.css_first("a.posts-older")
    stamp = tree.css_first('meta[name="recorded-stamp"]')
    return {
        "channel": channel,
        "title": title.text(strip=True),
        "about": _text(tree.css_first(".channel-about")),
        "lang": root.attributes.get("lang") or "",
        "dir": "rtl" if root.attributes.get("dir") == "rtl" else "ltr",
        "subscribers": _number(tree.css_first(".channel-count"), "data-count"),
        "posts": [_post(node) for node in tree.css("article.post")],
        "older": _number(older, "data-before"),
        "stamp": (stamp.attributes.get("content") or "") if stamp is not None else "",
        "read_at": round(time.time(), 3),
    }


def _post(node: LexborNode) -> dict[str, Any]:
    name = node.attributes.get("data-post") or ""
    moment = node.css_first("time")
    forward = node.css_first("a.post-forward")
    reply = node.css_first("a.post-reply")
    photo = node.css_first("a.post-photo")
    number = name.rpartition("/")[2]
    return {
        "id": int(number) if number.isascii() and number.isdigit() else 0,
        "at": _moment(moment.attributes.get("datetime") or "") if moment is not None else "",
        "views": _text(node.css_first(".post-views")),
        "text": _runs(node.css_first(".post-text")),
        "forwarded_from": _text(forward) if forward is not None else None,
        "reply_to": _number_text(_text(reply).lstrip("#")) if reply is not None else None,
        "photo_hue": _number(photo, "data-hue"),
        "reactions": [_reaction(r) for r in node.css(".reaction")],
    }


def _moment(text: str) -> str:
    """The instant as ISO 8601 with its zone, or nothing: foreign text has to earn its place in a feed."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return at.isoformat() if at.tzinfo is not None else ""


def _reaction(node: LexborNode) -> list[str]:
    emoji = _text(node.css_first(".emoji"))
    return [emoji, _text(node).removeprefix(emoji)]


def _runs(node: LexborNode | None) -> list[list[str]]:
    """A post's text as `[style, text]` or `["link", text, href]`, styles: text, bold, tag, break."""
    runs: list[list[str]] = []
    if node is not None:
        _walk(node, "text", runs)
    return runs


def _walk(node: LexborNode, style: str, runs: list[list[str]]) -> None:
    for child in node.iter(include_text=True):
        if child.tag == "-text":
            text = child.text(deep=False)
            if text:
                runs.append([style, text])
        elif child.tag == "br":
            runs.append(["break", ""])
        elif child.tag in ("b", "strong"):
            _walk(child, "bold", runs)
        elif child.tag == "a":
            href = child.attributes.get("href") or ""
            text = child.text()
            if href.startswith(("https://", "http://")):
                runs.append(["link", text, href])
            else:
                runs.append(["tag" if text.startswith("#") else style, text])
        elif child.tag not in ("script", "style"):
            _walk(child, style, runs)


def plain(post: dict[str, Any], length: int | None = None) -> str:
    """A post's text without styles, cut at a word where it is longer than `length`."""
    text = " ".join("".join("\n" if r[0] == "break" else r[1] for r in post["text"]).split())
    if length is None or len(text) <= length:
        return text
    return text[:length].rsplit(" ", 1)[0] + "…"


def _text(node: LexborNode | None) -> str:
    return node.text(strip=True) if node is not None else ""


def _number(node: LexborNode | None, attribute: str) -> int | None:
    return _number_text(node.attributes.get(attribute) or "") if node is not None else None


def _number_text(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
