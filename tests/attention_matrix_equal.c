/*
 * attention_matrix_equal.c: the same history, lived in other ways, has to give the same bits; NaN
 * that a query does not see must not change them. See attention_matrix.h.
 *
 * One life is the reference: one batch for each stretch, one micro-batch, no workers, an empty
 * pool. The others differ in one thing each. Where a layer is not causal, a query sees what is in
 * its micro-batch, so there batches and micro-batches stay as they are.
 */
#include "attention_matrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { A, B, C, D };
enum { OLD = 45, NEW_FIRST = 100, NEW = 11, LATE_FIRST = 120, LATE = 7, OTHERS_FIRST = 200 };

typedef enum other_way {
    WAY_PIECES,
    WAY_SINGLY,
    WAY_UBATCHES,
    WAY_WORKERS,
    WAY_CLUTTERED,
    WAY_SHARED,
    WAY_CROWDED,
    WAY_EQUAL_SPLIT,
    WAY_WINDOW,
    WAYS
} other_way;

static const char *const way_names[WAYS] = {"pieces",  "one by one",       "micro-batches",
                                            "workers", "a cluttered pool", "a fork",
                                            "a crowd", "an equal split",   "a window that lets go"};

/* Ways that change which tokens are computed together. */
static bool cuts(other_way way)
{
    return way == WAY_PIECES || way == WAY_SINGLY || way == WAY_UBATCHES || way == WAY_EQUAL_SPLIT;
}

static lab_way plain_way(const matrix_case *c)
{
    return (lab_way){.n_cells = 256,
                     .n_ubatch = 512,
                     .split = CELLAR_SPLIT_SIMPLE,
                     .is_window_full = true,
                     .is_scalar = c->is_scalar};
}

static lab_way other_way_of(const matrix_case *c, other_way other)
{
    lab_way way = plain_way(c);
    switch (other) {
    case WAY_PIECES:
        way.piece = 7;
        break;
    case WAY_SINGLY:
        way.piece = 1;
        break;
    case WAY_UBATCHES:
        way.n_ubatch = 5;
        break;
    case WAY_WORKERS:
        way.n_workers = 3;
        break;
    case WAY_CLUTTERED:
        way.is_cluttered = true;
        break;
    case WAY_EQUAL_SPLIT:
        way.split = CELLAR_SPLIT_EQUAL;
        way.n_ubatch = 9;
        break;
    case WAY_WINDOW:
        way.is_window_full = false;
        way.n_ubatch = 60; /* a window group has room for one micro-batch more than it keeps */
        break;
    default:
        break;
    }
    return way;
}

/* Append to A; in a crowd, others read too. */
static void read_on(lab *l, bool is_crowded, uint32_t first, uint32_t n)
{
    const cellar_seq seqs[] = {C, A, D};
    const uint32_t firsts[] = {OTHERS_FIRST + first, first, OTHERS_FIRST + 60 + first / 8},
                   counts[] = {n / 2, n, n / 3};
    if (is_crowded)
        lab_append_many(l, seqs, firsts, counts, 3);
    else
        lab_append(l, A, first, n);
}

/* What everybody lives through; without edits it stops before positions are changed. */
static void live(lab *l, int other, bool has_edits)
{
    bool is_crowded = other == WAY_CROWDED;
    if (other == WAY_SHARED) {
        lab_append(l, B, 0, OLD);
        lab_copy(l, B, A, 0, -1);
        lab_append(l, B, OTHERS_FIRST, 3);
    } else {
        read_on(l, is_crowded, 0, OLD);
    }
    read_on(l, is_crowded, NEW_FIRST, NEW);
    if (!has_edits) return;
    lab_remove(l, A, 3, 8);
    lab_shift(l, A, 8, -1, -5);
    read_on(l, is_crowded, LATE_FIRST, LATE);
}

static bool is_same(const lab *a, const lab *b, uint32_t token)
{
    return memcmp(a->results + token * a->out_size, b->results + token * b->out_size,
                  a->out_size * sizeof *a->results) == 0;
}

static void count(const matrix_case *c, const char *what, const lab *l, matrix_totals *totals)
{
    totals->worst = fmax(totals->worst, l->worst);
    totals->n_compared += l->n_compared;
    if (l->n_wrong > 0) matrix_report(c, what, l);
    *(l->n_wrong > 0 ? &totals->failed : &totals->passed) += 1;
}

/* ---- equal bits ------------------------------------------------------------------------------ */

static void compare_lives(const lab *reference, lab *l, bool has_edits)
{
    for (uint32_t token = 0; token < LATE_FIRST + LATE; token++) {
        bool is_old = token < OLD, is_new = token >= NEW_FIRST && token < NEW_FIRST + NEW;
        bool is_late = token >= LATE_FIRST && has_edits;
        if ((is_old || is_new || is_late) && !is_same(reference, l, token))
            lab_note(l, "token %u has other bits: %.9g, not %.9g", token,
                     (double)l->results[token * l->out_size],
                     (double)reference->results[token * l->out_size]);
    }
}

static void compare_ways(const matrix_case *c, matrix_layers *layers, matrix_totals *totals)
{
    lab reference, l;
    lab_way way = plain_way(c);
    way.n_compared = 1;
    lab_open(&reference, layers, &way, c->seed);
    live(&reference, -1, true);
    count(c, "equal bits, the reference", &reference, totals);
    for (int other = 0; other < WAYS && reference.n_wrong == 0; other++) {
        bool is_causal = layers->layer[layers->target].is_causal;
        bool has_edits = other != WAY_WINDOW;
        if (cuts((other_way)other) && !is_causal) continue;
        way = other_way_of(c, (other_way)other);
        lab_open(&l, layers, &way, c->seed);
        live(&l, other, has_edits);
        if (l.n_wrong == 0) compare_lives(&reference, &l, has_edits);
        count(c, way_names[other], &l, totals);
        lab_close(&l);
    }
    lab_close(&reference);
}

/* A small shape that goes with the type. */
static void choose_shape(matrix_case *c, uint64_t *random)
{
    c->heads = random_below(random, 3);
    do
        c->sizes = random_below(random, SIZES);
    while (!matrix_takes(c->sizes, c->k_type, c->v_type) || matrix_sizes[c->sizes][0] > 128);
}

typedef void (*matrix_test)(const matrix_case *c, matrix_layers *layers, matrix_totals *totals);

static void run_features(uint64_t seed, matrix_test test, matrix_totals *totals)
{
    uint64_t random = random_mix(seed, 3);
    for (int f = 0; f < FEATURE_KINDS; f++)
        for (int t = 0; t < ROW_MODEL_TYPES; t++) {
            matrix_layers layers;
            matrix_case c = {.first = (feature)f,
                             .second = (feature)f,
                             .k_type = row_model_types[t],
                             .v_type = row_model_types[t],
                             .is_scalar = random_one_in(&random, 4)};
            bool is_possible;
            do {
                choose_shape(&c, &random);
                c.seed = random_next(&random);
                is_possible = matrix_make_layers(&c, &layers);
                if (!is_possible) matrix_free_layers(&layers);
            } while (!is_possible);
            test(&c, &layers, totals);
            matrix_free_layers(&layers);
        }
}

void equal_run(uint64_t seed, uint32_t repeat, matrix_totals *totals)
{
    for (uint32_t i = 0; i < repeat; i++)
        run_features(random_mix(seed, 100 + i), compare_ways, totals);
}

/* ---- NaN ------------------------------------------------------------------------------------- */

static void read_poisoned(lab *l, uint32_t n_poisoned, const uint32_t *poisoned)
{
    for (uint32_t i = 0; i < n_poisoned; i++)
        l->tokens[poisoned[i]].is_poison = true;
    lab_append(l, A, 0, OLD);
    lab_append(l, A, NEW_FIRST, NEW);
    lab_append_singly(l, A, LATE_FIRST, 3);
}

/* Tokens of which the queries see a poisoned one say so, all others notice nothing. */
static void judge_poisoned(const lab *clean, lab *l, uint32_t n_poisoned, const uint32_t *poisoned)
{
    uint32_t n_seeing = 0, n_blind = 0;
    for (uint32_t token = 0; token < LATE_FIRST + 3; token++) {
        bool is_there = token < OLD || (token >= NEW_FIRST && token < NEW_FIRST + NEW) ||
                        token >= LATE_FIRST;
        bool is_seeing = false;
        if (!is_there || l->tokens[token].is_poison) continue;
        for (uint32_t i = 0; i < n_poisoned; i++)
            is_seeing |= lab_sees(l, token, poisoned[i]);
        *(is_seeing ? &n_seeing : &n_blind) += 1;
        if (!is_seeing && !is_same(clean, l, token))
            lab_note(l, "token %u at position %d got %g, not %g: NaN that it does not see", token,
                     l->tokens[token].stored_pos, (double)l->results[token * l->out_size],
                     (double)clean->results[token * l->out_size]);
        if (is_seeing && !isnan(l->results[token * l->out_size]))
            lab_note(l, "token %u sees NaN and got %g", token,
                     (double)l->results[token * l->out_size]);
    }
    /* Through a narrow window nobody but the poisoned themselves may have looked. */
    const cellar_window *window = &l->layers->layer[l->layers->target].window;
    bool is_narrow = window->kind != CELLAR_WINDOW_NONE && window->size < 4;
    if (n_seeing == 0 && !is_narrow) lab_note(l, "nobody saw the NaN: the test shows nothing");
    if (n_blind == 0 && l->layers->layer[l->layers->target].is_causal)
        lab_note(l, "everybody saw the NaN: the test shows nothing");
}

static void poison(const matrix_case *c, matrix_layers *layers, matrix_totals *totals)
{
    /* Some at the beginning, which windows pass; one late, which causality and images hide. */
    static const uint32_t poisoned[] = {2, 3, 8, 42, NEW_FIRST + 5};
    bool has_window = layers->layer[layers->target].window.kind != CELLAR_WINDOW_NONE;
    lab clean, l;
    lab_way way = plain_way(c);
    if (has_window) way.is_window_full = c->seed % 2;
    way.n_ubatch = c->seed % 3 ? 60 : 16;
    way.is_cluttered = c->seed % 5 == 0;
    lab_open(&clean, layers, &way, c->seed);
    read_poisoned(&clean, 0, NULL);
    /* Without a window a token at the beginning would be seen by all. */
    uint32_t skip = has_window ? 0 : 3;
    lab_open(&l, layers, &way, c->seed);
    read_poisoned(&l, 5 - skip, poisoned + skip);
    if (clean.n_wrong > 0) lab_note(&l, "without NaN: %s", clean.message);
    if (l.n_wrong == 0) judge_poisoned(&clean, &l, 5 - skip, poisoned + skip);
    count(c, "NaN", &l, totals);
    lab_close(&l);
    lab_close(&clean);
}

void poison_run(uint64_t seed, matrix_totals *totals)
{
    run_features(random_mix(seed, 50), poison, totals);
}
