/* Between loop.c (turning) and loop_life.c (starting, stopping, changing sockets). */
#ifndef PEERAGE_SHELL_LOOP_LIFE_H
#define PEERAGE_SHELL_LOOP_LIFE_H

#include "shell/loop.h"

/* loop.c */
void loop_letters(struct ev_loop *, ev_async *, int events);
void loop_due(struct ev_loop *, ev_timer *, int events);
void loop_prepare(struct ev_loop *, ev_prepare *, int events);
void loop_part(struct loop *);          /* membership ends, the node works alone */

/* loop_life.c */
void loop_say_alone(struct loop *);
void loop_try_range(struct loop *, uint64_t now_ms);    /* an observer looks for a port (M7) */
void loop_close_sockets(struct loop *); /* gossip and server: another node has the address */

#endif
