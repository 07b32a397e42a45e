/* The node's entries (see store.h). Three structures hold each entry:
 *
 *   queue      SIEVE's: insertion order, oldest first, and a hand that walks from old to
 *              new. A hit sets one bit; the hand clears bits and evicts the first entry
 *              that has none (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024).
 *              We deviate in two ways: what is past its stale time goes whatever its bit,
 *              and the hand passes at most HAND_STEPS_MAX entries for one eviction, because
 *              a hand that crosses a million hot entries would be a pause.
 *   keys       a table from the key's hash to its entry
 *   channels   a table from the channel's hash to one entry of it, the leader; the others
 *              hang on a ring. So a channel goes without a walk, and most channels, which
 *              have one entry, cost one slot.
 *
 * A hit reads two lines that are not in the processor's cache: one of the table (see
 * store_table.h) and the entry. Names are hashed under a random key (see siphash.h).
 */
#include "store.h"

#include "err.h"
#include "limits.h"
#include "mem.h"
#include "siphash.h"
#include "store_table.h"

#define HAND_STEPS_MAX 256u
#define REMOVALS_MAX 1024u      /* of one call: the lock is short */
#define MALLOC_BYTES 8u         /* what the heap adds to a block, before rounding to 16 */

struct entry {
    struct list queue;          /* in store.queue */
    struct list ring;           /* the channel's other entries; alone: itself */
    uint64_t channel_hash;
    uint64_t stored_ms;
    uint32_t ttl_ms, stale_ms;  /* LASTS: for ever */
    uint32_t hash;              /* low half of the key's; the tag is its high byte */
    unsigned key_bytes : 11, value_bytes : 11, value_type : 4;
    unsigned visited : 1;
    unsigned leads : 1;         /* it stands in `channels` for its ring */
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
    struct list queue;          /* oldest first */
    struct list *hand, *sweep;  /* the entry to look at next, or &queue: start at the oldest */
    uint64_t entry_bytes, bytes_max, evicted, expired;
};

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
    s->bytes_max = bytes_max;
    list_init(&s->queue);
    s->hand = s->sweep = &s->queue;
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
    LIST_FOREACH_SAFE(&s->queue, l) {
        struct entry *e = entry_of_queue(l);
        blob_unref(blob_of(e));
        mem_free(e);
    }
    table_deinit(&s->keys);
    table_deinit(&s->channels);
    mem_wipe(&s->hash_key, sizeof s->hash_key);
    mem_free(s);
}

static uint64_t bytes_in_use(const struct store *s)
{
    return sizeof *s + table_bytes(&s->keys) + table_bytes(&s->channels) + s->entry_bytes;
}

static bool could_fit(const struct store *s, uint64_t bytes)
{
    return sizeof *s + 2 * (TABLE_BYTES_MIN + TABLE_BYTES_STEP) + bytes <= s->bytes_max;
}

/* Is there room for `bytes` more, and for what the tables may grow by? */
static bool fits(const struct store *s, uint64_t bytes)
{
    return bytes_in_use(s) + 2 * TABLE_BYTES_STEP + bytes <= s->bytes_max;
}

static void join_channel(struct store *s, struct entry *e)
{
    struct entry *leader = find_leader(s, e->channel_hash);

    list_init(&e->ring);
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

/* Hands on the blob and frees the entry, which is in no structure any more. */
static void discard(struct store *s, struct entry *e, struct store_dropped *dropped)
{
    struct blob *b = blob_of(e);

    s->entry_bytes -= entry_bytes(e);
    if (b)
        dropped->blobs[dropped->count++] = b;
    mem_free(e);
}

static bool has_room(const struct entry *e, const struct store_dropped *dropped)
{
    return !e->has_blob || dropped->count < STORE_DROPPED_MAX;
}

/* For `e`, and afterwards for `later` (or NULL). */
static bool has_room_for_both(const struct entry *e, const struct entry *later,
                              const struct store_dropped *dropped)
{
    unsigned want = e->has_blob + (later ? later->has_blob : 0u);
    return !e->has_blob || dropped->count + want <= STORE_DROPPED_MAX;
}

/* `dropped` has room for it. */
static void remove_entry(struct store *s, struct entry *e, struct store_dropped *dropped)
{
    table_erase(&s->keys, e->hash, table_place_of(&s->keys, e->hash, e));
    leave_channel(s, e);
    if (s->hand == &e->queue)
        s->hand = e->queue.next;
    if (s->sweep == &e->queue)
        s->sweep = e->queue.next;
    list_remove(&e->queue);
    discard(s, e, dropped);
}

/* Evict one entry, never `keep`. False: nothing to evict, or no room for what it holds. */
static bool evict(struct store *s, const struct entry *keep, uint64_t now_ms,
                  struct store_dropped *dropped)
{
    for (unsigned steps = 0;; steps++) {
        if (s->hand == &s->queue)
            s->hand = s->queue.next;
        if (s->hand == &s->queue || (s->keys.items == 1 && keep))
            return false;
        struct entry *e = entry_of_queue(s->hand);
        bool gone = now_ms >= stale_until_of(e);
        if (e == keep || (!gone && e->visited && steps < HAND_STEPS_MAX)) {
            e->visited = 0;
            s->hand = s->hand->next;
            continue;
        }
        if (!has_room_for_both(e, keep, dropped))
            return false;
        if (gone)
            s->expired++;
        else
            s->evicted++;
        remove_entry(s, e, dropped);
        return true;
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
    e->leads = 0;
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
    bool full = old && !has_room(old, dropped);
    for (unsigned n = 0; !full && !fits(s, more); n++)
        full = n == REMOVALS_MAX || !evict(s, old, now_ms, dropped);
    if (full) {
        unmake(e);
        return ERR_FULL;
    }

    e->hash = (uint32_t)hash;
    if (old) {
        struct table_place p = table_place_of(&s->keys, hash, old);
        p.bucket->slots[p.slot].item = e;
        e->visited = old->visited;
        leave_channel(s, old);
        list_add_tail(&old->queue, &e->queue);
        if (s->hand == &old->queue)
            s->hand = &e->queue;
        if (s->sweep == &old->queue)
            s->sweep = &e->queue;
        list_remove(&old->queue);
        discard(s, old, dropped);
    } else {
        table_insert(&s->keys, hash, e);
        list_add_tail(&s->queue, &e->queue);
    }
    join_channel(s, e);
    s->entry_bytes += bytes;
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
}

bool store_get(struct store *s, struct span key, uint64_t now_ms, bool stale_too,
               struct store_hit *out)
{
    struct entry *e = find(s, key);

    if (!e || now_ms >= (stale_too ? stale_until_of(e) : expires_of(e)))
        return false;
    fill(e, now_ms, out);
    if (!e->visited)            /* a line that is hot in several caches stays clean */
        e->visited = 1;
    return true;
}

bool store_swap(struct store *s, struct span key, struct blob *old, struct blob *fresh,
                struct store_dropped *dropped)
{
    struct entry *e = find(s, key);

    if (!e || !old || blob_of(e) != old || old->bytes != fresh->bytes || !has_room(e, dropped))
        return false;
    blob_ref(fresh);
    memcpy(e->tail, &fresh, sizeof fresh);
    dropped->blobs[dropped->count++] = old;
    return true;
}

bool store_delete(struct store *s, struct span key, struct store_dropped *dropped)
{
    struct entry *e = find(s, key);

    if (!e)
        return false;
    assert(has_room(e, dropped));
    remove_entry(s, e, dropped);
    return true;
}

bool store_delete_channel(struct store *s, uint64_t channel_hash, struct store_dropped *dropped)
{
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
    for (unsigned n = 0; !list_empty(&s->queue); n++) {
        struct entry *e = entry_of_queue(s->queue.next);
        if (n == REMOVALS_MAX || !has_room(e, dropped))
            return false;
        remove_entry(s, e, dropped);
    }
    return true;
}

void store_sweep(struct store *s, uint64_t now_ms, unsigned steps, struct store_dropped *dropped)
{
    for (; steps > 0 && s->keys.items; steps--) {
        if (s->sweep == &s->queue)
            s->sweep = s->queue.next;
        struct entry *e = entry_of_queue(s->sweep);
        if (now_ms < stale_until_of(e)) {
            s->sweep = s->sweep->next;
            continue;
        }
        if (!has_room(e, dropped))
            return;
        s->expired++;
        remove_entry(s, e, dropped);
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
    uint64_t entries = 0, leaders = 0;
    bool hand = s->hand == &s->queue, sweep = s->sweep == &s->queue;

    LIST_FOREACH(&s->queue, l) {
        struct entry *e = entry_of_queue(l);
        bytes += entry_bytes(e);
        entries++;
        leaders += e->leads;
        hand |= s->hand == l;
        sweep |= s->sweep == l;
        assert(l->next->prev == l && e->ring.next->prev == &e->ring);
        assert(entry_of_ring(e->ring.next)->channel_hash == e->channel_hash);
        assert(find(s, key_of(e)) == e && find_leader(s, e->channel_hash)->leads);
    }
    assert(hand && sweep);
    assert(s->keys.items == entries && s->channels.items == leaders);
    return bytes;
}
