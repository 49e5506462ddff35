/*
 * tokens.h: how fast a model reads and generates: what `cellar bench model` and `parallel` measure.
 *
 * A figure is tokens a second: the median of several runs and the least and most of them. Tokens are
 * drawn, since no kernel depends on which they are. Nothing is measured before a first run has warmed
 * caches and pages. Each run leaves the memory as it found it, so all runs do the same work.
 */
#ifndef APP_BENCH_TOKENS_H
#define APP_BENCH_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/samples.h"
#include "engine/engine.h"

typedef struct bench_figure {
    uint32_t n, depth; /* tokens of a run, and those that stand before it */
    bench_spread rate; /* tokens a second */
} bench_figure;

typedef struct bench_sequences {
    uint32_t n_sequences, n_prefix, n_generated; /* tokens of each sequence */
    bool is_apart; /* every sequence reads the prefix itself: nothing is shared */
} bench_sequences;

/* Cells, and sequences, that a memory needs for these. */
uint64_t bench_sequences_cells(const bench_sequences *s);
uint32_t bench_sequences_count(const bench_sequences *s);

/*
 * Read n tokens behind `depth` others: together, or (is_generation) one by one with logits, in
 * sequence 1 of an engine with 2 sequences; sequence 0 holds the tokens before. What engine_decode and
 * cellar_copy return.
 */
cellar_status bench_measure(engine *e, bool is_generation, uint32_t n, uint32_t depth,
                            uint32_t n_runs, bench_figure *out, cellar_error *error);

/* Generate in all sequences at once, one token of each a step; tokens of all together count. */
cellar_status bench_measure_sequences(engine *e, const bench_sequences *s, uint32_t n_runs,
                                      bench_figure *out, cellar_error *error);

#endif /* APP_BENCH_TOKENS_H */
