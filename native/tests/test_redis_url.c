/* REDIS_URL, a line a case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/base.h"
#include "shell/redis_url.h"

struct good {
    const char *url;
    bool tls;
    const char *host;
    unsigned port, db;
    const char *user, *password, *path, *where;
};

static const struct good goods[] = {
    {"redis://h", false, "h", 6379, 0, "", "", "", "h:6379"},
    {"redis://h/", false, "h", 6379, 0, "", "", "", "h:6379"},
    {"redis://10.0.0.1:7000/3", false, "10.0.0.1", 7000, 3, "", "", "", "10.0.0.1:7000"},
    {"redis://:p@h:1/0", false, "h", 1, 0, "", "p", "", "h:1"},
    {"redis://p@h", false, "h", 6379, 0, "", "p", "", "h:6379"},
    {"redis://u:p@h", false, "h", 6379, 0, "u", "p", "", "h:6379"},
    {"redis://u%3A:p%40%2f@h", false, "h", 6379, 0, "u:", "p@/", "", "h:6379"},
    {"redis://u:p@ss@h", false, "h", 6379, 0, "u", "p@ss", "", "h:6379"},
    {"redis://[fd00::1]:7/2", false, "fd00::1", 7, 2, "", "", "", "[fd00::1]:7"},
    {"redis://[::1]", false, "::1", 6379, 0, "", "", "", "[::1]:6379"},
    {"redis://h?db=5", false, "h", 6379, 5, "", "", "", "h:6379"},
    {"redis://:7000", false, "localhost", 7000, 0, "", "", "", "localhost:7000"},
    {"rediss://h", true, "h", 6379, 0, "", "", "", "h:6379"},
    {"unix:///run/r.sock", false, "", 0, 0, "", "", "/run/r.sock", "/run/r.sock"},
    {"unix://:p@/run/r.sock?db=1", false, "", 0, 1, "", "p", "/run/r.sock", "/run/r.sock"},
};

static const char *const bads[] = {
    "", "h", "http://h", "REDIS://h", "redis://h:0", "redis://h:65536", "redis://h:", "redis://h:x",
    "redis://h/x", "redis://h/-1", "redis://h/1/2", "redis://h?db=", "redis://h?timeout=3",
    "redis://[::1", "redis://[::1]7", "redis://%zz@h", "redis://p%@h", "redis://p%2@h",
    "redis://a%00b@h", "unix://", "unix://r.sock", "unix://x/r.sock",
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(goods); i++) {
        const struct good *g = &goods[i];
        struct redis_url u;
        const char *takes = redis_url_read(&u, g->url);
        if (takes)
            fail_msg("%s was refused", g->url);
        assert_int_equal(u.tls, g->tls);
        assert_string_equal(u.host, g->host);
        assert_int_equal(u.port, g->port);
        assert_int_equal(u.db, g->db);
        assert_string_equal(u.user, g->user);
        assert_string_equal(u.password, g->password);
        assert_string_equal(u.path, g->path);
        assert_string_equal(u.where, g->where);
    }
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bads); i++) {
        struct redis_url u;
        if (!redis_url_read(&u, bads[i]))
            fail_msg("%s was taken", bads[i]);
    }
}

/* Every part at its bound, and one more. */
static void test_bounds(void **state)
{
    char url[2048], part[1024];
    struct redis_url u;

    (void)state;
    struct {
        const char *format;
        size_t most;
    } parts[] = {
        {"redis://%s", sizeof u.host - 1},
        {"redis://%s:p@h", sizeof u.user - 1},
        {"redis://:%s@h", sizeof u.password - 1},
        {"unix:///%s", sizeof u.path - 2},
    };
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
        for (size_t more = 0; more < 2; more++) {
            memset(part, 'x', sizeof part);
            part[parts[i].most + more] = 0;
            char *at = strchr(parts[i].format, '%');
            size_t before = (size_t)(at - parts[i].format);
            memcpy(url, parts[i].format, before);
            memcpy(url + before, part, strlen(part));
            strcpy(url + before + strlen(part), at + 2);
            if ((redis_url_read(&u, url) == NULL) != (more == 0))
                fail_msg("%s with %zu bytes", parts[i].format, parts[i].most + more);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
