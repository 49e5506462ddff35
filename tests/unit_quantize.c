/*
 * unit_quantize.c: what encoders of weights lose, and that awkward numbers do them no harm.
 *
 * The truth are the decoders of packed.h. On normal numbers every type stays within a bound of its own, a
 * few percent above what it measured, and the K types beat the obvious choice of scales by the margin that
 * their search is for. On awkward blocks (zeros, one value, outliers, numbers beyond all halves) what
 * comes back is finite and not farther away than 0 would be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quantize.h"
#include "kernels.h"
#include "packed.h"

#define N (256u * 120u)

static cl_kernels kernels;
static cl_matmul_table table;

static int set_up(void **state)
{
    (void)state;
    cl_kernels_fill(&kernels, CELLAR_CPU_ALL);
    cl_matmul_fill(&table, CELLAR_CPU_ALL);
    return 0;
}

/* Normal numbers by Box and Muller. */
static void fill_normal(float *x, size_t n, double deviation, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < n; i++) {
        double u[2];
        for (int k = 0; k < 2; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            u[k] = ((double)(state >> 11) + 0.5) * 0x1p-53;
        }
        x[i] = (float)(deviation * sqrt(-2 * log(u[0])) * cos(2 * 3.14159265358979323846 * u[1]));
    }
}

/* There and back. */
static void round_trip(uint32_t type, const float *x, float *y, size_t n)
{
    unsigned char *bytes = malloc(n * 4 + 1);
    assert_non_null(bytes);
    const size_t size = n / table.weight[type].block * table.weight[type].block_bytes;
    memset(bytes, 0xa5, n * 4 + 1);
    quantize_encode(&kernels, type, bytes, x, n);
    assert_int_equal(bytes[size], 0xa5); /* and not a byte more */
    table.weight[type].decode(y, bytes, n);
    free(bytes);
}

/* Root mean square of the difference, over that of the numbers. */
static double loss_of(const float *x, const float *y, size_t n)
{
    double difference = 0, square = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        square += (double)x[i] * x[i];
    }
    return sqrt(difference / square);
}

static const struct {
    const char *name;
    double bound; /* of the loss on normal numbers */
} bounds[] = {
    {"F32", 0},       {"F16", 0.00025}, {"BF16", 0.0018}, {"Q8_0", 0.0057},   {"Q6_K", 0.0175},
    {"Q5_K", 0.0362}, {"Q4_K", 0.0735}, {"Q3_K", 0.15},   {"Q2_K", 0.272},    {"Q5_1", 0.0398},
    {"Q5_0", 0.0448}, {"Q4_1", 0.082},  {"Q4_0", 0.0902}, {"IQ4_NL", 0.0775}, {"MXFP4", 0.1175},
};

#define N_BOUNDS (sizeof bounds / sizeof *bounds)

static void every_type_keeps_within_its_bound_at_any_scale(void **state)
{
    (void)state;
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    static const double deviations[] = {0.02, 1, 700};
    for (size_t i = 0; i < N_BOUNDS; i++) {
        const quantize_type *type = quantize_find_type(bounds[i].name);
        assert_non_null(type);
        for (size_t k = 0; k < 3; k++) {
            fill_normal(x, N, deviations[k], 11 + k);
            round_trip(type->type, x, y, N);
            const double loss = loss_of(x, y, N);
            if (!(loss <= bounds[i].bound)) {
                fail_msg("%s at %g: loses %.5f, at most %.5f is allowed", type->name, deviations[k],
                         loss, bounds[i].bound);
            }
        }
    }
    free(x);
    free(y);
}

/* ---- the obvious choice of scales ----------------------------------------------------------- */

/* Parts from their smallest to their largest number (or symmetrical), with scales of any precision. */
static void plain_rounding(const float *x, float *y, size_t n, size_t part, int levels,
                           bool is_symmetrical)
{
    for (size_t at = 0; at < n; at += part) {
        float low = x[at], high = x[at];
        for (size_t i = at; i < at + part; i++) {
            low = fminf(low, x[i]);
            high = fmaxf(high, x[i]);
        }
        const float most = fmaxf(-low, high);
        const float scale = is_symmetrical ? most / (float)(levels / 2)
                                           : (high - low) / (float)(levels - 1);
        for (size_t i = at; i < at + part; i++) {
            float quant = is_symmetrical
                              ? fminf(rintf(x[i] / scale), (float)(levels / 2 - 1)) * scale
                              : rintf((x[i] - low) / scale) * scale + low;
            y[i] = quant;
        }
    }
}

static void the_search_beats_the_obvious_scales(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t part;
        int levels;
        bool is_symmetrical;
        double share; /* of the obvious loss that may be left */
    } cases[] = {{"Q2_K", 16, 4, false, 0.95},
                 {"Q3_K", 16, 8, true, 0.85},
                 {"Q4_K", 32, 16, false, 0.97},
                 {"Q5_K", 32, 32, false, 0.99},
                 {"Q6_K", 16, 64, true, 1.0}};
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    fill_normal(x, N, 0.05, 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plain_rounding(x, y, N, cases[i].part, cases[i].levels, cases[i].is_symmetrical);
        const double plain = loss_of(x, y, N);
        round_trip(quantize_find_type(cases[i].name)->type, x, y, N);
        const double loss = loss_of(x, y, N);
        if (!(loss < cases[i].share * plain)) {
            fail_msg("%s loses %.5f, the obvious scales %.5f", cases[i].name, loss, plain);
        }
    }
    free(x);
    free(y);
}

/* ---- awkward numbers ------------------------------------------------------------------------ */

#define BLOCK 256u
#define N_AWKWARD 14u

static void fill_awkward(float *x, uint32_t which)
{
    static const float extremes[] = {0,     -0.0f,  1e-45f, 1e-38f, -6e-8f, 6e-5f,
                                     65504, -1e20f, 3e38f,  -3e38f, 1,      -1};
    fill_normal(x, BLOCK, 1, which);
    for (uint32_t i = 0; i < BLOCK; i++) {
        switch (which) {
        case 0:
            x[i] = 0;
            break;
        case 1:
            x[i] = -0.0f;
            break;
        case 2:
            x[i] = 0.37f;
            break;
        case 3:
            x[i] = -0.37f;
            break;
        case 4:
            x[i] = i == 77 ? 40.0f : x[i];
            break;
        case 5:
            x[i] = i == 0 ? -1e4f : 0;
            break;
        case 6:
            x[i] = 5 + x[i] / 10;
            break;
        case 7:
            x[i] = -5 + x[i] / 10;
            break;
        case 8:
            x[i] *= 1e-9f;
            break;
        case 9:
            x[i] = i % 2 ? 3e38f : -3e38f;
            break;
        case 10:
            x[i] = extremes[i % 12];
            break;
        case 11:
            x[i] = (i / 16 % 2) ? x[i] : x[i] * 1e-4f;
            break;
        case 12:
            x[i] = i % 2 ? 1 : -1;
            break;
        default:
            x[i] *= 1e6f;
            break;
        }
    }
}

static void awkward_blocks_come_back_finite_and_no_farther_than_nothing(void **state)
{
    (void)state;
    float x[BLOCK], y[BLOCK];
    for (uint32_t which = 0; which < N_AWKWARD; which++) {
        fill_awkward(x, which);
        for (size_t k = 3; k < N_BOUNDS; k++) {
            const quantize_type *type = quantize_find_type(bounds[k].name);
            round_trip(type->type, x, y, BLOCK);
            double difference = 0, square = 0;
            for (uint32_t i = 0; i < BLOCK; i++) {
                if (!isfinite(y[i])) {
                    fail_msg("%s, block %u: number %u, %g, became %g", type->name, which, i,
                             (double)x[i], (double)y[i]);
                }
                difference += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
                square += (double)x[i] * x[i];
            }
            /* IQ4_NL has no level 0: its smallest is the smallest half, 2^-24. */
            if (difference > square * 1.0000001 + BLOCK * 0x1p-47) {
                fail_msg("%s, block %u: %g away, nothing would be %g", type->name, which,
                         sqrt(difference), sqrt(square));
            }
        }
    }
}

/* One value in a whole block is what every type can say nearly. */
static void a_constant_block_comes_back_nearly(void **state)
{
    (void)state;
    float x[BLOCK], y[BLOCK];
    for (int sign = -1; sign < 2; sign += 2) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            x[i] = (float)sign * 0.37f;
        }
        for (size_t k = 3; k < N_BOUNDS; k++) {
            const quantize_type *type = quantize_find_type(bounds[k].name);
            round_trip(type->type, x, y, BLOCK);
            const double most = type->type == CL_WEIGHT_MXFP4 ? 0.12 : 0.005;
            if (!(loss_of(x, y, BLOCK) <= most)) {
                fail_msg("%s: %g became %g", type->name, (double)x[0], (double)y[0]);
            }
        }
    }
}

/* Every level of MXFP4 comes back, at the ends of the exponents too. */
static void levels_of_mxfp4_come_back(void **state)
{
    (void)state;
    static const float levels[16] = {0, 0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    for (int power = -120; power <= 124; power++) {
        float x[32], y[32];
        for (int i = 0; i < 32; i++) {
            x[i] = ldexpf(levels[i % 16], power);
        }
        round_trip(CL_WEIGHT_MXFP4, x, y, 32);
        for (int i = 0; i < 32; i++) {
            if (x[i] != y[i]) {
                fail_msg("2^%d: %g became %g", power, (double)x[i], (double)y[i]);
            }
        }
    }
}

/* ---- names ---------------------------------------------------------------------------------- */

static void types_are_found_by_name_in_any_case(void **state)
{
    (void)state;
    assert_int_equal(quantize_find_type("q4_k")->type, CL_WEIGHT_Q4_K);
    assert_int_equal(quantize_find_type("Q8_0")->type, CL_WEIGHT_Q8_0);
    static const char *const unknown[] = {"", "Q4", "Q4_K_M", "Q8_K", "IQ2_XS", "I8", "f320"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_null(quantize_find_type(unknown[i]));
        assert_true(quantize_needs_matrix(unknown[i]) == (i == 4));
    }
    for (size_t i = 0; i < N_BOUNDS; i++) {
        const quantize_type *type = quantize_find_type(bounds[i].name);
        const char *name = NULL;
        uint32_t block, block_bytes;
        assert_true(gguf_type_block(type->type, &name, &block, &block_bytes));
        assert_string_equal(name, type->name);
        assert_int_equal(block, table.weight[type->type].block);
        assert_int_equal(block_bytes, table.weight[type->type].block_bytes);
        assert_non_null(strstr(quantize_type_names(), type->name));
        assert_ptr_equal(quantize_type_by_number(type->type), type);
        const quantize_type *instead = quantize_type_by_number(type->fallback);
        assert_true(instead->fallback == instead->type);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_keeps_within_its_bound_at_any_scale),
        cmocka_unit_test(the_search_beats_the_obvious_scales),
        cmocka_unit_test(awkward_blocks_come_back_finite_and_no_farther_than_nothing),
        cmocka_unit_test(a_constant_block_comes_back_nearly),
        cmocka_unit_test(levels_of_mxfp4_come_back),
        cmocka_unit_test(types_are_found_by_name_in_any_case),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
