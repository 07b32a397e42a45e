/* The public side of tallies: counting is under the short lock and at once; with Redis up a
 * sum is asked for there, by a blocked thread (ask.c) or an event loop's port (port_ask.c).
 */
#include "shell/tallies.h"

#include "core/err.h"
#include "shell/ask.h"
#include "shell/clock.h"
#include "shell/shell.h"
#include "shell/turn.h"

bool tally_in_redis(struct peerage *p)
{
    return atomic_load(&p->redis.seen) == REDIS_UP;
}

struct tally_name tally_name_of(const struct peerage_tally *in)
{
    return (struct tally_name){span_of(in->name, in->name_bytes), span_of(in->key, in->key_bytes),
                               in->window_ms};
}

/* Here alone: no effects come of it but a round, for which the loop thread may have to wake. */
int tally_here(struct peerage *p, const struct tally_name *name, uint64_t amount, uint64_t limit,
               uint64_t *total)
{
    bool added = false;

    pthread_mutex_lock(&p->lock);
    int rc = node_tally_add(p->node, name, amount, limit, clock_wall_ms(), total, &added);
    bool wake = p->loop_wakes_ms != NEVER_MS && node_serve_due_ms(p->node) < p->loop_wakes_ms;
    pthread_mutex_unlock(&p->lock);
    if (wake)
        mailbox_ring(&p->mailbox);
    return rc < 0 ? rc : added;
}

static int add_behind(struct peerage *p, const struct tally_name *name, uint64_t amount,
                      uint64_t *total)
{
    struct turn t;
    bool added;

    turn_begin(p, &t);
    int rc = node_tally_add_behind(p->node, name, amount, clock_wall_ms(), total, &added,
                                   &t.effects);
    turn_end(p, &t);
    return rc;
}

int peerage_tally_add(peerage *p, const struct peerage_tally *in, uint64_t amount, uint64_t *total)
{
    struct tally_name name = tally_name_of(in);
    uint64_t unused;

    if (!total)
        total = &unused;
    *total = 0;
    if (shell_is_foreign(p))
        return ERR_FORKED;
    if (tally_in_redis(p))
        return add_behind(p, &name, amount, total);
    int rc = tally_here(p, &name, amount, UINT64_MAX, total);
    return rc < 0 ? rc : 0;
}

int peerage_tally_take(peerage *p, const struct peerage_tally *in, uint64_t amount, uint64_t limit,
                       uint64_t *total, int (*interrupted)(void *), void *argument)
{
    struct tally_name name = tally_name_of(in);
    uint64_t unused;

    if (!total)
        total = &unused;
    *total = 0;
    if (shell_is_foreign(p))
        return ERR_FORKED;
    if (tally_in_redis(p))
        return ask_tally(p, &name, amount, limit, total, interrupted, argument);
    return tally_here(p, &name, amount, limit, total);
}
