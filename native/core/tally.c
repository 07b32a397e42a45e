/* Tallies (see tally.h): a table of records, one per (name, window length, key, window), and
 * a list of them in the order in which they were last touched. The list is what makes
 * "changed since" cheap: each touch takes the next version and moves the record to the end,
 * so whoever was last told version v is told what lies behind v. */
#include "tally.h"

#include "err.h"
#include "mem.h"
#include "siphash.h"

#define SLOTS_MIN 16u
#define FORGET_STEPS 64u        /* records looked at per tick, at least */
#define ADD_STEPS 2u            /* and per new record */
#define RESCAN_MS 100u          /* a full table is not walked more often */
#define FLAG_ANSWER 1u
#define RECORD_FIXED_BYTES 17u

struct count {
    uint64_t node_id, count;
};

/* `counts` are those of other nodes, by rising node id; `others` is their sum. `told` is
 * the highest sum of all others that an owner told. The total is own + the higher of both. */
struct record {
    struct record *next;        /* in its slot */
    struct list touched;        /* in tally.touched, by rising version */
    uint64_t version;
    uint64_t changed;           /* version of the last change of `own`, 0: none */
    uint64_t handed_on;         /* version as of which others need what only we know, 0: none */
    uint64_t window, own, others, told;
    uint64_t owners[2];         /* the key's owner and its heir (0: none) */
    uint64_t hash;
    struct count *counts;
    uint32_t count, room;
    uint32_t window_ms;
    uint16_t key_bytes;
    uint8_t name_bytes;
    bool routed;                /* `owners` are known */
    uint8_t text[];             /* name, key */
};

struct tally {
    struct siphash_key hash_key;
    uint64_t node_id, version;
    struct record **slots;
    size_t mask, records;
    size_t remote;              /* records with nothing of our own in them */
    size_t unrouted;
    struct list touched;
    struct list *forget;        /* where to look next, or &touched */
    bool through_owners;
    uint64_t members_version;
    uint64_t rescan_ms, refused, misplaced;
};

static uint64_t add_up(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static struct record *record_of(struct list *l) { return CONTAINER_OF(l, struct record, touched); }

static struct span name_of(const struct record *r) { return span_of(r->text, r->name_bytes); }

static struct span key_of(const struct record *r)
{
    return span_of(r->text + r->name_bytes, r->key_bytes);
}

static uint64_t total_of(const struct record *r)
{
    return add_up(r->own, max_u64(r->others, r->told));
}

static bool has_ended(uint64_t window, uint32_t window_ms, uint64_t wall_ms)
{
    return window < wall_ms / window_ms;
}

struct tally *tally_new(uint64_t node_id, const uint8_t hash_key[16])
{
    struct tally *t = mem_zalloc(sizeof *t);

    if (!t)
        return NULL;
    t->slots = mem_zalloc(SLOTS_MIN * sizeof *t->slots);
    if (!t->slots) {
        mem_free(t);
        return NULL;
    }
    t->mask = SLOTS_MIN - 1;
    t->node_id = node_id;
    t->hash_key = siphash_key_of(hash_key);
    list_init(&t->touched);
    t->forget = &t->touched;
    return t;
}

static void free_record(struct record *r)
{
    mem_free(r->counts);
    mem_free(r);
}

void tally_free(struct tally *t)
{
    if (!t)
        return;
    LIST_FOREACH_SAFE(&t->touched, l)
        free_record(record_of(l));
    mem_free(t->slots);
    mem_free(t);
}

static uint64_t hash(const struct tally *t, const struct tally_name *n, uint64_t window)
{
    struct siphash_state s = siphash_begin(&t->hash_key);

    siphash_word(&s, siphash_span(&t->hash_key, n->name));
    siphash_word(&s, siphash_span(&t->hash_key, n->key));
    siphash_word(&s, n->window_ms);
    siphash_word(&s, window);
    return siphash_end(&s);
}

static struct record *find_hashed(const struct tally *t, const struct tally_name *n,
                                  uint64_t window, uint64_t h)
{
    for (struct record *r = t->slots[h & t->mask]; r; r = r->next)
        if (r->hash == h && r->window == window && r->window_ms == n->window_ms &&
            span_equal(name_of(r), n->name) && span_equal(key_of(r), n->key))
            return r;
    return NULL;
}

static struct record *find(const struct tally *t, const struct tally_name *n, uint64_t window)
{
    return find_hashed(t, n, window, hash(t, n, window));
}

static bool is_remote(const struct record *r) { return r->own == 0; }

static void forget(struct tally *t, struct record *r)
{
    struct record **at = &t->slots[r->hash & t->mask];

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (t->forget == &r->touched)
        t->forget = r->touched.next;
    list_remove(&r->touched);
    t->records--;
    t->remote -= is_remote(r);
    t->unrouted -= !r->routed;
    free_record(r);
}

static void forget_ended(struct tally *t, uint64_t wall_ms, size_t steps)
{
    for (; steps > 0 && t->records; steps--) {
        if (t->forget == &t->touched)
            t->forget = t->touched.next;
        struct record *r = record_of(t->forget);
        if (has_ended(r->window, r->window_ms, wall_ms))
            forget(t, r);
        else
            t->forget = t->forget->next;
    }
}

/* Out of memory: not now, chains only get longer. */
static void grow(struct tally *t)
{
    size_t slots = (t->mask + 1) * 2;
    struct record **fresh = mem_zalloc(slots * sizeof(struct record *));

    if (!fresh)
        return;
    LIST_FOREACH(&t->touched, l) {
        struct record *r = record_of(l);
        r->next = fresh[r->hash & (slots - 1)];
        fresh[r->hash & (slots - 1)] = r;
    }
    mem_free(t->slots);
    t->slots = fresh;
    t->mask = slots - 1;
}

/* Others' keys leave a quarter of the table to this node's own. */
static bool has_room(const struct tally *t, bool remote)
{
    return t->records < TALLY_KEYS_MAX && (!remote || t->remote < TALLY_KEYS_MAX / 4 * 3);
}

static void touch(struct tally *t, struct record *r)
{
    r->version = ++t->version;
    if (t->forget == &r->touched)
        t->forget = r->touched.next;
    list_remove(&r->touched);
    list_add_tail(&t->touched, &r->touched);
}

/* Find or make. `remote`: for others' counts, or for none yet. */
static int obtain(struct tally *t, const struct tally_name *n, uint64_t window, bool remote,
                  uint64_t wall_ms, struct record **out)
{
    uint64_t h = hash(t, n, window);
    struct record *r = find_hashed(t, n, window, h);

    *out = r;
    if (r)
        return ERR_OK;
    forget_ended(t, wall_ms, ADD_STEPS);
    if (!has_room(t, remote) && (wall_ms >= t->rescan_ms || wall_ms + RESCAN_MS < t->rescan_ms)) {
        forget_ended(t, wall_ms, t->records);
        t->rescan_ms = wall_ms + RESCAN_MS;
    }
    if (!has_room(t, remote)) {
        t->refused++;
        return ERR_FULL;
    }
    r = mem_zalloc(sizeof *r + n->name.bytes + n->key.bytes);
    if (!r)
        return ERR_NOMEM;
    r->hash = h;
    r->window = window;
    r->window_ms = n->window_ms;
    r->name_bytes = (uint8_t)n->name.bytes;
    r->key_bytes = (uint16_t)n->key.bytes;
    if (n->name.bytes)
        memcpy(r->text, n->name.at, n->name.bytes);
    if (n->key.bytes)
        memcpy(r->text + n->name.bytes, n->key.at, n->key.bytes);
    list_init(&r->touched);
    r->next = t->slots[h & t->mask];
    t->slots[h & t->mask] = r;
    t->records++;
    t->remote++;        /* until something of our own is added */
    t->unrouted++;
    touch(t, r);
    if (t->records > t->mask + 1)
        grow(t);
    *out = r;
    return ERR_OK;
}

static void set_own(struct tally *t, struct record *r, uint64_t own)
{
    t->remote -= is_remote(r);
    r->own = own;
    t->remote += is_remote(r);
}

static bool is_sound(const struct tally_name *n)
{
    return n->window_ms > 0 && n->name.bytes <= TALLY_NAME_BYTES_MAX && n->key.bytes <= KEY_BYTES_MAX;
}

int tally_add(struct tally *t, const struct tally_name *n, uint64_t amount, uint64_t limit,
              uint64_t wall_ms, uint64_t *total, bool *added)
{
    struct record *r;

    *total = 0;
    *added = false;
    if (!is_sound(n))
        return ERR_TOO_BIG;
    int rc = obtain(t, n, tally_window(n, wall_ms), false, wall_ms, &r);
    if (rc)
        return rc;
    *total = total_of(r);
    touch(t, r);        /* refused or not, this key is of interest here */
    if (limit != UINT64_MAX && add_up(*total, amount) > limit)
        return ERR_OK;
    *added = true;
    if (amount == 0)
        return ERR_OK;
    set_own(t, r, add_up(r->own, amount));
    r->changed = r->version;
    *total = total_of(r);
    return ERR_OK;
}

uint64_t tally_total(struct tally *t, const struct tally_name *n, uint64_t window,
                     uint64_t wall_ms)
{
    struct record *r;

    if (!is_sound(n) || has_ended(window, n->window_ms, wall_ms))
        return 0;
    if (!t->through_owners) {
        r = find(t, n, window);
        return r ? total_of(r) : 0;
    }
    if (obtain(t, n, window, true, wall_ms, &r) != ERR_OK)
        return 0;
    touch(t, r);
    return total_of(r);
}

uint64_t tally_own(const struct tally *t, const struct tally_name *n, uint64_t window)
{
    const struct record *r = is_sound(n) ? find(t, n, window) : NULL;
    return r ? r->own : 0;
}

static bool is_owner(const struct record *r, uint64_t node_id)
{
    return r->routed && (r->owners[0] == node_id || r->owners[1] == node_id);
}

/* Ask who owns it now. A new owner or heir is told by everyone of its own count, and of the
 * others' by whoever was owner or heir so far. */
static void route(struct tally *t, struct record *r, tally_owners_of *owners_of, void *context)
{
    uint64_t owners[2] = {0, 0};
    bool was_ours = is_owner(r, t->node_id), moved = false;

    owners_of(context, name_of(r), key_of(r), owners);
    for (unsigned i = 0; r->routed && i < 2; i++)
        moved |= owners[i] != 0 && !is_owner(r, owners[i]);
    t->unrouted -= !r->routed;
    r->routed = true;
    r->owners[0] = owners[0];
    r->owners[1] = owners[1];
    if (!moved)
        return;
    touch(t, r);
    if (was_ours)
        r->handed_on = r->version;
}

/* From owners back to everyone: all need one's own count, and from the owners the others'. */
static void unroute(struct tally *t, struct record *r)
{
    bool was_ours = is_owner(r, t->node_id);

    t->unrouted += r->routed;
    r->routed = false;
    touch(t, r);
    r->changed = r->version;
    if (was_ours)
        r->handed_on = r->version;
}

void tally_route(struct tally *t, uint64_t members_version, tally_owners_of *owners_of,
                 void *context)
{
    bool through_owners = owners_of != NULL, switched = through_owners != t->through_owners;
    bool renewed = switched || members_version != t->members_version;

    t->through_owners = through_owners;
    t->members_version = members_version;
    if (!switched && (!through_owners || (!renewed && t->unrouted == 0)))
        return;
    /* What is new lies at the end. A record touched here goes there too, behind the walk. */
    for (struct list *l = t->touched.prev, *before; l != &t->touched; l = before) {
        struct record *r = record_of(l);
        before = l->prev;
        if (!through_owners)
            unroute(t, r);
        else if (renewed || !r->routed)
            route(t, r, owners_of, context);
        if (!renewed && t->unrouted == 0)
            return;
    }
}

static size_t record_bytes(const struct record *r, size_t counts)
{
    return RECORD_FIXED_BYTES + r->name_bytes + r->key_bytes + counts * sizeof(struct count);
}

static void put_head(struct writer *w, struct span name, struct span key, uint32_t window_ms,
                     uint64_t window, uint16_t counts)
{
    put_u8(w, (uint8_t)name.bytes);
    put_u16(w, (uint16_t)key.bytes);
    put_u32(w, window_ms);
    put_u64(w, window);
    put_u16(w, counts);
    put_span(w, name);
    put_span(w, key);
}

static void put_count(struct writer *w, uint64_t node_id, uint64_t count)
{
    put_u64(w, node_id);
    put_u64(w, count);
}

/* Are the others' counts part of what this page says? */
static bool says_others(const struct record *r, const struct tally_page *p)
{
    return p->of_all || r->handed_on > p->since;
}

/* Is there anything in it for this page? *counts: how many. */
static bool says(const struct tally *t, const struct record *r, const struct tally_page *p,
                 size_t *counts)
{
    *counts = (r->own > 0) + (says_others(r, p) ? r->count : 0);
    if (t->through_owners && !p->of_all)
        return is_owner(r, p->receiver);    /* without a count it only asks */
    return *counts > 0 && (says_others(r, p) || r->changed > p->since);
}

uint64_t tally_encode(struct tally *t, const struct tally_page *p, uint64_t wall_ms,
                      struct writer *w, bool *more)
{
    struct list *l = &t->touched;
    uint64_t upto = p->since;

    assert(writer_bytes(w) == 0 && writer_room(w) >= TALLY_PAGE_BYTES);
    *more = false;
    while (l->prev != &t->touched && record_of(l->prev)->version > p->since)
        l = l->prev;
    for (; l != &t->touched; l = l->next) {
        const struct record *r = record_of(l);
        size_t counts;
        if (!has_ended(r->window, r->window_ms, wall_ms) && says(t, r, p, &counts)) {
            if (writer_room(w) < record_bytes(r, counts) + (writer_bytes(w) == 0)) {
                *more = true;
                return upto;
            }
            if (writer_bytes(w) == 0)
                put_u8(w, t->through_owners && !p->of_all ? FLAG_ANSWER : 0);
            put_head(w, name_of(r), key_of(r), r->window_ms, r->window, (uint16_t)counts);
            if (r->own > 0)
                put_count(w, t->node_id, r->own);
            for (uint32_t i = 0; says_others(r, p) && i < r->count; i++)
                put_count(w, r->counts[i].node_id, r->counts[i].count);
        }
        upto = r->version;
    }
    return upto;
}

/* Take one record's head; false when it is malformed. */
static bool take_head(struct reader *in, struct tally_name *n, uint64_t *window, uint16_t *counts)
{
    size_t name_bytes = take_u8(in), key_bytes = take_u16(in);

    n->window_ms = take_u32(in);
    *window = take_u64(in);
    *counts = take_u16(in);
    n->name = take_span(in, name_bytes);
    n->key = take_span(in, key_bytes);
    return !in->failed && is_sound(n) && *counts <= TALLY_NODES_MAX;
}

static bool is_well_formed(struct span payload)
{
    struct reader in = reader_of(payload);

    if (take_u8(&in) & ~FLAG_ANSWER)
        return false;
    while (!in.failed && reader_left(&in)) {
        struct tally_name n;
        uint64_t window;
        uint16_t counts;
        if (!take_head(&in, &n, &window, &counts))
            return false;
        take_span(&in, counts * sizeof(struct count));
    }
    return take_done(&in);
}

/* The place of a node's count, or where it would go. */
static uint32_t seek(const struct record *r, uint64_t node_id)
{
    uint32_t low = 0, high = r->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (r->counts[middle].node_id < node_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_place(struct record *r, uint32_t at, uint64_t node_id)
{
    if (r->count == TALLY_NODES_MAX - 1)    /* with this node's own a page is full */
        return false;
    if (r->count == r->room) {
        uint32_t room = r->room ? r->room * 2 : 4;
        struct count *counts = mem_resize(r->counts, room * sizeof *counts);
        if (!counts)
            return false;
        r->counts = counts;
        r->room = room;
    }
    memmove(r->counts + at + 1, r->counts + at, (r->count - at) * sizeof *r->counts);
    r->counts[at] = (struct count){node_id, 0};
    r->count++;
    return true;
}

static void merge_count(struct tally *t, struct record *r, uint64_t node_id, uint64_t count)
{
    if (node_id == 0) {
        r->told = max_u64(r->told, count);
        return;
    }
    if (node_id == t->node_id) {    /* only we made it: we forgot, when our clock was set back */
        if (count > r->own)
            set_own(t, r, count);
        return;
    }
    uint32_t at = seek(r, node_id);
    if ((at == r->count || r->counts[at].node_id != node_id) && !make_place(r, at, node_id)) {
        t->refused++;
        return;
    }
    if (count > r->counts[at].count) {
        r->others = add_up(r->others, count - r->counts[at].count);
        r->counts[at].count = count;
    }
}

bool tally_merge(struct tally *t, struct span payload, uint64_t wall_ms)
{
    struct reader in = reader_of(payload);

    if (!is_well_formed(payload))
        return false;
    take_u8(&in);
    while (reader_left(&in)) {
        struct tally_name n;
        struct record *r = NULL;
        uint64_t window;
        uint16_t counts;
        take_head(&in, &n, &window, &counts);
        if (has_ended(window, n.window_ms, wall_ms) ||
            window > (wall_ms + CLOCK_SKEW_MS_MAX) / n.window_ms)
            t->misplaced++;
        else if (counts > 0)
            obtain(t, &n, window, true, wall_ms, &r);   /* no room: it is counted there */
        for (; counts > 0; counts--) {
            uint64_t node_id = take_u64(&in), count = take_u64(&in);
            if (r)
                merge_count(t, r, node_id, count);
        }
    }
    return true;
}

bool tally_wants_answer(struct span payload)
{
    return payload.bytes > 0 && (payload.at[0] & FLAG_ANSWER);
}

void tally_answer(const struct tally *t, struct span payload, uint64_t asker_id, struct writer *w)
{
    struct reader in = reader_of(payload);

    if (!is_well_formed(payload))
        return;
    take_u8(&in);
    put_u8(w, 0);
    while (reader_left(&in)) {
        struct tally_name n;
        uint64_t window, sum;
        uint16_t counts;
        take_head(&in, &n, &window, &counts);
        take_span(&in, counts * sizeof(struct count));
        const struct record *r = find(t, &n, window);
        if (!r)
            continue;
        sum = r->own;
        for (uint32_t i = 0; i < r->count; i++)
            if (r->counts[i].node_id != asker_id)
                sum = add_up(sum, r->counts[i].count);
        if (sum == 0)
            continue;
        if (writer_room(w) < record_bytes(r, 1))
            return;     /* the asker asks again */
        put_head(w, n.name, n.key, n.window_ms, window, 1);
        put_count(w, 0, sum);
    }
}

void tally_tick(struct tally *t, uint64_t wall_ms)
{
    forget_ended(t, wall_ms, FORGET_STEPS + t->records / 8);
}

void tally_stats(const struct tally *t, struct tally_stats *out)
{
    *out = (struct tally_stats){t->records, t->refused, t->misplaced};
}
