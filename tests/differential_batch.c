/*
 * differential_batch.c: draw a batch, good or bad, and ask the model what must happen to it.
 *
 * Most batches are what an engine would send: a few tokens of a few sequences, some of which hold
 * the same and read on together. Some begin where they may not, ask for more than there is, name a
 * sequence twice or break a rule that the model need not understand.
 */
#include "differential.h"

#include <stdlib.h>
#include <string.h>

bool trial_stands_in(const trial *t, uint32_t i, cellar_seq seq)
{
    uint32_t n;
    const cellar_seq *seqs = memory_model_batch_seqs(&t->batch, i, &n);
    for (uint32_t s = 0; s < n; s++)
        if (seqs[s] == seq) return true;
    return false;
}

void trial_free(trial *t)
{
    free(t->tokens);
    free(t->given);
    free(t->positions);
    free(t->seq_begin);
    free(t->seqs);
    free(t->points);
    free(t->checkpoints);
    free(t->ubatch_of);
    free(t->states);
    free(t->stored);
}

static void make_room(const diff_round *r, trial *t, uint32_t n)
{
    memset(t, 0, sizeof *t);
    t->batch = cellar_batch_init();
    t->batch.n_tokens = n;
    t->tokens = drive_grab(n, sizeof *t->tokens);
    t->given = drive_grab(n, sizeof *t->given);
    t->positions = drive_grab(n, sizeof *t->positions);
    t->seq_begin = drive_grab(n + 1, sizeof *t->seq_begin);
    t->seqs = drive_grab((size_t)n * ROUND_SEQUENCES, sizeof *t->seqs);
    t->points = drive_grab(n, sizeof *t->points);
    t->checkpoints = drive_grab(n, sizeof *t->checkpoints);
    t->ubatch_of = drive_grab(n, sizeof *t->ubatch_of);
    t->states = drive_grab(n, sizeof *t->states);
    t->stored = drive_grab(r->d.n_layers, sizeof *t->stored);
    t->first_id = r->model.next_id;
}

/* ---- drawing a batch ------------------------------------------------------------------------- */

/* Free cells of the fullest group that keeps everything; of the states, if there is none. */
static uint32_t count_free(const diff_round *r)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t g = 0; g < r->model.n_groups; g++) {
        const model_group *group = &r->model.groups[g];
        uint32_t n_free = 0;
        if (group->kind != CELLAR_LAYER_ATTENTION) continue;
        for (uint32_t p = 0; p < r->model.n_pools; p++) {
            uint32_t used = memory_model_count_used(&r->model, g, p);
            n_free += group->capacity[p] > used ? group->capacity[p] - used : 0;
        }
        if (n_free < least && group->window.kind == CELLAR_WINDOW_NONE) least = n_free;
    }
    return least == UINT32_MAX ? 24 : least;
}

static uint32_t pick_length(diff_round *r)
{
    uint32_t n_free = count_free(r);
    /* clang-format off */
    switch (random_below(&r->random, 16)) {
    case 0: return random_one_in(&r->random, 3) ? r->model.n_cells + 1 : n_free + 1;
    case 1: return random_one_in(&r->random, 3) ? n_free : 1 + n_free / 4;
    case 2:
    case 3:
    case 4:
    case 5: return 1 + random_below(&r->random, 2 * r->d.n_ubatch + 2);
    case 6: return random_one_in(&r->random, 8) ? 0 : 2;
    default: return 1;
    }
    /* clang-format on */
}

static bool hold_the_same(diff_round *r, cellar_seq a, cellar_seq b)
{
    memory_model_sequence(&r->model, a);
    memory_model_sequence(&r->model, b);
    if (memory_model_pool(&r->model, a) != memory_model_pool(&r->model, b)) return false;
    const model_sequence *x = memory_model_sequence(&r->model, a);
    const model_sequence *y = memory_model_sequence(&r->model, b);
    return x->n == y->n &&
           (x->n == 0 || !memcmp(x->entries, y->entries, x->n * sizeof *x->entries));
}

/* A sequence and, mostly, those that hold the same as it. */
static uint32_t pick_set(diff_round *r, cellar_seq *set)
{
    uint32_t n = 1;
    set[0] = round_pick_sequence(r);
    for (uint32_t s = 0; s < r->n_names; s++) {
        cellar_seq name = r->names[s];
        if (name != set[0] && (hold_the_same(r, set[0], name) ? random_one_in(&r->random, 2)
                                                              : random_one_in(&r->random, 60)))
            set[n++] = name;
    }
    return n;
}

/* All tokens of the first part in one set of sequences, the others each in one of it. */
static void draw_sets(diff_round *r, trial *t)
{
    cellar_seq set[ROUND_SEQUENCES];
    uint32_t n_set = pick_set(r, set), n = t->batch.n_tokens;
    uint32_t together = n ? random_below(&r->random, n + 1) : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = t->seq_begin[i], n_here = i < together ? n_set : 1;
        for (uint32_t s = 0; s < n_here; s++)
            t->seqs[first + s] = i < together ? set[s] : set[random_below(&r->random, n_set)];
        t->seq_begin[i + 1] = first + n_here;
    }
    t->batch.seq_begin = t->seq_begin;
    t->batch.seqs = t->seqs;
}

static void draw_singles(diff_round *r, trial *t)
{
    bool is_one = random_one_in(&r->random, 2);
    cellar_seq seq = round_pick_sequence(r);
    for (uint32_t i = 0; i < t->batch.n_tokens; i++)
        t->seqs[i] = is_one ? seq : round_pick_sequence(r);
    t->batch.seqs = t->seqs;
}

static void draw_tokens(diff_round *r, trial *t)
{
    if (random_one_in(&r->random, 8)) return; /* unknown: NULL */
    for (uint32_t i = 0; i < t->batch.n_tokens; i++)
        t->tokens[i] = random_one_in(&r->random, 30)
                           ? -1
                           : (cellar_token)((t->first_id + i) & INT32_MAX);
    t->batch.tokens = t->tokens;
}

/* Move all tokens of sequences that are empty: a start that is not 0. */
static void start_later(diff_round *r, trial *t)
{
    cellar_pos start = random_one_in(&r->random, 3) ? INT32_MAX - random_between(&r->random, 1, 20)
                                                    : random_between(&r->random, 0, 50);
    for (uint32_t i = 0; i < t->batch.n_tokens; i++) {
        uint32_t n_seqs;
        cellar_seq seq = *memory_model_batch_seqs(&t->batch, i, &n_seqs);
        if (memory_model_pos_max(&r->model, seq) < 0)
            t->given[i] = (int64_t)t->given[i] + start > INT32_MAX ? INT32_MAX
                                                                   : t->given[i] + start;
    }
}

/* Do two tokens share a sequence? */
static bool are_related(const trial *t, uint32_t a, uint32_t b)
{
    uint32_t n;
    const cellar_seq *seqs = memory_model_batch_seqs(&t->batch, a, &n);
    for (uint32_t s = 0; s < n; s++)
        if (trial_stands_in(t, b, seqs[s])) return true;
    return false;
}

/* Positions that stay for a while or leave gaps, with points around them. */
static void draw_points(diff_round *r, trial *t)
{
    bool has_points = random_one_in(&r->random, 2);
    for (uint32_t i = 0; i < t->batch.n_tokens; i++) {
        int32_t move = random_one_in(&r->random, 4) ? random_between(&r->random, 0, 3)
                       : has_points && !random_one_in(&r->random, 4) ? -1
                                                                     : 0;
        for (uint32_t j = i; j < t->batch.n_tokens; j++) {
            int64_t to = (int64_t)t->given[j] + move;
            if (are_related(t, i, j)) t->given[j] = (cellar_pos)(to < 0 || to > INT32_MAX ? 0 : to);
        }
    }
    for (uint32_t i = 0; i < t->batch.n_tokens; i++) {
        int32_t far = random_one_in(&r->random, 60) ? 32767 : 3;
        int64_t y = (int64_t)t->given[i] + random_between(&r->random, -far, far) +
                    random_one_in(&r->random, 200);
        int64_t x = (int64_t)t->given[i] + random_between(&r->random, -far, far);
        t->points[i] = (cellar_point){(cellar_pos)(y > INT32_MAX ? INT32_MAX : y),
                                      (cellar_pos)(x > INT32_MAX ? INT32_MAX : x)};
    }
    if (has_points) t->batch.points = t->points;
}

/* Positions as they would come anyway; an empty sequence may begin anywhere; some are wrong. */
static void draw_positions(diff_round *r, trial *t)
{
    uint32_t n = t->batch.n_tokens;
    if (n == 0 || n > r->model.n_cells || random_one_in(&r->random, 2)) return;
    model_verdict verdict = memory_model_judge_batch(&r->model, &t->batch, t->given);
    if (verdict.allowed & MODEL_MAY(CELLAR_INVALID)) return;
    if (random_one_in(&r->random, 4)) start_later(r, t);
    if (r->model.has_points && random_one_in(&r->random, 2)) draw_points(r, t);
    if (random_one_in(&r->random, 12)) {
        cellar_pos *moved = &t->given[random_below(&r->random, n)];
        int64_t to = (int64_t)*moved + random_between(&r->random, -2, 2);
        *moved = to > INT32_MAX ? INT32_MAX : (cellar_pos)to;
    }
    t->batch.positions = t->given;
}

static void draw_checkpoints(diff_round *r, trial *t)
{
    if (!random_one_in(&r->random, 8)) return;
    for (uint32_t i = 0; i < t->batch.n_tokens; i++)
        t->checkpoints[i] = random_one_in(&r->random, 3);
    t->batch.checkpoints = t->checkpoints;
}

/* Break a rule that the model need not understand; false: left as it is. */
static bool spoil(diff_round *r, trial *t)
{
    uint32_t n = t->batch.n_tokens;
    if (n == 0 || !random_one_in(&r->random, 30)) return false;
    uint32_t i = random_below(&r->random, n);
    switch (random_below(&r->random, 5)) {
    case 0:
        t->batch.struct_size = 0;
        break;
    case 1:
        t->batch.struct_size--;
        break;
    case 2:
        if (n > r->model.n_cells) return false; /* its tokens are not looked at */
        t->batch.seqs = t->seqs;
        t->seqs[t->batch.seq_begin ? t->seq_begin[i] : i] = -1 - random_between(&r->random, 0, 3);
        break;
    case 3:
        if (!t->batch.seq_begin) return false;
        t->batch.seqs = NULL;
        break;
    default:
        if (!t->batch.seq_begin) return false;
        t->seq_begin[i + 1] = random_one_in(&r->random, 2) ? t->seq_begin[i] : 0;
        break;
    }
    t->verdict = (model_verdict){MODEL_MAY(CELLAR_INVALID), MODEL_AT_UNSAID};
    return true;
}

void trial_draw(diff_round *r, trial *t)
{
    make_room(r, t, pick_length(r));
    uint32_t shape = random_below(&r->random, 8);
    if (shape < 2 && r->d.layers[0].is_causal)
        draw_sets(r, t);
    else if (shape < 7)
        draw_singles(r, t);
    draw_tokens(r, t);
    draw_checkpoints(r, t);
    draw_positions(r, t);
    if (!spoil(r, t)) t->verdict = memory_model_judge_batch(&r->model, &t->batch, t->positions);
}
