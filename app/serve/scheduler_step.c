/*
 * scheduler_step.c: one micro-batch: put together, computed, and what follows from its logits.
 *
 * Branches that write have one token each. The rest is prompt tokens: half of them for the branch that was admitted first,
 * the other half for the one with the least left, and what these do not need for the others by age.
 *
 * A batch that does not fit (CELLAR_FULL) is tried again with more room or with less in it, until it fits or one
 * branch alone is left that does not: its answer is as long as it can be. Any other failure is a bug, a lack of memory or
 * one branch's bad luck; then each branch gets a batch of its own, so that only those end that fail.
 */
#include <string.h>

#include "report.h"
#include "serve/scheduler_parts.h"

/* ---- the shared store ----------------------------------------------------------------------- */

#define SUPPLY_SECONDS 0.004 /* at a time, while others are at work */

/* What came from there was put into its sequence. */
static void count_supplied(scheduler *s, branch *b, size_t n)
{
    job_report *r = &b->report;
    if (n > 0) {
        r->n_reused += n;
        r->n_reusable = r->n_reused > r->n_reusable ? r->n_reused : r->n_reusable;
        r->source = JOB_SOURCE_SHARED;
        r->reason = cellar_prefix_reason_text(b->n_held + 1 == b->n_tokens ? CELLAR_PREFIX_WHOLE
                                                                           : CELLAR_PREFIX_ENDED);
        r->diverged_at = -1;
        s->counters.n_reused += n;
        s->counters.n_shared += n;
    }
    scheduler_count_reason(s, b);
}

/* Put what came into the sequences of those who waited for it; true: something was. */
static bool supply_all(scheduler *s)
{
    bool was_any = false;
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        branch *b = s->slots[i];
        if (b == NULL || b->shared == NULL) {
            continue;
        }
        was_any = true;
        const double seconds = s->n_at_work > 1 ? SUPPLY_SECONDS : 1e9;
        if (!sharing_supply(s->sharing, b->shared, b->entry, seconds, &b->n_held)) {
            count_supplied(s, b, b->n_held - b->report.n_reused);
            sharing_prompt_destroy(s->sharing, b->shared);
            b->shared = NULL;
        }
    }
    return was_any;
}

/* ---- putting together ----------------------------------------------------------------------- */

static bool is_writing(const branch *b)
{
    return b->n_tokens - b->n_held == 1;
}

/* Give a reader up to n more tokens of the batch. */
static uint32_t give(branch *b, uint32_t n)
{
    const size_t left = b->n_tokens - b->n_held - b->n_in_batch;
    const uint32_t given = left < n ? (uint32_t)left : n;
    b->n_in_batch += given;
    return given;
}

/* The reader that came first, or (shortest) has the least left; NULL: nobody reads. */
static branch *choose_reader(const scheduler *s, bool shortest)
{
    branch *best = NULL;
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        branch *b = s->slots[i];
        if (b == NULL || is_writing(b) || b->shared != NULL ||
            b->n_in_batch == b->n_tokens - b->n_held) {
            continue;
        }
        const size_t left = b->n_tokens - b->n_held;
        if (best == NULL ||
            (shortest ? left < best->n_tokens - best->n_held : b->order < best->order)) {
            best = b;
        }
    }
    return best;
}

/* Every token of a writer; how many those are. */
static uint32_t add_writers(scheduler *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        branch *b = s->slots[i];
        if (b != NULL) {
            b->n_in_batch = is_writing(b) && b->shared == NULL && !job_is_held_up(b->job);
            n += (uint32_t)b->n_in_batch;
        }
    }
    return n;
}

/* Share out what is left of the micro-batch among readers. */
static void add_readers(scheduler *s, uint32_t n_writers)
{
    const uint32_t n_ubatch = engine_ubatch(s->options.engine);
    uint32_t left = n_writers < n_ubatch ? n_ubatch - n_writers : 1;
    if (n_writers > 0 && left > s->options.n_chunk) {
        left = s->options.n_chunk;
    }
    branch *oldest = choose_reader(s, false);
    if (oldest != NULL) {
        left -= give(oldest, left / 2 + left % 2);
    }
    for (branch *b = choose_reader(s, true); b != NULL && left > 0; b = choose_reader(s, true)) {
        left -= give(b, left);
    }
}

static bool is_mark(const scheduler *s, const branch *b, size_t n)
{
    if (sharing_wants_mark(s->sharing, n, b->n_prompt)) {
        return true;
    }
    if (n + 1 == b->n_prompt) {
        return true; /* where the next one with this prompt goes on */
    }
    const job_request *r = &b->job->request;
    for (uint32_t i = 0; i < r->n_marks && b->prompt == 0; i++) {
        if (r->marks[i] == n) {
            return true;
        }
    }
    for (uint32_t i = 0; i < b->n_marks; i++) {
        if (b->marks[i] == n) {
            return true;
        }
    }
    return false;
}

/* Write the tokens of a branch down; how many the batch has then. */
static uint32_t write_down(scheduler *s, branch *b, uint32_t at, uint32_t *n_wanted)
{
    for (size_t i = 0; i < b->n_in_batch; i++, at++) {
        s->tokens[at] = b->tokens[b->n_held + i];
        s->seqs[at] = b->entry->seq;
        s->checkpoints[at] = is_mark(s, b, b->n_held + i + 1);
    }
    b->wants_row = b->n_in_batch > 0 && b->n_held + b->n_in_batch == b->n_tokens;
    if (b->wants_row) {
        b->row = *n_wanted;
        s->wanted[(*n_wanted)++] = at - 1;
    }
    return at;
}

/* ---- computing ------------------------------------------------------------------------------ */

/* Compute what is in the batch: of all branches, or of one. */
static cellar_status compute(scheduler *s, branch *only, uint32_t *n_tokens, cellar_error *error)
{
    uint32_t n = 0, n_wanted = 0;
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        branch *b = s->slots[i];
        if (b != NULL && (only == NULL || b == only)) {
            n = write_down(s, b, n, &n_wanted);
        }
    }
    *n_tokens = n;
    if (n == 0) {
        return CELLAR_OK;
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = s->tokens;
    batch.seqs = s->seqs;
    batch.checkpoints = s->checkpoints;
    cellar_status status = engine_decode(s->options.engine, &batch, s->wanted, n_wanted, s->logits,
                                         error);
    if (status == CELLAR_FULL && reuse_makes_fit(s->reuse, &batch)) {
        status = engine_decode(s->options.engine, &batch, s->wanted, n_wanted, s->logits, error);
    }
    return status;
}

/* ---- what follows --------------------------------------------------------------------------- */

static void end_branch(scheduler *s, branch *b, job_finish finish)
{
    scheduler_take_out(s, b);
    scheduler_finish(s, b, finish);
}

static void tell_progress(const branch *b)
{
    job_piece *piece = b->job->request.tells_progress ? job_piece_create(0, 0) : NULL;
    if (piece != NULL) {
        piece->choice = b->choice;
        piece->is_progress = true;
        piece->n_read = b->n_held;
        job_put(b->job, piece);
    }
}

/* The first token of an answer comes with the prompt. */
static void note_time(branch *b)
{
    if (b->first_written == 0) {
        b->first_written = job_now();
        b->report.read_seconds = b->first_written - b->admitted;
    }
    b->is_reading = false;
}

static void go_on(scheduler *s, branch *b)
{
    cellar_error error = {.status = CELLAR_OK};
    note_time(b);
    const uint64_t n_before = b->report.n_written;
    float *row = s->logits + (size_t)b->row * s->model.n_vocab;
    const cellar_status status = branch_write(b, &s->model, row, &error);
    s->counters.n_written += b->report.n_written - n_before;
    if (b->n_tokens > s->counters.n_most_tokens) {
        s->counters.n_most_tokens = b->n_tokens;
    }
    if (status != CELLAR_OK) {
        b->report.error = error;
        end_branch(s, b, JOB_FAILED);
    } else if (b->report.finish != JOB_GOES_ON) {
        end_branch(s, b, b->report.finish);
    }
}

/* The batch was computed: of all branches, or of one. */
static void take_results(scheduler *s, branch *only)
{
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        branch *b = s->slots[i];
        if (b == NULL || b->n_in_batch == 0 || (only != NULL && b != only)) {
            continue;
        }
        const size_t n_prompt = b->n_prompt;
        const size_t n_of_prompt =
            b->n_held < n_prompt
                ? (b->n_held + b->n_in_batch < n_prompt ? b->n_in_batch : n_prompt - b->n_held)
                : 0;
        b->n_held += b->n_in_batch;
        b->n_in_batch = 0;
        reuse_tell(s->reuse, b->entry, b->tokens, b->n_held);
        b->report.n_read += n_of_prompt;
        s->counters.n_prompt += n_of_prompt;
        if (n_of_prompt > 0) {
            tell_progress(b);
        }
        if (b->wants_row) {
            go_on(s, b);
        }
    }
}

/* ---- when it does not work ------------------------------------------------------------------ */

/* The branch that came last; NULL: there is only one. */
static branch *choose_victim(const scheduler *s)
{
    branch *last = NULL;
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        branch *b = s->slots[i];
        if (b != NULL && (last == NULL || b->order > last->order)) {
            last = b;
        }
    }
    return s->n_at_work > 1 ? last : NULL;
}

static void set_aside(scheduler *s, branch *b)
{
    b->report.n_set_aside++;
    s->counters.n_set_aside++;
    scheduler_take_out(s, b);
    branch_list_insert(&s->waiting, b);
}

/* Leave prompt tokens out, if somebody writes; false: they are not what is in the way. */
static bool leave_readers_out(scheduler *s)
{
    bool has_writers = false, has_readers = false;
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        const branch *b = s->slots[i];
        has_writers = has_writers || (b != NULL && b->n_in_batch > 0 && is_writing(b));
        has_readers = has_readers || (b != NULL && b->n_in_batch > 0 && !is_writing(b));
    }
    for (uint32_t i = 0; has_writers && has_readers && i < s->options.n_slots; i++) {
        if (s->slots[i] != NULL && !is_writing(s->slots[i])) {
            s->slots[i]->n_in_batch = 0;
        }
    }
    return has_writers && has_readers;
}

/* The memory is full: less in the batch, or one branch less; false: one is left, and ends. */
static bool make_way(scheduler *s)
{
    if (leave_readers_out(s)) {
        return true;
    }
    branch *victim = choose_victim(s);
    if (victim != NULL) {
        set_aside(s, victim);
        return true;
    }
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        branch *b = s->slots[i];
        if (b != NULL) {
            if (b->report.n_written == 0) {
                (void)report(&b->report.error, CELLAR_FULL, -1,
                             "the memory has no room for a prompt of %zu tokens", b->n_tokens);
            }
            end_branch(s, b, b->report.n_written > 0 ? JOB_FULL : JOB_FAILED);
        }
    }
    return false;
}

/* Each branch by itself; those that fail end. */
static void compute_each(scheduler *s)
{
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        branch *b = s->slots[i];
        uint32_t n;
        if (b == NULL || b->n_in_batch == 0) {
            continue;
        }
        cellar_error error = {.status = CELLAR_OK};
        if (compute(s, b, &n, &error) == CELLAR_OK) {
            take_results(s, b);
        } else {
            b->report.error = error;
            end_branch(s, b, JOB_FAILED);
        }
    }
}

static void count_step(scheduler *s, double seconds, uint32_t n_writers, uint32_t n_tokens)
{
    s->counters.n_steps++;
    s->counters.n_busy += s->n_at_work;
    const double share = n_tokens > 0 ? (double)n_writers / n_tokens : 0;
    s->counters.write_seconds += seconds * share;
    s->counters.prompt_seconds += seconds * (1 - share);
}

bool scheduler_step(scheduler *s)
{
    const bool was_supplied = supply_all(s);
    const uint32_t n_writers = add_writers(s);
    add_readers(s, n_writers);
    for (;;) {
        cellar_error error = {.status = CELLAR_OK};
        uint32_t n;
        const double start = job_now();
        const cellar_status status = compute(s, NULL, &n, &error);
        if (n == 0) {
            return was_supplied;
        }
        if (status == CELLAR_OK) {
            count_step(s, job_now() - start, n_writers < n ? n_writers : n, n);
            take_results(s, NULL);
            return true;
        }
        if (status != CELLAR_FULL) {
            compute_each(s);
            return true;
        }
        if (!make_way(s)) {
            return true;
        }
    }
}
