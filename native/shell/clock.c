/* Reading the system's clocks (see clock.h). Elsewhere than on Linux the monotonic clock
 * stands for BOOTTIME, and the coarse one is the same.
 */
#include "shell/clock.h"

#include <stdatomic.h>
#include <time.h>

#ifdef __linux__
#define EXACT CLOCK_BOOTTIME
#define COARSE CLOCK_MONOTONIC_COARSE
#else
#define EXACT CLOCK_MONOTONIC
#define COARSE CLOCK_MONOTONIC
#endif

/* A process that only ever has hits (no loop thread, no misses) looks at the offset this
 * often by itself. */
#define HITS_PER_REFRESH 256u

static atomic_uint_fast64_t ahead_ms;   /* EXACT - COARSE, an age rounded up at worst */

static uint64_t read_ms(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t clock_now_ms(void)
{
    static _Thread_local unsigned calls;
    uint64_t now = read_ms(EXACT);

    if (calls++ % 16 == 0)
        atomic_store_explicit(&ahead_ms, now - read_ms(COARSE), memory_order_relaxed);
    return now;
}

uint64_t clock_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
    return read_ms(CLOCK_REALTIME);
}

uint64_t clock_coarse_ms(void)
{
    static _Thread_local unsigned hits;

    if (hits++ % HITS_PER_REFRESH == 0)
        return clock_now_ms();
    return read_ms(COARSE) + atomic_load_explicit(&ahead_ms, memory_order_relaxed);
}
