/*
 * engine.c: one step of reading, and the buffers it needs.
 *
 * The buffers of a block_context lie in one block, each at the start of a cache line:
 *
 *     x | h | added | scratch | kept | rounded | tokens | wanted | encodings  [n_ubatch][its width] each
 *
 * Logits: the rows of x that are wanted are gathered into h, normed there and multiplied by
 * the output matrix straight into the caller's rows. A micro-batch may hold the batch's tokens in any
 * order (cellar_config.split), so they are gathered in the order of the caller's rows, and each
 * stretch of rows that follow each other is one product.
 */
#define _POSIX_C_SOURCE 200809L

#include "engine/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/encoder.h"
#include "engine/engine_memory.h"
#include "report.h"

#define LINE 64u /* bytes of a cache line */
#define N_BUFFERS 9u

/* A token of a micro-batch whose logits are wanted. */
typedef struct wanted_token {
    uint32_t row;   /* of the caller's logits */
    uint32_t token; /* of the micro-batch */
} wanted_token;

#define WANTED_WIDTH (uint32_t)(sizeof(wanted_token) / sizeof(float))
#define POINTER_WIDTH (uint32_t)(sizeof(void *) / sizeof(float))

struct engine {
    const model *model;
    cl_matmul_table table;
    block_activation_function activations[BLOCK_ACTIVATIONS];
    block_workers workers;
    cellar_memory *memory;
    encoder *encoder; /* NULL: the model has none */
    uint32_t n_cells, n_ubatch;
    block_context context;
    cellar_token *tokens; /* [n_ubatch] of a micro-batch; in the buffers too, like the next */
    wanted_token *wanted; /* [n_ubatch] */
    const block_encoding **encodings; /* [n_ubatch] of its segments */
    void *buffers;                    /* [buffer_bytes] */
    size_t buffer_bytes;
};

/* The logits that are wanted of one step; or what they would be made of. */
typedef struct logits_request {
    const uint32_t *wanted; /* [n] indices into the batch, rising */
    uint32_t n;
    bool is_output; /* what comes out of the last layer, normed, instead */
    float *rows;    /* [n][n_vocab], or [n][n_embd] */
} logits_request;

engine_options engine_defaults(void)
{
    return (engine_options){.n_cells = 4096,
                            .n_ubatch = 512,
                            .n_pools = 1,
                            .n_threads = 1,
                            .split = CELLAR_SPLIT_AUTO,
                            .k_type = CELLAR_F16,
                            .v_type = CELLAR_F16,
                            .cpu_mask = CELLAR_CPU_ALL};
}

/* Add room for [n_ubatch][width] numbers, whole cache lines; false: too large. */
static bool add_buffer(size_t *total, uint32_t n_ubatch, uint64_t width)
{
    size_t bytes;
    return !__builtin_mul_overflow((size_t)n_ubatch, width * sizeof(float), &bytes) &&
           !__builtin_add_overflow(bytes, LINE - 1, &bytes) &&
           !__builtin_add_overflow(bytes / LINE * LINE, *total, total);
}

static cellar_status make_buffers(engine *e, cellar_error *error)
{
    block_context *c = &e->context;
    const model *m = e->model;
    const uint64_t embd = m->n_embd;
    const uint64_t rounded_width = e->table.is_rounding_faster
                                       ? cl_rounded_bytes(m->longest) / sizeof(float)
                                       : 0;
    const uint64_t widths[N_BUFFERS] = {
        embd,       embd,         embd,
        m->scratch, m->kept,      rounded_width,
        1,          WANTED_WIDTH, m->encoder == NULL ? 0 : POINTER_WIDTH};
    float *rounded, *tokens, *wanted, *encodings;
    float **buffers[N_BUFFERS] = {&c->x,    &c->h,   &c->added, &c->scratch, &c->kept,
                                  &rounded, &tokens, &wanted,   &encodings};
    size_t starts[N_BUFFERS];
    bool fits = true;
    e->buffer_bytes = 0;
    for (uint32_t i = 0; fits && i < N_BUFFERS; i++) {
        starts[i] = e->buffer_bytes;
        fits = add_buffer(&e->buffer_bytes, e->n_ubatch, widths[i]);
    }
    if (!fits || posix_memalign(&e->buffers, LINE, e->buffer_bytes) != 0) {
        e->buffers = NULL;
        return report(error, CELLAR_NO_MEMORY, -1,
                      "no memory for computing %" PRIu32 " tokens at once (--ubatch)", e->n_ubatch);
    }
    for (uint32_t i = 0; i < N_BUFFERS; i++) {
        *buffers[i] = (float *)e->buffers + starts[i] / sizeof(float);
    }
    c->rounded = rounded_width > 0 ? rounded : NULL;
    e->tokens = (cellar_token *)(void *)tokens;
    e->wanted = (wanted_token *)(void *)wanted;
    e->encodings = (const block_encoding **)(void *)encodings;
    return CELLAR_OK;
}

static cellar_status make_encoder(engine *e, const engine_options *options, cellar_error *error)
{
    if (e->model->encoder == NULL) {
        return CELLAR_OK;
    }
    const encoder_options its = {.n_ubatch = e->n_ubatch,
                                 .n_kept = options->n_encoded > 0 ? options->n_encoded
                                                                  : options->n_cells,
                                 .cpu_mask = options->cpu_mask,
                                 .n_threads = options->n_threads,
                                 .workers = &e->workers};
    return encoder_create(e->model, &its, &e->encoder, error);
}

cellar_status engine_create(const model *m, const engine_options *options, engine **out,
                            cellar_error *error)
{
    *out = NULL;
    if (options->n_cells == 0 || options->n_ubatch == 0) {
        return report(error, CELLAR_INVALID, -1,
                      "an engine needs at least one cell and a micro-batch "
                      "of at least one token");
    }
    engine *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the engine");
    }
    e->model = m;
    e->n_cells = options->n_cells;
    e->n_ubatch = engine_usable_ubatch(options);
    if (options->table != NULL) {
        e->table = *options->table;
    } else {
        cl_matmul_fill(&e->table, options->cpu_mask);
    }
    if (options->is_exact) {
        e->table.is_rounding_faster = 0;
    }
    cellar_status status;
    if ((status = threads_create(options->n_threads, &e->workers.threads, error)) != CELLAR_OK ||
        (status = engine_make_memory(m, options, &e->workers, &e->memory, error)) != CELLAR_OK ||
        (status = make_encoder(e, options, error)) != CELLAR_OK ||
        (status = make_buffers(e, error)) != CELLAR_OK) {
        engine_destroy(e);
        return status;
    }
    e->context.table = &e->table;
    memcpy(e->activations, options->activations != NULL ? options->activations : block_activations,
           sizeof e->activations);
    if (options->activations == NULL) {
        e->activations[BLOCK_SILU] = e->table.silu;
    }
    e->context.activations = e->activations;
    e->context.n_embd = m->n_embd;
    e->context.tokens = e->tokens;
    e->context.encodings = e->encodings;
    e->context.workers = &e->workers;
    e->context.memory = e->memory;
    *out = e;
    return CELLAR_OK;
}

void engine_destroy(engine *e)
{
    if (e == NULL) {
        return;
    }
    cellar_destroy(e->memory);
    encoder_destroy(e->encoder);
    threads_destroy(e->workers.threads);
    free(e->buffers);
    free(e);
}

const model *engine_model(const engine *e)
{
    return e->model;
}

cellar_memory *engine_memory(engine *e)
{
    return e->memory;
}

uint32_t engine_cells(const engine *e)
{
    return e->n_cells;
}

uint32_t engine_ubatch(const engine *e)
{
    return e->n_ubatch;
}

uint64_t engine_buffer_bytes(const engine *e)
{
    return e->buffer_bytes + (e->encoder == NULL ? 0 : encoder_bytes(e->encoder));
}

void engine_set_stop(engine *e, bool (*should_stop)(void *context), void *context)
{
    e->context.should_stop = should_stop;
    e->context.stop_context = context;
}

/* ---- a step --------------------------------------------------------------------------------- */

static cellar_status check_request(const engine *e, const cellar_batch *batch,
                                   const logits_request *request, cellar_error *error)
{
    if (batch->n_tokens > 0 && batch->tokens == NULL) {
        return report(error, CELLAR_INVALID, -1, "a batch for a model needs its tokens");
    }
    for (uint32_t i = 0; i < batch->n_tokens; i++) {
        cellar_token token = batch->tokens[i];
        if (token < 0 || (uint32_t)token >= e->model->n_vocab) {
            return report(error, CELLAR_INVALID, i,
                          "token %" PRIu32 " of the batch: expected an id below %" PRIu32
                          ", found %" PRId32,
                          i, e->model->n_vocab, token);
        }
    }
    if (request->n > 0 && (request->wanted == NULL || request->rows == NULL)) {
        return report(error, CELLAR_INVALID, -1,
                      "logits are wanted but there is no list or no room");
    }
    for (uint32_t i = 0; i < request->n; i++) {
        uint32_t index = request->wanted[i];
        if (index >= batch->n_tokens || (i > 0 && index <= request->wanted[i - 1])) {
            return report(error, CELLAR_INVALID, i,
                          "wanted logits %" PRIu32 ": expected rising indices below %" PRIu32
                          ", found %" PRIu32,
                          i, batch->n_tokens, index);
        }
    }
    return CELLAR_OK;
}

/* The residual stream as n of e->tokens enter the first layer. */
static void embed(const engine *e, uint32_t n)
{
    const model *m = e->model;
    const block_weight *w = &m->embedding;
    for (uint32_t t = 0; t < n; t++) {
        size_t row = (size_t)e->tokens[t];
        const unsigned char *data = (const unsigned char *)w->data + row * w->row_bytes;
        float *x = e->context.x + (size_t)t * w->n_in;
        e->table.weight[w->type].decode(x, data, w->n_in);
        for (uint32_t i = 0; m->embedding_scale != 1 && i < w->n_in; i++) {
            x[i] *= m->embedding_scale;
        }
    }
    if (m->embedding_norm.width > 0) {
        block_norm_run(&m->embedding_norm, &e->context, e->context.x, e->context.x, n);
    }
}

/* The row of logits for token `index` of the batch; request->n: they are not wanted. */
static uint32_t find_row(const logits_request *request, uint32_t index)
{
    uint32_t low = 0, high = request->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (request->wanted[middle] < index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < request->n && request->wanted[low] == index ? low : request->n;
}

/* By row. Shell's sort: it needs no memory, and most micro-batches are in order already. */
static void sort_wanted(wanted_token *wanted, uint32_t n)
{
    for (uint32_t gap = n / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < n; i++) {
            wanted_token moving = wanted[i];
            uint32_t at = i;
            for (; at >= gap && wanted[at - gap].row > moving.row; at -= gap) {
                wanted[at] = wanted[at - gap];
            }
            wanted[at] = moving;
        }
    }
}

/* List the tokens of a micro-batch whose logits are wanted, by row; how many there are. */
static uint32_t list_wanted(const engine *e, const cellar_ubatch *ubatch,
                            const logits_request *request)
{
    uint32_t n = 0;
    for (uint32_t t = 0; request->n > 0 && t < ubatch->n_tokens; t++) {
        uint32_t row = find_row(request, ubatch->indices[t]);
        if (row < request->n) {
            e->wanted[n++] = (wanted_token){row, t};
        }
    }
    sort_wanted(e->wanted, n);
    return n;
}

/* What the model does to logits after its last matrix. */
static void finish_logits(const model *m, float *logits, size_t n)
{
    for (size_t i = 0; m->logit_scale != 1 && i < n; i++) {
        logits[i] *= m->logit_scale;
    }
    for (size_t i = 0; m->logit_softcap > 0 && i < n; i++) {
        logits[i] = m->logit_softcap * tanhf(logits[i] / m->logit_softcap);
    }
}

/* Write the logits that are wanted of this micro-batch. */
static void write_logits(const engine *e, const cellar_ubatch *ubatch,
                         const logits_request *request)
{
    const block_context *c = &e->context;
    const wanted_token *wanted = e->wanted;
    size_t width = e->model->n_embd;
    uint32_t n = list_wanted(e, ubatch, request);
    if (n == 0) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        memcpy(c->h + i * width, c->x + wanted[i].token * width, width * sizeof *c->h);
    }
    block_norm_run(&e->model->output_norm, c, c->h, c->h, n);
    for (uint32_t i = 0; request->is_output && i < n; i++) {
        memcpy(request->rows + wanted[i].row * width, c->h + i * width, width * sizeof *c->h);
    }
    for (uint32_t first = 0, end; !request->is_output && first < n; first = end) {
        for (end = first + 1; end < n && wanted[end].row == wanted[end - 1].row + 1;) {
            end++;
        }
        const block_product product = {.linear = &e->model->output,
                                       .x = c->h + first * width,
                                       .y = request->rows +
                                            (size_t)wanted[first].row * e->model->n_vocab};
        block_multiply(c, &product, 1, end - first);
        finish_logits(e->model, product.y, (size_t)(end - first) * e->model->n_vocab);
    }
}

/* The most keys that a token of the micro-batch sees, about: a segment's last token is its farthest. */
static uint32_t count_keys(const cellar_ubatch *ubatch)
{
    cellar_pos farthest = 0;
    for (uint32_t i = 0; i < ubatch->n_segments; i++) {
        const cellar_segment *segment = &ubatch->segments[i];
        cellar_pos last = ubatch->positions[segment->first + segment->n_tokens - 1];
        farthest = last > farthest ? last : farthest;
    }
    return (uint32_t)farthest + 1;
}

/* Tools, place and tokens of a micro-batch, for the layers to start. */
static void enter(engine *e, const cellar_batch *batch, uint32_t number,
                  const cellar_ubatch *ubatch)
{
    e->context.ubatch = number;
    e->context.place = *ubatch;
    e->context.n_tokens = ubatch->n_tokens;
    e->context.n_keys = count_keys(ubatch);
    for (uint32_t t = 0; t < ubatch->n_tokens; t++) {
        e->tokens[t] = batch->tokens[ubatch->indices[t]];
    }
    for (uint32_t i = 0; e->encoder != NULL && i < ubatch->n_segments; i++) {
        e->encodings[i] = encoder_find(e->encoder, ubatch->segments[i].seq);
    }
    embed(e, ubatch->n_tokens);
}

/* Between layers the caller may stop. */
static cellar_status run_layers(const model *m, const block_context *c, cellar_error *error)
{
    if (m->architecture->begin != NULL) {
        m->architecture->begin(m, c);
    }
    for (uint32_t i = 0; i < m->n_layers; i++) {
        if (block_is_stopped(c)) {
            return report(error, CELLAR_REFUSED, i, "stopped by the caller");
        }
        cellar_status status = m->architecture->run_layer(m, i, c, error);
        if (status != CELLAR_OK) {
            return status;
        }
    }
    return CELLAR_OK;
}

static cellar_status compute(engine *e, const cellar_batch *batch, const logits_request *request,
                             cellar_error *error)
{
    uint32_t n_ubatches = cellar_count_ubatches(e->memory);
    for (uint32_t i = 0; i < n_ubatches; i++) {
        cellar_ubatch ubatch;
        cellar_status status = cellar_get_ubatch(e->memory, i, &ubatch, error);
        if (status != CELLAR_OK) {
            return status;
        }
        enter(e, batch, i, &ubatch);
        status = run_layers(e->model, &e->context, error);
        if (status != CELLAR_OK) {
            return status;
        }
        write_logits(e, &ubatch, request);
    }
    return CELLAR_OK;
}

/*
 * With an encoder, every sequence of the step needs an encoding, and a token that stands in several needs
 * them to have the same one. The batch is one that the memory has accepted.
 */
static cellar_status check_encodings(const engine *e, const cellar_batch *batch,
                                     cellar_error *error)
{
    for (uint32_t i = 0; e->encoder != NULL && i < batch->n_tokens; i++) {
        uint32_t first = batch->seq_begin != NULL ? batch->seq_begin[i] : i;
        uint32_t end = batch->seq_begin != NULL ? batch->seq_begin[i + 1] : i + 1;
        const block_encoding *common = NULL;
        for (uint32_t j = first; j < end; j++) {
            const cellar_seq seq = batch->seqs != NULL ? batch->seqs[j] : 0;
            const block_encoding *its = encoder_find(e->encoder, seq);
            if (its == NULL) {
                return report(error, CELLAR_NOT_FOUND, i,
                              "sequence %" PRId64
                              " has no encoding: encode a text for it, or share "
                              "another sequence's, before it is decoded",
                              (int64_t)seq);
            }
            if (j > first && its != common) {
                return report(error, CELLAR_INVALID, i,
                              "token %" PRIu32 " of the batch stands in sequences with different "
                              "encodings, expected one",
                              i);
            }
            common = its;
        }
    }
    return CELLAR_OK;
}

static cellar_status step(engine *e, const cellar_batch *batch, const logits_request *request,
                          cellar_error *error)
{
    cellar_status status = check_request(e, batch, request, error);
    if (status == CELLAR_OK) {
        status = cellar_begin(e->memory, batch, error);
    }
    if (status != CELLAR_OK) {
        return status; /* and no step is open, unless it is somebody else's */
    }
    status = check_encodings(e, batch, error);
    if (status == CELLAR_OK) {
        status = compute(e, batch, request, error);
    }
    if (status == CELLAR_OK) {
        status = cellar_commit(e->memory, error);
    }
    if (status != CELLAR_OK) {
        cellar_abort(e->memory);
    }
    return status;
}

cellar_status engine_decode(engine *e, const cellar_batch *batch, const uint32_t *wanted,
                            uint32_t n_wanted, float *logits, cellar_error *error)
{
    const logits_request request = {.wanted = wanted, .n = n_wanted, .rows = logits};
    return step(e, batch, &request, error);
}

cellar_status engine_embed(engine *e, const cellar_batch *batch, const uint32_t *wanted,
                           uint32_t n_wanted, float *rows, cellar_error *error)
{
    const logits_request request = {
        .wanted = wanted, .n = n_wanted, .is_output = true, .rows = rows};
    return step(e, batch, &request, error);
}

/* ---- encodings ------------------------------------------------------------------------------ */

static cellar_status refuse_without_encoder(const engine *e, cellar_error *error)
{
    return report(error, CELLAR_UNSUPPORTED, -1, "models of architecture %s have no encoder",
                  e->model->architecture->name);
}

cellar_status engine_encode(engine *e, const cellar_batch *batch, cellar_error *error)
{
    const logits_request none = {.n = 0};
    if (e->encoder == NULL) {
        return refuse_without_encoder(e, error);
    }
    cellar_status status = check_request(e, batch, &none, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const uint32_t n = batch->n_tokens < e->n_ubatch ? batch->n_tokens : e->n_ubatch;
    for (uint32_t i = 0; i < n; i++) {
        e->tokens[i] = batch->tokens[i];
    }
    embed(e, n); /* of a batch that is too large, what fits; it is refused by the next */
    block_context context = e->context;
    return encoder_read(e->encoder, &context, batch, error);
}

cellar_status engine_share_encoding(engine *e, cellar_seq from, cellar_seq to, cellar_error *error)
{
    return e->encoder == NULL ? refuse_without_encoder(e, error)
                              : encoder_share(e->encoder, from, to, error);
}

void engine_forget_encoding(engine *e, cellar_seq seq)
{
    if (e->encoder != NULL) {
        encoder_forget(e->encoder, seq);
    }
}

uint32_t engine_encoded_tokens(const engine *e, cellar_seq seq)
{
    const block_encoding *found = e->encoder == NULL ? NULL : encoder_find(e->encoder, seq);
    return found == NULL ? 0 : found->n_tokens;
}
