/* The contest as one node sees it (see view.h). */
#include "view.h"

#include <stdlib.h>

#include "limits.h"
#include "mem.h"

_Static_assert(MEMBERS_MAX <= UINT16_MAX + 1, "places, here and in owners, are 16 bits");
_Static_assert(RANKS_MAX <= RENDEZVOUS_RANKS_MAX, "view_rank hands its room on");

struct view *view_new(size_t room)
{
    struct view *v = mem_zalloc(sizeof *v + room * (sizeof v->members[0] + sizeof *v->contest +
                                                    sizeof *v->places));

    if (!v)
        return NULL;
    v->contest = (uint64_t *)(v->members + room);
    v->places = (uint16_t *)(v->contest + room);
    return v;
}

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
        v->any_draining |= m->draining;
        if (m->contends) {
            v->contest[v->contenders] = m->hash;
            v->places[v->contenders++] = (uint16_t)i;
        }
        if (m->self)
            v->self = (int)i;
        if (v->coordinator < 0 && m->coordinates && !m->warming && !m->draining && !m->observer)
            v->coordinator = (int)i;
    }
}

bool view_follow(struct view *v, const struct view *before, uint64_t now_ms)
{
    unsigned were = before ? before->contenders : 0, kept = 0, j = 0;

    for (unsigned i = 0; i < v->contenders; i++) {
        struct view_member *m = &v->members[v->places[i]];
        const struct view_member *was = NULL;
        for (; j < were; j++) {         /* both in the order of the addresses */
            was = &before->members[before->places[j]];
            if (addr_compare(&was->addr, &m->addr) >= 0)
                break;
        }
        bool stays = j < were && was->node_id == m->node_id;
        m->contends_ms = stays ? was->contends_ms : now_ms;
        kept += stays;
    }
    bool same = before && kept == were && kept == v->contenders;
    v->changed_ms = same ? before->changed_ms : now_ms;
    return same;
}

unsigned view_rank(const struct view *v, uint64_t channel_hash, unsigned want,
                   unsigned out[RANKS_MAX])
{
    unsigned found = rendezvous_rank(v->contest, v->contenders, channel_hash, want, out);

    for (unsigned i = 0; i < found; i++)
        out[i] = v->places[out[i]];
    return found;
}

int view_departing(const struct view *v, uint64_t channel_hash)
{
    uint64_t best = 0;
    int at = -1;

    if (!v->any_draining)
        return -1;
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

int view_former(const struct view *v, uint64_t channel_hash, uint64_t than_ms)
{
    uint64_t best = 0;
    int at = -1;

    for (unsigned i = 0; i < v->contenders; i++) {
        uint64_t score = rendezvous_score(channel_hash, v->contest[i]);
        if (v->members[v->places[i]].contends_ms < than_ms && (at < 0 || score > best)) {
            best = score;
            at = v->places[i];
        }
    }
    return at;
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
