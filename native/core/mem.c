/* The heap behind mem.h. The counter is relaxed-atomic: it orders nothing. */
#include "mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static atomic_long made;
static atomic_long fail_at = -1;

static bool may_pass(void)
{
    long n = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
    return n != atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *mem_alloc(size_t bytes)
{
    return may_pass() ? malloc(bytes ? bytes : 1) : NULL;
}

void *mem_zalloc(size_t bytes)
{
    return may_pass() ? calloc(1, bytes ? bytes : 1) : NULL;
}

void *mem_resize(void *old, size_t bytes)
{
    return may_pass() ? realloc(old, bytes ? bytes : 1) : NULL;
}

void mem_free(void *at)
{
    free(at);
}

void mem_wipe(void *at, size_t bytes)
{
    /* A call through a volatile pointer can't be proven dead. */
    static void *(*const volatile wipe)(void *, int, size_t) = memset;
    if (bytes)
        wipe(at, 0, bytes);
}

long mem_fail_after(long n)
{
    long before = atomic_exchange(&made, 0);
    atomic_store(&fail_at, n < 0 ? -1 : n);
    return before;
}
