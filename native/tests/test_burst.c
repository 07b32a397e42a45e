/* Frames opened ahead, over a real socket: where a burst begins and ends, which questions stand
 * at its front, and what becomes of what is not taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/mem.h"
#include "shell/burst.h"

#define NOW UINT64_C(1700000000000)
#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static const enum frame_mode modes[] = {FRAME_HMAC, FRAME_AEAD};

/* A client that has its challenge, and the server's end. */
struct pair {
    struct seal seal;
    struct stream *client, *server;
};

static void pair_init(struct pair *p, enum frame_mode mode)
{
    static const struct addr whoever;
    struct message m;
    struct blob *value;
    int fds[2];

    assert_null(seal_init(&p->seal, span_text(SECRET), span_text("x"), mode));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    p->client = stream_new(fds[0], &whoever, &p->seal, 1, false);
    p->server = stream_new(fds[1], &whoever, &p->seal, 2, true);
    assert_int_equal(stream_flush(p->server), 1);
    assert_int_equal(stream_fill(p->client), 1);
    assert_int_equal(stream_next(p->client, NOW, &m, &value), STREAM_CHALLENGED);
}

static void pair_deinit(struct pair *p)
{
    stream_free(p->client);
    stream_free(p->server);
    seal_deinit(&p->seal);
}

/* Named by a letter: a ASK, p PEEK, v an ASK that carries a value, d DELETE, u PUSH with a value,
 * h HELLO; their request ids are their places. */
static void send_all(struct pair *p, const char *letters)
{
    for (unsigned i = 0; letters[i]; i++) {
        struct message m = {.request_id = i + 1, .key = span_of(&letters[i], 1)};
        bool carries = letters[i] == 'v' || letters[i] == 'u';
        struct blob *b = carries ? blob_copy(span_text("a value")) : NULL;
        switch (letters[i]) {
        case 'p': m.kind = MESSAGE_PEEK; break;
        case 'd': m.kind = MESSAGE_DELETE; break;
        case 'u': m.kind = MESSAGE_PUSH; break;
        case 'h': m.kind = MESSAGE_HELLO; break;
        default: m.kind = MESSAGE_ASK; break;
        }
        assert_int_equal(stream_queue(p->client, &m, b, NOW), 0);
        blob_unref(b);
    }
    assert_int_equal(stream_flush(p->client), 1);
}

static void expect_questions(struct burst *b, const char *keys)
{
    struct span found[BURST_MAX];

    assert_int_equal(burst_questions(b, found), strlen(keys));
    for (unsigned i = 0; keys[i]; i++)
        assert_true(span_equal(found[i], span_of(&keys[i], 1)));
}

/* As a server would: all of it, and expect it to be these. */
static void take_all(struct burst *b, const char *letters, unsigned first)
{
    for (unsigned i = 0; letters[i]; i++) {
        assert_false(burst_is_taken(b));
        assert_int_equal(b->at[b->next].message.request_id, first + i);
        assert_true(span_equal(b->at[b->next].message.key, span_of(&letters[i], 1)));
        blob_unref(b->at[b->next++].value);
    }
    assert_true(burst_is_taken(b));
}

static void questions_next_to_each_other_are_known_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct pair p;
        struct burst b;

        pair_init(&p, modes[i]);
        send_all(&p, "haaapduvaa");
        assert_int_equal(stream_fill(p.server), 1);
        burst_init(&b);
        expect_questions(&b, "");
        burst_open(&b, p.server, NOW);
        assert_int_equal(b.count, 10);
        assert_int_equal(b.end, STREAM_MORE);
        expect_questions(&b, "");       /* a HELLO stands before them */
        b.next = 1;
        expect_questions(&b, "aaap");
        b.next = 4;
        expect_questions(&b, "p");
        b.next = 5;
        expect_questions(&b, "");
        b.next = 7;
        expect_questions(&b, "");       /* what no ASK of ours carries is looked at by itself */
        b.next = 8;
        expect_questions(&b, "aa");
        b.next = 0;
        take_all(&b, "haaapduvaa", 1);
        burst_deinit(&b);
        pair_deinit(&p);
    }
}

static void more_than_a_burst_comes_in_several(void **state)
{
    static const char letters[] = "haaaaaaaaaaaaaaaaaaaa";
    struct pair p;
    struct burst b;

    (void)state;
    pair_init(&p, FRAME_HMAC);
    send_all(&p, letters);
    assert_int_equal(stream_fill(p.server), 1);
    burst_init(&b);
    burst_open(&b, p.server, NOW);
    assert_int_equal(b.count, BURST_MAX);
    assert_int_equal(b.end, STREAM_FRAME);
    b.next = b.count;
    burst_open(&b, p.server, NOW);
    assert_int_equal(b.count, strlen(letters) - BURST_MAX);
    assert_int_equal(b.end, STREAM_MORE);
    assert_true(burst_is_timely(&b, NOW + CLOCK_SKEW_MS_MAX));
    assert_false(burst_is_timely(&b, NOW + CLOCK_SKEW_MS_MAX + 1));
    take_all(&b, letters + BURST_MAX, BURST_MAX + 1);
    burst_open(&b, p.server, NOW);
    assert_true(burst_is_taken(&b));
    burst_deinit(&b);
    pair_deinit(&p);
}

/* What a burst is made of outlives its place on the stack, values too; nothing leaks that is not
 * taken in the end, nor if there is no memory to keep it. */
static void what_is_kept_is_the_rest(void **state)
{
    (void)state;
    for (unsigned taken = 0; taken < 6; taken++) {
        for (unsigned fails = 0; fails < 2; fails++) {
            struct pair p;
            struct burst b, *kept;

            pair_init(&p, modes[taken % 2]);
            send_all(&p, "hauauu");
            assert_int_equal(stream_fill(p.server), 1);
            burst_init(&b);
            burst_open(&b, p.server, NOW);
            assert_int_equal(b.count, 6);
            while (b.next < taken)
                blob_unref(b.at[b.next++].value);
            mem_fail_after(fails ? 0 : -1);
            kept = burst_keep(&b);
            mem_fail_after(-1);
            memset(&b, 0xee, sizeof b);
            assert_int_equal(kept != NULL, !fails);
            if (kept && taken < 4)
                take_all(kept, &"hauauu"[taken], taken + 1);
            burst_deinit(kept);
            mem_free(kept);
            burst_deinit(NULL);
            pair_deinit(&p);
        }
    }
}

/* The value of the third does not verify: it is told after what came before, and nothing behind it
 * is looked at. */
static void a_bad_frame_ends_the_burst(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        uint8_t bytes[4096];
        struct pair p;
        struct burst b;

        pair_init(&p, modes[i]);
        send_all(&p, "ha");
        send_all(&p, "u");
        ssize_t n = recv(p.server->fd, bytes, sizeof bytes, 0);
        bytes[n - 1] ^= 1;
        assert_int_equal(send(p.client->fd, bytes, (size_t)n, 0), n);
        send_all(&p, "aa");
        assert_int_equal(stream_fill(p.server), 1);
        burst_init(&b);
        burst_open(&b, p.server, NOW);
        assert_int_equal(b.count, 2);
        assert_int_equal(b.end, STREAM_BAD);
        assert_int_equal(p.server->verdict, VERDICT_VALUE);
        burst_deinit(&b);
        pair_deinit(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_next_to_each_other_are_known_at_once),
        cmocka_unit_test(more_than_a_burst_comes_in_several),
        cmocka_unit_test(what_is_kept_is_the_rest),
        cmocka_unit_test(a_bad_frame_ends_the_burst),
    };

    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests_name("burst", tests, NULL, NULL);
}
