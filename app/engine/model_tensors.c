/*
 * model_tensors.c: tensors from a model file, checked against the shape the model needs.
 *
 * gguf.c has made sure that a tensor's bytes lie in the file; here it must have the shape that
 * follows from the metadata and a type that kernels exist for. Matrices stay where the file is
 * mapped; of vectors the model keeps a copy as f32. Which tensors were taken is noted, so that
 * model.c can refuse a file with tensors that nobody asked for: something in that model would be
 * left out.
 */
#include "engine/model_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model_names.h"
#include "report.h"

struct model_copy {
    struct model_copy *next;
    size_t n_bytes;
    _Alignas(16) unsigned char data[];
};

void *model_allocate(model *m, size_t n, size_t size, cellar_error *error)
{
    size_t n_bytes, n_all;
    struct model_copy *copy = NULL;
    if (!__builtin_mul_overflow(n, size, &n_bytes) &&
        !__builtin_add_overflow(n_bytes, sizeof *copy, &n_all)) {
        copy = calloc(1, n_all);
    }
    if (copy == NULL) {
        report(error, CELLAR_NO_MEMORY, -1, "no memory for %zu x %zu bytes of the model", n, size);
        return NULL;
    }
    copy->n_bytes = n_bytes;
    copy->next = m->copies;
    m->copies = copy;
    m->copied_bytes += n_bytes;
    return copy->data;
}

void model_free_copies(model *m)
{
    while (m->copies != NULL) {
        struct model_copy *next = m->copies->next;
        free(m->copies);
        m->copies = next;
    }
}

bool model_has_tensor(const model *m, const char *name)
{
    return gguf_find_tensor(m->file, name) != NULL;
}

/* "[64, 260]"; a single row's length is given as "[64]". */
static void print_shape(char *to, size_t size, const uint64_t *dims, uint32_t n_dims)
{
    size_t used = 0;
    for (uint32_t i = 0; i < n_dims && used < size; i++) {
        used += (size_t)snprintf(to + used, size - used, "%s%" PRIu64, i == 0 ? "[" : ", ",
                                 dims[i]);
    }
    if (used < size) {
        snprintf(to + used, size - used, "]");
    }
}

static cellar_status refuse_shape(const gguf_tensor *tensor, const char *name, const uint64_t *dims,
                                  uint32_t n_dims, cellar_error *error)
{
    char expected[112], found[112];
    print_shape(expected, sizeof expected, dims, n_dims);
    if (tensor == NULL) {
        return report(error, CELLAR_CORRUPT, -1,
                      "tensor %s: expected shape %s, found no such tensor", name, expected);
    }
    print_shape(found, sizeof found, tensor->dims, tensor->n_dims);
    return report(error, CELLAR_CORRUPT, (int64_t)tensor->offset,
                  "tensor %s: expected shape %s, found %s", name, expected, found);
}

/*
 * Find a tensor of exactly this shape. A trailing dimension of 1 is no difference: some writers drop
 * it, some add it.
 */
static cellar_status find_matrices(model *m, const char *name, const uint64_t dims[3],
                                   const gguf_tensor **out, cellar_error *error)
{
    const gguf_tensor *tensor = gguf_find_tensor(m->file, name);
    if (tensor == NULL || tensor->dims[0] != dims[0] || tensor->dims[1] != dims[1] ||
        tensor->dims[2] != dims[2] || tensor->dims[3] != 1) {
        return refuse_shape(tensor, name, dims, dims[2] > 1 ? 3 : 2, error);
    }
    *out = tensor;
    return model_names_add(m->taken, tensor, error);
}

/* Find a tensor of n numbers, in rows of any length. */
static cellar_status find_numbers(model *m, const char *name, uint64_t n, const gguf_tensor **out,
                                  cellar_error *error)
{
    const gguf_tensor *tensor = gguf_find_tensor(m->file, name);
    uint64_t found = 1;
    for (uint32_t i = 0; tensor != NULL && i < 4; i++) {
        found = __builtin_mul_overflow(found, tensor->dims[i], &found) ? UINT64_MAX : found;
    }
    if (tensor == NULL || found != n) {
        return refuse_shape(tensor, name, &n, 1, error);
    }
    *out = tensor;
    return model_names_add(m->taken, tensor, error);
}

static cellar_status refuse_type(const gguf_tensor *tensor, const char *name, const char *expected,
                                 cellar_error *error)
{
    const char *found = "an unknown type";
    uint32_t block, block_bytes;
    gguf_type_block(tensor->type, &found, &block, &block_bytes);
    return report(error, CELLAR_UNSUPPORTED, (int64_t)tensor->offset,
                  "tensor %s: expected type %s, found %s", name, expected, found);
}

/* How the kernels know the tensor's type; NULL if they do not. */
static const cl_weight *weight_type(const cl_matmul_table *table, const gguf_tensor *tensor)
{
    if (tensor->type >= CL_WEIGHT_TYPES || table->weight[tensor->type].block == 0) {
        return NULL;
    }
    return &table->weight[tensor->type];
}

cellar_status model_read_weights(model *m, const char *name, uint32_t n_in, uint32_t n_out,
                                 uint32_t n_matrices, block_weight *out, cellar_error *error)
{
    const uint64_t dims[3] = {n_in, n_out, n_matrices};
    const gguf_tensor *tensor = NULL;
    cellar_status status = find_matrices(m, name, dims, &tensor, error);
    if (status != CELLAR_OK) {
        return status;
    }
    cl_matmul_table table;
    memset(&table, 0, sizeof table);
    cl_matmul_fill(&table, CELLAR_CPU_SCALAR);
    const cl_weight *type = weight_type(&table, tensor);
    if (type == NULL) {
        return refuse_type(tensor, name, "F32, F16, BF16, Q8_0, Q4_0 to Q6_K, IQ4 or MXFP4", error);
    }
    size_t row_bytes = (size_t)(n_in / type->block) * type->block_bytes;
    if (n_in % type->block != 0 ||
        tensor->n_bytes != (uint64_t)row_bytes * ((uint64_t)n_out * n_matrices)) {
        return report(error, CELLAR_CORRUPT, (int64_t)tensor->offset,
                      "tensor %s: expected rows of whole blocks of %" PRIu32
                      " numbers, found %" PRIu32 " numbers",
                      name, type->block, n_in);
    }
    if (type->block > 1 && n_in > m->longest) {
        m->longest = n_in;
    }
    *out = (block_weight){.data = tensor->data,
                          .type = tensor->type,
                          .n_in = n_in,
                          .n_out = n_out,
                          .row_bytes = row_bytes};
    return CELLAR_OK;
}

cellar_status model_read_weight(model *m, const char *name, uint32_t n_in, uint32_t n_out,
                                block_weight *out, cellar_error *error)
{
    return model_read_weights(m, name, n_in, n_out, 1, out, error);
}

cellar_status model_read_vector(model *m, const char *name, uint32_t n, const float **out,
                                cellar_error *error)
{
    const gguf_tensor *tensor = NULL;
    cellar_status status = find_numbers(m, name, n, &tensor, error);
    if (status != CELLAR_OK) {
        return status;
    }
    cl_matmul_table table;
    memset(&table, 0, sizeof table);
    cl_matmul_fill(&table, CELLAR_CPU_SCALAR);
    const cl_weight *type = weight_type(&table, tensor);
    if (type == NULL || type->block != 1) {
        return refuse_type(tensor, name, "F32, F16 or BF16", error);
    }
    float *numbers = model_allocate(m, n, sizeof *numbers, error);
    if (numbers == NULL) {
        return CELLAR_NO_MEMORY;
    }
    type->decode(numbers, tensor->data, n);
    *out = numbers;
    return CELLAR_OK;
}

cellar_status model_read_linear(model *m, const char *prefix, uint32_t n_in, uint32_t n_out,
                                block_linear *out, cellar_error *error)
{
    char name[MODEL_KEY_SIZE];
    snprintf(name, sizeof name, "%s.weight", prefix);
    *out = (block_linear){.bias = NULL};
    cellar_status status = model_read_weight(m, name, n_in, n_out, &out->weight, error);
    snprintf(name, sizeof name, "%s.bias", prefix);
    if (status != CELLAR_OK || !model_has_tensor(m, name)) {
        return status;
    }
    return model_read_vector(m, name, n_out, &out->bias, error);
}

cellar_status model_read_norm(model *m, const char *prefix, block_norm_kind kind, uint32_t width,
                              uint32_t n_groups, double epsilon, block_norm *out,
                              cellar_error *error)
{
    char name[MODEL_KEY_SIZE];
    uint64_t n = (uint64_t)width * n_groups;
    snprintf(name, sizeof name, "%s.weight", prefix);
    *out =
        (block_norm){.kind = kind, .width = width, .n_groups = n_groups, .epsilon = (float)epsilon};
    if (n > UINT32_MAX) {
        return refuse_shape(NULL, name, &n, 1, error);
    }
    cellar_status status = model_read_vector(m, name, (uint32_t)n, &out->weight, error);
    snprintf(name, sizeof name, "%s.bias", prefix);
    if (status != CELLAR_OK || !model_has_tensor(m, name)) {
        return status;
    }
    return model_read_vector(m, name, (uint32_t)n, &out->bias, error);
}
