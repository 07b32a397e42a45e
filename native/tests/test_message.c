/* The fields: there and back, every bound, every truncation, newer versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/err.h"
#include "core/message.h"
#include "tests/hex.h"

#define FIELDS_FIXED_BYTES 36u

static struct message sample(void)
{
    struct message m = {
        .flags = MESSAGE_MORE | MESSAGE_STALE,
        .value_type = VALUE_JSON,
        .chain_count = 2,
        .budget_ms = 0x01020304,
        .load_timeout_ms = 0x11121314,
        .ttl_ms = 0x21222324,
        .stale_ms = 0x31323334,
        .age_ms = 0x41424344,
        .delete_id = UINT64_C(0x5152535455565758),
        .chain = {UINT64_C(0x6162636465666768), UINT64_C(0x7172737475767778)},
        .key = span_text("key"),
        .channel = span_text("ch"),
        .loader = span_text("f"),
    };
    memset(m.digest, 0xdd, sizeof m.digest);
    return m;
}

static void every_field_lies_where_it_is_drawn(void **state)
{
    uint8_t expected[256], out[256];
    size_t bytes = unhex("21 02 02 02 01 00 0003 01020304 11121314 21222324 31323334 41424344"
                         "5152535455565758 6162636465666768 7172737475767778 6b6579 6368 66"
                         "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd",
                         expected, sizeof expected);
    struct message m = sample(), back = {.kind = MESSAGE_VALUE};
    struct writer w = writer_of(out, sizeof out);

    (void)state;
    assert_int_equal(message_encode(&m, true, &w), 0);
    assert_int_equal(writer_bytes(&w), bytes);
    assert_memory_equal(out, expected, bytes);

    assert_true(message_decode(span_of(out, bytes), false, true, &back));
    assert_int_equal(back.kind, MESSAGE_VALUE);     /* the caller's, left alone */
    assert_int_equal(back.flags, m.flags);
    assert_int_equal(back.value_type, m.value_type);
    assert_int_equal(back.chain_count, 2);
    assert_int_equal(back.budget_ms, m.budget_ms);
    assert_int_equal(back.load_timeout_ms, m.load_timeout_ms);
    assert_int_equal(back.ttl_ms, m.ttl_ms);
    assert_int_equal(back.stale_ms, m.stale_ms);
    assert_int_equal(back.age_ms, m.age_ms);
    assert_true(back.delete_id == m.delete_id);
    assert_true(back.chain[0] == m.chain[0] && back.chain[1] == m.chain[1]);
    assert_true(span_equal(back.key, m.key));
    assert_true(span_equal(back.channel, m.channel));
    assert_true(span_equal(back.loader, m.loader));
    assert_memory_equal(back.digest, m.digest, sizeof m.digest);
}

static void nothing_shorter_or_longer_parses(void **state)
{
    uint8_t out[257];
    struct message m = sample(), back;
    struct writer w = writer_of(out, sizeof out);

    (void)state;
    assert_int_equal(message_encode(&m, true, &w), 0);
    size_t bytes = writer_bytes(&w);
    for (size_t n = 0; n < bytes; n++) {
        assert_false(message_decode(span_of(out, n), false, true, &back));
        assert_false(message_decode(span_of(out, n), true, true, &back));
    }
    out[bytes] = 0;
    assert_true(message_decode(span_of(out, bytes), false, true, &back));
    assert_false(message_decode(span_of(out, bytes + 1), false, true, &back));
    assert_false(message_decode(span_of(out, bytes), false, false, &back));
}

/* W8: what a newer version adds behind the known fields is skipped, as are its flags. */
static void newer_versions_may_add(void **state)
{
    uint8_t out[300];
    struct message m = sample(), back;
    struct writer w = writer_of(out, sizeof out);

    (void)state;
    assert_int_equal(message_encode(&m, true, &w), 0);
    put_u32(&w, 0xffffffff);
    out[0] |= 0x80;
    out[5] = 9;
    struct span all = span_of(out, writer_bytes(&w));
    assert_false(message_decode(all, false, true, &back));
    assert_true(message_decode(all, true, true, &back));
    assert_int_equal(back.flags, m.flags);
    assert_true(span_equal(back.key, m.key));
    assert_memory_equal(back.digest, m.digest, sizeof m.digest);
}

static void bounds_hold_both_ways(void **state)
{
    static const struct { size_t key, channel, loader; unsigned chain; bool fits; } table[] = {
        {0, 0, 0, 0, true},
        {KEY_BYTES_MAX, CHANNEL_BYTES_MAX, LOADER_BYTES_MAX, CHAIN_MAX, true},
        {KEY_BYTES_MAX + 1, 0, 0, 0, false},
        {0, CHANNEL_BYTES_MAX + 1, 0, 0, false},
        {0, 0, LOADER_BYTES_MAX + 1, 0, false},
        {0, 0, 0, CHAIN_MAX + 1, false},
        {SIZE_MAX, 0, 0, 0, false},
    };
    static uint8_t bytes[KEY_BYTES_MAX + 1];
    uint8_t out[HEAD_BYTES_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct message m = {
            .chain_count = (uint8_t)table[i].chain,
            .key = span_of(bytes, table[i].key),
            .channel = span_of(bytes, table[i].channel),
            .loader = span_of(bytes, table[i].loader),
        }, back;
        struct writer w = writer_of(out, sizeof out);
        assert_int_equal(message_encode(&m, true, &w), table[i].fits ? 0 : ERR_TOO_BIG);
        if (table[i].fits) {
            assert_true(message_decode(span_of(out, writer_bytes(&w)), false, true, &back));
            assert_int_equal(back.key.bytes, table[i].key);
        }
    }
    struct message m = sample();
    struct writer w = writer_of(out, 40);
    assert_int_equal(message_encode(&m, true, &w), ERR_TOO_BIG);    /* no room is no overflow */
}

static void lies_about_counts_do_not_parse(void **state)
{
    static const struct { size_t at; uint8_t byte; } table[] = {
        {0, 0x80},                  /* a flag that is none */
        {1, VALUE_TYPE_COUNT},
        {1, 0xff},
        {2, 3}, {2, 1}, {2, CHAIN_MAX + 1}, {2, 0xff},
        {3, 3}, {3, 1}, {3, 0xff},
        {4, 0}, {4, 0xff},
        {5, 1},
        {6, 0x04},                  /* key of 1027 bytes */
        {6, 0xff},
        {7, 2}, {7, 4},
    };
    uint8_t out[256];
    struct message m = sample(), back;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct writer w = writer_of(out, sizeof out);
        assert_int_equal(message_encode(&m, true, &w), 0);
        assert_true(message_decode(span_of(out, writer_bytes(&w)), false, true, &back));
        out[table[i].at] = table[i].byte;
        if (message_decode(span_of(out, writer_bytes(&w)), false, true, &back))
            fail_msg("%d at %zu parsed", table[i].byte, table[i].at);
    }
}

static void every_flag_travels(void **state)
{
    uint8_t out[64];

    (void)state;
    for (unsigned flag = 1; flag <= UINT8_MAX; flag <<= 1) {
        struct message m = {.flags = (uint8_t)flag}, back;
        struct writer w = writer_of(out, sizeof out);
        assert_int_equal(message_encode(&m, false, &w), 0);
        assert_int_equal(message_decode(span_of(out, writer_bytes(&w)), false, false, &back),
                         (flag & MESSAGE_FLAGS_KNOWN) != 0);
        assert_int_equal(back.flags, flag);
    }
    assert_true(MESSAGE_FLAGS_KNOWN & MESSAGE_FRESH);
}

static void an_empty_channel_means_the_key(void **state)
{
    struct message m = {.key = span_text("k")};

    (void)state;
    assert_true(span_equal(message_channel(&m), span_text("k")));
    m.channel = span_text("c");
    assert_true(span_equal(message_channel(&m), span_text("c")));
}

static void kinds_have_names(void **state)
{
    (void)state;
    assert_string_equal(message_kind_text(MESSAGE_GOSSIP), "GOSSIP");
    assert_string_equal(message_kind_text(MESSAGE_RECURSIVE), "RECURSIVE");
    assert_string_equal(message_kind_text(0), "unknown");
    assert_string_equal(message_kind_text(255), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_lies_where_it_is_drawn),
        cmocka_unit_test(nothing_shorter_or_longer_parses),
        cmocka_unit_test(newer_versions_may_add),
        cmocka_unit_test(bounds_hold_both_ways),
        cmocka_unit_test(lies_about_counts_do_not_parse),
        cmocka_unit_test(every_flag_travels),
        cmocka_unit_test(an_empty_channel_means_the_key),
        cmocka_unit_test(kinds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
