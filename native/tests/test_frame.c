/* The head's fixed part: where each field lies, and what is no head. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/frame.h"
#include "tests/hex.h"

static const struct frame sample = {
    .version = FRAME_VERSION,
    .mode = FRAME_AEAD,
    .kind = 6,
    .key_id = 0xab,
    .head_bytes = 0x0123,
    .value_bytes = 0x00654321,
    .label = {1, 2, 3, 4, 5, 6, 7, 8},
    .sender_id = UINT64_C(0x1112131415161718),
    .receiver_id = UINT64_C(0x2122232425262728),
    .random = {0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37,
               0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f},
    .counter = UINT64_C(0x4142434445464748),
    .sent_ms = UINT64_C(0x5152535455565758),
    .request_id = UINT64_C(0x6162636465666768),
};

static const char sample_hex[] =
    "5047 01 01 06 ab 0123 00654321 00000000 0102030405060708"
    "1112131415161718 2122232425262728 303132333435363738393a3b3c3d3e3f"
    "4142434445464748 5152535455565758 6162636465666768";

static void every_field_lies_where_it_is_drawn(void **state)
{
    uint8_t expected[FRAME_FIXED_BYTES], out[FRAME_FIXED_BYTES];
    struct frame back;

    (void)state;
    assert_int_equal(unhex(sample_hex, expected, sizeof expected), FRAME_FIXED_BYTES);
    frame_encode(&sample, out);
    assert_memory_equal(out, expected, sizeof out);
    assert_int_equal(frame_decode(span_of(out, sizeof out), &back), VERDICT_OK);
    assert_int_equal(back.version, sample.version);
    assert_int_equal(back.mode, sample.mode);
    assert_int_equal(back.kind, sample.kind);
    assert_int_equal(back.key_id, sample.key_id);
    assert_int_equal(back.head_bytes, sample.head_bytes);
    assert_int_equal(back.value_bytes, sample.value_bytes);
    assert_memory_equal(back.label, sample.label, sizeof back.label);
    assert_true(back.sender_id == sample.sender_id);
    assert_true(back.receiver_id == sample.receiver_id);
    assert_memory_equal(back.random, sample.random, sizeof back.random);
    assert_true(back.counter == sample.counter);
    assert_true(back.sent_ms == sample.sent_ms);
    assert_true(back.request_id == sample.request_id);
}

static void fewer_bytes_are_incomplete(void **state)
{
    uint8_t out[FRAME_FIXED_BYTES];
    struct frame back;

    (void)state;
    frame_encode(&sample, out);
    for (size_t n = 0; n < sizeof out; n++)
        assert_int_equal(frame_decode(span_of(out, n), &back), VERDICT_MORE);
}

/* What the bytes at `at` make of a good fixed part. */
static void what_cannot_be_a_head(void **state)
{
    static const struct { size_t at; const char *bytes; enum verdict verdict; } table[] = {
        {0, "00", VERDICT_GARBAGE},
        {1, "48", VERDICT_GARBAGE},
        {0, "474554202f20485454502f312e31", VERDICT_GARBAGE},  /* GET / HTTP/1.1 */
        {2, "00", VERDICT_VERSION},
        {2, "02", VERDICT_OK},              /* W8: newer releases only add */
        {2, "ff", VERDICT_OK},
        {3, "02", VERDICT_GARBAGE},
        {3, "00", VERDICT_OK},
        {4, "ff", VERDICT_OK},              /* unknown kinds are for later */
        {6, "0000", VERDICT_BOUND},
        {6, "005f", VERDICT_BOUND},         /* 80 + 15 */
        {6, "0060", VERDICT_OK},
        {6, "0800", VERDICT_OK},            /* 2 KiB */
        {6, "0801", VERDICT_BOUND},
        {6, "ffff", VERDICT_BOUND},
        {8, "00000000", VERDICT_OK},
        {8, "007ffedd", VERDICT_OK},        /* 8 MiB less the head's 0x123 */
        {8, "007ffede", VERDICT_BOUND},
        {8, "00800000", VERDICT_BOUND},     /* 8 MiB */
        {8, "00800001", VERDICT_BOUND},
        {8, "ffffffff", VERDICT_BOUND},     /* 4 GiB */
        {15, "01", VERDICT_GARBAGE},
        {12, "80", VERDICT_GARBAGE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        uint8_t out[FRAME_FIXED_BYTES];
        struct frame back;
        frame_encode(&sample, out);
        unhex(table[i].bytes, out + table[i].at, sizeof out - table[i].at);
        enum verdict v = frame_decode(span_of(out, sizeof out), &back);
        if (v != table[i].verdict)
            fail_msg("%s at %zu: %s", table[i].bytes, table[i].at, verdict_text(v));
    }
}

static void what_is_reserved_may_be_used_by_newer_versions(void **state)
{
    uint8_t out[FRAME_FIXED_BYTES];
    struct frame back;

    (void)state;
    frame_encode(&sample, out);
    out[2] = FRAME_VERSION + 1;
    out[13] = 1;
    assert_int_equal(frame_decode(span_of(out, sizeof out), &back), VERDICT_OK);
}

static void a_wrong_label_and_mode_are_told_apart(void **state)
{
    static const uint8_t other[FRAME_LABEL_BYTES] = {1, 2, 3, 4, 5, 6, 7, 9};

    (void)state;
    assert_int_equal(frame_check_cluster(&sample, FRAME_AEAD, sample.label), VERDICT_OK);
    assert_int_equal(frame_check_cluster(&sample, FRAME_HMAC, sample.label), VERDICT_MODE);
    assert_int_equal(frame_check_cluster(&sample, FRAME_AEAD, other), VERDICT_LABEL);
    assert_int_equal(frame_check_cluster(&sample, FRAME_HMAC, other), VERDICT_LABEL);
}

static void thirty_seconds_either_way(void **state)
{
    static const struct { uint64_t sent, wall; bool timely; } table[] = {
        {100000, 100000, true}, {100000, 129000, true},  {129000, 100000, true},
        {100000, 130000, true}, {100000, 130001, false}, {130001, 100000, false},
        {0, 100000, false},     {UINT64_MAX, 0, false},  {0, UINT64_MAX, false},
        {UINT64_MAX, 100000, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct frame f = {.sent_ms = table[i].sent};
        assert_int_equal(frame_is_timely(&f, table[i].wall), table[i].timely);
    }
}

static void every_verdict_has_a_text(void **state)
{
    (void)state;
    for (int v = 0; v < VERDICT_COUNT; v++)
        assert_string_not_equal(verdict_text((enum verdict)v), "unknown verdict");
    assert_string_equal(verdict_text(VERDICT_COUNT), "unknown verdict");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_lies_where_it_is_drawn),
        cmocka_unit_test(fewer_bytes_are_incomplete),
        cmocka_unit_test(what_cannot_be_a_head),
        cmocka_unit_test(what_is_reserved_may_be_used_by_newer_versions),
        cmocka_unit_test(a_wrong_label_and_mode_are_told_apart),
        cmocka_unit_test(thirty_seconds_either_way),
        cmocka_unit_test(every_verdict_has_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
