/*
 * timeline.h: the last prompts, and what of each was already in the memory.
 *
 * A fixed number of them, the oldest of which makes room; nothing grows with use, and nothing here is anybody's text. Each
 * belongs to an owner as the prefix library knows it, and whoever shows them has to ask whose they are.
 *
 * The scheduler's thread alone uses it. What cannot be noted is not noted: number 0 stands for that.
 */
#ifndef APP_TIMELINE_H
#define APP_TIMELINE_H

#include "serve/job.h"

#define TIMELINE_EVENTS 256u
#define TIMELINE_OWNER_BYTES 64u

typedef struct timeline_event {
    uint64_t number; /* counted from 1; 0: no event */
    char owner[TIMELINE_OWNER_BYTES];
    int64_t time_ms; /* when it was admitted, since 1970 */
    size_t n_prompt;
    bool has_ended;
    job_report report; /* all of it when it has ended, before that what was taken over */
} timeline_event;

typedef struct timeline timeline;

timeline *timeline_create(void); /* NULL: no memory */
void timeline_destroy(timeline *t);

/* A prompt was admitted; its number. An owner whose name is too long has no timeline: 0. */
uint64_t timeline_begin(timeline *t, const char *owner, size_t n_prompt, const job_report *report);

/* It has ended. A number that has made room already, and 0, are let pass. */
void timeline_end(timeline *t, uint64_t number, const job_report *report);

/* The newest events of an owner (NULL: of all), newest first, at most `most`; how many those are. */
size_t timeline_copy(const timeline *t, const char *owner, timeline_event *to, size_t most);

#endif /* APP_TIMELINE_H */
