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
#include "checkpoints.h"
#include "group.h"
#include "step.h"

#define CL_MAX_ROPES 256u /* different rotations in one memory */
#define CL_MAX_GROUPS 16u /* different windows, and the recurrent group */

/* What a configuration comes to, computed before anything is allocated. */
typedef struct cl_plan {
    size_t object_bytes;                /* the memory, layers, groups, rotations, frequencies */
    uint32_t n_ropes;                   /* different rotations */
    uint32_t rope_layers[CL_MAX_ROPES]; /* the first layer that has each */
    size_t n_frequencies;               /* doubles, over all rotations */
    size_t n_features;                  /* floats: factors, slopes, sinks, buckets */
    uint32_t n_groups, n_stores, n_rows;
    cl_group_plan groups[CL_MAX_GROUPS];
    const cellar_row_store *stores[CL_MAX_STORES]; /* entry 0: NULL, the library's own */
    bool is_2d;                                    /* some layer has M-RoPE */
    uint64_t n_fitting_checkpoints;                /* that checkpoint_bytes has room for */
    uint32_t n_checkpoints;                        /* slots */
    size_t checkpoint_bytes;                       /* of their bookkeeping */
    cl_scratch_layout scratch;                     /* of one worker */
    size_t scratch_bytes;                          /* workers' and angles */
    uint32_t n_workers;
    cellar_sizes sizes; /* of everything */
} cl_plan;

/* Check a configuration and compute its plan (plan.c). CELLAR_INVALID. */
cellar_status cl_plan_make(const cellar_config *config, cl_plan *plan, cellar_error *error);

/* Which of the plan's rotations, groups or stores a layer has; the number of them if none. */
uint32_t cl_plan_find_rope(const cl_plan *plan, const cellar_config *config, uint32_t layer);
uint32_t cl_plan_find_group(const cl_plan *plan, const cellar_layer *layer);
uint32_t cl_plan_find_store(const cl_plan *plan, const cellar_layer *layer);

/* Cells that pool p of a group has by the rules of cellar_config. */
uint32_t cl_plan_pool_cells(const cellar_config *config, const cl_group_plan *group, uint32_t pool,
                            uint32_t pool_cells);

/* Cells of full attention in a pool, as configured. */
uint32_t cl_plan_pool_share(const cellar_config *config, uint32_t pool);

/* Is a configuration sound, apart from its size (config.c)? CELLAR_INVALID. */
cellar_status cl_config_check(const cellar_config *config, cellar_error *error);

struct cellar_memory {
    cl_alloc alloc;
    cl_kernels kernels;
    cellar_workers workers;
    cellar_config config; /* as given, its arrays are not kept: layers and pool_cells are NULL */
    cl_step_rules rules;
    uint32_t n_layers, n_groups, n_ropes, n_stores;
    cl_layer *layers;
    cl_group *groups;
    cl_pool *pools; /* [n_groups][n_pools] */
    cl_rows *rows;
    cellar_row_store *stores; /* [n_stores] */
    cl_rope *ropes;           /* distinct ones */
    size_t *angle_offsets; /* [n_ropes] floats before its own in the angles of one token or shift */
    uint32_t *n_stored;    /* [n_layers] micro-batches of the open step that are stored */
    uint32_t *pool_cells;  /* [n_pools] cells of full attention that each pool has */
    cl_checkpoints checkpoints;
    cl_moves moves;
    cl_step step;
    cl_scratch_layout scratch_layout;
    float *scratch; /* [n_workers][scratch_layout.floats], then angles */
    float *angles;  /* [n_ropes][n_ubatch][2 * pairs] of the micro-batch angles_ubatch */
    size_t scratch_bytes;
    uint32_t angles_ubatch; /* UINT32_MAX: none */
    uint64_t rows_written;
    size_t object_bytes;
};

/* The pool of a sequence, by the configuration's rule. */
uint32_t cl_memory_pool_of(const cellar_memory *memory, cellar_seq seq);

/* Where a sequence goes on: the largest next position of its groups; -1: it is empty. *last: the
 * largest position held. */
void cl_memory_position(const cellar_memory *memory, cellar_seq seq, cellar_pos *next,
                        cellar_pos *last);

/* The largest position up to n at which every group can go on by itself. */
cellar_pos cl_memory_continue_at(const cellar_memory *memory, cellar_seq seq, cellar_pos n);

/* CELLAR_REPLAY unless every group can go on at n by itself; says why and from where to read again. */
cellar_status cl_memory_check_past(const cellar_memory *memory, cellar_seq seq, cellar_pos n,
                                   cellar_pos *replay_from, cellar_error *error);

/*
 * May the next token of a sequence stand at `first`? CELLAR_REPLAY if it would miss what it has to see. With
 * M-RoPE that may be the sequence's last position, or one behind a gap.
 */
cellar_status cl_memory_check_next(const cellar_memory *memory, cellar_seq seq, cellar_pos first,
                                   cellar_error *error);

/* Is this a micro-batch of the open step? CELLAR_INVALID. */
cellar_status cl_memory_check_ubatch(const cellar_memory *memory, uint32_t ubatch,
                                     cellar_error *error);

/* The same, checkpoints included: where cellar_rewind goes. */
cellar_pos cl_memory_rewind_to(const cellar_memory *memory, cellar_seq seq, cellar_pos n);

/* NULL pointer, negative sequence, open step: what every operation refuses. */
cellar_status cl_memory_check(const cellar_memory *memory, cellar_error *error);
cellar_status cl_memory_check_idle(const cellar_memory *memory, cellar_error *error);
/* The same for what would add row moves while some are pending. */
cellar_status cl_memory_check_moves(const cellar_memory *memory, cellar_error *error);
cellar_status cl_memory_check_seq(cellar_seq seq, cellar_error *error);

/* [p0, p1) by the conventions of cellar.h. CELLAR_INVALID. */
cellar_status cl_memory_range(cellar_pos p0, cellar_pos p1, cl_range *range, cellar_error *error);

/* The runs of a sequence in one group. */
static inline const cl_runs *cl_memory_runs(const cellar_memory *memory, uint32_t group,
                                            cellar_seq seq)
{
    return cl_group_runs(&memory->groups[group], seq);
}

#endif /* CL_MEMORY_H */
