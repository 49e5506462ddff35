/*
 * kernel_check.c: holds every kernel of every instruction set to its contract (docs/kernels.md).
 *
 * For each instruction set upward the tables are filled, and each test runs whose function pointer
 * differs from the level below: scalar versions first, then what AVX2 replaces, and so on.
 * Conversions have one right answer and are compared bit for bit; sums are compared with a double
 * reference within a bound derived from their roundings. Memory ends at forbidden pages, margins
 * are compared, a signal becomes a failed test with a name. A self-test puts deliberately wrong
 * kernels into the tables and must see each of them found.
 *
 * usage: kernel_check [--quick | --exhaustive] [--seed N] [--repeat N] [--only TEXT] [--isa NAME]
 *                     [--bench] [--json] [--no-self-test]
 *
 * Every test starts from the seed and its own name, so a failure repeats with --seed and --only
 * alone. --json prints one object a line. Exit status: 0 all passed, 1 a failure, 2 usage.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernel_check.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct options {
    uint64_t seed;
    unsigned long repeat;
    const char *only, *isa;
    int is_quick, is_exhaustive, is_bench, is_json, skips_self_test;
} options;

typedef struct level {
    const char *isa;
    uint32_t mask;
} level;

static const level levels[] = {{"scalar", 0},
                               {"avx2", CL_CPU_AVX2},
                               {"avx512", CL_CPU_AVX2 | CL_CPU_AVX512},
                               {"neon", CL_CPU_NEON}};
enum { N_LEVELS = sizeof levels / sizeof *levels };

/* The most that this processor has. */
static const char *best_level(void)
{
    const char *best = levels[0].isa;
    for (const level *l = levels + 1; l < levels + N_LEVELS; l++)
        if ((l->mask & cl_cpu_detect()) == l->mask) best = l->isa;
    return best;
}

static options chosen = {.repeat = 1, .only = "", .isa = ""};
static unsigned long n_passed, n_failed, n_skipped;

/* ---- running one test ---------------------------------------------------------------------- */

static check *running; /* for the signal handler */

static void on_signal(int number)
{
    siglongjmp(running->escape, 1000 + number);
}

static void catch_signals(void)
{
    static const int caught[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaction(caught[i], &action, NULL);
}

int run_test(check *c, const test *t)
{
    c->test = t;
    c->message[0] = '\0';
    running = c;
    const int reason = sigsetjmp(c->escape, 1);
    if (reason == 0)
        t->run(c);
    else if (reason >= 1000)
        snprintf(c->message, sizeof c->message, "stopped by signal %d (%s)", reason - 1000,
                 strsignal(reason - 1000));
    return reason != 0;
}

/* FNV-1a of a name, so that each test has random numbers of its own whatever else runs. */
static uint64_t number_of_name(const char *name)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (; *name; name++)
        sum = (sum ^ (unsigned char)*name) * 0x100000001b3u;
    return sum;
}

/* ---- reporting ----------------------------------------------------------------------------- */

static void report(const char *isa, const char *kernel, const char *aspect, const char *result,
                   const char *message)
{
    if (chosen.is_json)
        printf("{\"isa\": \"%s\", \"kernel\": \"%s\", \"aspect\": \"%s\", \"result\": \"%s\", "
               "\"message\": \"%s\"}\n",
               isa, kernel, aspect, result, message);
    else if (strcmp(result, "ok") != 0)
        printf("%-4s %s %s: %s%s%s\n", result, isa, kernel, aspect, *message ? ": " : "", message);
}

static void report_self_test(const char *name, const char *failure)
{
    if (failure) {
        n_passed++;
        report("wrong", name, "is found", "ok", failure);
    } else {
        n_failed++;
        report("wrong", name, "is found", "FAIL", "all its tests passed");
    }
}

/* ---- levels -------------------------------------------------------------------------------- */

static void fill(check *c, uint32_t mask)
{
    cl_kernels_fill(&c->kernels, mask);
    cl_matmul_fill(&c->weights, mask);
}

/* Whether the pointer that a test is about is another one than in the level below. */
static int is_changed(const check *c, const check *below, const test *t)
{
    typedef void any_function(void);
    const unsigned char *here = (const unsigned char *)&c->kernels;
    const unsigned char *there = (const unsigned char *)&below->kernels;
    if (t->type == OF_WEIGHTS) {
        here = (const unsigned char *)&c->weights;
        there = (const unsigned char *)&below->weights;
    } else if (t->type >= OF_ROUNDED) {
        here = (const unsigned char *)&c->weights.multiply_rounded[t->type - OF_ROUNDED];
        there = (const unsigned char *)&below->weights.multiply_rounded[t->type - OF_ROUNDED];
    } else if (t->type >= 0) {
        here = (const unsigned char *)&c->weights.weight[t->type];
        there = (const unsigned char *)&below->weights.weight[t->type];
    }
    return memcmp(here + t->offset, there + t->offset, sizeof(any_function *)) != 0;
}

static void run_tests(check *c, const check *below, const char *isa, const test *tests,
                      size_t n_tests)
{
    for (const test *t = tests; t < tests + n_tests; t++) {
        if (!is_changed(c, below, t) || !strstr(t->kernel, chosen.only)) continue;
        int has_failed = 0;
        for (unsigned long i = 0; i < chosen.repeat && !has_failed; i++) {
            c->random = (chosen.seed + i) ^ number_of_name(t->kernel) ^ number_of_name(t->aspect);
            has_failed = run_test(c, t);
        }
        *(has_failed ? &n_failed : &n_passed) += 1;
        report(isa, t->kernel, t->aspect, has_failed ? "FAIL" : "ok", has_failed ? c->message : "");
    }
}

static void run_level(check *c, check *below, const level *l)
{
    if ((l->mask & cl_cpu_detect()) != l->mask) {
        n_skipped++;
        report(l->isa, "all kernels", "tests", "skip", "not on this CPU");
        return;
    }
    fill(c, l->mask);
    if (strstr(l->isa, chosen.isa)) {
        run_tests(c, below, l->isa, attend_tests, n_attend_tests);
        run_tests(c, below, l->isa, rows_tests, n_rows_tests);
        run_tests(c, below, l->isa, codec_tests, n_codec_tests);
        run_tests(c, below, l->isa, hadamard_tests, n_hadamard_tests);
        run_tests(c, below, l->isa, crc32c_tests, n_crc32c_tests);
        run_tests(c, below, l->isa, matmul_tests, n_matmul_tests);
        run_tests(c, below, l->isa, rounded_tests, n_rounded_tests);
        run_tests(c, below, l->isa, activate_tests, n_activate_tests);
        run_tests(c, below, l->isa, vector_tests, n_vector_tests);
        run_tests(c, below, l->isa, fused_tests, n_fused_tests);
    }
    below->kernels = c->kernels;
    below->weights = c->weights;
}

/* What a program asks of the tables apart from the arithmetic: names, sizes, masks. */
static void check_tables(check *c)
{
    int is_right = 1;
    fill(c, 0);
    is_right &= strcmp(c->kernels.isa, "scalar") == 0;
    for (size_t i = 0; i < CL_WEIGHT_TYPES; i++) {
        const cl_weight *w = &c->weights.weight[i];
        const int is_known = w->block != 0;
        is_right &= is_known == (w->decode != NULL) && is_known == (w->matmul != NULL);
        is_right &= is_known == (w->block_bytes != 0);
        is_right &= (w->block > 1) == (c->weights.multiply_rounded[i] != NULL);
    }
    for (size_t i = 0; i < CL_ROW_TYPES; i++) {
        const cl_row_codec *codec = &c->kernels.codec[i];
        const int is_known = codec->block != 0;
        is_right &= is_known == (codec->encode != NULL) && is_known == (codec->decode != NULL);
        is_right &= is_known == (codec->block_bytes != 0);
    }
    fill(c, UINT32_MAX);
    is_right &= strcmp(c->kernels.isa, best_level()) == 0;
    *(is_right ? &n_passed : &n_failed) += 1;
    report("all", "tables", "are complete and keep to their mask", is_right ? "ok" : "FAIL", "");
}

static void bench_levels(void)
{
    for (const level *l = levels; l < levels + N_LEVELS; l++) {
        static cl_kernels kernels;
        static cl_matmul_table weights;
        if ((l->mask & cl_cpu_detect()) != l->mask || !strstr(l->isa, chosen.isa)) continue;
        cl_kernels_fill(&kernels, l->mask);
        cl_matmul_fill(&weights, l->mask);
        run_bench(l->isa, &kernels, &weights, chosen.only, chosen.is_json);
    }
}

/* ---- command line -------------------------------------------------------------------------- */

static void usage(void)
{
    fputs("usage: kernel_check [--quick | --exhaustive] [--seed N] [--repeat N] [--only TEXT] "
          "[--isa NAME]\n"
          "                    [--bench] [--json] [--no-self-test]\n",
          stderr);
    exit(2);
}

static const char *value_of(char ***argument)
{
    ++*argument;
    if (!**argument) usage();
    return **argument;
}

static uint64_t number_of(char ***argument)
{
    const char *text = value_of(argument);
    char *end;
    const uint64_t number = strtoull(text, &end, 0);
    if (!*text || *end) usage();
    return number;
}

static void read_options(char **argument)
{
    chosen.seed = (uint64_t)time(NULL);
    for (argument++; *argument; argument++) {
        if (strcmp(*argument, "--quick") == 0)
            chosen.is_quick = 1;
        else if (strcmp(*argument, "--exhaustive") == 0)
            chosen.is_exhaustive = 1;
        else if (strcmp(*argument, "--seed") == 0)
            chosen.seed = number_of(&argument);
        else if (strcmp(*argument, "--repeat") == 0)
            chosen.repeat = (unsigned long)number_of(&argument);
        else if (strcmp(*argument, "--only") == 0)
            chosen.only = value_of(&argument);
        else if (strcmp(*argument, "--isa") == 0)
            chosen.isa = value_of(&argument);
        else if (strcmp(*argument, "--bench") == 0)
            chosen.is_bench = 1;
        else if (strcmp(*argument, "--json") == 0)
            chosen.is_json = 1;
        else if (strcmp(*argument, "--no-self-test") == 0)
            chosen.skips_self_test = 1;
        else
            usage();
    }
}

static void print_start(void)
{
    const char *best = best_level();
    if (chosen.is_json)
        printf("{\"seed\": %llu, \"cpu\": \"%s\"}\n", (unsigned long long)chosen.seed, best);
    else
        printf("kernel_check --seed %llu (this CPU: %s)\n", (unsigned long long)chosen.seed, best);
}

static void print_end(void)
{
    if (chosen.is_json)
        printf("{\"passed\": %lu, \"failed\": %lu, \"skipped\": %lu}\n", n_passed, n_failed,
               n_skipped);
    else
        printf("%lu passed, %lu failed, %lu skipped\n", n_passed, n_failed, n_skipped);
}

int main(int argc, char **argv)
{
    static check c, below; /* below starts as zeros: everything in the scalar tables is new */
    (void)argc;
    read_options(argv);
    print_start();
    catch_signals();
    c.is_quick = chosen.is_quick;
    c.is_exhaustive = chosen.is_exhaustive;
    cl_kernels_fill(&c.scalar_kernels, 0);
    cl_matmul_fill(&c.scalar_weights, 0);

    check_tables(&c);
    for (size_t i = 0; i < N_LEVELS; i++)
        run_level(&c, &below, &levels[i]);
    if (!chosen.skips_self_test && !*chosen.only && !*chosen.isa)
        run_self_test(&c, report_self_test);
    if (chosen.is_bench && n_failed == 0) bench_levels();
    print_end();
    return n_failed != 0;
}
