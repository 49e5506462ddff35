/*
 * unit_scheduler.c: many answers at once, on the built-in model, without HTTP.
 *
 * The truth is generate(), alone on an engine of its own: whatever runs beside an answer, whoever's prefix it
 * took over, whether it was set aside, it has to be the same token by token. Counters say what was computed,
 * cellar_check that the memory is sound at the end of every test.
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
#include <time.h>

#include "builtin_model.h"
#include "engine/generate.h"
#include "serve/reuse.h"
#include "serve/scheduler.h"
#include "support_words.h"

static gguf_file *file;
static model *storyteller;
static tokenizer *tok;

static int open_model(void **state)
{
    (void)state;
    return gguf_open_memory(builtin_model_begin, builtin_model_size(), &file, NULL) == CELLAR_OK &&
                   model_load(file, &storyteller, NULL) == CELLAR_OK &&
                   tokenizer_create(file, &tok, NULL) == CELLAR_OK
               ? 0
               : -1;
}

static int close_model(void **state)
{
    (void)state;
    tokenizer_destroy(tok);
    model_free(storyteller);
    gguf_close(file);
    return 0;
}

/* ---- one alone ------------------------------------------------------------------------------ */

static engine *make_engine(uint32_t n_cells, uint32_t n_ubatch)
{
    engine_options options = engine_defaults();
    options.n_cells = n_cells;
    options.n_ubatch = n_ubatch;
    engine *e;
    assert_int_equal(engine_create(storyteller, &options, &e, NULL), CELLAR_OK);
    return e;
}

static cellar_token *encode(const char *prompt, size_t *n)
{
    cellar_token *tokens;
    const tokenize_options how = {.add_special = true, .parse_special = true};
    assert_int_equal(tokenizer_encode(tok, prompt, strlen(prompt), how, &tokens, n, NULL),
                     CELLAR_OK);
    return tokens;
}

static sampler_options sampling_of(uint64_t seed)
{
    sampler_options sampling = sampler_defaults();
    sampling.seed = seed;
    sampling.temperature = seed == 0 ? 0 : sampling.temperature;
    return sampling;
}

/* What `cellar run` would write. */
static words write_alone(const char *prompt, uint64_t seed, uint64_t n_limit)
{
    words w = {.n = 0};
    engine *e = make_engine(512, 64);
    sampler *s;
    const sampler_options sampling = sampling_of(seed);
    generate_options g = generate_defaults();
    generate_result result;
    cellar_token *tokens = encode(prompt, &g.n_prompt);
    assert_int_equal(sampler_create(&sampling, storyteller->n_vocab, &s, NULL), CELLAR_OK);
    g.prompt = tokens;
    g.n_limit = n_limit;
    g.context = &w;
    g.text = words_add;
    assert_int_equal(generate(e, tok, s, &g, &result, NULL), CELLAR_OK);
    free(tokens);
    sampler_destroy(s);
    engine_destroy(e);
    return w;
}

/* ---- with others ---------------------------------------------------------------------------- */

typedef struct rig {
    engine *engine;
    scheduler *scheduler;
} rig;

static rig rig_create(uint32_t n_cells, uint32_t n_ubatch, uint32_t n_slots)
{
    rig r = {.engine = make_engine(n_cells, n_ubatch)};
    const scheduler_options options = {.engine = r.engine,
                                       .tok = tok,
                                       .n_slots = n_slots,
                                       .n_context = n_cells,
                                       .n_chunk = 16,
                                       .n_queue = 64};
    assert_int_equal(scheduler_create(&options, &r.scheduler, NULL), CELLAR_OK);
    return r;
}

static void check_memory(void *context)
{
    cellar_error error;
    if (cellar_check(engine_memory(scheduler_engine(context)), &error) != CELLAR_OK ||
        reuse_check(scheduler_reuse(context), &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
}

static void rig_destroy(rig *r)
{
    assert_true(scheduler_run(r->scheduler, check_memory, r->scheduler));
    scheduler_destroy(r->scheduler);
    engine_destroy(r->engine);
}

static job_request request_for(const char *prompt, uint64_t seed, uint64_t n_limit)
{
    job_request request = {.owner = strdup("somebody"),
                           .n_choices = 1,
                           .sampling = sampling_of(seed),
                           .n_limit = n_limit,
                           .n_top = -1,
                           .slot = -1};
    request.prompt = encode(prompt, &request.n_prompt);
    return request;
}

static job *submit_request(rig *r, job_request request)
{
    job *j;
    cellar_error error;
    assert_int_equal(job_create(&request, &j, NULL), CELLAR_OK);
    if (scheduler_submit(r->scheduler, j, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return j;
}

static job *submit(rig *r, const char *prompt, uint64_t seed, uint64_t n_limit)
{
    return submit_request(r, request_for(prompt, seed, n_limit));
}

/* Take everything of a job; w [n_choices]. */
static void finish(job *j, words *w)
{
    job_piece *piece;
    uint32_t choice;
    for (;;) {
        switch (job_next(j, -1, &piece, &choice)) {
        case JOB_PIECE:
            words_add(&w[choice], piece->text, piece->n_text);
            free(piece);
            break;
        case JOB_CHOICE_ENDS:
            break;
        case JOB_ALL_ENDED:
            return;
        case JOB_CLIENT_GONE:
            fail_msg("there is no client");
        }
    }
}

static job_report finish_one(job *j, words *w)
{
    *w = (words){.n = 0};
    finish(j, w);
    const job_report its = job_look(j, 0);
    job_release(j);
    return its;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static const char *const prompts[] = {"Once upon a time",
                                      "The little dog",
                                      "One day, a girl named Lily went to the park.",
                                      "Tom had a big red ball. He liked to play with it",
                                      "There was a cat",
                                      "In the forest"};
#define N_PROMPTS (sizeof prompts / sizeof prompts[0])

static void one_answer_is_what_run_writes(void **state)
{
    (void)state;
    rig r = rig_create(512, 64, 4);
    for (uint64_t seed = 0; seed < 3; seed++) {
        const words alone = write_alone(prompts[2], seed, 40);
        words w;
        const job_report its = finish_one(submit(&r, prompts[2], seed, 40), &w);
        assert_string_equal(w.text, alone.text);
        assert_int_equal(its.finish, JOB_LIMIT);
        assert_int_equal(its.n_written, 40);
    }
    rig_destroy(&r);
}

static void many_at_once_are_what_each_is_alone(void **state)
{
    (void)state;
    rig r = rig_create(2048, 32, 4); /* fewer slots than answers, prompts in several chunks */
    job *jobs[3 * N_PROMPTS];
    for (size_t i = 0; i < 3 * N_PROMPTS; i++) {
        jobs[i] = submit(&r, prompts[i % N_PROMPTS], i / N_PROMPTS, 24);
    }
    for (size_t i = 0; i < 3 * N_PROMPTS; i++) {
        const words alone = write_alone(prompts[i % N_PROMPTS], i / N_PROMPTS, 24);
        words w;
        finish_one(jobs[i], &w);
        assert_string_equal(w.text, alone.text);
    }
    rig_destroy(&r);
}

static void a_second_turn_reads_only_what_is_new(void **state)
{
    (void)state;
    rig r = rig_create(512, 64, 2);
    words w, again;
    job_report its = finish_one(submit(&r, prompts[3], 0, 8), &w);
    assert_int_equal(its.n_reused, 0);
    assert_string_equal(its.reason, "cold");
    its = finish_one(submit(&r, prompts[3], 0, 8), &again);
    assert_string_equal(again.text, w.text);
    size_t n;
    free(encode(prompts[3], &n));
    assert_int_equal(its.n_reused, n - 1);
    assert_int_equal(its.n_read, 1);
    assert_string_equal(its.reason, "whole");
    /* one token of the prompt is another one */
    its = finish_one(submit(&r, "Tom had a big red ball. She liked", 0, 8), &w);
    assert_string_equal(its.reason, "diverged");
    assert_true(its.n_reused > 5 && its.n_reused == (size_t)its.diverged_at);
    const words alone = write_alone("Tom had a big red ball. She liked", 0, 8);
    assert_string_equal(w.text, alone.text);
    rig_destroy(&r);
}

static void owners_do_not_share(void **state)
{
    (void)state;
    rig r = rig_create(512, 64, 2);
    words w;
    finish_one(submit(&r, prompts[3], 0, 8), &w);
    job_request request = request_for(prompts[3], 0, 8);
    free(request.owner);
    request.owner = strdup("somebody else");
    const job_report its = finish_one(submit_request(&r, request), &w);
    assert_int_equal(its.n_reused, 0);
    assert_int_equal(its.n_reusable, 0);
    rig_destroy(&r);
}

static void choices_are_one_prefill(void **state)
{
    (void)state;
    rig r = rig_create(1024, 16, 4);
    job_request request = request_for(prompts[3], 5, 12);
    request.n_choices = 6; /* more than slots */
    const size_t n_prompt = request.n_prompt;
    job *j = submit_request(&r, request);
    words w[6] = {{.n = 0}};
    finish(j, w);
    for (uint32_t i = 0; i < 6; i++) {
        const words alone = write_alone(prompts[3], 5 + i, 12);
        assert_string_equal(w[i].text, alone.text);
    }
    job_release(j);
    /* the last token of each gives its logits */
    assert_int_equal(scheduler_count(r.scheduler).n_prompt, n_prompt + 5);
    rig_destroy(&r);
}

static void repeat(char *to, size_t size, const char *text, int times)
{
    *to = '\0';
    for (int i = 0; i < times; i++) {
        assert_true(strlen(to) + strlen(text) < size);
        strcat(to, text);
    }
}

static void a_prefix_that_is_being_read_is_read_once(void **state)
{
    (void)state;
    rig r = rig_create(2048, 16, 8);
    char prefix[2048], prompt[8][2100];
    repeat(prefix, sizeof prefix, "The sun was warm and the birds sang in the trees. ", 8);
    size_t n_prefix;
    free(encode(prefix, &n_prefix));
    job *jobs[8];
    for (int i = 0; i < 8; i++) {
        snprintf(prompt[i], sizeof prompt[i], "%s%s", prefix, prompts[i % (int)N_PROMPTS]);
        jobs[i] = submit(&r, prompt[i], 0, 8);
    }
    size_t n_all = 0;
    for (int i = 0; i < 8; i++) {
        words w;
        const words alone = write_alone(prompt[i], 0, 8);
        n_all += jobs[i]->request.n_prompt;
        finish_one(jobs[i], &w);
        assert_string_equal(w.text, alone.text);
    }
    const scheduler_counters counters = scheduler_count(r.scheduler);
    /* the tail of the prefix may be cut into other tokens than before another word */
    assert_true(counters.n_prompt <= n_all - 7 * (n_prefix - 3));
    rig_destroy(&r);
}

/* A pool far too small for what is asked: answers wait and are set aside, and are still the same. */
static void a_small_pool_changes_nothing(void **state)
{
    (void)state;
    rig r = rig_create(72, 16, 6);
    job *jobs[12];
    for (size_t i = 0; i < 12; i++) {
        jobs[i] = submit(&r, prompts[i % N_PROMPTS], i, 40);
    }
    for (size_t i = 0; i < 12; i++) {
        words w;
        const words alone = write_alone(prompts[i % N_PROMPTS], i, 40);
        const job_report its = finish_one(jobs[i], &w);
        assert_string_equal(w.text, alone.text);
        assert_true(its.finish == JOB_LIMIT || its.finish == JOB_END_OF_TEXT);
    }
    const scheduler_counters counters = scheduler_count(r.scheduler);
    assert_true(counters.n_set_aside > 0);
    assert_int_equal(counters.n_failed, 0);
    rig_destroy(&r);
}

static void an_answer_ends_where_the_context_does(void **state)
{
    (void)state;
    rig r = rig_create(32, 16, 2);
    words w;
    job_request request = request_for(prompts[2], 0, UINT64_MAX);
    request.ignore_end = true;
    const size_t n_prompt = request.n_prompt;
    const job_report its = finish_one(submit_request(&r, request), &w);
    assert_int_equal(its.finish, JOB_FULL);
    assert_int_equal(its.n_written, 32 - n_prompt + 1);
    char longer[2048];
    repeat(longer, sizeof longer, prompts[3], 8);
    request = request_for(longer, 0, 1);
    job *j;
    cellar_error error;
    assert_int_equal(job_create(&request, &j, NULL), CELLAR_OK);
    assert_int_equal(scheduler_submit(r.scheduler, j, &error), CELLAR_INVALID);
    job_release(j);
    rig_destroy(&r);
}

static void a_cancelled_answer_keeps_what_was_read(void **state)
{
    (void)state;
    rig r = rig_create(2048, 16, 2);
    char prompt[4096];
    repeat(prompt, sizeof prompt, "The sun was warm and the birds sang in the trees. ", 20);
    job_request request = request_for(prompt, 0, 500);
    request.tells_progress = true;
    job *j = submit_request(&r, request);
    job_piece *piece;
    uint32_t choice;
    assert_int_equal(job_next(j, -1, &piece, &choice), JOB_PIECE);
    assert_true(piece->is_progress);
    const size_t n_read = piece->n_read;
    free(piece);
    job_cancel(j);
    words w;
    job_report its = finish_one(j, &w);
    assert_int_equal(its.finish, JOB_CANCELLED);
    assert_int_equal(its.n_written, 0);
    its = finish_one(submit(&r, prompt, 0, 4), &w);
    assert_true(its.n_reused >= n_read);
    const words alone = write_alone(prompt, 0, 4);
    assert_string_equal(w.text, alone.text);
    rig_destroy(&r);
}

static void stops_end_an_answer(void **state)
{
    (void)state;
    rig r = rig_create(512, 64, 2);
    const words alone = write_alone(prompts[0], 0, 60);
    /* a stop in the middle of what is written, over the borders of tokens */
    char stop[8], before[4096];
    memcpy(stop, alone.text + 37, 7);
    stop[7] = '\0';
    const size_t at = (size_t)(strstr(alone.text, stop) - alone.text);
    memcpy(before, alone.text, at);
    before[at] = '\0';
    job_request request = request_for(prompts[0], 0, 60);
    request.stops = malloc(2 * sizeof *request.stops);
    request.stops[0] = strdup("never written");
    request.stops[1] = strdup(stop);
    request.n_stops = 2;
    words w = {.n = 0};
    job *j = submit_request(&r, request);
    finish(j, &w);
    assert_int_equal(job_look(j, 0).finish, JOB_STOP_TEXT);
    assert_string_equal(job_look(j, 0).stop, stop);
    assert_string_equal(w.text, before);
    job_release(j);
    rig_destroy(&r);
}

/* While somebody writes, a long prompt comes in chunks: the writer gets a token with every one of them. */
static void a_long_prompt_does_not_hold_up_a_writer(void **state)
{
    (void)state;
    rig r = rig_create(2048, 256, 4);
    char prompt[4096];
    repeat(prompt, sizeof prompt, "The sun was warm and the birds sang in the trees. ", 16);
    job_request request = request_for(prompts[0], 0, 200);
    request.ignore_end = true;
    job *writer = submit_request(&r, request);
    job_piece *piece;
    uint32_t choice;
    assert_int_equal(job_next(writer, -1, &piece, &choice), JOB_PIECE); /* it writes now */
    free(piece);
    job *reader = submit(&r, prompt, 0, 1);
    const size_t n_prompt = reader->request.n_prompt;
    words w;
    const job_report its = finish_one(reader, &w);
    assert_int_equal(its.n_read, n_prompt - its.n_reused);
    const scheduler_counters counters = scheduler_count(r.scheduler);
    assert_true(counters.n_steps >= n_prompt / 16); /* chunks of 16, not micro-batches of 256 */
    assert_true(counters.n_written >= n_prompt / 16);
    finish_one(writer, &w);
    rig_destroy(&r);
}

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void what_nobody_takes_is_not_computed(void **state)
{
    (void)state;
    rig r = rig_create(4096, 64, 2);
    job_request request = request_for(prompts[0], 0, 3000);
    request.ignore_end = true;
    job *j = submit_request(&r, request);
    /* it stands still when nobody has room for more */
    uint64_t n = 0;
    for (int i = 0; i < 6000 && n < JOB_MOST_PIECES; i++) {
        pause_ms(100);
        n = scheduler_count(r.scheduler).n_written;
    }
    assert_int_equal(n, JOB_MOST_PIECES);
    pause_ms(200);
    n = scheduler_count(r.scheduler).n_written;
    assert_int_equal(n, JOB_MOST_PIECES);
    /* others go on beside it, and so does it when it is taken from */
    words w;
    finish_one(submit(&r, prompts[1], 0, 4), &w);
    job_piece *piece;
    uint32_t choice, n_pieces = 0;
    while (n_pieces < 2000 && job_next(j, -1, &piece, &choice) == JOB_PIECE) {
        free(piece);
        n_pieces++;
    }
    assert_int_equal(n_pieces, 2000);
    job_cancel(j);
    while (job_next(j, -1, &piece, &choice) == JOB_PIECE) {
        free(piece);
    }
    job_release(j);
    rig_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_answer_is_what_run_writes),
        cmocka_unit_test(many_at_once_are_what_each_is_alone),
        cmocka_unit_test(a_second_turn_reads_only_what_is_new),
        cmocka_unit_test(owners_do_not_share),
        cmocka_unit_test(choices_are_one_prefill),
        cmocka_unit_test(a_prefix_that_is_being_read_is_read_once),
        cmocka_unit_test(a_small_pool_changes_nothing),
        cmocka_unit_test(an_answer_ends_where_the_context_does),
        cmocka_unit_test(a_cancelled_answer_keeps_what_was_read),
        cmocka_unit_test(stops_end_an_answer),
        cmocka_unit_test(a_long_prompt_does_not_hold_up_a_writer),
        cmocka_unit_test(what_nobody_takes_is_not_computed),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
