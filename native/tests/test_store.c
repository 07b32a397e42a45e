/* The store: what it promises, call by call. */
#include "tests/shelf.h"

static void what_is_put_is_got(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
    struct store_dropped dropped = {0};
    struct store_hit hit;
    uint64_t empty = shelf_bytes(s);

    (void)state;
    assert_false(store_get(s, span_text("a"), 0, true, &hit));
    struct store_item item = shelf_item(span_text("a"), span_text("one"));
    item.value_type = VALUE_JSON;
    item.stored_ms = 5;
    item.expires_ms = 10;
    item.stale_until_ms = 20;
    assert_int_equal(shelf_put(s, &item, 5), ERR_OK);
    assert_true(store_get(s, span_text("a"), 7, false, &hit));
    assert_true(span_equal(hit.bytes, span_text("one")));
    assert_null(hit.blob);
    assert_int_equal(hit.value_type, VALUE_JSON);
    assert_int_equal(hit.stored_ms, 5);
    assert_int_equal(hit.expires_ms, 10);
    assert_int_equal(hit.stale_until_ms, 20);
    assert_false(hit.stale);

    assert_int_equal(shelf_put_text(s, span_text("a"), ""), ERR_OK);     /* empty is a value */
    assert_true(store_get(s, span_text("a"), 7, false, &hit));
    assert_int_equal(hit.bytes.bytes, 0);
    assert_int_equal(hit.expires_ms, NEVER_MS);
    assert_int_equal(shelf_entries(s), 1);

    assert_true(store_delete(s, span_text("a"), &dropped));
    assert_false(store_delete(s, span_text("a"), &dropped));
    assert_false(store_get(s, span_text("a"), 7, true, &hit));
    assert_int_equal(shelf_bytes(s), empty);
    store_free(s);
    store_free(NULL);
}

static void keys_of_every_length_are_apart(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
    uint8_t key[KEY_BYTES_MAX + 1];

    (void)state;
    memset(key, 'k', sizeof key);
    for (size_t n = 0; n <= KEY_BYTES_MAX; n++) {
        struct store_item item = shelf_item(span_of(key, n), span_of(&n, sizeof n));
        assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
    }
    assert_int_equal(shelf_entries(s), KEY_BYTES_MAX + 1);
    for (size_t n = 0; n <= KEY_BYTES_MAX; n++) {
        struct store_hit hit;
        assert_true(store_get(s, span_of(key, n), 0, false, &hit));
        assert_true(span_equal(hit.bytes, span_of(&n, sizeof n)));
    }
    struct store_item item = shelf_item(span_of(key, sizeof key), SPAN_NONE);
    assert_int_equal(shelf_put(s, &item, 0), ERR_TOO_BIG);
    shelf_bytes(s);
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
        struct store *s = store_new(ROOMY, shelf_hash_key);
        struct span bytes = span_of(large, cases[i].bytes);
        struct store_item item = shelf_item(span_text("a"), bytes);
        struct blob *b = NULL;
        struct store_hit hit;

        released = 0;
        if (cases[i].as_blob) {
            b = cases[i].foreign ? blob_alias(bytes, NULL, release) : blob_copy(bytes);
            item.blob = b;
            item.bytes = SPAN_NONE;
        }
        assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        assert_true(store_get(s, span_text("a"), 0, false, &hit));
        assert_true(span_equal(hit.bytes, bytes));
        assert_int_equal(hit.blob != NULL, cases[i].kept_as_blob);
        if (b && cases[i].kept_as_blob)
            assert_ptr_equal(hit.blob, b);
        shelf_bytes(s);
        blob_unref(b);
        assert_int_equal(released, 0);
        store_free(s);
        assert_int_equal(released, cases[i].foreign);
    }
}

static void an_entry_lives_for_its_ttl_and_is_stale_for_a_while(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
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
        struct store_item item = shelf_item(span_text("a"), span_text("v"));
        struct store_hit hit;

        item.stored_ms = 50;
        item.expires_ms = cases[i].expires;
        item.stale_until_ms = cases[i].stale_until;
        assert_int_equal(shelf_put(s, &item, 50), ERR_OK);
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
    struct store *s = store_new(32768, shelf_hash_key);
    struct blob *huge = blob_new(32768);
    unsigned n = 0;

    (void)state;
    memset(blob_fill(huge), 1, 32768);
    while (shelf_put_text(s, shelf_key(n), "small") == ERR_OK && shelf_entries(s) == n + 1)
        n++;
    uint64_t before = shelf_entries(s), bytes = shelf_bytes(s);
    assert_true(before > 50);

    struct store_item item = shelf_item(span_text("huge"), SPAN_NONE);
    item.blob = huge;
    assert_int_equal(shelf_put(s, &item, 0), ERR_TOO_BIG);
    item.key = shelf_key(n);       /* and the old value stays */
    assert_int_equal(shelf_put(s, &item, 0), ERR_TOO_BIG);
    shelf_assert_text(s, shelf_key(n), "small");
    assert_int_equal(shelf_entries(s), before);
    assert_int_equal(shelf_bytes(s), bytes);
    assert_int_equal(atomic_load(&huge->refs), 1);
    blob_unref(huge);
    store_free(s);
}

/* The largest value that may fit does, whatever the tables had grown to before. */
static void the_largest_value_replaces_everything(void **state)
{
    const size_t bytes_max = 4u << 20;
    struct store *s = store_new(bytes_max, shelf_hash_key);
    size_t low = 1, high = bytes_max;

    (void)state;
    for (unsigned i = 0; i < 30000; i++)
        assert_int_equal(shelf_put_text(s, shelf_key(i), "small"), ERR_OK);
    assert_true(shelf_entries(s) > 10000);
    while (high - low > 1) {    /* how large may it be? */
        struct blob *b = blob_new((low + high) / 2);
        struct store *other = store_new(bytes_max, shelf_hash_key);
        struct store_item item = shelf_item(span_text("large"), SPAN_NONE);
        item.blob = b;
        *(shelf_put(other, &item, 0) == ERR_OK ? &low : &high) = (low + high) / 2;
        store_free(other);
        blob_unref(b);
    }
    assert_true(low > bytes_max - 4096);
    struct blob *b = blob_new(low);
    struct store_item item = shelf_item(span_text("large"), SPAN_NONE);
    item.blob = b;
    assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
    assert_int_equal(shelf_entries(s), 1);
    shelf_bytes(s);
    blob_unref(b);
    store_free(s);
}

static void a_store_too_small_for_anything_takes_nothing(void **state)
{
    struct store *s = store_new(0, shelf_hash_key);

    (void)state;
    assert_int_equal(shelf_put_text(s, span_text("a"), "b"), ERR_TOO_BIG);
    assert_false(shelf_has(s, span_text("a")));
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
        s = store_new(ROOMY, shelf_hash_key);
        mem_fail_after(-1);
        if (s)
            break;
    }
    assert_int_equal(n, 5);     /* the store, and two tables with their spare bucket */

    /* Enough entries that some puts also grow a table. */
    for (unsigned i = 0; i < 400; i++) {
        struct store_item old = shelf_item(shelf_key(i), span_text("old"));
        struct store_item item = shelf_item(shelf_key(i), span_of(large, sizeof large));
        old.channel_hash = i;
        item.channel_hash = i + i % 2;      /* every second one to another channel */
        assert_int_equal(shelf_put(s, &old, 0), ERR_OK);
        int rc = ERR_NOMEM;
        for (n = 0; rc != ERR_OK; n++) {
            bytes = shelf_bytes(s);
            uint64_t entries = shelf_entries(s);
            mem_fail_after(n);
            rc = shelf_put(s, &item, 0);
            mem_fail_after(-1);
            if (rc == ERR_OK)
                break;
            assert_int_equal(rc, ERR_NOMEM);
            assert_int_equal(shelf_bytes(s), bytes);
            assert_int_equal(shelf_entries(s), entries);
            shelf_assert_text(s, shelf_key(i), "old");
        }
        assert_true(n >= 2);    /* the entry and its blob at least */
        struct store_hit hit;
        assert_true(store_get(s, shelf_key(i), 0, false, &hit));
        assert_true(span_equal(hit.bytes, span_of(large, sizeof large)));
    }
    store_free(s);
}

static void tables_that_cannot_grow_still_work(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);

    (void)state;
    /* Fail whatever the 4th allocation of a put is: the entry needs at most three. */
    for (unsigned i = 0; i < 3000; i++) {
        struct store_item item = shelf_item(shelf_key(i), span_text("v"));
        item.channel_hash = i;
        mem_fail_after(i % 2 ? 3 : 1);
        int rc = shelf_put(s, &item, 0);
        mem_fail_after(-1);
        if (rc)
            assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        if (i % 100 == 0)
            shelf_bytes(s);
    }
    for (unsigned i = 0; i < 3000; i++)
        shelf_assert_text(s, shelf_key(i), "v");
    shelf_bytes(s);
    store_free(s);
}

/* No put does more than a handful of allocations, however large the store has become:
 * growth comes in small steps. */
static void growth_is_spread_over_the_puts(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
    long allocations_max = 0;

    (void)state;
    for (unsigned i = 0; i < 60000; i++) {
        struct store_item item = shelf_item(shelf_key(i), span_text("v"));
        item.channel_hash = i;
        mem_fail_after(-1);
        assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        long allocations = mem_fail_after(-1);
        if (allocations > allocations_max)
            allocations_max = allocations;
    }
    assert_int_equal(shelf_entries(s), 60000);
    assert_true(allocations_max <= 5);
    uint64_t bytes = shelf_bytes(s);
    assert_true(bytes < 60000 * 150);
    for (unsigned i = 0; i < 60000; i++)
        shelf_assert_text(s, shelf_key(i), "v");

    /* And the tables shrink again. */
    struct store_dropped dropped = {0};
    for (unsigned i = 0; i < 60000; i++)
        assert_true(store_delete(s, shelf_key(i), &dropped));
    struct store *empty = store_new(ROOMY, shelf_hash_key);
    assert_int_equal(shelf_bytes(s), shelf_bytes(empty));
    store_free(empty);
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
    struct store *s = store_new(bytes_max, shelf_hash_key);
    struct store_dropped dropped = {0};
    unsigned calls = 0, blobs = 0;
    int rc;

    (void)state;
    for (; shelf_bytes(s) + 4096 < bytes_max; blobs++) {
        struct blob *b = foreign_blob(2000);
        struct store_item item = shelf_item(shelf_key(blobs), SPAN_NONE);
        item.blob = b;
        assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        blob_unref(b);
    }
    assert_int_equal(shelf_put_text(s, span_text("large"), "old"), ERR_OK);

    struct blob *large = foreign_blob(bytes_max / 2);
    struct store_item item = shelf_item(span_text("large"), SPAN_NONE);
    item.blob = large;
    do {
        uint64_t before = shelf_entries(s);
        rc = store_put(s, &item, 0, &dropped);
        shelf_bytes(s);
        if (rc == ERR_FULL) {
            shelf_assert_text(s, span_text("large"), "old");
            assert_int_equal(dropped.count, STORE_DROPPED_MAX);
            assert_int_equal(before - shelf_entries(s), STORE_DROPPED_MAX);
            /* No room at all: nothing happens. */
            assert_int_equal(store_put(s, &item, 0, &dropped), ERR_FULL);
            assert_int_equal(before - shelf_entries(s), STORE_DROPPED_MAX);
        }
        shelf_let_go(&dropped);
        calls++;
    } while (rc == ERR_FULL);
    assert_int_equal(rc, ERR_OK);
    assert_true(calls > 1);
    assert_int_equal(atomic_load(&large->refs), 2);

    /* Replacing a blob needs a place for it too. */
    struct store_item small = shelf_item(span_text("large"), span_text("new"));
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
    struct store *s = store_new(1u << 20, shelf_hash_key);
    struct store_dropped full = {.count = STORE_DROPPED_MAX};

    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        struct blob *b = blob_of_bytes(2000);
        struct store_item item = shelf_item(shelf_key(i), SPAN_NONE);
        item.blob = b;
        assert_int_equal(store_put(s, &item, 0, &full), ERR_OK);
        if (i % 3 == 0)     /* replaced */
            assert_int_equal(store_put(s, &item, 0, &full), ERR_OK);
        blob_unref(b);
        shelf_bytes(s);
    }
    assert_true(store_delete(s, shelf_key(999), &full));
    assert_true(store_clear(s, &full));
    assert_int_equal(full.count, STORE_DROPPED_MAX);
    store_free(s);
}

/* A delete never fails: a foreign blob without a place waits, and counts, until there is one. */
static void a_delete_needs_no_room(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
    struct store_dropped dropped = {.count = STORE_DROPPED_MAX};
    struct blob *b = foreign_blob(5000);
    uint64_t empty = shelf_bytes(s);

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct store_item item = shelf_item(shelf_key(i), SPAN_NONE);
        item.blob = b;
        assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
    }
    uint64_t bytes = shelf_bytes(s);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(store_delete(s, shelf_key(i), &dropped));
        assert_false(shelf_has(s, shelf_key(i)));
    }
    assert_int_equal(dropped.count, STORE_DROPPED_MAX);
    assert_int_equal(shelf_entries(s), 0);
    assert_int_equal(shelf_bytes(s), bytes);
    dropped.count = STORE_DROPPED_MAX - 1;      /* one place */
    assert_false(store_delete(s, shelf_key(9), &dropped));
    assert_ptr_equal(dropped.blobs[STORE_DROPPED_MAX - 1], b);
    blob_unref(b);
    dropped.count = 0;
    struct store_item small = shelf_item(shelf_key(9), span_text("v"));
    assert_int_equal(store_put(s, &small, 0, &dropped), ERR_OK);
    assert_int_equal(dropped.count, 2);
    shelf_let_go(&dropped);
    assert_true(store_delete(s, shelf_key(9), &dropped));
    assert_int_equal(shelf_bytes(s), empty);
    /* And freed with the store, if it comes to that. */
    struct store_item item = shelf_item(shelf_key(0), SPAN_NONE);
    item.blob = b;
    assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
    dropped.count = STORE_DROPPED_MAX;
    assert_true(store_delete(s, shelf_key(0), &dropped));
    assert_int_equal(atomic_load(&b->refs), 2);
    store_free(s);
    assert_int_equal(atomic_load(&b->refs), 1);
    blob_unref(b);
}

static void a_channel_goes_as_a_whole_and_alone(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
    struct store_dropped dropped = {0};
    unsigned calls = 0;

    (void)state;
    for (unsigned i = 0; i < 9000; i++) {
        struct blob *b = i % 3 == 0 ? foreign_blob(1500) : NULL;
        struct store_item item = shelf_item(shelf_key(i), span_text("v"));
        item.blob = b;
        item.channel_hash = i % 10;
        assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        blob_unref(b);
    }
    assert_true(store_delete_channel(s, 777, &dropped));    /* there is no such channel */
    assert_int_equal(shelf_entries(s), 9000);
    /* One that moved to another channel is no longer of this one, and the other way. */
    struct store_item moved = shelf_item(shelf_key(13), span_text("v"));
    moved.channel_hash = 4;
    assert_int_equal(shelf_put(s, &moved, 0), ERR_OK);
    moved.key = shelf_key(14);
    moved.channel_hash = 3;
    assert_int_equal(shelf_put(s, &moved, 0), ERR_OK);
    assert_true(store_delete(s, shelf_key(3), &dropped));      /* the first of the ring */
    shelf_let_go(&dropped);

    for (bool done = false; !done; calls++) {
        done = store_delete_channel(s, 3, &dropped);
        assert_true(done || dropped.count == STORE_DROPPED_MAX);
        shelf_bytes(s);
        shelf_let_go(&dropped);
    }
    assert_int_equal(calls, 2);     /* 300 blobs, 256 a call */
    for (unsigned i = 0; i < 9000; i++)
        assert_int_equal(shelf_has(s, shelf_key(i)), i == 13 || (i % 10 != 3 && i != 14));
    assert_true(store_delete_channel(s, 3, &dropped));
    store_free(s);
}

static void an_entry_that_is_its_own_channel_goes_by_its_key_only(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
    struct store_dropped dropped = {0};
    uint64_t bytes[2];

    (void)state;
    for (unsigned alone = 0; alone < 2; alone++) {
        uint64_t before = shelf_bytes(s);
        for (unsigned i = 0; i < 10000; i++) {
            struct store_item item = shelf_item(shelf_key(10000 * alone + i), span_text("v"));
            item.channel_hash = i;
            item.alone = alone;
            assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        }
        bytes[alone] = shelf_bytes(s) - before;
    }
    assert_true(bytes[1] + 10000 * 10 < bytes[0]);
    assert_true(store_delete_channel(s, 5, &dropped));
    assert_false(shelf_has(s, shelf_key(5)));
    assert_true(shelf_has(s, shelf_key(10005)));
    /* It may become one of many, and alone again. */
    struct store_item item = shelf_item(shelf_key(10005), span_text("v"));
    item.channel_hash = 6;
    assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
    item.alone = true;
    item.key = shelf_key(7);
    assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
    assert_true(store_delete_channel(s, 6, &dropped));
    assert_true(store_delete_channel(s, 7, &dropped));
    assert_false(shelf_has(s, shelf_key(10005)));
    assert_true(shelf_has(s, shelf_key(7)));
    assert_true(store_delete(s, shelf_key(7), &dropped));
    assert_int_equal(shelf_entries(s), 20000 - 4);
    shelf_bytes(s);
    store_free(s);
}

static void clear_takes_everything_in_bounded_steps(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key), *empty = store_new(ROOMY, shelf_hash_key);
    struct store_dropped dropped = {0};
    unsigned calls = 0;
    bool done = false;

    (void)state;
    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(shelf_put_text(s, shelf_key(i), "v"), ERR_OK);
    for (; !done; calls++) {
        uint64_t before = shelf_entries(s);
        done = store_clear(s, &dropped);
        assert_true(before - shelf_entries(s) <= 1024);
    }
    assert_true(calls > 4);
    assert_int_equal(shelf_entries(s), 0);
    assert_int_equal(shelf_bytes(s), shelf_bytes(empty));
    assert_true(store_clear(s, &dropped));
    store_free(s);
    store_free(empty);
}

static void a_sweep_frees_what_is_past_its_stale_time(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
    struct store_dropped dropped = {0};
    struct store_stats stats;

    (void)state;
    store_sweep(s, 0, 10, &dropped);    /* an empty store */
    for (unsigned i = 0; i < 300; i++) {
        struct blob *b = blob_of_bytes(1500);
        struct store_item item = shelf_item(shelf_key(i), SPAN_NONE);
        item.blob = b;
        item.expires_ms = 5;
        item.stale_until_ms = i % 2 ? 100 : 10;
        assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        blob_unref(b);
    }
    store_sweep(s, 9, 300, &dropped);
    assert_int_equal(shelf_entries(s), 300);
    store_sweep(s, 10, 20, &dropped);   /* a bounded step: it looks at 20 or a few more */
    assert_in_range(dropped.count, 1, 30);
    for (unsigned n = 0; n < 20; n++) {
        store_sweep(s, 10, 20, &dropped);
        assert_true(dropped.count <= STORE_DROPPED_MAX);
        if (n % 3 == 0)
            shelf_let_go(&dropped);
    }
    shelf_let_go(&dropped);
    store_sweep(s, 10, 600, &dropped);
    shelf_let_go(&dropped);
    store_sweep(s, 10, 600, &dropped);
    shelf_let_go(&dropped);
    assert_int_equal(shelf_entries(s), 150);
    store_stats(s, &stats);
    assert_int_equal(stats.expired, 150);
    for (unsigned i = 0; i < 300; i++)
        assert_int_equal(shelf_has(s, shelf_key(i)), i % 2);
    shelf_bytes(s);
    store_free(s);
}

static void a_blob_is_swapped_for_the_same_bytes(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
    struct store_dropped dropped = {0};
    struct blob *old = blob_of_bytes(2000), *fresh = blob_of_bytes(2000), *other = blob_of_bytes(3);
    struct store_item item = shelf_item(span_text("a"), SPAN_NONE);
    struct store_hit hit;

    (void)state;
    item.blob = old;
    assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
    assert_int_equal(shelf_put_text(s, span_text("inline"), "v"), ERR_OK);
    uint64_t bytes = shelf_bytes(s);
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
    assert_int_equal(shelf_bytes(s), bytes);
    shelf_let_go(&dropped);
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
        struct store *s = store_new(ROOMY, shelf_hash_key);
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
            struct store_item item = shelf_item(shelf_key(i), span_of(&i, sizeof i));
            item.channel_hash = i + 7;
            item.expires_ms = item.stale_until_ms = i % 5 ? NEVER_MS : 50;
            assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        }
        while ((cursor = store_walk(s, cursor, 50, &key, &channel, &hit))) {
            unsigned i, victim = (unsigned)prng_below(&prng, 4000);
            assert_int_equal(hit.bytes.bytes, sizeof i);
            memcpy(&i, hit.bytes.at, sizeof i);
            assert_true(span_equal(key, shelf_key(i)));
            assert_int_equal(channel, i + 7);
            assert_int_equal(seen[i]++, 0);
            if (deleting == 1)          /* the one just given */
                victim = i;
            if (deleting && prng_below(&prng, 4) == 0)
                deleted[victim] |= store_delete(s, shelf_key(victim), &dropped);
        }
        for (unsigned i = 0; i < 4000; i++) {
            if (!deleted[i])
                assert_int_equal(seen[i], i % 5 != 0);
        }
        store_free(s);
    }
}

static void the_generation_changes_with_whatever_makes_a_hit_another(void **state)
{
    struct store *s = store_new(ROOMY, shelf_hash_key);
    struct store_dropped dropped = {0};
    struct store_hit hit;

    (void)state;
    assert_int_equal(shelf_put_text(s, span_text("a"), "one"), ERR_OK);
    assert_true(store_get(s, span_text("a"), 0, false, &hit));
    uint64_t seen = store_generation(s);
    assert_true(store_get(s, span_text("a"), 0, false, &hit));
    assert_int_equal(shelf_put_text(s, span_text("b"), "beside"), ERR_OK);
    assert_int_equal(store_generation(s), seen);

    assert_int_equal(shelf_put_text(s, span_text("a"), "two"), ERR_OK);
    assert_int_not_equal(store_generation(s), seen);
    seen = store_generation(s);
    assert_true(store_was_hit(s, span_text("a")));      /* the next hit has to mark it again */
    assert_int_not_equal(store_generation(s), seen);
    seen = store_generation(s);
    assert_true(store_delete(s, span_text("b"), &dropped));
    assert_int_not_equal(store_generation(s), seen);
    store_free(s);
}

/* Only memory is touched sooner: nothing is found, marked or counted, whatever the keys are. */
static void to_prefetch_keys_changes_nothing(void **state)
{
    static uint8_t large[2 * STORE_INLINE_BYTES_MAX] = {9};
    struct store *s = store_new(ROOMY, shelf_hash_key);
    struct span keys[STORE_PREFETCH_MAX];
    char names[STORE_PREFETCH_MAX][16];

    (void)state;
    for (unsigned i = 0; i < STORE_PREFETCH_MAX; i++) {
        snprintf(names[i], sizeof names[i], "key %u", i);
        keys[i] = span_text(names[i]);
    }
    keys[1] = SPAN_NONE;
    assert_int_equal(store_prefetch(s, keys, STORE_PREFETCH_MAX), 0);
    assert_int_equal(store_prefetch(s, keys, 0), 0);
    for (unsigned i = 2; i < STORE_PREFETCH_MAX; i += 2) {   /* inline, empty, a blob, an empty blob */
        struct span bytes = span_of(large, i % 8 == 2 ? 100 : i % 8 == 6 ? sizeof large : 0);
        struct store_item item = shelf_item(keys[i], bytes);
        struct blob *b = i % 8 == 0 ? blob_alias(SPAN_NONE, NULL, release) : NULL;
        item.blob = b;
        assert_int_equal(shelf_put(s, &item, 0), ERR_OK);
        blob_unref(b);
    }
    assert_int_equal(store_prefetch(s, keys, STORE_PREFETCH_MAX), STORE_PREFETCH_MAX / 2 - 1);
    for (unsigned i = 0; i < 2000; i++)             /* tags meet, buckets have chains */
        assert_int_equal(shelf_put_text(s, shelf_key(i), "other"), ERR_OK);
    uint64_t seen = store_generation(s), bytes = shelf_bytes(s);
    store_prefetch(s, keys, STORE_PREFETCH_MAX);
    assert_int_equal(store_generation(s), seen);
    assert_int_equal(shelf_bytes(s), bytes);
    for (unsigned i = 0; i < STORE_PREFETCH_MAX; i++) {
        assert_false(store_was_hit(s, keys[i]));
        assert_int_equal(shelf_has(s, keys[i]), i >= 2 && i % 2 == 0);
    }
    store_free(s);
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
        cmocka_unit_test(a_put_stops_where_the_list_of_dropped_blobs_ends),
        cmocka_unit_test(blobs_of_our_own_go_at_once_when_the_list_is_full),
        cmocka_unit_test(a_delete_needs_no_room),
        cmocka_unit_test(a_channel_goes_as_a_whole_and_alone),
        cmocka_unit_test(an_entry_that_is_its_own_channel_goes_by_its_key_only),
        cmocka_unit_test(clear_takes_everything_in_bounded_steps),
        cmocka_unit_test(a_sweep_frees_what_is_past_its_stale_time),
        cmocka_unit_test(a_blob_is_swapped_for_the_same_bytes),
        cmocka_unit_test(the_generation_changes_with_whatever_makes_a_hit_another),
        cmocka_unit_test(to_prefetch_keys_changes_nothing),
        cmocka_unit_test(a_walk_gives_each_entry_once_even_while_others_are_deleted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
