/*
 * quants_avx2.c: rows in blocks of 32 small integers with a scale, a block in four registers.
 *
 * Steps, order and bits are those of quants_scalar.c, which says why they are what they are: the
 * same divisions, roundings to nearest, and sums in eight lanes without fusing. Only the extremes
 * of a block are found in another order, which does not matter for whole numbers; a zero of either
 * sign is made +0 where a sign would be stored. Nothing here fails.
 */
#include "kernels.h"

#include <string.h>

#include "lanes_avx2.h"
#include "quants.h"

enum { VECTORS = QUANTS / LANES };

/* ---- halves ---------------------------------------------------------------------------------- */

ALWAYS_INLINE void put_half(unsigned char *to, uint16_t half)
{
    memcpy(to, &half, sizeof half);
}

ALWAYS_INLINE float float_of_half(uint16_t half)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

ALWAYS_INLINE __m256 load_scale(const unsigned char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

ALWAYS_INLINE uint16_t half_nearest(float x)
{
    return (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT));
}

/* ---- a block of numbers ---------------------------------------------------------------------- */

ALWAYS_INLINE void load_numbers(__m256 *x, const float *from)
{
    foreach(v, VECTORS)
        x[v] = _mm256_loadu_ps(from + LANES * v);
}

ALWAYS_INLINE __m256i bits_of_size(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

/* The bits of the largest magnitude; as whole numbers, NaN is the largest of all. */
ALWAYS_INLINE int32_t largest_bits(const __m256 *x)
{
    __m256i most = _mm256_setzero_si256();
    foreach(v, VECTORS)
        most = _mm256_max_epi32(most, bits_of_size(x[v]));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtsi128_si32(four);
}

ALWAYS_INLINE float float_of_bits(int32_t bits)
{
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

/* The first number of the magnitude that has these bits. */
ALWAYS_INLINE float first_of_bits(const __m256 *x, const float *from, int32_t bits)
{
    const __m256i wanted = _mm256_set1_epi32(bits);
    uint32_t found = 0;
    foreach(v, VECTORS) {
        const __m256i is_equal = _mm256_cmpeq_epi32(bits_of_size(x[v]), wanted);
        found |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_equal)) << (LANES * v);
    }
    return from[__builtin_ctz(found)];
}

ALWAYS_INLINE float lanes_smallest(__m256 x)
{
    __m128 four = _mm_min_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_min_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_min_ss(four, _mm_movehdup_ps(four)));
}

ALWAYS_INLINE float lanes_largest(__m256 x)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

/* ---- quants ---------------------------------------------------------------------------------- */

/* Packing works on the two halves of a register apart; this puts groups of four in order. */
ALWAYS_INLINE __m256i in_order(__m256i packed)
{
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The whole numbers nearest to x / d, within the limits, as 32 bytes. */
ALWAYS_INLINE __m256i nearest_within(const __m256 *x, float d, float lowest, float highest)
{
    const __m256 divisor = _mm256_set1_ps(d);
    const __m256 low = _mm256_set1_ps(lowest), high = _mm256_set1_ps(highest);
    __m256i whole[VECTORS];
    foreach(v, VECTORS) {
        const __m256 quotient = _mm256_div_ps(x[v], divisor);
        whole[v] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(quotient, low), high));
    }
    return in_order(_mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]),
                                       _mm256_packs_epi32(whole[2], whole[3])));
}

/* Four-bit quants, two to a byte; of a fifth bit there are 32 in a word before them. */
ALWAYS_INLINE void put_quants(unsigned char *to, __m256i quants, int has_fifth)
{
    if (has_fifth) { /* bit 4 of each byte becomes its highest */
        const int fifth = _mm256_movemask_epi8(_mm256_slli_epi16(quants, 3));
        memcpy(to, &fifth, sizeof fifth);
        to += sizeof fifth;
    }
    const __m256i four = _mm256_and_si256(quants, _mm256_set1_epi8(15));
    const __m128i upper = _mm_slli_epi16(_mm256_extracti128_si256(four, 1), 4);
    _mm_storeu_si128((__m128i *)(void *)to, _mm_or_si128(_mm256_castsi256_si128(four), upper));
}

ALWAYS_INLINE __m256i get_quants(const unsigned char *from, int has_fifth)
{
    __m256i fifth = _mm256_setzero_si256();
    if (has_fifth) { /* each byte gets the eight bits its own is among, then all but its own go */
        int32_t word;
        memcpy(&word, from, sizeof word);
        from += sizeof word;
        const __m256i its_byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                                    0x0303030303030303);
        const __m256i its_bit = _mm256_set1_epi64x((long long)0x8040201008040201);
        const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(word), its_byte);
        const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, its_bit), its_bit);
        fifth = _mm256_and_si256(is_set, _mm256_set1_epi8(16));
    }
    const __m128i pairs = _mm_loadu_si128((const __m128i *)(const void *)from);
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(pairs, 4), pairs);
    return _mm256_or_si256(_mm256_and_si256(both, _mm256_set1_epi8(15)), fifth);
}

/* Signed bytes 8 v .. 8 v + 7 as floats. */
ALWAYS_INLINE __m256 levels_of(__m256i bytes, int v)
{
    const __m128i half = v < 2 ? _mm256_castsi256_si128(bytes) : _mm256_extracti128_si256(bytes, 1);
    const __m128i eight = v % 2 ? _mm_srli_si128(half, 8) : half;
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
}

/* ---- choosing scales ------------------------------------------------------------------------- */

ALWAYS_INLINE void put_nothing(unsigned char *block, size_t bytes)
{
    memset(block, 0, bytes);
    put_half(block, HALF_NAN);
}

/* See quants_scalar.c. */
ALWAYS_INLINE uint16_t scale_for(float range, float levels)
{
    const float most = levels * LARGEST_HALF;
    const float covered = range < most ? range : most;
    const uint16_t half = half_nearest(covered / levels);
    const int is_short = covered > (levels + 0.5f) * float_of_half(half);
    return (uint16_t)(half + is_short);
}

ALWAYS_INLINE uint16_t half_below(float x)
{
    const float inside = x < -LARGEST_HALF ? -LARGEST_HALF : x > LARGEST_HALF ? LARGEST_HALF : x;
    return (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(inside), _MM_FROUND_TO_NEG_INF));
}

/* ---- Q8_0 ------------------------------------------------------------------------------------ */

static void encode_q8_0(void *to, const float *from, size_t n)
{
    unsigned char *block = to;
    for (size_t i = 0; i < n; i += QUANTS, block += 34) {
        __m256 x[VECTORS];
        load_numbers(x, from + i);
        const int32_t largest = largest_bits(x);
        if (largest >= INFINITE_BITS) {
            put_nothing(block, 34);
            continue;
        }
        const uint16_t scale = scale_for(float_of_bits(largest), 127);
        const __m256i quants = largest ? nearest_within(x, float_of_half(scale), -127, 127)
                                       : _mm256_setzero_si256();
        put_half(block, scale);
        _mm256_storeu_si256((__m256i *)(void *)(block + 2), quants);
    }
}

static void decode_q8_0(float *to, const void *from, size_t n)
{
    const unsigned char *block = from;
    for (size_t i = 0; i < n; i += QUANTS, block += 34) {
        const __m256 d = load_scale(block);
        foreach(v, VECTORS) {
            const void *eight = block + 2 + LANES * v;
            const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)eight));
            _mm256_storeu_ps(to + i + LANES * v, _mm256_mul_ps(d, _mm256_cvtepi32_ps(whole)));
        }
    }
}

/* ---- Q4_0, Q5_0 ------------------------------------------------------------------------------ */

ALWAYS_INLINE void encode_signed(unsigned char *block, const float *from, int zero, int has_fifth,
                                 size_t block_bytes)
{
    __m256 x[VECTORS];
    load_numbers(x, from);
    const int32_t largest = largest_bits(x);
    if (largest >= INFINITE_BITS) {
        put_nothing(block, block_bytes);
        return;
    }
    const uint16_t sign = first_of_bits(x, from, largest) > 0 ? 0x8000 : 0;
    const uint16_t scale = scale_for(float_of_bits(largest), (float)zero) | sign;
    const __m256i levels = largest ? nearest_within(x, float_of_half(scale), (float)-zero,
                                                    (float)(zero - 1))
                                   : _mm256_setzero_si256();
    put_half(block, scale);
    put_quants(block + 2, _mm256_add_epi8(levels, _mm256_set1_epi8((char)zero)), has_fifth);
}

ALWAYS_INLINE void decode_signed(float *to, const unsigned char *block, int zero, int has_fifth)
{
    const __m256 d = load_scale(block);
    const __m256i quants = get_quants(block + 2, has_fifth);
    const __m256i levels = _mm256_sub_epi8(quants, _mm256_set1_epi8((char)zero));
    foreach(v, VECTORS)
        _mm256_storeu_ps(to + LANES * v, _mm256_mul_ps(d, levels_of(levels, v)));
}

/* ---- Q4_1, Q5_1 ------------------------------------------------------------------------------ */

ALWAYS_INLINE void encode_offset(unsigned char *block, const float *from, int highest,
                                 int has_fifth, size_t block_bytes)
{
    __m256 x[VECTORS];
    load_numbers(x, from);
    if (largest_bits(x) >= INFINITE_BITS) {
        put_nothing(block, block_bytes);
        return;
    }
    const __m256 lows = _mm256_min_ps(_mm256_min_ps(x[0], x[1]), _mm256_min_ps(x[2], x[3]));
    const __m256 highs = _mm256_max_ps(_mm256_max_ps(x[0], x[1]), _mm256_max_ps(x[2], x[3]));
    const float low = lanes_smallest(lows), high = lanes_largest(highs);
    const uint16_t offset = half_below(low + 0.0f); /* -0 becomes 0 */
    const float m = float_of_half(offset);
    const uint16_t scale = scale_for(high > m ? high - m : 0, (float)highest);
    foreach(v, VECTORS)
        x[v] = _mm256_sub_ps(x[v], _mm256_set1_ps(m));
    const __m256i quants = scale ? nearest_within(x, float_of_half(scale), 0, (float)highest)
                                 : _mm256_setzero_si256();
    put_half(block, scale);
    put_half(block + 2, offset);
    put_quants(block + 4, quants, has_fifth);
}

ALWAYS_INLINE void decode_offset(float *to, const unsigned char *block, int has_fifth)
{
    const __m256 d = load_scale(block), m = load_scale(block + 2);
    const __m256i quants = get_quants(block + 4, has_fifth);
    foreach(v, VECTORS)
        _mm256_storeu_ps(to + LANES * v, _mm256_add_ps(_mm256_mul_ps(d, levels_of(quants, v)), m));
}

/* ---- IQ4_NL ---------------------------------------------------------------------------------- */

ALWAYS_INLINE __m256i nonlinear_levels_of(__m256i quants)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)(const void *)nonlinear_levels);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), quants);
}

/*
 * The indices of the levels nearest to x, as 32 bytes: how many borders are below it. Borders are
 * whole numbers, so 2 x is above one exactly if 2 x rounded up is.
 */
ALWAYS_INLINE __m256i nonlinear_nearest(const __m256 *x)
{
    const __m256 low = _mm256_set1_ps(-256), high = _mm256_set1_ps(256);
    __m256i twice[VECTORS], counts[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    foreach(v, VECTORS) {
        const __m256 inside = _mm256_min_ps(_mm256_max_ps(_mm256_add_ps(x[v], x[v]), low), high);
        twice[v] = _mm256_cvtps_epi32(_mm256_ceil_ps(inside));
    }
    const __m256i words[2] = {_mm256_packs_epi32(twice[0], twice[1]),
                              _mm256_packs_epi32(twice[2], twice[3])};
    foreach(b, 15) {
        const __m256i border = _mm256_set1_epi16(nonlinear_borders[b]);
        foreach(w, 2)
            counts[w] = _mm256_sub_epi16(counts[w], _mm256_cmpgt_epi16(words[w], border));
    }
    return in_order(_mm256_packs_epi16(counts[0], counts[1]));
}

/* See quants_scalar.c. */
static float nonlinear_scale(const __m256 *x, float first)
{
    __m256 share[VECTORS];
    foreach(v, VECTORS)
        share[v] = _mm256_div_ps(x[v], _mm256_set1_ps(first));
    float most = -1, best = 0;
    for (size_t trial = 0; trial < NONLINEAR_TRIALS; trial++) {
        const __m256 factor = _mm256_set1_ps(nonlinear_trials[trial]);
        __m256 scaled[VECTORS], products = _mm256_setzero_ps(), squares = products;
        foreach(v, VECTORS)
            scaled[v] = _mm256_mul_ps(share[v], factor);
        const __m256i levels = nonlinear_levels_of(nonlinear_nearest(scaled));
        foreach(v, VECTORS) {
            const __m256 level = levels_of(levels, v);
            products = _mm256_add_ps(products, _mm256_mul_ps(share[v], level));
            squares = _mm256_add_ps(squares, _mm256_mul_ps(level, level));
        }
        const float product = lanes_sum(products), square = lanes_sum(squares);
        const float gain = product * product / square, scale = product / square * first;
        if (gain > most && is_normal_half(scale)) {
            most = gain;
            best = scale;
        }
    }
    return best;
}

static void encode_iq4_nl_block(unsigned char *block, const float *from)
{
    __m256 x[VECTORS];
    load_numbers(x, from);
    const int32_t largest = largest_bits(x);
    if (largest >= INFINITE_BITS) {
        put_nothing(block, 18);
        return;
    }
    if (largest == 0) {
        memset(block, NONLINEAR_ONE | NONLINEAR_ONE << 4, 18);
        put_half(block, 0);
        return;
    }
    const float first = first_of_bits(x, from, largest), searched = nonlinear_scale(x, first);
    const uint16_t sign = first > 0 ? 0x8000 : 0;
    const uint16_t scale = searched != 0 ? half_nearest(searched)
                                         : scale_for(float_of_bits(largest), 127) | sign;
    const __m256 d = _mm256_set1_ps(float_of_half(scale));
    foreach(v, VECTORS)
        x[v] = _mm256_div_ps(x[v], d);
    put_half(block, scale);
    put_quants(block + 2, nonlinear_nearest(x), 0);
}

ALWAYS_INLINE void decode_iq4_nl_block(float *to, const unsigned char *block)
{
    const __m256 d = load_scale(block);
    const __m256i levels = nonlinear_levels_of(get_quants(block + 2, 0));
    foreach(v, VECTORS)
        _mm256_storeu_ps(to + LANES * v, _mm256_mul_ps(d, levels_of(levels, v)));
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The functions of a type with two to a byte, from those of a block. */
#define ROWS_OF(name, bytes, encode_block, decode_block)                                           \
    static void encode_##name(void *to, const float *from, size_t n)                               \
    {                                                                                              \
        unsigned char *block = to;                                                                 \
        for (size_t i = 0; i < n; i += QUANTS, block += (bytes))                                   \
            encode_block;                                                                          \
    }                                                                                              \
    static void decode_##name(float *to, const void *from, size_t n)                               \
    {                                                                                              \
        const unsigned char *block = from;                                                         \
        for (size_t i = 0; i < n; i += QUANTS, block += (bytes))                                   \
            decode_block;                                                                          \
    }

ROWS_OF(q4_0, 18, encode_signed(block, from + i, 8, 0, 18), decode_signed(to + i, block, 8, 0))
ROWS_OF(q5_0, 22, encode_signed(block, from + i, 16, 1, 22), decode_signed(to + i, block, 16, 1))
ROWS_OF(q4_1, 20, encode_offset(block, from + i, 15, 0, 20), decode_offset(to + i, block, 0))
ROWS_OF(q5_1, 24, encode_offset(block, from + i, 31, 1, 24), decode_offset(to + i, block, 1))
ROWS_OF(iq4_nl, 18, encode_iq4_nl_block(block, from + i), decode_iq4_nl_block(to + i, block))

void cl_quants_fill_avx2(cl_kernels *table)
{
    table->codec[CL_ROW_Q4_0] = (cl_row_codec){QUANTS, 18, encode_q4_0, decode_q4_0};
    table->codec[CL_ROW_Q4_1] = (cl_row_codec){QUANTS, 20, encode_q4_1, decode_q4_1};
    table->codec[CL_ROW_Q5_0] = (cl_row_codec){QUANTS, 22, encode_q5_0, decode_q5_0};
    table->codec[CL_ROW_Q5_1] = (cl_row_codec){QUANTS, 24, encode_q5_1, decode_q5_1};
    table->codec[CL_ROW_Q8_0] = (cl_row_codec){QUANTS, 34, encode_q8_0, decode_q8_0};
    table->codec[CL_ROW_IQ4_NL] = (cl_row_codec){QUANTS, 18, encode_iq4_nl, decode_iq4_nl};
}
