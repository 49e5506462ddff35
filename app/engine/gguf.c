/*
 * gguf.c: where the bytes of a GGUF file come from, and its header.
 *
 *   0      24                 metadata end   data_start                       size
 *   +------+--------+---------+--------------+------------+-----+------------+
 *   |header|  keys  | tensors |  zero bytes  | tensor data| gap | ...        |
 *   +------+--------+---------+--------------+------------+-----+------------+
 *   '------- read into memory of our own ----'------------ mapped -----------'
 *
 * Another program can truncate a file that we have mapped; touching a page that is gone raises
 * SIGBUS, and no check made earlier helps. So the two parts are treated differently:
 *   - Everything that is parsed is a private copy, made with pread: opening and inspecting a file,
 *     and every key, string and tensor name afterwards, are safe whatever happens to the file. A
 *     file that shrinks while it is read gives CELLAR_IO.
 *   - Tensor data are mapped, because copying them would double a model's start-up time and memory.
 *     Their size is checked again after mapping. Whoever truncates a model that is in use ends the
 *     program with SIGBUS, as with any mapped program; no handler is installed. gguf_load reads the
 *     data too and has no such risk. A change of the bytes is harmless here: no length and no
 *     offset is taken from them.
 *
 * The length of the metadata is not written in the file. A first part is read and parsed; if a
 * field lies beyond it, a part at least four times as long is read and parsing starts over, so the
 * work stays proportional to the metadata.
 */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#define _FILE_OFFSET_BITS 64

#include "gguf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../report.h"

/* Bytes that are read first: enough for the metadata of a small vocabulary. */
#define FIRST_PART (1u << 20)
/* The least that a key can take in the file: length 8, key 1, type 4, value 1. */
#define MIN_KEY_RECORD 14u
/* The least that a tensor can take: length 8, name 1, n_dims 4, dimension 8, type 4, offset 8. */
#define MIN_TENSOR_RECORD 33u

/* ---- the cursor ----------------------------------------------------------------------------- */

cellar_status gguf_refuse(cellar_error *error, cellar_status status, uint64_t at,
                          const char *format, ...)
{
    char message[180]; /* leaves room in cellar_error for the byte */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return report(error, status, (int64_t)at, "%s (byte %llu)", message, (unsigned long long)at);
}

/* "key: " or nothing, for the start of a message. */
#define SUBJECT(cursor) GGUF_SHOW((cursor)->subject), (cursor)->subject.length > 0 ? ": " : ""

cellar_status gguf_take(gguf_cursor *cursor, uint64_t n, const char *field,
                        const unsigned char **out)
{
    if (n > gguf_remaining(cursor))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, cursor->at,
                           "%.*s%s%s: %llu bytes needed, but the file ends after %llu",
                           SUBJECT(cursor), field, (unsigned long long)n,
                           (unsigned long long)gguf_remaining(cursor));
    const uint64_t end = cursor->at + n;
    if (end > GGUF_MAX_METADATA)
        return gguf_refuse(cursor->error, CELLAR_UNSUPPORTED, cursor->at,
                           "%.*s%s%s: metadata of more than %llu bytes are not read",
                           SUBJECT(cursor), field, GGUF_MAX_METADATA);
    if (end > cursor->available) {
        cursor->is_short = true;
        cursor->wanted = end;
        return CELLAR_IO;
    }
    *out = cursor->data + cursor->at;
    cursor->at = end;
    return CELLAR_OK;
}

cellar_status gguf_take_u32(gguf_cursor *cursor, const char *field, uint32_t *out)
{
    const unsigned char *bytes = NULL;
    GGUF_TRY(gguf_take(cursor, 4, field, &bytes));
    *out = gguf_read_u32(bytes);
    return CELLAR_OK;
}

cellar_status gguf_take_u64(gguf_cursor *cursor, const char *field, uint64_t *out)
{
    const unsigned char *bytes = NULL;
    GGUF_TRY(gguf_take(cursor, 8, field, &bytes));
    *out = gguf_read_u64(bytes);
    return CELLAR_OK;
}

cellar_status gguf_take_string(gguf_cursor *cursor, const char *field, gguf_string *out)
{
    const uint64_t at = cursor->at;
    uint64_t length = 0;
    GGUF_TRY(gguf_take_u64(cursor, field, &length));
    if (length > gguf_remaining(cursor))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at,
                           "%.*s%s%s: length %llu, but the file ends after %llu bytes",
                           SUBJECT(cursor), field, (unsigned long long)length,
                           (unsigned long long)gguf_remaining(cursor));
    const unsigned char *bytes = NULL;
    GGUF_TRY(gguf_take(cursor, length, field, &bytes));
    out->data = (const char *)bytes;
    out->length = (size_t)length;
    return CELLAR_OK;
}

/* ---- the header ----------------------------------------------------------------------------- */

static cellar_status parse_version(gguf_file *file, gguf_cursor *cursor)
{
    const unsigned char *magic = NULL;
    GGUF_TRY(gguf_take(cursor, 4, "magic", &magic));
    if (memcmp(magic, "GGUF", 4) != 0)
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, 0,
                           "magic: not a GGUF file, it starts with %02x %02x %02x %02x", magic[0],
                           magic[1], magic[2], magic[3]);
    const uint64_t at = cursor->at;
    GGUF_TRY(gguf_take_u32(cursor, "version", &file->version));
    if (file->version == 2 || file->version == 3) return CELLAR_OK;
    if (file->version != 0 && (file->version & 0xffffff) == 0)
        return gguf_refuse(
            cursor->error, CELLAR_UNSUPPORTED, at,
            "version: the file is big-endian (byte-swapped); convert it to little-endian");
    if (file->version == 1)
        return gguf_refuse(
            cursor->error, CELLAR_UNSUPPORTED, at,
            "version: 1 is no longer read (versions 2 and 3 are); convert the model again");
    return gguf_refuse(cursor->error, CELLAR_UNSUPPORTED, at,
                       "version: %u is not known, 2 and 3 are", file->version);
}

static cellar_status check_count(gguf_cursor *cursor, uint64_t at, const char *field,
                                 uint64_t count, uint32_t min_record, uint32_t most)
{
    if (count > gguf_remaining(cursor) / min_record)
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, at,
                           "%s: %llu is more than the file can hold", field,
                           (unsigned long long)count);
    if (count > most)
        return gguf_refuse(cursor->error, CELLAR_UNSUPPORTED, at, "%s: %llu, at most %u are read",
                           field, (unsigned long long)count, most);
    return CELLAR_OK;
}

static cellar_status parse(gguf_file *file, gguf_cursor *cursor)
{
    GGUF_TRY(parse_version(file, cursor));
    const uint64_t tensors_at = cursor->at;
    uint64_t n_tensors = 0, n_values = 0;
    GGUF_TRY(gguf_take_u64(cursor, "n_tensors", &n_tensors));
    const uint64_t values_at = cursor->at;
    GGUF_TRY(gguf_take_u64(cursor, "n_kv", &n_values));
    GGUF_TRY(check_count(cursor, tensors_at, "n_tensors", n_tensors, MIN_TENSOR_RECORD,
                         GGUF_MAX_TENSORS));
    GGUF_TRY(check_count(cursor, values_at, "n_kv", n_values, MIN_KEY_RECORD, GGUF_MAX_KEYS));
    if (n_values * MIN_KEY_RECORD + n_tensors * MIN_TENSOR_RECORD > gguf_remaining(cursor))
        return gguf_refuse(cursor->error, CELLAR_CORRUPT, values_at,
                           "n_kv: %llu keys and %llu tensors are more than the file can hold",
                           (unsigned long long)n_values, (unsigned long long)n_tensors);
    GGUF_TRY(gguf_parse_values(file, cursor, (uint32_t)n_values));
    return gguf_parse_tensors(file, cursor, (uint32_t)n_tensors);
}

/* Parse what is available. Whatever the outcome, gguf_close or reset can follow. */
static cellar_status parse_part(gguf_file *file, gguf_cursor *cursor, const void *data,
                                uint64_t available, cellar_error *error)
{
    *cursor =
        (gguf_cursor){.data = data, .available = available, .size = file->size, .error = error};
    return parse(file, cursor);
}

static void reset(gguf_file *file)
{
    gguf_free_values(file);
    gguf_free_tensors(file);
    free(file->metadata);
    file->metadata = NULL;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Fill `to` with n bytes of the file from `at` on. */
static cellar_status read_exactly(int descriptor, void *to, uint64_t n, uint64_t at,
                                  cellar_error *error)
{
    unsigned char *bytes = to;
    uint64_t done = 0;
    while (done < n) {
        const size_t piece = n - done < (1u << 30) ? (size_t)(n - done) : (size_t)1u << 30;
        const ssize_t got = pread(descriptor, bytes + done, piece, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return gguf_refuse(error, CELLAR_IO, at + done, "cannot read: %s", strerror(errno));
        if (got == 0)
            return gguf_refuse(error, CELLAR_IO, at + done,
                               "the file became shorter while it was read");
        done += (uint64_t)got;
    }
    return CELLAR_OK;
}

static cellar_status open_regular(const char *path, int *descriptor, uint64_t *size,
                                  cellar_error *error)
{
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. It means nothing for regular files. */
    *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*descriptor < 0) return report(error, CELLAR_IO, -1, "cannot open: %s", strerror(errno));
    struct stat about;
    if (fstat(*descriptor, &about) != 0)
        return report(error, CELLAR_IO, -1, "cannot look at the file: %s", strerror(errno));
    if (S_ISDIR(about.st_mode)) return report(error, CELLAR_IO, -1, "is a directory, not a file");
    if (!S_ISREG(about.st_mode))
        return report(error, CELLAR_IO, -1,
                      "not a regular file; a model cannot be read from a pipe or a device");
    if ((uint64_t)about.st_size > SIZE_MAX / 2)
        return report(error, CELLAR_UNSUPPORTED, -1, "too large for the address space");
    *size = (uint64_t)about.st_size;
    return CELLAR_OK;
}

/* Read and parse the metadata, a longer part each time until all of them are there. */
static cellar_status read_metadata(gguf_file *file, int descriptor, cellar_error *error)
{
    uint64_t part = FIRST_PART;
    for (;;) {
        if (part > file->size) part = file->size;
        file->metadata = malloc(part > 0 ? (size_t)part : 1);
        if (file->metadata == NULL)
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for %llu bytes of metadata",
                          (unsigned long long)part);
        GGUF_TRY(read_exactly(descriptor, file->metadata, part, 0, error));
        gguf_cursor cursor;
        const cellar_status status = parse_part(file, &cursor, file->metadata, part, error);
        if (status == CELLAR_OK || !cursor.is_short) return status;
        reset(file);
        part = cursor.wanted > 4 * part ? cursor.wanted : 4 * part;
        if (part > GGUF_MAX_METADATA) /* the cursor wants no more than that */
            part = GGUF_MAX_METADATA;
    }
}

static void point_to_data(gguf_file *file, const unsigned char *data, uint64_t data_offset)
{
    for (uint32_t i = 0; i < file->n_tensors; i++)
        file->tensors[i].data = data + (file->tensors[i].offset - data_offset);
}

static cellar_status map_data(gguf_file *file, int descriptor, cellar_error *error)
{
    void *mapping = mmap(NULL, (size_t)file->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapping == MAP_FAILED)
        return report(error, errno == ENOMEM ? CELLAR_NO_MEMORY : CELLAR_IO, -1,
                      "cannot map the file: %s", strerror(errno));
    file->mapping = mapping;
    file->mapping_size = (size_t)file->size;
    struct stat about;
    if (fstat(descriptor, &about) != 0 || (uint64_t)about.st_size < file->size)
        return report(error, CELLAR_IO, -1, "the file became shorter while it was opened");
    point_to_data(file, mapping, 0);
    return CELLAR_OK;
}

static cellar_status copy_data(gguf_file *file, int descriptor, cellar_error *error)
{
    const size_t size = (size_t)(file->size - file->data_start);
    void *mapping = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %zu bytes of tensor data", size);
    file->mapping = mapping;
    file->mapping_size = size;
    GGUF_TRY(read_exactly(descriptor, mapping, size, file->data_start, error));
    point_to_data(file, mapping, file->data_start);
    return CELLAR_OK;
}

static cellar_status open_file(gguf_file *file, int descriptor, bool copy, cellar_error *error)
{
    GGUF_TRY(read_metadata(file, descriptor, error));
    if (file->n_tensors == 0) return CELLAR_OK;
    return copy ? copy_data(file, descriptor, error) : map_data(file, descriptor, error);
}

static cellar_status create(gguf_file **file, uint64_t size, cellar_error *error)
{
    *file = calloc(1, sizeof **file);
    if (*file == NULL) return report(error, CELLAR_NO_MEMORY, -1, "no memory to open a file");
    (*file)->size = size;
    return CELLAR_OK;
}

static cellar_status open_path(const char *path, bool copy, gguf_file **file, cellar_error *error)
{
    if (file == NULL) return report(error, CELLAR_INVALID, -1, "no place for the opened file");
    *file = NULL;
    if (path == NULL) return report(error, CELLAR_INVALID, -1, "no path");
    int descriptor = -1;
    uint64_t size = 0;
    gguf_file *opened = NULL;
    cellar_status status = open_regular(path, &descriptor, &size, error);
    if (status == CELLAR_OK) status = create(&opened, size, error);
    if (status == CELLAR_OK) status = open_file(opened, descriptor, copy, error);
    if (descriptor >= 0) (void)close(descriptor);
    if (status == CELLAR_OK)
        *file = opened;
    else
        gguf_close(opened);
    return status;
}

cellar_status gguf_open(const char *path, gguf_file **file, cellar_error *error)
{
    return open_path(path, false, file, error);
}

cellar_status gguf_load(const char *path, gguf_file **file, cellar_error *error)
{
    return open_path(path, true, file, error);
}

cellar_status gguf_open_memory(const void *data, size_t size, gguf_file **file, cellar_error *error)
{
    if (file == NULL) return report(error, CELLAR_INVALID, -1, "no place for the opened file");
    *file = NULL;
    if (data == NULL || (uintptr_t)data % GGUF_MIN_ALIGNMENT != 0)
        return report(error, CELLAR_INVALID, -1, "the bytes must start at a multiple of %u",
                      GGUF_MIN_ALIGNMENT);
    gguf_file *opened = NULL;
    GGUF_TRY(create(&opened, size, error));
    gguf_cursor cursor;
    const cellar_status status = parse_part(opened, &cursor, data, size, error);
    if (status != CELLAR_OK) {
        gguf_close(opened);
        return status;
    }
    point_to_data(opened, data, 0);
    *file = opened;
    return CELLAR_OK;
}

void gguf_close(gguf_file *file)
{
    if (file == NULL) return;
    reset(file);
    if (file->mapping != NULL) (void)munmap(file->mapping, file->mapping_size);
    free(file);
}

uint32_t gguf_version(const gguf_file *file)
{
    return file->version;
}

uint64_t gguf_size(const gguf_file *file)
{
    return file->size;
}

uint32_t gguf_alignment(const gguf_file *file)
{
    return file->alignment;
}
