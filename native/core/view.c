/* The contest as one node sees it (see view.h). */
#include "view.h"

#include <stdlib.h>

static int by_address(const void *a, const void *b)
{
    return addr_compare(&((const struct view_member *)a)->addr,
                        &((const struct view_member *)b)->addr);
}

void view_finish(struct view *v)
{
    bool anyone_ready = false;

    qsort(v->members, v->count, sizeof v->members[0], by_address);
    for (unsigned i = 0; i < v->count; i++) {
        const struct view_member *m = &v->members[i];
        if (!m->warming && !m->draining && !m->observer)
            anyone_ready = true;
    }
    v->self = v->coordinator = -1;
    for (unsigned i = 0; i < v->count; i++) {
        struct view_member *m = &v->members[i];
        m->contends = !m->draining && !m->observer && (!m->warming || !anyone_ready);
        if (m->self)
            v->self = (int)i;
        if (v->coordinator < 0 && m->coordinates && !m->warming && !m->draining && !m->observer)
            v->coordinator = (int)i;
    }
}

unsigned view_rank(const struct view *v, uint64_t channel_hash, unsigned want,
                   unsigned out[RANKS_MAX])
{
    uint64_t scores[RANKS_MAX];
    unsigned found = 0;

    /* The members stand in the order of their addresses and only a higher score passes
     * one already placed, so ties go to the lower address. */
    for (unsigned i = 0; i < v->count; i++) {
        if (!v->members[i].contends)
            continue;
        uint64_t score = rendezvous_score(channel_hash, v->members[i].hash);
        /* Nearly all of many members end here. */
        if (found && found == want && score <= scores[want - 1])
            continue;
        unsigned at = found;
        while (at > 0 && score > scores[at - 1])
            at--;
        if (at >= want)
            continue;
        if (found < want)
            found++;
        for (unsigned j = found - 1; j > at; j--) {
            scores[j] = scores[j - 1];
            out[j] = out[j - 1];
        }
        scores[at] = score;
        out[at] = i;
    }
    return found;
}

int view_departing(const struct view *v, uint64_t channel_hash)
{
    uint64_t best = 0;
    int at = -1;

    for (unsigned i = 0; i < v->count; i++) {
        const struct view_member *m = &v->members[i];
        uint64_t score = rendezvous_score(channel_hash, m->hash);
        if ((m->contends || m->draining) && (at < 0 || score > best)) {
            best = score;
            at = (int)i;
        }
    }
    return at >= 0 && v->members[at].draining ? at : -1;
}

int view_find(const struct view *v, const struct addr *addr)
{
    unsigned low = 0, high = v->count;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        int order = addr_compare(&v->members[middle].addr, addr);
        if (order == 0)
            return (int)middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}
