/* What every module may use: spans, addresses, intrusive lists, clock-free
 * arithmetic. No I/O, no clock, no allocation.
 */
#ifndef PEERAGE_BASE_H
#define PEERAGE_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes that belong to somebody else. */
struct span {
    const uint8_t *at;
    size_t bytes;
};

#define SPAN_NONE ((struct span){NULL, 0})

static inline struct span span_of(const void *at, size_t bytes)
{
    return (struct span){at, bytes};
}

static inline struct span span_text(const char *text)
{
    return (struct span){(const uint8_t *)text, strlen(text)};
}

static inline bool span_equal(struct span a, struct span b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.at, b.at, a.bytes) == 0);
}

#define ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, field) ((type *)((char *)(ptr) - offsetof(type, field)))

static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* A deadline that is never due. */
#define NEVER_MS UINT64_MAX

/* A circular doubly linked list; the head is a link of its own.
 * A link that is in no list points to itself (list_init). */
struct list {
    struct list *prev, *next;
};

static inline void list_init(struct list *l) { l->prev = l->next = l; }
static inline bool list_empty(const struct list *l) { return l->next == l; }

static inline void list_add_tail(struct list *head, struct list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void list_add_head(struct list *head, struct list *link)
{
    list_add_tail(head->next, link);
}

/* Take `link` out of the list it is in; harmless when it is in none. */
static inline void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

/* Move everything from `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_move_all(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define LIST_FOREACH(head, link) \
    for (struct list *link = (head)->next; link != (head); link = link->next)

/* The body may remove `link`. */
#define LIST_FOREACH_SAFE(head, link)                                       \
    for (struct list *link = (head)->next, *link##_next = link->next;       \
         link != (head); link = link##_next, link##_next = link->next)

#endif
