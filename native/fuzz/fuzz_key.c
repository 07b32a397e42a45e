/* Canonical keys read back. What reads without a failure, written again item by item, gives
 * the same bytes: so no second spelling of a key is ever taken. */
#include <stdlib.h>

#include "core/key.h"
#include "core/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    static uint8_t names[KEY_BYTES_MAX], scratch[KEY_BYTES_MAX], out[KEY_BYTES_MAX];
    struct span cache, function;
    struct key_reader r;
    struct key_item item;
    unsigned depth = 0;
    char before = 0;

    if (bytes > KEY_BYTES_MAX || !key_read(span_of(in, bytes), names, &cache, &function, &r))
        return 0;
    struct writer w = writer_of(out, sizeof out);
    key_put_text(&w, cache);
    put_u8(&w, ':');
    key_put_text(&w, function);
    put_u8(&w, ':');
    while (key_next(&r, scratch, &item)) {
        if (before && before != '(' && item.type != ')')
            put_u8(&w, depth ? ',' : '/');
        before = item.type;
        if (item.type == '(' || item.type == ')') {
            put_u8(&w, (uint8_t)item.type);
            depth += item.type == '(' ? 1u : -1u;
        } else if (item.type == 'b') {
            if (!key_unhex(item.text, scratch))
                abort();
            key_put_bytes(&w, span_of(scratch, item.text.bytes / 2));
        } else {
            key_put(&w, item.type, item.text);
        }
    }
    if (item.type != 0)
        abort();
    if (r.failed)
        return 0;
    if (depth != 0 || !span_equal(span_of(out, writer_bytes(&w)), span_of(in, bytes)))
        abort();
    return 0;
}
