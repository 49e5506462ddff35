/*
 * sampling_options.h: what the command line says about choosing tokens, for every command that writes.
 *
 * A command puts SAMPLING_OPTIONS into its table of options and turns what was read into the
 * sampler's options here, so that the same words mean the same everywhere.
 */
#ifndef APP_SAMPLING_OPTIONS_H
#define APP_SAMPLING_OPTIONS_H

#include <stdint.h>

#include "cli/options.h"
#include "engine/sampler.h"

typedef struct sampling_options {
    int64_t top_k, repeat_last;
    int64_t seed; /* -1: none was given */
    double temperature, top_p, min_p, repeat_penalty;
} sampling_options;

/* Entries of an option table that fill in `its`, a sampling_options *. */
#define SAMPLING_OPTIONS(its)                                                                      \
    option_number(0, "temp", &(its)->temperature, 0, 1e6),                                         \
        option_integer(0, "top-k", &(its)->top_k, 0, INT32_MAX),                                   \
        option_number(0, "top-p", &(its)->top_p, 1e-6, 1),                                         \
        option_number(0, "min-p", &(its)->min_p, 0, 1),                                            \
        option_number(0, "repeat-penalty", &(its)->repeat_penalty, 1e-3, 1e3),                     \
        option_integer(0, "repeat-last", &(its)->repeat_last, 0, 1 << 20),                         \
        option_integer(0, "seed", &(its)->seed, -1, INT64_MAX)

sampling_options sampling_options_defaults(void);

/* The sampler's options. Its seed is the one that was given, or a fresh one. */
sampler_options sampling_options_apply(const sampling_options *options);

#endif /* APP_SAMPLING_OPTIONS_H */
