"""A worker that only watches: it prints who is live, with the time, whenever that changes.

One JSON line each: {"t": monotonic seconds, "state": ..., "live": [addresses]}. The clock
is the machine's, so lines of several processes compare.
"""

import json
import time

import peerage


def main():
    peers = peerage.Peers.from_env()
    peers.start()
    before = None
    while True:
        now = [peers.state, sorted(str(m) for m in peers.members() if m.live)]
        if now != before:
            before = now
            print(json.dumps({"t": time.monotonic(), "state": now[0], "live": now[1]}),
                  flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
