/* One datagram at a node's socket. First byte: bit 0 encrypted, bit 1 sealed by somebody
 * who holds the secret (the parts that must be right are then made right), bit 2 version and
 * kind as in the input. */
#include <stdlib.h>

#include "core/datagrams.h"

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define NOW UINT64_C(1700000000000)
#define SELF 2u
#define PEER 1u

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

static struct datagrams *receiver_of(enum frame_mode mode)
{
    static const uint8_t random[FRAME_RANDOM_BYTES] = {2}, hash_key[16] = {3};
    static struct seal seals[2];
    static struct datagrams receivers[2];

    if (seals[mode].key_count == 0) {
        if (seal_init(&seals[mode], span_text(SECRET), span_text("x"), mode) ||
            datagrams_init(&receivers[mode], &seals[mode], SELF, random, hash_key) != 0)
            abort();
    }
    return &receivers[mode];
}

static bool seal_as_peer(struct datagrams *d, uint8_t *at, size_t bytes, bool free_head)
{
    static uint64_t counter;
    size_t tag = seal_tag_bytes(d->seal->mode);

    if (bytes < FRAME_FIXED_BYTES + tag || bytes > PACKET_BYTES_MAX)
        return false;
    struct frame f = {
        .version = free_head ? at[2] : FRAME_VERSION,
        .mode = (uint8_t)d->seal->mode,
        .kind = free_head ? at[4] : 1,
        .key_id = d->seal->keys[0].id,
        .head_bytes = (uint16_t)bytes,
        .sender_id = PEER,
        .receiver_id = at[39] & 1 ? SELF : 0,
        .counter = ++counter,
        .sent_ms = NOW,
    };
    memcpy(f.label, d->seal->label, sizeof f.label);
    frame_encode(&f, at);
    if (seal_head(d->session_out, &f, at, SPAN_NONE) != 0)
        abort();
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    if (bytes == 0)
        return 0;
    uint8_t how = in[0];
    struct datagrams *d = receiver_of(how & 1 ? FRAME_AEAD : FRAME_HMAC);
    struct frame f;
    struct span payload = SPAN_NONE;
    uint8_t *packet = malloc(bytes - 1 ? bytes - 1 : 1);

    if (!packet)
        abort();
    bytes--;
    memcpy(packet, in + 1, bytes);
    bool sealed = how & 2 && seal_as_peer(d, packet, bytes, how & 4);
    enum verdict v = datagrams_open(d, packet, bytes, NOW, &f, &payload);
    if (v == VERDICT_MORE || v >= VERDICT_COUNT)
        abort();
    if (sealed ? v != VERDICT_OK && v != VERDICT_FIELDS && v != VERDICT_VERSION : v == VERDICT_OK)
        abort();
    if (v == VERDICT_OK) {
        volatile uint8_t sum = 0;
        if (payload.bytes > datagrams_payload_max(d))
            abort();
        for (size_t i = 0; i < payload.bytes; i++)
            sum = (uint8_t)(sum + payload.at[i]);
    }
    free(packet);
    return 0;
}
