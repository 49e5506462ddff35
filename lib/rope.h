/*
 * rope.h: rotary positions, and why a shift costs nothing.
 *
 * A rotation is described once (cellar_rope) and reduced to one frequency for each pair of elements
 * and one magnitude. Angles are position times frequency, in double; only their cosines and sines
 * are rounded to f32. Because rotations compose,
 *
 *     <R(p) q, R(s + d) k>  =  <R(p - d) q, R(s) k>  =  <R(-d) (R(p) q), R(s) k>
 *
 * a key that was rotated for position s and now stands at s + d is met by turning the query back by
 * d. The magnitude (YaRN's) belongs to the first rotation of a query or key only; turning has
 * magnitude 1.
 */
#ifndef CL_ROPE_H
#define CL_ROPE_H

#include "cellar.h"
#include "kernels.h"

typedef struct cl_rope {
    cellar_rope_kind kind;
    uint32_t n_pairs;     /* n_rot / 2; 0 for CELLAR_ROPE_NONE */
    uint32_t first;       /* where the rotating elements begin in a head */
    uint32_t sections[4]; /* CELLAR_ROPE_MROPE: pairs that turn by position, y, x, nothing */
    double magnitude;     /* of the first rotation */
    double *frequencies;  /* [n_pairs] radians a position */
    cellar_rope given;    /* what it was made from; n_rot filled in */
} cl_rope;

/* The number of pairs a description rotates in a head of k_size elements. */
uint32_t cl_rope_pairs(const cellar_rope *rope, uint32_t k_size);

/* What is wrong with a description, or CELLAR_OK. `layer` is for the message. */
cellar_status cl_rope_validate(const cellar_rope *rope, uint32_t k_size, uint32_t layer,
                               cellar_error *error);

/*
 * Reduce a valid description; `frequencies` has room for cl_rope_pairs values. `given` points to the
 * description's own factors: whoever keeps the result longer than those gives it a copy.
 */
void cl_rope_init(cl_rope *out, const cellar_rope *rope, uint32_t k_size, double *frequencies);

/* Do two valid descriptions, of heads of a_size and b_size elements, turn the same way? */
bool cl_rope_same(const cellar_rope *a, uint32_t a_size, const cellar_rope *b, uint32_t b_size);

/*
 * Cosines, then sines: c[n_pairs], s[n_pairs] of a rotation by `distance` positions (all axes of an
 * M-RoPE alike: what a shift does).
 */
void cl_rope_angles(const cl_rope *rope, int64_t distance, double magnitude, float *c, float *s);

/* The same for a token at a position and, with M-RoPE, a point (distances from the position). */
void cl_rope_point_angles(const cl_rope *rope, int64_t pos, int32_t y, int32_t x, double magnitude,
                          float *c, float *s);

/* Rotate one head (from its first element) in place with such angles. */
void cl_rope_turn(const cl_rope *rope, const cl_kernels *kernels, float *head, const float *c,
                  const float *s);

#endif /* CL_ROPE_H */
