/* The store: who goes when it is full. */
#include "tests/shelf.h"

/* What was asked for once more stays through a scan of things asked for once. */
static void a_scan_does_not_evict_what_is_hit(void **state)
{
    struct store *s = store_new(1000 * SMALL_ENTRY_BYTES, shelf_hash_key);

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        shelf_put_text(s, shelf_key(i), "hot");
    for (unsigned i = 0; i < 20000; i++) {
        assert_true(shelf_has(s, shelf_key(i % 100)));
        assert_int_equal(shelf_put_text(s, shelf_key(1000 + i), "once"), ERR_OK);
    }
    struct store_stats stats;
    store_stats(s, &stats);
    assert_true(stats.evicted > 10000);
    shelf_bytes(s);
    store_free(s);
}

/* A loop longer than the room would find nothing in an LRU, nor in SIEVE alone. */
static void a_loop_larger_than_the_store_still_hits(void **state)
{
    struct store *s = store_new(1000 * SMALL_ENTRY_BYTES, shelf_hash_key);
    struct store_stats stats;
    unsigned hits = 0, room = 0;

    (void)state;
    while (shelf_put_text(s, shelf_key(room), "v") == ERR_OK && shelf_entries(s) == room + 1)
        room++;
    const unsigned loop = room + room / 10, asks = 40 * loop;
    for (unsigned i = 0; i < asks; i++) {
        if (shelf_has(s, shelf_key(i % loop)))
            hits++;
        else
            assert_int_equal(shelf_put_text(s, shelf_key(i % loop), "v"), ERR_OK);
    }
    store_stats(s, &stats);
    assert_true(stats.evicted > 1000);
    assert_true(hits > asks / 4 * 3);
    shelf_bytes(s);
    store_free(s);
}

/* A hit lets a newcomer into a full store, where one without must find somebody whose own
 * asks have faded. */
static void who_is_hit_is_let_in(void **state)
{
    struct store *s = store_new(1000 * SMALL_ENTRY_BYTES, shelf_hash_key);
    unsigned kept[2] = {0, 0};

    (void)state;
    for (unsigned i = 0; i < 6000; i++)
        assert_int_equal(shelf_put_text(s, shelf_key(i), "once"), ERR_OK);
    for (unsigned i = 0; i < 600; i++) {
        assert_int_equal(shelf_put_text(s, shelf_key(10000 + i), "new"), ERR_OK);
        if (i % 2)
            assert_true(shelf_has(s, shelf_key(10000 + i)));
    }
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(shelf_put_text(s, shelf_key(20000 + i), "once"), ERR_OK);
    for (unsigned i = 0; i < 600; i++)
        kept[i % 2] += shelf_has(s, shelf_key(10000 + i));
    assert_true(kept[1] > 270);
    assert_true(kept[0] < 200);
    store_free(s);
}

/* What was popular gives way to what is: the past fades. */
static void yesterdays_favourites_give_way(void **state)
{
    struct store *s = store_new(1000 * SMALL_ENTRY_BYTES, shelf_hash_key);
    struct prng p;
    unsigned hits = 0;

    (void)state;
    prng_seed(&p, 3);
    for (unsigned day = 0; day < 2; day++) {
        hits = 0;
        for (unsigned i = 0; i < 200000; i++) {
            /* 500 favourites of the day, and as many asks for what nobody asks for twice */
            unsigned key = i % 2 ? 1000 * day + (unsigned)prng_below(&p, 500) : 10000 + i + day * 200000;
            if (i >= 150000 && i % 2)
                hits += shelf_has(s, shelf_key(key));
            if (!shelf_has(s, shelf_key(key)))
                assert_int_equal(shelf_put_text(s, shelf_key(key), "v"), ERR_OK);
        }
        assert_true(hits > 24000);      /* of 25,000 in the last quarter of the day */
    }
    store_free(s);
}

/* Large values: the one just loaded is not gone with the next, however popular the rest. */
static void a_few_large_values_do_not_push_each_other_out_at_once(void **state)
{
    struct store *s = store_new(1u << 20, shelf_hash_key);

    (void)state;
    for (unsigned i = 0; i < 200; i++) {
        struct blob *b = blob_new(56 << 10);
        struct store_item item = shelf_item(shelf_key(i), SPAN_NONE);
        memset(blob_fill(b), 1, 56 << 10);
        item.blob = b;
        assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        blob_unref(b);
        for (unsigned hot = 0; hot < 8; hot++)
            shelf_has(s, shelf_key(hot));
        for (unsigned back = 0; back < 4 && back <= i; back++)
            assert_true(shelf_has(s, shelf_key(i - back)));
    }
    shelf_bytes(s);
    store_free(s);
}

static void when_everything_is_hit_something_goes_all_the_same(void **state)
{
    struct store *s = store_new(5000 * SMALL_ENTRY_BYTES, shelf_hash_key);
    struct store_stats stats = {0};
    unsigned n = 0;

    (void)state;
    for (; stats.evicted == 0; n++) {
        assert_int_equal(shelf_put_text(s, shelf_key(n), "v"), ERR_OK);
        assert_true(shelf_has(s, shelf_key(n)));
        store_stats(s, &stats);
    }
    /* Each is hit again before each put, so the hand always finds only marked ones. */
    for (unsigned round = 0; round < 20; round++, n++) {
        for (unsigned i = 0; i < n; i++)
            shelf_has(s, shelf_key(i));
        assert_int_equal(shelf_put_text(s, shelf_key(n), "v"), ERR_OK);
        assert_true(shelf_has(s, shelf_key(n)));
    }
    shelf_bytes(s);
    store_free(s);
}

static void what_is_gone_is_evicted_first_whatever_its_hits(void **state)
{
    struct store *s = store_new(100 * SMALL_ENTRY_BYTES, shelf_hash_key);
    struct store_stats stats = {0};
    struct store_hit hit;

    (void)state;
    /* Larger than the others: its place is enough for one of them and for a table's growth. */
    static const uint8_t large[500];
    struct store_item item = shelf_item(span_text("short"), span_of(large, sizeof large));
    item.expires_ms = item.stale_until_ms = 10;
    assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
    assert_true(store_get(s, span_text("short"), 5, false, &hit));
    for (unsigned i = 0; stats.evicted + stats.expired == 0; i++) {
        item = shelf_item(shelf_key(i), span_text("v"));
        assert_int_equal(shelf_put(s, &item, 20), ERR_OK);
        store_stats(s, &stats);
    }
    assert_int_equal(stats.expired, 1);
    assert_int_equal(stats.evicted, 0);
    assert_false(shelf_has(s, span_text("short")));
    store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scan_does_not_evict_what_is_hit),
        cmocka_unit_test(a_loop_larger_than_the_store_still_hits),
        cmocka_unit_test(who_is_hit_is_let_in),
        cmocka_unit_test(yesterdays_favourites_give_way),
        cmocka_unit_test(a_few_large_values_do_not_push_each_other_out_at_once),
        cmocka_unit_test(when_everything_is_hit_something_goes_all_the_same),
        cmocka_unit_test(what_is_gone_is_evicted_first_whatever_its_hits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
