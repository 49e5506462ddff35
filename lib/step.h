/*
 * step.h: a batch, understood: which sequences take part, where each token stands, which tokens are
 * computed together.
 *
 * cl_step_resolve turns the caller's batch into arrays of the memory's own and checks every rule of
 * cellar_batch; then it cuts the batch into micro-batches (split.c) and puts all arrays in the order of
 * computation: micro-batch u is tokens ubatch_begin[u]..ubatch_begin[u + 1], and `indices` says which
 * tokens of the batch those are. Nothing else is changed, so a refused batch leaves no trace.
 * Placing the tokens is the groups' business (group.h).
 */
#ifndef CL_STEP_H
#define CL_STEP_H

#include "arena.h"
#include "cells.h"

/* A sequence that takes part in the step. */
typedef struct cl_member {
    cellar_seq id;
    cellar_pos first;    /* the position of its first token in the batch */
    cellar_pos next;     /* while resolving: the position its next token has by itself; -1: any */
    cellar_pos last;     /* while resolving: the position of its last token so far; -1: none */
    uint32_t last_token; /* its last token in the batch so far, UINT32_MAX: none */
    uint32_t n_tokens;   /* its tokens in the batch */
    uint32_t pool;
} cl_member;

typedef struct cl_step {
    bool is_open;
    uint32_t n_tokens, n_ubatches;
    uint32_t *ubatch_begin; /* [n_ubatches + 1] */
    /* by token, in the order of computation; the tokens of one sequence keep their order */
    uint32_t *indices;      /* [n_tokens] its place in the batch */
    cellar_pos *positions;  /* [n_tokens] */
    cl_point *points;       /* [n_tokens] or NULL: all text */
    cellar_token *tokens;   /* [n_tokens] */
    bool *checkpoints;      /* [n_tokens] or NULL: none wanted */
    uint32_t *member_begin; /* [n_tokens + 1] into member_of */
    uint32_t *member_of;    /* members of each token; the first is whose past it reads */
    uint32_t n_members;
    cl_member *members;       /* [n_members] */
    uint32_t n_segments;      /* of all micro-batches */
    cellar_segment *segments; /* [n_segments] `first` counts from the micro-batch's first token */
    uint32_t *segment_begin;  /* [n_ubatches + 1] */
    uint32_t *map;            /* while resolving: hash from id to member */
    uint32_t map_size;
    cl_arena arena;       /* what is above */
    cl_arena split_arena; /* what split.c needs meanwhile */
} cl_step;

/* What resolving has to ask the memory about a sequence. */
typedef struct cl_step_questions {
    /* *next: where its next token goes, *last: its largest position; both -1 if it is empty */
    void (*position)(const void *context, cellar_seq id, cellar_pos *next, cellar_pos *last);
    bool (*same_past)(const void *context, cellar_seq a, cellar_seq b);
    uint32_t (*pool_of)(const void *context, cellar_seq id);
    const void *context;
} cl_step_questions;

/* How batches of this memory are understood and cut. */
typedef struct cl_step_rules {
    uint32_t n_ubatch;
    cellar_split split; /* not AUTO */
    bool is_2d;         /* M-RoPE: gaps, shared positions and points are allowed */
} cl_step_rules;

/* What can be said of a batch without looking at its tokens: sizes and pointers. CELLAR_INVALID. */
cellar_status cl_step_check_batch(const cellar_batch *batch, bool is_2d, cellar_error *error);

/* Understand a batch that cl_step_check_batch accepted. CELLAR_INVALID, CELLAR_NO_MEMORY. */
cellar_status cl_step_resolve(cl_step *step, const cellar_batch *batch, const cl_step_rules *rules,
                              const cl_step_questions *questions, cl_alloc *alloc,
                              cellar_error *error);

/*
 * Cut a batch, whose arrays are still in its own order, into micro-batches and bring the arrays into
 * the order of computation. CELLAR_NO_MEMORY.
 */
cellar_status cl_step_split(cl_step *step, const cl_step_rules *rules, cl_alloc *alloc,
                            cellar_error *error);

/* First token of micro-batch u, and how many it has. */
static inline uint32_t cl_step_first(const cl_step *step, uint32_t ubatch)
{
    return step->ubatch_begin[ubatch];
}

static inline uint32_t cl_step_count(const cl_step *step, uint32_t ubatch)
{
    return step->ubatch_begin[ubatch + 1] - step->ubatch_begin[ubatch];
}

/* The text point of a token: y and x equal to the position. */
static inline cl_point cl_step_point(const cl_step *step, uint32_t token)
{
    return step->points ? step->points[token] : (cl_point){0, 0};
}

#endif /* CL_STEP_H */
