/* Tallies in Redis: what core's EFFECT_TIER_TALLY becomes.
 *
 *   <prefix>:tally:<label>:<window ms>:<window>:<bytes of the name>:<name><key>     the sum
 *
 * Fixed windows, one round trip: a script looks, compares and adds in one step, so that a limit
 * is exact for the whole fleet. A window's sum is kept until no clock of the fleet can be in
 * it any more. The numbers are exact up to 2^53, as Lua's are.
 */
#include <stdio.h>

#include "core/limits.h"
#include "core/mem.h"
#include "core/node_tally.h"
#include "shell/clock.h"
#include "shell/loop.h"
#include "shell/redis_state.h"
#include "shell/shell.h"
#include "shell/turn.h"

#define BEHIND_MAX 4096u            /* adds under way that nobody waits for */

/* KEYS sum; ARGV amount, ms, limit (empty: none). {added, sum} */
static const char tally_script[] =
    "local n, a = tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(ARGV[1]) "
    "if ARGV[3] ~= '' and n + a > tonumber(ARGV[3]) then return {0, n} end "
    "if a == 0 then return {1, n} end "
    "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) "
    "if n == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end "
    "return {1, sum}";

struct telling {
    uint64_t call_id;               /* 0: nobody waits */
};

static void said(struct redis *r, void *token, const struct redis_answer *a)
{
    struct telling *telling = token;
    struct peerage *p = r->peerage;
    uint64_t call_id = telling->call_id;
    bool heard = a && redis_kind(a) == REDIS_LIST && redis_count(a) == 2;
    struct turn t;

    mem_free(telling);
    if (a && redis_kind(a) == REDIS_ERROR)
        redis_error(r, a);
    count(heard ? &p->redis.tallies : &p->redis.tallies_lost);
    if (call_id == 0) {
        r->tallies_behind--;
        return;
    }
    turn_begin_loop(p, r->loop, &t);
    node_tally_said(p->node, call_id, heard,
                    heard ? (uint64_t)redis_number(redis_item(a, 1)) : 0,
                    heard && redis_number(redis_item(a, 0)) == 1, clock_wall_ms(), &t.effects);
    turn_end(p, &t);
}

/* False: too long, which the bounds of label, prefix, name and key together do not allow. */
static bool name_of(const struct redis *r, const struct effect *e, char out[NAME_BYTES_MAX],
                    struct span *name)
{
    const struct message *m = &e->message;
    int n = snprintf(out, NAME_BYTES_MAX, "%s:tally:%s:%lu:%llu:%zu:", r->prefix,
                     r->peerage->settings.label, (unsigned long)m->ttl_ms,
                     (unsigned long long)e->load_id, m->loader.bytes);

    if (n < 0 || (size_t)n + m->loader.bytes + m->key.bytes > NAME_BYTES_MAX)
        return false;
    if (m->loader.bytes)
        memcpy(out + n, m->loader.at, m->loader.bytes);
    if (m->key.bytes)
        memcpy(out + n + m->loader.bytes, m->key.at, m->key.bytes);
    *name = span_of(out, (size_t)n + m->loader.bytes + m->key.bytes);
    return true;
}

/* Until the window has ended by every clock that is let in. */
static uint64_t kept_ms(const struct effect *e, uint64_t wall_ms)
{
    uint64_t end_ms = (e->load_id + 1) * e->message.ttl_ms;
    return (end_ms > wall_ms ? end_ms - wall_ms : 0) + 2 * CLOCK_SKEW_MS_MAX;
}

/* What can't be sent is decided by core: at once where nobody waits, else by its deadline. */
void redis_tally(struct redis *r, const struct effect *e)
{
    char name[NAME_BYTES_MAX], digits[3][24];
    struct span sum_name;
    struct telling *telling = NULL;
    bool behind = e->call_id == 0;

    if (redis_is_up(r) && (!behind || r->tallies_behind < BEHIND_MAX) &&
        name_of(r, e, name, &sum_name) && (telling = mem_alloc(sizeof *telling))) {
        struct span words[] = {
            span_text("EVAL"), span_text(tally_script), span_text("1"), sum_name,
            redis_digits(e->marks[0], digits[0]),
            redis_digits(kept_ms(e, clock_wall_ms()), digits[1]),
            e->marks[1] == UINT64_MAX ? SPAN_NONE : redis_digits(e->marks[1], digits[2]),
        };
        telling->call_id = e->call_id;
        if (redis_send(r, ARRAY_COUNT(words), words, said, telling)) {
            r->tallies_behind += behind;
            return;
        }
        mem_free(telling);
    }
    count(&r->peerage->redis.tallies_lost);
}
