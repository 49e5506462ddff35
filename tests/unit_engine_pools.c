/*
 * unit_engine_pools.c: an engine with several pools, and batches that mix their sequences.
 *
 * A micro-batch may hold tokens in another order than the batch (cellar_config.split). Whatever the
 * pools, the split and the size of micro-batches, the logits of a token must land in its own row of
 * the caller's, with the bits of an engine that has one pool, cuts simply and reads each sequence in
 * batches of its own. Rows that were not asked for stay untouched: each test has one behind the last.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "support_model.h"

#define N_SEQS 4
#define N_TOKENS 48u
#define ROW FIXTURE_VOCABULARY
#define UNTOUCHED (-77.0f)

static fixture made;
static model *the_model;

/* Tokens of four sequences in no simple order, some in stretches; in the order of the batches. */
static cellar_token text[N_TOKENS];
static cellar_seq seqs[N_TOKENS];

static int make_model(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    shape.has_output = shape.has_biases = true;
    made = fixture_create(&shape);
    uint32_t random = 12345;
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        text[i] = (cellar_token)((i * 97 + 13) % FIXTURE_VOCABULARY);
        random = random * 1664525 + 1013904223;
        bool goes_on = i % 12 > 3 && i % 12 < 8; /* a stretch of one sequence */
        seqs[i] = goes_on ? seqs[i - 1] : (cellar_seq)((random >> 16) % N_SEQS);
    }
    return model_load(made.file, &the_model, NULL) == CELLAR_OK ? 0 : -1;
}

static int free_model(void **state)
{
    (void)state;
    model_free(the_model);
    fixture_destroy(&made);
    return 0;
}

static engine *create(const engine_options *options)
{
    engine *e = NULL;
    cellar_error error;
    if (engine_create(the_model, options, &e, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return e;
}

static engine_options options_of(uint32_t n_pools, cellar_split split, uint32_t n_ubatch)
{
    engine_options options = engine_defaults();
    options.n_cells = N_TOKENS * n_pools;
    options.n_ubatch = n_ubatch;
    options.n_pools = n_pools;
    options.split = split;
    options.k_type = options.v_type = CELLAR_F32;
    return options;
}

static float *rows(uint32_t n)
{
    float *block = malloc((size_t)n * ROW * sizeof *block);
    assert_non_null(block);
    for (size_t i = 0; i < (size_t)n * ROW; i++) {
        block[i] = UNTOUCHED;
    }
    return block;
}

static void decode(engine *e, uint32_t first, uint32_t n, const uint32_t *wanted, uint32_t n_wanted,
                   float *logits)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = text + first;
    batch.seqs = seqs + first;
    cellar_error error;
    if (engine_decode(e, &batch, wanted, n_wanted, logits, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(cellar_check(engine_memory(e), NULL), CELLAR_OK);
}

/* The logits of all tokens, each read alone: nothing can be mixed up. [N_TOKENS][ROW] from malloc. */
static float *read_one_by_one(void)
{
    const engine_options options = options_of(1, CELLAR_SPLIT_SIMPLE, 1);
    const uint32_t only = 0;
    engine *e = create(&options);
    float *logits = rows(N_TOKENS);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        decode(e, i, 1, &only, 1, logits + (size_t)i * ROW);
    }
    engine_destroy(e);
    return logits;
}

static bool same_row(const float *a, const float *b)
{
    return memcmp(a, b, ROW * sizeof *a) == 0;
}

/*
 * Read `text` in batches of n_batch tokens and ask for the logits of every `every`-th token of each,
 * counted from its last; they must be those of `truth`.
 */
static void check_batches(const engine_options *options, uint32_t n_batch, uint32_t every,
                          const float *truth)
{
    engine *e = create(options);
    for (uint32_t first = 0; first < N_TOKENS; first += n_batch) {
        uint32_t n = N_TOKENS - first < n_batch ? N_TOKENS - first : n_batch;
        uint32_t wanted[N_TOKENS], n_wanted = 0;
        for (uint32_t i = 0; i < n; i++) {
            if ((n - 1 - i) % every == 0) {
                wanted[n_wanted++] = i;
            }
        }
        float *logits = rows(n_wanted + 1);
        decode(e, first, n, wanted, n_wanted, logits);
        for (uint32_t i = 0; i < n_wanted; i++) {
            uint32_t token = first + wanted[i];
            if (!same_row(logits + (size_t)i * ROW, truth + (size_t)token * ROW)) {
                fail_msg("%u pools, split %d, micro-batches of %u, batches of %u, every %u.: "
                         "the logits of token %u are others",
                         options->n_pools, (int)options->split, options->n_ubatch, n_batch, every,
                         token);
            }
        }
        for (uint32_t i = 0; i < ROW; i++) {
            assert_true(logits[(size_t)n_wanted * ROW + i] == UNTOUCHED);
        }
        free(logits);
    }
    engine_destroy(e);
}

static void logits_land_in_their_rows_however_a_batch_is_cut(void **state)
{
    (void)state;
    const cellar_split splits[] = {CELLAR_SPLIT_AUTO, CELLAR_SPLIT_SIMPLE, CELLAR_SPLIT_EQUAL,
                                   CELLAR_SPLIT_BY_SEQUENCE};
    const uint32_t ubatches[] = {1, 3, 8, N_TOKENS}, batches[] = {5, 17, N_TOKENS};
    float *truth = read_one_by_one();
    for (uint32_t n_pools = 1; n_pools <= N_SEQS; n_pools++) {
        for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
            for (size_t j = 0; j < sizeof ubatches / sizeof ubatches[0]; j++) {
                const engine_options options = options_of(n_pools, splits[i], ubatches[j]);
                for (size_t k = 0; k < sizeof batches / sizeof batches[0]; k++) {
                    for (uint32_t every = 1; every <= 3; every++) {
                        check_batches(&options, batches[k], every, truth);
                    }
                }
            }
        }
    }
    free(truth);
}

/* The test above would prove nothing if micro-batches kept the order of the batch. */
static void several_pools_do_change_the_order_of_tokens(void **state)
{
    (void)state;
    const engine_options options = options_of(2, CELLAR_SPLIT_AUTO, N_TOKENS);
    engine *e = create(&options);
    cellar_memory *memory = engine_memory(e);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = N_TOKENS;
    batch.tokens = text;
    batch.seqs = seqs;
    assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
    uint32_t n_falls = 0;
    for (uint32_t i = 0; i < cellar_count_ubatches(memory); i++) {
        cellar_ubatch ubatch;
        assert_int_equal(cellar_get_ubatch(memory, i, &ubatch, NULL), CELLAR_OK);
        for (uint32_t t = 1; t < ubatch.n_tokens; t++) {
            n_falls += ubatch.indices[t] < ubatch.indices[t - 1];
        }
    }
    assert_true(n_falls > 0);
    cellar_abort(memory);
    engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_land_in_their_rows_however_a_batch_is_cut),
        cmocka_unit_test(several_pools_do_change_the_order_of_tokens),
    };
    return cmocka_run_group_tests(tests, make_model, free_model);
}
