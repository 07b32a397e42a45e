/* Where the second tier comes in (see serve.h, tier.h).
 *
 * With peers up an owner never waits for it: it loads, and its values go there behind it
 * (O7). It is asked first where no peer coordinates the key: by an asker whom nobody helped
 * and by a node that is alone (value, else the lease), and by the heir that stands in for
 * a silent owner (the value alone: its askers meet here anyway).
 */
#include "serve_state.h"

#include "limits.h"

/* How long a node that acts for a silent owner looks there: its askers have patience for one
 * timeout in all. */
#define LOOK_PART 2u

void serve_set_tier(struct serve *s, bool there, uint64_t now_ms, struct effects *fx)
{
    struct flight *f = flights_next(s->flights, NULL), *next;

    s->tier = there;
    for (; !there && f; f = next) {
        next = flights_next(s->flights, f);
        if (f->state == FLIGHT_TIER)
            choose_loader(s, f, now_ms, fx);
    }
}

bool serve_has_tier(const struct serve *s) { return s->tier; }

bool is_alone(const struct serve *s)
{
    for (unsigned i = 0; s->view && i < s->view->count; i++) {
        if (!s->view->members[i].self && s->view->members[i].contends)
            return false;
    }
    return true;
}

/* A plain get, without a loader anywhere, only looks: it has nothing to take a lease for. */
static bool can_load(const struct serve *s, const struct flight *f)
{
    LIST_FOREACH((struct list *)&f->waiters, link) {
        if (CONTAINER_OF(link, struct waiter, link)->loads)
            return true;
    }
    return f->stay || loader_find(s, f->loader);
}

bool serve_is_alone(const struct serve *s) { return is_alone(s); }

bool tier_first(struct serve *s, struct flight *f, enum tier_want want, uint64_t now_ms,
                struct effects *fx)
{
    uint32_t load_ms = f->load_timeout_ms ? f->load_timeout_ms : s->config.load_timeout_ms;
    bool lease = want == TIER_WANT_LEASE && can_load(s, f);
    uint32_t wait_ms = lease ? load_ms : s->config.timeout_ms / LOOK_PART;
    struct message m = {.key = f->key, .channel = f->channel};

    if (!s->tier || want == TIER_WANT_NONE || f->tiered || f->fresh || !f->attached)
        return false;
    list_remove(&f->queue);
    f->state = FLIGHT_TIER;
    f->tiered = true;
    f->port = NULL;
    f->until_ms = now_ms + wait_ms;
    due_by(s, f->until_ms);
    effects_tier_ask(fx, f->id, lease, wait_ms, &m);
    return true;
}

void serve_tier_value(struct serve *s, uint64_t load_id, const struct loaded *item,
                      uint64_t asked_ms, uint64_t now_ms, struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, load_id);

    if (!f || f->state != FLIGHT_TIER)
        return;
    s->stats.answers_tier++;
    land(s, f, item, 1, f->delete_id, TIER_REDIS, asked_ms, now_ms, fx);
}

bool serve_tier_load(struct serve *s, uint64_t load_id, uint64_t now_ms, struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, load_id);

    if (!f || f->state != FLIGHT_TIER)
        return false;
    choose_loader(s, f, now_ms, fx);
    return true;
}

void end_flight(struct serve *s, struct flight *f, struct effects *fx)
{
    if (f->tiered)
        effects_tier_end(fx, f->id);
    flight_end(s->flights, f);
}

/* A value that was loaded here goes to the tier as well: the owner's, and what an asker made
 * that nobody helped. A permit's holder leaves it to the owner. */
void put_behind(struct serve *s, const struct flight *f, const struct loaded *item,
                struct span key, uint64_t now_ms, struct effects *fx)
{
    struct message m = {
        .key = key,
        .channel = f->channel,
        .value_type = item->value_type,
        .ttl_ms = item->ttl_ms,
        .stale_ms = item->stale_ms,
        .age_ms = item->age_ms,
    };
    uint64_t marks[2];

    if (!s->tier || item->ttl_ms == 0 || (f->role != FLIGHT_OWNS && !f->tiered) ||
        item->blob->bytes > FRAME_BYTES_MAX - HEAD_BYTES_MAX)
        return;
    delete_ids_of(s, key, f->channel, now_ms, marks);
    effects_tier_put(fx, f->id, marks, &m, item->blob);
}
