/*
 * session_copy.c: fork and convert: load a session, change it, save it as another.
 *
 * The memory is made from what the session says of its layers and gone afterwards. Facts go along as
 * they are, so the copy belongs to the same model; so do notes, but those that would no longer be true.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/conversation.h"
#include "cli/run_session.h"
#include "cli/session_command.h"
#include "report.h"

#define MORE_NOTES 2u /* that may be added: what is held, and a title */

/* Everything that has to be given back. */
typedef struct copying {
    const session_copy_options *options;
    cellar_session *session;
    cellar_session_info info;
    cellar_layer *layers; /* [n_layers] */
    cellar_memory *memory;
    conversation talk;  /* with `at` only */
    char *held;         /* the note of it */
    cellar_note *facts; /* [n_facts] */
    cellar_note *notes; /* [n_notes] */
    cellar_log *logs;   /* [n_logs] */
    uint32_t n_notes, n_logs;
} copying;

static cellar_status no_memory(cellar_error *error)
{
    return report(error, CELLAR_NO_MEMORY, -1, "no memory for a copy of the session");
}

static cellar_status make_memory(copying *c, cellar_error *error)
{
    const session_copy_options *o = c->options;
    cellar_config config;
    cellar_status status = cellar_get_session_config(c->session, &config, error);
    if (status != CELLAR_OK) {
        return status;
    }
    c->layers = malloc(config.n_layers * sizeof *c->layers);
    if (c->layers == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < config.n_layers; i++) {
        cellar_layer *layer = &c->layers[i];
        *layer = config.layers[i];
        if (layer->kind != CELLAR_LAYER_ATTENTION) {
            continue;
        }
        layer->k_type = o->k_type >= 0 ? (cellar_type)o->k_type : layer->k_type;
        layer->v_type = o->v_type >= 0 ? (cellar_type)o->v_type : layer->v_type;
    }
    config.layers = c->layers;
    return cellar_create(&config, &c->memory, error);
}

static cellar_status load(copying *c, cellar_error *error)
{
    cellar_load_options options = cellar_load_options_init();
    options.ignores_facts = true;
    return cellar_load_session(c->memory, c->session, &options, error);
}

/* Keep the first `at` tokens: of the text, and of the memory as far as it can go back. */
static cellar_status cut(copying *c, cellar_error *error)
{
    const int64_t at = c->options->at;
    cellar_session_sequence sequence;
    cellar_status status;
    if ((status = conversation_read(c->session, &c->talk, error)) != CELLAR_OK ||
        (status = cellar_get_session_sequence(c->session, 0, &sequence, error)) != CELLAR_OK) {
        return status;
    }
    const uint32_t length = conversation_length(&c->talk);
    if (at > length) {
        return report(error, CELLAR_INVALID, length,
                      "it holds %" PRIu32 " tokens: expected --at 1..%" PRIu32 ", found %" PRId64,
                      length, length, at);
    }
    const uint32_t n_held = c->talk.n_held;
    conversation_cut(&c->talk, (uint32_t)at);
    if (at >= n_held) {
        return CELLAR_OK;
    }
    cellar_pos from = 0;
    status = cellar_rewind(c->memory, sequence.seq, (cellar_pos)at, &from, error);
    if (status == CELLAR_OK && from == 0) {
        return report(error, CELLAR_REPLAY, at,
                      "cannot go back to token %" PRId64
                      ": nothing at or before it is kept, so it would have to be read again from "
                      "the beginning",
                      at);
    }
    return status == CELLAR_OK ? conversation_hold(&c->talk, (uint32_t)from, error) : status;
}

/* Is the note still true of the copy? */
static bool stays(const copying *c, const char *name)
{
    const session_copy_options *o = c->options;
    const bool is_cut = o->at >= 0;
    if (strcmp(name, RUN_SESSION_GENERATOR) == 0) {
        return !o->is_fork;
    }
    if (strcmp(name, RUN_SESSION_TITLE) == 0) {
        return o->title == NULL;
    }
    if (strcmp(name, RUN_SESSION_BEGINNING) == 0 || strcmp(name, RUN_SESSION_ENDING) == 0 ||
        strcmp(name, CONVERSATION_NOTE) == 0) {
        return !is_cut;
    }
    return true;
}

static void add_note(copying *c, const char *name, const char *text, size_t n)
{
    c->notes[c->n_notes++] = (cellar_note){.name = name, .value = text, .size = n};
}

static cellar_status gather_notes(copying *c, cellar_error *error)
{
    c->notes = malloc(((size_t)c->info.n_notes + MORE_NOTES) * sizeof *c->notes);
    if (c->notes == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < c->info.n_notes; i++) {
        cellar_note note;
        cellar_status status = cellar_get_session_note(c->session, i, &note, error);
        if (status != CELLAR_OK) {
            return status;
        }
        if (stays(c, note.name)) {
            c->notes[c->n_notes++] = note;
        }
    }
    if (c->options->title != NULL) {
        add_note(c, RUN_SESSION_TITLE, c->options->title, strlen(c->options->title));
    }
    if (c->options->at >= 0) {
        size_t n = 0;
        c->held = conversation_format(&c->talk, &n);
        if (c->held == NULL) {
            return no_memory(error);
        }
        add_note(c, CONVERSATION_NOTE, c->held, n);
    }
    return CELLAR_OK;
}

static cellar_status gather_facts(copying *c, cellar_error *error)
{
    c->facts = malloc(((size_t)c->info.n_facts + 1) * sizeof *c->facts);
    if (c->facts == NULL) {
        return no_memory(error);
    }
    cellar_status status = CELLAR_OK;
    for (uint32_t i = 0; i < c->info.n_facts && status == CELLAR_OK; i++) {
        status = cellar_get_session_fact(c->session, i, &c->facts[i], error);
    }
    return status;
}

static cellar_status gather_logs(copying *c, cellar_error *error)
{
    c->logs = malloc(((size_t)c->info.n_sequences + 1) * sizeof *c->logs);
    if (c->logs == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < c->info.n_sequences; i++) {
        cellar_session_sequence sequence;
        cellar_status status = cellar_get_session_sequence(c->session, i, &sequence, error);
        if (status != CELLAR_OK) {
            return status;
        }
        cellar_log *log = &c->logs[c->n_logs];
        *log = (cellar_log){
            .seq = sequence.seq, .n_tokens = sequence.n_tokens, .tokens = sequence.tokens};
        if (c->options->at >= 0) {
            log->tokens = c->talk.tokens;
            log->n_tokens = c->talk.n_tokens;
        }
        c->n_logs += log->n_tokens > 0;
    }
    return CELLAR_OK;
}

static cellar_status save(const copying *c, cellar_error *error)
{
    cellar_save_options options = cellar_save_options_init();
    options.facts = c->facts;
    options.n_facts = c->info.n_facts;
    options.notes = c->notes;
    options.n_notes = c->n_notes;
    options.logs = c->logs;
    options.n_logs = c->n_logs;
    return cellar_save_session(c->memory, &options, c->options->to, error);
}

static cellar_status check_target(const session_copy_options *o, cellar_error *error)
{
    struct stat file;
    if (!o->overwrites && lstat(o->to, &file) == 0) {
        return report(error, CELLAR_INVALID, -1, "is there already; --force replaces it");
    }
    return CELLAR_OK;
}

static cellar_status copy(copying *c, bool *is_about_to, cellar_error *error)
{
    *is_about_to = true;
    cellar_status status = check_target(c->options, error);
    if (status != CELLAR_OK) {
        return status;
    }
    *is_about_to = false;
    if ((status = cellar_open_session(c->options->from, NULL, &c->session, error)) != CELLAR_OK ||
        (status = cellar_describe_session(c->session, &c->info, error)) != CELLAR_OK ||
        (status = make_memory(c, error)) != CELLAR_OK || (status = load(c, error)) != CELLAR_OK ||
        (c->options->at >= 0 && (status = cut(c, error)) != CELLAR_OK) ||
        (status = gather_facts(c, error)) != CELLAR_OK ||
        (status = gather_notes(c, error)) != CELLAR_OK ||
        (status = gather_logs(c, error)) != CELLAR_OK) {
        return status;
    }
    *is_about_to = true;
    return save(c, error);
}

cellar_status session_copy(const session_copy_options *options, bool *is_about_to,
                           cellar_error *error)
{
    copying c = {.options = options};
    cellar_status status = copy(&c, is_about_to, error);
    cellar_destroy(c.memory);
    cellar_close_session(c.session);
    conversation_free(&c.talk);
    free(c.layers);
    free(c.held);
    free(c.facts);
    free(c.notes);
    free(c.logs);
    return status;
}
