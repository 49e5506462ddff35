/*
 * session_document.c: a session as JSON, for scripts. The names of the members are a promise: they may be
 * added to, not changed.
 *
 *     {"file", "bytes", "live_bytes", "generation", "journal", "k_type", "v_type", "layers", "groups",
 *      "cells", "checkpoints", "facts": {NAME: TEXT}, "notes": {NAME: TEXT}, "lossy": [NAME],
 *      "sequences": [{"name", "first", "last", "cells", "runs", "checkpoints", "tokens": [ID]}]}
 *
 * first and last are positions, null when nothing is held. A value that is not UTF-8 has its name in "lossy".
 */
#include <string.h>

#include "cli/json_text.h"
#include "cli/session_command.h"
#include "report.h"

typedef cellar_status (*note_getter)(const cellar_session *session, uint32_t i, cellar_note *out,
                                     cellar_error *error);

/* Facts or notes as an object; the names of those that JSON cannot hold as they are go to `lossy`. */
static json_t *make_notes(const cellar_session *session, uint32_t n, note_getter get, json_t *lossy)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < n && object != NULL; i++) {
        cellar_note note;
        bool is_lossy = false;
        if (get(session, i, &note, NULL) != CELLAR_OK ||
            json_object_set_new(object, note.name, json_text(note.value, note.size, &is_lossy)) !=
                0 ||
            (is_lossy && json_array_append_new(lossy, json_string(note.name)) != 0)) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static json_t *make_position(cellar_pos position)
{
    return position < 0 ? json_null() : json_integer(position);
}

static json_t *make_tokens(const cellar_session_sequence *its)
{
    json_t *tokens = json_array();
    for (uint32_t i = 0; i < its->n_tokens && tokens != NULL; i++) {
        if (json_array_append_new(tokens, json_integer(its->tokens[i])) != 0) {
            json_decref(tokens);
            tokens = NULL;
        }
    }
    return tokens;
}

static json_t *make_sequences(const cellar_session *session, uint32_t n)
{
    json_t *sequences = json_array();
    for (uint32_t i = 0; i < n && sequences != NULL; i++) {
        cellar_session_sequence its;
        json_t *one = NULL;
        if (cellar_get_session_sequence(session, i, &its, NULL) == CELLAR_OK) {
            one = json_pack("{si so so si si si so}", "name", (int)its.seq, "first",
                            make_position(its.pos_min), "last", make_position(its.pos_max), "cells",
                            (int)its.n_cells, "runs", (int)its.n_runs, "checkpoints",
                            (int)its.n_checkpoints, "tokens", make_tokens(&its));
        }
        if (json_array_append_new(sequences, one) != 0) {
            json_decref(sequences);
            sequences = NULL;
        }
    }
    return sequences;
}

json_t *session_document(const char *path, const cellar_session *session, cellar_error *error)
{
    cellar_session_info info;
    cellar_config config;
    if (cellar_describe_session(session, &info, error) != CELLAR_OK ||
        cellar_get_session_config(session, &config, error) != CELLAR_OK) {
        return NULL;
    }
    json_t *lossy = json_array();
    json_t *facts = make_notes(session, info.n_facts, cellar_get_session_fact, lossy);
    json_t *notes = make_notes(session, info.n_notes, cellar_get_session_note, lossy);
    json_t *document = json_pack(
        "{so sI sI sI sb ss ss sI sI sI sI so so so so}", "file",
        json_text(path, strlen(path), NULL), "bytes", (json_int_t)info.bytes, "live_bytes",
        (json_int_t)info.live_bytes, "generation", (json_int_t)info.generation, "journal",
        (int)info.is_journal, "k_type", session_row_type(&config, true), "v_type",
        session_row_type(&config, false), "layers", (json_int_t)info.n_layers, "groups",
        (json_int_t)info.n_groups, "cells", (json_int_t)info.n_cells, "checkpoints",
        (json_int_t)info.n_checkpoints, "facts", facts, "notes", notes, "lossy", lossy, "sequences",
        make_sequences(session, info.n_sequences));
    if (document == NULL) {
        (void)report(error, CELLAR_NO_MEMORY, -1, "no memory for the session as JSON");
    }
    return document;
}

/* A text, or null for none. */
static json_t *make_text(const char *text, size_t n)
{
    return text == NULL ? json_null() : json_text(text, n, NULL);
}

json_t *session_folder_document(const session_folder *folder)
{
    json_t *list = json_array();
    for (size_t i = 0; i < folder->n && list != NULL; i++) {
        const session_row *row = &folder->rows[i];
        json_t *one = json_pack(
            "{so sI sI sI sI so so}", "file", json_text(row->name, strlen(row->name), NULL),
            "bytes", (json_int_t)row->bytes, "saved", (json_int_t)row->saved, "sequences",
            (json_int_t)row->n_sequences, "tokens", (json_int_t)row->n_tokens, "text",
            make_text(row->title, row->title_size), "problem",
            make_text(row->problem, row->problem != NULL ? strlen(row->problem) : 0));
        if (json_array_append_new(list, one) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}
