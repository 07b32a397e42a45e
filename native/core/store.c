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
 * The tables grow by linear hashing (Litwin, VLDB 1980): one bucket is split per put, so
 * there is no rehash to wait for and no second table. A bucket is one cache line of seven
 * entries with a byte of each one's hash, as in Valkey 8.1 and folly's F14; what does not
 * fit hangs on it in further buckets:
 *
 *   | tag 0 .. tag 6 | chained | slot 0 | ... | slot 6, or the next bucket if chained |
 *     7 bytes          1         8 each                                        = 64
 *
 * A hit so reads two lines that are not in the cache: a bucket and the entry. Buckets lie
 * in segments that double in size, so the directory is a few words and nothing moves.
 *
 * Keys are hashed by SipHash-1-3 (Aumasson and Bernstein, INDOCRYPT 2012, with fewer
 * rounds, as in Rust's and CPython's own tables) under a random key: strong against
 * collisions chosen by who picks the keys, and half the time of SipHash-2-4 on short ones.
 */
#include "store.h"

#include "err.h"
#include "limits.h"
#include "mem.h"

#define CACHE_LINE 64u
#define SLOTS 7u                /* of a bucket */
#define FIRST_BITS 3u           /* the first segment has 8 buckets; nothing smaller exists */
#define FIRST_BUCKETS (1u << FIRST_BITS)
#define SEGMENTS (32u - FIRST_BITS)
#define FULL_MEAN 5u            /* entries per bucket above which one is split */
#define SPARSE_MEAN 2u          /* below which one is merged */
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

_Static_assert(sizeof(struct entry) == CACHE_LINE, "one line, then the key");
_Static_assert(KEY_BYTES_MAX < 1u << 11 && STORE_INLINE_BYTES_MAX < 1u << 11, "11 bits");
_Static_assert(VALUE_TYPE_COUNT <= 16, "4 bits");

#define LASTS UINT32_MAX

/* Slots are filled from the first without holes; only the last bucket of a chain has room.
 * An empty slot's tag is 0, no entry's is. */
struct bucket {
    uint8_t tags[SLOTS];
    uint8_t chained;
    union {
        struct entry *entry;
        struct bucket *next;    /* slots[SLOTS - 1] of a chained bucket; its tag is 0 */
    } slots[SLOTS];
};

_Static_assert(sizeof(struct bucket) == CACHE_LINE || sizeof(void *) != 8, "one line");

struct table {
    struct bucket *segments[SEGMENTS];  /* aligned to a line */
    void *blocks[SEGMENTS];             /* as they came from the heap */
    uint32_t count;             /* buckets in use */
    uint32_t mask;              /* 2^n - 1, the smallest with count <= mask */
    uint32_t chained;           /* further buckets in use */
    struct bucket *spare;       /* so that an insertion can't fail half-way */
};

struct store {
    uint64_t key[2];
    struct table keys, channels;
    struct list queue;          /* oldest first */
    struct list *hand, *sweep;  /* the entry to look at next, or &queue: start at the oldest */
    uint64_t entries, leaders, entry_bytes, bytes_max, evicted, expired;
};

/* --- hashing --- */

static inline uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline void sip_round(struct sip *s)
{
    s->v0 += s->v1; s->v1 = rotate(s->v1, 13) ^ s->v0; s->v0 = rotate(s->v0, 32);
    s->v2 += s->v3; s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3; s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1; s->v1 = rotate(s->v1, 17) ^ s->v2; s->v2 = rotate(s->v2, 32);
}

static inline void sip_word(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    s->v0 ^= word;
}

static inline uint64_t sip_end(struct sip *s)
{
    s->v2 ^= 0xff;
    sip_round(s);
    sip_round(s);
    sip_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

static inline struct sip sip_begin(const uint64_t key[2])
{
    return (struct sip){key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                        key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
}

/* Little-endian words, on any machine. */
static inline uint64_t word_at(const uint8_t *at)
{
    uint64_t w;

    memcpy(&w, at, sizeof w);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif
    return w;
}

/* The `n` < 8 bytes behind the last whole word, `bytes` being the length of it all:
 * a load that overlaps what was read is quicker than a loop. */
static inline uint64_t rest_at(const uint8_t *at, size_t n, size_t bytes)
{
    uint64_t w = 0;

    if (n && bytes >= 8)
        return word_at(at + n - 8) >> (64 - 8 * n);
    for (size_t i = 0; i < n; i++)
        w |= (uint64_t)at[i] << 8 * i;
    return w;
}

static uint64_t hash_key(const struct store *s, struct span key)
{
    struct sip sip = sip_begin(s->key);
    size_t at = 0;

    for (; at + 8 <= key.bytes; at += 8)
        sip_word(&sip, word_at(key.at + at));
    sip_word(&sip, rest_at(key.at + at, key.bytes - at, key.bytes) | (uint64_t)key.bytes << 56);
    return sip_end(&sip);
}

static uint64_t hash_channel(const struct store *s, uint64_t channel_hash)
{
    struct sip sip = sip_begin(s->key);

    sip_word(&sip, channel_hash);
    sip_word(&sip, UINT64_C(8) << 56);
    return sip_end(&sip);
}

static inline uint8_t tag_of(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 56);
    return tag ? tag : 1;
}

/* --- entries --- */

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

/* --- tables --- */

static inline struct bucket *bucket_at(const struct table *t, uint32_t index)
{
    if (index < FIRST_BUCKETS)
        return &t->segments[0][index];
    unsigned top = 31u - (unsigned)__builtin_clz(index);
    return &t->segments[top - FIRST_BITS + 1][index - (1u << top)];
}

static inline uint32_t home_of(const struct table *t, uint32_t hash)
{
    uint32_t index = hash & t->mask;
    return index < t->count ? index : index & t->mask >> 1;
}

/* A bit at 8i + 7 for each slot i whose tag it is. Exact: no carry crosses a byte. */
static inline uint64_t match(const struct bucket *b, uint8_t tag)
{
    const uint64_t low7 = UINT64_C(0x007f7f7f7f7f7f7f);
    uint64_t x = word_at(b->tags);      /* `chained` is its high byte, masked away */

    x = (x ^ tag * UINT64_C(0x0001010101010101)) & UINT64_C(0x00ffffffffffffff);
    return ~(((x & low7) + low7) | x | low7) & UINT64_C(0x0080808080808080);
}

/* A slot, or none: bucket NULL. */
struct place {
    struct bucket *bucket;
    unsigned slot;
};

#define FOREACH_MATCH(t, hash, tag, b, slot)                                             \
    for (struct bucket *b = bucket_at(t, home_of(t, (uint32_t)(hash))); b;               \
         b = b->chained ? b->slots[SLOTS - 1].next : NULL)                               \
        for (uint64_t bits_ = match(b, tag); bits_; bits_ &= bits_ - 1)                  \
            for (unsigned slot = (unsigned)__builtin_ctzll(bits_) / 8, once_ = 1; once_; \
                 once_ = 0)

static inline struct place find_key(const struct store *s, struct span key, uint64_t hash)
{
    FOREACH_MATCH(&s->keys, hash, tag_of(hash), b, slot) {
        const struct entry *e = b->slots[slot].entry;
        if (e->hash == (uint32_t)hash && span_equal(key_of(e), key))
            return (struct place){b, slot};
    }
    return (struct place){NULL, 0};
}

/* The leader of a channel. */
static struct place find_channel(const struct store *s, uint64_t channel_hash)
{
    uint64_t hash = hash_channel(s, channel_hash);

    FOREACH_MATCH(&s->channels, hash, tag_of(hash), b, slot)
        if (b->slots[slot].entry->channel_hash == channel_hash)
            return (struct place){b, slot};
    return (struct place){NULL, 0};
}

static unsigned used(const struct bucket *b)
{
    unsigned n = 0;

    if (b->chained)
        return SLOTS - 1;
    while (n < SLOTS && b->tags[n])
        n++;
    return n;
}

static struct bucket *last_bucket(struct bucket *b)
{
    while (b->chained)
        b = b->slots[SLOTS - 1].next;
    return b;
}

static void clear_bucket(struct bucket *b)
{
    memset(b, 0, sizeof *b);
}

/* Make sure that the next insertion has a bucket to chain. */
static bool reserve(struct table *t)
{
    if (!t->spare)
        t->spare = mem_alloc(sizeof *t->spare);
    return t->spare != NULL;
}

/* Append to the chain of b; a further bucket is taken from *pool, which then has one. */
static void append(struct table *t, struct bucket *b, uint8_t tag, struct entry *e,
                   struct bucket **pool)
{
    b = last_bucket(b);
    unsigned n = used(b);

    if (n == SLOTS) {
        struct bucket *more = *pool;
        assert(more);
        *pool = more->slots[0].next;
        clear_bucket(more);
        more->tags[0] = b->tags[SLOTS - 1];
        more->slots[0].entry = b->slots[SLOTS - 1].entry;
        b->tags[SLOTS - 1] = 0;
        b->chained = 1;
        b->slots[SLOTS - 1].next = more;
        t->chained++;
        b = more;
        n = 1;
    }
    b->tags[n] = tag;
    b->slots[n].entry = e;
}

static void insert(struct table *t, uint64_t hash, struct entry *e)
{
    assert(t->spare);
    t->spare->slots[0].next = NULL;
    append(t, bucket_at(t, home_of(t, (uint32_t)hash)), tag_of(hash), e, &t->spare);
}

/* Empty a slot; the chain's last entry takes its place. */
static void erase(struct table *t, uint64_t hash, struct place p)
{
    struct bucket *before = NULL, *last = bucket_at(t, home_of(t, (uint32_t)hash));

    while (last->chained) {
        before = last;
        last = last->slots[SLOTS - 1].next;
    }
    unsigned n = used(last) - 1;
    p.bucket->tags[p.slot] = last->tags[n];
    p.bucket->slots[p.slot] = last->slots[n];
    last->tags[n] = 0;
    last->slots[n].entry = NULL;
    if (n > 0 || !before)
        return;
    before->chained = 0;
    before->slots[SLOTS - 1].entry = NULL;
    t->chained--;
    mem_free(last);
}

static bool add_segment(struct table *t, unsigned at)
{
    size_t buckets = at == 0 ? FIRST_BUCKETS : (size_t)FIRST_BUCKETS << (at - 1);

    /* Not zeroed: a bucket is cleared when it comes into use, so that the untouched rest
     * of a large segment takes neither time nor memory. */
    t->blocks[at] = mem_alloc(buckets * sizeof(struct bucket) + CACHE_LINE);
    if (!t->blocks[at])
        return false;
    uintptr_t address = (uintptr_t)t->blocks[at];
    t->segments[at] = (struct bucket *)((address + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    return true;
}

static bool init_table(struct table *t)
{
    if (!add_segment(t, 0))
        return false;
    t->count = FIRST_BUCKETS;
    t->mask = 2 * FIRST_BUCKETS - 1;
    for (uint32_t i = 0; i < FIRST_BUCKETS; i++)
        clear_bucket(&t->segments[0][i]);
    return reserve(t);
}

static void deinit_table(struct table *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        struct bucket *b = bucket_at(t, i);
        struct bucket *next = b->chained ? b->slots[SLOTS - 1].next : NULL;
        while (next) {
            b = next;
            next = b->chained ? b->slots[SLOTS - 1].next : NULL;
            mem_free(b);
        }
    }
    for (unsigned i = 0; i < SEGMENTS; i++)
        mem_free(t->blocks[i]);
    mem_free(t->spare);
}

static uint64_t table_bytes(const struct table *t)
{
    return (uint64_t)t->count * sizeof(struct bucket) +
           (uint64_t)t->chained * heap_bytes(sizeof(struct bucket));
}

static uint32_t hash_of(const struct store *s, const struct table *t, const struct entry *e)
{
    return t == &s->keys ? e->hash : (uint32_t)hash_channel(s, e->channel_hash);
}

/* Use one bucket more, and move to it what belongs there. No memory: not now. The further
 * buckets of the old chain always suffice for both: they are taken apart one by one, and
 * two chains of together 6c + 7 entries need no more than c. */
static void split(struct store *s, struct table *t)
{
    uint32_t fresh = t->count;

    if (fresh == UINT32_MAX / 2)
        return;
    unsigned top = 31u - (unsigned)__builtin_clz(fresh);
    unsigned segment = top - FIRST_BITS + 1;
    if (!t->blocks[segment] && !add_segment(t, segment))
        return;
    struct bucket *to = bucket_at(t, fresh), *from = bucket_at(t, fresh & t->mask >> 1);
    clear_bucket(to);
    t->count++;
    if (t->count > t->mask)
        t->mask = t->mask << 1 | 1;

    struct bucket *pool = NULL, old = *from;
    clear_bucket(from);
    for (;;) {
        unsigned n = used(&old);
        struct bucket *next = old.chained ? old.slots[SLOTS - 1].next : NULL;
        for (unsigned i = 0; i < n; i++) {
            struct entry *e = old.slots[i].entry;
            append(t, home_of(t, hash_of(s, t, e)) == fresh ? to : from, old.tags[i], e, &pool);
        }
        if (!next)
            break;
        old = *next;
        next->slots[0].next = pool;
        pool = next;
        t->chained--;
    }
    while (pool) {
        struct bucket *next = pool->slots[0].next;
        mem_free(pool);
        pool = next;
    }
}

/* Give the last bucket back, if what it holds fits where it came from. */
static bool merge(struct table *t)
{
    uint32_t last = t->count - 1;

    if (t->count == FIRST_BUCKETS)
        return false;
    uint32_t mask = last > t->mask >> 1 ? t->mask : t->mask >> 1;
    struct bucket *from = bucket_at(t, last), *to = bucket_at(t, last & mask >> 1);
    unsigned n = used(from), have = used(to);
    if (from->chained || to->chained || n + have > SLOTS)
        return false;
    memcpy(to->tags + have, from->tags, n);
    memcpy(to->slots + have, from->slots, n * sizeof *to->slots);
    t->count = last;
    t->mask = mask;

    unsigned top = 31u - (unsigned)__builtin_clz(last);
    if (last == 1u << top) {            /* it was the first of its segment */
        unsigned segment = top - FIRST_BITS + 1;
        mem_free(t->blocks[segment]);
        t->blocks[segment] = NULL;
        t->segments[segment] = NULL;
    }
    return true;
}

static void fit_tables(struct store *s, bool growing)
{
    if (growing) {
        if (s->entries > (uint64_t)s->keys.count * FULL_MEAN)
            split(s, &s->keys);
        if (s->leaders > (uint64_t)s->channels.count * FULL_MEAN)
            split(s, &s->channels);
        return;
    }
    while (s->entries < (uint64_t)s->keys.count * SPARSE_MEAN && merge(&s->keys))
        ;
    while (s->leaders < (uint64_t)s->channels.count * SPARSE_MEAN && merge(&s->channels))
        ;
}

/* --- the store --- */

struct store *store_new(size_t bytes_max, const uint8_t key[16])
{
    struct store *s = mem_zalloc(sizeof *s);

    if (!s)
        return NULL;
    memcpy(s->key, key, sizeof s->key);
    s->bytes_max = bytes_max;
    list_init(&s->queue);
    s->hand = s->sweep = &s->queue;
    if (!init_table(&s->keys) || !init_table(&s->channels)) {
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
    deinit_table(&s->keys);
    deinit_table(&s->channels);
    mem_wipe(s->key, sizeof s->key);
    mem_free(s);
}

static uint64_t bytes_in_use(const struct store *s)
{
    return sizeof *s + 2 * heap_bytes(sizeof(struct bucket)) + table_bytes(&s->keys) +
           table_bytes(&s->channels) + s->entry_bytes;
}

/* What one put may add to the tables: a split and a chained bucket in each, and the
 * bucket that a split leaves unused. */
#define SLACK_BYTES (8u * CACHE_LINE)

static bool could_fit(const struct store *s, uint64_t bytes)
{
    uint64_t floor = sizeof *s + 2 * heap_bytes(sizeof(struct bucket)) +
                     2ull * FIRST_BUCKETS * sizeof(struct bucket) + SLACK_BYTES;
    return floor + bytes <= s->bytes_max;
}

static void join_channel(struct store *s, struct entry *e)
{
    struct place p = find_channel(s, e->channel_hash);

    list_init(&e->ring);
    e->leads = !p.bucket;
    if (p.bucket) {
        list_add_tail(&p.bucket->slots[p.slot].entry->ring, &e->ring);
    } else {
        insert(&s->channels, hash_channel(s, e->channel_hash), e);
        s->leaders++;
    }
}

static void leave_channel(struct store *s, struct entry *e)
{
    if (e->leads) {
        struct place p = find_channel(s, e->channel_hash);
        assert(p.bucket && p.bucket->slots[p.slot].entry == e);
        if (list_empty(&e->ring)) {
            erase(&s->channels, hash_channel(s, e->channel_hash), p);
            s->leaders--;
        } else {
            struct entry *next = entry_of_ring(e->ring.next);
            next->leads = 1;
            p.bucket->slots[p.slot].entry = next;
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
static void remove_entry(struct store *s, struct place p, struct store_dropped *dropped)
{
    struct entry *e = p.bucket->slots[p.slot].entry;

    erase(&s->keys, e->hash, p);
    leave_channel(s, e);
    if (s->hand == &e->queue)
        s->hand = e->queue.next;
    if (s->sweep == &e->queue)
        s->sweep = e->queue.next;
    list_remove(&e->queue);
    s->entries--;
    discard(s, e, dropped);
    fit_tables(s, false);
}

static struct place place_of(const struct store *s, const struct entry *e)
{
    struct bucket *b = bucket_at(&s->keys, home_of(&s->keys, e->hash));

    for (;; b = b->slots[SLOTS - 1].next) {
        for (unsigned slot = 0; slot < SLOTS; slot++)
            if (b->slots[slot].entry == e)
                return (struct place){b, slot};
        assert(b->chained);
    }
}

/* Evict one entry, never `keep`. False: nothing to evict, or no room for what it holds. */
static bool evict(struct store *s, const struct entry *keep, uint64_t now_ms,
                  struct store_dropped *dropped)
{
    for (unsigned steps = 0;; steps++) {
        if (s->hand == &s->queue)
            s->hand = s->queue.next;
        if (s->hand == &s->queue || (s->entries == 1 && keep))
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
        remove_entry(s, place_of(s, e), dropped);
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
    if (!reserve(&s->keys) || !reserve(&s->channels))
        return ERR_NOMEM;
    struct entry *e = make(item, value, has_blob);
    if (!e)
        return ERR_NOMEM;

    uint64_t hash = hash_key(s, item->key);
    e->hash = (uint32_t)hash;
    struct place p = find_key(s, item->key, hash);
    struct entry *old = p.bucket ? p.bucket->slots[p.slot].entry : NULL;
    uint64_t old_bytes = old ? entry_bytes(old) : 0;
    bool full = old && !has_room(old, dropped);
    for (unsigned n = 0; !full && bytes_in_use(s) - old_bytes + bytes + SLACK_BYTES > s->bytes_max;
         n++)
        full = n == REMOVALS_MAX || !evict(s, old, now_ms, dropped);
    if (full) {
        unmake(e);
        return ERR_FULL;
    }

    if (old) {
        p = place_of(s, old);   /* evictions move slots */
        p.bucket->slots[p.slot].entry = e;
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
        insert(&s->keys, hash, e);
        list_add_tail(&s->queue, &e->queue);
        s->entries++;
    }
    join_channel(s, e);
    s->entry_bytes += bytes;
    fit_tables(s, true);
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
    struct place p = find_key(s, key, hash_key(s, key));

    if (!p.bucket)
        return false;
    struct entry *e = p.bucket->slots[p.slot].entry;
    if (now_ms >= (stale_too ? stale_until_of(e) : expires_of(e)))
        return false;
    fill(e, now_ms, out);
    if (!e->visited)            /* a line that is hot in several caches stays clean */
        e->visited = 1;
    return true;
}

bool store_swap(struct store *s, struct span key, struct blob *old, struct blob *fresh,
                struct store_dropped *dropped)
{
    struct place p = find_key(s, key, hash_key(s, key));

    if (!p.bucket || !old || old->bytes != fresh->bytes || dropped->count == STORE_DROPPED_MAX)
        return false;
    struct entry *e = p.bucket->slots[p.slot].entry;
    if (blob_of(e) != old)
        return false;
    blob_ref(fresh);
    memcpy(e->tail, &fresh, sizeof fresh);
    dropped->blobs[dropped->count++] = old;
    return true;
}

bool store_delete(struct store *s, struct span key, struct store_dropped *dropped)
{
    struct place p = find_key(s, key, hash_key(s, key));

    if (!p.bucket)
        return false;
    assert(has_room(p.bucket->slots[p.slot].entry, dropped));
    remove_entry(s, p, dropped);
    return true;
}

bool store_delete_channel(struct store *s, uint64_t channel_hash, struct store_dropped *dropped)
{
    for (unsigned n = 0;; n++) {
        struct place p = find_channel(s, channel_hash);
        if (!p.bucket)
            return true;
        struct entry *e = p.bucket->slots[p.slot].entry;
        if (n == REMOVALS_MAX || !has_room(e, dropped))
            return false;
        remove_entry(s, place_of(s, e), dropped);
    }
}

bool store_clear(struct store *s, struct store_dropped *dropped)
{
    for (unsigned n = 0; !list_empty(&s->queue); n++) {
        struct entry *e = entry_of_queue(s->queue.next);
        if (n == REMOVALS_MAX || !has_room(e, dropped))
            return false;
        remove_entry(s, place_of(s, e), dropped);
    }
    return true;
}

void store_sweep(struct store *s, uint64_t now_ms, unsigned steps, struct store_dropped *dropped)
{
    for (; steps > 0 && s->entries; steps--) {
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
        remove_entry(s, place_of(s, e), dropped);
    }
}

/* A cursor is bucket << 16 | entries of it that are still to be given, plus one so that it
 * is never 0. They are given from the last to the first, because a removal moves the last
 * into the hole: what was given may move, what was not stays. */
#define REST_MAX 0xffffu

static struct entry *nth(struct bucket *b, unsigned n)
{
    for (; b->chained && n >= SLOTS - 1; n -= SLOTS - 1)
        b = b->slots[SLOTS - 1].next;
    return n < used(b) ? b->slots[n].entry : NULL;
}

uint64_t store_walk(struct store *s, uint64_t cursor, uint64_t now_ms, struct span *key,
                    uint64_t *channel_hash, struct store_hit *out)
{
    uint64_t index = cursor ? (cursor - 1) >> 16 : 0;
    unsigned rest = cursor ? (unsigned)((cursor - 1) & REST_MAX) : REST_MAX;

    for (; index < s->keys.count; index++, rest = REST_MAX) {
        struct bucket *b = bucket_at(&s->keys, (uint32_t)index);
        unsigned have = 0;
        for (struct bucket *c = b; c; c = c->chained ? c->slots[SLOTS - 1].next : NULL)
            have += used(c);
        for (rest = rest < have ? rest : have; rest > 0; rest--) {
            struct entry *e = nth(b, rest - 1);
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
    *out = (struct store_stats){s->entries, bytes_in_use(s), s->bytes_max, s->evicted, s->expired};
}

/* --- for the tests --- */

static uint64_t check_table(const struct store *s, const struct table *t, uint64_t *entries)
{
    uint64_t bytes = 0;
    uint32_t chained = 0;

    assert(t->count <= t->mask && t->count > t->mask >> 1);
    for (uint32_t i = 0; i < t->count; i++) {
        for (const struct bucket *b = bucket_at(t, i); b;
             b = b->chained ? b->slots[SLOTS - 1].next : NULL) {
            bool further = b != bucket_at(t, i);
            unsigned n = used(b);
            bytes += further ? heap_bytes(sizeof *b) : sizeof *b;
            chained += further;
            assert(n > 0 || !further);
            for (unsigned slot = 0; slot < SLOTS; slot++)
                assert((b->tags[slot] != 0) == (slot < n));
            for (unsigned slot = 0; slot < n; slot++) {
                const struct entry *e = b->slots[slot].entry;
                uint64_t hash = t == &s->keys ? hash_key(s, key_of(e))
                                              : hash_channel(s, e->channel_hash);
                assert(home_of(t, (uint32_t)hash) == i && b->tags[slot] == tag_of(hash));
                assert(t == &s->keys ? e->hash == (uint32_t)hash : e->leads);
                (*entries)++;
            }
        }
    }
    assert(chained == t->chained);
    return bytes;
}

uint64_t store_check(const struct store *s)
{
    uint64_t in_keys = 0, in_channels = 0, in_queue = 0, leaders = 0;
    bool hand = s->hand == &s->queue, sweep = s->sweep == &s->queue;
    uint64_t bytes = sizeof *s + 2 * heap_bytes(sizeof(struct bucket));

    bytes += check_table(s, &s->keys, &in_keys);
    bytes += check_table(s, &s->channels, &in_channels);
    LIST_FOREACH(&s->queue, l) {
        struct entry *e = entry_of_queue(l);
        const struct entry *beside = entry_of_ring(e->ring.next);
        bytes += entry_bytes(e);
        in_queue++;
        leaders += e->leads;
        hand |= s->hand == l;
        sweep |= s->sweep == l;
        assert(l->next->prev == l && e->ring.next->prev == &e->ring);
        assert(beside->channel_hash == e->channel_hash);
        assert(find_key(s, key_of(e), hash_key(s, key_of(e))).bucket);
        assert(find_channel(s, e->channel_hash).bucket);
    }
    assert(hand && sweep);
    assert(in_keys == s->entries && in_queue == s->entries && in_channels == leaders && leaders == s->leaders);
    return bytes;
}
