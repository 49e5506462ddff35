/*
 * api_info.c: what the server says of itself: /health, /v1/models, /props.
 *
 * Names and units are those that clients of such servers know. n_ctx is what one request may use, prompt and
 * answer together; clients size their prompts by it.
 */
#include "engine/gguf.h"
#include "serve/server.h"

void api_health(server *s, http_request *request)
{
    (void)s;
    http_reply_json(request, 200, json_pack("{s:s}", "status", "ok"));
}

/* Numbers in all tensors, and their bytes. */
static void count_weights(const gguf_file *file, json_int_t *n, json_int_t *bytes)
{
    *n = *bytes = 0;
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        *n += (json_int_t)tensor->n_elements;
        *bytes += (json_int_t)tensor->n_bytes;
    }
}

void api_models(server *s, http_request *request)
{
    const model *m = engine_model(s->engine);
    json_int_t n_numbers, n_bytes;
    count_weights(m->file, &n_numbers, &n_bytes);
    json_t *meta = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "n_ctx_train",
                             (json_int_t)m->n_context, "n_ctx", (json_int_t)s->n_context, "n_vocab",
                             (json_int_t)m->n_vocab, "n_embd", (json_int_t)m->n_embd, "n_params",
                             n_numbers, "size", n_bytes);
    json_t *its = json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", s->model_name, "object", "model",
                            "created", (json_int_t)s->started, "owned_by", "cellar", "meta", meta);
    http_reply_json(request, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", its));
}

static json_t *defaults(const server *s)
{
    const sampler_options *o = &s->sampling;
    json_t *params =
        json_pack("{s:I, s:f, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:I, s:[], s:b, s:b, s:b}", "seed",
                  (json_int_t)s->seed, "temperature", o->temperature, "top_k", (json_int_t)o->top_k,
                  "top_p", o->top_p, "min_p", o->min_p, "repeat_penalty", o->repeat_penalty,
                  "repeat_last_n", (json_int_t)o->repeat_last, "presence_penalty", 0.0,
                  "frequency_penalty", 0.0, "n_predict", (json_int_t)s->n_predict, "stop",
                  "ignore_eos", false, "stream", false, "cache_prompt", true);
    return json_pack("{s:I, s:o}", "n_ctx", (json_int_t)s->n_context, "params", params);
}

void api_props(server *s, http_request *request)
{
    const chat_template_features *f = &s->features;
    json_t *caps = json_pack("{s:b, s:b, s:b, s:b}", "supports_system_role", f->system,
                             "supports_tools", f->tools, "supports_tool_calls", f->tool_calls,
                             "supports_tool_responses", f->tool_results);
    json_t *props = json_pack(
        "{s:o, s:I, s:s, s:s, s:o, s:{s:b, s:b}, s:s, s:b, s:s, s:b, s:b}",
        "default_generation_settings", defaults(s), "total_slots", (json_int_t)s->n_slots,
        "model_path", s->model_path != NULL ? s->model_path : "", "chat_template",
        s->template_text != NULL ? s->template_text : "", "chat_template_caps", caps, "modalities",
        "vision", false, "audio", false, "build_info", cellar_version(), "is_sleeping", false,
        "model_alias", s->model_name, "slots", s->shows_slots, "slot_save", s->slot_folder != NULL);
    http_reply_json(request, 200, props);
}
