/*
 * twin.c: every call on the library and on the plain models, every result compared. See twin.h.
 *
 * What a token sees is put together from the model: the entries of its first sequence, and the
 * tokens of the batch that stand in that sequence, up to itself (causal) or to the end of its
 * micro-batch. Micro-batches are taken to be the batch cut every n_ubatch tokens.
 */
#include "twin.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note(twin *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void note(twin *t, const char *format, ...)
{
    if (t->n_wrong++ > 0) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->message, sizeof t->message, format, arguments);
    va_end(arguments);
}

void twin_open(twin *t, const cellar_config *config)
{
    cellar_error error = {0};
    memory_model_open(&t->model, config->n_cells);
    t->q_factor = t->q_factor != 0 ? t->q_factor : 1;
    t->worst = t->largest_bound = 0;
    t->n_compared = t->n_wrong = 0;
    if (drive_open(&t->d, config, &error) != CELLAR_OK) {
        fprintf(stderr, "twin: cellar_create: %s\n", error.message);
        exit(2);
    }
}

void twin_close(twin *t)
{
    drive_close(&t->d);
    memory_model_close(&t->model);
}

static void expect(twin *t, const char *call, cellar_status got, cellar_status want,
                   const cellar_error *error)
{
    if (got != want)
        note(t, "%s: %s, expected %s (%s)", call, cellar_status_text(got), cellar_status_text(want),
             got != CELLAR_OK ? error->message : "");
}

/* ---- what a token sees ----------------------------------------------------------------------- */

typedef struct view {
    attention_model_row *rows;
    float *numbers; /* their keys and values */
    uint32_t n;
    size_t row; /* numbers of one token */
} view;

static void add_row(const twin *t, view *seen, uint32_t layer, cellar_token token, cellar_pos pos,
                    cellar_pos stored_pos)
{
    const cellar_layer *shape = &t->d.layers[layer];
    float *k = seen->numbers + seen->n * seen->row,
          *v = k + (size_t)shape->n_kv_heads * shape->k_size;
    drive_token_row(&t->d, layer, DRIVE_K, token, k);
    drive_token_row(&t->d, layer, DRIVE_V, token, v);
    seen->rows[seen->n++] = (attention_model_row){pos, stored_pos, k, v};
}

static bool stands_in(const cellar_batch *batch, uint32_t i, cellar_seq seq)
{
    uint32_t n;
    const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
    for (uint32_t s = 0; s < n; s++)
        if (seqs[s] == seq) return true;
    return false;
}

static view look(twin *t, uint32_t layer, const cellar_batch *batch, const cellar_pos *positions,
                 uint32_t me)
{
    const cellar_layer *shape = &t->d.layers[layer];
    uint32_t n_seqs;
    cellar_seq seq = *memory_model_batch_seqs(batch, me, &n_seqs);
    const model_sequence *past = memory_model_sequence(&t->model, seq);
    view seen = {.row = (size_t)shape->n_kv_heads * (shape->k_size + shape->v_size)};
    seen.rows = drive_grab(past->n + batch->n_tokens, sizeof *seen.rows);
    seen.numbers = drive_grab((past->n + batch->n_tokens) * seen.row, sizeof *seen.numbers);
    for (uint32_t i = 0; i < past->n; i++) {
        const model_cell *cell = &t->model.cells[past->entries[i].cell];
        add_row(t, &seen, layer, cell->token, past->entries[i].pos, cell->stored_pos);
    }
    uint32_t end = (me / t->d.n_ubatch + 1) * t->d.n_ubatch;
    for (uint32_t i = 0; i < batch->n_tokens && i < end; i++)
        if (stands_in(batch, i, seq) && (!shape->is_causal || positions[i] <= positions[me]))
            add_row(t, &seen, layer, batch->tokens[i], positions[i], positions[i]);
    return seen;
}

static void compare_token(twin *t, uint32_t layer, const cellar_batch *batch,
                          const cellar_pos *positions, uint32_t me, const float *got)
{
    const cellar_layer *shape = &t->d.layers[layer];
    size_t q_row = (size_t)shape->n_heads * shape->k_size;
    view seen = look(t, layer, batch, positions, me);
    float *q = drive_grab(q_row, sizeof *q);
    double *out = drive_grab((size_t)shape->n_heads * shape->v_size, sizeof *out);
    double *bound = drive_grab(shape->n_heads, sizeof *bound);
    drive_token_row(&t->d, layer, DRIVE_Q, batch->tokens[me], q);
    for (size_t i = 0; i < q_row; i++)
        q[i] *= t->q_factor;
    attention_model_attend(shape, q, positions[me], seen.rows, seen.n, out, bound);
    double worst = attention_model_worst(shape, got, out, bound);
    t->worst = fmax(t->worst, worst);
    for (uint32_t h = 0; h < shape->n_heads; h++)
        t->largest_bound = fmax(t->largest_bound, bound[h]);
    t->n_compared++;
    if (worst > 1)
        note(t, "layer %u, token %d at position %d over %u keys: %.3g times the bound away", layer,
             batch->tokens[me], positions[me], seen.n, worst);
    free(seen.rows);
    free(seen.numbers);
    free(q);
    free(out);
    free(bound);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static float *rows_of(const twin *t, uint32_t layer, drive_row what, const cellar_ubatch *ubatch,
                      const cellar_token *tokens, size_t row)
{
    float *rows = drive_grab(ubatch->n_tokens * row, sizeof *rows);
    for (uint32_t i = 0; i < ubatch->n_tokens; i++)
        drive_token_row(&t->d, layer, what, tokens[ubatch->indices[i]], rows + i * row);
    for (size_t i = 0; i < ubatch->n_tokens * row && what == DRIVE_Q; i++)
        rows[i] *= t->q_factor;
    return rows;
}

static void step_layer(twin *t, uint32_t number, uint32_t layer, const cellar_batch *batch,
                       const cellar_pos *positions)
{
    const cellar_layer *shape = &t->d.layers[layer];
    size_t out_row = (size_t)shape->n_heads * shape->v_size;
    cellar_ubatch ubatch = {0};
    cellar_error error = {0};
    expect(t, "cellar_get_ubatch", cellar_get_ubatch(t->d.memory, number, &ubatch, &error),
           CELLAR_OK, &error);
    float *k = rows_of(t, layer, DRIVE_K, &ubatch, batch->tokens,
                       (size_t)shape->n_kv_heads * shape->k_size);
    float *v = rows_of(t, layer, DRIVE_V, &ubatch, batch->tokens,
                       (size_t)shape->n_kv_heads * shape->v_size);
    float *q = rows_of(t, layer, DRIVE_Q, &ubatch, batch->tokens,
                       (size_t)shape->n_heads * shape->k_size);
    float *out = drive_grab(ubatch.n_tokens * out_row, sizeof *out);
    memset(out, 0xff, ubatch.n_tokens * out_row * sizeof *out);
    expect(t, "cellar_store", cellar_store(t->d.memory, number, layer, k, v, &error), CELLAR_OK,
           &error);
    expect(t, "cellar_attend", cellar_attend(t->d.memory, number, layer, q, out, &error), CELLAR_OK,
           &error);
    for (uint32_t i = 0; i < ubatch.n_tokens && !t->is_quiet; i++)
        compare_token(t, layer, batch, positions, ubatch.indices[i], out + i * out_row);
    free(k);
    free(v);
    free(q);
    free(out);
}

void twin_step(twin *t, const cellar_batch *batch)
{
    int64_t at;
    cellar_error error = {0};
    cellar_pos *positions = drive_grab(batch->n_tokens, sizeof *positions);
    uint32_t *cells = drive_grab(batch->n_tokens, sizeof *cells);
    cellar_status status = memory_model_plan(&t->model, batch, positions, &at);
    expect(t, "cellar_begin", cellar_begin(t->d.memory, batch, &error), status, &error);
    uint32_t n = cellar_count_ubatches(t->d.memory);
    if (status == CELLAR_OK && n > 0) {
        for (uint32_t u = 0; u < n; u++)
            for (uint32_t layer = 0; layer < t->d.n_layers; layer++)
                step_layer(t, u, layer, batch, positions);
        expect(t, "cellar_commit", cellar_commit(t->d.memory, &error), CELLAR_OK, &error);
        memory_model_append(&t->model, batch, positions, cells);
    }
    free(positions);
    free(cells);
}

void twin_append(twin *t, cellar_seq seq, cellar_token first, uint32_t n)
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
    twin_step(t, &batch);
    free(tokens);
    free(seqs);
}

/* ---- sequences ------------------------------------------------------------------------------- */

void twin_remove(twin *t, cellar_seq seq, cellar_pos p0, cellar_pos p1)
{
    cellar_error error = {0};
    cellar_status want = memory_model_remove(&t->model, seq, p0, p1);
    expect(t, "cellar_remove", cellar_remove(t->d.memory, seq, p0, p1, &error), want, &error);
}

void twin_copy(twin *t, cellar_seq from, cellar_seq to, cellar_pos p0, cellar_pos p1)
{
    cellar_error error = {0};
    cellar_status want = memory_model_copy(&t->model, from, to, p0, p1);
    expect(t, "cellar_copy", cellar_copy(t->d.memory, from, to, p0, p1, &error), want, &error);
}

void twin_shift(twin *t, cellar_seq seq, cellar_pos p0, cellar_pos p1, cellar_pos delta)
{
    cellar_error error = {0};
    int64_t at;
    cellar_status want = memory_model_shift(&t->model, seq, p0, p1, delta, &at);
    expect(t, "cellar_shift", cellar_shift(t->d.memory, seq, p0, p1, delta, &error), want, &error);
}

static void read_one(twin *t, cellar_seq seq, uint32_t layer, const model_entry *entry)
{
    const cellar_layer *shape = &t->d.layers[layer];
    const model_cell *cell = &t->model.cells[entry->cell];
    size_t n_k = (size_t)shape->n_kv_heads * shape->k_size,
           n_v = (size_t)shape->n_kv_heads * shape->v_size;
    float *got = drive_grab(2 * (n_k + n_v), sizeof *got), *raw = got + n_k + n_v;
    double *want = drive_grab(2 * n_k + n_v, sizeof *want), *doubt = want + n_k + n_v;
    cellar_error error = {0};
    drive_token_row(&t->d, layer, DRIVE_K, cell->token, raw);
    drive_token_row(&t->d, layer, DRIVE_V, cell->token, raw + n_k);
    const attention_model_row row = {entry->pos, cell->stored_pos, raw, raw + n_k};
    attention_model_rows(shape, &row, want, want + n_k, doubt);
    expect(t, "cellar_read_rows",
           cellar_read_rows(t->d.memory, seq, layer, entry->pos, 1, got, got + n_k, &error),
           CELLAR_OK, &error);
    double angle = 0x1p-50 * (entry->pos + (double)cell->stored_pos);
    double slack = attention_model_magnitude(shape) *
                   (0x1p-20 + 2 * angle); /* of lengths up to 1.5 */
    for (size_t i = 0; i < n_k; i++)
        if (!(fabs(got[i] - want[i]) <= slack + 2 * doubt[i]))
            note(t, "layer %u, key of position %d element %zu is %g, expected %g", layer,
                 entry->pos, i, (double)got[i], want[i]);
    for (size_t i = n_k; i < n_k + n_v; i++)
        if (!(got[i] == want[i]))
            note(t, "layer %u, value of position %d is %g, expected %g", layer, entry->pos,
                 (double)got[i], want[i]);
    free(got);
    free(want);
}

void twin_read(twin *t, cellar_seq seq)
{
    const model_sequence *sequence = memory_model_sequence(&t->model, seq);
    for (uint32_t layer = 0; layer < t->d.n_layers; layer++)
        for (uint32_t i = 0; i < sequence->n; i++)
            read_one(t, seq, layer, &sequence->entries[i]);
}
