/* The protocol: one probe a period, and what each datagram does.
 *
 *     began            ask                            end
 *       | PING target    | PING again, ASK 3 helpers    | acked: healthier
 *       |<- ack timeout ->|<-- helpers: PING, REACHED -->| else: accuse
 *       |<---------------- period x (health + 1) ------->|
 *
 * From SWIM (DSN 2002, section 4) and Lifeguard (2018): probes in shuffled round
 * robin, helpers that answer NACK so that silence tells on ourselves, periods
 * and timeouts scaled by local health. Where we differ:
 *
 * - Helpers are chosen on hosts other than ours and the target's where there are
 *   any: a host's workers share its cable. With the helpers, the target is
 *   pinged once more directly, which at N = 2 is the only second chance.
 * - A node whose probe got no word from any helper either, no ack and no nack,
 *   accuses nobody for `deaf_ms`: it is likelier itself cut off, one way or the
 *   other, than they are all gone (consul #5928). At N <= 3 there may be nobody
 *   else to ask, so it accuses as usual.
 * - A node that wakes late moves its deadlines by the lateness (M5): the acks
 *   are in the socket, and the shell reads that first.
 * - Whoever talks to us and is accused is told so in the answer.
 */
#include "err.h"
#include "mem.h"
#include "swim_core.h"

void swim_params_default(struct swim_params *p)
{
    *p = (struct swim_params){
        .period_ms = 500,
        .ack_timeout_ms = 150,
        .helpers = 3,
        .health_max = 8,
        .suspicion_periods = 6,
        .suspicion_max_factor = 6,
        .confirmations_max = 3,
        .retransmit_factor = 3,
        .round_factor = 1,
        .gossip_every_ms = 200,
        .gossip_fanout = 3,
        .pull_after_ms = 2000,
        .rejoin_every_ms = 5000,
        .range_every_ms = 30000,
        .alone_every_ms = 2000,
        .rejoin_for_ms = 24 * 3600 * 1000u,
        .tombstone_ms = TOMBSTONE_MS,
        .looking_ms = LOOKING_MS,
        .warming_ms = WARMING_MS,
        .lateness_ms = 100,
        .deaf_ms = 10000,
    };
}

/* Life. */

/* Rounds of their own are for fresh news. What has been sent some times rides on
 * pings and acks for the rest: at N = 1000 and 5% loss, where a false suspicion
 * is always under way somewhere, this saves a third of all messages. */
static bool wants_round(const struct swim *s)
{
    return s->members.order_count > 0
        && gossip_is_fresh(&s->gossip, s->p.round_factor * swim_log_members(s));
}

/* What becomes due in the past is due now: a queue that fills after a quiet hour
 * is not an hour late. A promise already missed stays as it was, so that the
 * next tick still sees how late it is, however many datagrams come first. */
void swim_reckon(struct swim *s, uint64_t now_ms)
{
    uint64_t earliest_ms = min_u64(s->due_ms, now_ms);
    if (s->phase == SWIM_PHASE_GONE) {
        s->due_ms = NEVER_MS;
        return;
    }
    uint64_t due_ms = s->probe_ms;
    if (s->probe.active)
        due_ms = min_u64(due_ms, s->probe.asked ? s->probe.end_ms : s->probe.ask_ms);
    if (wants_round(s))
        due_ms = min_u64(due_ms, s->gossip_ms);
    for (uint32_t k = 0; s->relay_count > 0 && k < RELAYS_MAX; k++) {
        const struct relay *r = &s->relays[k];
        if (r->used)
            due_ms = min_u64(due_ms, r->nacked ? r->end_ms : r->nack_ms);
    }
    due_ms = min_u64(due_ms, s->suspicions.due_ms);
    due_ms = min_u64(due_ms, s->pull_end_ms);
    s->due_ms = max_u64(earliest_ms, min_u64(due_ms, swim_join_due_ms(s)));
}

int swim_new(struct swim **out, const struct swim_config *config, uint64_t now_ms)
{
    assert(config->node_id != 0 && config->self.port != 0);
    assert(config->payload_bytes_max >= 512 && config->payload_bytes_max <= PACKET_BYTES_MAX);
    struct swim *s = mem_zalloc(sizeof *s);
    if (s == NULL)
        return ERR_NOMEM;
    s->config = *config;
    s->p = config->params;
    if (s->p.helpers > HELPERS_MAX)
        s->p.helpers = HELPERS_MAX;
    prng_seed(&s->prng, config->seed);
    members_init(&s->members);
    gossip_init(&s->gossip);
    suspicions_init(&s->suspicions);
    s->phase = SWIM_PHASE_LOOKING;
    s->sequence = (uint32_t)prng_next(&s->prng);
    s->deaf_since_ms = s->pull_end_ms = NEVER_MS;
    s->due_ms = s->greet_ms = NEVER_MS;
    s->answered_ms = s->alone_since_ms = s->warm_ms = NEVER_MS;
    s->pull_wait_ms = s->p.pull_after_ms;
    s->rejoin_ms = s->alone_ms = now_ms;
    s->rejoin_below = UINT64_MAX;
    s->started_looking_ms = s->looking_ms = now_ms;
    s->answers = ANSWERS_MAX;
    s->answers_ms = now_ms;
    s->sweep_ms = now_ms + SWEEP_EVERY_MS;
    s->probe_ms = now_ms + 1 + prng_below(&s->prng, s->p.period_ms);

    uint32_t self;
    struct standing st = {.state = SWIM_ALIVE,
                          .flags = (uint8_t)(config->flags | SWIM_WARMING),
                          .speaks_min = config->speaks_min,
                          .speaks_max = config->speaks_max,
                          .node_id = config->node_id,
                          .started_ms = config->started_ms,
                          .version = 1};
    int rc = members_add(&s->members, &config->self, &st, &s->prng, &self);
    if (rc < 0) {
        swim_free(s);
        return rc;
    }
    assert(self == MEMBER_SELF);
    gossip_queue(&s->gossip, &s->members, MEMBER_SELF);
    swim_reckon(s, now_ms);
    *out = s;
    return 0;
}

void swim_free(struct swim *s)
{
    if (s == NULL)
        return;
    for (size_t k = 0; k < SEEDS_MAX; k++)
        mem_free(s->seeds[k].addrs);
    mem_free(s->admissions);
    suspicions_deinit(&s->suspicions);
    members_deinit(&s->members);
    mem_free(s);
}

uint64_t swim_due_ms(const struct swim *s)
{
    return s->due_ms;
}

/* Probing. */

static void feel(struct swim *s, int delta)
{
    int health = (int)s->health + delta;
    s->health = health < 0 ? 0 : (uint32_t)min_u64((uint64_t)health, s->p.health_max);
}

/* A record that its own subject should hear: it is accused, or thought gone. */
static uint32_t grievance(const struct swim *s, uint32_t i)
{
    return i != MEMBER_NONE && members_at(&s->members, i)->state != SWIM_ALIVE ? i : MEMBER_NONE;
}

static void ping(struct swim *s, uint64_t now_ms, const struct addr *to, uint64_t node_id,
                 uint32_t sequence, uint32_t member, struct swim_out *out)
{
    struct swim_message m = {.kind = SWIM_PING, .sequence = sequence,
                             .live = s->members.order_count + 1, .digest = s->members.digest};
    swim_send(s, now_ms, to, node_id, &m,
              &(struct sending){.first = grievance(s, member), .second = MEMBER_NONE,
                                .gossip = true}, out);
}

static void begin_probe(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    uint32_t scale = s->health + 1;
    uint32_t target = members_probe_next(&s->members, &s->prng);
    s->probe_ms = now_ms + (uint64_t)s->p.period_ms * scale;
    if (target == MEMBER_NONE)
        return;
    const struct member *m = members_at(&s->members, target);
    s->probe = (struct probe){.active = true, .target = target, .node_id = m->node_id,
                              .sequence = ++s->sequence, .began_ms = now_ms,
                              .ask_ms = now_ms + (uint64_t)s->p.ack_timeout_ms * scale,
                              .end_ms = s->probe_ms};
    s->stats.probes++;
    ping(s, now_ms, &m->addr, m->node_id, s->probe.sequence, target, out);
}

static bool may_help(const struct swim *s, uint32_t i, bool elsewhere)
{
    const struct member *m = members_at(&s->members, i);
    if (i == s->probe.target || m->state != SWIM_ALIVE || (m->flags & SWIM_OBSERVER))
        return false;
    return !elsewhere
        || (!addr_same_host(&m->addr, &s->config.self)
            && !addr_same_host(&m->addr, &members_at(&s->members, s->probe.target)->addr));
}

/* Draw up to `most` distinct helpers: some random tries, then, from a random
 * place, everyone in turn. */
static uint32_t draw_helpers(struct swim *s, uint32_t *drawn, uint32_t count, uint32_t most,
                             bool elsewhere)
{
    const struct members *t = &s->members;
    uint32_t n = t->order_count, tries = 8 * most;
    uint32_t start = (uint32_t)prng_below(&s->prng, n);
    for (uint32_t k = 0; k < tries + n && count < most; k++) {
        uint32_t i = k < tries ? t->order[prng_below(&s->prng, n)] : t->order[(start + k) % n];
        bool taken = !may_help(s, i, elsewhere);
        for (uint32_t j = 0; j < count && !taken; j++)
            taken = drawn[j] == i;
        if (!taken)
            drawn[count++] = i;
    }
    return count;
}

static void ask_helpers(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    struct probe *p = &s->probe;
    const struct member *target = members_at(&s->members, p->target);
    uint32_t drawn[HELPERS_MAX];
    p->asked = true;
    if (p->acked || s->members.order_count == 0)
        return;
    ping(s, now_ms, &target->addr, p->node_id, p->sequence, p->target, out);
    uint32_t count = draw_helpers(s, drawn, 0, s->p.helpers, true);
    count = draw_helpers(s, drawn, count, s->p.helpers, false);
    for (uint32_t k = 0; k < count; k++) {
        const struct member *m = members_at(&s->members, drawn[k]);
        struct swim_message ask = {.kind = SWIM_ASK, .sequence = p->sequence,
                                   .target_id = p->node_id, .target = target->addr};
        p->helpers[p->helper_count++] = m->node_id;
        swim_send(s, now_ms, &m->addr, m->node_id, &ask,
                  &(struct sending){.first = MEMBER_NONE, .second = MEMBER_NONE, .gossip = true},
                  out);
    }
}

static bool is_deaf(struct swim *s, uint64_t now_ms)
{
    const struct probe *p = &s->probe;
    if (p->nack_count > 0 || (p->helper_count == 0 && p->heard) || s->members.live <= 3) {
        s->deaf_since_ms = NEVER_MS;
        return false;
    }
    if (s->deaf_since_ms == NEVER_MS)
        s->deaf_since_ms = p->began_ms;
    s->stats.deaf++;
    return now_ms - s->deaf_since_ms < s->p.deaf_ms;
}

static void end_probe(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    struct probe *p = &s->probe;
    p->active = false;
    if (p->acked) {
        feel(s, -1);
        s->deaf_since_ms = NEVER_MS;
        return;
    }
    const struct member *m = members_at(&s->members, p->target);
    s->stats.probes_failed++;
    /* Lifeguard counts every nack that is missing. Where a whole server has gone,
     * helpers are dead too, and all who live would slow down just when there is
     * most to find out: so only a majority of missing nacks counts. */
    int missing = p->helper_count - p->nack_count, surplus = 2 * missing - p->helper_count;
    feel(s, p->helper_count == 0 ? 1 : surplus > 0 ? surplus : 0);
    if (!(m->marks & MARK_USED) || m->node_id != p->node_id || !member_is_live(m))
        return;
    if (!is_deaf(s, now_ms))
        swim_accuse(s, now_ms, p->target, out);
}

/* Probing for others. */

static void ask_heard(struct swim *s, uint64_t now_ms, const struct swim_message *m,
                      const struct heard *from, struct swim_out *out)
{
    if (!swim_allows(s, &m->target) || m->target_id == 0 || s->relay_count == RELAYS_MAX)
        return;
    for (uint32_t k = 0; k < RELAYS_MAX; k++) {
        struct relay *r = &s->relays[k];
        if (r->used)
            continue;
        *r = (struct relay){.used = true, .sequence = ++s->sequence,
                            .origin_sequence = m->sequence, .origin = from->source,
                            .origin_id = from->node_id, .target_id = m->target_id,
                            .nack_ms = now_ms + s->p.ack_timeout_ms,
                            .end_ms = now_ms + s->p.period_ms};
        s->relay_count++;
        ping(s, now_ms, &m->target, m->target_id, r->sequence,
             members_find(&s->members, &m->target), out);
        return;
    }
}

static void answer_origin(struct swim *s, uint64_t now_ms, const struct relay *r, uint8_t kind,
                          struct swim_out *out)
{
    struct swim_message m = {.kind = kind, .sequence = r->origin_sequence};
    swim_send(s, now_ms, &r->origin, r->origin_id, &m,
              &(struct sending){.first = MEMBER_NONE, .second = MEMBER_NONE, .gossip = true}, out);
}

static void tick_relays(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    for (uint32_t k = 0; s->relay_count > 0 && k < RELAYS_MAX; k++) {
        struct relay *r = &s->relays[k];
        if (!r->used)
            continue;
        if (!r->nacked && now_ms >= r->nack_ms) {
            r->nacked = true;
            answer_origin(s, now_ms, r, SWIM_NACK, out);
        }
        if (now_ms >= r->end_ms) {
            r->used = false;
            s->relay_count--;
        }
    }
}

static void ack_heard(struct swim *s, uint64_t now_ms, const struct swim_message *m,
                      const struct heard *from, struct swim_out *out)
{
    struct probe *p = &s->probe;
    if (p->active && m->sequence == p->sequence && from->node_id == p->node_id)
        p->acked = true;
    for (uint32_t k = 0; s->relay_count > 0 && k < RELAYS_MAX; k++) {
        struct relay *r = &s->relays[k];
        if (!r->used || r->sequence != m->sequence || r->target_id != from->node_id)
            continue;
        answer_origin(s, now_ms, r, SWIM_REACHED, out);
        r->used = false;
        s->relay_count--;
    }
}

static void helper_heard(struct swim *s, const struct swim_message *m, const struct heard *from)
{
    struct probe *p = &s->probe;
    if (!p->active || m->sequence != p->sequence)
        return;
    for (uint8_t k = 0; k < p->helper_count; k++) {
        if (p->helpers[k] != from->node_id)
            continue;
        if (m->kind == SWIM_REACHED)
            p->acked = true;
        p->helpers[k] = 0;          /* each helper speaks once */
        p->nack_count++;
        return;
    }
}

/* Gossip rounds. */

static void gossip_round(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    const struct members *t = &s->members;
    uint32_t told[16], count = 0;
    uint32_t most = (uint32_t)min_u64(min_u64(s->p.gossip_fanout, ARRAY_COUNT(told)),
                                      t->order_count);
    bool behind = s->gossip.count >= BACKLOG_MIN;
    s->gossip_ms = now_ms + (behind ? s->p.gossip_every_ms / 2 : s->p.gossip_every_ms);
    for (uint32_t tries = 0; count < most && tries < 16 * most && s->gossip.count > 0; tries++) {
        uint32_t i = t->order[prng_below(&s->prng, t->order_count)];
        bool again = false;
        for (uint32_t k = 0; k < count; k++)
            again = again || told[k] == i;
        if (again)
            continue;
        told[count++] = i;
        const struct member *m = members_at(t, i);
        struct swim_message message = {.kind = SWIM_GOSSIP};
        swim_send(s, now_ms, &m->addr, m->node_id, &message,
                  &(struct sending){.first = grievance(s, i), .second = MEMBER_NONE,
                                    .gossip = true}, out);
    }
}

/* Time. */

static void forgive(struct swim *s, uint64_t late_ms)
{
    s->stats.late_wakeups++;
    feel(s, 1);
    if (s->probe.active) {
        s->probe.ask_ms += late_ms;
        s->probe.end_ms += late_ms;
        s->probe_ms = max_u64(s->probe_ms, s->probe.end_ms);
    }
    for (uint32_t k = 0; s->relay_count > 0 && k < RELAYS_MAX; k++) {
        s->relays[k].nack_ms += late_ms;
        s->relays[k].end_ms += late_ms;
    }
    suspicions_shift(&s->suspicions, late_ms);
}

static void bury_overdue(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    uint32_t i;
    while ((i = suspicions_overdue(&s->suspicions, &s->members, &s->p, now_ms))
           != MEMBER_NONE)
        swim_bury(s, now_ms, i, out);
}

static void sweep_tombstones(struct swim *s, uint64_t now_ms)
{
    struct members *t = &s->members;
    s->sweep_ms = now_ms + SWEEP_EVERY_MS;
    if (t->count == t->order_count + 1)
        return;
    for (uint32_t i = members_from(t, 1); i != MEMBER_NONE; i = members_from(t, i + 1)) {
        const struct member *m = members_at(t, i);
        uint64_t most_s = (m->flags & SWIM_OBSERVER ? OBSERVER_TOMBSTONE_MS : s->p.tombstone_ms)
            / 1000;
        if (member_is_live(m) || stamp(now_ms) - m->since_s < most_s)
            continue;
        swim_forget(s, i);
    }
}

void swim_tick(struct swim *s, uint64_t now_ms, uint64_t wall_ms, struct swim_out *out)
{
    (void)wall_ms;
    if (s->phase == SWIM_PHASE_GONE)
        return;
    if (now_ms > s->due_ms && now_ms - s->due_ms > s->p.lateness_ms)
        forgive(s, now_ms - s->due_ms);
    s->due_ms = NEVER_MS;
    tick_relays(s, now_ms, out);
    bury_overdue(s, now_ms, out);
    if (s->probe.active && !s->probe.asked && now_ms >= s->probe.ask_ms)
        ask_helpers(s, now_ms, out);
    if (s->probe.active && now_ms >= s->probe.end_ms)
        end_probe(s, now_ms, out);
    if (!s->probe.active && now_ms >= s->probe_ms)
        begin_probe(s, now_ms, out);
    if (now_ms >= s->pull_end_ms)
        swim_pull_end(s, now_ms, false, out);
    swim_join_tick(s, now_ms, out);
    if (wants_round(s) && now_ms >= s->gossip_ms)
        gossip_round(s, now_ms, out);
    if (now_ms >= s->sweep_ms)
        sweep_tombstones(s, now_ms);
    swim_reckon(s, now_ms);
}

/* Datagrams. */

bool swim_allows(const struct swim *s, const struct addr *a)
{
    if (s->config.allowed_count == 0)
        return true;
    for (size_t k = 0; k < s->config.allowed_count; k++) {
        if (cidr_contains(&s->config.allowed[k], a))
            return true;
    }
    for (size_t k = 0; k < s->config.own_hosts_count; k++) {
        if (addr_same_host(&s->config.own_hosts[k], a))
            return true;
    }
    return addr_same_host(&s->config.self, a);
}

/* The sender's record, if it is about this very node. */
static uint32_t record_of(const struct swim *s, const struct swim_message *m, uint64_t node_id)
{
    uint32_t i = members_find(&s->members, &m->sender);
    if (i == MEMBER_NONE || i == MEMBER_SELF || members_at(&s->members, i)->node_id != node_id)
        return MEMBER_NONE;
    return i;
}

static enum swim_verdict check(struct swim *s, const struct swim_from *from,
                               const struct swim_message *m, struct swim_out *out)
{
    if (from->node_id == s->config.node_id)
        return SWIM_OWN;
    if (!swim_allows(s, &from->source) || !swim_allows(s, &m->sender)) {
        swim_log(out, SWIM_LOG_REFUSED_CIDR, &m->sender, from->node_id, 0, 0);
        return SWIM_NOT_ALLOWED;
    }
    if (addr_is_loopback(&m->sender) && !addr_is_loopback(&from->source)) {
        swim_log(out, SWIM_LOG_REFUSED_LOOPBACK, &m->sender, from->node_id, 0, 0);
        return SWIM_NOT_ALLOWED;
    }
    if (from->open_receiver && m->kind != SWIM_JOIN)
        return SWIM_NOT_OPEN;
    return SWIM_OK;
}

static void answer(struct swim *s, uint64_t now_ms, const struct swim_message *m,
                   const struct heard *from, struct swim_out *out)
{
    uint32_t about = from->accused ? MEMBER_SELF : MEMBER_NONE;
    uint32_t sender = grievance(s, record_of(s, m, from->node_id));
    if (m->kind == SWIM_PING) {
        struct swim_message ack = {.kind = SWIM_ACK, .sequence = m->sequence,
                                   .live = s->members.order_count + 1, .digest = s->members.digest};
        swim_send(s, now_ms, &from->source, from->node_id, &ack,
                  &(struct sending){.first = sender, .second = about, .gossip = true}, out);
        return;
    }
    /* Told of an accusation, or spoken to by the dead: say so, at a bounded rate. */
    bool dead = sender != MEMBER_NONE && members_at(&s->members, sender)->state == SWIM_DEAD;
    if ((about == MEMBER_NONE && !dead) || !swim_may_answer(s, now_ms))
        return;
    /* Whoever is not admitted yet may not slip in by gossip: it asks again. */
    if (s->phase == SWIM_PHASE_LOOKING) {
        swim_join_send(s, now_ms, &from->source, out);
        return;
    }
    struct swim_message gossip = {.kind = SWIM_GOSSIP};
    s->stats.accusations_answered++;
    swim_send(s, now_ms, &from->source, from->node_id, &gossip,
              &(struct sending){.first = sender, .second = about, .gossip = true}, out);
    /* Declared dead by somebody we don't count among the living: join again. */
    if (from->accused && (from->accuser == MEMBER_NONE || dead))
        swim_join_send(s, now_ms, &from->source, out);
}

static enum swim_verdict hear(struct swim *s, uint64_t now_ms, uint64_t wall_ms,
                              struct heard *from, const struct swim_message *m, size_t bytes,
                              struct swim_out *out)
{
    struct reader r = reader_of(m->updates);
    struct update u;
    from->table = m->kind == SWIM_WELCOME;
    while (m->kind != SWIM_JOIN && update_take(&r, &u))
        swim_merge(s, now_ms, wall_ms, &u, from, out);
    if (s->phase == SWIM_PHASE_GONE)
        return SWIM_OK;

    from->accuser = record_of(s, m, from->node_id);
    if (from->accuser != MEMBER_NONE)
        s->probe.heard = true;
    uint32_t live = from->accuser;
    if (live != MEMBER_NONE && !member_is_live(members_at(&s->members, live)))
        live = MEMBER_NONE;
    switch (m->kind) {
    case SWIM_PING:
        swim_digest_heard(s, now_ms, live, m->digest, out);
        break;
    case SWIM_ACK:
        swim_digest_heard(s, now_ms, live, m->digest, out);
        ack_heard(s, now_ms, m, from, out);
        break;
    case SWIM_ASK:
        ask_heard(s, now_ms, m, from, out);
        break;
    case SWIM_REACHED:
    case SWIM_NACK:
        helper_heard(s, m, from);
        break;
    case SWIM_JOIN:
        swim_join_heard(s, now_ms, wall_ms, m, from, bytes, out);
        return SWIM_OK;
    case SWIM_CHALLENGE:
        swim_challenge_heard(s, now_ms, m, from, out);
        break;
    case SWIM_PROOF:
        swim_proof_heard(s, now_ms, wall_ms, m, from, out);
        break;
    case SWIM_WELCOME:
        swim_welcome_heard(s, now_ms, m, from, out);
        break;
    default:
        break;
    }
    answer(s, now_ms, m, from, out);
    return r.failed ? SWIM_MALFORMED : SWIM_OK;
}

enum swim_verdict swim_receive(struct swim *s, uint64_t now_ms, uint64_t wall_ms,
                               const struct swim_from *from, struct span payload,
                               struct swim_out *out)
{
    struct swim_message m;
    if (s->phase == SWIM_PHASE_GONE)
        return SWIM_GONE;
    s->stats.received++;
    s->stats.received_bytes += payload.bytes;
    enum swim_verdict v = swim_message_take(payload, &m);
    if (v == SWIM_OK)
        v = check(s, from, &m, out);
    if (v == SWIM_OK) {
        struct heard h = {.source = from->source, .node_id = from->node_id};
        v = hear(s, now_ms, wall_ms, &h, &m, payload.bytes, out);
    }
    s->stats.malformed += v == SWIM_MALFORMED;
    s->stats.not_allowed += v == SWIM_NOT_ALLOWED;
    swim_reckon(s, now_ms);
    return v;
}

void swim_proven(struct swim *s, uint64_t now_ms, uint64_t wall_ms, const struct addr *addr,
                 uint64_t node_id, bool proven, struct swim_out *out)
{
    if (s->phase == SWIM_PHASE_GONE)
        return;
    swim_tcp_proven(s, now_ms, wall_ms, addr, node_id, proven, out);
    swim_reckon(s, now_ms);
}

/* What the node itself does. */

void swim_leave(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    struct members *t = &s->members;
    if (s->phase == SWIM_PHASE_GONE)
        return;
    struct standing st = standing_of(self_of(s));
    st.state = SWIM_LEFT;
    st.version++;
    st.since_s = stamp(now_ms);
    members_become(t, MEMBER_SELF, &st, &s->prng);
    swim_tell_at_once(s, now_ms, out);
    swim_set_phase(s, SWIM_PHASE_GONE, out);
    swim_reckon(s, now_ms);
}

void swim_set_flags(struct swim *s, uint64_t now_ms, uint8_t mask, uint8_t flags,
                    struct swim_out *out)
{
    uint8_t old = self_of(s)->flags;
    mask &= (uint8_t)~SWIM_WARMING;
    uint8_t now = (uint8_t)((old & ~mask) | (flags & mask));
    if (s->phase == SWIM_PHASE_GONE || now == old)
        return;
    swim_renew(s, now, out);
    if (now & ~old & SWIM_DRAINING)
        swim_tell_at_once(s, now_ms, out);
    if ((now & SWIM_DRAINING) && s->phase != SWIM_PHASE_LOOKING)
        swim_set_phase(s, SWIM_PHASE_DRAINING, out);
    else if (s->phase == SWIM_PHASE_DRAINING)
        swim_set_phase(s, s->warm_ms == NEVER_MS ? SWIM_PHASE_READY : SWIM_PHASE_WARMING, out);
    swim_reckon(s, now_ms);
}

void swim_hint_silent(struct swim *s, uint64_t now_ms, const struct addr *addr)
{
    (void)now_ms;
    uint32_t i = members_find(&s->members, addr);
    if (i != MEMBER_NONE && !(s->probe.active && s->probe.target == i))
        members_probe_soon(&s->members, i);
}

void swim_hint_replaced(struct swim *s, uint64_t now_ms, const struct addr *addr,
                        uint64_t other_id)
{
    uint32_t i = members_find(&s->members, addr);
    if (i == MEMBER_NONE || i == MEMBER_SELF || members_at(&s->members, i)->node_id == other_id)
        return;
    swim_hint_silent(s, now_ms, addr);
    s->greet = *addr;
    s->greet_ms = now_ms;
    swim_reckon(s, now_ms);
}

/* Looking at it. */

enum swim_phase swim_phase(const struct swim *s)
{
    return s->phase;
}

const struct member *swim_self(const struct swim *s)
{
    return self_of(s);
}

const struct member *swim_find(const struct swim *s, const struct addr *a)
{
    uint32_t i = members_find(&s->members, a);
    return i == MEMBER_NONE ? NULL : members_at(&s->members, i);
}

const struct member *swim_next(const struct swim *s, const struct member *m)
{
    uint32_t i = members_from(&s->members, m ? members_find(&s->members, &m->addr) + 1 : 0);
    return i == MEMBER_NONE ? NULL : members_at(&s->members, i);
}

size_t swim_live(const struct swim *s)
{
    return s->members.live;
}

const struct member *swim_coordinator(const struct swim *s)
{
    const struct member *lowest = NULL;
    for (uint32_t i = members_from(&s->members, 0); i != MEMBER_NONE;
         i = members_from(&s->members, i + 1)) {
        const struct member *m = members_at(&s->members, i);
        uint8_t barred = SWIM_WARMING | SWIM_DRAINING | SWIM_OBSERVER;
        if (member_is_live(m) && (m->flags & SWIM_COORDINATE) && !(m->flags & barred)
            && (lowest == NULL || addr_compare(&m->addr, &lowest->addr) < 0))
            lowest = m;
    }
    return lowest;
}

void swim_stats(const struct swim *s, struct swim_stats *out)
{
    *out = s->stats;
    out->health = s->health;
}

size_t swim_memory(const struct swim *s)
{
    size_t bytes = sizeof *s + members_memory(&s->members)
        + s->suspicions.capacity * sizeof(struct suspicion)
        + s->admission_capacity * sizeof(struct admission);
    for (size_t k = 0; k < SEEDS_MAX; k++)
        bytes += s->seeds[k].count * sizeof(struct addr);
    return bytes;
}
