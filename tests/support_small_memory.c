/*
 * support_small_memory.c: see the header.
 *
 * Nothing here knows how a memory works; it goes through cellar.h alone. Failures end the test with the
 * message of the library.
 */
#include "support_small_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_TOKENS = 512 };

static const uint32_t state_sizes[2] = {16, 24};

static void must(cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) fail_msg("%s: %s", cellar_status_text(status), error->message);
}

void small_init(small_memory *small, uint32_t n_cells)
{
    memset(small, 0, sizeof *small);
    small->config = cellar_config_init();
    small->config.layers = small->layers;
    small->config.n_cells = n_cells;
    small->config.n_ubatch = 8;
}

cellar_layer *small_add_attention(small_memory *small, uint32_t window)
{
    assert_true(small->config.n_layers < SMALL_LAYERS);
    cellar_layer *layer = &small->layers[small->config.n_layers++];
    *layer = cellar_layer_init();
    layer->n_heads = layer->n_kv_heads = 1;
    layer->k_size = layer->v_size = SMALL_HEAD;
    layer->rope.kind = CELLAR_ROPE_NEOX;
    if (window > 0) {
        layer->window.kind = CELLAR_WINDOW_STANDARD;
        layer->window.size = window;
    }
    return layer;
}

cellar_layer *small_add_recurrent(small_memory *small)
{
    assert_true(small->config.n_layers < SMALL_LAYERS);
    cellar_layer *layer = &small->layers[small->config.n_layers++];
    *layer = cellar_layer_init();
    layer->kind = CELLAR_LAYER_RECURRENT;
    layer->n_states = 2;
    layer->state_sizes = state_sizes;
    return layer;
}

void small_open(small_memory *small)
{
    cellar_error error = {0};
    must(cellar_create(&small->config, &small->memory, &error), &error);
}

void small_close(small_memory *small)
{
    cellar_error error = {0};
    must(cellar_check(small->memory, &error), &error);
    cellar_destroy(small->memory);
    small->memory = NULL;
}

void small_begin_each(small_memory *small, const cellar_seq *seqs, uint32_t n)
{
    cellar_token tokens[MOST_TOKENS];
    cellar_error error = {0};
    cellar_batch batch = cellar_batch_init();
    assert_true(n <= MOST_TOKENS);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (cellar_token)(100 + i);
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    must(cellar_begin(small->memory, &batch, &error), &error);
}

void small_begin(small_memory *small, cellar_seq seq, uint32_t n)
{
    cellar_seq seqs[MOST_TOKENS];
    assert_true(n <= MOST_TOKENS);
    for (uint32_t i = 0; i < n; i++)
        seqs[i] = seq;
    small_begin_each(small, seqs, n);
}

void small_store(small_memory *small)
{
    static const float zeros[MOST_TOKENS * SMALL_HEAD];
    cellar_error error = {0};
    for (uint32_t u = 0; u < cellar_count_ubatches(small->memory); u++)
        for (uint32_t i = 0; i < small->config.n_layers; i++) {
            const cellar_layer *layer = &small->layers[i];
            if (layer->kind == CELLAR_LAYER_NONE || layer->reads_layer >= 0) continue;
            bool is_ours = layer->kind == CELLAR_LAYER_ATTENTION && !layer->is_external;
            must(is_ours ? cellar_store(small->memory, u, i, zeros, layer->v_in_k ? NULL : zeros,
                                        &error)
                         : cellar_confirm(small->memory, u, i, &error),
                 &error);
        }
}

void small_read(small_memory *small, cellar_seq seq, uint32_t n)
{
    cellar_error error = {0};
    small_begin(small, seq, n);
    small_store(small);
    must(cellar_commit(small->memory, &error), &error);
}
