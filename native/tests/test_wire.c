/* Cursors: big-endian, and a failure that sticks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/wire.h"

static void numbers_are_big_endian(void **state)
{
    uint8_t buf[15];
    struct writer w = writer_of(buf, sizeof buf);
    static const uint8_t expected[15] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0x01,
                                         0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08};

    (void)state;
    put_u8(&w, 0x01);
    put_u16(&w, 0x2345);
    put_u32(&w, 0x6789abcd);
    put_u64(&w, UINT64_C(0x0102030405060708));
    assert_false(w.failed);
    assert_int_equal(writer_bytes(&w), 15);
    assert_int_equal(writer_room(&w), 0);
    assert_memory_equal(buf, expected, sizeof buf);

    struct reader r = reader_of(span_of(buf, sizeof buf));
    assert_int_equal(take_u8(&r), 0x01);
    assert_int_equal(take_u16(&r), 0x2345);
    assert_int_equal(take_u32(&r), 0x6789abcd);
    assert_false(take_done(&r));
    assert_true(take_u64(&r) == UINT64_C(0x0102030405060708));
    assert_true(take_done(&r));
}

static void a_failed_read_yields_zero_ever_after(void **state)
{
    static const uint8_t in[4] = {1, 2, 3, 4};
    uint8_t copy[5] = {9, 9, 9, 9, 9};
    struct reader r = reader_of(span_of(in, sizeof in));

    (void)state;
    assert_int_equal(take_u8(&r), 1);
    assert_int_equal(take_u32(&r), 0);
    assert_true(r.failed);
    assert_int_equal(take_u8(&r), 0);           /* there is a byte, but the cursor failed */
    assert_null(take_span(&r, 1).at);
    take_copy(&r, copy, sizeof copy);
    for (size_t i = 0; i < sizeof copy; i++)
        assert_int_equal(copy[i], 0);
    assert_false(take_done(&r));
}

static void a_failed_write_writes_nothing_more(void **state)
{
    uint8_t buf[4] = {7, 7, 7, 7};
    struct writer w = writer_of(buf, 3);

    (void)state;
    put_u16(&w, 0x0102);
    put_u16(&w, 0x0304);
    assert_true(w.failed);
    put_u8(&w, 5);
    assert_int_equal(writer_bytes(&w), 2);
    assert_int_equal(buf[2], 7);
    assert_int_equal(buf[3], 7);
}

static void spans_of_hostile_length_are_refused(void **state)
{
    static const uint8_t in[2] = {1, 2};
    static const size_t lengths[] = {3, 1 << 20, SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
        struct reader r = reader_of(span_of(in, sizeof in));
        assert_null(take_span(&r, lengths[i]).at);
        assert_true(r.failed);
    }
    struct reader r = reader_of(span_of(in, sizeof in));
    assert_ptr_equal(take_span(&r, 2).at, in);
    assert_int_equal(take_span(&r, 0).bytes, 0);
    assert_true(take_done(&r));
}

static void nothing_reads_as_nothing(void **state)
{
    struct reader r = reader_of(SPAN_NONE);

    (void)state;
    assert_true(take_done(&r));
    assert_int_equal(take_u8(&r), 0);
    assert_true(r.failed);
}

static void addresses_take_eighteen_bytes(void **state)
{
    uint8_t buf[18];
    struct writer w = writer_of(buf, sizeof buf);
    struct addr a;

    (void)state;
    assert_true(addr_parse("10.1.2.3:7946", &a));
    put_addr(&w, &a);
    assert_int_equal(writer_bytes(&w), sizeof buf);
    struct reader r = reader_of(span_of(buf, sizeof buf));
    struct addr back = take_addr(&r);
    assert_true(take_done(&r));
    assert_true(addr_equal(&a, &back));
    assert_int_equal(back.port, 7946);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_big_endian),
        cmocka_unit_test(a_failed_read_yields_zero_ever_after),
        cmocka_unit_test(a_failed_write_writes_nothing_more),
        cmocka_unit_test(spans_of_hostile_length_are_refused),
        cmocka_unit_test(nothing_reads_as_nothing),
        cmocka_unit_test(addresses_take_eighteen_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
