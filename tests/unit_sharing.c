/*
 * unit_sharing.c: servers that share a store: what one has read, another goes on from.
 *
 * Several schedulers in one process, each with an engine and a memory of its own, and a store of the test's
 * (support_peer.h). Each answer has to be, token by token, what generate() writes alone, whatever is in the store; counters say what was
 * read again. Models of every kind: all attention, windows, states, both.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "builtin_model.h"
#include "engine/generate.h"
#include "serve/scheduler.h"
#include "support_lab.h"
#include "support_peer.h"
#include "support_recurrent.h"

#define MOST 512u   /* tokens of anything here */
#define PROMPT 200u /* three whole blocks, and a part of one */

static gguf_file *words_file;
static model *storyteller;
static tokenizer *tok;

static int open_words(void **state)
{
    (void)state;
    return gguf_open_memory(builtin_model_begin, builtin_model_size(), &words_file, NULL) ==
                       CELLAR_OK &&
                   model_load(words_file, &storyteller, NULL) == CELLAR_OK &&
                   tokenizer_create(words_file, &tok, NULL) == CELLAR_OK
               ? 0
               : -1;
}

static int close_words(void **state)
{
    (void)state;
    tokenizer_destroy(tok);
    model_free(storyteller);
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

static void append(tokens *to, const tokens *more)
{
    memcpy(to->list + to->n, more->list, more->n * sizeof *more->list);
    to->n += more->n;
}

static cellar_status note_token(void *context, cellar_token token, cellar_error *error)
{
    tokens *t = context;
    (void)error;
    assert_true(t->n < MOST);
    t->list[t->n++] = token;
    return CELLAR_OK;
}

static engine *make_engine(const model *m)
{
    engine_options options = engine_defaults();
    options.n_cells = MOST;
    options.n_ubatch = 32;
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
    engine *e = make_engine(m);
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

/* ---- a server ------------------------------------------------------------------------------- */

typedef struct rig {
    const model *model;
    engine *engine;
    scheduler *scheduler;
} rig;

static rig rig_create(const model *m, const peer *p, double wait_seconds, const char *secret)
{
    rig r = {.model = m, .engine = make_engine(m)};
    const scheduler_options options = {.engine = r.engine,
                                       .tok = tok,
                                       .n_slots = 4,
                                       .n_context = MOST,
                                       .n_chunk = 8,
                                       .n_queue = 64,
                                       .reuse.ram_bytes = 1 << 22,
                                       .reuse.shared = {.address = peer_address(p),
                                                        .secret = secret,
                                                        .secret_bytes = strlen(secret),
                                                        .most_bytes = 64 << 20,
                                                        .wait_seconds = wait_seconds}};
    cellar_error error;
    if (scheduler_create(&options, &r.scheduler, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
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

static job *submit(rig *r, const tokens *prompt, const char *owner, uint64_t n_limit)
{
    job_request request = {.owner = strdup(owner),
                           .n_choices = 1,
                           .sampling = sampler_defaults(),
                           .n_limit = n_limit,
                           .n_top = -1,
                           .slot = -1};
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

/* Take all of an answer, and hold it against what is written alone. */
static job_report finish(const rig *r, job *j, const tokens *prompt, uint64_t n_limit,
                         tokens *written)
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
    const tokens alone = write_alone(r->model, prompt, n_limit);
    assert_int_equal(written->n, alone.n);
    assert_memory_equal(written->list, alone.list, alone.n * sizeof alone.list[0]);
    return its;
}

static job_report ask(rig *r, const tokens *prompt, tokens *written)
{
    return finish(r, submit(r, prompt, "somebody", 12), prompt, 12, written);
}

static void wait_a_little(void)
{
    const struct timespec time = {.tv_nsec = 5000000};
    nanosleep(&time, NULL);
}

static void wait_for_values(peer *p, size_t n)
{
    while (peer_count(p) < n) {
        wait_a_little();
    }
}

/* ---- what all have to do -------------------------------------------------------------------- */

/* Read at A, taken over at B; A is gone, and the conversation goes on at C. */
static void a_conversation_goes_on_elsewhere(const model *m, size_t n_values)
{
    peer *p = peer_start(NULL);
    rig a = rig_create(m, p, 60, ""), b = rig_create(m, p, 60, "");
    tokens said = make_prompt(PROMPT, 1), written;
    job_report its = ask(&a, &said, &written);
    assert_int_equal(its.n_reused, 0);
    wait_for_values(p, n_values);
    its = ask(&b, &said, &written);
    assert_int_equal(its.n_reused, 192);
    assert_int_equal(its.n_read, PROMPT - 192);
    assert_int_equal(its.source, JOB_SOURCE_SHARED);
    assert_string_equal(its.reason, "ended");
    assert_int_equal(scheduler_count(b.scheduler).n_shared, 192);
    rig_destroy(&b);
    append(&said, &written);
    const tokens more = make_prompt(60, 2);
    append(&said, &more);
    (void)ask(&a, &said, &written);
    rig_destroy(&a); /* what it had not given away yet goes now */
    rig c = rig_create(m, p, 60, "");
    append(&said, &written);
    append(&said, &more);
    const size_t n_known = said.n - more.n - 1; /* the last token that is written is not read */
    its = ask(&c, &said, &written);
    assert_int_equal(its.n_reused, n_known / SHARED_BLOCK * SHARED_BLOCK);
    rig_destroy(&c);
    peer_stop(p);
}

/* Another owner, another secret: nothing is shared. Damaged values are not believed, and go. */
static void what_does_not_agree_is_read(const model *m, size_t n_values)
{
    peer *p = peer_start(NULL);
    rig a = rig_create(m, p, 60, "");
    tokens said = make_prompt(PROMPT, 3), written;
    (void)ask(&a, &said, &written);
    wait_for_values(p, n_values);
    rig_destroy(&a);
    rig b = rig_create(m, p, 60, "");
    job_report its = finish(&b, submit(&b, &said, "another", 12), &said, 12, &written);
    assert_int_equal(its.n_reused, 0);
    rig_destroy(&b);
    rig c = rig_create(m, p, 60, "other secret");
    its = ask(&c, &said, &written);
    assert_int_equal(its.n_reused, 0);
    rig_destroy(&c);
    for (size_t i = 0; i < peer_count(p); i++) {
        peer_damage(p, i, 4000);
    }
    rig d = rig_create(m, p, 60, "");
    its = ask(&d, &said, &written);
    assert_int_equal(its.n_reused, 0);
    assert_true(scheduler_count(d.scheduler).shared.n_damaged > 0);
    rig_destroy(&d); /* it has written them anew */
    rig e = rig_create(m, p, 60, "");
    its = ask(&e, &said, &written);
    assert_int_equal(its.n_reused, 192);
    rig_destroy(&e);
    peer_stop(p);
}

static void play_all(const model *m, size_t n_values)
{
    a_conversation_goes_on_elsewhere(m, n_values);
    what_does_not_agree_is_read(m, n_values);
}

/* ---- the models ----------------------------------------------------------------------------- */

static void attention(void **state)
{
    (void)state;
    play_all(storyteller, 3);
}

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
    play_all(m, 1);
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
    play_all(made.model, 1);
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

/* ---- many, and none ------------------------------------------------------------------------- */

static void prompts_that_begin_alike_fetch_once(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    rig a = rig_create(storyteller, p, 60, "");
    tokens said = make_prompt(PROMPT, 5), written;
    (void)ask(&a, &said, &written);
    wait_for_values(p, 3);
    rig_destroy(&a);
    rig b = rig_create(storyteller, p, 60, "");
    enum { N = 8 };
    job *jobs[N];
    tokens prompts[N];
    for (unsigned i = 0; i < N; i++) {
        prompts[i] = said;
        prompts[i].n = 195;
        prompts[i].list[194] = (cellar_token)(3 + i);
        jobs[i] = submit(&b, &prompts[i], "somebody", 6);
    }
    for (unsigned i = 0; i < N; i++) {
        finish(&b, jobs[i], &prompts[i], 6, &written);
    }
    const scheduler_counters c = scheduler_count(b.scheduler);
    assert_int_equal(c.shared.n_read, 3);
    assert_true(c.n_prompt <= N * 3);
    rig_destroy(&b);
    peer_stop(p);
}

/* It is written as soon as two took it over, also while nobody has let go of it. */
static void what_is_hit_twice_is_written_at_once(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    rig a = rig_create(storyteller, p, 60, "");
    tokens said = make_prompt(PROMPT, 6), written;
    job *long_one = submit(&a, &said, "somebody", 200);
    job_piece *piece;
    uint32_t choice;
    assert_int_equal(job_next(long_one, -1, &piece, &choice),
                     JOB_PIECE); /* it has read its prompt */
    free(piece);
    for (unsigned i = 0; i < 2; i++) {
        tokens other = said;
        other.n = 150;
        other.list[149] = (cellar_token)(3 + i);
        (void)finish(&a, submit(&a, &other, "somebody", 1), &other, 1, &written);
    }
    wait_for_values(p, 2); /* of 149 tokens */
    job_cancel(long_one);
    while (job_next(long_one, -1, &piece, &choice) != JOB_ALL_ENDED) {
        free(piece);
        piece = NULL;
    }
    job_release(long_one);
    rig_destroy(&a);
    peer_stop(p);
}

/* The store falls silent in the middle: when time is over, what came is taken over and the rest is read. */
static void what_came_in_time_is_used(void **state)
{
    (void)state;
    peer *p = peer_start(NULL);
    rig a = rig_create(storyteller, p, 60, "");
    tokens said = make_prompt(PROMPT, 7), written;
    (void)ask(&a, &said, &written);
    wait_for_values(p, 3);
    rig_destroy(&a);
    peer_set(p, PEER_TIRED, NULL);
    rig b = rig_create(storyteller, p, 1, "");
    const job_report its = ask(&b, &said, &written);
    assert_int_equal(its.source, JOB_SOURCE_SHARED);
    assert_int_equal(its.n_reused, 128);
    assert_int_equal(its.n_read, PROMPT - 128);
    rig_destroy(&b);
    peer_stop(p);
}

/* Whatever the store does, answers are right and come. */
static void a_store_in_trouble_is_no_trouble(void **state)
{
    (void)state;
    static const peer_mood moods[] = {PEER_SILENT, PEER_LOADING, PEER_GARBAGE,
                                      PEER_HUGE,   PEER_CUT,     PEER_LIST};
    peer *p = peer_start(NULL);
    rig a = rig_create(storyteller, p, 60, "");
    tokens said = make_prompt(PROMPT, 7), written;
    (void)ask(&a, &said, &written);
    wait_for_values(p, 3);
    rig_destroy(&a);
    for (size_t i = 0; i < sizeof moods / sizeof moods[0]; i++) {
        peer_set(p, moods[i], NULL);
        rig b = rig_create(storyteller, p, 0, ""); /* as long as reading would take */
        const job_report its = ask(&b, &said, &written);
        assert_int_equal(its.n_reused, 0);
        assert_int_equal(its.n_read, PROMPT);
        (void)ask(&b, &said, &written);
        peer_set(p, PEER_CLOSED, NULL); /* so that it does not wait for what it cannot write */
        rig_destroy(&b);
    }
    peer_stop(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention),
        cmocka_unit_test(windows),
        cmocka_unit_test(states),
        cmocka_unit_test(both),
        cmocka_unit_test(prompts_that_begin_alike_fetch_once),
        cmocka_unit_test(what_is_hit_twice_is_written_at_once),
        cmocka_unit_test(what_came_in_time_is_used),
        cmocka_unit_test(a_store_in_trouble_is_no_trouble),
    };
    return cmocka_run_group_tests(tests, open_words, close_words);
}
