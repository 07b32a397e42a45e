/* xoshiro256++ (Blackman and Vigna, "Scrambled Linear Pseudorandom Number
 * Generators", ACM TOMS 2021): fast, seedable, not for secrets. The state is the
 * caller's, so that one seed is one run of the simulator.
 */
#ifndef PEERAGE_PRNG_H
#define PEERAGE_PRNG_H

#include <stdint.h>

struct prng {
    uint64_t s[4];
};

void prng_seed(struct prng *, uint64_t seed);
uint64_t prng_next(struct prng *);
uint64_t prng_below(struct prng *, uint64_t bound);     /* 0 <= x < bound; bound > 0 */
double prng_unit(struct prng *);                        /* 0 <= x < 1 */

#endif
