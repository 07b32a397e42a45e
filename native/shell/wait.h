/* Waiting on a condition variable until a moment of our clock. Only for threads that no
 * signal has to reach (the attendant, loader threads, a start and a close): all others
 * wait in poll() (rule P3). */
#ifndef PEERAGE_SHELL_WAIT_H
#define PEERAGE_SHELL_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

void wait_init(pthread_cond_t *);

/* Like pthread_cond_wait; false when until_ms (clock_now_ms) has passed. */
bool wait_until(pthread_cond_t *, pthread_mutex_t *, uint64_t until_ms);

#endif
