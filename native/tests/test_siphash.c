/* SipHash-1-3 against CPython's: what hash(bytes(range(n))) gives under a key of zeros.
 *
 *   PYTHONHASHSEED=0 python3 -c "print(hash(bytes(range(20))) % 2**64)"    (3.11)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/siphash.h"

static void it_agrees_with_another_implementation(void **state)
{
    static const struct {
        size_t bytes;
        uint64_t hash;
    } vectors[] = {
        {1, UINT64_C(0x68a914128e01e473)},  {3, UINT64_C(0x4d4c9a4a8ef6e0ad)},
        {7, UINT64_C(0x2f098ab0c751325a)},  {8, UINT64_C(0xead411e67ebe2eea)},
        {9, UINT64_C(0x75927f9d95124362)},  {15, UINT64_C(0xf30eb725bb91c9ea)},
        {16, UINT64_C(0x8972188433a5c5b7)}, {17, UINT64_C(0x4883c49a2c009c1d)},
        {20, UINT64_C(0x639e355ae68c0100)}, {31, UINT64_C(0x169739443111d49b)},
        {32, UINT64_C(0x31ef8061c910629b)}, {100, UINT64_C(0x1c6a66e1506e7908)},
    };
    const uint8_t zeros[16] = {0};
    struct siphash_key key = siphash_key_of(zeros);
    uint8_t text[100];

    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)i;
    for (size_t i = 0; i < ARRAY_COUNT(vectors); i++)
        assert_int_equal(siphash_span(&key, span_of(text, vectors[i].bytes)), vectors[i].hash);
}

static void a_number_hashes_as_its_bytes(void **state)
{
    const uint8_t secret[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct siphash_key key = siphash_key_of(secret), other = key;
    const uint8_t text[8] = {0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01};

    (void)state;
    assert_int_equal(siphash_u64(&key, UINT64_C(0x0123456789abcdef)),
                     siphash_span(&key, span_of(text, sizeof text)));
    other.k1 ^= 1;
    assert_int_not_equal(siphash_u64(&key, 7), siphash_u64(&other, 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_agrees_with_another_implementation),
        cmocka_unit_test(a_number_hashes_as_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
