/* Carrying out what core wants done (see turn.h). */
#include "shell/turn.h"

#include "core/mem.h"
#include "shell/clock.h"
#include "shell/loop.h"
#include "shell/port_ask.h"

/* Effects on their way to the loop thread. */
struct parcel {
    struct mail mail;
    struct peerage *peerage;
    struct effects effects;
};

/* This process stood still for so long that the others may have declared it dead, and
 * deleted things since. It would hear of that, but not before its first questions, and
 * perhaps never: a suspicion that still lies in its socket makes it refute what it did not
 * read yet. So everything goes before anything is served, local hits too (rule D3). */
static void empty_after_absence(struct peerage *p)
{
    serve_drop_all(node_serve(p->node));
    atomic_fetch_add(&p->absences, 1);
    /* The loop thread sets it again. Only now: peerage_hit_again has no lock, and who sees
     * this has to see that the store changed. */
    atomic_store_explicit(&p->away_ms, NEVER_MS, memory_order_release);
    notice_log(&p->notices, LOG_WARNING, "This process stood still: peers may have declared it "
               "dead, its cache is emptied");
}

static void begin(struct peerage *p, struct turn *t, struct loop *loop)
{
    effects_init(&t->effects);
    t->rings = NULL;
    t->takers_to_wake = 0;
    t->self = NULL;
    t->has_parcel = false;
    t->loop = loop;
    t->now_ms = loop && loop->server.now_ms ? loop->server.now_ms : clock_now_ms();
    pthread_mutex_lock(&p->lock);
    if (t->now_ms >= p->away_ms)
        empty_after_absence(p);
    /* Without a loop thread those who come by look after the deadlines. */
    if (p->loop_wakes_ms == NEVER_MS && node_serve_due_ms(p->node) <= t->now_ms)
        node_serve_tick(p->node, t->now_ms, &t->effects);
}

void turn_begin(struct peerage *p, struct turn *t)
{
    begin(p, t, NULL);
}

void turn_begin_loop(struct peerage *p, struct loop *loop, struct turn *t)
{
    begin(p, t, loop);
}

void turn_ring(struct turn *t, struct port *port)
{
    /* Who set the flag has not rung yet, so what was added under the lock will be seen. */
    if (port == t->self || atomic_exchange(&port->ringing, true))
        return;
    atomic_fetch_add(&port->refs, 1);
    port->ring_next = t->rings;
    t->rings = port;
}

static void wake_taker(struct peerage *p, struct turn *t)
{
    if (p->takes_owed < p->takers_parked) {
        p->takes_owed++;
        t->takers_to_wake++;
    } else {
        notice_pool(&p->notices);
    }
}

static bool is_registered(const struct peerage *p, const void *port)
{
    LIST_FOREACH((struct list *)&p->ports, l) {
        if (CONTAINER_OF(l, struct port, of_node) == port)
            return true;
    }
    return false;
}

static void cancel_load(struct peerage *p, struct turn *t, const struct effect *e)
{
    struct cancel *c;

    if (!e->port || !is_registered(p, e->port))
        return;
    c = mem_alloc(sizeof *c);
    if (!c)
        return;         /* the load goes on, and is stored though nobody waits */
    c->load_id = e->load_id;
    list_add_tail(&((struct port *)e->port)->cancels, &c->of);
    turn_ring(t, e->port);
}

static void load_here(struct peerage *p, struct turn *t, const struct effect *e)
{
    struct port_question *q = e->token;

    if (!e->port || !is_registered(p, e->port))
        return;
    q->load_here_id = e->load_id;
    list_remove(&q->of_here);
    list_add_tail(&((struct port *)e->port)->loads_here, &q->of_here);
    turn_ring(t, e->port);
}

/* Under the lock: what stays in this process. */
static void deliver(struct peerage *p, struct turn *t)
{
    LIST_FOREACH_SAFE(&t->effects.completed, l) {
        struct waiter *w = CONTAINER_OF(l, struct waiter, link);
        struct port *port = w->port;
        list_remove(l);
        list_add_tail(&port->completed, l);
        turn_ring(t, port);
    }
    for (size_t i = 0; i < t->effects.count; i++) {
        const struct effect *e = &t->effects.at[i];
        switch (e->kind) {
        case EFFECT_LOADS:
            if (!e->async) {
                wake_taker(p, t);
            } else if (p->start_port) {
                p->start_port->loads_waiting = true;
                turn_ring(t, p->start_port);
            }
            break;
        case EFFECT_LOAD_HERE:
            load_here(p, t, e);
            break;
        case EFFECT_CANCEL_LOAD:
            cancel_load(p, t, e);
            break;
        case EFFECT_GONE:
            /* Each looks for itself whether it is theirs: members go seldom. */
            LIST_FOREACH(&p->ports, l) {
                struct port *port = CONTAINER_OF(l, struct port, of_node);
                port->members_changed = true;
                turn_ring(t, port);
            }
            break;
        default:            /* to be sent: see carry */
            break;
        }
    }
}

static void open_parcel(struct mail *mail, struct loop *loop)
{
    struct parcel *parcel = CONTAINER_OF(mail, struct parcel, mail);

    if (loop)
        loop_carry(loop, &parcel->effects);
    atomic_fetch_sub(&parcel->peerage->parcels_under_way, 1);
    effects_deinit(&parcel->effects);
    mem_free(parcel);
}

static bool has_sends(const struct effects *e)
{
    for (size_t i = 0; i < e->count; i++) {
        enum effect_kind kind = e->at[i].kind;
        if (kind == EFFECT_ANSWER || kind == EFFECT_CALL || kind == EFFECT_TIER_ASK ||
            kind == EFFECT_TIER_PUT || kind == EFFECT_TIER_END || kind == EFFECT_TIER_DELETE ||
            kind == EFFECT_TIER_TALLY)
            return true;
    }
    return false;
}

/* After the lock: what goes out over the loop thread's sockets. Lost for want of memory,
 * or where the loop has ended, it is what a lost connection would be: every wait has a
 * deadline. */
static void carry(struct peerage *p, struct turn *t)
{
    if (t->loop && t->effects.count) {
        loop_carry(t->loop, &t->effects);
    } else if (t->has_parcel) {
        struct parcel *parcel = mem_alloc(sizeof *parcel);
        if (parcel) {
            parcel->mail.run = open_parcel;
            parcel->peerage = p;
            parcel->effects = t->effects;
            list_init(&parcel->effects.completed);
            effects_init(&t->effects);
            if (!mailbox_post(&p->mailbox, &parcel->mail))
                open_parcel(&parcel->mail, NULL);
        } else {
            atomic_fetch_sub(&p->parcels_under_way, 1);
        }
    }
    effects_deinit(&t->effects);
}

static void ring(struct turn *t)
{
    while (t->rings) {
        struct port *port = t->rings;
        t->rings = port->ring_next;
        atomic_store(&port->ringing, false);
        bell_ring(&port->bell);
        port_unref(port);
    }
}

void turn_end(struct peerage *p, struct turn *t)
{
    struct store_dropped dropped;
    bool wake_loop;

    deliver(p, t);
    /* Under the lock: who closes when it has seen the last flight end sees its answer, too. */
    t->has_parcel = !t->loop && has_sends(&t->effects);
    if (t->has_parcel)
        atomic_fetch_add(&p->parcels_under_way, 1);
    pthread_cond_broadcast(&p->changed);
    wake_loop = !t->loop && node_serve_due_ms(p->node) < p->loop_wakes_ms &&
                p->loop_wakes_ms != NEVER_MS;
    for (;;) {
        dropped.count = 0;
        serve_take_dropped(node_serve(p->node), &dropped);
        pthread_mutex_unlock(&p->lock);
        for (unsigned i = 0; i < dropped.count; i++)
            blob_unref(dropped.blobs[i]);
        if (dropped.count < STORE_DROPPED_MAX)
            break;
        pthread_mutex_lock(&p->lock);
    }
    /* Not under the lock, which is the first thing that whoever wakes wants. */
    for (; t->takers_to_wake; t->takers_to_wake--)
        pthread_cond_signal(&p->take);
    ring(t);
    carry(p, t);
    if (wake_loop)
        mailbox_ring(&p->mailbox);
}
