/*
 * text_list.c: cut a file at its separating lines and tokenize what lies between them.
 *
 * The file is read whole; each text is tokenized by itself, as nothing of one may join with another.
 * Fails as reading and tokenizing do.
 */
#include "cli/text_list.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/prompt.h"
#include "report.h"

/* Append the tokens of a text, and where it ends. */
static cellar_status add_text(text_list *list, const tokenizer *tok, const char *text,
                              size_t length, tokenize_options how, cellar_error *error)
{
    cellar_token *ids = NULL;
    size_t n = 0;
    cellar_status status = tokenizer_encode(tok, text, length, how, &ids, &n, error);
    if (status != CELLAR_OK) {
        return status;
    }
    cellar_token *tokens = realloc(list->tokens, (list->n_tokens + n + 1) * sizeof *tokens);
    list->tokens = tokens != NULL ? tokens : list->tokens;
    size_t *ends = realloc(list->ends, (list->n_texts + 1) * sizeof *ends);
    list->ends = ends != NULL ? ends : list->ends;
    if (tokens != NULL && ends != NULL) {
        if (n > 0) {
            memcpy(tokens + list->n_tokens, ids, n * sizeof *ids);
        }
        list->n_tokens += n;
        list->n_empty += n == 0;
        ends[list->n_texts++] = list->n_tokens;
    }
    free(ids);
    return tokens != NULL && ends != NULL
               ? CELLAR_OK
               : report(error, CELLAR_NO_MEMORY, -1, "no memory for the tokens of the text");
}

/*
 * The first line from `from` on that is the separator: the text before it ends at *end, without its
 * line end, and the next one begins at *next. False: there is none, *end is the end of all.
 */
static bool find_separator(const prompt *text, const char *separator, size_t length, size_t from,
                           size_t *end, size_t *next)
{
    for (size_t line = from, line_end; separator != NULL && line <= text->length;
         line = line_end + 1) {
        const char *found = line < text->length
                                ? memchr(text->text + line, '\n', text->length - line)
                                : NULL;
        line_end = found != NULL ? (size_t)(found - text->text) : text->length;
        if (line_end - line == length && memcmp(text->text + line, separator, length) == 0) {
            *end = line > from ? line - 1 : from;
            *next = line_end < text->length ? line_end + 1 : text->length;
            return true;
        }
        if (found == NULL) {
            break;
        }
    }
    *end = *next = text->length;
    return false;
}

cellar_status text_list_read(const tokenizer *tok, const char *path, const char *separator,
                             tokenize_options how, text_list *out, cellar_error *error)
{
    prompt text = {.length = 0};
    *out = (text_list){.n_texts = 0};
    if (path == NULL) {
        return add_text(out, tok, "", 0, how, error);
    }
    cellar_status status = prompt_read(NULL, path, &text, error);
    const size_t length = separator != NULL ? strlen(separator) : 0;
    bool has_more = true;
    for (size_t from = 0; status == CELLAR_OK && has_more;) {
        size_t end = from, next = from;
        has_more = find_separator(&text, separator, length, from, &end, &next);
        status = add_text(out, tok, text.text + from, end - from, how, error);
        from = next;
    }
    prompt_free(&text);
    return status;
}

void text_list_free(text_list *list)
{
    free(list->tokens);
    free(list->ends);
    *list = (text_list){.n_texts = 0};
}
