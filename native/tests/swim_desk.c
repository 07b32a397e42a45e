/* See swim_desk.h. */
#include "tests/swim_desk.h"

struct addr desk_host(uint32_t k)
{
    struct addr a = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)k},
                     .port = 7946};
    return a;
}

struct swim_config desk_config(void)
{
    struct swim_config c = {.self = desk_host(1), .node_id = 1, .started_ms = WALL,
                            .flags = SWIM_COORDINATE, .speaks_min = 1, .speaks_max = 1,
                            .payload_bytes_max = ROOM, .seed = 42};
    swim_params_default(&c.params);
    return c;
}

void desk_open_with(struct desk *d, const struct swim_config *c)
{
    memset(d, 0, sizeof *d);
    swim_out_init(&d->out);
    d->now_ms = 100000;
    assert_int_equal(swim_new(&d->swim, c, d->now_ms), 0);
}

void desk_open(struct desk *d)
{
    struct swim_config c = desk_config();
    desk_open_with(d, &c);
}

void desk_close(struct desk *d)
{
    swim_free(d->swim);
    swim_out_deinit(&d->out);
}

void desk_forget(struct desk *d) { swim_out_reset(&d->out); }

void desk_pass(struct desk *d, uint64_t for_ms)
{
    uint64_t end_ms = d->now_ms + for_ms;
    while (swim_due_ms(d->swim) <= end_ms) {
        d->now_ms = max_u64(d->now_ms, swim_due_ms(d->swim));
        swim_tick(d->swim, d->now_ms, WALL + d->now_ms, &d->out);
    }
    d->now_ms = end_ms;
}

struct update desk_about(uint32_t k, uint8_t state, uint64_t version)
{
    struct update u;
    memset(&u, 0, sizeof u);
    u.addr = desk_host(k);
    u.s = (struct standing){.state = state, .flags = SWIM_COORDINATE, .speaks_min = 1,
                            .speaks_max = 1, .node_id = k == 1 ? 1 : 100 + k,
                            .started_ms = WALL + (k == 1 ? 0 : k), .version = version};
    if (state == SWIM_SUSPECT) {
        struct addr accuser = desk_host(9);
        u.accuser_count = 1;
        u.accusers[0] = host_of(&accuser);
    }
    return u;
}

enum swim_verdict desk_hear_as(struct desk *d, uint32_t k, uint64_t id, bool open,
                               struct swim_message m, const struct update *updates, size_t count)
{
    uint8_t bytes[PACKET_BYTES_MAX];
    struct writer w = writer_of(bytes, ROOM);
    m.sender = desk_host(k);
    swim_message_put(&w, &m);
    for (size_t j = 0; j < count; j++)
        assert_true(update_put(&w, &updates[j]));
    if (m.kind == SWIM_JOIN) {
        memset(w.at, 0, writer_room(&w));
        w.at = w.end;
    }
    struct swim_from from = {.source = desk_host(k), .node_id = id, .open_receiver = open};
    return swim_receive(d->swim, d->now_ms, WALL + d->now_ms, &from,
                        span_of(bytes, writer_bytes(&w)), &d->out);
}

enum swim_verdict desk_hear(struct desk *d, uint32_t k, struct swim_message m,
                            const struct update *updates, size_t count)
{
    return desk_hear_as(d, k, 100 + k, m.kind == SWIM_JOIN, m, updates, count);
}

struct swim_message desk_join_message(void)
{
    return (struct swim_message){.kind = SWIM_JOIN, .live = 1};
}

void desk_gossip(struct desk *d, uint32_t k, struct update u)
{
    assert_int_equal(desk_hear(d, k, (struct swim_message){.kind = SWIM_GOSSIP}, &u, 1), SWIM_OK);
}

void desk_with_members(struct desk *d, uint32_t n)
{
    desk_open(d);
    desk_pass(d, 2500);
    for (uint32_t k = 2; k <= n; k++)
        desk_gossip(d, k, desk_about(k, SWIM_ALIVE, 1));
    desk_pass(d, 1);
    assert_int_equal(swim_live(d->swim), n);
    assert_int_equal(swim_phase(d->swim), SWIM_PHASE_READY);
    desk_forget(d);
}

bool desk_sent(const struct desk *d, uint8_t kind, size_t nth, struct swim_message *m,
               const struct swim_effect **effect)
{
    for (size_t k = 0; k < d->out.count; k++) {
        const struct swim_effect *e = &d->out.effects[k];
        struct swim_message found;
        if (e->kind != SWIM_SEND)
            continue;
        assert_int_equal(swim_message_take(swim_payload(&d->out, e), &found), SWIM_OK);
        if (found.kind != kind || nth-- > 0)
            continue;
        if (m)
            *m = found;
        if (effect)
            *effect = e;
        return true;
    }
    return false;
}

size_t desk_count_sent(const struct desk *d, uint8_t kind)
{
    size_t count = 0;
    while (desk_sent(d, kind, count, NULL, NULL))
        count++;
    return count;
}

size_t desk_count_effects(const struct desk *d, uint8_t kind)
{
    size_t count = 0;
    for (size_t k = 0; k < d->out.count; k++)
        count += d->out.effects[k].kind == kind;
    return count;
}

bool desk_logged(const struct desk *d, uint8_t log)
{
    for (size_t k = 0; k < d->out.count; k++) {
        if (d->out.effects[k].kind == SWIM_LOG && d->out.effects[k].log == log)
            return true;
    }
    return false;
}

bool desk_says_of(const struct swim_message *m, uint32_t k, struct update *out)
{
    struct reader r = reader_of(m->updates);
    struct addr a = desk_host(k);
    while (update_take(&r, out)) {
        if (addr_equal(&out->addr, &a))
            return true;
    }
    return false;
}

uint8_t desk_state_of(const struct desk *d, uint32_t k)
{
    struct addr a = desk_host(k);
    const struct member *m = swim_find(d->swim, &a);
    return m ? m->state : 255;
}
