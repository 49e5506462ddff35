/*
 * unit_pools.c: what attention gives does not depend on pools.
 *
 * The same story is told to memories that differ in their pools, the rule that gives sequences to pools, and
 * the split: batches that mix six sequences token by token, forks (in a pool and between pools), a cut
 * and a shift, then more batches. Rows and queries are made from sequence, position and layer alone.
 * Every result must have the bits that the memory with one pool and a simple split gave.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cellar.h"
#include "model/random.h"

enum {
    N_SEQS = 6,
    N_LAYERS = 4,
    N_HEADS = 4,
    N_KV_HEADS = 2,
    SIZE = 32,
    N_STEPS = 14,
    MOST_TOKENS = 40,
    N_UBATCH = 16,
    K_ROW = N_KV_HEADS * SIZE,
    Q_ROW = N_HEADS * SIZE,
};

/* What each layer gave for each token of each batch. */
typedef float results[N_STEPS][N_LAYERS][MOST_TOKENS][Q_ROW];

/* What is told differently. */
typedef struct telling {
    const char *name;
    cellar_split split;
    uint32_t n_pools, n_ubatch;
    const uint32_t *pool_cells;
    uint32_t (*pool_of)(void *context, cellar_seq seq);
} telling;

/* One run through the story. */
typedef struct teller {
    const telling *its;
    cellar_memory *memory;
    cellar_batch batch;
    cellar_token tokens[MOST_TOKENS];
    cellar_seq seqs[MOST_TOKENS];
    results *out;
    uint32_t step;
    uint64_t seed;       /* the same for all tellings */
    bool has_mixed;      /* a micro-batch held tokens in another order than the batch */
    uint64_t n_given_up; /* cells that copies made room with */
} teller;

static void must(const teller *t, cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) {
        fail_msg("%s, step %u: %s: %s", t->its->name, t->step, cellar_status_text(status),
                 error->message);
    }
}

/* Plain, a window, quantised and turned keys, and a layer that reads the first one's rows. */
static void describe_layers(cellar_layer layers[N_LAYERS])
{
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        layers[i] = cellar_layer_init();
        layers[i].n_heads = N_HEADS;
        layers[i].n_kv_heads = N_KV_HEADS;
        layers[i].k_size = layers[i].v_size = SIZE;
        layers[i].rope.kind = CELLAR_ROPE_NEOX;
    }
    layers[1].window.kind = CELLAR_WINDOW_STANDARD;
    layers[1].window.size = 20;
    layers[2].k_type = CELLAR_Q8_0;
    layers[2].v_type = CELLAR_Q4_0;
    layers[2].rotate_k = layers[2].rotate_v = true;
    layers[3].reads_layer = 0;
    layers[3].softcap = 5;
}

static uint32_t by_halves(void *context, cellar_seq seq)
{
    (void)context;
    return seq >= N_SEQS / 2;
}

static uint32_t all_in_the_second(void *context, cellar_seq seq)
{
    (void)context;
    (void)seq;
    return 1;
}

static void open_memory(teller *t)
{
    cellar_layer layers[N_LAYERS];
    describe_layers(layers);
    cellar_config config = cellar_config_init();
    config.n_layers = N_LAYERS;
    config.layers = layers;
    config.n_cells = 1024;
    /* Windows have so little room that copies between pools have to make it. */
    config.n_sequences = (t->its->pool_of == all_in_the_second ? 4 : 2) * N_SEQS;
    config.n_ubatch = t->its->n_ubatch;
    config.split = t->its->split;
    config.n_pools = t->its->n_pools;
    config.pool_cells = t->its->pool_cells;
    config.pool_of = t->its->pool_of;
    cellar_error error;
    must(t, cellar_create(&config, &t->memory, &error), &error);
}

static void fill(float *row, uint32_t n, uint32_t what, cellar_token token, uint32_t layer)
{
    uint64_t seed = random_mix(random_mix(what, (uint64_t)token), layer);
    for (uint32_t i = 0; i < n; i++) {
        row[i] = random_float(&seed);
    }
}

static void compute(teller *t, uint32_t u, uint32_t layer)
{
    float k[N_UBATCH * K_ROW], v[N_UBATCH * K_ROW], q[N_UBATCH * Q_ROW], out[N_UBATCH * Q_ROW];
    cellar_ubatch ubatch;
    cellar_error error;
    must(t, cellar_get_ubatch(t->memory, u, &ubatch, &error), &error);
    for (uint32_t i = 0; i < ubatch.n_tokens; i++) {
        cellar_token token = t->tokens[ubatch.indices[i]];
        fill(k + i * K_ROW, K_ROW, 1, token, layer);
        fill(v + i * K_ROW, K_ROW, 2, token, layer);
        fill(q + i * Q_ROW, Q_ROW, 3, token, layer);
        t->has_mixed = t->has_mixed || (i > 0 && ubatch.indices[i] != ubatch.indices[i - 1] + 1);
    }
    if (layer != 3) must(t, cellar_store(t->memory, u, layer, k, v, &error), &error);
    must(t, cellar_attend(t->memory, u, layer, q, out, &error), &error);
    for (uint32_t i = 0; i < ubatch.n_tokens; i++) {
        memcpy((*t->out)[t->step][layer][ubatch.indices[i]], out + i * Q_ROW, Q_ROW * sizeof *out);
    }
}

/* Read n tokens of random sequences out of the first n_seqs; each token is another one. */
static void read_mixed(teller *t, uint32_t n, uint32_t n_seqs)
{
    cellar_error error;
    assert_true(t->step < N_STEPS && n <= MOST_TOKENS);
    for (uint32_t i = 0; i < n; i++) {
        bool goes_on = i > 0 && random_one_in(&t->seed, 3);
        t->seqs[i] = goes_on ? t->seqs[i - 1] : (cellar_seq)random_below(&t->seed, n_seqs);
        t->tokens[i] = (cellar_token)(t->step * MOST_TOKENS + i);
    }
    t->batch.n_tokens = n;
    must(t, cellar_begin(t->memory, &t->batch, &error), &error);
    for (uint32_t u = 0; u < cellar_count_ubatches(t->memory); u++) {
        for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
            compute(t, u, layer);
        }
    }
    must(t, cellar_commit(t->memory, &error), &error);
    must(t, cellar_check(t->memory, &error), &error);
    t->step++;
}

static void copy(teller *t, cellar_seq from, cellar_seq to)
{
    cellar_error error;
    cellar_statistics before, after;
    must(t, cellar_stats(t->memory, &before, &error), &error);
    must(t, cellar_copy(t->memory, from, to, 0, -1, &error), &error);
    must(t, cellar_stats(t->memory, &after, &error), &error);
    t->n_given_up += after.cells_reclaimed - before.cells_reclaimed;
    must(t, cellar_check(t->memory, &error), &error);
}

/*
 * The story: N_STEPS batches, and what is done between them. Says whether order was ever mixed, and how much
 * copies gave up.
 */
static teller tell(const telling *its, results *out)
{
    teller t = {.its = its, .out = out, .seed = 4711};
    cellar_error error;
    t.batch = cellar_batch_init();
    t.batch.tokens = t.tokens;
    t.batch.seqs = t.seqs;
    memset(out, 0, sizeof *out);
    open_memory(&t);
    for (uint32_t i = 0; i < 4; i++) {
        read_mixed(&t, MOST_TOKENS, 3);
    }
    copy(&t, 0, 4); /* even to even, odd to odd: in a pool with the default rule, */
    copy(&t, 1, 5);
    copy(&t, 2, 3); /* and between two */
    for (uint32_t i = 0; i < 4; i++) {
        read_mixed(&t, 25, N_SEQS);
    }
    must(&t, cellar_shift_context(t.memory, 4, 4, 11, NULL, &error), &error);
    must(&t, cellar_shift_context(t.memory, 3, 0, 7, NULL, &error), &error);
    must(&t, cellar_remove(t.memory, 5, cellar_position_max(t.memory, 5) - 2, -1, &error), &error);
    copy(&t, 4, 1); /* shifted, between two; what 1 held goes */
    must(&t, cellar_remove(t.memory, 2, 0, -1, &error), &error);
    while (t.step < N_STEPS) {
        read_mixed(&t, 1 + random_below(&t.seed, MOST_TOKENS), N_SEQS);
    }
    cellar_destroy(t.memory);
    return t;
}

static void results_do_not_depend_on_pools_bit_for_bit(void **state)
{
    (void)state;
    static const uint32_t uneven[] = {424, 600}, small[] = {8, 1016};
    const telling plain = {"one pool", CELLAR_SPLIT_SIMPLE, 1, N_UBATCH, NULL, NULL};
    const telling others[] = {
        {"one pool, equal", CELLAR_SPLIT_EQUAL, 1, N_UBATCH, NULL, NULL},
        {"one pool, by sequence", CELLAR_SPLIT_BY_SEQUENCE, 1, N_UBATCH, NULL, NULL},
        {"two pools", CELLAR_SPLIT_AUTO, 2, N_UBATCH, NULL, NULL},
        {"two pools, simple", CELLAR_SPLIT_SIMPLE, 2, N_UBATCH, NULL, NULL},
        {"two pools, by sequence", CELLAR_SPLIT_BY_SEQUENCE, 2, N_UBATCH, NULL, NULL},
        {"two pools, micro-batches of 3", CELLAR_SPLIT_EQUAL, 2, 3, NULL, NULL},
        {"two pools, token by token", CELLAR_SPLIT_SIMPLE, 2, 1, NULL, NULL},
        {"uneven halves", CELLAR_SPLIT_EQUAL, 2, N_UBATCH, uneven, by_halves},
        {"one of two", CELLAR_SPLIT_EQUAL, 2, N_UBATCH, small, all_in_the_second},
        {"a pool for each", CELLAR_SPLIT_EQUAL, N_SEQS, N_UBATCH, NULL, NULL},
        {"a pool for each, simple", CELLAR_SPLIT_SIMPLE, N_SEQS, 5, NULL, NULL},
    };
    results *truth = malloc(sizeof *truth), *found = malloc(sizeof *found);
    assert_true(truth && found);
    assert_false(tell(&plain, truth).has_mixed);
    bool has_mixed = false, has_given_up = false;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        teller told = tell(&others[i], found);
        has_mixed = told.has_mixed || has_mixed;
        has_given_up = told.n_given_up > 0 || has_given_up;
        for (uint32_t step = 0; step < N_STEPS; step++) {
            for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
                if (memcmp((*truth)[step][layer], (*found)[step][layer],
                           sizeof(*truth)[step][layer]) != 0) {
                    fail_msg("%s: other bits in step %u, layer %u", others[i].name, step, layer);
                }
            }
        }
    }
    assert_true(has_mixed);    /* or the splits proved nothing */
    assert_true(has_given_up); /* nor the small windows */
    free(truth);
    free(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_pools_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
