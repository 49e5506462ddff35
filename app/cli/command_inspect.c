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

const char command_inspect_help[] =
    "cellar inspect [OPTIONS] FILE.gguf\n"
    "\n"
    "Show what is inside a GGUF file: its size, architecture and parameters, how\n"
    "much each tensor type takes, the metadata and the tensors. The file is checked\n"
    "as if it were going to be run; a bad one is refused with field, reason and byte.\n"
    "\n"
    "Options\n"
    "  --metadata   of the two tables, only the metadata\n"
    "  --tensors    of the two tables, only the tensors\n"
    "  --json       the same as JSON, complete: long texts and arrays are not cut\n"
    "  -h, --help   this text\n"
    "\n"
    "The file has to be a regular one: '-' and pipes are not supported, since weights\n"
    "are mapped into memory, not streamed.\n"
    "\n"
    "Examples\n"
    "  cellar inspect model.gguf\n"
    "  cellar inspect --tensors model.gguf | grep attn_q\n"
    "  cellar inspect --json model.gguf | jq '.metadata[\"general.name\"].value'\n"
    "  cellar inspect --json --tensors model.gguf | jq '[.tensors[].bytes] | add'\n";

typedef struct inspect_request {
    const char *path;
    inspect_parts parts;
    bool is_json;
} inspect_request;

static options_result parse(int argc, char **argv, inspect_request *request, cellar_error *error)
{
    const option table[] = {
        option_flag(0, "json", &request->is_json),
        option_flag(0, "metadata", &request->parts.metadata),
        option_flag(0, "tensors", &request->parts.tensors),
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
    if (!request->parts.metadata && !request->parts.tensors)
        request->parts = (inspect_parts){.metadata = true, .tensors = true};
    return OPTIONS_OK;
}

int command_inspect(int argc, char **argv)
{
    inspect_request request = {.path = NULL};
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
    gguf_file *file = NULL;
    if (gguf_open(request.path, &file, &error) != CELLAR_OK) {
        fputs("cellar inspect: ", stderr);
        (void)inspect_put_text(stderr, (gguf_string){request.path, strlen(request.path)}, 500);
        fprintf(stderr, ": %s\n", error.message);
        return EXIT_CODE_FAILED;
    }
    const inspect_summary summary = inspect_summarize(request.path, file);
    if (request.is_json)
        inspect_print_json(file, &summary, request.parts);
    else
        inspect_print_text(file, &summary, request.parts);
    gguf_close(file);
    return EXIT_CODE_OK;
}
