/*
 * memory_bench.c: the list of figures, and steps as all parts of the measurement need them.
 *
 * Parts run one after the other and stop at the first failure; figures found before it stay in the list.
 */
#include "bench/memory_bench.h"

#include <stdlib.h>

#include "report.h"

enum { FIRST_CAPACITY = 64, LEAST_FREE = 512, MOST_FREE = 2048 };

cellar_status memory_bench_add(memory_bench *b, memory_figure figure, cellar_error *error)
{
    if (b->n == b->capacity) {
        const uint32_t capacity = b->capacity > 0 ? 2 * b->capacity : FIRST_CAPACITY;
        memory_figure *larger = realloc(b->figures, capacity * sizeof *larger);
        if (larger == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for the figures");
        }
        b->figures = larger;
        b->capacity = capacity;
    }
    b->figures[b->n++] = figure;
    return CELLAR_OK;
}

cellar_status memory_bench_next(const memory_bench *b, const char *section, const char *name,
                                cellar_error *error)
{
    if (b->go_on != NULL && !b->go_on(b->context, section, name)) {
        return report(error, CELLAR_REFUSED, -1, "stopped");
    }
    return CELLAR_OK;
}

cellar_status memory_bench_begin(cellar_memory *memory, const cellar_seq *seqs, uint32_t n,
                                 cellar_error *error)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.seqs = seqs;
    return cellar_begin(memory, &batch, error);
}

cellar_status memory_bench_read(cellar_memory *memory, const cellar_seq *seqs, uint32_t n,
                                const float *rows, cellar_error *error)
{
    cellar_status status = memory_bench_begin(memory, seqs, n, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const uint32_t n_ubatches = cellar_count_ubatches(memory);
    for (uint32_t u = 0; u < n_ubatches && status == CELLAR_OK; u++) {
        status = rows != NULL ? cellar_store(memory, u, 0, rows, rows, error)
                              : cellar_confirm(memory, u, 0, error);
    }
    if (status == CELLAR_OK) {
        status = cellar_commit(memory, error);
    }
    if (status != CELLAR_OK) {
        cellar_abort(memory);
    }
    return status;
}

cellar_status memory_bench_fill(cellar_memory *memory, cellar_seq seq, uint32_t n,
                                const float *rows, cellar_error *error)
{
    cellar_seq seqs[MEMORY_BENCH_BATCH];
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < MEMORY_BENCH_BATCH; i++) {
        seqs[i] = seq;
    }
    for (uint32_t part; n > 0 && status == CELLAR_OK; n -= part) {
        part = n < MEMORY_BENCH_BATCH ? n : MEMORY_BENCH_BATCH;
        status = memory_bench_read(memory, seqs, part, rows, error);
    }
    return status;
}

uint32_t memory_bench_tokens(const memory_bench *b, uint32_t n_sequences)
{
    const uint32_t part = b->n_cells / 16;
    const uint32_t n_free = part < LEAST_FREE ? LEAST_FREE : part > MOST_FREE ? MOST_FREE : part;
    return (b->n_cells - n_free) / n_sequences;
}

uint64_t memory_bench_bytes(const memory_bench *b)
{
    /* The largest mask, rows of a few bytes, counters and lists of runs of two memories. */
    return (uint64_t)b->n_cells * (MEMORY_BENCH_BATCH * sizeof(float) + 256) + (64u << 20);
}

cellar_status memory_bench_run(memory_bench *b, cellar_error *error)
{
    cellar_status status = memory_bench_worlds(b, error);
    if (status == CELLAR_OK) {
        status = memory_bench_kinds(b, error);
    }
    return status == CELLAR_OK ? memory_bench_attention(b, error) : status;
}
