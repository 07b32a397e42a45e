/* Membership: a node's own phases and flags, table pages, and what must not break it. */
#include "tests/swim_desk.h"

/* Phases, flags, leaving. */

/* M1: alone it looks for a second, over two rounds, then warms for another. */
static void looking_then_warming(void **state)
{
    struct desk d;
    struct addr seed = desk_host(2);
    (void)state;
    desk_open(&d);
    assert_int_equal(swim_set_seed(d.swim, 0, &seed, 1), 0);
    assert_int_equal(swim_set_seed(d.swim, SEEDS_MAX, &seed, 1), ERR_FULL);
    desk_pass(&d, 999);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_LOOKING);
    assert_true(desk_count_sent(&d, SWIM_JOIN) >= 2);
    desk_pass(&d, 1);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_WARMING);
    assert_true(swim_self(d.swim)->flags & SWIM_WARMING);
    assert_null(swim_coordinator(d.swim));
    desk_pass(&d, 1000);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_READY);
    assert_false(swim_self(d.swim)->flags & SWIM_WARMING);
    assert_int_equal(swim_self(d.swim)->version, 2);
    assert_ptr_equal(swim_coordinator(d.swim), swim_self(d.swim));
    desk_close(&d);
}

static void a_table_ends_the_looking(void **state)
{
    struct desk d;
    (void)state;
    desk_open(&d);
    struct update u = desk_about(2, SWIM_ALIVE, 1);
    desk_hear(&d, 2, (struct swim_message){.kind = SWIM_WELCOME, .complete = false}, &u, 1);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_LOOKING);
    assert_int_equal(desk_count_effects(&d, SWIM_PULL), 1);
    swim_pulled(d.swim, d.now_ms, true, &d.out);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_WARMING);
    assert_true(d.out.news & SWIM_NEWS_PHASE);
    desk_close(&d);

    desk_open(&d);
    desk_hear(&d, 2, (struct swim_message){.kind = SWIM_WELCOME, .complete = true}, &u, 1);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_WARMING);
    desk_close(&d);
}

/* The lowest address that may: as numbers, live, and ready (M8). */
static void the_coordinator(void **state)
{
    struct desk d;
    struct swim_config c = desk_config();
    (void)state;
    c.flags = 0;                            /* we may not */
    desk_open_with(&d, &c);
    desk_pass(&d, 2500);
    static const uint8_t flags[] = {
        [2] = SWIM_COORDINATE | SWIM_WARMING, [3] = 0, [4] = SWIM_COORDINATE | SWIM_DRAINING,
        [5] = SWIM_COORDINATE | SWIM_OBSERVER, [9] = SWIM_COORDINATE, [108] = SWIM_COORDINATE,
    };
    for (uint32_t k = 2; k < ARRAY_COUNT(flags); k++) {
        struct update u = desk_about(k, SWIM_ALIVE, 1);
        u.s.flags = flags[k];
        if (k <= 5 || k == 9 || k == 108)
            desk_gossip(&d, 3, u);
    }
    assert_true(swim_coordinator(d.swim)->addr.ip[15] == 9);
    struct update suspect = desk_about(9, SWIM_SUSPECT, 1);
    desk_gossip(&d, 3, suspect);
    assert_true(swim_coordinator(d.swim)->addr.ip[15] == 9);
    desk_gossip(&d, 3, desk_about(9, SWIM_DEAD, 1));
    assert_true(swim_coordinator(d.swim)->addr.ip[15] == 108);
    desk_close(&d);
}

/* M7: an observer counts in no N, K, helper, and leaves no tombstone. */
static void observers_do_not_count(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 3);
    for (uint32_t k = 10; k < 20; k++) {
        struct update u = desk_about(k, SWIM_ALIVE, 1);
        u.s.flags = SWIM_OBSERVER;
        desk_gossip(&d, 2, u);
    }
    assert_int_equal(swim_live(d.swim), 3);
    desk_forget(&d);
    desk_pass(&d, 700);
    for (size_t k = 0; k < desk_count_sent(&d, SWIM_ASK); k++) {
        const struct swim_effect *to;
        assert_true(desk_sent(&d, SWIM_ASK, k, NULL, &to));
        assert_true(to->addr.ip[15] < 10);
    }
    struct update u = desk_about(10, SWIM_DEAD, 1);
    u.s.flags = SWIM_OBSERVER;
    desk_gossip(&d, 2, u);
    desk_pass(&d, OBSERVER_TOMBSTONE_MS + SWEEP_EVERY_MS + 1000);
    assert_int_equal(desk_state_of(&d, 10), 255);
    desk_close(&d);
}

static void flags_travel_under_a_new_version(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 3);
    uint64_t version = swim_self(d.swim)->version;
    swim_set_flags(d.swim, d.now_ms, SWIM_DRAINING, SWIM_DRAINING, &d.out);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_DRAINING);
    assert_true(swim_self(d.swim)->version == version + 1);
    desk_pass(&d, 250);
    struct swim_message m;
    struct update u;
    assert_true(desk_sent(&d, SWIM_GOSSIP, 0, &m, NULL));
    assert_true(desk_says_of(&m, 1, &u));
    assert_true(u.s.flags & SWIM_DRAINING);
    swim_set_flags(d.swim, d.now_ms, SWIM_DRAINING, SWIM_DRAINING, &d.out);
    assert_true(swim_self(d.swim)->version == version + 1);     /* no change, no version */

    /* And another's flags are news to the application. */
    desk_forget(&d);
    u = desk_about(2, SWIM_ALIVE, 2);
    u.s.flags = SWIM_DRAINING;
    desk_gossip(&d, 3, u);
    assert_true(d.out.news & SWIM_NEWS_MEMBERS);
    desk_close(&d);
}

static void leaving_is_announced(void **state)
{
    struct desk d;
    struct swim_message m;
    struct update u;
    (void)state;
    desk_with_members(&d, 5);
    swim_leave(d.swim, d.now_ms, &d.out);
    assert_int_equal(desk_count_sent(&d, SWIM_GOSSIP), 4);
    assert_true(desk_sent(&d, SWIM_GOSSIP, 3, &m, NULL));
    assert_true(desk_says_of(&m, 1, &u));
    assert_int_equal(u.s.state, SWIM_LEFT);
    assert_true(swim_due_ms(d.swim) == NEVER_MS);
    assert_int_equal(desk_hear(&d, 2, (struct swim_message){.kind = SWIM_PING}, NULL, 0),
                     SWIM_GONE);
    size_t before = d.out.count;
    swim_leave(d.swim, d.now_ms, &d.out);
    assert_int_equal(d.out.count, before);
    desk_close(&d);

    /* At the others' ownership moves at once, without a suspicion. */
    desk_with_members(&d, 5);
    desk_gossip(&d, 2, desk_about(2, SWIM_LEFT, 2));
    assert_int_equal(desk_state_of(&d, 2), SWIM_LEFT);
    assert_true(d.out.news & SWIM_NEWS_MEMBERS);
    assert_int_equal(swim_live(d.swim), 4);
    desk_gossip(&d, 3, desk_about(2, SWIM_ALIVE, 1));
    assert_int_equal(desk_state_of(&d, 2), SWIM_LEFT);
    desk_close(&d);
}

/* M1: who loads until then must not go on for a round of gossip. */
static void the_end_of_warming_is_announced(void **state)
{
    struct desk d;
    struct update known[4];
    bool told[6] = {false};
    (void)state;
    desk_open(&d);
    for (uint32_t k = 0; k < ARRAY_COUNT(known); k++)
        known[k] = desk_about(2 + k, SWIM_ALIVE, 1);
    desk_hear(&d, 2, (struct swim_message){.kind = SWIM_WELCOME, .complete = true}, known,
              ARRAY_COUNT(known));
    desk_pass(&d, 999);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_WARMING);
    desk_forget(&d);
    desk_pass(&d, 1);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_READY);
    for (size_t n = 0; n < desk_count_sent(&d, SWIM_GOSSIP); n++) {
        struct swim_message m;
        const struct swim_effect *to;
        struct update u;
        assert_true(desk_sent(&d, SWIM_GOSSIP, n, &m, &to));
        told[to->addr.ip[15]] |= desk_says_of(&m, 1, &u) && !(u.s.flags & SWIM_WARMING);
    }
    for (uint32_t k = 2; k <= 5; k++)
        assert_true(told[k]);
    desk_close(&d);
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
        desk_with_members(&a, 150);
        desk_gossip(&a, 3, desk_about(9, SWIM_DEAD, 1));
        desk_open(&b);
        assert_true(pull(&a, &b, SPAN_NONE, rooms[c]) >= (rooms[c] > 10000 ? 1u : 2u));
        assert_int_equal(swim_live(b.swim), 149);
        assert_int_equal(desk_state_of(&b, 9), SWIM_DEAD);
        desk_close(&a);
        desk_close(&b);
    }
}

/* What the page lacks is gossiped, so that a pull mends both sides; and a pull
 * whose digests agree brings nothing. */
static void a_pull_mends_both_sides(void **state)
{
    struct desk a, b;
    (void)state;
    desk_with_members(&a, 20);
    desk_with_members(&b, 30);
    desk_pass(&b, 5000);
    desk_forget(&b);
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
    desk_close(&a);
    desk_close(&b);
}

/* A page in which we ourselves are missing means that whoever made it has not let
 * us in: that is asked for, not gossiped. */
static void who_is_missing_asks_to_be_let_in(void **state)
{
    struct desk a, b;
    struct addr peer = desk_host(2);
    const struct swim_effect *to;
    (void)state;
    for (int known = 0; known < 2; known++) {
        desk_with_members(&a, 5);                /* it lives at our very address, as 1 */
        struct swim_config c = desk_config();
        c.self = desk_host(7);
        c.node_id = 107;
        c.started_ms = WALL + 7;
        desk_open_with(&b, &c);
        desk_pass(&b, 2500);
        desk_gossip(&b, 2, desk_about(2, SWIM_ALIVE, 1));
        if (known)
            desk_gossip(&a, 7, desk_about(7, SWIM_ALIVE, 1));
        desk_forget(&b);
        swim_pull_start(b.swim, b.now_ms, &peer, 102, &b.out);
        pull(&a, &b, SPAN_NONE, SWIM_PAGE_BYTES);
        assert_int_equal(desk_count_sent(&b, SWIM_JOIN), !known);
        if (!known) {
            assert_true(desk_sent(&b, SWIM_JOIN, 0, NULL, &to));
            assert_true(addr_equal(&to->addr, &peer));
        }
        desk_close(&a);
        desk_close(&b);
    }
}

/* Pulls that mend nothing get rarer: two nodes whose lists of networks differ
 * never agree. */
static void pulls_in_vain_get_rarer(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 2);
    size_t pulls = 0;
    for (int k = 0; k < 4 * 600; k++) {
        struct swim_message ping;
        for (size_t n = 0; desk_sent(&d, SWIM_PING, n, &ping, NULL); n++) {
            struct swim_message ack = {.kind = SWIM_ACK, .sequence = ping.sequence, .digest = 1};
            desk_hear(&d, 2, ack, NULL, 0);
        }
        if (desk_count_effects(&d, SWIM_PULL) > 0) {
            pulls++;
            swim_pulled(d.swim, d.now_ms, true, &d.out);
        }
        desk_forget(&d);
        desk_pass(&d, 250);
    }
    assert_in_range(pulls, 8, 16);          /* in ten minutes, not three hundred */
    desk_close(&d);
}

/* Digests that differ are pulled after two seconds, not before. */
static void lasting_mismatches_are_pulled(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 4);
    for (int k = 0; k < 8; k++) {
        struct swim_message ping = {.kind = SWIM_PING, .live = 9, .digest = 12345};
        desk_hear(&d, 2 + (uint32_t)k % 3, ping, NULL, 0);
        assert_int_equal(desk_count_effects(&d, SWIM_PULL), 0);
        desk_pass(&d, 240);
    }
    desk_pass(&d, 200);
    desk_hear(&d, 2, (struct swim_message){.kind = SWIM_PING, .live = 9, .digest = 12345}, NULL, 0);
    assert_int_equal(desk_count_effects(&d, SWIM_PULL), 1);
    desk_hear(&d, 2, (struct swim_message){.kind = SWIM_PING, .live = 9, .digest = 12345}, NULL, 0);
    assert_int_equal(desk_count_effects(&d, SWIM_PULL), 1);      /* one at a time */
    desk_close(&d);
}

/* A table full of tombstones takes in who lives; one full of the living refuses,
 * says so, and loses nobody. */
static void a_full_table(void **state)
{
    (void)state;
    for (int living = 0; living < 2; living++) {
        struct desk d;
        struct swim_from from = {.source = desk_host(2), .node_id = 102};
        struct swim_message m = {.kind = SWIM_GOSSIP, .sender = desk_host(2)};
        desk_with_members(&d, 2);
        for (uint32_t k = 0; k < MEMBERS_MAX; k++) {
            uint8_t bytes[ROOM];
            struct writer w = writer_of(bytes, sizeof bytes);
            struct update u = desk_about(3, living ? SWIM_ALIVE : SWIM_LEFT, 1);
            u.addr.port = (uint16_t)(20000 + k);
            u.age_s = living ? 0 : 1000 - k % 500;
            swim_message_put(&w, &m);
            update_put(&w, &u);
            swim_receive(d.swim, d.now_ms, WALL, &from, span_of(bytes, writer_bytes(&w)), &d.out);
            desk_forget(&d);
        }
        assert_int_equal(d.swim->members.count, MEMBERS_MAX);
        desk_gossip(&d, 2, desk_about(9, SWIM_ALIVE, 1));
        assert_int_equal(desk_state_of(&d, 9), living ? 255 : SWIM_ALIVE);
        assert_int_equal(desk_logged(&d, SWIM_LOG_TABLE_FULL), living);
        assert_int_equal(desk_state_of(&d, 2), SWIM_ALIVE);
        assert_int_equal(d.swim->members.count, MEMBERS_MAX);
        desk_close(&d);
    }
}

/* Hostile and hard times. */

/* Bytes at random, and mutations of good ones: a verdict, never a crash. */
static void hostile_bytes(void **state)
{
    struct desk d;
    struct prng prng;
    unsigned taken = 0, malformed = 0;
    (void)state;
    desk_with_members(&d, 6);
    prng_seed(&prng, 99);
    for (int k = 0; k < 20000; k++) {
        uint8_t bytes[300];
        size_t count = prng_below(&prng, sizeof bytes);
        for (size_t j = 0; j < count; j++)
            bytes[j] = (uint8_t)prng_next(&prng);
        if (count > 12 && k % 2 == 0) {
            struct writer w = writer_of(bytes, sizeof bytes);
            struct swim_message m = {.kind = (uint8_t)(1 + k / 2 % 10), .sender = desk_host(2),
                                     .target = desk_host(3), .target_id = 103};
            struct update u = desk_about(2 + (uint32_t)k % 5, (uint8_t)(k % 4), 1);
            swim_message_put(&w, &m);
            update_put(&w, &u);
            count = writer_bytes(&w);
            bytes[prng_below(&prng, count)] ^= (uint8_t)(1u << prng_below(&prng, 8));
        }
        struct swim_from from = {.source = desk_host(2), .node_id = 102,
                                 .open_receiver = k % 3 == 0};
        enum swim_verdict v = swim_receive(d.swim, d.now_ms, WALL + d.now_ms, &from,
                                           span_of(bytes, count), &d.out);
        taken += v == SWIM_OK;
        malformed += v == SWIM_MALFORMED;
        swim_page_merge(d.swim, d.now_ms, WALL + d.now_ms, 102, span_of(bytes, count), &d.out);
        if (k % 10 == 0)
            desk_pass(&d, 1);
        if (swim_phase(d.swim) == SWIM_PHASE_GONE) {        /* a forged conflict */
            desk_close(&d);
            desk_with_members(&d, 6);
        }
        assert_in_range(swim_live(d.swim), 1, MEMBERS_MAX);
        desk_forget(&d);
    }
    assert_true(taken > 1000 && malformed > 1000);      /* both ways were really gone */
    desk_close(&d);
}

/* Every allocation on the way may fail: members may be missed, nothing breaks,
 * and the next attempt succeeds. */
static void out_of_memory(void **state)
{
    (void)state;
    for (long n = 0; n < 60; n++) {
        struct desk d;
        struct swim_config c = desk_config();
        memset(&d, 0, sizeof d);
        swim_out_init(&d.out);
        d.now_ms = 100000;
        mem_fail_after(n);
        if (swim_new(&d.swim, &c, d.now_ms) == 0) {
            struct addr seed = desk_host(9);
            swim_set_seed(d.swim, 0, &seed, 1);
            desk_pass(&d, 2500);
            for (uint32_t k = 2; k <= 90; k++) {
                struct update u = desk_about(k, SWIM_ALIVE, 1);
                desk_hear(&d, 2, (struct swim_message){.kind = SWIM_GOSSIP}, &u, 1);
                u.s.state = SWIM_SUSPECT;
                u.accuser_count = 1;
                desk_hear(&d, 3, (struct swim_message){.kind = SWIM_GOSSIP}, &u, 1);
            }
            struct update u = desk_about(99, SWIM_ALIVE, 1);
            desk_hear(&d, 99, desk_join_message(), &u, 1);
            mem_fail_after(-1);
            for (uint32_t k = 2; k <= 90; k++) {
                u = desk_about(k, SWIM_ALIVE, 2);
                desk_hear(&d, 2, (struct swim_message){.kind = SWIM_GOSSIP}, &u, 1);
            }
            assert_int_equal(swim_live(d.swim), 90);
        }
        mem_fail_after(-1);
        desk_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looking_then_warming),
        cmocka_unit_test(a_table_ends_the_looking),
        cmocka_unit_test(the_coordinator),
        cmocka_unit_test(observers_do_not_count),
        cmocka_unit_test(flags_travel_under_a_new_version),
        cmocka_unit_test(leaving_is_announced),
        cmocka_unit_test(the_end_of_warming_is_announced),
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
