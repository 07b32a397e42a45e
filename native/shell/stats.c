/* peerage_stats: every counter and gauge by its documented name. One table a source, so that
 * a name stands next to what it counts. */
#include "core/mem.h"
#include "core/node_tally.h"
#include "shell/shell.h"

struct sink {
    struct peerage_stat *out;
    int room, count;
};

static void put(struct sink *k, const char *name, uint64_t value)
{
    if (k->count < k->room)
        k->out[k->count] = (struct peerage_stat){name, (double)value};
    k->count++;
}

static void put_shell(struct sink *k, const struct peerage *p)
{
    const struct counters *c = &p->counters;
    struct {
        const char *name;
        const atomic_uint_fast64_t *at;
    } table[] = {
        {"asks_by_threads", &c->asks_by_threads},
        {"asks_by_loops", &c->asks_by_ports},
        {"verified_for_loops", &c->verified},
        {"requests_sent", &c->requests},
        {"calls", &c->calls_by_loop},
        {"dials", &c->dials},
        {"dials_unix", &c->dials_unix},
        {"spins", &c->spins},
        {"spins_in_vain", &c->spins_in_vain},
        {"dials_failed", &c->dials_failed},
        {"redials", &c->redials},
        {"strangers", &c->strangers},
        {"frames_in", &c->frames_in},
        {"frames_out", &c->frames_out},
        {"datagrams_in", &c->datagrams_in},
        {"datagrams_out", &c->datagrams_out},
        {"datagrams_refused", &c->datagrams_refused},
        {"connections_in", &c->inbound},
        {"connections_accepted", &c->accepted},
        {"connections_refused_cidr", &c->refused_cidr},
        {"connections_refused_full", &c->refused_full},
        {"connections_cut", &c->cut},
        {"connections_broken", &c->broken},
        {"changes_late", &c->changes_late},
        {"gossip_refused", &c->gossip_refused},
        {"updates_refused", &c->updates_refused},
        {"joins_challenged", &c->joins_challenged},
    };
    static const char *const verdicts[VERDICT_COUNT] = {
        [VERDICT_GARBAGE] = "refused_garbage", [VERDICT_VERSION] = "refused_version",
        [VERDICT_MODE] = "refused_mode",       [VERDICT_LABEL] = "refused_label",
        [VERDICT_TAG] = "refused_tag",         [VERDICT_RECEIVER] = "refused_receiver",
        [VERDICT_SENDER] = "refused_sender",   [VERDICT_CLOCK] = "refused_clock",
        [VERDICT_REPLAY] = "refused_replay",   [VERDICT_BOUND] = "refused_bound",
        [VERDICT_FULL] = "refused_full",       [VERDICT_FIELDS] = "refused_fields",
        [VERDICT_VALUE] = "refused_value",
    };

    for (size_t i = 0; i < ARRAY_COUNT(table); i++)
        put(k, table[i].name, atomic_load_explicit(table[i].at, memory_order_relaxed));
    for (int v = 0; v < VERDICT_COUNT; v++) {
        if (verdicts[v])
            put(k, verdicts[v], atomic_load_explicit(&c->verdicts[v], memory_order_relaxed));
    }
}

static void put_redis(struct sink *k, const struct redis_counters *c)
{
    struct {
        const char *name;
        const atomic_uint_fast64_t *at;
    } table[] = {
        {"redis_misses", &c->misses},
        {"redis_leases", &c->leases},
        {"redis_waits", &c->waits},
        {"redis_writes", &c->writes},
        {"redis_writes_refused", &c->writes_refused},
        {"redis_writes_lost", &c->writes_lost},
        {"redis_deletes", &c->deletes},
        {"redis_tallies", &c->tallies},
        {"redis_tallies_lost", &c->tallies_lost},
        {"redis_connects", &c->connects},
        {"redis_timeouts", &c->timeouts},
        {"redis_errors", &c->errors},
    };

    put(k, "redis_state", (uint64_t)atomic_load(&c->seen));
    for (size_t i = 0; i < ARRAY_COUNT(table); i++)
        put(k, table[i].name, atomic_load_explicit(table[i].at, memory_order_relaxed));
}

static void put_serve(struct sink *k, const struct serve_stats *s, uint64_t hits_again)
{
    struct {
        const char *name;
        uint64_t value;
    } table[] = {
        {"hits_local", s->hits_local + hits_again},
        {"hits_stale", s->hits_stale},
        {"refreshes_early", s->early},
        {"misses", s->misses},
        {"hits_owner", s->answers_owner},
        {"hits_heir", s->answers_heir},
        {"hits_redis", s->answers_tier},
        {"served_hits", s->served_hits},
        {"served_misses", s->served_misses},
        {"served_loads", s->served_loads},
        {"served_not_me", s->served_not_me},
        {"served_busy", s->served_busy},
        {"loads", s->loads_started},
        {"loads_joined", s->loads_joined},
        {"loads_finished", s->loads_finished},
        {"loads_failed", s->loads_failed},
        {"loads_lost", s->loads_lost},
        {"permits_granted", s->permits_granted},
        {"permits_returned", s->permits_returned},
        {"peeks", s->peeks_asked},
        {"peeks_hit", s->peeks_hit},
        {"peeks_served", s->peeks_served},
        {"pushes", s->pushes_sent},
        {"pushes_taken", s->pushes_taken},
        {"stored", s->stored},
        {"stored_refused", s->stored_refused},
        {"too_big", s->too_big},
        {"asks_silent", s->asks_silent},
        {"asks_busy", s->asks_busy},
        {"drops", s->drops},
    };

    for (size_t i = 0; i < ARRAY_COUNT(table); i++)
        put(k, table[i].name, table[i].value);
}

static void put_tallies(struct sink *k, const struct node_tally_stats *s)
{
    put(k, "tally_keys", s->tally.keys);
    put(k, "tally_refused", s->tally.refused);
    put(k, "tally_misplaced", s->tally.misplaced);
    put(k, "tally_rounds", s->rounds);
    put(k, "tally_pages_sent", s->pages_sent);
    put(k, "tally_pages_lost", s->pages_lost);
    put(k, "tally_pages_taken", s->pages_taken);
    put(k, "tally_pages_malformed", s->pages_malformed);
}

/* The share of all channels this node owns: 1 / contenders, if it is one. */
static double owned_share(const struct view *v)
{
    unsigned contenders = 0;
    bool self = false;

    if (!v)
        return 1;
    for (unsigned i = 0; i < v->count; i++) {
        contenders += v->members[i].contends;
        self |= v->members[i].self && v->members[i].contends;
    }
    return self ? 1.0 / contenders : 0;
}

int peerage_stats(const peerage *constant, struct peerage_stat *out, int room)
{
    struct peerage *p = (struct peerage *)(uintptr_t)constant;
    struct sink k = {out, room, 0};
    struct store_stats store;
    struct node_tally_stats tallies;

    if (shell_is_foreign(p))
        return PEERAGE_E_FORKED;
    put_shell(&k, p);
    put_redis(&k, &p->redis);
    pthread_mutex_lock(&p->lock);
    const struct view *v = serve_view(node_serve(p->node));
    put_serve(&k, serve_stats(node_serve(p->node)),
              atomic_load_explicit(&p->hits_again, memory_order_relaxed));
    serve_store_stats(node_serve(p->node), &store);
    node_tally_stats(p->node, &tallies);
    put_tallies(&k, &tallies);
    put(&k, "flights", serve_flights(node_serve(p->node)));
    put(&k, "members", v ? v->count : 0);
    if (k.count < room)
        out[k.count] = (struct peerage_stat){"owned_share", owned_share(v)};
    k.count++;
    pthread_mutex_unlock(&p->lock);
    put(&k, "state", (uint64_t)atomic_load(&p->state));
    put(&k, "entries", store.entries);
    put(&k, "cache_bytes", store.bytes);
    put(&k, "cache_bytes_max", store.bytes_max);
    put(&k, "evicted", store.evicted);
    put(&k, "expired", store.expired);
    put(&k, "connections_idle", pool_count(&p->pool));
    return k.count;
}
