/* A stream of bytes at one end of a connection, as a socket would bring it.
 *
 * Nothing random ever verifies, so the first byte may say that a holder of the secret
 * sealed it: then the parts of the head that must be right are made right and the head is
 * sealed, and what lies behind the tag is as hostile as the input.
 *   bit 0  encrypted          bit 1  the peer has proven itself before
 *   bit 2  sealed             bit 3  version, kind and lengths as in the input
 *   bit 4  the value fits its digest (clear mode)
 */
#include <stdlib.h>

#include "core/link.h"

#define SECRET_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define SECRET_B "100102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define NOW UINT64_C(1700000000000)
#define SELF 2u
#define PEER 1u

static const uint8_t random_self[FRAME_RANDOM_BYTES] = {2}, random_peer[FRAME_RANDOM_BYTES] = {1};

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

static struct link *server_of(enum frame_mode mode, bool proven)
{
    static struct seal seals[2];
    static struct link links[2];
    struct seal *seal = &seals[mode];
    struct link *l = &links[mode];

    if (seal->key_count == 0) {
        if (seal_init(seal, span_text(SECRET_A "," SECRET_B), span_text("x"), mode) ||
            link_init(l, seal, SELF, true, random_self) != 0)
            abort();
    }
    l->counter_in = 0;
    l->proven = proven;
    l->peer_id = proven ? PEER : 0;
    memset(l->random_peer, 0, sizeof l->random_peer);
    if (proven)
        memcpy(l->random_peer, random_peer, sizeof random_peer);
    return l;
}

/* Make the head at `at` one that the peer has sealed. Its bytes, or 0 if there are too few. */
static size_t seal_as_peer(struct link *l, uint8_t *at, size_t bytes, bool free_lengths,
                           bool true_digest)
{
    size_t tag = seal_tag_bytes(l->seal->mode);
    uint8_t bound[2 * FRAME_RANDOM_BYTES];
    struct frame f;

    if (bytes < FRAME_FIXED_BYTES + tag)
        return 0;
    uint16_t asked = (uint16_t)(at[6] << 8 | at[7]);
    size_t room = min_size(bytes, HEAD_BYTES_MAX) - FRAME_FIXED_BYTES - tag;
    f = (struct frame){
        .version = free_lengths ? at[2] : FRAME_VERSION,
        .mode = (uint8_t)l->seal->mode,
        .kind = at[4],
        .key_id = l->seal->keys[0].id,
        .head_bytes = (uint16_t)(FRAME_FIXED_BYTES + tag + (free_lengths ? asked % (room + 1) : room)),
        .sender_id = PEER,
        .receiver_id = SELF,
        .counter = 1,
        .sent_ms = NOW,
    };
    size_t behind = bytes - f.head_bytes;
    f.value_bytes = free_lengths ? (uint32_t)(at[9] << 16 | at[10] << 8 | at[11]) % FRAME_BYTES_MAX
                                 : (uint32_t)behind;
    if (f.value_bytes > FRAME_BYTES_MAX - f.head_bytes)
        f.value_bytes = 0;
    memcpy(f.label, l->seal->label, sizeof f.label);
    memcpy(f.random, random_peer, sizeof f.random);
    frame_encode(&f, at);
    if (true_digest && f.value_bytes && f.value_bytes <= behind &&
        f.head_bytes >= FRAME_FIXED_BYTES + tag + DIGEST_BYTES)
        seal_digest(span_of(at + f.head_bytes, f.value_bytes), at + f.head_bytes - tag - DIGEST_BYTES);
    memcpy(bound, random_peer, FRAME_RANDOM_BYTES);
    memcpy(bound + FRAME_RANDOM_BYTES, random_self, FRAME_RANDOM_BYTES);
    if (seal_head(l->session_out, &f, at, span_of(bound, sizeof bound)) != 0)
        abort();
    return f.head_bytes;
}

static void check_message(const struct message *m, const uint8_t *head, size_t head_bytes)
{
    const struct span spans[] = {m->key, m->channel, m->loader};

    for (size_t i = 0; i < ARRAY_COUNT(spans); i++) {
        if (spans[i].bytes &&
            (spans[i].at < head || spans[i].at + spans[i].bytes > head + head_bytes))
            abort();
    }
    if (m->key.bytes > KEY_BYTES_MAX || m->chain_count > CHAIN_MAX ||
        m->value_type >= VALUE_TYPE_COUNT || m->value_bytes > FRAME_BYTES_MAX)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    if (bytes == 0)
        return 0;
    uint8_t how = in[0];
    struct link *l = server_of(how & 1 ? FRAME_AEAD : FRAME_HMAC, how & 2);
    bool was_proven = l->proven;
    /* A block of exactly these bytes, so that a read past them is seen. */
    uint8_t *buf = malloc(bytes - 1 ? bytes - 1 : 1);
    if (!buf)
        abort();
    bytes--;
    memcpy(buf, in + 1, bytes);
    size_t sealed = how & 4 ? seal_as_peer(l, buf, bytes, how & 8, how & 16) : 0;

    for (size_t at = 0; at <= bytes;) {
        struct message m;
        size_t head_bytes, wire_bytes;
        uint64_t counter = l->counter_in;
        enum verdict v = link_open(l, buf + at, bytes - at, NOW, &m, &head_bytes, &wire_bytes);
        if (v != VERDICT_OK) {
            if (l->counter_in != counter || v >= VERDICT_COUNT ||
                (v == VERDICT_MORE && bytes - at >= HEAD_BYTES_MAX))
                abort();
            /* A head that the peer sealed fails only for what is in it. */
            if (sealed && at == 0 && v != VERDICT_BOUND && v != VERDICT_FIELDS &&
                v != VERDICT_VERSION)
                abort();
            break;
        }
        check_message(&m, buf + at, head_bytes);
        if (!sealed || at != 0 || head_bytes != sealed || l->counter_in <= counter ||
            (wire_bytes && !was_proven))
            abort();    /* nobody else has the secret */
        at += head_bytes;
        if (wire_bytes > bytes - at)
            break;
        if (wire_bytes) {
            v = link_open_value(l, &m, buf + at, wire_bytes);
            if (v != VERDICT_OK && v != VERDICT_VALUE)
                abort();
            at += wire_bytes;
            if (v != VERDICT_OK)
                break;
        }
    }
    if (!was_proven && !sealed && (l->proven || link_ready(l)))
        abort();
    free(buf);
    return 0;
}
