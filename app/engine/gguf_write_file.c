/*
 * gguf_write_file.c: a file that appears whole or not at all.
 *
 * The temporary file lies in the folder of the file that is asked for, so that renaming it is one step
 * of one file system. Without `replaces` it is linked instead, which fails if somebody else made a
 * file of that name meanwhile; where the file system has no links it is renamed. Before and after,
 * file and folder are synchronised with the disk.
 *
 * Bytes are gathered in a buffer; a disk that is full shows when that is written or synchronised.
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include "gguf_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../report.h"
#include "gguf_internal.h"

#define BUFFER_SIZE ((size_t)1 << 16)
#define TEMPORARY ".cellar-XXXXXX"

struct gguf_write {
    char *path;      /* that is asked for */
    char *folder;    /* of it */
    char *temporary; /* NULL: there is none (any more) */
    int descriptor;  /* -1: closed */
    bool replaces;
    uint64_t at;      /* bytes so far, those in the buffer too */
    size_t n_waiting; /* in the buffer */
    unsigned char buffer[BUFFER_SIZE];
};

/* ---- beginning ------------------------------------------------------------------------------ */

static cellar_status check_target(const char *path, bool replaces, cellar_error *error)
{
    struct stat about;
    if (lstat(path, &about) != 0)
        return errno == ENOENT ? CELLAR_OK
                               : report(error, CELLAR_IO, -1, "cannot write: %s", strerror(errno));
    if (!S_ISREG(about.st_mode))
        return report(error, CELLAR_INVALID, -1,
                      "is there already and is not a regular file: give another name");
    if (!replaces)
        return report(error, CELLAR_INVALID, -1, "is there already; --replace replaces it");
    return CELLAR_OK;
}

/* The names of a gguf_write; false: no memory. */
static bool make_names(gguf_write *w, const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    w->path = malloc(strlen(path) + 1);
    w->folder = malloc(n + 2);
    w->temporary = malloc(n + sizeof TEMPORARY);
    if (w->path == NULL || w->folder == NULL || w->temporary == NULL) return false;
    memcpy(w->path, path, strlen(path) + 1);
    memcpy(w->folder, n > 0 ? path : ".", n > 0 ? n : 1);
    w->folder[n > 0 ? n : 1] = '\0';
    memcpy(w->temporary, path, n);
    memcpy(w->temporary + n, TEMPORARY, sizeof TEMPORARY);
    return true;
}

/* mkstemp allows nobody else to read it; this is what open() would have allowed. */
static int allow_reading(int descriptor)
{
    const mode_t mask = umask(0);
    (void)umask(mask);
    return fchmod(descriptor, 0644 & ~mask);
}

cellar_status gguf_write_open(const char *path, bool replaces, gguf_write **out,
                              cellar_error *error)
{
    *out = NULL;
    GGUF_TRY(check_target(path, replaces, error));
    gguf_write *w = malloc(sizeof *w);
    if (w == NULL) return report(error, CELLAR_NO_MEMORY, -1, "no memory to write a file");
    *w = (gguf_write){.descriptor = -1, .replaces = replaces};
    if (!make_names(w, path)) {
        free(w->temporary);
        w->temporary = NULL; /* no file of that name was made */
        gguf_write_close(w);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory to write a file");
    }
    w->descriptor = mkstemp(w->temporary);
    if (w->descriptor < 0) {
        const int why = errno;
        free(w->temporary);
        w->temporary = NULL;
        gguf_write_close(w);
        return report(error, CELLAR_IO, -1, "cannot make a file in that folder: %s", strerror(why));
    }
    (void)fcntl(w->descriptor, F_SETFD, FD_CLOEXEC);
    if (allow_reading(w->descriptor) != 0) {
        const int why = errno;
        gguf_write_close(w);
        return report(error, CELLAR_IO, -1, "cannot set the mode of the file: %s", strerror(why));
    }
    *out = w;
    return CELLAR_OK;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static cellar_status write_all(gguf_write *w, const unsigned char *bytes, size_t n,
                               cellar_error *error)
{
    while (n > 0) {
        const size_t piece = n < (1u << 30) ? n : (size_t)1u << 30;
        const ssize_t done = write(w->descriptor, bytes, piece);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return report(error, CELLAR_IO, (int64_t)w->at, "cannot write: %s",
                          done < 0 ? strerror(errno) : "the system takes no more");
        bytes += done;
        n -= (size_t)done;
    }
    return CELLAR_OK;
}

cellar_status gguf_write_flush(gguf_write *w, cellar_error *error)
{
    const size_t n = w->n_waiting;
    w->n_waiting = 0;
    return write_all(w, w->buffer, n, error);
}

cellar_status gguf_write_bytes(gguf_write *w, const void *bytes, size_t n, cellar_error *error)
{
    if (n > BUFFER_SIZE - w->n_waiting) GGUF_TRY(gguf_write_flush(w, error));
    w->at += n;
    if (n >= BUFFER_SIZE) return write_all(w, bytes, n, error);
    if (n > 0) memcpy(w->buffer + w->n_waiting, bytes, n);
    w->n_waiting += n;
    return CELLAR_OK;
}

cellar_status gguf_write_pad(gguf_write *w, uint64_t to, cellar_error *error)
{
    static const unsigned char zeros[512];
    while (w->at < to) {
        const uint64_t n = to - w->at;
        GGUF_TRY(gguf_write_bytes(w, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros, error));
    }
    return CELLAR_OK;
}

const char *gguf_write_name(const gguf_write *w)
{
    return w->temporary;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Give the file its name; 0, or -1 and errno. */
static int take_name(gguf_write *w)
{
    if (w->replaces) return rename(w->temporary, w->path);
    if (link(w->temporary, w->path) == 0) return unlink(w->temporary);
    if (errno == EEXIST) return -1;
    return rename(w->temporary, w->path);
}

cellar_status gguf_write_commit(gguf_write *w, cellar_error *error)
{
    GGUF_TRY(gguf_write_flush(w, error));
    if (fsync(w->descriptor) != 0)
        return report(error, CELLAR_IO, -1, "cannot write: %s", strerror(errno));
    const int descriptor = w->descriptor;
    w->descriptor = -1;
    if (close(descriptor) != 0)
        return report(error, CELLAR_IO, -1, "cannot write: %s", strerror(errno));
    if (take_name(w) != 0)
        return report(error, CELLAR_IO, -1, "cannot give the file its name: %s", strerror(errno));
    free(w->temporary);
    w->temporary = NULL;
    const int folder = open(w->folder, O_RDONLY | O_CLOEXEC);
    if (folder >= 0) { /* a file system that cannot do this has nothing to be done */
        (void)fsync(folder);
        (void)close(folder);
    }
    return CELLAR_OK;
}

void gguf_write_close(gguf_write *w)
{
    if (w == NULL) return;
    if (w->descriptor >= 0) (void)close(w->descriptor);
    if (w->temporary != NULL) (void)unlink(w->temporary);
    free(w->temporary);
    free(w->folder);
    free(w->path);
    free(w);
}
