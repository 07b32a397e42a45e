/* Counts on their way between nodes (rules T1, T2; core/node_tally.h), on virtual time: what
 * a limit lets through over six nodes, and what becomes of counts when nodes fall silent, die,
 * join and leave. Built with small limits, six members are already too many to tell everyone
 * everything, so the same stories then show counts that go through a key's owner. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/limits.h"
#include "core/mem.h"
#include "sim/fleet.h"

#define NODES 6u
#define ALL ((1u << NODES) - 1)
#define MINUTE_MS 60000u

static const bool direct = NODES <= TALLY_DIRECT_MEMBERS_MAX;

static struct tally_name name_of(const char *key)
{
    return (struct tally_name){span_text("hits"), span_text(key), MINUTE_MS};
}

/* A fleet that stands just after the beginning of a window. */
static struct fleet *begin(void)
{
    struct fleet_config config = {.nodes = NODES, .latency_ms = 1, .timeout_ms = 250,
                                  .load_timeout_ms = 10000, .seed = 7};
    struct fleet *f = fleet_new(&config);

    fleet_run(f, (uint32_t)(MINUTE_MS - fleet_wall_ms(f) % MINUTE_MS));
    return f;
}

static bool take(struct fleet *f, unsigned i, const char *key, uint64_t amount, uint64_t limit)
{
    struct tally_name n = name_of(key);
    uint64_t total;
    bool added;

    assert_int_equal(node_tally_add(fleet_node(f, i), &n, amount, limit, fleet_wall_ms(f), &total,
                                    &added), 0);
    return added;
}

static void add(struct fleet *f, unsigned i, const char *key, uint64_t amount)
{
    assert_true(take(f, i, key, amount, UINT64_MAX));
}

static uint64_t total(struct fleet *f, unsigned i, const char *key)
{
    struct tally_name n = name_of(key);
    return node_tally_total(fleet_node(f, i), &n, fleet_wall_ms(f));
}

static struct node_tally_stats stats(struct fleet *f, unsigned i)
{
    struct node_tally_stats s;

    node_tally_stats(fleet_node(f, i), &s);
    return s;
}

/* Time in which counts become known. Where they go through owners a look is a wish, which the
 * next round fulfils. */
static void settle(struct fleet *f, uint32_t ms, const char *key)
{
    fleet_run(f, ms);
    for (unsigned i = 0; !direct && i < NODES; i++)
        total(f, i, key);
    fleet_run(f, direct ? 0 : 1500);
}

static void every_node_knows_the_sum_of_all(void **state)
{
    struct fleet *f = begin();

    (void)state;
    for (unsigned i = 0; i < NODES; i++)
        add(f, i, "durov", 1 + i);
    assert_int_equal(total(f, 2, "durov"), 3);
    settle(f, 120, "durov");
    for (unsigned i = 0; i < NODES; i++)
        assert_int_equal(total(f, i, "durov"), 21);
    assert_int_equal(total(f, 0, "another"), 0);
    fleet_free(f);
}

/* How many of 1,000 requests in 20 s, spread over the nodes, a limit of 100 lets through. */
static unsigned rush(struct fleet *f, int killed)
{
    unsigned let_through = 0;
    bool dead = false;

    for (unsigned r = 0; r < 1000; r++) {
        unsigned i = r % NODES;
        if (killed >= 0 && !dead && let_through >= 50) {
            dead = true;
            fleet_kill(f, (unsigned)killed);
            fleet_views(f, ALL & ~(1u << killed));
        }
        if (dead && i == (unsigned)killed)
            i = (i + 1) % NODES;
        let_through += take(f, i, "one client", 1, 100);
        fleet_run(f, 20);
    }
    return let_through;
}

static void a_limit_holds_over_the_fleet(void **state)
{
    struct fleet *f = begin();
    unsigned let_through = rush(f, -1);

    (void)state;
    assert_in_range(let_through, 100, direct ? 110 : 150);
    /* A refused request is not added. */
    assert_int_equal(total(f, 3, "one client"), let_through);
    fleet_free(f);
}

static void a_limit_holds_while_a_node_dies(void **state)
{
    (void)state;
    for (int killed = 0; killed < (int)NODES; killed++) {
        struct fleet *f = begin();
        assert_in_range(rush(f, killed), 100, 150);
        fleet_free(f);
    }
}

static void counts_of_the_dead_stay_until_the_window_ends(void **state)
{
    struct fleet *f = begin();

    (void)state;
    add(f, 1, "durov", 40);
    add(f, 4, "durov", 2);
    fleet_run(f, 2500);
    fleet_kill(f, 4);
    fleet_views(f, ALL & ~(1u << 4));
    settle(f, 3000, "durov");
    assert_int_equal(total(f, 2, "durov"), 42);
    fleet_run(f, MINUTE_MS);
    assert_int_equal(total(f, 2, "durov"), 0);
    add(f, 2, "durov", 1);
    fleet_run(f, 2000);
    assert_int_equal(total(f, 2, "durov"), 1);
    fleet_free(f);
}

/* T1: the dead can't tell who joins, so one of the others does. */
static void a_joiner_is_given_the_table(void **state)
{
    struct fleet *f = begin();

    (void)state;
    add(f, 1, "durov", 40);
    add(f, 4, "durov", 2);
    fleet_run(f, 2500);
    fleet_kill(f, 4);
    fleet_views(f, ALL & ~(1u << 4));
    fleet_run(f, 500);
    fleet_kill(f, 5);
    fleet_start(f, 5);
    fleet_views(f, ALL & ~(1u << 4));
    settle(f, 200, "durov");
    assert_int_equal(total(f, 5, "durov"), 42);
    fleet_free(f);
}

/* The coordinator, node 0, goes before it has told who joined: the next one does. */
static void a_joiner_is_given_the_table_by_the_next_coordinator(void **state)
{
    struct fleet *f = begin();

    (void)state;
    add(f, 4, "durov", 2);
    fleet_run(f, 2500);
    fleet_kill(f, 4);
    fleet_views(f, ALL & ~(1u << 4));
    fleet_run(f, 2500);
    fleet_silence(f, 0, true);
    fleet_kill(f, 5);
    fleet_start(f, 5);
    fleet_views(f, ALL & ~(1u << 4));
    fleet_run(f, 1500);
    fleet_kill(f, 0);
    fleet_views(f, ALL & ~(1u << 4) & ~1u);
    settle(f, 2500, "durov");
    assert_int_equal(total(f, 5, "durov"), 2);
    fleet_free(f);
}

static void what_was_lost_is_said_again(void **state)
{
    struct fleet *f = begin();

    (void)state;
    fleet_silence(f, 3, true);
    add(f, 0, "durov", 7);
    fleet_run(f, 3000);
    assert_true(stats(f, 0).pages_lost > 0 || !direct);
    fleet_kill(f, 3);           /* what it held back unread is gone */
    fleet_start(f, 3);
    fleet_views(f, ALL);
    settle(f, 2500, "durov");
    assert_int_equal(total(f, 3, "durov"), 7);
    fleet_free(f);
}

static void a_slow_member_gets_one_call_at_a_time(void **state)
{
    struct fleet *f = begin();

    (void)state;
    add(f, 0, "durov", 1);
    fleet_run(f, 500);
    fleet_silence(f, 3, true);
    uint64_t before = stats(f, 0).pages_sent;
    for (unsigned n = 0; n < 40; n++) {
        add(f, 0, "durov", 1);
        fleet_run(f, 50);
    }
    /* 2 s: four members hear of it at most every 100 ms, the fifth is tried once a second. */
    assert_true(stats(f, 0).pages_sent - before <= 4 * 21 + 4);
    fleet_silence(f, 3, false);
    settle(f, 3000, "durov");
    assert_int_equal(total(f, 3, "durov"), 41);
    fleet_free(f);
}

static void nobody_says_what_all_know(void **state)
{
    struct fleet *f = begin();
    uint64_t before = 0, after = 0;

    (void)state;
    for (unsigned i = 0; i < NODES; i++)
        add(f, i, "durov", 1);
    fleet_run(f, 3000);
    for (unsigned i = 0; i < NODES; i++)
        before += stats(f, i).pages_sent;
    fleet_run(f, 10000);
    for (unsigned i = 0; i < NODES; i++)
        after += stats(f, i).pages_sent;
    assert_true(before > 0);
    assert_int_equal(after, before);
    fleet_free(f);
}

static void a_leaving_node_says_its_last_word(void **state)
{
    struct fleet *f = begin();

    (void)state;
    add(f, 2, "durov", 1);
    fleet_run(f, 1000);
    add(f, 2, "durov", 5);
    fleet_drain(f, 2);
    fleet_views(f, ALL);
    fleet_run(f, 3);            /* there, and the calls have arrived */
    fleet_kill(f, 2);
    fleet_views(f, ALL & ~(1u << 2));
    settle(f, 2500, "durov");
    assert_int_equal(total(f, 0, "durov"), 6);
    fleet_free(f);
}

static void what_is_malformed_is_refused_and_counted(void **state)
{
    struct fleet *f = begin();
    struct message m = {.kind = MESSAGE_TALLY, .request_id = 9, .sender_id = 77};
    struct blob *payload = blob_copy(span_text("\xff is no flag"));
    struct effects fx;

    (void)state;
    effects_init(&fx);
    node_tally_frame(fleet_node(f, 0), 1, &m, payload, fleet_wall_ms(f), &fx);
    node_tally_frame(fleet_node(f, 0), 1, &m, NULL, fleet_wall_ms(f), &fx);
    assert_int_equal(fx.count, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(fx.at[i].message.kind, MESSAGE_UNSUPPORTED);
        assert_int_equal(fx.at[i].message.request_id, 9);
    }
    assert_int_equal(stats(f, 0).pages_malformed, 2);
    /* An answer to a call that nobody made. */
    node_tally_reply(fleet_node(f, 0), UINT64_MAX, &m, payload, fleet_now_ms(f), fleet_wall_ms(f),
                     &fx);
    assert_int_equal(stats(f, 0).pages_malformed, 3);
    assert_true(node_call_is_tally(UINT64_MAX) && !node_call_is_pull(UINT64_MAX));
    effects_deinit(&fx);
    blob_unref(payload);
    fleet_free(f);
}

static void alone_it_counts_for_itself(void **state)
{
    struct node_config config = {.serve = {.label = span_text("x"), .cache_bytes = 1u << 16,
                                           .timeout_ms = 250, .load_timeout_ms = 1000},
                                 .seed = 3};
    struct tally_name n = name_of("durov");
    struct node *node;
    uint64_t sum = 0;
    bool added;

    (void)state;
    assert_int_equal(node_new(&node, &config, 1000), 0);
    for (unsigned i = 0; i < 12; i++)
        assert_int_equal(node_tally_add(node, &n, 1, 10, FLEET_WALL_MS, &sum, &added), 0);
    assert_int_equal(sum, 10);
    assert_false(added);
    assert_true(node_serve_due_ms(node) == NEVER_MS);    /* nobody to tell, nothing to wake for */
    assert_int_equal(node_tally_add(node, &n, 1, 10, FLEET_WALL_MS + MINUTE_MS, &sum, &added), 0);
    assert_int_equal(sum, 1);
    node_free(node);
}

/* With a second tier. */

struct tier_story {
    struct fleet *f;
    struct effects fx;
    struct waiter waiter;
    uint64_t total;
    bool added;
};

static void tier_begin(struct tier_story *s)
{
    *s = (struct tier_story){.f = begin()};
    effects_init(&s->fx);
    list_init(&s->waiter.link);
}

static void tier_end(struct tier_story *s)
{
    list_remove(&s->waiter.link);
    effects_deinit(&s->fx);
    fleet_free(s->f);
}

static int tier_take(struct tier_story *s, uint64_t amount, uint64_t limit)
{
    struct tally_name n = name_of("one client");

    effects_clear(&s->fx);
    return node_tally_take(fleet_node(s->f, 0), &n, amount, limit, &s->waiter,
                           fleet_now_ms(s->f), fleet_wall_ms(s->f), &s->total, &s->added, &s->fx);
}

/* The waiter's answer; it must be there. */
static void tier_answer(struct tier_story *s)
{
    assert_true(s->fx.completed.next == &s->waiter.link);
    list_remove(&s->waiter.link);
    assert_int_equal(s->waiter.answer.outcome, OUTCOME_VALUE);
    assert_true(node_tally_word(blob_span(s->waiter.answer.blob), &s->total, &s->added));
    answer_deinit(&s->waiter.answer);
}

static void tier_says(struct tier_story *s, bool heard, uint64_t sum, bool added)
{
    uint64_t call_id = s->fx.at[0].call_id;

    node_tally_said(fleet_node(s->f, 0), call_id, heard, sum, added, fleet_wall_ms(s->f), &s->fx);
}

static void the_tier_decides_and_own_adds_are_counted_here_too(void **state)
{
    struct tier_story s;

    (void)state;
    tier_begin(&s);
    assert_int_equal(tier_take(&s, 2, 100), TALLY_WAITS);
    assert_int_equal(s.fx.count, 1);
    assert_int_equal(s.fx.at[0].kind, EFFECT_TIER_TALLY);
    assert_int_equal(s.fx.at[0].load_id, fleet_wall_ms(s.f) / MINUTE_MS);
    assert_int_equal(s.fx.at[0].marks[0], 2);
    assert_int_equal(s.fx.at[0].marks[1], 100);
    assert_true(span_equal(s.fx.at[0].message.key, span_text("one client")));
    tier_says(&s, true, 57, true);
    tier_answer(&s);
    assert_true(s.added && s.total == 57);
    assert_int_equal(total(s.f, 0, "one client"), 2);

    assert_int_equal(tier_take(&s, 2, 100), TALLY_WAITS);
    tier_says(&s, true, 99, false);
    tier_answer(&s);
    assert_true(!s.added && s.total == 99);
    assert_int_equal(total(s.f, 0, "one client"), 2);
    tier_end(&s);
}

static void without_a_word_from_the_tier_what_is_known_here_decides(void **state)
{
    struct tier_story s;

    (void)state;
    tier_begin(&s);
    add(s.f, 0, "one client", 98);
    assert_int_equal(tier_take(&s, 1, 100), TALLY_WAITS);
    tier_says(&s, false, 0, false);
    tier_answer(&s);
    assert_true(s.added && s.total == 99);
    /* It says nothing at all: after the peers' timeout. */
    assert_int_equal(tier_take(&s, 1, 100), TALLY_WAITS);
    uint64_t due_ms = fleet_now_ms(s.f) + 250;
    assert_true(node_serve_due_ms(fleet_node(s.f, 0)) <= due_ms);
    node_tally_tick(fleet_node(s.f, 0), due_ms, fleet_wall_ms(s.f), &s.fx);
    tier_answer(&s);
    assert_true(s.added && s.total == 100);
    /* Known here to be too much: nobody is asked. */
    assert_int_equal(tier_take(&s, 1, 100), TALLY_DECIDED);
    assert_int_equal(s.fx.count, 0);
    assert_true(!s.added && s.total == 100);
    tier_end(&s);
}

static void who_waits_for_the_tier_may_leave(void **state)
{
    struct tier_story s;

    (void)state;
    tier_begin(&s);
    assert_int_equal(tier_take(&s, 1, 100), TALLY_WAITS);
    node_change_leave(fleet_node(s.f, 0), &s.waiter);
    tier_says(&s, true, 1, true);
    assert_true(list_empty(&s.fx.completed));
    assert_int_equal(total(s.f, 0, "one client"), 1);   /* the tier has counted it */
    tier_says(&s, true, 1, true);                       /* an answer that nobody waits for */
    assert_int_equal(total(s.f, 0, "one client"), 1);
    tier_end(&s);
}

static void an_add_goes_to_the_tier_behind(void **state)
{
    struct tally_name n = name_of("durov");
    struct tier_story s;

    (void)state;
    tier_begin(&s);
    assert_int_equal(node_tally_add_behind(fleet_node(s.f, 0), &n, 3, fleet_wall_ms(s.f), &s.total,
                                           &s.added, &s.fx), 0);
    assert_true(s.added && s.total == 3);
    assert_int_equal(s.fx.count, 1);
    assert_int_equal(s.fx.at[0].call_id, 0);
    assert_true(s.fx.at[0].marks[0] == 3 && s.fx.at[0].marks[1] == UINT64_MAX);
    tier_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_node_knows_the_sum_of_all),
        cmocka_unit_test(a_limit_holds_over_the_fleet),
        cmocka_unit_test(a_limit_holds_while_a_node_dies),
        cmocka_unit_test(counts_of_the_dead_stay_until_the_window_ends),
        cmocka_unit_test(a_joiner_is_given_the_table),
        cmocka_unit_test(a_joiner_is_given_the_table_by_the_next_coordinator),
        cmocka_unit_test(what_was_lost_is_said_again),
        cmocka_unit_test(a_slow_member_gets_one_call_at_a_time),
        cmocka_unit_test(nobody_says_what_all_know),
        cmocka_unit_test(a_leaving_node_says_its_last_word),
        cmocka_unit_test(what_is_malformed_is_refused_and_counted),
        cmocka_unit_test(alone_it_counts_for_itself),
        cmocka_unit_test(the_tier_decides_and_own_adds_are_counted_here_too),
        cmocka_unit_test(without_a_word_from_the_tier_what_is_known_here_decides),
        cmocka_unit_test(who_waits_for_the_tier_may_leave),
        cmocka_unit_test(an_add_goes_to_the_tier_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
