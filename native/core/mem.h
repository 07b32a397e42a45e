/* The core's only door to the heap, so that tests can fail the Nth allocation
 * and count what is in use. Thread-safe where malloc is.
 */
#ifndef PEERAGE_MEM_H
#define PEERAGE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t bytes);              /* NULL when out of memory */
void *mem_zalloc(size_t bytes);             /* zeroed */
void *mem_resize(void *, size_t bytes);     /* like realloc: on NULL the old block stays */
void mem_free(void *);                      /* NULL is fine */
void mem_wipe(void *, size_t bytes);        /* zero it in a way no compiler removes */

/* Tests only: let the next `n` allocations pass, fail the one after, and only that.
 * Negative: never fail (the default). Returns how many were made since the last call. */
long mem_fail_after(long n);

#endif
