/*
 * tokens.c: the measuring of tokens.h.
 *
 * What stands before a run is read once into sequence 0 and copied into the sequence of the run, which
 * shares its cells; after the run that sequence is removed. So a run costs what it measures, also
 * behind a long text. Only the time in engine_decode counts. The first failure ends a measurement, and
 * the memory is then left as the failed call left it.
 */
#include "bench/tokens.h"

#include <stdlib.h>

#include "report.h"

/* Buffers of one measurement, for batches of at most n_most tokens. */
typedef struct work {
    engine *e;
    cellar_token *tokens; /* [n_most] */
    cellar_seq *seqs;     /* [n_most] */
    uint32_t *wanted;     /* [n_most] */
    float *logits;        /* [n_rows][n_vocab] */
} work;

static cellar_status work_make(engine *e, uint32_t n_most, uint32_t n_rows, work *w,
                               cellar_error *error)
{
    const uint32_t n_vocab = engine_model(e)->n_vocab;
    *w = (work){.e = e,
                .tokens = calloc(n_most, sizeof *w->tokens),
                .seqs = calloc(n_most, sizeof *w->seqs),
                .wanted = calloc(n_most, sizeof *w->wanted),
                .logits = calloc((size_t)n_rows * n_vocab, sizeof *w->logits)};
    if (w->tokens == NULL || w->seqs == NULL || w->wanted == NULL || w->logits == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the tokens and logits of a run");
    }
    for (uint32_t i = 0; i < n_most; i++) {
        w->tokens[i] = (cellar_token)((i * UINT64_C(7919) + 13) % n_vocab);
        w->wanted[i] = i;
    }
    return CELLAR_OK;
}

static void work_free(work *w)
{
    free(w->tokens);
    free(w->seqs);
    free(w->wanted);
    free(w->logits);
}

/* Read the first n tokens into one sequence; of the last one the logits are wanted. */
static cellar_status read_together(work *w, cellar_seq seq, uint32_t n, cellar_error *error)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = w->tokens;
    batch.seqs = w->seqs;
    for (uint32_t i = 0; i < n; i++) {
        w->seqs[i] = seq;
    }
    const uint32_t last = n - 1;
    return engine_decode(w->e, &batch, &last, 1, w->logits, error);
}

/* n steps, in each of which sequences 1..n_sequences read a token and give logits. */
static cellar_status generate(work *w, uint32_t n_sequences, uint32_t n, cellar_error *error)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n_sequences;
    batch.tokens = w->tokens;
    batch.seqs = w->seqs;
    for (uint32_t i = 0; i < n_sequences; i++) {
        w->seqs[i] = (cellar_seq)(i + 1);
    }
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < n && status == CELLAR_OK; i++) {
        status = engine_decode(w->e, &batch, w->wanted, n_sequences, w->logits, error);
    }
    return status;
}

static bench_figure figure_of(double *seconds, uint32_t n_runs, uint32_t n, uint32_t depth)
{
    return (bench_figure){
        .n = n, .depth = depth, .rate = bench_rate_of(bench_spread_of(seconds, n_runs), n)};
}

/* ---- one sequence --------------------------------------------------------------------------- */

static cellar_status run_once(work *w, bool is_generation, uint32_t n, uint32_t depth,
                              double *seconds, cellar_error *error)
{
    cellar_memory *memory = engine_memory(w->e);
    cellar_status status = depth > 0 ? cellar_copy(memory, 0, 1, 0, -1, error) : CELLAR_OK;
    const double began = bench_now();
    if (status == CELLAR_OK) {
        status = is_generation ? generate(w, 1, n, error) : read_together(w, 1, n, error);
    }
    *seconds = bench_now() - began;
    return status == CELLAR_OK ? cellar_remove(memory, 1, 0, -1, error) : status;
}

cellar_status bench_measure(engine *e, bool is_generation, uint32_t n, uint32_t depth,
                            uint32_t n_runs, bench_figure *out, cellar_error *error)
{
    double seconds[BENCH_MOST_RUNS];
    work w;
    cellar_status status = work_make(e, n > depth ? n : depth, 1, &w, error);
    if (status == CELLAR_OK) {
        status = cellar_clear(engine_memory(e), error);
    }
    if (status == CELLAR_OK && depth > 0) {
        status = read_together(&w, 0, depth, error);
    }
    if (status == CELLAR_OK) { /* warm */
        status = run_once(&w, is_generation, is_generation && n > 2 ? 2 : n, depth, seconds, error);
    }
    for (uint32_t i = 0; i < n_runs && status == CELLAR_OK; i++) {
        status = run_once(&w, is_generation, n, depth, &seconds[i], error);
    }
    if (status == CELLAR_OK) {
        *out = figure_of(seconds, n_runs, n, depth);
    }
    work_free(&w);
    return status;
}

/* ---- several sequences ---------------------------------------------------------------------- */

uint64_t bench_sequences_cells(const bench_sequences *s)
{
    const uint64_t generated = (uint64_t)s->n_sequences * s->n_generated;
    return generated + (uint64_t)s->n_prefix * (s->is_apart ? s->n_sequences : 1);
}

uint32_t bench_sequences_count(const bench_sequences *s)
{
    return s->n_sequences + 1;
}

/* Give every sequence its prefix. Sequence 0 holds it where it is shared. */
static cellar_status prepare(work *w, const bench_sequences *s, cellar_error *error)
{
    cellar_memory *memory = engine_memory(w->e);
    cellar_status status = cellar_clear(memory, error);
    if (s->n_prefix > 0 && !s->is_apart && status == CELLAR_OK) {
        status = read_together(w, 0, s->n_prefix, error);
    }
    for (uint32_t i = 1; s->n_prefix > 0 && i <= s->n_sequences && status == CELLAR_OK; i++) {
        const cellar_seq seq = (cellar_seq)i;
        status = s->is_apart ? read_together(w, seq, s->n_prefix, error)
                             : cellar_copy(memory, 0, seq, 0, -1, error);
    }
    return status;
}

cellar_status bench_measure_sequences(engine *e, const bench_sequences *s, uint32_t n_runs,
                                      bench_figure *out, cellar_error *error)
{
    double seconds[BENCH_MOST_RUNS];
    work w;
    const uint32_t n_most = s->n_prefix > s->n_sequences ? s->n_prefix : s->n_sequences;
    cellar_status status = work_make(e, n_most, s->n_sequences, &w, error);
    for (uint32_t i = 0; i < n_runs && status == CELLAR_OK; i++) {
        status = prepare(&w, s, error);
        const double began = bench_now();
        if (status == CELLAR_OK) {
            status = generate(&w, s->n_sequences, s->n_generated, error);
        }
        seconds[i] = bench_now() - began;
    }
    if (status == CELLAR_OK) {
        *out = figure_of(seconds, n_runs, s->n_sequences * s->n_generated, s->n_prefix);
    }
    work_free(&w);
    return status;
}
