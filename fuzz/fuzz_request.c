/*
 * fuzz_request.c: any bytes as the body of a request for text.
 *
 * Input: the body. It is read as a completion and as a conversation, as the endpoints read it, with the built-in
 * model's vocabulary and a template; nothing is computed.
 *
 * Checked: what is wrong is named, in UTF-8; what is right is within its bounds: tokens of the vocabulary, choices, limits,
 * slots, stops that are not empty; and sampling is something that a sampler takes.
 */
#include <stdlib.h>
#include <string.h>

#include "builtin_model.h"
#include "safe_text.h"
#include "serve/completion_request.h"
#include "serve/conversation_request.h"
#include "serve/http_parts.h"
#include "template/chat_formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) __builtin_trap();                                                        \
    } while (0)

enum { N_SLOTS = 4, N_CONTEXT = 256 };

/* Made once, for all inputs. */
static const server *the_server(void)
{
    static server s;
    static gguf_file *file;
    static model *m;
    static tokenizer *tok;
    static chat_encoder *encoder;
    static chat_template *compiled;
    if (s.engine == NULL) {
        const char *text = chat_format_find("chatml")->template_text;
        engine_options options = engine_defaults();
        options.n_cells = 32;
        options.n_ubatch = 1;
        REQUIRE(gguf_open_memory(builtin_model_begin, builtin_model_size(), &file, NULL) ==
                CELLAR_OK);
        REQUIRE(model_load(file, &m, NULL) == CELLAR_OK);
        REQUIRE(tokenizer_create(file, &tok, NULL) == CELLAR_OK);
        REQUIRE(chat_encoder_create(tok, &encoder, NULL) == CELLAR_OK);
        REQUIRE(chat_template_compile(text, strlen(text), NULL, &compiled, NULL) == CELLAR_OK);
        REQUIRE(chat_renderer_make(encoder, compiled, "<s>", "</s>", 1, &s.renderer, NULL) ==
                CELLAR_OK);
        REQUIRE(engine_create(m, &options, &s.engine, NULL) == CELLAR_OK);
        s.tokenizer = tok;
        s.encoder = encoder;
        s.sampling = sampler_defaults();
        s.seed = 1;
        s.n_predict = -1;
        s.n_slots = N_SLOTS;
        s.n_context = N_CONTEXT;
    }
    return &s;
}

static void check_wrong(const fields *f)
{
    REQUIRE(f->param[0] != '\0' && f->message[0] != '\0');
    REQUIRE(strlen(f->param) < sizeof f->param && strlen(f->message) < sizeof f->message);
}

static void check_right(const server *s, const job_request *r)
{
    const uint32_t n_vocab = engine_model(s->engine)->n_vocab;
    REQUIRE(r->owner != NULL && r->n_prompt > 0);
    for (size_t i = 0; i < r->n_prompt; i++) {
        REQUIRE(r->prompt[i] >= 0 && (uint32_t)r->prompt[i] < n_vocab);
    }
    for (size_t i = 0; i < r->n_biases; i++) {
        REQUIRE(r->biases[i].token >= 0 && (uint32_t)r->biases[i].token < n_vocab);
    }
    for (size_t i = 0; i < r->n_stops; i++) {
        REQUIRE(r->stops[i][0] != '\0');
    }
    REQUIRE(r->n_choices >= 1 && r->n_choices <= JOB_MOST_CHOICES);
    REQUIRE(r->slot >= -1 && r->slot < N_SLOTS);
    sampler *made;
    REQUIRE(sampler_create(&r->sampling, n_vocab, &made, NULL) == CELLAR_OK);
    sampler_destroy(made);
}

static void read_completion(server *s, const json_t *body)
{
    http http_ = {.listening.socket = -1};
    const http_request request = {.http = &http_};
    fields f = fields_of(body);
    job_request asked;
    completion_wishes wishes;
    cellar_error error;
    cellar_status status = completion_request_read(s, &request, &f, &asked, &wishes, &error);
    if (status == CELLAR_OK) {
        status = completion_request_prompt(s, &f, "prompt", fields_get(&f, "prompt"), &asked,
                                           &error);
    }
    if (f.is_wrong) {
        check_wrong(&f);
    } else if (status == CELLAR_OK) {
        check_right(s, &asked);
    }
    job_request_free(&asked);
}

static void read_conversation(const server *s, const json_t *body)
{
    fields f = fields_of(body);
    conversation_request talk;
    cellar_error error = {.message = ""};
    cellar_status status = conversation_request_read(&f, &talk, &error);
    if (f.is_wrong) {
        check_wrong(&f);
    } else if (status == CELLAR_OK) {
        cellar_token *tokens = NULL;
        char *text = NULL;
        size_t n = 0, length = 0;
        bool is_start;
        status = conversation_request_tokens(s, &talk, &tokens, &n, &is_start, &error);
        REQUIRE(status == CELLAR_OK ? n > 0 : error.message[0] != '\0');
        if (conversation_request_show(s, &talk, &text, &length, &error) == CELLAR_OK) {
            REQUIRE(safe_text_is_utf8(text, length));
        }
        free(tokens);
        free(text);
    }
    conversation_request_free(&talk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    server s = *the_server();
    json_t *body = json_loadb((const char *)data, size, 0, NULL);
    if (json_is_object(body)) {
        read_completion(&s, body);
        read_conversation(&s, body);
    }
    json_decref(body);
    return 0;
}
