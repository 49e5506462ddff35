/*
 * cpu_choice.c: the names of instruction sets, in one table.
 *
 * Ordered from the least to the most, so that the last entry a processor supports is the one in use. A new
 * kernel file needs one line here. Fails only by an unknown name, and then says which there are.
 */
#include "cpu_choice.h"

#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "report.h"

static const struct {
    const char *name;
    uint32_t mask; /* everything up to and including this set */
} sets[] = {
    {"scalar", CELLAR_CPU_SCALAR},
    {"avx2", CELLAR_CPU_AVX2},
    {"avx512", CELLAR_CPU_AVX2 | CELLAR_CPU_AVX512},
    {"neon", CELLAR_CPU_NEON},
};

enum { N_SETS = sizeof sets / sizeof sets[0] };

cellar_status cpu_choice_parse(const char *name, uint32_t *mask, cellar_error *error)
{
    if (strcmp(name, "all") == 0) {
        *mask = CELLAR_CPU_ALL;
        return CELLAR_OK;
    }
    for (int i = 0; i < N_SETS; i++) {
        if (strcmp(name, sets[i].name) == 0) {
            *mask = sets[i].mask;
            return CELLAR_OK;
        }
    }
    return report(error, CELLAR_INVALID, -1,
                  "unknown instruction set '%s': scalar, avx2, avx512, neon or all", name);
}

cellar_status cpu_choice_from_environment(uint32_t *mask, cellar_error *error)
{
    const char *name = getenv("CELLAR_CPU");
    cellar_error found;
    cellar_status status = cpu_choice_parse(name && *name ? name : "all", mask, &found);
    if (status == CELLAR_OK) return status;
    /* Who set the variable long ago needs to be told where the name comes from. */
    return report(error, status, -1, "CELLAR_CPU: %s", found.message);
}

cellar_status cpu_choice_take(const char *given, uint32_t *mask, cellar_error *error)
{
    return given != NULL ? cpu_choice_parse(given, mask, error)
                         : cpu_choice_from_environment(mask, error);
}

const char *cpu_choice_name(uint32_t mask)
{
    const uint32_t usable = mask & cl_cpu_detect();
    const char *name = sets[0].name;
    for (int i = 1; i < N_SETS; i++) {
        if ((usable & sets[i].mask) == sets[i].mask) name = sets[i].name;
    }
    return name;
}
