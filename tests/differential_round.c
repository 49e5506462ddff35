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

const char *const operation_names[OPERATION_KINDS] = {
    "step", "remove", "copy", "keep", "shift", "shift_context", "clear", "continue", "read",
};

const char *const tally_names[TALLY_KINDS] = {
    "operations", "commits", "aborts",   "full",      "refused",
    "invalid",    "busy",    "replay",   "not found", "filled pools",
    "shared",     "shifted", "together", "attended",  "rows read",
};

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

/* Judge a call; the state has to follow the model, or to stay when the call failed. */
static void conclude(diff_round *r, const char *call, cellar_status got, cellar_status expected,
                     const cellar_error *error, int64_t at)
{
    if (!round_judge(r, call, got, expected, error, at)) return;
    if (got != CELLAR_OK) round_unchanged(r, call);
}

static void do_remove(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    cellar_pos p0, p1;
    pick_range(r, seq, &p0, &p1);
    round_log(r, "remove(%d, %d, %d)", seq, p0, p1);
    cellar_status expected = CELLAR_OK;
    if (!r->options.is_sabotaged || !random_one_in(&r->random, 4))
        expected = memory_model_remove(&r->model, seq, p0, p1);
    conclude(r, "cellar_remove", cellar_remove(r->d.memory, seq, p0, p1, e), expected, e,
             MODEL_AT_UNSAID);
}

static void do_copy(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq from = pick_any_sequence(r), to = pick_any_sequence(r);
    cellar_pos p0 = 0, p1 = -1;
    if (random_one_in(&r->random, 2)) pick_range(r, from, &p0, &p1);
    round_log(r, "copy(%d, %d, %d, %d)", from, to, p0, p1);
    cellar_status expected = memory_model_copy(&r->model, from, to, p0, p1);
    conclude(r, "cellar_copy", cellar_copy(r->d.memory, from, to, p0, p1, e), expected, e,
             MODEL_AT_UNSAID);
}

static void do_keep(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    cellar_seq seq = pick_any_sequence(r);
    round_log(r, "keep(%d)", seq);
    cellar_status expected = memory_model_keep(&r->model, seq);
    conclude(r, "cellar_keep", cellar_keep(r->d.memory, seq, e), expected, e, MODEL_AT_UNSAID);
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
    int64_t at;
    if (!random_one_in(&r->random, 2) || !pick_homecoming(r, seq, &p0, &p1, &delta))
        pick_range(r, seq, &p0, &p1);
    round_log(r, "shift(%d, %d, %d, %d)", seq, p0, p1, delta);
    cellar_status expected = memory_model_shift(&r->model, seq, p0, p1, delta, &at);
    conclude(r, "cellar_shift", cellar_shift(r->d.memory, seq, p0, p1, delta, e), expected, e, at);
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
    cellar_pos expected_drop = 0, drop = 0;
    round_log(r, "shift_context(%d, %d, %d)", seq, keep, discard);
    cellar_status expected = memory_model_shift_context(&r->model, seq, keep, discard,
                                                        &expected_drop);
    cellar_status got = cellar_shift_context(r->d.memory, seq, keep, discard,
                                             random_one_in(&r->random, 8) ? NULL : &drop, e);
    conclude(r, "cellar_shift_context", got, expected, e, MODEL_AT_UNSAID);
    if (got == CELLAR_OK && drop != 0 && drop != expected_drop)
        round_fail(r, "cellar_shift_context discarded %d, expected %d", drop, expected_drop);
}

static void do_clear(diff_round *r)
{
    cellar_error error, *e = pick_error(r, &error);
    round_log(r, "clear()");
    memory_model_clear(&r->model);
    conclude(r, "cellar_clear", cellar_clear(r->d.memory, e), CELLAR_OK, e, MODEL_AT_UNSAID);
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
    bool is_there = n == 0 || memory_model_find(&r->model, seq, n - 1);
    int64_t next = (int64_t)memory_model_pos_max(&r->model, seq) + 1;
    if (!round_judge(r, "cellar_can_continue", got, is_there ? CELLAR_OK : CELLAR_REPLAY, &error,
                     MODEL_AT_UNSAID) ||
        got == CELLAR_OK)
        return;
    if (n > next && from != next)
        round_fail(r, "can_continue(%d, %d): replay from %d, expected %lld", seq, n, from,
                   (long long)next);
    if (n <= next && from != 0 && (from >= n || !memory_model_find(&r->model, seq, from - 1)))
        round_fail(r, "can_continue(%d, %d): replay from %d, before which nothing stands", seq, n,
                   from);
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
        if (!(fabs(k[i] - want_k[i]) <= (0x1p-19 + angle) * 3 + 2 * doubt[i]))
            return round_fail(r, "row of position %d: key element %u is %g, expected %g",
                              entry->pos, i, (double)k[i], want_k[i]);
    for (uint32_t i = 0; i < shape->v_size * shape->n_kv_heads; i++)
        if (!(v[i] == want_v[i]))
            return round_fail(r, "row of position %d: value element %u is %g, expected %g",
                              entry->pos, i, (double)v[i], want_v[i]);
    r->out->tally[TALLY_ROWS]++;
    return true;
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
    if (seq < 0 || p0 < 0) {
        round_judge(r, "cellar_read_rows", got, CELLAR_INVALID, &error, MODEL_AT_UNSAID);
        return;
    }
    if (n == 0 || (int64_t)p0 + n > INT32_MAX)
        return; /* not said what these are; they must only do no harm */
    for (uint32_t i = 0; i < n; i++) {
        const model_entry *entry = memory_model_find(&r->model, seq, p0 + (cellar_pos)i);
        if (!entry) {
            round_judge(r, "cellar_read_rows", got, CELLAR_NOT_FOUND, &error, p0 + (cellar_pos)i);
            return;
        }
        if (got == CELLAR_OK && !match_row(r, layer, entry, k + i * k_row, v + i * v_row)) return;
    }
    round_judge(r, "cellar_read_rows", got, CELLAR_OK, &error, -1);
}

/* ---- a round --------------------------------------------------------------------------------- */

void round_fill_row(const diff_round *r, uint32_t layer, drive_row what, uint64_t id, float *to)
{
    const cellar_layer *shape = &r->d.layers[layer];
    size_t n = what == DRIVE_Q
                   ? shape->n_heads * shape->k_size
                   : shape->n_kv_heads * (what == DRIVE_K ? shape->k_size : shape->v_size);
    drive_fill(to, n, random_mix(r->d.seed + id, layer * 3 + what));
    for (size_t i = 0; i < n && layer == 0; i++)
        to[i] = what == DRIVE_K ? 0.0f : to[i] < 0 ? -1.0f : 1.0f;
}

static uint32_t pick_pool(uint64_t *random)
{
    static const uint32_t pools[] = {1,  7,  7,  7,  32, 32, 32,  32,  32,  32,
                                     64, 64, 64, 64, 64, 64, 200, 200, 200, 1000};
    return pools[random_below(random, sizeof pools / sizeof *pools)];
}

static void pick_layers(diff_round *r, uint64_t *random)
{
    static const cellar_rope_kind kinds[] = {CELLAR_ROPE_NONE, CELLAR_ROPE_NORMAL,
                                             CELLAR_ROPE_NEOX};
    cellar_layer *a = &r->d.layers[0], *b = &r->d.layers[1];
    r->d.n_layers = 2;
    *a = drive_layer(1, 1, 2, 32);
    *b = drive_layer(2, 1, 4, 4);
    a->rope.kind = kinds[random_below(random, 3)];
    b->rope.kind = kinds[random_below(random, 3)];
    b->rope.n_rot = random_one_in(random, 2) ? 0 : 2;
    b->rope.yarn_attn = random_one_in(random, 2) ? 1.25 : 1;
    b->k_type = random_one_in(random, 2) ? CELLAR_F16 : CELLAR_F32;
    b->v_type = random_one_in(random, 2) ? CELLAR_F16 : CELLAR_F32;
    a->is_causal = b->is_causal = !random_one_in(random, 5);
}

static bool open_round(diff_round *r)
{
    static const cellar_seq names[ROUND_SEQUENCES] = {0, 1, 7, INT32_MAX, 1000000, 2, 300, 65536};
    uint64_t random = r->options.seed;
    cellar_config config = cellar_config_init();
    config.n_cells = pick_pool(&random);
    config.n_ubatch = 1 + random_below(&random, 8);
    config.cpu_mask = random_one_in(&random, 4) ? CELLAR_CPU_SCALAR : CELLAR_CPU_ALL;
    r->n_names = 1 + random_below(&random, ROUND_SEQUENCES);
    if (r->options.n_cells) config.n_cells = r->options.n_cells;
    if (r->options.n_sequences) r->n_names = r->options.n_sequences;
    memcpy(r->names, names, sizeof names);
    pick_layers(r, &random);
    r->d.seed = random;
    memory_model_open(&r->model, config.n_cells);
    r->model_of_real = drive_grab(config.n_cells, sizeof *r->model_of_real);
    memset(r->model_of_real, 0xff, config.n_cells * sizeof *r->model_of_real);
    round_log(r, "%u cells, %u sequences, micro-batches of %u, %s", config.n_cells, r->n_names,
              config.n_ubatch, r->d.layers[0].is_causal ? "causal" : "not causal");
    cellar_error error = {0};
    if (drive_open(&r->d, &config, &error) != CELLAR_OK)
        return round_fail(r, "cellar_create: %s", error.message);
    return drive_snapshot_take(&r->before, r->d.memory);
}

static void close_round(diff_round *r)
{
    drive_close(&r->d);
    memory_model_close(&r->model);
    drive_snapshot_free(&r->before);
    drive_snapshot_free(&r->after);
    free(r->model_of_real);
}

static void carry_out(diff_round *r, const operation *what)
{
    static void (*const operations[OPERATION_KINDS])(diff_round *) = {
        round_step,       do_remove, do_copy,     do_keep, do_shift,
        do_shift_context, do_clear,  do_continue, do_read,
    };
    r->random = what->seed;
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
    if (open_round(r))
        for (uint32_t i = 0; i < n && !out->failed; i++) {
            out->at = i;
            carry_out(r, &list[i]);
        }
    close_round(r);
    free(r);
}
