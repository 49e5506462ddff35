/*
 * work.h: the bytes that a model has to read for its tokens and the operations it has to do: the other
 * half of a roofline, beside the machine's limits.
 *
 * Counted is what nothing can spare: every matrix once for each micro-batch, of experts those that are
 * asked; the K and V rows that are seen, once for each micro-batch, a shared prefix once for all; two
 * operations for each multiply-add of weights and attention. Recurrent scans, norms, activations and traffic
 * of activations are not counted. So bytes and operations a second are what arrived of use, at least.
 */
#ifndef APP_BENCH_WORK_H
#define APP_BENCH_WORK_H

#include "bench/tokens.h"
#include "engine/engine.h"

typedef struct bench_work {
    double bytes, operations;
} bench_work;

/* Of a run of bench_measure. */
bench_work bench_work_of(const engine *e, const engine_options *options, bool is_generation,
                         uint32_t n, uint32_t depth);

/* Of a run of bench_measure_sequences. */
bench_work bench_work_of_sequences(const engine *e, const engine_options *options,
                                   const bench_sequences *s);

#endif /* APP_BENCH_WORK_H */
