/* What the tests of the store share: entries that are quickly made, and each look at the
 * store's byte count checked against a walk.
 */
#ifndef PEERAGE_TESTS_SHELF_H
#define PEERAGE_TESTS_SHELF_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/err.h"
#include "core/limits.h"
#include "core/mem.h"
#include "core/prng.h"
#include "core/store.h"

#define ROOMY (64u << 20)
/* What an entry of a small key and value costs at most, its share of the tables included. */
#define SMALL_ENTRY_BYTES 256u

extern const uint8_t shelf_hash_key[16];

struct span shelf_key(unsigned i);          /* "pages=key:<i>"; good until the fourth after it */
struct store_item shelf_item(struct span key, struct span bytes);   /* for ever, in channel 1 */
void shelf_let_go(struct store_dropped *);
/* Put as the shell does: again, with an empty list, while there is progress to be made. */
int shelf_put(struct store *, const struct store_item *, uint64_t now_ms);
int shelf_put_text(struct store *, struct span key, const char *text);
bool shelf_has(struct store *, struct span key);
uint64_t shelf_bytes(struct store *);       /* the count, checked */
uint64_t shelf_entries(struct store *);
void shelf_assert_text(struct store *, struct span key, const char *text);

#endif
