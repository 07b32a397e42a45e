/* Who stands for a channel, remembered until the members change.
 *
 * A place holds the whole of a channel's 64-bit hash, and the ranks depend on that hash and the
 * view alone, so what is remembered is exact. The hash leads to a set of four places, 64 bytes; a
 * new channel there drives out the oldest, which costs that one a look at all members. Which peers are silent or busy is not part of it: that is looked at
 * afterwards, for each question (serve_members.c).
 */
#ifndef PEERAGE_OWNERS_H
#define PEERAGE_OWNERS_H

#include "view.h"

#define OWNERS_SETS 512u
#define OWNERS_WAYS 4u

struct owners_place {
    uint64_t channel_hash;
    uint16_t at[RANKS_MAX];
    uint16_t found;                 /* 0: nothing is remembered here */
};

struct owners {
    struct owners_place sets[OWNERS_SETS][OWNERS_WAYS];     /* the newest first */
};

/* Another view counts from now on. */
void owners_forget(struct owners *);

/* As view_rank. The view is the same one until owners_forget. */
unsigned owners_rank(struct owners *, const struct view *, uint64_t channel_hash, unsigned want,
                     unsigned out[RANKS_MAX]);

#endif
