/* Polling before sleeping (see spin.h). */
#include "shell/spin.h"

#include <stdbool.h>

#include "shell/clock.h"

#define SCORE_MAX 8
#define SCORE_VAIN 4            /* so one look in five may be in vain */
#define REST_WAITS 64           /* of 100 us each, an eternal vanity costs under 2 us a wait */

static enum spin_look learn(struct spin *s, bool found)
{
    if (found) {
        if (s->score < SCORE_MAX)
            s->score++;
        return SPIN_FOUND;
    }
    if (s->score >= SCORE_VAIN) {
        s->score -= SCORE_VAIN;
    } else {
        s->score = 0;
        s->rest = REST_WAITS;
    }
    return SPIN_VAIN;
}

int spin_poll(struct spin *s, struct pollfd *fds, nfds_t count, enum spin_look *look)
{
    int rc = 0;

    *look = SPIN_RESTED;
    if (s->rest) {
        s->rest--;
    } else if (s->max_ns) {
        uint64_t until_ns = clock_now_ns() + s->max_ns;
        do
            rc = poll(fds, count, 0);
        while (!rc && clock_now_ns() < until_ns);
        *look = learn(s, rc > 0);
    }
    return *look == SPIN_FOUND ? rc : 0;    /* a signal may have cut one of them */
}
