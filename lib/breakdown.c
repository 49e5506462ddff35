/*
 * breakdown.c: what the bytes of a memory are for, item by item.
 *
 * The same walk shows a plan (nothing is allocated) and a memory that lives. It is fed with totals that
 * somebody else has added up, cl_plan_make or the allocator's counts, and names their parts: each
 * group's cells, the rows of each of its layers, the scratch room. What a total has beyond the parts
 * that have a name of their own (tables that lead to the rows, the checkpoints' bookkeeping) is an
 * item too, so that the items of a kind always add up to what cellar_measure and cellar_stats say.
 */
#include "error.h"
#include "memory.h"

typedef struct walk {
    cellar_bytes_visitor visitor;
    void *context;
    uint64_t shown[CELLAR_BYTES_KINDS];
    bool is_over; /* the visitor wants no more */
} walk;

/* Items of no bytes are left out. */
static void show(walk *w, const cellar_bytes *item)
{
    if (w->is_over || item->bytes == 0) return;
    w->shown[item->kind] += item->bytes;
    w->is_over = !w->visitor(w->context, item);
}

/* An item that belongs to a group at most. */
static void show_plain(walk *w, cellar_bytes_kind kind, int32_t group, const char *what,
                       uint64_t bytes)
{
    cellar_bytes item = {.kind = kind, .group = group, .layer = -1, .what = what, .bytes = bytes};
    show(w, &item);
}

/* ---- the rows of one group ------------------------------------------------------------------- */

/* The storage of a group as the walk goes through its layers. */
typedef struct rows_walk {
    walk *walk;
    cl_storage_layout layout; /* of the rows shown so far */
    uint64_t n_blocks;        /* of storage */
    int32_t group, layer;
} rows_walk;

/* One kind of row: what it adds to each block of its store. */
static void show_rows(rows_walk *w, const char *what, const cl_rows *rows)
{
    cl_rows placed;
    size_t before = w->layout.block_bytes[rows->store];
    (void)cl_storage_add(&w->layout, &placed, rows->n_heads, rows->size, rows->type, rows->store);
    cellar_bytes item = {
        .kind = w->layout.kind,
        .group = w->group,
        .layer = w->layer,
        .what = what,
        .type = rows->type,
        .is_callers = rows->store != 0,
        .bytes = (w->layout.block_bytes[rows->store] - before) * w->n_blocks,
    };
    show(w->walk, &item);
}

static rows_walk walk_rows(walk *w, const cl_storage_layout *layout, uint32_t n_blocks,
                           uint32_t group)
{
    rows_walk rows = {.walk = w, .n_blocks = n_blocks, .group = (int32_t)group};
    rows.layout.cells_a_block = layout->cells_a_block;
    rows.layout.kind = layout->kind;
    return rows;
}

/* ---- a plan ---------------------------------------------------------------------------------- */

/* Blocks of storage that a planned group gets: a state is a block of its own. */
static uint32_t planned_blocks(const cl_group_plan *group)
{
    bool is_recurrent = group->kind == CELLAR_LAYER_RECURRENT;
    return cl_storage_round(is_recurrent ? group->n_cells : group->n_blocks);
}

static void show_planned_layer(rows_walk *w, const cl_plan *plan, const cellar_layer *layer)
{
    if (layer->is_external || layer->reads_layer >= 0) return;
    cl_rows rows = {.n_heads = 1, .type = CELLAR_F32};
    if (layer->kind == CELLAR_LAYER_RECURRENT) {
        for (uint32_t i = 0; i < layer->n_states; i++) {
            rows.size = layer->state_sizes[i];
            show_rows(w, "state", &rows);
        }
        return;
    }
    rows.n_heads = layer->n_kv_heads;
    rows.store = cl_plan_find_store(plan, layer);
    rows.size = layer->k_size;
    rows.type = layer->k_type;
    show_rows(w, "K", &rows);
    if (layer->v_in_k) return;
    rows.size = layer->v_size;
    rows.type = layer->v_type;
    show_rows(w, "V", &rows);
}

static void show_planned_group(walk *w, const cellar_config *config, const cl_plan *plan,
                               uint32_t g)
{
    const cl_group_plan *group = &plan->groups[g];
    show_plain(w, CELLAR_BYTES_CELLS, (int32_t)g, "cells", group->cells_bytes);
    uint64_t before = w->shown[group->layout.kind];
    rows_walk rows = walk_rows(w, &group->layout, planned_blocks(group), g);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        if (cl_plan_find_group(plan, &config->layers[i]) != g) continue;
        rows.layer = (int32_t)i;
        show_planned_layer(&rows, plan, &config->layers[i]);
    }
    if (w->is_over) return;
    uint64_t named = w->shown[group->layout.kind] - before;
    show_plain(w, group->layout.kind, (int32_t)g, "table of chunks",
               group->own_bytes + group->callers_bytes - named);
}

/* What the totals hold that has no group of its own. */
static void show_rest(walk *w, const cellar_sizes *sizes)
{
    static const char *const names[CELLAR_BYTES_KINDS] = {
        [CELLAR_BYTES_OBJECT] = "checkpoints", [CELLAR_BYTES_CELLS] = "checkpoints",
        [CELLAR_BYTES_ROWS] = "other rows",    [CELLAR_BYTES_STATES] = "other states",
        [CELLAR_BYTES_SCRATCH] = "scratch",    [CELLAR_BYTES_RUNS] = "runs",
        [CELLAR_BYTES_STEP] = "step",
    };
    for (int kind = 0; kind < CELLAR_BYTES_KINDS && !w->is_over; kind++)
        show_plain(w, (cellar_bytes_kind)kind, -1, names[kind],
                   sizes->bytes[kind] - w->shown[kind]);
}

cellar_status cellar_visit_plan(const cellar_config *config, cellar_bytes_visitor visitor,
                                void *context, cellar_error *error)
{
    if (!visitor) CL_FAIL(error, CELLAR_INVALID, -1, "visitor is NULL");
    cl_plan plan;
    CL_TRY(cl_plan_make(config, &plan, error));
    walk w = {.visitor = visitor, .context = context};
    show_plain(&w, CELLAR_BYTES_OBJECT, -1, "object", plan.object_bytes);
    for (uint32_t g = 0; g < plan.n_groups; g++)
        show_planned_group(&w, config, &plan, g);
    show_rest(&w, &plan.sizes);
    return CELLAR_OK;
}

/* ---- a memory -------------------------------------------------------------------------------- */

static void show_layer(rows_walk *w, const cl_layer *layer)
{
    if (layer->k) show_rows(w, "K", layer->k);
    if (layer->v) show_rows(w, "V", layer->v);
    for (uint32_t i = 0; layer->states && i < layer->n_states; i++)
        show_rows(w, "state", &layer->states[i]);
}

/* Bytes of a group's storage besides the rows: the table that leads to them. */
static uint64_t table_bytes(const cl_storage *storage)
{
    return (uint64_t)storage->chunk_capacity * storage->n_stores * sizeof(cl_buffer);
}

static void show_group(walk *w, const cellar_memory *memory, uint32_t g)
{
    const cl_group *group = &memory->groups[g];
    const cl_storage *storage = &group->storage;
    show_plain(w, CELLAR_BYTES_CELLS, (int32_t)g, "cells", group->sequences.cells.memory_size);
    rows_walk rows = walk_rows(w, &storage->layout, storage->n_blocks, g);
    for (uint32_t i = 0; i < memory->n_layers; i++) {
        const cl_layer *layer = &memory->layers[i];
        if (layer->group != (int32_t)g || layer->source != i) continue;
        rows.layer = (int32_t)i;
        show_layer(&rows, layer);
    }
    show_plain(w, storage->layout.kind, (int32_t)g, "table of chunks", table_bytes(storage));
}

cellar_status cellar_visit_bytes(const cellar_memory *memory, cellar_bytes_visitor visitor,
                                 void *context, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (!visitor) CL_FAIL(error, CELLAR_INVALID, -1, "visitor is NULL");
    cellar_statistics statistics;
    CL_TRY(cellar_stats(memory, &statistics, error));
    walk w = {.visitor = visitor, .context = context};
    show_plain(&w, CELLAR_BYTES_OBJECT, -1, "object", memory->object_bytes);
    for (uint32_t g = 0; g < memory->n_groups; g++)
        show_group(&w, memory, g);
    show_rest(&w, &statistics.sizes);
    return CELLAR_OK;
}
