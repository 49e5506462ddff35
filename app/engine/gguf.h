/*
 * gguf.h: read a GGUF file (versions 2 and 3, little-endian) without believing a word of it.
 *
 * gguf_open checks every field against the bytes that remain before anything is multiplied,
 * allocated or followed. After CELLAR_OK everything reachable through these calls is memory of the
 * opened file, valid until gguf_close, and strings are length-counted. A refused file gives the
 * status, the offset (error->at) and, in the message, the field. Format: the GGUF specification in
 * the ggml project's documentation.
 *
 * Bounds: keys of 1 to 65,535 bytes of UTF-8 without NUL, at most 65,536 keys and as many tensors,
 * arrays up to 16 M elements, 4 M strings in all arrays together, metadata up to 256 MiB, alignment
 * a power of two from 8 (the specification's minimum) to 65,536, tensors of 1 to 4 dimensions, each
 * >= 1, whose data do not overlap. Memory beyond the copy of the metadata stays below 96 MiB.
 * Look-up by name is a hash table; loading is linear in the metadata. Read-only after opening: any
 * number of threads may use it.
 *
 * The metadata are a copy, the tensor data are mapped. If another program truncates the file while
 * it is open, reading the tensor data that are gone raises SIGBUS; nothing else is affected.
 * gguf_load is free of that.
 */
#ifndef APP_GGUF_H
#define APP_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cellar.h"

/* Types of metadata values, by their numbers in the file. */
typedef enum gguf_type {
    GGUF_UINT8 = 0,
    GGUF_INT8 = 1,
    GGUF_UINT16 = 2,
    GGUF_INT16 = 3,
    GGUF_UINT32 = 4,
    GGUF_INT32 = 5,
    GGUF_FLOAT32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_UINT64 = 10,
    GGUF_INT64 = 11,
    GGUF_FLOAT64 = 12
} gguf_type;

/*
 * Bytes of the file: not NUL-terminated; a value or a tensor's name is perhaps not UTF-8 (a key
 * always is).
 */
typedef struct gguf_string {
    const char *data;
    size_t length;
} gguf_string;

typedef struct gguf_tensor {
    gguf_string name;
    uint32_t n_dims;     /* 1..4 */
    uint64_t dims[4];    /* dims[0] runs fastest (the length of a row); unused ones are 1 */
    uint32_t type;       /* as in the file; its block size is known (gguf_type_block) */
    uint64_t n_elements; /* product of dims */
    uint64_t n_bytes;    /* wholly inside the file */
    const void *data;    /* aligned as in the file up to a page, in gguf_open_memory's bytes to 8 */
    uint64_t offset;     /* of data from the start of the file */
} gguf_tensor;

typedef struct gguf_file gguf_file;

/*
 * Open and check a file. On success *file is the caller's, for gguf_close; else NULL. CELLAR_IO
 * (also for anything but a regular file), CELLAR_CORRUPT, CELLAR_UNSUPPORTED, CELLAR_NO_MEMORY.
 */
cellar_status gguf_open(const char *path, gguf_file **file, cellar_error *error);

/*
 * The same, but the tensor data are read into memory too: no SIGBUS, at the price of the file's
 * size in memory.
 */
cellar_status gguf_load(const char *path, gguf_file **file, cellar_error *error);

/*
 * The same for bytes in memory, aligned to 8, which must outlive the file (the built-in model;
 * tests). CELLAR_INVALID.
 */
cellar_status gguf_open_memory(const void *data, size_t size, gguf_file **file,
                               cellar_error *error);

/* Unmap and free. NULL is allowed. */
void gguf_close(gguf_file *file);

uint32_t gguf_version(const gguf_file *file);
uint64_t gguf_size(const gguf_file *file);      /* of the whole file, bytes */
uint32_t gguf_alignment(const gguf_file *file); /* of tensor data, bytes */

/* ---- metadata ------------------------------------------------------------------------------- */

/* A key with its value. For an array: element type and count. */
typedef struct gguf_value {
    gguf_string key;
    gguf_type type;
    gguf_type element_type;     /* of an array, else the type itself */
    uint64_t count;             /* of an array, else 1 */
    const unsigned char *data;  /* first element, unaligned, little-endian */
    const gguf_string *strings; /* [count] for strings and arrays of strings, else NULL */
    uint64_t offset;            /* of the value in the file, for messages */
} gguf_value;

uint32_t gguf_count_values(const gguf_file *file);
const gguf_value *gguf_value_at(const gguf_file *file, uint32_t index);

/* NULL if there is no such key. */
const gguf_value *gguf_find_value(const gguf_file *file, const char *key);

/*
 * Typed reads. A missing key leaves *out alone and returns CELLAR_NOT_FOUND (message "no key ...");
 * a value of another type, or one that does not fit, is CELLAR_CORRUPT naming key, expected and
 * found. Integers: any integer type whose value fits. get_float: float32 or float64. get_string:
 * *out is valid until gguf_close.
 */
cellar_status gguf_get_u32(const gguf_file *file, const char *key, uint32_t *out,
                           cellar_error *error);
cellar_status gguf_get_float(const gguf_file *file, const char *key, double *out,
                             cellar_error *error);
cellar_status gguf_get_bool(const gguf_file *file, const char *key, bool *out, cellar_error *error);
cellar_status gguf_get_string(const gguf_file *file, const char *key, gguf_string *out,
                              cellar_error *error);
/* An array whose elements are of type `element`; count_wanted 0: any count. */
cellar_status gguf_get_array(const gguf_file *file, const char *key, gguf_type element,
                             uint64_t count_wanted, const gguf_value **out, cellar_error *error);

/*
 * Element i of a numeric value, converted; i < count. number_at takes any numeric type; integer_at
 * any integer type or bool, and returns INT64_MAX for a uint64 that is larger.
 */
double gguf_number_at(const gguf_value *value, uint64_t i);
int64_t gguf_integer_at(const gguf_value *value, uint64_t i);

/* ---- tensors -------------------------------------------------------------------------------- */

uint32_t gguf_count_tensors(const gguf_file *file);
const gguf_tensor *gguf_tensor_at(const gguf_file *file, uint32_t index);
const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name); /* NULL: none */

/* Name and block geometry of a tensor type; false: not a type this program knows. */
bool gguf_type_block(uint32_t type, const char **name, uint32_t *block, uint32_t *block_bytes);
/* "uint32", "string", ... or "unknown". */
const char *gguf_type_name(gguf_type type);

#endif /* APP_GGUF_H */
