/*
 * machine.h: the machine that figures were found on, and what it can do at all.
 *
 * The limits are those of a roofline (Williams, Waterman and Patterson, Communications of the ACM 52(4),
 * 2009): how fast memory can be read, written and copied, and how many multiply-adds of f32 the chosen
 * kernels do when their numbers lie in a core's own caches. Whatever a model does, it is bound by one of them.
 */
#ifndef APP_BENCH_MACHINE_H
#define APP_BENCH_MACHINE_H

#include <stddef.h>

#include "bench/samples.h"
#include "cellar.h"

typedef struct machine_description {
    char processor[128]; /* as the system calls it; printable ASCII, as all of these */
    char system[160];    /* kernel with its release, architecture */
    const char *compiler, *version, *kernels;
    uint32_t n_processors; /* that this process may run on */
    uint64_t memory;       /* bytes; 0: not known */
} machine_description;

/* Ask the system. What it does not tell is "unknown". */
machine_description machine_describe(uint32_t cpu_mask);

/* Bytes that can be had now without pushing others out; UINT64_MAX: not known. */
uint64_t machine_free_bytes(void);

/*
 * CELLAR_NO_MEMORY, with what is asked for and what there is, when the machine has not that much: a system
 * that promises memory it does not have would end the process later, without a word.
 */
cellar_status machine_has_room(uint64_t bytes, const char *what, cellar_error *error);

typedef struct machine_limits_options {
    uint32_t cpu_mask;  /* of the kernels */
    uint32_t n_threads; /* that "all" means, 1..512 */
    uint64_t bytes;     /* of memory that is read; more than all caches */
    uint32_t n_runs;    /* 1..BENCH_MOST_RUNS */
} machine_limits_options;

enum { MACHINE_READ, MACHINE_WRITE, MACHINE_COPY, MACHINE_FMA, MACHINE_LIMITS };

/* Bytes a second; of MACHINE_COPY bytes copied; of MACHINE_FMA operations, two for a multiply-add. */
typedef struct machine_limits {
    uint32_t n_threads;
    uint64_t bytes;                    /* that were read */
    bench_spread one[MACHINE_LIMITS];  /* with one thread */
    bench_spread many[MACHINE_LIMITS]; /* with n_threads at once, together */
} machine_limits;

/* Measure. CELLAR_NO_MEMORY, CELLAR_INVALID as threads_create. */
cellar_status machine_measure(const machine_limits_options *options, machine_limits *out,
                              cellar_error *error);

#endif /* APP_BENCH_MACHINE_H */
