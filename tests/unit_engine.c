/*
 * unit_engine.c: what an engine computes, and that it is the same however it is asked.
 *
 * The numbers are held against a plain model in double (support_reference.c). Everything else is a
 * comparison bit for bit: batches against single tokens, threads against one, reading on from what
 * is remembered against reading all again. And whatever fails leaves the memory as it was.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "support_model.h"

#define N_TOKENS 29u
#define ROW FIXTURE_VOCABULARY

/* A model with an engine on it. */
typedef struct rig {
    fixture made;
    model *model;
    engine *engine;
} rig;

/* ---- helpers -------------------------------------------------------------------------------- */

static cellar_token text[N_TOKENS]; /* any tokens */

static void fill_text(void)
{
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        text[i] = (cellar_token)((i * 97 + 13) % FIXTURE_VOCABULARY);
    }
}

static engine_options small_options(void)
{
    engine_options options = engine_defaults();
    options.n_cells = 64;
    options.n_ubatch = 16;
    options.k_type = options.v_type = CELLAR_F32;
    return options;
}

static rig rig_create(const fixture_shape *shape, const engine_options *options)
{
    rig r = {.made = fixture_create(shape)};
    cellar_error error;
    if (model_load(r.made.file, &r.model, &error) != CELLAR_OK ||
        engine_create(r.model, options, &r.engine, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return r;
}

static void rig_destroy(rig *r)
{
    engine_destroy(r->engine);
    model_free(r->model);
    fixture_destroy(&r->made);
}

static float *rows(uint32_t n)
{
    float *block = calloc((size_t)n * ROW, sizeof *block);
    assert_non_null(block);
    return block;
}

/* Read tokens [first, first + n) of `text` in `seq` and give the logits of all. */
static void read_part(engine *e, cellar_seq seq, uint32_t first, uint32_t n, float *logits)
{
    cellar_seq seqs[N_TOKENS];
    uint32_t wanted[N_TOKENS];
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = seq;
        wanted[i] = i;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = text + first;
    batch.seqs = seqs;
    cellar_error error;
    if (engine_decode(e, &batch, wanted, n, logits, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
}

/* All of `text` in pieces of `step` tokens; logits [N_TOKENS][ROW] from calloc. */
static float *read_all(const fixture_shape *shape, const engine_options *options, uint32_t step)
{
    rig r = rig_create(shape, options);
    float *logits = rows(N_TOKENS);
    for (uint32_t at = 0; at < N_TOKENS; at += step) {
        uint32_t n = N_TOKENS - at < step ? N_TOKENS - at : step;
        read_part(r.engine, 0, at, n, logits + (size_t)at * ROW);
    }
    rig_destroy(&r);
    return logits;
}

static void assert_same(const float *a, const float *b, uint32_t n_rows)
{
    if (memcmp(a, b, (size_t)n_rows * ROW * sizeof *a) == 0) {
        return;
    }
    for (size_t i = 0; i < (size_t)n_rows * ROW; i++) {
        if (memcmp(&a[i], &b[i], sizeof a[i]) != 0) {
            fail_msg("row %zu, logit %zu: %.9g and %.9g", i / ROW, i % ROW, (double)a[i],
                     (double)b[i]);
        }
    }
}

/* The largest difference, in standard deviations of the reference. */
static double worst_difference(const float *logits, const double *reference, uint32_t n_rows)
{
    double worst = 0;
    for (uint32_t t = 0; t < n_rows; t++) {
        const double *row = reference + (size_t)t * ROW;
        double sum = 0, squares = 0;
        for (uint32_t i = 0; i < ROW; i++) {
            sum += row[i];
            squares += row[i] * row[i];
        }
        double deviation = sqrt(squares / ROW - sum / ROW * (sum / ROW));
        for (uint32_t i = 0; i < ROW; i++) {
            double off = fabs((double)logits[(size_t)t * ROW + i] - row[i]) / deviation;
            if (off > worst) worst = off; /* gcc 12 for AArch64 cannot compile fmax() here */
        }
    }
    return worst;
}

/* What can be seen of a memory from outside. */
typedef struct memory_view {
    uint64_t hash;
    cellar_statistics statistics;
} memory_view;

static void mix(uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * 0x100000001b3u;
}

static bool see_run(void *context, const cellar_run *run)
{
    mix(context, (uint64_t)run->seq);
    mix(context, (uint64_t)run->pos);
    mix(context, run->cell);
    mix(context, run->len);
    mix(context, (uint64_t)run->shift);
    return true;
}

static bool see_cell(void *context, const cellar_cell *cell)
{
    mix(context, cell->cell);
    mix(context, cell->refs);
    mix(context, (uint64_t)cell->stored_pos);
    mix(context, (uint64_t)cell->token);
    return true;
}

static memory_view view_of(engine *e)
{
    const cellar_memory *memory = engine_memory(e);
    memory_view view = {.hash = 0xcbf29ce484222325u};
    assert_int_equal(cellar_visit_runs(memory, -1, see_run, &view.hash, NULL), CELLAR_OK);
    assert_int_equal(cellar_visit_cells(memory, see_cell, &view.hash, NULL), CELLAR_OK);
    assert_int_equal(cellar_stats(memory, &view.statistics, NULL), CELLAR_OK);
    assert_int_equal(cellar_check(memory, NULL), CELLAR_OK);
    return view;
}

static void assert_unchanged(engine *e, const memory_view *before)
{
    memory_view now = view_of(e);
    assert_true(now.hash == before->hash);
    assert_int_equal(now.statistics.n_used, before->statistics.n_used);
    assert_int_equal(now.statistics.n_runs, before->statistics.n_runs);
    assert_int_equal(now.statistics.longest_free, before->statistics.longest_free);
}

/* ---- the numbers ---------------------------------------------------------------------------- */

/* Weights of quants: 16 bits of the activations, or all; the bar is for all. */
#define ROUNDED_BAR 1e-3

static void check_numbers_of(const char *what, const fixture_shape *shape, const fixture_rope *rope,
                             bool is_exact, double bar)
{
    engine_options options = small_options();
    options.is_exact = is_exact;
    double *reference = calloc((size_t)N_TOKENS * ROW, sizeof *reference);
    fixture made = fixture_create(shape);
    fixture_logits(shape, rope, made.file, text, N_TOKENS, reference);
    float *logits = read_all(shape, &options, N_TOKENS);
    double worst = worst_difference(logits, reference, N_TOKENS);
    if (!(worst < bar)) {
        fail_msg("%s: %g standard deviations from the reference", what, worst);
    }
    print_message("%s: %.2g standard deviations from the reference\n", what, worst);
    free(logits);
    free(reference);
    fixture_destroy(&made);
}

static void check_numbers(const char *what, const fixture_shape *shape, const fixture_rope *rope,
                          double bar)
{
    check_numbers_of(what, shape, rope, true, bar);
    check_numbers_of(what, shape, rope, false, shape->weight_type == 8 ? ROUNDED_BAR : bar);
}

static void logits_are_those_of_a_plain_model_in_double(void **state)
{
    (void)state;
    const struct {
        const char *name;
        uint32_t type;
    } types[] = {{"F32", 0}, {"F16", 1}, {"Q8_0", 8}, {"BF16", 30}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        fixture_shape shape = fixture_default();
        shape.weight_type = types[i].type;
        fixture_rope rope = fixture_default_rope(&shape);
        check_numbers(types[i].name, &shape, &rope, 1e-5);
        shape.has_biases = shape.has_output = true;
        check_numbers("with biases and an output matrix", &shape, &rope, 1e-5);
    }
}

static void unusual_shapes_are_computed_too(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    shape.n_embd = 40;
    shape.n_heads = 6;
    shape.n_kv_heads = 1;
    shape.k_size = 10;
    shape.v_size = 14;
    shape.n_ff = 51;
    shape.n_rot = 6;
    shape.n_layers = 3;
    fixture_rope rope = fixture_default_rope(&shape);
    check_numbers("heads of 10 and 14 elements, 6 rotated, one K/V head", &shape, &rope, 1e-5);
    shape.n_kv_heads = 6;
    check_numbers("a K/V head for each query head", &shape, &rope, 1e-5);
}

static void rope_is_scaled_as_the_file_says(void **state)
{
    (void)state;
    const fixture_key linear[] = {{"llama.rope.scaling.factor", FIXTURE_FLOAT, .number = 4},
                                  {"llama.rope.freq_base", FIXTURE_FLOAT, .number = 500}};
    const fixture_key yarn[] = {
        {"llama.rope.scaling.factor", FIXTURE_FLOAT, .number = 4},
        {"llama.rope.scaling.type", FIXTURE_TEXT, .text = "yarn"},
        {"llama.rope.scaling.original_context_length", FIXTURE_U32, .number = 64},
        {"llama.rope.scaling.attn_factor", FIXTURE_FLOAT, .number = 1.25}};
    fixture_shape shape = fixture_default();
    shape.k_size = shape.n_rot = 16;
    fixture_rope rope = fixture_default_rope(&shape);

    shape.keys = linear;
    shape.n_keys = 2;
    rope.base = 500;
    rope.scale = 0.25;
    check_numbers("linear scaling", &shape, &rope, 1e-5);
    shape.has_factors = true;
    check_numbers("linear scaling and frequency factors", &shape, &rope, 1e-5);

    shape.has_factors = false;
    shape.keys = yarn;
    shape.n_keys = 4;
    rope.base = 10000;
    rope.yarn_context = 64;
    rope.magnitude = 1.25 * (1 + 0.1 * log(4));
    check_numbers("YaRN", &shape, &rope, 1e-5);
}

/* ---- the same bits however it is asked ------------------------------------------------------ */

static void one_batch_equals_token_by_token_bit_for_bit(void **state)
{
    (void)state;
    const uint32_t types[] = {0, 1, 8, 30};
    for (size_t i = 0; i < 4; i++) {
        fixture_shape shape = fixture_default();
        shape.weight_type = types[i];
        for (int k_type = 0; k_type < 2; k_type++) {
            engine_options options = small_options();
            options.k_type = options.v_type = (cellar_type)k_type;
            float *whole = read_all(&shape, &options, N_TOKENS);
            for (uint32_t step = 1; step < 12; step += 3) {
                float *pieces = read_all(&shape, &options, step);
                assert_same(whole, pieces, N_TOKENS);
                free(pieces);
            }
            for (uint32_t ubatch = 1; ubatch < 8; ubatch += 2) {
                options.n_ubatch = ubatch;
                float *pieces = read_all(&shape, &options, N_TOKENS);
                assert_same(whole, pieces, N_TOKENS);
                free(pieces);
            }
            free(whole);
        }
    }
}

/* Wide enough that the work is worth waking threads for. */
static fixture_shape wide_shape(void)
{
    fixture_shape shape = fixture_default();
    shape.n_embd = 160;
    shape.n_ff = 448;
    shape.k_size = shape.v_size = shape.n_rot = 32;
    shape.has_biases = true;
    return shape;
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    fixture_shape shape = wide_shape();
    engine_options options = small_options();
    float *alone = read_all(&shape, &options, N_TOKENS);
    for (uint32_t n = 2; n <= 4; n++) {
        options.n_threads = n;
        float *together = read_all(&shape, &options, N_TOKENS);
        assert_same(alone, together, N_TOKENS);
        free(together);
        together = read_all(&shape, &options, 1);
        assert_same(alone, together, N_TOKENS);
        free(together);
    }
    free(alone);
}

static void reading_on_equals_reading_again_bit_for_bit(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    engine_options options = small_options();
    float *cold = read_all(&shape, &options, N_TOKENS), *warm = rows(N_TOKENS);
    rig r = rig_create(&shape, &options);
    cellar_memory *memory = engine_memory(r.engine);
    read_part(r.engine, 0, 0, 20, warm);

    /* A fork reads on in cells of its own. */
    assert_int_equal(cellar_copy(memory, 0, 5, 0, -1, NULL), CELLAR_OK);
    read_part(r.engine, 5, 20, 9, warm);
    assert_same(cold + 20 * ROW, warm, 9);

    /* And so does the first one, also after it was rewound. */
    read_part(r.engine, 0, 20, 9, warm);
    assert_same(cold + 20 * ROW, warm, 9);
    assert_int_equal(cellar_remove(memory, 0, 11, -1, NULL), CELLAR_OK);
    read_part(r.engine, 0, 11, 18, warm);
    assert_same(cold + 11 * ROW, warm, 18);
    rig_destroy(&r);
    free(cold);
    free(warm);
}

static void only_wanted_logits_are_written_and_they_are_the_same(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    engine_options options = small_options();
    options.n_ubatch = 8;
    float *all = read_all(&shape, &options, N_TOKENS), *some = rows(4);
    const uint32_t wanted[] = {0, 7, 8, N_TOKENS - 1};
    for (uint32_t n = 0; n <= 4; n++) {
        rig r = rig_create(&shape, &options);
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = N_TOKENS;
        batch.tokens = text;
        for (size_t i = 0; i < (size_t)4 * ROW; i++) {
            some[i] = -77;
        }
        assert_int_equal(engine_decode(r.engine, &batch, wanted, n, n == 0 ? NULL : some, NULL),
                         CELLAR_OK);
        for (uint32_t i = 0; i < 4; i++) {
            if (i < n) {
                assert_same(some + (size_t)i * ROW, all + (size_t)wanted[i] * ROW, 1);
            } else {
                assert_true(some[(size_t)i * ROW] == -77 && some[(size_t)i * ROW + ROW - 1] == -77);
            }
        }
        rig_destroy(&r);
    }
    free(all);
    free(some);
}

/* ---- failures ------------------------------------------------------------------------------- */

typedef struct countdown {
    uint32_t left;
} countdown;

static bool stop_at_zero(void *context)
{
    countdown *c = context;
    if (c->left == 0) {
        return true;
    }
    c->left--;
    return false;
}

static void a_stopped_step_leaves_the_memory_as_it_was(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    engine_options options = small_options();
    options.n_ubatch = 8;
    float *cold = read_all(&shape, &options, N_TOKENS), *warm = rows(N_TOKENS);
    rig r = rig_create(&shape, &options);
    read_part(r.engine, 0, 0, 5, warm);
    memory_view before = view_of(r.engine);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 24;
    batch.tokens = text + 5;
    for (uint32_t stop = 0; stop < 6; stop++) { /* 3 micro-batches of 2 layers */
        countdown c = {.left = stop};
        engine_set_stop(r.engine, stop_at_zero, &c);
        cellar_error error;
        assert_int_equal(engine_decode(r.engine, &batch, NULL, 0, NULL, &error), CELLAR_REFUSED);
        assert_non_null(strstr(error.message, "stopped"));
        assert_unchanged(r.engine, &before);
    }
    engine_set_stop(r.engine, NULL, NULL);
    read_part(r.engine, 0, 5, 24, warm);
    assert_same(cold + 5 * ROW, warm, 24);
    rig_destroy(&r);
    free(cold);
    free(warm);
}

static void bad_requests_are_refused_and_change_nothing(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    engine_options options = small_options();
    rig r = rig_create(&shape, &options);
    float *logits = rows(N_TOKENS);
    read_part(r.engine, 0, 0, 9, logits);
    memory_view before = view_of(r.engine);
    const cellar_token high[] = {1, FIXTURE_VOCABULARY}, negative[] = {1, -1}, fine[] = {1, 2};
    const uint32_t falling[] = {1, 0}, twice[] = {1, 1}, beyond[] = {0, 2}, both[] = {0, 1};
    const struct {
        const cellar_token *tokens;
        const uint32_t *wanted;
        float *logits;
        int64_t at;
    } bad[] = {
        {high, both, logits, 1},    {negative, both, logits, 1}, {NULL, both, logits, -1},
        {fine, falling, logits, 1}, {fine, twice, logits, 1},    {fine, beyond, logits, 1},
        {fine, NULL, logits, -1},   {fine, both, NULL, -1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = 2;
        batch.tokens = bad[i].tokens;
        cellar_error error;
        assert_int_equal(engine_decode(r.engine, &batch, bad[i].wanted, 2, bad[i].logits, &error),
                         CELLAR_INVALID);
        assert_int_equal(error.at, bad[i].at);
        assert_unchanged(r.engine, &before);
    }
    rig_destroy(&r);
    free(logits);
}

static void what_does_not_fit_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    engine_options options = small_options();
    options.n_cells = 20;
    rig r = rig_create(&shape, &options);
    float *logits = rows(N_TOKENS);
    read_part(r.engine, 0, 0, 9, logits);
    memory_view before = view_of(r.engine);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 12;
    batch.tokens = text;
    assert_int_equal(engine_decode(r.engine, &batch, NULL, 0, NULL, NULL), CELLAR_FULL);
    assert_unchanged(r.engine, &before);
    batch.n_tokens = 11;
    assert_int_equal(engine_decode(r.engine, &batch, NULL, 0, NULL, NULL), CELLAR_OK);
    rig_destroy(&r);
    free(logits);
}

static void an_engine_that_cannot_be_is_refused(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    fixture made = fixture_create(&shape);
    model *m;
    assert_int_equal(model_load(made.file, &m, NULL), CELLAR_OK);
    engine_options options[4];
    for (size_t i = 0; i < 4; i++) {
        options[i] = small_options();
    }
    options[0].n_cells = 0;
    options[1].n_ubatch = 0;
    options[2].n_threads = 0;
    options[3].n_threads = 513;
    for (size_t i = 0; i < 4; i++) {
        engine *e = (engine *)(void *)&made;
        cellar_error error;
        assert_int_equal(engine_create(m, &options[i], &e, &error), CELLAR_INVALID);
        assert_null(e);
        assert_true(strlen(error.message) > 0);
    }
    model_free(m);
    fixture_destroy(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_a_plain_model_in_double),
        cmocka_unit_test(unusual_shapes_are_computed_too),
        cmocka_unit_test(rope_is_scaled_as_the_file_says),
        cmocka_unit_test(one_batch_equals_token_by_token_bit_for_bit),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(reading_on_equals_reading_again_bit_for_bit),
        cmocka_unit_test(only_wanted_logits_are_written_and_they_are_the_same),
        cmocka_unit_test(a_stopped_step_leaves_the_memory_as_it_was),
        cmocka_unit_test(bad_requests_are_refused_and_change_nothing),
        cmocka_unit_test(what_does_not_fit_is_refused_and_changes_nothing),
        cmocka_unit_test(an_engine_that_cannot_be_is_refused),
    };
    fill_text();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
