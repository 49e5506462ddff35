/*
 * samples.c: the clock and the median of samples.h.
 *
 * Of an even number of samples the median is the mean of the two in the middle. Nothing here fails: a
 * rate over no time at all, which only a clock that stands still can give, is 0.
 */
#define _POSIX_C_SOURCE 200809L

#include "bench/samples.h"

#include <stdlib.h>
#include <time.h>

double bench_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_spread bench_spread_of(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return (bench_spread){.median = (values[(n - 1) / 2] + values[n / 2]) / 2,
                          .least = values[0],
                          .most = values[n - 1]};
}

static double rate(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds : 0;
}

bench_spread bench_rate_of(bench_spread seconds, double amount)
{
    return (bench_spread){.median = rate(amount, seconds.median),
                          .least = rate(amount, seconds.most),
                          .most = rate(amount, seconds.least)};
}
