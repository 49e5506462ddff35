/*
 * differential_step.c: the operation "step" of the differential test: take the library through a
 * batch that differential_batch.c drew.
 *
 * Micro-batches and layers are stored in a random legal order, sometimes with a call that is not
 * legal in between; some steps try to change the memory while they are open (CELLAR_BUSY), some are
 * aborted half way. In a sample of the steps every query is attended, some of them again after
 * later micro-batches were stored (differential_attend.c).
 */
#include "differential.h"

#include <stdlib.h>
#include <string.h>

/* ---- micro-batches --------------------------------------------------------------------------- */

static cellar_split effective_split(const diff_round *r)
{
    if (r->split != CELLAR_SPLIT_AUTO) return r->split;
    bool is_equal = r->model.n_pools > 1 || memory_model_recurrent_group(&r->model) != MODEL_NONE;
    return is_equal ? CELLAR_SPLIT_EQUAL : CELLAR_SPLIT_SIMPLE;
}

/* Do two tokens stand in the same sequences? */
static bool same_sequences(const trial *t, uint32_t a, uint32_t b)
{
    uint32_t n, m;
    const cellar_seq *x = memory_model_batch_seqs(&t->batch, a, &n);
    memory_model_batch_seqs(&t->batch, b, &m);
    for (uint32_t s = 0; s < n; s++)
        if (n != m || !trial_stands_in(t, b, x[s])) return false;
    return true;
}

/* The segments cut the micro-batch into stretches of tokens in the same sequences. */
static bool match_segments(diff_round *r, const trial *t, uint32_t u, const cellar_ubatch *ubatch)
{
    uint32_t next = 0;
    cellar_split split = effective_split(r);
    for (uint32_t s = 0; s < ubatch->n_segments; s++) {
        const cellar_segment *part = &ubatch->segments[s];
        if (part->first != next || part->n_tokens == 0 ||
            part->n_tokens > ubatch->n_tokens - part->first)
            return round_fail(r, "micro-batch %u: segment %u is %u tokens from %u on", u, s,
                              part->n_tokens, part->first);
        for (uint32_t i = 0; i < part->n_tokens; i++)
            if (!same_sequences(t, ubatch->indices[part->first], ubatch->indices[part->first + i]))
                return round_fail(r, "micro-batch %u: segment %u mixes sequences", u, s);
        if (!trial_stands_in(t, ubatch->indices[part->first], part->seq))
            return round_fail(r, "micro-batch %u: segment %u is not sequence %d's", u, s,
                              part->seq);
        if (split == CELLAR_SPLIT_EQUAL && part->n_tokens != ubatch->segments[0].n_tokens)
            return round_fail(r, "micro-batch %u: %u and %u tokens in an equal split", u,
                              ubatch->segments[0].n_tokens, part->n_tokens);
        next += part->n_tokens;
    }
    if (next != ubatch->n_tokens)
        return round_fail(r, "micro-batch %u: segments hold %u of %u tokens", u, next,
                          ubatch->n_tokens);
    if (split == CELLAR_SPLIT_BY_SEQUENCE && ubatch->n_segments != 1)
        return round_fail(r, "micro-batch %u: %u sequences", u, ubatch->n_segments);
    for (uint32_t s = 0; s < ubatch->n_segments && split == CELLAR_SPLIT_EQUAL; s++)
        for (uint32_t o = 0; o < s; o++)
            if (same_sequences(t, ubatch->indices[ubatch->segments[s].first],
                               ubatch->indices[ubatch->segments[o].first]))
                return round_fail(r, "micro-batch %u: a sequence has two segments", u);
    r->out->tally[TALLY_EQUAL] += split == CELLAR_SPLIT_EQUAL && ubatch->n_segments > 1;
    r->out->tally[TALLY_BY_SEQUENCE] += split == CELLAR_SPLIT_BY_SEQUENCE;
    return true;
}

/* Every token after those before it in its sequences: in the micro-batch, and in all of them. */
static bool match_order(diff_round *r, const trial *t, uint32_t u, const cellar_ubatch *ubatch,
                        uint32_t i)
{
    uint32_t me = ubatch->indices[i];
    for (uint32_t j = 0; j < me; j++) {
        uint32_t n;
        const cellar_seq *seqs = memory_model_batch_seqs(&t->batch, j, &n);
        bool is_before = false;
        for (uint32_t s = 0; s < n; s++)
            is_before |= trial_stands_in(t, me, seqs[s]);
        if (is_before && t->ubatch_of[j] == UINT32_MAX)
            return round_fail(r, "micro-batch %u computes token %u before token %u", u, me, j);
    }
    return true;
}

/* The micro-batches together are the batch, none longer than allowed. */
static bool learn_ubatches(diff_round *r, trial *t)
{
    uint32_t n = cellar_count_ubatches(r->d.memory), seen = 0;
    bool is_simple = effective_split(r) == CELLAR_SPLIT_SIMPLE, is_ordered = true;
    memset(t->ubatch_of, 0xff, t->batch.n_tokens * sizeof *t->ubatch_of);
    for (uint32_t u = 0; u < n; u++) {
        cellar_ubatch ubatch;
        cellar_error error;
        if (!round_judge(r, "cellar_get_ubatch", cellar_get_ubatch(r->d.memory, u, &ubatch, &error),
                         CELLAR_OK, &error, -1))
            return false;
        if (ubatch.n_tokens < 1 || ubatch.n_tokens > r->d.n_ubatch)
            return round_fail(r, "micro-batch %u has %u tokens", u, ubatch.n_tokens);
        for (uint32_t i = 0; i < ubatch.n_tokens; i++, seen++) {
            uint32_t me = ubatch.indices[i];
            if (me >= t->batch.n_tokens || t->ubatch_of[me] != UINT32_MAX ||
                ubatch.positions[i] != t->positions[me] || (is_simple && me != seen))
                return round_fail(r, "micro-batch %u token %u is token %u at %d", u, i, me,
                                  ubatch.positions[i]);
            if (!match_order(r, t, u, &ubatch, i)) return false;
            t->ubatch_of[me] = u;
            is_ordered &= me == seen;
        }
        bool is_last = seen == t->batch.n_tokens;
        if (is_simple && !is_last && ubatch.n_tokens != r->d.n_ubatch)
            return round_fail(r, "micro-batch %u has %u tokens", u, ubatch.n_tokens);
        if (!match_segments(r, t, u, &ubatch)) return false;
    }
    cellar_ubatch none;
    if (seen != t->batch.n_tokens ||
        cellar_get_ubatch(r->d.memory, n, &none, NULL) != CELLAR_INVALID)
        return round_fail(r, "%u micro-batches hold %u of %u tokens", n, seen, t->batch.n_tokens);
    r->out->tally[TALLY_CUT_BETWEEN] += !is_ordered;
    return true;
}

static bool store(diff_round *r, trial *t, uint32_t u, uint32_t layer, cellar_status expected)
{
    const cellar_layer *shape = &r->d.layers[layer];
    cellar_ubatch ubatch;
    cellar_error error;
    cellar_status got = cellar_get_ubatch(r->d.memory, u, &ubatch, NULL);
    if (got != CELLAR_OK) return round_fail(r, "micro-batch %u is gone", u);
    if (shape->kind == CELLAR_LAYER_RECURRENT) {
        if (expected == CELLAR_OK && !trial_compute_states(r, t, u, layer)) return false;
        got = cellar_confirm(r->d.memory, u, layer, &error);
        return round_judge(r, "cellar_confirm", got, expected, &error, MODEL_AT_UNSAID);
    }
    float *k = trial_rows(r, t, &ubatch, layer, DRIVE_K, (size_t)shape->n_kv_heads * shape->k_size);
    float *v = trial_rows(r, t, &ubatch, layer, DRIVE_V, (size_t)shape->n_kv_heads * shape->v_size);
    got = cellar_store(r->d.memory, u, layer, k, v, &error);
    if (got == CELLAR_OK) r->rows_written += ubatch.n_tokens;
    free(k);
    free(v);
    return round_judge(r, "cellar_store", got, expected, &error, MODEL_AT_UNSAID);
}

/* ---- carrying a step out --------------------------------------------------------------------- */

/* Everything that would change the memory has to wait. */
static bool try_busy(diff_round *r)
{
    cellar_memory *memory = r->d.memory;
    cellar_seq seq = round_pick_sequence(r), other = round_pick_sequence(r);
    cellar_batch batch = cellar_batch_init();
    cellar_pos from;
    batch.n_tokens = 1;
    batch.seqs = &seq;
    cellar_error error;
    return round_judge(r, "remove in a step", cellar_remove(memory, seq, 0, -1, &error),
                       CELLAR_BUSY, &error, MODEL_AT_UNSAID) &&
           round_judge(r, "copy in a step", cellar_copy(memory, seq, other, 0, -1, &error),
                       CELLAR_BUSY, &error, MODEL_AT_UNSAID) &&
           round_judge(r, "keep in a step", cellar_keep(memory, seq, &error), CELLAR_BUSY, &error,
                       MODEL_AT_UNSAID) &&
           round_judge(r, "shift in a step", cellar_shift(memory, seq, 0, -1, 1, &error),
                       CELLAR_BUSY, &error, MODEL_AT_UNSAID) &&
           round_judge(r, "divide in a step", cellar_divide(memory, seq, 0, -1, 2, &error),
                       CELLAR_BUSY, &error, MODEL_AT_UNSAID) &&
           round_judge(r, "checkpoint in a step", cellar_checkpoint(memory, seq, &error),
                       CELLAR_BUSY, &error, MODEL_AT_UNSAID) &&
           round_judge(r, "drop in a step", cellar_drop_checkpoints(memory, seq, 0, -1, &error),
                       CELLAR_BUSY, &error, MODEL_AT_UNSAID) &&
           round_judge(r, "rewind in a step", cellar_rewind(memory, seq, 0, &from, &error),
                       CELLAR_BUSY, &error, MODEL_AT_UNSAID) &&
           round_judge(r, "clear in a step", cellar_clear(memory, &error), CELLAR_BUSY, &error,
                       MODEL_AT_UNSAID) &&
           round_judge(r, "begin in a step", cellar_begin(memory, &batch, &error), CELLAR_BUSY,
                       &error, MODEL_AT_UNSAID);
}

/* While a step is open, the runs are those from before and n_used counts the reserved cells. */
static bool match_open(diff_round *r, const trial *t)
{
    if (!drive_snapshot_take(&r->after, r->d.memory))
        return round_fail(r, "an open step cannot be visited");
    cellar_error error;
    bool is_sound = round_judge(r, "cellar_check in a step", cellar_check(r->d.memory, &error),
                                CELLAR_OK, &error, -1);
    /* What a window gives up may go now; it is looked at when the step is over. */
    if (!is_sound || memory_model_has_windows(&r->model)) return is_sound;
    bool same = r->after.n_runs == r->before.n_runs;
    for (uint32_t i = 0; i < r->after.n_runs && same; i++)
        same = r->after.runs[i].seq == r->before.runs[i].seq &&
               r->after.runs[i].pos == r->before.runs[i].pos &&
               r->after.runs[i].cell == r->before.runs[i].cell &&
               r->after.runs[i].group == r->before.runs[i].group &&
               r->after.runs[i].len == r->before.runs[i].len;
    if (!same) return round_fail(r, "an open step can be seen in the runs");
    if (memory_model_recurrent_group(&r->model) != MODEL_NONE) return true;
    if (r->after.stats.n_used != r->before.stats.n_used + t->batch.n_tokens ||
        r->after.n_cells != r->after.stats.n_used)
        return round_fail(r, "an open step of %u: used %u, visited %u, before %u",
                          t->batch.n_tokens, r->after.stats.n_used, r->after.n_cells,
                          r->before.stats.n_used);
    return true;
}

/* Calls that are out of order. */
static bool try_wrong_store(diff_round *r, trial *t)
{
    uint32_t n = cellar_count_ubatches(r->d.memory);
    uint32_t layer = random_below(&r->random, r->d.n_layers);
    cellar_error error;
    if (t->stored[layer] > 0 && !store(r, t, t->stored[layer] - 1, layer, CELLAR_INVALID))
        return false;
    if (t->stored[layer] + 1 < n && !store(r, t, t->stored[layer] + 1, layer, CELLAR_INVALID))
        return false;
    if (t->stored[layer] < n)
        return round_judge(r, "commit of half a step", cellar_commit(r->d.memory, &error),
                           CELLAR_INVALID, &error, MODEL_AT_UNSAID);
    return true;
}

/*
 * May the layer store its next micro-batch now? A window group that has to reuse cells on the way
 * needs all its layers to have stored the one before.
 */
static bool is_next(const diff_round *r, const trial *t, uint32_t layer)
{
    uint32_t group = r->model.group_of[layer];
    if (!t->is_tight || r->model.groups[group].window.kind == CELLAR_WINDOW_NONE) return true;
    for (uint32_t l = 0; l < r->d.n_layers; l++)
        if (r->model.group_of[l] == group && t->stored[l] < t->stored[layer]) return false;
    return true;
}

/* Store n_stores micro-batches (all, but in a step to be aborted); attend in a sample of steps. */
static bool fill_step(diff_round *r, trial *t, bool is_sample, uint32_t n_stores)
{
    uint32_t n = cellar_count_ubatches(r->d.memory);
    bool is_odd = random_one_in(&r->random, 6);
    for (uint32_t i = 0; i < n_stores; i++) {
        uint32_t layer = random_below(&r->random, r->d.n_layers);
        while (t->stored[layer] == n || !is_next(r, t, layer))
            layer = (layer + 1) % r->d.n_layers;
        if (is_odd && !try_wrong_store(r, t)) return false;
        if (!store(r, t, t->stored[layer], layer, CELLAR_OK)) return false;
        t->stored[layer]++;
        if (!is_sample || r->d.layers[layer].kind != CELLAR_LAYER_ATTENTION) continue;
        bool is_kept = !t->is_tight ||
                       r->model.groups[r->model.group_of[layer]].window.kind == CELLAR_WINDOW_NONE;
        uint32_t again = random_below(&r->random, t->stored[layer]);
        if (!trial_attend(r, t, t->stored[layer] - 1, layer) ||
            (is_kept && again + 1 < t->stored[layer] && !trial_attend(r, t, again, layer)))
            return false;
    }
    return true;
}

/* What the step asks of each group, and whether a window can give it without reusing cells. */
static void note_wanted(diff_round *r, trial *t)
{
    uint32_t wanted[MODEL_POOLS];
    memory_model_count_wanted(&r->model, &t->batch, wanted);
    for (uint32_t g = 0; g < r->model.n_groups; g++) {
        const model_group *group = &r->model.groups[g];
        for (uint32_t p = 0; p < r->model.n_pools; p++) {
            bool is_state = group->kind == CELLAR_LAYER_RECURRENT;
            r->permit.wanted[g][is_state ? 0 : p] += wanted[p];
            if (is_state && p == 0) {
                uint32_t most = memory_model_count_used(&r->model, g, 0) +
                                memory_model_count_states(&r->model, &t->batch, group->n_kept);
                r->permit.is_short_of_states = most > group->capacity[0];
            }
            if (group->window.kind == CELLAR_WINDOW_NONE || wanted[p] == 0) continue;
            uint32_t needed = memory_model_count_needed(&r->model, g, p);
            bool is_short = r->permit.used[g][p] + wanted[p] > group->capacity[p];
            t->is_tight |= needed + wanted[p] > group->capacity[p];
            t->is_tight |= is_short && r->before.n_checkpoints > 0; /* what they hold stays */
        }
    }
}

/* Is a checkpoint to be made after token i, if possible: marked, or every so many positions? */
static bool is_wanted(const diff_round *r, const trial *t, uint32_t i)
{
    uint32_t interval = r->model.checkpoint_interval;
    return (t->batch.checkpoints && t->batch.checkpoints[i]) ||
           (interval > 0 && ((int64_t)t->positions[i] + 1) % interval == 0);
}

/* A token at the last position of its sequence stands before the checkpoints behind that: they go. */
static void forget_overtaken(diff_round *r, const trial *t)
{
    for (uint32_t i = 0; i < t->batch.n_tokens; i++) {
        uint32_t n;
        const cellar_seq *seqs = memory_model_batch_seqs(&t->batch, i, &n);
        for (uint32_t s = 0; s < n; s++)
            memory_model_drop_checkpoints(memory_model_sequence(&r->model, seqs[s]),
                                          (int64_t)t->positions[i] + 1, INT64_MAX);
    }
}

static void expect_checkpoints(diff_round *r, const trial *t)
{
    forget_overtaken(r, t);
    for (uint32_t i = 0; i < t->batch.n_tokens; i++) {
        if (!is_wanted(r, t, i)) continue;
        uint32_t n;
        const cellar_seq *seqs = memory_model_batch_seqs(&t->batch, i, &n);
        for (uint32_t s = 0; s < n; s++) {
            model_sequence *sequence = memory_model_sequence(&r->model, seqs[s]);
            if (!memory_model_has_checkpoint(sequence, t->positions[i] + 1))
                memory_model_add_checkpoint(sequence, t->positions[i] + 1, false);
        }
    }
}

/* States that the step may have asked for and that were not free: checkpoints had to give them. */
static uint32_t missing_states(const diff_round *r, const trial *t)
{
    uint32_t g = memory_model_recurrent_group(&r->model);
    if (g == MODEL_NONE) return 0;
    const model_group *group = &r->model.groups[g];
    uint32_t n = memory_model_count_states(&r->model, &t->batch, group->n_kept);
    for (uint32_t i = 0; i < t->batch.n_tokens; i++)
        n += is_wanted(r, t, i);
    uint32_t n_free = r->before.groups[group->real].n_free;
    return n > n_free ? n - n_free : 0;
}

/* An aborted step: all is as before, but for checkpoints whose states it took. */
static bool match_aborted(diff_round *r, const trial *t)
{
    uint32_t n_missing = missing_states(r, t);
    if (memory_model_has_windows(&r->model)) return true;
    if (n_missing == 0) return round_unchanged(r, "cellar_abort");
    char why[200];
    uint32_t group = (uint32_t)r->model.groups[memory_model_recurrent_group(&r->model)].real;
    if (!drive_snapshot_take(&r->after, r->d.memory))
        return round_fail(r, "the memory cannot be visited");
    if (!drive_snapshot_within(&r->before, &r->after, group, n_missing, why))
        return round_fail(r, "cellar_abort changed something: %s", why);
    return true;
}

static bool finish(diff_round *r, trial *t, bool is_abort)
{
    cellar_error error;
    r->permit.is_step = true;
    /* Room may have been made at the cost of checkpoints. */
    memory_model_doubt_all_checkpoints(&r->model);
    if (is_abort) {
        cellar_abort(r->d.memory);
        r->model.next_id += t->batch.n_tokens; /* other rows for the next ones */
        r->out->tally[TALLY_ABORTS]++;
        return match_aborted(r, t);
    }
    if (!round_judge(r, "cellar_commit", cellar_commit(r->d.memory, &error), CELLAR_OK, &error, -1))
        return false;
    uint32_t *cells = drive_grab(t->batch.n_tokens, sizeof *cells);
    memory_model_append(&r->model, &t->batch, t->positions, cells);
    free(cells);
    r->permit.is_commit = true;
    expect_checkpoints(r, t);
    r->out->tally[TALLY_COMMITS]++;
    for (uint32_t i = 0, n; i < t->batch.n_tokens; i++) {
        memory_model_batch_seqs(&t->batch, i, &n);
        r->out->tally[TALLY_TOGETHER] += n > 1;
        r->out->tally[TALLY_POINTS] += t->batch.points != NULL;
        r->out->tally[TALLY_SAME_PLACE] += i > 0 && t->positions[i] == t->positions[i - 1] &&
                                           same_sequences(t, i, i - 1);
    }
    return true;
}

static void carry_through(diff_round *r, trial *t)
{
    bool is_abort = random_one_in(&r->random, 6);
    note_wanted(r, t);
    memory_model_foresee_states(&r->model, &t->batch, t->positions, t->states);
    bool is_sample = random_one_in(&r->random, r->model.n_cells > 100 ? 25 : 6);
    if (!learn_ubatches(r, t) || (random_one_in(&r->random, 8) && !try_busy(r)) ||
        (random_one_in(&r->random, 4) && !match_open(r, t)))
        return;
    uint32_t n_stores = cellar_count_ubatches(r->d.memory) * r->d.n_layers;
    if (is_abort) n_stores = random_below(&r->random, n_stores + 1);
    if (fill_step(r, t, is_sample, n_stores) && finish(r, t, is_abort) &&
        cellar_count_ubatches(r->d.memory) != 0)
        round_fail(r, "the step is over and still has micro-batches");
}

static void log_trial(diff_round *r, const trial *t)
{
    if (!r->options.log) return;
    round_log(r, "step of %u: may be %x", t->batch.n_tokens, t->verdict.allowed);
    for (uint32_t i = 0; i < t->batch.n_tokens && (t->verdict.allowed & 1); i++) {
        uint32_t n;
        const cellar_seq *seqs = memory_model_batch_seqs(&t->batch, i, &n);
        for (uint32_t s = 0; s < n; s++)
            round_log(r, "  token %u: sequence %d position %d%s", i, seqs[s], t->positions[i],
                      t->batch.checkpoints && t->batch.checkpoints[i] ? ", checkpoint" : "");
    }
}

void round_step(diff_round *r)
{
    trial t;
    trial_draw(r, &t);
    log_trial(r, &t);
    cellar_error error;
    cellar_status got = cellar_begin(r->d.memory, &t.batch, &error);
    if (round_judge_verdict(r, "cellar_begin", got, t.verdict, &error)) {
        r->out->tally[TALLY_BEHIND_WINDOW] += got == CELLAR_REPLAY;
        r->out->tally[TALLY_STATES_FULL] += got == CELLAR_FULL && t.verdict.at == MODEL_AT_UNSAID;
        if (got == CELLAR_OK)
            carry_through(r, &t);
        else
            round_unchanged(r, "cellar_begin");
    }
    trial_free(&t);
}
