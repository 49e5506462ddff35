/*
 * scenarios_sessions.c: S19 and S20, and the faults D17, D22, D23 and D40 of an older design: what is saved
 * is all there, and what cannot be loaded leaves no trace.
 *
 * The tables behind S20 are longer than the scenario: unit_session_fields.c and unit_session_sections.c.
 */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>

#include "support_session.h"

enum { A, B, C };

static const unsigned char nan_bytes = 0xff;

/* Two layers with rotation; free cells are NaN. */
static void open_two_layers(drive *d, uint32_t n_cells, uint32_t n_pools)
{
    cellar_config config = scenario_config(n_cells, 8);
    memset(d, 0, sizeof *d);
    d->seed = 19;
    d->n_layers = 2;
    d->layers[0] = d->layers[1] = scenario_layer(CELLAR_F32, 8);
    config.n_pools = n_pools;
    config.allocator = scenario_allocator(&nan_bytes);
    scenario_make(d, &config);
}

/* Save what a memory of its own reads: n tokens of one sequence. */
static void save_tokens(parcel *file, cellar_seq seq, cellar_token first, uint32_t n)
{
    drive d;
    open_two_layers(&d, 64, 1);
    CHECK(drive_append(&d, seq, first, n, NULL) == CELLAR_OK);
    CHECK(parcel_write(file, d.memory, NULL, NULL) == CELLAR_OK);
    drive_close(&d);
}

/* Open and load sequence `from` as `as`. */
static cellar_status load(drive *d, const unsigned char *bytes, size_t size,
                          const cellar_allocator *allocator, cellar_seq from, cellar_seq as)
{
    cellar_session *session;
    cellar_load_options options = cellar_load_options_init();
    cellar_error error = {0};
    unsigned char *exact = parcel_exact(bytes, size);
    options.sequences = &from;
    options.as = &as;
    options.n_sequences = 1;
    cellar_status status = cellar_open_session_bytes(exact, size, allocator, &session, &error);
    if (status == CELLAR_OK) status = cellar_load_session(d->memory, session, &options, &error);
    cellar_close_session(session);
    free(exact);
    CHECK(status == CELLAR_OK || (error.status == status && error.message[0]));
    return status;
}

/* ---- S19 -------------------------------------------------------------------------------------------- */

/* In the middle of the last layer's V: the file ends there, or what stands there is something else. */
static void damage_v(const parcel *file, parcel *out, bool is_cut)
{
    uint32_t rows = 0;
    while (parcel_entry(file, rows, NULL).kind != CL_SESSION_ROWS)
        rows++;
    cl_session_entry entry = parcel_entry(file, rows, NULL);
    size_t at = (size_t)(entry.offset + entry.length - entry.length / 8);
    out->bytes = parcel_exact(file->bytes, file->size);
    out->size = is_cut ? at : file->size;
    if (!is_cut) memset(out->bytes + at, 0xff, 16);
}

static void s19(void)
{
    drive d, plain;
    parcel file = {0};
    size_t n = 2 * 4 * 8;
    float *before = drive_grab(3 * n, sizeof *before), *after = drive_grab(3 * n, sizeof *after);
    save_tokens(&file, 7, 40, 9);
    open_two_layers(&d, 32, 1);
    CHECK(drive_append(&d, A, 0, 5, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, B, 20, 7, NULL) == CELLAR_OK);
    for (cellar_seq seq = A; seq <= B; seq++)
        CHECK(drive_probe(&d, seq, 99, before + (size_t)seq * n) == CELLAR_OK);
    uint64_t picture = scenario_picture(d.memory);
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        parcel bad = {0};
        damage_v(&file, &bad, is_cut);
        CHECK(load(&d, bad.bytes, bad.size, NULL, 7, A) == CELLAR_CORRUPT);
        CHECK(scenario_picture(d.memory) == picture && scenario_used(&d) == 12);
        for (cellar_seq seq = A; seq <= B; seq++)
            CHECK(drive_probe(&d, seq, 99, after + (size_t)seq * n) == CELLAR_OK);
        CHECK(scenario_same_bits(before, after, 2 * n) && scenario_all_finite(after, 2 * n));
        parcel_free(&bad);
    }
    CHECK(load(&d, file.bytes, file.size, NULL, 7, A) == CELLAR_OK);
    CHECK(scenario_used(&d) == 16 && cellar_position_max(d.memory, A) == 8);
    for (cellar_seq seq = A; seq <= B; seq++)
        CHECK(drive_probe(&d, seq, 99, after + (size_t)seq * n) == CELLAR_OK);
    CHECK(scenario_same_bits(before + n, after + n, n) && scenario_all_finite(after, 2 * n));
    open_two_layers(&plain, 64, 1);
    CHECK(drive_append(&plain, A, 40, 9, NULL) == CELLAR_OK);
    CHECK(drive_probe(&plain, A, 99, before) == CELLAR_OK);
    CHECK(scenario_same_bits(before, after, n));
    drive_close(&plain);
    drive_close(&d);
    parcel_free(&file);
    free(before);
    free(after);
}

/* ---- S20 -------------------------------------------------------------------------------------------- */

/* A number of a section of the file, changed. */
typedef struct malformed {
    const char *name;
    cl_session_kind kind;
    char field; /* 'n' the entry's count, 'f' its first; else a u32 at `at` */
    size_t at;
    uint32_t value;
    cellar_status want;
} malformed;

/* MODEL without facts: groups at 4, one of 20 bytes, layers at 28, the first at 32. One sequence. */
static const malformed changes[] = {
    {"cell count 0 with tokens 20", CL_SESSION_CELLS, 'n', 0, 0, CELLAR_CORRUPT},
    {"cell count 2^32-1", CL_SESSION_CELLS, 'n', 0, 0xffffffffu, CELLAR_CORRUPT},
    {"cell count that wraps with 8 bytes each", CL_SESSION_CELLS, 'n', 0, 20 + (1u << 29),
     CELLAR_CORRUPT},
    {"cell numbers that wrap", CL_SESSION_CELLS, 'f', 0, 0xfffffff0u, CELLAR_CORRUPT},
    {"rows of 2^32-1 cells", CL_SESSION_ROWS, 'n', 0, 0xffffffffu, CELLAR_CORRUPT},
    {"token count 2^32-1", CL_SESSION_TOKENS, 'n', 0, 0xffffffffu, CELLAR_CORRUPT},
    {"token count + 1", CL_SESSION_TOKENS, 'n', 0, 21, CELLAR_CORRUPT},
    {"sequences 0", CL_SESSION_SEQUENCES, 0, 4, 0, CELLAR_CORRUPT},
    {"sequences 2", CL_SESSION_SEQUENCES, 0, 4, 2, CELLAR_CORRUPT},
    {"sequences 2^31", CL_SESSION_SEQUENCES, 0, 4, 1u << 31, CELLAR_CORRUPT},
    {"a sequence called -1", CL_SESSION_SEQUENCES, 0, 8, 0xffffffffu, CELLAR_CORRUPT},
    {"marks 2^32-1", CL_SESSION_SEQUENCES, 0, 12, 0xffffffffu, CELLAR_CORRUPT},
    {"runs 2^32-1", CL_SESSION_SEQUENCES, 0, 20, 0xffffffffu, CELLAR_CORRUPT},
    {"position -1", CL_SESSION_SEQUENCES, 0, 24, 0xffffffffu, CELLAR_CORRUPT},
    {"position 2^31-1", CL_SESSION_SEQUENCES, 0, 24, 0x7fffffffu, CELLAR_CORRUPT},
    {"cell 33", CL_SESSION_SEQUENCES, 0, 28, 33, CELLAR_CORRUPT},
    {"33 cells", CL_SESSION_SEQUENCES, 0, 32, 33 | 1u << 31, CELLAR_CORRUPT},
    {"one position for all", CL_SESSION_SEQUENCES, 0, 32, 20, CELLAR_CORRUPT},
    {"stored position -1", CL_SESSION_CELLS, 0, 0, 0xffffffffu, CELLAR_CORRUPT},
    {"stored position 2^31-1", CL_SESSION_CELLS, 0, 76, 0x7fffffffu, CELLAR_CORRUPT},
    {"the same position twice", CL_SESSION_CELLS, 0, 4, 0, CELLAR_CORRUPT},
    {"layers + 1", CL_SESSION_MODEL, 0, 28, 3, CELLAR_CORRUPT},
    {"layers - 1", CL_SESSION_MODEL, 0, 28, 1, CELLAR_CORRUPT},
    {"K of type 255", CL_SESSION_MODEL, 0, 32 + 32, 255, CELLAR_CORRUPT},
    {"a K row one longer", CL_SESSION_MODEL, 0, 32 + 24, 9, CELLAR_CORRUPT},
    {"a K row one shorter", CL_SESSION_MODEL, 0, 32 + 24, 7, CELLAR_CORRUPT},
    {"unknown flags", CL_SESSION_MODEL, 0, 32 + 12, 0x11, CELLAR_CORRUPT},
    {"other query heads", CL_SESSION_MODEL, 0, 32 + 16, 8, CELLAR_MISMATCH},
};
enum { CHANGES = sizeof changes / sizeof *changes };

/* A 20-token session with a log; memory for loading it is its size and a megabyte. */
typedef struct malformed_state {
    drive d;
    parcel file;
    limited memory;
    uint64_t picture;
} malformed_state;

static void open_malformed(malformed_state *m, uint32_t n_cells)
{
    cellar_config config = scenario_config(n_cells, 8);
    cellar_token log[20];
    cellar_log logs = {0, 20, log};
    drive saver;
    memset(m, 0, sizeof *m);
    open_two_layers(&saver, 64, 1);
    scenario_tokens(log, 0, 20);
    cellar_save_options options = cellar_save_options_init();
    options.logs = &logs;
    options.n_logs = 1;
    CHECK(drive_append(&saver, 0, 0, 20, NULL) == CELLAR_OK);
    CHECK(parcel_write(&m->file, saver.memory, &options, NULL) == CELLAR_OK);
    drive_close(&saver);
    m->d.seed = 19;
    m->d.n_layers = 2;
    m->d.layers[0] = m->d.layers[1] = scenario_layer(CELLAR_F32, 8);
    config.allocator = limited_allocator(&m->memory);
    scenario_make(&m->d, &config);
    CHECK(drive_append(&m->d, B, 50, 6, NULL) == CELLAR_OK);
    m->picture = scenario_picture(m->d.memory);
}

static void close_malformed(malformed_state *m)
{
    drive_close(&m->d);
    parcel_free(&m->file);
}

static bool is_refused(malformed_state *m, const unsigned char *bytes, size_t size,
                       cellar_status want)
{
    cellar_allocator allocator = limited_allocator(&m->memory);
    m->memory.limit = m->memory.held + size + (1u << 20);
    m->memory.n_refused = 0;
    cellar_status status = load(&m->d, bytes, size, &allocator, 0, 9);
    m->memory.limit = 0;
    return status == want && m->memory.n_refused == 0 &&
           scenario_picture(m->d.memory) == m->picture;
}

static void s20_fields(void)
{
    malformed_state m;
    open_malformed(&m, 32);
    for (uint32_t i = 0; i < CHANGES; i++) {
        const malformed *c = &changes[i];
        parts all;
        parcel file = {0};
        parts_take(&all, &m.file);
        part *its = parts_find(&all, c->kind, 0, 0);
        if (c->field == 'n')
            its->entry.count = c->value;
        else if (c->field == 'f')
            its->entry.first = c->value;
        else
            part_set(its, c->at, c->value);
        parts_put(&all, &file);
        scenario_check(is_refused(&m, file.bytes, file.size, c->want), c->name, __FILE__, __LINE__);
        parts_free(&all);
        parcel_free(&file);
    }
    CHECK(load(&m.d, m.file.bytes, m.file.size, NULL, 0, 9) == CELLAR_OK);
    CHECK(cellar_position_max(m.d.memory, 9) == 19);
    close_malformed(&m);
}

static void s20_length(void)
{
    malformed_state m;
    open_malformed(&m, 32);
    for (size_t n = 0; n < m.file.size; n++)
        CHECK(is_refused(&m, m.file.bytes, n, CELLAR_CORRUPT));
    parcel longer = {drive_grab(m.file.size + 1, 1), m.file.size + 1, 0};
    memcpy(longer.bytes, m.file.bytes, m.file.size);
    CHECK(is_refused(&m, longer.bytes, longer.size, CELLAR_CORRUPT));
    for (size_t at = 60; at < m.file.size; at += 97) { /* a bit here and there */
        longer.bytes[at] ^= 8;
        longer.size = m.file.size;
        CHECK(is_refused(&m, longer.bytes, longer.size, CELLAR_CORRUPT) || at >= 192);
        longer.bytes[at] ^= 8;
        CHECK(cellar_remove(m.d.memory, 9, 0, -1, NULL) == CELLAR_OK);
    }
    CHECK(load(&m.d, m.file.bytes, m.file.size, NULL, 0, 9) == CELLAR_OK);
    parcel_free(&longer);
    close_malformed(&m);
}

static void s20_room(void)
{
    malformed_state m;
    open_malformed(&m, 25); /* 6 are taken: 19 for 20 */
    CHECK(is_refused(&m, m.file.bytes, m.file.size, CELLAR_FULL));
    CHECK(cellar_remove(m.d.memory, B, 5, -1, NULL) == CELLAR_OK);
    CHECK(load(&m.d, m.file.bytes, m.file.size, NULL, 0, 9) == CELLAR_OK);
    close_malformed(&m);
}

/* ---- behind a window ------------------------------------------------------------------------------- */

/* Where there is room for little, only what the next token sees comes along: here a sink alone. */
static void only_a_sink(void)
{
    drive d, small;
    parcel file = {0};
    cellar_config config = scenario_config(64, 2);
    size_t n = 4 * 8;
    float *want = drive_grab(n, sizeof *want), *got = drive_grab(n, sizeof *got);
    memset(&d, 0, sizeof d);
    d.n_layers = 1;
    d.layers[0] = scenario_window_layer(CELLAR_WINDOW_CHUNKED, 3);
    d.layers[0].window.n_sinks = 1;
    small = d;
    config.is_window_full = true;
    scenario_make(&d, &config);
    config.is_window_full = false; /* 3 + 1 + 2 cells */
    scenario_make(&small, &config);
    CHECK(drive_append(&d, A, 0, 21, NULL) == CELLAR_OK && scenario_used(&d) == 21);
    CHECK(parcel_write(&file, d.memory, NULL, NULL) == CELLAR_OK);
    CHECK(load(&small, file.bytes, file.size, NULL, A, A) == CELLAR_OK);
    CHECK(scenario_used(&small) == 1);
    CHECK(drive_probe(&d, A, 99, want) == CELLAR_OK &&
          drive_probe(&small, A, 99, got) == CELLAR_OK);
    CHECK(scenario_same_bits(want, got, n));
    CHECK(drive_append(&small, A, 21, 5, NULL) == CELLAR_OK);
    CHECK(cellar_position_max(small.memory, A) == 25);
    drive_close(&d);
    drive_close(&small);
    parcel_free(&file);
    free(want);
    free(got);
}

/* ---- faults of an older design -------------------------------------------------------------------------- */

static void d17(void)
{
    static const cellar_seq names[] = {0, 1, 4096, INT32_MAX};
    drive d, other;
    parcel file = {0};
    size_t n = 2 * 4 * 8;
    float *want = drive_grab(n, sizeof *want), *got = drive_grab(n, sizeof *got);
    open_two_layers(&d, 64, 1);
    open_two_layers(&other, 64, 1);
    for (int i = 0; i < 4; i++)
        CHECK(drive_append(&d, names[i], 10 * i, 4, NULL) == CELLAR_OK);
    CHECK(parcel_write(&file, d.memory, NULL, NULL) == CELLAR_OK);
    for (int i = 0; i < 4; i++)
        CHECK(load(&other, file.bytes, file.size, NULL, names[i], names[i]) == CELLAR_OK);
    CHECK(scenario_used(&other) == 16);
    for (int i = 0; i < 4; i++) {
        CHECK(drive_probe(&d, names[i], 99, want) == CELLAR_OK);
        CHECK(drive_probe(&other, names[i], 99, got) == CELLAR_OK);
        CHECK(scenario_same_bits(want, got, n));
        CHECK(cellar_remove(other.memory, names[i], 0, -1, NULL) == CELLAR_OK);
    }
    CHECK(scenario_used(&other) == 0); /* no cell without an owner */
    drive_close(&d);
    drive_close(&other);
    parcel_free(&file);
    free(want);
    free(got);
}

static cellar_status load_all(drive *d, const parcel *file)
{
    cellar_session *session;
    cellar_load_options options = cellar_load_options_init();
    cellar_status status = cellar_open_session_bytes(file->bytes, file->size, NULL, &session, NULL);
    if (status == CELLAR_OK) status = cellar_load_session(d->memory, session, &options, NULL);
    cellar_close_session(session);
    return status;
}

/* Pools say nothing about a session: three of them are saved and come to one, two or three. */
static void d22(void)
{
    drive d;
    parcel file = {0}, again = {0};
    open_two_layers(&d, 3 * 64, 3);
    for (cellar_seq seq = 0; seq < 6; seq++)
        CHECK(drive_append(&d, seq, 10 * seq, 5 + (uint32_t)seq, NULL) == CELLAR_OK);
    CHECK(parcel_write(&file, d.memory, NULL, NULL) == CELLAR_OK);
    for (uint32_t n_pools = 1; n_pools <= 3; n_pools++) {
        drive other;
        open_two_layers(&other, n_pools * 96, n_pools);
        CHECK(load_all(&other, &file) == CELLAR_OK);
        for (cellar_seq seq = 0; seq < 6; seq++)
            CHECK(cellar_position_max(other.memory, seq) == 4 + seq);
        CHECK(scenario_used(&other) == 5 + 6 + 7 + 8 + 9 + 10);
        CHECK(parcel_write(&again, other.memory, NULL, NULL) == CELLAR_OK);
        CHECK(parcel_equal(&file, &again));
        drive_close(&other);
    }
    drive_close(&d);
    parcel_free(&file);
    parcel_free(&again);
}

static void d23(void)
{
    drive empty, d;
    parcel nothing = {0}, file = {0};
    open_two_layers(&empty, 32, 1);
    open_two_layers(&d, 32, 1);
    CHECK(parcel_write(&nothing, empty.memory, NULL, NULL) == CELLAR_OK);
    CHECK(drive_append(&d, A, 0, 5, NULL) == CELLAR_OK);
    uint64_t picture = scenario_picture(d.memory);
    CHECK(load_all(&d, &nothing) == CELLAR_OK && scenario_picture(d.memory) == picture);
    CHECK(load(&d, nothing.bytes, nothing.size, NULL, A, A) == CELLAR_NOT_FOUND);
    CHECK(scenario_picture(d.memory) == picture);
    save_tokens(&file, A, 40, 30); /* 27 cells are free */
    CHECK(load(&d, file.bytes, file.size, NULL, A, A) == CELLAR_FULL);
    CHECK(scenario_picture(d.memory) == picture);
    drive_close(&empty);
    drive_close(&d);
    parcel_free(&nothing);
    parcel_free(&file);
}

static bool count_call(void *context, const void *bytes, size_t size)
{
    uint64_t *n = context;
    (void)bytes;
    (void)size;
    ++*n;
    return true;
}

/* Rows are saved as rows: no index beside them, and in pieces of many. */
static void d40(void)
{
    drive d;
    parcel file = {0};
    cellar_group_info info = {0};
    uint64_t n_calls = 0;
    cellar_writer writer = {count_call, &n_calls};
    cellar_save_options options = cellar_save_options_init();
    cellar_config config = scenario_config(512, 64);
    memset(&d, 0, sizeof d);
    d.n_layers = 2;
    d.layers[0] = d.layers[1] = scenario_layer(CELLAR_F16, 64);
    scenario_make(&d, &config);
    CHECK(drive_append(&d, A, 0, 512, NULL) == CELLAR_OK);
    CHECK(parcel_write(&file, d.memory, NULL, NULL) == CELLAR_OK);
    CHECK(cellar_get_group(d.memory, 0, &info, NULL) == CELLAR_OK);
    uint64_t rows = 0;
    for (uint32_t i = 0; i < parcel_entries(&file); i++)
        if (parcel_entry(&file, i, NULL).kind == CL_SESSION_ROWS)
            rows += parcel_entry(&file, i, NULL).length;
    CHECK(rows == 512 * info.row_bytes && file.size < rows + 512 * 8 + 4096);
    CHECK(cellar_write_session(d.memory, &options, &writer, NULL) == CELLAR_OK);
    CHECK(n_calls > 0 && n_calls < file.size / 4096);
    drive_close(&d);
    parcel_free(&file);
}

const scenario scenarios_sessions[] = {
    {"S19 a failed load leaves no trace", s19},
    {"S20 a malformed state: every field", s20_fields},
    {"S20 a malformed state: every length, bits here and there", s20_length},
    {"S20 a state of more cells than are free", s20_room},
    {"a session comes to a window that has room for a sink alone, and goes on", only_a_sink},
    {"D17 any sequence can be saved", d17},
    {"D22 a whole state holds all sequences", d22},
    {"D23 a failed or empty load destroys nothing", d23},
    {"D40 no element-wise V in a saved state", d40},
    {NULL, NULL},
};
