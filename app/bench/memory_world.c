/*
 * memory_world.c: worlds are made here, and operations timed in them.
 *
 * Making a world means reading every token of it, as a program would; a world with holes then loses every
 * eighth cell, one by one. Samples of calls that take less than the clock needs to be read are many calls
 * in a row. The first sample of each is not counted.
 */
#include "bench/memory_world.h"

#include <stdlib.h>

#include "report.h"

enum { HOLE_EVERY = 8 };

cellar_config memory_world_config(const memory_bench *b, cellar_layer *layer)
{
    cellar_config config = cellar_config_init();
    *layer = cellar_layer_init();
    layer->n_heads = layer->n_kv_heads = 1;
    layer->k_size = layer->v_size = 2;
    layer->rope.kind = CELLAR_ROPE_NORMAL; /* or shifting would be easier than it is */
    config.n_layers = 1;
    config.layers = layer;
    config.n_cells = b->n_cells;
    config.cpu_mask = b->cpu_mask;
    return config;
}

/* ---- making a world ------------------------------------------------------------------------- */

/* The sequence of token i of n, as a world's history goes. */
static cellar_seq sequence_of(const memory_column *c, uint32_t i, uint32_t n)
{
    return c->is_interleaved ? (cellar_seq)(i % c->n_sequences)
                             : (cellar_seq)((uint64_t)i * c->n_sequences / n);
}

static cellar_status fill(memory_world *w)
{
    const uint32_t n = w->n_each * w->column.n_sequences;
    cellar_seq seqs[MEMORY_BENCH_BATCH];
    cellar_status status = cellar_clear(w->memory, w->error);
    for (uint32_t done = 0, part; done < n && status == CELLAR_OK; done += part) {
        part = n - done < MEMORY_BENCH_BATCH ? n - done : MEMORY_BENCH_BATCH;
        for (uint32_t i = 0; i < part; i++) {
            seqs[i] = sequence_of(&w->column, done + i, n);
        }
        status = memory_bench_read(w->memory, seqs, part, w->rows, w->error);
    }
    return status;
}

typedef struct place {
    cellar_seq seq;
    cellar_pos pos;
} place;

typedef struct holes {
    place *places; /* [n_cells / HOLE_EVERY + 1] */
    uint32_t n;
} holes;

static bool note_holes(void *context, const cellar_run *run)
{
    holes *h = context;
    for (uint32_t i = 0; i < run->len; i++) {
        if ((run->cell + i) % HOLE_EVERY == HOLE_EVERY - 1) {
            h->places[h->n++] = (place){run->seq, run->pos + (cellar_pos)i};
        }
    }
    return true;
}

/* Free one cell in eight of those that are held. */
static cellar_status punch(memory_world *w)
{
    holes h = {.places = malloc((w->bench->n_cells / HOLE_EVERY + 1) * sizeof *h.places)};
    if (h.places == NULL) {
        return report(w->error, CELLAR_NO_MEMORY, -1, "no memory to note places");
    }
    cellar_status status = cellar_visit_runs(w->memory, -1, note_holes, &h, w->error);
    for (uint32_t i = h.n; i-- > 0 && status == CELLAR_OK;) {
        const place *p = &h.places[i];
        status = cellar_remove(w->memory, p->seq, p->pos, p->pos + 1, w->error);
    }
    free(h.places);
    return status;
}

/* The room at the end goes to a sequence of its own, so that only the holes are free. */
static cellar_status fill_end(memory_world *w)
{
    const uint32_t held = w->n_each * w->column.n_sequences;
    return memory_bench_fill(w->memory, MEMORY_WORLD_FORK - 1, w->bench->n_cells - held, w->rows,
                             w->error);
}

static cellar_status make(memory_world *w, bool has_holes)
{
    cellar_status status = fill(w);
    if (has_holes && status == CELLAR_OK) {
        status = fill_end(w);
    }
    w->has_holes = has_holes;
    return has_holes && status == CELLAR_OK ? punch(w) : status;
}

static cellar_status open_world(memory_world *w, const memory_bench *b, uint32_t column,
                                cellar_error *error)
{
    static const float zeros[2 * MEMORY_BENCH_BATCH];
    cellar_layer layer;
    const cellar_config config = memory_world_config(b, &layer);
    const uint32_t n = b->columns[column].n_sequences;
    *w = (memory_world){.bench = b,
                        .column = b->columns[column],
                        .n_each = memory_bench_tokens(b, n),
                        .rows = zeros,
                        .batch = calloc(MEMORY_BENCH_BATCH, sizeof *w->batch),
                        .each = calloc(n, sizeof *w->each),
                        .room = malloc((size_t)b->n_cells * MEMORY_BENCH_BATCH * sizeof(float)),
                        .error = error};
    if (w->batch == NULL || w->each == NULL || w->room == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1,
                      "no memory for masks of %d tokens: ask for fewer cells", MEMORY_BENCH_BATCH);
    }
    for (uint32_t i = 0; i < MEMORY_BENCH_BATCH; i++) {
        w->batch[i] = sequence_of(&w->column, i, MEMORY_BENCH_BATCH);
    }
    for (uint32_t i = 0; i < n; i++) {
        w->each[i] = (cellar_seq)i;
    }
    const cellar_status status = cellar_create(&config, &w->memory, error);
    return status == CELLAR_OK ? make(w, false) : status;
}

static void close_world(memory_world *w)
{
    cellar_destroy(w->memory);
    free(w->batch);
    free(w->each);
    free(w->room);
}

cellar_status memory_world_begin(memory_world *w)
{
    return memory_bench_begin(w->memory, w->batch, MEMORY_BENCH_BATCH, w->error);
}

/* ---- timing --------------------------------------------------------------------------------- */

static cellar_status sample(memory_world *w, const memory_operation *o, double *seconds)
{
    cellar_status status = o->before != NULL ? o->before(w) : CELLAR_OK;
    const double began = bench_now();
    for (uint32_t i = 0; i < o->n_calls && status == CELLAR_OK; i++) {
        status = o->call_it(w, i);
    }
    *seconds = (bench_now() - began) / o->n_calls;
    if (status == CELLAR_OK && o->after != NULL) {
        status = o->after(w);
    }
    if (status == CELLAR_OK && (o->flags & OPERATION_SPENDS) != 0) {
        status = cellar_check(w->memory, w->error);
        status = status == CELLAR_OK ? make(w, w->has_holes) : status;
    }
    return status;
}

static cellar_status measure(memory_bench *b, memory_world *w, const char *section, uint32_t column,
                             const memory_operation *o)
{
    double seconds[BENCH_MOST_RUNS] = {0};
    const bool has_holes = (o->flags & OPERATION_HOLES) != 0;
    cellar_status status = memory_bench_next(b, section, o->name, w->error);
    if (status == CELLAR_OK && has_holes != w->has_holes) {
        status = make(w, has_holes);
    }
    if (status == CELLAR_OK && (o->flags & OPERATION_IN_STEP) != 0) {
        status = memory_world_begin(w);
    }
    w->bytes = 0;
    if (status == CELLAR_OK) {
        status = sample(w, o, &seconds[0]);
    }
    if (status == CELLAR_OK) {
        status = cellar_check(w->memory, w->error);
    }
    for (uint32_t i = 0; i < b->n_runs && status == CELLAR_OK; i++) {
        status = sample(w, o, &seconds[i]);
    }
    cellar_abort(w->memory); /* if a step is open */
    if (status != CELLAR_OK) {
        return status;
    }
    return memory_bench_add(b,
                            (memory_figure){.section = section,
                                            .name = o->name,
                                            .call = o->call,
                                            .column = column,
                                            .seconds = bench_spread_of(seconds, b->n_runs),
                                            .bytes = w->bytes},
                            w->error);
}

/* What the bookkeeping of a world takes, once everything has been done in it. */
static cellar_status count_bytes(memory_bench *b, memory_world *w, uint32_t column)
{
    static const struct {
        const char *name;
        cellar_bytes_kind kind;
    } kinds[] = {
        {"counters of all cells", CELLAR_BYTES_CELLS},
        {"runs of all sequences", CELLAR_BYTES_RUNS},
        {"plan of the largest step", CELLAR_BYTES_STEP},
        {"the memory itself, scratch", CELLAR_BYTES_SCRATCH},
    };
    cellar_statistics statistics;
    cellar_status status = make(w, false);
    if (status == CELLAR_OK) {
        status = cellar_stats(w->memory, &statistics, w->error);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && status == CELLAR_OK; i++) {
        double bytes = (double)statistics.sizes.bytes[kinds[i].kind];
        if (kinds[i].kind == CELLAR_BYTES_SCRATCH) {
            bytes += (double)statistics.sizes.bytes[CELLAR_BYTES_OBJECT];
        }
        status = memory_bench_add(b,
                                  (memory_figure){.section = "bytes of bookkeeping",
                                                  .name = kinds[i].name,
                                                  .call = "cellar_stats",
                                                  .column = column,
                                                  .bytes = bytes},
                                  w->error);
    }
    return status;
}

cellar_status memory_bench_worlds(memory_bench *b, cellar_error *error)
{
    static const memory_section *const sections[] = {
        &memory_section_sequences, &memory_section_steps, &memory_section_questions,
        &memory_section_exports};
    cellar_status status = CELLAR_OK;
    for (uint32_t column = 0; column < b->n_columns && status == CELLAR_OK; column++) {
        memory_world w;
        status = open_world(&w, b, column, error);
        for (size_t s = 0; s < sizeof sections / sizeof *sections; s++) {
            for (uint32_t i = 0; i < sections[s]->n && status == CELLAR_OK; i++) {
                status = measure(b, &w, sections[s]->name, column, &sections[s]->operations[i]);
            }
        }
        if (status == CELLAR_OK) {
            status = count_bytes(b, &w, column);
        }
        close_world(&w);
    }
    return status;
}
