/* SHA-256, HMAC and HKDF against their published vectors and OpenSSL's one-shot calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "core/hmac.h"
#include "core/prng.h"
#include "tests/hex.h"

/* `hex`, written `times` times over. */
static struct span repeat(const char *hex, size_t times, uint8_t *out, size_t room)
{
    size_t bytes = 0;

    for (size_t i = 0; i < times; i++)
        bytes += unhex(hex, out + bytes, room - bytes);
    return span_of(out, bytes);
}

/* RFC 4231, section 4. Texts stand as texts. */
static void rfc_4231(void **state)
{
    static const struct {
        const char *key; size_t key_times;
        const char *text, *hex; size_t hex_times;
        const char *tag;    /* test case 5 gives its first half only */
    } table[] = {
        {"0b", 20, "Hi There", NULL, 0,
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"4a656665", 1, "what do ya want for nothing?", NULL, 0,
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {"aa", 20, NULL, "dd", 50,
         "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {"0102030405060708090a0b0c0d0e0f10111213141516171819", 1, NULL, "cd", 50,
         "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {"0c", 20, "Test With Truncation", NULL, 0, "a3b6167473100ee06e0c796c2955552b"},
        {"aa", 131, "Test Using Larger Than Block-Size Key - Hash Key First", NULL, 0,
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {"aa", 131, "This is a test using a larger than block-size key and a larger than "
         "block-size data. The key needs to be hashed before being used by the HMAC algorithm.",
         NULL, 0, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    uint8_t key_bytes[256], data_bytes[256], expected[HMAC_BYTES], tag[HMAC_BYTES];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct span key = repeat(table[i].key, table[i].key_times, key_bytes, sizeof key_bytes);
        struct span in = table[i].text
                             ? span_text(table[i].text)
                             : repeat(table[i].hex, table[i].hex_times, data_bytes,
                                      sizeof data_bytes);
        size_t bytes = unhex(table[i].tag, expected, sizeof expected);
        struct hmac_key k;

        hmac_init(&k, key);
        /* A key serves many times, and two parts are one string wherever it is cut: the second
         * may have as many bytes as a block. */
        for (size_t cut = in.bytes - min_size(in.bytes, 64); cut <= in.bytes; cut++) {
            hmac_sign(&k, span_of(in.at, cut), span_of(in.at + cut, in.bytes - cut), tag);
            assert_memory_equal(tag, expected, bytes);
        }
    }
}

/* RFC 5869, appendix A, the SHA-256 cases. */
static void rfc_5869(void **state)
{
    static const struct { const char *secret, *salt, *info, *out; } table[] = {
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "000102030405060708090a0b0c",
         "f0f1f2f3f4f5f6f7f8f9",
         "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
        {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
         "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
         "404142434445464748494a4b4c4d4e4f",
         "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f"
         "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"
         "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
         "b0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecf"
         "d0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeef"
         "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
         "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
         "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
         "cc30c58179ec3e87c14c01d5c1f3434f1d87"},
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "", "",
         "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
    };
    uint8_t secret[128], salt[128], info[128], expected[128], out[128];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        size_t bytes = unhex(table[i].out, expected, sizeof expected);
        hmac_derive(span_of(secret, unhex(table[i].secret, secret, sizeof secret)),
                    span_of(salt, unhex(table[i].salt, salt, sizeof salt)),
                    span_of(info, unhex(table[i].info, info, sizeof info)), out, bytes);
        assert_memory_equal(out, expected, bytes);
    }
}

static void equals_openssl(void **state)
{
    struct prng random;
    uint8_t in[300], key[100], tag[HMAC_BYTES], expected[HMAC_BYTES];

    (void)state;
    prng_seed(&random, 1);
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)prng_next(&random);
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)prng_next(&random);
    for (size_t bytes = 0; bytes <= sizeof in; bytes++) {
        size_t key_bytes = bytes % (sizeof key + 1);
        unsigned n;
        struct hmac_key k;
        hmac_digest(span_of(in, bytes), tag);
        assert_int_equal(EVP_Digest(in, bytes, expected, &n, EVP_sha256(), NULL), 1);
        assert_memory_equal(tag, expected, sizeof tag);
        hmac_init(&k, span_of(key, key_bytes));
        hmac_sign(&k, span_of(in, bytes), SPAN_NONE, tag);
        assert_non_null(HMAC(EVP_sha256(), key, (int)key_bytes, in, bytes, expected, &n));
        assert_memory_equal(tag, expected, sizeof tag);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rfc_4231),
        cmocka_unit_test(rfc_5869),
        cmocka_unit_test(equals_openssl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
