/*
 * commands.h: what every command of the program looks like from main.c and from `cellar help`.
 *
 * A command is one file, command_<name>.c, with a function and a help text, and one line in the table of
 * command_help.c. main() gives it its arguments with argv[0] = the command's name, as getopt likes them,
 * and takes the exit code back. Standard output is for results alone; everything else goes to standard error.
 * Whether the output could be written is checked once, in main().
 */
#ifndef APP_COMMANDS_H
#define APP_COMMANDS_H

#include <stddef.h>

/* Exit codes, the same for all commands. */
enum {
    EXIT_CODE_OK = 0,
    EXIT_CODE_FAILED = 1, /* the request was understood and could not be carried out */
    EXIT_CODE_USAGE = 2,  /* the command line makes no sense */
};

typedef struct command {
    const char *name;
    const char *summary; /* one line, without a full stop */
    int (*run)(int argc, char **argv);
    const char *help; /* for `cellar help NAME`: whole lines of at most 80 columns */
} command;

/* The table, in the order in which help lists it, and its length. */
extern const command commands[];
extern const size_t n_commands;

/* The command of that name; NULL: none. */
const command *command_find(const char *name);

/* Say that there is no such command and which one may have been meant. Returns EXIT_CODE_USAGE. */
int command_unknown(const char *name);

/* Print the table for programs, as --help=options does (options.h). */
void command_list(void);

int command_run(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_session(int argc, char **argv);
int command_perplexity(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_detokenize(int argc, char **argv);
int command_help(int argc, char **argv);
int command_version(int argc, char **argv);

extern const char command_run_help[];
extern const char command_chat_help[];
extern const char command_serve_help[];
extern const char command_inspect_help[];
extern const char command_perplexity_help[];
extern const char command_bench_help[];
extern const char command_quantize_help[];
extern const char command_session_help[];
extern const char command_tokenize_help[];
extern const char command_detokenize_help[];

#endif /* APP_COMMANDS_H */
