/* See shelf.h. */
#include "tests/shelf.h"

const uint8_t shelf_hash_key[16] = {2, 7, 1, 8, 2, 8};

struct span shelf_key(unsigned i)
{
    static char keys[4][32];
    static unsigned at;

    at = (at + 1) % 4;
    snprintf(keys[at], sizeof keys[at], "pages=key:%u", i);
    return span_text(keys[at]);
}

struct store_item shelf_item(struct span key, struct span bytes)
{
    return (struct store_item){
        .key = key, .channel_hash = 1, .bytes = bytes,
        .expires_ms = NEVER_MS, .stale_until_ms = NEVER_MS,
    };
}

void shelf_let_go(struct store_dropped *dropped)
{
    while (dropped->count)
        blob_unref(dropped->blobs[--dropped->count]);
}

int shelf_put(struct store *s, const struct store_item *item, uint64_t now_ms)
{
    struct store_dropped dropped = {0};
    int rc;

    do {
        rc = store_put(s, item, now_ms, &dropped);
        shelf_let_go(&dropped);
    } while (rc == ERR_FULL);
    return rc;
}

int shelf_put_text(struct store *s, struct span key, const char *text)
{
    struct store_item item = shelf_item(key, span_text(text));
    return shelf_put(s, &item, 0);
}

bool shelf_has(struct store *s, struct span key)
{
    struct store_hit hit;
    return store_get(s, key, 0, true, &hit);
}

uint64_t shelf_bytes(struct store *s)
{
    struct store_stats stats;

    store_stats(s, &stats);
    assert_int_equal(store_check(s), stats.bytes);
    assert_true(stats.bytes <= stats.bytes_max);
    return stats.bytes;
}

uint64_t shelf_entries(struct store *s)
{
    struct store_stats stats;

    store_stats(s, &stats);
    return stats.entries;
}

void shelf_assert_text(struct store *s, struct span key, const char *text)
{
    struct store_hit hit;

    assert_true(store_get(s, key, 0, false, &hit));
    assert_true(span_equal(hit.bytes, span_text(text)));
}
