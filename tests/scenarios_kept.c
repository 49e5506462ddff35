/*
 * scenarios_kept.c: D27 again: which checkpoints stay, and which are made at all.
 *
 * A checkpoint is worth something as long as nothing before it changes; so shifts, removals and copies
 * that leave a beginning alone must leave its checkpoints alone too. A step makes them with what is left when
 * everything else has room.
 */
#include "scenarios.h"

#include <string.h>

enum { A, B };

static const uint32_t state_sizes[] = {16, 48};

/* The checkpoints of a sequence are exactly at these positions (n of them). */
static bool has_checkpoints(const drive *d, cellar_seq seq, uint32_t n, const cellar_pos *want)
{
    cellar_pos positions[16];
    uint32_t found = play_checkpoints(d, seq, positions, 16);
    return found == n && (n == 0 || memcmp(positions, want, n * sizeof *want) == 0);
}

/* A window beside full attention, with room for checkpoints. */
static void open_window(drive *d)
{
    cellar_config config = scenario_config(256, 4);
    memset(d, 0, sizeof *d);
    d->seed = 56;
    d->n_layers = 2;
    d->layers[0] = scenario_window_layer(CELLAR_WINDOW_STANDARD, 8);
    d->layers[1] = scenario_layer(CELLAR_F32, 8);
    config.checkpoint_bytes = 64 * 2 * 2 * 8 * sizeof(float); /* 64 cells of the window */
    scenario_make(d, &config);
}

static void d27_before(void)
{
    static const cellar_pos places[] = {20, 40};
    drive d;
    open_window(&d);
    for (int32_t i = 0; i < 60; i += 20) {
        CHECK(play_append(&d, A, i, 20, NULL, NULL) == CELLAR_OK);
        if (i < 40) CHECK(cellar_checkpoint(d.memory, A, NULL) == CELLAR_OK);
    }
    CHECK(cellar_shift(d.memory, A, 70, -1, -60, NULL) == CELLAR_OK); /* nothing is there */
    CHECK(cellar_divide(d.memory, A, 60, 80, 4, NULL) == CELLAR_OK);
    CHECK(cellar_remove(d.memory, A, 60, -1, NULL) == CELLAR_OK);
    CHECK(has_checkpoints(&d, A, 2, places));
    CHECK(cellar_shift(d.memory, A, 58, -1, 30, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 70, -1, -20, NULL) == CELLAR_OK); /* comes to stand at 68 */
    CHECK(has_checkpoints(&d, A, 2, places));
    CHECK(cellar_remove(d.memory, A, 30, 40, NULL) == CELLAR_OK);
    CHECK(has_checkpoints(&d, A, 1, places));
    CHECK(cellar_shift(d.memory, A, 68, -1, -50, NULL) == CELLAR_REFUSED);
    CHECK(cellar_shift(d.memory, A, 68, -1, -33, NULL) == CELLAR_OK); /* to 35 */
    CHECK(has_checkpoints(&d, A, 1, places));
    CHECK(cellar_remove(d.memory, A, 10, 14, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 35, 37, -25, NULL) == CELLAR_OK); /* to 10 */
    CHECK(has_checkpoints(&d, A, 0, NULL) && cellar_check(d.memory, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* A sequence that begins at 8 has its checkpoint where [8, ..) of it goes, as all of it would. */
static void d27_late(void)
{
    static const cellar_pos place = 14;
    drive d;
    open_window(&d);
    CHECK(play_append(&d, A, 0, 6, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_shift(d.memory, A, 0, -1, 8, NULL) == CELLAR_OK);
    CHECK(cellar_checkpoint(d.memory, A, NULL) == CELLAR_OK && has_checkpoints(&d, A, 1, &place));
    CHECK(cellar_remove(d.memory, A, 0, 8, NULL) == CELLAR_OK); /* nothing is there */
    CHECK(has_checkpoints(&d, A, 1, &place));
    CHECK(cellar_copy(d.memory, A, B, 8, -1, NULL) == CELLAR_OK);
    CHECK(has_checkpoints(&d, B, 1, &place));
    drive_close(&d);
}

/* The states of rollback_bytes come before those of checkpoints that a step makes on its way. */
static void d27_rollback(void)
{
    enum { N = 8 };
    drive d;
    bool checkpoints[N] = {true};
    cellar_token tokens[N];
    cellar_batch batch = cellar_batch_init();
    cellar_config config = scenario_config(64, 4);
    memset(&d, 0, sizeof d);
    d.seed = 54;
    d.n_layers = 1;
    d.layers[0] = play_recurrent_layer(state_sizes, 2);
    config.rollback_bytes = 2 * play_state_bytes(&d); /* with them six states */
    config.checkpoint_interval = 1000;
    scenario_make(&d, &config);
    CHECK(play_append(&d, A, 0, 3, NULL, NULL) == CELLAR_OK);
    scenario_tokens(tokens, 3, N);
    batch.n_tokens = N;
    batch.tokens = tokens;
    batch.checkpoints = checkpoints;
    CHECK(play_step(&d, &batch, NULL, NULL) == CELLAR_OK);
    for (cellar_pos n = 11; n >= 9; n--)
        CHECK(cellar_can_continue(d.memory, A, n, NULL, NULL) == CELLAR_OK);
    CHECK(has_checkpoints(&d, A, 0, NULL));
    drive_close(&d);
}

/* Behind an image the next position is not behind the last one: a checkpoint is possible there too. */
static void d27_image(void)
{
    enum { N = 4 };
    static const cellar_pos positions[N] = {0, 1, 1, 1};
    static const cellar_point points[N] = {{0, 0}, {1, 1}, {1, 5}, {6, 1}};
    static const cellar_seq seqs[N] = {A, A, A, A};
    static const cellar_pos place = 2;
    drive d;
    cellar_token tokens[N];
    cellar_sequence_info info = {0};
    cellar_batch batch = cellar_batch_init();
    cellar_config config = scenario_config(64, 8);
    memset(&d, 0, sizeof d);
    d.seed = 55;
    d.n_layers = 1;
    d.layers[0] = scenario_window_layer(CELLAR_WINDOW_STANDARD, 8);
    d.layers[0].rope.kind = CELLAR_ROPE_MROPE;
    d.layers[0].rope.sections[0] = 2;
    d.layers[0].rope.sections[1] = d.layers[0].rope.sections[2] = 1;
    config.checkpoint_bytes = 4096;
    scenario_make(&d, &config);
    scenario_tokens(tokens, 0, N);
    batch.n_tokens = N;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.points = points;
    batch.seqs = seqs;
    CHECK(play_step(&d, &batch, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_get_sequence(d.memory, A, &info, NULL) == CELLAR_OK && info.pos_next == 7);
    CHECK(cellar_checkpoint(d.memory, A, NULL) == CELLAR_OK && has_checkpoints(&d, A, 1, &place));
    drive_close(&d);
}

const scenario scenarios_kept[] = {
    {"D27 what changes nothing before a checkpoint leaves it alone", d27_before},
    {"D27 a copy of all that a sequence holds shares its checkpoints", d27_late},
    {"D27 states to roll back to come before new checkpoints", d27_rollback},
    {"D27 a checkpoint behind an image", d27_image},
    {NULL, NULL},
};
