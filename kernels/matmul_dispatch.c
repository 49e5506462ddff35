/*
 * matmul_dispatch.c: fills the table of weight products and activations; the twin of dispatch.c for the program.
 *
 * It is a file of its own because libcellar holds no weights: only the program links it. Types that
 * no version knows keep block = 0. Cannot fail.
 */
#include "kernels.h"

#include <string.h>

void cl_matmul_fill(cl_matmul_table *table, uint32_t mask)
{
    memset(table, 0, sizeof *table);
    cl_matmul_fill_scalar(table);
    cl_matmul_rounded_fill_scalar(table);
    cl_activate_fill_scalar(table);
    cl_vector_fill_scalar(table);

    const uint32_t usable = mask & cl_cpu_detect();
#if defined(__x86_64__)
    if (usable & CL_CPU_AVX2) {
        cl_matmul_fill_avx2(table);
        cl_activate_fill_avx2(table);
        cl_vector_fill_avx2(table);
        cl_matmul_tiles_fill_avx2(table);
    }
    if (usable & CL_CPU_AVX512) {
        cl_matmul_fill_avx512(table);
        cl_matmul_packed_fill_avx512(table);
        cl_matmul_rounded_fill_avx512(table);
        cl_activate_fill_avx512(table);
        cl_vector_fill_avx512(table);
    }
#elif defined(__aarch64__)
    if (usable & CL_CPU_NEON) {
        cl_matmul_fill_neon(table);
        cl_activate_fill_neon(table);
    }
#else
    (void)usable;
#endif
}
