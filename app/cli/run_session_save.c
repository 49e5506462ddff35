/*
 * run_session_save.c: a session saved: what the memory holds, its text, and notes for people.
 *
 * Everything that is written is gathered first and written by one call of the library, which leaves
 * the old file as it was if anything fails.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_session.h"
#include "report.h"
#include "safe_text.h"

#define OWN_NOTES 5u
#define SHOWN_TOKENS 48u /* of the beginning and of the end */
#define SHOWN_BYTES 56u  /* most of their text that is kept */

typedef struct saving {
    cellar_note *notes; /* [n] first those of others, then ours */
    uint32_t n;
    char *held, *beginning, *ending;
    char generator[128];
} saving;

static void add_note(saving *its, const char *name, const char *text, size_t n)
{
    its->notes[its->n++] = (cellar_note){.name = name, .value = text, .size = n};
}

/* Tokens first .. first + n - 1 as text. */
static cellar_status text_of(const run_session *s, uint32_t first, uint32_t n, char **text,
                             size_t *length, cellar_error *error)
{
    return tokenizer_decode(s->tokenizer, s->talk.tokens + first, n, false, text, length, error);
}

static bool is_inside_character(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

static cellar_status note_text(run_session *s, saving *its, cellar_error *error)
{
    const uint32_t n = s->talk.n_tokens, shown = n < SHOWN_TOKENS ? n : SHOWN_TOKENS;
    size_t length;
    cellar_status status = text_of(s, 0, shown, &its->beginning, &length, error);
    if (status != CELLAR_OK) {
        return status;
    }
    size_t end = length < SHOWN_BYTES ? length : SHOWN_BYTES;
    while (end > 0 && end < length && is_inside_character(its->beginning[end])) {
        end--;
    }
    add_note(its, RUN_SESSION_BEGINNING, its->beginning, end);
    status = text_of(s, n - shown, shown, &its->ending, &length, error);
    if (status != CELLAR_OK) {
        return status;
    }
    size_t begin = length < SHOWN_BYTES ? 0 : length - SHOWN_BYTES;
    while (begin < length && is_inside_character(its->ending[begin])) {
        begin++;
    }
    add_note(its, RUN_SESSION_ENDING, length > 0 ? its->ending + begin : NULL, length - begin);
    return CELLAR_OK;
}

static void note_generator(saving *its, const sampler *chooser, uint64_t seed)
{
    uint64_t w[4];
    sampler_position(chooser, w);
    const int n = snprintf(its->generator, sizeof its->generator,
                           "seed %" PRIu64 " words %016" PRIx64 " %016" PRIx64 " %016" PRIx64
                           " %016" PRIx64,
                           seed, w[0], w[1], w[2], w[3]);
    add_note(its, RUN_SESSION_GENERATOR, its->generator, (size_t)n);
}

static cellar_status gather_notes(run_session *s, saving *its, const sampler *chooser,
                                  uint64_t seed, cellar_error *error)
{
    its->notes = calloc((size_t)s->n_notes + OWN_NOTES, sizeof *its->notes);
    size_t n_held = 0;
    its->held = conversation_format(&s->talk, &n_held);
    if (its->notes == NULL || its->held == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for the notes of the session");
    }
    for (uint32_t i = 0; i < s->n_notes; i++) {
        its->notes[its->n++] = s->notes[i];
    }
    if (s->options.title != NULL) {
        add_note(its, RUN_SESSION_TITLE, s->options.title, strlen(s->options.title));
    }
    add_note(its, CONVERSATION_NOTE, its->held, n_held);
    note_generator(its, chooser, seed);
    return note_text(s, its, error);
}

static cellar_status save(run_session *s, const saving *its, cellar_error *error)
{
    const cellar_seq seq = 0;
    const cellar_log log = {.seq = seq, .n_tokens = s->talk.n_tokens, .tokens = s->talk.tokens};
    cellar_save_options options = cellar_save_options_init();
    options.sequences = &seq;
    options.n_sequences = 1;
    options.facts = s->fingerprint.facts;
    options.n_facts = FINGERPRINT_FACTS;
    options.notes = its->notes;
    options.n_notes = its->n;
    options.logs = &log;
    options.n_logs = 1;
    cellar_status status = session_mark_check(&s->mark, s->options.path, error);
    if (status == CELLAR_OK) {
        status = cellar_save_journal(s->journal, &options, NULL, error);
    }
    if (status == CELLAR_OK) {
        s->is_resumed = true;
        s->mark = session_mark_take(s->options.path);
    }
    return status;
}

cellar_status run_session_save(run_session *s, const generate_result *result,
                               const sampler *chooser, uint64_t seed, cellar_error *error)
{
    if (result->n_read == 0) {
        return CELLAR_OK; /* and so nothing was written either */
    }
    cellar_sequence_info info;
    cellar_status status = cellar_get_sequence(engine_memory(s->engine), 0, &info, error);
    if (status == CELLAR_OK) {
        status = conversation_hold(&s->talk, (uint32_t)info.pos_next, error);
    }
    if (status != CELLAR_OK) {
        return status;
    }
    saving its = {.n = 0};
    status = gather_notes(s, &its, chooser, seed, error);
    if (status == CELLAR_OK) {
        status = save(s, &its, error);
    }
    free(its.notes);
    free(its.held);
    free(its.beginning);
    free(its.ending);
    return status;
}
