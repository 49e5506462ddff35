/*
 * server.h: everything that the endpoints share, and the life of the server.
 *
 * What is in here is made before the first connection and only read afterwards, but for the scheduler, which
 * sees to itself. Endpoints are functions in api_*.c, listed in routes.c.
 */
#ifndef APP_SERVER_H
#define APP_SERVER_H

#include <stdatomic.h>

#include "chat/chat_renderer.h"
#include "engine/model.h"
#include "serve/fields.h"
#include "serve/http.h"
#include "serve/scheduler.h"

typedef struct server {
    /* Given by whoever makes it; all of it outlives the server. */
    engine *engine;
    const tokenizer *tokenizer;
    const chat_encoder *encoder;
    chat_renderer renderer;
    chat_template_features features;
    const char *template_text; /* NULL: the model has none */
    const char *model_path;    /* NULL: the one that is built in */
    const char *model_name;    /* as /v1/models has it */
    const char *slot_folder;   /* where slots are saved; NULL: nowhere */
    sampler_options sampling;  /* where a request says nothing */
    int64_t seed;              /* -1: a fresh one for each request */
    int64_t n_predict;         /* where a request says nothing; -1: as many as fit */
    uint32_t n_slots, n_context;
    reuse_options reuse; /* but its model */
    bool shows_slots, shows_metrics;
    bool marks_messages; /* the memory can go back to marked places only; set by server_start */
    bool logs, logs_json;

    /* Its own. */
    scheduler *scheduler;
    pthread_mutex_t embedding; /* one text at a time */
    int64_t started;           /* seconds since 1970 */
    atomic_uint_fast64_t next_id;
    uint64_t id_seed;
} server;

extern const http_route server_routes[];
extern const size_t n_server_routes;

/* Start the scheduler. n_chunk and n_queue as in scheduler_options. */
cellar_status server_start(server *s, uint32_t n_chunk, uint32_t n_queue, cellar_error *error);

void server_stop(server *s); /* after the last connection; a server that never started too */

/* For http_options.log. */
void server_log(server *s, const http_request *request, unsigned status, double seconds);

/* ---- for endpoints -------------------------------------------------------------------------- */

#define SERVER_ID_BYTES 40u
#define SERVER_OWNER_BYTES 40u

/* Whose a request is, as the prefix library knows it: a hash of its key; without keys "". */
void server_owner(const http_request *request, char owner[SERVER_OWNER_BYTES]);

/* A new id, `prefix` and 24 digits. */
void server_new_id(server *s, const char *prefix, char id[SERVER_ID_BYTES]);
uint64_t server_fresh_seed(void);

/*
 * The body as a JSON object, to be released; NULL: it is none, and the error is the reply.
 */
json_t *server_read_body(http_request *request);

/* Is something wrong with the fields? Then that is the reply. */
bool server_refuse_fields(http_request *request, const fields *f);

/* A status of our own parts as a reply: what the client did wrong is 400, else 500. */
void server_reply_status(http_request *request, cellar_status status, const cellar_error *error);

/* Tokens as text: valid UTF-8, as a JSON string. NULL: no memory. */
json_t *server_text_of(const server *s, const cellar_token *tokens, size_t n);

/*
 * A token as an API shows it: {"token", "bytes"} are set in `to`. What is not UTF-8 by itself has U+FFFD in its
 * text.
 */
void server_describe_token(const server *s, cellar_token token, json_t *to);

void api_page(server *s, http_request *request);
void api_page_style(server *s, http_request *request);
void api_page_script(server *s, http_request *request);
void api_page_icon(server *s, http_request *request);
void api_health(server *s, http_request *request);
void api_models(server *s, http_request *request);
void api_props(server *s, http_request *request);
void api_metrics(server *s, http_request *request);
void api_slots(server *s, http_request *request);
void api_slot_action(server *s, http_request *request);
void api_memory(server *s, http_request *request);
void api_cache(server *s, http_request *request);
void api_cache_drop(server *s, http_request *request);
void api_tokenize(server *s, http_request *request);
void api_detokenize(server *s, http_request *request);
void api_apply_template(server *s, http_request *request);
void api_count_chat(server *s, http_request *request);
void api_native_completion(server *s, http_request *request);
void api_completions(server *s, http_request *request);
void api_chat_completions(server *s, http_request *request);
void api_messages(server *s, http_request *request);
void api_count_messages(server *s, http_request *request);
void api_embeddings(server *s, http_request *request);

#endif /* APP_SERVER_H */
