/* Ownership and flights of several whole nodes, as stories on virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "sim/fleet.h"

#define TTL 10000u

static const struct fleet_config usual = {
    .nodes = 4, .latency_ms = 1, .load_ms = 150, .timeout_ms = 250, .load_timeout_ms = 10000,
    .heir = true, .seed = 1,
};

/* A node that is neither owner nor heir of the key. */
static unsigned stranger_to(struct fleet *f, const char *key)
{
    for (unsigned i = 0;; i++) {
        if (i != fleet_rank(f, key, 0) && i != fleet_rank(f, key, 1))
            return i;
    }
}

static void assert_value(const struct fleet_ask *a, const char *value)
{
    assert_true(a->done);
    assert_int_equal(a->outcome, OUTCOME_VALUE);
    assert_string_equal(a->value, value);
}

static void test_one_load_for_all(void **state)
{
    static const unsigned hows[] = {FLEET_LOADS, FLEET_REGISTERED, FLEET_LOADS | FLEET_THREAD,
                                    FLEET_REGISTERED | FLEET_THREAD};
    (void)state;
    for (size_t h = 0; h < ARRAY_COUNT(hows); h++) {
        struct fleet *f = fleet_new(&usual);
        const struct fleet_ask *asks[40];
        for (unsigned i = 0; i < 40; i++) {
            asks[i] = fleet_ask(f, i % 4, "k", hows[h], TTL, 0);
            fleet_run(f, 3);
        }
        fleet_run(f, 400);
        for (unsigned i = 0; i < 40; i++)
            assert_value(asks[i], "k#1");
        assert_int_equal(fleet_loads(f, "k"), 1);
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(fleet_flights(f, i), 0);
            assert_true(fleet_holds(f, i, "k"));
        }
        fleet_free(f);
    }
}

static void test_an_owner_hit_is_kept_for_the_rest_of_its_ttl(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), other = stranger_to(f, "k");
    fleet_ask(f, owner, "k", FLEET_LOADS, 1000, 0);
    fleet_run(f, 150 + 600);        /* it is 600 ms old */
    const struct fleet_ask *a = fleet_ask(f, other, "k", FLEET_LOADS, 1000, 0);
    fleet_run(f, 50);
    assert_value(a, "k#1");
    assert_int_equal(a->tier, TIER_OWNER);
    assert_true(fleet_holds(f, other, "k"));
    fleet_run(f, 300);
    assert_true(fleet_holds(f, other, "k"));
    fleet_run(f, 60);               /* past 1000 ms since the owner stored it (O14) */
    assert_false(fleet_holds(f, other, "k"));
    assert_int_equal(fleet_loads(f, "k"), 1);
    fleet_free(f);
}

/* O4: a request from outside never joins a flight that itself asks. */
static void test_opposite_views_both_answer(void **state)
{
    (void)state;
    for (unsigned how = FLEET_LOADS; how <= (FLEET_LOADS | FLEET_THREAD); how += FLEET_THREAD) {
        struct fleet_config two = usual;
        two.nodes = 2;
        struct fleet *f = fleet_new(&two);
        unsigned owner = fleet_rank(f, "k", 0), other = 1 - owner;
        /* The owner takes the other one for the owner: each asks the other, at once. */
        fleet_disagree(f, owner);
        const struct fleet_ask *a = fleet_ask(f, owner, "k", how, TTL, 0);
        const struct fleet_ask *b = fleet_ask(f, other, "k", how, TTL, 0);
        fleet_run(f, 2000);
        assert_int_equal(fleet_stats(f, owner)->served_loads, 1);
        assert_int_equal(fleet_stats(f, other)->served_loads, 1);
        assert_true(a->done && b->done);
        assert_int_equal(a->outcome, OUTCOME_VALUE);
        assert_int_equal(b->outcome, OUTCOME_VALUE);
        assert_in_range(fleet_loads(f, "k"), 1, 2);
        fleet_free(f);
    }
}

static void test_a_silent_owners_askers_meet_at_the_heir(void **state)
{
    (void)state;
    struct fleet_config eight = usual;
    eight.nodes = 8;
    struct fleet *f = fleet_new(&eight);
    unsigned owner = fleet_rank(f, "k", 0);
    const struct fleet_ask *asks[8];
    fleet_silence(f, owner, true);
    for (unsigned i = 0; i < 8; i++)
        asks[i] = i == owner ? NULL : fleet_ask(f, i, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 2 * 250 + 150 + 50);
    for (unsigned i = 0; i < 8; i++) {
        if (asks[i])
            assert_int_equal(asks[i]->outcome, OUTCOME_VALUE);
    }
    assert_in_range(fleet_loads(f, "k"), 1, 2);
    fleet_free(f);
}

/* O2: avoided for 3 s; then one question tries, the others keep away until it is answered. */
static void test_an_avoided_owner_costs_no_timeout_and_is_tried_by_one(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), other = stranger_to(f, "k");
    fleet_silence(f, owner, true);
    const struct fleet_ask *first = fleet_ask(f, other, "k", FLEET_LOADS, 500, 0);
    fleet_run(f, 1000);
    assert_true(first->done);
    assert_true(first->done_ms - first->asked_ms >= 250);
    const struct fleet_ask *second = fleet_ask(f, other, "k", FLEET_LOADS, 500, 0);
    fleet_run(f, 1000);
    assert_true(second->done_ms - second->asked_ms < 250);
    fleet_silence(f, owner, false);
    fleet_run(f, 2500);
    assert_int_equal(fleet_stats(f, other)->asks_silent, 1);
    const struct fleet_ask *third = fleet_ask(f, other, "k", FLEET_LOADS, 500, 0);
    fleet_run(f, 500);
    assert_int_equal(third->outcome, OUTCOME_VALUE);
    assert_true(fleet_holds(f, owner, "k"));
    fleet_free(f);
}

/* O5: a worker whose Python is stuck says "busy" in time; its hits are still asked for. */
static void test_a_stuck_python_is_busy_not_silent(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), other = stranger_to(f, "k");
    fleet_stick(f, owner, true);
    const struct fleet_ask *a = fleet_ask(f, other, "k", FLEET_REGISTERED, 500, 0);
    fleet_run(f, 700);
    assert_value(a, "k#1");
    assert_int_equal(fleet_stats(f, owner)->served_busy, 1);
    assert_int_equal(fleet_stats(f, other)->asks_busy, 1);
    assert_int_equal(fleet_stats(f, other)->asks_silent, 0);
    assert_int_equal(fleet_flights(f, owner), 0);
    fleet_free(f);
}

/* O5: a 30 s report is run once, however often its askers' timeout passes. */
static void test_a_long_load_runs_once(void **state)
{
    (void)state;
    struct fleet_config slow = usual;
    slow.load_ms = 25000;
    slow.load_timeout_ms = 30000;
    for (unsigned how = FLEET_LOADS; how <= FLEET_REGISTERED; how++) {
        struct fleet *f = fleet_new(&slow);
        const struct fleet_ask *asks[4];
        for (unsigned i = 0; i < 4; i++)
            asks[i] = fleet_ask(f, i, "k", how, TTL, 0);
        fleet_run(f, 26000);
        for (unsigned i = 0; i < 4; i++)
            assert_value(asks[i], "k#1");
        assert_int_equal(fleet_loads(f, "k"), 1);
        fleet_free(f);
    }
}

/* O5: an owner that accepted and falls silent (its link is cut) is left after three words
 * missing, long before membership or the load's time would end the wait. */
static void test_an_accepted_load_of_a_silent_owner_is_left_in_seconds(void **state)
{
    (void)state;
    struct fleet_config slow = usual;
    slow.load_ms = 600;
    struct fleet *f = fleet_new(&slow);
    unsigned owner = fleet_rank(f, "k", 0), other = stranger_to(f, "k");
    const struct fleet_ask *a = fleet_ask(f, other, "k", FLEET_REGISTERED, TTL, 0);
    fleet_run(f, 100);              /* accepted */
    fleet_silence(f, owner, true);
    fleet_run(f, 4200);
    assert_true(a->done);
    assert_int_equal(a->outcome, OUTCOME_VALUE);
    assert_int_equal(fleet_loads(f, "k"), 2);
    fleet_free(f);
}

static void test_an_error_goes_to_all_and_the_next_call_loads_afresh(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    const struct fleet_ask *asks[8];
    fleet_fail_loads(f, true);
    for (unsigned i = 0; i < 8; i++)
        asks[i] = fleet_ask(f, i % 4, "k", FLEET_REGISTERED, TTL, 0);
    fleet_run(f, 400);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(asks[i]->outcome, OUTCOME_FAILED);
        assert_string_equal(asks[i]->value, "k#1");
    }
    fleet_fail_loads(f, false);
    const struct fleet_ask *again = fleet_ask(f, 0, "k", FLEET_REGISTERED, TTL, 0);
    fleet_run(f, 400);
    assert_value(again, "k#2");
    fleet_free(f);
}

/* A permit dies with its holder; the next waiter loads. */
static void test_a_killed_permit_holder(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), holder = stranger_to(f, "k");
    unsigned other = fleet_rank(f, "k", 1);
    fleet_ask(f, holder, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 20);
    assert_int_equal(fleet_stats(f, owner)->permits_granted, 1);
    const struct fleet_ask *a = fleet_ask(f, other, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 20);
    fleet_kill(f, holder);
    fleet_run(f, 400);
    assert_int_equal(a->outcome, OUTCOME_VALUE);
    assert_int_equal(fleet_loads(f, "k"), 2);
    assert_int_equal(fleet_loads_ended(f, "k"), 1);
    fleet_free(f);
}

/* The first caller leaves; the others get the value of the one load. */
static void test_the_first_callers_leaving_fails_nobody(void **state)
{
    (void)state;
    for (unsigned how = FLEET_LOADS; how <= FLEET_REGISTERED; how++) {
        struct fleet *f = fleet_new(&usual);
        unsigned other = stranger_to(f, "k");
        const struct fleet_ask *first = fleet_ask(f, other, "k", how, TTL, 0), *asks[6];
        for (unsigned i = 0; i < 6; i++)
            asks[i] = fleet_ask(f, i % 4, "k", how, TTL, 0);
        fleet_run(f, 10);
        fleet_leave(f, first);
        fleet_run(f, 500);
        assert_false(first->done);
        for (unsigned i = 0; i < 6; i++)
            assert_int_equal(asks[i]->outcome, OUTCOME_VALUE);
        assert_int_equal(fleet_loads_ended(f, "k"), 1);
        fleet_free(f);
    }
}

/* O3: a node that becomes owner asks the former one (its heir now) once before it loads. */
static void test_a_join_fetches_nothing_twice(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1);
    unsigned other = stranger_to(f, "k");
    uint32_t without = 15u & ~(1u << owner);
    for (unsigned i = 0; i < 4; i++)
        fleet_view(f, i, i == owner ? 15 : without, 1u << owner);
    fleet_ask(f, heir, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 400);
    assert_int_equal(fleet_loads(f, "k"), 1);
    fleet_views(f, 15);             /* the owner has warmed */
    const struct fleet_ask *a = fleet_ask(f, other, "k", FLEET_LOADS, TTL, 0);
    const struct fleet_ask *b = fleet_ask(f, owner, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 400);
    assert_value(a, "k#1");
    assert_value(b, "k#1");
    assert_int_equal(fleet_stats(f, owner)->peeks_hit, 1);
    fleet_free(f);
}

/* O3: nodes came one right after another, and what the first of them has loaded was not handed on
 * yet: who looks for it goes back from newcomer to newcomer, by itself if it was one. */
static void test_newcomers_in_a_row_fetch_nothing_twice(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 3; how++) {
        struct fleet *f = fleet_new(&usual);
        unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1);
        unsigned first = fleet_rank(f, "k", 2), second = how == 1 ? owner : heir;
        fleet_views(f, 1u << first);
        const struct fleet_ask *a = fleet_ask(f, first, "k", FLEET_LOADS, TTL, 0);
        fleet_run(f, 152);
        assert_value(a, "k#1");
        fleet_views(f, 1u << first | 1u << second);
        fleet_run(f, 10);
        fleet_views(f, 1u << first | 1u << owner | 1u << heir);
        if (how == 2)
            fleet_kill(f, heir);    /* and nobody has heard of it */
        a = fleet_ask(f, owner, "k", FLEET_LOADS, TTL, 0);
        fleet_run(f, 20);
        assert_value(a, "k#1");
        assert_int_equal(fleet_stats(f, owner)->peeks_asked, 2);
        assert_int_equal(fleet_stats(f, owner)->peeks_hit, 1);
        assert_int_equal(fleet_loads(f, "k"), 1);
        fleet_free(f);
    }
}

/* Who warmed owned as long as all did: it has what it loaded then. */
static void test_who_owned_while_all_warmed_is_looked_at(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), ready = fleet_rank(f, "k", 2);
    for (unsigned i = 0; i < 4; i++)
        fleet_view(f, i, 15, 15);
    const struct fleet_ask *a = fleet_ask(f, owner, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 10);
    for (unsigned i = 0; i < 4; i++)
        fleet_view(f, i, 15, 15u & ~(1u << ready));
    const struct fleet_ask *b = fleet_ask(f, ready, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 200);
    assert_value(a, "k#1");
    assert_value(b, "k#1");
    assert_int_equal(fleet_loads(f, "k"), 1);
    assert_int_equal(fleet_stats(f, ready)->peeks_hit, 1);
    fleet_free(f);
}

/* Who came first of those that a node heard of together is known by their starts. */
static void test_newcomers_heard_of_together(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1);
    unsigned first = fleet_rank(f, "k", 2), order[] = {first, heir, owner};
    uint32_t there = 0;
    for (unsigned i = 0; i < 4; i++)
        fleet_kill(f, i);
    for (unsigned n = 0; n < 3; n++) {
        fleet_start(f, order[n]);
        there |= 1u << order[n];
        fleet_views(f, there);
        fleet_run(f, 10);
        if (n == 1)
            continue;
        const struct fleet_ask *a = fleet_ask(f, order[n], "k", FLEET_LOADS, TTL, 0);
        fleet_run(f, 155);
        assert_value(a, "k#1");
    }
    assert_int_equal(fleet_loads(f, "k"), 1);
    assert_int_equal(fleet_stats(f, owner)->peeks_asked, 2);
    fleet_free(f);
}

/* Once a newcomer has been there for a while it has what is its own: one look will do. To who
 * comes then all are new, so that it goes by their starts. */
static void test_who_has_been_there_is_looked_at_alone(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 2; how++) {
        struct fleet *f = fleet_new(&usual);
        unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1);
        unsigned comes[] = {heir, owner};
        uint32_t there = 15u & ~(1u << owner | 1u << heir);
        fleet_kill(f, heir);
        if (how == 1)
            fleet_kill(f, owner);
        for (unsigned n = 0; n < 2; n++) {
            fleet_views(f, there);
            fleet_run(f, 5000);
            if (how == 1 || n == 0)
                fleet_start(f, comes[n]);
            there |= 1u << comes[n];
        }
        fleet_views(f, there);
        const struct fleet_ask *a = fleet_ask(f, owner, "k", FLEET_LOADS, TTL, 0);
        fleet_run(f, 400);
        assert_value(a, "k#1");
        assert_int_equal(fleet_stats(f, owner)->peeks_asked, 1);
        assert_int_equal(fleet_stats(f, heir)->peeks_served, 1);
        fleet_free(f);
    }
}

/* Whose load was waited for has looked at the others itself. */
static void test_a_look_that_waited_is_the_last(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1);
    unsigned first = fleet_rank(f, "k", 2);
    fleet_views(f, 1u << first);
    fleet_run(f, 10);
    fleet_views(f, 1u << first | 1u << heir);
    fleet_ask(f, heir, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 10);
    fleet_views(f, 1u << first | 1u << owner | 1u << heir);
    const struct fleet_ask *a = fleet_ask(f, owner, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 20);
    fleet_kill(f, heir);
    fleet_run(f, 200);
    assert_true(a->done);
    assert_int_equal(a->outcome, OUTCOME_VALUE);
    assert_int_equal(fleet_loads(f, "k"), 2);
    assert_int_equal(fleet_stats(f, owner)->peeks_asked, 1);
    assert_int_equal(fleet_stats(f, first)->peeks_served, 1);
    fleet_free(f);
}

static void test_who_is_silent_is_not_looked_at(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1);
    char of_heir[8];
    for (unsigned n = 0; n == 0 || fleet_rank(f, of_heir, 0) != heir; n++)
        snprintf(of_heir, sizeof of_heir, "%u", n);
    fleet_silence(f, heir, true);
    fleet_ask(f, owner, of_heir, FLEET_LOADS, TTL, 0);
    fleet_run(f, 600);
    fleet_view(f, owner, 1u << owner | 1u << heir, 0);
    uint64_t before = fleet_stats(f, owner)->peeks_asked;
    const struct fleet_ask *a = fleet_ask(f, owner, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 151);
    assert_value(a, "k#1");
    assert_int_equal(fleet_stats(f, owner)->peeks_asked, before);
    fleet_free(f);
}

/* The heir holds what the owner loaded: a crash fetches nothing twice. */
static void test_a_crash_fetches_nothing_twice(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), other = stranger_to(f, "k");
    fleet_ask(f, owner, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 400);
    assert_true(fleet_holds(f, fleet_rank(f, "k", 1), "k"));
    fleet_kill(f, owner);
    const struct fleet_ask *a = fleet_ask(f, other, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 100);
    assert_value(a, "k#1");
    assert_int_equal(a->tier, TIER_HEIR);
    fleet_free(f);
}

/* W6: the killed node's replacement on its port is another node. */
static void test_a_replacement_on_the_port(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), other = stranger_to(f, "k");
    fleet_kill(f, owner);
    fleet_start(f, owner);
    const struct fleet_ask *a = fleet_ask(f, other, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 400);
    assert_int_equal(a->outcome, OUTCOME_VALUE);
    assert_int_equal(fleet_loads(f, "k"), 1);
    assert_true(a->done_ms - a->asked_ms < 250);
    fleet_free(f);
}

/* D1, D2: a load that began before a delete never stores after it, anywhere. */
static void test_a_load_begun_before_a_delete_is_not_stored(void **state)
{
    (void)state;
    for (unsigned how = FLEET_LOADS; how <= FLEET_REGISTERED; how++) {
        struct fleet *f = fleet_new(&usual);
        const struct fleet_ask *asks[4];
        for (unsigned i = 0; i < 4; i++)
            asks[i] = fleet_ask(f, i, "k", how, TTL, 0);
        fleet_run(f, 50);
        const struct fleet_change *gone = fleet_delete(f, 0, "k");
        fleet_run(f, 600);
        assert_true(gone->done);
        assert_int_equal(gone->acknowledged, 4);
        assert_int_equal(gone->unreached, 0);
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(asks[i]->outcome, OUTCOME_VALUE);
            assert_false(fleet_holds(f, i, "k"));
        }
        fleet_free(f);
    }
}

/* D1, D2: the same for a delete of the whole channel, whoever asks for it and at whatever
 * moment of an accepted load: all who wait get the value and nobody keeps it, not the owner, the
 * heir, the askers, nor who ran the load by permit; what was there of the channel goes; a
 * question after the delete loads afresh, also beside the old load; and another channel is left
 * alone. */
static void delete_the_channel_during_its_load(unsigned how, unsigned by, unsigned at_ms)
{
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "c/k", 0);
    const struct fleet_ask *asks[4], *again[4];

    for (unsigned i = 0; i < 4; i++)
        fleet_ask(f, i, "c/there", how, TTL, 0);
    fleet_run(f, 400);
    for (unsigned i = 0; i < 4; i++)
        assert_true(fleet_holds(f, i, "c/there"));
    for (unsigned i = 0; i < 4; i++) {      /* not the owner: closures run by permit */
        asks[i] = i == owner ? NULL : fleet_ask(f, i, "c/k", how, TTL, 0);
        fleet_ask(f, i, "d/k", how, TTL, 0);
    }
    uint64_t permits = fleet_stats(f, owner)->permits_granted;
    fleet_run(f, at_ms);
    assert_int_equal(fleet_loads(f, "c/k"), 1);
    if (!(how & FLEET_REGISTERED))
        assert_true(fleet_stats(f, owner)->permits_granted > permits);
    const struct fleet_change *gone = fleet_delete_channel(f, by, "c");
    fleet_run(f, 10);
    assert_true(gone->done);
    assert_int_equal(gone->acknowledged, 4);
    assert_int_equal(gone->unreached, 0);
    assert_int_equal(fleet_loads_ended(f, "c/k"), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_false(fleet_holds(f, i, "c/there"));
    const struct fleet_ask *fresh = at_ms % 2 ? fleet_ask(f, (by + 1) % 4, "c/k", how, TTL, 0)
                                              : NULL;
    fleet_run(f, 148 - at_ms);              /* the old load has ended, the fresh one not */
    assert_int_equal(fleet_loads_ended(f, "c/k"), 1);
    for (unsigned i = 0; i < 4; i++) {
        if (asks[i])
            assert_value(asks[i], "c/k#1");
        assert_false(fleet_holds(f, i, "c/k"));
        assert_true(fleet_holds(f, i, "d/k"));
    }
    for (unsigned i = 0; i < 4; i++)
        again[i] = fleet_ask(f, i, "c/k", how, TTL, 0);
    fleet_run(f, 400);
    if (fresh)
        assert_value(fresh, "c/k#2");
    for (unsigned i = 0; i < 4; i++) {
        assert_value(again[i], "c/k#2");
        assert_true(fleet_holds(f, i, "c/k"));
        assert_int_equal(fleet_flights(f, i), 0);
    }
    assert_int_equal(fleet_loads(f, "c/k"), 2);
    assert_int_equal(fleet_loads(f, "d/k"), 1);
    fleet_free(f);
}

static void test_a_load_begun_before_a_delete_of_its_channel_is_not_stored(void **state)
{
    static const unsigned hows[] = {FLEET_LOADS, FLEET_REGISTERED, FLEET_LOADS | FLEET_THREAD,
                                    FLEET_REGISTERED | FLEET_THREAD};
    (void)state;
    for (size_t h = 0; h < ARRAY_COUNT(hows); h++) {
        for (unsigned by = 0; by < 4; by++) {
            for (unsigned at_ms = 3; at_ms < 140; at_ms += 9)
                delete_the_channel_during_its_load(hows[h], by, at_ms);
        }
    }
}

static void test_a_delete_says_who_was_not_reached(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), other = stranger_to(f, "k");
    for (unsigned i = 0; i < 4; i++)
        fleet_ask(f, i, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 400);
    fleet_silence(f, other, true);
    const struct fleet_change *gone = fleet_delete(f, owner, "k");
    fleet_run(f, 2000);
    assert_true(gone->done);
    assert_int_equal(gone->acknowledged, 3);
    assert_int_equal(gone->unreached, 1);
    fleet_free(f);
}

/* D3: is the owner silent, the heir runs the delete. */
static void test_a_silent_owners_heir_runs_the_delete(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), other = stranger_to(f, "k");
    for (unsigned i = 0; i < 4; i++)
        fleet_ask(f, i, "k", FLEET_LOADS, TTL, 0);
    fleet_run(f, 400);
    fleet_silence(f, owner, true);
    const struct fleet_change *gone = fleet_delete(f, other, "k");
    fleet_run(f, 3000);
    assert_true(gone->done);
    assert_int_equal(gone->acknowledged, 3);
    assert_int_equal(gone->unreached, 1);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(fleet_holds(f, i, "k"), i == owner);
    fleet_free(f);
}

static void test_stale_is_served_while_the_owner_refreshes(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    unsigned owner = fleet_rank(f, "k", 0), other = stranger_to(f, "k");
    fleet_ask(f, owner, "k", FLEET_REGISTERED, 1000, 30000);
    fleet_run(f, 1500);
    const struct fleet_ask *a = fleet_ask(f, other, "k", FLEET_REGISTERED, 1000, 30000);
    fleet_run(f, 20);
    assert_value(a, "k#1");         /* at once */
    assert_false(fleet_holds(f, other, "k"));
    fleet_run(f, 200);
    const struct fleet_ask *b = fleet_ask(f, other, "k", FLEET_REGISTERED, 1000, 30000);
    fleet_run(f, 20);
    assert_value(b, "k#2");
    assert_int_equal(fleet_loads(f, "k"), 2);
    fleet_free(f);
}

static void test_plain_get(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(&usual);
    const struct fleet_ask *a = fleet_ask(f, stranger_to(f, "k"), "k", 0, TTL, 0);
    const struct fleet_ask *b = fleet_ask(f, fleet_rank(f, "k", 0), "k", 0, TTL, 0);
    fleet_run(f, 50);
    assert_true(a->done && b->done);
    assert_int_equal(a->outcome, OUTCOME_MISS);
    assert_int_equal(b->outcome, OUTCOME_MISS);
    assert_int_equal(fleet_loads(f, "k"), 0);
    fleet_free(f);
}

/* Any single kill at any moment of a load, whoever it hits: every asker of a living node gets
 * its value, and no more than two loads end. */
static void test_any_single_kill_at_any_moment(void **state)
{
    (void)state;
    for (unsigned how = FLEET_LOADS; how <= FLEET_REGISTERED; how++) {
        for (unsigned victim = 0; victim < 4; victim++) {
            for (unsigned at_ms = 0; at_ms < 170; at_ms += 3) {
                struct fleet *f = fleet_new(&usual);
                const struct fleet_ask *asks[12];
                for (unsigned i = 0; i < 12; i++)
                    asks[i] = fleet_ask(f, i % 4, "k", how, TTL, 0);
                fleet_run(f, at_ms);
                fleet_kill(f, victim);
                fleet_run(f, 1500);
                for (unsigned i = 0; i < 12; i++) {
                    if (i % 4 != victim && asks[i]->outcome != OUTCOME_VALUE)
                        fail_msg("how %u victim %u at %u ms: asker %u got %d", how, victim, at_ms,
                                 i, asks[i]->done ? (int)asks[i]->outcome : -1);
                }
                if (fleet_loads(f, "k") > 2)
                    fail_msg("how %u victim %u at %u ms: %u loads", how, victim, at_ms,
                             fleet_loads(f, "k"));
                fleet_free(f);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_load_for_all),
        cmocka_unit_test(test_an_owner_hit_is_kept_for_the_rest_of_its_ttl),
        cmocka_unit_test(test_opposite_views_both_answer),
        cmocka_unit_test(test_a_silent_owners_askers_meet_at_the_heir),
        cmocka_unit_test(test_an_avoided_owner_costs_no_timeout_and_is_tried_by_one),
        cmocka_unit_test(test_a_stuck_python_is_busy_not_silent),
        cmocka_unit_test(test_a_long_load_runs_once),
        cmocka_unit_test(test_an_accepted_load_of_a_silent_owner_is_left_in_seconds),
        cmocka_unit_test(test_an_error_goes_to_all_and_the_next_call_loads_afresh),
        cmocka_unit_test(test_a_killed_permit_holder),
        cmocka_unit_test(test_the_first_callers_leaving_fails_nobody),
        cmocka_unit_test(test_a_join_fetches_nothing_twice),
        cmocka_unit_test(test_newcomers_in_a_row_fetch_nothing_twice),
        cmocka_unit_test(test_who_owned_while_all_warmed_is_looked_at),
        cmocka_unit_test(test_newcomers_heard_of_together),
        cmocka_unit_test(test_who_has_been_there_is_looked_at_alone),
        cmocka_unit_test(test_a_look_that_waited_is_the_last),
        cmocka_unit_test(test_who_is_silent_is_not_looked_at),
        cmocka_unit_test(test_a_crash_fetches_nothing_twice),
        cmocka_unit_test(test_a_replacement_on_the_port),
        cmocka_unit_test(test_a_load_begun_before_a_delete_is_not_stored),
        cmocka_unit_test(test_a_load_begun_before_a_delete_of_its_channel_is_not_stored),
        cmocka_unit_test(test_a_delete_says_who_was_not_reached),
        cmocka_unit_test(test_a_silent_owners_heir_runs_the_delete),
        cmocka_unit_test(test_stale_is_served_while_the_owner_refreshes),
        cmocka_unit_test(test_plain_get),
        cmocka_unit_test(test_any_single_kill_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
