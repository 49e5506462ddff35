/*
 * fresh_seed.c: a seed for somebody who gave none.
 *
 * Nothing about it is secret, so a source that cannot be read is no failure: clock and process are
 * different from run to run, too.
 */
#define _POSIX_C_SOURCE 200809L

#include "cli/fresh_seed.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

uint64_t fresh_seed(void)
{
    uint32_t seed = 0;
    FILE *source = fopen("/dev/urandom", "rb");
    if (source == NULL || fread(&seed, sizeof seed, 1, source) != 1) {
        seed = (uint32_t)time(NULL) ^ (uint32_t)getpid() << 16;
    }
    if (source != NULL) {
        fclose(source);
    }
    return seed;
}
