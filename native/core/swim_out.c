/* Effects: a growing list, payloads behind each other in one block; and how a
 * payload is put together: forced records first, then news, least sent first.
 */
#include "mem.h"
#include "swim_core.h"

void swim_out_init(struct swim_out *out)
{
    memset(out, 0, sizeof *out);
}

void swim_out_deinit(struct swim_out *out)
{
    mem_free(out->effects);
    mem_free(out->payloads);
    memset(out, 0, sizeof *out);
}

void swim_out_reset(struct swim_out *out)
{
    out->news = 0;
    out->count = 0;
    out->bytes = 0;
}

static struct swim_effect *add(struct swim_out *out, struct span payload)
{
    if (out->count == out->capacity) {
        size_t want = out->capacity ? out->capacity * 2 : 16;
        struct swim_effect *effects = mem_resize(out->effects, want * sizeof *effects);
        if (effects == NULL)
            return NULL;
        out->effects = effects;
        out->capacity = want;
    }
    if (payload.bytes > out->bytes_capacity - out->bytes) {
        size_t want = out->bytes_capacity ? out->bytes_capacity * 2 : 16384;
        while (payload.bytes > want - out->bytes)
            want *= 2;
        uint8_t *payloads = mem_resize(out->payloads, want);
        if (payloads == NULL)
            return NULL;
        out->payloads = payloads;
        out->bytes_capacity = want;
    }
    struct swim_effect *e = &out->effects[out->count++];
    memset(e, 0, sizeof *e);
    e->payload_at = out->bytes;
    e->payload_bytes = payload.bytes;
    if (payload.bytes > 0)
        memcpy(out->payloads + out->bytes, payload.at, payload.bytes);
    out->bytes += payload.bytes;
    return e;
}

void swim_effect(struct swim_out *out, enum swim_effect_kind kind, const struct addr *addr,
                 uint64_t node_id, struct span payload)
{
    struct swim_effect *e = add(out, payload);
    if (e == NULL) {
        out->dropped++;
        return;
    }
    e->kind = (uint8_t)kind;
    e->addr = *addr;
    e->node_id = node_id;
}

void swim_log(struct swim_out *out, enum swim_log log, const struct addr *addr,
              uint64_t node_id, uint64_t other_id, uint64_t value)
{
    struct swim_effect *e = add(out, SPAN_NONE);
    if (e == NULL) {
        out->dropped++;
        return;
    }
    e->kind = SWIM_LOG;
    e->log = (uint8_t)log;
    e->addr = *addr;
    e->node_id = node_id;
    e->other_id = other_id;
    e->value = value;
}

bool swim_may_answer(struct swim *s, uint64_t now_ms)
{
    uint64_t earned = (now_ms - s->answers_ms) / ANSWER_EVERY_MS;
    if (earned > 0) {
        s->answers = (uint32_t)min_u64(s->answers + earned, ANSWERS_MAX);
        s->answers_ms += earned * ANSWER_EVERY_MS;
    }
    if (s->answers == 0)
        return false;
    s->answers--;
    return true;
}

/* A contested tombstone travels as a suspicion: whoever is meant shall answer,
 * but nobody is to be buried on our word alone (see swim_merge.c). */
struct update swim_update_of(const struct swim *s, uint32_t i, uint64_t now_ms)
{
    const struct member *m = members_at(&s->members, i);
    struct update u;
    memset(&u, 0, sizeof u);
    u.addr = m->addr;
    u.s = standing_of(m);
    u.s.since_s = 0;
    u.contested = (m->marks & MARK_CONTESTED) != 0;
    if (m->state == SWIM_SUSPECT) {
        const struct suspicion *it = &s->suspicions.at[m->since_s];
        u.accuser_count = it->count;
        memcpy(u.accusers, it->hosts, it->count * sizeof it->hosts[0]);
    } else if (m->state >= SWIM_DEAD && u.contested) {
        u.s.state = SWIM_SUSPECT;
        u.accuser_count = 1;
        u.accusers[0] = host_of(&m->addr);
    } else if (m->state >= SWIM_DEAD) {
        u.age_s = stamp(now_ms) > m->since_s ? stamp(now_ms) - m->since_s : 0;
        u.contested = false;
    } else {
        u.contested = false;
    }
    return u;
}

/* ceil(ln(n + 1)) for n others, by whole steps of e: enough for any count we can hold. */
uint32_t swim_log_members(const struct swim *s)
{
    uint32_t steps = 1;
    double reach = 2.718281828459045;
    while (reach < s->members.order_count + 2.0 && steps < 16) {
        reach *= 2.718281828459045;
        steps++;
    }
    return steps;
}

static uint32_t sends_max(const struct swim *s)
{
    return s->p.retransmit_factor * swim_log_members(s);
}

static void append_record(struct swim *s, uint64_t now_ms, struct writer *w, uint32_t i)
{
    if (i == MEMBER_NONE)
        return;
    struct update u = swim_update_of(s, i, now_ms);
    if (update_put(w, &u))
        gossip_sent(&s->gossip, &s->members, i, sends_max(s));
}

static void append_news(struct swim *s, uint64_t now_ms, struct writer *w,
                        const struct sending *how)
{
    uint32_t encoded[PACKET_BYTES_MAX / 32];
    uint32_t count = 0;
    for (uint32_t i = gossip_first(&s->gossip); i != MEMBER_NONE && count < ARRAY_COUNT(encoded);
         i = gossip_after(&s->gossip, &s->members, i)) {
        if (i == how->first || i == how->second)
            continue;
        struct update u = swim_update_of(s, i, now_ms);
        if (!update_put(w, &u))
            break;
        encoded[count++] = i;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = encoded[k];
        gossip_sent(&s->gossip, &s->members, i, sends_max(s));
        if (!(members_at(&s->members, i)->marks & MARK_QUEUED)
            && members_at(&s->members, i)->state >= SWIM_DEAD)
            members_at(&s->members, i)->marks &= (uint8_t)~MARK_CONTESTED;
    }
}

/* True if the whole table went in. Starts anywhere, so that a big table's
 * welcomes name different members. */
static bool append_table(struct swim *s, uint64_t now_ms, struct writer *w,
                         const struct sending *how)
{
    struct members *t = &s->members;
    uint32_t start = (uint32_t)prng_below(&s->prng, t->used);
    for (uint32_t k = 0; k < t->used; k++) {
        uint32_t i = (start + k) % t->used;
        if (!(members_at(t, i)->marks & MARK_USED) || i == how->first || i == how->second)
            continue;
        struct update u = swim_update_of(s, i, now_ms);
        if (!update_put(w, &u))
            return false;
    }
    return true;
}

void swim_send(struct swim *s, uint64_t now_ms, const struct addr *to, uint64_t node_id,
               struct swim_message *m, const struct sending *how, struct swim_out *out)
{
    uint8_t bytes[PACKET_BYTES_MAX];
    size_t most = min_size(s->config.payload_bytes_max, sizeof bytes);
    if (how->bytes_max > 0)
        most = min_size(most, how->bytes_max);
    struct writer w = writer_of(bytes, most);

    m->sender = s->config.self;
    swim_message_put(&w, m);
    if (w.failed)
        return;
    uint8_t *complete = w.at - 1;       /* a welcome's last head byte */
    append_record(s, now_ms, &w, how->first);
    if (how->second != how->first)
        append_record(s, now_ms, &w, how->second);
    if (how->table)
        *complete = append_table(s, now_ms, &w, how);
    if (how->gossip)
        append_news(s, now_ms, &w, how);
    if (how->padded) {
        memset(w.at, 0, writer_room(&w));
        w.at = w.end;
    }
    s->stats.sent++;
    s->stats.sent_bytes += writer_bytes(&w);
    swim_effect(out, SWIM_SEND, to, node_id, span_of(bytes, writer_bytes(&w)));
}

void swim_tell_at_once(struct swim *s, uint64_t now_ms, struct swim_out *out)
{
    struct members *t = &s->members;
    uint32_t start = t->order_count > 0 ? (uint32_t)prng_below(&s->prng, t->order_count) : 0;
    for (uint32_t k = 0; k < t->order_count && k < TOLD_AT_ONCE_MAX; k++) {
        const struct member *m = members_at(t, t->order[(start + k) % t->order_count]);
        struct swim_message message = {.kind = SWIM_GOSSIP};
        swim_send(s, now_ms, &m->addr, m->node_id, &message,
                  &(struct sending){.first = MEMBER_SELF, .second = MEMBER_NONE, .gossip = true},
                  out);
    }
}
