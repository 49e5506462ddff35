/*
 * dialogue_session.c: dialogues as notes of a session, for dialogue_session.h. Reading them is in
 * dialogue_session_load.c.
 *
 * The notes are JSON, so that people and scripts can read what was said. The ends of tokens are
 * written as the bytes that each token is long (-1: not known), their starts as a text of digits.
 * The text may be cut inside a character, so each of its bytes is written as the character of that
 * number: U+0000 to U+00FF.
 */
#include "chat/dialogue_session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fingerprint.h"
#include "report.h"

#define NAME_BYTES 24u

/* What is saved, gathered first. */
typedef struct saving {
    cellar_note *notes; /* [n_notes] */
    char (*names)[NAME_BYTES];
    char **values; /* [n_notes] malloc'ed */
    uint32_t n_notes;
    cellar_seq *sequences; /* [n_logs] */
    cellar_log *logs;
    uint32_t n_logs;
} saving;

static cellar_status no_memory(cellar_error *error)
{
    return report(error, CELLAR_NO_MEMORY, -1, "no memory for the notes of the session");
}

/* The lengths of tokens: [3, 5, -1, ...]. */
static json_t *format_lengths(const chat_text *t)
{
    json_t *lengths = json_array();
    uint32_t before = 0;
    bool is_good = lengths != NULL;
    for (uint32_t i = 0; is_good && i < t->n_tokens; i++) {
        const bool is_known = t->ends[i] != CHAT_TEXT_UNKNOWN;
        const json_int_t length = is_known ? (json_int_t)t->ends[i] - before : -1;
        is_good = json_array_append_new(lengths, json_integer(length)) == 0;
        before = is_known ? t->ends[i] : before;
    }
    if (!is_good) {
        json_decref(lengths);
        lengths = NULL;
    }
    return lengths;
}

static json_t *format_starts(const chat_text *t)
{
    char *digits = malloc((size_t)t->n_tokens + 1);
    json_t *starts = NULL;
    if (digits != NULL) {
        for (uint32_t i = 0; i < t->n_tokens; i++) {
            digits[i] = (char)('0' + t->starts[i]);
        }
        starts = json_stringn(digits, t->n_tokens);
    }
    free(digits);
    return starts;
}

static json_t *format_text(const chat_text *t)
{
    char *characters = malloc(2 * (size_t)t->n_bytes + 1);
    json_t *text = NULL;
    size_t n = 0;
    for (uint32_t i = 0; characters != NULL && i < t->n_bytes; i++) {
        const unsigned byte = (unsigned char)t->bytes[i];
        if (byte >= 0x80) {
            characters[n++] = (char)(0xc0 | byte >> 6);
        }
        characters[n++] = (char)(byte >= 0x80 ? 0x80 | (byte & 0x3f) : byte);
    }
    if (characters != NULL) {
        text = json_stringn(characters, n);
    }
    free(characters);
    return text;
}

static json_t *format_dialogue(const dialogue *d, bool is_held)
{
    if (!is_held) {
        return json_pack("{s:O, s:I, s:b}", "messages", d->messages, "forgotten",
                         (json_int_t)d->n_forgotten, "open", (int)d->is_open);
    }
    return json_pack("{s:O, s:I, s:b, s:o, s:o, s:o}", "messages", d->messages, "forgotten",
                     (json_int_t)d->n_forgotten, "open", (int)d->is_open, "text",
                     format_text(&d->text), "lengths", format_lengths(&d->text), "starts",
                     format_starts(&d->text));
}

static json_t *format_list(const dialogues *all, const dialogue_state *state)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (uint32_t i = 0; is_good && i < all->n; i++) {
        const dialogue *d = all->list[i];
        json_t *entry = json_pack("{s:s, s:I}", "name", d->name, "sequence", (json_int_t)d->seq);
        is_good = json_array_append_new(list, entry) == 0;
    }
    char generator[80];
    const uint64_t *w = state->generator;
    snprintf(generator, sizeof generator,
             "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64, w[0], w[1], w[2], w[3]);
    if (!is_good) {
        json_decref(list);
        return NULL;
    }
    return json_pack("{s:i, s:s, s:I, s:s, s:I, s:o}", "version", 1, "current", state->current,
                     "seed", (json_int_t)(state->seed & INT64_MAX), "generator", generator, "now",
                     (json_int_t)all->renderer.now, "conversations", list);
}

/* Take the value, which may be NULL for want of memory, as a note. */
static cellar_status add_note(saving *its, json_t *value, const char *name, cellar_error *error)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (text == NULL) {
        return no_memory(error);
    }
    snprintf(its->names[its->n_notes], NAME_BYTES, "%s", name);
    its->notes[its->n_notes] =
        (cellar_note){.name = its->names[its->n_notes], .value = text, .size = strlen(text)};
    its->values[its->n_notes++] = text;
    return CELLAR_OK;
}

static cellar_status gather(const dialogues *all, const dialogue_state *state, saving *its,
                            cellar_error *error)
{
    const size_t most = (size_t)all->n + 1;
    its->notes = calloc(most, sizeof *its->notes);
    its->names = calloc(most, sizeof *its->names);
    its->values = calloc(most, sizeof *its->values);
    its->sequences = calloc(most, sizeof *its->sequences);
    its->logs = calloc(most, sizeof *its->logs);
    if (its->notes == NULL || its->names == NULL || its->values == NULL || its->sequences == NULL ||
        its->logs == NULL) {
        return no_memory(error);
    }
    cellar_status status = add_note(its, format_list(all, state), "chat", error);
    for (uint32_t i = 0; status == CELLAR_OK && i < all->n; i++) {
        const dialogue *d = all->list[i];
        const bool is_held = dialogue_held(all, d) > 0;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "chat %" PRId32, d->seq);
        status = add_note(its, format_dialogue(d, is_held), name, error);
        if (is_held) {
            its->sequences[its->n_logs] = d->seq;
            its->logs[its->n_logs++] =
                (cellar_log){.seq = d->seq, .n_tokens = d->text.n_tokens, .tokens = d->text.tokens};
        }
    }
    return status;
}

cellar_status dialogue_session_save(const dialogues *all, const dialogue_state *state,
                                    const char *path, cellar_error *error)
{
    saving its = {.n_notes = 0};
    fingerprint print;
    fingerprint_make(engine_model(all->engine), &print);
    cellar_status status = gather(all, state, &its, error);
    if (status == CELLAR_OK && its.n_logs == 0) {
        status = report(error, CELLAR_INVALID, -1,
                        "nothing was read yet: there is nothing to save");
    }
    if (status == CELLAR_OK) {
        cellar_save_options options = cellar_save_options_init();
        options.sequences = its.sequences;
        options.n_sequences = its.n_logs;
        options.facts = print.facts;
        options.n_facts = FINGERPRINT_FACTS;
        options.notes = its.notes;
        options.n_notes = its.n_notes;
        options.logs = its.logs;
        options.n_logs = its.n_logs;
        status = cellar_save_session(engine_memory(all->engine), &options, path, error);
    }
    for (uint32_t i = 0; i < its.n_notes; i++) {
        free(its.values[i]);
    }
    free(its.notes);
    free(its.names);
    free(its.values);
    free(its.sequences);
    free(its.logs);
    return status;
}
