/*
 * cpu.c: which instruction sets this processor and operating system can run.
 *
 * Two questions have to be answered yes. The processor must have the instructions (cpuid), and the
 * operating system must save the wide registers when it switches threads (XGETBV): a kernel that
 * does not know AVX leaves cpuid as it is, and the upper halves of the registers would change under
 * us. It is done by hand because compilers' own tests differ in the names they know.
 *
 * AArch64 has NEON by definition; whether it has the CRC-32C instructions, the system says (Linux:
 * HWCAP_CRC32). On other processors the answer is 0, the scalar kernels.
 */
#include "kernels.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>

#define LEAF1_ECX_PCLMUL (1u << 1)
#define LEAF1_ECX_FMA (1u << 12)
#define LEAF1_ECX_SSE42 (1u << 20)
#define LEAF1_ECX_OSXSAVE (1u << 27)
#define LEAF1_ECX_AVX (1u << 28)
#define LEAF1_ECX_F16C (1u << 29)
#define LEAF7_EBX_AVX2 (1u << 5)
#define LEAF7_EBX_AVX512 (1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) /* F, DQ, BW, VL */
#define LEAF7_ECX_VPCLMUL (1u << 10)
#define LEAF7_ECX_VNNI (1u << 11)
#define XCR0_SSE_AND_AVX 6u /* bits 1 and 2: the lower and the upper halves are saved */
#define XCR0_AVX512 0xe0u   /* masks, the upper 256 bits, and registers 16 to 31 */

/*
 * The intrinsic would need -mxsave for this file; the instruction itself is there if OSXSAVE is
 * set.
 */
static uint32_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    return low;
}

uint32_t cl_cpu_detect(void)
{
    const uint32_t needed = LEAF1_ECX_FMA | LEAF1_ECX_SSE42 | LEAF1_ECX_OSXSAVE | LEAF1_ECX_AVX |
                            LEAF1_ECX_F16C;
    uint32_t eax, ebx, ecx, edx;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & needed) != needed) return 0;
    const bool has_products = ecx & LEAF1_ECX_PCLMUL;
    if ((read_xcr0() & XCR0_SSE_AND_AVX) != XCR0_SSE_AND_AVX) return 0;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(ebx & LEAF7_EBX_AVX2)) return 0;
    if ((ebx & LEAF7_EBX_AVX512) != LEAF7_EBX_AVX512 || !(ecx & LEAF7_ECX_VNNI) ||
        (read_xcr0() & XCR0_AVX512) != XCR0_AVX512)
        return CL_CPU_AVX2;
    return CL_CPU_AVX2 | CL_CPU_AVX512 |
           (has_products && (ecx & LEAF7_ECX_VPCLMUL) ? CL_CPU_VPCLMUL : 0);
}

int cl_cpu_has_crc32c(void)
{
    return 0; /* SSE4.2 has one, and comes with AVX2 */
}

#elif defined(__aarch64__)

#if defined(__linux__)
#include <sys/auxv.h>
#define HWCAP_HAS_CRC32                                                                            \
    (1ul << 7) /* HWCAP_CRC32 of <asm/hwcap.h>; part of the kernel's interface */
#endif

uint32_t cl_cpu_detect(void)
{
    return CL_CPU_NEON;
}

int cl_cpu_has_crc32c(void)
{
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_HAS_CRC32) != 0;
#elif defined(__ARM_FEATURE_CRC32)
    return 1; /* the compiler may use them everywhere */
#else
    return 0;
#endif
}

#else

uint32_t cl_cpu_detect(void)
{
    return 0;
}

int cl_cpu_has_crc32c(void)
{
    return 0;
}

#endif
