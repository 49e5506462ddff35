/*
 * matmul_rounded_scalar.c: products of whole numbers, written to be read.
 *
 * rounded.h says how activations are rounded and in which order parts are added; here it is done one number
 * after the other. A stretch of 256 weights is unpacked once for all tokens. The only roundings are those
 * that rounded.h names, and fmaf is a fused operation on every processor, so these are the bits that all
 * versions have to give.
 *
 * Nothing here fails. The caller has checked types and sizes.
 */
#include "kernels.h"

#include <math.h>

#include "rounded.h"

/* ---- activations ----------------------------------------------------------------------------- */

/* The scale of 32 numbers; NaN if one is not finite. Bits of magnitudes are ordered as they are. */
static float scale_of(const float *x, float *inverse)
{
    uint32_t most = 0;
    for (size_t i = 0; i < QUANTS; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    const float largest = float_from_bits(most);
    const float held = largest > SMALLEST_LARGEST ? largest : SMALLEST_LARGEST;
    *inverse = LARGEST_ROUNDED / held;
    return most >= INFINITE_BITS ? NAN : held / LARGEST_ROUNDED;
}

static void put_number(const rounded *to, size_t at, int whole, int is_few)
{
    static const size_t place[4] = {0, 2, 1, 3};
    if (!is_few) {
        to->words[at / 4 * 4 + place[at % 4]] = (int16_t)whole;
        return;
    }
    const int high = (whole + 128) >> 8;
    to->high[at] = (int8_t)high;
    to->low[at] = (int8_t)(whole - 256 * high);
}

static void round_scalar(void *row, const float *x, size_t n, uint32_t n_tokens)
{
    const rounded to = rounded_at(row, n);
    for (size_t part = 0; part < n / QUANTS; part++) {
        float inverse;
        const float scale = scale_of(x + part * QUANTS, &inverse);
        int32_t sum[2] = {0, 0};
        for (size_t i = 0; i < QUANTS; i++) {
            const float number = x[part * QUANTS + i] * inverse;
            const int whole = isnan(scale) ? 0 : (int)rintf(number);
            put_number(&to, part * QUANTS + i, whole, n_tokens <= CL_FEW_TOKENS);
            sum[i / 16] += whole;
        }
        to.scale[part] = scale;
        for (size_t half = 0; half < 2; half++) {
            to.sum16[2 * part + half] = sum[half];
            to.weighted16[2 * part + half] = (float)sum[half] * scale;
        }
        to.weighted32[part] = (float)(sum[0] + sum[1]) * scale;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static int number_at(const rounded *x, size_t at, int is_few)
{
    static const size_t place[4] = {0, 2, 1, 3};
    return is_few ? 256 * x->high[at] + x->low[at] : x->words[at / 4 * 4 + place[at % 4]];
}

/* What n <= STRETCH numbers of a row and a token give; `at` is where they are in the token. */
ALWAYS_INLINE float multiply_stretch(int type, const unpacked *w, const rounded *x, size_t at,
                                     size_t n, int is_few)
{
    const size_t size = part_of(type);
    float lane[4] = {0, 0, 0, 0};
    for (size_t part = 0; part < n / size; part++) {
        int32_t sum = 0;
        for (size_t i = part * size; i < (part + 1) * size; i++) {
            const int quant = type == CL_WEIGHT_MXFP4 ? whole_levels[w->quant[i]] : w->quant[i];
            sum += quant * number_at(x, at + i, is_few);
        }
        const size_t of_x = (at + part * size) / QUANTS, of_half = at / 16 + part;
        float *const to = &lane[part % 4];
        *to = fmaf((float)sum, w->scale[part] * x->scale[of_x], *to);
        if (has_offset(type))
            *to = fmaf(w->offset[part], size == 16 ? x->weighted16[of_half] : x->weighted32[of_x],
                       *to);
    }
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

ALWAYS_INLINE void multiply(int type, const unsigned char *w, size_t row_bytes, size_t n_in,
                            size_t first, size_t last, const char *x, size_t n_tokens, float *y,
                            size_t y_stride)
{
    const size_t x_bytes = cl_rounded_bytes(n_in);
    unpacked u;
    for (size_t i = first; i < last; i++) {
        for (size_t at = 0; at < n_in; at += STRETCH) {
            const size_t n = n_in - at < STRETCH ? n_in - at : STRETCH;
            packed_unpack(type, &u, w + i * row_bytes + bytes_of(type, at), n);
            for (size_t t = 0; t < n_tokens; t++) {
                const rounded token = rounded_in(x + t * x_bytes, n_in);
                const float some = multiply_stretch(type, &u, &token, at, n,
                                                    n_tokens <= CL_FEW_TOKENS);
                float *const to = y + t * y_stride + i;
                *to = at == 0 ? some : *to + some;
            }
        }
    }
}

/* The table's functions have no argument for the type, so each type gets one of its own. */
#define DEFINE_TYPE(name, number, block, block_bytes)                                              \
    static void multiply_##name(const void *w, size_t row_bytes, uint32_t n_in, uint32_t first,    \
                                uint32_t last, const void *x, uint32_t n_tokens, float *y,         \
                                size_t y_stride)                                                   \
    {                                                                                              \
        multiply(number, w, row_bytes, n_in, first, last, x, n_tokens, y, y_stride);               \
    }
WEIGHTS_OF_QUANTS(DEFINE_TYPE)

void cl_matmul_rounded_fill_scalar(cl_matmul_table *table)
{
    table->round = round_scalar;
#define FILL(name, number, block, block_bytes) table->multiply_rounded[number] = multiply_##name;
    WEIGHTS_OF_QUANTS(FILL)
}
