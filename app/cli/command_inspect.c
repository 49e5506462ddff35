/*
 * command_inspect.c: `cellar inspect`: what is inside a GGUF file.
 *
 * Only the metadata are read, however large the file is. A file that is not what it claims to be is
 * refused with the field, the reason and the byte; exit code 1. Everything that comes out of the
 * file is made harmless before it is printed, on standard output and in messages.
 */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "inspect.h"
#include "options.h"
#include "report.h"
#include "session_command.h"

const char command_inspect_help[] =
    "cellar inspect [OPTIONS] FILE\n"
    "\n"
    "Show what is inside a GGUF file: its size, architecture and parameters, how\n"
    "much each tensor type takes, the metadata and the tensors. The file is checked\n"
    "as if it were going to be run; a bad one is refused with field, reason and byte.\n"
    "A session file is shown as 'cellar session show' shows it.\n"
    "\n"
    "Options\n"
    "  --metadata   of the two tables, only the metadata\n"
    "  --tensors    of the two tables, only the tensors\n"
    "  --json       the same as JSON, complete: long texts and arrays are not cut\n"
    "  -h, --help   this text\n"
    "\n"
    "What a memory for the model would take, instead of the tables\n"
    "  -c, --cells N        tokens that it can hold; the model must be one that runs\n"
    "  --cache-type-k TYPE  how it stores keys and values, default f16; these, -t and\n"
    "  --cache-type-v TYPE  --ubatch mean what they mean for 'cellar run', which with\n"
    "  --cache-rotate WHAT  the same options makes a memory of exactly these bytes;\n"
    "  -t, --threads N      what it remembers and the steps it takes add to them\n"
    "  --ubatch N, --exact\n"
    "\n"
    "The file has to be a regular one: '-' and pipes are not supported, since weights\n"
    "are mapped into memory, not streamed.\n"
    "\n"
    "Examples\n"
    "  cellar inspect model.gguf\n"
    "  cellar inspect --tensors model.gguf | grep attn_q\n"
    "  cellar inspect -c 32768 --cache-type-k q8_0 model.gguf\n"
    "  cellar inspect --json model.gguf | jq '.metadata[\"general.name\"].value'\n"
    "  cellar inspect --json --tensors model.gguf | jq '[.tensors[].bytes] | add'\n";

typedef struct inspect_request {
    const char *path;
    inspect_parts parts;
    memory_options memory; /* n_cells 0: no plan is wanted */
    bool is_json;
    bool asks_for_model; /* for something that only a model has */
} inspect_request;

static options_result parse(int argc, char **argv, inspect_request *request, cellar_error *error)
{
    memory_options *memory = &request->memory;
    const option table[] = {
        option_flag(0, "json", &request->is_json),
        option_flag(0, "metadata", &request->parts.metadata),
        option_flag(0, "tensors", &request->parts.tensors),
        MEMORY_OPTIONS(memory),
    };
    size_t n_files = 0;
    const options_result result = options_parse(table, sizeof table / sizeof *table, argc, argv,
                                                &request->path, 1, &n_files, error);
    if (result != OPTIONS_OK) return result;
    if (n_files == 0) {
        (void)report(error, CELLAR_INVALID, -1, "which file? Give the name of a GGUF file");
        return OPTIONS_WRONG;
    }
    if (strcmp(request->path, "-") == 0) {
        (void)report(error, CELLAR_INVALID, -1,
                     "standard input is not supported, the file has to be mapped: give its name");
        return OPTIONS_WRONG;
    }
    if (memory->n_cells == 0 && !memory_options_are_defaults(memory)) {
        (void)report(error, CELLAR_INVALID, -1,
                     "how large a memory? Its types, threads and micro-batch need --cells N too");
        return OPTIONS_WRONG;
    }
    request->asks_for_model = memory->n_cells != 0 || request->parts.metadata ||
                              request->parts.tensors;
    if (memory->n_cells == 0 && !request->parts.metadata && !request->parts.tensors)
        request->parts.metadata = request->parts.tensors = true;
    return OPTIONS_OK;
}

static void report_failure(const char *path, const cellar_error *error)
{
    fputs("cellar inspect: ", stderr);
    (void)inspect_put_text(stderr, (gguf_string){path, strlen(path)}, 500);
    fprintf(stderr, ": %s\n", error->message);
}

/* A session is shown as `cellar session show` does; it has no tensors and no plan. */
static int inspect_session(const inspect_request *request)
{
    cellar_error error;
    cellar_status status;
    if (request->asks_for_model)
        status =
            report(&error, CELLAR_INVALID, -1,
                   "is a session, not a model: --metadata, --tensors and --cells do not apply");
    else
        status = session_print(request->path, request->is_json, &error);
    if (status != CELLAR_OK) report_failure(request->path, &error);
    return status == CELLAR_OK ? EXIT_CODE_OK : EXIT_CODE_FAILED;
}

int command_inspect(int argc, char **argv)
{
    inspect_request request = {.memory = memory_options_defaults()};
    cellar_error error;
    const options_result result = parse(argc, argv, &request, &error);
    if (result == OPTIONS_HELP) {
        fputs(command_inspect_help, stdout);
        return EXIT_CODE_OK;
    }
    if (result == OPTIONS_WRONG) {
        fprintf(stderr, "cellar inspect: %s\nSee 'cellar help inspect'.\n", error.message);
        return EXIT_CODE_USAGE;
    }
    if (session_is_one(request.path)) return inspect_session(&request);
    gguf_file *file = NULL;
    inspect_plan plan = {.n_cells = 0};
    cellar_status status = gguf_open(request.path, &file, &error);
    if (status == CELLAR_OK && request.memory.n_cells > 0) {
        status = inspect_plan_make(file, &request.memory, &plan, &error);
        request.parts.plan = &plan;
    }
    if (status == CELLAR_OK) {
        const inspect_summary summary = inspect_summarize(request.path, file);
        if (request.is_json)
            inspect_print_json(file, &summary, request.parts);
        else
            inspect_print_text(file, &summary, request.parts);
    } else {
        report_failure(request.path, &error);
    }
    inspect_plan_free(&plan);
    gguf_close(file);
    return status == CELLAR_OK ? EXIT_CODE_OK : EXIT_CODE_FAILED;
}
