/*
 * session_stream.c: read, sum, hand out; see the header.
 *
 *     section   | handed out | ready: read and summed | not read yet |
 *                            next                     at             end
 *
 * A piece that goes straight to memory is read there and summed there, before the next one is read: it
 * is still in the cache then. Its size is a compromise: less than a cache of the second level has, and
 * so much that calls of the system do not count.
 */
#include "session_stream.h"

#include <string.h>

#include "error.h"

enum {
    PIECE = 262144, /* bytes that are read to where they go in one call */
    SUMMED = 32768, /* that are summed and then copied, if they have an address */
    DIRECT = 16384  /* less goes through the buffer */
};

void cl_stream_begin(cl_stream *stream, const cl_session_entry *entry)
{
    stream->at = entry->offset;
    stream->end = entry->offset + entry->length;
    stream->n_ready = stream->n_wanted = 0;
    stream->checksum = 0;
    stream->has_failed = false;
}

static void sum(cl_stream *stream, const unsigned char *bytes, size_t n)
{
    stream->checksum = stream->kernels->crc32c(stream->checksum, bytes, n);
    stream->at += n;
}

static bool read_to(cl_stream *stream, unsigned char *to, size_t n)
{
    const cellar_reader *reader = &stream->bytes->reader;
    stream->has_failed = !reader->read(reader->context, stream->at, to, n);
    if (!stream->has_failed) sum(stream, to, n);
    return !stream->has_failed;
}

/* More bytes are ready, at least `least` of them in all, which the section and the buffer have. */
static bool make_ready(cl_stream *stream, size_t least)
{
    const uint64_t left = stream->end - stream->at;
    size_t n = stream->buffer ? stream->size - stream->n_ready : SUMMED;
    if (stream->n_ready < least && n < least - stream->n_ready) n = least - stream->n_ready;
    if (n > left) n = (size_t)left;
    if (!stream->buffer) {
        stream->next = stream->bytes->address + stream->at - stream->n_ready;
        sum(stream, stream->bytes->address + stream->at, n);
    } else {
        if (stream->n_ready > 0) memmove(stream->buffer, stream->next, stream->n_ready);
        stream->next = stream->buffer;
        if (!read_to(stream, stream->buffer + stream->n_ready, n)) return false;
    }
    stream->n_ready += n;
    return true;
}

static size_t hand_out(cl_stream *stream, unsigned char *to, size_t n)
{
    if (n > stream->n_ready) n = stream->n_ready;
    if (n > 0) memcpy(to, stream->next, n);
    stream->next += n;
    stream->n_ready -= n;
    return n;
}

/* Never: a section has the bytes of its rows. */
static bool has_left(cl_stream *stream, uint64_t n)
{
    if (n > stream->n_ready + (stream->end - stream->at)) stream->has_failed = true;
    return !stream->has_failed;
}

/* The first n bytes of what is wanted, now. */
static void fetch(cl_stream *stream, size_t n)
{
    stream->n_wanted -= n;
    if (!has_left(stream, n)) return;
    for (;;) {
        const size_t done = hand_out(stream, stream->to, n);
        stream->to += done;
        n -= done;
        if (n == 0) return;
        if (stream->buffer && n >= DIRECT) {
            if (!read_to(stream, stream->to, n)) return;
            stream->to += n;
            return;
        }
        if (!make_ready(stream, 1)) return;
    }
}

static void fetch_all(cl_stream *stream)
{
    if (stream->n_wanted > 0) fetch(stream, stream->n_wanted);
}

void cl_stream_copy(cl_stream *stream, unsigned char *to, size_t n)
{
    if (stream->n_wanted == 0 && n <= stream->n_ready) {
        (void)hand_out(stream, to, n);
        return;
    }
    if (stream->n_wanted == 0 || stream->to + stream->n_wanted != to) {
        fetch_all(stream);
        stream->to = to;
    }
    stream->n_wanted += n;
    while (stream->n_wanted >= PIECE)
        fetch(stream, PIECE);
}

const unsigned char *cl_stream_take(cl_stream *stream, size_t n)
{
    fetch_all(stream);
    if (!has_left(stream, n)) return NULL;
    if (n > stream->n_ready && !make_ready(stream, n)) return NULL;
    const unsigned char *bytes = stream->next;
    stream->next += n;
    stream->n_ready -= n;
    return bytes;
}

void cl_stream_skip(cl_stream *stream, uint64_t n)
{
    fetch_all(stream);
    while (n > 0 && has_left(stream, n)) {
        if (stream->n_ready == 0 && !make_ready(stream, 1)) return;
        const size_t some = n < stream->n_ready ? (size_t)n : stream->n_ready;
        stream->next += some;
        stream->n_ready -= some;
        n -= some;
    }
}

cellar_status cl_stream_end(cl_stream *stream, const cl_session_entry *entry, cellar_error *error)
{
    fetch_all(stream);
    cl_stream_skip(stream, stream->n_ready + (stream->end - stream->at));
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
