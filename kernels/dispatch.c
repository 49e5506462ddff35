/*
 * dispatch.c: fills the table of attention, rotation, row, Hadamard and CRC kernels.
 *
 * Scalar versions fill the whole table, then every instruction set that both the caller's mask and
 * the processor allow puts its own on top, in ascending order. The table belongs to the caller;
 * there is no global one, so two memories of one process may use different sets (the tests do).
 * Cannot fail: a mask that names what the processor lacks is simply lowered.
 */
#include "kernels.h"

#include <string.h>

void cl_kernels_fill(cl_kernels *table, uint32_t mask)
{
    memset(table, 0, sizeof *table); /* row types that no version knows keep block = 0 */
    cl_attend_fill_scalar(table);
    cl_rope_fill_scalar(table);
    cl_rows_fill_scalar(table);
    cl_quants_fill_scalar(table);
    cl_hadamard_fill_scalar(table);
    cl_crc32c_fill_scalar(table);
    table->isa = "scalar";

    const uint32_t usable = mask & cl_cpu_detect();
#if defined(__x86_64__)
    if (usable & CL_CPU_AVX2) {
        cl_attend_fill_avx2(table);
        cl_rope_fill_avx2(table);
        cl_rows_fill_avx2(table);
        cl_quants_fill_avx2(table);
        cl_hadamard_fill_avx2(table);
        cl_crc32c_fill_avx2(table);
        table->isa = "avx2";
    }
    if (usable & CL_CPU_AVX512) {
        cl_attend_fill_avx512(table);
        cl_rows_fill_avx512(table);
        if (cl_cpu_detect() & CL_CPU_VPCLMUL) cl_crc32c_fill_avx512(table);
        table->isa = "avx512";
    }
#elif defined(__aarch64__)
    if (usable & CL_CPU_NEON) {
        cl_attend_fill_neon(table);
        cl_rope_fill_neon(table);
        cl_rows_fill_neon(table);
        cl_quants_fill_neon(table);
        cl_hadamard_fill_neon(table);
        if (cl_cpu_has_crc32c()) cl_crc32c_fill_neon(table);
        table->isa = "neon";
    }
#else
    (void)usable;
#endif
}
