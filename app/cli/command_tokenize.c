/*
 * command_tokenize.c: `cellar tokenize` and `cellar detokenize`: text to token ids and back.
 *
 * For scripts and tests: bytes go in and come out as they are, nothing is added or dropped. Only
 * the model's metadata are read, so a file without tensors will do. Tokens are shown to people
 * with everything made harmless that could drive a terminal.
 *
 * Fails (exit code 1) without any output where the model, the text or an id is refused.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_text.h"
#include "cli/model_file.h"
#include "cli/prompt.h"
#include "commands.h"
#include "inspect.h"
#include "options.h"
#include "report.h"
#include "tokenizer/tokenizer.h"

const char command_tokenize_help[] =
    "cellar tokenize [OPTIONS]\n"
    "\n"
    "Show the tokens that a model reads a text as, one on a line: id and text. The\n"
    "text is read to the last byte, with any line end that it has. A model file with\n"
    "a vocabulary alone will do.\n"
    "\n"
    "Options\n"
    "  -m, --model FILE   a GGUF model; default: the built-in storyteller\n"
    "  -p, --prompt TEXT  the text\n"
    "  -f, --file FILE    a file with the text; '-': standard input, which is also\n"
    "                     read where neither -p nor -f is given\n"
    "  --ids              only the ids, on one line, with spaces between them\n"
    "  --json             an array of objects: id, text, and the bytes in hexadecimal\n"
    "                     where the text is not UTF-8\n"
    "  --no-bos           no start (and end) token around the text, even if the model\n"
    "                     wants it\n"
    "  --special          read control tokens written in the text, such as </s>\n"
    "  -h, --help         this text\n"
    "\n"
    "Examples\n"
    "  cellar tokenize -m MODEL.gguf -p \"Hello world\"\n"
    "  cellar tokenize -m MODEL.gguf --ids --no-bos -f text.txt >ids.txt\n"
    "  cellar tokenize -f text.txt --ids | wc -w     how many tokens a text has\n";

const char command_detokenize_help[] =
    "cellar detokenize [OPTIONS]\n"
    "\n"
    "Turn token ids, with white space between them, back into the bytes of their\n"
    "text. No line end is added. What 'cellar tokenize --ids' printed gives the same\n"
    "text.\n"
    "\n"
    "Options\n"
    "  -m, --model FILE   a GGUF model; default: the built-in storyteller\n"
    "  -p, --prompt IDS   the ids\n"
    "  -f, --file FILE    a file with the ids; '-': standard input, which is also\n"
    "                     read where neither -p nor -f is given\n"
    "  --special          show control tokens too\n"
    "  -h, --help         this text\n"
    "\n"
    "Examples\n"
    "  cellar detokenize -m MODEL.gguf -p \"9906 1917\"\n"
    "  cellar tokenize --ids -f text.txt | cellar detokenize | cmp - text.txt\n";

typedef struct tokenize_request {
    const char *model; /* NULL: the built-in one */
    const char *text, *path;
    bool only_ids, is_json, no_bos, special;
} tokenize_request;

static void print_failure(const char *name, const char *path, const cellar_error *error)
{
    fprintf(stderr, "cellar %s: ", name);
    if (path != NULL) {
        (void)inspect_put_text(stderr, (gguf_string){path, strlen(path)}, 500);
        fputs(": ", stderr);
    }
    fprintf(stderr, "%s\n", error->message);
}

static options_result check_sources(const tokenize_request *request, cellar_error *error)
{
    if (request->text != NULL && request->path != NULL) {
        (void)report(error, CELLAR_INVALID, -1, "--prompt and --file: which one of the two?");
        return OPTIONS_WRONG;
    }
    if (request->only_ids && request->is_json) {
        (void)report(error, CELLAR_INVALID, -1, "--ids and --json: which one of the two?");
        return OPTIONS_WRONG;
    }
    return OPTIONS_OK;
}

/* *code is the exit code if the result is not OPTIONS_OK. */
static options_result answer(options_result result, const char *name, const char *help,
                             const cellar_error *error, int *code)
{
    *code = EXIT_CODE_OK;
    if (result == OPTIONS_HELP) fputs(help, stdout);
    if (result == OPTIONS_WRONG) {
        fprintf(stderr, "cellar %s: %s\nSee 'cellar help %s'.\n", name, error->message, name);
        *code = EXIT_CODE_USAGE;
    }
    return result;
}

typedef cellar_status (*tokenize_work)(const tokenize_request *request, const tokenizer *tok,
                                       cellar_error *error);

/* Open the vocabulary and do the command's work with it; returns the exit code. */
static int carry_out(const char *name, const tokenize_request *request, tokenize_work work)
{
    model_file opened;
    cellar_error error;
    cellar_status status = model_file_open_vocabulary(request->model, &opened, &error);
    if (status != CELLAR_OK) {
        print_failure(name, request->model, &error);
    } else if ((status = work(request, opened.tokenizer, &error)) != CELLAR_OK) {
        print_failure(name, NULL, &error);
    }
    model_file_close(&opened);
    return status == CELLAR_OK ? EXIT_CODE_OK : EXIT_CODE_FAILED;
}

/* ---- tokenize ------------------------------------------------------------------------------- */

/* A token's bytes, from malloc; NULL: no memory. */
static char *piece_of(const tokenizer *tok, cellar_token id, size_t *length)
{
    *length = tokenizer_piece(tok, id, true, NULL, 0);
    char *piece = malloc(*length + 1);
    if (piece != NULL) tokenizer_piece(tok, id, true, piece, *length);
    return piece;
}

static void print_ids(const cellar_token *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%s%" PRId32, i > 0 ? " " : "", ids[i]);
    putchar('\n');
}

static cellar_status no_memory(cellar_error *error)
{
    return report(error, CELLAR_NO_MEMORY, -1, "no memory to show the tokens");
}

static cellar_status print_lines(const tokenizer *tok, const cellar_token *ids, size_t n,
                                 cellar_error *error)
{
    for (size_t i = 0; i < n; i++) {
        size_t length;
        char *piece = piece_of(tok, ids[i], &length);
        if (piece == NULL) return no_memory(error);
        printf("%7" PRId32 "  \"", ids[i]);
        (void)inspect_put_text(stdout, (gguf_string){piece, length}, UINT32_MAX - 8);
        puts("\"");
        free(piece);
    }
    return CELLAR_OK;
}

static cellar_status print_json(const tokenizer *tok, const cellar_token *ids, size_t n,
                                cellar_error *error)
{
    putchar('[');
    for (size_t i = 0; i < n; i++) {
        size_t length;
        bool is_lossy = false;
        char *piece = piece_of(tok, ids[i], &length);
        json_t *text = piece != NULL ? json_text(piece, length, &is_lossy) : NULL;
        if (text == NULL) {
            free(piece);
            return no_memory(error);
        }
        printf("%s\n  {\"id\": %" PRId32 ", \"text\": ", i > 0 ? "," : "", ids[i]);
        json_text_print(text, 0);
        if (is_lossy) fputs(", \"hex\": \"", stdout);
        for (size_t b = 0; b < length && is_lossy; b++)
            printf("%02x", (unsigned char)piece[b]);
        fputs(is_lossy ? "\"}" : "}", stdout);
        json_decref(text);
        free(piece);
    }
    puts(n > 0 ? "\n]" : "]");
    return CELLAR_OK;
}

static cellar_status tokenize(const tokenize_request *request, const tokenizer *tok,
                              cellar_error *error)
{
    prompt input;
    cellar_token *ids = NULL;
    size_t n = 0;
    const tokenize_options how = {.add_special = !request->no_bos,
                                  .parse_special = request->special};
    cellar_status status = prompt_read_exactly(request->text, request->path, &input, error);
    if (status == CELLAR_OK)
        status = tokenizer_encode(tok, input.text, input.length, how, &ids, &n, error);
    if (status == CELLAR_OK && request->only_ids) {
        print_ids(ids, n);
    } else if (status == CELLAR_OK) {
        status = request->is_json ? print_json(tok, ids, n, error)
                                  : print_lines(tok, ids, n, error);
    }
    free(ids);
    prompt_free(&input);
    return status;
}

int command_tokenize(int argc, char **argv)
{
    tokenize_request request = {.model = NULL};
    const option table[] = {
        option_text('m', "model", &request.model),   option_text('p', "prompt", &request.text),
        option_text('f', "file", &request.path),     option_flag(0, "ids", &request.only_ids),
        option_flag(0, "json", &request.is_json),    option_flag(0, "no-bos", &request.no_bos),
        option_flag(0, "special", &request.special),
    };
    cellar_error error;
    int code;
    options_result result = options_parse(table, sizeof table / sizeof *table, argc, argv, NULL, 0,
                                          NULL, &error);
    if (result == OPTIONS_OK) result = check_sources(&request, &error);
    if (answer(result, "tokenize", command_tokenize_help, &error, &code) != OPTIONS_OK) return code;
    return carry_out("tokenize", &request, tokenize);
}

/* ---- detokenize ----------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The number that text[*at..) begins with, digits up to white space or the end; -1: it is none. */
static int64_t read_id(const char *text, size_t length, size_t *at)
{
    int64_t id = 0;
    const size_t from = *at;
    for (; *at < length && !is_blank(text[*at]); ++*at) {
        if (text[*at] < '0' || text[*at] > '9' || id > INT32_MAX) return -1;
        id = 10 * id + (text[*at] - '0');
    }
    return *at > from ? id : -1;
}

/* The ids of a text, into ids[], which has room for all. */
static cellar_status read_ids(const tokenizer *tok, const prompt *input, cellar_token *ids,
                              size_t *n, cellar_error *error)
{
    *n = 0;
    for (size_t at = 0; at < input->length;) {
        if (is_blank(input->text[at])) {
            at++;
            continue;
        }
        const size_t from = at;
        const int64_t id = read_id(input->text, input->length, &at);
        if (id < 0) {
            return report(error, CELLAR_INVALID, (int64_t)from,
                          "what stands at byte %zu is not a token id: digits are expected, with "
                          "white space between ids",
                          from);
        }
        if (id >= tokenizer_size(tok)) {
            return report(error, CELLAR_INVALID, (int64_t)from,
                          "there is no token %" PRId64 " (byte %zu), ids are below %" PRIu32, id,
                          from, tokenizer_size(tok));
        }
        ids[(*n)++] = (cellar_token)id;
    }
    return CELLAR_OK;
}

static cellar_status detokenize(const tokenize_request *request, const tokenizer *tok,
                                cellar_error *error)
{
    prompt input;
    size_t n = 0, length = 0;
    char *text = NULL;
    cellar_status status = prompt_read_exactly(request->text, request->path, &input, error);
    if (status != CELLAR_OK) return status;
    cellar_token *ids = malloc((input.length / 2 + 1) * sizeof *ids);
    if (ids == NULL) {
        status = report(error, CELLAR_NO_MEMORY, -1, "no memory for the ids");
    } else {
        status = read_ids(tok, &input, ids, &n, error);
    }
    if (status == CELLAR_OK)
        status = tokenizer_decode(tok, ids, n, request->special, &text, &length, error);
    if (status == CELLAR_OK && length > 0) (void)fwrite(text, 1, length, stdout);
    free(text);
    free(ids);
    prompt_free(&input);
    return status;
}

int command_detokenize(int argc, char **argv)
{
    tokenize_request request = {.model = NULL};
    const option table[] = {
        option_text('m', "model", &request.model),
        option_text('p', "prompt", &request.text),
        option_text('f', "file", &request.path),
        option_flag(0, "special", &request.special),
    };
    cellar_error error;
    int code;
    options_result result = options_parse(table, sizeof table / sizeof *table, argc, argv, NULL, 0,
                                          NULL, &error);
    if (result == OPTIONS_OK) result = check_sources(&request, &error);
    if (answer(result, "detokenize", command_detokenize_help, &error, &code) != OPTIONS_OK)
        return code;
    return carry_out("detokenize", &request, detokenize);
}
