/* Membership: probing, suspecting, and what an accusation does. */
#include "tests/swim_desk.h"

/* Accusations. */

static void a_suspicion_is_refuted_at_once(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 5);
    uint64_t version = swim_self(d.swim)->version;
    struct update accusation = desk_about(1, SWIM_SUSPECT, version), refutation;
    struct swim_message m;
    desk_hear(&d, 2, (struct swim_message){.kind = SWIM_PING, .sequence = 5}, &accusation, 1);
    assert_true(swim_self(d.swim)->version == version + 1);
    assert_false(d.out.news & SWIM_NEWS_SELF_DEAD);     /* suspected only: the store stays */
    assert_true(desk_sent(&d, SWIM_ACK, 0, &m, NULL));
    assert_int_equal(m.sequence, 5);
    assert_true(desk_says_of(&m, 1, &refutation));
    assert_true(refutation.s.version == version + 1);
    assert_int_equal(refutation.s.state, SWIM_ALIVE);
    /* The old accusation again is news to nobody. */
    desk_forget(&d);
    desk_gossip(&d, 3, accusation);
    assert_true(swim_self(d.swim)->version == version + 1);
    desk_close(&d);
}

/* D3: declared dead, a node learns it, and its store must go. */
static void declared_dead_it_says_so(void **state)
{
    (void)state;
    for (int contested = 0; contested < 2; contested++) {
        struct desk d;
        desk_with_members(&d, 5);
        uint64_t version = swim_self(d.swim)->version;
        struct update u = desk_about(1, contested ? SWIM_SUSPECT : SWIM_DEAD, version);
        u.contested = contested;
        desk_gossip(&d, 2, u);
        assert_true(d.out.news & SWIM_NEWS_SELF_DEAD);
        assert_true(swim_self(d.swim)->version == version + 1);
        assert_int_equal(swim_self(d.swim)->state, SWIM_ALIVE);
        desk_close(&d);
    }
}

/* Two nodes that hold each other dead must not bounce accusations at the speed
 * of the network (foca #25): the answers are rationed. */
static void accusations_are_rationed(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 4);
    desk_gossip(&d, 3, desk_about(2, SWIM_DEAD, 1));
    desk_forget(&d);
    for (int k = 0; k < 1000; k++)
        desk_hear(&d, 2, (struct swim_message){.kind = SWIM_NACK}, NULL, 0);
    assert_true(desk_count_effects(&d, SWIM_SEND) >= 1);
    assert_true(desk_count_effects(&d, SWIM_SEND) <= ANSWERS_MAX);
    desk_close(&d);
}

/* memberlist #311: who is held dead and talks to us is told, and so comes back. */
static void the_dead_are_told(void **state)
{
    struct desk d;
    struct swim_message m;
    struct update u;
    (void)state;
    desk_with_members(&d, 4);
    desk_gossip(&d, 3, desk_about(2, SWIM_DEAD, 1));
    desk_forget(&d);
    desk_hear(&d, 2, (struct swim_message){.kind = SWIM_PING, .sequence = 8}, NULL, 0);
    assert_true(desk_sent(&d, SWIM_ACK, 0, &m, NULL));
    assert_true(desk_says_of(&m, 2, &u));
    assert_int_equal(u.s.state, SWIM_DEAD);
    desk_forget(&d);
    u = desk_about(2, SWIM_ALIVE, 1);
    desk_hear(&d, 2, desk_join_message(), &u, 1);
    assert_true(desk_sent(&d, SWIM_GOSSIP, 0, &m, NULL));
    assert_true(desk_says_of(&m, 2, &u));
    assert_int_equal(u.s.state, SWIM_DEAD);
    assert_int_equal(desk_count_effects(&d, SWIM_PROVE), 0);
    desk_close(&d);
}

/* A tombstone in a table, or an old one that still travels, is hearsay: the
 * member gets to answer. A fresh death by gossip is believed. */
static void old_deaths_are_hearsay(void **state)
{
    (void)state;
    for (uint32_t age_s = 0; age_s < 20; age_s += 5) {
        struct desk d;
        desk_with_members(&d, 8);
        struct update u = desk_about(2, SWIM_DEAD, 1);
        u.age_s = age_s;
        desk_gossip(&d, 3, u);
        assert_int_equal(desk_state_of(&d, 2), age_s < NEWS_S_MAX ? SWIM_DEAD : SWIM_SUSPECT);
        desk_close(&d);
    }
    struct desk d;
    desk_with_members(&d, 8);
    struct swim_message welcome = {.kind = SWIM_WELCOME, .complete = true};
    struct update both[2] = {desk_about(3, SWIM_ALIVE, 1), desk_about(2, SWIM_DEAD, 1)};
    desk_hear(&d, 3, welcome, both, 2);
    assert_int_equal(desk_state_of(&d, 2), SWIM_SUSPECT);
    desk_close(&d);
}

/* Probing. */

/* Nobody answers. The helpers asked are exactly k, distinct, never the target,
 * and on hosts other than ours and the target's where there are enough. */
static void exactly_k_indirect_requests(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 12; n++) {
        struct desk d;
        desk_with_members(&d, n);
        desk_pass(&d, 520);
        struct swim_message ping, ask;
        const struct swim_effect *to, *helper;
        assert_true(desk_sent(&d, SWIM_PING, 0, &ping, &to));
        struct addr target = to->addr;
        desk_pass(&d, 200);
        size_t want = min_size(3, n - 2);
        assert_int_equal(desk_count_sent(&d, SWIM_ASK), want);
        for (size_t k = 0; k < want; k++) {
            assert_true(desk_sent(&d, SWIM_ASK, k, &ask, &helper));
            assert_true(addr_equal(&ask.target, &target));
            assert_false(addr_equal(&helper->addr, &target));
            for (size_t j = 0; j < k; j++) {
                const struct swim_effect *other;
                assert_true(desk_sent(&d, SWIM_ASK, j, NULL, &other));
                assert_false(addr_equal(&helper->addr, &other->addr));
            }
        }
        desk_close(&d);
    }
}

/* DAOS PR 10378: suspected only at the period's end, when the helpers have had
 * their time. */
static void suspected_at_the_periods_end(void **state)
{
    struct desk d;
    const struct swim_effect *to;
    (void)state;
    desk_with_members(&d, 6);
    while (!desk_sent(&d, SWIM_PING, 0, NULL, &to))
        desk_pass(&d, 1);
    struct addr target = to->addr;
    desk_pass(&d, 480);
    assert_int_equal(swim_find(d.swim, &target)->state, SWIM_ALIVE);
    /* A helper says that it got no answer either, so it is not us. */
    struct swim_message ask;
    assert_true(desk_sent(&d, SWIM_ASK, 0, &ask, &to));
    desk_hear(&d, to->addr.ip[15],
              (struct swim_message){.kind = SWIM_NACK, .sequence = ask.sequence}, NULL, 0);
    desk_pass(&d, 20);
    assert_int_equal(swim_find(d.swim, &target)->state, SWIM_SUSPECT);
    assert_false(d.out.news & SWIM_NEWS_MEMBERS);       /* and nobody outside sees it */
    desk_close(&d);
}

/* A node that hears nothing from anybody accuses nobody for ten seconds. */
static void the_deaf_accuse_nobody(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 6);
    desk_pass(&d, 9000);
    for (uint32_t k = 2; k <= 6; k++)
        assert_int_equal(desk_state_of(&d, k), SWIM_ALIVE);
    desk_pass(&d, 20000);
    uint32_t accused = 0;
    for (uint32_t k = 2; k <= 6; k++)
        accused += desk_state_of(&d, k) != SWIM_ALIVE;
    assert_true(accused > 0);           /* but in the end all may have gone */
    desk_close(&d);
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
    desk_with_members(&d, 6);
    while (!desk_sent(&d, SWIM_PING, 0, &ping, &to))
        desk_pass(&d, 1);
    struct addr target = to->addr;
    desk_forget(&d);
    d.now_ms += 3000;
    struct swim_message ack = {.kind = SWIM_ACK, .sequence = ping.sequence};
    desk_hear(&d, target.ip[15], ack, NULL, 0);
    swim_tick(d.swim, d.now_ms, WALL + d.now_ms, &d.out);
    assert_int_equal(swim_find(d.swim, &target)->state, SWIM_ALIVE);
    swim_stats(d.swim, &stats);
    assert_int_equal(stats.late_wakeups, 1);
    assert_int_equal(stats.health, 1);
    assert_int_equal(stats.probes_failed, 0);

    /* Without the ack too, the target has what was left of its time. */
    desk_forget(&d);
    while (!desk_sent(&d, SWIM_PING, 0, &ping, &to))
        desk_pass(&d, 1);
    target = to->addr;
    d.now_ms += 3000;
    swim_tick(d.swim, d.now_ms, WALL + d.now_ms, &d.out);
    assert_int_equal(swim_find(d.swim, &target)->state, SWIM_ALIVE);
    desk_close(&d);
}

/* A suspicion's clock stands still while we sleep. */
static void lateness_buries_nobody(void **state)
{
    struct desk d;
    (void)state;
    desk_with_members(&d, 3);
    desk_gossip(&d, 3, desk_about(2, SWIM_SUSPECT, 1));
    desk_pass(&d, 100);
    d.now_ms += 60000;
    swim_tick(d.swim, d.now_ms, WALL + d.now_ms, &d.out);
    assert_int_equal(desk_state_of(&d, 2), SWIM_SUSPECT);
    desk_pass(&d, 3000);
    assert_int_equal(desk_state_of(&d, 2), SWIM_DEAD);
    desk_close(&d);
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
    desk_with_members(&d, 4);
    struct swim_message ask = {.kind = SWIM_ASK, .sequence = 55, .target = desk_host(3),
                               .target_id = 103};
    desk_hear(&d, 2, ask, NULL, 0);
    assert_true(desk_sent(&d, SWIM_PING, 0, &ping, &to));
    assert_true(to->node_id == 103);
    assert_true(ping.sequence != 55);
    desk_forget(&d);
    desk_hear(&d, 3, (struct swim_message){.kind = SWIM_ACK, .sequence = ping.sequence}, NULL, 0);
    assert_true(desk_sent(&d, SWIM_REACHED, 0, &m, &to));
    assert_true(to->node_id == 102);
    assert_int_equal(m.sequence, 55);

    /* No ack: a nack says that we are here, and it is not. */
    ask.sequence = 56;
    desk_hear(&d, 2, ask, NULL, 0);
    desk_forget(&d);
    desk_pass(&d, 160);
    assert_true(desk_sent(&d, SWIM_NACK, 0, &m, &to));
    assert_int_equal(m.sequence, 56);
    assert_true(to->node_id == 102);
    swim_stats(d.swim, &stats);
    assert_int_equal(stats.late_wakeups, 0);
    desk_close(&d);
}

/* Somebody else's ack, or one for another probe, is none. */
static void only_the_targets_ack_counts(void **state)
{
    struct desk d;
    struct swim_message ping;
    const struct swim_effect *to;
    (void)state;
    desk_with_members(&d, 3);
    while (!desk_sent(&d, SWIM_PING, 0, &ping, &to))
        desk_pass(&d, 1);
    uint8_t target = to->addr.ip[15], other = target == 2 ? 3 : 2;
    desk_hear(&d, other, (struct swim_message){.kind = SWIM_ACK, .sequence = ping.sequence},
              NULL, 0);
    desk_hear(&d, target, (struct swim_message){.kind = SWIM_ACK, .sequence = ping.sequence + 1},
              NULL, 0);
    desk_hear(&d, other, (struct swim_message){.kind = SWIM_REACHED, .sequence = ping.sequence},
              NULL, 0);
    desk_pass(&d, 500);
    assert_int_equal(desk_state_of(&d, target), SWIM_SUSPECT);
    desk_close(&d);
}

/* Whoever hears of a suspicion looks for itself next, in a small cluster everybody:
 * so witnesses come without waiting for their order. Not for a contested one. */
static void witnesses_look_for_themselves(void **state)
{
    (void)state;
    for (uint32_t k = 3; k <= 8; k++) {
        struct desk d;
        const struct swim_effect *to;
        desk_with_members(&d, 8);
        desk_gossip(&d, 2, desk_about(k, SWIM_SUSPECT, 1));
        while (!desk_sent(&d, SWIM_PING, 0, NULL, &to))
            desk_pass(&d, 1);
        assert_int_equal(to->addr.ip[15], k);
        desk_close(&d);
    }
}

/* Hints from TCP move a member to the front, and greet who sits in its place. */
static void hints(void **state)
{
    (void)state;
    for (uint32_t k = 2; k <= 9; k++) {
        struct desk d;
        const struct swim_effect *to;
        struct addr a = desk_host(k);
        desk_with_members(&d, 9);
        swim_hint_silent(d.swim, d.now_ms, &a);
        while (!desk_sent(&d, SWIM_PING, 0, NULL, &to))
            desk_pass(&d, 1);
        assert_true(addr_equal(&to->addr, &a));
        desk_forget(&d);
        swim_hint_replaced(d.swim, d.now_ms, &a, 100 + k);      /* the very one we know */
        desk_pass(&d, 1);
        assert_int_equal(desk_count_sent(&d, SWIM_JOIN), 0);
        swim_hint_replaced(d.swim, d.now_ms, &a, 4711);
        desk_pass(&d, 1);
        assert_true(desk_sent(&d, SWIM_JOIN, 0, NULL, &to));
        assert_true(addr_equal(&to->addr, &a));
        assert_true(to->node_id == 0);
        desk_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
