/*
 * attention_model.h: attention written as it is defined, in double precision, with every feature
 * that a layer may have.
 *
 * For one query: rotate every key for the position at which it stands, take all scores, all
 * exponentials, the weighted mean. No tiles, no running maximum, no counter-rotated query: a shift
 * needs no special case here because only the position matters. What storing does to rows is in
 * row_model.h, what a query sees in visibility.h; Hadamard rotations are products with a matrix.
 * The order of a score is: scale <q, k>, soft cap, then the biases (ALiBi, buckets) are added.
 *
 * It also says how far an f32 implementation may be away: `bound` follows from the lengths of the
 * sums and their sizes (see the comment in attention_model.c), so no test needs a guessed epsilon.
 * Formulas: RoPE arXiv:2104.09864; YaRN arXiv:2309.00071 section 3, with the ramp over pair numbers
 * that the authors' own implementation and the models in use have; M-RoPE arXiv:2409.12191; ALiBi
 * arXiv:2108.12409 with the authors' rule for other numbers of heads than powers of two; buckets
 * arXiv:1910.10683.
 */
#ifndef MODEL_ATTENTION_MODEL_H
#define MODEL_ATTENTION_MODEL_H

#include <cellar.h>

/* ---- parts of the formulas ------------------------------------------------------------------- */

/* The angle by which pair i turns for one position. */
double attention_model_frequency(const cellar_layer *layer, uint32_t pair);

/* What the rotating elements of keys and queries are multiplied by. */
double attention_model_magnitude(const cellar_layer *layer);

/* Turn one head x[k_size] by `pos` positions on every axis; the length stays. */
void attention_model_rotate(const cellar_layer *layer, double pos, double *x);

/* The same for a token that stands in an image: `point` is its distance from pos. */
void attention_model_rotate_at(const cellar_layer *layer, double pos, cellar_point point,
                               double *x);

/* The nearest binary16 number, ties to even. */
double attention_model_f16(double x);

/* Multiply each stretch of the largest power of two that divides size by the Hadamard matrix. */
void attention_model_hadamard(double *x, uint32_t size);

/* The slope of ALiBi of a query head; a key at distance n is given -slope * n. */
double attention_model_slope(const cellar_layer *layer, uint32_t head);

/* The bucket of a key at distance k - q. */
uint32_t attention_model_bucket(const cellar_buckets *buckets, int64_t distance);

/* ---- rows ------------------------------------------------------------------------------------ */

/* One token that a query sees, as it was handed to cellar_store. */
typedef struct attention_model_row {
    cellar_pos pos;        /* where it stands */
    cellar_pos stored_pos; /* where it was stored */
    const float *k;        /* [n_kv_heads][k_size], not rotated */
    const float *v;        /* [n_kv_heads][v_size]; NULL with v_in_k */
} attention_model_row;

/*
 * The rows of a token as they come out of the store: k rotated for where it was stored, v not yet
 * turned back if rotate_v is set. Doubts: how far the library's own numbers may be away, because
 * rounding could go either way; 0 almost everywhere.
 */
typedef struct attention_model_stored {
    double *k, *k_doubt; /* [n_kv_heads][k_size] */
    double *v, *v_doubt; /* [n_kv_heads][v_size] */
} attention_model_stored;

/* Store the rows k and v of a token at `pos`; `point`: its distance from pos. */
void attention_model_store(const cellar_layer *layer, const float *k, const float *v,
                           cellar_pos pos, cellar_point point, attention_model_stored *out);
void attention_model_stored_free(attention_model_stored *stored);

/*
 * The key and value rows as cellar_read_rows has to give them: k [n_kv_heads][k_size] at row->pos,
 * v [n_kv_heads][v_size], with the doubt of each (v_doubt may be NULL).
 */
void attention_model_read(const cellar_layer *layer, const attention_model_row *row, double *k,
                          double *v, double *k_doubt, double *v_doubt);

/* The same without the doubt of v. */
void attention_model_rows(const cellar_layer *layer, const attention_model_row *row, double *k,
                          double *v, double *doubt);

/* ---- attention ------------------------------------------------------------------------------- */

/* A token that the query sees: what was stored, and where it stands now. */
typedef struct attention_model_key {
    const attention_model_stored *stored;
    cellar_pos pos, stored_pos;
} attention_model_key;

/*
 * out[n_heads][v_size] for q[n_heads][k_size] at position pos (and the distance `point` from it)
 * over n keys, zeros if there are none. bound[n_heads] becomes the largest honest difference of an
 * f32 implementation for the elements of each head.
 */
void attention_model_attend_keys(const cellar_layer *layer, const float *q, cellar_pos pos,
                                 cellar_point point, const attention_model_key *keys, uint32_t n,
                                 double *out, double *bound);

/* The same for rows that are text. */
void attention_model_attend(const cellar_layer *layer, const float *q, cellar_pos pos,
                            const attention_model_row *rows, uint32_t n_rows, double *out,
                            double *bound);

/* The worst |got - out| / bound over one query; NaN anywhere gives infinity. */
double attention_model_worst(const cellar_layer *layer, const float *got, const double *out,
                             const double *bound);

#endif /* MODEL_ATTENTION_MODEL_H */
