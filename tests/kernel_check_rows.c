/*
 * kernel_check_rows.c: tests of the rotations and of the row formats.
 *
 * Conversions are compared bit for bit: every half, and floats that cover each half, the midpoint
 * between each two and their neighbours, then a comb through all 2^32 (all of them with
 * --exhaustive). The scalar versions are held to a truth that shares no code with them: arithmetic
 * in double with ldexp and rint.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <math.h>
#include <string.h>

/* ---- rotations ----------------------------------------------------------------------------- */

typedef struct rotation {
    float *x, *c, *s, *before;
    size_t n_pairs;
} rotation;

static rotation take_rotation(check *c, size_t n_pairs)
{
    const int pattern = random_pattern(c);
    rotation r = {.n_pairs = n_pairs};
    r.x = take_floats(c, 2 * n_pairs, OUTPUT);
    r.before = take_floats(c, 2 * n_pairs, INPUT);
    r.c = take_floats(c, n_pairs, INPUT);
    r.s = take_floats(c, n_pairs, INPUT);
    fill_floats(c, pattern, r.before, 2 * n_pairs);
    memcpy(r.x, r.before, 2 * n_pairs * sizeof *r.x);
    for (size_t i = 0; i < n_pairs; i++) {
        const double angle = random_unit(c) * 7, magnitude = random_below(c, 2) ? 1 : 1.2;
        r.c[i] = (float)(cos(angle) * magnitude);
        r.s[i] = (float)(sin(angle) * magnitude);
    }
    seal(c);
    return r;
}

static size_t first_of(size_t pair, int is_neox)
{
    return is_neox ? pair : 2 * pair;
}

static size_t second_of(size_t pair, size_t n_pairs, int is_neox)
{
    return is_neox ? pair + n_pairs : 2 * pair + 1;
}

static void rotations_are_near(check *c, int is_neox)
{
    for (size_t trial = 0; trial == 0 || size_of_trial(c, trial - 1) > 0; trial++) {
        const size_t n_pairs = trial <= 70 ? trial : 1 + random_below(c, 2048);
        begin(c);
        const rotation r = take_rotation(c, n_pairs);
        (is_neox ? c->kernels.rope_neox : c->kernels.rope_normal)(r.x, (uint32_t)n_pairs, r.c, r.s);
        verify(c);
        for (size_t i = 0; i < n_pairs; i++) {
            const size_t first = first_of(i, is_neox), second = second_of(i, n_pairs, is_neox);
            const double a = r.before[first], b = r.before[second], cosine = r.c[i], sine = r.s[i];
            expect_near(c, r.x[first], a * cosine - b * sine,
                        gamma_of(2) * (fabs(a * cosine) + fabs(b * sine)) + 2 * SMALLEST_STEP,
                        "first", n_pairs, i);
            expect_near(c, r.x[second], a * sine + b * cosine,
                        gamma_of(2) * (fabs(a * sine) + fabs(b * cosine)) + 2 * SMALLEST_STEP,
                        "second", n_pairs, i);
        }
    }
}

static void normal_rotations_are_near(check *c)
{
    rotations_are_near(c, 0);
}

static void neox_rotations_are_near(check *c)
{
    rotations_are_near(c, 1);
}

/* Every pair alone, through both layouts, has the bits it has in the row. */
static void rotations_do_not_depend_on_company(check *c, int is_neox)
{
    for (size_t trial = 0, n_pairs; (n_pairs = size_of_trial(c, trial)) > 0; trial++) {
        begin(c);
        const rotation r = take_rotation(c, n_pairs);
        (is_neox ? c->kernels.rope_neox : c->kernels.rope_normal)(r.x, (uint32_t)n_pairs, r.c, r.s);
        for (size_t i = 0; i < n_pairs; i++) {
            const size_t first = first_of(i, is_neox), second = second_of(i, n_pairs, is_neox);
            for (int layout = 0; layout < 2; layout++) {
                float pair[2] = {r.before[first], r.before[second]};
                (layout ? c->kernels.rope_neox : c->kernels.rope_normal)(pair, 1, r.c + i, r.s + i);
                expect_same(c, r.x[first], pair[0], "first in company", n_pairs, i);
                expect_same(c, r.x[second], pair[1], "second in company", n_pairs, i);
            }
        }
    }
}

static void normal_rotations_do_not_depend_on_company(check *c)
{
    rotations_do_not_depend_on_company(c, 0);
}

static void neox_rotations_do_not_depend_on_company(check *c)
{
    rotations_do_not_depend_on_company(c, 1);
}

/* ---- halves -------------------------------------------------------------------------------- */

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A NaN keeps its sign and leading payload and becomes quiet; it has no value to compute with. */
static uint32_t true_float_bits(uint16_t half)
{
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31 && fraction)
        return (uint32_t)(half & 0x8000) << 16 | 0x7fc00000u | (uint32_t)fraction << 13;
    const double magnitude = exponent == 31  ? INFINITY
                             : exponent == 0 ? ldexp(fraction, -24)
                                             : ldexp(1024 + fraction, exponent - 25);
    return bits_of((float)(half & 0x8000 ? -magnitude : magnitude));
}

static uint16_t true_half(uint32_t bits)
{
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const float value = fabsf(float_of(bits));
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x1ff));
    if (value == 0) return sign;
    if (value >= 65520) /* the midpoint between the largest half and 2^16, which rounds up */
        return (uint16_t)(sign | 0x7c00);
    const int exponent = ilogbf(value) < -14 ? -14 : ilogbf(value);
    const double steps = rint(ldexp((double)value, 10 - exponent)); /* ties to even */
    return (uint16_t)(sign | ((exponent + 14) * 1024 + (int)steps));
}

static void check_halves(check *c, const uint32_t *bits, size_t n)
{
    begin(c);
    float *from = take_floats(c, n, INPUT);
    uint16_t *to = take(c, n * sizeof *to, sizeof *to, OUTPUT);
    memcpy(from, bits, n * sizeof *from);
    seal(c);
    c->kernels.rows_f16_from_f32(to, from, n);
    verify(c);
    for (size_t i = 0; i < n; i++)
        if (to[i] != true_half(bits[i]))
            check_fail(c, "f16 of %08x (%a): %04x, expected %04x (%zu of %zu)", bits[i],
                       (double)float_of(bits[i]), to[i], true_half(bits[i]), i, n);
}

static void check_floats(check *c, uint32_t first, size_t n)
{
    begin(c);
    uint16_t *from = take(c, n * sizeof *from, sizeof *from, INPUT);
    float *to = take_floats(c, n, OUTPUT);
    for (size_t i = 0; i < n; i++)
        from[i] = (uint16_t)(first + i);
    seal(c);
    c->kernels.rows_f32_from_f16(to, from, n);
    verify(c);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, to + i, sizeof bits);
        if (bits != true_float_bits(from[i]))
            check_fail(c, "f32 of %04x: %08x, expected %08x (%zu of %zu)", from[i], bits,
                       true_float_bits(from[i]), i, n);
    }
}

static void every_half_becomes_its_float(check *c)
{
    for (uint32_t half = 0; half < 65536; half += 128)
        check_floats(c, half, 128);
    for (size_t n = 0; n <= 70; n++) /* every length, so that every half meets a rest as well */
        for (uint32_t half = 0; half < 65536; half += 65536 / 8)
            check_floats(c, half + (uint32_t)random_below(c, 8192), n);
}

/* Each half, the midpoint to the next, and one float to either side of both. */
static void floats_round_to_the_nearest_half(check *c)
{
    uint32_t bits[12];
    for (uint32_t half = 0; half < 0x7c00; half += c->is_quick ? 7 : 1) {
        const double value = float_of(true_float_bits((uint16_t)half));
        const double next = half == 0x7bff ? 65536
                                           : float_of(true_float_bits((uint16_t)(half + 1)));
        const uint32_t exact = bits_of((float)value), middle = bits_of((float)((value + next) / 2));
        const uint32_t around[6] = {exact,  exact + 1,  exact ? exact - 1 : 1,
                                    middle, middle + 1, middle - 1};
        for (size_t i = 0; i < 6; i++) {
            bits[2 * i] = around[i];
            bits[2 * i + 1] = around[i] | 0x80000000u;
        }
        check_halves(c, bits, 12);
    }
}

static void all_kinds_of_floats_become_halves(check *c)
{
    enum { N = 1024 };
    static uint32_t bits[N];
    const uint32_t stride = c->is_exhaustive ? 1 : c->is_quick ? 40009 : 2003;
    uint64_t next = random_below(c, stride);
    while (next <= UINT32_MAX) {
        size_t n = 0;
        for (; n < N && next <= UINT32_MAX; n++, next += stride)
            bits[n] = (uint32_t)next;
        check_halves(c, bits, n);
    }
    for (size_t n = 0; n <= 70; n++) {
        for (size_t i = 0; i < n; i++)
            bits[i] = (uint32_t)random_bits(c);
        check_halves(c, bits, n);
    }
}

static void halves_survive_the_way_there_and_back(check *c)
{
    for (uint32_t half = 0; half < 65536; half += 16) {
        uint16_t from[16], back[16];
        float between[16];
        for (uint32_t i = 0; i < 16; i++)
            from[i] = (uint16_t)(half + i);
        c->kernels.rows_f32_from_f16(between, from, 16);
        c->kernels.rows_f16_from_f32(back, between, 16);
        for (uint32_t i = 0; i < 16; i++) {
            const int is_nan = (from[i] & 0x7fff) > 0x7c00;
            const uint16_t expected = is_nan ? (uint16_t)(from[i] | 0x200) : from[i];
            if (back[i] != expected) check_fail(c, "%04x came back as %04x", from[i], back[i]);
        }
    }
}

/* Every size at every place within a line, and some long ones; the pattern has four different bytes. */
static void every_byte_is_filled(check *c)
{
    const uint32_t pattern = 0x84c2a1f3;
    for (size_t trial = 0; trial == 0 || size_of_trial(c, trial - 1) > 0; trial++) {
        const size_t n = trial <= 200 ? trial : 1 + random_below(c, 5000);
        const size_t alignment = (size_t)1 << trial % 7;
        begin(c);
        unsigned char *bytes = take(c, n + 3, alignment, OUTPUT);
        seal(c);
        for (size_t first = 0; first <= 3; first++) {
            memset(bytes, 0x55, n + 3);
            c->kernels.rows_fill_past(bytes + first, pattern, n);
            for (size_t i = 0; i < n + 3; i++) {
                const int is_outside = i < first || i >= first + n;
                const unsigned char expected =
                    is_outside ? 0x55 : (unsigned char)(pattern >> 8 * ((i - first) % 4));
                if (bytes[i] != expected)
                    check_fail(c, "byte %zu of %zu from %zu is %02x, must be %02x", i, n, first,
                               bytes[i], expected);
            }
        }
        verify(c);
    }
}

#define OF(member) #member
#define MEMBER(member) .kernel = OF(member), .offset = offsetof(cl_kernels, member), .type = -1

const test rows_tests[] = {
    {MEMBER(rope_normal), .aspect = "is near the exact rotation", .run = normal_rotations_are_near},
    {MEMBER(rope_normal), .aspect = "does not depend on company or layout",
     .run = normal_rotations_do_not_depend_on_company},
    {MEMBER(rope_neox), .aspect = "is near the exact rotation", .run = neox_rotations_are_near},
    {MEMBER(rope_neox), .aspect = "does not depend on company or layout",
     .run = neox_rotations_do_not_depend_on_company},
    {MEMBER(rows_f32_from_f16), .aspect = "every half becomes its float",
     .run = every_half_becomes_its_float},
    {MEMBER(rows_f16_from_f32), .aspect = "rounds to the nearest half",
     .run = floats_round_to_the_nearest_half},
    {MEMBER(rows_f16_from_f32), .aspect = "takes all kinds of floats",
     .run = all_kinds_of_floats_become_halves},
    {MEMBER(rows_f16_from_f32), .aspect = "halves survive the way there and back",
     .run = halves_survive_the_way_there_and_back},
    {MEMBER(rows_fill_past), .aspect = "fills every byte and no other",
     .run = every_byte_is_filled},
};
const size_t n_rows_tests = sizeof rows_tests / sizeof *rows_tests;
