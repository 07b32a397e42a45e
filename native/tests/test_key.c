/* Canonical keys, rule K1: the same arguments give one key, different ones never do, and
 * a key can be read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/key.h"
#include "core/prng.h"

struct text {
    uint8_t at[4096];
    struct writer w;
};

static struct writer *begin(struct text *t)
{
    t->w = writer_of(t->at, sizeof t->at);
    return &t->w;
}

static struct span written(const struct text *t)
{
    assert_false(t->w.failed);
    return span_of(t->at, writer_bytes(&t->w));
}

static void assert_reads(struct span is, const char *expected)
{
    assert_int_equal(is.bytes, strlen(expected));
    assert_memory_equal(is.at, expected, is.bytes);
}

static void what_could_be_mistaken_is_escaped(void **state)
{
    static const struct {
        const char *text, *escaped;
    } cases[] = {
        {"", ""},
        {"durov", "durov"},
        {"a/b", "a%2Fb"},
        {"a:b=c", "a%3Ab%3Dc"},
        {"(x,y)", "%28x%2Cy%29"},
        {"100%", "100%25"},
        {"a b\t\n", "a%20b%09%0A"},
        {"\x7f", "%7F"},
        {"канал", "канал"},
        {"%%", "%25%25"},
    };
    struct text t;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        key_put_text(begin(&t), span_text(cases[i].text));
        assert_reads(written(&t), cases[i].escaped);
    }
    key_put_text(begin(&t), span_of("a\0b", 3));
    assert_reads(written(&t), "a%00b");
}

static void values_have_a_letter(void **state)
{
    const uint8_t bytes[] = {0x00, 0x2f, 0xff};
    struct text t;
    struct writer *w = begin(&t);

    (void)state;
    key_put(w, 's', span_text("a/b"));
    put_u8(w, '/');
    key_put(w, 'n', SPAN_NONE);
    put_u8(w, '/');
    key_put_int(w, 0);
    put_u8(w, '/');
    key_put_int(w, -42);
    put_u8(w, '/');
    key_put_int(w, INT64_MAX);
    put_u8(w, '/');
    key_put_int(w, INT64_MIN);
    put_u8(w, '/');
    key_put_bytes(w, span_of(bytes, sizeof bytes));
    assert_reads(written(&t), "sa%2Fb/n/i0/i-42/i9223372036854775807/i-9223372036854775808/b002fff");
}

static void no_room_is_a_failure_that_sticks(void **state)
{
    uint8_t at[8];

    (void)state;
    for (size_t room = 0; room <= sizeof at; room++) {
        struct writer w = writer_of(at, room);
        key_put(&w, 's', span_text("a/bcd"));   /* 8 bytes: sa%2Fbcd */
        assert_int_equal(w.failed, room < 8);
        w = writer_of(at, room);
        key_put_bytes(&w, span_text("abc"));    /* 7 bytes */
        assert_int_equal(w.failed, room < 7);
    }
}

/* Reads a whole key into a plain drawing: cache|function|<type text>... */
static bool draw(const char *key, char *out, size_t room)
{
    uint8_t names[1024], scratch[1024];
    struct span cache, function;
    struct key_reader r;
    struct key_item item;
    int at;

    if (!key_read(span_text(key), names, &cache, &function, &r))
        return false;
    at = snprintf(out, room, "%.*s|%.*s|", (int)cache.bytes, (const char *)cache.at,
                  (int)function.bytes, (const char *)function.at);
    while (key_next(&r, scratch, &item))
        at += snprintf(out + at, room - (size_t)at, "<%c%.*s>", item.type, (int)item.text.bytes,
                       (const char *)item.text.at);
    assert_int_equal(item.type, 0);
    return !r.failed;
}

static void a_key_is_read_back(void **state)
{
    static const struct {
        const char *key, *drawn;
    } cases[] = {
        {"pages:app.page:sdurov/n", "pages|app.page|<sdurov><n>"},
        {"pages:page:", "pages|page|"},
        {"p%3Aq:f%2Fg:sa%2Fb", "p:q|f/g|<sa/b>"},
        {"c:f:s", "c|f|<s>"},
        {"c:f:s/s", "c|f|<s><s>"},
        {"c:f:i-7/t/f/n", "c|f|<i-7><t><f><n>"},
        {"c:f:b00ff/b", "c|f|<b00ff><b>"},
        {"c:f:d1.5/dinf/d-0.0", "c|f|<d1.5><dinf><d-0.0>"},
        {"c:f:u00000000000000000000000000000001", "c|f|<u00000000000000000000000000000001>"},
        {"c:f:D2024-02-29/T2024-02-29T10%3A00%3A00+03%3A00",
         "c|f|<D2024-02-29><T2024-02-29T10:00:00+03:00>"},
        {"c:f:()", "c|f|<(><)>"},
        {"c:f:(i1)/i2", "c|f|<(><i1><)><i2>"},
        {"c:f:(i1,(sa,()),n)", "c|f|<(><i1><(><sa><(><)><)><n><)>"},
        {"c:f:skанал", "c|f|<skанал>"},
    };
    char drawn[2048];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        assert_true(draw(cases[i].key, drawn, sizeof drawn));
        assert_string_equal(drawn, cases[i].drawn);
    }
}

static void malformed_keys_and_other_spellings_are_refused(void **state)
{
    static const char *const cases[] = {
        "", "c", "c:", "c:f", "c=raw", "c=a:b:s", "c/d:f:s", "c:f/g:s",
        "c:f:x", "c:f:/", "c:f:s/", "c:f:s//s", "c:f:,", "c:f:s,s", "c:f:s:s", "c:f:s=",
        "c:f:(", "c:f:)", "c:f:(i1", "c:f:(i1,", "c:f:(i1,)", "c:f:(,i1)", "c:f:(i1/i2)",
        "c:f:(i1)i2", "c:f:())", "c:f:(i1)(i2)", "c:f:(i1))", "c:f:i1(", "c:f:()/",
        "c:f:s%", "c:f:s%2", "c:f:s%2G", "c:f:s%2f",    /* lower case: not how it is written */
        "c:f:s%41",                                     /* A needs no escape */
        "c:f:sa b", "c:f:s\x7f",
        "c:f:i", "c:f:i-", "c:f:i-0", "c:f:i01", "c:f:i+1", "c:f:i1.0", "c:f:i0x1",
        "c:f:t1", "c:f:f0", "c:f:nn", "c:f:b0", "c:f:bFF", "c:f:bzz", "c:f:d", "c:f:D", "c:f:T",
        "c:f:u1", "c:f:u0000000000000000000000000000000G", "c%41:f:s", "c:f%3a:s",
    };
    char drawn[2048];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        if (draw(cases[i], drawn, sizeof drawn))
            fail_msg("read %s as %s", cases[i], drawn);
}

static void hex_gives_the_bytes(void **state)
{
    uint8_t out[4], in_place[] = "00ff10";

    (void)state;
    assert_true(key_unhex(span_text("00ff10"), out));
    assert_memory_equal(out, "\x00\xff\x10", 3);
    assert_true(key_unhex(span_of(in_place, 6), in_place));
    assert_memory_equal(in_place, "\x00\xff\x10", 3);
    assert_true(key_unhex(SPAN_NONE, out));
    assert_false(key_unhex(span_text("0"), out));
    assert_false(key_unhex(span_text("0G"), out));
    assert_false(key_unhex(span_text("FF"), out));
}

/* Random values, nested, written and read back; and two different ones never alike. */

struct value {
    char type;
    unsigned bytes;
    uint8_t text[12];
};

static unsigned make_values(struct prng *p, struct value *out)
{
    static const char bytes[] = "/:=%(),ab \x7f\x01\xd0\xba" "09";
    unsigned n = 0, count = (unsigned)prng_below(p, 5), depth = 0;

    while (n < 30 && (count > 0 || depth > 0)) {
        struct value *v = &out[n++];
        v->bytes = 0;
        if (count == 0 || (depth > 0 && prng_below(p, 4) == 0)) {
            v->type = ')';
            depth--;
            continue;
        }
        count -= depth == 0;
        v->type = "sn(tbis"[prng_below(p, 7)];
        if (v->type == '(' && n < 20) {
            depth++;
        } else if (v->type == '(') {
            v->type = 'n';
        } else if (v->type == 's' || v->type == 'b') {
            v->bytes = (unsigned)prng_below(p, sizeof v->text + 1);
            for (unsigned i = 0; i < v->bytes; i++)
                v->text[i] = (uint8_t)bytes[prng_below(p, sizeof bytes - 1)];
        } else if (v->type == 'i') {
            v->bytes = 8;
            uint64_t x = prng_next(p) >> prng_below(p, 64);
            memcpy(v->text, &x, 8);
        }
    }
    for (; depth > 0; depth--)
        out[n++] = (struct value){.type = ')'};
    return n;
}

static void write_values(struct writer *w, const struct value *v, unsigned n)
{
    unsigned depth = 0;

    key_put_text(w, span_text("my cache"));
    put_u8(w, ':');
    key_put_text(w, span_text("mod.fn"));
    put_u8(w, ':');
    for (unsigned i = 0; i < n; i++) {
        if (i > 0 && v[i].type != ')' && v[i - 1].type != '(')
            put_u8(w, depth ? ',' : '/');
        if (v[i].type == 'i') {
            int64_t x;
            memcpy(&x, v[i].text, 8);
            key_put_int(w, x);
        } else if (v[i].type == 'b') {
            key_put_bytes(w, span_of(v[i].text, v[i].bytes));
        } else if (v[i].type == '(' || v[i].type == ')') {
            put_u8(w, (uint8_t)v[i].type);
            depth += v[i].type == '(' ? 1u : -1u;
        } else {
            key_put(w, v[i].type, span_of(v[i].text, v[i].bytes));
        }
    }
}

static bool values_equal(const struct value *a, unsigned an, const struct value *b, unsigned bn)
{
    if (an != bn)
        return false;
    for (unsigned i = 0; i < an; i++)
        if (a[i].type != b[i].type ||
            !span_equal(span_of(a[i].text, a[i].bytes), span_of(b[i].text, b[i].bytes)))
            return false;
    return true;
}

static void random_arguments_survive_the_way_there_and_back(void **state)
{
    struct prng p;
    struct value values[2][80];
    unsigned counts[2], same = 0;
    struct text keys[2];

    (void)state;
    prng_seed(&p, 5);
    for (unsigned round = 0; round < 20000; round++) {
        for (unsigned side = 0; side < 2; side++) {
            counts[side] = make_values(&p, values[side]);
            write_values(begin(&keys[side]), values[side], counts[side]);
        }
        bool equal = values_equal(values[0], counts[0], values[1], counts[1]);
        assert_int_equal(span_equal(written(&keys[0]), written(&keys[1])), equal);
        same += equal;

        uint8_t names[4096], scratch[4096];
        struct span cache, function;
        struct key_reader r;
        struct key_item item;
        assert_true(key_read(written(&keys[0]), names, &cache, &function, &r));
        assert_reads(cache, "my cache");
        assert_reads(function, "mod.fn");
        for (unsigned i = 0; i < counts[0]; i++) {
            const struct value *v = &values[0][i];
            assert_true(key_next(&r, scratch, &item));
            assert_int_equal(item.type, v->type);
            if (v->type == 'b') {
                assert_true(key_unhex(item.text, scratch));
                item.text = span_of(scratch, item.text.bytes / 2);
            }
            if (v->type == 'i') {
                char digits[24];
                int64_t x;
                memcpy(&x, v->text, 8);
                snprintf(digits, sizeof digits, "%lld", (long long)x);
                assert_reads(item.text, digits);
            } else {
                assert_true(span_equal(item.text, span_of(v->text, v->bytes)));
            }
        }
        assert_false(key_next(&r, scratch, &item));
        assert_int_equal(item.type, 0);
        assert_false(r.failed);
    }
    assert_true(same > 100);    /* both outcomes occurred */
    assert_true(same < 15000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_could_be_mistaken_is_escaped),
        cmocka_unit_test(values_have_a_letter),
        cmocka_unit_test(no_room_is_a_failure_that_sticks),
        cmocka_unit_test(a_key_is_read_back),
        cmocka_unit_test(malformed_keys_and_other_spellings_are_refused),
        cmocka_unit_test(hex_gives_the_bytes),
        cmocka_unit_test(random_arguments_survive_the_way_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
