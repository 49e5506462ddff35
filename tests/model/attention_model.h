/*
 * attention_model.h: attention written as it is defined, in double precision.
 *
 * For one query: rotate every key for the position at which it stands, take all scores, all
 * exponentials, the weighted mean. No tiles, no running maximum, no counter-rotated query: a shift
 * needs no special case here because only the position matters. Rows that are stored as f16 are
 * rounded here too, at the position where they were stored, with a rounding written from the
 * definition of binary16.
 *
 * It also says how far an f32 implementation may be away: `bound` follows from the lengths of the
 * sums and their sizes (see the comment in attention_model.c), so no test needs a guessed epsilon.
 * Formulas: RoPE arXiv:2104.09864; YaRN arXiv:2309.00071 section 3, with the ramp over pair numbers
 * that the authors' own implementation and the models in use have.
 */
#ifndef MODEL_ATTENTION_MODEL_H
#define MODEL_ATTENTION_MODEL_H

#include <cellar.h>

/* One token that a query sees, as it was handed to cellar_store. */
typedef struct attention_model_row {
    cellar_pos pos;        /* where it stands */
    cellar_pos stored_pos; /* where it was stored */
    const float *k;        /* [n_kv_heads][k_size], not rotated */
    const float *v;        /* [n_kv_heads][v_size] */
} attention_model_row;

/* The angle by which pair i turns for one position. */
double attention_model_frequency(const cellar_layer *layer, uint32_t pair);

/* What the rotating elements of keys and queries are multiplied by. */
double attention_model_magnitude(const cellar_layer *layer);

/* Turn one head x[k_size] by `pos` positions; the length stays. */
void attention_model_rotate(const cellar_layer *layer, double pos, double *x);

/* The nearest binary16 number, ties to even. */
double attention_model_f16(double x);

/*
 * The key and value rows as cellar_read_rows has to give them: k [n_kv_heads][k_size] at row->pos,
 * v [n_kv_heads][v_size]. `doubt` [n_kv_heads][k_size] becomes by how much an element may differ
 * because the rounding to f16 could go either way; 0 almost everywhere.
 */
void attention_model_rows(const cellar_layer *layer, const attention_model_row *row, double *k,
                          double *v, double *doubt);

/*
 * out[n_heads][v_size] for q[n_heads][k_size] at position pos; n_rows >= 1. bound[n_heads] becomes
 * the largest honest difference of an f32 implementation for the elements of each head.
 */
void attention_model_attend(const cellar_layer *layer, const float *q, cellar_pos pos,
                            const attention_model_row *rows, uint32_t n_rows, double *out,
                            double *bound);

/* The worst |got - out| / bound over one query; NaN anywhere gives infinity. */
double attention_model_worst(const cellar_layer *layer, const float *got, const double *out,
                             const double *bound);

#endif /* MODEL_ATTENTION_MODEL_H */
