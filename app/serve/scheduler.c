/*
 * scheduler.c: the thread, what goes into it, and what it tells the outside.
 *
 * A round: errands, what came in, what was cancelled, admission, one micro-batch. Without work the thread
 * sleeps until somebody wakes it. A failure ends the branch that it happened to.
 */
#define _POSIX_C_SOURCE 200809L

#include "serve/scheduler.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report.h"
#include "serve/scheduler_parts.h"

#define IDLE_BYTES (4u << 20) /* written at a time: so long somebody who comes may have to wait */
#define IDLE_SECONDS 5.0      /* without work before that begins: a conversation may go on soon */
#define AGAIN_SECONDS 0.05    /* between two such times */
#define DRAIN_SECONDS 5.0     /* for what the shared store was not given yet, at the end */

/* ---- lists ---------------------------------------------------------------------------------- */

void branch_list_add(branch_list *list, branch *b)
{
    b->next = NULL;
    if (list->last != NULL) {
        list->last->next = b;
    } else {
        list->first = b;
    }
    list->last = b;
    list->n++;
}

void branch_list_insert(branch_list *list, branch *b)
{
    branch **at = &list->first;
    while (*at != NULL && (*at)->order < b->order) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        branch_list_add(list, b);
        return;
    }
    b->next = *at;
    *at = b;
    list->n++;
}

void branch_list_remove(branch_list *list, branch *b)
{
    branch *before = NULL;
    for (branch *its = list->first; its != b; its = its->next) {
        before = its;
    }
    if (before != NULL) {
        before->next = b->next;
    } else {
        list->first = b->next;
    }
    if (list->last == b) {
        list->last = before;
    }
    b->next = NULL;
    list->n--;
}

/* ---- the thread ----------------------------------------------------------------------------- */

void scheduler_finish(scheduler *s, branch *b, job_finish finish)
{
    s->counters.n_branches_ended++;
    atomic_fetch_sub(&s->n_live, 1);
    sharing_prompt_destroy(s->sharing, b->shared);
    b->shared = NULL;
    s->counters.n_cancelled += finish == JOB_CANCELLED;
    s->counters.n_failed += finish == JOB_FAILED;
    branch_end(b, finish);
    timeline_end(s->timeline, b->event, &b->report);
    branch_destroy(b);
}

void scheduler_take_out(scheduler *s, branch *b)
{
    if (b->entry != NULL) {
        /* A place to come back to. One that cannot be made is no failure. */
        (void)!cellar_checkpoint(engine_memory(s->options.engine), b->entry->seq, NULL);
        const job_request *r = &b->job->request;
        const uint64_t number = reuse_retain(s->reuse, b->entry, b->slot);
        sharing_offer(s->sharing, r->owner, r->salt, number, SIZE_MAX);
        b->entry = NULL;
    }
    sharing_prompt_destroy(s->sharing, b->shared);
    b->shared = NULL;
    b->n_held = 0;
    b->n_marks = 0;
    s->slots[b->slot] = NULL;
    s->left[b->slot] = ++s->n_left;
    s->n_at_work--;
}

static void end_cancelled(scheduler *s, bool all)
{
    for (uint32_t i = 0; i < s->options.n_slots; i++) {
        branch *b = s->slots[i];
        if (b != NULL && (all || atomic_load(&b->job->is_cancelled))) {
            scheduler_take_out(s, b);
            scheduler_finish(s, b, JOB_CANCELLED);
        }
    }
    for (branch *b = s->waiting.first, *next; b != NULL; b = next) {
        next = b->next;
        if (all || atomic_load(&b->job->is_cancelled)) {
            branch_list_remove(&s->waiting, b);
            s->n_first_admitted += !b->was_admitted; /* it does not wait any more */
            scheduler_finish(s, b, JOB_CANCELLED);
        }
    }
}

static void count_memory(scheduler *s)
{
    cellar_statistics memory;
    if (cellar_stats(engine_memory(s->options.engine), &memory, NULL) == CELLAR_OK) {
        s->counters.n_cells = memory.n_cells;
        s->counters.n_used = memory.n_used;
        s->counters.bytes = memory.sizes.total + engine_buffer_bytes(s->options.engine);
        s->counters.budget_bytes = memory.budget_bytes;
    }
    s->counters.library = reuse_statistics(s->reuse);
    s->counters.has_shared = s->sharing != NULL;
    s->counters.n_at_work = s->n_at_work;
    s->counters.n_waiting = s->waiting.n;
}

/* With the lock: take over what came in. */
static void take_incoming(scheduler *s)
{
    s->n_queued -= s->n_first_admitted;
    s->n_first_admitted = 0;
    while (s->incoming.first != NULL) {
        branch *b = s->incoming.first;
        branch_list_remove(&s->incoming, b);
        b->order = s->next_order++;
        branch_list_add(&s->waiting, b);
    }
}

/* With the lock, which is free while an errand runs. */
static void run_errands(scheduler *s)
{
    while (s->errands != NULL) {
        errand *its = s->errands;
        s->errands = its->next;
        pthread_mutex_unlock(&s->lock);
        its->run(its->context);
        pthread_mutex_lock(&s->lock);
        its->is_done = true;
        pthread_cond_broadcast(&s->errand_done);
    }
}

/* When the first prompt has waited long enough for the shared store; 0: none waits. */
static double next_deadline(const scheduler *s)
{
    double first = 0;
    for (const branch *b = s->waiting.first; b != NULL; b = b->next) {
        const double its = b->shared != NULL ? sharing_until(b->shared) : 0;
        first = its > 0 && (first == 0 || its < first) ? its : first;
    }
    return first;
}

static struct timespec after(double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    seconds = seconds > 0 ? seconds : 0;
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

/* With the lock: sleep until somebody wakes us, or for a while if there is something to tidy; false: that. */
static bool sleep_until_woken(scheduler *s)
{
    const double deadline = next_deadline(s);
    if (deadline > 0) {
        const struct timespec until = after(deadline - job_now());
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
        s->was_woken = true;
        return true;
    }
    if (s->is_tidy) {
        pthread_cond_wait(&s->changed, &s->lock);
        return true;
    }
    const struct timespec until = after(s->has_begun_to_tidy ? AGAIN_SECONDS : IDLE_SECONDS);
    return pthread_cond_timedwait(&s->changed, &s->lock, &until) != ETIMEDOUT;
}

/* What evicting would have to write, and what shall outlast the server, is written while nobody waits. */
static void tidy(scheduler *s, bool had_work, bool is_idle)
{
    if (had_work) {
        s->is_tidy = s->options.reuse.folder == NULL;
        s->has_begun_to_tidy = false;
    } else if (is_idle) {
        s->is_tidy = !reuse_persist(s->reuse, IDLE_BYTES);
        s->has_begun_to_tidy = true;
    }
}

/* What the shared store was not given yet: others may go on with it. */
static void hand_over(scheduler *s)
{
    const double until = job_now() + DRAIN_SECONDS;
    while (!sharing_is_done(s->sharing) && job_now() < until) {
        if (!sharing_write(s->sharing, false)) {
            sharing_drain(s->sharing, AGAIN_SECONDS);
            if (!sharing_count(s->sharing).writes) {
                break;
            }
        }
    }
    sharing_drain(s->sharing, until - job_now());
}

static void *run_thread(void *argument)
{
    scheduler *s = argument;
    bool has_work = true;
    pthread_mutex_lock(&s->lock);
    while (!s->is_stopping) {
        bool is_idle = false;
        while (!has_work && !s->was_woken && !s->is_stopping && !is_idle) {
            is_idle = !sleep_until_woken(s);
        }
        s->was_woken = false;
        run_errands(s);
        take_incoming(s);
        pthread_mutex_unlock(&s->lock);
        end_cancelled(s, false);
        scheduler_admit(s);
        has_work = scheduler_step(s);
        has_work = sharing_write(s->sharing, s->n_at_work > 0) || has_work;
        tidy(s, has_work, is_idle);
        count_memory(s);
        pthread_mutex_lock(&s->lock);
        s->published = s->counters;
    }
    take_incoming(s);
    pthread_mutex_unlock(&s->lock);
    end_cancelled(s, true);
    hand_over(s);
    while (reuse_persist(s->reuse, UINT64_MAX)) {}
    pthread_mutex_lock(&s->lock);
    run_errands(s);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- making it ------------------------------------------------------------------------------ */

static bool attends(const cellar_memory *memory)
{
    for (uint32_t i = 0; i < cellar_count_groups(memory); i++) {
        cellar_group_info group;
        if (cellar_get_group(memory, i, &group, NULL) == CELLAR_OK &&
            group.kind == CELLAR_LAYER_ATTENTION) {
            return true;
        }
    }
    return false;
}

static cellar_status list_ends(scheduler *s, cellar_error *error)
{
    const tokenizer *tok = s->options.tok;
    const uint32_t n = s->model.n_vocab < tokenizer_size(tok) ? s->model.n_vocab
                                                              : tokenizer_size(tok);
    cellar_token *ends = malloc((n + (size_t)1) * sizeof *ends);
    if (ends == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the tokens that end a text");
    }
    for (uint32_t id = 0; id < n; id++) {
        if (tokenizer_ends_text(tok, (cellar_token)id)) {
            ends[s->model.n_ends++] = (cellar_token)id;
        }
    }
    s->model.ends = ends;
    return CELLAR_OK;
}

static void wake(void *context)
{
    scheduler *s = context;
    pthread_mutex_lock(&s->lock);
    s->was_woken = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static cellar_status make_reuse(scheduler *s, cellar_error *error)
{
    reuse_options *o = &s->options.reuse;
    o->model = engine_model(s->options.engine);
    cellar_status status = reuse_create(engine_memory(s->options.engine), o, &s->reuse, error);
    if (status == CELLAR_OK && o->shared.address != NULL) {
        status = sharing_create(s->reuse, &o->shared, wake, s, &s->sharing, error);
    }
    o->shared = (sharing_options){.address = NULL}; /* it holds secrets */
    return status;
}

static cellar_status make_room(scheduler *s, cellar_error *error)
{
    const size_t n_slots = s->options.n_slots;
    s->n_batch = engine_ubatch(s->options.engine) + s->options.n_slots;
    s->slots = calloc(n_slots, sizeof(branch *));
    s->left = calloc(n_slots, sizeof *s->left);
    s->tokens = calloc(s->n_batch, sizeof *s->tokens);
    s->seqs = calloc(s->n_batch, sizeof *s->seqs);
    s->checkpoints = calloc(s->n_batch, sizeof *s->checkpoints);
    s->wanted = calloc(n_slots, sizeof *s->wanted);
    s->logits = calloc(n_slots * s->model.n_vocab, sizeof *s->logits);
    s->timeline = timeline_create();
    if (s->slots == NULL || s->left == NULL || s->tokens == NULL || s->seqs == NULL ||
        s->checkpoints == NULL || s->wanted == NULL || s->logits == NULL || s->timeline == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %zu answers at once", n_slots);
    }
    cellar_status status = list_ends(s, error);
    return status == CELLAR_OK ? make_reuse(s, error) : status;
}

static void free_all(scheduler *s)
{
    sharing_destroy(s->sharing);
    reuse_destroy(s->reuse);
    timeline_destroy(s->timeline);
    free(s->slots);
    free(s->left);
    free(s->tokens);
    free(s->seqs);
    free(s->checkpoints);
    free(s->wanted);
    free(s->logits);
    free((void *)(uintptr_t)s->model.ends);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    pthread_cond_destroy(&s->errand_done);
    free(s);
}

cellar_status scheduler_create(const scheduler_options *options, scheduler **out,
                               cellar_error *error)
{
    *out = NULL;
    scheduler *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a scheduler");
    }
    s->options = *options;
    s->model.tok = options->tok;
    s->model.n_vocab = engine_model(options->engine)->n_vocab;
    s->is_states_only = !attends(engine_memory(options->engine));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_cond_init(&s->errand_done, NULL);
    cellar_status status = make_room(s, error);
    if (status == CELLAR_OK) {
        count_memory(s);
        s->published = s->counters;
        if (pthread_create(&s->thread, NULL, run_thread, s) != 0) {
            status = report(error, CELLAR_IO, -1, "no thread for the engine");
        }
    }
    if (status != CELLAR_OK) {
        free_all(s);
        return status;
    }
    *out = s;
    return CELLAR_OK;
}

void scheduler_stop(scheduler *s)
{
    if (s->was_joined) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->is_closed = s->is_stopping = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->was_joined = true;
}

void scheduler_destroy(scheduler *s)
{
    if (s != NULL) {
        scheduler_stop(s);
        free_all(s);
    }
}

/* ---- from other threads --------------------------------------------------------------------- */

/* With the lock: queue them all, or none. */
static cellar_status queue(scheduler *s, branch_list *made, cellar_error *error)
{
    if (s->is_closed) {
        return report(error, CELLAR_BUSY, -1, "the server is stopping");
    }
    if (s->n_queued > s->options.n_queue || made->n > s->options.n_queue - s->n_queued) {
        return report(error, CELLAR_FULL, -1,
                      "%" PRIu32 " answers wait already, and no more than %" PRIu32 " may",
                      s->n_queued, s->options.n_queue);
    }
    s->n_queued += made->n;
    atomic_fetch_add(&s->n_live, made->n);
    while (made->first != NULL) {
        branch *b = made->first;
        branch_list_remove(made, b);
        branch_list_add(&s->incoming, b);
    }
    s->was_woken = true;
    pthread_cond_signal(&s->changed);
    return CELLAR_OK;
}

cellar_status scheduler_submit(scheduler *s, job *j, cellar_error *error)
{
    const size_t n_longest = job_longest_prompt(&j->request);
    if (n_longest > s->options.n_context) {
        return report(error, CELLAR_INVALID, -1,
                      "request (%zu tokens) exceeds the available context size (%" PRIu32
                      " tokens), try increasing it",
                      n_longest, s->options.n_context);
    }
    branch_list made = {.first = NULL};
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; status == CELLAR_OK && i < j->request.n_choices; i++) {
        branch *b;
        status = branch_create(j, i, &s->model, s->options.n_context, &b, error);
        if (status == CELLAR_OK) {
            branch_list_add(&made, b);
        }
    }
    if (status == CELLAR_OK) {
        j->wake = wake;
        j->wake_context = s;
        pthread_mutex_lock(&s->lock);
        status = queue(s, &made, error);
        pthread_mutex_unlock(&s->lock);
    }
    while (made.first != NULL) {
        branch *b = made.first;
        branch_list_remove(&made, b);
        branch_destroy(b);
    }
    return status;
}

void scheduler_close(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->is_closed = true;
    pthread_mutex_unlock(&s->lock);
}

scheduler_counters scheduler_count(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    scheduler_counters counters = s->published;
    pthread_mutex_unlock(&s->lock);
    counters.shared = sharing_count(s->sharing); /* it changes while the thread sleeps */
    return counters;
}

uint32_t scheduler_load(scheduler *s)
{
    return atomic_load(&s->n_live);
}

bool scheduler_run(scheduler *s, void (*run)(void *context), void *context)
{
    errand its = {.run = run, .context = context};
    pthread_mutex_lock(&s->lock);
    if (s->is_stopping) {
        pthread_mutex_unlock(&s->lock);
        return false;
    }
    errand **at = &s->errands;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = &its;
    s->was_woken = true;
    pthread_cond_signal(&s->changed);
    while (!its.is_done) {
        pthread_cond_wait(&s->errand_done, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return true;
}

/* ---- for errands ---------------------------------------------------------------------------- */

void scheduler_look_at_slot(const scheduler *s, uint32_t slot, scheduler_slot *out)
{
    const branch *b = s->slots[slot];
    *out = (scheduler_slot){.id = slot};
    if (b != NULL) {
        out->is_busy = true;
        out->job = b->job->id;
        out->n_prompt = b->n_prompt;
        out->n_held = b->n_held;
        out->n_written = b->report.n_written;
        out->n_left = b->n_most - b->report.n_written;
        out->for_seconds = job_now() - b->admitted;
    }
}

reuse *scheduler_reuse(scheduler *s)
{
    return s->reuse;
}

const timeline *scheduler_timeline(const scheduler *s)
{
    return s->timeline;
}

engine *scheduler_engine(scheduler *s)
{
    return s->options.engine;
}
