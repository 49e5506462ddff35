/*
 * command_help.c: the table of commands, `cellar help` and `cellar version`.
 *
 * The table is the only place that knows all commands. Texts are written to be read at 80 columns, with an
 * example for everything that is not obvious; the long text of a command stands in its own file. Help that
 * was asked for goes to standard output and succeeds; help that answers a mistake goes to standard error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builtin_model.h"
#include "cellar.h"
#include "cli/options.h"
#include "commands.h"
#include "cpu_choice.h"
#include "engine/model.h"
#include "safe_text.h"

static const char help_help[] =
    "cellar help [COMMAND]\n"
    "\n"
    "Say what the program does, or everything about one of its commands.\n"
    "\n"
    "Examples\n"
    "  cellar help            all commands\n"
    "  cellar help run        how to run a model, with every option\n";

static const char version_help[] =
    "cellar version\n"
    "\n"
    "Print the version, the arithmetic in use on this processor and the built-in\n"
    "model. The environment variable CELLAR_CPU (scalar, avx2, avx512, neon, all)\n"
    "limits the arithmetic; the kernels line shows what remains.\n";

const command commands[] = {
    {"run", "read a prompt and go on writing", command_run, command_run_help},
    {"chat", "talk with a model", command_chat, command_chat_help},
    {"serve", "serve a model over HTTP, to many at once", command_serve, command_serve_help},
    {"session", "list, show, check, fork and convert sessions", command_session,
     command_session_help},
    {"inspect", "show what is inside a model or session file", command_inspect,
     command_inspect_help},
    {"perplexity", "measure how well a model foretells a text", command_perplexity,
     command_perplexity_help},
    {"bench", "measure speed: models, memory, sessions, machine", command_bench,
     command_bench_help},
    {"quantize", "write a model with weights of fewer bits", command_quantize,
     command_quantize_help},
    {"tokenize", "show the tokens of a text", command_tokenize, command_tokenize_help},
    {"detokenize", "turn token ids back into text", command_detokenize, command_detokenize_help},
    {"help", "explain a command", command_help, help_help},
    {"version", "print version, kernels and built-in model", command_version, version_help},
};

const size_t n_commands = sizeof commands / sizeof commands[0];

const command *command_find(const char *name)
{
    for (size_t i = 0; i < n_commands; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

/* How many letters have to be typed, deleted or replaced to make b of a (Levenshtein), b up to 15 long. */
static size_t distance(const char *a, const char *b)
{
    size_t row[16];
    const size_t length = strlen(b);
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 1; *a; i++, a++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            size_t best = diagonal + (*a != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[length];
}

/* The command that was probably meant: the beginning of one, or at most two letters away; NULL: none. */
static const command *nearest(const char *name)
{
    const size_t length = strlen(name);
    if (length > 12) return NULL;
    const command *best = NULL;
    size_t best_distance = length < 3 ? 2 : 3;
    for (size_t i = 0; i < n_commands; i++) {
        if (length > 0 && strncmp(commands[i].name, name, length) == 0) return &commands[i];
        const size_t d = distance(name, commands[i].name);
        if (d < best_distance) {
            best = &commands[i];
            best_distance = d;
        }
    }
    return best;
}

/* What somebody typed, or the first part of it, without characters that drive a terminal. */
static void print_quoted(FILE *stream, const char *text)
{
    size_t length = strlen(text);
    const bool is_long = length > 60;
    if (is_long) length = 60;
    fputc('\'', stream);
    size_t used = 0;
    for (size_t at = 0; at < length; at += used) {
        if (safe_text_is_printable(safe_text_decode(text + at, length - at, &used))) {
            fwrite(text + at, 1, used, stream);
        } else {
            fputc('?', stream);
        }
    }
    fputs(is_long ? "...'" : "'", stream);
}

int command_unknown(const char *name)
{
    const command *meant = nearest(name);
    fputs("cellar: there is no command ", stderr);
    print_quoted(stderr, name);
    if (meant) fprintf(stderr, "; did you mean '%s'?", meant->name);
    fputs("\nSee 'cellar help'.\n", stderr);
    return EXIT_CODE_USAGE;
}

static void print_overview(void)
{
    fputs("cellar: run language models and keep what they have read\n"
          "\n"
          "Usage: cellar COMMAND [OPTIONS]\n"
          "\n"
          "Commands\n",
          stdout);
    for (size_t i = 0; i < n_commands; i++) {
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n"
          "Options\n"
          "  -h, --help     this text; after a command, all about that command\n"
          "      --version  as 'cellar version'\n"
          "\n"
          "Examples\n"
          "  cellar run -p \"Once upon a time\"           the built-in model tells a story\n"
          "  cellar run -m MODEL.gguf -p \"Dear Anna,\"   a model of your own\n"
          "  cellar chat -m MODEL.gguf                  talk with it\n"
          "  cellar inspect MODEL.gguf                  what a model file holds\n"
          "  cellar help run                            every option of a command\n"
          "\n"
          "Exit codes: 0 done, 1 could not be done, 2 the command line makes no sense.\n",
          stdout);
}

void command_list(void)
{
    for (size_t i = 0; i < n_commands; i++) {
        options_print_word(commands[i].name, commands[i].summary);
    }
}

int command_help(int argc, char **argv)
{
    if (argc > 2) {
        fputs("cellar help: one command at a time\nUsage: cellar help [COMMAND]\n", stderr);
        return EXIT_CODE_USAGE;
    }
    if (argc < 2) {
        print_overview();
        return EXIT_CODE_OK;
    }
    if (options_are_asked_for(argv[1])) {
        command_list();
        return EXIT_CODE_OK;
    }
    const command *about = command_find(argv[1]);
    if (!about) return command_unknown(argv[1]);
    fputs(about->help, stdout);
    return EXIT_CODE_OK;
}

int command_version(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        fputs("cellar version: takes no arguments\n", stderr);
        return EXIT_CODE_USAGE;
    }
    uint32_t mask = CELLAR_CPU_ALL;
    cellar_error error;
    if (cpu_choice_from_environment(&mask, &error) != CELLAR_OK) {
        fprintf(stderr, "cellar: %s\n", error.message);
        return EXIT_CODE_FAILED;
    }
    printf("cellar %s\n", cellar_version());
    printf("kernels  %s\n", cpu_choice_name(mask));
    printf("model    %s, %zu bytes, built in\n", BUILTIN_MODEL_NAME, builtin_model_size());
    printf("runs     %s\n", model_architectures());
    return EXIT_CODE_OK;
}
