/*
 * differential_compare.c: hold everything that can be seen of the library against the plain model.
 *
 * The runs of every sequence must spell the model's (position, cell) list; the cells must have its
 * counts, tokens and stored positions; the counts of cellar_stats and cellar_get_sequence must
 * agree; runs must be maximal; cellar_check must find nothing. Which cell a token got is learned
 * when it is first seen and must never change afterwards. The first difference is noted and ends
 * the round.
 */
#include "differential.h"

/* The library's cell `real` stands where the model has `cell`: learn it or hold it to that. */
static bool match_cell(diff_round *r, uint32_t cell, uint32_t real)
{
    model_cell *c = &r->model.cells[cell];
    if (real >= r->model.n_cells)
        return round_fail(r, "a run names cell %u of %u", real, r->model.n_cells);
    if (c->real == MODEL_REAL_UNKNOWN) {
        uint32_t old = r->model_of_real[real];
        if (old != UINT32_MAX && r->model.cells[old].refs > 0 && r->model.cells[old].real == real)
            return round_fail(r, "a token was put into cell %u, which is held", real);
        c->real = real;
        r->model_of_real[real] = cell;
    }
    if (c->real != real)
        return round_fail(r, "a token was in cell %u and is now found in cell %u", c->real, real);
    return true;
}

static bool match_run(diff_round *r, const model_sequence *sequence, uint32_t first,
                      const cellar_run *run)
{
    if (run->len == 0 || first + run->len > sequence->n)
        return round_fail(r,
                          "sequence %d: a run of %u at position %d; the model has %u tokens left",
                          run->seq, run->len, run->pos, sequence->n - first);
    for (uint32_t i = 0; i < run->len; i++) {
        const model_entry *entry = &sequence->entries[first + i];
        int64_t pos = run->pos + (int64_t)i * run->step;
        if (entry->pos != pos)
            return round_fail(r, "sequence %d: token %u stands at %lld, expected %d", run->seq,
                              first + i, (long long)pos, entry->pos);
        if (!match_cell(r, entry->cell, run->cell + i)) return false;
        if (run->shift != entry->pos - r->model.cells[entry->cell].stored_pos)
            return round_fail(r, "sequence %d position %d: shift %d, expected %d", run->seq,
                              entry->pos, run->shift,
                              entry->pos - r->model.cells[entry->cell].stored_pos);
    }
    if (run->shift != 0) r->out->tally[TALLY_SHIFTED]++;
    return true;
}

static bool could_be_one(const cellar_run *a, const cellar_run *b)
{
    return a->seq == b->seq && a->shift == b->shift && b->cell == a->cell + a->len &&
           (int64_t)b->pos == (int64_t)a->pos + a->len;
}

static bool match_sequence(diff_round *r, cellar_seq name)
{
    const model_sequence *sequence = memory_model_sequence(&r->model, name);
    uint32_t n = 0;
    const cellar_run *last = NULL;
    for (uint32_t i = 0; i < r->after.n_runs; i++) {
        const cellar_run *run = &r->after.runs[i];
        if (run->seq != name) continue;
        if (!match_run(r, sequence, n, run)) return false;
        if (last && could_be_one(last, run))
            return round_fail(r, "sequence %d: two runs at %d could be one", name, run->pos);
        last = run;
        n += run->len;
    }
    if (n != sequence->n)
        return round_fail(r, "sequence %d holds %u tokens, expected %u", name, n, sequence->n);
    return true;
}

static bool match_cells(diff_round *r)
{
    uint32_t next = 0, longest = 0; /* next: first cell after the last one seen */
    for (uint32_t i = 0; i < r->after.n_cells; i++) {
        const cellar_cell *cell = &r->after.cells[i];
        if (cell->cell < next || cell->cell >= r->model.n_cells)
            return round_fail(r, "cells are not visited in order: %u", cell->cell);
        longest = cell->cell - next > longest ? cell->cell - next : longest;
        next = cell->cell + 1;
        uint32_t at = r->model_of_real[cell->cell];
        if (at == UINT32_MAX || r->model.cells[at].refs == 0)
            return round_fail(r, "cell %u is held by nobody, refs %u", cell->cell, cell->refs);
        const model_cell *c = &r->model.cells[at];
        if (cell->refs != c->refs || cell->stored_pos != c->stored_pos || cell->token != c->token)
            return round_fail(r, "cell %u: refs %u stored at %d token %d, expected %u %d %d",
                              cell->cell, cell->refs, cell->stored_pos, cell->token, c->refs,
                              c->stored_pos, c->token);
    }
    if (r->model.n_cells - next > longest) longest = r->model.n_cells - next;
    if (r->after.stats.longest_free != longest)
        return round_fail(r, "longest_free is %u, expected %u", r->after.stats.longest_free,
                          longest);
    return true;
}

static bool match_counts(diff_round *r)
{
    const cellar_statistics *s = &r->after.stats;
    uint32_t used = memory_model_count_used(&r->model);
    uint32_t shared = memory_model_count_shared(&r->model), n_sequences = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->model.n_sequences; i++)
        n_sequences += r->model.sequences[i].n > 0;
    for (uint32_t k = 0; k < CELLAR_BYTES_KINDS; k++)
        bytes += s->sizes.bytes[k];
    r->out->tally[TALLY_SHARED] += shared > 0;
    r->out->tally[TALLY_FILLED] += used == r->model.n_cells;
    if (s->n_cells != r->model.n_cells || s->n_used != used || s->n_free != s->n_cells - used ||
        r->after.n_cells != used)
        return round_fail(r, "%u cells, %u used, %u free, %u visited; expected %u used of %u",
                          s->n_cells, s->n_used, s->n_free, r->after.n_cells, used,
                          r->model.n_cells);
    if (s->n_shared != shared || s->n_sequences != n_sequences || s->n_runs != r->after.n_runs)
        return round_fail(r, "%u shared, %u sequences, %llu runs; expected %u, %u, %u", s->n_shared,
                          s->n_sequences, (unsigned long long)s->n_runs, shared, n_sequences,
                          r->after.n_runs);
    if (s->sizes.total != bytes || s->rows_written != r->rows_written)
        return round_fail(r, "total bytes %llu of %llu; rows written %llu, expected %llu",
                          (unsigned long long)s->sizes.total, (unsigned long long)bytes,
                          (unsigned long long)s->rows_written, (unsigned long long)r->rows_written);
    return true;
}

static uint32_t count_runs(const drive_snapshot *snapshot, cellar_seq name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < snapshot->n_runs; i++)
        n += snapshot->runs[i].seq == name;
    return n;
}

/*
 * How many of its cells somebody else holds too; false when the sequence itself holds one twice,
 * for which the header does not say what is counted.
 */
static bool count_shared_cells(const memory_model *model, const model_sequence *sequence,
                               uint32_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < sequence->n; i++) {
        *n += model->cells[sequence->entries[i].cell].refs > 1;
        if (model->cells[sequence->entries[i].cell].refs > 1)
            for (uint32_t j = 0; j < i; j++)
                if (sequence->entries[j].cell == sequence->entries[i].cell) return false;
    }
    return true;
}

static bool match_answers(diff_round *r, cellar_seq name)
{
    const model_sequence *sequence = memory_model_sequence(&r->model, name);
    cellar_pos min = memory_model_pos_min(&r->model, name),
               max = memory_model_pos_max(&r->model, name);
    cellar_sequence_info info;
    cellar_error error;
    if (!round_judge(r, "cellar_get_sequence",
                     cellar_get_sequence(r->d.memory, name, &info, &error), CELLAR_OK, &error, -1))
        return false;
    if (cellar_position_min(r->d.memory, name) != min ||
        cellar_position_max(r->d.memory, name) != max || info.pos_min != min ||
        info.pos_max != max || info.pos_next != max + 1)
        return round_fail(r, "sequence %d: positions %d..%d next %d, expected %d..%d", name,
                          info.pos_min, info.pos_max, info.pos_next, min, max);
    uint32_t n_shared;
    bool is_plain = count_shared_cells(&r->model, sequence, &n_shared);
    if (info.n_runs != count_runs(&r->after, name) ||
        (is_plain && (info.n_cells != sequence->n || info.n_shared != n_shared)))
        return round_fail(r, "sequence %d: %u cells, %u shared, %u runs; expected %u, %u, %u", name,
                          info.n_cells, info.n_shared, info.n_runs, sequence->n, n_shared,
                          count_runs(&r->after, name));
    if (cellar_can_continue(r->d.memory, name, info.rewind_min, NULL, NULL) != CELLAR_OK ||
        (min <= 0 && info.rewind_min != 0))
        return round_fail(r, "sequence %d from %d: rewind_min %d", name, min, info.rewind_min);
    return true;
}

bool round_compare(diff_round *r)
{
    if (!drive_snapshot_take(&r->after, r->d.memory))
        return round_fail(r, "the memory cannot be visited");
    for (uint32_t i = 0; i < r->after.n_runs; i++) {
        bool is_known = false;
        for (uint32_t s = 0; s < r->n_names; s++)
            is_known |= r->names[s] == r->after.runs[i].seq;
        if (!is_known)
            return round_fail(r, "an unknown sequence %d holds cells", r->after.runs[i].seq);
    }
    for (uint32_t s = 0; s < r->n_names; s++)
        if (!match_sequence(r, r->names[s])) return false;
    if (!match_cells(r) || !match_counts(r)) return false;
    for (uint32_t s = 0; s < r->n_names; s++)
        if (!match_answers(r, r->names[s])) return false;
    cellar_error error;
    return round_judge(r, "cellar_check", cellar_check(r->d.memory, &error), CELLAR_OK, &error, -1);
}

bool round_unchanged(diff_round *r, const char *call)
{
    char why[200];
    if (!drive_snapshot_take(&r->after, r->d.memory))
        return round_fail(r, "the memory cannot be visited");
    if (!drive_snapshot_equal(&r->before, &r->after, why))
        return round_fail(r, "%s failed or was aborted and changed something: %s", call, why);
    return true;
}
