/*
 * options.h: read the options of a command line into typed variables.
 *
 * A command describes its options in a table, one line each:
 *
 *     const option options[] = {
 *         option_text('m', "model", &path),
 *         option_integer('n', "predict", &n, -1, INT32_MAX),
 *         option_choice(0, "on-full", &on_full, choices),
 *         option_flag('q', "quiet", &is_quiet),
 *     };
 *
 * Written as usual: -n 5, -n5, -qn5, --predict 5, --predict=5; "--" ends the options; the last of
 * several wins. A variable keeps its value where its option is not given. Two lines may lead to one
 * variable. -h and --help are always there, and --help=options, which is for programs: it prints the
 * table, a line for each option, before the help. A mistake is told in one line that names the option,
 * what was expected and what was found; for a name that is nearly right it says which may have been
 * meant.
 */
#ifndef APP_OPTIONS_H
#define APP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"

typedef enum option_kind {
    OPTION_FLAG,    /* no value: true when given */
    OPTION_TEXT,    /* any text */
    OPTION_INTEGER, /* a whole number in a range */
    OPTION_NUMBER,  /* a number in a range */
    OPTION_CHOICE,  /* one of some words; the variable becomes its index */
} option_kind;

typedef struct option {
    char letter;      /* 0: no short form */
    const char *name; /* without the dashes */
    option_kind kind;
    union {
        bool *flag;
        const char **text;
        int64_t *integer;
        double *number;
        int *choice;
    } to;
    int64_t least, most;        /* of an integer */
    double low, high;           /* of a number */
    const char *const *choices; /* of a choice, NULL at the end */
} option;

static inline option option_flag(char letter, const char *name, bool *to)
{
    return (option){.letter = letter, .name = name, .kind = OPTION_FLAG, .to.flag = to};
}

static inline option option_text(char letter, const char *name, const char **to)
{
    return (option){.letter = letter, .name = name, .kind = OPTION_TEXT, .to.text = to};
}

static inline option option_integer(char letter, const char *name, int64_t *to, int64_t least,
                                    int64_t most)
{
    return (option){.letter = letter,
                    .name = name,
                    .kind = OPTION_INTEGER,
                    .to.integer = to,
                    .least = least,
                    .most = most};
}

static inline option option_number(char letter, const char *name, double *to, double low,
                                   double high)
{
    return (option){.letter = letter,
                    .name = name,
                    .kind = OPTION_NUMBER,
                    .to.number = to,
                    .low = low,
                    .high = high};
}

static inline option option_choice(char letter, const char *name, int *to,
                                   const char *const *choices)
{
    return (option){
        .letter = letter, .name = name, .kind = OPTION_CHOICE, .to.choice = to, .choices = choices};
}

typedef enum options_result {
    OPTIONS_OK,
    OPTIONS_HELP,  /* -h or --help was among them, or --help=options, and the table is printed */
    OPTIONS_WRONG, /* *error says what */
} options_result;

/*
 * Read argv[1..argc). What is no option is an operand: the first max_operands go to operands[] and
 * *n_operands (both may be NULL when max_operands is 0), one more is a mistake. Reading stops at
 * the first mistake.
 */
options_result options_parse(const option *options, size_t n, int argc, char **argv,
                             const char **operands, size_t max_operands, size_t *n_operands,
                             cellar_error *error);

/* Is it --help=options? For those that choose by a first word before they have a table. */
bool options_are_asked_for(const char *argument);

/*
 * One line of what --help=options prints: kind, word, letter and values with tabs between them, "-"
 * for what there is none of. This one is of a word that may follow: a command, a part of one.
 */
void options_print_word(const char *word, const char *summary);

/* How many letters the two names, of which the first 32 count, are apart: to say what was meant. */
size_t options_distance(const char *a, const char *b);

#endif /* APP_OPTIONS_H */
