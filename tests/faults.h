/*
 * faults.h: the frame of the fault tests: an allocator that counts, checks and fails on command,
 * and CHECK. faults.c runs the groups; faults_memory.c makes allocations fail, faults_arguments.c
 * hands wrong arguments to every public call.
 *
 * The allocator holds the library to its side of the bargain: sizes that it releases or resizes
 * must be those it asked for, alignments powers of two up to 4096. New blocks are filled with
 * rubbish, blocks are exactly as long as asked for. A breach is a failed check.
 */
#ifndef FAULTS_H
#define FAULTS_H

#include "model/drive.h"

typedef struct tracked_block {
    char *address;
    size_t size, align;
} tracked_block;

typedef struct tracker {
    uint64_t n_asked;   /* calls of allocate and growing resize so far */
    uint64_t fail_at;   /* the call that fails, from 1; 0: none */
    bool is_persistent; /* and all after it */
    bool has_failed;
    bool is_paused;  /* nothing fails and nothing is counted */
    bool can_resize; /* hand `resize` to the library */
    uint64_t bytes;  /* held now */
    tracked_block blocks[512];
    uint32_t n_blocks;
} tracker;

cellar_allocator tracker_allocator(tracker *t);

void fault_check(bool is_true, const char *text, const char *file, int line, const char *note);

/* `note` says which case of a loop it was. */
#define CHECK_IN(note, condition) fault_check((condition), #condition, __FILE__, __LINE__, (note))
#define CHECK(condition) CHECK_IN("", condition)

/* Returned fine, or failed with a complete error. */
bool fault_error_fits(const cellar_error *error, cellar_status status);

/* faults_memory.c */
void faults_transient(void);
void faults_persistent(void);
void faults_without_resize(void);
void faults_sizes(void);
void faults_large_sizes(void);

/* faults_arguments.c */
void faults_configurations(void);
void faults_calls(void);
void faults_null_memory(void);
void faults_struct_sizes(void);

#endif /* FAULTS_H */
