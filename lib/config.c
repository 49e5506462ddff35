/*
 * config.c: is a configuration sound, and how many bytes will it take?
 *
 * cl_config_plan is the only place where sizes are computed; cellar_measure prints them and
 * cellar_create allocates them, so the two cannot differ.
 */
#include <math.h>

#include "error.h"
#include "memory.h"

#define MAX_LAYERS 65536u
#define MAX_SIZE 65536u
#define MAX_CELLS (1u << 30)
#define MAX_UBATCH 65536u
#define MAX_WORKERS 4096u

static cellar_status check_range(uint32_t value, uint32_t max, uint32_t layer, const char *name,
                                 cellar_error *error)
{
    if (value >= 1 && value <= max) return CELLAR_OK;
    CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: %s %u is not in 1..%u", layer, name, value,
            max);
}

static cellar_status check_type(cellar_type type, uint32_t layer, const char *name,
                                cellar_error *error)
{
    if (type == CELLAR_F32 || type == CELLAR_F16) return CELLAR_OK;
    CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: %s %d is not a row type", layer, name,
            (int)type);
}

static cellar_status check_layer(const cellar_layer *layer, uint32_t i, cellar_error *error)
{
    if (layer->struct_size != sizeof *layer)
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: struct_size is %zu, not %zu: use cellar_layer_init", i,
                layer->struct_size, sizeof *layer);
    if (layer->kind != CELLAR_LAYER_ATTENTION)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: kind %d is not known", i, (int)layer->kind);
    CL_TRY(check_range(layer->n_heads, MAX_SIZE, i, "n_heads", error));
    CL_TRY(check_range(layer->n_kv_heads, MAX_SIZE, i, "n_kv_heads", error));
    CL_TRY(check_range(layer->k_size, MAX_SIZE, i, "k_size", error));
    CL_TRY(check_range(layer->v_size, MAX_SIZE, i, "v_size", error));
    if (layer->n_heads % layer->n_kv_heads != 0)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: n_heads %u is not a multiple of n_kv_heads %u",
                i, layer->n_heads, layer->n_kv_heads);
    CL_TRY(check_type(layer->k_type, i, "k_type", error));
    CL_TRY(check_type(layer->v_type, i, "v_type", error));
    if (!isfinite(layer->scale) || layer->scale < 0)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: scale %g is not a number >= 0", i,
                (double)layer->scale);
    return cl_rope_validate(&layer->rope, layer->k_size, i, error);
}

static cellar_status check_config(const cellar_config *config, cellar_error *error)
{
    if (!config) CL_FAIL(error, CELLAR_INVALID, -1, "no configuration");
    if (config->struct_size != sizeof *config)
        CL_FAIL(error, CELLAR_INVALID, -1,
                "config.struct_size is %zu, not %zu: use cellar_config_init", config->struct_size,
                sizeof *config);
    if (config->n_layers == 0 || config->n_layers > MAX_LAYERS)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.n_layers %u is not in 1..%u", config->n_layers,
                MAX_LAYERS);
    if (!config->layers) CL_FAIL(error, CELLAR_INVALID, -1, "config.layers is NULL");
    if (config->n_cells == 0 || config->n_cells > MAX_CELLS)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.n_cells %u is not in 1..%u", config->n_cells,
                MAX_CELLS);
    if (config->n_ubatch == 0 || config->n_ubatch > MAX_UBATCH)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.n_ubatch %u is not in 1..%u", config->n_ubatch,
                MAX_UBATCH);
    if (!config->allocator.allocate != !config->allocator.release)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.allocator needs both allocate and release");
    if (!config->allocator.allocate && config->allocator.resize)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.allocator has resize but not allocate");
    if (config->workers.n > MAX_WORKERS)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.workers.n %u is above %u", config->workers.n,
                MAX_WORKERS);
    if (config->workers.n > 1 && !config->workers.run)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.workers.n is %u but run is NULL",
                config->workers.n);
    for (uint32_t i = 0; i < config->n_layers; i++)
        CL_TRY(check_layer(&config->layers[i], i, error));
    return CELLAR_OK;
}

uint32_t cl_plan_find_rope(const cl_plan *plan, const cellar_config *config, uint32_t layer)
{
    const cellar_layer *wanted = &config->layers[layer];
    for (uint32_t r = 0; r < plan->n_ropes; r++) {
        const cellar_layer *known = &config->layers[plan->rope_layers[r]];
        if (cl_rope_same(&known->rope, known->k_size, &wanted->rope, wanted->k_size)) return r;
    }
    return plan->n_ropes;
}

static cellar_status find_ropes(const cellar_config *config, cl_plan *plan, cellar_error *error)
{
    for (uint32_t i = 0; i < config->n_layers; i++) {
        if (cl_plan_find_rope(plan, config, i) < plan->n_ropes) continue;
        if (plan->n_ropes == CL_MAX_ROPES)
            CL_FAIL(error, CELLAR_INVALID, i, "layer %u: more than %u different rotations", i,
                    CL_MAX_ROPES);
        plan->rope_layers[plan->n_ropes++] = i;
        plan->n_frequencies += cl_rope_pairs(&config->layers[i].rope, config->layers[i].k_size);
    }
    return CELLAR_OK;
}

static bool plan_object(const cellar_config *config, cl_plan *plan)
{
    plan->object_bytes = 0;
    size_t n_layers = config->n_layers;
    return cl_arena_add(&plan->object_bytes, 1, sizeof(struct cellar_memory)) &&
           cl_arena_add(&plan->object_bytes, 1, sizeof(cl_group)) &&
           cl_arena_add(&plan->object_bytes, n_layers, sizeof(cl_layer)) &&
           cl_arena_add(&plan->object_bytes, plan->n_ropes, sizeof(cl_rope)) &&
           cl_arena_add(&plan->object_bytes, plan->n_ropes, sizeof(size_t)) &&
           cl_arena_add(&plan->object_bytes, n_layers, sizeof(uint32_t)) &&
           cl_arena_add(&plan->object_bytes, plan->n_frequencies, sizeof(double));
}

static bool plan_scratch(const cellar_config *config, cl_plan *plan, uint32_t largest_k,
                         uint32_t largest_v)
{
    size_t floats, angles;
    plan->n_workers = config->workers.n > 1 ? config->workers.n : 1;
    return cl_scratch_measure(&plan->scratch, largest_k, largest_v) &&
           cl_checked_mul(plan->scratch.floats, plan->n_workers, &floats) &&
           cl_checked_mul(2 * plan->n_frequencies, config->n_ubatch, &angles) &&
           cl_checked_add(floats, angles, &floats) &&
           cl_checked_mul(floats, sizeof(float), &plan->scratch_bytes);
}

cellar_status cl_config_plan(const cellar_config *config, cl_plan *plan, cellar_error *error)
{
    CL_TRY(check_config(config, error));
    *plan = (cl_plan){0};
    uint32_t largest_k = 0, largest_v = 0;
    bool fits = true;
    for (uint32_t i = 0; fits && i < config->n_layers; i++) {
        const cellar_layer *layer = &config->layers[i];
        cl_rows rows;
        fits = cl_storage_add(&plan->block_bytes, &rows, layer->n_kv_heads, layer->k_size,
                              layer->k_type) &&
               cl_storage_add(&plan->block_bytes, &rows, layer->n_kv_heads, layer->v_size,
                              layer->v_type);
        if (layer->k_size > largest_k) largest_k = layer->k_size;
        if (layer->v_size > largest_v) largest_v = layer->v_size;
    }
    CL_TRY(find_ropes(config, plan, error));
    uint32_t n_blocks = config->n_cells / CL_BLOCK + (config->n_cells % CL_BLOCK != 0);
    fits = fits && cl_storage_measure(plan->block_bytes, n_blocks, &plan->rows_bytes) &&
           cl_cells_measure(config->n_cells, &plan->cells_bytes) && plan_object(config, plan) &&
           plan_scratch(config, plan, largest_k, largest_v);
    if (!fits)
        CL_FAIL(
            error, CELLAR_INVALID, -1,
            "the configuration needs more bytes than an address can count: fewer cells or layers");
    return CELLAR_OK;
}

cellar_status cellar_measure(const cellar_config *config, cellar_sizes *sizes, cellar_error *error)
{
    if (!sizes) CL_FAIL(error, CELLAR_INVALID, -1, "sizes is NULL");
    cl_plan plan;
    CL_TRY(cl_config_plan(config, &plan, error));
    *sizes = (cellar_sizes){0};
    sizes->bytes[CELLAR_BYTES_OBJECT] = plan.object_bytes;
    sizes->bytes[CELLAR_BYTES_CELLS] = plan.cells_bytes;
    sizes->bytes[CELLAR_BYTES_ROWS] = plan.rows_bytes;
    sizes->bytes[CELLAR_BYTES_SCRATCH] = plan.scratch_bytes;
    for (int kind = 0; kind < CELLAR_BYTES_KINDS; kind++)
        sizes->total += sizes->bytes[kind];
    return CELLAR_OK;
}
