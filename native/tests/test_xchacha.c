/* XChaCha20-Poly1305: the draft's vectors, and libsodium's own AEAD byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/prng.h"
#include "core/wire.h"
#include "core/xchacha.h"
#include "tests/hex.h"

/* draft-irtf-cfrg-xchacha-03, section 2.2.1. */
static void the_subkey_is_the_drafts(void **state)
{
    uint8_t key[32], nonce[16], expected[32], out[32];

    (void)state;
    unhex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", key, sizeof key);
    unhex("000000090000004a0000000031415927", nonce, sizeof nonce);
    unhex("82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc", expected,
          sizeof expected);
    crypto_core_hchacha20(out, nonce, key, NULL);
    assert_memory_equal(out, expected, sizeof out);
}

/* The same draft, appendix A.3.1. */
static void the_aead_is_the_drafts(void **state)
{
    static const char text[] = "Ladies and Gentlemen of the class of '99: If I could offer you "
                               "only one tip for the future, sunscreen would be it.";
    uint8_t key[32], random[16], bound[12], expected[160], out[160];
    struct span in = span_text(text);
    struct xchacha x;

    (void)state;
    unhex("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f", key, sizeof key);
    unhex("404142434445464748494a4b4c4d4e4f", random, sizeof random);
    unhex("50515253c0c1c2c3c4c5c6c7", bound, sizeof bound);
    size_t bytes = unhex("bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb"
                         "731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452"
                         "2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9"
                         "21f9664c97637da9768812f615c68b13b52e"
                         "c0875924c1c7987947deafd8780acf49", expected, sizeof expected);
    struct xchacha_nonce nonce = {key, random, UINT64_C(0x5051525354555657)};

    assert_true(xchacha_init(&x));
    assert_int_equal(bytes, in.bytes + XCHACHA_TAG_BYTES);
    for (size_t cut = 0; cut <= sizeof bound; cut++) {
        struct span a = span_of(bound, cut), b = span_of(bound + cut, sizeof bound - cut);
        assert_true(xchacha_encrypt(&x, nonce, a, b, in, out));
        assert_memory_equal(out, expected, bytes);
        assert_true(xchacha_decrypt(&x, nonce, a, b, span_of(out, bytes), out));
        assert_memory_equal(out, text, in.bytes);
    }
    xchacha_deinit(&x);
}

static void fill(struct prng *random, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)prng_next(random);
}

/* One context through changing keys, randoms, counters, directions and lengths. */
static void equals_libsodium(void **state)
{
    static uint8_t in[60000], ours[60016], theirs[60016];
    uint8_t keys[2][32], randoms[2][16], bound[100], nonce[24];
    struct prng random;
    struct xchacha x;

    (void)state;
    prng_seed(&random, 2);
    fill(&random, keys[0], sizeof keys);
    fill(&random, randoms[0], sizeof randoms);
    fill(&random, bound, sizeof bound);
    fill(&random, in, sizeof in);
    assert_true(xchacha_init(&x));
    for (unsigned i = 0; i < 400; i++) {
        const uint8_t *key = keys[prng_below(&random, 2)], *r = randoms[prng_below(&random, 2)];
        size_t bytes = i < 200 ? i : prng_below(&random, sizeof in + 1);
        struct span a = span_of(bound, prng_below(&random, sizeof bound + 1));
        uint64_t counter = i == 7 ? UINT64_MAX : prng_next(&random);
        struct writer w = writer_of(nonce, sizeof nonce);
        unsigned long long n;

        put_span(&w, span_of(r, 16));
        put_u64(&w, counter);
        crypto_aead_xchacha20poly1305_ietf_encrypt(theirs, &n, in, bytes, a.at, a.bytes, NULL,
                                                   nonce, key);
        struct xchacha_nonce at = {key, r, counter};
        assert_true(xchacha_encrypt(&x, at, a, SPAN_NONE, span_of(in, bytes), ours));
        assert_int_equal(n, bytes + XCHACHA_TAG_BYTES);
        assert_memory_equal(ours, theirs, bytes + XCHACHA_TAG_BYTES);
        assert_true(xchacha_decrypt(&x, at, a, SPAN_NONE, span_of(ours, n), ours));
        assert_memory_equal(ours, in, bytes);
    }
    xchacha_deinit(&x);
}

static void forgeries_fail_and_the_context_goes_on(void **state)
{
    uint8_t key[32] = {1}, random[16] = {2}, in[40] = {3}, sealed[56], out[56];
    struct span bound = span_text("bound"), other = span_text("bounD");
    struct xchacha_nonce nonce = {key, random, 9}, next = {key, random, 10};
    struct xchacha x;

    (void)state;
    assert_true(xchacha_init(&x));
    assert_true(xchacha_encrypt(&x, nonce, bound, SPAN_NONE, span_of(in, sizeof in), sealed));
    for (size_t i = 0; i < sizeof sealed; i++) {
        sealed[i] ^= 1;
        assert_false(xchacha_decrypt(&x, nonce, bound, SPAN_NONE, span_of(sealed, 56), out));
        sealed[i] ^= 1;
        assert_true(xchacha_decrypt(&x, nonce, bound, SPAN_NONE, span_of(sealed, 56), out));
    }
    for (size_t bytes = 0; bytes < sizeof sealed; bytes++)
        assert_false(xchacha_decrypt(&x, nonce, bound, SPAN_NONE, span_of(sealed, bytes), out));
    assert_false(xchacha_decrypt(&x, nonce, other, SPAN_NONE, span_of(sealed, 56), out));
    assert_false(xchacha_decrypt(&x, next, bound, SPAN_NONE, span_of(sealed, 56), out));
    xchacha_deinit(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_subkey_is_the_drafts),
        cmocka_unit_test(the_aead_is_the_drafts),
        cmocka_unit_test(equals_libsodium),
        cmocka_unit_test(forgeries_fail_and_the_context_goes_on),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
