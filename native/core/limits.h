/* Every bound of the layer, in one place. What exceeds one gets a clear error,
 * and nothing already there is lost. Builds with -DPEERAGE_SMALL_LIMITS shrink
 * what they can, to give bugs a chance in the tests.
 */
#ifndef PEERAGE_LIMITS_H
#define PEERAGE_LIMITS_H

/* Wire */
#define FRAME_BYTES_MAX (8u << 20)      /* head + value */
#define HEAD_BYTES_MAX 2048u
#define KEY_BYTES_MAX 1024u
#define CHANNEL_BYTES_MAX 255u
#define LOADER_BYTES_MAX 255u
#define CHAIN_MAX 8u
#define PACKET_BYTES_MAX 1400u          /* one UDP datagram: below every common MTU */
#define CLOCK_SKEW_MS_MAX 30000u        /* a head's time this far off is refused */

/* A node */
#define MEMBERS_MAX 16384u
#define SEEDS_MAX 64u
#define CIDRS_MAX 64u
#define SECRETS_MAX 2u
#define TOMBSTONE_MS (25u * 3600u * 1000u)

#ifdef PEERAGE_SMALL_LIMITS
#define SESSIONS_MAX 8u
#define CONNECTIONS_MAX 16u
#define UNPROVEN_MAX 8u
#define UNPROVEN_PER_ADDRESS_MAX 4u
#define WAITING_LOADS_MAX 16u
#define DELETES_REMEMBERED_MAX 8u
#define KIN_MAX 16u
#define EARLY_MAX 16u
#define TALLY_KEYS_MAX 64u
#define TALLY_NODES_MAX 128u
#define TALLY_DIRECT_MEMBERS_MAX 4u
#else
#define SESSIONS_MAX 16384u             /* UDP replay windows */
#define CONNECTIONS_MAX 4096u           /* inbound */
#define UNPROVEN_MAX 512u               /* inbound, nothing verified yet */
#define UNPROVEN_PER_ADDRESS_MAX 64u
#define WAITING_LOADS_MAX 4096u
#define DELETES_REMEMBERED_MAX 65536u
#define EARLY_MAX 4096u                 /* keys that wait for an early refresh */
#define KIN_MAX 8192u                   /* entries remembered to be another's `also` */
#define TALLY_KEYS_MAX 65536u           /* at most three quarters of them only others' */
#define TALLY_NODES_MAX 4096u           /* whose counts of one key are kept */
#define TALLY_DIRECT_MEMBERS_MAX 64u    /* above, counts go through the key's owner (T2) */
#endif
#define TALLY_NAME_BYTES_MAX 255u
#define UNPROVEN_MS_MAX 2000u           /* to send a first head that verifies */
#define QUEUED_BYTES_MAX (32u << 20)    /* waiting to be written, per connection */

/* Times, ms */
#define AVOID_MS 3000u                  /* a silent owner is left alone (O2) */
#define WORKING_EVERY_MS 1000u          /* "still working" (O5) */
#define WORKING_MISSED_MAX 3u           /* so many missing, and its sender is silent */
#define WARMING_MS 1000u                /* M1 */
#define LOOKING_MS 1000u                /* M1 */
#define DRAIN_MS_MAX 5000u              /* O8 */

#endif
