/* How often keys were asked for of late, those that are gone included: a count-min sketch of
 * 4-bit counters that fade (Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache
 * Admission Policy", ACM ToS 2017). The four counters of a key lie in one cache line. Where
 * TinyLFU halves all counters at once, here every so many additions the next line is
 * halved: the same on average, without the pause.
 *
 * Part of the store; nobody else includes it.
 */
#ifndef PEERAGE_STORE_SKETCH_H
#define PEERAGE_STORE_SKETCH_H

#include "base.h"

struct sketch {
    uint8_t (*lines)[64];   /* NULL: nothing is known of any key */
    uint32_t mask;          /* lines - 1 */
    uint32_t additions;     /* since a line was halved */
    uint32_t fading;        /* the line that is halved next */
};

/* All zero is an empty one. */
void sketch_deinit(struct sketch *);

/* Make it of a size for so many entries if it is far from it: what it knew is then lost.
 * It grows by no more than bytes_free; returns what it would need to grow by, or 0. Out of
 * memory: it knows nothing. */
uint64_t sketch_fit(struct sketch *, uint64_t entries, uint64_t bytes_free);

static inline uint64_t sketch_bytes(const struct sketch *k)
{
    return k->lines ? ((uint64_t)k->mask + 1) * sizeof *k->lines + 16 : 0;
}

/* What sketch_fit takes for one entry, the heap's share included. */
#define SKETCH_BYTES_MIN (64u + 16u)

void sketch_add(struct sketch *, uint32_t hash);
unsigned sketch_estimate(const struct sketch *, uint32_t hash);

#endif
