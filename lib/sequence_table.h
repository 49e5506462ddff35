/*
 * sequence_table.h: sequences by name.
 *
 * The caller names a sequence with any number >= 0; inside it has a slot, which stays the same
 * while it exists (claims and plans refer to slots; pointers move when the table grows). A hash
 * table with linear probing leads from name to slot. A sequence that holds nothing and lost nothing does
 * not exist: whoever empties one drops it.
 */
#ifndef CL_SEQUENCE_TABLE_H
#define CL_SEQUENCE_TABLE_H

#include "lost.h"

#define CL_NO_SLOT UINT32_MAX

typedef struct cl_sequence {
    cl_runs runs;
    cellar_seq id;  /* -1: the slot is vacant */
    uint32_t claim; /* the block it claims, CL_NO_BLOCK if none */
    uint32_t pool;  /* whose cells it holds */
    cl_runs lost;   /* window groups: positions that were given up; it exists also without runs */
    int32_t begin;  /* recurrent groups: where the first token stands that its states have read */
    uint32_t next_vacant; /* while vacant: the next vacant slot, CL_NO_SLOT at the end */
} cl_sequence;

typedef struct cl_sequence_table {
    cl_sequence *items;
    uint32_t n_slots, capacity; /* slots ever used; room */
    uint32_t first_vacant;
    uint32_t seed;       /* of the hash */
    uint32_t n;          /* sequences that exist */
    uint32_t *index;     /* [index_size] slot or CL_NO_SLOT; at most half full */
    uint32_t index_size; /* 0 or a power of two */
} cl_sequence_table;

/*
 * Spread names over a table of `size` places, a power of two. Neighbours (0, 1, 2, ...) are the rule; the
 * seed keeps a caller's users from choosing names that all fall together.
 */
static inline uint32_t cl_sequence_hash(cellar_seq id, uint32_t seed, uint32_t size)
{
    uint32_t x = (uint32_t)id ^ seed;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return (x ^ (x >> 16)) & (size - 1);
}

/* A number that differs from process to process where the system places memory at random. */
static inline uint32_t cl_sequence_seed(const void *object)
{
    uint64_t x = (uint64_t)(uintptr_t)object * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> 32);
}

void cl_sequence_table_init(cl_sequence_table *table);
void cl_sequence_table_free(cl_sequence_table *table, cl_alloc *alloc);

/* The slot of a sequence, CL_NO_SLOT if it does not exist. */
uint32_t cl_sequence_table_find(const cl_sequence_table *table, cellar_seq id);

/* Its runs; an empty list if it does not exist. */
const cl_runs *cl_sequence_table_runs(const cl_sequence_table *table, cellar_seq id);

/* The positions that a sequence has lost; an empty list if it is not there. */
const cl_runs *cl_sequence_table_lost(const cl_sequence_table *table, cellar_seq id);

/*
 * The slot of a sequence, made (without runs, of that pool) if need be; CL_NO_SLOT: no memory, nothing
 * changed.
 */
uint32_t cl_sequence_table_add(cl_sequence_table *table, cl_alloc *alloc, cellar_seq id,
                               uint32_t pool);

/* Give back a sequence's slot and list. Its cells must have been released. */
void cl_sequence_table_drop(cl_sequence_table *table, cl_alloc *alloc, uint32_t slot);

#endif /* CL_SEQUENCE_TABLE_H */
