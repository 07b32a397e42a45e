/* Changes of the contest, as stories on virtual time. A node that drains (rule O8) finishes its
 * loads, hands on what its successors lack, and costs nobody a fetch or an error; who dies or
 * comes leaves every entry at two nodes again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "sim/fleet.h"

#define TTL 10000u
#define ALL 0xfu

static const struct fleet_config usual = {
    .nodes = 4, .latency_ms = 1, .load_ms = 150, .timeout_ms = 250, .load_timeout_ms = 10000,
    .heir = true, .seed = 1,
};

/* Node i begins to drain, and everybody hears of it at once. */
static void drain(struct fleet *f, unsigned i)
{
    fleet_drain(f, i);
    fleet_views(f, ALL);
}

static void load_keys(struct fleet *f, unsigned count, uint32_t ttl_ms)
{
    char key[16];

    for (unsigned i = 0; i < count; i++) {
        snprintf(key, sizeof key, "k%u", i);
        fleet_ask(f, fleet_rank(f, key, 0), key, FLEET_REGISTERED, ttl_ms, 0);
    }
    fleet_run(f, 400);
}

static void test_what_the_heir_lacks_is_handed_on(void **state)
{
    (void)state;
    for (unsigned heir = 0; heir < 2; heir++) {
        struct fleet_config config = usual;
        char key[16];
        config.heir = heir;
        struct fleet *f = fleet_new(&config);
        unsigned owner = fleet_rank(f, "k0", 0), owned = 0, after[100][2];
        load_keys(f, 100, TTL);
        for (unsigned i = 0; i < 100; i++) {
            snprintf(key, sizeof key, "k%u", i);
            owned += fleet_rank(f, key, 0) == owner;
            for (unsigned rank = 0, r = 0; r < 2; rank++) {
                unsigned at = fleet_rank(f, key, rank);
                if (at != owner)
                    after[i][r++] = at;
            }
        }
        drain(f, owner);
        fleet_run(f, 1000);
        assert_true(fleet_handed_on(f, owner));
        assert_true(owned > 10);
        for (unsigned i = 0; i < 100; i++) {
            snprintf(key, sizeof key, "k%u", i);
            bool mine = fleet_rank(f, key, 0) == owner;
            assert_true(!mine || fleet_holds(f, after[i][0], key));
            /* The new heir, too: who comes next may fall as well. */
            assert_true(!heir || fleet_holds(f, after[i][1], key));
        }
        fleet_free(f);
    }
}

/* Its time may be over before all is handed on: what is asked for goes first (O8). */
static void test_what_is_asked_for_is_handed_on_first(void **state)
{
    (void)state;
    struct fleet_config config = usual;
    unsigned owned[800], to[800], count = 0, hot = 0, there[2] = {0, 0};
    char key[16];

    config.heir = false;    /* nobody else has anything */
    struct fleet *f = fleet_new(&config);
    unsigned owner = fleet_rank(f, "k0", 0);
    load_keys(f, 800, TTL);
    for (unsigned i = 0; i < 800; i++) {
        snprintf(key, sizeof key, "k%u", i);
        if (fleet_rank(f, key, 0) != owner)
            continue;
        to[count] = fleet_rank(f, key, 1);
        owned[count++] = i;
    }
    for (unsigned i = 0; i < count; i += 3, hot++) {
        snprintf(key, sizeof key, "k%u", owned[i]);
        fleet_ask(f, owner, key, 0, TTL, 0);
    }
    assert_true(hot > 60);
    drain(f, owner);
    while (!there[0] && !fleet_handed_on(f, owner)) {
        fleet_run(f, 1);
        there[0] = there[1] = 0;
        for (unsigned i = 0; i < count; i++) {
            snprintf(key, sizeof key, "k%u", owned[i]);
            there[i % 3 == 0] += fleet_holds(f, to[i], key);
        }
    }
    assert_true(there[0] && there[1] > hot * 3 / 4);
    fleet_run(f, 1000);
    assert_true(fleet_handed_on(f, owner));
    for (unsigned i = 0; i < count; i++) {
        snprintf(key, sizeof key, "k%u", owned[i]);
        assert_true(fleet_holds(f, to[i], key));
    }
    fleet_free(f);
}

/* Only where it lacks: with unchanged members the former heir has all, and is sent nothing. */
static void test_nobody_is_sent_what_it_has(void **state)
{
    (void)state;
    struct fleet_config two = usual;
    two.nodes = 2;
    struct fleet *f = fleet_new(&two);
    unsigned owner = fleet_rank(f, "k0", 0);
    load_keys(f, 50, TTL);
    uint64_t before = fleet_stats(f, owner)->pushes_sent;
    fleet_drain(f, owner);
    fleet_views(f, 3);
    fleet_run(f, 1000);
    assert_true(fleet_handed_on(f, owner));
    assert_int_equal(fleet_stats(f, owner)->pushes_sent, before);
    fleet_free(f);
}

/* A load that runs when the drain begins is not run a second time by the new owner: it peeks
 * at the one that drains, and waits with it. */
static void test_the_last_load_of_a_draining_owner_is_the_only_one(void **state)
{
    (void)state;
    for (unsigned how = FLEET_LOADS; how <= FLEET_REGISTERED; how++) {
        struct fleet *f = fleet_new(&usual);
        unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1);
        const struct fleet_ask *asks[8];
        asks[0] = fleet_ask(f, owner, "k", how, TTL, 0);
        fleet_run(f, 20);
        drain(f, owner);
        for (unsigned i = 1; i < 8; i++)
            asks[i] = fleet_ask(f, i % 4, "k", how, TTL, 0);
        fleet_run(f, 600);
        for (unsigned i = 0; i < 8; i++)
            assert_int_equal(asks[i]->outcome, OUTCOME_VALUE);
        assert_int_equal(fleet_loads(f, "k"), 1);
        assert_true(fleet_holds(f, heir, "k"));
        assert_int_equal(fleet_flights(f, owner), 0);
        assert_true(fleet_handed_on(f, owner));
        fleet_free(f);
    }
}

/* Every node goes, one after the other, and is replaced: nothing is fetched twice. */
static void test_a_rolling_restart_fetches_nothing_twice(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    char key[16];
    load_keys(f, 60, 60000);
    for (unsigned i = 0; i < 4; i++) {
        fleet_drain(f, i);
        fleet_views(f, ALL);
        fleet_run(f, 500);
        assert_true(fleet_handed_on(f, i));
        fleet_views(f, ALL & ~(1u << i));
        fleet_kill(f, i);
        fleet_run(f, 200);
        fleet_start(f, i);
        for (unsigned j = 0; j < 4; j++)
            fleet_view(f, j, ALL, 1u << i);
        fleet_run(f, 1000);
        fleet_views(f, ALL);
        fleet_run(f, 200);
    }
    for (unsigned i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "k%u", i);
        const struct fleet_ask *a = fleet_ask(f, i % 4, key, FLEET_REGISTERED, 60000, 0);
        fleet_run(f, 200);
        assert_int_equal(a->outcome, OUTCOME_VALUE);
        assert_int_equal(fleet_loads(f, key), 1);
    }
    fleet_free(f);
}

/* What was deleted, by its key or with its channel, while it was on its way to its new owner
 * does not come back there. */
static void test_a_delete_during_the_hand_over(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 16; run++) {
        unsigned at_ms = run / 2;
        struct fleet *f = fleet_new(&usual);
        char key[16];
        load_keys(f, 40, TTL);
        unsigned owner = fleet_rank(f, "k0", 0);
        drain(f, owner);
        fleet_run(f, at_ms);
        const struct fleet_change *gone[40];
        for (unsigned i = 0; i < 40; i++) {
            snprintf(key, sizeof key, "k%u", i);
            gone[i] = (run % 2 ? fleet_delete_channel : fleet_delete)(f, (owner + 1) % 4, key);
        }
        fleet_run(f, 1000);
        for (unsigned i = 0; i < 40; i++) {
            snprintf(key, sizeof key, "k%u", i);
            assert_true(gone[i]->done);
            assert_int_equal(gone[i]->acknowledged, 4);
            for (unsigned j = 0; j < 4; j++)
                assert_false(fleet_holds(f, j, key));
        }
        fleet_free(f);
    }
}

/* A receiver that says nothing holds nobody up for longer than its calls' time. */
static void test_a_silent_receiver(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    load_keys(f, 100, TTL);
    unsigned owner = fleet_rank(f, "k0", 0);
    fleet_silence(f, (owner + 1) % 4, true);
    drain(f, owner);
    fleet_run(f, 250 + 100);
    assert_true(fleet_handed_on(f, owner));
    fleet_free(f);
}

/* The entries of a node that died stand at two nodes again before the next one dies. */
static void test_two_crashes_in_a_row_fetch_nothing_twice(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    char key[16];
    load_keys(f, 60, TTL);
    for (unsigned i = 0; i < 2; i++) {
        fleet_kill(f, i);
        fleet_views(f, ALL & ~((2u << i) - 1));
        fleet_run(f, 500);
    }
    for (unsigned i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "k%u", i);
        fleet_ask(f, 2 + i % 2, key, FLEET_REGISTERED, TTL, 0);
        fleet_run(f, 5);
        assert_int_equal(fleet_loads(f, key), 1);
    }
    fleet_free(f);
}

/* A node that comes is given what it owns now: nothing is lost if who had it falls next. */
static void test_a_join_and_then_a_crash(void **state)
{
    (void)state;
    for (unsigned joins = 0; joins < 4; joins++) {
        for (unsigned falls = 0; falls < 4; falls++) {
            struct fleet *f = fleet_new(&usual);
            char key[16];
            fleet_kill(f, joins);
            fleet_views(f, ALL & ~(1u << joins));
            load_keys(f, 40, TTL);
            fleet_start(f, joins);
            fleet_views(f, ALL);
            fleet_run(f, 500);
            if (falls != joins) {
                fleet_kill(f, falls);
                fleet_views(f, ALL & ~(1u << falls));
            }
            for (unsigned i = 0; i < 40; i++) {
                snprintf(key, sizeof key, "k%u", i);
                fleet_ask(f, joins, key, FLEET_REGISTERED, TTL, 0);
                fleet_run(f, 5);
                assert_int_equal(fleet_loads(f, key), 1);
            }
            fleet_free(f);
        }
    }
}

/* The new owner and the old one, asked by somebody who has not heard of the change, look at
 * each other at the same moment: one loads, the other waits for it (O3). */
static void test_two_acting_owners_peek_at_each_other(void **state)
{
    (void)state;
    for (int lead_ms = -3; lead_ms <= 3; lead_ms++) {
        struct fleet *f = fleet_new(&usual);
        unsigned fresh = fleet_rank(f, "k", 0), old = fleet_rank(f, "k", 1), late = 0;
        while (late == fresh || late == old)
            late++;
        fleet_views(f, ALL & ~(1u << fresh));
        fleet_views(f, ALL);                        /* just now: there is reason to peek */
        fleet_view(f, late, ALL & ~(1u << fresh), 0);
        const struct fleet_ask *a = NULL, *b = NULL;
        for (int at_ms = -3; at_ms <= 3; at_ms++) {
            if (at_ms == 0)
                a = fleet_ask(f, late, "k", FLEET_REGISTERED, TTL, 0);
            if (at_ms == lead_ms)
                b = fleet_ask(f, fresh, "k", FLEET_REGISTERED, TTL, 0);
            fleet_run(f, 1);
        }
        fleet_run(f, 500);
        assert_int_equal(a->outcome, OUTCOME_VALUE);
        assert_int_equal(b->outcome, OUTCOME_VALUE);
        assert_int_equal(fleet_loads(f, "k"), 1);
        fleet_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_heir_lacks_is_handed_on),
        cmocka_unit_test(test_what_is_asked_for_is_handed_on_first),
        cmocka_unit_test(test_nobody_is_sent_what_it_has),
        cmocka_unit_test(test_the_last_load_of_a_draining_owner_is_the_only_one),
        cmocka_unit_test(test_a_rolling_restart_fetches_nothing_twice),
        cmocka_unit_test(test_a_delete_during_the_hand_over),
        cmocka_unit_test(test_a_silent_receiver),
        cmocka_unit_test(test_two_crashes_in_a_row_fetch_nothing_twice),
        cmocka_unit_test(test_a_join_and_then_a_crash),
        cmocka_unit_test(test_two_acting_owners_peek_at_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
