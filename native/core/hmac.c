/* SHA-256, HMAC, HKDF (see hmac.h). */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "hmac.h"

#include "mem.h"
#include "wire.h"

#define BLOCK_BYTES SHA256_CBLOCK

static void update(SHA256_CTX *c, struct span s)
{
    if (s.bytes)
        SHA256_Update(c, s.at, s.bytes);
}

void hmac_digest(struct span s, uint8_t out[SHA256_DIGEST_LENGTH])
{
    SHA256_CTX c;

    SHA256_Init(&c);
    update(&c, s);
    SHA256_Final(out, &c);
}

void hmac_init(struct hmac_key *k, struct span key)
{
    uint8_t block[BLOCK_BYTES] = {0};

    if (key.bytes > sizeof block)
        hmac_digest(key, block);
    else if (key.bytes)
        memcpy(block, key.at, key.bytes);

    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36;
    SHA256_Init(&k->inner);
    SHA256_Update(&k->inner, block, sizeof block);

    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36 ^ 0x5c;
    SHA256_Init(&k->outer);
    SHA256_Update(&k->outer, block, sizeof block);
    mem_wipe(block, sizeof block);
}

/* End a hash of `all_bytes`, of which `bytes` stand in `last` and were not added yet, with
 * room behind them for the padding. SHA256_Update compresses whole blocks where they lie;
 * SHA256_Final would do no more, and takes as long as a block for it. */
static void finish(SHA256_CTX *c, uint8_t *last, size_t bytes, uint64_t all_bytes,
                   uint8_t out[HMAC_BYTES])
{
    size_t padded = (bytes + 1 + 8 + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    struct writer end = writer_of(last + padded - 8, 8), digest = writer_of(out, HMAC_BYTES);

    last[bytes] = 0x80;
    memset(last + bytes + 1, 0, padded - 8 - bytes - 1);
    put_u64(&end, 8 * all_bytes);
    SHA256_Update(c, last, padded);
    for (unsigned i = 0; i < ARRAY_COUNT(c->h); i++)
        put_u32(&digest, c->h[i]);
}

void hmac_sign(const struct hmac_key *k, struct span a, struct span b, uint8_t out[HMAC_BYTES])
{
    SHA256_CTX c = k->inner;
    uint8_t last[3 * BLOCK_BYTES];
    size_t rest = a.bytes % BLOCK_BYTES;

    assert(b.bytes <= BLOCK_BYTES);
    update(&c, span_of(a.at, a.bytes - rest));
    if (rest)
        memcpy(last, a.at + a.bytes - rest, rest);
    if (b.bytes)
        memcpy(last + rest, b.at, b.bytes);
    finish(&c, last, rest + b.bytes, BLOCK_BYTES + a.bytes + b.bytes, last);
    c = k->outer;
    finish(&c, last, HMAC_BYTES, BLOCK_BYTES + HMAC_BYTES, out);
}

void hmac_derive(struct span secret, struct span salt, struct span info, uint8_t *out,
                 size_t bytes)
{
    uint8_t block[HMAC_BYTES], number = 0;
    struct hmac_key k;

    assert(bytes <= 255 * HMAC_BYTES);
    hmac_init(&k, salt);
    hmac_sign(&k, secret, SPAN_NONE, block);
    hmac_init(&k, span_of(block, sizeof block));

    /* T(i) = HMAC(T(i-1) || info || i); the first has no predecessor. */
    for (size_t done = 0; done < bytes; done += HMAC_BYTES) {
        SHA256_CTX c = k.inner;

        if (number++)
            SHA256_Update(&c, block, sizeof block);
        update(&c, info);
        SHA256_Update(&c, &number, 1);
        SHA256_Final(block, &c);
        c = k.outer;
        SHA256_Update(&c, block, sizeof block);
        SHA256_Final(block, &c);
        memcpy(out + done, block, min_size(bytes - done, sizeof block));
    }
    mem_wipe(&k, sizeof k);
    mem_wipe(block, sizeof block);
}
