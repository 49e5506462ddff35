/*
 * step.c: from a batch to members, positions and micro-batches, rule by rule.
 *
 * The batch is copied into arrays of the step's own while it is checked, so the caller's may go away.
 * A refusal names the token that breaks a rule; it leaves the arrays half filled, which nobody reads,
 * since the step is only opened after everything else has succeeded too.
 */
#include "step.h"

#include <string.h>

#include "error.h"
#include "sequence_table.h"

#define NO_TOKEN UINT32_MAX
#define NO_MEMBER UINT32_MAX

cellar_status cl_step_check_batch(const cellar_batch *batch, bool is_2d, cellar_error *error)
{
    if (!batch) CL_FAIL(error, CELLAR_INVALID, -1, "no batch");
    if (batch->struct_size != sizeof *batch)
        CL_FAIL(error, CELLAR_INVALID, -1,
                "batch.struct_size is %zu, not %zu: use cellar_batch_init", batch->struct_size,
                sizeof *batch);
    if (batch->n_tokens == 0 || batch->n_tokens > 1u << 30)
        CL_FAIL(error, CELLAR_INVALID, -1, "batch.n_tokens %u is not in 1..2^30", batch->n_tokens);
    if (batch->points && !is_2d)
        CL_FAIL(error, CELLAR_INVALID, -1, "batch.points, but no layer has M-RoPE");
    if (batch->points && !batch->positions)
        CL_FAIL(error, CELLAR_INVALID, -1, "batch.points without batch.positions");
    if (!batch->seq_begin) return CELLAR_OK;
    if (!batch->seqs) CL_FAIL(error, CELLAR_INVALID, -1, "batch.seq_begin without batch.seqs");
    if (batch->seq_begin[0] != 0)
        CL_FAIL(error, CELLAR_INVALID, 0, "batch.seq_begin[0] is %u, not 0", batch->seq_begin[0]);
    for (uint32_t i = 0; i < batch->n_tokens; i++)
        if (batch->seq_begin[i + 1] <= batch->seq_begin[i] || batch->seq_begin[i + 1] > 1u << 30)
            CL_FAIL(error, CELLAR_INVALID, i,
                    "token %u: batch.seq_begin must rise by 1 or more from token to token", i);
    return CELLAR_OK;
}

/* Sequences of token i: ids[0..n). */
static const cellar_seq *ids_of(const cellar_batch *batch, uint32_t i, uint32_t *n)
{
    static const cellar_seq zero = 0;
    *n = 1;
    if (!batch->seqs) return &zero;
    if (!batch->seq_begin) return &batch->seqs[i];
    *n = batch->seq_begin[i + 1] - batch->seq_begin[i];
    return &batch->seqs[batch->seq_begin[i]];
}

static cellar_status carve(cl_step *step, const cellar_batch *batch, uint32_t n_memberships,
                           cl_alloc *alloc, cellar_error *error)
{
    uint32_t n = batch->n_tokens;
    step->map_size = 2;
    while (step->map_size < 2 * (uint64_t)n_memberships)
        step->map_size *= 2;
    size_t total = 0, n_points = batch->points ? n : 0, n_wishes = batch->checkpoints ? n : 0;
    bool fits = cl_arena_add(&total, n, sizeof(uint32_t)) &&
                cl_arena_add(&total, n, sizeof(cellar_pos)) &&
                cl_arena_add(&total, n_points, sizeof(cl_point)) &&
                cl_arena_add(&total, n, sizeof(cellar_token)) &&
                cl_arena_add(&total, n_wishes, sizeof(bool)) &&
                cl_arena_add(&total, (size_t)n + 1, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_memberships, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_memberships, sizeof(cl_member)) &&
                cl_arena_add(&total, n, sizeof(cellar_segment)) &&
                cl_arena_add(&total, (size_t)n + 1, sizeof(uint32_t)) &&
                cl_arena_add(&total, (size_t)n + 1, sizeof(uint32_t)) &&
                cl_arena_add(&total, step->map_size, sizeof(uint32_t));
    cl_arena *arena = &step->arena;
    if (!fits || !cl_arena_reset(arena, alloc, total))
        return cl_error_no_memory(error, "a step", total);
    step->indices = cl_arena_take(arena, n, sizeof(uint32_t));
    step->positions = cl_arena_take(arena, n, sizeof(cellar_pos));
    step->points = cl_arena_take(arena, n_points, sizeof(cl_point));
    step->tokens = cl_arena_take(arena, n, sizeof(cellar_token));
    step->checkpoints = cl_arena_take(arena, n_wishes, sizeof(bool));
    step->member_begin = cl_arena_take(arena, (size_t)n + 1, sizeof(uint32_t));
    step->member_of = cl_arena_take(arena, n_memberships, sizeof(uint32_t));
    step->members = cl_arena_take(arena, n_memberships, sizeof(cl_member));
    step->segments = cl_arena_take(arena, n, sizeof(cellar_segment));
    step->ubatch_begin = cl_arena_take(arena, (size_t)n + 1, sizeof(uint32_t));
    step->segment_begin = cl_arena_take(arena, (size_t)n + 1, sizeof(uint32_t));
    step->map = cl_arena_take(arena, step->map_size, sizeof(uint32_t));
    if (!batch->points) step->points = NULL;
    if (!batch->checkpoints) step->checkpoints = NULL;
    memset(step->map, 0xff, step->map_size * sizeof(uint32_t));
    return CELLAR_OK;
}

/* The member of that name, made if it is new. */
static uint32_t member_of_id(cl_step *step, cellar_seq id, const cl_step_questions *questions)
{
    uint32_t at = cl_sequence_hash(id, cl_sequence_seed(step), step->map_size);
    while (step->map[at] != NO_MEMBER) {
        if (step->members[step->map[at]].id == id) return step->map[at];
        at = (at + 1) & (step->map_size - 1);
    }
    uint32_t index = step->n_members++;
    cl_member *member = &step->members[index];
    *member = (cl_member){.id = id, .first = -1, .last_token = NO_TOKEN};
    questions->position(questions->context, id, &member->next, &member->last);
    member->pool = questions->pool_of(questions->context, id);
    step->map[at] = index;
    return index;
}

/*
 * A token that stands in several sequences reads the past of the first; the others must have the
 * same: either none of them had a token in this batch and they hold the same cells, or all of them
 * share their last token, which was checked in its turn.
 */
static cellar_status check_coupled(uint32_t token, const cl_member *a, const cl_member *b,
                                   const cl_step_questions *questions, cellar_error *error)
{
    if (a->pool != b->pool)
        CL_FAIL_BECAUSE(error, CELLAR_INVALID, CELLAR_REASON_POOLS, token,
                        "token %u stands in sequences %d and %d, which live in pools %u and %u",
                        token, (int)a->id, (int)b->id, a->pool, b->pool);
    bool same = a->last_token == b->last_token &&
                (a->last_token != NO_TOKEN ||
                 questions->same_past(questions->context, a->id, b->id));
    if (!same)
        CL_FAIL_BECAUSE(error, CELLAR_INVALID, CELLAR_REASON_DIVERGED, token,
                        "token %u stands in sequences %d and %d, which do not hold the same cells",
                        token, (int)a->id, (int)b->id);
    return CELLAR_OK;
}

/* May a token of a sequence stand at pos? By one more than before; 2-D: further on, or as far. */
static bool is_in_order(const cl_member *member, cellar_pos pos, bool is_2d, bool has_point)
{
    if (member->next < 0) return true;
    if (!is_2d) return pos == member->next;
    return pos > member->last || (has_point && pos == member->last);
}

static cellar_status check_order(const cl_member *member, uint32_t i, cellar_pos pos, bool is_2d,
                                 bool has_point, cellar_error *error)
{
    if (member->last_token == i)
        CL_FAIL(error, CELLAR_INVALID, i, "token %u names sequence %d twice", i, (int)member->id);
    if (!is_in_order(member, pos, is_2d, has_point))
        CL_FAIL_BECAUSE(error, CELLAR_INVALID, CELLAR_REASON_POSITION_ORDER, i,
                        "token %u: position %d in sequence %d, whose next position is %d%s", i,
                        (int)pos, (int)member->id, (int)member->next,
                        pos < member->next ? "; to rewind, remove from there on first" : "");
    return CELLAR_OK;
}

static cellar_status check_position(uint32_t i, cellar_pos pos, cellar_error *error)
{
    if (pos < 0 || pos > INT32_MAX - 1)
        CL_FAIL_BECAUSE(error, CELLAR_INVALID, CELLAR_REASON_POSITION_RANGE, i,
                        "token %u: position %d is not in 0..%d", i, (int)pos, INT32_MAX - 1);
    return CELLAR_OK;
}

/* The point of token i as distances from its position. */
static cellar_status resolve_point(const cellar_batch *batch, uint32_t i, cl_point *out,
                                   cellar_error *error)
{
    int64_t pos = batch->positions[i], y = batch->points[i].y - pos, x = batch->points[i].x - pos;
    if (y < -INT16_MAX || y > INT16_MAX || x < -INT16_MAX || x > INT16_MAX)
        CL_FAIL_BECAUSE(error, CELLAR_INVALID, CELLAR_REASON_POSITION_RANGE, i,
                        "token %u: point %d, %d is more than %d away from its position %lld", i,
                        (int)batch->points[i].y, (int)batch->points[i].x, INT16_MAX,
                        (long long)pos);
    CL_TRY(check_position(i, batch->points[i].y, error));
    CL_TRY(check_position(i, batch->points[i].x, error));
    *out = (cl_point){(int16_t)y, (int16_t)x};
    return CELLAR_OK;
}

/* Where token i stands, after checking it against each of its members. */
static cellar_status resolve_position(cl_step *step, const cellar_batch *batch, uint32_t i,
                                      bool is_2d, cellar_error *error)
{
    const uint32_t *members = step->member_of + step->member_begin[i];
    uint32_t n = step->member_begin[i + 1] - step->member_begin[i];
    cellar_pos wanted = step->members[members[0]].next;
    cellar_pos pos = batch->positions ? batch->positions[i] : wanted < 0 ? 0 : wanted;
    CL_TRY(check_position(i, pos, error));
    cellar_pos largest = pos;
    if (batch->points) {
        CL_TRY(resolve_point(batch, i, &step->points[i], error));
        if (batch->points[i].y > largest) largest = batch->points[i].y;
        if (batch->points[i].x > largest) largest = batch->points[i].x;
    }
    for (uint32_t k = 0; k < n; k++) {
        cl_member *member = &step->members[members[k]];
        CL_TRY(check_order(member, i, pos, is_2d, batch->points != NULL, error));
        if (member->n_tokens == 0) member->first = pos;
        if (largest >= member->next) member->next = largest + 1;
        member->last = pos;
        member->last_token = i;
        member->n_tokens++;
    }
    step->positions[i] = pos;
    return CELLAR_OK;
}

static cellar_status resolve_token(cl_step *step, const cellar_batch *batch, uint32_t i, bool is_2d,
                                   const cl_step_questions *questions, cellar_error *error)
{
    uint32_t n;
    const cellar_seq *ids = ids_of(batch, i, &n);
    uint32_t *members = step->member_of + step->member_begin[i];
    for (uint32_t k = 0; k < n; k++) {
        if (ids[k] < 0)
            CL_FAIL(error, CELLAR_INVALID, i, "token %u: sequence %d is below 0", i, (int)ids[k]);
        members[k] = member_of_id(step, ids[k], questions);
    }
    for (uint32_t k = 1; k < n; k++)
        CL_TRY(check_coupled(i, &step->members[members[0]], &step->members[members[k]], questions,
                             error));
    step->member_begin[i + 1] = step->member_begin[i] + n;
    step->indices[i] = i;
    step->tokens[i] = batch->tokens ? batch->tokens[i] : -1;
    if (batch->checkpoints) step->checkpoints[i] = batch->checkpoints[i];
    return resolve_position(step, batch, i, is_2d, error);
}

cellar_status cl_step_resolve(cl_step *step, const cellar_batch *batch, const cl_step_rules *rules,
                              const cl_step_questions *questions, cl_alloc *alloc,
                              cellar_error *error)
{
    uint32_t n_memberships = batch->seq_begin ? batch->seq_begin[batch->n_tokens] : batch->n_tokens;
    CL_TRY(carve(step, batch, n_memberships, alloc, error));
    step->n_tokens = batch->n_tokens;
    step->n_members = 0;
    step->member_begin[0] = 0;
    for (uint32_t i = 0; i < batch->n_tokens; i++)
        CL_TRY(resolve_token(step, batch, i, rules->is_2d, questions, error));
    return cl_step_split(step, rules, alloc, error);
}
