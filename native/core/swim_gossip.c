/* The dissemination queue: a list for every number of sends. */
#include "swim_gossip.h"

void gossip_init(struct gossip *g)
{
    for (uint32_t k = 0; k < GOSSIP_SENDS_MAX; k++)
        g->heads[k] = g->tails[k] = MEMBER_NONE;
    g->count = 0;
}

static void unlink_from(struct gossip *g, struct members *t, uint32_t i)
{
    struct member *m = members_at(t, i);
    if (m->queue_prev != MEMBER_NONE)
        members_at(t, m->queue_prev)->queue_next = m->queue_next;
    else
        g->heads[m->sent] = m->queue_next;
    if (m->queue_next != MEMBER_NONE)
        members_at(t, m->queue_next)->queue_prev = m->queue_prev;
    else
        g->tails[m->sent] = m->queue_prev;
    m->queue_prev = m->queue_next = MEMBER_NONE;
    m->marks &= (uint8_t)~MARK_QUEUED;
    g->count--;
}

static void link_head(struct gossip *g, struct members *t, uint32_t i)
{
    struct member *m = members_at(t, i);
    m->queue_prev = MEMBER_NONE;
    m->queue_next = g->heads[m->sent];
    if (m->queue_next != MEMBER_NONE)
        members_at(t, m->queue_next)->queue_prev = i;
    else
        g->tails[m->sent] = i;
    g->heads[m->sent] = i;
    m->marks |= MARK_QUEUED;
    g->count++;
}

static void link_tail(struct gossip *g, struct members *t, uint32_t i)
{
    struct member *m = members_at(t, i);
    m->queue_next = MEMBER_NONE;
    m->queue_prev = g->tails[m->sent];
    if (m->queue_prev != MEMBER_NONE)
        members_at(t, m->queue_prev)->queue_next = i;
    else
        g->heads[m->sent] = i;
    g->tails[m->sent] = i;
    m->marks |= MARK_QUEUED;
    g->count++;
}

void gossip_queue(struct gossip *g, struct members *t, uint32_t i)
{
    gossip_drop(g, t, i);
    members_at(t, i)->sent = 0;
    link_head(g, t, i);
}

void gossip_drop(struct gossip *g, struct members *t, uint32_t i)
{
    if (members_at(t, i)->marks & MARK_QUEUED)
        unlink_from(g, t, i);
}

uint32_t gossip_first(const struct gossip *g)
{
    if (g->count == 0)
        return MEMBER_NONE;
    for (uint32_t k = 0; k < GOSSIP_SENDS_MAX; k++) {
        if (g->heads[k] != MEMBER_NONE)
            return g->heads[k];
    }
    return MEMBER_NONE;
}

uint32_t gossip_after(const struct gossip *g, const struct members *t, uint32_t i)
{
    const struct member *m = members_at(t, i);
    if (m->queue_next != MEMBER_NONE)
        return m->queue_next;
    for (uint32_t k = m->sent + 1u; k < GOSSIP_SENDS_MAX; k++) {
        if (g->heads[k] != MEMBER_NONE)
            return g->heads[k];
    }
    return MEMBER_NONE;
}

bool gossip_is_fresh(const struct gossip *g, uint32_t times)
{
    for (uint32_t k = 0; k < times && k < GOSSIP_SENDS_MAX; k++) {
        if (g->heads[k] != MEMBER_NONE)
            return true;
    }
    return false;
}

void gossip_sent(struct gossip *g, struct members *t, uint32_t i, uint32_t limit)
{
    struct member *m = members_at(t, i);
    if (!(m->marks & MARK_QUEUED))
        return;
    unlink_from(g, t, i);
    m->sent++;
    if (m->sent < limit && m->sent < GOSSIP_SENDS_MAX)
        link_tail(g, t, i);
}
