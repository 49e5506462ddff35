/*
 * gguf_write.c: header, keys and table of tensors of a file that is copied with other types.
 *
 *     magic 4 | version 4 | n_tensors 8 | n_kv 8 | keys | tensors | zeros | data of the first tensor ...
 *
 * The reader keeps keys in the file's order in one piece of memory, so a key's record is the bytes from
 * the length before its name to the record that follows, and is copied without being understood. Two
 * keys say what the tensors are made of; they are written anew, where they stood or at the end.
 */
#include "gguf_write.h"

#include <string.h>

#include "../report.h"
#include "gguf_internal.h"

#define FILE_TYPE "general.file_type"
#define QUANTIZATION_VERSION "general.quantization_version"

/* ---- little-endian -------------------------------------------------------------------------- */

static cellar_status put_number(gguf_write *w, uint64_t value, size_t n, cellar_error *error)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    return gguf_write_bytes(w, bytes, n, error);
}

static cellar_status put_string(gguf_write *w, gguf_string text, cellar_error *error)
{
    GGUF_TRY(put_number(w, text.length, 8, error));
    return gguf_write_bytes(w, text.data, text.length, error);
}

/* ---- keys ----------------------------------------------------------------------------------- */

static bool is_key(const gguf_value *value, const char *name)
{
    return value->key.length == strlen(name) && memcmp(value->key.data, name, strlen(name)) == 0;
}

/* The number that a key must get; false: it stays as it is. */
static bool new_number(const gguf_value *value, const gguf_write_changes *changes, uint32_t *number)
{
    if (is_key(value, FILE_TYPE)) {
        *number = changes->file_type;
        return true;
    }
    *number = changes->quantization_version;
    return changes->quantization_version != 0 && is_key(value, QUANTIZATION_VERSION);
}

static cellar_status put_u32_key(gguf_write *w, const char *name, uint32_t number,
                                 cellar_error *error)
{
    GGUF_TRY(put_string(w, (gguf_string){name, strlen(name)}, error));
    GGUF_TRY(put_number(w, GGUF_UINT32, 4, error));
    return put_number(w, number, 4, error);
}

/* Where the record of key i begins, of i = n_values where the table of tensors does. */
static const char *record_of(const gguf_file *file, uint32_t i)
{
    const uint32_t n = gguf_count_values(file);
    return (i < n ? gguf_value_at(file, i)->key : gguf_tensor_at(file, 0)->name).data - 8;
}

static cellar_status put_keys(gguf_write *w, const gguf_file *file,
                              const gguf_write_changes *changes, cellar_error *error)
{
    for (uint32_t i = 0; i < gguf_count_values(file); i++) {
        const gguf_value *value = gguf_value_at(file, i);
        uint32_t number = 0;
        if (new_number(value, changes, &number)) {
            const char *name = is_key(value, FILE_TYPE) ? FILE_TYPE : QUANTIZATION_VERSION;
            GGUF_TRY(put_u32_key(w, name, number, error));
        } else {
            const char *record = record_of(file, i);
            GGUF_TRY(gguf_write_bytes(w, record, (size_t)(record_of(file, i + 1) - record), error));
        }
    }
    if (gguf_find_value(file, FILE_TYPE) == NULL)
        GGUF_TRY(put_u32_key(w, FILE_TYPE, changes->file_type, error));
    if (changes->quantization_version != 0 && gguf_find_value(file, QUANTIZATION_VERSION) == NULL)
        GGUF_TRY(put_u32_key(w, QUANTIZATION_VERSION, changes->quantization_version, error));
    return CELLAR_OK;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* Add n rounded up to the alignment, a power of two; false: too large. */
static bool add_aligned(uint64_t *total, uint64_t n, uint64_t alignment)
{
    return !__builtin_add_overflow(n, alignment - 1, &n) &&
           !__builtin_add_overflow(*total, n & ~(alignment - 1), total);
}

/* offsets [tensors] from the start of the data; *size: of all data. */
static cellar_status lay_out(const gguf_file *file, const uint32_t *types, uint64_t *offsets,
                             uint64_t *size, cellar_error *error)
{
    *size = 0;
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        const char *name = "type";
        uint32_t block = 0, block_bytes = 0;
        uint64_t n_bytes = 0;
        if (!gguf_type_block(types[i], &name, &block, &block_bytes) || tensor->dims[0] % block != 0)
            return report(error, CELLAR_INVALID, i, "tensor %.*s: cannot be written as %s",
                          GGUF_SHOW(tensor->name), name);
        offsets[i] = *size;
        if (__builtin_mul_overflow(tensor->n_elements / block, (uint64_t)block_bytes, &n_bytes) ||
            !add_aligned(size, n_bytes, gguf_alignment(file)))
            return report(error, CELLAR_INVALID, i, "tensor %.*s: too large as %s",
                          GGUF_SHOW(tensor->name), name);
    }
    return CELLAR_OK;
}

static cellar_status put_tensor(gguf_write *w, const gguf_tensor *tensor, uint32_t type,
                                uint64_t offset, cellar_error *error)
{
    GGUF_TRY(put_string(w, tensor->name, error));
    GGUF_TRY(put_number(w, tensor->n_dims, 4, error));
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        GGUF_TRY(put_number(w, tensor->dims[i], 8, error));
    GGUF_TRY(put_number(w, type, 4, error));
    return put_number(w, offset, 8, error);
}

/* Bytes of the whole head, the padding behind it too. */
static bool head_size(const gguf_file *file, const gguf_write_changes *changes, uint64_t *size)
{
    uint64_t n = 24;
    for (uint32_t i = 0; i < gguf_count_values(file); i++) {
        const gguf_value *value = gguf_value_at(file, i);
        uint32_t number = 0;
        n += new_number(value, changes, &number)
                 ? 8 + value->key.length + 8
                 : (uint64_t)(record_of(file, i + 1) - record_of(file, i));
    }
    if (gguf_find_value(file, FILE_TYPE) == NULL) n += 8 + strlen(FILE_TYPE) + 8;
    if (changes->quantization_version != 0 && gguf_find_value(file, QUANTIZATION_VERSION) == NULL)
        n += 8 + strlen(QUANTIZATION_VERSION) + 8;
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        n += 8 + tensor->name.length + 4 + 8 * (uint64_t)tensor->n_dims + 4 + 8;
    }
    *size = 0;
    return add_aligned(size, n, gguf_alignment(file));
}

static uint64_t count_keys(const gguf_file *file, const gguf_write_changes *changes)
{
    return (uint64_t)gguf_count_values(file) + (gguf_find_value(file, FILE_TYPE) == NULL) +
           (changes->quantization_version != 0 &&
            gguf_find_value(file, QUANTIZATION_VERSION) == NULL);
}

cellar_status gguf_write_head(gguf_write *w, const gguf_file *file,
                              const gguf_write_changes *changes, uint64_t *offsets, uint64_t *size,
                              cellar_error *error)
{
    const uint32_t n = gguf_count_tensors(file);
    if (n == 0) return report(error, CELLAR_INVALID, -1, "has no tensors, so nothing to write");
    uint64_t start = 0;
    GGUF_TRY(lay_out(file, changes->types, offsets, size, error));
    if (!head_size(file, changes, &start) || __builtin_add_overflow(*size, start, size))
        return report(error, CELLAR_INVALID, -1, "the file would be too large");
    GGUF_TRY(gguf_write_bytes(w, "GGUF", 4, error));
    GGUF_TRY(put_number(w, gguf_version(file), 4, error));
    GGUF_TRY(put_number(w, n, 8, error));
    GGUF_TRY(put_number(w, count_keys(file, changes), 8, error));
    GGUF_TRY(put_keys(w, file, changes, error));
    for (uint32_t i = 0; i < n; i++)
        GGUF_TRY(put_tensor(w, gguf_tensor_at(file, i), changes->types[i], offsets[i], error));
    for (uint32_t i = 0; i < n; i++)
        offsets[i] += start;
    return gguf_write_pad(w, start, error);
}
