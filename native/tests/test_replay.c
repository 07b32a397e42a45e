/* Replay windows (W4): each counter once, sessions bounded, none forgotten too early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/prng.h"
#include "core/replay.h"

#define NOW UINT64_C(1700000000000)

static const uint8_t hash_key[16] = {4, 2};

static enum verdict check_at(struct replay *r, uint64_t id, uint64_t counter, uint64_t sent_ms,
                             uint64_t wall_ms)
{
    struct frame f = {.sender_id = id, .random = {9}, .counter = counter, .sent_ms = sent_ms};
    return replay_check(r, &f, wall_ms);
}

static enum verdict check(struct replay *r, uint64_t counter)
{
    return check_at(r, 1, counter, NOW, NOW);
}

/* The window's edges, as WireGuard's selftest tells them. */
static void each_counter_once(void **state)
{
    enum { W = REPLAY_WINDOW };
    static const struct { uint64_t counter; bool fresh; } table[] = {
        {0, true}, {1, true}, {1, false}, {9, true}, {8, true}, {7, true}, {7, false}, {0, false},
        {W, true}, {W - 1, true}, {W - 1, false}, {W - 2, true}, {2, true}, {2, false},
        {W + 16, true}, {3, false}, {W + 16, false}, {W * 4, true}, {W * 4 - (W - 1), true},
        {W * 4 - (W - 1), false}, {W * 4 - W, true}, {W * 4 - W, false}, {W * 4 - (W + 1), false},
        {W * 4 - (W - 2), true}, {W * 4 + 1, true}, {W * 4 - W, false}, {0, false},
        {UINT64_C(1) << 40, true}, {W * 4 + 1, false}, {(UINT64_C(1) << 40) - W, true},
        {(UINT64_C(1) << 40) - 1, true}, {(UINT64_C(1) << 40) - 1, false},
        {UINT64_MAX - 1, true}, {UINT64_MAX, true}, {UINT64_MAX, false}, {UINT64_MAX - 1, false},
        {UINT64_MAX - 2, true}, {UINT64_MAX - W, true}, {UINT64_MAX - W - 1, false}, {0, false},
    };
    struct replay *r = replay_new(hash_key);

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        enum verdict v = check(r, table[i].counter);
        if (v != (table[i].fresh ? VERDICT_OK : VERDICT_REPLAY))
            fail_msg("line %zu: %s", i, verdict_text(v));
    }
    assert_int_equal(replay_count(r), 1);
    replay_free(r);
}

/* Against a naive record of all that was ever accepted. */
static void agrees_with_a_naive_window(void **state)
{
    enum { COUNTERS = 20000 };
    static uint8_t seen[COUNTERS];
    struct replay *r = replay_new(hash_key);
    struct prng random;
    uint64_t base = 0, highest = 0;
    bool any = false;
    unsigned accepted = 0, refused = 0;

    (void)state;
    prng_seed(&random, 3);
    memset(seen, 0, sizeof seen);
    while (base < COUNTERS - 3000) {
        uint64_t c = base + prng_below(&random, 2500);
        bool fresh = !seen[c] && (!any || c >= highest || highest - c <= REPLAY_WINDOW);
        assert_int_equal(check(r, c), fresh ? VERDICT_OK : VERDICT_REPLAY);
        if (fresh) {
            seen[c] = 1;
            highest = any && highest > c ? highest : c;
            any = true;
        }
        accepted += fresh;
        refused += !fresh;
        base += prng_below(&random, 8) == 0;
    }
    assert_true(accepted > 1000 && refused > 1000);
    replay_free(r);
}

static void sessions_are_apart(void **state)
{
    struct replay *r = replay_new(hash_key);
    struct frame f = {.sender_id = 1, .random = {1}, .counter = 5, .sent_ms = NOW};

    (void)state;
    assert_int_equal(replay_check(r, &f, NOW), VERDICT_OK);
    f.random[15] = 1;       /* the same node started again */
    assert_int_equal(replay_check(r, &f, NOW), VERDICT_OK);
    f.sender_id = 2;
    assert_int_equal(replay_check(r, &f, NOW), VERDICT_OK);
    assert_int_equal(replay_check(r, &f, NOW), VERDICT_REPLAY);
    assert_int_equal(replay_count(r), 3);
    replay_free(r);
}

static void a_full_table_refuses_and_evicts_nobody(void **state)
{
    struct replay *r = replay_new(hash_key);
    const uint64_t end = NOW + CLOCK_SKEW_MS_MAX;

    (void)state;
    for (uint64_t id = 1; id <= SESSIONS_MAX; id++)
        assert_int_equal(check_at(r, id, 1, NOW, NOW), VERDICT_OK);
    assert_int_equal(replay_count(r), SESSIONS_MAX);
    assert_int_equal(check_at(r, SESSIONS_MAX + 1, 1, NOW, NOW), VERDICT_FULL);
    assert_int_equal(check_at(r, SESSIONS_MAX + 1, 2, end, end), VERDICT_FULL);
    for (uint64_t id = 1; id <= SESSIONS_MAX; id++) {       /* those in it go on */
        assert_int_equal(check_at(r, id, 1, NOW, NOW), VERDICT_REPLAY);
        assert_int_equal(check_at(r, id, 2, NOW + (id == 1), NOW), VERDICT_OK);
    }
    /* All but one expire at once: there is room, and the one keeps its window. */
    for (uint64_t id = 2; id <= SESSIONS_MAX; id++)
        assert_int_equal(check_at(r, SESSIONS_MAX + id, 3, end + 1, end + 1), VERDICT_OK);
    assert_true(replay_count(r) <= SESSIONS_MAX);
    assert_int_equal(check_at(r, 1, 2, end + 1, end + 1), VERDICT_REPLAY);
    replay_free(r);
}

/* A session's old frame passes the clock check as long as the session is kept. */
static void a_replay_is_refused_until_the_clock_refuses_it(void **state)
{
    struct replay *r = replay_new(hash_key);

    (void)state;
    assert_int_equal(check_at(r, 1, 1, NOW, NOW), VERDICT_OK);
    for (uint64_t ms = 0; ms <= CLOCK_SKEW_MS_MAX; ms += 10) {
        check_at(r, 2, 1 + ms, NOW + ms, NOW + ms);         /* the hand moves on */
        assert_int_equal(check_at(r, 1, 1, NOW, NOW + ms), VERDICT_REPLAY);
    }
    replay_free(r);
}

static void a_clock_that_steps_back_opens_nothing(void **state)
{
    struct replay *r = replay_new(hash_key);
    const uint64_t later = NOW + 3600 * 1000;

    (void)state;
    assert_int_equal(check_at(r, 1, 1, NOW, NOW), VERDICT_OK);
    for (uint64_t c = 1; c <= 4096; c++)        /* long enough for all that is old to go */
        assert_int_equal(check_at(r, 2, c, later, later), VERDICT_OK);
    assert_int_equal(replay_count(r), 1);
    /* An hour back: what the forgotten session sent is not let in again, ... */
    assert_int_equal(check_at(r, 1, 1, NOW, NOW), VERDICT_REPLAY);
    assert_int_equal(check_at(r, 1, 2, NOW, NOW), VERDICT_REPLAY);
    /* ... what it sends from now on is, and nobody else is shut out. */
    assert_int_equal(check_at(r, 1, 2, NOW + 1, NOW + 1), VERDICT_OK);
    assert_int_equal(check_at(r, 3, 1, NOW + 1, NOW + 1), VERDICT_OK);
    assert_int_equal(check_at(r, 2, 4097, NOW + 1, NOW + 1), VERDICT_OK);
    assert_int_equal(check_at(r, 2, 4096, later, NOW + 1), VERDICT_REPLAY);
    replay_free(r);
}

/* Found by fuzzing: the forgotten session begins anew, honestly, and the clock steps back
 * only then. Its new window has not seen what its old one had. */
static void a_session_begun_anew_takes_nothing_from_before(void **state)
{
    struct replay *r = replay_new(hash_key);
    const uint64_t later = NOW + CLOCK_SKEW_MS_MAX + 10000;

    (void)state;
    assert_int_equal(check_at(r, 1, 5, NOW, NOW), VERDICT_OK);
    for (uint64_t c = 1; c <= 4096; c++)
        assert_int_equal(check_at(r, 2, c, later, later), VERDICT_OK);
    assert_int_equal(check_at(r, 1, 11, later, later), VERDICT_OK);
    assert_int_equal(check_at(r, 1, 5, NOW, NOW + 20000), VERDICT_REPLAY);
    assert_int_equal(check_at(r, 1, 6, NOW, NOW + 20000), VERDICT_REPLAY);
    assert_int_equal(check_at(r, 1, 12, later, later), VERDICT_OK);
    replay_free(r);
}

static void what_has_expired_is_given_back(void **state)
{
    struct replay *r = replay_new(hash_key);
    const uint64_t later = NOW + CLOCK_SKEW_MS_MAX + 1;

    (void)state;
    for (uint64_t id = 1; id <= SESSIONS_MAX / 2; id++)
        assert_int_equal(check_at(r, id, 1, NOW, NOW), VERDICT_OK);
    for (uint64_t c = 1; c <= 4096; c++)
        assert_int_equal(check_at(r, UINT64_MAX, c, later, later), VERDICT_OK);
    assert_int_equal(replay_count(r), 1);
    replay_free(r);
}

static void no_memory_counts_as_full(void **state)
{
    (void)state;
    mem_fail_after(0);
    struct replay *r = replay_new(hash_key);
    mem_fail_after(-1);
    assert_null(r);

    r = replay_new(hash_key);
    mem_fail_after(0);
    enum verdict v = check(r, 1);
    mem_fail_after(-1);
    assert_int_equal(v, VERDICT_FULL);
    assert_int_equal(replay_count(r), 0);
    assert_int_equal(check(r, 1), VERDICT_OK);
    replay_free(r);
    replay_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_counter_once),
        cmocka_unit_test(agrees_with_a_naive_window),
        cmocka_unit_test(sessions_are_apart),
        cmocka_unit_test(a_full_table_refuses_and_evicts_nobody),
        cmocka_unit_test(a_replay_is_refused_until_the_clock_refuses_it),
        cmocka_unit_test(a_clock_that_steps_back_opens_nothing),
        cmocka_unit_test(a_session_begun_anew_takes_nothing_from_before),
        cmocka_unit_test(what_has_expired_is_given_back),
        cmocka_unit_test(no_memory_counts_as_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
