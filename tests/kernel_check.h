/*
 * kernel_check.h: what the files of kernel_check share.
 *
 * A test is a function that is given a `check`: the tables under test, a source of random numbers,
 * and guarded memory. It returns if all was right and calls check_fail() otherwise, which does not
 * return. Tests are tied to the function pointer they exercise, so that an instruction set is only
 * tested where it brings something of its own.
 *
 * Memory from take_*() lies between pages that cannot be touched, most often with its last byte
 * before such a page; the room beside it is filled with a pattern (a NaN, read as floats). seal()
 * before a kernel is called remembers the inputs; verify() after it compares inputs and margins.
 * begin() gives all memory back.
 */
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels.h"

enum { SLOTS = 16, SLOT_BYTES = 1 << 21, MARGIN = 256 };

/* Where a taken piece of memory lies. */
typedef struct slot {
    unsigned char *base;  /* SLOT_BYTES that may be touched, a forbidden page on either side */
    unsigned char *data;  /* the piece, NULL while not taken */
    size_t bytes;         /* its length */
    size_t before, after; /* bytes of the margins, up to MARGIN */
    int is_input;         /* must not change between seal() and verify() */
    uint64_t sum;         /* of an input when it was sealed */
} slot;

typedef struct check check;
typedef void check_function(check *c);

/*
 * Tests of a member of cl_kernels itself; of cl_matmul_table itself; of its multiply_rounded for the weight
 * type that is added.
 */
enum { OF_KERNELS = -1, OF_WEIGHTS = -2, OF_ROUNDED = CL_WEIGHT_TYPES };

typedef struct test {
    const char *kernel, *aspect; /* the aspect is a sentence that completes "kernel: ..." */
    size_t offset;               /* of the function pointer, in what `type` says */
    int type;                    /* CL_WEIGHT_*, or one of the above */
    check_function *run;
} test;

struct check {
    cl_kernels kernels;      /* under test */
    cl_matmul_table weights; /* under test */
    cl_kernels scalar_kernels;
    cl_matmul_table scalar_weights;
    const test *test;
    uint64_t random;
    int is_quick, is_exhaustive;
    slot slots[SLOTS];
    sigjmp_buf escape; /* check_fail() and signals go here */
    char message[400];
};

extern const test attend_tests[], rows_tests[], codec_tests[], hadamard_tests[], crc32c_tests[],
    matmul_tests[], rounded_tests[], activate_tests[], vector_tests[], fused_tests[];
extern const size_t n_attend_tests, n_rows_tests, n_codec_tests, n_hadamard_tests, n_crc32c_tests,
    n_matmul_tests, n_rounded_tests, n_activate_tests, n_vector_tests, n_fused_tests;

_Noreturn void check_fail(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- random shapes and values -------------------------------------------------------------- */

uint64_t random_bits(check *c);
size_t random_below(check *c, size_t limit); /* limit > 0 */
double random_unit(check *c);                /* [0, 1) */

/*
 * 1 to 70 in order, then random sizes up to 4,096 (512 in a quick run). Returns 0 when it is
 * enough.
 */
size_t size_of_trial(check *c, size_t trial);

enum {
    NORMAL,         /* uniform in [-1, 1] */
    WIDE,           /* magnitudes from 2^-24 to 2^15 */
    ZEROS,          /* 0 and -0 */
    DENORMALS,      /* f32 denormals and the smallest normal numbers */
    HALF_DENORMALS, /* values that are denormal as halves */
    EXTREMES,       /* the largest half with alternating sign */
    RUNS,           /* the same value many times, then another */
    PATTERNS        /* how many there are */
};
void fill_floats(check *c, int pattern, float *to, size_t n);
int random_pattern(check *c); /* NORMAL half of the time */

/* ---- guarded memory ------------------------------------------------------------------------ */

enum { OUTPUT = 0, INPUT = 1 };
void begin(check *c);
void *take(check *c, size_t bytes, size_t alignment, int is_input); /* filled with 0xff */
float *take_floats(check *c, size_t n, int is_input);
void seal(check *c);
void verify(check *c);

/* ---- comparing ----------------------------------------------------------------------------- */

int is_same_float(float a, float b); /* equal bits, or both NaN */
void expect_same(check *c, float got, float expected, const char *what, size_t i, size_t j);
void expect_near(check *c, float got, double expected, double bound, const char *what, size_t i,
                 size_t j);
void expect_untouched(check *c, const float *from, size_t n, const char *what); /* still 0xff */

/* What a half means, computed in double. */
double true_half_value(uint16_t half);

/* Number i of a row of packed weights, and where a block has its scale and (SIZE_MAX: has not) offset. */
double true_packed_weight(int type, const unsigned char *row, size_t i);
size_t scale_of_packed_block(int type);
size_t offset_of_packed_block(int type);

/* k u / (1 - k u), u = 2^-24: what k roundings in a row can do to a number, relatively. */
double gamma_of(double k);
/* A rounding near zero is off by at most this, whatever the relative bound says. */
#define SMALLEST_STEP 0x1p-149

/* ---- the other parts ----------------------------------------------------------------------- */

/* Runs a test; returns 0 if it passed, else c->message says why it did not. */
int run_test(check *c, const test *t);
/* Wrong kernels must be found; returns how many were not. `report` is called for each. */
void run_self_test(check *c, void (*report)(const char *name, const char *failure));
void run_bench(const char *isa, const cl_kernels *kernels, const cl_matmul_table *weights,
               const char *only, int is_json);

/* ---- weights, for all tests of products ------------------------------------------------------ */

/* The type that the running test is about. */
int weight_type(const check *c);
/* The number of a trial as a length that fits the type; 0 after the last. */
size_t weight_length(check *c, size_t trial);
size_t weight_bytes(const check *c, size_t n);
/* Any bytes, but finite scales. */
void fill_weight_row(check *c, int pattern, unsigned char *to, size_t n);
/* Number i of a row, from the layouts in docs/kernels.md. */
double true_weight(int type, const unsigned char *row, size_t i);

#endif /* KERNEL_CHECK_H */
