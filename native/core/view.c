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
        m->departs = m->draining;
        v->any_departs |= m->departs;
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

/* The same node in a view whose members up to *from have lower addresses. NULL: not there. */
static const struct view_member *same_in(const struct view *v, const struct view_member *m,
                                         unsigned *from)
{
    while (*from < v->count && addr_compare(&v->members[*from].addr, &m->addr) < 0)
        ++*from;
    const struct view_member *found = *from < v->count ? &v->members[*from] : NULL;
    return found && found->node_id == m->node_id ? found : NULL;
}

bool view_follow(struct view *v, const struct view *before, uint64_t now_ms)
{
    unsigned kept = 0, from = 0;

    for (unsigned i = 0; i < v->count; i++) {
        struct view_member *m = &v->members[i];
        const struct view_member *was = before ? same_in(before, m, &from) : NULL;
        bool stays = m->contends && was && was->contends;
        m->contends_ms = stays ? was->contends_ms : now_ms;
        m->departs |= !m->contends && was && (was->contends || was->departs);
        v->any_departs |= m->departs;
        kept += stays;
    }
    bool same = before && kept == before->contenders && kept == v->contenders;
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

    if (!v->any_departs)
        return -1;
    for (unsigned i = 0; i < v->count; i++) {
        const struct view_member *m = &v->members[i];
        uint64_t score = rendezvous_score(channel_hash, m->hash);
        if ((m->contends || m->departs) && (at < 0 || score > best)) {
            best = score;
            at = (int)i;
        }
    }
    return at >= 0 && v->members[at].departs ? at : -1;
}

static bool was_there_before(const struct view_member *a, const struct view_member *b)
{
    return a->contends_ms != b->contends_ms ? a->contends_ms < b->contends_ms
                                            : a->started_ms < b->started_ms;
}

int view_former(const struct view *v, uint64_t channel_hash, const struct view_member *newcomer)
{
    uint64_t best = 0;
    int at = -1;

    for (unsigned i = 0; i < v->contenders; i++) {
        uint64_t score = rendezvous_score(channel_hash, v->contest[i]);
        if (was_there_before(&v->members[v->places[i]], newcomer) && (at < 0 || score > best)) {
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
