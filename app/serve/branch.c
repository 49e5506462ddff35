/*
 * branch.c: choosing a token for a branch, and what it tells the one who asked.
 *
 * Probabilities are those of the model, before anything that sampling does to them. Then the logits are
 * changed in this order: biases, penalties for what was written, tokens that end a text; and the sampler
 * chooses. With none of these it sees what `cellar run` sees.
 */
#include "serve/branch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define ROOM 64u /* tokens that are written before the list has to grow */

/* ---- life ----------------------------------------------------------------------------------- */

static bool has_penalties(const job_request *r)
{
    return r->presence_penalty != 0 || r->frequency_penalty != 0;
}

cellar_status branch_create(job *j, uint32_t choice, const branch_model *m, uint32_t n_context,
                            branch **out, cellar_error *error)
{
    const job_request *r = &j->request;
    branch *b = calloc(1, sizeof *b);
    *out = NULL;
    if (b == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for an answer");
    }
    b->job = j;
    job_hold(j);
    b->choice = choice;
    b->report = (job_report){.reason = "", .diverged_at = -1};
    const job_prompt prompt = job_prompt_of(r, choice);
    b->n_prompt = prompt.n;
    b->prompt = prompt.index;
    const uint64_t n_fit = prompt.n <= n_context ? n_context - prompt.n + 1 : 0;
    b->n_most = r->n_limit < n_fit ? r->n_limit : n_fit;
    b->is_cut = n_fit < r->n_limit;
    b->capacity = prompt.n + ROOM;
    b->tokens = malloc(b->capacity * sizeof *b->tokens);
    b->counts = has_penalties(r) ? calloc(m->n_vocab, sizeof *b->counts) : NULL;
    b->text = (answer_text){
        .tok = m->tok, .stops = r->stops, .n_stops = r->n_stops, .is_start = prompt.is_text_start};
    cellar_status status = CELLAR_OK;
    if (b->tokens == NULL || (has_penalties(r) && b->counts == NULL)) {
        status = report(error, CELLAR_NO_MEMORY, -1, "no memory for a prompt of %zu tokens",
                        prompt.n);
    }
    if (status == CELLAR_OK) {
        sampler_options sampling = r->sampling;
        sampling.seed += job_choice_of_prompt(r, choice);
        status = sampler_create(&sampling, m->n_vocab, &b->sampler, error);
    }
    if (status != CELLAR_OK) {
        branch_destroy(b);
        return status;
    }
    memcpy(b->tokens, prompt.tokens, prompt.n * sizeof *b->tokens);
    b->n_tokens = prompt.n;
    *out = b;
    return CELLAR_OK;
}

void branch_destroy(branch *b)
{
    if (b != NULL) {
        sampler_destroy(b->sampler);
        answer_text_free(&b->text);
        free(b->tokens);
        free(b->counts);
        job_release(b->job);
        free(b);
    }
}

/* ---- probabilities -------------------------------------------------------------------------- */

/* The logarithm of the sum of all exp(logit). */
static double log_sum(const float *logits, uint32_t n)
{
    float largest = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - (double)largest);
    }
    return (double)largest + log(sum);
}

/* Put one among the likeliest so far, which are sorted; ties: the lower id first. */
static void insert(job_probability *top, uint32_t *n, uint32_t most, job_probability its)
{
    uint32_t at = *n;
    if (at == most) {
        if (most == 0 || !(its.logprob > top[most - 1].logprob)) {
            return;
        }
        at = most - 1;
    } else {
        ++*n;
    }
    for (; at > 0 && its.logprob > top[at - 1].logprob; at--) {
        top[at] = top[at - 1];
    }
    top[at] = its;
}

/* logits [n_vocab] as they came from the model. */
static void tell_probabilities(job_piece *piece, const float *logits, uint32_t n_vocab,
                               uint32_t most, cellar_token token)
{
    const double all = log_sum(logits, n_vocab);
    piece->n_top = 0;
    for (uint32_t i = 0; most > 0 && i < n_vocab; i++) {
        insert(piece->top, &piece->n_top, most,
               (job_probability){(cellar_token)i, (float)((double)logits[i] - all)});
    }
    piece->logprob = (float)((double)logits[token] - all);
}

/* ---- choosing ------------------------------------------------------------------------------- */

static void change_logits(const branch *b, const branch_model *m, float *logits)
{
    const job_request *r = &b->job->request;
    for (size_t i = 0; i < r->n_biases; i++) {
        logits[r->biases[i].token] += r->biases[i].bias;
    }
    for (uint32_t i = 0; b->counts != NULL && i < m->n_vocab; i++) {
        if (b->counts[i] > 0) {
            logits[i] -= (float)(r->presence_penalty + b->counts[i] * r->frequency_penalty);
        }
    }
    for (uint32_t i = 0; r->ignore_end && i < m->n_ends; i++) {
        logits[m->ends[i]] = -INFINITY;
    }
}

static bool ends_text(const branch_model *m, cellar_token token)
{
    for (uint32_t i = 0; i < m->n_ends; i++) {
        if (m->ends[i] == token) {
            return true;
        }
    }
    return false;
}

static cellar_status make_room(branch *b, cellar_error *error)
{
    if (b->n_tokens < b->capacity) {
        return CELLAR_OK;
    }
    const size_t capacity = b->capacity + b->capacity / 2;
    cellar_token *larger = realloc(b->tokens, capacity * sizeof *larger);
    if (larger == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for an answer of %zu tokens",
                      b->n_tokens);
    }
    b->tokens = larger;
    b->capacity = capacity;
    return CELLAR_OK;
}

/* The token is the answer's next one; what it says goes out in `piece`. */
static cellar_status take_token(branch *b, cellar_token token, job_piece **piece,
                                cellar_error *error)
{
    const char *text;
    size_t n;
    cellar_status status = make_room(b, error);
    if (status == CELLAR_OK) {
        status = answer_text_add(&b->text, token, &text, &n, error);
    }
    if (status != CELLAR_OK) {
        return status;
    }
    job_piece *its = job_piece_create((*piece)->n_top, n);
    if (its == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %zu bytes of an answer", n);
    }
    memcpy(its->text, text, n);
    memcpy(its->top, (*piece)->top, (*piece)->n_top * sizeof *its->top);
    its->logprob = (*piece)->logprob;
    its->choice = b->choice;
    its->token = token;
    free(*piece);
    *piece = its;
    b->tokens[b->n_tokens++] = token;
    b->report.n_written++;
    sampler_accept(b->sampler, token);
    if (b->counts != NULL) {
        b->counts[token]++;
    }
    return CELLAR_OK;
}

static void show_prompt(branch *b)
{
    if (!b->has_seen_prompt) {
        b->has_seen_prompt = true;
        for (size_t i = 0; i < b->n_prompt; i++) {
            sampler_accept(b->sampler, b->tokens[i]);
        }
    }
}

cellar_status branch_write(branch *b, const branch_model *m, float *logits, cellar_error *error)
{
    const job_request *r = &b->job->request;
    show_prompt(b);
    if (b->report.n_written >= b->n_most) {
        b->report.finish = JOB_LIMIT;
        return CELLAR_OK;
    }
    const uint32_t most = r->n_top > 0 ? (uint32_t)r->n_top : 0;
    const bool is_changed = r->n_biases > 0 || b->counts != NULL || r->ignore_end;
    float *original = NULL;
    if (r->n_top >= 0 && is_changed) {
        original = malloc(m->n_vocab * sizeof *original);
        if (original == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for a row of logits");
        }
        memcpy(original, logits, m->n_vocab * sizeof *original);
    }
    job_piece *piece = job_piece_create(most, 0);
    cellar_status status = CELLAR_OK;
    if (piece == NULL) {
        status = report(error, CELLAR_NO_MEMORY, -1, "no memory for a piece of an answer");
    } else {
        change_logits(b, m, logits);
        const cellar_token token = sampler_next(b->sampler, logits);
        if (r->n_top >= 0) {
            tell_probabilities(piece, original != NULL ? original : logits, m->n_vocab, most,
                               token);
        }
        if (!r->ignore_end && ends_text(m, token)) {
            b->report.finish = JOB_END_OF_TEXT;
            free(piece);
        } else {
            status = take_token(b, token, &piece, error);
            if (status == CELLAR_OK) {
                job_put(b->job, piece);
            } else {
                free(piece);
            }
        }
    }
    free(original);
    if (status == CELLAR_OK && b->report.finish == JOB_GOES_ON) {
        b->report.stop = b->text.stop;
        b->report.finish = b->text.stop != NULL              ? JOB_STOP_TEXT
                           : b->report.n_written < b->n_most ? JOB_GOES_ON
                           : b->is_cut                       ? JOB_FULL
                                                             : JOB_LIMIT;
    }
    return status;
}

void branch_end(branch *b, job_finish finish)
{
    const char *text;
    size_t n;
    if (b->first_written > 0) {
        b->report.write_seconds = job_now() - b->first_written;
    }
    if (finish != JOB_STOP_TEXT && answer_text_finish(&b->text, &text, &n, NULL) == CELLAR_OK &&
        n > 0) {
        job_piece *piece = job_piece_create(0, n);
        if (piece != NULL) {
            memcpy(piece->text, text, n);
            piece->choice = b->choice;
            job_put(b->job, piece);
        } else {
            finish = JOB_FAILED;
            (void)report(&b->report.error, CELLAR_NO_MEMORY, -1, "no memory for the end of a text");
        }
    }
    b->report.finish = finish;
    job_tell(b->job, b->choice, &b->report);
}
