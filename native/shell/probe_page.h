/* A page of a member's table, as peerage_probe reads it. Apart from probe.c because gossip's
 * messages and the frames' have one name. */
#ifndef PEERAGE_SHELL_PROBE_PAGE_H
#define PEERAGE_SHELL_PROBE_PAGE_H

#include "core/base.h"
#include "peerage.h"

/* A pull request's bytes for everything there is. */
#define PROBE_REQUEST_BYTES (1 + 8 * 64)
void probe_request(uint8_t out[PROBE_REQUEST_BYTES]);

/* Append the page's records, counting in *count also those beyond `room`. False: malformed. */
bool probe_page(struct span page, struct peerage_seen *out, int room, int *count);

#endif
