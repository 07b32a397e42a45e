/* Who owns a channel: rendezvous (highest random weight) hashing
 * (Thaler and Ravishankar, IEEE/ACM ToN 1998), by the fixed formula of rule O1:
 *
 *   k            = first 16 bytes of BLAKE2b(label)
 *   channel hash = SipHash-2-4(k, channel)
 *   member hash  = SipHash-2-4(k, family byte (4 or 6) || 16 address bytes || port)
 *   score        = fmix64(channel hash XOR member hash)        (murmur3's finaliser)
 *
 * The highest score owns, the next is its heir; ties go to the lower address.
 * The score never changes between releases: the vectors in the tests pin it.
 */
#ifndef PEERAGE_RENDEZVOUS_H
#define PEERAGE_RENDEZVOUS_H

#include "addr.h"
#include "base.h"

struct rendezvous {
    uint8_t key[16];
};

void rendezvous_init(struct rendezvous *, struct span label);
uint64_t rendezvous_channel(const struct rendezvous *, struct span channel);
uint64_t rendezvous_member(const struct rendezvous *, const struct addr *);

#define RENDEZVOUS_MIX_1 UINT64_C(0xff51afd7ed558ccd)
#define RENDEZVOUS_MIX_2 UINT64_C(0xc4ceb9fe1a85ec53)

/* The finaliser of murmur3. Here because a look-up does it once a member, and little else. */
static inline uint64_t rendezvous_score(uint64_t channel_hash, uint64_t member_hash)
{
    uint64_t x = channel_hash ^ member_hash;

    x ^= x >> 33;
    x *= RENDEZVOUS_MIX_1;
    x ^= x >> 33;
    x *= RENDEZVOUS_MIX_2;
    x ^= x >> 33;
    return x;
}

#define RENDEZVOUS_RANKS_MAX 8u

/* Indices of the best `want` members for a channel, best first, into out. The hashes stand in
 * the order of the members' addresses, so that ties go to the earlier. Returns how many (fewer
 * when there are fewer members). One pass; want is small, RENDEZVOUS_RANKS_MAX at most. */
unsigned rendezvous_rank(const uint64_t *member_hashes, unsigned count, uint64_t channel_hash,
                         unsigned want, unsigned *out);

#endif
