/* What the two drivers of a question to Redis for a tally's sum share (see tallies.c). */
#ifndef PEERAGE_SHELL_TALLIES_H
#define PEERAGE_SHELL_TALLIES_H

#include "core/node_tally.h"
#include "peerage.h"

bool tally_in_redis(struct peerage *);      /* is it up, that is, do the sums live there? */
struct tally_name tally_name_of(const struct peerage_tally *);     /* borrows */
/* By what is known here: 1 counted, 0 refused, or an error. */
int tally_here(struct peerage *, const struct tally_name *, uint64_t amount, uint64_t limit,
               uint64_t *total);

#endif
