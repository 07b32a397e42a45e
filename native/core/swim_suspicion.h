/* Suspicions: who is accused, by which hosts, and until when it may answer
 * (Lifeguard section IV.B). The deadline falls from max to min as confirmations
 * come in:
 *
 *     timeout = max(min, max - (max - min) * log(C + 1) / log(K + 1))
 *
 * Confirmations count by *host*, not by member: sixteen workers behind one bad
 * cable are one witness. K is what can be had: at most `confirmations_max`, and
 * at most the hosts of live members that are neither the accused itself nor on
 * the first accuser's host; with K = 0, or N <= 3, the deadline is min (M3).
 */
#ifndef PEERAGE_SWIM_SUSPICION_H
#define PEERAGE_SWIM_SUSPICION_H

#include "swim_members.h"

#define ACCUSERS_MAX 4u         /* the first, and three confirmations */

struct host {
    uint8_t ip[16];
};

struct suspicion {
    uint32_t member;
    uint8_t k, count;           /* confirmations wanted; hosts that accuse */
    struct host hosts[ACCUSERS_MAX];
    uint64_t since_ms, deadline_ms;
    uint32_t min_ms, max_ms;
};

struct suspicions {
    struct suspicion *at;
    uint32_t count, capacity;
    uint64_t due_ms;                /* no deadline is earlier */
};

void suspicions_init(struct suspicions *);
void suspicions_deinit(struct suspicions *);

/* Accuse a member that is SUSPECT already (its since_s becomes the suspicion's
 * place). ERR_NOMEM: call suspicions_room() first, so that it can't. */
int suspicions_room(struct suspicions *);
void suspicions_start(struct suspicions *, struct members *, const struct swim_params *,
                      uint32_t member, const struct host *first, uint64_t now_ms);

/* Another host accuses too. True if that is news. */
bool suspicions_confirm(struct suspicions *, struct members *, uint32_t member,
                        const struct host *);

void suspicions_end(struct suspicions *, struct members *, uint32_t member);

/* One whose time is up, MEMBER_NONE if there is none: then due_ms is exact. */
uint32_t suspicions_overdue(struct suspicions *, uint64_t now_ms);
void suspicions_shift(struct suspicions *, uint64_t by_ms);     /* M5 */

#endif
