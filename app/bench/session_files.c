/*
 * session_files.c: files as the measurement of sessions needs them.
 *
 * Nothing outside the folder that was made is touched: its name is drawn by mkdtemp, and only plain entries
 * of it are removed. Every call that fails says which, on what, and why.
 */
#define _POSIX_C_SOURCE 200809L

#include "bench/session_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "report.h"

enum { PIECE = 1 << 20 /* bytes that are read and written at once */ };

static cellar_status fail(const char *what, const char *path, cellar_error *error)
{
    return report(error, CELLAR_IO, -1, "cannot %s %.120s: %s", what, path, strerror(errno));
}

cellar_status session_files_make(const char *parent, uint64_t bytes, session_files *out,
                                 cellar_error *error)
{
    struct statvfs room;
    *out = (session_files){.folder = ""};
    char name[sizeof out->folder];
    const int n = snprintf(name, sizeof name, "%s/cellar-bench-XXXXXX", parent);
    if (n < 0 || (size_t)n >= sizeof name) {
        return report(error, CELLAR_IO, -1, "the folder's name is too long");
    }
    if (statvfs(parent, &room) != 0) {
        return fail("use the folder", parent, error);
    }
    const uint64_t there = (uint64_t)room.f_bavail * room.f_frsize;
    if (there < bytes) {
        return report(error, CELLAR_IO, -1,
                      "files of %" PRIu64 " MiB are written, and %.120s has %" PRIu64
                      " MiB free: give another --folder or a smaller --size",
                      (bytes >> 20) + 1, parent, there >> 20);
    }
    if (mkdtemp(name) == NULL) {
        return fail("make a folder in", parent, error);
    }
    snprintf(out->folder, sizeof out->folder, "%s", name);
    snprintf(out->session, sizeof out->session, "%s/session", name);
    snprintf(out->plain, sizeof out->plain, "%s/plain", name);
    return CELLAR_OK;
}

cellar_status session_files_remove(session_files *files, cellar_error *error)
{
    if (files->folder[0] == '\0') {
        return CELLAR_OK;
    }
    DIR *folder = opendir(files->folder);
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(dirfd(folder), entry->d_name, 0); /* what stays is told by rmdir */
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    const cellar_status status = rmdir(files->folder) == 0 ? CELLAR_OK
                                                           : fail("remove", files->folder, error);
    files->folder[0] = '\0';
    return status;
}

static int open_file(const char *path, int flags)
{
    return open(path, flags | O_CLOEXEC, 0600);
}

cellar_status session_files_size(const char *path, size_t *size, cellar_error *error)
{
    struct stat found;
    if (stat(path, &found) != 0) {
        return fail("look at", path, error);
    }
    *size = (size_t)found.st_size;
    return CELLAR_OK;
}

cellar_status session_files_read(const char *path, void *to, size_t size, cellar_error *error)
{
    const int file = open_file(path, O_RDONLY);
    ssize_t n = file >= 0 ? 1 : -1;
    for (size_t at = 0; at < size && n > 0; at += n > 0 ? (size_t)n : 0) {
        n = read(file, (unsigned char *)to + at, size - at < PIECE ? size - at : PIECE);
    }
    const cellar_status status = n > 0 ? CELLAR_OK : fail("read", path, error);
    if (file >= 0) {
        close(file);
    }
    return status;
}

cellar_status session_files_write(const char *path, const void *from, size_t size,
                                  cellar_error *error)
{
    unlink(path); /* as saving does it: into a new file */
    const int file = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
    ssize_t n = file >= 0 ? 1 : -1;
    for (size_t at = 0; at < size && n > 0; at += n > 0 ? (size_t)n : 0) {
        n = write(file, (const unsigned char *)from + at, size - at < PIECE ? size - at : PIECE);
    }
    const bool is_done = n > 0 && fsync(file) == 0;
    const cellar_status status = is_done ? CELLAR_OK : fail("write", path, error);
    if (file >= 0) {
        close(file);
    }
    return status;
}

cellar_status session_files_drop(const char *path, cellar_error *error)
{
    const int file = open_file(path, O_RDONLY);
    if (file < 0) {
        return fail("open", path, error);
    }
    fsync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
    return CELLAR_OK;
}
