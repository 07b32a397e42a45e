/* Condition variables with our deadlines (see wait.h). They run on the monotonic clock; the
 * remaining time is computed anew at each call, so a machine's sleep only makes one late. */
#include "shell/wait.h"

#include <time.h>

#include "shell/clock.h"

void wait_init(pthread_cond_t *c)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
#ifndef __APPLE__
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(c, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ms)
{
    uint64_t now_ms = clock_now_ms();
    struct timespec at;

    if (now_ms >= until_ms)
        return false;
    uint64_t left_ms = until_ms - now_ms < 3600000 ? until_ms - now_ms : 3600000;
#ifdef __APPLE__
    at = (struct timespec){(time_t)(left_ms / 1000), (long)(left_ms % 1000) * 1000000};
    pthread_cond_timedwait_relative_np(c, lock, &at);
#else
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(left_ms / 1000);
    at.tv_nsec += (long)(left_ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(c, lock, &at);
#endif
    return true;
}
