/* Suspicions: see the header. A flat array: in calm it is empty, and in a storm
 * it is walked once a tick.
 */
#include "swim_suspicion.h"

#include "err.h"
#include "mem.h"

#include <math.h>

#define RECKON_EVERY_MS 100u        /* in a storm of suspicions, not for each of them */

void suspicions_init(struct suspicions *s)
{
    *s = (struct suspicions){.due_ms = NEVER_MS};
}

void suspicions_deinit(struct suspicions *s)
{
    mem_free(s->at);
    suspicions_init(s);
}

int suspicions_room(struct suspicions *s)
{
    if (s->count < s->capacity)
        return 0;
    uint32_t want = s->capacity ? s->capacity * 2 : 4;
    struct suspicion *at = mem_resize(s->at, want * sizeof *at);
    if (at == NULL)
        return ERR_NOMEM;
    s->at = at;
    s->capacity = want;
    return 0;
}

static bool same_host(const struct host *h, const struct addr *a)
{
    return memcmp(h->ip, a->ip, sizeof h->ip) == 0;
}

/* How many hosts more could confirm it, at most `most`. */
static uint8_t witnesses(const struct members *t, const struct suspicion *it, uint8_t most)
{
    struct host seen[2 * ACCUSERS_MAX];
    uint8_t known = it->count, count = 0;
    memcpy(seen, it->hosts, it->count * sizeof seen[0]);
    for (uint32_t i = members_from(t, 0); i != MEMBER_NONE && count < most;
         i = members_from(t, i + 1)) {
        const struct member *m = members_at(t, i);
        if (i == it->member || m->state != SWIM_ALIVE || (m->flags & SWIM_OBSERVER))
            continue;
        bool again = false;
        for (uint8_t k = 0; k < known && !again; k++)
            again = same_host(&seen[k], &m->addr);
        if (again)
            continue;
        memcpy(seen[known++].ip, m->addr.ip, 16);
        count++;
    }
    return count;
}

static uint8_t most_confirmations(const struct swim_params *p)
{
    return (uint8_t)min_u64(p->confirmations_max, ACCUSERS_MAX - 1);
}

static void reckon(struct suspicions *s, const struct members *t, const struct swim_params *p,
                   struct suspicion *it)
{
    uint8_t had = (uint8_t)(it->count - 1), most = most_confirmations(p);
    it->k = t->live <= 3 ? 0 : had;
    if (t->live > 3 && had < most)
        it->k = (uint8_t)(it->k + witnesses(t, it, (uint8_t)(most - had)));
    double timeout = it->min_ms;
    if (it->k > had) {
        double span = (double)(it->max_ms - it->min_ms);
        timeout = it->max_ms - span * log((double)it->count) / log(it->k + 1.0);
    }
    it->deadline_ms = it->since_ms + max_u64(it->min_ms, (uint64_t)(timeout + 0.5));
    s->due_ms = min_u64(s->due_ms, it->deadline_ms);
}

/* The others' witnesses may have changed: look at them all, soon. */
static void disturb(struct suspicions *s, uint64_t now_ms)
{
    s->stale = true;
    s->due_ms = min_u64(s->due_ms, now_ms + RECKON_EVERY_MS);
}

void suspicions_start(struct suspicions *s, struct members *t, const struct swim_params *p,
                      uint32_t member, const struct host *first, uint64_t now_ms)
{
    assert(s->count < s->capacity && members_at(t, member)->state == SWIM_SUSPECT);
    struct suspicion *it = &s->at[s->count];
    double scale = t->live > 1 ? log10((double)t->live) / 2 : 1;
    double min = (double)p->suspicion_periods * p->period_ms * (scale > 1 ? scale : 1);
    memset(it, 0, sizeof *it);
    it->member = member;
    it->since_ms = now_ms;
    it->min_ms = (uint32_t)min;
    it->max_ms = it->min_ms * p->suspicion_max_factor;
    it->hosts[it->count++] = *first;
    reckon(s, t, p, it);
    members_at(t, member)->since_s = s->count++;
    if (s->count > 1)
        disturb(s, now_ms);
}

static struct suspicion *of(struct suspicions *s, struct members *t, uint32_t member)
{
    struct suspicion *it = &s->at[members_at(t, member)->since_s];
    assert(it->member == member);
    return it;
}

bool suspicions_confirm(struct suspicions *s, struct members *t, const struct swim_params *p,
                        uint32_t member, const struct host *h)
{
    struct suspicion *it = of(s, t, member);
    if (it->count > most_confirmations(p))
        return false;
    for (uint8_t k = 0; k < it->count; k++) {
        if (memcmp(it->hosts[k].ip, h->ip, 16) == 0)
            return false;
    }
    it->hosts[it->count++] = *h;
    reckon(s, t, p, it);
    return true;
}

void suspicions_end(struct suspicions *s, struct members *t, uint32_t member)
{
    struct suspicion *it = of(s, t, member);
    *it = s->at[--s->count];
    s->stale = s->count > 0;        /* fewer suspects: time only grows, so no hurry */
    if (it != &s->at[s->count])
        members_at(t, it->member)->since_s = (uint32_t)(it - s->at);
}

uint32_t suspicions_overdue(struct suspicions *s, const struct members *t,
                            const struct swim_params *p, uint64_t now_ms)
{
    if (now_ms < s->due_ms)
        return MEMBER_NONE;
    s->due_ms = NEVER_MS;
    for (uint32_t k = 0; k < s->count; k++) {
        if (s->stale)
            reckon(s, t, p, &s->at[k]);
        s->due_ms = min_u64(s->due_ms, s->at[k].deadline_ms);
    }
    s->stale = false;
    for (uint32_t k = 0; k < s->count; k++) {
        if (now_ms >= s->at[k].deadline_ms)
            return s->at[k].member;
    }
    return MEMBER_NONE;
}

void suspicions_shift(struct suspicions *s, uint64_t by_ms)
{
    for (uint32_t k = 0; k < s->count; k++) {
        s->at[k].since_ms += by_ms;
        s->at[k].deadline_ms += by_ms;
    }
    if (s->due_ms != NEVER_MS)
        s->due_ms += by_ms;
}
