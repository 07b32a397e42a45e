/* The server side: accepted connections, their frames to core, core's answers to them.
 * On the loop thread.
 *
 * An address outside the allowed blocks is refused before a byte is read; a peer of this host
 * comes by the Unix socket, and has the host's own address then. A connection
 * gets our challenge, and has to send a HELLO that verifies within UNPROVEN_MS_MAX; of
 * those that have not there are at most so many, in all and per address, and the oldest
 * makes room for the newest. Who does not read what it asked for, or stops in the middle of
 * a frame, is cut, and so is who only pretends to go on.
 */
#ifndef PEERAGE_SHELL_SERVER_H
#define PEERAGE_SHELL_SERVER_H

#include <ev.h>

#include "core/message.h"

struct loop;

#define SERVER_BUCKETS 256u

struct listener {
    int fd;                     /* -1: none */
    ev_io io;
};

struct server {
    struct listener tcp, near;  /* near: a Unix socket, for peers of this host */
    ev_timer rest;              /* out of descriptors: stop accepting for a moment */
    struct list by_id[SERVER_BUCKETS];
    struct list all;            /* struct inbound by of_all */
    struct list unproven;       /* the oldest first */
    struct list dirty;          /* to flush, or to close, before the loop waits */
    size_t count, unproven_count;
    uint64_t next_id;
    uint64_t now_ms, wall_ms;   /* while frames are taken: the clocks, read once for all that
                                   one read brought. 0: not now */
};

void server_init(struct server *, int tcp, int near);   /* takes both; -1: none */
void server_close_listeners(struct server *, const struct addr *self);
void server_deinit(struct server *, struct loop *);     /* closes everything */
void server_watch(struct server *, struct loop *);
void server_replace(struct server *, struct loop *, int tcp, int near);

/* Queue an answer; unknown connections have gone. Borrows. */
void server_answer(struct loop *, uint64_t conn_id, struct message *, struct blob *value);
/* Write what waits, close what is to be closed. */
void server_flush(struct loop *);
/* Is there an answer that its socket has not taken yet? */
bool server_is_writing(const struct loop *);
/* Cut who is too slow; once a second. */
void server_sweep(struct loop *, uint64_t now_ms);

#endif
