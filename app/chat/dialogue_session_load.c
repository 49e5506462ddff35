/*
 * dialogue_session_load.c: dialogues from the notes of a session, for dialogue_session.h.
 *
 * Everything is read and checked into a list of its own first; then the library loads the sequences
 * under new names; then, when nothing can fail any more, the list takes the place of the old one.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/dialogue_session.h"
#include "engine/fingerprint.h"
#include "report.h"

/* What is loaded, until it is whole. */
typedef struct loading {
    const cellar_session *session;
    dialogues made;        /* its own list, with everything else of the dialogues it is for */
    cellar_seq *from, *as; /* [n_held] sequences of the session, and their names here */
    uint32_t n_held;
    json_t *chat; /* the note */
} loading;

static cellar_status no_memory(cellar_error *error)
{
    return report(error, CELLAR_NO_MEMORY, -1, "no memory for the notes of the session");
}

static cellar_status is_damaged(const char *note, const char *what, cellar_error *error)
{
    return report(error, CELLAR_CORRUPT, -1, "note \"%.40s\": %s", note, what);
}

/* A note as JSON. CELLAR_NOT_FOUND: the session has none of that name. */
static cellar_status read_note(const cellar_session *session, const char *name, json_t **out,
                               cellar_error *error)
{
    cellar_session_info info;
    cellar_note note = {.name = NULL};
    cellar_status status = cellar_describe_session(session, &info, error);
    bool is_found = false;
    for (uint32_t i = 0; status == CELLAR_OK && !is_found && i < info.n_notes; i++) {
        status = cellar_get_session_note(session, i, &note, error);
        is_found = status == CELLAR_OK && strcmp(note.name, name) == 0;
    }
    if (status != CELLAR_OK) {
        return status;
    }
    if (!is_found) {
        return report(error, CELLAR_NOT_FOUND, -1, "there is no note \"%s\"", name);
    }
    *out = note.size > 0 ? json_loadb(note.value, note.size, JSON_ALLOW_NUL, NULL) : NULL;
    return json_is_object(*out) ? CELLAR_OK : is_damaged(name, "is not JSON as expected", error);
}

/* ---- a dialogue ----------------------------------------------------------------------------- */

static bool are_messages(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role == NULL || !json_is_string(json_object_get(message, "content")) ||
            (strcmp(role, "system") == 0 && i > 0)) {
            return false;
        }
    }
    return json_is_array(messages);
}

/* The characters U+0000 to U+00FF of a text as bytes. */
static cellar_status read_text(const json_t *text, chat_text *out, bool *is_good,
                               cellar_error *error)
{
    const size_t n = json_string_length(text);
    const char *at = json_string_value(text);
    cellar_status status = chat_text_reserve(out, n, 0, error);
    *is_good = at != NULL;
    for (size_t i = 0; *is_good && status == CELLAR_OK && i < n; i++) {
        const unsigned first = (unsigned char)at[i];
        unsigned byte = first;
        if (first >= 0x80) { /* jansson has seen to it that the rest of a character is there */
            *is_good = first < 0xc4;
            byte = (first & 3u) << 6 | ((unsigned char)at[i + 1] & 0x3fu);
            i++;
        }
        const char character = (char)byte;
        status = chat_text_add_bytes(out, &character, 1, error);
    }
    return status;
}

static cellar_status read_tokens(const loading *its, const json_t *note,
                                 const cellar_session_sequence *sequence, chat_text *out,
                                 bool *is_good, cellar_error *error)
{
    const json_t *lengths = json_object_get(note, "lengths");
    const json_t *starts = json_object_get(note, "starts");
    const char *digits = json_string_value(starts);
    cellar_status status = read_text(json_object_get(note, "text"), out, is_good, error);
    *is_good = *is_good && json_array_size(lengths) == sequence->n_tokens &&
               json_string_length(starts) == sequence->n_tokens && sequence->n_tokens > 0 &&
               (int64_t)sequence->n_tokens > sequence->pos_max;
    uint32_t end = 0;
    for (uint32_t i = 0; *is_good && status == CELLAR_OK && i < sequence->n_tokens; i++) {
        const json_t *item = json_array_get(lengths, i);
        const json_int_t length = json_integer_value(item);
        const cellar_token token = sequence->tokens[i];
        *is_good = json_is_integer(item) && length >= -1 &&
                   length <= (json_int_t)(out->n_bytes - end) && digits[i] >= '0' &&
                   digits[i] <= '2' && token >= 0 &&
                   (uint32_t)token < tokenizer_size(its->made.tokenizer);
        if (*is_good) {
            end += length > 0 ? (uint32_t)length : 0;
            status = chat_text_add_token(out, token, length < 0 ? CHAT_TEXT_UNKNOWN : end,
                                         (chat_start)(digits[i] - '0'), error);
        }
    }
    *is_good = *is_good && (status != CELLAR_OK || end == out->n_bytes);
    return status;
}

/* The sequence of the session that has that name; false: none, and the dialogue holds nothing. */
static bool find_sequence(const cellar_session *session, cellar_seq seq,
                          cellar_session_sequence *out)
{
    cellar_session_info info;
    if (cellar_describe_session(session, &info, NULL) != CELLAR_OK) {
        return false;
    }
    for (uint32_t i = 0; i < info.n_sequences; i++) {
        if (cellar_get_session_sequence(session, i, out, NULL) == CELLAR_OK && out->seq == seq) {
            return true;
        }
    }
    return false;
}

static cellar_status read_dialogue(loading *its, const json_t *entry, cellar_error *error)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const json_t *number = json_object_get(entry, "sequence");
    const json_int_t seq = json_integer_value(number);
    if (name == NULL || !json_is_integer(number) || seq < 0 || seq > INT32_MAX) {
        return is_damaged("chat", "expected the name and sequence of each conversation", error);
    }
    dialogue *d;
    cellar_status status = dialogues_add(&its->made, name, NULL, &d, error);
    if (status != CELLAR_OK) {
        return status == CELLAR_INVALID ? is_damaged("chat", error->message, error) : status;
    }
    char note_name[32];
    snprintf(note_name, sizeof note_name, "chat %" PRId64, (int64_t)seq);
    json_t *note = NULL;
    status = read_note(its->session, note_name, &note, error);
    json_t *messages = json_object_get(note, "messages");
    const json_int_t forgotten = json_integer_value(json_object_get(note, "forgotten"));
    bool is_good = are_messages(messages) && forgotten >= 0 &&
                   forgotten <= (json_int_t)json_array_size(messages);
    cellar_session_sequence sequence;
    if (status == CELLAR_OK && is_good) {
        json_decref(d->messages);
        d->messages = json_incref(messages);
        d->n_forgotten = (uint32_t)forgotten;
        d->is_open = json_is_true(json_object_get(note, "open")) && json_array_size(messages) > 0;
        if (find_sequence(its->session, (cellar_seq)seq, &sequence)) {
            status = read_tokens(its, note, &sequence, &d->text, &is_good, error);
            its->from[its->n_held] = (cellar_seq)seq;
            its->as[its->n_held++] = d->seq;
        }
    }
    json_decref(note);
    if (status == CELLAR_NOT_FOUND) {
        return is_damaged(note_name, "is missing", error);
    }
    return status == CELLAR_OK && !is_good
               ? is_damaged(note_name, "contradicts itself or the session", error)
               : status;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static cellar_status read_dialogues(loading *its, cellar_error *error)
{
    cellar_status status = read_note(its->session, "chat", &its->chat, error);
    if (status == CELLAR_NOT_FOUND) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "holds no conversations: it was not saved by 'cellar chat'");
    }
    if (status != CELLAR_OK) {
        return status;
    }
    if (json_integer_value(json_object_get(its->chat, "version")) != 1) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "note \"chat\": expected version 1: it was saved by another 'cellar chat'");
    }
    const json_t *list = json_object_get(its->chat, "conversations");
    const size_t n = json_array_size(list);
    its->from = calloc(n + 1, sizeof *its->from);
    its->as = calloc(n + 1, sizeof *its->as);
    if (its->from == NULL || its->as == NULL) {
        return no_memory(error);
    }
    for (size_t i = 0; status == CELLAR_OK && i < n; i++) {
        status = read_dialogue(its, json_array_get(list, i), error);
    }
    const char *current = json_string_value(json_object_get(its->chat, "current"));
    if (status == CELLAR_OK && (current == NULL || dialogues_find(&its->made, current) == NULL)) {
        status = is_damaged("chat", "names no conversation to go on with", error);
    }
    return status;
}

static cellar_status load_rows(loading *its, cellar_error *error)
{
    fingerprint print;
    fingerprint_make(engine_model(its->made.engine), &print);
    cellar_load_options options = cellar_load_options_init();
    options.facts = print.facts;
    options.n_facts = FINGERPRINT_FACTS;
    options.sequences = its->from;
    options.as = its->as;
    options.n_sequences = its->n_held;
    return cellar_load_session(engine_memory(its->made.engine), its->session, &options, error);
}

/* Cannot fail. */
static void take_state(const loading *its, dialogue_state *state)
{
    state->current =
        dialogues_find(&its->made, json_string_value(json_object_get(its->chat, "current")))->name;
    state->seed = (uint64_t)json_integer_value(json_object_get(its->chat, "seed"));
    const char *words = json_string_value(json_object_get(its->chat, "generator"));
    uint64_t *w = state->generator;
    if (words == NULL || sscanf(words, "%" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64, &w[0], &w[1],
                                &w[2], &w[3]) != 4) {
        memset(state->generator, 0, sizeof state->generator); /* begin with the seed */
    }
}

cellar_status dialogue_session_load(dialogues *all, dialogue_state *state, const char *path,
                                    cellar_error *error)
{
    cellar_session *session = NULL;
    cellar_error ours = {.status = CELLAR_OK}; /* messages are quoted, so there must be room */
    cellar_status status = cellar_open_session(path, NULL, &session, &ours);
    loading its = {.session = session, .made = *all};
    its.made.list = NULL;
    its.made.n = its.made.capacity = 0;
    if (status == CELLAR_OK) {
        status = read_dialogues(&its, &ours);
    }
    if (status == CELLAR_OK) {
        status = load_rows(&its, &ours);
    }
    if (status == CELLAR_OK) {
        const json_t *now = json_object_get(its.chat, "now");
        dialogues_free(all);
        *all = its.made;
        if (json_is_integer(now)) {
            all->renderer.now = (int64_t)json_integer_value(now);
        }
        take_state(&its, state);
    } else {
        dialogues_free(&its.made);
        if (error != NULL) {
            *error = ours;
        }
    }
    json_decref(its.chat);
    free(its.from);
    free(its.as);
    cellar_close_session(session);
    return status;
}
