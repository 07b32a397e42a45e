/* The deletes a node remembers (rule D1): key (or channel) -> the id of the last
 * delete, until no load that began before it can still be on its way. A value is
 * stored only if its sender knew the same id (D2). A full table forgets nothing; it
 * says so, and the node keeps nothing from others until there is room.
 * Under the shell's short lock, like the store.
 */
#ifndef PEERAGE_DELETES_H
#define PEERAGE_DELETES_H

#include "base.h"

struct deletes;

struct deletes *deletes_new(const uint8_t hash_key[16]);    /* NULL: out of memory */
void deletes_free(struct deletes *);

/* Remember `id` (not 0) for the key's hash until until_ms; the greater id, which is the later
 * delete's, stays.
 * False: the table is full, and deletes_full() is true until until_ms: what this delete
 * forbids may come until then, whatever else expires before. */
bool deletes_put(struct deletes *, struct span name, uint64_t id, uint64_t now_ms,
                 uint64_t until_ms);
uint64_t deletes_get(const struct deletes *, struct span name, uint64_t now_ms);   /* 0: none */
uint64_t deletes_until_ms(const struct deletes *, struct span name, uint64_t now_ms);  /* 0: none */
/* It will be looked for in a moment: have its slot come from memory. */
void deletes_prefetch(const struct deletes *, struct span name, uint64_t now_ms);
bool deletes_full(struct deletes *, uint64_t now_ms);
size_t deletes_count(const struct deletes *);

#endif
