/*
 * api_tokens.c: /tokenize and /detokenize.
 *
 * A piece that is not UTF-8 by itself (a part of a character) is shown as a list of its bytes.
 */
#include <stdlib.h>

#include "safe_text.h"
#include "serve/server.h"

/* The text of a token, or its bytes. */
static json_t *piece_of(const server *s, cellar_token token)
{
    const size_t n = tokenizer_piece(s->tokenizer, token, true, NULL, 0);
    char *piece = malloc(n + 1);
    json_t *made = NULL;
    if (piece != NULL) {
        tokenizer_piece(s->tokenizer, token, true, piece, n);
        made = safe_text_is_utf8(piece, n) ? json_stringn(piece, n) : NULL;
    }
    if (made == NULL && piece != NULL) {
        made = json_array();
        for (size_t i = 0; i < n; i++) {
            (void)!json_array_append_new(made, json_integer((unsigned char)piece[i]));
        }
    }
    free(piece);
    return made;
}

static json_t *list_of(const server *s, const cellar_token *tokens, size_t n, bool has_pieces)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        (void)!json_array_append_new(list, has_pieces ? json_pack("{s:I, s:o}", "id",
                                                                  (json_int_t)tokens[i], "piece",
                                                                  piece_of(s, tokens[i]))
                                                      : json_integer(tokens[i]));
    }
    return json_pack("{s:o}", "tokens", list);
}

void api_tokenize(server *s, http_request *request)
{
    json_t *body = server_read_body(request);
    if (body == NULL) {
        return;
    }
    fields f = fields_of(body);
    tokenize_options how = {.parse_special = true};
    bool has_pieces = false;
    const json_t *content = fields_text(&f, "content");
    if (content == NULL) {
        fields_wrong(&f, "content", "a text");
    }
    fields_flag(&f, "add_special", &how.add_special);
    fields_flag(&f, "parse_special", &how.parse_special);
    fields_flag(&f, "with_pieces", &has_pieces);
    if (!server_refuse_fields(request, &f)) {
        cellar_token *tokens = NULL;
        size_t n = 0;
        cellar_error error = {.status = CELLAR_OK};
        const cellar_status status = tokenizer_encode(s->tokenizer, json_string_value(content),
                                                      json_string_length(content), how, &tokens, &n,
                                                      &error);
        if (status == CELLAR_OK) {
            http_reply_json(request, 200, list_of(s, tokens, n, has_pieces));
        } else {
            server_reply_status(request, status, &error);
        }
        free(tokens);
    }
    json_decref(body);
}

void api_detokenize(server *s, http_request *request)
{
    json_t *body = server_read_body(request);
    if (body == NULL) {
        return;
    }
    fields f = fields_of(body);
    const json_t *list = fields_array(&f, "tokens");
    const size_t n = json_array_size(list);
    cellar_token *tokens = malloc((n + 1) * sizeof *tokens);
    if (list == NULL) {
        fields_wrong(&f, "tokens", "a list of tokens");
    }
    for (size_t i = 0; tokens != NULL && i < n; i++) {
        const json_t *its = json_array_get(list, i);
        const json_int_t id = json_integer_value(its);
        if (!json_is_integer(its) || id < 0 || id >= (json_int_t)tokenizer_size(s->tokenizer)) {
            fields_wrong(&f, "tokens", "tokens of the model");
            break;
        }
        tokens[i] = (cellar_token)id;
    }
    if (!server_refuse_fields(request, &f)) {
        http_reply_json(request, 200,
                        tokens != NULL ? json_pack("{s:o}", "content", server_text_of(s, tokens, n))
                                       : NULL);
    }
    free(tokens);
    json_decref(body);
}
