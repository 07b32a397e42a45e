/* A secret as it stands in a setting, and a value as it comes from Redis: the input is
 * tried as each. */
#include <stdlib.h>

#include "core/seal.h"

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    static struct seal known;
    struct seal s;
    struct span input = span_of(in, bytes);

    if (seal_init(&s, input, SPAN_NONE, FRAME_HMAC) == NULL) {
        if (s.key_count == 0 || s.key_count > SECRETS_MAX || bytes != s.key_count * 65 - 1)
            abort();
    } else if (s.key_count != 0) {
        abort();
    }
    seal_deinit(&s);

    if (known.key_count == 0 && seal_init(&known, span_text(SECRET), SPAN_NONE, FRAME_AEAD))
        abort();
    uint8_t *out = malloc(bytes ? bytes : 1);
    if (!out)
        abort();
    if (seal_rest_open(&known, span_text("name"), input, out) >= 0)
        abort();    /* nobody else has the secret */
    free(out);
    return 0;
}
