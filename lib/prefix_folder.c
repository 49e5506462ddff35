/*
 * prefix_folder.c: files beneath one folder.
 *
 * The folder is opened once, and everything is done relative to it without following links, so what its path
 * means later does not matter. A lock on `.lock` in it keeps a second library out, so nobody else
 * writes, removes or numbers files there; what it holds at the start is all there is.
 *
 * A file is one session, `prefix-<16 hexadecimal digits>.cellar`. When it was last used is its time of modification,
 * which outlives the process. A name of that form that is no session is removed; links, folders and
 * all other names are left alone.
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "prefix_library.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "files.h"
#include "session.h"
#include "session_file.h"

enum { NAME_BYTES = 32 };

/* ---- names ------------------------------------------------------------------------------------- */

static cl_place place_of(const cl_prefix_folder *folder, uint64_t file, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "prefix-%016llx.cellar", (unsigned long long)file);
    return (cl_place){.folder = folder->handle, .path = name, .name = name};
}

/* The number in a name; 0: it is none of ours. */
static uint64_t number_of(const char *name)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t number = 0;
    if (strlen(name) != 30 || strncmp(name, "prefix-", 7) != 0 || strcmp(name + 23, ".cellar") != 0)
        return 0;
    for (int i = 7; i < 23; i++) {
        const char *digit = strchr(digits, name[i]);
        if (!digit) return 0;
        number = number << 4 | (uint64_t)(digit - digits);
    }
    return number;
}

/* ---- one file ---------------------------------------------------------------------------------- */

cellar_status cl_prefix_folder_write(cl_prefix_folder *folder, cl_prefix_entry *entry,
                                     cl_prefix_fill *fill, void *context, cellar_error *error)
{
    char name[NAME_BYTES];
    uint64_t n_written = 0;
    cl_place at = place_of(folder, folder->last_file + 1, name);
    cellar_status status = cl_file_replace_at(&at, fill, context, NULL, &n_written, error);
    if (status != CELLAR_OK) {
        unlinkat(folder->handle, name, 0); /* if only the folder could not be synced */
        return status;
    }
    entry->file = ++folder->last_file;
    entry->file_bytes = n_written;
    folder->bytes += n_written;
    return CELLAR_OK;
}

static uint64_t time_of(int file)
{
    struct stat info;
    if (fstat(file, &info) != 0 || info.st_mtim.tv_sec < 0) return 1;
    uint64_t seconds = (uint64_t)info.st_mtim.tv_sec;
    if (seconds > UINT32_MAX) seconds = UINT32_MAX; /* what no clock says */
    return seconds * 1000000000u + (uint64_t)info.st_mtim.tv_nsec + 1;
}

cellar_status cl_prefix_folder_read(const cl_prefix_folder *folder, uint64_t file,
                                    const cellar_allocator *allocator, cellar_session **session,
                                    uint64_t *used, cellar_error *error)
{
    char name[NAME_BYTES];
    cl_file_source source;
    cl_place at = place_of(folder, file, name);
    CL_TRY(cl_file_open_at(&at, &source, error));
    if (used) *used = time_of(source.file);
    const cl_bytes bytes = {
        .reader = cl_file_reader(&source), .is_shared = true, .size = source.size};
    const cellar_status status = cl_session_open(&bytes, source.file, allocator, session, error);
    if (status != CELLAR_OK) cl_file_close(source.file);
    return status;
}

void cl_prefix_folder_touch(const cl_prefix_folder *folder, const cl_prefix_entry *entry)
{
    char name[NAME_BYTES];
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    cl_place at = place_of(folder, entry->file, name);
    const int result = utimensat(at.folder, name, now, AT_SYMLINK_NOFOLLOW);
    (void)result; /* the order of eviction is a little worse then */
}

static bool remove_number(const cl_prefix_folder *folder, uint64_t file)
{
    char name[NAME_BYTES];
    cl_place at = place_of(folder, file, name);
    return unlinkat(at.folder, name, 0) == 0 || errno == ENOENT;
}

bool cl_prefix_folder_remove(cl_prefix_folder *folder, cl_prefix_entry *entry)
{
    if (!remove_number(folder, entry->file)) return false;
    folder->bytes -= entry->file_bytes;
    entry->file = entry->file_bytes = 0;
    return true;
}

void cl_prefix_folder_abandon(cl_prefix_folder *folder, cl_prefix_entry *entry)
{
    if (cl_prefix_folder_remove(folder, entry)) return;
    folder->orphaned += entry->file_bytes;
    entry->file = entry->file_bytes = 0;
}

/* ---- what is there at the start ---------------------------------------------------------------- */

/* What a file says of its entry; its parts are the session's. */
typedef struct found {
    const cl_saved_sequence *sequence;
    cl_prefix_notes key; /* to be freed */
    cl_prefix_places places;
} found;

/* False: the session is none of ours. */
static bool understand(const cellar_session *session, found *f)
{
    if (session->n_sequences != 1) return false;
    f->sequence = &session->sequences[0];
    cellar_session_sequence its;
    if (cellar_get_session_sequence(session, 0, &its, NULL) != CELLAR_OK || its.n_tokens == 0 ||
        its.pos_max != (cellar_pos)its.n_tokens - 1)
        return false;
    for (uint32_t i = 0; i < session->n_notes; i++)
        if (strcmp(session->notes[i].name, CL_PREFIX_PLACES_NOTE) == 0)
            return cl_prefix_places_read(session->notes[i].value, session->notes[i].size,
                                         its.n_tokens, &f->places);
    return false;
}

static bool has_owner(const cl_prefix_notes *key)
{
    return cl_prefix_key_get(key, CL_PREFIX_DOMAIN) || cl_prefix_key_get(key, CL_PREFIX_SHARED);
}

/* Is it older than all others when there is no room for more? */
static bool comes_too_late(const cellar_library *library, uint64_t used)
{
    if (library->n_entries < library->config.n_entries) return false;
    for (uint32_t i = 0; i < library->n_entries; i++)
        if (library->entries[i]->last_used < used) return false;
    return true;
}

static cellar_status add_file(cellar_library *library, uint64_t file, uint64_t bytes, uint64_t used,
                              const found *f, cellar_error *error)
{
    cl_prefix_entry *entry;
    CL_TRY(cl_prefix_entries_add(library, &f->key, f->sequence->tokens, f->sequence->n_tokens,
                                 &entry, error));
    entry->n_ready = f->sequence->n_tokens;
    entry->last_used = used;
    entry->n_guards++;
    cellar_status status = cl_prefix_entries_set_places(library, entry, &f->places, error);
    entry->n_guards--;
    if (status != CELLAR_OK) {
        cl_prefix_entries_remove(library, entry);
        return status;
    }
    entry->file = file;
    entry->file_bytes = bytes;
    library->disk.bytes += bytes;
    if (used > library->clock) library->clock = used;
    while (library->disk.bytes > library->config.disk_bytes) {
        uint64_t had = library->disk.bytes;
        cl_prefix_entry *oldest = cl_prefix_entries_oldest(library, CL_PREFIX_DISK, 0, UINT64_MAX);
        cl_prefix_entries_leave(library, oldest, CL_PREFIX_DISK);
        (void)cl_prefix_entries_settle(library, oldest, true);
        if (library->disk.bytes >= had)
            CL_FAIL(error, CELLAR_IO, -1,
                    "the folder holds more than disk_bytes, and files cannot be removed");
    }
    return CELLAR_OK;
}

static cellar_status know_session(cellar_library *library, uint64_t file,
                                  const cellar_session *session, uint64_t used, cellar_error *error)
{
    found f;
    if (!understand(session, &f)) CL_FAIL(error, CELLAR_CORRUPT, -1, "the file holds no prefix");
    cl_alloc alloc = library->store; /* given back at once: nothing is counted */
    alloc.limit = 0;
    if (!cl_prefix_key_sort(session->model.facts, session->model.n_facts, &alloc, &f.key))
        return cl_error_no_memory(error, "a key", 0);
    cellar_status status;
    if (!has_owner(&f.key))
        status = cl_error_set(error, CELLAR_CORRUPT, CELLAR_REASON_NONE, -1,
                              "the file belongs to nobody");
    else if (comes_too_late(library, used))
        status = cl_error_set(error, CELLAR_FULL, CELLAR_REASON_BUDGET, -1, "too many files");
    else
        status = add_file(library, file, session->bytes.size, used, &f, error);
    cl_prefix_notes_free(&f.key, &alloc);
    return status;
}

/* Know one file; a damaged one goes. Only want of memory is a failure. */
static cellar_status know_file(cellar_library *library, uint64_t file, cellar_error *error)
{
    cellar_session *session;
    uint64_t used;
    cl_prefix_folder *folder = &library->disk;
    if (file > folder->last_file) folder->last_file = file;
    cellar_status status = cl_prefix_folder_read(folder, file, &library->store.user, &session,
                                                 &used, error);
    if (status == CELLAR_OK) {
        status = know_session(library, file, session, used, error);
        cellar_close_session(session);
    } else if (status == CELLAR_INVALID) {
        return CELLAR_OK; /* a link or a folder: not ours */
    }
    switch (status) {
    case CELLAR_OK:
        return CELLAR_OK;
    case CELLAR_CORRUPT:
    case CELLAR_UNSUPPORTED:
    case CELLAR_MISMATCH:
        library->counts.n_damaged++;
        (void)remove_number(folder, file);
        return CELLAR_OK;
    case CELLAR_FULL:
        library->counts.n_lost++;
        (void)remove_number(folder, file);
        return CELLAR_OK;
    case CELLAR_NOT_FOUND:
        library->counts.n_failures++;
        return CELLAR_OK;
    default:
        return status;
    }
}

static cellar_status know_files(cellar_library *library, DIR *all, cellar_error *error)
{
    for (;;) {
        errno = 0;
        const struct dirent *next = readdir(all);
        if (!next && errno != 0)
            return cl_files_fail(error, CELLAR_IO, "read the folder", "of the prefix library",
                                 errno);
        if (!next) return CELLAR_OK;
        uint64_t file = number_of(next->d_name);
        const cl_place at = {library->disk.handle, next->d_name, next->d_name};
        if (file == 0)
            cl_file_clear_temporary(&at);
        else
            CL_TRY(know_file(library, file, error));
    }
}

/* ---- open and close ---------------------------------------------------------------------------- */

static cellar_status lock_it(cl_prefix_folder *folder, const char *path, cellar_error *error)
{
    folder->lock = cl_files_open_at(folder->handle, ".lock", O_RDWR | O_CREAT, 0600);
    if (folder->lock < 0)
        return cl_files_fail(error, cl_files_status(errno), "open the lock of the folder", path,
                             errno);
    const int number = cl_files_lock(folder->lock);
    if (number == EWOULDBLOCK)
        CL_FAIL_BECAUSE(error, CELLAR_BUSY, CELLAR_REASON_NONE, -1,
                        "another prefix library uses the folder: %.100s", path);
    if (number != 0) return cl_files_fail(error, CELLAR_IO, "lock the folder", path, number);
    return CELLAR_OK;
}

cellar_status cl_prefix_folder_open(cellar_library *library, const char *path, cellar_error *error)
{
    cl_prefix_folder *folder = &library->disk;
    folder->handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->handle < 0)
        return cl_files_fail(error, errno == ENOENT ? CELLAR_NOT_FOUND : cl_files_status(errno),
                             "open the folder", path, errno);
    CL_TRY(lock_it(folder, path, error));
    const int handle = openat(folder->handle, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = handle < 0 ? NULL : fdopendir(handle);
    if (!all) {
        const int number = errno;
        if (handle >= 0) close(handle);
        return cl_files_fail(error, cl_files_status(number), "read the folder", path, number);
    }
    cellar_status status = know_files(library, all, error);
    closedir(all);
    return status;
}

void cl_prefix_folder_close(cl_prefix_folder *folder)
{
    if (folder->lock >= 0) close(folder->lock);
    if (folder->handle >= 0) close(folder->handle);
    folder->handle = folder->lock = -1;
}
