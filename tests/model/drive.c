/*
 * drive.c: run batches through the real library and take pictures of it. See drive.h.
 *
 * Steps go the straight way here: micro-batches in order, layers in order inside each. The odd
 * orders that the header also allows are for the tests that are about them.
 */
#include "drive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *drive_grab(size_t n, size_t size)
{
    void *block = calloc(n ? n : 1, size);
    if (!block) {
        fprintf(stderr, "test: out of memory\n");
        exit(2);
    }
    return block;
}

void drive_fill(float *to, size_t n, uint64_t key)
{
    uint64_t state = key;
    for (size_t i = 0; i < n; i++)
        to[i] = random_float(&state);
}

static size_t row_size(const cellar_layer *layer, drive_row what)
{
    if (what == DRIVE_Q) return (size_t)layer->n_heads * layer->k_size;
    return (size_t)layer->n_kv_heads * (what == DRIVE_K ? layer->k_size : layer->v_size);
}

void drive_token_row(const drive *d, uint32_t layer, drive_row what, cellar_token token, float *to)
{
    uint64_t key = random_mix(random_mix(d->seed, layer * 3u + what), (uint64_t)(uint32_t)token);
    drive_fill(to, row_size(&d->layers[layer], what), key);
}

cellar_layer drive_layer(uint32_t n_heads, uint32_t n_kv_heads, uint32_t k_size, uint32_t v_size)
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = n_heads;
    layer.n_kv_heads = n_kv_heads;
    layer.k_size = k_size;
    layer.v_size = v_size;
    layer.k_type = layer.v_type = CELLAR_F32;
    return layer;
}

cellar_status drive_open(drive *d, const cellar_config *config, cellar_error *error)
{
    cellar_config full = *config;
    full.n_layers = d->n_layers;
    full.layers = d->layers;
    d->n_ubatch = full.n_ubatch;
    d->out_size = 0;
    for (uint32_t l = 0; l < d->n_layers; l++)
        d->out_size += (size_t)d->layers[l].n_heads * d->layers[l].v_size;
    return cellar_create(&full, &d->memory, error);
}

void drive_close(drive *d)
{
    cellar_destroy(d->memory);
    d->memory = NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The rows of a micro-batch, one after another. */
static float *gather(const drive *d, uint32_t layer, drive_row what, const cellar_ubatch *ubatch,
                     const cellar_token *tokens)
{
    size_t size = row_size(&d->layers[layer], what);
    float *rows = drive_grab(ubatch->n_tokens * size, sizeof *rows);
    for (uint32_t i = 0; i < ubatch->n_tokens; i++)
        drive_token_row(d, layer, what, tokens[ubatch->indices[i]], rows + i * size);
    return rows;
}

/* Spread the results of a micro-batch over out [n_tokens][out_size]. */
static void scatter(const drive *d, uint32_t layer, const cellar_ubatch *ubatch, const float *from,
                    float *out)
{
    size_t skip = 0, size = (size_t)d->layers[layer].n_heads * d->layers[layer].v_size;
    for (uint32_t l = 0; l < layer; l++)
        skip += (size_t)d->layers[l].n_heads * d->layers[l].v_size;
    for (uint32_t i = 0; i < ubatch->n_tokens; i++)
        memcpy(out + ubatch->indices[i] * d->out_size + skip, from + i * size, size * sizeof *from);
}

static cellar_status run_layer(drive *d, uint32_t number, const cellar_ubatch *ubatch,
                               uint32_t layer, const cellar_token *tokens, float *out,
                               cellar_error *error)
{
    float *k = gather(d, layer, DRIVE_K, ubatch, tokens);
    float *v = gather(d, layer, DRIVE_V, ubatch, tokens);
    cellar_status status = cellar_store(d->memory, number, layer, k, v, error);
    free(k);
    free(v);
    if (status != CELLAR_OK || !out) return status;
    size_t size = (size_t)d->layers[layer].n_heads * d->layers[layer].v_size;
    float *q = gather(d, layer, DRIVE_Q, ubatch, tokens);
    float *result = drive_grab(ubatch->n_tokens * size, sizeof *result);
    for (size_t i = 0; i < ubatch->n_tokens * size; i++)
        result[i] = NAN; /* what is not written must not pass for a result */
    status = cellar_attend(d->memory, number, layer, q, result, error);
    if (status == CELLAR_OK) scatter(d, layer, ubatch, result, out);
    free(q);
    free(result);
    return status;
}

static cellar_status compute(drive *d, const cellar_batch *batch, float *out, cellar_error *error)
{
    uint32_t n = cellar_count_ubatches(d->memory);
    for (uint32_t u = 0; u < n; u++) {
        cellar_ubatch ubatch;
        cellar_status status = cellar_get_ubatch(d->memory, u, &ubatch, error);
        for (uint32_t l = 0; l < d->n_layers && status == CELLAR_OK; l++)
            status = run_layer(d, u, &ubatch, l, batch->tokens, out, error);
        if (status != CELLAR_OK) return status;
    }
    return CELLAR_OK;
}

cellar_status drive_step(drive *d, const cellar_batch *batch, float *out, cellar_error *error)
{
    cellar_status status = cellar_begin(d->memory, batch, error);
    if (status != CELLAR_OK) return status;
    status = compute(d, batch, out, error);
    if (status == CELLAR_OK) status = cellar_commit(d->memory, error);
    if (status != CELLAR_OK) cellar_abort(d->memory);
    return status;
}

cellar_status drive_append(drive *d, cellar_seq seq, cellar_token first, uint32_t n, float *out)
{
    cellar_token *tokens = drive_grab(n, sizeof *tokens);
    cellar_seq *seqs = drive_grab(n, sizeof *seqs);
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = first + (cellar_token)i;
        seqs[i] = seq;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    cellar_status status = drive_step(d, &batch, out, NULL);
    free(tokens);
    free(seqs);
    return status;
}

cellar_status drive_append_singly(drive *d, cellar_seq seq, cellar_token first, uint32_t n,
                                  float *out)
{
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < n && status == CELLAR_OK; i++)
        status = drive_append(d, seq, first + (cellar_token)i, 1,
                              out ? out + i * d->out_size : NULL);
    return status;
}

cellar_status drive_probe(drive *d, cellar_seq seq, cellar_token token, float *out)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.tokens = &token;
    batch.seqs = &seq;
    cellar_status status = cellar_begin(d->memory, &batch, NULL);
    if (status != CELLAR_OK) return status;
    status = compute(d, &batch, out, NULL);
    cellar_abort(d->memory);
    return status;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static bool keep_run(void *context, const cellar_run *run)
{
    drive_snapshot *s = context;
    if (s->n_runs == s->run_capacity) {
        s->run_capacity = s->run_capacity * 2 + 64;
        cellar_run *runs = drive_grab(s->run_capacity, sizeof *runs);
        if (s->n_runs > 0) memcpy(runs, s->runs, s->n_runs * sizeof *runs);
        free(s->runs);
        s->runs = runs;
    }
    s->runs[s->n_runs++] = *run;
    return true;
}

static bool keep_cell(void *context, const cellar_cell *cell)
{
    drive_snapshot *s = context;
    if (s->n_cells == s->cell_capacity) {
        s->cell_capacity = s->cell_capacity * 2 + 64;
        cellar_cell *cells = drive_grab(s->cell_capacity, sizeof *cells);
        if (s->n_cells > 0) memcpy(cells, s->cells, s->n_cells * sizeof *cells);
        free(s->cells);
        s->cells = cells;
    }
    s->cells[s->n_cells++] = *cell;
    return true;
}

static bool comes_before(const cellar_run *a, const cellar_run *b)
{
    return a->seq < b->seq;
}

/* Sort by sequence, leaving the order inside each (a merge sort, bottom up). */
static void sort_runs(cellar_run *runs, uint32_t n)
{
    uint32_t width = 1;
    cellar_run *other = drive_grab(n, sizeof *other);
    bool is_sorted = true;
    for (uint32_t i = 1; i < n; i++)
        is_sorted &= !comes_before(&runs[i], &runs[i - 1]);
    for (; width < n && !is_sorted; width *= 2) {
        for (uint32_t first = 0; first < n; first += 2 * width) {
            uint32_t a = first, middle = first + width < n ? first + width : n, b = middle;
            uint32_t end = first + 2 * width < n ? first + 2 * width : n;
            for (uint32_t i = first; i < end; i++)
                other[i] = b < end && (a >= middle || comes_before(&runs[b], &runs[a])) ? runs[b++]
                                                                                        : runs[a++];
        }
        memcpy(runs, other, n * sizeof *runs);
    }
    free(other);
}

bool drive_snapshot_take(drive_snapshot *snapshot, const cellar_memory *memory)
{
    cellar_error error = {0};
    snapshot->n_runs = snapshot->n_cells = 0;
    memset(&snapshot->stats, 0, sizeof snapshot->stats);
    if (cellar_visit_runs(memory, -1, keep_run, snapshot, &error) != CELLAR_OK ||
        cellar_visit_cells(memory, keep_cell, snapshot, &error) != CELLAR_OK ||
        cellar_stats(memory, &snapshot->stats, &error) != CELLAR_OK) {
        fprintf(stderr, "snapshot: %s\n", error.message);
        return false;
    }
    sort_runs(snapshot->runs, snapshot->n_runs);
    return true;
}

void drive_snapshot_free(drive_snapshot *snapshot)
{
    free(snapshot->runs);
    free(snapshot->cells);
    memset(snapshot, 0, sizeof *snapshot);
}

static bool same_run(const cellar_run *a, const cellar_run *b)
{
    return a->seq == b->seq && a->pos == b->pos && a->cell == b->cell && a->len == b->len &&
           a->step == b->step && a->shift == b->shift;
}

static bool same_cell(const cellar_cell *a, const cellar_cell *b)
{
    return a->cell == b->cell && a->refs == b->refs && a->stored_pos == b->stored_pos &&
           a->token == b->token;
}

static bool same_counts(const cellar_statistics *a, const cellar_statistics *b)
{
    return a->n_cells == b->n_cells && a->n_used == b->n_used && a->n_free == b->n_free &&
           a->n_shared == b->n_shared && a->longest_free == b->longest_free &&
           a->n_sequences == b->n_sequences && a->n_runs == b->n_runs;
}

bool drive_snapshot_equal(const drive_snapshot *a, const drive_snapshot *b, char *why)
{
    for (uint32_t i = 0; i < a->n_runs && i < b->n_runs; i++)
        if (!same_run(&a->runs[i], &b->runs[i])) {
            snprintf(why, 200, "run %u: sequence %d position %d cell %u len %u became %d %d %u %u",
                     i, a->runs[i].seq, a->runs[i].pos, a->runs[i].cell, a->runs[i].len,
                     b->runs[i].seq, b->runs[i].pos, b->runs[i].cell, b->runs[i].len);
            return false;
        }
    for (uint32_t i = 0; i < a->n_cells && i < b->n_cells; i++)
        if (!same_cell(&a->cells[i], &b->cells[i])) {
            snprintf(why, 200, "cell %u refs %u stored at %d became %u %u %d", a->cells[i].cell,
                     a->cells[i].refs, a->cells[i].stored_pos, b->cells[i].cell, b->cells[i].refs,
                     b->cells[i].stored_pos);
            return false;
        }
    if (a->n_runs != b->n_runs || a->n_cells != b->n_cells || !same_counts(&a->stats, &b->stats)) {
        snprintf(why, 200, "%u runs, %u cells became %u, %u; used %u became %u", a->n_runs,
                 a->n_cells, b->n_runs, b->n_cells, a->stats.n_used, b->stats.n_used);
        return false;
    }
    return true;
}
