/*
 * timeline.c: a ring of events, for timeline.h.
 *
 * Event n lies at n modulo the size, so an event is found by its number, and has made room when another number
 * lies there.
 */
#define _POSIX_C_SOURCE 200809L

#include "serve/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct timeline {
    uint64_t n_begun;
    timeline_event events[TIMELINE_EVENTS];
};

timeline *timeline_create(void)
{
    return calloc(1, sizeof(timeline));
}

void timeline_destroy(timeline *t)
{
    free(t);
}

uint64_t timeline_begin(timeline *t, const char *owner, size_t n_prompt, const job_report *report)
{
    const size_t n_owner = strlen(owner);
    if (n_owner >= TIMELINE_OWNER_BYTES) {
        return 0;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t number = ++t->n_begun;
    timeline_event *its = &t->events[number % TIMELINE_EVENTS];
    *its = (timeline_event){.number = number,
                            .time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000,
                            .n_prompt = n_prompt,
                            .report = *report};
    memcpy(its->owner, owner, n_owner + 1);
    return number;
}

void timeline_end(timeline *t, uint64_t number, const job_report *report)
{
    timeline_event *its = &t->events[number % TIMELINE_EVENTS];
    if (number != 0 && its->number == number) {
        its->report = *report;
        its->report.stop = NULL; /* the job's, which goes */
        its->has_ended = true;
    }
}

size_t timeline_copy(const timeline *t, const char *owner, timeline_event *to, size_t most)
{
    size_t n = 0;
    for (uint64_t back = 0; back < TIMELINE_EVENTS && back < t->n_begun && n < most; back++) {
        const timeline_event *its = &t->events[(t->n_begun - back) % TIMELINE_EVENTS];
        if (owner == NULL || strcmp(its->owner, owner) == 0) {
            to[n++] = *its;
        }
    }
    return n;
}
