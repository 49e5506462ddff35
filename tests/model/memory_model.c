/*
 * memory_model.c: the array of cells that the library is compared with. See memory_model.h.
 *
 * Every operation builds the list of entries that must be left and recounts all cells. Slow and
 * plain on purpose: what it promises is to be obviously right, not to be fast.
 */
#include "memory_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *grab(size_t n, size_t size)
{
    void *block = calloc(n ? n : 1, size);
    if (!block) {
        fprintf(stderr, "memory_model: out of memory\n");
        exit(2);
    }
    return block;
}

void memory_model_open(memory_model *model, uint32_t n_cells)
{
    memset(model, 0, sizeof *model);
    model->n_cells = n_cells;
    model->cells = grab(n_cells, sizeof *model->cells);
    model->next_id = 1;
}

void memory_model_close(memory_model *model)
{
    for (uint32_t s = 0; s < model->n_sequences; s++)
        free(model->sequences[s].entries);
    free(model->sequences);
    free(model->cells);
    memset(model, 0, sizeof *model);
}

model_sequence *memory_model_sequence(memory_model *model, cellar_seq name)
{
    for (uint32_t s = 0; s < model->n_sequences; s++)
        if (model->sequences[s].name == name) return &model->sequences[s];
    model_sequence *all = grab(model->n_sequences + 1, sizeof *all);
    if (model->n_sequences > 0) memcpy(all, model->sequences, model->n_sequences * sizeof *all);
    free(model->sequences);
    model->sequences = all;
    all[model->n_sequences].name = name;
    return &all[model->n_sequences++];
}

static void push(model_sequence *sequence, cellar_pos pos, uint32_t cell)
{
    if (sequence->n == sequence->capacity) {
        uint32_t capacity = sequence->capacity * 2 + 16;
        model_entry *entries = grab(capacity, sizeof *entries);
        if (sequence->n > 0) memcpy(entries, sequence->entries, sequence->n * sizeof *entries);
        free(sequence->entries);
        sequence->entries = entries;
        sequence->capacity = capacity;
    }
    sequence->entries[sequence->n++] = (model_entry){pos, cell};
}

static void recount(memory_model *model)
{
    for (uint32_t c = 0; c < model->n_cells; c++)
        model->cells[c].refs = 0;
    for (uint32_t s = 0; s < model->n_sequences; s++)
        for (uint32_t i = 0; i < model->sequences[s].n; i++)
            model->cells[model->sequences[s].entries[i].cell].refs++;
}

uint32_t memory_model_count_used(const memory_model *model)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < model->n_cells; c++)
        n += model->cells[c].refs > 0;
    return n;
}

uint32_t memory_model_count_shared(const memory_model *model)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < model->n_cells; c++)
        n += model->cells[c].refs > 1;
    return n;
}

cellar_pos memory_model_pos_min(memory_model *model, cellar_seq seq)
{
    const model_sequence *sequence = memory_model_sequence(model, seq);
    return sequence->n ? sequence->entries[0].pos : -1;
}

cellar_pos memory_model_pos_max(memory_model *model, cellar_seq seq)
{
    const model_sequence *sequence = memory_model_sequence(model, seq);
    return sequence->n ? sequence->entries[sequence->n - 1].pos : -1;
}

const model_entry *memory_model_find(memory_model *model, cellar_seq seq, cellar_pos pos)
{
    const model_sequence *sequence = memory_model_sequence(model, seq);
    for (uint32_t i = 0; i < sequence->n; i++)
        if (sequence->entries[i].pos == pos) return &sequence->entries[i];
    return NULL;
}

/* ---- batches --------------------------------------------------------------------------------- */

const cellar_seq *memory_model_batch_seqs(const cellar_batch *batch, uint32_t i, uint32_t *n)
{
    static const cellar_seq zero = 0;
    *n = 1;
    if (!batch->seqs) return &zero;
    if (!batch->seq_begin) return &batch->seqs[i];
    *n = batch->seq_begin[i + 1] - batch->seq_begin[i];
    return &batch->seqs[batch->seq_begin[i]];
}

static bool hold_the_same(const model_sequence *a, const model_sequence *b)
{
    return a->n == b->n &&
           (a->n == 0 || !memcmp(a->entries, b->entries, a->n * sizeof *a->entries));
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
        if (!hold_the_same(first, memory_model_sequence(model, seqs[s]))) return -1;
    int64_t next = first->n ? (int64_t)first->entries[first->n - 1].pos + 1 : 0;
    if (batch->positions) {
        if (first->n && batch->positions[i] != next) return -1;
        next = batch->positions[i];
    }
    return next < 0 || next > INT32_MAX - 1 ? -1 : (cellar_pos)next;
}

static void add_token(memory_model *model, const cellar_batch *batch, uint32_t i, cellar_pos pos,
                      uint32_t cell)
{
    uint32_t n;
    const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
    for (uint32_t s = 0; s < n; s++)
        push(memory_model_sequence(model, seqs[s]), pos, cell);
}

static void take_back_token(memory_model *model, const cellar_batch *batch, uint32_t i)
{
    uint32_t n;
    const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
    for (uint32_t s = 0; s < n; s++)
        memory_model_sequence(model, seqs[s])->n--;
}

cellar_status memory_model_plan(memory_model *model, const cellar_batch *batch,
                                cellar_pos *positions, int64_t *at)
{
    *at = -1;
    if (batch->n_tokens == 0) {
        *at = MODEL_AT_UNSAID;
        return CELLAR_INVALID;
    }
    uint32_t n_free = model->n_cells - memory_model_count_used(model);
    if (batch->n_tokens > model->n_cells) { /* refused before its tokens are looked at */
        *at = batch->n_tokens - n_free;
        return CELLAR_FULL;
    }
    uint32_t n = 0; /* tokens added for trial; cell numbers beyond the pool mark them */
    cellar_status status = CELLAR_OK;
    for (; n < batch->n_tokens; n++) {
        positions[n] = place(model, batch, n);
        if (positions[n] < 0) {
            status = CELLAR_INVALID;
            *at = n;
            break;
        }
        add_token(model, batch, n, positions[n], model->n_cells + n);
    }
    for (uint32_t i = n; i-- > 0;)
        take_back_token(model, batch, i);
    if (status == CELLAR_OK && batch->n_tokens > n_free) {
        status = CELLAR_FULL;
        *at = batch->n_tokens - n_free;
    }
    return status;
}

void memory_model_append(memory_model *model, const cellar_batch *batch,
                         const cellar_pos *positions, uint32_t *cells)
{
    uint32_t cell = 0;
    for (uint32_t i = 0; i < batch->n_tokens; i++, cell++) {
        while (model->cells[cell].refs > 0)
            cell++;
        model->cells[cell] = (model_cell){batch->tokens ? batch->tokens[i] : -1, positions[i], 0,
                                          MODEL_REAL_UNKNOWN, model->next_id++};
        add_token(model, batch, i, positions[i], cell);
        cells[i] = cell;
    }
    recount(model);
}

/* ---- sequences ------------------------------------------------------------------------------- */

/* Bring a range into plain form: [p0, p1) with p1 up to 2^31. False: not a range. */
static bool plain_range(cellar_pos p0, cellar_pos p1, int64_t *from, int64_t *to)
{
    *from = p0 < 0 ? 0 : p0;
    *to = p1 < 0 ? (int64_t)INT32_MAX + 1 : p1;
    return *from <= *to;
}

static bool is_in(const model_entry *entry, int64_t from, int64_t to)
{
    return entry->pos >= from && entry->pos < to;
}

cellar_status memory_model_remove(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1)
{
    int64_t from, to;
    if (seq < 0 || !plain_range(p0, p1, &from, &to)) return CELLAR_INVALID;
    model_sequence *sequence = memory_model_sequence(model, seq);
    uint32_t n = 0;
    for (uint32_t i = 0; i < sequence->n; i++)
        if (!is_in(&sequence->entries[i], from, to)) sequence->entries[n++] = sequence->entries[i];
    sequence->n = n;
    recount(model);
    return CELLAR_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const model_entry *x = a, *y = b;
    return (x->pos > y->pos) - (x->pos < y->pos);
}

static void sort_entries(model_sequence *sequence)
{
    if (sequence->n > 1)
        qsort(sequence->entries, sequence->n, sizeof *sequence->entries, compare_entries);
}

cellar_status memory_model_copy(memory_model *model, cellar_seq from_seq, cellar_seq to_seq,
                                cellar_pos p0, cellar_pos p1)
{
    int64_t from, to;
    if (from_seq < 0 || to_seq < 0 || !plain_range(p0, p1, &from, &to)) return CELLAR_INVALID;
    if (from_seq == to_seq) return CELLAR_OK;
    memory_model_remove(model, to_seq, p0, p1);
    memory_model_sequence(model, from_seq);
    model_sequence *target = memory_model_sequence(model, to_seq);
    const model_sequence *source = memory_model_sequence(model, from_seq);
    for (uint32_t i = 0; i < source->n; i++)
        if (is_in(&source->entries[i], from, to))
            push(target, source->entries[i].pos, source->entries[i].cell);
    sort_entries(target);
    recount(model);
    return CELLAR_OK;
}

cellar_status memory_model_keep(memory_model *model, cellar_seq seq)
{
    if (seq < 0) return CELLAR_INVALID;
    for (uint32_t s = 0; s < model->n_sequences; s++)
        if (model->sequences[s].name != seq) model->sequences[s].n = 0;
    recount(model);
    return CELLAR_OK;
}

void memory_model_clear(memory_model *model)
{
    for (uint32_t s = 0; s < model->n_sequences; s++)
        model->sequences[s].n = 0;
    recount(model);
}

/* Does an entry outside [from, to) stand at `pos`? */
static bool is_held_outside(const model_sequence *sequence, int64_t from, int64_t to, int64_t pos)
{
    const model_entry key = {(cellar_pos)pos, 0};
    if (pos > INT32_MAX || sequence->n == 0 || (pos >= from && pos < to)) return false;
    return bsearch(&key, sequence->entries, sequence->n, sizeof key, compare_entries) != NULL;
}

static cellar_status judge_shift(const model_sequence *sequence, int64_t from, int64_t to,
                                 cellar_pos delta, int64_t *at)
{
    *at = MODEL_AT_UNSAID;
    for (uint32_t i = 0; i < sequence->n; i++)
        if (is_in(&sequence->entries[i], from, to) &&
            (int64_t)sequence->entries[i].pos + delta > INT32_MAX - 1)
            return CELLAR_INVALID;
    for (uint32_t i = 0; i < sequence->n; i++) {
        int64_t pos = (int64_t)sequence->entries[i].pos + delta;
        if (!is_in(&sequence->entries[i], from, to) || pos < 0) continue;
        if (is_held_outside(sequence, from, to, pos)) {
            *at = pos;
            return CELLAR_REFUSED;
        }
    }
    *at = -1;
    return CELLAR_OK;
}

cellar_status memory_model_shift(memory_model *model, cellar_seq seq, cellar_pos p0, cellar_pos p1,
                                 cellar_pos delta, int64_t *at)
{
    int64_t from, to;
    *at = MODEL_AT_UNSAID;
    if (seq < 0 || !plain_range(p0, p1, &from, &to)) return CELLAR_INVALID;
    model_sequence *sequence = memory_model_sequence(model, seq);
    cellar_status status = judge_shift(sequence, from, to, delta, at);
    if (status != CELLAR_OK) return status;
    uint32_t n = 0;
    for (uint32_t i = 0; i < sequence->n; i++) {
        model_entry entry = sequence->entries[i];
        int64_t pos = (int64_t)entry.pos + (is_in(&entry, from, to) ? delta : 0);
        if (pos >= 0) sequence->entries[n++] = (model_entry){(cellar_pos)pos, entry.cell};
    }
    sequence->n = n;
    sort_entries(sequence);
    recount(model);
    return CELLAR_OK;
}

cellar_status memory_model_shift_context(memory_model *model, cellar_seq seq, cellar_pos keep,
                                         cellar_pos discard, cellar_pos *n_discarded)
{
    if (seq < 0) return CELLAR_INVALID;
    const model_sequence *sequence = memory_model_sequence(model, seq);
    if (sequence->n == 0) return CELLAR_INVALID;
    int64_t min = sequence->entries[0].pos;
    int64_t n = (int64_t)sequence->entries[sequence->n - 1].pos + 1 - min;
    if (keep < 0 || keep >= n || discard < 0 || discard > n - keep) return CELLAR_INVALID;
    int64_t drop = discard ? discard : (n - keep) / 2;
    if (drop == 0) return CELLAR_INVALID;
    int64_t first = min + keep, at;
    *n_discarded = (cellar_pos)drop;
    cellar_status status = memory_model_remove(model, seq, (cellar_pos)first,
                                               (cellar_pos)(first + drop));
    if (status == CELLAR_OK)
        status = memory_model_shift(model, seq, (cellar_pos)(first + drop), -1, (cellar_pos)-drop,
                                    &at);
    return status;
}
