/*
 * perplexity.c: read windows, score tokens, keep sums.
 *
 * A window is read in pieces, small enough that the logits of a piece stay within a bound however
 * large the vocabulary is. Every token's logits are turned into a log-probability by one pass for the
 * largest and one for the sum of exponentials, in double. Means and variances are kept as Welford's
 * recurrence (Technometrics 4, 1962), which does not cancel. Divergences are kept one by one, because
 * a median needs them all: 8 bytes for each scored token.
 */
#include "engine/perplexity.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define MOST_LOGITS (4u << 20) /* numbers in the logits of a piece, where a row is not larger */

/* Welford's recurrence: the mean and the sum of squared distances from it. */
typedef struct running {
    uint64_t n;
    double mean, squares;
} running;

static void running_add(running *r, double x)
{
    r->n++;
    const double distance = x - r->mean;
    r->mean += distance / (double)r->n;
    r->squares += distance * (x - r->mean);
}

static perplexity_mean running_result(const running *r)
{
    const double n = (double)r->n;
    return (perplexity_mean){r->mean, r->n > 1 ? sqrt(r->squares / (n - 1) / n) : 0};
}

/* exp of a mean; to first order its error is that of the mean, times it. */
static perplexity_mean exponential(const running *r)
{
    const perplexity_mean m = running_result(r);
    return (perplexity_mean){exp(m.value), exp(m.value) * m.error};
}

/* Everything that a measurement keeps. */
typedef struct measuring {
    engine *e, *exact;
    const cellar_token *text; /* [n] */
    size_t n;
    const perplexity_options *options;
    uint32_t n_vocab, n_piece;
    cellar_token *window;         /* [n_window] */
    cellar_seq *seqs;             /* [n_piece] zeros */
    uint32_t *wanted;             /* [n_piece] */
    float *logits, *exact_logits; /* [n_piece][n_vocab]; the latter with `exact` only */
    double *divergences;          /* [n], with `exact` only */
    running loss, exact_loss, difference, divergence;
    uint64_t n_same;
    perplexity_result *out;
} measuring;

perplexity_options perplexity_defaults(uint32_t n_window)
{
    const uint32_t half = n_window / 2;
    return (perplexity_options){
        .n_window = n_window, .n_step = half > 0 ? half : 1, .start = -1, .progress = NULL};
}

/* Tokens of text that a window holds. */
static size_t window_room(const perplexity_options *o)
{
    return o->n_window - (o->start >= 0 ? 1u : 0u);
}

/* The end of the window that begins at token `from` of n. */
static size_t window_end(const perplexity_options *o, size_t from, size_t n)
{
    const size_t room = window_room(o);
    return n - from < room ? n : from + room;
}

static size_t count_texts(const perplexity_options *o)
{
    return o->ends != NULL ? o->n_texts : 1;
}

/* Where text i ends among n tokens. */
static size_t text_end(const perplexity_options *o, size_t i, size_t n)
{
    return o->ends != NULL ? o->ends[i] : n;
}

uint64_t perplexity_work(const perplexity_options *o, size_t n)
{
    const uint64_t room = window_room(o);
    uint64_t later = 0; /* windows after the first of their text */
    for (size_t i = 0, from = 0; i < count_texts(o); from = text_end(o, i++, n)) {
        const uint64_t length = text_end(o, i, n) - from, more = length > room ? length - room : 0;
        later += (more + o->n_step - 1) / o->n_step;
    }
    return n + later * (room - o->n_step);
}

/* ---- one row of logits ---------------------------------------------------------------------- */

/* log of the sum of exponentials; *best: the first of the largest. */
static double log_sum(const float *logits, uint32_t n, uint32_t *best)
{
    *best = 0;
    for (uint32_t i = 1; i < n; i++) {
        *best = logits[i] > logits[*best] ? i : *best;
    }
    const double largest = logits[*best];
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp(logits[i] - largest);
    }
    return largest + log(sum);
}

/* sum p log(p / q), p of `exact`; log_p and log_q are their log_sum. */
static double diverge(const float *exact, double log_p, const float *logits, double log_q,
                      uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double p = exact[i] - log_p;
        sum += exp(p) * (p - (logits[i] - log_q));
    }
    return sum > 0 ? sum : 0; /* rounding may leave a little less than nothing */
}

static cellar_status refuse_logits(size_t at, cellar_error *error)
{
    return report(
        error, CELLAR_CORRUPT, (int64_t)at,
        "the logits before token %zu of the text are not all finite numbers: is the model "
        "damaged?",
        at);
}

/* Score token `at` of the text by row `row` of the piece's logits. */
static cellar_status score(measuring *m, size_t at, uint32_t row, cellar_error *error)
{
    const size_t first = (size_t)row * m->n_vocab;
    const uint32_t token = (uint32_t)m->text[at];
    const float *logits = m->logits + first;
    uint32_t best, exact_best;
    const double log_q = log_sum(logits, m->n_vocab, &best);
    const double loss = log_q - logits[token];
    if (!isfinite(loss)) {
        return refuse_logits(at, error);
    }
    if (m->exact != NULL) {
        const float *exact = m->exact_logits + first;
        const double log_p = log_sum(exact, m->n_vocab, &exact_best);
        const double exact_loss = log_p - exact[token];
        const double divergence = diverge(exact, log_p, logits, log_q, m->n_vocab);
        if (!isfinite(exact_loss) || !isfinite(divergence)) {
            return refuse_logits(at, error);
        }
        m->divergences[m->divergence.n] = divergence;
        running_add(&m->divergence, divergence);
        running_add(&m->exact_loss, exact_loss);
        running_add(&m->difference, loss - exact_loss);
        m->n_same += best == exact_best;
    }
    running_add(&m->loss, loss);
    return CELLAR_OK;
}

/* ---- windows -------------------------------------------------------------------------------- */

/*
 * Read tokens [first, first + n) of the window, whose token i is followed by token `from` + i of the
 * text when there is a start token; those that come at or after `scored` are scored.
 */
static cellar_status read_piece(measuring *m, uint32_t first, uint32_t n, size_t from,
                                size_t scored, cellar_error *error)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = m->window + first;
    batch.seqs = m->seqs;
    uint32_t n_wanted = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (from + first + i >= scored) {
            m->wanted[n_wanted++] = i;
        }
    }
    cellar_status status = engine_decode(m->e, &batch, m->wanted, n_wanted, m->logits, error);
    if (status == CELLAR_OK && m->exact != NULL) {
        status = engine_decode(m->exact, &batch, m->wanted, n_wanted, m->exact_logits, error);
    }
    for (uint32_t i = 0; i < n_wanted && status == CELLAR_OK; i++) {
        status = score(m, from + first + m->wanted[i], i, error);
    }
    m->out->n_read += n;
    return status;
}

static cellar_status read_window(measuring *m, size_t from, size_t end, size_t scored,
                                 cellar_error *error)
{
    const bool has_start = m->options->start >= 0;
    cellar_status status = cellar_clear(engine_memory(m->e), error);
    if (status == CELLAR_OK && m->exact != NULL) {
        status = cellar_clear(engine_memory(m->exact), error);
    }
    uint32_t n = 0;
    if (has_start) {
        m->window[n++] = m->options->start;
    }
    /* What follows the last token is not asked, so it need not be read. */
    memcpy(m->window + n, m->text + from, (end - from - 1) * sizeof *m->window);
    n += (uint32_t)(end - from - 1);
    for (uint32_t at = 0; at < n && status == CELLAR_OK;) {
        const uint32_t n_now = n - at < m->n_piece ? n - at : m->n_piece;
        status = read_piece(m, at, n_now, from + (has_start ? 0 : 1), scored, error);
        at += n_now;
    }
    return status;
}

static cellar_status tell(measuring *m, size_t n_done, cellar_error *error)
{
    const perplexity_options *o = m->options;
    m->out->n_scored = m->loss.n;
    m->out->loss = running_result(&m->loss);
    m->out->perplexity = exponential(&m->loss);
    if (o->progress != NULL && !o->progress(o->context, n_done, m->n, m->out)) {
        return report(error, CELLAR_REFUSED, (int64_t)n_done, "stopped after %zu of %zu tokens",
                      n_done, m->n);
    }
    return CELLAR_OK;
}

/* A text of tokens [from, last). */
static cellar_status read_text(measuring *m, size_t from, size_t last, cellar_error *error)
{
    size_t scored = from + (m->options->start >= 0 ? 0 : 1), end;
    cellar_status status;
    if (scored >= last) {
        return CELLAR_OK; /* nothing of it can be foretold */
    }
    do {
        end = window_end(m->options, from, last);
        m->out->n_windows++;
        if ((status = read_window(m, from, end, scored, error)) != CELLAR_OK ||
            (status = tell(m, end, error)) != CELLAR_OK) {
            return status;
        }
        scored = end;
        from += m->options->n_step;
    } while (end < last);
    return CELLAR_OK;
}

static cellar_status read_texts(measuring *m, cellar_error *error)
{
    const perplexity_options *o = m->options;
    cellar_status status = CELLAR_OK;
    for (size_t i = 0, from = 0; i < count_texts(o) && status == CELLAR_OK; i++) {
        const size_t end = text_end(o, i, m->n);
        status = o->begin_text != NULL && end > from ? o->begin_text(o->context, i, error)
                                                     : CELLAR_OK;
        if (status == CELLAR_OK) {
            status = read_text(m, from, end, error);
        }
        from = end;
    }
    return status;
}

/* ---- the result ----------------------------------------------------------------------------- */

static int compare_numbers(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* The smallest of the sorted numbers that a share of them does not exceed. */
static double percentile(const double *sorted, uint64_t n, double share)
{
    const uint64_t rank = (uint64_t)ceil(share * (double)n);
    return sorted[rank > 0 ? rank - 1 : 0];
}

static void compare(measuring *m)
{
    const uint64_t n = m->divergence.n;
    qsort(m->divergences, n, sizeof *m->divergences, compare_numbers);
    m->out->is_compared = true;
    m->out->comparison =
        (perplexity_comparison){.exact = exponential(&m->exact_loss),
                                .ratio = exponential(&m->difference),
                                .divergence = running_result(&m->divergence),
                                .median = percentile(m->divergences, n, 0.5),
                                .percentile_99 = percentile(m->divergences, n, 0.99),
                                .most = m->divergences[n - 1],
                                .same_best = (double)m->n_same / (double)n};
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static cellar_status check(const measuring *m, cellar_error *error)
{
    const perplexity_options *o = m->options;
    uint32_t most = engine_cells(m->e);
    if (m->exact != NULL) {
        most = engine_cells(m->exact) < most ? engine_cells(m->exact) : most;
        if (engine_model(m->exact)->n_vocab != m->n_vocab) {
            return report(error, CELLAR_INVALID, -1,
                          "two models cannot be compared: expected a vocabulary of %" PRIu32
                          " tokens, found %" PRIu32,
                          m->n_vocab, engine_model(m->exact)->n_vocab);
        }
    }
    if (o->n_window < 2 || o->n_window > most) {
        return report(error, CELLAR_INVALID, -1,
                      "window (-c): expected 2 to %" PRIu32 " tokens, as many as there are cells, "
                      "found %" PRIu32,
                      most, o->n_window);
    }
    if (o->n_step < 1 || o->n_step >= o->n_window) {
        return report(error, CELLAR_INVALID, -1,
                      "step between windows (--stride): expected 1 to %" PRIu32
                      " tokens, found %" PRIu32,
                      o->n_window - 1, o->n_step);
    }
    const size_t n_texts = count_texts(o);
    size_t n_scored = 0, from = 0;
    for (size_t i = 0; i < n_texts; i++) {
        const size_t end = text_end(o, i, m->n);
        if (end < from || end > m->n) {
            return report(error, CELLAR_INVALID, (int64_t)i,
                          "text %zu: expected an end from %zu to %zu, found %zu", i, from, m->n,
                          end);
        }
        n_scored += end - from - (o->start >= 0 || end == from ? 0 : 1);
        from = end;
    }
    if (from != m->n || n_scored == 0) {
        return report(error, CELLAR_INVALID, -1,
                      "of a text of %zu tokens nothing can be foretold: give a longer one", m->n);
    }
    for (size_t i = 0; i < m->n; i++) {
        if (m->text[i] < 0 || (uint32_t)m->text[i] >= m->n_vocab) {
            return report(error, CELLAR_INVALID, (int64_t)i,
                          "token %zu of the text: expected an id below %" PRIu32 ", found %" PRId32,
                          i, m->n_vocab, m->text[i]);
        }
    }
    return CELLAR_OK;
}

static cellar_status allocate(measuring *m, cellar_error *error)
{
    const uint32_t most = MOST_LOGITS / m->n_vocab;
    m->n_piece = engine_ubatch(m->e);
    m->n_piece = m->n_piece <= most ? m->n_piece : most > 0 ? most : 1;
    const size_t n_logits = (size_t)m->n_piece * m->n_vocab;
    m->window = malloc((size_t)m->options->n_window * sizeof *m->window);
    m->seqs = calloc(m->n_piece, sizeof *m->seqs);
    m->wanted = calloc(m->n_piece, sizeof *m->wanted);
    m->logits = malloc(n_logits * sizeof *m->logits);
    bool is_whole = m->window != NULL && m->seqs != NULL && m->wanted != NULL && m->logits != NULL;
    if (m->exact != NULL) {
        m->exact_logits = malloc(n_logits * sizeof *m->exact_logits);
        m->divergences = calloc(m->n, sizeof *m->divergences);
        is_whole = is_whole && m->exact_logits != NULL && m->divergences != NULL;
    }
    return is_whole ? CELLAR_OK
                    : report(error, CELLAR_NO_MEMORY, -1,
                             "no memory for the logits of %" PRIu32 " tokens", m->n_piece);
}

cellar_status perplexity_measure(engine *e, engine *exact, const cellar_token *tokens, size_t n,
                                 const perplexity_options *options, perplexity_result *out,
                                 cellar_error *error)
{
    memset(out, 0, sizeof *out);
    measuring m = {.e = e,
                   .exact = exact,
                   .text = tokens,
                   .n = n,
                   .options = options,
                   .n_vocab = engine_model(e)->n_vocab,
                   .out = out};
    cellar_status status = check(&m, error);
    if (status == CELLAR_OK) {
        status = allocate(&m, error);
    }
    if (status == CELLAR_OK) {
        status = read_texts(&m, error);
    }
    if (status == CELLAR_OK && exact != NULL) {
        compare(&m);
    }
    free(m.window);
    free(m.seqs);
    free(m.wanted);
    free(m.logits);
    free(m.exact_logits);
    free(m.divergences);
    return status;
}
