"""The load test over workers that run already, on several servers.

    load_over_servers.py --upstream HOST:PORT --seconds S --rate R --ttl T HOST:PORT...

Asks as scripts/coalescing_load.py does (open loop, heavy in duplicates, spread over all
servers), and counts from the upstream's log as it does. Prints one JSON object: requests,
errors by kind, wrong, fetches, needed, fetches_per_key_per_ttl.
"""

import argparse
import asyncio
import json
from collections import Counter

from peerage.demo import recorded
from peerage.demo.load import counting, schedule
from peerage.demo.load.client import Client, ConnectionEnded
from peerage.demo.upstream import Fetch

PATIENCE_S = 5


def client(address):
    host, _, port = address.rpartition(":")
    return Client(host, int(port))


async def fetches(upstream):
    answer = await upstream.get("/_log", PATIENCE_S)
    return [Fetch(**fields) for fields in json.loads(answer.body)]


async def load(args):
    loop = asyncio.get_running_loop()
    upstream, servers = client(args.upstream), [client(address) for address in args.servers]
    before = len(await fetches(upstream))
    errors, tally = Counter(), Counter()

    async def ask(arrival):
        try:
            path = arrival.target.path
            answer = await servers[arrival.pick % len(servers)].get(path, PATIENCE_S)
        except (ConnectionEnded, asyncio.TimeoutError) as error:
            errors[type(error).__name__] += 1
            return
        if answer.status != 200:
            errors[f"status {answer.status}"] += 1
            return
        tally[answer.headers["peerage-tier"]] += 1
        stamp = recorded.find_stamp(answer.body)
        if (stamp.channel, stamp.request) != (arrival.target.channel, arrival.target.request):
            tally["wrong"] += 1

    start, asked = loop.time(), []
    for arrival in schedule.arrivals(args.seed, args.rate, args.seconds, schedule.targets()):
        await asyncio.sleep(max(0, start + arrival.due_s - loop.time()))
        asked.append(asyncio.ensure_future(ask(arrival)))
    await asyncio.gather(*asked)

    counts = counting.count((await fetches(upstream))[before:], {}, args.ttl)
    return {
        "requests": len(asked),
        "errors": sum(errors.values()),
        "errors_by_kind": dict(errors),
        "wrong": tally.pop("wrong", 0),
        "tiers": dict(tally),
        "fetches": counts.fetches,
        "needed": counts.needed,
        "fetches_per_key_per_ttl": round(counts.per_key_per_ttl, 3),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--ttl", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("servers", nargs="+")
    print(json.dumps(asyncio.run(load(parser.parse_args()))))


main()
