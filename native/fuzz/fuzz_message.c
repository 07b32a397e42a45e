/* The fields of a head. First byte: bit 0 a newer version's, bit 1 with a digest. What
 * parses keeps its bounds, points into the input, and encodes to the same bytes. */
#include <stdlib.h>

#include "core/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

static void check_inside(struct span s, struct span whole)
{
    if (s.bytes && (s.at < whole.at || s.at + s.bytes > whole.at + whole.bytes))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    static uint8_t out[HEAD_BYTES_MAX];
    struct message m = {.kind = MESSAGE_VALUE};

    if (bytes == 0)
        return 0;
    bool newer = in[0] & 1, with_digest = in[0] & 2;
    struct span fields = span_of(in + 1, bytes - 1);
    if (!message_decode(fields, newer, with_digest, &m))
        return 0;
    if (m.key.bytes > KEY_BYTES_MAX || m.chain_count > CHAIN_MAX ||
        m.value_type >= VALUE_TYPE_COUNT || m.kind != MESSAGE_VALUE)
        abort();
    check_inside(m.key, fields);
    check_inside(m.channel, fields);
    check_inside(m.loader, fields);

    struct writer w = writer_of(out, sizeof out);
    if (message_encode(&m, with_digest, &w) != 0)
        abort();
    if (writer_bytes(&w) > fields.bytes)
        abort();
    if (!newer && !span_equal(span_of(out, writer_bytes(&w)), fields))
        abort();
    return 0;
}
