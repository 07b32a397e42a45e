/* Linear hashing over cache lines (see store_table.h). */
#include "store_table.h"

#include "mem.h"

/* More items per bucket than this: one is split. Buckets not yet split in a round hold up
 * to twice as many as the others; measured over a round, 4 to 7 cost about the same bytes
 * per item, and with 5 most look-ups still end in their first line. */
#define FULL_MEAN 5u
#define SPARSE_MEAN 2u          /* fewer: one is merged; far enough from 5 not to flutter */
#define FURTHER_BYTES 80u       /* a bucket of its own on the heap */

_Static_assert(sizeof(struct table_bucket) == CACHE_LINE || sizeof(void *) != 8, "one line");
_Static_assert(TABLE_BYTES_MIN == TABLE_FIRST_BUCKETS * sizeof(struct table_bucket) + FURTHER_BYTES,
               "the header says it as a number");

static unsigned used(const struct table_bucket *b)
{
    unsigned n = 0;

    if (b->chained)
        return TABLE_SLOTS - 1;
    while (n < TABLE_SLOTS && b->tags[n])
        n++;
    return n;
}

static void clear(struct table_bucket *b)
{
    memset(b, 0, sizeof *b);
}

static unsigned segment_of(unsigned top)
{
    return top - TABLE_FIRST_BITS + 1;
}

static unsigned top_bit(uint32_t x)
{
    return 31u - (unsigned)__builtin_clz(x);
}

static bool add_segment(struct table *t, unsigned at)
{
    size_t buckets = at == 0 ? TABLE_FIRST_BUCKETS : (size_t)TABLE_FIRST_BUCKETS << (at - 1);

    /* Not zeroed: a bucket is cleared when it comes into use, so that the untouched rest
     * of a large segment takes neither time nor memory. */
    t->blocks[at] = mem_alloc(buckets * sizeof(struct table_bucket) + CACHE_LINE);
    if (!t->blocks[at])
        return false;
    uintptr_t address = (uintptr_t)t->blocks[at];
    address = (address + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1);
    t->segments[at] = (struct table_bucket *)address;
    return true;
}

static void drop_segment(struct table *t, unsigned at)
{
    mem_free(t->blocks[at]);
    t->blocks[at] = NULL;
    t->segments[at] = NULL;
}

bool table_init(struct table *t, uint32_t (*hash_of)(const void *context, const void *item),
                const void *context)
{
    memset(t, 0, sizeof *t);
    t->hash_of = hash_of;
    t->context = context;
    if (!add_segment(t, 0))
        return false;
    t->count = TABLE_FIRST_BUCKETS;
    t->mask = 2 * TABLE_FIRST_BUCKETS - 1;
    for (uint32_t i = 0; i < TABLE_FIRST_BUCKETS; i++)
        clear(&t->segments[0][i]);
    return table_reserve(t);
}

void table_deinit(struct table *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        struct table_bucket *next = table_next(table_bucket_at(t, i));
        while (next) {
            struct table_bucket *b = next;
            next = table_next(b);
            mem_free(b);
        }
    }
    for (unsigned i = 0; i < TABLE_SEGMENTS; i++)
        drop_segment(t, i);
    mem_free(t->spare);
    t->spare = NULL;
    t->count = 0;
}

uint64_t table_bytes(const struct table *t)
{
    return (uint64_t)t->count * sizeof(struct table_bucket) + (t->chained + 1ull) * FURTHER_BYTES;
}

bool table_reserve(struct table *t)
{
    if (!t->spare)
        t->spare = mem_alloc(sizeof *t->spare);
    if (t->spare)
        t->spare->slots[0].next = NULL;     /* a pool of one */
    return t->spare != NULL;
}

/* Append to a chain; a further bucket is taken from *pool, which then has one. */
static void append(struct table *t, struct table_bucket *b, uint8_t tag, void *item,
                   struct table_bucket **pool)
{
    while (b->chained)
        b = table_next(b);
    unsigned n = used(b);

    if (n == TABLE_SLOTS) {
        struct table_bucket *more = *pool;
        assert(more);
        *pool = more->slots[0].next;
        clear(more);
        more->tags[0] = b->tags[TABLE_SLOTS - 1];
        more->slots[0].item = b->slots[TABLE_SLOTS - 1].item;
        b->tags[TABLE_SLOTS - 1] = 0;
        b->slots[TABLE_SLOTS - 1].next = more;
        b->chained = 1;
        t->chained++;
        b = more;
        n = 1;
    }
    b->tags[n] = tag;
    b->slots[n].item = item;
}

/* Use one bucket more, and move to it what belongs there. Out of memory: not now, chains
 * only get longer. The further buckets of the old chain suffice for both new ones: they
 * are taken apart one by one, and two chains of together 6c + 7 items need at most c. */
static void split(struct table *t)
{
    uint32_t fresh = t->count;
    unsigned segment = segment_of(top_bit(fresh));

    if (fresh == UINT32_MAX >> 1 || (!t->blocks[segment] && !add_segment(t, segment)))
        return;
    struct table_bucket *to = table_bucket_at(t, fresh);
    struct table_bucket *from = table_bucket_at(t, fresh & t->mask >> 1);
    clear(to);
    t->count++;
    if (t->count > t->mask)
        t->mask = t->mask << 1 | 1;

    struct table_bucket *pool = NULL, old = *from;
    clear(from);
    for (;;) {
        struct table_bucket *next = table_next(&old);
        for (unsigned i = 0, n = used(&old); i < n; i++) {
            void *item = old.slots[i].item;
            bool moves = table_home(t, t->hash_of(t->context, item)) == fresh;
            append(t, moves ? to : from, old.tags[i], item, &pool);
        }
        if (!next)
            break;
        old = *next;
        next->slots[0].next = pool;
        pool = next;
        t->chained--;
    }
    while (pool) {
        struct table_bucket *next = pool->slots[0].next;
        mem_free(pool);
        pool = next;
    }
}

/* Give the last bucket back if what it holds fits where it came from. */
static bool merge(struct table *t)
{
    uint32_t last = t->count - 1;

    if (t->count == TABLE_FIRST_BUCKETS)
        return false;
    uint32_t mask = last > t->mask >> 1 ? t->mask : t->mask >> 1;
    struct table_bucket *from = table_bucket_at(t, last), *to = table_bucket_at(t, last & mask >> 1);
    unsigned n = used(from), have = used(to);
    if (from->chained || to->chained || n + have > TABLE_SLOTS)
        return false;
    memcpy(to->tags + have, from->tags, n);
    memcpy(to->slots + have, from->slots, n * sizeof *to->slots);
    t->count = last;
    t->mask = mask;
    if (last == 1u << top_bit(last))    /* it was the first of its segment */
        drop_segment(t, segment_of(top_bit(last)));
    return true;
}

void table_insert(struct table *t, uint64_t hash, void *item)
{
    struct table_bucket *b = table_first(t, hash);

    append(t, b, table_tag(hash), item, &t->spare);
    t->items++;
    if (t->items > (uint64_t)t->count * FULL_MEAN)
        split(t);
}

struct table_place table_place_of(const struct table *t, uint64_t hash, const void *item)
{
    struct table_bucket *b = table_first(t, hash);

    for (;; b = table_next(b)) {
        assert(b);
        for (unsigned slot = 0; slot < TABLE_SLOTS; slot++)
            if (b->slots[slot].item == item)
                return (struct table_place){b, slot};
    }
}

/* The chain's last item fills the hole. */
void table_erase(struct table *t, uint64_t hash, struct table_place p)
{
    struct table_bucket *last = table_first(t, hash), *before = NULL;

    while (last->chained) {
        before = last;
        last = table_next(last);
    }
    unsigned n = used(last) - 1;
    p.bucket->tags[p.slot] = last->tags[n];
    p.bucket->slots[p.slot] = last->slots[n];
    last->tags[n] = 0;
    last->slots[n].item = NULL;
    if (n == 0 && before) {
        before->chained = 0;
        before->slots[TABLE_SLOTS - 1].item = NULL;
        t->chained--;
        mem_free(last);
    }
    t->items--;
    while (t->items < (uint64_t)t->count * SPARSE_MEAN && merge(t))
        ;
}

unsigned table_length(const struct table *t, uint32_t bucket)
{
    unsigned n = 0;

    for (const struct table_bucket *b = table_bucket_at(t, bucket); b; b = table_next(b))
        n += used(b);
    return n;
}

void *table_nth(const struct table *t, uint32_t bucket, unsigned n)
{
    const struct table_bucket *b = table_bucket_at(t, bucket);

    for (; b->chained && n >= TABLE_SLOTS - 1; n -= TABLE_SLOTS - 1)
        b = table_next(b);
    return n < used(b) ? b->slots[n].item : NULL;
}

uint64_t table_check(const struct table *t)
{
    uint64_t bytes = FURTHER_BYTES, items = 0;
    uint32_t chained = 0;

    assert(t->count <= t->mask && t->count > t->mask >> 1);
    for (uint32_t i = 0; i < t->count; i++) {
        const struct table_bucket *first = table_bucket_at(t, i);
        for (const struct table_bucket *b = first; b; b = table_next(b)) {
            unsigned n = used(b);
            bytes += b == first ? sizeof *b : FURTHER_BYTES;
            chained += b != first;
            items += n;
            assert(n > 0 || b == first);
            for (unsigned slot = 0; slot < TABLE_SLOTS; slot++)
                assert((b->tags[slot] != 0) == (slot < n));
            for (unsigned slot = 0; slot < n; slot++)
                assert(table_home(t, t->hash_of(t->context, b->slots[slot].item)) == i);
        }
    }
    assert(chained == t->chained && items == t->items);
    for (unsigned i = 1; i < TABLE_SEGMENTS; i++)
        assert(t->blocks[i] || t->count <= TABLE_FIRST_BUCKETS << (i - 1));
    return bytes;
}
