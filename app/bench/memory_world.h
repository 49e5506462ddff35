/*
 * memory_world.h: the memories that operations are timed in, and the tables of operations.
 *
 * An operation is a line of a table: what is done before the clock runs, the calls that are timed, and what is
 * done after, so that every sample meets the same world. One that cannot be undone spends its world, which
 * is then made anew.
 */
#ifndef APP_BENCH_MEMORY_WORLD_H
#define APP_BENCH_MEMORY_WORLD_H

#include "bench/memory_bench.h"

/* Sequences 0..n_sequences-1 are those that are counted; the others come and go. */
enum { MEMORY_WORLD_FORK = 1 << 20 };

typedef struct memory_world {
    const memory_bench *bench;
    memory_column column;
    cellar_memory *memory;
    uint32_t n_each;   /* tokens of a sequence */
    bool has_holes;    /* one cell in eight is free */
    const float *rows; /* zeros, enough for a large step */
    cellar_seq
        *batch; /* [MEMORY_BENCH_BATCH] whose tokens a large step has, as histories are written */
    cellar_seq *each;    /* [n_sequences] */
    uint32_t n_kv;       /* of the step's extent, once it was asked for */
    void *room;          /* for masks and whatever is exported */
    double bytes;        /* an operation says here what it reads or writes */
    cellar_error *error; /* the caller's */
} memory_world;

enum {
    OPERATION_SPENDS = 1,  /* make the world anew after each sample */
    OPERATION_IN_STEP = 2, /* a step of 512 tokens is open all the time */
    OPERATION_HOLES = 4,   /* in a world with holes */
};

typedef struct memory_operation {
    const char *name, *call;
    uint32_t flags, n_calls; /* in a sample */
    cellar_status (*call_it)(memory_world *w, uint32_t i);
    cellar_status (*before)(memory_world *w); /* NULL: nothing */
    cellar_status (*after)(memory_world *w);  /* NULL: nothing */
} memory_operation;

typedef struct memory_section {
    const char *name;
    const memory_operation *operations;
    uint32_t n;
} memory_section;

extern const memory_section memory_section_sequences, memory_section_steps,
    memory_section_questions, memory_section_exports;

/* Open a large step. */
cellar_status memory_world_begin(memory_world *w);

/* The configuration of such a memory; *layer is its only one. */
cellar_config memory_world_config(const memory_bench *b, cellar_layer *layer);

#endif /* APP_BENCH_MEMORY_WORLD_H */
