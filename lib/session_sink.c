/*
 * session_sink.c: a buffer, a checksum and a writer.
 *
 * Bytes in the buffer are summed when they leave it or when the sum is asked for, many at once. It is
 * handed over when the file has reached a multiple of its size: a file system takes pieces that begin and
 * end with its pages, and are large, for half of the time that it needs for others. Copying costs less than
 * that: what is copied has to come into the cache for its checksum anyway.
 */
#include "session_sink.h"

bool cl_sink_open(cl_sink *sink, const cellar_writer *writer, const cl_kernels *kernels,
                  uint64_t at, cl_alloc *alloc)
{
    *sink = (cl_sink){.writer = writer, .kernels = kernels, .at = at};
    if (!writer) return true;
    sink->buffer = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, CL_SINK_BYTES);
    return sink->buffer != NULL;
}

void cl_sink_close(cl_sink *sink, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, sink->buffer, CL_SINK_BYTES);
    sink->buffer = NULL;
}

static void sum_up(cl_sink *sink)
{
    size_t n = sink->used - sink->n_summed;
    if (n == 0) return;
    sink->checksum = sink->kernels->crc32c(sink->checksum, sink->buffer + sink->n_summed, n);
    sink->n_summed = sink->used;
}

static void write_out(cl_sink *sink, const void *bytes, size_t n)
{
    if (sink->has_failed || n == 0) return;
    sink->has_failed = !sink->writer->write(sink->writer->context, bytes, n);
}

bool cl_sink_flush(cl_sink *sink)
{
    if (!sink->writer) return true;
    sum_up(sink);
    write_out(sink, sink->buffer, sink->used);
    sink->used = sink->n_summed = 0;
    return !sink->has_failed;
}

/* Whole buffers' worth that begins where a buffer may be empty: from where it lies. */
static size_t put_directly(cl_sink *sink, const unsigned char *bytes, size_t n)
{
    if (sink->used > 0 || sink->at % CL_SINK_BYTES != 0 || n < CL_SINK_BYTES) return 0;
    n -= n % CL_SINK_BYTES;
    sink->checksum = sink->kernels->crc32c(sink->checksum, bytes, n);
    write_out(sink, bytes, n);
    sink->at += n;
    return n;
}

/* As much as fits before the buffer is full, or the file at a multiple of its size. */
static size_t put_gathered(cl_sink *sink, const unsigned char *bytes, size_t n)
{
    size_t room = CL_SINK_BYTES - (size_t)(sink->at % CL_SINK_BYTES);
    if (room > CL_SINK_BYTES - sink->used) room = CL_SINK_BYTES - sink->used;
    if (n > room) n = room;
    memcpy(sink->buffer + sink->used, bytes, n);
    cl_sink_filled(sink, n);
    if (n == room) (void)cl_sink_flush(sink);
    return n;
}

void cl_sink_put(cl_sink *sink, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    if (!sink->writer) {
        sink->at += n;
        return;
    }
    while (n > 0) {
        size_t done = put_directly(sink, from, n);
        if (done == 0) done = put_gathered(sink, from, n);
        from += done;
        n -= done;
    }
}

unsigned char *cl_sink_room(cl_sink *sink, size_t n)
{
    if (n > CL_SINK_BYTES - sink->used) (void)cl_sink_flush(sink);
    return sink->buffer + sink->used;
}

void cl_sink_put_u32(cl_sink *sink, uint32_t value)
{
    unsigned char bytes[4];
    cl_put_u32(bytes, value);
    cl_sink_put(sink, bytes, sizeof bytes);
}

void cl_sink_put_i32s(cl_sink *sink, const int32_t *values, size_t n)
{
    unsigned char bytes[256];
    if (!sink->writer) {
        sink->at += 4 * (uint64_t)n;
        return;
    }
    while (n > 0) {
        size_t some = n < sizeof bytes / 4 ? n : sizeof bytes / 4;
        for (size_t i = 0; i < some; i++)
            cl_put_i32(bytes + 4 * i, values[i]);
        cl_sink_put(sink, bytes, 4 * some);
        values += some;
        n -= some;
    }
}

void cl_sink_align(cl_sink *sink, uint32_t align)
{
    static const unsigned char zeros[CL_SESSION_ALIGN];
    cl_sink_put(sink, zeros, (size_t)(-sink->at & (align - 1)));
}

void cl_sink_begin_sum(cl_sink *sink)
{
    sink->checksum = 0;
    sink->n_summed = sink->used;
}

uint32_t cl_sink_sum(cl_sink *sink)
{
    if (sink->writer) sum_up(sink);
    return sink->checksum;
}
