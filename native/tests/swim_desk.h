/* One membership core on a desk, told things by hand: a test makes the datagrams its peers
 * would send, lets time pass, and looks at the effects.
 */
#ifndef PEERAGE_TESTS_SWIM_DESK_H
#define PEERAGE_TESTS_SWIM_DESK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/err.h"
#include "core/mem.h"
#include "core/swim_core.h"

#define WALL 1700000000000ull
#define ROOM 1264u

/* The core under test lives at 10.0.0.1:7946 and has id 1; peer k at 10.0.0.k:7946
 * has id 100 + k. */
struct desk {
    struct swim *swim;
    struct swim_out out;
    uint64_t now_ms;
};

struct addr desk_host(uint32_t k);          /* peer k's address; 1: the core's own */
struct swim_config desk_config(void);
void desk_open(struct desk *);
void desk_open_with(struct desk *, const struct swim_config *);
/* With members 2..n, known and alive; the core is past warming. */
void desk_with_members(struct desk *, uint32_t n);
void desk_close(struct desk *);
void desk_forget(struct desk *);            /* the effects so far */

/* Let time pass, ticking exactly when due; effects pile up. */
void desk_pass(struct desk *, uint64_t for_ms);

/* What one may say of member k. A suspicion comes from peer 9. */
struct update desk_about(uint32_t k, uint8_t state, uint64_t version);
struct swim_message desk_join_message(void);
/* A datagram of peer k comes in, joins alone with an open receiver. */
enum swim_verdict desk_hear(struct desk *, uint32_t k, struct swim_message,
                            const struct update *, size_t count);
enum swim_verdict desk_hear_as(struct desk *, uint32_t k, uint64_t id, bool open,
                               struct swim_message, const struct update *, size_t count);
/* Gossip from peer k about one member. */
void desk_gossip(struct desk *, uint32_t k, struct update);

/* The nth datagram of this kind among the effects; false if there is none. */
bool desk_sent(const struct desk *, uint8_t kind, size_t nth, struct swim_message *,
               const struct swim_effect **);
size_t desk_count_sent(const struct desk *, uint8_t kind);
size_t desk_count_effects(const struct desk *, uint8_t kind);
bool desk_logged(const struct desk *, uint8_t log);
/* The update about k in a message; false if it has none. */
bool desk_says_of(const struct swim_message *, uint32_t k, struct update *);
uint8_t desk_state_of(const struct desk *, uint32_t k);     /* 255: no record of it */

#endif
