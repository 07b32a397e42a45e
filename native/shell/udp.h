/* The gossip socket: datagrams opened, sealed, counted. On the loop thread. */
#ifndef PEERAGE_SHELL_UDP_H
#define PEERAGE_SHELL_UDP_H

#include <ev.h>

#include "core/addr.h"
#include "core/datagrams.h"

struct loop;

#define UDP_DATAGRAMS_A_TURN 64     /* M5 */

/* Refusals of one kind: when they were last logged, how many since. */
struct refusals {
    uint64_t said_ms, unsaid;
};

struct udp {
    int fd, family;
    ev_io io;
    bool more;                  /* the last turn left datagrams behind */
    struct datagrams datagrams;
    struct refusals refused[VERDICT_COUNT], outside;
};

/* Takes fd when it returns 0; ERR_NOMEM, ERR_SYSTEM. The socket is watched from
 * udp_watch on. */
int udp_init(struct udp *, int fd, int family, const struct seal *, uint64_t self_id);
void udp_deinit(struct udp *);
void udp_watch(struct udp *, struct loop *);
void udp_unwatch(struct udp *, struct loop *);
/* Go on with another socket. */
void udp_replace(struct udp *, struct loop *, int fd);

/* Seal and send; what can't be sent is lost, as datagrams are. */
void udp_send(struct loop *, const struct addr *, uint64_t receiver_id, struct span payload);

/* Count a refusal, and log it: each reason at most every 10 s. `what` reads like "a
 * datagram from". */
void udp_refused(struct loop *, const struct addr *, enum verdict, const char *what);
/* The same for an address outside the allowed blocks. */
void udp_outside(struct loop *, const struct addr *, const char *what);

#endif
