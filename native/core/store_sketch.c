/* A fading count-min sketch (see store_sketch.h). */
#include "store_sketch.h"

#include "mem.h"

#define ROWS 4u
#define COLUMNS 32u             /* of a row in a line */
#define COUNTERS_PER_ENTRY 4u   /* at least; twice that at most, the lines being 2^n */
#define COUNTER_MAX 15u
/* TinyLFU's sample of 10 additions an entry, spread over the lines: 16 to 32 entries each. */
#define FADE_EVERY 240u

void sketch_deinit(struct sketch *k)
{
    mem_free(k->lines);
    *k = (struct sketch){0};
}

uint64_t sketch_fit(struct sketch *k, uint64_t entries, uint64_t bytes_free)
{
    const uint64_t entries_per_line = ROWS * COLUMNS / COUNTERS_PER_ENTRY;
    uint64_t lines = 1, have = k->lines ? (uint64_t)k->mask + 1 : 0;

    while (lines * entries_per_line < entries && lines < UINT32_MAX / 2)
        lines *= 2;
    if (have && lines <= have * 2 && have <= lines * 8)
        return 0;
    uint64_t bytes = lines * sizeof *k->lines + 16, bytes_held = sketch_bytes(k);
    if (bytes > bytes_held + bytes_free)
        return bytes - bytes_held;
    sketch_deinit(k);
    k->lines = mem_zalloc(lines * sizeof *k->lines);
    k->mask = (uint32_t)(lines - 1);
    return 0;
}

/* Counters of a key: column(i) of row i in its line. */
struct seat {
    uint8_t *line;
    uint32_t columns;
};

static struct seat seat_of(const struct sketch *k, uint32_t hash)
{
    uint64_t x = hash * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return (struct seat){k->lines[(uint32_t)(x >> 32) & k->mask], (uint32_t)x ^ (uint32_t)(x >> 29)};
}

static unsigned counter_at(const struct seat *s, unsigned row)
{
    return row * COLUMNS + (s->columns >> 8 * row & (COLUMNS - 1));
}

static unsigned read(const struct seat *s, unsigned at)
{
    return (unsigned)s->line[at / 2] >> (at % 2 * 4) & COUNTER_MAX;
}

unsigned sketch_estimate(const struct sketch *k, uint32_t hash)
{
    unsigned least = COUNTER_MAX;

    if (!k->lines)
        return 0;
    struct seat s = seat_of(k, hash);
    for (unsigned row = 0; row < ROWS; row++) {
        unsigned count = read(&s, counter_at(&s, row));
        least = count < least ? count : least;
    }
    return least;
}

static void fade(uint8_t *line)
{
    for (unsigned i = 0; i < 64; i++)
        line[i] = line[i] >> 1 & 0x77;
}

void sketch_add(struct sketch *k, uint32_t hash)
{
    if (!k->lines)
        return;
    unsigned least = sketch_estimate(k, hash);
    struct seat s = seat_of(k, hash);
    /* Only the lowest counters: the others are as high because of other keys. */
    for (unsigned row = 0; least < COUNTER_MAX && row < ROWS; row++) {
        unsigned at = counter_at(&s, row);
        if (read(&s, at) == least)
            s.line[at / 2] = (uint8_t)(s.line[at / 2] + (1u << (at % 2 * 4)));
    }
    if (++k->additions < FADE_EVERY)
        return;
    k->additions = 0;
    fade(k->lines[k->fading & k->mask]);
    k->fading++;
}
