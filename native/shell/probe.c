/* peerage_probe: one connection to one node, as far as that lets us (see peerage.h).
 *
 * The handshake tells most faults apart by itself: a node that does not want our address
 * closes before it speaks; its challenge, in the clear, carries label and mode; it answers
 * our first frame, or closes. It does not say why it closed, on purpose. That a clock is the
 * reason and not the secret is found by the caller, who tries again with another clock.
 *
 * No loop, no thread, no membership: it works where joining does not.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "core/err.h"
#include "core/wire.h"
#include "shell/clock.h"
#include "shell/probe_page.h"
#include "shell/shell.h"
#include "shell/sockets.h"
#include "shell/stream.h"

#define TIME_AT 64      /* the sender's wall time in a head (docs/PROTOCOL.md) */

struct probe {
    struct stream *c;
    struct peerage_probe *out;
    struct peerage_seen *seen;
    int room, count;
    uint64_t until_ms;
    int64_t offset_ms;
    bool done;
};

static uint64_t wall_ms(const struct probe *p)
{
    return (uint64_t)((int64_t)clock_wall_ms() + p->offset_ms);
}

/* False when time is up. */
static bool wait_for(struct probe *p, short events)
{
    for (;;) {
        uint64_t now_ms = clock_now_ms();
        struct pollfd one = {.fd = p->c->fd, .events = events};
        if (now_ms >= p->until_ms)
            return false;
        int rc = poll(&one, 1, (int)(p->until_ms - now_ms));
        if (rc > 0)
            return true;
        if (rc < 0 && errno != EINTR)
            return false;
    }
}

static bool send_message(struct probe *p, struct message *m, struct blob *value)
{
    m->request_id = p->c->next_request_id++;
    return stream_queue(p->c, m, value, wall_ms(p)) == 0;
}

static bool ask_table(struct probe *p)
{
    uint8_t bytes[PROBE_REQUEST_BYTES];
    struct message m = {.kind = MESSAGE_TABLE};

    probe_request(bytes);
    struct blob *request = blob_copy(span_of(bytes, sizeof bytes));
    if (!request)
        return false;
    bool sent = send_message(p, &m, request);
    blob_unref(request);
    return sent;
}

/* False: the connection is of no further use. */
static bool take(struct probe *p, const struct message *m, struct blob *value, uint64_t said_ms)
{
    if (m->kind == MESSAGE_WELCOME) {
        p->out->stage = PEERAGE_PROBE_PROVEN;
        p->out->ahead_ms = (int64_t)(said_ms - clock_wall_ms());
        return ask_table(p);
    }
    if (m->kind != MESSAGE_PAGE || !value)
        return false;
    if (!probe_page(blob_span(value), p->seen, p->room, &p->count))
        return false;
    if (!(m->flags & MESSAGE_MORE)) {
        p->out->seen_count = p->count;
        p->done = true;
    }
    return true;
}

static void refuse(struct peerage_probe *out, enum verdict v)
{
    if (out->stage == PEERAGE_PROBE_REFUSED || out->stage == PEERAGE_PROBE_PROVEN)
        return;
    out->stage = v == VERDICT_LABEL  ? PEERAGE_PROBE_OTHER_LABEL
                 : v == VERDICT_MODE ? PEERAGE_PROBE_OTHER_MODE
                                     : PEERAGE_PROBE_FOREIGN;
}

/* What is in the buffer; false: no more will come of it. */
static bool take_all(struct probe *p)
{
    struct message hello = {.kind = MESSAGE_HELLO}, m;
    struct blob *value;

    while (!p->done) {
        const uint8_t *head = p->c->in + p->c->in_at;
        bool more;
        switch (stream_next(p->c, wall_ms(p), &m, &value)) {
        case STREAM_CHALLENGED:
            /* Until it answers, what it thinks of us is not known. */
            p->out->node_id = p->c->link.peer_id;
            p->out->stage = PEERAGE_PROBE_REFUSED;
            more = send_message(p, &hello, NULL);
            break;
        case STREAM_FRAME: {
            struct reader r = reader_of(span_of(head + TIME_AT, 8));
            more = take(p, &m, value, m.kind == MESSAGE_WELCOME ? take_u64(&r) : 0);
            blob_unref(value);
            break;
        }
        case STREAM_BAD:
            refuse(p->out, p->c->verdict);
            return false;
        default:
            return true;
        }
        if (!more)
            return false;
    }
    return true;
}

static void converse(struct probe *p)
{
    while (!p->done) {
        int written = stream_flush(p->c);
        if (written < 0)
            return;
        if (!wait_for(p, (short)(written ? POLLIN : POLLIN | POLLOUT))) {
            if (p->out->stage == PEERAGE_PROBE_SHUT)
                p->out->stage = PEERAGE_PROBE_MUTE;
            return;
        }
        int filled = stream_fill(p->c);
        if (!take_all(p) || filled < 0)
            return;
    }
}

static bool connected(struct probe *p, const struct addr *to, const struct seal *seal,
                      uint64_t self_id)
{
    int fd = sockets_connect(to);

    if (fd < 0) {
        p->out->error = errno;
        return false;
    }
    p->c = stream_new(fd, to, seal, self_id, false);
    if (!p->c) {
        p->out->error = ENOMEM;
        return false;
    }
    p->out->error = wait_for(p, POLLOUT) ? sockets_connect_result(fd) : ETIMEDOUT;
    return p->out->error == 0;
}

/* On a node that is made and never started: its settings are checked as any other's, and it
 * has an id. */
static int run(struct probe *p, const struct peerage *own, const char *address,
               char line[PEERAGE_LINE_MAX])
{
    struct addr own_hosts[OWN_HOSTS_MAX], to;

    if (!addr_parse(address, &to) || !to.port) {
        snprintf(line, PEERAGE_LINE_MAX, "got \"%.80s\", takes an address with a port", address);
        return ERR_SETTING;
    }
    size_t own_count = sockets_own_hosts(own_hosts, ARRAY_COUNT(own_hosts));
    p->out->allowed = settings_allow(&own->settings, own_hosts, own_count, &to);
    if (connected(p, &to, &own->settings.seal, own->node_id)) {
        p->out->stage = PEERAGE_PROBE_SHUT;
        converse(p);
    }
    stream_free(p->c);
    return 0;
}

int peerage_probe(const struct peerage_options *options, const char *address, uint32_t timeout_ms,
                  int64_t clock_offset_ms, struct peerage_probe *out, struct peerage_seen *seen,
                  int room, char line[PEERAGE_LINE_MAX])
{
    struct peerage_options o = *options;
    struct probe p = {.out = out, .seen = seen, .room = room, .offset_ms = clock_offset_ms,
                      .until_ms = clock_now_ms() + timeout_ms};
    peerage *own;

    *out = (struct peerage_probe){.stage = PEERAGE_PROBE_UNREACHED, .seen_count = -1};
    o.enabled = 1;
    o.redis_url = NULL;
    int rc = peerage_new(&o, &own, line);
    if (rc < 0)
        return rc;
    rc = run(&p, own, address, line);
    peerage_free(own);
    return rc;
}
