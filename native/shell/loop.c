/* The loop thread (see loop.h). Starting and stopping stand in loop_life.c. */
#include "shell/loop.h"

#include <stdio.h>

#include "core/mem.h"
#include "core/node_tally.h"
#include "shell/clock.h"
#include "shell/dial.h"
#include "shell/loop_life.h"
#include "shell/resolve.h"
#include "shell/shell.h"
#include "shell/turn.h"

#define LATE_MS_MAX 20u             /* timers wait so long for sockets to be drained (M5) */
#define SWEEP_EVERY_MS 1000u
#define SLEEP_MS_MAX 10000u
#define AWAY_MS 2500u               /* the shortest suspicion, less one protocol period: so late
                                       is who may have been declared dead */

/* What core wants sent. */

void loop_carry(struct loop *loop, struct effects *effects)
{
    for (size_t i = 0; i < effects->count; i++) {
        struct effect *e = &effects->at[i];
        if (e->kind == EFFECT_ANSWER)
            server_answer(loop, e->conn_id, &e->message, e->value);
        else if (e->kind == EFFECT_CALL)
            call_start(loop, e);
        else
            redis_carry(loop->redis, e);
    }
}

/* What membership wants. */

static void log_effect(struct loop *loop, const struct swim_effect *e)
{
    struct notices *n = &loop->peerage->notices;
    char a[ADDR_TEXT_MAX];
    unsigned long long value = (unsigned long long)e->value;
    unsigned long long other = (unsigned long long)e->other_id;

    addr_format(&e->addr, a);
    switch ((enum swim_log)e->log) {
    case SWIM_LOG_JOINED:
        notice_log(n, LOG_DEBUG, "%s joined", a);
        break;
    case SWIM_LOG_REPLACED:
        notice_log(n, LOG_DEBUG, "%s was started anew", a);
        break;
    case SWIM_LOG_SUSPECTED:
        notice_log(n, LOG_DEBUG, "%s is suspected", a);
        break;
    case SWIM_LOG_REFUTED:
        notice_log(n, LOG_DEBUG, "%s is not suspected any more", a);
        break;
    case SWIM_LOG_DEAD:
        notice_log(n, LOG_INFO, "%s is down", a);
        break;
    case SWIM_LOG_RETURNED:
        notice_log(n, LOG_INFO, "%s is back", a);
        break;
    case SWIM_LOG_LEFT:
        notice_log(n, LOG_INFO, "%s left", a);
        break;
    case SWIM_LOG_SELF_DEAD:
        notice_log(n, LOG_WARNING, "Peers had declared this node dead: its cache is emptied");
        break;
    case SWIM_LOG_CONFLICT:
        notice_log(n, LOG_ERROR, "Another node (id %016llx, started later) has this node's address "
                   "%s: this one (id %016llx) works alone", other, a,
                   (unsigned long long)loop->peerage->node_id);
        break;
    case SWIM_LOG_ALONE:
        loop_say_alone(loop);
        break;
    case SWIM_LOG_REFUSED_CIDR:
        notice_log(n, LOG_WARNING, "Refused the address %s: outside PEER_ALLOW_CIDR", a);
        break;
    case SWIM_LOG_REFUSED_LOOPBACK:
        notice_log(n, LOG_WARNING, "Refused the loopback address %s from another host", a);
        break;
    case SWIM_LOG_REFUSED_FUTURE:
        notice_log(n, LOG_WARNING, "Refused %s: its clock is %llu ms ahead", a, value);
        break;
    case SWIM_LOG_REFUSED_UNPROVEN:
        notice_log(n, LOG_WARNING, "Refused %s: it does not answer at the address it gives", a);
        break;
    case SWIM_LOG_STARTED_RAISED:
        notice_log(n, LOG_DEBUG, "An earlier start of %s is known: starting as %llu", a, value);
        break;
    case SWIM_LOG_TABLE_FULL:
        notice_log(n, LOG_ERROR, "The table of members is full: %s is left out", a);
        break;
    case SWIM_LOG_PULL_FAILED:
        notice_log(n, LOG_DEBUG, "No table of members from %s", a);
        break;
    }
}

struct prove {
    struct addr addr;
    uint64_t node_id;
};

static void proven(void *token, struct loop *loop, enum dial_result result, struct stream *c,
                   uint64_t other_id)
{
    struct prove *prove = token;
    struct swim *swim = node_swim(loop->peerage->node);

    (void)other_id;
    if (swim)
        swim_proven(swim, clock_now_ms(), clock_wall_ms(), &prove->addr, prove->node_id,
                    result == DIAL_PROVEN, &loop->out);
    mem_free(prove);
    /* A proven connection is of use to the first thread that asks there, unless that has a
     * shorter way. */
    if (c && loop->peerage->settings.unix_sockets && addr_same_host(&c->peer, &loop->peerage->self))
        stream_free(c);
    else if (c)
        pool_give(&loop->peerage->pool, c, clock_now_ms());
    loop_news(loop);
}

static void prove(struct loop *loop, const struct swim_effect *e)
{
    struct prove *prove = mem_alloc(sizeof *prove);

    if (!prove)
        return;         /* membership gives up by itself */
    prove->addr = e->addr;
    prove->node_id = e->node_id;
    if (!dial_start(loop, DIAL_TCP, &e->addr, e->node_id,
                    clock_now_ms() + loop->peerage->settings.timeout_ms, proven, prove))
        mem_free(prove);
}

static void pull(struct loop *loop, const struct swim_effect *e)
{
    struct effects effects;

    effects_init(&effects);
    node_pull(loop->peerage->node, e, swim_payload(&loop->out, e), &effects);
    loop_carry(loop, &effects);
    effects_deinit(&effects);
}

static void say_members(struct loop *loop, const struct view *v)
{
    char line[PEERAGE_LINE_MAX * 2], text[ADDR_TEXT_MAX];
    uint64_t hash = 1469598103934665603u;       /* FNV-1a: only to see a change */
    size_t at = (size_t)snprintf(line, sizeof line, "Peers: ");
    unsigned said = 0, left = 0;

    for (unsigned i = 0; i < v->count; i++) {
        const struct view_member *m = &v->members[i];
        if (m->self || m->observer)
            continue;
        addr_format(&m->addr, text);
        for (const char *c = text; *c; c++)
            hash = (hash ^ (uint8_t)*c) * 1099511628211u;
        if (at + strlen(text) + 32 > sizeof line)
            left++;
        else
            at += (size_t)snprintf(line + at, sizeof line - at, "%s%s", said++ ? ", " : "", text);
    }
    if (left)
        snprintf(line + at, sizeof line - at, " and %u more", left);
    else if (!said)
        snprintf(line + at, sizeof line - at, "none");
    if (hash == loop->said_hash)
        return;
    loop->said_hash = hash;
    notice_say(&loop->peerage->notices, PEERAGE_NOTICE_MEMBERS, line);
}

static void say_coordinator(struct loop *loop, const struct view *v)
{
    struct addr now;
    char text[ADDR_TEXT_MAX];

    memset(&now, 0, sizeof now);
    if (v->coordinator >= 0)
        now = v->members[v->coordinator].addr;
    if (addr_equal(&now, &loop->coordinator))
        return;
    loop->coordinator = now;
    notice_say(&loop->peerage->notices, PEERAGE_NOTICE_COORDINATOR,
               v->coordinator >= 0 ? addr_format(&now, text) : "");
}

static int state_of(enum phase phase)
{
    switch (phase) {
    case PHASE_LOOKING:
        return PEERAGE_LOOKING;
    case PHASE_WARMING:
        return PEERAGE_WARMING;
    case PHASE_READY:
        return PEERAGE_READY;
    case PHASE_DRAINING:
    case PHASE_LEFT:
        break;
    }
    return PEERAGE_DRAINING;
}

static void set_view(struct loop *loop, struct view *v)
{
    struct peerage *p = loop->peerage;
    struct turn t;

    turn_begin_loop(p, loop, &t);
    if (v)
        atomic_store(&p->state, state_of(v->phase));
    node_set_view(p->node, v, t.now_ms, &t.effects);
    turn_end(p, &t);
}

static void spread(struct loop *loop)
{
    struct peerage *p = loop->peerage;
    struct view *v = node_view(p->node);

    loop->spread = !v;
    if (!v)
        return;         /* out of memory: at the next tick */
    say_members(loop, v);
    say_coordinator(loop, v);
    resolve_alone(loop->resolver, swim_is_alone(node_swim(p->node)));
    set_view(loop, v);
}

void loop_part(struct loop *loop)
{
    if (loop->parted)
        return;
    loop->parted = true;
    node_part(loop->peerage->node);
    set_view(loop, NULL);
}

/* Membership counts for this thread alone; others read a copy. */
static void publish(struct peerage *p)
{
    struct swim_stats stats;

    if (!node_swim(p->node))
        return;
    swim_stats(node_swim(p->node), &stats);
    atomic_store_explicit(&p->counters.joins_challenged, stats.challenged, memory_order_relaxed);
    atomic_store_explicit(&p->counters.updates_refused, stats.refused_updates,
                          memory_order_relaxed);
}

void loop_news(struct loop *loop)
{
    struct peerage *p = loop->peerage;
    struct turn t;

    publish(p);

    for (size_t i = 0; i < loop->out.count; i++) {
        const struct swim_effect *e = &loop->out.effects[i];
        switch ((enum swim_effect_kind)e->kind) {
        case SWIM_SEND:
            udp_send(loop, &e->addr, e->node_id, swim_payload(&loop->out, e));
            break;
        case SWIM_PROVE:
            prove(loop, e);
            break;
        case SWIM_PULL:
            pull(loop, e);
            break;
        case SWIM_LOG:
            log_effect(loop, e);
            break;
        }
    }
    uint32_t news = loop->out.news;
    swim_out_reset(&loop->out);
    if (loop->parted)
        return;
    if (news & SWIM_NEWS_SELF_DEAD) {
        turn_begin_loop(p, loop, &t);
        serve_drop_all(node_serve(p->node));
        turn_end(p, &t);
    }
    if (news & SWIM_NEWS_CONFLICT) {
        atomic_store(&p->state, PEERAGE_CONFLICT);
        loop_part(loop);
        loop_close_sockets(loop);
    } else if (news & (SWIM_NEWS_MEMBERS | SWIM_NEWS_PHASE)) {
        spread(loop);
    }
}

/* Hints from threads. */

struct hint {
    struct mail mail;
    struct peerage *peerage;
    struct addr addr;
    uint64_t other_id;
};

static void take_hint(struct mail *mail, struct loop *loop)
{
    struct hint *h = CONTAINER_OF(mail, struct hint, mail);
    struct swim *swim = loop ? node_swim(h->peerage->node) : NULL;

    if (swim && h->other_id)
        swim_hint_replaced(swim, clock_now_ms(), &h->addr, h->other_id);
    else if (swim)
        swim_hint_silent(swim, clock_now_ms(), &h->addr);
    mem_free(h);
}

void loop_hint_replaced(struct peerage *p, const struct addr *a, uint64_t other_id)
{
    struct hint *h = mem_zalloc(sizeof *h);

    if (!h)
        return;         /* membership finds out by itself */
    h->mail.run = take_hint;
    h->peerage = p;
    h->addr = *a;
    h->other_id = other_id;
    if (!mailbox_post(&p->mailbox, &h->mail))
        mem_free(h);
}

void loop_hint_silent(struct peerage *p, const struct addr *a)
{
    loop_hint_replaced(p, a, 0);
}

/* Turning. */

void loop_letters(struct ev_loop *ev, ev_async *async, int events)
{
    struct loop *loop = async->data;

    (void)ev;
    (void)events;
    mailbox_run(&loop->peerage->mailbox, loop);
}

static void tick_serve(struct loop *loop, uint64_t now_ms)
{
    struct peerage *p = loop->peerage;
    struct turn t;

    turn_begin_loop(p, loop, &t);
    if (node_serve_due_ms(p->node) <= now_ms) {
        node_serve_tick(p->node, now_ms, &t.effects);
        node_tally_tick(p->node, now_ms, clock_wall_ms(), &t.effects);
    }
    turn_end(p, &t);
}

void loop_due(struct ev_loop *ev, ev_timer *timer, int events)
{
    struct loop *loop = timer->data;
    struct peerage *p = loop->peerage;
    uint64_t now_ms = clock_now_ms();

    (void)ev;
    (void)events;
    if (loop->udp.more && now_ms < loop->due_ms + LATE_MS_MAX) {
        /* what is still in the socket may be the very answer that is waited for */
        ev_timer_set(timer, 0, 0);
        ev_timer_start(ev, timer);
        return;
    }
    struct swim *swim = node_swim(p->node);
    if (swim) {
        swim_tick(swim, now_ms, clock_wall_ms(), &loop->out);
        loop_news(loop);
        if (loop->spread && !loop->parted)
            spread(loop);
    }
    tick_serve(loop, now_ms);
    call_tick(loop, now_ms);
    redis_tick(loop->redis, now_ms);
    if (now_ms >= loop->sweep_ms) {
        loop->sweep_ms = now_ms + SWEEP_EVERY_MS;
        server_sweep(loop, now_ms);
        pool_sweep(&p->pool, now_ms);
    }
    if (loop->observing && now_ms >= loop->range_ms)
        loop_try_range(loop, now_ms);
    loop->due_ms = 0;           /* fired: prepare sets it again */
}

static uint64_t next_due(struct loop *loop, uint64_t now_ms)
{
    struct peerage *p = loop->peerage;
    struct swim *swim = node_swim(p->node);
    uint64_t due = min_u64(now_ms + SLEEP_MS_MAX, loop->calls.due_ms);

    due = min_u64(due, redis_due_ms(loop->redis));
    if (swim)
        due = min_u64(due, swim_due_ms(swim));
    if (loop->server.count || pool_count(&p->pool))
        due = min_u64(due, loop->sweep_ms);
    if (loop->observing)
        due = min_u64(due, loop->range_ms);
    pthread_mutex_lock(&p->lock);
    due = max_u64(min_u64(due, node_serve_due_ms(p->node)), now_ms);    /* "at once" is 0 */
    p->loop_wakes_ms = due;
    if (now_ms < p->away_ms)        /* else who comes next empties the store */
        p->away_ms = swim && !serve_is_alone(node_serve(p->node)) ? due + AWAY_MS : NEVER_MS;
    pthread_mutex_unlock(&p->lock);
    return due;
}

/* Only when the last answers are written, those of the flights that were waited for: who
 * hears that a peer has left waits for it no more. */
static void say_leave(struct loop *loop)
{
    if (!node_swim(loop->peerage->node))
        return;
    swim_leave(node_swim(loop->peerage->node), clock_now_ms(), &loop->out);
    loop_news(loop);
}

void loop_prepare(struct ev_loop *ev, ev_prepare *w, int events)
{
    struct loop *loop = w->data;

    (void)events;
    do {
        server_flush(loop);
        call_flush(loop);
    } while (!list_empty(&loop->server.dirty) || !list_empty(&loop->calls.failed));
    uint64_t now_ms = clock_now_ms(), due = next_due(loop, now_ms);
    if (loop->stopping) {
        bool done = !atomic_load(&loop->peerage->parcels_under_way) &&
                    !server_is_writing(loop) && redis_has_left(loop->redis);
        if (done || now_ms >= loop->stop_by_ms) {
            say_leave(loop);
            ev_break(ev, EVBREAK_ALL);
        }
        due = min_u64(due, loop->stop_by_ms);
    }
    if (due == loop->due_ms && ev_is_active(&loop->timer))
        return;
    loop->due_ms = due;
    ev_timer_stop(ev, &loop->timer);
    ev_now_update(ev);
    ev_timer_set(&loop->timer, due > now_ms ? (double)(due - now_ms) / 1000 : 0, 0);
    ev_timer_start(ev, &loop->timer);
}
