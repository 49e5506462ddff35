/*
 * generate.c: the loop of generate.h.
 *
 * One struct carries the loop's state through small functions. All its room is made at the start
 * but one buffer: the text of a token, which grows to the longest piece seen. A loop ends by
 * `ended` being set, a failure by a status; both leave through the same place.
 */
#define _POSIX_C_SOURCE 200809L

#include "engine/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "report.h"

#define FIRST_PIECE 64u   /* bytes; most tokens are shorter */
#define USUAL_ANSWER 256u /* tokens that an answer without a shorter limit is given room for */

typedef struct generation {
    engine *engine;
    const tokenizer *tokenizer;
    sampler *sampler;
    const generate_options *options;
    generate_result *result;
    bool has_ended; /* result->ended is set */

    float *logits;      /* [n_vocab] of the last token read */
    cellar_seq *seqs;   /* [a micro-batch] the sequence again and again */
    cellar_token *ends; /* [n_ends] tokens that end the text */
    uint32_t n_ends;
    utf8_stream stream;
    char *piece, *text; /* [capacity], [3 * (capacity + 3)] */
    size_t capacity;
    bool is_text_start;
} generation;

generate_options generate_defaults(void)
{
    return (generate_options){.n_limit = UINT64_MAX};
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void end(generation *g, generate_ended ended)
{
    g->result->ended = ended;
    g->has_ended = true;
}

static bool is_stopped(const generation *g)
{
    const generate_options *o = g->options;
    return o->should_stop != NULL && o->should_stop(o->context);
}

/*
 * Read n tokens, at most a micro-batch; the last one's logits into g->logits when they are wanted.
 */
static cellar_status read_tokens(generation *g, const cellar_token *tokens, uint32_t n,
                                 bool is_wanted, cellar_error *error)
{
    const uint32_t last = n - 1;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = g->seqs;
    return engine_decode(g->engine, &batch, &last, is_wanted, g->logits, error);
}

/* A step that was stopped is no failure. */
static cellar_status unless_stopped(generation *g, cellar_status status)
{
    if (status == CELLAR_REFUSED && is_stopped(g)) {
        end(g, GENERATE_ENDED_STOPPED);
        return CELLAR_OK;
    }
    return status;
}

static cellar_status check_prompt(const generation *g, cellar_error *error)
{
    const generate_options *o = g->options;
    uint32_t n_cells = engine_cells(g->engine);
    /* The advice leaves room for an answer: a short one if that is wanted, else a usual one. */
    const bool is_short = o->n_limit < n_cells && o->n_limit < USUAL_ANSWER;
    const size_t n_answer = is_short ? (size_t)o->n_limit : USUAL_ANSWER;
    if (o->n_prompt == 0 || o->n_known >= o->n_prompt) {
        return report(error, CELLAR_INVALID, -1, "a prompt needs at least one token to read");
    }
    if (o->n_prompt > n_cells) {
        return report(error, CELLAR_FULL, -1,
                      "the prompt has %zu tokens and the memory %" PRIu32
                      " cells: give it more cells (-c %zu) or shorten the prompt",
                      o->n_prompt, n_cells, o->n_prompt + n_answer);
    }
    return CELLAR_OK;
}

static cellar_status read_prompt(generation *g, cellar_error *error)
{
    const generate_options *o = g->options;
    const size_t chunk = engine_ubatch(g->engine);
    size_t done = o->n_known;
    for (size_t i = o->n_seen; i < o->n_prompt; i++) {
        sampler_accept(g->sampler, o->prompt[i]);
    }
    while (done < o->n_prompt && !g->has_ended) {
        if (o->progress != NULL) {
            o->progress(o->context, done, o->n_prompt);
        }
        size_t n = o->n_prompt - done < chunk ? o->n_prompt - done : chunk;
        bool is_last = done + n == o->n_prompt;
        cellar_status status = read_tokens(g, o->prompt + done, (uint32_t)n, is_last, error);
        if (status != CELLAR_OK) {
            return unless_stopped(g, status);
        }
        done += n;
        g->result->n_read += n;
    }
    if (o->progress != NULL) {
        o->progress(o->context, done, o->n_prompt);
    }
    return CELLAR_OK;
}

/* ---- text ----------------------------------------------------------------------------------- */

static cellar_status make_room(generation *g, size_t capacity, cellar_error *error)
{
    if (capacity <= g->capacity) {
        return CELLAR_OK;
    }
    char *piece = malloc(capacity);
    char *text = malloc(3 * (capacity + 3));
    if (piece == NULL || text == NULL) {
        free(piece);
        free(text);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a text of %zu bytes", capacity);
    }
    free(g->piece);
    free(g->text);
    g->piece = piece;
    g->text = text;
    g->capacity = capacity;
    return CELLAR_OK;
}

static void show_bytes(generation *g, const char *bytes, size_t n)
{
    const generate_options *o = g->options;
    size_t n_text = utf8_stream_push(&g->stream, bytes, n, g->text);
    if (n_text > 0 && o->text != NULL && !o->text(o->context, g->text, n_text)) {
        end(g, GENERATE_ENDED_OUTPUT);
    }
}

static cellar_status show_token(generation *g, cellar_token token, cellar_error *error)
{
    bool show_special = g->options->show_special;
    size_t n = tokenizer_piece(g->tokenizer, token, show_special, g->piece, g->capacity);
    if (n > g->capacity) {
        cellar_status status = make_room(g, n, error);
        if (status != CELLAR_OK) {
            return status;
        }
        n = tokenizer_piece(g->tokenizer, token, show_special, g->piece, g->capacity);
    }
    bool drop = g->is_text_start && n > 0 && g->piece[0] == ' ' &&
                tokenizer_adds_space(g->tokenizer);
    g->is_text_start = g->is_text_start && n == 0;
    show_bytes(g, g->piece + drop, n - drop);
    return CELLAR_OK;
}

static void show_echo(generation *g)
{
    const generate_options *o = g->options;
    for (size_t at = 0; at < o->n_echo && !g->has_ended;) {
        size_t n = o->n_echo - at < g->capacity ? o->n_echo - at : g->capacity;
        show_bytes(g, o->echo + at, n);
        at += n;
    }
}

/* A character that never became whole is shown as one that is missing. */
static void show_rest(generation *g)
{
    const generate_options *o = g->options;
    size_t n = utf8_stream_finish(&g->stream, g->text);
    if (n > 0 && o->text != NULL && !o->text(o->context, g->text, n)) {
        end(g, GENERATE_ENDED_OUTPUT);
    }
}

/* ---- writing on ----------------------------------------------------------------------------- */

cellar_pos generate_kept(const engine *e, uint32_t n_keep)
{
    uint32_t n_cells = engine_cells(e);
    uint32_t most = n_cells < 8 ? (n_cells > 2 ? n_cells - 2 : 0) : n_cells - n_cells / 4;
    return (cellar_pos)(n_keep < most ? n_keep : most);
}

static cellar_status shift_and_read(generation *g, cellar_token token, cellar_error *error)
{
    const generate_options *o = g->options;
    const cellar_pos keep = generate_kept(g->engine, o->n_keep);
    cellar_pos discarded = 0;
    cellar_status status = cellar_shift_context(engine_memory(g->engine), o->seq, keep, 0,
                                                &discarded, error);
    if (status != CELLAR_OK) {
        return status;
    }
    g->result->n_shifts++;
    if (o->shifted != NULL) {
        status = o->shifted(o->context, keep, discarded, error);
        if (status != CELLAR_OK) {
            return status;
        }
    }
    return read_tokens(g, &token, 1, true, error);
}

static cellar_status read_on(generation *g, cellar_token token, cellar_error *error)
{
    cellar_status status = read_tokens(g, &token, 1, true, error);
    if (status == CELLAR_FULL && g->options->on_full == GENERATE_STOP) {
        end(g, GENERATE_ENDED_FULL);
        return CELLAR_OK;
    }
    if (status == CELLAR_FULL && g->options->on_full == GENERATE_FAIL) {
        return report(error, CELLAR_FULL, -1,
                      "all %" PRIu32
                      " cells are full: give the memory more (-c), or let it shift or stop "
                      "(--on-full)",
                      engine_cells(g->engine));
    }
    if (status == CELLAR_FULL) {
        status = shift_and_read(g, token, error);
    }
    return unless_stopped(g, status);
}

/* Tokens that end the text cannot be chosen. */
static void forbid_ends(generation *g)
{
    for (uint32_t i = 0; i < g->n_ends; i++) {
        g->logits[g->ends[i]] = -INFINITY;
    }
}

static cellar_status write_on(generation *g, cellar_error *error)
{
    const generate_options *o = g->options;
    cellar_status status = CELLAR_OK;
    while (status == CELLAR_OK && !g->has_ended) {
        if (g->result->n_generated == o->n_limit) {
            end(g, GENERATE_ENDED_LIMIT);
            break;
        }
        if (is_stopped(g)) {
            end(g, GENERATE_ENDED_STOPPED);
            break;
        }
        if (o->ignore_end) {
            forbid_ends(g);
        }
        cellar_token token = sampler_next(g->sampler, g->logits);
        if (!o->ignore_end && tokenizer_ends_text(g->tokenizer, token)) {
            end(g, GENERATE_ENDED_TEXT);
            break;
        }
        sampler_accept(g->sampler, token);
        g->result->n_generated++;
        if (o->written != NULL) {
            status = o->written(o->context, token, error);
        }
        if (status == CELLAR_OK) {
            status = show_token(g, token, error);
        }
        if (status == CELLAR_OK && !g->has_ended && g->result->n_generated < o->n_limit) {
            status = read_on(g, token, error);
        }
    }
    return status;
}

static cellar_status run(generation *g, cellar_error *error)
{
    double start = seconds_now();
    cellar_status status = read_prompt(g, error);
    double prompt_end = seconds_now();
    g->result->prompt_seconds = prompt_end - start;
    if (status != CELLAR_OK || g->has_ended) {
        return status;
    }
    show_echo(g);
    status = write_on(g, error);
    show_rest(g);
    g->result->generate_seconds = seconds_now() - prompt_end;
    return status;
}

/* ---- room for it all ------------------------------------------------------------------------ */

static cellar_status make_all_room(generation *g, cellar_error *error)
{
    const uint32_t n_vocab = engine_model(g->engine)->n_vocab, n_ubatch = engine_ubatch(g->engine);
    g->logits = malloc(n_vocab * sizeof *g->logits);
    g->seqs = malloc(n_ubatch * sizeof *g->seqs);
    g->ends = malloc(n_vocab * sizeof *g->ends);
    if (g->logits == NULL || g->seqs == NULL || g->ends == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a row of %" PRIu32 " logits",
                      n_vocab);
    }
    for (uint32_t i = 0; i < n_ubatch; i++) {
        g->seqs[i] = g->options->seq;
    }
    for (uint32_t id = 0; id < n_vocab; id++) {
        if (tokenizer_ends_text(g->tokenizer, (cellar_token)id)) {
            g->ends[g->n_ends++] = (cellar_token)id;
        }
    }
    return make_room(g, FIRST_PIECE, error);
}

static void free_all_room(generation *g)
{
    free(g->logits);
    free(g->seqs);
    free(g->ends);
    free(g->piece);
    free(g->text);
}

cellar_status generate(engine *e, const tokenizer *tok, sampler *s, const generate_options *options,
                       generate_result *result, cellar_error *error)
{
    generation g = {.engine = e,
                    .tokenizer = tok,
                    .sampler = s,
                    .options = options,
                    .result = result,
                    .is_text_start = options->is_text_start};
    *result = (generate_result){.ended = GENERATE_ENDED_LIMIT, .n_known = options->n_known};
    cellar_status status = check_prompt(&g, error);
    if (status != CELLAR_OK) {
        return status;
    }
    status = make_all_room(&g, error);
    if (status == CELLAR_OK) {
        engine_set_stop(e, options->should_stop, options->context);
        status = run(&g, error);
        engine_set_stop(e, NULL, NULL);
    }
    free_all_room(&g);
    return status;
}
