/*
 * storage.c: layout of blocks, chunks of memory, and rows in and out.
 *
 * Rows go in from f32 and come out as f32, whatever they are stored as and wherever; f32 rows with
 * an address are handed out in place. Buffers of the library's own memory and of callers' stores
 * differ in four places only: asking, giving back, and the two ways to a row below. Sizes are
 * computed by checked sums, once, when the memory is planned.
 *
 * Chunks are as large as leaves some 64 to 128 of them, so that growing by a little asks for a
 * little, and looking one up is a shift. A group that stores nothing has none.
 */
#include "storage.h"

#include <string.h>

#include "checked.h"
#include "error.h"

#define CHUNKS_WANTED 64u
#define LINE 64u /* bytes that a cache fetches at once; another size costs time only */

bool cl_storage_add(cl_storage_layout *layout, cl_rows *rows, uint32_t n_heads, uint32_t size,
                    cellar_type type, uint32_t store)
{
    size_t bytes, *block_bytes = &layout->block_bytes[store];
    *rows = (cl_rows){.offset = *block_bytes,
                      .row_bytes = cellar_type_bytes(type, size),
                      .n_heads = n_heads,
                      .size = size,
                      .store = store,
                      .type = type};
    return rows->row_bytes > 0 &&
           cl_checked_mul(rows->row_bytes, layout->cells_a_block, &rows->head_bytes) &&
           cl_checked_mul(rows->head_bytes, n_heads, &bytes) &&
           cl_checked_align(bytes, CL_ALIGN, &bytes) &&
           cl_checked_add(*block_bytes, bytes, block_bytes);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static uint32_t shift_for(uint32_t n_blocks)
{
    uint32_t shift = 0;
    while (n_blocks / CHUNKS_WANTED >> shift > 1)
        shift++;
    return shift;
}

static uint32_t chunks_for(uint32_t n_blocks, uint32_t shift)
{
    return (n_blocks >> shift) + ((n_blocks & ((1u << shift) - 1)) != 0);
}

uint32_t cl_storage_round(uint32_t n_blocks)
{
    uint32_t shift = shift_for(n_blocks);
    return chunks_for(n_blocks, shift) << shift;
}

static bool is_empty(const cl_storage_layout *layout, uint32_t n_stores)
{
    for (uint32_t s = 0; s < n_stores; s++)
        if (layout->block_bytes[s] > 0) return false;
    return true;
}

bool cl_storage_measure(const cl_storage_layout *layout, uint32_t n_stores, uint32_t n_blocks,
                        size_t *own, size_t *callers)
{
    *own = *callers = 0;
    if (is_empty(layout, n_stores)) return true;
    uint32_t rounded = cl_storage_round(n_blocks);
    for (uint32_t s = 0; s < n_stores; s++) {
        size_t bytes, *sum = s == 0 ? own : callers;
        if (!cl_checked_mul(layout->block_bytes[s], rounded, &bytes) ||
            !cl_checked_add(*sum, bytes, sum))
            return false;
    }
    size_t entries = (size_t)(rounded >> shift_for(n_blocks)) * n_stores, table;
    return cl_checked_mul(entries, sizeof(cl_buffer), &table) && cl_checked_add(*own, table, own) &&
           *own <= PTRDIFF_MAX && *callers <= PTRDIFF_MAX;
}

/* Bytes of a store's buffer in each chunk; 0: it has no part in this group. */
static size_t buffer_bytes(const cl_storage *storage, uint32_t store)
{
    return storage->layout.block_bytes[store] << storage->chunk_shift;
}

static bool get_buffer(cl_storage *storage, uint32_t store, cl_buffer *buffer)
{
    size_t bytes = buffer_bytes(storage, store);
    *buffer = (cl_buffer){NULL, NULL};
    if (bytes == 0) return true;
    if (store == 0) {
        buffer->buffer = cl_alloc_get(storage->alloc, storage->layout.kind, bytes);
        buffer->address = buffer->buffer;
        return buffer->buffer != NULL;
    }
    const cellar_row_store *callers = &storage->stores[store];
    if (!cl_alloc_count(storage->alloc, storage->layout.kind, bytes)) return false;
    buffer->buffer = callers->allocate(callers->context, bytes);
    if (!buffer->buffer) {
        cl_alloc_uncount(storage->alloc, storage->layout.kind, bytes);
        return false;
    }
    if (callers->address) buffer->address = callers->address(callers->context, buffer->buffer);
    storage->callers_bytes += bytes;
    return true;
}

static void put_buffer(cl_storage *storage, uint32_t store, cl_buffer *buffer)
{
    size_t bytes = buffer_bytes(storage, store);
    if (!buffer->buffer) return;
    if (store == 0) {
        cl_alloc_put(storage->alloc, storage->layout.kind, buffer->buffer, bytes);
    } else {
        const cellar_row_store *callers = &storage->stores[store];
        callers->release(callers->context, buffer->buffer, bytes);
        cl_alloc_uncount(storage->alloc, storage->layout.kind, bytes);
        storage->callers_bytes -= bytes;
    }
    *buffer = (cl_buffer){NULL, NULL};
}

static void put_chunks(cl_storage *storage, cl_buffer *buffers, uint32_t first, uint32_t end)
{
    for (uint32_t chunk = end; chunk-- > first;)
        for (uint32_t s = storage->n_stores; s-- > 0;)
            put_buffer(storage, s, &buffers[(size_t)chunk * storage->n_stores + s]);
}

/* Why bytes of a store cannot be had. */
static cellar_status cannot_get(const cl_storage *storage, uint32_t store, size_t bytes,
                                cellar_error *error)
{
    if (storage->alloc->was_limited)
        CL_FAIL_BECAUSE(error, CELLAR_NO_MEMORY, CELLAR_REASON_BUDGET, -1,
                        "the byte budget forbids %zu more bytes for rows", bytes);
    if (store == 0) return cl_error_no_memory(error, "rows", bytes);
    CL_FAIL_BECAUSE(error, CELLAR_NO_MEMORY, CELLAR_REASON_STORE, -1,
                    "store %u gives no buffer of %zu bytes for rows", store, bytes);
}

/* Fill entries of chunks [first, end); if one cannot be had, none is held. */
static cellar_status get_chunks(cl_storage *storage, cl_buffer *buffers, uint32_t first,
                                uint32_t end, cellar_error *error)
{
    size_t at = (size_t)first * storage->n_stores;
    memset(buffers + at, 0, ((size_t)end * storage->n_stores - at) * sizeof *buffers);
    for (uint32_t chunk = first; chunk < end; chunk++)
        for (uint32_t s = 0; s < storage->n_stores; s++, at++) {
            if (get_buffer(storage, s, &buffers[at])) continue;
            put_chunks(storage, buffers, first, chunk + 1);
            return cannot_get(storage, s, buffer_bytes(storage, s), error);
        }
    return CELLAR_OK;
}

static size_t table_bytes(const cl_storage *storage, uint32_t n_chunks)
{
    return (size_t)n_chunks * storage->n_stores * sizeof(cl_buffer);
}

/* A larger table of chunks: the old one stays untouched until the new one is complete. */
static cellar_status grow(cl_storage *storage, uint32_t n_chunks, cellar_error *error)
{
    cl_buffer *buffers = storage->buffers;
    bool is_new = n_chunks > storage->chunk_capacity;
    if (is_new) {
        size_t bytes = table_bytes(storage, n_chunks);
        buffers = cl_alloc_get(storage->alloc, storage->layout.kind, bytes);
        if (!buffers) return cannot_get(storage, 0, bytes, error);
        if (storage->n_chunks > 0)
            memcpy(buffers, storage->buffers, table_bytes(storage, storage->n_chunks));
    }
    cellar_status status = get_chunks(storage, buffers, storage->n_chunks, n_chunks, error);
    if (is_new) {
        cl_buffer *unused = status == CELLAR_OK ? storage->buffers : buffers;
        uint32_t capacity = status == CELLAR_OK ? storage->chunk_capacity : n_chunks;
        cl_alloc_put(storage->alloc, storage->layout.kind, unused, table_bytes(storage, capacity));
    }
    if (status != CELLAR_OK) return status;
    storage->buffers = buffers;
    storage->n_chunks = n_chunks;
    if (is_new) storage->chunk_capacity = n_chunks;
    return CELLAR_OK;
}

cellar_status cl_storage_create(cl_storage *storage, const cl_storage_layout *layout,
                                const cl_rows *rows, uint32_t n_rows,
                                const cellar_row_store *stores, uint32_t n_stores,
                                uint32_t n_blocks, cl_alloc *alloc, cellar_error *error)
{
    *storage = (cl_storage){.layout = *layout,
                            .stores = stores,
                            .n_stores = n_stores,
                            .cell_shift = (uint32_t)__builtin_ctz(layout->cells_a_block),
                            .chunk_shift = shift_for(n_blocks),
                            .rows = rows,
                            .n_rows = n_rows,
                            .alloc = alloc};
    cellar_status status = cl_storage_resize(storage, n_blocks, error);
    if (status != CELLAR_OK) memset(storage, 0, sizeof *storage);
    return status;
}

void cl_storage_destroy(cl_storage *storage)
{
    put_chunks(storage, storage->buffers, 0, storage->n_chunks);
    if (storage->buffers)
        cl_alloc_put(storage->alloc, storage->layout.kind, storage->buffers,
                     table_bytes(storage, storage->chunk_capacity));
    memset(storage, 0, sizeof *storage);
}

cellar_status cl_storage_resize(cl_storage *storage, uint32_t n_blocks, cellar_error *error)
{
    uint32_t n_chunks = chunks_for(n_blocks, storage->chunk_shift);
    if (!is_empty(&storage->layout, storage->n_stores)) {
        if (n_chunks > storage->n_chunks) {
            CL_TRY(grow(storage, n_chunks, error));
        } else {
            put_chunks(storage, storage->buffers, n_chunks, storage->n_chunks);
            storage->n_chunks = n_chunks;
        }
    }
    storage->n_blocks = n_chunks << storage->chunk_shift;
    return CELLAR_OK;
}

uint64_t cl_storage_cell_bytes(const cl_storage *storage)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < storage->n_rows; i++)
        bytes += (uint64_t)storage->rows[i].n_heads * storage->rows[i].row_bytes;
    return bytes;
}

/* ---- rows ------------------------------------------------------------------------------------ */

bool cl_storage_write(const cl_storage *storage, const cl_rows *rows, const cl_kernels *kernels,
                      uint32_t head, uint32_t cell, const float *from, unsigned char *raw)
{
    const cl_buffer *buffer = cl_storage_buffer(storage, rows->store, cell >> storage->cell_shift);
    size_t offset = cl_storage_offset(storage, rows, head, cell);
    unsigned char *to = buffer->address ? buffer->address + offset : raw;
    if (rows->type == CELLAR_F32)
        memcpy(to, from, rows->row_bytes);
    else
        kernels->codec[rows->type].encode(to, from, rows->size);
    if (buffer->address) return true;
    const cellar_row_store *store = &storage->stores[rows->store];
    return store->write(store->context, buffer->buffer, offset, raw, rows->row_bytes);
}

const float *cl_storage_read(const cl_storage *storage, const cl_rows *rows,
                             const cl_kernels *kernels, uint32_t head, uint32_t cell, uint32_t n,
                             float *scratch, unsigned char *raw)
{
    const cl_buffer *buffer = cl_storage_buffer(storage, rows->store, cell >> storage->cell_shift);
    size_t offset = cl_storage_offset(storage, rows, head, cell);
    bool is_f32 = rows->type == CELLAR_F32;
    const unsigned char *from;
    if (buffer->address) {
        from = buffer->address + offset;
    } else {
        const cellar_row_store *store = &storage->stores[rows->store];
        void *to = is_f32 ? (void *)scratch : raw;
        if (!store->read(store->context, buffer->buffer, offset, to, n * rows->row_bytes))
            return NULL;
        from = to;
    }
    if (is_f32) return (const float *)(const void *)from;
    kernels->codec[rows->type].decode(scratch, from, (size_t)n * rows->size);
    return scratch;
}

void cl_storage_prefetch(const cl_storage *storage, const cl_rows *rows, uint32_t head,
                         uint32_t cell, uint32_t n)
{
    const unsigned char *row = cl_storage_row(storage, rows, head, cell);
    size_t bytes = n * rows->row_bytes;
    for (size_t i = 0; row && i < bytes; i += LINE)
        __builtin_prefetch(row + i);
}

/* Bytes of one store, from one place to another, of which either may have an address. */
static bool copy_bytes(const cl_storage *storage, uint32_t index, const cl_buffer *to,
                       size_t to_offset, const cl_buffer *from, size_t from_offset, size_t bytes)
{
    if (to->address && from->address) {
        memcpy(to->address + to_offset, from->address + from_offset, bytes);
        return true;
    }
    const cellar_row_store *store = &storage->stores[index];
    if (to->address)
        return store->read(store->context, from->buffer, from_offset, to->address + to_offset,
                           bytes);
    if (from->address)
        return store->write(store->context, to->buffer, to_offset, from->address + from_offset,
                            bytes);
    return store->copy(store->context, to->buffer, to_offset, from->buffer, from_offset, bytes);
}

/* n cells that lie in one block each. */
static bool copy_cells(const cl_storage *storage, uint32_t to, uint32_t from, uint32_t n)
{
    for (uint32_t i = 0; i < storage->n_rows; i++) {
        const cl_rows *rows = &storage->rows[i];
        const cl_buffer *to_buffer = cl_storage_buffer(storage, rows->store,
                                                       to >> storage->cell_shift);
        const cl_buffer *from_buffer = cl_storage_buffer(storage, rows->store,
                                                         from >> storage->cell_shift);
        for (uint32_t head = 0; head < rows->n_heads; head++)
            if (!copy_bytes(storage, rows->store, to_buffer,
                            cl_storage_offset(storage, rows, head, to), from_buffer,
                            cl_storage_offset(storage, rows, head, from), n * rows->row_bytes))
                return false;
    }
    return true;
}

bool cl_storage_copy(const cl_storage *storage, uint32_t to, uint32_t from, uint32_t n)
{
    uint32_t cells_a_block = storage->layout.cells_a_block;
    while (n > 0) {
        uint32_t to_rest = cells_a_block - to % cells_a_block;
        uint32_t from_rest = cells_a_block - from % cells_a_block;
        uint32_t some = to_rest < from_rest ? to_rest : from_rest;
        if (some > n) some = n;
        if (!copy_cells(storage, to, from, some)) return false;
        to += some;
        from += some;
        n -= some;
    }
    return true;
}

bool cl_storage_has_addresses(const cl_storage *storage)
{
    for (uint32_t i = 0; i < storage->n_chunks * storage->n_stores; i++)
        if (storage->buffers[i].buffer && !storage->buffers[i].address) return false;
    return true;
}
