/*
 * attention_matrix_story.c: edits of sequences, and the situations as lists of actions. See
 * attention_matrix.h.
 *
 * Stories are short, but longer than a block of cells and a block of keys (32 both), so that both
 * have borders in the middle of what is looked at.
 */
#include "attention_matrix.h"

#include <string.h>

/* ---- edits ----------------------------------------------------------------------------------- */

static void expect_ok(lab *l, const char *call, cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK)
        lab_note(l, "%s: %s: %s", call, cellar_status_text(status), error->message);
}

static bool is_in(cellar_pos pos, cellar_pos p0, cellar_pos p1)
{
    return pos >= p0 && (p1 < 0 || pos < p1);
}

void lab_remove(lab *l, cellar_seq seq, cellar_pos p0, cellar_pos p1)
{
    cellar_error error = {0};
    lab_sequence *s = &l->sequences[seq];
    uint32_t n = 0;
    expect_ok(l, "cellar_remove", cellar_remove(l->memory, seq, p0, p1, &error), &error);
    for (uint32_t i = 0; i < s->n; i++)
        if (!is_in(s->entries[i].pos, p0, p1)) s->entries[n++] = s->entries[i];
    s->n = n;
}

/* `to` is empty, or holds nothing behind p1 or before p0. */
void lab_copy(lab *l, cellar_seq from, cellar_seq to, cellar_pos p0, cellar_pos p1)
{
    cellar_error error = {0};
    expect_ok(l, "cellar_copy", cellar_copy(l->memory, from, to, p0, p1, &error), &error);
    const lab_sequence *source = &l->sequences[from];
    lab_sequence *s = &l->sequences[to];
    for (uint32_t i = 0; i < source->n; i++)
        if (is_in(source->entries[i].pos, p0, p1)) s->entries[s->n++] = source->entries[i];
}

void lab_shift(lab *l, cellar_seq seq, cellar_pos p0, cellar_pos p1, cellar_pos delta)
{
    cellar_error error = {0};
    lab_sequence *s = &l->sequences[seq];
    expect_ok(l, "cellar_shift", cellar_shift(l->memory, seq, p0, p1, delta, &error), &error);
    for (uint32_t i = 0; i < s->n; i++)
        if (is_in(s->entries[i].pos, p0, p1)) s->entries[i].pos += delta;
}

void lab_divide(lab *l, cellar_seq seq, cellar_pos p0, cellar_pos p1, cellar_pos divisor)
{
    cellar_error error = {0};
    lab_sequence *s = &l->sequences[seq];
    expect_ok(l, "cellar_divide", cellar_divide(l->memory, seq, p0, p1, divisor, &error), &error);
    for (uint32_t i = 0; i < s->n; i++)
        if (is_in(s->entries[i].pos, p0, p1)) s->entries[i].pos /= divisor;
}

cellar_pos lab_next(const lab *l, cellar_seq seq)
{
    cellar_pos next = 0;
    for (uint32_t i = 0; i < l->sequences[seq].n; i++)
        if (l->sequences[seq].entries[i].pos >= next) next = l->sequences[seq].entries[i].pos + 1;
    return next;
}

/* ---- situations ------------------------------------------------------------------------------ */

enum { A, B, C, D };

lab_way story_way(const matrix_case *c)
{
    uint64_t random = random_mix(c->seed, 2);
    lab_way way = {.n_cells = 160,
                   .n_ubatch = 512,
                   .split = CELLAR_SPLIT_SIMPLE,
                   .is_window_full = true,
                   .is_scalar = c->is_scalar,
                   .n_compared = 8};
    switch (c->situation) {
    case SITUATION_UBATCHES:
    case SITUATION_WORKERS:
        way.n_ubatch = (uint32_t)random_between(&random, 3, 17);
        way.is_window_full = random_one_in(&random, 2);
        break;
    case SITUATION_DECODE:
        way.is_window_full = random_one_in(&random, 2);
        break;
    case SITUATION_SCATTERED:
        way.n_ubatch = (uint32_t)random_between(&random, 5, 40);
        way.split = (cellar_split)random_below(&random, 4);
        break;
    default:
        break;
    }
    if (c->situation == SITUATION_WORKERS) way.n_workers = (uint32_t)random_between(&random, 2, 5);
    return way;
}

static void live_with_shifts(lab *l)
{
    lab_append(l, A, 0, 38);
    lab_remove(l, A, 4, 11);
    lab_shift(l, A, 11, -1, -7);
    lab_append(l, A, 100, 9);
    lab_append_singly(l, A, 120, 2);
    lab_shift(l, A, 9, -1, 5); /* leaves a gap */
    lab_append(l, A, 140, 5);
    lab_remove(l, A, 0, 3);
    lab_shift(l, A, 3, -1, -3);
    lab_append_singly(l, A, 160, 3);
}

static void live_with_divisions(lab *l)
{
    lab_append(l, A, 0, 36);
    lab_divide(l, A, 0, -1, 2);
    lab_append(l, A, 100, 9);
    lab_divide(l, A, 0, -1, 3);
    lab_append(l, A, 120, 4);
    lab_append_singly(l, A, 140, 3);
}

static void live_forked(lab *l)
{
    static const cellar_seq seqs[] = {A, B, C};
    static const uint32_t first[] = {100, 120, 140}, n[] = {6, 9, 4}, later[] = {160, 180, 200},
                          ones[] = {1, 1, 1};
    lab_append(l, A, 0, 34);
    lab_copy(l, A, B, 0, -1);
    lab_copy(l, A, C, 0, lab_next(l, A) / 2);
    lab_append_many(l, seqs, first, n, 3);
    lab_append_many(l, seqs, later, ones, 3);
    lab_remove(l, B, 2, 5);
    lab_shift(l, B, 5, -1, -3); /* its twins notice nothing */
    lab_append_many(l, seqs, (const uint32_t[]){220, 240, 260}, n, 3);
}

static void live_scattered(lab *l)
{
    static const cellar_seq seqs[] = {A, B, C, D};
    static const uint32_t first[] = {0, 45, 90, 135}, n[] = {20, 17, 24, 9};
    lab_append_many(l, seqs, first, n, 4);
    lab_remove(l, B, 0, -1);
    lab_remove(l, A, lab_next(l, A) - 4, -1);
    lab_append_many(l, seqs, (const uint32_t[]){180, 225, 270, 315},
                    (const uint32_t[]){7, 30, 6, 8}, 4);
    for (uint32_t i = 0; i < 3; i++)
        lab_append_many(l, seqs, (const uint32_t[]){360 + i, 369 + i, 378 + i, 387 + i},
                        (const uint32_t[]){1, 1, 1, 1}, 4);
}

void story_run(lab *l, const matrix_case *c)
{
    if (l->n_wrong > 0) return;
    switch (c->situation) {
    case SITUATION_BATCH:
        lab_append(l, A, 0, 41);
        lab_append(l, A, 100, 30);
        break;
    case SITUATION_UBATCHES:
    case SITUATION_WORKERS:
        lab_append(l, A, 0, 47);
        lab_append(l, A, 100, 22);
        break;
    case SITUATION_DECODE:
        lab_append(l, A, 0, 6);
        lab_append_singly(l, A, 6, 50);
        break;
    case SITUATION_SHIFTED:
        live_with_shifts(l);
        break;
    case SITUATION_DIVIDED:
        live_with_divisions(l);
        break;
    case SITUATION_FORKED:
        live_forked(l);
        break;
    case SITUATION_SCATTERED:
        live_scattered(l);
        break;
    case SITUATION_KINDS:
        break;
    }
}
