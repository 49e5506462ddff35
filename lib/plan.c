/*
 * plan.c: how many bytes will a configuration take, and for what?
 *
 * cl_plan_make is the only place where sizes are computed: cellar_measure and cellar_visit_plan show
 * them, cellar_create allocates them, so these cannot differ. Layers are sorted into groups here: one
 * for each window (none included), one for all recurrent layers. Every sum is checked; what does not fit
 * in an address is CELLAR_INVALID.
 */
#include <string.h>

#include "error.h"
#include "memory.h"

/* ---- which layers belong together ------------------------------------------------------------ */

uint32_t cl_plan_find_rope(const cl_plan *plan, const cellar_config *config, uint32_t layer)
{
    const cellar_layer *wanted = &config->layers[layer];
    for (uint32_t r = 0; r < plan->n_ropes; r++) {
        const cellar_layer *known = &config->layers[plan->rope_layers[r]];
        if (cl_rope_same(&known->rope, known->k_size, &wanted->rope, wanted->k_size)) return r;
    }
    return plan->n_ropes;
}

uint32_t cl_plan_find_group(const cl_plan *plan, const cellar_layer *layer)
{
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        const cl_group_plan *group = &plan->groups[g];
        if (group->kind != layer->kind) continue;
        if (group->kind == CELLAR_LAYER_RECURRENT) return g;
        if (group->window.kind != layer->window.kind) continue;
        if (group->window.kind == CELLAR_WINDOW_NONE ||
            (group->window.size == layer->window.size &&
             group->window.n_sinks == layer->window.n_sinks))
            return g;
    }
    return plan->n_groups;
}

uint32_t cl_plan_find_store(const cl_plan *plan, const cellar_layer *layer)
{
    if (!layer->store) return 0;
    for (uint32_t s = 1; s < plan->n_stores; s++)
        if (memcmp(plan->stores[s], layer->store, sizeof *layer->store) == 0) return s;
    return plan->n_stores;
}

static cellar_status add_rope(const cellar_config *config, cl_plan *plan, uint32_t i,
                              cellar_error *error)
{
    if (cl_plan_find_rope(plan, config, i) < plan->n_ropes) return CELLAR_OK;
    if (plan->n_ropes == CL_MAX_ROPES)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: more than %u different rotations", i,
                CL_MAX_ROPES);
    plan->rope_layers[plan->n_ropes++] = i;
    uint32_t n_pairs = cl_rope_pairs(&config->layers[i].rope, config->layers[i].k_size);
    plan->n_frequencies += n_pairs;
    if (config->layers[i].rope.factors) plan->n_features += n_pairs;
    if (config->layers[i].rope.kind == CELLAR_ROPE_MROPE) plan->is_2d = true;
    return CELLAR_OK;
}

static cellar_status add_store(cl_plan *plan, const cellar_layer *layer, uint32_t i,
                               cellar_error *error)
{
    if (cl_plan_find_store(plan, layer) < plan->n_stores) return CELLAR_OK;
    if (plan->n_stores == CL_MAX_STORES)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: more than %u different stores", i,
                CL_MAX_STORES - 1);
    plan->stores[plan->n_stores++] = layer->store;
    return CELLAR_OK;
}

static cellar_status add_group(cl_plan *plan, const cellar_layer *layer, uint32_t i,
                               cellar_error *error)
{
    uint32_t g = cl_plan_find_group(plan, layer);
    if (g == plan->n_groups) {
        if (plan->n_groups == CL_MAX_GROUPS)
            CL_FAIL(error, CELLAR_INVALID, i, "layer %u: more than %u different windows", i,
                    CL_MAX_GROUPS);
        bool is_recurrent = layer->kind == CELLAR_LAYER_RECURRENT;
        cl_group_plan *group = &plan->groups[plan->n_groups++];
        *group = (cl_group_plan){.kind = layer->kind, .is_external = layer->is_external};
        if (!is_recurrent) group->window = layer->window;
        group->layout.cells_a_block = is_recurrent ? 1 : CL_BLOCK;
        group->layout.kind = is_recurrent ? CELLAR_BYTES_STATES : CELLAR_BYTES_ROWS;
        group->engine = group->layout;
    }
    plan->groups[g].n_layers++;
    if (plan->groups[g].is_external != layer->is_external)
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: is_external must be the same for all layers of a group", i);
    return CELLAR_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool lay_out_states(cl_storage_layout *layout, const cellar_layer *layer)
{
    cl_rows rows;
    bool fits = true;
    for (uint32_t t = 0; fits && t < layer->n_states; t++)
        fits = cl_storage_add(layout, &rows, 1, layer->state_sizes[t], CELLAR_F32, 0);
    return fits;
}

/* K and V [2] of an attention layer; those of v_in_k have no V: its `row_bytes` is 0. */
static bool lay_out_rows(cl_storage_layout *layout, const cellar_layer *layer, uint32_t store,
                         cl_rows rows[2])
{
    rows[1].row_bytes = 0;
    return cl_storage_add(layout, &rows[0], layer->n_kv_heads, layer->k_size, layer->k_type,
                          store) &&
           (layer->v_in_k || cl_storage_add(layout, &rows[1], layer->n_kv_heads, layer->v_size,
                                            layer->v_type, store));
}

/* What the engine keeps of a layer has a size too: room for checkpoints and old states follows it. */
static bool add_external(cl_group_plan *group, const cellar_layer *layer)
{
    cl_rows rows[2];
    return layer->kind == CELLAR_LAYER_RECURRENT ? lay_out_states(&group->engine, layer)
                                                 : lay_out_rows(&group->engine, layer, 0, rows);
}

static bool add_states(cl_plan *plan, cl_group_plan *group, const cellar_layer *layer)
{
    bool fits = lay_out_states(&group->layout, layer);
    group->n_rows += layer->n_states;
    plan->n_rows += layer->n_states;
    return fits;
}

/* The kinds of rows of one layer; raises the largest of each size. */
static bool add_rows(cl_plan *plan, const cellar_layer *layer, uint32_t *largest_k,
                     uint32_t *largest_v, size_t *largest_row)
{
    if (layer->kind == CELLAR_LAYER_NONE) return true;
    cl_group_plan *group = &plan->groups[cl_plan_find_group(plan, layer)];
    bool is_recurrent = layer->kind == CELLAR_LAYER_RECURRENT;
    if (is_recurrent && !layer->is_external) return add_states(plan, group, layer);
    if (!is_recurrent && layer->k_size > *largest_k) *largest_k = layer->k_size;
    if (!is_recurrent && layer->v_size > *largest_v) *largest_v = layer->v_size;
    if (layer->reads_layer >= 0) return true;
    if (layer->is_external) return add_external(group, layer);
    cl_rows rows[2];
    bool fits = lay_out_rows(&group->layout, layer, cl_plan_find_store(plan, layer), rows);
    for (int i = 0; fits && i < 2; i++)
        if (rows[i].row_bytes > *largest_row) *largest_row = rows[i].row_bytes;
    group->n_rows += layer->v_in_k ? 1 : 2;
    plan->n_rows += layer->v_in_k ? 1 : 2;
    return fits;
}

static size_t count_features(const cellar_layer *layer)
{
    if (layer->kind != CELLAR_LAYER_ATTENTION) return 0;
    return (size_t)layer->n_heads *
           ((layer->alibi_max_bias > 0) + (layer->sinks != NULL) + layer->buckets.n);
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* Of one cell (or state), whoever keeps it. */
static uint64_t cell_bytes(const cl_group_plan *group)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < CL_MAX_STORES; s++)
        bytes += (group->layout.block_bytes[s] + group->engine.block_bytes[s]) /
                 group->layout.cells_a_block;
    return bytes;
}

uint32_t cl_plan_pool_share(const cellar_config *config, uint32_t pool)
{
    if (config->pool_cells) return config->pool_cells[pool];
    uint32_t share = config->n_cells / config->n_pools;
    return share + (pool < config->n_cells % config->n_pools);
}

/* Cells that a window keeps for one sequence. */
static uint64_t window_cells(const cellar_config *config, const cl_group_plan *group)
{
    uint64_t cells = (uint64_t)group->window.size + group->window.n_sinks;
    return cells < config->n_cells ? cells : config->n_cells;
}

/* How many checkpoints checkpoint_bytes has room for when none shares anything with another. */
static uint64_t count_checkpoints(const cellar_config *config, const cl_plan *plan)
{
    uint64_t one = 0;
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        const cl_group_plan *group = &plan->groups[g];
        uint64_t bytes = cell_bytes(group), n_cells = 0;
        if (group->kind == CELLAR_LAYER_RECURRENT)
            n_cells = 1;
        else if (group->window.kind != CELLAR_WINDOW_NONE && !config->is_window_full)
            n_cells = window_cells(config, group);
        /* An engine's rows are held against no limit: what does not fit here has no room. */
        if (__builtin_mul_overflow(bytes, n_cells, &bytes) ||
            __builtin_add_overflow(one, bytes, &one))
            return 0;
    }
    if (one == 0) return 0;
    uint64_t n = config->checkpoint_bytes / one;
    return n < 65536 ? n : 65536;
}

uint32_t cl_plan_pool_cells(const cellar_config *config, const cl_group_plan *group, uint32_t pool,
                            uint32_t pool_cells)
{
    (void)pool;
    if (group->window.kind == CELLAR_WINDOW_NONE || config->is_window_full) return pool_cells;
    uint64_t n_sequences = (config->n_sequences - 1) / config->n_pools + 1;
    uint64_t wanted = n_sequences * window_cells(config, group) + config->n_ubatch;
    /* Checkpoints of this pool's share; the plan says how many there are in all. */
    if (group->n_checkpoints > 0)
        wanted += ((group->n_checkpoints - 1) / config->n_pools + 1) * window_cells(config, group);
    return wanted < pool_cells ? (uint32_t)wanted : pool_cells;
}

static bool plan_attention_cells(const cellar_config *config, cl_group_plan *group)
{
    uint64_t n_blocks = 0, n_cells = 0;
    group->n_pools = config->n_pools;
    for (uint32_t p = 0; p < config->n_pools; p++) {
        uint32_t n = cl_plan_pool_cells(config, group, p, cl_plan_pool_share(config, p));
        n_cells += n;
        n_blocks += cl_cells_blocks(n);
    }
    group->n_cells = (uint32_t)n_cells;
    group->n_blocks = (uint32_t)n_blocks;
    return n_blocks <= UINT32_MAX / CL_BLOCK;
}

static bool plan_states(const cellar_config *config, cl_group_plan *group)
{
    uint64_t one = cell_bytes(group);
    uint64_t n_rollback = one ? config->rollback_bytes / one : 0;
    if (n_rollback > 65536) n_rollback = 65536;
    uint64_t n = config->n_sequences * 2ull * (1 + n_rollback) + group->n_checkpoints;
    group->n_pools = 1;
    group->n_rollback = (uint32_t)n_rollback;
    group->n_cells = n < 1u << 30 ? (uint32_t)n : 1u << 30;
    group->n_blocks = cl_cells_blocks(group->n_cells);
    return n <= 1u << 30;
}

static bool plan_group(const cellar_config *config, cl_plan *plan, cl_group_plan *group)
{
    bool is_recurrent = group->kind == CELLAR_LAYER_RECURRENT;
    group->n_checkpoints = plan->n_fitting_checkpoints;
    bool fits = is_recurrent ? plan_states(config, group) : plan_attention_cells(config, group);
    if (!fits) return false;
    uint32_t n_storage = is_recurrent ? group->n_cells : group->n_blocks;
    if (!cl_cells_measure(group->n_blocks, cl_group_cells_kind(group->kind, plan->is_2d),
                          &group->cells_bytes) ||
        !cl_storage_measure(&group->layout, plan->n_stores, n_storage, &group->own_bytes,
                            &group->callers_bytes))
        return false;
    plan->sizes.bytes[CELLAR_BYTES_CELLS] += group->cells_bytes;
    plan->sizes.bytes[group->layout.kind] += group->own_bytes + group->callers_bytes;
    return true;
}

static bool plan_checkpoints(cl_plan *plan)
{
    bool is_needed = false;
    for (uint32_t g = 0; g < plan->n_groups; g++)
        is_needed = is_needed || plan->groups[g].kind == CELLAR_LAYER_RECURRENT ||
                    plan->groups[g].window.kind != CELLAR_WINDOW_NONE;
    if (!is_needed) return true;
    /* Neighbours share cells, so more may fit than the bytes say; and a few always cost nothing. */
    plan->n_checkpoints = 32 + 2 * (uint32_t)plan->n_fitting_checkpoints;
    if (!cl_checkpoints_measure(plan->n_checkpoints, plan->n_groups, &plan->checkpoint_bytes))
        return false;
    plan->sizes.bytes[CELLAR_BYTES_CELLS] += plan->checkpoint_bytes;
    return true;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static bool plan_object(const cellar_config *config, cl_plan *plan)
{
    size_t n_layers = config->n_layers, *bytes = &plan->object_bytes;
    return cl_arena_add(bytes, 1, sizeof(struct cellar_memory)) &&
           cl_arena_add(bytes, plan->n_groups, sizeof(cl_group)) &&
           cl_arena_add(bytes, (size_t)plan->n_groups * config->n_pools, sizeof(cl_pool)) &&
           cl_arena_add(bytes, n_layers, sizeof(cl_layer)) &&
           cl_arena_add(bytes, plan->n_rows, sizeof(cl_rows)) &&
           cl_arena_add(bytes, plan->n_stores, sizeof(cellar_row_store)) &&
           cl_arena_add(bytes, plan->n_ropes, sizeof(cl_rope)) &&
           cl_arena_add(bytes, plan->n_ropes, sizeof(size_t)) &&
           cl_arena_add(bytes, n_layers, sizeof(uint32_t)) &&
           cl_arena_add(bytes, config->n_pools, sizeof(uint32_t)) &&
           cl_arena_add(bytes, plan->n_frequencies, sizeof(double)) &&
           cl_arena_add(bytes, plan->n_features, sizeof(float));
}

static bool plan_scratch(const cellar_config *config, cl_plan *plan, uint32_t largest_k,
                         uint32_t largest_v, size_t largest_row)
{
    size_t floats, angles;
    plan->n_workers = config->workers.n > 1 ? config->workers.n : 1;
    return cl_scratch_measure(&plan->scratch, largest_k, largest_v, largest_row) &&
           cl_checked_mul(plan->scratch.floats, plan->n_workers, &floats) &&
           cl_checked_mul(2 * plan->n_frequencies, config->n_ubatch, &angles) &&
           cl_checked_add(floats, angles, &floats) &&
           cl_checked_mul(floats, sizeof(float), &plan->scratch_bytes);
}

static cellar_status collect(const cellar_config *config, cl_plan *plan, cellar_error *error)
{
    plan->n_stores = 1;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const cellar_layer *layer = &config->layers[i];
        if (layer->kind == CELLAR_LAYER_NONE) continue;
        CL_TRY(add_group(plan, layer, i, error));
        if (layer->kind != CELLAR_LAYER_ATTENTION) continue;
        CL_TRY(add_rope(config, plan, i, error));
        CL_TRY(add_store(plan, layer, i, error));
    }
    if (plan->n_groups == 0) CL_FAIL(error, CELLAR_INVALID, -1, "no layer remembers anything");
    return CELLAR_OK;
}

static bool add_up(const cellar_config *config, cl_plan *plan)
{
    uint32_t largest_k = 0, largest_v = 0;
    size_t largest_row = 0;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        if (!add_rows(plan, &config->layers[i], &largest_k, &largest_v, &largest_row)) return false;
        plan->n_features += count_features(&config->layers[i]);
    }
    plan->n_fitting_checkpoints = count_checkpoints(config, plan);
    for (uint32_t g = 0; g < plan->n_groups; g++)
        if (!plan_group(config, plan, &plan->groups[g])) return false;
    if (!plan_checkpoints(plan) || !plan_object(config, plan) ||
        !plan_scratch(config, plan, largest_k, largest_v, largest_row))
        return false;
    plan->sizes.bytes[CELLAR_BYTES_OBJECT] = plan->object_bytes;
    plan->sizes.bytes[CELLAR_BYTES_SCRATCH] = plan->scratch_bytes;
    for (int kind = 0; kind < CELLAR_BYTES_KINDS; kind++)
        if (__builtin_add_overflow(plan->sizes.total, plan->sizes.bytes[kind], &plan->sizes.total))
            return false;
    return plan->sizes.total <= PTRDIFF_MAX;
}

cellar_status cl_plan_make(const cellar_config *config, cl_plan *plan, cellar_error *error)
{
    CL_TRY(cl_config_check(config, error));
    memset(plan, 0, sizeof *plan);
    CL_TRY(collect(config, plan, error));
    if (!add_up(config, plan))
        CL_FAIL(
            error, CELLAR_INVALID, -1,
            "the configuration needs more bytes than an address can count: fewer cells or layers");
    if (config->budget_bytes > 0 && plan->sizes.total > config->budget_bytes)
        CL_FAIL_BECAUSE(error, CELLAR_INVALID, CELLAR_REASON_BUDGET, -1,
                        "the configuration needs %llu bytes, budget_bytes is %llu: fewer cells, "
                        "sequences or checkpoints",
                        (unsigned long long)plan->sizes.total,
                        (unsigned long long)config->budget_bytes);
    return CELLAR_OK;
}

cellar_status cellar_measure(const cellar_config *config, cellar_sizes *sizes, cellar_error *error)
{
    if (!sizes) CL_FAIL(error, CELLAR_INVALID, -1, "sizes is NULL");
    cl_plan plan;
    CL_TRY(cl_plan_make(config, &plan, error));
    *sizes = plan.sizes;
    return CELLAR_OK;
}
