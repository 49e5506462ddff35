/*
 * memory_bench.h: what each operation of the memory costs, by itself, without a model.
 *
 * A world is a memory of full attention that is full but for a few cells at its end, held by some
 * sequences of equal length that were read one after the other (apart) or token by token in turns
 * (interleaved). Rows are as small as they can be, so what is timed is bookkeeping. A column of the figures
 * is a world; a row is an operation, for which a table says how it is prepared, called and undone.
 * Before an operation is timed it has been done once, and cellar_check has found nothing wrong after it.
 */
#ifndef APP_BENCH_MEMORY_BENCH_H
#define APP_BENCH_MEMORY_BENCH_H

#include "bench/samples.h"
#include "cellar.h"

enum {
    MEMORY_BENCH_BATCH = 512,       /* tokens of a large step */
    MEMORY_BENCH_MOST_COLUMNS = 16, /* worlds */
    MEMORY_BENCH_LEAST_EACH = 64,   /* tokens of a sequence */
};

/* What was measured of one operation in one world; in the other memories `column` is that of as many
 * sequences, apart. */
typedef struct memory_figure {
    const char *section, *name, *call; /* call: of cellar.h */
    uint32_t column;
    bench_spread seconds; /* of a call; all 0: this is a number of bytes */
    double bytes;         /* read or written by a call; 0: does not say anything */
    double operations;    /* of attention; 0: none */
} memory_figure;

typedef struct memory_column {
    uint32_t n_sequences;
    bool is_interleaved;
} memory_column;

typedef struct memory_bench {
    uint32_t n_cells, n_runs, cpu_mask;
    memory_column columns[MEMORY_BENCH_MOST_COLUMNS];
    uint32_t n_columns;
    /* Told before each operation; false: stop, with CELLAR_REFUSED. May be NULL. */
    bool (*go_on)(void *context, const char *section, const char *name);
    void *context;

    memory_figure *figures; /* [n] to be freed */
    uint32_t n, capacity;
} memory_bench;

/* Tokens of each of n sequences that fill the cells but for those at the end. */
uint32_t memory_bench_tokens(const memory_bench *b, uint32_t n_sequences);

/* Bytes that the largest buffers take beside the memories; what machine_has_room is to be asked for. */
uint64_t memory_bench_bytes(const memory_bench *b);

/*
 * Fill in the figures. What the library returns when something cannot be done (CELLAR_NO_MEMORY, above all),
 * and CELLAR_CORRUPT when cellar_check finds something wrong.
 */
cellar_status memory_bench_run(memory_bench *b, cellar_error *error);

/* ---- for the parts of the measurement ----------------------------------------------------------- */

/* Add a figure. CELLAR_NO_MEMORY. */
cellar_status memory_bench_add(memory_bench *b, memory_figure figure, cellar_error *error);

/* Ask go_on. */
cellar_status memory_bench_next(const memory_bench *b, const char *section, const char *name,
                                cellar_error *error);

/* A step of n tokens in the sequences seqs (NULL: 0) of a memory of one layer: begin, store or confirm,
 * commit. `rows` are its keys and values; NULL: it is confirmed. */
cellar_status memory_bench_read(cellar_memory *memory, const cellar_seq *seqs, uint32_t n,
                                const float *rows, cellar_error *error);

/* The first of these. */
cellar_status memory_bench_begin(cellar_memory *memory, const cellar_seq *seqs, uint32_t n,
                                 cellar_error *error);

/* n tokens of one sequence, a large step at a time. */
cellar_status memory_bench_fill(cellar_memory *memory, cellar_seq seq, uint32_t n,
                                const float *rows, cellar_error *error);

/* The operations on plain memories; on windows, states, checkpoints and such; attention. */
cellar_status memory_bench_worlds(memory_bench *b, cellar_error *error);
cellar_status memory_bench_kinds(memory_bench *b, cellar_error *error);
cellar_status memory_bench_attention(memory_bench *b, cellar_error *error);

#endif /* APP_BENCH_MEMORY_BENCH_H */
