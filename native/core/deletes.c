/* Remembered deletes (see deletes.h): open addressing with linear probing and backward
 * shift, so there are no tombstones. Names are kept as 64-bit keyed hashes: should two
 * ever meet, a value is kept from one cache once, nothing more.
 *
 * A delete that found no room is not remembered, and what it forbade may still be on its
 * way until it would have been forgotten. So the table calls itself full until then, not
 * only until some other record expires. */
#include "deletes.h"

#include "limits.h"
#include "mem.h"
#include "siphash.h"

#define SLOTS_MIN 16u
#define SWEEP_STEPS 4u          /* slots looked at per put: expired ones go before room runs out */
#define RESCAN_MS 100u          /* a full table is not walked more often */

struct record {
    uint64_t hash, id, until_ms;    /* id 0: an empty slot */
};

struct deletes {
    struct siphash_key hash_key;
    struct record *slots;
    size_t mask, count, cursor;
    uint64_t last_until_ms;         /* after it every record has expired, swept or not */
    uint64_t blind_until_ms;        /* a refused delete would be remembered until then */
    uint64_t rescan_ms;
};

static uint64_t hash(const struct deletes *d, struct span name)
{
    return siphash_span(&d->hash_key, name);
}

struct deletes *deletes_new(const uint8_t hash_key[16])
{
    struct deletes *d = mem_zalloc(sizeof *d);

    if (!d)
        return NULL;
    d->slots = mem_zalloc(SLOTS_MIN * sizeof *d->slots);
    if (!d->slots) {
        mem_free(d);
        return NULL;
    }
    d->mask = SLOTS_MIN - 1;
    d->hash_key = siphash_key_of(hash_key);
    return d;
}

void deletes_free(struct deletes *d)
{
    if (!d)
        return;
    mem_free(d->slots);
    mem_free(d);
}

/* The slot of `h`, or the empty one where it would go. */
static size_t seek(const struct deletes *d, uint64_t h)
{
    size_t i = (size_t)h & d->mask;

    while (d->slots[i].id && d->slots[i].hash != h)
        i = (i + 1) & d->mask;
    return i;
}

/* Empty slot i and move up what was pushed past it. */
static void erase(struct deletes *d, size_t i)
{
    size_t hole = i;

    for (size_t j = (i + 1) & d->mask; d->slots[j].id; j = (j + 1) & d->mask) {
        size_t home = (size_t)d->slots[j].hash & d->mask;
        if (((j - home) & d->mask) >= ((j - hole) & d->mask)) {
            d->slots[hole] = d->slots[j];
            hole = j;
        }
    }
    d->slots[hole] = (struct record){0, 0, 0};
    d->count--;
}

static void sweep(struct deletes *d, uint64_t now_ms, size_t steps)
{
    for (; steps > 0 && d->count; steps--) {
        d->cursor &= d->mask;
        const struct record *r = &d->slots[d->cursor];
        if (r->id && now_ms >= r->until_ms)
            erase(d, d->cursor);    /* another may have moved here: look again */
        else
            d->cursor++;
    }
}

static bool grow(struct deletes *d)
{
    size_t slots = (d->mask + 1) * 2;
    struct record *fresh = mem_zalloc(slots * sizeof *fresh), *old = d->slots;
    size_t old_mask = d->mask;

    if (!fresh)
        return false;
    d->slots = fresh;
    d->mask = slots - 1;
    for (size_t i = 0; i <= old_mask; i++)
        if (old[i].id)
            fresh[seek(d, old[i].hash)] = old[i];
    mem_free(old);
    return true;
}

/* Is there room for one more? At most half of the slots are used, three quarters when
 * memory is short. */
static bool has_room(struct deletes *d)
{
    if (d->count >= DELETES_REMEMBERED_MAX)
        return false;
    if ((d->count + 1) * 2 <= d->mask + 1)
        return true;
    return grow(d) || (d->count + 1) * 4 <= (d->mask + 1) * 3;
}

bool deletes_put(struct deletes *d, struct span name, uint64_t id, uint64_t now_ms,
                 uint64_t until_ms)
{
    uint64_t h = hash(d, name);

    assert(id != 0);
    sweep(d, now_ms, SWEEP_STEPS);
    const struct record *old = &d->slots[seek(d, h)];
    if (old->id && now_ms < old->until_ms)
        id = max_u64(id, old->id);
    if (!old->id) {
        bool room = has_room(d);
        if (!room && now_ms >= d->rescan_ms) {
            sweep(d, now_ms, (d->mask + 1) * 2);
            d->rescan_ms = now_ms + RESCAN_MS;
            room = has_room(d);
        }
        if (!room) {
            d->blind_until_ms = max_u64(d->blind_until_ms, until_ms);
            return false;
        }
        d->count++;
    }
    d->slots[seek(d, h)] = (struct record){h, id, until_ms};
    d->last_until_ms = max_u64(d->last_until_ms, until_ms);
    return true;
}

/* Every record has expired, or there is none: nothing is worth a look. */
static bool is_idle(const struct deletes *d, uint64_t now_ms)
{
    return d->count == 0 || now_ms >= d->last_until_ms;
}

static const struct record *find(const struct deletes *d, struct span name, uint64_t now_ms)
{
    if (is_idle(d, now_ms))
        return NULL;
    const struct record *r = &d->slots[seek(d, hash(d, name))];
    return r->id && now_ms < r->until_ms ? r : NULL;
}

uint64_t deletes_get(const struct deletes *d, struct span name, uint64_t now_ms)
{
    const struct record *r = find(d, name, now_ms);
    return r ? r->id : 0;
}

uint64_t deletes_until_ms(const struct deletes *d, struct span name, uint64_t now_ms)
{
    const struct record *r = find(d, name, now_ms);
    return r ? r->until_ms : 0;
}

bool deletes_full(struct deletes *d, uint64_t now_ms)
{
    return now_ms < d->blind_until_ms;
}

size_t deletes_count(const struct deletes *d)
{
    return d->count;
}

void deletes_prefetch(const struct deletes *d, struct span name, uint64_t now_ms)
{
    if (!is_idle(d, now_ms))
        __builtin_prefetch(&d->slots[hash(d, name) & d->mask]);
}
