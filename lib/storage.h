/*
 * storage.h: the rows themselves.
 *
 *     block 0                                            block 1 ...
 *     [ layer 0 K | layer 0 V | layer 1 K | ... ]        [ ...
 *         |
 *         head 0: cell 0, cell 1, ... cell 31;  head 1: cell 0, ...        (CL_BLOCK cells each)
 *
 * Inside a block the rows of one head lie side by side, so that attention streams them; every
 * address comes from the strides here and nowhere else. Memory is asked for in one piece; on
 * systems that commit on first touch, cells never used cost nothing.
 */
#ifndef CL_STORAGE_H
#define CL_STORAGE_H

#include "cells.h"
#include "kernels.h"

/* Where and how one kind of row (a layer's K or V) is kept. */
typedef struct cl_rows {
    size_t offset;     /* of head 0, cell 0 inside a block */
    size_t row_bytes;  /* one head of one cell */
    size_t head_bytes; /* CL_BLOCK rows */
    uint32_t size;     /* elements of a row */
    cellar_type type;
} cl_rows;

typedef struct cl_storage {
    unsigned char *memory; /* [n_blocks * block_bytes] */
    size_t block_bytes, memory_size;
} cl_storage;

/* Bytes of one element. */
size_t cl_type_bytes(cellar_type type);

/*
 * Lay out one more kind of row behind *block_bytes: fills in `rows` and raises *block_bytes. False:
 * the sizes do not fit.
 */
bool cl_storage_add(size_t *block_bytes, cl_rows *rows, uint32_t n_heads, uint32_t size,
                    cellar_type type);

/* Bytes for n_blocks blocks; false if that does not fit. */
bool cl_storage_measure(size_t block_bytes, uint32_t n_blocks, size_t *bytes);

bool cl_storage_create(cl_storage *storage, size_t block_bytes, uint32_t n_blocks, cl_alloc *alloc);
void cl_storage_destroy(cl_storage *storage, cl_alloc *alloc);

/* The row of one head of one cell; the rows of the cells behind it in the same block follow it. */
static inline unsigned char *cl_storage_row(const cl_storage *storage, const cl_rows *rows,
                                            uint32_t head, uint32_t cell)
{
    return storage->memory + (size_t)(cell / CL_BLOCK) * storage->block_bytes + rows->offset +
           head * rows->head_bytes + (cell % CL_BLOCK) * rows->row_bytes;
}

/* Write one row from f32. */
void cl_storage_write(const cl_storage *storage, const cl_rows *rows, const cl_kernels *kernels,
                      uint32_t head, uint32_t cell, const float *from);

/*
 * n rows (inside one block) as f32, one behind the other: in place when they are stored so, else
 * converted into `scratch` [n * size].
 */
const float *cl_storage_read(const cl_storage *storage, const cl_rows *rows,
                             const cl_kernels *kernels, uint32_t head, uint32_t cell, uint32_t n,
                             float *scratch);

#endif /* CL_STORAGE_H */
