/*
 * operations.c: the operations on sequences: ask every group, then do it in every group.
 *
 * Asking may reserve room and is the only part that can fail, so groups never disagree about what a
 * sequence holds, and a refusal leaves all of them as they were. Checkpoints follow: what changes a
 * sequence from some position on makes its later checkpoints worthless.
 */
#include "error.h"
#include "memory.h"

static cellar_status check_operation(const cellar_memory *memory, cellar_seq seq, cellar_pos p0,
                                     cellar_pos p1, cl_range *range, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    return cl_memory_range(p0, p1, range, error);
}

/* ---- where a change begins ------------------------------------------------------------------- */

/*
 * The smallest position of a range at which a sequence holds something in a group, or held something
 * that was given up; INT64_MAX: there is nothing.
 */
static int64_t first_in_group(const cl_group *group, cellar_seq seq, cl_range range)
{
    uint32_t slot = cl_sequence_table_find(&group->sequences.table, seq);
    if (slot == CL_NO_SLOT || range.p0 >= range.p1) return INT64_MAX;
    const cl_sequence *sequence = &group->sequences.table.items[slot];
    int64_t first = cl_lost_next(&sequence->lost, range.p0);
    uint32_t i = cl_runs_find(&sequence->runs, range.p0);
    if (i < sequence->runs.n) {
        int64_t held = sequence->runs.items[i].pos;
        if (group->kind == CELLAR_LAYER_RECURRENT)
            held = sequence->begin; /* it has read all since */
        if (held < first) first = held;
    }
    if (first >= range.p1) return INT64_MAX;
    return first > range.p0 ? first : range.p0;
}

static int64_t first_in(const cellar_memory *memory, cellar_seq seq, cl_range range)
{
    int64_t first = INT64_MAX;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        int64_t its = first_in_group(&memory->groups[g], seq, range);
        if (its < first) first = its;
    }
    return first;
}

/* ---- remove, rewind -------------------------------------------------------------------------- */

/* A cut: [range) of a sequence goes. Groups that then could not go on at its beginning return to a
 * checkpoint, if there is one for that place. */
typedef struct cut {
    cellar_seq seq;
    cl_range range;
    uint32_t checkpoint; /* CL_NO_CHECKPOINT: none */
} cut;

static bool returns(const cellar_memory *memory, uint32_t g, const cut *c)
{
    if (c->checkpoint == CL_NO_CHECKPOINT) return false;
    cellar_pos n = (cellar_pos)c->range.p0;
    return cl_group_continue_at(&memory->groups[g], c->seq, n) != n;
}

static cellar_status prepare_cut(cellar_memory *memory, const cut *c, cellar_error *error)
{
    for (uint32_t g = 0; g < memory->n_groups; g++)
        if (!returns(memory, g, c))
            CL_TRY(cl_group_prepare_remove(&memory->groups[g], c->seq, c->range, error));
    if (c->checkpoint == CL_NO_CHECKPOINT) return CELLAR_OK;
    return cl_checkpoints_prepare_return(&memory->checkpoints, c->seq, c->checkpoint, error);
}

static void do_cut(cellar_memory *memory, const cut *c)
{
    int64_t first = first_in(memory, c->seq, c->range);
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        if (returns(memory, g, c))
            cl_checkpoints_return(&memory->checkpoints, g, c->seq, c->checkpoint);
        else
            cl_group_remove(&memory->groups[g], c->seq, c->range);
    }
    cl_checkpoints_forget(&memory->checkpoints, c->seq, first);
}

/* The end of a sequence goes, from n on. */
static cut cut_end_off(const cellar_memory *memory, cellar_seq seq, cellar_pos n)
{
    cut c = {seq, {n, INT64_MAX}, CL_NO_CHECKPOINT};
    cellar_pos at;
    uint32_t checkpoint = cl_checkpoints_find(&memory->checkpoints, seq, n, &at);
    if (checkpoint != CL_NO_CHECKPOINT && at == n) c.checkpoint = checkpoint;
    return c;
}

cellar_status cellar_remove(cellar_memory *memory, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                            cellar_error *error)
{
    cl_range range;
    CL_TRY(check_operation(memory, seq, p0, p1, &range, error));
    if (range.p0 >= range.p1) return CELLAR_OK;
    cellar_pos next, last;
    cl_memory_position(memory, seq, &next, &last);
    if (next < 0 || range.p0 >= next) return CELLAR_OK;
    cut c = {seq, range, CL_NO_CHECKPOINT};
    if (range.p1 >= next && range.p0 > 0) c = cut_end_off(memory, seq, (cellar_pos)range.p0);
    CL_TRY(prepare_cut(memory, &c, error));
    do_cut(memory, &c);
    return CELLAR_OK;
}

/* The largest position up to n to which the sequence can be cut back, checkpoints included. */
static cellar_pos rewind_to(const cellar_memory *memory, cellar_seq seq, cellar_pos n)
{
    cellar_pos at, by_itself = cl_memory_continue_at(memory, seq, n);
    uint32_t checkpoint = cl_checkpoints_find(&memory->checkpoints, seq, n, &at);
    return checkpoint != CL_NO_CHECKPOINT && at > by_itself ? at : by_itself;
}

cellar_pos cl_memory_rewind_to(const cellar_memory *memory, cellar_seq seq, cellar_pos n)
{
    return rewind_to(memory, seq, n);
}

cellar_status cellar_rewind(cellar_memory *memory, cellar_seq seq, cellar_pos n,
                            cellar_pos *replay_from, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    if (n < 0) CL_FAIL(error, CELLAR_INVALID, n, "position %d is below 0", (int)n);
    if (!replay_from) CL_FAIL(error, CELLAR_INVALID, -1, "replay_from is NULL");
    cellar_pos to = rewind_to(memory, seq, n);
    cut c = cut_end_off(memory, seq, to);
    CL_TRY(prepare_cut(memory, &c, error));
    do_cut(memory, &c);
    *replay_from = to;
    return CELLAR_OK;
}

/* ---- copy, keep, clear ----------------------------------------------------------------------- */

/* First where a store can fail: once the others are written, nothing does. */
static cellar_status copy_rows(cellar_memory *memory, cellar_seq from, cl_range range,
                               cellar_error *error)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t g = 0; g < memory->n_groups; g++)
            if (cl_group_can_fail_to_copy(&memory->groups[g]) == (pass == 0))
                CL_TRY(cl_group_copy_rows(&memory->groups[g], from, range, error));
    return CELLAR_OK;
}

cellar_status cellar_copy(cellar_memory *memory, cellar_seq from, cellar_seq to, cellar_pos p0,
                          cellar_pos p1, cellar_error *error)
{
    cl_range range;
    CL_TRY(check_operation(memory, from, p0, p1, &range, error));
    CL_TRY(cl_memory_check_seq(to, error));
    if (from == to || range.p0 >= range.p1) return CELLAR_OK;
    bool is_far = cl_memory_pool_of(memory, from) != cl_memory_pool_of(memory, to);
    if (is_far) CL_TRY(cl_memory_check_moves(memory, error));
    /* Checkpoints go along with a beginning: what has the same past can be returned to alike. Not to
     * another pool, where their cells would be worth nothing. */
    cl_range before = {0, range.p0};
    bool is_shared = !is_far && first_in(memory, from, before) == INT64_MAX &&
                     first_in(memory, to, before) == INT64_MAX;
    if (is_shared) range.p0 = 0;
    uint32_t g = 0;
    cellar_status status = CELLAR_OK;
    memory->moves.n_promised = 0;
    for (; g < memory->n_groups; g++) {
        status = cl_group_prepare_copy(&memory->groups[g], from, to, range, error);
        if (status != CELLAR_OK) break;
    }
    if (status == CELLAR_OK && is_shared)
        status = cl_checkpoints_prepare_copy(&memory->checkpoints, from, to, range, error);
    if (status == CELLAR_OK && is_far) status = copy_rows(memory, from, range, error);
    if (status != CELLAR_OK) {
        while (g-- > 0)
            cl_group_cancel_copy(&memory->groups[g], to);
        if (is_far) cl_checkpoints_drop_suspended(&memory->checkpoints);
        return status;
    }
    for (g = 0; g < memory->n_groups; g++)
        cl_group_copy(&memory->groups[g], from, to, range);
    if (is_far) cl_checkpoints_drop_suspended(&memory->checkpoints); /* those that made room */
    if (is_shared) cl_checkpoints_copy(&memory->checkpoints, from, to, range);
    int64_t unchanged = is_shared ? range.p1 : range.p0;
    if (unchanged < INT64_MAX) cl_checkpoints_forget(&memory->checkpoints, to, unchanged);
    return CELLAR_OK;
}

cellar_status cellar_keep(cellar_memory *memory, cellar_seq seq, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_sequences_keep(&memory->groups[g].sequences, seq);
    cl_checkpoints_keep(&memory->checkpoints, seq);
    return CELLAR_OK;
}

cellar_status cellar_clear(cellar_memory *memory, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    cl_checkpoints_clear(&memory->checkpoints);
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_sequences_clear(&memory->groups[g].sequences);
    memory->moves.n = 0;
    return CELLAR_OK;
}

/* ---- shift, divide --------------------------------------------------------------------------- */

cellar_status cellar_shift(cellar_memory *memory, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                           cellar_pos delta, cellar_error *error)
{
    cl_range range;
    CL_TRY(check_operation(memory, seq, p0, p1, &range, error));
    if (range.p0 >= range.p1 || delta == 0) return CELLAR_OK;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        CL_TRY(cl_group_prepare_shift(&memory->groups[g], seq, range, delta, error));
    /* Nothing changes before the first token that moves, nor before where that comes to stand. */
    int64_t first = first_in(memory, seq, range);
    if (first < INT64_MAX && delta < 0) first = first + delta > 0 ? first + delta : 0;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_group_shift(&memory->groups[g], seq, range, delta);
    cl_checkpoints_forget(&memory->checkpoints, seq, first);
    return CELLAR_OK;
}

cellar_status cellar_divide(cellar_memory *memory, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                            cellar_pos divisor, cellar_error *error)
{
    cl_range range;
    CL_TRY(check_operation(memory, seq, p0, p1, &range, error));
    if (divisor < 1) CL_FAIL(error, CELLAR_INVALID, divisor, "divisor %d is below 1", (int)divisor);
    if (range.p0 >= range.p1 || divisor == 1) return CELLAR_OK;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        CL_TRY(cl_group_prepare_divide(&memory->groups[g], seq, range, divisor, error));
    int64_t first = first_in(memory, seq, range);
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_group_divide(&memory->groups[g], seq, range, divisor);
    if (first < INT64_MAX) cl_checkpoints_forget(&memory->checkpoints, seq, first / divisor);
    return CELLAR_OK;
}

cellar_status cellar_shift_context(cellar_memory *memory, cellar_seq seq, cellar_pos keep,
                                   cellar_pos discard, cellar_pos *n_discarded, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    int64_t begin = cellar_position_min(memory, seq);
    int64_t n = begin < 0 ? 0 : cellar_position_max(memory, seq) + 1 - begin;
    if (n == 0)
        CL_FAIL(error, CELLAR_INVALID, keep, "sequence %d is empty, nothing can be discarded",
                (int)seq);
    if (keep < 0 || keep >= n)
        CL_FAIL(error, CELLAR_INVALID, keep,
                "keep %d is not in 0..%lld, sequence %d has %lld positions", (int)keep,
                (long long)n - 1, (int)seq, (long long)n);
    int64_t used = discard == 0 ? (n - keep) / 2 : discard;
    if (used <= 0 || used > n - keep)
        CL_FAIL(error, CELLAR_INVALID, discard,
                "discard %d: %lld positions follow the %d kept ones of sequence %d", (int)discard,
                (long long)(n - keep), (int)keep, (int)seq);
    cl_range removed = {begin + keep, begin + keep + used}, rest = {removed.p1, INT64_MAX};
    /* Removing needs room for two cuts, and the move behind it for none: the gap is just as wide as the
     * move is long, so it lands on nothing and stays between its neighbours. */
    for (uint32_t g = 0; g < memory->n_groups; g++)
        CL_TRY(cl_group_prepare_remove(&memory->groups[g], seq, removed, error));
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        cl_group_remove(&memory->groups[g], seq, removed);
        cl_group_shift(&memory->groups[g], seq, rest, -used);
    }
    cl_checkpoints_forget(&memory->checkpoints, seq, removed.p0);
    if (n_discarded) *n_discarded = (cellar_pos)used;
    return CELLAR_OK;
}

/* ---- checkpoints ------------------------------------------------------------------------------ */

cellar_status cellar_checkpoint(cellar_memory *memory, cellar_seq seq, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    cellar_pos next, last;
    cl_memory_position(memory, seq, &next, &last);
    if (next <= 0 || memory->checkpoints.n == 0) return CELLAR_OK;
    /* Where the next token may stand: an image reaches further on than its last position. */
    CL_TRY(cellar_can_continue(memory, seq, last + 1, NULL, error));
    return cl_checkpoints_make(&memory->checkpoints, seq, last + 1, error);
}

cellar_status cellar_drop_checkpoints(cellar_memory *memory, cellar_seq seq, cellar_pos p0,
                                      cellar_pos p1, cellar_error *error)
{
    cl_range range;
    CL_TRY(check_operation(memory, seq, p0, p1, &range, error));
    if (range.p0 >= range.p1) return CELLAR_OK;
    cl_checkpoints_drop(&memory->checkpoints, seq, range);
    return CELLAR_OK;
}
