/*
 * memory_options.h: what the command line says about the memory of a model, for every command that
 * makes one or plans one.
 *
 * So that `cellar inspect --cells` plans exactly what `cellar run` makes of the same options, both
 * read them into this struct and turn it into the engine's options here.
 */
#ifndef APP_MEMORY_OPTIONS_H
#define APP_MEMORY_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cellar.h"
#include "cli/options.h"
#include "engine/engine.h"

#define MEMORY_MOST_CELLS (1 << 30)

typedef struct memory_options {
    int64_t n_cells;    /* 0: not given */
    int64_t n_ubatch;   /* most tokens computed at once */
    int64_t n_threads;  /* 0: not given */
    int k_type, v_type; /* index into memory_type_names */
    int rotation;       /* index into memory_rotation_names */
    bool is_exact;      /* activations are not rounded */
} memory_options;

/*
 * Entries of an option table that fill in `its`, a memory_options *.
 */
#define MEMORY_OPTIONS(its)                                                                        \
    option_integer('c', "cells", &(its)->n_cells, 2, MEMORY_MOST_CELLS),                           \
        option_integer(0, "ctx-size", &(its)->n_cells, 2, MEMORY_MOST_CELLS),                      \
        option_choice(0, "cache-type-k", &(its)->k_type, memory_type_names),                       \
        option_choice(0, "cache-type-v", &(its)->v_type, memory_type_names),                       \
        option_choice(0, "ctk", &(its)->k_type, memory_type_names),                                \
        option_choice(0, "ctv", &(its)->v_type, memory_type_names),                                \
        option_choice(0, "cache-rotate", &(its)->rotation, memory_rotation_names),                 \
        option_flag(0, "exact", &(its)->is_exact),                                                 \
        option_integer('t', "threads", &(its)->n_threads, 1, 512),                                 \
        option_integer(0, "ubatch", &(its)->n_ubatch, 1, 65536)

/* The row types by name, as option_choice wants them. */
extern const char *const memory_type_names[];
extern const cellar_type memory_types[]; /* in the same order */

/* Which rows are turned by a Hadamard matrix, as option_choice wants it: none, k, v, both. */
extern const char *const memory_rotation_names[];

memory_options memory_options_defaults(void);

/* Threads to compute with: those given, or for 0 one for each processor, at most 64. */
uint32_t memory_options_threads(int64_t given);

/* Is nothing of it given? */
bool memory_options_are_defaults(const memory_options *options);

/*
 * The engine's options: what was given, and for the rest what suits the model and the processor.
 * CELLAR_INVALID: a row type does not suit the model's heads.
 */
cellar_status memory_options_apply(const memory_options *options, const model *m,
                                   engine_options *out, cellar_error *error);

#endif /* APP_MEMORY_OPTIONS_H */
