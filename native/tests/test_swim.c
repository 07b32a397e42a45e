/* One membership core, told things by hand: each test makes the datagrams its
 * peers would send, and looks at the effects.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/err.h"
#include "core/mem.h"
#include "core/swim_core.h"

#define WALL 1700000000000ull
#define ROOM 1264u

/* The core under test lives at 10.0.0.1:7946 and has id 1; peer k at 10.0.0.k:7946
 * has id 100 + k. */
struct desk {
    struct swim *swim;
    struct swim_out out;
    uint64_t now_ms;
};

static struct addr host(uint32_t k)
{
    struct addr a = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)k},
                     .port = 7946};
    return a;
}

static struct swim_config config(void)
{
    struct swim_config c = {.self = host(1), .node_id = 1, .started_ms = WALL,
                            .flags = SWIM_COORDINATE, .speaks_min = 1, .speaks_max = 1,
                            .payload_bytes_max = ROOM, .seed = 42};
    swim_params_default(&c.params);
    return c;
}

static void open_with(struct desk *d, const struct swim_config *c)
{
    memset(d, 0, sizeof *d);
    swim_out_init(&d->out);
    d->now_ms = 100000;
    assert_int_equal(swim_new(&d->swim, c, d->now_ms), 0);
}

static void open_desk(struct desk *d)
{
    struct swim_config c = config();
    open_with(d, &c);
}

static void close_desk(struct desk *d)
{
    swim_free(d->swim);
    swim_out_deinit(&d->out);
}

static void forget(struct desk *d) { swim_out_reset(&d->out); }

/* Let time pass, ticking exactly when due; effects pile up. */
static void pass(struct desk *d, uint64_t for_ms)
{
    uint64_t end_ms = d->now_ms + for_ms;
    while (swim_due_ms(d->swim) <= end_ms) {
        d->now_ms = max_u64(d->now_ms, swim_due_ms(d->swim));
        swim_tick(d->swim, d->now_ms, WALL + d->now_ms, &d->out);
    }
    d->now_ms = end_ms;
}

static struct update about(uint32_t k, uint8_t state, uint64_t version)
{
    struct update u;
    memset(&u, 0, sizeof u);
    u.addr = host(k);
    u.s = (struct standing){.state = state, .flags = SWIM_COORDINATE, .speaks_min = 1,
                            .speaks_max = 1, .node_id = k == 1 ? 1 : 100 + k,
                            .started_ms = WALL + (k == 1 ? 0 : k), .version = version};
    if (state == SWIM_SUSPECT) {
        struct addr accuser = host(9);
        u.accuser_count = 1;
        u.accusers[0] = host_of(&accuser);
    }
    return u;
}

static enum swim_verdict hear_as(struct desk *d, uint32_t k, uint64_t id, bool open,
                                 struct swim_message m, const struct update *updates, size_t count)
{
    uint8_t bytes[PACKET_BYTES_MAX];
    struct writer w = writer_of(bytes, ROOM);
    m.sender = host(k);
    swim_message_put(&w, &m);
    for (size_t j = 0; j < count; j++)
        assert_true(update_put(&w, &updates[j]));
    if (m.kind == SWIM_JOIN) {
        memset(w.at, 0, writer_room(&w));
        w.at = w.end;
    }
    struct swim_from from = {.source = host(k), .node_id = id, .open_receiver = open};
    return swim_receive(d->swim, d->now_ms, WALL + d->now_ms, &from,
                        span_of(bytes, writer_bytes(&w)), &d->out);
}

static enum swim_verdict hear(struct desk *d, uint32_t k, struct swim_message m,
                              const struct update *updates, size_t count)
{
    return hear_as(d, k, 100 + k, m.kind == SWIM_JOIN, m, updates, count);
}

/* Gossip from `k` about one member. */
static void gossip(struct desk *d, uint32_t k, struct update u)
{
    assert_int_equal(hear(d, k, (struct swim_message){.kind = SWIM_GOSSIP}, &u, 1), SWIM_OK);
}

/* Members 2..n, known and alive; the core is past warming. */
static void with_members(struct desk *d, uint32_t n)
{
    open_desk(d);
    pass(d, 2500);
    for (uint32_t k = 2; k <= n; k++)
        gossip(d, k, about(k, SWIM_ALIVE, 1));
    pass(d, 1);
    assert_int_equal(swim_live(d->swim), n);
    assert_int_equal(swim_phase(d->swim), SWIM_PHASE_READY);
    forget(d);
}

/* The `nth` datagram of this kind among the effects; false if there is none. */
static bool sent(const struct desk *d, uint8_t kind, size_t nth, struct swim_message *m,
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

static size_t count_sent(const struct desk *d, uint8_t kind)
{
    size_t count = 0;
    while (sent(d, kind, count, NULL, NULL))
        count++;
    return count;
}

static size_t count_effects(const struct desk *d, uint8_t kind)
{
    size_t count = 0;
    for (size_t k = 0; k < d->out.count; k++)
        count += d->out.effects[k].kind == kind;
    return count;
}

static bool logged(const struct desk *d, uint8_t log)
{
    for (size_t k = 0; k < d->out.count; k++) {
        if (d->out.effects[k].kind == SWIM_LOG && d->out.effects[k].log == log)
            return true;
    }
    return false;
}

/* The update about `k` in a message; false if it has none. */
static bool says_of(const struct swim_message *m, uint32_t k, struct update *out)
{
    struct reader r = reader_of(m->updates);
    struct addr a = host(k);
    while (update_take(&r, out)) {
        if (addr_equal(&out->addr, &a))
            return true;
    }
    return false;
}

static uint8_t state_of(const struct desk *d, uint32_t k)
{
    struct addr a = host(k);
    const struct member *m = swim_find(d->swim, &a);
    return m ? m->state : 255;
}

/* Joining. */

static struct swim_message join_message(void)
{
    return (struct swim_message){.kind = SWIM_JOIN, .live = 1};
}

/* M2: whoever joins is challenged at its advertised address over UDP and TCP,
 * and is a member only when both have answered. */
static void both_ways_or_not_at_all(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        struct desk d;
        struct update u = about(2, SWIM_ALIVE, 1);
        struct swim_message challenge;
        struct addr a = host(2);
        open_desk(&d);
        assert_int_equal(hear(&d, 2, join_message(), &u, 1), SWIM_OK);
        assert_true(sent(&d, SWIM_CHALLENGE, 0, &challenge, NULL));
        assert_int_equal(count_effects(&d, SWIM_PROVE), 1);
        assert_int_equal(state_of(&d, 2), 255);
        forget(&d);
        if (which & 1) {
            struct swim_message proof = {.kind = SWIM_PROOF, .token = challenge.token};
            hear(&d, 2, proof, NULL, 0);
        } else {
            struct swim_message proof = {.kind = SWIM_PROOF, .token = challenge.token + 1};
            hear(&d, 2, proof, NULL, 0);
        }
        if (which & 2)
            swim_proven(d.swim, d.now_ms, WALL, &a, 102, true, &d.out);
        else
            swim_proven(d.swim, d.now_ms, WALL, &a, 103, true, &d.out);     /* another id */
        assert_int_equal(state_of(&d, 2), which == 3 ? SWIM_ALIVE : 255);
        assert_int_equal(count_sent(&d, SWIM_WELCOME), which == 3);
        assert_int_equal((d.out.news & SWIM_NEWS_MEMBERS) != 0, which == 3);
        pass(&d, 3000);
        assert_int_equal(logged(&d, SWIM_LOG_REFUSED_UNPROVEN), which != 3);
        close_desk(&d);
    }
}

/* W5: an answer to an open datagram is never larger than it; a join that is not
 * padded gets little or nothing. */
static void no_amplification(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 60);
    for (size_t bytes = 40; bytes < ROOM; bytes += 97) {
        uint8_t payload[ROOM] = {0};
        struct writer w = writer_of(payload, bytes);
        struct swim_message m = {.kind = SWIM_JOIN, .sender = host(2)};
        struct update u = about(2, SWIM_ALIVE, 1);
        swim_message_put(&w, &m);
        if (!update_put(&w, &u))
            continue;
        struct swim_from from = {.source = host(2), .node_id = 102, .open_receiver = true};
        swim_receive(d.swim, d.now_ms, WALL, &from, span_of(payload, bytes), &d.out);
        assert_true(count_sent(&d, SWIM_WELCOME) == 1);
        for (size_t k = 0; k < d.out.count; k++)
            assert_true(d.out.effects[k].payload_bytes <= bytes);
        forget(&d);
    }
    close_desk(&d);
}

/* Only a join may leave its receiver open. */
static void only_joins_are_open(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 3);
    for (uint8_t kind = SWIM_PING; kind < SWIM_MESSAGE_KINDS; kind++) {
        struct swim_message m = {.kind = kind, .target = host(3), .target_id = 103};
        struct update u = about(4, SWIM_ALIVE, 1);
        if (kind == SWIM_JOIN)
            continue;
        assert_int_equal(hear_as(&d, 2, 102, true, m, &u, 1), SWIM_NOT_OPEN);
        assert_int_equal(d.out.count, 0);
        assert_int_equal(state_of(&d, 4), 255);
    }
    close_desk(&d);
}

/* Addresses outside the list are neither heard nor, learned by gossip, sent to. */
static void outside_the_list(void **state)
{
    struct desk d;
    struct cidr allowed[1];
    struct swim_config c = config();
    (void)state;
    assert_null(cidr_parse("10.0.0.0/28", &allowed[0]));
    c.allowed = allowed;
    c.allowed_count = 1;
    open_with(&d, &c);
    pass(&d, 2500);
    struct update inside = about(2, SWIM_ALIVE, 1), outside = about(77, SWIM_ALIVE, 1);
    gossip(&d, 2, inside);
    gossip(&d, 2, outside);
    assert_int_equal(state_of(&d, 2), SWIM_ALIVE);
    assert_int_equal(state_of(&d, 77), 255);
    assert_true(logged(&d, SWIM_LOG_REFUSED_CIDR));
    forget(&d);
    assert_int_equal(hear(&d, 77, join_message(), &outside, 1), SWIM_NOT_ALLOWED);
    assert_int_equal(count_effects(&d, SWIM_SEND) + count_effects(&d, SWIM_PROVE), 0);
    /* A helper does not probe it for others either. */
    forget(&d);
    struct swim_message ask = {.kind = SWIM_ASK, .target = host(77), .target_id = 177};
    hear(&d, 2, ask, NULL, 0);
    assert_int_equal(count_sent(&d, SWIM_PING), 0);
    close_desk(&d);
}

static void loopback_from_elsewhere(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 2);
    struct update u = about(3, SWIM_ALIVE, 1);
    assert_true(addr_parse("127.0.0.1:7946", &u.addr));
    gossip(&d, 2, u);
    assert_null(swim_find(d.swim, &u.addr));
    assert_true(logged(&d, SWIM_LOG_REFUSED_LOOPBACK));
    close_desk(&d);
}

/* A start more than a minute ahead of our clock would be newer than everything
 * for as long as the clocks differ. */
static void starts_from_the_future(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 2);
    struct update u = about(3, SWIM_ALIVE, 1);
    u.s.started_ms = WALL + d.now_ms + FUTURE_MS_MAX + 1;
    gossip(&d, 2, u);
    assert_int_equal(state_of(&d, 3), 255);
    hear(&d, 3, join_message(), &u, 1);
    assert_int_equal(count_effects(&d, SWIM_PROVE), 0);
    assert_true(logged(&d, SWIM_LOG_REFUSED_FUTURE));
    u.s.started_ms--;
    gossip(&d, 2, u);
    assert_int_equal(state_of(&d, 3), SWIM_ALIVE);
    close_desk(&d);
}

/* Starts on one address (M6). */

/* Clocks step back: a node that starts and is told of a newer start on its
 * address takes the one after it, and asks again at once. */
static void a_starting_node_raises_its_start(void **state)
{
    struct desk d;
    (void)state;
    open_desk(&d);
    struct update before = about(1, SWIM_DEAD, 5);
    before.s.node_id = 77;
    before.s.started_ms = WALL + 5000;
    gossip(&d, 2, before);
    assert_true(swim_self(d.swim)->started_ms == WALL + 5001);
    assert_true(swim_self(d.swim)->node_id == 1);
    assert_true(logged(&d, SWIM_LOG_STARTED_RAISED));
    assert_int_equal(count_sent(&d, SWIM_JOIN), 1);
    /* It may not slip in by gossip: whoever hears it shall prove it both ways. */
    assert_int_equal(count_sent(&d, SWIM_GOSSIP), 0);
    close_desk(&d);
}

/* Once admitted, a living newer start with another id means that somebody took
 * our place: the layer stops. Its tombstone does not. */
static void a_running_node_yields(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 3);
    struct swim_message welcome = {.kind = SWIM_WELCOME, .complete = true};
    struct update u = about(2, SWIM_ALIVE, 1);
    hear(&d, 2, welcome, &u, 1);
    struct update other = about(1, SWIM_DEAD, 5);
    other.s.node_id = 77;
    other.s.started_ms = WALL + 5000;
    gossip(&d, 2, other);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_READY);
    other.s.state = SWIM_ALIVE;
    other.s.started_ms = WALL + 9000;
    gossip(&d, 2, other);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_GONE);
    assert_true(d.out.news & SWIM_NEWS_CONFLICT);
    assert_true(logged(&d, SWIM_LOG_CONFLICT));
    assert_true(swim_due_ms(d.swim) == NEVER_MS);
    close_desk(&d);
}

/* A newer start replaces the older at once, whatever the older one's state. */
static void restart_on_the_same_port(void **state)
{
    (void)state;
    for (uint8_t before = SWIM_ALIVE; before <= SWIM_LEFT; before++) {
        struct desk d;
        with_members(&d, 4);
        if (before != SWIM_ALIVE)
            gossip(&d, 3, about(2, before, 1));
        forget(&d);
        struct update u = about(2, SWIM_ALIVE, 1);
        u.s.node_id = 999;
        u.s.started_ms += 10;
        gossip(&d, 3, u);
        struct addr a = host(2);
        assert_int_equal(state_of(&d, 2), SWIM_ALIVE);
        assert_true(swim_find(d.swim, &a)->node_id == 999);
        assert_true(d.out.news & SWIM_NEWS_MEMBERS);
        /* What is said of the older start is void now. */
        gossip(&d, 3, about(2, SWIM_DEAD, 9));
        assert_int_equal(state_of(&d, 2), SWIM_ALIVE);
        close_desk(&d);
    }
}

/* Incarnations. */

/* Alive@1 Dead@1 Dead@10 Alive@2: the tombstone's version rises with the second
 * death, so the late Alive@2 wakes nobody (foca #15's kind). */
static void reordered_deaths(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 4);
    gossip(&d, 3, about(2, SWIM_DEAD, 1));
    assert_int_equal(state_of(&d, 2), SWIM_DEAD);
    gossip(&d, 3, about(2, SWIM_DEAD, 10));
    gossip(&d, 4, about(2, SWIM_ALIVE, 2));
    assert_int_equal(state_of(&d, 2), SWIM_DEAD);
    gossip(&d, 4, about(2, SWIM_ALIVE, 10));
    assert_int_equal(state_of(&d, 2), SWIM_DEAD);
    gossip(&d, 4, about(2, SWIM_ALIVE, 11));
    assert_int_equal(state_of(&d, 2), SWIM_ALIVE);
    assert_true(logged(&d, SWIM_LOG_RETURNED));
    close_desk(&d);
}

/* A version may jump by 2^16: one message must not use up all that follow
 * (memberlist #358), nor may the stored one ever fall. */
static void wrapping_and_jumping_versions(void **state)
{
    struct desk d;
    struct addr a = host(2);
    (void)state;
    with_members(&d, 4);
    gossip(&d, 3, about(2, SWIM_ALIVE, UINT64_MAX));
    gossip(&d, 3, about(2, SWIM_DEAD, UINT64_MAX));
    gossip(&d, 3, about(2, SWIM_DEAD, 2 + VERSION_JUMP_MAX));
    assert_int_equal(state_of(&d, 2), SWIM_ALIVE);
    assert_true(swim_find(d.swim, &a)->version == 1);
    gossip(&d, 3, about(2, SWIM_ALIVE, 1 + VERSION_JUMP_MAX));
    assert_true(swim_find(d.swim, &a)->version == 1 + VERSION_JUMP_MAX);
    gossip(&d, 3, about(2, SWIM_ALIVE, 3));
    gossip(&d, 3, about(2, SWIM_DEAD, 0));
    assert_true(swim_find(d.swim, &a)->version == 1 + VERSION_JUMP_MAX);
    assert_int_equal(state_of(&d, 2), SWIM_ALIVE);
    /* Nor may a stranger be introduced at a version it could not refute from. */
    gossip(&d, 3, about(7, SWIM_ALIVE, UINT64_MAX - 1));
    assert_int_equal(state_of(&d, 7), 255);
    /* And of ourselves nobody makes versions but we. */
    uint64_t ours = swim_self(d.swim)->version;
    gossip(&d, 3, about(1, SWIM_DEAD, UINT64_MAX));
    assert_true(swim_self(d.swim)->version == ours);
    assert_false(d.out.news & SWIM_NEWS_SELF_DEAD);
    close_desk(&d);
}

/* Accusations. */

static void a_suspicion_is_refuted_at_once(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 5);
    uint64_t version = swim_self(d.swim)->version;
    struct update accusation = about(1, SWIM_SUSPECT, version), refutation;
    struct swim_message m;
    hear(&d, 2, (struct swim_message){.kind = SWIM_PING, .sequence = 5}, &accusation, 1);
    assert_true(swim_self(d.swim)->version == version + 1);
    assert_false(d.out.news & SWIM_NEWS_SELF_DEAD);     /* suspected only: the store stays */
    assert_true(sent(&d, SWIM_ACK, 0, &m, NULL));
    assert_int_equal(m.sequence, 5);
    assert_true(says_of(&m, 1, &refutation));
    assert_true(refutation.s.version == version + 1);
    assert_int_equal(refutation.s.state, SWIM_ALIVE);
    /* The old accusation again is news to nobody. */
    forget(&d);
    gossip(&d, 3, accusation);
    assert_true(swim_self(d.swim)->version == version + 1);
    close_desk(&d);
}

/* D3: declared dead, a node learns it, and its store must go. */
static void declared_dead_it_says_so(void **state)
{
    (void)state;
    for (int contested = 0; contested < 2; contested++) {
        struct desk d;
        with_members(&d, 5);
        uint64_t version = swim_self(d.swim)->version;
        struct update u = about(1, contested ? SWIM_SUSPECT : SWIM_DEAD, version);
        u.contested = contested;
        gossip(&d, 2, u);
        assert_true(d.out.news & SWIM_NEWS_SELF_DEAD);
        assert_true(swim_self(d.swim)->version == version + 1);
        assert_int_equal(swim_self(d.swim)->state, SWIM_ALIVE);
        close_desk(&d);
    }
}

/* Two nodes that hold each other dead must not bounce accusations at the speed
 * of the network (foca #25): the answers are rationed. */
static void accusations_are_rationed(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 4);
    gossip(&d, 3, about(2, SWIM_DEAD, 1));
    forget(&d);
    for (int k = 0; k < 1000; k++)
        hear(&d, 2, (struct swim_message){.kind = SWIM_NACK}, NULL, 0);
    assert_true(count_effects(&d, SWIM_SEND) >= 1);
    assert_true(count_effects(&d, SWIM_SEND) <= ANSWERS_MAX);
    close_desk(&d);
}

/* memberlist #311: who is held dead and talks to us is told, and so comes back. */
static void the_dead_are_told(void **state)
{
    struct desk d;
    struct swim_message m;
    struct update u;
    (void)state;
    with_members(&d, 4);
    gossip(&d, 3, about(2, SWIM_DEAD, 1));
    forget(&d);
    hear(&d, 2, (struct swim_message){.kind = SWIM_PING, .sequence = 8}, NULL, 0);
    assert_true(sent(&d, SWIM_ACK, 0, &m, NULL));
    assert_true(says_of(&m, 2, &u));
    assert_int_equal(u.s.state, SWIM_DEAD);
    forget(&d);
    u = about(2, SWIM_ALIVE, 1);
    hear(&d, 2, join_message(), &u, 1);
    assert_true(sent(&d, SWIM_GOSSIP, 0, &m, NULL));
    assert_true(says_of(&m, 2, &u));
    assert_int_equal(u.s.state, SWIM_DEAD);
    assert_int_equal(count_effects(&d, SWIM_PROVE), 0);
    close_desk(&d);
}

/* A tombstone in a table, or an old one that still travels, is hearsay: the
 * member gets to answer. A fresh death by gossip is believed. */
static void old_deaths_are_hearsay(void **state)
{
    (void)state;
    for (uint32_t age_s = 0; age_s < 20; age_s += 5) {
        struct desk d;
        with_members(&d, 8);
        struct update u = about(2, SWIM_DEAD, 1);
        u.age_s = age_s;
        gossip(&d, 3, u);
        assert_int_equal(state_of(&d, 2), age_s < NEWS_S_MAX ? SWIM_DEAD : SWIM_SUSPECT);
        close_desk(&d);
    }
    struct desk d;
    with_members(&d, 8);
    struct swim_message welcome = {.kind = SWIM_WELCOME, .complete = true};
    struct update both[2] = {about(3, SWIM_ALIVE, 1), about(2, SWIM_DEAD, 1)};
    hear(&d, 3, welcome, both, 2);
    assert_int_equal(state_of(&d, 2), SWIM_SUSPECT);
    close_desk(&d);
}

/* Probing. */

/* Nobody answers. The helpers asked are exactly k, distinct, never the target,
 * and on hosts other than ours and the target's where there are enough. */
static void exactly_k_indirect_requests(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 12; n++) {
        struct desk d;
        with_members(&d, n);
        pass(&d, 520);
        struct swim_message ping, ask;
        const struct swim_effect *to, *helper;
        assert_true(sent(&d, SWIM_PING, 0, &ping, &to));
        struct addr target = to->addr;
        pass(&d, 200);
        size_t want = min_size(3, n - 2);
        assert_int_equal(count_sent(&d, SWIM_ASK), want);
        for (size_t k = 0; k < want; k++) {
            assert_true(sent(&d, SWIM_ASK, k, &ask, &helper));
            assert_true(addr_equal(&ask.target, &target));
            assert_false(addr_equal(&helper->addr, &target));
            for (size_t j = 0; j < k; j++) {
                const struct swim_effect *other;
                assert_true(sent(&d, SWIM_ASK, j, NULL, &other));
                assert_false(addr_equal(&helper->addr, &other->addr));
            }
        }
        close_desk(&d);
    }
}

/* DAOS PR 10378: suspected only at the period's end, when the helpers have had
 * their time. */
static void suspected_at_the_periods_end(void **state)
{
    struct desk d;
    const struct swim_effect *to;
    (void)state;
    with_members(&d, 6);
    while (!sent(&d, SWIM_PING, 0, NULL, &to))
        pass(&d, 1);
    struct addr target = to->addr;
    pass(&d, 480);
    assert_int_equal(swim_find(d.swim, &target)->state, SWIM_ALIVE);
    /* A helper says that it got no answer either, so it is not us. */
    struct swim_message ask;
    assert_true(sent(&d, SWIM_ASK, 0, &ask, &to));
    hear(&d, to->addr.ip[15], (struct swim_message){.kind = SWIM_NACK, .sequence = ask.sequence},
         NULL, 0);
    pass(&d, 20);
    assert_int_equal(swim_find(d.swim, &target)->state, SWIM_SUSPECT);
    assert_false(d.out.news & SWIM_NEWS_MEMBERS);       /* and nobody outside sees it */
    close_desk(&d);
}

/* A node that hears nothing from anybody accuses nobody for ten seconds. */
static void the_deaf_accuse_nobody(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 6);
    pass(&d, 9000);
    for (uint32_t k = 2; k <= 6; k++)
        assert_int_equal(state_of(&d, k), SWIM_ALIVE);
    pass(&d, 20000);
    uint32_t accused = 0;
    for (uint32_t k = 2; k <= 6; k++)
        accused += state_of(&d, k) != SWIM_ALIVE;
    assert_true(accused > 0);           /* but in the end all may have gone */
    close_desk(&d);
}

/* M5: the process slept three seconds; the ack lies in the socket and is read
 * first. Nobody is accused, deadlines move, and the node thinks itself slow. */
static void lateness_accuses_nobody(void **state)
{
    struct desk d;
    struct swim_message ping;
    const struct swim_effect *to;
    struct swim_stats stats;
    (void)state;
    with_members(&d, 6);
    while (!sent(&d, SWIM_PING, 0, &ping, &to))
        pass(&d, 1);
    struct addr target = to->addr;
    forget(&d);
    d.now_ms += 3000;
    struct swim_message ack = {.kind = SWIM_ACK, .sequence = ping.sequence};
    hear(&d, target.ip[15], ack, NULL, 0);
    swim_tick(d.swim, d.now_ms, WALL + d.now_ms, &d.out);
    assert_int_equal(swim_find(d.swim, &target)->state, SWIM_ALIVE);
    swim_stats(d.swim, &stats);
    assert_int_equal(stats.late_wakeups, 1);
    assert_int_equal(stats.health, 1);
    assert_int_equal(stats.probes_failed, 0);

    /* Without the ack too, the target has what was left of its time. */
    forget(&d);
    while (!sent(&d, SWIM_PING, 0, &ping, &to))
        pass(&d, 1);
    target = to->addr;
    d.now_ms += 3000;
    swim_tick(d.swim, d.now_ms, WALL + d.now_ms, &d.out);
    assert_int_equal(swim_find(d.swim, &target)->state, SWIM_ALIVE);
    close_desk(&d);
}

/* A suspicion's clock stands still while we sleep. */
static void lateness_buries_nobody(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 3);
    gossip(&d, 3, about(2, SWIM_SUSPECT, 1));
    pass(&d, 100);
    d.now_ms += 60000;
    swim_tick(d.swim, d.now_ms, WALL + d.now_ms, &d.out);
    assert_int_equal(state_of(&d, 2), SWIM_SUSPECT);
    pass(&d, 3000);
    assert_int_equal(state_of(&d, 2), SWIM_DEAD);
    close_desk(&d);
}

/* A queue that fills after a quiet time is not late, and a probe asked of us is
 * made with the answer going to whoever asked. */
static void helping(void **state)
{
    struct desk d;
    struct swim_message ping, m;
    const struct swim_effect *to;
    struct swim_stats stats;
    (void)state;
    with_members(&d, 4);
    struct swim_message ask = {.kind = SWIM_ASK, .sequence = 55, .target = host(3),
                               .target_id = 103};
    hear(&d, 2, ask, NULL, 0);
    assert_true(sent(&d, SWIM_PING, 0, &ping, &to));
    assert_true(to->node_id == 103);
    assert_true(ping.sequence != 55);
    forget(&d);
    hear(&d, 3, (struct swim_message){.kind = SWIM_ACK, .sequence = ping.sequence}, NULL, 0);
    assert_true(sent(&d, SWIM_REACHED, 0, &m, &to));
    assert_true(to->node_id == 102);
    assert_int_equal(m.sequence, 55);

    /* No ack: a nack says that we are here, and it is not. */
    ask.sequence = 56;
    hear(&d, 2, ask, NULL, 0);
    forget(&d);
    pass(&d, 160);
    assert_true(sent(&d, SWIM_NACK, 0, &m, &to));
    assert_int_equal(m.sequence, 56);
    assert_true(to->node_id == 102);
    swim_stats(d.swim, &stats);
    assert_int_equal(stats.late_wakeups, 0);
    close_desk(&d);
}

/* Somebody else's ack, or one for another probe, is none. */
static void only_the_targets_ack_counts(void **state)
{
    struct desk d;
    struct swim_message ping;
    const struct swim_effect *to;
    (void)state;
    with_members(&d, 3);
    while (!sent(&d, SWIM_PING, 0, &ping, &to))
        pass(&d, 1);
    uint8_t target = to->addr.ip[15], other = target == 2 ? 3 : 2;
    hear(&d, other, (struct swim_message){.kind = SWIM_ACK, .sequence = ping.sequence}, NULL, 0);
    hear(&d, target, (struct swim_message){.kind = SWIM_ACK, .sequence = ping.sequence + 1},
         NULL, 0);
    hear(&d, other, (struct swim_message){.kind = SWIM_REACHED, .sequence = ping.sequence},
         NULL, 0);
    pass(&d, 500);
    assert_int_equal(state_of(&d, target), SWIM_SUSPECT);
    close_desk(&d);
}

/* Whoever hears of a suspicion looks for itself next, in a small cluster everybody:
 * so witnesses come without waiting for their order. Not for a contested one. */
static void witnesses_look_for_themselves(void **state)
{
    (void)state;
    for (uint32_t k = 3; k <= 8; k++) {
        struct desk d;
        const struct swim_effect *to;
        with_members(&d, 8);
        gossip(&d, 2, about(k, SWIM_SUSPECT, 1));
        while (!sent(&d, SWIM_PING, 0, NULL, &to))
            pass(&d, 1);
        assert_int_equal(to->addr.ip[15], k);
        close_desk(&d);
    }
}

/* Hints from TCP move a member to the front, and greet who sits in its place. */
static void hints(void **state)
{
    (void)state;
    for (uint32_t k = 2; k <= 9; k++) {
        struct desk d;
        const struct swim_effect *to;
        struct addr a = host(k);
        with_members(&d, 9);
        swim_hint_silent(d.swim, d.now_ms, &a);
        while (!sent(&d, SWIM_PING, 0, NULL, &to))
            pass(&d, 1);
        assert_true(addr_equal(&to->addr, &a));
        forget(&d);
        swim_hint_replaced(d.swim, d.now_ms, &a, 100 + k);      /* the very one we know */
        pass(&d, 1);
        assert_int_equal(count_sent(&d, SWIM_JOIN), 0);
        swim_hint_replaced(d.swim, d.now_ms, &a, 4711);
        pass(&d, 1);
        assert_true(sent(&d, SWIM_JOIN, 0, NULL, &to));
        assert_true(addr_equal(&to->addr, &a));
        assert_true(to->node_id == 0);
        close_desk(&d);
    }
}

/* Phases, flags, leaving. */

/* M1: alone it looks for a second, over two rounds, then warms for another. */
static void looking_then_warming(void **state)
{
    struct desk d;
    struct addr seed = host(2);
    (void)state;
    open_desk(&d);
    assert_int_equal(swim_set_seed(d.swim, 0, &seed, 1), 0);
    assert_int_equal(swim_set_seed(d.swim, SEEDS_MAX, &seed, 1), ERR_FULL);
    pass(&d, 999);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_LOOKING);
    assert_true(count_sent(&d, SWIM_JOIN) >= 2);
    pass(&d, 1);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_WARMING);
    assert_true(swim_self(d.swim)->flags & SWIM_WARMING);
    assert_null(swim_coordinator(d.swim));
    pass(&d, 1000);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_READY);
    assert_false(swim_self(d.swim)->flags & SWIM_WARMING);
    assert_int_equal(swim_self(d.swim)->version, 2);
    assert_ptr_equal(swim_coordinator(d.swim), swim_self(d.swim));
    close_desk(&d);
}

static void a_table_ends_the_looking(void **state)
{
    struct desk d;
    (void)state;
    open_desk(&d);
    struct update u = about(2, SWIM_ALIVE, 1);
    hear(&d, 2, (struct swim_message){.kind = SWIM_WELCOME, .complete = false}, &u, 1);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_LOOKING);
    assert_int_equal(count_effects(&d, SWIM_PULL), 1);
    swim_pulled(d.swim, d.now_ms, true, &d.out);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_WARMING);
    assert_true(d.out.news & SWIM_NEWS_PHASE);
    close_desk(&d);

    open_desk(&d);
    hear(&d, 2, (struct swim_message){.kind = SWIM_WELCOME, .complete = true}, &u, 1);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_WARMING);
    close_desk(&d);
}

/* The lowest address that may: as numbers, live, and ready (M8). */
static void the_coordinator(void **state)
{
    struct desk d;
    struct swim_config c = config();
    (void)state;
    c.flags = 0;                            /* we may not */
    open_with(&d, &c);
    pass(&d, 2500);
    static const uint8_t flags[] = {
        [2] = SWIM_COORDINATE | SWIM_WARMING, [3] = 0, [4] = SWIM_COORDINATE | SWIM_DRAINING,
        [5] = SWIM_COORDINATE | SWIM_OBSERVER, [9] = SWIM_COORDINATE, [108] = SWIM_COORDINATE,
    };
    for (uint32_t k = 2; k < ARRAY_COUNT(flags); k++) {
        struct update u = about(k, SWIM_ALIVE, 1);
        u.s.flags = flags[k];
        if (k <= 5 || k == 9 || k == 108)
            gossip(&d, 3, u);
    }
    assert_true(swim_coordinator(d.swim)->addr.ip[15] == 9);
    struct update suspect = about(9, SWIM_SUSPECT, 1);
    gossip(&d, 3, suspect);
    assert_true(swim_coordinator(d.swim)->addr.ip[15] == 9);
    gossip(&d, 3, about(9, SWIM_DEAD, 1));
    assert_true(swim_coordinator(d.swim)->addr.ip[15] == 108);
    close_desk(&d);
}

/* M7: an observer counts in no N, K, helper, and leaves no tombstone. */
static void observers_do_not_count(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 3);
    for (uint32_t k = 10; k < 20; k++) {
        struct update u = about(k, SWIM_ALIVE, 1);
        u.s.flags = SWIM_OBSERVER;
        gossip(&d, 2, u);
    }
    assert_int_equal(swim_live(d.swim), 3);
    forget(&d);
    pass(&d, 700);
    for (size_t k = 0; k < count_sent(&d, SWIM_ASK); k++) {
        const struct swim_effect *to;
        assert_true(sent(&d, SWIM_ASK, k, NULL, &to));
        assert_true(to->addr.ip[15] < 10);
    }
    struct update u = about(10, SWIM_DEAD, 1);
    u.s.flags = SWIM_OBSERVER;
    gossip(&d, 2, u);
    pass(&d, OBSERVER_TOMBSTONE_MS + SWEEP_EVERY_MS + 1000);
    assert_int_equal(state_of(&d, 10), 255);
    close_desk(&d);
}

static void flags_travel_under_a_new_version(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 3);
    uint64_t version = swim_self(d.swim)->version;
    swim_set_flags(d.swim, d.now_ms, SWIM_DRAINING, SWIM_DRAINING, &d.out);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_DRAINING);
    assert_true(swim_self(d.swim)->version == version + 1);
    pass(&d, 250);
    struct swim_message m;
    struct update u;
    assert_true(sent(&d, SWIM_GOSSIP, 0, &m, NULL));
    assert_true(says_of(&m, 1, &u));
    assert_true(u.s.flags & SWIM_DRAINING);
    swim_set_flags(d.swim, d.now_ms, SWIM_DRAINING, SWIM_DRAINING, &d.out);
    assert_true(swim_self(d.swim)->version == version + 1);     /* no change, no version */

    /* And another's flags are news to the application. */
    forget(&d);
    u = about(2, SWIM_ALIVE, 2);
    u.s.flags = SWIM_DRAINING;
    gossip(&d, 3, u);
    assert_true(d.out.news & SWIM_NEWS_MEMBERS);
    close_desk(&d);
}

static void leaving_is_announced(void **state)
{
    struct desk d;
    struct swim_message m;
    struct update u;
    (void)state;
    with_members(&d, 5);
    swim_leave(d.swim, d.now_ms, &d.out);
    assert_int_equal(count_sent(&d, SWIM_GOSSIP), 4);
    assert_true(sent(&d, SWIM_GOSSIP, 3, &m, NULL));
    assert_true(says_of(&m, 1, &u));
    assert_int_equal(u.s.state, SWIM_LEFT);
    assert_true(swim_due_ms(d.swim) == NEVER_MS);
    assert_int_equal(hear(&d, 2, (struct swim_message){.kind = SWIM_PING}, NULL, 0), SWIM_GONE);
    size_t before = d.out.count;
    swim_leave(d.swim, d.now_ms, &d.out);
    assert_int_equal(d.out.count, before);
    close_desk(&d);

    /* At the others' ownership moves at once, without a suspicion. */
    with_members(&d, 5);
    gossip(&d, 2, about(2, SWIM_LEFT, 2));
    assert_int_equal(state_of(&d, 2), SWIM_LEFT);
    assert_true(d.out.news & SWIM_NEWS_MEMBERS);
    assert_int_equal(swim_live(d.swim), 4);
    gossip(&d, 3, about(2, SWIM_ALIVE, 1));
    assert_int_equal(state_of(&d, 2), SWIM_LEFT);
    close_desk(&d);
}

/* Coming back. */

/* M4: dead addresses are asked for a day, seeds for ever, alone every 2 s; what
 * has a live member is left alone; one warning after 10 s. */
static void seeds_for_ever_and_the_dead_for_a_day(void **state)
{
    struct desk d;
    struct addr range[3] = {host(2), host(2), host(2)};
    (void)state;
    for (uint16_t k = 0; k < 3; k++)
        range[k].port = (uint16_t)(7946 + k);
    with_members(&d, 2);
    assert_int_equal(swim_set_seed(d.swim, 0, range, 3), 0);
    pass(&d, 100);
    for (int k = 0; k < 40; k++) {      /* keep it alive */
        struct swim_message ping;
        pass(&d, 500);
        for (size_t n = 0; sent(&d, SWIM_PING, n, &ping, NULL); n++)
            hear(&d, 2, (struct swim_message){.kind = SWIM_ACK, .sequence = ping.sequence},
                 NULL, 0);
        assert_int_equal(count_sent(&d, SWIM_JOIN), 0);
        forget(&d);
    }
    gossip(&d, 2, about(2, SWIM_DEAD, 1));
    forget(&d);
    pass(&d, 20000);
    size_t joins = count_sent(&d, SWIM_JOIN);
    assert_in_range(joins, 3 * 9 + 3, 3 * 11 + 5);          /* the range, and the dead one */
    assert_true(logged(&d, SWIM_LOG_ALONE));
    forget(&d);
    assert_int_equal(swim_set_seed(d.swim, 0, NULL, 0), 0);
    pass(&d, 60000);
    assert_in_range(count_sent(&d, SWIM_JOIN), 11, 13);  /* the dead one every 5 s */
    assert_false(logged(&d, SWIM_LOG_ALONE));
    pass(&d, 24 * 3600 * 1000ull);
    forget(&d);
    pass(&d, 60000);
    assert_int_equal(count_sent(&d, SWIM_JOIN), 0);
    assert_int_equal(state_of(&d, 2), SWIM_DEAD);           /* its tombstone outlives that */
    pass(&d, 3600 * 1000ull);
    assert_int_equal(state_of(&d, 2), 255);
    close_desk(&d);
}

/* Pages. */

static size_t pull(struct desk *from, struct desk *to, struct span request, size_t room)
{
    uint8_t page[SWIM_PAGE_BYTES];
    uint32_t cursor = 0;
    size_t pages = 0;
    bool more;
    do {
        struct writer w = writer_of(page, room);
        more = swim_page_encode(from->swim, from->now_ms, request, &cursor, &w);
        assert_int_equal(swim_page_merge(to->swim, to->now_ms, WALL + to->now_ms, 102,
                                         span_of(page, writer_bytes(&w)), &to->out), SWIM_OK);
        pages++;
        assert_true(pages <= 100);
    } while (more);
    return pages;
}

/* Pages of any size carry the whole table, and only buckets that differ. */
static void pages_carry_the_table(void **state)
{
    static const size_t rooms[] = {SWIM_PAGE_BYTES, 4096, 1000};
    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(rooms); c++) {
        struct desk a, b;
        with_members(&a, 150);
        gossip(&a, 3, about(9, SWIM_DEAD, 1));
        open_desk(&b);
        assert_true(pull(&a, &b, SPAN_NONE, rooms[c]) >= (rooms[c] > 10000 ? 1u : 2u));
        assert_int_equal(swim_live(b.swim), 149);
        assert_int_equal(state_of(&b, 9), SWIM_DEAD);
        close_desk(&a);
        close_desk(&b);
    }
}

/* What the page lacks is gossiped, so that a pull mends both sides; and a pull
 * whose digests agree brings nothing. */
static void a_pull_mends_both_sides(void **state)
{
    struct desk a, b;
    (void)state;
    with_members(&a, 20);
    with_members(&b, 30);
    pass(&b, 5000);
    forget(&b);
    uint8_t request[SWIM_PULL_BYTES_MAX];
    struct writer w = writer_of(request, sizeof request);
    put_u8(&w, 1);
    for (uint32_t k = 0; k < DIGEST_BUCKETS; k++)
        put_u64(&w, b.swim->members.buckets[k]);
    struct span asked = span_of(request, writer_bytes(&w));
    b.swim->gossip.count = 0;
    gossip_init(&b.swim->gossip);
    for (uint32_t i = members_from(&b.swim->members, 0); i != MEMBER_NONE;
         i = members_from(&b.swim->members, i + 1))
        members_at(&b.swim->members, i)->marks &= (uint8_t)~MARK_QUEUED;
    pull(&a, &b, asked, SWIM_PAGE_BYTES);
    assert_int_equal(b.swim->gossip.count, 10);             /* 21 to 30 */

    w = writer_of(request, sizeof request);
    put_u8(&w, 1);
    for (uint32_t k = 0; k < DIGEST_BUCKETS; k++)
        put_u64(&w, a.swim->members.buckets[k]);
    uint8_t page[SWIM_PAGE_BYTES];
    uint32_t cursor = 0;
    w = writer_of(page, sizeof page);
    assert_false(swim_page_encode(a.swim, a.now_ms, span_of(request, 513), &cursor, &w));
    assert_int_equal(writer_bytes(&w), 9);
    close_desk(&a);
    close_desk(&b);
}

/* A page in which we ourselves are missing means that whoever made it has not let
 * us in: that is asked for, not gossiped. */
static void who_is_missing_asks_to_be_let_in(void **state)
{
    struct desk a, b;
    struct addr peer = host(2);
    const struct swim_effect *to;
    (void)state;
    for (int known = 0; known < 2; known++) {
        with_members(&a, 5);                /* it lives at our very address, as 1 */
        struct swim_config c = config();
        c.self = host(7);
        c.node_id = 107;
        c.started_ms = WALL + 7;
        open_with(&b, &c);
        pass(&b, 2500);
        gossip(&b, 2, about(2, SWIM_ALIVE, 1));
        if (known)
            gossip(&a, 7, about(7, SWIM_ALIVE, 1));
        forget(&b);
        swim_pull_start(b.swim, b.now_ms, &peer, 102, &b.out);
        pull(&a, &b, SPAN_NONE, SWIM_PAGE_BYTES);
        assert_int_equal(count_sent(&b, SWIM_JOIN), !known);
        if (!known) {
            assert_true(sent(&b, SWIM_JOIN, 0, NULL, &to));
            assert_true(addr_equal(&to->addr, &peer));
        }
        close_desk(&a);
        close_desk(&b);
    }
}

/* Pulls that mend nothing get rarer: two nodes whose lists of networks differ
 * never agree. */
static void pulls_in_vain_get_rarer(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 2);
    size_t pulls = 0;
    for (int k = 0; k < 4 * 600; k++) {
        struct swim_message ping;
        for (size_t n = 0; sent(&d, SWIM_PING, n, &ping, NULL); n++) {
            struct swim_message ack = {.kind = SWIM_ACK, .sequence = ping.sequence, .digest = 1};
            hear(&d, 2, ack, NULL, 0);
        }
        if (count_effects(&d, SWIM_PULL) > 0) {
            pulls++;
            swim_pulled(d.swim, d.now_ms, true, &d.out);
        }
        forget(&d);
        pass(&d, 250);
    }
    assert_in_range(pulls, 8, 16);          /* in ten minutes, not three hundred */
    close_desk(&d);
}

/* Digests that differ are pulled after two seconds, not before. */
static void lasting_mismatches_are_pulled(void **state)
{
    struct desk d;
    (void)state;
    with_members(&d, 4);
    for (int k = 0; k < 8; k++) {
        struct swim_message ping = {.kind = SWIM_PING, .live = 9, .digest = 12345};
        hear(&d, 2 + (uint32_t)k % 3, ping, NULL, 0);
        assert_int_equal(count_effects(&d, SWIM_PULL), 0);
        pass(&d, 240);
    }
    pass(&d, 200);
    hear(&d, 2, (struct swim_message){.kind = SWIM_PING, .live = 9, .digest = 12345}, NULL, 0);
    assert_int_equal(count_effects(&d, SWIM_PULL), 1);
    hear(&d, 2, (struct swim_message){.kind = SWIM_PING, .live = 9, .digest = 12345}, NULL, 0);
    assert_int_equal(count_effects(&d, SWIM_PULL), 1);      /* one at a time */
    close_desk(&d);
}

/* A table full of tombstones takes in who lives; one full of the living refuses,
 * says so, and loses nobody. */
static void a_full_table(void **state)
{
    (void)state;
    for (int living = 0; living < 2; living++) {
        struct desk d;
        struct swim_from from = {.source = host(2), .node_id = 102};
        struct swim_message m = {.kind = SWIM_GOSSIP, .sender = host(2)};
        with_members(&d, 2);
        for (uint32_t k = 0; k < MEMBERS_MAX; k++) {
            uint8_t bytes[ROOM];
            struct writer w = writer_of(bytes, sizeof bytes);
            struct update u = about(3, living ? SWIM_ALIVE : SWIM_LEFT, 1);
            u.addr.port = (uint16_t)(20000 + k);
            u.age_s = living ? 0 : 1000 - k % 500;
            swim_message_put(&w, &m);
            update_put(&w, &u);
            swim_receive(d.swim, d.now_ms, WALL, &from, span_of(bytes, writer_bytes(&w)), &d.out);
            forget(&d);
        }
        assert_int_equal(d.swim->members.count, MEMBERS_MAX);
        gossip(&d, 2, about(9, SWIM_ALIVE, 1));
        assert_int_equal(state_of(&d, 9), living ? 255 : SWIM_ALIVE);
        assert_int_equal(logged(&d, SWIM_LOG_TABLE_FULL), living);
        assert_int_equal(state_of(&d, 2), SWIM_ALIVE);
        assert_int_equal(d.swim->members.count, MEMBERS_MAX);
        close_desk(&d);
    }
}

/* Hostile and hard times. */

/* Bytes at random, and mutations of good ones: a verdict, never a crash. */
static void hostile_bytes(void **state)
{
    struct desk d;
    struct prng prng;
    (void)state;
    with_members(&d, 6);
    prng_seed(&prng, 99);
    for (int k = 0; k < 20000; k++) {
        uint8_t bytes[300];
        size_t count = prng_below(&prng, sizeof bytes);
        for (size_t j = 0; j < count; j++)
            bytes[j] = (uint8_t)prng_next(&prng);
        if (count > 12 && k % 2 == 0) {
            struct writer w = writer_of(bytes, sizeof bytes);
            struct swim_message m = {.kind = (uint8_t)(1 + k / 2 % 10), .sender = host(2),
                                     .target = host(3), .target_id = 103};
            struct update u = about(2 + (uint32_t)k % 5, (uint8_t)(k % 4), 1);
            swim_message_put(&w, &m);
            update_put(&w, &u);
            count = writer_bytes(&w);
            bytes[prng_below(&prng, count)] ^= (uint8_t)(1u << prng_below(&prng, 8));
        }
        struct swim_from from = {.source = host(2), .node_id = 102,
                                 .open_receiver = k % 3 == 0};
        swim_receive(d.swim, d.now_ms, WALL + d.now_ms, &from, span_of(bytes, count), &d.out);
        swim_page_merge(d.swim, d.now_ms, WALL + d.now_ms, 102, span_of(bytes, count), &d.out);
        if (k % 10 == 0)
            pass(&d, 1);
        if (swim_phase(d.swim) == SWIM_PHASE_GONE) {        /* a forged conflict */
            close_desk(&d);
            with_members(&d, 6);
        }
        forget(&d);
    }
    close_desk(&d);
}

/* Every allocation on the way may fail: members may be missed, nothing breaks,
 * and the next attempt succeeds. */
static void out_of_memory(void **state)
{
    (void)state;
    for (long n = 0; n < 60; n++) {
        struct desk d;
        struct swim_config c = config();
        memset(&d, 0, sizeof d);
        swim_out_init(&d.out);
        d.now_ms = 100000;
        mem_fail_after(n);
        if (swim_new(&d.swim, &c, d.now_ms) == 0) {
            struct addr seed = host(9);
            swim_set_seed(d.swim, 0, &seed, 1);
            pass(&d, 2500);
            for (uint32_t k = 2; k <= 90; k++) {
                struct update u = about(k, SWIM_ALIVE, 1);
                hear(&d, 2, (struct swim_message){.kind = SWIM_GOSSIP}, &u, 1);
                u.s.state = SWIM_SUSPECT;
                u.accuser_count = 1;
                hear(&d, 3, (struct swim_message){.kind = SWIM_GOSSIP}, &u, 1);
            }
            struct update u = about(99, SWIM_ALIVE, 1);
            hear(&d, 99, join_message(), &u, 1);
            mem_fail_after(-1);
            for (uint32_t k = 2; k <= 90; k++) {
                u = about(k, SWIM_ALIVE, 2);
                hear(&d, 2, (struct swim_message){.kind = SWIM_GOSSIP}, &u, 1);
            }
            assert_int_equal(swim_live(d.swim), 90);
        }
        mem_fail_after(-1);
        close_desk(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_or_not_at_all),
        cmocka_unit_test(no_amplification),
        cmocka_unit_test(only_joins_are_open),
        cmocka_unit_test(outside_the_list),
        cmocka_unit_test(loopback_from_elsewhere),
        cmocka_unit_test(starts_from_the_future),
        cmocka_unit_test(a_starting_node_raises_its_start),
        cmocka_unit_test(a_running_node_yields),
        cmocka_unit_test(restart_on_the_same_port),
        cmocka_unit_test(reordered_deaths),
        cmocka_unit_test(wrapping_and_jumping_versions),
        cmocka_unit_test(a_suspicion_is_refuted_at_once),
        cmocka_unit_test(declared_dead_it_says_so),
        cmocka_unit_test(accusations_are_rationed),
        cmocka_unit_test(the_dead_are_told),
        cmocka_unit_test(old_deaths_are_hearsay),
        cmocka_unit_test(exactly_k_indirect_requests),
        cmocka_unit_test(suspected_at_the_periods_end),
        cmocka_unit_test(the_deaf_accuse_nobody),
        cmocka_unit_test(lateness_accuses_nobody),
        cmocka_unit_test(lateness_buries_nobody),
        cmocka_unit_test(helping),
        cmocka_unit_test(only_the_targets_ack_counts),
        cmocka_unit_test(witnesses_look_for_themselves),
        cmocka_unit_test(hints),
        cmocka_unit_test(looking_then_warming),
        cmocka_unit_test(a_table_ends_the_looking),
        cmocka_unit_test(the_coordinator),
        cmocka_unit_test(observers_do_not_count),
        cmocka_unit_test(flags_travel_under_a_new_version),
        cmocka_unit_test(leaving_is_announced),
        cmocka_unit_test(seeds_for_ever_and_the_dead_for_a_day),
        cmocka_unit_test(pages_carry_the_table),
        cmocka_unit_test(a_pull_mends_both_sides),
        cmocka_unit_test(lasting_mismatches_are_pulled),
        cmocka_unit_test(who_is_missing_asks_to_be_let_in),
        cmocka_unit_test(pulls_in_vain_get_rarer),
        cmocka_unit_test(a_full_table),
        cmocka_unit_test(hostile_bytes),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
