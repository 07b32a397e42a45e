/* The store's hash tables: items by a 64-bit hash, growing and shrinking one bucket at a
 * time.
 *
 * Growth is linear hashing (Litwin, VLDB 1980): whoever inserts splits one bucket, so there
 * is no rehash to wait for and no second table. A bucket is one cache line of seven items
 * with a byte of each one's hash, as in folly's F14 and Valkey 8.1; what does not fit hangs
 * on it in further buckets:
 *
 *   | tag 0 .. tag 6 | chained | slot 0 | ... | slot 6, or the next bucket if chained |
 *     7 bytes          1         8 each                                        = 64
 *
 * A look-up so reads one line of the table, and a wrong item only once in 256. Buckets lie
 * in segments that double in size: the directory is a few words, and nothing ever moves.
 * The low half of a hash chooses the bucket, its high byte is the tag.
 *
 * Part of the store; nobody else includes it.
 */
#ifndef PEERAGE_STORE_TABLE_H
#define PEERAGE_STORE_TABLE_H

#include "base.h"
#include "siphash.h"

#define CACHE_LINE 64u          /* of x86 and most of ARM; elsewhere slower, not wrong */
#define TABLE_SLOTS 7u
#define TABLE_FIRST_BITS 3u     /* the first segment has 8 buckets; nothing smaller exists */
#define TABLE_FIRST_BUCKETS (1u << TABLE_FIRST_BITS)
#define TABLE_SEGMENTS (32u - TABLE_FIRST_BITS)

/* Slots are filled from the first without holes; only the last bucket of a chain has room.
 * An empty slot's tag is 0, no item's is. */
struct table_bucket {
    uint8_t tags[TABLE_SLOTS];
    uint8_t chained;
    union {
        void *item;
        struct table_bucket *next;  /* the last slot of a chained bucket; its tag is 0 */
    } slots[TABLE_SLOTS];
};

struct table {
    struct table_bucket *segments[TABLE_SEGMENTS];  /* aligned to a line */
    void *blocks[TABLE_SEGMENTS];                   /* as they came from the heap */
    uint32_t count;                 /* buckets in use, the further ones not counted */
    uint32_t mask;                  /* 2^n - 1, the smallest with count <= mask */
    uint32_t chained;               /* further buckets in use */
    uint64_t items;
    struct table_bucket *spare;     /* so that an insertion can't fail half-way */
    uint32_t (*hash_of)(const void *context, const void *item);     /* the low half */
    const void *context;
};

/* False: out of memory; deinit all the same. */
bool table_init(struct table *, uint32_t (*hash_of)(const void *context, const void *item),
                const void *context);
void table_deinit(struct table *);

/* Bytes in use. What lies untouched at the end of a segment takes no memory. */
uint64_t table_bytes(const struct table *);
#define TABLE_BYTES_MIN (TABLE_FIRST_BUCKETS * sizeof(struct table_bucket) + 80)
/* One insertion adds a split bucket and a further one at most. */
#define TABLE_BYTES_STEP (sizeof(struct table_bucket) + 80)

/* Make sure that one insertion can't fail; false: out of memory. */
bool table_reserve(struct table *);
/* Needs a table_reserve before. Grows by a bucket if it should and memory allows. */
void table_insert(struct table *, uint64_t hash, void *item);

/* Where an item is, or bucket NULL. Good until the table changes. */
struct table_place {
    struct table_bucket *bucket;
    unsigned slot;
};

static inline void *table_item(struct table_place p) { return p.bucket->slots[p.slot].item; }

/* The place of an item that is there. `hash`: the low half at least. */
struct table_place table_place_of(const struct table *, uint64_t hash, const void *item);
void table_erase(struct table *, uint64_t hash, struct table_place);

/* The nth item of a bucket with its chain, NULL when there are fewer. */
void *table_nth(const struct table *, uint32_t bucket, unsigned n);
unsigned table_length(const struct table *, uint32_t bucket);

/* Tests: assert every invariant of the table, count the bytes afresh. */
uint64_t table_check(const struct table *);

/* The inner loop of a look-up, here so that it is inlined. */

static inline struct table_bucket *table_bucket_at(const struct table *t, uint32_t index)
{
    if (index < TABLE_FIRST_BUCKETS)
        return &t->segments[0][index];
    unsigned top = 31u - (unsigned)__builtin_clz(index);
    return &t->segments[top - TABLE_FIRST_BITS + 1][index - (1u << top)];
}

static inline uint32_t table_home(const struct table *t, uint32_t hash)
{
    uint32_t index = hash & t->mask;
    return index < t->count ? index : index & t->mask >> 1;
}

/* The first bucket of the chain in which items of this hash stand. */
static inline struct table_bucket *table_first(const struct table *t, uint64_t hash)
{
    return table_bucket_at(t, table_home(t, (uint32_t)hash));
}

static inline struct table_bucket *table_next(const struct table_bucket *b)
{
    return b->chained ? b->slots[TABLE_SLOTS - 1].next : NULL;
}

static inline uint8_t table_tag(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 56);
    return tag ? tag : 1;
}

/* Bit 8i + 7 is set for each slot i whose tag it is. Exact: no carry crosses a byte. */
static inline uint64_t table_match(const struct table_bucket *b, uint8_t tag)
{
    const uint64_t low7 = UINT64_C(0x007f7f7f7f7f7f7f);
    uint64_t x = siphash_load(b->tags);     /* `chained` is its high byte, masked away */

    x = (x ^ tag * UINT64_C(0x0001010101010101)) & UINT64_C(0x00ffffffffffffff);
    return ~(((x & low7) + low7) | x | low7) & UINT64_C(0x0080808080808080);
}

/* The first slot of a match that is not 0. */
static inline unsigned table_slot(uint64_t match)
{
    return (unsigned)__builtin_ctzll(match) / 8;
}

/* Visit the places whose item may have this hash; the body returns when it is the one. */
#define TABLE_FOREACH_MATCH(t, hash, place)                                        \
    for (struct table_place place = {table_first((t), (hash)), 0}; place.bucket;   \
         place.bucket = table_next(place.bucket))                                  \
        for (uint64_t match_ = table_match(place.bucket, table_tag(hash));         \
             match_ && (place.slot = table_slot(match_), true);                    \
             match_ &= match_ - 1)

#endif
