/*
 * support_look.c: hashes of what the visitors show. See support_look.h.
 *
 * Runs are taken cell by cell, since tokens at one position can stand in two lists of runs that mean the same.
 * Hashes that forget cells name a token by its number; targets give every token of a memory another.
 */
#include "support_look.h"

#include <string.h>

#include "model/random.h"
#include "support_input.h"

enum { MOST_GROUPS = 16, MOST_CELLS = 2048 };

typedef struct looking {
    look *out;
    const cellar_memory *memory;
    bool is_whole[MOST_GROUPS]; /* full attention */
    cellar_token token[MOST_GROUPS][MOST_CELLS];
} looking;

static void mix(uint64_t *hash, int64_t a, int64_t b)
{
    *hash = random_mix(*hash, (uint64_t)a << 32 ^ ((uint64_t)b & UINT32_MAX));
}

static bool mix_cell(void *context, const cellar_cell *cell)
{
    looking *l = context;
    DEMAND(cell->group < MOST_GROUPS && cell->cell < MOST_CELLS);
    l->token[cell->group][cell->cell] = cell->token;
    mix(&l->out->everything, cell->cell, cell->refs);
    mix(&l->out->everything, cell->stored_pos, cell->token);
    mix(&l->out->everything, cell->point.y, cell->point.x);
    mix(&l->out->everything, cell->group, cell->pool);
    if (l->is_whole[cell->group]) mix(&l->out->whole, cell->cell, cell->refs);
    return true;
}

static bool mix_run(void *context, const cellar_run *run)
{
    looking *l = context;
    DEMAND(run->len > 0 && run->cell + run->len <= MOST_CELLS && run->group < MOST_GROUPS);
    DEMAND(run->step <= 1 && run->pos >= 0);
    for (uint32_t i = 0; i < run->len; i++) {
        int64_t pos = run->pos + (int64_t)(run->step ? i : 0);
        cellar_token token = l->token[run->group][run->cell + i];
        mix(&l->out->everything, run->seq, pos);
        mix(&l->out->everything, run->cell + i, run->shift);
        mix(&l->out->held, pos, token);
        mix(&l->out->held, run->group, run->shift);
        mix(&l->out->tokens, pos, token);
        mix(&l->out->tokens, run->group, run->seq);
        if (l->is_whole[run->group]) mix(&l->out->whole, pos, run->cell + i);
    }
    return true;
}

static bool mix_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    looking *l = context;
    mix(&l->out->everything, info->position, info->n_holders);
    mix(&l->out->everything, info->n_cells, info->state);
    mix(&l->out->held, info->position, info->n_holders);
    mix(&l->out->tokens, info->position, info->n_holders);
    return true;
}

static bool mix_move(void *context, const cellar_move *move)
{
    looking *l = context;
    mix(&l->out->everything, move->from, move->to);
    mix(&l->out->everything, move->n, move->turn);
    return true;
}

static void look_at_sequence(looking *l, cellar_seq seq)
{
    cellar_sequence_info *info = &l->out->sequences[seq];
    DEMAND(cellar_get_sequence(l->memory, seq, info, NULL) == CELLAR_OK);
    DEMAND(cellar_visit_runs(l->memory, seq, mix_run, l, NULL) == CELLAR_OK);
    DEMAND(cellar_visit_checkpoints(l->memory, seq, mix_checkpoint, l, NULL) == CELLAR_OK);
    DEMAND(info->pos_min == cellar_position_min(l->memory, seq));
    DEMAND(info->pos_max == cellar_position_max(l->memory, seq));
    DEMAND(info->rewind_min >= 0 && info->pos_next >= 0 && info->pos_next > info->pos_max);
    mix(&l->out->everything, info->rewind_min, info->pos_next);
    mix(&l->out->held, info->pos_min, info->pos_next);
    mix(&l->out->tokens, info->pos_min, info->pos_next);
    if (info->n_shifts > l->out->most_shifts) l->out->most_shifts = info->n_shifts;
}

look look_at(const cellar_memory *memory)
{
    static looking l;
    look out = {.everything = 1, .held = 1, .tokens = 1, .whole = 1};
    memset(&l, 0, sizeof l);
    l.out = &out;
    l.memory = memory;
    for (uint32_t g = 0; g < cellar_count_groups(memory); g++) {
        cellar_group_info info;
        DEMAND(g < MOST_GROUPS && cellar_get_group(memory, g, &info, NULL) == CELLAR_OK);
        DEMAND(info.n_used + info.n_free <= info.n_cells);
        l.is_whole[g] = info.kind == CELLAR_LAYER_ATTENTION &&
                        info.window.kind == CELLAR_WINDOW_NONE;
    }
    DEMAND(cellar_visit_cells(memory, mix_cell, &l, NULL) == CELLAR_OK);
    for (cellar_seq seq = 0; seq < LOOK_SEQUENCES; seq++)
        look_at_sequence(&l, seq);
    DEMAND(cellar_visit_moves(memory, mix_move, &l, NULL) == CELLAR_OK);
    cellar_statistics stats;
    DEMAND(cellar_stats(memory, &stats, NULL) == CELLAR_OK);
    mix(&out.everything, stats.n_free, stats.n_shared);
    mix(&out.everything, stats.n_checkpoints, stats.n_sequences);
    mix(&out.everything, stats.n_moves, 0);
    out.n_checkpoints = stats.n_checkpoints;
    if (stats.budget_bytes > 0) DEMAND(stats.sizes.total <= stats.budget_bytes);
    return out;
}
