/*
 * command_run.c: `cellar run`: read a prompt and go on writing.
 *
 * What it makes, in order: model, tokenizer, prompt, engine, sampler; then generate() does the work
 * and calls back here to show progress, write text and ask whether Ctrl-C was pressed. Standard
 * output gets the text alone, flushed token by token; notes and figures go to standard error.
 *
 * Ctrl-C ends the answer, not the program: the step that is running is given up, what was written
 * stays, the figures follow, and the exit code is 130. A second Ctrl-C ends the program at once.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "builtin_model.h"
#include "cli/commands.h"
#include "cli/memory_options.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/terminal.h"
#include "cpu_choice.h"
#include "engine/generate.h"
#include "report.h"
#include "safe_text.h"

#define EXIT_CODE_STOPPED 130 /* by Ctrl-C, as shells count: 128 + SIGINT */
#define PROGRESS_FROM 64      /* tokens of a prompt worth a progress line */

const char command_run_help[] =
    "cellar run [OPTIONS]\n"
    "\n"
    "Read a prompt and go on writing. Text goes to standard output as it is made,\n"
    "one line of figures to standard error at the end. Without -p and -f the prompt\n"
    "comes from standard input, or is \"" PROMPT_DEFAULT "\" if that is a terminal\n"
    "or empty. Of a file or standard input the last line end is dropped.\n"
    "\n"
    "Model and prompt\n"
    "  -m, --model FILE      a GGUF model; default: the built-in storyteller\n"
    "      --no-mmap         read the whole model into memory; its file may then\n"
    "                        be overwritten meanwhile\n"
    "  -p, --prompt TEXT     the prompt\n"
    "  -f, --file FILE       a file with the prompt; - is standard input\n"
    "      --special         read control tokens written in the prompt (\"</s>\"), and\n"
    "                        show those that the model writes\n"
    "      --no-echo         do not show the prompt before the text\n"
    "\n"
    "How much\n"
    "  -n, --predict N       most tokens to write; -1: no limit; default: as many as\n"
    "                        there are cells. The model may end its text before.\n"
    "      --ignore-eos      never let the model end its text\n"
    "\n"
    "Memory\n"
    "  -c, --cells N         tokens that can be remembered, the prompt among them;\n"
    "                        default: what the model was trained for, at most 4096\n"
    "      --on-full WHAT    when all cells are full: shift (default): keep the first\n"
    "                        tokens, forget half of the others, go on; stop: end\n"
    "                        there; error: fail\n"
    "      --keep N          tokens that a shift keeps; -1: the whole prompt;\n"
    "                        default: the start token. Never more than three quarters\n"
    "                        of the cells are kept.\n"
    "      --cache-type-k TYPE, --cache-type-v TYPE, in short --ctk, --ctv\n"
    "                        how keys and values are stored: f32, f16 (default),\n"
    "                        bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl; the last\n"
    "                        six need heads of a multiple of 32 numbers\n"
    "\n"
    "Choosing tokens\n"
    "      --temp F          temperature, default 0.8; 0: always the likeliest\n"
    "      --top-k N         only the N likeliest, default 40; 0: all\n"
    "      --top-p F         only the likeliest that make up F together, default 0.95\n"
    "      --min-p F         only those F times as likely as the likeliest or more,\n"
    "                        default 0.05\n"
    "      --repeat-penalty F  divide the logits of recent tokens, default 1: do not\n"
    "      --repeat-last N   how many tokens are recent, default 64\n"
    "      --seed N          same seed, same text; -1 (default): random, and printed\n"
    "                        with the figures\n"
    "\n"
    "Computing\n"
    "  -t, --threads N       default: one for each processor, at most 64\n"
    "      --ubatch N        most tokens computed at once, default 512\n"
    "      --cpu NAME        scalar, avx2 or all; default: CELLAR_CPU, or all\n"
    "  -q, --quiet           no notes and no figures\n"
    "\n"
    "The text does not depend on -t, --ubatch or where cells lie.\n"
    "\n"
    "Figures: tokens of the prompt, how many of them were remembered already and how\n"
    "fast the rest was read; tokens written, and how fast; bytes that the memory\n"
    "takes and how many of its cells are in use; how often it shifted, if it did;\n"
    "and the seed.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong options, 130 stopped by Ctrl-C.\n"
    "\n"
    "Examples\n"
    "  cellar run                                  a story\n"
    "  cellar run -m model.gguf -f notes.txt -n 200\n"
    "  echo \"The old clock\" | cellar run --temp 0\n"
    "  cellar run -p \"One day\" -c 128 --keep 16 -n 1000\n";

/* What the command line says. */
typedef struct run_options {
    const char *model, *text, *file, *cpu;
    memory_options memory;
    int64_t n_predict; /* -1: no limit; -2: not given */
    int64_t n_keep;    /* -1: the prompt; -2: not given */
    int64_t top_k, repeat_last;
    int64_t seed; /* -1: at random */
    double temperature, top_p, min_p, repeat_penalty;
    int on_full; /* generate_on_full */
    uint32_t cpu_mask;
    bool no_mmap, no_echo, show_special, ignore_end, is_quiet;
} run_options;

static const char *const on_full_names[] = {"shift", "stop", "error", NULL};

/* Everything that has to be given back. */
typedef struct run_parts {
    gguf_file *file;
    model *model;
    tokenizer *tokenizer;
    prompt prompt;
    cellar_token *tokens; /* [n_tokens] of the prompt */
    size_t n_tokens;
    engine *engine;
    sampler *sampler;
    uint64_t seed;
} run_parts;

/* What the callbacks of generate() need. */
typedef struct run_display {
    progress_line line;
    bool shows_progress;
    bool is_terminal; /* standard output is one */
    char last;        /* byte shown */
} run_display;

static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    was_interrupted = 1;
}

/* The first Ctrl-C is noted, the next one ends the program. */
static void catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

/* ---- options -------------------------------------------------------------------------------- */

static run_options default_options(void)
{
    sampler_options s = sampler_defaults();
    return (run_options){.memory = memory_options_defaults(),
                         .n_predict = -2,
                         .n_keep = -2,
                         .top_k = s.top_k,
                         .repeat_last = s.repeat_last,
                         .seed = -1,
                         .temperature = s.temperature,
                         .top_p = s.top_p,
                         .min_p = s.min_p,
                         .repeat_penalty = s.repeat_penalty};
}

static options_result parse(int argc, char **argv, run_options *o, cellar_error *error)
{
    const option table[] = {
        option_text('m', "model", &o->model),
        option_text('p', "prompt", &o->text),
        option_text('f', "file", &o->file),
        option_flag(0, "no-mmap", &o->no_mmap),
        option_flag(0, "special", &o->show_special),
        option_flag(0, "no-echo", &o->no_echo),
        option_flag(0, "no-display-prompt", &o->no_echo),
        option_integer('n', "predict", &o->n_predict, -1, INT64_MAX),
        option_integer(0, "n-predict", &o->n_predict, -1, INT64_MAX),
        option_flag(0, "ignore-eos", &o->ignore_end),
        option_integer('c', "cells", &o->memory.n_cells, 2, MEMORY_MOST_CELLS),
        option_integer(0, "ctx-size", &o->memory.n_cells, 2, MEMORY_MOST_CELLS),
        option_choice(0, "on-full", &o->on_full, on_full_names),
        option_integer(0, "keep", &o->n_keep, -1, MEMORY_MOST_CELLS),
        option_choice(0, "cache-type-k", &o->memory.k_type, memory_type_names),
        option_choice(0, "cache-type-v", &o->memory.v_type, memory_type_names),
        option_choice(0, "ctk", &o->memory.k_type, memory_type_names),
        option_choice(0, "ctv", &o->memory.v_type, memory_type_names),
        option_number(0, "temp", &o->temperature, 0, 1e6),
        option_integer(0, "top-k", &o->top_k, 0, INT32_MAX),
        option_number(0, "top-p", &o->top_p, 1e-6, 1),
        option_number(0, "min-p", &o->min_p, 0, 1),
        option_number(0, "repeat-penalty", &o->repeat_penalty, 1e-3, 1e3),
        option_integer(0, "repeat-last", &o->repeat_last, 0, 1 << 20),
        option_integer(0, "seed", &o->seed, -1, INT64_MAX),
        option_integer('t', "threads", &o->memory.n_threads, 1, 512),
        option_integer(0, "ubatch", &o->memory.n_ubatch, 1, 65536),
        option_text(0, "cpu", &o->cpu),
        option_flag('q', "quiet", &o->is_quiet),
    };
    options_result result = options_parse(table, sizeof table / sizeof table[0], argc, argv, NULL,
                                          0, NULL, error);
    if (result != OPTIONS_OK) {
        return result;
    }
    if (o->text != NULL && o->file != NULL) {
        report(error, CELLAR_INVALID, -1,
               "options -p and -f both give a prompt: expected one of them");
        return OPTIONS_WRONG;
    }
    cellar_status status = o->cpu != NULL ? cpu_choice_parse(o->cpu, &o->cpu_mask, error)
                                          : cpu_choice_from_environment(&o->cpu_mask, error);
    return status == CELLAR_OK ? OPTIONS_OK : OPTIONS_WRONG;
}

/* A seed that is short enough to be typed again. */
static uint64_t random_seed(void)
{
    uint32_t seed = 0;
    FILE *source = fopen("/dev/urandom", "rb");
    if (source == NULL || fread(&seed, sizeof seed, 1, source) != 1) {
        seed = (uint32_t)time(NULL) ^ (uint32_t)getpid() << 16;
    }
    if (source != NULL) {
        fclose(source);
    }
    return seed;
}

/* ---- making the parts ----------------------------------------------------------------------- */

static cellar_status open_model(const run_options *o, run_parts *parts, cellar_error *error)
{
    cellar_status status;
    if (o->model == NULL) {
        status = gguf_open_memory(builtin_model_begin, builtin_model_size(), &parts->file, error);
    } else if (o->no_mmap) {
        status = gguf_load(o->model, &parts->file, error);
    } else {
        status = gguf_open(o->model, &parts->file, error);
    }
    if (status == CELLAR_OK) {
        status = model_load(parts->file, &parts->model, error);
    }
    if (status == CELLAR_OK) {
        status = tokenizer_create(parts->file, &parts->tokenizer, error);
    }
    return status;
}

static cellar_status read_prompt(const run_options *o, run_parts *parts, cellar_error *error)
{
    const tokenizer *tok = parts->tokenizer;
    cellar_status status = prompt_read(o->text, o->file, &parts->prompt, error);
    if (status != CELLAR_OK) {
        return status;
    }
    tokenize_options how = {.add_special = true, .parse_special = o->show_special};
    status = tokenizer_encode(tok, parts->prompt.text, parts->prompt.length, how, &parts->tokens,
                              &parts->n_tokens, error);
    if (status != CELLAR_OK || parts->n_tokens > 0) {
        return status;
    }
    return report(error, CELLAR_INVALID, -1,
                  "the prompt is empty, and this model has no token to start a text with");
}

static cellar_status make_engine(const run_options *o, run_parts *parts, cellar_error *error)
{
    engine_options options;
    cellar_status status = memory_options_apply(&o->memory, parts->model, &options, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const uint32_t trained = parts->model->n_context;
    options.cpu_mask = o->cpu_mask;
    if (options.n_cells > trained && !o->is_quiet) {
        fprintf(stderr,
                "cellar run: note: %" PRIu32
                " cells, but the model was trained for texts of %" PRIu32
                " tokens; beyond these it may write nonsense\n",
                options.n_cells, trained);
    }
    return engine_create(parts->model, &options, &parts->engine, error);
}

static cellar_status make_sampler(const run_options *o, run_parts *parts, cellar_error *error)
{
    parts->seed = o->seed < 0 ? random_seed() : (uint64_t)o->seed;
    sampler_options options = {.temperature = o->temperature,
                               .top_k = (uint32_t)o->top_k,
                               .top_p = o->top_p,
                               .min_p = o->min_p,
                               .repeat_penalty = o->repeat_penalty,
                               .repeat_last = (uint32_t)o->repeat_last,
                               .seed = parts->seed};
    return sampler_create(&options, parts->model->n_vocab, &parts->sampler, error);
}

static void free_parts(run_parts *parts)
{
    sampler_destroy(parts->sampler);
    engine_destroy(parts->engine);
    free(parts->tokens);
    prompt_free(&parts->prompt);
    tokenizer_destroy(parts->tokenizer);
    model_free(parts->model);
    gguf_close(parts->file);
}

/* ---- showing -------------------------------------------------------------------------------- */

static bool should_stop(void *context)
{
    (void)context;
    return was_interrupted != 0;
}

static void show_progress(void *context, size_t n_read, size_t n_prompt)
{
    run_display *display = context;
    if (!display->shows_progress) {
        return;
    }
    if (n_read == n_prompt) {
        progress_line_erase(&display->line);
    } else {
        progress_line_show(&display->line, "reading the prompt: %zu of %zu tokens", n_read,
                           n_prompt);
    }
}

/* What a model writes must not drive the terminal; a file gets the bytes as they are. */
static void write_printable(const char *bytes, size_t n)
{
    size_t used = 0;
    for (size_t at = 0; at < n; at += used) {
        uint32_t code = safe_text_decode(bytes + at, n - at, &used);
        if (safe_text_is_printable(code) || code == '\n' || code == '\t') {
            fwrite(bytes + at, 1, used, stdout);
        } else {
            fputc('?', stdout);
        }
    }
}

static bool show_text(void *context, const char *bytes, size_t n)
{
    run_display *display = context;
    if (display->is_terminal) {
        write_printable(bytes, n);
    } else {
        fwrite(bytes, 1, n, stdout);
    }
    display->last = bytes[n - 1];
    return fflush(stdout) == 0 && !ferror(stdout);
}

/* Whatever follows begins on a line of its own. */
static void end_line(const run_display *display)
{
    if (display->last != '\0' && display->last != '\n') {
        fputc('\n', stdout);
        fflush(stdout);
    }
}

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void print_figures(const run_parts *parts, const generate_result *result)
{
    cellar_statistics memory;
    if (cellar_stats(engine_memory(parts->engine), &memory, NULL) != CELLAR_OK) {
        return;
    }
    const size_t n_prompt = result->n_known + result->n_read;
    fprintf(stderr, "prompt %zu token%s, %zu reused, %.1f tokens/s", n_prompt, plural(n_prompt),
            result->n_known, rate((double)result->n_read, result->prompt_seconds));
    fprintf(stderr, " | written %" PRIu64 " token%s, %.1f tokens/s", result->n_generated,
            plural(result->n_generated),
            rate(result->n_generated > 1 ? (double)(result->n_generated - 1) : 0,
                 result->generate_seconds)); /* the first came with the prompt */
    fprintf(stderr, " | memory %.1f MiB, %" PRIu32 " of %" PRIu32 " cells used",
            (double)memory.sizes.total / (1024.0 * 1024.0), memory.n_used, memory.n_cells);
    if (result->n_shifts > 0) {
        fprintf(stderr, ", shifted %" PRIu32 " time%s", result->n_shifts, plural(result->n_shifts));
    }
    fprintf(stderr, " | seed %" PRIu64 "\n", parts->seed);
}

/* The answer's end, its figures, and the exit code that follows. */
static int finish(const run_options *o, const run_parts *parts, const generate_result *result,
                  const run_display *display)
{
    if (result->ended == GENERATE_ENDED_OUTPUT) {
        return EXIT_CODE_OK; /* main() sees that the output failed, says so and returns 1 */
    }
    end_line(display);
    if (!o->is_quiet && result->ended == GENERATE_ENDED_FULL) {
        fprintf(stderr, "cellar run: stopped, all %" PRIu32 " cells are full\n",
                engine_cells(parts->engine));
    }
    if (!o->is_quiet) {
        print_figures(parts, result);
    }
    return result->ended == GENERATE_ENDED_STOPPED ? EXIT_CODE_STOPPED : EXIT_CODE_OK;
}

/* ---- the command ---------------------------------------------------------------------------- */

/* Tokens that a shift keeps. */
static uint32_t kept(const run_options *o, const run_parts *parts)
{
    if (o->n_keep >= 0) {
        return (uint32_t)o->n_keep;
    }
    if (o->n_keep == -1) {
        return parts->n_tokens < UINT32_MAX ? (uint32_t)parts->n_tokens : UINT32_MAX;
    }
    return parts->tokens[0] == tokenizer_bos(parts->tokenizer) ? 1 : 0;
}

static generate_options what_to_generate(const run_options *o, const run_parts *parts,
                                         run_display *display)
{
    generate_options g = generate_defaults();
    g.prompt = parts->tokens;
    g.n_prompt = parts->n_tokens;
    g.n_limit = o->n_predict >= 0    ? (uint64_t)o->n_predict
                : o->n_predict == -1 ? UINT64_MAX
                                     : engine_cells(parts->engine);
    g.on_full = (generate_on_full)o->on_full;
    g.n_keep = kept(o, parts);
    g.ignore_end = o->ignore_end;
    g.show_special = o->show_special;
    g.is_text_start = parts->prompt.length == 0;
    if (!o->no_echo) {
        g.echo = parts->prompt.text;
        g.n_echo = parts->prompt.length;
    }
    g.context = display;
    g.progress = show_progress;
    g.text = show_text;
    g.should_stop = should_stop;
    return g;
}

static int report_failure(const run_options *o, const cellar_error *error, bool is_about_model)
{
    if (is_about_model) {
        cellar_error name; /* report() leaves only what a terminal may see */
        report(&name, error->status, -1, "%s", o->model != NULL ? o->model : "the built-in model");
        fprintf(stderr, "cellar run: %s: %s\n", name.message, error->message);
    } else {
        fprintf(stderr, "cellar run: %s\n", error->message);
    }
    return EXIT_CODE_FAILED;
}

static int run(const run_options *o, run_parts *parts)
{
    cellar_error error;
    if (open_model(o, parts, &error) != CELLAR_OK) {
        return report_failure(o, &error, true);
    }
    if (read_prompt(o, parts, &error) != CELLAR_OK || make_engine(o, parts, &error) != CELLAR_OK ||
        make_sampler(o, parts, &error) != CELLAR_OK) {
        return report_failure(o, &error, false);
    }
    run_display display = {.line = progress_line_init(),
                           .shows_progress = parts->n_tokens >= PROGRESS_FROM && !o->is_quiet,
                           .is_terminal = isatty(STDOUT_FILENO) != 0};
    generate_options options = what_to_generate(o, parts, &display);
    generate_result result;
    catch_interrupt();
    cellar_status status = generate(parts->engine, parts->tokenizer, parts->sampler, &options,
                                    &result, &error);
    progress_line_erase(&display.line);
    if (status != CELLAR_OK) {
        end_line(&display);
        return report_failure(o, &error, false);
    }
    return finish(o, parts, &result, &display);
}

int command_run(int argc, char **argv)
{
    run_options options = default_options();
    cellar_error error = {.status = CELLAR_OK};
    options_result parsed = parse(argc, argv, &options, &error);
    if (parsed == OPTIONS_HELP) {
        fputs(command_run_help, stdout);
        return EXIT_CODE_OK;
    }
    if (parsed == OPTIONS_WRONG) {
        fprintf(stderr, "cellar run: %s\nSee 'cellar help run'.\n", error.message);
        return EXIT_CODE_USAGE;
    }
    run_parts parts = {.file = NULL};
    int code = run(&options, &parts);
    free_parts(&parts);
    return code;
}
