/*
 * unit_session_convert.c: a session comes to a memory of other row types, or to one of another model.
 *
 * Rows that are converted are the bits that a memory would hold if it had been handed the numbers that
 * the saved rows stand for. Turned rows (Hadamard) are turned back on the way. Another model is refused,
 * with the name of what differs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/drive.h"
#include "support_session.h"

enum { SIZE = 64, HEADS = 2, TOKENS = 45, FLOATS = TOKENS * HEADS * SIZE };

static const cellar_type types[] = {CELLAR_F32,  CELLAR_F16,  CELLAR_BF16,
                                    CELLAR_Q8_0, CELLAR_Q5_1, CELLAR_Q5_0,
                                    CELLAR_Q4_1, CELLAR_Q4_0, CELLAR_IQ4_NL};
enum { TYPES = sizeof types / sizeof *types };

static void must(cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) fail_msg("%s: %s", cellar_status_text(status), error->message);
}

/* One layer whose keys are not rotated by position, so that rows can be handed over as they were read. */
static void open_memory(drive *d, cellar_type type, bool is_turned)
{
    cellar_config config = cellar_config_init();
    cellar_error error = {0};
    memset(d, 0, sizeof *d);
    d->seed = 5;
    d->n_layers = 1;
    d->layers[0] = drive_layer(HEADS, HEADS, SIZE, SIZE);
    d->layers[0].k_type = d->layers[0].v_type = type;
    d->layers[0].rotate_k = d->layers[0].rotate_v = is_turned;
    config.n_cells = 96;
    config.n_ubatch = TOKENS;
    must(drive_open(d, &config, &error), &error);
}

static void load(drive *d, const parcel *file)
{
    cellar_session *session;
    cellar_error error = {0};
    cellar_load_options options = cellar_load_options_init();
    must(cellar_open_session_bytes(file->bytes, file->size, NULL, &session, &error), &error);
    must(cellar_load_session(d->memory, session, &options, &error), &error);
    cellar_close_session(session);
    must(cellar_check(d->memory, &error), &error);
}

/* Rows as numbers. */
typedef struct rows {
    float k[FLOATS], v[FLOATS];
} rows;

static void read_rows(const drive *d, rows *to)
{
    cellar_error error = {0};
    must(cellar_read_rows(d->memory, 0, 0, 0, TOKENS, to->k, to->v, &error), &error);
}

static void store_rows(drive *d, const rows *from)
{
    cellar_token tokens[TOKENS] = {0};
    cellar_batch batch = cellar_batch_init();
    cellar_error error = {0};
    batch.n_tokens = TOKENS;
    batch.tokens = tokens;
    must(cellar_begin(d->memory, &batch, &error), &error);
    assert_int_equal(cellar_count_ubatches(d->memory), 1);
    must(cellar_store(d->memory, 0, 0, from->k, from->v, &error), &error);
    must(cellar_commit(d->memory, &error), &error);
}

/* Equal bits, or (both turned: one is turned back and forth on the way) equal up to a step of the type. */
static void expect_same(const rows *a, const rows *b, bool is_close, const char *what)
{
    if (!is_close) {
        if (memcmp(a, b, sizeof *a) != 0) fail_msg("%s: other rows", what);
        return;
    }
    for (uint32_t i = 0; i < FLOATS; i++)
        if (a->k[i] - b->k[i] > 0.08f || b->k[i] - a->k[i] > 0.08f || a->v[i] - b->v[i] > 0.08f ||
            b->v[i] - a->v[i] > 0.08f)
            fail_msg("%s: rows far away from each other", what);
}

static void convert(cellar_type from, bool from_turned, cellar_type to, bool to_turned)
{
    static rows saved, loaded, expected;
    drive a, b, c;
    parcel file = {0};
    cellar_error error = {0};
    char what[80];
    snprintf(what, sizeof what, "%s%s to %s%s", cellar_type_name(from),
             from_turned ? ", turned" : "", cellar_type_name(to), to_turned ? ", turned" : "");
    open_memory(&a, from, from_turned);
    open_memory(&b, to, to_turned);
    open_memory(&c, to, to_turned);
    must(drive_append(&a, 0, 100, TOKENS, NULL), &error);
    must(drive_append(&b, 7, 300, 5, NULL), &error); /* other cells, other tiles */
    must(parcel_write(&file, a.memory, NULL, &error), &error);
    load(&b, &file);
    read_rows(&a, &saved);
    store_rows(&c, &saved);
    read_rows(&b, &loaded);
    read_rows(&c, &expected);
    if (from == to && from_turned == to_turned)
        expect_same(&loaded, &saved, false, what);
    else
        expect_same(&loaded, &expected, from_turned && to_turned, what);
    parcel_free(&file);
    drive_close(&a);
    drive_close(&b);
    drive_close(&c);
}

static void rows_are_what_storing_their_numbers_gives(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TYPES; i++)
        for (uint32_t k = 0; k < TYPES; k++)
            for (uint32_t turned = 0; turned < 4; turned++)
                convert(types[i], turned & 1, types[k], turned & 2);
}

/* f16 holds what q8_0 stands for closely enough that a way there and back changes nothing more. */
static void there_and_back_again(void **state)
{
    (void)state;
    static rows once, twice;
    drive a, b, c, d;
    parcel file = {0}, second = {0}, third = {0};
    cellar_error error = {0};
    open_memory(&a, CELLAR_F32, false);
    open_memory(&b, CELLAR_Q8_0, false);
    open_memory(&c, CELLAR_F32, false);
    open_memory(&d, CELLAR_Q8_0, false);
    must(drive_append(&a, 0, 100, TOKENS, NULL), &error);
    must(parcel_write(&file, a.memory, NULL, &error), &error);
    load(&b, &file);
    must(parcel_write(&second, b.memory, NULL, &error), &error);
    assert_true(second.size < file.size / 2);
    load(&c, &second);
    read_rows(&b, &once);
    read_rows(&c, &twice);
    expect_same(&once, &twice, false, "q8_0 to f32");
    must(parcel_write(&third, c.memory, NULL, &error), &error);
    load(&d, &third);
    read_rows(&d, &twice);
    expect_same(&once, &twice, true, "and back");
    parcel_free(&file);
    parcel_free(&second);
    parcel_free(&third);
    drive_close(&a);
    drive_close(&b);
    drive_close(&c);
    drive_close(&d);
}

/* ---- another model ---------------------------------------------------------------------------------------- */

/* Two layers: full attention and a window, of which each test changes one thing. */
static void plan_model(drive *d)
{
    memset(d, 0, sizeof *d);
    d->seed = 5;
    d->n_layers = 2;
    d->layers[0] = d->layers[1] = drive_layer(4, 2, 8, 8);
    d->layers[0].rope.kind = d->layers[1].rope.kind = CELLAR_ROPE_NEOX;
    d->layers[1].window = (cellar_window){CELLAR_WINDOW_STANDARD, 16, 2};
}

static cellar_status make_model(drive *d, cellar_error *error)
{
    cellar_config config = cellar_config_init();
    config.n_cells = 64;
    config.n_ubatch = 8;
    return drive_open(d, &config, error);
}

static const float some_factors[4] = {1, 2, 1, 1};

static void change_model(drive *d, uint32_t which)
{
    cellar_layer *layer = &d->layers[1];
    switch (which) {
    case 0:
        layer->n_heads = 2;
        break;
    case 1:
        layer->n_kv_heads = 4;
        break;
    case 2:
        layer->k_size = 4;
        break;
    case 3:
        layer->v_size = 4;
        break;
    case 4:
        layer->scale = 0.25f;
        break;
    case 5:
        layer->is_causal = false;
        break;
    case 6:
        layer->window.kind = CELLAR_WINDOW_CHUNKED;
        break;
    case 7:
        layer->window.size = 17;
        break;
    case 8:
        layer->window.n_sinks = 3;
        break;
    case 9:
        layer->reads_layer = -1;
        d->n_layers = 1;
        break;
    case 10:
        layer->softcap = 30;
        break;
    case 11:
        layer->alibi_max_bias = 8;
        break;
    case 12:
        layer->rope.kind = CELLAR_ROPE_NORMAL;
        break;
    case 13:
        layer->rope.base = 500000;
        break;
    case 14:
        layer->rope.scale = 0.5;
        break;
    case 15:
        layer->rope.n_rot = 4;
        break;
    case 16:
        layer->rope.first = 4;
        layer->rope.n_rot = 4;
        break;
    case 17:
        layer->rope.factors = some_factors;
        break;
    case 18:
        layer->rope.yarn_attn = 0.5;
        break;
    default:
        layer->v_in_k = true;
        layer->rope.kind = CELLAR_ROPE_NONE; /* V is not rotated */
        break;
    }
}

static const char *const model_says[] = {
    "n_heads",     "n_kv_heads", "k_size", "v_size",  "scale",     "is_causal", "window.kind",
    "window.size", "n_sinks",    "layers", "softcap", "alibi",     "kind",      "base",
    "scale",       "n_rot",      "n_rot",  "factors", "yarn_attn", "v_in_k",
};
enum { MODEL_CHANGES = sizeof model_says / sizeof *model_says };

static void another_model_is_refused_by_what_differs(void **state)
{
    (void)state;
    drive saver;
    parcel file = {0};
    cellar_session *session;
    cellar_error error = {0};
    cellar_load_options options = cellar_load_options_init();
    plan_model(&saver);
    must(make_model(&saver, &error), &error);
    must(drive_append(&saver, 0, 100, 20, NULL), &error);
    must(parcel_write(&file, saver.memory, NULL, &error), &error);
    must(cellar_open_session_bytes(file.bytes, file.size, NULL, &session, &error), &error);
    for (uint32_t i = 0; i < MODEL_CHANGES; i++) {
        drive d;
        drive_snapshot before = {0}, after = {0};
        char why[200];
        plan_model(&d);
        change_model(&d, i);
        must(make_model(&d, &error), &error);
        must(drive_append(&d, 1, 100, 5, NULL), &error);
        assert_true(drive_snapshot_take(&before, d.memory));
        cellar_status status = cellar_load_session(d.memory, session, &options, &error);
        if (status != CELLAR_MISMATCH || !strstr(error.message, model_says[i]))
            fail_msg("%s: %s: %s", model_says[i], cellar_status_text(status), error.message);
        assert_int_equal(error.at, i == 9 ? -1 : 1);
        assert_true(drive_snapshot_take(&after, d.memory));
        if (!drive_snapshot_equal(&before, &after, why)) fail_msg("%s: %s", model_says[i], why);
        drive_snapshot_free(&before);
        drive_snapshot_free(&after);
        drive_close(&d);
    }
    drive same;
    plan_model(&same);
    must(make_model(&same, &error), &error);
    must(cellar_load_session(same.memory, session, &options, &error), &error);
    drive_close(&same);
    cellar_close_session(session);
    parcel_free(&file);
    drive_close(&saver);
}

/* ---- facts -------------------------------------------------------------------------------------------------- */

static void try_facts(const parcel *file, const cellar_note *facts, uint32_t n, bool ignores,
                      cellar_status want, const char *says)
{
    drive d;
    cellar_session *session;
    cellar_error error = {0};
    cellar_load_options options = cellar_load_options_init();
    options.facts = facts;
    options.n_facts = n;
    options.ignores_facts = ignores;
    plan_model(&d);
    must(make_model(&d, &error), &error);
    must(cellar_open_session_bytes(file->bytes, file->size, NULL, &session, &error), &error);
    assert_int_equal(cellar_load_session(d.memory, session, &options, &error), want);
    if (want != CELLAR_OK && !strstr(error.message, says)) fail_msg("%s: %s", says, error.message);
    if (want != CELLAR_OK) assert_int_equal(error.at, -1);
    assert_int_equal(cellar_position_max(d.memory, 0), want == CELLAR_OK ? 19 : -1);
    cellar_close_session(session);
    drive_close(&d);
}

static void facts_are_compared_by_name(void **state)
{
    (void)state;
    const cellar_note saved[3] = {
        {"weights", "\x01\x02\x03", 3}, {"tenant", "a", 1}, {"none", NULL, 0}};
    const cellar_note turned[3] = {saved[2], saved[0], saved[1]};
    const cellar_note other[3] = {saved[0], {"tenant", "b", 1}, saved[2]};
    const cellar_note longer[3] = {{"weights", "\x01\x02\x03\x04", 4}, saved[1], saved[2]};
    const cellar_note renamed[3] = {saved[0], {"tenants", "a", 1}, saved[2]};
    const cellar_note more[4] = {saved[0], saved[1], saved[2], {"adapter", "x", 1}};
    drive saver;
    parcel file = {0}, bare = {0};
    cellar_error error = {0};
    cellar_save_options options = cellar_save_options_init();
    options.facts = saved;
    options.n_facts = 3;
    plan_model(&saver);
    must(make_model(&saver, &error), &error);
    must(drive_append(&saver, 0, 100, 20, NULL), &error);
    must(parcel_write(&file, saver.memory, &options, &error), &error);
    must(parcel_write(&bare, saver.memory, NULL, &error), &error);
    try_facts(&file, saved, 3, false, CELLAR_OK, "");
    try_facts(&file, turned, 3, false, CELLAR_OK, "");
    try_facts(&file, other, 3, false, CELLAR_MISMATCH, "tenant");
    try_facts(&file, longer, 3, false, CELLAR_MISMATCH, "weights");
    try_facts(&file, renamed, 3, false, CELLAR_MISMATCH, "tenant");
    try_facts(&file, saved, 2, false, CELLAR_MISMATCH, "none");
    try_facts(&file, more, 4, false, CELLAR_MISMATCH, "adapter");
    try_facts(&file, NULL, 0, false, CELLAR_MISMATCH, "");
    try_facts(&file, NULL, 0, true, CELLAR_OK, "");
    try_facts(&bare, saved, 3, false, CELLAR_MISMATCH, "weights");
    try_facts(&bare, NULL, 0, false, CELLAR_OK, "");
    parcel_free(&file);
    parcel_free(&bare);
    drive_close(&saver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_what_storing_their_numbers_gives),
        cmocka_unit_test(there_and_back_again),
        cmocka_unit_test(another_model_is_refused_by_what_differs),
        cmocka_unit_test(facts_are_compared_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
