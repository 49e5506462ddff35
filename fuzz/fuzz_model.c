/*
 * fuzz_model.c: loading a model from arbitrary bytes, and reading with what was loaded.
 *
 * A file that gguf.c accepts is refused with a message that names what is wrong, or it is a model;
 * then a tokenizer may be made or refused, and an engine with a few cells reads some tokens (through
 * an encoder first, where there is one) and takes a step further after a shift, which a model with states
 * must refuse. Weights may be NaN or infinite: the numbers mean nothing, but nothing may be read or
 * written outside of what belongs to us, and the memory's invariants hold.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

#define MOST_BYTES (1u << 20) /* of what an engine may need for a file of some kilobytes */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(cellar_status status, const cellar_error *error)
{
    if (error->status != status || error->message[0] == '\0' ||
        memchr(error->message, '\0', sizeof error->message) == NULL)
        abort();
}

/* Numbers in one state; 0: the model has none. */
static uint64_t count_state(const model *m)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < m->n_memory_layers; i++) {
        const cellar_layer *layer = &m->memory_layers[i];
        for (uint32_t j = 0; layer->kind == CELLAR_LAYER_RECURRENT && j < layer->n_states; j++) {
            n += layer->state_sizes[j];
        }
    }
    return n;
}

/* Would an engine on this model be small? A file of zeros can describe a wide one. */
static bool is_small(const model *m)
{
    if (count_state(m) > MOST_BYTES / sizeof(float)) return false;
    uint64_t width = 3 * (uint64_t)m->n_embd + m->scratch + m->n_vocab;
    uint64_t n_layers = m->n_layers + (m->encoder == NULL ? 0 : m->encoder->n_layers);
    return width * n_layers < MOST_BYTES;
}

static void read_some(const model *m)
{
    engine_options options = engine_defaults();
    options.n_cells = 6;
    options.n_ubatch = 4;
    engine *e = NULL;
    cellar_error error;
    const cellar_status status = engine_create(m, &options, &e, &error);
    if (status != CELLAR_OK) {
        check_error(status, &error);
        return;
    }
    const cellar_token tokens[] = {0, 1, (cellar_token)m->n_vocab - 1, 1, 0};
    const uint32_t wanted[] = {4};
    float *logits = malloc(m->n_vocab * sizeof *logits);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 5;
    batch.tokens = tokens;
    if (logits != NULL) {
        batch.n_tokens = 4;
        if (m->encoder != NULL && engine_encode(e, &batch, NULL) != CELLAR_OK) abort();
        batch.n_tokens = 5;
        if (engine_decode(e, &batch, wanted, 1, logits, NULL) != CELLAR_OK) abort();
        const bool is_shifted = cellar_shift_context(engine_memory(e), 0, 1, 0, NULL, NULL) ==
                                CELLAR_OK;
        if (is_shifted != (count_state(m) == 0)) abort(); /* a state cannot forget a part */
        batch.n_tokens = 1;
        if (engine_decode(e, &batch, NULL, 0, NULL, NULL) != CELLAR_OK) abort();
        if (cellar_check(engine_memory(e), NULL) != CELLAR_OK) abort();
    }
    free(logits);
    engine_destroy(e);
}

static void load(const gguf_file *file)
{
    model *m = NULL;
    tokenizer *tok = NULL;
    cellar_error error;
    const cellar_status status = model_load(file, &m, &error);
    if (status != CELLAR_OK) {
        check_error(status, &error);
        if (m != NULL) abort();
        return;
    }
    if (tokenizer_create(file, &tok, &error) == CELLAR_OK && tokenizer_size(tok) != m->n_vocab)
        abort();
    tokenizer_destroy(tok);
    if (is_small(m)) read_some(m);
    model_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) return 0;
    if (size > 0) memcpy(copy, data, size);
    gguf_file *file = NULL;
    if (gguf_open_memory(copy, size, &file, NULL) == CELLAR_OK) load(file);
    gguf_close(file);
    free(copy);
    return 0;
}
