/*
 * quantize_offset.c: Q2_K, Q4_K and Q5_K: blocks of 256 numbers in parts, value = d * scale * quant
 * - m * offset, scales and offsets small integers >= 0.
 *
 * As in quantize_signed.c, from the inside out and then in turns:
 *   1. Each part by itself: quants for some ranges from narrower to wider than that of its numbers, and for
 *      these quants the line (scale, offset) of least squares, the offset not below 0.
 *   2. d and m such that the largest scale and offset are near the largest integer.
 *   3. In turns: each part takes the best of its two integers and those beside them, then d and m become
 *      what least squares say, as long as the error becomes smaller.
 */
#include "engine/quantize_pieces.h"

#define MOST_PARTS 16u
#define ROUNDS 3

/* What distinguishes the types. */
typedef struct offset_kind {
    size_t n_parts;   /* 16 or 8 */
    int highest;      /* quant */
    int most;         /* the parts' integers */
    float from, step; /* ranges of step 1, as multiples of `highest` */
    int n_trials, n_anchors;
} offset_kind;

static const offset_kind q2_k = {16, 3, 15, 0.8f, 0.08f, 9, 4};
static const offset_kind q4_k = {8, 15, 63, 0.92f, 0.04f, 9, 2};
static const offset_kind q5_k = {8, 31, 63, 0.96f, 0.02f, 9, 2};

/* As stored. */
typedef struct offset_scales {
    uint16_t d, m;
    int scale[MOST_PARTS], offset[MOST_PARTS];
} offset_scales;

/* value = scale * quant - offset */
typedef struct line {
    double scale, offset;
} line;

/* inverse: of the scale */
static inline int quant_of(const offset_kind *kind, float x, float inverse, float offset)
{
    return quantize_nearest((x + offset) * inverse, 0, kind->highest);
}

/* Squared error of n numbers on a line. */
static double part_error(const offset_kind *kind, const float *x, size_t n, float scale,
                         float offset)
{
    const float inverse = quantize_inverse(scale);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const float value = scale * (float)quant_of(kind, x[i], inverse, offset) - offset;
        const double difference = x[i] - value;
        sum += difference * difference;
    }
    return sum;
}

/* The line of least squares for the quants that (scale, offset) gives, its offset not below 0. */
static line fit(const offset_kind *kind, const float *x, size_t n, float scale, float offset)
{
    const float inverse = quantize_inverse(scale);
    double q_sum = 0, q_square = 0, x_sum = 0, product = 0;
    for (size_t i = 0; i < n; i++) {
        const double quant = quant_of(kind, x[i], inverse, offset);
        q_sum += quant;
        q_square += quant * quant;
        x_sum += x[i];
        product += x[i] * quant;
    }
    const double count = (double)n, determinant = count * q_square - q_sum * q_sum;
    line l = {0, 0};
    if (determinant > 0) {
        l.scale = (count * product - q_sum * x_sum) / determinant;
        l.offset = (l.scale * q_sum - x_sum) / count;
    }
    if (determinant <= 0 || l.offset < 0) {
        l.offset = 0;
        l.scale = q_square > 0 ? product / q_square : 0;
    }
    l.scale = l.scale > 0 ? l.scale : 0;
    return l;
}

/* Step 1. */
static line search_line(const offset_kind *kind, const float *x, size_t n)
{
    float low = 0, high = x[0]; /* an offset cannot lift a part above 0 */
    for (size_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    line best = {0, -(double)low};
    double least = part_error(kind, x, n, 0, -low);
    const double range = (double)high - (double)low, middle = ((double)high + (double)low) / 2;
    for (int trial = 0; range > 0 && trial < kind->n_trials; trial++) {
        const double levels = (double)(kind->from + kind->step * (float)trial) * kind->highest;
        line l = {range / levels, 0};
        l.offset = l.scale * kind->highest / 2 - middle;
        for (int again = 0; again < 2; again++) {
            l = fit(kind, x, n, (float)l.scale, (float)l.offset);
            const double error = part_error(kind, x, n, (float)l.scale, (float)l.offset);
            if (error < least) {
                least = error;
                best = l;
            }
        }
    }
    return best;
}

static double block_error(const offset_kind *kind, const float *x, const offset_scales *s)
{
    const size_t n = QUANTIZE_K / kind->n_parts;
    const float d = quantize_float(s->d), m = quantize_float(s->m);
    double sum = 0;
    for (size_t p = 0; p < kind->n_parts; p++)
        sum += part_error(kind, x + p * n, n, d * (float)s->scale[p], m * (float)s->offset[p]);
    return sum;
}

/* The integers nearest to the parts' lines for the block's d and m. */
static void round_lines(const offset_kind *kind, const line *lines, offset_scales *s)
{
    const double d = quantize_float(s->d), m = quantize_float(s->m);
    for (size_t p = 0; p < kind->n_parts; p++) {
        s->scale[p] = d > 0 ? quantize_nearest((float)(lines[p].scale / d), 0, kind->most) : 0;
        s->offset[p] = m > 0 ? quantize_nearest((float)(lines[p].offset / m), 0, kind->most) : 0;
    }
}

/* Step 2: the largest may also be an integer a little below the largest one. */
static offset_scales search_block(const offset_kind *kind, const float *x)
{
    const size_t n = QUANTIZE_K / kind->n_parts;
    line lines[MOST_PARTS] = {{0, 0}};
    double scale = 0, offset = 0;
    for (size_t p = 0; p < kind->n_parts; p++) {
        lines[p] = search_line(kind, x + p * n, n);
        scale = lines[p].scale > scale ? lines[p].scale : scale;
        offset = lines[p].offset > offset ? lines[p].offset : offset;
    }
    offset_scales best = {.d = 0, .m = 0};
    double least = block_error(kind, x, &best);
    for (int trial = 0; trial < kind->n_anchors * kind->n_anchors; trial++) {
        offset_scales s = {.d = quantize_half(scale / (kind->most - trial % kind->n_anchors)),
                           .m = quantize_half(offset / (kind->most - trial / kind->n_anchors))};
        round_lines(kind, lines, &s);
        const double error = block_error(kind, x, &s);
        if (error < least) {
            least = error;
            best = s;
        }
    }
    return best;
}

/* The best integers of one part, given d and m. */
static void improve_part(const offset_kind *kind, const float *x, size_t p, offset_scales *s)
{
    const size_t n = QUANTIZE_K / kind->n_parts;
    const float d = quantize_float(s->d), m = quantize_float(s->m);
    const int scale = s->scale[p], offset = s->offset[p];
    double least = part_error(kind, x + p * n, n, d * (float)scale, m * (float)offset);
    for (int way = 0; way < 9; way++) {
        const int a = scale + way % 3 - 1, b = offset + way / 3 - 1;
        if (a < 0 || b < 0 || a > kind->most || b > kind->most) continue;
        const double error = part_error(kind, x + p * n, n, d * (float)a, m * (float)b);
        if (error < least) {
            least = error;
            s->scale[p] = a;
            s->offset[p] = b;
        }
    }
}

/* d and m that least squares say: value = d * (scale * quant) - m * offset. */
static void improve_block(const offset_kind *kind, const float *x, offset_scales *s)
{
    const size_t n = QUANTIZE_K / kind->n_parts;
    const float d = quantize_float(s->d), m = quantize_float(s->m);
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (size_t i = 0; i < QUANTIZE_K; i++) {
        const int scale = s->scale[i / n], offset = s->offset[i / n];
        const double a = (double)scale * quant_of(kind, x[i], quantize_inverse(d * (float)scale),
                                                  m * (float)offset),
                     b = offset;
        aa += a * a;
        ab += a * b;
        bb += b * b;
        ax += a * x[i];
        bx += b * x[i];
    }
    const double determinant = aa * bb - ab * ab;
    double new_d = aa > 0 ? ax / aa : 0, new_m = 0;
    if (determinant > 0) {
        new_d = (ax * bb - ab * bx) / determinant;
        new_m = (ax * ab - aa * bx) / determinant;
    }
    if (new_d > 0 && new_m >= 0) {
        s->d = quantize_half(new_d);
        s->m = quantize_half(new_m);
    }
}

/* All three steps. */
static offset_scales choose(const offset_kind *kind, const float *x, uint8_t *quants)
{
    const size_t n = QUANTIZE_K / kind->n_parts;
    offset_scales best = search_block(kind, x);
    double least = block_error(kind, x, &best);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t p = 0; p < kind->n_parts; p++)
            improve_part(kind, x, p, &best); /* which never makes it worse */
        offset_scales s = best;
        improve_block(kind, x, &s);
        const double error = block_error(kind, x, &s);
        if (!(error < least)) break;
        least = error;
        best = s;
    }
    const float d = quantize_float(best.d), m = quantize_float(best.m);
    for (size_t i = 0; i < QUANTIZE_K; i++)
        quants[i] = (uint8_t)quant_of(kind, x[i], quantize_inverse(d * (float)best.scale[i / n]),
                                      m * (float)best.offset[i / n]);
    return best;
}

void quantize_block_q2_k(unsigned char *to, const float *x)
{
    uint8_t quants[QUANTIZE_K];
    const offset_scales s = choose(&q2_k, x, quants);
    memset(to, 0, 80);
    for (size_t p = 0; p < 16; p++)
        to[p] = (unsigned char)(s.scale[p] | s.offset[p] << 4);
    for (size_t i = 0; i < QUANTIZE_K; i++) {
        const size_t part = i / 16;
        to[16 + part / 8 * 32 + part % 2 * 16 + i % 16] |= (unsigned char)(quants[i]
                                                                           << part % 8 / 2 * 2);
    }
    quantize_put_half(to + 80, s.d);
    quantize_put_half(to + 82, s.m);
}

/* d, m, and eight scales and offsets of six bits each in twelve bytes. */
static void put_six_bits(unsigned char *to, const offset_scales *s)
{
    quantize_put_half(to, s->d);
    quantize_put_half(to + 2, s->m);
    unsigned char *packed = to + 4;
    for (size_t p = 0; p < 4; p++) {
        const int scale = s->scale[p + 4], offset = s->offset[p + 4];
        packed[p] = (unsigned char)(s->scale[p] | scale >> 4 << 6);
        packed[p + 4] = (unsigned char)(s->offset[p] | offset >> 4 << 6);
        packed[p + 8] = (unsigned char)((scale & 15) | (offset & 15) << 4);
    }
}

/* The low halves: a byte holds number l of an even part and of the odd part behind it. */
static void put_halves(unsigned char *to, const uint8_t *quants)
{
    for (size_t pair = 0; pair < 4; pair++)
        for (size_t l = 0; l < 32; l++)
            to[pair * 32 + l] = (unsigned char)((quants[pair * 64 + l] & 15) |
                                                (quants[pair * 64 + 32 + l] & 15) << 4);
}

void quantize_block_q4_k(unsigned char *to, const float *x)
{
    uint8_t quants[QUANTIZE_K];
    const offset_scales s = choose(&q4_k, x, quants);
    put_six_bits(to, &s);
    put_halves(to + 16, quants);
}

void quantize_block_q5_k(unsigned char *to, const float *x)
{
    uint8_t quants[QUANTIZE_K];
    const offset_scales s = choose(&q5_k, x, quants);
    put_six_bits(to, &s);
    memset(to + 16, 0, 32);
    for (size_t i = 0; i < QUANTIZE_K; i++)
        to[16 + i % 32] |= (unsigned char)(quants[i] >> 4 << i / 32);
    put_halves(to + 48, quants);
}
