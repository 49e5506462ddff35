/*
 * exports.h: what the exports share: which layer and micro-batch is meant, which cells its tokens
 * may lie in, and what one sequence holds at that moment.
 *
 * Everything here is answered from the open step and the run lists; nothing is kept and nothing is
 * changed, so an engine may ask for the same micro-batch as often as it likes, in any order.
 */
#ifndef CL_EXPORTS_H
#define CL_EXPORTS_H

#include "memory.h"

/* A micro-batch of the open step, as one attention layer sees it. */
typedef struct cl_export {
    const cellar_memory *memory;
    const cl_step *step;
    const cl_layer *layer;
    const cl_group *group;
    uint32_t ubatch;
    uint32_t first, n_tokens; /* its tokens: step arrays from `first` on */
} cl_export;

/* The cells that streams consist of. */
typedef struct cl_export_streams {
    bool is_whole; /* one stream over all cells: some pool's tokens do not lie together */
    uint32_t n;
    uint32_t cover; /* cells of a stream up to the last held one, the largest */
    uint32_t limit; /* no stream ever needs more */
} cl_export_streams;

/*
 * What a sequence holds, this micro-batch included: its runs, then the first n_pending of the
 * step's cells.
 */
typedef struct cl_export_held {
    const cl_runs *runs, *pending;
    uint32_t n_pending;
} cl_export_held;

/* CELLAR_INVALID: no such step, micro-batch or layer, or not one that attends. */
cellar_status cl_exports_open(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                              cl_export *out, cellar_error *error);

void cl_exports_streams(const cl_export *export, cl_export_streams *streams);

/* The first cell of the stream that a token (of the step) lies in, when streams have n_kv cells. */
uint32_t cl_exports_first_cell(const cl_export *export, const cl_export_streams *streams,
                               uint32_t n_kv, uint32_t token);

/* The member whose past a token (of the step) reads. */
static inline uint32_t cl_exports_member(const cl_export *export, uint32_t token)
{
    return export->step->member_of[export->step->member_begin[token]];
}

static inline bool cl_exports_has_member(const cl_step *step, uint32_t token, uint32_t member)
{
    for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++)
        if (step->member_of[k] == member) return true;
    return false;
}

/* What a member holds when the micro-batch's segments [0, n_segments) have been stored. */
cl_export_held cl_exports_held(const cl_export *export, uint32_t member, uint32_t n_segments);

/*
 * CELLAR_REFUSED if a token of the micro-batch sees keys that are rotated for another position than
 * theirs.
 */
cellar_status cl_exports_check_shifts(const cl_export *export, cellar_error *error);

#endif /* CL_EXPORTS_H */
