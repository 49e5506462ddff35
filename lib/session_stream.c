/*
 * session_stream.c: read, sum, hand out; see the header.
 *
 *     section   | handed out | summed | read | not read yet |
 *                            next            at             end
 *
 * Bytes that have an address are as good as read. A buffer is about as large as a section of rows, and
 * smaller than a cache of the second level: a call of the system takes as long as copying tens of
 * kilobytes.
 */
#include "session_stream.h"

#include <string.h>

#include "error.h"

enum {
    MOST = 1 << 20, /* bytes that are read in one call */
    PIECE = 32768   /* that are summed and then used */
};

size_t cl_stream_size(uint64_t length, size_t most)
{
    const size_t n = length < MOST ? (size_t)length : MOST;
    return most > n ? most : n;
}

void cl_stream_begin(cl_stream *stream, const cl_session_entry *entry)
{
    stream->at = entry->offset;
    stream->end = entry->offset + entry->length;
    stream->n_summed = stream->n_read = 0;
    stream->checksum = 0;
    stream->has_failed = false;
    if (stream->buffer) return;
    stream->next = stream->bytes->address + stream->at;
    stream->n_read = (size_t)entry->length;
    stream->at = stream->end;
}

/* Fill the buffer behind what it still has. */
static bool read_more(cl_stream *stream)
{
    const cellar_reader *reader = &stream->bytes->reader;
    const size_t kept = stream->n_summed + stream->n_read;
    size_t n = stream->size - kept;
    if (n > stream->end - stream->at) n = (size_t)(stream->end - stream->at);
    if (kept > 0) memmove(stream->buffer, stream->next, kept);
    stream->next = stream->buffer;
    stream->has_failed = n == 0 || /* never: a section has the bytes of its rows */
                         !reader->read(reader->context, stream->at, stream->buffer + kept, n);
    if (stream->has_failed) return false;
    stream->at += n;
    stream->n_read += n;
    return true;
}

/* At least n bytes are summed, which the section has and the buffer has room for. */
static bool sum_up(cl_stream *stream, size_t n)
{
    if (stream->has_failed) return false;
    if (n > stream->n_summed + stream->n_read && !read_more(stream)) return false;
    size_t some = n > stream->n_summed + PIECE ? n - stream->n_summed : PIECE;
    if (some > stream->n_read) some = stream->n_read;
    stream->checksum = stream->kernels->crc32c(stream->checksum, stream->next + stream->n_summed,
                                               some);
    stream->n_summed += some;
    stream->n_read -= some;
    return true;
}

static const unsigned char *hand_out(cl_stream *stream, size_t n)
{
    const unsigned char *bytes = stream->next;
    stream->next += n;
    stream->n_summed -= n;
    return bytes;
}

void cl_stream_copy(cl_stream *stream, unsigned char *to, size_t n)
{
    while (n > 0 && (stream->n_summed > 0 || sum_up(stream, 1))) {
        const size_t some = n < stream->n_summed ? n : stream->n_summed;
        memcpy(to, hand_out(stream, some), some);
        to += some;
        n -= some;
    }
}

const unsigned char *cl_stream_take(cl_stream *stream, size_t n)
{
    while (n > stream->n_summed)
        if (!sum_up(stream, n)) return NULL;
    return hand_out(stream, n);
}

void cl_stream_skip(cl_stream *stream, uint64_t n)
{
    while (n > 0 && (stream->n_summed > 0 || sum_up(stream, 1))) {
        const size_t some = n < stream->n_summed ? (size_t)n : stream->n_summed;
        (void)hand_out(stream, some);
        n -= some;
    }
}

cellar_status cl_stream_end(cl_stream *stream, const cl_session_entry *entry, cellar_error *error)
{
    cl_stream_skip(stream, stream->n_summed + stream->n_read + (stream->end - stream->at));
    if (stream->has_failed)
        CL_FAIL(error, CELLAR_IO, (int64_t)entry->offset,
                "%llu bytes at %llu of the session could not be read",
                (unsigned long long)entry->length, (unsigned long long)entry->offset);
    if (stream->checksum != entry->checksum)
        CL_FAIL_BECAUSE(error, CELLAR_CORRUPT, CELLAR_REASON_NONE, (int64_t)entry->offset,
                        "the section at %llu is damaged: its checksum differs",
                        (unsigned long long)entry->offset);
    return CELLAR_OK;
}
