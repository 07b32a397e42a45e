/* Remembered deletes, rule D1: an id per name until its time is over, and a full table
 * that says so for as long as what it could not remember may matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/deletes.h"
#include "core/limits.h"
#include "core/mem.h"
#include "core/prng.h"

static const uint8_t hash_key[16] = {3, 1, 4, 1, 5, 9};

static struct span name_of(unsigned i)
{
    static char name[32];

    snprintf(name, sizeof name, "key-%u", i);
    return span_text(name);
}

static void an_id_is_remembered_until_its_time(void **state)
{
    struct deletes *d = deletes_new(hash_key);

    (void)state;
    assert_int_equal(deletes_get(d, span_text("a"), 0), 0);
    assert_true(deletes_put(d, span_text("a"), 77, 1000, 2000));
    assert_int_equal(deletes_get(d, span_text("a"), 1000), 77);
    assert_int_equal(deletes_get(d, span_text("a"), 1999), 77);
    assert_int_equal(deletes_get(d, span_text("a"), 2000), 0);
    assert_int_equal(deletes_get(d, span_text("b"), 1000), 0);
    assert_true(deletes_put(d, SPAN_NONE, 5, 1000, 2000));      /* any bytes are a name */
    assert_int_equal(deletes_get(d, SPAN_NONE, 1000), 5);
    deletes_free(d);
    deletes_free(NULL);
}

static void a_later_delete_takes_its_place(void **state)
{
    struct deletes *d = deletes_new(hash_key);

    (void)state;
    assert_true(deletes_put(d, span_text("a"), 1, 0, 100));
    assert_true(deletes_put(d, span_text("a"), 2, 50, 150));
    assert_int_equal(deletes_count(d), 1);
    assert_int_equal(deletes_get(d, span_text("a"), 120), 2);
    deletes_free(d);
}

static void a_full_table_keeps_what_it_has_and_says_so(void **state)
{
    struct deletes *d = deletes_new(hash_key);
    const unsigned max = DELETES_REMEMBERED_MAX;

    (void)state;
    for (unsigned i = 0; i < max; i++)
        assert_true(deletes_put(d, name_of(i), i + 1, 0, 1000 + i % 2));
    assert_false(deletes_full(d, 0));
    assert_false(deletes_put(d, span_text("one more"), 9, 10, 1500));
    assert_true(deletes_full(d, 10));
    for (unsigned i = 0; i < max; i += 7)
        assert_int_equal(deletes_get(d, name_of(i), 10), i + 1);
    /* One that is there already is always taken. */
    assert_true(deletes_put(d, name_of(3), 1234, 20, 1020));
    assert_int_equal(deletes_get(d, name_of(3), 20), 1234);

    /* There is room again, but the refused one could still be undone. */
    assert_true(deletes_put(d, span_text("another"), 8, 1200, 2200));
    assert_true(deletes_full(d, 1499));
    assert_false(deletes_full(d, 1500));
    for (unsigned i = 1; i < max; i++)
        assert_true(deletes_put(d, name_of(max + i), i, 1500, 2500));
    assert_int_equal(deletes_count(d), max);
    deletes_free(d);
}

static void what_has_expired_goes_by_and_by(void **state)
{
    struct deletes *d = deletes_new(hash_key);
    size_t count_max = 0;

    (void)state;
    /* Each lives for 4 others: the table neither fills nor grows. */
    for (unsigned i = 0; i < 20000; i++) {
        assert_true(deletes_put(d, name_of(i), i + 1, i, i + 4));
        assert_int_equal(deletes_get(d, name_of(i), i), i + 1);
        if (deletes_count(d) > count_max)
            count_max = deletes_count(d);
    }
    assert_true(count_max <= 16);
    deletes_free(d);
}

#define NAMES 200u

static void it_behaves_like_a_plain_array(void **state)
{
    struct deletes *d = deletes_new(hash_key);
    uint64_t ids[NAMES] = {0}, until[NAMES] = {0}, blind = 0, now = 0;
    unsigned refused = 0, expired = 0;
    struct prng prng;

    (void)state;
    prng_seed(&prng, 11);
    for (unsigned step = 0; step < 60000; step++) {
        unsigned i = (unsigned)prng_below(&prng, NAMES);
        now += prng_below(&prng, 3);
        if (prng_below(&prng, 3) == 0) {
            uint64_t id = prng_next(&prng) | 1, end = now + 1 + prng_below(&prng, 100);
            if (deletes_put(d, name_of(i), id, now, end)) {
                ids[i] = now < until[i] && ids[i] > id ? ids[i] : id;
                until[i] = end;
            } else {
                refused++;
                blind = end > blind ? end : blind;
            }
        }
        i = (unsigned)prng_below(&prng, NAMES);
        assert_int_equal(deletes_get(d, name_of(i), now), now < until[i] ? ids[i] : 0);
        expired += ids[i] != 0 && now >= until[i];
        assert_int_equal(deletes_full(d, now), now < blind);
    }
    assert_true(expired > 100);
#ifdef PEERAGE_SMALL_LIMITS
    assert_true(refused > 100);
#else
    assert_int_equal(refused, 0);
#endif
    deletes_free(d);
}

static void out_of_memory_is_a_full_table(void **state)
{
    struct deletes *d;
    unsigned i = 0;

    (void)state;
    for (long n = 0; n < 2; n++) {
        mem_fail_after(n);
        assert_null(deletes_new(hash_key));
    }
    mem_fail_after(-1);
    d = deletes_new(hash_key);
    for (bool put = true; put; i++) {
        mem_fail_after(0);
        put = deletes_put(d, name_of(i), i + 1, 0, 1000);
    }
    mem_fail_after(-1);
    assert_true(i > 8);     /* it used what room there was */
    assert_true(deletes_full(d, 999));
    for (unsigned j = 0; j + 1 < i; j++)
        assert_int_equal(deletes_get(d, name_of(j), 0), j + 1);
#ifndef PEERAGE_SMALL_LIMITS
    assert_true(deletes_put(d, name_of(i), 4, 0, 1000));
#endif
    deletes_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_remembered_until_its_time),
        cmocka_unit_test(a_later_delete_takes_its_place),
        cmocka_unit_test(a_full_table_keeps_what_it_has_and_says_so),
        cmocka_unit_test(what_has_expired_goes_by_and_by),
        cmocka_unit_test(it_behaves_like_a_plain_array),
        cmocka_unit_test(out_of_memory_is_a_full_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
