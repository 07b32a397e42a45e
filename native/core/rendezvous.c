/* Rendezvous hashing (see rendezvous.h). A pass over all candidates costs about one
 * nanosecond each, because what is hashed per member and per channel is hashed once and
 * only the two results are mixed for each pair. */
#include "rendezvous.h"

#include <sodium.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_AVX2_CODE
#endif

/* What is hashed for a member: family, address (IPv4 mapped), port big-endian. */
#define MEMBER_BYTES 19

/* Among the first of many the best change too often for taking eight at a time. */
#define FIRST_BY_ONE 16u
_Static_assert(FIRST_BY_ONE >= RENDEZVOUS_RANKS_MAX, "ranks are taken by then");

static uint64_t hash(const struct rendezvous *r, const uint8_t *at, size_t bytes)
{
    static const uint8_t nothing[1];
    uint8_t out[crypto_shorthash_siphash24_BYTES];
    uint64_t value = 0;

    crypto_shorthash_siphash24(out, at ? at : nothing, bytes, r->key);
    for (unsigned i = sizeof out; i-- > 0;)     /* SipHash's output is little-endian */
        value = value << 8 | out[i];
    return value;
}

void rendezvous_init(struct rendezvous *r, struct span label)
{
    /* The 64-byte BLAKE2b, cut: BLAKE2b with a shorter output is another function. */
    uint8_t out[crypto_generichash_blake2b_BYTES_MAX];

    crypto_generichash_blake2b(out, sizeof out, label.at, label.bytes, NULL, 0);
    memcpy(r->key, out, sizeof r->key);
}

uint64_t rendezvous_channel(const struct rendezvous *r, struct span channel)
{
    return hash(r, channel.at, channel.bytes);
}

uint64_t rendezvous_member(const struct rendezvous *r, const struct addr *a)
{
    uint8_t in[MEMBER_BYTES];

    in[0] = addr_is_v4(a) ? 4 : 6;
    memcpy(in + 1, a->ip, sizeof a->ip);
    in[17] = (uint8_t)(a->port >> 8);
    in[18] = (uint8_t)a->port;
    return hash(r, in, sizeof in);
}

/* The best so far. */
struct ranking {
    uint64_t scores[RENDEZVOUS_RANKS_MAX], last;    /* last: of the lowest rank */
    unsigned want, found, *out;
};

static void place(struct ranking *r, unsigned i, uint64_t score)
{
    unsigned at = r->found < r->want ? r->found++ : r->want - 1;

    /* Only a higher score passes one already placed, so ties go to the earlier. */
    for (; at > 0 && score > r->scores[at - 1]; at--) {
        r->scores[at] = r->scores[at - 1];
        r->out[at] = r->out[at - 1];
    }
    r->scores[at] = score;
    r->out[at] = i;
    r->last = r->scores[r->found - 1];
}

static void rank_one_by_one(struct ranking *r, const uint64_t *member_hashes, unsigned i,
                            unsigned count, uint64_t channel_hash)
{
    for (; i < count; i++) {
        uint64_t score = rendezvous_score(channel_hash, member_hashes[i]);
        if (score > r->last || r->found < r->want)      /* few of many */
            place(r, i, score);
    }
}

#ifdef HAS_AVX2_CODE
typedef uint64_t lanes __attribute__((vector_size(32)));

/* Four scores, as rendezvous_score makes them. */
__attribute__((target("avx2"), always_inline))
static inline lanes score_four(const uint64_t *member_hashes, uint64_t channel_hash)
{
    lanes x;

    memcpy(&x, member_hashes, sizeof x);
    x ^= channel_hash;
    x ^= x >> 33;
    x *= RENDEZVOUS_MIX_1;
    x ^= x >> 33;
    x *= RENDEZVOUS_MIX_2;
    return x ^ x >> 33;
}

/* Eight members at a time; every rank is taken already. Returns where fewer are left. */
__attribute__((target("avx2")))
static unsigned rank_eights(struct ranking *r, const uint64_t *member_hashes, unsigned i,
                            unsigned count, uint64_t channel_hash)
{
    for (; i + 8 <= count; i += 8) {
        lanes a = score_four(member_hashes + i, channel_hash);
        lanes b = score_four(member_hashes + i + 4, channel_hash);
        unsigned higher = (unsigned)_mm256_movemask_pd((__m256d)(a > r->last)) |
                          (unsigned)_mm256_movemask_pd((__m256d)(b > r->last)) << 4;
        for (; higher; higher &= higher - 1) {
            unsigned at = i + (unsigned)__builtin_ctz(higher);
            uint64_t score = rendezvous_score(channel_hash, member_hashes[at]);
            if (score > r->last)        /* still, after the one before */
                place(r, at, score);
        }
    }
    return i;
}
#endif

unsigned rendezvous_rank(const uint64_t *member_hashes, unsigned count, uint64_t channel_hash,
                         unsigned want, unsigned *out)
{
    struct ranking r = {.want = want, .out = out};
    unsigned i = 0;

    if (want == 0)
        return 0;
#ifdef HAS_AVX2_CODE
    if (count >= FIRST_BY_ONE + 8 && __builtin_cpu_supports("avx2")) {
        rank_one_by_one(&r, member_hashes, 0, FIRST_BY_ONE, channel_hash);
        i = rank_eights(&r, member_hashes, FIRST_BY_ONE, count, channel_hash);
    }
#endif
    rank_one_by_one(&r, member_hashes, i, count, channel_hash);
    return r.found;
}
