/* Measures the store: time per hit and put, memory per entry, growth, and how many hits its
 * eviction gets beside an exact LRU of the same room.
 *
 *     make bench                          all of it, about a minute
 *     build/bench/bench_store grow        one of: hit memory burst grow ratio
 *
 * One line a row: name, value, unit. Hits and puts are wall time, so an idle machine is
 * assumed; the slowest puts are counted in the time of the processor.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "core/prng.h"
#include "core/store.h"

#define KEY_BYTES 20u

static const uint8_t hash_key[16] = {1, 6, 1, 8, 0, 3};

static void row(const char *name, double value, const char *unit)
{
    printf("  %-34s %10.1f %s\n", name, value, unit);
    fflush(stdout);
}

/* "c=bench:000000001234", without the cost of printf. */
static struct span key_of(uint8_t out[KEY_BYTES], uint64_t i)
{
    memcpy(out, "c=bench:", 8);
    for (unsigned at = KEY_BYTES; at-- > 8; i /= 10)
        out[at] = (uint8_t)('0' + i % 10);
    return span_of(out, KEY_BYTES);
}

static struct store *new_store(size_t bytes_max)
{
    struct store *s = store_new(bytes_max, hash_key);

    if (!s) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return s;
}

/* Whether a key is its own channel, as it is by default. */
static bool alone = true;

static void put(struct store *s, uint64_t i, struct span value)
{
    uint8_t key[KEY_BYTES];
    struct store_dropped dropped = {0};
    struct store_item item = {
        .key = key_of(key, i), .channel_hash = i, .alone = alone, .bytes = value,
        .stored_ms = 1, .expires_ms = 60000, .stale_until_ms = 60000,
    };

    if (store_put(s, &item, 1, &dropped) != 0) {
        fprintf(stderr, "a put failed\n");
        exit(1);
    }
    while (dropped.count)
        blob_unref(dropped.blobs[--dropped.count]);
}

static bool get(struct store *s, uint64_t i)
{
    uint8_t key[KEY_BYTES];
    struct store_hit hit;

    return store_get(s, key_of(key, i), 2, false, &hit);
}

static struct store *filled(uint64_t entries, struct span value)
{
    struct store *s = new_store((size_t)1 << 40);

    for (uint64_t i = 0; i < entries; i++)
        put(s, i, value);
    return s;
}

/* Nanoseconds for one hit, keys at random, without what it takes to choose and write them. */
static double hit_ns(struct store *s, uint64_t entries, uint64_t times)
{
    struct prng p;
    uint8_t key[KEY_BYTES];
    uint64_t start, bare, hits = 0, sink = 0;

    prng_seed(&p, 7);
    start = now_ns();
    for (uint64_t i = 0; i < times; i++)
        sink += key_of(key, prng_below(&p, entries)).at[KEY_BYTES - 1];
    bare = now_ns() - start;
    prng_seed(&p, 7);
    start = now_ns();
    for (uint64_t i = 0; i < times; i++)
        hits += get(s, prng_below(&p, entries));
    uint64_t all = now_ns() - start;
    if (hits != times || sink == 0)
        exit(1);
    return (double)(all > bare ? all - bare : 0) / (double)times;
}

/* The same for so many keys after each other that are known before, their values read. */
static double burst_hit_ns(struct store *s, uint64_t entries, uint64_t times, bool prefetch)
{
    static uint8_t keys[STORE_PREFETCH_MAX][KEY_BYTES];
    struct span spans[STORE_PREFETCH_MAX];
    struct store_hit hit;
    struct prng p;
    uint64_t spent = 0, hits = 0, sink = 0;

    prng_seed(&p, 8);
    for (uint64_t i = 0; i < times; i += STORE_PREFETCH_MAX) {
        for (unsigned k = 0; k < STORE_PREFETCH_MAX; k++)
            spans[k] = key_of(keys[k], prng_below(&p, entries));
        uint64_t start = now_ns();
        if (prefetch)
            store_prefetch(s, spans, STORE_PREFETCH_MAX);
        for (unsigned k = 0; k < STORE_PREFETCH_MAX; k++) {
            hits += store_get(s, spans[k], 2, false, &hit);
            for (size_t at = 0; at < hit.bytes.bytes; at += 64)
                sink += hit.bytes.at[at];
        }
        spent += now_ns() - start;
    }
    if (hits < times || sink)       /* each is there, and of zeroes */
        exit(1);
    return (double)spent / (double)hits;
}

static void measure_bursts(void)
{
    static const uint8_t small[100], large[2048];
    const struct span values[] = {{small, sizeof small}, {large, sizeof large}};

    for (unsigned v = 0; v < 2; v++) {
        struct store *s = filled(100000, values[v]);
        char name[64];
        for (unsigned prefetch = 0; prefetch < 2; prefetch++) {
            snprintf(name, sizeof name, "%zu B: hit of %u%s", values[v].bytes, STORE_PREFETCH_MAX,
                     prefetch ? ", prefetched" : "");
            row(name, burst_hit_ns(s, 100000, 3000000, prefetch), "ns");
        }
        store_free(s);
    }
}

static double median3(double a, double b, double c)
{
    return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
}

static void measure_hits(void)
{
    static const uint8_t value[100], large[56 << 10];
    struct store *s = filled(1000, span_of(value, sizeof value));
    struct blob *b = blob_copy(span_of(large, sizeof large));
    struct store_dropped dropped = {0};
    uint8_t key[KEY_BYTES];

    row("hit, 1 key", median3(hit_ns(s, 1, 5000000), hit_ns(s, 1, 5000000), hit_ns(s, 1, 5000000)),
        "ns");
    row("hit, 1000 keys", median3(hit_ns(s, 1000, 5000000), hit_ns(s, 1000, 5000000),
                                  hit_ns(s, 1000, 5000000)), "ns");

    uint64_t start = now_ns(), missed = 0;
    for (uint64_t i = 0; i < 5000000; i++)
        missed += !get(s, 1000000 + i % 1000);
    row("miss, with writing its key", (double)(now_ns() - start) / (double)missed, "ns");

    start = now_ns();
    for (uint64_t i = 0; i < 2000000; i++)
        put(s, i % 1000, span_of(value, sizeof value));
    row("overwrite, 100 bytes", (double)(now_ns() - start) / 2e6, "ns");

    struct store_item item = {.key = key_of(key, 5), .blob = b, .expires_ms = NEVER_MS,
                              .stale_until_ms = NEVER_MS};
    start = now_ns();
    for (unsigned i = 0; i < 2000000; i++) {
        if (store_put(s, &item, 1, &dropped) != 0)
            exit(1);
        while (dropped.count)
            blob_unref(dropped.blobs[--dropped.count]);
    }
    row("overwrite, 56 KB blob", (double)(now_ns() - start) / 2e6, "ns");
    blob_unref(b);
    store_free(s);
}

static double resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f)
        return 0;
    if (fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void measure_memory_of(const char *counted, const char *resident)
{
    static const uint8_t value[100];
    const double entries = 1e6;
    double before = resident_bytes();
    struct store *s = filled((uint64_t)entries, span_of(value, sizeof value));
    struct store_stats stats;

    store_stats(s, &stats);
    row(counted, (double)stats.bytes / entries, "bytes an entry");
    if (resident && before > 0)
        row(resident, (resident_bytes() - before) / entries, "bytes an entry");
    store_free(s);
}

static void measure_memory(void)
{
    measure_memory_of("1e6 of 100 bytes, as counted", "1e6 of 100 bytes, resident");
    alone = false;
    measure_memory_of("1e6 in a channel each, as counted", NULL);
    alone = true;
}

/* The processor's time alone, so that other programs make no put look slow. */
static uint64_t own_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void measure_pauses(uint64_t entries, struct span value)
{
    struct store *s = new_store((size_t)1 << 40);
    uint64_t *took = malloc(entries * sizeof *took), before = own_ns();
    char name[64];

    if (!took)
        exit(1);
    for (uint64_t i = 0; i < entries; i++) {
        put(s, i, value);
        uint64_t after = own_ns();
        took[i] = after - before;
        before = after;
    }
    qsort(took, entries, sizeof *took, ascending);
    snprintf(name, sizeof name, "%.0e entries: slowest of 10000 puts", (double)entries);
    row(name, (double)took[entries - 1 - entries / 10000] / 1e3, "us");
    snprintf(name, sizeof name, "%.0e entries: slowest put", (double)entries);
    row(name, (double)took[entries - 1] / 1e3, "us");
    free(took);
    store_free(s);
}

static void measure_growth(void)
{
    static const uint8_t value[8];

    for (uint64_t entries = 1000; entries <= 10000000; entries *= 10) {
        char name[64];
        uint64_t start = now_ns();
        struct store *s = filled(entries, span_of(value, sizeof value));
        uint64_t all = now_ns() - start;

        snprintf(name, sizeof name, "%.0e entries: put", (double)entries);
        row(name, (double)all / (double)entries, "ns");
        snprintf(name, sizeof name, "%.0e entries: hit", (double)entries);
        row(name, hit_ns(s, entries, 3000000), "ns");
        store_free(s);
        if (entries <= 1000000)
            measure_pauses(entries, span_of(value, sizeof value));
    }
}

/* An exact LRU over numbered objects, by bytes: what a list and a table would do. */

struct lru {
    uint32_t *newer, *older;    /* of each object; the last index is the list's head */
    bool *present;
    uint32_t head;
    uint64_t bytes, bytes_max;
};

static void lru_unlink(struct lru *l, uint32_t i)
{
    l->older[l->newer[i]] = l->older[i];
    l->newer[l->older[i]] = l->newer[i];
}

static void lru_push(struct lru *l, uint32_t i)
{
    uint32_t newest = l->older[l->head];

    l->older[i] = newest;
    l->newer[i] = l->head;
    l->newer[newest] = i;
    l->older[l->head] = i;
}

/* Returns whether it was a hit; it is there afterwards. */
static bool lru_ask(struct lru *l, uint32_t i, const uint32_t *bytes_of)
{
    bool hit = l->present[i];

    if (hit) {
        lru_unlink(l, i);
    } else {
        l->present[i] = true;
        l->bytes += bytes_of[i];
    }
    lru_push(l, i);
    while (l->bytes > l->bytes_max) {
        uint32_t oldest = l->newer[l->head];
        lru_unlink(l, oldest);
        l->present[oldest] = false;
        l->bytes -= bytes_of[oldest];
    }
    return hit;
}

#define OBJECTS 200000u
#define ASKS 2000000u

struct trace {
    const char *name;
    double exponent;        /* of Zipf's law */
    unsigned scan_every;    /* asks between two scans, 0: none */
    unsigned scan_length;
    unsigned loop;          /* not Zipf: this many objects in turn */
    unsigned drift_every;   /* asks until the popular are others by 1%, 0: never */
    bool sizes;             /* 50 to 4,000 bytes instead of 100 */
};

static uint32_t *make_trace(const struct trace *t)
{
    uint32_t *asks = malloc(ASKS * sizeof *asks);
    double *sum = malloc((OBJECTS / 2) * sizeof *sum), total = 0;
    struct prng p;
    uint32_t scanned = 0;

    if (!asks || !sum)
        exit(1);
    prng_seed(&p, 99);
    for (unsigned i = 0; i < OBJECTS / 2; i++)
        sum[i] = total += pow(i + 1, -t->exponent);
    for (unsigned n = 0; n < ASKS; n++) {
        if (t->loop) {
            asks[n] = n % t->loop;
            continue;
        }
        if (t->scan_every && n % (t->scan_every + t->scan_length) >= t->scan_every) {
            asks[n] = OBJECTS / 2 + scanned++ % (OBJECTS / 2);  /* not among the popular */
            continue;
        }
        double x = prng_unit(&p) * total;
        unsigned low = 0, high = OBJECTS / 2 - 1;
        while (low < high) {
            unsigned middle = (low + high) / 2;
            if (sum[middle] < x)
                low = middle + 1;
            else
                high = middle;
        }
        if (t->drift_every)
            low += n / t->drift_every * 997;
        /* Popularity and number have nothing to do with each other. */
        asks[n] = (uint32_t)((low * UINT64_C(2654435761)) % (OBJECTS / 2));
    }
    free(sum);
    return asks;
}

static void measure_ratio(void)
{
    static const struct trace traces[] = {
        {"zipf 0.8", 0.8, 0, 0, 0, 0, false},
        {"zipf 1.0", 1.0, 0, 0, 0, 0, false},
        {"zipf 1.2", 1.2, 0, 0, 0, 0, false},
        {"zipf 1.0, sizes differ", 1.0, 0, 0, 0, 0, true},
        {"zipf 1.0 with scans", 1.0, 20000, 20000, 0, 0, false},
        {"loop of 1.1 times the room", 0, 0, 0, 11000, 0, false},
        {"loop of 2 times the room", 0, 0, 0, 20000, 0, false},
        {"zipf 1.0, drifting", 1.0, 0, 0, 0, 2000, false},
    };
    static uint8_t value[4096];

    for (size_t t = 0; t < sizeof traces / sizeof *traces; t++) {
        uint32_t *asks = make_trace(&traces[t]), *bytes_of = malloc(OBJECTS * sizeof *bytes_of);
        size_t *value_bytes = malloc(OBJECTS * sizeof *value_bytes);
        struct lru lru = {
            .newer = malloc((OBJECTS + 1) * sizeof(uint32_t)),
            .older = malloc((OBJECTS + 1) * sizeof(uint32_t)),
            .present = calloc(OBJECTS, sizeof(bool)),
            .head = OBJECTS,
        };
        struct prng p;
        uint64_t ours = 0, others = 0;

        if (!bytes_of || !value_bytes || !lru.newer || !lru.older || !lru.present)
            exit(1);
        prng_seed(&p, 5);
        for (unsigned i = 0; i < OBJECTS; i++)
            value_bytes[i] = traces[t].sizes ? 50 + prng_below(&p, 3950) : 100;

        /* Room for 10,000 of 100 bytes, a tenth of the popular ones, or as many bytes as
         * a tenth takes where sizes differ. The LRU has the room that the store gives to
         * entries: what a store of so many entries adds to an empty one, spread evenly. */
        const size_t room = traces[t].sizes ? 20u << 20 : 2080000;
        struct store *s = new_store(room);
        struct store_stats empty, full;
        store_stats(s, &empty);
        for (unsigned i = 0; i < OBJECTS; i++) {
            size_t tail = 64 + KEY_BYTES + (value_bytes[i] > STORE_INLINE_BYTES_MAX ? 8 : value_bytes[i]);
            bytes_of[i] = (uint32_t)((tail + 8 + 15) / 16 * 16 + 16);
            if (value_bytes[i] > STORE_INLINE_BYTES_MAX)
                bytes_of[i] += (uint32_t)((sizeof(struct blob) + value_bytes[i] + 8 + 15) / 16 * 16);
        }
        lru.bytes_max = room - empty.bytes;
        lru.newer[OBJECTS] = lru.older[OBJECTS] = OBJECTS;

        for (unsigned n = 0; n < ASKS; n++) {
            others += lru_ask(&lru, asks[n], bytes_of);
            if (get(s, asks[n]))
                ours++;
            else
                put(s, asks[n], span_of(value, value_bytes[asks[n]]));
        }
        char name[80];
        store_stats(s, &full);
        snprintf(name, sizeof name, "%s: ours", traces[t].name);
        row(name, 100.0 * (double)ours / ASKS, "% hits");
        snprintf(name, sizeof name, "%s: LRU", traces[t].name);
        row(name, 100.0 * (double)others / ASKS, "% hits");
        store_free(s);
        free(asks);
        free(bytes_of);
        free(value_bytes);
        free(lru.newer);
        free(lru.older);
        free(lru.present);
    }
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        void (*measure)(void);
    } parts[] = {
        {"hit", measure_hits}, {"memory", measure_memory},     /* of a heap that has grown little */
        {"burst", measure_bursts}, {"grow", measure_growth}, {"ratio", measure_ratio},
    };
    unsigned done = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (argc > 1 && strcmp(argv[1], parts[i].name) != 0)
            continue;
        parts[i].measure();
        done++;
    }
    if (done == 0) {
        fprintf(stderr, "usage: bench_store [hit|memory|burst|grow|ratio]\n");
        return 2;
    }
    return 0;
}
