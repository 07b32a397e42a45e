/* Rule W10: how long a waiting thread looks before it sleeps, and what it learns from that. What
 * is there is found at once and what isn't is never found, so no case depends on time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdbool.h>
#include <unistd.h>

#include "shell/spin.h"

struct pipe {
    int read, write;
    struct spin spin;
};

static int set_up(void **state)
{
    static struct pipe p;
    int fds[2];

    if (pipe(fds) < 0)
        return -1;
    p = (struct pipe){fds[0], fds[1], {.max_ns = 20000}};
    *state = &p;
    return 0;
}

static int tear_down(void **state)
{
    struct pipe *p = *state;

    close(p->read);
    close(p->write);
    return 0;
}

/* Wait once, with or without something to find. */
static enum spin_look wait_once(struct pipe *p, bool there)
{
    struct pollfd fd = {.fd = p->read, .events = POLLIN};
    enum spin_look look;
    char byte = 0;

    if (there)
        assert_int_equal(write(p->write, &byte, 1), 1);
    int found = spin_poll(&p->spin, &fd, 1, &look);
    assert_int_equal(found, look == SPIN_FOUND);
    assert_int_equal(fd.revents, found ? POLLIN : 0);
    if (there)
        assert_int_equal(read(p->read, &byte, 1), 1);
    return look;
}

static void rest(struct pipe *p)
{
    for (int i = 0; i < 64; i++)
        assert_int_equal(wait_once(p, i % 2), SPIN_RESTED);
}

static void test_found(void **state)
{
    for (int i = 0; i < 300; i++)
        assert_int_equal(wait_once(*state, true), SPIN_FOUND);
}

static void test_in_vain_it_rests(void **state)
{
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wait_once(*state, false), SPIN_VAIN);
        rest(*state);
    }
}

static void test_one_in_five_may_be_in_vain(void **state)
{
    for (int i = 0; i < 100; i++)
        assert_int_equal(wait_once(*state, i % 5 != 4), i % 5 == 4 ? SPIN_VAIN : SPIN_FOUND);
}

static void test_what_was_found_before_counts_for_two_in_vain(void **state)
{
    for (int i = 0; i < 300; i++)
        assert_int_equal(wait_once(*state, true), SPIN_FOUND);
    for (int i = 0; i < 3; i++)
        assert_int_equal(wait_once(*state, false), SPIN_VAIN);
    rest(*state);
    assert_int_equal(wait_once(*state, true), SPIN_FOUND);
}

static void test_off(void **state)
{
    struct pipe *p = *state;

    p->spin.max_ns = 0;
    for (int i = 0; i < 100; i++)
        assert_int_equal(wait_once(p, i % 2), SPIN_RESTED);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_found), TEST(test_in_vain_it_rests), TEST(test_one_in_five_may_be_in_vain),
        TEST(test_what_was_found_before_counts_for_two_in_vain), TEST(test_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
