/* Anti-entropy. Pings and acks carry a digest of who is live. Digests that
 * differ are normal while news travels; if they go on differing for two seconds,
 * news was lost, and the table is pulled over TCP (M4). A digest that agrees
 * takes back one that differed, and no more: with two camps of equal size every
 * node meets one that agrees now and then. The smaller camp always tips over,
 * and its pull mends both.
 *
 * A pull request carries the digests of the 64 buckets into which addresses
 * hash; pages hold the buckets that differ, whole. What the page lacks or has
 * older is gossiped back, up to a datagram's worth, so a pull mends both sides;
 * whoever lacks more will pull itself.
 *
 *     request   version u8 | bucket digest u64 x 64
 *     page      version u8 | whole buckets u64 (a bit each) | update ...
 */
#include "swim_core.h"

#define MISMATCHES_MIN 3u
#define REQUEST_BYTES (1 + 8 * DIGEST_BUCKETS)

void swim_pull_start(struct swim *s, uint64_t now_ms, const struct addr *addr, uint64_t node_id,
                     struct swim_out *out)
{
    if (s->pull_end_ms != NEVER_MS)
        return;
    uint8_t bytes[REQUEST_BYTES];
    struct writer w = writer_of(bytes, sizeof bytes);
    put_u8(&w, SWIM_WIRE_VERSION);
    for (uint32_t b = 0; b < DIGEST_BUCKETS; b++)
        put_u64(&w, s->members.buckets[b]);
    s->pull_end_ms = now_ms + PULL_MS;
    s->pull_addr = *addr;
    s->pull_id = node_id;
    s->mended_at_pull = s->mended;
    s->stats.pulls++;
    swim_effect(out, SWIM_PULL, addr, node_id, span_of(bytes, writer_bytes(&w)));
}

void swim_digest_heard(struct swim *s, uint64_t now_ms, uint32_t sender, uint64_t digest,
                       struct swim_out *out)
{
    if (digest == s->members.digest) {
        if (s->mismatches > 0 && --s->mismatches == 0)
            s->pull_wait_ms = s->p.pull_after_ms;
        return;
    }
    if (s->mismatches++ == 0)
        s->mismatch_ms = now_ms;
    /* A gossip queue that grows longer than it is sent won't do it in time. */
    uint64_t wait_ms = s->gossip.count < BACKLOG_MIN ? s->pull_wait_ms : s->pull_wait_ms / 8;
    if (now_ms - s->mismatch_ms < wait_ms || s->mismatches < MISMATCHES_MIN
        || sender == MEMBER_NONE)
        return;
    const struct member *m = members_at(&s->members, sender);
    s->mismatches = 0;
    swim_pull_start(s, now_ms, &m->addr, m->node_id, out);
}

/* A pull that mends nothing, here or there, is not repeated at once: two nodes whose CIDR
 * lists differ never agree. */
void swim_pull_end(struct swim *s, uint64_t now_ms, bool complete, struct swim_out *out)
{
    if (s->pull_end_ms == NEVER_MS)
        return;
    s->pull_end_ms = NEVER_MS;
    if (!complete) {
        swim_log(out, SWIM_LOG_PULL_FAILED, &s->pull_addr, s->pull_id, 0, 0);
    } else if (s->mended == s->mended_at_pull) {
        s->pull_wait_ms = min_u64(s->pull_wait_ms * 2, PULL_WAIT_MS_MAX);
    } else {
        s->pull_wait_ms = s->p.pull_after_ms;
    }
    if (complete && s->admitted)
        swim_table_held(s, now_ms, out);
}

void swim_pulled(struct swim *s, uint64_t now_ms, bool complete, struct swim_out *out)
{
    if (s->phase == SWIM_PHASE_GONE)
        return;
    swim_pull_end(s, now_ms, complete, out);
    swim_reckon(s, now_ms);
}

/* Answering. */

/* The records of all buckets in `which`; false, and nothing of use, if too many. */
static bool put_buckets(const struct swim *s, uint64_t now_ms, uint64_t which, struct writer *w)
{
    const struct members *t = &s->members;
    for (uint32_t i = members_from(t, 0); i != MEMBER_NONE; i = members_from(t, i + 1)) {
        if (!(which >> members_bucket(&members_at(t, i)->addr) & 1))
            continue;
        struct update u = swim_update_of(s, i, now_ms);
        if (!update_put(w, &u))
            return false;
    }
    return true;
}

bool swim_page_encode(const struct swim *s, uint64_t now_ms, struct span request,
                      uint32_t *cursor, struct writer *w)
{
    struct reader r = reader_of(request);
    uint64_t digests[DIGEST_BUCKETS], wanted = 0, whole = 0;
    take_u8(&r);
    for (uint32_t b = 0; b < DIGEST_BUCKETS; b++)
        digests[b] = take_u64(&r);
    for (uint32_t b = *cursor; b < DIGEST_BUCKETS; b++) {
        if (r.failed || digests[b] != s->members.buckets[b])
            wanted |= UINT64_C(1) << b;
    }
    put_u8(w, SWIM_WIRE_VERSION);
    uint8_t *mask_at = w->at;
    put_u64(w, 0);
    if (w->failed)
        return false;
    uint8_t *begin = w->at;
    /* Mostly all goes into one page, in one walk of the table. */
    uint32_t b = DIGEST_BUCKETS;
    if (put_buckets(s, now_ms, wanted, w)) {
        whole = wanted;
    } else {
        w->at = begin;
        for (b = *cursor; b < DIGEST_BUCKETS; b++) {
            uint64_t bit = UINT64_C(1) << b;
            uint8_t *mark = w->at;
            if (!(wanted & bit))
                continue;
            if (put_buckets(s, now_ms, bit, w)) {
                whole |= bit;
            } else if (mark != begin) {
                w->at = mark;       /* it opens the next page */
                break;
            }                       /* else too big for a page of its own: sent in part */
        }
    }
    struct writer m = writer_of(mask_at, 8);
    put_u64(&m, whole);
    *cursor = b;
    return b < DIGEST_BUCKETS;
}

enum swim_verdict swim_page_merge(struct swim *s, uint64_t now_ms, uint64_t wall_ms,
                                  uint64_t node_id, struct span page, struct swim_out *out)
{
    struct members *t = &s->members;
    struct reader r = reader_of(page);
    struct update u;
    if (s->phase == SWIM_PHASE_GONE)
        return SWIM_GONE;
    take_u8(&r);
    uint64_t whole = take_u64(&r);
    if (r.failed)
        return SWIM_MALFORMED;
    struct heard from = {.source = s->pull_addr, .node_id = node_id, .table = true,
                         .accuser = MEMBER_NONE};
    for (uint32_t i = members_from(t, 0); i != MEMBER_NONE; i = members_from(t, i + 1))
        members_at(t, i)->marks &= (uint8_t)~MARK_SEEN;
    while (update_take(&r, &u))
        swim_merge(s, now_ms, wall_ms, &u, &from, out);
    swim_reckon(s, now_ms);
    if (r.failed || s->phase == SWIM_PHASE_GONE)
        return r.failed ? SWIM_MALFORMED : SWIM_GONE;
    for (uint32_t i = members_from(t, 1);
         i != MEMBER_NONE && from.passed_on < TABLE_NEWS_MAX; i = members_from(t, i + 1)) {
        const struct member *m = members_at(t, i);
        if ((m->marks & MARK_SEEN) || !member_is_live(m)
            || !(whole >> members_bucket(&m->addr) & 1))
            continue;
        from.passed_on++;
        s->mended++;
        gossip_queue(&s->gossip, t, i);
    }
    /* They don't know us at all: ask to be let in. */
    if (node_id == s->pull_id && !(self_of(s)->marks & MARK_SEEN)
        && (whole >> members_bucket(&s->config.self) & 1))
        swim_join_send(s, now_ms, &s->pull_addr, out);
    swim_reckon(s, now_ms);
    return SWIM_OK;
}
