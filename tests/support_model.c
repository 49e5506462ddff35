/*
 * support_model.c: write the tiny models of support_model.h.
 *
 * Matrices are uniform in +-sqrt(3 / n_in), so that every activation has a variance near 1; norm
 * weights are near 1, biases near 0. Types other than F32 are made from the same numbers: binary16
 * and bfloat16 by cutting, Q8_0 block by block. Little-endian machines only, like the reader's fast
 * path for tensors.
 */
#include "support_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/random_source.h"
#include "kernels.h"
#include "support_vocabulary.h"

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "support_model: no memory\n");
        exit(1);
    }
    return memory;
}

fixture_shape fixture_default(void)
{
    return (fixture_shape){.n_layers = 2,
                           .n_embd = 32,
                           .n_heads = 4,
                           .n_kv_heads = 2,
                           .k_size = 8,
                           .v_size = 8,
                           .n_ff = 64,
                           .n_context = 128,
                           .n_rot = 8,
                           .seed = 1};
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void write_array(gguf_writer *writer, const fixture_key *key)
{
    bool is_float = key->kind == FIXTURE_FLOAT_ARRAY;
    unsigned char *elements = need(malloc(4 * (size_t)key->count + 1));
    for (uint32_t i = 0; i < key->count; i++) {
        double number = i + 1 == key->count ? key->last : key->number;
        uint32_t integer = is_float ? 0 : (uint32_t)number;
        float real = (float)number;
        memcpy(elements + 4 * (size_t)i, is_float ? (void *)&real : (void *)&integer, 4);
    }
    gguf_writer_add_array(writer, key->key, is_float ? GGUF_FLOAT32 : GGUF_UINT32, key->count,
                          elements, 4 * (size_t)key->count);
    free(elements);
}

static void write_key(gguf_writer *writer, const fixture_key *key)
{
    int32_t integer = key->kind == FIXTURE_I32 ? (int32_t)key->number : 0;
    switch (key->kind) {
    case FIXTURE_NOTHING:
        break;
    case FIXTURE_U32:
        gguf_writer_add_u32(writer, key->key, (uint32_t)key->number);
        break;
    case FIXTURE_I32:
        gguf_writer_add_raw(writer, key->key, strlen(key->key), GGUF_INT32, &integer,
                            sizeof integer);
        break;
    case FIXTURE_FLOAT:
        gguf_writer_add_float(writer, key->key, (float)key->number);
        break;
    case FIXTURE_TEXT:
        gguf_writer_add_string(writer, key->key, key->text);
        break;
    case FIXTURE_U32_ARRAY:
    case FIXTURE_FLOAT_ARRAY:
        write_array(writer, key);
        break;
    }
}

static bool is_replaced(const fixture_shape *shape, const char *key)
{
    for (uint32_t i = 0; i < shape->n_keys; i++) {
        if (strcmp(shape->keys[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

static void write_keys(gguf_writer *writer, const fixture_shape *s)
{
    const fixture_key own[] = {
        {"general.architecture", FIXTURE_TEXT, .text = "llama"},
        {"llama.block_count", FIXTURE_U32, .number = s->n_layers},
        {"llama.embedding_length", FIXTURE_U32, .number = s->n_embd},
        {"llama.context_length", FIXTURE_U32, .number = s->n_context},
        {"llama.feed_forward_length", FIXTURE_U32, .number = s->n_ff},
        {"llama.attention.head_count", FIXTURE_U32, .number = s->n_heads},
        {"llama.attention.head_count_kv", FIXTURE_U32, .number = s->n_kv_heads},
        {"llama.attention.key_length", FIXTURE_U32, .number = s->k_size},
        {"llama.attention.value_length", FIXTURE_U32, .number = s->v_size},
        {"llama.attention.layer_norm_rms_epsilon", FIXTURE_FLOAT, .number = 1e-5},
        {"llama.rope.dimension_count", s->n_rot ? FIXTURE_U32 : FIXTURE_NOTHING,
         .number = s->n_rot},
        {"tokenizer.ggml.bos_token_id", FIXTURE_U32, .number = 1},
        {"tokenizer.ggml.eos_token_id", FIXTURE_U32, .number = 2},
    };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (!is_replaced(s, own[i].key)) {
            write_key(writer, &own[i]);
        }
    }
    for (uint32_t i = 0; i < s->n_keys; i++) {
        write_key(writer, &s->keys[i]);
    }
}

/* ---- tensors -------------------------------------------------------------------------------- */

typedef struct tensor_writer {
    gguf_writer *writer;
    const fixture_shape *shape;
    random_source random;
} tensor_writer;

static size_t encode_q8_0(unsigned char *to, const float *from, size_t n)
{
    cl_kernels kernels;
    cl_kernels_fill(&kernels, 0);
    for (size_t block = 0; block < n / 32; block++) {
        const float *x = from + 32 * block;
        float most = 0;
        for (int i = 0; i < 32; i++) {
            most = fmaxf(most, fabsf(x[i]));
        }
        float scale = most / 127;
        uint16_t half;
        kernels.rows_f16_from_f32(&half, &scale, 1);
        memcpy(to + 34 * block, &half, 2);
        for (int i = 0; i < 32; i++) {
            int q = scale > 0 ? (int)lrintf(x[i] / scale) : 0;
            to[34 * block + 2 + i] = (unsigned char)(int8_t)q;
        }
    }
    return n / 32 * 34;
}

/* The numbers in the given type; the bytes used. */
static size_t encode(uint32_t type, unsigned char *to, const float *from, size_t n)
{
    cl_kernels kernels;
    cl_kernels_fill(&kernels, 0);
    switch (type) {
    case CL_WEIGHT_F16:
        kernels.rows_f16_from_f32((uint16_t *)(void *)to, from, n);
        return 2 * n;
    case CL_WEIGHT_BF16:
        for (size_t i = 0; i < n; i++) {
            memcpy(to + 2 * i, (const unsigned char *)&from[i] + 2, 2);
        }
        return 2 * n;
    case CL_WEIGHT_Q8_0:
        return encode_q8_0(to, from, n);
    default:
        memcpy(to, from, 4 * n);
        return 4 * n;
    }
}

static const fixture_tensor *replacement(const fixture_shape *shape, const char *name)
{
    for (uint32_t i = 0; i < shape->n_tensors; i++) {
        if (strcmp(shape->tensors[i].name, name) == 0) {
            return &shape->tensors[i];
        }
    }
    return NULL;
}

static void write_zeros(gguf_writer *writer, const fixture_tensor *tensor)
{
    uint64_t n = 1;
    const char *type_name;
    uint32_t block = 1, block_bytes = 4;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        n *= tensor->dims[i];
    }
    gguf_type_block(tensor->type, &type_name, &block, &block_bytes);
    gguf_writer_add_tensor(writer, tensor->name, tensor->type, tensor->n_dims, tensor->dims, NULL,
                           n / block * block_bytes);
}

/* A tensor of n_in x n_out (0: a vector) random numbers around `middle`, +-spread. */
static void write_tensor(tensor_writer *w, const char *name, uint32_t type, uint32_t n_in,
                         uint32_t n_out, double middle, double spread)
{
    const fixture_tensor *other = replacement(w->shape, name);
    const uint64_t dims[2] = {n_in, n_out};
    size_t n = (size_t)n_in * (n_out == 0 ? 1 : n_out);
    float *numbers = need(malloc(n * sizeof *numbers));
    unsigned char *bytes = need(malloc(n * sizeof *numbers));
    for (size_t i = 0; i < n; i++) {
        numbers[i] = (float)(middle + spread * (2 * random_source_unit(&w->random) - 1));
    }
    if (other == NULL) {
        size_t n_bytes = encode(type, bytes, numbers, n);
        gguf_writer_add_tensor(w->writer, name, type, n_out == 0 ? 1 : 2, dims, bytes, n_bytes);
    } else if (!other->is_left_out) {
        write_zeros(w->writer, other);
    }
    free(numbers);
    free(bytes);
}

static void write_linear(tensor_writer *w, const char *prefix, uint32_t n_in, uint32_t n_out)
{
    char name[80];
    snprintf(name, sizeof name, "%s.weight", prefix);
    write_tensor(w, name, w->shape->weight_type, n_in, n_out, 0, sqrt(3.0 / n_in));
    if (w->shape->has_biases) {
        snprintf(name, sizeof name, "%s.bias", prefix);
        write_tensor(w, name, CL_WEIGHT_F32, n_out, 0, 0, 0.2);
    }
}

static void write_layer(tensor_writer *w, uint32_t layer)
{
    const fixture_shape *s = w->shape;
    const struct {
        const char *part;
        uint32_t n_in, n_out;
    } linears[] = {
        {"attn_q", s->n_embd, s->n_heads * s->k_size},
        {"attn_k", s->n_embd, s->n_kv_heads * s->k_size},
        {"attn_v", s->n_embd, s->n_kv_heads * s->v_size},
        {"attn_output", s->n_heads * s->v_size, s->n_embd},
        {"ffn_gate", s->n_embd, s->n_ff},
        {"ffn_up", s->n_embd, s->n_ff},
        {"ffn_down", s->n_ff, s->n_embd},
    };
    char name[80];
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", (unsigned)layer, linears[i].part);
        write_linear(w, name, linears[i].n_in, linears[i].n_out);
    }
    snprintf(name, sizeof name, "blk.%u.attn_norm.weight", (unsigned)layer);
    write_tensor(w, name, CL_WEIGHT_F32, s->n_embd, 0, 1, 0.3);
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", (unsigned)layer);
    write_tensor(w, name, CL_WEIGHT_F32, s->n_embd, 0, 1, 0.3);
}

static void write_tensors(gguf_writer *writer, const fixture_shape *s)
{
    tensor_writer w = {.writer = writer, .shape = s};
    random_source_seed(&w.random, s->seed);
    write_tensor(&w, "token_embd.weight", s->weight_type, s->n_embd, FIXTURE_VOCABULARY, 0, 1);
    write_tensor(&w, "output_norm.weight", CL_WEIGHT_F32, s->n_embd, 0, 1, 0.3);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        write_layer(&w, i);
    }
    if (s->has_output) {
        write_linear(&w, "output", s->n_embd, FIXTURE_VOCABULARY);
    }
    if (s->has_factors) {
        write_tensor(&w, "rope_freqs.weight", CL_WEIGHT_F32, s->n_rot / 2, 0, 2, 1);
    }
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        bool is_extra = strncmp(s->tensors[i].name, "extra", 5) == 0 ||
                        strstr(s->tensors[i].name, "attn_rot_embd") != NULL;
        if (is_extra) {
            write_zeros(writer, &s->tensors[i]);
        }
    }
}

fixture fixture_create(const fixture_shape *shape)
{
    token_table table = {0};
    token_table_add_usual(&table);
    const char *pieces[] = {"a", "b", "ab", "\xe2\x96\x81", "\xe2\x96\x81\141"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        token_table_add(&table, pieces[i], strlen(pieces[i]), -(float)i, 1);
    }
    gguf_writer *writer = token_table_begin(&table);
    write_keys(writer, shape);
    write_tensors(writer, shape);
    fixture made = {0};
    made.bytes = gguf_writer_finish(writer, &made.size);
    gguf_writer_destroy(writer);
    token_table_free(&table);
    cellar_error error;
    if (gguf_open_memory(made.bytes, made.size, &made.file, &error) != CELLAR_OK) {
        fprintf(stderr, "support_model: %s\n", error.message);
        exit(1);
    }
    return made;
}

void fixture_destroy(fixture *made)
{
    gguf_close(made->file);
    free(made->bytes);
    memset(made, 0, sizeof *made);
}
