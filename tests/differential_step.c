/*
 * differential_step.c: the operation "step" of the differential test: draw a batch (good or bad),
 * ask the model what must happen, and take the library through it.
 *
 * Micro-batches and layers are stored in a random legal order, sometimes with a call that is not
 * legal in between; some steps try to change the memory while they are open (CELLAR_BUSY), some are
 * aborted half way. In a sample of the steps every query is attended, some of them again after
 * later micro-batches were stored, and compared with brute force over the tokens that the model
 * says it sees.
 */
#include "differential.h"

#include <stdlib.h>
#include <string.h>

/* A batch with room for its arrays, and what the model says about it. */
typedef struct trial {
    cellar_batch batch;
    cellar_token *tokens;
    cellar_pos *given;     /* positions as handed over */
    cellar_pos *positions; /* where they stand */
    uint32_t *seq_begin;
    cellar_seq *seqs;
    uint32_t *ubatch_of; /* [n_tokens] filled when the step is open */
    uint32_t *stored;    /* [n_layers] micro-batches stored so far */
    uint64_t first_id;   /* token i's rows are named first_id + i */
    cellar_status expected;
    int64_t at;
} trial;

static void free_trial(trial *t)
{
    free(t->tokens);
    free(t->given);
    free(t->positions);
    free(t->seq_begin);
    free(t->seqs);
    free(t->ubatch_of);
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
    t->ubatch_of = drive_grab(n, sizeof *t->ubatch_of);
    t->stored = drive_grab(r->d.n_layers, sizeof *t->stored);
    t->first_id = r->model.next_id;
}

/* ---- drawing a batch ------------------------------------------------------------------------- */

static uint32_t pick_length(diff_round *r)
{
    uint32_t n_free = r->model.n_cells - memory_model_count_used(&r->model);
    /* clang-format off */
    switch (random_below(&r->random, 16)) {
    case 0: return n_free + 1;
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

/* Positions as they would come anyway; an empty sequence may begin anywhere; some are wrong. */
static void draw_positions(diff_round *r, trial *t)
{
    int64_t at;
    uint32_t n = t->batch.n_tokens;
    if (n == 0 || n > r->model.n_cells || random_one_in(&r->random, 2)) return;
    if (memory_model_plan(&r->model, &t->batch, t->given, &at) == CELLAR_INVALID) return;
    if (random_one_in(&r->random, 4)) { /* a start that is not 0, for all sequences alike */
        cellar_pos start = random_one_in(&r->random, 3)
                               ? INT32_MAX - random_between(&r->random, 1, 20)
                               : random_between(&r->random, 0, 50);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t n_seqs;
            cellar_seq seq = *memory_model_batch_seqs(&t->batch, i, &n_seqs);
            if (memory_model_pos_max(&r->model, seq) < 0)
                t->given[i] = (int64_t)t->given[i] + start > INT32_MAX ? INT32_MAX
                                                                       : t->given[i] + start;
        }
    }
    if (random_one_in(&r->random, 12)) {
        cellar_pos *moved = &t->given[random_below(&r->random, n)];
        int64_t to = (int64_t)*moved + random_between(&r->random, -2, 2);
        *moved = to > INT32_MAX ? INT32_MAX : (cellar_pos)to;
    }
    t->batch.positions = t->given;
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
    t->expected = CELLAR_INVALID;
    t->at = MODEL_AT_UNSAID;
    return true;
}

static void draw(diff_round *r, trial *t)
{
    make_room(r, t, pick_length(r));
    uint32_t shape = random_below(&r->random, 8);
    if (shape < 2 && r->d.layers[0].is_causal)
        draw_sets(r, t);
    else if (shape < 7)
        draw_singles(r, t);
    draw_tokens(r, t);
    draw_positions(r, t);
    if (!spoil(r, t)) t->expected = memory_model_plan(&r->model, &t->batch, t->positions, &t->at);
}

/* ---- an open step ---------------------------------------------------------------------------- */

/* The micro-batches together are the batch, in order, none longer than allowed. */
static bool learn_ubatches(diff_round *r, trial *t)
{
    uint32_t n = cellar_count_ubatches(r->d.memory), seen = 0;
    for (uint32_t u = 0; u < n; u++) {
        cellar_ubatch ubatch;
        cellar_error error;
        if (!round_judge(r, "cellar_get_ubatch", cellar_get_ubatch(r->d.memory, u, &ubatch, &error),
                         CELLAR_OK, &error, -1))
            return false;
        if (ubatch.n_tokens < 1 || ubatch.n_tokens > r->d.n_ubatch)
            return round_fail(r, "micro-batch %u has %u tokens", u, ubatch.n_tokens);
        for (uint32_t i = 0; i < ubatch.n_tokens; i++, seen++) {
            if (seen >= t->batch.n_tokens || ubatch.indices[i] != seen ||
                ubatch.positions[i] != t->positions[seen])
                return round_fail(r, "micro-batch %u token %u is token %u at %d, expected %u at %d",
                                  u, i, ubatch.indices[i], ubatch.positions[i], seen,
                                  seen < t->batch.n_tokens ? t->positions[seen] : -1);
            t->ubatch_of[seen] = u;
        }
    }
    cellar_ubatch none;
    if (seen != t->batch.n_tokens ||
        cellar_get_ubatch(r->d.memory, n, &none, NULL) != CELLAR_INVALID)
        return round_fail(r, "%u micro-batches hold %u of %u tokens", n, seen, t->batch.n_tokens);
    return true;
}

/* The tokens of micro-batch u: [*first, *first + n). */
static uint32_t span(const trial *t, uint32_t u, uint32_t *first)
{
    uint32_t n = 0;
    for (uint32_t i = t->batch.n_tokens; i-- > 0;)
        if (t->ubatch_of[i] == u) {
            *first = i;
            n++;
        }
    return n;
}

static float *rows_of(const diff_round *r, const trial *t, uint32_t u, uint32_t layer,
                      drive_row what, size_t row)
{
    uint32_t first = 0, n = span(t, u, &first);
    float *rows = drive_grab(n * row, sizeof *rows);
    for (uint32_t i = 0; i < n; i++)
        round_fill_row(r, layer, what, t->first_id + first + i, rows + i * row);
    return rows;
}

static bool store(diff_round *r, trial *t, uint32_t u, uint32_t layer, cellar_status expected)
{
    const cellar_layer *shape = &r->d.layers[layer];
    float *k = rows_of(r, t, u, layer, DRIVE_K, (size_t)shape->n_kv_heads * shape->k_size);
    float *v = rows_of(r, t, u, layer, DRIVE_V, (size_t)shape->n_kv_heads * shape->v_size);
    cellar_error error;
    cellar_status got = cellar_store(r->d.memory, u, layer, k, v, &error);
    uint32_t first;
    if (got == CELLAR_OK) r->rows_written += span(t, u, &first);
    free(k);
    free(v);
    return round_judge(r, "cellar_store", got, expected, &error, MODEL_AT_UNSAID);
}

/* ---- attention ------------------------------------------------------------------------------- */

static bool stands_in(const cellar_batch *batch, uint32_t i, cellar_seq seq)
{
    uint32_t n;
    const cellar_seq *seqs = memory_model_batch_seqs(batch, i, &n);
    for (uint32_t s = 0; s < n; s++)
        if (seqs[s] == seq) return true;
    return false;
}

/* Rows that token `me` sees, with room for their numbers behind each other in *numbers. */
static uint32_t gather_visible(diff_round *r, const trial *t, uint32_t me, uint32_t layer,
                               attention_model_row *rows, float *numbers)
{
    uint32_t n_seqs, n = 0;
    cellar_seq seq = *memory_model_batch_seqs(&t->batch, me, &n_seqs);
    const model_sequence *past = memory_model_sequence(&r->model, seq);
    size_t k_row = (size_t)r->d.layers[layer].n_kv_heads * r->d.layers[layer].k_size;
    size_t v_row = (size_t)r->d.layers[layer].n_kv_heads * r->d.layers[layer].v_size;
    uint64_t id;
    for (uint32_t i = 0; i < past->n + t->batch.n_tokens; i++) {
        if (i < past->n) {
            const model_cell *cell = &r->model.cells[past->entries[i].cell];
            rows[n] = (attention_model_row){past->entries[i].pos, cell->stored_pos, NULL, NULL};
            id = cell->id;
        } else {
            uint32_t other = i - past->n;
            bool is_seen = t->ubatch_of[other] <= t->ubatch_of[me] &&
                           (!r->d.layers[layer].is_causal ||
                            t->positions[other] <= t->positions[me]);
            if (!is_seen || !stands_in(&t->batch, other, seq)) continue;
            rows[n] = (attention_model_row){t->positions[other], t->positions[other], NULL, NULL};
            id = t->first_id + other;
        }
        float *k = numbers + n * (k_row + v_row), *v = k + k_row;
        round_fill_row(r, layer, DRIVE_K, id, k);
        round_fill_row(r, layer, DRIVE_V, id, v);
        rows[n].k = k;
        rows[n++].v = v;
    }
    return n;
}

static bool match_query(diff_round *r, const trial *t, uint32_t me, uint32_t layer, const float *q,
                        const float *got)
{
    enum { ROW = 40, OUT = 32, HEADS = 2 };
    uint32_t most = t->batch.n_tokens, n_seqs;
    const cellar_seq *seqs = memory_model_batch_seqs(&t->batch, me, &n_seqs);
    double out[OUT], bound[HEADS];
    most += memory_model_sequence(&r->model, *seqs)->n;
    attention_model_row *rows = drive_grab(most, sizeof *rows);
    float *numbers = drive_grab((size_t)most * ROW, sizeof *numbers);
    uint32_t n = gather_visible(r, t, me, layer, rows, numbers);
    attention_model_attend(&r->d.layers[layer], q, t->positions[me], rows, n, out, bound);
    double worst = attention_model_worst(&r->d.layers[layer], got, out, bound);
    free(rows);
    free(numbers);
    r->out->tally[TALLY_ATTENDED]++;
    if (worst > 1)
        return round_fail(
            r,
            "token %u of the batch, position %d, layer %u: attention over %u tokens is "
            "%.3g times the bound away (first number %g, expected %g)",
            me, t->positions[me], layer, n, worst, (double)got[0], out[0]);
    return true;
}

static bool attend(diff_round *r, const trial *t, uint32_t u, uint32_t layer)
{
    const cellar_layer *shape = &r->d.layers[layer];
    size_t q_row = (size_t)shape->n_heads * shape->k_size;
    size_t out_row = (size_t)shape->n_heads * shape->v_size;
    uint32_t first = 0, n = span(t, u, &first);
    float *q = rows_of(r, t, u, layer, DRIVE_Q, q_row), *out = drive_grab(n * out_row, sizeof *out);
    memset(out, 0xff, n * out_row * sizeof *out); /* NaN: every number has to be written */
    cellar_error error;
    bool is_good = round_judge(r, "cellar_attend",
                               cellar_attend(r->d.memory, u, layer, q, out, &error), CELLAR_OK,
                               &error, -1);
    for (uint32_t i = 0; i < n && is_good; i++)
        if (n <= 12 || random_one_in(&r->random, n / 8))
            is_good = match_query(r, t, first + i, layer, q + i * q_row, out + i * out_row);
    free(q);
    free(out);
    return is_good;
}

/* ---- carrying a step out --------------------------------------------------------------------- */

/* Everything that would change the memory has to wait. */
static bool try_busy(diff_round *r)
{
    cellar_memory *memory = r->d.memory;
    cellar_seq seq = round_pick_sequence(r), other = round_pick_sequence(r);
    cellar_batch batch = cellar_batch_init();
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
    bool same = r->after.n_runs == r->before.n_runs;
    for (uint32_t i = 0; i < r->after.n_runs && same; i++)
        same = r->after.runs[i].seq == r->before.runs[i].seq &&
               r->after.runs[i].pos == r->before.runs[i].pos &&
               r->after.runs[i].cell == r->before.runs[i].cell &&
               r->after.runs[i].len == r->before.runs[i].len;
    if (!same) return round_fail(r, "an open step can be seen in the runs");
    if (r->after.stats.n_used != r->before.stats.n_used + t->batch.n_tokens ||
        r->after.n_cells != r->after.stats.n_used)
        return round_fail(r, "an open step of %u: used %u, visited %u, before %u",
                          t->batch.n_tokens, r->after.stats.n_used, r->after.n_cells,
                          r->before.stats.n_used);
    cellar_error error;
    return round_judge(r, "cellar_check in a step", cellar_check(r->d.memory, &error), CELLAR_OK,
                       &error, -1);
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

/* Store n_stores micro-batches (all, but in a step to be aborted); attend in a sample of steps. */
static bool fill_step(diff_round *r, trial *t, bool is_sample, uint32_t n_stores)
{
    uint32_t n = cellar_count_ubatches(r->d.memory);
    bool is_odd = random_one_in(&r->random, 6);
    for (uint32_t i = 0; i < n_stores; i++) {
        uint32_t layer = random_below(&r->random, r->d.n_layers);
        while (t->stored[layer] == n)
            layer = (layer + 1) % r->d.n_layers;
        if (is_odd && !try_wrong_store(r, t)) return false;
        if (!store(r, t, t->stored[layer], layer, CELLAR_OK)) return false;
        t->stored[layer]++;
        uint32_t again = random_below(&r->random, t->stored[layer]);
        if (is_sample && (!attend(r, t, t->stored[layer] - 1, layer) ||
                          (again + 1 < t->stored[layer] && !attend(r, t, again, layer))))
            return false;
    }
    return true;
}

static bool finish(diff_round *r, trial *t, bool is_abort)
{
    cellar_error error;
    if (is_abort) {
        cellar_abort(r->d.memory);
        r->model.next_id += t->batch.n_tokens; /* other rows for the next ones */
        r->out->tally[TALLY_ABORTS]++;
        return round_unchanged(r, "cellar_abort");
    }
    if (!round_judge(r, "cellar_commit", cellar_commit(r->d.memory, &error), CELLAR_OK, &error, -1))
        return false;
    uint32_t *cells = drive_grab(t->batch.n_tokens, sizeof *cells);
    memory_model_append(&r->model, &t->batch, t->positions, cells);
    free(cells);
    r->out->tally[TALLY_COMMITS]++;
    for (uint32_t i = 0, n; i < t->batch.n_tokens; i++) {
        memory_model_batch_seqs(&t->batch, i, &n);
        r->out->tally[TALLY_TOGETHER] += n > 1;
    }
    return true;
}

static void carry_through(diff_round *r, trial *t)
{
    bool is_abort = random_one_in(&r->random, 6);
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
    round_log(r, "step of %u: %s", t->batch.n_tokens, cellar_status_text(t->expected));
    for (uint32_t i = 0; i < t->batch.n_tokens && t->expected == CELLAR_OK; i++) {
        uint32_t n;
        const cellar_seq *seqs = memory_model_batch_seqs(&t->batch, i, &n);
        for (uint32_t s = 0; s < n; s++)
            round_log(r, "  token %u: sequence %d position %d", i, seqs[s], t->positions[i]);
    }
}

void round_step(diff_round *r)
{
    trial t;
    draw(r, &t);
    log_trial(r, &t);
    cellar_error error;
    cellar_status got = cellar_begin(r->d.memory, &t.batch, &error);
    if (round_judge(r, "cellar_begin", got, t.expected, &error, t.at)) {
        if (got == CELLAR_OK)
            carry_through(r, &t);
        else
            round_unchanged(r, "cellar_begin");
    }
    free_trial(&t);
}
