/*
 * bench_session.c: `cellar bench session`: how fast sessions are saved and loaded.
 *
 * The measuring is session_bench.h's; here are the options, the progress line and the table. The files are
 * gone when the command ends, also when it fails or is stopped by a signal; the exit code is then 128 and the
 * signal. Exit code 1: no room, or what was loaded is not what was saved.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/session_bench.h"
#include "cli/bench_command.h"
#include "cli/commands.h"
#include "cli/memory_options.h"
#include "cli/stop_signal.h"
#include "cli/terminal.h"
#include "cpu_choice.h"

const char bench_session_help[] =
    "cellar bench session [OPTIONS]\n"
    "\n"
    "Measure how fast sessions are saved and loaded, to and from files and memory,\n"
    "and how that compares to copying, reading and writing the same bytes in the same\n"
    "run: one sequence, then one of two that were read token by token in turns. At\n"
    "last a conversation is resumed as by a program that has just begun. No model is\n"
    "needed; the memory is that of 16 layers with 8 heads of 64 in f16, 32 KiB a\n"
    "token. What is loaded is compared with what was saved. Times are medians; a\n"
    "ratio is that of the best runs.\n"
    "\n"
    "Options\n"
    "      --size MIB        of keys and values, default 256\n"
    "      --folder DIR      where a folder for the files is made, and removed;\n"
    "                        default: TMPDIR, or /tmp. Needs three times the size\n"
    "  -t, --threads N       default: one for each processor, at most 64\n"
    "  -r, --runs N          samples of each figure, default 5\n"
    "      --cpu NAME        scalar, avx2, avx512, neon or all (CELLAR_CPU, or all)\n"
    "      --json            the figures as JSON\n"
    "  -h, --help            this text\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong options, 130 stopped by Ctrl-C, 143 by\n"
    "SIGTERM; the files are gone then, too.\n"
    "\n"
    "Examples\n"
    "  cellar bench session\n"
    "  cellar bench session --size 64 --folder /var/tmp -t 1 --json | jq .figures\n";

typedef struct request {
    int64_t size, n_threads, n_runs;
    const char *folder, *cpu;
    uint32_t cpu_mask;
    bool is_json;
    session_bench bench;
    progress_line line;
} request;

static options_result parse(int argc, char **argv, request *r, cellar_error *error)
{
    const option table[] = {
        option_integer(0, "size", &r->size, 1, 1 << 16),
        option_text(0, "folder", &r->folder),
        option_integer('t', "threads", &r->n_threads, 1, 512),
        option_integer('r', "runs", &r->n_runs, 1, BENCH_MOST_RUNS),
        option_text(0, "cpu", &r->cpu),
        option_flag(0, "json", &r->is_json),
    };
    const options_result result = options_parse(table, sizeof table / sizeof *table, argc, argv,
                                                NULL, 0, NULL, error);
    if (result != OPTIONS_OK) {
        return result;
    }
    if (r->folder == NULL || *r->folder == '\0') {
        const char *temporary = getenv("TMPDIR");
        r->folder = temporary != NULL && *temporary != '\0' ? temporary : "/tmp";
    }
    return cpu_choice_take(r->cpu, &r->cpu_mask, error) == CELLAR_OK ? OPTIONS_OK : OPTIONS_WRONG;
}

/* ---- showing -------------------------------------------------------------------------------- */

static double rate_of(const session_figure *f)
{
    return f->seconds.median > 0 ? f->bytes / f->seconds.median : 0;
}

/* How many times as fast as its base it is, each at its best: what else the machine does is no part of it. */
static double ratio_of(const session_bench *b, const session_figure *f)
{
    const session_figure *base = f->base >= 0 ? &b->figures[f->base] : NULL;
    if (base == NULL || !(base->seconds.least > 0 && f->seconds.least > 0)) {
        return 0;
    }
    return f->bytes / f->seconds.least / (base->bytes / base->seconds.least);
}

static void print_text(const session_bench *b, const machine_description *m)
{
    const char *whose = "";
    bench_print_machine(m);
    printf("session    %" PRIu32 " tokens of 32 KiB, %" PRIu32 " thread%s; median of %" PRIu32 "\n",
           b->n_tokens, b->n_threads, b->n_threads == 1 ? "" : "s", b->n_runs);
    printf("%-28s %9s %9s %9s %9s\n", "", "MB", "time", "GB/s", "ratio");
    for (uint32_t i = 0; i < b->n; i++) {
        const session_figure *f = &b->figures[i];
        if (strcmp(whose, f->whose) != 0) {
            whose = f->whose;
            printf("%s\n", whose);
        }
        printf("  %-26s %9.1f %9s %9.2f", f->name, f->bytes / 1e6,
               bench_time_of(f->seconds.median).text, rate_of(f) / 1e9);
        if (f->base >= 0) {
            printf(" %9.2f of %s", ratio_of(b, f), b->figures[f->base].name);
        }
        printf("\n");
    }
}

static void print_json(const session_bench *b, const machine_description *m)
{
    json_t *figures = json_array();
    for (uint32_t i = 0; i < b->n; i++) {
        const session_figure *f = &b->figures[i];
        json_t *figure = json_pack("{s:s, s:s, s:f, s:f, s:s}", "sequences", f->whose, "what",
                                   f->name, "bytes", f->bytes, "bytes_per_second", rate_of(f),
                                   "unit", "ns");
        bench_add_spread(figure, f->seconds, 1e9);
        if (figure != NULL && f->base >= 0) {
            json_object_set_new(figure, "against", json_string(b->figures[f->base].name));
            json_object_set_new(figure, "ratio", json_real(ratio_of(b, f)));
        }
        json_array_append_new(figures, figure);
    }
    bench_print_json(json_pack("{s:o, s:I, s:I, s:I, s:o}", "machine", bench_machine_json(m),
                               "tokens", (json_int_t)b->n_tokens, "threads",
                               (json_int_t)b->n_threads, "runs", (json_int_t)b->n_runs, "figures",
                               figures));
}

/* ---- the command ---------------------------------------------------------------------------- */

static bool show_progress(void *context, const char *what)
{
    progress_line_show(&((request *)context)->line, "%s", what);
    return stop_signal_caught() == 0;
}

int bench_session(int argc, char **argv)
{
    request r = {.size = 256, .n_runs = 5};
    cellar_error error = {.status = CELLAR_OK};
    const options_result parsed = parse(argc, argv, &r, &error);
    if (parsed != OPTIONS_OK) {
        return bench_end_options(parsed, argv[0], bench_session_help, &error);
    }
    r.bench = (session_bench){.bytes = (uint64_t)r.size << 20,
                              .folder = r.folder,
                              .n_runs = (uint32_t)r.n_runs,
                              .n_threads = memory_options_threads(r.n_threads),
                              .cpu_mask = r.cpu_mask,
                              .go_on = show_progress,
                              .context = &r};
    r.line = progress_line_init();
    stop_signal_catch(); /* before there are files */
    cellar_status status = machine_has_room(session_bench_bytes(&r.bench), "a session of that size",
                                            &error);
    if (status == CELLAR_OK) {
        status = session_bench_run(&r.bench, &error);
    }
    progress_line_erase(&r.line);
    if (status != CELLAR_OK) {
        const int code = bench_fail(argv[0], NULL, &error);
        return stop_signal_caught() != 0 ? EXIT_CODE_SIGNAL + stop_signal_caught() : code;
    }
    const machine_description m = machine_describe(r.cpu_mask);
    (r.is_json ? print_json : print_text)(&r.bench, &m);
    return EXIT_CODE_OK;
}
