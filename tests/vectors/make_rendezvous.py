"""Make native/tests/rendezvous_vectors.h: who owns what, from an implementation that
shares nothing with ours. SipHash is written out from the paper (Aumasson and Bernstein,
INDOCRYPT 2012), BLAKE2b is hashlib's.

    python3 tests/vectors/make_rendezvous.py >native/tests/rendezvous_vectors.h
"""

import hashlib
import ipaddress

M = 2**64 - 1


def rotl(x, n):
    return (x << n | x >> (64 - n)) & M


def siphash(key, text, c=2, d=4):
    k0, k1 = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(n):
        for _ in range(n):
            v[0] = (v[0] + v[1]) & M
            v[1] = rotl(v[1], 13) ^ v[0]
            v[0] = rotl(v[0], 32)
            v[2] = (v[2] + v[3]) & M
            v[3] = rotl(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & M
            v[3] = rotl(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & M
            v[1] = rotl(v[1], 17) ^ v[2]
            v[2] = rotl(v[2], 32)

    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) & 255])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= word
        rounds(c)
        v[0] ^= word
    v[2] ^= 255
    rounds(d)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def fmix64(x):
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & M
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & M
    return x ^ x >> 33


def member_bytes(text):
    host, port = text.rsplit(":", 1)
    ip = ipaddress.ip_address(host.strip("[]"))
    mapped = bytes(10) + b"\xff\xff" + ip.packed if ip.version == 4 else ip.packed
    return bytes([ip.version]) + mapped + int(port).to_bytes(2, "big")


def c_text(text):
    """A C string literal of UTF-8 in octal, which no following digit can change."""
    return '"' + "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()
    ) + '"'


LABELS = ["default", "", "staging", "проба"]
CHANNELS = ["", "durov", "a", "12345678", "pages:durov", "канал/📰", "x" * 255]
MEMBERS = ["10.0.0.9:7946", "10.0.0.9:7947", "10.0.0.108:7946", "127.0.0.1:1", "[::1]:7946",
           "[fd00::1:2]:65535", "192.168.255.254:80"]


def main():
    # The paper's own vector, appendix A, guards the implementation above.
    assert siphash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5

    print("/* Made by tests/vectors/make_rendezvous.py; don't edit. */")
    print("#ifndef PEERAGE_TESTS_RENDEZVOUS_VECTORS_H")
    print("#define PEERAGE_TESTS_RENDEZVOUS_VECTORS_H\n")
    print(f"#define VECTOR_MEMBERS {len(MEMBERS)}\n")
    print("static const char *const vector_members[VECTOR_MEMBERS] = {")
    for member in MEMBERS:
        print(f"    {c_text(member)},")
    print("};\n")
    print("static const struct {\n    const char *label;\n    uint8_t key[16];")
    print("    uint64_t member_hash[VECTOR_MEMBERS];\n} vector_labels[] = {")
    keys = {label: hashlib.blake2b(label.encode()).digest()[:16] for label in LABELS}
    for label, key in keys.items():
        print(f"    {{{c_text(label)},\n     {{{', '.join(f'0x{b:02x}' for b in key)}}},\n     {{")
        for member in MEMBERS:
            print(f"         UINT64_C(0x{siphash(key, member_bytes(member)):016x}),")
        print("     }},")
    print("};\n")
    print("/* `rank` is the members' indices, the owner first. */")
    print("static const struct {\n    unsigned label;\n    const char *channel;")
    print("    uint64_t channel_hash, owner_score;\n    unsigned rank[VECTOR_MEMBERS];")
    print("} vector_channels[] = {")
    for at, (label, key) in enumerate(keys.items()):
        for channel in CHANNELS:
            h = siphash(key, channel.encode())
            scores = [fmix64(h ^ siphash(key, member_bytes(m))) for m in MEMBERS]
            assert len(set(scores)) == len(scores)
            rank = sorted(range(len(MEMBERS)), key=lambda i: -scores[i])
            print(f"    {{{at}, {c_text(channel)},")
            print(f"     UINT64_C(0x{h:016x}), UINT64_C(0x{scores[rank[0]]:016x}),")
            print(f"     {{{', '.join(map(str, rank))}}}}},")
    print("};\n\n#endif")


if __name__ == "__main__":
    main()
