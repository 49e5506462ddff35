/*
 * quants_scalar.c: rows in blocks of 32 small integers with a scale, one number at a time.
 *
 * An encoder chooses the scale (and offset) first, rounded to f16 as it will be stored, and then
 * takes for each number the level nearest to it. Dividing by the stored scale in f32 and rounding
 * finds exactly that: a number that is no midpoint of two levels has no midpoint as its quotient.
 *
 * Decoders are in packed.h. Floats become integers only after they were clamped, so no input is
 * undefined; blocks with a NaN or an infinity are sorted out before, by their bits. Every version has
 * these bits. Nothing fails.
 */
#include "kernels.h"

#include "half.h"
#include "lanes.h"
#include "packed.h"
#include "quants.h"

/* ---- pieces of a block ----------------------------------------------------------------------- */

static void put_half(unsigned char *to, uint16_t half)
{
    memcpy(to, &half, sizeof half);
}

static float float_of_half(uint16_t half)
{
    return float_from_bits(float_bits_from_half(half));
}

/* Four-bit quants, two to a byte; of a fifth bit there are 32 in a word before them. */
static void put_quants(unsigned char *to, const uint8_t *quant, int has_fifth)
{
    if (has_fifth) {
        uint32_t fifth = 0;
        for (uint32_t i = 0; i < QUANTS; i++)
            fifth |= (uint32_t)(quant[i] >> 4) << i;
        memcpy(to, &fifth, sizeof fifth);
        to += sizeof fifth;
    }
    for (size_t i = 0; i < QUANT_HALF; i++)
        to[i] = (uint8_t)((quant[i] & 15) | (quant[i + QUANT_HALF] & 15) << 4);
}

/* ---- choosing scales ------------------------------------------------------------------------- */

/* The bits of the largest magnitude; as whole numbers, NaN is the largest of all. */
static uint32_t largest_bits(const float *x)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < QUANTS; i++) {
        const uint32_t bits = bits_from_float(x[i]) & 0x7fffffffu;
        if (bits > largest) largest = bits;
    }
    return largest;
}

/* A block that has no value: its scale is NaN, all else 0. */
static void put_nothing(unsigned char *block, size_t bytes)
{
    memset(block, 0, bytes);
    put_half(block, HALF_NAN);
}

/* The first number of the magnitude that has these bits, with its sign. */
static float first_of_bits(const float *x, uint32_t bits)
{
    size_t i = 0;
    while ((bits_from_float(x[i]) & 0x7fffffffu) != bits)
        i++;
    return x[i];
}

/*
 * The half nearest to range / levels, such that `levels` steps end at most half a step before the
 * range does: among the denormal halves the next larger one may be needed, also instead of 0.
 */
static uint16_t scale_for(float range, float levels)
{
    const float most = levels * LARGEST_HALF;
    const float covered = range < most ? range : most;
    const uint16_t half = half_from_float_bits(bits_from_float(covered / levels));
    const int is_short = covered > (levels + 0.5f) * float_of_half(half);
    return (uint16_t)(half + is_short);
}

/* The largest half that is not above x. */
static uint16_t half_below(float x)
{
    const float inside = x < -LARGEST_HALF ? -LARGEST_HALF : x > LARGEST_HALF ? LARGEST_HALF : x;
    const uint16_t half = half_from_float_bits(bits_from_float(inside));
    if (float_of_half(half) <= inside) return half;
    return (uint16_t)(half & 0x8000 ? half + 1 : half - 1);
}

/* The whole number nearest to x, ties to even, within the limits; in f32 there is none between. */
static int nearest_within(float x, float lowest, float highest)
{
    const float inside = x < lowest ? lowest : x > highest ? highest : x;
    return (int)((inside + 0x1.8p23f) - 0x1.8p23f);
}

/* ---- Q8_0 ------------------------------------------------------------------------------------ */

static void encode_q8_0(void *to, const float *from, size_t n)
{
    unsigned char *block = to;
    for (size_t i = 0; i < n; i += QUANTS, block += 34) {
        const float *const x = from + i;
        const uint32_t largest = largest_bits(x);
        if (largest >= INFINITE_BITS) {
            put_nothing(block, 34);
            continue;
        }
        const uint16_t scale = scale_for(float_from_bits(largest), 127);
        const float d = float_of_half(scale);
        put_half(block, scale);
        for (size_t l = 0; l < QUANTS; l++) {
            const int quant = largest ? nearest_within(x[l] / d, -127, 127) : 0;
            block[2 + l] = (unsigned char)quant;
        }
    }
}

/* ---- Q4_0, Q5_0: the number of largest magnitude is level -zero ------------------------------- */

static void encode_signed(unsigned char *block, const float *x, int zero, int has_fifth,
                          size_t block_bytes)
{
    const uint32_t largest = largest_bits(x);
    if (largest >= INFINITE_BITS) {
        put_nothing(block, block_bytes);
        return;
    }
    const int is_negative = first_of_bits(x, largest) > 0;
    const uint16_t size = scale_for(float_from_bits(largest), (float)zero);
    const uint16_t scale = (uint16_t)(is_negative ? size | 0x8000 : size);
    const float d = float_of_half(scale);
    uint8_t quant[QUANTS];
    for (size_t l = 0; l < QUANTS; l++) {
        const int level = largest ? nearest_within(x[l] / d, (float)-zero, (float)(zero - 1)) : 0;
        quant[l] = (uint8_t)(level + zero);
    }
    put_half(block, scale);
    put_quants(block + 2, quant, has_fifth);
}

/* ---- Q4_1, Q5_1: the offset is at or below the smallest number --------------------------------- */

static void encode_offset(unsigned char *block, const float *x, int highest, int has_fifth,
                          size_t block_bytes)
{
    if (largest_bits(x) >= INFINITE_BITS) {
        put_nothing(block, block_bytes);
        return;
    }
    float low = x[0], high = x[0];
    for (size_t l = 1; l < QUANTS; l++) {
        low = x[l] < low ? x[l] : low;
        high = x[l] > high ? x[l] : high;
    }
    const uint16_t offset = half_below(low + 0.0f); /* -0 becomes 0 */
    const float m = float_of_half(offset);
    const uint16_t scale = scale_for(high > m ? high - m : 0, (float)highest);
    const float d = float_of_half(scale);
    uint8_t quant[QUANTS];
    for (size_t l = 0; l < QUANTS; l++)
        quant[l] = (uint8_t)(scale ? nearest_within((x[l] - m) / d, 0, (float)highest) : 0);
    put_half(block, scale);
    put_half(block + 2, offset);
    put_quants(block + 4, quant, has_fifth);
}

/* ---- IQ4_NL: unevenly spaced levels ----------------------------------------------------------- */

/* The index of the level nearest to x; of two at the same distance, the lower. */
static uint8_t nonlinear_nearest(float x)
{
    const float twice = x + x;
    unsigned index = twice > nonlinear_borders[7] ? 8 : 0;
    index += twice > nonlinear_borders[index + 3] ? 4 : 0;
    index += twice > nonlinear_borders[index + 1] ? 2 : 0;
    index += twice > nonlinear_borders[index] ? 1 : 0;
    return (uint8_t)index;
}

/*
 * The scale that a few trials and least squares find. A trial makes `first`, a number of the
 * largest magnitude, some number near a level at one end and takes the nearest level e for every x;
 * the scale best for these levels is sum(x e) / sum(e e), and leaves the less error, the larger
 * sum(x e)^2 / sum(e e) is. Numbers are divided by `first`, so that no sum can overflow. Only
 * scales that are normal halves count; 0 if there is none.
 */
static float nonlinear_scale(const float *x, float first)
{
    float share[QUANTS], most = -1, best = 0;
    for (size_t l = 0; l < QUANTS; l++)
        share[l] = x[l] / first;
    for (size_t trial = 0; trial < NONLINEAR_TRIALS; trial++) {
        float level[QUANTS], products[LANES] = {0}, squares[LANES] = {0};
        for (size_t l = 0; l < QUANTS; l++)
            level[l] = nonlinear_levels[nonlinear_nearest(share[l] * nonlinear_trials[trial])];
        lanes_add_products(products, share, level, QUANTS);
        lanes_add_products(squares, level, level, QUANTS);
        const float product = lanes_sum(products), square = lanes_sum(squares);
        const float gain = product * product / square, scale = product / square * first;
        if (gain > most && is_normal_half(scale)) {
            most = gain;
            best = scale;
        }
    }
    return best;
}

/* The searched scale as a half. Where halves are coarse or end, the one that covers the range. */
static uint16_t nonlinear_half(const float *x, float first, float largest)
{
    const float searched = nonlinear_scale(x, first);
    if (searched != 0) return half_from_float_bits(bits_from_float(searched));
    const uint16_t half = scale_for(largest, 127);
    return (uint16_t)(first > 0 ? half | 0x8000 : half);
}

static void encode_iq4_nl(void *to, const float *from, size_t n)
{
    unsigned char *block = to;
    for (size_t i = 0; i < n; i += QUANTS, block += 18) {
        const float *const x = from + i;
        const uint32_t largest = largest_bits(x);
        if (largest >= INFINITE_BITS) {
            put_nothing(block, 18);
            continue;
        }
        if (largest == 0) { /* no trial could divide by it; 1 is the smallest level */
            memset(block, NONLINEAR_ONE | NONLINEAR_ONE << 4, 18);
            put_half(block, 0);
            continue;
        }
        const uint16_t scale = nonlinear_half(x, first_of_bits(x, largest),
                                              float_from_bits(largest));
        const float d = float_of_half(scale);
        uint8_t quant[QUANTS];
        for (size_t l = 0; l < QUANTS; l++)
            quant[l] = nonlinear_nearest(x[l] / d);
        put_half(block, scale);
        put_quants(block + 2, quant, 0);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A type's encoder, from that of a block. */
#define ENCODER(name, bytes, encode_block)                                                         \
    static void encode_##name(void *to, const float *from, size_t n)                               \
    {                                                                                              \
        unsigned char *block = to;                                                                 \
        for (size_t i = 0; i < n; i += QUANTS, block += (bytes))                                   \
            encode_block;                                                                          \
    }

ENCODER(q4_0, 18, encode_signed(block, from + i, 8, 0, 18))
ENCODER(q5_0, 22, encode_signed(block, from + i, 16, 1, 22))
ENCODER(q4_1, 20, encode_offset(block, from + i, 15, 0, 20))
ENCODER(q5_1, 24, encode_offset(block, from + i, 31, 1, 24))

void cl_quants_fill_scalar(cl_kernels *table)
{
    table->codec[CL_ROW_Q4_0] = (cl_row_codec){QUANTS, 18, encode_q4_0, packed_decode_q4_0};
    table->codec[CL_ROW_Q4_1] = (cl_row_codec){QUANTS, 20, encode_q4_1, packed_decode_q4_1};
    table->codec[CL_ROW_Q5_0] = (cl_row_codec){QUANTS, 22, encode_q5_0, packed_decode_q5_0};
    table->codec[CL_ROW_Q5_1] = (cl_row_codec){QUANTS, 24, encode_q5_1, packed_decode_q5_1};
    table->codec[CL_ROW_Q8_0] = (cl_row_codec){QUANTS, 34, encode_q8_0, packed_decode_q8_0};
    table->codec[CL_ROW_IQ4_NL] = (cl_row_codec){QUANTS, 18, encode_iq4_nl, packed_decode_iq4_nl};
}
