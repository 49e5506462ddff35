/*
 * bench_command.c: what the parts of `cellar bench` have in common.
 *
 * Texts from outside pass report(), which leaves only what a terminal may see. jansson's objects are
 * made without looking at each failure: without memory one of them is NULL, and `null` is what gets
 * printed.
 */
#include "cli/bench_command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_text.h"
#include "report.h"

int bench_end_options(options_result result, const char *part, const char *help,
                      const cellar_error *error)
{
    if (result == OPTIONS_HELP) {
        fputs(help, stdout);
        return EXIT_CODE_OK;
    }
    fprintf(stderr, "cellar bench %s: %s\nSee 'cellar bench %s --help'.\n", part, error->message,
            part);
    return EXIT_CODE_USAGE;
}

int bench_fail(const char *part, const char *subject, const cellar_error *error)
{
    cellar_error name;
    report(&name, error->status, -1, "%s: ", subject != NULL ? subject : "");
    fprintf(stderr, "cellar bench %s: %s%s\n", part, subject != NULL ? name.message : "",
            error->message);
    return EXIT_CODE_FAILED;
}

cellar_status bench_read_list(const char *name, const char *text, uint32_t least, uint32_t most,
                              uint32_t *numbers, uint32_t most_n, uint32_t *n, cellar_error *error)
{
    const char *at = text;
    for (*n = 0;; at++) {
        char *end = NULL;
        errno = 0;
        const long long number = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (errno != 0 || end == NULL || number < least || number > most || *n == most_n ||
            (*end != ',' && *end != '\0')) {
            return report(error, CELLAR_INVALID, -1,
                          "option --%s: expected 1 to %" PRIu32 " whole numbers in %" PRIu32
                          "..%" PRIu32 " with commas between, found '%.60s'",
                          name, most_n, least, most, text);
        }
        numbers[(*n)++] = (uint32_t)number;
        at = end;
        if (*at == '\0') {
            return CELLAR_OK;
        }
    }
}

void bench_print_machine(const machine_description *m)
{
    /* Names are others' and may be of any length; a line is not. */
    printf("machine    %.50s, %" PRIu32 " processor%s\n", m->processor, m->n_processors,
           m->n_processors == 1 ? "" : "s");
    printf("system     %.50s, %.1f GiB\n", m->system, (double)m->memory / (1 << 30));
    printf("build      cellar %s, %s, kernels %s\n", m->version, m->compiler, m->kernels);
}

bench_time bench_time_of(double seconds)
{
    bench_time out;
    const double ns = seconds * 1e9;
    if (ns < 999.5) {
        snprintf(out.text, sizeof out.text, "%.0f ns", ns);
    } else if (ns < 1e6) {
        snprintf(out.text, sizeof out.text, "%.*f us", ns < 1e4 ? 2 : 1, ns / 1e3);
    } else if (ns < 1e9) {
        snprintf(out.text, sizeof out.text, "%.*f ms", ns < 1e7 ? 2 : 1, ns / 1e6);
    } else {
        snprintf(out.text, sizeof out.text, "%.2f s", seconds);
    }
    return out;
}

json_t *bench_machine_json(const machine_description *m)
{
    return json_pack("{s:s, s:I, s:I, s:s, s:s, s:s, s:s}", "processor", m->processor, "processors",
                     (json_int_t)m->n_processors, "memory_bytes", (json_int_t)m->memory, "system",
                     m->system, "compiler", m->compiler, "cellar", m->version, "kernels",
                     m->kernels);
}

void bench_add_spread(json_t *object, bench_spread spread, double scale)
{
    json_object_set_new(object, "median", json_real(spread.median * scale));
    json_object_set_new(object, "least", json_real(spread.least * scale));
    json_object_set_new(object, "most", json_real(spread.most * scale));
}

static const char *const limit_names[MACHINE_LIMITS][2] = {
    [MACHINE_READ] = {"read", "bytes/s"},
    [MACHINE_WRITE] = {"write", "bytes/s"},
    [MACHINE_COPY] = {"copy", "bytes/s"},
    [MACHINE_FMA] = {"f32 multiply-add", "operations/s"},
};

json_t *bench_limits_json(const machine_limits *limits)
{
    json_t *all = json_array();
    for (int is_many = 0; is_many < 2; is_many++) {
        for (int i = 0; i < MACHINE_LIMITS; i++) {
            json_t *limit = json_pack("{s:s, s:s, s:I}", "what", limit_names[i][0], "unit",
                                      limit_names[i][1], "threads",
                                      (json_int_t)(is_many ? limits->n_threads : 1));
            bench_add_spread(limit, (is_many ? limits->many : limits->one)[i], 1);
            json_array_append_new(all, limit);
        }
    }
    return all;
}

void bench_print_json(json_t *document)
{
    json_text_print(document, 2);
    putchar('\n');
    json_decref(document);
}
