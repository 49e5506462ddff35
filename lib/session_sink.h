/*
 * session_sink.h: where the bytes of a session go while it is written.
 *
 * Pieces are gathered in a buffer, so that the writer gets large ones at round places of the file. The
 * checksum of the section that is being written is kept on the way. A sink without a writer only
 * counts, so that what measures a session and what writes it are the same lines. Once the writer has
 * failed nothing more is written; whoever writes looks at has_failed at the end of a section.
 */
#ifndef CL_SESSION_SINK_H
#define CL_SESSION_SINK_H

#include "kernels.h"
#include "session_format.h"

#include "alloc.h"

#define CL_SINK_BYTES 262144u /* of the buffer; a multiple of any page */

typedef struct cl_sink {
    const cellar_writer *writer; /* NULL: only counted */
    const cl_kernels *kernels;
    uint64_t at;           /* bytes that were put, header included */
    unsigned char *buffer; /* [CL_SINK_BYTES] */
    size_t used;           /* of the buffer */
    size_t n_summed;       /* of these, in `checksum` already */
    uint32_t checksum;     /* of the section so far */
    bool has_failed;
} cl_sink;

/* A sink that begins at byte `at` of a file. writer NULL: it counts. False: no memory. */
bool cl_sink_open(cl_sink *sink, const cellar_writer *writer, const cl_kernels *kernels,
                  uint64_t at, cl_alloc *alloc);
void cl_sink_close(cl_sink *sink, cl_alloc *alloc);

void cl_sink_put(cl_sink *sink, const void *bytes, size_t n);
void cl_sink_put_u32(cl_sink *sink, uint32_t value);
void cl_sink_put_i32s(cl_sink *sink, const int32_t *values, size_t n);

/* Zeros up to a multiple of align, a power of two. */
void cl_sink_align(cl_sink *sink, uint32_t align);

/* Count n bytes that come from elsewhere; only for sinks without a writer. */
static inline void cl_sink_count(cl_sink *sink, uint64_t n)
{
    sink->at += n;
}

/*
 * Room for n bytes (at most CL_SINK_BYTES) in the buffer, to be filled in at once by the caller and then
 * told with cl_sink_filled; not for sinks without a writer.
 */
unsigned char *cl_sink_room(cl_sink *sink, size_t n);
static inline void cl_sink_filled(cl_sink *sink, size_t n)
{
    sink->used += n;
    sink->at += n;
}

/* Begin a checksum here; the checksum of everything since then. */
void cl_sink_begin_sum(cl_sink *sink);
uint32_t cl_sink_sum(cl_sink *sink);

/* Hand over what is in the buffer. False: the writer has failed, now or before. */
bool cl_sink_flush(cl_sink *sink);

#endif /* CL_SESSION_SINK_H */
