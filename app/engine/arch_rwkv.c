/*
 * arch_rwkv.c: the "rwkv6" (Peng et al., arXiv:2404.05892) and "rwkv7" (arXiv:2503.14456) architectures.
 *
 *     x = norm of the token's embedding
 *     for each layer:   x += time_mix(norm(x));   x += channel_mix(norm(x))
 *
 * with layer norms; heads are normed with an epsilon of their own. Nothing attends: the memory holds
 * states alone. RWKV-6 files may say that x is halved after every so many layers, for which their
 * weights are made. RWKV-7 passes the values of its first layer on to all others.
 */
#include <inttypes.h>
#include <stdio.h>

#include "engine/block_rwkv.h"
#include "engine/hybrid.h"
#include "report.h"

#define HEAD_EPSILON 64e-5 /* 1e-5 times the square of the divisor 8 that heads were trained with */
#define MAX_RANK MODEL_MAX_EMBD

typedef struct rwkv_layer {
    block_norm time_norm, channel_norm;
    bool is_seven;
    union {
        block_rwkv6_time six;
        block_rwkv7_time seven;
    } time;
    block_rwkv_channels channels;
    uint32_t memory_layer;
    float output_scale; /* of x after the layer; 1: as it is */
} rwkv_layer;

/* What the layers have in common. */
typedef struct rwkv_plan {
    uint32_t n_heads;
    uint32_t *ff; /* [n_layers] */
    double epsilon;
    uint32_t mix_rank, decay_rank, rescale_every; /* RWKV-6 */
    uint32_t decay, rate, residual, gate;         /* ranks of RWKV-7 */
} rwkv_plan;

/* ---- running ----------------------------------------------------------------------------------- */

static cellar_status run_layer(const model *m, uint32_t i, const block_context *c,
                               cellar_error *error)
{
    const rwkv_layer *layer = (const rwkv_layer *)m->layers + i;
    block_norm_run(&layer->time_norm, c, c->x, c->h, c->n_tokens);
    cellar_status status =
        layer->is_seven ? block_rwkv7_time_run(&layer->time.seven, c, c->h, c->added, c->x, error)
                        : block_rwkv6_time_run(&layer->time.six, c, c->h, c->added, c->x, error);
    if (status != CELLAR_OK) {
        return status;
    }
    block_norm_run(&layer->channel_norm, c, c->x, c->h, c->n_tokens);
    block_rwkv_channels_run(&layer->channels, c, c->h, c->added, c->x);
    for (size_t j = 0; layer->output_scale != 1 && j < (size_t)c->n_tokens * c->n_embd; j++) {
        c->x[j] *= layer->output_scale;
    }
    return cellar_confirm(c->memory, c->ubatch, layer->memory_layer, error);
}

/* ---- loading: what both have ------------------------------------------------------------------- */

static cellar_status read_plan(model *m, rwkv_plan *plan, cellar_error *error)
{
    uint32_t size;
    plan->ff = model_allocate(m, m->n_layers, sizeof *plan->ff, error);
    if (plan->ff == NULL) {
        return CELLAR_NO_MEMORY;
    }
    cellar_status status;
    if ((status = model_read_per_layer(m, "feed_forward_length", 1, MODEL_MAX_FF, NULL, plan->ff,
                                       error)) ||
        (status = model_read_positive(m, "attention.layer_norm_epsilon", true, &plan->epsilon,
                                      error)) ||
        (status = model_read_u32(m, "wkv.head_size", 1, MODEL_MAX_HEAD_SIZE, &size, error))) {
        return status;
    }
    if (m->n_embd % size != 0 || m->n_embd / size > MODEL_MAX_HEADS / 2) {
        return model_refuse_key(m, "wkv.head_size", "a divisor of the embedding length", size,
                                error);
    }
    plan->n_heads = m->n_embd / size;
    return model_read_norm(m, "token_embd_norm", BLOCK_NORM_LAYER, m->n_embd, 1, plan->epsilon,
                           &m->embedding_norm, error);
}

static cellar_status load_vector(model *m, uint32_t i, const char *part, const float **out,
                                 cellar_error *error)
{
    return model_load_vector(m, i, part, m->n_embd, out, error);
}

static cellar_status load_square(model *m, uint32_t i, const char *part, block_linear *out,
                                 cellar_error *error)
{
    return model_load_linear(m, i, part, m->n_embd, m->n_embd, out, error);
}

/* Norms, channel mix but for its receptance, the layer of the memory. */
static cellar_status load_common(model *m, uint32_t i, const rwkv_plan *plan, rwkv_layer *to,
                                 cellar_error *error)
{
    const uint32_t n = m->n_embd;
    const uint64_t states[3] = {n, n, (uint64_t)n * (n / plan->n_heads)};
    block_rwkv_channels *channels = &to->channels;
    channels->n_embd = n;
    to->output_scale = 1;
    cellar_status status;
    if ((status = model_load_norm(m, i, "attn_norm", BLOCK_NORM_LAYER, plan->epsilon,
                                  &to->time_norm, error)) ||
        (status = model_load_norm(m, i, "attn_norm_2", BLOCK_NORM_LAYER, plan->epsilon,
                                  &to->channel_norm, error)) ||
        (status = load_vector(m, i, "channel_mix_lerp_k.weight", &channels->l_k, error)) ||
        (status = model_load_linear(m, i, "channel_mix_key", n, plan->ff[i], &channels->key,
                                    error)) ||
        (status = model_load_linear(m, i, "channel_mix_value", plan->ff[i], n, &channels->value,
                                    error)) ||
        (status = hybrid_add_memory_layer(m, i, states, 3, &to->memory_layer, error))) {
        return status;
    }
    channels->memory_layer = to->memory_layer;
    return model_need_scratch(m, block_rwkv_channels_scratch(channels), error);
}

static cellar_status load_head_norm(model *m, uint32_t i, const rwkv_plan *plan, block_norm *out,
                                    cellar_error *error)
{
    return model_load_norm_of(m, i, "time_mix_ln", BLOCK_NORM_LAYER, m->n_embd / plan->n_heads,
                              plan->n_heads, HEAD_EPSILON, out, error);
}

/* ---- RWKV-6 ------------------------------------------------------------------------------------ */

/* time_mix_w1 has the five first matrices below each other, time_mix_w2 the five second ones. */
static cellar_status load_mixing(model *m, uint32_t i, uint32_t rank, block_rwkv6_time *to,
                                 cellar_error *error)
{
    const uint32_t rows[5] = {rank, rank, rank, rank, rank};
    block_linear *const down[5] = {&to->down[0], &to->down[1], &to->down[2], &to->down[3],
                                   &to->down[4]};
    char name[MODEL_KEY_SIZE];
    block_weight up;
    snprintf(name, sizeof name, "blk.%" PRIu32 ".time_mix_w2.weight", i);
    cellar_status status;
    if ((status = load_vector(m, i, "time_mix_lerp_x.weight", &to->l_x, error)) ||
        (status = hybrid_load_rows(m, i, "time_mix_lerp_fused.weight", m->n_embd, 5, &to->l,
                                   error)) ||
        (status = model_load_fused(m, i, "time_mix_w1", m->n_embd, rows, down, 5, error)) ||
        (status = model_read_weights(m, name, rank, m->n_embd, 5, &up, error))) {
        return status;
    }
    for (size_t j = 0; j < 5; j++) {
        to->up[j].weight = up;
        to->up[j].weight.data = (const char *)up.data + j * up.n_out * up.row_bytes;
    }
    return CELLAR_OK;
}

static cellar_status load_six_time(model *m, uint32_t i, const rwkv_plan *plan,
                                   block_rwkv6_time *to, cellar_error *error)
{
    cellar_status status;
    if ((status = load_mixing(m, i, plan->mix_rank, to, error)) ||
        (status = hybrid_load_rows(m, i, "time_mix_first.weight", m->n_embd / plan->n_heads,
                                   plan->n_heads, &to->first, error)) ||
        (status = model_load_linear(m, i, "time_mix_decay_w1", m->n_embd, plan->decay_rank,
                                    &to->decay_down, error)) ||
        (status = model_load_linear(m, i, "time_mix_decay_w2", plan->decay_rank, m->n_embd,
                                    &to->decay_up, error)) ||
        (status = load_vector(m, i, "time_mix_decay.weight", &to->decay_up.bias, error)) ||
        (status = load_square(m, i, "time_mix_key", &to->k, error)) ||
        (status = load_square(m, i, "time_mix_value", &to->v, error)) ||
        (status = load_square(m, i, "time_mix_receptance", &to->r, error)) ||
        (status = load_square(m, i, "time_mix_gate", &to->gate, error)) ||
        (status = load_square(m, i, "time_mix_output", &to->out, error))) {
        return status;
    }
    return load_head_norm(m, i, plan, &to->norm, error);
}

static cellar_status load_six_layer(model *m, uint32_t i, const rwkv_plan *plan,
                                    cellar_error *error)
{
    rwkv_layer *to = (rwkv_layer *)m->layers + i;
    cellar_status status;
    if ((status = load_common(m, i, plan, to, error)) ||
        (status = load_vector(m, i, "channel_mix_lerp_r.weight", &to->channels.l_r, error)) ||
        (status = load_square(m, i, "channel_mix_receptance", &to->channels.receptance, error)) ||
        (status = load_six_time(m, i, plan, &to->time.six, error))) {
        return status;
    }
    to->time.six.memory_layer = to->memory_layer;
    to->time.six.n_embd = m->n_embd;
    to->time.six.n_heads = plan->n_heads;
    to->output_scale = plan->rescale_every > 0 && (i + 1) % plan->rescale_every == 0 ? 0.5f : 1;
    return model_need_scratch(m, block_rwkv6_time_scratch(&to->time.six), error);
}

static cellar_status load_six(model *m, cellar_error *error)
{
    rwkv_plan plan = {0};
    cellar_status status;
    if ((status = read_plan(m, &plan, error)) ||
        (status = model_read_u32(m, "time_mix_extra_dim", 1, MAX_RANK, &plan.mix_rank, error)) ||
        (status = model_read_u32(m, "time_decay_extra_dim", 1, MAX_RANK, &plan.decay_rank,
                                 error)) ||
        (status = model_read_u32_or(m, "rescale_every_n_layers", 0, MODEL_MAX_LAYERS, 0,
                                    &plan.rescale_every, error)) ||
        (status = model_make_layers(m, sizeof(rwkv_layer), error))) {
        return status;
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_six_layer(m, i, &plan, error);
    }
    return status == CELLAR_OK ? model_load_output(m, BLOCK_NORM_LAYER, plan.epsilon, error)
                               : status;
}

const model_architecture model_architecture_rwkv6 = {
    .name = "rwkv6", .load = load_six, .run_layer = run_layer};

/* ---- RWKV-7 ------------------------------------------------------------------------------------ */

/* down: time_mix_<letter>1, up: <letter>2, whose bias is <letter>0 if it has one. */
static cellar_status load_pair(model *m, uint32_t i, char letter, bool has_bias, uint32_t rank,
                               block_linear *down, block_linear *up, cellar_error *error)
{
    char first[32], second[32], bias[32];
    snprintf(first, sizeof first, "time_mix_%c1", letter);
    snprintf(second, sizeof second, "time_mix_%c2", letter);
    snprintf(bias, sizeof bias, "time_mix_%c0.weight", letter);
    cellar_status status;
    if ((status = model_load_linear(m, i, first, m->n_embd, rank, down, error)) ||
        (status = model_load_linear(m, i, second, rank, m->n_embd, up, error))) {
        return status;
    }
    return has_bias ? load_vector(m, i, bias, &up->bias, error) : CELLAR_OK;
}

static cellar_status load_pairs(model *m, uint32_t i, const rwkv_plan *plan, block_rwkv7_time *to,
                                cellar_error *error)
{
    cellar_status status;
    if ((status = load_pair(m, i, 'w', true, plan->decay, &to->w_down, &to->w_up, error)) ||
        (status = load_pair(m, i, 'a', true, plan->rate, &to->a_down, &to->a_up, error)) ||
        (status = load_pair(m, i, 'g', false, plan->gate, &to->g_down, &to->g_up, error))) {
        return status;
    }
    if (i == 0 && !model_has_part(m, i, "time_mix_v1")) {
        return CELLAR_OK;
    }
    status = load_pair(m, i, 'v', true, plan->residual, &to->v_down, &to->v_up, error);
    if (i == 0) { /* files have them there too, and nobody uses them */
        to->v_down = to->v_up = (block_linear){.bias = NULL};
    }
    return status;
}

static cellar_status load_seven_time(model *m, uint32_t i, const rwkv_plan *plan,
                                     block_rwkv7_time *to, cellar_error *error)
{
    *to = (block_rwkv7_time){.n_embd = m->n_embd, .n_heads = plan->n_heads, .is_first = i == 0};
    cellar_status status;
    if ((status = load_pairs(m, i, plan, to, error)) ||
        (status = hybrid_load_rows(m, i, "time_mix_lerp_fused.weight", m->n_embd, 6, &to->l,
                                   error)) ||
        (status = load_vector(m, i, "time_mix_k_k.weight", &to->k_k, error)) ||
        (status = load_vector(m, i, "time_mix_k_a.weight", &to->k_a, error)) ||
        (status = load_vector(m, i, "time_mix_r_k.weight", &to->r_k, error)) ||
        (status = load_square(m, i, "time_mix_key", &to->k, error)) ||
        (status = load_square(m, i, "time_mix_value", &to->v, error)) ||
        (status = load_square(m, i, "time_mix_receptance", &to->r, error)) ||
        (status = load_square(m, i, "time_mix_output", &to->out, error))) {
        return status;
    }
    return load_head_norm(m, i, plan, &to->norm, error);
}

static cellar_status load_seven_layer(model *m, uint32_t i, const rwkv_plan *plan,
                                      cellar_error *error)
{
    rwkv_layer *to = (rwkv_layer *)m->layers + i;
    to->is_seven = true;
    m->kept = block_room(m->n_embd); /* the values of the first layer */
    cellar_status status;
    if ((status = load_common(m, i, plan, to, error)) ||
        (status = load_seven_time(m, i, plan, &to->time.seven, error))) {
        return status;
    }
    to->time.seven.memory_layer = to->memory_layer;
    return model_need_scratch(m, block_rwkv7_time_scratch(&to->time.seven), error);
}

static cellar_status load_seven(model *m, cellar_error *error)
{
    rwkv_plan plan = {0};
    cellar_status status;
    if ((status = read_plan(m, &plan, error)) ||
        (status = model_read_u32(m, "attention.decay_lora_rank", 1, MAX_RANK, &plan.decay,
                                 error)) ||
        (status = model_read_u32(m, "attention.iclr_lora_rank", 1, MAX_RANK, &plan.rate, error)) ||
        (status = model_read_u32(m, "attention.value_residual_mix_lora_rank", 1, MAX_RANK,
                                 &plan.residual, error)) ||
        (status = model_read_u32(m, "attention.gate_lora_rank", 1, MAX_RANK, &plan.gate, error)) ||
        (status = model_make_layers(m, sizeof(rwkv_layer), error))) {
        return status;
    }
    for (uint32_t i = 0; status == CELLAR_OK && i < m->n_layers; i++) {
        status = load_seven_layer(m, i, &plan, error);
    }
    return status == CELLAR_OK ? model_load_output(m, BLOCK_NORM_LAYER, plan.epsilon, error)
                               : status;
}

const model_architecture model_architecture_rwkv7 = {
    .name = "rwkv7", .load = load_seven, .run_layer = run_layer};
