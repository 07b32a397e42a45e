/* UDP replay windows (see replay.h).
 *
 * A hash table with a fixed number of chains, keyed by a hash with a secret of this
 * process, since the ids are the senders' choice. Each check looks into one further
 * chain for what has expired, so the table shrinks on its own; only a full one is
 * searched through.
 */
#include "replay.h"

#include <sodium.h>

#include "mem.h"
#include "wire.h"

#define CHAINS 2048u
#define WORD_BITS 64u
/* One word more than the window: the word of the highest counter is only partly used. */
#define WORDS (REPLAY_WINDOW / WORD_BITS + 1)

struct session {
    struct session *next;
    uint64_t id;
    uint8_t random[FRAME_RANDOM_BYTES];
    uint64_t counter_max;
    uint64_t sent_ms_max;
    uint64_t floor_ms;      /* what was sent until then may have been seen before it began */
    uint64_t seen[WORDS];   /* a ring: bit c % 64 of word (c / 64) % WORDS */
};

struct replay {
    struct session *chains[CHAINS];
    size_t count;
    uint8_t hash_key[16];
    unsigned hand;              /* the chain that is looked through next */
    uint64_t forgotten_ms;      /* highest sender time of any session forgotten; only rises */
    uint64_t expires_ms_min;    /* no session expires before; 0 when not known */
};

struct replay *replay_new(const uint8_t hash_key[16])
{
    struct replay *r = mem_zalloc(sizeof *r);

    if (r)
        memcpy(r->hash_key, hash_key, sizeof r->hash_key);
    return r;
}

void replay_free(struct replay *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < CHAINS; i++) {
        for (struct session *s = r->chains[i], *next; s; s = next) {
            next = s->next;
            mem_free(s);
        }
    }
    mem_wipe(r, sizeof *r);
    mem_free(r);
}

size_t replay_count(const struct replay *r)
{
    return r->count;
}

static uint64_t expires_ms(const struct session *s)
{
    return s->sent_ms_max + CLOCK_SKEW_MS_MAX;
}

static void forget_expired(struct replay *r, unsigned chain, uint64_t wall_ms)
{
    for (struct session **at = &r->chains[chain]; *at;) {
        struct session *s = *at;
        if (expires_ms(s) >= wall_ms) {
            at = &s->next;
            continue;
        }
        r->forgotten_ms = max_u64(r->forgotten_ms, s->sent_ms_max);
        r->count--;
        *at = s->next;
        mem_free(s);
    }
}

static bool make_room(struct replay *r, uint64_t wall_ms)
{
    if (r->count < SESSIONS_MAX)
        return true;
    if (wall_ms <= r->expires_ms_min)
        return false;
    for (unsigned i = 0; i < CHAINS; i++)
        forget_expired(r, i, wall_ms);
    if (r->count < SESSIONS_MAX)
        return true;
    /* Times only rise, so until the earliest passes there is no need to look again. */
    r->expires_ms_min = UINT64_MAX;
    for (unsigned i = 0; i < CHAINS; i++) {
        for (const struct session *s = r->chains[i]; s; s = s->next)
            r->expires_ms_min = min_u64(r->expires_ms_min, expires_ms(s));
    }
    return false;
}

static unsigned chain_of(const struct replay *r, const struct frame *f)
{
    uint8_t name[8 + FRAME_RANDOM_BYTES], hash[crypto_shorthash_BYTES];
    struct writer w = writer_of(name, sizeof name);

    put_u64(&w, f->sender_id);
    put_span(&w, span_of(f->random, sizeof f->random));
    crypto_shorthash(hash, name, sizeof name, r->hash_key);
    return (unsigned)(hash[0] | hash[1] << 8) % CHAINS;
}

/* Mark `counter` as seen; false if it was, or lies too far back to tell. */
static bool mark(struct session *s, uint64_t counter)
{
    uint64_t word = counter / WORD_BITS, word_max = s->counter_max / WORD_BITS;

    if (counter > s->counter_max) {
        for (uint64_t i = 1; i <= min_u64(word - word_max, WORDS); i++)
            s->seen[(word_max + i) % WORDS] = 0;
        s->counter_max = counter;
    } else if (s->counter_max - counter > REPLAY_WINDOW) {
        return false;
    }
    uint64_t bit = UINT64_C(1) << counter % WORD_BITS, *at = &s->seen[word % WORDS];
    if (*at & bit)
        return false;
    *at |= bit;
    return true;
}

enum verdict replay_check(struct replay *r, const struct frame *f, uint64_t wall_ms)
{
    unsigned chain = chain_of(r, f);
    struct session *s;

    r->hand = (r->hand + 1) % CHAINS;
    forget_expired(r, r->hand, wall_ms);

    for (s = r->chains[chain]; s; s = s->next) {
        if (s->id == f->sender_id && memcmp(s->random, f->random, sizeof s->random) == 0)
            break;
    }
    if (!s) {
        /* Room first: making it may forget more. */
        if (!make_room(r, wall_ms))
            return VERDICT_FULL;
        if (f->sent_ms <= r->forgotten_ms)
            return VERDICT_REPLAY;
        if (!(s = mem_zalloc(sizeof *s)))
            return VERDICT_FULL;
        s->id = f->sender_id;
        memcpy(s->random, f->random, sizeof s->random);
        s->counter_max = f->counter;
        s->sent_ms_max = f->sent_ms;
        s->floor_ms = r->forgotten_ms;
        s->next = r->chains[chain];
        r->chains[chain] = s;
        r->count++;
        r->expires_ms_min = min_u64(r->expires_ms_min, expires_ms(s));
    }
    if (f->sent_ms <= s->floor_ms || !mark(s, f->counter))
        return VERDICT_REPLAY;
    s->sent_ms_max = max_u64(s->sent_ms_max, f->sent_ms);
    return VERDICT_OK;
}
