/*
 * fuzz_session.c: any bytes are refused as a session, or are one.
 *
 * The first four bytes choose; the rest becomes a file, in one of three ways. As it is. With its
 * checksums made right, so that the checks behind them are reached. Or put together from sections,
 *
 *     u8 kind, u8 part, u16 first, u16 count, u16 length, bytes
 *
 * so that whatever is put in or left out stays a file. It is opened, from bytes or through a reader
 * that may fail; everything that can be asked is asked; it is checked, and loaded: into a memory of
 * one of several models, empty or not, and into one of its own description. What must hold: nothing
 * asks for more memory than the file justifies; a refused load changes nothing; a loaded memory is
 * sound, computes, and can be saved as a file that opens and passes its check; what passes its check
 * is never called damaged later.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cellar.h"
#include "kernels.h"
#include "session_format.h"
#include "support_session.h"
#include "support_session_worlds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHOICES = 4, SECTION = 8, MOST_SECTIONS = PARTS - 1, MOST_OWN = 4 << 20 };

static void demand_at(bool holds, int line)
{
    if (holds) return;
    fprintf(stderr, "fuzz_session.c:%d: not so\n", line);
    abort();
}
#define demand(holds) demand_at(holds, __LINE__)

/* ---- making a file --------------------------------------------------------------------------- */

static uint32_t sum_of(const unsigned char *bytes, size_t n)
{
    static cl_kernels kernels; /* filled once */
    if (!kernels.crc32c) cl_kernels_fill(&kernels, UINT32_MAX);
    return kernels.crc32c(0, bytes, n);
}

/* The checksums of the sections that an index names, and its own. */
static void mend_index(unsigned char *bytes, size_t size, const unsigned char *record)
{
    const uint64_t at = cl_get_u64(record + 16), length = cl_get_u64(record + 24);
    if (at > size || length > size - at || length < 16) return;
    unsigned char *entry = bytes + at + CL_SESSION_INDEX_HEAD;
    for (uint64_t n = (length - 16) / CL_SESSION_ENTRY; n > 0; n--, entry += CL_SESSION_ENTRY) {
        const uint64_t from = cl_get_u64(entry + 16), some = cl_get_u64(entry + 24);
        if (from <= size && some <= size - from)
            cl_put_u32(entry + 32, sum_of(bytes + from, (size_t)some));
    }
    cl_put_u32(bytes + at + length - 4, sum_of(bytes + at, (size_t)length - 4));
}

static void mend(unsigned char *bytes, size_t size)
{
    static const unsigned char unused[CL_SESSION_COMMIT];
    if (size < CL_SESSION_HEADER) return;
    cl_put_u32(bytes + 60, sum_of(bytes, 60));
    for (unsigned char *record = bytes + CL_SESSION_COMMIT_A; record <= bytes + CL_SESSION_COMMIT_B;
         record += CL_SESSION_COMMIT) {
        if (memcmp(record, unused, sizeof unused) == 0) continue;
        mend_index(bytes, size, record);
        cl_put_u32(record + 60, sum_of(record, 60));
    }
}

/* A file of the sections that the input lists. */
static void put_together(const uint8_t *data, size_t size, parcel *to)
{
    parts list = {.n = 0};
    while (size >= SECTION && list.n < MOST_SECTIONS) {
        part *p = &list.items[list.n++];
        const size_t length = cl_get_u16(data + 6), rest = size - SECTION;
        *p = (part){.entry = {.kind = data[0],
                              .part = data[1],
                              .first = cl_get_u16(data + 2),
                              .count = cl_get_u16(data + 4)},
                    .size = length < rest ? length : rest};
        p->bytes = parcel_exact(data + SECTION, p->size);
        data += SECTION + p->size;
        size -= SECTION + p->size;
    }
    parts_put(&list, to);
    parts_free(&list);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static uint64_t touch(const void *bytes, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((const unsigned char *)bytes)[i];
    return sum;
}

static void check_note(const cellar_note *note)
{
    const size_t length = strlen(note->name);
    demand(length >= 1 && length <= CL_SESSION_NOTE_NAME);
    demand(note->size <= CL_SESSION_NOTE_VALUE);
    for (size_t i = 0; i < length; i++)
        demand((unsigned char)note->name[i] >= 0x20);
    touch(note->value, note->size);
}

static cellar_session_info ask(const cellar_session *session, size_t size)
{
    cellar_session_info info;
    cellar_note note;
    cellar_session_sequence sequence;
    cellar_seq before = -1;
    demand(cellar_describe_session(session, &info, NULL) == CELLAR_OK);
    demand(info.bytes <= size && info.live_bytes <= info.bytes);
    for (uint32_t i = 0; i < info.n_facts; i++) {
        demand(cellar_get_session_fact(session, i, &note, NULL) == CELLAR_OK);
        check_note(&note);
    }
    for (uint32_t i = 0; i < info.n_notes; i++) {
        demand(cellar_get_session_note(session, i, &note, NULL) == CELLAR_OK);
        check_note(&note);
    }
    for (uint32_t i = 0; i < info.n_sequences; i++) {
        demand(cellar_get_session_sequence(session, i, &sequence, NULL) == CELLAR_OK);
        demand(sequence.seq > before);
        demand(sequence.pos_max >= sequence.pos_min && sequence.pos_min >= -1);
        touch(sequence.tokens, sequence.n_tokens * sizeof *sequence.tokens);
        before = sequence.seq;
    }
    demand(cellar_get_session_fact(session, info.n_facts, &note, NULL) == CELLAR_INVALID);
    demand(cellar_get_session_note(session, info.n_notes, &note, NULL) == CELLAR_INVALID);
    demand(cellar_get_session_sequence(session, info.n_sequences, &sequence, NULL) ==
           CELLAR_INVALID);
    return info;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* It is sound, can be written, and what was written is a session that passes its check. */
static void check_loaded(const cellar_memory *memory)
{
    parcel written = {NULL, 0, 0};
    cellar_session *again;
    demand(cellar_check(memory, NULL) == CELLAR_OK);
    demand(parcel_write(&written, memory, NULL, NULL) == CELLAR_OK);
    demand(cellar_open_session_bytes(written.bytes, written.size, NULL, &again, NULL) == CELLAR_OK);
    demand(cellar_check_session(again, NULL) == CELLAR_OK);
    cellar_close_session(again);
    parcel_free(&written);
}

static cellar_status load_all(cellar_memory *memory, const cellar_session *session)
{
    cellar_load_options options = cellar_load_options_init();
    options.ignores_facts = true;
    return cellar_load_session(memory, session, &options, NULL);
}

/* Into a memory of a model; `choice` says which, and whether something is in it. */
static void load_into_world(const cellar_session *session, const cellar_session_info *info,
                            uint8_t choice, bool is_sound)
{
    const world_kind kind = (world_kind)(choice % WORLD_KINDS);
    drive d;
    drive_snapshot before = {.runs = NULL}, after = {.runs = NULL};
    char why[200];
    demand(world_open(&d, kind, choice / 8 % WORLD_VARIANTS, NULL));
    if (choice & 0x80) world_fill(&d, kind);
    demand(drive_snapshot_take(&before, d.memory));
    const cellar_status status = load_all(d.memory, session);
    demand(status != CELLAR_CORRUPT || !is_sound);
    demand(status != CELLAR_INVALID && status != CELLAR_NO_MEMORY && status != CELLAR_NOT_FOUND);
    if (status == CELLAR_OK) {
        check_loaded(d.memory);
        float *out = drive_grab(d.out_size, sizeof *out);
        for (uint32_t i = 0; i < info->n_sequences && i < 4; i++) {
            cellar_session_sequence sequence;
            demand(cellar_get_session_sequence(session, i, &sequence, NULL) == CELLAR_OK);
            const cellar_status probed = drive_probe(&d, sequence.seq, 7, out);
            demand(probed != CELLAR_CORRUPT && probed != CELLAR_INVALID);
        }
        free(out);
        demand(cellar_check(d.memory, NULL) == CELLAR_OK);
    } else {
        demand(drive_snapshot_take(&after, d.memory));
        demand(drive_snapshot_equal(&before, &after, why));
    }
    drive_snapshot_free(&before);
    drive_snapshot_free(&after);
    drive_close(&d);
}

/* Into a memory that the session describes, if that is a small one: it must fit. */
static void load_into_own(const cellar_session *session, bool is_sound)
{
    cellar_config config;
    cellar_sizes sizes;
    cellar_memory *memory;
    demand(cellar_get_session_config(session, &config, NULL) == CELLAR_OK);
    demand(cellar_measure(&config, &sizes, NULL) == CELLAR_OK);
    if (sizes.total > MOST_OWN) return;
    demand(cellar_create(&config, &memory, NULL) == CELLAR_OK);
    const cellar_status status = load_all(memory, session);
    demand(status == (is_sound ? CELLAR_OK : CELLAR_CORRUPT));
    if (status == CELLAR_OK) check_loaded(memory);
    cellar_destroy(memory);
}

/* ---- one file -------------------------------------------------------------------------------- */

typedef struct source {
    const unsigned char *bytes;
    size_t size;
    uint32_t n_left; /* reads that succeed */
} source;

static bool read_some(void *context, uint64_t offset, void *to, size_t n)
{
    source *s = context;
    demand(offset <= s->size && n <= s->size - offset);
    if (s->n_left == 0) return false;
    s->n_left--;
    memcpy(to, s->bytes + offset, n);
    return true;
}

/* `way`: 0: from bytes; else through a reader, which fails after way - 1 reads unless that is 254. */
static void try_file(const unsigned char *bytes, size_t size, uint8_t choice, uint8_t way)
{
    limited limits = {.limit = (64 << 10) + 16 * size};
    const cellar_allocator allocator = limited_allocator(&limits);
    source from = {bytes, size, way == 255 ? UINT32_MAX : way - 1u};
    const cellar_reader reader = {read_some, size, &from};
    cellar_session *session = NULL;
    cellar_error error = {.message = ""};
    const cellar_status status =
        way == 0 ? cellar_open_session_bytes(bytes, size, &allocator, &session, &error)
                 : cellar_open_session_reader(&reader, &allocator, &session, &error);
    demand(limits.n_refused == 0);
    if (status != CELLAR_OK) {
        demand(status == CELLAR_CORRUPT || status == CELLAR_UNSUPPORTED ||
               (status == CELLAR_IO && way != 0 && way != 255));
        demand(error.status == status && *error.message && !session && limits.held == 0);
        return;
    }
    const cellar_session_info info = ask(session, size);
    from.n_left = UINT32_MAX;
    const cellar_status checked = cellar_check_session(session, NULL);
    demand(checked == CELLAR_OK || checked == CELLAR_CORRUPT);
    load_into_world(session, &info, choice, checked == CELLAR_OK);
    load_into_own(session, checked == CELLAR_OK);
    cellar_close_session(session);
    demand(limits.held == 0 && limits.n_refused == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choices[CHOICES] = {0};
    const size_t n = size < CHOICES ? size : CHOICES;
    memcpy(choices, data, n);
    parcel together = {NULL, 0, 0};
    unsigned char *bytes;
    if (choices[0] % 3 == 2) {
        put_together(data + n, size - n, &together);
        size = together.size;
        bytes = parcel_exact(together.bytes, size);
    } else {
        size -= n;
        bytes = parcel_exact(data + n, size);
        if (choices[0] % 3 == 1) mend(bytes, size);
    }
    try_file(bytes, size, choices[1], choices[2]);
    free(bytes);
    parcel_free(&together);
    return 0;
}
