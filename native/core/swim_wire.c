/* Payloads to bytes and back: see the header for the layout. */
#include "swim_wire.h"

enum { BITS_STATE = 3, BITS_V6 = 4, BITS_CONTESTED = 8, BITS_ACCUSERS_SHIFT = 4 };

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static void put_ip(struct writer *w, const uint8_t ip[16], bool v4)
{
    put_span(w, v4 ? span_of(ip + 12, 4) : span_of(ip, 16));
}

static void take_ip(struct reader *r, uint8_t ip[16], bool v4)
{
    if (!v4) {
        take_copy(r, ip, 16);
        return;
    }
    memcpy(ip, v4_prefix, sizeof v4_prefix);
    take_copy(r, ip + 12, 4);
}

static void put_sized_addr(struct writer *w, const struct addr *a)
{
    bool v4 = addr_is_v4(a);
    put_u8(w, v4 ? 6 : 18);
    put_ip(w, a->ip, v4);
    put_u16(w, a->port);
}

static struct addr take_sized_addr(struct reader *r)
{
    struct addr a;
    memset(&a, 0, sizeof a);
    uint8_t bytes = take_u8(r);
    if (bytes != 6 && bytes != 18) {
        r->failed = true;
        return a;
    }
    take_ip(r, a.ip, bytes == 6);
    a.port = take_u16(r);
    return a;
}

static void put_fields(struct writer *w, const struct swim_message *m)
{
    switch (m->kind) {
    case SWIM_PING:
    case SWIM_ACK:
        put_u32(w, m->sequence);
        put_u32(w, m->live);
        put_u64(w, m->digest);
        break;
    case SWIM_ASK:
        put_u32(w, m->sequence);
        put_u64(w, m->target_id);
        put_sized_addr(w, &m->target);
        break;
    case SWIM_REACHED:
    case SWIM_NACK:
        put_u32(w, m->sequence);
        break;
    case SWIM_JOIN:
        put_u32(w, m->live);
        put_u64(w, m->digest);
        break;
    case SWIM_CHALLENGE:
    case SWIM_PROOF:
        put_u64(w, m->token);
        break;
    case SWIM_WELCOME:
        put_u8(w, m->complete);
        break;
    default:
        break;
    }
}

static void take_fields(struct reader *r, struct swim_message *m)
{
    switch (m->kind) {
    case SWIM_PING:
    case SWIM_ACK:
        m->sequence = take_u32(r);
        m->live = take_u32(r);
        m->digest = take_u64(r);
        break;
    case SWIM_ASK:
        m->sequence = take_u32(r);
        m->target_id = take_u64(r);
        m->target = take_sized_addr(r);
        break;
    case SWIM_REACHED:
    case SWIM_NACK:
        m->sequence = take_u32(r);
        break;
    case SWIM_JOIN:
        m->live = take_u32(r);
        m->digest = take_u64(r);
        break;
    case SWIM_CHALLENGE:
    case SWIM_PROOF:
        m->token = take_u64(r);
        break;
    case SWIM_WELCOME:
        m->complete = take_u8(r) != 0;
        break;
    default:
        break;
    }
}

void swim_message_put(struct writer *w, const struct swim_message *m)
{
    put_u8(w, SWIM_WIRE_VERSION);
    put_u8(w, m->kind);
    uint8_t *bytes = w->at;
    put_u8(w, 0);
    put_sized_addr(w, &m->sender);
    put_fields(w, m);
    if (!w->failed)
        *bytes = (uint8_t)(w->at - bytes - 1);
}

enum swim_verdict swim_message_take(struct span payload, struct swim_message *m)
{
    struct reader r = reader_of(payload);
    memset(m, 0, sizeof *m);
    m->version = take_u8(&r);
    m->kind = take_u8(&r);
    struct span head = take_span(&r, take_u8(&r));
    if (r.failed || m->version == 0)
        return SWIM_MALFORMED;
    m->updates = span_of(r.at, reader_left(&r));
    struct reader h = reader_of(head);
    m->sender = take_sized_addr(&h);
    bool known = m->kind >= SWIM_PING && m->kind < SWIM_MESSAGE_KINDS;
    if (known)
        take_fields(&h, m);
    if (h.failed || m->sender.port == 0)
        return SWIM_MALFORMED;
    if (!known)
        return SWIM_UNKNOWN_KIND;
    return reader_left(&h) > 0 && m->version == SWIM_WIRE_VERSION ? SWIM_MALFORMED : SWIM_OK;
}

bool update_put(struct writer *out, const struct update *u)
{
    uint8_t buffer[UPDATE_BYTES_MAX];
    struct writer w = writer_of(buffer, sizeof buffer);
    bool v4 = addr_is_v4(&u->addr);
    uint8_t accusers = u->s.state == SWIM_SUSPECT ? u->accuser_count : 0;
    put_u8(&w, (uint8_t)(u->s.state | (v4 ? 0 : BITS_V6) | (u->contested ? BITS_CONTESTED : 0)
                         | (unsigned)accusers << BITS_ACCUSERS_SHIFT));
    put_ip(&w, u->addr.ip, v4);
    put_u16(&w, u->addr.port);
    put_u64(&w, u->s.node_id);
    put_u64(&w, u->s.started_ms);
    put_u64(&w, u->s.version);
    put_u8(&w, u->s.flags);
    put_u8(&w, u->s.speaks_min);
    put_u8(&w, u->s.speaks_max);
    if (u->s.state >= SWIM_DEAD)
        put_u32(&w, u->age_s);
    for (uint8_t k = 0; k < accusers; k++) {
        bool host_v4 = memcmp(u->accusers[k].ip, v4_prefix, sizeof v4_prefix) == 0;
        put_u8(&w, host_v4 ? 4 : 16);
        put_ip(&w, u->accusers[k].ip, host_v4);
    }
    assert(!w.failed);
    if (writer_room(out) < writer_bytes(&w) + 1)
        return false;
    put_u8(out, (uint8_t)writer_bytes(&w));
    put_span(out, span_of(buffer, writer_bytes(&w)));
    return true;
}

bool update_take(struct reader *r, struct update *u)
{
    if (reader_left(r) == 0)
        return false;
    uint8_t bytes = take_u8(r);
    if (bytes == 0)
        return false;
    struct reader in = reader_of(take_span(r, bytes));
    if (r->failed)
        return false;
    memset(u, 0, sizeof *u);
    uint8_t bits = take_u8(&in);
    u->s.state = bits & BITS_STATE;
    u->contested = (bits & BITS_CONTESTED) != 0;
    take_ip(&in, u->addr.ip, !(bits & BITS_V6));
    u->addr.port = take_u16(&in);
    u->s.node_id = take_u64(&in);
    u->s.started_ms = take_u64(&in);
    u->s.version = take_u64(&in);
    u->s.flags = take_u8(&in);
    u->s.speaks_min = take_u8(&in);
    u->s.speaks_max = take_u8(&in);
    if (u->s.state >= SWIM_DEAD)
        u->age_s = take_u32(&in);
    uint8_t accusers = (bits >> BITS_ACCUSERS_SHIFT) & 7;
    for (uint8_t k = 0; k < accusers && !in.failed; k++) {
        uint8_t host_bytes = take_u8(&in);
        if (host_bytes != 4 && host_bytes != 16) {
            in.failed = true;
            break;
        }
        struct host h;
        take_ip(&in, h.ip, host_bytes == 4);
        if (u->accuser_count < ACCUSERS_MAX)
            u->accusers[u->accuser_count++] = h;
    }
    if (in.failed || u->addr.port == 0 || u->s.node_id == 0
        || (u->s.state == SWIM_SUSPECT && u->accuser_count == 0)) {
        r->failed = true;
        return false;
    }
    return true;
}
