/*
 * kernel_check_memory.c: guarded memory, random values and comparisons for kernel_check.
 *
 * Memory: sixteen regions with a forbidden page before and behind. A piece is put flush against the
 * page behind it (half of the time), against the page before it, or between, at a random multiple
 * of its alignment; the bytes around it are 0xff, which is a NaN as a float or half, so that what
 * is read outside spoils a result even where it does not trap.
 *
 * Comparisons against a double reference carry a bound that the caller derives from the number of
 * roundings; nothing is compared with a guessed tolerance.
 */
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */
#include "kernel_check.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILLER = 0xff };

_Noreturn void check_fail(check *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->message, sizeof c->message, format, arguments);
    va_end(arguments);
    siglongjmp(c->escape, 1);
}

/* ---- random shapes and values -------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t random_bits(check *c)
{
    uint64_t z = c->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t random_below(check *c, size_t limit)
{
    return (size_t)(random_bits(c) % limit);
}

double random_unit(check *c)
{
    return (double)(random_bits(c) >> 11) * 0x1p-53;
}

size_t size_of_trial(check *c, size_t trial)
{
    const size_t n_random = c->is_quick ? 8 : 60;
    if (trial < 70) return trial + 1;
    return trial < 70 + n_random ? 1 + random_below(c, c->is_quick ? 512 : 4096) : 0;
}

int random_pattern(check *c)
{
    return random_bits(c) & 1 ? NORMAL : (int)random_below(c, PATTERNS);
}

static float random_float(check *c, int pattern, size_t i)
{
    const float sign = random_bits(c) & 1 ? -1.0f : 1.0f;
    switch (pattern) {
    case WIDE:
        return sign * ldexpf((float)(1.0 + random_unit(c)), (int)random_below(c, 39) - 24);
    case ZEROS:
        return sign * 0.0f;
    case DENORMALS:
        return sign * ldexpf((float)random_unit(c), -125);
    case HALF_DENORMALS:
        return sign * ldexpf((float)random_unit(c), -14);
    case EXTREMES:
        return i % 2 ? -65504.0f : 65504.0f;
    default:
        return sign * (float)random_unit(c);
    }
}

void fill_floats(check *c, int pattern, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int is_repeated = pattern == RUNS && i > 0 && random_below(c, 16) > 0;
        to[i] = is_repeated ? to[i - 1] : random_float(c, pattern, i);
    }
}

/* ---- guarded memory ------------------------------------------------------------------------ */

static unsigned char *map_region(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *whole = mmap(NULL, SLOT_BYTES + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                                -1, 0);
    if (whole == MAP_FAILED || mprotect(whole + page, SLOT_BYTES, PROT_READ | PROT_WRITE) != 0) {
        perror("kernel_check: guarded memory");
        exit(1);
    }
    return whole + page;
}

void begin(check *c)
{
    for (size_t i = 0; i < SLOTS; i++)
        c->slots[i].data = NULL;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void *take(check *c, size_t bytes, size_t alignment, int is_input)
{
    slot *s = c->slots;
    while (s < c->slots + SLOTS && s->data)
        s++;
    if (s == c->slots + SLOTS || bytes > SLOT_BYTES) {
        fprintf(stderr, "kernel_check: a test takes too much guarded memory (%zu bytes)\n", bytes);
        exit(1);
    }
    if (!s->base) s->base = map_region();

    const size_t room = SLOT_BYTES - bytes;
    size_t at = room; /* flush with the forbidden page behind; the alignment divides both sizes */
    const size_t way = random_below(c, 4);
    if (way == 0)
        at = 0;
    else if (way == 1)
        at = random_below(c, smaller(room, 4096) / alignment + 1) * alignment;
    s->data = s->base + at;
    s->bytes = bytes;
    s->before = smaller(at, MARGIN);
    s->after = smaller(room - at, MARGIN);
    s->is_input = is_input;
    memset(s->data - s->before, FILLER, s->before + bytes + s->after);
    return s->data;
}

float *take_floats(check *c, size_t n, int is_input)
{
    return take(c, n * sizeof(float), sizeof(float), is_input);
}

/* FNV-1a (Fowler, Noll, Vo) over words, then the last bytes. */
static uint64_t sum_of(const slot *s)
{
    uint64_t sum = 0xcbf29ce484222325u;
    size_t i = 0;
    for (; i + 8 <= s->bytes; i += 8) {
        uint64_t word;
        memcpy(&word, s->data + i, sizeof word);
        sum = (sum ^ word) * 0x100000001b3u;
    }
    for (; i < s->bytes; i++)
        sum = (sum ^ s->data[i]) * 0x100000001b3u;
    return sum;
}

void seal(check *c)
{
    for (slot *s = c->slots; s < c->slots + SLOTS; s++)
        if (s->data && s->is_input) s->sum = sum_of(s);
}

static int is_filled(const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (from[i] != FILLER) return 0;
    return 1;
}

void verify(check *c)
{
    for (slot *s = c->slots; s < c->slots + SLOTS; s++) {
        if (!s->data) continue;
        if (!is_filled(s->data - s->before, s->before))
            check_fail(c, "array %d: wrote before its start (%zu bytes long)", (int)(s - c->slots),
                       s->bytes);
        if (!is_filled(s->data + s->bytes, s->after))
            check_fail(c, "array %d: wrote behind its end (%zu bytes long)", (int)(s - c->slots),
                       s->bytes);
        if (s->is_input && s->sum != sum_of(s))
            check_fail(c, "array %d: changed an input (%zu bytes long)", (int)(s - c->slots),
                       s->bytes);
    }
}

/* ---- comparing ----------------------------------------------------------------------------- */

int is_same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

void expect_same(check *c, float got, float expected, const char *what, size_t i, size_t j)
{
    if (!is_same_float(got, expected))
        check_fail(c, "%s [%zu][%zu]: %a, expected the bits of %a", what, i, j, (double)got,
                   (double)expected);
}

void expect_near(check *c, float got, double expected, double bound, const char *what, size_t i,
                 size_t j)
{
    if (!(fabs((double)got - expected) <= bound))
        check_fail(c, "%s [%zu][%zu]: %.9g, expected %.17g, off by %.3g where %.3g is allowed",
                   what, i, j, (double)got, expected, (double)got - expected, bound);
}

void expect_untouched(check *c, const float *from, size_t n, const char *what)
{
    if (!is_filled((const unsigned char *)from, n * sizeof *from))
        check_fail(c, "%s: wrote between two rows", what);
}

double true_half_value(uint16_t half)
{
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double magnitude = exponent == 0 ? ldexp(fraction, -24)
                                           : ldexp(1024 + fraction, exponent - 25);
    return exponent == 31 ? (fraction        ? NAN
                             : half & 0x8000 ? -INFINITY
                                             : INFINITY)
                          : (half & 0x8000 ? -magnitude : magnitude);
}

double gamma_of(double k)
{
    return k * 0x1p-24 / (1 - k * 0x1p-24);
}
