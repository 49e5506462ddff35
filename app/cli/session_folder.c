/*
 * session_folder.c: find the sessions of a folder and what each is about.
 *
 * Only plain files are opened, without following links and without waiting for anybody, so that a
 * pipe or a device in the folder does no harm; of these only the ones that begin as a session does
 * are shown. One that is damaged is shown with what is wrong with it, and the others all the same.
 */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/conversation.h"
#include "cli/run_session.h"
#include "cli/session_command.h"
#include "report.h"

static const char magic[8] = {'C', 'E', 'L', 'L', 'A', 'R', '\r', '\n'};

bool session_is_one(const char *path)
{
    char begin[sizeof magic];
    struct stat file;
    const int number = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (number < 0) return false;
    const bool is_one = fstat(number, &file) == 0 && S_ISREG(file.st_mode) &&
                        read(number, begin, sizeof begin) == (ssize_t)sizeof begin &&
                        memcmp(begin, magic, sizeof begin) == 0;
    close(number);
    return is_one;
}

/* "FOLDER/NAME" from malloc; NULL: no memory. */
static char *join(const char *folder, const char *name)
{
    const size_t n = strlen(folder), n_name = strlen(name);
    char *path = malloc(n + 1 + n_name + 1);
    if (path != NULL) {
        memcpy(path, folder, n);
        path[n] = '/';
        memcpy(path + n + 1, name, n_name + 1);
    }
    return path;
}

/* The title, or how the text begins; false: no memory. */
static bool take_title(const cellar_session *session, session_row *row)
{
    cellar_note note;
    if ((!conversation_find_note(session, RUN_SESSION_TITLE, &note) || note.size == 0) &&
        !conversation_find_note(session, RUN_SESSION_BEGINNING, &note)) {
        return true;
    }
    row->title_size = note.size;
    row->title = malloc(note.size + 1);
    if (row->title != NULL && note.size > 0) memcpy(row->title, note.value, note.size);
    return row->title != NULL;
}

static cellar_status describe(const cellar_session *session, session_row *row, cellar_error *error)
{
    cellar_session_info info;
    cellar_status status = cellar_describe_session(session, &info, error);
    row->n_sequences = info.n_sequences;
    for (uint32_t i = 0; status == CELLAR_OK && i < info.n_sequences; i++) {
        cellar_session_sequence sequence;
        status = cellar_get_session_sequence(session, i, &sequence, error);
        row->n_tokens += status == CELLAR_OK ? sequence.n_tokens : 0;
    }
    if (status == CELLAR_OK && !take_title(session, row)) {
        status = report(error, CELLAR_NO_MEMORY, -1, "no memory for a title");
    }
    return status;
}

/* Fill in the row of a file. false: no memory, and the row is to be freed as it is. */
static bool look_at(const char *path, const char *name, session_row *row)
{
    struct stat file;
    cellar_session *session = NULL;
    cellar_error error;
    if (lstat(path, &file) == 0) {
        row->bytes = (uint64_t)file.st_size;
        row->saved = (int64_t)file.st_mtime;
    }
    cellar_status status = cellar_open_session(path, NULL, &session, &error);
    if (status == CELLAR_OK) status = describe(session, row, &error);
    cellar_close_session(session);
    row->name = strdup(name);
    row->problem = status != CELLAR_OK ? strdup(error.message) : NULL;
    return row->name != NULL && (status == CELLAR_OK || row->problem != NULL);
}

static bool add(session_folder *folder, const char *path, const char *name)
{
    if (folder->n == folder->capacity) {
        const size_t larger = folder->capacity == 0 ? 16 : 2 * folder->capacity;
        session_row *rows = realloc(folder->rows, larger * sizeof *rows);
        if (rows == NULL) return false;
        folder->rows = rows;
        folder->capacity = larger;
    }
    session_row *row = &folder->rows[folder->n++];
    *row = (session_row){.name = NULL};
    const bool is_good = look_at(path, name, row);
    folder->n_bad += row->problem != NULL;
    return is_good;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const session_row *)a)->name, ((const session_row *)b)->name);
}

cellar_status session_folder_read(const char *path, session_folder *out, cellar_error *error)
{
    *out = (session_folder){.n = 0};
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return report(error, CELLAR_IO, -1, "cannot look into the folder: %s", strerror(errno));
    }
    bool has_memory = true;
    errno = 0;
    for (struct dirent *entry; has_memory && (entry = readdir(folder)) != NULL; errno = 0) {
        char *file = join(path, entry->d_name);
        has_memory = file != NULL && (!session_is_one(file) || add(out, file, entry->d_name));
        free(file);
    }
    const int reason = errno;
    closedir(folder);
    if (!has_memory) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a list of sessions");
    }
    if (reason != 0) {
        return report(error, CELLAR_IO, -1, "cannot read the folder: %s", strerror(reason));
    }
    if (out->n > 0) qsort(out->rows, out->n, sizeof *out->rows, by_name);
    return CELLAR_OK;
}

void session_folder_free(session_folder *folder)
{
    for (size_t i = 0; i < folder->n; i++) {
        free(folder->rows[i].name);
        free(folder->rows[i].title);
        free(folder->rows[i].problem);
    }
    free(folder->rows);
    *folder = (session_folder){.n = 0};
}
