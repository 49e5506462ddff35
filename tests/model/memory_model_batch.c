/*
 * memory_model_batch.c: may a batch be read, and what is there when it was. See memory_model.h.
 *
 * A batch is understood by reading it for trial: token by token is put behind its sequences and
 * taken away again. Room is exact where every cell is kept. Of windows the header promises that
 * what the next tokens see and the batch side by side always fit if they fit; between that and what
 * cannot fit at all the library may refuse or find a way.
 */
#include "memory_model.h"

#include <stdlib.h>
#include <string.h>

#define TRIAL 0x80000000u /* a cell of the trial: the token's number is added */

const cellar_seq *memory_model_batch_seqs(const cellar_batch *batch, uint32_t i, uint32_t *n)
{
    static const cellar_seq zero = 0;
    *n = 1;
    if (!batch->seqs) return &zero;
    if (!batch->seq_begin) return &batch->seqs[i];
    *n = batch->seq_begin[i + 1] - batch->seq_begin[i];
    return &batch->seqs[batch->seq_begin[i]];
}

static bool names_are_legal(const cellar_seq *seqs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (seqs[i] < 0) return false;
        for (uint32_t j = 0; j < i; j++)
            if (seqs[i] == seqs[j]) return false;
    }
    return n > 0;
}

/* Same cells at the same places, and the same places where every cell was given up. */
static bool hold_the_same(const memory_model *model, const model_sequence *a,
                          const model_sequence *b)
{
    if (a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const model_entry *x = &a->entries[i], *y = &b->entries[i];
        if (x->pos != y->pos || x->held != y->held) return false;
        if (x->cell >= TRIAL && x->cell != y->cell) return false;
        for (uint32_t g = 0; g < model->n_groups; g++)
            if ((x->held >> g & 1) && x->slot[g] != y->slot[g]) return false;
    }
    return true;
}

/* As memory_model_next, with tokens of the trial at the end. */
static int64_t next_in_trial(const memory_model *model, const cellar_batch *batch,
                             const model_sequence *sequence)
{
    int64_t largest = -1;
    if (sequence->n == 0 || sequence->entries[sequence->n - 1].cell < TRIAL)
        return memory_model_next(model, sequence);
    for (uint32_t i = sequence->n; i-- > 0;) {
        const model_entry *entry = &sequence->entries[i];
        if (entry->pos < sequence->entries[sequence->n - 1].pos) break;
        cellar_point point = {entry->pos, entry->pos};
        if (entry->cell < TRIAL)
            point = memory_model_point(&model->cells[entry->cell], entry->pos);
        else if (batch->points)
            point = batch->points[entry->cell - TRIAL];
        if (entry->pos > largest) largest = entry->pos;
        if (point.y > largest) largest = point.y;
        if (point.x > largest) largest = point.x;
    }
    return largest + 1;
}

/* Where token i has to stand given what its sequences hold, or -1 if it may not be read. */
static cellar_pos place(memory_model *model, const cellar_batch *batch, uint32_t i)
{
    uint32_t n;
    const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
    if (!names_are_legal(seqs, n)) return -1;
    for (uint32_t s = 0; s < n; s++) /* first make them all: a look-up may move the others */
        memory_model_sequence(model, seqs[s]);
    const model_sequence *first = memory_model_sequence(model, seqs[0]);
    for (uint32_t s = 1; s < n; s++)
        if (memory_model_pool(model, seqs[s]) != memory_model_pool(model, seqs[0]) ||
            !hold_the_same(model, first, memory_model_sequence(model, seqs[s])))
            return -1;
    int64_t next = next_in_trial(model, batch, first);
    if (batch->positions) {
        int64_t given = batch->positions[i];
        int64_t last = first->n ? first->entries[first->n - 1].pos : -1;
        int64_t least = batch->points ? last : last + 1;
        if (first->n && (model->has_points ? given < least : given != next)) return -1;
        next = given;
    }
    if (next < 0 || next > INT32_MAX - 1) return -1;
    if (batch->points) {
        int64_t y = batch->points[i].y, x = batch->points[i].x;
        if (y < 0 || x < 0 || y > INT32_MAX - 1 || x > INT32_MAX - 1) return -1;
        if (y - next > 32767 || next - y > 32767 || x - next > 32767 || next - x > 32767) return -1;
    }
    return (cellar_pos)next;
}

static void add_trial(memory_model *model, const cellar_batch *batch, uint32_t i, cellar_pos pos)
{
    uint32_t n;
    const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
    model_entry entry = {.pos = pos, .cell = TRIAL + i};
    for (uint32_t s = 0; s < n; s++)
        memory_model_push(memory_model_sequence(model, seqs[s]), &entry);
}

/* Read tokens for trial; the first that may not be read, or n_tokens. */
static uint32_t read_for_trial(memory_model *model, const cellar_batch *batch,
                               cellar_pos *positions)
{
    uint32_t n = 0;
    for (; n < batch->n_tokens; n++) {
        positions[n] = place(model, batch, n);
        if (positions[n] < 0) break;
        add_trial(model, batch, n, positions[n]);
    }
    for (uint32_t s = 0; s < model->n_sequences; s++) {
        model_sequence *sequence = &model->sequences[s];
        while (sequence->n > 0 && sequence->entries[sequence->n - 1].cell >= TRIAL)
            sequence->n--;
    }
    return n;
}

/* Does a sequence of the batch lack what its first token must see? */
static void judge_past(memory_model *model, const cellar_batch *batch, const cellar_pos *positions,
                       model_verdict *verdict)
{
    uint32_t n_lacking = 0;
    for (uint32_t i = batch->n_tokens; i-- > 0;) {
        uint32_t n;
        const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
        for (uint32_t s = 0; s < n; s++) {
            bool is_first = true;
            for (uint32_t j = 0, m; j < i && is_first; j++) {
                const cellar_seq *others = memory_model_batch_seqs(batch, j, &m);
                for (uint32_t k = 0; k < m; k++)
                    is_first &= others[k] != seqs[s];
            }
            const model_sequence *sequence = memory_model_sequence(model, seqs[s]);
            if (!is_first || sequence->n == 0) continue;
            if (memory_model_has_all(model, sequence, positions[i])) continue;
            int64_t next = (int64_t)sequence->entries[sequence->n - 1].pos + 1;
            verdict->allowed = MODEL_MAY(CELLAR_REPLAY);
            verdict->at = n_lacking++ || positions[i] != next
                              ? MODEL_AT_UNSAID
                              : memory_model_rewind_target(model, sequence, next);
        }
    }
}

void memory_model_count_wanted(const memory_model *model, const cellar_batch *batch,
                               uint32_t *wanted)
{
    memset(wanted, 0, MODEL_POOLS * sizeof *wanted);
    for (uint32_t i = 0, n; i < batch->n_tokens; i++)
        wanted[memory_model_pool(model, *memory_model_batch_seqs(batch, i, &n))]++;
}

uint32_t memory_model_count_states(const memory_model *model, const cellar_batch *batch,
                                   uint32_t n_kept)
{
    uint32_t total = 0;
    bool is_coupled = false;
    for (uint32_t s = 0; s < model->n_sequences; s++) {
        uint32_t n_tokens = 0;
        for (uint32_t i = 0, n; i < batch->n_tokens; i++) {
            const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
            is_coupled |= n > 1;
            for (uint32_t k = 0; k < n; k++)
                n_tokens += seqs[k] == model->sequences[s].name;
        }
        total += n_tokens < n_kept ? n_tokens : n_kept;
        total += n_tokens > 0 && is_coupled;
    }
    return total;
}

/* Adds CELLAR_FULL to the verdict where it may be, and makes it the only one where it must. */
static void judge_room(memory_model *model, const cellar_batch *batch, model_verdict *verdict)
{
    uint32_t wanted[MODEL_POOLS], n_short = 0, missing = 0;
    bool is_open = false, is_full = false;
    memory_model_count_wanted(model, batch, wanted);
    for (uint32_t g = 0; g < model->n_groups; g++) {
        const model_group *group = &model->groups[g];
        if (group->kind == CELLAR_LAYER_RECURRENT) {
            uint32_t used = memory_model_count_used(model, g, 0);
            is_open |= used + memory_model_count_states(model, batch, group->n_kept) >
                       group->capacity[0];
            is_full |= used + 1 > group->capacity[0];
            continue;
        }
        for (uint32_t p = 0; p < model->n_pools; p++) {
            if (wanted[p] == 0) continue;
            if (group->window.kind != CELLAR_WINDOW_NONE) {
                uint32_t needed = memory_model_count_needed(model, g, p);
                is_open |= needed + wanted[p] > group->capacity[p];
                is_full |= needed + 1 > group->most[p];
                continue;
            }
            uint32_t n_free = group->capacity[p] - memory_model_count_used(model, g, p);
            if (wanted[p] <= n_free) continue;
            missing = wanted[p] - n_free;
            n_short++;
        }
    }
    if (n_short == 0 && !is_open && !is_full) return;
    if (n_short > 0 || is_full) verdict->allowed &= ~MODEL_MAY(CELLAR_OK);
    verdict->allowed |= MODEL_MAY(CELLAR_FULL);
    bool is_plain = n_short == 1 && !is_open && !is_full &&
                    verdict->allowed == MODEL_MAY(CELLAR_FULL);
    verdict->at = is_plain ? missing : MODEL_AT_UNSAID;
}

model_verdict memory_model_judge_batch(memory_model *model, const cellar_batch *batch,
                                       cellar_pos *positions)
{
    model_verdict verdict = {MODEL_MAY(CELLAR_INVALID), MODEL_AT_UNSAID};
    if (batch->n_tokens == 0) return verdict;
    bool keeps_all = false; /* else a batch may be longer than what is kept of it */
    for (uint32_t g = 0; g < model->n_groups; g++)
        keeps_all |= model->groups[g].kind == CELLAR_LAYER_ATTENTION &&
                     model->groups[g].window.kind == CELLAR_WINDOW_NONE;
    bool is_long = batch->n_tokens > model->n_cells;
    if (is_long && keeps_all) { /* refused before its tokens are looked at */
        verdict.allowed = MODEL_MAY(CELLAR_FULL);
        if (batch->points && !model->has_points) verdict.allowed |= MODEL_MAY(CELLAR_INVALID);
        if (model->n_groups == 1 && model->n_pools == 1 &&
            model->groups[0].kind == CELLAR_LAYER_ATTENTION &&
            model->groups[0].window.kind == CELLAR_WINDOW_NONE)
            verdict.at = batch->n_tokens - (model->n_cells - memory_model_count_used(model, 0, 0));
        return verdict;
    }
    if (batch->points && !model->has_points) return verdict;
    uint32_t n = read_for_trial(model, batch, positions);
    if (n < batch->n_tokens) {
        verdict.at = is_long ? MODEL_AT_UNSAID : n;
        if (is_long) verdict.allowed |= MODEL_MAY(CELLAR_FULL);
        return verdict;
    }
    verdict = (model_verdict){MODEL_MAY(CELLAR_OK), -1};
    judge_past(model, batch, positions, &verdict);
    judge_room(model, batch, &verdict);
    if (is_long)
        verdict = (model_verdict){verdict.allowed | MODEL_MAY(CELLAR_FULL), MODEL_AT_UNSAID};
    return verdict;
}

cellar_status memory_model_plan(memory_model *model, const cellar_batch *batch,
                                cellar_pos *positions, int64_t *at)
{
    model_verdict verdict = memory_model_judge_batch(model, batch, positions);
    int status = 0;
    while (!(verdict.allowed >> status & 1))
        status++;
    *at = verdict.at;
    return (cellar_status)-status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void step_state(const memory_model *model, uint64_t id, cellar_pos pos, float *state)
{
    for (uint32_t l = 0; l < model->n_layers; l++)
        recurrence_step(&model->layers[l], l, id, pos, state + model->state_at[l]);
}

/* The last token of the batch before i that stands in the sequence; n_tokens if none does. */
static uint32_t token_before(const cellar_batch *batch, uint32_t i, cellar_seq seq)
{
    while (i-- > 0) {
        uint32_t n;
        const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
        for (uint32_t s = 0; s < n; s++)
            if (seqs[s] == seq) return i;
    }
    return batch->n_tokens;
}

void memory_model_foresee_states(memory_model *model, const cellar_batch *batch,
                                 const cellar_pos *positions, float (*states)[MODEL_STATE_FLOATS])
{
    for (uint32_t i = 0; i < batch->n_tokens; i++) {
        uint32_t n;
        cellar_seq seq = *memory_model_batch_seqs(batch, i, &n);
        uint32_t before = token_before(batch, i, seq);
        const model_sequence *sequence = memory_model_sequence(model, seq);
        memset(states[i], 0, sizeof *states);
        if (before < batch->n_tokens)
            memcpy(states[i], states[before], sizeof *states);
        else if (sequence->n > 0)
            memcpy(states[i], model->cells[sequence->entries[sequence->n - 1].cell].state,
                   sizeof *states);
        step_state(model, model->next_id + i, positions[i], states[i]);
    }
}

void memory_model_recompute_state(memory_model *model, const model_sequence *sequence, uint32_t end,
                                  float *state)
{
    memset(state, 0, MODEL_STATE_FLOATS * sizeof *state);
    for (uint32_t i = 0; i < end; i++) {
        const model_cell *cell = &model->cells[sequence->entries[i].cell];
        step_state(model, cell->id, cell->stored_pos, state);
    }
}

static uint32_t new_cell(memory_model *model)
{
    uint32_t c = 0;
    while (c < model->n_known && model->cells[c].names > 0)
        c++;
    if (c == model->n_known) {
        uint32_t capacity = model->n_known * 2 + 16;
        model_cell *cells = memory_model_grab(capacity, sizeof *cells);
        if (model->n_known > 0) memcpy(cells, model->cells, model->n_known * sizeof *cells);
        free(model->cells);
        model->cells = cells;
        model->n_known = capacity;
    }
    return c;
}

/* Only the states behind the last tokens stay. */
static void overwrite_states(memory_model *model, const cellar_batch *batch, uint32_t group)
{
    for (uint32_t s = 0; s < model->n_sequences; s++) {
        model_sequence *sequence = &model->sequences[s];
        if (token_before(batch, batch->n_tokens, sequence->name) == batch->n_tokens) continue;
        for (uint32_t i = 0; i + model->groups[group].n_kept < sequence->n; i++)
            sequence->entries[i].held &= ~(1u << group);
    }
}

void memory_model_append(memory_model *model, const cellar_batch *batch,
                         const cellar_pos *positions, uint32_t *cells)
{
    float(*states)[MODEL_STATE_FLOATS] = memory_model_grab(batch->n_tokens, sizeof *states);
    memory_model_foresee_states(model, batch, positions, states);
    for (uint32_t i = 0; i < batch->n_tokens; i++) {
        uint32_t n;
        const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
        cells[i] = new_cell(model);
        model_cell *cell = &model->cells[cells[i]];
        *cell = (model_cell){.token = batch->tokens ? batch->tokens[i] : -1,
                             .stored_pos = positions[i],
                             .point = {positions[i], positions[i]},
                             .names = 1,
                             .id = model->next_id++};
        if (batch->points) cell->point = batch->points[i];
        memcpy(cell->state, states[i], sizeof *states);
        model_entry entry = {.pos = positions[i], .cell = cells[i]};
        for (uint32_t g = 0; g < MODEL_GROUPS; g++) {
            bool is_there = g < model->n_groups;
            bool is_state = is_there && model->groups[g].kind == CELLAR_LAYER_RECURRENT;
            uint32_t pool = is_state ? 0 : memory_model_pool(model, seqs[0]);
            entry.slot[g] = is_there ? memory_model_new_slot(model, g, cells[i], pool)
                                     : MODEL_NO_SLOT;
            if (is_there) entry.held |= 1u << g;
        }
        for (uint32_t s = 0; s < n; s++)
            memory_model_push(memory_model_sequence(model, seqs[s]), &entry);
    }
    free(states);
    uint32_t group = memory_model_recurrent_group(model);
    if (group != MODEL_NONE) overwrite_states(model, batch, group);
    memory_model_recount(model);
}
