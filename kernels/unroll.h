/*
 * unroll.h: loops over registers; what the vector kernels of all instruction sets share.
 *
 * Blocks of accumulators are written as small arrays with constant bounds, in functions that are inlined
 * with constant arguments. foreach() makes sure that both compilers keep them in registers: a loop that is
 * left a loop would index the array, and so put it into memory.
 */
#ifndef CL_UNROLL_H
#define CL_UNROLL_H

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/*
 * foreach (i, n): a loop over i < n for a small constant n, unrolled. clang needs "full": a plain
 * "unroll" comes too late to keep the arrays out of memory, and one it cannot do is no error.
 */
#if defined(__clang__)
#define foreach(i, n) _Pragma("clang loop unroll(full)") for (int i = 0; i < (n); i++)
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define foreach(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif

#endif /* CL_UNROLL_H */
