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

unsigned rendezvous_rank(const uint64_t *member_hashes, unsigned count, uint64_t channel_hash,
                         unsigned want, unsigned *out)
{
    uint64_t scores[RENDEZVOUS_RANKS_MAX], last = 0;    /* last: of the lowest rank */
    unsigned found = 0;

    if (want == 0)
        return 0;
    for (unsigned i = 0; i < count; i++) {
        uint64_t score = rendezvous_score(channel_hash, member_hashes[i]);
        /* Nearly all of many members end here. */
        if (score <= last && found == want)
            continue;
        unsigned at = found < want ? found++ : want - 1;
        /* Only a higher score passes one already placed, so ties go to the earlier. */
        for (; at > 0 && score > scores[at - 1]; at--) {
            scores[at] = scores[at - 1];
            out[at] = out[at - 1];
        }
        scores[at] = score;
        out[at] = i;
        last = scores[found - 1];
    }
    return found;
}
