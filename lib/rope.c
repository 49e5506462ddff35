/*
 * rope.c: from a description to frequencies, from positions to angles.
 *
 * Sources: RoPE, Su et al., arXiv:2104.09864; YaRN, Peng et al., arXiv:2309.00071 (the ramp between
 * interpolated and kept frequencies is its section 3.2, the magnitude its section 3.4); M-RoPE, Wang
 * et al., arXiv:2409.12191, section 2.1: its pairs are those of NEOX with the same frequencies, only
 * the coordinate by which a pair turns differs. Pairs of the last section do not turn; the magnitude
 * is theirs as well.
 */
#include "rope.h"

#include <math.h>
#include <string.h>

#include "error.h"

static const double two_pi = 6.283185307179586476925286766559;

uint32_t cl_rope_pairs(const cellar_rope *rope, uint32_t k_size)
{
    if (rope->kind == CELLAR_ROPE_NONE) return 0;
    return (rope->n_rot ? rope->n_rot : k_size) / 2;
}

/* Far beyond any model, and near enough that no product of a few of them leaves f32. */
#define SMALLEST 1e-9
#define LARGEST 1e9

static bool is_sane(double x)
{
    return x >= SMALLEST && x <= LARGEST; /* NaN is not */
}

static cellar_status check_number(double x, uint32_t layer, const char *name, cellar_error *error)
{
    if (is_sane(x)) return CELLAR_OK;
    CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: rope.%s %g is not in %g..%g", layer, name, x,
            SMALLEST, LARGEST);
}

static cellar_status validate_yarn(const cellar_rope *rope, uint32_t layer, cellar_error *error)
{
    if (!(rope->yarn_ext >= 0 && rope->yarn_ext <= 1))
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: rope.yarn_ext %g is not in 0..1", layer,
                rope->yarn_ext);
    CL_TRY(check_number(rope->yarn_attn, layer, "yarn_attn", error));
    if (rope->yarn_attn > 1000)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: rope.yarn_attn %g is above 1000", layer,
                rope->yarn_attn);
    if (rope->yarn_ext == 0) return CELLAR_OK;
    CL_TRY(check_number(rope->yarn_beta_fast, layer, "yarn_beta_fast", error));
    CL_TRY(check_number(rope->yarn_beta_slow, layer, "yarn_beta_slow", error));
    if (rope->yarn_context == 0)
        CL_FAIL(error, CELLAR_INVALID, layer,
                "layer %u: rope.yarn_context must be given when yarn_ext is above 0", layer);
    if (rope->base == 1.0)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: rope.base 1 cannot be used with YaRN",
                layer);
    return CELLAR_OK;
}

static cellar_status validate_sections(const cellar_rope *rope, uint32_t n_rot, uint32_t layer,
                                       cellar_error *error)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4; i++)
        sum += rope->sections[i];
    if (rope->kind != CELLAR_ROPE_MROPE && sum != 0)
        CL_FAIL(error, CELLAR_INVALID, layer,
                "layer %u: rope.sections are for CELLAR_ROPE_MROPE only", layer);
    if (rope->kind == CELLAR_ROPE_MROPE && sum != n_rot / 2)
        CL_FAIL(error, CELLAR_INVALID, layer,
                "layer %u: rope.sections add up to %llu pairs; n_rot %u needs %u", layer,
                (unsigned long long)sum, n_rot, n_rot / 2);
    return CELLAR_OK;
}

cellar_status cl_rope_validate(const cellar_rope *rope, uint32_t k_size, uint32_t layer,
                               cellar_error *error)
{
    if (rope->kind == CELLAR_ROPE_NONE) return CELLAR_OK;
    if (rope->kind != CELLAR_ROPE_NORMAL && rope->kind != CELLAR_ROPE_NEOX &&
        rope->kind != CELLAR_ROPE_MROPE)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: rope.kind %d is not known", layer,
                (int)rope->kind);
    uint32_t n_rot = rope->n_rot ? rope->n_rot : k_size;
    if (n_rot % 2 != 0 || n_rot > k_size)
        CL_FAIL(error, CELLAR_INVALID, layer,
                "layer %u: rope.n_rot %u must be even and at most k_size %u", layer, n_rot, k_size);
    if (rope->first > k_size - n_rot)
        CL_FAIL(error, CELLAR_INVALID, layer,
                "layer %u: rope.first %u and n_rot %u elements behind it exceed k_size %u", layer,
                rope->first, n_rot, k_size);
    CL_TRY(validate_sections(rope, n_rot, layer, error));
    CL_TRY(check_number(rope->base, layer, "base", error));
    CL_TRY(check_number(rope->scale, layer, "scale", error));
    for (uint32_t i = 0; rope->factors && i < n_rot / 2; i++)
        if (!is_sane((double)rope->factors[i]) && rope->factors[i] != INFINITY)
            CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: rope.factors[%u] %g is not in %g..%g",
                    layer, i, (double)rope->factors[i], SMALLEST, LARGEST);
    return validate_yarn(rope, layer, error);
}

/*
 * The pair whose wavelength fits `rotations` times into the training context: solve
 * context * base^(-2i/n_rot) = 2 pi rotations for i.
 */
static double pair_of_rotations(const cellar_rope *rope, uint32_t n_rot, double rotations)
{
    return n_rot * log(rope->yarn_context / (rotations * two_pi)) / (2 * log(rope->base));
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

void cl_rope_init(cl_rope *out, const cellar_rope *rope, uint32_t k_size, double *frequencies)
{
    out->kind = rope->kind;
    out->n_pairs = cl_rope_pairs(rope, k_size);
    out->magnitude = rope->yarn_attn;
    out->frequencies = frequencies;
    out->first = out->n_pairs ? rope->first : 0;
    out->given = *rope;
    out->given.n_rot = 2 * out->n_pairs;
    memcpy(out->sections, rope->sections, sizeof out->sections);
    uint32_t n_rot = 2 * out->n_pairs;
    double low = 0, high = 0;
    if (rope->yarn_ext > 0) {
        out->magnitude *= 1 + 0.1 * log(1 / rope->scale);
        low = clamp(floor(pair_of_rotations(rope, n_rot, rope->yarn_beta_fast)), 0, n_rot - 1.0);
        high = clamp(ceil(pair_of_rotations(rope, n_rot, rope->yarn_beta_slow)), 0, n_rot - 1.0);
    }
    for (uint32_t i = 0; i < out->n_pairs; i++) {
        double kept = pow(rope->base, -2.0 * i / n_rot);
        if (rope->factors) kept /= rope->factors[i];
        double interpolated = kept * rope->scale;
        double ramp = clamp((i - low) / fmax(0.001, high - low), 0, 1); /* 0: fast pair, 1: slow */
        double keep = rope->yarn_ext * (1 - ramp);
        frequencies[i] = interpolated * (1 - keep) + kept * keep;
    }
}

bool cl_rope_same(const cellar_rope *a, uint32_t a_size, const cellar_rope *b, uint32_t b_size)
{
    if (a->kind != b->kind) return false;
    if (a->kind == CELLAR_ROPE_NONE) return true;
    uint32_t n_pairs = cl_rope_pairs(a, a_size);
    if (n_pairs != cl_rope_pairs(b, b_size) || a->first != b->first ||
        memcmp(a->sections, b->sections, sizeof a->sections) != 0 || a->base != b->base ||
        a->scale != b->scale || a->yarn_ext != b->yarn_ext || a->yarn_attn != b->yarn_attn ||
        !a->factors != !b->factors)
        return false;
    if (a->factors && memcmp(a->factors, b->factors, n_pairs * sizeof(float)) != 0) return false;
    return a->yarn_ext == 0 ||
           (a->yarn_beta_fast == b->yarn_beta_fast && a->yarn_beta_slow == b->yarn_beta_slow &&
            a->yarn_context == b->yarn_context);
}

/* Pairs [first, first + n) turn by `distance`. */
static void fill_angles(const cl_rope *rope, uint32_t first, uint32_t n, int64_t distance,
                        double magnitude, float *c, float *s)
{
    for (uint32_t i = first; i < first + n; i++) {
        double angle = (double)distance * rope->frequencies[i];
        c[i] = (float)(cos(angle) * magnitude);
        s[i] = (float)(sin(angle) * magnitude);
    }
}

void cl_rope_angles(const cl_rope *rope, int64_t distance, double magnitude, float *c, float *s)
{
    cl_rope_point_angles(rope, distance, 0, 0, magnitude, c, s);
}

void cl_rope_point_angles(const cl_rope *rope, int64_t pos, int32_t y, int32_t x, double magnitude,
                          float *c, float *s)
{
    if (rope->kind != CELLAR_ROPE_MROPE) {
        fill_angles(rope, 0, rope->n_pairs, pos, magnitude, c, s);
        return;
    }
    const int64_t distances[] = {pos, pos + y, pos + x};
    uint32_t first = 0;
    for (uint32_t axis = 0; axis < 3; first += rope->sections[axis++])
        fill_angles(rope, first, rope->sections[axis], distances[axis], magnitude, c, s);
    fill_angles(rope, first, rope->sections[3], 0, magnitude, c, s);
}

void cl_rope_turn(const cl_rope *rope, const cl_kernels *kernels, float *head, const float *c,
                  const float *s)
{
    if (rope->kind == CELLAR_ROPE_NORMAL)
        kernels->rope_normal(head + rope->first, rope->n_pairs, c, s);
    else if (rope->kind != CELLAR_ROPE_NONE)
        kernels->rope_neox(head + rope->first, rope->n_pairs, c, s);
}
