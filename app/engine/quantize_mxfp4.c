/*
 * quantize_mxfp4.c: MXFP4: 32 floats of 4 bits that share a power of two.
 *
 * The OCP Microscaling Formats specification (1.0, 5.3.3 and 6.3) gives the format; it leaves the choice of
 * the power to the writer. Here three are tried: the largest number comes to lie in [2, 4), in [4, 8) or in
 * [8, 16), where the largest level is 6. The one of the least squared error wins, the larger of equals.
 *
 * Powers end at 2^127 and 2^-127; numbers below half of the smallest level become 0. Nothing here fails.
 */
#include "engine/quantize_pieces.h"

#include <float.h>
#include <math.h>

#include "packed.h"

/* The index of the level nearest to x; of two at the same distance the one with the even mantissa. */
static unsigned nearest_level(double x)
{
    const double size = x < 0 ? -x : x;
    static const double borders[7] = {0.5, 1.5, 2.5, 3.5, 5, 7, 10}; /* between 0 1 2 3 4 6 8 12 */
    unsigned index = 0;
    while (index < 7 && (size > borders[index] || (size == borders[index] && index % 2 == 1)))
        index++;
    return x < 0 && index > 0 ? index + 8 : index;
}

static double block_error(const float *x, int exponent)
{
    const double scale = packed_exponent((unsigned char)exponent);
    double sum = 0;
    for (size_t i = 0; i < 32; i++) {
        const double value = scale * (double)mxfp4_levels[nearest_level((double)x[i] / scale)];
        if (fabs(value) > (double)FLT_MAX) return HUGE_VAL; /* decoders would see infinity */
        sum += ((double)x[i] - value) * ((double)x[i] - value);
    }
    return sum;
}

void quantize_block_mxfp4(unsigned char *to, const float *x)
{
    const float largest = fabsf(x[quantize_largest(x, 32)]);
    int power = 0, best = 0;
    if (largest > 0) {
        (void)frexpf(largest, &power); /* largest = [0.5, 1) * 2^power */
        double least = -1;
        for (int trial = power - 2; trial >= power - 4; trial--) {
            const int exponent = trial + 127 < 0 ? 0 : trial + 127 > 254 ? 254 : trial + 127;
            const double error = block_error(x, exponent);
            if (least < 0 || error < least) {
                least = error;
                best = exponent;
            }
        }
    }
    const double scale = packed_exponent((unsigned char)best);
    to[0] = (unsigned char)best;
    for (size_t i = 0; i < 16; i++)
        to[1 + i] = (unsigned char)(nearest_level((double)x[i] / scale) |
                                    nearest_level((double)x[i + 16] / scale) << 4);
}
