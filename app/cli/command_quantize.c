/*
 * command_quantize.c: `cellar quantize`: write a model with weights of another type.
 *
 * quantize.h decides and computes; here are the options, the checks of names, a progress line on a terminal
 * and a summary of what became of the tensors. Ctrl-C, SIGTERM and SIGHUP end the work between two
 * pieces, and the temporary file is removed; the exit code is then 128 and the signal.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "cli/commands.h"
#include "cli/inspect.h"
#include "cli/json_text.h"
#include "cli/memory_options.h"
#include "cli/options.h"
#include "cli/session_command.h"
#include "cli/stop_signal.h"
#include "cli/terminal.h"
#include "cpu_choice.h"
#include "engine/quantize.h"
#include "report.h"

#define MOST_LISTED 10u /* tensors of one kind in the summary */

const char command_quantize_help[] =
    "cellar quantize [OPTIONS] IN OUT TYPE\n"
    "\n"
    "Write the model IN as OUT, with weights of another type: F32, F16, BF16, Q8_0,\n"
    "Q6_K, Q5_K, Q4_K, Q3_K, Q2_K, Q5_1, Q5_0, Q4_1, Q4_0, IQ4_NL or MXFP4. The file\n"
    "appears whole or not at all. Types that need an importance matrix are refused.\n"
    "\n"
    "Matrices get the type; vectors, norms and small tensors stay as they are. The\n"
    "output matrix (without one, the embedding, which then serves for both) gets Q6_K\n"
    "where TYPE has less than 6 bits. Rows that are no multiple of 256 numbers cannot\n"
    "have a K type: they get Q8_0 for Q6_K, Q5_1 for Q5_K, Q5_0 for Q4_K and IQ4_NL\n"
    "for Q3_K and Q2_K; rows that are no multiple of 32 stay. The summary says which.\n"
    "\n"
    "Every rounding loses something: start from the largest file there is, and see\n"
    "with 'cellar perplexity' what was lost.\n"
    "\n"
    "Options\n"
    "      --output-type TYPE  the type of the output matrix\n"
    "      --keep NAMES        tensors that stay, with commas between; * and ? match\n"
    "      --replace           write over OUT if it is there; never over IN\n"
    "  -t, --threads N         default: one for each processor, at most 64\n"
    "      --cpu NAME          scalar, avx2, avx512, neon or all (CELLAR_CPU, or all)\n"
    "      --json              the summary as JSON, every tensor listed\n"
    "  -q, --quiet             no summary\n"
    "  -h, --help              this text\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong options, 130 stopped by Ctrl-C, 143 by\n"
    "SIGTERM; then there is no OUT, or the old one.\n"
    "\n"
    "Examples\n"
    "  cellar quantize model.gguf small.gguf Q4_K\n"
    "  cellar quantize --output-type Q8_0 --keep 'blk.0.*' model.gguf small.gguf Q4_0\n"
    "  cellar quantize --json model.gguf small.gguf Q8_0 | jq .bytes\n";

/* What the command line says. */
typedef struct request {
    const char *operands[3]; /* IN, OUT, TYPE */
    const char *output_type, *keep, *cpu;
    int64_t n_threads; /* 0: not given */
    uint32_t cpu_mask;
    bool replaces, is_json, is_quiet;
    quantize_options options;
    progress_line line;
} request;

/* What is said of the tensors that have a reason in common; in the order of quantize_reason. */
static const struct {
    const char *key, *text; /* text NULL: the names are not listed */
} reasons[] = {
    [QUANTIZE_ASKED] = {"asked", NULL},
    [QUANTIZE_OUTPUT] = {"output", "the output matrix"},
    [QUANTIZE_FALLBACK] = {"fallback", "rows are no multiple of the type's block, another type"},
    [QUANTIZE_SMALL] = {"small", NULL},
    [QUANTIZE_ROWS] = {"rows", "rows are no multiple of 32 numbers, as they were"},
    [QUANTIZE_NAMED] = {"named", "--keep, as they were"},
    [QUANTIZE_SOURCE] = {"source", "of a type that is not read, as they were"},
};

#define N_REASONS (sizeof reasons / sizeof *reasons)

/* ---- options -------------------------------------------------------------------------------- */

/* The type of that name, or a message. */
static const quantize_type *read_type(const char *name, cellar_error *error)
{
    const quantize_type *type = quantize_find_type(name);
    if (type == NULL && quantize_needs_matrix(name)) {
        report(error, CELLAR_UNSUPPORTED, -1,
               "type %s needs an importance matrix, which this program does not use; choose one of "
               "%s",
               name, quantize_type_names());
    } else if (type == NULL) {
        report(error, CELLAR_INVALID, -1, "type '%.40s' is not known; choose one of %s", name,
               quantize_type_names());
    }
    return type;
}

static options_result parse(int argc, char **argv, request *r, cellar_error *error)
{
    const option table[] = {
        option_text(0, "output-type", &r->output_type),
        option_text(0, "keep", &r->keep),
        option_flag(0, "replace", &r->replaces),
        option_integer('t', "threads", &r->n_threads, 1, 512),
        option_text(0, "cpu", &r->cpu),
        option_flag(0, "json", &r->is_json),
        option_flag('q', "quiet", &r->is_quiet),
    };
    size_t n = 0;
    options_result result = options_parse(table, sizeof table / sizeof table[0], argc, argv,
                                          r->operands, 3, &n, error);
    if (result != OPTIONS_OK) {
        return result;
    }
    if (n < 3) {
        report(error, CELLAR_INVALID, -1, "expected IN OUT TYPE, found %zu of these", n);
        return OPTIONS_WRONG;
    }
    r->options.keep = r->keep;
    r->options.type = read_type(r->operands[2], error);
    if (r->options.type == NULL) {
        return OPTIONS_WRONG;
    }
    if (r->output_type != NULL) {
        r->options.output_type = read_type(r->output_type, error);
        if (r->options.output_type == NULL) {
            return OPTIONS_WRONG;
        }
    }
    return cpu_choice_take(r->cpu, &r->cpu_mask, error) == CELLAR_OK ? OPTIONS_OK : OPTIONS_WRONG;
}

/* ---- the summary ---------------------------------------------------------------------------- */

static const char *type_name(uint32_t type)
{
    const char *name = "an unknown type";
    (void)gguf_type_block(type, &name, NULL, NULL);
    return name;
}

/* How many tensors have a type, or (type UINT32_MAX) a reason. */
static uint32_t count_tensors(const gguf_file *file, const quantize_choice *choices, uint32_t type,
                              quantize_reason reason)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        n += type == UINT32_MAX ? choices[i].reason == reason : choices[i].type == type;
    }
    return n;
}

/* "N tensors: why: NAME TYPE, NAME TYPE, ..." */
static void print_reason(const gguf_file *file, const quantize_choice *choices,
                         quantize_reason reason)
{
    const uint32_t n = count_tensors(file, choices, UINT32_MAX, reason);
    if (n == 0) {
        return;
    }
    printf("%" PRIu32 " tensor%s: %s:", n, n == 1 ? "" : "s", reasons[reason].text);
    uint32_t shown = 0;
    for (uint32_t i = 0; i < gguf_count_tensors(file) && shown < MOST_LISTED; i++) {
        if (choices[i].reason == reason) {
            fputs(shown++ > 0 ? ", " : " ", stdout);
            (void)inspect_put_text(stdout, gguf_tensor_at(file, i)->name, 80);
            printf(" %s", type_name(choices[i].type));
        }
    }
    printf("%s\n", shown < n ? ", ..." : "");
}

static double bits_of(const gguf_file *file, uint64_t size)
{
    double n = 0;
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        n += (double)gguf_tensor_at(file, i)->n_elements;
    }
    return 8 * (double)size / n;
}

static void print_text(const gguf_file *file, const quantize_choice *choices, uint64_t size)
{
    printf("%.2f MiB became %.2f MiB, %.2f bits a parameter\n",
           (double)gguf_size(file) / (1024.0 * 1024.0), (double)size / (1024.0 * 1024.0),
           bits_of(file, size));
    for (uint32_t type = 0; type < 64; type++) {
        const uint32_t n = count_tensors(file, choices, type, QUANTIZE_ASKED);
        if (n > 0) {
            printf("  %-8s %" PRIu32 " tensor%s\n", type_name(type), n, n == 1 ? "" : "s");
        }
    }
    for (uint32_t reason = 0; reason < N_REASONS; reason++) {
        if (reasons[reason].text != NULL) {
            print_reason(file, choices, (quantize_reason)reason);
        }
    }
}

static json_t *tensor_json(const gguf_tensor *tensor, const quantize_choice *choice)
{
    return json_pack("{s:o, s:s, s:s, s:s}", "name",
                     json_text(tensor->name.data, tensor->name.length, NULL), "from",
                     type_name(tensor->type), "to", type_name(choice->type), "reason",
                     reasons[choice->reason].key);
}

static void print_json(const request *r, const gguf_file *file, const quantize_choice *choices,
                       uint64_t size)
{
    json_t *tensors = json_array();
    for (uint32_t i = 0; tensors != NULL && i < gguf_count_tensors(file); i++) {
        json_array_append_new(tensors, tensor_json(gguf_tensor_at(file, i), &choices[i]));
    }
    json_t *document = json_pack("{s:s, s:I, s:I, s:f, s:o}", "type", r->options.type->name,
                                 "bytes_before", (json_int_t)gguf_size(file), "bytes",
                                 (json_int_t)size, "bits_per_parameter", bits_of(file, size),
                                 "tensors", tensors);
    json_text_print(document, 2);
    putchar('\n');
    json_decref(document);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int report_failure(const char *subject, const cellar_error *error)
{
    fputs("cellar quantize: ", stderr);
    (void)inspect_put_text(stderr, (gguf_string){subject, strlen(subject)}, 500);
    fprintf(stderr, ": %s\n", error->message);
    return EXIT_CODE_FAILED;
}

static bool show_progress(void *context, uint64_t n_done, uint64_t n_all)
{
    request *r = context;
    progress_line_show(&r->line, "%" PRIu64 " of %" PRIu64 " MiB written", n_done >> 20,
                       n_all >> 20);
    return stop_signal_caught() == 0;
}

/* Are both names the same file? Replacing it is possible, but hardly ever what was meant. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Write OUT, whole or not at all. */
static int write_model(request *r, const gguf_file *file, quantize_choice *choices)
{
    const char *to = r->operands[1];
    gguf_write *w = NULL;
    uint64_t size = 0;
    cellar_error error;
    if (quantize_choose(file, &r->options, choices, &error) != CELLAR_OK) {
        return report_failure(r->operands[0], &error);
    }
    stop_signal_catch(); /* before there is a temporary file */
    if (gguf_write_open(to, r->replaces, &w, &error) != CELLAR_OK) {
        return report_failure(to, &error);
    }
    r->line = progress_line_init();
    cellar_status status = quantize_write(file, &r->options, choices, w, &size, &error);
    progress_line_erase(&r->line);
    if (status == CELLAR_OK) {
        status = gguf_write_commit(w, &error);
    }
    gguf_write_close(w);
    if (status == CELLAR_REFUSED) {
        fputs("cellar quantize: stopped, nothing was written\n", stderr);
        return EXIT_CODE_SIGNAL + stop_signal_caught();
    }
    if (status != CELLAR_OK) {
        return report_failure(status == CELLAR_IO ? to : r->operands[0], &error);
    }
    if (r->is_json) {
        print_json(r, file, choices, size);
    } else if (!r->is_quiet) {
        print_text(file, choices, size);
    }
    return EXIT_CODE_OK;
}

static int run(request *r)
{
    const char *from = r->operands[0], *to = r->operands[1];
    cellar_error error;
    gguf_file *file = NULL;
    if (session_is_one(from)) {
        report(&error, CELLAR_INVALID, -1,
               "a session, not a model; 'cellar session convert' is for these");
        return report_failure(from, &error);
    }
    if (is_same_file(from, to)) {
        report(&error, CELLAR_INVALID, -1, "is the model that is read: give another name");
        return report_failure(to, &error);
    }
    if (gguf_open(from, &file, &error) != CELLAR_OK) {
        return report_failure(from, &error);
    }
    r->options.cpu_mask = r->cpu_mask;
    r->options.n_threads = memory_options_threads(r->n_threads);
    r->options.context = r;
    r->options.progress = show_progress;
    quantize_choice *choices = calloc((size_t)gguf_count_tensors(file) + 1, sizeof *choices);
    int code = EXIT_CODE_FAILED;
    if (choices == NULL) {
        report(&error, CELLAR_NO_MEMORY, -1, "no memory for the table of tensors");
        report_failure(from, &error);
    } else {
        code = write_model(r, file, choices);
    }
    free(choices);
    gguf_close(file);
    return code;
}

int command_quantize(int argc, char **argv)
{
    request r = {.n_threads = 0};
    cellar_error error = {.status = CELLAR_OK};
    options_result parsed = parse(argc, argv, &r, &error);
    if (parsed == OPTIONS_HELP) {
        fputs(command_quantize_help, stdout);
        return EXIT_CODE_OK;
    }
    if (parsed == OPTIONS_WRONG) {
        fprintf(stderr, "cellar quantize: %s\nSee 'cellar help quantize'.\n", error.message);
        return EXIT_CODE_USAGE;
    }
    return run(&r);
}
