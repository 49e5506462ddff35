/*
 * session_show.c: a session and a folder of sessions as tables for people.
 *
 * As in inspect_text.c, nothing that comes out of a file is printed but through inspect_put_text.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/conversation.h"
#include "cli/inspect.h"
#include "cli/run_session.h"
#include "cli/session_command.h"

enum {
    MAX_NAME = 32,  /* columns of a file's or note's name */
    MAX_VALUE = 60, /* columns of a value */
    MAX_ROWS = 20   /* sequences and notes that are listed */
};

const char *session_row_type(const cellar_config *config, bool is_k)
{
    const cellar_layer *first = NULL;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const cellar_layer *layer = &config->layers[i];
        if (layer->kind != CELLAR_LAYER_ATTENTION || layer->reads_layer >= 0) continue;
        if (first == NULL) first = layer;
        if ((is_k ? layer->k_type : layer->v_type) != (is_k ? first->k_type : first->v_type)) {
            return "mixed";
        }
    }
    return first == NULL ? "none" : cellar_type_name(is_k ? first->k_type : first->v_type);
}

static void put_bytes(const void *bytes, size_t n, uint32_t columns)
{
    (void)inspect_put_text(stdout, (gguf_string){n > 0 ? bytes : "", n}, columns);
}

/* The text and as many spaces as make it `columns` wide. */
static void put_padded(const char *text, uint32_t columns)
{
    const uint32_t used = inspect_put_text(stdout, (gguf_string){text, strlen(text)}, columns);
    printf("%*s", (int)(columns - used), "");
}

static void put_named(const char *name, const cellar_note *note)
{
    printf("  ");
    put_padded(name, 12);
    printf("  ");
    put_bytes(note->value, note->size, MAX_VALUE);
    putchar('\n');
}

/* ---- one session ---------------------------------------------------------------------------- */

static void print_size(const cellar_session_info *info)
{
    char size[32], live[32];
    inspect_format_size(size, info->bytes);
    inspect_format_size(live, info->live_bytes);
    printf("  size          %s (%" PRIu64 " bytes)", size, info->bytes);
    if (info->is_journal) printf(", of which %s are needed", live);
    printf("\n  saved         %" PRIu64 " time%s%s\n", info->generation,
           info->generation == 1 ? "" : "s", info->is_journal ? ", what was added appended" : "");
}

static void print_note(const char *label, const cellar_session *session, const char *name)
{
    cellar_note note;
    if (!conversation_find_note(session, name, &note)) return;
    put_named(label, &note);
}

static cellar_status print_layers(const cellar_session *session, const cellar_session_info *info,
                                  cellar_error *error)
{
    cellar_config config;
    cellar_status status = cellar_get_session_config(session, &config, error);
    if (status != CELLAR_OK) return status;
    printf("  layers        %" PRIu32 " in %" PRIu32 " group%s\n", info->n_layers, info->n_groups,
           info->n_groups == 1 ? "" : "s");
    printf("  rows          K %s, V %s\n", session_row_type(&config, true),
           session_row_type(&config, false));
    printf("  cells         %" PRIu64 "\n", info->n_cells);
    return CELLAR_OK;
}

static cellar_status print_facts(const cellar_session *session, const cellar_session_info *info,
                                 cellar_error *error)
{
    if (info->n_facts > 0) printf("\nModel\n");
    for (uint32_t i = 0; i < info->n_facts; i++) {
        cellar_note fact;
        cellar_status status = cellar_get_session_fact(session, i, &fact, error);
        if (status != CELLAR_OK) return status;
        put_named(fact.name, &fact);
    }
    return CELLAR_OK;
}

static cellar_status print_sequences(const cellar_session *session, const cellar_session_info *info,
                                     cellar_error *error)
{
    printf("\nSequences (%" PRIu32 ")\n  %-10s %21s %8s %8s %8s %11s\n", info->n_sequences, "name",
           "positions", "tokens", "cells", "runs", "checkpoints");
    for (uint32_t i = 0; i < info->n_sequences && i < MAX_ROWS; i++) {
        cellar_session_sequence its;
        cellar_status status = cellar_get_session_sequence(session, i, &its, error);
        if (status != CELLAR_OK) return status;
        char positions[32] = "none";
        if (its.pos_max >= 0) {
            (void)snprintf(positions, sizeof positions, "%" PRId32 "..%" PRId32, its.pos_min,
                           its.pos_max);
        }
        printf("  %-10" PRId32 " %21s %8" PRIu32 " %8" PRIu32 " %8" PRIu32 " %11" PRIu32 "\n",
               its.seq, positions, its.n_tokens, its.n_cells, its.n_runs, its.n_checkpoints);
    }
    if (info->n_sequences > MAX_ROWS) printf("  ...\n");
    return CELLAR_OK;
}

static cellar_status print_notes(const cellar_session *session, const cellar_session_info *info,
                                 cellar_error *error)
{
    if (info->n_notes > 0) printf("\nNotes (%" PRIu32 ")\n", info->n_notes);
    for (uint32_t i = 0; i < info->n_notes && i < MAX_ROWS; i++) {
        cellar_note note;
        cellar_status status = cellar_get_session_note(session, i, &note, error);
        if (status != CELLAR_OK) return status;
        put_named(note.name, &note);
    }
    if (info->n_notes > MAX_ROWS) printf("  ...\n");
    return CELLAR_OK;
}

cellar_status session_show(const char *path, const cellar_session *session, cellar_error *error)
{
    cellar_session_info info;
    cellar_status status = cellar_describe_session(session, &info, error);
    if (status != CELLAR_OK) return status;
    put_bytes(path, strlen(path), UINT32_MAX - 8);
    printf("\n  format        a session of Cellar, version 1\n");
    print_size(&info);
    print_note("title", session, RUN_SESSION_TITLE);
    print_note("begins", session, RUN_SESSION_BEGINNING);
    print_note("ends", session, RUN_SESSION_ENDING);
    if ((status = print_layers(session, &info, error)) != CELLAR_OK ||
        (status = print_facts(session, &info, error)) != CELLAR_OK ||
        (status = print_sequences(session, &info, error)) != CELLAR_OK) {
        return status;
    }
    return print_notes(session, &info, error);
}

/* ---- a folder ------------------------------------------------------------------------------- */

void session_folder_show(const session_folder *folder)
{
    uint32_t width = 4;
    for (size_t i = 0; i < folder->n; i++) {
        const char *name = folder->rows[i].name;
        const uint32_t w = inspect_put_text(NULL, (gguf_string){name, strlen(name)}, MAX_NAME);
        width = w > width ? w : width;
    }
    if (folder->n > 0) {
        printf("%-*s  %10s  %10s  %-16s  %s\n", (int)width, "name", "tokens", "size", "saved",
               "text");
    }
    for (size_t i = 0; i < folder->n; i++) {
        const session_row *row = &folder->rows[i];
        char size[32], saved[32] = "?";
        struct tm when;
        const time_t seconds = (time_t)row->saved;
        if (localtime_r(&seconds, &when) != NULL) {
            (void)strftime(saved, sizeof saved, "%Y-%m-%d %H:%M", &when);
        }
        inspect_format_size(size, row->bytes);
        put_padded(row->name, width);
        if (row->problem != NULL) {
            printf("  %10s  %10s  %-16s  ", "-", size, saved);
            put_bytes(row->problem, strlen(row->problem), UINT32_MAX - 8);
        } else {
            printf("  %10" PRIu64 "  %10s  %-16s  ", row->n_tokens, size, saved);
            put_bytes(row->title, row->title_size, MAX_VALUE);
        }
        putchar('\n');
    }
}
