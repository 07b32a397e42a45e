/* Bytes in tests as hexadecimal text; spaces are skipped. */
#ifndef PEERAGE_TESTS_HEX_H
#define PEERAGE_TESTS_HEX_H

#include "core/base.h"

static inline int hex_value(char c)
{
    const char digits[] = "0123456789abcdef", *at = memchr(digits, c, sizeof digits - 1);
    return at ? (int)(at - digits) : -1;
}

/* Returns the number of bytes; asserts that the text is hexadecimal and fits. */
static inline size_t unhex(const char *text, uint8_t *out, size_t room)
{
    size_t bytes = 0;

    for (; *text; text++) {
        if (*text == ' ')
            continue;
        int high = hex_value(text[0]), low = hex_value(text[1]);
        assert(high >= 0 && low >= 0 && bytes < room);
        out[bytes++] = (uint8_t)(high << 4 | low);
        text++;
    }
    return bytes;
}

#endif
