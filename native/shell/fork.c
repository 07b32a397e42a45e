/* The bitmap of our descriptors, and what a forked child does with it (see fork.h). */
#include "shell/fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "peerage.h"

/* 1 Mi descriptors: Linux' default fs.nr_open. 128 KiB of which only touched pages exist. */
#define WORDS (1u << 14)

volatile unsigned peerage_fork_count;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static uint64_t kept[WORDS];
static unsigned words_used;     /* those beyond have never had a bit */

static void before_fork(void)
{
    pthread_mutex_lock(&guard);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&guard);
}

static void in_child(void)
{
    peerage_fork_count++;
    for (unsigned w = 0; w < words_used; w++) {
        for (unsigned b = 0; kept[w]; b++) {
            if (kept[w] >> b & 1) {
                kept[w] &= ~(UINT64_C(1) << b);
                close((int)(w * 64 + b));
            }
        }
    }
    pthread_mutex_unlock(&guard);   /* ours: this thread took it before the fork */
}

static int installed;

static void install(void)
{
    installed = pthread_atfork(before_fork, in_parent, in_child) == 0;
}

bool fork_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install);
    return installed;
}

void fork_hold(void)
{
    pthread_mutex_lock(&guard);
}

void fork_release(void)
{
    pthread_mutex_unlock(&guard);
}

int fork_keep(int fd)
{
    if (fd < 0)
        return fd;
    unsigned w = (unsigned)fd / 64;
    if (w >= WORDS) {
        close(fd);
        errno = EMFILE;
        return -1;
    }
    kept[w] |= UINT64_C(1) << ((unsigned)fd % 64);
    if (w >= words_used)
        words_used = w + 1;
    return fd;
}

void fork_unkeep(int fd)
{
    kept[(unsigned)fd / 64] &= ~(UINT64_C(1) << ((unsigned)fd % 64));
}

void fork_close(int fd)
{
    if (fd < 0)
        return;
    int saved = errno;
    fork_hold();
    fork_unkeep(fd);
    close(fd);
    fork_release();
    errno = saved;
}
