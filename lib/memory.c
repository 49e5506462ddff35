/*
 * memory.c: making a memory, and the operations on sequences.
 *
 * Each operation checks its arguments, asks every group whether it can be done (which may reserve room
 * in a list, and is the only part that can fail), and then does it in every group. So groups never
 * disagree about what a sequence holds, and a refusal leaves all of them as they were.
 */
#include "memory.h"

#include <string.h>

#include "error.h"

/* ---- life cycle ------------------------------------------------------------------------------ */

/* Cut the object's block into its parts, in the order in which config.c adds them up. */
static struct cellar_memory *carve_object(cl_arena arena, const cellar_config *config,
                                          const cl_plan *plan, double **frequencies)
{
    memset(arena.memory, 0, arena.size);
    struct cellar_memory *memory = cl_arena_take(&arena, 1, sizeof *memory);
    memory->groups = cl_arena_take(&arena, 1, sizeof(cl_group));
    memory->layers = cl_arena_take(&arena, config->n_layers, sizeof(cl_layer));
    memory->ropes = cl_arena_take(&arena, plan->n_ropes, sizeof(cl_rope));
    memory->angle_offsets = cl_arena_take(&arena, plan->n_ropes, sizeof(size_t));
    memory->n_stored = cl_arena_take(&arena, config->n_layers, sizeof(uint32_t));
    *frequencies = cl_arena_take(&arena, plan->n_frequencies, sizeof(double));
    return memory;
}

static void describe_layers(cellar_memory *memory, const cellar_config *config, const cl_plan *plan,
                            double *frequencies)
{
    size_t n_angles = 0;
    for (uint32_t r = 0; r < plan->n_ropes; r++) {
        const cellar_layer *layer = &config->layers[plan->rope_layers[r]];
        cl_rope_init(&memory->ropes[r], &layer->rope, layer->k_size, frequencies);
        memory->angle_offsets[r] = n_angles;
        n_angles += 2 * (size_t)memory->ropes[r].n_pairs;
        frequencies += memory->ropes[r].n_pairs;
    }
    size_t block_bytes = 0;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const cellar_layer *from = &config->layers[i];
        cl_layer *layer = &memory->layers[i];
        layer->n_heads = from->n_heads;
        layer->n_kv_heads = from->n_kv_heads;
        layer->k_size = from->k_size;
        layer->v_size = from->v_size;
        layer->scale = from->scale;
        if (layer->scale == 0) layer->scale = (float)(1.0 / __builtin_sqrt((double)from->k_size));
        layer->is_causal = from->is_causal;
        layer->rope = cl_plan_find_rope(plan, config, i);
        (void)cl_storage_add(&block_bytes, &layer->k, from->n_kv_heads, from->k_size, from->k_type);
        (void)cl_storage_add(&block_bytes, &layer->v, from->n_kv_heads, from->v_size, from->v_type);
    }
}

static cellar_status create_parts(cellar_memory *memory, const cellar_config *config,
                                  const cl_plan *plan, cellar_error *error)
{
    if (!cl_group_create(&memory->groups[0], config->n_cells, plan->block_bytes, &memory->alloc))
        return cl_error_no_memory(error, "cells and their rows",
                                  plan->cells_bytes + plan->rows_bytes);
    memory->n_groups = 1;
    memory->scratch = cl_alloc_get(&memory->alloc, CELLAR_BYTES_SCRATCH, plan->scratch_bytes);
    if (!memory->scratch)
        return cl_error_no_memory(error, "room to attend in", plan->scratch_bytes);
    memory->scratch_bytes = plan->scratch_bytes;
    memory->angles = memory->scratch + plan->n_workers * plan->scratch.floats;
    return CELLAR_OK;
}

cellar_status cellar_create(const cellar_config *config, cellar_memory **out, cellar_error *error)
{
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "memory is NULL");
    *out = NULL;
    cl_plan plan;
    CL_TRY(cl_config_plan(config, &plan, error));
    cl_alloc alloc;
    cl_alloc_init(&alloc, &config->allocator);
    cl_arena arena = {cl_alloc_get(&alloc, CELLAR_BYTES_OBJECT, plan.object_bytes),
                      plan.object_bytes, 0};
    if (!arena.memory) return cl_error_no_memory(error, "a memory", plan.object_bytes);
    double *frequencies;
    cellar_memory *memory = carve_object(arena, config, &plan, &frequencies);
    memory->alloc = alloc;
    memory->object_bytes = plan.object_bytes;
    memory->workers = config->workers;
    memory->n_ubatch = config->n_ubatch;
    memory->n_layers = config->n_layers;
    memory->n_ropes = plan.n_ropes;
    memory->scratch_layout = plan.scratch;
    memory->angles_ubatch = UINT32_MAX;
    cl_kernels_fill(&memory->kernels, config->cpu_mask);
    describe_layers(memory, config, &plan, frequencies);
    cellar_status status = create_parts(memory, config, &plan, error);
    if (status != CELLAR_OK) {
        cellar_destroy(memory);
        return status;
    }
    *out = memory;
    return CELLAR_OK;
}

void cellar_destroy(cellar_memory *memory)
{
    if (!memory) return;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_group_destroy(&memory->groups[g]);
    cl_arena_free(&memory->step.arena, &memory->alloc);
    cl_alloc_put(&memory->alloc, CELLAR_BYTES_SCRATCH, memory->scratch, memory->scratch_bytes);
    cl_alloc alloc = memory->alloc; /* the counts live in the block that goes last */
    cl_alloc_put(&alloc, CELLAR_BYTES_OBJECT, memory, memory->object_bytes);
}

const char *cellar_cpu(const cellar_memory *memory)
{
    return memory ? memory->kernels.isa : "";
}

/* ---- what every operation checks ------------------------------------------------------------- */

cellar_status cl_memory_check(const cellar_memory *memory, cellar_error *error)
{
    if (!memory) CL_FAIL(error, CELLAR_INVALID, -1, "memory is NULL");
    return CELLAR_OK;
}

cellar_status cl_memory_check_idle(const cellar_memory *memory, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (memory->step.is_open)
        CL_FAIL(error, CELLAR_BUSY, -1, "a step is open: commit or abort it first");
    return CELLAR_OK;
}

cellar_status cl_memory_check_seq(cellar_seq seq, cellar_error *error)
{
    if (seq < 0) CL_FAIL(error, CELLAR_INVALID, seq, "sequence %d is below 0", (int)seq);
    return CELLAR_OK;
}

cellar_status cl_memory_range(cellar_pos p0, cellar_pos p1, cl_range *range, cellar_error *error)
{
    range->p0 = p0 < 0 ? 0 : p0;
    range->p1 = p1 < 0 ? INT64_MAX : p1;
    if (range->p0 > range->p1)
        CL_FAIL(error, CELLAR_INVALID, p0, "range [%d, %d) ends before it begins", (int)p0,
                (int)p1);
    return CELLAR_OK;
}

static cellar_status check_operation(const cellar_memory *memory, cellar_seq seq, cellar_pos p0,
                                     cellar_pos p1, cl_range *range, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    return cl_memory_range(p0, p1, range, error);
}

/* ---- operations: ask every group, then do it in every group ---------------------------------- */

cellar_status cellar_remove(cellar_memory *memory, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                            cellar_error *error)
{
    cl_range range;
    CL_TRY(check_operation(memory, seq, p0, p1, &range, error));
    for (uint32_t g = 0; g < memory->n_groups; g++)
        CL_TRY(cl_sequences_prepare_remove(&memory->groups[g].sequences, seq, range, error));
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_sequences_remove(&memory->groups[g].sequences, seq, range);
    return CELLAR_OK;
}

cellar_status cellar_copy(cellar_memory *memory, cellar_seq from, cellar_seq to, cellar_pos p0,
                          cellar_pos p1, cellar_error *error)
{
    cl_range range;
    CL_TRY(check_operation(memory, from, p0, p1, &range, error));
    CL_TRY(cl_memory_check_seq(to, error));
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        cellar_status status = cl_sequences_prepare_copy(&memory->groups[g].sequences, from, to,
                                                         range, error);
        if (status == CELLAR_OK) continue;
        while (g-- > 0)
            cl_sequences_cancel_copy(&memory->groups[g].sequences, to);
        return status;
    }
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_sequences_copy(&memory->groups[g].sequences, from, to, range);
    return CELLAR_OK;
}

cellar_status cellar_keep(cellar_memory *memory, cellar_seq seq, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_sequences_keep(&memory->groups[g].sequences, seq);
    return CELLAR_OK;
}

cellar_status cellar_shift(cellar_memory *memory, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                           cellar_pos delta, cellar_error *error)
{
    cl_range range;
    CL_TRY(check_operation(memory, seq, p0, p1, &range, error));
    for (uint32_t g = 0; g < memory->n_groups; g++)
        CL_TRY(cl_sequences_prepare_shift(&memory->groups[g].sequences, seq, range, delta, error));
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_sequences_shift(&memory->groups[g].sequences, seq, range, delta);
    return CELLAR_OK;
}

cellar_status cellar_shift_context(cellar_memory *memory, cellar_seq seq, cellar_pos keep,
                                   cellar_pos discard, cellar_pos *n_discarded, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    int64_t begin = cellar_position_min(memory, seq);
    int64_t n = begin < 0 ? 0 : cellar_position_max(memory, seq) + 1 - begin;
    if (keep < 0 || keep >= n)
        CL_FAIL(error, CELLAR_INVALID, keep,
                "keep %d is not in 0..%lld, sequence %d has %lld positions", (int)keep,
                (long long)n - 1, (int)seq, (long long)n);
    int64_t used = discard == 0 ? (n - keep) / 2 : discard;
    if (used <= 0 || used > n - keep)
        CL_FAIL(error, CELLAR_INVALID, discard,
                "discard %d: %lld positions follow the %d kept ones of sequence %d", (int)discard,
                (long long)(n - keep), (int)keep, (int)seq);
    cl_range removed = {begin + keep, begin + keep + used};
    /* Removing needs room for two cuts, and the move behind it for none: the gap is just as wide as the
     * move is long, so it lands on nothing and stays between its neighbours. */
    for (uint32_t g = 0; g < memory->n_groups; g++)
        CL_TRY(cl_sequences_prepare_remove(&memory->groups[g].sequences, seq, removed, error));
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        cl_sequences_remove(&memory->groups[g].sequences, seq, removed);
        cl_sequences_shift(&memory->groups[g].sequences, seq, (cl_range){removed.p1, INT64_MAX},
                           -used);
    }
    if (n_discarded) *n_discarded = (cellar_pos)used;
    return CELLAR_OK;
}

cellar_status cellar_clear(cellar_memory *memory, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_sequences_clear(&memory->groups[g].sequences);
    return CELLAR_OK;
}
