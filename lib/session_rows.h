/*
 * session_rows.h: the rows of cells, as a file has them.
 *
 *     a tile: 32 cells of an attention group, or one state
 *     [ layer 0 K: head 0: the cells' rows; head 1: ... | layer 0 V: ... | layer 1 K: ... ]
 *
 * That is the order of rows in a block of memory, so a tile that fills a block is copied in long pieces.
 * Rows that a file has in another type, or turned otherwise (Hadamard), are converted one by one.
 */
#ifndef CL_SESSION_ROWS_H
#define CL_SESSION_ROWS_H

#include "session.h"
#include "session_sink.h"
#include "session_stream.h"

/* Cells in a tile of a group. */
uint32_t cl_rows_tile(cellar_layer_kind kind);

/*
 * Put one tile: the rows of the cells of stretches[n], none of which leaves a block. False: a store failed.
 */
bool cl_rows_put(const cl_storage *storage, const cl_stretch *stretches, uint32_t n, cl_sink *sink);

#define CL_ROWS_WRITTEN 131072u /* bytes that a store of the caller's is given at once, at most */

/* One kind of row: as the file has it, and where it goes. */
typedef struct cl_row_kind {
    const cl_rows *to;
    cellar_type from_type;
    size_t from_bytes; /* of one head of one cell in the file */
    uint32_t turn;     /* elements that are turned together on the way; 0: none are */
    bool is_same;      /* bytes are copied */
} cl_row_kind;

/* Reads the rows of one group. */
typedef struct cl_row_reader {
    const cl_storage *storage;
    const cl_kernels *kernels;
    cl_row_kind *kinds; /* [storage->n_rows] */
    float *numbers;     /* a row; NULL: nothing is converted */
    unsigned char *raw; /* the same row as it is stored */
    size_t n_numbers, raw_bytes;
    size_t most_bytes;   /* that are taken from the stream in one piece, at most */
    uint64_t cell_bytes; /* of one cell in the file */
} cl_row_reader;

/* For a session that cl_model_compare has accepted. CELLAR_NO_MEMORY; then nothing is held. */
cellar_status cl_row_reader_open(cl_row_reader *reader, const cl_saved_model *model,
                                 const cellar_memory *memory, uint32_t group, cl_alloc *alloc,
                                 cellar_error *error);
void cl_row_reader_close(cl_row_reader *reader, cl_alloc *alloc);

/*
 * Rows of one tile, next in the stream, into the cells of stretches[n], none of which leaves a block
 * (cell CL_NO_CELL: passed over). False: a store failed, or the stream.
 */
bool cl_rows_get(const cl_row_reader *reader, cl_stream *from, const cl_stretch *stretches,
                 uint32_t n);

#endif /* CL_SESSION_ROWS_H */
