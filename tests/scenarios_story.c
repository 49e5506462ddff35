/*
 * scenarios_story.c: conversations that grow, fork, go back and are taken back at random, in
 * memories of every make. After each event the sequence it was about must answer its next token as
 * a memory does that read the same text and nothing else: equal to the last bit.
 *
 * Events that a memory cannot follow may be refused; then nothing has changed. What it says that it
 * can do, it must do: go on at a position, fork there, return to where it promised. The seeds are
 * fixed, so that a failure repeats.
 */
#include "scenarios.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 4, LONGEST = 200 };

typedef struct story {
    drive d;
    cellar_config config;
    uint64_t state; /* of the random numbers */
    cellar_token next_token;
    cellar_token texts[SEQUENCES][LONGEST];
    uint32_t lengths[SEQUENCES];
    uint32_t n_refused, n_done;
} story;

static uint32_t below(story *s, uint32_t n)
{
    return random_below(&s->state, n);
}

/* The sequence holds its text, and answers as read plainly. */
static bool is_right(story *s, cellar_seq seq)
{
    cellar_token text[LONGEST + 1];
    uint32_t n = s->lengths[seq];
    cellar_sequence_info info;
    /* Not pos_max: where a chunk ends, the next token sees nothing and all cells may be gone. */
    if (cellar_get_sequence(s->d.memory, seq, &info, NULL) != CELLAR_OK ||
        info.pos_next != (cellar_pos)n)
        return false;
    float *got = drive_grab(play_row_size(&s->d), sizeof *got);
    memcpy(text, s->texts[seq], sizeof s->texts[seq]);
    text[n] = 99999;
    cellar_status status = play_probe(&s->d, seq, 99999, got);
    bool is_so = status == CELLAR_FULL ||
                 (status == CELLAR_OK &&
                  scenario_answers_plainly(&s->d, &s->config, text, n + 1, got, 1));
    free(got);
    return is_so;
}

static bool goes_on(const story *s, cellar_seq seq, cellar_pos n)
{
    return cellar_can_continue(s->d.memory, seq, n, NULL, NULL) == CELLAR_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Tokens for a sequence, at most a micro-batch; kept, or computed and aborted. */
static void say(story *s, cellar_seq seq, bool is_kept)
{
    uint32_t n = 1 + below(s, s->config.n_ubatch), old = s->lengths[seq];
    if (old + n > LONGEST) return;
    cellar_token *tokens = s->texts[seq] + old;
    cellar_seq seqs[64];
    bool checkpoints[64];
    scenario_tokens(tokens, s->next_token, n);
    s->next_token += (cellar_token)n;
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = seq;
        checkpoints[i] = random_one_in(&s->state, 6);
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    batch.checkpoints = checkpoints;
    cellar_status status = is_kept ? play_step(&s->d, &batch, NULL, NULL)
                                   : play_compute(&s->d, &batch, NULL, NULL);
    CHECK(status == CELLAR_OK || status == CELLAR_FULL);
    s->n_refused += status == CELLAR_FULL;
    if (status == CELLAR_OK && !is_kept) cellar_abort(s->d.memory);
    if (status == CELLAR_OK && is_kept) s->lengths[seq] += n;
}

/* Fork at the end, or at a place where the source could go on by itself. */
static void fork_at(story *s, cellar_seq from, cellar_seq to, cellar_pos p)
{
    if (from == to) return;
    bool is_end = p == (cellar_pos)s->lengths[from];
    if (!is_end && !goes_on(s, from, p)) return;
    CHECK(cellar_remove(s->d.memory, to, 0, -1, NULL) == CELLAR_OK);
    s->lengths[to] = 0;
    cellar_status status = cellar_copy(s->d.memory, from, to, 0, is_end ? -1 : p, NULL);
    CHECK(status == CELLAR_OK || (status == CELLAR_FULL && s->config.n_pools > 1));
    s->n_refused += status != CELLAR_OK;
    if (status != CELLAR_OK) return;
    s->lengths[to] = (uint32_t)p;
    memcpy(s->texts[to], s->texts[from], sizeof s->texts[to]);
    CHECK(goes_on(s, to, p));
}

static void go_back(story *s, cellar_seq seq, cellar_pos p)
{
    cellar_pos promised = p, from = -1;
    cellar_status status = cellar_can_continue(s->d.memory, seq, p, &promised, NULL);
    CHECK(status == CELLAR_OK || status == CELLAR_REPLAY);
    if (status == CELLAR_OK) promised = p;
    if (status == CELLAR_OK && random_one_in(&s->state, 2)) {
        CHECK(cellar_remove(s->d.memory, seq, p, -1, NULL) == CELLAR_OK);
        from = p;
    } else
        CHECK(cellar_rewind(s->d.memory, seq, p, &from, NULL) == CELLAR_OK);
    CHECK(from == promised && from >= 0 && from <= p);
    s->lengths[seq] = from < 0 ? 0 : (uint32_t)from;
}

static void forget(story *s, cellar_seq seq)
{
    bool is_keep = random_one_in(&s->state, 3);
    if (is_keep)
        CHECK(cellar_keep(s->d.memory, seq, NULL) == CELLAR_OK);
    else
        CHECK(cellar_remove(s->d.memory, seq, 0, -1, NULL) == CELLAR_OK);
    for (cellar_seq other = 0; other < SEQUENCES; other++)
        if (is_keep == (other != seq)) s->lengths[other] = 0;
}

static void make_checkpoint(story *s, cellar_seq seq)
{
    cellar_status status = cellar_checkpoint(s->d.memory, seq, NULL);
    CHECK(status == CELLAR_OK || status == CELLAR_FULL);
    s->n_refused += status == CELLAR_FULL;
}

static void happen(story *s)
{
    cellar_seq seq = (cellar_seq)below(s, SEQUENCES), other = (cellar_seq)below(s, SEQUENCES);
    cellar_pos end = (cellar_pos)s->lengths[seq];
    cellar_pos place = end - (cellar_pos)below(s, (uint32_t)end < 12 ? (uint32_t)end + 1 : 12);
    uint32_t event = below(s, 24);
    if (event < 12)
        say(s, seq, true);
    else if (event < 14)
        say(s, seq, false);
    else if (event < 16)
        fork_at(s, seq, other, end);
    else if (event < 18)
        fork_at(s, seq, other, place);
    else if (event < 21)
        go_back(s, seq, event < 20 ? place : (cellar_pos)below(s, (uint32_t)end + 1));
    else if (event < 23)
        make_checkpoint(s, seq);
    else
        forget(s, seq);
    CHECK(is_right(s, seq) && is_right(s, other));
    CHECK(cellar_check(s->d.memory, NULL) == CELLAR_OK);
    s->n_done++;
}

/* ---- memories -------------------------------------------------------------------------------- */

static const uint32_t state_sizes[] = {16, 32};

static void tell(const drive *shape, const cellar_config *config, uint64_t seed)
{
    story *s = drive_grab(1, sizeof *s);
    s->d = *shape;
    s->config = *config;
    s->state = seed;
    scenario_make(&s->d, config);
    for (uint32_t i = 0; i < 120; i++)
        happen(s);
    for (cellar_seq seq = 0; seq < SEQUENCES; seq++)
        CHECK(is_right(s, seq));
    CHECK(s->n_refused < s->n_done / 2);
    drive_close(&s->d);
    free(s);
}

static void begin_shape(drive *d, cellar_config *config)
{
    memset(d, 0, sizeof *d);
    d->seed = 97;
    *config = scenario_config(1024, 6);
    config->n_sequences = SEQUENCES;
}

static void windows(void)
{
    static const cellar_window each[] = {{CELLAR_WINDOW_STANDARD, 7, 0},
                                         {CELLAR_WINDOW_STANDARD, 5, 3},
                                         {CELLAR_WINDOW_CHUNKED, 9, 0},
                                         {CELLAR_WINDOW_SYMMETRIC, 8, 0}};
    for (uint64_t seed = 0; seed < 12; seed++) {
        drive d;
        cellar_config config;
        begin_shape(&d, &config);
        d.n_layers = 3;
        for (uint64_t l = 0; l < 2; l++) {
            d.layers[l] = scenario_layer(CELLAR_F32, 8);
            d.layers[l].window = each[(seed + l) % 4];
        }
        d.layers[2] = scenario_layer(CELLAR_F16, 8);
        if (seed % 3 == 0) d.n_layers = 1;
        if (seed % 2) config.checkpoint_bytes = 4096;
        if (seed % 4 == 3) config.checkpoint_interval = 11;
        tell(&d, &config, seed);
    }
}

static void states(void)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        drive d;
        cellar_config config;
        begin_shape(&d, &config);
        d.n_layers = seed % 2 ? 2 : 1;
        d.layers[0] = play_recurrent_layer(state_sizes, 2);
        d.layers[1] = scenario_layer(CELLAR_F32, 8);
        config.rollback_bytes = seed % 4 * play_state_bytes(&d);
        config.checkpoint_bytes = seed % 3 * 3 * play_state_bytes(&d);
        config.checkpoint_interval = seed % 3 == 2 ? 8 : 0;
        tell(&d, &config, 100 + seed);
    }
}

static void all_kinds(void)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        drive d;
        cellar_config config;
        begin_shape(&d, &config);
        d.n_layers = 4;
        d.layers[0] = scenario_layer(CELLAR_F32, 8);
        d.layers[1] = scenario_window_layer(CELLAR_WINDOW_STANDARD, 6);
        d.layers[2] = scenario_window_layer(CELLAR_WINDOW_CHUNKED, 10);
        d.layers[3] = play_recurrent_layer(state_sizes, 1);
        config.rollback_bytes = 3 * play_state_bytes(&d);
        config.checkpoint_bytes = seed % 2 ? 16384 : 0;
        config.checkpoint_interval = seed % 4 == 1 ? 7 : 0;
        tell(&d, &config, 200 + seed);
    }
}

static void pools(void)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        drive d;
        cellar_config config;
        begin_shape(&d, &config);
        d.n_layers = 2;
        d.layers[0] = scenario_layer(CELLAR_F32, 8);
        d.layers[1] = scenario_window_layer(CELLAR_WINDOW_STANDARD, 6);
        if (seed % 2) d.layers[1] = play_recurrent_layer(state_sizes, 1);
        config.n_pools = seed % 4 < 2 ? 2 : SEQUENCES;
        config.checkpoint_bytes = seed % 3 * 2048;
        tell(&d, &config, 300 + seed);
    }
}

static void quantised(void)
{
    static const cellar_type types[] = {CELLAR_BF16, CELLAR_Q8_0, CELLAR_Q5_1,  CELLAR_Q5_0,
                                        CELLAR_Q4_1, CELLAR_Q4_0, CELLAR_IQ4_NL};
    enum { TYPES = sizeof types / sizeof *types };
    for (uint64_t seed = 0; seed < TYPES; seed++) {
        drive d;
        cellar_config config;
        begin_shape(&d, &config);
        d.n_layers = 2;
        d.layers[0] = scenario_layer(types[seed], 32);
        d.layers[0].v_type = types[(seed + 2) % TYPES];
        d.layers[1] = scenario_layer(types[seed], 32);
        d.layers[1].window = (cellar_window){CELLAR_WINDOW_STANDARD, 6, 0};
        d.layers[1].rotate_k = seed % 2;
        tell(&d, &config, 400 + seed);
    }
}

const scenario scenarios_story[] = {
    {"S04 D15 stories of windows: every answer is as read plainly", windows},
    {"S16 S17 D18 stories of recurrent states: every answer is as read plainly", states},
    {"D44 stories of all kinds of layers: every answer is as read plainly", all_kinds},
    {"S07 D2 stories of several pools: every answer is as read plainly", pools},
    {"S11 stories of quantised rows: every answer is as read plainly", quantised},
    {NULL, NULL},
};
