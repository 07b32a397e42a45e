/* Payloads of tallies. First byte: bit 0 merges it twice. What is taken changes nothing the
 * second time, and told on in full gives another node the same totals, or less where there
 * is no room for them. */
#include <stdlib.h>

#include "core/tally.h"

#define NOW UINT64_C(1700000040000)

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

static struct tally *merged(const uint8_t *in, size_t bytes, uint64_t node_id)
{
    static const uint8_t hash_key[16] = {4, 6, 6, 9};
    struct tally *t = tally_new(node_id, hash_key);

    if (!t || !tally_merge(t, span_of(in, bytes), NOW))
        abort();
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    static const uint8_t hash_key[16] = {9, 9};
    static uint8_t page[TALLY_PAGE_BYTES];
    struct tally *t = tally_new(1, hash_key), *other = tally_new(2, hash_key);
    struct tally_page p = {.receiver = 2, .of_all = true};
    bool more = true;

    if (bytes == 0 || !t || !other || !tally_merge(t, span_of(in + 1, bytes - 1), NOW)) {
        tally_free(t);
        tally_free(other);
        return 0;
    }
    struct span payload = span_of(in + 1, bytes - 1);
    struct tally *once = merged(payload.at, payload.bytes, 1);
    if ((in[0] & 1) && !tally_merge(t, payload, NOW))
        abort();

    struct tally_stats stats;
    tally_stats(t, &stats);
    while (more) {
        struct writer w = writer_of(page, sizeof page);
        p.since = tally_encode(t, &p, NOW, &w, &more);
        if (w.failed)
            abort();
        if (writer_bytes(&w) && !tally_merge(other, span_of(page, writer_bytes(&w)), NOW))
            abort();
    }

    struct reader r = reader_of(payload);
    take_u8(&r);
    while (reader_left(&r)) {
        size_t name_bytes = take_u8(&r), key_bytes = take_u16(&r);
        struct tally_name n = {.window_ms = take_u32(&r)};
        uint64_t window = take_u64(&r), told = 0;
        unsigned counts = take_u16(&r);
        bool by_receiver = false;
        n.name = take_span(&r, name_bytes);
        n.key = take_span(&r, key_bytes);
        for (; counts > 0; counts--) {
            uint64_t node_id = take_u64(&r), count = take_u64(&r);
            told |= node_id == 0 ? count : 0;
            by_receiver |= node_id == 2;
        }
        uint64_t total = tally_total(t, &n, window, NOW);
        if (tally_total(once, &n, window, NOW) != total)
            abort();
        /* A sum that was told is not told on, and room is the same for both but for
         * who counts as one's own. */
        if (told == 0 && !by_receiver && stats.refused == 0 &&
            tally_total(other, &n, window, NOW) > total)
            abort();
    }
    struct writer w = writer_of(page, sizeof page);
    tally_answer(t, payload, 2, &w);
    if (w.failed || !tally_merge(other, span_of(page, writer_bytes(&w)), NOW))
        abort();
    tally_tick(t, NOW + 3600000);
    tally_free(t);
    tally_free(once);
    tally_free(other);
    return 0;
}
