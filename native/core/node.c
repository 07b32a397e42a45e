/* Membership and answering, composed (see node.h). */
#include "node_state.h"

#include "err.h"
#include "limits.h"
#include "mem.h"

/* Membership from the start, and a view of a node that is looking until it has spoken. */
static bool look(struct node *n, const struct node_config *config, uint64_t now_ms)
{
    struct effects none;

    if (node_join(n, &config->swim, now_ms) != 0)
        return false;
    struct view *v = node_view(n);
    if (!v)
        return false;
    effects_init(&none);
    serve_set_view(n->serve, v, now_ms, &none);
    effects_deinit(&none);
    return true;
}

int node_new(struct node **out, const struct node_config *config, uint64_t now_ms)
{
    struct node *n = mem_zalloc(sizeof *n);

    if (!n)
        return ERR_NOMEM;
    list_init(&n->changes);
    prng_seed(&n->prng, config->seed);
    n->timeout_ms = config->serve.timeout_ms;
    uint64_t node_id = config->node_id;
    while (node_id == 0)
        node_id = prng_next(&n->prng);
    n->tallies = tallies_new(node_id, config->serve.hash_key);
    if (!n->tallies)
        goto failed;
    n->wall_ahead_ms = config->wall_ms - now_ms;
    n->serve = serve_new(&config->serve);
    if (!n->serve)
        goto failed;
    if (config->peers && !look(n, config, now_ms))
        goto failed;
    *out = n;
    return 0;
failed:
    node_free(n);
    return ERR_NOMEM;
}

void node_free(struct node *n)
{
    if (!n)
        return;
    changes_free(n);
    tallies_free(n->tallies);
    serve_free(n->serve);
    swim_free(n->swim);
    mem_free(n);
}

struct swim *node_swim(struct node *n) { return n->swim; }
struct serve *node_serve(struct node *n) { return n->serve; }

int node_join(struct node *n, const struct swim_config *config, uint64_t now_ms)
{
    struct swim *fresh;
    int rc = swim_new(&fresh, config, now_ms);

    if (rc != 0)
        return rc;
    swim_free(n->swim);
    n->swim = fresh;
    return 0;
}

void node_part(struct node *n)
{
    swim_free(n->swim);
    n->swim = NULL;
}

/* Members. */

static enum phase phase_of(const struct swim *swim)
{
    switch (swim_phase(swim)) {
    case SWIM_PHASE_LOOKING:
        return PHASE_LOOKING;
    case SWIM_PHASE_WARMING:
        return PHASE_WARMING;
    case SWIM_PHASE_READY:
        return PHASE_READY;
    case SWIM_PHASE_DRAINING:
        return PHASE_DRAINING;
    case SWIM_PHASE_GONE:
        break;
    }
    return PHASE_LEFT;
}

static void add_member(struct node *n, struct view *v, const struct member *m)
{
    v->members[v->count++] = (struct view_member){
        .addr = m->addr,
        .node_id = m->node_id,
        .hash = serve_member_hash(n->serve, &m->addr),
        .started_ms = m->started_ms,
        .self = addr_equal(&m->addr, &swim_self(n->swim)->addr),
        .coordinates = m->flags & SWIM_COORDINATE,
        .warming = m->flags & SWIM_WARMING,
        .draining = m->flags & SWIM_DRAINING,
        .observer = m->flags & SWIM_OBSERVER,
    };
}

struct view *node_view(struct node *n)
{
    size_t room = 0;
    const struct member *m;

    for (m = NULL; (m = swim_next(n->swim, m));)
        room += member_is_live(m);
    struct view *v = view_new(room);
    if (!v)
        return NULL;
    v->epoch = ++n->epoch;
    v->phase = phase_of(n->swim);
    /* A node that has left, or lost its address to another (M6), works alone. */
    if (v->phase != PHASE_LEFT) {
        for (m = NULL; (m = swim_next(n->swim, m));) {
            if (member_is_live(m))
                add_member(n, v, m);
        }
    }
    view_finish(v);
    return v;
}

void node_set_view(struct node *n, struct view *v, uint64_t now_ms, struct effects *fx)
{
    serve_set_view(n->serve, v, now_ms, fx);
    change_members(n, now_ms, fx);
    tallies_members(n, now_ms);
}

/* Table pages. */

bool node_call_is_pull(uint64_t call_id) { return (call_id & CALL_KIND_MASK) == CALL_PULL; }

void node_pull(struct node *n, const struct swim_effect *e, struct span payload,
               struct effects *fx)
{
    struct message m = {.kind = MESSAGE_TABLE};
    struct blob *request = blob_copy(payload);

    n->pulled_from = e->node_id;
    if (request)
        effects_call(fx, CALL_PULL, &e->addr, e->node_id, 4 * n->timeout_ms, &m, request);
    blob_unref(request);
}

void node_table(struct node *n, uint64_t conn_id, const struct message *m, struct blob *value,
                uint64_t now_ms, struct effects *fx)
{
    uint32_t cursor = 0;
    bool more = true;

    while (more) {
        struct message page = {.kind = MESSAGE_PAGE, .request_id = m->request_id};
        uint8_t *room = mem_alloc(SWIM_PAGE_BYTES);
        if (!room)
            return;     /* the asker's call runs out of time and it pulls again */
        struct writer w = writer_of(room, SWIM_PAGE_BYTES);
        more = swim_page_encode(n->swim, now_ms, blob_span(value), &cursor, &w);
        struct blob *bytes = blob_copy(span_of(room, writer_bytes(&w)));
        mem_free(room);
        if (!bytes)
            return;
        page.flags = more ? MESSAGE_MORE : 0;
        effects_answer(fx, conn_id, &page, bytes);
        blob_unref(bytes);
    }
}

void node_page(struct node *n, uint64_t call_id, const struct message *m, struct blob *value,
               uint64_t now_ms, uint64_t wall_ms, struct swim_out *out)
{
    (void)call_id;
    bool good = m && m->kind == MESSAGE_PAGE &&
                swim_page_merge(n->swim, now_ms, wall_ms, n->pulled_from, blob_span(value),
                                out) == SWIM_OK;
    if (!good || !(m->flags & MESSAGE_MORE))
        swim_pulled(n->swim, now_ms, good, out);
}

/* Frames. */

void node_frame(struct node *n, uint64_t conn_id, const struct message *m, struct blob *value,
                uint64_t now_ms, struct effects *fx)
{
    if (serve_frame(n->serve, conn_id, m, value, now_ms, fx))
        return;
    switch (m->kind) {
    case MESSAGE_DELETE:
        change_request(n, conn_id, m, value, now_ms, fx);
        return;
    case MESSAGE_DROP:
        change_drop(n, conn_id, m, value, now_ms, fx);
        return;
    default: {
        struct message no = {.kind = MESSAGE_UNSUPPORTED, .request_id = m->request_id};
        effects_answer(fx, conn_id, &no, NULL);
        return;
    }
    }
}

void node_reply(struct node *n, uint64_t call_id, const struct message *m, struct blob *value,
                uint64_t now_ms, struct effects *fx)
{
    if ((call_id & CALL_OWNER_MASK) == CALL_CHANGE)
        change_reply(n, call_id, m, value, now_ms, fx);
    else
        serve_reply(n->serve, call_id, m, value, now_ms, fx);
}

void node_closed(struct node *n, uint64_t conn_id, uint64_t now_ms, struct effects *fx)
{
    change_conn_closed(n, conn_id);
    serve_closed(n->serve, conn_id, now_ms, fx);
}

void node_serve_tick(struct node *n, uint64_t now_ms, struct effects *fx)
{
    serve_tick(n->serve, now_ms, fx);
}

uint64_t node_serve_due_ms(const struct node *n)
{
    return min_u64(serve_due_ms(n->serve), tallies_due_ms(n->tallies));
}
