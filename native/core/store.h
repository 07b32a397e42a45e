/* The node's own entries: a hash table of keys with TTLs behind a byte bound.
 *
 * No lock of its own: every call stands under the shell's one short lock, so nothing
 * here may allocate much, hash a value, or release a foreign owner (the blobs that an
 * operation frees are handed to the caller's `dropped` list instead; V1).
 * A hit touches as little as possible: eviction is SIEVE (Zhang et al., NSDI 2024), whose
 * hit sets one bit, behind a small window and TinyLFU's admission (see store.c).
 * The byte count covers keys, values and bookkeeping, and equals a walk of the table.
 * Values below 1 KiB lie inline behind their entry, larger ones are blobs.
 */
#ifndef PEERAGE_STORE_H
#define PEERAGE_STORE_H

#include "base.h"
#include "blob.h"
#include "message.h"

#define STORE_INLINE_BYTES_MAX 1024u    /* a foreign blob of any size is kept as a blob */

struct store;

/* What to put. The store copies the spans, and takes a reference of its own to blob.
 * The value is `blob` if set (values of at most STORE_INLINE_BYTES_MAX that are not
 * foreign are copied inline), else `bytes`. */
struct store_item {
    struct span key;
    uint64_t channel_hash;      /* for invalidating a whole channel; any hash, one meaning */
    bool alone;                 /* the channel is this key and no other's: it costs 15 bytes
                                 * less, and store_delete_channel does not see it, so whoever
                                 * deletes the channel deletes the key too */
    struct blob *blob;
    struct span bytes;
    uint8_t value_type;
    uint64_t stored_ms;         /* when its owner stored it, on this node's clock */
    uint64_t expires_ms;        /* NEVER_MS: never */
    uint64_t stale_until_ms;    /* >= expires_ms; equal: not served stale */
};

/* A hit. Either blob (borrowed; blob_ref it under the lock to keep it) or inline bytes
 * (borrowed; copy them under the lock). */
struct store_hit {
    struct span bytes;          /* always set */
    struct blob *blob;          /* NULL: the bytes lie inline */
    uint8_t value_type;
    bool stale;                 /* past expires_ms, within stale_until_ms */
    bool was_hit;               /* before this; since when, see store_was_hit */
    uint64_t stored_ms, expires_ms, stale_until_ms;
};

/* bytes_max: the bound. hash_key: random, against chosen collisions. NULL: out of memory. */
struct store *store_new(size_t bytes_max, const uint8_t hash_key[16]);
void store_free(struct store *);        /* unrefs all; any thread, no lock needed any more */

/* Blobs an operation let go: the caller unrefs them after the lock (blob_unref).
 * Fixed room; a full list makes the operation stop evicting early, never leak. Only foreign
 * blobs wait for room: when the list is full the others are let go at once. */
#define STORE_DROPPED_MAX 256
struct store_dropped {
    unsigned count;
    struct blob *blobs[STORE_DROPPED_MAX];
};

/* Store or replace. May evict. ERR_TOO_BIG if it could never fit (nothing is evicted then),
 * ERR_NOMEM, or ERR_FULL when `dropped` or the work of one call was used up before enough
 * was evicted: unref what `dropped` holds and put again, each call with an empty list comes
 * nearer. The old entry stays in all three, because a failed write must not also be a delete.
 * A ttl or stale time above 49 days that is not NEVER_MS is cut to that. */
int store_put(struct store *, const struct store_item *, uint64_t now_ms,
              struct store_dropped *dropped);

/* False: absent or past stale_until_ms (then it is left for store_sweep). A stale hit
 * is returned only if `stale_too`. */
bool store_get(struct store *, struct span key, uint64_t now_ms, bool stale_too,
               struct store_hit *out);

/* These keys will be looked for in a moment, in this order or another: what finding them reads
 * comes from memory for all at once instead of one after the other (group prefetching; Chen et
 * al., "Improving Hash Join Performance through Prefetching", ICDE 2004, section 4). At most
 * STORE_PREFETCH_MAX; borrows. Finds, marks and counts nothing; returns for how many there seems
 * to be an entry. */
#define STORE_PREFETCH_MAX 16u      /* 8 to 32 at once take the same time each: bench_store burst */
unsigned store_prefetch(const struct store *, const struct span *keys, unsigned count);

/* While this is what it was under the lock at a hit, another hit of that key would find the
 * same blob, until it expires, and write nothing. The one call that needs no lock. */
uint64_t store_generation(const struct store *);

/* Was it hit since it was first stored, last evicted around, or last asked so? Starts anew. */
bool store_was_hit(struct store *, struct span key);

/* Swap the blob of `key` from `old` to `fresh` (the same bytes held otherwise: a Python
 * object in place of a native copy) if the entry still holds `old`. Takes a reference
 * to fresh when it returns true; `old`'s goes to dropped. */
bool store_swap(struct store *, struct span key, struct blob *old, struct blob *fresh,
                struct store_dropped *dropped);

/* False: there was no such entry, not even an expired one. If `dropped` is full the entry
 * is gone all the same, its blob is handed on by a later operation, and counted until then. */
bool store_delete(struct store *, struct span key, struct store_dropped *);
/* Delete up to room-in-dropped entries of a channel; true when none is left. */
bool store_delete_channel(struct store *, uint64_t channel_hash, struct store_dropped *);
/* The same for everything (D3). */
bool store_clear(struct store *, struct store_dropped *);
/* Look at up to `steps` entries, free those past their stale time; call now and then. */
void store_sweep(struct store *, uint64_t now_ms, unsigned steps, struct store_dropped *);

/* Walk in no order: start with cursor 0; gives one entry and returns the next cursor, or
 * returns 0 when there was none left to give. Skips what is past its stale time. The key
 * and hit are borrowed under the lock. Entries put meanwhile may be missed, those deleted
 * are not given; only while a store loses most of its entries may one be missed that was
 * there all the time. */
uint64_t store_walk(struct store *, uint64_t cursor, uint64_t now_ms, struct span *key,
                    uint64_t *channel_hash, struct store_hit *out);

struct store_stats {
    uint64_t entries, bytes, bytes_max, evicted, expired;
};
void store_stats(const struct store *, struct store_stats *out);

/* Tests: walk everything, assert every invariant, return the bytes as counted afresh. */
uint64_t store_check(const struct store *);

#endif
