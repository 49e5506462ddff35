/*
 * support_prefix.c: see the header.
 *
 * Rows are f32, so what was written comes back as it was. A state's number stays below 2^20, which a
 * float holds exactly.
 */
#include "support_prefix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void must(cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) fail_msg("%s: %s", cellar_status_text(status), error->message);
}

static void add_attention(small_memory *small, uint32_t window)
{
    cellar_layer *layer = small_add_attention(small, window);
    layer->k_type = layer->v_type = CELLAR_F32;
}

void world_init(world *w, world_kind kind, uint32_t n_cells)
{
    memset(w, 0, sizeof *w);
    w->kind = kind;
    small_init(&w->small, n_cells);
    bool has_full = kind != WORLD_ONLY_WINDOW && kind != WORLD_STATE;
    if (has_full) add_attention(&w->small, 0);
    if (kind == WORLD_WINDOW || kind == WORLD_ONLY_WINDOW || kind == WORLD_EVERYTHING)
        add_attention(&w->small, WORLD_WINDOW_SIZE);
    if (kind == WORLD_STATE || kind == WORLD_HYBRID || kind == WORLD_EVERYTHING)
        small_add_recurrent(&w->small);
    w->small.config.n_sequences = 4;
    w->small.config.checkpoint_bytes = 65536;
    w->config = cellar_library_config_init();
}

void prefix_world_open(world *w)
{
    cellar_error error = {0};
    small_open(&w->small);
    must(cellar_library_create(w->small.memory, &w->config, &w->library, &error), &error);
}

void world_check(const world *w)
{
    cellar_error error = {0};
    must(cellar_check(w->small.memory, &error), &error);
    must(cellar_library_check(w->library, &error), &error);
}

void prefix_world_close(world *w)
{
    world_check(w);
    cellar_library_destroy(w->library);
    small_close(&w->small);
}

void world_restart(world *w)
{
    cellar_error error = {0};
    world_check(w);
    cellar_library_destroy(w->library);
    must(cellar_library_create(w->small.memory, &w->config, &w->library, &error), &error);
    world_check(w);
}

cellar_prefix world_attach(world *w, const cellar_prefix_key *key, cellar_seq seq,
                           const cellar_token *tokens, uint32_t n)
{
    cellar_prefix found, told;
    cellar_error error = {0};
    must(cellar_library_find(w->library, key, tokens, n, n - 1, &found, &error), &error);
    must(cellar_library_attach(w->library, key, seq, tokens, n, n - 1, &told, &error), &error);
    assert_int_equal(found.reused, 0);
    assert_true(told.reused <= told.reusable && told.reusable <= told.matched);
    assert_true(told.matched <= n - 1);
    assert_int_equal(told.reused == n - 1, told.reason == CELLAR_PREFIX_WHOLE);
    world_expect(w, seq, tokens, told.reused);
    return told;
}

static uint32_t add_to_state(uint32_t state, cellar_token token)
{
    return (state * 31 + (uint32_t)token + 7) & 0xfffff;
}

static uint32_t state_after(const cellar_token *tokens, uint32_t n)
{
    uint32_t state = 0;
    for (uint32_t i = 0; i < n; i++)
        state = add_to_state(state, tokens[i]);
    return state;
}

/* The states of a micro-batch, whose first token is tokens[at]. */
static void write_states(world *w, uint32_t ubatch, uint32_t layer, const cellar_token *tokens,
                         uint32_t at)
{
    cellar_states states;
    cellar_error error = {0};
    must(cellar_get_states(w->small.memory, ubatch, 0, &states, &error), &error);
    float source = 0;
    if (states.source != CELLAR_NO_STATE)
        source = cellar_state_data(w->small.memory, states.source, layer, 0)[0];
    assert_int_equal((uint32_t)source, state_after(tokens, at));
    for (uint32_t i = 0; i < states.n_targets; i++) {
        uint32_t n = at + states.after[i];
        for (uint32_t t = 0; t < 2; t++) {
            float *to = cellar_state_data(w->small.memory, states.targets[i], layer, t);
            memset(to, 0, (t == 0 ? 16 : 24) * sizeof *to);
            to[0] = (float)state_after(tokens, n);
        }
    }
    must(cellar_confirm(w->small.memory, ubatch, layer, &error), &error);
}

static void write_rows(world *w, uint32_t ubatch, uint32_t layer, const cellar_token *tokens,
                       uint32_t at, uint32_t n)
{
    static float k[WORLD_MOST * SMALL_HEAD], v[WORLD_MOST * SMALL_HEAD];
    cellar_error error = {0};
    for (uint32_t i = 0; i < n; i++) {
        v[i * SMALL_HEAD] = k[i * SMALL_HEAD] = (float)tokens[at + i];
        v[i * SMALL_HEAD + 1] = (float)(at + i);
    }
    must(cellar_store(w->small.memory, ubatch, layer, k, v, &error), &error);
    static float q[WORLD_MOST * SMALL_HEAD], out[WORLD_MOST * SMALL_HEAD];
    must(cellar_attend(w->small.memory, ubatch, layer, q, out, &error), &error);
}

void world_read(world *w, cellar_seq seq, const cellar_token *tokens, uint32_t first, uint32_t n,
                bool has_checkpoint)
{
    cellar_seq seqs[WORLD_MOST];
    bool checkpoints[WORLD_MOST] = {false};
    cellar_error error = {0};
    cellar_batch batch = cellar_batch_init();
    if (n == first) return;
    for (uint32_t i = 0; i < n - first; i++)
        seqs[i] = seq;
    checkpoints[n - first - 1] = has_checkpoint;
    batch.n_tokens = n - first;
    batch.tokens = tokens + first;
    batch.seqs = seqs;
    batch.checkpoints = checkpoints;
    must(cellar_library_begin(w->library, &batch, &error), &error);
    uint32_t at = first;
    for (uint32_t u = 0; u < cellar_count_ubatches(w->small.memory); u++) {
        cellar_ubatch ubatch;
        must(cellar_get_ubatch(w->small.memory, u, &ubatch, &error), &error);
        for (uint32_t i = 0; i < w->small.config.n_layers; i++)
            if (w->small.layers[i].kind == CELLAR_LAYER_RECURRENT)
                write_states(w, u, i, tokens, at);
            else
                write_rows(w, u, i, tokens, at, ubatch.n_tokens);
        at += ubatch.n_tokens;
    }
    must(cellar_commit(w->small.memory, &error), &error);
    must(cellar_library_extend(w->library, seq, tokens + first, n - first, &error), &error);
}

void world_expect(const world *w, cellar_seq seq, const cellar_token *tokens, uint32_t n)
{
    static float v[WORLD_MOST * SMALL_HEAD];
    cellar_error error = {0};
    for (uint32_t i = 0; n > 0 && i < w->small.config.n_layers; i++) {
        const cellar_layer *layer = &w->small.layers[i];
        if (layer->kind == CELLAR_LAYER_RECURRENT) continue;
        uint32_t first = 0; /* that the next token sees */
        if (layer->window.size > 0 && n >= layer->window.size) first = n + 1 - layer->window.size;
        must(cellar_read_rows(w->small.memory, seq, i, (cellar_pos)first, n - first, NULL, v,
                              &error),
             &error);
        for (uint32_t t = first; t < n; t++) {
            assert_int_equal((int)v[(t - first) * SMALL_HEAD], tokens[t]);
            assert_int_equal((int)v[(t - first) * SMALL_HEAD + 1], t);
        }
    }
    if (n > 0) {
        cellar_sequence_info info;
        must(cellar_get_sequence(w->small.memory, seq, &info, &error), &error);
        assert_int_equal(info.pos_next, n);
        must(cellar_can_continue(w->small.memory, seq, (cellar_pos)n, NULL, &error), &error);
    }
}

uint64_t world_retain(world *w, cellar_seq seq)
{
    uint64_t entry = 0;
    cellar_error error = {0};
    must(cellar_library_retain(w->library, seq, &entry, &error), &error);
    return entry;
}

cellar_prefix world_serve(world *w, const cellar_prefix_key *key, cellar_seq seq,
                          const cellar_token *tokens, uint32_t n)
{
    cellar_prefix told = world_attach(w, key, seq, tokens, n);
    world_read(w, seq, tokens, told.reused, n, true);
    world_expect(w, seq, tokens, n);
    world_retain(w, seq);
    world_check(w);
    return told;
}

cellar_library_statistics world_stats(const world *w)
{
    cellar_library_statistics stats;
    cellar_error error = {0};
    must(cellar_library_stats(w->library, &stats, &error), &error);
    return stats;
}

typedef struct search {
    uint64_t number;
    cellar_entry entry;
    bool is_found;
} search;

static bool look(void *context, const cellar_entry *entry)
{
    search *s = context;
    if (entry->entry != s->number) return true;
    s->entry = *entry;
    s->is_found = true;
    return false;
}

bool world_entry(const world *w, uint64_t number, cellar_entry *out)
{
    search s = {.number = number};
    cellar_error error = {0};
    must(cellar_library_visit(w->library, look, &s, &error), &error);
    if (s.is_found && out) *out = s.entry;
    return s.is_found;
}

void world_text(cellar_token *to, uint32_t n, cellar_token first)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = first + (cellar_token)i;
}
