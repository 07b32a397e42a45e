/* See owners.h. */
#include "owners.h"

#include <string.h>

void owners_forget(struct owners *o)
{
    memset(o, 0, sizeof *o);
}

static const struct owners_place *find(struct owners_place set[OWNERS_WAYS],
                                       uint64_t channel_hash)
{
    for (unsigned i = 0; i < OWNERS_WAYS; i++) {
        if (set[i].channel_hash == channel_hash && set[i].found)
            return &set[i];
    }
    return NULL;
}

static const struct owners_place *remember(struct owners_place set[OWNERS_WAYS],
                                           const struct view *v, uint64_t channel_hash)
{
    unsigned at[RANKS_MAX];

    memmove(set + 1, set, (OWNERS_WAYS - 1) * sizeof *set);
    set->channel_hash = channel_hash;
    set->found = (uint16_t)view_rank(v, channel_hash, RANKS_MAX, at);
    for (unsigned i = 0; i < set->found; i++)
        set->at[i] = (uint16_t)at[i];
    return set;
}

unsigned owners_rank(struct owners *o, const struct view *v, uint64_t channel_hash, unsigned want,
                     unsigned out[RANKS_MAX])
{
    struct owners_place *set = o->sets[channel_hash % OWNERS_SETS];
    const struct owners_place *p = find(set, channel_hash);

    if (!p)
        p = remember(set, v, channel_hash);
    unsigned found = want < p->found ? want : p->found;
    for (unsigned i = 0; i < found; i++)
        out[i] = p->at[i];
    return found;
}
