"""The recorded upstream's pages: nine channels, written for this demo in several scripts.

A page is the same bytes in every process and on every run: sentences from `texts/` are dealt to posts
by a generator seeded with the channel and the post's number. Only the *stamp* differs from fetch to
fetch; it names the channel, the request and the instant it was answered, so that whoever holds a page,
a rendered body or a feed can tell where it came from and how old it really is.
"""
from __future__ import annotations

import random
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path

from markupsafe import escape

POSTS_PER_PAGE = 20
MARKER = "recorded~"        # begins every stamp: what to look for in a capture of the traffic
_NEWEST_AT = datetime(2026, 3, 14, 18, 40, tzinfo=timezone.utc)
_REACTIONS = ("👍", "❤️", "🔥", "😂", "👏", "🎉", "😢", "🙏", "🤔", "👀")
_TEXTS = Path(__file__).with_name("texts")


@dataclass(frozen=True)
class Channel:
    name: str
    title: str
    about: str
    lang: str
    dir: str
    subscribers: int
    newest: int
    tags: tuple[str, ...]
    sentences: tuple[str, ...]

    @property
    def oldest_on_page(self) -> int:
        return self.newest - POSTS_PER_PAGE + 1


@dataclass(frozen=True)
class Stamp:
    """Which request a page answers and when; `at` is on CLOCK_MONOTONIC, one clock for all processes
    of a machine, so an age needs no agreement about wall time."""

    channel: str
    request: str
    serial: int
    at: float

    def __str__(self) -> str:
        return f"{MARKER}{self.channel}~{self.request}~{self.serial}~{round(self.at * 1e6)}"


_STAMP = re.compile(MARKER.encode() + rb"([a-z0-9_]+)~([a-z0-9.]+)~(\d+)~(\d+)")


def find_stamp(body: bytes) -> Stamp | None:
    """The first stamp in a body, whatever it was rendered into."""
    found = _STAMP.search(body)
    if found is None:
        return None
    channel, request, serial, at_us = found.groups()
    return Stamp(channel.decode(), request.decode(), int(serial), int(at_us) / 1e6)


def _read(path: Path) -> Channel:
    head, _, body = path.read_text("utf-8").partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return Channel(
        name=path.stem, title=fields["title"], about=fields["about"],
        lang=fields["lang"], dir=fields["dir"],
        subscribers=int(fields["subscribers"]), newest=int(fields["newest"]),
        tags=tuple(fields["tags"].split()),
        sentences=tuple(line for line in body.splitlines() if line),
    )


CHANNELS: dict[str, Channel] = {
    path.stem: _read(path) for path in sorted(_TEXTS.glob("*.txt"))
}


def requests(channel: Channel) -> dict[str, str]:
    """The three requests this channel answers: the stamp's name of each, and its path."""
    return {
        "page": f"/s/{channel.name}",
        f"before.{channel.oldest_on_page}": f"/s/{channel.name}?before={channel.oldest_on_page}",
        f"post.{channel.newest - 3}": f"/{channel.name}/{channel.newest - 3}",
    }


def page(channel: Channel, stamp: Stamp, before: int | None = None) -> str:
    """The latest posts, or those before a given one, as the channel's public preview shows them."""
    first = channel.newest if before is None else min(before - 1, channel.newest)
    numbers = range(max(1, first - POSTS_PER_PAGE + 1), first + 1)
    older = numbers[0] if numbers and numbers[0] > 1 else None
    return _document(channel, stamp, "".join(_post(channel, n) for n in numbers), older)


def single_post(channel: Channel, stamp: Stamp, number: int) -> str:
    return _document(channel, stamp, _post(channel, number), None)


def _document(channel: Channel, stamp: Stamp, posts: str, older: int | None) -> str:
    more = ""
    if older is not None:
        more = (f'<a class="posts-older" href="/s/{channel.name}?before={older}" '
                f'data-before="{older}"></a>')
    return f"""<!doctype html>
<html lang="{channel.lang}" dir="{channel.dir}">
<head>
<meta charset="utf-8">
<title>{escape(channel.title)}</title>
<meta name="recorded-stamp" content="{stamp}">
<meta property="og:title" content="{escape(channel.title)}">
<meta property="og:description" content="{escape(channel.about)}">
</head>
<body>
<header class="channel">
<h1 class="channel-title" dir="auto">{escape(channel.title)}</h1>
<a class="channel-name" href="/{channel.name}">@{channel.name}</a>
<p class="channel-about" dir="auto">{escape(channel.about)}</p>
<span class="channel-count" data-count="{channel.subscribers}">{_short(channel.subscribers)}</span>
</header>
<main class="posts">
{more}
{posts}</main>
</body>
</html>
"""


# Every page of a channel shares most of its posts with the next fetch; the upstream must not become
# the load test's bottleneck by writing them again.
@lru_cache(maxsize=1024)
def _post(channel: Channel, number: int) -> str:
    dice = random.Random(f"{channel.name}/{number}")
    at = _NEWEST_AT - timedelta(minutes=(channel.newest - number) * 211 + dice.randrange(90))
    sentences = dice.sample(channel.sentences, dice.randint(6, 12))
    views = dice.randrange(channel.subscribers // 9, channel.subscribers)
    extras = ""
    if dice.random() < 0.15:
        other = dice.choice([c for c in CHANNELS.values() if c is not channel])
        extras += (f'<a class="post-forward" href="/{other.name}/{dice.randrange(1, other.newest)}" '
                   f'dir="auto">{escape(other.title)}</a>\n')
    if number > 1 and dice.random() < 0.2:
        replied = max(1, number - dice.randint(1, 12))
        extras += f'<a class="post-reply" href="/{channel.name}/{replied}">#{replied}</a>\n'
    if dice.random() < 0.35:
        hue = dice.randrange(360)
        extras += (f'<a class="post-photo" href="/{channel.name}/{number}?single" '
                   f'style="width:800px;height:{dice.randrange(400, 900)}px" data-hue="{hue}"></a>\n')
    return f"""<article class="post" data-post="{channel.name}/{number}">
<div class="post-author" dir="auto">{escape(channel.title)}</div>
{extras}<div class="post-text" dir="auto">{_prose(channel, number, sentences, dice)}</div>
<div class="post-reactions">{_reactions(views, dice)}</div>
<footer><span class="post-views">{_short(views)}</span>
<a class="post-date" href="/{channel.name}/{number}">
<time datetime="{at.isoformat()}">{at:%H:%M}</time></a></footer>
</article>
"""


def _prose(channel: Channel, number: int, sentences: list[str], dice: random.Random) -> str:
    """Sentences as people post them: a bold start now and then, paragraphs, a link, tags at the end."""
    gap = "" if channel.lang in ("ja", "zh") else " "
    written = [str(escape(s)) for s in sentences]
    if dice.random() < 0.4:
        written[0] = f"<b>{written[0]}</b><br>"
    parts = []
    for at, sentence in enumerate(written):
        parts.append(sentence)
        if at < len(written) - 1:
            parts.append("<br><br>" if dice.random() < 0.3 else gap)
    if dice.random() < 0.4:
        site = channel.name.replace("_", "-")
        link = f"https://{site}.example/{number}?from=channel&amp;n={dice.randrange(99)}"
        parts.append(f'<br><a href="{link}" rel="noopener">{link}</a>')
    tags = dice.sample(channel.tags, dice.randint(1, min(3, len(channel.tags))))
    linked = (f'<a class="post-tag" href="?q=%23{t}">#{t}</a>' for t in tags)
    parts.append("<br><br>" + " ".join(linked))
    return "".join(parts)


def _reactions(views: int, dice: random.Random) -> str:
    left = views // 20
    spans = []
    for emoji in dice.sample(_REACTIONS, dice.randint(2, 6)):
        left = max(1, left - dice.randrange(left // 2 + 1))
        spans.append(f'<span class="reaction"><i class="emoji">{emoji}</i>{_short(left)}</span>')
    return "".join(spans)


def _short(count: int) -> str:
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}K".replace(".0K", "K")
