/* A blocked thread asks, and drives its asking itself: it writes to and reads from a
 * connection of its own, and waits in poll() on that and on its port's bell (rules O9, O13,
 * P3). Only dialling goes by the loop thread. */
#ifndef PEERAGE_SHELL_ASK_H
#define PEERAGE_SHELL_ASK_H

#include "peerage.h"

void ask_drive(peerage *, const struct peerage_ask *, struct peerage_answer *,
               int (*interrupted)(void *), void *argument);

/* A set or delete, waited for in the same way. */
int ask_change(peerage *, const struct peerage_ask *name, const struct peerage_item *item,
               int by_channel, struct peerage_report *report);

/* A tally's sum in Redis, likewise: 1 counted, 0 refused, or an error. */
struct tally_name;
int ask_tally(peerage *, const struct tally_name *, uint64_t amount, uint64_t limit,
              uint64_t *total, int (*interrupted)(void *), void *argument);

#endif
