/* One connection's two ends: challenge, proof, frames with and without values, and what a
 * stranger, an eavesdropper and a broken clock can do about it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/err.h"
#include "core/link.h"
#include "core/mem.h"
#include "tests/openssl_mem.h"

#define NOW UINT64_C(1700000000000)
#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define OTHER_SECRET "100102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static const enum frame_mode modes[] = {FRAME_HMAC, FRAME_AEAD};

/* Two ends that have not met. */
struct pair {
    struct seal client_seal, server_seal;
    struct link client, server;
};

/* What was sent: a head and the value behind it. */
struct sent {
    uint8_t head[HEAD_BYTES_MAX];
    size_t head_bytes;
    struct blob *value;
};

static void pair_init(struct pair *p, enum frame_mode mode, uint8_t salt)
{
    uint8_t ours[FRAME_RANDOM_BYTES] = {1, salt}, theirs[FRAME_RANDOM_BYTES] = {2, salt};
    assert_null(seal_init(&p->client_seal, span_text(SECRET), span_text("x"), mode));
    assert_null(seal_init(&p->server_seal, span_text(SECRET), span_text("x"), mode));
    assert_int_equal(link_init(&p->client, &p->client_seal, 1, false, ours), 0);
    assert_int_equal(link_init(&p->server, &p->server_seal, 2, true, theirs), 0);
}

static void pair_deinit(struct pair *p)
{
    link_deinit(&p->client);
    link_deinit(&p->server);
    seal_deinit(&p->client_seal);
    seal_deinit(&p->server_seal);
}

static struct sent send_at(struct link *from, uint8_t kind, struct span value, uint64_t wall_ms)
{
    struct message m = {
        .kind = kind, .request_id = 77, .key = span_text("key"), .ttl_ms = 1234,
    };
    struct blob *b = value.bytes ? blob_copy(value) : NULL;
    struct sent s;
    int n = link_seal(from, &m, b, wall_ms, s.head, &s.value);

    assert_true(n > 0);
    s.head_bytes = (size_t)n;
    blob_unref(b);
    return s;
}

static struct sent send_frame(struct link *from, uint8_t kind, struct span value)
{
    return send_at(from, kind, value, NOW);
}

/* Opens copies, so that what was sent can be tried again. */
static enum verdict open_at(struct link *to, const struct sent *s, uint64_t wall_ms,
                            struct message *m, struct span *value)
{
    static uint8_t head[HEAD_BYTES_MAX], bytes[1 << 16];
    size_t head_bytes, wire_bytes;

    memcpy(head, s->head, s->head_bytes);
    enum verdict v = link_open(to, head, s->head_bytes, wall_ms, m, &head_bytes, &wire_bytes);
    if (v != VERDICT_OK)
        return v;
    assert_int_equal(head_bytes, s->head_bytes);
    assert_int_equal(wire_bytes, s->value ? s->value->bytes : 0);
    if (wire_bytes) {
        memcpy(bytes, s->value->at, wire_bytes);
        v = link_open_value(to, m, bytes, wire_bytes);
    }
    if (value)
        *value = span_of(bytes, m->value_bytes);
    return v;
}

static enum verdict open_frame(struct link *to, const struct sent *s)
{
    struct message m;
    return open_at(to, s, NOW, &m, NULL);
}

static void meet(struct pair *p)
{
    uint8_t challenge[LINK_CHALLENGE_BYTES];

    link_challenge(&p->server, challenge);
    assert_int_equal(link_challenged(&p->client, challenge), VERDICT_OK);
    struct sent hello = send_frame(&p->client, MESSAGE_HELLO, SPAN_NONE);
    assert_int_equal(open_frame(&p->server, &hello), VERDICT_OK);
    struct sent welcome = send_frame(&p->server, MESSAGE_WELCOME, SPAN_NONE);
    assert_int_equal(open_frame(&p->client, &welcome), VERDICT_OK);
}

static void two_ends_meet_and_talk(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        struct message m;
        struct span value;
        uint8_t challenge[LINK_CHALLENGE_BYTES];

        pair_init(&p, modes[i], 0);
        assert_false(link_ready(&p.client));
        assert_false(link_ready(&p.server));
        link_challenge(&p.server, challenge);
        assert_int_equal(link_challenged(&p.client, challenge), VERDICT_OK);
        assert_true(link_ready(&p.client));
        assert_true(p.client.peer_id == 2);
        assert_false(p.client.proven);      /* a challenge proves nothing */

        struct sent s = send_frame(&p.client, MESSAGE_HELLO, SPAN_NONE);
        assert_int_equal(open_at(&p.server, &s, NOW, &m, NULL), VERDICT_OK);
        assert_int_equal(m.kind, MESSAGE_HELLO);
        assert_true(p.server.proven && link_ready(&p.server));
        assert_true(p.server.peer_id == 1);

        s = send_frame(&p.server, MESSAGE_WELCOME, SPAN_NONE);
        assert_int_equal(open_at(&p.client, &s, NOW, &m, NULL), VERDICT_OK);
        assert_true(p.client.proven);

        for (unsigned turn = 0; turn < 3; turn++) {
            s = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
            assert_int_equal(open_at(&p.server, &s, NOW, &m, NULL), VERDICT_OK);
            assert_true(m.request_id == 77 && m.sender_id == 1 && m.value_bytes == 0);
            assert_true(span_equal(m.key, span_text("key")));
            assert_int_equal(m.ttl_ms, 1234);
            s = send_frame(&p.server, MESSAGE_VALUE, span_text("the value"));
            bool readable = span_equal(blob_span(s.value), span_text("the value"));
            assert_int_equal(readable, modes[i] == FRAME_HMAC);
            assert_int_equal(open_at(&p.client, &s, NOW, &m, &value), VERDICT_OK);
            assert_int_equal(m.value_bytes, 9);
            assert_true(span_equal(value, span_text("the value")));
            blob_unref(s.value);
        }
        pair_deinit(&p);
    }
}

static void a_clear_value_is_sent_from_where_it_lies(void **state)
{
    struct pair p;
    struct message m = {.kind = MESSAGE_PUSH};
    uint8_t head[HEAD_BYTES_MAX];
    struct blob *value = blob_copy(span_text("value")), *wire;

    (void)state;
    pair_init(&p, FRAME_HMAC, 0);
    meet(&p);
    assert_true(link_seal(&p.client, &m, value, NOW, head, &wire) > 0);
    assert_ptr_equal(wire, value);
    assert_int_equal(value->refs, 2);
    assert_true(value->digested);       /* hashed once, however often it is sent */
    blob_unref(wire);

    struct blob *empty = blob_copy(SPAN_NONE);
    assert_true(link_seal(&p.client, &m, empty, NOW, head, &wire) > 0);
    assert_null(wire);
    assert_int_equal(m.value_bytes, 0);
    blob_unref(empty);
    blob_unref(value);
    pair_deinit(&p);
}

static void heads_arrive_in_pieces(void **state)
{
    uint8_t buf[HEAD_BYTES_MAX + 10];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        struct message m;
        size_t head_bytes, wire_bytes;
        pair_init(&p, modes[i], 0);
        meet(&p);
        struct sent s = send_frame(&p.client, MESSAGE_PUSH, span_text("value"));
        memcpy(buf, s.head, s.head_bytes);
        memset(buf + s.head_bytes, 0xee, 10);
        for (size_t n = 0; n < s.head_bytes; n++)
            assert_int_equal(link_open(&p.server, buf, n, NOW, &m, &head_bytes, &wire_bytes),
                             VERDICT_MORE);
        assert_int_equal(link_open(&p.server, buf, s.head_bytes + 10, NOW, &m, &head_bytes,
                                   &wire_bytes), VERDICT_OK);
        assert_int_equal(head_bytes, s.head_bytes);     /* and not a byte more */
        blob_unref(s.value);
        pair_deinit(&p);
    }
}

static void challenges_say_who_is_there(void **state)
{
    static const struct { size_t at; uint8_t byte; enum verdict verdict; } table[] = {
        {0, 'p', VERDICT_GARBAGE},
        {2, 'H', VERDICT_GARBAGE},
        {3, 0, VERDICT_VERSION},
        {3, FRAME_VERSION + 1, VERDICT_OK},
        {11, 0, VERDICT_GARBAGE},           /* id 0 is nobody */
        {11, 1, VERDICT_SENDER},            /* our own id: we dialled ourselves */
        {11, 9, VERDICT_OK},
        {28, 0xff, VERDICT_LABEL},
        {36, FRAME_AEAD, VERDICT_MODE},
        {36, 2, VERDICT_GARBAGE},
    };
    uint8_t challenge[LINK_CHALLENGE_BYTES];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct pair p;
        pair_init(&p, FRAME_HMAC, 0);
        link_challenge(&p.server, challenge);
        assert_int_not_equal(challenge[table[i].at], table[i].byte);
        challenge[table[i].at] = table[i].byte;
        assert_int_equal(link_challenged(&p.client, challenge), table[i].verdict);
        assert_int_equal(link_ready(&p.client), table[i].verdict == VERDICT_OK);
        pair_deinit(&p);
    }
}

static void every_bit_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        pair_init(&p, modes[i], 0);
        meet(&p);
        struct sent s = send_frame(&p.client, MESSAGE_PUSH, span_text("value")), bad = s;
        for (size_t at = 0; at < s.head_bytes; at++) {
            bad.head[at] ^= (uint8_t)(1u << at % 8);
            assert_int_not_equal(open_frame(&p.server, &bad), VERDICT_OK);
            bad.head[at] = s.head[at];
        }
        assert_int_equal(open_frame(&p.server, &s), VERDICT_OK);
        blob_unref(s.value);

        for (size_t at = 0; at < 5 + (modes[i] == FRAME_AEAD) * SEAL_TAG_AEAD_BYTES; at++) {
            s = send_frame(&p.client, MESSAGE_PUSH, span_text("value"));
            /* A blob of our own: the clear one is shared with nobody else here. */
            ((uint8_t *)s.value->at)[at] ^= 1;
            assert_int_equal(open_frame(&p.server, &s), VERDICT_VALUE);
            blob_unref(s.value);
        }
        pair_deinit(&p);
    }
}

static void a_value_does_not_pass_for_anothers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        pair_init(&p, modes[i], 0);
        meet(&p);
        struct sent a = send_frame(&p.client, MESSAGE_PUSH, span_text("one"));
        struct sent b = send_frame(&p.client, MESSAGE_PUSH, span_text("two"));
        struct sent swapped = a;
        swapped.value = b.value;
        assert_int_equal(open_frame(&p.server, &swapped), VERDICT_VALUE);
        blob_unref(a.value);
        blob_unref(b.value);
        pair_deinit(&p);
    }
}

static void counters_rise_strictly(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        pair_init(&p, modes[i], 0);
        meet(&p);
        struct sent first = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
        struct sent with_value = send_frame(&p.client, MESSAGE_PUSH, span_text("value"));
        struct sent third = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
        assert_int_equal(open_frame(&p.server, &first), VERDICT_OK);
        assert_int_equal(open_frame(&p.server, &first), VERDICT_REPLAY);
        assert_int_equal(open_frame(&p.server, &third), VERDICT_OK);        /* a gap is fine */
        assert_int_equal(open_frame(&p.server, &with_value), VERDICT_REPLAY);
        assert_int_equal(open_frame(&p.server, &first), VERDICT_REPLAY);
        blob_unref(with_value.value);
        pair_deinit(&p);
    }
}

/* The value is sealed under the counter after its head's: a head may not claim it. */
static void a_head_cannot_take_its_predecessors_value_counter(void **state)
{
    struct pair p;

    (void)state;
    pair_init(&p, FRAME_AEAD, 0);
    meet(&p);
    struct sent a = send_frame(&p.client, MESSAGE_PUSH, span_text("value"));
    p.client.counter_out--;
    struct sent b = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
    assert_int_equal(open_frame(&p.server, &a), VERDICT_OK);
    assert_int_equal(open_frame(&p.server, &b), VERDICT_REPLAY);
    blob_unref(a.value);
    pair_deinit(&p);
}

/* W3: a frame is worthless on any other connection, also one between the same two. */
static void frames_belong_to_their_connection(void **state)
{
    uint8_t challenge[LINK_CHALLENGE_BYTES];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p, q;
        pair_init(&p, modes[i], 1);
        pair_init(&q, modes[i], 2);
        link_challenge(&p.server, challenge);
        assert_int_equal(link_challenged(&p.client, challenge), VERDICT_OK);
        struct sent hello = send_frame(&p.client, MESSAGE_HELLO, SPAN_NONE);
        assert_int_equal(open_frame(&p.server, &hello), VERDICT_OK);
        assert_int_equal(open_frame(&q.server, &hello), VERDICT_TAG);   /* not yet met */
        assert_false(q.server.proven);
        assert_int_equal(open_frame(&p.client, &hello), VERDICT_TAG);   /* reflected */
        meet(&q);
        assert_int_equal(open_frame(&q.server, &hello), VERDICT_TAG);
        struct sent answer = send_frame(&p.server, MESSAGE_VALUE, SPAN_NONE);
        assert_int_equal(open_frame(&q.client, &answer), VERDICT_TAG);
        assert_int_equal(open_frame(&p.server, &answer), VERDICT_TAG);  /* reflected */
        assert_int_equal(open_frame(&p.client, &answer), VERDICT_OK);
        pair_deinit(&p);
        pair_deinit(&q);
    }
}

/* Who has recorded a whole conversation plays the server to the client's next connection,
 * challenge and all, or the client to the server's. */
static void a_recording_convinces_nobody(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p, q;
        uint8_t challenge[LINK_CHALLENGE_BYTES];
        struct sent from_client[2], from_server[2];

        pair_init(&p, modes[i], 1);
        link_challenge(&p.server, challenge);
        assert_int_equal(link_challenged(&p.client, challenge), VERDICT_OK);
        from_client[0] = send_frame(&p.client, MESSAGE_HELLO, SPAN_NONE);
        assert_int_equal(open_frame(&p.server, &from_client[0]), VERDICT_OK);
        from_client[1] = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
        from_server[0] = send_frame(&p.server, MESSAGE_WELCOME, SPAN_NONE);
        from_server[1] = send_frame(&p.server, MESSAGE_VALUE, SPAN_NONE);

        pair_init(&q, modes[i], 2);
        assert_int_equal(link_challenged(&q.client, challenge), VERDICT_OK);
        for (unsigned n = 0; n < 2; n++) {
            assert_int_equal(open_frame(&q.client, &from_server[n]), VERDICT_TAG);
            assert_int_equal(open_frame(&q.server, &from_client[n]), VERDICT_TAG);
        }
        assert_false(q.client.proven || q.server.proven);
        pair_deinit(&p);
        pair_deinit(&q);
    }
}

static void receiver_and_sender_are_checked(void **state)
{
    struct pair p;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        pair_init(&p, modes[i], 0);
        meet(&p);
        p.client.peer_id = 3;
        struct sent s = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
        assert_int_equal(open_frame(&p.server, &s), VERDICT_RECEIVER);
        p.client.peer_id = 2;
        for (uint64_t id = 0; id < 4; id += id == 0 ? 2 : 1) {  /* nobody, the server, a third */
            p.client.self_id = id;
            s = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
            assert_int_equal(open_frame(&p.server, &s), VERDICT_SENDER);
        }
        p.client.self_id = 1;
        s = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
        assert_int_equal(open_frame(&p.server, &s), VERDICT_OK);
        pair_deinit(&p);
    }
}

/* One random a connection: with two, counters could repeat. */
static void a_peer_keeps_its_random(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        pair_init(&p, modes[i], 0);
        meet(&p);
        p.client.random_self[5] ^= 1;
        struct sent s = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
        assert_int_equal(open_frame(&p.server, &s), VERDICT_TAG);
        p.client.random_self[5] ^= 1;
        s = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
        assert_int_equal(open_frame(&p.server, &s), VERDICT_OK);
        pair_deinit(&p);
    }
}

/* The first frame names who comes; not even it may name the server. */
static void nobody_begins_as_the_server_itself(void **state)
{
    uint8_t challenge[LINK_CHALLENGE_BYTES];
    struct pair p;

    (void)state;
    pair_init(&p, FRAME_HMAC, 0);
    link_challenge(&p.server, challenge);
    assert_int_equal(link_challenged(&p.client, challenge), VERDICT_OK);
    p.client.self_id = 2;
    struct sent s = send_frame(&p.client, MESSAGE_HELLO, SPAN_NONE);
    assert_int_equal(open_frame(&p.server, &s), VERDICT_SENDER);
    assert_false(p.server.proven || link_ready(&p.server));
    pair_deinit(&p);
}

static void clocks_may_differ_by_thirty_seconds(void **state)
{
    static const struct { int64_t off_ms; enum verdict verdict; } table[] = {
        {-31000, VERDICT_CLOCK}, {-29000, VERDICT_OK}, {29000, VERDICT_OK}, {31000, VERDICT_CLOCK},
    };
    struct pair p;
    struct message m;

    (void)state;
    pair_init(&p, FRAME_HMAC, 0);
    meet(&p);
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct sent s = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
        assert_int_equal(open_at(&p.server, &s, NOW + (uint64_t)table[i].off_ms, &m, NULL),
                         table[i].verdict);
    }
    pair_deinit(&p);
}

static void another_cluster_gets_nowhere(void **state)
{
    static const struct { const char *secret, *label; bool other_mode; enum verdict verdict; }
    table[] = {
        {OTHER_SECRET, "x", false, VERDICT_TAG},
        {SECRET, "y", false, VERDICT_LABEL},
        {SECRET, "x", true, VERDICT_MODE},
    };

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(modes); m++) {
        for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
            struct pair p;
            struct seal stranger;
            struct link intruder;
            uint8_t random[FRAME_RANDOM_BYTES] = {8}, challenge[LINK_CHALLENGE_BYTES];

            pair_init(&p, modes[m], 0);
            assert_null(seal_init(&stranger, span_text(table[i].secret), span_text(table[i].label),
                                  table[i].other_mode ? modes[1 - m] : modes[m]));
            assert_int_equal(link_init(&intruder, &stranger, 9, false, random), 0);
            link_challenge(&p.server, challenge);
            assert_int_equal(link_challenged(&intruder, challenge),
                             i ? table[i].verdict : VERDICT_OK);
            intruder.peer_id = 2;       /* it goes on all the same */
            memcpy(intruder.random_peer, challenge + 12, FRAME_RANDOM_BYTES);
            struct sent s = send_frame(&intruder, MESSAGE_HELLO, SPAN_NONE);
            assert_int_equal(open_frame(&p.server, &s), table[i].verdict);
            memcpy(s.head + 16, p.server_seal.label, FRAME_LABEL_BYTES);
            s.head[3] = (uint8_t)modes[m];
            s.head[5] = p.server_seal.keys[0].id;
            assert_int_equal(open_frame(&p.server, &s), VERDICT_TAG);
            assert_false(p.server.proven || link_ready(&p.server));
            link_deinit(&intruder);
            pair_deinit(&p);
        }
    }
}

/* W1: a connection that has not proven itself may not send a value, well before its tag
 * is there to be checked. */
static void a_stranger_sends_no_value(void **state)
{
    uint8_t challenge[LINK_CHALLENGE_BYTES];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        struct message m;
        size_t head_bytes, wire_bytes;
        pair_init(&p, modes[i], 0);
        link_challenge(&p.server, challenge);
        assert_int_equal(link_challenged(&p.client, challenge), VERDICT_OK);
        struct sent s = send_frame(&p.client, MESSAGE_PUSH, span_text("value"));
        assert_int_equal(link_open(&p.server, s.head, FRAME_FIXED_BYTES, NOW, &m, &head_bytes,
                                   &wire_bytes), VERDICT_BOUND);
        assert_int_equal(open_frame(&p.server, &s), VERDICT_BOUND);
        blob_unref(s.value);
        pair_deinit(&p);
    }
}

static void values_up_to_the_frame_bound(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        size_t tag = modes[i] == FRAME_AEAD ? 2 * SEAL_TAG_AEAD_BYTES
                                            : SEAL_TAG_HMAC_BYTES + DIGEST_BYTES;
        size_t fits = FRAME_BYTES_MAX - FRAME_FIXED_BYTES - 36 - tag;
        struct pair p;
        struct message m = {.kind = MESSAGE_PUSH}, got;
        uint8_t head[HEAD_BYTES_MAX];
        size_t head_bytes, wire_bytes;
        struct blob *wire;

        pair_init(&p, modes[i], 0);
        meet(&p);
        for (size_t over = 0; over < 2; over++) {
            struct blob *value = blob_new(fits + over);
            memset(blob_fill(value), 5, value->bytes);
            uint64_t counter = p.client.counter_out;
            int n = link_seal(&p.client, &m, value, NOW, head, &wire);
            blob_unref(value);
            if (over) {
                assert_int_equal(n, ERR_TOO_BIG);
                assert_null(wire);
                assert_true(p.client.counter_out == counter);
                continue;
            }
            assert_true(n > 0);
            assert_int_equal((size_t)n + wire->bytes, FRAME_BYTES_MAX);
            assert_int_equal(link_open(&p.server, head, (size_t)n, NOW, &got, &head_bytes,
                                       &wire_bytes), VERDICT_OK);
            assert_int_equal(wire_bytes, wire->bytes);
            assert_int_equal(link_open_value(&p.server, &got, blob_fill(wire), wire_bytes),
                             VERDICT_OK);
            assert_int_equal(wire->at[fits - 1], 5);
            blob_unref(wire);
        }
        pair_deinit(&p);
    }
}

static void keys_up_to_their_bound(void **state)
{
    static uint8_t key[KEY_BYTES_MAX + 1];
    uint8_t head[HEAD_BYTES_MAX];
    struct blob *wire;
    struct pair p;

    (void)state;
    pair_init(&p, FRAME_HMAC, 0);
    meet(&p);
    struct message m = {.kind = MESSAGE_ASK, .key = span_of(key, KEY_BYTES_MAX)};
    assert_true(link_seal(&p.client, &m, NULL, NOW, head, &wire) > 0);
    m.key.bytes++;
    assert_int_equal(link_seal(&p.client, &m, NULL, NOW, head, &wire), ERR_TOO_BIG);
    pair_deinit(&p);
}

static void counters_end_rather_than_wrap(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        struct message m = {.kind = MESSAGE_ASK};
        uint8_t head[HEAD_BYTES_MAX];
        struct blob *wire, *value = blob_copy(span_text("v"));

        pair_init(&p, modes[i], 0);
        meet(&p);
        p.client.counter_out = UINT64_MAX - 1;
        assert_int_equal(link_seal(&p.client, &m, value, NOW, head, &wire), ERR_FULL);
        struct sent last = send_frame(&p.client, MESSAGE_ASK, SPAN_NONE);
        assert_int_equal(open_frame(&p.server, &last), VERDICT_OK);
        for (unsigned n = 0; n < 3; n++)
            assert_int_equal(link_seal(&p.client, &m, NULL, NOW, head, &wire), ERR_FULL);
        assert_true(p.client.counter_out == UINT64_MAX);
        blob_unref(value);
        pair_deinit(&p);
    }
}

/* A sender that does not care: the value behind the last counter would have none. */
static void a_value_behind_the_last_counter_is_refused(void **state)
{
    struct pair p;
    struct frame f;

    (void)state;
    pair_init(&p, FRAME_HMAC, 0);
    meet(&p);
    struct sent s = send_frame(&p.client, MESSAGE_PUSH, span_text("value"));
    memset(s.head + 56, 0xff, 8);
    assert_int_equal(frame_decode(span_of(s.head, s.head_bytes), &f), VERDICT_OK);
    assert_true(f.counter == UINT64_MAX);
    uint8_t randoms[2 * FRAME_RANDOM_BYTES];
    memcpy(randoms, p.client.random_self, FRAME_RANDOM_BYTES);
    memcpy(randoms + FRAME_RANDOM_BYTES, p.server.random_self, FRAME_RANDOM_BYTES);
    assert_int_equal(seal_head(p.client.session_out, &f, s.head,
                               span_of(randoms, sizeof randoms)), 0);
    assert_int_equal(open_frame(&p.server, &s), VERDICT_REPLAY);
    blob_unref(s.value);
    pair_deinit(&p);
}

static void unknown_kinds_are_not_an_offence(void **state)
{
    struct pair p;
    struct message m;

    (void)state;
    pair_init(&p, FRAME_HMAC, 0);
    meet(&p);
    struct sent s = send_frame(&p.client, 222, SPAN_NONE);
    assert_int_equal(open_at(&p.server, &s, NOW, &m, NULL), VERDICT_OK);
    assert_int_equal(m.kind, 222);      /* answered "unsupported" by who asked to open it (W8) */
    pair_deinit(&p);
}

static void every_allocation_may_fail(void **state)
{
    uint8_t random[FRAME_RANDOM_BYTES] = {1}, head[HEAD_BYTES_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        struct link l;
        pair_init(&p, modes[i], 0);
        meet(&p);

        mem_fail_after(-1);
        assert_int_equal(link_init(&l, &p.client_seal, 1, false, random), 0);
        long needed = mem_fail_after(-1), refused = 0;
        link_deinit(&l);
        for (long n = 0; n < needed; n++) {
            mem_fail_after(n);
            int rc = link_init(&l, &p.client_seal, 1, false, random);
            mem_fail_after(-1);
            refused += rc == ERR_NOMEM;
            if (rc == 0)
                link_deinit(&l);
        }
        assert_true(refused >= 2);

        /* Sealing fails cleanly or not at all, and the connection goes on. */
        struct blob *value = blob_copy(span_text("value")), *wire;
        for (long n = 0; n < 4; n++) {
            struct message m = {.kind = MESSAGE_PUSH};
            mem_fail_after(n);
            int rc = link_seal(&p.client, &m, value, NOW, head, &wire);
            mem_fail_after(-1);
            assert_int_equal(rc < 0, modes[i] == FRAME_AEAD && n == 0);
            assert_int_equal(wire == NULL, rc < 0);
            if (rc < 0)
                assert_int_equal(rc, ERR_NOMEM);
            blob_unref(wire);
        }
        assert_int_equal(value->refs, 1);
        blob_unref(value);
        struct sent s = send_frame(&p.client, MESSAGE_PUSH, span_text("value"));
        assert_int_equal(open_frame(&p.server, &s), VERDICT_OK);
        blob_unref(s.value);
        pair_deinit(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ends_meet_and_talk),
        cmocka_unit_test(a_clear_value_is_sent_from_where_it_lies),
        cmocka_unit_test(heads_arrive_in_pieces),
        cmocka_unit_test(challenges_say_who_is_there),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(a_value_does_not_pass_for_anothers),
        cmocka_unit_test(counters_rise_strictly),
        cmocka_unit_test(a_head_cannot_take_its_predecessors_value_counter),
        cmocka_unit_test(frames_belong_to_their_connection),
        cmocka_unit_test(a_recording_convinces_nobody),
        cmocka_unit_test(receiver_and_sender_are_checked),
        cmocka_unit_test(a_peer_keeps_its_random),
        cmocka_unit_test(nobody_begins_as_the_server_itself),
        cmocka_unit_test(clocks_may_differ_by_thirty_seconds),
        cmocka_unit_test(another_cluster_gets_nowhere),
        cmocka_unit_test(a_stranger_sends_no_value),
        cmocka_unit_test(values_up_to_the_frame_bound),
        cmocka_unit_test(keys_up_to_their_bound),
        cmocka_unit_test(counters_end_rather_than_wrap),
        cmocka_unit_test(a_value_behind_the_last_counter_is_refused),
        cmocka_unit_test(unknown_kinds_are_not_an_offence),
        cmocka_unit_test(every_allocation_may_fail),
    };
    if (!openssl_use_mem() || sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
