"""What the attack tests ask of a worker besides what peer_worker offers."""

import threading
import time

import peer_worker

stop = threading.Event()


def measure(keys, size):
    """Ask for each key once: [how long it took in ms], and how often the answer was not the
    owner's own."""
    took, others = [], 0
    for key in keys:
        begun = time.perf_counter()
        found = peer_worker.value.lookup(key, size)
        took.append(1000 * (time.perf_counter() - begun))
        others += found.tier != "owner"
    return {"took_ms": took, "others": others}


def owned(address, prefix, count):
    """So many keys of the member at this address."""
    keys, n = [], 0
    while len(keys) < count:
        key = f"{prefix}-{n}"
        n += 1
        found = peer_worker.peers.owner(key)
        if found and found.address == address:
            keys.append(key)
    return keys


def load_all(keys, size):
    for key in keys:
        peer_worker.value(key, size)


def sized(key, size):
    """A value of exactly so many bytes, through the layer; its size, and its tier."""
    found = peer_worker.cache.lookup(key, channel=key)
    if found is None:
        got = peer_worker.cache.get_or_load(key, lambda: bytes(size), channel=key)
        return {"size": len(got), "tier": "load"}
    return {"size": len(found.value), "tier": found.tier}


def ask_until_told(prefix):
    """Ask for new keys, one after the other, until `tell_to_stop`: how often, every error,
    and the longest wait."""
    stop.clear()
    asked, errors, slowest = 0, [], 0.0
    while not stop.is_set():
        key = f"{prefix}-{asked // 2}"      # each twice: a load, a hit
        begun = time.monotonic()
        try:
            got = peer_worker.value(key)
            if not got.startswith(f"{key} by ".encode()):
                errors.append(f"{key}: {got!r}")
        except Exception as e:
            errors.append(f"{key}: {type(e).__name__}: {e}")
        slowest = max(slowest, time.monotonic() - begun)
        asked += 1
        time.sleep(0.002)
    return {"asked": asked, "errors": errors[:10], "slowest_s": slowest}


def tell_to_stop():
    stop.set()


def forget(key):
    """Delete it everywhere; True."""
    return bool(peer_worker.cache.delete(key, channel=key))


def raw_key(key):
    """How a key of get and set is written on the wire."""
    return str(peer_worker.cache.key(key)) if key else str(peer_worker.cache.key("k"))[:-1]


def key_of(key, size=0):
    """How value(key, size) is."""
    return str(peer_worker.value.key(key, size))


ASKED = (
    measure, owned, load_all, sized, ask_until_told, tell_to_stop, raw_key, key_of, forget,
)  # fmt: skip
vars(peer_worker).update({f.__name__: f for f in ASKED})
