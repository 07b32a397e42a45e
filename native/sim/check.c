/* Safety checks, after every step of the node that took it. Small runs only:
 * each step walks the node's whole table and compares it with what it was.
 *
 * For every check there is a mutation, a deliberate fault that it must catch;
 * a check that catches nothing proves nothing. `peerage-sim --mutations` and
 * test_sim run them all.
 */
#include "sim/check.h"

#include "core/swim_core.h"

#include <stdlib.h>

const struct sim_mutation sim_mutations[SIM_MUTATIONS] = {
    {"none", ""},
    {"version-falls", "a stored version fell"},
    {"dead-walks", "a tombstone came alive under the same version"},
    {"miscount", "the count of live members is not the walk's"},
    {"digest", "the digest is not the walk's"},
    {"helper-more", "more helpers were asked than allowed"},
    {"tombstone-early", "a tombstone was forgotten early"},
    {"spin", "timers fire without end at one moment"},
    {"self-falls", "a node's own record fell"},
    {"open-gossip", "something else than a join was sent to an open receiver"},
    {"short-join", "a join is not padded"},
    {"hasty", "a healthy node was called dead"},
    {"mute-queue", "no agreement"},
    {"too-big", "a payload above the limit"},
};

/* What a node's record of an address was after its last step. */
struct shadow {
    bool known;
    uint8_t state;
    uint64_t started_ms, node_id, version;
    uint64_t dead_since_ms;
};

struct sim_check {
    uint32_t count;
    struct shadow *shadows;         /* [node * count + about] */
    uint64_t *tick_ms;
    uint32_t *ticks;
    struct swim_params params;      /* as they should be, whatever a mutation does */
    uint64_t steps;
};

void sim_check_begin(struct sim *sim)
{
    struct sim_check *c = calloc(1, sizeof *c);
    if (c == NULL)
        abort();
    c->count = sim->count;
    c->params = sim->params;
    c->shadows = calloc((size_t)c->count * c->count, sizeof *c->shadows);
    c->tick_ms = calloc(c->count, sizeof *c->tick_ms);
    c->ticks = calloc(c->count, sizeof *c->ticks);
    if (c->shadows == NULL || c->tick_ms == NULL || c->ticks == NULL)
        abort();
    sim->checks = c;
    sim->check = true;
}

void sim_check_end(struct sim *sim)
{
    if (sim->checks == NULL)
        return;
    free(sim->checks->shadows);
    free(sim->checks->tick_ms);
    free(sim->checks->ticks);
    free(sim->checks);
    sim->checks = NULL;
    sim->check = false;
}

void sim_check_started(struct sim *sim, uint32_t node)
{
    struct sim_check *c = sim->checks;
    memset(&c->shadows[(size_t)node * c->count], 0, c->count * sizeof *c->shadows);
    c->ticks[node] = 0;
    struct swim *s = sim->nodes[node].swim;
    switch (sim->mutation) {
    case MUTATE_HELPERS:
        s->p.helpers += 2;
        break;
    case MUTATE_TOMBSTONES:
        s->p.tombstone_ms = 2000;
        break;
    case MUTATE_SPIN:
        s->p.period_ms = 0;
        break;
    case MUTATE_HASTY:
        s->p.suspicion_periods = 0;
        break;
    case MUTATE_MUTE:
        s->p.retransmit_factor = 0;
        s->p.pull_after_ms = UINT32_MAX;
        s->pull_wait_ms = UINT32_MAX;
        break;
    default:
        break;
    }
}

/* Break something in a node's state, sometimes. */
static void mutate(struct sim *sim, uint32_t node)
{
    struct swim *s = sim->nodes[node].swim;
    struct members *t = &s->members;
    if (sim->checks->steps % 997 != 0 || t->count < 2)
        return;
    struct member *m = members_at(t, 1);
    switch (sim->mutation) {
    case MUTATE_VERSION:
        if (m->marks & MARK_USED && m->version > 0)
            m->version--;
        break;
    case MUTATE_DEAD:
        for (uint32_t i = members_from(t, 1); i != MEMBER_NONE; i = members_from(t, i + 1)) {
            if (members_at(t, i)->state == SWIM_DEAD)
                members_at(t, i)->state = SWIM_ALIVE;
        }
        break;
    case MUTATE_COUNT:
        t->live++;
        break;
    case MUTATE_DIGEST:
        t->buckets[7] ^= 1;
        break;
    case MUTATE_SELF:
        self_of(s)->version--;
        break;
    default:
        break;
    }
    for (size_t k = 0; k < sim->out.count; k++) {
        struct swim_effect *e = &sim->out.effects[k];
        if (e->kind != SWIM_SEND)
            continue;
        if (sim->mutation == MUTATE_OPEN)
            e->node_id = 0;
        if (sim->mutation == MUTATE_BIG)
            e->payload_bytes = s->config.payload_bytes_max + 1;
    }
}

static void check_records(struct sim *sim, uint32_t node)
{
    struct sim_check *c = sim->checks;
    const struct swim *s = sim->nodes[node].swim;
    for (uint32_t k = 0; k < c->count; k++) {
        struct shadow *was = &c->shadows[(size_t)node * c->count + k];
        const struct member *m = swim_find(s, &sim->nodes[k].addr);
        if (m == NULL) {
            if (was->known && (was->state < SWIM_DEAD
                               || sim_now_ms(sim) - was->dead_since_ms + 2000
                                   < c->params.tombstone_ms))
                sim_fail(sim, "a tombstone was forgotten early: node %u of %u", node, k);
            was->known = false;
            continue;
        }
        if (was->known) {
            int start = start_compare(m->started_ms, m->node_id,
                                      &(struct member){.started_ms = was->started_ms,
                                                       .node_id = was->node_id});
            bool same = start == 0 && m->version == was->version;
            if (start < 0 || (start == 0 && m->version < was->version))
                sim_fail(sim, k == node ? "a node's own record fell: node %u of %u"
                                        : "a stored version fell: node %u of %u", node, k);
            if (same && was->state >= SWIM_DEAD && m->state < SWIM_DEAD)
                sim_fail(sim, "a tombstone came alive under the same version: node %u of %u",
                         node, k);
            if (same && m->state < was->state)
                sim_fail(sim, "a state went back under the same version: node %u of %u", node, k);
        }
        if (m->state >= SWIM_DEAD && (!was->known || was->state < SWIM_DEAD))
            was->dead_since_ms = sim_now_ms(sim);
        was->known = true;
        was->state = m->state;
        was->started_ms = m->started_ms;
        was->node_id = m->node_id;
        was->version = m->version;
    }
    const struct member *self = swim_self(s);
    if (self->node_id != sim->nodes[node].id
        || (self->state != SWIM_ALIVE && swim_phase(s) != SWIM_PHASE_GONE))
        sim_fail(sim, "a node is not itself: node %u", node);
}

static void check_table(struct sim *sim, uint32_t node)
{
    const struct swim *s = sim->nodes[node].swim;
    const struct members *t = &s->members;
    uint32_t live = 0, all = 0, others = 0, queued = 0, suspects = 0;
    struct members copy = {0};
    for (uint32_t i = members_from(t, 0); i != MEMBER_NONE; i = members_from(t, i + 1)) {
        const struct member *m = members_at(t, i);
        all++;
        queued += (m->marks & MARK_QUEUED) != 0;
        suspects += m->state == SWIM_SUSPECT;
        if (!member_is_live(m))
            continue;
        live += !(m->flags & SWIM_OBSERVER);
        copy.buckets[members_bucket(&m->addr)] ^= members_digest_of(m);
        if (i == MEMBER_SELF)
            continue;
        others++;
        if (m->order_at >= t->order_count || t->order[m->order_at] != i)
            sim_fail(sim, "a live member is not in the probe order: node %u", node);
    }
    if (live != t->live || all != t->count || others != t->order_count)
        sim_fail(sim, "the count of live members is not the walk's: node %u", node);
    if (memcmp(copy.buckets, t->buckets, sizeof copy.buckets) != 0)
        sim_fail(sim, "the digest is not the walk's: node %u", node);
    if (queued != s->gossip.count || suspects != s->suspicions.count)
        sim_fail(sim, "the queue or the suspicions are not the walk's: node %u", node);
}

static void check_effects(struct sim *sim, uint32_t node, const struct swim_from *from,
                          size_t received)
{
    struct sim_node *n = &sim->nodes[node];
    uint32_t asked = 0;
    for (size_t k = 0; k < sim->out.count; k++) {
        const struct swim_effect *e = &sim->out.effects[k];
        if (e->kind != SWIM_SEND)
            continue;
        struct span payload = swim_payload(&sim->out, e);
        uint8_t kind = payload.at[1];
        if (payload.bytes > sim->payload_bytes_max)
            sim_fail(sim, "a payload above the limit: node %u", node);
        if (e->node_id == 0 && kind != SWIM_JOIN)
            sim_fail(sim, "something else than a join was sent to an open receiver: node %u",
                     node);
        if (kind == SWIM_JOIN && payload.bytes != sim->payload_bytes_max)
            sim_fail(sim, "a join is not padded: node %u", node);
        if (from && from->open_receiver && payload.bytes > received)
            sim_fail(sim, "an answer is larger than an open datagram: node %u", node);
        if (addr_equal(&e->addr, &n->addr) || e->node_id == n->id)
            sim_fail(sim, "a node talks to itself: node %u", node);
        asked += kind == SWIM_ASK;
    }
    if (asked > sim->checks->params.helpers)
        sim_fail(sim, "more helpers were asked than allowed: node %u", node);
}

/* A tick must move time on: within one millisecond only so many make sense. */
static void check_progress(struct sim *sim, uint32_t node)
{
    struct sim_check *c = sim->checks;
    if (c->tick_ms[node] != sim_now_ms(sim)) {
        c->tick_ms[node] = sim_now_ms(sim);
        c->ticks[node] = 0;
    }
    if (++c->ticks[node] > 4 * SIM_INBOX_MAX)
        sim_fail(sim, "timers fire without end at one moment: node %u", node);
}

void sim_check_step(struct sim *sim, uint32_t node, const struct swim_from *from,
                    size_t received)
{
    sim->checks->steps++;
    if (sim->mutation == MUTATE_JOIN) {
        for (size_t k = 0; k < sim->out.count; k++) {
            struct swim_effect *e = &sim->out.effects[k];
            if (e->kind == SWIM_SEND && e->node_id == 0)
                e->payload_bytes -= 100;
        }
    } else if (sim->mutation != 0) {
        mutate(sim, node);
    }
    check_effects(sim, node, from, received);
    check_records(sim, node);
    check_table(sim, node);
    check_progress(sim, node);
}
