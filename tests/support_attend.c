/*
 * support_attend.c: see support_attend.h.
 *
 * What plan.c, memory.c and group_attention.c do for a layer, in the few lines that one layer, one
 * sequence and one micro-batch need.
 */
#include "support_attend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *grab(size_t n, size_t size)
{
    void *block = calloc(n ? n : 1, size);
    if (!block) {
        fprintf(stderr, "support_attend: out of memory\n");
        exit(2);
    }
    return block;
}

/* The largest power of two that divides a size. */
static uint32_t stretch_of(uint32_t size)
{
    return size & (~size + 1);
}

static void make_layer(walk *w)
{
    const cellar_layer *d = &w->description;
    cl_layer *layer = &w->layer;
    *layer = (cl_layer){.n_heads = d->n_heads,
                        .n_kv_heads = d->n_kv_heads,
                        .k_size = d->k_size,
                        .v_size = d->v_size,
                        .scale = d->scale != 0 ? d->scale : 1 / sqrtf((float)d->k_size),
                        .is_causal = d->is_causal,
                        .v_in_k = d->v_in_k,
                        .k = &w->rows[0],
                        .v = d->v_in_k ? NULL : &w->rows[1],
                        .hadamard_k = d->rotate_k ? stretch_of(d->k_size) : 0,
                        .hadamard_v = d->rotate_v ? stretch_of(d->v_size) : 0,
                        .softcap = d->softcap,
                        .sinks = d->sinks,
                        .n_buckets = d->buckets.n,
                        .max_distance = d->buckets.max_distance,
                        .is_bidirectional = d->buckets.is_bidirectional,
                        .bucket_bias = d->buckets.bias};
    if (d->alibi_max_bias > 0) {
        layer->slopes = w->slopes = grab(d->n_heads, sizeof(float));
        cl_attend_slopes(w->slopes, d->n_heads, d->alibi_max_bias);
    }
    w->frequencies = grab(cl_rope_pairs(&d->rope, d->k_size), sizeof(double));
    cl_rope_init(&w->rope, &d->rope, d->k_size, w->frequencies);
}

static void must(bool is_done)
{
    if (is_done) return;
    fprintf(stderr, "support_attend: a description that does not work\n");
    exit(2);
}

static void run_in_order(void *context, cellar_task task, void *argument)
{
    uint32_t n = *(uint32_t *)context;
    for (uint32_t part = n; part-- > 0;)
        task(argument, part, n);
}

void walk_open(walk *w)
{
    const cellar_layer *d = &w->description;
    cellar_allocator none = {NULL, NULL, NULL, NULL};
    cl_alloc_init(&w->alloc, &none, 0);
    cl_kernels_fill(&w->kernels, w->cpu_mask);
    uint32_t store = w->store.read ? 1 : 0, n_blocks = cl_cells_blocks(w->n_cells);
    w->stores[1] = w->store;
    cl_storage_layout rows = {.cells_a_block = CL_BLOCK, .kind = CELLAR_BYTES_ROWS};
    must(cl_storage_add(&rows, &w->rows[0], d->n_kv_heads, d->k_size, d->k_type, store));
    if (!d->v_in_k)
        must(cl_storage_add(&rows, &w->rows[1], d->n_kv_heads, d->v_size, d->v_type, store));
    must(cl_storage_create(&w->group.storage, &rows, w->rows, d->v_in_k ? 1 : 2, w->stores, 2,
                           n_blocks, &w->alloc, NULL) == CELLAR_OK);
    w->group.window = d->window;
    cl_cells *cells = &w->group.sequences.cells;
    cells->points = d->rope.kind == CELLAR_ROPE_MROPE ? grab(n_blocks * CL_BLOCK, sizeof(cl_point))
                                                      : NULL;
    make_layer(w);
    size_t largest_row = w->rows[0].row_bytes;
    if (w->rows[1].row_bytes > largest_row) largest_row = w->rows[1].row_bytes;
    must(cl_scratch_measure(&w->layout, d->k_size, d->v_size, largest_row));
    if (w->n_workers == 0) w->n_workers = 1;
    /* NaN everywhere: room that is read before it is written shows. */
    w->scratch = grab(w->n_workers * w->layout.floats, sizeof(float));
    for (size_t i = 0; i < w->n_workers * w->layout.floats; i++)
        w->scratch[i] = NAN;
}

void walk_close(walk *w)
{
    cl_sweep_free(&w->group.sweep, &w->alloc);
    cl_storage_destroy(&w->group.storage);
    free(w->group.sequences.cells.points);
    free(w->frequencies);
    free(w->slopes);
    free(w->scratch);
}

/* Positions, points, cells and angles of some tokens. */
typedef struct tokens {
    cellar_pos *positions;
    cl_point *points;
    uint32_t *cells, *indices;
    float *angles;
} tokens;

static cl_attention make_call(walk *w, const tokens *t, uint32_t n)
{
    size_t n_angles = 2 * (size_t)w->rope.n_pairs;
    for (uint32_t i = 0; i < n; i++) {
        float *c = t->angles + i * n_angles;
        cl_rope_point_angles(&w->rope, t->positions[i], t->points[i].y, t->points[i].x,
                             w->rope.magnitude, c, c + w->rope.n_pairs);
    }
    return (cl_attention){.layer = &w->layer,
                          .group = &w->group,
                          .rope = &w->rope,
                          .kernels = &w->kernels,
                          .angles = t->angles,
                          .positions = t->positions,
                          .points = t->points,
                          .cells = t->cells,
                          .n_tokens = n,
                          .layout = &w->layout,
                          .scratch = w->scratch,
                          .workers = {w->n_workers, run_in_order, &w->n_workers}};
}

static tokens tokens_for(const walk *w, uint32_t n)
{
    return (tokens){grab(n, sizeof(cellar_pos)), grab(n, sizeof(cl_point)),
                    grab(n, sizeof(uint32_t)), grab(n, sizeof(uint32_t)),
                    grab(n, 2 * sizeof(float) * w->rope.n_pairs)};
}

static void release(tokens *t)
{
    free(t->positions);
    free(t->points);
    free(t->cells);
    free(t->indices);
    free(t->angles);
}

bool walk_store(walk *w, const walk_key *keys, uint32_t n, const float *k, const float *v)
{
    tokens t = tokens_for(w, n);
    for (uint32_t i = 0; i < n; i++) {
        t.positions[i] = keys[i].stored_pos;
        t.points[i] = keys[i].point;
        t.cells[i] = keys[i].cell;
        if (w->group.sequences.cells.points)
            w->group.sequences.cells.points[keys[i].cell] = keys[i].point;
    }
    cl_attention call = make_call(w, &t, n);
    bool is_done = cl_attend_store(&call, k, v);
    release(&t);
    return is_done;
}

bool walk_attend(walk *w, const walk_key *keys, uint32_t n_keys, const walk_query *queries,
                 uint32_t n_queries, const float *q, float *out)
{
    tokens t = tokens_for(w, n_queries);
    cl_runs nothing = {NULL, 0, 0}, runs = {grab(n_keys, sizeof(cl_run)), 0, n_keys};
    int32_t first_query = queries[0].pos;
    for (uint32_t i = 0; i < n_queries; i++) {
        t.positions[i] = queries[i].pos;
        t.points[i] = queries[i].point;
        t.indices[i] = i;
        if (queries[i].pos < first_query) first_query = queries[i].pos;
    }
    for (uint32_t i = 0; i < n_keys; i++)
        cl_runs_append(&runs, (cl_run){.pos = keys[i].pos,
                                       .cell = keys[i].cell,
                                       .len = 1,
                                       .step = 1,
                                       .shift = keys[i].pos - keys[i].stored_pos});
    cl_attention call = make_call(w, &t, n_queries);
    cl_past past = {&runs, &nothing, &w->group.window, first_query};
    cl_sweep *sweep = &w->group.sweep;
    must(cl_sweep_prepare(sweep, &past, 1, n_queries, &w->rope, 1, &w->alloc, NULL) == CELLAR_OK);
    cl_sweep_begin(sweep, 0);
    cl_sweep_add_view(sweep, 0, &past, 0, t.indices, n_queries);
    cl_sweep_finish(sweep);
    bool is_done = cl_attend_attend(&call, q, out);
    release(&t);
    free(runs.items);
    return is_done;
}
