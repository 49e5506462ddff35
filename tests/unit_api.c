/*
 * unit_api.c: the endpoints, over HTTP, as a table: what is asked, and what has to come back.
 *
 * A line of the table is a request, the status, and places in the JSON of the reply with what has to stand
 * there: ="text" exactly, #number, ?kind (text, number, list, object, flag), !nothing. What takes more
 * than a line is a test of its own. All of it speaks to a server of the built-in model on a free port of this machine.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "support_http.h"

/* ---- the table ------------------------------------------------------------------------------ */

typedef struct row {
    const char *method, *path, *body;
    int status;
    const char *wanted[10]; /* "place=text", "place#number", "place?kind", "place!" */
} row;

static const row rows[] = {
    {"GET", "/health", NULL, 200, {"status=ok"}},
    {"GET", "/v1/health", NULL, 200, {"status=ok"}},
    {"GET",
     "/v1/models",
     NULL,
     200,
     {"object=list", "data.0.id=storyteller", "data.0.object=model", "data.0.owned_by=cellar",
      "data.0.meta.n_ctx_train#512", "data.0.meta.n_ctx#1024", "data.0.meta.n_vocab#1536",
      "data.0.meta.n_embd#128", "data.0.meta.n_params?number", "data.0.meta.size?number"}},
    {"GET",
     "/props",
     NULL,
     200,
     {"default_generation_settings.n_ctx#1024", "default_generation_settings.params?object",
      "total_slots#4", "model_path=", "chat_template?text", "chat_template_caps?object",
      "modalities.vision?flag", "build_info?text", "is_sleeping?flag"}},
    /* tokens */
    {"POST", "/tokenize", "{\"content\":\"Once upon\"}", 200, {"tokens?list", "tokens.0?number"}},
    {"POST",
     "/tokenize",
     "{\"content\":\"Once\",\"with_pieces\":true,\"add_special\":true}",
     200,
     {"tokens.0.id#1", "tokens.0.piece=<s>"}},
    {"POST", "/tokenize", "{\"content\":\"\"}", 200, {"tokens?list", "tokens.0!"}},
    {"POST", "/tokenize", "{\"content\":5}", 400, {"error.param=content"}},
    {"POST", "/tokenize", "{}", 400, {"error.param=content"}},
    {"POST",
     "/tokenize",
     "{\"content\":\"a\",\"add_special\":1}",
     400,
     {"error.param=add_special"}},
    {"POST", "/detokenize", "{\"tokens\":[]}", 200, {"content="}},
    {"POST", "/detokenize", "{\"tokens\":[99999]}", 400, {"error.param=tokens"}},
    {"POST", "/detokenize", "{\"tokens\":[-1]}", 400, {"error.param=tokens"}},
    {"POST", "/detokenize", "{\"tokens\":\"a\"}", 400, {"error.param=tokens"}},
    {"POST",
     "/apply-template",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
     200,
     {"prompt=<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"}},
    {"POST", "/apply-template", "{\"messages\":[]}", 400, {"error.param=messages"}},
    {"POST",
     "/apply-template",
     "{\"messages\":[{\"content\":\"x\"}]}",
     400,
     {"error.param=messages[0].role"}},
    {"POST",
     "/v1/chat/completions/input_tokens",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
     200,
     {"object=response.input_tokens", "input_tokens?number"}},
    /* what it holds */
    {"GET",
     "/slots",
     NULL,
     200,
     {"0.id#0", "0.id_task?number", "0.n_ctx#1024", "0.speculative?flag", "0.is_processing?flag",
      "0.params?object", "0.next_token.0.has_next_token?flag", "0.next_token.0.n_remain?number",
      "3.next_token.0.n_decoded?number", "4!"}},
    {"GET", "/slots?fail_on_no_slot=1", NULL, 200, {"0.id#0"}},
    {"GET",
     "/cache",
     NULL,
     200,
     {"entries?list", "n_cells#1024", "n_used?number", "bytes.live?number"}},
    {"DELETE", "/cache/99999", NULL, 404, {"error.type=not_found_error"}},
    {"DELETE", "/cache/x", NULL, 404, {"error.type=not_found_error"}},
    {"GET", "/cache/1", NULL, 405, {"error.code#405"}},
    {"POST", "/slots/4?action=erase", NULL, 404, {"error.type=not_found_error"}},
    {"POST", "/slots/-1?action=erase", NULL, 404, {"error.type=not_found_error"}},
    {"POST", "/slots/0?action=dance", NULL, 400, {"error.param=action"}},
    {"POST", "/slots/0", NULL, 400, {"error.param=action"}},
    {"POST",
     "/slots/0?action=save",
     "{\"filename\":\"a\"}",
     501,
     {"error.type=not_supported_error"}},
    /* what is wrong with a request */
    {"GET", "/nothing", NULL, 404, {"error.code#404", "error.type=not_found_error"}},
    {"POST", "/v1/nothing", "{}", 404, {"error.type=not_found_error"}},
    {"DELETE", "/props", NULL, 405, {"error.code#405", "error.type=invalid_request_error"}},
    {"POST", "/health", "{}", 405, {"error.code#405"}},
    {"POST", "/completion", "{\"prompt\":", 400, {"error.type=invalid_request_error"}},
    {"POST", "/completion", "[1]", 400, {"error.type=invalid_request_error"}},
    {"POST", "/v1/completions", "{\"prompt\":[\"a\",[]]}", 400, {"error.param=prompt"}},
    {"POST", "/v1/completions", "{\"prompt\":[[5],6]}", 400, {"error.param=prompt"}},
    {"POST", "/v1/completions", "{\"prompt\":[[5],[99999]]}", 400, {"error.param=prompt"}},
    {"POST", "/v1/completions", "{\"prompt\":[[5],[[6]]]}", 400, {"error.param=prompt"}},
    {"POST", "/v1/completions", "{\"prompt\":[\"a\",\"b\"],\"n\":65}", 400, {"error.param=prompt"}},
    {"POST",
     "/v1/completions",
     "{\"prompt\":[[300]],\"max_tokens\":1}",
     200,
     {"choices.0.index#0", "choices.1!", "usage.prompt_tokens#1"}},
    {"POST",
     "/completion",
     "{\"prompt\":[\"Once\",[1,300]],\"n_predict\":1}",
     200,
     {"0.index#0", "1.index#1", "0.content?text", "1.tokens_evaluated#2", "1.prompt?text", "2!"}},
    {"POST",
     "/v1/completions",
     "{\"prompt\":[\"a\"],\"max_tokens\":1}",
     200,
     {"usage.completion_tokens#1"}},
    {"POST",
     "/completion",
     "{\"prompt\":[\"a\",5,\"b\"],\"n_predict\":1}",
     200,
     {"tokens_predicted#1"}},
    {"POST", "/completion", NULL, 400, {"error.type=invalid_request_error"}},
    {"POST", "/completion", "{}", 400, {"error.param=prompt"}},
    {"POST", "/completion", "{\"prompt\":{}}", 400, {"error.param=prompt"}},
    {"POST", "/completion", "{\"prompt\":[1,1.5]}", 400, {"error.param=prompt"}},
    {"POST", "/completion", "{\"prompt\":[1536]}", 400, {"error.param=prompt"}},
    {"POST", "/completion", "{\"prompt\":[-1]}", 400, {"error.param=prompt"}},
    {"POST", "/completion", "{\"prompt\":[]}", 400, {"error.param=prompt"}},
    {"POST", "/completion", "{\"prompt\":\"a\\ud800\"}", 400, {"error.code#400"}},
    {"POST",
     "/completion",
     "{\"prompt\":\"a\",\"temperature\":\"hot\"}",
     400,
     {"error.param=temperature"}},
    {"POST",
     "/completion",
     "{\"prompt\":\"a\",\"temperature\":-1}",
     400,
     {"error.param=temperature"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"top_k\":1.5}", 400, {"error.param=top_k"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"top_p\":2}", 400, {"error.param=top_p"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"min_p\":[]}", 400, {"error.param=min_p"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"seed\":\"x\"}", 400, {"error.param=seed"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"n_predict\":-2}", 400, {"error.param=n_predict"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"n_discard\":-5}", 400, {"error.param=n_discard"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"n_keep\":-5}", 400, {"error.param=n_keep"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"id_slot\":4}", 400, {"error.param=id_slot"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"id_slot\":-2}", 400, {"error.param=id_slot"}},
    {"POST",
     "/completion",
     "{\"prompt\":\"a\",\"cache_prompt\":1}",
     400,
     {"error.param=cache_prompt"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"cache_salt\":1}", 400, {"error.param=cache_salt"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"stream\":\"yes\"}", 400, {"error.param=stream"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"stop\":5}", 400, {"error.param=stop"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"stop\":[\"a\",5]}", 400, {"error.param=stop"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"n_probs\":-1}", 400, {"error.param=n_probs"}},
    {"POST",
     "/completion",
     "{\"prompt\":\"a\",\"logit_bias\":[[1]]}",
     400,
     {"error.param=logit_bias"}},
    {"POST",
     "/completion",
     "{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}",
     400,
     {"error.param=logit_bias"}},
    {"POST", "/completion", "{\"prompt\":\"a\",\"lora\":[{\"id\":0}]}", 400, {"error.param=lora"}},
    {"POST",
     "/completion",
     "{\"prompt\":\"a\",\"grammar\":\"root ::= x\"}",
     400,
     {"error.param=grammar"}},
    {"POST",
     "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"response_format\":{\"type\":\"json_"
     "object\"}}",
     400,
     {"error.param=response_format"}},
    {"POST", "/v1/chat/completions", "{\"messages\":\"a\"}", 400, {"error.param=messages"}},
    {"POST",
     "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":5}]}",
     400,
     {"error.param=messages[0].content"}},
    {"POST",
     "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
     400,
     {"error.param=messages[0].content"}},
    {"POST",
     "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"n\":0}",
     400,
     {"error.param=n"}},
    {"POST",
     "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream_options\":{\"include_usage\":"
     "1}}",
     400,
     {"error.param=stream_options.include_usage"}},
    /* answers */
    {"POST",
     "/completion",
     "{\"prompt\":\"The small fox\",\"n_predict\":4,\"temperature\":0,\"unheard_of\":{\"a\":[1]}}",
     200,
     {"stop?flag", "stop_type=limit", "tokens_predicted#4", "truncated?flag",
      "generation_settings.temperature?number", "timings.predicted_n#4", "timings.prompt_n?number",
      "timings.cache_n?number", "cellar.reason?text", "id_slot?number"}},
    {"POST",
     "/completion",
     "{\"prompt\":[1,\"The small\",\" fox\"],\"n_predict\":0}",
     200,
     {"content=", "stop_type=limit", "tokens_predicted#0", "tokens_evaluated?number"}},
    {"POST",
     "/completion",
     "{\"prompt\":\"Once upon a time\",\"n_predict\":2,\"temperature\":0,\"n_probs\":3,"
     "\"return_tokens\":true}",
     200,
     {"tokens.1?number", "tokens.2!", "completion_probabilities.1.logprob?number",
      "completion_probabilities.1.id?number", "completion_probabilities.1.token?text",
      "completion_probabilities.1.bytes?list",
      "completion_probabilities.0.top_logprobs.2.logprob?number",
      "completion_probabilities.0.top_logprobs.3!"}},
    {"POST",
     "/v1/completions",
     "{\"prompt\":\"Once upon a time\",\"max_tokens\":3,\"temperature\":0,\"model\":\"whatever\"}",
     200,
     {"object=text_completion", "choices.0.text=, there was", "choices.0.finish_reason=length",
      "choices.0.logprobs!", "choices.0.index#0", "usage.prompt_tokens#5",
      "usage.completion_tokens#3", "usage.total_tokens#8",
      "usage.prompt_tokens_details.cached_tokens?number", "id?text"}},
    {"POST",
     "/v1/completions",
     "{\"prompt\":\"Once upon a "
     "time\",\"max_tokens\":3,\"temperature\":0,\"echo\":true,\"logprobs\":2}",
     200,
     {"choices.0.text=Once upon a time, there was", "choices.0.logprobs.tokens.2= was",
      "choices.0.logprobs.token_logprobs.0?number", "choices.0.logprobs.top_logprobs.0?object",
      "choices.0.logprobs.text_offset.1#1"}},
    {"POST",
     "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"system\",\"content\":\"Be kind.\"},{\"role\":\"user\",\"content\":"
     "[{\"type\":\"text\",\"text\":\"Tell\"},{\"type\":\"text\",\"text\":\" me.\"}]}],"
     "\"max_completion_tokens\":5,\"temperature\":0,\"logprobs\":true,\"top_logprobs\":2}",
     200,
     {"object=chat.completion", "choices.0.message.role=assistant",
      "choices.0.message.content?text", "choices.0.finish_reason=length",
      "choices.0.logprobs.content.4.top_logprobs.1.logprob?number", "choices.0.logprobs.content.5!",
      "usage.completion_tokens#5", "created?number", "system_fingerprint?text",
      "model=storyteller"}},
    {"POST",
     "/v1/messages",
     "{\"max_tokens\":4,\"temperature\":0,\"system\":[{\"type\":\"text\",\"text\":\"Be kind.\","
     "\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":[{\"role\":\"user\",\"content\":"
     "\"A tale\"}]}",
     200,
     {"type=message", "role=assistant", "content.0.type=text", "content.0.text?text",
      "stop_reason=max_tokens", "stop_sequence!", "usage.output_tokens#4",
      "usage.input_tokens?number", "usage.cache_read_input_tokens?number",
      "usage.cache_creation_input_tokens#0"}},
    {"POST",
     "/v1/messages",
     "{\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}",
     400,
     {"type=error", "error.type=invalid_request_error", "error.param=messages[0].content"}},
    {"POST", "/v1/messages", "{\"messages\":[],\"system\":5}", 400, {"type=error"}},
    {"POST",
     "/v1/messages",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stop_sequences\":[1]}",
     400,
     {"error.param=stop_sequences"}},
    {"POST",
     "/v1/messages/count_tokens",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"A tale\"}]}",
     200,
     {"input_tokens?number"}},
    {"POST",
     "/v1/embeddings",
     "{\"input\":\"A little dog\"}",
     200,
     {"object=list", "data.0.object=embedding", "data.0.index#0", "data.0.embedding.127?number",
      "data.0.embedding.128!", "data.1!", "model=storyteller", "usage.prompt_tokens#5",
      "usage.total_tokens#5"}},
    {"POST",
     "/v1/embeddings",
     "{\"input\":[\"A\",[1,300]],\"encoding_format\":\"base64\",\"pooling\":\"last\"}",
     200,
     {"data.1.index#1", "data.0.embedding?text", "data.2!"}},
    {"POST", "/v1/embeddings", "{}", 400, {"error.param=input"}},
    {"POST", "/v1/embeddings", "{\"input\":[]}", 400, {"error.param=input"}},
    {"POST", "/v1/embeddings", "{\"input\":[\"a\",{}]}", 400, {"error.param=input"}},
    {"POST",
     "/v1/embeddings",
     "{\"input\":\"a\",\"pooling\":\"max\"}",
     400,
     {"error.param=pooling"}},
    {"POST",
     "/v1/embeddings",
     "{\"input\":\"a\",\"encoding_format\":5}",
     400,
     {"error.param=encoding_format"}},
};

static bool is_kind(const json_t *value, const char *kind)
{
    return value != NULL && (strcmp(kind, "text") == 0     ? json_is_string(value)
                             : strcmp(kind, "number") == 0 ? json_is_number(value)
                             : strcmp(kind, "list") == 0   ? json_is_array(value)
                             : strcmp(kind, "object") == 0 ? json_is_object(value)
                                                           : json_is_boolean(value));
}

static bool is_as_wanted(const json_t *reply, const char *wanted)
{
    char place[80];
    const size_t n = strcspn(wanted, "=#?!");
    memcpy(place, wanted, n);
    place[n] = '\0';
    const json_t *its = json_at(reply, place);
    const char *rest = wanted + n + 1;
    switch (wanted[n]) {
    case '=':
        return json_is_string(its) && strcmp(json_string_value(its), rest) == 0;
    case '#':
        return json_is_integer(its) && json_integer_value(its) == atoll(rest);
    case '?':
        return is_kind(its, rest);
    default:
        return its == NULL || json_is_null(its);
    }
}

static void every_row_is_answered_as_it_says(void **state)
{
    served *its = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        http_answer answer = http_ask(its, r->method, r->path, NULL, r->body);
        if (answer.status != r->status) {
            fail_msg("%s %s %s: status %d: %s", r->method, r->path, r->body, answer.status,
                     answer.body);
        }
        for (size_t k = 0; k < 10 && r->wanted[k] != NULL; k++) {
            if (!is_as_wanted(answer.json, r->wanted[k])) {
                fail_msg("%s %s %s: not %s: %s", r->method, r->path, r->body, r->wanted[k],
                         answer.body);
            }
        }
        if (answer.status >= 400) { /* every error has the same shape */
            assert_int_equal(json_number_at(answer.json, "error.code"), answer.status);
            assert_true(strlen(json_text_at(answer.json, "error.message")) > 0);
            assert_true(strlen(json_text_at(answer.json, "error.type")) > 0);
        }
        http_forget(&answer);
    }
}

/* Every line is a comment, or a name (with labels) and a number. */
static void metrics_can_be_read(void **state)
{
    served *its = *state;
    static const char *const names[] = {"llamacpp:prompt_tokens_total",
                                        "llamacpp:prompt_seconds_total",
                                        "llamacpp:prompt_tokens_seconds",
                                        "llamacpp:tokens_predicted_total",
                                        "llamacpp:tokens_predicted_seconds_total",
                                        "llamacpp:predicted_tokens_seconds",
                                        "llamacpp:requests_processing",
                                        "llamacpp:requests_deferred",
                                        "llamacpp:n_tokens_max",
                                        "llamacpp:n_decode_total",
                                        "llamacpp:n_busy_slots_per_decode",
                                        "llamacpp:kv_cache_usage_ratio",
                                        "llamacpp:kv_cache_tokens",
                                        "cellar:prefix_hit_tokens_total{reason=\"whole\"}"};
    http_answer a = http_ask(its, "GET", "/metrics", NULL, NULL);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.head, "text/plain; version=0.0.4"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[96];
        snprintf(line, sizeof line, "\n%s ", names[i]);
        if (strstr(a.body, line) == NULL) {
            fail_msg("no %s in %s", names[i], a.body);
        }
    }
    for (char *line = strtok(a.body, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *end;
        const char *number = strrchr(line, ' ');
        if (line[0] != '#') {
            assert_non_null(number);
            assert_true(strtod(number, &end) >= 0 && *end == '\0');
        }
    }
    http_forget(&a);
}

/* ---- several prompts ------------------------------------------------------------------------ */

#define SETTINGS "\"max_tokens\":12,\"temperature\":1,\"seed\":7"

/* A list of prompts is answered as a request for each would be; here two choices of each of three. */
static void several_prompts_are_as_many_requests(void **state)
{
    served *its = *state;
    static const char *const prompts[] = {"\"Once upon a time\"", "[1,300,301,302]",
                                          "\"The little dog\""};
    char body[512], *texts[6];
    json_int_t n_prompt = 0, n_written = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(body, sizeof body, "{\"prompt\":%s,\"n\":2," SETTINGS "}", prompts[i]);
        http_answer one = http_ask(its, "POST", "/v1/completions", NULL, body);
        assert_int_equal(one.status, 200);
        texts[2 * i] = strdup(json_text_at(one.json, "choices.0.text"));
        texts[2 * i + 1] = strdup(json_text_at(one.json, "choices.1.text"));
        n_prompt += json_number_at(one.json, "usage.prompt_tokens");
        n_written += json_number_at(one.json, "usage.completion_tokens");
        http_forget(&one);
    }
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        char *got[6];
        snprintf(body, sizeof body, "{\"prompt\":[%s,%s,%s],\"n\":2,\"stream\":%s,%s" SETTINGS "}",
                 prompts[0], prompts[1], prompts[2], is_stream ? "true" : "false",
                 is_stream ? "\"stream_options\":{\"include_usage\":true}," : "");
        http_answer all = http_ask(its, "POST", "/v1/completions", NULL, body);
        assert_int_equal(all.status, 200);
        json_t *usage = json_incref(json_object_get(all.json, "usage")), *event;
        for (int i = 0; i < 6; i++) {
            char place[32];
            snprintf(place, sizeof place, "choices.%d.text", i);
            got[i] = is_stream ? calloc(1, all.n_body) : strdup(json_text_at(all.json, place));
        }
        for (size_t i = 0; is_stream && (event = http_event_json(&all, i)) != NULL; i++) {
            const json_int_t choice = json_number_at(event, "choices.0.index");
            if (choice >= 0) {
                assert_true(choice < 6);
                strcat(got[choice], json_text_at(event, "choices.0.text"));
            } else {
                usage = json_incref(json_object_get(event, "usage"));
            }
            json_decref(event);
        }
        for (int i = 0; i < 6; i++) {
            assert_string_equal(got[i], texts[i]);
            free(got[i]);
        }
        assert_int_equal(json_number_at(usage, "prompt_tokens"), n_prompt);
        assert_int_equal(json_number_at(usage, "completion_tokens"), n_written);
        /* each was read before, but for its last token */
        assert_int_equal(json_number_at(usage, "prompt_tokens_details.cached_tokens"),
                         n_prompt - 3);
        json_decref(usage);
        http_forget(&all);
    }
    for (int i = 0; i < 6; i++) {
        free(texts[i]);
    }
}

/* One of several that is too long is the reason to refuse them all, with its figures. */
static void one_of_several_prompts_may_be_too_long(void **state)
{
    served *its = *state;
    char body[8192], *at = body;
    at += sprintf(at, "{\"prompt\":[\"Once\",[300");
    for (int i = 1; i < 1500; i++) {
        at += sprintf(at, ",300");
    }
    sprintf(at, "]],\"max_tokens\":1}");
    http_answer a = http_ask(its, "POST", "/v1/completions", NULL, body);
    assert_int_equal(a.status, 400);
    assert_string_equal(json_text_at(a.json, "error.type"), "exceed_context_size_error");
    assert_int_equal(json_number_at(a.json, "error.n_prompt_tokens"), 1500);
    http_forget(&a);
    /* and a prompt that is an echo of each */
    a = http_ask(its, "POST", "/v1/completions", NULL,
                 "{\"prompt\":[\"Once\",\"Twice\"],\"echo\":true,\"max_tokens\":1}");
    assert_int_equal(strncmp(json_text_at(a.json, "choices.0.text"), "Once", 4), 0);
    assert_int_equal(strncmp(json_text_at(a.json, "choices.1.text"), "Twice", 5), 0);
    http_forget(&a);
}

/* ---- all -------------------------------------------------------------------------------------- */

static served common;

static int start_common(void **state)
{
    served_options options = served_defaults();
    options.format = "chatml";
    served_start(&common, &options);
    *state = &common;
    return 0;
}

static int stop_common(void **state)
{
    (void)state;
    served_stop(&common);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_answered_as_it_says),
        cmocka_unit_test(metrics_can_be_read),
        cmocka_unit_test(several_prompts_are_as_many_requests),
        cmocka_unit_test(one_of_several_prompts_may_be_too_long),
    };
    return cmocka_run_group_tests(tests, start_common, stop_common);
}
