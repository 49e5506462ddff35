/*
 * session_format.h: the numbers of the session file, and how to put and get them.
 *
 * docs/session-format.md says what they mean; here they have names. Everything is little-endian
 * whatever the machine, read and written byte by byte, so that no struct of ours is ever laid over a
 * file. Who reads goes through a cl_cursor: it ends where its section ends, and once it was asked for
 * more than there is it stays failed, so that a reader may look at the end of a record once.
 */
#ifndef CL_SESSION_FORMAT_H
#define CL_SESSION_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CL_SESSION_VERSION 1u
#define CL_SESSION_HEADER 256u  /* bytes */
#define CL_SESSION_COMMIT 64u   /* bytes of a commit record */
#define CL_SESSION_COMMIT_A 64u /* where it begins */
#define CL_SESSION_COMMIT_B 128u
#define CL_SESSION_ALIGN 64u         /* sections begin at multiples of it */
#define CL_SESSION_INDEX 0x58444943u /* "CIDX" */
#define CL_SESSION_INDEX_HEAD 8u
#define CL_SESSION_INDEX_TAIL 8u
#define CL_SESSION_ENTRY 40u
#define CL_SESSION_GROUP 20u  /* bytes of a group in MODEL */
#define CL_SESSION_LAYER 160u /* of a layer, before its factors and sizes */
#define CL_SESSION_RUN 16u
#define CL_SESSION_TILE 32u /* cells of an attention group whose rows lie together */
#define CL_SESSION_NOTE_NAME 255u
#define CL_SESSION_NOTE_VALUE (16u << 20)

typedef enum cl_session_kind {
    CL_SESSION_MODEL = 1,
    CL_SESSION_NOTES = 2,
    CL_SESSION_TOKENS = 3,
    CL_SESSION_CELLS = 4,
    CL_SESSION_ROWS = 5,
    CL_SESSION_SEQUENCES = 6,
} cl_session_kind;

static const unsigned char cl_session_magic[8] = {'C', 'E', 'L', 'L', 'A', 'R', '\r', '\n'};

/* An entry of the index. */
typedef struct cl_session_entry {
    uint32_t kind, part, first, count;
    uint64_t offset, length;
    uint32_t checksum;
} cl_session_entry;

/* A commit record. */
typedef struct cl_session_commit {
    uint64_t generation, length, index_offset, index_length;
} cl_session_commit;

/* ---- putting --------------------------------------------------------------------------------- */

static inline unsigned char *cl_put_u16(unsigned char *to, uint16_t value)
{
    to[0] = (unsigned char)value;
    to[1] = (unsigned char)(value >> 8);
    return to + 2;
}

static inline unsigned char *cl_put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> 8 * i);
    return to + 4;
}

static inline unsigned char *cl_put_u64(unsigned char *to, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(value >> 8 * i);
    return to + 8;
}

static inline unsigned char *cl_put_i32(unsigned char *to, int32_t value)
{
    return cl_put_u32(to, (uint32_t)value);
}

static inline unsigned char *cl_put_f32(unsigned char *to, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return cl_put_u32(to, bits);
}

static inline unsigned char *cl_put_f64(unsigned char *to, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return cl_put_u64(to, bits);
}

/* ---- getting --------------------------------------------------------------------------------- */

static inline uint32_t cl_get_u32(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

static inline uint64_t cl_get_u64(const unsigned char *from)
{
    return (uint64_t)cl_get_u32(from) | (uint64_t)cl_get_u32(from + 4) << 32;
}

static inline uint16_t cl_get_u16(const unsigned char *from)
{
    return (uint16_t)(from[0] | from[1] << 8);
}

/* Bytes that are being read. */
typedef struct cl_cursor {
    const unsigned char *at, *end;
    bool has_failed; /* more was asked for than there was; everything since is 0 */
} cl_cursor;

static inline size_t cl_cursor_left(const cl_cursor *cursor)
{
    return (size_t)(cursor->end - cursor->at);
}

/* n bytes, or NULL. */
static inline const unsigned char *cl_take(cl_cursor *cursor, size_t n)
{
    if (cursor->has_failed || n > cl_cursor_left(cursor)) {
        cursor->has_failed = true;
        return NULL;
    }
    const unsigned char *at = cursor->at;
    cursor->at += n;
    return at;
}

static inline uint32_t cl_take_u32(cl_cursor *cursor)
{
    const unsigned char *at = cl_take(cursor, 4);
    return at ? cl_get_u32(at) : 0;
}

static inline uint64_t cl_take_u64(cl_cursor *cursor)
{
    const unsigned char *at = cl_take(cursor, 8);
    return at ? cl_get_u64(at) : 0;
}

static inline int32_t cl_take_i32(cl_cursor *cursor)
{
    return (int32_t)cl_take_u32(cursor);
}

static inline float cl_take_f32(cl_cursor *cursor)
{
    uint32_t bits = cl_take_u32(cursor);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double cl_take_f64(cl_cursor *cursor)
{
    uint64_t bits = cl_take_u64(cursor);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif /* CL_SESSION_FORMAT_H */
