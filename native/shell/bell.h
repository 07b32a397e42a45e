/* A descriptor that wakes whoever polls it: an eventfd, elsewhere a pipe. */
#ifndef PEERAGE_SHELL_BELL_H
#define PEERAGE_SHELL_BELL_H

#include <stdbool.h>

struct bell {
    int fd;             /* to poll for reading */
    int ring_fd;        /* the same, for an eventfd */
};

bool bell_init(struct bell *);      /* false: no descriptor left */
void bell_deinit(struct bell *);
void bell_ring(const struct bell *);    /* any thread, never blocks */
void bell_quiet(const struct bell *);   /* take back what was rung */

#endif
