/* A loop's start, its end, and an observer's way to a port (see loop.h). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/err.h"
#include "core/mem.h"
#include "shell/clock.h"
#include "shell/dial.h"
#include "shell/fork.h"
#include "shell/loop_life.h"
#include "shell/poller.h"
#include "shell/redis.h"
#include "shell/resolve.h"
#include "shell/shell.h"
#include "shell/sockets.h"
#include "shell/turn.h"

#define RANGE_EVERY_MS 5000u        /* an observer tries for a port (M7) */
#define LINGER_MS 500u              /* for peers that are slow to read their last answers */

static int system_line(char line[PEERAGE_LINE_MAX], const char *what)
{
    snprintf(line, PEERAGE_LINE_MAX, "%s: %s", what, strerror(errno));
    return ERR_SYSTEM;
}

/* libev's first watcher of another thread opens two descriptors at most, and ends the process
 * where it can't. */
static bool descriptors_left(void)
{
    int ends[2];

    fork_hold();        /* no child may have them */
    bool left = pipe(ends) == 0;
    if (left) {
        close(ends[0]);
        close(ends[1]);
    }
    fork_release();
    return left;
}

/* Sockets. */

static int bind_sockets(struct peerage *p, struct loop *loop, int *udp, int *tcp, uint16_t *port,
                        char line[PEERAGE_LINE_MAX])
{
    const struct settings *s = &p->settings;
    char a[ADDR_TEXT_MAX];
    int rc = ERR_FULL;

    /* An observer takes the last free one, not the first: the workers come before it. It does
     * take one of the range where it can, for a firewall opens no others. */
    for (unsigned n = s->observer ? s->port_range : 0; rc == ERR_FULL && n; n--)
        rc = sockets_bind_pair(&s->listen, (uint16_t)(s->port + n - 1), 1, udp, tcp, port);
    if (!s->observer)
        rc = sockets_bind_pair(&s->listen, s->port, s->port_range, udp, tcp, port);
    if (rc == ERR_FULL) {
        loop->observing = !s->observer;
        rc = sockets_bind_any(&s->listen, udp, tcp, port);
    }
    if (rc == 0)
        return 0;
    if (errno == EADDRNOTAVAIL) {
        snprintf(line, PEERAGE_LINE_MAX, "PEER_LISTEN: got %s, takes an address of this host",
                 addr_format(&s->listen, a));
        return ERR_SETTING;
    }
    return system_line(line, "The peer layer can't bind its port");
}

/* For peers of this host; after p->self is known. Who observes has a port for once only, and
 * nobody asks it for much. */
static int listen_near(const struct peerage *p, const struct loop *loop)
{
    bool wanted = p->settings.unix_sockets && !p->settings.observer && !loop->observing;

    return wanted ? sockets_listen_unix(&p->self) : -1;
}

void loop_close_sockets(struct loop *loop)
{
    loop->observing = false;
    udp_unwatch(&loop->udp, loop);
    server_deinit(&loop->server, loop);
}

/* Membership. */

static int join(struct loop *loop)
{
    struct peerage *p = loop->peerage;
    const struct settings *s = &p->settings;
    struct swim_config c = {
        .self = p->self,
        .node_id = p->node_id,
        .started_ms = loop->started_ms,
        .speaks_min = FRAME_VERSION_MIN,
        .speaks_max = FRAME_VERSION,
        .payload_bytes_max = datagrams_payload_max(&loop->udp.datagrams),
        .allowed = s->allowed,
        .allowed_count = s->allowed_count,
        .own_hosts = p->own_hosts,
        .own_hosts_count = p->own_hosts_count,
    };
    struct addr range[1024];
    size_t count;
    int rc;

    if (s->coordinate)
        c.flags |= SWIM_COORDINATE;
    if (s->observer || loop->observing)
        c.flags |= SWIM_OBSERVER;
    swim_params_default(&c.params);
    if (getentropy(&c.seed, sizeof c.seed) < 0)
        return ERR_SYSTEM;
    rc = node_join(p->node, &c, clock_now_ms());
    if (rc < 0)
        return rc;
    /* This host's own range comes first, so that workers of one host need no PEERS. */
    count = resolve_spread(s, &p->self, 0, range, ARRAY_COUNT(range));
    rc = swim_set_seed(node_swim(p->node), 0, range, count);
    for (unsigned i = 0; rc == 0 && i < s->seed_count; i++) {
        const struct peer_seed *seed = &s->seeds[i];
        if (seed->host[0])
            continue;
        count = resolve_spread(s, &seed->addr, seed->port, range, ARRAY_COUNT(range));
        rc = swim_set_seed(node_swim(p->node), i + 1, range, count);
    }
    return rc;
}

void loop_say_alone(struct loop *loop)
{
    struct peerage *p = loop->peerage;
    char why[256] = "";
    size_t at = 0;

    for (int v = VERDICT_GARBAGE; v < VERDICT_COUNT; v++) {
        uint64_t n = atomic_load(&p->counters.verdicts[v]);
        if (n && at + 80 < sizeof why)
            at += (size_t)snprintf(why + at, sizeof why - at, "%s%llu that %s", at ? ", " : "",
                                   (unsigned long long)n, verdict_text((enum verdict)v));
    }
    uint64_t outside = atomic_load(&p->counters.refused_cidr);
    if (outside && at + 80 < sizeof why)
        at += (size_t)snprintf(why + at, sizeof why - at, "%s%llu from outside PEER_ALLOW_CIDR",
                               at ? ", " : "", (unsigned long long)outside);
    notice_log(&p->notices, LOG_WARNING, "No peer answers: %u entries of PEERS and this host's "
               "ports %u to %u were tried. Dropped meanwhile: %s", p->settings.seed_count,
               p->settings.port, p->settings.port + p->settings.port_range - 1,
               at ? why : "nothing");
}

/* A port became free: from now on a node like any other, under its new address. */
void loop_try_range(struct loop *loop, uint64_t now_ms)
{
    struct peerage *p = loop->peerage;
    const struct settings *s = &p->settings;
    char text[ADDR_TEXT_MAX];
    int udp, tcp;
    uint16_t port;

    loop->range_ms = now_ms + RANGE_EVERY_MS;
    if (sockets_bind_pair(&s->listen, s->port, s->port_range, &udp, &tcp, &port) < 0)
        return;
    swim_leave(node_swim(p->node), now_ms, &loop->out);
    loop_news(loop);
    loop->observing = false;
    loop->started_ms = max_u64(loop->started_ms + 1, clock_wall_ms());
    pthread_mutex_lock(&p->lock);
    p->self.port = port;
    pthread_mutex_unlock(&p->lock);
    udp_replace(&loop->udp, loop, udp);
    server_replace(&loop->server, loop, tcp, listen_near(p, loop));
    if (join(loop) < 0) {
        loop_part(loop);
        notice_log(&p->notices, LOG_ERROR, "Out of memory: this node works alone");
        return;
    }
    notice_log(&p->notices, LOG_INFO, "Peer layer on: this node is %s",
               addr_format(&p->self, text));
}

/* Start. */

static void *run(void *argument)
{
    struct loop *loop = argument;

    redis_run(loop->redis);
    ev_run(loop->ev, 0);
    return NULL;
}

static int make(struct peerage *p, struct loop *loop, char line[PEERAGE_LINE_MAX])
{
    char said[PEERAGE_LINE_MAX];
    int udp = -1, tcp = -1, rc;
    uint16_t port;

    loop->started_ms = clock_wall_ms();
    p->own_hosts_count = sockets_own_hosts(p->own_hosts, OWN_HOSTS_MAX);
    rc = settings_advertise(&p->settings, &p->self, said, line);
    if (rc < 0)
        return rc;
    if (said[0])
        notice_log(&p->notices, LOG_WARNING, "%s", said);
    rc = bind_sockets(p, loop, &udp, &tcp, &port, line);
    if (rc < 0)
        return rc;
    p->self.port = port;
    rc = udp_init(&loop->udp, udp, sockets_family(&p->settings.listen), &p->settings.seal,
                  p->node_id);
    if (rc < 0) {
        fork_close(udp);
        fork_close(tcp);
        loop->udp.fd = -1;
        return rc;
    }
    server_init(&loop->server, tcp, listen_near(p, loop));
    return join(loop);
}

static void watch_all(struct loop *loop)
{
    ev_async_init(&loop->async, loop_letters);
    ev_timer_init(&loop->timer, loop_due, 0, 0);
    ev_set_priority(&loop->timer, EV_MINPRI);
    ev_prepare_init(&loop->prepare, loop_prepare);
    loop->async.data = loop->timer.data = loop->prepare.data = loop;
    ev_async_start(loop->ev, &loop->async);
    ev_prepare_start(loop->ev, &loop->prepare);
    if (loop->udp.fd >= 0) {
        udp_watch(&loop->udp, loop);
        server_watch(&loop->server, loop);
    }
    dial_watch(loop);
    mailbox_open(&loop->peerage->mailbox, loop->ev, &loop->async);
}

static void destroy(struct loop *loop)
{
    if (loop->udp.fd >= 0)
        udp_deinit(&loop->udp);
    swim_out_deinit(&loop->out);
    dial_deinit(loop);
    if (loop->ev) {
        poller_disown(loop->adopted, loop->adopted_count);
        ev_loop_destroy(loop->ev);
    }
    mem_free(loop);
}

int loop_start(struct peerage *p, char line[PEERAGE_LINE_MAX])
{
    struct loop *loop = mem_zalloc(sizeof *loop);
    sigset_t all, before;
    char text[ADDR_TEXT_MAX];
    int rc;

    if (!loop)
        return ERR_NOMEM;
    loop->peerage = p;
    loop->udp.fd = -1;
    server_init(&loop->server, -1, -1);
    swim_out_init(&loop->out);
    call_init(&loop->calls);
    rc = dial_init(loop) ? 0 : system_line(line, "No event loop");
    if (rc == 0 && p->settings.enabled)
        rc = make(p, loop, line);
    loop->parted = !p->settings.enabled;    /* Redis alone: no sockets, no members */
    if (rc == 0) {
        loop->ev = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
        if (!loop->ev || !descriptors_left())
            rc = system_line(line, "No event loop");
    }
    if (rc < 0) {
        int why = errno;
        if (loop->udp.fd >= 0)
            server_close_listeners(&loop->server, &p->self);
        node_part(p->node);
        destroy(loop);
        errno = why;
        return rc;
    }
    p->loop = loop;
    if (p->settings.enabled)
        atomic_store(&p->state, PEERAGE_LOOKING);
    pool_set_open(&p->pool, true);
    watch_all(loop);
    ev_run(loop->ev, EVRUN_NOWAIT);     /* registers everything, so that it can be found */
    loop->adopted_count = poller_adopt(loop->dialling.fd, loop->adopted);
    loop->redis = redis_start(loop);
    for (unsigned i = 0; p->settings.enabled && i < p->settings.seed_count && !loop->resolver;
         i++) {
        if (p->settings.seeds[i].host[0])
            loop->resolver = resolve_start(p);
    }
    if (p->settings.enabled)
        notice_log(&p->notices, LOG_INFO, "Peer layer on: this node is %s",
                   addr_format(&p->self, text));
    if (loop->observing)
        notice_log(&p->notices, LOG_WARNING, "No port from %u to %u is free: this node owns "
                   "nothing until one is", p->settings.port,
                   p->settings.port + p->settings.port_range - 1);
    loop->range_ms = clock_now_ms() + RANGE_EVERY_MS;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&p->thread, NULL, run, loop);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->thread_runs = rc == 0;
    if (rc == 0)
        return 0;
    errno = rc;
    int failed = system_line(line, "No thread for the peer layer");
    loop_stop(p);
    errno = rc;
    return failed;
}

/* End. */

struct order {
    struct mail mail;
    struct peerage *peerage;
};

static void drain(struct mail *mail, struct loop *loop)
{
    struct order *o = CONTAINER_OF(mail, struct order, mail);

    if (loop && node_swim(o->peerage->node)) {
        swim_set_flags(node_swim(o->peerage->node), clock_now_ms(), SWIM_DRAINING, SWIM_DRAINING,
                       &loop->out);
        loop_news(loop);
    }
    mem_free(o);
}

void loop_drain(struct peerage *p)
{
    struct order *o = mem_zalloc(sizeof *o);

    if (!o)
        return;         /* then it leaves without draining */
    o->mail.run = drain;
    o->peerage = p;
    if (!mailbox_post(&p->mailbox, &o->mail))
        mem_free(o);
}

/* On the closing thread's stack, which waits for it by joining the loop thread. */
static void leave(struct mail *mail, struct loop *loop)
{
    (void)mail;
    if (!loop)
        return;
    if (loop->redis)
        redis_leave(loop->redis);
    loop->stopping = true;      /* see loop_prepare */
    loop->stop_by_ms = clock_now_ms() + LINGER_MS;
}

void loop_stop(struct peerage *p)
{
    struct loop *loop = p->loop;
    struct mail mail = {.run = leave};

    if (!loop)
        return;
    if (p->thread_runs) {
        mailbox_post(&p->mailbox, &mail);
        pthread_join(p->thread, NULL);
        p->thread_runs = false;
    }
    /* The loop's things are this thread's now. */
    resolve_stop(loop->resolver);
    loop->resolver = NULL;
    /* What ends may still answer, so this is closed before the connections, and run out. */
    mailbox_close(&p->mailbox);
    pthread_mutex_lock(&p->lock);
    p->loop_wakes_ms = NEVER_MS;
    p->away_ms = NEVER_MS;
    pthread_mutex_unlock(&p->lock);
    pool_set_open(&p->pool, false);
    redis_stop(loop);
    dial_cancel_all(loop);
    call_deinit(loop);
    server_deinit(&loop->server, loop);
    loop_part(loop);
    if (loop->udp.fd >= 0)
        udp_unwatch(&loop->udp, loop);
    ev_async_stop(loop->ev, &loop->async);
    ev_prepare_stop(loop->ev, &loop->prepare);
    ev_timer_stop(loop->ev, &loop->timer);
    p->loop = NULL;
    destroy(loop);
}
