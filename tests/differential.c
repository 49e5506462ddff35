/*
 * differential.c: a million random operations on the library beside a plain array of cells.
 *
 *   differential [--seed N] [--operations N] [--shape NAME] [--cells N] [--sequences N] [--quick]
 *                [--no-fork]
 *   differential --replay FILE
 *
 * Operations run in rounds, each on a fresh memory of a size and shape of its own (which groups it
 * has, how many pools, what room: differential_config.c), each in a child process, so that a crash or an endless loop is a failure like any other and can be shortened.
 * What is compared stands in differential_compare.c. When a round fails, operations are taken out
 * of its list as long as it still fails; the rest is printed with what each does, in the form that
 * --replay reads. A last round runs with a model that is wrong on purpose, and has to fail. Prints
 * the seed and `N passed, N failed, N skipped`; exits 1 when a round failed.
 */
#define _POSIX_C_SOURCE 200809L
#include "differential.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUND_OPERATIONS = 1000, ROUND_SECONDS = 300, SHORTEN_SECONDS = 60 };

typedef struct settings {
    uint64_t seed, n_operations;
    uint32_t n_cells, n_sequences;
    bool is_forked;
    round_shape shape;
    const char *replay;
} settings;

/* How often each kind is drawn, of 100. */
static const uint32_t weights[OPERATION_KINDS] = {43, 11, 11, 1, 8, 3, 1, 4, 4, 3, 5, 4, 2};

static operation *make_list(uint64_t seed, uint32_t n)
{
    operation *list = drive_grab(n, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = 0, at = random_below(&seed, 100);
        while (at >= weights[kind])
            at -= weights[kind++];
        list[i] = (operation){(operation_kind)kind, random_next(&seed)};
    }
    return list;
}

/* ---- running a list in a child --------------------------------------------------------------- */

static void write_all(int file, const void *bytes, size_t size)
{
    const char *from = bytes;
    while (size > 0) {
        ssize_t n = write(file, from, size);
        if (n <= 0) return;
        from += n;
        size -= (size_t)n;
    }
}

static bool read_all(int file, void *bytes, size_t size)
{
    char *to = bytes;
    while (size > 0) {
        ssize_t n = read(file, to, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        to += n;
        size -= (size_t)n;
    }
    return true;
}

static void describe_death(int status, outcome *out, uint32_t n)
{
    memset(out, 0, sizeof *out);
    out->failed = true;
    out->at = n > 0 ? n - 1 : 0;
    if (WIFSIGNALED(status))
        snprintf(out->message, sizeof out->message, "killed by signal %d", WTERMSIG(status));
    else
        snprintf(out->message, sizeof out->message, "ended with code %d", WEXITSTATUS(status));
}

static void run_list(const settings *s, const round_options *options, const operation *list,
                     uint32_t n, outcome *out)
{
    int ends[2], status = 0;
    fflush(NULL);
    pid_t child = -1;
    if (s->is_forked && pipe(ends) == 0) child = fork();
    if (child < 0) {
        round_run(options, list, n, out);
        return;
    }
    if (child == 0) {
        alarm(ROUND_SECONDS);
        round_run(options, list, n, out);
        write_all(ends[1], out, sizeof *out);
        exit(0); /* not _exit: leaks are looked for here */
    }
    close(ends[1]);
    bool is_whole = read_all(ends[0], out, sizeof *out);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!is_whole || status != 0) describe_death(status, out, n);
}

/* ---- shortening ------------------------------------------------------------------------------ */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Do two messages say the same, numbers apart? Else shortening would wander off to another bug. */
static bool same_failure(const char *a, const char *b)
{
    enum { ENOUGH = 24 };
    uint32_t n = 0;
    while (n < ENOUGH && *a && *b) {
        if ((*a >= '0' && *a <= '9') || *a == '-') {
            a++;
        } else if ((*b >= '0' && *b <= '9') || *b == '-') {
            b++;
        } else {
            if (*a++ != *b++) return false;
            n++;
        }
    }
    return n == ENOUGH || *a == *b;
}

/* Try the list without [first, first + len); keep the shorter one if it still fails. */
static bool try_without(const settings *s, const round_options *options, operation *list,
                        uint32_t *n, uint32_t first, uint32_t len, outcome *out)
{
    operation *shorter = drive_grab(*n, sizeof *shorter);
    uint32_t left = *n - len;
    outcome attempt;
    memcpy(shorter, list, first * sizeof *list);
    memcpy(shorter + first, list + first + len, (*n - first - len) * sizeof *list);
    run_list(s, options, shorter, left, &attempt);
    attempt.failed = attempt.failed && same_failure(attempt.message, out->message);
    if (attempt.failed) {
        memcpy(list, shorter, left * sizeof *list);
        *n = attempt.at + 1 < left ? attempt.at + 1 : left;
        *out = attempt;
    }
    free(shorter);
    return attempt.failed;
}

static void shorten(const settings *s, const round_options *options, operation *list, uint32_t *n,
                    outcome *out)
{
    double end = seconds_now() + SHORTEN_SECONDS;
    if (out->at + 1 < *n) *n = out->at + 1;
    for (uint32_t len = *n / 2; len > 0; len /= 2)
        for (uint32_t first = 0; first + len <= *n && *n > 1 && seconds_now() < end;)
            if (!try_without(s, options, list, n, first, len, out)) first += len;
}

/* ---- printing and reading lists -------------------------------------------------------------- */

static void print_list(const settings *s, const round_options *options, const operation *list,
                       uint32_t n)
{
    printf("---- the shortest list found; put it in a file and run: differential --replay FILE\n");
    printf("round %llu %u %u %s\n", (unsigned long long)options->seed, options->n_cells,
           options->n_sequences, options->shape == SHAPE_ANY ? "any" : shape_names[options->shape]);
    for (uint32_t i = 0; i < n; i++)
        printf("%s %llu\n", operation_names[list[i].kind], (unsigned long long)list[i].seed);
    printf("---- what it does\n");
    round_options loud = *options;
    outcome out;
    loud.log = stdout;
    run_list(s, &loud, list, n, &out);
    printf("----\n");
}

/* A shape by its name; false: none of that name. */
static bool parse_shape(const char *name, round_shape *shape)
{
    for (*shape = 0; *shape < SHAPE_KINDS; ++*shape)
        if (!strcmp(name, shape_names[*shape])) return true;
    return !strcmp(name, "any");
}

static bool read_operation(FILE *file, operation *to)
{
    char name[32];
    unsigned long long seed;
    if (fscanf(file, "%31s %llu", name, &seed) != 2) return false;
    for (uint32_t kind = 0; kind < OPERATION_KINDS; kind++)
        if (!strcmp(name, operation_names[kind])) {
            *to = (operation){(operation_kind)kind, seed};
            return true;
        }
    return false;
}

static int replay(const settings *s)
{
    enum { MOST = 100000 };
    round_options options = {.log = stdout};
    unsigned long long seed;
    char shape[16];
    FILE *file = fopen(s->replay, "r");
    if (!file ||
        fscanf(file, " round %llu %u %u %15s", &seed, &options.n_cells, &options.n_sequences,
               shape) != 4 ||
        !parse_shape(shape, &options.shape)) {
        fprintf(stderr, "differential: %s is not a list of operations\n", s->replay);
        if (file) fclose(file);
        return 2;
    }
    options.seed = seed;
    operation *list = drive_grab(MOST, sizeof *list);
    uint32_t n = 0;
    while (n < MOST && read_operation(file, &list[n]))
        n++;
    fclose(file);
    outcome out;
    run_list(s, &options, list, n, &out);
    if (out.failed)
        printf("operation %u (%s): %s\n", out.at, operation_names[list[out.at].kind], out.message);
    free(list);
    printf("%d passed, %d failed, 0 skipped\n", !out.failed, out.failed);
    return out.failed;
}

/* ---- the test -------------------------------------------------------------------------------- */

static bool run_round(const settings *s, uint64_t number, uint32_t n, uint64_t *tally)
{
    round_options options = {.seed = random_mix(s->seed, number),
                             .shape = s->shape,
                             .n_cells = s->n_cells,
                             .n_sequences = s->n_sequences};
    operation *list = make_list(options.seed ^ 0x5eed, n);
    outcome out;
    run_list(s, &options, list, n, &out);
    for (uint32_t k = 0; k < TALLY_KINDS; k++)
        tally[k] += out.tally[k];
    if (out.failed) {
        printf("FAIL round %llu of seed %llu, operation %u (%s): %s\n", (unsigned long long)number,
               (unsigned long long)s->seed, out.at, operation_names[list[out.at].kind],
               out.message);
        shorten(s, &options, list, &n, &out);
        printf("shortened to %u operations: %s\n", n, out.message);
        print_list(s, &options, list, n);
    }
    free(list);
    return !out.failed;
}

/* The test is worth something: a wrong model is noticed. */
static bool notices_sabotage(const settings *s)
{
    round_options options = {.seed = random_mix(s->seed, 1),
                             .shape = SHAPE_PLAIN,
                             .n_cells = 32,
                             .n_sequences = 3,
                             .is_sabotaged = true};
    operation *list = make_list(options.seed, ROUND_OPERATIONS);
    outcome out;
    run_list(s, &options, list, ROUND_OPERATIONS, &out);
    free(list);
    if (!out.failed) printf("FAIL a model that forgets removals was not told from the library\n");
    return out.failed;
}

/* Did every kind of thing happen? Asked only of runs long enough to expect it. */
static void judge_coverage(const uint64_t *tally, uint32_t *passed, uint32_t *failed)
{
    for (uint32_t k = 0; k < TALLY_KINDS; k++) {
        printf("  %-42s %llu\n", tally_names[k], (unsigned long long)tally[k]);
        if (tally[k] == 0) printf("FAIL nothing of this kind happened: %s\n", tally_names[k]);
        *(tally[k] ? passed : failed) += 1;
    }
}

static int run_all(const settings *s)
{
    uint64_t tally[TALLY_KINDS] = {0};
    uint32_t passed = 0, failed = 0, skipped = 0, n_rounds = 0;
    for (uint64_t done = 0; done < s->n_operations && failed < 3; n_rounds++) {
        uint64_t n = s->n_operations - done < ROUND_OPERATIONS ? s->n_operations - done
                                                               : ROUND_OPERATIONS;
        *(run_round(s, n_rounds, (uint32_t)n, tally) ? &passed : &failed) += 1;
        done += n;
    }
    *(notices_sabotage(s) ? &passed : &failed) += 1;
    printf("seed %llu, %u rounds:\n", (unsigned long long)s->seed, n_rounds);
    if (n_rounds >= 200 && failed == 0 && s->n_cells == 0 && s->n_sequences == 0 &&
        s->shape == SHAPE_ANY) {
        judge_coverage(tally, &passed, &failed);
    } else {
        printf("skipped: which cases were met (asked of 200 rounds or more of every size and "
               "shape)\n");
        skipped++;
    }
    printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed > 0;
}

static int show_usage(void)
{
    fprintf(stderr, "usage: differential [--seed N] [--operations N] [--shape NAME] [--cells N] "
                    "[--sequences N] [--quick] [--no-fork] [--replay FILE]\n");
    return 2;
}

static bool parse_number(const char *text, uint64_t *to)
{
    char *end;
    errno = 0;
    *to = strtoull(text, &end, 0);
    return errno == 0 && *text != '-' && end != text && *end == 0;
}

static bool parse(int argc, char **argv, settings *s)
{
    for (int i = 1; i < argc; i++) {
        uint64_t number = 0;
        bool has_value = i + 1 < argc;
        bool has_number = has_value && parse_number(argv[i + 1], &number);
        if (!strcmp(argv[i], "--quick"))
            s->n_operations = 20000;
        else if (!strcmp(argv[i], "--no-fork"))
            s->is_forked = false;
        else if (!strcmp(argv[i], "--replay") && has_value)
            s->replay = argv[++i];
        else if (!strcmp(argv[i], "--shape") && has_value &&
                 (!strcmp(argv[i + 1], "any") || parse_shape(argv[i + 1], &s->shape))) {
            if (!strcmp(argv[i + 1], "any")) s->shape = SHAPE_ANY;
            i++;
        } else if (!strcmp(argv[i], "--seed") && has_number && ++i)
            s->seed = number;
        else if (!strcmp(argv[i], "--operations") && has_number && ++i)
            s->n_operations = number;
        else if (!strcmp(argv[i], "--cells") && has_number && number >= 1 && number <= 100000 &&
                 ++i)
            s->n_cells = (uint32_t)number;
        else if (!strcmp(argv[i], "--sequences") && has_number && number >= 1 &&
                 number <= ROUND_SEQUENCES && ++i)
            s->n_sequences = (uint32_t)number;
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    settings s = {.seed = 1, .n_operations = 1000000, .shape = SHAPE_ANY, .is_forked = true};
    if (!parse(argc, argv, &s)) return show_usage();
    return s.replay ? replay(&s) : run_all(&s);
}
