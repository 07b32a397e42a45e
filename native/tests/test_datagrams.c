/* Datagrams: who can read them, padding, every way to spoil one, counters at their end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/datagrams.h"
#include "core/err.h"
#include "core/mem.h"
#include "tests/openssl_mem.h"

#define NOW UINT64_C(1700000000000)
#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define OTHER_SECRET "100102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define PAYLOAD "gossip"

static const enum frame_mode modes[] = {FRAME_HMAC, FRAME_AEAD};

/* A node's side of the wire: its secret, mode and label, its id. */
struct side {
    struct seal seal;
    struct datagrams d;
};

static void side_init(struct side *s, const char *secret, const char *label, enum frame_mode mode,
                      uint64_t id)
{
    uint8_t random[FRAME_RANDOM_BYTES] = {(uint8_t)id, 1}, hash_key[16] = {3};
    assert_null(seal_init(&s->seal, span_text(secret), span_text(label), mode));
    assert_int_equal(datagrams_init(&s->d, &s->seal, id, random, hash_key), 0);
}

static void side_deinit(struct side *s)
{
    datagrams_deinit(&s->d);
    seal_deinit(&s->seal);
}

static enum verdict open_at(struct side *s, const uint8_t *packet, size_t bytes, uint64_t wall_ms)
{
    uint8_t copy[PACKET_BYTES_MAX + 1];
    struct frame f;
    struct span payload = SPAN_NONE;

    memcpy(copy, packet, bytes);
    enum verdict v = datagrams_open(&s->d, copy, bytes, wall_ms, &f, &payload);
    if (v == VERDICT_OK) {
        assert_true(span_equal(payload, span_text(PAYLOAD)));
        assert_true(f.sender_id == 1);
    }
    return v;
}

static void there_and_once_only(void **state)
{
    uint8_t packet[PACKET_BYTES_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct side a, b, c;
        side_init(&a, SECRET, "x", modes[i], 1);
        side_init(&b, SECRET, "x", modes[i], 2);
        side_init(&c, SECRET, "x", modes[i], 3);
        int n = datagrams_seal(&a.d, 2, span_text(PAYLOAD), 0, NOW, packet);
        assert_int_equal(n, FRAME_FIXED_BYTES + 2 + strlen(PAYLOAD) + seal_tag_bytes(modes[i]));
        assert_int_equal(open_at(&c, packet, (size_t)n, NOW), VERDICT_RECEIVER);
        assert_int_equal(open_at(&a, packet, (size_t)n, NOW), VERDICT_SENDER);
        assert_int_equal(replay_count(b.d.replay), 0);
        assert_int_equal(open_at(&b, packet, (size_t)n, NOW), VERDICT_OK);
        assert_int_equal(open_at(&b, packet, (size_t)n, NOW), VERDICT_REPLAY);
        assert_int_equal(replay_count(b.d.replay), 1);

        /* Open: for whoever it reaches, but not twice. */
        n = datagrams_seal(&a.d, 0, span_text(PAYLOAD), 0, NOW, packet);
        assert_int_equal(open_at(&b, packet, (size_t)n, NOW), VERDICT_OK);
        assert_int_equal(open_at(&c, packet, (size_t)n, NOW), VERDICT_OK);
        assert_int_equal(open_at(&c, packet, (size_t)n, NOW), VERDICT_REPLAY);
        side_deinit(&a);
        side_deinit(&b);
        side_deinit(&c);
    }
}

/* W5: the receiver's id is another after its restart, so what was sent to its earlier
 * start is worthless, though its replay windows are gone. */
static void a_restarted_receiver_takes_nothing_old(void **state)
{
    uint8_t packet[PACKET_BYTES_MAX];
    struct side a, b, b_again;

    (void)state;
    side_init(&a, SECRET, "x", FRAME_HMAC, 1);
    side_init(&b, SECRET, "x", FRAME_HMAC, 2);
    side_init(&b_again, SECRET, "x", FRAME_HMAC, 22);
    int n = datagrams_seal(&a.d, 2, span_text(PAYLOAD), 0, NOW, packet);
    assert_int_equal(open_at(&b, packet, (size_t)n, NOW), VERDICT_OK);
    assert_int_equal(open_at(&b_again, packet, (size_t)n, NOW), VERDICT_RECEIVER);
    side_deinit(&a);
    side_deinit(&b);
    side_deinit(&b_again);
}

static void another_cluster_hears_nothing(void **state)
{
    static const struct { const char *secret, *label; bool other_mode; enum verdict verdict; }
    table[] = {
        {SECRET, "x", false, VERDICT_OK},
        {OTHER_SECRET, "x", false, VERDICT_TAG},
        {SECRET, "y", false, VERDICT_LABEL},
        {OTHER_SECRET, "y", false, VERDICT_LABEL},
        {SECRET, "x", true, VERDICT_MODE},
    };
    uint8_t packet[PACKET_BYTES_MAX];

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(modes); m++) {
        for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
            struct side a, b;
            side_init(&a, SECRET, "x", modes[m], 1);
            side_init(&b, table[i].secret, table[i].label,
                      table[i].other_mode ? modes[1 - m] : modes[m], 2);
            int n = datagrams_seal(&a.d, 2, span_text(PAYLOAD), 0, NOW, packet);
            assert_int_equal(open_at(&b, packet, (size_t)n, NOW), table[i].verdict);
            /* Nor does it when the clear bytes are made to look as if. */
            memcpy(packet + 16, b.seal.label, FRAME_LABEL_BYTES);
            packet[3] = (uint8_t)b.seal.mode;
            packet[5] = b.seal.keys[0].id;
            assert_int_not_equal(open_at(&b, packet, (size_t)n, NOW), VERDICT_OK);
            assert_int_equal(replay_count(b.d.replay), i == 0);
            side_deinit(&a);
            side_deinit(&b);
        }
    }
}

static void every_bit_and_every_length_counts(void **state)
{
    uint8_t packet[PACKET_BYTES_MAX + 1] = {0}, copy[PACKET_BYTES_MAX];

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(modes); m++) {
        struct side a, b;
        side_init(&a, SECRET, "x", modes[m], 1);
        side_init(&b, SECRET, "x", modes[m], 2);
        size_t n = (size_t)datagrams_seal(&a.d, 2, span_text(PAYLOAD), 200, NOW, packet);
        for (size_t at = 0; at < n; at++) {
            memcpy(copy, packet, n);
            copy[at] ^= (uint8_t)(1u << at % 8);
            assert_int_not_equal(open_at(&b, copy, n, NOW), VERDICT_OK);
            assert_int_not_equal(open_at(&b, packet, at, NOW), VERDICT_OK);
        }
        assert_int_equal(open_at(&b, packet, n + 1, NOW), VERDICT_BOUND);
        assert_int_equal(replay_count(b.d.replay), 0);  /* nothing kept for what is not verified */
        assert_int_equal(open_at(&b, packet, n, NOW), VERDICT_OK);
        side_deinit(&a);
        side_deinit(&b);
    }
}

static void clocks_may_differ_by_thirty_seconds(void **state)
{
    static const struct { int64_t off_ms; enum verdict verdict; } table[] = {
        {-31000, VERDICT_CLOCK}, {-29000, VERDICT_OK}, {0, VERDICT_OK}, {29000, VERDICT_OK},
        {31000, VERDICT_CLOCK},
    };
    uint8_t packet[PACKET_BYTES_MAX];
    struct side a, b;

    (void)state;
    side_init(&a, SECRET, "x", FRAME_HMAC, 1);
    side_init(&b, SECRET, "x", FRAME_HMAC, 2);
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        int n = datagrams_seal(&a.d, 2, span_text(PAYLOAD), 0,
                               NOW + (uint64_t)table[i].off_ms, packet);
        assert_int_equal(open_at(&b, packet, (size_t)n, NOW), table[i].verdict);
    }
    side_deinit(&a);
    side_deinit(&b);
}

static void padding_goes_as_it_came(void **state)
{
    uint8_t packet[PACKET_BYTES_MAX], big[PACKET_BYTES_MAX] = {1};

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(modes); m++) {
        struct side a, b;
        side_init(&a, SECRET, "x", modes[m], 1);
        side_init(&b, SECRET, "x", modes[m], 2);
        size_t max = datagrams_payload_max(&a.d);
        struct frame f;
        struct span payload;

        assert_int_equal(datagrams_seal(&a.d, 2, span_text(PAYLOAD), 700, NOW, packet), 700);
        assert_int_equal(open_at(&b, packet, 700, NOW), VERDICT_OK);
        assert_int_equal(datagrams_seal(&a.d, 2, span_text(PAYLOAD), PACKET_BYTES_MAX, NOW, packet),
                         PACKET_BYTES_MAX);
        assert_int_equal(open_at(&b, packet, PACKET_BYTES_MAX, NOW), VERDICT_OK);
        assert_int_equal(datagrams_seal(&a.d, 2, span_text(PAYLOAD), PACKET_BYTES_MAX + 1, NOW,
                                        packet), ERR_TOO_BIG);

        assert_int_equal(datagrams_seal(&a.d, 2, span_of(big, max), 0, NOW, packet),
                         PACKET_BYTES_MAX);
        assert_int_equal(datagrams_open(&b.d, packet, PACKET_BYTES_MAX, NOW, &f, &payload),
                         VERDICT_OK);
        assert_int_equal(payload.bytes, max);
        assert_memory_equal(payload.at, big, max);
        assert_int_equal(datagrams_seal(&a.d, 2, span_of(big, max + 1), 0, NOW, packet),
                         ERR_TOO_BIG);
        side_deinit(&a);
        side_deinit(&b);
    }
}

/* Sealed by somebody who holds the secret, and still not what this release sends. */
static void verified_nonsense(void **state)
{
    static const struct {
        size_t at; uint8_t byte, version; enum verdict verdict;
    } table[] = {
        {FRAME_FIXED_BYTES, 1, FRAME_VERSION, VERDICT_FIELDS},      /* longer than the datagram */
        {FRAME_FIXED_BYTES + 20, 1, FRAME_VERSION, VERDICT_FIELDS}, /* in the padding */
        {FRAME_FIXED_BYTES + 20, 1, FRAME_VERSION + 1, VERDICT_OK}, /* W8: a newer field */
        {4, 200, FRAME_VERSION, VERDICT_FIELDS},                    /* a kind that is TCP's */
        {11, 5, FRAME_VERSION, VERDICT_BOUND},                      /* a value */
        {31, 0, FRAME_VERSION, VERDICT_SENDER},                     /* from nobody */
        {31, 2, FRAME_VERSION, VERDICT_SENDER},                     /* from the receiver itself */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        uint8_t packet[PACKET_BYTES_MAX];
        struct side a, b;
        struct frame f;
        side_init(&a, SECRET, "x", FRAME_HMAC, 1);
        side_init(&b, SECRET, "x", FRAME_HMAC, 2);
        size_t n = (size_t)datagrams_seal(&a.d, 2, span_text(PAYLOAD), 200, NOW, packet);
        packet[table[i].at] = table[i].byte;
        packet[2] = table[i].version;
        assert_int_equal(frame_decode(span_of(packet, n), &f), VERDICT_OK);
        assert_int_equal(seal_head(a.d.session_out, &f, packet, SPAN_NONE), 0);
        assert_int_equal(open_at(&b, packet, n, NOW), table[i].verdict);
        side_deinit(&a);
        side_deinit(&b);
    }
}

static void counters_end_rather_than_wrap(void **state)
{
    uint8_t packet[PACKET_BYTES_MAX];
    struct side a, b;

    (void)state;
    side_init(&a, SECRET, "x", FRAME_AEAD, 1);
    side_init(&b, SECRET, "x", FRAME_AEAD, 2);
    a.d.counter_out = UINT64_MAX - 1;
    int n = datagrams_seal(&a.d, 2, span_text(PAYLOAD), 0, NOW, packet);
    assert_int_equal(open_at(&b, packet, (size_t)n, NOW), VERDICT_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(datagrams_seal(&a.d, 2, span_text(PAYLOAD), 0, NOW, packet), ERR_FULL);
    side_deinit(&a);
    side_deinit(&b);
}

static void every_allocation_may_fail(void **state)
{
    uint8_t random[FRAME_RANDOM_BYTES] = {1}, hash_key[16] = {2};

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(modes); m++) {
        struct seal seal;
        struct datagrams d;
        assert_null(seal_init(&seal, span_text(SECRET), span_text("x"), modes[m]));
        assert_int_equal(datagrams_init(&d, &seal, 1, random, hash_key), 0);
        datagrams_deinit(&d);

        mem_fail_after(-1);
        assert_int_equal(datagrams_init(&d, &seal, 1, random, hash_key), 0);
        long needed = mem_fail_after(-1), refused = 0;
        datagrams_deinit(&d);
        for (long n = 0; n < needed; n++) {
            mem_fail_after(n);
            int rc = datagrams_init(&d, &seal, 1, random, hash_key);
            mem_fail_after(-1);
            refused += rc == ERR_NOMEM;
            if (rc == 0)
                datagrams_deinit(&d);
        }
        assert_true(refused >= 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_once_only),
        cmocka_unit_test(a_restarted_receiver_takes_nothing_old),
        cmocka_unit_test(another_cluster_hears_nothing),
        cmocka_unit_test(every_bit_and_every_length_counts),
        cmocka_unit_test(clocks_may_differ_by_thirty_seconds),
        cmocka_unit_test(padding_goes_as_it_came),
        cmocka_unit_test(verified_nonsense),
        cmocka_unit_test(counters_end_rather_than_wrap),
        cmocka_unit_test(every_allocation_may_fail),
    };
    if (!openssl_use_mem() || sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
