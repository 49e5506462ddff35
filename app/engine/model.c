/*
 * model.c: the table of architectures, and what loading is the same for all of them.
 *
 * A model is made in one go and given back whole if anything is wrong: nothing of a refused file
 * stays. Order: architecture, sizes, vocabulary, the architecture's own loader, and last a look
 * whether the file has tensors that nobody asked for; such a model computes something that we
 * would leave out, so it is refused by the tensor's name.
 */
#include "engine/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model_arch.h"
#include "engine/model_names.h"
#include "report.h"

#define MAX_VOCABULARY INT32_MAX /* token ids are int32 */

#define ARCHITECTURE(id, name) &model_architecture_##id,
static const model_architecture *const architectures[] = {MODEL_ARCHITECTURES(ARCHITECTURE)};

#define ARCHITECTURE_NAME(id, name) ", " name
static const char architecture_names[] = MODEL_ARCHITECTURES(ARCHITECTURE_NAME); /* for people */

const char *model_architectures(void)
{
    return architecture_names + 2;
}

static cellar_status find_architecture(const gguf_file *file, const model_architecture **out,
                                       cellar_error *error)
{
    static const char key[] = "general.architecture";
    gguf_string name;
    cellar_status status = gguf_get_string(file, key, &name, error);
    if (status == CELLAR_NOT_FOUND) {
        return report(error, CELLAR_CORRUPT, -1, "%s: expected this key, found none", key);
    }
    if (status != CELLAR_OK) {
        return status;
    }
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        const char *known = architectures[i]->name;
        if (name.length == strlen(known) && memcmp(name.data, known, name.length) == 0) {
            *out = architectures[i];
            return CELLAR_OK;
        }
    }
    return report(error, CELLAR_UNSUPPORTED, (int64_t)gguf_find_value(file, key)->offset,
                  "%s: expected one that 'cellar version' lists, found %.*s", key,
                  (int)(name.length < 60 ? name.length : 60), name.data);
}

/* A special id that is used must be a token. */
static cellar_status check_special(const model *m, const char *key, cellar_error *error)
{
    uint32_t id = 0;
    cellar_status status = gguf_get_u32(m->file, key, &id, error);
    if (status == CELLAR_NOT_FOUND) {
        return CELLAR_OK;
    }
    if (status == CELLAR_OK && id >= m->n_vocab) {
        return report(error, CELLAR_CORRUPT, (int64_t)gguf_find_value(m->file, key)->offset,
                      "%s: expected a token id below %" PRIu32 ", found %" PRIu32, key, m->n_vocab,
                      id);
    }
    return status;
}

/* The vocabulary's size is the embedding's number of rows; whatever else states it must agree. */
static cellar_status read_vocabulary(model *m, cellar_error *error)
{
    static const char name[] = "token_embd.weight";
    const gguf_tensor *tensor = gguf_find_tensor(m->file, name);
    if (tensor == NULL) {
        return report(error, CELLAR_CORRUPT, -1, "tensor %s: expected, found no such tensor", name);
    }
    if (tensor->dims[1] < 2 || tensor->dims[1] > MAX_VOCABULARY) {
        return report(error, CELLAR_CORRUPT, (int64_t)tensor->offset,
                      "tensor %s: expected 2 to %d rows, one for each token, found %" PRIu64, name,
                      MAX_VOCABULARY, tensor->dims[1]);
    }
    m->n_vocab = (uint32_t)tensor->dims[1];
    uint32_t stated;
    cellar_status status = model_read_u32_or(m, "vocab_size", 2, MAX_VOCABULARY, m->n_vocab,
                                             &stated, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (stated != m->n_vocab) {
        return model_refuse_key(m, "vocab_size", "the number of rows of token_embd.weight", stated,
                                error);
    }
    static const char tokens[] = "tokenizer.ggml.tokens";
    const gguf_value *value = gguf_find_value(m->file, tokens);
    if (value != NULL && value->count != m->n_vocab) {
        return report(error, CELLAR_CORRUPT, (int64_t)value->offset,
                      "%s: expected %" PRIu32 " elements, the rows of %s, found %" PRIu64, tokens,
                      m->n_vocab, name, value->count);
    }
    return model_read_weight(m, name, m->n_embd, m->n_vocab, &m->embedding, error);
}

static cellar_status read_common(model *m, cellar_error *error)
{
    cellar_status status;
    if ((status = model_read_u32(m, "block_count", 1, MODEL_MAX_LAYERS, &m->n_layers, error)) ||
        (status = model_read_u32(m, "embedding_length", 1, MODEL_MAX_EMBD, &m->n_embd, error)) ||
        (status = model_read_u32(m, "context_length", 1, INT32_MAX, &m->n_context, error)) ||
        (status = read_vocabulary(m, error)) ||
        (status = check_special(m, "tokenizer.ggml.bos_token_id", error)) ||
        (status = check_special(m, "tokenizer.ggml.eos_token_id", error))) {
        return status;
    }
    m->embedding_scale = m->logit_scale = 1;
    return CELLAR_OK;
}

/* Old files carry inverse frequencies that every program computes itself. */
static bool may_be_left_out(gguf_string name)
{
    static const char suffix[] = ".attn_rot_embd.weight";
    size_t n = sizeof suffix - 1;
    return name.length > n && memcmp(name.data + name.length - n, suffix, n) == 0;
}

static cellar_status refuse_others(const model *m, cellar_error *error)
{
    const gguf_tensor *other = model_names_first_missing(m->taken, m->file, may_be_left_out);
    if (other == NULL) {
        return CELLAR_OK;
    }
    return report(error, CELLAR_UNSUPPORTED, (int64_t)other->offset,
                  "tensor %.*s: not part of the %s architecture as this program knows it",
                  (int)(other->name.length < 80 ? other->name.length : 80), other->name.data,
                  m->architecture->name);
}

cellar_status model_load(const gguf_file *file, model **out, cellar_error *error)
{
    *out = NULL;
    const model_architecture *architecture = NULL;
    cellar_status status = find_architecture(file, &architecture, error);
    if (status != CELLAR_OK) {
        return status;
    }
    model *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the model");
    }
    model_names taken = {.n = 0};
    m->file = file;
    m->architecture = architecture;
    m->taken = &taken;
    if ((status = read_common(m, error)) == CELLAR_OK &&
        (status = architecture->load(m, error)) == CELLAR_OK) {
        status = refuse_others(m, error);
    }
    m->taken = NULL;
    model_names_free(&taken);
    if (status != CELLAR_OK) {
        model_free(m);
        return status;
    }
    *out = m;
    return CELLAR_OK;
}

void model_free(model *m)
{
    if (m == NULL) {
        return;
    }
    model_free_copies(m);
    free(m);
}
