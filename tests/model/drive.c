/*
 * drive.c: run batches through the real library. See drive.h.
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
        if (d->layers[l].kind == CELLAR_LAYER_ATTENTION)
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

static size_t result_size(const drive *d, uint32_t layer)
{
    if (d->layers[layer].kind != CELLAR_LAYER_ATTENTION) return 0;
    return (size_t)d->layers[layer].n_heads * d->layers[layer].v_size;
}

/* Spread the results of a micro-batch over out [n_tokens][out_size]. */
static void scatter(const drive *d, uint32_t layer, const cellar_ubatch *ubatch, const float *from,
                    float *out)
{
    size_t skip = 0, size = result_size(d, layer);
    for (uint32_t l = 0; l < layer; l++)
        skip += result_size(d, l);
    for (uint32_t i = 0; i < ubatch->n_tokens; i++)
        memcpy(out + ubatch->indices[i] * d->out_size + skip, from + i * size, size * sizeof *from);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Copy a layer's part of a state between the library and one array. */
static bool move_state(const drive *d, uint32_t state, uint32_t layer, float *out, const float *in)
{
    const cellar_layer *shape = &d->layers[layer];
    for (uint32_t t = 0, at = 0; t < shape->n_states; at += shape->state_sizes[t++]) {
        float *tensor = cellar_state_data(d->memory, state, layer, t);
        if (!tensor) return false;
        if (out) memcpy(out + at, tensor, shape->state_sizes[t] * sizeof *out);
        if (in) memcpy(tensor, in + at, shape->state_sizes[t] * sizeof *in);
    }
    return true;
}

bool drive_read_state(const drive *d, uint32_t state, uint32_t layer, float *to)
{
    return move_state(d, state, layer, to, NULL);
}

bool drive_write_state(const drive *d, uint32_t state, uint32_t layer, const float *from)
{
    return move_state(d, state, layer, NULL, from);
}

/* Compute one segment from its source; its targets get what is there after so many tokens. */
static cellar_status run_segment(drive *d, uint32_t number, uint32_t segment, uint32_t layer,
                                 const cellar_ubatch *ubatch, const cellar_token *tokens,
                                 cellar_error *error)
{
    const cellar_segment *part = &ubatch->segments[segment];
    cellar_states states;
    cellar_status status = cellar_get_states(d->memory, number, segment, &states, error);
    if (status != CELLAR_OK) return status;
    float *state = drive_grab(recurrence_size(&d->layers[layer]), sizeof *state);
    bool is_good = states.source == CELLAR_NO_STATE ||
                   drive_read_state(d, states.source, layer, state);
    for (uint32_t i = 0, next = 0; i < part->n_tokens && is_good; i++) {
        uint32_t at = part->first + i;
        recurrence_step(&d->layers[layer], layer, (uint64_t)(uint32_t)tokens[ubatch->indices[at]],
                        ubatch->positions[at], state);
        if (next < states.n_targets && states.after[next] == i + 1)
            is_good = drive_write_state(d, states.targets[next++], layer, state);
    }
    free(state);
    return is_good ? CELLAR_OK : CELLAR_CORRUPT;
}

static cellar_status run_states(drive *d, uint32_t number, const cellar_ubatch *ubatch,
                                uint32_t layer, const cellar_token *tokens, cellar_error *error)
{
    for (uint32_t s = 0; s < ubatch->n_segments; s++) {
        cellar_status status = run_segment(d, number, s, layer, ubatch, tokens, error);
        if (status != CELLAR_OK) return status;
    }
    return cellar_confirm(d->memory, number, layer, error);
}

static cellar_status run_layer(drive *d, uint32_t number, const cellar_ubatch *ubatch,
                               uint32_t layer, const cellar_token *tokens, float *out,
                               cellar_error *error)
{
    if (d->layers[layer].kind == CELLAR_LAYER_NONE) return CELLAR_OK;
    if (d->layers[layer].kind == CELLAR_LAYER_RECURRENT)
        return run_states(d, number, ubatch, layer, tokens, error);
    float *k = gather(d, layer, DRIVE_K, ubatch, tokens);
    float *v = gather(d, layer, DRIVE_V, ubatch, tokens);
    cellar_status status = cellar_store(d->memory, number, layer, k, v, error);
    free(k);
    free(v);
    if (status != CELLAR_OK || !out) return status;
    size_t size = result_size(d, layer);
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
