/*
 * bench_machine.c: `cellar bench machine`: the limits that every other figure is held against.
 *
 * The measuring is machine_limits.c's; here are the options and the table. "All threads" are those that models
 * compute with by default. Exit code 1: no memory for the buffers, or no threads.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/bench_command.h"
#include "cli/commands.h"
#include "cli/memory_options.h"
#include "cpu_choice.h"

const char bench_machine_help[] =
    "cellar bench machine [OPTIONS]\n"
    "\n"
    "Measure what this machine can do at all: how fast memory is read, written and\n"
    "copied, and how many operations a second the f32 kernels do with numbers in a\n"
    "core's own caches (a multiply-add counts two). Speed of a model is bound by one\n"
    "of the two: 'cellar bench model --roofline' says which, and how near it comes.\n"
    "\n"
    "Options\n"
    "  -t, --threads N       default: one for each processor, at most 64\n"
    "      --size MIB        memory that is read, more than all caches; default 256\n"
    "  -r, --runs N          runs of each figure, default 7\n"
    "      --cpu NAME        scalar, avx2, avx512, neon or all (CELLAR_CPU, or all)\n"
    "      --json            the figures as JSON\n"
    "  -h, --help            this text\n"
    "\n"
    "Examples\n"
    "  cellar bench machine\n"
    "  cellar bench machine -t 2 --cpu avx2 --json | jq .limits\n";

typedef struct request {
    int64_t n_threads, size, n_runs;
    const char *cpu;
    uint32_t cpu_mask;
    bool is_json;
} request;

static options_result parse(int argc, char **argv, request *r, cellar_error *error)
{
    const option table[] = {
        option_integer('t', "threads", &r->n_threads, 1, 512),
        option_integer(0, "size", &r->size, 1, 1 << 20),
        option_integer('r', "runs", &r->n_runs, 1, BENCH_MOST_RUNS),
        option_text(0, "cpu", &r->cpu),
        option_flag(0, "json", &r->is_json),
    };
    const options_result result = options_parse(table, sizeof table / sizeof *table, argc, argv,
                                                NULL, 0, NULL, error);
    if (result != OPTIONS_OK) {
        return result;
    }
    return cpu_choice_take(r->cpu, &r->cpu_mask, error) == CELLAR_OK ? OPTIONS_OK : OPTIONS_WRONG;
}

static void print_row(const char *name, const char *unit, const bench_spread *spread)
{
    printf("%-26s %12.2f %12.2f %12.2f %s\n", name, spread->median / 1e9, spread->least / 1e9,
           spread->most / 1e9, unit);
}

static void print_text(const machine_description *m, const machine_limits *limits)
{
    static const char *const names[MACHINE_LIMITS] = {"read", "write", "copy", "f32 multiply-add"};
    bench_print_machine(m);
    printf("memory     %" PRIu64 " MiB read, written and copied\n", limits->bytes >> 20);
    printf("%-26s %12s %12s %12s\n", "", "median", "least", "most");
    for (int i = 0; i < MACHINE_LIMITS; i++) {
        const char *unit = i == MACHINE_FMA ? "GFLOP/s" : "GB/s";
        char name[48];
        snprintf(name, sizeof name, "%s, 1 thread", names[i]);
        print_row(name, unit, &limits->one[i]);
        if (limits->n_threads > 1) {
            snprintf(name, sizeof name, "%s, %" PRIu32 " threads", names[i], limits->n_threads);
            print_row(name, unit, &limits->many[i]);
        }
    }
    const double bytes = limits->many[MACHINE_READ].median;
    printf("balance    %.1f operations for each byte read: below that memory is the limit\n",
           bytes > 0 ? limits->many[MACHINE_FMA].median / bytes : 0);
}

int bench_machine(int argc, char **argv)
{
    request r = {.size = 256, .n_runs = 7};
    cellar_error error = {.status = CELLAR_OK};
    const options_result parsed = parse(argc, argv, &r, &error);
    if (parsed != OPTIONS_OK) {
        return bench_end_options(parsed, argv[0], bench_machine_help, &error);
    }
    const machine_limits_options options = {.cpu_mask = r.cpu_mask,
                                            .n_threads = memory_options_threads(r.n_threads),
                                            .bytes = (uint64_t)r.size << 20,
                                            .n_runs = (uint32_t)r.n_runs};
    machine_limits limits;
    if (machine_measure(&options, &limits, &error) != CELLAR_OK) {
        return bench_fail(argv[0], NULL, &error);
    }
    const machine_description m = machine_describe(r.cpu_mask);
    if (r.is_json) {
        bench_print_json(json_pack("{s:o, s:I, s:I, s:I, s:o}", "machine", bench_machine_json(&m),
                                   "bytes", (json_int_t)limits.bytes, "threads",
                                   (json_int_t)limits.n_threads, "runs", (json_int_t)r.n_runs,
                                   "limits", bench_limits_json(&limits)));
    } else {
        print_text(&m, &limits);
    }
    return EXIT_CODE_OK;
}
