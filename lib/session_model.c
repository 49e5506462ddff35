/*
 * session_model.c: a memory's layers as bytes.
 *
 * cl_model_describe says how a layer is, in the terms of cellar_layer; it is what is written, and what a
 * session's layers are compared with (session_model_read.c).
 */
#include "session_model.h"

#include "error.h"
#include "session_model_layers.h"
#include "session_notes.h"

cellar_status cl_model_check_rows(const cellar_memory *memory, cellar_error *error)
{
    for (uint32_t i = 0; i < memory->n_layers; i++)
        if (memory->layers[i].is_external)
            CL_FAIL(
                error, CELLAR_UNSUPPORTED, i,
                "layer %u is external: its rows are the engine's, and cannot be saved or loaded",
                i);
    return CELLAR_OK;
}

/* ---- how a layer is ---------------------------------------------------------------------------- */

static cellar_window described_window(const cellar_window *window)
{
    if (window->kind == CELLAR_WINDOW_NONE) return (cellar_window){.kind = CELLAR_WINDOW_NONE};
    return *window;
}

static cellar_rope described_rope(const cl_rope *rope)
{
    cellar_rope none;
    memset(&none, 0, sizeof none);
    if (rope->kind == CELLAR_ROPE_NONE) return none;
    cellar_rope given = rope->given;
    if (given.yarn_ext == 0) {
        given.yarn_beta_fast = given.yarn_beta_slow = 0;
        given.yarn_context = 0;
    }
    return given;
}

static void describe_attention(const cellar_memory *memory, const cl_layer *from,
                               cellar_layer *layer)
{
    layer->n_heads = from->n_heads;
    layer->n_kv_heads = from->n_kv_heads;
    layer->k_size = from->k_size;
    layer->v_size = from->v_size;
    layer->k_type = from->k->type;
    layer->v_type = from->v ? from->v->type : CELLAR_F32;
    layer->scale = from->scale;
    layer->is_causal = from->is_causal;
    layer->rope = described_rope(&memory->ropes[from->rope]);
    layer->window = described_window(&memory->groups[from->group].window);
    layer->v_in_k = from->v_in_k;
    layer->rotate_k = from->hadamard_k > 0;
    layer->rotate_v = from->hadamard_v > 0;
    layer->softcap = from->softcap;
    layer->alibi_max_bias = from->alibi_max_bias;
}

void cl_model_describe(const cellar_memory *memory, uint32_t i, cellar_layer *layer)
{
    const cl_layer *from = &memory->layers[i];
    memset(layer, 0, sizeof *layer);
    layer->struct_size = sizeof *layer;
    layer->kind = from->kind;
    layer->reads_layer = from->source == i ? -1 : (int32_t)from->source;
    if (from->kind == CELLAR_LAYER_ATTENTION) describe_attention(memory, from, layer);
    if (from->kind == CELLAR_LAYER_RECURRENT) layer->n_states = from->n_states;
}

void cl_model_describe_group(const cellar_memory *memory, uint32_t g, cl_saved_group *group)
{
    const cl_group *from = &memory->groups[g];
    *group = (cl_saved_group){.kind = from->kind,
                              .window = described_window(&from->window),
                              .has_points = from->sequences.cells.points != NULL};
}

/* ---- bytes --------------------------------------------------------------------------------------- */

static unsigned char *put_window(unsigned char *to, const cellar_window *window)
{
    to = cl_put_u32(to, (uint32_t)window->kind);
    to = cl_put_u32(to, window->size);
    return cl_put_u32(to, window->n_sinks);
}

void cl_model_put_group(unsigned char to[CL_SESSION_GROUP], const cl_saved_group *group)
{
    to = cl_put_u32(to, (uint32_t)group->kind);
    to = put_window(to, &group->window);
    cl_put_u32(to, group->has_points);
}

static unsigned char *put_rope(unsigned char *to, const cellar_rope *rope)
{
    to = cl_put_u32(to, (uint32_t)rope->kind);
    to = cl_put_u32(to, rope->n_rot);
    to = cl_put_u32(to, rope->first);
    for (uint32_t i = 0; i < 4; i++)
        to = cl_put_u32(to, rope->sections[i]);
    const double numbers[6] = {rope->base,      rope->scale,          rope->yarn_ext,
                               rope->yarn_attn, rope->yarn_beta_fast, rope->yarn_beta_slow};
    for (uint32_t i = 0; i < 6; i++)
        to = cl_put_f64(to, numbers[i]);
    to = cl_put_u32(to, rope->yarn_context);
    return cl_put_u32(to, rope->factors ? rope->n_rot / 2 : 0);
}

static unsigned char *put_shape(unsigned char *to, const cellar_layer *layer)
{
    to = cl_put_u32(to, layer->n_heads);
    to = cl_put_u32(to, layer->n_kv_heads);
    to = cl_put_u32(to, layer->k_size);
    to = cl_put_u32(to, layer->v_size);
    to = cl_put_u32(to, (uint32_t)layer->k_type);
    to = cl_put_u32(to, (uint32_t)layer->v_type);
    to = cl_put_f32(to, layer->scale);
    to = cl_put_f32(to, layer->softcap);
    to = cl_put_f32(to, layer->alibi_max_bias);
    return cl_put_u32(to, 0);
}

static uint32_t flags_of(const cellar_layer *layer)
{
    return (layer->is_causal ? CL_MODEL_CAUSAL : 0u) | (layer->v_in_k ? CL_MODEL_V_IN_K : 0u) |
           (layer->rotate_k ? CL_MODEL_TURNED_K : 0u) | (layer->rotate_v ? CL_MODEL_TURNED_V : 0u);
}

void cl_model_put_layer(unsigned char to[CL_SESSION_LAYER], const cellar_layer *layer,
                        int32_t group)
{
    to = cl_put_u32(to, (uint32_t)layer->kind);
    to = cl_put_i32(to, group);
    to = cl_put_i32(to, layer->reads_layer);
    to = cl_put_u32(to, flags_of(layer));
    to = put_shape(to, layer);
    to = put_window(to, &layer->window);
    to = put_rope(to, &layer->rope);
    to = cl_put_u32(to, layer->n_states);
    cl_put_u32(to, 0);
}

static void put_layer(const cellar_memory *memory, uint32_t i, cl_sink *sink)
{
    unsigned char bytes[CL_SESSION_LAYER];
    cellar_layer layer;
    cl_model_describe(memory, i, &layer);
    cl_model_put_layer(bytes, &layer, memory->layers[i].group);
    cl_sink_put(sink, bytes, sizeof bytes);
    for (uint32_t f = 0; layer.rope.factors && f < layer.rope.n_rot / 2; f++) {
        cl_put_f32(bytes, layer.rope.factors[f]);
        cl_sink_put(sink, bytes, 4);
    }
    for (uint32_t t = 0; t < layer.n_states; t++)
        cl_sink_put_u32(sink, memory->layers[i].states[t].size);
}

void cl_model_put(const cellar_memory *memory, const cellar_note *facts, uint32_t n_facts,
                  cl_sink *sink)
{
    cl_notes_put(sink, facts, n_facts);
    cl_sink_put_u32(sink, memory->n_groups);
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        unsigned char bytes[CL_SESSION_GROUP];
        cl_saved_group group;
        cl_model_describe_group(memory, g, &group);
        cl_model_put_group(bytes, &group);
        cl_sink_put(sink, bytes, sizeof bytes);
    }
    cl_sink_put_u32(sink, memory->n_layers);
    for (uint32_t i = 0; i < memory->n_layers; i++)
        put_layer(memory, i, sink);
}
