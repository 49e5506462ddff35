/*
 * session_file.c: plain files: read, replaced as a whole, appended to.
 *
 * Temporary files have a few fixed names in the folder of their file ("slots": a hash of its name,
 * and a number). Who writes one holds a lock on it (flock), which ends with the process, so a slot
 * that exists and can be locked is what a killed process left: it is removed. The lock comes a
 * moment after the file, so whoever has got it looks whether the name still means his file; who
 * removes holds the lock of what he removes, so it cannot be one that is being written.
 *
 * What is written is followed by a sync before anything refers to it: the file before its name,
 * sections before their commit record. A failure that comes late puts back what it can.
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "session_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "files.h"
#include "session_write.h"

enum {
    N_SLOTS = 8,   /* temporary files of one file at the same time */
    SLOT_NAME = 48 /* bytes of their names */
};

/* ---- reading --------------------------------------------------------------------------------- */

cellar_status cl_file_open_at(const cl_place *at, cl_file_source *out, cellar_error *error)
{
    struct stat info;
    int file;
    CL_TRY(cl_files_open(at, O_RDONLY, &file, &info, error));
    if (file < 0) return cl_files_fail(error, CELLAR_NOT_FOUND, "open the file", at->path, ENOENT);
    *out = (cl_file_source){.file = file,
                            .size = (uint64_t)info.st_size,
                            .device = (uint64_t)info.st_dev,
                            .inode = (uint64_t)info.st_ino};
    return CELLAR_OK;
}

cellar_status cl_file_open(const char *path, cl_file_source *out, cellar_error *error)
{
    cl_place at;
    CL_TRY(cl_files_place(path, CELLAR_NOT_FOUND, &at, error));
    cellar_status status = cl_file_open_at(&at, out, error);
    close(at.folder);
    return status;
}

void cl_file_close(int file)
{
    if (file >= 0) close(file);
}

/* The context is the descriptor itself, so nothing has to stay where it is. */
static bool read_source(void *context, uint64_t offset, void *to, size_t size)
{
    return cl_files_read((int)(intptr_t)context, offset, to, size);
}

cellar_reader cl_file_reader(const cl_file_source *source)
{
    return (cellar_reader){
        .read = read_source, .size = source->size, .context = (void *)(intptr_t)source->file};
}

/* The last bytes of an index are its checksum. */
static bool read_index_checksum(int file, const cl_session_commit *commit, uint32_t *out)
{
    unsigned char bytes[4];
    if (commit->length < CL_SESSION_HEADER + sizeof bytes ||
        !cl_files_read(file, commit->length - sizeof bytes, bytes, sizeof bytes))
        return false;
    *out = cl_get_u32(bytes);
    return true;
}

void cl_file_identify(const cl_file_source *source, const cl_session_commit *commit,
                      cl_file_identity *out)
{
    *out = (cl_file_identity){.device = source->device, .inode = source->inode, .commit = *commit};
    if (!cl_files_read(source->file, 0, out->header, sizeof out->header) ||
        !read_index_checksum(source->file, commit, &out->index_checksum))
        return;
    /* Somebody may have appended since the record was read: then this is another state. */
    const uint64_t a = cl_get_u64(out->header + CL_SESSION_COMMIT_A);
    const uint64_t b = cl_get_u64(out->header + CL_SESSION_COMMIT_B);
    out->is_known = (a > b ? a : b) == commit->generation;
}

/* ---- temporary files ------------------------------------------------------------------------- */

/* FNV-1a of the file's name, so that a slot's name never gets too long. */
static void name_slot(const cl_place *at, unsigned slot, char *to)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = at->name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    snprintf(to, SLOT_NAME, ".cellar-%016llx-%u.tmp", (unsigned long long)hash, slot);
}

/* Remove what a killed process left; leave alone what is not ours, or still being written. */
static void clear_slot(const cl_place *at, const char *slot)
{
    struct stat info;
    if (fstatat(at->folder, slot, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
        return;
    const int file = cl_files_open_at(at->folder, slot, O_RDWR, 0);
    if (file < 0) return;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
        cl_files_lock(file) == 0 && cl_files_is_named(at, slot, file))
        unlinkat(at->folder, slot, 0);
    close(file);
}

/* A new file in the first slot that is free, locked. Others are cleared on the way. */
static cellar_status make_temporary(const cl_place *at, char *name, int *out, cellar_error *error)
{
    int number = EEXIST;
    *out = -1;
    for (unsigned i = 0; i < N_SLOTS; i++) {
        char slot[SLOT_NAME];
        name_slot(at, i, slot);
        clear_slot(at, slot);
        if (*out >= 0 || number != EEXIST) continue;
        const int file = cl_files_open_at(at->folder, slot, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (file < 0) {
            number = errno;
        } else if (cl_files_lock(file) != EWOULDBLOCK && cl_files_is_named(at, slot, file)) {
            memcpy(name, slot, sizeof slot);
            *out = file;
        } else { /* somebody took it for a left one, in the moment before the lock */
            close(file);
            clear_slot(at, slot); /* or it is there, and could not be looked at */
        }
    }
    if (*out >= 0) return CELLAR_OK;
    return cl_files_fail(error, cl_files_status(number), "make a temporary file beside the file",
                         at->path, number);
}

/* ---- replacing ------------------------------------------------------------------------------- */

/* What was just written, whole. */
static bool identify_new(int file, cl_file_identity *out)
{
    struct stat info;
    *out = (cl_file_identity){.is_known = false};
    errno = EIO; /* should it be no session */
    if (fstat(file, &info) != 0 || !cl_files_read(file, 0, out->header, sizeof out->header))
        return false;
    const unsigned char *record = out->header + CL_SESSION_COMMIT_A;
    out->commit = (cl_session_commit){cl_get_u64(record), cl_get_u64(record + 8),
                                      cl_get_u64(record + 16), cl_get_u64(record + 24)};
    if (!read_index_checksum(file, &out->commit, &out->index_checksum)) return false;
    out->device = (uint64_t)info.st_dev;
    out->inode = (uint64_t)info.st_ino;
    out->is_known = true;
    return true;
}

static cellar_status fill_temporary(int file, const char *path, cl_file_fill *fill, void *context,
                                    uint64_t *n_written, cellar_error *error)
{
    cl_output out = {.file = file};
    const cellar_writer writer = cl_files_writer(&out);
    CL_TRY(cl_files_end(&out, fill(context, &writer, error), path, error));
    if (n_written) *n_written = out.n_written;
    if (!cl_files_sync(file, true))
        return cl_files_fail(error, CELLAR_IO, "sync the new file", path, errno);
    return CELLAR_OK;
}

static cellar_status take_the_place(const cl_place *at, const char *temporary, cellar_error *error)
{
    bool is_there;
    CL_TRY(cl_files_look(at, &is_there, error)); /* nothing else came there meanwhile */
    if (renameat(at->folder, temporary, at->folder, at->name) != 0)
        return cl_files_fail(error, cl_files_status(errno), "rename the new file", at->path, errno);
    return CELLAR_OK;
}

cellar_status cl_file_replace_at(const cl_place *at, cl_file_fill *fill, void *context,
                                 cl_file_identity *identity, uint64_t *n_written,
                                 cellar_error *error)
{
    char temporary[SLOT_NAME];
    int file = -1;
    bool is_there;
    cl_file_identity made = {.is_known = false};
    cellar_status status = cl_files_look(at, &is_there, error);
    if (status == CELLAR_OK) status = make_temporary(at, temporary, &file, error);
    if (status == CELLAR_OK)
        status = fill_temporary(file, at->path, fill, context, n_written, error);
    if (status == CELLAR_OK && identity && !identify_new(file, &made))
        status = cl_files_fail(error, CELLAR_IO, "read the new file back", at->path, errno);
    if (status == CELLAR_OK) status = take_the_place(at, temporary, error);
    if (status != CELLAR_OK) {
        if (file >= 0) unlinkat(at->folder, temporary, 0);
    } else {
        if (identity) *identity = made;
        if (!cl_files_sync(at->folder, true) &&
            errno != EINVAL) /* some file systems do not know it */
            status = cl_files_fail(
                error, CELLAR_IO, "sync the folder: the new file is in place, for how long is open",
                at->path, errno);
    }
    if (file >= 0) close(file);
    return status;
}

cellar_status cl_file_replace(const char *path, cl_file_fill *fill, void *context,
                              cl_file_identity *identity, uint64_t *n_written, cellar_error *error)
{
    cl_place at;
    CL_TRY(cl_files_place(path, CELLAR_IO, &at, error));
    cellar_status status = cl_file_replace_at(&at, fill, context, identity, n_written, error);
    close(at.folder);
    return status;
}

void cl_file_clear_temporary(const cl_place *at)
{
    static const char first[] = ".cellar-", last[] = ".tmp";
    const size_t n = strlen(at->name);
    if (n < sizeof first + sizeof last || strncmp(at->name, first, sizeof first - 1) != 0 ||
        strcmp(at->name + n - (sizeof last - 1), last) != 0)
        return;
    clear_slot(at, at->name);
}

/* ---- appending ------------------------------------------------------------------------------- */

/* An append: to what, and what with. */
typedef struct append {
    int file;
    const char *path;
    const cl_kernels *kernels;
    cl_file_add *add;
    void *context;
    uint64_t n_written;
} append;

/* Whether the file is the one that is known, in the state that is known. */
static bool is_the_one(const cl_place *at, int file, const cl_file_identity *known)
{
    struct stat info;
    unsigned char header[CL_SESSION_HEADER];
    uint32_t checksum;
    return fstat(file, &info) == 0 && (uint64_t)info.st_dev == known->device &&
           (uint64_t)info.st_ino == known->inode && cl_files_is_named(at, at->name, file) &&
           cl_files_read(file, 0, header, sizeof header) &&
           memcmp(header, known->header, sizeof header) == 0 &&
           read_index_checksum(file, &known->commit, &checksum) &&
           checksum == known->index_checksum;
}

static cellar_status lock_the_one(const cl_place *at, int file, const cl_file_identity *known,
                                  cellar_error *error)
{
    const char *dots, *end = cl_files_shown(at->path, &dots);
    const int number = cl_files_lock(file);
    if (number == EWOULDBLOCK)
        CL_FAIL_BECAUSE(error, CELLAR_BUSY, CELLAR_REASON_NONE, -1,
                        "another process is saving to the file (%s%s)", dots, end);
    if (number != 0) return cl_files_fail(error, CELLAR_IO, "lock the file", at->path, number);
    if (known->is_known && is_the_one(at, file, known)) return CELLAR_OK;
    CL_FAIL(error, CELLAR_MISMATCH, -1, "another file is in the place of the known one (%s%s)",
            dots, end);
}

/* Where the record is that does not count. */
static size_t other_record(const cl_file_identity *identity)
{
    const uint64_t a = cl_get_u64(identity->header + CL_SESSION_COMMIT_A);
    return a == identity->commit.generation ? CL_SESSION_COMMIT_B : CL_SESSION_COMMIT_A;
}

/*
 * Write the next commit record over the one that does not count, and wait until it is on the disk.
 * If that fails it is put back as it was, as far as that is possible.
 */
static cellar_status commit_record(append *a, cl_file_identity *identity,
                                   const cl_session_commit *commit, cellar_error *error)
{
    const size_t offset = other_record(identity);
    unsigned char record[CL_SESSION_COMMIT];
    cl_output out = {.file = a->file, .at = offset};
    cl_session_put_commit(record, commit, a->kernels);
    if (!cl_files_write(&out, record, sizeof record) || !cl_files_sync(a->file, false)) {
        const int number = out.failure ? out.failure : errno;
        cl_output back = {.file = a->file, .at = offset};
        cl_files_write(&back, identity->header + offset, CL_SESSION_COMMIT);
        return cl_files_fail(error, CELLAR_IO, "write the commit record", a->path, number);
    }
    a->n_written += sizeof record;
    memcpy(identity->header + offset, record, sizeof record);
    identity->commit = *commit;
    return CELLAR_OK;
}

/* The first time: both records say the same, so that one stands while the other is written. */
static cellar_status become_journal(append *a, cl_file_identity *identity, cellar_error *error)
{
    static const unsigned char unused[CL_SESSION_COMMIT];
    cl_session_commit second = identity->commit;
    second.generation++;
    if (memcmp(identity->header + CL_SESSION_COMMIT_B, unused, sizeof unused) != 0)
        return CELLAR_OK;
    return commit_record(a, identity, &second, error);
}

/* Sections and index, behind everything that counts, and on the disk. */
static cellar_status add_sections(append *a, cl_session_commit *commit, cellar_error *error)
{
    const uint64_t start = commit->length;
    cl_output out = {.file = a->file, .at = start};
    const cellar_writer writer = cl_files_writer(&out);
    if (!cl_files_cut(a->file, start))
        return cl_files_fail(error, CELLAR_IO, "cut off what an append left", a->path, errno);
    const cellar_status status = a->add(a->context, &writer, commit, error);
    CL_TRY(cl_files_end(&out, status, a->path, error));
    a->n_written += out.n_written;
    if (!cl_files_sync(a->file, false))
        return cl_files_fail(error, CELLAR_IO, "sync what was appended", a->path, errno);
    return CELLAR_OK;
}

/*
 * The file is open, locked and the one that is known. What fails before the last commit record
 * leaves bytes behind the end of what counts, which are cut off, now or by the next append.
 */
static cellar_status append_to(append *a, cl_file_identity *identity, cellar_error *error)
{
    cl_file_identity now = *identity;
    identity->is_known = false; /* until it is certain what the disk has */
    CL_TRY(become_journal(a, &now, error));
    cl_session_commit next = now.commit;
    cellar_status status = add_sections(a, &next, error);
    if (status == CELLAR_OK && !read_index_checksum(a->file, &next, &now.index_checksum))
        status = cl_files_fail(error, CELLAR_IO, "read back what was appended", a->path, errno);
    if (status != CELLAR_OK) {
        *identity = now;
        const bool is_cut = cl_files_cut(a->file, now.commit.length);
        (void)is_cut; /* if not, the next append does it */
        return status;
    }
    next.generation = now.commit.generation + 1;
    CL_TRY(commit_record(a, &now, &next, error));
    *identity = now;
    return CELLAR_OK;
}

cellar_status cl_file_append(const char *path, const cl_kernels *kernels, cl_file_add *add,
                             void *context, cl_file_identity *identity, uint64_t *n_written,
                             cellar_error *error)
{
    cl_place at;
    struct stat info;
    append a = {.file = -1, .path = path, .kernels = kernels, .add = add, .context = context};
    CL_TRY(cl_files_place(path, CELLAR_MISMATCH, &at, error));
    cellar_status status = cl_files_open(&at, O_RDWR, &a.file, &info, error);
    if (status == CELLAR_OK && a.file < 0)
        status = cl_files_fail(error, CELLAR_MISMATCH, "append to the file", path, ENOENT);
    if (status == CELLAR_OK) status = lock_the_one(&at, a.file, identity, error);
    if (status == CELLAR_OK) status = append_to(&a, identity, error);
    if (n_written) *n_written = a.n_written;
    if (a.file >= 0) close(a.file);
    close(at.folder);
    return status;
}
