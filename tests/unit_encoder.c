/*
 * unit_encoder.c: encodings as objects: who holds one, for how long, and what a failure leaves.
 *
 * The numbers themselves are unit_arch_t5.c's; here results are compared with each other, bit for bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/encoder.h"
#include "support_folder.h"
#include "support_t5.h"

enum { N_TEXT = 200, N_TOKENS = 9 };

typedef float rows[N_TOKENS][T5_VOCAB];

static cellar_token text[N_TEXT], tokens[N_TOKENS];
static recipe *usual;

static int set_up(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_TEXT; i++) {
        text[i] = (i * 11 + i * i % 13) % T5_VOCAB;
    }
    for (int32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = (i * 3 + 1) % T5_VOCAB;
    }
    usual = support_t5_recipe(true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    recipe_destroy(usual);
    return 0;
}

static void decode(engine *e, cellar_seq seq, rows logits)
{
    support_t5_decode(e, seq, tokens, N_TOKENS, logits[0]);
}

/* What a sequence gives for n tokens of the text from `first`, alone in an engine. */
static void decode_alone(uint32_t first, uint32_t n, rows logits)
{
    support_t5 made;
    support_t5_open(usual, NULL, &made);
    support_t5_encode(made.engine, 0, text + first, n);
    decode(made.engine, 0, logits);
    support_t5_close(&made);
}

/* Decode the last token of a sequence again; its logits must be those of `wanted`. */
static void assert_reads(engine *e, cellar_seq seq, rows wanted)
{
    float again[T5_VOCAB];
    assert_int_equal(cellar_remove(engine_memory(e), seq, N_TOKENS - 1, -1, NULL), CELLAR_OK);
    support_t5_decode(e, seq, tokens + N_TOKENS - 1, 1, again);
    assert_memory_equal(again, wanted[N_TOKENS - 1], sizeof again);
}

/* A batch of the text with a sequence for each token. */
static cellar_batch batch_of(uint32_t n, const cellar_seq *seqs)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = text;
    batch.seqs = seqs;
    return batch;
}

static void assert_not_encoded(engine *e, const cellar_batch *batch, cellar_status status,
                               int64_t at, const char *word)
{
    cellar_error error = {.message = ""};
    const cellar_status found = engine_encode(e, batch, &error);
    if (found != status || (at >= 0 && error.at != at) || strstr(error.message, word) == NULL) {
        fail_msg("expected %s at %lld with '%s', found %s at %lld: %s", cellar_status_text(status),
                 (long long)at, word, cellar_status_text(found), (long long)error.at,
                 error.message);
    }
}

/* One token in one sequence, without logits. */
static cellar_status try_decode(engine *e, const cellar_seq *seqs, uint32_t n_seqs,
                                cellar_error *error)
{
    const uint32_t begin[2] = {0, n_seqs};
    cellar_batch batch = batch_of(1, seqs);
    batch.seq_begin = begin;
    return engine_decode(e, &batch, NULL, 0, NULL, error);
}

/* ---- results ----------------------------------------------------------------------------------- */

static void texts_of_one_batch_are_as_those_read_alone(void **state)
{
    (void)state;
    cellar_seq seqs[N_TEXT];
    for (uint32_t i = 0; i < N_TEXT; i++) {
        seqs[i] = i < 30 ? 4 : i < 31 ? 9 : 2;
    }
    static const struct {
        cellar_seq seq;
        uint32_t first, n;
    } texts[] = {{4, 0, 30}, {9, 30, 1}, {2, 31, N_TEXT - 31}};
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
        engine_options options = support_t5_options();
        options.n_threads = n_threads;
        support_t5 made;
        support_t5_open(usual, &options, &made);
        const cellar_batch batch = batch_of(N_TEXT, seqs);
        assert_int_equal(engine_encode(made.engine, &batch, NULL), CELLAR_OK);
        for (uint32_t i = 0; i < 3; i++) {
            rows together, alone;
            assert_int_equal(engine_encoded_tokens(made.engine, texts[i].seq), texts[i].n);
            decode(made.engine, texts[i].seq, together);
            decode_alone(texts[i].first, texts[i].n, alone);
            assert_memory_equal(together, alone, sizeof alone);
        }
        assert_int_equal(engine_encoded_tokens(made.engine, 0), 0);
        support_t5_close(&made);
    }
}

static void decoding_in_pieces_and_side_by_side_changes_no_bit(void **state)
{
    (void)state;
    rows first, second, alone[2];
    decode_alone(0, 40, alone[0]);
    decode_alone(50, 140, alone[1]);
    support_t5 made;
    support_t5_open(usual, NULL, &made);
    support_t5_encode(made.engine, 0, text, 40);
    support_t5_encode(made.engine, 1, text + 50, 140);
    for (uint32_t i = 0; i < N_TOKENS; i++) { /* both sequences in one step, a token each */
        const cellar_seq seqs[2] = {1, 0};
        const cellar_token both[2] = {tokens[i], tokens[i]};
        const uint32_t wanted[2] = {0, 1};
        float logits[2][T5_VOCAB];
        cellar_batch batch = batch_of(2, seqs);
        batch.tokens = both;
        assert_int_equal(engine_decode(made.engine, &batch, wanted, 2, logits[0], NULL), CELLAR_OK);
        memcpy(second[i], logits[0], sizeof logits[0]);
        memcpy(first[i], logits[1], sizeof logits[1]);
    }
    assert_memory_equal(first, alone[0], sizeof first);
    assert_memory_equal(second, alone[1], sizeof second);
    support_t5_close(&made);
}

/* ---- who holds what ---------------------------------------------------------------------------- */

static void a_fork_needs_the_encoding_shared(void **state)
{
    (void)state;
    rows wanted;
    support_t5 made;
    support_t5_open(usual, NULL, &made);
    engine *e = made.engine;
    support_t5_encode(e, 0, text, 33);
    decode(e, 0, wanted);
    assert_int_equal(cellar_copy(engine_memory(e), 0, 5, 0, -1, NULL), CELLAR_OK);
    const cellar_seq fork = 5;
    cellar_error error;
    assert_int_equal(try_decode(e, &fork, 1, &error), CELLAR_NOT_FOUND);
    assert_int_equal(error.at, 0);
    assert_non_null(strstr(error.message, "sequence 5"));
    assert_int_equal(cellar_position_max(engine_memory(e), 5), N_TOKENS - 1);

    const uint64_t bytes = engine_buffer_bytes(e);
    assert_int_equal(engine_share_encoding(e, 0, 5, &error), CELLAR_OK);
    assert_true(engine_buffer_bytes(e) - bytes < 64);
    assert_reads(e, 5, wanted);
    engine_forget_encoding(e, 0); /* the fork holds it */
    assert_int_equal(engine_encoded_tokens(e, 0), 0);
    assert_reads(e, 5, wanted);
    support_t5_encode(e, 0, text + 7, 20); /* and does not follow */
    assert_reads(e, 5, wanted);
    assert_int_equal(engine_share_encoding(e, 5, 5, &error), CELLAR_OK);
    assert_reads(e, 5, wanted);
    support_t5_close(&made);
}

static void sharing_what_is_not_there_is_refused(void **state)
{
    (void)state;
    support_t5 made;
    support_t5_open(usual, NULL, &made);
    cellar_error error;
    assert_int_equal(engine_share_encoding(made.engine, 3, 4, &error), CELLAR_NOT_FOUND);
    assert_non_null(strstr(error.message, "sequence 3"));
    support_t5_encode(made.engine, 3, text, 2);
    assert_int_equal(engine_share_encoding(made.engine, 3, -1, &error), CELLAR_INVALID);
    engine_forget_encoding(made.engine, 77); /* no effect */
    assert_int_equal(engine_encoded_tokens(made.engine, 3), 2);
    support_t5_close(&made);
}

static void a_token_of_several_sequences_needs_one_encoding(void **state)
{
    (void)state;
    support_t5 made;
    support_t5_open(usual, NULL, &made);
    engine *e = made.engine;
    const cellar_seq both[2] = {0, 1};
    cellar_error error;
    support_t5_encode(e, 0, text, 12);
    assert_int_equal(try_decode(e, both, 2, &error), CELLAR_NOT_FOUND);
    support_t5_encode(e, 1, text, 12); /* the same text, and yet another encoding */
    assert_int_equal(try_decode(e, both, 2, &error), CELLAR_INVALID);
    assert_int_equal(error.at, 0);
    assert_int_equal(cellar_position_max(engine_memory(e), 0), -1);
    assert_int_equal(engine_share_encoding(e, 1, 0, &error), CELLAR_OK);
    assert_int_equal(try_decode(e, both, 2, &error), CELLAR_OK);
    support_t5_close(&made);
}

static void a_text_for_several_sequences_is_kept_once(void **state)
{
    (void)state;
    enum { N = 10 };
    uint32_t begin[N + 1];
    cellar_seq seqs[3 * N];
    for (uint32_t i = 0; i <= N; i++) {
        begin[i] = 3 * i;
    }
    for (uint32_t i = 0; i < 3 * N; i++) {
        seqs[i] = (cellar_seq)(2 * (i % 3));
    }
    rows wanted, found;
    decode_alone(0, N, wanted);
    engine_options options = support_t5_options();
    options.n_encoded = N;
    support_t5 made;
    support_t5_open(usual, &options, &made);
    cellar_batch batch = batch_of(N, seqs);
    batch.seq_begin = begin;
    assert_int_equal(engine_encode(made.engine, &batch, NULL), CELLAR_OK);
    for (cellar_seq seq = 0; seq < 6; seq += 2) {
        decode(made.engine, seq, found);
        assert_memory_equal(found, wanted, sizeof wanted);
    }
    support_t5_close(&made);
}

/* ---- room -------------------------------------------------------------------------------------- */

static void what_is_kept_is_bounded_and_counted(void **state)
{
    (void)state;
    rows wanted;
    engine_options options = support_t5_options();
    options.n_encoded = 40;
    support_t5 made;
    support_t5_open(usual, &options, &made);
    engine *e = made.engine;
    const uint64_t numbers = made.made.model->encoder->numbers;
    assert_int_equal(numbers, T5_DECODER_LAYERS * 3 * (5 + 7));
    const uint64_t none = engine_buffer_bytes(e);
    support_t5_encode(e, 0, text, 25);
    decode(e, 0, wanted);
    assert_true(engine_buffer_bytes(e) >= none + 25 * numbers * sizeof(float));

    cellar_seq second[20];
    for (uint32_t i = 0; i < 20; i++) {
        second[i] = 1;
    }
    cellar_batch batch = batch_of(20, second);
    assert_not_encoded(e, &batch, CELLAR_FULL, 5, "5 would be missing");
    assert_int_equal(engine_encoded_tokens(e, 1), 0);
    batch.n_tokens = 15;
    assert_int_equal(engine_encode(e, &batch, NULL), CELLAR_OK);
    support_t5_encode(e, 0, text, 25); /* what it replaces does not count */
    assert_reads(e, 0, wanted);
    assert_int_equal(engine_share_encoding(e, 0, 2, NULL), CELLAR_OK);
    batch = batch_of(20, second);
    for (uint32_t i = 0; i < 20; i++) {
        second[i] = 0; /* the old one stays, as 2 holds it */
    }
    assert_not_encoded(e, &batch, CELLAR_FULL, 20, "20 would be missing");
    assert_reads(e, 0, wanted);

    for (cellar_seq seq = 0; seq < 3; seq++) {
        engine_forget_encoding(e, seq);
    }
    assert_true(engine_buffer_bytes(e) < none + 25 * numbers * sizeof(float));
    support_t5_encode(e, 1, text, 40);
    support_t5_close(&made);
}

static void a_text_larger_than_a_micro_batch_is_refused(void **state)
{
    (void)state;
    engine_options options = support_t5_options();
    options.n_ubatch = 16;
    support_t5 made;
    support_t5_open(usual, &options, &made);
    cellar_seq seqs[18] = {0};
    cellar_batch batch = batch_of(18, seqs);
    assert_not_encoded(made.engine, &batch, CELLAR_FULL, 2, "at most 16");
    batch.n_tokens = 16;
    assert_int_equal(engine_encode(made.engine, &batch, NULL), CELLAR_OK);
    support_t5_close(&made);
}

/* ---- failures ---------------------------------------------------------------------------------- */

static void batches_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    rows wanted;
    support_t5 made;
    support_t5_open(usual, NULL, &made);
    engine *e = made.engine;
    support_t5_encode(e, 1, text, 6);
    decode(e, 1, wanted);

    const cellar_seq mixed[4] = {1, 2, 1, 2};
    cellar_batch batch = batch_of(4, mixed);
    assert_not_encoded(e, &batch, CELLAR_INVALID, -1, "sequence 1: expected one text");
    const uint32_t begin[4] = {0, 2, 4, 5}; /* the last token is of one of two alone */
    const cellar_seq parting[5] = {1, 2, 1, 2, 2};
    batch = batch_of(3, parting);
    batch.seq_begin = begin;
    assert_not_encoded(e, &batch, CELLAR_INVALID, -1, "sequence 2: expected one text");
    const cellar_token strange[2] = {1, T5_VOCAB};
    batch = batch_of(2, mixed);
    batch.tokens = strange;
    assert_not_encoded(e, &batch, CELLAR_INVALID, 1, "below 40");
    batch.tokens = NULL;
    assert_not_encoded(e, &batch, CELLAR_INVALID, -1, "needs its tokens");
    batch = batch_of(0, NULL);
    assert_not_encoded(e, &batch, CELLAR_INVALID, -1, "");
    const cellar_pos gap[2] = {0, 2};
    const cellar_seq same[2] = {1, 1};
    batch = batch_of(2, same);
    batch.positions = gap;
    assert_not_encoded(e, &batch, CELLAR_INVALID, 1, "");
    const cellar_seq negative[1] = {-4};
    batch = batch_of(1, negative);
    assert_not_encoded(e, &batch, CELLAR_INVALID, 0, "");
    assert_reads(e, 1, wanted);
    assert_int_equal(engine_encoded_tokens(e, 2), 0);
    support_t5_close(&made);
}

static bool stop_at(void *context)
{
    uint32_t *left = context;
    return (*left)-- == 0;
}

static void a_stop_leaves_encodings_as_they_were(void **state)
{
    (void)state;
    rows wanted;
    support_t5 made;
    support_t5_open(usual, NULL, &made);
    engine *e = made.engine;
    support_t5_encode(e, 0, text, 9);
    decode(e, 0, wanted);
    for (uint32_t layer = 0; layer < T5_ENCODER_LAYERS; layer++) {
        uint32_t left = layer;
        const cellar_batch batch = batch_of(50, (cellar_seq[50]){0});
        engine_set_stop(e, stop_at, &left);
        assert_not_encoded(e, &batch, CELLAR_REFUSED, layer, "stopped");
        engine_set_stop(e, NULL, NULL);
        assert_int_equal(engine_encoded_tokens(e, 0), 9);
        assert_reads(e, 0, wanted);
    }
    support_t5_close(&made);
}

/* Encodings do not notice what happens in the memory; what comes back there goes on beside them. */
static void the_memory_and_encodings_are_apart(void **state)
{
    (void)state;
    rows wanted;
    support_t5 made, other;
    support_t5_open(usual, NULL, &made);
    support_t5_open(usual, NULL, &other);
    engine *e = made.engine;
    support_t5_encode(e, 0, text, 44);
    decode(e, 0, wanted);
    const cellar_save_options saving = cellar_save_options_init();
    const cellar_load_options loading = cellar_load_options_init();
    const char *path = folder_path("session");
    assert_int_equal(cellar_save_session(engine_memory(e), &saving, path, NULL), CELLAR_OK);
    assert_int_equal(cellar_clear(engine_memory(e), NULL), CELLAR_OK);
    assert_int_equal(engine_encoded_tokens(e, 0), 44);
    cellar_session *session;
    assert_int_equal(cellar_open_session(path, NULL, &session, NULL), CELLAR_OK);
    engine *both[2] = {e, other.engine};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cellar_load_session(engine_memory(both[i]), session, &loading, NULL),
                         CELLAR_OK);
    }
    assert_reads(e, 0, wanted);
    const cellar_seq zero = 0;
    cellar_error error;
    assert_int_equal(try_decode(other.engine, &zero, 1, &error), CELLAR_NOT_FOUND);
    cellar_close_session(session);
    support_t5_close(&made);
    support_t5_close(&other);
}

static void models_without_an_encoder_say_so(void **state)
{
    (void)state;
    recipe *r = recipe_create("llama");
    recipe_set_u32(r, "block_count", 1);
    recipe_set_u32(r, "embedding_length", 8);
    recipe_set_u32(r, "context_length", 32);
    recipe_set_u32(r, "feed_forward_length", 8);
    recipe_set_u32(r, "attention.head_count", 2);
    recipe_set_float(r, "attention.layer_norm_rms_epsilon", 1e-6);
    recipe_add(r, "token_embd.weight", 8, T5_VOCAB, 0);
    recipe_add(r, "output_norm.weight", 8, 0, 0);
    static const char *const matrices[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                           "ffn_gate", "ffn_up", "ffn_down"};
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.0.%s.weight", matrices[i]);
        recipe_add(r, name, 8, 8, 0);
    }
    recipe_add(r, "blk.0.attn_norm.weight", 8, 0, 0);
    recipe_add(r, "blk.0.ffn_norm.weight", 8, 0, 0);
    support_t5 made;
    support_t5_open(r, NULL, &made);
    const cellar_batch batch = batch_of(2, NULL);
    assert_not_encoded(made.engine, &batch, CELLAR_UNSUPPORTED, -1, "llama have no encoder");
    assert_int_equal(engine_share_encoding(made.engine, 0, 1, NULL), CELLAR_UNSUPPORTED);
    engine_forget_encoding(made.engine, 0);
    assert_int_equal(engine_encoded_tokens(made.engine, 0), 0);
    support_t5_close(&made);
    recipe_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_one_batch_are_as_those_read_alone),
        cmocka_unit_test(decoding_in_pieces_and_side_by_side_changes_no_bit),
        cmocka_unit_test(a_fork_needs_the_encoding_shared),
        cmocka_unit_test(sharing_what_is_not_there_is_refused),
        cmocka_unit_test(a_token_of_several_sequences_needs_one_encoding),
        cmocka_unit_test(a_text_for_several_sequences_is_kept_once),
        cmocka_unit_test(what_is_kept_is_bounded_and_counted),
        cmocka_unit_test(a_text_larger_than_a_micro_batch_is_refused),
        cmocka_unit_test(batches_that_make_no_sense_are_refused),
        cmocka_unit_test(a_stop_leaves_encodings_as_they_were),
        cmocka_unit_test_setup_teardown(the_memory_and_encodings_are_apart, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test(models_without_an_encoder_say_so),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
