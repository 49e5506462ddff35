/*
 * scheduler_admit.c: who comes next, and is there room.
 *
 * Next is the oldest branch of the client with the fewest branches at work. It may have to wait for one that
 * is reading the same beginning right now, or for the slot that it has to have; then others go before
 * it. If there is no room for it, nobody goes before it: else a large prompt would wait for ever behind small ones.
 *
 * Room is counted in cells of the largest group: what the branch has to read, what those at work have to
 * read yet, and a few tokens for each to write. It is an estimate; whether a micro-batch really fits is seen
 * when it is opened, and scheduler_step.c knows what to do then. A branch that comes while nobody is at work is
 * always let in.
 */
#include <string.h>

#include "serve/scheduler_parts.h"

#define MARGIN 32u        /* tokens that each branch at work gets room to write */
#define ENOUGH_TOKENS 64u /* prompt tokens that were read before their speed is believed */
#define WORTH_WAITING 32u /* tokens that two must have in common before one waits for the other */

/* ---- who ------------------------------------------------------------------------------------ */

static uint32_t count_of_client(const scheduler *s, uint64_t client)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        n += s->slots[i] != NULL && s->slots[i]->job->request.client == client;
    }
    return n;
}

static void add_mark(branch *b, size_t at)
{
    for (uint32_t i = 0; i < b->n_marks; i++) {
        if (b->marks[i] == at) {
            return;
        }
    }
    if (b->n_marks < BRANCH_MARKS) {
        b->marks[b->n_marks++] = at;
    }
}

static reuse_answer look(const scheduler *s, const branch *b)
{
    const job_request *r = &b->job->request;
    return reuse_look(s->reuse, r->owner, r->salt, b->tokens, b->n_tokens);
}

/* Is somebody reading what this one would have to read too? Then it asks to part from it there. */
static bool has_to_follow(const scheduler *s, const branch *b)
{
    if (b->job->request.starts_cold) {
        return false;
    }
    const reuse_answer answer = look(s, b);
    for (uint32_t i = 0; answer.n_coming > answer.n_reusable && i < s->options.n_slots; i++) {
        branch *its = s->slots[i];
        const bool is_it = its != NULL && its->is_reading && its->entry->seq == answer.coming;
        const bool is_same = is_it && its->job == b->job && its->prompt == b->prompt;
        if (is_it && answer.n_coming >= (is_same ? 1 : WORTH_WAITING)) {
            add_mark(its, answer.n_coming);
            return true;
        }
    }
    return false;
}

/* The slot for it; n_slots: none is free. Of free ones that which was left first. */
static uint32_t slot_for(const scheduler *s, const branch *b)
{
    const int64_t wanted = b->job->request.slot;
    const uint32_t none = s->options.n_slots;
    if (wanted >= 0) {
        return (uint64_t)wanted < none && s->slots[wanted] == NULL ? (uint32_t)wanted : none;
    }
    uint32_t best = none;
    for (uint32_t i = 0; i < none; i++) {
        if (s->slots[i] == NULL && (best == none || s->left[i] < s->left[best])) {
            best = i;
        }
    }
    return best;
}

/* ---- the shared store ----------------------------------------------------------------------- */

/* Is somebody fetching, or taking in, what this one would fetch? And how many fetch at all. */
static bool is_fetched_already(const scheduler *s, const sharing_prompt *p, uint32_t *n_fetching)
{
    bool is_found = false;
    *n_fetching = 0;
    for (const branch *its = s->waiting.first; its != NULL; its = its->next) {
        if (its->shared != NULL) {
            ++*n_fetching;
            is_found = is_found || sharing_is_same(its->shared, p);
        }
    }
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        const branch *its = s->slots[i];
        is_found = is_found ||
                   (its != NULL && its->shared != NULL && sharing_is_same(its->shared, p));
    }
    return is_found;
}

static double token_seconds(const scheduler *s)
{
    const scheduler_counters *c = &s->counters;
    return c->n_prompt >= ENOUGH_TOKENS ? c->prompt_seconds / (double)c->n_prompt : 0;
}

/* Does it wait for the shared store? If it was not asked yet, it is asked now. */
static bool has_to_wait(scheduler *s, branch *b)
{
    const job_request *r = &b->job->request;
    if (s->sharing == NULL || r->starts_cold || b->was_admitted) {
        return false;
    }
    if (!b->was_looked_up) {
        const reuse_answer answer = look(s, b);
        sharing_prompt *p = sharing_prompt_create(s->sharing, r->owner, r->salt, b->tokens,
                                                  b->n_tokens, answer.n_reusable);
        uint32_t n_fetching;
        if (p != NULL && (is_fetched_already(s, p, &n_fetching) ||
                          n_fetching >= s->options.n_slots - s->n_at_work)) {
            sharing_prompt_destroy(s->sharing, p);
            return true;
        }
        b->was_looked_up = true;
        b->shared = p;
        if (p != NULL) {
            sharing_fetch(s->sharing, p, token_seconds(s));
        }
    }
    return b->shared != NULL && sharing_is_fetching(s->sharing, b->shared);
}

static branch *choose(scheduler *s)
{
    branch *best = NULL;
    uint32_t fewest = 0;
    for (branch *b = s->waiting.first; b != NULL; b = b->next) {
        const uint32_t n = count_of_client(s, b->job->request.client);
        if ((best == NULL || n < fewest) && slot_for(s, b) < s->options.n_slots &&
            !has_to_follow(s, b) && !has_to_wait(s, b)) {
            best = b;
            fewest = n;
        }
    }
    return best;
}

/* ---- room ----------------------------------------------------------------------------------- */

/* Cells that reading n tokens and writing a little takes. */
static uint64_t cells_for(const scheduler *s, size_t n)
{
    return s->is_states_only ? 2 : (uint64_t)n + MARGIN;
}

static uint64_t count_free(const scheduler *s)
{
    cellar_statistics memory;
    return cellar_stats(engine_memory(s->options.engine), &memory, NULL) == CELLAR_OK
               ? memory.n_free
               : 0;
}

/* Make room for it as far as what is retained allows. What is stored elsewhere needs cells too. */
static bool has_room(scheduler *s, const branch *b)
{
    const job_request *r = &b->job->request;
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        const branch *its = s->slots[i];
        n += its != NULL ? cells_for(s, its->n_tokens - its->n_held) : 0;
    }
    const reuse_answer answer = look(s, b);
    const bool is_there = answer.is_in_cells && !r->starts_cold;
    n += cells_for(s, b->n_tokens - (is_there ? answer.n_reusable : 0));
    return s->is_states_only || count_free(s) >= n ||
           reuse_makes_room(s->reuse, r->owner, r->salt, b->tokens, b->n_tokens, (size_t)n) ||
           s->n_at_work == 0;
}

/* ---- letting in ----------------------------------------------------------------------------- */

void scheduler_count_reason(scheduler *s, const branch *b)
{
    for (uint32_t i = 0; i < SCHEDULER_REASONS; i++) {
        scheduler_reason *its = &s->counters.reasons[i];
        if (its->name == NULL || strcmp(its->name, b->report.reason) == 0) {
            its->name = b->report.reason;
            its->n++;
            its->n_reused += b->report.n_reused;
            its->n_not += b->n_prompt - b->report.n_reused;
            return;
        }
    }
}

/* What it takes over, and what it says of that: the first time it is admitted counts. */
static cellar_status take_over(scheduler *s, branch *b, cellar_error *error)
{
    const job_request *r = &b->job->request;
    const bool is_cold = r->starts_cold && !b->was_admitted;
    reuse_answer answer;
    const cellar_status status = reuse_begin(s->reuse, r->owner, r->salt, b->tokens, b->n_tokens,
                                             is_cold ? 0 : b->n_tokens - 1, &b->entry, &answer,
                                             error);
    if (status != CELLAR_OK) {
        return status;
    }
    b->n_held = answer.n_reused;
    if (answer.n_reused > 0) {
        sharing_note_hit(s->sharing, r->owner, r->salt, answer.entry, answer.n_reused);
    }
    if (!b->was_admitted) {
        b->report.n_reusable = is_cold ? 0 : answer.n_reusable;
        b->report.n_reused = answer.n_reused;
        b->report.source = answer.n_reused > 0 ? answer.source : JOB_SOURCE_NONE;
        b->report.reason = is_cold ? "disabled" : answer.reason;
        b->report.diverged_at = is_cold ? -1 : answer.diverged_at;
        b->report.conversation = answer.conversation;
        b->report.wait_seconds = job_now() - b->job->made;
        s->counters.n_reused += answer.n_reused;
        if (b->shared == NULL) {
            scheduler_count_reason(s, b);
        }
    }
    return CELLAR_OK;
}

static void let_in(scheduler *s, branch *b)
{
    cellar_error error = {.status = CELLAR_OK};
    const uint32_t slot = slot_for(s, b);
    branch_list_remove(&s->waiting, b);
    s->n_first_admitted += !b->was_admitted;
    if (take_over(s, b, &error) != CELLAR_OK) {
        b->report.error = error;
        scheduler_finish(s, b, JOB_FAILED);
        return;
    }
    b->slot = slot;
    b->report.slot = slot;
    b->is_reading = true;
    b->was_admitted = true;
    b->admitted = job_now();
    if (b->event == 0) {
        b->event = timeline_begin(s->timeline, b->job->request.owner, b->n_prompt, &b->report);
    }
    s->counters.n_jobs += b->choice == 0 && b->report.n_set_aside == 0;
    s->slots[slot] = b;
    s->n_at_work++;
    job_tell(b->job, b->choice, &b->report);
}

void scheduler_admit(scheduler *s)
{
    while (s->n_at_work < s->options.n_slots && s->waiting.n > 0) {
        branch *b = choose(s);
        if (b == NULL || !has_room(s, b)) {
            return;
        }
        let_in(s, b);
    }
}
