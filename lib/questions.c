/*
 * questions.c: what a sequence is, whether it can go on from somewhere, and its rows as they stand.
 *
 * Nothing here changes a memory. Positions come from the ends of run lists, so most answers cost a
 * binary search at most.
 */
#include <math.h>

#include "error.h"
#include "memory.h"

/* The memory's logical extent is the widest of its groups': none may be written over. */
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

static cellar_pos rewind_min(const cellar_memory *memory, cellar_seq seq)
{
    cellar_pos min = 0;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        cellar_pos its = cl_group_rewind_min(cl_memory_runs(memory, g, seq));
        if (its > min) min = its;
    }
    return min;
}

cellar_status cellar_get_sequence(const cellar_memory *memory, cellar_seq seq,
                                  cellar_sequence_info *out, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    *out = (cellar_sequence_info){0};
    out->pos_min = cellar_position_min(memory, seq);
    out->pos_max = cellar_position_max(memory, seq);
    out->pos_next = out->pos_max + 1;
    out->rewind_min = rewind_min(memory, seq);
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

cellar_status cellar_can_continue(const cellar_memory *memory, cellar_seq seq, cellar_pos n,
                                  cellar_pos *replay_from, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    if (n < 0) CL_FAIL(error, CELLAR_INVALID, n, "position %d is below 0", (int)n);
    cellar_pos from = n;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        cellar_pos its = cl_group_continue_at(cl_memory_runs(memory, g, seq), n);
        if (its < from) from = its;
    }
    if (from == n) return CELLAR_OK;
    if (replay_from) *replay_from = from;
    CL_FAIL(error, CELLAR_REPLAY, from,
            "sequence %d cannot continue at %d, position %d is gone: read again from %d", (int)seq,
            (int)n, (int)n - 1, (int)from);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Turn one head by `distance` positions, in double: a question, not a hot path. */
static void turn_exactly(const cl_rope *rope, float *head, int64_t distance)
{
    for (uint32_t i = 0; i < rope->n_pairs; i++) {
        bool is_normal = rope->kind == CELLAR_ROPE_NORMAL;
        float *x = head + (is_normal ? 2 * i : i), *y = x + (is_normal ? 1 : rope->n_pairs);
        double angle = (double)distance * rope->frequencies[i], c = cos(angle), s = sin(angle);
        double a = *x, b = *y;
        *x = (float)(a * c - b * s);
        *y = (float)(a * s + b * c);
    }
}

static void copy_row(float *to, const float *from, uint32_t n)
{
    if (from == to) return; /* converted in place already */
    for (uint32_t i = 0; i < n; i++)
        to[i] = from[i];
}

static void read_cell(const cellar_memory *memory, const cl_layer *layer, uint32_t cell,
                      int32_t shift, float *k, float *v)
{
    const cl_storage *storage = &memory->groups[layer->group].storage;
    for (uint32_t h = 0; h < layer->n_kv_heads; h++) {
        if (k) {
            float *to = k + (size_t)h * layer->k_size;
            copy_row(to, cl_storage_read(storage, &layer->k, &memory->kernels, h, cell, 1, to),
                     layer->k_size);
            if (shift != 0) turn_exactly(&memory->ropes[layer->rope], to, shift);
        }
        if (v) {
            float *to = v + (size_t)h * layer->v_size;
            copy_row(to, cl_storage_read(storage, &layer->v, &memory->kernels, h, cell, 1, to),
                     layer->v_size);
        }
    }
}

cellar_status cellar_read_rows(const cellar_memory *memory, cellar_seq seq, uint32_t layer,
                               cellar_pos p0, uint32_t n, float *k, float *v, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    if (layer >= memory->n_layers)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: the memory has %u", layer,
                memory->n_layers);
    if (p0 < 0) CL_FAIL(error, CELLAR_INVALID, p0, "position %d is below 0", (int)p0);
    const cl_layer *its = &memory->layers[layer];
    const cl_runs *runs = cl_memory_runs(memory, its->group, seq);
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
        read_cell(memory, its, cell, run->shift, k, v);
        if (k) k += (size_t)its->n_kv_heads * its->k_size;
        if (v) v += (size_t)its->n_kv_heads * its->v_size;
    }
    return CELLAR_OK;
}
