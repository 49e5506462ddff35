/*
 * unit_streams.c: what streams say, and answers that take more than a line of a table to check.
 *
 * A stream has to say what the whole answer says, whichever API it is of; and the same request has to get
 * the same answer, choices and vectors included. The table of all endpoints is in unit_api.c.
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

/* ---- streams -------------------------------------------------------------------------------- */

static void a_stream_says_what_the_whole_says(void **state)
{
    served *its = *state;
    static const char *const ask =
        "\"messages\":[{\"role\":\"user\",\"content\":\"A story, please\"}],"
        "\"max_tokens\":30,\"temperature\":0.9,\"seed\":7";
    char body[512];
    snprintf(body, sizeof body, "{%s}", ask);
    http_answer whole = http_ask(its, "POST", "/v1/chat/completions", NULL, body);
    snprintf(body, sizeof body, "{%s,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
             ask);
    http_answer stream = http_ask(its, "POST", "/v1/chat/completions", NULL, body);
    assert_non_null(strstr(stream.head, "text/event-stream"));
    size_t n;
    char *text = http_join(&stream, "choices.0.delta.content", &n);
    assert_string_equal(text, json_text_at(whole.json, "choices.0.message.content"));
    assert_true(n > 10);
    char *last = http_event(&stream, n - 1);
    assert_string_equal(last, "[DONE]");
    json_t *usage = http_event_json(&stream, n - 2), *end = http_event_json(&stream, n - 3),
           *first = http_event_json(&stream, 0);
    assert_string_equal(json_text_at(first, "choices.0.delta.role"), "assistant");
    assert_string_equal(json_text_at(first, "object"), "chat.completion.chunk");
    assert_string_equal(json_text_at(end, "choices.0.finish_reason"), "length");
    assert_int_equal(json_array_size(json_at(usage, "choices")), 0);
    assert_int_equal(json_number_at(usage, "usage.completion_tokens"), 30);
    /* the second time all but the last token of the prompt was there */
    assert_int_equal(json_number_at(usage, "usage.prompt_tokens_details.cached_tokens"),
                     json_number_at(usage, "usage.prompt_tokens") - 1);
    assert_string_equal(json_text_at(usage, "cellar.reason"), "whole");
    assert_string_equal(json_text_at(usage, "cellar.source"), "live");
    json_decref(usage);
    json_decref(end);
    json_decref(first);
    free(last);
    free(text);
    http_forget(&whole);
    http_forget(&stream);
}

static void the_older_streams_are_right_too(void **state)
{
    served *its = *state;
    size_t n;
    http_answer a = http_ask(its, "POST", "/completion", NULL,
                             "{\"prompt\":\"Once upon a time\",\"n_predict\":6,\"temperature\":0,"
                             "\"stream\":true,\"return_progress\":true}");
    char *text = http_join(&a, "content", &n);
    assert_string_equal(text, ", there was a little boy");
    json_t *last = http_event_json(&a, n - 1), *first = http_event_json(&a, 0);
    assert_true(json_is_true(json_at(last, "stop")));
    assert_int_equal(json_number_at(last, "tokens_predicted"), 6);
    assert_int_equal(json_number_at(first, "prompt_progress.total"), 5);
    assert_int_equal(json_number_at(first, "prompt_progress.processed"), 5);
    json_decref(last);
    json_decref(first);
    free(text);
    http_forget(&a);
    a = http_ask(its, "POST", "/v1/completions", NULL,
                 "{\"prompt\":\"Once upon a time\",\"max_tokens\":6,\"temperature\":0,"
                 "\"stream\":true}");
    text = http_join(&a, "choices.0.text", &n);
    assert_string_equal(text, ", there was a little boy");
    free(text);
    last = http_event_json(&a, n - 2);
    assert_string_equal(json_text_at(last, "choices.0.finish_reason"), "length");
    assert_true(json_is_object(json_at(last, "timings")));
    json_decref(last);
    http_forget(&a);
}

static void messages_come_as_named_events(void **state)
{
    served *its = *state;
    static const char *const names[] = {"message_start", "content_block_start",
                                        "content_block_delta"};
    static const char ask[] =
        "\"max_tokens\":12,\"temperature\":0,\"messages\":[{\"role\":\"user\","
        "\"content\":\"Another tale\"}]";
    char body[256];
    snprintf(body, sizeof body, "{%s,\"stream\":true}", ask);
    http_answer stream = http_ask(its, "POST", "/v1/messages", NULL, body);
    snprintf(body, sizeof body, "{%s}", ask);
    http_answer whole = http_ask(its, "POST", "/v1/messages", NULL, body);
    size_t n;
    char *text = http_join(&stream, "delta.text", &n);
    assert_string_equal(text, json_text_at(whole.json, "content.0.text"));
    for (size_t i = 0; i < 3; i++) {
        char line[64];
        json_t *event = http_event_json(&stream, i);
        assert_string_equal(json_text_at(event, "type"), names[i]);
        snprintf(line, sizeof line, "event: %s\ndata: ", names[i]);
        assert_non_null(strstr(stream.body, line));
        json_decref(event);
    }
    json_t *last = http_event_json(&stream, n - 1), *delta = http_event_json(&stream, n - 2);
    assert_string_equal(json_text_at(last, "type"), "message_stop");
    assert_string_equal(json_text_at(delta, "delta.stop_reason"), "max_tokens");
    assert_int_equal(json_number_at(delta, "usage.output_tokens"), 12);
    /* what was taken over is not among input_tokens */
    assert_int_equal(json_number_at(whole.json, "usage.input_tokens"), 1);
    assert_int_equal(json_number_at(whole.json, "usage.cache_read_input_tokens"),
                     json_number_at(whole.json, "timings.cache_n"));
    json_decref(last);
    json_decref(delta);
    free(text);
    http_forget(&stream);
    http_forget(&whole);
}

static double dot(const json_t *a, const json_t *b)
{
    double sum = 0;
    for (size_t i = 0; i < json_array_size(a); i++) {
        sum += json_number_value(json_array_get(a, i)) * json_number_value(json_array_get(b, i));
    }
    return sum;
}

static void embeddings_have_length_one_and_repeat(void **state)
{
    served *its = *state;
    char *body = malloc(20000);
    strcpy(body, "{\"input\":[\"A little dog ran\",\"A little dog ran\",\"");
    for (int i = 0; i < 60; i++) {
        strcat(body, "The sun was warm. "); /* several chunks */
    }
    strcat(body, "\"]}");
    http_answer a = http_ask(its, "POST", "/v1/embeddings", NULL, body);
    assert_int_equal(a.status, 200);
    const json_t *first = json_at(a.json, "data.0.embedding"),
                 *again = json_at(a.json, "data.1.embedding"),
                 *other = json_at(a.json, "data.2.embedding");
    assert_true(dot(first, first) > 0.9999 && dot(first, first) < 1.0001);
    assert_true(json_equal(first, again));
    assert_true(dot(first, other) < 0.999);
    http_forget(&a);
    free(body);
    /* of one token the mean is the last */
    a = http_ask(its, "POST", "/v1/embeddings", NULL, "{\"input\":[[300]]}");
    http_answer b = http_ask(its, "POST", "/v1/embeddings", NULL,
                             "{\"input\":[[300]],\"pooling\":\"last\"}");
    assert_true(json_equal(json_at(a.json, "data"), json_at(b.json, "data")));
    http_forget(&a);
    http_forget(&b);
}

/* Every event of a stream is valid JSON, so valid UTF-8, also where tokens end inside characters. */
static void characters_are_whole(void **state)
{
    served *its = *state;
    /* the bytes of U+00E9 one by one, again and again: biases let the model write nothing else */
    http_answer a =
        http_ask(its, "POST", "/completion", NULL,
                 "{\"prompt\":\"caf\",\"n_predict\":9,\"temperature\":0,\"stream\":true,"
                 "\"repeat_penalty\":1000,\"repeat_last_n\":1,"
                 "\"logit_bias\":[[198,500],[172,499]]}");
    size_t n;
    char *text = http_join(&a, "content", &n);
    assert_string_equal(text, "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xEF\xBF\xBD");
    free(text);
    http_forget(&a);
}

static void choices_are_drawn_apart(void **state)
{
    served *its = *state;
    http_answer a = http_ask(its, "POST", "/v1/chat/completions", NULL,
                             "{\"messages\":[{\"role\":\"user\",\"content\":\"Three stories\"}],"
                             "\"max_tokens\":20,\"temperature\":1,\"seed\":3,\"n\":3}");
    assert_int_equal(json_array_size(json_at(a.json, "choices")), 3);
    assert_string_not_equal(json_text_at(a.json, "choices.0.message.content"),
                            json_text_at(a.json, "choices.1.message.content"));
    http_answer b = http_ask(its, "POST", "/v1/chat/completions", NULL,
                             "{\"messages\":[{\"role\":\"user\",\"content\":\"Three stories\"}],"
                             "\"max_tokens\":20,\"temperature\":1,\"seed\":5}");
    assert_string_equal(json_text_at(a.json, "choices.2.message.content"),
                        json_text_at(b.json, "choices.0.message.content"));
    http_forget(&a);
    http_forget(&b);
}

static void a_stop_is_not_said(void **state)
{
    served *its = *state;
    http_answer a = http_ask(its, "POST", "/v1/completions", NULL,
                             "{\"prompt\":\"Once upon a time\",\"max_tokens\":30,\"temperature\":0,"
                             "\"stop\":[\"xyz\",\"little b\"]}");
    assert_string_equal(json_text_at(a.json, "choices.0.text"), ", there was a ");
    assert_string_equal(json_text_at(a.json, "choices.0.finish_reason"), "stop");
    http_forget(&a);
}

static void a_long_prompt_is_refused_with_numbers(void **state)
{
    served *its = *state;
    char *body = malloc(20000);
    strcpy(body, "{\"prompt\":[1");
    for (int i = 0; i < 1500; i++) {
        strcat(body, ",300");
    }
    strcat(body, "]}");
    http_answer a = http_ask(its, "POST", "/v1/completions", NULL, body);
    assert_int_equal(a.status, 400);
    assert_string_equal(json_text_at(a.json, "error.type"), "exceed_context_size_error");
    assert_int_equal(json_number_at(a.json, "error.n_prompt_tokens"), 1501);
    assert_int_equal(json_number_at(a.json, "error.n_ctx"), 1024);
    assert_string_equal(json_text_at(a.json, "error.message"),
                        "request (1501 tokens) exceeds the available context size (1024 tokens), "
                        "try increasing it");
    http_forget(&a);
    free(body);
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
        cmocka_unit_test(a_stream_says_what_the_whole_says),
        cmocka_unit_test(the_older_streams_are_right_too),
        cmocka_unit_test(characters_are_whole),
        cmocka_unit_test(messages_come_as_named_events),
        cmocka_unit_test(embeddings_have_length_one_and_repeat),
        cmocka_unit_test(choices_are_drawn_apart),
        cmocka_unit_test(a_stop_is_not_said),
        cmocka_unit_test(a_long_prompt_is_refused_with_numbers),
    };
    return cmocka_run_group_tests(tests, start_common, stop_common);
}
