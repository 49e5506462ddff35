/*
 * session_stream.h: a section on its way into memory.
 *
 * Bytes are handed out in the order of the file, and summed right before that, a small piece at a time: so
 * they come into the nearest cache once, for both. The checksum is known when the last of them has been
 * handed out, so they must not be believed before that (rows are in cells that nobody holds yet).
 *
 * What has no address is read into a buffer, much at once. Reading to where it goes would save a copy,
 * but costs four times as much for pages that the system has not touched itself before (as measured on a
 * virtual machine, where it gained no more than a tenth for others).
 *
 * Once reading has failed nothing more is read; who uses a stream looks at has_failed.
 */
#ifndef CL_SESSION_STREAM_H
#define CL_SESSION_STREAM_H

#include "session.h"

typedef struct cl_stream {
    const cl_bytes *bytes;
    const cl_kernels *kernels;
    unsigned char *buffer; /* [size]; NULL: the bytes have an address */
    size_t size;
    const unsigned char *next; /* [n_summed + n_read] not handed out yet: first the summed ones */
    size_t n_summed, n_read;
    uint64_t at, end; /* the next byte of the session that is read; behind the last */
    uint32_t checksum;
    bool has_failed;
} cl_stream;

/* How large a buffer has to be for a section of so many bytes, of which `most` are taken at once. */
size_t cl_stream_size(uint64_t length, size_t most);

/* Begin with the bytes of an entry. */
void cl_stream_begin(cl_stream *stream, const cl_session_entry *entry);

/* Copy the next n bytes. */
void cl_stream_copy(cl_stream *stream, unsigned char *to, size_t n);

/* The next n bytes in one piece, valid until the next call. NULL: it has failed. */
const unsigned char *cl_stream_take(cl_stream *stream, size_t n);

/* The next n bytes are not needed, but for the checksum. */
void cl_stream_skip(cl_stream *stream, uint64_t n);

/* What is left of the section is summed, and the checksum compared. CELLAR_CORRUPT, CELLAR_IO. */
cellar_status cl_stream_end(cl_stream *stream, const cl_session_entry *entry, cellar_error *error);

#endif /* CL_SESSION_STREAM_H */
