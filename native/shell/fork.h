/* Descriptors and fork (rules P1, P2).
 *
 * A forked child that keeps a node's listening socket answers connections for a dead
 * parent; one that touches the parent's epoll set makes the parent deaf. So the child
 * does one thing: it close()s every descriptor of every node. For that each descriptor
 * of ours stands in one bitmap, set in the moment it is opened and cleared in the moment
 * it is closed, both under one mutex which the fork itself takes first: a child finds
 * the bitmap exact. It takes no lock of a node, frees nothing, touches no libev.
 */
#ifndef PEERAGE_SHELL_FORK_H
#define PEERAGE_SHELL_FORK_H

#include <stdbool.h>

/* Install the handlers, once a process. Any thread, any number of times. False: the system
 * has no memory for them. */
bool fork_init(void);

/* Open descriptors between these two and hand each to fork_keep (negative ones are ignored):
 *
 *     fork_hold();
 *     fd = fork_keep(socket(...));
 *     fork_release();
 *
 * fork_keep returns the descriptor; one beyond the bitmap is closed, and -1 with EMFILE. */
void fork_hold(void);
int fork_keep(int fd);
void fork_release(void);
/* Between the two: somebody else is going to close it. */
void fork_unkeep(int fd);

/* close(). Negative ones are ignored. */
void fork_close(int fd);

#endif
