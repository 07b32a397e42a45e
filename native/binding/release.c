/* Foreign owners: Python objects whose bytes the store and the network serve from where
 * they lie. Native threads let go of them at any moment and must not need the GIL, so the
 * release callback only pushes on a stack (Treiber, "Systems Programming: Coping with
 * Parallelism", 1986; all is popped at once, so there is no ABA). Whoever holds the GIL next
 * and comes by drops the references.
 *
 * Lock-free not for speed but because of fork(): a child must find no lock held.
 */
#include "binding.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define RING_BYTES (1u << 20)   /* the attendant is rung when this much waits */

struct released {
    struct released *next;
    PyObject *owner;
};

static _Atomic(struct released *) stack;
static atomic_size_t waiting_bytes;
static _Atomic(peerage *) ring_node;
static atomic_uint ringing;     /* threads between reading ring_node and having rung it */

bool release_waiting(void)
{
    return atomic_load_explicit(&stack, memory_order_relaxed) != NULL;
}

static void ring(void)
{
    atomic_fetch_add(&ringing, 1);
    peerage *p = atomic_load(&ring_node);
    if (p)
        peerage_ring_release(p);
    atomic_fetch_sub(&ringing, 1);
}

/* Any thread, without the GIL. */
static void release(void *owner)
{
    struct released *r = malloc(sizeof *r);
    if (!r)
        return;         /* the object stays for ever: the least harm that is left */
    /* Before the push: after it another thread may have dropped the object already. */
    size_t bytes = (size_t)PyBytes_GET_SIZE((PyObject *)owner);
    size_t before = atomic_fetch_add(&waiting_bytes, bytes);
    r->owner = owner;
    r->next = atomic_load_explicit(&stack, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&stack, &r->next, r, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    if (before < RING_BYTES && before + bytes >= RING_BYTES)
        ring();
}

void release_drain(void)
{
    struct released *r = atomic_exchange_explicit(&stack, NULL, memory_order_acquire);
    while (r) {
        struct released *next = r->next;
        atomic_fetch_sub(&waiting_bytes, (size_t)PyBytes_GET_SIZE(r->owner));
        Py_DECREF(r->owner);
        free(r);
        r = next;
    }
}

void release_ring_set(peerage *p)
{
    atomic_store(&ring_node, p);
}

void release_ring_unset(peerage *p)
{
    peerage *mine = p;
    if (!atomic_compare_exchange_strong(&ring_node, &mine, NULL))
        return;
    while (atomic_load(&ringing))
        sched_yield();
}

/* In a fork's child the thread that was ringing is gone, and so is the node. */
static void in_child(void)
{
    atomic_store(&ringing, 0);
    atomic_store(&ring_node, NULL);
}

int release_start(void)
{
    static bool started;
    if (started)
        return 0;
    if (pthread_atfork(NULL, NULL, in_child) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    peerage_set_release(release);
    started = true;
    return 0;
}
