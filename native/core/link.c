/* One TCP connection's frames (see link.h).
 *
 * Order of the checks in link_open: what needs no key, then the tag, then what only a
 * holder of the secret can have written. So a stranger learns nothing from which check
 * failed, and the verdict that is counted names the first true reason.
 */
#include "link.h"

#include "err.h"
#include "mem.h"
#include "wire.h"

#define RANDOMS_BYTES (2 * FRAME_RANDOM_BYTES)

static const uint8_t challenge_magic[3] = {'P', 'G', 'C'};

int link_init(struct link *l, const struct seal *seal, uint64_t self_id, bool server,
              const uint8_t random[FRAME_RANDOM_BYTES])
{
    assert(self_id != 0);
    memset(l, 0, sizeof *l);
    l->seal = seal;
    l->self_id = self_id;
    l->server = server;
    memcpy(l->random_self, random, sizeof l->random_self);
    l->session_out = seal_session_new(seal);
    l->session_in = seal_session_new(seal);
    if (l->session_out && l->session_in)
        return 0;
    link_deinit(l);
    return ERR_NOMEM;
}

void link_deinit(struct link *l)
{
    seal_session_free(l->session_out);
    seal_session_free(l->session_in);
    memset(l, 0, sizeof *l);
}

void link_challenge(const struct link *l, uint8_t out[LINK_CHALLENGE_BYTES])
{
    struct writer w = writer_of(out, LINK_CHALLENGE_BYTES);

    assert(l->server);
    for (size_t i = 0; i < sizeof challenge_magic; i++)
        put_u8(&w, challenge_magic[i]);
    put_u8(&w, FRAME_VERSION);
    put_u64(&w, l->self_id);
    put_span(&w, span_of(l->random_self, sizeof l->random_self));
    put_span(&w, span_of(l->seal->label, sizeof l->seal->label));
    put_u8(&w, (uint8_t)l->seal->mode);
    put_u8(&w, 0);
    put_u16(&w, 0);
    assert(!w.failed && w.at == w.end);
}

enum verdict link_challenged(struct link *l, const uint8_t in[LINK_CHALLENGE_BYTES])
{
    struct reader r = reader_of(span_of(in, LINK_CHALLENGE_BYTES));

    assert(!l->server);
    struct span start = take_span(&r, sizeof challenge_magic);
    uint8_t version = take_u8(&r);
    uint64_t id = take_u64(&r);
    struct span random = take_span(&r, FRAME_RANDOM_BYTES);
    struct span label = take_span(&r, FRAME_LABEL_BYTES);
    uint8_t mode = take_u8(&r);

    if (!span_equal(start, span_of(challenge_magic, sizeof challenge_magic)))
        return VERDICT_GARBAGE;
    if (version < FRAME_VERSION_MIN)
        return VERDICT_VERSION;
    if (id == 0 || mode > FRAME_AEAD)
        return VERDICT_GARBAGE;
    if (!span_equal(label, span_of(l->seal->label, FRAME_LABEL_BYTES)))
        return VERDICT_LABEL;
    if (mode != l->seal->mode)
        return VERDICT_MODE;
    if (id == l->self_id)
        return VERDICT_SENDER;
    l->peer_id = id;
    memcpy(l->random_peer, random.at, sizeof l->random_peer);
    return VERDICT_OK;
}

/* What every tag of the connection covers: the client's random, then the server's. */
static struct span bind_randoms(const struct link *l, const uint8_t peer[FRAME_RANDOM_BYTES],
                                uint8_t out[RANDOMS_BYTES])
{
    memcpy(out, l->server ? peer : l->random_self, FRAME_RANDOM_BYTES);
    memcpy(out + FRAME_RANDOM_BYTES, l->server ? l->random_self : peer, FRAME_RANDOM_BYTES);
    return span_of(out, RANDOMS_BYTES);
}

int link_seal_head(struct link *l, struct message *m, struct blob *value, uint64_t wall_ms,
                   uint8_t head[HEAD_BYTES_MAX], struct blob **wire_value)
{
    enum frame_mode mode = l->seal->mode;
    bool has_value = value && value->bytes;
    uint64_t counters = has_value ? 2 : 1;
    size_t tag = seal_tag_bytes(mode);
    uint8_t randoms[RANDOMS_BYTES];
    struct blob *sealed = NULL;

    assert(link_ready(l));
    *wire_value = NULL;
    if (l->counter_out > UINT64_MAX - counters)
        return ERR_FULL;
    if (has_value && value->bytes > FRAME_BYTES_MAX)
        return ERR_TOO_BIG;
    m->sender_id = l->self_id;
    m->value_bytes = has_value ? (uint32_t)value->bytes : 0;
    if (has_value && mode == FRAME_HMAC)
        seal_blob_digest(value, m->digest);

    struct writer w = writer_of(head + FRAME_FIXED_BYTES,
                                HEAD_BYTES_MAX - FRAME_FIXED_BYTES - tag);
    int rc = message_encode(m, has_value && mode == FRAME_HMAC, &w);
    if (rc < 0)
        return rc;

    struct frame f = {
        .version = FRAME_VERSION,
        .mode = (uint8_t)mode,
        .kind = m->kind,
        .key_id = l->seal->keys[0].id,
        .head_bytes = (uint16_t)(FRAME_FIXED_BYTES + writer_bytes(&w) + tag),
        .sender_id = l->self_id,
        .receiver_id = l->peer_id,
        .counter = l->counter_out + 1,
        .sent_ms = wall_ms,
        .request_id = m->request_id,
    };
    if (has_value)
        f.value_bytes = m->value_bytes + (mode == FRAME_AEAD ? SEAL_TAG_AEAD_BYTES : 0);
    if (f.value_bytes > FRAME_BYTES_MAX - f.head_bytes)
        return ERR_TOO_BIG;
    memcpy(f.label, l->seal->label, sizeof f.label);
    memcpy(f.random, l->random_self, sizeof f.random);

    if (has_value && mode == FRAME_AEAD && !(sealed = blob_new(f.value_bytes)))
        return ERR_NOMEM;
    frame_encode(&f, head);
    /* From here the counter is gone, whatever happens: a nonce is never used twice. */
    l->counter_out += counters;
    rc = seal_head(l->session_out, &f, head, bind_randoms(l, l->random_peer, randoms));
    if (rc < 0) {
        blob_unref(sealed);
        return rc;
    }
    if (has_value)
        *wire_value = sealed ? sealed : blob_ref(value);
    return f.head_bytes;
}

int link_seal_value(struct link *l, const struct blob *value, struct blob *wire_value)
{
    if (!wire_value || l->seal->mode != FRAME_AEAD)
        return 0;
    return seal_value(l->session_out, blob_span(value), blob_fill(wire_value));
}

int link_seal(struct link *l, struct message *m, struct blob *value, uint64_t wall_ms,
              uint8_t head[HEAD_BYTES_MAX], struct blob **wire_value)
{
    int bytes = link_seal_head(l, m, value, wall_ms, head, wire_value);
    int rc = bytes < 0 ? bytes : link_seal_value(l, value, *wire_value);

    if (rc < 0) {
        blob_unref(*wire_value);
        *wire_value = NULL;
        return rc;
    }
    return bytes;
}

enum verdict link_open(struct link *l, uint8_t *in, size_t bytes, uint64_t wall_ms,
                       struct message *m, size_t *head_bytes, size_t *wire_bytes)
{
    enum frame_mode mode = l->seal->mode;
    size_t tag = seal_tag_bytes(mode);
    uint8_t randoms[RANDOMS_BYTES];
    struct frame f;

    enum verdict v = frame_decode(span_of(in, bytes), &f);
    if (v == VERDICT_OK)
        v = frame_check_cluster(&f, mode, l->seal->label);
    if (v != VERDICT_OK)
        return v;
    if (f.head_bytes < FRAME_FIXED_BYTES + tag || (f.value_bytes && !l->proven) ||
        (f.value_bytes && mode == FRAME_AEAD && f.value_bytes <= SEAL_TAG_AEAD_BYTES))
        return VERDICT_BOUND;
    if (bytes < f.head_bytes)
        return VERDICT_MORE;

    /* The client's random is known from its first frame on, the server's from its
     * challenge. A frame made with another was never meant for this connection. */
    bool known = l->proven || !l->server;
    if (known && memcmp(f.random, l->random_peer, sizeof f.random) != 0)
        return VERDICT_TAG;
    v = seal_open_head(l->session_in, &f, in, bind_randoms(l, f.random, randoms));
    if (v != VERDICT_OK)
        return v;

    if (f.sender_id == 0 || f.sender_id == l->self_id || (known && f.sender_id != l->peer_id))
        return VERDICT_SENDER;
    if (f.receiver_id != l->self_id)
        return VERDICT_RECEIVER;
    if (!frame_is_timely(&f, wall_ms))
        return VERDICT_CLOCK;
    uint64_t last = f.value_bytes ? f.counter + 1 : f.counter;
    if (f.counter <= l->counter_in || last < f.counter)
        return VERDICT_REPLAY;

    memset(m, 0, sizeof *m);
    m->kind = f.kind;
    m->request_id = f.request_id;
    m->sender_id = f.sender_id;
    m->value_bytes = f.value_bytes;
    if (f.value_bytes && mode == FRAME_AEAD)
        m->value_bytes -= SEAL_TAG_AEAD_BYTES;
    struct span fields = span_of(in + FRAME_FIXED_BYTES, f.head_bytes - FRAME_FIXED_BYTES - tag);
    if (!message_decode(fields, f.version > FRAME_VERSION, f.value_bytes && mode == FRAME_HMAC, m))
        return VERDICT_FIELDS;

    l->counter_in = last;
    l->peer_id = f.sender_id;
    memcpy(l->random_peer, f.random, sizeof l->random_peer);
    l->proven = true;
    *head_bytes = f.head_bytes;
    *wire_bytes = f.value_bytes;
    return VERDICT_OK;
}

enum verdict link_open_value(struct link *l, const struct message *m, uint8_t *at,
                             size_t wire_bytes)
{
    uint8_t digest[DIGEST_BYTES];

    if (l->seal->mode == FRAME_AEAD)
        return seal_open_value(l->session_in, at, wire_bytes);
    if (wire_bytes != m->value_bytes)
        return VERDICT_VALUE;
    seal_digest(span_of(at, wire_bytes), digest);
    return seal_equal(digest, m->digest, sizeof digest) ? VERDICT_OK : VERDICT_VALUE;
}
