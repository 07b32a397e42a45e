/* What was stored together (rules O14, D4): a load may bring further entries of its channel,
 * and who deletes the key that was loaded deletes them too.
 *
 * Whoever may run a delete of a key has to know: its owner from the load, its heir and new
 * owners from pushes, which name the key by its hash. All others are told by name. A full
 * table drops its oldest entry from the store as well, so that no delete ever misses one.
 */
#include "serve_state.h"

#include "limits.h"
#include "mem.h"

#define KIN_BUCKETS 256u

struct kin_table {
    size_t count;
    struct list oldest;                     /* by age */
    struct list by_parent[KIN_BUCKETS], by_child[KIN_BUCKETS];
};

static uint64_t hash_of(const struct serve *s, struct span key)
{
    return rendezvous_channel(&s->rendezvous, key);
}

static struct kin_table *table_of(struct serve *s)
{
    if (!s->kin && (s->kin = mem_zalloc(sizeof *s->kin))) {
        list_init(&s->kin->oldest);
        for (unsigned i = 0; i < KIN_BUCKETS; i++) {
            list_init(&s->kin->by_parent[i]);
            list_init(&s->kin->by_child[i]);
        }
    }
    return s->kin;
}

static void unlink_kin(struct serve *s, struct kin *k)
{
    list_remove(&k->age);
    list_remove(&k->of_parent);
    list_remove(&k->of_child);
    s->kin->count--;
}

static struct kin *find_child(const struct serve *s, uint64_t child)
{
    if (s->kin) {
        LIST_FOREACH(&s->kin->by_child[child % KIN_BUCKETS], l) {
            struct kin *k = CONTAINER_OF(l, struct kin, of_child);
            if (k->child == child)
                return k;
        }
    }
    return NULL;
}

bool kin_add(struct serve *s, uint64_t parent, struct span key)
{
    struct kin_table *t = table_of(s);
    uint64_t child = hash_of(s, key);
    struct kin *k = find_child(s, child);

    if (k && k->parent == parent)
        return true;
    if (k) {                    /* last stored with another key */
        unlink_kin(s, k);
        mem_free(k);
    }
    k = t ? mem_alloc(sizeof *k + key.bytes) : NULL;
    if (!k)
        return false;
    if (t->count >= KIN_MAX) {
        struct kin *old = CONTAINER_OF(t->oldest.next, struct kin, age);
        store_delete(s->store, span_of(old->key, old->bytes), &s->dropped);
        unlink_kin(s, old);
        mem_free(old);
    }
    *k = (struct kin){.parent = parent, .child = child, .bytes = key.bytes};
    memcpy(k->key, key.at, key.bytes);
    list_add_tail(&t->oldest, &k->age);
    list_add_tail(&t->by_parent[parent % KIN_BUCKETS], &k->of_parent);
    list_add_tail(&t->by_child[child % KIN_BUCKETS], &k->of_child);
    t->count++;
    return true;
}

uint64_t kin_parent(const struct serve *s, struct span key)
{
    const struct kin *k = s->kin && s->kin->count ? find_child(s, hash_of(s, key)) : NULL;
    return k ? k->parent : 0;
}

struct kin *serve_take_kin(struct serve *s, struct span key)
{
    uint64_t parent = hash_of(s, key);

    if (!s->kin || s->kin->count == 0)
        return NULL;
    LIST_FOREACH(&s->kin->by_parent[parent % KIN_BUCKETS], l) {
        struct kin *k = CONTAINER_OF(l, struct kin, of_parent);
        if (k->parent == parent) {
            unlink_kin(s, k);
            return k;
        }
    }
    return NULL;
}

void kin_free(struct serve *s)
{
    if (!s->kin)
        return;
    LIST_FOREACH_SAFE(&s->kin->oldest, l)
        mem_free(CONTAINER_OF(l, struct kin, age));
    mem_free(s->kin);
}
