"""The demo: recorded pages, the upstream that serves them, the reader that understands them."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import unicodedata
import urllib.error
import urllib.request
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from peerage.demo import reader, recorded, render
from peerage.demo.load.fleet import free_ports

STAMP = recorded.Stamp("gartenpost", "page", 3, 12.5)


def page_of(name: str) -> dict[str, Any]:
    channel = recorded.CHANNELS[name]
    return reader.parse(recorded.page(channel, STAMP), name)


def test_nine_channels_answer_twenty_seven_distinct_requests():
    assert len(recorded.CHANNELS) == 9
    paths = {path for c in recorded.CHANNELS.values() for path in recorded.requests(c).values()}
    assert len(paths) == 27


def test_pages_are_the_same_in_every_process():
    program = ("from peerage.demo import recorded as r; import hashlib; "
               "s = r.Stamp('x', 'page', 1, 1.0); "
               "print(hashlib.sha256(''.join(r.page(c, s) for c in r.CHANNELS.values())"
               ".encode()).hexdigest())")
    digests = {subprocess.run([sys.executable, "-c", program], text=True, check=True,
                              capture_output=True, env=os.environ | {"PYTHONHASHSEED": seed}).stdout
               for seed in ("1", "2")}
    assert len(digests) == 1


def test_pages_have_real_sizes_and_many_scripts():
    sizes = [len(recorded.page(c, STAMP).encode()) for c in recorded.CHANNELS.values()]
    assert min(sizes) > 25_000
    assert 50_000 < max(sizes) < 64_000
    text = "".join(recorded.page(c, STAMP) for c in recorded.CHANNELS.values())
    scripts = {unicodedata.name(char, "").split(" ")[0] for char in set(text)}
    assert {"LATIN", "CYRILLIC", "ARABIC", "HEBREW", "HIRAGANA", "CJK", "DEVANAGARI", "HANGUL",
            "GREEK", "THAI", "GEORGIAN"} <= scripts
    assert "👩\u200d🍳" in text
    assert {c.dir for c in recorded.CHANNELS.values()} == {"ltr", "rtl"}


def test_older_posts_follow_without_gap_or_repeat():
    channel = recorded.CHANNELS["midori_techo"]
    newest = page_of("midori_techo")
    assert newest["older"] == channel.oldest_on_page
    older = reader.parse(recorded.page(channel, STAMP, newest["older"]), channel.name)
    numbers = [p["id"] for p in older["posts"] + newest["posts"]]
    assert numbers == list(range(channel.newest - 39, channel.newest + 1))
    assert reader.parse(recorded.page(channel, STAMP, 5), channel.name)["older"] is None


def test_stamps_survive_every_rendering():
    page = page_of("gartenpost")
    for made in (json.dumps(page), render.body(page), render.preview(page), render.feed(page),
                 render.more(page), render.post(page)):
        assert recorded.find_stamp(made.encode()) == STAMP
    assert recorded.find_stamp(b"recorded~gartenpost~page") is None


@pytest.mark.parametrize("name", sorted(recorded.CHANNELS))
def test_a_page_is_understood_and_survives_as_json(name):
    channel, page = recorded.CHANNELS[name], page_of(name)
    assert (page["title"], page["about"]) == (channel.title, channel.about)
    assert (page["lang"], page["dir"]) == (channel.lang, channel.dir)
    assert page["subscribers"] == channel.subscribers
    assert [p["id"] for p in page["posts"]] == list(range(channel.oldest_on_page, channel.newest + 1))
    assert json.loads(json.dumps(page)) == page
    for post in page["posts"]:
        assert any(sentence in reader.plain(post) for sentence in channel.sentences)
        assert post["at"] and post["views"] and post["reactions"]
    rendered = render.body(page)
    assert f'<html lang="{channel.lang}" dir="{channel.dir}">' in rendered
    assert rendered.count("<article") == 20
    items = xml.fromstring(render.feed(page)).findall("./channel/item")
    assert [i.findtext("link", "").rpartition("/")[2] for i in items] == [
        str(n) for n in range(channel.newest, channel.oldest_on_page - 1, -1)]


HOSTILE = """<html lang='x"><script>' dir='"onload='><body>
<h1 class="channel-title">&lt;script&gt;alert(1)&lt;/script&gt;</h1>
<p class="channel-about">"quoted" &amp; \x0b</p>
<article class="post" data-post="x/NaN"><div class="post-text">
<script>alert(2)</script><img src=x onerror=alert(3)>a &lt;b&gt;
<a href="javascript:alert(4)">click</a><a href="https://ok.example/?a=1&amp;b='">fine</a></div>
<time datetime="yesterday"></time><a class="post-photo" data-hue="1); x:url(//evil"></a>
</article></body></html>"""


def test_foreign_markup_is_shown_and_never_run():
    page = reader.parse(HOSTILE, "hostile")
    assert page["dir"] == "ltr"
    post = page["posts"][0]
    assert (post["id"], post["at"], post["photo_hue"]) == (0, "", None)
    for made in (render.body(page), render.more(page), render.preview(page), render.post(page)):
        lowered = made.lower()
        assert "alert(2)" not in lowered and "onerror" not in lowered
        assert "<script>" not in lowered and "javascript:" not in lowered
        assert "<img" not in lowered and 'x"' not in lowered
    assert 'href="https://ok.example/?a=1&amp;b=&#39;"' in render.body(page)
    assert "&lt;script&gt;alert(1)" in render.body(page)
    feed = xml.fromstring(render.feed(page))
    assert feed.findtext("./channel/title") == "<script>alert(1)</script>"


def test_a_page_that_is_none_is_an_error_and_not_an_empty_channel():
    with pytest.raises(reader.UpstreamFailed):
        reader.parse("<html><body>Please try again later</body></html>", "gartenpost")


@contextlib.contextmanager
def serving(module: str, port: int, path: str, *arguments: str, **env: str) -> Iterator[str]:
    """One of the demo's processes, from its first answer until the end of the block."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PEER_", "PEERS", "DEMO_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--port", str(port), "--with-parent", *arguments],
        env=own | {"ENABLE_PEERS": "false"} | env, stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 20
        while True:
            assert process.poll() is None, f"{module} ended with {process.returncode}"
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                get(base + path)
                break
            assert time.monotonic() < deadline, f"{module} did not answer"
            time.sleep(0.05)
        yield base
    finally:
        process.terminate()
        process.wait(10)
        assert process.stdin is not None
        process.stdin.close()


def get(url: str, timeout: float = 10, **headers: str) -> tuple[int, Any, bytes]:
    asked = urllib.request.Request(url, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def control(base: str, **asked: Any) -> int:
    request = urllib.request.Request(f"{base}/_control", json.dumps(asked).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def log_of(base: str) -> list[dict[str, Any]]:
    return json.loads(get(f"{base}/_log")[2])


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with serving("peerage.demo.upstream", free_ports(1), "/_control") as base:
        yield base


@pytest.fixture(autouse=True)
def told_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "upstream" in request.fixturenames:
        control(request.getfixturevalue("upstream"), mode="ok", match="", delay_ms=150)


def test_the_upstream_answers_after_its_delay_and_logs_who_asked(upstream):
    before = len(log_of(upstream))
    start = time.monotonic()
    status, headers, body = get(f"{upstream}/s/gartenpost?before=900", demo_worker="w7.2")
    end = time.monotonic()
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert 0.15 <= end - start < 1
    entry = log_of(upstream)[before]
    assert (entry["key"], entry["worker"], entry["outcome"]) == (
        "/s/gartenpost?before=900", "w7.2", "answered")
    assert start <= entry["start"] < entry["end"] <= end
    stamp = recorded.find_stamp(body)
    assert stamp is not None
    assert (stamp.channel, stamp.request, stamp.serial) == (
        "gartenpost", "before.900", entry["serial"])
    assert abs(stamp.at - entry["end"]) < 1e-5


@pytest.mark.parametrize("path", ["/s/nobody", "/gartenpost/0", "/gartenpost/99999", "/s/gartenpost?x=1",
                                  "/s/gartenpost?before=-1", "/", "/a/b/c"])
def test_the_upstream_has_nothing_else(upstream, path):
    before = len(log_of(upstream))
    assert get(upstream + path)[0] == 404
    assert len(log_of(upstream)) == before


def test_an_asker_that_hangs_up_is_logged_as_cut(upstream):
    control(upstream, mode="hang")
    before = len(log_of(upstream))
    with pytest.raises(TimeoutError):
        get(f"{upstream}/s/gartenpost", timeout=0.4)
    time.sleep(0.2)
    entry = log_of(upstream)[before]
    assert entry["outcome"] == "cut"
    assert 0.3 < entry["end"] - entry["start"] < 1.5


def test_the_upstream_fails_and_hangs_where_it_is_told_to(upstream):
    assert control(upstream, mode="sometimes") == 400
    assert control(upstream, mode="fail", match="/s/garten") == 200
    assert get(f"{upstream}/s/gartenpost")[0] == 503
    assert get(f"{upstream}/s/midori_techo")[0] == 200
    assert [e["outcome"] for e in log_of(upstream)[-2:]] == ["failed", "answered"]
    control(upstream, mode="hang", match="")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(get, f"{upstream}/s/gartenpost")
        time.sleep(0.5)
        assert not waiting.done()
        control(upstream, mode="ok")
        assert waiting.result(5)[0] == 200


@pytest.fixture(scope="module")
def worker(upstream: str) -> Iterator[str]:
    with serving("peerage.demo", free_ports(1), "/readyz", "--log-level", "warning",
                 DEMO_UPSTREAM=upstream, DEMO_TTL="2", DEMO_WORKER="w0.0") as base:
        yield base


ENDPOINTS = {
    "/c/{c}": ("application/json", "page"),
    "/c/{c}/body": ("text/html; charset=utf-8", "page"),
    "/c/{c}/preview": ("text/html; charset=utf-8", "page"),
    "/c/{c}/feed.xml": ("application/rss+xml", "page"),
    "/c/{c}/more?before=1000": ("text/html; charset=utf-8", "before.1000"),
    "/c/{c}/1001": ("text/html; charset=utf-8", "post.1001"),
}


@pytest.mark.parametrize("path", ENDPOINTS)
def test_every_endpoint_loads_once_and_says_where_its_answer_came_from(worker, upstream, path):
    kind, request = ENDPOINTS[path]
    name = sorted(recorded.CHANNELS)[list(ENDPOINTS).index(path)]
    url = worker + path.format(c=name)
    before = len(log_of(upstream))
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(get, [url] * 5))
    assert [e["worker"] for e in log_of(upstream)[before:]] == ["w0.0"]
    for status, headers, body in answers:
        assert (status, headers["content-type"]) == (200, kind)
        stamp = recorded.find_stamp(body)
        assert stamp is not None and (stamp.channel, stamp.request) == (name, request)
    assert "load" in {headers["peerage-tier"] for _, headers, _ in answers}
    time.sleep(0.3)
    _, headers, body = get(url)
    assert headers["peerage-tier"] == "local"
    stamp = recorded.find_stamp(body)
    assert stamp is not None
    # The header is the application's word, the stamp the upstream's: they differ by the parsing.
    assert abs(int(headers["peerage-age-ms"]) - (time.monotonic() - stamp.at) * 1000) < 250
    assert headers["demo-worker"] == "w0.0"
    assert "default-src 'none'" in headers["content-security-policy"]


def test_a_page_brings_what_is_made_from_it(worker, upstream):
    name = "shuk_baboker"
    get(f"{worker}/c/{name}")
    before = len(log_of(upstream))
    for path in ("/body", "/preview", "/feed.xml"):
        assert get(f"{worker}/c/{name}{path}")[1]["peerage-tier"] == "local"
    assert len(log_of(upstream)) == before


def test_no_body_outlives_its_page(worker):
    """Asked without a pause across three TTLs, no answer is older than one, by the upstream's stamp."""
    end = time.monotonic() + 6
    ages: list[float] = []
    serials: set[int] = set()
    while time.monotonic() < end:
        for path in ("/body", "", "/feed.xml", "/preview"):
            stamp = recorded.find_stamp(get(f"{worker}/c/chai_aur_kitab{path}")[2])
            assert stamp is not None
            ages.append(time.monotonic() - stamp.at)
            serials.add(stamp.serial)
    assert max(ages) < 3        # one that outlived it would reach twice the TTL
    assert len(serials) <= 4


def test_what_is_not_there_is_not_found_and_a_failing_upstream_is_said_to_fail(worker, upstream):
    for path in ("/c/nobody_here", "/c/gartenpost/99999", "/c/NoName", "/c/..%2fetc", "/nowhere",
                 "/c/gartenpost/9999999999999"):
        assert get(worker + path)[0] == 404, path
    for path in ("/c/gartenpost/more", "/c/gartenpost/more?before=", "/c/gartenpost/more?before=1x"):
        assert get(worker + path)[0] == 400, path
    control(upstream, mode="fail", match="/gartenpost/7")
    status, _, body = get(f"{worker}/c/gartenpost/77")
    assert status == 502 and b"503" in body
    control(upstream, mode="ok")
    assert get(f"{worker}/c/gartenpost/77")[0] == 200


def test_the_index_links_to_every_channel_and_its_assets_are_there(worker):
    status, _, body = get(worker + "/")
    assert status == 200
    for name in recorded.CHANNELS:
        assert f'href="/c/{name}/body"'.encode() in body
    for path in ("/static/demo.css", "/static/demo.js", "/stats", "/readyz"):
        assert get(worker + path)[0] == 200, path
    assert json.loads(get(worker + "/readyz")[2])["ready"] is True
