/*
 * command_perplexity.c: `cellar perplexity`: how well a model foretells a text, and what storing its
 * memory in few bits costs.
 *
 * The measuring is perplexity.c's; here are the options, two engines at most, and the figures: on
 * standard output for a person or as JSON, on a terminal a line that says how far it is. With
 * --against the second engine stores keys and values as f32, rounds no activations and is otherwise the same.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "cli/commands.h"
#include "cli/json_text.h"
#include "cli/memory_options.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/run_encoder.h"
#include "cli/terminal.h"
#include "cli/text_list.h"
#include "cpu_choice.h"
#include "engine/perplexity.h"
#include "report.h"
#include "tokenizer/tokenizer.h"

#define DEFAULT_MOST_WINDOW 512

const char command_perplexity_help[] =
    "cellar perplexity [OPTIONS] -f FILE\n"
    "\n"
    "Measure how well a model foretells a text: the perplexity of its tokens, exp of\n"
    "the mean of -log p(token | tokens before). With --against f32 also what storing\n"
    "keys and values in fewer bits and rounding activations cost.\n"
    "\n"
    "A text longer than a window is read in windows, each beginning anew with the\n"
    "start token and --stride tokens after the one before. Every token is scored once,\n"
    "in the first window that holds it; so in all windows but the first a scored token\n"
    "has at least the window's size less the stride before it. Figures are comparable\n"
    "only for the same text, tokens, window and stride.\n"
    "\n"
    "Options\n"
    "  -f, --file FILE       the text; - is standard input. The last line end is\n"
    "                        dropped.\n"
    "      --source FILE     what the encoder of a model that has one (T5) reads before\n"
    "                        the text; several texts, with --separator, have one each\n"
    "                        or one for all. Default: an empty text\n"
    "      --separator LINE  the file holds several texts, with lines like this between\n"
    "                        them; each begins with a window of its own\n"
    "  -m, --model FILE      a GGUF model; default: the built-in storyteller\n"
    "      --no-mmap         read the whole model into memory\n"
    "  -c, --cells N         tokens of a window; default: what the model was trained\n"
    "                        for, at most 512\n"
    "      --stride N        tokens between windows; default: half a window\n"
    "      --cache-type-k TYPE, --cache-type-v TYPE, in short --ctk, --ctv\n"
    "                        how keys and values are stored, as for 'cellar run'\n"
    "      --cache-rotate WHAT  turn them by a Hadamard matrix: none, k, v or both\n"
    "      --against f32     read the same text exactly, keys and values stored as f32,\n"
    "                        not turned, and compare: the ratio of both perplexities,\n"
    "                        the Kullback-Leibler divergence of the f32 distribution\n"
    "                        to the other for each token, in nats, and how often both\n"
    "                        find the same token likeliest\n"
    "  -t, --threads N       default: one for each processor, at most 64\n"
    "      --ubatch N        most tokens computed at once, default 512\n"
    "      --exact           never round activations, as for 'cellar run'\n"
    "      --cpu NAME        scalar, avx2, avx512, neon or all (CELLAR_CPU, or all)\n"
    "      --json            the figures as JSON\n"
    "  -h, --help            this text\n"
    "\n"
    "The figures behind +- are standard errors, as if tokens were independent.\n"
    "\n"
    "Examples\n"
    "  cellar perplexity -f stories.txt\n"
    "  cellar perplexity -m model.gguf -f wiki.txt -c 2048\n"
    "  cellar perplexity -f stories.txt --ctk q8_0 --ctv q4_0 --cache-rotate both \\\n"
    "      --against f32\n"
    "  cellar perplexity -f stories.txt --json | jq .perplexity\n";

/* What the command line says. */
typedef struct request {
    const char *model, *file, *source, *cpu, *separator;
    memory_options memory;
    int64_t n_step; /* 0: not given */
    int against;    /* 1: f32 */
    uint32_t cpu_mask;
    bool no_mmap, is_json;
} request;

/* Everything that has to be given back. */
typedef struct parts {
    model_file opened;
    text_list texts, sources; /* sources: of the encoder, if there is one */
    engine *engine, *exact;
    progress_line line;
    perplexity_options options;
    double began, seconds; /* of the measurement */
} parts;

static const char *const against_names[] = {"nothing", "f32", NULL};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- options -------------------------------------------------------------------------------- */

static options_result parse(int argc, char **argv, request *r, cellar_error *error)
{
    const option table[] = {
        option_text('m', "model", &r->model),
        option_text('f', "file", &r->file),
        option_text(0, "source", &r->source),
        option_flag(0, "no-mmap", &r->no_mmap),
        option_text(0, "separator", &r->separator),
        MEMORY_OPTIONS(&r->memory),
        option_integer(0, "stride", &r->n_step, 1, MEMORY_MOST_CELLS),
        option_choice(0, "against", &r->against, against_names),
        option_text(0, "cpu", &r->cpu),
        option_flag(0, "json", &r->is_json),
    };
    options_result result = options_parse(table, sizeof table / sizeof table[0], argc, argv, NULL,
                                          0, NULL, error);
    if (result != OPTIONS_OK) {
        return result;
    }
    if (r->file == NULL) {
        report(error, CELLAR_INVALID, -1, "which text? Give a file: -f FILE, or -f - for input");
        return OPTIONS_WRONG;
    }
    if (r->source != NULL && strcmp(r->source, "-") == 0 && strcmp(r->file, "-") == 0) {
        report(error, CELLAR_INVALID, -1, "--file and --source: only one can be standard input");
        return OPTIONS_WRONG;
    }
    return cpu_choice_take(r->cpu, &r->cpu_mask, error) == CELLAR_OK ? OPTIONS_OK : OPTIONS_WRONG;
}

/* ---- making the parts ----------------------------------------------------------------------- */

static cellar_status read_texts(const request *r, parts *p, cellar_error *error)
{
    const tokenize_options plain = {.add_special = false}; /* each window has its own start */
    const tokenize_options whole = {.add_special = true};  /* as an encoder was trained */
    const model *m = p->opened.model;
    if (m->encoder == NULL && r->source != NULL) {
        return report(error, CELLAR_INVALID, -1,
                      "option --source: models of architecture %s have no encoder that could read "
                      "it",
                      m->architecture->name);
    }
    cellar_status status = run_encoder_check(m, NULL, error);
    if (status == CELLAR_OK) {
        status = text_list_read(p->opened.tokenizer, r->file, r->separator, plain, &p->texts,
                                error);
    }
    if (status == CELLAR_OK && m->encoder != NULL) {
        status = text_list_read(p->opened.tokenizer, r->source, r->separator, whole, &p->sources,
                                error);
    }
    if (status == CELLAR_OK && p->sources.n_texts > 1 && p->sources.n_texts != p->texts.n_texts) {
        return report(error, CELLAR_INVALID, -1,
                      "option --source: expected one text, or %zu as in the other file, found %zu",
                      p->texts.n_texts, p->sources.n_texts);
    }
    return status;
}

static cellar_status encode_source(parts *p, engine *e, size_t text, cellar_error *error)
{
    const size_t begin = text_list_begin(&p->sources, text);
    size_t n = p->sources.ends[text] - begin;
    if (n == 0) {
        return report(error, CELLAR_INVALID, (int64_t)text,
                      "text %zu for the encoder is empty, and the model adds no token to it: give "
                      "another with --source",
                      text + 1);
    }
    cellar_token *tokens = malloc(n * sizeof *tokens);
    if (tokens == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the tokens of a text");
    }
    memcpy(tokens, p->sources.tokens + begin, n * sizeof *tokens);
    cellar_status status = run_encoder_read(e, tokens, &n, error);
    free(tokens);
    return status;
}

/* One source serves all texts: its encoding stays. */
static cellar_status begin_text(void *context, size_t text, cellar_error *error)
{
    parts *p = context;
    const bool is_read = p->sources.n_texts == 0 || (p->sources.n_texts == 1 && text > 0);
    cellar_status status = is_read ? CELLAR_OK : encode_source(p, p->engine, text, error);
    if (status == CELLAR_OK && !is_read && p->exact != NULL) {
        status = encode_source(p, p->exact, text, error);
    }
    return status;
}

/* What stands before every window; -1: nothing. */
static cellar_token start_of(const model_file *opened)
{
    if (opened->model->encoder != NULL) {
        return opened->model->encoder->start;
    }
    return tokenizer_adds_bos(opened->tokenizer) ? tokenizer_bos(opened->tokenizer) : -1;
}

static cellar_status make_engines(const request *r, parts *p, cellar_error *error)
{
    memory_options memory = r->memory;
    const uint32_t trained = p->opened.model->n_context;
    if (memory.n_cells == 0) {
        memory.n_cells = trained < 2                     ? 2
                         : trained < DEFAULT_MOST_WINDOW ? trained
                                                         : DEFAULT_MOST_WINDOW;
    }
    engine_options options;
    cellar_status status = memory_options_apply(&memory, p->opened.model, &options, error);
    if (status != CELLAR_OK) {
        return status;
    }
    options.cpu_mask = r->cpu_mask;
    if (options.n_cells > trained) {
        fprintf(stderr,
                "cellar perplexity: note: windows of %" PRIu32
                " tokens, but the model was trained for texts of %" PRIu32 "\n",
                options.n_cells, trained);
    }
    status = engine_create(p->opened.model, &options, &p->engine, error);
    if (status == CELLAR_OK && r->against != 0) {
        options.k_type = options.v_type = CELLAR_F32;
        options.rotate_k = options.rotate_v = false;
        options.is_exact = true;
        status = engine_create(p->opened.model, &options, &p->exact, error);
    }
    p->options = perplexity_defaults(options.n_cells);
    p->options.ends = p->texts.ends;
    p->options.n_texts = p->texts.n_texts;
    p->options.n_step = r->n_step != 0 ? (uint32_t)r->n_step : p->options.n_step;
    p->options.start = start_of(&p->opened);
    return status;
}

static void free_parts(parts *p)
{
    engine_destroy(p->exact);
    engine_destroy(p->engine);
    text_list_free(&p->texts);
    text_list_free(&p->sources);
    model_file_close(&p->opened);
}

/* ---- showing -------------------------------------------------------------------------------- */

static bool show_progress(void *context, size_t n_done, size_t n_tokens,
                          const perplexity_result *found)
{
    parts *p = context;
    const uint64_t work = perplexity_work(&p->options, n_tokens);
    const double left = (now() - p->began) *
                        (double)(work > found->n_read ? work - found->n_read : 0) /
                        (double)(found->n_read > 0 ? found->n_read : 1);
    const uint64_t seconds = (uint64_t)left;
    progress_line_show(&p->line,
                       "%zu of %zu tokens, perplexity %.4f, %" PRIu64 ":%02" PRIu64 " left", n_done,
                       n_tokens, found->perplexity.value, seconds / 60, seconds % 60);
    return true;
}

static double speed(const parts *p, const perplexity_result *found)
{
    return p->seconds > 0 ? (double)found->n_read / p->seconds : 0;
}

static size_t n_texts(const parts *p)
{
    return p->texts.n_texts - p->texts.n_empty;
}

static void print_memory(const request *r, const model *m)
{
    bool has_rows = false;
    for (uint32_t i = 0; i < m->n_memory_layers; i++) {
        has_rows = has_rows || m->memory_layers[i].kind != CELLAR_LAYER_RECURRENT;
    }
    if (has_rows) {
        printf("memory      K %s, V %s, turned: %s\n", memory_type_names[r->memory.k_type],
               memory_type_names[r->memory.v_type], memory_rotation_names[r->memory.rotation]);
    } else {
        puts("memory      states alone: this model has no keys and values");
    }
}

/* What a model makes of nonsense may be any number of digits long. */
static void print_mean(const char *what, const perplexity_mean *m)
{
    printf(m->value < 1e7 ? "%s%.4f +- %.4f\n" : "%s%.4e +- %.1e\n", what, m->value, m->error);
}

static void print_text(const request *r, const parts *p, const perplexity_result *found)
{
    print_memory(r, p->opened.model);
    printf("text        %zu tokens in %zu text%s, %" PRIu64 " of them scored; %" PRIu64
           " window%s of %" PRIu32 " tokens, stride %" PRIu32 "\n",
           p->texts.n_tokens, n_texts(p), n_texts(p) == 1 ? "" : "s", found->n_scored,
           found->n_windows, found->n_windows == 1 ? "" : "s", p->options.n_window,
           p->options.n_step);
    print_mean("perplexity  ", &found->perplexity);
    if (found->is_compared) {
        const perplexity_comparison *c = &found->comparison;
        print_mean("with f32    ", &c->exact);
        printf("ratio       %.6f +- %.6f\n", c->ratio.value, c->ratio.error);
        printf("divergence  mean %.3e +- %.1e, median %.3e, 99%% %.3e, most %.3e\n",
               c->divergence.value, c->divergence.error, c->median, c->percentile_99, c->most);
        printf("same best   %.3f%%\n", 100 * c->same_best);
    }
    printf("speed       %.1f tokens/s\n", speed(p, found));
}

/* JSON has no infinity, which the perplexity of nonsense may be. */
static json_t *number_json(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *mean_json(const perplexity_mean *m)
{
    return json_pack("{s:o, s:o}", "value", number_json(m->value), "error", number_json(m->error));
}

static json_t *comparison_json(const perplexity_comparison *c)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:f, s:f, s:f, s:f}", "with", "f32", "perplexity",
                     mean_json(&c->exact), "ratio", mean_json(&c->ratio), "divergence_mean",
                     mean_json(&c->divergence), "divergence_median", c->median, "divergence_99",
                     c->percentile_99, "divergence_most", c->most, "same_best", c->same_best);
}

static void print_json(const request *r, const parts *p, const perplexity_result *found)
{
    json_t *document = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:f}", "cache_type_k",
        memory_type_names[r->memory.k_type], "cache_type_v", memory_type_names[r->memory.v_type],
        "cache_rotate", memory_rotation_names[r->memory.rotation], "tokens",
        (json_int_t)p->texts.n_tokens, "texts", (json_int_t)n_texts(p), "scored",
        (json_int_t)found->n_scored, "windows", (json_int_t)found->n_windows, "window",
        (json_int_t)p->options.n_window, "stride", (json_int_t)p->options.n_step, "loss",
        mean_json(&found->loss), "perplexity", mean_json(&found->perplexity), "seconds", p->seconds,
        "tokens_per_second", speed(p, found));
    if (document != NULL && found->is_compared) {
        json_object_set_new(document, "against", comparison_json(&found->comparison));
    }
    json_text_print(document, 2);
    putchar('\n');
    json_decref(document);
}

/* ---- the command ---------------------------------------------------------------------------- */

/* `subject` (may be NULL): what it is about, a file for instance. */
static int report_failure(const char *subject, const cellar_error *error)
{
    cellar_error name; /* report() leaves only what a terminal may see */
    report(&name, error->status, -1, "%s: ", subject != NULL ? subject : "");
    fprintf(stderr, "cellar perplexity: %s%s\n", subject != NULL ? name.message : "",
            error->message);
    return EXIT_CODE_FAILED;
}

static int run(const request *r, parts *p)
{
    cellar_error error;
    if (model_file_open(r->model, r->no_mmap, &p->opened, &error) != CELLAR_OK) {
        return report_failure(model_file_name(r->model), &error);
    }
    if (read_texts(r, p, &error) != CELLAR_OK || make_engines(r, p, &error) != CELLAR_OK) {
        return report_failure(NULL, &error);
    }
    p->line = progress_line_init();
    p->options.context = p;
    p->options.progress = show_progress;
    p->options.begin_text = begin_text;
    p->began = now();
    perplexity_result found;
    cellar_status status = perplexity_measure(p->engine, p->exact, p->texts.tokens,
                                              p->texts.n_tokens, &p->options, &found, &error);
    p->seconds = now() - p->began;
    progress_line_erase(&p->line);
    if (status != CELLAR_OK) {
        return report_failure(NULL, &error);
    }
    if (r->is_json) {
        print_json(r, p, &found);
    } else {
        print_text(r, p, &found);
    }
    return EXIT_CODE_OK;
}

int command_perplexity(int argc, char **argv)
{
    request r = {.memory = memory_options_defaults()};
    cellar_error error = {.status = CELLAR_OK};
    options_result parsed = parse(argc, argv, &r, &error);
    if (parsed == OPTIONS_HELP) {
        fputs(command_perplexity_help, stdout);
        return EXIT_CODE_OK;
    }
    if (parsed == OPTIONS_WRONG) {
        fprintf(stderr, "cellar perplexity: %s\nSee 'cellar help perplexity'.\n", error.message);
        return EXIT_CODE_USAGE;
    }
    parts p = {.opened = {.file = NULL}};
    int code = run(&r, &p);
    free_parts(&p);
    return code;
}
