/* Names in PEERS -> addresses, again and again: every 30 s, every 2 s while alone.
 * getaddrinfo blocks for as long as it likes, so it has a thread of its own, which nobody
 * waits for: at a close it is told to end, and frees what it holds when it comes by. */
#ifndef PEERAGE_SHELL_RESOLVE_H
#define PEERAGE_SHELL_RESOLVE_H

#include "shell/mailbox.h"
#include "shell/settings.h"

struct peerage;
struct resolver;

/* Seeds' addresses arrive on the loop thread by loop_seed(). NULL: could not be started. */
struct resolver *resolve_start(struct peerage *);
void resolve_stop(struct resolver *);               /* NULL is fine */
void resolve_alone(struct resolver *, bool alone);  /* any thread; NULL is fine */

/* The addresses of one seed: its own, or on all ports of the range. Returns how many. */
size_t resolve_spread(const struct settings *, const struct addr *host, uint16_t port,
                      struct addr *out, size_t room);

#endif
