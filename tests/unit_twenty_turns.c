/*
 * unit_twenty_turns.c: a conversation of twenty turns with models that cannot simply go back.
 *
 * A window has given up what lies behind it and a state knows only the end, so going back needs a
 * checkpoint; they are made after each message. The conversation is taken back to the end of an
 * earlier message, into the middle of one, and forked, again and again. Counted is every token that is read: going
 * back to a checkpoint reads nothing a second time, and into the middle of a message only that message's
 * beginning. And what comes out are, bit for bit, the logits of a model that has read the whole at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_reading.h"
#include "support_recurrent.h"

enum { N_VOCAB = RECURRENT_VOCABULARY, N_TURNS = 20, LONGEST = 512, N_SEQUENCES = 4 };

/* What a sequence has read. */
typedef struct talk {
    cellar_token tokens[LONGEST];
    uint32_t n;
    uint32_t ends[2 * N_TURNS + 1]; /* [n_messages] where messages end */
    uint32_t n_messages;
} talk;

typedef struct table {
    const recipe *weights;
    reading its;
    talk talks[N_SEQUENCES];
    uint64_t expected; /* tokens that had to be read so far */
    uint32_t chance;
} table;

static uint32_t draw(table *t, uint32_t below)
{
    t->chance = t->chance * 1664525u + 1013904223u;
    return (t->chance >> 8) % below;
}

/* Read tokens n.. of the talk, with a checkpoint after the last, and compare with a cold reading. */
static void read_on(table *t, uint32_t seq, uint32_t from)
{
    talk *its = &t->talks[seq];
    const uint32_t n = its->n - from;
    float *found = malloc((size_t)n * N_VOCAB * sizeof *found);
    float *cold = malloc((size_t)its->n * N_VOCAB * sizeof *cold);
    bool *checkpoints = calloc(n, sizeof *checkpoints);
    assert_true(n > 0 && found != NULL && cold != NULL && checkpoints != NULL);
    checkpoints[n - 1] = true;
    reading_add(&t->its, (cellar_seq)seq, its->tokens + from, n, checkpoints, found);
    reading_cold(t->weights, its->tokens, its->n, cold);
    assert_memory_equal(found, cold + (size_t)from * N_VOCAB, (size_t)n * N_VOCAB * sizeof *found);
    t->expected += n;
    assert_int_equal(t->its.n_read, t->expected);
    free(checkpoints);
    free(cold);
    free(found);
}

static void say(table *t, uint32_t seq)
{
    talk *its = &t->talks[seq];
    uint32_t from = its->n, n = 2 + draw(t, 6);
    for (uint32_t i = 0; i < n; i++) {
        its->tokens[its->n++] = (cellar_token)draw(t, N_VOCAB);
    }
    its->ends[its->n_messages++] = its->n;
    read_on(t, seq, from);
}

/* Back to the end of an earlier message: nothing is read for it. */
static void take_back(table *t, uint32_t seq)
{
    talk *its = &t->talks[seq];
    cellar_error error;
    cellar_pos from = -1;
    its->n_messages -= 1 + draw(t, its->n_messages - 1);
    its->n = its->ends[its->n_messages - 1];
    assert_int_equal(
        cellar_rewind(t->its.memory, (cellar_seq)seq, (cellar_pos)its->n, &from, &error),
        CELLAR_OK);
    assert_int_equal(from, its->n);
}

/* Into the last message: no more than its beginning is read again. */
static void change_last(table *t, uint32_t seq)
{
    talk *its = &t->talks[seq];
    cellar_error error;
    cellar_pos from = -1;
    const uint32_t begin = its->ends[its->n_messages - 2];
    const uint32_t middle = begin + 1 + draw(t, its->n - begin - 1);
    assert_int_equal(
        cellar_rewind(t->its.memory, (cellar_seq)seq, (cellar_pos)middle, &from, &error),
        CELLAR_OK);
    assert_in_range(from, begin, middle);
    its->n = middle;
    its->tokens[its->n++] = (cellar_token)draw(t, N_VOCAB);
    its->ends[its->n_messages - 1] = its->n;
    read_on(t, seq, (uint32_t)from);
}

static void fork_off(table *t, uint32_t seq, uint32_t to)
{
    cellar_error error;
    assert_int_equal(cellar_remove(t->its.memory, (cellar_seq)to, 0, -1, &error), CELLAR_OK);
    assert_int_equal(cellar_copy(t->its.memory, (cellar_seq)seq, (cellar_seq)to, 0, -1, &error),
                     CELLAR_OK);
    t->talks[to] = t->talks[seq];
}

static void hold_conversation(const recipe *weights, uint32_t chance)
{
    engine_options options = engine_defaults();
    options.n_cells = 4 * LONGEST;
    options.n_ubatch = 16;
    options.n_sequences = N_SEQUENCES;
    options.checkpoint_bytes = 1u << 24;
    table *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->weights = weights;
    t->chance = chance;
    reading_open(&t->its, weights, &options);
    say(t, 0);
    uint32_t seq = 0, n_back = 0, n_changed = 0, n_forks = 0;
    for (uint32_t turn = 1; turn < N_TURNS; turn++) {
        say(t, seq);
        say(t, seq);
        if (turn % 3 == 0) take_back(t, seq), n_back++;
        if (turn % 4 == 0 && t->talks[seq].n_messages > 1) change_last(t, seq), n_changed++;
        if (turn % 5 == 0) {
            uint32_t to = (seq + 1 + draw(t, N_SEQUENCES - 1)) % N_SEQUENCES;
            fork_off(t, seq, to);
            say(t, to);
            say(t, seq); /* unaware of it */
            seq = to;
            n_forks++;
        }
        cellar_error error;
        assert_int_equal(cellar_check(t->its.memory, &error), CELLAR_OK);
    }
    assert_true(n_back >= 5 && n_changed >= 3 && n_forks >= 3);
    reading_close(&t->its);
    free(t);
}

static void states_read_nothing_twice(void **state)
{
    (void)state;
    const recurrent_kind kinds[] = {RECURRENT_MAMBA2, RECURRENT_RWKV7};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const recurrent_shape shape = recurrent_random(kinds[i], 7);
        recipe *r = recurrent_recipe(&shape);
        hold_conversation(r, 11 + (uint32_t)i);
        recipe_destroy(r);
    }
}

static void states_beside_attention_read_nothing_twice(void **state)
{
    (void)state;
    const recurrent_kind kinds[] = {RECURRENT_JAMBA, RECURRENT_FALCON_H1, RECURRENT_LFM2_HYBRID};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const recurrent_shape shape = recurrent_random(kinds[i], 8);
        recipe *r = recurrent_recipe(&shape);
        hold_conversation(r, 21 + (uint32_t)i);
        recipe_destroy(r);
    }
}

/* Layers with a window of 6, which two messages are longer than, between layers that see all. */
static recipe *window_recipe(void)
{
    enum { EMBD = 32, FF = 48, HEADS = 2, SIZE = 16 };
    recipe *r = recipe_create("gemma2");
    recipe_set_u32(r, "context_length", 1024);
    recipe_set_u32(r, "embedding_length", EMBD);
    recipe_set_u32(r, "block_count", 4);
    recipe_set_u32(r, "feed_forward_length", FF);
    recipe_set_u32(r, "attention.head_count", HEADS);
    recipe_set_u32(r, "attention.head_count_kv", 1);
    recipe_set_u32(r, "attention.key_length", SIZE);
    recipe_set_u32(r, "attention.value_length", SIZE);
    recipe_set_float(r, "attention.layer_norm_rms_epsilon", 1e-6);
    recipe_set_u32(r, "attention.sliding_window", 6);
    recipe_set_float(r, "attn_logit_softcapping", 50);
    recipe_set_float(r, "final_logit_softcapping", 30);
    recipe_add(r, "token_embd.weight", EMBD, N_VOCAB, 0);
    recipe_add(r, "output_norm.weight", EMBD, 0, 0);
    const struct {
        const char *part;
        uint32_t n_in, n_out;
    } parts[] = {{"attn_norm", EMBD, 0},
                 {"attn_q", EMBD, HEADS * SIZE},
                 {"attn_k", EMBD, SIZE},
                 {"attn_v", EMBD, SIZE},
                 {"attn_output", HEADS * SIZE, EMBD},
                 {"post_attention_norm", EMBD, 0},
                 {"ffn_norm", EMBD, 0},
                 {"ffn_gate", EMBD, FF},
                 {"ffn_up", EMBD, FF},
                 {"ffn_down", FF, EMBD},
                 {"post_ffw_norm", EMBD, 0}};
    for (unsigned layer = 0; layer < 4; layer++) {
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s.weight", layer, parts[i].part);
            recipe_add(r, name, parts[i].n_in, parts[i].n_out, 0);
        }
    }
    return r;
}

static void windows_read_nothing_twice(void **state)
{
    (void)state;
    recipe *r = window_recipe();
    hold_conversation(r, 31);
    hold_conversation(r, 32);
    recipe_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_read_nothing_twice),
        cmocka_unit_test(states_beside_attention_read_nothing_twice),
        cmocka_unit_test(windows_read_nothing_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
