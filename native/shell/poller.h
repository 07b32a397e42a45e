/* An event loop's set of descriptors, itself a descriptor: epoll with a timerfd in it, on
 * BSD a kqueue. So the application's event loop watches one descriptor for a port, and the
 * hazards of adding and removing ours there (a closed and reused number that fires for the
 * wrong owner; rule O10) do not exist: an epoll set forgets a file when it is closed, and
 * nobody else knows its number.
 */
#ifndef PEERAGE_SHELL_POLLER_H
#define PEERAGE_SHELL_POLLER_H

#include "core/base.h"

#define POLLER_EVENTS_MAX 64
#define ADOPTED_MAX 4

enum { POLLER_READ = 1, POLLER_WRITE = 2 };

struct poller {
    int fd;                     /* to watch for reading */
    int timer_fd;
    uint64_t armed_ms;          /* NEVER_MS: not */
};

struct poller_event {
    void *token;                /* NULL: the timer */
    int events;
};

bool poller_init(struct poller *, bool with_timer);
void poller_deinit(struct poller *);
/* Watch, or watch for something else. Level-triggered. False: out of memory. */
bool poller_watch(struct poller *, int fd, int events, void *token, bool known);
/* Before a descriptor that is not closed goes to another owner. */
void poller_unwatch(struct poller *, int fd);
/* Fire at a time of clock_now_ms, at the latest; armed for an earlier one it stays so. */
void poller_arm(struct poller *, uint64_t due_ms, uint64_t now_ms);
/* What is ready now; never waits. Returns how many; a fired timer is disarmed. */
int poller_take(struct poller *, struct poller_event out[POLLER_EVENTS_MAX]);

/* libev does not tell its descriptors, which a forked child has to close (P2): find the
 * epoll set that watches `fd` and what else is libev's in it, and keep them for fork.
 * Returns how many; a platform where they are not inherited has none. */
unsigned poller_adopt(int fd, int adopted[ADOPTED_MAX]);
/* Before libev closes them itself. */
void poller_disown(const int *adopted, unsigned count);

#endif
