/* Canonical keys (rule K1): the same arguments give the same key in every process and
 * different arguments never do. A key reads
 *
 *   cache ':' function ':' value ('/' value)*        for a decorated function
 *   cache '=' raw key bytes                          for get and set
 *
 * A value is a type letter and its text, in which % / : = ( ) , and bytes below 0x21 or
 * 0x7f are written %XX:
 *   s str   i int (decimal)   t/f True, False   n None   b bytes (hex)
 *   d float (its shortest round-trip repr, "inf", "-inf"; -0.0 is not 0.0)
 *   u UUID (32 hex)   D date (ISO)   T zoned datetime (ISO in its own offset)
 *   ( values separated by ',' )  tuple
 * The form is reversible: key_next reads it back.
 */
#ifndef PEERAGE_KEY_H
#define PEERAGE_KEY_H

#include "base.h"
#include "wire.h"

/* Escaped text, without a type letter. */
void key_put_text(struct writer *, struct span text);
/* Type letter and escaped text. */
void key_put(struct writer *, char type, struct span text);
void key_put_int(struct writer *, int64_t);
void key_put_bytes(struct writer *, struct span);       /* 'b' and hex */

/* One item of a key read back. For '(' the members follow until ')'. */
struct key_item {
    char type;          /* a type letter, '(' or ')', or 0 at the end */
    struct span text;   /* unescaped, in the caller's scratch */
};

struct key_reader {
    const uint8_t *at, *end;
    unsigned depth;
    bool failed;
};

/* Split cache and function (unescaped into scratch, at least key.bytes long) and set the
 * reader at the first value. False for a raw key or a malformed one. */
bool key_read(struct span key, uint8_t *scratch, struct span *cache, struct span *function,
              struct key_reader *values);
/* The next item, unescaped into scratch. False when malformed or at the end (type 0). */
bool key_next(struct key_reader *, uint8_t *scratch, struct key_item *out);

/* The bytes of a 'b' item, whose text is their hex. `out` holds half of text.bytes; it may
 * be the text itself. False: not hex. */
bool key_unhex(struct span text, uint8_t *out);

#endif
