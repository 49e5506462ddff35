/*
 * serve.h: what `cellar serve` keeps from its command line to its end.
 *
 * command_serve.c reads the options and waits for signals, serve_make.c makes the parts and gives them back.
 */
#ifndef APP_SERVE_H
#define APP_SERVE_H

#include "cli/memory_options.h"
#include "cli/model_file.h"
#include "cli/sampling_options.h"
#include "serve/http.h"
#include "serve/server.h"

typedef struct serve_options {
    const char *model, *cpu, *format, *alias, *host, *key, *key_file, *slot_folder, *cache_folder,
        *shared, *shared_ca, *shared_key;
    memory_options memory;
    sampling_options sampling;
    int64_t port, n_slots, n_context, n_predict, n_chunk, n_queue, n_connections, max_body_mib,
        request_seconds, grace_seconds, checkpoint_mib, cache_ram_mib, cache_disk_mib,
        shared_ram_mib, shared_expire, shared_wait;
    uint32_t cpu_mask;
    bool no_mmap, shares_prefixes, no_slots, logs_json, is_quiet, has_metrics;
} serve_options;

typedef struct serve_parts {
    const serve_options *options;
    model_file opened;
    chat_encoder *encoder;
    chat_template *compiled;
    char *template_text, *bos, *eos, *name;
    char **keys; /* [n_keys] */
    size_t n_keys;
    char *shared_secret; /* [n_shared_secret] NULL: none */
    size_t n_shared_secret;
    engine *engine;
    server server;
    http *http;
} serve_parts;

/* Make everything and listen. What fails is said; false. To be given back either way. */
bool serve_make(const serve_options *options, serve_parts *parts);
void serve_free(serve_parts *parts);

/* Say what went wrong. `subject` may be NULL. */
void serve_fail(const char *subject, const cellar_error *error);

#endif /* APP_SERVE_H */
