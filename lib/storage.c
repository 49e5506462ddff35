/*
 * storage.c: layout of blocks, and rows in and out.
 *
 * Rows go in from f32 and come out as f32, whatever they are stored as; f32 rows are handed out in
 * place. Row types other than these two are refused by config.c, so nothing here has to say no.
 * Sizes are computed by checked sums, once, when the memory is planned.
 */
#include "storage.h"

#include <string.h>

#include "checked.h"

size_t cl_type_bytes(cellar_type type)
{
    return type == CELLAR_F32 ? 4 : 2;
}

bool cl_storage_add(size_t *block_bytes, cl_rows *rows, uint32_t n_heads, uint32_t size,
                    cellar_type type)
{
    size_t bytes;
    rows->size = size;
    rows->type = type;
    rows->offset = *block_bytes;
    return cl_checked_mul(size, cl_type_bytes(type), &rows->row_bytes) &&
           cl_checked_mul(rows->row_bytes, CL_BLOCK, &rows->head_bytes) &&
           cl_checked_mul(rows->head_bytes, n_heads, &bytes) &&
           cl_checked_align(bytes, CL_ALIGN, &bytes) &&
           cl_checked_add(*block_bytes, bytes, block_bytes);
}

bool cl_storage_measure(size_t block_bytes, uint32_t n_blocks, size_t *bytes)
{
    return cl_checked_mul(block_bytes, n_blocks, bytes) && *bytes <= PTRDIFF_MAX;
}

bool cl_storage_create(cl_storage *storage, size_t block_bytes, uint32_t n_blocks, cl_alloc *alloc)
{
    memset(storage, 0, sizeof *storage);
    size_t bytes;
    if (!cl_storage_measure(block_bytes, n_blocks, &bytes)) return false;
    storage->memory = cl_alloc_get(alloc, CELLAR_BYTES_ROWS, bytes);
    if (!storage->memory) return false;
    storage->memory_size = bytes;
    storage->block_bytes = block_bytes;
    return true;
}

void cl_storage_destroy(cl_storage *storage, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_ROWS, storage->memory, storage->memory_size);
    memset(storage, 0, sizeof *storage);
}

void cl_storage_write(const cl_storage *storage, const cl_rows *rows, const cl_kernels *kernels,
                      uint32_t head, uint32_t cell, const float *from)
{
    void *to = cl_storage_row(storage, rows, head, cell);
    if (rows->type == CELLAR_F32)
        memcpy(to, from, rows->row_bytes);
    else
        kernels->rows_f16_from_f32(to, from, rows->size);
}

const float *cl_storage_read(const cl_storage *storage, const cl_rows *rows,
                             const cl_kernels *kernels, uint32_t head, uint32_t cell, uint32_t n,
                             float *scratch)
{
    const void *row = cl_storage_row(storage, rows, head, cell);
    if (rows->type == CELLAR_F32) return row;
    kernels->rows_f32_from_f16(scratch, row, (size_t)n * rows->size);
    return scratch;
}
