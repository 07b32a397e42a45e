/* The dissemination queue: which records are still news, least sent first
 * (SWIM section 4.1; Lifeguard and memberlist do the same). A record is queued
 * once; newer news about the same member takes its place and starts at zero.
 * Links lie in the records, so queueing never allocates and never fails.
 */
#ifndef PEERAGE_SWIM_GOSSIP_H
#define PEERAGE_SWIM_GOSSIP_H

#include "swim_members.h"

#define GOSSIP_SENDS_MAX 48u

struct gossip {
    uint32_t heads[GOSSIP_SENDS_MAX], tails[GOSSIP_SENDS_MAX];      /* by times sent */
    uint32_t count;
};

void gossip_init(struct gossip *);

/* This record is news: send it, before all others of no send. */
void gossip_queue(struct gossip *, struct members *, uint32_t i);
void gossip_drop(struct gossip *, struct members *, uint32_t i);

/* The least sent record, then the one after `i`; MEMBER_NONE at the end. */
uint32_t gossip_first(const struct gossip *);
uint32_t gossip_after(const struct gossip *, const struct members *, uint32_t i);

/* Is there news sent fewer than `times` times? */
bool gossip_is_fresh(const struct gossip *, uint32_t times);

/* It was really encoded. At `limit` sends it leaves the queue. */
void gossip_sent(struct gossip *, struct members *, uint32_t i, uint32_t limit);

#endif
