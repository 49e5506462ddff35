/*
 * job.c: the queue of pieces of one job, and waiting for it and for a socket together.
 *
 * The event descriptor counts puts; it is read empty before the queue is looked at, so nothing that is
 * put in between is missed. Of the socket only its end is watched: what a client sends ahead of its
 * answer stays where it is.
 */
#define _GNU_SOURCE /* POLLRDHUP */

#include "serve/job.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "report.h"

double job_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void job_request_free(job_request *request)
{
    free(request->owner);
    free(request->salt);
    free(request->prompt);
    free(request->prompts);
    free(request->biases);
    for (size_t i = 0; i < request->n_stops; i++) {
        free(request->stops[i]);
    }
    free(request->stops);
    *request = (job_request){.owner = NULL};
}

static uint32_t choices_of_each(const job_request *request)
{
    return request->prompts != NULL ? request->n_choices / request->n_prompts : request->n_choices;
}

job_prompt job_prompt_of(const job_request *request, uint32_t choice)
{
    return request->prompts != NULL ? request->prompts[choice / choices_of_each(request)]
                                    : (job_prompt){.tokens = request->prompt,
                                                   .n = request->n_prompt,
                                                   .is_text_start = request->is_text_start};
}

uint32_t job_choice_of_prompt(const job_request *request, uint32_t choice)
{
    return choice % choices_of_each(request);
}

size_t job_longest_prompt(const job_request *request)
{
    size_t longest = request->prompts != NULL ? 0 : request->n_prompt;
    for (uint32_t i = 0; request->prompts != NULL && i < request->n_prompts; i++) {
        longest = request->prompts[i].n > longest ? request->prompts[i].n : longest;
    }
    return longest;
}

const char *job_source_name(job_source source)
{
    static const char *const names[] = {"none", "live", "ram", "disk", "shared"};
    return names[source];
}

/* ---- life ----------------------------------------------------------------------------------- */

cellar_status job_create(job_request *request, job **out, cellar_error *error)
{
    static atomic_uint_fast64_t next_id = 1;
    job *j = calloc(1, sizeof *j);
    *out = NULL;
    if (j == NULL) {
        job_request_free(request);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a request");
    }
    j->request = *request;
    *request = (job_request){.owner = NULL};
    j->choices = calloc(j->request.n_choices, sizeof *j->choices);
    j->is_told = calloc(j->request.n_choices, sizeof *j->is_told);
    j->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&j->lock, NULL);
    atomic_init(&j->n_holders, 1);
    atomic_init(&j->is_cancelled, false);
    j->id = atomic_fetch_add(&next_id, 1);
    j->made = job_now();
    if (j->choices == NULL || j->is_told == NULL || j->event < 0) {
        const int reason = errno;
        const bool is_memory = j->event >= 0;
        job_release(j);
        return is_memory
                   ? report(error, CELLAR_NO_MEMORY, -1, "no memory for a request")
                   : report(error, CELLAR_IO, -1, "no event descriptor: %s", strerror(reason));
    }
    for (uint32_t i = 0; i < j->request.n_choices; i++) {
        j->choices[i] = (job_report){.reason = "", .diverged_at = -1};
    }
    *out = j;
    return CELLAR_OK;
}

void job_hold(job *j)
{
    atomic_fetch_add(&j->n_holders, 1);
}

void job_release(job *j)
{
    if (j == NULL || atomic_fetch_sub(&j->n_holders, 1) != 1) {
        return;
    }
    while (j->first != NULL) {
        job_piece *next = j->first->next;
        free(j->first);
        j->first = next;
    }
    if (j->event >= 0) {
        close(j->event);
    }
    pthread_mutex_destroy(&j->lock);
    job_request_free(&j->request);
    free(j->choices);
    free(j->is_told);
    free(j);
}

/* ---- the scheduler's end -------------------------------------------------------------------- */

job_piece *job_piece_create(uint32_t n_top, size_t n_text)
{
    const size_t n_before = sizeof(job_piece) + n_top * sizeof(job_probability);
    job_piece *piece = malloc(n_before + n_text + 1);
    if (piece != NULL) {
        memset(piece, 0, sizeof *piece);
        piece->top = (job_probability *)(void *)(piece + 1);
        piece->n_top = n_top;
        piece->text = (char *)piece + n_before;
        piece->n_text = n_text;
        piece->text[n_text] = '\0';
        piece->token = -1;
    }
    return piece;
}

static void signal_event(const job *j)
{
    const uint64_t one = 1;
    /* It can only fail when the counter is full, and then it is readable anyway. */
    (void)!write(j->event, &one, sizeof one);
}

void job_put(job *j, job_piece *piece)
{
    pthread_mutex_lock(&j->lock);
    if (j->last != NULL) {
        j->last->next = piece;
    } else {
        j->first = piece;
    }
    j->last = piece;
    j->n_pieces++;
    pthread_mutex_unlock(&j->lock);
    signal_event(j);
}

void job_tell(job *j, uint32_t choice, const job_report *its)
{
    pthread_mutex_lock(&j->lock);
    j->choices[choice] = *its;
    pthread_mutex_unlock(&j->lock);
    if (its->finish != JOB_GOES_ON) {
        signal_event(j);
    }
}

bool job_is_held_up(job *j)
{
    pthread_mutex_lock(&j->lock);
    const bool is_held_up = j->n_pieces >= JOB_MOST_PIECES;
    j->is_held_up = is_held_up;
    pthread_mutex_unlock(&j->lock);
    return is_held_up;
}

/* ---- the connection's end ------------------------------------------------------------------- */

/* Take what there is; false: nothing, and not everything has ended. */
static bool take(job *j, job_event *event, job_piece **piece, uint32_t *choice)
{
    if (j->first != NULL) {
        *piece = j->first;
        j->first = j->first->next;
        j->last = j->first != NULL ? j->last : NULL;
        j->n_pieces--;
        *choice = (*piece)->choice;
        *event = JOB_PIECE;
        return true;
    }
    bool have_all_ended = true;
    for (uint32_t i = 0; i < j->request.n_choices; i++) {
        const bool has_ended = j->choices[i].finish != JOB_GOES_ON;
        have_all_ended = have_all_ended && has_ended;
        if (has_ended && !j->is_told[i]) {
            j->is_told[i] = true;
            *choice = i;
            *event = JOB_CHOICE_ENDS;
            return true;
        }
    }
    *event = JOB_ALL_ENDED;
    return have_all_ended;
}

/* Wait until the job has something, or the socket was closed: true. */
static bool wait_or_gone(const job *j, int socket)
{
    struct pollfd looks[] = {{.fd = j->event, .events = POLLIN},
                             {.fd = socket, .events = POLLRDHUP}};
    while (poll(looks, 2, -1) < 0 && errno == EINTR) {}
    uint64_t count;
    (void)!read(j->event, &count, sizeof count);
    return (looks[1].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

job_event job_next(job *j, int socket, job_piece **piece, uint32_t *choice)
{
    for (;;) {
        job_event event;
        pthread_mutex_lock(&j->lock);
        const bool is_there = take(j, &event, piece, choice);
        const bool is_freed = j->is_held_up && j->n_pieces < JOB_MOST_PIECES / 2;
        j->is_held_up = j->is_held_up && !is_freed;
        pthread_mutex_unlock(&j->lock);
        if (is_freed && j->wake != NULL) {
            j->wake(j->wake_context);
        }
        if (is_there) {
            return event;
        }
        if (wait_or_gone(j, socket)) {
            return JOB_CLIENT_GONE;
        }
    }
}

job_report job_look(job *j, uint32_t choice)
{
    pthread_mutex_lock(&j->lock);
    const job_report its = j->choices[choice];
    pthread_mutex_unlock(&j->lock);
    return its;
}

void job_cancel(job *j)
{
    atomic_store(&j->is_cancelled, true);
    if (j->wake != NULL) {
        j->wake(j->wake_context);
    }
}
