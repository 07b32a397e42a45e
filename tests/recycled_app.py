"""The application of test_recycling.py, as WSGI (`wsgi`) and as ASGI (`asgi`): one cached
function, whose loads are written to the file TEST_LOADS."""

import logging
import os
import sys
import time

import peerage
from peerage.integrations.asgi import Lifespan

logging.basicConfig(stream=sys.stderr, level="INFO", format=f"[{os.getpid()}] %(message)s")
peers = peerage.Peers.from_env()
cache = peers.cache("recycled", ttl=300)


@cache.cached("{key}", channel="{key}")
def value(key):
    with open(os.environ["TEST_LOADS"], "a") as loads:
        loads.write(f"{key} by {os.getpid()} at {time.time():.3f}\n")
    time.sleep(0.03)
    return key.encode() * 500


def wsgi(environ, start_response):
    body = value(environ["PATH_INFO"])
    start_response("200 OK", [("content-length", str(len(body)))])
    return [body]


async def bare(scope, receive, send):
    import asyncio

    body = await asyncio.to_thread(value, scope["path"])
    head = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


asgi = Lifespan(bare, peers)
