/* Translations between the public header and core (see exchange.h). */
#include "shell/exchange.h"

#include "core/err.h"
#include "core/mem.h"
#include "shell/shell.h"
#include "shell/turn.h"

#define ENTRIES_MAX 1024u       /* of one answer */

int exchange_question(const struct peerage *p, const struct peerage_ask *in, struct question *q)
{
    if (in->key_bytes < 1 || in->key_bytes > KEY_BYTES_MAX ||
        in->channel_bytes > CHANNEL_BYTES_MAX || in->loader_bytes > LOADER_BYTES_MAX)
        return ERR_TOO_BIG;
    memset(q, 0, sizeof *q);
    q->ask.kind = MESSAGE_ASK;
    q->ask.key = span_of(in->key, in->key_bytes);
    q->ask.channel = span_of(in->channel, in->channel_bytes);
    if (span_equal(q->ask.channel, q->ask.key))
        q->ask.channel = SPAN_NONE;
    q->ask.loader = span_of(in->loader, in->loader_bytes);
    q->ask.ttl_ms = in->ttl_ms;
    q->ask.stale_ms = in->stale_ms;
    q->ask.load_timeout_ms = in->load_timeout_ms ? in->load_timeout_ms
                                                 : p->settings.load_timeout_ms;
    if (in->flags & PEERAGE_LOADS)
        q->ask.flags |= MESSAGE_LOADS;
    if (in->flags & PEERAGE_FRESH)
        q->ask.flags |= MESSAGE_FRESH;
    q->fresh = in->flags & PEERAGE_FRESH;
    q->ask.chain_count = (uint8_t)(in->chain_count < CHAIN_MAX ? in->chain_count : CHAIN_MAX);
    for (unsigned i = 0; i < q->ask.chain_count; i++)
        q->ask.chain[i] = in->chain[i];
    return 0;
}

void exchange_clear(struct peerage_answer *out)
{
    /* inline_bytes is left alone: it is written only as far as needed */
    memset(out, 0, offsetof(struct peerage_answer, inline_bytes));
}

void exchange_trouble(struct peerage_answer *out, int error)
{
    exchange_clear(out);
    out->kind = PEERAGE_TROUBLE;
    out->error = error;
}

int exchange_error(enum outcome outcome)
{
    switch (outcome) {
    case OUTCOME_RECURSIVE:
        return ERR_RECURSIVE;
    case OUTCOME_TIMEOUT:
        return ERR_TIMEOUT;
    case OUTCOME_CLOSED:
        return ERR_CLOSED;
    case OUTCOME_FULL:
    case OUTCOME_BUSY:
        return ERR_FULL;
    case OUTCOME_NOMEM:
        return ERR_NOMEM;
    case OUTCOME_NOT_ME:
        return ERR_UNREACHABLE;
    case OUTCOME_RETRY:
        return ERR_LOST;
    case OUTCOME_WAIT:
    case OUTCOME_VALUE:
    case OUTCOME_FAILED:
    case OUTCOME_MISS:
    case OUTCOME_LOAD:
    case OUTCOME_ASK:
        break;
    }
    return 0;
}

void exchange_answer(struct answer *a, uint64_t now_ms, struct peerage_answer *out)
{
    int error = exchange_error(a->outcome);

    if (error) {
        answer_deinit(a);
        exchange_trouble(out, error);
        return;
    }
    exchange_clear(out);
    out->kind = a->outcome == OUTCOME_VALUE    ? PEERAGE_VALUE
                : a->outcome == OUTCOME_FAILED ? PEERAGE_FAILED
                                               : PEERAGE_MISS;
    out->tier = (int)a->tier;
    if (a->outcome != OUTCOME_MISS && a->blob) {
        out->value_type = a->value_type;
        out->stale = a->stale;
        out->at = a->blob->at;
        out->bytes = a->blob->bytes;
        out->blob = (peerage_blob *)a->blob;
        out->foreign = a->blob->release ? a->blob->owner : NULL;
        out->age_ms = now_ms > a->stored_ms ? now_ms - a->stored_ms : 0;
        out->ttl_ms = a->expires_ms == NEVER_MS  ? UINT64_MAX
                      : a->expires_ms > now_ms ? a->expires_ms - now_ms
                                               : 0;
        a->blob = NULL;
    }
    answer_deinit(a);
}

void exchange_load(struct peerage *p, uint64_t load_id, struct peerage_answer *out)
{
    exchange_clear(out);
    out->kind = PEERAGE_LOAD;
    out->load_id = load_id;
    out->chain_count = serve_chain(node_serve(p->node), load_id, out->chain);
}

void exchange_ask(struct peerage *p, const struct question *q, struct waiter *w, struct turn *t,
                  struct answer *answer, struct query_rank ranks[RANKS_MAX], unsigned *count,
                  struct peerage_answer *out)
{
    struct serve *s = node_serve(p->node);

    *count = 0;
    if (!p->closed)
        serve_ask(s, q, w, t->now_ms, answer, ranks, count, &t->effects);
    else if (!serve_hit(s, q, t->now_ms, answer))
        *answer = (struct answer){.outcome = OUTCOME_CLOSED};
    if (answer->outcome == OUTCOME_LOAD)
        exchange_load(p, answer->load_id, out);
}

/* Gathering. */

void gathered_init(struct gathered *g)
{
    g->items = &g->one;
    g->count = 0;
    g->room = 1;
    g->delete_id = 0;
    g->stale = false;
}

void gathered_clear(struct gathered *g)
{
    for (unsigned i = 0; i < g->count; i++) {
        blob_unref(g->items[i].blob);
        mem_free((void *)(uintptr_t)g->items[i].key.at);     /* its own copy, see add */
    }
    if (g->items != &g->one)
        mem_free(g->items);
    gathered_init(g);
}

static bool grow(struct gathered *g)
{
    unsigned room = g->room * 4;
    struct loaded *more;

    if (g->count < g->room)
        return true;
    if (g->count >= ENTRIES_MAX)
        return false;
    more = mem_alloc(room * sizeof *more);
    if (!more)
        return false;
    memcpy(more, g->items, g->count * sizeof *more);
    if (g->items != &g->one)
        mem_free(g->items);
    g->items = more;
    g->room = room;
    return true;
}

static bool add(struct gathered *g, const struct message *m, struct blob *value)
{
    uint8_t *key = NULL;

    if (m->key.bytes)
        key = mem_alloc(m->key.bytes);
    if ((m->key.bytes && !key) || !grow(g)) {
        blob_unref(value);
        mem_free(key);
        return false;
    }
    if (key)
        memcpy(key, m->key.at, m->key.bytes);
    if (g->count == 0) {
        g->delete_id = m->delete_id;
        g->stale = m->flags & MESSAGE_STALE;
    }
    g->items[g->count++] = (struct loaded){
        .key = span_of(key, m->key.bytes),
        .blob = value,
        .value_type = m->value_type,
        .ttl_ms = m->ttl_ms,
        .stale_ms = m->stale_ms,
        .age_ms = m->age_ms,
    };
    return true;
}

bool gathered_frame(struct gathered *g, struct query *q, const struct message *m,
                    struct blob *value, uint64_t now_ms, enum query_step *step)
{
    if (m->kind == MESSAGE_VALUE || m->kind == MESSAGE_FAILED) {
        if (!add(g, m, value)) {
            *step = query_broken(q, false, now_ms);
            return false;
        }
        if (m->flags & MESSAGE_MORE) {
            query_progress(q, now_ms);
            *step = QUERY_WAIT;
            return true;
        }
        if (m->kind == MESSAGE_VALUE &&
            query_value_is_deleted(q, g->delete_id, g->items[0].age_ms, now_ms)) {
            gathered_clear(g);
            *step = query_deleted(q, now_ms);
            return true;
        }
    } else {
        blob_unref(value);
        if (m->kind == MESSAGE_PERMIT)
            g->delete_id = m->delete_id;
    }
    *step = query_frame(q, m->kind, now_ms);
    return true;
}

void gathered_answer(const struct gathered *g, enum tier tier, uint64_t asked_ms,
                     struct answer *out)
{
    const struct loaded *item = &g->items[0];

    *out = (struct answer){
        .outcome = OUTCOME_VALUE,
        .tier = tier,
        .blob = blob_ref(item->blob),
        .value_type = item->value_type,
        .stale = g->stale,
        .stored_ms = asked_ms - min_u64(item->age_ms, asked_ms),
        .expires_ms = item->ttl_ms == UINT32_MAX ? NEVER_MS : asked_ms + item->ttl_ms,
        .stale_until_ms = NEVER_MS,
        .delete_id = g->delete_id,
    };
}

enum tier exchange_tier(const struct query *q)
{
    if (q->accepted)
        return TIER_LOAD;
    return q->rank == 0 ? TIER_OWNER : TIER_HEIR;
}
