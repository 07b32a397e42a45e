/* Addresses and blocks as they stand in settings: what is read can be written and read
 * again, and a block contains its own address. */
#include <stdlib.h>

#include "core/addr.h"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    char *text = malloc(bytes + 1), out[ADDR_TEXT_MAX];
    struct addr a, again;
    struct cidr c;

    if (!text)
        abort();
    memcpy(text, in, bytes);
    text[bytes] = 0;
    if (addr_parse(text, &a)) {
        if (!addr_parse(addr_format(&a, out), &again) || !addr_equal(&a, &again) ||
            addr_compare(&a, &again) != 0)
            abort();
    }
    if (cidr_parse(text, &c) == NULL) {
        struct addr base = {.port = 1};
        memcpy(base.ip, c.ip, sizeof base.ip);
        if (c.bits > 128 || !cidr_contains(&c, &base))
            abort();
    }
    free(text);
    return 0;
}
