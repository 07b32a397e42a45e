/* Membership: who is let in, under which incarnation, and how the lost are looked for. */
#include "tests/swim_desk.h"

/* Joining. */

/* M2: whoever joins is challenged at its advertised address over UDP and TCP,
 * and is a member only when both have answered. */
static void both_ways_or_not_at_all(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        struct desk d;
        struct update u = desk_about(2, SWIM_ALIVE, 1);
        struct swim_message challenge;
        struct addr a = desk_host(2);
        desk_open(&d);
        assert_int_equal(desk_hear(&d, 2, desk_join_message(), &u, 1), SWIM_OK);
        assert_true(desk_sent(&d, SWIM_CHALLENGE, 0, &challenge, NULL));
        assert_int_equal(desk_count_effects(&d, SWIM_PROVE), 1);
        assert_int_equal(desk_state_of(&d, 2), 255);
        desk_forget(&d);
        if (which & 1) {
            struct swim_message proof = {.kind = SWIM_PROOF, .token = challenge.token};
            desk_hear(&d, 2, proof, NULL, 0);
        } else {
            struct swim_message proof = {.kind = SWIM_PROOF, .token = challenge.token + 1};
            desk_hear(&d, 2, proof, NULL, 0);
        }
        if (which & 2)
            swim_proven(d.swim, d.now_ms, WALL, &a, 102, true, &d.out);
        else
            swim_proven(d.swim, d.now_ms, WALL, &a, 103, true, &d.out);     /* another id */
        assert_int_equal(desk_state_of(&d, 2), which == 3 ? SWIM_ALIVE : 255);
        assert_int_equal(desk_count_sent(&d, SWIM_WELCOME), which == 3);
        assert_int_equal((d.out.news & SWIM_NEWS_MEMBERS) != 0, which == 3);
        desk_pass(&d, 3000);
        assert_int_equal(desk_logged(&d, SWIM_LOG_REFUSED_UNPROVEN), which != 3);
        desk_close(&d);
    }
}

/* W5: an answer to an open datagram is never larger than it; a join that is not
 * padded gets little or nothing. */
static void no_amplification(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 60);
    for (size_t bytes = 40; bytes < ROOM; bytes += 97) {
        uint8_t payload[ROOM] = {0};
        struct writer w = writer_of(payload, bytes);
        struct swim_message m = {.kind = SWIM_JOIN, .sender = desk_host(2)};
        struct update u = desk_about(2, SWIM_ALIVE, 1);
        swim_message_put(&w, &m);
        if (!update_put(&w, &u))
            continue;
        struct swim_from from = {.source = desk_host(2), .node_id = 102, .open_receiver = true};
        swim_receive(d.swim, d.now_ms, WALL, &from, span_of(payload, bytes), &d.out);
        assert_true(desk_count_sent(&d, SWIM_WELCOME) == 1);
        for (size_t k = 0; k < d.out.count; k++)
            assert_true(d.out.effects[k].payload_bytes <= bytes);
        desk_forget(&d);
    }
    desk_close(&d);
}

/* Only a join may leave its receiver open. */
static void only_joins_are_open(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 3);
    for (uint8_t kind = SWIM_PING; kind < SWIM_MESSAGE_KINDS; kind++) {
        struct swim_message m = {.kind = kind, .target = desk_host(3), .target_id = 103};
        struct update u = desk_about(4, SWIM_ALIVE, 1);
        if (kind == SWIM_JOIN)
            continue;
        assert_int_equal(desk_hear_as(&d, 2, 102, true, m, &u, 1), SWIM_NOT_OPEN);
        assert_int_equal(d.out.count, 0);
        assert_int_equal(desk_state_of(&d, 4), 255);
    }
    desk_close(&d);
}

/* Addresses outside the list are neither heard nor, learned by gossip, sent to. */
static void outside_the_list(void **state)
{
    struct desk d;
    struct cidr allowed[1];
    struct swim_config c = desk_config();
    (void)state;
    assert_null(cidr_parse("10.0.0.0/28", &allowed[0]));
    c.allowed = allowed;
    c.allowed_count = 1;
    desk_open_with(&d, &c);
    desk_pass(&d, 2500);
    struct update inside = desk_about(2, SWIM_ALIVE, 1), outside = desk_about(77, SWIM_ALIVE, 1);
    desk_gossip(&d, 2, inside);
    desk_gossip(&d, 2, outside);
    assert_int_equal(desk_state_of(&d, 2), SWIM_ALIVE);
    assert_int_equal(desk_state_of(&d, 77), 255);
    assert_true(desk_logged(&d, SWIM_LOG_REFUSED_CIDR));
    desk_forget(&d);
    assert_int_equal(desk_hear(&d, 77, desk_join_message(), &outside, 1), SWIM_NOT_ALLOWED);
    assert_int_equal(desk_count_effects(&d, SWIM_SEND) + desk_count_effects(&d, SWIM_PROVE), 0);
    /* A helper does not probe it for others either. */
    desk_forget(&d);
    struct swim_message ask = {.kind = SWIM_ASK, .target = desk_host(77), .target_id = 177};
    desk_hear(&d, 2, ask, NULL, 0);
    assert_int_equal(desk_count_sent(&d, SWIM_PING), 0);
    desk_close(&d);
}

static void loopback_from_elsewhere(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 2);
    struct update u = desk_about(3, SWIM_ALIVE, 1);
    assert_true(addr_parse("127.0.0.1:7946", &u.addr));
    desk_gossip(&d, 2, u);
    assert_null(swim_find(d.swim, &u.addr));
    assert_true(desk_logged(&d, SWIM_LOG_REFUSED_LOOPBACK));
    desk_close(&d);
}

/* A start more than a minute ahead of our clock would be newer than everything
 * for as long as the clocks differ. */
static void starts_from_the_future(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 2);
    struct update u = desk_about(3, SWIM_ALIVE, 1);
    u.s.started_ms = WALL + d.now_ms + FUTURE_MS_MAX + 1;
    desk_gossip(&d, 2, u);
    assert_int_equal(desk_state_of(&d, 3), 255);
    desk_hear(&d, 3, desk_join_message(), &u, 1);
    assert_int_equal(desk_count_effects(&d, SWIM_PROVE), 0);
    assert_true(desk_logged(&d, SWIM_LOG_REFUSED_FUTURE));
    u.s.started_ms--;
    desk_gossip(&d, 2, u);
    assert_int_equal(desk_state_of(&d, 3), SWIM_ALIVE);
    desk_close(&d);
}

/* Starts on one address (M6). */

/* Clocks step back: a node that starts and is told of a newer start on its
 * address takes the one after it, and asks again at once. */
static void a_starting_node_raises_its_start(void **state)
{
    struct desk d;
    (void)state;
    desk_open(&d);
    struct update before = desk_about(1, SWIM_DEAD, 5);
    before.s.node_id = 77;
    before.s.started_ms = WALL + 5000;
    desk_gossip(&d, 2, before);
    assert_true(swim_self(d.swim)->started_ms == WALL + 5001);
    assert_true(swim_self(d.swim)->node_id == 1);
    assert_true(desk_logged(&d, SWIM_LOG_STARTED_RAISED));
    assert_int_equal(desk_count_sent(&d, SWIM_JOIN), 1);
    /* It may not slip in by gossip: whoever hears it shall prove it both ways. */
    assert_int_equal(desk_count_sent(&d, SWIM_GOSSIP), 0);
    desk_close(&d);
}

/* Once admitted, a living newer start with another id means that somebody took
 * our place: the layer stops. Its tombstone does not. */
static void a_running_node_yields(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 3);
    struct swim_message welcome = {.kind = SWIM_WELCOME, .complete = true};
    struct update u = desk_about(2, SWIM_ALIVE, 1);
    desk_hear(&d, 2, welcome, &u, 1);
    struct update other = desk_about(1, SWIM_DEAD, 5);
    other.s.node_id = 77;
    other.s.started_ms = WALL + 5000;
    desk_gossip(&d, 2, other);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_READY);
    other.s.state = SWIM_ALIVE;
    other.s.started_ms = WALL + 9000;
    desk_gossip(&d, 2, other);
    assert_int_equal(swim_phase(d.swim), SWIM_PHASE_GONE);
    assert_true(d.out.news & SWIM_NEWS_CONFLICT);
    assert_true(desk_logged(&d, SWIM_LOG_CONFLICT));
    assert_true(swim_due_ms(d.swim) == NEVER_MS);
    desk_close(&d);
}

/* A newer start replaces the older at once, whatever the older one's state. */
static void restart_on_the_same_port(void **state)
{
    (void)state;
    for (uint8_t before = SWIM_ALIVE; before <= SWIM_LEFT; before++) {
        struct desk d;
        desk_with_members(&d, 4);
        if (before != SWIM_ALIVE)
            desk_gossip(&d, 3, desk_about(2, before, 1));
        desk_forget(&d);
        struct update u = desk_about(2, SWIM_ALIVE, 1);
        u.s.node_id = 999;
        u.s.started_ms += 10;
        desk_gossip(&d, 3, u);
        struct addr a = desk_host(2);
        assert_int_equal(desk_state_of(&d, 2), SWIM_ALIVE);
        assert_true(swim_find(d.swim, &a)->node_id == 999);
        assert_true(d.out.news & SWIM_NEWS_MEMBERS);
        /* What is said of the older start is void now. */
        desk_gossip(&d, 3, desk_about(2, SWIM_DEAD, 9));
        assert_int_equal(desk_state_of(&d, 2), SWIM_ALIVE);
        desk_close(&d);
    }
}

/* Incarnations. */

/* Alive@1 Dead@1 Dead@10 Alive@2: the tombstone's version rises with the second
 * death, so the late Alive@2 wakes nobody (foca #15's kind). */
static void reordered_deaths(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 4);
    desk_gossip(&d, 3, desk_about(2, SWIM_DEAD, 1));
    assert_int_equal(desk_state_of(&d, 2), SWIM_DEAD);
    desk_gossip(&d, 3, desk_about(2, SWIM_DEAD, 10));
    desk_gossip(&d, 4, desk_about(2, SWIM_ALIVE, 2));
    assert_int_equal(desk_state_of(&d, 2), SWIM_DEAD);
    desk_gossip(&d, 4, desk_about(2, SWIM_ALIVE, 10));
    assert_int_equal(desk_state_of(&d, 2), SWIM_DEAD);
    desk_gossip(&d, 4, desk_about(2, SWIM_ALIVE, 11));
    assert_int_equal(desk_state_of(&d, 2), SWIM_ALIVE);
    assert_true(desk_logged(&d, SWIM_LOG_RETURNED));
    desk_close(&d);
}

/* A version may jump by 2^16: one message must not use up all that follow
 * (memberlist #358), nor may the stored one ever fall. */
static void wrapping_and_jumping_versions(void **state)
{
    struct desk d;
    struct addr a = desk_host(2);
    (void)state;
    desk_with_members(&d, 4);
    desk_gossip(&d, 3, desk_about(2, SWIM_ALIVE, UINT64_MAX));
    desk_gossip(&d, 3, desk_about(2, SWIM_DEAD, UINT64_MAX));
    desk_gossip(&d, 3, desk_about(2, SWIM_DEAD, 2 + VERSION_JUMP_MAX));
    assert_int_equal(desk_state_of(&d, 2), SWIM_ALIVE);
    assert_true(swim_find(d.swim, &a)->version == 1);
    desk_gossip(&d, 3, desk_about(2, SWIM_ALIVE, 1 + VERSION_JUMP_MAX));
    assert_true(swim_find(d.swim, &a)->version == 1 + VERSION_JUMP_MAX);
    desk_gossip(&d, 3, desk_about(2, SWIM_ALIVE, 3));
    desk_gossip(&d, 3, desk_about(2, SWIM_DEAD, 0));
    assert_true(swim_find(d.swim, &a)->version == 1 + VERSION_JUMP_MAX);
    assert_int_equal(desk_state_of(&d, 2), SWIM_ALIVE);
    /* Nor may a stranger be introduced at a version it could not refute from. */
    desk_gossip(&d, 3, desk_about(7, SWIM_ALIVE, UINT64_MAX - 1));
    assert_int_equal(desk_state_of(&d, 7), 255);
    /* And of ourselves nobody makes versions but we. */
    uint64_t ours = swim_self(d.swim)->version;
    desk_gossip(&d, 3, desk_about(1, SWIM_DEAD, UINT64_MAX));
    assert_true(swim_self(d.swim)->version == ours);
    assert_false(d.out.news & SWIM_NEWS_SELF_DEAD);
    desk_close(&d);
}

/* Coming back. */

/* M4: dead addresses are asked for a day, seeds for ever, alone every 2 s; what
 * has a live member is left alone; one warning after 10 s. */
static void seeds_for_ever_and_the_dead_for_a_day(void **state)
{
    struct desk d;
    struct addr range[3] = {desk_host(2), desk_host(2), desk_host(2)};
    (void)state;
    for (uint16_t k = 0; k < 3; k++)
        range[k].port = (uint16_t)(7946 + k);
    desk_with_members(&d, 2);
    assert_int_equal(swim_set_seed(d.swim, 0, range, 3), 0);
    desk_pass(&d, 100);
    for (int k = 0; k < 40; k++) {      /* keep it alive */
        struct swim_message ping;
        desk_pass(&d, 500);
        for (size_t n = 0; desk_sent(&d, SWIM_PING, n, &ping, NULL); n++)
            desk_hear(&d, 2, (struct swim_message){.kind = SWIM_ACK, .sequence = ping.sequence},
                      NULL, 0);
        assert_int_equal(desk_count_sent(&d, SWIM_JOIN), 0);
        desk_forget(&d);
    }
    desk_gossip(&d, 2, desk_about(2, SWIM_DEAD, 1));
    desk_forget(&d);
    desk_pass(&d, 20000);
    size_t joins = desk_count_sent(&d, SWIM_JOIN);
    assert_in_range(joins, 3 * 9 + 3, 3 * 11 + 5);          /* the range, and the dead one */
    assert_true(desk_logged(&d, SWIM_LOG_ALONE));
    desk_forget(&d);
    assert_int_equal(swim_set_seed(d.swim, 0, NULL, 0), 0);
    desk_pass(&d, 60000);
    assert_in_range(desk_count_sent(&d, SWIM_JOIN), 11, 13);  /* the dead one every 5 s */
    assert_false(desk_logged(&d, SWIM_LOG_ALONE));
    desk_pass(&d, 24 * 3600 * 1000ull);
    desk_forget(&d);
    desk_pass(&d, 60000);
    assert_int_equal(desk_count_sent(&d, SWIM_JOIN), 0);
    assert_int_equal(desk_state_of(&d, 2), SWIM_DEAD);           /* its tombstone outlives that */
    desk_pass(&d, 3600 * 1000ull);
    assert_int_equal(desk_state_of(&d, 2), 255);
    desk_close(&d);
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
        cmocka_unit_test(seeds_for_ever_and_the_dead_for_a_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
