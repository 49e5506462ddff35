/*
 * gguf_writer.c: make GGUF files for tests (see gguf_writer.h).
 *
 * Three growing strings of bytes (keys, descriptions of tensors, data) and two counters;
 * gguf_writer_finish puts the header before them and zeros between descriptions and data.
 */
#include "gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_SIZE 24u

typedef struct buffer {
    unsigned char *bytes;
    size_t size, room;
} buffer;

struct gguf_writer {
    uint32_t version, alignment;
    uint64_t n_values, n_tensors;
    buffer values, descriptions, data;
};

static void fail(const char *what)
{
    fprintf(stderr, "gguf_writer: %s\n", what);
    exit(1);
}

static void *need(void *memory)
{
    if (memory == NULL) fail("no memory");
    return memory;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* NULL: zeros. */
static void put(buffer *to, const void *bytes, size_t n)
{
    if (to->room - to->size < n) {
        to->room = 2 * to->room + n + 64;
        to->bytes = need(realloc(to->bytes, to->room));
    }
    if (n == 0) return;
    if (bytes != NULL)
        memcpy(to->bytes + to->size, bytes, n);
    else
        memset(to->bytes + to->size, 0, n);
    to->size += n;
}

void gguf_writer_patch(unsigned char *file, size_t at, unsigned width, uint64_t value)
{
    for (unsigned i = 0; i < width; i++)
        file[at + i] = (unsigned char)(value >> (8 * i) & 0xff);
}

static void put_number(buffer *to, unsigned width, uint64_t value)
{
    unsigned char bytes[8];
    gguf_writer_patch(bytes, 0, width, value);
    put(to, bytes, width);
}

static void put_string(buffer *to, const char *text, size_t length)
{
    put_number(to, 8, length);
    put(to, text, length);
}

static size_t align_up(size_t n, size_t alignment)
{
    return (n + alignment - 1) / alignment * alignment;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static size_t begin_value(gguf_writer *writer, const char *key, size_t key_length, uint32_t type)
{
    if (writer->n_tensors > 0) fail("a key after a tensor");
    const size_t at = HEADER_SIZE + writer->values.size;
    writer->n_values++;
    put_string(&writer->values, key, key_length);
    put_number(&writer->values, 4, type);
    return at;
}

size_t gguf_writer_add_raw(gguf_writer *writer, const char *key, size_t key_length, uint32_t type,
                           const void *bytes, size_t n_bytes)
{
    const size_t at = begin_value(writer, key, key_length, type);
    put(&writer->values, bytes, n_bytes);
    return at;
}

size_t gguf_writer_add_u32(gguf_writer *writer, const char *key, uint32_t value)
{
    const size_t at = begin_value(writer, key, strlen(key), 4);
    put_number(&writer->values, 4, value);
    return at;
}

size_t gguf_writer_add_float(gguf_writer *writer, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const size_t at = begin_value(writer, key, strlen(key), 6);
    put_number(&writer->values, 4, bits);
    return at;
}

size_t gguf_writer_add_bool(gguf_writer *writer, const char *key, bool value)
{
    const size_t at = begin_value(writer, key, strlen(key), 7);
    put_number(&writer->values, 1, value);
    return at;
}

size_t gguf_writer_add_string(gguf_writer *writer, const char *key, const char *value)
{
    const size_t at = begin_value(writer, key, strlen(key), 8);
    put_string(&writer->values, value, strlen(value));
    return at;
}

static size_t begin_array(gguf_writer *writer, const char *key, uint32_t type, size_t count)
{
    const size_t at = begin_value(writer, key, strlen(key), 9);
    put_number(&writer->values, 4, type);
    put_number(&writer->values, 8, count);
    return at;
}

size_t gguf_writer_add_strings(gguf_writer *writer, const char *key, size_t count,
                               const char *const *values)
{
    const size_t at = begin_array(writer, key, 8, count);
    for (size_t i = 0; i < count; i++)
        put_string(&writer->values, values[i], strlen(values[i]));
    return at;
}

size_t gguf_writer_add_array(gguf_writer *writer, const char *key, uint32_t type, size_t count,
                             const void *elements, size_t n_bytes)
{
    const size_t at = begin_array(writer, key, type, count);
    put(&writer->values, elements, n_bytes);
    return at;
}

size_t gguf_writer_set_alignment(gguf_writer *writer, uint32_t n)
{
    writer->alignment = n;
    return gguf_writer_add_u32(writer, "general.alignment", n);
}

/* ---- tensors -------------------------------------------------------------------------------- */

size_t gguf_writer_add_description(gguf_writer *writer, const char *name, size_t name_length,
                                   uint32_t type, uint32_t n_dims, const uint64_t *dims,
                                   uint64_t offset)
{
    const size_t at = HEADER_SIZE + writer->values.size + writer->descriptions.size;
    writer->n_tensors++;
    put_string(&writer->descriptions, name, name_length);
    put_number(&writer->descriptions, 4, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        put_number(&writer->descriptions, 8, dims[i]);
    put_number(&writer->descriptions, 4, type);
    put_number(&writer->descriptions, 8, offset);
    return at;
}

size_t gguf_writer_add_tensor(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims,
                              const uint64_t *dims, const void *data, size_t n_bytes)
{
    put(&writer->data, NULL, align_up(writer->data.size, writer->alignment) - writer->data.size);
    const size_t at = gguf_writer_add_description(writer, name, strlen(name), type, n_dims, dims,
                                                  writer->data.size);
    put(&writer->data, data, n_bytes);
    return at;
}

void gguf_writer_add_data(gguf_writer *writer, size_t n)
{
    put(&writer->data, NULL, n);
}

/* ---- the result ----------------------------------------------------------------------------- */

gguf_writer *gguf_writer_create(uint32_t version)
{
    gguf_writer *writer = need(calloc(1, sizeof *writer));
    writer->version = version;
    writer->alignment = 32;
    return writer;
}

void gguf_writer_destroy(gguf_writer *writer)
{
    if (writer == NULL) return;
    free(writer->values.bytes);
    free(writer->descriptions.bytes);
    free(writer->data.bytes);
    free(writer);
}

unsigned char *gguf_writer_finish(const gguf_writer *writer, size_t *size)
{
    buffer file = {NULL, 0, 0};
    put(&file, "GGUF", 4);
    put_number(&file, 4, writer->version);
    put_number(&file, 8, writer->n_tensors);
    put_number(&file, 8, writer->n_values);
    put(&file, writer->values.bytes, writer->values.size);
    put(&file, writer->descriptions.bytes, writer->descriptions.size);
    if (writer->n_tensors > 0 || writer->data.size > 0)
        put(&file, NULL, align_up(file.size, writer->alignment) - file.size);
    put(&file, writer->data.bytes, writer->data.size);
    *size = file.size;
    return need(realloc(
        file.bytes, file.size)); /* exactly sized, so that sanitizers see the first byte too many */
}

void gguf_writer_save(const gguf_writer *writer, const char *path)
{
    size_t size = 0;
    unsigned char *bytes = gguf_writer_finish(writer, &size);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        fail("cannot write the file");
    free(bytes);
}
