/* Whole nodes under chaos: random questions, kills, new starts, silences, stuck Pythons,
 * sets, deletes of keys and of channels, and views that arrive at each node at another time. Then
 * calm. One seed is one run; a failure names the seed: FLEET_SEED=n runs that one alone,
 * FLEET_SEEDS=n so many.
 *
 * Checked: every question of a node that lives ends, in bounded time and with a value;
 * no flight is left over in the calm; nothing older than an acknowledged set or delete is served
 * after it; and the chaos really happened (peeks, permits, losses, busy and silent peers).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/prng.h"
#include "sim/fleet.h"

#define NODES 5u
#define KEYS 4u
#define ASKS_MAX 600u

/* A question may meet two silent ranks (2 x 250 ms), a load that is lost a few times, and an
 * owner that accepted and fell silent (load timeout). */
#define BOUND_MS 12000u

struct asked {
    const struct fleet_ask *ask;
    unsigned node, life, key;
    uint64_t deleted_before;    /* loads of the key begun when its last delete was confirmed */
};

struct run {
    struct fleet *f;
    struct prng prng;
    bool dead[NODES], silent[NODES];
    unsigned life[NODES];
    uint64_t view_due_ms[NODES];        /* when it learns of the last change; 0: it knows */
    uint64_t warm_ms[NODES];            /* when it has warmed */
    struct asked asked[ASKS_MAX];
    unsigned count;
    unsigned fresh_from[KEYS];          /* values up to this number are deleted */
    const struct fleet_change *change[KEYS];
    unsigned change_loads[KEYS];
};

static struct {
    uint64_t peeks, permits, lost, busy, silent, kills, deletes, sets, joined;
} covered;

static const char *const names[KEYS] = {"a", "b", "c", "d"};

static uint32_t living(const struct run *r)
{
    uint32_t members = 0;

    for (unsigned i = 0; i < NODES; i++)
        members |= (uint32_t)!r->dead[i] << i;
    return members;
}

static uint32_t warming(const struct run *r)
{
    uint32_t members = 0;

    for (unsigned i = 0; i < NODES; i++)
        members |= (uint32_t)(r->warm_ms[i] > fleet_now_ms(r->f)) << i;
    return members;
}

/* Members learn of a change within a second, each in its own time (M1's warming takes as
 * long). */
static void spread_the_word(struct run *r)
{
    for (unsigned i = 0; i < NODES; i++)
        r->view_due_ms[i] = fleet_now_ms(r->f) + 1 + prng_below(&r->prng, 1000);
}

static void deliver_views(struct run *r, bool all)
{
    for (unsigned i = 0; i < NODES; i++) {
        if (r->warm_ms[i] && r->warm_ms[i] <= fleet_now_ms(r->f)) {
            r->warm_ms[i] = 0;
            spread_the_word(r);
            r->view_due_ms[i] = fleet_now_ms(r->f);
        }
    }
    for (unsigned i = 0; i < NODES; i++) {
        if (!r->dead[i] && (all || (r->view_due_ms[i] && r->view_due_ms[i] <= fleet_now_ms(r->f)))) {
            fleet_view(r->f, i, living(r), warming(r));
            r->view_due_ms[i] = 0;
        }
    }
}

static void gather_stats(struct run *r, unsigned i)
{
    const struct serve_stats *s = fleet_stats(r->f, i);

    covered.peeks += s->peeks_hit;
    covered.permits += s->permits_granted;
    covered.lost += s->loads_lost;
    covered.busy += s->served_busy;
    covered.silent += s->asks_silent;
    covered.joined += s->loads_joined;
}

static void kill_one(struct run *r, unsigned i)
{
    gather_stats(r, i);
    fleet_kill(r->f, i);
    r->dead[i] = true;
    r->silent[i] = false;
    r->life[i]++;
    r->warm_ms[i] = 0;
    covered.kills++;
    spread_the_word(r);
}

static void start_one(struct run *r, unsigned i)
{
    fleet_start(r->f, i);
    r->dead[i] = false;
    r->warm_ms[i] = fleet_now_ms(r->f) + 1000;
    fleet_view(r->f, i, living(r), warming(r));
    spread_the_word(r);
}

static void ask(struct run *r, unsigned i, unsigned key)
{
    static const unsigned hows[] = {FLEET_LOADS, FLEET_REGISTERED, FLEET_LOADS | FLEET_THREAD,
                                    FLEET_REGISTERED | FLEET_THREAD};

    if (r->count == ASKS_MAX || r->dead[i] || r->silent[i])
        return;
    struct asked *a = &r->asked[r->count++];
    *a = (struct asked){.node = i, .life = r->life[i], .key = key,
                        .deleted_before = r->fresh_from[key]};
    a->ask = fleet_ask(r->f, i, names[key], hows[prng_below(&r->prng, 4)], 2000, 0);
}

/* An acknowledged set or delete: whatever a load that had begun before it brings is too old for a
 * question asked after it. */
static void note_changes(struct run *r)
{
    for (unsigned k = 0; k < KEYS; k++) {
        if (r->change[k] && r->change[k]->done) {
            if (r->change[k]->unreached == 0 && r->change_loads[k] > r->fresh_from[k])
                r->fresh_from[k] = r->change_loads[k];
            r->change[k] = NULL;
        }
    }
}

static void change_one(struct run *r, unsigned i, unsigned key)
{
    char value[32];

    if (r->dead[i] || r->silent[i] || r->change[key])
        return;
    /* Values are numbered as their loads end: those that ended by now are surely older. */
    r->change_loads[key] = fleet_loads_ended(r->f, names[key]);
    snprintf(value, sizeof value, "%s#%u", names[key], r->change_loads[key] + 1);
    switch (prng_below(&r->prng, 3)) {
    case 0:
        r->change[key] = fleet_set(r->f, i, names[key], value, 2000);
        covered.sets++;
        break;
    case 1:
        r->change[key] = fleet_delete(r->f, i, names[key]);
        covered.deletes++;
        break;
    default:
        r->change[key] = fleet_delete_channel(r->f, i, names[key]);
        covered.deletes++;
        break;
    }
}

static void step(struct run *r)
{
    unsigned i = (unsigned)prng_below(&r->prng, NODES);
    unsigned key = (unsigned)prng_below(&r->prng, KEYS);

    switch (prng_below(&r->prng, 40)) {
    case 0:
        if (!r->dead[i] && __builtin_popcount(living(r)) > 3)
            kill_one(r, i);
        break;
    case 1:
        if (r->dead[i])
            start_one(r, i);
        break;
    case 2:
        if (!r->dead[i]) {
            r->silent[i] = !r->silent[i];
            fleet_silence(r->f, i, r->silent[i]);
        }
        break;
    case 3:
        if (!r->dead[i])
            fleet_stick(r->f, i, prng_below(&r->prng, 2));
        break;
    case 4:
        change_one(r, i, key);
        break;
    default:
        ask(r, i, key);
        break;
    }
}

static void fail_run(uint64_t seed, const struct run *r, unsigned n, const char *what)
{
    const struct asked *a = &r->asked[n];

    fail_msg("FLEET_SEED=%llu: question %u (node %u, key %s, asked %llu ms): %s (done %d, outcome "
             "%d, value %s)",
             (unsigned long long)seed, n, a->node, names[a->key],
             (unsigned long long)a->ask->asked_ms, what, a->ask->done, a->ask->outcome,
             a->ask->value);
}

static void check(struct run *r, uint64_t seed)
{
    for (unsigned n = 0; n < r->count; n++) {
        const struct asked *a = &r->asked[n];
        if (a->life != r->life[a->node])
            continue;           /* its process was killed */
        if (!a->ask->done)
            fail_run(seed, r, n, "never answered");
        if (a->ask->outcome != OUTCOME_VALUE)
            fail_run(seed, r, n, "no value");
        if (a->ask->done_ms - a->ask->asked_ms > BOUND_MS)
            fail_run(seed, r, n, "late");
        const char *number = strchr(a->ask->value, '#');
        if (!number || strtoull(number + 1, NULL, 10) <= a->deleted_before)
            fail_run(seed, r, n, "deleted before it was asked for");
    }
    for (unsigned i = 0; i < NODES; i++) {
        if (!r->dead[i] && fleet_flights(r->f, i) != 0)
            fail_msg("FLEET_SEED=%llu: node %u keeps %zu flights", (unsigned long long)seed, i,
                     fleet_flights(r->f, i));
    }
}

static void run_seed(uint64_t seed)
{
    struct fleet_config config = {
        .nodes = NODES, .latency_ms = 1, .load_ms = 40, .timeout_ms = 250,
        .load_timeout_ms = 3000, .heir = seed % 4 != 0, .seed = seed,
    };
    struct run *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->f = fleet_new(&config);
    prng_seed(&r->prng, seed);
    for (unsigned n = 0; n < 800; n++) {
        step(r);
        fleet_run(r->f, (uint32_t)prng_below(&r->prng, 12));
        deliver_views(r, false);
        note_changes(r);
    }
    for (unsigned i = 0; i < NODES; i++) {
        if (r->dead[i])
            start_one(r, i);
        fleet_silence(r->f, i, false);
        r->silent[i] = false;
        fleet_stick(r->f, i, false);
    }
    deliver_views(r, true);
    fleet_run(r->f, BOUND_MS + 5000);
    check(r, seed);
    for (unsigned i = 0; i < NODES; i++)
        gather_stats(r, i);
    fleet_free(r->f);
    free(r);
}

static void test_chaos_then_calm(void **state)
{
    const char *one = getenv("FLEET_SEED"), *many = getenv("FLEET_SEEDS");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t count = one ? 1 : many ? strtoull(many, NULL, 10) : 60;

    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++)
        run_seed(seed);
    print_message("peeks hit %llu, permits %llu, loads lost %llu, joined %llu, busy %llu, silent "
                  "%llu, kills %llu, deletes %llu, sets %llu\n",
                  (unsigned long long)covered.peeks, (unsigned long long)covered.permits,
                  (unsigned long long)covered.lost, (unsigned long long)covered.joined,
                  (unsigned long long)covered.busy, (unsigned long long)covered.silent,
                  (unsigned long long)covered.kills, (unsigned long long)covered.deletes,
                  (unsigned long long)covered.sets);
    if (count >= 10) {
        assert_true(covered.peeks && covered.permits && covered.lost && covered.joined);
        assert_true(covered.busy && covered.silent && covered.kills && covered.deletes &&
                    covered.sets);
    }
}

/* Out of memory at any point of a question: an error or a value, never a crash, never a wait
 * without end, and the next question is answered. */
static void test_out_of_memory_anywhere(void **state)
{
    (void)state;
    for (long n = 0; n < 60; n++) {
        struct fleet_config config = {
            .nodes = 3, .latency_ms = 1, .load_ms = 40, .timeout_ms = 250,
            .load_timeout_ms = 3000, .heir = true, .seed = 1,
        };
        struct fleet *f = fleet_new(&config);
        const struct fleet_ask *asks[3];
        mem_fail_after(n);
        for (unsigned i = 0; i < 3; i++)
            asks[i] = fleet_ask(f, i, "k", i == 0 ? FLEET_REGISTERED : FLEET_LOADS, 2000, 0);
        fleet_run(f, 5000);
        mem_fail_after(-1);
        for (unsigned i = 0; i < 3; i++) {
            if (!asks[i]->done)
                fail_msg("allocation %ld failed: node %u waits for ever", n, i);
        }
        const struct fleet_ask *again = fleet_ask(f, 0, "k", FLEET_LOADS, 2000, 0);
        fleet_run(f, 5000);
        assert_int_equal(again->outcome, OUTCOME_VALUE);
        fleet_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chaos_then_calm),
        cmocka_unit_test(test_out_of_memory_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
