/*
 * memory.h: one memory: its layers, its groups, the open step.
 *
 * Everything a memory owns hangs off this struct. The object, the layers and the frequencies of the
 * rotations are one block of memory; cells, rows and scratch are one block each; what grows (runs,
 * the step) is counted apart.
 */
#ifndef CL_MEMORY_H
#define CL_MEMORY_H

#include "attend.h"
#include "group.h"
#include "step.h"

#define CL_MAX_ROPES 256u /* different rotations in one memory */

/* What a configuration comes to, computed before anything is allocated. */
typedef struct cl_plan {
    size_t object_bytes;                /* the memory, layers, groups, rotations, frequencies */
    uint32_t n_ropes;                   /* different rotations */
    uint32_t rope_layers[CL_MAX_ROPES]; /* the first layer that has each */
    size_t n_frequencies;               /* doubles, over all rotations */
    size_t block_bytes;                 /* of the storage */
    size_t rows_bytes, cells_bytes;
    cl_scratch_layout scratch; /* of one worker */
    size_t scratch_bytes;      /* workers' and angles */
    uint32_t n_workers;
} cl_plan;

/* Check a configuration and compute its plan. CELLAR_INVALID. */
cellar_status cl_config_plan(const cellar_config *config, cl_plan *plan, cellar_error *error);

/* Which of the plan's rotations a layer has; plan->n_ropes if none of them. */
uint32_t cl_plan_find_rope(const cl_plan *plan, const cellar_config *config, uint32_t layer);

struct cellar_memory {
    cl_alloc alloc;
    cl_kernels kernels;
    cellar_workers workers;
    uint32_t n_ubatch;
    uint32_t n_layers, n_groups, n_ropes;
    cl_layer *layers;
    cl_group *groups;
    cl_rope *ropes;        /* distinct ones */
    size_t *angle_offsets; /* [n_ropes] floats before its own in the angles of one token or shift */
    uint32_t *n_stored;    /* [n_layers] micro-batches of the open step that are stored */
    cl_step step;
    cl_scratch_layout scratch_layout;
    float *scratch; /* [n_workers][scratch_layout.floats], then angles */
    float *angles;  /* [n_ropes][n_ubatch][2 * pairs] of the micro-batch angles_ubatch */
    size_t scratch_bytes;
    uint32_t angles_ubatch; /* UINT32_MAX: none */
    uint64_t rows_written;
    size_t object_bytes;
};

/* NULL pointer, negative sequence, open step: what every operation refuses. */
cellar_status cl_memory_check(const cellar_memory *memory, cellar_error *error);
cellar_status cl_memory_check_idle(const cellar_memory *memory, cellar_error *error);
cellar_status cl_memory_check_seq(cellar_seq seq, cellar_error *error);

/* [p0, p1) by the conventions of cellar.h. CELLAR_INVALID. */
cellar_status cl_memory_range(cellar_pos p0, cellar_pos p1, cl_range *range, cellar_error *error);

/* The runs of a sequence in one group. */
static inline const cl_runs *cl_memory_runs(const cellar_memory *memory, uint32_t group,
                                            cellar_seq seq)
{
    return cl_sequence_table_runs(&memory->groups[group].sequences.table, seq);
}

#endif /* CL_MEMORY_H */
