/* A server's challenge at a client, in both modes. */
#include <stdlib.h>

#include "core/link.h"

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    static const uint8_t random[FRAME_RANDOM_BYTES] = {1};
    static struct seal seals[2];
    uint8_t challenge[LINK_CHALLENGE_BYTES] = {0};

    memcpy(challenge, in, min_size(bytes, sizeof challenge));
    for (int mode = FRAME_HMAC; mode <= FRAME_AEAD; mode++) {
        struct seal *seal = &seals[mode];
        struct link client;
        if (seal->key_count == 0 &&
            seal_init(seal, span_text(SECRET), span_text("x"), (enum frame_mode)mode))
            abort();
        if (link_init(&client, seal, 1, false, random) != 0)
            abort();
        enum verdict v = link_challenged(&client, challenge);
        if (v == VERDICT_MORE || v >= VERDICT_COUNT || link_ready(&client) != (v == VERDICT_OK) ||
            client.proven || client.peer_id == client.self_id)
            abort();
        link_deinit(&client);
    }
    return 0;
}
