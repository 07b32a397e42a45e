/* Rendezvous hashing (see rendezvous.h). A pass over all candidates costs about one
 * nanosecond each, because what is hashed per member and per channel is hashed once and
 * only the two results are mixed for each pair. */
#include "rendezvous.h"

#include <sodium.h>

/* What is hashed for a member: family, address (IPv4 mapped), port big-endian. */
#define MEMBER_BYTES 19

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

/* Is `a`, whose score is known, ahead of `b`? */
static bool ahead(const struct rendezvous_candidate *a, uint64_t a_score,
                  const struct rendezvous_candidate *b, uint64_t b_score)
{
    if (a_score != b_score)
        return a_score > b_score;
    return addr_compare(&a->addr, &b->addr) < 0;
}

unsigned rendezvous_rank(const struct rendezvous_candidate *all, unsigned count,
                         uint64_t channel_hash, unsigned want, unsigned *out)
{
    unsigned have = 0;
    uint64_t last_score = 0;    /* of out[have - 1] */

    if (want == 0)
        return 0;
    for (unsigned i = 0; i < count; i++) {
        uint64_t score = rendezvous_score(channel_hash, all[i].member_hash);
        unsigned at;

        if (have == want && score < last_score)
            continue;
        /* Insertion into the few best: their scores are cheaper to make again than to keep. */
        for (at = have; at > 0; at--) {
            const struct rendezvous_candidate *above = &all[out[at - 1]];
            if (!ahead(&all[i], score, above,
                       rendezvous_score(channel_hash, above->member_hash)))
                break;
        }
        if (at == want)
            continue;
        if (have < want)
            have++;
        memmove(out + at + 1, out + at, (have - 1 - at) * sizeof *out);
        out[at] = i;
        last_score = rendezvous_score(channel_hash, all[out[have - 1]].member_hash);
    }
    return have;
}
