/* What hearsay does to a record (SWIM section 4.2), and what we do when it is
 * about ourselves.
 *
 * Within one start, a higher version wins; within one version alive < suspect <
 * dead, left. A newer start on an address replaces the older one at once (M6).
 *
 * We deviate from SWIM in what a *tombstone* may do. Gossiped death is news, and
 * believed. What stands in a table (page, welcome), or waited in a queue for ten
 * seconds, may come from the other side of a healed cut; taken at its word it
 * would bury half the cluster for a moment. So such a tombstone against a member
 * we know alive becomes a suspicion marked "contested", and one of ours against
 * a member the table calls alive is gossiped as such. The accused reads in the
 * mark that somebody had declared it dead, drops what it stored (D3), and
 * refutes. Its accuser is set down as its own host: however many hold the
 * tombstone, they are no independent witnesses.
 */
#include "err.h"
#include "swim_core.h"

void swim_set_phase(struct swim *s, enum swim_phase phase, struct swim_out *out)
{
    if (s->phase == phase)
        return;
    s->phase = phase;
    out->news |= SWIM_NEWS_PHASE;
}

void swim_renew(struct swim *s, uint8_t flags, struct swim_out *out)
{
    struct standing st = standing_of(self_of(s));
    st.flags = flags;
    st.version++;
    members_become(&s->members, MEMBER_SELF, &st, &s->prng);
    gossip_queue(&s->gossip, &s->members, MEMBER_SELF);
    out->news |= SWIM_NEWS_MEMBERS;
}

static void become(struct swim *s, uint32_t i, const struct standing *st)
{
    struct member *m = members_at(&s->members, i);
    if (m->state == SWIM_SUSPECT)
        suspicions_end(&s->suspicions, &s->members, i);
    members_become(&s->members, i, st, &s->prng);
    m->marks &= (uint8_t)~MARK_CONTESTED;
}

/* Put a live member under suspicion, or out of memory leave it alive: the next
 * probe accuses it again. */
static bool suspect(struct swim *s, uint64_t now_ms, uint32_t i, uint64_t version,
                    bool contested, const struct host *hosts, uint8_t host_count,
                    struct swim_out *out)
{
    struct member *m = members_at(&s->members, i);
    if (suspicions_room(&s->suspicions) < 0)
        return false;
    struct standing st = standing_of(m);
    st.state = SWIM_SUSPECT;
    st.version = version;
    become(s, i, &st);
    suspicions_start(&s->suspicions, &s->members, &s->p, i, &hosts[0], now_ms);
    for (uint8_t k = 1; k < host_count; k++)
        suspicions_confirm(&s->suspicions, &s->members, &s->p, i, &hosts[k]);
    if (contested)
        m->marks |= MARK_CONTESTED;
    gossip_queue(&s->gossip, &s->members, i);
    s->stats.suspicions++;
    swim_log(out, SWIM_LOG_SUSPECTED, &m->addr, m->node_id, 0, 0);
    return true;
}

/* Whom it is about shall hear first: then a refutation may overtake the news. Most
 * suspicions are false ones, and so most of them need not be told to anyone. */
static void tell(struct swim *s, uint64_t now_ms, uint32_t i, struct swim_out *out)
{
    const struct member *m = members_at(&s->members, i);
    struct swim_message message = {.kind = SWIM_GOSSIP};
    swim_send(s, now_ms, &m->addr, m->node_id, &message,
              &(struct sending){.first = i, .second = MEMBER_NONE}, out);
}

void swim_accuse(struct swim *s, uint64_t now_ms, uint32_t i, struct swim_out *out)
{
    struct member *m = members_at(&s->members, i);
    struct host us = host_of(&s->config.self);
    if (m->state == SWIM_ALIVE && suspect(s, now_ms, i, m->version, false, &us, 1, out)) {
        tell(s, now_ms, i, out);
        s->gossip_ms = max_u64(s->gossip_ms, now_ms + s->p.gossip_every_ms);
    } else if (m->state == SWIM_SUSPECT
               && suspicions_confirm(&s->suspicions, &s->members, &s->p, i, &us)) {
        gossip_queue(&s->gossip, &s->members, i);
    }
}

void swim_bury(struct swim *s, uint64_t now_ms, uint32_t i, struct swim_out *out)
{
    struct member *m = members_at(&s->members, i);
    struct standing st = standing_of(m);
    st.state = SWIM_DEAD;
    st.since_s = stamp(now_ms);
    become(s, i, &st);
    gossip_queue(&s->gossip, &s->members, i);
    s->stats.deaths++;
    out->news |= SWIM_NEWS_MEMBERS;
    swim_log(out, SWIM_LOG_DEAD, &m->addr, m->node_id, 0, 0);
    tell(s, now_ms, i, out);
}

static void raise_start(struct swim *s, uint64_t started_ms, struct swim_out *out)
{
    struct standing st = standing_of(self_of(s));
    st.started_ms = started_ms + 1;
    members_become(&s->members, MEMBER_SELF, &st, &s->prng);
    gossip_queue(&s->gossip, &s->members, MEMBER_SELF);
    swim_log(out, SWIM_LOG_STARTED_RAISED, &s->config.self, s->config.node_id, 0, st.started_ms);
}

/* Another start on our address (M6). A tombstone of it, or one met before we
 * were admitted anywhere, only means that ours must be the newer one; a living
 * one, met later, is somebody who has taken our place. */
static void other_start(struct swim *s, const struct update *u, struct heard *from,
                        struct swim_out *out)
{
    struct member *self = self_of(s);
    if (start_compare(u->s.started_ms, u->s.node_id, self) < 0) {
        /* They know our predecessor. Say who is here now. */
        from->accused = true;
        gossip_queue(&s->gossip, &s->members, MEMBER_SELF);
        return;
    }
    if (!s->admitted || u->s.state >= SWIM_DEAD) {
        if (u->s.started_ms == UINT64_MAX)
            return;
        from->accused = true;
        raise_start(s, u->s.started_ms, out);
        return;
    }
    swim_log(out, SWIM_LOG_CONFLICT, &s->config.self, s->config.node_id, u->s.node_id,
             u->s.started_ms);
    out->news |= SWIM_NEWS_CONFLICT;
    swim_set_phase(s, SWIM_PHASE_GONE, out);
}

static void hear_of_self(struct swim *s, uint64_t now_ms, const struct update *u,
                         struct heard *from, struct swim_out *out)
{
    struct member *self = self_of(s);
    if (u->s.node_id != self->node_id) {
        other_start(s, u, from, out);
        return;
    }
    if (u->s.started_ms != self->started_ms)
        return;             /* from before M6 raised our start */
    if (u->s.version < self->version) {
        from->accused = from->accused || u->s.state != SWIM_ALIVE;
        if (from->table) {
            gossip_queue(&s->gossip, &s->members, MEMBER_SELF);
            s->mended++;
        }
        return;
    }
    if (u->s.version == self->version && u->s.state == SWIM_ALIVE)
        return;
    /* Only we make versions of ourselves, so a far higher one is a forgery or a
     * broken node; following it would let one message use them up. */
    if (u->s.version - self->version > VERSION_JUMP_MAX) {
        s->stats.refused_updates++;
        return;
    }
    struct standing st = standing_of(self);
    st.version = u->s.version + 1;
    members_become(&s->members, MEMBER_SELF, &st, &s->prng);
    gossip_queue(&s->gossip, &s->members, MEMBER_SELF);
    s->gossip_ms = now_ms;       /* a refutation does not wait for the next round */
    from->accused = true;
    s->stats.refutations++;
    if (u->s.state == SWIM_SUSPECT && s->health < s->p.health_max)
        s->health++;
    if (u->s.state >= SWIM_DEAD || u->contested) {
        out->news |= SWIM_NEWS_SELF_DEAD;
        swim_log(out, SWIM_LOG_SELF_DEAD, &self->addr, self->node_id, from->node_id, st.version);
    }
}

static bool acceptable(struct swim *s, uint64_t wall_ms, const struct update *u,
                       const struct heard *from, struct swim_out *out)
{
    if (!swim_allows(s, &u->addr)) {
        swim_log(out, SWIM_LOG_REFUSED_CIDR, &u->addr, u->s.node_id, from->node_id, 0);
        return false;
    }
    if (addr_is_loopback(&u->addr) && !addr_is_loopback(&from->source)) {
        swim_log(out, SWIM_LOG_REFUSED_LOOPBACK, &u->addr, u->s.node_id, from->node_id, 0);
        return false;
    }
    if (u->s.started_ms > wall_ms + FUTURE_MS_MAX) {
        swim_log(out, SWIM_LOG_REFUSED_FUTURE, &u->addr, u->s.node_id, from->node_id,
                 u->s.started_ms - wall_ms);
        return false;
    }
    return true;
}

/* Pass on what we have learned. From a table only some: a page may bring a
 * thousand, whose sources gossip them already, and they would crowd out what is
 * new. A newcomer's first table is news to nobody. */
static void pass_on(struct swim *s, uint32_t i, struct heard *from)
{
    if (!from->table
        || (s->phase != SWIM_PHASE_LOOKING && from->passed_on++ < TABLE_NEWS_MAX))
        gossip_queue(&s->gossip, &s->members, i);
}

static uint32_t since(uint64_t now_ms, const struct update *u)
{
    return stamp(now_ms) - (uint32_t)min_u64(u->age_s, stamp(0));
}

static uint64_t tombstone_ms(const struct swim *s, uint8_t flags)
{
    /* An observer leaves none that counts; a minute's keeps a stale page from
     * bringing it back. */
    return flags & SWIM_OBSERVER ? OBSERVER_TOMBSTONE_MS : s->p.tombstone_ms;
}

/* Hearsay of a suspicion: some of us look for themselves next, about as many as
 * there are witnesses to be found, instead of whom they would have probed. That
 * costs no message, and leaves nothing to the luck of the order: waiting for it
 * took the slowest crash in a hundred two seconds more at N = 64. */
static void hear_accusation(struct swim *s, uint64_t now_ms, uint32_t i, const struct update *u,
                            struct swim_out *out)
{
    if (!suspect(s, now_ms, i, u->s.version, u->contested, u->accusers, u->accuser_count, out))
        return;
    if (!u->contested && prng_below(&s->prng, s->members.live) < WITNESSES_WANTED)
        members_probe_soon(&s->members, i);
}

void swim_forget(struct swim *s, uint32_t i)
{
    gossip_drop(&s->gossip, &s->members, i);
    if (s->probe.target == i)
        s->probe.active = false;
    members_remove(&s->members, i);
}

/* Where containers get a new address at every start, tombstones fill the table
 * long before they expire. The living need the room: the oldest goes, of those
 * who left before those who died, because they don't come back. */
static bool make_room(struct swim *s, uint64_t now_ms)
{
    const struct members *t = &s->members;
    uint32_t oldest = MEMBER_NONE;
    for (uint32_t i = members_from(t, 1); i != MEMBER_NONE; i = members_from(t, i + 1)) {
        const struct member *m = members_at(t, i), *best = members_at(t, oldest == MEMBER_NONE
                                                                             ? i : oldest);
        if (member_is_live(m) || stamp(now_ms) - m->since_s < EVICT_S_MIN)
            continue;
        if (oldest == MEMBER_NONE || m->state > best->state
            || (m->state == best->state && m->since_s < best->since_s))
            oldest = i;
    }
    if (oldest == MEMBER_NONE)
        return false;
    swim_forget(s, oldest);
    return true;
}

static void hear_of_stranger(struct swim *s, uint64_t now_ms, const struct update *u,
                             struct heard *from, struct swim_out *out)
{
    struct standing st = u->s;
    uint32_t i;
    if (st.version > UINT64_MAX / 2) {      /* it could never refute */
        s->stats.refused_updates++;
        return;
    }
    if (st.state >= SWIM_DEAD) {
        if ((uint64_t)u->age_s * 1000 >= tombstone_ms(s, st.flags))
            return;
        st.since_s = since(now_ms, u);
    } else {
        st.state = SWIM_ALIVE;
    }
    int rc = members_add(&s->members, &u->addr, &st, &s->prng, &i);
    if (rc == ERR_FULL && st.state == SWIM_ALIVE && make_room(s, now_ms))
        rc = members_add(&s->members, &u->addr, &st, &s->prng, &i);
    if (rc < 0) {
        swim_log(out, SWIM_LOG_TABLE_FULL, &u->addr, st.node_id, 0, s->members.count);
        return;
    }
    s->mended++;
    members_at(&s->members, i)->marks |= MARK_SEEN;
    if (u->s.state >= SWIM_DEAD) {
        if (!from->table)
            gossip_queue(&s->gossip, &s->members, i);
        return;
    }
    pass_on(s, i, from);
    out->news |= SWIM_NEWS_MEMBERS;
    swim_log(out, SWIM_LOG_JOINED, &u->addr, st.node_id, 0, st.started_ms);
    if (u->s.state == SWIM_SUSPECT)
        hear_accusation(s, now_ms, i, u, out);
}

/* The record becomes what the update says, which is newer. */
static void adopt(struct swim *s, uint64_t now_ms, uint32_t i, const struct update *u,
                  struct heard *from, struct swim_out *out)
{
    struct member *m = members_at(&s->members, i);
    struct standing st = u->s;
    bool was_live = member_is_live(m), was_suspect = m->state == SWIM_SUSPECT;
    bool restarted = start_compare(st.started_ms, st.node_id, m) != 0;
    bool visible = m->flags != st.flags || m->speaks_min != st.speaks_min
        || m->speaks_max != st.speaks_max || restarted;
    uint64_t old_id = m->node_id;
    uint8_t old_state = m->state;

    s->mended++;
    if (st.state >= SWIM_DEAD) {
        st.since_s = since(now_ms, u);
        become(s, i, &st);
        pass_on(s, i, from);
        if (was_live) {
            s->stats.deaths += st.state == SWIM_DEAD;
            out->news |= SWIM_NEWS_MEMBERS;
            swim_log(out, st.state == SWIM_DEAD ? SWIM_LOG_DEAD : SWIM_LOG_LEFT, &m->addr,
                     m->node_id, 0, 0);
        }
        return;
    }
    /* A suspicion of a newer version says first that it was alive under it. */
    if (st.state == SWIM_ALIVE || !was_live || restarted || st.version > m->version) {
        st.state = SWIM_ALIVE;
        st.since_s = 0;
        become(s, i, &st);
        pass_on(s, i, from);
        if (visible || !was_live)
            out->news |= SWIM_NEWS_MEMBERS;
        if (restarted && was_live)
            swim_log(out, SWIM_LOG_REPLACED, &m->addr, m->node_id, old_id, m->started_ms);
        else if (old_state == SWIM_DEAD && !restarted)
            swim_log(out, SWIM_LOG_RETURNED, &m->addr, m->node_id, 0, 0);
        else if (!was_live)
            swim_log(out, SWIM_LOG_JOINED, &m->addr, m->node_id, 0, m->started_ms);
        else if (was_suspect)
            swim_log(out, SWIM_LOG_REFUTED, &m->addr, m->node_id, 0, 0);
    }
    if (u->s.state == SWIM_SUSPECT)
        hear_accusation(s, now_ms, i, u, out);
}

/* Who keeps this table shall hear what we know better. */
static void tell_table(struct swim *s, uint32_t i, const struct update *u, struct heard *from)
{
    struct member *m = members_at(&s->members, i);
    if (m->state == SWIM_DEAD && u->s.state <= SWIM_SUSPECT) {
        if (m->marks & MARK_CONTESTED)
            return;
        m->marks |= MARK_CONTESTED;
        gossip_queue(&s->gossip, &s->members, i);
    } else {
        pass_on(s, i, from);
    }
    s->mended++;
}

/* The same start, the same version. */
static void hear_again(struct swim *s, uint64_t now_ms, uint32_t i, const struct update *u,
                       struct heard *from, struct swim_out *out)
{
    struct member *m = members_at(&s->members, i);
    if (u->s.state == SWIM_SUSPECT && m->state == SWIM_SUSPECT) {
        bool news = u->contested && !(m->marks & MARK_CONTESTED);
        if (u->contested)
            m->marks |= MARK_CONTESTED;
        for (uint8_t k = 0; k < u->accuser_count; k++)
            news |= suspicions_confirm(&s->suspicions, &s->members, &s->p, i, &u->accusers[k]);
        if (news)
            gossip_queue(&s->gossip, &s->members, i);
        return;
    }
    if (u->s.state > m->state && !(m->state == SWIM_DEAD && u->s.state == SWIM_LEFT)) {
        adopt(s, now_ms, i, u, from, out);
        return;
    }
    if (from->table && u->s.state <= SWIM_SUSPECT && m->state >= SWIM_DEAD)
        tell_table(s, i, u, from);
}

void swim_merge(struct swim *s, uint64_t now_ms, uint64_t wall_ms, const struct update *u,
                struct heard *from, struct swim_out *out)
{
    if (s->phase == SWIM_PHASE_GONE)
        return;
    if (addr_equal(&u->addr, &s->config.self)) {
        self_of(s)->marks |= MARK_SEEN;
        if (u->s.started_ms <= wall_ms + FUTURE_MS_MAX || u->s.node_id == s->config.node_id)
            hear_of_self(s, now_ms, u, from, out);
        return;
    }
    uint32_t i = members_find(&s->members, &u->addr);
    if (i == MEMBER_NONE) {
        if (acceptable(s, wall_ms, u, from, out))
            hear_of_stranger(s, now_ms, u, from, out);
        else
            s->stats.refused_updates++;
        return;
    }
    struct member *m = members_at(&s->members, i);
    m->marks |= MARK_SEEN;
    int newer = start_compare(u->s.started_ms, u->s.node_id, m);
    if (newer > 0 && !acceptable(s, wall_ms, u, from, out)) {
        s->stats.refused_updates++;
        return;
    }
    if (newer == 0 && u->s.version > m->version && u->s.version - m->version > VERSION_JUMP_MAX) {
        s->stats.refused_updates++;
        return;
    }
    if (newer == 0 && u->s.version != m->version)
        newer = u->s.version > m->version ? 1 : -1;
    if (newer < 0) {
        if (from->table)
            tell_table(s, i, u, from);
        return;
    }
    struct update mild = *u;
    bool hearsay = from->table || u->age_s >= NEWS_S_MAX;
    if (hearsay && u->s.state == SWIM_DEAD && member_is_live(m)
        && start_compare(u->s.started_ms, u->s.node_id, m) == 0) {
        mild.s.state = SWIM_SUSPECT;
        mild.contested = true;
        mild.accuser_count = 1;
        mild.accusers[0] = host_of(&u->addr);   /* not a witness of its own */
    }
    if (newer > 0)
        adopt(s, now_ms, i, &mild, from, out);
    else
        hear_again(s, now_ms, i, &mild, from, out);
}
