/* epoll and kqueue (see poller.h). The kqueue half compiles on macOS and has seen less use. */
#include "shell/poller.h"

#include <errno.h>
#include <unistd.h>

#include "shell/fork.h"

#ifdef __linux__
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

bool poller_init(struct poller *p, bool with_timer)
{
    p->armed_ms = NEVER_MS;
    p->timer_fd = -1;
    fork_hold();
    p->fd = fork_keep(epoll_create1(EPOLL_CLOEXEC));
    if (with_timer)
        p->timer_fd = fork_keep(timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC));
    fork_release();
    if (p->fd < 0 || (with_timer && (p->timer_fd < 0 || !poller_watch(p, p->timer_fd, POLLER_READ,
                                                                      NULL, false)))) {
        poller_deinit(p);
        return false;
    }
    return true;
}

void poller_deinit(struct poller *p)
{
    fork_close(p->timer_fd);
    fork_close(p->fd);
    p->fd = p->timer_fd = -1;
}

bool poller_watch(struct poller *p, int fd, int events, void *token, bool known)
{
    struct epoll_event e = {.data.ptr = token};

    e.events = (uint32_t)((events & POLLER_READ ? EPOLLIN : 0) |
                          (events & POLLER_WRITE ? EPOLLOUT : 0));
    return epoll_ctl(p->fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) == 0;
}

void poller_unwatch(struct poller *p, int fd)
{
    (void)epoll_ctl(p->fd, EPOLL_CTL_DEL, fd, NULL);
}

void poller_arm(struct poller *p, uint64_t due_ms, uint64_t now_ms)
{
    if (due_ms >= p->armed_ms)
        return;
    uint64_t left_ms = due_ms > now_ms ? due_ms - now_ms : 0;
    struct itimerspec t = {.it_value = {(time_t)(left_ms / 1000),
                                        (long)(left_ms % 1000) * 1000000 + 1}};
    if (timerfd_settime(p->timer_fd, 0, &t, NULL) == 0)
        p->armed_ms = due_ms;
}

int poller_take(struct poller *p, struct poller_event out[POLLER_EVENTS_MAX])
{
    struct epoll_event got[POLLER_EVENTS_MAX];
    int count;

    do {
        count = epoll_wait(p->fd, got, POLLER_EVENTS_MAX, 0);
    } while (count < 0 && errno == EINTR);
    for (int i = 0; i < count; i++) {
        out[i].token = got[i].data.ptr;
        out[i].events = (got[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? POLLER_READ : 0) |
                        (got[i].events & (EPOLLOUT | EPOLLERR) ? POLLER_WRITE : 0);
        if (!out[i].token) {
            uint64_t fired;
            if (read(p->timer_fd, &fired, sizeof fired) > 0)
                p->armed_ms = NEVER_MS;
        }
    }
    return count < 0 ? 0 : count;
}

/* The descriptors an epoll set watches, from the kernel's own account of it. */
static unsigned watched_by(int epoll_fd, int *out, unsigned room)
{
    char path[64], line[256];
    unsigned count = 0;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll_fd);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        int fd;
        if (count < room && sscanf(line, "tfd: %d", &fd) == 1)
            out[count++] = fd;
    }
    if (f)
        fclose(f);
    return count;
}

static bool links_to(int fd, const char *what)
{
    char path[64], to[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, to, sizeof to - 1);
    if (n < 0)
        return false;
    to[n] = 0;
    return strcmp(to, what) == 0;
}

unsigned poller_adopt(int fd, int adopted[ADOPTED_MAX])
{
    DIR *all = opendir("/proc/self/fd");
    struct dirent *entry;
    unsigned count = 0;

    while (all && count == 0 && (entry = readdir(all))) {
        int epoll_fd = atoi(entry->d_name), watched[16];
        if (!links_to(epoll_fd, "anon_inode:[eventpoll]"))
            continue;
        unsigned found = watched_by(epoll_fd, watched, ARRAY_COUNT(watched));
        bool ours = false;
        for (unsigned i = 0; i < found; i++)
            ours |= watched[i] == fd;
        if (!ours)
            continue;
        adopted[count++] = epoll_fd;
        for (unsigned i = 0; i < found && count < ADOPTED_MAX; i++) {
            if (links_to(watched[i], "anon_inode:[eventfd]") ||
                links_to(watched[i], "anon_inode:[timerfd]"))
                adopted[count++] = watched[i];
        }
    }
    if (all)
        closedir(all);
    fork_hold();
    for (unsigned i = 0; i < count; i++)
        fork_keep(adopted[i]);
    fork_release();
    return count;
}
#else
#include <sys/event.h>
#include <sys/time.h>

bool poller_init(struct poller *p, bool with_timer)
{
    (void)with_timer;           /* a kqueue has timers of its own */
    p->armed_ms = NEVER_MS;
    p->timer_fd = -1;
    fork_hold();
    p->fd = fork_keep(kqueue());
    fork_release();
    return p->fd >= 0;
}

void poller_deinit(struct poller *p)
{
    fork_close(p->fd);
    p->fd = -1;
}

bool poller_watch(struct poller *p, int fd, int events, void *token, bool known)
{
    struct kevent changes[2];

    (void)known;
    EV_SET(&changes[0], fd, EVFILT_READ, EV_ADD | (events & POLLER_READ ? EV_ENABLE : EV_DISABLE),
           0, 0, token);
    EV_SET(&changes[1], fd, EVFILT_WRITE,
           EV_ADD | (events & POLLER_WRITE ? EV_ENABLE : EV_DISABLE), 0, 0, token);
    return kevent(p->fd, changes, 2, NULL, 0, NULL) == 0;
}

void poller_unwatch(struct poller *p, int fd)
{
    struct kevent changes[2];

    EV_SET(&changes[0], fd, EVFILT_READ, EV_DELETE, 0, 0, NULL);
    EV_SET(&changes[1], fd, EVFILT_WRITE, EV_DELETE, 0, 0, NULL);
    (void)kevent(p->fd, changes, 2, NULL, 0, NULL);
}

void poller_arm(struct poller *p, uint64_t due_ms, uint64_t now_ms)
{
    struct kevent change;

    if (due_ms >= p->armed_ms)
        return;
    EV_SET(&change, 1, EVFILT_TIMER, EV_ADD | EV_ONESHOT, 0,
           (intptr_t)(due_ms > now_ms ? due_ms - now_ms : 0), NULL);
    if (kevent(p->fd, &change, 1, NULL, 0, NULL) == 0)
        p->armed_ms = due_ms;
}

int poller_take(struct poller *p, struct poller_event out[POLLER_EVENTS_MAX])
{
    struct kevent got[POLLER_EVENTS_MAX];
    struct timespec none = {0, 0};
    int count = kevent(p->fd, NULL, 0, got, POLLER_EVENTS_MAX, &none);

    for (int i = 0; i < count; i++) {
        out[i].token = got[i].udata;
        out[i].events = got[i].filter == EVFILT_WRITE ? POLLER_WRITE : POLLER_READ;
        if (got[i].filter == EVFILT_TIMER) {
            out[i].token = NULL;
            p->armed_ms = NEVER_MS;
        }
    }
    return count < 0 ? 0 : count;
}

unsigned poller_adopt(int fd, int adopted[ADOPTED_MAX])
{
    (void)fd;
    (void)adopted;
    return 0;           /* a kqueue is not inherited */
}
#endif

void poller_disown(const int *adopted, unsigned count)
{
    fork_hold();
    for (unsigned i = 0; i < count; i++)
        fork_unkeep(adopted[i]);
    fork_release();
}
