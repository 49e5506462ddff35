/*
 * bench_memory.c: `cellar bench memory`: what each operation of the memory costs.
 *
 * The measuring is memory_bench.h's; here are the options, and the figures as a page: a row is an operation,
 * a column a world. Exit code 1: no memory, or cellar_check found something wrong; figures of a memory that
 * does not do what it should are worth nothing, so none are printed then.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/memory_bench.h"
#include "cli/bench_command.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cpu_choice.h"
#include "report.h"

enum { MOST_COUNTS = MEMORY_BENCH_MOST_COLUMNS / 2, ACROSS = 5 /* columns side by side */ };

const char bench_memory_help[] =
    "cellar bench memory [OPTIONS]\n"
    "\n"
    "Measure what each operation of libcellar costs: removing, forking, keeping,\n"
    "shifting, steps, questions, exports and masks, windows, states, checkpoints and\n"
    "attention; and the bytes of bookkeeping. No model is needed.\n"
    "\n"
    "Operations work on a memory that is full but for a few cells at its end, held by\n"
    "some sequences of equal length. 'apart': they were read one after the other;\n"
    "'turns': token by token in turns. Each is checked before it is timed.\n"
    "\n"
    "Options\n"
    "  -c, --cells N         cells of the memory, default 131072\n"
    "  -s, --sequences N,N,...  how many sequences hold it, default 1,16,64; at most\n"
    "                        8 numbers in 1..512\n"
    "  -r, --runs N          samples of each figure, default 7\n"
    "      --cpu NAME        scalar, avx2, avx512, neon or all (CELLAR_CPU, or all)\n"
    "      --json            the figures as JSON, in nanoseconds, with least and most\n"
    "  -h, --help            this text\n"
    "\n"
    "Examples\n"
    "  cellar bench memory\n"
    "  cellar bench memory -c 1048576 -s 1,1,512 -r 3\n"
    "  cellar bench memory --json | jq '.figures[] | select(.call == \"cellar_copy\")'\n";

typedef struct request {
    int64_t n_cells, n_runs;
    const char *sequences, *cpu;
    uint32_t cpu_mask;
    bool is_json;
    memory_bench bench;
    progress_line line;
} request;

/* ---- options -------------------------------------------------------------------------------- */

/* Every number of sequences apart, then those over one in turns. */
static cellar_status make_columns(request *r, cellar_error *error)
{
    uint32_t counts[MOST_COUNTS], n = 0;
    memory_bench *b = &r->bench;
    cellar_status status = bench_read_list("sequences", r->sequences, 1, MEMORY_BENCH_BATCH, counts,
                                           MOST_COUNTS, &n, error);
    if (status != CELLAR_OK) {
        return status;
    }
    for (int is_interleaved = 0; is_interleaved < 2; is_interleaved++) {
        for (uint32_t i = 0; i < n; i++) {
            if (!is_interleaved || counts[i] > 1) {
                b->columns[b->n_columns++] = (memory_column){counts[i], is_interleaved != 0};
            }
            if (memory_bench_tokens(b, counts[i]) < MEMORY_BENCH_LEAST_EACH) {
                return report(error, CELLAR_INVALID, -1,
                              "%" PRIu32 " sequences of at least %d tokens do not fit into %" PRIu32
                              " cells: give more --cells or fewer --sequences",
                              counts[i], MEMORY_BENCH_LEAST_EACH, b->n_cells);
            }
        }
    }
    return CELLAR_OK;
}

static options_result parse(int argc, char **argv, request *r, cellar_error *error)
{
    const option table[] = {
        option_integer('c', "cells", &r->n_cells, 4096, 1 << 24),
        option_text('s', "sequences", &r->sequences),
        option_integer('r', "runs", &r->n_runs, 1, BENCH_MOST_RUNS),
        option_text(0, "cpu", &r->cpu),
        option_flag(0, "json", &r->is_json),
    };
    const options_result result = options_parse(table, sizeof table / sizeof *table, argc, argv,
                                                NULL, 0, NULL, error);
    if (result != OPTIONS_OK) {
        return result;
    }
    r->bench.n_cells = (uint32_t)r->n_cells;
    r->bench.n_runs = (uint32_t)r->n_runs;
    if (make_columns(r, error) != CELLAR_OK ||
        cpu_choice_take(r->cpu, &r->cpu_mask, error) != CELLAR_OK) {
        return OPTIONS_WRONG;
    }
    r->bench.cpu_mask = r->cpu_mask;
    return OPTIONS_OK;
}

/* ---- text ----------------------------------------------------------------------------------- */

static const memory_figure *find(const memory_bench *b, const memory_figure *first, uint32_t column)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const memory_figure *f = &b->figures[i];
        if (f->column == column && strcmp(f->section, first->section) == 0 &&
            strcmp(f->name, first->name) == 0) {
            return f;
        }
    }
    return NULL;
}

/* The first figure of its name; each name is a row. */
static bool is_first(const memory_bench *b, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(b->figures[k].section, b->figures[i].section) == 0 &&
            strcmp(b->figures[k].name, b->figures[i].name) == 0) {
            return false;
        }
    }
    return true;
}

static double rate(double amount, const memory_figure *f)
{
    return f->seconds.median > 0 ? amount / f->seconds.median / 1e9 : 0;
}

static void print_bytes(double bytes)
{
    if (bytes < 1e4) {
        printf(" %7.0f B", bytes);
    } else if (bytes < 1e7) {
        printf(" %6.0f kB", bytes / 1e3);
    } else {
        printf(" %6.0f MB", bytes / 1e6);
    }
}

static void print_row(const memory_bench *b, const memory_figure *first, uint32_t from, uint32_t to)
{
    printf("  %-27s", first->name);
    for (uint32_t c = from; c < to; c++) {
        const memory_figure *f = find(b, first, c);
        if (f == NULL) {
            printf(" %9s", "-");
        } else if (f->seconds.median > 0) {
            printf(" %9s", bench_time_of(f->seconds.median).text);
        } else {
            print_bytes(f->bytes);
        }
    }
    printf("\n");
    if (strncmp(first->name, "mask", 4) == 0 || first->name[0] == '(') {
        printf("  %-27s", "  GB/s written");
        for (uint32_t c = from; c < to; c++) {
            const memory_figure *f = find(b, first, c);
            printf(" %9.2f", f != NULL ? rate(f->bytes, f) : 0);
        }
        printf("\n");
    }
}

/* The figures of columns from..to-1. */
static void print_columns(const memory_bench *b, uint32_t from, uint32_t to)
{
    const char *section = "";
    printf("\n%-29s", "sequences that hold it");
    for (uint32_t c = from; c < to; c++) {
        printf(" %9" PRIu32, b->columns[c].n_sequences);
    }
    printf("\n%-29s", "read apart or in turns");
    for (uint32_t c = from; c < to; c++) {
        printf(" %9s", b->columns[c].is_interleaved ? "turns" : "apart");
    }
    printf("\n");
    for (uint32_t i = 0; i < b->n; i++) {
        const memory_figure *f = &b->figures[i];
        if (f->operations > 0 || !is_first(b, i)) {
            continue;
        }
        if (strcmp(section, f->section) != 0) {
            section = f->section;
            printf("%s\n", section);
        }
        print_row(b, f, from, to);
    }
}

static void print_text(const request *r, const machine_description *m)
{
    const memory_bench *b = &r->bench;
    bench_print_machine(m);
    printf("memory     %" PRIu32 " cells; median time of a call, %" PRIu32 " samples\n", b->n_cells,
           b->n_runs);
    for (uint32_t from = 0; from < b->n_columns; from += ACROSS) {
        print_columns(b, from, b->n_columns - from < ACROSS ? b->n_columns : from + ACROSS);
    }
    printf("\n%-31s %9s %12s %12s\n", "attention behind 4,096, 9/3x64", "", "GFLOP/s",
           "GB/s of rows");
    for (uint32_t i = 0; i < b->n; i++) {
        const memory_figure *f = &b->figures[i];
        if (f->operations > 0) {
            printf("  %-29s %9s %12.2f %12.2f\n", f->name, bench_time_of(f->seconds.median).text,
                   rate(f->operations, f), rate(f->bytes, f));
        }
    }
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *figure_json(const memory_bench *b, const memory_figure *f)
{
    json_t *figure = json_pack("{s:s, s:s, s:s}", "section", f->section, "what", f->name, "call",
                               f->call);
    if (figure == NULL) {
        return NULL;
    }
    if (f->operations == 0) { /* attention has memories of its own */
        const memory_column *c = &b->columns[f->column];
        json_object_set_new(figure, "sequences", json_integer(c->n_sequences));
        json_object_set_new(figure, "in_turns", json_boolean(c->is_interleaved));
    } else {
        json_object_set_new(figure, "operations", json_real(f->operations));
    }
    if (f->bytes > 0) {
        json_object_set_new(figure, "bytes", json_real(f->bytes));
    }
    if (f->seconds.median > 0) {
        json_object_set_new(figure, "unit", json_string("ns"));
        bench_add_spread(figure, f->seconds, 1e9);
    }
    return figure;
}

static void print_json(const request *r, const machine_description *m)
{
    const memory_bench *b = &r->bench;
    json_t *figures = json_array();
    for (uint32_t i = 0; i < b->n; i++) {
        json_array_append_new(figures, figure_json(b, &b->figures[i]));
    }
    bench_print_json(json_pack("{s:o, s:I, s:I, s:o}", "machine", bench_machine_json(m), "cells",
                               (json_int_t)b->n_cells, "runs", (json_int_t)b->n_runs, "figures",
                               figures));
}

/* ---- the command ---------------------------------------------------------------------------- */

static bool show_progress(void *context, const char *section, const char *name)
{
    progress_line_show(&((request *)context)->line, "%s: %s", section, name);
    return true;
}

int bench_memory(int argc, char **argv)
{
    request r = {.n_cells = 131072, .n_runs = 7, .sequences = "1,16,64"};
    cellar_error error = {.status = CELLAR_OK};
    const options_result parsed = parse(argc, argv, &r, &error);
    if (parsed != OPTIONS_OK) {
        return bench_end_options(parsed, argv[0], bench_memory_help, &error);
    }
    r.bench.go_on = show_progress;
    r.bench.context = &r;
    r.line = progress_line_init();
    cellar_status status = machine_has_room(memory_bench_bytes(&r.bench), "measuring so many cells",
                                            &error);
    if (status == CELLAR_OK) {
        status = memory_bench_run(&r.bench, &error);
    }
    progress_line_erase(&r.line);
    if (status == CELLAR_OK) {
        const machine_description m = machine_describe(r.cpu_mask);
        (r.is_json ? print_json : print_text)(&r, &m);
    }
    free(r.bench.figures);
    return status == CELLAR_OK ? EXIT_CODE_OK : bench_fail(argv[0], NULL, &error);
}
