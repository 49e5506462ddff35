/*
 * routes.c: which path and method leads to which endpoint.
 *
 * The table is looked through from the top. An endpoint that is not in it does not exist: there are none that only
 * pretend. Public ones ask for no key: whoever watches over the server need not have one.
 */
#include "serve/server.h"

const http_route server_routes[] = {
    {"GET", "/", api_page, true},
    {"GET", "/page.css", api_page_style, true},
    {"GET", "/page.js", api_page_script, true},
    {"GET", "/page.svg", api_page_icon, true},
    {"GET", "/health", api_health, true},
    {"GET", "/v1/health", api_health, true},
    {"GET", "/v1/models", api_models, false},
    {"GET", "/models", api_models, false},
    {"GET", "/props", api_props, false},
    {"GET", "/metrics", api_metrics, false},
    {"GET", "/slots", api_slots, false},
    {"POST", "/slots/*", api_slot_action, false},
    {"GET", "/memory", api_memory, false},
    {"GET", "/cache", api_cache, false},
    {"DELETE", "/cache/*", api_cache_drop, false},
    {"POST", "/tokenize", api_tokenize, false},
    {"POST", "/detokenize", api_detokenize, false},
    {"POST", "/apply-template", api_apply_template, false},
    {"POST", "/completion", api_native_completion, false},
    {"POST", "/completions", api_native_completion, false},
    {"POST", "/v1/completions", api_completions, false},
    {"POST", "/v1/chat/completions", api_chat_completions, false},
    {"POST", "/chat/completions", api_chat_completions, false},
    {"POST", "/v1/messages", api_messages, false},
    {"POST", "/v1/messages/count_tokens", api_count_messages, false},
    {"POST", "/v1/embeddings", api_embeddings, false},
    {"POST", "/embeddings", api_embeddings, false},
    {"POST", "/v1/chat/completions/input_tokens", api_count_chat, false},
};

const size_t n_server_routes = sizeof server_routes / sizeof server_routes[0];
