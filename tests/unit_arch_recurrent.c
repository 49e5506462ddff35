/*
 * unit_arch_recurrent.c: models with states: right numbers, the same however they are read.
 *
 * Models of states alone are compared with a computation in double over many shapes; all kinds, those
 * with attention too, must give the same bits for any number of threads, any split, beside other
 * sequences, and after forks, rollbacks and checkpoints. Last: files that are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "support_reading.h"
#include "support_recurrent.h"

enum { N_TOKENS = 23, N_VOCAB = RECURRENT_VOCABULARY, N_SEEDS = 12 };

/*
 * In standard deviations of the logits. A norm of three channels that all are close to 0 enlarges what f32
 * rounds (as the computation in double shows when its embeddings are changed by 1e-7), so a few tokens may
 * be farther.
 */
#define NEAR 1e-5
#define NEVER_FARTHER 1e-4
#define MOST_FARTHER 3u /* of N_TOKENS */

static const cellar_token tokens[N_TOKENS] = {1,  7, 30, 2, 2,  19, 11, 5,  28, 0,  31, 14,
                                              39, 3, 8,  2, 17, 6,  1,  13, 4,  35, 22};

typedef float all_logits[N_TOKENS][N_VOCAB];

static recipe *make(recurrent_kind kind, uint64_t seed)
{
    const recurrent_shape shape = recurrent_random(kind, seed);
    return recurrent_recipe(&shape);
}

/* ---- numbers ----------------------------------------------------------------------------------- */

static void logits_are_those_of_the_papers(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < RECURRENT_PLAIN_KINDS; kind++) {
        for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
            const recurrent_shape shape = recurrent_random((recurrent_kind)kind, seed);
            recipe *r = recurrent_recipe(&shape);
            all_logits found;
            double wanted[N_TOKENS][N_VOCAB];
            reading_cold(r, tokens, N_TOKENS, found[0]);
            recurrent_logits(&shape, r, tokens, N_TOKENS, wanted[0]);
            uint32_t n_farther = 0;
            for (uint32_t t = 0; t < N_TOKENS; t++) {
                const double distance = plain_distance(found[t], wanted[t], N_VOCAB);
                n_farther += !(distance <= NEAR);
                if (!(distance <= NEVER_FARTHER) || n_farther > MOST_FARTHER) {
                    fail_msg("kind %u, seed %u, token %u: %g", kind, (unsigned)seed, (unsigned)t,
                             distance);
                }
            }
            recipe_destroy(r);
        }
    }
}

/* ---- the same bits ----------------------------------------------------------------------------- */

/* How tokens are read. */
typedef struct manner {
    uint32_t n_ubatch, n_threads, n_first; /* n_first: tokens of the first of two batches */
} manner;

static void read_so(const recipe *r, manner how, float *logits)
{
    reading its;
    engine_options options = engine_defaults();
    options.n_cells = 64;
    options.n_ubatch = how.n_ubatch;
    options.n_threads = how.n_threads;
    reading_open(&its, r, &options);
    reading_add(&its, 0, tokens, how.n_first, NULL, logits);
    reading_add(&its, 0, tokens + how.n_first, N_TOKENS - how.n_first, NULL,
                logits + (size_t)how.n_first * N_VOCAB);
    reading_close(&its);
}

static void results_do_not_depend_on_how_tokens_are_read(void **state)
{
    (void)state;
    const manner manners[] = {{64, 2, 9}, {64, 3, 1}, {1, 1, 22}, {2, 3, 11}, {5, 2, 13}};
    for (unsigned kind = 0; kind < RECURRENT_KINDS; kind++) {
        for (uint64_t seed = 21; seed < 24; seed++) {
            recipe *r = make((recurrent_kind)kind, seed);
            all_logits cold, found;
            reading_cold(r, tokens, N_TOKENS, cold[0]);
            for (size_t i = 0; i < sizeof manners / sizeof manners[0]; i++) {
                read_so(r, manners[i], found[0]);
                assert_memory_equal(cold, found, sizeof cold);
            }
            recipe_destroy(r);
        }
    }
}

/* Two sequences in one batch, token by token in turn; the second reads the tokens from `other` on. */
static void sequences_do_not_see_each_other(void **state)
{
    (void)state;
    enum { OTHER = 6, N_BOTH = N_TOKENS + N_TOKENS - OTHER };
    for (unsigned kind = 0; kind < RECURRENT_KINDS; kind++) {
        recipe *r = make((recurrent_kind)kind, 31);
        all_logits first, second;
        static float found[N_BOTH][N_VOCAB];
        cellar_token both[N_BOTH];
        cellar_seq seqs[N_BOTH];
        uint32_t wanted[N_BOTH], n = 0;
        for (uint32_t t = 0; t < N_TOKENS; t++) {
            both[n] = tokens[t];
            seqs[n++] = 4;
            if (t + OTHER < N_TOKENS) {
                both[n] = tokens[t + OTHER];
                seqs[n++] = 9;
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            wanted[i] = i;
        }
        reading_cold(r, tokens, N_TOKENS, first[0]);
        reading_cold(r, tokens + OTHER, N_TOKENS - OTHER, second[0]);
        reading its;
        engine_options options = engine_defaults();
        options.n_cells = 64;
        options.n_ubatch = 6;
        options.n_sequences = 2;
        reading_open(&its, r, &options);
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = n;
        batch.tokens = both;
        batch.seqs = seqs;
        cellar_error error;
        assert_int_equal(engine_decode(its.engine, &batch, wanted, n, found[0], &error), CELLAR_OK);
        for (uint32_t i = 0, a = 0, b = 0; i < n; i++) {
            const float *cold = seqs[i] == 4 ? first[a++] : second[b++];
            assert_memory_equal(found[i], cold, sizeof found[i]);
        }
        reading_close(&its);
        recipe_destroy(r);
    }
}

/* ---- going back -------------------------------------------------------------------------------- */

/* Room for everything that may be asked for. */
static engine_options roomy(void)
{
    engine_options options = engine_defaults();
    options.n_cells = 128;
    options.n_ubatch = 7;
    options.n_sequences = 3;
    options.rollback_bytes = 1u << 18;
    options.checkpoint_bytes = 1u << 18;
    return options;
}

static void read_rest(reading *its, const recipe *r, cellar_seq seq, uint32_t from)
{
    all_logits cold, found;
    reading_cold(r, tokens, N_TOKENS, cold[0]);
    reading_add(its, seq, tokens + from, N_TOKENS - from, NULL, found[0]);
    assert_memory_equal(found, cold[from], (N_TOKENS - from) * sizeof cold[0]);
}

static void a_fork_goes_on_as_if_it_had_read_all(void **state)
{
    (void)state;
    const cellar_token others[3] = {20, 21, 22};
    for (unsigned kind = 0; kind < RECURRENT_KINDS; kind++) {
        recipe *r = make((recurrent_kind)kind, 41);
        const engine_options options = roomy();
        reading its;
        cellar_error error;
        all_logits found;
        reading_open(&its, r, &options);
        reading_add(&its, 0, tokens, 12, NULL, found[0]);
        assert_int_equal(cellar_copy(its.memory, 0, 5, 0, -1, &error), CELLAR_OK);
        reading_add(&its, 0, others, 3, NULL, found[0]);
        read_rest(&its, r, 5, 12);
        assert_int_equal(cellar_check(its.memory, &error), CELLAR_OK);
        reading_close(&its);
        recipe_destroy(r);
    }
}

static void the_last_tokens_can_be_taken_back(void **state)
{
    (void)state;
    const cellar_token others[3] = {20, 21, 22};
    for (unsigned kind = 0; kind < RECURRENT_KINDS; kind++) {
        for (cellar_pos n = 9; n <= 12; n++) {
            recipe *r = make((recurrent_kind)kind, 42);
            const engine_options options = roomy();
            reading its;
            cellar_error error;
            all_logits found;
            reading_open(&its, r, &options);
            reading_add(&its, 0, tokens, (uint32_t)n, NULL, found[0]);
            reading_add(&its, 0, others, 3, NULL, found[0]);
            assert_int_equal(cellar_remove(its.memory, 0, n, -1, &error), CELLAR_OK);
            read_rest(&its, r, 0, (uint32_t)n);
            reading_close(&its);
            recipe_destroy(r);
        }
    }
}

static void a_checkpoint_in_the_middle_of_a_batch_is_the_state_there(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < RECURRENT_KINDS; kind++) {
        recipe *r = make((recurrent_kind)kind, 43);
        engine_options options = roomy();
        options.rollback_bytes = 0;
        reading its;
        cellar_error error;
        all_logits found;
        bool checkpoints[N_TOKENS] = {false};
        cellar_pos from = -1;
        checkpoints[3] = checkpoints[9] = checkpoints[17] = true;
        reading_open(&its, r, &options);
        reading_add(&its, 0, tokens, N_TOKENS, checkpoints, found[0]);
        assert_int_equal(cellar_rewind(its.memory, 0, 10, &from, &error), CELLAR_OK);
        assert_int_equal(from, 10);
        read_rest(&its, r, 0, 10);
        assert_int_equal(cellar_rewind(its.memory, 0, 9, &from, &error), CELLAR_OK);
        assert_int_equal(from, 4);
        read_rest(&its, r, 0, 4);
        reading_close(&its);
        recipe_destroy(r);
    }
}

static void without_room_for_it_nothing_is_taken_back(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < RECURRENT_KINDS; kind++) {
        recipe *r = make((recurrent_kind)kind, 44);
        engine_options options = engine_defaults();
        options.n_cells = 64;
        reading its;
        cellar_error error;
        all_logits found;
        reading_open(&its, r, &options);
        reading_add(&its, 0, tokens, 12, NULL, found[0]);
        assert_int_equal(cellar_remove(its.memory, 0, 10, -1, &error), CELLAR_REFUSED);
        assert_int_equal(cellar_remove(its.memory, 0, 4, 8, &error), CELLAR_REFUSED);
        assert_int_equal(cellar_shift(its.memory, 0, 4, -1, 3, &error), CELLAR_REFUSED);
        assert_int_equal(cellar_divide(its.memory, 0, 4, 8, 2, &error), CELLAR_REFUSED);
        read_rest(&its, r, 0, 12);
        reading_close(&its);
        recipe_destroy(r);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------- */

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct {
        recurrent_kind kind;
        const char *key;
        uint32_t value;
        const char *says;
    } cases[] = {
        {RECURRENT_MAMBA, "ssm.conv_kernel", 1, "expected 2 to 64, found 1"},
        {RECURRENT_MAMBA, "ssm.inner_size", 0, "found 0"},
        {RECURRENT_JAMBA, "ssm.state_size", 1u << 20, "found 1048576"},
        {RECURRENT_MAMBA2, "ssm.time_step_rank", 32000, "a divisor of the inner size"},
        {RECURRENT_FALCON_H1, "ssm.group_count", 4999, "a divisor of the heads"},
        {RECURRENT_LFM2, "shortconv.l_cache", 0, "found 0"},
        {RECURRENT_RWKV6, "wkv.head_size", 1000, "a divisor of the embedding length, found 1000"},
        {RECURRENT_RWKV6, "time_mix_extra_dim", 0, "found 0"},
        {RECURRENT_RWKV7, "attention.gate_lora_rank", 0, "found 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        recipe *r = make(cases[i].kind, 51);
        recipe_set_u32(r, cases[i].key, cases[i].value);
        assert_recipe_refused(r, CELLAR_CORRUPT, cases[i].key, cases[i].says);
    }
}

static void missing_and_misshapen_tensors_are_refused_by_name(void **state)
{
    (void)state;
    const struct {
        recurrent_kind kind;
        const char *name;
    } cases[] = {
        {RECURRENT_MAMBA, "blk.1.ssm_a"},
        {RECURRENT_MAMBA, "blk.0.ssm_conv1d.weight"},
        {RECURRENT_MAMBA2, "blk.0.ssm_dt.bias"},
        {RECURRENT_JAMBA, "blk.1.attn_q.weight"},
        {RECURRENT_LFM2, "blk.1.shortconv.conv.weight"},
        {RECURRENT_LFM2_HYBRID, "token_embd_norm.weight"},
        {RECURRENT_FALCON_H1, "blk.0.ffn_norm"},
        {RECURRENT_RWKV6, "blk.0.time_mix_w2.weight"},
        {RECURRENT_RWKV6, "blk.1.channel_mix_lerp_r.weight"},
        {RECURRENT_RWKV7, "blk.1.time_mix_v0.weight"},
        {RECURRENT_RWKV7, "blk.0.time_mix_lerp_fused.weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        recipe *r = make(cases[i].kind, 52);
        recipe_drop(r, cases[i].name);
        assert_recipe_refused(r, CELLAR_CORRUPT, cases[i].name, "found no such tensor");
        r = make(cases[i].kind, 52);
        recipe_add(r, cases[i].name, 3, 5, 0);
        assert_recipe_refused(r, CELLAR_CORRUPT, cases[i].name, "expected");
    }
    recipe *r = make(RECURRENT_MAMBA, 52);
    recipe_add(r, "blk.0.ssm_more.weight", 4, 0, 0);
    assert_recipe_refused(r, CELLAR_UNSUPPORTED, "blk.0.ssm_more.weight", "mamba");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_papers),
        cmocka_unit_test(results_do_not_depend_on_how_tokens_are_read),
        cmocka_unit_test(sequences_do_not_see_each_other),
        cmocka_unit_test(a_fork_goes_on_as_if_it_had_read_all),
        cmocka_unit_test(the_last_tokens_can_be_taken_back),
        cmocka_unit_test(a_checkpoint_in_the_middle_of_a_batch_is_the_state_there),
        cmocka_unit_test(without_room_for_it_nothing_is_taken_back),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(missing_and_misshapen_tensors_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
