/*
 * replay.c: replay recorded runs of another engine and compare what comes out.
 *
 *   replay TRACE.json [MODEL.gguf] [--config ID] [--run NAME] [--exact] [--threads N] [--verbose]
 *
 * A trace (format kvgolden-1) is a list of runs; a run is a list of operations on one fresh memory,
 * with the logits and positions that the reference gave. Each run is one line:
 *
 *   ok   a_plain on f32: worst 2.1e-06 of 0.0001 standard deviations, 3 positions, 17 steps
 *
 * then comes a table of the worst differences by run and row types (K/V), and the last line is
 * `N passed, N failed, N skipped`. What is not built is skipped and says so.
 * The model is looked for beside the trace, in ../models/random/, unless it is named. CELLAR_CPU
 * chooses the kernels. With F16 and Q8_0 weights the reference rounds activations, and so does the
 * replayer, to see more than that rounding; --exact leaves it out, and then the bars are wider
 * (replay_compare.c). Exit code: 0, 1 when a run failed or a file cannot be read, 2 usage.
 */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "cpu_choice.h"
#include "engine/gguf.h"

typedef struct arguments {
    const char *files[2]; /* trace, model or NULL */
    const char *config, *run;
    int64_t n_threads;
    bool is_exact, is_verbose;
} arguments;

typedef struct totals {
    unsigned passed, failed, skipped;
    replay_table table;
} totals;

static int usage(const char *message)
{
    fprintf(stderr,
            "replay: %s\n"
            "usage: replay TRACE.json [MODEL.gguf] [--config ID] [--run NAME] [--exact]\n"
            "              [--threads N] [--verbose]\n",
            message);
    return 2;
}

/* ---- configurations ------------------------------------------------------------------------- */

static bool skip(replay_outcome *outcome, const char *reason)
{
    outcome->what = REPLAY_SKIPPED;
    snprintf(outcome->reason, sizeof outcome->reason, "%s", reason);
    return false;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text == NULL ? "" : text;
}

static const json_t *find_config(const json_t *trace, const char *id)
{
    size_t i;
    json_t *config;
    json_array_foreach(json_object_get(trace, "configs"), i, config) {
        if (strcmp(text_of(config, "id"), id) == 0) {
            return config;
        }
    }
    return NULL;
}

static bool read_type(const json_t *config, const char *name, cellar_type *out)
{
    static const struct {
        const char *name;
        cellar_type type;
    } types[] = {
        {"f32", CELLAR_F32}, {"f16", CELLAR_F16}, {"q8_0", CELLAR_Q8_0}, {"q4_0", CELLAR_Q4_0}};
    const char *type = text_of(config, name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        *out = types[i].type;
        if (strcmp(type, types[i].name) == 0) return true;
    }
    return false;
}

bool replay_read_config(const json_t *trace, const json_t *run, replay_config *out,
                        replay_outcome *outcome)
{
    const json_t *config = find_config(trace, text_of(run, "cfg"));
    json_int_t n_cells = json_integer_value(json_object_get(config, "n_ctx"));
    json_int_t n_ubatch = json_integer_value(json_object_get(config, "n_ubatch"));
    json_int_t n_sequences = json_integer_value(json_object_get(config, "n_seq_max"));
    if (config == NULL || n_cells < 1 || n_cells > 1 << 24 || n_ubatch < 1 || n_ubatch > 65536 ||
        n_sequences < 1 || n_sequences > 65536) {
        replay_fail(outcome, "the trace has no sensible configuration '%s'", text_of(run, "cfg"));
        return false;
    }
    *out = (replay_config){.id = text_of(config, "id"),
                           .n_cells = (uint32_t)n_cells,
                           .n_ubatch = (uint32_t)n_ubatch,
                           .n_sequences = (uint32_t)n_sequences};
    out->is_window_full = json_is_true(json_object_get(config, "swa_full"));
    out->n_pools = json_is_true(json_object_get(config, "kv_unified")) ? 1 : out->n_sequences;
    if (!read_type(config, "type_k", &out->k_type) || !read_type(config, "type_v", &out->v_type)) {
        snprintf(outcome->reason, sizeof outcome->reason, "rows of %.40s and %.40s are not built",
                 text_of(config, "type_k"), text_of(config, "type_v"));
        outcome->what = REPLAY_SKIPPED;
        return false;
    }
    /* With flash attention the reference casts rows of f32 to f16. */
    if (json_is_true(json_object_get(config, "flash_attn"))) {
        if (out->k_type == CELLAR_F32) out->k_type = CELLAR_F16;
        if (out->v_type == CELLAR_F32) out->v_type = CELLAR_F16;
    }
    return true;
}

/* ---- the trace ------------------------------------------------------------------------------ */

static void print_outcome(const char *name, const char *config, const replay_outcome *outcome,
                          double bar)
{
    if (outcome->what == REPLAY_SKIPPED) {
        printf("skip %s on %s: %s\n", name, config, outcome->reason);
    } else if (outcome->what == REPLAY_FAILED) {
        printf("FAIL %s on %s: %s; worst %.2g of %g standard deviations, %u positions, %u steps\n",
               name, config, outcome->reason, outcome->worst, bar, (unsigned)outcome->n_positions,
               (unsigned)outcome->n_steps);
    } else {
        printf("ok   %s on %s: worst %.2g of %g standard deviations, %u positions, %u steps", name,
               config, outcome->worst, bar, (unsigned)outcome->n_positions,
               (unsigned)outcome->n_steps);
        if (outcome->n_wrong > 0) {
            printf("; %u where the reference is wrong", (unsigned)outcome->n_wrong);
        }
        printf("\n");
    }
    fflush(stdout);
}

static bool is_chosen(const arguments *a, const json_t *run)
{
    return (a->config == NULL || strcmp(a->config, text_of(run, "cfg")) == 0) &&
           (a->run == NULL || strcmp(a->run, text_of(run, "name")) == 0);
}

/* One run; with a model that is not supported (m NULL) it is skipped for `reason`. */
static void replay_one(const model *m, const char *reason, const json_t *trace, const json_t *run,
                       const replay_settings *settings, totals *sum)
{
    replay_outcome outcome = {.what = REPLAY_PASSED};
    replay_config config = {0};
    double bar = 0;
    if (m == NULL) {
        skip(&outcome, reason);
    } else if (replay_read_config(trace, run, &config, &outcome)) {
        bar = replay_bar(m, &config, settings->is_exact);
        replay_run(m, &config, run, settings, &outcome);
    }
    print_outcome(text_of(run, "name"), text_of(run, "cfg"), &outcome, bar);
    if (outcome.what != REPLAY_SKIPPED && outcome.n_positions > 0) {
        replay_table_add(&sum->table, text_of(run, "name"), &config, outcome.worst);
    }
    sum->passed += outcome.what == REPLAY_PASSED;
    sum->failed += outcome.what == REPLAY_FAILED;
    sum->skipped += outcome.what == REPLAY_SKIPPED;
}

static int replay_trace(const arguments *a, const model *m, const char *reason, const json_t *trace,
                        const replay_settings *settings)
{
    totals sum = {0};
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(trace, "runs"), i, run) {
        if (is_chosen(a, run)) {
            replay_one(m, reason, trace, run, settings, &sum);
        }
    }
    if (sum.passed + sum.failed + sum.skipped == 0) {
        return usage("the trace has no such run");
    }
    replay_table_print(&sum.table);
    printf("%u passed, %u failed, %u skipped\n", sum.passed, sum.failed, sum.skipped);
    return sum.failed > 0;
}

/* TRACE's folder/../models/random/<model>, from malloc. */
static char *model_beside(const char *trace_path, const json_t *trace)
{
    const char *slash = strrchr(trace_path, '/');
    int folder = slash == NULL ? 1 : (int)(slash - trace_path);
    const char *name = text_of(trace, "model");
    size_t size = (size_t)folder + strlen(name) + sizeof "/../models/random/";
    char *path = malloc(size);
    if (path != NULL) {
        snprintf(path, size, "%.*s/../models/random/%s", folder, slash == NULL ? "." : trace_path,
                 name);
    }
    return path;
}

static int replay_file(const arguments *a, const json_t *trace, const char *model_path,
                       const replay_settings *settings)
{
    gguf_file *file = NULL;
    model *m = NULL;
    cellar_error error;
    int code = 1;
    cellar_status status = gguf_open(model_path, &file, &error);
    if (status == CELLAR_OK) {
        status = model_load(file, &m, &error);
        if (status == CELLAR_OK || status == CELLAR_UNSUPPORTED) {
            code = replay_trace(a, m, error.message, trace, settings);
        }
    }
    if (status != CELLAR_OK && status != CELLAR_UNSUPPORTED) {
        fprintf(stderr, "replay: %s: %s\n", model_path, error.message);
    }
    model_free(m);
    gguf_close(file);
    return code;
}

static bool parse(int argc, char **argv, arguments *a, cellar_error *error)
{
    const option table[] = {
        option_text(0, "config", &a->config),
        option_text(0, "run", &a->run),
        option_integer('t', "threads", &a->n_threads, 1, 512),
        option_flag(0, "exact", &a->is_exact),
        option_flag('v', "verbose", &a->is_verbose),
    };
    size_t n_files;
    options_result result = options_parse(table, sizeof table / sizeof table[0], argc, argv,
                                          a->files, 2, &n_files, error);
    if (result == OPTIONS_OK && n_files >= 1) {
        return true;
    }
    if (result != OPTIONS_WRONG) {
        snprintf(error->message, sizeof error->message, "expected a trace");
    }
    return false;
}

int main(int argc, char **argv)
{
    arguments a = {.n_threads = 1};
    replay_settings settings;
    cellar_error error;
    if (!parse(argc, argv, &a, &error) ||
        cpu_choice_from_environment(&settings.cpu_mask, &error) != CELLAR_OK) {
        return usage(error.message);
    }
    settings.n_threads = (uint32_t)a.n_threads;
    settings.is_exact = a.is_exact;
    settings.is_verbose = a.is_verbose;

    json_error_t json_error;
    json_t *trace = json_load_file(a.files[0], 0, &json_error);
    if (trace == NULL || strcmp(text_of(trace, "format"), "kvgolden-1") != 0) {
        fprintf(stderr, "replay: %s: %s\n", a.files[0],
                trace == NULL ? json_error.text : "not a trace of format kvgolden-1");
        json_decref(trace);
        return 1;
    }
    char *beside = model_beside(a.files[0], trace);
    const char *model_path = a.files[1] != NULL ? a.files[1] : beside;
    int code = model_path == NULL ? 1 : replay_file(&a, trace, model_path, &settings);
    free(beside);
    json_decref(trace);
    return code;
}
