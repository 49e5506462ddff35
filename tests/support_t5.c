/*
 * support_t5.c: the model of support_t5.h, and the calls that tests of it make again and again.
 *
 * Names and shapes are those of published files. Failures are reported through cmocka, as the caller's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "support_t5.h"

enum { N_HEADS = 3, K_WIDTH = N_HEADS * 5, V_WIDTH = N_HEADS * 7, N_FF = 20, N_BUCKETS = 8 };

/* ---- the recipe -------------------------------------------------------------------------------- */

static void add(recipe *r, const char *half, uint32_t layer, const char *part, uint32_t n_in,
                uint32_t n_out)
{
    char name[64];
    snprintf(name, sizeof name, "%s.blk.%u.%s.weight", half, (unsigned)layer, part);
    recipe_add(r, name, n_in, n_out, 0);
}

static void add_layer(recipe *r, const char *half, uint32_t layer, bool is_gated)
{
    add(r, half, layer, "attn_norm", T5_EMBD, 0);
    add(r, half, layer, "attn_q", T5_EMBD, K_WIDTH);
    add(r, half, layer, "attn_k", T5_EMBD, K_WIDTH);
    add(r, half, layer, "attn_v", T5_EMBD, V_WIDTH);
    add(r, half, layer, "attn_o", V_WIDTH, T5_EMBD);
    add(r, half, layer, "ffn_norm", T5_EMBD, 0);
    if (is_gated) {
        add(r, half, layer, "ffn_gate", T5_EMBD, N_FF);
    }
    add(r, half, layer, "ffn_up", T5_EMBD, N_FF);
    add(r, half, layer, "ffn_down", N_FF, T5_EMBD);
    if (layer == 0) {
        add(r, half, layer, "attn_rel_b", N_HEADS, N_BUCKETS);
    }
}

static void set_keys(recipe *r)
{
    recipe_set_u32(r, "block_count", T5_ENCODER_LAYERS);
    recipe_set_u32(r, "decoder_block_count", T5_DECODER_LAYERS);
    recipe_set_u32(r, "embedding_length", T5_EMBD);
    recipe_set_u32(r, "context_length", 512);
    recipe_set_u32(r, "feed_forward_length", N_FF);
    recipe_set_u32(r, "attention.head_count", N_HEADS);
    recipe_set_u32(r, "attention.head_count_kv", N_HEADS);
    recipe_set_u32(r, "attention.key_length", 5);
    recipe_set_u32(r, "attention.value_length", 7);
    recipe_set_float(r, "attention.layer_norm_rms_epsilon", 1e-6);
    recipe_set_u32(r, "attention.relative_buckets_count", N_BUCKETS);
    recipe_set_u32(r, "decoder_start_token_id", 3);
}

recipe *support_t5_recipe(bool is_gated)
{
    recipe *r = recipe_create("t5");
    set_keys(r);
    recipe_add(r, "token_embd.weight", T5_EMBD, T5_VOCAB, 0);
    recipe_add(r, "output.weight", T5_EMBD, T5_VOCAB, 0);
    recipe_add(r, "enc.output_norm.weight", T5_EMBD, 0, 0);
    recipe_add(r, "dec.output_norm.weight", T5_EMBD, 0, 0);
    for (uint32_t i = 0; i < T5_ENCODER_LAYERS; i++) {
        add_layer(r, "enc", i, is_gated);
    }
    for (uint32_t i = 0; i < T5_DECODER_LAYERS; i++) {
        add_layer(r, "dec", i, is_gated);
        add(r, "dec", i, "cross_attn_norm", T5_EMBD, 0);
        add(r, "dec", i, "cross_attn_q", T5_EMBD, K_WIDTH);
        add(r, "dec", i, "cross_attn_k", T5_EMBD, K_WIDTH);
        add(r, "dec", i, "cross_attn_v", T5_EMBD, V_WIDTH);
        add(r, "dec", i, "cross_attn_o", V_WIDTH, T5_EMBD);
    }
    return r;
}

/* ---- an engine --------------------------------------------------------------------------------- */

engine_options support_t5_options(void)
{
    engine_options options = engine_defaults();
    options.n_cells = 512;
    options.n_ubatch = 256;
    options.k_type = options.v_type = CELLAR_F32;
    return options;
}

void support_t5_open(const recipe *r, const engine_options *options, support_t5 *out)
{
    const engine_options usual = support_t5_options();
    cellar_error error;
    *out = (support_t5){.engine = NULL};
    if (recipe_load(r, &out->made, &error) != CELLAR_OK ||
        engine_create(out->made.model, options == NULL ? &usual : options, &out->engine, &error) !=
            CELLAR_OK) {
        fail_msg("%s", error.message);
    }
}

void support_t5_close(support_t5 *t)
{
    engine_destroy(t->engine);
    recipe_unload(&t->made);
}

static cellar_seq *repeat(cellar_seq seq, uint32_t n)
{
    cellar_seq *seqs = malloc(n * sizeof *seqs);
    assert_non_null(seqs);
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = seq;
    }
    return seqs;
}

void support_t5_encode(engine *e, cellar_seq seq, const cellar_token *text, uint32_t n)
{
    cellar_batch batch = cellar_batch_init();
    cellar_seq *seqs = repeat(seq, n);
    cellar_error error;
    batch.n_tokens = n;
    batch.tokens = text;
    batch.seqs = seqs;
    if (engine_encode(e, &batch, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    free(seqs);
}

void support_t5_decode(engine *e, cellar_seq seq, const cellar_token *tokens, uint32_t n,
                       float *logits)
{
    cellar_batch batch = cellar_batch_init();
    cellar_seq *seqs = repeat(seq, n);
    uint32_t *wanted = malloc(n * sizeof *wanted);
    cellar_error error;
    assert_non_null(wanted);
    for (uint32_t i = 0; i < n; i++) {
        wanted[i] = i;
    }
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    if (engine_decode(e, &batch, wanted, n, logits, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    free(wanted);
    free(seqs);
}
