/* Datagrams in and out (see udp.h). */
#include "shell/udp.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/err.h"
#include "shell/clock.h"
#include "shell/fork.h"
#include "shell/loop.h"
#include "shell/shell.h"
#include "shell/sockets.h"

#define SAID_EVERY_MS 10000u

static void readable(struct ev_loop *, ev_io *, int events);

int udp_init(struct udp *u, int fd, int family, const struct seal *seal, uint64_t self_id)
{
    uint8_t random[FRAME_RANDOM_BYTES], hash_key[16];

    memset(u, 0, sizeof *u);
    if (getentropy(random, sizeof random) < 0 || getentropy(hash_key, sizeof hash_key) < 0)
        return ERR_SYSTEM;
    if (datagrams_init(&u->datagrams, seal, self_id, random, hash_key) < 0)
        return ERR_NOMEM;
    u->fd = fd;
    u->family = family;
    ev_init(&u->io, readable);
    return 0;
}

void udp_deinit(struct udp *u)
{
    datagrams_deinit(&u->datagrams);
    fork_close(u->fd);
    u->fd = -1;
}

void udp_watch(struct udp *u, struct loop *loop)
{
    ev_io_set(&u->io, u->fd, EV_READ);
    ev_set_priority(&u->io, EV_MAXPRI);     /* datagrams, then TCP, then timers (M5) */
    u->io.data = loop;
    ev_io_start(loop->ev, &u->io);
}

void udp_unwatch(struct udp *u, struct loop *loop)
{
    ev_io_stop(loop->ev, &u->io);
}

void udp_replace(struct udp *u, struct loop *loop, int fd)
{
    udp_unwatch(u, loop);
    fork_close(u->fd);
    u->fd = fd;
    udp_watch(u, loop);
}

static void say(struct loop *loop, struct refusals *r, const struct addr *from, const char *what,
                const char *why)
{
    uint64_t now = clock_now_ms();
    char text[ADDR_TEXT_MAX];

    r->unsaid++;
    if (r->said_ms && now - r->said_ms < SAID_EVERY_MS)
        return;
    notice_log(&loop->peerage->notices, LOG_WARNING, "Refused %s %s: %s (%llu of this kind lately)",
               what, addr_format(from, text), why, (unsigned long long)r->unsaid);
    r->said_ms = now;
    r->unsaid = 0;
}

void udp_refused(struct loop *loop, const struct addr *from, enum verdict v, const char *what)
{
    count(&loop->peerage->counters.verdicts[v]);
    say(loop, &loop->udp.refused[v], from, what, verdict_text(v));
}

void udp_outside(struct loop *loop, const struct addr *from, const char *what)
{
    count(&loop->peerage->counters.refused_cidr);
    say(loop, &loop->udp.outside, from, what, "outside PEER_ALLOW_CIDR");
}

static void take_one(struct loop *loop, uint8_t *in, size_t bytes, const struct addr *from,
                     uint64_t now_ms, uint64_t wall_ms)
{
    struct peerage *p = loop->peerage;
    struct frame frame;
    struct span payload;

    if (!settings_allow(&p->settings, p->own_hosts, p->own_hosts_count, from)) {
        udp_outside(loop, from, "a datagram from");
        return;
    }
    enum verdict v = datagrams_open(&loop->udp.datagrams, in, bytes, wall_ms, &frame, &payload);
    if (v != VERDICT_OK) {
        count(&p->counters.datagrams_refused);
        udp_refused(loop, from, v, "a datagram from");
        return;
    }
    count(&p->counters.datagrams_in);
    struct swim *swim = node_swim(p->node);
    if (!swim)
        return;
    struct swim_from sender = {
        .source = *from,
        .node_id = frame.sender_id,
        .open_receiver = frame.receiver_id == 0,
    };
    if (swim_receive(swim, now_ms, wall_ms, &sender, payload, &loop->out) != SWIM_OK)
        count(&p->counters.gossip_refused);
}

static void readable(struct ev_loop *ev, ev_io *io, int events)
{
    struct loop *loop = io->data;
    uint64_t now_ms = clock_now_ms(), wall_ms = clock_wall_ms();
    int taken = 0;

    (void)ev;
    (void)events;
    for (; taken < UDP_DATAGRAMS_A_TURN; taken++) {
        uint8_t in[PACKET_BYTES_MAX + 1];   /* one more: a longer one is seen to be */
        struct sockaddr_storage at;
        socklen_t at_bytes = sizeof at;
        struct addr from;
        ssize_t n = recvfrom(loop->udp.fd, in, sizeof in, 0, (struct sockaddr *)&at, &at_bytes);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        /* Others tell of an earlier send: an ICMP error is no reason to stop reading. */
        if (n >= 0 && sockets_to_addr(&at, &from))
            take_one(loop, in, (size_t)n, &from, now_ms, wall_ms);
    }
    loop->udp.more = taken == UDP_DATAGRAMS_A_TURN;
    loop_news(loop);
}

void udp_send(struct loop *loop, const struct addr *to, uint64_t receiver_id, struct span payload)
{
    struct udp *u = &loop->udp;
    uint8_t out[PACKET_BYTES_MAX];
    struct sockaddr_storage at;
    int bytes = datagrams_seal(&u->datagrams, receiver_id, payload, 0, clock_wall_ms(), out);
    socklen_t at_bytes = sockets_from_addr(to, u->family, &at);

    if (bytes <= 0 || !at_bytes)
        return;
    if (sendto(u->fd, out, (size_t)bytes, MSG_NOSIGNAL, (struct sockaddr *)&at, at_bytes) >= 0)
        count(&loop->peerage->counters.datagrams_out);
}
