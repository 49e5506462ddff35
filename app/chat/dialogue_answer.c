/*
 * dialogue_answer.c: read what is new, and let the model write, for dialogue.h.
 *
 * Everything but the last token is read here, a micro-batch at a time, each a step of its own, so
 * what was read stays whatever happens then. Before the last token comes a checkpoint: to make an
 * answer anew is to read that one token again, also for a model that cannot go back by itself. Then
 * generate() reads it and writes, and a second checkpoint stands behind the answer, where the next
 * turn begins.
 *
 * When the cells are full, while reading or writing, the oldest turn is forgotten and it goes on.
 */
#define _POSIX_C_SOURCE 200809L

#include "chat/dialogue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report.h"

#define USUAL_ANSWER 256u /* tokens that advice leaves room for */

/* An answer in the making. */
typedef struct answering {
    dialogues *all;
    dialogue *d;
    dialogue_options *options;
    dialogue_result *result;
    sampler *sampler;
    cellar_seq *seqs; /* [a micro-batch] the sequence again and again */
    bool is_finished; /* the line is written, or the output is closed */
    bool is_cut;      /* the output is closed */
    utf8_stream stream;
    char *content; /* [n_content] what was written, as text */
    size_t n_content, capacity;
} answering;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool is_stopped(const answering *a)
{
    return a->options->should_stop != NULL && a->options->should_stop(a->options->context);
}

static bool should_stop(void *context)
{
    const answering *a = context;
    return a->is_finished || is_stopped(a);
}

/* ---- reading -------------------------------------------------------------------------------- */

static void show_progress(const answering *a, size_t n_read, size_t n)
{
    if (a->options->progress != NULL) {
        a->options->progress(a->options->context, n_read, n);
    }
}

/* Read tokens from..n-1, but not the last one; *from moves on with what is read. */
static cellar_status read_tokens(answering *a, uint32_t *from, uint32_t n, cellar_error *error)
{
    const uint32_t chunk = engine_ubatch(a->all->engine), last = n - 1;
    while (*from < last) {
        show_progress(a, *from, n);
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = last - *from < chunk ? last - *from : chunk;
        batch.tokens = a->d->text.tokens + *from;
        batch.seqs = a->seqs;
        cellar_status status = engine_decode(a->all->engine, &batch, NULL, 0, NULL, error);
        if (status != CELLAR_OK) {
            return status;
        }
        *from += batch.n_tokens;
        a->result->n_read += batch.n_tokens;
    }
    return CELLAR_OK;
}

/* A place to come back to. One that cannot be made is no failure: going back then reads more. */
static void make_checkpoint(const answering *a)
{
    (void)!cellar_checkpoint(engine_memory(a->all->engine), a->d->seq, NULL);
}

/* Render, keep what agrees, read the rest but the last token. */
static cellar_status read_once(answering *a, bool is_first, cellar_error *error)
{
    char *bytes;
    size_t n;
    uint32_t n_held = 0;
    cellar_status status = dialogue_render(a->all, a->d, true, &bytes, &n, error);
    if (status == CELLAR_OK) {
        status = dialogue_bring(a->all, a->d, bytes, n, &n_held, error);
        free(bytes);
    }
    if (status != CELLAR_OK) {
        return status;
    }
    const uint32_t n_tokens = a->d->text.n_tokens, n_cells = engine_cells(a->all->engine);
    a->result->n_prompt = n_tokens;
    if (is_first) {
        a->result->n_reused = n_held;
    }
    if (n_tokens > n_cells) {
        return report(error, CELLAR_FULL, -1,
                      "the conversation has %" PRIu32 " tokens and the memory %" PRIu32
                      " cells: give it more (-c %" PRIu32 "), or say less",
                      n_tokens, n_cells, n_tokens + USUAL_ANSWER);
    }
    status = read_tokens(a, &n_held, n_tokens, error);
    if (status == CELLAR_OK) {
        make_checkpoint(a);
    }
    return status;
}

/* *n_tokens went out of the memory at once; 0: what is left has to be read again. */
static cellar_status forget_turn(answering *a, uint32_t *n_tokens, cellar_error *error)
{
    uint32_t n_messages;
    cellar_status status = dialogue_forget_turn(a->all, a->d, &n_messages, n_tokens, error);
    if (status == CELLAR_OK) {
        a->result->n_forgotten += n_messages;
        if (a->options->forgot != NULL) {
            a->options->forgot(a->options->context, n_messages, *n_tokens);
        }
    }
    return status;
}

static cellar_status read_prompt(answering *a, cellar_error *error)
{
    engine_set_stop(a->all->engine, should_stop, a);
    cellar_status status = read_once(a, true, error);
    uint32_t n_tokens;
    while (status == CELLAR_FULL && !a->options->stops_when_full) {
        cellar_status forgotten = forget_turn(a, &n_tokens, NULL);
        if (forgotten != CELLAR_OK) {
            break; /* and what was full is said */
        }
        status = read_once(a, false, error);
    }
    engine_set_stop(a->all->engine, NULL, NULL);
    show_progress(a, a->result->n_prompt, a->result->n_prompt);
    return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

static cellar_status make_room_for_text(answering *a, size_t n, cellar_error *error)
{
    const size_t most = 3 * (n + 3) + 12; /* that n bytes can become */
    if (a->capacity - a->n_content < most) {
        const size_t capacity = 2 * a->capacity + most;
        char *larger = realloc(a->content, capacity);
        if (larger == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for a text of %zu bytes",
                          a->n_content);
        }
        a->content = larger;
        a->capacity = capacity;
    }
    return chat_text_reserve(&a->d->text, most, 1, error);
}

/* What came out of the stream is text: of the answer, of the sequence, and shown. There is room. */
static void take_text(answering *a, size_t n)
{
    const char *text = a->content + a->n_content;
    (void)!chat_text_add_bytes(&a->d->text, text, n, NULL);
    a->n_content += n;
    if (n > 0 && a->options->text != NULL && !a->is_cut &&
        !a->options->text(a->options->context, text, n)) {
        a->is_cut = a->is_finished = true;
    }
}

/*
 * The answer has ended: what never became a character is one that is missing. One that was broken off
 * may still become one: the tokens that have no text yet are written again when it goes on.
 */
static cellar_status end_text(answering *a, cellar_error *error)
{
    chat_text *t = &a->d->text;
    cellar_status status = make_room_for_text(a, 0, error);
    if (status == CELLAR_OK && a->stream.n_waiting > 0) {
        take_text(a, utf8_stream_finish(&a->stream, a->content + a->n_content));
        t->ends[t->n_tokens - 1] = t->n_bytes;
    }
    return status;
}

/* The line is written when it has words and an end. */
static bool is_line_done(const answering *a)
{
    size_t i = 0;
    while (i < a->n_content && strchr(" \t\r\n", a->content[i]) != NULL) {
        i++;
    }
    return memchr(a->content + i, '\n', a->n_content - i) != NULL;
}

/*
 * A token whose bytes are not yet a character, and a control token in the middle, stand for no text:
 * their end is not known, so they stay only where what follows them stays.
 */
static cellar_status note_written(void *context, cellar_token token, cellar_error *error)
{
    answering *a = context;
    chat_text *t = &a->d->text;
    const chat_encoder *encoder = a->all->encoder;
    const bool is_anew = t->n_tokens == 0 ||
                         chat_encoder_is_control(encoder, t->tokens[t->n_tokens - 1]);
    size_t n;
    char *piece = chat_encoder_piece(encoder, t, token, &n);
    if (piece == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the text of a token");
    }
    cellar_status status = make_room_for_text(a, n, error);
    if (status == CELLAR_OK) {
        size_t n_text = 0;
        if (!chat_encoder_is_control(encoder, token)) {
            n_text = utf8_stream_push(&a->stream, piece, n, a->content + a->n_content);
        }
        take_text(a, n_text);
        if (n_text > 0 && a->stream.n_waiting == n && n > 0) {
            t->ends[t->n_tokens - 1] = t->n_bytes; /* all of it is of the tokens before */
        }
        const bool is_whole = n_text > 0 && a->stream.n_waiting == 0;
        (void)!chat_text_add_token(t, token, is_whole ? t->n_bytes : CHAT_TEXT_UNKNOWN,
                                   is_anew ? CHAT_START_ANEW : CHAT_START_CONTINUES, NULL);
        a->result->n_written++;
    }
    free(piece);
    if (a->options->ends_with_line && is_line_done(a)) {
        a->is_finished = true;
    }
    return status;
}

/* One call of generate(), until the text ends or the cells are full. */
static cellar_status write_once(answering *a, bool is_first, generate_ended *ended,
                                cellar_error *error)
{
    const chat_text *t = &a->d->text;
    const uint32_t look_back = a->options->sampling.repeat_last;
    generate_options g = generate_defaults();
    generate_result result;
    cellar_token *prompt = malloc(t->n_tokens * sizeof *prompt); /* the text grows meanwhile */
    if (prompt == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %" PRIu32 " tokens", t->n_tokens);
    }
    memcpy(prompt, t->tokens, t->n_tokens * sizeof *prompt);
    g.prompt = prompt;
    g.n_prompt = t->n_tokens;
    g.n_known = dialogue_held(a->all, a->d);
    g.n_seen = !is_first ? t->n_tokens : t->n_tokens > look_back ? t->n_tokens - look_back : 0;
    g.seq = a->d->seq;
    g.n_limit = a->options->n_limit - a->result->n_written;
    g.on_full = GENERATE_STOP;
    g.ignore_end = a->options->ignore_end;
    g.context = a;
    g.should_stop = should_stop;
    g.written = note_written;
    cellar_status status = generate(a->all->engine, a->all->tokenizer, a->sampler, &g, &result,
                                    error);
    a->result->n_read += is_first ? result.n_read : 0;
    a->result->read_seconds += is_first ? result.prompt_seconds : 0;
    a->result->write_seconds += result.generate_seconds;
    *ended = result.ended;
    free(prompt);
    return status;
}

static cellar_status write_answer(answering *a, cellar_error *error)
{
    generate_ended ended = GENERATE_ENDED_STOPPED;
    cellar_status status = write_once(a, true, &ended, error);
    while ((status == CELLAR_OK && ended == GENERATE_ENDED_FULL) || status == CELLAR_FULL) {
        uint32_t n_tokens = 0;
        ended = GENERATE_ENDED_FULL;
        if (a->options->stops_when_full || forget_turn(a, &n_tokens, NULL) != CELLAR_OK ||
            n_tokens == 0) {
            status = CELLAR_OK;
            break;
        }
        status = write_once(a, a->result->n_written == 0, &ended, error);
    }
    a->result->ended = a->is_cut        ? GENERATE_ENDED_OUTPUT
                       : a->is_finished ? GENERATE_ENDED_TEXT
                                        : ended;
    return status == CELLAR_OK && a->result->ended == GENERATE_ENDED_TEXT ? end_text(a, error)
                                                                          : status;
}

/* A text and what was written; NULL: no memory. */
static json_t *joined(const answering *a, const json_t *before)
{
    const size_t n = json_string_length(before);
    char *bytes = malloc(n + a->n_content + 1);
    json_t *both = NULL;
    if (bytes != NULL) {
        memcpy(bytes, n > 0 ? json_string_value(before) : "", n);
        memcpy(bytes + n, a->content, a->n_content);
        both = json_stringn(bytes, n + a->n_content);
    }
    free(bytes);
    return both;
}

/* What was written becomes a message, or goes on with the one that was broken off. */
static cellar_status keep_answer(answering *a, bool was_open, bool is_broken, cellar_error *error)
{
    json_t *messages = a->d->messages;
    bool is_good = true;
    if (was_open) {
        json_t *last = json_array_get(messages, json_array_size(messages) - 1);
        json_t *both = joined(a, json_object_get(last, "content"));
        is_good = json_object_set_new(last, "content", both) == 0;
        a->d->is_open = is_broken;
    } else if (a->n_content > 0 || !is_broken) {
        json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content", joined(a, NULL));
        is_good = json_array_append_new(messages, message) == 0;
        a->d->is_open = is_broken && is_good;
    }
    return is_good ? CELLAR_OK
                   : report(error, CELLAR_NO_MEMORY, -1, "no memory for an answer of %zu bytes",
                            a->n_content);
}

/* ---- both ----------------------------------------------------------------------------------- */

static cellar_status make_room(answering *a, cellar_error *error)
{
    const uint32_t n = engine_ubatch(a->all->engine);
    a->seqs = malloc(n * sizeof *a->seqs);
    a->content = malloc(64);
    a->capacity = a->content != NULL ? 64 : 0;
    if (a->seqs == NULL || a->content == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for an answer");
    }
    for (uint32_t i = 0; i < n; i++) {
        a->seqs[i] = a->d->seq;
    }
    cellar_status status = sampler_create(&a->options->sampling, tokenizer_size(a->all->tokenizer),
                                          &a->sampler, error);
    if (status == CELLAR_OK) {
        (void)sampler_resume(a->sampler, a->options->generator);
    }
    return status;
}

static cellar_status answer(answering *a, cellar_error *error)
{
    const bool was_open = a->d->is_open;
    const double start = seconds_now();
    cellar_status status = read_prompt(a, error);
    a->result->read_seconds = seconds_now() - start;
    if (status == CELLAR_REFUSED && is_stopped(a)) {
        return CELLAR_OK; /* ended is STOPPED, and what was read stays */
    }
    if (status != CELLAR_OK) {
        return status;
    }
    status = write_answer(a, error);
    sampler_position(a->sampler, a->options->generator);
    cellar_error other = {.status = CELLAR_OK};
    const bool is_broken = status != CELLAR_OK || a->result->ended != GENERATE_ENDED_TEXT;
    const cellar_status kept = keep_answer(a, was_open, is_broken, &other);
    if (status == CELLAR_OK && kept != CELLAR_OK) {
        status = report(error, kept, -1, "%s", other.message);
    }
    if (a->result->n_written > 0) {
        make_checkpoint(a);
    }
    return status;
}

cellar_status dialogue_answer(dialogues *all, dialogue *d, dialogue_options *options,
                              dialogue_result *result, cellar_error *error)
{
    *result = (dialogue_result){.ended = GENERATE_ENDED_STOPPED};
    if (!dialogue_is_waiting(d)) {
        return report(error, CELLAR_INVALID, -1, "nothing waits for an answer");
    }
    answering a = {.all = all, .d = d, .options = options, .result = result};
    cellar_status status = make_room(&a, error);
    if (status == CELLAR_OK) {
        status = answer(&a, error);
    }
    sampler_destroy(a.sampler);
    free(a.seqs);
    free(a.content);
    return status;
}
