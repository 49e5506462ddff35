/*
 * gguf_internal.h: what the parts of the GGUF reader share. Nobody else includes it.
 *
 *   gguf.c           bytes: files, mappings, the cursor, the header; opening and closing
 *   gguf_metadata.c  keys and values, typed reads
 *   gguf_tensors.c   tensor types, the tensor table, where the data lie
 *   gguf_names.c     look-up by name
 *
 * All parsing goes through a cursor, and the cursor's gguf_take is the only function that hands out
 * bytes: it compares what is wanted with what remains, so no other place has to. Sizes that come
 * out of a file are added and multiplied by the checked built-ins only.
 */
#ifndef APP_GGUF_INTERNAL_H
#define APP_GGUF_INTERNAL_H

#include "gguf.h"

#define GGUF_MAX_KEYS 65536u
#define GGUF_MAX_TENSORS 65536u
#define GGUF_MAX_KEY_LENGTH 65535u
#define GGUF_MAX_TENSOR_NAME 64u
#define GGUF_MAX_ARRAY (16u << 20)       /* elements of one array */
#define GGUF_MAX_STRINGS (4u << 20)      /* in all arrays of a file: 64 MiB of gguf_string */
#define GGUF_MAX_METADATA (256ull << 20) /* bytes before the tensor data */
#define GGUF_MIN_ALIGNMENT 8u            /* the specification's; it suits every element type */
#define GGUF_MAX_ALIGNMENT 65536u
#define GGUF_DEFAULT_ALIGNMENT 32u

/* Stop at the first call that does not return CELLAR_OK. */
#define GGUF_TRY(call)                                                                             \
    do {                                                                                           \
        const cellar_status try_status = (call);                                                   \
        if (try_status != CELLAR_OK) return try_status;                                            \
    } while (0)

/* ---- reading -------------------------------------------------------------------------------- */

/* A place in the file's metadata. */
typedef struct gguf_cursor {
    const unsigned char *data; /* the first `available` bytes of the file */
    uint64_t at;               /* <= available */
    uint64_t available;        /* <= size */
    uint64_t size;             /* of the whole file */
    bool is_short;             /* a field lies beyond `available`, inside the file: start over */
    uint64_t wanted;           /* how many bytes have to be available for that field */
    gguf_string subject;       /* the key or tensor that is being read; perhaps empty */
    cellar_error *error;
} gguf_cursor;

/* *out = the next n bytes. CELLAR_CORRUPT, naming `field`, if the file ends before them. */
cellar_status gguf_take(gguf_cursor *cursor, uint64_t n, const char *field,
                        const unsigned char **out);
cellar_status gguf_take_u32(gguf_cursor *cursor, const char *field, uint32_t *out);
cellar_status gguf_take_u64(gguf_cursor *cursor, const char *field, uint64_t *out);
/* A length of 64 bits and as many bytes. */
cellar_status gguf_take_string(gguf_cursor *cursor, const char *field, gguf_string *out);

/* Bytes of the file after the cursor. */
static inline uint64_t gguf_remaining(const gguf_cursor *cursor)
{
    return cursor->size - cursor->at;
}

static inline uint16_t gguf_read_u16(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static inline uint32_t gguf_read_u32(const unsigned char *bytes)
{
    return gguf_read_u16(bytes) | (uint32_t)gguf_read_u16(bytes + 2) << 16;
}

static inline uint64_t gguf_read_u64(const unsigned char *bytes)
{
    return gguf_read_u32(bytes) | (uint64_t)gguf_read_u32(bytes + 4) << 32;
}

/* Report a failure at a byte of the file; the message gets " (byte N)" at its end. */
cellar_status gguf_refuse(cellar_error *error, cellar_status status, uint64_t at,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * Arguments for "%.*s": at most 80 bytes of a name. report() takes care of what is not printable.
 */
#define GGUF_SHOW(string) (int)((string).length < 80 ? (string).length : 80), (string).data

/* ---- names ---------------------------------------------------------------------------------- */

typedef struct gguf_name_slot {
    const gguf_string *name; /* NULL: empty */
    uint32_t tag;            /* the upper half of the hash: saves most comparisons */
    uint32_t index;
} gguf_name_slot;

/* A hash table of names that live elsewhere and do not move. */
typedef struct gguf_names {
    gguf_name_slot *slots; /* a power of two of them, at most half full */
    uint64_t mask;
    uint64_t seed[2];
} gguf_names;

/* Room for n names. CELLAR_NO_MEMORY. */
cellar_status gguf_names_create(gguf_names *names, uint32_t n, cellar_error *error);
void gguf_names_destroy(gguf_names *names);
/* Add a name; false, and nothing is added, if it is there already. */
bool gguf_names_insert(gguf_names *names, const gguf_string *name, uint32_t index);
bool gguf_names_find(const gguf_names *names, const char *name, size_t length, uint32_t *index);

/* ---- the file ------------------------------------------------------------------------------- */

struct gguf_file {
    uint64_t size;
    uint32_t version;
    uint32_t alignment;
    uint64_t data_start; /* where tensor data may begin: the end of the metadata, rounded up */

    void *metadata; /* our copy of the bytes before data_start; NULL: the caller's memory is used */
    void *mapping;  /* the tensor data: the file itself mapped, or a copy; NULL: none */
    size_t mapping_size;

    gguf_value *values; /* [n_values] */
    gguf_string
        *strings; /* [n_values] the text of a value that is one string; unused for the others */
    uint32_t n_values;        /* parsed so far */
    uint64_t n_array_strings; /* strings in all arrays so far, <= GGUF_MAX_STRINGS */
    gguf_names value_names;

    gguf_tensor *tensors; /* [n_tensors] */
    uint32_t n_tensors;
    gguf_names tensor_names;
};

/* Parse n keys and values. */
cellar_status gguf_parse_values(gguf_file *file, gguf_cursor *cursor, uint32_t n);
void gguf_free_values(gguf_file *file);

/*
 * Parse n tensor descriptions, find the start of the data, check every extent. `data` pointers stay
 * NULL.
 */
cellar_status gguf_parse_tensors(gguf_file *file, gguf_cursor *cursor, uint32_t n);
void gguf_free_tensors(gguf_file *file);

#endif /* APP_GGUF_INTERNAL_H */
