/*
 * files.c: the system's calls for files.
 *
 * Short writes and interrupted calls are continued. An output remembers its first failure and writes
 * nothing after it; what the number of the system means is said when it ends, whatever became of the
 * failure on its way through the writer's user.
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "error.h"

enum {
    SHOWN_PATH = 100,   /* bytes of a path in a message: its end */
    LONGEST_PATH = 4096 /* with its NUL; what Linux allows */
};

/* ---- failures -------------------------------------------------------------------------------- */

cellar_status cl_files_status(int number)
{
    switch (number) {
    case ENAMETOOLONG:
    case ELOOP:
    case ENOTDIR:
    case EISDIR:
        return CELLAR_INVALID;
    case ENOMEM:
        return CELLAR_NO_MEMORY;
    default:
        return CELLAR_IO;
    }
}

const char *cl_files_shown(const char *path, const char **dots)
{
    const size_t length = strlen(path);
    *dots = length > SHOWN_PATH ? "..." : "";
    if (length <= SHOWN_PATH) return path;
    const char *end = path + length - SHOWN_PATH;
    while (((unsigned char)*end & 0xc0) == 0x80) /* not in the middle of a character */
        end++;
    return end;
}

cellar_status cl_files_fail(cellar_error *error, cellar_status status, const char *step,
                            const char *path, int number)
{
    char reason[80];
    const char *dots, *end = cl_files_shown(path, &dots);
    if (strerror_r(number, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", number);
    CL_FAIL(error, status, -1, "cannot %s: %s (%s%s)", step, reason, dots, end);
}

cellar_status cl_files_fail_kind(cellar_error *error, const char *path)
{
    const char *dots, *end = cl_files_shown(path, &dots);
    CL_FAIL(error, CELLAR_INVALID, -1, "not a plain file: %s%s", dots, end);
}

/* ---- names ----------------------------------------------------------------------------------- */

int cl_files_open_at(int folder, const char *name, int flags, mode_t mode)
{
    int file;
    do
        file = openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, mode);
    while (file < 0 && errno == EINTR);
    return file;
}

cellar_status cl_files_place(const char *path, cellar_status missing, cl_place *out,
                             cellar_error *error)
{
    if (!path || !*path) CL_FAIL(error, CELLAR_INVALID, -1, "the path of a session is empty");
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return cl_files_fail_kind(error, path);

    char folder[LONGEST_PATH] = ".";
    if (slash) {
        const size_t length = slash == path ? 1 : (size_t)(slash - path);
        if (length >= sizeof folder)
            return cl_files_fail(error, CELLAR_INVALID, "open the folder", path, ENAMETOOLONG);
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    int handle;
    do
        handle = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (handle < 0 && errno == EINTR);
    if (handle < 0)
        return cl_files_fail(error, errno == ENOENT ? missing : cl_files_status(errno),
                             "open the folder", path, errno);
    *out = (cl_place){.folder = handle, .path = path, .name = name};
    return CELLAR_OK;
}

cellar_status cl_files_look(const cl_place *at, bool *is_there, cellar_error *error)
{
    struct stat info;
    *is_there = fstatat(at->folder, at->name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*is_there && errno != ENOENT)
        return cl_files_fail(error, cl_files_status(errno), "look at the file", at->path, errno);
    if (*is_there && !S_ISREG(info.st_mode)) return cl_files_fail_kind(error, at->path);
    return CELLAR_OK;
}

cellar_status cl_files_open(const cl_place *at, int flags, int *out, struct stat *info,
                            cellar_error *error)
{
    bool is_there;
    *out = -1;
    CL_TRY(cl_files_look(at, &is_there, error)); /* a device is not even opened */
    if (!is_there) return CELLAR_OK;
    const int file = cl_files_open_at(at->folder, at->name, flags, 0);
    if (file < 0 && errno == ENOENT) return CELLAR_OK;
    if (file < 0)
        return cl_files_fail(error, cl_files_status(errno), "open the file", at->path, errno);
    cellar_status status = CELLAR_OK;
    if (fstat(file, info) != 0)
        status = cl_files_fail(error, CELLAR_IO, "look at the file", at->path, errno);
    else if (!S_ISREG(info->st_mode))
        status = cl_files_fail_kind(error, at->path);
    if (status != CELLAR_OK) {
        close(file);
        return status;
    }
    *out = file;
    return CELLAR_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

bool cl_files_write(cl_output *out, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;
    while (size > 0 && out->failure == 0) {
        const size_t piece = size < (size_t)1 << 30 ? size : (size_t)1 << 30;
        const ssize_t n = pwrite(out->file, from, piece, (off_t)out->at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            out->failure = n < 0 ? errno : EIO;
            break;
        }
        from += n;
        size -= (size_t)n;
        out->at += (uint64_t)n;
        out->n_written += (uint64_t)n;
    }
    return out->failure == 0;
}

static bool write_bytes(void *context, const void *bytes, size_t size)
{
    return cl_files_write(context, bytes, size);
}

cellar_writer cl_files_writer(cl_output *out)
{
    return (cellar_writer){.write = write_bytes, .context = out};
}

cellar_status cl_files_end(const cl_output *out, cellar_status status, const char *path,
                           cellar_error *error)
{
    if (out->failure == 0) return status;
    return cl_files_fail(error, cl_files_status(out->failure), "write the file", path,
                         out->failure);
}

bool cl_files_read(int file, uint64_t offset, void *to, size_t size)
{
    unsigned char *at = to;
    while (size > 0) {
        const ssize_t n = pread(file, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            if (n == 0) errno = EIO; /* it ends before it should */
            return false;
        }
        at += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

bool cl_files_cut(int file, uint64_t size)
{
    int result;
    do
        result = ftruncate(file, (off_t)size);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

bool cl_files_sync(int file, bool whole)
{
    int result;
    do
        result = whole ? fsync(file) : fdatasync(file);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

/* ---- locks ----------------------------------------------------------------------------------- */

int cl_files_lock(int file)
{
    int result;
    do
        result = flock(file, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

bool cl_files_is_named(const cl_place *at, const char *name, int file)
{
    struct stat there, here;
    return fstat(file, &here) == 0 && fstatat(at->folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}
