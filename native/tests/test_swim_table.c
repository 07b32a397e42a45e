/* The member table, the gossip queue, suspicions and the payload codec, each by
 * itself: the parts the protocol trusts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/err.h"
#include "core/limits.h"
#include "core/mem.h"
#include "core/swim_core.h"

static struct addr at(uint32_t host, uint16_t port)
{
    struct addr a = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = (uint8_t)(host >> 16),
                            [14] = (uint8_t)(host >> 8), [15] = (uint8_t)host},
                     .port = port};
    return a;
}

static struct standing alive(uint64_t id, uint64_t version)
{
    return (struct standing){.state = SWIM_ALIVE, .node_id = id, .started_ms = 1000,
                             .version = version, .speaks_min = 1, .speaks_max = 1};
}

/* Table. */

/* Random adds, deaths, returns and removals against a naive array: finding,
 * counts, the probe order and the digest must always be the walk's. */
static void table_is_the_walk(void **state)
{
    enum { PLACES = 200, STEPS = 20000 };
    struct members t;
    struct prng prng;
    struct standing naive[PLACES] = {{0}};
    bool known[PLACES] = {false};
    (void)state;
    prng_seed(&prng, 7);
    members_init(&t);
    for (int step = 0; step < STEPS; step++) {
        uint32_t k = (uint32_t)prng_below(&prng, PLACES), i;
        struct addr a = at(k / 4, (uint16_t)(100 + k % 4));
        struct standing *n = &naive[k];
        i = members_find(&t, &a);
        assert_int_equal(i != MEMBER_NONE, known[k]);
        if (!known[k]) {
            *n = alive(k + 1, n->version + 1);
            n->flags = k % 7 == 0 ? SWIM_OBSERVER : 0;
            assert_int_equal(members_add(&t, &a, n, &prng, &i), 0);
            known[k] = true;
        } else if (n->state <= SWIM_SUSPECT) {
            n->state = n->state == SWIM_ALIVE && step % 2 ? SWIM_SUSPECT : SWIM_DEAD;
            members_become(&t, i, n, &prng);
        } else if (i != MEMBER_SELF && step % 3 == 0) {
            members_remove(&t, i);
            known[k] = false;
        } else {
            n->state = SWIM_ALIVE;
            n->version++;
            members_become(&t, i, n, &prng);
        }
        if (step % 50 != 0)
            continue;
        uint32_t count = 0, live = 0, order = 0;
        uint64_t digest = 0;
        for (k = 0; k < PLACES; k++) {
            if (!known[k])
                continue;
            a = at(k / 4, (uint16_t)(100 + k % 4));
            i = members_find(&t, &a);
            const struct member *m = members_at(&t, i);
            assert_int_equal(m->state, naive[k].state);
            assert_int_equal(m->version, naive[k].version);
            count++;
            if (!member_is_live(m))
                continue;
            live += !(m->flags & SWIM_OBSERVER);
            digest ^= members_digest_of(m);
            if (i == MEMBER_SELF)
                continue;
            order++;
            assert_int_equal(t.order[m->order_at], i);
        }
        assert_int_equal(t.count, count);
        assert_int_equal(t.live, live);
        assert_int_equal(t.order_count, order);
        assert_true(t.digest == digest);
    }
    members_deinit(&t);
}

/* SWIM 4.3: within one round everyone is probed once, so the gap between two
 * probes of one member is below 2N, also while others join. */
static void nobody_waits_two_rounds(void **state)
{
    enum { N = 50 };
    struct members t;
    struct prng prng;
    uint32_t i, last[N + 1] = {0}, joined = N / 2;
    (void)state;
    prng_seed(&prng, 3);
    members_init(&t);
    for (uint32_t k = 0; k <= joined; k++) {
        struct standing s = alive(k + 1, 1);
        struct addr a = at(k, 1);
        members_add(&t, &a, &s, &prng, &i);
    }
    for (uint32_t turn = 1; turn < 40 * N; turn++) {
        i = members_probe_next(&t, &prng);
        assert_int_not_equal(i, MEMBER_SELF);
        assert_true(last[i] == 0 || turn - last[i] < 2 * N);
        last[i] = turn;
        if (turn % 37 == 0 && joined < N) {
            struct standing s = alive(++joined + 1, 1);
            struct addr a = at(joined, 1);
            members_add(&t, &a, &s, &prng, &i);
            last[i] = turn;
        }
    }
    for (uint32_t k = 1; k <= N; k++)
        assert_true(last[k] > 38 * N);
    members_deinit(&t);
}

/* Every allocation of an add may fail: the table is then as before. */
static void out_of_memory_changes_nothing(void **state)
{
    struct prng prng;
    (void)state;
    prng_seed(&prng, 1);
    for (long n = 0;; n++) {
        struct members t;
        uint32_t i, added = 0;
        bool failed = false;
        members_init(&t);
        mem_fail_after(n);
        for (uint32_t k = 0; k < 300; k++) {
            struct standing s = alive(k + 1, 1);
            struct addr a = at(k, 1);
            uint32_t before = t.count;
            uint64_t digest = t.digest;
            int rc = members_add(&t, &a, &s, &prng, &i);
            if (rc == 0) {
                added++;
                continue;
            }
            failed = true;
            assert_int_equal(rc, ERR_NOMEM);
            assert_int_equal(t.count, before);
            assert_true(t.digest == digest);
            assert_int_equal(members_find(&t, &a), MEMBER_NONE);
        }
        mem_fail_after(-1);
        assert_int_equal(t.count, added);
        members_deinit(&t);
        if (!failed)
            break;
        assert_true(n < 100);
    }
}

/* At most a hundred bytes a member with its index, at any size from a thousand. */
static void a_record_is_small(void **state)
{
    struct members t;
    struct prng prng;
    uint32_t i;
    (void)state;
    prng_seed(&prng, 1);
    members_init(&t);
    for (uint32_t k = 0; k < 10000; k++) {
        struct standing s = alive(k + 1, 1);
        struct addr a = at(k, 1);
        assert_int_equal(members_add(&t, &a, &s, &prng, &i), 0);
        if (k >= 1000)
            assert_true(members_memory(&t) <= 100ul * (k + 1));
    }
    members_deinit(&t);
}

/* Gossip queue. */

static void fill(struct members *t, struct prng *prng, uint32_t count)
{
    uint32_t i;
    members_init(t);
    for (uint32_t k = 0; k < count; k++) {
        struct standing s = alive(k + 1, 1);
        struct addr a = at(k, 1);
        members_add(t, &a, &s, prng, &i);
    }
}

static void least_sent_goes_first(void **state)
{
    struct members t;
    struct gossip g;
    struct prng prng;
    (void)state;
    prng_seed(&prng, 1);
    fill(&t, &prng, 4);
    gossip_init(&g);
    gossip_queue(&g, &t, 1);
    gossip_sent(&g, &t, 1, 3);
    gossip_queue(&g, &t, 2);
    gossip_queue(&g, &t, 3);
    assert_int_equal(gossip_first(&g), 3);          /* the newest of those never sent */
    assert_int_equal(gossip_after(&g, &t, 3), 2);
    assert_int_equal(gossip_after(&g, &t, 2), 1);
    assert_int_equal(gossip_after(&g, &t, 1), MEMBER_NONE);
    assert_true(gossip_is_fresh(&g, 1));

    gossip_sent(&g, &t, 2, 3);
    gossip_sent(&g, &t, 3, 3);
    assert_false(gossip_is_fresh(&g, 1));
    gossip_sent(&g, &t, 1, 3);
    gossip_sent(&g, &t, 1, 3);                      /* its third: it is no news any more */
    assert_int_equal(g.count, 2);
    gossip_queue(&g, &t, 1);                        /* but may become so again */
    assert_int_equal(gossip_first(&g), 1);
    gossip_drop(&g, &t, 1);
    gossip_drop(&g, &t, 2);
    gossip_drop(&g, &t, 3);
    assert_int_equal(g.count, 0);
    assert_int_equal(gossip_first(&g), MEMBER_NONE);
    members_deinit(&t);
}

/* Suspicion. */

struct suspicion_case {
    uint32_t hosts, per_host;
    uint32_t accusers;          /* distinct hosts that accuse, the first too */
    uint64_t timeout_ms;
};

/* min = 6 periods of 500 ms, max = 6 x min; a single host, or three nodes, have
 * no independent witness and wait min; of three further hosts every one brings
 * the deadline down by the logarithm's share. */
static void witnesses_shorten_a_suspicion(void **state)
{
    static const struct suspicion_case table[] = {
        {1, 2, 1, 3000}, {1, 16, 1, 3000}, {3, 1, 1, 3000},
        {2, 4, 1, 18000}, {2, 4, 2, 3000},
        {8, 8, 1, 18000}, {8, 8, 2, 10500}, {8, 8, 3, 6113}, {8, 8, 4, 3000},
    };
    struct swim_params p;
    (void)state;
    swim_params_default(&p);
    for (size_t c = 0; c < ARRAY_COUNT(table); c++) {
        struct members t;
        struct suspicions s;
        struct prng prng;
        uint32_t i;
        prng_seed(&prng, 1);
        members_init(&t);
        suspicions_init(&s);
        for (uint32_t k = 0; k < table[c].hosts * table[c].per_host; k++) {
            struct standing st = alive(k + 1, 1);
            struct addr a = at(k % table[c].hosts, (uint16_t)(1 + k / table[c].hosts));
            members_add(&t, &a, &st, &prng, &i);
        }
        uint32_t accused = t.count - 1;
        struct standing st = alive(accused + 1, 1);
        st.state = SWIM_SUSPECT;
        members_become(&t, accused, &st, &prng);
        assert_int_equal(suspicions_room(&s), 0);
        struct addr first = at(0, 1);
        struct host h = host_of(&first);
        suspicions_start(&s, &t, &p, accused, &h, 5000);
        for (uint32_t k = 1; k < table[c].accusers; k++) {
            struct addr other = at(k, 1);
            h = host_of(&other);
            assert_true(suspicions_confirm(&s, &t, &p, accused, &h));
            assert_false(suspicions_confirm(&s, &t, &p, accused, &h));     /* the same host again */
        }
        assert_int_equal(s.due_ms, 5000 + table[c].timeout_ms);
        assert_int_equal(suspicions_overdue(&s, &t, &p, s.due_ms - 1), MEMBER_NONE);
        assert_int_equal(suspicions_overdue(&s, &t, &p, s.due_ms), accused);
        suspicions_end(&s, &t, accused);
        assert_int_equal(suspicions_overdue(&s, &t, &p, NEVER_MS), MEMBER_NONE);
        suspicions_deinit(&s);
        members_deinit(&t);
    }
}

/* A whole server goes: its workers come under suspicion one by one, and as the last
 * does, nobody is left there to confirm anything. All deadlines come down to min;
 * one that refutes brings them up again. */
static void suspects_are_no_witnesses(void **state)
{
    struct members t;
    struct suspicions s;
    struct prng prng;
    struct swim_params p;
    uint32_t i;
    (void)state;
    swim_params_default(&p);
    prng_seed(&prng, 1);
    members_init(&t);
    suspicions_init(&s);
    for (uint32_t k = 0; k < 8; k++) {          /* 0-3 here, 4-7 there */
        struct standing st = alive(k + 1, 1);
        struct addr a = at(k / 4, (uint16_t)(1 + k % 4));
        members_add(&t, &a, &st, &prng, &i);
    }
    struct addr here = at(0, 1);
    struct host h = host_of(&here);
    for (uint32_t k = 4; k < 8; k++) {
        struct standing st = alive(k + 1, 1);
        st.state = SWIM_SUSPECT;
        members_become(&t, k, &st, &prng);
        assert_int_equal(suspicions_room(&s), 0);
        suspicions_start(&s, &t, &p, k, &h, 1000);
        assert_int_equal(suspicions_overdue(&s, &t, &p, 1200), MEMBER_NONE);
        for (uint32_t n = 0; n < s.count; n++)
            assert_int_equal(s.at[n].deadline_ms, 1000u + (k < 7 ? 18000u : 3000u));
    }
    suspicions_end(&s, &t, 5);
    struct standing back = alive(6, 2);
    members_become(&t, 5, &back, &prng);
    assert_int_equal(suspicions_overdue(&s, &t, &p, 4000), MEMBER_NONE);
    assert_int_equal(s.due_ms, 19000);
    suspicions_deinit(&s);
    members_deinit(&t);
}

/* A thousand members take longer to tell: min grows with the logarithm. */
static void more_members_more_time(void **state)
{
    struct members t;
    struct suspicions s;
    struct prng prng;
    struct swim_params p;
    (void)state;
    swim_params_default(&p);
    prng_seed(&prng, 1);
    fill(&t, &prng, 1000);
    suspicions_init(&s);
    struct standing st = alive(8, 1);
    st.state = SWIM_SUSPECT;
    members_become(&t, 7, &st, &prng);
    assert_int_equal(suspicions_room(&s), 0);
    struct addr first = at(1, 1);
    struct host h = host_of(&first);
    suspicions_start(&s, &t, &p, 7, &h, 0);
    assert_int_equal(s.at[0].min_ms, 4500);
    assert_int_equal(s.at[0].max_ms, 27000);
    assert_int_equal(s.at[0].k, 3);
    suspicions_deinit(&s);
    members_deinit(&t);
}

/* Codec. */

static struct update an_update(uint8_t state, bool v6)
{
    struct update u;
    memset(&u, 0, sizeof u);
    u.addr = at(0x010203, 7946);
    if (v6)
        assert_true(addr_parse("[fd00::7]:7999", &u.addr));
    u.s = (struct standing){.state = state, .flags = SWIM_COORDINATE | SWIM_DRAINING,
                            .speaks_min = 1, .speaks_max = 3, .node_id = 0x1122334455667788,
                            .started_ms = 1700000000123, .version = UINT64_C(1) << 40};
    if (state >= SWIM_DEAD)
        u.age_s = 77;
    if (state == SWIM_SUSPECT) {
        struct addr v6_host;
        assert_true(addr_parse("fd00::9", &v6_host));
        u.contested = true;
        u.accuser_count = 2;
        u.accusers[0] = host_of(&u.addr);
        u.accusers[1] = host_of(&v6_host);
    }
    return u;
}

static void updates_come_back_as_they_went(void **state)
{
    (void)state;
    for (uint8_t s = SWIM_ALIVE; s <= SWIM_LEFT; s++) {
        for (int v6 = 0; v6 < 2; v6++) {
            uint8_t bytes[256];
            struct update u = an_update(s, v6), back;
            struct writer w = writer_of(bytes, sizeof bytes);
            assert_true(update_put(&w, &u));
            struct reader r = reader_of(span_of(bytes, writer_bytes(&w)));
            assert_true(update_take(&r, &back));
            assert_true(take_done(&r));
            assert_memory_equal(&u, &back, sizeof u);
            /* Without room nothing is written. */
            for (size_t room = 0; room < writer_bytes(&w); room++) {
                struct writer tight = writer_of(bytes, room);
                assert_false(update_put(&tight, &u));
                assert_int_equal(writer_bytes(&tight), 0);
            }
            /* Cut short anywhere, it is malformed, never half read. */
            w = writer_of(bytes, sizeof bytes);
            update_put(&w, &u);
            for (size_t cut = 1; cut < writer_bytes(&w); cut++) {
                r = reader_of(span_of(bytes, cut));
                assert_false(update_take(&r, &back));
                assert_true(r.failed);
            }
        }
    }
}

/* W8: a later release may add fields behind an update's and a head's known ones. */
static void later_fields_are_skipped(void **state)
{
    uint8_t bytes[256];
    struct update u = an_update(SWIM_ALIVE, false), back;
    struct writer w = writer_of(bytes, sizeof bytes);
    (void)state;
    update_put(&w, &u);
    bytes[0] = (uint8_t)(bytes[0] + 3);
    put_span(&w, span_text("new"));
    update_put(&w, &u);
    struct reader r = reader_of(span_of(bytes, writer_bytes(&w)));
    assert_true(update_take(&r, &back));
    assert_true(update_take(&r, &back));
    assert_false(update_take(&r, &back));
    assert_false(r.failed);

    struct swim_message m = {.kind = SWIM_NACK, .sender = at(1, 2), .sequence = 9}, heard;
    w = writer_of(bytes, sizeof bytes);
    swim_message_put(&w, &m);
    bytes[0] = SWIM_WIRE_VERSION + 1;
    bytes[2]++;
    put_u8(&w, 0xee);
    assert_int_equal(swim_message_take(span_of(bytes, writer_bytes(&w)), &heard), SWIM_OK);
    assert_int_equal(heard.sequence, 9);
    assert_int_equal(heard.updates.bytes, 0);
    bytes[0] = SWIM_WIRE_VERSION;       /* ours has no such field */
    assert_int_equal(swim_message_take(span_of(bytes, writer_bytes(&w)), &heard), SWIM_MALFORMED);
}

static void heads_come_back_as_they_went(void **state)
{
    (void)state;
    for (uint8_t kind = SWIM_PING; kind < SWIM_MESSAGE_KINDS; kind++) {
        uint8_t bytes[128];
        struct swim_message m = {.kind = kind, .sender = at(5, 6), .sequence = 7, .live = 8,
                                 .digest = 9, .token = 10, .target_id = 11, .target = at(12, 13),
                                 .complete = true}, back;
        struct writer w = writer_of(bytes, sizeof bytes);
        swim_message_put(&w, &m);
        assert_false(w.failed);
        assert_int_equal(swim_message_take(span_of(bytes, writer_bytes(&w)), &back), SWIM_OK);
        assert_int_equal(back.kind, kind);
        assert_true(addr_equal(&back.sender, &m.sender));
        if (kind == SWIM_ASK) {
            assert_true(addr_equal(&back.target, &m.target));
            assert_true(back.target_id == 11);
        }
        if (kind == SWIM_PING || kind == SWIM_ACK)
            assert_true(back.sequence == 7 && back.live == 8 && back.digest == 9);
        if (kind == SWIM_CHALLENGE || kind == SWIM_PROOF)
            assert_true(back.token == 10);
        for (size_t cut = 0; cut < writer_bytes(&w); cut++)
            assert_int_equal(swim_message_take(span_of(bytes, cut), &back), SWIM_MALFORMED);
    }
    uint8_t unknown[] = {1, 99, 7, 6, 10, 0, 0, 1, 0, 5};
    struct swim_message back;
    assert_int_equal(swim_message_take(span_of(unknown, sizeof unknown), &back), SWIM_UNKNOWN_KIND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_the_walk),
        cmocka_unit_test(nobody_waits_two_rounds),
        cmocka_unit_test(out_of_memory_changes_nothing),
        cmocka_unit_test(a_record_is_small),
        cmocka_unit_test(least_sent_goes_first),
        cmocka_unit_test(witnesses_shorten_a_suspicion),
        cmocka_unit_test(suspects_are_no_witnesses),
        cmocka_unit_test(more_members_more_time),
        cmocka_unit_test(updates_come_back_as_they_went),
        cmocka_unit_test(later_fields_are_skipped),
        cmocka_unit_test(heads_come_back_as_they_went),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
