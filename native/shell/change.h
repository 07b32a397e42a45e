/* Public items, loads and reports as core's, and back. */
#ifndef PEERAGE_SHELL_CHANGE_H
#define PEERAGE_SHELL_CHANGE_H

#include "core/node.h"
#include "peerage.h"

/* One public item as core's; its owner is taken in any case. The key stays borrowed; the
 * blob is the caller's. ERR_TOO_BIG, ERR_NOMEM. */
int change_loaded(struct peerage *, const struct peerage_item *, struct loaded *out);
/* The value of a set (NULL: a delete, *out is empty). */
int change_item(struct peerage *, const struct peerage_item *, const struct message *name,
                struct loaded *out);
/* Takes the answer of a finished change; *report may be NULL. 0 or an error. */
int change_report(struct answer *, struct peerage_report *report);
/* Under the lock: a taken flight as the load to run. False: out of memory. */
bool change_load(struct peerage *, const struct flight *, struct peerage_load *out);
/* Let a foreign owner go. */
void change_release(void *owner);

#endif
