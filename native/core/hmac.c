/* SHA-256, HMAC, HKDF (see hmac.h). */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "hmac.h"

#include "mem.h"

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

void hmac_sign(const struct hmac_key *k, struct span a, struct span b, uint8_t out[HMAC_BYTES])
{
    SHA256_CTX c = k->inner;
    uint8_t inner[HMAC_BYTES];

    update(&c, a);
    update(&c, b);
    SHA256_Final(inner, &c);
    c = k->outer;
    SHA256_Update(&c, inner, sizeof inner);
    SHA256_Final(out, &c);
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
