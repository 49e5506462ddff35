/*
 * support_any_memory.h: a memory of any kind, chosen by an input, on an allocator and a store that fail.
 *
 * Everything a configuration can say can come out: layers of all kinds, windows, row types, ropes,
 * features, pools, checkpoints, budgets, stores; sometimes what is not allowed. Memory from the allocator
 * begins as NaN in every row type, and is counted: sizes must be given back as they were asked for,
 * nothing may be left, and no more than a cap is ever handed out. Failures are ordered by the test.
 */
#ifndef SUPPORT_ANY_MEMORY_H
#define SUPPORT_ANY_MEMORY_H

#include "cellar.h"
#include "support_input.h"

enum {
    ANY_LAYERS = 6,
    ANY_HEADS = 4,
    ANY_HEAD = 32,
    ANY_UBATCH = 12,
    ANY_BUCKETS = 8,
    ANY_POOLS = 3,
    ANY_BYTES = 64 << 20
};

typedef struct any_memory {
    cellar_config config;
    cellar_layer layers[ANY_LAYERS];
    cellar_row_store store;
    uint32_t pool_cells[ANY_POOLS];
    bool is_2d, has_states, has_window, has_external;
    cellar_memory *memory;
    /* the allocator and the store: */
    int allocations_left, store_calls_left; /* that succeed; < 0: all */
    uint32_t n_allocations, n_failures;
    size_t bytes;
} any_memory;

/* False: the configuration was refused, or there was no memory. Nothing is held then. */
bool any_open(any_memory *m, input *in);

/* Demands that everything was given back. */
void any_close(any_memory *m);

#endif /* SUPPORT_ANY_MEMORY_H */
