/*
 * history.c: a ring of events, for history.h.
 *
 * Event n lies at n modulo the size, so an event is found by its number, and has made room when another number
 * lies there.
 */
#define _POSIX_C_SOURCE 200809L

#include "serve/history.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct history {
    uint64_t n_begun;
    history_event events[HISTORY_EVENTS];
};

history *history_create(void)
{
    return calloc(1, sizeof(history));
}

void history_destroy(history *h)
{
    free(h);
}

uint64_t history_begin(history *h, const char *owner, size_t n_prompt, const job_report *report)
{
    const size_t n_owner = strlen(owner);
    if (n_owner >= HISTORY_OWNER_BYTES) {
        return 0;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t number = ++h->n_begun;
    history_event *its = &h->events[number % HISTORY_EVENTS];
    *its = (history_event){.number = number,
                           .time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000,
                           .n_prompt = n_prompt,
                           .report = *report};
    memcpy(its->owner, owner, n_owner + 1);
    return number;
}

void history_end(history *h, uint64_t number, const job_report *report)
{
    history_event *its = &h->events[number % HISTORY_EVENTS];
    if (number != 0 && its->number == number) {
        its->report = *report;
        its->report.stop = NULL; /* the job's, which goes */
        its->has_ended = true;
    }
}

size_t history_copy(const history *h, const char *owner, history_event *to, size_t most)
{
    size_t n = 0;
    for (uint64_t back = 0; back < HISTORY_EVENTS && back < h->n_begun && n < most; back++) {
        const history_event *its = &h->events[(h->n_begun - back) % HISTORY_EVENTS];
        if (owner == NULL || strcmp(its->owner, owner) == 0) {
            to[n++] = *its;
        }
    }
    return n;
}
