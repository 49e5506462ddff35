/*
 * arch_t5.c: the "t5" architecture: an encoder and a decoder (Raffel et al., arXiv:1910.10683), with the
 * changes of version 1.1 (Flan-T5, UL2) where the file has them.
 *
 *     encoder layer:   x += attention(norm(x));   x += feed_forward(norm(x))
 *     decoder layer:   x += attention(norm(x));   x += cross_attention(norm(x));   x += ...the same
 *
 * with RMS norms and scores that are not scaled. No token knows its position: a learned bias for the distance of
 * key and query, by buckets, is added to scores; the first layer of each half holds it for all (or a
 * layer has its own). Distances from 128 on share a bucket, as in all published models; files
 * do not say. The encoder sees both ways, the decoder back. Feed-forward: down(relu(up x)), or
 * down(gelu(gate x) * up x) where the file has a gate. Where there is no output matrix the embedding is
 * used again, and then the authors scale what goes into it by 1 / sqrt(width).
 *
 * Tensors: enc.blk.N.*, dec.blk.N.*, enc.output_norm, dec.output_norm.
 */
#include "engine/model_arch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "engine/block_cross_attention.h"
#include "engine/transformer.h"
#include "report.h"

#define MAX_DISTANCE 128u

typedef struct t5_decoder_layer {
    block_norm attention_norm;
    block_attention attention;
    block_norm cross_norm;
    block_cross_attention cross;
    block_norm ffn_norm;
    block_ffn ffn;
} t5_decoder_layer;

/* m->parts: what the encoder is. */
typedef struct t5_encoder {
    model_encoder common;
    transformer_layer *layers;
    cellar_layer *memory_layers; /* room for one each */
} t5_encoder;

typedef struct t5_shape {
    model_heads heads;
    uint32_t n_ff, n_encoder_layers, n_decoder_layers, n_buckets;
    double epsilon;
    cellar_buckets encoder_buckets, decoder_buckets; /* the first layer's; n 0: not read yet */
} t5_shape;

/* One layer of a half: the beginning of its tensors' names. */
typedef struct t5_place {
    bool is_encoder;
    uint32_t layer;
} t5_place;

typedef struct part_name {
    char text[MODEL_KEY_SIZE];
} part_name;

static part_name name_of(t5_place at, const char *part)
{
    part_name name;
    snprintf(name.text, sizeof name.text, "%s.blk.%" PRIu32 ".%s", at.is_encoder ? "enc" : "dec",
             at.layer, part);
    return name;
}

/* ---- metadata ---------------------------------------------------------------------------------- */

static cellar_status read_heads(model *m, t5_shape *s, cellar_error *error)
{
    model_heads *h = &s->heads;
    cellar_status status;
    if ((status = model_read_u32(m, "attention.head_count", 1, MODEL_MAX_HEADS, &h->n_heads,
                                 error)) ||
        (status = model_read_u32_or(m, "attention.head_count_kv", 1, MODEL_MAX_HEADS, h->n_heads,
                                    &h->n_kv_heads, error)) ||
        (status = model_read_u32(m, "attention.key_length", 1, MODEL_MAX_HEAD_SIZE, &h->k_size,
                                 error)) ||
        (status = model_read_u32(m, "attention.value_length", 1, MODEL_MAX_HEAD_SIZE, &h->v_size,
                                 error))) {
        return status;
    }
    if (h->n_kv_heads != h->n_heads) {
        return model_refuse_key(m, "attention.head_count_kv", "as many as attention.head_count",
                                h->n_kv_heads, error);
    }
    if ((uint64_t)h->n_heads * (h->k_size > h->v_size ? h->k_size : h->v_size) > MODEL_MAX_FF) {
        return model_refuse_key(m, "attention.head_count", "heads of fewer elements together",
                                h->n_heads, error);
    }
    return CELLAR_OK;
}

static cellar_status read_shape(model *m, t5_shape *s, cellar_error *error)
{
    static const char buckets[] = "attention.relative_buckets_count";
    s->n_encoder_layers = m->n_layers;
    cellar_status status;
    if ((status = read_heads(m, s, error)) ||
        (status = model_read_u32(m, "feed_forward_length", 1, MODEL_MAX_FF, &s->n_ff, error)) ||
        (status = model_read_u32_or(m, "decoder_block_count", 1, MODEL_MAX_LAYERS, m->n_layers,
                                    &s->n_decoder_layers, error)) ||
        (status = model_read_u32(m, buckets, 4, MAX_DISTANCE, &s->n_buckets, error)) ||
        (status = model_read_positive(m, "attention.layer_norm_rms_epsilon", true, &s->epsilon,
                                      error))) {
        return status;
    }
    if (s->n_buckets % 4 != 0) {
        return model_refuse_key(m, buckets, "a multiple of 4", s->n_buckets, error);
    }
    return CELLAR_OK;
}

/* Token that a decoder begins with, if the file says so. */
static cellar_status read_start(const model *m, cellar_token *start, cellar_error *error)
{
    static const char key[] = "decoder_start_token_id";
    uint32_t id = 0;
    *start = -1;
    cellar_status status = model_read_u32_or(m, key, 0, m->n_vocab - 1, 0, &id, error);
    if (status == CELLAR_OK && model_has_key(m, key)) {
        *start = (cellar_token)id;
    }
    return status;
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static cellar_status load_linear(model *m, t5_place at, const char *part, uint32_t n_in,
                                 uint32_t n_out, block_linear *out, cellar_error *error)
{
    return model_read_linear(m, name_of(at, part).text, n_in, n_out, out, error);
}

static cellar_status load_norm(model *m, const t5_shape *s, t5_place at, const char *part,
                               block_norm *out, cellar_error *error)
{
    return model_read_norm(m, name_of(at, part).text, BLOCK_NORM_RMS, m->n_embd, 1, s->epsilon, out,
                           error);
}

/* The layer's own biases into `buckets`, if it has any; the first one must. */
static cellar_status load_buckets(model *m, const t5_shape *s, t5_place at, cellar_buckets *buckets,
                                  cellar_error *error)
{
    const part_name name = name_of(at, "attn_rel_b.weight");
    if (at.layer > 0 && !model_has_tensor(m, name.text)) {
        return CELLAR_OK;
    }
    block_weight shape; /* [n_buckets][n_heads]: a vector of as many could be the other way round */
    cellar_status status = model_read_weight(m, name.text, s->heads.n_heads, s->n_buckets, &shape,
                                             error);
    *buckets = (cellar_buckets){
        .n = s->n_buckets, .max_distance = MAX_DISTANCE, .is_bidirectional = at.is_encoder};
    return status != CELLAR_OK ? status
                               : model_read_vector(m, name.text, s->n_buckets * s->heads.n_heads,
                                                   &buckets->bias, error);
}

static cellar_status load_attention(model *m, const t5_shape *s, t5_place at, block_attention *to,
                                    cellar_error *error)
{
    const model_heads *h = &s->heads;
    const uint32_t k = h->n_heads * h->k_size, v = h->n_heads * h->v_size;
    *to = (block_attention){
        .n_heads = h->n_heads, .n_kv_heads = h->n_heads, .k_size = h->k_size, .v_size = h->v_size};
    cellar_status status;
    if ((status = load_linear(m, at, "attn_q", m->n_embd, k, &to->q, error)) ||
        (status = load_linear(m, at, "attn_k", m->n_embd, k, &to->k, error)) ||
        (status = load_linear(m, at, "attn_v", m->n_embd, v, &to->v, error)) ||
        (status = load_linear(m, at, "attn_o", v, m->n_embd, &to->out, error))) {
        return status;
    }
    return model_need_scratch(m, block_attention_scratch(to), error);
}

static cellar_status load_ffn(model *m, const t5_shape *s, t5_place at, block_ffn *to,
                              cellar_error *error)
{
    const bool is_gated = model_has_tensor(m, name_of(at, "ffn_gate.weight").text);
    *to = (block_ffn){.activation = is_gated ? BLOCK_GELU : BLOCK_RELU};
    cellar_status status = CELLAR_OK;
    if (is_gated) {
        status = load_linear(m, at, "ffn_gate", m->n_embd, s->n_ff, &to->gate, error);
    }
    if (status != CELLAR_OK ||
        (status = load_linear(m, at, "ffn_up", m->n_embd, s->n_ff, &to->up, error)) ||
        (status = load_linear(m, at, "ffn_down", s->n_ff, m->n_embd, &to->down, error))) {
        return status;
    }
    return model_need_scratch(m, block_ffn_scratch(to), error);
}

static cellar_status load_cross(model *m, const t5_shape *s, t5_place at, block_cross_attention *to,
                                cellar_error *error)
{
    const model_heads *h = &s->heads;
    const uint32_t k = h->n_heads * h->k_size, v = h->n_heads * h->v_size;
    *to = (block_cross_attention){.n_heads = h->n_heads,
                                  .k_size = h->k_size,
                                  .v_size = h->v_size,
                                  .scale = 1,
                                  .first = m->encoder->numbers};
    cellar_status status;
    if ((status = load_linear(m, at, "cross_attn_q", m->n_embd, k, &to->q, error)) ||
        (status = load_linear(m, at, "cross_attn_k", m->n_embd, k, &to->k, error)) ||
        (status = load_linear(m, at, "cross_attn_v", m->n_embd, v, &to->v, error)) ||
        (status = load_linear(m, at, "cross_attn_o", v, m->n_embd, &to->out, error))) {
        return status;
    }
    m->encoder->numbers += block_cross_attention_numbers(to);
    m->encoder->readers[m->encoder->n_readers++] = to;
    return model_need_scratch(m, block_cross_attention_scratch(to), error);
}

/* ---- layers ------------------------------------------------------------------------------------ */

static void describe(const t5_shape *s, const cellar_buckets *buckets, bool is_causal,
                     cellar_layer *out)
{
    out->n_heads = out->n_kv_heads = s->heads.n_heads;
    out->k_size = s->heads.k_size;
    out->v_size = s->heads.v_size;
    out->scale = 1;
    out->is_causal = is_causal;
    out->buckets = *buckets;
}

/* Layers with the same biases share a layer of the memory, as they need it one after another. */
static uint32_t use_memory_layer(t5_encoder *encoder, const t5_shape *s,
                                 const cellar_buckets *buckets)
{
    uint32_t i = 0;
    while (i < encoder->common.n_memory_layers &&
           encoder->memory_layers[i].buckets.bias != buckets->bias) {
        i++;
    }
    if (i == encoder->common.n_memory_layers) {
        encoder->memory_layers[i] = cellar_layer_init();
        describe(s, buckets, false, &encoder->memory_layers[i]);
        encoder->common.n_memory_layers++;
    }
    return i;
}

static cellar_status load_encoder_layer(model *m, t5_shape *s, uint32_t i, cellar_error *error)
{
    const t5_place at = {.is_encoder = true, .layer = i};
    t5_encoder *encoder = m->parts;
    transformer_layer *to = &encoder->layers[i];
    cellar_buckets buckets = s->encoder_buckets;
    cellar_status status;
    if ((status = load_norm(m, s, at, "attn_norm", &to->attention_norm, error)) ||
        (status = load_attention(m, s, at, &to->attention, error)) ||
        (status = load_buckets(m, s, at, &buckets, error)) ||
        (status = load_norm(m, s, at, "ffn_norm", &to->ffn_norm, error))) {
        return status;
    }
    to->attention.memory_layer = use_memory_layer(encoder, s, &buckets);
    s->encoder_buckets = i == 0 ? buckets : s->encoder_buckets;
    return load_ffn(m, s, at, &to->ffn, error);
}

static cellar_status load_decoder_layer(model *m, t5_shape *s, uint32_t i, cellar_error *error)
{
    const t5_place at = {.is_encoder = false, .layer = i};
    t5_decoder_layer *to = (t5_decoder_layer *)m->layers + i;
    cellar_buckets buckets = s->decoder_buckets;
    cellar_status status;
    if ((status = load_norm(m, s, at, "attn_norm", &to->attention_norm, error)) ||
        (status = load_attention(m, s, at, &to->attention, error)) ||
        (status = load_buckets(m, s, at, &buckets, error)) ||
        (status = model_add_memory_layer(m, &to->attention.memory_layer, error)) ||
        (status = load_norm(m, s, at, "cross_attn_norm", &to->cross_norm, error)) ||
        (status = load_cross(m, s, at, &to->cross, error)) ||
        (status = load_norm(m, s, at, "ffn_norm", &to->ffn_norm, error))) {
        return status;
    }
    describe(s, &buckets, true, &m->memory_layers[to->attention.memory_layer]);
    s->decoder_buckets = i == 0 ? buckets : s->decoder_buckets;
    return load_ffn(m, s, at, &to->ffn, error);
}

/* ---- the model --------------------------------------------------------------------------------- */

static cellar_status make_encoder(model *m, const t5_shape *s, cellar_error *error)
{
    t5_encoder *encoder = model_allocate(m, 1, sizeof *encoder, error);
    if (encoder == NULL) {
        return CELLAR_NO_MEMORY;
    }
    const uint32_t n = s->n_encoder_layers;
    model_encoder *common = &encoder->common;
    encoder->layers = model_allocate(m, n, sizeof *encoder->layers, error);
    encoder->memory_layers = model_allocate(m, n, sizeof *encoder->memory_layers, error);
    common->readers = model_allocate(m, s->n_decoder_layers, sizeof(void *), error);
    if (encoder->layers == NULL || encoder->memory_layers == NULL || common->readers == NULL) {
        return CELLAR_NO_MEMORY;
    }
    common->n_layers = n;
    common->memory_layers = encoder->memory_layers;
    m->parts = encoder;
    m->encoder = common;
    return read_start(m, &common->start, error);
}

static cellar_status load_output(model *m, const t5_shape *s, cellar_error *error)
{
    cellar_status status;
    if ((status = model_read_norm(m, "enc.output_norm", BLOCK_NORM_RMS, m->n_embd, 1, s->epsilon,
                                  &m->encoder->norm, error)) ||
        (status = model_read_norm(m, "dec.output_norm", BLOCK_NORM_RMS, m->n_embd, 1, s->epsilon,
                                  &m->output_norm, error))) {
        return status;
    }
    if (model_has_tensor(m, "output.weight")) {
        return model_read_linear(m, "output", m->n_embd, m->n_vocab, &m->output, error);
    }
    m->output = (block_linear){.weight = m->embedding};
    m->logit_scale = 1 / sqrtf((float)m->n_embd);
    return CELLAR_OK;
}

static cellar_status load(model *m, cellar_error *error)
{
    t5_shape shape = {.n_ff = 0};
    cellar_status status = read_shape(m, &shape, error);
    if (status == CELLAR_OK) {
        status = make_encoder(m, &shape, error);
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < shape.n_encoder_layers; i++) {
        status = load_encoder_layer(m, &shape, i, error);
    }
    if (status == CELLAR_OK) {
        m->n_layers = shape.n_decoder_layers;
        status = model_make_layers(m, sizeof(t5_decoder_layer), error);
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_decoder_layer(m, &shape, i, error);
    }
    return status == CELLAR_OK ? load_output(m, &shape, error) : status;
}

/* ---- running ----------------------------------------------------------------------------------- */

static cellar_status run_encoder_layer(const model *m, uint32_t layer, const block_context *c,
                                       cellar_error *error)
{
    const t5_encoder *encoder = m->parts;
    return transformer_run(&encoder->layers[layer], c, error);
}

static cellar_status run_layer(const model *m, uint32_t i, const block_context *c,
                               cellar_error *error)
{
    const t5_decoder_layer *layer = (const t5_decoder_layer *)m->layers + i;
    block_norm_run(&layer->attention_norm, c, c->x, c->h, c->n_tokens);
    cellar_status status = block_attention_run(&layer->attention, c, c->h, c->added, c->x, error);
    if (status != CELLAR_OK) {
        return status;
    }
    block_norm_run(&layer->cross_norm, c, c->x, c->h, c->n_tokens);
    block_cross_attention_run(&layer->cross, c, c->h, c->added, c->x);
    block_norm_run(&layer->ffn_norm, c, c->x, c->h, c->n_tokens);
    block_ffn_run(&layer->ffn, c, c->h, c->added, c->x);
    return CELLAR_OK;
}

const model_architecture model_architecture_t5 = {
    .name = "t5", .load = load, .run_layer = run_layer, .run_encoder_layer = run_encoder_layer};
