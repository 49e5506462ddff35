/*
 * unit_bench.c: what `cellar bench` makes of times, and what it counts for a roofline.
 *
 * Bytes and operations are held against sources of their own: the rows that the memory says it keeps, the
 * shapes of the model, and each other. The storyteller has attention layers alone, so every row counts.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "bench/samples.h"
#include "bench/work.h"
#include "cli/model_file.h"

typedef struct story {
    model_file file;
    engine *engine;
    engine_options options;
    double row; /* bytes of a token in all layers */
} story;

static void open_story(story *s)
{
    cellar_error error;
    cellar_group_info group;
    *s = (story){.options = engine_defaults()};
    assert_int_equal(model_file_open(NULL, false, &s->file, &error), CELLAR_OK);
    s->options.n_cells = 256;
    s->options.n_ubatch = 32;
    assert_int_equal(engine_create(s->file.model, &s->options, &s->engine, &error), CELLAR_OK);
    assert_int_equal(cellar_count_groups(engine_memory(s->engine)), 1);
    assert_int_equal(cellar_get_group(engine_memory(s->engine), 0, &group, &error), CELLAR_OK);
    s->row = (double)group.row_bytes;
}

static void close_story(story *s)
{
    engine_destroy(s->engine);
    model_file_close(&s->file);
}

static bench_work work_of(const story *s, bool is_generation, uint32_t n, uint32_t depth)
{
    return bench_work_of(s->engine, &s->options, is_generation, n, depth);
}

static void same(double a, double b)
{
    if (fabs(a - b) > 1e-9 * fabs(b)) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

static void a_spread_is_the_middle_with_least_and_most(void **state)
{
    double odd[3] = {5, 1, 2}, even[4] = {8, 1, 2, 4}, one[1] = {3};
    (void)state;
    bench_spread s = bench_spread_of(odd, 3);
    same(s.median, 2);
    same(s.least, 1);
    same(s.most, 5);
    s = bench_spread_of(even, 4);
    same(s.median, 3);
    s = bench_spread_of(one, 1);
    same(s.median, 3);
    same(s.least, 3);
    same(s.most, 3);
}

static void a_rate_is_least_where_the_time_is_most(void **state)
{
    (void)state;
    const bench_spread rate = bench_rate_of((bench_spread){.median = 4, .least = 2, .most = 8}, 16);
    same(rate.median, 4);
    same(rate.least, 2);
    same(rate.most, 8);
    same(bench_rate_of((bench_spread){0, 0, 0}, 16).median, 0);
}

static void a_token_deeper_is_a_row_more(void **state)
{
    story s;
    double pair = 0; /* operations for a query and a key in all layers */
    (void)state;
    open_story(&s);
    const model *m = s.file.model;
    for (uint32_t l = 0; l < m->n_memory_layers; l++) {
        const cellar_layer *layer = &m->memory_layers[l];
        pair += 2.0 * layer->n_heads * (layer->k_size + layer->v_size);
    }
    const bench_work near = work_of(&s, true, 1, 40), far = work_of(&s, true, 1, 41);
    same(far.bytes - near.bytes, s.row);
    same(far.operations - near.operations, pair);
    close_story(&s);
}

static void weights_are_read_once_for_a_micro_batch(void **state)
{
    story s;
    (void)state;
    open_story(&s);
    /* Of a prompt in one micro-batch the last token sees all rows, as a token behind them does. */
    same(work_of(&s, false, 32, 0).bytes, work_of(&s, true, 1, 31).bytes);
    /* Two micro-batches: the first gives no logits, and reads its own rows. */
    const model *m = s.file.model;
    const double output = (double)m->output.weight.row_bytes * m->output.weight.n_out;
    same(work_of(&s, false, 64, 0).bytes,
         work_of(&s, true, 1, 31).bytes - output + work_of(&s, true, 1, 63).bytes);
    close_story(&s);
}

static void logits_are_computed_for_those_that_are_wanted(void **state)
{
    story s;
    (void)state;
    open_story(&s);
    const double logits = 2.0 * s.file.model->n_embd * s.file.model->n_vocab;
    same(work_of(&s, true, 8, 0).operations - work_of(&s, false, 8, 0).operations, 7 * logits);
    close_story(&s);
}

/* The matrices of the file: every number of them is multiplied and added once for a token. */
static void a_token_takes_every_matrix(void **state)
{
    story s;
    double bytes = 0;
    (void)state;
    open_story(&s);
    for (uint32_t i = 0; i < gguf_count_tensors(s.file.file); i++) {
        const gguf_tensor *t = gguf_tensor_at(s.file.file, i);
        bytes += t->n_dims == 2 ? (double)t->n_bytes : 0;
    }
    assert_null(gguf_find_tensor(s.file.file, "output.weight")); /* the embedding is the output */
    same(work_of(&s, true, 1, 0).bytes, bytes + s.row);
    close_story(&s);
}

static void a_shared_prefix_is_read_once(void **state)
{
    story s;
    bench_sequences q = {.n_sequences = 5, .n_prefix = 30, .n_generated = 3};
    (void)state;
    open_story(&s);
    const bench_work shared = bench_work_of_sequences(s.engine, &s.options, &q);
    q.is_apart = true;
    const bench_work apart = bench_work_of_sequences(s.engine, &s.options, &q);
    same(apart.bytes - shared.bytes, 4 * 30 * 3 * s.row);
    same(apart.operations, shared.operations);
    close_story(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spread_is_the_middle_with_least_and_most),
        cmocka_unit_test(a_rate_is_least_where_the_time_is_most),
        cmocka_unit_test(a_token_deeper_is_a_row_more),
        cmocka_unit_test(weights_are_read_once_for_a_micro_batch),
        cmocka_unit_test(logits_are_computed_for_those_that_are_wanted),
        cmocka_unit_test(a_token_takes_every_matrix),
        cmocka_unit_test(a_shared_prefix_is_read_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
