/* Whole frames against those of an independent implementation, written from
 * docs/PROTOCOL.md (tests/vectors/make_frames.py): our C makes exactly these bytes, and
 * opens them. Bytes are hexadecimal text; numbers that are 0 are left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/datagrams.h"
#include "core/link.h"
#include "tests/hex.h"

struct challenge_vector {
    const char *label, *client_random, *server_random, *challenge;
    uint64_t mode, server_id;
};

struct frame_vector {
    const char *name, *label, *secrets, *client_random, *server_random;
    const char *key, *channel, *loader;         /* text */
    const char *value, *head, *wire_value;
    uint64_t mode, from_server, kind, sender_id, receiver_id, counter, sent_ms, request_id;
    uint64_t flags, value_type, budget_ms, load_timeout_ms, ttl_ms, stale_ms, age_ms, delete_id;
    uint64_t chain_count, chain[CHAIN_MAX];
};

struct datagram_vector {
    const char *label, *secrets, *random, *payload, *packet;
    uint64_t mode, sender_id, receiver_id, counter, sent_ms, pad_to;
};

struct rest_vector {
    const char *label, *secrets, *name, *value, *nonce, *sealed;
};

#include "tests/frame_vectors.h"

static struct span bytes_of(const char *hex, uint8_t *out, size_t room)
{
    return span_of(out, hex ? unhex(hex, out, room) : 0);
}

static struct span text_of(const char *text) { return text ? span_text(text) : SPAN_NONE; }

static struct seal seal_of(const char *secrets, const char *label, uint64_t mode)
{
    struct seal s;
    assert_null(seal_init(&s, span_text(secrets), span_text(label), (enum frame_mode)mode));
    return s;
}

static void challenges(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(challenge_vectors); i++) {
        const struct challenge_vector *v = &challenge_vectors[i];
        uint8_t ours[16], theirs[16], expected[64], out[LINK_CHALLENGE_BYTES];
        struct seal seal = seal_of(frame_vectors[0].secrets, v->label, v->mode);
        struct link server, client;

        bytes_of(v->client_random, ours, sizeof ours);
        bytes_of(v->server_random, theirs, sizeof theirs);
        assert_int_equal(link_init(&server, &seal, v->server_id, true, theirs), 0);
        assert_int_equal(link_init(&client, &seal, 1, false, ours), 0);
        link_challenge(&server, out);
        assert_int_equal(bytes_of(v->challenge, expected, sizeof expected).bytes, sizeof out);
        assert_memory_equal(out, expected, sizeof out);
        assert_int_equal(link_challenged(&client, expected), VERDICT_OK);
        assert_true(client.peer_id == v->server_id);
        assert_memory_equal(client.random_peer, theirs, sizeof theirs);
        link_deinit(&server);
        link_deinit(&client);
    }
}

/* The two ends of the vector's connection, as they stand just before its frame. */
static void ends(const struct frame_vector *v, const struct seal *seal, struct link *sender,
                 struct link *receiver)
{
    uint8_t client[16], server[16];
    bool from_server = v->from_server != 0;

    bytes_of(v->client_random, client, sizeof client);
    bytes_of(v->server_random, server, sizeof server);
    assert_int_equal(link_init(sender, seal, v->sender_id, from_server,
                               from_server ? server : client), 0);
    assert_int_equal(link_init(receiver, seal, v->receiver_id, !from_server,
                               from_server ? client : server), 0);
    sender->peer_id = v->receiver_id;
    sender->counter_out = v->counter - 1;
    memcpy(sender->random_peer, from_server ? client : server, sizeof client);
    receiver->peer_id = v->sender_id;
    receiver->proven = true;
    memcpy(receiver->random_peer, from_server ? server : client, sizeof client);
}

static void frames_are_made(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(frame_vectors); i++) {
        const struct frame_vector *v = &frame_vectors[i];
        uint8_t head[HEAD_BYTES_MAX], expected[HEAD_BYTES_MAX], value_bytes[2048];
        struct seal seal = seal_of(v->secrets, v->label, v->mode);
        struct link sender, receiver;
        struct blob *wire, *value = NULL;
        struct message m = {
            .kind = (uint8_t)v->kind,
            .flags = (uint8_t)v->flags,
            .value_type = (uint8_t)v->value_type,
            .chain_count = (uint8_t)v->chain_count,
            .request_id = v->request_id,
            .budget_ms = (uint32_t)v->budget_ms,
            .load_timeout_ms = (uint32_t)v->load_timeout_ms,
            .ttl_ms = (uint32_t)v->ttl_ms,
            .stale_ms = (uint32_t)v->stale_ms,
            .age_ms = (uint32_t)v->age_ms,
            .delete_id = v->delete_id,
            .key = text_of(v->key),
            .channel = text_of(v->channel),
            .loader = text_of(v->loader),
        };

        memcpy(m.chain, v->chain, sizeof m.chain);
        ends(v, &seal, &sender, &receiver);
        if (v->value)
            value = blob_copy(bytes_of(v->value, value_bytes, sizeof value_bytes));
        int n = link_seal(&sender, &m, value, v->sent_ms, head, &wire);
        struct span want = bytes_of(v->head, expected, sizeof expected);
        if (n < 0 || !span_equal(span_of(head, (size_t)n), want))
            fail_msg("%s, mode %u: another head", v->name, (unsigned)v->mode);
        want = bytes_of(v->wire_value, value_bytes, sizeof value_bytes);
        if (!span_equal(blob_span(wire), want))
            fail_msg("%s, mode %u: another value", v->name, (unsigned)v->mode);
        blob_unref(wire);
        blob_unref(value);
        link_deinit(&sender);
        link_deinit(&receiver);
    }
}

static void frames_are_opened(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(frame_vectors); i++) {
        const struct frame_vector *v = &frame_vectors[i];
        uint8_t head[HEAD_BYTES_MAX], wire_bytes[2048], expected[2048];
        struct seal seal = seal_of(v->secrets, v->label, v->mode);
        struct link sender, receiver;
        struct message m;
        size_t head_bytes, value_bytes;

        ends(v, &seal, &sender, &receiver);
        size_t n = bytes_of(v->head, head, sizeof head).bytes;
        struct span wire = bytes_of(v->wire_value, wire_bytes, sizeof wire_bytes);
        enum verdict verdict = link_open(&receiver, head, n, v->sent_ms + 1000, &m, &head_bytes,
                                         &value_bytes);
        if (verdict != VERDICT_OK)
            fail_msg("%s, mode %u: %s", v->name, (unsigned)v->mode, verdict_text(verdict));
        assert_int_equal(head_bytes, n);
        assert_int_equal(value_bytes, wire.bytes);
        if (value_bytes) {
            assert_int_equal(link_open_value(&receiver, &m, wire_bytes, value_bytes), VERDICT_OK);
            assert_true(span_equal(span_of(wire_bytes, m.value_bytes),
                                   bytes_of(v->value, expected, sizeof expected)));
        }
        assert_int_equal(m.kind, v->kind);
        assert_true(m.request_id == v->request_id && m.sender_id == v->sender_id);
        assert_int_equal(m.flags, v->flags);
        assert_int_equal(m.value_type, v->value_type);
        assert_true(m.budget_ms == v->budget_ms && m.load_timeout_ms == v->load_timeout_ms);
        assert_true(m.ttl_ms == v->ttl_ms && m.stale_ms == v->stale_ms && m.age_ms == v->age_ms);
        assert_true(m.delete_id == v->delete_id);
        assert_int_equal(m.chain_count, v->chain_count);
        for (unsigned c = 0; c < m.chain_count; c++)
            assert_true(m.chain[c] == v->chain[c]);
        assert_true(span_equal(m.key, text_of(v->key)));
        assert_true(span_equal(m.channel, text_of(v->channel)));
        assert_true(span_equal(m.loader, text_of(v->loader)));
        link_deinit(&sender);
        link_deinit(&receiver);
    }
}

static void datagrams_are_made_and_opened(void **state)
{
    static const uint8_t hash_key[16] = {1}, receivers_random[16] = {2};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(datagram_vectors); i++) {
        const struct datagram_vector *v = &datagram_vectors[i];
        uint8_t random[16], payload_bytes[1500], packet_bytes[1500], out[PACKET_BYTES_MAX];
        struct seal seal = seal_of(v->secrets, v->label, v->mode);
        struct datagrams sender, receiver;
        struct frame f;
        struct span got;

        bytes_of(v->random, random, sizeof random);
        struct span payload = bytes_of(v->payload, payload_bytes, sizeof payload_bytes);
        struct span packet = bytes_of(v->packet, packet_bytes, sizeof packet_bytes);
        assert_int_equal(datagrams_init(&sender, &seal, v->sender_id, random, hash_key), 0);
        assert_int_equal(datagrams_init(&receiver, &seal, v->receiver_id ? v->receiver_id : 77,
                                        receivers_random, hash_key), 0);
        sender.counter_out = v->counter - 1;
        int n = datagrams_seal(&sender, v->receiver_id, payload, v->pad_to, v->sent_ms, out);
        assert_true(n > 0);
        assert_true(span_equal(span_of(out, (size_t)n), packet));
        assert_int_equal(datagrams_open(&receiver, packet_bytes, packet.bytes, v->sent_ms, &f,
                                        &got), VERDICT_OK);
        assert_true(span_equal(got, payload));
        assert_true(f.sender_id == v->sender_id && f.receiver_id == v->receiver_id);
        datagrams_deinit(&sender);
        datagrams_deinit(&receiver);
    }
}

static void values_at_rest(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rest_vectors); i++) {
        const struct rest_vector *v = &rest_vectors[i];
        uint8_t nonce[24], value_bytes[128], sealed_bytes[128], out[128];
        struct seal seal = seal_of(v->secrets, v->label, FRAME_AEAD);

        bytes_of(v->nonce, nonce, sizeof nonce);
        struct span value = bytes_of(v->value, value_bytes, sizeof value_bytes);
        struct span sealed = bytes_of(v->sealed, sealed_bytes, sizeof sealed_bytes);
        assert_int_equal(seal_rest(&seal, text_of(v->name), nonce, value, out), 0);
        assert_true(span_equal(span_of(out, value.bytes + SEAL_REST_BYTES), sealed));
        assert_int_equal(seal_rest_open(&seal, text_of(v->name), sealed, out), value.bytes);
        assert_true(span_equal(span_of(out, value.bytes), value));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(challenges),
        cmocka_unit_test(frames_are_made),
        cmocka_unit_test(frames_are_opened),
        cmocka_unit_test(datagrams_are_made_and_opened),
        cmocka_unit_test(values_at_rest),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
