/* What changes a node's entries from outside a load: deletes and sets (rules D1-D4), and
 * entries that an owner pushes to its heir (see serve.h).
 */
#include "serve_state.h"

#include "err.h"
#include "limits.h"
#include "mem.h"

bool serve_keeps(struct serve *s, struct span channel, const struct addr *who)
{
    unsigned at[RANKS_MAX];
    unsigned count = serve_standing(s, rendezvous_channel(&s->rendezvous, channel), 2, at);

    for (unsigned i = 0; i < count; i++) {
        const struct view_member *m = &s->view->members[at[i]];
        if (who ? addr_equal(&m->addr, who) : m->self)
            return true;
    }
    return count == 0 && !who;
}

static void detach_all(struct serve *s, const uint64_t *channel_hash)
{
    struct flight *f = flights_next(s->flights, NULL);

    for (; f; f = flights_next(s->flights, f)) {
        if (f->attached && (!channel_hash || f->channel_hash == *channel_hash))
            flight_detach(s->flights, f);
    }
}

static void detach_key(struct serve *s, struct span key)
{
    for (int role = FLIGHT_OWNS; role <= FLIGHT_ASKS; role++) {
        struct flight *f = flights_find(s->flights, key, (enum flight_role)role);
        if (f)
            flight_detach(s->flights, f);
    }
}

static void remember(struct serve *s, struct span name, uint64_t delete_id, uint64_t now_ms)
{
    if (delete_id)
        deletes_put(s->deletes, name, delete_id, now_ms, now_ms + deletes_remembered_ms(s));
}

static void release_dropped(struct serve *s)
{
    for (unsigned i = 0; i < s->dropped.count; i++)
        blob_unref(s->dropped.blobs[i]);
    s->dropped.count = 0;
}

/* ERR_FULL: making room let go of as many blobs as the list takes; emptied, there is room
 * for the rest. */
int put_entry(struct serve *s, const struct store_item *item, uint64_t now_ms)
{
    int rc;

    for (unsigned tries = 0; tries < 4; tries++) {
        rc = store_put(s->store, item, now_ms, &s->dropped);
        if (rc != ERR_FULL)
            return rc;
        release_dropped(s);
    }
    return rc;
}

static void drop_channel(struct serve *s, struct span channel, uint64_t delete_id,
                         uint64_t now_ms)
{
    uint8_t name[CHANNEL_NAME_BYTES];
    uint64_t hash = rendezvous_channel(&s->rendezvous, channel);

    while (!store_delete_channel(s->store, hash, &s->dropped))
        release_dropped(s);
    store_delete(s->store, channel, &s->dropped);       /* the entry that is alone in it */
    detach_all(s, &hash);
    s->channels_until_ms = max_u64(s->channels_until_ms, now_ms + deletes_remembered_ms(s));
    remember(s, channel_name(hash, name), delete_id, now_ms);
}

uint64_t serve_last_delete(struct serve *s, struct span key, struct span channel,
                           uint64_t now_ms)
{
    uint64_t ids[2];

    delete_ids_of(s, key, channel, now_ms, ids);
    return max_u64(ids[0], ids[1]);
}

void serve_drop(struct serve *s, struct span key, struct span channel, bool by_channel,
                uint64_t delete_id, const struct loaded *item, uint64_t now_ms)
{
    s->stats.drops++;
    if (by_channel) {
        drop_channel(s, channel, delete_id, now_ms);
        return;
    }
    bool is_old = delete_id < serve_last_delete(s, key, channel, now_ms);   /* before this one */
    for (struct kin *k; (k = serve_take_kin(s, key)); mem_free(k)) {
        store_delete(s->store, span_of(k->key, k->bytes), &s->dropped);
        detach_key(s, span_of(k->key, k->bytes));
    }
    store_delete(s->store, key, &s->dropped);
    detach_key(s, key);
    remember(s, key, delete_id, now_ms);
    if (!item || !item->blob || item->ttl_ms == 0 || is_old)
        return;
    struct store_item put = store_item_of(item, key,
                                          rendezvous_channel(&s->rendezvous, channel), now_ms);
    put.alone = span_equal(key, channel);
    if (put_entry(s, &put, now_ms) == 0)
        s->stats.stored++;
}

void serve_drop_all(struct serve *s)
{
    while (!store_clear(s->store, &s->dropped))
        release_dropped(s);
    detach_all(s, NULL);
}

/* Entries for the heir. */

void push(struct serve *s, const struct loaded *item, uint64_t parent, struct span channel,
          const struct addr *addr, uint64_t node_id, uint64_t now_ms, struct effects *fx)
{
    struct message m = {
        .kind = MESSAGE_PUSH,
        .key = item->key,
        .channel = span_equal(channel, item->key) ? SPAN_NONE : channel,
        .value_type = item->value_type,
        .ttl_ms = item->ttl_ms,
        .stale_ms = item->stale_ms,
        .age_ms = item->age_ms,
        .delete_id = delete_id_of(s, item->key, channel, now_ms),
    };

    if (parent) {
        m.chain_count = 2;
        m.chain[0] = rendezvous_channel(&s->rendezvous, channel);
        m.chain[1] = parent;
    }
    s->stats.pushes_sent++;
    effects_call(fx, CALL_PUSH, addr, node_id, s->config.timeout_ms, &m, item->blob);
}

void push_taken(struct serve *s, uint64_t conn_id, const struct message *m, struct blob *value,
                uint64_t now_ms, struct effects *fx)
{
    struct message said = {.kind = MESSAGE_DONE, .request_id = m->request_id};
    /* A draining node knows of the channel only its hash. */
    uint64_t channel_hash = m->chain_count ? m->chain[0]
                                           : rendezvous_channel(&s->rendezvous,
                                                                message_channel(m));
    bool wanted = m->key.bytes && may_store(s, now_ms) &&
                  m->delete_id == delete_id_by(s, m->key, channel_hash, now_ms);
    uint64_t key_hash = rendezvous_channel(&s->rendezvous, m->key);
    struct offered *offer = &s->offered[key_hash % OFFERED_MAX];
    struct store_hit has;

    if (m->ttl_ms == 0) {       /* an offer */
        if (wanted && !store_get(s->store, m->key, now_ms, false, &has)) {
            said.kind = MESSAGE_MISS;
            *offer = (struct offered){key_hash, now_ms};
        }
        effects_answer(fx, conn_id, &said, NULL);
        return;
    }
    effects_answer(fx, conn_id, &said, NULL);
    if (!value || !wanted) {
        s->stats.stored_refused++;
        return;
    }
    struct loaded item = {.blob = value, .value_type = m->value_type, .ttl_ms = m->ttl_ms,
                          .stale_ms = m->stale_ms, .age_ms = m->age_ms};
    /* Where it is the answer to an offer, nothing that held it up stretches its life. */
    uint64_t since_ms = offer->hash == key_hash && now_ms - offer->at_ms < s->config.timeout_ms
                            ? offer->at_ms : now_ms;
    struct store_item put = store_item_of(&item, m->key, channel_hash, since_ms);
    if (m->chain_count == 2 && !kin_add(s, m->chain[1], m->key))
        return;
    /* Two senders at once: the younger value stays. */
    if (store_get(s->store, m->key, now_ms, false, &has) && has.stored_ms > put.stored_ms)
        return;
    if (put_entry(s, &put, now_ms) == 0)
        s->stats.pushes_taken++;
}
