/* The safety checks' other side: their mutations. See check.c. */
#ifndef PEERAGE_SIM_CHECK_H
#define PEERAGE_SIM_CHECK_H

#include "sim/sim.h"

enum { MUTATE_NOTHING, MUTATE_VERSION, MUTATE_DEAD, MUTATE_COUNT, MUTATE_DIGEST, MUTATE_HELPERS,
       MUTATE_TOMBSTONES, MUTATE_SPIN, MUTATE_SELF, MUTATE_OPEN, MUTATE_JOIN, MUTATE_HASTY,
       MUTATE_MUTE, MUTATE_BIG, SIM_MUTATIONS };

struct sim_mutation {
    const char *name;
    const char *failure;            /* how the failure it provokes begins */
};

extern const struct sim_mutation sim_mutations[SIM_MUTATIONS];

/* Chaos, then calm (chaos.c): one seed is one run with N = 3..12 by the seed.
 * Returns true if every check held; else `why` says what, and how to replay it. */
bool sim_chaos(uint64_t seed, int mutation, struct sim_counts *counts, char *why, size_t bytes,
               FILE *trace);

/* No fault but loss: nobody may be called dead, and all must agree. */
bool sim_calm(uint64_t seed, int mutation, char *why, size_t bytes);

#endif
