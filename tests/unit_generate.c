/*
 * unit_generate.c: the loop that reads a prompt and writes on.
 *
 * Most tests run a tiny random model, whose text means nothing but is always the same; one runs a
 * trained model that is not in the repository and is skipped where it is absent (CELLAR_SHARED
 * names the folder).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/generate.h"
#include "safe_text.h"
#include "support_model.h"

#define MOST_TEXT 8192u

/* A model with everything that generate() needs. */
typedef struct rig {
    fixture made; /* of a fixture; `file` is what is used */
    gguf_file *file;
    model *model;
    tokenizer *tok;
    engine *engine;
} rig;

/* What the callbacks saw. */
typedef struct witness {
    char text[MOST_TEXT];
    size_t n_text, n_calls;
    size_t n_progress, last_read, last_prompt;
    uint64_t stop_after; /* questions; UINT64_MAX: never */
    size_t fail_after;   /* texts; 0: never */
    bool saw_half_a_character;
} witness;

/* ---- helpers -------------------------------------------------------------------------------- */

static void rig_open(rig *r, const engine_options *options)
{
    cellar_error error;
    if (model_load(r->file, &r->model, &error) != CELLAR_OK ||
        tokenizer_create(r->file, &r->tok, &error) != CELLAR_OK ||
        engine_create(r->model, options, &r->engine, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
}

static rig rig_create(const fixture_shape *shape, uint32_t n_cells, uint32_t n_ubatch)
{
    engine_options options = engine_defaults();
    options.n_cells = n_cells;
    options.n_ubatch = n_ubatch;
    rig r = {.made = fixture_create(shape)};
    r.file = r.made.file;
    rig_open(&r, &options);
    return r;
}

static void rig_destroy(rig *r)
{
    engine_destroy(r->engine);
    tokenizer_destroy(r->tok);
    model_free(r->model);
    if (r->made.bytes != NULL) {
        fixture_destroy(&r->made);
    } else {
        gguf_close(r->file);
    }
}

static void see_progress(void *context, size_t n_read, size_t n_prompt)
{
    witness *w = context;
    assert_true(n_read >= w->last_read);
    w->n_progress++;
    w->last_read = n_read;
    w->last_prompt = n_prompt;
}

static bool see_text(void *context, const char *bytes, size_t n)
{
    witness *w = context;
    assert_true(n > 0 && w->n_text + n <= MOST_TEXT);
    w->saw_half_a_character = w->saw_half_a_character || !safe_text_is_utf8(bytes, n);
    memcpy(w->text + w->n_text, bytes, n);
    w->n_text += n;
    w->n_calls++;
    return w->fail_after == 0 || w->n_calls < w->fail_after;
}

static bool should_stop(void *context)
{
    witness *w = context;
    if (w->stop_after == UINT64_MAX) {
        return false;
    }
    return w->stop_after == 0 || w->stop_after-- == 0;
}

static witness *new_witness(void)
{
    witness *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->stop_after = UINT64_MAX;
    return w;
}

static const cellar_token prompt[] = {1, 100, 120, 260, 259, 262, 97, 101, 33, 264 - 1, 55, 71};
#define N_PROMPT (sizeof prompt / sizeof prompt[0])

static generate_options options_for(witness *w)
{
    generate_options options = generate_defaults();
    options.prompt = prompt;
    options.n_prompt = N_PROMPT;
    options.n_limit = 20;
    options.ignore_end = true;
    options.context = w;
    options.progress = see_progress;
    options.text = see_text;
    options.should_stop = should_stop;
    return options;
}

/* Generate with a sampler of its own: temperature 0, or drawn with a seed. */
static cellar_status run(rig *r, const generate_options *options, double temperature, uint64_t seed,
                         generate_result *result, cellar_error *error)
{
    sampler_options how = sampler_defaults();
    how.temperature = temperature;
    how.seed = seed;
    how.repeat_penalty = 1.1;
    sampler *s;
    assert_int_equal(sampler_create(&how, r->model->n_vocab, &s, error), CELLAR_OK);
    cellar_status status = generate(r->engine, r->tok, s, options, result, error);
    sampler_destroy(s);
    return status;
}

static void assert_same_text(const witness *a, const witness *b)
{
    assert_int_equal(a->n_text, b->n_text);
    assert_memory_equal(a->text, b->text, a->n_text);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void a_limit_ends_the_text_and_the_figures_are_right(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    rig r = rig_create(&shape, 64, 5);
    witness *w = new_witness();
    generate_options options = options_for(w);
    generate_result result;
    cellar_error error;
    assert_int_equal(run(&r, &options, 0, 0, &result, &error), CELLAR_OK);
    assert_int_equal(result.ended, GENERATE_ENDED_LIMIT);
    assert_int_equal(result.n_read, N_PROMPT);
    assert_int_equal(result.n_known, 0);
    assert_int_equal(result.n_generated, 20);
    assert_int_equal(result.n_shifts, 0);
    assert_true(result.prompt_seconds > 0 && result.generate_seconds > 0);
    assert_int_equal(w->n_progress, 4); /* chunks of 5, 5 and 2 tokens, and the end */
    assert_int_equal(w->last_read, N_PROMPT);
    assert_int_equal(w->last_prompt, N_PROMPT);
    assert_false(w->saw_half_a_character);
    /* The last token was written, and did not have to be read. */
    assert_int_equal(cellar_position_max(engine_memory(r.engine), 0),
                     (cellar_pos)N_PROMPT + 20 - 2);
    free(w);
    rig_destroy(&r);
}

static void nothing_to_write_only_reads_the_prompt(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    rig r = rig_create(&shape, 64, 5);
    witness *w = new_witness();
    generate_options options = options_for(w);
    options.n_limit = 0;
    options.echo = "\xc3\xa9 and \xff";
    options.n_echo = 8;
    generate_result result;
    assert_int_equal(run(&r, &options, 0, 0, &result, NULL), CELLAR_OK);
    assert_int_equal(result.n_generated, 0);
    assert_int_equal(w->n_text, 10); /* the byte that is no character became U+FFFD */
    assert_memory_equal(w->text, "\xc3\xa9 and \xef\xbf\xbd", 10);
    assert_int_equal(cellar_position_max(engine_memory(r.engine), 0), (cellar_pos)N_PROMPT - 1);
    free(w);
    rig_destroy(&r);
}

static void the_same_seed_gives_the_same_text_however_it_is_computed(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    const uint32_t ubatches[] = {512, 3, 1};
    witness *first = NULL;
    for (size_t i = 0; i < 3; i++) {
        rig r = rig_create(&shape, 100, ubatches[i]);
        witness *w = new_witness();
        generate_options options = options_for(w);
        options.n_limit = 60;
        generate_result result;
        assert_int_equal(run(&r, &options, 1.0, 7, &result, NULL), CELLAR_OK);
        if (first == NULL) {
            first = w;
        } else {
            assert_same_text(first, w);
            free(w);
        }
        rig_destroy(&r);
    }
    free(first);
}

static void another_seed_gives_another_text(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    witness *w[2];
    for (size_t i = 0; i < 2; i++) {
        rig r = rig_create(&shape, 100, 512);
        w[i] = new_witness();
        generate_options options = options_for(w[i]);
        options.n_limit = 60;
        generate_result result;
        assert_int_equal(run(&r, &options, 1.0, 7 + i, &result, NULL), CELLAR_OK);
        rig_destroy(&r);
    }
    assert_false(w[0]->n_text == w[1]->n_text && memcmp(w[0]->text, w[1]->text, w[0]->n_text) == 0);
    free(w[0]);
    free(w[1]);
}

static void what_the_sequence_knows_is_not_read_again(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    rig cold = rig_create(&shape, 64, 512), warm = rig_create(&shape, 64, 512);
    witness *a = new_witness(), *b = new_witness();
    generate_options options = options_for(a);
    generate_result result;
    assert_int_equal(run(&cold, &options, 0, 0, &result, NULL), CELLAR_OK);

    cellar_seq seqs[8];
    for (size_t i = 0; i < 8; i++) {
        seqs[i] = 3;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 8;
    batch.tokens = prompt;
    batch.seqs = seqs;
    assert_int_equal(engine_decode(warm.engine, &batch, NULL, 0, NULL, NULL), CELLAR_OK);
    options = options_for(b);
    options.seq = 3;
    options.n_known = 8;
    assert_int_equal(run(&warm, &options, 0, 0, &result, NULL), CELLAR_OK);
    assert_int_equal(result.n_read, N_PROMPT - 8);
    assert_int_equal(result.n_known, 8);
    assert_same_text(a, b);
    free(a);
    free(b);
    rig_destroy(&cold);
    rig_destroy(&warm);
}

/* The fixture's first greedy token after the prompt. */
static cellar_token first_token(const fixture_shape *shape)
{
    rig r = rig_create(shape, 64, 512);
    float *logits = calloc(FIXTURE_VOCABULARY, sizeof *logits);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = N_PROMPT;
    batch.tokens = prompt;
    const uint32_t last = N_PROMPT - 1;
    assert_int_equal(engine_decode(r.engine, &batch, &last, 1, logits, NULL), CELLAR_OK);
    cellar_token best = 0;
    for (cellar_token id = 1; id < (cellar_token)FIXTURE_VOCABULARY; id++) {
        best = logits[id] > logits[best] ? id : best;
    }
    free(logits);
    rig_destroy(&r);
    return best;
}

static void a_token_that_ends_the_text_ends_it_unless_it_is_forbidden(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    fixture_key end = {"tokenizer.ggml.eos_token_id", FIXTURE_U32, .number = 0};
    end.number = first_token(&shape);
    shape.keys = &end;
    shape.n_keys = 1;
    rig r = rig_create(&shape, 64, 512);
    witness *w = new_witness();
    generate_options options = options_for(w);
    options.ignore_end = false;
    sampler_options how = sampler_defaults();
    how.temperature = 0;
    sampler *s;
    assert_int_equal(sampler_create(&how, FIXTURE_VOCABULARY, &s, NULL), CELLAR_OK);
    generate_result result;
    assert_int_equal(generate(r.engine, r.tok, s, &options, &result, NULL), CELLAR_OK);
    assert_int_equal(result.ended, GENERATE_ENDED_TEXT);
    assert_int_equal(result.n_generated, 0);
    assert_int_equal(w->n_text, 0);

    assert_int_equal(cellar_clear(engine_memory(r.engine), NULL), CELLAR_OK);
    w->last_read = 0;
    options.ignore_end = true;
    assert_int_equal(generate(r.engine, r.tok, s, &options, &result, NULL), CELLAR_OK);
    assert_int_equal(result.ended, GENERATE_ENDED_LIMIT);
    assert_int_equal(result.n_generated, 20);
    sampler_destroy(s);
    free(w);
    rig_destroy(&r);
}

/* ---- full cells ----------------------------------------------------------------------------- */

typedef struct kept_tokens {
    cellar_token tokens[32]; /* by position, of sequence 0 */
    const cellar_memory *memory;
    cellar_run run;
} kept_tokens;

static bool see_cell(void *context, const cellar_cell *cell)
{
    kept_tokens *kept = context;
    if (cell->cell >= kept->run.cell && cell->cell < kept->run.cell + kept->run.len) {
        kept->tokens[kept->run.pos + (cellar_pos)(cell->cell - kept->run.cell)] = cell->token;
    }
    return true;
}

static bool see_run(void *context, const cellar_run *run)
{
    kept_tokens *kept = context;
    kept->run = *run;
    return cellar_visit_cells(kept->memory, see_cell, kept, NULL) == CELLAR_OK;
}

static void a_shift_keeps_the_first_tokens_and_goes_on(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    rig r = rig_create(&shape, 32, 512);
    witness *w = new_witness();
    generate_options options = options_for(w);
    options.n_limit = 200;
    options.n_keep = 5;
    generate_result result;
    assert_int_equal(run(&r, &options, 0.9, 11, &result, NULL), CELLAR_OK);
    assert_int_equal(result.ended, GENERATE_ENDED_LIMIT);
    assert_int_equal(result.n_generated, 200);
    /*
     * 20 free cells after the prompt; then each shift frees half of 27 or, from then on, what is
     * there.
     */
    assert_in_range(result.n_shifts, 12, 16);

    const cellar_memory *memory = engine_memory(r.engine);
    assert_int_equal(cellar_check(memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_position_min(memory, 0), 0);
    assert_in_range(cellar_position_max(memory, 0), 5, 31);
    kept_tokens kept = {.memory = memory};
    assert_int_equal(cellar_visit_runs(memory, 0, see_run, &kept, NULL), CELLAR_OK);
    assert_memory_equal(kept.tokens, prompt, 5 * sizeof *prompt);
    assert_true(kept.tokens[5] != prompt[5] || kept.tokens[6] != prompt[6]);
    free(w);
    rig_destroy(&r);
}

static void a_shift_never_keeps_so_much_that_no_room_is_made(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    const uint32_t cells[] = {2, 3, 4, 7, 8, 13, 32};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        rig r = rig_create(&shape, cells[i], 512);
        witness *w = new_witness();
        generate_options options = options_for(w);
        options.n_prompt = N_PROMPT < cells[i] ? N_PROMPT : cells[i];
        options.n_keep = 1000;
        options.n_limit = 60;
        generate_result result;
        cellar_error error;
        if (run(&r, &options, 0, 0, &result, &error) != CELLAR_OK) {
            fail_msg("%u cells: %s", (unsigned)cells[i], error.message);
        }
        assert_int_equal(result.n_generated, 60);
        free(w);
        rig_destroy(&r);
    }
}

static void full_cells_end_the_text_or_fail_where_that_is_asked_for(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    rig r = rig_create(&shape, 20, 512);
    witness *w = new_witness();
    generate_options options = options_for(w);
    options.n_limit = 100;
    options.on_full = GENERATE_STOP;
    generate_result result;
    cellar_error error;
    assert_int_equal(run(&r, &options, 0, 0, &result, &error), CELLAR_OK);
    assert_int_equal(result.ended, GENERATE_ENDED_FULL);
    /* 8 tokens go into free cells; the 9th is written and has no place. */
    assert_int_equal(result.n_generated, 20 - N_PROMPT + 1);

    assert_int_equal(cellar_clear(engine_memory(r.engine), NULL), CELLAR_OK);
    w->last_read = 0;
    options.on_full = GENERATE_FAIL;
    assert_int_equal(run(&r, &options, 0, 0, &result, &error), CELLAR_FULL);
    assert_non_null(strstr(error.message, "20 cells"));
    assert_int_equal(result.n_generated, 20 - N_PROMPT + 1);
    free(w);
    rig_destroy(&r);
}

static void a_prompt_that_does_not_fit_is_refused_before_it_is_read(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    for (int on_full = GENERATE_SHIFT; on_full <= GENERATE_FAIL; on_full++) {
        rig r = rig_create(&shape, N_PROMPT - 1, 4);
        witness *w = new_witness();
        generate_options options = options_for(w);
        options.on_full = (generate_on_full)on_full;
        generate_result result;
        cellar_error error;
        assert_int_equal(run(&r, &options, 0, 0, &result, &error), CELLAR_FULL);
        assert_non_null(strstr(error.message, "12 tokens"));
        assert_non_null(strstr(error.message, "11 cells"));
        assert_int_equal(w->n_progress, 0);
        assert_int_equal(cellar_position_max(engine_memory(r.engine), 0), -1);
        free(w);
        rig_destroy(&r);
    }
}

static void a_prompt_without_tokens_to_read_is_refused(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    rig r = rig_create(&shape, 32, 4);
    generate_options options = options_for(NULL);
    generate_result result;
    options.n_prompt = 0;
    assert_int_equal(run(&r, &options, 0, 0, &result, NULL), CELLAR_INVALID);
    options.n_prompt = options.n_known = N_PROMPT;
    assert_int_equal(run(&r, &options, 0, 0, &result, NULL), CELLAR_INVALID);
    rig_destroy(&r);
}

/* ---- stopping ------------------------------------------------------------------------------- */

static void it_can_be_stopped_anywhere_and_the_memory_stays_sound(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    for (uint64_t stop = 0; stop < 40; stop++) {
        rig r = rig_create(&shape, 20, 4);
        witness *w = new_witness();
        w->stop_after = stop;
        generate_options options = options_for(w);
        generate_result result;
        cellar_error error;
        if (run(&r, &options, 0, 0, &result, &error) != CELLAR_OK) {
            fail_msg("stopped at question %u: %s", (unsigned)stop, error.message);
        }
        assert_int_equal(result.ended, GENERATE_ENDED_STOPPED);
        assert_int_equal(cellar_check(engine_memory(r.engine), NULL), CELLAR_OK);
        assert_int_equal(cellar_count_ubatches(engine_memory(r.engine)), 0);
        assert_true(result.n_read <= N_PROMPT &&
                    (result.n_read == N_PROMPT || result.n_generated == 0));
        free(w);
        rig_destroy(&r);
    }
}

static void text_that_cannot_be_written_ends_it(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    rig r = rig_create(&shape, 64, 4);
    witness *w = new_witness();
    w->fail_after = 3;
    generate_options options = options_for(w);
    generate_result result;
    assert_int_equal(run(&r, &options, 0, 0, &result, NULL), CELLAR_OK);
    assert_int_equal(result.ended, GENERATE_ENDED_OUTPUT);
    assert_in_range(w->n_calls, 3, 4); /* the rest of a character may follow */
    free(w);
    rig_destroy(&r);
}

/* ---- a trained model ------------------------------------------------------------------------ */

static void a_trained_model_tells_the_story_that_other_engines_tell(void **state)
{
    (void)state;
    const char *shared = getenv("CELLAR_SHARED");
    char path[512];
    snprintf(path, sizeof path, "%s/models/stories260K.gguf",
             shared == NULL ? "../shared" : shared);
    rig r = {.model = NULL};
    cellar_error error;
    if (gguf_open(path, &r.file, &error) != CELLAR_OK) {
        print_message("skipped: %s: %s (CELLAR_SHARED names the folder)\n", path, error.message);
        skip();
    }
    engine_options engine_how = engine_defaults();
    engine_how.n_threads = 2;
    rig_open(&r, &engine_how);
    cellar_token *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(r.tok, "Once upon a time", 16,
                                      (tokenize_options){.add_special = true}, &ids, &n, NULL),
                     CELLAR_OK);
    witness *w = new_witness();
    generate_options options = options_for(w);
    options.prompt = ids;
    options.n_prompt = n;
    options.n_limit = 32;
    options.ignore_end = false;
    sampler_options how = sampler_defaults();
    how.temperature = 0;
    sampler *s;
    assert_int_equal(sampler_create(&how, r.model->n_vocab, &s, NULL), CELLAR_OK);
    generate_result result;
    assert_int_equal(generate(r.engine, r.tok, s, &options, &result, NULL), CELLAR_OK);
    static const char expected[] = ", there was a little girl named Lily";
    assert_true(w->n_text >= strlen(expected));
    assert_memory_equal(w->text, expected, strlen(expected));
    sampler_destroy(s);
    free(w);
    free(ids);
    rig_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_ends_the_text_and_the_figures_are_right),
        cmocka_unit_test(nothing_to_write_only_reads_the_prompt),
        cmocka_unit_test(the_same_seed_gives_the_same_text_however_it_is_computed),
        cmocka_unit_test(another_seed_gives_another_text),
        cmocka_unit_test(what_the_sequence_knows_is_not_read_again),
        cmocka_unit_test(a_token_that_ends_the_text_ends_it_unless_it_is_forbidden),
        cmocka_unit_test(a_shift_keeps_the_first_tokens_and_goes_on),
        cmocka_unit_test(a_shift_never_keeps_so_much_that_no_room_is_made),
        cmocka_unit_test(full_cells_end_the_text_or_fail_where_that_is_asked_for),
        cmocka_unit_test(a_prompt_that_does_not_fit_is_refused_before_it_is_read),
        cmocka_unit_test(a_prompt_without_tokens_to_read_is_refused),
        cmocka_unit_test(it_can_be_stopped_anywhere_and_the_memory_stays_sound),
        cmocka_unit_test(text_that_cannot_be_written_ends_it),
        cmocka_unit_test(a_trained_model_tells_the_story_that_other_engines_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
