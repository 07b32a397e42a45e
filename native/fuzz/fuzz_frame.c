/* The head's fixed part: whatever decodes encodes to the same bytes. */
#include <stdlib.h>

#include "core/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    struct frame f;
    uint8_t out[FRAME_FIXED_BYTES];
    enum verdict v = frame_decode(span_of(in, bytes), &f);

    if ((v == VERDICT_MORE) != (bytes < FRAME_FIXED_BYTES))
        abort();
    if (v != VERDICT_OK)
        return 0;
    if (f.head_bytes < FRAME_FIXED_BYTES || f.head_bytes > HEAD_BYTES_MAX ||
        (size_t)f.head_bytes + f.value_bytes > FRAME_BYTES_MAX)
        abort();
    frame_encode(&f, out);
    if (f.version == FRAME_VERSION && memcmp(out, in, sizeof out) != 0)
        abort();
    return 0;
}
