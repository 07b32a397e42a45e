"""Make tests/vectors/frames.json and native/tests/frame_vectors.h: frames written from
docs/PROTOCOL.md by an implementation that shares nothing with ours, not even the ciphers.
Poly1305 and ChaCha20 are written out from RFC 8439, HChaCha20 from
draft-irtf-cfrg-xchacha-03; SHA-256, HMAC and BLAKE2b are hashlib's.

    python3 tests/vectors/make_frames.py            write both files
    python3 tests/vectors/make_frames.py --check    say whether they are what it would write
"""

import hashlib
import hmac
import json
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The ciphers.


def quarter(s, a, b, c, d):
    for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & 0xFFFFFFFF
        s[z] ^= s[x]
        s[z] = (s[z] << n | s[z] >> (32 - n)) & 0xFFFFFFFF


def rounds(state):
    s = list(state)
    for _ in range(10):
        for column in range(4):
            quarter(s, column, 4 + column, 8 + column, 12 + column)
        for i in range(4):
            quarter(s, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return s


def chacha_state(key, last16):
    return struct.unpack("<16I", b"expand 32-byte k" + key + last16)


def hchacha20(key, nonce16):
    s = rounds(chacha_state(key, nonce16))
    return struct.pack("<8I", *s[:4], *s[12:])


def chacha20(key, nonce12, counter, text):
    out = bytearray()
    for at in range(0, len(text), 64):
        state = chacha_state(key, struct.pack("<I", counter + at // 64) + nonce12)
        block = struct.pack(
            "<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, rounds(state), strict=True))
        )
        out += bytes(a ^ b for a, b in zip(text[at : at + 64], block, strict=False))
    return bytes(out)


def poly1305(key, text):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(text), 16):
        block = int.from_bytes(text[at : at + 16] + b"\x01", "little")
        total = (total + block) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def padded(text):
    return text + bytes(-len(text) % 16)


def chacha20_poly1305(key, nonce12, bound, text):
    sealed = chacha20(key, nonce12, 1, text)
    mac = padded(bound) + padded(sealed) + struct.pack("<QQ", len(bound), len(sealed))
    return sealed + poly1305(chacha20(key, nonce12, 0, bytes(32)), mac)


def xchacha(key, nonce24, bound, text):
    return chacha20_poly1305(hchacha20(key, nonce24[:16]), bytes(4) + nonce24[16:], bound, text)


def check_ciphers():
    """RFC 8439 2.8.2 and the draft's 2.2.1 and A.3.1: a mistake up there ends here."""
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for "
        b"the future, sunscreen would be it."
    )
    bound = bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
    key = bytes(range(0x80, 0xA0))
    rfc = chacha20_poly1305(key, bytes.fromhex("070000004041424344454647"), bound, text)
    assert rfc[-16:].hex() == "1ae10b594f09e26a7e902ecbd0600691"
    draft = xchacha(key, bytes(range(0x40, 0x58)), bound, text)
    assert draft[-16:].hex() == "c0875924c1c7987947deafd8780acf49"
    assert draft[:16].hex() == "bd6d179d3e83d43b9576579493c0e939"
    assert hchacha20(bytes(range(32)), bytes.fromhex("000000090000004a0000000031415927")).hex() == (
        "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"
    )


# Keys.


def hkdf(secret, info, length):
    key = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(key, info + b"\x01", "sha256")[:length]  # one block is enough here


def keys(secret):
    names = {"hmac": 32, "aead": 32, "redis": 32, "id": 1}
    raw = bytes.fromhex(secret)
    return {name: hkdf(raw, b"peerage v1 " + name.encode(), n) for name, n in names.items()}


def label_hash(label):
    return hashlib.blake2b(label.encode()).digest()[:8]


# Frames.

HMAC, AEAD = 0, 1
TAG = {HMAC: 32, AEAD: 16}


def seal_head(case, fields, value_bytes, bound):
    key = keys(case["secrets"][0])
    fixed = struct.pack(
        ">2sBBBBHII8sQQ16sQQQ",
        b"PG", 1, case["mode"], case["kind"], key["id"][0],
        80 + len(fields) + TAG[case["mode"]], value_bytes, 0,
        label_hash(case["label"]), case["sender_id"], case["receiver_id"],
        bytes.fromhex(case["random"]), case["counter"], case["sent_ms"], case["request_id"],
    )  # fmt: skip
    if case["mode"] == HMAC:
        return fixed + fields + hmac.digest(key["hmac"], fixed + fields + bound, "sha256")
    nonce = bytes.fromhex(case["random"]) + struct.pack(">Q", case["counter"])
    return fixed + xchacha(key["aead"], nonce, fixed + bound, fields)


def fields_of(case, value):
    m = case["message"]
    key, channel, loader = (m[name].encode() for name in ("key", "channel", "loader"))
    out = struct.pack(
        ">BBBBBBHIIIIIQ",
        m["flags"], m["value_type"], len(m["chain"]), len(channel), len(loader), 0, len(key),
        m["budget_ms"], m["load_timeout_ms"], m["ttl_ms"], m["stale_ms"], m["age_ms"],
        m["delete_id"],
    )  # fmt: skip
    out += b"".join(struct.pack(">Q", hash_) for hash_ in m["chain"]) + key + channel + loader
    if value and case["mode"] == HMAC:
        out += hashlib.sha256(value).digest()
    return out


def tcp(case):
    """Fill in the frame: its head, and the value as it is sent."""
    value = bytes.fromhex(case["value"])
    bound = bytes.fromhex(case["client_random"] + case["server_random"])
    case["random"] = case["server_random"] if case["from_server"] else case["client_random"]
    wire_bytes = len(value) + (TAG[AEAD] if value and case["mode"] == AEAD else 0)
    head = seal_head(case, fields_of(case, value), wire_bytes, bound)
    wire = value
    if value and case["mode"] == AEAD:
        nonce = bytes.fromhex(case["random"]) + struct.pack(">Q", case["counter"] + 1)
        wire = xchacha(keys(case["secrets"][0])["aead"], nonce, head[-16:], value)
    return case | {"head": head.hex(), "wire_value": wire.hex()}


def challenge(case):
    out = b"PGC\x01" + struct.pack(">Q", case["server_id"]) + bytes.fromhex(case["server_random"])
    return case | {
        "challenge": (out + label_hash(case["label"]) + bytes([case["mode"], 0, 0, 0])).hex()
    }


def datagram(case):
    payload = bytes.fromhex(case["payload"])
    fields = struct.pack(">H", len(payload)) + payload
    fields += bytes(max(0, case["pad_to"] - 80 - len(fields) - TAG[case["mode"]]))
    return case | {"packet": seal_head(case | {"kind": 1, "request_id": 0}, fields, 0, b"").hex()}


def rest(case):
    nonce = bytes.fromhex(case["nonce"])
    key = keys(case["secrets"][0])["redis"]
    bound = b"\x01" + case["name"].encode()
    return case | {
        "sealed": (b"\x01" + nonce + xchacha(key, nonce, bound, bytes.fromhex(case["value"]))).hex()
    }


# What is asked of them.

SECRETS = [hashlib.sha256(b"peerage vector secret %d" % n).hexdigest() for n in range(2)]
KINDS = {"HELLO": 2, "WELCOME": 3, "ASK": 4, "VALUE": 6, "PERMIT": 13, "PUSH": 17, "DROP": 19}
EMPTY = {
    "flags": 0, "value_type": 0, "budget_ms": 0, "load_timeout_ms": 0, "ttl_ms": 0,
    "stale_ms": 0, "age_ms": 0, "delete_id": 0, "chain": [], "key": "", "channel": "",
    "loader": "",
}  # fmt: skip
# name, from the server?, kind, message, value
MESSAGES = [
    ("hello", False, "HELLO", {}, b""),
    ("welcome", True, "WELCOME", {}, b""),
    ("ask", False, "ASK",
     {"flags": 2, "budget_ms": 250, "load_timeout_ms": 10000, "ttl_ms": 10000, "stale_ms": 30000,
      "chain": [0x0102030405060708, 0xF1F2F3F4F5F6F7F8], "key": "pages:page:sdurov/n",
      "channel": "durov", "loader": "pages:page"}, b""),
    ("value", True, "VALUE",
     {"value_type": 1, "ttl_ms": 9500, "stale_ms": 30000, "age_ms": 500,
      "delete_id": 0x1122334455667788}, "a page, каналы, قناة, 📺".encode()),
    ("value, and more follow", True, "VALUE",
     {"flags": 1, "value_type": 2, "ttl_ms": 0xFFFFFFFF}, b"{}"),
    ("permit", True, "PERMIT", {"load_timeout_ms": 10000}, b""),
    ("push of 1000 bytes", False, "PUSH",
     {"ttl_ms": 1, "key": "raw=" + "k" * 1020, "channel": "c" * 255},
     bytes(n % 251 for n in range(1000))),
    ("drop", False, "DROP", {"flags": 24, "key": "k", "delete_id": 2**64 - 1}, b"\x00"),
]  # fmt: skip


def vectors():
    out = {"challenges": [], "frames": [], "datagrams": [], "rest": []}
    for mode in (HMAC, AEAD):
        common = {"mode": mode, "label": "vectors"}
        randoms = {
            side: hashlib.md5(b"%s random %d" % (side.encode(), mode)).hexdigest()
            for side in ("client_random", "server_random")
        }
        out["challenges"].append(challenge(common | {"server_id": 0x0203040506070809, **randoms}))
        for n, (name, from_server, kind, message, value) in enumerate(MESSAGES):
            ids = [0x0A0B0C0D0E0F1011, 0x0203040506070809]
            out["frames"].append(tcp({
                "name": name, **common,
                # the last ones as in the middle of a rotation: two secrets, the second new
                "secrets": SECRETS[:1] if n < 6 else SECRETS[::-1],
                "from_server": from_server, "kind": KINDS[kind],
                "sender_id": ids[from_server], "receiver_id": ids[not from_server],
                **randoms, "counter": 1 + 1000 * n if n != 5 else 2**64 - 1,
                "sent_ms": 1700000000000 + n, "request_id": n * 0x0101010101010101,
                "message": EMPTY | message, "value": value.hex(),
            }))  # fmt: skip
        for n, (receiver, payload, pad_to) in enumerate(
            [(0x0203040506070809, b"gossip", 0), (0, b"join", 600), (1, b"", 0),
             (1, bytes(range(200)) * 6, 1400)]
        ):  # fmt: skip
            out["datagrams"].append(datagram({
                **common, "secrets": SECRETS[:1], "sender_id": 0x0A0B0C0D0E0F1011,
                "receiver_id": receiver, "random": randoms["client_random"],
                "counter": 7 + n, "sent_ms": 1700000000000, "payload": payload.hex(),
                "pad_to": pad_to,
            }))  # fmt: skip
    for name, value in (("peerage:v1:e:key", b"a value at rest"), ("", b"")):
        out["rest"].append(rest({
            "secrets": SECRETS[:1], "label": "vectors", "name": name, "value": value.hex(),
            "nonce": hashlib.sha256(name.encode()).hexdigest()[:48],
        }))  # fmt: skip
    return out


# The same as C.


def c_text(text):
    """A C string literal of ASCII text, in pieces that keep lines short."""
    assert text.isascii() and text.isprintable() and not set('"\\') & set(text)
    pieces = [text[at : at + 76] for at in range(0, len(text), 76)] or [""]
    return "\n        ".join(f'"{piece}"' for piece in pieces)


def c_value(value):
    if isinstance(value, str):
        return c_text(value)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return c_text(",".join(value))
    if isinstance(value, list):
        return "{" + ", ".join(c_value(v) for v in value) + "}"
    return f"UINT64_C({int(value)})"


def c_table(struct_name, name, rows, skip=()):
    lines = [f"static const struct {struct_name} {name}[] = {{"]
    for row in rows:
        flat = row | row.get("message", {})
        flat["chain_count"] = len(flat.get("chain", []))
        lines.append("    {")
        for key, value in flat.items():
            if key not in ("message", *skip) and value not in ([], "", 0):
                lines.append(f"        .{key} = {c_value(value)},")
        lines.append("    },")
    return "\n".join([*lines, "};"])


def c_header(v):
    return "\n".join([
        "/* Made by tests/vectors/make_frames.py; what the fields mean stands in test_frames.c. */",
        c_table("challenge_vector", "challenge_vectors", v["challenges"]),
        c_table("frame_vector", "frame_vectors", v["frames"], skip=("random",)),
        c_table("datagram_vector", "datagram_vectors", v["datagrams"]),
        c_table("rest_vector", "rest_vectors", v["rest"]),
        "",
    ])  # fmt: skip


def main():
    check_ciphers()
    v = vectors()
    files = {
        ROOT / "tests/vectors/frames.json": json.dumps(v, indent=1, ensure_ascii=False) + "\n",
        ROOT / "native/tests/frame_vectors.h": c_header(v),
    }
    if sys.argv[1:] == ["--check"]:
        stale = [str(p.relative_to(ROOT)) for p, text in files.items() if p.read_text() != text]
        sys.exit(f"not as made: {', '.join(stale)}" if stale else 0)
    for path, text in files.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
