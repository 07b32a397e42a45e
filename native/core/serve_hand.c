/* Handing entries on when the contest changes (rule O8; see serve.h): a node drains, dies,
 * leaves or comes, and other nodes are now owner and heir of some channels.
 *
 * A node walks its store once after each change and compares each entry's owner and heir
 * before and after. Whoever is new among them lacks the entry, and the first of the former
 * two that is still there offers it (a PUSH with no value and no time to live), and sends it
 * where the answer is MISS: a receiver keeps what it has. So an entry stands at both again,
 * before the next node falls; until then a look at its former owner finds it (peeks, O3).
 * At most HANDING_MAX entries and HANDING_BYTES_MAX bytes are under way at once, so a slow
 * receiver slows the walk and nothing else. What a draining node has not handed on when its
 * time is over is lost, which costs a fetch and no error; so it walks twice, and those that
 * somebody has asked for go first. The second walk offers these again, to find that they are
 * there: an entry may be asked for at any time between the two.
 *
 * A channel's text is not kept with its entries, so its hash travels in place of it, as the
 * only member of the frame's chain.
 */
#include "serve_state.h"

#include "limits.h"
#include "mem.h"

#define HANDING_MAX 64u
#define HANDING_BYTES_MAX (4u << 20)
#define WALKED_A_TURN 64u       /* entries looked at under the lock in one go */
#define LEFT_MS_MIN 100u        /* what expires before it could be asked for stays */
#define SETTLE_MS 100u          /* changes seldom come alone */

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

struct hand {
    struct view *before;        /* as the contest was when all stood where it belonged;
                                   NULL: nothing to walk for */
    uint64_t cursor;            /* of store_walk */
    bool hot;                   /* it is the walk for what was asked for */
    uint64_t begin_ms;
    unsigned busy;
    size_t bytes;               /* of all that is busy */
    uint32_t last_number;
    struct handing at[HANDING_MAX];
};

void hand_begin(struct serve *s, struct view *before, uint64_t now_ms)
{
    bool took_part = before->self >= 0 && before->members[before->self].contends;

    if (took_part && !s->hand)
        s->hand = mem_zalloc(sizeof *s->hand);      /* without it nothing is handed on */
    struct hand *h = s->hand;
    if (!h || (!took_part && !h->before)) {
        mem_free(before);
        return;
    }
    /* A walk that is not over starts again, and still from where all was in order. */
    if (h->before)
        mem_free(before);
    else
        h->before = before;
    h->cursor = 0;
    h->hot = s->view->phase == PHASE_DRAINING;
    h->begin_ms = h->hot ? now_ms : now_ms + SETTLE_MS;
    due_by(s, h->begin_ms);
}

static void walked(struct hand *h)
{
    mem_free(h->before);
    h->before = NULL;
}

void hand_end(struct serve *s)
{
    if (s->hand)
        walked(s->hand);
    mem_free(s->hand);
    s->hand = NULL;
}

bool serve_handed_on(const struct serve *s)
{
    return !s->hand || (!s->hand->before && s->hand->busy == 0);
}

static bool message_of(struct serve *s, const struct handing *e, uint64_t now_ms,
                       struct store_hit *hit, struct message *m)
{
    struct span key = span_of(e->key, e->key_bytes);

    if (!store_get(s->store, key, now_ms, false, hit))
        return false;
    *m = (struct message){
        .kind = MESSAGE_PUSH,
        .key = key,
        .delete_id = delete_id_by(s, key, e->channel_hash, now_ms),
    };
    uint64_t parent = kin_parent(s, key);
    if (parent || rendezvous_channel(&s->rendezvous, key) != e->channel_hash)
        m->chain_count = parent ? 2 : 1;
    m->chain[0] = e->channel_hash;
    m->chain[1] = parent;
    return true;
}

static uint64_t call_id_of(const struct hand *h, const struct handing *e)
{
    return CALL_HAND | (uint64_t)e->number << 8 | (uint64_t)(e - h->at);
}

static void release(struct hand *h, struct handing *e)
{
    e->busy = false;
    h->busy--;
    h->bytes -= e->bytes;
}

static void offer(struct serve *s, struct span key, uint64_t channel_hash, size_t bytes,
                  const struct view_member *to, uint64_t now_ms, struct effects *fx)
{
    struct hand *h = s->hand;
    struct handing *e = h->at;
    struct store_hit hit;
    struct message m;

    if (is_silent(s, &to->addr, now_ms) || key.bytes > KEY_BYTES_MAX)
        return;
    while (e->busy)
        e++;
    e->busy = true;
    e->sent = false;
    e->number = ++h->last_number;
    e->addr = to->addr;
    e->node_id = to->node_id;
    e->channel_hash = channel_hash;
    e->bytes = bytes;
    e->key_bytes = key.bytes;
    memcpy(e->key, key.at, key.bytes);
    h->busy++;
    h->bytes += bytes;
    if (!message_of(s, e, now_ms, &hit, &m)) {
        release(h, e);
        return;
    }
    effects_call(fx, call_id_of(h, e), &e->addr, e->node_id, s->config.timeout_ms, &m, NULL);
}

static void send_value(struct serve *s, struct handing *e, uint64_t now_ms, struct effects *fx)
{
    struct hand *h = s->hand;
    struct store_hit hit;
    struct message m;

    if (!message_of(s, e, now_ms, &hit, &m)) {
        release(h, e);
        return;
    }
    struct blob *value = hit.blob ? blob_ref(hit.blob) : blob_copy(hit.bytes);
    if (!value) {
        release(h, e);
        return;
    }
    m.value_type = hit.value_type;
    m.ttl_ms = left_ms(hit.expires_ms, now_ms);
    m.stale_ms = left_ms(hit.stale_until_ms, max_u64(hit.expires_ms, now_ms));
    m.age_ms = (uint32_t)min_u64(now_ms - min_u64(hit.stored_ms, now_ms), UINT32_MAX);
    e->sent = true;
    s->stats.pushes_sent++;
    effects_call(fx, call_id_of(h, e), &e->addr, e->node_id, s->config.timeout_ms, &m, value);
    blob_unref(value);
}

/* The same node, not only the same address. */
static bool is_in(const struct view *v, const struct view_member *m)
{
    int at = view_find(v, &m->addr);
    return at >= 0 && v->members[at].node_id == m->node_id;
}

/* An entry that the walk met: is it this node's to hand on, and to whom? */
static void consider(struct serve *s, struct span key, uint64_t channel_hash,
                     const struct store_hit *hit, uint64_t now_ms, struct effects *fx)
{
    const struct view *before = s->hand->before, *after = s->view;
    unsigned want = s->config.heir ? 2 : 1, had[RANKS_MAX], has[RANKS_MAX], sender = 0;
    unsigned had_count = view_rank(before, channel_hash, want, had);
    unsigned has_count = view_rank(after, channel_hash, want, has);

    if (hit->value_type == VALUE_ERROR || hit->bytes.bytes > FRAME_BYTES_MAX - HEAD_BYTES_MAX ||
        (hit->expires_ms != NEVER_MS && hit->expires_ms < now_ms + LEFT_MS_MIN))
        return;
    while (sender < had_count && !is_in(after, &before->members[had[sender]]))
        sender++;
    if (sender == had_count || !before->members[had[sender]].self)
        return;
    for (unsigned i = 0; i < has_count; i++) {
        const struct view_member *to = &after->members[has[i]];
        bool knows = to->self;
        for (unsigned j = 0; j < had_count; j++)
            knows = knows || before->members[had[j]].node_id == to->node_id;
        if (!knows)
            offer(s, key, channel_hash, hit->bytes.bytes, to, now_ms, fx);
    }
}

void hand_on(struct serve *s, uint64_t now_ms, struct effects *fx)
{
    struct hand *h = s->hand;
    struct store_hit hit;
    struct span key;
    uint64_t channel_hash;
    unsigned looked = 0;

    if (!h || !h->before)
        return;
    if (now_ms < h->begin_ms) {
        due_by(s, h->begin_ms);
        return;
    }
    while (h->busy + RANKS_MAX <= HANDING_MAX && h->bytes < HANDING_BYTES_MAX) {
        if (looked++ == WALKED_A_TURN) {
            due_by(s, now_ms);
            return;
        }
        h->cursor = store_walk(s->store, h->cursor, now_ms, &key, &channel_hash, &hit);
        if (h->cursor == 0 && !h->hot) {
            walked(h);
            return;
        }
        if (h->cursor == 0)
            h->hot = false;
        else if (!h->hot || hit.was_hit)
            consider(s, key, channel_hash, &hit, now_ms, fx);
    }
}

void hand_reply(struct serve *s, uint64_t call_id, const struct message *m, uint64_t now_ms,
                struct effects *fx)
{
    struct hand *h = s->hand;
    unsigned slot = (unsigned)(call_id & 0xff);
    uint32_t number = (uint32_t)(call_id >> 8);

    if (!h || slot >= HANDING_MAX || !h->at[slot].busy || h->at[slot].number != number)
        return;
    struct handing *e = &h->at[slot];
    if (!m)
        serve_peer(s, &e->addr, PEER_SILENT, now_ms);
    if (m && m->kind == MESSAGE_MISS && !e->sent)
        send_value(s, e, now_ms, fx);
    else
        release(h, e);
    hand_on(s, now_ms, fx);
}
