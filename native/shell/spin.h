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

/* Before a poll() that may sleep, for the same descriptors: its result if something was found, or
 * 0. Driver of the connection only. A signal that comes meanwhile cuts no poll: after
 * SPIN_VAIN the caller has to see to it before it sleeps. */
int spin_poll(struct spin *, struct pollfd *, nfds_t count, enum spin_look *);

#endif
