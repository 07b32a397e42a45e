/* Blobs: who owns the bytes, and that they are let go once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/blob.h"
#include "core/mem.h"

static unsigned released;

static void release(void *owner)
{
    assert_ptr_equal(owner, &released);
    released++;
}

static void a_copy_is_its_own(void **state)
{
    char text[] = "abc";
    struct blob *b = blob_copy(span_text(text)), *empty = blob_copy(SPAN_NONE);

    (void)state;
    text[0] = 'x';
    assert_true(span_equal(blob_span(b), span_text("abc")));
    assert_int_equal(blob_span(empty).bytes, 0);
    assert_int_equal(blob_span(NULL).bytes, 0);
    blob_unref(b);
    blob_unref(empty);
    blob_unref(NULL);
}

static void what_is_filled_is_what_is_read(void **state)
{
    struct blob *b = blob_new(100000);

    (void)state;
    assert_int_equal(blob_span(b).bytes, 100000);
    memset(blob_fill(b), 'z', 100000);
    assert_int_equal(blob_span(b).at[99999], 'z');
    blob_unref(b);
}

static void a_foreign_owner_is_released_with_the_last_reference(void **state)
{
    const char text[] = "somebody else's";
    struct blob *b;

    (void)state;
    released = 0;
    b = blob_alias(span_text(text), &released, release);
    assert_ptr_equal(blob_span(b).at, text);
    assert_ptr_equal(blob_ref(b), b);
    blob_unref(b);
    assert_int_equal(released, 0);
    blob_unref(b);
    assert_int_equal(released, 1);
    assert_null(blob_ref(NULL));
}

static void out_of_memory_takes_nothing(void **state)
{
    (void)state;
    released = 0;
    mem_fail_after(0);
    assert_null(blob_alias(span_text("a"), &released, release));
    mem_fail_after(0);
    assert_null(blob_copy(span_text("a")));
    mem_fail_after(0);
    assert_null(blob_new(8));
    mem_fail_after(-1);
    assert_int_equal(released, 0);
}

static void the_first_digest_is_remembered(void **state)
{
    const uint8_t first[DIGEST_BYTES] = {1}, second[DIGEST_BYTES] = {2};
    struct blob *b = blob_copy(span_text("abc"));

    (void)state;
    assert_false(atomic_load(&b->digested));
    blob_remember(b, first);
    blob_remember(b, second);
    assert_true(atomic_load(&b->digested));
    assert_memory_equal(b->digest, first, DIGEST_BYTES);
    blob_unref(b);
}

static void *take_and_drop(void *blob)
{
    for (unsigned i = 0; i < 20000; i++)
        blob_unref(blob_ref(blob));
    blob_unref(blob);
    return NULL;
}

static void references_are_counted_across_threads(void **state)
{
    pthread_t threads[4];
    struct blob *b;

    (void)state;
    released = 0;
    b = blob_alias(span_text("shared"), &released, release);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_drop, blob_ref(b)), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(released, 0);
    blob_unref(b);
    assert_int_equal(released, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_its_own),
        cmocka_unit_test(what_is_filled_is_what_is_read),
        cmocka_unit_test(a_foreign_owner_is_released_with_the_last_reference),
        cmocka_unit_test(out_of_memory_takes_nothing),
        cmocka_unit_test(the_first_digest_is_remembered),
        cmocka_unit_test(references_are_counted_across_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
