/*
 * support_bench.h: taking samples and keeping figures.
 *
 * A figure is the median of several samples, with the spread of the middle half. Sections of the
 * measurement add figures; bench_memory.c prints them all at the end, as tables or as JSON. Every call
 * that should work is checked; if one fails the program ends with exit code 1, because figures of a
 * memory that does not do what it should are worth nothing.
 */
#ifndef SUPPORT_BENCH_H
#define SUPPORT_BENCH_H

#include <cellar.h>

enum { BENCH_MOST_SAMPLES = 41, BENCH_MOST_FIGURES = 512 };

typedef struct figure {
    const char *section, *name, *unit; /* "ns", "bytes" */
    uint32_t cells, sequences;         /* of the memory; 0: does not matter */
    double median, low, high;
    double gflops, gbytes; /* of attention, a second; 0: not known */
} figure;

typedef struct figures {
    figure item[BENCH_MOST_FIGURES];
    uint32_t n;
    uint32_t n_samples; /* taken for each */
    const char *cpu;    /* what attention ran on */
} figures;

double bench_now(void); /* ns */

/* End the program unless status is CELLAR_OK. */
void bench_must(cellar_status status, const char *what, const cellar_error *error);

/* End the program unless it is so. */
void bench_claim(bool is_so, const char *claim);

/* Never NULL; contents are zeros. To be freed. */
void *bench_allocate(size_t n, size_t size);

/* Add the median of figures->n_samples samples, which are sorted. */
figure *bench_add(figures *all, figure what, double *samples);

/* Add an exact number. */
void bench_add_exact(figures *all, figure what, double value);

/* A step of n tokens; seqs NULL: of sequence 0. */
void bench_begin(cellar_memory *memory, const cellar_seq *seqs, uint32_t n);

/* Open a step, write zeros into layer 0 (or say that it is done) and commit. */
void bench_read(cellar_memory *memory, const cellar_seq *seqs, uint32_t n, const float *zeros);

/* The same for n tokens of one sequence, 512 at a time. */
void bench_fill(cellar_memory *memory, cellar_seq seq, uint32_t n, const float *zeros);

/* What there is to measure; each in the file of its name. */
void bench_operations(figures *all, uint32_t n_cells, uint32_t n_sequences);
void bench_window(figures *all, uint32_t n_sequences);
void bench_recurrent(figures *all, uint32_t n_sequences);
void bench_checkpoints(figures *all);
void bench_masks(figures *all, uint32_t n_cells);
void bench_bytes(figures *all);
void bench_attention(figures *all, cellar_type type, uint32_t depth);

#endif /* SUPPORT_BENCH_H */
