/*
 * command_run.c: `cellar run`: read a prompt and go on writing.
 *
 * What it makes, in order: model, tokenizer, prompt, engine, sampler; then generate() does the work
 * and calls back here to show progress, write text and ask whether Ctrl-C was pressed. Standard
 * output gets the text alone, flushed token by token; notes and figures go to standard error.
 *
 * Ctrl-C (and SIGTERM, SIGHUP) ends the answer, not the program: the step that is running is given
 * up, what was written stays and is saved if there is a session, the figures follow, and the exit
 * code is 128 and the signal. A second signal ends the program at once.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/memory_options.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/run_encoder.h"
#include "cli/run_session.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"
#include "cpu_choice.h"
#include "engine/generate.h"
#include "report.h"

#define EXIT_CODE_SIGNAL 128 /* and the signal's number, as shells count */
#define PROGRESS_FROM 64     /* tokens of a prompt worth a progress line */

/* What the command line says. */
typedef struct run_options {
    const char *model, *text, *file, *cpu;
    run_session_options session; /* path NULL: there is none */
    memory_options memory;
    int64_t n_predict; /* -1: no limit; -2: not given */
    int64_t n_keep;    /* -1: the prompt; -2: not given */
    sampling_options sampling;
    int on_full; /* generate_on_full */
    uint32_t cpu_mask;
    bool no_mmap, no_echo, show_special, ignore_end, is_quiet;
} run_options;

static const char *const on_full_names[] = {"shift", "stop", "error", NULL};

/* Everything that has to be given back. */
typedef struct run_parts {
    model_file opened;
    prompt prompt;
    cellar_token *tokens; /* [n_tokens] of the prompt, without a session */
    size_t n_tokens;
    run_session session;
    engine *engine;
    sampler *sampler;
    uint64_t seed;
} run_parts;

/* What the callbacks of generate() need. */
typedef struct run_display {
    run_session *session; /* NULL: there is none */
    progress_line line;
    bool shows_progress;
    bool is_terminal; /* standard output is one */
    char last;        /* byte shown */
} run_display;

static volatile sig_atomic_t caught_signal; /* 0: none */

static const int caught_signals[] = {SIGINT, SIGTERM, SIGHUP};
#define N_SIGNALS (sizeof caught_signals / sizeof caught_signals[0])

static void on_signal(int number)
{
    caught_signal = number;
    for (size_t i = 0; i < N_SIGNALS; i++) {
        signal(caught_signals[i], SIG_DFL); /* the next one, whichever it is, ends the program */
    }
}

/* The first signal is noted. One that was ignored from the start (nohup) stays so, but Ctrl-C. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaddset(&action.sa_mask, caught_signals[i]);
    }
    for (size_t i = 0; i < N_SIGNALS; i++) {
        if (caught_signals[i] != SIGHUP ||
            (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)) {
            sigaction(caught_signals[i], &action, NULL);
        }
    }
}

/* ---- options -------------------------------------------------------------------------------- */

static run_options default_options(void)
{
    return (run_options){.memory = memory_options_defaults(),
                         .n_predict = -2,
                         .n_keep = -2,
                         .sampling = sampling_options_defaults()};
}

static bool check_session_options(run_options *o, cellar_error *error)
{
    const run_session_options *session = &o->session;
    if (session->path == NULL && (session->title != NULL || session->replaces)) {
        report(error, CELLAR_INVALID, -1, "option --%s needs a session: --session FILE",
               session->title != NULL ? "title" : "replace");
        return false;
    }
    if (session->replaces && o->text == NULL && o->file == NULL) {
        report(error, CELLAR_INVALID, -1, "option --replace needs a prompt: -p or -f");
        return false;
    }
    o->session.show_special = o->show_special;
    return true;
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
        option_text(0, "session", &o->session.path),
        option_text(0, "title", &o->session.title),
        option_flag(0, "replace", &o->session.replaces),
        option_integer('n', "predict", &o->n_predict, -1, INT64_MAX),
        option_integer(0, "n-predict", &o->n_predict, -1, INT64_MAX),
        option_flag(0, "ignore-eos", &o->ignore_end),
        MEMORY_OPTIONS(&o->memory),
        option_choice(0, "on-full", &o->on_full, on_full_names),
        option_integer(0, "keep", &o->n_keep, -1, MEMORY_MOST_CELLS),
        SAMPLING_OPTIONS(&o->sampling),
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
    if (!check_session_options(o, error)) {
        return OPTIONS_WRONG;
    }
    return cpu_choice_take(o->cpu, &o->cpu_mask, error) == CELLAR_OK ? OPTIONS_OK : OPTIONS_WRONG;
}

/* ---- making the parts ----------------------------------------------------------------------- */

static cellar_status read_prompt(const run_options *o, run_parts *parts, cellar_error *error)
{
    const tokenizer *tok = parts->opened.tokenizer;
    cellar_status status = prompt_read(o->text, o->file, &parts->prompt, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (o->session.path != NULL) {
        return CELLAR_OK; /* the session decides what is to be read */
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
    cellar_status status = memory_options_apply(&o->memory, parts->opened.model, &options, error);
    if (status != CELLAR_OK) {
        return status;
    }
    const uint32_t trained = parts->opened.model->n_context;
    options.cpu_mask = o->cpu_mask;
    if (options.n_cells > trained && !o->is_quiet) {
        fprintf(stderr,
                "cellar run: note: %" PRIu32
                " cells, but the model was trained for texts of %" PRIu32
                " tokens; beyond these it may write nonsense\n",
                options.n_cells, trained);
    }
    return engine_create(parts->opened.model, &options, &parts->engine, error);
}

static cellar_status make_sampler(const run_options *o, run_parts *parts, cellar_error *error)
{
    sampler_options options = sampling_options_apply(&o->sampling);
    const bool was_asked = o->sampling.seed >= 0;
    parts->seed = options.seed;
    const bool goes_on = run_session_seed(&parts->session, was_asked ? &options.seed : NULL,
                                          &parts->seed);
    options.seed = parts->seed;
    cellar_status status = sampler_create(&options, parts->opened.model->n_vocab, &parts->sampler,
                                          error);
    if (status == CELLAR_OK) {
        run_session_show(&parts->session, parts->sampler, goes_on);
    }
    return status;
}

static void free_parts(run_parts *parts)
{
    run_session_close(&parts->session); /* before the memory that its journal belongs to */
    sampler_destroy(parts->sampler);
    engine_destroy(parts->engine);
    free(parts->tokens);
    prompt_free(&parts->prompt);
    model_file_close(&parts->opened);
}

/* ---- showing -------------------------------------------------------------------------------- */

static bool should_stop(void *context)
{
    (void)context;
    return caught_signal != 0;
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

static bool show_text(void *context, const char *bytes, size_t n)
{
    run_display *display = context;
    if (display->is_terminal) {
        terminal_write(stdout, bytes, n);
    } else {
        fwrite(bytes, 1, n, stdout);
    }
    display->last = bytes[n - 1];
    return fflush(stdout) == 0 && !ferror(stdout);
}

static cellar_status note_written(void *context, cellar_token token, cellar_error *error)
{
    return run_session_written(((run_display *)context)->session, token, error);
}

static cellar_status note_shifted(void *context, cellar_pos keep, cellar_pos discarded,
                                  cellar_error *error)
{
    return run_session_shifted(((run_display *)context)->session, keep, discarded, error);
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
    return result->ended == GENERATE_ENDED_STOPPED ? EXIT_CODE_SIGNAL + caught_signal
                                                   : EXIT_CODE_OK;
}

/* ---- the command ---------------------------------------------------------------------------- */

/* Tokens that a shift keeps, of a text that begins with tokens [n]. */
static uint32_t kept(const run_options *o, const run_parts *parts, const cellar_token *tokens,
                     size_t n)
{
    if (o->n_keep >= 0) {
        return (uint32_t)o->n_keep;
    }
    if (o->n_keep == -1) {
        return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    }
    return tokens[0] == tokenizer_bos(parts->opened.tokenizer) ? 1 : 0;
}

static generate_options what_to_generate(const run_options *o, const run_parts *parts,
                                         run_display *display)
{
    const conversation *talk = &parts->session.talk;
    generate_options g = generate_defaults();
    g.prompt = parts->tokens;
    g.n_prompt = parts->n_tokens;
    g.n_limit = o->n_predict >= 0    ? (uint64_t)o->n_predict
                : o->n_predict == -1 ? UINT64_MAX
                                     : engine_cells(parts->engine);
    g.on_full = (generate_on_full)o->on_full;
    g.n_keep = display->session != NULL ? kept(o, parts, talk->tokens, conversation_length(talk))
                                        : kept(o, parts, parts->tokens, parts->n_tokens);
    g.ignore_end = o->ignore_end;
    g.show_special = o->show_special;
    const bool goes_on = parts->opened.model->encoder == NULL; /* an answer stands alone */
    g.is_text_start = parts->prompt.length == 0 || !goes_on;
    if (!o->no_echo && goes_on) {
        g.echo = parts->prompt.text;
        g.n_echo = parts->prompt.length;
    }
    g.context = display;
    g.progress = show_progress;
    g.text = show_text;
    g.should_stop = should_stop;
    if (display->session != NULL) {
        g.written = note_written;
        g.shifted = note_shifted;
    }
    return g;
}

/* `subject` (may be NULL): what it is about, a file for instance. */
static int report_failure(const char *subject, const cellar_error *error)
{
    cellar_error name; /* report() leaves only what a terminal may see */
    report(&name, error->status, -1, "%s: ", subject != NULL ? subject : "");
    fprintf(stderr, "cellar run: %s%s\n", subject != NULL ? name.message : "", error->message);
    return EXIT_CODE_FAILED;
}

/* Save what there is, also of an answer that failed. */
static int save(const run_options *o, run_parts *parts, const generate_result *result, int code)
{
    cellar_error error = {.status = CELLAR_OK};
    if (o->session.path == NULL || run_session_save(&parts->session, result, parts->sampler,
                                                    parts->seed, &error) == CELLAR_OK) {
        return code;
    }
    fputs("cellar run: the session could not be saved\n", stderr);
    return report_failure(o->session.path, &error);
}

/* Make everything that generate() needs; false: reported. */
static bool prepare(const run_options *o, run_parts *parts, cellar_error *error)
{
    const char *path = o->session.path;
    if (path != NULL && run_session_open(&o->session, &parts->session, error) != CELLAR_OK) {
        return report_failure(path, error), false;
    }
    if (model_file_open(o->model, o->no_mmap, &parts->opened, error) != CELLAR_OK) {
        return report_failure(model_file_name(o->model), error), false;
    }
    if (run_encoder_check(parts->opened.model, path, error) != CELLAR_OK ||
        read_prompt(o, parts, error) != CELLAR_OK) {
        return report_failure(NULL, error), false;
    }
    if (path != NULL && run_session_prompt(&parts->session, parts->opened.tokenizer, &parts->prompt,
                                           error) != CELLAR_OK) {
        return report_failure(path, error), false;
    }
    if (make_engine(o, parts, error) != CELLAR_OK || make_sampler(o, parts, error) != CELLAR_OK ||
        run_encoder_read(parts->engine, parts->tokens, &parts->n_tokens, error) != CELLAR_OK) {
        return report_failure(NULL, error), false;
    }
    return true;
}

static int run(const run_options *o, run_parts *parts)
{
    cellar_error error;
    if (!prepare(o, parts, &error)) {
        return EXIT_CODE_FAILED;
    }
    run_display display = {.session = o->session.path != NULL ? &parts->session : NULL,
                           .line = progress_line_init(),
                           .is_terminal = isatty(STDOUT_FILENO) != 0};
    generate_options options = what_to_generate(o, parts, &display);
    if (display.session != NULL &&
        run_session_load(display.session, parts->engine, &options, &error) != CELLAR_OK) {
        return report_failure(o->session.path, &error);
    }
    display.shows_progress = options.n_prompt - options.n_known >= PROGRESS_FROM && !o->is_quiet;
    generate_result result;
    catch_signals();
    cellar_status status = generate(parts->engine, parts->opened.tokenizer, parts->sampler,
                                    &options, &result, &error);
    progress_line_erase(&display.line);
    if (status != CELLAR_OK) {
        end_line(&display);
        return save(o, parts, &result, report_failure(NULL, &error));
    }
    return save(o, parts, &result, finish(o, parts, &result, &display));
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
    run_parts parts = {.opened = {.file = NULL}};
    int code = run(&options, &parts);
    free_parts(&parts);
    return code;
}
