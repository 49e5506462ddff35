/*
 * memory.c: making a memory and giving it back, and what every call checks first.
 *
 * The object, its groups, layers, rows, rotations and the numbers of their features are one block of
 * memory, cut up here in the order in which plan.c added the parts up. Cells, rows and scratch are the
 * groups' own. What fails on the way is undone by cellar_destroy, which takes whatever is there.
 */
#include "memory.h"

#include <string.h>

#include "error.h"

/* ---- life cycle ------------------------------------------------------------------------------ */

/* What the layers' descriptions are cut from. */
typedef struct layer_parts {
    double *frequencies;
    float *features;
} layer_parts;

/* Cut the object's block into its parts, in the order in which plan.c adds them up. */
static struct cellar_memory *carve_object(cl_arena arena, const cellar_config *config,
                                          const cl_plan *plan, layer_parts *parts)
{
    memset(arena.memory, 0, arena.size);
    struct cellar_memory *memory = cl_arena_take(&arena, 1, sizeof *memory);
    memory->groups = cl_arena_take(&arena, plan->n_groups, sizeof(cl_group));
    memory->pools = cl_arena_take(&arena, (size_t)plan->n_groups * config->n_pools,
                                  sizeof(cl_pool));
    memory->layers = cl_arena_take(&arena, config->n_layers, sizeof(cl_layer));
    memory->rows = cl_arena_take(&arena, plan->n_rows, sizeof(cl_rows));
    memory->stores = cl_arena_take(&arena, plan->n_stores, sizeof(cellar_row_store));
    memory->ropes = cl_arena_take(&arena, plan->n_ropes, sizeof(cl_rope));
    memory->angle_offsets = cl_arena_take(&arena, plan->n_ropes, sizeof(size_t));
    memory->n_stored = cl_arena_take(&arena, config->n_layers, sizeof(uint32_t));
    memory->pool_cells = cl_arena_take(&arena, config->n_pools, sizeof(uint32_t));
    parts->frequencies = cl_arena_take(&arena, plan->n_frequencies, sizeof(double));
    parts->features = cl_arena_take(&arena, plan->n_features, sizeof(float));
    return memory;
}

/* Copy n floats into the features, or nothing when there are none. */
static const float *keep_floats(layer_parts *parts, const float *from, size_t n)
{
    if (!from || n == 0) return NULL;
    float *to = parts->features;
    memcpy(to, from, n * sizeof *to);
    parts->features += n;
    return to;
}

static void describe_ropes(cellar_memory *memory, const cellar_config *config, const cl_plan *plan,
                           layer_parts *parts)
{
    size_t n_angles = 0;
    for (uint32_t r = 0; r < plan->n_ropes; r++) {
        const cellar_layer *layer = &config->layers[plan->rope_layers[r]];
        cl_rope *rope = &memory->ropes[r];
        cl_rope_init(rope, &layer->rope, layer->k_size, parts->frequencies);
        rope->given.factors = keep_floats(parts, layer->rope.factors, rope->n_pairs);
        memory->angle_offsets[r] = n_angles;
        n_angles += 2 * (size_t)rope->n_pairs;
        parts->frequencies += rope->n_pairs;
    }
}

/* The largest power of two that divides n. */
static uint32_t stretch_of_two(uint32_t n)
{
    return n & (0u - n);
}

static void describe_attention(cl_layer *layer, const cellar_layer *from, layer_parts *parts)
{
    layer->n_heads = from->n_heads;
    layer->n_kv_heads = from->n_kv_heads;
    layer->k_size = from->k_size;
    layer->v_size = from->v_size;
    layer->scale = from->scale;
    if (layer->scale == 0) layer->scale = (float)(1.0 / __builtin_sqrt((double)from->k_size));
    layer->is_causal = from->is_causal;
    layer->v_in_k = from->v_in_k;
    if (from->rotate_k && from->k_size % 2 == 0) layer->hadamard_k = stretch_of_two(from->k_size);
    if (from->rotate_v && from->v_size % 2 == 0) layer->hadamard_v = stretch_of_two(from->v_size);
    layer->softcap = from->softcap;
    layer->alibi_max_bias = from->alibi_max_bias;
    if (from->alibi_max_bias > 0) {
        cl_attend_slopes(parts->features, from->n_heads, from->alibi_max_bias);
        layer->slopes = parts->features;
        parts->features += from->n_heads;
    }
    layer->sinks = keep_floats(parts, from->sinks, from->n_heads);
    layer->n_buckets = from->buckets.n;
    layer->max_distance = from->buckets.max_distance;
    layer->is_bidirectional = from->buckets.is_bidirectional;
    layer->bucket_bias = keep_floats(parts, from->buckets.bias,
                                     (size_t)from->buckets.n * from->n_heads);
}

/* Lay out the rows of one group's layers behind *at, in the order of the layers. */
static void lay_out_group(cellar_memory *memory, const cellar_config *config, const cl_plan *plan,
                          uint32_t g, uint32_t *at)
{
    cl_storage_layout layout = plan->groups[g].layout;
    memset(layout.block_bytes, 0, sizeof layout.block_bytes);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const cellar_layer *from = &config->layers[i];
        cl_layer *layer = &memory->layers[i];
        if (layer->group != (int32_t)g || layer->is_external) continue;
        cl_rows *rows = &memory->rows[*at];
        if (layer->kind == CELLAR_LAYER_RECURRENT) {
            layer->states = rows;
            for (uint32_t t = 0; t < from->n_states; t++, (*at)++)
                (void)cl_storage_add(&layout, &rows[t], 1, from->state_sizes[t], CELLAR_F32, 0);
        } else if (layer->source == i) {
            uint32_t store = cl_plan_find_store(plan, from);
            (void)cl_storage_add(&layout, rows, from->n_kv_heads, from->k_size, from->k_type,
                                 store);
            layer->k = &memory->rows[(*at)++];
            if (from->v_in_k) continue;
            (void)cl_storage_add(&layout, rows + 1, from->n_kv_heads, from->v_size, from->v_type,
                                 store);
            layer->v = &memory->rows[(*at)++];
        }
    }
}

static void describe_layers(cellar_memory *memory, const cellar_config *config, const cl_plan *plan,
                            layer_parts *parts)
{
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const cellar_layer *from = &config->layers[i];
        cl_layer *layer = &memory->layers[i];
        layer->kind = from->kind;
        layer->group = -1;
        layer->source = i;
        if (from->kind == CELLAR_LAYER_NONE) continue;
        layer->group = (int32_t)cl_plan_find_group(plan, from);
        layer->is_external = from->is_external;
        layer->n_states = from->kind == CELLAR_LAYER_RECURRENT ? from->n_states : 0;
        if (from->kind != CELLAR_LAYER_ATTENTION) continue;
        if (from->reads_layer >= 0) layer->source = (uint32_t)from->reads_layer;
        layer->rope = cl_plan_find_rope(plan, config, i);
        describe_attention(layer, from, parts);
    }
}

/* Layers that read another's rows know them too. */
static void connect_layers(cellar_memory *memory)
{
    for (uint32_t i = 0; i < memory->n_layers; i++) {
        cl_layer *layer = &memory->layers[i];
        layer->k = memory->layers[layer->source].k;
        layer->v = memory->layers[layer->source].v;
    }
}

static cellar_status create_group(cellar_memory *memory, const cellar_config *config,
                                  const cl_plan *plan, uint32_t g, const cl_rows *rows,
                                  cellar_error *error)
{
    const cl_group_plan *from = &plan->groups[g];
    cl_group *group = &memory->groups[g];
    cl_pool *pools = memory->pools + (size_t)g * config->n_pools;
    if (from->kind == CELLAR_LAYER_RECURRENT)
        pools[0].n = from->n_cells;
    else
        for (uint32_t p = 0; p < config->n_pools; p++)
            pools[p].n = cl_plan_pool_cells(config, from, p, memory->pool_cells[p]);
    cl_pool_rule rule = {from->n_pools, config->pool_of, config->pool_context};
    cl_group_source source = {from,       pools, rule, rows, memory->stores, memory->n_stores,
                              plan->is_2d};
    CL_TRY(cl_group_create(group, g, &source, &memory->alloc, error));
    group->is_contiguous = config->is_contiguous;
    group->checkpoints = plan->n_checkpoints ? &memory->checkpoints : NULL;
    group->moves = &memory->moves;
    return CELLAR_OK;
}

static cellar_status create_parts(cellar_memory *memory, const cellar_config *config,
                                  const cl_plan *plan, cellar_error *error)
{
    uint32_t at = 0;
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        const cl_rows *rows = memory->rows + at;
        lay_out_group(memory, config, plan, g, &at);
        CL_TRY(create_group(memory, config, plan, g, rows, error));
        memory->n_groups = g + 1;
    }
    connect_layers(memory);
    if (!cl_checkpoints_create(&memory->checkpoints, plan->n_checkpoints,
                               config->checkpoint_interval, memory->groups, plan->n_groups,
                               &memory->alloc))
        return cl_error_no_memory(error, "checkpoints", plan->checkpoint_bytes);
    memory->scratch = cl_alloc_get(&memory->alloc, CELLAR_BYTES_SCRATCH, plan->scratch_bytes);
    if (!memory->scratch)
        return cl_error_no_memory(error, "room to attend in", plan->scratch_bytes);
    memory->scratch_bytes = plan->scratch_bytes;
    memory->angles = memory->scratch + plan->n_workers * plan->scratch.floats;
    return CELLAR_OK;
}

static cl_step_rules rules_of(const cellar_config *config, const cl_plan *plan)
{
    cl_step_rules rules = {config->n_ubatch, config->split, plan->is_2d};
    if (rules.split != CELLAR_SPLIT_AUTO) return rules;
    rules.split = config->n_pools > 1 ? CELLAR_SPLIT_EQUAL : CELLAR_SPLIT_SIMPLE;
    for (uint32_t g = 0; g < plan->n_groups; g++)
        if (plan->groups[g].kind == CELLAR_LAYER_RECURRENT) rules.split = CELLAR_SPLIT_EQUAL;
    return rules;
}

static void describe_memory(cellar_memory *memory, const cellar_config *config, const cl_plan *plan,
                            layer_parts *parts)
{
    memory->object_bytes = plan->object_bytes;
    memory->workers = config->workers;
    memory->config = *config;
    memory->config.layers = NULL;
    memory->config.pool_cells = NULL;
    memory->rules = rules_of(config, plan);
    memory->n_layers = config->n_layers;
    memory->n_ropes = plan->n_ropes;
    memory->n_stores = plan->n_stores;
    memory->scratch_layout = plan->scratch;
    memory->angles_ubatch = UINT32_MAX;
    for (uint32_t s = 1; s < plan->n_stores; s++)
        memory->stores[s] = *plan->stores[s];
    for (uint32_t p = 0; p < config->n_pools; p++)
        memory->pool_cells[p] = cl_plan_pool_share(config, p);
    cl_kernels_fill(&memory->kernels, config->cpu_mask);
    describe_ropes(memory, config, plan, parts);
    describe_layers(memory, config, plan, parts);
}

cellar_status cellar_create(const cellar_config *config, cellar_memory **out, cellar_error *error)
{
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "memory is NULL");
    *out = NULL;
    cl_plan plan;
    CL_TRY(cl_plan_make(config, &plan, error));
    cl_alloc alloc;
    cl_alloc_init(&alloc, &config->allocator, config->budget_bytes);
    cl_arena arena = {cl_alloc_get(&alloc, CELLAR_BYTES_OBJECT, plan.object_bytes),
                      plan.object_bytes, 0};
    if (!arena.memory) return cl_error_no_memory(error, "a memory", plan.object_bytes);
    layer_parts parts;
    cellar_memory *memory = carve_object(arena, config, &plan, &parts);
    memory->alloc = alloc;
    describe_memory(memory, config, &plan, &parts);
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
    cl_checkpoints_destroy(&memory->checkpoints);
    for (uint32_t g = 0; g < memory->n_groups; g++)
        cl_group_destroy(&memory->groups[g]);
    cl_arena_free(&memory->step.arena, &memory->alloc);
    cl_arena_free(&memory->step.split_arena, &memory->alloc);
    cl_alloc_put(&memory->alloc, CELLAR_BYTES_STEP, memory->moves.items,
                 memory->moves.capacity * sizeof *memory->moves.items);
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

cellar_status cl_memory_check_moves(const cellar_memory *memory, cellar_error *error)
{
    CL_TRY(cl_memory_check_idle(memory, error));
    if (memory->moves.n > 0)
        CL_FAIL_BECAUSE(error, CELLAR_BUSY, CELLAR_REASON_MOVES_PENDING, memory->moves.n,
                        "%u row moves are pending: apply them, then cellar_confirm_moves",
                        memory->moves.n);
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
