/*
 * replay_steps.c: do the steps of a run and look at the memory after each.
 *
 * Each kind of step is a line in a table: its name and a function that does it. After every step
 * the smallest and largest position of each sequence must be the trace's (with windows the smallest is
 * another matter: replay_positions.c), and cellar_check must be content. The first thing that is wrong ends the run. Numbers of the trace are read with a check
 * of their kind: a trace that makes no sense fails the run, not the program.
 */
#include "replay.h"
#include "replay_positions.h"
#include "replay_recurrent.h"
#include "replay_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct replay {
    const model *model;
    const replay_config *config;
    const replay_settings *settings;
    replay_outcome *outcome;
    engine *engine;
    const json_t *step;
    double step_worst; /* of the step's logits */
    /*
     * On streams the reference's seq_keep leaves other streams as they were, against its own contract. From
     * then on every other sequence must be empty here, whatever the trace says of it.
     */
    bool has_kept;
    uint32_t kept;
    /*
     * The reference's shift turns the stored keys of every layer, also of those that have no rotation beside
     * others that have one (Cohere 2), and attends wrongly from then on: a computation in double that does
     * the same agrees with its rows to 2e-5, one that leaves those keys alone agrees with ours. What
     * is right is shown by unit_arch_attention.
     */
    bool is_reference_wrong;
    bool has_refused;                /* what the trace has done: replay_recurrent.h */
    replay_state whole, of_sequence; /* as they were saved last */
    replay_positions given;          /* what sequences would hold without windows */
} replay;

/* The arrays of a batch, from malloc. */
typedef struct replay_batch {
    uint32_t n_tokens, n_wanted;
    cellar_token *tokens;
    cellar_pos *positions;
    uint32_t *seq_begin, *wanted;
    cellar_seq *seqs;
    float *logits;
} replay_batch;

void replay_fail(replay_outcome *outcome, const char *format, ...)
{
    if (outcome->what == REPLAY_FAILED) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(outcome->reason, sizeof outcome->reason, format, arguments);
    va_end(arguments);
    outcome->what = REPLAY_FAILED;
}

static bool has_failed(const replay *r)
{
    return r->outcome->what == REPLAY_FAILED;
}

static int32_t integer_at(const replay *r, const json_t *array, size_t i)
{
    const json_t *value = json_array_get(array, i);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < INT32_MIN || number > INT32_MAX) {
        replay_fail(r->outcome, "the trace has no whole number at place %zu of a list", i);
        return 0;
    }
    return (int32_t)number;
}

/* Argument i of a step. */
static int32_t argument(const replay *r, size_t i)
{
    return integer_at(r, json_object_get(r->step, "args"), i);
}

static void check_status(const replay *r, cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) {
        replay_fail(r->outcome, "%s: %s", cellar_status_text(status), error->message);
    }
}

/* ---- decode --------------------------------------------------------------------------------- */

static void free_batch(replay_batch *b)
{
    free(b->tokens);
    free(b->positions);
    free(b->seq_begin);
    free(b->wanted);
    free(b->seqs);
    free(b->logits);
}

/* The length of the step's list `name`. */
static uint32_t count(const replay *r, const char *name)
{
    const json_t *list = json_object_get(r->step, name);
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > 65536) {
        replay_fail(r->outcome, "the trace has no list '%s' of a sensible length", name);
        return 0;
    }
    return (uint32_t)n;
}

static uint32_t count_memberships(const replay *r, uint32_t n_tokens)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_tokens; i++) {
        n += (uint32_t)json_array_size(json_array_get(json_object_get(r->step, "seq"), i));
    }
    return n;
}

static bool allocate_batch(const replay *r, replay_batch *b, uint32_t n_memberships)
{
    size_t n = b->n_tokens;
    b->tokens = calloc(n, sizeof *b->tokens);
    b->positions = calloc(n, sizeof *b->positions);
    b->seq_begin = calloc(n + 1, sizeof *b->seq_begin);
    b->seqs = calloc((size_t)n_memberships + 1, sizeof *b->seqs);
    b->wanted = calloc((size_t)b->n_wanted + 1, sizeof *b->wanted);
    b->logits = calloc((size_t)b->n_wanted * r->model->n_vocab + 1, sizeof *b->logits);
    if (b->tokens && b->positions && b->seq_begin && b->seqs && b->wanted && b->logits) {
        return true;
    }
    replay_fail(r->outcome, "no memory for a batch");
    return false;
}

static void fill_batch(const replay *r, replay_batch *b)
{
    const json_t *tokens = json_object_get(r->step, "tok"),
                 *positions = json_object_get(r->step, "pos");
    const json_t *seqs = json_object_get(r->step, "seq"), *wanted = json_object_get(r->step, "out");
    for (uint32_t i = 0; i < b->n_tokens; i++) {
        const json_t *members = json_array_get(seqs, i);
        uint32_t n_members = (uint32_t)json_array_size(members);
        b->tokens[i] = integer_at(r, tokens, i);
        b->positions[i] = integer_at(r, positions, i);
        for (uint32_t j = 0; j < n_members; j++) {
            b->seqs[b->seq_begin[i] + j] = integer_at(r, members, j);
        }
        b->seq_begin[i + 1] = b->seq_begin[i] + n_members;
    }
    for (uint32_t i = 0; i < b->n_wanted; i++) {
        b->wanted[i] = (uint32_t)integer_at(r, wanted, i);
    }
}

static cellar_batch as_batch(const replay_batch *b)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = b->n_tokens;
    batch.tokens = b->tokens;
    batch.positions = b->positions;
    batch.seq_begin = b->seq_begin;
    batch.seqs = b->seqs;
    return batch;
}

static void compare_logits(replay *r, const replay_batch *b)
{
    const json_t *rows = json_object_get(r->step, "logits");
    double bar = replay_bar(r->model, r->config, r->settings->is_exact);
    if (r->is_reference_wrong) {
        r->outcome->n_wrong += b->n_wanted;
        return;
    }
    for (uint32_t i = 0; i < b->n_wanted; i++) {
        const float *row = b->logits + (size_t)i * r->model->n_vocab;
        double difference = replay_compare(row, r->model->n_vocab, json_array_get(rows, i));
        r->step_worst = fmax(r->step_worst, difference);
        r->outcome->worst = fmax(r->outcome->worst, difference);
        r->outcome->n_positions++;
        if (!(difference <= bar)) {
            replay_fail(r->outcome, "logits of token %" PRIu32 " differ by %g", b->wanted[i],
                        difference);
        }
    }
}

/* How far the tokens of a step stand behind the trace's positions: the first tells of all. */
static cellar_pos ahead_of_trace(const replay *r, const replay_batch *b)
{
    return r->has_refused && b->seq_begin[1] > 0
               ? cellar_position_max(engine_memory(r->engine), b->seqs[0]) + 1 - b->positions[0]
               : 0;
}

static void do_decode(replay *r)
{
    replay_batch b = {.n_tokens = count(r, "tok"), .n_wanted = count(r, "out")};
    if (count(r, "pos") != b.n_tokens || count(r, "seq") != b.n_tokens ||
        json_array_size(json_object_get(r->step, "logits")) != b.n_wanted) {
        replay_fail(r->outcome, "the trace's lists are not of one length");
    }
    if (!has_failed(r) && allocate_batch(r, &b, count_memberships(r, b.n_tokens))) {
        fill_batch(r, &b);
    }
    if (!has_failed(r)) {
        r->given.ahead = ahead_of_trace(r, &b);
        for (uint32_t i = 0; i < b.n_tokens; i++) {
            b.positions[i] += r->given.ahead;
        }
        const cellar_batch batch = as_batch(&b);
        cellar_error error;
        cellar_status status = engine_decode(r->engine, &batch, b.wanted, b.n_wanted, b.logits,
                                             &error);
        if (json_integer_value(json_object_get(r->step, "rc")) == 0) {
            check_status(r, status, &error);
        } else if (status == CELLAR_OK) {
            replay_fail(r->outcome, "decode succeeded and should have been refused");
        }
        if (status == CELLAR_OK) {
            compare_logits(r, &b);
        }
    }
    free_batch(&b);
}

/* The step's `out` is empty: an encoder gives no logits. */
static void do_encode(replay *r)
{
    replay_batch b = {.n_tokens = count(r, "tok")};
    if (count(r, "pos") != b.n_tokens || count(r, "seq") != b.n_tokens || count(r, "out") != 0) {
        replay_fail(r->outcome, "the trace's lists are not those of an encoder's step");
    }
    if (!has_failed(r) && allocate_batch(r, &b, count_memberships(r, b.n_tokens))) {
        fill_batch(r, &b);
    }
    if (!has_failed(r)) {
        const cellar_batch batch = as_batch(&b);
        cellar_error error;
        check_status(r, engine_encode(r->engine, &batch, &error), &error);
    }
    free_batch(&b);
}

/* ---- the other steps ------------------------------------------------------------------------ */

/* A step that a memory with states must refuse: replay_recurrent.h. */
static void check_refusal(replay *r, cellar_status status)
{
    r->has_refused = true;
    r->is_reference_wrong |= replay_refusal_makes_wrong(r->model, r->step);
    if (status != CELLAR_REFUSED) {
        replay_fail(r->outcome, "'%s', expected a refusal", cellar_status_text(status));
    }
}

static void do_remove(replay *r)
{
    cellar_memory *memory = engine_memory(r->engine);
    int32_t seq = argument(r, 0), first = seq < 0 ? 0 : seq;
    int32_t last = seq < 0 ? (int32_t)r->config->n_sequences - 1 : seq;
    cellar_status status = CELLAR_OK;
    cellar_error error;
    for (int32_t i = first; i <= last && status == CELLAR_OK && !has_failed(r); i++) {
        status = cellar_remove(memory, i, argument(r, 1), argument(r, 2), &error);
    }
    if (replay_must_be_refused(r->model, r->step)) {
        check_refusal(r, status);
    } else if ((status == CELLAR_OK) != json_is_true(json_object_get(r->step, "ret"))) {
        replay_fail(r->outcome, "seq_rm gave '%s'", cellar_status_text(status));
    }
}

static void do_copy(replay *r)
{
    cellar_error error;
    cellar_status status = cellar_copy(engine_memory(r->engine), argument(r, 0), argument(r, 1),
                                       argument(r, 2), argument(r, 3), &error);
    check_status(r, status, &error);
}

static void do_keep(replay *r)
{
    cellar_error error;
    check_status(r, cellar_keep(engine_memory(r->engine), argument(r, 0), &error), &error);
    r->has_kept = r->config->n_pools > 1;
    r->kept = (uint32_t)argument(r, 0);
}

static bool has_layers_without_rope_beside_others(const model *m)
{
    uint32_t n_none = 0, n_attention = 0;
    for (uint32_t i = 0; i < m->n_memory_layers; i++) {
        bool attends = m->memory_layers[i].kind == CELLAR_LAYER_ATTENTION;
        n_attention += attends;
        n_none += attends && m->memory_layers[i].rope.kind == CELLAR_ROPE_NONE;
    }
    return n_none > 0 && n_none < n_attention;
}

static void do_shift(replay *r)
{
    r->is_reference_wrong |= has_layers_without_rope_beside_others(r->model);
    cellar_error error;
    cellar_status status = cellar_shift(engine_memory(r->engine), argument(r, 0), argument(r, 1),
                                        argument(r, 2), argument(r, 3), &error);
    if (replay_must_be_refused(r->model, r->step)) {
        check_refusal(r, status);
        return;
    }
    check_status(r, status, &error);
}

static void do_divide(replay *r)
{
    cellar_error error;
    cellar_status status = cellar_divide(engine_memory(r->engine), argument(r, 0), argument(r, 1),
                                         argument(r, 2), argument(r, 3), &error);
    if (replay_must_be_refused(r->model, r->step)) {
        check_refusal(r, status);
        return;
    }
    check_status(r, status, &error);
}

static void do_clear(replay *r)
{
    cellar_error error;
    check_status(r, cellar_clear(engine_memory(r->engine), &error), &error);
}

static void save_state(replay *r)
{
    replay_state_save(&r->whole, engine_memory(r->engine), -1, r->outcome);
}

static void load_state(replay *r)
{
    replay_state_load(&r->whole, engine_memory(r->engine), -1, r->outcome);
}

static void save_sequence(replay *r)
{
    const cellar_seq seq = argument(r, 0);
    if (!has_failed(r)) {
        replay_state_save(&r->of_sequence, engine_memory(r->engine), seq, r->outcome);
    }
}

static void load_sequence(replay *r)
{
    const cellar_seq as = argument(r, 0);
    if (!has_failed(r)) {
        replay_state_load(&r->of_sequence, engine_memory(r->engine), as, r->outcome);
    }
}

typedef struct step_kind {
    const char *name;
    void (*run)(replay *r); /* NULL: known, and not built */
} step_kind;

static const step_kind kinds[] = {
    {"decode", do_decode},
    {"seq_rm", do_remove},
    {"seq_cp", do_copy},
    {"seq_keep", do_keep},
    {"seq_add", do_shift},
    {"seq_div", do_divide},
    {"clear", do_clear},
    {"encode", do_encode},
    {"state_save", save_state},
    {"state_load", load_state},
    {"state_seq_save", save_sequence},
    {"state_seq_load", load_sequence},
};

static const step_kind *kind_of(const json_t *step)
{
    const char *name = json_string_value(json_object_get(step, "op"));
    for (size_t i = 0; name != NULL && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void check_positions(const replay *r)
{
    const cellar_memory *memory = engine_memory(r->engine);
    const json_t *min = json_object_get(r->step, "pmin"), *max = json_object_get(r->step, "pmax");
    const bool is_windowed = replay_positions_are_windowed(r->model) || r->has_refused ||
                             replay_is_hybrid(r->model);
    if (is_windowed && !has_failed(r)) {
        replay_positions_check(&r->given, r->model, memory, min, r->outcome);
    }
    for (uint32_t i = 0; i < r->config->n_sequences && !has_failed(r); i++) {
        cellar_pos found_min = cellar_position_min(memory, (cellar_seq)i);
        cellar_pos found_max = cellar_position_max(memory, (cellar_seq)i);
        int32_t wanted_min = integer_at(r, min, i), wanted_max = integer_at(r, max, i);
        if (r->has_kept && i != r->kept) wanted_min = wanted_max = -1;
        if (is_windowed) wanted_min = found_min; /* was checked above, and so was the other: */
        if (r->has_refused) wanted_max = found_max;
        if (found_min != wanted_min || found_max != wanted_max) {
            replay_fail(r->outcome,
                        "sequence %" PRIu32 " holds %" PRId32 "..%" PRId32 ", expected %" PRId32
                        "..%" PRId32,
                        i, found_min, found_max, wanted_min, wanted_max);
        }
    }
    cellar_error error;
    cellar_status status = cellar_check(memory, &error);
    check_status(r, status, &error);
}

static void run_steps(replay *r, const json_t *steps)
{
    size_t i;
    json_t *step;
    json_array_foreach(steps, i, step) {
        const step_kind *kind = kind_of(step);
        r->step = step;
        r->step_worst = 0;
        kind->run(r);
        if (!has_failed(r) && !replay_must_be_refused(r->model, step)) {
            replay_positions_apply(&r->given, step, r->outcome);
        }
        check_positions(r);
        if (r->settings->is_verbose) {
            printf("     step %3zu %-8s worst %.3g\n", i, kind->name, r->step_worst);
        }
        if (has_failed(r)) {
            char reason[sizeof r->outcome->reason];
            memcpy(reason, r->outcome->reason, sizeof reason);
            snprintf(r->outcome->reason, sizeof r->outcome->reason, "step %zu (%s): %.240s", i,
                     kind->name, reason);
            return;
        }
        r->outcome->n_steps++;
    }
}

/* Are all steps of a kind that is built? */
static bool can_run(const json_t *steps, replay_outcome *outcome)
{
    size_t i;
    json_t *step;
    json_array_foreach(steps, i, step) {
        const step_kind *kind = kind_of(step);
        if (kind == NULL) {
            replay_fail(outcome, "the trace has a step %zu of no known kind", i);
            return false;
        }
        if (kind->run == NULL) {
            outcome->what = REPLAY_SKIPPED;
            snprintf(outcome->reason, sizeof outcome->reason, "%s is not built", kind->name);
            return false;
        }
    }
    return true;
}

void replay_run(const model *m, const replay_config *config, const json_t *run,
                const replay_settings *settings, replay_outcome *outcome)
{
    const json_t *steps = json_object_get(run, "steps");
    if (json_array_size(steps) == 0) {
        replay_fail(outcome, "the trace has a run without steps");
        return;
    }
    if (!can_run(steps, outcome)) {
        return;
    }
    engine_options options = engine_defaults();
    options.n_cells = config->n_cells;
    options.n_ubatch = config->n_ubatch;
    options.n_pools = config->n_pools;
    options.n_sequences = config->n_sequences;
    options.is_window_full = config->is_window_full;
    options.n_threads = settings->n_threads;
    options.k_type = config->k_type;
    options.v_type = config->v_type;
    options.cpu_mask = settings->cpu_mask;
    cl_matmul_table rounding;
    if (!settings->is_exact) {
        replay_rounding_fill(&rounding, settings->cpu_mask);
        options.table = &rounding;
        options.activations = replay_rounding_activations(settings->cpu_mask);
    }
    replay r = {.model = m, .config = config, .settings = settings, .outcome = outcome};
    cellar_error error;
    r.is_reference_wrong = replay_reference_overruns(m);
    cellar_status status = engine_create(m, &options, &r.engine, &error);
    check_status(&r, status, &error);
    if (!replay_positions_create(&r.given, config->n_sequences)) {
        replay_fail(outcome, "no memory for the positions of a run");
    }
    if (!has_failed(&r)) {
        run_steps(&r, steps);
    }
    replay_positions_free(&r.given);
    replay_state_free(&r.whole);
    replay_state_free(&r.of_sequence);
    engine_destroy(r.engine);
}
