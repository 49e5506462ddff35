/*
 * questions.c: what a sequence is, whether it can go on from somewhere, and its rows as they stand.
 *
 * Nothing here changes a memory. Positions come from the ends of run lists, so most answers cost a
 * binary search at most.
 */
#include <math.h>
#include <string.h>

#include "error.h"
#include "memory.h"

uint32_t cl_memory_pool_of(const cellar_memory *memory, cellar_seq seq)
{
    cl_pool_rule rule = {memory->config.n_pools, memory->config.pool_of,
                         memory->config.pool_context};
    return cl_pool_rule_apply(&rule, seq);
}

void cl_memory_position(const cellar_memory *memory, cellar_seq seq, cellar_pos *next,
                        cellar_pos *last)
{
    *next = *last = -1;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        const cl_runs *runs = cl_group_runs(group, seq);
        cellar_pos its = cl_group_next(group, seq);
        int64_t its_last = cl_lost_end(cl_sequence_table_lost(&group->sequences.table, seq)) - 1;
        if (runs->n > 0 && cl_run_last(&runs->items[runs->n - 1]) > its_last)
            its_last = cl_run_last(&runs->items[runs->n - 1]);
        if (its > 0 && its > *next) *next = its;
        if (its_last > *last) *last = (cellar_pos)its_last;
    }
}

/*
 * A sequence's extent is the widest of its groups': none may be written over. A group that keeps
 * everything knows best where a sequence begins.
 */
cellar_pos cellar_position_min(const cellar_memory *memory, cellar_seq seq)
{
    cellar_pos min = -1;
    if (!memory || seq < 0) return min;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_runs *runs = cl_memory_runs(memory, g, seq);
        if (runs->n > 0 && (min < 0 || runs->items[0].pos < min)) min = runs->items[0].pos;
    }
    return min;
}

cellar_pos cellar_position_max(const cellar_memory *memory, cellar_seq seq)
{
    cellar_pos max = -1;
    if (!memory || seq < 0) return max;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_runs *runs = cl_memory_runs(memory, g, seq);
        if (runs->n == 0) continue;
        cellar_pos last = cl_run_last(&runs->items[runs->n - 1]);
        if (last > max) max = last;
    }
    return max;
}

/* The largest position of a list in [first, last]; -1: there is none. */
static int64_t find_last(const cl_runs *runs, int64_t first, int64_t last)
{
    uint32_t i = cl_runs_find(runs, last);
    if (i < runs->n && runs->items[i].pos <= last) return last;
    if (i == 0 || cl_run_last(&runs->items[i - 1]) < first) return -1;
    return cl_run_last(&runs->items[i - 1]);
}

/*
 * The largest place behind `first`, at or right behind a position in [first, last] that any group holds, at
 * which a query misses something; -1: there is none.
 */
static int64_t last_miss(const cellar_memory *memory, const cl_group *group, cellar_seq seq,
                         int64_t first, int64_t last)
{
    const cl_runs *lost = cl_sequence_table_lost(&group->sequences.table, seq);
    int64_t place = -1;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        int64_t pos = find_last(cl_memory_runs(memory, g, seq), first, last);
        /* Of two places side by side one at most sees nothing behind it: no need to go on below. */
        for (int64_t at = pos + 1; pos >= 0 && at >= pos && at > first && at > place; at--)
            if (cl_window_misses(&group->window, lost, at)) place = at;
    }
    return place;
}

/* The smallest position from which on no place that a sequence holds misses anything in a group. */
static int64_t window_rewind_min(const cellar_memory *memory, const cl_group *group, cellar_seq seq)
{
    const cl_runs *lost = cl_sequence_table_lost(&group->sequences.table, seq);
    bool has_lost_sink = lost->n > 0 && lost->items[0].pos < (int64_t)group->window.n_sinks;
    if (has_lost_sink && last_miss(memory, group, seq, lost->items[0].pos, INT32_MAX - 1) >= 0)
        return INT32_MAX;
    for (uint32_t r = lost->n; r-- > 0;) {
        int64_t horizon = cl_window_horizon(&group->window, cl_run_last(&lost->items[r]));
        if (horizon > INT32_MAX - 1) horizon = INT32_MAX - 1;
        int64_t place = last_miss(memory, group, seq, lost->items[r].pos, horizon);
        if (place < 0) continue;
        /* Of a stretch that is longer than a chunk, the last one that is asked about counts. */
        int64_t end = cl_window_horizon(&group->window, place - 1);
        return (end < horizon ? end : horizon) + 1;
    }
    return 0;
}

static cellar_pos rewind_min(const cellar_memory *memory, cellar_seq seq)
{
    int64_t min = 0;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        int64_t its = cl_group_rewind_min(&memory->groups[g], seq);
        if (its == 0) its = window_rewind_min(memory, &memory->groups[g], seq);
        if (its > min) min = its;
    }
    return (cellar_pos)min;
}

/* Is a shift among those of the first n runs of a list? */
static bool has_shift(const cl_runs *runs, uint32_t n, int32_t shift)
{
    while (n-- > 0)
        if (runs->items[n].shift == shift) return true;
    return false;
}

/* Different shifts among the runs of a sequence in all groups that are not 0. */
static uint32_t count_shifts(const cellar_memory *memory, cellar_seq seq)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_runs *runs = cl_memory_runs(memory, g, seq);
        for (uint32_t i = 0; i < runs->n; i++) {
            int32_t shift = runs->items[i].shift;
            bool is_known = shift == 0 || has_shift(runs, i, shift);
            for (uint32_t k = 0; k < g && !is_known; k++) {
                const cl_runs *others = cl_memory_runs(memory, k, seq);
                is_known = has_shift(others, others->n, shift);
            }
            n += !is_known;
        }
    }
    return n;
}

cellar_status cellar_get_sequence(const cellar_memory *memory, cellar_seq seq,
                                  cellar_sequence_info *out, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    *out = (cellar_sequence_info){0};
    cellar_pos next, last;
    cl_memory_position(memory, seq, &next, &last);
    out->pos_min = cellar_position_min(memory, seq);
    out->pos_max = cellar_position_max(memory, seq);
    out->pos_next = next < 0 ? 0 : next;
    out->rewind_min = rewind_min(memory, seq);
    out->n_shifts = count_shifts(memory, seq);
    out->pool = cl_memory_pool_of(memory, seq);
    const cl_runs *list = cl_sequence_table_runs(&memory->checkpoints.sequences.table, seq);
    for (uint32_t i = 0; i < list->n; i++)
        out->n_checkpoints += list->items[i].len;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_runs *runs = cl_memory_runs(memory, g, seq);
        const cl_cells *cells = &memory->groups[g].sequences.cells;
        out->n_runs += runs->n;
        for (uint32_t i = 0; i < runs->n; i++) {
            out->n_cells += runs->items[i].len;
            for (uint32_t k = 0; k < runs->items[i].len; k++)
                out->n_shared += cells->refs[runs->items[i].cell + k] >= 2;
        }
    }
    return CELLAR_OK;
}

/* The largest position up to n at which every group can go on. */
static cellar_pos agree_on(const cellar_memory *memory, cellar_seq seq, cellar_pos n)
{
    /* A group may have to go back further because another one has: until all agree. */
    bool agreed = false;
    while (!agreed && n > 0) {
        agreed = true;
        for (uint32_t g = 0; g < memory->n_groups; g++) {
            cellar_pos its = cl_group_continue_at(&memory->groups[g], seq, n);
            if (its >= n) continue;
            n = its;
            agreed = false;
        }
    }
    return n;
}

/*
 * The largest position up to n whose predecessor some group holds, or that was the last to be given up by
 * all; 0: there is none.
 */
static cellar_pos known_place(const cellar_memory *memory, cellar_seq seq, cellar_pos n)
{
    int64_t place = 0, given_up = 0;
    bool is_same = true;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        cellar_pos its = cl_group_held_place(group, seq, n);
        int64_t its_end = cl_lost_end(cl_sequence_table_lost(&group->sequences.table, seq));
        if (its > place) place = its;
        if (g > 0) is_same = is_same && its_end == given_up;
        given_up = its_end;
    }
    return (cellar_pos)(is_same && given_up <= n && given_up > place ? given_up : place);
}

cellar_pos cl_memory_continue_at(const cellar_memory *memory, cellar_seq seq, cellar_pos n)
{
    cellar_pos at = n, place;
    do {
        place = agree_on(memory, seq, at);
        at = known_place(memory, seq, place);
    } while (at != place);
    return at;
}

/* Which group keeps a sequence from going on at n, and why. */
static cellar_reason reason_at(const cellar_memory *memory, cellar_seq seq, cellar_pos n)
{
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        if (cl_group_continue_at(group, seq, n) == n) continue;
        if (group->kind == CELLAR_LAYER_RECURRENT) return CELLAR_REASON_NO_STATE;
        if (cl_group_has_window(group)) return CELLAR_REASON_WINDOW_PASSED;
        break;
    }
    return CELLAR_REASON_POSITION_GONE;
}

cellar_status cl_memory_check_past(const cellar_memory *memory, cellar_seq seq, cellar_pos n,
                                   cellar_pos *replay_from, cellar_error *error)
{
    if (cl_memory_continue_at(memory, seq, n) == n) return CELLAR_OK;
    cellar_pos from = cl_memory_rewind_to(memory, seq, n);
    if (replay_from) *replay_from = from;
    cellar_reason reason = reason_at(memory, seq, n);
    CL_FAIL_BECAUSE(error, CELLAR_REPLAY, reason, from,
                    "sequence %d cannot continue at %d, %s: rewind, and read again from %d",
                    (int)seq, (int)n, cellar_reason_text(reason), (int)from);
}

/* Does a token at `first` find in a group all that it sees of what is up to `last`? */
static bool has_past(const cl_group *group, cellar_seq seq, cellar_pos last, cellar_pos first)
{
    if (group->kind == CELLAR_LAYER_RECURRENT) /* whatever its position, it follows the last one */
        return cl_group_continue_at(group, seq, last + 1) == last + 1;
    const cl_runs *lost = cl_sequence_table_lost(&group->sequences.table, seq);
    return !cl_window_misses(&group->window, lost, first) && !cl_lost_any(lost, first, first + 1LL);
}

cellar_status cl_memory_check_next(const cellar_memory *memory, cellar_seq seq, cellar_pos first,
                                   cellar_error *error)
{
    cellar_pos next, last;
    cl_memory_position(memory, seq, &next, &last);
    for (uint32_t g = 0; last >= 0 && g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        if (has_past(group, seq, last, first)) continue;
        cellar_pos from = cl_memory_rewind_to(memory, seq, first > last ? last + 1 : first);
        cellar_reason reason = group->kind == CELLAR_LAYER_RECURRENT ? CELLAR_REASON_NO_STATE
                                                                     : CELLAR_REASON_WINDOW_PASSED;
        CL_FAIL_BECAUSE(error, CELLAR_REPLAY, reason, from,
                        "sequence %d cannot continue at %d, %s: rewind, and read again from %d",
                        (int)seq, (int)first, cellar_reason_text(reason), (int)from);
    }
    return CELLAR_OK;
}

cellar_status cellar_can_continue(const cellar_memory *memory, cellar_seq seq, cellar_pos n,
                                  cellar_pos *replay_from, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    if (n < 0) CL_FAIL(error, CELLAR_INVALID, n, "position %d is below 0", (int)n);
    return cl_memory_check_past(memory, seq, n, replay_from, error);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Turn one head by `distance` positions, in double: a question, not a hot path. */
static void turn_exactly(const cl_rope *rope, float *head, int64_t distance)
{
    head += rope->first;
    uint32_t still = rope->kind == CELLAR_ROPE_MROPE ? rope->n_pairs - rope->sections[3]
                                                     : rope->n_pairs;
    for (uint32_t i = 0; i < still; i++) {
        bool is_normal = rope->kind == CELLAR_ROPE_NORMAL;
        float *x = head + (is_normal ? 2 * i : i), *y = x + (is_normal ? 1 : rope->n_pairs);
        double angle = (double)distance * rope->frequencies[i], c = cos(angle), s = sin(angle);
        double a = *x, b = *y;
        *x = (float)(a * c - b * s);
        *y = (float)(a * s + b * c);
    }
}

/* Undo the Hadamard turn of a row; it is its own inverse. */
static void unturn(const cl_kernels *kernels, float *row, uint32_t size, uint32_t stretch)
{
    for (uint32_t i = 0; stretch > 0 && i < size; i += stretch)
        kernels->hadamard(row + i, stretch);
}

/* What reading rows of one layer takes. */
typedef struct row_reader {
    const cellar_memory *memory;
    const cl_layer *layer;
    unsigned char *raw; /* a row from a store without addresses; NULL: not needed */
    float *whole;       /* a K row of which only the first part is wanted; NULL: not needed */
} row_reader;

static bool read_row(const row_reader *reader, const cl_rows *rows, uint32_t head, uint32_t cell,
                     float *to)
{
    const cl_storage *storage = &reader->memory->groups[reader->layer->group].storage;
    const float *row = cl_storage_read(storage, rows, &reader->memory->kernels, head, cell, 1, to,
                                       reader->raw);
    if (!row) return false;
    if (row != to) memcpy(to, row, rows->size * sizeof(float));
    return true;
}

static bool read_k(const row_reader *reader, uint32_t head, uint32_t cell, int32_t shift, float *to)
{
    const cl_layer *layer = reader->layer;
    if (!read_row(reader, layer->k, head, cell, to)) return false;
    unturn(&reader->memory->kernels, to, layer->k_size, layer->hadamard_k);
    if (shift != 0) turn_exactly(&reader->memory->ropes[layer->rope], to, shift);
    return true;
}

static bool read_v(const row_reader *reader, uint32_t head, uint32_t cell, float *to)
{
    const cl_layer *layer = reader->layer;
    if (layer->v_in_k) {
        if (!read_row(reader, layer->k, head, cell, reader->whole)) return false;
        memcpy(to, reader->whole, layer->v_size * sizeof(float));
        return true;
    }
    if (!read_row(reader, layer->v, head, cell, to)) return false;
    unturn(&reader->memory->kernels, to, layer->v_size, layer->hadamard_v);
    return true;
}

static bool read_cell(const row_reader *reader, uint32_t cell, int32_t shift, float *k, float *v)
{
    const cl_layer *layer = reader->layer;
    for (uint32_t h = 0; h < layer->n_kv_heads; h++) {
        if (k && !read_k(reader, h, cell, shift, k + (size_t)h * layer->k_size)) return false;
        if (v && !read_v(reader, h, cell, v + (size_t)h * layer->v_size)) return false;
    }
    return true;
}

static cellar_status read_positions(const row_reader *reader, cellar_seq seq, cellar_pos p0,
                                    uint32_t n, float *k, float *v, cellar_error *error)
{
    const cl_layer *its = reader->layer;
    const cl_runs *runs = cl_group_runs(&reader->memory->groups[its->group], seq);
    uint32_t r = cl_runs_find(runs, p0);
    for (uint32_t i = 0; i < n; i++) {
        int64_t pos = (int64_t)p0 + i;
        while (r < runs->n && cl_run_last(&runs->items[r]) < pos)
            r++;
        const cl_run *run = r < runs->n ? &runs->items[r] : NULL;
        if (!run || run->pos > pos)
            CL_FAIL(error, CELLAR_NOT_FOUND, pos, "sequence %d does not hold position %lld",
                    (int)seq, (long long)pos);
        uint32_t cell = run->cell + (run->step ? (uint32_t)(pos - run->pos) : 0);
        if (!read_cell(reader, cell, run->shift, k, v))
            CL_FAIL(error, CELLAR_IO, pos, "the store of the layer could not be read");
        if (k) k += (size_t)its->n_kv_heads * its->k_size;
        if (v) v += (size_t)its->n_kv_heads * its->v_size;
    }
    return CELLAR_OK;
}

static cellar_status check_reading(const cellar_memory *memory, cellar_seq seq, uint32_t layer,
                                   cellar_pos p0, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    if (layer >= memory->n_layers)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: the memory has %u", layer,
                memory->n_layers);
    if (memory->layers[layer].kind != CELLAR_LAYER_ATTENTION || memory->layers[layer].is_external)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u has no rows here", layer);
    if (p0 < 0) CL_FAIL(error, CELLAR_INVALID, p0, "position %d is below 0", (int)p0);
    return CELLAR_OK;
}

/* Room for one row as it is stored and one as f32, where reading needs them. */
static size_t room_for(const cellar_memory *memory, const cl_layer *layer)
{
    bool needs_raw = memory->stores && layer->k->store > 0;
    if (!needs_raw && !layer->v_in_k) return 0;
    size_t largest = layer->k_size > layer->v_size ? layer->k_size : layer->v_size;
    return 2 * largest * sizeof(float); /* no type takes more than 4 bytes an element */
}

cellar_status cellar_read_rows(const cellar_memory *memory, cellar_seq seq, uint32_t layer,
                               cellar_pos p0, uint32_t n, float *k, float *v, cellar_error *error)
{
    CL_TRY(check_reading(memory, seq, layer, p0, error));
    row_reader reader = {memory, &memory->layers[layer], NULL, NULL};
    size_t room = room_for(memory, reader.layer);
    const cellar_allocator *allocator = &memory->alloc.user;
    if (room > 0) {
        reader.whole = allocator->allocate(allocator->context, room, CL_ALIGN);
        if (!reader.whole) return cl_error_no_memory(error, "a row", room);
        reader.raw = (unsigned char *)(reader.whole + room / 2 / sizeof(float));
    }
    cellar_status status = read_positions(&reader, seq, p0, n, k, v, error);
    if (reader.whole) allocator->release(allocator->context, reader.whole, room);
    return status;
}
