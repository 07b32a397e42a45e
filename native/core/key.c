/* Canonical keys, written and read back (see key.h). Reading is strict: a spelling that
 * writing would never make is malformed, so that one tuple of arguments has one key. */
#include "key.h"

static bool escapes(uint8_t c)
{
    return c < 0x21 || c == 0x7f || c == '%' || c == '/' || c == ':' || c == '=' ||
           c == '(' || c == ')' || c == ',';
}

void key_put_text(struct writer *w, struct span text)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t from = 0;

    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t c = text.at[i];
        if (!escapes(c))
            continue;
        put_span(w, span_of(text.at + from, i - from));
        put_u8(w, '%');
        put_u8(w, (uint8_t)hex[c >> 4]);
        put_u8(w, (uint8_t)hex[c & 15]);
        from = i + 1;
    }
    if (from < text.bytes)
        put_span(w, span_of(text.at + from, text.bytes - from));
}

void key_put(struct writer *w, char type, struct span text)
{
    put_u8(w, (uint8_t)type);
    key_put_text(w, text);
}

void key_put_int(struct writer *w, int64_t value)
{
    uint8_t digits[20];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    do {
        digits[--at] = (uint8_t)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    put_u8(w, 'i');
    if (value < 0)
        put_u8(w, '-');
    put_span(w, span_of(digits + at, sizeof digits - at));
}

void key_put_bytes(struct writer *w, struct span s)
{
    static const char hex[] = "0123456789abcdef";

    put_u8(w, 'b');
    for (size_t i = 0; i < s.bytes && !w->failed; i++) {
        put_u8(w, (uint8_t)hex[s.at[i] >> 4]);
        put_u8(w, (uint8_t)hex[s.at[i] & 15]);
    }
}

static int digit(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Read escaped text up to the next byte that can't stand in it. False: a bad escape. */
static bool unescape(const uint8_t **from, const uint8_t *end, uint8_t *scratch,
                     struct span *out)
{
    const uint8_t *at = *from;
    size_t bytes = 0;

    for (; at < end; at++) {
        uint8_t c = *at;
        if (c == '%') {
            if (end - at < 3 || digit(at[1]) < 0 || digit(at[2]) < 0)
                return false;
            c = (uint8_t)(digit(at[1]) << 4 | digit(at[2]));
            if (!escapes(c))
                return false;
            at += 2;
        } else if (escapes(c)) {
            break;
        }
        scratch[bytes++] = c;
    }
    *from = at;
    *out = span_of(scratch, bytes);
    return true;
}

static bool is_hex(struct span s)
{
    for (size_t i = 0; i < s.bytes; i++)
        if (!((s.at[i] >= '0' && s.at[i] <= '9') || (s.at[i] >= 'a' && s.at[i] <= 'f')))
            return false;
    return true;
}

static bool is_int(struct span s)
{
    bool negative = s.bytes && s.at[0] == '-';
    size_t i = negative;

    if (i == s.bytes || (s.at[i] == '0' && (negative || s.bytes > 1)))
        return false;
    for (; i < s.bytes; i++)
        if (s.at[i] < '0' || s.at[i] > '9')
            return false;
    return true;
}

static bool text_fits(char type, struct span text)
{
    switch (type) {
    case 's':
        return true;
    case 't': case 'f': case 'n':
        return text.bytes == 0;
    case 'i':
        return is_int(text);
    case 'b':
        return text.bytes % 2 == 0 && is_hex(text);
    case 'u':
        return text.bytes == 32 && is_hex(text);
    case 'd': case 'D': case 'T':
        return text.bytes > 0;  /* the rest is for who makes the object */
    default:
        return false;
    }
}

/* Behind an item stands what separates it from the next, or what ends it all. */
static bool separate(struct key_reader *r)
{
    if (r->depth == 0) {
        if (r->at == r->end)
            return true;
        return *r->at++ == '/' && r->at < r->end;
    }
    if (r->at == r->end)
        return false;
    if (*r->at == ')')
        return true;
    return *r->at++ == ',' && r->at < r->end && *r->at != ')';
}

bool key_read(struct span key, uint8_t *scratch, struct span *cache, struct span *function,
              struct key_reader *values)
{
    const uint8_t *at = key.at, *end = key.at + key.bytes;

    if (!unescape(&at, end, scratch, cache) || at == end || *at++ != ':')
        return false;
    if (!unescape(&at, end, scratch + cache->bytes, function) || at == end || *at++ != ':')
        return false;
    *values = (struct key_reader){at, end, 0, false};
    return true;
}

bool key_next(struct key_reader *r, uint8_t *scratch, struct key_item *out)
{
    *out = (struct key_item){0, SPAN_NONE};
    if (r->failed || (r->at == r->end && r->depth == 0))
        return false;
    if (r->at == r->end)
        goto malformed;

    char type = (char)*r->at++;
    struct span text = SPAN_NONE;
    if (type == '(') {
        r->depth++;
        if (r->at == r->end)
            goto malformed;
    } else if (type == ')') {
        if (r->depth == 0)
            goto malformed;
        r->depth--;
        if (!separate(r))
            goto malformed;
    } else if (!unescape(&r->at, r->end, scratch, &text) || !text_fits(type, text) ||
               !separate(r)) {
        goto malformed;
    }
    *out = (struct key_item){type, text};
    return true;

malformed:
    r->failed = true;
    return false;
}

bool key_unhex(struct span text, uint8_t *out)
{
    if (text.bytes % 2 || !is_hex(text))
        return false;
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t c = text.at[i];
        unsigned value = c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'a') + 10;
        out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | value : value << 4);
    }
    return true;
}
