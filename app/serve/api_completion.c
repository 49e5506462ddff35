/*
 * api_completion.c: /completion in the words of llama-server, /v1/completions in those of OpenAI.
 *
 * Both read the prompt as it is, with a token for the beginning of a text where the model wants one, as `cellar run` does.
 */
#include <inttypes.h>
#include <string.h>

#include "serve/answer.h"

#define MOST_PROBABILITIES 100

/* ---- /completion ---------------------------------------------------------------------------- */

static const char *stop_type(const job_report *its)
{
    return its->finish == JOB_END_OF_TEXT ? "eos"
           : its->finish == JOB_STOP_TEXT ? "word"
           : its->finish == JOB_GOES_ON   ? "none"
                                          : "limit";
}

static void add_native_probability(answer *a, const job_piece *piece, json_t *to)
{
    if (a->job->request.n_top >= 0 && piece->token >= 0) {
        (void)!json_object_set_new(to, "completion_probabilities",
                                   json_pack("[o]", answer_probability(a, piece, "top_logprobs")));
    }
}

static void keep_probability(answer *a, const job_piece *piece, const char *top_name)
{
    answer_choice *c = &a->choices[piece->choice];
    if (a->job->request.n_top >= 0 && piece->token >= 0) {
        c->probabilities = c->probabilities != NULL ? c->probabilities : json_array();
        (void)!json_array_append_new(c->probabilities, answer_probability(a, piece, top_name));
    }
}

static json_t *progress_of(const answer *a, const job_piece *piece)
{
    const job_report its = job_look(a->job, piece->choice);
    return json_pack("{s:I, s:I, s:I, s:f}", "total",
                     (json_int_t)job_prompt_of(&a->job->request, piece->choice).n, "cache",
                     (json_int_t)its.n_reused, "processed", (json_int_t)piece->n_read, "time_ms",
                     (job_now() - a->job->made - its.wait_seconds) * 1e3);
}

static void native_piece(answer *a, const job_piece *piece)
{
    if (!a->wishes.is_stream) {
        if (!piece->is_progress) {
            keep_probability(a, piece, "top_logprobs");
        }
        return;
    }
    const answer_choice *c = &a->choices[piece->choice];
    if (piece->n_text == 0 && a->job->request.n_top < 0 && !piece->is_progress &&
        !a->wishes.wants_tokens) {
        return;
    }
    json_t *event = json_pack("{s:I, s:o, s:b, s:I, s:I, s:I}", "index", (json_int_t)piece->choice,
                              "content", answer_piece_text(piece), "stop", false, "id_slot",
                              (json_int_t)job_look(a->job, piece->choice).slot, "tokens_predicted",
                              (json_int_t)c->n_tokens, "tokens_evaluated",
                              (json_int_t)job_prompt_of(&a->job->request, piece->choice).n);
    (void)!json_object_set_new(event, "tokens",
                               piece->token >= 0 ? json_pack("[I]", (json_int_t)piece->token)
                                                 : json_array());
    add_native_probability(a, piece, event);
    if (piece->is_progress) {
        (void)!json_object_set_new(event, "prompt_progress", progress_of(a, piece));
    }
    if (a->wishes.tells_each_timing) {
        (void)!json_object_set_new(event, "timings", answer_timings(a));
    }
    answer_say(a, event);
}

static json_t *settings_of(const answer *a)
{
    const job_request *r = &a->job->request;
    const sampler_options *o = &r->sampling;
    json_t *stops = json_array();
    for (size_t i = 0; i < r->n_stops; i++) {
        (void)!json_array_append_new(stops, json_string(r->stops[i]));
    }
    return json_pack("{s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:o, s:I, s:b}", "n_ctx",
                     (json_int_t)a->server->n_context, "seed", (json_int_t)o->seed, "temperature",
                     o->temperature, "top_k", (json_int_t)o->top_k, "top_p", o->top_p, "min_p",
                     o->min_p, "repeat_penalty", o->repeat_penalty, "repeat_last_n",
                     (json_int_t)o->repeat_last, "presence_penalty", r->presence_penalty,
                     "frequency_penalty", r->frequency_penalty, "stop", stops, "n_predict",
                     r->n_limit == UINT64_MAX ? (json_int_t)-1 : (json_int_t)r->n_limit,
                     "ignore_eos", r->ignore_end);
}

/* The prompt of a choice, as it is said again; of several prompts there is a list of them. NULL: it is not. */
static json_t *echo_of(const answer *a, uint32_t choice)
{
    return json_is_array(a->echo)
               ? json_array_get(a->echo, job_prompt_of(&a->job->request, choice).index)
               : a->echo;
}

/* What is said when a choice has ended, of it as a whole. */
static json_t *native_end(const answer *a, uint32_t choice, bool with_text)
{
    const answer_choice *c = &a->choices[choice];
    const job_report *its = &c->report;
    json_t *made = json_pack(
        "{s:I, s:o, s:b, s:I, s:s, s:I, s:I, s:o, s:b, s:s, s:s, s:b}", "index", (json_int_t)choice,
        "content", with_text ? answer_text_of(c) : json_string(""), "stop", true, "id_slot",
        (json_int_t)its->slot, "model", a->server->model_name, "tokens_predicted",
        (json_int_t)its->n_written, "tokens_evaluated",
        (json_int_t)job_prompt_of(&a->job->request, choice).n, "generation_settings",
        settings_of(a), "has_new_line", c->n_text > 0 && memchr(c->text, '\n', c->n_text) != NULL,
        "stop_type", stop_type(its), "stopping_word", its->stop != NULL ? its->stop : "",
        "truncated", its->finish == JOB_FULL);
    (void)!json_object_set_new(made, "prompt", json_incref(echo_of(a, choice)));
    (void)!json_object_set_new(made, "tokens_cached", json_integer((json_int_t)its->n_reused));
    json_t *tokens = json_array();
    for (size_t i = 0; with_text && a->wishes.wants_tokens && i < c->n_tokens; i++) {
        (void)!json_array_append_new(tokens, json_integer(c->tokens[i]));
    }
    (void)!json_object_set_new(made, "tokens", tokens);
    if (c->probabilities != NULL && with_text) {
        (void)!json_object_set(made, "completion_probabilities", c->probabilities);
    }
    answer_add_figures(a, made);
    return made;
}

static void native_choice_ends(answer *a, uint32_t choice)
{
    const job_finish finish = a->choices[choice].report.finish;
    if (finish != JOB_FAILED && finish != JOB_CANCELLED) {
        answer_say(a, native_end(a, choice, false));
    }
}

static json_t *native_whole(answer *a)
{
    if (a->n_choices == 1) {
        return native_end(a, 0, true);
    }
    json_t *all = json_array();
    for (uint32_t i = 0; i < a->n_choices; i++) {
        (void)!json_array_append_new(all, native_end(a, i, true));
    }
    return all;
}

static const answer_format native_format = {
    .id_prefix = "cmpl-",
    .piece = native_piece,
    .choice_ends = native_choice_ends,
    .whole = native_whole,
};

/* ---- /v1/completions ------------------------------------------------------------------------ */

static json_t *head(const answer *a)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", a->id, "object", "text_completion",
                     "created", (json_int_t)a->created, "model", a->server->model_name,
                     "system_fingerprint", json_sprintf("cellar-%s", cellar_version()));
}

/* Probabilities as the older API has them: lists side by side. */
static json_t *lists_of(const json_t *probabilities, size_t first, size_t offset)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(),
           *offsets = json_array();
    for (size_t i = first; i < json_array_size(probabilities); i++) {
        const json_t *its = json_array_get(probabilities, i);
        const json_t *top = json_object_get(its, "top_logprobs");
        json_t *likely = json_object();
        for (size_t k = 0; k < json_array_size(top); k++) {
            const json_t *one = json_array_get(top, k);
            (void)!json_object_set(likely, json_string_value(json_object_get(one, "token")),
                                   json_object_get(one, "logprob"));
        }
        (void)!json_array_append(tokens, json_object_get(its, "token"));
        (void)!json_array_append(logprobs, json_object_get(its, "logprob"));
        (void)!json_array_append_new(tops, likely);
        (void)!json_array_append_new(offsets, json_integer((json_int_t)offset));
        offset += json_array_size(json_object_get(its, "bytes"));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs,
                     "top_logprobs", tops, "text_offset", offsets);
}

static json_t *choice_of(json_t *text, uint32_t choice, json_t *logprobs, const char *finish)
{
    return json_pack("{s:o, s:I, s:o, s:o}", "text", text, "index", (json_int_t)choice, "logprobs",
                     logprobs != NULL ? logprobs : json_null(), "finish_reason",
                     finish != NULL ? json_string(finish) : json_null());
}

static void completions_piece(answer *a, const job_piece *piece)
{
    if (piece->is_progress) {
        return;
    }
    answer_choice *c = &a->choices[piece->choice];
    keep_probability(a, piece, "top_logprobs");
    if (!a->wishes.is_stream || (piece->n_text == 0 && a->job->request.n_top < 0)) {
        return;
    }
    json_t *logprobs = NULL;
    if (c->probabilities != NULL && piece->token >= 0) {
        logprobs = lists_of(c->probabilities, json_array_size(c->probabilities) - 1,
                            c->n_text - piece->n_text);
    }
    json_t *event = head(a);
    (void)!json_object_set_new(
        event, "choices",
        json_pack("[o]", choice_of(answer_piece_text(piece), piece->choice, logprobs, NULL)));
    if (a->wishes.tells_each_timing) {
        (void)!json_object_set_new(event, "timings", answer_timings(a));
    }
    answer_say(a, event);
}

static void completions_choice_ends(answer *a, uint32_t choice)
{
    const job_report *its = &a->choices[choice].report;
    if (its->finish == JOB_FAILED || its->finish == JOB_CANCELLED) {
        return;
    }
    json_t *event = head(a);
    (void)!json_object_set_new(
        event, "choices",
        json_pack("[o]", choice_of(json_string(""), choice, NULL, answer_finish_reason(its))));
    answer_say_end(a, event);
}

static void completions_end(answer *a)
{
    if (a->wishes.includes_usage) {
        answer_say_usage(a, head(a));
    }
}

/* The prompt before the answer, if that was asked for. */
static json_t *text_with_echo(const answer *a, uint32_t choice)
{
    json_t *text = answer_text_of(&a->choices[choice]);
    const json_t *echo = echo_of(a, choice);
    if (!json_is_string(echo)) {
        return text;
    }
    json_t *both = json_sprintf("%s%s", json_string_value(echo),
                                text != NULL ? json_string_value(text) : "");
    json_decref(text);
    return both;
}

static json_t *completions_whole(answer *a)
{
    json_t *made = head(a), *choices = json_array();
    for (uint32_t i = 0; i < a->n_choices; i++) {
        const answer_choice *c = &a->choices[i];
        json_t *logprobs = c->probabilities != NULL ? lists_of(c->probabilities, 0, 0) : NULL;
        (void)!json_array_append_new(choices, choice_of(text_with_echo(a, i), i, logprobs,
                                                        answer_finish_reason(&c->report)));
    }
    (void)!json_object_set_new(made, "choices", choices);
    (void)!json_object_set_new(made, "usage", answer_usage(a));
    answer_add_figures(a, made);
    return made;
}

static const answer_format completions_format = {
    .id_prefix = "cmpl-",
    .last_line = "data: [DONE]\n\n",
    .piece = completions_piece,
    .choice_ends = completions_choice_ends,
    .end = completions_end,
    .whole = completions_whole,
};

/* What is said again of one prompt: a text as it came, else what its tokens say. */
static json_t *make_one_echo(const server *s, const job_prompt *its, const json_t *asked,
                             bool keeps_text)
{
    return keeps_text && json_is_string(asked) ? json_incref((json_t *)(uintptr_t)asked)
                                               : server_text_of(s, its->tokens, its->n);
}

static json_t *make_echo(const server *s, const job_request *r, const json_t *asked,
                         bool keeps_text)
{
    if (r->prompts == NULL) {
        const job_prompt its = job_prompt_of(r, 0);
        return make_one_echo(s, &its, asked, keeps_text);
    }
    json_t *all = json_array();
    for (uint32_t i = 0; i < r->n_prompts; i++) {
        (void)!json_array_append_new(
            all, make_one_echo(s, &r->prompts[i], json_array_get(asked, i), keeps_text));
    }
    return all;
}

/* ---- endpoints ------------------------------------------------------------------------------ */

static void complete(server *s, http_request *request, bool is_native)
{
    json_t *body = server_read_body(request);
    if (body == NULL) {
        return;
    }
    fields f = fields_of(body);
    job_request asked;
    completion_wishes wishes;
    cellar_error error = {.status = CELLAR_OK};
    int64_t n_top = -1;
    bool echoes = false;
    cellar_status status = completion_request_read(s, request, &f, &asked, &wishes, &error);
    fields_integer(&f, is_native ? "n_probs" : "logprobs", &n_top, 0, MOST_PROBABILITIES);
    asked.n_top = is_native && n_top == 0 ? -1 : (int32_t)n_top;
    if (!is_native) {
        fields_flag(&f, "echo", &echoes);
    }
    if (status == CELLAR_OK) {
        status = completion_request_prompts(s, &f, "prompt", &asked, &error);
    }
    if (server_refuse_fields(request, &f)) {
        job_request_free(&asked);
    } else if (status != CELLAR_OK) {
        server_reply_status(request, status, &error);
        job_request_free(&asked);
    } else {
        json_t *echo = is_native || echoes
                           ? make_echo(s, &asked, json_object_get(body, "prompt"), echoes)
                           : NULL;
        answer_make(s, request, is_native ? &native_format : &completions_format, &asked, &wishes,
                    echo);
    }
    json_decref(body);
}

void api_native_completion(server *s, http_request *request)
{
    complete(s, request, true);
}

void api_completions(server *s, http_request *request)
{
    complete(s, request, false);
}
