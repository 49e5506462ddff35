/*
 * support_session_case.c: see the header.
 *
 * A picture of the memory is taken before a file is tried and compared after a refusal, so that "nothing has
 * changed" means everything that a caller can see.
 */
#include "support_session_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *const case_names[CASE_SHAPES] = {"plain", "window", "hybrid", "picture"};

static const uint32_t state_sizes[2] = {4, 6};

static void must(cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) fail_msg("%s: %s", cellar_status_text(status), error->message);
}

/* ---- the two memories ---------------------------------------------------------------------------- */

static cellar_layer attention_layer(void)
{
    cellar_layer layer = drive_layer(2, 1, 4, 4);
    layer.rope.kind = CELLAR_ROPE_NEOX;
    return layer;
}

void case_layers(drive *d, case_shape shape)
{
    memset(d, 0, sizeof *d);
    d->seed = 71;
    d->n_layers = 2;
    d->layers[0] = d->layers[1] = attention_layer();
    if (shape == CASE_PLAIN) d->layers[1].reads_layer = 0;
    if (shape == CASE_WINDOW) {
        d->layers[1].window = (cellar_window){CELLAR_WINDOW_STANDARD, 6, 2};
        d->layers[1].rope.kind = CELLAR_ROPE_NORMAL;
    }
    if (shape == CASE_HYBRID) d->layers[1] = play_recurrent_layer(state_sizes, 2);
    if (shape != CASE_PICTURE) return;
    for (uint32_t l = 0; l < 2; l++) {
        d->layers[l].rope.kind = CELLAR_ROPE_MROPE;
        d->layers[l].rope.sections[0] = d->layers[l].rope.sections[1] = 1;
    }
}

static cellar_config config_of(uint32_t n_cells)
{
    cellar_config config = cellar_config_init();
    config.n_cells = n_cells;
    config.n_ubatch = 8;
    config.n_sequences = 4;
    config.checkpoint_bytes = 4096;
    return config;
}

static void append(drive *d, cellar_seq seq, cellar_token first, uint32_t n)
{
    cellar_error error = {0};
    must(play_append(d, seq, first, n, NULL, &error), &error);
}

/* An image of three by two tokens at one position each row. */
static void show_picture(drive *d, cellar_seq seq)
{
    cellar_pos at = cellar_position_max(d->memory, seq) + 1;
    cellar_token tokens[6];
    cellar_pos positions[6];
    cellar_point points[6];
    cellar_seq seqs[6];
    cellar_error error = {0};
    for (int i = 0; i < 6; i++) {
        tokens[i] = 700 + i;
        seqs[i] = seq;
        positions[i] = at;
        points[i] = (cellar_point){at + i / 3, at + i % 3};
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 6;
    batch.tokens = tokens;
    batch.seqs = seqs;
    batch.positions = positions;
    batch.points = points;
    must(play_step(d, &batch, NULL, &error), &error);
}

/* 20 tokens, of which a fork shares twelve; shifts and checkpoints where the shape has them. */
static void tell_story(session_case *c)
{
    drive *d = &c->saver;
    cellar_error error = {0};
    append(d, CASE_LONG, 10, 8);
    must(cellar_checkpoint(d->memory, CASE_LONG, &error), &error);
    append(d, CASE_LONG, 18, CASE_SHARED - 8);
    must(cellar_checkpoint(d->memory, CASE_LONG, &error), &error);
    must(cellar_copy(d->memory, CASE_LONG, CASE_FORK, 0, -1, &error), &error);
    append(d, CASE_FORK, 500, CASE_FORK_MORE);
    if (c->shape == CASE_PICTURE) show_picture(d, CASE_LONG);
    append(d, CASE_LONG, 22, CASE_TOKENS - CASE_SHARED);
    if (c->shape == CASE_PLAIN) {
        must(cellar_remove(d->memory, CASE_FORK, 3, 5, &error), &error);
        must(cellar_shift(d->memory, CASE_FORK, 5, -1, -2, &error), &error);
    }
}

cellar_save_options case_save_options(void)
{
    static const cellar_note facts[2] = {{"architecture", "test", 4}, {"weights", "0123", 4}};
    static const cellar_note notes[2] = {{"title", "a story", 7}, {"empty", NULL, 0}};
    static const cellar_token log[5] = {10, 11, 12, 13, 14};
    static const cellar_log logs[2] = {{CASE_FORK, 5, log}, {CASE_LONG, 3, log}};
    cellar_save_options options = cellar_save_options_init();
    options.facts = facts;
    options.n_facts = 2;
    options.notes = notes;
    options.n_notes = 2;
    options.logs = logs;
    options.n_logs = 2;
    return options;
}

cellar_load_options case_load_options(void)
{
    cellar_load_options options = cellar_load_options_init();
    cellar_save_options saved = case_save_options();
    options.facts = saved.facts;
    options.n_facts = saved.n_facts;
    return options;
}

void case_open(session_case *c, case_shape shape)
{
    memset(c, 0, sizeof *c);
    c->shape = shape;
    case_layers(&c->saver, shape);
    case_layers(&c->d, shape);
    cellar_config config = config_of(64);
    cellar_error error = {0};
    must(drive_open(&c->saver, &config, &error), &error);
    tell_story(c);
    cellar_save_options options = case_save_options();
    must(parcel_write(&c->file, c->saver.memory, &options, &error), &error);
    config = config_of(80);
    config.allocator = limited_allocator(&c->memory);
    must(drive_open(&c->d, &config, &error), &error);
    append(&c->d, CASE_OWN_A, 900, 5);
    append(&c->d, CASE_OWN_B, 910, 7);
    must(cellar_checkpoint(c->d.memory, CASE_OWN_B, &error), &error);
    c->n_groups = cellar_count_groups(c->d.memory);
    assert_true(drive_snapshot_take(&c->before, c->d.memory));
}

void case_close(session_case *c)
{
    cellar_error error = {0};
    must(cellar_check(c->d.memory, &error), &error);
    drive_snapshot_free(&c->before);
    parcel_free(&c->file);
    drive_close(&c->saver);
    drive_close(&c->d);
    assert_int_equal(c->memory.held, 0);
}

/* ---- trying ------------------------------------------------------------------------------------------ */

void case_expect_unchanged(session_case *c, const char *what)
{
    drive_snapshot after = {0};
    char why[200];
    cellar_error error = {0};
    assert_true(drive_snapshot_take(&after, c->d.memory));
    if (!drive_snapshot_equal(&c->before, &after, why))
        fail_msg("%s, %s: something changed: %s", case_names[c->shape], what, why);
    drive_snapshot_free(&after);
    if (cellar_check(c->d.memory, &error) != CELLAR_OK)
        fail_msg("%s, %s: %s", case_names[c->shape], what, error.message);
}

/* What was loaded is sound, can be read on, and goes again. */
static void use_and_remove(session_case *c, const cellar_session *session)
{
    cellar_session_info info;
    cellar_error error = {0};
    must(cellar_check(c->d.memory, &error), &error);
    must(cellar_describe_session(session, &info, &error), &error);
    for (uint32_t i = 0; i < info.n_sequences; i++) {
        cellar_session_sequence its;
        must(cellar_get_session_sequence(session, i, &its, &error), &error);
        cellar_status status = play_probe(&c->d, its.seq + 100, 1, NULL);
        assert_true(status == CELLAR_OK || status == CELLAR_FULL || status == CELLAR_REPLAY ||
                    status == CELLAR_INVALID);
        must(cellar_check(c->d.memory, &error), &error);
        must(cellar_remove(c->d.memory, its.seq + 100, 0, -1, &error), &error);
    }
}

static cellar_status load(session_case *c, const cellar_session *session)
{
    enum { MOST = 16 };
    cellar_seq from[MOST], as[MOST];
    cellar_session_info info;
    cellar_load_options options = case_load_options();
    cellar_status status = cellar_describe_session(session, &info, &c->error);
    for (uint32_t i = 0; status == CELLAR_OK && i < info.n_sequences && i < MOST; i++) {
        cellar_session_sequence its;
        status = cellar_get_session_sequence(session, i, &its, &c->error);
        from[i] = its.seq;
        as[i] = its.seq + 100;
    }
    if (status != CELLAR_OK) return status;
    options.sequences = from;
    options.as = as;
    options.n_sequences = info.n_sequences < MOST ? info.n_sequences : MOST;
    return cellar_load_session(c->d.memory, session, &options, &c->error);
}

cellar_status case_try(session_case *c, const unsigned char *bytes, size_t size)
{
    unsigned char *exact = parcel_exact(bytes, size);
    cellar_allocator allocator = limited_allocator(&c->memory);
    cellar_session *session = NULL;
    size_t held = c->memory.held;
    c->memory.limit = held + size + (1u << 20);
    c->memory.n_refused = 0;
    memset(&c->error, 0, sizeof c->error);
    cellar_status status = cellar_open_session_bytes(exact, size, &allocator, &session, &c->error);
    assert_true((status == CELLAR_OK) == (session != NULL));
    if (status == CELLAR_OK) status = load(c, session);
    assert_int_equal(c->memory.n_refused, 0);
    if (status == CELLAR_OK)
        use_and_remove(c, session);
    else
        assert_true(c->error.status == status && c->error.message[0] != 0);
    cellar_close_session(session);
    c->memory.limit = 0;
    *(status == CELLAR_OK ? &c->n_loaded : &c->n_refused) += 1;
    free(exact);
    return status;
}
