/*
 * session_command.h: what the parts of `cellar session` share.
 *
 *   command_session.c   the command line, and messages
 *   session_show.c      a session for people: show, list, check
 *   session_document.c  the same as JSON
 *   session_folder.c    the sessions of a folder
 *   session_copy.c      fork and convert: a session loaded, changed, and saved as another
 *
 * None of these needs the model: a session says itself how its layers are. So tokens stay numbers
 * here; the texts that are shown are notes that `cellar run` left. Everything that comes out of a
 * file is made harmless before it is printed.
 */
#ifndef APP_SESSION_COMMAND_H
#define APP_SESSION_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "cellar.h"

/* ---- one session ---------------------------------------------------------------------------- */

/* What layers store their rows as: "f16", "q8_0", or "mixed"; "none" without such layers. Static. */
const char *session_row_type(const cellar_config *config, bool is_k);

/* A summary and tables on standard output. The session is open. Statuses of the questions asked. */
cellar_status session_show(const char *path, const cellar_session *session, cellar_error *error);

/* Open a session and show it, as text or JSON. Also CELLAR_NO_MEMORY. */
cellar_status session_print(const char *path, bool is_json, cellar_error *error);

/* The same as JSON; NULL: no memory, or *error says what. The caller's, for json_decref. */
json_t *session_document(const char *path, const cellar_session *session, cellar_error *error);

/* Does the file begin as a session does? What cannot be read does not. */
bool session_is_one(const char *path);

/* ---- a folder of them ----------------------------------------------------------------------- */

typedef struct session_row {
    char *name;  /* of the file */
    char *title; /* [title_size] or how the text begins, from malloc; NULL: neither */
    size_t title_size;
    uint64_t bytes;    /* of the file */
    int64_t saved;     /* seconds since 1970 */
    uint64_t n_tokens; /* of all logs */
    uint32_t n_sequences;
    char *problem; /* NULL: none; else nothing but name, bytes and saved is set */
} session_row;

typedef struct session_folder {
    session_row *rows; /* [n] by name */
    size_t n, capacity;
    size_t n_bad; /* of them with a problem */
} session_folder;

/*
 * Look at every plain file in the folder that begins as a session does. CELLAR_IO, CELLAR_NO_MEMORY.
 * To be freed, whatever it returns.
 */
cellar_status session_folder_read(const char *path, session_folder *out, cellar_error *error);
void session_folder_free(session_folder *folder);

void session_folder_show(const session_folder *folder);
json_t *session_folder_document(const session_folder *folder); /* NULL: no memory */

/* ---- a session made of another -------------------------------------------------------------- */

typedef struct session_copy_options {
    const char *from, *to;
    const char *title;  /* NULL: as it is */
    int64_t at;         /* tokens that stay; -1: all */
    int k_type, v_type; /* cellar_type to store rows as; -1: as they are */
    bool is_fork;       /* it will draw random numbers of its own */
    bool overwrites;    /* `to` may be there already */
} session_copy_options;

/*
 * CELLAR_INVALID: `to` is there already, or there are not so many tokens, or the rows cannot be stored
 * so. CELLAR_REPLAY: nothing is kept to go back that far. And what loading and saving return;
 * *is_about_to says which file an error is about. Both files are as before then.
 */
cellar_status session_copy(const session_copy_options *options, bool *is_about_to,
                           cellar_error *error);

#endif /* APP_SESSION_COMMAND_H */
