/*
 * cpu_choice.h: which instruction sets the kernels may use, by name.
 *
 * "scalar" is the portable code, "avx2" adds AVX2 + FMA + F16C, "avx512" the 512-bit instructions, "neon" is
 * what AArch64 has; "all" is everything there is (the default). A name only ever lowers what the processor offers; cl_cpu_detect has the last word. `--cpu` and the
 * environment variable CELLAR_CPU both go through here, so that the whole test suite can be run twice.
 */
#ifndef APP_CPU_CHOICE_H
#define APP_CPU_CHOICE_H

#include <stdint.h>

#include "cellar.h"

/* *mask = the CELLAR_CPU_* bits that `name` allows. CELLAR_INVALID: the message lists the names. */
cellar_status cpu_choice_parse(const char *name, uint32_t *mask, cellar_error *error);

/* The same from the environment: CELLAR_CPU, or everything where it is not set or empty. */
cellar_status cpu_choice_from_environment(uint32_t *mask, cellar_error *error);

/* The name that a command was given, or, with NULL, what the environment says. */
cellar_status cpu_choice_take(const char *given, uint32_t *mask, cellar_error *error);

/* The highest set that is used under `mask` on this processor: "scalar", "avx2", "avx512", "neon". Static; never freed. */
const char *cpu_choice_name(uint32_t mask);

#endif /* APP_CPU_CHOICE_H */
