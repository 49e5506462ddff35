/*
 * session_rows.h: the rows of cells, as a file has them.
 *
 *     a tile: 32 cells of an attention group, or one state
 *     [ layer 0 K: head 0: the cells' rows; head 1: ... | layer 0 V: ... | layer 1 K: ... ]
 *
 * That is the order of rows in a block of memory, so a tile that fills a block is copied in long pieces.
 */
#ifndef CL_SESSION_ROWS_H
#define CL_SESSION_ROWS_H

#include "group.h"
#include "session_sink.h"

/* Cells in a tile of a group. */
uint32_t cl_rows_tile(cellar_layer_kind kind);

/*
 * Put one tile: the rows of the cells of stretches[n], none of which leaves a block. False: a store failed.
 */
bool cl_rows_put(const cl_storage *storage, const cl_stretch *stretches, uint32_t n, cl_sink *sink);

#endif /* CL_SESSION_ROWS_H */
