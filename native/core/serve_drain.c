/* Leaving in order (rule O8): a draining node hands its entries on before it goes (see serve.h).
 *
 * It walks its store once. For each entry it works out who has it without being told: where
 * this node was owner, its heir had it pushed; where it was heir, the owner has it; everyone
 * else's copies stand at both. What remains is offered (a PUSH with no value and no time to
 * live), and sent where the answer is MISS: a receiver keeps what it has. At most
 * HANDING_MAX entries and HANDING_BYTES_MAX bytes are under way at once, so a slow receiver
 * slows the walk and nothing else; whoever closes bounds it in time. What the walk has not
 * reached by then is lost, which costs a fetch and no error.
 *
 * A channel's text is not kept with its entries, so its hash travels in place of it, as the
 * only member of the frame's chain.
 */
#include "serve_state.h"

#include "limits.h"
#include "mem.h"

#define HANDING_MAX 64u
#define HANDING_BYTES_MAX (4u << 20)
#define WALKED_A_TURN 256u      /* entries looked at under the lock in one go */
#define LEFT_MS_MIN 100u        /* what expires before it could be asked for stays */

/* One entry on its way to one node. */
struct handing {
    bool busy, sent;            /* sent: the value is under way; before, only the offer */
    uint32_t number;            /* in its call id, so that a late answer finds nothing */
    struct addr addr;
    uint64_t node_id, channel_hash;
    size_t bytes;
    size_t key_bytes;
    uint8_t key[KEY_BYTES_MAX];
};

struct drain {
    uint64_t cursor;            /* of store_walk */
    uint64_t changed_ms;        /* when the members had last changed before the drain */
    bool walked;
    unsigned busy;
    size_t bytes;               /* of all that is busy */
    uint32_t last_number;
    struct handing at[HANDING_MAX];
};

void drain_begin(struct serve *s, uint64_t changed_ms, uint64_t now_ms)
{
    if (s->drain)
        return;
    s->drain = mem_zalloc(sizeof *s->drain);    /* without it nothing is handed on */
    if (!s->drain)
        return;
    s->drain->changed_ms = changed_ms;
    due_by(s, now_ms);
}

void drain_end(struct serve *s)
{
    mem_free(s->drain);
    s->drain = NULL;
}

bool serve_handed_on(const struct serve *s)
{
    return !s->drain || (s->drain->walked && s->drain->busy == 0);
}

static bool message_of(struct serve *s, const struct handing *h, uint64_t now_ms,
                       struct store_hit *hit, struct message *m)
{
    struct span key = span_of(h->key, h->key_bytes);

    if (!store_get(s->store, key, now_ms, false, hit))
        return false;
    *m = (struct message){
        .kind = MESSAGE_PUSH,
        .key = key,
        .delete_id = delete_id_by(s, key, h->channel_hash, now_ms),
    };
    if (rendezvous_channel(&s->rendezvous, key) != h->channel_hash) {
        m->chain_count = 1;
        m->chain[0] = h->channel_hash;
    }
    return true;
}

static uint64_t call_id_of(const struct drain *d, const struct handing *h)
{
    return CALL_HAND | (uint64_t)h->number << 8 | (uint64_t)(h - d->at);
}

static void release(struct drain *d, struct handing *h)
{
    h->busy = false;
    d->busy--;
    d->bytes -= h->bytes;
}

static void offer(struct serve *s, struct span key, uint64_t channel_hash, size_t bytes,
                  const struct view_member *to, uint64_t now_ms, struct effects *fx)
{
    struct drain *d = s->drain;
    struct handing *h = d->at;
    struct store_hit hit;
    struct message m;

    if (is_silent(s, &to->addr) || key.bytes > KEY_BYTES_MAX)
        return;
    while (h->busy)
        h++;
    h->busy = true;
    h->sent = false;
    h->number = ++d->last_number;
    h->addr = to->addr;
    h->node_id = to->node_id;
    h->channel_hash = channel_hash;
    h->bytes = bytes;
    h->key_bytes = key.bytes;
    memcpy(h->key, key.at, key.bytes);
    d->busy++;
    d->bytes += bytes;
    if (!message_of(s, h, now_ms, &hit, &m)) {
        release(d, h);
        return;
    }
    effects_call(fx, call_id_of(d, h), &h->addr, h->node_id, s->config.timeout_ms, &m, NULL);
}

static void send_value(struct serve *s, struct handing *h, uint64_t now_ms, struct effects *fx)
{
    struct drain *d = s->drain;
    struct store_hit hit;
    struct message m;

    if (!message_of(s, h, now_ms, &hit, &m)) {
        release(d, h);
        return;
    }
    struct blob *value = hit.blob ? blob_ref(hit.blob) : blob_copy(hit.bytes);
    if (!value) {
        release(d, h);
        return;
    }
    m.value_type = hit.value_type;
    m.ttl_ms = left_ms(hit.expires_ms, now_ms);
    m.stale_ms = left_ms(hit.stale_until_ms, max_u64(hit.expires_ms, now_ms));
    m.age_ms = (uint32_t)min_u64(now_ms - min_u64(hit.stored_ms, now_ms), UINT32_MAX);
    h->sent = true;
    s->stats.pushes_sent++;
    effects_call(fx, call_id_of(d, h), &h->addr, h->node_id, s->config.timeout_ms, &m, value);
    blob_unref(value);
}

/* An entry that the walk met: to whom of its new owner and heir? */
static void consider(struct serve *s, struct span key, uint64_t channel_hash,
                     const struct store_hit *hit, uint64_t now_ms, struct effects *fx)
{
    const struct view *v = s->view;
    uint64_t mine = rendezvous_score(channel_hash, v->members[v->self].hash);
    unsigned at[RANKS_MAX], count = view_rank(v, channel_hash, s->config.heir ? 2 : 1, at);
    unsigned mine_rank = 0;

    if (hit->value_type == VALUE_ERROR || hit->bytes.bytes > FRAME_BYTES_MAX - HEAD_BYTES_MAX ||
        (hit->expires_ms != NEVER_MS && hit->expires_ms < now_ms + LEFT_MS_MIN))
        return;
    while (mine_rank < count &&
           rendezvous_score(channel_hash, v->members[at[mine_rank]].hash) > mine)
        mine_rank++;
    /* With the same members for all of its life it stands where it belongs. */
    bool settled = hit->stored_ms > s->drain->changed_ms && s->config.heir;
    for (unsigned i = 0; i < count; i++) {
        /* The former owner and heir, without this node: the first, and where this node was
         * neither, the second as well. */
        bool has = settled && (i == 0 || mine_rank >= 2);
        if (!has)
            offer(s, key, channel_hash, hit->bytes.bytes, &v->members[at[i]], now_ms, fx);
    }
}

void drain_on(struct serve *s, uint64_t now_ms, struct effects *fx)
{
    struct drain *d = s->drain;
    struct store_hit hit;
    struct span key;
    uint64_t channel_hash;
    unsigned looked = 0;

    if (!d || d->walked)
        return;
    if (!s->view || s->view->self < 0) {
        d->walked = true;
        return;
    }
    while (d->busy + RANKS_MAX <= HANDING_MAX && d->bytes < HANDING_BYTES_MAX) {
        if (looked++ == WALKED_A_TURN) {
            due_by(s, now_ms);
            return;
        }
        d->cursor = store_walk(s->store, d->cursor, now_ms, &key, &channel_hash, &hit);
        if (d->cursor == 0) {
            d->walked = true;
            return;
        }
        consider(s, key, channel_hash, &hit, now_ms, fx);
    }
}

void drain_reply(struct serve *s, uint64_t call_id, const struct message *m, uint64_t now_ms,
                 struct effects *fx)
{
    struct drain *d = s->drain;
    unsigned slot = (unsigned)(call_id & 0xff);
    uint32_t number = (uint32_t)(call_id >> 8);

    if (!d || slot >= HANDING_MAX || !d->at[slot].busy || d->at[slot].number != number)
        return;
    struct handing *h = &d->at[slot];
    if (!m)
        serve_peer(s, &h->addr, PEER_SILENT, now_ms);
    if (m && m->kind == MESSAGE_MISS && !h->sent)
        send_value(s, h, now_ms, fx);
    else
        release(d, h);
    drain_on(s, now_ms, fx);
}
