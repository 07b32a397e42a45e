/* Early refresh of hot keys at their owner: a value that was asked for again since it was
 * loaded is loaded anew some time before it ends, behind those who read it, so that nobody
 * waits for the load of a hot key.
 *
 * The problem is that of XFetch (Vattani, Chierichetti, Lowenstein: "Optimal Probabilistic
 * Cache Stampede Prevention", VLDB 2015), where each reader draws by itself whether it
 * refreshes, since readers don't know of each other. Here a key has one owner, whose flights
 * coalesce anyway, so nothing is drawn: the owner refreshes once, `early` before the end.
 * Only where a function asks for it; what the owner's readers hold lives to its own end.
 */
#include "serve_state.h"

#include "limits.h"
#include "mem.h"

struct early {
    struct list link;
    uint64_t at_ms;
    uint32_t ttl_ms, stale_ms, load_timeout_ms;
    struct span key, channel, loader;   /* own copies, behind the struct */
};

static struct span keep_span(uint8_t **at, struct span s)
{
    struct span kept = span_of(*at, s.bytes);

    memcpy(*at, s.at, s.bytes);
    *at += s.bytes;
    return kept;
}

void early_note(struct serve *s, const struct flight *f, uint32_t early_ms, uint64_t expires_ms,
                uint64_t now_ms)
{
    if (early_ms == 0 || expires_ms == NEVER_MS || expires_ms <= now_ms + early_ms ||
        s->early_count >= EARLY_MAX)
        return;
    struct early *e = mem_alloc(sizeof *e + f->key.bytes + f->channel.bytes + f->loader.bytes);
    if (!e)
        return;
    uint8_t *at = (uint8_t *)(e + 1);
    *e = (struct early){.at_ms = expires_ms - early_ms, .ttl_ms = f->ttl_ms,
                        .stale_ms = f->stale_ms, .load_timeout_ms = f->load_timeout_ms};
    e->key = keep_span(&at, f->key);
    e->channel = keep_span(&at, f->channel);
    e->loader = keep_span(&at, f->loader);
    list_add_tail(&s->early, &e->link);
    s->early_count++;
    store_was_hit(s->store, f->key);    /* counted from now on */
    due_by(s, e->at_ms);
}

static bool owns(struct serve *s, struct span channel)
{
    unsigned at[RANKS_MAX];
    unsigned found = serve_standing(s, rendezvous_channel(&s->rendezvous, channel), 1, at);
    return found ? s->view->members[at[0]].self : is_alone(s);
}

void early_tick(struct serve *s, uint64_t now_ms, struct effects *fx)
{
    LIST_FOREACH_SAFE(&s->early, link) {
        struct early *e = CONTAINER_OF(link, struct early, link);
        if (now_ms < e->at_ms) {
            due_by(s, e->at_ms);
            continue;
        }
        list_remove(link);
        s->early_count--;
        if (store_was_hit(s->store, e->key) && owns(s, e->channel)) {
            struct message ask = {.key = e->key, .channel = e->channel, .loader = e->loader,
                                  .ttl_ms = e->ttl_ms, .stale_ms = e->stale_ms,
                                  .load_timeout_ms = e->load_timeout_ms};
            s->stats.early++;
            refresh_behind(s, &ask, now_ms, fx);
        }
        mem_free(e);
    }
}

void early_free(struct serve *s)
{
    LIST_FOREACH_SAFE(&s->early, link)
        mem_free(CONTAINER_OF(link, struct early, link));
}
