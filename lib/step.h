/*
 * step.h: a batch, understood: which sequences take part, where each token stands, which tokens are
 * computed together.
 *
 * cl_step_resolve turns the caller's batch into arrays of the memory's own and checks every rule of
 * cellar_batch; it changes nothing else, so a refused batch leaves no trace. Placing the tokens is
 * the groups' business (group.h).
 */
#ifndef CL_STEP_H
#define CL_STEP_H

#include "arena.h"

/* A sequence that takes part in the step. */
typedef struct cl_member {
    cellar_seq id;
    cellar_pos next;     /* while resolving: the position its next token must have; -1: any */
    uint32_t last_token; /* its last token in the batch so far, UINT32_MAX: none */
    uint32_t n_tokens;   /* its tokens in the batch */
} cl_member;

typedef struct cl_step {
    bool is_open;
    uint32_t n_tokens, n_ubatch,
        n_ubatches;         /* n_ubatch: tokens in a micro-batch (the last: the rest) */
    uint32_t *indices;      /* [n_tokens] 0, 1, 2, ...: the simple split keeps the order */
    cellar_pos *positions;  /* [n_tokens] */
    cellar_token *tokens;   /* [n_tokens] */
    uint32_t *member_begin; /* [n_tokens + 1] into member_of */
    uint32_t *member_of;    /* members of each token; the first is whose past it reads */
    uint32_t n_members;
    cl_member *members; /* [n_members] */
    uint32_t *map;      /* while resolving: hash from id to member */
    uint32_t map_size;
    cl_arena arena;
} cl_step;

/* What resolving has to ask the memory about a sequence. */
typedef struct cl_step_questions {
    cellar_pos (*next_position)(const void *context, cellar_seq id); /* -1: empty, any will do */
    bool (*same_past)(const void *context, cellar_seq a, cellar_seq b);
    const void *context;
} cl_step_questions;

/* What can be said of a batch without looking at its tokens: sizes and pointers. CELLAR_INVALID. */
cellar_status cl_step_check_batch(const cellar_batch *batch, cellar_error *error);

/* Understand a batch that cl_step_check_batch accepted. CELLAR_INVALID, CELLAR_NO_MEMORY. */
cellar_status cl_step_resolve(cl_step *step, const cellar_batch *batch, uint32_t n_ubatch,
                              const cl_step_questions *questions, cl_alloc *alloc,
                              cellar_error *error);

/* First token of micro-batch u, and how many it has. */
static inline uint32_t cl_step_first(const cl_step *step, uint32_t ubatch)
{
    return ubatch * step->n_ubatch;
}

static inline uint32_t cl_step_count(const cl_step *step, uint32_t ubatch)
{
    uint32_t first = cl_step_first(step, ubatch), rest = step->n_tokens - first;
    return rest < step->n_ubatch ? rest : step->n_ubatch;
}

#endif /* CL_STEP_H */
