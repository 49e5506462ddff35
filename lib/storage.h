/*
 * storage.h: the rows of one group.
 *
 *     block 0                                            block 1 ...
 *     [ layer 0 K | layer 0 V | layer 1 K | ... ]        [ ...
 *         |
 *         head 0: cell 0, cell 1, ... cell 31;  head 1: cell 0, ...        (cells_a_block cells each)
 *
 * Inside a block the rows of one head lie side by side, so that attention streams them; every
 * address comes from the strides here and nowhere else. A block of the recurrent group is one state,
 * its "rows" are the tensors of the layers.
 *
 * Blocks come in chunks, the unit in which memory is asked for and given back, so that a memory can
 * grow and shrink without moving a row. Each store that a layer of the group uses (storage of the
 * library is store 0, the others are the caller's) has its own part of a block and its own buffer a
 * chunk. A buffer either has an address, or is reached through the store's read and write; the
 * functions below hide the difference. They fail only where a caller's store fails. Bytes of all stores
 * are counted by alloc and held against its limit.
 */
#ifndef CL_STORAGE_H
#define CL_STORAGE_H

#include "cells.h"
#include "kernels.h"

#define CL_MAX_STORES 8u /* different stores in one memory, the library's own included */

/* Where and how one kind of row (a layer's K or V, a tensor of its state) is kept. */
typedef struct cl_rows {
    size_t offset;     /* of head 0, cell 0 inside the store's part of a block */
    size_t row_bytes;  /* one head of one cell */
    size_t head_bytes; /* cells_a_block rows */
    uint32_t n_heads;
    uint32_t size; /* elements of a row */
    uint32_t store;
    cellar_type type;
} cl_rows;

/* What a group stores for a block of cells; grows while the configuration is read. */
typedef struct cl_storage_layout {
    uint32_t cells_a_block;            /* CL_BLOCK; 1 for states; a power of two */
    cellar_bytes_kind kind;            /* CELLAR_BYTES_ROWS or CELLAR_BYTES_STATES */
    size_t block_bytes[CL_MAX_STORES]; /* each store's part of a block */
} cl_storage_layout;

typedef struct cl_buffer {
    void *buffer;           /* NULL: the store has no part in this group */
    unsigned char *address; /* NULL: only through the store's calls */
} cl_buffer;

typedef struct cl_storage {
    cl_storage_layout layout;
    const cellar_row_store *stores; /* [n_stores], of the memory; entry 0 is not used */
    uint32_t n_stores;
    uint32_t n_blocks;    /* that there is room for: whole chunks */
    uint32_t cell_shift;  /* cells in a block: 1 << cell_shift; attention divides by it often */
    uint32_t chunk_shift; /* blocks in a chunk: 1 << chunk_shift */
    uint32_t n_chunks, chunk_capacity;
    cl_buffer *buffers; /* [n_chunks][n_stores] */
    const cl_rows *rows;
    uint32_t n_rows;        /* all kinds of rows of the group: what moving a cell has to copy */
    uint64_t callers_bytes; /* of what alloc counts, held in callers' stores */
    cl_alloc *alloc;
} cl_storage;

/*
 * Lay out one more kind of row: fills in `rows` and raises the layout's block_bytes of its store.
 * False: the sizes do not fit.
 */
bool cl_storage_add(cl_storage_layout *layout, cl_rows *rows, uint32_t n_heads, uint32_t size,
                    cellar_type type, uint32_t store);

/* How many blocks a storage for n_blocks comes to, in whole chunks. */
uint32_t cl_storage_round(uint32_t n_blocks);

/*
 * Bytes for n_blocks blocks: of the library's own memory, the table of chunks included, and of the
 * callers'. False: does not fit.
 */
bool cl_storage_measure(const cl_storage_layout *layout, uint32_t n_stores, uint32_t n_blocks,
                        size_t *own, size_t *callers);

/*
 * Room for n_blocks blocks. rows [n_rows] and stores [n_stores] must outlive it. CELLAR_NO_MEMORY;
 * then nothing is held.
 */
cellar_status cl_storage_create(cl_storage *storage, const cl_storage_layout *layout,
                                const cl_rows *rows, uint32_t n_rows,
                                const cellar_row_store *stores, uint32_t n_stores,
                                uint32_t n_blocks, cl_alloc *alloc, cellar_error *error);
void cl_storage_destroy(cl_storage *storage);

/*
 * Room for n_blocks blocks: more, or fewer (the last go; their rows must not be needed).
 * CELLAR_NO_MEMORY: as before. Fewer cannot fail.
 */
cellar_status cl_storage_resize(cl_storage *storage, uint32_t n_blocks, cellar_error *error);

/* Bytes of one cell over all kinds of rows. */
uint64_t cl_storage_cell_bytes(const cl_storage *storage);

static inline const cl_buffer *cl_storage_buffer(const cl_storage *storage, uint32_t store,
                                                 uint32_t block)
{
    return &storage->buffers[(size_t)(block >> storage->chunk_shift) * storage->n_stores + store];
}

/* Where a row lies inside its buffer. */
static inline size_t cl_storage_offset(const cl_storage *storage, const cl_rows *rows,
                                       uint32_t head, uint32_t cell)
{
    uint32_t in_chunk = (cell >> storage->cell_shift) & ((1u << storage->chunk_shift) - 1);
    uint32_t in_block = cell & ((1u << storage->cell_shift) - 1);
    return in_chunk * storage->layout.block_bytes[rows->store] + rows->offset +
           head * rows->head_bytes + in_block * rows->row_bytes;
}

/*
 * The row of one head of one cell; the rows of the cells behind it in the same block follow it.
 * NULL: it has no address.
 */
static inline unsigned char *cl_storage_row(const cl_storage *storage, const cl_rows *rows,
                                            uint32_t head, uint32_t cell)
{
    const cl_buffer *buffer = cl_storage_buffer(storage, rows->store, cell >> storage->cell_shift);
    return buffer->address ? buffer->address + cl_storage_offset(storage, rows, head, cell) : NULL;
}

/* Write one row from f32; `raw` has room for row_bytes. False: the store failed. */
bool cl_storage_write(const cl_storage *storage, const cl_rows *rows, const cl_kernels *kernels,
                      uint32_t head, uint32_t cell, const float *from, unsigned char *raw);

/*
 * n rows (inside one block) as f32, one behind the other: in place when they are stored so, else
 * converted into `scratch` [n * size]; `raw` has room for n * row_bytes. NULL: the store failed.
 */
const float *cl_storage_read(const cl_storage *storage, const cl_rows *rows,
                             const cl_kernels *kernels, uint32_t head, uint32_t cell, uint32_t n,
                             float *scratch, unsigned char *raw);

/* n rows (inside one block) will be read soon. Changes nothing, cannot fail. */
void cl_storage_prefetch(const cl_storage *storage, const cl_rows *rows, uint32_t head,
                         uint32_t cell, uint32_t n);

/* Has every row an address? Then nothing that is done to rows can fail. */
bool cl_storage_has_addresses(const cl_storage *storage);

/* Copy all rows of n cells; the two stretches do not overlap. False: a store failed. */
bool cl_storage_copy(const cl_storage *storage, uint32_t to, uint32_t from, uint32_t n);

#endif /* CL_STORAGE_H */
