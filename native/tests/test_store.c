/* The store: what it promises call by call, then random operations beside a plain array,
 * with every invariant and the byte count checked against a walk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/err.h"
#include "core/limits.h"
#include "core/mem.h"
#include "core/prng.h"
#include "core/store.h"

#define ROOMY (64u << 20)
/* What an entry of a small key and value costs at most, its share of the tables included. */
#define SMALL_ENTRY_BYTES 256u

static const uint8_t hash_key[16] = {2, 7, 1, 8, 2, 8};

static struct span key_of(unsigned i)
{
    static char keys[4][32];
    static unsigned at;

    at = (at + 1) % 4;
    snprintf(keys[at], sizeof keys[at], "pages=key:%u", i);
    return span_text(keys[at]);
}

static struct store_item item_of(struct span key, struct span bytes)
{
    return (struct store_item){
        .key = key, .channel_hash = 1, .bytes = bytes,
        .expires_ms = NEVER_MS, .stale_until_ms = NEVER_MS,
    };
}

static void let_go(struct store_dropped *dropped)
{
    while (dropped->count)
        blob_unref(dropped->blobs[--dropped->count]);
}

/* Put as the shell does: again, with an empty list, while there is progress to be made. */
static int put(struct store *s, const struct store_item *item, uint64_t now_ms)
{
    struct store_dropped dropped = {0};
    int rc;

    do {
        rc = store_put(s, item, now_ms, &dropped);
        let_go(&dropped);
    } while (rc == ERR_FULL);
    return rc;
}

static int put_text(struct store *s, struct span key, const char *text)
{
    struct store_item item = item_of(key, span_text(text));
    return put(s, &item, 0);
}

static bool has(struct store *s, struct span key)
{
    struct store_hit hit;
    return store_get(s, key, 0, true, &hit);
}

static uint64_t bytes_of(struct store *s)
{
    struct store_stats stats;

    store_stats(s, &stats);
    assert_int_equal(store_check(s), stats.bytes);
    assert_true(stats.bytes <= stats.bytes_max);
    return stats.bytes;
}

static uint64_t entries_of(struct store *s)
{
    struct store_stats stats;

    store_stats(s, &stats);
    return stats.entries;
}

static void assert_text(struct store *s, struct span key, const char *text)
{
    struct store_hit hit;

    assert_true(store_get(s, key, 0, false, &hit));
    assert_true(span_equal(hit.bytes, span_text(text)));
}

static void what_is_put_is_got(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);
    struct store_dropped dropped = {0};
    struct store_hit hit;
    uint64_t empty = bytes_of(s);

    (void)state;
    assert_false(store_get(s, span_text("a"), 0, true, &hit));
    struct store_item item = item_of(span_text("a"), span_text("one"));
    item.value_type = VALUE_JSON;
    item.stored_ms = 5;
    item.expires_ms = 10;
    item.stale_until_ms = 20;
    assert_int_equal(put(s, &item, 5), ERR_OK);
    assert_true(store_get(s, span_text("a"), 7, false, &hit));
    assert_true(span_equal(hit.bytes, span_text("one")));
    assert_null(hit.blob);
    assert_int_equal(hit.value_type, VALUE_JSON);
    assert_int_equal(hit.stored_ms, 5);
    assert_int_equal(hit.expires_ms, 10);
    assert_int_equal(hit.stale_until_ms, 20);
    assert_false(hit.stale);

    assert_int_equal(put_text(s, span_text("a"), ""), ERR_OK);     /* empty is a value */
    assert_true(store_get(s, span_text("a"), 7, false, &hit));
    assert_int_equal(hit.bytes.bytes, 0);
    assert_int_equal(hit.expires_ms, NEVER_MS);
    assert_int_equal(entries_of(s), 1);

    assert_true(store_delete(s, span_text("a"), &dropped));
    assert_false(store_delete(s, span_text("a"), &dropped));
    assert_false(store_get(s, span_text("a"), 7, true, &hit));
    assert_int_equal(bytes_of(s), empty);
    store_free(s);
    store_free(NULL);
}

static void keys_of_every_length_are_apart(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);
    uint8_t key[KEY_BYTES_MAX + 1];

    (void)state;
    memset(key, 'k', sizeof key);
    for (size_t n = 0; n <= KEY_BYTES_MAX; n++) {
        struct store_item item = item_of(span_of(key, n), span_of(&n, sizeof n));
        assert_int_equal(put(s, &item, 0), ERR_OK);
    }
    assert_int_equal(entries_of(s), KEY_BYTES_MAX + 1);
    for (size_t n = 0; n <= KEY_BYTES_MAX; n++) {
        struct store_hit hit;
        assert_true(store_get(s, span_of(key, n), 0, false, &hit));
        assert_true(span_equal(hit.bytes, span_of(&n, sizeof n)));
    }
    struct store_item item = item_of(span_of(key, sizeof key), SPAN_NONE);
    assert_int_equal(put(s, &item, 0), ERR_TOO_BIG);
    bytes_of(s);
    store_free(s);
}

static unsigned released;

static void release(void *owner)
{
    (void)owner;
    released++;
}

static void small_values_lie_inline_large_and_foreign_ones_are_blobs(void **state)
{
    static uint8_t large[STORE_INLINE_BYTES_MAX + 1] = {9};
    const struct {
        size_t bytes;
        bool foreign, as_blob, kept_as_blob;
    } cases[] = {
        {100, false, false, false}, {STORE_INLINE_BYTES_MAX, false, false, false},
        {sizeof large, false, false, true}, {0, false, true, false},
        {STORE_INLINE_BYTES_MAX, false, true, false}, {sizeof large, false, true, true},
        {3, true, true, true}, {0, true, true, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct store *s = store_new(ROOMY, hash_key);
        struct span bytes = span_of(large, cases[i].bytes);
        struct store_item item = item_of(span_text("a"), bytes);
        struct blob *b = NULL;
        struct store_hit hit;

        released = 0;
        if (cases[i].as_blob) {
            b = cases[i].foreign ? blob_alias(bytes, NULL, release) : blob_copy(bytes);
            item.blob = b;
            item.bytes = SPAN_NONE;
        }
        assert_int_equal(put(s, &item, 0), ERR_OK);
        assert_true(store_get(s, span_text("a"), 0, false, &hit));
        assert_true(span_equal(hit.bytes, bytes));
        assert_int_equal(hit.blob != NULL, cases[i].kept_as_blob);
        if (b && cases[i].kept_as_blob)
            assert_ptr_equal(hit.blob, b);
        bytes_of(s);
        blob_unref(b);
        assert_int_equal(released, 0);
        store_free(s);
        assert_int_equal(released, cases[i].foreign);
    }
}

static void an_entry_lives_for_its_ttl_and_is_stale_for_a_while(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);
    const struct {
        uint64_t expires, stale_until, now;
        bool fresh, with_stale;
    } cases[] = {
        {100, 100, 99, true, true},     {100, 100, 100, false, false},
        {100, 150, 99, true, true},     {100, 150, 100, false, true},
        {100, 150, 149, false, true},   {100, 150, 150, false, false},
        {NEVER_MS, NEVER_MS, UINT64_MAX - 1, true, true},
        {100, NEVER_MS, UINT64_MAX - 1, false, true},
        {40, 40, 50, false, false},     /* expired before it was stored */
        {100, 90, 99, true, true},      /* a stale time before the end: none */
        {100, 90, 100, false, false},
        /* 50 days are cut, which a cache may do; never is not. */
        {UINT64_C(50) * 86400000, UINT64_C(50) * 86400000, UINT64_C(49) * 86400000, true, true},
        {UINT64_C(50) * 86400000, UINT64_C(50) * 86400000, UINT64_C(50) * 86400000, false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct store_item item = item_of(span_text("a"), span_text("v"));
        struct store_hit hit;

        item.stored_ms = 50;
        item.expires_ms = cases[i].expires;
        item.stale_until_ms = cases[i].stale_until;
        assert_int_equal(put(s, &item, 50), ERR_OK);
        assert_int_equal(store_get(s, span_text("a"), cases[i].now, false, &hit), cases[i].fresh);
        bool found = store_get(s, span_text("a"), cases[i].now, true, &hit);
        assert_int_equal(found, cases[i].with_stale);
        if (found)
            assert_int_equal(hit.stale, !cases[i].fresh);
    }
    store_free(s);
}

static void a_value_that_can_never_fit_evicts_nothing(void **state)
{
    struct store *s = store_new(32768, hash_key);
    struct blob *huge = blob_new(32768);
    unsigned n = 0;

    (void)state;
    memset(blob_fill(huge), 1, 32768);
    while (put_text(s, key_of(n), "small") == ERR_OK && entries_of(s) == n + 1)
        n++;
    uint64_t before = entries_of(s), bytes = bytes_of(s);
    assert_true(before > 50);

    struct store_item item = item_of(span_text("huge"), SPAN_NONE);
    item.blob = huge;
    assert_int_equal(put(s, &item, 0), ERR_TOO_BIG);
    item.key = key_of(n);       /* and the old value stays */
    assert_int_equal(put(s, &item, 0), ERR_TOO_BIG);
    assert_text(s, key_of(n), "small");
    assert_int_equal(entries_of(s), before);
    assert_int_equal(bytes_of(s), bytes);
    assert_int_equal(atomic_load(&huge->refs), 1);
    blob_unref(huge);
    store_free(s);
}

/* The largest value that may fit does, whatever the tables had grown to before. */
static void the_largest_value_replaces_everything(void **state)
{
    const size_t bytes_max = 4u << 20;
    struct store *s = store_new(bytes_max, hash_key);
    size_t low = 1, high = bytes_max;

    (void)state;
    for (unsigned i = 0; i < 30000; i++)
        assert_int_equal(put_text(s, key_of(i), "small"), ERR_OK);
    assert_true(entries_of(s) > 10000);
    while (high - low > 1) {    /* how large may it be? */
        struct blob *b = blob_new((low + high) / 2);
        struct store *other = store_new(bytes_max, hash_key);
        struct store_item item = item_of(span_text("large"), SPAN_NONE);
        item.blob = b;
        *(put(other, &item, 0) == ERR_OK ? &low : &high) = (low + high) / 2;
        store_free(other);
        blob_unref(b);
    }
    assert_true(low > bytes_max - 4096);
    struct blob *b = blob_new(low);
    struct store_item item = item_of(span_text("large"), SPAN_NONE);
    item.blob = b;
    assert_int_equal(put(s, &item, 0), ERR_OK);
    assert_int_equal(entries_of(s), 1);
    bytes_of(s);
    blob_unref(b);
    store_free(s);
}

static void a_store_too_small_for_anything_takes_nothing(void **state)
{
    struct store *s = store_new(0, hash_key);

    (void)state;
    assert_int_equal(put_text(s, span_text("a"), "b"), ERR_TOO_BIG);
    assert_false(has(s, span_text("a")));
    store_free(s);
}

static void out_of_memory_leaves_the_store_as_it_was(void **state)
{
    static uint8_t large[2000];
    struct store *s;
    uint64_t bytes;
    long n;

    (void)state;
    for (n = 0;; n++) {
        mem_fail_after(n);
        s = store_new(ROOMY, hash_key);
        mem_fail_after(-1);
        if (s)
            break;
    }
    assert_int_equal(n, 5);     /* the store, and two tables with their spare bucket */

    /* Enough entries that some puts also grow a table. */
    for (unsigned i = 0; i < 400; i++) {
        struct store_item old = item_of(key_of(i), span_text("old"));
        struct store_item item = item_of(key_of(i), span_of(large, sizeof large));
        old.channel_hash = i;
        item.channel_hash = i + i % 2;      /* every second one to another channel */
        assert_int_equal(put(s, &old, 0), ERR_OK);
        int rc = ERR_NOMEM;
        for (n = 0; rc != ERR_OK; n++) {
            bytes = bytes_of(s);
            uint64_t entries = entries_of(s);
            mem_fail_after(n);
            rc = put(s, &item, 0);
            mem_fail_after(-1);
            if (rc == ERR_OK)
                break;
            assert_int_equal(rc, ERR_NOMEM);
            assert_int_equal(bytes_of(s), bytes);
            assert_int_equal(entries_of(s), entries);
            assert_text(s, key_of(i), "old");
        }
        assert_true(n >= 2);    /* the entry and its blob at least */
        struct store_hit hit;
        assert_true(store_get(s, key_of(i), 0, false, &hit));
        assert_true(span_equal(hit.bytes, span_of(large, sizeof large)));
    }
    store_free(s);
}

static void tables_that_cannot_grow_still_work(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);

    (void)state;
    /* Fail whatever the 4th allocation of a put is: the entry needs at most three. */
    for (unsigned i = 0; i < 3000; i++) {
        struct store_item item = item_of(key_of(i), span_text("v"));
        item.channel_hash = i;
        mem_fail_after(i % 2 ? 3 : 1);
        int rc = put(s, &item, 0);
        mem_fail_after(-1);
        if (rc)
            assert_int_equal(put(s, &item, 0), ERR_OK);
        if (i % 100 == 0)
            bytes_of(s);
    }
    for (unsigned i = 0; i < 3000; i++)
        assert_text(s, key_of(i), "v");
    bytes_of(s);
    store_free(s);
}

/* No put does more than a handful of allocations, however large the store has become:
 * growth comes in small steps. */
static void growth_is_spread_over_the_puts(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);
    long allocations_max = 0;

    (void)state;
    for (unsigned i = 0; i < 60000; i++) {
        struct store_item item = item_of(key_of(i), span_text("v"));
        item.channel_hash = i;
        mem_fail_after(-1);
        assert_int_equal(put(s, &item, 0), ERR_OK);
        long allocations = mem_fail_after(-1);
        if (allocations > allocations_max)
            allocations_max = allocations;
    }
    assert_int_equal(entries_of(s), 60000);
    assert_true(allocations_max <= 5);
    uint64_t bytes = bytes_of(s);
    assert_true(bytes < 60000 * 150);
    for (unsigned i = 0; i < 60000; i++)
        assert_text(s, key_of(i), "v");

    /* And the tables shrink again. */
    struct store_dropped dropped = {0};
    for (unsigned i = 0; i < 60000; i++)
        assert_true(store_delete(s, key_of(i), &dropped));
    struct store *empty = store_new(ROOMY, hash_key);
    assert_int_equal(bytes_of(s), bytes_of(empty));
    store_free(empty);
    store_free(s);
}

/* What was asked for once more stays through a scan of things asked for once. */
static void a_scan_does_not_evict_what_is_hit(void **state)
{
    struct store *s = store_new(1000 * SMALL_ENTRY_BYTES, hash_key);

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        put_text(s, key_of(i), "hot");
    for (unsigned i = 0; i < 20000; i++) {
        assert_true(has(s, key_of(i % 100)));
        assert_int_equal(put_text(s, key_of(1000 + i), "once"), ERR_OK);
    }
    struct store_stats stats;
    store_stats(s, &stats);
    assert_true(stats.evicted > 10000);
    bytes_of(s);
    store_free(s);
}

/* A loop longer than the room would find nothing in an LRU, nor in SIEVE alone. */
static void a_loop_larger_than_the_store_still_hits(void **state)
{
    struct store *s = store_new(1000 * SMALL_ENTRY_BYTES, hash_key);
    struct store_stats stats;
    unsigned hits = 0, room = 0;

    (void)state;
    for (; put_text(s, key_of(room), "v") == ERR_OK && entries_of(s) == room + 1; room++)
        ;
    const unsigned loop = room + room / 10, asks = 40 * loop;
    for (unsigned i = 0; i < asks; i++) {
        if (has(s, key_of(i % loop)))
            hits++;
        else
            assert_int_equal(put_text(s, key_of(i % loop), "v"), ERR_OK);
    }
    store_stats(s, &stats);
    assert_true(stats.evicted > 1000);
    assert_true(hits > asks / 4 * 3);
    bytes_of(s);
    store_free(s);
}

/* A hit lets a newcomer into a full store, where one without must find somebody whose own
 * asks have faded. */
static void who_is_hit_is_let_in(void **state)
{
    struct store *s = store_new(1000 * SMALL_ENTRY_BYTES, hash_key);
    unsigned kept[2] = {0, 0};

    (void)state;
    for (unsigned i = 0; i < 6000; i++)
        assert_int_equal(put_text(s, key_of(i), "once"), ERR_OK);
    for (unsigned i = 0; i < 600; i++) {
        assert_int_equal(put_text(s, key_of(10000 + i), "new"), ERR_OK);
        if (i % 2)
            assert_true(has(s, key_of(10000 + i)));
    }
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(put_text(s, key_of(20000 + i), "once"), ERR_OK);
    for (unsigned i = 0; i < 600; i++)
        kept[i % 2] += has(s, key_of(10000 + i));
    assert_true(kept[1] > 270);
    assert_true(kept[0] < 200);
    store_free(s);
}

/* What was popular gives way to what is: the past fades. */
static void yesterdays_favourites_give_way(void **state)
{
    struct store *s = store_new(1000 * SMALL_ENTRY_BYTES, hash_key);
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
                hits += has(s, key_of(key));
            if (!has(s, key_of(key)))
                assert_int_equal(put_text(s, key_of(key), "v"), ERR_OK);
        }
        assert_true(hits > 24000);      /* of 25,000 in the last quarter of the day */
    }
    store_free(s);
}

/* Large values: the one just loaded is not gone with the next, however popular the rest. */
static void a_few_large_values_do_not_push_each_other_out_at_once(void **state)
{
    struct store *s = store_new(1u << 20, hash_key);

    (void)state;
    for (unsigned i = 0; i < 200; i++) {
        struct blob *b = blob_new(56 << 10);
        struct store_item item = item_of(key_of(i), SPAN_NONE);
        memset(blob_fill(b), 1, 56 << 10);
        item.blob = b;
        assert_int_equal(put(s, &item, 0), ERR_OK);
        blob_unref(b);
        for (unsigned hot = 0; hot < 8; hot++)
            has(s, key_of(hot));
        for (unsigned back = 0; back < 4 && back <= i; back++)
            assert_true(has(s, key_of(i - back)));
    }
    bytes_of(s);
    store_free(s);
}

static void when_everything_is_hit_something_goes_all_the_same(void **state)
{
    struct store *s = store_new(5000 * SMALL_ENTRY_BYTES, hash_key);
    struct store_stats stats = {0};
    unsigned n = 0;

    (void)state;
    for (; stats.evicted == 0; n++) {
        assert_int_equal(put_text(s, key_of(n), "v"), ERR_OK);
        assert_true(has(s, key_of(n)));
        store_stats(s, &stats);
    }
    /* Each is hit again before each put, so the hand always finds only marked ones. */
    for (unsigned round = 0; round < 20; round++, n++) {
        for (unsigned i = 0; i < n; i++)
            has(s, key_of(i));
        assert_int_equal(put_text(s, key_of(n), "v"), ERR_OK);
        assert_true(has(s, key_of(n)));
    }
    bytes_of(s);
    store_free(s);
}

static void what_is_gone_is_evicted_first_whatever_its_hits(void **state)
{
    struct store *s = store_new(100 * SMALL_ENTRY_BYTES, hash_key);
    struct store_stats stats = {0};
    struct store_hit hit;

    (void)state;
    /* Larger than the others: its place is enough for one of them and for a table's growth. */
    static const uint8_t large[500];
    struct store_item item = item_of(span_text("short"), span_of(large, sizeof large));
    item.expires_ms = item.stale_until_ms = 10;
    assert_int_equal(put(s, &item, 0), ERR_OK);
    assert_true(store_get(s, span_text("short"), 5, false, &hit));
    for (unsigned i = 0; stats.evicted + stats.expired == 0; i++) {
        item = item_of(key_of(i), span_text("v"));
        assert_int_equal(put(s, &item, 20), ERR_OK);
        store_stats(s, &stats);
    }
    assert_int_equal(stats.expired, 1);
    assert_int_equal(stats.evicted, 0);
    assert_false(has(s, span_text("short")));
    store_free(s);
}

static struct blob *blob_of_bytes(size_t bytes)
{
    struct blob *b = blob_new(bytes);

    memset(blob_fill(b), 'b', bytes);
    return b;
}

static void ignore(void *owner) { (void)owner; }

/* One that must not be released under the lock. */
static struct blob *foreign_blob(size_t bytes)
{
    static uint8_t foreign[1u << 20];
    return blob_alias(span_of(foreign, bytes), NULL, ignore);
}

/* A full list of blobs to let go ends a call early: the put says so, nothing is lost, the
 * bound holds, and each further call comes nearer. */
static void a_put_stops_where_the_list_of_dropped_blobs_ends(void **state)
{
    const size_t bytes_max = 2u << 20;
    struct store *s = store_new(bytes_max, hash_key);
    struct store_dropped dropped = {0};
    unsigned calls = 0, blobs = 0;
    int rc;

    (void)state;
    for (; bytes_of(s) + 4096 < bytes_max; blobs++) {
        struct blob *b = foreign_blob(2000);
        struct store_item item = item_of(key_of(blobs), SPAN_NONE);
        item.blob = b;
        assert_int_equal(put(s, &item, 0), ERR_OK);
        blob_unref(b);
    }
    assert_int_equal(put_text(s, span_text("large"), "old"), ERR_OK);

    struct blob *large = foreign_blob(bytes_max / 2);
    struct store_item item = item_of(span_text("large"), SPAN_NONE);
    item.blob = large;
    do {
        uint64_t before = entries_of(s);
        rc = store_put(s, &item, 0, &dropped);
        bytes_of(s);
        if (rc == ERR_FULL) {
            assert_text(s, span_text("large"), "old");
            assert_int_equal(dropped.count, STORE_DROPPED_MAX);
            assert_int_equal(before - entries_of(s), STORE_DROPPED_MAX);
            /* No room at all: nothing happens. */
            assert_int_equal(store_put(s, &item, 0, &dropped), ERR_FULL);
            assert_int_equal(before - entries_of(s), STORE_DROPPED_MAX);
        }
        let_go(&dropped);
        calls++;
    } while (rc == ERR_FULL);
    assert_int_equal(rc, ERR_OK);
    assert_true(calls > 1);
    assert_int_equal(atomic_load(&large->refs), 2);

    /* Replacing a blob needs a place for it too. */
    struct store_item small = item_of(span_text("large"), span_text("new"));
    dropped.count = STORE_DROPPED_MAX;
    assert_int_equal(store_put(s, &small, 0, &dropped), ERR_FULL);
    assert_int_equal(atomic_load(&large->refs), 2);
    dropped.count = STORE_DROPPED_MAX - 1;
    assert_int_equal(store_put(s, &small, 0, &dropped), ERR_OK);
    assert_ptr_equal(dropped.blobs[STORE_DROPPED_MAX - 1], large);
    blob_unref(large);
    assert_int_equal(atomic_load(&large->refs), 1);
    blob_unref(large);
    store_free(s);
}

/* What is not foreign needs no room: a full list stops nothing. */
static void blobs_of_our_own_go_at_once_when_the_list_is_full(void **state)
{
    struct store *s = store_new(1u << 20, hash_key);
    struct store_dropped full = {.count = STORE_DROPPED_MAX};

    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        struct blob *b = blob_of_bytes(2000);
        struct store_item item = item_of(key_of(i), SPAN_NONE);
        item.blob = b;
        assert_int_equal(store_put(s, &item, 0, &full), ERR_OK);
        if (i % 3 == 0)     /* replaced */
            assert_int_equal(store_put(s, &item, 0, &full), ERR_OK);
        blob_unref(b);
        bytes_of(s);
    }
    assert_true(store_delete(s, key_of(999), &full));
    assert_true(store_clear(s, &full));
    assert_int_equal(full.count, STORE_DROPPED_MAX);
    store_free(s);
}

/* A delete never fails: a foreign blob without a place waits, and counts, until there is one. */
static void a_delete_needs_no_room(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);
    struct store_dropped dropped = {.count = STORE_DROPPED_MAX};
    struct blob *b = foreign_blob(5000);
    uint64_t empty = bytes_of(s);

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct store_item item = item_of(key_of(i), SPAN_NONE);
        item.blob = b;
        assert_int_equal(put(s, &item, 0), ERR_OK);
    }
    uint64_t bytes = bytes_of(s);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(store_delete(s, key_of(i), &dropped));
        assert_false(has(s, key_of(i)));
    }
    assert_int_equal(dropped.count, STORE_DROPPED_MAX);
    assert_int_equal(entries_of(s), 0);
    assert_int_equal(bytes_of(s), bytes);
    dropped.count = STORE_DROPPED_MAX - 1;      /* one place */
    assert_false(store_delete(s, key_of(9), &dropped));
    assert_ptr_equal(dropped.blobs[STORE_DROPPED_MAX - 1], b);
    blob_unref(b);
    dropped.count = 0;
    struct store_item small = item_of(key_of(9), span_text("v"));
    assert_int_equal(store_put(s, &small, 0, &dropped), ERR_OK);
    assert_int_equal(dropped.count, 2);
    let_go(&dropped);
    assert_true(store_delete(s, key_of(9), &dropped));
    assert_int_equal(bytes_of(s), empty);
    /* And freed with the store, if it comes to that. */
    struct store_item item = item_of(key_of(0), SPAN_NONE);
    item.blob = b;
    assert_int_equal(put(s, &item, 0), ERR_OK);
    dropped.count = STORE_DROPPED_MAX;
    assert_true(store_delete(s, key_of(0), &dropped));
    assert_int_equal(atomic_load(&b->refs), 2);
    store_free(s);
    assert_int_equal(atomic_load(&b->refs), 1);
    blob_unref(b);
}

static void a_channel_goes_as_a_whole_and_alone(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);
    struct store_dropped dropped = {0};
    unsigned calls = 0;

    (void)state;
    for (unsigned i = 0; i < 9000; i++) {
        struct blob *b = i % 3 == 0 ? foreign_blob(1500) : NULL;
        struct store_item item = item_of(key_of(i), span_text("v"));
        item.blob = b;
        item.channel_hash = i % 10;
        assert_int_equal(put(s, &item, 0), ERR_OK);
        blob_unref(b);
    }
    assert_true(store_delete_channel(s, 777, &dropped));    /* there is no such channel */
    assert_int_equal(entries_of(s), 9000);
    /* One that moved to another channel is no longer of this one, and the other way. */
    struct store_item moved = item_of(key_of(13), span_text("v"));
    moved.channel_hash = 4;
    assert_int_equal(put(s, &moved, 0), ERR_OK);
    moved.key = key_of(14);
    moved.channel_hash = 3;
    assert_int_equal(put(s, &moved, 0), ERR_OK);
    assert_true(store_delete(s, key_of(3), &dropped));      /* the first of the ring */
    let_go(&dropped);

    for (bool done = false; !done; calls++) {
        done = store_delete_channel(s, 3, &dropped);
        assert_true(done || dropped.count == STORE_DROPPED_MAX);
        bytes_of(s);
        let_go(&dropped);
    }
    assert_int_equal(calls, 2);     /* 300 blobs, 256 a call */
    for (unsigned i = 0; i < 9000; i++)
        assert_int_equal(has(s, key_of(i)), i == 13 || (i % 10 != 3 && i != 14));
    assert_true(store_delete_channel(s, 3, &dropped));
    store_free(s);
}

static void an_entry_that_is_its_own_channel_goes_by_its_key_only(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);
    struct store_dropped dropped = {0};
    uint64_t bytes[2];

    (void)state;
    for (unsigned alone = 0; alone < 2; alone++) {
        uint64_t before = bytes_of(s);
        for (unsigned i = 0; i < 10000; i++) {
            struct store_item item = item_of(key_of(10000 * alone + i), span_text("v"));
            item.channel_hash = i;
            item.alone = alone;
            assert_int_equal(put(s, &item, 0), ERR_OK);
        }
        bytes[alone] = bytes_of(s) - before;
    }
    assert_true(bytes[1] + 10000 * 10 < bytes[0]);
    assert_true(store_delete_channel(s, 5, &dropped));
    assert_false(has(s, key_of(5)));
    assert_true(has(s, key_of(10005)));
    /* It may become one of many, and alone again. */
    struct store_item item = item_of(key_of(10005), span_text("v"));
    item.channel_hash = 6;
    assert_int_equal(put(s, &item, 0), ERR_OK);
    item.alone = true;
    item.key = key_of(7);
    assert_int_equal(put(s, &item, 0), ERR_OK);
    assert_true(store_delete_channel(s, 6, &dropped));
    assert_true(store_delete_channel(s, 7, &dropped));
    assert_false(has(s, key_of(10005)));
    assert_true(has(s, key_of(7)));
    assert_true(store_delete(s, key_of(7), &dropped));
    assert_int_equal(entries_of(s), 20000 - 4);
    bytes_of(s);
    store_free(s);
}

static void clear_takes_everything_in_bounded_steps(void **state)
{
    struct store *s = store_new(ROOMY, hash_key), *empty = store_new(ROOMY, hash_key);
    struct store_dropped dropped = {0};
    unsigned calls = 0;
    bool done = false;

    (void)state;
    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(put_text(s, key_of(i), "v"), ERR_OK);
    for (; !done; calls++) {
        uint64_t before = entries_of(s);
        done = store_clear(s, &dropped);
        assert_true(before - entries_of(s) <= 1024);
    }
    assert_true(calls > 4);
    assert_int_equal(entries_of(s), 0);
    assert_int_equal(bytes_of(s), bytes_of(empty));
    assert_true(store_clear(s, &dropped));
    store_free(s);
    store_free(empty);
}

static void a_sweep_frees_what_is_past_its_stale_time(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);
    struct store_dropped dropped = {0};
    struct store_stats stats;

    (void)state;
    store_sweep(s, 0, 10, &dropped);    /* an empty store */
    for (unsigned i = 0; i < 300; i++) {
        struct blob *b = blob_of_bytes(1500);
        struct store_item item = item_of(key_of(i), SPAN_NONE);
        item.blob = b;
        item.expires_ms = 5;
        item.stale_until_ms = i % 2 ? 100 : 10;
        assert_int_equal(put(s, &item, 0), ERR_OK);
        blob_unref(b);
    }
    store_sweep(s, 9, 300, &dropped);
    assert_int_equal(entries_of(s), 300);
    store_sweep(s, 10, 20, &dropped);   /* a bounded step: it looks at 20 or a few more */
    assert_in_range(dropped.count, 1, 30);
    for (unsigned n = 0; n < 20; n++) {
        store_sweep(s, 10, 20, &dropped);
        assert_true(dropped.count <= STORE_DROPPED_MAX);
        if (n % 3 == 0)
            let_go(&dropped);
    }
    let_go(&dropped);
    store_sweep(s, 10, 600, &dropped);
    let_go(&dropped);
    store_sweep(s, 10, 600, &dropped);
    let_go(&dropped);
    assert_int_equal(entries_of(s), 150);
    store_stats(s, &stats);
    assert_int_equal(stats.expired, 150);
    for (unsigned i = 0; i < 300; i++)
        assert_int_equal(has(s, key_of(i)), i % 2);
    bytes_of(s);
    store_free(s);
}

static void a_blob_is_swapped_for_the_same_bytes(void **state)
{
    struct store *s = store_new(ROOMY, hash_key);
    struct store_dropped dropped = {0};
    struct blob *old = blob_of_bytes(2000), *fresh = blob_of_bytes(2000), *other = blob_of_bytes(3);
    struct store_item item = item_of(span_text("a"), SPAN_NONE);
    struct store_hit hit;

    (void)state;
    item.blob = old;
    assert_int_equal(put(s, &item, 0), ERR_OK);
    assert_int_equal(put_text(s, span_text("inline"), "v"), ERR_OK);
    uint64_t bytes = bytes_of(s);
    assert_false(store_swap(s, span_text("b"), old, fresh, &dropped));
    assert_false(store_swap(s, span_text("inline"), old, fresh, &dropped));
    assert_false(store_swap(s, span_text("inline"), NULL, fresh, &dropped));
    assert_false(store_swap(s, span_text("a"), fresh, old, &dropped));
    assert_false(store_swap(s, span_text("a"), old, other, &dropped));
    assert_int_equal(atomic_load(&fresh->refs), 1);
    assert_true(store_swap(s, span_text("a"), old, fresh, &dropped));
    assert_int_equal(dropped.count, 1);
    assert_ptr_equal(dropped.blobs[0], old);
    assert_true(store_get(s, span_text("a"), 0, false, &hit));
    assert_ptr_equal(hit.blob, fresh);
    assert_int_equal(bytes_of(s), bytes);
    let_go(&dropped);
    assert_int_equal(atomic_load(&old->refs), 1);
    assert_int_equal(atomic_load(&fresh->refs), 2);
    store_free(s);
    blob_unref(old);
    blob_unref(fresh);
    blob_unref(other);
}

static void a_walk_gives_each_entry_once_even_while_others_are_deleted(void **state)
{
    for (unsigned deleting = 0; deleting < 3; deleting++) {
        struct store *s = store_new(ROOMY, hash_key);
        struct store_dropped dropped = {0};
        static unsigned char seen[4000];
        bool deleted[4000] = {false};
        struct span key;
        struct store_hit hit;
        uint64_t channel, cursor = 0;
        struct prng prng;

        (void)state;
        prng_seed(&prng, deleting);
        memset(seen, 0, sizeof seen);
        assert_int_equal(store_walk(s, 0, 0, &key, &channel, &hit), 0);
        for (unsigned i = 0; i < 4000; i++) {
            struct store_item item = item_of(key_of(i), span_of(&i, sizeof i));
            item.channel_hash = i + 7;
            item.expires_ms = item.stale_until_ms = i % 5 ? NEVER_MS : 50;
            assert_int_equal(put(s, &item, 0), ERR_OK);
        }
        while ((cursor = store_walk(s, cursor, 50, &key, &channel, &hit))) {
            unsigned i, victim = (unsigned)prng_below(&prng, 4000);
            assert_int_equal(hit.bytes.bytes, sizeof i);
            memcpy(&i, hit.bytes.at, sizeof i);
            assert_true(span_equal(key, key_of(i)));
            assert_int_equal(channel, i + 7);
            assert_int_equal(seen[i]++, 0);
            if (deleting == 1)          /* the one just given */
                victim = i;
            if (deleting && prng_below(&prng, 4) == 0)
                deleted[victim] |= store_delete(s, key_of(victim), &dropped);
        }
        for (unsigned i = 0; i < 4000; i++) {
            if (!deleted[i])
                assert_int_equal(seen[i], i % 5 != 0);
        }
        store_free(s);
    }
}

/* The counter of bytes equals a walk after each of a million random overwrites. */
static void a_million_overwrites_keep_the_byte_count(void **state)
{
    static uint8_t bytes[1400];
    struct store *s = store_new(6000, hash_key);
    struct store_stats stats;
    struct store_dropped dropped = {0};
    struct prng prng;
    unsigned full = 0;

    (void)state;
    prng_seed(&prng, 1);
    for (unsigned i = 0; i < 1000000; i++) {
        uint64_t r = prng_next(&prng);
        struct store_item item = item_of(key_of((unsigned)(r & 7)), SPAN_NONE);
        item.bytes = span_of(bytes, (r >> 8) % (r >> 4 & 7 ? 60 : sizeof bytes));
        item.channel_hash = r >> 40 & 3;
        int rc = store_put(s, &item, 0, &dropped);
        assert_true(rc == ERR_OK || rc == ERR_FULL);
        full += rc == ERR_FULL;
        let_go(&dropped);
        store_stats(s, &stats);
        if (store_check(s) != stats.bytes || stats.bytes > stats.bytes_max)
            fail_msg("%llu bytes counted after overwrite %u", (unsigned long long)stats.bytes, i);
    }
    assert_true(stats.evicted > 1000);
    assert_int_equal(full, 0);  /* the list was always empty */
    store_free(s);
}

/* The model of the last test. */

#define KEYS 400u
#define CHANNELS 23u

struct model {
    bool present, alone;
    uint64_t channel, stored_ms, expires_ms, stale_until_ms;
    uint32_t seed;
    size_t bytes;
    struct blob *blob;      /* as put; kept in the store if large or foreign */
};

static struct model model[KEYS];
static uint8_t pattern[65536];      /* the value of a seed lies somewhere in here */
static unsigned aliases;

static void count_alias(void *owner)
{
    (void)owner;
    aliases--;
}

static struct span value_of(const struct model *m)
{
    return span_of(pattern + m->seed, m->bytes);
}

static void forget(struct model *m)
{
    blob_unref(m->blob);
    *m = (struct model){0};
}

/* The model does not know whom eviction takes; the store says how many it took. */
static void follow_removals(struct store *s, uint64_t *removed_before)
{
    struct store_stats stats;
    struct store_hit hit;

    store_stats(s, &stats);
    uint64_t removed = stats.evicted + stats.expired - *removed_before;
    *removed_before += removed;
    if (removed == 0)
        return;
    bool listed[KEYS] = {false};
    struct span key;
    uint64_t channel, cursor = 0;
    while ((cursor = store_walk(s, cursor, 0, &key, &channel, &hit))) {
        char text[32];
        unsigned i;
        memcpy(text, key.at, key.bytes);
        text[key.bytes] = 0;
        assert_int_equal(sscanf(text, "pages=key:%u", &i), 1);
        listed[i] = true;
    }
    for (unsigned i = 0; i < KEYS; i++) {
        if (model[i].present && !listed[i]) {
            removed--;
            forget(&model[i]);
        }
    }
    assert_int_equal(removed, 0);
}

static void make_value(struct prng *p, struct model *m, uint64_t now, unsigned i)
{
    m->present = true;
    m->bytes = prng_below(p, 8) ? prng_below(p, 200) : prng_below(p, 5000);
    m->seed = (uint32_t)prng_below(p, sizeof pattern - 5000);
    m->alone = prng_below(p, 4) == 0;
    m->channel = prng_below(p, 3) ? i % CHANNELS : prng_below(p, CHANNELS);
    m->stored_ms = now;
    m->expires_ms = prng_below(p, 5) ? now + prng_below(p, 2000) : NEVER_MS;
    m->stale_until_ms = m->expires_ms;
    if (m->expires_ms != NEVER_MS && prng_below(p, 2))
        m->stale_until_ms += prng_below(p, 1000);
    if (prng_below(p, 3) == 0) {
        m->blob = blob_alias(value_of(m), NULL, count_alias);
        aliases++;
    } else if (prng_below(p, 2)) {
        m->blob = blob_copy(value_of(m));
    }
}

static void it_behaves_like_a_plain_array(void **state)
{
    struct store *s = store_new(60000, hash_key);
    struct store_dropped dropped = {0};
    uint64_t now = 1000, removed = 0, hits = 0, stale_hits = 0, failed = 0, channels = 0, full = 0;
    struct store_stats stats;
    struct prng p;

    (void)state;
    prng_seed(&p, 42);
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)prng_next(&p);
    for (unsigned step = 0; step < 60000; step++) {
        unsigned i = (unsigned)prng_below(&p, KEYS), op = (unsigned)prng_below(&p, 1000);
        struct model *m = &model[i];
        struct store_hit hit;

        now += prng_below(&p, 4);
        if (op < 400) {
            struct model fresh = {0};
            make_value(&p, &fresh, now, i);
            struct store_item item = {
                .key = key_of(i), .channel_hash = fresh.channel,
                .alone = fresh.alone, .blob = fresh.blob,
                .bytes = fresh.blob ? SPAN_NONE : value_of(&fresh), .value_type = (uint8_t)(i % 4),
                .stored_ms = now, .expires_ms = fresh.expires_ms,
                .stale_until_ms = fresh.stale_until_ms,
            };
            if (op < 30)
                mem_fail_after((long)prng_below(&p, 4));
            int rc = store_put(s, &item, now, &dropped);
            mem_fail_after(-1);
            follow_removals(s, &removed);
            if (rc == ERR_OK) {
                forget(m);
                *m = fresh;
            } else {
                assert_true(rc == ERR_NOMEM || rc == ERR_FULL);
                failed++;
                forget(&fresh);
            }
        } else if (op < 900) {
            bool stale_too = op % 2;
            bool expected = m->present && now < (stale_too ? m->stale_until_ms : m->expires_ms);
            assert_int_equal(store_get(s, key_of(i), now, stale_too, &hit), expected);
            if (expected) {
                hits++;
                stale_hits += hit.stale;
                assert_true(span_equal(hit.bytes, value_of(m)));
                assert_int_equal(hit.stale, now >= m->expires_ms);
                assert_int_equal(hit.value_type, i % 4);
                assert_int_equal(hit.stored_ms, m->stored_ms);
                assert_int_equal(hit.expires_ms, m->expires_ms);
                assert_int_equal(hit.stale_until_ms, m->stale_until_ms);
            }
        } else if (op < 950) {
            assert_int_equal(store_delete(s, key_of(i), &dropped), m->present);
            forget(m);
        } else if (op < 980) {
            store_sweep(s, now, 20, &dropped);
            follow_removals(s, &removed);
        } else if (op < 995) {
            uint64_t channel = prng_below(&p, CHANNELS);
            for (bool done = false; !done;) {
                done = store_delete_channel(s, channel, &dropped);
                if (!done)
                    let_go(&dropped);
            }
            channels++;
            for (unsigned k = 0; k < KEYS; k++)
                if (model[k].present && !model[k].alone && model[k].channel == channel)
                    forget(&model[k]);
        } else if (op == 999 && step % 8 == 0) {
            for (bool done = false; !done;) {
                done = store_clear(s, &dropped);
                if (!done)
                    let_go(&dropped);
            }
            for (unsigned k = 0; k < KEYS; k++)
                forget(&model[k]);
        }
        full += dropped.count == STORE_DROPPED_MAX;
        if (prng_below(&p, 2000) == 0)
            let_go(&dropped);
        store_stats(s, &stats);
        uint64_t present = 0;
        for (unsigned k = 0; k < KEYS; k++)
            present += model[k].present;
        assert_int_equal(stats.entries, present);
        if (store_check(s) != stats.bytes || stats.bytes > stats.bytes_max)
            fail_msg("%llu bytes counted after step %u", (unsigned long long)stats.bytes, step);
    }
    /* All of it really occurred. */
    assert_true(hits > 1000 && stale_hits > 100 && failed > 100 && channels > 100 && full > 500);
    assert_true(stats.evicted > 100 && stats.expired > 100);
    let_go(&dropped);
    for (unsigned k = 0; k < KEYS; k++) {
        struct blob *b = model[k].blob;
        if (b)
            assert_in_range(atomic_load(&b->refs), 1, 2);
    }
    store_free(s);
    for (unsigned k = 0; k < KEYS; k++) {
        if (model[k].blob)
            assert_int_equal(atomic_load(&model[k].blob->refs), 1);
        forget(&model[k]);
    }
    assert_int_equal(aliases, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_got),
        cmocka_unit_test(keys_of_every_length_are_apart),
        cmocka_unit_test(small_values_lie_inline_large_and_foreign_ones_are_blobs),
        cmocka_unit_test(an_entry_lives_for_its_ttl_and_is_stale_for_a_while),
        cmocka_unit_test(a_value_that_can_never_fit_evicts_nothing),
        cmocka_unit_test(the_largest_value_replaces_everything),
        cmocka_unit_test(a_store_too_small_for_anything_takes_nothing),
        cmocka_unit_test(out_of_memory_leaves_the_store_as_it_was),
        cmocka_unit_test(tables_that_cannot_grow_still_work),
        cmocka_unit_test(growth_is_spread_over_the_puts),
        cmocka_unit_test(a_scan_does_not_evict_what_is_hit),
        cmocka_unit_test(a_loop_larger_than_the_store_still_hits),
        cmocka_unit_test(who_is_hit_is_let_in),
        cmocka_unit_test(yesterdays_favourites_give_way),
        cmocka_unit_test(a_few_large_values_do_not_push_each_other_out_at_once),
        cmocka_unit_test(when_everything_is_hit_something_goes_all_the_same),
        cmocka_unit_test(what_is_gone_is_evicted_first_whatever_its_hits),
        cmocka_unit_test(a_put_stops_where_the_list_of_dropped_blobs_ends),
        cmocka_unit_test(blobs_of_our_own_go_at_once_when_the_list_is_full),
        cmocka_unit_test(a_delete_needs_no_room),
        cmocka_unit_test(a_channel_goes_as_a_whole_and_alone),
        cmocka_unit_test(an_entry_that_is_its_own_channel_goes_by_its_key_only),
        cmocka_unit_test(clear_takes_everything_in_bounded_steps),
        cmocka_unit_test(a_sweep_frees_what_is_past_its_stale_time),
        cmocka_unit_test(a_blob_is_swapped_for_the_same_bytes),
        cmocka_unit_test(a_walk_gives_each_entry_once_even_while_others_are_deleted),
        cmocka_unit_test(a_million_overwrites_keep_the_byte_count),
        cmocka_unit_test(it_behaves_like_a_plain_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
