/* Looking for an answer a little while before sleeping for it (rule W10).
 *
 * A peer of the same host answers a hit in less time than it takes to put a thread to sleep
 * and to wake it, above all where an idle processor halts. So who waits for it looks first,
 * as a hypervisor does before it halts a processor (Linux, Documentation/virt/kvm/
 * halt-polling.rst), and as an adaptive mutex does before it sleeps. Where that is mostly in
 * vain (the owner is busy, loads, or waits for this very processor) it soon stops, and is
 * tried again once in a while. Each connection learns that for itself.
 */
#ifndef PEERAGE_SHELL_SPIN_H
#define PEERAGE_SHELL_SPIN_H

#include <poll.h>
#include <stdint.h>

struct spin {
    uint32_t max_ns;            /* how long to look; 0: never */
    unsigned score;             /* of the looks before: one up if they found, four down if not */
    unsigned rest;              /* waits to come that sleep at once */
};

enum spin_look { SPIN_RESTED, SPIN_FOUND, SPIN_VAIN };

/* poll(), with the same arguments and result, which looks first if that pays. Driver of the
 * connection only. timeout_ms counts from when it sleeps. */
int spin_poll(struct spin *, struct pollfd *, nfds_t count, int timeout_ms, enum spin_look *);

#endif
