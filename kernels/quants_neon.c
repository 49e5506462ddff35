/*
 * quants_neon.c: rows in blocks of 32 small integers with a scale, a block in eight registers.
 *
 * Steps, order and bits are those of quants_scalar.c, which says why they are what they are: the same
 * divisions and roundings to nearest. Only the extremes of a block are found in another order, which does
 * not matter for whole numbers; a zero of either sign is made +0 where a sign would be stored. IQ4_NL is
 * encoded by the scalar version, a search; it is decoded here. Nothing here fails.
 */
#include "kernels.h"

#include "half.h"
#include "quants_neon.h"

enum { FOURS = QUANTS / FOUR };

/* ---- halves ---------------------------------------------------------------------------------- */

ALWAYS_INLINE void put_half(unsigned char *to, uint16_t half)
{
    memcpy(to, &half, sizeof half);
}

ALWAYS_INLINE float float_of_half(uint16_t half)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}

ALWAYS_INLINE uint16_t half_nearest(float x)
{
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}

/* ---- a block of numbers ---------------------------------------------------------------------- */

ALWAYS_INLINE void load_numbers(float32x4_t x[FOURS], const float *from)
{
    foreach(v, FOURS)
        x[v] = vld1q_f32(from + FOUR * v);
}

ALWAYS_INLINE uint32x4_t bits_of_size(float32x4_t x)
{
    return vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x7fffffff));
}

/* The bits of the largest magnitude; as whole numbers, NaN is the largest of all. */
ALWAYS_INLINE uint32_t largest_bits(const float32x4_t x[FOURS])
{
    uint32x4_t most = vdupq_n_u32(0);
    foreach(v, FOURS)
        most = vmaxq_u32(most, bits_of_size(x[v]));
    return vmaxvq_u32(most);
}

/* The first number of the magnitude that has these bits. */
ALWAYS_INLINE float first_of_bits(const float32x4_t x[FOURS], const float *from, uint32_t bits)
{
    const uint32x4_t wanted = vdupq_n_u32(bits);
    foreach(v, FOURS / 2) {
        const uint16x4_t low = vmovn_u32(vceqq_u32(bits_of_size(x[2 * v]), wanted));
        const uint16x4_t high = vmovn_u32(vceqq_u32(bits_of_size(x[2 * v + 1]), wanted));
        const uint8x8_t found = vmovn_u16(vcombine_u16(low, high));
        const uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(found), 0);
        if (mask != 0) return from[LANES * v + __builtin_ctzll(mask) / 8];
    }
    return from[0]; /* not reached: some number has them */
}

/* ---- quants ---------------------------------------------------------------------------------- */

/* The whole numbers nearest to x / d, ties to even, within the limits, as 32 bytes. */
ALWAYS_INLINE void nearest_within(int8x16_t to[2], const float32x4_t x[FOURS], float d,
                                  float lowest, float highest)
{
    const float32x4_t divisor = vdupq_n_f32(d);
    const float32x4_t low = vdupq_n_f32(lowest), high = vdupq_n_f32(highest);
    int16x4_t whole[FOURS];
    foreach(v, FOURS) {
        const float32x4_t quotient = vdivq_f32(x[v], divisor);
        whole[v] = vmovn_s32(vcvtnq_s32_f32(vminq_f32(vmaxq_f32(quotient, low), high)));
    }
    foreach(half, 2) {
        const int16x4_t *const four = whole + 4 * half;
        to[half] = vcombine_s8(vmovn_s16(vcombine_s16(four[0], four[1])),
                               vmovn_s16(vcombine_s16(four[2], four[3])));
    }
}

/* In each eight bytes, bit i stands for byte i. */
ALWAYS_INLINE uint8x16_t bit_of_byte(void)
{
    return vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
}

/* Four-bit quants, two to a byte; of a fifth bit there are 32 in a word before them. */
ALWAYS_INLINE void put_quants(unsigned char *to, const uint8x16_t quants[2], int has_fifth)
{
    if (has_fifth) {
        foreach(half, 2) {
            const uint8x16_t is_set = vtstq_u8(quants[half], vdupq_n_u8(16));
            const uint8x16_t bits = vandq_u8(is_set, bit_of_byte());
            to[2 * half] = vaddv_u8(vget_low_u8(bits));
            to[2 * half + 1] = vaddv_u8(vget_high_u8(bits));
        }
        to += 4;
    }
    const uint8x16_t low = vandq_u8(quants[0], vdupq_n_u8(15));
    vst1q_u8(to, vorrq_u8(low, vshlq_n_u8(quants[1], 4)));
}

ALWAYS_INLINE void get_quants(uint8x16_t quants[2], const unsigned char *from, int has_fifth)
{
    const uint8x16_t pairs = vld1q_u8(from + (has_fifth ? 4 : 0));
    quants[0] = vandq_u8(pairs, vdupq_n_u8(15));
    quants[1] = vshrq_n_u8(pairs, 4);
    if (!has_fifth) return;
    foreach(half, 2) { /* each byte gets the eight bits its own is among, then all but its own go */
        const uint8x16_t bits = vcombine_u8(vdup_n_u8(from[2 * half]),
                                            vdup_n_u8(from[2 * half + 1]));
        const uint8x16_t is_set = vtstq_u8(bits, bit_of_byte());
        quants[half] = vorrq_u8(quants[half], vandq_u8(is_set, vdupq_n_u8(16)));
    }
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
    const uint16_t half = half_nearest(inside);
    if (float_of_half(half) <= inside) return half;
    return (uint16_t)(half & 0x8000 ? half + 1 : half - 1);
}

/* ---- Q8_0 ------------------------------------------------------------------------------------ */

static void encode_q8_0(void *to, const float *from, size_t n)
{
    unsigned char *block = to;
    for (size_t i = 0; i < n; i += QUANTS, block += 34) {
        float32x4_t x[FOURS];
        load_numbers(x, from + i);
        const uint32_t largest = largest_bits(x);
        if (largest >= INFINITE_BITS) {
            put_nothing(block, 34);
            continue;
        }
        const uint16_t scale = scale_for(float_from_bits(largest), 127);
        int8x16_t quants[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
        if (largest) nearest_within(quants, x, float_of_half(scale), -127, 127);
        put_half(block, scale);
        vst1q_u8(block + 2, vreinterpretq_u8_s8(quants[0]));
        vst1q_u8(block + 18, vreinterpretq_u8_s8(quants[1]));
    }
}

/* ---- Q4_0, Q5_0 ------------------------------------------------------------------------------ */

ALWAYS_INLINE void encode_signed(unsigned char *block, const float *from, int zero, int has_fifth,
                                 size_t block_bytes)
{
    float32x4_t x[FOURS];
    load_numbers(x, from);
    const uint32_t largest = largest_bits(x);
    if (largest >= INFINITE_BITS) {
        put_nothing(block, block_bytes);
        return;
    }
    const uint16_t sign = first_of_bits(x, from, largest) > 0 ? 0x8000 : 0;
    const uint16_t scale = scale_for(float_from_bits(largest), (float)zero) | sign;
    int8x16_t levels[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
    if (largest) nearest_within(levels, x, float_of_half(scale), (float)-zero, (float)(zero - 1));
    uint8x16_t quants[2];
    foreach(half, 2)
        quants[half] = vreinterpretq_u8_s8(vaddq_s8(levels[half], vdupq_n_s8((int8_t)zero)));
    put_half(block, scale);
    put_quants(block + 2, quants, has_fifth);
}

ALWAYS_INLINE void decode_q5_0_block(float *to, const unsigned char *block)
{
    const float32x4_t d = load_scale(block);
    uint8x16_t quants[2];
    get_quants(quants, block + 2, 1);
    foreach(half, 2)
        store_scaled(to + 16 * half, vsubq_s8(vreinterpretq_s8_u8(quants[half]), vdupq_n_s8(16)),
                     d);
}

/* ---- Q4_1, Q5_1 ------------------------------------------------------------------------------ */

ALWAYS_INLINE void encode_offset(unsigned char *block, const float *from, int highest,
                                 int has_fifth, size_t block_bytes)
{
    float32x4_t x[FOURS];
    load_numbers(x, from);
    if (largest_bits(x) >= INFINITE_BITS) {
        put_nothing(block, block_bytes);
        return;
    }
    float32x4_t lows = x[0], highs = x[0];
    foreach(v, FOURS) {
        lows = vminq_f32(lows, x[v]);
        highs = vmaxq_f32(highs, x[v]);
    }
    const float low = vminvq_f32(lows), high = vmaxvq_f32(highs);
    const uint16_t offset = half_below(low + 0.0f); /* -0 becomes 0 */
    const float m = float_of_half(offset);
    const uint16_t scale = scale_for(high > m ? high - m : 0, (float)highest);
    foreach(v, FOURS)
        x[v] = vsubq_f32(x[v], vdupq_n_f32(m));
    int8x16_t levels[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
    if (scale) nearest_within(levels, x, float_of_half(scale), 0, (float)highest);
    const uint8x16_t quants[2] = {vreinterpretq_u8_s8(levels[0]), vreinterpretq_u8_s8(levels[1])};
    put_half(block, scale);
    put_half(block + 2, offset);
    put_quants(block + 4, quants, has_fifth);
}

ALWAYS_INLINE void decode_offset(float *to, const unsigned char *block, int has_fifth)
{
    const float32x4_t d = load_scale(block), m = load_scale(block + 2);
    uint8x16_t quants[2];
    get_quants(quants, block + 4, has_fifth);
    foreach(half, 2) {
        float *const sixteen = to + 16 * half;
        store_scaled(sixteen, vreinterpretq_s8_u8(quants[half]), d);
        foreach(v, 4)
            vst1q_f32(sixteen + FOUR * v, vaddq_f32(vld1q_f32(sixteen + FOUR * v), m));
    }
}

/* ---- IQ4_NL ---------------------------------------------------------------------------------- */

ALWAYS_INLINE void decode_iq4_nl_block(float *to, const unsigned char *block)
{
    const float32x4_t d = load_scale(block);
    uint8x16_t quants[2];
    get_quants(quants, block + 2, 0);
    foreach(half, 2)
        store_scaled(to + 16 * half, vqtbl1q_s8(vld1q_s8(nonlinear_levels), quants[half]), d);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A type's function for rows, from that for a block. */
#define ENCODER(name, bytes, encode_block)                                                         \
    static void encode_##name(void *to, const float *from, size_t n)                               \
    {                                                                                              \
        unsigned char *block = to;                                                                 \
        for (size_t i = 0; i < n; i += QUANTS, block += (bytes))                                   \
            encode_block;                                                                          \
    }
#define DECODER(name, bytes, decode_block)                                                         \
    static void decode_##name(float *to, const void *from, size_t n)                               \
    {                                                                                              \
        const unsigned char *block = from;                                                         \
        for (size_t i = 0; i < n; i += QUANTS, block += (bytes))                                   \
            decode_block;                                                                          \
    }

ENCODER(q4_0, 18, encode_signed(block, from + i, 8, 0, 18))
ENCODER(q5_0, 22, encode_signed(block, from + i, 16, 1, 22))
ENCODER(q4_1, 20, encode_offset(block, from + i, 15, 0, 20))
ENCODER(q5_1, 24, encode_offset(block, from + i, 31, 1, 24))
DECODER(q5_0, 22, decode_q5_0_block(to + i, block))
DECODER(q4_1, 20, decode_offset(to + i, block, 0))
DECODER(q5_1, 24, decode_offset(to + i, block, 1))
DECODER(iq4_nl, 18, decode_iq4_nl_block(to + i, block))

void cl_quants_fill_neon(cl_kernels *table)
{
    table->codec[CL_ROW_Q4_0] = (cl_row_codec){QUANTS, 18, encode_q4_0, decode_q4_0};
    table->codec[CL_ROW_Q4_1] = (cl_row_codec){QUANTS, 20, encode_q4_1, decode_q4_1};
    table->codec[CL_ROW_Q5_0] = (cl_row_codec){QUANTS, 22, encode_q5_0, decode_q5_0};
    table->codec[CL_ROW_Q5_1] = (cl_row_codec){QUANTS, 24, encode_q5_1, decode_q5_1};
    table->codec[CL_ROW_Q8_0] = (cl_row_codec){QUANTS, 34, encode_q8_0, decode_q8_0};
    table->codec[CL_ROW_IQ4_NL].decode = decode_iq4_nl;
}
