/*
 * sampling_options.c: from words to a sampler's options, and a seed for somebody who gave none.
 *
 * A fresh seed is different each time, and short enough to be typed again by whoever wants the same
 * text once more. Nothing about it is secret, so a source that cannot be read is no failure: clock and
 * process are different from run to run, too.
 */
#define _POSIX_C_SOURCE 200809L

#include "cli/sampling_options.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static uint64_t fresh_seed(void)
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

sampling_options sampling_options_defaults(void)
{
    const sampler_options s = sampler_defaults();
    return (sampling_options){.top_k = s.top_k,
                              .repeat_last = s.repeat_last,
                              .seed = -1,
                              .temperature = s.temperature,
                              .top_p = s.top_p,
                              .min_p = s.min_p,
                              .repeat_penalty = s.repeat_penalty};
}

sampler_options sampling_options_apply(const sampling_options *options)
{
    return (sampler_options){.temperature = options->temperature,
                             .top_k = (uint32_t)options->top_k,
                             .top_p = options->top_p,
                             .min_p = options->min_p,
                             .repeat_penalty = options->repeat_penalty,
                             .repeat_last = (uint32_t)options->repeat_last,
                             .seed = options->seed < 0 ? fresh_seed() : (uint64_t)options->seed};
}
