/* Effects, gathered (see effects.h). */
#include "effects.h"

#include "mem.h"

void effects_init(struct effects *e)
{
    memset(e, 0, sizeof *e);
    list_init(&e->completed);
}

void effects_clear(struct effects *e)
{
    for (size_t i = 0; i < e->count; i++) {
        blob_unref(e->at[i].value);
        mem_free(e->at[i].text);
    }
    e->count = 0;
}

void effects_deinit(struct effects *e)
{
    effects_clear(e);
    mem_free(e->at);
    e->at = NULL;
    e->room = 0;
}

/* Room for one more, zeroed; NULL: out of memory, counted. */
static struct effect *add(struct effects *e, enum effect_kind kind)
{
    if (e->count == e->room) {
        /* Most turns have one: so little comes from the heap's quickest part. */
        size_t room = e->room ? 4 * e->room : 1;
        struct effect *at = mem_resize(e->at, room * sizeof *at);
        if (!at) {
            e->dropped++;
            return NULL;
        }
        e->at = at;
        e->room = room;
    }
    struct effect *one = &e->at[e->count++];
    memset(one, 0, sizeof *one);
    one->kind = kind;
    return one;
}

static struct span copy_span(uint8_t **at, struct span s)
{
    struct span copy = span_of(*at, s.bytes);

    if (s.bytes)
        memcpy(*at, s.at, s.bytes);
    *at += s.bytes;
    return copy;
}

/* Give the effect the message with its spans copied; false: out of memory. */
static bool carry(struct effect *one, const struct message *m, struct blob *value)
{
    size_t bytes = m->key.bytes + m->channel.bytes + m->loader.bytes;

    one->message = *m;
    if (bytes) {
        uint8_t *at = one->text = mem_alloc(bytes);
        if (!at)
            return false;
        one->message.key = copy_span(&at, m->key);
        one->message.channel = copy_span(&at, m->channel);
        one->message.loader = copy_span(&at, m->loader);
    }
    one->value = blob_ref(value);
    return true;
}

static void carry_or_drop(struct effects *e, struct effect *one, const struct message *m,
                          struct blob *value)
{
    if (!carry(one, m, value)) {
        e->count--;
        e->dropped++;
    }
}

void effects_answer(struct effects *e, uint64_t conn_id, const struct message *m,
                    struct blob *value)
{
    struct effect *one = add(e, EFFECT_ANSWER);

    if (!one)
        return;
    one->conn_id = conn_id;
    carry_or_drop(e, one, m, value);
}

void effects_call(struct effects *e, uint64_t call_id, const struct addr *addr, uint64_t node_id,
                  uint32_t timeout_ms, const struct message *m, struct blob *value)
{
    struct effect *one = add(e, EFFECT_CALL);

    if (!one)
        return;
    one->call_id = call_id;
    one->addr = *addr;
    one->node_id = node_id;
    one->timeout_ms = timeout_ms;
    carry_or_drop(e, one, m, value);
}

void effects_loads(struct effects *e, bool async)
{
    struct effect *one = add(e, EFFECT_LOADS);

    if (one)
        one->async = async;
}

void effects_load_here(struct effects *e, uint64_t load_id, void *port, void *token)
{
    struct effect *one = add(e, EFFECT_LOAD_HERE);

    if (!one)
        return;
    one->load_id = load_id;
    one->port = port;
    one->token = token;
}

void effects_cancel_load(struct effects *e, uint64_t load_id, void *port)
{
    struct effect *one = add(e, EFFECT_CANCEL_LOAD);

    if (!one)
        return;
    one->load_id = load_id;
    one->port = port;
}

void effects_tier_ask(struct effects *e, uint64_t load_id, bool lease, uint32_t timeout_ms,
                      const struct message *m)
{
    struct effect *one = add(e, EFFECT_TIER_ASK);

    if (!one)
        return;
    one->load_id = load_id;
    one->lease = lease;
    one->timeout_ms = timeout_ms;
    carry_or_drop(e, one, m, NULL);
}

void effects_tier_put(struct effects *e, uint64_t load_id, const uint64_t marks[2],
                      const struct message *m, struct blob *value)
{
    struct effect *one = add(e, EFFECT_TIER_PUT);

    if (!one)
        return;
    one->load_id = load_id;
    memcpy(one->marks, marks, sizeof one->marks);
    carry_or_drop(e, one, m, value);
}

void effects_tier_end(struct effects *e, uint64_t load_id)
{
    struct effect *one = add(e, EFFECT_TIER_END);

    if (one)
        one->load_id = load_id;
}

void effects_tier_delete(struct effects *e, uint64_t call_id, uint32_t timeout_ms,
                         const struct message *m, struct blob *value)
{
    struct effect *one = add(e, EFFECT_TIER_DELETE);

    if (!one)
        return;
    one->call_id = call_id;
    one->timeout_ms = timeout_ms;
    carry_or_drop(e, one, m, value);
}

void effects_tier_tally(struct effects *e, uint64_t call_id, uint64_t window, uint64_t amount,
                        uint64_t limit, const struct message *m)
{
    struct effect *one = add(e, EFFECT_TIER_TALLY);

    if (!one)
        return;
    one->call_id = call_id;
    one->load_id = window;
    one->marks[0] = amount;
    one->marks[1] = limit;
    carry_or_drop(e, one, m, NULL);
}

void effects_gone(struct effects *e, const struct addr *addr, uint64_t node_id)
{
    struct effect *one = add(e, EFFECT_GONE);

    if (!one)
        return;
    one->addr = *addr;
    one->node_id = node_id;
}
