/* Whom to ask: the view of the members, and the peers to leave alone for a while because they
 * gave no answer or had no loader free (rules O2, O5; see serve.h).
 */
#include "serve_state.h"

#include "limits.h"
#include "mem.h"

/* The owner and its heir; with one of them avoided the next in rank is not asked, the asker
 * helps itself: "two ranks at most" (O8). */
#define RANKS_ASKED 2u

/* Who was a live member and is none any more, or lives on under another id. */
static void tell_gone(const struct view *before, const struct view *after, struct effects *fx)
{
    for (unsigned i = 0; before && i < before->count; i++) {
        const struct view_member *m = &before->members[i];
        int at = after ? view_find(after, &m->addr) : -1;
        if (!m->self && (at < 0 || after->members[at].node_id != m->node_id))
            effects_gone(fx, &m->addr, m->node_id);
    }
}

void serve_set_view(struct serve *s, struct view *view, uint64_t now_ms, struct effects *fx)
{
    struct view *before = s->view;

    tell_gone(before, view, fx);
    s->view = view;
    owners_forget(&s->owners);
    bool moved = view && !view_follow(view, before, now_ms);
    if (before && moved) {
        hand_begin(s, before, now_ms);
    } else {
        mem_free(before);
        if (!view)
            hand_end(s);
    }
    if (view && view->phase == PHASE_LOOKING)
        return;
    struct answer again = {.outcome = OUTCOME_RETRY};
    LIST_FOREACH_SAFE(&s->looking, link)
        complete(s, CONTAINER_OF(link, struct waiter, link), &again, now_ms, fx);
}

static struct avoided *avoided_find(struct serve *s, const struct addr *addr)
{
    for (unsigned i = 0; i < s->avoided_count; i++) {
        if (addr_equal(&s->avoided[i].addr, addr))
            return &s->avoided[i];
    }
    return NULL;
}

/* A full table (64 peers in trouble at once) forgets its first: that peer is only tried
 * again early. */
static struct avoided *avoided_of(struct serve *s, const struct addr *addr)
{
    struct avoided *a = avoided_find(s, addr);

    if (!a) {
        a = &s->avoided[s->avoided_count < AVOIDED_MAX ? s->avoided_count++ : 0];
        *a = (struct avoided){.addr = *addr};
    }
    return a;
}

bool is_silent(struct serve *s, const struct addr *addr, uint64_t now_ms)
{
    const struct avoided *a = s->avoided_count ? avoided_find(s, addr) : NULL;
    return a && (a->silent_until_ms != 0 || now_ms < a->slow_until_ms);
}

void note_slow(struct serve *s, const struct addr *addr, uint64_t now_ms)
{
    avoided_of(s, addr)->slow_until_ms = now_ms + AVOID_MS;
}

/* True: leave this peer alone. One question a time may try a peer whose avoidance has run
 * out; the others stay with the heir until it was answered (O2). */
static bool avoid(struct avoided *a, uint64_t now_ms, uint32_t timeout_ms)
{
    if (!a || a->silent_until_ms == 0)
        return false;
    if (now_ms < a->silent_until_ms || now_ms < a->probe_until_ms)
        return true;
    a->probe_until_ms = now_ms + timeout_ms;
    return false;
}

unsigned serve_standing(struct serve *s, uint64_t channel_hash, unsigned want,
                        unsigned out[RANKS_MAX])
{
    return s->view ? owners_rank(&s->owners, s->view, channel_hash, want, out) : 0;
}

unsigned serve_ranks(struct serve *s, struct span channel, uint64_t now_ms,
                     struct query_rank out[RANKS_MAX])
{
    unsigned at[RANKS_MAX], count = 0;

    unsigned found = serve_standing(s, rendezvous_channel(&s->rendezvous, channel), RANKS_ASKED,
                                    at);
    for (unsigned i = 0; i < found; i++) {
        const struct view_member *m = &s->view->members[at[i]];
        struct avoided *a = s->avoided_count ? avoided_find(s, &m->addr) : NULL;
        if (!m->self && avoid(a, now_ms, s->config.timeout_ms))
            continue;
        out[count++] = (struct query_rank){
            .addr = m->addr,
            .node_id = m->node_id,
            .self = m->self,
            .hits_only = a && now_ms < a->busy_until_ms,
        };
        if (m->self)
            break;
    }
    return count;
}

void serve_peer(struct serve *s, const struct addr *addr, enum query_verdict verdict,
                uint64_t now_ms)
{
    struct avoided *a = avoided_find(s, addr);

    if (verdict == PEER_NOTHING)
        return;
    if (verdict == PEER_FINE) {
        if (a) {
            a->silent_until_ms = a->probe_until_ms = a->slow_until_ms = 0;
            if (now_ms >= a->busy_until_ms)
                *a = s->avoided[--s->avoided_count];
        }
        return;
    }
    a = avoided_of(s, addr);
    if (verdict == PEER_BUSY) {
        a->busy_until_ms = now_ms + AVOID_MS;
        s->stats.asks_busy++;
    } else {
        a->silent_until_ms = now_ms + AVOID_MS;
        a->probe_until_ms = 0;
        s->stats.asks_silent++;
    }
}
