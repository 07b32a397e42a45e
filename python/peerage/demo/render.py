"""Pages, fragments and feeds from what `reader` understood. Everything is escaped by the engine."""
from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from datetime import datetime
from email.utils import format_datetime
from typing import Any

import jinja2

from .reader import plain

_templates = jinja2.Environment(
    loader=jinja2.PackageLoader("peerage.demo"), autoescape=True,
    trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
_templates.filters["plain"] = plain
for _name in _templates.list_templates():
    _templates.get_template(_name)      # compiled at the start, not in front of the first reader

# XML 1.0 has no way to write these, escaped or not.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def body(page: dict[str, Any]) -> str:
    return _templates.get_template("channel.html").render(page=page)


def more(page: dict[str, Any]) -> str:
    return _templates.get_template("more.html").render(page=page)


def post(page: dict[str, Any]) -> str:
    return _templates.get_template("post.html").render(page=page, post=page["posts"][0])


def preview(page: dict[str, Any]) -> str:
    return _templates.get_template("preview.html").render(page=page)


def index(**values: Any) -> str:
    return _templates.get_template("index.html").render(**values)


def feed(page: dict[str, Any], site: str = "https://reader.example") -> str:
    """RSS 2.0, newest post first."""
    rss = xml.Element("rss", version="2.0")
    channel = xml.SubElement(rss, "channel")
    _add(channel, "title", page["title"])
    _add(channel, "link", f"{site}/c/{page['channel']}/body")
    _add(channel, "description", page["about"])
    _add(channel, "language", page["lang"])
    _add(channel, "generator", f"peerage demo {page['stamp']}")
    for each in reversed(page["posts"]):
        link = f"{site}/c/{page['channel']}/{each['id']}"
        item = xml.SubElement(channel, "item")
        _add(item, "title", plain(each, 80))
        _add(item, "link", link)
        _add(item, "guid", link)
        _add(item, "description", plain(each))
        if each["at"]:
            _add(item, "pubDate", format_datetime(datetime.fromisoformat(each["at"])))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(rss, encoding="unicode")


def _add(parent: xml.Element, tag: str, text: str) -> None:
    xml.SubElement(parent, tag).text = _NOT_XML.sub("", text)
