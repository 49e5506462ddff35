/*
 * samples.h: times that were taken, and what is said of them.
 *
 * A figure is the median of several samples with the least and the most of them: the median is what to
 * expect, the distance between the others says how quiet the machine was. Before samples are taken the
 * same work has been done once, so that caches and pages are warm.
 */
#ifndef APP_BENCH_SAMPLES_H
#define APP_BENCH_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

enum { BENCH_MOST_RUNS = 100 };

typedef struct bench_spread {
    double median, least, most;
} bench_spread;

/* Seconds of a clock that never goes back. */
double bench_now(void);

/* Sorts values [n], 1 <= n. */
bench_spread bench_spread_of(double *values, uint32_t n);

/* Amount a second for a spread of seconds: the least comes from the most. */
bench_spread bench_rate_of(bench_spread seconds, double amount);

#endif /* APP_BENCH_SAMPLES_H */
