/* SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012,
 * with one round a word and three at the end, as in the tables of Rust and CPython): for
 * the hash tables of this process. Under a random key it is strong against collisions
 * chosen by who picks the names, and takes half the time of SipHash-2-4 on short ones.
 * What has to be the same on every node uses SipHash-2-4 (rendezvous).
 */
#ifndef PEERAGE_SIPHASH_H
#define PEERAGE_SIPHASH_H

#include "base.h"

struct siphash_key {
    uint64_t k0, k1;
};

struct siphash_state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t siphash_rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void siphash_round(struct siphash_state *s)
{
    s->v0 += s->v1; s->v1 = siphash_rotate(s->v1, 13) ^ s->v0; s->v0 = siphash_rotate(s->v0, 32);
    s->v2 += s->v3; s->v3 = siphash_rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3; s->v3 = siphash_rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1; s->v1 = siphash_rotate(s->v1, 17) ^ s->v2; s->v2 = siphash_rotate(s->v2, 32);
}

static inline struct siphash_state siphash_begin(const struct siphash_key *k)
{
    return (struct siphash_state){
        k->k0 ^ UINT64_C(0x736f6d6570736575), k->k1 ^ UINT64_C(0x646f72616e646f6d),
        k->k0 ^ UINT64_C(0x6c7967656e657261), k->k1 ^ UINT64_C(0x7465646279746573)};
}

static inline void siphash_word(struct siphash_state *s, uint64_t word)
{
    s->v3 ^= word;
    siphash_round(s);
    s->v0 ^= word;
}

static inline uint64_t siphash_end(struct siphash_state *s)
{
    s->v2 ^= 0xff;
    siphash_round(s);
    siphash_round(s);
    siphash_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* Little-endian, on any machine. */
static inline uint64_t siphash_load(const uint8_t *at)
{
    uint64_t w;

    memcpy(&w, at, sizeof w);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif
    return w;
}

/* The `rest` < 8 bytes behind the last whole word: a load that overlaps what was read
 * already is quicker than a loop. */
static inline uint64_t siphash_load_rest(const uint8_t *at, size_t rest, bool overlap)
{
    uint64_t w = 0;

    if (rest && overlap)
        return siphash_load(at + rest - 8) >> (64 - 8 * rest);
    for (size_t i = 0; i < rest; i++)
        w |= (uint64_t)at[i] << 8 * i;
    return w;
}

static inline struct siphash_key siphash_key_of(const uint8_t bytes[16])
{
    return (struct siphash_key){siphash_load(bytes), siphash_load(bytes + 8)};
}

static inline uint64_t siphash_span(const struct siphash_key *k, struct span in)
{
    struct siphash_state s = siphash_begin(k);
    size_t at = 0;

    for (; at + 8 <= in.bytes; at += 8)
        siphash_word(&s, siphash_load(in.at + at));
    uint64_t rest = in.bytes % 8 ? siphash_load_rest(in.at + at, in.bytes % 8, at > 0) : 0;
    siphash_word(&s, rest | (uint64_t)in.bytes << 56);
    return siphash_end(&s);
}

/* The same as of the 8 bytes, little-endian. */
static inline uint64_t siphash_u64(const struct siphash_key *k, uint64_t in)
{
    struct siphash_state s = siphash_begin(k);

    siphash_word(&s, in);
    siphash_word(&s, UINT64_C(8) << 56);
    return siphash_end(&s);
}

#endif
