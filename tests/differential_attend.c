/*
 * differential_attend.c: what is computed in a step: attention, compared with brute force over what
 * the model says a token sees, and recurrent states, computed as an engine would.
 *
 * The past of a token comes from the model's list of what its sequence was told to remember, cut by
 * the rule of visibility.h alone: if the library has given up something that is seen, the results
 * differ. The state that a segment starts from must be the one that reading its tokens gives, to
 * the last bit.
 */
#include "differential.h"

#include <stdlib.h>
#include <string.h>

void round_fill_row(const diff_round *r, uint32_t layer, drive_row what, uint64_t id, float *to)
{
    const cellar_layer *shape = &r->d.layers[layer];
    size_t n = what == DRIVE_Q
                   ? shape->n_heads * shape->k_size
                   : shape->n_kv_heads * (what == DRIVE_K ? shape->k_size : shape->v_size);
    drive_fill(to, n, random_mix(r->d.seed + id, layer * 3 + what));
    for (size_t i = 0; i < n && layer == r->mask_layer; i++)
        to[i] = what == DRIVE_K ? 0.0f : to[i] < 0 ? -1.0f : 1.0f;
}

float *trial_rows(const diff_round *r, const trial *t, const cellar_ubatch *ubatch, uint32_t layer,
                  drive_row what, size_t row)
{
    float *rows = drive_grab(ubatch->n_tokens * row, sizeof *rows);
    for (uint32_t i = 0; i < ubatch->n_tokens; i++)
        round_fill_row(r, layer, what, t->first_id + ubatch->indices[i], rows + i * row);
    return rows;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* What one query sees, with its numbers. */
typedef struct view {
    attention_model_row *rows;
    float *numbers;
    uint32_t n;
} view;

static void add_row(const diff_round *r, view *seen, uint32_t layer, cellar_pos pos,
                    cellar_pos stored_pos, uint64_t id)
{
    const cellar_layer *shape = &r->d.layers[layer];
    size_t k_row = (size_t)shape->n_kv_heads * shape->k_size;
    size_t v_row = (size_t)shape->n_kv_heads * shape->v_size;
    float *k = seen->numbers + seen->n * (k_row + v_row), *v = k + k_row;
    round_fill_row(r, layer, DRIVE_K, id, k);
    round_fill_row(r, layer, DRIVE_V, id, v);
    seen->rows[seen->n++] =
        (attention_model_row){.pos = pos, .stored_pos = stored_pos, .k = k, .v = v};
}

static cellar_point trial_point(const trial *t, uint32_t i)
{
    if (t->batch.points) return t->batch.points[i];
    return (cellar_point){t->positions[i], t->positions[i]};
}

/* Everything that token `me` sees. False: the library has let go of some of it. */
static bool look(diff_round *r, const trial *t, uint32_t me, uint32_t layer, view *seen)
{
    const cellar_layer *shape = &r->d.layers[layer];
    uint32_t n_seqs, group = r->model.group_of[layer];
    cellar_seq seq = *memory_model_batch_seqs(&t->batch, me, &n_seqs);
    const model_sequence *past = memory_model_sequence(&r->model, seq);
    cellar_point point = trial_point(t, me);
    for (uint32_t i = 0; i < past->n; i++) {
        const model_entry *entry = &past->entries[i];
        const model_cell *cell = &r->model.cells[entry->cell];
        cellar_point there = memory_model_point(cell, entry->pos);
        if (!attention_model_sees(shape, t->positions[me], point, entry->pos, there, false))
            continue;
        if (!(entry->held >> group & 1))
            return round_fail(r, "sequence %d: position %d sees %d, which is given up", seq,
                              t->positions[me], entry->pos);
        add_row(r, seen, layer, entry->pos, cell->stored_pos, cell->id);
    }
    for (uint32_t i = 0; i < t->batch.n_tokens; i++)
        if (t->ubatch_of[i] <= t->ubatch_of[me] && trial_stands_in(t, i, seq) &&
            attention_model_sees(shape, t->positions[me], point, t->positions[i], trial_point(t, i),
                                 t->ubatch_of[i] == t->ubatch_of[me]))
            add_row(r, seen, layer, t->positions[i], t->positions[i], t->first_id + i);
    return true;
}

static bool match_query(diff_round *r, const trial *t, uint32_t me, uint32_t layer, const float *q,
                        const float *got)
{
    enum { ROW = 40, OUT = 32, HEADS = 2 };
    const cellar_layer *shape = &r->d.layers[layer];
    uint32_t n_seqs;
    cellar_seq seq = *memory_model_batch_seqs(&t->batch, me, &n_seqs);
    uint32_t most = t->batch.n_tokens + memory_model_sequence(&r->model, seq)->n;
    view seen = {.rows = drive_grab(most, sizeof *seen.rows),
                 .numbers = drive_grab((size_t)most * ROW, sizeof *seen.numbers)};
    double out[OUT], bound[HEADS], worst = 0;
    /* Keys that turn by points are the business of the tests of rotation. */
    bool is_told = shape->rope.kind != CELLAR_ROPE_MROPE || layer == r->mask_layer;
    bool is_good = look(r, t, me, layer, &seen);
    if (is_good && is_told) {
        cellar_layer plain = *shape;
        if (shape->rope.kind == CELLAR_ROPE_MROPE) plain.rope.kind = CELLAR_ROPE_NONE;
        attention_model_attend(&plain, q, t->positions[me], seen.rows, seen.n, out, bound);
        worst = attention_model_worst(&plain, got, out, bound);
        r->out->tally[TALLY_ATTENDED]++;
        r->out->tally[TALLY_WINDOWED] += shape->window.kind != CELLAR_WINDOW_NONE;
    }
    free(seen.rows);
    free(seen.numbers);
    if (worst > 1)
        return round_fail(
            r,
            "token %u of the batch, position %d, layer %u: attention over %u tokens is "
            "%.3g times the bound away (first number %g, expected %g)",
            me, t->positions[me], layer, seen.n, worst, (double)got[0], out[0]);
    return is_good;
}

bool trial_attend(diff_round *r, const trial *t, uint32_t u, uint32_t layer)
{
    const cellar_layer *shape = &r->d.layers[layer];
    size_t q_row = (size_t)shape->n_heads * shape->k_size;
    size_t out_row = (size_t)shape->n_heads * shape->v_size;
    cellar_ubatch ubatch;
    cellar_error error;
    if (cellar_get_ubatch(r->d.memory, u, &ubatch, &error) != CELLAR_OK)
        return round_fail(r, "micro-batch %u is gone", u);
    uint32_t n = ubatch.n_tokens;
    float *q = trial_rows(r, t, &ubatch, layer, DRIVE_Q, q_row);
    float *out = drive_grab(n * out_row, sizeof *out);
    memset(out, 0xff, n * out_row * sizeof *out); /* NaN: every number has to be written */
    bool is_good = round_judge(r, "cellar_attend",
                               cellar_attend(r->d.memory, u, layer, q, out, &error), CELLAR_OK,
                               &error, -1);
    for (uint32_t i = 0; i < n && is_good; i++)
        is_good = match_query(r, t, ubatch.indices[i], layer, q + i * q_row, out + i * out_row);
    free(q);
    free(out);
    return is_good;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The state before token i, for one layer. */
static const float *state_before(diff_round *r, const trial *t, uint32_t i, uint32_t layer)
{
    static const float zeros[MODEL_STATE_FLOATS];
    uint32_t n;
    cellar_seq seq = *memory_model_batch_seqs(&t->batch, i, &n);
    for (uint32_t j = i; j-- > 0;)
        if (trial_stands_in(t, j, seq)) return t->states[j] + r->model.state_at[layer];
    const model_sequence *past = memory_model_sequence(&r->model, seq);
    if (past->n == 0) return zeros;
    return r->model.cells[past->entries[past->n - 1].cell].state + r->model.state_at[layer];
}

static bool match_source(diff_round *r, const trial *t, uint32_t token, uint32_t layer,
                         const cellar_states *states, float *state)
{
    uint32_t n_seqs, n = recurrence_size(&r->d.layers[layer]);
    cellar_seq seq = *memory_model_batch_seqs(&t->batch, token, &n_seqs);
    const float *expected = state_before(r, t, token, layer);
    memset(state, 0, n * sizeof *state);
    if (states->source != CELLAR_NO_STATE && !drive_read_state(&r->d, states->source, layer, state))
        return round_fail(r, "source state %u cannot be read", states->source);
    if (memcmp(state, expected, n * sizeof *state))
        return round_fail(r,
                          "sequence %d position %d starts from %s with %g, not from the %g that "
                          "reading gives",
                          seq, t->positions[token],
                          states->source == CELLAR_NO_STATE ? "no state" : "a state",
                          (double)state[0], (double)expected[0]);
    r->out->tally[TALLY_STATES]++;
    return true;
}

static bool compute_segment(diff_round *r, const trial *t, uint32_t u, const cellar_ubatch *ubatch,
                            uint32_t segment, uint32_t layer)
{
    const cellar_segment *part = &ubatch->segments[segment];
    float state[MODEL_STATE_FLOATS];
    cellar_states states;
    cellar_error error;
    if (!round_judge(r, "cellar_get_states",
                     cellar_get_states(r->d.memory, u, segment, &states, &error), CELLAR_OK, &error,
                     -1))
        return false;
    if (states.n_targets == 0 || states.after[states.n_targets - 1] != part->n_tokens)
        return round_fail(r, "segment %u of %u tokens has no target for its end", segment,
                          part->n_tokens);
    if (!match_source(r, t, ubatch->indices[part->first], layer, &states, state)) return false;
    uint32_t next = 0;
    for (uint32_t i = 0; i < part->n_tokens; i++) {
        uint32_t token = ubatch->indices[part->first + i];
        recurrence_step(&r->d.layers[layer], layer, t->first_id + token, t->positions[token],
                        state);
        if (states.after[next] != i + 1) continue;
        if (!drive_write_state(&r->d, states.targets[next++], layer, state))
            return round_fail(r, "target state %u cannot be written", states.targets[next - 1]);
    }
    if (next != states.n_targets)
        return round_fail(r, "the targets of segment %u do not rise", segment);
    return true;
}

bool trial_compute_states(diff_round *r, const trial *t, uint32_t u, uint32_t layer)
{
    cellar_ubatch ubatch;
    cellar_error error;
    if (cellar_get_ubatch(r->d.memory, u, &ubatch, &error) != CELLAR_OK)
        return round_fail(r, "micro-batch %u is gone", u);
    for (uint32_t s = 0; s < ubatch.n_segments; s++)
        if (!compute_segment(r, t, u, &ubatch, s, layer)) return false;
    return true;
}
