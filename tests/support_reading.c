/*
 * support_reading.c: an engine for a recipe's model, one sequence at a time.
 *
 * Every token that is read is counted, so that a test can say what was not read again. A cold reading
 * makes an engine of its own for it, which has seen nothing else.
 */
#include "support_reading.h"

#include <stdio.h>
#include <stdlib.h>

static void need(cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) {
        fprintf(stderr, "support_reading: %s: %s\n", cellar_status_text(status), error->message);
        exit(1);
    }
}

void reading_open(reading *r, const recipe *weights, const engine_options *options)
{
    cellar_error error;
    *r = (reading){.n_read = 0};
    need(recipe_load(weights, &r->made, &error), &error);
    need(engine_create(r->made.model, options, &r->engine, &error), &error);
    r->memory = engine_memory(r->engine);
    r->n_vocab = r->made.model->n_vocab;
}

void reading_close(reading *r)
{
    engine_destroy(r->engine);
    recipe_unload(&r->made);
}

void reading_add(reading *r, cellar_seq seq, const cellar_token *tokens, uint32_t n,
                 const bool *checkpoints, float *logits)
{
    cellar_seq *seqs = calloc(n + 1, sizeof *seqs);
    uint32_t *wanted = calloc(n + 1, sizeof *wanted);
    if (seqs == NULL || wanted == NULL) {
        fprintf(stderr, "support_reading: no memory\n");
        exit(1);
    }
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = seq;
        wanted[i] = i;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    batch.checkpoints = checkpoints;
    cellar_error error;
    need(engine_decode(r->engine, &batch, wanted, n, logits, &error), &error);
    r->n_read += n;
    free(seqs);
    free(wanted);
}

void reading_cold(const recipe *weights, const cellar_token *tokens, uint32_t n, float *logits)
{
    reading cold;
    engine_options options = engine_defaults();
    options.n_cells = n;
    reading_open(&cold, weights, &options);
    reading_add(&cold, 0, tokens, n, NULL, logits);
    reading_close(&cold);
}
