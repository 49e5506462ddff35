/*
 * support_session.h: session files in memory, taken apart, changed and put together again.
 *
 * A parcel is a file as bytes. Parts are its sections, each in a block of its own; put together they
 * are a file again whose index, checksums and header are right, so that a change reaches the checks
 * behind those. What the test wants to damage itself (header, index, checksums) it changes in the
 * parcel. Nothing here uses the library but for writing a session and for checksums.
 *
 * A limited allocator counts what is held and the largest block asked for, and refuses what is above
 * its limit. Running out of the test's own memory ends the program.
 */
#ifndef SUPPORT_SESSION_H
#define SUPPORT_SESSION_H

#include <cellar.h>

#include "session_format.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

typedef struct parcel {
    unsigned char *bytes;
    size_t size, capacity;
} parcel;

/* A block of exactly `size` bytes with these in it, so that a sanitizer sees who reads behind it. */
unsigned char *parcel_exact(const unsigned char *bytes, size_t size);

/* Write what the options say (NULL: everything). The parcel is emptied first. */
cellar_status parcel_write(parcel *to, const cellar_memory *memory,
                           const cellar_save_options *options, cellar_error *error);
void parcel_free(parcel *p);

bool parcel_equal(const parcel *a, const parcel *b);

/* A reader over the bytes of a parcel, which must stay. */
cellar_reader parcel_reader(const parcel *p);

/* The entry i of the index, and where it stands in the file. */
cl_session_entry parcel_entry(const parcel *p, uint32_t i, size_t *at);
uint32_t parcel_entries(const parcel *p);

/* Make all checksums right again: of sections, index, commit records and header. */
void parcel_seal(parcel *p);

/* Of the index (which begins at `index`, whatever the header says), commit record and header alone. */
void parcel_seal_outside(parcel *p);
void parcel_seal_at(parcel *p, size_t index);

/* ---- sections -------------------------------------------------------------------------------- */

typedef struct part {
    cl_session_entry entry; /* offset, length and checksum are set when it is put together */
    unsigned char *bytes;
    size_t size;
} part;

enum { PARTS = 64 };

typedef struct parts {
    part items[PARTS];
    uint32_t n;
} parts;

void parts_take(parts *to, const parcel *from);
void parts_put(const parts *from, parcel *to);
void parts_free(parts *p);

/* The nth section of a kind and part; NULL: there is none. */
part *parts_find(parts *p, cl_session_kind kind, uint32_t number, uint32_t nth);

void parts_erase(parts *p, part *which);

/* A copy of it right behind it. */
part *parts_double(parts *p, part *which);

/* n bytes at `at` are taken out, or put in (zeros). */
void part_cut(part *p, size_t at, size_t n);
void part_insert(part *p, size_t at, size_t n);

/* A number in its bytes. */
uint32_t part_get(const part *p, size_t at);
void part_set(part *p, size_t at, uint32_t value);

/* ---- an allocator that has a limit ------------------------------------------------------------- */

typedef struct limited {
    size_t held, most, largest, limit; /* limit 0: none */
    uint32_t n_refused;
} limited;

/* `l` must outlive what is made with it. */
cellar_allocator limited_allocator(limited *l);

#endif /* SUPPORT_SESSION_H */
