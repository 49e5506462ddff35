/*
 * row_model.h: what storing does to numbers: decode(encode(x)) in double, for every row type.
 *
 * Written from the format facts (docs/kernels.md), not from the kernels: no bits are packed here, a
 * number simply becomes the level that it would come back as. The library rounds what it computed
 * in f32, a test what it computed in double; where the two may fall on different sides of a
 * midpoint, or choose different scales, the difference is not an error. So every number comes with
 * `slack`, how far the library's may be away before storing, and gets a `doubt`, how far it may be
 * away afterwards: for most numbers of most rows, 0.
 */
#ifndef MODEL_ROW_MODEL_H
#define MODEL_ROW_MODEL_H

#include <cellar.h>

/* Numbers in a block of the type: 32 for quantised types, else 1. */
uint32_t row_model_block(cellar_type type);

/* A name for messages: "q8_0". */
const char *row_model_name(cellar_type type);

/*
 * Every row type, in the order of the header.
 */
#define ROW_MODEL_TYPES 9
extern const cellar_type row_model_types[ROW_MODEL_TYPES];

/* The nearest number of a binary format with 11 (f16) or 8 (bf16) leading bits, ties to even. */
double row_model_f16(double x);
double row_model_bf16(double x);

/*
 * x[n] becomes what is read back. slack[n] >= 0 (NULL: all 0). doubt[n]: see above. n is a multiple
 * of the block; numbers are finite.
 */
void row_model_store(cellar_type type, double *x, const double *slack, double *doubt, uint32_t n);

#endif /* MODEL_ROW_MODEL_H */
