/*
 * bench_model.c: `cellar bench model` and `cellar bench parallel`: tokens a second.
 *
 * The measuring is tokens.h's, the counting of bytes and operations work.h's; here are the options, the engine
 * that is just large enough, and the figures with the machine they were found on. Nothing fails for being
 * slow: exit code 1 means that the model could not be opened or run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench/work.h"
#include "cli/bench_command.h"
#include "cli/commands.h"
#include "cli/memory_options.h"
#include "cli/model_file.h"
#include "cpu_choice.h"
#include "report.h"

enum { MOST_DEPTHS = 16, MOST_TOKENS = 1 << 24 };

#define OPTIONS_OF_BOTH                                                                            \
    "  -m, --model FILE      a GGUF model; default: the built-in storyteller\n"                    \
    "      --no-mmap         read the whole model into memory\n"                                   \
    "      --cache-type-k TYPE, --cache-type-v TYPE, in short --ctk, --ctv\n"                      \
    "                        how keys and values are stored, as for 'cellar run'\n"                \
    "      --cache-rotate WHAT  turn them by a Hadamard matrix: none, k, v or both\n"              \
    "  -c, --cells N         default: as many as are needed\n"                                     \
    "  -t, --threads N       default: one for each processor, at most 64\n"                        \
    "      --ubatch N        most tokens computed at once, default 512\n"                          \
    "      --exact           never round activations, as for 'cellar run'\n"                       \
    "  -r, --runs N          runs of each figure, default 3\n"                                     \
    "      --roofline        measure the machine, too, and say how near its limits\n"              \
    "                        the best runs come; needs 512 MiB and about a second\n"               \
    "      --cpu NAME        scalar, avx2, avx512, neon or all (CELLAR_CPU, or all)\n"             \
    "      --json            the figures as JSON\n"                                                \
    "  -h, --help            this text\n"

const char bench_model_help[] =
    "cellar bench model [OPTIONS]\n"
    "\n"
    "Measure tokens a second: the median of several runs, the least and the most. A\n"
    "prompt is read at once (pp), and tokens are generated one by one (tg), behind\n"
    "texts of given lengths.\n"
    "\n"
    "Options\n"
    "  -p, --prompt N        tokens of the prompt, default 512; 0: none\n"
    "  -n, --predict N       tokens to generate, default 128; 0: none\n"
    "  -d, --depth N,N,...   tokens that stand before, default 0; at most 16 "
    "lengths\n" OPTIONS_OF_BOTH "\n"
    "Examples\n"
    "  cellar bench model -m model.gguf -t 2 --roofline\n"
    "  cellar bench model -m model.gguf -p 0 -n 32 -d 0,4096 --ctk q8_0\n";

const char bench_parallel_help[] =
    "cellar bench parallel [OPTIONS]\n"
    "\n"
    "Measure tokens a second of several sequences that generate at once and go on\n"
    "from one prefix: the median of several runs, the least and the most; tokens of\n"
    "all together are counted.\n"
    "\n"
    "Options\n"
    "  -s, --sequences N     sequences that generate, default 8\n"
    "      --prefix N        tokens they have in common, default 1024\n"
    "  -n, --predict N       tokens that each generates, default 64\n"
    "      --no-share        let every sequence read and keep a prefix of its own\n" OPTIONS_OF_BOTH
    "\n"
    "Examples\n"
    "  cellar bench parallel -m model.gguf -s 8 --prefix 1024 -n 64\n"
    "  cellar bench parallel -m model.gguf --no-share --json | jq .figures\n";

typedef struct request {
    const char *model, *cpu, *depth_list;
    memory_options memory;
    int64_t n_prompt, n_predict, n_runs, n_sequences, n_prefix;
    uint32_t depths[MOST_DEPTHS], n_depths, cpu_mask;
    bool is_parallel, is_apart, no_mmap, is_json, has_roofline;
    engine_options engine; /* what the engine was made with */
} request;

/* What was measured. */
typedef struct results {
    bench_figure figures[2 * MOST_DEPTHS];
    bench_work work[2 * MOST_DEPTHS];
    const char *names[2 * MOST_DEPTHS];
    uint32_t n;
    uint32_t n_threads, n_cells;
    cellar_statistics memory;
    machine_limits limits; /* with --roofline */
} results;

/* ---- options -------------------------------------------------------------------------------- */

static options_result parse(int argc, char **argv, request *r, cellar_error *error)
{
    const option common[] = {
        option_text('m', "model", &r->model),
        option_flag(0, "no-mmap", &r->no_mmap),
        option_text(0, "cpu", &r->cpu),
        option_flag(0, "json", &r->is_json),
        option_flag(0, "roofline", &r->has_roofline),
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
    if (bench_read_list("depth", r->depth_list, 0, MOST_TOKENS, r->depths, MOST_DEPTHS,
                        &r->n_depths, error) != CELLAR_OK) {
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

static cellar_status make_engine(request *r, const model *m, engine **out, cellar_error *error)
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
    r->engine = options;
    return engine_create(m, &options, out, error);
}

static cellar_status measure(const request *r, engine *e, results *found, cellar_error *error)
{
    const uint32_t n_runs = (uint32_t)r->n_runs;
    if (r->is_parallel) {
        const bench_sequences s = sequences_of(r);
        found->names[found->n] = "parallel";
        found->work[found->n] = bench_work_of_sequences(e, &r->engine, &s);
        return bench_measure_sequences(e, &s, n_runs, &found->figures[found->n++], error);
    }
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < 2 * r->n_depths && status == CELLAR_OK; i++) {
        const bool is_generation = i % 2 != 0;
        const uint32_t n = (uint32_t)(is_generation ? r->n_predict : r->n_prompt);
        if (n > 0) {
            found->names[found->n] = is_generation ? "tg" : "pp";
            found->work[found->n] = bench_work_of(e, &r->engine, is_generation, n,
                                                  r->depths[i / 2]);
            status = bench_measure(e, is_generation, n, r->depths[i / 2], n_runs,
                                   &found->figures[found->n++], error);
        }
    }
    return status;
}

/* ---- showing -------------------------------------------------------------------------------- */

/* Seconds that the best run took; it is held against the best that the machine did. */
static double seconds_of(const bench_figure *f)
{
    return f->rate.most > 0 ? f->n / f->rate.most : 0;
}

static double share(double amount, double seconds, double limit)
{
    return seconds > 0 && limit > 0 ? amount / seconds / limit : 0;
}

static void print_roofline(const results *found)
{
    const double read = found->limits.many[MACHINE_READ].most;
    const double fma = found->limits.many[MACHINE_FMA].most;
    printf("roofline   %.1f GB/s read, %.1f GFLOP/s of f32 in cache, %" PRIu32 " thread%s\n",
           read / 1e9, fma / 1e9, found->limits.n_threads, found->limits.n_threads == 1 ? "" : "s");
    printf("%-10s %8s %8s %12s %10s %12s %10s\n", "best runs", "tokens", "depth", "GB/s",
           "of memory", "GFLOP/s", "of f32");
    for (uint32_t i = 0; i < found->n; i++) {
        const bench_figure *f = &found->figures[i];
        const bench_work *w = &found->work[i];
        const double s = seconds_of(f);
        printf("%-10s %8" PRIu32 " %8" PRIu32 " %12.2f %9.0f%% %12.2f %9.0f%%\n", found->names[i],
               f->n, f->depth, share(w->bytes, s, 1e9), 100 * share(w->bytes, s, read),
               share(w->operations, s, 1e9), 100 * share(w->operations, s, fma));
    }
}

static void print_text(const request *r, const results *found, const machine_description *m)
{
    bench_print_machine(m);
    printf("memory     %" PRIu32 " cells, %.1f MiB, K %s, V %s; %" PRIu32 " thread%s\n",
           found->n_cells, (double)found->memory.sizes.total / (1024 * 1024),
           memory_type_names[r->memory.k_type], memory_type_names[r->memory.v_type],
           found->n_threads, found->n_threads == 1 ? "" : "s");
    if (r->is_parallel) {
        printf("sequences  %d of %d tokens each, prefix of %d %s\n", (int)r->n_sequences,
               (int)r->n_predict, (int)r->n_prefix, r->is_apart ? "not shared" : "shared");
    }
    printf("%-10s %8s %8s %12s %12s %12s\n", "tokens/s", "tokens", "depth", "median", "least",
           "most");
    for (uint32_t i = 0; i < found->n; i++) {
        const bench_figure *f = &found->figures[i];
        printf("%-10s %8" PRIu32 " %8" PRIu32 " %12.2f %12.2f %12.2f\n", found->names[i], f->n,
               f->depth, f->rate.median, f->rate.least, f->rate.most);
    }
    if (r->has_roofline) {
        print_roofline(found);
    }
}

static json_t *figure_json(const request *r, const results *found, uint32_t i)
{
    const bench_figure *f = &found->figures[i];
    const bench_work *w = &found->work[i];
    json_t *figure = json_pack("{s:s, s:I, s:I, s:f, s:f}", "what", found->names[i], "tokens",
                               (json_int_t)f->n, "depth", (json_int_t)f->depth, "bytes", w->bytes,
                               "operations", w->operations);
    bench_add_spread(figure, f->rate, 1);
    if (figure != NULL && r->has_roofline) {
        const double s = seconds_of(f);
        json_object_set_new(figure, "of_memory",
                            json_real(share(w->bytes, s, found->limits.many[MACHINE_READ].most)));
        json_object_set_new(
            figure, "of_f32",
            json_real(share(w->operations, s, found->limits.many[MACHINE_FMA].most)));
    }
    return figure;
}

static void print_json(const request *r, const results *found, const machine_description *m)
{
    json_t *figures = json_array();
    for (uint32_t i = 0; i < found->n; i++) {
        json_array_append_new(figures, figure_json(r, found, i));
    }
    json_t *document = json_pack(
        "{s:o, s:I, s:I, s:I, s:s, s:s, s:I}", "machine", bench_machine_json(m), "threads",
        (json_int_t)found->n_threads, "cells", (json_int_t)found->n_cells, "memory_bytes",
        (json_int_t)found->memory.sizes.total, "cache_type_k", memory_type_names[r->memory.k_type],
        "cache_type_v", memory_type_names[r->memory.v_type], "runs", (json_int_t)r->n_runs);
    if (document != NULL && r->is_parallel) {
        json_object_set_new(document, "sequences", json_integer(r->n_sequences));
        json_object_set_new(document, "shared", json_boolean(!r->is_apart));
    }
    if (document != NULL && r->has_roofline) {
        json_object_set_new(document, "limits", bench_limits_json(&found->limits));
    }
    if (document != NULL) {
        json_object_set_new(document, "figures", figures);
    } else {
        json_decref(figures);
    }
    bench_print_json(document);
}

/* ---- the command ---------------------------------------------------------------------------- */

static cellar_status measure_machine(const request *r, results *found, cellar_error *error)
{
    const machine_limits_options options = {
        .cpu_mask = r->cpu_mask, .n_threads = found->n_threads, .bytes = 256u << 20, .n_runs = 7};
    return r->has_roofline ? machine_measure(&options, &found->limits, error) : CELLAR_OK;
}

static const char *part_of(const request *r)
{
    return r->is_parallel ? "parallel" : "model";
}

static int run(request *r, model_file *opened, engine **e)
{
    cellar_error error;
    results found = {.n_threads = memory_options_threads(r->memory.n_threads)};
    if (model_file_open(r->model, r->no_mmap, opened, &error) != CELLAR_OK) {
        return bench_fail(part_of(r), model_file_name(r->model), &error);
    }
    if (opened->model->encoder != NULL) {
        report(&error, CELLAR_UNSUPPORTED, -1,
               "models of architecture %s, which have an encoder, are not measured",
               opened->model->architecture->name);
        return bench_fail(part_of(r), model_file_name(r->model), &error);
    }
    if (make_engine(r, opened->model, e, &error) != CELLAR_OK ||
        measure(r, *e, &found, &error) != CELLAR_OK ||
        cellar_stats(engine_memory(*e), &found.memory, &error) != CELLAR_OK ||
        measure_machine(r, &found, &error) != CELLAR_OK) {
        return bench_fail(part_of(r), NULL, &error);
    }
    found.n_cells = engine_cells(*e);
    const machine_description m = machine_describe(r->cpu_mask);
    (r->is_json ? print_json : print_text)(r, &found, &m);
    return EXIT_CODE_OK;
}

int bench_model(int argc, char **argv)
{
    const bool is_parallel = strcmp(argv[0], "parallel") == 0;
    request r = {.memory = memory_options_defaults(),
                 .depth_list = "0",
                 .n_prompt = 512,
                 .n_predict = is_parallel ? 64 : 128,
                 .n_runs = 3,
                 .n_sequences = 8,
                 .n_prefix = 1024,
                 .is_parallel = is_parallel};
    cellar_error error = {.status = CELLAR_OK};
    const options_result parsed = parse(argc, argv, &r, &error);
    if (parsed != OPTIONS_OK) {
        return bench_end_options(parsed, argv[0],
                                 is_parallel ? bench_parallel_help : bench_model_help, &error);
    }
    model_file opened = {.file = NULL};
    engine *e = NULL;
    const int code = run(&r, &opened, &e);
    engine_destroy(e);
    model_file_close(&opened);
    return code;
}
