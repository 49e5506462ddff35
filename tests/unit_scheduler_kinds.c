/*
 * unit_scheduler_kinds.c: the scheduler on models that cannot be cut anywhere: windows, states, both.
 *
 * Tiny models with random weights; the tokenizer is the built-in one, whose tokens only have to exist. Each answer has to be
 * the tokens that generate() chooses alone. What comes back (a second turn, the same prompt again, a prompt that parts from
 * another one) must not be read again where a checkpoint can be: counted.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builtin_model.h"
#include "engine/generate.h"
#include "serve/scheduler.h"
#include "support_folder.h"
#include "support_lab.h"
#include "support_recurrent.h"

#define MOST 512u /* tokens of anything here */

static gguf_file *words_file;
static tokenizer *tok;

static int open_words(void **state)
{
    (void)state;
    return gguf_open_memory(builtin_model_begin, builtin_model_size(), &words_file, NULL) ==
                       CELLAR_OK &&
                   tokenizer_create(words_file, &tok, NULL) == CELLAR_OK
               ? 0
               : -1;
}

static int close_words(void **state)
{
    (void)state;
    tokenizer_destroy(tok);
    gguf_close(words_file);
    return 0;
}

/* ---- one alone ------------------------------------------------------------------------------ */

typedef struct tokens {
    cellar_token list[MOST];
    size_t n;
} tokens;

static tokens make_prompt(size_t n, unsigned seed)
{
    tokens made = {.n = n};
    for (size_t i = 0; i < n; i++) {
        made.list[i] = (cellar_token)(3 + (i * 7 + seed * 11 + i * i * (seed + 1)) % 30);
    }
    return made;
}

static cellar_status note_token(void *context, cellar_token token, cellar_error *error)
{
    tokens *t = context;
    (void)error;
    assert_true(t->n < MOST);
    t->list[t->n++] = token;
    return CELLAR_OK;
}

static engine *make_engine(const model *m, uint32_t n_cells)
{
    engine_options options = engine_defaults();
    options.n_cells = n_cells;
    options.n_ubatch = 16;
    options.n_sequences = 16;
    options.checkpoint_bytes = 1 << 20;
    engine *e;
    cellar_error error;
    if (engine_create(m, &options, &e, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return e;
}

static tokens write_alone(const model *m, const tokens *prompt, uint64_t n_limit)
{
    tokens written = {.n = 0};
    engine *e = make_engine(m, MOST);
    sampler *s;
    sampler_options sampling = sampler_defaults();
    sampling.seed = prompt->n;
    generate_options g = generate_defaults();
    generate_result result;
    assert_int_equal(sampler_create(&sampling, m->n_vocab, &s, NULL), CELLAR_OK);
    g.prompt = prompt->list;
    g.n_prompt = prompt->n;
    g.n_limit = n_limit;
    g.ignore_end = false;
    g.context = &written;
    g.written = note_token;
    assert_int_equal(generate(e, tok, s, &g, &result, NULL), CELLAR_OK);
    sampler_destroy(s);
    engine_destroy(e);
    return written;
}

/* ---- with others ---------------------------------------------------------------------------- */

typedef struct rig {
    const model *model;
    engine *engine;
    scheduler *scheduler;
} rig;

static rig rig_open(const model *m, uint32_t n_cells, const char *folder)
{
    rig r = {.model = m, .engine = make_engine(m, n_cells)};
    const scheduler_options options = {.engine = r.engine,
                                       .tok = tok,
                                       .n_slots = 4,
                                       .n_context = n_cells,
                                       .n_chunk = 8,
                                       .n_queue = 64,
                                       .reuse.ram_bytes = 1 << 22,
                                       .reuse.folder = folder,
                                       .reuse.disk_bytes = 1 << 24};
    cellar_error error;
    if (scheduler_create(&options, &r.scheduler, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return r;
}

static rig rig_create(const model *m, uint32_t n_cells)
{
    return rig_open(m, n_cells, NULL);
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

/* mark: a place in the prompt to go on from; 0: none. */
static job *submit_marked(rig *r, const tokens *prompt, uint64_t n_limit, size_t mark)
{
    job_request request = {.owner = strdup("somebody"),
                           .n_choices = 1,
                           .sampling = sampler_defaults(),
                           .n_limit = n_limit,
                           .n_top = -1,
                           .slot = -1};
    request.n_marks = mark > 0;
    request.marks[0] = mark;
    request.sampling.seed = prompt->n;
    request.n_prompt = prompt->n;
    request.prompt = malloc(prompt->n * sizeof *request.prompt);
    memcpy(request.prompt, prompt->list, prompt->n * sizeof *request.prompt);
    job *j;
    cellar_error error;
    assert_int_equal(job_create(&request, &j, NULL), CELLAR_OK);
    if (scheduler_submit(r->scheduler, j, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return j;
}

static job *submit(rig *r, const tokens *prompt, uint64_t n_limit)
{
    return submit_marked(r, prompt, n_limit, 0);
}

static job_report finish(job *j, tokens *written)
{
    job_piece *piece;
    uint32_t choice;
    written->n = 0;
    for (job_event event; (event = job_next(j, -1, &piece, &choice)) != JOB_ALL_ENDED;) {
        if (event == JOB_PIECE) {
            if (piece->token >= 0) {
                (void)!note_token(written, piece->token, NULL);
            }
            free(piece);
        }
    }
    const job_report its = job_look(j, 0);
    if (its.finish == JOB_FAILED) {
        fail_msg("%s", its.error.message);
    }
    job_release(j);
    return its;
}

static job_report ask(rig *r, const tokens *prompt, uint64_t n_limit, tokens *written)
{
    const job_report its = finish(submit(r, prompt, n_limit), written);
    const tokens alone = write_alone(r->model, prompt, n_limit);
    assert_int_equal(written->n, alone.n);
    assert_memory_equal(written->list, alone.list, alone.n * sizeof alone.list[0]);
    return its;
}

/* ---- what all have to do -------------------------------------------------------------------- */

static void a_second_turn_reads_only_what_is_new(rig *r)
{
    tokens said = make_prompt(60, 1), written;
    ask(r, &said, 12, &written);
    /* the same again: the checkpoint before the last token */
    tokens again;
    job_report its = ask(r, &said, 12, &again);
    assert_int_equal(its.n_read, 1);
    /* its answer, and then more; the last token that was written may not have been read */
    memcpy(said.list + said.n, written.list, written.n * sizeof *written.list);
    said.n += written.n;
    const tokens more = make_prompt(9, 2);
    memcpy(said.list + said.n, more.list, more.n * sizeof *more.list);
    said.n += more.n;
    its = ask(r, &said, 12, &written);
    assert_true(its.n_read <= more.n + 1);
    assert_true(its.n_reused >= said.n - more.n - 1);
}

static void add(tokens *to, const tokens *more)
{
    memcpy(to->list + to->n, more->list, more->n * sizeof *more->list);
    to->n += more->n;
}

/* From the folder comes what a server before this one had read. */
static void a_restart_reads_only_what_is_new(const model *m)
{
    assert_int_equal(folder_set_up(NULL), 0);
    tokens said = make_prompt(60, 1), written;
    rig r = rig_open(m, MOST, folder_name);
    ask(&r, &said, 12, &written);
    rig_destroy(&r);
    add(&said, &written);
    const tokens more = make_prompt(9, 2);
    add(&said, &more);
    r = rig_open(m, MOST, folder_name);
    const job_report its = ask(&r, &said, 12, &written);
    assert_int_equal(its.source, JOB_SOURCE_DISK);
    assert_true(its.n_read <= more.n + 1);
    assert_true(its.n_reused >= said.n - more.n - 1);
    rig_destroy(&r);
    /* and nothing of what only the other one would have known */
    tokens other = make_prompt(60, 6);
    r = rig_open(m, MOST, folder_name);
    assert_int_equal(ask(&r, &other, 4, &written).n_reused, 0);
    rig_destroy(&r);
    assert_int_equal(folder_tear_down(NULL), 0);
}

/* A message is written anew: what stands before it is not read again, though nobody was ever there before. */
static void what_stands_before_an_edited_message_is_kept(rig *r)
{
    tokens before = make_prompt(50, 8), said = before, edited = before, written;
    const tokens message = make_prompt(20, 9), other = make_prompt(15, 10);
    add(&said, &message);
    add(&edited, &other);
    edited.list[50] = (cellar_token)(said.list[50] + 1);
    finish(submit_marked(r, &said, 8, before.n), &written);
    const job_report its = ask(r, &edited, 8, &written);
    assert_true(its.n_reused >= before.n);
    assert_int_equal(its.n_read, edited.n - its.n_reused);
}

/* Six prompts at once that have 100 tokens in common. Returns how many tokens of them were read. */
static uint64_t read_parting(rig *r, unsigned seed)
{
    job *jobs[6];
    tokens prompts[6];
    const uint64_t before = scheduler_count(r->scheduler).n_prompt;
    for (unsigned i = 0; i < 6; i++) {
        prompts[i] = make_prompt(100, seed);
        const tokens end = make_prompt(10, seed + 1 + i);
        memcpy(prompts[i].list + 100, end.list, 10 * sizeof *end.list);
        prompts[i].list[100] = (cellar_token)(3 + i); /* they part here */
        prompts[i].n = 110;
    }
    for (unsigned i = 0; i < 6; i++)
        jobs[i] = submit(r, &prompts[i], 6);
    for (unsigned i = 0; i < 6; i++) {
        tokens written;
        finish(jobs[i], &written);
        const tokens alone = write_alone(r->model, &prompts[i], 6);
        assert_int_equal(written.n, alone.n);
        assert_memory_equal(written.list, alone.list, alone.n * sizeof alone.list[0]);
    }
    return scheduler_count(r->scheduler).n_prompt - before;
}

/*
 * What windows and states can share has to be known while it is read: a prompt that comes after another was answered
 * finds nothing. On a busy machine one may come late, so they get a few chances; each shares or reads it all.
 */
static void prompts_that_part_are_read_once(rig *r)
{
    uint64_t n_read = UINT64_MAX;
    for (unsigned seed = 3; seed < 30 && n_read > 110 + 5 * 10; seed += 9)
        n_read = read_parting(r, seed);
    assert_true(n_read <= 110 + 5 * 10);
}

static void many_answers_are_what_each_is_alone(rig *r)
{
    job *jobs[12];
    tokens prompts[12];
    for (unsigned i = 0; i < 12; i++) {
        prompts[i] = make_prompt(10 + 7 * i, i);
        jobs[i] = submit(r, &prompts[i], 20);
    }
    for (unsigned i = 0; i < 12; i++) {
        tokens written;
        finish(jobs[i], &written);
        const tokens alone = write_alone(r->model, &prompts[i], 20);
        assert_int_equal(written.n, alone.n);
        assert_memory_equal(written.list, alone.list, alone.n * sizeof alone.list[0]);
    }
}

static void play_all(const model *m)
{
    rig r = rig_create(m, MOST);
    a_second_turn_reads_only_what_is_new(&r);
    rig_destroy(&r);
    a_restart_reads_only_what_is_new(m);
    r = rig_create(m, MOST);
    what_stands_before_an_edited_message_is_kept(&r);
    rig_destroy(&r);
    r = rig_create(m, MOST);
    prompts_that_part_are_read_once(&r);
    rig_destroy(&r);
    r = rig_create(m, MOST);
    many_answers_are_what_each_is_alone(&r);
    rig_destroy(&r);
    r = rig_create(m, 128); /* they do not all fit */
    many_answers_are_what_each_is_alone(&r);
    rig_destroy(&r);
}

/* ---- the models ----------------------------------------------------------------------------- */

static void windows(void **state)
{
    (void)state;
    lab_shape shape = lab_default("phi3");
    shape.is_fused = true;
    shape.window = 12;
    shape.is_window[0] = shape.is_window[1] = true;
    fixture made = lab_write(&shape);
    model *m;
    cellar_error error;
    if (model_load(made.file, &m, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    play_all(m);
    model_free(m);
    fixture_destroy(&made);
}

static void play_recurrent(recurrent_kind kind)
{
    const recurrent_shape shape = recurrent_random(kind, 5);
    recipe *r = recurrent_recipe(&shape);
    recipe_model made;
    cellar_error error;
    if (recipe_load(r, &made, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    play_all(made.model);
    recipe_unload(&made);
    recipe_destroy(r);
}

static void states(void **state)
{
    (void)state;
    play_recurrent(RECURRENT_MAMBA2);
    play_recurrent(RECURRENT_RWKV7);
}

static void both(void **state)
{
    (void)state;
    play_recurrent(RECURRENT_FALCON_H1);
    play_recurrent(RECURRENT_LFM2_HYBRID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows), cmocka_unit_test(states),
                                       cmocka_unit_test(both)};
    return cmocka_run_group_tests(tests, open_words, close_words);
}
