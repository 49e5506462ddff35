/*
 * play.c: run batches through memories of several groups. See play.h.
 *
 * Micro-batches in order, and all layers of one before the next: the order that every memory
 * accepts. A state is computed in a buffer of its own and then written to each target that wants
 * it, because a source may be a target too.
 */
#include "play.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

cellar_layer play_recurrent_layer(const uint32_t *sizes, uint32_t n)
{
    cellar_layer layer = cellar_layer_init();
    layer.kind = CELLAR_LAYER_RECURRENT;
    layer.n_states = n;
    layer.state_sizes = sizes;
    return layer;
}

static size_t state_size(const cellar_layer *layer)
{
    size_t size = 0;
    for (uint32_t t = 0; layer->kind == CELLAR_LAYER_RECURRENT && t < layer->n_states; t++)
        size += layer->state_sizes[t];
    return size;
}

static size_t layer_row(const cellar_layer *layer)
{
    if (layer->kind == CELLAR_LAYER_RECURRENT) return state_size(layer);
    if (layer->kind == CELLAR_LAYER_NONE) return 0;
    return (size_t)layer->n_heads * layer->v_size;
}

uint64_t play_state_bytes(const drive *d)
{
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < d->n_layers; l++)
        bytes += state_size(&d->layers[l]) * sizeof(float);
    return bytes;
}

size_t play_row_size(const drive *d)
{
    size_t size = 0;
    for (uint32_t l = 0; l < d->n_layers; l++)
        size += layer_row(&d->layers[l]);
    return size;
}

/* ---- recurrent layers ------------------------------------------------------------------------ */

/* One token goes through one tensor. */
static void advance(float *state, uint32_t size, uint64_t key)
{
    float left = state[size - 1];
    for (uint32_t i = 0; i < size; i++) {
        float old = state[i];
        state[i] = 0.5f * old + 0.25f * left + random_float(&key);
        left = old;
    }
}

/* Copy a layer's part of a state between the memory and a buffer. False: there is no such state. */
static bool move_state(const drive *d, uint32_t layer, uint32_t state, float *buffer, bool is_load)
{
    const cellar_layer *l = &d->layers[layer];
    for (uint32_t t = 0; t < l->n_states; buffer += l->state_sizes[t], t++) {
        float *data = cellar_state_data(d->memory, state, layer, t);
        if (!data) return false;
        if (is_load)
            memcpy(buffer, data, l->state_sizes[t] * sizeof *data);
        else
            memcpy(data, buffer, l->state_sizes[t] * sizeof *data);
    }
    return true;
}

static void read_token(const drive *d, uint32_t layer, cellar_token token, float *state)
{
    const cellar_layer *l = &d->layers[layer];
    for (uint32_t t = 0; t < l->n_states; state += l->state_sizes[t], t++)
        advance(state, l->state_sizes[t],
                random_mix(random_mix(d->seed, 1000 + layer * 64u + t), (uint64_t)(uint32_t)token));
}

/* rows [n_tokens of the micro-batch][state] get the state after each token. */
static cellar_status run_segment(drive *d, uint32_t u, uint32_t s, uint32_t layer,
                                 const cellar_ubatch *ubatch, const cellar_token *tokens,
                                 float *rows, cellar_error *error)
{
    cellar_states states;
    cellar_status status = cellar_get_states(d->memory, u, s, &states, error);
    if (status != CELLAR_OK) return status;
    const cellar_segment segment = ubatch->segments[s];
    size_t size = state_size(&d->layers[layer]);
    float *state = drive_grab(size, sizeof *state);
    bool is_fine =
        states.n_targets >= 1 && states.after[states.n_targets - 1] == segment.n_tokens &&
        (states.source == CELLAR_NO_STATE || move_state(d, layer, states.source, state, true));
    uint32_t target = 0;
    for (uint32_t i = 0; i < segment.n_tokens && is_fine; i++) {
        read_token(d, layer, tokens[ubatch->indices[segment.first + i]], state);
        memcpy(rows + (segment.first + i) * size, state, size * sizeof *state);
        for (; target < states.n_targets && states.after[target] == i + 1 && is_fine; target++)
            is_fine = move_state(d, layer, states.targets[target], state, false);
    }
    free(state);
    return is_fine && target == states.n_targets ? CELLAR_OK : CELLAR_CORRUPT;
}

static cellar_status run_recurrent(drive *d, uint32_t u, uint32_t layer,
                                   const cellar_ubatch *ubatch, const cellar_token *tokens,
                                   float *rows, cellar_error *error)
{
    for (uint32_t s = 0; s < ubatch->n_segments; s++) {
        cellar_status status = run_segment(d, u, s, layer, ubatch, tokens, rows, error);
        if (status != CELLAR_OK) return status;
    }
    return cellar_confirm(d->memory, u, layer, error);
}

/* ---- attention layers ------------------------------------------------------------------------ */

static float *gather(const drive *d, uint32_t layer, drive_row what, size_t size,
                     const cellar_ubatch *ubatch, const cellar_token *tokens)
{
    float *rows = drive_grab(ubatch->n_tokens * size, sizeof *rows);
    for (uint32_t i = 0; i < ubatch->n_tokens; i++)
        drive_token_row(d, layer, what, tokens[ubatch->indices[i]], rows + i * size);
    return rows;
}

static cellar_status run_attention(drive *d, uint32_t u, uint32_t layer,
                                   const cellar_ubatch *ubatch, const cellar_token *tokens,
                                   float *rows, cellar_error *error)
{
    const cellar_layer *l = &d->layers[layer];
    cellar_status status = CELLAR_OK;
    if (l->reads_layer < 0) {
        float *k = gather(d, layer, DRIVE_K, (size_t)l->n_kv_heads * l->k_size, ubatch, tokens);
        float *v = gather(d, layer, DRIVE_V, (size_t)l->n_kv_heads * l->v_size, ubatch, tokens);
        status = cellar_store(d->memory, u, layer, k, l->v_in_k ? NULL : v, error);
        free(k);
        free(v);
    }
    if (status != CELLAR_OK) return status;
    float *q = gather(d, layer, DRIVE_Q, (size_t)l->n_heads * l->k_size, ubatch, tokens);
    status = cellar_attend(d->memory, u, layer, q, rows, error);
    free(q);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static cellar_status run_layer(drive *d, uint32_t u, uint32_t layer, const cellar_ubatch *ubatch,
                               const cellar_token *tokens, float *rows, cellar_error *error)
{
    switch (d->layers[layer].kind) {
    case CELLAR_LAYER_RECURRENT:
        return run_recurrent(d, u, layer, ubatch, tokens, rows, error);
    case CELLAR_LAYER_ATTENTION:
        return run_attention(d, u, layer, ubatch, tokens, rows, error);
    default:
        return CELLAR_OK;
    }
}

static cellar_status run_ubatch(drive *d, uint32_t u, const cellar_token *tokens, float *out,
                                cellar_error *error)
{
    cellar_ubatch ubatch;
    cellar_status status = cellar_get_ubatch(d->memory, u, &ubatch, error);
    size_t skip = 0, all = play_row_size(d);
    for (uint32_t l = 0; l < d->n_layers && status == CELLAR_OK; l++) {
        size_t size = layer_row(&d->layers[l]);
        float *rows = drive_grab(ubatch.n_tokens * size, sizeof *rows);
        for (size_t i = 0; i < ubatch.n_tokens * size; i++)
            rows[i] = NAN;
        status = run_layer(d, u, l, &ubatch, tokens, rows, error);
        for (uint32_t i = 0; i < ubatch.n_tokens && out; i++)
            memcpy(out + ubatch.indices[i] * all + skip, rows + i * size, size * sizeof *rows);
        skip += size;
        free(rows);
    }
    return status;
}

cellar_status play_compute(drive *d, const cellar_batch *batch, float *out, cellar_error *error)
{
    cellar_status status = cellar_begin(d->memory, batch, error);
    if (status != CELLAR_OK) return status;
    uint32_t n = cellar_count_ubatches(d->memory);
    for (uint32_t u = 0; u < n && status == CELLAR_OK; u++)
        status = run_ubatch(d, u, batch->tokens, out, error);
    if (status != CELLAR_OK) cellar_abort(d->memory);
    return status;
}

cellar_status play_step(drive *d, const cellar_batch *batch, float *out, cellar_error *error)
{
    cellar_status status = play_compute(d, batch, out, error);
    if (status != CELLAR_OK) return status;
    status = cellar_commit(d->memory, error);
    if (status != CELLAR_OK) cellar_abort(d->memory);
    return status;
}

cellar_status play_append(drive *d, cellar_seq seq, cellar_token first, uint32_t n, float *out,
                          cellar_error *error)
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
    cellar_status status = play_step(d, &batch, out, error);
    free(tokens);
    free(seqs);
    return status;
}

cellar_status play_probe(drive *d, cellar_seq seq, cellar_token token, float *out)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    batch.tokens = &token;
    batch.seqs = &seq;
    cellar_status status = play_compute(d, &batch, out, NULL);
    if (status == CELLAR_OK) cellar_abort(d->memory);
    return status;
}

/* ---- looking --------------------------------------------------------------------------------- */

typedef struct cell_count {
    uint32_t group, pool, n;
} cell_count;

static bool count_cell(void *context, const cellar_cell *cell)
{
    cell_count *count = context;
    count->n += cell->group == count->group &&
                (count->pool == UINT32_MAX || cell->pool == count->pool);
    return true;
}

uint32_t play_count_cells(const drive *d, uint32_t layer, uint32_t pool)
{
    cell_count count = {(uint32_t)cellar_group_of_layer(d->memory, layer), pool, 0};
    if (cellar_visit_cells(d->memory, count_cell, &count, NULL) != CELLAR_OK) return UINT32_MAX;
    return count.n;
}

typedef struct extent_search {
    uint32_t group;
    play_extent extent;
} extent_search;

static bool widen(void *context, const cellar_run *run)
{
    extent_search *search = context;
    if (run->group != search->group) return true;
    play_extent *e = &search->extent;
    cellar_pos last = run->pos + (cellar_pos)((run->len - 1) * run->step);
    if (e->n == 0 || run->pos < e->min) e->min = run->pos;
    if (e->n == 0 || last > e->max) e->max = last;
    e->n += run->len;
    return true;
}

play_extent play_group_extent(const drive *d, uint32_t layer, cellar_seq seq)
{
    extent_search search = {(uint32_t)cellar_group_of_layer(d->memory, layer), {0, -1, -1}};
    if (cellar_visit_runs(d->memory, seq, widen, &search, NULL) != CELLAR_OK)
        search.extent.n = UINT32_MAX;
    return search.extent;
}

typedef struct checkpoint_list {
    cellar_pos *positions;
    uint32_t n, capacity;
} checkpoint_list;

static bool keep_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    checkpoint_list *list = context;
    if (list->n < list->capacity) list->positions[list->n] = info->position;
    list->n++;
    return true;
}

uint32_t play_checkpoints(const drive *d, cellar_seq seq, cellar_pos *positions, uint32_t capacity)
{
    checkpoint_list list = {positions, 0, capacity};
    if (cellar_visit_checkpoints(d->memory, seq, keep_checkpoint, &list, NULL) != CELLAR_OK)
        return UINT32_MAX;
    return list.n;
}
