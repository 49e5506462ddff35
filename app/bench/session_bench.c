/*
 * session_bench.c: the measuring of session_bench.h.
 *
 * A memory that is loaded into is the one that was saved, cleared: its rows have been used before, so no page
 * is touched for the first time while the clock runs. (Resuming is measured with fresh pages.) What is
 * written last finds the disk busy, so saving and plain writing take that place in turns.
 */
#include "bench/session_bench.h"

#include <stdlib.h>
#include <string.h>

#include "bench/session_files.h"
#include "engine/threads.h"
#include "report.h"

enum {
    LAYERS = 16,
    HEADS = 16,
    KV_HEADS = 8,
    SIZE = 64,
    UBATCH = 512,
    TOKEN_BYTES = LAYERS * KV_HEADS * SIZE * 2 * 2,
    ROW = KV_HEADS * SIZE,
};

/* What is timed, in the order of the figures. */
enum {
    COPY,
    READ,
    WRITE,
    SAVE,
    LOAD,
    SAVE_BYTES,
    LOAD_BYTES,
    CHECK,
    WAYS,
};

typedef struct session_work {
    session_bench *bench;
    session_files files;
    cellar_layer layers[LAYERS];
    float *rows, *q, *out; /* of a micro-batch */
    threads *threads;
    cellar_memory *memory;
    unsigned char *bytes, *again; /* [capacity] the session; room for as much */
    size_t size, capacity, n_written;
    cellar_error *error;
} session_work;

static cellar_status go_on(const session_work *w, const char *what)
{
    const session_bench *b = w->bench;
    return b->go_on == NULL || b->go_on(b->context, what)
               ? CELLAR_OK
               : report(w->error, CELLAR_REFUSED, -1, "stopped");
}

/* ---- the memory ----------------------------------------------------------------------------- */

static cellar_status create(session_work *w, cellar_memory **out)
{
    cellar_config config = cellar_config_init();
    config.n_layers = LAYERS;
    config.layers = w->layers;
    config.n_cells = w->bench->n_tokens + UBATCH;
    config.n_ubatch = UBATCH;
    config.cpu_mask = w->bench->cpu_mask;
    config.workers = (cellar_workers){threads_count(w->threads), threads_run, w->threads};
    return cellar_create(&config, out, w->error);
}

/* One step: rows of the layers differ, and from step to step. */
static cellar_status read_step(session_work *w, const cellar_seq *seqs, uint32_t n, uint32_t done)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.seqs = seqs;
    cellar_status status = cellar_begin(w->memory, &batch, w->error);
    for (uint32_t l = 0; l < LAYERS && status == CELLAR_OK; l++) {
        const float *rows = w->rows + (done / UBATCH + l) % 7;
        status = cellar_store(w->memory, 0, l, rows, rows + 1, w->error);
    }
    return status == CELLAR_OK ? cellar_commit(w->memory, w->error) : status;
}

/* n_sequences sequences that are read token by token in turns. */
static cellar_status fill(session_work *w, uint32_t n_sequences)
{
    cellar_seq seqs[UBATCH];
    cellar_status status = cellar_clear(w->memory, w->error);
    for (uint32_t i = 0; i < UBATCH; i++) {
        seqs[i] = (cellar_seq)(i % n_sequences);
    }
    for (uint32_t done = 0, n; done < w->bench->n_tokens && status == CELLAR_OK; done += n) {
        n = w->bench->n_tokens - done < UBATCH ? w->bench->n_tokens - done : UBATCH;
        status = go_on(w, "filling the memory");
        if (status == CELLAR_OK) {
            status = read_step(w, seqs, n, done);
        }
    }
    return status;
}

/* One token more, in every layer. */
static cellar_status attend_token(session_work *w, cellar_memory *memory)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    cellar_status status = cellar_begin(memory, &batch, w->error);
    for (uint32_t l = 0; l < LAYERS && status == CELLAR_OK; l++) {
        status = cellar_store(memory, 0, l, w->rows, w->rows, w->error);
        if (status == CELLAR_OK) {
            status = cellar_attend(memory, 0, l, w->q, w->out, w->error);
        }
    }
    return status == CELLAR_OK ? cellar_commit(memory, w->error) : status;
}

/* ---- saving and loading sequence 0 ---------------------------------------------------------- */

static cellar_save_options save_options(void)
{
    static const cellar_seq first[1] = {0};
    cellar_save_options options = cellar_save_options_init();
    options.sequences = first;
    options.n_sequences = 1;
    return options;
}

static cellar_status save(session_work *w)
{
    const cellar_save_options options = save_options();
    return cellar_save_session(w->memory, &options, w->files.session, w->error);
}

static bool take_bytes(void *context, const void *bytes, size_t size)
{
    session_work *w = context;
    if (size > w->capacity - w->n_written) {
        return false;
    }
    memcpy(w->again + w->n_written, bytes, size);
    w->n_written += size;
    return true;
}

static cellar_status save_bytes(session_work *w)
{
    const cellar_save_options options = save_options();
    const cellar_writer writer = {take_bytes, w};
    w->n_written = 0;
    return cellar_write_session(w->memory, &options, &writer, w->error);
}

/* From the file, or from bytes; or only checked. */
static cellar_status load(session_work *w, cellar_memory *memory, bool is_bytes, bool is_checked)
{
    const cellar_load_options options = cellar_load_options_init();
    cellar_session *session = NULL;
    cellar_status status =
        is_bytes ? cellar_open_session_bytes(w->bytes, w->size, NULL, &session, w->error)
                 : cellar_open_session(w->files.session, NULL, &session, w->error);
    if (status == CELLAR_OK) {
        status = is_checked ? cellar_check_session(session, w->error)
                            : cellar_load_session(memory, session, &options, w->error);
    }
    cellar_close_session(session);
    return status;
}

static cellar_status run_way(session_work *w, int way)
{
    switch (way) {
    case COPY:
        memcpy(w->again, w->bytes, w->size);
        return CELLAR_OK;
    case READ:
        return session_files_read(w->files.session, w->again, w->size, w->error);
    case WRITE:
        return session_files_write(w->files.plain, w->bytes, w->size, w->error);
    case SAVE:
        return save(w);
    case LOAD:
    case LOAD_BYTES:
        return load(w, w->memory, way == LOAD_BYTES, false);
    case SAVE_BYTES:
        return save_bytes(w);
    default:
        return load(w, NULL, false, true);
    }
}

/* ---- samples -------------------------------------------------------------------------------- */

/* What is loaded is saved as the same bytes; these stay in w->bytes. */
static cellar_status prove(session_work *w)
{
    cellar_status status = session_files_size(w->files.session, &w->size, w->error);
    if (status == CELLAR_OK && w->size > w->capacity) {
        return report(w->error, CELLAR_CORRUPT, -1, "the session is larger than was expected");
    }
    if (status == CELLAR_OK) {
        status = session_files_read(w->files.session, w->bytes, w->size, w->error);
    }
    if (status == CELLAR_OK) {
        status = cellar_clear(w->memory, w->error);
    }
    if (status == CELLAR_OK) {
        status = load(w, w->memory, true, false);
    }
    if (status == CELLAR_OK) {
        status = cellar_check(w->memory, w->error);
    }
    if (status == CELLAR_OK) {
        status = save_bytes(w);
    }
    if (status == CELLAR_OK &&
        (w->n_written != w->size || memcmp(w->again, w->bytes, w->size) != 0)) {
        return report(w->error, CELLAR_CORRUPT, -1, "what was loaded is not what was saved");
    }
    return status;
}

/*
 * One sample of each way. Loading takes the place of what is in the memory, which then has one sequence, in
 * one stretch: where two are to be saved they are read anew.
 */
static cellar_status sample(session_work *w, uint32_t n_sequences, double *const *seconds,
                            uint32_t run)
{
    static const int orders[2][WAYS] = {
        {COPY, WRITE, SAVE_BYTES, READ, SAVE, CHECK, LOAD, LOAD_BYTES},
        {COPY, SAVE, SAVE_BYTES, READ, WRITE, CHECK, LOAD, LOAD_BYTES}};
    cellar_status status = n_sequences > 1 ? fill(w, n_sequences) : CELLAR_OK;
    for (int i = 0; i < WAYS && status == CELLAR_OK; i++) {
        const int way = orders[run % 2][i];
        status = go_on(w, "saving and loading");
        if (status == CELLAR_OK && (way == LOAD || way == LOAD_BYTES)) {
            status = cellar_clear(w->memory, w->error);
        }
        const double began = bench_now();
        if (status == CELLAR_OK) {
            status = run_way(w, way);
        }
        seconds[way][run] = bench_now() - began;
    }
    return status;
}

static int add(session_bench *b, const char *whose, const char *name, double *seconds, double bytes,
               int base)
{
    b->figures[b->n] = (session_figure){.whose = whose,
                                        .name = name,
                                        .seconds = bench_spread_of(seconds, b->n_runs),
                                        .bytes = bytes,
                                        .base = base};
    return (int)b->n++;
}

static cellar_status measure(session_work *w, const char *whose, uint32_t n_sequences)
{
    static const struct {
        const char *name;
        int base;
    } ways[WAYS] = {
        [COPY] = {"memcpy", -1},
        [READ] = {"read a file", COPY},
        [WRITE] = {"write and sync a file", COPY},
        [SAVE] = {"save to a file", WRITE},
        [LOAD] = {"load from a file", COPY},
        [SAVE_BYTES] = {"save to memory", COPY},
        [LOAD_BYTES] = {"load from memory", COPY},
        [CHECK] = {"check a file", COPY},
    };
    double samples[WAYS][BENCH_MOST_RUNS], *seconds[WAYS];
    for (int way = 0; way < WAYS; way++) {
        seconds[way] = samples[way];
    }
    cellar_status status = fill(w, n_sequences);
    if (status == CELLAR_OK) {
        status = save(w);
    }
    if (status == CELLAR_OK) {
        status = prove(w);
    }
    if (status == CELLAR_OK) {
        status = sample(w, n_sequences, seconds, 0); /* warm */
    }
    for (uint32_t i = 0; i < w->bench->n_runs && status == CELLAR_OK; i++) {
        status = sample(w, n_sequences, seconds, i);
    }
    const int first = (int)w->bench->n;
    for (int way = 0; way < WAYS && status == CELLAR_OK; way++) {
        const int base = ways[way].base;
        add(w->bench, whose, ways[way].name, seconds[way], (double)w->size,
            base < 0 ? -1 : first + base);
    }
    return status;
}

/* ---- resuming ------------------------------------------------------------------------------- */

static cellar_status resume(session_work *w, bool is_cold, double *seconds)
{
    cellar_memory *memory = NULL;
    cellar_status status = go_on(w, "resuming");
    if (status == CELLAR_OK && is_cold) {
        status = session_files_drop(w->files.session, w->error);
    }
    const double began = bench_now();
    if (status == CELLAR_OK) {
        status = create(w, &memory);
    }
    if (status == CELLAR_OK) {
        status = load(w, memory, false, false);
    }
    if (status == CELLAR_OK) {
        status = attend_token(w, memory);
    }
    *seconds = bench_now() - began;
    cellar_destroy(memory);
    return status;
}

/* Of sequence 0 alone; the memory that it came from is gone by then. */
static cellar_status measure_resuming(session_work *w)
{
    static const char *const names[2] = {"file cached", "file not cached"};
    cellar_status status = fill(w, 1);
    if (status == CELLAR_OK) {
        status = save(w);
    }
    cellar_destroy(w->memory);
    w->memory = NULL;
    for (int is_cold = 0; is_cold < 2; is_cold++) {
        double seconds[BENCH_MOST_RUNS];
        if (status == CELLAR_OK) {
            status = resume(w, is_cold, seconds); /* warm, but for the file */
        }
        for (uint32_t i = 0; i < w->bench->n_runs && status == CELLAR_OK; i++) {
            status = resume(w, is_cold, &seconds[i]);
        }
        if (status == CELLAR_OK) {
            add(w->bench, "resumed by a new program", names[is_cold], seconds,
                (double)w->bench->n_tokens * TOKEN_BYTES, COPY);
        }
    }
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------ */

uint64_t session_bench_bytes(const session_bench *b)
{
    return 4 * b->bytes +
           (64u << 20); /* a memory, two buffers, what is read and written meanwhile */
}

static float *random_numbers(size_t n, uint32_t seed)
{
    float *numbers = malloc(n * sizeof *numbers);
    for (size_t i = 0; numbers != NULL && i < n; i++) {
        seed = seed * 1664525u + 1013904223u; /* Knuth's constants for 2^32 */
        numbers[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
    return numbers;
}

static cellar_status open_work(session_work *w, session_bench *b, cellar_error *error)
{
    *w = (session_work){.bench = b, .error = error};
    const uint64_t n_tokens = b->bytes / TOKEN_BYTES;
    const uint64_t capacity = b->bytes + b->bytes / 8 + (1 << 20);
    if (n_tokens < 1 || n_tokens > (1 << 29) || capacity > SIZE_MAX) {
        return report(error, CELLAR_INVALID, -1, "a session cannot have that size");
    }
    b->n_tokens = (uint32_t)n_tokens;
    for (uint32_t l = 0; l < LAYERS; l++) {
        w->layers[l] = cellar_layer_init();
        w->layers[l].n_heads = HEADS;
        w->layers[l].n_kv_heads = KV_HEADS;
        w->layers[l].k_size = w->layers[l].v_size = SIZE;
        w->layers[l].rope.kind = CELLAR_ROPE_NEOX;
    }
    w->capacity = (size_t)capacity;
    w->rows = random_numbers((size_t)UBATCH * ROW + 8, 1);
    w->q = random_numbers((size_t)HEADS * SIZE, 2);
    w->out = random_numbers((size_t)HEADS * SIZE, 3);
    w->bytes = malloc(w->capacity);
    w->again = malloc(w->capacity);
    if (w->rows == NULL || w->q == NULL || w->out == NULL || w->bytes == NULL || w->again == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1,
                      "no memory for the session's bytes: ask for less");
    }
    cellar_status status = threads_create(b->n_threads, &w->threads, error);
    if (status == CELLAR_OK) {
        status = create(w, &w->memory);
    }
    /* A session, the one that takes its place, and the plain file. */
    return status == CELLAR_OK ? session_files_make(b->folder, 3 * capacity, &w->files, error)
                               : status;
}

static void close_work(session_work *w)
{
    cellar_destroy(w->memory);
    threads_destroy(w->threads);
    free(w->rows);
    free(w->q);
    free(w->out);
    free(w->bytes);
    free(w->again);
}

cellar_status session_bench_run(session_bench *b, cellar_error *error)
{
    session_work w;
    cellar_status status = open_work(&w, b, error);
    if (status == CELLAR_OK) {
        status = measure(&w, "one sequence", 1);
    }
    if (status == CELLAR_OK) {
        status = measure(&w, "one of two in turns", 2);
    }
    if (status == CELLAR_OK) {
        status = measure_resuming(&w);
    }
    /* Files that stay are worth telling, but not in the place of what else went wrong. */
    const bool is_well = status == CELLAR_OK || status == CELLAR_REFUSED;
    const cellar_status removed = session_files_remove(&w.files, is_well ? error : NULL);
    close_work(&w);
    return is_well && removed != CELLAR_OK ? removed : status;
}
