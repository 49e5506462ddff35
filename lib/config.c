/*
 * config.c: is a configuration sound?
 *
 * Everything a caller can get wrong is found here, before any size is computed (plan.c), and named: the
 * layer, the field, the value, what is allowed. What passes here cannot make later code overflow,
 * divide by zero or read outside an array.
 */
#include <math.h>

#include "error.h"
#include "memory.h"

#define MAX_LAYERS 65536u
#define MAX_SIZE 65536u
#define MAX_CELLS (1u << 30)
#define MAX_UBATCH 65536u
#define MAX_WORKERS 4096u
#define MAX_POOLS 65536u
#define MAX_SEQUENCES (1u << 20)
#define MAX_STATES 64u
#define MAX_STATE_SIZE (1u << 28)
#define MAX_BUCKETS 4096u

static cellar_status check_range(uint32_t value, uint32_t max, uint32_t layer, const char *name,
                                 cellar_error *error)
{
    if (value >= 1 && value <= max) return CELLAR_OK;
    CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: %s %u is not in 1..%u", layer, name, value,
            max);
}

static cellar_status check_type(cellar_type type, uint32_t size, uint32_t layer, const char *name,
                                cellar_error *error)
{
    uint32_t block = cellar_type_block(type);
    if (block == 0)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: %s_type %d is not a row type", layer, name,
                (int)type);
    if (size % block != 0)
        CL_FAIL(
            error, CELLAR_INVALID, layer,
            "layer %u: %s_size %u is not a multiple of %u, the block of %s: use f16, bf16 or f32",
            layer, name, size, block, cellar_type_name(type));
    return CELLAR_OK;
}

static cellar_status check_window(const cellar_window *window, uint32_t layer, cellar_error *error)
{
    if (window->kind == CELLAR_WINDOW_NONE) return CELLAR_OK;
    if (window->kind != CELLAR_WINDOW_STANDARD && window->kind != CELLAR_WINDOW_CHUNKED &&
        window->kind != CELLAR_WINDOW_SYMMETRIC)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: window.kind %d is not known", layer,
                (int)window->kind);
    CL_TRY(check_range(window->size, MAX_CELLS, layer, "window.size", error));
    if (window->n_sinks > MAX_CELLS)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: window.n_sinks %u is above %u", layer,
                window->n_sinks, MAX_CELLS);
    return CELLAR_OK;
}

static cellar_status check_buckets(const cellar_buckets *buckets, uint32_t layer,
                                   cellar_error *error)
{
    if (buckets->n == 0) return CELLAR_OK;
    uint32_t exact = buckets->n / 2 / (buckets->is_bidirectional ? 2 : 1);
    if (buckets->n > MAX_BUCKETS || buckets->n % 2 != 0)
        CL_FAIL(error, CELLAR_INVALID, layer,
                "layer %u: buckets.n %u is not an even number of at most %u", layer, buckets->n,
                MAX_BUCKETS);
    if (buckets->max_distance <= exact || buckets->max_distance > MAX_CELLS)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: buckets.max_distance %u is not in %u..%u",
                layer, buckets->max_distance, exact + 1, MAX_CELLS);
    if (!buckets->bias)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: buckets.n without buckets.bias", layer);
    return CELLAR_OK;
}

static cellar_status check_features(const cellar_layer *layer, uint32_t i, cellar_error *error)
{
    if (!isfinite(layer->scale) || layer->scale < 0)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: scale %g is not a number >= 0", i,
                (double)layer->scale);
    if (!isfinite(layer->softcap) || layer->softcap < 0)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: softcap %g is not a number >= 0", i,
                (double)layer->softcap);
    if (!isfinite(layer->alibi_max_bias) || layer->alibi_max_bias < 0)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: alibi_max_bias %g is not a number >= 0", i,
                (double)layer->alibi_max_bias);
    CL_TRY(check_buckets(&layer->buckets, i, error));
    if (!layer->v_in_k) return CELLAR_OK;
    if (layer->v_size > layer->k_size)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: v_in_k, but v_size %u is above k_size %u", i,
                layer->v_size, layer->k_size);
    if (layer->rotate_k || layer->rotate_v)
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: v_in_k cannot be used with rotate_k or rotate_v", i);
    if (layer->rope.kind != CELLAR_ROPE_NONE && layer->rope.first < layer->v_size)
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: v_in_k, but rope.first %u lies inside V, the first %u elements", i,
                layer->rope.first, layer->v_size);
    return CELLAR_OK;
}

static cellar_status check_attention(const cellar_layer *layer, uint32_t i, cellar_error *error)
{
    CL_TRY(check_range(layer->n_heads, MAX_SIZE, i, "n_heads", error));
    CL_TRY(check_range(layer->n_kv_heads, MAX_SIZE, i, "n_kv_heads", error));
    CL_TRY(check_range(layer->k_size, MAX_SIZE, i, "k_size", error));
    CL_TRY(check_range(layer->v_size, MAX_SIZE, i, "v_size", error));
    if (layer->n_heads % layer->n_kv_heads != 0)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: n_heads %u is not a multiple of n_kv_heads %u",
                i, layer->n_heads, layer->n_kv_heads);
    CL_TRY(check_type(layer->k_type, layer->k_size, i, "k", error));
    if (!layer->v_in_k) CL_TRY(check_type(layer->v_type, layer->v_size, i, "v", error));
    CL_TRY(check_window(&layer->window, i, error));
    CL_TRY(cl_rope_validate(&layer->rope, layer->k_size, i, error));
    return check_features(layer, i, error);
}

static cellar_status check_recurrent(const cellar_layer *layer, uint32_t i, cellar_error *error)
{
    CL_TRY(check_range(layer->n_states, MAX_STATES, i, "n_states", error));
    if (!layer->state_sizes) CL_FAIL(error, CELLAR_INVALID, i, "layer %u: state_sizes is NULL", i);
    for (uint32_t t = 0; t < layer->n_states; t++)
        CL_TRY(check_range(layer->state_sizes[t], MAX_STATE_SIZE, i, "state_sizes[]", error));
    return CELLAR_OK;
}

static cellar_status check_store(const cellar_layer *layer, uint32_t i, cellar_error *error)
{
    const cellar_row_store *store = layer->store;
    if (!store) return CELLAR_OK;
    if (layer->is_external || layer->kind != CELLAR_LAYER_ATTENTION)
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: a store is for attention layers that are not "
                "external",
                i);
    if (!store->allocate || !store->release || !store->read || !store->write || !store->copy ||
        !store->clear)
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: the store lacks a function (only address may be NULL)", i);
    return CELLAR_OK;
}

static cellar_status check_layer(const cellar_layer *layer, uint32_t i, cellar_error *error)
{
    if (layer->struct_size != sizeof *layer)
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: struct_size is %zu, not %zu: use cellar_layer_init", i,
                layer->struct_size, sizeof *layer);
    CL_TRY(check_store(layer, i, error));
    switch (layer->kind) {
    case CELLAR_LAYER_ATTENTION:
        return check_attention(layer, i, error);
    case CELLAR_LAYER_RECURRENT:
        return check_recurrent(layer, i, error);
    case CELLAR_LAYER_NONE:
        return CELLAR_OK;
    }
    CL_FAIL(error, CELLAR_INVALID, i, "layer %u: kind %d is not known", i, (int)layer->kind);
}

static bool same_window(const cellar_window *a, const cellar_window *b)
{
    if (a->kind != b->kind) return false;
    return a->kind == CELLAR_WINDOW_NONE || (a->size == b->size && a->n_sinks == b->n_sinks);
}

/* A layer that reads another's rows must find there what it expects. */
static cellar_status check_reading(const cellar_config *config, uint32_t i, cellar_error *error)
{
    const cellar_layer *layer = &config->layers[i];
    if (layer->reads_layer == -1 || layer->kind != CELLAR_LAYER_ATTENTION) return CELLAR_OK;
    if (layer->reads_layer < 0 || (uint32_t)layer->reads_layer >= config->n_layers)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: reads_layer %d is not a layer", i,
                (int)layer->reads_layer);
    const cellar_layer *source = &config->layers[layer->reads_layer];
    if (source->kind != CELLAR_LAYER_ATTENTION || source->reads_layer != -1)
        CL_FAIL(error, CELLAR_INVALID, i, "layer %u: reads_layer %d stores no rows of its own", i,
                (int)layer->reads_layer);
    bool is_alike = layer->n_kv_heads == source->n_kv_heads && layer->k_size == source->k_size &&
                    layer->v_size == source->v_size && layer->v_in_k == source->v_in_k &&
                    layer->rotate_k == source->rotate_k && layer->rotate_v == source->rotate_v &&
                    layer->is_external == source->is_external;
    if (!is_alike)
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: heads, sizes or rotations differ from those of layer %d, which it reads",
                i, (int)layer->reads_layer);
    if (!cl_rope_same(&layer->rope, layer->k_size, &source->rope, source->k_size))
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: rope differs from that of layer %d, which it "
                "reads",
                i, (int)layer->reads_layer);
    if (!same_window(&layer->window, &source->window))
        CL_FAIL(error, CELLAR_INVALID, i,
                "layer %u: window differs from that of layer %d, which it "
                "reads",
                i, (int)layer->reads_layer);
    return CELLAR_OK;
}

static cellar_status check_pools(const cellar_config *config, cellar_error *error)
{
    if (config->n_pools == 0 || config->n_pools > MAX_POOLS || config->n_pools > config->n_cells)
        CL_FAIL(error, CELLAR_INVALID, -1,
                "config.n_pools %u is not in 1..%u, or there are fewer cells", config->n_pools,
                MAX_POOLS);
    uint64_t sum = 0;
    for (uint32_t p = 0; config->pool_cells && p < config->n_pools; p++) {
        if (config->pool_cells[p] == 0)
            CL_FAIL(error, CELLAR_INVALID, p, "config.pool_cells[%u] is 0", p);
        sum += config->pool_cells[p];
    }
    if (config->pool_cells && sum != config->n_cells)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.pool_cells add up to %llu, not to n_cells %u",
                (unsigned long long)sum, config->n_cells);
    return CELLAR_OK;
}

static cellar_status check_policies(const cellar_config *config, cellar_error *error)
{
    if ((uint32_t)config->split > CELLAR_SPLIT_BY_SEQUENCE)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.split %d is not known", (int)config->split);
    if (config->n_sequences == 0 || config->n_sequences > MAX_SEQUENCES)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.n_sequences %u is not in 1..%u",
                config->n_sequences, MAX_SEQUENCES);
    if (config->checkpoint_interval > MAX_CELLS)
        CL_FAIL(error, CELLAR_INVALID, -1, "config.checkpoint_interval %u is above %u",
                config->checkpoint_interval, MAX_CELLS);
    if (!(config->compaction_threshold >= 0 && config->compaction_threshold <= 1))
        CL_FAIL(error, CELLAR_INVALID, -1, "config.compaction_threshold %g is not in 0..1",
                (double)config->compaction_threshold);
    bool is_recurrent = false;
    for (uint32_t i = 0; i < config->n_layers; i++)
        is_recurrent = is_recurrent || config->layers[i].kind == CELLAR_LAYER_RECURRENT;
    if (is_recurrent && config->split == CELLAR_SPLIT_SIMPLE)
        CL_FAIL(
            error, CELLAR_INVALID, -1,
            "config.split SIMPLE mixes sequences, which recurrent layers cannot read: use EQUAL");
    return CELLAR_OK;
}

static cellar_status check_callbacks(const cellar_config *config, cellar_error *error)
{
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
    return CELLAR_OK;
}

cellar_status cl_config_check(const cellar_config *config, cellar_error *error)
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
    CL_TRY(check_callbacks(config, error));
    CL_TRY(check_pools(config, error));
    for (uint32_t i = 0; i < config->n_layers; i++)
        CL_TRY(check_layer(&config->layers[i], i, error));
    for (uint32_t i = 0; i < config->n_layers; i++)
        CL_TRY(check_reading(config, i, error));
    return check_policies(config, error);
}
