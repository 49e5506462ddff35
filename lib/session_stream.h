/*
 * session_stream.h: a section on its way into memory.
 *
 * Bytes are asked for in the order of the file and are summed while they are in the cache: the checksum
 * is known when the last of them is where it belongs, so they must not be believed before that (rows are
 * in cells that nobody holds yet). Large pieces are read to where they go; what is asked for in small
 * ones, or has to be converted first, comes through a buffer. Pieces that lie together in memory
 * are joined, for every call of the system has a price.
 *
 * Once reading has failed nothing more is read; who uses a stream looks at has_failed.
 */
#ifndef CL_SESSION_STREAM_H
#define CL_SESSION_STREAM_H

#include "session.h"

#define CL_STREAM_BYTES 131072u /* what a buffer has at least */

typedef struct cl_stream {
    const cl_bytes *bytes;
    const cl_kernels *kernels;
    unsigned char *buffer; /* [size]; NULL: the bytes have an address */
    size_t size;
    uint64_t at, end;          /* the next byte of the session that is read; behind the last */
    const unsigned char *next; /* [n_ready] read and summed, not handed out yet */
    size_t n_ready;
    unsigned char *to; /* [n_wanted] where the next bytes go, when more is known */
    size_t n_wanted;
    uint32_t checksum;
    bool has_failed;
} cl_stream;

/* The bytes of an entry. A buffer, if one is needed, is as large as the largest piece to be taken. */
void cl_stream_begin(cl_stream *stream, const cl_session_entry *entry);

/* The next n bytes go to an address: by the time of cl_stream_end. */
void cl_stream_copy(cl_stream *stream, unsigned char *to, size_t n);

/* The next n bytes in one piece, valid until the next call. NULL: it has failed. */
const unsigned char *cl_stream_take(cl_stream *stream, size_t n);

/* The next n bytes are not needed, but for the checksum. */
void cl_stream_skip(cl_stream *stream, uint64_t n);

/* Everything is where it goes; what is left of the section is summed. CELLAR_CORRUPT, CELLAR_IO. */
cellar_status cl_stream_end(cl_stream *stream, const cl_session_entry *entry, cellar_error *error);

#endif /* CL_SESSION_STREAM_H */
