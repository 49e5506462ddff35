/*
 * support_any_ask.c: questions and mistakes, none of which may change anything.
 *
 * Numbers of layers, micro-batches and groups come straight from the input, so most of them do not exist.
 * A question whose answer is known is compared with it; the others only have to be survived.
 */
#include <string.h>

#include "support_any_play.h"

static bool take_line(void *context, const char *line)
{
    DEMAND(strlen(line) < 1000);
    return ++*(uint32_t *)context < 1000;
}

static bool see_move(void *context, const cellar_move *move)
{
    (void)context;
    DEMAND(move->n > 0);
    return false;
}

static bool see_run(void *context, const cellar_run *run)
{
    DEMAND(run->seq >= 0 && run->len > 0);
    return ++*(uint32_t *)context < 5;
}

static bool see_cell(void *context, const cellar_cell *cell)
{
    DEMAND(cell->refs > 0);
    return ++*(uint32_t *)context < 5;
}

static bool see_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    DEMAND(info->n_holders > 0);
    return ++*(uint32_t *)context < 2;
}

static bool add_bytes(void *context, const cellar_bytes *bytes)
{
    DEMAND(bytes->what != NULL && bytes->kind < CELLAR_BYTES_KINDS);
    *(uint64_t *)context += bytes->bytes;
    return true;
}

/* The breakdown adds up to what is counted, and that to what was asked of the allocator. */
static cellar_status ask_bytes(any_player *p)
{
    uint64_t sum = 0;
    cellar_statistics stats;
    DEMAND(cellar_visit_bytes(p->any.memory, add_bytes, &sum, NULL) == CELLAR_OK);
    DEMAND(cellar_stats(p->any.memory, &stats, NULL) == CELLAR_OK);
    DEMAND(sum == stats.sizes.total && sum == p->any.bytes);
    return CELLAR_OK;
}

/* Visitors that stop, and the same of all sequences. */
static cellar_status ask_visitors(any_player *p, cellar_seq seq, uint32_t which)
{
    const cellar_memory *memory = p->any.memory;
    uint32_t n = 0;
    switch (which % 6) {
    case 0:
        return cellar_dump(memory, take_line, &n, &p->error);
    case 1:
        return cellar_visit_moves(memory, see_move, NULL, &p->error);
    case 2:
        return cellar_visit_runs(memory, which & 8 ? -1 : seq, see_run, &n, &p->error);
    case 3:
        return cellar_visit_cells(memory, see_cell, &n, &p->error);
    case 4:
        return cellar_visit_checkpoints(memory, seq, see_checkpoint, &n, &p->error);
    default:
        return ask_bytes(p);
    }
}

/* Outside a step these have nothing to say, whatever is asked. */
static cellar_status ask_for_step(any_player *p, uint32_t l, uint32_t u)
{
    cellar_memory *memory = p->any.memory;
    float number[1] = {0};
    int64_t row[1];
    int32_t bucket[1];
    uint32_t page[2];
    cellar_ubatch ubatch;
    cellar_states states;
    cellar_extent extent;
    switch (u % 12) {
    case 0:
        return cellar_get_ubatch(memory, u, &ubatch, &p->error);
    case 1:
        return cellar_commit(memory, &p->error);
    case 2:
        return cellar_attend(memory, u, l, number, number, &p->error);
    case 3:
        return cellar_store(memory, u, l, number, number, &p->error);
    case 4:
        return cellar_confirm(memory, u, l, &p->error);
    case 5:
        return cellar_get_states(memory, u, l, &states, &p->error);
    case 6:
        return cellar_export_extent(memory, u, l, 1, &extent, NULL, 0, &p->error);
    case 7:
        return cellar_export_rows(memory, u, l, row, &p->error);
    case 8:
        return cellar_export_elements(memory, u, l, row, &p->error);
    case 9:
        return cellar_export_mask(memory, u, l, 1, CELLAR_F32, number, &p->error);
    case 10:
        return cellar_export_buckets(memory, u, l, 1, bucket, &p->error);
    default:
        return cellar_export_pages(memory, u, l, 1, page, NULL, 0, page, &p->error);
    }
}

/* No memory, no place for the answer, no batch. */
static cellar_status ask_nothing(any_player *p, cellar_seq seq, cellar_pos p0, uint32_t which)
{
    cellar_memory *memory = p->any.memory, *none = NULL;
    switch (which % 18) {
    case 0:
        return cellar_create(NULL, &none, &p->error);
    case 1:
        return cellar_create(&p->any.config, NULL, &p->error);
    case 2:
        return cellar_begin(memory, NULL, &p->error);
    case 3:
        return cellar_begin(NULL, NULL, &p->error);
    case 4:
        return cellar_rewind(memory, seq, p0, NULL, &p->error);
    case 5:
        return cellar_remove(NULL, seq, p0, -1, &p->error);
    case 6:
        return cellar_copy(NULL, seq, 1, p0, -1, &p->error);
    case 7:
        return cellar_keep(NULL, seq, &p->error);
    case 8:
        return cellar_shift(NULL, seq, p0, -1, 1, &p->error);
    case 9:
        return cellar_settle(NULL, seq, &p->error);
    case 10:
        return cellar_checkpoint(NULL, seq, &p->error);
    case 11:
        return cellar_compact(NULL, which, NULL, &p->error);
    case 12:
        return cellar_stats(memory, NULL, &p->error);
    case 13:
        return cellar_get_sequence(memory, seq, NULL, &p->error);
    case 14:
        return cellar_dump(memory, NULL, NULL, &p->error);
    case 15:
        return cellar_measure(&p->any.config, NULL, &p->error);
    case 16:
        return cellar_visit_runs(memory, seq, NULL, NULL, &p->error);
    default:
        return cellar_check(NULL, &p->error);
    }
}

cellar_status any_ask(any_player *p, cellar_seq seq, cellar_pos p0)
{
    cellar_memory *memory = p->any.memory;
    cellar_group_info group;
    cellar_extent extent;
    cellar_pos from;
    uint32_t l = input_byte(&p->in), which = input_byte(&p->in);
    DEMAND(cellar_cpu(memory) != NULL && cellar_count_ubatches(memory) == 0);
    DEMAND((cellar_group_of_layer(memory, l) < 0) ==
           (l >= p->any.config.n_layers || p->any.layers[l].kind == CELLAR_LAYER_NONE));
    switch (input_below(&p->in, 8)) {
    case 0:
        return ask_visitors(p, seq, which);
    case 1:
        return cellar_can_continue(memory, seq, p0, which % 2 ? &from : NULL, &p->error);
    case 2:
        return cellar_export_largest(memory, l % ANY_LAYERS, which, &extent, &p->error);
    case 3:
        return cellar_get_group(memory, which % 8, &group, &p->error);
    case 4:
        return ask_for_step(p, l % ANY_LAYERS, which);
    case 5:
        return ask_nothing(p, seq, p0, which);
    case 6:
        return cellar_divide(memory, seq, p0, -1, which % 2 ? 0 : -1, &p->error);
    default:
        (void)cellar_state_data(memory, which, l % ANY_LAYERS, which % 5);
        cellar_abort(memory);
        return CELLAR_OK;
    }
}
