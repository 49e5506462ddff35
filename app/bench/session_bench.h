/*
 * session_bench.h: how fast sessions are saved and loaded, against copying as many bytes.
 *
 * A model's memory (16 layers, 8 K/V heads of 64 in f16: 32 KiB a token) of a given size is filled once by
 * one sequence, and once by two that were read token by token in turns, of which one is saved. What was
 * loaded is compared, byte by byte, with what was saved before anything is timed. Turn by turn, so that
 * all meet the same machine, the same bytes are copied from memory to memory, read from a file,
 * and written and synced to one. At last the conversation is resumed as by a program that has just begun:
 * memory made, file loaded, one token attended in every layer.
 */
#ifndef APP_BENCH_SESSION_BENCH_H
#define APP_BENCH_SESSION_BENCH_H

#include "bench/samples.h"
#include "cellar.h"

enum { SESSION_BENCH_MOST_FIGURES = 32 };

typedef struct session_figure {
    const char *whose, *name;
    bench_spread seconds;
    double bytes;
    int base; /* the figure that this one is held against; -1: none */
} session_figure;

typedef struct session_bench {
    uint64_t bytes;     /* of rows, at least 32 KiB */
    const char *folder; /* in which a folder is made for files of as many bytes */
    uint32_t n_runs, n_threads, cpu_mask;
    bool (*go_on)(void *context, const char *what); /* asked between two calls; false: stop */
    void *context;

    uint32_t n_tokens; /* that are saved */
    session_figure figures[SESSION_BENCH_MOST_FIGURES];
    uint32_t n;
} session_bench;

/* Bytes of memory that the measurement takes. */
uint64_t session_bench_bytes(const session_bench *b);

/*
 * Fill in the figures. The folder is gone again whatever is returned. What the library returns;
 * CELLAR_IO; CELLAR_NO_MEMORY; CELLAR_REFUSED: stopped; CELLAR_CORRUPT: what was loaded is not what was
 * saved.
 */
cellar_status session_bench_run(session_bench *b, cellar_error *error);

#endif /* APP_BENCH_SESSION_BENCH_H */
