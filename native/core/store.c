/* The node's entries (see store.h). Structures that hold an entry:
 *
 *   window     who came lately, oldest first
 *   main       SIEVE's queue: oldest first, and a hand that walks from old to new. A hit
 *              sets one bit; the hand clears bits and stops at the first entry that has none
 *              (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024)
 *   keys       a table from the key's hash to its entry
 *   channels   a table from the channel's hash to one entry of it, the leader; the others
 *              hang on a ring: a channel goes without a walk. An entry whose channel is its
 *              key has no need of it
 *
 * Eviction. SIEVE alone loses to a scan or a loop larger than the store, which it keeps
 * letting in. So everything enters by the window, which has WINDOW_PERCENT of the bytes, and
 * is let into main only if it was asked for more often than the one it would displace, which
 * a sketch remembers (W-TinyLFU with a SIEVE for its main queue; see store_sketch.h). Three
 * deviations:
 *   - a hit is added to the sketch only if it is the first since the hand passed. So hits
 *     touch nothing but their entry, and by bench_store it chooses no worse;
 *   - what is past its stale time goes first, whatever its hits;
 *   - the hand passes HAND_STEPS_MAX entries at most for one eviction, because a hand that
 *     crosses a million hot entries would be a pause.
 *
 * A hit reads two lines that are not in the processor's cache: one of the table (see
 * store_table.h) and the entry; who goes on to its blob and that one's bytes, two more. Names
 * are hashed under a random key (see siphash.h).
 */
#include "store.h"

#include <stdatomic.h>

#include "err.h"
#include "limits.h"
#include "mem.h"
#include "siphash.h"
#include "store_sketch.h"
#include "store_table.h"

#define HAND_STEPS_MAX 256u
/* More is better where the popular change, less in loops: see bench_store. */
#define WINDOW_PERCENT 5u
/* Nobody competes in a smaller window (unless it has half of the bytes): where values are
 * large, the one just loaded must not be gone with the next. */
#define WINDOW_ENTRIES_MIN 32u
#define SETTLE_STEPS_MAX 4u
#define RESERVE_STEP_BYTES 1024u
#define REMOVALS_MAX 1024u      /* of one call: the lock is short */
#define PREFETCH_BYTES_MAX 1024u    /* of a blob: the processor sees by then where it goes on */
#define MALLOC_BYTES 8u         /* what the heap adds to a block, before rounding to 16 */

struct entry {
    struct list queue;          /* in store.window or store.main */
    struct list ring;           /* the channel's other entries, or itself */
    uint64_t channel_hash;
    uint64_t stored_ms;
    uint32_t ttl_ms, stale_ms;  /* LASTS: for ever */
    uint32_t hash;              /* low half of the key's; the tag is its high byte */
    unsigned key_bytes : 11, value_bytes : 11, value_type : 4;
    unsigned visited : 1;
    unsigned in_window : 1;
    unsigned leads : 1;         /* it stands in `channels` for its ring */
    unsigned alone : 1;         /* its channel is not in `channels` */
    unsigned has_blob : 1;      /* the tail is {blob, key}, else {key, value} */
    uint8_t tail[];
};

_Static_assert(sizeof(struct entry) == 64 || sizeof(void *) != 8, "one line, then the key");
_Static_assert(KEY_BYTES_MAX < 1u << 11 && STORE_INLINE_BYTES_MAX < 1u << 11, "11 bits");
_Static_assert(VALUE_TYPE_COUNT <= 16, "4 bits");

#define LASTS UINT32_MAX

struct store {
    struct siphash_key hash_key;
    struct table keys, channels;
    struct sketch sketch;       /* made when the store is nearly full: before, nobody competes */
    uint64_t reserve;           /* bytes that are kept free for it to grow */
    struct list window, main;   /* oldest first */
    struct list leaving;        /* deleted, but their blobs found no room in `dropped` yet */
    struct list *hand;          /* the entry of main to look at next, or &main: start at the oldest */
    uint32_t sweep;             /* the bucket of `keys` to look at next */
    uint64_t window_entries, window_bytes;
    uint64_t entry_bytes, bytes_max, evicted, expired;
    /* Changes before an entry goes, is replaced or loses its mark of a hit (store_generation).
     * Begins at random: what was seen of one store is of no use with another. */
    atomic_uint_fast64_t generation;
};

/* Under the lock, so that only one thread writes; before a blob is let go. */
static void change(struct store *s)
{
    uint64_t now = atomic_load_explicit(&s->generation, memory_order_relaxed);

    atomic_store_explicit(&s->generation, now + 1, memory_order_release);
}

static inline struct blob *blob_of(const struct entry *e)
{
    struct blob *b = NULL;

    if (e->has_blob)
        memcpy(&b, e->tail, sizeof b);
    return b;
}

static inline const uint8_t *key_at(const struct entry *e)
{
    return e->tail + (e->has_blob ? sizeof(struct blob *) : 0);
}

static inline struct span key_of(const struct entry *e)
{
    return span_of(key_at(e), e->key_bytes);
}

static size_t heap_bytes(size_t bytes)
{
    return (bytes + MALLOC_BYTES + 15) / 16 * 16;
}

static uint64_t bytes_of(size_t key_bytes, size_t value_bytes, bool has_blob)
{
    size_t tail = key_bytes + (has_blob ? sizeof(struct blob *) : value_bytes);
    uint64_t bytes = heap_bytes(sizeof(struct entry) + tail);

    if (has_blob)
        bytes += heap_bytes(sizeof(struct blob) + value_bytes);
    return bytes;
}

static uint64_t entry_bytes(const struct entry *e)
{
    const struct blob *b = blob_of(e);
    return bytes_of(e->key_bytes, b ? b->bytes : e->value_bytes, b != NULL);
}

static struct entry *entry_of_queue(struct list *l) { return CONTAINER_OF(l, struct entry, queue); }
static struct entry *entry_of_ring(struct list *l) { return CONTAINER_OF(l, struct entry, ring); }

static inline uint64_t expires_of(const struct entry *e)
{
    return e->ttl_ms == LASTS ? NEVER_MS : e->stored_ms + e->ttl_ms;
}

static inline uint64_t stale_until_of(const struct entry *e)
{
    if (e->ttl_ms == LASTS || e->stale_ms == LASTS)
        return NEVER_MS;
    return e->stored_ms + e->ttl_ms + e->stale_ms;
}

static uint32_t key_hash_of(const void *context, const void *item)
{
    (void)context;
    return ((const struct entry *)item)->hash;
}

static uint64_t hash_channel(const struct store *s, uint64_t channel_hash)
{
    return siphash_u64(&s->hash_key, channel_hash);
}

static uint32_t channel_hash_of(const void *context, const void *item)
{
    return (uint32_t)hash_channel(context, ((const struct entry *)item)->channel_hash);
}

static inline struct entry *find_key(const struct store *s, struct span key, uint64_t hash)
{
    TABLE_FOREACH_MATCH(&s->keys, hash, p) {
        struct entry *e = table_item(p);
        if (e->hash == (uint32_t)hash && span_equal(key_of(e), key))
            return e;
    }
    return NULL;
}

static struct entry *find(const struct store *s, struct span key)
{
    return find_key(s, key, siphash_span(&s->hash_key, key));
}

static struct entry *find_leader(const struct store *s, uint64_t channel_hash)
{
    uint64_t hash = hash_channel(s, channel_hash);

    TABLE_FOREACH_MATCH(&s->channels, hash, p) {
        struct entry *e = table_item(p);
        if (e->channel_hash == channel_hash)
            return e;
    }
    return NULL;
}

struct store *store_new(size_t bytes_max, const uint8_t hash_key[16])
{
    struct store *s = mem_zalloc(sizeof *s);

    if (!s)
        return NULL;
    s->hash_key = siphash_key_of(hash_key);
    atomic_init(&s->generation, siphash_u64(&s->hash_key, bytes_max));
    s->bytes_max = bytes_max;
    list_init(&s->window);
    list_init(&s->main);
    list_init(&s->leaving);
    s->hand = &s->main;
    bool ok = table_init(&s->keys, key_hash_of, s);
    ok &= table_init(&s->channels, channel_hash_of, s);
    if (!ok) {
        store_free(s);
        return NULL;
    }
    return s;
}

void store_free(struct store *s)
{
    if (!s)
        return;
    list_move_all(&s->main, &s->window);
    list_move_all(&s->main, &s->leaving);
    LIST_FOREACH_SAFE(&s->main, l) {
        struct entry *e = entry_of_queue(l);
        blob_unref(blob_of(e));
        mem_free(e);
    }
    table_deinit(&s->keys);
    table_deinit(&s->channels);
    sketch_deinit(&s->sketch);
    mem_wipe(&s->hash_key, sizeof s->hash_key);
    mem_free(s);
}

static uint64_t bytes_in_use(const struct store *s)
{
    return sizeof *s + table_bytes(&s->keys) + table_bytes(&s->channels) +
           sketch_bytes(&s->sketch) + s->entry_bytes;
}

static bool could_fit(const struct store *s, uint64_t bytes)
{
    return sizeof *s + 2 * (TABLE_BYTES_MIN + TABLE_BYTES_STEP) + SKETCH_BYTES_MIN + bytes <=
           s->bytes_max;
}

/* Is there room for `bytes` more, and for what the tables may grow by? */
static bool fits(const struct store *s, uint64_t bytes)
{
    return bytes_in_use(s) + 2 * TABLE_BYTES_STEP + bytes <= s->bytes_max;
}

static void join_channel(struct store *s, struct entry *e)
{
    struct entry *leader;

    list_init(&e->ring);
    if (e->alone)
        return;
    leader = find_leader(s, e->channel_hash);
    e->leads = !leader;
    if (leader)
        list_add_tail(&leader->ring, &e->ring);
    else
        table_insert(&s->channels, hash_channel(s, e->channel_hash), e);
}

static void leave_channel(struct store *s, struct entry *e)
{
    if (e->leads) {
        uint64_t hash = hash_channel(s, e->channel_hash);
        struct table_place p = table_place_of(&s->channels, hash, e);
        if (list_empty(&e->ring)) {
            table_erase(&s->channels, hash, p);
        } else {
            struct entry *next = entry_of_ring(e->ring.next);
            next->leads = 1;
            p.bucket->slots[p.slot].item = next;
        }
    }
    list_remove(&e->ring);
}

static void enter(struct store *s, struct entry *e, bool window, struct list *before)
{
    e->in_window = window;
    list_add_tail(before, &e->queue);
    if (window) {
        s->window_entries++;
        s->window_bytes += entry_bytes(e);
    }
}

static void leave(struct store *s, struct entry *e)
{
    if (s->hand == &e->queue)
        s->hand = e->queue.next;
    list_remove(&e->queue);
    if (e->in_window) {
        s->window_entries--;
        s->window_bytes -= entry_bytes(e);
    }
}

static void promote(struct store *s, struct entry *e)
{
    leave(s, e);
    enter(s, e, false, &s->main);
    e->visited = 0;
    change(s);
}

/* Does it hold what must not be released under the lock? */
static bool is_foreign(const struct entry *e)
{
    const struct blob *b = blob_of(e);
    return b && b->release;
}

static bool has_room(const struct entry *e, const struct store_dropped *dropped)
{
    return dropped->count < STORE_DROPPED_MAX || !is_foreign(e);
}

/* For `e`, and afterwards for `later` (or NULL). */
static bool has_room_for_both(const struct entry *e, const struct entry *later,
                              const struct store_dropped *dropped)
{
    return dropped->count + 1 < STORE_DROPPED_MAX || !is_foreign(e) ||
           (has_room(e, dropped) && !(later && is_foreign(later)));
}

/* Hands on the blob and frees the entry, which is in no structure any more. */
static void discard(struct store *s, struct entry *e, struct store_dropped *dropped)
{
    struct blob *b = blob_of(e);

    if (!has_room(e, dropped)) {
        list_add_tail(&s->leaving, &e->queue);
        return;
    }
    s->entry_bytes -= entry_bytes(e);
    if (b && dropped->count < STORE_DROPPED_MAX)
        dropped->blobs[dropped->count++] = b;
    else
        blob_unref(b);
    mem_free(e);
}

/* Each operation that has a list begins with those that wait for one. */
static void hand_on(struct store *s, struct store_dropped *dropped)
{
    while (!list_empty(&s->leaving) && dropped->count < STORE_DROPPED_MAX) {
        struct entry *e = entry_of_queue(s->leaving.next);
        list_remove(&e->queue);
        discard(s, e, dropped);
    }
}

static void remove_entry(struct store *s, struct entry *e, struct store_dropped *dropped)
{
    change(s);
    table_erase(&s->keys, e->hash, table_place_of(&s->keys, e->hash, e));
    leave_channel(s, e);
    leave(s, e);
    discard(s, e, dropped);
}

static bool is_gone(const struct entry *e, uint64_t now_ms)
{
    return now_ms >= stale_until_of(e);
}

static uint64_t window_bytes_max(const struct store *s)
{
    return s->bytes_max / 100 * WINDOW_PERCENT;
}

/* The oldest of a list but `keep`, or NULL. */
static struct entry *oldest(struct list *queue, const struct entry *keep)
{
    struct list *l = queue->next;

    if (l != queue && entry_of_queue(l) == keep)
        l = l->next;
    return l == queue ? NULL : entry_of_queue(l);
}

/* Where the hand stops, never at `keep`; NULL: nothing else is in main. */
static struct entry *main_victim(struct store *s, const struct entry *keep, uint64_t now_ms)
{
    if (!oldest(&s->main, keep))
        return NULL;
    for (unsigned steps = 0;; s->hand = s->hand->next) {
        if (s->hand == &s->main)
            continue;
        struct entry *e = entry_of_queue(s->hand);
        if (e == keep)
            continue;
        if (!e->visited || steps++ == HAND_STEPS_MAX || is_gone(e, now_ms))
            return e;
        e->visited = 0;
        change(s);
    }
}

/* Evict one entry, never `keep`, to make room for `incoming` bytes in the window. False:
 * nothing to evict, or no room for what it holds. */
static bool evict(struct store *s, const struct entry *keep, uint64_t incoming, uint64_t now_ms,
                  struct store_dropped *dropped)
{
    sketch_fit(&s->sketch, s->keys.items, 0);   /* smaller, if few are left */
    struct entry *newcomer = oldest(&s->window, keep), *settled = NULL, *victim = newcomer;
    /* An eighth of the window takes up what the tables grow and shrink by: else main would
     * lose an entry at each growth, and the window fill its place unasked. */
    bool competes = newcomer && s->window_bytes + incoming > window_bytes_max(s) / 8 * 7 &&
                    (s->window_entries > WINDOW_ENTRIES_MIN || s->window_bytes > s->bytes_max / 2);
    bool wins = false;

    if (!newcomer || !is_gone(newcomer, now_ms)) {
        settled = main_victim(s, keep, now_ms);
        if (settled) {
            wins = competes && !is_gone(settled, now_ms) &&
                   sketch_estimate(&s->sketch, newcomer->hash) >
                       sketch_estimate(&s->sketch, settled->hash);
            if (wins || !competes || is_gone(settled, now_ms))
                victim = settled;
        }
    }
    if (!victim || !has_room_for_both(victim, keep, dropped))
        return false;
    if (is_gone(victim, now_ms))
        s->expired++;
    else
        s->evicted++;
    remove_entry(s, victim, dropped);
    if (wins)
        promote(s, newcomer);
    return true;
}

/* A larger sketch is not made room for at once, that would be a thousand evictions in one
 * put, but put by put. */
static void fit_sketch(struct store *s)
{
    uint64_t used = bytes_in_use(s) + 2 * TABLE_BYTES_STEP;

    if (used < s->bytes_max / 8 * 7)
        return;
    uint64_t lacking = sketch_fit(&s->sketch, s->keys.items,
                                  used < s->bytes_max ? s->bytes_max - used : 0);
    s->reserve = min_u64(lacking, s->reserve + RESERVE_STEP_BYTES);
}

/* What the window has too much moves on while main has less than its share: nobody has to
 * go for it. */
static void settle(struct store *s)
{
    uint64_t beside = window_bytes_max(s) + bytes_in_use(s) - s->entry_bytes;

    for (unsigned n = 0; n < SETTLE_STEPS_MAX && s->window_bytes > window_bytes_max(s); n++) {
        struct entry *e = oldest(&s->window, NULL);
        if (s->entry_bytes - s->window_bytes + entry_bytes(e) + beside > s->bytes_max)
            return;
        promote(s, e);
    }
}

static uint32_t span_ms(uint64_t from_ms, uint64_t until_ms)
{
    if (until_ms == NEVER_MS)
        return LASTS;
    return until_ms <= from_ms ? 0 : (uint32_t)min_u64(until_ms - from_ms, LASTS - 1);
}

/* The entry for `item`, in no structure yet. NULL: out of memory. */
static struct entry *make(const struct store_item *item, struct span value, bool has_blob)
{
    struct blob *b = item->blob;
    size_t tail = item->key.bytes + (has_blob ? sizeof b : value.bytes);
    struct entry *e = mem_alloc(sizeof *e + tail);

    if (!e)
        return NULL;
    if (has_blob) {
        b = b ? blob_ref(b) : blob_copy(value);
        if (!b) {
            mem_free(e);
            return NULL;
        }
    }
    e->channel_hash = item->channel_hash;
    e->stored_ms = item->stored_ms;
    e->ttl_ms = span_ms(item->stored_ms, item->expires_ms);
    e->stale_ms = e->ttl_ms == LASTS ? 0 : span_ms(expires_of(e), item->stale_until_ms);
    e->key_bytes = (unsigned)item->key.bytes & 0x7ff;
    e->value_bytes = has_blob ? 0 : (unsigned)value.bytes & 0x7ff;
    e->value_type = (unsigned)item->value_type & 15;
    e->visited = 0;
    e->in_window = 0;
    e->leads = 0;
    e->alone = item->alone;
    e->has_blob = has_blob;
    uint8_t *at = e->tail;
    if (has_blob) {
        memcpy(at, &b, sizeof b);
        at += sizeof b;
    }
    if (item->key.bytes)
        memcpy(at, item->key.at, item->key.bytes);
    if (!has_blob && value.bytes)
        memcpy(at + item->key.bytes, value.at, value.bytes);
    return e;
}

static void unmake(struct entry *e)
{
    blob_unref(blob_of(e));     /* the putter's own reference is another */
    mem_free(e);
}

int store_put(struct store *s, const struct store_item *item, uint64_t now_ms,
              struct store_dropped *dropped)
{
    struct span value = item->blob ? blob_span(item->blob) : item->bytes;
    bool has_blob = value.bytes > STORE_INLINE_BYTES_MAX || (item->blob && item->blob->release);
    uint64_t bytes = bytes_of(item->key.bytes, value.bytes, has_blob);

    hand_on(s, dropped);
    if (item->key.bytes > KEY_BYTES_MAX || !could_fit(s, bytes))
        return ERR_TOO_BIG;
    if (!table_reserve(&s->keys) || !table_reserve(&s->channels))
        return ERR_NOMEM;
    struct entry *e = make(item, value, has_blob);
    if (!e)
        return ERR_NOMEM;

    uint64_t hash = siphash_span(&s->hash_key, item->key);
    struct entry *old = find_key(s, item->key, hash);
    uint64_t more = old ? bytes - entry_bytes(old) : bytes;    /* may wrap: fits() adds it */
    fit_sketch(s);
    if (bytes < s->bytes_max / 16)      /* a larger one may need all there is */
        more += s->reserve;
    uint64_t incoming = !old || old->in_window ? bytes : 0;
    bool full = old && !has_room(old, dropped);
    for (unsigned n = 0; !full && !fits(s, more); n++)
        full = n == REMOVALS_MAX || !evict(s, old, incoming, now_ms, dropped);
    if (full) {
        unmake(e);
        return ERR_FULL;
    }

    e->hash = (uint32_t)hash;
    if (old) {
        change(s);
        struct table_place p = table_place_of(&s->keys, hash, old);
        p.bucket->slots[p.slot].item = e;
        e->visited = old->visited;
        leave_channel(s, old);
        enter(s, e, old->in_window, old->queue.next);
        leave(s, old);          /* a hand that was there is now at the new one */
        discard(s, old, dropped);
    } else {
        table_insert(&s->keys, hash, e);
        enter(s, e, true, &s->window);
        sketch_add(&s->sketch, e->hash);
    }
    join_channel(s, e);
    s->entry_bytes += bytes;
    settle(s);
    return ERR_OK;
}

static void fill(const struct entry *e, uint64_t now_ms, struct store_hit *out)
{
    struct blob *b = blob_of(e);

    out->blob = b;
    out->bytes = b ? blob_span(b) : span_of(key_at(e) + e->key_bytes, e->value_bytes);
    out->value_type = (uint8_t)e->value_type;
    out->stored_ms = e->stored_ms;
    out->expires_ms = expires_of(e);
    out->stale_until_ms = stale_until_of(e);
    out->stale = now_ms >= out->expires_ms;
    out->was_hit = e->visited;
}

bool store_get(struct store *s, struct span key, uint64_t now_ms, bool stale_too,
               struct store_hit *out)
{
    struct entry *e = find(s, key);

    if (!e || now_ms >= (stale_too ? stale_until_of(e) : expires_of(e)))
        return false;
    fill(e, now_ms, out);
    if (!e->visited) {          /* else nothing is written: the line stays clean */
        e->visited = 1;
        sketch_add(&s->sketch, e->hash);
    }
    return true;
}

static inline void prefetch(const void *at, size_t bytes)
{
    const uint8_t *begin = at;

    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch(begin + i);
    if (bytes)
        __builtin_prefetch(begin + bytes - 1);
}

/* In step, so that nothing waits for the line before it: bucket, entry, blob, value. What hangs
 * on a further bucket, or behind another item of its tag, has no head start. */
unsigned store_prefetch(const struct store *s, const struct span *keys, unsigned count)
{
    const struct table_bucket *buckets[STORE_PREFETCH_MAX];
    const struct entry *entries[STORE_PREFETCH_MAX];
    uint8_t tags[STORE_PREFETCH_MAX];
    unsigned found = 0;

    assert(count <= STORE_PREFETCH_MAX);
    for (unsigned i = 0; i < count; i++) {
        uint64_t hash = siphash_span(&s->hash_key, keys[i]);
        tags[i] = table_tag(hash);
        buckets[i] = table_first(&s->keys, hash);
        prefetch(buckets[i], sizeof *buckets[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        uint64_t match = table_match(buckets[i], tags[i]);
        if (!match)
            continue;
        entries[found] = buckets[i]->slots[table_slot(match)].item;
        prefetch(entries[found++], sizeof *entries[0] + sizeof(struct blob *) + keys[i].bytes);
    }
    for (unsigned i = 0; i < found; i++) {
        const struct entry *e = entries[i];
        if (e->has_blob)
            prefetch(blob_of(e), sizeof(struct blob));
        else
            prefetch(key_at(e) + e->key_bytes, e->value_bytes);
    }
    for (unsigned i = 0; i < found; i++) {
        struct span value = blob_span(blob_of(entries[i]));
        prefetch(value.at, min_size(value.bytes, PREFETCH_BYTES_MAX));
    }
    return found;
}

uint64_t store_generation(const struct store *s)
{
    return atomic_load_explicit(&s->generation, memory_order_acquire);
}

bool store_was_hit(struct store *s, struct span key)
{
    struct entry *e = find(s, key);
    bool hit = e && e->visited;

    if (hit) {
        e->visited = 0;
        change(s);
    }
    return hit;
}

bool store_swap(struct store *s, struct span key, struct blob *old, struct blob *fresh,
                struct store_dropped *dropped)
{
    struct entry *e = find(s, key);

    if (!e || !old || blob_of(e) != old || old->bytes != fresh->bytes || !has_room(e, dropped))
        return false;
    change(s);
    blob_ref(fresh);
    memcpy(e->tail, &fresh, sizeof fresh);
    if (dropped->count < STORE_DROPPED_MAX)
        dropped->blobs[dropped->count++] = old;
    else
        blob_unref(old);
    return true;
}

bool store_delete(struct store *s, struct span key, struct store_dropped *dropped)
{
    struct entry *e = find(s, key);

    hand_on(s, dropped);
    if (!e)
        return false;
    remove_entry(s, e, dropped);
    return true;
}

bool store_delete_channel(struct store *s, uint64_t channel_hash, struct store_dropped *dropped)
{
    hand_on(s, dropped);
    for (unsigned n = 0;; n++) {
        struct entry *e = find_leader(s, channel_hash);
        if (!e)
            return true;
        if (n == REMOVALS_MAX || !has_room(e, dropped))
            return false;
        remove_entry(s, e, dropped);
    }
}

bool store_clear(struct store *s, struct store_dropped *dropped)
{
    hand_on(s, dropped);
    for (unsigned n = 0; s->keys.items; n++) {
        struct list *queue = list_empty(&s->main) ? &s->window : &s->main;
        struct entry *e = entry_of_queue(queue->next);
        if (n == REMOVALS_MAX || !has_room(e, dropped))
            return false;
        remove_entry(s, e, dropped);
    }
    sketch_deinit(&s->sketch);
    s->reserve = 0;
    return true;
}

void store_sweep(struct store *s, uint64_t now_ms, unsigned steps, struct store_dropped *dropped)
{
    hand_on(s, dropped);
    for (unsigned looked = 0; looked < steps && s->keys.items; s->sweep++) {
        if (s->sweep >= s->keys.count)
            s->sweep = 0;
        /* From the last to the first: a removal moves the last into the hole. It may also
         * shrink the table, and what was in its last bucket comes later. */
        unsigned n = table_length(&s->keys, s->sweep);
        for (looked += n ? n : 1; n-- > 0 && s->sweep < s->keys.count;) {
            struct entry *e = table_nth(&s->keys, s->sweep, n);
            if (!e || !is_gone(e, now_ms))
                continue;
            if (!has_room(e, dropped))
                return;
            s->expired++;
            remove_entry(s, e, dropped);
        }
    }
}

/* A cursor is bucket << 16 | entries of it that are still to be given, plus one so that it
 * is never 0. They are given from the last to the first, because a removal moves the last
 * into the hole: what was given may move, what was not stays. */
#define REST_MAX 0xffffu

uint64_t store_walk(struct store *s, uint64_t cursor, uint64_t now_ms, struct span *key,
                    uint64_t *channel_hash, struct store_hit *out)
{
    uint64_t index = cursor ? (cursor - 1) >> 16 : 0;
    unsigned rest = cursor ? (unsigned)((cursor - 1) & REST_MAX) : REST_MAX;

    for (; index < s->keys.count; index++, rest = REST_MAX) {
        unsigned have = table_length(&s->keys, (uint32_t)index);
        for (rest = rest < have ? rest : have; rest > 0; rest--) {
            struct entry *e = table_nth(&s->keys, (uint32_t)index, rest - 1);
            if (now_ms >= stale_until_of(e))
                continue;
            *key = key_of(e);
            *channel_hash = e->channel_hash;
            fill(e, now_ms, out);
            return (index << 16 | (rest - 1)) + 1;
        }
    }
    return 0;
}

void store_stats(const struct store *s, struct store_stats *out)
{
    *out = (struct store_stats){s->keys.items, bytes_in_use(s), s->bytes_max, s->evicted, s->expired};
}

uint64_t store_check(const struct store *s)
{
    uint64_t bytes = sizeof *s + table_check(&s->keys) + table_check(&s->channels);
    uint64_t entries = 0, leaders = 0, window_entries = 0, window_bytes = 0;
    bool hand = s->hand == &s->main;

    bytes += sketch_bytes(&s->sketch);
    LIST_FOREACH(&s->leaving, l)
        bytes += entry_bytes(entry_of_queue(l));
    for (unsigned i = 0; i < 2; i++) {
        const struct list *queue = i ? &s->window : &s->main;
        LIST_FOREACH(queue, l) {
            struct entry *e = entry_of_queue(l);
            bytes += entry_bytes(e);
            entries++;
            leaders += e->leads;
            window_entries += e->in_window;
            window_bytes += e->in_window ? entry_bytes(e) : 0;
            hand |= s->hand == l;
            assert(e->in_window == i && (!i || s->hand != l));
            assert(l->next->prev == l && e->ring.next->prev == &e->ring);
            assert(entry_of_ring(e->ring.next)->channel_hash == e->channel_hash);
            assert(find(s, key_of(e)) == e && (!e->alone || (!e->leads && list_empty(&e->ring))));
            assert(e->alone || find_leader(s, e->channel_hash)->leads);
        }
    }
    assert(hand && window_entries == s->window_entries && window_bytes == s->window_bytes);
    assert(s->keys.items == entries && s->channels.items == leaders);
    return bytes;
}
