/*
 * history.h: the last prompts, and what of each was already in the memory.
 *
 * A fixed number of them, the oldest of which makes room; nothing grows with use, and nothing here is anybody's text. Each
 * belongs to an owner as the prefix library knows it, and whoever shows them has to ask whose they are.
 *
 * The scheduler's thread alone uses it. What cannot be noted is not noted: number 0 stands for that.
 */
#ifndef APP_HISTORY_H
#define APP_HISTORY_H

#include "serve/job.h"

#define HISTORY_EVENTS 256u
#define HISTORY_OWNER_BYTES 64u

typedef struct history_event {
    uint64_t number; /* counted from 1; 0: no event */
    char owner[HISTORY_OWNER_BYTES];
    int64_t time_ms; /* when it was admitted, since 1970 */
    size_t n_prompt;
    bool has_ended;
    job_report report; /* all of it when it has ended, before that what was taken over */
} history_event;

typedef struct history history;

history *history_create(void); /* NULL: no memory */
void history_destroy(history *h);

/* A prompt was admitted; its number. An owner whose name is too long has no history: 0. */
uint64_t history_begin(history *h, const char *owner, size_t n_prompt, const job_report *report);

/* It has ended. A number that has made room already, and 0, are let pass. */
void history_end(history *h, uint64_t number, const job_report *report);

/* The newest events of an owner (NULL: of all), newest first, at most `most`; how many those are. */
size_t history_copy(const history *h, const char *owner, history_event *to, size_t most);

#endif /* APP_HISTORY_H */
