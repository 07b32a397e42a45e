/* The engine: a heap of events, nodes, and the network between them. */
#include "sim/sim.h"

#include "core/swim_core.h"

#include <stdarg.h>
#include <stdlib.h>

/* What TCP would do, without its packets: reach, or not, in some round trips; a
 * lost packet costs a retransmission. */
struct sim_tcp {
    struct addr addr;
    uint64_t id;
    uint32_t peer, peer_life;
    bool reached;
    size_t bytes;
    uint8_t *pages;         /* length-prefixed, u32 native each */
    size_t pages_bytes;
    uint8_t request[SWIM_PULL_BYTES_MAX];
};

static void *need(void *p)
{
    if (p == NULL)
        abort();            /* a simulation out of memory has nothing to say */
    return p;
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;
    if (sim->failure[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(sim->failure, sizeof sim->failure, format, args);
    va_end(args);
    if (sim->trace)
        fprintf(sim->trace, "[%llu] FAILED: %s\n", (unsigned long long)sim_now_ms(sim),
                sim->failure);
}

uint64_t sim_now_ms(const struct sim *sim)
{
    return sim->now_us / 1000;
}

static uint64_t wall_ms(const struct sim *sim, const struct sim_node *n)
{
    return SIM_WALL_MS + sim_now_ms(sim) + (uint64_t)n->skew_ms;
}

/* Events. */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void push(struct sim *sim, uint64_t at_us, uint8_t kind, uint32_t node, void *what)
{
    if (sim->heap_count == sim->heap_capacity) {
        sim->heap_capacity = sim->heap_capacity ? sim->heap_capacity * 2 : 1024;
        sim->heap = need(realloc(sim->heap, sim->heap_capacity * sizeof *sim->heap));
    }
    struct sim_event e = {at_us, sim->order++, node,
                          node == SIM_NOBODY ? 0 : sim->nodes[node].life, kind, what};
    size_t k = sim->heap_count++;
    while (k > 0 && before(&e, &sim->heap[(k - 1) / 4])) {
        sim->heap[k] = sim->heap[(k - 1) / 4];
        k = (k - 1) / 4;
    }
    sim->heap[k] = e;
}

static struct sim_event pop(struct sim *sim)
{
    struct sim_event top = sim->heap[0];
    struct sim_event last = sim->heap[--sim->heap_count];
    size_t k = 0;
    for (;;) {
        size_t child = 4 * k + 1, least = child;
        if (child >= sim->heap_count)
            break;
        for (size_t j = child + 1; j < child + 4 && j < sim->heap_count; j++) {
            if (before(&sim->heap[j], &sim->heap[least]))
                least = j;
        }
        if (!before(&sim->heap[least], &last))
            break;
        sim->heap[k] = sim->heap[least];
        k = least;
    }
    sim->heap[k] = last;
    return top;
}

/* Life. */

void sim_init(struct sim *sim, uint64_t seed, uint32_t hosts)
{
    memset(sim, 0, sizeof *sim);
    sim->seed = seed;
    sim->now_us = 1000 * 1000;
    prng_seed(&sim->prng, seed);
    sim->net = (struct sim_net){.latency_us = 500, .jitter_us = 500, .reorder_us = 20000};
    swim_params_default(&sim->params);
    sim->payload_bytes_max = PACKET_BYTES_MAX - SIM_FRAME_BYTES;
    sim->hosts = hosts;
    sim->at_address = need(malloc((size_t)hosts * SIM_PORTS * sizeof *sim->at_address));
    for (size_t k = 0; k < (size_t)hosts * SIM_PORTS; k++)
        sim->at_address[k] = SIM_NOBODY;
    swim_out_init(&sim->out);
}

static void drop_inbox(struct sim_node *n)
{
    while (n->inbox) {
        struct sim_packet *p = n->inbox;
        n->inbox = p->next;
        free(p);
    }
    n->inbox_end = &n->inbox;
    n->inbox_count = 0;
}

void sim_deinit(struct sim *sim)
{
    sim_check_end(sim);
    for (uint32_t k = 0; k < sim->count; k++) {
        swim_free(sim->nodes[k].swim);
        drop_inbox(&sim->nodes[k]);
    }
    for (size_t k = 0; k < sim->heap_count; k++) {
        struct sim_tcp *t = sim->heap[k].what;
        if (sim->heap[k].kind == SIM_PULL_ANSWERED)
            free(t->pages);
        free(t);
    }
    free(sim->nodes);
    free(sim->heap);
    free(sim->at_address);
    free(sim->cuts);
    swim_out_deinit(&sim->out);
}

static struct addr address(uint32_t host, uint32_t port)
{
    struct addr a = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = (uint8_t)(host >> 16),
                            [14] = (uint8_t)(host >> 8), [15] = (uint8_t)host},
                     .port = (uint16_t)(SIM_PORT + port)};
    return a;
}

static uint32_t node_at(const struct sim *sim, const struct addr *a)
{
    uint32_t host = (uint32_t)a->ip[13] << 16 | (uint32_t)a->ip[14] << 8 | a->ip[15];
    uint32_t port = a->port - SIM_PORT;
    if (host >= sim->hosts || port >= SIM_PORTS)
        return SIM_NOBODY;
    return sim->at_address[host * SIM_PORTS + port];
}

uint32_t sim_add(struct sim *sim, uint32_t host, uint32_t port)
{
    if (sim->count == sim->capacity) {
        sim->capacity = sim->capacity ? sim->capacity * 2 : 16;
        sim->nodes = need(realloc(sim->nodes, sim->capacity * sizeof *sim->nodes));
    }
    struct sim_node *n = &sim->nodes[sim->count];
    memset(n, 0, sizeof *n);
    n->host = host;
    n->addr = address(host, port);
    sim->at_address[host * SIM_PORTS + port] = sim->count;
    return sim->count++;
}

bool sim_is_up(const struct sim *sim, uint32_t node)
{
    return sim->nodes[node].swim != NULL;
}

/* The network. */

static bool is_cut(const struct sim *sim, uint32_t from, uint32_t to)
{
    const struct sim_node *a = &sim->nodes[from], *b = &sim->nodes[to];
    if (a->mute || b->deaf || a->side != b->side)
        return true;
    for (size_t k = 0; k < sim->cut_count; k++) {
        if (sim->cuts[k].from == from && sim->cuts[k].to == to)
            return true;
    }
    return false;
}

static uint64_t flight_us(struct sim *sim, uint32_t from, uint32_t to)
{
    uint64_t us = sim->net.latency_us;
    if (sim->net.jitter_us > 0)
        us += prng_below(&sim->prng, sim->net.jitter_us);
    return sim->nodes[from].host == sim->nodes[to].host ? us / 10 + 1 : us + 1;
}

static void send_packet(struct sim *sim, uint32_t from, const struct swim_effect *e)
{
    struct sim_node *n = &sim->nodes[from];
    struct span payload = swim_payload(&sim->out, e);
    uint32_t to = node_at(sim, &e->addr);
    if (to == SIM_NOBODY)
        return;
    uint32_t copies = 1;
    if (sim->net.duplicate > 0 && prng_unit(&sim->prng) < sim->net.duplicate)
        copies++;
    sim->counts.duplicated += copies - 1;
    for (; copies > 0; copies--) {
        if (is_cut(sim, from, to)
            || (sim->net.loss > 0 && prng_unit(&sim->prng) < sim->net.loss)) {
            sim->counts.lost++;
            continue;
        }
        struct sim_packet *p = need(malloc(sizeof *p + payload.bytes));
        *p = (struct sim_packet){.source = n->addr, .to = e->addr, .from_node = from,
                                 .to_node = to, .from_id = n->id, .to_id = e->node_id,
                                 .bytes = (uint32_t)payload.bytes, .label = n->label};
        memcpy(p->payload, payload.at, payload.bytes);
        uint64_t at_us = sim->now_us + flight_us(sim, from, to);
        if (sim->net.reorder > 0 && prng_unit(&sim->prng) < sim->net.reorder)
            at_us += prng_below(&sim->prng, sim->net.reorder_us);
        push(sim, at_us, SIM_DELIVER, SIM_NOBODY, p);
    }
}

static uint64_t round_trip_us(struct sim *sim, uint32_t a, uint32_t b)
{
    uint64_t us = flight_us(sim, a, b) + flight_us(sim, b, a);
    while (sim->net.loss > 0 && prng_unit(&sim->prng) < sim->net.loss)
        us += 200 * 1000;
    return us;
}

static bool tcp_reaches(const struct sim *sim, uint32_t from, const struct sim_tcp *t)
{
    uint32_t to = node_at(sim, &t->addr);
    return to != SIM_NOBODY && sim_is_up(sim, to) && sim->nodes[to].id == t->id
        && sim->nodes[to].label == sim->nodes[from].label
        && !is_cut(sim, from, to) && !is_cut(sim, to, from);
}

static void dial(struct sim *sim, uint32_t from, const struct swim_effect *e, uint8_t kind)
{
    struct sim_tcp *t = need(calloc(1, sizeof *t));
    struct span payload = swim_payload(&sim->out, e);
    t->addr = e->addr;
    t->id = e->node_id;
    t->bytes = payload.bytes;
    assert(payload.bytes <= sizeof t->request);
    if (payload.bytes > 0)
        memcpy(t->request, payload.at, payload.bytes);
    t->peer = node_at(sim, &e->addr);
    uint64_t us = 1000 * 1000;          /* a dial into nothing is given up */
    t->reached = tcp_reaches(sim, from, t);
    if (t->reached) {
        const struct sim_node *peer = &sim->nodes[t->peer];
        us = round_trip_us(sim, from, t->peer) * 2;
        if (peer->stalled_until_us > sim->now_us)
            us += peer->stalled_until_us - sim->now_us;
    }
    push(sim, sim->now_us + us, kind, from, t);
}

/* Effects. */

static void arm(struct sim *sim, uint32_t node)
{
    struct sim_node *n = &sim->nodes[node];
    uint64_t due_ms = n->swim ? swim_due_ms(n->swim) : NEVER_MS;
    if (due_ms == NEVER_MS)
        return;
    uint64_t at_us = max_u64(due_ms * 1000, sim->now_us);
    if (n->tick_us != 0 && n->tick_us <= at_us)
        return;             /* an early tick re-arms */
    n->tick_us = at_us;
    push(sim, at_us, SIM_TICK, node, NULL);
}

static void count_death(struct sim *sim, const struct swim_effect *e)
{
    uint32_t victim = node_at(sim, &e->addr);
    if (victim == SIM_NOBODY || !sim_is_up(sim, victim) || sim->nodes[victim].id != e->node_id)
        return;
    sim->counts.false_deaths++;
    if (!sim->nodes[victim].excused)
        sim->counts.false_deaths_healthy++;
}

static const char *const log_words[] = {
    [SWIM_LOG_JOINED] = "joined", [SWIM_LOG_REPLACED] = "replaced",
    [SWIM_LOG_SUSPECTED] = "suspected", [SWIM_LOG_REFUTED] = "refuted",
    [SWIM_LOG_DEAD] = "dead", [SWIM_LOG_RETURNED] = "returned", [SWIM_LOG_LEFT] = "left",
    [SWIM_LOG_SELF_DEAD] = "self dead", [SWIM_LOG_CONFLICT] = "conflict",
    [SWIM_LOG_ALONE] = "alone", [SWIM_LOG_REFUSED_CIDR] = "refused: cidr",
    [SWIM_LOG_REFUSED_LOOPBACK] = "refused: loopback",
    [SWIM_LOG_REFUSED_FUTURE] = "refused: future",
    [SWIM_LOG_REFUSED_UNPROVEN] = "refused: unproven",
    [SWIM_LOG_STARTED_RAISED] = "start raised", [SWIM_LOG_TABLE_FULL] = "table full",
    [SWIM_LOG_PULL_FAILED] = "pull failed",
};

static void log_heard(struct sim *sim, uint32_t node, const struct swim_effect *e)
{
    sim->counts.logs[e->log]++;
    if (e->log == SWIM_LOG_DEAD)
        count_death(sim, e);
    if (sim->trace) {
        char a[ADDR_TEXT_MAX], b[ADDR_TEXT_MAX];
        fprintf(sim->trace, "[%llu] %s: %s %s\n", (unsigned long long)sim_now_ms(sim),
                addr_format(&sim->nodes[node].addr, a), addr_format(&e->addr, b),
                log_words[e->log]);
    }
    if (sim->watch)
        sim->watch(sim, node, e, sim->watch_ctx);
}

static void carry_out(struct sim *sim, uint32_t node, const struct swim_from *from,
                      size_t received)
{
    struct sim_node *n = &sim->nodes[node];
    if (sim->check)
        sim_check_step(sim, node, from, received);
    n->self_dead |= (sim->out.news & SWIM_NEWS_SELF_DEAD) != 0;
    n->conflict |= (sim->out.news & SWIM_NEWS_CONFLICT) != 0;
    sim->counts.self_deads += (sim->out.news & SWIM_NEWS_SELF_DEAD) != 0;
    sim->counts.conflicts += (sim->out.news & SWIM_NEWS_CONFLICT) != 0;
    for (size_t k = 0; k < sim->out.count; k++) {
        const struct swim_effect *e = &sim->out.effects[k];
        switch (e->kind) {
        case SWIM_SEND:
            sim->counts.sent[swim_payload(&sim->out, e).at[1] & 15]++;
            send_packet(sim, node, e);
            break;
        case SWIM_PROVE:
            dial(sim, node, e, SIM_PROVEN);
            break;
        case SWIM_PULL:
            dial(sim, node, e, SIM_PULL_ASKED);
            break;
        default:
            log_heard(sim, node, e);
            break;
        }
    }
    swim_out_reset(&sim->out);
    arm(sim, node);
}

/* Starting and stopping. */

void sim_start(struct sim *sim, uint32_t node, const uint32_t *seeds, size_t seed_count)
{
    struct sim_node *n = &sim->nodes[node];
    assert(n->swim == NULL);
    n->id = prng_next(&sim->prng) | 1;
    n->life++;
    n->left = n->excused = n->self_dead = n->conflict = false;
    n->tick_us = n->stalled_until_us = 0;
    n->inbox_end = &n->inbox;
    drop_inbox(n);
    n->started_us = sim->now_us;
    struct swim_config config = {
        .self = n->addr, .node_id = n->id, .started_ms = wall_ms(sim, n),
        .flags = SWIM_COORDINATE, .speaks_min = 1, .speaks_max = 1,
        .payload_bytes_max = sim->payload_bytes_max, .seed = prng_next(&sim->prng),
        .params = sim->params,
    };
    if (swim_new(&n->swim, &config, sim_now_ms(sim)) < 0)
        abort();
    struct addr range[SIM_PORTS];
    for (uint32_t p = 0; p < SIM_PORTS; p++)
        range[p] = address(n->host, p);
    if (swim_set_seed(n->swim, 0, range, SIM_PORTS) < 0)
        abort();
    for (size_t k = 0; k < seed_count; k++) {
        if (swim_set_seed(n->swim, k + 1, &sim->nodes[seeds[k]].addr, 1) < 0)
            abort();
    }
    if (sim->check)
        sim_check_started(sim, node);
    arm(sim, node);
}

static void stop(struct sim *sim, uint32_t node)
{
    struct sim_node *n = &sim->nodes[node];
    swim_stats(n->swim, &n->last);
    swim_free(n->swim);
    n->swim = NULL;
    n->life++;
    drop_inbox(n);
}

void sim_crash(struct sim *sim, uint32_t node)
{
    if (sim_is_up(sim, node))
        stop(sim, node);
}

void sim_leave(struct sim *sim, uint32_t node)
{
    if (!sim_is_up(sim, node))
        return;
    swim_leave(sim->nodes[node].swim, sim_now_ms(sim), &sim->out);
    sim->nodes[node].left = true;
    carry_out(sim, node, NULL, 0);
    stop(sim, node);
}

void sim_stall(struct sim *sim, uint32_t node, uint64_t for_ms)
{
    struct sim_node *n = &sim->nodes[node];
    if (!sim_is_up(sim, node))
        return;
    n->stalled_until_us = sim->now_us + for_ms * 1000;
    push(sim, n->stalled_until_us, SIM_WAKE, node, NULL);
}

void sim_stall_host(struct sim *sim, uint32_t host, uint64_t for_ms)
{
    for (uint32_t k = 0; k < sim->count; k++) {
        if (sim->nodes[k].host == host)
            sim_stall(sim, k, for_ms);
    }
}

void sim_cut(struct sim *sim, uint32_t from, uint32_t to)
{
    if (sim->cut_count == sim->cut_capacity) {
        sim->cut_capacity = sim->cut_capacity ? sim->cut_capacity * 2 : 16;
        sim->cuts = need(realloc(sim->cuts, sim->cut_capacity * sizeof *sim->cuts));
    }
    sim->cuts[sim->cut_count++] = (struct sim_pair){from, to};
}

void sim_mend(struct sim *sim)
{
    sim->cut_count = 0;
    for (uint32_t k = 0; k < sim->count; k++) {
        sim->nodes[k].deaf = sim->nodes[k].mute = false;
        sim->nodes[k].side = 0;
    }
}

void sim_converge(struct sim *sim)
{
    for (uint32_t k = 0; k < sim->count; k++) {
        struct swim *s = sim->nodes[k].swim;
        if (s == NULL)
            continue;
        struct standing self = standing_of(self_of(s));
        self.flags &= (uint8_t)~SWIM_WARMING;
        self.version++;
        members_become(&s->members, MEMBER_SELF, &self, &s->prng);
        for (uint32_t j = 0; j < sim->count; j++) {
            uint32_t at;
            const struct sim_node *other = &sim->nodes[j];
            if (j == k || other->swim == NULL || other->label != sim->nodes[k].label)
                continue;
            struct standing st = standing_of(self_of(other->swim));
            st.flags &= (uint8_t)~SWIM_WARMING;
            st.version = self.version;
            if (members_add(&s->members, &other->addr, &st, &s->prng, &at) < 0)
                abort();
        }
        gossip_init(&s->gossip);
        self_of(s)->marks &= (uint8_t)~MARK_QUEUED;
        s->phase = SWIM_PHASE_READY;
        s->admitted = true;
        s->rejoin_ms = sim_now_ms(sim) + prng_below(&s->prng, s->p.rejoin_every_ms);
        swim_reckon(s, sim_now_ms(sim));
    }
}

/* Running. */

static void tick(struct sim *sim, uint32_t node)
{
    struct sim_node *n = &sim->nodes[node];
    n->tick_us = 0;
    swim_tick(n->swim, sim_now_ms(sim), wall_ms(sim, n), &sim->out);
    carry_out(sim, node, NULL, 0);
}

static void read_packet(struct sim *sim, uint32_t node, const struct sim_packet *p)
{
    struct sim_node *n = &sim->nodes[node];
    if (p->label != n->label || (p->to_id != 0 && p->to_id != n->id))
        return;             /* its tag would not verify */
    struct swim_from from = {.source = p->source, .node_id = p->from_id,
                             .open_receiver = p->to_id == 0};
    sim->counts.delivered++;
    swim_receive(n->swim, sim_now_ms(sim), wall_ms(sim, n), &from,
                 span_of(p->payload, p->bytes), &sim->out);
    carry_out(sim, node, &from, p->bytes);
}

static void deliver(struct sim *sim, struct sim_packet *p)
{
    struct sim_node *n = &sim->nodes[p->to_node];
    if (n->swim == NULL) {
        free(p);
    } else if (n->stalled_until_us > sim->now_us) {
        if (n->inbox_count == SIM_INBOX_MAX) {
            sim->counts.inbox_dropped++;
            free(p);
            return;
        }
        p->next = NULL;
        *n->inbox_end = p;
        n->inbox_end = &p->next;
        n->inbox_count++;
    } else {
        read_packet(sim, p->to_node, p);
        free(p);
    }
}

/* Sockets first, then timers (M5). */
static void wake(struct sim *sim, uint32_t node)
{
    struct sim_node *n = &sim->nodes[node];
    uint32_t life = n->life;
    while (n->inbox && n->life == life && n->swim) {
        struct sim_packet *p = n->inbox;
        n->inbox = p->next;
        n->inbox_count--;
        if (n->inbox == NULL)
            n->inbox_end = &n->inbox;
        read_packet(sim, node, p);
        free(p);
    }
    if (n->swim)
        tick(sim, node);
}

static void serve_pull(struct sim *sim, uint32_t asker, struct sim_tcp *t)
{
    t->reached = t->reached && tcp_reaches(sim, asker, t);
    if (t->reached) {
        const struct swim *s = sim->nodes[t->peer].swim;
        uint8_t *page = need(malloc(SWIM_PAGE_BYTES));
        uint32_t cursor = 0;
        bool more;
        do {
            struct writer w = writer_of(page, SWIM_PAGE_BYTES);
            more = swim_page_encode(s, sim_now_ms(sim), span_of(t->request, t->bytes), &cursor,
                                    &w);
            uint32_t bytes = (uint32_t)writer_bytes(&w);
            t->pages = need(realloc(t->pages, t->pages_bytes + sizeof bytes + bytes));
            memcpy(t->pages + t->pages_bytes, &bytes, sizeof bytes);
            memcpy(t->pages + t->pages_bytes + sizeof bytes, page, bytes);
            t->pages_bytes += sizeof bytes + bytes;
        } while (more);
        free(page);
    }
    uint64_t us = t->reached ? round_trip_us(sim, asker, t->peer) : 1;
    push(sim, sim->now_us + us, SIM_PULL_ANSWERED, asker, t);
}

static void merge_pages(struct sim *sim, uint32_t node, struct sim_tcp *t)
{
    struct sim_node *n = &sim->nodes[node];
    for (size_t at = 0; at < t->pages_bytes;) {
        uint32_t bytes;
        memcpy(&bytes, t->pages + at, sizeof bytes);
        at += sizeof bytes;
        enum swim_verdict v = swim_page_merge(n->swim, sim_now_ms(sim), wall_ms(sim, n), t->id,
                                              span_of(t->pages + at, bytes), &sim->out);
        if (v == SWIM_MALFORMED)
            sim_fail(sim, "a page of our own making is malformed");
        at += bytes;
    }
    swim_pulled(n->swim, sim_now_ms(sim), t->reached, &sim->out);
    carry_out(sim, node, NULL, 0);
}

static void run_event(struct sim *sim, struct sim_event *e)
{
    struct sim_node *n = e->node == SIM_NOBODY ? NULL : &sim->nodes[e->node];
    struct sim_tcp *t = e->what;
    if (n && (n->swim == NULL || n->life != e->life)) {
        if ((e->kind == SIM_PULL_ASKED || e->kind == SIM_PULL_ANSWERED) && t)
            free(t->pages);
        free(e->what);
        return;
    }
    if (n && n->stalled_until_us > sim->now_us && e->kind != SIM_TICK) {
        push(sim, n->stalled_until_us, e->kind, e->node, e->what);
        return;
    }
    switch (e->kind) {
    case SIM_TICK:
        if (n->tick_us != e->at_us)
            break;          /* an earlier one took its place */
        n->tick_us = 0;
        if (n->stalled_until_us <= sim->now_us)
            tick(sim, e->node);
        break;
    case SIM_WAKE:
        wake(sim, e->node);
        break;
    case SIM_DELIVER:
        deliver(sim, e->what);
        break;
    case SIM_PROVEN:
        swim_proven(n->swim, sim_now_ms(sim), wall_ms(sim, n), &t->addr, t->id,
                    t->reached && tcp_reaches(sim, e->node, t), &sim->out);
        carry_out(sim, e->node, NULL, 0);
        free(t);
        break;
    case SIM_PULL_ASKED:
        serve_pull(sim, e->node, t);
        break;
    case SIM_PULL_ANSWERED:
        merge_pages(sim, e->node, t);
        free(t->pages);
        free(t);
        break;
    default:
        assert(false);
    }
}

bool sim_step(struct sim *sim)
{
    if (sim->heap_count == 0 || sim->failure[0] != '\0')
        return false;
    struct sim_event e = pop(sim);
    assert(e.at_us >= sim->now_us);
    sim->now_us = e.at_us;
    sim->counts.events++;
    run_event(sim, &e);
    return sim->failure[0] == '\0';
}

void sim_run(struct sim *sim, uint64_t for_ms)
{
    uint64_t end_us = sim->now_us + for_ms * 1000;
    while (sim->heap_count > 0 && sim->heap[0].at_us <= end_us) {
        if (!sim_step(sim))
            return;
    }
    sim->now_us = end_us;
}

/* Agreement. */

static bool knows_all(const struct sim *sim, uint32_t node, char *why, size_t bytes)
{
    const struct sim_node *n = &sim->nodes[node];
    char a[ADDR_TEXT_MAX], b[ADDR_TEXT_MAX];
    size_t up = 0;
    enum swim_phase phase = swim_phase(n->swim);
    if (phase == SWIM_PHASE_LOOKING || phase == SWIM_PHASE_WARMING) {
        snprintf(why, bytes, "%s is not ready", addr_format(&n->addr, a));
        return false;
    }
    for (uint32_t k = 0; k < sim->count; k++) {
        const struct sim_node *o = &sim->nodes[k];
        if (o->swim == NULL || o->label != n->label || swim_phase(o->swim) == SWIM_PHASE_GONE)
            continue;
        const struct member *m = swim_find(n->swim, &o->addr);
        const struct member *self = swim_self(o->swim);
        up++;
        if (m == NULL || !member_is_live(m) || m->node_id != o->id || m->flags != self->flags) {
            snprintf(why, bytes, "%s knows %s as %s", addr_format(&n->addr, a),
                     addr_format(&o->addr, b),
                     m == NULL ? "nobody" : m->node_id != o->id ? "another"
                     : !member_is_live(m) ? "gone" : "with other flags");
            return false;
        }
    }
    if (up != swim_live(n->swim)) {
        snprintf(why, bytes, "%s counts %zu live of %zu", addr_format(&n->addr, a),
                 swim_live(n->swim), up);
        return false;
    }
    return true;
}

void sim_disagreement(const struct sim *sim, char *out, size_t bytes)
{
    out[0] = '\0';
    for (uint32_t k = 0; k < sim->count; k++) {
        if (sim->nodes[k].swim && swim_phase(sim->nodes[k].swim) != SWIM_PHASE_GONE
            && !knows_all(sim, k, out, bytes))
            return;
    }
}

bool sim_agrees(const struct sim *sim)
{
    char why[160];
    sim_disagreement(sim, why, sizeof why);
    return why[0] == '\0';
}

bool sim_run_until_agreed(struct sim *sim, uint64_t most_ms, uint64_t *took_ms)
{
    uint64_t begin_ms = sim_now_ms(sim);
    while (sim_now_ms(sim) - begin_ms < most_ms && sim->failure[0] == '\0') {
        sim_run(sim, 50);
        if (sim_agrees(sim)) {
            if (took_ms)
                *took_ms = sim_now_ms(sim) - begin_ms;
            return true;
        }
    }
    return false;
}

void sim_node_stats(const struct sim *sim, uint32_t node, struct swim_stats *out)
{
    if (sim->nodes[node].swim)
        swim_stats(sim->nodes[node].swim, out);
    else
        *out = sim->nodes[node].last;
}
