/*
 * sampler.c: choose the next token from logits.
 *
 * Candidates are gathered once, with the repetition penalty applied; top-k keeps the best k in a
 * small heap while gathering, so the vocabulary is never sorted. Each candidate's weight is
 * exp(logit - largest logit): the likeliest has 1, so min-p compares weights with min_p itself, and
 * top-p takes candidates off a heap, best first, until their weights reach top_p of the sum.
 *
 * Promise: the same options, seed, calls and logits give the same tokens on every machine whose
 * double is IEEE 754 binary64 without excess precision. That holds because the generator is made
 * of integers, ties go to the lower id, sums run in a fixed order, and the exponential is our own
 * (libm's may differ by a last bit from one machine to the next). The logits themselves are the
 * engine's affair.
 *
 * Odd logits: NaN counts as -infinity, +infinity as the largest finite float. -infinity is never
 * chosen; if there is nothing else, the answer is token 0. After creation nothing can fail.
 */
#include "engine/sampler.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "engine/random_source.h"
#include "report.h"

#define MOST_REPEAT_LAST (1u << 20)

typedef struct candidate {
    double logit;  /* penalised, > -infinity, finite */
    double weight; /* exp(logit - largest) */
    cellar_token id;
} candidate;

struct sampler {
    sampler_options options;
    uint32_t n_vocab;
    random_source random;

    /* The last tokens, oldest at `oldest`, and how often each id is among them. */
    cellar_token *ring; /* [options.repeat_last] */
    uint32_t n_ring, oldest;
    uint32_t *times; /* [n_vocab] */

    candidate *candidates;    /* [most_candidates] */
    uint32_t most_candidates; /* top_k, or n_vocab */
};

sampler_options sampler_defaults(void)
{
    sampler_options options = {
        .temperature = 0.8,
        .top_k = 40,
        .top_p = 0.95,
        .min_p = 0.05,
        .repeat_penalty = 1.0,
        .repeat_last = 64,
        .seed = 0,
    };
    return options;
}

/* ---- life cycle ----------------------------------------------------------------------------- */

/* Written so that NaN is out of range too. */
static cellar_status check_options(const sampler_options *o, uint32_t n_vocab, cellar_error *error)
{
    if (n_vocab < 1 || n_vocab > INT32_MAX) {
        return report(error, CELLAR_INVALID, -1, "n_vocab %u is not in 1..2147483647",
                      (unsigned)n_vocab);
    }
    if (!(o->temperature >= 0.0 && o->temperature <= DBL_MAX)) {
        return report(error, CELLAR_INVALID, -1, "temperature %g is not a number >= 0",
                      o->temperature);
    }
    if (!(o->top_p > 0.0 && o->top_p <= 1.0)) {
        return report(error, CELLAR_INVALID, -1, "top_p %g is not above 0 and at most 1", o->top_p);
    }
    if (!(o->min_p >= 0.0 && o->min_p <= 1.0)) {
        return report(error, CELLAR_INVALID, -1, "min_p %g is not in 0..1", o->min_p);
    }
    if (!(o->repeat_penalty > 0.0 && o->repeat_penalty <= DBL_MAX)) {
        return report(error, CELLAR_INVALID, -1, "repeat_penalty %g is not a number > 0",
                      o->repeat_penalty);
    }
    if (o->repeat_last > MOST_REPEAT_LAST) {
        return report(error, CELLAR_INVALID, -1, "repeat_last %u is above %u",
                      (unsigned)o->repeat_last, MOST_REPEAT_LAST);
    }
    return CELLAR_OK;
}

cellar_status sampler_create(const sampler_options *options, uint32_t n_vocab, sampler **out,
                             cellar_error *error)
{
    *out = NULL;
    cellar_status status = check_options(options, n_vocab, error);
    if (status != CELLAR_OK) {
        return status;
    }
    sampler *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a sampler");
    }
    s->options = *options;
    s->n_vocab = n_vocab;
    s->most_candidates = n_vocab;
    if (options->top_k > 0 && options->top_k < n_vocab) {
        s->most_candidates = options->top_k;
    }
    random_source_seed(&s->random, options->seed);
    s->ring = calloc((size_t)options->repeat_last + 1, sizeof *s->ring);
    s->times = calloc(n_vocab, sizeof *s->times);
    s->candidates = calloc(s->most_candidates, sizeof *s->candidates);
    if (s->ring == NULL || s->times == NULL || s->candidates == NULL) {
        sampler_destroy(s);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory to sample from %u tokens",
                      (unsigned)n_vocab);
    }
    *out = s;
    return CELLAR_OK;
}

void sampler_destroy(sampler *s)
{
    if (s == NULL) {
        return;
    }
    free(s->ring);
    free(s->times);
    free(s->candidates);
    free(s);
}

/* ---- where the generator stands ------------------------------------------------------------- */

void sampler_position(const sampler *s, uint64_t words[4])
{
    memcpy(words, s->random.word, sizeof s->random.word);
}

bool sampler_resume(sampler *s, const uint64_t words[4])
{
    if ((words[0] | words[1] | words[2] | words[3]) == 0) {
        return false;
    }
    memcpy(s->random.word, words, sizeof s->random.word);
    return true;
}

/* ---- repetition ----------------------------------------------------------------------------- */

void sampler_accept(sampler *s, cellar_token token)
{
    uint32_t most = s->options.repeat_last;
    if (most == 0 || token < 0 || (uint32_t)token >= s->n_vocab) {
        return;
    }
    if (s->n_ring < most) {
        s->ring[s->n_ring++] = token;
    } else {
        s->times[s->ring[s->oldest]]--;
        s->ring[s->oldest] = token;
        s->oldest = s->oldest + 1 < most ? s->oldest + 1 : 0;
    }
    s->times[token]++;
}

static double clamp(double x, double limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* The logit of token i as it takes part, or -infinity. */
static double effective_logit(const sampler *s, const float *logits, uint32_t i)
{
    double logit = (double)logits[i];
    if (isnan(logit) || logit < -(double)FLT_MAX) {
        return -(double)INFINITY;
    }
    logit = clamp(logit, (double)FLT_MAX);
    if (s->times[i] > 0) {
        double penalty = s->options.repeat_penalty;
        logit = clamp(logit > 0.0 ? logit / penalty : logit * penalty, DBL_MAX);
    }
    return logit;
}

/* ---- candidates ----------------------------------------------------------------------------- */

static bool is_better(const candidate *a, const candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* Restore the heap below c[i]; at its top stands the best candidate, or the worst. */
static void sift_down(candidate *c, uint32_t n, uint32_t i, bool is_best_on_top)
{
    candidate moving = c[i];
    for (;;) {
        uint64_t child = 2 * (uint64_t)i + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && is_better(&c[child + 1], &c[child]) == is_best_on_top) {
            child++;
        }
        if (is_better(&c[child], &moving) != is_best_on_top) {
            break;
        }
        c[i] = c[child];
        i = (uint32_t)child;
    }
    c[i] = moving;
}

static void make_heap(candidate *c, uint32_t n, bool is_best_on_top)
{
    for (uint32_t i = n / 2; i > 0; i--) {
        sift_down(c, n, i - 1, is_best_on_top);
    }
}

/* Fill s->candidates with the best most_candidates tokens, in no promised order; how many. */
static uint32_t gather(sampler *s, const float *logits)
{
    candidate *c = s->candidates;
    uint32_t n = 0, most = s->most_candidates;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        candidate next = {.logit = effective_logit(s, logits, i), .id = (cellar_token)i};
        if (next.logit < -DBL_MAX) {
            continue;
        }
        if (n < most) {
            c[n++] = next;
            if (n == most && most < s->n_vocab) {
                make_heap(c, n, false);
            }
        } else if (is_better(&next, &c[0])) {
            c[0] = next;
            sift_down(c, n, 0, false);
        }
    }
    return n;
}

static cellar_token best_token(const sampler *s, const float *logits)
{
    double best = -(double)INFINITY;
    cellar_token id = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        double logit = effective_logit(s, logits, i);
        if (logit > best) {
            best = logit;
            id = (cellar_token)i;
        }
    }
    return id;
}

/* ---- probabilities -------------------------------------------------------------------------- */

/*
 * exp(x) for x <= 0, to within a few last bits: x = k ln 2 + r, |r| <= ln 2 / 2, and the Taylor
 * series of exp(r) to r^13 (the next term is below 2^-57). ln 2 is split in two so that k times
 * its first part is exact.
 */
static double exponential(double x)
{
    static const double factors[] = {
        1.0 / 6227020800,
        1.0 / 479001600,
        1.0 / 39916800,
        1.0 / 3628800,
        1.0 / 362880,
        1.0 / 40320,
        1.0 / 5040,
        1.0 / 720,
        1.0 / 120,
        1.0 / 24,
        1.0 / 6,
        1.0 / 2,
        1.0,
        1.0,
    }; /* 1 / 13! down to 1 / 0! */
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    if (!(x > -746.0)) {
        return 0.0; /* below the smallest denormal */
    }
    int k = (int)(x * 1.4426950408889634 - 0.5);
    double r = (x - k * ln2_high) - k * ln2_low;
    double sum = factors[0];
    for (size_t i = 1; i < sizeof factors / sizeof factors[0]; i++) {
        sum = sum * r + factors[i];
    }
    return ldexp(sum, k);
}

/* Set the weights exp((logit - largest) / temperature); their sum. */
static double set_weights(candidate *c, uint32_t n, double temperature)
{
    double largest = c[0].logit;
    for (uint32_t i = 1; i < n; i++) {
        largest = c[i].logit > largest ? c[i].logit : largest;
    }
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        c[i].weight = exponential((c[i].logit - largest) / temperature);
        sum += c[i].weight;
    }
    return sum;
}

/* Keep the fewest best candidates whose weights reach `wanted`; they end up first, in order. */
static uint32_t keep_top_p(candidate *c, uint32_t n, double wanted)
{
    double sum = 0.0;
    uint32_t left = n;
    make_heap(c, n, true);
    while (left > 0 && sum < wanted) {
        candidate best = c[0];
        left--;
        c[0] = c[left];
        c[left] = best; /* behind the heap: best last */
        sum += best.weight;
        if (left > 1) {
            sift_down(c, left, 0, true);
        }
    }
    uint32_t kept = n - left;
    for (uint32_t i = 0; i < n / 2; i++) {
        candidate swapped = c[i];
        c[i] = c[n - 1 - i];
        c[n - 1 - i] = swapped;
    }
    return kept;
}

static uint32_t keep_min_p(candidate *c, uint32_t n, double least)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].weight >= least) {
            c[kept++] = c[i];
        }
    }
    return kept;
}

/* The likeliest always survives: its weight is 1, and top_p > 0 takes at least one. */
static uint32_t filter(const sampler_options *options, candidate *c, uint32_t n)
{
    if (options->top_p >= 1.0 && options->min_p <= 0.0) {
        return n;
    }
    double wanted = options->top_p * set_weights(c, n, 1.0);
    if (options->min_p >
        0.0) { /* both keep a beginning of the order, so the cheap one goes first */
        n = keep_min_p(c, n, options->min_p);
    }
    return options->top_p < 1.0 ? keep_top_p(c, n, wanted) : n;
}

static cellar_token draw(sampler *s, uint32_t n)
{
    candidate *c = s->candidates;
    double left = random_source_unit(&s->random) * set_weights(c, n, s->options.temperature);
    uint32_t chosen = 0; /* the last one with a weight, should rounding leave something over */
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].weight > 0.0) {
            chosen = i;
            if (left < c[i].weight) {
                break;
            }
            left -= c[i].weight;
        }
    }
    return c[chosen].id;
}

cellar_token sampler_next(sampler *s, const float *logits)
{
    if (s->options.temperature == 0.0) {
        return best_token(s, logits);
    }
    uint32_t n = gather(s, logits);
    if (n == 0) {
        return 0;
    }
    return draw(s, filter(&s->options, s->candidates, n));
}
