/* Operating failures: one table makes the enum, the texts, and (in the binding)
 * the Python exceptions. Functions return 0 or one of these, negative.
 * The public header repeats the numbers; a static assertion keeps them equal.
 */
#ifndef PEERAGE_ERR_H
#define PEERAGE_ERR_H

/* X(name, number, text) */
#define PEERAGE_ERRORS(X)                                                        \
    X(NOMEM, 1, "out of memory")                                                 \
    X(TOO_BIG, 2, "too big: a key with its prefix is at most 1024 bytes, a channel 255, a value " \
               "with its head 8 MiB")                                            \
    X(FULL, 3, "a bound is reached, try again later")                            \
    X(CLOSED, 4, "the peer layer is closed")                                     \
    X(TIMEOUT, 5, "no answer in time")                                           \
    X(LOST, 6, "the load was lost, ask again")                                   \
    X(LOAD_FAILED, 7, "the loader raised")                                       \
    X(RECURSIVE, 8, "a loader asked for a key that is being loaded for it")      \
    X(SETTING, 9, "a setting is wrong")                                          \
    X(SYSTEM, 10, "a system call failed")                                        \
    X(FORKED, 11, "this node belongs to the parent process")                     \
    X(UNREACHABLE, 12, "no node answered")                                       \
    X(UNSUPPORTED, 13, "the peer does not support this")                         \
    X(MISSING, 14, "built without it")                                           \
    X(INTERRUPTED, 15, "interrupted by a signal")

enum err {
    ERR_OK = 0,
#define X(name, number, text) ERR_##name = -(number),
    PEERAGE_ERRORS(X)
#undef X
};

/* A constant text for `code`; never NULL. */
const char *err_text(int code);

#endif
