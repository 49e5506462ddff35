/*
 * support_session.c: see the header.
 *
 * Written from docs/session-format.md: offsets of the header and of the index stand here once more, as
 * numbers of that page, so that a slip in the library is not repeated in its tests.
 */
#include "support_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { HEADER = 256, COMMIT_A = 64, ALIGN = 64, ENTRY = 40 };

static void *grab(size_t size)
{
    void *block = malloc(size ? size : 1);
    if (!block) {
        fprintf(stderr, "support_session: no memory\n");
        exit(2);
    }
    return block;
}

static uint32_t sum_of(const unsigned char *bytes, size_t n)
{
    cl_kernels kernels;
    cl_kernels_fill(&kernels, CELLAR_CPU_SCALAR);
    return kernels.crc32c(0, bytes, n);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

unsigned char *parcel_exact(const unsigned char *bytes, size_t size)
{
    unsigned char *block = grab(size);
    if (size > 0) memcpy(block, bytes, size);
    return block;
}

static void reserve(parcel *p, size_t size)
{
    if (size <= p->capacity) return;
    size_t capacity = size > 2 * p->capacity ? size : 2 * p->capacity;
    unsigned char *bytes = grab(capacity);
    if (p->size > 0) memcpy(bytes, p->bytes, p->size);
    free(p->bytes);
    p->bytes = bytes;
    p->capacity = capacity;
}

static bool append(void *context, const void *bytes, size_t size)
{
    parcel *p = context;
    reserve(p, p->size + size);
    if (size > 0) memcpy(p->bytes + p->size, bytes, size);
    p->size += size;
    return true;
}

cellar_status parcel_write(parcel *to, const cellar_memory *memory,
                           const cellar_save_options *options, cellar_error *error)
{
    cellar_save_options everything = cellar_save_options_init();
    cellar_writer writer = {append, to};
    to->size = 0;
    return cellar_write_session(memory, options ? options : &everything, &writer, error);
}

void parcel_free(parcel *p)
{
    free(p->bytes);
    memset(p, 0, sizeof *p);
}

bool parcel_equal(const parcel *a, const parcel *b)
{
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

static bool read_bytes(void *context, uint64_t offset, void *to, size_t size)
{
    const parcel *p = context;
    if (offset > p->size || size > p->size - offset) return false;
    memcpy(to, p->bytes + offset, size);
    return true;
}

cellar_reader parcel_reader(const parcel *p)
{
    union { /* the context is only read */
        const parcel *in;
        void *out;
    } context = {p};
    return (cellar_reader){read_bytes, p->size, context.out};
}

/* ---- index and header -------------------------------------------------------------------------- */

static size_t index_of(const parcel *p)
{
    return (size_t)cl_get_u64(p->bytes + COMMIT_A + 16);
}

uint32_t parcel_entries(const parcel *p)
{
    return cl_get_u32(p->bytes + index_of(p) + 4);
}

cl_session_entry parcel_entry(const parcel *p, uint32_t i, size_t *at)
{
    size_t place = index_of(p) + 8 + (size_t)i * ENTRY;
    const unsigned char *from = p->bytes + place;
    if (at) *at = place;
    return (cl_session_entry){.kind = cl_get_u32(from),
                              .part = cl_get_u32(from + 4),
                              .first = cl_get_u32(from + 8),
                              .count = cl_get_u32(from + 12),
                              .offset = cl_get_u64(from + 16),
                              .length = cl_get_u64(from + 24),
                              .checksum = cl_get_u32(from + 32)};
}

void parcel_seal_outside(parcel *p)
{
    parcel_seal_at(p, index_of(p));
}

void parcel_seal_at(parcel *p, size_t begin)
{
    size_t size = p->size - begin;
    cl_put_u32(p->bytes + p->size - 4, sum_of(p->bytes + begin, size - 4));
    cl_put_u32(p->bytes + COMMIT_A + 60, sum_of(p->bytes + COMMIT_A, 60));
    cl_put_u32(p->bytes + 60, sum_of(p->bytes, 60));
}

void parcel_seal(parcel *p)
{
    for (uint32_t i = 0; i < parcel_entries(p); i++) {
        size_t at;
        cl_session_entry entry = parcel_entry(p, i, &at);
        cl_put_u32(p->bytes + at + 32, sum_of(p->bytes + entry.offset, (size_t)entry.length));
    }
    parcel_seal_outside(p);
}

/* ---- sections ---------------------------------------------------------------------------------- */

void parts_take(parts *to, const parcel *from)
{
    to->n = 0;
    for (uint32_t i = 0; i < parcel_entries(from); i++) {
        part *p = &to->items[to->n++];
        if (to->n == PARTS) {
            fprintf(stderr, "support_session: too many sections\n");
            exit(2);
        }
        p->entry = parcel_entry(from, i, NULL);
        p->size = (size_t)p->entry.length;
        p->bytes = parcel_exact(from->bytes + p->entry.offset, p->size);
    }
}

static void align(parcel *p)
{
    static const unsigned char zeros[ALIGN];
    (void)append(p, zeros, (ALIGN - p->size % ALIGN) % ALIGN);
}

static void put_entry(parcel *to, const part *p, uint64_t offset)
{
    unsigned char bytes[ENTRY] = {0}, *at = bytes;
    at = cl_put_u32(at, p->entry.kind);
    at = cl_put_u32(at, p->entry.part);
    at = cl_put_u32(at, p->entry.first);
    at = cl_put_u32(at, p->entry.count);
    at = cl_put_u64(at, offset);
    at = cl_put_u64(at, p->size);
    cl_put_u32(at, sum_of(p->bytes, p->size));
    (void)append(to, bytes, ENTRY);
}

void parts_put(const parts *from, parcel *to)
{
    static const unsigned char magic[16] = {'C',  'E', 'L', 'L', 'A', 'R', '\r',
                                            '\n', 1,   0,   0,   0,   0,   1};
    unsigned char header[HEADER] = {0}, head[8], tail[8] = {0};
    uint64_t offsets[PARTS];
    to->size = 0;
    (void)append(to, header, HEADER);
    memcpy(to->bytes, magic, sizeof magic);
    for (uint32_t i = 0; i < from->n; i++) {
        align(to);
        offsets[i] = to->size;
        (void)append(to, from->items[i].bytes, from->items[i].size);
    }
    align(to);
    uint64_t begin = to->size;
    cl_put_u32(cl_put_u32(head, 0x58444943u), from->n);
    (void)append(to, head, sizeof head);
    for (uint32_t i = 0; i < from->n; i++)
        put_entry(to, &from->items[i], offsets[i]);
    (void)append(to, tail, sizeof tail);
    unsigned char *commit = to->bytes + COMMIT_A;
    commit = cl_put_u64(commit, 1);
    commit = cl_put_u64(commit, to->size);
    commit = cl_put_u64(commit, begin);
    cl_put_u64(commit, to->size - begin);
    parcel_seal_outside(to);
}

void parts_free(parts *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        free(p->items[i].bytes);
    p->n = 0;
}

part *parts_find(parts *p, cl_session_kind kind, uint32_t number, uint32_t nth)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->items[i].entry.kind == (uint32_t)kind && p->items[i].entry.part == number &&
            nth-- == 0)
            return &p->items[i];
    return NULL;
}

void parts_erase(parts *p, part *which)
{
    free(which->bytes);
    memmove(which, which + 1, (size_t)(p->items + p->n - which - 1) * sizeof *which);
    p->n--;
}

part *parts_double(parts *p, part *which)
{
    if (p->n == PARTS) return NULL;
    memmove(which + 1, which, (size_t)(p->items + p->n - which) * sizeof *which);
    p->n++;
    which[1].bytes = parcel_exact(which->bytes, which->size);
    return which + 1;
}

void part_cut(part *p, size_t at, size_t n)
{
    memmove(p->bytes + at, p->bytes + at + n, p->size - at - n);
    p->size -= n;
}

void part_insert(part *p, size_t at, size_t n)
{
    unsigned char *bytes = grab(p->size + n);
    memcpy(bytes, p->bytes, at);
    memset(bytes + at, 0, n);
    memcpy(bytes + at + n, p->bytes + at, p->size - at);
    free(p->bytes);
    p->bytes = bytes;
    p->size += n;
}

uint32_t part_get(const part *p, size_t at)
{
    return cl_get_u32(p->bytes + at);
}

void part_set(part *p, size_t at, uint32_t value)
{
    cl_put_u32(p->bytes + at, value);
}

/* ---- an allocator that has a limit ---------------------------------------------------------------- */

static void *limited_give(void *context, size_t size, size_t alignment)
{
    limited *l = context;
    if (size > l->largest) l->largest = size;
    if (l->limit > 0 && (size > l->limit || l->held > l->limit - size)) {
        l->n_refused++;
        return NULL;
    }
    void *block = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (!block) return NULL;
    l->held += size;
    if (l->held > l->most) l->most = l->held;
    return block;
}

static void limited_release(void *context, void *block, size_t size)
{
    limited *l = context;
    l->held -= size;
    free(block);
}

cellar_allocator limited_allocator(limited *l)
{
    return (cellar_allocator){limited_give, NULL, limited_release, l};
}
