/*
 * sweep.h: what a micro-batch sees, as a list of key blocks.
 *
 * Attention reads a sequence's keys in the order of their positions, in blocks: all cells whose
 * position lies in the same stretch of 32 positions (at most 32 cells at a time). A key block is
 * one such stretch as one or more sequences see it:
 *
 *     positions  64 .. .. .. .. .. .. .. 95        key block { first_pos 64, last_pos 95,
 *     cells      [ 7 .. 19 ][ 200 .. 218 ]                     pieces {7, 13 cells}, {200, 19 cells} }
 *
 * A piece is consecutive cells in one block of storage, with one shift. Sequences that hold the
 * same pieces at the same positions (a shared prefix) share the key block: its keys are read once
 * for all of them.
 *
 * Where a window hides the beginning, a view starts at the stretch in which the first position lies
 * that some of its tokens see; sinks come before that. Nothing of the committed past or of the step
 * that lies before is looked at: it may have been given up.
 *
 * The cuts depend on positions alone, never on where cells lie or who shares them, and attention
 * updates its running maximum once a key block. That is why results are the same bit for bit
 * however a sequence came to hold what it holds. (Where tokens share positions, 32 cells may not be
 * enough for a stretch. It is then cut every 32 cells; with a window, where cells at its beginning
 * may be there or not, instead before the second cell of a position and after its last one.) Sinks are
 * cut off from what comes behind them, of which any part may be gone.
 */
#ifndef CL_SWEEP_H
#define CL_SWEEP_H

#include "arena.h"
#include "rope.h"
#include "runs.h"
#include "window.h"

#define CL_KEYS 32u /* keys in a key block at most, and positions it spans */

typedef struct cl_piece {
    uint32_t cell;
    int32_t pos;    /* of its first cell */
    uint32_t len;   /* 1..CL_KEYS */
    uint32_t step;  /* as in a run */
    uint32_t shift; /* index into the sweep's shifts */
} cl_piece;

typedef struct cl_key_block {
    uint32_t first_piece, n_pieces;
    uint32_t n_keys;                  /* sum of their lengths, 1..CL_KEYS */
    int32_t first_pos, last_pos;      /* of its first and last key */
    uint32_t first_viewer, n_viewers; /* into the sweep's viewers: views that see it, rising */
} cl_key_block;

/* Tokens of the micro-batch that see the same past: those whose first sequence is the same. */
typedef struct cl_view {
    uint32_t member;
    uint32_t first_token, n_tokens; /* into the sweep's tokens */
    uint32_t first_block, n_blocks; /* into the sweep's view_blocks */
} cl_view;

typedef struct cl_sweep {
    uint32_t ubatch; /* the micro-batch it is built for; UINT32_MAX: none */
    uint32_t n_tokens;
    uint32_t *tokens;  /* [n_tokens] of the micro-batch (0-based in it), grouped by view */
    uint32_t *view_of; /* [n_tokens] view of tokens[i] */
    cl_view *views;
    uint32_t n_views;
    cl_piece *pieces;
    uint32_t n_pieces;
    cl_key_block *blocks; /* in the order in which they were found */
    uint32_t n_blocks;
    uint32_t *view_blocks; /* block indices of each view, in order of position */
    uint32_t n_view_blocks;
    uint32_t *viewers; /* views of each block, rising */
    uint32_t *map;     /* hash from pieces to block; while building. Then: */
    uint32_t *order;   /* [n_blocks] all blocks in order of position, in the same memory */
    uint32_t map_size;
    int64_t *shifts; /* [n_shifts] distinct, rising; always contains 0 */
    uint32_t n_shifts;
    float *turns;      /* [n_shifts][n_angles] cosines and sines of a turn back by each shift */
    uint32_t n_angles; /* over all rotations: 2 * pairs each */
    uint32_t max_pieces, max_blocks; /* capacities */
    cl_arena arena;
    cl_arena turn_arenas[2]; /* shifts and turns of this step and of the one before, in turns */
    uint32_t current;        /* which of the two holds this step's */
} cl_sweep;

/* One sequence of a step as the sweep has to see it: what it holds, and what the step adds. */
typedef struct cl_past {
    const cl_runs *runs;         /* committed */
    const cl_runs *pending;      /* of this step; shift 0 */
    const cellar_window *window; /* NULL: everything is seen */
    int32_t
        first_query; /* the smallest position of its tokens: of the step's when preparing, of the
                            view's when adding one. Only a window needs it */
} cl_past;

/*
 * Make room for any micro-batch of a step (n_tokens tokens at most), and collect the shifts. pasts
 * [n_pasts]: every sequence that is the first of some token. CELLAR_NO_MEMORY.
 */
cellar_status cl_sweep_prepare(cl_sweep *sweep, const cl_past *pasts, uint32_t n_pasts,
                               uint32_t n_tokens, const cl_rope *ropes, uint32_t n_ropes,
                               cl_alloc *alloc, cellar_error *error);

/* Start a micro-batch: no views yet. */
void cl_sweep_begin(cl_sweep *sweep, uint32_t ubatch);

/*
 * Add a view: the tokens [n] of the micro-batch that see this past, of which the first n_pending
 * pending cells exist by now (those that lie before the window may be in use again).
 */
void cl_sweep_add_view(cl_sweep *sweep, uint32_t member, const cl_past *past, uint32_t n_pending,
                       const uint32_t *tokens, uint32_t n);

/* All views are there: note for each block who sees it. */
void cl_sweep_finish(cl_sweep *sweep);

void cl_sweep_free(cl_sweep *sweep, cl_alloc *alloc);

#endif /* CL_SWEEP_H */
