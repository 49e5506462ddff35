/*
 * kernel_check_codecs.c: tests of the ways rows are stored.
 *
 * Decoding has one right answer, computed here in double from the layouts in docs/kernels.md.
 * Encoding is held to what it promises, again in double: the scale that fits the block, for every
 * number the nearest of all levels of its block, and so an error of at most half a step; NaN and
 * infinity make their block NaN. Then every byte is compared with what the scalar version makes of
 * that block alone, so neither the instruction set nor the company of other blocks matters.
 *
 * Stored rows lie at any address between forbidden pages; nothing is shared with the kernels.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST_LEVELS = 256 };

/* What is to be known about a quantised type. */
typedef struct type_facts {
    int zero, n_levels; /* level of quant q: q - zero; levels that an encoder uses */
    int has_offset, has_fifth;
} type_facts;

static const type_facts facts[CL_ROW_TYPES] = {
    [CL_ROW_Q4_0] = {8, 16, 0, 0},    [CL_ROW_Q4_1] = {0, 16, 1, 0},
    [CL_ROW_Q5_0] = {16, 32, 0, 1},   [CL_ROW_Q5_1] = {0, 32, 1, 1},
    [CL_ROW_Q8_0] = {127, 255, 0, 0}, [CL_ROW_IQ4_NL] = {0, 16, 0, 0},
};

static const int uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

static int type_of(const check *c)
{
    return (int)((c->test->offset - offsetof(cl_kernels, codec)) / sizeof(cl_row_codec));
}

static const cl_row_codec *codec_of(const check *c)
{
    return &c->kernels.codec[type_of(c)];
}

static double level_of(int type, int quant)
{
    return type == CL_ROW_IQ4_NL ? uneven[quant] : quant - facts[type].zero;
}

/* A block taken apart: the value of number l is d * level[l] + m. */
typedef struct block_parts {
    double d, m, level[32];
    uint16_t d_bits, m_bits;
} block_parts;

static block_parts parts_of(int type, const unsigned char *block)
{
    block_parts p = {0};
    memcpy(&p.d_bits, block, 2);
    p.d = true_half_value(p.d_bits);
    block += 2;
    if (facts[type].has_offset) {
        memcpy(&p.m_bits, block, 2);
        p.m = true_half_value(p.m_bits);
        block += 2;
    }
    const unsigned char *fifth = block;
    block += facts[type].has_fifth ? 4 : 0;
    for (int l = 0; l < 32; l++) {
        if (type == CL_ROW_Q8_0) {
            p.level[l] = (signed char)block[l];
            continue;
        }
        int quant = l < 16 ? block[l] % 16 : block[l - 16] / 16;
        if (facts[type].has_fifth) quant += 16 * (fifth[l / 8] >> l % 8 & 1);
        p.level[l] = level_of(type, quant);
    }
    return p;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* The size of a trial as a multiple of the block; 0 at the end. */
static size_t length_of_trial(check *c, size_t trial)
{
    const size_t n = size_of_trial(c, trial), block = codec_of(c)->block;
    return block == 1 ? n : trial < 70 ? (trial % 12 + 1) * block : (n + block - 1) / block * block;
}

static uint16_t random_scale(check *c)
{
    const uint16_t any = (uint16_t)random_bits(c);  /* NaN and infinity among them, */
    return random_below(c, 4) ? any & 0xbfff : any; /* but mostly below 2 */
}

static void fill_stored(check *c, unsigned char *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)random_bits(c);
    const size_t block = codec_of(c)->block_bytes;
    for (size_t i = 0; codec_of(c)->block > 1 && i < bytes; i += block) {
        const uint16_t scale = random_scale(c), offset = random_scale(c);
        memcpy(to + i, &scale, 2);
        if (facts[type_of(c)].has_offset) memcpy(to + i + 2, &offset, 2);
    }
}

static float true_plain(int type, const unsigned char *from)
{
    uint16_t half;
    uint32_t bits;
    float value;
    memcpy(&half, from, sizeof half);
    bits = (uint32_t)half << 16;
    memcpy(&value, type == CL_ROW_F32 ? (const void *)from : &bits, sizeof value);
    return type == CL_ROW_F16 ? (float)true_half_value(half) : value;
}

/* One rounding: products are exact, in f32 and all the more in double. */
static float true_number(int type, const unsigned char *from, size_t i)
{
    const block_parts p = parts_of(type, from);
    const double product = p.d * p.level[i];
    return (float)(facts[type].has_offset ? product + p.m : product);
}

static void check_decoded(check *c, const float *got, const unsigned char *from, size_t n)
{
    const cl_row_codec *codec = codec_of(c);
    for (size_t i = 0; i < n; i++) {
        const unsigned char *block = from + i / codec->block * codec->block_bytes;
        expect_same(c, got[i],
                    codec->block == 1 ? true_plain(type_of(c), block)
                                      : true_number(type_of(c), block, i % 32),
                    "number", n, i);
    }
}

static void decoding_is_exact(check *c)
{
    const cl_row_codec *codec = codec_of(c);
    for (size_t trial = 0, n; (n = length_of_trial(c, trial)) > 0; trial++) {
        const size_t bytes = n / codec->block * codec->block_bytes;
        begin(c);
        unsigned char *from = take(c, bytes, 1, INPUT);
        float *to = take_floats(c, n, OUTPUT);
        fill_stored(c, from, bytes);
        seal(c);
        codec->decode(to, from, 0);
        expect_untouched(c, to, n, "a row of no numbers");
        codec->decode(to, from, n);
        verify(c);
        check_decoded(c, to, from, n);
    }
}

/* ---- numbers to be encoded ------------------------------------------------------------------- */

static float any_float(check *c)
{
    const uint32_t bits = (uint32_t)random_bits(c);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float finite_float(check *c)
{
    const float value = any_float(c);
    return isfinite(value) ? value : 1;
}

/* Beyond fill_floats: what breaks scales and offsets. */
static void fill_difficult(check *c, float *to, size_t n)
{
    static const float special[] = {NAN, -NAN, INFINITY, -INFINITY};
    const size_t kind = random_below(c, 8);
    const float base = finite_float(c) * (kind == 2 ? 0x1p-100f : 1), near = base * 0x1p-14f;
    fill_floats(c, random_pattern(c), to, n);
    for (size_t i = 0; kind < 7 && i < n; i++) {
        if (kind == 0) to[i] = finite_float(c); /* of all magnitudes */
        if (kind == 1) to[i] = i % 2 ? FLT_MAX : -FLT_MAX;
        if (kind == 2 || kind == 3) to[i] = base + near * (float)random_unit(c);
        if (kind == 4) to[i] *= 0x1p-22f; /* scales are denormal halves, or 0 */
        if (kind == 5) to[i] *= 1e5f;     /* scales around the largest half */
        if (kind == 6) to[i] = (float)((int)random_below(c, 17) - 8) / 2; /* ties */
    }
    if (kind == 7 && n > 0) to[random_below(c, n)] = special[random_below(c, 4)];
}

static void fill_numbers(check *c, float *to, size_t n)
{
    if (random_below(c, 2)) {
        fill_floats(c, random_pattern(c), to, n);
        return;
    }
    for (size_t i = 0; i < n; i += 32)
        fill_difficult(c, to + i, n - i < 32 ? n - i : 32);
}

/* ---- encoding in blocks ---------------------------------------------------------------------- */

static double step_of_half(double x)
{
    return x == 0 || ilogb(x) < -14 ? 0x1p-24 : ldexp(1, ilogb(x) - 10);
}

/* d has to be the half nearest to range / levels, or the first that covers the range. */
static void check_scale(check *c, double d, double range, double levels)
{
    const double wanted = range / levels, step = step_of_half(d);
    if (wanted >= 65504) {
        if (d != 65504) check_fail(c, "scale %g for a range of %g: not the largest", d, range);
    } else if (fabs(d - wanted) > step / 2 + wanted * 0x1p-21) { /* f32 rounds the range, too */
        const int is_first = d > wanted && range > (levels + 0.5) * (d - step) * (1 - 0x1p-22);
        if (!is_first || d - wanted > step)
            check_fail(c, "scale %.9g for a range of %g: expected %.9g", d, range, wanted);
    }
}

/* Of all levels the nearest, up to `slack`; returns the error. */
static double check_nearest(check *c, const block_parts *p, double x, size_t l, double slack)
{
    const int type = type_of(c);
    const double error = fabs(x - (p->d * p->level[l] + p->m));
    for (int quant = 0; quant < facts[type].n_levels; quant++) {
        const double other = fabs(x - (p->d * level_of(type, quant) + p->m));
        if (other < error - slack)
            check_fail(c, "%a (number %zu, scale %a, offset %a) became level %g, not %g", x, l,
                       p->d, p->m, p->level[l], level_of(type, quant));
    }
    return error;
}

typedef struct range {
    double low, high, largest, first, squares; /* first: of the largest magnitude, with its sign */
} range;

static range range_of(const float *x)
{
    range r = {.low = x[0], .high = x[0]};
    for (size_t l = 0; l < 32; l++) {
        r.low = x[l] < r.low ? x[l] : r.low;
        r.high = x[l] > r.high ? x[l] : r.high;
        if (fabs((double)x[l]) > r.largest) {
            r.largest = fabs((double)x[l]);
            r.first = x[l];
        }
        r.squares += (double)x[l] * x[l];
    }
    return r;
}

/* Even levels around 0: half a step; the end that has one level less may miss one more. */
static void check_signed(check *c, const block_parts *p, const float *x, const range *r)
{
    const int type = type_of(c);
    const double levels = type == CL_ROW_Q8_0 ? 127 : facts[type].zero;
    check_scale(c, fabs(p->d), r->largest, levels);
    if (type != CL_ROW_Q8_0 && r->largest > 0 && (p->d < 0) != (r->first > 0))
        check_fail(c, "the largest number, %g, does not lie at the longer end", r->first);
    for (size_t l = 0; l < 32; l++) {
        const double slack = 0x1p-50 * (fabs((double)x[l]) + fabs(p->d));
        const double error = check_nearest(c, p, x[l], l, slack);
        const int is_short_end = type != CL_ROW_Q8_0 && (x[l] > 0) != (r->first > 0);
        const double bound = fabs(p->d) * (is_short_end ? 1.5 : 0.5);
        if (fabs(p->d) < 65504 && error > bound * (1 + 0x1p-40))
            check_fail(c, "%a is off by %g where %g is allowed", (double)x[l], error, bound);
    }
}

static void check_offset(check *c, const block_parts *p, const float *x, const range *r)
{
    const double limit = 65504, low = fmin(fmax(r->low, -limit), limit);
    const double next =
        true_half_value((uint16_t)(p->m_bits & 0x8000 ? p->m_bits - 1 : p->m_bits + 1));
    if (!(p->m <= low && (next > low || p->m == limit)))
        check_fail(c, "offset %a for numbers from %a on", p->m, r->low);
    check_scale(c, p->d, fmax(r->high - p->m, 0), facts[type_of(c)].n_levels - 1);
    for (size_t l = 0; l < 32; l++) {
        /* x - m and its quotient are rounded. */
        const double slack = 0x1p-22 * fabs(x[l] - p->m) + 0x1p-50 * fabs(p->m);
        const double error = check_nearest(c, p, x[l], l, slack);
        if (p->d < limit && r->low >= -limit && error > p->d / 2 + slack)
            check_fail(c, "%a is off by %g where %g is allowed", (double)x[l], error, p->d / 2);
    }
}

/* The sum of squared errors if the largest number were level -127 exactly, with no rounding. */
static double plain_error(const float *x, double first)
{
    double sum = 0;
    for (size_t l = 0; l < 32; l++) {
        double best = INFINITY;
        for (size_t i = 0; i < 16; i++) {
            const double error = fabs(x[l] + first / 127 * uneven[i]);
            if (error < best) best = error; /* gcc 12 for AArch64 cannot compile fmin() here */
        }
        sum += best * best;
    }
    return sum;
}

/*
 * The search never does worse than the plain scale, up to its own roundings: 12 in each of the two
 * factors of a gain, which is at most the sum of squares, and the scale's own to 11 bits.
 */
static void check_uneven(check *c, const block_parts *p, const float *x, const range *r)
{
    double sum = 0;
    for (size_t l = 0; l < 32; l++) {
        const double slack = 0x1p-50 * (fabs((double)x[l]) + fabs(p->d));
        const double error = check_nearest(c, p, x[l], l, slack);
        sum += error * error;
        if (fabs(p->d) < 0x1p-14 && error > 14.5 * fabs(p->d)) /* 127.5 at the end that has 113 */
            check_fail(c, "%a is off by %g, scale %g", (double)x[l], error, p->d);
    }
    const double allowed = plain_error(x, r->first) + (2 * gamma_of(24) + 0x1p-22) * r->squares;
    const int is_searched = r->largest > 127 * 0x1p-12 && r->largest < 127 * 0x1p15;
    if (is_searched && sum > allowed)
        check_fail(c, "squared errors of %g, %g by the plain scale", sum, allowed);
}

static void check_block(check *c, const unsigned char *block, const float *x)
{
    const int type = type_of(c);
    const block_parts p = parts_of(type, block);
    int is_finite = 1;
    for (size_t l = 0; l < 32; l++)
        is_finite &= isfinite(x[l]) != 0;
    if (!is_finite) {
        if (!isnan(p.d)) check_fail(c, "a NaN or an infinity left the scale %g", p.d);
        return;
    }
    if (!isfinite(p.d) || !isfinite(p.m))
        check_fail(c, "finite numbers, but scale %g and offset %g", p.d, p.m);
    const range r = range_of(x);
    if (facts[type].has_offset)
        check_offset(c, &p, x, &r);
    else if (type == CL_ROW_IQ4_NL)
        check_uneven(c, &p, x, &r);
    else
        check_signed(c, &p, x, &r);
}

/* ---- encoding number by number --------------------------------------------------------------- */

/* |x| rounded to `bits` fractional bits, the smallest exponent being `lowest`; ties to even. */
static double rounded(double x, int bits, int lowest, double infinite)
{
    if (x == 0 || isinf(x)) return x;
    const int exponent = ilogb(x) < lowest ? lowest : ilogb(x);
    const double value = ldexp(rint(ldexp(x, bits - exponent)), exponent - bits);
    return fabs(value) >= infinite ? copysign(INFINITY, x) : value;
}

static void check_plain(check *c, const unsigned char *to, float x)
{
    const int type = type_of(c);
    const float got = true_plain(type, to);
    const double expected = type == CL_ROW_F32   ? (double)x
                            : type == CL_ROW_F16 ? rounded(x, 10, -14, 65536)
                                                 : rounded(x, 7, -126, 0x1p128);
    const int is_negative = to[codec_of(c)->block_bytes - 1] >> 7;
    if (is_negative != !!signbit(x) || (isnan(x) ? !isnan(got) : (double)got != expected))
        check_fail(c, "%a became %a, expected %a", (double)x, (double)got, expected);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void check_row(check *c, const float *x, size_t n)
{
    const cl_row_codec *codec = codec_of(c), *scalar = &c->scalar_kernels.codec[type_of(c)];
    const size_t bytes = n / codec->block * codec->block_bytes;
    begin(c);
    float *from = take_floats(c, n, INPUT);
    unsigned char *to = take(c, bytes, 1, OUTPUT), expected[64];
    if (n > 0) memcpy(from, x, n * sizeof *from);
    seal(c);
    codec->encode(to, from, n);
    verify(c);
    for (size_t i = 0; i < n; i += codec->block) {
        unsigned char *block = to + i / codec->block * codec->block_bytes;
        if (codec->block == 1)
            check_plain(c, block, from[i]);
        else
            check_block(c, block, from + i);
        scalar->encode(expected, from + i, codec->block);
        for (size_t b = 0; b < codec->block_bytes; b++)
            if (block[b] != expected[b])
                check_fail(c, "block %zu of %zu, byte %zu: %02x, alone and scalar it is %02x",
                           i / codec->block, n / codec->block, b, block[b], expected[b]);
    }
}

static void encoding_is_nearest(check *c)
{
    static float x[8192];
    check_row(c, x, 0);
    for (unsigned round = 0; round < (c->is_quick ? 2 : 8); round++)
        for (size_t trial = 0, n; (n = length_of_trial(c, trial)) > 0; trial++) {
            fill_numbers(c, x, n);
            check_row(c, x, n);
        }
}

/* A comb through all floats; all of them only where each stands for itself. */
static void all_kinds_of_floats_are_taken(check *c)
{
    enum { N = 1024 };
    static float x[N];
    const uint32_t finest = codec_of(c)->block == 1 ? 1 : 2003;
    const uint32_t stride = c->is_exhaustive ? finest : c->is_quick ? 400009 : 20011;
    uint64_t next = random_below(c, stride);
    while (next <= UINT32_MAX) {
        for (size_t i = 0; i < N; i++, next += stride) {
            const uint32_t bits = (uint32_t)next;
            memcpy(x + i, &bits, sizeof bits);
        }
        check_row(c, x, N);
    }
}

/* What was decoded is stored as the same numbers again: scales that fit do not drift. */
static void stored_rows_stay_what_they_are(check *c)
{
    static float x[256], once[256], twice[256];
    unsigned char stored[256 * 4];
    const cl_row_codec *codec = codec_of(c);
    for (unsigned trial = 0; trial < 500; trial++) {
        fill_floats(c, NORMAL, x, 256);
        codec->encode(stored, x, 256);
        codec->decode(once, stored, 256);
        codec->encode(stored, once, 256);
        codec->decode(twice, stored, 256);
        for (size_t i = 0; i < 256; i++)
            expect_same(c, twice[i], once[i], "number", 256, i);
    }
}

#define MEMBER(name, upper, member)                                                                \
    .kernel = #member "_row_" name, .offset = offsetof(cl_kernels, codec[CL_ROW_##upper].member),  \
    .type = -1
#define TESTS(name, upper)                                                                         \
    {MEMBER(name, upper, decode), .aspect = "is exact", .run = decoding_is_exact},                 \
        {MEMBER(name, upper, encode), .aspect = "takes the nearest levels of a fitting scale",     \
         .run = encoding_is_nearest},                                                              \
    {                                                                                              \
        MEMBER(name, upper, encode), .aspect = "takes all kinds of floats",                        \
                                     .run = all_kinds_of_floats_are_taken                          \
    }
#define STAYS(name, upper)                                                                         \
    {                                                                                              \
        MEMBER(name, upper, encode), .aspect = "stores decoded rows as what they are",             \
                                     .run = stored_rows_stay_what_they_are                         \
    }

const test codec_tests[] = {
    TESTS("f32", F32),       TESTS("f16", F16),   TESTS("bf16", BF16), TESTS("q8_0", Q8_0),
    TESTS("q5_1", Q5_1),     TESTS("q5_0", Q5_0), TESTS("q4_1", Q4_1), TESTS("q4_0", Q4_0),
    TESTS("iq4_nl", IQ4_NL), STAYS("f32", F32),   STAYS("f16", F16),   STAYS("bf16", BF16),
    STAYS("q8_0", Q8_0),     STAYS("q5_0", Q5_0), STAYS("q4_0", Q4_0),
};
const size_t n_codec_tests = sizeof codec_tests / sizeof *codec_tests;
