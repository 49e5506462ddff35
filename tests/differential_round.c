/*
 * differential_round.c: carry a list of operations out on the library and on the plain model, and
 * compare all that can be seen after each. Steps are in differential_step.c.
 *
 * After every operation everything is compared (differential_compare.c); after a call that failed,
 * everything must be as before it. Arguments are drawn near what the model holds, and a few of them
 * are bad. A round ends at the first difference.
 */
#include "differential.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool round_fail(diff_round *r, const char *format, ...)
{
    if (!r->out->failed) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(r->out->message, sizeof r->out->message, format, arguments);
        va_end(arguments);
        r->out->failed = true;
    }
    return false;
}

void round_log(diff_round *r, const char *format, ...)
{
    if (!r->options.log) return;
    va_list arguments;
    va_start(arguments, format);
    fputs("    # ", r->options.log);
    vfprintf(r->options.log, format, arguments);
    fputc('\n', r->options.log);
    fflush(r->options.log); /* the next call may be the last */
    va_end(arguments);
}

static void tally_status(diff_round *r, cellar_status status)
{
    static const struct {
        cellar_status status;
        tally_kind kind;
    } table[] = {{CELLAR_FULL, TALLY_FULL},       {CELLAR_REFUSED, TALLY_REFUSED},
                 {CELLAR_INVALID, TALLY_INVALID}, {CELLAR_BUSY, TALLY_BUSY},
                 {CELLAR_REPLAY, TALLY_REPLAY},   {CELLAR_NOT_FOUND, TALLY_NOT_FOUND}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].status == status) r->out->tally[table[i].kind]++;
}

bool round_judge(diff_round *r, const char *call, cellar_status got, cellar_status expected,
                 const cellar_error *error, int64_t at)
{
    tally_status(r, got);
    if (got != expected)
        return round_fail(r, "%s: %s, expected %s (%s)", call, cellar_status_text(got),
                          cellar_status_text(expected),
                          error && got != CELLAR_OK ? error->message : "");
    if (got == CELLAR_OK || !error) return true;
    if (error->status != got)
        return round_fail(r, "%s: error says %s, returned %s", call,
                          cellar_status_text(error->status), cellar_status_text(got));
    if (!memchr(error->message, 0, sizeof error->message) || !error->message[0] ||
        strchr(error->message, '\n'))
        return round_fail(r, "%s: the message is not one line of text", call);
    if (at != MODEL_AT_UNSAID && error->at != at)
        return round_fail(r, "%s: error->at is %lld, expected %lld (%s)", call,
                          (long long)error->at, (long long)at, error->message);
    return true;
}

bool round_judge_verdict(diff_round *r, const char *call, cellar_status got, model_verdict verdict,
                         const cellar_error *error)
{
    int status = 0;
    if (got <= 0 && got > -32 && (verdict.allowed & MODEL_MAY(got)))
        return round_judge(r, call, got, got, error, got == CELLAR_OK ? -1 : verdict.at);
    while (!(verdict.allowed >> status & 1))
        status++;
    return round_judge(r, call, got, (cellar_status)-status, error, verdict.at);
}

/* ---- drawing arguments ----------------------------------------------------------------------- */

cellar_seq round_pick_sequence(diff_round *r)
{
    return r->names[random_below(&r->random, r->n_names)];
}

/* Mostly a sequence, sometimes a number that is none. */
static cellar_seq pick_any_sequence(diff_round *r)
{
    static const cellar_seq bad[] = {-1, -2, INT32_MIN};
    return random_one_in(&r->random, 40) ? bad[random_below(&r->random, 3)]
                                         : round_pick_sequence(r);
}

/* A bound near what the sequence holds, or one of the extremes. */
static cellar_pos pick_bound(diff_round *r, cellar_seq seq, bool is_end)
{
    uint32_t n_choices = is_end ? 4 : 5;
    /* clang-format off */
    switch (random_below(&r->random, n_choices + 3)) {
    case 0: return -1;
    case 1: return random_one_in(&r->random, 8) ? INT32_MIN : is_end ? -1 : 0;
    case 2: return random_one_in(&r->random, 8) ? INT32_MAX : is_end ? -1 : 0;
    default: break;
    }
    /* clang-format on */
    if (seq < 0) return random_between(&r->random, 0, 10);
    const model_sequence *sequence = memory_model_sequence(&r->model, seq);
    if (sequence->n == 0) return random_between(&r->random, 0, 4);
    int64_t pos = sequence->entries[random_below(&r->random, sequence->n)].pos;
    pos += random_between(&r->random, -1, 2);
    return (cellar_pos)(pos < 0 ? 0 : pos > INT32_MAX ? INT32_MAX : pos);
}

static void pick_range(diff_round *r, cellar_seq seq, cellar_pos *p0, cellar_pos *p1)
{
    *p0 = pick_bound(r, seq, false);
    *p1 = pick_bound(r, seq, true);
    cellar_pos swap = *p0;
    if (*p0 > *p1 && *p1 >= 0 && !random_one_in(&r->random, 10)) {
        *p0 = *p1;
        *p1 = swap;
    }
}

static cellar_pos pick_delta(diff_round *r)
{
    /* clang-format off */
    switch (random_below(&r->random, 12)) {
    case 0: return 0;
    case 1: return random_between(&r->random, -1000, 1000);
    case 2: return random_between(&r->random, 100000, 10000000);
    case 3: return INT32_MAX - random_between(&r->random, 0, 40);
    case 4: return random_one_in(&r->random, 3) ? INT32_MIN : -1;
    case 5: return 64 * random_between(&r->random, -2, 4);
    default: return random_between(&r->random, -12, 12);
    }
    /* clang-format on */
}

/* An error to fill, or now and then none. */
static cellar_error *pick_error(diff_round *r, cellar_error *error)
{
    memset(error, 0x5a, sizeof *error);
    return random_one_in(&r->random, 8) ? NULL : error;
}

/* ---- operations on sequences ----------------------------------------------------------------- */

/* Judge a call; true: it was done, and the model has to follow. Else all has to be as before. */
static bool is_done(diff_round *r, const char *call, cellar_status got, model_verdict verdict,
                    const cellar_error *error)
{
    if (!round_judge_verdict(r, call, got, verdict, error)) return false;
    if (got == CELLAR_REFUSED && memory_model_recurrent_group(&r->model) != MODEL_NONE)
        r->out->tally[TALLY_STATE_REFUSALS]++;
    if (got != CELLAR_OK) round_unchanged(r, call);
    return got == CELLAR_OK;
}

/* The sequence was cut at its end: checkpoints may have brought something back. */
static void note_cut(diff_round *r, cellar_seq seq, bool was_kept)
{
    const model_sequence *sequence = memory_model_sequence(&r->model, seq);
    r->permit.returned = seq;
    if (sequence->n == 0) return;
    int64_t end = (int64_t)sequence->entries[sequence->n - 1].pos + 1;
    if (memory_model_has_checkpoint(sequence, end) && !was_kept)
        r->out->tally[TALLY_RETURNS]++;
    else
        r->out->tally[TALLY_ROLLBACKS] += memory_model_recurrent_group(&r->model) != MODEL_NONE;
}

/* Could the sequence go on at n by itself? */
static bool goes_on(diff_round *r, cellar_seq seq, int64_t n)
{
    return memory_model_continues(&r->model, memory_model_sequence(&r->model, seq), n);
}

static void do_remove(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    cellar_pos p0, p1;
    pick_range(r, seq, &p0, &p1);
    round_log(r, "remove(%d, %d, %d)", seq, p0, p1);
    model_verdict verdict = memory_model_judge_remove(&r->model, seq, p0, p1);
    bool is_forgotten = r->options.is_sabotaged && random_one_in(&r->random, 4);
    if (!is_done(r, "cellar_remove", cellar_remove(r->d.memory, seq, p0, p1, e), verdict, e))
        return;
    bool was_kept = goes_on(r, seq, p0);
    uint32_t n = memory_model_sequence(&r->model, seq)->n;
    if (!is_forgotten) memory_model_do_remove(&r->model, seq, p0, p1);
    if (memory_model_sequence(&r->model, seq)->n < n) note_cut(r, seq, was_kept);
}

/* Rows copied between pools are the same to the last bit. */
static void match_copied_rows(diff_round *r, cellar_seq from, cellar_seq to, int64_t p0, int64_t p1)
{
    float a[2][64], b[2][64];
    const model_sequence *sequence = memory_model_sequence(&r->model, from);
    for (uint32_t i = 0; i < sequence->n && !r->out->failed; i++) {
        cellar_pos pos = sequence->entries[i].pos;
        if (pos < p0 || pos >= p1 || (i > 0 && sequence->entries[i - 1].pos == pos)) continue;
        for (uint32_t l = 0; l < r->d.n_layers; l++) {
            const cellar_layer *layer = &r->d.layers[l];
            if (layer->kind != CELLAR_LAYER_ATTENTION) continue;
            size_t k = layer->n_kv_heads * layer->k_size * sizeof(float);
            size_t v = layer->n_kv_heads * layer->v_size * sizeof(float);
            if (cellar_read_rows(r->d.memory, from, l, pos, 1, a[0], a[1], NULL) != CELLAR_OK ||
                cellar_read_rows(r->d.memory, to, l, pos, 1, b[0], b[1], NULL) != CELLAR_OK)
                continue;
            if (memcmp(a[0], b[0], k) || memcmp(a[1], b[1], v))
                round_fail(r, "layer %u position %d: a row changed on its way to another pool", l,
                           pos);
        }
    }
}

/* A copy between pools may ask for room. */
static void permit_copy(diff_round *r, cellar_seq from, cellar_seq to, int64_t p0, int64_t p1)
{
    const model_sequence *sequence = memory_model_sequence(&r->model, from);
    uint32_t pool = memory_model_pool(&r->model, to);
    for (uint32_t g = 0; g < r->model.n_groups; g++)
        for (uint32_t i = 0; i < sequence->n; i++) {
            const model_entry *entry = &sequence->entries[i];
            uint32_t p = r->model.groups[g].kind == CELLAR_LAYER_RECURRENT ? 0 : pool;
            if (entry->pos >= p0 && entry->pos < p1) r->permit.wanted[g][p] += entry->held >> g & 1;
        }
    memory_model_doubt_all_checkpoints(&r->model);
}

static void do_copy(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq from = pick_any_sequence(r), to = pick_any_sequence(r);
    cellar_pos p0 = 0, p1 = -1;
    if (random_one_in(&r->random, 2)) pick_range(r, from, &p0, &p1);
    round_log(r, "copy(%d, %d, %d, %d)", from, to, p0, p1);
    model_verdict verdict = memory_model_judge_copy(&r->model, from, to, p0, p1);
    if (!is_done(r, "cellar_copy", cellar_copy(r->d.memory, from, to, p0, p1, e), verdict, e))
        return;
    int64_t first, end;
    memory_model_plain_range(p0, p1, &first, &end);
    bool is_far = memory_model_pool(&r->model, from) != memory_model_pool(&r->model, to);
    if (is_far) permit_copy(r, from, to, first, end);
    if (is_far) r->permit.copied_to = to;
    memory_model_do_copy(&r->model, from, to, p0, p1);
    r->permit.returned = to;
    if (!is_far) return;
    uint32_t used = 0;
    for (uint32_t g = 0; g < MODEL_GROUPS; g++)
        for (uint32_t p = 0; p < MODEL_POOLS; p++)
            used += r->permit.wanted[g][p];
    r->out->tally[TALLY_POOL_COPIES] += used > 0;
    match_copied_rows(r, from, to, first, end);
}

static void do_keep(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    round_log(r, "keep(%d)", seq);
    model_verdict verdict = {MODEL_MAY(seq < 0 ? CELLAR_INVALID : CELLAR_OK), MODEL_AT_UNSAID};
    if (is_done(r, "cellar_keep", cellar_keep(r->d.memory, seq, e), verdict, e))
        memory_model_keep(&r->model, seq);
}

/* A run of the sequence, and the way to where it has the shift of another: runs meet again. */
static bool pick_homecoming(diff_round *r, cellar_seq seq, cellar_pos *p0, cellar_pos *p1,
                            cellar_pos *delta)
{
    const drive_snapshot *now = &r->before;
    if (now->n_runs == 0) return false;
    const cellar_run *run = &now->runs[random_below(&r->random, now->n_runs)];
    const cellar_run *other = &now->runs[random_below(&r->random, now->n_runs)];
    if (run->seq != seq || other->seq != seq) return false;
    *p0 = run->pos;
    *p1 = run->pos + (cellar_pos)run->len;
    *delta = (random_one_in(&r->random, 2) ? 0 : other->shift) - run->shift;
    return true;
}

static void do_shift(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    cellar_pos p0, p1, delta = pick_delta(r);
    if (!random_one_in(&r->random, 2) || !pick_homecoming(r, seq, &p0, &p1, &delta))
        pick_range(r, seq, &p0, &p1);
    if (memory_model_recurrent_group(&r->model) != MODEL_NONE && random_one_in(&r->random, 3))
        p0 = 0, p1 = -1;
    round_log(r, "shift(%d, %d, %d, %d)", seq, p0, p1, delta);
    model_verdict verdict = memory_model_judge_shift(&r->model, seq, p0, p1, delta);
    if (is_done(r, "cellar_shift", cellar_shift(r->d.memory, seq, p0, p1, delta, e), verdict, e))
        memory_model_do_shift(&r->model, seq, p0, p1, delta);
}

static void do_divide(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    cellar_pos p0, p1, divisor = random_between(&r->random, 1, 5);
    if (random_one_in(&r->random, 12)) divisor = random_one_in(&r->random, 2) ? 0 : -3;
    if (random_one_in(&r->random, 12)) divisor = INT32_MAX;
    pick_range(r, seq, &p0, &p1);
    round_log(r, "divide(%d, %d, %d, %d)", seq, p0, p1, divisor);
    model_verdict verdict = memory_model_judge_divide(&r->model, seq, p0, p1, divisor);
    cellar_status got = cellar_divide(r->d.memory, seq, p0, p1, divisor, e);
    if (!is_done(r, "cellar_divide", got, verdict, e)) return;
    memory_model_do_divide(&r->model, seq, p0, p1, divisor);
    r->out->tally[TALLY_DIVISIONS] += divisor > 1;
}

static void do_shift_context(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    cellar_pos length = seq < 0 ? 0 : memory_model_pos_max(&r->model, seq);
    length = length > 2000 || length < 0 ? 4 : length;
    cellar_pos keep = random_between(&r->random, -1, length + 1);
    cellar_pos discard = random_one_in(&r->random, 2) ? 0
                                                      : random_between(&r->random, -1, length + 2);
    cellar_pos first = 0, expected = 0, drop = 0;
    round_log(r, "shift_context(%d, %d, %d)", seq, keep, discard);
    model_verdict verdict = memory_model_judge_shift_context(&r->model, seq, keep, discard, &first,
                                                             &expected);
    cellar_status got = cellar_shift_context(r->d.memory, seq, keep, discard,
                                             random_one_in(&r->random, 8) ? NULL : &drop, e);
    if (!is_done(r, "cellar_shift_context", got, verdict, e)) return;
    if (drop != 0 && drop != expected)
        round_fail(r, "cellar_shift_context discarded %d, expected %d", drop, expected);
    memory_model_do_remove(&r->model, seq, first, first + expected);
    memory_model_do_shift(&r->model, seq, first + expected, -1, -expected);
}

static void do_clear(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    model_verdict verdict = {MODEL_MAY(CELLAR_OK), -1};
    round_log(r, "clear()");
    if (is_done(r, "cellar_clear", cellar_clear(r->d.memory, e), verdict, e))
        memory_model_clear(&r->model);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Is it the largest position up to n at which the sequence can go on? */
static bool match_target(diff_round *r, const char *call, const model_sequence *sequence,
                         cellar_pos n, cellar_pos got)
{
    cellar_pos most = memory_model_rewind_target(&r->model, sequence, n);
    if (got != most)
        return round_fail(r, "%s(%d, %d) goes to %d, expected %d", call, sequence->name, n, got,
                          most);
    return true;
}

static void do_rewind(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    cellar_pos n = pick_bound(r, seq, false), from = -7;
    if (random_one_in(&r->random, 3) && seq >= 0) {
        const model_sequence *sequence = memory_model_sequence(&r->model, seq);
        if (sequence->n_checkpoints > 0)
            n = sequence->checkpoints[random_below(&r->random, sequence->n_checkpoints)].position;
    }
    bool is_bad = seq < 0 || n < 0;
    round_log(r, "rewind(%d, %d)", seq, n);
    model_verdict verdict = {MODEL_MAY(is_bad ? CELLAR_INVALID : CELLAR_OK), MODEL_AT_UNSAID};
    if (!is_done(r, "cellar_rewind", cellar_rewind(r->d.memory, seq, n, &from, e), verdict, e))
        return;
    const model_sequence *sequence = memory_model_sequence(&r->model, seq);
    if (!match_target(r, "rewind", sequence, n, from)) return;
    bool was_kept = memory_model_continues(&r->model, sequence, from);
    uint32_t held = sequence->n;
    int64_t old_next = memory_model_next(&r->model, sequence);
    memory_model_do_remove(&r->model, seq, from, -1);
    note_cut(r, seq, was_kept);
    r->permit.must_continue = true;
    r->out->tally[TALLY_REWINDS] += memory_model_sequence(&r->model, seq)->n < held;
    r->out->tally[TALLY_REPLAYS] += from < n && from < old_next;
}

static void do_checkpoint(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    round_log(r, "checkpoint(%d)", seq);
    model_verdict verdict = memory_model_judge_checkpoint(&r->model, seq);
    if (!is_done(r, "cellar_checkpoint", cellar_checkpoint(r->d.memory, seq, e), verdict, e))
        return;
    bool is_needed = memory_model_has_windows(&r->model) ||
                     memory_model_recurrent_group(&r->model) != MODEL_NONE;
    if (!is_needed || memory_model_sequence(&r->model, seq)->n == 0) return;
    model_sequence *sequence = memory_model_sequence(&r->model, seq);
    memory_model_doubt_all_checkpoints(&r->model);
    memory_model_add_checkpoint(sequence, sequence->entries[sequence->n - 1].pos + 1, true);
    r->out->tally[TALLY_CHECKPOINTS_MADE]++;
}

static void do_drop_checkpoints(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    cellar_pos p0, p1;
    int64_t from, to;
    pick_range(r, seq, &p0, &p1);
    round_log(r, "drop_checkpoints(%d, %d, %d)", seq, p0, p1);
    bool is_bad = seq < 0 || !memory_model_plain_range(p0, p1, &from, &to);
    model_verdict verdict = {MODEL_MAY(is_bad ? CELLAR_INVALID : CELLAR_OK), MODEL_AT_UNSAID};
    cellar_status got = cellar_drop_checkpoints(r->d.memory, seq, p0, p1, e);
    if (is_done(r, "cellar_drop_checkpoints", got, verdict, e))
        memory_model_drop_checkpoints(memory_model_sequence(&r->model, seq), from, to);
}

/* ---- questions ------------------------------------------------------------------------------- */

static void do_continue(diff_round *r)
{
    cellar_error error;
    cellar_seq seq = pick_any_sequence(r);
    cellar_pos n = pick_bound(r, seq, false), from = -7;
    cellar_status got = cellar_can_continue(r->d.memory, seq, n, &from, &error);
    round_log(r, "can_continue(%d, %d)", seq, n);
    if (seq < 0 || n < 0) {
        round_judge(r, "cellar_can_continue", got, CELLAR_INVALID, &error, MODEL_AT_UNSAID);
        return;
    }
    const model_sequence *sequence = memory_model_sequence(&r->model, seq);
    model_verdict verdict = {MODEL_MAY(CELLAR_OK), -1};
    if (!memory_model_continues(&r->model, sequence, n))
        verdict = (model_verdict){MODEL_MAY(CELLAR_REPLAY), MODEL_AT_UNSAID};
    if (!round_judge_verdict(r, "cellar_can_continue", got, verdict, &error) || got == CELLAR_OK)
        return;
    if (error.at != from)
        round_fail(r, "can_continue(%d, %d): replay from %d, error->at %lld", seq, n, from,
                   (long long)error.at);
    match_target(r, "can_continue", sequence, n, from);
}

/* Compare one row that was read back. */
static bool match_row(diff_round *r, uint32_t layer, const model_entry *entry, const float *k,
                      const float *v)
{
    const cellar_layer *shape = &r->d.layers[layer];
    const model_cell *cell = &r->model.cells[entry->cell];
    float raw_k[8], raw_v[32];
    double want_k[8], want_v[32], doubt[8];
    round_fill_row(r, layer, DRIVE_K, cell->id, raw_k);
    round_fill_row(r, layer, DRIVE_V, cell->id, raw_v);
    const attention_model_row row = {entry->pos, cell->stored_pos, raw_k, raw_v};
    attention_model_rows(shape, &row, want_k, want_v, doubt);
    double angle = 0x1p-50 * ((double)entry->pos + cell->stored_pos);
    for (uint32_t i = 0; i < shape->k_size * shape->n_kv_heads; i++)
        if (shape->rope.kind != CELLAR_ROPE_MROPE &&
            !(fabs(k[i] - want_k[i]) <= (0x1p-19 + angle) * 3 + 2 * doubt[i]))
            return round_fail(r, "row of position %d: key element %u is %g, expected %g",
                              entry->pos, i, (double)k[i], want_k[i]);
    for (uint32_t i = 0; i < shape->v_size * shape->n_kv_heads; i++)
        if (!(v[i] == want_v[i]))
            return round_fail(r, "row of position %d: value element %u is %g, expected %g",
                              entry->pos, i, (double)v[i], want_v[i]);
    r->out->tally[TALLY_ROWS]++;
    return true;
}

/* Tokens that share a position: the header does not say which of them is read. */
static bool is_shared_place(const model_sequence *sequence, const model_entry *entry)
{
    uint32_t i = (uint32_t)(entry - sequence->entries);
    return i + 1 < sequence->n && entry[1].pos == entry->pos;
}

static void do_read(diff_round *r)
{
    enum { ROWS = 6 };
    cellar_error error;
    cellar_seq seq = pick_any_sequence(r);
    cellar_pos p0 = pick_bound(r, seq, false);
    uint32_t layer = random_below(&r->random, r->d.n_layers);
    uint32_t n = random_below(&r->random, ROWS + 1);
    const cellar_layer *shape = &r->d.layers[layer];
    size_t k_row = (size_t)shape->k_size * shape->n_kv_heads;
    size_t v_row = (size_t)shape->v_size * shape->n_kv_heads;
    float k[ROWS * 8], v[ROWS * 32];
    round_log(r, "read_rows(%d, layer %u, %d, %u)", seq, layer, p0, n);
    cellar_status got = cellar_read_rows(r->d.memory, seq, layer, p0, n, k, v, &error);
    if (seq < 0 || p0 < 0 || shape->kind != CELLAR_LAYER_ATTENTION) {
        round_judge(r, "cellar_read_rows", got, CELLAR_INVALID, &error, MODEL_AT_UNSAID);
        return;
    }
    if (n == 0 || (int64_t)p0 + n > INT32_MAX)
        return; /* not said what these are; they must only do no harm */
    const model_sequence *sequence = memory_model_sequence(&r->model, seq);
    for (uint32_t i = 0; i < n; i++) {
        cellar_pos pos = p0 + (cellar_pos)i;
        const model_entry *entry = memory_model_find(&r->model, seq, pos);
        if (entry && is_shared_place(sequence, entry)) return;
        if (!entry || !(entry->held >> r->model.group_of[layer] & 1)) {
            round_judge(r, "cellar_read_rows", got, CELLAR_NOT_FOUND, &error, pos);
            return;
        }
        if (got == CELLAR_OK && !match_row(r, layer, entry, k + i * k_row, v + i * v_row)) return;
    }
    round_judge(r, "cellar_read_rows", got, CELLAR_OK, &error, -1);
}

/* ---- a round --------------------------------------------------------------------------------- */

static void close_round(diff_round *r)
{
    drive_close(&r->d);
    memory_model_close(&r->model);
    drive_snapshot_free(&r->before);
    drive_snapshot_free(&r->after);
    for (uint32_t g = 0; g < MODEL_GROUPS; g++)
        free(r->slot_of_real[g]);
}

/* The position behind the last. */
static cellar_pos last_behind(const model_sequence *sequence)
{
    return sequence->n ? sequence->entries[sequence->n - 1].pos + 1 : 0;
}

/* Note what there is before an operation. */
static void prepare(diff_round *r)
{
    memset(&r->permit, 0, sizeof r->permit);
    r->permit.returned = r->permit.copied_to = -1;
    for (uint32_t s = 0; s < r->n_names; s++) {
        const model_sequence *sequence = memory_model_sequence(&r->model, r->names[s]);
        r->permit.next_before[s] = last_behind(sequence);
        r->permit.n_before[s] = sequence->n;
    }
    for (uint32_t i = 0; i < r->before.n_cells; i++) {
        const cellar_cell *cell = &r->before.cells[i];
        uint32_t g = r->model_group[cell->group];
        bool is_state = r->model.groups[g].kind == CELLAR_LAYER_RECURRENT;
        if (cell->pool < MODEL_POOLS) r->permit.used[g][is_state ? 0 : cell->pool]++;
    }
    r->reclaimed_before = r->before.stats.cells_reclaimed;
}

static void carry_out(diff_round *r, const operation *what)
{
    static void (*const operations[OPERATION_KINDS])(diff_round *) = {
        round_step,  do_remove, do_copy,   do_keep,   do_shift,      do_shift_context,   do_clear,
        do_continue, do_read,   do_divide, do_rewind, do_checkpoint, do_drop_checkpoints};
    r->random = what->seed;
    prepare(r);
    operations[what->kind](r);
    r->out->tally[TALLY_OPERATIONS]++;
    if (r->out->failed || !round_compare(r)) return;
    drive_snapshot old = r->before;
    r->before = r->after;
    r->after = old;
}

void round_run(const round_options *options, const operation *list, uint32_t n, outcome *out)
{
    diff_round *r = drive_grab(1, sizeof *r);
    r->options = *options;
    r->out = out;
    memset(out, 0, sizeof *out);
    if (round_open(r))
        for (uint32_t i = 0; i < n && !out->failed; i++) {
            out->at = i;
            carry_out(r, &list[i]);
        }
    close_round(r);
    free(r);
}
