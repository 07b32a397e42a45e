/* Items in, reports out (see change.h). */
#include "shell/change.h"

#include <stdatomic.h>

#include "core/err.h"
#include "core/mem.h"
#include "core/seal.h"
#include "shell/exchange.h"
#include "shell/shell.h"

/* Below this the store keeps values inline, without a digest. */
#define DIGESTED_BYTES_MIN 1024u

static _Atomic(void (*)(void *)) release_owner;

PEERAGE_API void peerage_set_release(void (*release)(void *owner))
{
    atomic_store(&release_owner, release);
}

void change_release(void *owner)
{
    void (*release)(void *) = atomic_load(&release_owner);

    if (owner && release)
        release(owner);
}

int change_loaded(struct peerage *p, const struct peerage_item *item, struct loaded *out)
{
    struct span bytes = span_of(item->at, item->bytes);

    *out = (struct loaded){
        .key = span_of(item->key, item->key_bytes),
        .value_type = (uint8_t)item->value_type,
        .ttl_ms = item->ttl_ms,
        .stale_ms = item->stale_ms,
    };
    if (item->key_bytes > KEY_BYTES_MAX || item->value_type < 0 ||
        item->value_type >= VALUE_TYPE_COUNT) {
        change_release(item->owner);
        return ERR_TOO_BIG;
    }
    out->blob = item->owner ? blob_alias(bytes, item->owner, change_release) : blob_copy(bytes);
    if (!out->blob) {
        change_release(item->owner);
        return ERR_NOMEM;
    }
    /* Whoever made the value hashes it, on its own thread: the loop thread serves it. */
    if (p->settings.enabled && !p->settings.encryption && item->bytes >= DIGESTED_BYTES_MIN &&
        item->bytes <= FRAME_BYTES_MAX) {
        uint8_t digest[DIGEST_BYTES];
        seal_blob_digest(out->blob, digest);
    }
    return 0;
}

int change_item(struct peerage *p, const struct peerage_item *item, const struct message *name,
                struct loaded *out)
{
    *out = (struct loaded){.key = name->key};
    if (!item)
        return 0;
    int rc = change_loaded(p, item, out);
    if (rc == 0 && item->bytes > FRAME_BYTES_MAX - HEAD_BYTES_MAX) {
        blob_unref(out->blob);
        out->blob = NULL;
        rc = ERR_TOO_BIG;
    }
    out->key = name->key;
    return rc;
}

static unsigned char *copy(struct span s, size_t *bytes)
{
    unsigned char *out = mem_alloc(s.bytes);

    if (out && s.bytes)
        memcpy(out, s.at, s.bytes);
    *bytes = s.bytes;
    return out;
}

bool change_load(struct peerage *p, const struct flight *f, struct peerage_load *out)
{
    memset(out, 0, sizeof *out);
    out->load_id = f->id;
    out->key = copy(f->key, &out->key_bytes);
    out->channel = copy(f->channel, &out->channel_bytes);
    out->loader = copy(f->loader, &out->loader_bytes);
    out->ttl_ms = f->ttl_ms;
    out->stale_ms = f->stale_ms;
    out->load_timeout_ms = f->load_timeout_ms ? f->load_timeout_ms : p->settings.load_timeout_ms;
    out->chain_count = serve_chain(node_serve(p->node), f->id, out->chain);
    if (out->key && out->channel && out->loader)
        return true;
    peerage_load_free(out);
    return false;
}

PEERAGE_API void peerage_load_free(struct peerage_load *load)
{
    mem_free(load->key);
    mem_free(load->channel);
    mem_free(load->loader);
    memset(load, 0, sizeof *load);
}

static char **texts(const struct addr *addrs, unsigned count)
{
    char **out = mem_zalloc((count + 1) * sizeof *out);

    for (unsigned i = 0; out && i < count; i++) {
        out[i] = mem_alloc(ADDR_TEXT_MAX);
        if (!out[i]) {
            while (i--)
                mem_free(out[i]);
            mem_free(out);
            return NULL;
        }
        /* the second tier's place in a report */
        if (addr_is_zero(&addrs[i]))
            memcpy(out[i], "redis", sizeof "redis");
        else
            addr_format(&addrs[i], out[i]);
    }
    return out;
}

int change_report(struct answer *a, struct peerage_report *report)
{
    struct node_report *r = NULL;
    int rc = exchange_error(a->outcome);

    if (report)
        memset(report, 0, sizeof *report);
    if (rc == 0 && report) {
        r = mem_alloc(sizeof *r);
        rc = r && node_report_read(blob_span(a->blob), r) ? 0 : ERR_NOMEM;
    }
    if (rc == 0 && report) {
        report->acknowledged = texts(r->acknowledged, r->acknowledged_count);
        report->unreached = texts(r->unreached, r->unreached_count);
        report->acknowledged_count = report->acknowledged ? r->acknowledged_count : 0;
        report->unreached_count = report->unreached ? r->unreached_count : 0;
        if (!report->acknowledged || !report->unreached) {
            peerage_report_free(report);
            rc = ERR_NOMEM;
        }
    }
    mem_free(r);
    answer_deinit(a);
    return rc;
}

PEERAGE_API void peerage_report_free(struct peerage_report *report)
{
    for (unsigned i = 0; i < report->acknowledged_count; i++)
        mem_free(report->acknowledged[i]);
    for (unsigned i = 0; i < report->unreached_count; i++)
        mem_free(report->unreached[i]);
    mem_free(report->acknowledged);
    mem_free(report->unreached);
    memset(report, 0, sizeof *report);
}
