/*
 * engine_memory.c: the memory that an engine makes: the model's layers as the options want them.
 *
 * The same description is made whether a memory is planned or created, so a plan is exact. Types,
 * rotation and context are options; everything else about a layer is the model's.
 */
#include "engine/engine_memory.h"

#include <inttypes.h>
#include <stdlib.h>

#include "report.h"

uint32_t engine_usable_ubatch(const engine_options *options)
{
    return options->n_ubatch < options->n_cells ? options->n_ubatch : options->n_cells;
}

/* What the memory of an engine has to be; `layers` are freed by whoever had them made. */
typedef struct memory_description {
    cellar_config config; /* the workers' context is missing */
    cellar_layer *layers; /* [n_layers], which config.layers points to */
} memory_description;

static cellar_status describe_memory(const model *m, const engine_options *options,
                                     memory_description *out, cellar_error *error)
{
    uint32_t n_layers = m->n_memory_layers, n_pools = options->n_pools > 0 ? options->n_pools : 1;
    out->layers = malloc(n_layers * sizeof *out->layers);
    if (out->layers == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %" PRIu32 " layers", n_layers);
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        out->layers[i] = m->memory_layers[i];
        out->layers[i].k_type = options->k_type;
        out->layers[i].v_type = options->v_type;
        if (m->near_divisors != NULL && options->n_cells / n_pools <= m->near_context) {
            out->layers[i].rope.factors = m->near_divisors;
        }
        /* A row that is both K and V cannot be turned, and a state is no row. */
        if (out->layers[i].kind == CELLAR_LAYER_ATTENTION && !out->layers[i].v_in_k) {
            out->layers[i].rotate_k = options->rotate_k;
            out->layers[i].rotate_v = options->rotate_v;
        }
    }
    out->config = cellar_config_init();
    out->config.n_layers = n_layers;
    out->config.layers = out->layers;
    out->config.n_cells = options->n_cells;
    out->config.n_pools = options->n_pools;
    out->config.split = options->split;
    out->config.n_ubatch = engine_usable_ubatch(options);
    out->config.cpu_mask = options->cpu_mask;
    out->config.n_sequences = options->n_sequences > 0 ? options->n_sequences : options->n_pools;
    out->config.is_window_full = options->is_window_full;
    out->config.rollback_bytes = options->rollback_bytes;
    out->config.checkpoint_bytes = options->checkpoint_bytes;
    out->config.checkpoint_interval = options->checkpoint_interval;
    out->config.budget_bytes = options->budget_bytes;
    out->config.workers.n = options->n_threads;
    out->config.workers.run = block_workers_run;
    return CELLAR_OK;
}

/* How much was asked for in vain, and what to do about it. */
static cellar_status report_no_room(const cellar_config *config, cellar_error *error)
{
    cellar_sizes sizes;
    cellar_status status = cellar_measure(config, &sizes, error);
    if (status != CELLAR_OK) {
        return status;
    }
    return report(error, CELLAR_NO_MEMORY, -1,
                  "no memory for %" PRIu32 " cells, which take %.1f MiB: use fewer (-c) or smaller "
                  "rows (--cache-type-k, --cache-type-v)",
                  config->n_cells, (double)sizes.total / (1024.0 * 1024.0));
}

cellar_status engine_make_memory(const model *m, const engine_options *options,
                                 block_workers *workers, cellar_memory **out, cellar_error *error)
{
    memory_description its;
    cellar_status status = describe_memory(m, options, &its, error);
    if (status != CELLAR_OK) {
        return status;
    }
    its.config.workers.context = workers;
    status = cellar_create(&its.config, out, error);
    if (status == CELLAR_NO_MEMORY) {
        status = report_no_room(&its.config, error);
    }
    free(its.layers);
    return status;
}

cellar_status engine_plan(const model *m, const engine_options *options,
                          cellar_bytes_visitor visitor, void *context, cellar_error *error)
{
    memory_description its;
    cellar_status status = describe_memory(m, options, &its, error);
    if (status == CELLAR_OK) {
        status = cellar_visit_plan(&its.config, visitor, context, error);
        free(its.layers);
    }
    return status;
}
