/* The store under random operations: beside a plain array, with every invariant and the byte
 * count checked against a walk. */
#include "tests/shelf.h"

/* The counter of bytes equals a walk after each of a million random overwrites. */
static void a_million_overwrites_keep_the_byte_count(void **state)
{
    static uint8_t bytes[1400];
    struct store *s = store_new(6000, shelf_hash_key);
    struct store_stats stats;
    struct store_dropped dropped = {0};
    struct prng prng;
    unsigned full = 0;

    (void)state;
    prng_seed(&prng, 1);
    for (unsigned i = 0; i < 1000000; i++) {
        uint64_t r = prng_next(&prng);
        struct store_item item = shelf_item(shelf_key((unsigned)(r & 7)), SPAN_NONE);
        item.bytes = span_of(bytes, (r >> 8) % (r >> 4 & 7 ? 60 : sizeof bytes));
        item.channel_hash = r >> 40 & 3;
        int rc = store_put(s, &item, 0, &dropped);
        assert_true(rc == ERR_OK || rc == ERR_FULL);
        full += rc == ERR_FULL;
        shelf_let_go(&dropped);
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
    struct store *s = store_new(60000, shelf_hash_key);
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
                .key = shelf_key(i), .channel_hash = fresh.channel,
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
            assert_int_equal(store_get(s, shelf_key(i), now, stale_too, &hit), expected);
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
            assert_int_equal(store_delete(s, shelf_key(i), &dropped), m->present);
            forget(m);
        } else if (op < 980) {
            store_sweep(s, now, 20, &dropped);
            follow_removals(s, &removed);
        } else if (op < 995) {
            uint64_t channel = prng_below(&p, CHANNELS);
            for (bool done = false; !done;) {
                done = store_delete_channel(s, channel, &dropped);
                if (!done)
                    shelf_let_go(&dropped);
            }
            channels++;
            for (unsigned k = 0; k < KEYS; k++)
                if (model[k].present && !model[k].alone && model[k].channel == channel)
                    forget(&model[k]);
        } else if (op == 999 && step % 8 == 0) {
            for (bool done = false; !done;) {
                done = store_clear(s, &dropped);
                if (!done)
                    shelf_let_go(&dropped);
            }
            for (unsigned k = 0; k < KEYS; k++)
                forget(&model[k]);
        }
        full += dropped.count == STORE_DROPPED_MAX;
        if (prng_below(&p, 2000) == 0)
            shelf_let_go(&dropped);
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
    shelf_let_go(&dropped);
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
        cmocka_unit_test(a_million_overwrites_keep_the_byte_count),
        cmocka_unit_test(it_behaves_like_a_plain_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
