/* The clocks, and nowhere else (rules C1, V2).
 *
 * One time for everything: milliseconds of CLOCK_BOOTTIME, which goes on while the machine
 * sleeps, so that a laptop does not wake up to an hour-old "fresh" page. A local hit
 * compares a cheaper one: MONOTONIC_COARSE (a few ms coarse) plus what BOOTTIME is ahead
 * of it, which changes only in a sleep and is looked at afresh by everyone who reads the
 * exact clock.
 */
#ifndef PEERAGE_SHELL_CLOCK_H
#define PEERAGE_SHELL_CLOCK_H

#include <stdint.h>

uint64_t clock_now_ms(void);
uint64_t clock_wall_ms(void);
/* For spans of less than a millisecond; from any moment. */
uint64_t clock_now_ns(void);
/* For hits. Every few of a thread's calls, and every clock_now_ms(), refresh the offset. */
uint64_t clock_coarse_ms(void);

#endif
