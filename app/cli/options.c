/*
 * options.c: the reader of options.h.
 *
 * A cursor walks over argv. Each option takes its value from the rest of its own argument or from
 * the next one, whatever that looks like: "-n -1" is -1. Numbers are read whole or not at all:
 * "12x" and "" are no numbers, and one that does not fit its type is out of range. Messages go
 * through report(), which keeps what somebody typed from driving the terminal.
 */
#include "cli/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define LONGEST_NAME 32u

typedef struct cursor {
    const option *options;
    size_t n;
    int argc, at; /* argv[at] is read next */
    char **argv;
    cellar_error *error;
} cursor;

static bool is_wrong(const cursor *c, const char *option_as_given, const char *expected,
                     const char *found)
{
    report(c->error, CELLAR_INVALID, c->at - 1, "option %.40s: expected %s, found '%.60s'",
           option_as_given, expected, found);
    return false;
}

static bool set_integer(const cursor *c, const option *o, const char *given, const char *value)
{
    char expected[96];
    snprintf(expected, sizeof expected, "a whole number in %" PRId64 "..%" PRId64, o->least,
             o->most);
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || number < o->least || number > o->most) {
        return is_wrong(c, given, expected, value);
    }
    *o->to.integer = number;
    return true;
}

static bool set_number(const cursor *c, const option *o, const char *given, const char *value)
{
    char expected[96];
    snprintf(expected, sizeof expected, "a number in %g..%g", o->low, o->high);
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || !(number >= o->low && number <= o->high)) {
        return is_wrong(c, given, expected, value);
    }
    *o->to.number = number;
    return true;
}

static bool set_choice(const cursor *c, const option *o, const char *given, const char *value)
{
    char expected[160] = "";
    size_t used = 0;
    for (int i = 0; o->choices[i] != NULL; i++) {
        if (strcmp(o->choices[i], value) == 0) {
            *o->to.choice = i;
            return true;
        }
        const char *between = i == 0 ? "" : o->choices[i + 1] == NULL ? " or " : ", ";
        int n = snprintf(expected + used, sizeof expected - used, "%s%s", between, o->choices[i]);
        used = n < 0 || used + (size_t)n >= sizeof expected ? sizeof expected - 1
                                                            : used + (size_t)n;
    }
    return is_wrong(c, given, expected, value);
}

/* Store an option's value; false: it is wrong and has been reported. */
static bool set(const cursor *c, const option *o, const char *given, const char *value)
{
    switch (o->kind) {
    case OPTION_FLAG:
        *o->to.flag = true;
        return true;
    case OPTION_TEXT:
        *o->to.text = value;
        return true;
    case OPTION_INTEGER:
        return set_integer(c, o, given, value);
    case OPTION_NUMBER:
        return set_number(c, o, given, value);
    case OPTION_CHOICE:
        return set_choice(c, o, given, value);
    }
    return false;
}

/* The next argument as the option's value, or a report that there is none. */
static const char *take_value(cursor *c, const char *given)
{
    if (c->at == c->argc) {
        report(c->error, CELLAR_INVALID, c->at - 1, "option %.40s needs a value", given);
        return NULL;
    }
    return c->argv[c->at++];
}

/* ---- names ---------------------------------------------------------------------------------- */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/*
 * Letters to insert, delete or replace, or neighbours to swap, to turn one name into the other
 * (optimal string alignment). row[0] is the row of the table that is computed, row[1] and row[2]
 * are the ones before.
 */
size_t options_distance(const char *a, const char *b)
{
    size_t rows[3][LONGEST_NAME + 1], *row[3] = {rows[0], rows[1], rows[2]};
    size_t n_a = smaller(strlen(a), LONGEST_NAME), n_b = smaller(strlen(b), LONGEST_NAME);
    for (size_t i = 0; i <= n_a; i++) {
        size_t *oldest = row[2];
        row[2] = row[1];
        row[1] = row[0];
        row[0] = oldest;
        row[0][0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            if (i == 0) {
                row[0][j] = j;
                continue;
            }
            size_t best = row[1][j - 1] + (a[i - 1] != b[j - 1]);
            best = smaller(best, smaller(row[1][j], row[0][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                best = smaller(best, row[2][j - 2] + 1);
            }
            row[0][j] = best;
        }
    }
    return row[0][n_b];
}

static bool report_unknown(const cursor *c, const char *name, const char *given)
{
    const option *nearest = NULL;
    size_t best = strlen(name) < 4 ? 2 : 3; /* that many wrong letters are too many */
    for (size_t i = 0; i < c->n; i++) {
        size_t d = options_distance(name, c->options[i].name);
        if (d < best) {
            best = d;
            nearest = &c->options[i];
        }
    }
    if (nearest != NULL) {
        report(c->error, CELLAR_INVALID, c->at - 1, "there is no option %.60s; did you mean --%s?",
               given, nearest->name);
    } else {
        report(c->error, CELLAR_INVALID, c->at - 1, "there is no option %.60s", given);
    }
    return false;
}

/* "--name", "--name=value" or "--name value". */
static bool read_long(cursor *c, const char *argument)
{
    const char *name = argument + 2, *equals = strchr(name, '=');
    char alone[LONGEST_NAME + 1], given[LONGEST_NAME + 3];
    size_t length = equals == NULL ? strlen(name) : (size_t)(equals - name);
    snprintf(alone, sizeof alone, "%.*s", (int)smaller(length, LONGEST_NAME), name);
    snprintf(given, sizeof given, "--%s", alone);
    for (size_t i = 0; i < c->n; i++) {
        const option *o = &c->options[i];
        if (strlen(o->name) != length || memcmp(o->name, name, length) != 0) {
            continue;
        }
        if (o->kind == OPTION_FLAG && equals != NULL) {
            report(c->error, CELLAR_INVALID, c->at - 1, "option %s takes no value", given);
            return false;
        }
        const char *value = "";
        if (equals != NULL) {
            value = equals + 1;
        } else if (o->kind != OPTION_FLAG) {
            value = take_value(c, given);
        }
        return value != NULL && set(c, o, given, value);
    }
    return report_unknown(c, alone, given);
}

/* "-q", "-n 5", "-n5", "-qn5": letters of flags, and at the end perhaps one with a value. */
static bool read_short(cursor *c, const char *argument)
{
    for (const char *letter = argument + 1; *letter != '\0'; letter++) {
        const char given[3] = {'-', *letter, '\0'};
        const option *found = NULL;
        for (size_t i = 0; i < c->n && found == NULL; i++) {
            if (c->options[i].letter == *letter) {
                found = &c->options[i];
            }
        }
        if (found == NULL) {
            return report_unknown(c, argument + 1, argument);
        }
        if (found->kind != OPTION_FLAG) {
            const char *value = letter[1] != '\0' ? letter + 1 : take_value(c, given);
            return value != NULL && set(c, found, given, value);
        }
        set(c, found, given, "");
    }
    return true;
}

/* ---- the table for programs ------------------------------------------------------------------ */

bool options_are_asked_for(const char *argument)
{
    return strcmp(argument, "--help=options") == 0;
}

void options_print_word(const char *word, const char *summary)
{
    printf("word\t%s\t-\t%s\n", word, summary != NULL ? summary : "-");
}

/* The table, and an empty line, behind which the help follows. */
static void print_table(const option *options, size_t n)
{
    static const char *const kinds[] = {[OPTION_FLAG] = "flag",
                                        [OPTION_TEXT] = "text",
                                        [OPTION_INTEGER] = "integer",
                                        [OPTION_NUMBER] = "number",
                                        [OPTION_CHOICE] = "choice"};
    for (size_t i = 0; i < n; i++) {
        const option *o = &options[i];
        const char letter[3] = {'-', o->letter, '\0'};
        printf("%s\t--%s\t%s\t", kinds[o->kind], o->name, letter);
        for (size_t c = 0; o->kind == OPTION_CHOICE && o->choices[c] != NULL; c++) {
            printf("%s%s", c == 0 ? "" : " ", o->choices[c]);
        }
        puts(o->kind == OPTION_CHOICE ? "" : "-");
    }
    puts("flag\t--help\t-h\t-\n");
}

options_result options_parse(const option *options, size_t n, int argc, char **argv,
                             const char **operands, size_t max_operands, size_t *n_operands,
                             cellar_error *error)
{
    cursor c = {.options = options, .n = n, .argc = argc, .at = 1, .argv = argv, .error = error};
    bool has_ended = false; /* "--" was seen */
    size_t found = 0;
    while (c.at < argc) {
        const char *argument = argv[c.at++];
        bool is_option = !has_ended && argument[0] == '-' && argument[1] != '\0';
        if (is_option && strcmp(argument, "--") == 0) {
            has_ended = true;
        } else if (is_option && (strcmp(argument, "-h") == 0 || strcmp(argument, "--help") == 0)) {
            return OPTIONS_HELP;
        } else if (is_option && options_are_asked_for(argument)) {
            print_table(options, n);
            return OPTIONS_HELP;
        } else if (is_option) {
            if (!(argument[1] == '-' ? read_long(&c, argument) : read_short(&c, argument))) {
                return OPTIONS_WRONG;
            }
        } else if (found < max_operands) {
            operands[found++] = argument;
        } else {
            report(error, CELLAR_INVALID, c.at - 1, "unexpected argument '%.60s'", argument);
            return OPTIONS_WRONG;
        }
    }
    if (n_operands != NULL) {
        *n_operands = found;
    }
    return OPTIONS_OK;
}
