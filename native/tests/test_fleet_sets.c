/* Deletes and sets over a whole fleet, as stories on virtual time (rules D1-D4): what many nodes
 * change at once, what comes late, and what is run at two nodes ends with one value everywhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/prng.h"
#include "sim/fleet.h"

#define TTL 10000u

static const struct fleet_config usual = {
    .nodes = 4, .latency_ms = 1, .load_ms = 150, .timeout_ms = 250, .load_timeout_ms = 10000,
    .heir = true, .seed = 1,
};

static void send_to(struct fleet *f, unsigned i, const struct message *m)
{
    struct blob *value = blob_copy(span_text("sent"));
    struct effects fx;

    effects_init(&fx);
    node_frame(fleet_node(f, i), 1u << 20, m, value, fleet_now_ms(f), &fx);
    effects_deinit(&fx);
    blob_unref(value);
}

static void push_to(struct fleet *f, unsigned i, const char *key, uint64_t delete_id)
{
    struct message m = {.kind = MESSAGE_PUSH, .key = span_text(key), .ttl_ms = TTL,
                        .request_id = 1, .delete_id = delete_id};
    send_to(f, i, &m);
}

/* D1: a set or delete that lay in a stopped node's socket until its sender had given it up. The
 * entry goes and the value is not kept; what was made before a DROP is not taken from others, and
 * a newer change that came first, over another connection, is not undone. */
static void test_a_change_that_comes_too_late_is_not_made(void **state)
{
    static const uint8_t kinds[] = {MESSAGE_DELETE, MESSAGE_DROP};

    (void)state;
    for (unsigned i = 0; i < 2 * ARRAY_COUNT(kinds); i++) {
        struct fleet *f = fleet_new(&usual);
        unsigned owner = fleet_rank(f, "k", 0), at = fleet_rank(f, "k", i % 2);
        bool drop = kinds[i / 2] == MESSAGE_DROP;
        struct message late = {.kind = kinds[i / 2], .key = span_text("k"), .request_id = 1,
                               .flags = MESSAGE_SET, .ttl_ms = TTL, .delete_id = drop ? 77 : 0};
        struct message newer = {.kind = MESSAGE_DROP, .key = span_text("k"), .request_id = 1,
                                .flags = MESSAGE_SET, .ttl_ms = TTL, .delete_id = 99};
        fleet_ask(f, owner, "k", FLEET_REGISTERED, TTL, 0);
        fleet_run(f, 400);
        assert_true(fleet_holds(f, at, "k"));
        node_late_change(fleet_node(f, at), &late, fleet_now_ms(f));
        assert_false(fleet_holds(f, at, "k"));
        push_to(f, at, "k", drop ? 0 : 77);
        assert_false(fleet_holds(f, at, "k"));
        push_to(f, at, "other", 0);         /* pushes are taken, then */
        assert_true(fleet_holds(f, at, "other"));
        send_to(f, at, &newer);
        assert_true(fleet_holds_value(f, at, "k", "sent"));
        node_late_change(fleet_node(f, at), &late, fleet_now_ms(f));
        push_to(f, at, "k", 77);
        assert_false(fleet_holds(f, at, "k"));
        push_to(f, at, "k", 99);
        assert_true(fleet_holds(f, at, "k"));
        fleet_free(f);
    }
}

/* Everyone that holds the key holds the same; `value` is then what they hold, "" if nobody
 * does. */
static bool agree(struct fleet *f, unsigned nodes, const char *key, unsigned values,
                  char value[32])
{
    bool found = false;

    value[0] = '\0';
    for (unsigned v = 0; v < values; v++) {
        char text[32];
        bool held = false;
        snprintf(text, sizeof text, "v%u", v);
        for (unsigned i = 0; i < nodes; i++)
            held |= fleet_holds_value(f, i, key, text);
        if (held && found)
            return false;
        if (held)
            memcpy(value, text, sizeof text);
        found |= held;
    }
    return true;
}

/* D4: sets and deletes of one key by all nodes at once. Each is run by the key's owner in some
 * order, and whoever asked hears of it after newer ones perhaps: the last one stays, everywhere. */
static void test_sets_at_the_same_moment_leave_one_value(void **state)
{
    char text[32];

    (void)state;
    for (unsigned seed = 0; seed < 200; seed++) {
        struct fleet_config config = usual;
        config.seed = seed;
        config.spread_ms = seed % 7;
        struct fleet *f = fleet_new(&config);
        const struct fleet_change *changes[4];
        unsigned deleter = seed % 3 ? 4 : seed / 3 % 4;
        for (unsigned i = 0; i < 4; i++) {
            snprintf(text, sizeof text, "v%u", i);
            changes[i] = i == deleter ? fleet_delete(f, i, "k") : fleet_set(f, i, "k", text, TTL);
            fleet_run(f, seed % 2);
        }
        fleet_run(f, 1000);
        for (unsigned i = 0; i < 4; i++) {
            assert_true(changes[i]->done);
            assert_int_equal(changes[i]->acknowledged, 4);
        }
        if (!agree(f, 4, "k", 4, text))
            fail_msg("seed %u: different values", seed);
        unsigned owner = fleet_rank(f, "k", 0);
        assert_int_equal(fleet_holds(f, owner, "k"), text[0] != '\0');
        if (deleter == 4)
            assert_true(fleet_holds(f, owner, "k"));
        fleet_free(f);
    }
}

/* The same where two nodes run them at once: the owner goes on just when the first asker has
 * given it up and turns to the heir, and the others ask the owner. */
static void test_changes_run_side_by_side_leave_one_value(void **state)
{
    unsigned acknowledged = 0, both = 0, one = 0;
    char text[32];

    (void)state;
    for (unsigned seed = 0; seed < 1000; seed++) {
        struct fleet_config config = usual;
        config.seed = seed;
        config.spread_ms = seed % 5;
        config.skew_ms = seed % 3 * 7000;
        struct fleet *f = fleet_new(&config);
        struct prng prng;
        const struct fleet_change *changes[8];
        bool all = true;
        prng_seed(&prng, seed);
        unsigned owner = fleet_rank(f, "k", 0);
        fleet_silence(f, owner, true);
        for (unsigned c = 0; c < 8; c++) {
            unsigned at = (owner + 1 + (unsigned)prng_below(&prng, 3)) % 4;
            snprintf(text, sizeof text, "v%u", c);
            changes[c] = prng_below(&prng, 4) ? fleet_set(f, at, "k", text, TTL)
                                              : fleet_delete(f, at, "k");
            if (c == 2)     /* the owner's three times 250 ms are over soon */
                fleet_run(f, 730 + (uint32_t)prng_below(&prng, 20));
            if (c == 4)
                fleet_silence(f, owner, false);
            fleet_run(f, (uint32_t)prng_below(&prng, 4));
        }
        fleet_run(f, 3000);
        for (unsigned c = 0; c < 8; c++) {
            assert_true(changes[c]->done);
            all &= changes[c]->unreached == 0;
        }
        acknowledged += all;
        if (all && !agree(f, 4, "k", 8, text))
            fail_msg("seed %u: different values", seed);
        both += all && text[0] && fleet_holds(f, owner, "k") &&
                fleet_holds(f, fleet_rank(f, "k", 1), "k");
        one += all && text[0];
        fleet_free(f);
    }
    assert_true(acknowledged > 500);
    assert_true(both * 10 > one * 9);   /* and it is there twice */
}

/* Wall clocks may be apart: a change that follows an acknowledged one is still the later, also
 * where it is run by a node that was not there when the other was. */
static void test_clocks_that_are_apart(void **state)
{
    char text[32];

    (void)state;
    for (unsigned seed = 0; seed < 100; seed++) {
        struct fleet_config config = usual;
        config.seed = seed;
        config.skew_ms = seed % 2 ? 9000 : 3600000;
        struct fleet *f = fleet_new(&config);
        unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1);
        for (unsigned n = 0; n < 12; n++) {
            if (n == 6) {
                fleet_kill(f, owner);
                fleet_start(f, owner);
                fleet_views(f, 0xf);
            }
            snprintf(text, sizeof text, "v%u", n);
            const struct fleet_change *c = fleet_set(f, (seed + n) % 4, "k", text, TTL);
            fleet_run(f, 50);
            assert_true(c->done);
            assert_int_equal(c->acknowledged, 4);
            assert_true(fleet_holds_value(f, owner, "k", text));
            for (unsigned i = 0; i < 4; i++) {
                if (i != owner && fleet_holds(f, i, "k"))
                    assert_true(fleet_holds_value(f, i, "k", text));
            }
            assert_true(fleet_holds_value(f, heir, "k", text));
        }
        fleet_free(f);
    }
}

/* A member whose ids are an hour ahead, or at their end, makes no other key's sets fail. */
static void test_an_id_that_is_far_ahead(void **state)
{
    uint64_t hour = (FLEET_WALL_MS + 3600000) << 20;

    (void)state;
    for (unsigned run = 0; run < 2; run++) {
        struct fleet *f = fleet_new(&usual);
        struct message m = {.kind = MESSAGE_DROP, .key = span_text("k"), .request_id = 1,
                            .flags = MESSAGE_SET, .ttl_ms = TTL,
                            .delete_id = run ? UINT64_MAX : hour + (fleet_now_ms(f) << 20)};
        for (unsigned i = 0; i < 4; i++)
            send_to(f, i, &m);
        assert_true(fleet_holds_value(f, fleet_rank(f, "k", 0), "k", "sent"));
        for (unsigned i = 0; i < 4; i++) {
            const struct fleet_change *k = fleet_set(f, i, "k", "v", TTL);
            const struct fleet_change *other = fleet_set(f, i, "other", "v", TTL);
            fleet_run(f, 100);
            assert_int_equal(k->acknowledged, 4);
            assert_int_equal(other->acknowledged, 4);
            assert_int_equal(fleet_holds_value(f, fleet_rank(f, "k", 0), "k", "v"), run == 0);
            for (unsigned j = 0; j < 4; j++)
                assert_false(fleet_holds_value(f, j, "k", "sent"));
            for (unsigned rank = 0; rank < 2; rank++)
                assert_true(fleet_holds_value(f, fleet_rank(f, "other", rank), "other", "v"));
        }
        fleet_run(f, 11000);            /* what was remembered is forgotten */
        fleet_set(f, 0, "k", "later", TTL);
        fleet_run(f, 100);
        assert_true(fleet_holds_value(f, fleet_rank(f, "k", 0), "k", "later"));
        fleet_free(f);
    }
}

/* Who has applied a delete does not take an older value from an owner that it could not reach:
 * asked next is the heir, which loads. What the owner loads afterwards is taken from it. */
static void test_a_deleted_value_is_not_taken_from_who_missed_the_delete(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 4; how++) {
        struct fleet *f = fleet_new(&usual);
        unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1), others[2], n = 0;
        unsigned flags = (how & 1 ? FLEET_THREAD : 0) | (how & 2 ? FLEET_LOADS : FLEET_REGISTERED);
        struct message drop = {.kind = MESSAGE_DROP, .key = span_text("k"), .request_id = 1,
                               .flags = how == 3 ? MESSAGE_BY_CHANNEL : 0, .delete_id = 77};
        fleet_ask(f, owner, "k", flags, TTL, 0);
        fleet_run(f, 400);
        assert_true(fleet_holds_value(f, owner, "k", "k#1"));
        for (unsigned i = 0; i < 4; i++) {
            if (i != owner)
                send_to(f, i, &drop);
            if (i != owner && i != heir)
                others[n++] = i;
        }
        fleet_run(f, 10);
        const struct fleet_ask *after = fleet_ask(f, others[0], "k", flags, TTL, 0);
        fleet_run(f, 400);
        assert_true(after->done);
        assert_string_equal(after->value, "k#2");
        assert_true(fleet_holds_value(f, heir, "k", "k#2"));
        send_to(f, owner, &drop);
        fleet_ask(f, owner, "k", flags | FLEET_FRESH, TTL, 0);
        fleet_run(f, 400);
        after = fleet_ask(f, others[1], "k", flags, TTL, 0);
        fleet_run(f, 400);
        assert_string_equal(after->value, "k#3");
        assert_int_equal(fleet_loads(f, "k"), 3);
        fleet_free(f);
    }
}

/* Who applied a set late does not take its value, from a sender that has forgotten the set's id
 * already, for one from before it. */
static void test_who_applied_a_set_late_takes_its_value(void **state)
{
    uint32_t remembered_ms = usual.load_timeout_ms + 2 * usual.timeout_ms;

    (void)state;
    for (unsigned at_ms = 0; at_ms < 20000; at_ms += 500) {
        struct fleet *f = fleet_new(&usual);
        unsigned owner = fleet_rank(f, "k", 0), heir = fleet_rank(f, "k", 1), late = 0;
        struct message set = {.kind = MESSAGE_DROP, .key = span_text("k"), .request_id = 1,
                              .flags = MESSAGE_SET, .ttl_ms = 60000, .delete_id = 77};
        while (late == owner || late == heir)
            late++;
        send_to(f, owner, &set);
        send_to(f, heir, &set);
        fleet_run(f, remembered_ms / 3);
        set.flags = 0;
        send_to(f, late, &set);
        fleet_run(f, at_ms);
        const struct fleet_ask *asked = fleet_ask(f, late, "k", FLEET_LOADS, TTL, 0);
        fleet_run(f, 400);
        assert_string_equal(asked->value, "sent");
        fleet_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_change_that_comes_too_late_is_not_made),
        cmocka_unit_test(test_sets_at_the_same_moment_leave_one_value),
        cmocka_unit_test(test_changes_run_side_by_side_leave_one_value),
        cmocka_unit_test(test_clocks_that_are_apart),
        cmocka_unit_test(test_an_id_that_is_far_ahead),
        cmocka_unit_test(test_a_deleted_value_is_not_taken_from_who_missed_the_delete),
        cmocka_unit_test(test_who_applied_a_set_late_takes_its_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
