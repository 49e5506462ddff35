/*
 * unit_exports_calls.c: exports beside masks: what they refuse, how large they get, and row moves.
 *
 * A refused call must leave the caller's arrays alone. Row moves are played on an array that says,
 * for each row of an engine's tensors, which token it holds and for which position its key is
 * rotated; afterwards every run must find in its cells what it says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "model/drive.h"

enum { A, B, N_ROWS = 256 };

static cellar_layer external_layer(bool has_rope)
{
    cellar_layer layer = drive_layer(2, 1, 8, 4);
    layer.is_external = true;
    if (has_rope) layer.rope.kind = CELLAR_ROPE_NEOX;
    return layer;
}

static cellar_config config_of(const cellar_layer *layers, uint32_t n_layers, uint32_t n_cells)
{
    cellar_config config = cellar_config_init();
    config.n_layers = n_layers;
    config.layers = layers;
    config.n_cells = n_cells;
    config.n_ubatch = 16;
    return config;
}

static cellar_memory *create(const cellar_config *config)
{
    cellar_memory *memory;
    cellar_error error = {0};
    if (cellar_create(config, &memory, &error) != CELLAR_OK) fail_msg("%s", error.message);
    return memory;
}

/* ---- an engine's rows ------------------------------------------------------------------------ */

typedef struct rows {
    cellar_token token[N_ROWS];
    cellar_pos rotated_for[N_ROWS];
    uint32_t n_moved, n_turned;
} rows;

/* Read n tokens numbered from `token` on at the end of a sequence; layer 0 is external. */
static void append(cellar_memory *memory, rows *r, cellar_seq seq, cellar_token token, uint32_t n)
{
    cellar_token tokens[64];
    cellar_seq seqs[64];
    int64_t at[64];
    cellar_error error = {0};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = token + (cellar_token)i;
        seqs[i] = seq;
    }
    if (cellar_begin(memory, &batch, &error) != CELLAR_OK) fail_msg("%s", error.message);
    for (uint32_t u = 0; u < cellar_count_ubatches(memory); u++) {
        cellar_ubatch ubatch;
        assert_int_equal(cellar_get_ubatch(memory, u, &ubatch, NULL), CELLAR_OK);
        assert_int_equal(cellar_export_rows(memory, u, 0, at, NULL), CELLAR_OK);
        for (uint32_t i = 0; i < ubatch.n_tokens; i++) {
            r->token[at[i]] = tokens[ubatch.indices[i]];
            r->rotated_for[at[i]] = ubatch.positions[i];
        }
        for (uint32_t layer = 0; cellar_group_of_layer(memory, layer) >= 0; layer++)
            assert_int_equal(cellar_confirm(memory, u, layer, NULL), CELLAR_OK);
    }
    assert_int_equal(cellar_commit(memory, NULL), CELLAR_OK);
}

static bool apply_move(void *context, const cellar_move *move)
{
    rows *r = context, old = *r;
    assert_int_equal(move->group, 0);
    assert_true(move->n > 0);
    for (uint32_t i = 0; i < move->n; i++) {
        r->token[move->to + i] = old.token[move->from + i];
        r->rotated_for[move->to + i] = old.rotated_for[move->from + i] + move->turn;
    }
    if (move->from != move->to) r->n_moved += move->n;
    if (move->turn != 0) r->n_turned += move->n;
    return true;
}

static void apply_moves(cellar_memory *memory, rows *r)
{
    assert_int_equal(cellar_visit_moves(memory, apply_move, r, NULL), CELLAR_OK);
    assert_int_equal(cellar_confirm_moves(memory, NULL), CELLAR_OK);
}

typedef struct expected {
    const rows *r;
    cellar_seq seq;
    const cellar_token *tokens;
    uint32_t n_seen;
} expected;

static bool compare_run(void *context, const cellar_run *run)
{
    expected *e = context;
    assert_int_equal(run->step, 1);
    for (uint32_t i = 0; i < run->len; i++, e->n_seen++) {
        assert_int_equal(e->r->token[run->cell + i], e->tokens[e->n_seen]);
        assert_int_equal(e->r->rotated_for[run->cell + i] + run->shift, run->pos + (cellar_pos)i);
    }
    return true;
}

/* The rows of a sequence hold these tokens, rotated for where the runs say. */
static void expect_tokens(const cellar_memory *memory, const rows *r, cellar_seq seq,
                          const cellar_token *tokens, uint32_t n)
{
    expected e = {r, seq, tokens, 0};
    assert_int_equal(cellar_visit_runs(memory, seq, compare_run, &e, NULL), CELLAR_OK);
    assert_int_equal(e.n_seen, n);
}

static void expect_pending_moves(cellar_memory *memory)
{
    cellar_batch batch = cellar_batch_init();
    cellar_error error = {0};
    batch.n_tokens = 1;
    assert_int_equal(cellar_begin(memory, &batch, &error), CELLAR_BUSY);
    assert_int_equal(error.reason, CELLAR_REASON_MOVES_PENDING);
}

static bool count_move(void *context, const cellar_move *move)
{
    (void)move;
    ++*(uint32_t *)context;
    return false;
}

static void a_copy_between_pools_moves_rows(void **state)
{
    (void)state;
    cellar_layer layer = external_layer(true);
    cellar_config config = config_of(&layer, 1, 128);
    config.n_pools = 2;
    cellar_memory *memory = create(&config);
    static const cellar_token wanted[] = {100, 101, 12, 13, 14, 15, 106};
    rows r = {0};
    append(memory, &r, A, 10, 9);
    append(memory, &r, B, 100, 7);
    assert_int_equal(cellar_copy(memory, A, B, 2, 6, NULL), CELLAR_OK);
    expect_pending_moves(memory);
    uint32_t n = 0;
    assert_int_equal(cellar_visit_moves(memory, count_move, &n, NULL), CELLAR_OK);
    assert_int_equal(n, 1); /* the visitor said stop */
    apply_moves(memory, &r);
    assert_int_equal(r.n_moved, 4);
    assert_int_equal(r.n_turned, 0);
    expect_tokens(memory, &r, B, wanted, 7);
    n = 0;
    assert_int_equal(cellar_visit_moves(memory, count_move, &n, NULL), CELLAR_OK);
    assert_int_equal(n, 0);
    assert_int_equal(cellar_check(memory, NULL), CELLAR_OK);
    append(memory, &r, B, 107, 1);
    cellar_destroy(memory);
}

static bool count_rows(void *context, const cellar_move *move)
{
    *(uint32_t *)context += move->n;
    return true;
}

/* Room for the moves was counted for the largest group only (lib/group.c, reserve_far). */
static void a_copy_between_pools_has_room_for_the_moves_of_every_group(void **state)
{
    (void)state;
    cellar_layer layers[4];
    for (uint32_t i = 0; i < 4; i++) {
        layers[i] = external_layer(true);
        if (i > 0) layers[i].window = (cellar_window){CELLAR_WINDOW_STANDARD, 60 + i, 0};
    }
    cellar_config config = config_of(layers, 4, 128);
    config.n_pools = 2;
    cellar_memory *memory = create(&config);
    rows r = {0};
    append(memory, &r, A, 10, 16);
    assert_int_equal(cellar_divide(memory, A, 0, -1, 2, NULL), CELLAR_OK); /* a run for each */
    assert_int_equal(cellar_copy(memory, A, B, 0, -1, NULL), CELLAR_OK);
    uint32_t n = 0;
    assert_int_equal(cellar_visit_moves(memory, count_rows, &n, NULL), CELLAR_OK);
    assert_int_equal(n, 4 * 16);
    assert_int_equal(cellar_check(memory, NULL), CELLAR_OK);
    cellar_destroy(memory);
}

static void settling_turns_rows(void **state)
{
    (void)state;
    cellar_layer layer = external_layer(true);
    cellar_config config = config_of(&layer, 1, 128);
    cellar_memory *memory = create(&config);
    cellar_token kept[40];
    rows r = {0};
    append(memory, &r, A, 0, 40);
    assert_int_equal(cellar_copy(memory, A, B, 0, 10, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift_context(memory, A, 3, 4, NULL, NULL), CELLAR_OK);
    for (int i = 0; i < 36; i++)
        kept[i] = i < 3 ? i : i + 4;
    expect_tokens(memory, &r, A, kept, 36);
    assert_int_equal(cellar_settle(memory, A, NULL), CELLAR_OK);
    expect_pending_moves(memory);
    apply_moves(memory, &r);
    assert_int_equal(r.n_turned, 33); /* three of them shared, which go elsewhere */
    assert_int_equal(r.n_moved, 3);
    expect_tokens(memory, &r, A, kept, 36);
    cellar_sequence_info info;
    assert_int_equal(cellar_get_sequence(memory, A, &info, NULL), CELLAR_OK);
    assert_int_equal(info.n_shifts, 0);
    static const cellar_token twin[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    expect_tokens(memory, &r, B, twin, 10);
    assert_int_equal(cellar_check(memory, NULL), CELLAR_OK);
    append(memory, &r, A, 200, 5);
    cellar_destroy(memory);
}

/* ---- shifts ---------------------------------------------------------------------------------- */

static void masks_of_shifted_keys_are_refused(void **state)
{
    (void)state;
    cellar_layer layers[2] = {external_layer(true), external_layer(false)};
    float bias[8] = {0};
    layers[0].buckets = (cellar_buckets){4, 8, false, bias};
    cellar_config config = config_of(layers, 2, 64);
    cellar_memory *memory = create(&config);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 12;
    for (int round = 0; round < 4; round++) {
        float mask[12 * 64];
        int32_t buckets[12 * 64];
        uint32_t indptr[2], indices[64], last;
        cellar_extent extent;
        cellar_error error = {0};
        if (round == 1)
            assert_int_equal(cellar_shift_context(memory, 0, 4, 3, NULL, NULL), CELLAR_OK);
        if (round == 2) {
            assert_int_equal(cellar_settle(memory, 0, NULL), CELLAR_OK);
            assert_int_equal(cellar_confirm_moves(memory, NULL), CELLAR_OK);
        }
        assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
        assert_int_equal(cellar_export_extent(memory, 0, 0, 1, &extent, NULL, 0, NULL), CELLAR_OK);
        mask[0] = 42;
        indptr[0] = 42;
        cellar_status wanted = round == 1 ? CELLAR_REFUSED : CELLAR_OK;
        assert_int_equal(cellar_export_mask(memory, 0, 0, extent.n_kv, CELLAR_F32, mask, &error),
                         wanted);
        if (round == 1) {
            assert_int_equal(error.reason, CELLAR_REASON_SHIFTED);
            assert_int_equal(error.at, 4);
            assert_non_null(strstr(error.message, "cellar_settle"));
            assert_true(mask[0] == 42);
        }
        assert_int_equal(cellar_export_pages(memory, 0, 0, 1, indptr, indices, 64, &last, &error),
                         wanted);
        assert_int_equal(indptr[0], round == 1 ? 42 : 0);
        assert_int_equal(cellar_export_buckets(memory, 0, 0, extent.n_kv, buckets, NULL),
                         CELLAR_OK);
        /* keys that are not rotated stand wherever they stand */
        assert_int_equal(cellar_export_mask(memory, 0, 1, extent.n_kv, CELLAR_F32, mask, NULL),
                         CELLAR_OK);
        for (uint32_t l = 0; l < 2; l++)
            assert_int_equal(cellar_confirm(memory, 0, l, NULL), CELLAR_OK);
        if (round == 1)
            cellar_abort(memory);
        else
            assert_int_equal(cellar_commit(memory, NULL), CELLAR_OK);
    }
    cellar_destroy(memory);
}

/* A distance beyond the largest half must not hide the key. */
static void far_keys_stay_visible_in_halves(void **state)
{
    (void)state;
    cellar_layer layer = external_layer(false);
    layer.alibi_max_bias = 8;
    cellar_config config = config_of(&layer, 1, 32);
    cellar_memory *memory = create(&config);
    rows r = {0};
    uint16_t mask[32];
    float exact[32];
    int64_t row;
    append(memory, &r, 0, 0, 2);
    assert_int_equal(cellar_shift(memory, 0, 1, -1, 70000, NULL), CELLAR_OK);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_mask(memory, 0, 0, 32, CELLAR_F16, mask, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_mask(memory, 0, 0, 32, CELLAR_F32, exact, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_rows(memory, 0, 0, &row, NULL), CELLAR_OK);
    uint32_t n_farthest = 0;
    for (int i = 0; i < 32; i++) {
        n_farthest += mask[i] == 0xfbff && exact[i] == -70002.0f; /* -65504 */
        assert_true((mask[i] == 0xfc00) == (isinf(exact[i]) != 0));
    }
    assert_int_equal(n_farthest, 1);
    assert_int_equal(mask[row], 0);
    cellar_destroy(memory);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void the_largest_extent_is_that_of_a_full_memory(void **state)
{
    (void)state;
    cellar_layer layer = external_layer(true);
    for (uint32_t n_pools = 1; n_pools <= 4; n_pools++) {
        cellar_config config = config_of(&layer, 1, 120);
        config.n_pools = n_pools;
        cellar_memory *memory = create(&config);
        rows r = {0};
        cellar_extent largest, extent;
        cellar_stream streams[4];
        cellar_group_info info;
        assert_int_equal(cellar_export_largest(memory, 0, 7, &largest, NULL), CELLAR_OK);
        assert_int_equal(cellar_get_group(memory, 0, &info, NULL), CELLAR_OK);
        assert_int_equal(largest.n_streams, n_pools);
        for (uint32_t p = 0; p < n_pools; p++)
            append(memory, &r, (cellar_seq)p, 0, 120 / n_pools - 1 > 59 ? 59 : 120 / n_pools - 1);
        if (n_pools == 1) append(memory, &r, 0, 59, 60);
        cellar_seq seqs[] = {0, 1, 2, 3};
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = n_pools;
        batch.seqs = seqs;
        assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
        assert_int_equal(cellar_export_extent(memory, 0, 0, 32, &extent, streams, 4, NULL),
                         CELLAR_OK);
        assert_int_equal(extent.n_streams, largest.n_streams);
        assert_int_equal(extent.n_kv, largest.n_kv);
        for (uint32_t s = 0; s < n_pools; s++) {
            assert_int_equal(streams[s].pool, s);
            assert_int_equal(streams[s].first, s);
            assert_int_equal(streams[s].n_tokens, 1);
            assert_true(streams[s].first_cell + extent.n_kv <= info.n_cells);
        }
        cellar_destroy(memory);
    }
}

static void elements_are_rows_of_the_transposed_tensor(void **state)
{
    (void)state;
    cellar_layer layer = external_layer(true);
    cellar_config config = config_of(&layer, 1, 100);
    cellar_memory *memory = create(&config);
    cellar_group_info info;
    int64_t rows_of[5], elements[5 * 4];
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 5;
    assert_int_equal(cellar_get_group(memory, 0, &info, NULL), CELLAR_OK);
    assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_rows(memory, 0, 0, rows_of, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_elements(memory, 0, 0, elements, NULL), CELLAR_OK);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 4; j++)
            assert_int_equal(elements[i * 4 + j], (int64_t)j * info.n_cells + rows_of[i]);
    cellar_destroy(memory);
}

/* ---- what is refused ------------------------------------------------------------------------- */

typedef struct arrays {
    cellar_extent extent;
    cellar_stream streams[4];
    int64_t rows[64];
    float mask[16 * 64];
    int32_t buckets[16 * 64];
    uint32_t indptr[17], indices[64], last[16];
} arrays;

/* Every export of a layer answers INVALID. */
static void expect_all_invalid(const cellar_memory *memory, uint32_t ubatch, uint32_t layer)
{
    arrays a;
    cellar_error error = {0};
    assert_int_equal(cellar_export_extent(memory, ubatch, layer, 1, &a.extent, NULL, 0, &error),
                     CELLAR_INVALID);
    assert_int_not_equal(error.message[0], 0);
    assert_int_equal(cellar_export_rows(memory, ubatch, layer, a.rows, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_export_elements(memory, ubatch, layer, a.rows, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_export_mask(memory, ubatch, layer, 64, CELLAR_F32, a.mask, NULL),
                     CELLAR_INVALID);
    assert_int_equal(cellar_export_buckets(memory, ubatch, layer, 64, a.buckets, NULL),
                     CELLAR_INVALID);
    assert_int_equal(
        cellar_export_pages(memory, ubatch, layer, 1, a.indptr, a.indices, 64, a.last, NULL),
        CELLAR_INVALID);
}

static void expect_null_refused(const cellar_memory *memory)
{
    arrays a;
    assert_int_equal(cellar_export_extent(memory, 0, 0, 1, NULL, NULL, 0, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_export_extent(memory, 0, 0, 1, &a.extent, NULL, 4, NULL),
                     CELLAR_INVALID);
    assert_int_equal(cellar_export_largest(memory, 0, 1, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_export_rows(memory, 0, 0, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_export_elements(memory, 0, 0, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_export_mask(memory, 0, 0, 64, CELLAR_F32, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_export_buckets(memory, 0, 0, 64, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_export_pages(memory, 0, 0, 1, NULL, a.indices, 64, a.last, NULL),
                     CELLAR_INVALID);
    assert_int_equal(cellar_export_pages(memory, 0, 0, 1, a.indptr, NULL, 64, a.last, NULL),
                     CELLAR_INVALID);
    assert_int_equal(cellar_export_pages(memory, 0, 0, 1, a.indptr, a.indices, 64, NULL, NULL),
                     CELLAR_INVALID);
    assert_int_equal(cellar_visit_moves(memory, NULL, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_visit_moves(NULL, count_move, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_confirm_moves(NULL, NULL), CELLAR_INVALID);
}

/* Layer 0 attends in an open step of 12 tokens, two sequences, in 64 cells. */
static void expect_bad_numbers_refused(const cellar_memory *memory)
{
    arrays a, untouched;
    memset(&a, 0x55, sizeof a);
    untouched = a;
    cellar_error error = {0};
    assert_int_equal(cellar_export_extent(memory, 0, 0, 0, &a.extent, NULL, 0, NULL),
                     CELLAR_INVALID);
    assert_int_equal(cellar_export_largest(memory, 0, 0, &a.extent, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_export_largest(memory, 3, 1, &a.extent, NULL), CELLAR_INVALID);
    static const uint32_t n_kv[] = {0, 11, 65, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(cellar_export_mask(memory, 0, 0, n_kv[i], CELLAR_F32, a.mask, NULL),
                         CELLAR_INVALID);
        assert_int_equal(cellar_export_buckets(memory, 0, 0, n_kv[i], a.buckets, NULL),
                         CELLAR_INVALID);
    }
    assert_int_equal(cellar_export_mask(memory, 0, 0, 64, CELLAR_BF16, a.mask, NULL),
                     CELLAR_INVALID);
    static const uint32_t sizes[] = {0, 3, 128};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(
            cellar_export_pages(memory, 0, 0, sizes[i], a.indptr, a.indices, 64, a.last, NULL),
            CELLAR_INVALID);
    for (uint32_t room = 0; room < 12; room++) {
        assert_int_equal(cellar_export_pages(memory, 0, 0, 1, a.indptr, room ? a.indices : NULL,
                                             room, a.last, &error),
                         CELLAR_INVALID);
        assert_int_equal(error.at, 12);
    }
    assert_memory_equal(&a, &untouched, sizeof a);
    assert_int_equal(cellar_export_pages(memory, 0, 0, 1, a.indptr, a.indices, 12, a.last, NULL),
                     CELLAR_OK);
    assert_int_equal(cellar_export_extent(memory, 0, 0, UINT32_MAX, &a.extent, a.streams, 4, NULL),
                     CELLAR_OK);
    assert_int_equal(a.extent.n_kv, 64);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    static const uint32_t state_size = 4;
    cellar_layer layers[3] = {external_layer(true), cellar_layer_init(), cellar_layer_init()};
    float bias[8] = {0};
    layers[0].buckets = (cellar_buckets){4, 8, false, bias};
    layers[1].kind = CELLAR_LAYER_RECURRENT;
    layers[1].n_states = 1;
    layers[1].state_sizes = &state_size;
    layers[2].kind = CELLAR_LAYER_NONE;
    cellar_config config = config_of(layers, 3, 64);
    config.n_sequences = 2;
    cellar_memory *memory = create(&config);
    expect_all_invalid(NULL, 0, 0);
    expect_all_invalid(memory, 0, 0); /* no step */
    cellar_seq seqs[12] = {A, A, A, A, A, A, B, B, B, B, B, B};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 12;
    batch.seqs = seqs;
    assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
    for (uint32_t layer = 1; layer < 5; layer++)
        expect_all_invalid(memory, 0, layer);
    expect_all_invalid(memory, cellar_count_ubatches(memory), 0);
    expect_null_refused(memory);
    expect_bad_numbers_refused(memory);
    cellar_abort(memory);
    expect_all_invalid(memory, 0, 0);
    cellar_destroy(memory);
}

static void too_many_streams_are_refused(void **state)
{
    (void)state;
    cellar_layer layer = external_layer(true);
    cellar_config config = config_of(&layer, 1, 96);
    config.n_pools = 3;
    cellar_memory *memory = create(&config);
    cellar_seq seqs[3] = {2, 0, 1};
    cellar_batch batch = cellar_batch_init();
    cellar_extent extent = {7, 7};
    cellar_stream streams[3] = {{.pool = 9}};
    cellar_error error = {0};
    batch.n_tokens = 3;
    batch.seqs = seqs;
    assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_extent(memory, 0, 0, 1, &extent, streams, 2, &error),
                     CELLAR_INVALID);
    assert_int_equal(error.at, 3);
    assert_true(extent.n_kv == 7 && streams[0].pool == 9);
    assert_int_equal(cellar_export_extent(memory, 0, 0, 1, &extent, NULL, 0, NULL), CELLAR_OK);
    assert_int_equal(extent.n_streams, 3);
    assert_int_equal(extent.n_kv, 1);
    cellar_destroy(memory);
}

/* Without EQUAL splits the tokens of a pool can lie apart: one stream over everything. */
static void scattered_pools_are_one_stream(void **state)
{
    (void)state;
    cellar_layer layer = external_layer(true);
    cellar_config config = config_of(&layer, 1, 128);
    config.n_pools = 2;
    config.split = CELLAR_SPLIT_SIMPLE;
    cellar_memory *memory = create(&config);
    cellar_seq seqs[] = {0, 1, 0};
    cellar_batch batch = cellar_batch_init();
    cellar_extent extent, largest;
    cellar_stream stream;
    batch.n_tokens = 3;
    batch.seqs = seqs;
    assert_int_equal(cellar_begin(memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_export_extent(memory, 0, 0, 1, &extent, &stream, 1, NULL), CELLAR_OK);
    assert_int_equal(extent.n_streams, 1);
    assert_int_equal(extent.n_kv, 65); /* the second pool begins at cell 64 */
    assert_int_equal(stream.first_cell, 0);
    assert_int_equal(stream.n_cells, 128);
    assert_int_equal(stream.n_tokens, 3);
    assert_int_equal(cellar_export_largest(memory, 0, 1, &largest, NULL), CELLAR_OK);
    assert_int_equal(largest.n_kv, 128);
    cellar_destroy(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_between_pools_moves_rows),
        cmocka_unit_test(a_copy_between_pools_has_room_for_the_moves_of_every_group),
        cmocka_unit_test(settling_turns_rows),
        cmocka_unit_test(masks_of_shifted_keys_are_refused),
        cmocka_unit_test(far_keys_stay_visible_in_halves),
        cmocka_unit_test(the_largest_extent_is_that_of_a_full_memory),
        cmocka_unit_test(elements_are_rows_of_the_transposed_tensor),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(too_many_streams_are_refused),
        cmocka_unit_test(scattered_pools_are_one_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
