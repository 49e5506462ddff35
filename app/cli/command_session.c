/*
 * command_session.c: `cellar session`: list, show, check, fork and convert session files.
 *
 * None of them needs the model. What is asked for is done or refused as a whole, and a file that is
 * there is never written over unless --force says so.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/inspect.h"
#include "cli/json_text.h"
#include "cli/memory_options.h"
#include "cli/options.h"
#include "cli/session_command.h"
#include "report.h"

const char command_session_help[] =
    "cellar session list [--json] [FOLDER]\n"
    "cellar session show [--json] FILE\n"
    "cellar session check [--json] FILE\n"
    "cellar session fork [--at N] [--title TEXT] [--force] FILE NEW\n"
    "cellar session convert --type TYPE [--force] FILE NEW\n"
    "\n"
    "Look after the sessions that 'cellar run --session FILE' saves. No model is\n"
    "needed.\n"
    "\n"
    "  list      the sessions of a folder: tokens, size, when saved, title or first\n"
    "            words; default: the folder one is in\n"
    "  show      what a session holds: of which model, sequences, row types, notes\n"
    "  check     read a whole session and compare every checksum\n"
    "  fork      a second session that begins as the first does and then goes its own\n"
    "            way; both stay as they are when the other is continued\n"
    "  convert   the same session with rows of another type: q8_0 takes half of f16;\n"
    "            'cellar run' converts by itself when it loads; this saves room\n"
    "\n"
    "Options\n"
    "      --json         for scripts, as JSON (list, show, check)\n"
    "      --at N         fork: only the first N tokens of what it remembers\n"
    "      --title TEXT   fork: a title for the new session\n"
    "      --type TYPE    convert: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or\n"
    "                     iq4_nl; --type-k and --type-v for keys and values alone\n"
    "      --force        write over NEW if it is there\n"
    "  -h, --help         this text\n"
    "\n"
    "Exit codes: 0 done; 1 failed, a session is damaged (list: some are, the others\n"
    "are shown); 2 wrong options.\n"
    "\n"
    "Examples\n"
    "  cellar session list tales\n"
    "  cellar session show tale.cellar\n"
    "  cellar session show --json tale.cellar | jq .notes.title\n"
    "  cellar session check tale.cellar && echo good\n"
    "  cellar session fork --at 20 tale.cellar other.cellar\n"
    "  cellar session convert --type q8_0 tale.cellar small.cellar\n";

typedef struct session_request {
    const char *operands[2];
    size_t n_operands;
    bool is_json, overwrites;
    const char *title;
    int64_t at;               /* -1: not given */
    int type, k_type, v_type; /* index into memory_type_names; -1: not given */
} session_request;

typedef struct session_verb {
    const char *name;
    size_t least, most; /* operands */
    int (*run)(const session_request *request);
} session_verb;

/* "cellar session VERB: NAME: message", nothing in it that drives a terminal. */
static int report_failure(const char *verb, const char *name, const cellar_error *error)
{
    fprintf(stderr, "cellar session %s: ", verb);
    (void)inspect_put_text(stderr, (gguf_string){name, strlen(name)}, 500);
    fprintf(stderr, ": %s\n", error->message);
    return EXIT_CODE_FAILED;
}

static void print_document(json_t *document)
{
    json_text_print(document, 2);
    putchar('\n');
    json_decref(document);
}

/* ---- list, show, check ---------------------------------------------------------------------- */

static int run_list(const session_request *request)
{
    const char *path = request->n_operands > 0 ? request->operands[0] : ".";
    session_folder folder;
    cellar_error error;
    int code = EXIT_CODE_OK;
    if (session_folder_read(path, &folder, &error) != CELLAR_OK) {
        code = report_failure("list", path, &error);
    } else if (request->is_json) {
        print_document(session_folder_document(&folder));
    } else {
        session_folder_show(&folder);
    }
    code = folder.n_bad > 0 ? EXIT_CODE_FAILED : code;
    session_folder_free(&folder);
    return code;
}

cellar_status session_print(const char *path, bool is_json, cellar_error *error)
{
    cellar_session *session = NULL;
    cellar_status status = cellar_open_session(path, NULL, &session, error);
    if (status == CELLAR_OK && is_json) {
        json_t *document = session_document(path, session, error);
        status = document != NULL ? CELLAR_OK : CELLAR_NO_MEMORY;
        if (document != NULL) {
            print_document(document);
        }
    } else if (status == CELLAR_OK) {
        status = session_show(path, session, error);
    }
    cellar_close_session(session);
    return status;
}

static int run_show(const session_request *request)
{
    cellar_error error;
    return session_print(request->operands[0], request->is_json, &error) == CELLAR_OK
               ? EXIT_CODE_OK
               : report_failure("show", request->operands[0], &error);
}

static int run_check(const session_request *request)
{
    const char *path = request->operands[0];
    cellar_session *session = NULL;
    cellar_session_info info = {.bytes = 0};
    cellar_error error;
    cellar_status status = cellar_open_session(path, NULL, &session, &error);
    if (status == CELLAR_OK) {
        status = cellar_describe_session(session, &info, &error);
    }
    if (status == CELLAR_OK) {
        status = cellar_check_session(session, &error);
    }
    cellar_close_session(session);
    if (request->is_json) {
        const bool is_good = status == CELLAR_OK;
        print_document(
            json_pack("{so sb so so}", "file", json_text(path, strlen(path), NULL), "good",
                      (int)is_good, "problem",
                      is_good ? json_null() : json_text(error.message, strlen(error.message), NULL),
                      "at", is_good || error.at < 0 ? json_null() : json_integer(error.at)));
    } else if (status == CELLAR_OK) {
        (void)inspect_put_text(stdout, (gguf_string){path, strlen(path)}, 500);
        printf(": good, %" PRIu64 " bytes\n", info.bytes);
    } else {
        (void)report_failure("check", path, &error);
    }
    return status == CELLAR_OK ? EXIT_CODE_OK : EXIT_CODE_FAILED;
}

/* ---- fork, convert -------------------------------------------------------------------------- */

static int make_copy(const char *verb, const session_copy_options *options)
{
    cellar_error error;
    bool is_about_to;
    return session_copy(options, &is_about_to, &error) == CELLAR_OK
               ? EXIT_CODE_OK
               : report_failure(verb, is_about_to ? options->to : options->from, &error);
}

static int run_fork(const session_request *request)
{
    const session_copy_options options = {.from = request->operands[0],
                                          .to = request->operands[1],
                                          .title = request->title,
                                          .at = request->at,
                                          .k_type = -1,
                                          .v_type = -1,
                                          .is_fork = true,
                                          .overwrites = request->overwrites};
    return make_copy("fork", &options);
}

/* An index into memory_type_names as a type. */
static int type_of(int specific, int general)
{
    const int chosen = specific >= 0 ? specific : general;
    return chosen >= 0 ? (int)memory_types[chosen] : -1;
}

static int run_convert(const session_request *request)
{
    const session_copy_options options = {.from = request->operands[0],
                                          .to = request->operands[1],
                                          .at = -1,
                                          .k_type = type_of(request->k_type, request->type),
                                          .v_type = type_of(request->v_type, request->type),
                                          .overwrites = request->overwrites};
    return make_copy("convert", &options);
}

/* ---- the command line ----------------------------------------------------------------------- */

static const session_verb verbs[] = {
    {"list", 0, 1, run_list}, {"show", 1, 1, run_show},       {"check", 1, 1, run_check},
    {"fork", 2, 2, run_fork}, {"convert", 2, 2, run_convert},
};
#define N_VERBS (sizeof verbs / sizeof verbs[0])
#define MOST_OPTIONS 4u

static const session_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

/* The options of a verb; returns how many. */
static size_t options_of(const session_verb *verb, session_request *request,
                         option to[MOST_OPTIONS])
{
    size_t n = 0;
    if (verb->run == run_fork) {
        to[n++] = option_integer(0, "at", &request->at, 1, INT32_MAX);
        to[n++] = option_text(0, "title", &request->title);
        to[n++] = option_flag(0, "force", &request->overwrites);
    } else if (verb->run == run_convert) {
        to[n++] = option_choice(0, "type", &request->type, memory_type_names);
        to[n++] = option_choice(0, "type-k", &request->k_type, memory_type_names);
        to[n++] = option_choice(0, "type-v", &request->v_type, memory_type_names);
        to[n++] = option_flag(0, "force", &request->overwrites);
    } else {
        to[n++] = option_flag(0, "json", &request->is_json);
    }
    return n;
}

static options_result parse(const session_verb *verb, int argc, char **argv,
                            session_request *request, cellar_error *error)
{
    option table[MOST_OPTIONS];
    const size_t n = options_of(verb, request, table);
    options_result result = options_parse(table, n, argc, argv, request->operands, verb->most,
                                          &request->n_operands, error);
    if (result == OPTIONS_OK && request->n_operands < verb->least) {
        (void)report(error, CELLAR_INVALID, -1,
                     verb->least == 1 ? "which file? Give the name of a session"
                                      : "which files? Give the session and the new one's name");
        return OPTIONS_WRONG;
    }
    if (result == OPTIONS_OK && verb->run == run_convert && request->type < 0 &&
        request->k_type < 0 && request->v_type < 0) {
        (void)report(error, CELLAR_INVALID, -1, "to which type? Give --type, --type-k or --type-v");
        return OPTIONS_WRONG;
    }
    return result;
}

static int fail_without_verb(const char *name)
{
    if (name == NULL) {
        fputs("cellar session: what? list, show, check, fork or convert\n", stderr);
    } else {
        fputs("cellar session: there is no '", stderr);
        (void)inspect_put_text(stderr, (gguf_string){name, strlen(name)}, 60);
        fputs("': expected list, show, check, fork or convert\n", stderr);
    }
    fputs("See 'cellar help session'.\n", stderr);
    return EXIT_CODE_USAGE;
}

int command_session(int argc, char **argv)
{
    const session_verb *verb = argc > 1 ? find_verb(argv[1]) : NULL;
    if (argc == 2 && options_are_asked_for(argv[1])) {
        for (size_t i = 0; i < N_VERBS; i++) {
            options_print_word(verbs[i].name, NULL);
        }
        return EXIT_CODE_OK;
    }
    if (verb == NULL) {
        return fail_without_verb(argc > 1 ? argv[1] : NULL);
    }
    session_request request = {.at = -1, .type = -1, .k_type = -1, .v_type = -1};
    cellar_error error;
    const options_result result = parse(verb, argc - 1, argv + 1, &request, &error);
    if (result == OPTIONS_HELP) {
        fputs(command_session_help, stdout);
        return EXIT_CODE_OK;
    }
    if (result == OPTIONS_WRONG) {
        fprintf(stderr, "cellar session %s: %s\nSee 'cellar help session'.\n", verb->name,
                error.message);
        return EXIT_CODE_USAGE;
    }
    return verb->run(&request);
}
