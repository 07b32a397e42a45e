/* What the frames carry: one set of fields for every kind, so there is one encoder
 * and one decoder. Layout of the fields (all big-endian), behind the fixed part:
 *
 *   flags 1, value type 1, chain count 1, channel bytes 1, loader bytes 1, 0 1,
 *   key bytes 2, budget ms 4, load timeout ms 4, ttl ms 4, stale ms 4, age ms 4,
 *   delete id 8, chain (8 each), key, channel, loader,
 *   and where a value follows in the clear mode: its SHA-256, 32.
 *
 * A receiver skips what follows the fields it knows when the frame's version is
 * higher than its own (W8).
 */
#ifndef PEERAGE_MESSAGE_H
#define PEERAGE_MESSAGE_H

#include "base.h"
#include "blob.h"
#include "limits.h"
#include "wire.h"

/* X(name, number). Requests are even-handed: each names who sends it.
 * Numbers are for ever. */
#define MESSAGE_KINDS(X)                                                             \
    X(GOSSIP, 1)        /* UDP: the fields are membership's own payload */           \
    X(HELLO, 2)         /* client: proves itself; answered by WELCOME */             \
    X(WELCOME, 3)       /* server: proves itself */                                  \
    X(ASK, 4)           /* asker: this key, from your store or by a load */          \
    X(PEEK, 5)          /* from your store or a load that runs; never starts one */  \
    X(VALUE, 6)         /* answer: an entry */                                       \
    X(MISS, 7)          /* answer: not here (PEEK, or ASK without a loader) */       \
    X(FAILED, 8)        /* answer: the loader raised; the value is the error */      \
    X(ACCEPTED, 9)      /* interim answer: a load of it runs (O5) */                 \
    X(WORKING, 10)      /* interim answer, every second: it still runs */            \
    X(NOT_ME, 11)       /* answer: not an owner (looking, warming, draining) */      \
    X(BUSY, 12)         /* answer: no loader took it in time */                      \
    X(PERMIT, 13)       /* answer: run your own loader; the same request id returns it */ \
    X(LOADED, 14)       /* permit holder: here is the value */                       \
    X(RAISED, 15)       /* permit holder: my loader raised; the value is the error */ \
    X(RETURNED, 16)     /* permit holder: could not load; give it to the next */     \
    X(PUSH, 17)         /* an entry for its heir or new owner; answered by DONE */   \
    X(DELETE, 18)       /* asker to owner: delete everywhere; answered by DELETED */ \
    X(DROP, 19)         /* owner to all: apply this delete; answered by DONE */      \
    X(DELETED, 20)      /* answer: the value lists who acknowledged and who did not */ \
    X(DONE, 21)         /* answer: applied */                                        \
    X(TABLE, 22)        /* a page of the member table, from the cursor in the value */ \
    X(PAGE, 23)         /* answer: the page */                                       \
    X(TALLY, 24)        /* counts, both ways */                                      \
    X(UNSUPPORTED, 25)  /* answer: unknown kind (W8) */                              \
    X(CANCEL, 26)       /* asker: nobody waits for this request id any more */       \
    X(LOST, 27)         /* answer: the load was lost; ask again */                   \
    X(RECURSIVE, 28)    /* answer: the key stands in the request's chain */

enum message_kind {
#define X(name, number) MESSAGE_##name = number,
    MESSAGE_KINDS(X)
#undef X
};

const char *message_kind_text(uint8_t kind);    /* "unknown" when it is */

enum message_flags {
    MESSAGE_MORE = 1,           /* another frame with the same request id follows */
    MESSAGE_LOADS = 2,          /* ASK: the asker has a loader, a permit is welcome */
    MESSAGE_OWNER_SILENT = 4,   /* ASK: a higher rank did not answer (O3) */
    MESSAGE_BY_CHANNEL = 8,     /* DELETE, DROP: all keys of the channel */
    MESSAGE_SET = 16,           /* DELETE, DROP: the value comes in its place */
    MESSAGE_STALE = 32,         /* VALUE: past its ttl, within its stale time */
    MESSAGE_FRESH = 64,         /* ASK: load although it is in the store */
    MESSAGE_FLAGS_KNOWN = 2 * MESSAGE_FRESH - 1,    /* all of the above: others don't parse */
};

/* What an entry's bytes mean. Numbers are for ever. */
enum value_type {
    VALUE_BYTES = 0,
    VALUE_STR = 1,              /* UTF-8 */
    VALUE_JSON = 2,             /* UTF-8 */
    VALUE_PICKLE = 3,
    VALUE_ERROR = 4,            /* JSON object: a loader's error */
    VALUE_TYPE_COUNT
};

struct message {
    uint8_t kind, flags, value_type, chain_count;
    uint64_t request_id, sender_id;     /* from, and to, the fixed part */
    uint32_t budget_ms;         /* what is left of the asker's patience (O2, O5) */
    uint32_t load_timeout_ms;
    uint32_t ttl_ms;            /* request: the ttl wanted; value: what is left of it.
                                   0: hand it on, store nothing; UINT32_MAX: for ever */
    uint32_t stale_ms;          /* further time in which it may be served stale */
    uint32_t age_ms;            /* value: since its owner stored it */
    uint64_t delete_id;         /* sender's id for the key, 0 for none (D2); of a DROP, its own */
    uint64_t chain[CHAIN_MAX];  /* keyed hashes of the keys this load is for (O6) */
    struct span key;
    struct span channel;        /* empty: equals the key */
    struct span loader;         /* registered loader's name, empty: a closure, or none */
    uint32_t value_bytes;       /* of the value in the clear */
    uint8_t digest[DIGEST_BYTES];
};

static inline struct span message_channel(const struct message *m)
{
    return m->channel.bytes ? m->channel : m->key;
}

/* Write the fields; with_digest where a value follows and the mode is clear.
 * ERR_TOO_BIG when a length is above its bound (nothing useful is then in `w`). */
int message_encode(const struct message *, bool with_digest, struct writer *w);

/* Read the fields into *out; spans borrow from `fields`. kind, ids and value_bytes
 * are the caller's to set before. `newer`: the frame's version is above ours, extra
 * bytes are fine. False: they don't parse (a length above its bound, a value type
 * or count out of range, bytes left over). */
bool message_decode(struct span fields, bool newer, bool with_digest, struct message *out);

/* A delete or set: to be run by the owner, or told to a member. */
static inline bool message_is_change(const struct message *m)
{
    return m->kind == MESSAGE_DELETE || m->kind == MESSAGE_DROP;
}

#endif
