/*
 * memory_operations.c: the table of what changes sequences, and of steps.
 *
 * Operations work on the last sequence, forks are of the first: where there is only one, they are the same.
 * Each is called as a program would call it; comments say how it is undone. Failures are the library's.
 */
#include "bench/memory_world.h"

enum { PART = 32 };

static cellar_seq last_of(const memory_world *w)
{
    return (cellar_seq)w->column.n_sequences - 1;
}

static cellar_pos half_of(const memory_world *w)
{
    return (cellar_pos)(w->n_each / 2);
}

static cellar_pos at_most_batch(const memory_world *w)
{
    return (cellar_pos)(w->n_each < MEMORY_BENCH_BATCH ? w->n_each : MEMORY_BENCH_BATCH);
}

/* ---- removing, forking, keeping ------------------------------------------------------------- */

static cellar_status remove_last(memory_world *w, uint32_t i)
{
    const cellar_pos last = (cellar_pos)(w->n_each - 1 - i);
    return cellar_remove(w->memory, last_of(w), last, -1, w->error);
}

static cellar_status remove_inside(memory_world *w, uint32_t i)
{
    const cellar_pos at = (cellar_pos)(8 + 2 * i);
    return cellar_remove(w->memory, last_of(w), at, at + 1, w->error);
}

static cellar_status remove_nothing(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_remove(w->memory, last_of(w), (cellar_pos)w->n_each, -1, w->error);
}

static cellar_status remove_whole(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_remove(w->memory, last_of(w), 0, -1, w->error);
}

static cellar_status fork_first(memory_world *w, uint32_t i)
{
    return cellar_copy(w->memory, 0, MEMORY_WORLD_FORK + (cellar_seq)i, 0, -1, w->error);
}

static cellar_status copy_part(memory_world *w, uint32_t i)
{
    return cellar_copy(w->memory, 0, MEMORY_WORLD_FORK + (cellar_seq)i, 16, 16 + PART, w->error);
}

static cellar_status forget_fork(memory_world *w, uint32_t i)
{
    return cellar_remove(w->memory, MEMORY_WORLD_FORK + (cellar_seq)i, 0, -1, w->error);
}

enum { N_FORKS = 8 };

static cellar_status make_forks(memory_world *w)
{
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < N_FORKS && status == CELLAR_OK; i++) {
        status = fork_first(w, i);
    }
    return status;
}

static cellar_status forget_forks(memory_world *w)
{
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < N_FORKS && status == CELLAR_OK; i++) {
        status = forget_fork(w, i);
    }
    return status;
}

static cellar_status keep_first(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_keep(w->memory, 0, w->error);
}

static cellar_status clear_all(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_clear(w->memory, w->error);
}

static cellar_status rewind_half(memory_world *w, uint32_t i)
{
    cellar_pos from;
    (void)i;
    return cellar_rewind(w->memory, last_of(w), half_of(w), &from, w->error);
}

/* ---- shifting ------------------------------------------------------------------------------- */

/* Every other call is the way back. */
static cellar_pos delta_of(uint32_t i)
{
    return i % 2 == 0 ? 5 : -5;
}

static cellar_status shift_whole(memory_world *w, uint32_t i)
{
    return cellar_shift(w->memory, last_of(w), 0, -1, delta_of(i), w->error);
}

static cellar_status shift_half(memory_world *w, uint32_t i)
{
    const cellar_pos from = half_of(w) + (i % 2 == 0 ? 0 : 5);
    return cellar_shift(w->memory, last_of(w), from, -1, delta_of(i), w->error);
}

static cellar_status shift_all(memory_world *w, uint32_t i)
{
    cellar_status status = CELLAR_OK;
    for (uint32_t s = 0; s < w->column.n_sequences && status == CELLAR_OK; s++) {
        status = cellar_shift(w->memory, w->each[s], 0, -1, delta_of(i), w->error);
    }
    return status;
}

static cellar_status shift_context(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_shift_context(w->memory, last_of(w), 16, 0, NULL, w->error);
}

static cellar_status divide_part(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_divide(w->memory, last_of(w), 0, at_most_batch(w), 2, w->error);
}

static cellar_status divide_before(memory_world *w)
{
    return divide_part(w, 0);
}

static cellar_status shift_before(memory_world *w)
{
    return shift_half(w, 0);
}

static cellar_status settle(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_settle(w->memory, last_of(w), w->error);
}

/* Rows of the free cells' neighbours move into them. */
static cellar_status compact(memory_world *w, uint32_t i)
{
    uint32_t n;
    (void)i;
    return cellar_compact(w->memory, MEMORY_BENCH_BATCH, &n, w->error);
}

static const memory_operation sequence_operations[] = {
    {"remove the last token", "cellar_remove", OPERATION_SPENDS, 16, remove_last, NULL, NULL},
    {"remove a token inside", "cellar_remove", OPERATION_SPENDS, 16, remove_inside, NULL, NULL},
    {"remove what is not there", "cellar_remove", 0, 256, remove_nothing, NULL, NULL},
    {"remove a whole sequence", "cellar_remove", OPERATION_SPENDS, 1, remove_whole, NULL, NULL},
    {"fork a sequence", "cellar_copy", 0, N_FORKS, fork_first, NULL, forget_forks},
    {"forget a fork", "cellar_remove", 0, N_FORKS, forget_fork, make_forks, NULL},
    {"copy 32 tokens inside", "cellar_copy", 0, N_FORKS, copy_part, NULL, forget_forks},
    {"keep one sequence", "cellar_keep", OPERATION_SPENDS, 1, keep_first, NULL, NULL},
    {"shift a whole sequence", "cellar_shift", 0, 32, shift_whole, NULL, NULL},
    {"shift its second half", "cellar_shift", 0, 32, shift_half, NULL, NULL},
    {"shift all sequences", "cellar_shift", 0, 4, shift_all, NULL, NULL},
    {"shift context, half goes", "cellar_shift_context", OPERATION_SPENDS, 1, shift_context, NULL,
     NULL},
    {"divide up to 512 positions", "cellar_divide", OPERATION_SPENDS, 1, divide_part, NULL, NULL},
    {"settle these", "cellar_settle", OPERATION_SPENDS, 1, settle, divide_before, NULL},
    {"settle a shifted half", "cellar_settle", OPERATION_SPENDS, 1, settle, shift_before, NULL},
    {"rewind to the middle", "cellar_rewind", OPERATION_SPENDS, 1, rewind_half, NULL, NULL},
    {"forget everything", "cellar_clear", OPERATION_SPENDS, 1, clear_all, NULL, NULL},
};

const memory_section memory_section_sequences = {
    "sequences", sequence_operations, sizeof sequence_operations / sizeof *sequence_operations};

/* ---- steps ---------------------------------------------------------------------------------- */

static cellar_status begin_and_abort_one(memory_world *w, uint32_t i)
{
    const cellar_seq seq = last_of(w);
    (void)i;
    const cellar_status status = memory_bench_begin(w->memory, &seq, 1, w->error);
    cellar_abort(w->memory);
    return status;
}

static cellar_status begin(memory_world *w, uint32_t i)
{
    (void)i;
    return memory_world_begin(w);
}

static cellar_status abort_step(memory_world *w, uint32_t i)
{
    (void)i;
    cellar_abort(w->memory);
    return CELLAR_OK;
}

static cellar_status abort_after(memory_world *w)
{
    return abort_step(w, 0);
}

static cellar_status store(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_store(w->memory, 0, 0, w->rows, w->rows, w->error);
}

static cellar_status begin_and_store(memory_world *w)
{
    const cellar_status status = memory_world_begin(w);
    return status == CELLAR_OK ? store(w, 0) : status;
}

static cellar_status commit(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_commit(w->memory, w->error);
}

/* Of sequences that hold nothing yet. */
static cellar_status begin_new(memory_world *w, uint32_t i)
{
    cellar_seq seqs[MEMORY_BENCH_BATCH];
    (void)i;
    for (uint32_t t = 0; t < MEMORY_BENCH_BATCH; t++) {
        seqs[t] = MEMORY_WORLD_FORK + w->batch[t];
    }
    return memory_bench_begin(w->memory, seqs, MEMORY_BENCH_BATCH, w->error);
}

/* Every sequence loses what it has read beyond its length. */
static cellar_status cut_all(memory_world *w)
{
    cellar_status status = CELLAR_OK;
    for (uint32_t s = 0; s < w->column.n_sequences && status == CELLAR_OK; s++) {
        status = cellar_remove(w->memory, w->each[s], (cellar_pos)w->n_each, -1, w->error);
    }
    return status;
}

static cellar_status read_one_each(memory_world *w, uint32_t i)
{
    (void)i;
    return memory_bench_read(w->memory, w->each, w->column.n_sequences, w->rows, w->error);
}

static cellar_status get_ubatch(memory_world *w, uint32_t i)
{
    cellar_ubatch ubatch;
    (void)i;
    return cellar_get_ubatch(w->memory, cellar_count_ubatches(w->memory) - 1, &ubatch, w->error);
}

static const memory_operation step_operations[] = {
    {"begin and abort 1 token", "cellar_begin", 0, 64, begin_and_abort_one, NULL, NULL},
    {"begin 512 at the end", "cellar_begin", 0, 1, begin, NULL, abort_after},
    {"abort 512", "cellar_abort", 0, 1, abort_step, memory_world_begin, NULL},
    {"store rows of 512", "cellar_store", 0, 1, store, memory_world_begin, abort_after},
    {"commit 512", "cellar_commit", 0, 1, commit, begin_and_store, cut_all},
    {"a step, 1 token each", "cellar_begin .. commit", 0, 1, read_one_each, NULL, cut_all},
    {"describe a micro-batch", "cellar_get_ubatch", OPERATION_IN_STEP, 64, get_ubatch, NULL, NULL},
    {"begin 512, 1 cell of 8 free", "cellar_begin", OPERATION_HOLES, 1, begin, NULL, abort_after},
    {"begin 512, new sequences", "cellar_begin", OPERATION_HOLES, 1, begin_new, NULL, abort_after},
    {"compact 512 cells there", "cellar_compact", OPERATION_HOLES, 1, compact, NULL, NULL},
};

const memory_section memory_section_steps = {"steps", step_operations,
                                             sizeof step_operations / sizeof *step_operations};
