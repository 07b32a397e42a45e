/* Suspicions: who is accused, by which hosts, and until when it may answer
 * (Lifeguard section IV.B). The deadline falls from max to min as confirmations
 * come in:
 *
 *     timeout = max(min, max - (max - min) * log(C + 1) / log(K + 1))
 *
 * Confirmations count by *host*, not by member: sixteen workers behind one bad
 * cable are one witness. K is what can still be had: at most
 * `confirmations_max`, counting the hosts that have confirmed and those that
 * could, which have a member that is alive, not suspect itself and not the
 * accused. With K = 0, or N <= 3, the deadline is min (M3).
 *
 * That suspects are no witnesses matters when a whole server goes: its workers
 * would wait for each other's word (one of two servers with 16 workers each was
 * known to be gone after 20 s at the median; now after 7). So K is counted afresh
 * when others come under suspicion or out of it.
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
    uint8_t k, count;           /* confirmations to be had; hosts that accuse */
    struct host hosts[ACCUSERS_MAX];
    uint64_t since_ms, deadline_ms;
    uint32_t min_ms, max_ms;
};

struct suspicions {
    struct suspicion *at;
    uint32_t count, capacity;
    uint64_t due_ms;                /* nothing is to be done before */
    bool stale;                     /* witnesses have changed */
};

void suspicions_init(struct suspicions *);
void suspicions_deinit(struct suspicions *);

/* Accuse a member that is SUSPECT already (its since_s becomes the suspicion's
 * place). ERR_NOMEM: call suspicions_room() first, so that it can't. */
int suspicions_room(struct suspicions *);
void suspicions_start(struct suspicions *, struct members *, const struct swim_params *,
                      uint32_t member, const struct host *first, uint64_t now_ms);

/* Another host accuses too. True if that is news. */
bool suspicions_confirm(struct suspicions *, struct members *, const struct swim_params *,
                        uint32_t member, const struct host *);

void suspicions_end(struct suspicions *, struct members *, uint32_t member);

/* One whose time is up, MEMBER_NONE if there is none. */
uint32_t suspicions_overdue(struct suspicions *, const struct members *,
                            const struct swim_params *, uint64_t now_ms);
void suspicions_shift(struct suspicions *, uint64_t by_ms);     /* M5 */

#endif
