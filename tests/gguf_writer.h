/*
 * gguf_writer.h: make GGUF files for tests, good ones and bad ones.
 *
 *     gguf_writer *writer = gguf_writer_create(3);
 *     gguf_writer_add_string(writer, "general.architecture", "llama");
 *     gguf_writer_add_u32(writer, "llama.block_count", 2);
 *     gguf_writer_add_tensor(writer, "norm.weight", 0, 1, (uint64_t[]){64}, weights, 256);
 *     gguf_writer_save(writer, path);             // or: bytes = gguf_writer_finish(writer, &size);
 *     gguf_writer_destroy(writer);
 *
 * All keys come before the first tensor. Each gguf_writer_add_... returns the place in the file
 * where the record begins, from which tests know where the reader must stop:
 *
 *     key:     length 8 | key | type 4 | value
 *     array:   element type 4 | count 8 | elements        (a value of type 9)
 *     tensor:  length 8 | name | n_dims 4 | n_dims * 8 | type 4 | offset 8
 *
 * Nothing is checked: the raw calls write any type, length and count. For tests only: without
 * memory, or when a file cannot be written, the program ends with a message.
 */
#ifndef TESTS_GGUF_WRITER_H
#define TESTS_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gguf_writer gguf_writer;

gguf_writer *gguf_writer_create(uint32_t version);
void gguf_writer_destroy(gguf_writer *writer);

/* Align tensor data to n bytes (32 otherwise) and add general.alignment. */
size_t gguf_writer_set_alignment(gguf_writer *writer, uint32_t n);

/* ---- keys ----------------------------------------------------------------------------------- */

size_t gguf_writer_add_u32(gguf_writer *writer, const char *key, uint32_t value);
size_t gguf_writer_add_float(gguf_writer *writer, const char *key, float value);
size_t gguf_writer_add_bool(gguf_writer *writer, const char *key, bool value);
size_t gguf_writer_add_string(gguf_writer *writer, const char *key, const char *value);
size_t gguf_writer_add_strings(gguf_writer *writer, const char *key, size_t count,
                               const char *const *values);
/* Numbers of the given GGUF type, in n_bytes bytes, little-endian. */
size_t gguf_writer_add_array(gguf_writer *writer, const char *key, uint32_t type, size_t count,
                             const void *elements, size_t n_bytes);
/* Any key, any type, any bytes after the type. */
size_t gguf_writer_add_raw(gguf_writer *writer, const char *key, size_t key_length, uint32_t type,
                           const void *bytes, size_t n_bytes);

/* ---- tensors -------------------------------------------------------------------------------- */

/*
 * A tensor with its data (NULL: zeros) at the next aligned place. dims[0] is the length of a row.
 */
size_t gguf_writer_add_tensor(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims,
                              const uint64_t *dims, const void *data, size_t n_bytes);
/* A description alone, at any offset from the start of the data. */
size_t gguf_writer_add_description(gguf_writer *writer, const char *name, size_t name_length,
                                   uint32_t type, uint32_t n_dims, const uint64_t *dims,
                                   uint64_t offset);
/* n zero bytes of tensor data. */
void gguf_writer_add_data(gguf_writer *writer, size_t n);

/* ---- the result ----------------------------------------------------------------------------- */

/*
 * The whole file, exactly sized, from malloc; the caller frees it. May be called again after more
 * was added.
 */
unsigned char *gguf_writer_finish(const gguf_writer *writer, size_t *size);
void gguf_writer_save(const gguf_writer *writer, const char *path);

/* Overwrite `width` bytes (1..8) at a place with a number, little-endian. */
void gguf_writer_patch(unsigned char *file, size_t at, unsigned width, uint64_t value);

#endif /* TESTS_GGUF_WRITER_H */
