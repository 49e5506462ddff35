/*
 * serve_make.c: everything that `cellar serve` needs, made in order and given back in the other.
 *
 * The template is found as `cellar chat` finds it: the one that was named, else the model's own, else none.
 * Keys come from the command line (which other users of the machine can see) or from a file with one on each line.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "builtin_model.h"
#include "cli/prompt.h"
#include "cli/serve.h"
#include "report.h"
#include "template/chat_formats.h"

void serve_fail(const char *subject, const cellar_error *error)
{
    cellar_error name; /* report() leaves only what a terminal may see */
    report(&name, error->status, -1, "%s: ", subject != NULL ? subject : "");
    fprintf(stderr, "cellar serve: %s%s\n", subject != NULL ? name.message : "", error->message);
}

/* ---- the template --------------------------------------------------------------------------- */

static cellar_status read_template(serve_parts *p, cellar_error *error)
{
    const char *name = p->options->format;
    const chat_format *known = name != NULL ? chat_format_find(name) : NULL;
    gguf_string its;
    if (known != NULL) {
        p->template_text = strdup(known->template_text);
    } else if (name != NULL) {
        prompt text;
        cellar_status status = prompt_read(NULL, name, &text, error);
        if (status != CELLAR_OK) {
            return status;
        }
        p->template_text = strndup(text.text, text.length);
        prompt_free(&text);
    } else if (gguf_get_string(p->opened.file, "tokenizer.chat_template", &its, NULL) ==
               CELLAR_OK) {
        p->template_text = strndup(its.data, its.length);
    } else {
        return CELLAR_OK;
    }
    return p->template_text != NULL
               ? chat_template_compile(p->template_text, strlen(p->template_text), NULL,
                                       &p->compiled, error)
               : report(error, CELLAR_NO_MEMORY, -1, "no memory for the chat template");
}

/* The written form of a token, for the template; NULL where the model has none. */
static char *written_form(const tokenizer *tok, cellar_token token)
{
    const size_t n = token >= 0 ? tokenizer_piece(tok, token, true, NULL, 0) : 0;
    char *text = n > 0 ? malloc(n + 1) : NULL;
    if (text != NULL) {
        tokenizer_piece(tok, token, true, text, n);
        text[n] = '\0';
    }
    return text;
}

static cellar_status make_renderer(serve_parts *p, cellar_error *error)
{
    const tokenizer *tok = p->opened.tokenizer;
    cellar_error inner = {.status = CELLAR_OK};
    cellar_status status = read_template(p, &inner);
    if (status != CELLAR_OK) {
        return report(error, status, inner.at,
                      "the chat template: %s; --chat-template gives another", inner.message);
    }
    p->bos = written_form(tok, tokenizer_bos(tok));
    p->eos = written_form(tok, tokenizer_eos(tok));
    status = chat_encoder_create(tok, &p->encoder, error);
    if (status == CELLAR_OK) {
        status = chat_renderer_make(p->encoder, p->compiled, p->bos, p->eos, (int64_t)time(NULL),
                                    &p->server.renderer, error);
    }
    if (status == CELLAR_OK && p->compiled != NULL) {
        status = chat_template_probe(p->compiled, p->bos, p->eos, &p->server.features, error);
    }
    return status;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static cellar_status add_key(serve_parts *p, const char *key, size_t n, cellar_error *error)
{
    char **larger = n > 0 ? realloc(p->keys, (p->n_keys + 1) * sizeof *larger) : NULL;
    if (n == 0) {
        return CELLAR_OK;
    }
    if (larger != NULL) {
        p->keys = larger;
        larger[p->n_keys] = strndup(key, n);
    }
    if (larger == NULL || larger[p->n_keys] == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for keys");
    }
    p->n_keys++;
    return CELLAR_OK;
}

static cellar_status read_keys(serve_parts *p, cellar_error *error)
{
    const serve_options *o = p->options;
    cellar_status status = o->key != NULL ? add_key(p, o->key, strlen(o->key), error) : CELLAR_OK;
    if (status != CELLAR_OK || o->key_file == NULL) {
        return status;
    }
    prompt text;
    status = prompt_read(NULL, o->key_file, &text, error);
    if (status != CELLAR_OK) {
        return status;
    }
    for (size_t at = 0; status == CELLAR_OK && at < text.length;) {
        size_t n = 0;
        while (at + n < text.length && text.text[at + n] != '\n' && text.text[at + n] != '\r') {
            n++;
        }
        status = add_key(p, text.text + at, n, error);
        at += n + 1;
    }
    prompt_free(&text);
    if (status == CELLAR_OK && p->n_keys == 0) {
        return report(error, CELLAR_INVALID, -1, "option --api-key-file: there is no key in it");
    }
    return status;
}

/* The secret of names in the shared store, without the line end. */
static cellar_status read_shared_key(serve_parts *p, cellar_error *error)
{
    const serve_options *o = p->options;
    prompt text;
    if (o->shared_key == NULL) {
        return CELLAR_OK;
    }
    const cellar_status status = prompt_read(NULL, o->shared_key, &text, error);
    if (status != CELLAR_OK) {
        return status;
    }
    size_t n = text.length;
    while (n > 0 && (text.text[n - 1] == '\n' || text.text[n - 1] == '\r')) {
        n--;
    }
    p->shared_secret = n > 0 ? malloc(n) : NULL; /* any bytes */
    if (p->shared_secret != NULL) {
        memcpy(p->shared_secret, text.text, n);
        p->n_shared_secret = n;
    }
    prompt_free(&text);
    return p->shared_secret != NULL
               ? CELLAR_OK
               : report(error, CELLAR_INVALID, -1, "option --shared-key: the file is empty");
}

/* ---- engine and server ---------------------------------------------------------------------- */

static cellar_status make_engine(serve_parts *p, cellar_error *error)
{
    const serve_options *o = p->options;
    engine_options options;
    cellar_status status = memory_options_apply(&o->memory, p->opened.model, &options, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (p->opened.model->encoder != NULL) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "a model with an encoder cannot be served; 'cellar run' runs it");
    }
    options.cpu_mask = o->cpu_mask;
    /* As many again as are at work may wait, retained, in models with windows and states. */
    options.n_sequences = 2 * (uint32_t)o->n_slots;
    options.checkpoint_bytes = (uint64_t)o->checkpoint_mib << 20;
    return engine_create(p->opened.model, &options, &p->engine, error);
}

/* How the model is called: the alias, or the name of its file. */
static cellar_status name_model(serve_parts *p, cellar_error *error)
{
    const serve_options *o = p->options;
    const char *name = o->alias, *slash;
    if (name == NULL) {
        name = o->model != NULL ? o->model : BUILTIN_MODEL_NAME;
        slash = strrchr(name, '/');
        name = slash != NULL && slash[1] != '\0' ? slash + 1 : name;
    }
    const size_t n = strlen(name);
    const bool has_ending = o->alias == NULL && n > 5 && strcmp(name + n - 5, ".gguf") == 0;
    p->name = strndup(name, has_ending ? n - 5 : n);
    return p->name != NULL ? CELLAR_OK
                           : report(error, CELLAR_NO_MEMORY, -1, "no memory for a name");
}

static cellar_status start_server(serve_parts *p, cellar_error *error)
{
    const serve_options *o = p->options;
    server *s = &p->server;
    const uint32_t n_cells = engine_cells(p->engine);
    s->engine = p->engine;
    s->tokenizer = p->opened.tokenizer;
    s->encoder = p->encoder;
    s->template_text = p->template_text;
    s->model_path = o->model;
    s->model_name = p->name;
    s->slot_folder = o->slot_folder;
    s->sampling = sampling_options_apply(&o->sampling);
    s->seed = o->sampling.seed;
    s->n_predict = o->n_predict;
    s->n_slots = (uint32_t)o->n_slots;
    s->n_context = o->n_context > 0 && o->n_context < n_cells ? (uint32_t)o->n_context : n_cells;
    s->reuse = (reuse_options){.ram_bytes = (uint64_t)o->cache_ram_mib << 20,
                               .folder = o->cache_folder,
                               .disk_bytes = (uint64_t)o->cache_disk_mib << 20,
                               .shares_between_keys = o->shares_prefixes,
                               .shared = {.address = o->shared,
                                          .password = getenv("CELLAR_SHARED_PASSWORD"),
                                          .ca_file = o->shared_ca,
                                          .secret = p->shared_secret,
                                          .secret_bytes = p->n_shared_secret,
                                          .most_bytes = (uint64_t)o->shared_ram_mib << 20,
                                          .expire_seconds = (uint32_t)o->shared_expire,
                                          .wait_seconds = (double)o->shared_wait / 1e3,
                                          .logs = !o->is_quiet}};
    s->shows_slots = !o->no_slots;
    s->shows_metrics = o->has_metrics;
    s->logs = !o->is_quiet;
    s->logs_json = o->logs_json;
    return server_start(s, (uint32_t)o->n_chunk, (uint32_t)o->n_queue, error);
}

static cellar_status start_http(serve_parts *p, cellar_error *error)
{
    const serve_options *o = p->options;
    const http_options options = {.host = o->host,
                                  .port = (uint16_t)o->port,
                                  .n_connections = (uint32_t)o->n_connections,
                                  .max_body = (size_t)o->max_body_mib << 20,
                                  .request_seconds = (double)o->request_seconds,
                                  .routes = server_routes,
                                  .n_routes = n_server_routes,
                                  .keys = p->keys,
                                  .n_keys = p->n_keys,
                                  .server = &p->server,
                                  .log = server_log};
    return http_create(&options, &p->http, error);
}

bool serve_make(const serve_options *options, serve_parts *p)
{
    *p = (serve_parts){.options = options};
    cellar_error error = {.status = CELLAR_OK};
    if (model_file_open(options->model, options->no_mmap, &p->opened, &error) != CELLAR_OK) {
        serve_fail(model_file_name(options->model), &error);
        return false;
    }
    if (make_renderer(p, &error) != CELLAR_OK || read_keys(p, &error) != CELLAR_OK ||
        read_shared_key(p, &error) != CELLAR_OK || name_model(p, &error) != CELLAR_OK ||
        make_engine(p, &error) != CELLAR_OK || start_server(p, &error) != CELLAR_OK ||
        start_http(p, &error) != CELLAR_OK) {
        serve_fail(NULL, &error);
        return false;
    }
    return true;
}

void serve_free(serve_parts *p)
{
    if (p->server.scheduler != NULL) {
        scheduler_stop(p->server.scheduler); /* nobody waits for it any more */
    }
    http_destroy(p->http);
    server_stop(&p->server);
    engine_destroy(p->engine);
    chat_template_destroy(p->compiled);
    chat_encoder_destroy(p->encoder);
    model_file_close(&p->opened);
    for (size_t i = 0; i < p->n_keys; i++) {
        free(p->keys[i]);
    }
    free(p->keys);
    free(p->shared_secret);
    free(p->template_text);
    free(p->bos);
    free(p->eos);
    free(p->name);
}
