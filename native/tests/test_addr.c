/* Addresses and blocks of them: text, order, belonging. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/addr.h"

static struct addr parsed(const char *text)
{
    struct addr a;
    assert_true(addr_parse(text, &a));
    return a;
}

static void reads_and_writes(void **state)
{
    static const struct { const char *in, *out; } table[] = {
        {"1.2.3.4", "1.2.3.4"},
        {"1.2.3.4:5", "1.2.3.4:5"},
        {"1.2.3.4:65535", "1.2.3.4:65535"},
        {"::1", "::1"},
        {"[::1]", "::1"},
        {"[::1]:7946", "[::1]:7946"},
        {"[fd00:0:0::1]:1", "[fd00::1]:1"},
        {"::ffff:10.0.0.1", "10.0.0.1"},    /* v4-mapped is the IPv4 address itself (M9) */
    };
    char text[ADDR_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct addr a = parsed(table[i].in);
        assert_string_equal(addr_format(&a, text), table[i].out);
    }
}

static void refuses_what_is_none(void **state)
{
    static const char *const table[] = {
        "", ":", "1.2.3", "1.2.3.4:", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3.4:+5", "1.2.3.4:5x",
        "1.2.3.256", "01.2.3.4", "localhost", "localhost:5", "[1.2.3.4]:5", "[::1", "[::1]5",
        "[::1]:", "[]:5", "::1]:5", "fe80::1%eth0", " 1.2.3.4", "1.2.3.4 ", "1.2.3.4:5:6",
        "1.2.3.4:99999999999999999999",
        "11111111111111111111111111111111111111111111111111",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct addr a = {.port = 42};
        if (addr_parse(table[i], &a))
            fail_msg("took \"%s\"", table[i]);
        assert_int_equal(a.port, 42);       /* untouched */
    }
}

/* M8: family, bytes, port, all as numbers. */
static void order_is_numeric(void **state)
{
    static const char *const rising[] = {
        "0.0.0.0", "10.0.0.9", "10.0.0.9:80", "10.0.0.9:7946", "10.0.0.9:10000", "10.0.0.108",
        "127.0.0.1", "255.255.255.255:65535", "::", "::1", "[::1]:9", "[::1]:10", "fd00::9",
        "fd00::108",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rising); i++) {
        for (size_t j = 0; j < ARRAY_COUNT(rising); j++) {
            struct addr a = parsed(rising[i]), b = parsed(rising[j]);
            int order = addr_compare(&a, &b);
            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
            assert_int_equal(addr_equal(&a, &b), i == j);
        }
    }
}

static void kinds(void **state)
{
    static const struct { const char *text; bool v4, loopback, zero; } table[] = {
        {"127.0.0.1", true, true, false},
        {"127.255.255.255", true, true, false},
        {"128.0.0.1", true, false, false},
        {"::ffff:127.0.0.1", true, true, false},
        {"::1", false, true, false},
        {"::2", false, false, false},
        {"::", false, false, true},
        {"0.0.0.0", true, false, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct addr a = parsed(table[i].text);
        assert_int_equal(addr_is_v4(&a), table[i].v4);
        assert_int_equal(addr_is_loopback(&a), table[i].loopback);
        assert_int_equal(addr_is_zero(&a), table[i].zero);
    }
    struct addr a = parsed("1.2.3.4:5"), b = parsed("1.2.3.4:6");
    assert_true(addr_same_host(&a, &b));
    assert_false(addr_equal(&a, &b));
}

static void blocks_contain(void **state)
{
    static const struct { const char *block, *inside, *outside; } table[] = {
        {"10.0.0.0/8", "10.255.255.255", "11.0.0.0"},
        {"172.16.0.0/12", "172.31.255.255", "172.32.0.0"},
        {"192.168.1.128/25", "192.168.1.128", "192.168.1.127"},
        {"192.168.1.1", "192.168.1.1", "192.168.1.2"},
        {"0.0.0.0/0", "255.255.255.255", "::1"},        /* all of IPv4, nothing of IPv6 */
        {"fc00::/7", "fdff::1", "fe00::"},
        {"fe80::/10", "febf::1", "fec0::"},
        {"::1", "::1", "::2"},
        {"fd00::/127", "fd00::1", "fd00::2"},
        {"::ffff:10.0.0.0/8", "10.9.9.9", "11.0.0.1"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct addr in = parsed(table[i].inside), out = parsed(table[i].outside);
        struct cidr c;
        assert_null(cidr_parse(table[i].block, &c));
        assert_true(cidr_contains(&c, &in));
        assert_false(cidr_contains(&c, &out));
    }
}

static void blocks_say_what_is_wrong(void **state)
{
    static const struct { const char *block, *wrong; } table[] = {
        {"", "not an address"},
        {"/8", "not an address"},
        {"10.0.0/8", "not an address"},
        {"10.0.0.0/", "bits out of range"},
        {"10.0.0.0/33", "bits out of range"},
        {"10.0.0.0/-1", "bits out of range"},
        {"10.0.0.0/8x", "bits out of range"},
        {"10.0.0.0/99999999999999999999", "bits out of range"},
        {"fd00::/129", "bits out of range"},
        {"10.0.0.1/8", "host bits set"},
        {"fd00::1/127", "host bits set"},
        {"192.168.1.127/25", "host bits set"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct cidr c = {.bits = 77};
        const char *wrong = cidr_parse(table[i].block, &c);
        assert_non_null(wrong);
        assert_string_equal(wrong, table[i].wrong);
        assert_int_equal(c.bits, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes),
        cmocka_unit_test(refuses_what_is_none),
        cmocka_unit_test(order_is_numeric),
        cmocka_unit_test(kinds),
        cmocka_unit_test(blocks_contain),
        cmocka_unit_test(blocks_say_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
