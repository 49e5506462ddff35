/*
 * crash.h: what the files of the crash test share: a way of saving that is interrupted.
 *
 * A way says how a session gets onto the disk (whole, or appended to a journal). Each is run in a child
 * process that is killed at a random moment; the parent then looks at what lies there.
 */
#ifndef CRASH_H
#define CRASH_H

#include <cellar.h>

#include "model/random.h"

typedef enum crash_outcome { CRASH_OLD, CRASH_NEW, CRASH_NEITHER } crash_outcome;

/* A way of saving. The world is a memory, a folder with one file, and what the file may be. */
typedef struct crash_kind {
    const char *name;
    void *(*open)(uint64_t seed);
    void (*close)(void *world);
    void (*prepare)(void *world);        /* the old session is in the file */
    void (*begin)(void *world);          /* what comes before saving; in the child */
    bool (*save)(void *world);           /* the new one over it; in the child */
    crash_outcome (*look)(void *world);  /* which one is there */
    uint32_t (*count_left)(void *world); /* other names in the folder */
} crash_kind;

extern const crash_kind crash_kinds[];
extern const uint32_t crash_n_kinds;

/* If it is not so, say what, and the test has failed. */
void crash_must(bool is_so, const char *what, const cellar_error *error);

double crash_now(void); /* seconds */

#endif /* CRASH_H */
