/*
 * command_bench.c: `cellar bench model` and `cellar bench parallel`: tokens a second.
 *
 * The measuring is bench_model.c's; here are the options, the engine that is just large enough, and the
 * figures with the machine they were found on, for a person or as JSON. Nothing fails for being slow:
 * exit code 1 means that the model could not be opened or run.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/json_text.h"
#include "cli/memory_options.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cpu_choice.h"
#include "report.h"

enum { MOST_DEPTHS = 16, MOST_TOKENS = 1 << 24 };

const char command_bench_help[] =
    "cellar bench model [OPTIONS]\n"
    "cellar bench parallel [OPTIONS]\n"
    "\n"
    "Measure tokens a second: the median of several runs, the least and the most.\n"
    "'model' reads a prompt at once (pp) and generates token by token (tg), behind\n"
    "texts of given lengths. 'parallel' generates in several sequences at once that\n"
    "go on from one prefix; tokens of all together are counted.\n"
    "\n"
    "Options of model\n"
    "  -p, --prompt N        tokens of the prompt, default 512; 0: none\n"
    "  -n, --predict N       tokens to generate, default 128; 0: none\n"
    "  -d, --depth N,N,...   tokens that stand before, default 0; at most 16 lengths\n"
    "\n"
    "Options of parallel\n"
    "  -s, --sequences N     sequences that generate, default 8\n"
    "      --prefix N        tokens they have in common, default 1024\n"
    "  -n, --predict N       tokens that each generates, default 64\n"
    "      --no-share        let every sequence read and keep a prefix of its own\n"
    "\n"
    "Options of both\n"
    "  -m, --model FILE      a GGUF model; default: the built-in storyteller\n"
    "      --no-mmap         read the whole model into memory\n"
    "      --cache-type-k TYPE, --cache-type-v TYPE, in short --ctk, --ctv\n"
    "                        how keys and values are stored, as for 'cellar run'\n"
    "      --cache-rotate WHAT  turn them by a Hadamard matrix: none, k, v or both\n"
    "  -c, --cells N         default: as many as are needed\n"
    "  -t, --threads N       default: one for each processor, at most 64\n"
    "      --ubatch N        most tokens computed at once, default 512\n"
    "  -r, --runs N          runs of each figure, default 3\n"
    "      --cpu NAME        scalar, avx2, avx512, neon or all (CELLAR_CPU, or all)\n"
    "      --json            the figures as JSON\n"
    "  -h, --help            this text\n"
    "\n"
    "Examples\n"
    "  cellar bench model -m model.gguf -t 2\n"
    "  cellar bench model -m model.gguf -p 0 -n 32 -d 0,4096 --ctk q8_0\n"
    "  cellar bench parallel -m model.gguf -s 8 --prefix 1024 -n 64\n"
    "  cellar bench parallel -m model.gguf --no-share --json | jq .figures\n";

typedef struct request {
    const char *model, *cpu, *depth_list;
    memory_options memory;
    int64_t n_prompt, n_predict, n_runs, n_sequences, n_prefix;
    uint32_t depths[MOST_DEPTHS], n_depths, cpu_mask;
    bool is_parallel, is_apart, no_mmap, is_json;
} request;

/* What was measured. */
typedef struct results {
    bench_figure figures[2 * MOST_DEPTHS];
    const char *names[2 * MOST_DEPTHS];
    uint32_t n;
    uint32_t n_threads, n_cells;
    cellar_statistics memory;
} results;

/* ---- options -------------------------------------------------------------------------------- */

static bool read_depths(request *r, cellar_error *error)
{
    const char *at = r->depth_list;
    for (;;) {
        char *end = NULL;
        errno = 0;
        const long long depth = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (errno != 0 || depth < 0 || depth > MOST_TOKENS || r->n_depths == MOST_DEPTHS ||
            (*end != ',' && *end != '\0')) {
            report(error, CELLAR_INVALID, -1,
                   "option --depth: expected 1 to %d whole numbers in 0..%d with commas between, "
                   "found '%.60s'",
                   (int)MOST_DEPTHS, (int)MOST_TOKENS, r->depth_list);
            return false;
        }
        r->depths[r->n_depths++] = (uint32_t)depth;
        if (*end == '\0') {
            return true;
        }
        at = end + 1;
    }
}

static options_result parse(int argc, char **argv, request *r, cellar_error *error)
{
    const option common[] = {
        option_text('m', "model", &r->model),
        option_flag(0, "no-mmap", &r->no_mmap),
        option_text(0, "cpu", &r->cpu),
        option_flag(0, "json", &r->is_json),
        option_integer('r', "runs", &r->n_runs, 1, BENCH_MOST_RUNS),
        MEMORY_OPTIONS(&r->memory),
        option_integer('n', "predict", &r->n_predict, r->is_parallel, MOST_TOKENS),
    };
    enum { N_COMMON = sizeof common / sizeof common[0] };
    option table[N_COMMON + 3];
    size_t n = N_COMMON;
    memcpy(table, common, sizeof common);
    if (r->is_parallel) {
        table[n++] = option_integer('s', "sequences", &r->n_sequences, 1, 1024);
        table[n++] = option_integer(0, "prefix", &r->n_prefix, 0, MOST_TOKENS);
        table[n++] = option_flag(0, "no-share", &r->is_apart);
    } else {
        table[n++] = option_integer('p', "prompt", &r->n_prompt, 0, MOST_TOKENS);
        table[n++] = option_text('d', "depth", &r->depth_list);
    }
    options_result result = options_parse(table, n, argc, argv, NULL, 0, NULL, error);
    if (result != OPTIONS_OK) {
        return result;
    }
    if (!read_depths(r, error)) {
        return OPTIONS_WRONG;
    }
    if (!r->is_parallel && r->n_prompt == 0 && r->n_predict == 0) {
        report(error, CELLAR_INVALID, -1, "nothing to measure: give -p or -n more than 0");
        return OPTIONS_WRONG;
    }
    return cpu_choice_take(r->cpu, &r->cpu_mask, error) == CELLAR_OK ? OPTIONS_OK : OPTIONS_WRONG;
}

/* ---- measuring ------------------------------------------------------------------------------ */

static bench_sequences sequences_of(const request *r)
{
    return (bench_sequences){.n_sequences = (uint32_t)r->n_sequences,
                             .n_prefix = (uint32_t)r->n_prefix,
                             .n_generated = (uint32_t)r->n_predict,
                             .is_apart = r->is_apart};
}

static uint64_t cells_needed(const request *r)
{
    if (r->is_parallel) {
        const bench_sequences s = sequences_of(r);
        return bench_sequences_cells(&s);
    }
    uint64_t deepest = 0;
    for (uint32_t i = 0; i < r->n_depths; i++) {
        deepest = r->depths[i] > deepest ? r->depths[i] : deepest;
    }
    return deepest + (uint64_t)(r->n_prompt > r->n_predict ? r->n_prompt : r->n_predict);
}

static cellar_status make_engine(const request *r, const model *m, engine **out,
                                 cellar_error *error)
{
    memory_options memory = r->memory;
    const uint64_t needed = cells_needed(r);
    if (needed > MEMORY_MOST_CELLS) {
        return report(error, CELLAR_INVALID, -1,
                      "%" PRIu64 " cells are needed, but a memory has %d at most: ask for less",
                      needed, MEMORY_MOST_CELLS);
    }
    if (memory.n_cells == 0) {
        memory.n_cells = needed < 2 ? 2 : (int64_t)needed;
    }
    engine_options options;
    cellar_status status = memory_options_apply(&memory, m, &options, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const bench_sequences s = sequences_of(r);
    options.cpu_mask = r->cpu_mask;
    options.n_sequences = r->is_parallel ? bench_sequences_count(&s) : 2;
    return engine_create(m, &options, out, error);
}

static cellar_status measure(const request *r, engine *e, results *found, cellar_error *error)
{
    const uint32_t n_runs = (uint32_t)r->n_runs;
    if (r->is_parallel) {
        const bench_sequences s = sequences_of(r);
        found->names[found->n] = "parallel";
        return bench_measure_sequences(e, &s, n_runs, &found->figures[found->n++], error);
    }
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < 2 * r->n_depths && status == CELLAR_OK; i++) {
        const bool is_generation = i % 2 != 0;
        const uint32_t n = (uint32_t)(is_generation ? r->n_predict : r->n_prompt);
        if (n > 0) {
            found->names[found->n] = is_generation ? "tg" : "pp";
            status = bench_measure(e, is_generation, n, r->depths[i / 2], n_runs,
                                   &found->figures[found->n++], error);
        }
    }
    return status;
}

/* ---- showing -------------------------------------------------------------------------------- */

/* The processor as the system calls it, printable ASCII alone. */
static void name_processor(char *to, size_t size)
{
    char line[256];
    snprintf(to, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL && colon[1] != '\0') {
            snprintf(to, size, "%s", colon + 2);
            to[strcspn(to, "\n")] = '\0';
            break;
        }
    }
    for (char *c = to; *c != '\0'; c++) {
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void print_text(const request *r, const results *found, const char *processor)
{
    printf("processor  %s, %" PRIu32 " thread%s, kernels %s\n", processor, found->n_threads,
           found->n_threads == 1 ? "" : "s", cpu_choice_name(r->cpu_mask));
    printf("memory     %" PRIu32 " cells, %.1f MiB, K %s, V %s\n", found->n_cells,
           (double)found->memory.sizes.total / (1024 * 1024), memory_type_names[r->memory.k_type],
           memory_type_names[r->memory.v_type]);
    if (r->is_parallel) {
        printf("sequences  %d of %d tokens each, prefix of %d %s\n", (int)r->n_sequences,
               (int)r->n_predict, (int)r->n_prefix, r->is_apart ? "not shared" : "shared");
    }
    printf("%-10s %8s %8s %12s %12s %12s\n", "tokens/s", "tokens", "depth", "median", "least",
           "most");
    for (uint32_t i = 0; i < found->n; i++) {
        const bench_figure *f = &found->figures[i];
        printf("%-10s %8" PRIu32 " %8" PRIu32 " %12.2f %12.2f %12.2f\n", found->names[i], f->n,
               f->depth, f->median, f->least, f->most);
    }
}

static void print_json(const request *r, const results *found, const char *processor)
{
    json_t *figures = json_array();
    for (uint32_t i = 0; i < found->n; i++) {
        const bench_figure *f = &found->figures[i];
        json_array_append_new(figures,
                              json_pack("{s:s, s:I, s:I, s:f, s:f, s:f}", "what", found->names[i],
                                        "tokens", (json_int_t)f->n, "depth", (json_int_t)f->depth,
                                        "median", f->median, "least", f->least, "most", f->most));
    }
    json_t *document = json_pack(
        "{s:s, s:I, s:s, s:I, s:I, s:s, s:s, s:I, s:o}", "processor", processor, "threads",
        (json_int_t)found->n_threads, "kernels", cpu_choice_name(r->cpu_mask), "cells",
        (json_int_t)found->n_cells, "memory_bytes", (json_int_t)found->memory.sizes.total,
        "cache_type_k", memory_type_names[r->memory.k_type], "cache_type_v",
        memory_type_names[r->memory.v_type], "runs", (json_int_t)r->n_runs, "figures", figures);
    if (document != NULL && r->is_parallel) {
        json_object_set_new(document, "sequences", json_integer(r->n_sequences));
        json_object_set_new(document, "shared", json_boolean(!r->is_apart));
    }
    json_text_print(document, 2);
    putchar('\n');
    json_decref(document);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int report_failure(const request *r, const char *subject, const cellar_error *error)
{
    cellar_error name; /* report() leaves only what a terminal may see */
    report(&name, error->status, -1, "%s: ", subject != NULL ? subject : "");
    fprintf(stderr, "cellar bench %s: %s%s\n", r->is_parallel ? "parallel" : "model",
            subject != NULL ? name.message : "", error->message);
    return EXIT_CODE_FAILED;
}

static int run(const request *r, model_file *opened, engine **e)
{
    cellar_error error;
    results found = {.n = 0};
    if (model_file_open(r->model, r->no_mmap, opened, &error) != CELLAR_OK) {
        return report_failure(r, model_file_name(r->model), &error);
    }
    if (opened->model->encoder != NULL) {
        report(&error, CELLAR_UNSUPPORTED, -1,
               "models of architecture %s, which have an encoder, are not measured",
               opened->model->architecture->name);
        return report_failure(r, model_file_name(r->model), &error);
    }
    if (make_engine(r, opened->model, e, &error) != CELLAR_OK ||
        measure(r, *e, &found, &error) != CELLAR_OK ||
        cellar_stats(engine_memory(*e), &found.memory, &error) != CELLAR_OK) {
        return report_failure(r, NULL, &error);
    }
    found.n_threads = memory_options_threads(r->memory.n_threads);
    found.n_cells = engine_cells(*e);
    char processor[128];
    name_processor(processor, sizeof processor);
    (r->is_json ? print_json : print_text)(r, &found, processor);
    return EXIT_CODE_OK;
}

int command_bench(int argc, char **argv)
{
    const bool is_parallel = argc > 1 && strcmp(argv[1], "parallel") == 0;
    if (!is_parallel && (argc < 2 || strcmp(argv[1], "model") != 0)) {
        fputs("cellar bench: what? model or parallel\nSee 'cellar help bench'.\n", stderr);
        return EXIT_CODE_USAGE;
    }
    request r = {.memory = memory_options_defaults(),
                 .depth_list = "0",
                 .n_prompt = 512,
                 .n_predict = is_parallel ? 64 : 128,
                 .n_runs = 3,
                 .n_sequences = 8,
                 .n_prefix = 1024,
                 .is_parallel = is_parallel};
    cellar_error error = {.status = CELLAR_OK};
    options_result parsed = parse(argc - 1, argv + 1, &r, &error);
    if (parsed == OPTIONS_HELP) {
        fputs(command_bench_help, stdout);
        return EXIT_CODE_OK;
    }
    if (parsed == OPTIONS_WRONG) {
        fprintf(stderr, "cellar bench %s: %s\nSee 'cellar help bench'.\n", argv[1], error.message);
        return EXIT_CODE_USAGE;
    }
    model_file opened = {.file = NULL};
    engine *e = NULL;
    const int code = run(&r, &opened, &e);
    engine_destroy(e);
    model_file_close(&opened);
    return code;
}
