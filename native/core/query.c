/* The failure table of one question (see query.h; rules O2, O5, O8).
 *
 *   rank 0 (owner) -> rank 1 (heir) -> rank 2 -> the asker's own load
 *
 * Each rank has one budget of timeout_ms until the first byte of its answer. An accepted
 * load is waited for up to load_timeout_ms. "Not me" and "busy" cost no avoidance; only
 * silence does.
 */
#include "query.h"

#include "limits.h"

/* A load lost at its owner is asked for again so often before the next rank is tried: each
 * time one of those who ask becomes the loader, so more means a loader that keeps dying. */
#define LOST_MAX 4

static enum query_step send(struct query *q, uint64_t now_ms)
{
    q->started_ms = now_ms;
    q->due_ms = now_ms + q->timeout_ms;
    q->accepted = false;
    q->redialled = false;
    return QUERY_SEND;
}

static enum query_step at_rank(struct query *q, uint64_t now_ms)
{
    if (q->rank < q->count && !query_at(q)->self)
        return send(q, now_ms);
    q->due_ms = NEVER_MS;
    if (!q->loads)
        return QUERY_MISSED;
    return q->rank < q->count ? QUERY_OWN : QUERY_LOAD;
}

static enum query_step done(struct query *q, enum query_step step)
{
    q->due_ms = NEVER_MS;
    q->verdict = PEER_FINE;
    q->verdict_of = query_at(q)->addr;
    return step;
}

static enum query_step next(struct query *q, enum query_verdict verdict, uint64_t now_ms)
{
    q->verdict = verdict;
    q->verdict_of = query_at(q)->addr;
    if (verdict == PEER_SILENT)
        q->owner_silent = true;
    q->rank++;
    return at_rank(q, now_ms);
}

enum query_step query_begin(struct query *q, const struct query_rank *ranks, unsigned count,
                            bool loads, uint32_t timeout_ms, uint32_t load_timeout_ms,
                            uint64_t now_ms)
{
    assert(count <= RANKS_MAX);
    memset(q, 0, sizeof *q);
    if (count)
        memcpy(q->ranks, ranks, count * sizeof ranks[0]);
    q->count = count;
    q->loads = loads;
    q->timeout_ms = timeout_ms;
    q->load_timeout_ms = load_timeout_ms;
    return at_rank(q, now_ms);
}

void query_know_delete(struct query *q, uint64_t delete_id, uint64_t deleted_ms)
{
    q->delete_id = delete_id;
    q->deleted_ms = deleted_ms;
}

void query_fill(const struct query *q, uint64_t now_ms, struct message *m)
{
    bool loads = q->loads && !query_at(q)->hits_only;
    uint64_t left = q->due_ms > now_ms ? q->due_ms - now_ms : 0;

    m->kind = MESSAGE_ASK;
    m->flags &= (uint8_t) ~(MESSAGE_LOADS | MESSAGE_OWNER_SILENT);
    if (loads)
        m->flags |= MESSAGE_LOADS;
    else
        m->loader = SPAN_NONE;
    if (q->owner_silent)
        m->flags |= MESSAGE_OWNER_SILENT;
    m->budget_ms = (uint32_t)left;
    m->load_timeout_ms = q->load_timeout_ms;
}

/* An accepted load may take load_timeout_ms in all, told once. Until then the owner says
 * every second that it still works; three such words missing are silence, long before
 * membership could know: a caller's own patience (5 s is usual) should not end with it. */
static enum query_step accepted(struct query *q, uint64_t now_ms)
{
    if (!q->accepted) {
        q->accepted = true;
        q->load_due_ms = now_ms + q->load_timeout_ms;
    }
    q->due_ms = min_u64(q->load_due_ms,
                        now_ms + WORKING_MISSED_MAX * WORKING_EVERY_MS + q->timeout_ms);
    return QUERY_WAIT;
}

enum query_step query_frame(struct query *q, uint8_t kind, uint64_t now_ms)
{
    q->verdict = PEER_NOTHING;
    switch (kind) {
    case MESSAGE_VALUE:
    case MESSAGE_FAILED:
        return done(q, QUERY_ANSWERED);
    case MESSAGE_PERMIT:
        return done(q, QUERY_PERMITTED);
    case MESSAGE_RECURSIVE:
        return done(q, QUERY_RECURSIVE);
    case MESSAGE_ACCEPTED:
    case MESSAGE_WORKING:
        return accepted(q, now_ms);
    case MESSAGE_MISS:
        /* A peer that was asked for its hits alone says nothing about the next rank; the
         * owner's own word ends a question that offers no loader. */
        if (q->loads)
            return next(q, PEER_FINE, now_ms);
        return done(q, QUERY_MISSED);
    case MESSAGE_BUSY:
        return next(q, PEER_BUSY, now_ms);
    case MESSAGE_LOST:
        if (q->lost++ < LOST_MAX)
            return send(q, now_ms);
        return next(q, PEER_FINE, now_ms);
    default:    /* NOT_ME, UNSUPPORTED, and what a newer version may say */
        return next(q, PEER_FINE, now_ms);
    }
}

bool query_value_is_deleted(const struct query *q, uint64_t delete_id, uint32_t age_ms,
                            uint64_t now_ms)
{
    return q->deleted_ms && delete_id != q->delete_id && now_ms < q->deleted_ms + age_ms;
}

enum query_step query_deleted(struct query *q, uint64_t now_ms)
{
    q->owner_silent = true;
    return next(q, PEER_FINE, now_ms);
}

void query_progress(struct query *q, uint64_t now_ms)
{
    if (q->due_ms == NEVER_MS)
        return;
    if (q->accepted)
        accepted(q, now_ms);
    else
        q->due_ms = now_ms + q->timeout_ms;
}

enum query_step query_broken(struct query *q, bool reused, uint64_t now_ms)
{
    q->verdict = PEER_NOTHING;
    if (reused && !q->redialled && !q->accepted && now_ms < q->due_ms) {
        q->redialled = true;
        return QUERY_SEND;      /* afresh, within the budget that began already */
    }
    return next(q, PEER_SILENT, now_ms);
}

enum query_step query_stranger(struct query *q, uint64_t now_ms)
{
    return next(q, PEER_SILENT, now_ms);
}

enum query_step query_expired(struct query *q, uint64_t now_ms)
{
    /* An owner that accepted, still works and is merely slow is not avoided; but the next
     * rank need not ask it again either. */
    bool slow = q->accepted && now_ms >= q->load_due_ms;

    q->owner_silent = true;
    return next(q, slow ? PEER_FINE : PEER_SILENT, now_ms);
}

enum query_step query_peer_dead(struct query *q, uint64_t now_ms)
{
    return next(q, PEER_SILENT, now_ms);
}
