/*
 * gguf_tensors.c: the table of tensors: types, shapes, and where the data lie.
 *
 * A description is checked by itself first (name, dimensions, type, size), then all of them
 * together, once the start of the data is known: every extent begins aligned, lies inside the file
 * and touches no other. Only then are they shown to anybody. The comparison of extents sorts them,
 * so it costs n log n.
 *
 * Block sizes are facts of the format: the ggml project's type list and block layouts.
 */
#define _POSIX_C_SOURCE 200809L

#include "gguf_internal.h"

#include <stdlib.h>
#include <string.h>

#include "../report.h"

typedef struct type_block {
    const char *name;     /* NULL: no such type */
    uint16_t block;       /* elements */
    uint16_t block_bytes; /* 0: removed from the format */
} type_block;

static const type_block type_blocks[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [4] = {"Q4_2", 0, 0},        [5] = {"Q4_3", 0, 0},
    [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},      [8] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},
    [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},   [14] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},   [20] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},        [26] = {"I32", 1, 4},
    [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},        [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2},       [31] = {"Q4_0_4_4", 0, 0},   [32] = {"Q4_0_4_8", 0, 0},
    [33] = {"Q4_0_8_8", 0, 0},   [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},
    [36] = {"IQ4_NL_4_4", 0, 0}, [37] = {"IQ4_NL_4_8", 0, 0}, [38] = {"IQ4_NL_8_8", 0, 0},
    [39] = {"MXFP4", 32, 17},
};

#define N_TYPES ((uint32_t)(sizeof type_blocks / sizeof *type_blocks))

bool gguf_type_block(uint32_t type, const char **name, uint32_t *block, uint32_t *block_bytes)
{
    if (type >= N_TYPES || type_blocks[type].block_bytes == 0) return false;
    if (name != NULL) *name = type_blocks[type].name;
    if (block != NULL) *block = type_blocks[type].block;
    if (block_bytes != NULL) *block_bytes = type_blocks[type].block_bytes;
    return true;
}

/* Where the fields of a description stand in the file, for messages. */
typedef struct description {
    uint64_t dims_at, offset_at;
    uint64_t relative; /* the offset as the file gives it: from the start of the data */
} description;

/* The part of the file that a tensor takes. */
typedef struct extent {
    uint64_t begin, end;
    uint64_t offset_at;
    uint32_t tensor;
} extent;

/* ---- one description ------------------------------------------------------------------------ */

static cellar_status parse_name(gguf_cursor *cursor, uint32_t index, gguf_string *name)
{
    const uint64_t at = cursor->at;
    cursor->subject.length = 0;
    GGUF_TRY(gguf_take_string(cursor, "tensor name", name));
    if (name->length == 0 || name->length > GGUF_MAX_TENSOR_NAME)
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at,
                           "tensor %u: name of %zu bytes, must be 1 to %u", index, name->length,
                           GGUF_MAX_TENSOR_NAME);
    if (memchr(name->data, '\0', name->length) != NULL)
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at, "tensor %u: name contains a NUL byte",
                           index);
    return CELLAR_OK;
}

static cellar_status parse_dims(gguf_cursor *cursor, gguf_tensor *tensor)
{
    const uint64_t at = cursor->at;
    GGUF_TRY(gguf_take_u32(cursor, "n_dims", &tensor->n_dims));
    if (tensor->n_dims < 1 || tensor->n_dims > 4)
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at,
                           "tensor %.*s: n_dims is %u, must be 1 to 4", GGUF_SHOW(tensor->name),
                           tensor->n_dims);
    tensor->n_elements = 1;
    for (uint32_t i = 0; i < 4; i++)
        tensor->dims[i] = 1;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        const uint64_t dim_at = cursor->at;
        GGUF_TRY(gguf_take_u64(cursor, "dims", &tensor->dims[i]));
        if (tensor->dims[i] == 0)
            return gguf_refuse(cursor->error, CELLAR_CORRUPT, dim_at, "tensor %.*s: dims[%u] is 0",
                               GGUF_SHOW(tensor->name), i);
        if (__builtin_mul_overflow(tensor->n_elements, tensor->dims[i], &tensor->n_elements))
            return gguf_refuse(cursor->error, CELLAR_CORRUPT, dim_at,
                               "tensor %.*s: the product of dims exceeds 64 bits",
                               GGUF_SHOW(tensor->name));
    }
    return CELLAR_OK;
}

static cellar_status parse_type(gguf_cursor *cursor, gguf_tensor *tensor, uint64_t dims_at)
{
    const uint64_t at = cursor->at;
    GGUF_TRY(gguf_take_u32(cursor, "tensor type", &tensor->type));
    const char *name = NULL;
    uint32_t block = 0, block_bytes = 0;
    if (!gguf_type_block(tensor->type, &name, &block, &block_bytes)) {
        if (tensor->type < N_TYPES)
            return gguf_refuse(cursor->error, CELLAR_UNSUPPORTED, at,
                               "tensor %.*s: type %u (%s) was removed from the format",
                               GGUF_SHOW(tensor->name), tensor->type,
                               type_blocks[tensor->type].name);
        return gguf_refuse(cursor->error, CELLAR_UNSUPPORTED, at,
                           "tensor %.*s: type %u is not known", GGUF_SHOW(tensor->name),
                           tensor->type);
    }
    if (tensor->dims[0] % block != 0)
        return gguf_refuse(
            cursor->error, CELLAR_CORRUPT, dims_at,
            "tensor %.*s: dims[0] is %llu, no multiple of the %u elements of a %s block",
            GGUF_SHOW(tensor->name), (unsigned long long)tensor->dims[0], block, name);
    if (__builtin_mul_overflow(tensor->n_elements / block, (uint64_t)block_bytes, &tensor->n_bytes))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, dims_at,
                           "tensor %.*s: dims: the size in bytes exceeds 64 bits",
                           GGUF_SHOW(tensor->name));
    return CELLAR_OK;
}

static cellar_status parse_tensor(gguf_file *file, gguf_cursor *cursor, uint32_t index,
                                  description *about)
{
    gguf_tensor *tensor = &file->tensors[index];
    const uint64_t name_at = cursor->at;
    GGUF_TRY(parse_name(cursor, index, &tensor->name));
    if (!gguf_names_insert(&file->tensor_names, &tensor->name, index))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, name_at, "tensor %u: duplicate name %.*s",
                           index, GGUF_SHOW(tensor->name));
    cursor->subject = tensor->name;
    about->dims_at = cursor->at + 4;
    GGUF_TRY(parse_dims(cursor, tensor));
    GGUF_TRY(parse_type(cursor, tensor, about->dims_at));
    about->offset_at = cursor->at;
    return gguf_take_u64(cursor, "tensor offset", &about->relative);
}

/* ---- all of them ---------------------------------------------------------------------------- */

/*
 * The bytes up to the start of the data must be zero, as the specification says: if they are not,
 * the count of tensors is too small and what follows would be taken from the wrong places.
 */
static cellar_status skip_padding(gguf_file *file, gguf_cursor *cursor)
{
    const uint64_t at = cursor->at, mask = file->alignment - 1;
    if (__builtin_add_overflow(at, mask, &file->data_start))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at, "tensor data: start exceeds 64 bits");
    file->data_start &= ~mask;
    const uint64_t end = file->data_start < cursor->size ? file->data_start : cursor->size;
    const unsigned char *padding = NULL;
    GGUF_TRY(gguf_take(cursor, end - at, "padding", &padding));
    for (uint64_t i = 0; i < end - at; i++)
        if (padding[i] != 0)
            return gguf_refuse(
                cursor->error, CELLAR_CORRUPT, at + i,
                "padding before the tensor data is not zero; is n_tensors too small?");
    return CELLAR_OK;
}

/* Turn the relative offset into a place in the file. */
static cellar_status place_tensor(const gguf_file *file, gguf_tensor *tensor,
                                  const description *about, extent *out, cellar_error *error)
{
    if (about->relative % file->alignment != 0)
        return gguf_refuse(error, CELLAR_CORRUPT, about->offset_at,
                           "tensor %.*s: offset %llu is not a multiple of the alignment %u",
                           GGUF_SHOW(tensor->name), (unsigned long long)about->relative,
                           file->alignment);
    if (__builtin_add_overflow(file->data_start, about->relative, &out->begin) ||
        __builtin_add_overflow(out->begin, tensor->n_bytes, &out->end) || out->end > file->size)
        return gguf_refuse(error, CELLAR_CORRUPT, about->offset_at,
                           "tensor %.*s: offset %llu and size %llu reach past the end of the file",
                           GGUF_SHOW(tensor->name), (unsigned long long)about->relative,
                           (unsigned long long)tensor->n_bytes);
    out->offset_at = about->offset_at;
    tensor->offset = out->begin;
    return CELLAR_OK;
}

static int compare_extents(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static cellar_status check_overlap(const gguf_file *file, extent *extents, cellar_error *error)
{
    qsort(extents, file->n_tensors, sizeof *extents, compare_extents);
    for (uint32_t i = 1; i < file->n_tensors; i++)
        if (extents[i].begin < extents[i - 1].end)
            return gguf_refuse(error, CELLAR_CORRUPT, extents[i].offset_at,
                               "tensor %.*s: offset: its data overlap those of %.*s",
                               GGUF_SHOW(file->tensors[extents[i].tensor].name),
                               GGUF_SHOW(file->tensors[extents[i - 1].tensor].name));
    return CELLAR_OK;
}

static cellar_status parse_table(gguf_file *file, gguf_cursor *cursor, uint32_t n,
                                 description *about, extent *extents)
{
    for (uint32_t i = 0; i < n; i++)
        GGUF_TRY(parse_tensor(file, cursor, i, &about[i]));
    cursor->subject.length = 0;
    file->n_tensors = n;
    GGUF_TRY(skip_padding(file, cursor));
    for (uint32_t i = 0; i < n; i++) {
        extents[i].tensor = i;
        GGUF_TRY(place_tensor(file, &file->tensors[i], &about[i], &extents[i], cursor->error));
    }
    return check_overlap(file, extents, cursor->error);
}

cellar_status gguf_parse_tensors(gguf_file *file, gguf_cursor *cursor, uint32_t n)
{
    GGUF_TRY(gguf_names_create(&file->tensor_names, n, cursor->error));
    const size_t room = n > 0 ? n : 1; /* so that NULL always means that there is no memory */
    file->tensors = calloc(room, sizeof *file->tensors);
    description *about = calloc(room, sizeof *about);
    extent *extents = calloc(room, sizeof *extents);
    cellar_status status;
    if (file->tensors == NULL || about == NULL || extents == NULL)
        status = report(cursor->error, CELLAR_NO_MEMORY, -1,
                        "no memory for the table of %u tensors", n);
    else
        status = parse_table(file, cursor, n, about, extents);
    free(about);
    free(extents);
    return status;
}

void gguf_free_tensors(gguf_file *file)
{
    gguf_names_destroy(&file->tensor_names);
    free(file->tensors);
    file->tensors = NULL;
    file->n_tensors = 0;
}

uint32_t gguf_count_tensors(const gguf_file *file)
{
    return file->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf_file *file, uint32_t index)
{
    return index < file->n_tensors ? &file->tensors[index] : NULL;
}

const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name)
{
    uint32_t index = 0;
    return gguf_names_find(&file->tensor_names, name, strlen(name), &index) ? &file->tensors[index]
                                                                            : NULL;
}
