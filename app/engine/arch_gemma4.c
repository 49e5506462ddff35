/*
 * arch_gemma4.c: "gemma4" (Google's Gemma 4 model cards and reference implementation, 2026).
 *
 *     x += norm(attention(norm(x)));   x += norm(down(gelu(gate h) * up h)) with h = norm(x)
 *     x += norm(proj(gelu(inp_gate x) * input of the token and the layer))
 *     x *= layer_output_scale
 *
 * Layers with a window and layers without have head sizes and rotations of their own; of the wide heads
 * only the first pairs turn (the others have an infinite divisor in rope_freqs). Queries, keys and
 * values are normed head by head, values without weights, and scores are not scaled. A layer without
 * attn_v takes its keys, before norm and rotation, as values. The last shared_kv_layers layers have queries
 * alone: they read the rows of the last layer of their kind before them.
 *
 * The per-layer inputs are computed once from the embedded tokens, which says something of a token to
 * every layer at little cost:
 *
 *     input = (norm(model_proj x / sqrt(n_embd)) + sqrt(width) * row of per_layer_token_embd) / sqrt(2)
 *
 * They lie at the front of the scratch room while the layers run.
 */
#include <inttypes.h>
#include <math.h>

#include "engine/transformer.h"
#include "report.h"

#define MAX_INPUT 65536u /* numbers of a layer's input */

/* What a layer does with its input. */
typedef struct gemma4_layer {
    block_linear gate;  /* [width][n_embd] */
    block_linear proj;  /* [n_embd][width] */
    block_norm after;   /* of what proj gives */
    float output_scale; /* 1: none */
} gemma4_layer;

/* m->parts */
typedef struct gemma4_parts {
    uint32_t width;          /* of a layer's input; 0: layers have none */
    block_weight embedding;  /* [n_vocab][n_layers * width] */
    block_linear model_proj; /* [n_layers * width][n_embd] */
    block_norm norm;         /* of the input of each layer */
    gemma4_layer *layers;    /* [n_layers] */
} gemma4_parts;

/* ---- loading ----------------------------------------------------------------------------------- */

/* What the file says beside the plan, which holds what layers without a window have. */
typedef struct gemma4_shape {
    transformer_plan plan;
    uint32_t window_k_size, window_v_size;
    uint32_t n_storing; /* layers with keys and values of their own */
} gemma4_shape;

static cellar_status read_window_heads(const model *m, gemma4_shape *shape, cellar_error *error)
{
    const model_shape *full = &shape->plan.shape;
    cellar_status status = model_read_u32_or(m, "attention.key_length_swa", 2, MODEL_MAX_HEAD_SIZE,
                                             full->k_size, &shape->window_k_size, error);
    if (status == CELLAR_OK && shape->window_k_size % 2 != 0) {
        return model_refuse_key(m, "attention.key_length_swa", "an even number",
                                shape->window_k_size, error);
    }
    return status == CELLAR_OK
               ? model_read_u32_or(m, "attention.value_length_swa", 2, MODEL_MAX_HEAD_SIZE,
                                   full->v_size, &shape->window_v_size, error)
               : status;
}

static cellar_status read_shape(model *m, gemma4_shape *shape, cellar_error *error)
{
    transformer_plan *plan = &shape->plan;
    uint32_t n_reading;
    double softcap = 0;
    cellar_status status;
    if ((status = transformer_read(m, plan, error)) ||
        (status = model_read_windows(m, MODEL_WINDOW_REQUIRED, 6, &plan->windows, error)) ||
        (status = read_window_heads(m, shape, error)) ||
        (status = model_read_window_rope(m, shape->window_k_size, &plan->rope, 10000,
                                         &plan->window_rope, error)) ||
        (status = model_read_u32_or(m, "attention.shared_kv_layers", 0, m->n_layers - 1, 0,
                                    &n_reading, error)) ||
        (status = model_read_positive(m, "final_logit_softcapping", false, &softcap, error))) {
        return status;
    }
    shape->n_storing = m->n_layers - n_reading;
    m->logit_softcap = (float)softcap;
    return CELLAR_OK;
}

/* The layer whose rows layer i reads: the last before n_storing with the same kind of window. */
static cellar_status find_source(const model *m, const gemma4_shape *shape, uint32_t i,
                                 uint32_t *source, cellar_error *error)
{
    const bool *is_window = shape->plan.windows.is_window;
    for (uint32_t j = shape->n_storing; j-- > 0;) {
        if (is_window[j] == is_window[i]) {
            *source = j;
            return CELLAR_OK;
        }
    }
    return report(error, CELLAR_CORRUPT, -1,
                  "%s.attention.shared_kv_layers: expected a layer %s a window before layer "
                  "%" PRIu32 " for layer %" PRIu32 " to read, found none",
                  m->architecture->name, is_window[i] ? "with" : "without", shape->n_storing, i);
}

/* Keys and values of a layer that reads another's are of no use, but some files have them. */
static cellar_status pass_over_rows(model *m, uint32_t i, const block_attention *a,
                                    cellar_error *error)
{
    block_linear unused;
    block_norm unused_norm;
    cellar_status status = CELLAR_OK;
    if (model_has_part(m, i, "attn_k")) {
        status = model_load_linear(m, i, "attn_k", m->n_embd, a->n_kv_heads * a->k_size, &unused,
                                   error);
    }
    if (status == CELLAR_OK && model_has_part(m, i, "attn_v")) {
        status = model_load_linear(m, i, "attn_v", m->n_embd, a->n_kv_heads * a->v_size, &unused,
                                   error);
    }
    if (status == CELLAR_OK && model_has_part(m, i, "attn_k_norm")) {
        status = model_load_norm_of(m, i, "attn_k_norm", BLOCK_NORM_RMS, a->k_size, 1, 1,
                                    &unused_norm, error);
    }
    return status;
}

static cellar_status load_layer(model *m, const gemma4_shape *shape, uint32_t i,
                                cellar_error *error)
{
    transformer_layer *layers = m->layers;
    block_attention *attention = &layers[i].attention;
    transformer_plan plan = shape->plan;
    if (plan.windows.is_window[i]) {
        plan.shape.k_size = shape->window_k_size;
        plan.shape.v_size = shape->window_v_size;
    }
    if (plan.shape.k_size != plan.shape.v_size) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "layer %" PRIu32 ": expected keys and values of one size, found %" PRIu32
                      " and %" PRIu32,
                      i, plan.shape.k_size, plan.shape.v_size);
    }
    plan.is_reader = i >= shape->n_storing;
    cellar_status status = transformer_load_layer(m, &plan, i, error);
    if (status != CELLAR_OK) {
        return status;
    }
    attention->v_norm = (block_norm){.kind = BLOCK_NORM_RMS,
                                     .width = attention->v_size,
                                     .n_groups = 1,
                                     .epsilon = (float)plan.epsilon};
    uint32_t source = 0;
    if (!plan.is_reader) {
        return CELLAR_OK;
    }
    if ((status = find_source(m, shape, i, &source, error)) != CELLAR_OK) {
        return status;
    }
    if (plan.shape.kv_heads[i] != plan.shape.kv_heads[source]) {
        return model_refuse_key(m, "attention.head_count_kv",
                                "as many in a layer as in the layer it reads",
                                plan.shape.kv_heads[i], error);
    }
    m->memory_layers[attention->memory_layer].reads_layer =
        (int32_t)layers[source].attention.memory_layer;
    return pass_over_rows(m, i, attention, error);
}

/* Where a layer's input goes, and the scale of the whole. */
static cellar_status load_input(model *m, double epsilon, uint32_t i, cellar_error *error)
{
    const gemma4_parts *parts = m->parts;
    gemma4_layer *to = &parts->layers[i];
    const float *scale;
    cellar_status status = CELLAR_OK;
    to->output_scale = 1;
    if (model_has_part(m, i, "layer_output_scale")) {
        status = model_load_vector(m, i, "layer_output_scale.weight", 1, &scale, error);
        to->output_scale = status == CELLAR_OK ? *scale : 1;
    }
    if (status != CELLAR_OK || parts->width == 0 ||
        (status = model_load_linear(m, i, "inp_gate", m->n_embd, parts->width, &to->gate, error)) ||
        (status = model_load_linear(m, i, "proj", parts->width, m->n_embd, &to->proj, error))) {
        return status;
    }
    return model_load_norm(m, i, "post_norm", BLOCK_NORM_RMS, epsilon, &to->after, error);
}

/* The tensors that give all layers their inputs. */
static cellar_status load_inputs(model *m, double epsilon, cellar_error *error)
{
    gemma4_parts *parts = model_allocate(m, 1, sizeof *parts, error);
    m->parts = parts;
    if (parts == NULL) {
        return CELLAR_NO_MEMORY;
    }
    parts->layers = model_allocate(m, m->n_layers, sizeof *parts->layers, error);
    if (parts->layers == NULL) {
        return CELLAR_NO_MEMORY;
    }
    cellar_status status = model_read_u32_or(m, "embedding_length_per_layer_input", 0, MAX_INPUT, 0,
                                             &parts->width, error);
    if (status != CELLAR_OK || parts->width == 0) {
        return status;
    }
    uint32_t all = m->n_layers * parts->width;
    if ((status = model_read_weight(m, "per_layer_token_embd.weight", all, m->n_vocab,
                                    &parts->embedding, error)) ||
        (status = model_read_linear(m, "per_layer_model_proj", m->n_embd, all, &parts->model_proj,
                                    error))) {
        return status;
    }
    return model_read_norm(m, "per_layer_proj_norm", BLOCK_NORM_RMS, parts->width, 1, epsilon,
                           &parts->norm, error);
}

static cellar_status load(model *m, cellar_error *error)
{
    gemma4_shape shape = {.plan = {.norm = BLOCK_NORM_RMS,
                                   .rope_kind = CELLAR_ROPE_NEOX,
                                   .activation = BLOCK_GELU,
                                   .is_gated = true,
                                   .has_head_norms = true,
                                   .has_norms_after = true,
                                   .has_window_rope = true,
                                   .may_lack_v = true,
                                   .attention_scale = 1}};
    m->embedding_scale = sqrtf((float)m->n_embd);
    cellar_status status;
    if ((status = read_shape(m, &shape, error)) ||
        (status = model_make_layers(m, sizeof(transformer_layer), error)) ||
        (status = load_inputs(m, shape.plan.epsilon, error))) {
        return status;
    }
    for (uint32_t i = 0; i < m->n_layers; i++) {
        if ((status = load_layer(m, &shape, i, error)) ||
            (status = load_input(m, shape.plan.epsilon, i, error))) {
            return status;
        }
    }
    const gemma4_parts *parts = m->parts;
    m->kept = block_room((uint64_t)m->n_layers * parts->width);
    status = model_need_scratch(m, m->kept, error); /* begin() reads rows as long as that */
    return status == CELLAR_OK ? model_load_output(m, BLOCK_NORM_RMS, shape.plan.epsilon, error)
                               : status;
}

/* ---- running ----------------------------------------------------------------------------------- */

/* c->kept [n_tokens][n_layers * width]: the inputs, from the embedded tokens in c->x. */
static void begin(const model *m, const block_context *c)
{
    const gemma4_parts *parts = m->parts;
    if (parts->width == 0) {
        return;
    }
    const block_weight *w = &parts->embedding;
    float *row = c->scratch, *inputs = c->kept; /* row: of one token at a time */
    const block_product product = {.linear = &parts->model_proj, .x = c->x, .y = inputs};
    block_multiply(c, &product, 1, c->n_tokens);
    const float half_root = 0.70710678118654752440f; /* sqrt(1/2) */
    float projected = 1 / sqrtf((float)m->n_embd), embedded = sqrtf((float)parts->width);
    size_t n = (size_t)c->n_tokens * w->n_in;
    for (size_t i = 0; i < n; i++) {
        inputs[i] *= projected;
    }
    block_norm_run(&parts->norm, c, inputs, inputs, c->n_tokens * m->n_layers);
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        float *its = inputs + (size_t)t * w->n_in;
        const unsigned char *data = (const unsigned char *)w->data +
                                    (size_t)c->tokens[t] * w->row_bytes;
        c->table->weight[w->type].decode(row, data, w->n_in);
        for (uint32_t i = 0; i < w->n_in; i++) {
            its[i] = (its[i] + embedded * row[i]) * half_root;
        }
    }
}

/* x += norm(proj(gelu(gate x) * input)) */
static void add_input(const model *m, uint32_t layer, const block_context *c)
{
    const gemma4_parts *parts = m->parts;
    const gemma4_layer *its = &parts->layers[layer];
    uint32_t width = parts->width;
    float *left = c->scratch, *hidden = block_cut(&left, c, width);
    const block_product gate = {.linear = &its->gate, .x = c->x, .y = hidden};
    block_multiply_activated(c, &gate, 1, BLOCK_GELU, c->n_tokens);
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        const float *input = c->kept + ((size_t)t * m->n_layers + layer) * width;
        for (uint32_t i = 0; i < width; i++) {
            hidden[(size_t)t * width + i] *= input[i];
        }
    }
    const block_product proj = {.linear = &its->proj, .x = hidden, .y = c->added};
    block_multiply(c, &proj, 1, c->n_tokens);
    block_norm_run(&its->after, c, c->added, c->added, c->n_tokens);
    size_t n = (size_t)c->n_tokens * c->n_embd;
    for (size_t i = 0; i < n; i++) {
        c->x[i] += c->added[i];
    }
}

static cellar_status run_layer(const model *m, uint32_t i, const block_context *c,
                               cellar_error *error)
{
    const gemma4_parts *parts = m->parts;
    cellar_status status = transformer_run_layer(m, i, c, error);
    if (status == CELLAR_OK && parts->width > 0) {
        add_input(m, i, c);
    }
    float scale = parts->layers[i].output_scale;
    size_t n = (size_t)c->n_tokens * c->n_embd;
    for (size_t j = 0; scale != 1 && j < n; j++) {
        c->x[j] *= scale;
    }
    return status;
}

const model_architecture model_architecture_gemma4 = {
    .name = "gemma4", .load = load, .begin = begin, .run_layer = run_layer};
