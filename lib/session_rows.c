/*
 * session_rows.c: tiles out of memory.
 *
 * Rows with an address go from there to the sink, as many at once as lie together; rows in a store of the
 * caller's are read into the sink's buffer.
 */
#include "session_rows.h"

uint32_t cl_rows_tile(cellar_layer_kind kind)
{
    return kind == CELLAR_LAYER_RECURRENT ? 1 : CL_SESSION_TILE;
}

/* Bytes that lie together in one buffer. */
static bool put_bytes(const cl_storage *storage, const cl_rows *rows, const cl_buffer *buffer,
                      size_t offset, size_t n, cl_sink *sink)
{
    if (buffer->address) {
        cl_sink_put(sink, buffer->address + offset, n);
        return true;
    }
    const cellar_row_store *store = &storage->stores[rows->store];
    while (n > 0) {
        size_t some = n < CL_SINK_BYTES / 2 ? n : CL_SINK_BYTES / 2;
        unsigned char *to = cl_sink_room(sink, some);
        if (!store->read(store->context, buffer->buffer, offset, to, some)) return false;
        cl_sink_filled(sink, some);
        offset += some;
        n -= some;
    }
    return true;
}

static bool put_stretch(const cl_storage *storage, const cl_rows *rows, uint32_t head,
                        uint32_t n_heads, const cl_stretch *stretch, cl_sink *sink)
{
    const cl_buffer *buffer = cl_storage_buffer(storage, rows->store,
                                                stretch->cell >> storage->cell_shift);
    return put_bytes(storage, rows, buffer, cl_storage_offset(storage, rows, head, stretch->cell),
                     n_heads * stretch->len * rows->row_bytes, sink);
}

bool cl_rows_put(const cl_storage *storage, const cl_stretch *stretches, uint32_t n, cl_sink *sink)
{
    bool is_block = n == 1 && stretches->len == storage->layout.cells_a_block;
    for (uint32_t i = 0; i < storage->n_rows; i++) {
        const cl_rows *rows = &storage->rows[i];
        if (is_block) { /* its heads lie one behind the other */
            if (!put_stretch(storage, rows, 0, rows->n_heads, stretches, sink)) return false;
            continue;
        }
        for (uint32_t head = 0; head < rows->n_heads; head++)
            for (uint32_t s = 0; s < n; s++)
                if (!put_stretch(storage, rows, head, 1, &stretches[s], sink)) return false;
    }
    return true;
}
