/*
 * bench_command.h: the parts of `cellar bench`, and what they have in common.
 *
 * `cellar bench WHAT` is a function with a help text each; command_bench.c chooses. All of them print the
 * machine first, since a figure without it says nothing, as text of one page or as one JSON document.
 * Nothing fails for being slow.
 */
#ifndef APP_BENCH_COMMAND_H
#define APP_BENCH_COMMAND_H

#include <jansson.h>

#include "bench/machine.h"
#include "bench/samples.h"
#include "cli/options.h"

/* argv[0] is the part's name. */
int bench_model(int argc, char **argv); /* also "parallel" */
int bench_memory(int argc, char **argv);
int bench_session(int argc, char **argv);
int bench_machine(int argc, char **argv);

extern const char bench_model_help[];
extern const char bench_parallel_help[];
extern const char bench_memory_help[];
extern const char bench_session_help[];
extern const char bench_machine_help[];

/* What to return when the options ask for help, or are wrong and *error says why. */
int bench_end_options(options_result result, const char *part, const char *help,
                      const cellar_error *error);

/* Say what failed, about `subject` (may be NULL). Returns EXIT_CODE_FAILED. */
int bench_fail(const char *part, const char *subject, const cellar_error *error);

/* Read "N,N,...", 1 to most_n numbers in least..most. */
cellar_status bench_read_list(const char *name, const char *text, uint32_t least, uint32_t most,
                              uint32_t *numbers, uint32_t most_n, uint32_t *n, cellar_error *error);

/* The lines that every text begins with. */
void bench_print_machine(const machine_description *m);

/* "12 ns", "3.40 us", "5.6 ms", "7.8 s", at most 8 letters. */
typedef struct bench_time {
    char text[16];
} bench_time;
bench_time bench_time_of(double seconds);

/* JSON: the machine; a spread times `scale` added to an object as median, least and most. */
json_t *bench_machine_json(const machine_description *m);
void bench_add_spread(json_t *object, bench_spread spread, double scale);

/* The limits of the machine, for `machine` and `model --roofline`. */
json_t *bench_limits_json(const machine_limits *limits);

/* Print and forget. */
void bench_print_json(json_t *document);

#endif /* APP_BENCH_COMMAND_H */
