/*
 * session_rows.c: tiles out of memory, and into it.
 *
 * Rows with an address go from there to the sink, as many at once as lie together; rows in a store of the
 * caller's are read into the sink's buffer. On the way back a row is copied if the file has it as the memory
 * wants it. Else it is decoded, turned if one of the two has it turned and the other not (the Hadamard
 * transform undoes itself, so one turn does for both), and encoded.
 */
#include "session_rows.h"

#include "error.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rows are written as they lie in memory");

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

/* ---- into memory -------------------------------------------------------------------------------- */

/* Elements that a layer turns together, as memory.c has it. */
static uint32_t turn_of(bool is_turned, uint32_t size)
{
    return is_turned && size % 2 == 0 ? size & (0u - size) : 0;
}

/* One more kind of row, which must come in the order of storage->rows. */
static void add_kind(cl_row_reader *reader, const cl_rows *to, cellar_type type, uint32_t from_turn,
                     uint32_t to_turn)
{
    cl_row_kind *kind = &reader->kinds[to - reader->storage->rows];
    kind->to = to;
    kind->from_type = type;
    kind->from_bytes = cellar_type_bytes(type, to->size);
    kind->turn = from_turn == to_turn ? 0 : from_turn + to_turn; /* one of them is 0 */
    kind->is_same = type == to->type && kind->turn == 0;
    reader->cell_bytes += (uint64_t)to->n_heads * kind->from_bytes;
    const size_t most = kind->is_same ? CL_ROWS_WRITTEN : kind->from_bytes;
    if (most > reader->most_bytes) reader->most_bytes = most;
    if (kind->is_same) return;
    if (to->size > reader->n_numbers) reader->n_numbers = to->size;
    if (to->row_bytes > reader->raw_bytes) reader->raw_bytes = to->row_bytes;
}

static void add_layer(cl_row_reader *reader, const cellar_layer *from, const cl_layer *to)
{
    for (uint32_t t = 0; t < to->n_states; t++)
        add_kind(reader, &to->states[t], CELLAR_F32, 0, 0);
    if (to->kind != CELLAR_LAYER_ATTENTION) return;
    add_kind(reader, to->k, from->k_type, turn_of(from->rotate_k, from->k_size), to->hadamard_k);
    if (to->v)
        add_kind(reader, to->v, from->v_type, turn_of(from->rotate_v, from->v_size),
                 to->hadamard_v);
}

cellar_status cl_row_reader_open(cl_row_reader *reader, const cl_saved_model *model,
                                 const cellar_memory *memory, uint32_t group, cl_alloc *alloc,
                                 cellar_error *error)
{
    const cl_storage *storage = &memory->groups[group].storage;
    size_t bytes = storage->n_rows * sizeof(cl_row_kind);
    *reader = (cl_row_reader){.storage = storage, .kernels = &memory->kernels};
    reader->kinds = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!reader->kinds) return cl_error_no_memory(error, "reading rows", bytes);
    for (uint32_t i = 0; i < memory->n_layers; i++)
        if (memory->layers[i].group == (int32_t)group && memory->layers[i].source == i)
            add_layer(reader, &model->layers[i], &memory->layers[i]);
    if (reader->n_numbers == 0) return CELLAR_OK;
    reader->numbers = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, reader->n_numbers * sizeof(float));
    reader->raw = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, reader->raw_bytes);
    if (reader->numbers && reader->raw) return CELLAR_OK;
    bytes = reader->n_numbers * sizeof(float);
    cl_row_reader_close(reader, alloc);
    return cl_error_no_memory(error, "converting rows", bytes);
}

void cl_row_reader_close(cl_row_reader *reader, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, reader->raw, reader->raw_bytes);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, reader->numbers, reader->n_numbers * sizeof(float));
    if (reader->kinds)
        cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, reader->kinds,
                     reader->storage->n_rows * sizeof(cl_row_kind));
    memset(reader, 0, sizeof *reader);
}

/* Bytes as they are, n rows of each of n_heads heads that lie together. */
static bool copy_rows(const cl_storage *storage, const cl_rows *rows, cl_stream *from,
                      uint32_t head, uint32_t n_heads, const cl_stretch *stretch)
{
    const cl_buffer *buffer = cl_storage_buffer(storage, rows->store,
                                                stretch->cell >> storage->cell_shift);
    size_t offset = cl_storage_offset(storage, rows, head, stretch->cell);
    size_t n = n_heads * stretch->len * rows->row_bytes;
    if (buffer->address) {
        cl_stream_copy(from, buffer->address + offset, n);
        return true;
    }
    const cellar_row_store *store = &storage->stores[rows->store];
    for (size_t some; n > 0; offset += some, n -= some) {
        some = n < CL_ROWS_WRITTEN ? n : CL_ROWS_WRITTEN;
        const unsigned char *bytes = cl_stream_take(from, some);
        if (!bytes || !store->write(store->context, buffer->buffer, offset, bytes, some))
            return false;
    }
    return true;
}

static bool convert_row(const cl_row_reader *reader, const cl_row_kind *kind, cl_stream *from,
                        uint32_t head, uint32_t cell)
{
    const unsigned char *row = cl_stream_take(from, kind->from_bytes);
    float *numbers = reader->numbers;
    if (!row) return false;
    if (kind->from_type == CELLAR_F32)
        memcpy(numbers, row, kind->from_bytes);
    else
        reader->kernels->codec[kind->from_type].decode(numbers, row, kind->to->size);
    for (uint32_t i = 0; kind->turn > 0 && i < kind->to->size; i += kind->turn)
        reader->kernels->hadamard(numbers + i, kind->turn);
    return cl_storage_write(reader->storage, kind->to, reader->kernels, head, cell, numbers,
                            reader->raw);
}

/* Rows of one head for one stretch. */
static bool get_stretch(const cl_row_reader *reader, const cl_row_kind *kind, uint32_t head,
                        const cl_stretch *stretch, cl_stream *from)
{
    if (stretch->cell == CL_NO_CELL) {
        cl_stream_skip(from, stretch->len * kind->from_bytes);
        return true;
    }
    if (kind->is_same) return copy_rows(reader->storage, kind->to, from, head, 1, stretch);
    for (uint32_t i = 0; i < stretch->len; i++)
        if (!convert_row(reader, kind, from, head, stretch->cell + i)) return false;
    return true;
}

bool cl_rows_get(const cl_row_reader *reader, cl_stream *from, const cl_stretch *stretches,
                 uint32_t n)
{
    bool is_block = n == 1 && stretches->len == reader->storage->layout.cells_a_block &&
                    stretches->cell != CL_NO_CELL;
    for (uint32_t i = 0; i < reader->storage->n_rows; i++) {
        const cl_row_kind *kind = &reader->kinds[i];
        uint32_t n_heads = kind->to->n_heads;
        if (is_block && kind->is_same) { /* the heads lie one behind the other */
            if (!copy_rows(reader->storage, kind->to, from, 0, n_heads, stretches)) return false;
            continue;
        }
        for (uint32_t head = 0; head < n_heads; head++)
            for (uint32_t s = 0; s < n; s++)
                if (!get_stretch(reader, kind, head, &stretches[s], from)) return false;
    }
    return true;
}
