/*
 * quantize_signed.c: Q3_K and Q6_K: blocks of 256 numbers in 16 parts, value = d * scale * quant.
 *
 * Three choices depend on each other: quants, the parts' scales (small signed integers) and the
 * block's d. They are made from the inside out and then improved:
 *   1. Each part by itself: the real scale that leaves the least error, over some trials that put
 *      its largest number at or beyond either end of the levels (least squares, as for IQ4_NL rows).
 *   2. d such that the largest of these scales is near an end of the integers, over some trials.
 *   3. In turns: each part takes the best of its integer and the two beside it, then d becomes what
 *      least squares say for these quants, as long as the error becomes smaller.
 *
 * Numbers too small for the smallest half become 0.
 */
#include "engine/quantize_pieces.h"

#define PARTS 16u
#define PART 16u
#define ROUNDS 3 /* of step 3; a fourth hardly ever finds anything */

/* What distinguishes the two types. */
typedef struct signed_kind {
    int lowest, highest;             /* quants */
    int scale_lowest, scale_highest; /* the parts' integers */
    float from, step;                /* trials of step 1, as multiples of -lowest */
    int n_trials;
} signed_kind;

static const signed_kind q3_k = {-4, 3, -32, 31, 0.7f, 0.06f, 12};
static const signed_kind q6_k = {-32, 31, -128, 127, 0.92f, 0.015f, 10};

/* Scales of the parts and of the block, as stored. */
typedef struct signed_scales {
    uint16_t half;
    int scale[PARTS];
} signed_scales;

/* Step 1. */
static double search_scale(const signed_kind *kind, const float *x)
{
    const float first = x[quantize_largest(x, PART)];
    float share[PART]; /* of the largest: nothing can overflow */
    double best = 0, most = -1;
    for (size_t i = 0; i < PART; i++)
        share[i] = first != 0 ? x[i] / first : 0;
    for (int trial = 0; first != 0 && trial < 2 * kind->n_trials; trial++) {
        const float size = (kind->from + kind->step * (float)(trial / 2)) * (float)-kind->lowest;
        const float place = trial % 2 ? size : -size;
        float product = 0, square = 0;
        for (size_t i = 0; i < PART; i++) {
            const float level = (float)quantize_nearest(share[i] * place, kind->lowest,
                                                        kind->highest);
            product += share[i] * level;
            square += level * level;
        }
        const double gain = square > 0 ? (double)(product * product / square) : 0;
        if (gain > most && square > 0) {
            most = gain;
            best = (double)(product / square) * (double)first;
        }
    }
    return best;
}

/* Squared error of a part whose numbers are multiples of `scale`. */
static double part_error(const signed_kind *kind, const float *x, float scale)
{
    const float inverse = quantize_inverse(scale);
    double sum = 0;
    for (size_t i = 0; i < PART; i++) {
        const int quant = quantize_nearest(x[i] * inverse, kind->lowest, kind->highest);
        const double difference = x[i] - scale * (float)quant;
        sum += difference * difference;
    }
    return sum;
}

static double block_error(const signed_kind *kind, const float *x, const signed_scales *s)
{
    const float d = quantize_float(s->half);
    double sum = 0;
    for (size_t p = 0; p < PARTS; p++)
        sum += part_error(kind, x + p * PART, d * (float)s->scale[p]);
    return sum;
}

/* Step 2. */
static signed_scales search_block(const signed_kind *kind, const float *x)
{
    double real[PARTS], largest = 0;
    for (size_t p = 0; p < PARTS; p++) {
        real[p] = search_scale(kind, x + p * PART);
        const double size = real[p] < 0 ? -real[p] : real[p],
                     most = largest < 0 ? -largest : largest;
        largest = size > most ? real[p] : largest;
    }
    signed_scales best = {.half = 0};
    double least = block_error(kind, x, &best);
    for (int trial = 0; trial < 6 && largest != 0; trial++) {
        const int end = trial % 2 ? kind->scale_highest - trial / 2
                                  : kind->scale_lowest + trial / 2;
        signed_scales s = {.half = quantize_half(largest / end)};
        const float d = quantize_float(s.half);
        for (size_t p = 0; p < PARTS && d != 0; p++)
            s.scale[p] = quantize_nearest((float)(real[p] / d), kind->scale_lowest,
                                          kind->scale_highest);
        const double error = block_error(kind, x, &s);
        if (error < least) {
            least = error;
            best = s;
        }
    }
    return best;
}

/* The best integer for each part, given the block's scale. */
static void improve_parts(const signed_kind *kind, const float *x, signed_scales *s)
{
    const float d = quantize_float(s->half);
    for (size_t p = 0; p < PARTS; p++) {
        const int middle = s->scale[p];
        double least = part_error(kind, x + p * PART, d * (float)middle);
        for (int scale = middle - 1; scale <= middle + 1; scale += 2) {
            if (scale < kind->scale_lowest || scale > kind->scale_highest) continue;
            const double error = part_error(kind, x + p * PART, d * (float)scale);
            if (error < least) {
                least = error;
                s->scale[p] = scale;
            }
        }
    }
}

/* The block's scale that least squares say. */
static void improve_block(const signed_kind *kind, const float *x, signed_scales *s)
{
    const float d = quantize_float(s->half);
    double product = 0, square = 0;
    for (size_t i = 0; i < QUANTIZE_K; i++) {
        const int integer = s->scale[i / PART];
        const float scale = d * (float)integer;
        const int quant = quantize_nearest(x[i] * quantize_inverse(scale), kind->lowest,
                                           kind->highest);
        const double level = (double)integer * quant;
        product += x[i] * level;
        square += level * level;
    }
    if (square > 0) s->half = quantize_half(product / square);
}

/* All three steps; quants [256] are counted from the lowest. */
static signed_scales choose(const signed_kind *kind, const float *x, uint8_t *quants)
{
    signed_scales best = search_block(kind, x);
    double least = block_error(kind, x, &best);
    for (int round = 0; round < ROUNDS; round++) {
        signed_scales s = best;
        improve_parts(kind, x, &s);
        improve_block(kind, x, &s);
        const double error = block_error(kind, x, &s);
        if (!(error < least)) {
            s = best;
            improve_parts(kind, x, &s); /* which never makes it worse */
            best = s;
            break;
        }
        least = error;
        best = s;
    }
    const float d = quantize_float(best.half);
    for (size_t i = 0; i < QUANTIZE_K; i++) {
        const float scale = d * (float)best.scale[i / PART];
        const int quant = quantize_nearest(x[i] * quantize_inverse(scale), kind->lowest,
                                           kind->highest);
        quants[i] = (uint8_t)(quant - kind->lowest);
    }
    return best;
}

void quantize_block_q3_k(unsigned char *to, const float *x)
{
    uint8_t quants[QUANTIZE_K];
    const signed_scales s = choose(&q3_k, x, quants);
    memset(to, 0, 108);
    for (size_t i = 0; i < QUANTIZE_K; i++) {
        const size_t part = i / PART, l = i % PART;
        to[i % 32] |= (unsigned char)((quants[i] >> 2) << i / 32);
        to[32 + part / 8 * 32 + part % 2 * 16 + l] |= (unsigned char)((quants[i] & 3)
                                                                      << part % 8 / 2 * 2);
    }
    for (size_t p = 0; p < PARTS; p++) {
        const unsigned scale = (unsigned)(s.scale[p] + 32);
        to[96 + p % 8] |= (unsigned char)((scale & 15) << (p < 8 ? 0 : 4));
        to[104 + p % 4] |= (unsigned char)(scale >> 4 << 2 * (p / 4));
    }
    quantize_put_half(to + 108, s.half);
}

void quantize_block_q6_k(unsigned char *to, const float *x)
{
    uint8_t quants[QUANTIZE_K];
    const signed_scales s = choose(&q6_k, x, quants);
    memset(to, 0, 192);
    for (size_t i = 0; i < QUANTIZE_K; i++) {
        const size_t half = i / 128, q = i % 128 / 32, l = i % 32;
        to[half * 64 + q % 2 * 32 + l] |= (unsigned char)((quants[i] & 15) << q / 2 * 4);
        to[128 + half * 32 + l] |= (unsigned char)(quants[i] >> 4 << 2 * q);
    }
    for (size_t p = 0; p < PARTS; p++)
        to[192 + p] = (unsigned char)s.scale[p];
    quantize_put_half(to + 208, s.half);
}
