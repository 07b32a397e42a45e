/* What a node knows of the cluster's live members at one moment, as ownership needs it:
 * who takes part in the contest for channels, and in which order they stand for one.
 * Built by `node` from membership, handed to `serve` whole, which lets it follow the one before;
 * never changed afterwards.
 */
#ifndef PEERAGE_VIEW_H
#define PEERAGE_VIEW_H

#include "addr.h"
#include "rendezvous.h"

enum phase { PHASE_LOOKING, PHASE_WARMING, PHASE_READY, PHASE_DRAINING, PHASE_LEFT };

struct view_member {
    struct addr addr;
    uint64_t node_id;
    uint64_t hash;              /* rendezvous_member */
    uint64_t started_ms;
    bool self;
    bool coordinates;           /* may coordinate */
    bool warming, draining, observer;
    bool contends;              /* takes part in the contest for channels */
    uint64_t contends_ms;       /* since when, as this node saw it (view_follow) */
    bool departs;               /* contends no more, but lives: it drains, or warms while others,
                                   who warmed with it, are past that (view_follow) */
};

struct view {
    uint64_t epoch;             /* +1 with each new view */
    uint64_t changed_ms;        /* when the set of contenders last changed */
    enum phase phase;           /* this node's own */
    unsigned count;             /* live members, self and observers among them; by address */
    int self;                   /* index, -1: not (yet) a member */
    int coordinator;            /* index, -1: none */
    bool any_departs;           /* of the members */
    unsigned contenders;        /* how many of them contend */
    uint64_t *contest;          /* the contenders' hashes, in the order of the members */
    uint16_t *places;           /* and where each stands among the members */
    struct view_member members[];
};

#define RANKS_MAX 3

/* An empty view with room for so many members (MEMBERS_MAX at most), one block of memory for
 * mem_free. NULL: out of memory. */
struct view *view_new(size_t room);

/* Sets contends for each member (rule M1: past warming and not draining nor observing;
 * where nobody is past warming, all the warming ones), the contest, self and coordinator (M8).
 * The members are sorted by address here. */
void view_finish(struct view *);

/* Takes over from the view before it (NULL: none) when the contest last changed, since when each
 * contends, and who did until lately; what is new is so from now on. True: the contest is the
 * same. */
bool view_follow(struct view *, const struct view *before, uint64_t now_ms);

/* Indices of the best contenders for a channel, best first. Returns how many. */
unsigned view_rank(const struct view *, uint64_t channel_hash, unsigned want,
                   unsigned out[RANKS_MAX]);

/* Who departs and would stand before all contenders: it owned the channel until a moment ago.
 * Its index, -1: none. */
int view_departing(const struct view *, uint64_t channel_hash);

/* Who would stand first among the contenders that were there before that one: the channel was
 * its, unless one that is gone stood before it. Of those that this node heard of together, who
 * started earlier was there before. Its index, -1: there was none. After view_follow. */
int view_former(const struct view *, uint64_t channel_hash, const struct view_member *newcomer);

/* Index of the member with this address, -1: none. */
int view_find(const struct view *, const struct addr *);

#endif
