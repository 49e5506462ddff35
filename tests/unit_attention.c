/*
 * unit_attention.c: attention against brute force in double precision (model/attention_model.h),
 * over the shapes, row types, rotations and histories that the header allows, with the scalar
 * kernels and with the best that the machine has.
 *
 * Every result must lie within the bound that follows from f32 arithmetic and, for f16 rows, from
 * rounding the stored rows; nothing is compared with a guessed epsilon. One test shows that the
 * bound is tight: a position that is off by one is far outside it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/twin.h"

enum { A, B, C };

static const uint32_t cpu_masks[] = {CELLAR_CPU_SCALAR, CELLAR_CPU_ALL};
static double worst_of_all; /* printed at the end */

static twin make_twin(cellar_layer layer)
{
    twin t;
    memset(&t, 0, sizeof t);
    t.d.seed = 5;
    t.d.n_layers = 1;
    t.d.layers[0] = layer;
    return t;
}

static void start(twin *t, uint32_t n_cells, uint32_t n_ubatch, uint32_t cpu_mask)
{
    cellar_config config = cellar_config_init();
    config.n_cells = n_cells;
    config.n_ubatch = n_ubatch;
    config.cpu_mask = cpu_mask;
    twin_open(t, &config);
}

static void finish(twin *t)
{
    cellar_error error = {0};
    if (cellar_check(t->d.memory, &error) != CELLAR_OK) fail_msg("cellar_check: %s", error.message);
    worst_of_all = fmax(worst_of_all, t->worst);
    if (t->n_wrong > 0)
        fail_msg("%u of %u differ; %s heads %u/%u size %u/%u: %s", t->n_wrong, t->n_compared,
                 cellar_cpu(t->d.memory), t->d.layers[0].n_heads, t->d.layers[0].n_kv_heads,
                 t->d.layers[0].k_size, t->d.layers[0].v_size, t->message);
    assert_true(t->n_compared > 0);
    twin_close(t);
}

/* Prefill, decode, a fork that goes its own way, a shift, and both again. */
static void live(cellar_layer layer, uint32_t n_ubatch, uint32_t cpu_mask, float q_factor)
{
    twin t = make_twin(layer);
    t.q_factor = q_factor;
    start(&t, 96, n_ubatch, cpu_mask);
    twin_append(&t, A, 0, 13);
    twin_append(&t, A, 100, 1);
    twin_copy(&t, A, B, 0, 9);
    twin_append(&t, B, 200, 5);
    twin_remove(&t, A, 2, 6);
    twin_shift(&t, A, 6, -1, -4);
    twin_append(&t, A, 300, 3);
    twin_append(&t, B, 400, 1);
    twin_read(&t, A);
    finish(&t);
}

static void live_on_all(cellar_layer layer, uint32_t n_ubatch)
{
    for (size_t i = 0; i < 2; i++)
        live(layer, n_ubatch, cpu_masks[i], 3);
}

static cellar_layer typed(cellar_layer layer, cellar_type k_type, cellar_type v_type)
{
    layer.k_type = k_type;
    layer.v_type = v_type;
    return layer;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void heads_may_be_grouped_in_every_way(void **state)
{
    static const uint32_t heads[][2] = {{1, 1}, {4, 4},  {8, 1},  {9, 3},
                                        {6, 2}, {15, 5}, {32, 8}, {7, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        cellar_layer layer = drive_layer(heads[i][0], heads[i][1], 16, 16);
        layer.rope.kind = CELLAR_ROPE_NEOX;
        live_on_all(layer, 8);
        live_on_all(typed(layer, CELLAR_F16, CELLAR_F16), 3);
    }
}

static void every_size_from_1_to_256_serves_as_key(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 256; size++) {
        cellar_layer layer = drive_layer(2, 1, size, 3);
        layer.rope.kind = size % 2   ? CELLAR_ROPE_NONE
                          : size % 4 ? CELLAR_ROPE_NORMAL
                                     : CELLAR_ROPE_NEOX;
        layer.k_type = size % 3 ? CELLAR_F32 : CELLAR_F16;
        live_on_all(layer, 4);
    }
}

static void every_size_from_1_to_256_serves_as_value(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 256; size++) {
        cellar_layer layer = drive_layer(2, 2, 6, size);
        layer.rope.kind = CELLAR_ROPE_NORMAL;
        layer.v_type = size % 3 ? CELLAR_F16 : CELLAR_F32;
        live_on_all(layer, 5);
    }
}

static void keys_and_values_may_be_stored_in_different_types(void **state)
{
    (void)state;
    for (int k = CELLAR_F32; k <= CELLAR_F16; k++)
        for (int v = CELLAR_F32; v <= CELLAR_F16; v++) {
            cellar_layer layer = drive_layer(4, 2, 40, 24);
            layer.rope.kind = CELLAR_ROPE_NORMAL;
            live_on_all(typed(layer, (cellar_type)k, (cellar_type)v), 8);
        }
}

static void layers_of_one_memory_may_all_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        twin t = make_twin(drive_layer(4, 2, 32, 16));
        t.d.n_layers = 4;
        t.d.layers[0].rope.kind = CELLAR_ROPE_NEOX;
        t.d.layers[1] = typed(drive_layer(3, 1, 5, 9), CELLAR_F16, CELLAR_F32);
        t.d.layers[2] = drive_layer(1, 1, 64, 1);
        t.d.layers[2].rope.kind = CELLAR_ROPE_NORMAL;
        t.d.layers[2].rope.base = 500000;
        t.d.layers[3] = typed(drive_layer(2, 2, 8, 8), CELLAR_F32, CELLAR_F16);
        t.d.layers[3].rope.kind = CELLAR_ROPE_NEOX;
        t.d.layers[3].rope.n_rot = 4;
        start(&t, 64, 7, cpu_masks[i]);
        twin_append(&t, A, 0, 20);
        twin_copy(&t, A, B, 0, -1);
        twin_remove(&t, B, 0, 6);
        twin_shift(&t, B, 0, -1, -6);
        twin_append(&t, B, 100, 9);
        twin_append(&t, A, 200, 2);
        twin_read(&t, B);
        finish(&t);
    }
}

static void a_given_scale_is_used(void **state)
{
    static const float scales[] = {0.125f, 1.0f, 2.5f, 0.01f};
    (void)state;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        cellar_layer layer = drive_layer(4, 2, 16, 16);
        layer.rope.kind = CELLAR_ROPE_NEOX;
        layer.scale = scales[i];
        live_on_all(layer, 8);
    }
}

static void sharp_and_flat_softmax_are_both_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        cellar_layer layer = drive_layer(4, 2, 64, 16);
        layer.rope.kind = CELLAR_ROPE_NORMAL;
        live(layer, 8, cpu_masks[i], 0.001f);
        live(layer, 8, cpu_masks[i], 40.0f);
        live(layer, 8, cpu_masks[i], 2000.0f); /* one key gets all the weight */
    }
}

static void layers_that_are_not_causal_see_their_micro_batch(void **state)
{
    (void)state;
    for (uint32_t n_ubatch = 1; n_ubatch <= 16; n_ubatch += 5) {
        cellar_layer layer = drive_layer(4, 2, 16, 16);
        layer.rope.kind = CELLAR_ROPE_NEOX;
        layer.is_causal = false;
        live_on_all(layer, n_ubatch);
    }
}

/* ---- lengths --------------------------------------------------------------------------------- */

static void every_length_of_the_past_is_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        cellar_layer layer = drive_layer(2, 1, 8, 8);
        layer.rope.kind = CELLAR_ROPE_NORMAL;
        twin t = make_twin(typed(layer, CELLAR_F16, CELLAR_F16));
        t.q_factor = 2;
        start(&t, 300, 1, cpu_masks[i]);
        for (int32_t n = 0; n < 290; n++)
            twin_append(&t, A, n, 1);
        finish(&t);
    }
}

static void a_long_prefill_is_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        cellar_layer layer = drive_layer(3, 1, 64, 64);
        layer.rope.kind = CELLAR_ROPE_NEOX;
        twin t = make_twin(typed(layer, CELLAR_F16, CELLAR_F16));
        start(&t, 1100, 128, cpu_masks[i]);
        twin_append(&t, A, 0, 130);
        for (int32_t n = 130; n < 1000; n += 290) { /* long pasts, a few queries each */
            t.is_quiet = true;
            twin_append(&t, A, n, 285);
            t.is_quiet = false;
            twin_append(&t, A, n + 285, 5);
        }
        finish(&t);
    }
}

static void many_sequences_in_one_batch_see_only_their_own(void **state)
{
    enum { N = 60 };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        cellar_token tokens[N];
        cellar_seq seqs[N];
        cellar_layer layer = drive_layer(4, 2, 16, 16);
        layer.rope.kind = CELLAR_ROPE_NEOX;
        twin t = make_twin(layer);
        start(&t, 256, 17, cpu_masks[i]);
        twin_append(&t, 0, 0, 21);
        for (cellar_seq s = 1; s < 10; s++) {
            twin_copy(&t, 0, s, 0, 2 * s + 3); /* prefixes of many lengths are shared */
            twin_append(&t, s, 100 * s, (uint32_t)s);
        }
        for (int32_t n = 0; n < N; n++) {
            seqs[n] = n * 7 % 10;
            tokens[n] = 5000 + n;
        }
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = N;
        batch.tokens = tokens;
        batch.seqs = seqs;
        twin_step(&t, &batch);
        finish(&t);
    }
}

static void a_token_in_several_sequences_sees_their_common_past(void **state)
{
    static const cellar_token tokens[] = {50, 51, 52, 53, 54};
    static const uint32_t seq_begin[] = {0, 3, 5, 6, 7, 8};
    static const cellar_seq seqs[] = {A, B, C, B, A, C, A, B};
    (void)state;
    for (uint32_t n_ubatch = 1; n_ubatch <= 8; n_ubatch++) {
        cellar_layer layer = drive_layer(4, 2, 16, 16);
        layer.rope.kind = CELLAR_ROPE_NORMAL;
        twin t = make_twin(layer);
        start(&t, 64, n_ubatch, CELLAR_CPU_ALL);
        twin_append(&t, A, 0, 11);
        twin_copy(&t, A, B, 0, -1);
        twin_copy(&t, A, C, 0, -1);
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = 5;
        batch.tokens = tokens;
        batch.seq_begin = seq_begin;
        batch.seqs = seqs;
        twin_step(&t, &batch);
        finish(&t);
    }
}

enum { READ_TOKENS = 40, READ_SIZE = READ_TOKENS * 4 * 32 };

/* What layer 1 gives that reads layer 0's rows of q8_0, its own types being `own`. */
static void read_with_types(cellar_type own, float out[READ_SIZE])
{
    float rows[READ_SIZE / 2], q[READ_SIZE];
    drive d = {.n_layers = 2};
    d.layers[0] = drive_layer(4, 2, 32, 32);
    d.layers[0].k_type = d.layers[0].v_type = CELLAR_Q8_0;
    d.layers[1] = d.layers[0];
    d.layers[1].reads_layer = 0;
    d.layers[1].k_type = d.layers[1].v_type = own;
    cellar_config config = cellar_config_init();
    config.n_cells = 64;
    assert_int_equal(drive_open(&d, &config, NULL), CELLAR_OK);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = READ_TOKENS;
    drive_fill(rows, READ_SIZE / 2, 1);
    drive_fill(q, READ_SIZE, 2);
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_store(d.memory, 0, 0, rows, rows, NULL), CELLAR_OK);
    assert_int_equal(cellar_attend(d.memory, 0, 1, q, out, NULL), CELLAR_OK);
    assert_int_equal(cellar_commit(d.memory, NULL), CELLAR_OK);
    drive_close(&d);
}

static void a_layer_that_reads_another_does_not_use_its_own_types(void **state)
{
    float alike[READ_SIZE], different[READ_SIZE];
    (void)state;
    read_with_types(CELLAR_Q8_0, alike);
    read_with_types(CELLAR_F32, different);
    assert_memory_equal(alike, different, sizeof alike);
}

/* ---- rotation -------------------------------------------------------------------------------- */

static const float some_factors[] = {1.0f, 1.05f, 1.2f, 1.9f, 3.0f, 7.5f, 20.0f, 64.0f,
                                     1.0f, 0.5f,  2.0f, 4.0f, 8.0f, 16.f, 32.0f, 0.25f};

/* Long enough for YaRN's three kinds of pairs to matter. */
static void turn(cellar_rope rope, uint32_t k_size)
{
    for (size_t i = 0; i < 2; i++)
        for (int kind = CELLAR_ROPE_NORMAL; kind <= CELLAR_ROPE_NEOX; kind++) {
            cellar_layer layer = drive_layer(2, 1, k_size, 8);
            layer.rope = rope;
            layer.rope.kind = (cellar_rope_kind)kind;
            twin t = make_twin(layer);
            t.q_factor = 4;
            start(&t, 160, 16, cpu_masks[i]);
            twin_append(&t, A, 0, 60);
            twin_remove(&t, A, 5, 25);
            twin_shift(&t, A, 25, -1, -20);
            twin_append(&t, A, 100, 4);
            twin_shift(&t, A, 10, -1, 300);
            twin_append(&t, A, 200, 4);
            twin_read(&t, A);
            finish(&t);
        }
}

static void base_scale_and_factors_are_used(void **state)
{
    (void)state;
    cellar_rope rope = cellar_layer_init().rope;
    turn(rope, 32);
    rope.base = 1000000;
    turn(rope, 32);
    rope.scale = 0.25;
    turn(rope, 32);
    rope.factors = some_factors;
    turn(rope, 32);
    rope.yarn_attn = 1.3;
    turn(rope, 32);
}

/* As in Gemma 4, where only the first pairs of a wide head turn. */
static void a_pair_with_an_infinite_factor_does_not_turn(void **state)
{
    (void)state;
    static float factors[16];
    for (uint32_t i = 0; i < 16; i++) {
        factors[i] = i < 4 ? 1 : INFINITY;
    }
    cellar_rope rope = cellar_layer_init().rope;
    rope.factors = factors;
    turn(rope, 32);
}

static void part_of_a_head_may_rotate(void **state)
{
    static const uint32_t sizes[] = {2, 4, 8, 10, 16, 18, 30, 32};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cellar_rope rope = cellar_layer_init().rope;
        rope.n_rot = sizes[i];
        rope.base = 100;
        turn(rope, 32);
        if (sizes[i] < 32) turn(rope, 33);
        rope.factors = some_factors;
        turn(rope, 40);
    }
}

static void yarn_follows_its_paper(void **state)
{
    static const double extents[] = {1, 0.5};
    (void)state;
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++) {
        cellar_rope rope = cellar_layer_init().rope;
        rope.scale = 0.125;
        rope.yarn_ext = extents[i];
        rope.yarn_context = 4096;
        turn(rope, 64);
        turn(rope, 128);
        rope.yarn_attn = 0.8;
        rope.yarn_beta_fast = 8;
        rope.yarn_beta_slow = 2;
        rope.yarn_context = 200;
        turn(rope, 64);
        rope.n_rot = 32;
        rope.factors = some_factors;
        turn(rope, 64);
    }
}

static void many_shifts_in_one_sequence_are_all_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        cellar_layer layer = drive_layer(6, 2, 32, 16);
        layer.rope.kind = CELLAR_ROPE_NEOX;
        twin t = make_twin(typed(layer, CELLAR_F16, CELLAR_F16));
        t.q_factor = 4;
        start(&t, 200, 16, cpu_masks[i]);
        twin_append(&t, A, 0, 100);
        for (int32_t part = 19; part >= 0; part--) /* 20 parts of 5, each shifted by its number */
            twin_shift(&t, A, 5 * part, 5 * part + 5, 3 * part + 1);
        twin_append(&t, A, 200, 20);
        twin_copy(&t, A, B, 0, -1);
        twin_shift(&t, B, 0, -1, -40); /* drops some, moves the rest */
        twin_append(&t, B, 300, 5);
        twin_append(&t, A, 400, 5);
        twin_read(&t, B);
        finish(&t);
    }
}

static void distant_positions_are_exact(void **state)
{
    static const cellar_pos starts[] = {100000, 1000003, 50000017};
    (void)state;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        for (size_t cpu = 0; cpu < 2; cpu++) {
            cellar_layer layer = drive_layer(2, 1, 16, 8);
            layer.rope.kind = CELLAR_ROPE_NORMAL;
            twin t = make_twin(layer);
            t.q_factor = 4;
            start(&t, 64, 8, cpu_masks[cpu]);
            twin_append(&t, A, 0, 20);
            twin_shift(&t, A, 10, -1, starts[i]);
            twin_append(&t, A, 100, 8);
            twin_shift(&t, A, starts[i], -1, -starts[i] + 5);
            twin_append(&t, A, 200, 8);
            twin_read(&t, A);
            finish(&t);
        }
}

/* ---- is the test worth anything? ------------------------------------------------------------- */

static void a_position_off_by_one_is_far_outside_the_bound(void **state)
{
    (void)state;
    cellar_layer layer = drive_layer(2, 1, 32, 8);
    layer.rope.kind = CELLAR_ROPE_NEOX;
    for (int type = CELLAR_F32; type <= CELLAR_F16; type++) {
        twin t = make_twin(typed(layer, (cellar_type)type, (cellar_type)type));
        t.q_factor = 3;
        start(&t, 64, 8, CELLAR_CPU_ALL);
        twin_append(&t, A, 0, 40);
        assert_int_equal(t.n_wrong, 0);
        assert_true(t.largest_bound < (type == CELLAR_F32 ? 2e-4 : 2e-3));
        for (uint32_t i = 20; i < 40; i++) /* now the model believes half of it stands elsewhere */
            t.model.sequences[0].entries[i].pos++;
        t.model.sequences[0].entries[39].pos = 39;
        twin_append(&t, A, 100, 1);
        assert_int_equal(t.n_wrong, 1);
        assert_true(t.worst > 10);
        twin_close(&t);
    }
}

static void the_models_half_precision_is_right(void **state)
{
    (void)state;
    assert_true(attention_model_f16(1.0 + 0x1p-11) == 1.0); /* ties to even */
    assert_true(attention_model_f16(1.0 + 3 * 0x1p-11) == 1.0 + 0x1p-9);
    assert_true(attention_model_f16(65519.99) == 65504.0);
    assert_true(isinf(attention_model_f16(65520.0)));
    assert_true(attention_model_f16(0x1p-24) == 0x1p-24);
    assert_true(attention_model_f16(0x1p-25) == 0.0);
    assert_true(attention_model_f16(-0x1.8p-25) == -0x1p-24);
    assert_true(attention_model_f16(0x1.ff8p-15 + 0x1p-26) == 0x1.ff8p-15);
    assert_true(attention_model_f16(0x1.ffcp-15) == 0x1p-14);
}

static int print_worst(void **state)
{
    (void)state;
    print_message("worst difference: %.3f of the bound\n", worst_of_all);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_models_half_precision_is_right),
        cmocka_unit_test(heads_may_be_grouped_in_every_way),
        cmocka_unit_test(every_size_from_1_to_256_serves_as_key),
        cmocka_unit_test(every_size_from_1_to_256_serves_as_value),
        cmocka_unit_test(keys_and_values_may_be_stored_in_different_types),
        cmocka_unit_test(layers_of_one_memory_may_all_differ),
        cmocka_unit_test(a_given_scale_is_used),
        cmocka_unit_test(sharp_and_flat_softmax_are_both_right),
        cmocka_unit_test(layers_that_are_not_causal_see_their_micro_batch),
        cmocka_unit_test(every_length_of_the_past_is_right),
        cmocka_unit_test(a_long_prefill_is_right),
        cmocka_unit_test(many_sequences_in_one_batch_see_only_their_own),
        cmocka_unit_test(a_token_in_several_sequences_sees_their_common_past),
        cmocka_unit_test(a_layer_that_reads_another_does_not_use_its_own_types),
        cmocka_unit_test(base_scale_and_factors_are_used),
        cmocka_unit_test(a_pair_with_an_infinite_factor_does_not_turn),
        cmocka_unit_test(part_of_a_head_may_rotate),
        cmocka_unit_test(yarn_follows_its_paper),
        cmocka_unit_test(many_shifts_in_one_sequence_are_all_seen),
        cmocka_unit_test(distant_positions_are_exact),
        cmocka_unit_test(a_position_off_by_one_is_far_outside_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, print_worst);
}
