"""An attacker's toolbox: clients, servers and members of the wire, written from
docs/PROTOCOL.md alone. It shares nothing with the native code, not even the ciphers
(those are the vectors' own, in vectors/make_frames.py), and, unlike a node, it can make
every field of a frame wrong.
"""

import contextlib
import functools
import hashlib
import hmac
import importlib.util
import os
import socket
import struct
import threading
import time
from pathlib import Path

from workers import unix_path

spec = importlib.util.spec_from_file_location(
    "make_frames", Path(__file__).parent / "vectors" / "make_frames.py"
)
frames = importlib.util.module_from_spec(spec)
spec.loader.exec_module(frames)

HMAC, AEAD = 0, 1
TAG = frames.TAG
FRAME_MAX, HEAD_MAX, KEY_MAX = 8 << 20, 2048, 1024
(GOSSIP, HELLO, WELCOME, ASK, PEEK, VALUE, MISS, FAILED, ACCEPTED, WORKING, NOT_ME, BUSY, PERMIT,
 LOADED, RAISED, RETURNED, PUSH, DELETE, DROP, DELETED, DONE, TABLE, PAGE, TALLY, UNSUPPORTED,
 CANCEL, LOST, RECURSIVE) = range(1, 29)  # fmt: skip
PING, ACK, RELAY, REACHED, NACK, NEWS, JOIN, CHALLENGE, PROOF, WELCOMED = range(1, 11)
ALIVE, SUSPECT, DEAD, LEFT = range(4)
EMPTY = frames.EMPTY

keys = functools.lru_cache(frames.keys)


def random_id():
    return int.from_bytes(os.urandom(8), "big") | 1


class Identity:
    """Who sends: a secret, a label, a mode, a node id."""

    def __init__(self, secret, label, mode=HMAC, node_id=None):
        self.secret, self.label, self.mode = secret, label, mode
        self.id = node_id or random_id()
        self.random = os.urandom(16)        # of its datagrams
        self.counter = 0

    def head(self, kind, receiver, random, counter, fields=b"", value_bytes=0, request_id=0,
             bound=b"", off_ms=0, **wrong):
        """A sealed head. `wrong` sets a field of the fixed part to what it should not be,
        under a tag that is right for it."""
        key = keys(self.secret)
        f = {
            "magic": b"PG", "version": 1, "mode": self.mode, "kind": kind, "key_id": key["id"][0],
            "head_bytes": 80 + len(fields) + TAG[self.mode], "value_bytes": value_bytes,
            "reserved": 0, "label": frames.label_hash(self.label), "sender": self.id,
            "receiver": receiver, "random": random, "counter": counter,
            "sent_ms": int(time.time() * 1000) + off_ms, "request_id": request_id,
        } | wrong  # fmt: skip
        fixed = struct.pack(">2sBBBBHII8sQQ16sQQQ", *f.values())
        if self.mode == HMAC:
            return fixed + fields + hmac.digest(key["hmac"], fixed + fields + bound, "sha256")
        nonce = f["random"] + struct.pack(">Q", f["counter"])
        return fixed + frames.xchacha(key["aead"], nonce, fixed + bound, fields)

    def open(self, head, bound):
        """The fixed part and the fields of a head that must verify."""
        fixed, rest, tag = head[:80], head[80:-TAG[self.mode]], head[-TAG[self.mode]:]
        key = keys(self.secret)
        if self.mode == HMAC:
            assert hmac.digest(key["hmac"], fixed + rest + bound, "sha256") == tag, "a bad tag"
            return fixed, rest
        return fixed, unseal(key["aead"], fixed[40:64], fixed + bound, rest, tag)

    def datagram(self, receiver, payload, pad_to=0, counter=None, **wrong):
        if counter is None:
            self.counter += 1
            counter = self.counter
        fields = struct.pack(">H", len(payload)) + payload
        fields += bytes(max(0, pad_to - 80 - len(fields) - TAG[self.mode]))
        return self.head(GOSSIP, receiver, self.random, counter, fields, **wrong)


def unseal(key, nonce, bound, sealed, tag):
    subkey, nonce12 = frames.hchacha20(key, nonce[:16]), bytes(4) + nonce[16:]
    mac = frames.padded(bound) + frames.padded(sealed)
    mac += struct.pack("<QQ", len(bound), len(sealed))
    assert frames.poly1305(frames.chacha20(subkey, nonce12, 0, bytes(32)), mac) == tag, "a bad tag"
    return frames.chacha20(subkey, nonce12, 1, sealed)


def fields_of(message, digest=b""):
    m = EMPTY | message
    key, channel, loader = (
        m[name].encode() if isinstance(m[name], str) else m[name]
        for name in ("key", "channel", "loader")
    )
    fixed = struct.pack(
        ">BBBBBBHIIIIIQ", m["flags"], m["value_type"], len(m["chain"]), len(channel), len(loader),
        0, len(key), m["budget_ms"], m["load_timeout_ms"], m["ttl_ms"], m["stale_ms"], m["age_ms"],
        m["delete_id"],
    )  # fmt: skip
    chain = b"".join(struct.pack(">Q", hash_) for hash_ in m["chain"])
    return fixed + chain + key + channel + loader + digest


def message_of(fields):
    """The names a test looks at."""
    flags, value_type, chain, channel, loader, _, key = struct.unpack(">BBBBBBH", fields[:8])
    at = 36 + 8 * chain
    return {"flags": flags, "value_type": value_type, "key": fields[at : at + key],
            "channel": fields[at + key : at + key + channel]}  # fmt: skip


class Frame:
    def __init__(self, fixed, fields, value):
        (_, _, _, self.kind, _, _, _, _, _, self.sender, self.receiver, self.random, self.counter,
         _, self.request_id) = struct.unpack(">2sBBBBHII8sQQ16sQQQ", fixed)  # fmt: skip
        self.message, self.value = message_of(fields), value

    def __repr__(self):
        return f"<frame of kind {self.kind} for request {self.request_id}>"


class Link:
    """One end of a connection: counters, randoms, and frames made and opened."""

    def __init__(self, identity, sock):
        self.me, self.sock, self.counter, self.peer = identity, sock, 0, 0
        self.random, self.peer_random = os.urandom(16), None

    def bound(self):
        both = self.random, self.peer_random
        return b"".join(both if self.client else both[::-1])

    def frame(self, kind, message=None, value=b"", request_id=0, counter=None, fields=None,
              digest=None, **wrong):
        """The bytes of a frame: head and value."""
        if counter is None:
            counter = self.counter + 1
            self.counter += 2 if value else 1
        if fields is None:
            sealed = value and self.me.mode == HMAC
            digest = digest or hashlib.sha256(value).digest()
            fields = fields_of(message or {}, digest if sealed else b"")
        wire_bytes = len(value) + (TAG[AEAD] if value and self.me.mode == AEAD else 0)
        receiver = wrong.pop("receiver", self.peer)
        head = self.me.head(
            kind, receiver, wrong.pop("random", self.random), counter, fields,
            wrong.pop("value_bytes", wire_bytes), request_id, self.bound(), **wrong,
        )  # fmt: skip
        if value and self.me.mode == AEAD:
            nonce = self.random + struct.pack(">Q", counter + 1)
            value = frames.xchacha(keys(self.me.secret)["aead"], nonce, head[-16:], value)
        return head + value

    def send(self, *args, **kwargs):
        data = args[0] if isinstance(args[0], bytes) else self.frame(*args, **kwargs)
        self.sock.sendall(data)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += more
        return data

    def receive(self, timeout=5.0):
        self.sock.settimeout(timeout)
        fixed = self.exactly(80)
        head_bytes, value_bytes = struct.unpack(">HI", fixed[6:12])
        head = fixed + self.exactly(head_bytes - 80)
        wire = self.exactly(value_bytes)
        if self.peer_random is None:
            self.peer_random = fixed[40:56]
            self.peer = struct.unpack(">Q", fixed[24:32])[0]
        fixed, fields = self.me.open(head, self.bound())
        if wire and self.me.mode == AEAD:
            counter = struct.unpack(">Q", fixed[56:64])[0] + 1
            nonce = fixed[40:56] + struct.pack(">Q", counter)
            wire = unseal(keys(self.me.secret)["aead"], nonce, head[-16:], wire[:-16], wire[-16:])
        return Frame(fixed, fields, wire)

    def rest(self, timeout=3.0):
        """Everything that comes until the other side closes; None: it does not close."""
        self.sock.settimeout(timeout)
        data = b""
        try:
            while more := self.sock.recv(65536):
                data += more
        except TimeoutError:
            return None
        except ConnectionError:
            pass            # bytes of ours that it had not read: it closed all the same
        return data

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Client(Link):
    """A connection to a node."""

    client = True

    def __init__(self, identity, port, source=None, timeout=5.0, challenge=True, near=False):
        """`near`: by the node's Unix socket."""
        if near:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(timeout)
            sock.connect(str(unix_path(f"127.0.0.1:{port}")))
        else:
            sock = socket.create_connection(
                ("127.0.0.1", port), timeout, source_address=(source, 0) if source else None
            )
        super().__init__(identity, sock)
        if challenge:
            self.challenge = self.exactly(40)
            assert self.challenge[:4] == b"PGC\x01"
            self.peer = struct.unpack(">Q", self.challenge[4:12])[0]
            self.peer_random = self.challenge[12:28]

    def hello(self):
        self.send(HELLO, request_id=1)
        welcome = self.receive()
        assert (welcome.kind, welcome.request_id) == (WELCOME, 1)
        return self

    def ask(self, kind, message=None, value=b"", request_id=2, **wrong):
        """A frame, and the first frame that comes for it."""
        self.send(kind, message, value, request_id=request_id, **wrong)
        answer = self.receive()
        assert answer.request_id == request_id
        return answer

    def ends(self, data):
        """Send the bytes, and no more: what comes back before the node closes."""
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)
            self.sock.shutdown(socket.SHUT_WR)
        got = self.rest()
        assert got is not None, "the node keeps the connection open"
        return got


class Server(Link):
    """An accepted connection of a rogue node."""

    client = False

    def accept(self):
        self.send(b"PGC\x01" + struct.pack(">Q", self.me.id) + self.random
                  + frames.label_hash(self.me.label) + bytes([self.me.mode, 0, 0, 0]))  # fmt: skip
        hello = self.receive()
        assert hello.kind == HELLO
        self.send(WELCOME, request_id=hello.request_id)
        return self


# -- gossip ------------------------------------------------------------------------------------


def sized(host, port):
    return b"\x06" + socket.inet_aton(host) + struct.pack(">H", port)


def update(host, port, node_id, started_ms, version=1, state=ALIVE, flags=1, accusers=(),
           age_s=0, contested=False):  # fmt: skip
    """What gossip says of one member."""
    bits = state | (8 if contested else 0) | len(accusers) << 4
    record = bytes([bits]) + socket.inet_aton(host)
    record += struct.pack(">HQQQBBB", port, node_id, started_ms, version, flags, 1, 1)
    if state >= DEAD:
        record += struct.pack(">I", age_s)
    record += b"".join(b"\x04" + socket.inet_aton(a) for a in accusers)
    return bytes([len(record)]) + record


def gossip(kind, host, port, carries=b"", updates=b""):
    head = sized(host, port) + carries
    return bytes([1, kind, len(head)]) + head + updates


class Rogue:
    """A member with the secret that can be made to lie. It answers pings and challenges as a
    node would, so the others believe in it; questions go to `answer(link, frame)`."""

    def __init__(self, identity, port, host="127.0.0.1"):
        self.me, self.host, self.port = identity, host, port
        self.started_ms = int(time.time() * 1000)
        self.version = 1
        self.heard = []                 # (kind, sender id, payload) of every datagram
        self.raw = []                   # (address, bytes)
        self.refuted = 0
        self.answer = lambda link, frame: link.send(NOT_ME, request_id=frame.request_id)
        self.listener = socket.create_server((host, port), backlog=64)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((host, port))
        self.udp.settimeout(0.2)
        self.links, self.open = [], True
        self.threads = [
            threading.Thread(target=run, daemon=True) for run in (self.listen, self.accept)
        ]
        for thread in self.threads:
            thread.start()

    def record(self, **changes):
        true = {"host": self.host, "port": self.port, "node_id": self.me.id,
                "started_ms": self.started_ms, "version": self.version}  # fmt: skip
        return update(**true | changes)

    def say(self, kind, to, receiver, carries=b"", updates=b"", pad_to=0):
        payload = gossip(kind, self.host, self.port, carries, updates)
        payload += bytes(max(0, pad_to - len(payload)))
        self.udp.sendto(self.me.datagram(receiver, payload), ("127.0.0.1", to))

    def join(self, to):
        self.say(JOIN, to, 0, struct.pack(">IQ", 1, 0), self.record(), pad_to=1200)

    def leave(self, to, receiver):
        self.version += 1
        self.say(NEWS, to, receiver, updates=self.record(state=LEFT))

    def listen(self):
        while self.open:
            try:
                data, address = self.udp.recvfrom(2048)
            except TimeoutError:
                continue
            except OSError:
                return
            self.raw.append((address, data))
            try:
                fixed, fields = self.me.open(data, b"")
            except AssertionError:
                continue
            length = struct.unpack(">H", fields[:2])[0]
            self.hear(struct.unpack(">Q", fixed[24:32])[0], address[1], fields[2 : 2 + length])

    def hear(self, sender, port, payload):
        kind, head_bytes = payload[1], payload[2]
        carried = payload[3 + 7 : 3 + head_bytes]
        self.heard.append((kind, sender, payload))
        if kind == PING:
            self.say(ACK, port, sender, carried)
        elif kind == CHALLENGE:
            self.say(PROOF, port, sender, carried)

    def accept(self):
        while self.open:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        with contextlib.suppress(OSError, EOFError, AssertionError), Server(self.me, sock) as link:
            self.links.append(link)
            link.accept()
            while self.open:
                frame = link.receive(600)
                if frame.kind == TABLE:
                    page = bytes([1]) + bytes(8)
                    link.send(PAGE, {}, page, request_id=frame.request_id)
                else:
                    self.answer(link, frame)

    def close(self):
        self.open = False
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.udp.close()
        for link in self.links:
            with contextlib.suppress(OSError):
                link.sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
