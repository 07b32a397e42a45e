/* The member table. Removal from the hash shifts back instead of leaving marks
 * (Knuth, TAOCP 3, 6.4, algorithm R), so that churn never slows a lookup.
 */
#include "swim_members.h"

#include "err.h"
#include "limits.h"
#include "mem.h"

#define BIT(state) (1u << (state))

/* What a record may become under the same start and version, or a newer one.
 * DEAD and LEFT become each other, or themselves, only under a newer one: a
 * tombstone's incarnation never falls. */
static const uint8_t may_become[] = {
    [SWIM_ALIVE] = BIT(SWIM_ALIVE) | BIT(SWIM_SUSPECT) | BIT(SWIM_DEAD) | BIT(SWIM_LEFT),
    [SWIM_SUSPECT] = BIT(SWIM_ALIVE) | BIT(SWIM_DEAD) | BIT(SWIM_LEFT),
    [SWIM_DEAD] = BIT(SWIM_ALIVE) | BIT(SWIM_DEAD) | BIT(SWIM_LEFT),
    [SWIM_LEFT] = BIT(SWIM_ALIVE) | BIT(SWIM_DEAD) | BIT(SWIM_LEFT),
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ (x >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ (x >> 33);
}

/* Unkeyed: only authenticated peers add records, and the count is bounded. */
static uint64_t hash(const struct addr *a)
{
    uint64_t high, low;
    memcpy(&high, a->ip, 8);
    memcpy(&low, a->ip + 8, 8);
    /* Byte order must not matter: pages and digests compare buckets across hosts. */
    high = __builtin_bswap64(high);
    low = __builtin_bswap64(low);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    high = __builtin_bswap64(high);
    low = __builtin_bswap64(low);
#endif
    return mix(low ^ mix(high + a->port * UINT64_C(0x9e3779b97f4a7c15)));
}

uint32_t members_bucket(const struct addr *a)
{
    return (uint32_t)(hash(a) >> 58);
}

/* Suspicion is passing and local in time, so a suspect digests as alive; the
 * dead don't count, because tombstones expire at different moments. */
uint64_t members_digest_of(const struct member *m)
{
    return mix(hash(&m->addr) ^ mix(m->node_id ^ mix(m->started_ms ^ mix(m->version))));
}

static void digest_flip(struct members *t, const struct member *m)
{
    uint64_t d = members_digest_of(m);
    t->buckets[members_bucket(&m->addr)] ^= d;
    t->digest ^= d;
}

void members_init(struct members *t)
{
    memset(t, 0, sizeof *t);
    t->free_head = MEMBER_NONE;
}

void members_deinit(struct members *t)
{
    for (uint32_t i = 0; i < t->chunk_count; i++)
        mem_free(t->chunks[i]);
    mem_free(t->chunks);
    mem_free(t->slots);
    mem_free(t->order);
    members_init(t);
}

uint32_t members_from(const struct members *t, uint32_t i)
{
    for (; i < t->used; i++) {
        if (members_at(t, i)->marks & MARK_USED)
            return i;
    }
    return MEMBER_NONE;
}

uint32_t members_find(const struct members *t, const struct addr *a)
{
    if (t->slot_count == 0)
        return MEMBER_NONE;
    uint32_t mask = t->slot_count - 1;
    for (uint32_t at = (uint32_t)hash(a) & mask; t->slots[at] != 0; at = (at + 1) & mask) {
        if (addr_equal(&members_at(t, t->slots[at] - 1)->addr, a))
            return t->slots[at] - 1;
    }
    return MEMBER_NONE;
}

static void place(struct members *t, uint32_t i)
{
    uint32_t mask = t->slot_count - 1;
    uint32_t at = (uint32_t)hash(&members_at(t, i)->addr) & mask;
    while (t->slots[at] != 0)
        at = (at + 1) & mask;
    t->slots[at] = i + 1;
}

static int grow_slots(struct members *t)
{
    uint32_t want = t->slot_count ? t->slot_count : 16;
    while ((t->count + 1) * 4 > want * 3)
        want *= 2;
    if (want == t->slot_count)
        return 0;
    uint32_t *slots = mem_zalloc(want * sizeof *slots);
    if (slots == NULL)
        return ERR_NOMEM;
    mem_free(t->slots);
    t->slots = slots;
    t->slot_count = want;
    for (uint32_t i = members_from(t, 0); i != MEMBER_NONE; i = members_from(t, i + 1))
        place(t, i);
    return 0;
}

static int grow_chunks(struct members *t)
{
    if (t->free_head != MEMBER_NONE || t->used < t->chunk_count * MEMBER_CHUNK)
        return 0;
    if (t->chunk_count == t->chunk_capacity) {
        uint32_t want = t->chunk_capacity ? t->chunk_capacity * 2 : 4;
        struct member **chunks = mem_resize(t->chunks, want * sizeof *chunks);
        if (chunks == NULL)
            return ERR_NOMEM;
        t->chunks = chunks;
        t->chunk_capacity = want;
    }
    struct member *chunk = mem_zalloc(MEMBER_CHUNK * sizeof *chunk);
    if (chunk == NULL)
        return ERR_NOMEM;
    t->chunks[t->chunk_count++] = chunk;
    return 0;
}

/* Room for every record, so that members_become() can never fail. */
static int grow_order(struct members *t)
{
    if (t->count < t->order_capacity)
        return 0;
    uint32_t want = t->order_capacity + t->order_capacity / 4 + 8;
    uint32_t *order = mem_resize(t->order, want * sizeof *order);
    if (order == NULL)
        return ERR_NOMEM;
    t->order = order;
    t->order_capacity = want;
    return 0;
}

static void swap_order(struct members *t, uint32_t a, uint32_t b)
{
    uint32_t i = t->order[a];
    t->order[a] = t->order[b];
    t->order[b] = i;
    members_at(t, t->order[a])->order_at = a;
    members_at(t, t->order[b])->order_at = b;
}

static void enter_order(struct members *t, uint32_t i, struct prng *prng)
{
    uint32_t last = t->order_count++;
    t->order[last] = i;
    members_at(t, i)->order_at = last;
    swap_order(t, last, t->order_next + (uint32_t)prng_below(prng, last - t->order_next + 1));
}

static void leave_order(struct members *t, uint32_t i)
{
    uint32_t at = members_at(t, i)->order_at;
    assert(t->order[at] == i);
    if (at < t->order_next) {
        swap_order(t, at, --t->order_next);
        at = t->order_next;
    }
    swap_order(t, at, t->order_count - 1);
    t->order_count--;
}

static void count_in(struct members *t, uint32_t i, struct prng *prng)
{
    struct member *m = members_at(t, i);
    if (!member_is_live(m))
        return;
    digest_flip(t, m);
    if (!(m->flags & SWIM_OBSERVER))
        t->live++;
    if (i != MEMBER_SELF)
        enter_order(t, i, prng);
}

static void fill(struct member *m, const struct standing *s)
{
    m->state = s->state;
    m->flags = s->flags;
    m->speaks_min = s->speaks_min;
    m->speaks_max = s->speaks_max;
    m->node_id = s->node_id;
    m->started_ms = s->started_ms;
    m->version = s->version;
    m->since_s = s->since_s;
}

int members_add(struct members *t, const struct addr *addr, const struct standing *s,
                struct prng *prng, uint32_t *index)
{
    assert(members_find(t, addr) == MEMBER_NONE);
    if (t->count >= MEMBERS_MAX)
        return ERR_FULL;
    int rc = grow_chunks(t);
    if (rc == 0)
        rc = grow_order(t);
    if (rc == 0)
        rc = grow_slots(t);
    if (rc < 0)
        return rc;
    uint32_t i = t->free_head;
    if (i != MEMBER_NONE)
        t->free_head = members_at(t, i)->queue_next;
    else
        i = t->used++;
    struct member *m = members_at(t, i);
    memset(m, 0, sizeof *m);
    m->addr = *addr;
    m->marks = MARK_USED;
    m->queue_prev = m->queue_next = MEMBER_NONE;
    fill(m, s);
    t->count++;
    place(t, i);
    count_in(t, i, prng);
    *index = i;
    return 0;
}

int start_compare(uint64_t started_ms, uint64_t node_id, const struct member *m)
{
    if (started_ms != m->started_ms)
        return started_ms > m->started_ms ? 1 : -1;
    if (node_id != m->node_id)
        return node_id > m->node_id ? 1 : -1;
    return 0;
}

void members_become(struct members *t, uint32_t i, const struct standing *s, struct prng *prng)
{
    struct member *m = members_at(t, i);
    int newer = start_compare(s->started_ms, s->node_id, m);
    if (newer == 0)
        newer = s->version > m->version ? 1 : s->version == m->version ? 0 : -1;
    assert(newer >= 0);
    assert(newer > 0 || s->state > m->state || (s->state == m->state && member_is_live(m)));
    assert(may_become[m->state] & BIT(s->state));

    bool was_live = member_is_live(m), is_live = s->state <= SWIM_SUSPECT;
    if (was_live) {
        digest_flip(t, m);
        if (!(m->flags & SWIM_OBSERVER))
            t->live--;
        if (!is_live && i != MEMBER_SELF)
            leave_order(t, i);
    }
    fill(m, s);
    if (was_live && is_live) {
        digest_flip(t, m);
        if (!(m->flags & SWIM_OBSERVER))
            t->live++;
    } else {
        count_in(t, i, prng);
    }
}

void members_remove(struct members *t, uint32_t i)
{
    struct member *m = members_at(t, i);
    assert(i != MEMBER_SELF && !member_is_live(m) && !(m->marks & MARK_QUEUED));
    uint32_t mask = t->slot_count - 1;
    uint32_t hole = (uint32_t)hash(&m->addr) & mask;
    while (t->slots[hole] != i + 1)
        hole = (hole + 1) & mask;
    for (uint32_t at = (hole + 1) & mask; t->slots[at] != 0; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)hash(&members_at(t, t->slots[at] - 1)->addr) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            t->slots[hole] = t->slots[at];
            hole = at;
        }
    }
    t->slots[hole] = 0;
    m->marks = 0;
    m->queue_next = t->free_head;
    t->free_head = i;
    t->count--;
}

uint32_t members_probe_next(struct members *t, struct prng *prng)
{
    if (t->order_count == 0)
        return MEMBER_NONE;
    if (t->order_next >= t->order_count) {
        t->order_next = 0;
        for (uint32_t k = t->order_count - 1; k > 0; k--)
            swap_order(t, k, (uint32_t)prng_below(prng, k + 1));
    }
    return t->order[t->order_next++];
}

void members_probe_soon(struct members *t, uint32_t i)
{
    uint32_t at = members_at(t, i)->order_at;
    if (i == MEMBER_SELF || !member_is_live(members_at(t, i)))
        return;
    if (at < t->order_next)
        swap_order(t, at, --t->order_next);
    else
        swap_order(t, at, t->order_next);
}

size_t members_memory(const struct members *t)
{
    return t->chunk_count * MEMBER_CHUNK * sizeof(struct member)
        + t->chunk_capacity * sizeof *t->chunks
        + (t->slot_count + (size_t)t->order_capacity) * sizeof(uint32_t);
}
