/* xoshiro256++, seeded through splitmix64 as its authors advise (see prng.h). */
#include "prng.h"

static uint64_t splitmix(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

void prng_seed(struct prng *p, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        p->s[i] = splitmix(&seed);
}

uint64_t prng_next(struct prng *p)
{
    uint64_t *s = p->s;
    uint64_t result = rotl(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t prng_below(struct prng *p, uint64_t bound)
{
    /* Multiply-shift (Lemire 2019) without its rejection step: the bias is
     * bound / 2^64, far below anything a protocol could notice. */
    return (uint64_t)(((unsigned __int128)prng_next(p) * bound) >> 64);
}

double prng_unit(struct prng *p)
{
    return (double)(prng_next(p) >> 11) * 0x1.0p-53;
}
