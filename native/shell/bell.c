/* Wake-ups by descriptor (see bell.h). */
#include "shell/bell.h"

#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "shell/fork.h"

#ifdef __linux__
#include <sys/eventfd.h>

static bool open_both(struct bell *b)
{
    b->fd = b->ring_fd = fork_keep(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    return b->fd >= 0;
}
#else
static bool open_both(struct bell *b)
{
    int ends[2];

    if (pipe(ends) < 0)
        return false;
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    b->fd = fork_keep(ends[0]);
    b->ring_fd = fork_keep(ends[1]);
    return b->fd >= 0 && b->ring_fd >= 0;
}
#endif

bool bell_init(struct bell *b)
{
    b->fd = b->ring_fd = -1;
    fork_hold();
    bool made = open_both(b);
    fork_release();
    if (!made)
        bell_deinit(b);
    return made;
}

void bell_deinit(struct bell *b)
{
    if (b->ring_fd != b->fd)
        fork_close(b->ring_fd);
    fork_close(b->fd);
    b->fd = b->ring_fd = -1;
}

void bell_ring(const struct bell *b)
{
    uint64_t one = 1;

    /* Full means that it has been rung already. */
    if (write(b->ring_fd, &one, b->ring_fd == b->fd ? sizeof one : 1) < 0)
        return;
}

void bell_quiet(const struct bell *b)
{
    uint64_t seen;

    while (read(b->fd, &seen, sizeof seen) > 0 && b->ring_fd != b->fd)
        ;
}
