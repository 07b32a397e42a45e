/* The host of REDIS_URL -> an address. hiredis would resolve it blockingly, and so does
 * getaddrinfo: it has a thread of its own for each look-up, which nobody waits for. */
#ifndef PEERAGE_SHELL_REDIS_NAME_H
#define PEERAGE_SHELL_REDIS_NAME_H

#include "core/addr.h"

struct peerage;
struct redis_lookup;

/* On the loop thread: the address, or NULL and why. */
typedef void redis_named(void *owner, const struct addr *, const char *why);

/* NULL: could not be started. It ends with its call of `named`. */
struct redis_lookup *redis_name_start(struct peerage *, const char *host, uint16_t port,
                                      redis_named *, void *owner);
/* `named` is not called; the thread frees what it holds when it comes by. */
void redis_name_stop(struct redis_lookup *);

#endif
