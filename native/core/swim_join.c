/* Joining, and being joined.
 *
 *     joiner                       whom it asks
 *       | --- JOIN, open, padded --> |       its record, how many it knows
 *       | <-- CHALLENGE, token ----- |       to the advertised address
 *       | --- PROOF, token --------> |       reached both ways over UDP
 *       | <== TCP: who are you? ==== |       and over TCP
 *       | <-- WELCOME, table ------- |       admitted, and gossiped to all
 *
 * Only who is reached both ways by whom it asks gets in (M2): a node behind a
 * one-way firewall would be suspected for ever after. Everyone else believes
 * the gossip. A join from a member whose record stands is welcomed at once; one
 * from a member held dead is answered with the accusation, which it refutes.
 * An answer to a join is never larger than it (W5).
 *
 * Seeds are asked for ever, the dead for a day, so that both sides of a cut find
 * each other again (M4; hashicorp/memberlist #222 is the bug).
 */
#include "err.h"
#include "mem.h"
#include "swim_core.h"

#define LOOKING_ROUND_MS 300u           /* rounds of joins while looking */
#define LOOKING_ANSWERED_FACTOR 5u      /* once somebody answers, wait longer for the table */

int swim_set_seed(struct swim *s, size_t index, const struct addr *addrs, size_t count)
{
    if (index >= SEEDS_MAX)
        return ERR_FULL;
    struct seed *seed = &s->seeds[index];
    struct addr *copy = NULL;
    if (count > 0) {
        copy = mem_alloc(count * sizeof *copy);
        if (copy == NULL)
            return ERR_NOMEM;
        memcpy(copy, addrs, count * sizeof *copy);
        s->have_seeds = true;
    }
    mem_free(seed->addrs);
    seed->addrs = copy;
    seed->count = count;
    return 0;
}

bool swim_is_alone(const struct swim *s)
{
    return s->members.order_count == 0;
}

void swim_join_send(struct swim *s, uint64_t now_ms, const struct addr *to, struct swim_out *out)
{
    if (addr_equal(to, &s->config.self) || !swim_allows(s, to))
        return;
    struct swim_message m = {.kind = SWIM_JOIN, .live = s->members.order_count + 1,
                             .digest = s->members.digest};
    s->stats.joins_sent++;
    swim_send(s, now_ms, to, 0, &m,
              &(struct sending){.first = MEMBER_SELF, .second = MEMBER_NONE, .padded = true}, out);
}

static bool is_live(const struct swim *s, const struct addr *a)
{
    uint32_t i = members_find(&s->members, a);
    return i != MEMBER_NONE && i != MEMBER_SELF && member_is_live(members_at(&s->members, i));
}

/* A name may stand for many hosts: those of which we know a live member within
 * the seed are skipped, each host for itself. */
static bool host_is_known(const struct swim *s, const struct seed *seed, const struct addr *a)
{
    for (size_t k = 0; k < seed->count; k++) {
        if (addr_same_host(&seed->addrs[k], a) && is_live(s, &seed->addrs[k]))
            return true;
    }
    return false;
}

static bool ask_seed(struct swim *s, uint64_t now_ms, struct seed *seed, struct swim_out *out)
{
    bool any = false;
    for (size_t k = 0; k < seed->count; k++) {
        /* Knowing somebody is not having been let in. */
        if (s->phase != SWIM_PHASE_LOOKING && host_is_known(s, seed, &seed->addrs[k]))
            continue;
        swim_join_send(s, now_ms, &seed->addrs[k], out);
        any = true;
    }
    if (any) {
        seed->asked = true;
        seed->asked_ms = now_ms;
    }
    return any;
}

static void ask_all_seeds(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    for (size_t k = 0; k < SEEDS_MAX; k++)
        ask_seed(s, now_ms, &s->seeds[k], out);
}

/* One seed of those that have no live member; a range only every so often. */
static void ask_one_seed(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    for (size_t k = 0; k < SEEDS_MAX; k++) {
        struct seed *seed = &s->seeds[s->seed_next];
        s->seed_next = (s->seed_next + 1) % SEEDS_MAX;
        if (seed->count == 0)
            continue;
        if (seed->count > 1 && seed->asked && now_ms - seed->asked_ms < s->p.range_every_ms)
            continue;
        if (ask_seed(s, now_ms, seed, out))
            return;
    }
}

/* The newest dead address first, then older ones; whoever dies meanwhile goes first. */
static void ask_one_dead(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    const struct members *t = &s->members;
    if (t->count == t->order_count + 1)
        return;
    uint32_t best = MEMBER_NONE, first = MEMBER_NONE;
    uint64_t best_key = 0, first_key = 0;
    uint32_t oldest_s = stamp(now_ms) - s->p.rejoin_for_ms / 1000;
    for (uint32_t i = members_from(t, 1); i != MEMBER_NONE; i = members_from(t, i + 1)) {
        const struct member *m = members_at(t, i);
        if (m->state != SWIM_DEAD || m->since_s < oldest_s || (m->flags & SWIM_OBSERVER))
            continue;
        uint64_t key = ((uint64_t)m->since_s << 32 | i) + 1;
        if (key > first_key) {
            first = i;
            first_key = key;
        }
        if (key < s->rejoin_below && key > best_key) {
            best = i;
            best_key = key;
        }
    }
    if (first == MEMBER_NONE)
        return;
    if (best == MEMBER_NONE || members_at(t, first)->since_s > s->rejoin_newest_s) {
        best = first;
        best_key = first_key;
        s->rejoin_newest_s = members_at(t, first)->since_s;
    }
    s->rejoin_below = best_key;
    swim_join_send(s, now_ms, &members_at(t, best)->addr, out);
}

/* Phases (M1). */

static void stop_looking(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    s->warm_ms = now_ms + s->p.warming_ms;
    s->rejoin_ms = now_ms + prng_below(&s->prng, s->p.rejoin_every_ms) + 1;
    s->alone_ms = now_ms + s->p.alone_every_ms;
    swim_set_phase(s, self_of(s)->flags & SWIM_DRAINING ? SWIM_PHASE_DRAINING
                                                        : SWIM_PHASE_WARMING, out);
}

void swim_table_held(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    if (s->phase == SWIM_PHASE_LOOKING)
        stop_looking(s, now_ms, out);
}

static uint64_t looking_end_ms(const struct swim *s)
{
    bool answered = s->answered_ms != NEVER_MS;
    if (s->rounds < 2)
        return NEVER_MS;
    return s->started_looking_ms
        + (uint64_t)s->p.looking_ms * (answered ? LOOKING_ANSWERED_FACTOR : 1);
}

static void look(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    if (now_ms >= looking_end_ms(s)) {
        stop_looking(s, now_ms, out);
        return;
    }
    if (now_ms >= s->looking_ms) {
        s->rounds++;
        s->looking_ms = now_ms + LOOKING_ROUND_MS;
        ask_all_seeds(s, now_ms, out);
        if (s->admitted && s->members.order_count > 0) {    /* the pull failed: ask another */
            uint32_t i = s->members.order[prng_below(&s->prng, s->members.order_count)];
            const struct member *m = members_at(&s->members, i);
            swim_pull_start(s, now_ms, &m->addr, m->node_id, out);
        }
    }
}

static void expire_admissions(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    for (uint32_t k = 0; k < s->admission_count;) {
        struct admission *a = &s->admissions[k];
        if (now_ms < a->end_ms) {
            k++;
            continue;
        }
        swim_log(out, SWIM_LOG_REFUSED_UNPROVEN, &a->joiner.addr, a->joiner.s.node_id, 0,
                 (uint64_t)a->proven_udp | (uint64_t)a->proven_tcp << 1);
        *a = s->admissions[--s->admission_count];
    }
}

void swim_join_tick(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    expire_admissions(s, now_ms, out);
    if (now_ms >= s->greet_ms) {
        s->greet_ms = NEVER_MS;
        swim_join_send(s, now_ms, &s->greet, out);
    }
    if (s->phase == SWIM_PHASE_LOOKING) {
        look(s, now_ms, out);
        return;
    }
    if (now_ms >= s->warm_ms) {
        s->warm_ms = NEVER_MS;
        swim_renew(s, self_of(s)->flags & (uint8_t)~SWIM_WARMING, out);
        swim_tell_at_once(s, now_ms, out);      /* it owns from now on: nobody else shall load */
        if (s->phase == SWIM_PHASE_WARMING)
            swim_set_phase(s, SWIM_PHASE_READY, out);
    }
    bool alone = swim_is_alone(s);
    if (!alone) {
        s->alone_since_ms = NEVER_MS;
    } else {
        if (s->alone_since_ms == NEVER_MS)
            s->alone_since_ms = now_ms;
        if (now_ms >= s->alone_ms) {
            s->alone_ms = now_ms + s->p.alone_every_ms;
            ask_all_seeds(s, now_ms, out);
        }
        if (s->have_seeds && !s->warned_alone && now_ms - s->alone_since_ms >= ALONE_WARNING_MS) {
            s->warned_alone = true;
            swim_log(out, SWIM_LOG_ALONE, &s->config.self, s->config.node_id, 0, 0);
        }
    }
    if (now_ms >= s->rejoin_ms) {
        s->rejoin_ms = now_ms + s->p.rejoin_every_ms;
        ask_one_dead(s, now_ms, out);
        if (!alone)
            ask_one_seed(s, now_ms, out);
    }
}

uint64_t swim_join_due_ms(const struct swim *s)
{
    uint64_t due_ms = s->greet_ms;
    for (uint32_t k = 0; k < s->admission_count; k++)
        due_ms = min_u64(due_ms, s->admissions[k].end_ms);
    if (s->phase == SWIM_PHASE_LOOKING)
        return min_u64(due_ms, min_u64(s->looking_ms, looking_end_ms(s)));
    due_ms = min_u64(due_ms, min_u64(s->warm_ms, s->rejoin_ms));
    return swim_is_alone(s) ? min_u64(due_ms, s->alone_ms) : due_ms;
}

/* Being joined. */

static struct admission *find_admission(struct swim *s, const struct addr *a)
{
    for (uint32_t k = 0; k < s->admission_count; k++) {
        if (addr_equal(&s->admissions[k].joiner.addr, a))
            return &s->admissions[k];
    }
    return NULL;
}

static struct admission *add_admission(struct swim *s)
{
    if (s->admission_count == ADMISSIONS_MAX)
        return NULL;
    if (s->admission_count == s->admission_capacity) {
        uint32_t want = s->admission_capacity ? s->admission_capacity * 2 : 4;
        struct admission *at = mem_resize(s->admissions, want * sizeof *at);
        if (at == NULL)
            return NULL;
        s->admissions = at;
        s->admission_capacity = want;
    }
    return &s->admissions[s->admission_count++];
}

static void welcome(struct swim *s, uint64_t now_ms, const struct addr *to, uint64_t node_id,
                    size_t bytes_max, struct swim_out *out)
{
    struct swim_message m = {.kind = SWIM_WELCOME};
    swim_send(s, now_ms, to, node_id, &m,
              &(struct sending){.first = MEMBER_SELF, .second = MEMBER_NONE, .table = true,
                                .bytes_max = bytes_max}, out);
}

/* Whoever comes from the other side of a cut brings a table of its own. */
static void take_its_table(struct swim *s, uint64_t now_ms, const struct admission *a,
                           struct swim_out *out)
{
    if (a->live > 1 && a->digest != s->members.digest)
        swim_pull_start(s, now_ms, &a->joiner.addr, a->joiner.s.node_id, out);
}

static void admit(struct swim *s, uint64_t now_ms, uint64_t wall_ms, struct admission *a,
                  struct swim_out *out)
{
    struct admission it = *a;
    struct heard from = {.source = it.source, .node_id = it.joiner.s.node_id};
    *a = s->admissions[--s->admission_count];
    swim_merge(s, now_ms, wall_ms, &it.joiner, &from, out);
    uint32_t i = members_find(&s->members, &it.joiner.addr);
    if (i == MEMBER_NONE || !member_is_live(members_at(&s->members, i)))
        return;
    s->stats.admissions++;
    welcome(s, now_ms, &it.joiner.addr, it.joiner.s.node_id, 0, out);
    take_its_table(s, now_ms, &it, out);
}

static void challenge(struct swim *s, uint64_t now_ms, const struct admission *a, size_t bytes,
                      struct swim_out *out)
{
    struct swim_message m = {.kind = SWIM_CHALLENGE, .token = a->token};
    swim_send(s, now_ms, &a->joiner.addr, a->joiner.s.node_id, &m,
              &(struct sending){.first = MEMBER_NONE, .second = MEMBER_NONE, .bytes_max = bytes},
              out);
}

static void consider(struct swim *s, uint64_t now_ms, const struct update *u,
                     const struct swim_message *m, const struct heard *from, size_t bytes,
                     struct swim_out *out)
{
    struct admission *a = find_admission(s, &u->addr);
    bool fresh = a == NULL || a->joiner.s.node_id != u->s.node_id;
    if (a == NULL)
        a = add_admission(s);
    if (a == NULL)
        return;             /* full: it asks again */
    if (fresh) {
        memset(a, 0, sizeof *a);
        a->token = prng_next(&s->prng);
        a->end_ms = now_ms + ADMISSION_MS;
    }
    a->joiner = *u;
    a->source = from->source;
    a->live = m->live;
    a->digest = m->digest;
    if (!a->proven_udp)
        challenge(s, now_ms, a, bytes, out);
    if (fresh)
        swim_effect(out, SWIM_PROVE, &u->addr, u->s.node_id, SPAN_NONE);
}

void swim_join_heard(struct swim *s, uint64_t now_ms, uint64_t wall_ms,
                     const struct swim_message *m, struct heard *from, size_t bytes,
                     struct swim_out *out)
{
    struct reader r = reader_of(m->updates);
    struct update u;
    if (!update_take(&r, &u) || r.failed || !addr_equal(&u.addr, &m->sender)
        || u.s.node_id != from->node_id || u.s.state != SWIM_ALIVE) {
        s->stats.malformed++;
        return;
    }
    if (u.s.started_ms > wall_ms + FUTURE_MS_MAX) {
        swim_log(out, SWIM_LOG_REFUSED_FUTURE, &u.addr, u.s.node_id, 0, u.s.started_ms - wall_ms);
        return;
    }
    uint32_t i = members_find(&s->members, &u.addr);
    if (i != MEMBER_NONE) {
        const struct member *known = members_at(&s->members, i);
        int newer = start_compare(u.s.started_ms, u.s.node_id, known);
        bool accused = newer < 0
            || (newer == 0 && (u.s.version < known->version
                               || (u.s.version == known->version && known->state != SWIM_ALIVE)));
        if (accused) {
            struct swim_message answer = {.kind = SWIM_GOSSIP};
            s->stats.accusations_answered++;
            swim_send(s, now_ms, &from->source, from->node_id, &answer,
                      &(struct sending){.first = i, .second = MEMBER_SELF, .bytes_max = bytes},
                      out);
            return;
        }
        if (newer == 0 && member_is_live(known)) {
            swim_merge(s, now_ms, wall_ms, &u, from, out);
            welcome(s, now_ms, &from->source, from->node_id, bytes, out);
            return;
        }
    }
    consider(s, now_ms, &u, m, from, bytes, out);
}

void swim_challenge_heard(struct swim *s, uint64_t now_ms, const struct swim_message *m,
                          const struct heard *from, struct swim_out *out)
{
    struct swim_message answer = {.kind = SWIM_PROOF, .token = m->token};
    s->stats.challenged++;
    s->answered_ms = now_ms;
    swim_send(s, now_ms, &from->source, from->node_id, &answer,
              &(struct sending){.first = MEMBER_NONE, .second = MEMBER_NONE}, out);
}

static void admit_if_proven(struct swim *s, uint64_t now_ms, uint64_t wall_ms,
                            struct admission *a, struct swim_out *out)
{
    if (a->proven_udp && a->proven_tcp)
        admit(s, now_ms, wall_ms, a, out);
}

void swim_proof_heard(struct swim *s, uint64_t now_ms, uint64_t wall_ms,
                      const struct swim_message *m, const struct heard *from, struct swim_out *out)
{
    struct admission *a = find_admission(s, &m->sender);
    if (a == NULL || a->joiner.s.node_id != from->node_id || a->token != m->token)
        return;
    a->proven_udp = true;
    admit_if_proven(s, now_ms, wall_ms, a, out);
}

void swim_tcp_proven(struct swim *s, uint64_t now_ms, uint64_t wall_ms, const struct addr *addr,
                     uint64_t node_id, bool proven, struct swim_out *out)
{
    struct admission *a = find_admission(s, addr);
    if (a == NULL || a->joiner.s.node_id != node_id)
        return;
    a->proven_tcp = proven;
    if (!proven)
        a->end_ms = now_ms;         /* refused, and logged, by the next tick */
    admit_if_proven(s, now_ms, wall_ms, a, out);
}

void swim_welcome_heard(struct swim *s, uint64_t now_ms, const struct swim_message *m,
                        const struct heard *from, struct swim_out *out)
{
    s->answered_ms = now_ms;
    s->admitted = true;
    if (m->complete)
        swim_table_held(s, now_ms, out);
    else
        swim_pull_start(s, now_ms, &m->sender, from->node_id, out);
}
