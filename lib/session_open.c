/*
 * session_open.c: a session, opened: header, index, and every section but rows.
 *
 * From the outside inwards: the header says where the index is, the index says where sections are and what
 * their checksums are. Each step is checked before the next one relies on it, and lengths are held against
 * the bytes that there are before anything is allocated. What lies at an address is read in place; from a
 * reader, section by section into a block of its own.
 *
 * The checks of run lists are in session_check.c. Rows are not looked at: session_load.c does, and
 * cellar_check_session.
 */
#include "session.h"

#include "checked.h"
#include "error.h"
#include "session_file.h"
#include "session_model.h"
#include "session_notes.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

const unsigned char *cl_bytes_get(const cl_bytes *bytes, uint64_t offset, size_t n,
                                  unsigned char *buffer)
{
    static const unsigned char nothing;
    if (n == 0) return &nothing; /* no reader is asked for that */
    if (bytes->address) return bytes->address + offset;
    return bytes->reader.read(bytes->reader.context, offset, buffer, n) ? buffer : NULL;
}

cellar_status cl_session_read_section(const cellar_session *session, const cl_session_entry *entry,
                                      unsigned char *buffer, const unsigned char **out,
                                      cellar_error *error)
{
    const size_t n = (size_t)entry->length;
    *out = cl_bytes_get(&session->bytes, entry->offset, n, buffer);
    if (!*out)
        CL_FAIL(error, CELLAR_IO, (int64_t)entry->offset,
                "%zu bytes at %llu of the session could not be read", n,
                (unsigned long long)entry->offset);
    if (session->kernels.crc32c(0, *out, n) != entry->checksum)
        CL_FAIL_BECAUSE(error, CELLAR_CORRUPT, CELLAR_REASON_NONE, (int64_t)entry->offset,
                        "the section at %llu is damaged: its checksum differs",
                        (unsigned long long)entry->offset);
    return CELLAR_OK;
}

cellar_status cl_session_get_section(const cellar_session *session, cl_alloc *alloc,
                                     const cl_session_entry *entry, cl_section *out,
                                     cellar_error *error)
{
    *out = (cl_section){.size = (size_t)entry->length};
    if (!session->bytes.address && out->size > 0) {
        out->held = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, out->size);
        if (!out->held) return cl_error_no_memory(error, "a section of a session", out->size);
    }
    const cellar_status status = cl_session_read_section(session, entry, out->held, &out->bytes,
                                                         error);
    if (status != CELLAR_OK) cl_session_put_section(alloc, out);
    return status;
}

void cl_session_put_section(cl_alloc *alloc, cl_section *section)
{
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, section->held, section->size);
    section->held = NULL;
}

/* ---- header ---------------------------------------------------------------------------------- */

static bool is_zero(const unsigned char *bytes, size_t n)
{
    while (n > 0 && bytes[n - 1] == 0)
        n--;
    return n == 0;
}

/* A commit record; false: damaged, or of no use. */
static bool get_commit(const cellar_session *session, const unsigned char *record,
                       cl_session_commit *out)
{
    cl_cursor cursor = {record, record + CL_SESSION_COMMIT, false};
    out->generation = cl_take_u64(&cursor);
    out->length = cl_take_u64(&cursor);
    out->index_offset = cl_take_u64(&cursor);
    out->index_length = cl_take_u64(&cursor);
    return is_zero(cursor.at, 28) &&
           cl_get_u32(record + 60) == session->kernels.crc32c(0, record, 60) &&
           out->generation > 0 && out->length <= session->bytes.size &&
           out->length >= CL_SESSION_HEADER && out->index_offset >= CL_SESSION_HEADER &&
           out->index_offset % CL_SESSION_ALIGN == 0 && out->index_offset < out->length &&
           out->index_length == out->length - out->index_offset;
}

static cellar_status check_fixed(const cellar_session *session, const unsigned char *header,
                                 cellar_error *error)
{
    if (memcmp(header, cl_session_magic, sizeof cl_session_magic) != 0)
        CL_FAIL(error, CELLAR_CORRUPT, 0, "not a session: it does not begin with CELLAR");
    uint32_t version = cl_get_u32(header + 8), length = cl_get_u32(header + 12);
    if (session->kernels.crc32c(0, header, 60) != cl_get_u32(header + 60))
        CL_FAIL(error, CELLAR_CORRUPT, 0, "the header is damaged: its checksum differs");
    if (version != CL_SESSION_VERSION)
        CL_FAIL(error, CELLAR_UNSUPPORTED, 8, "a session of version %u; this is for version %u",
                version, CL_SESSION_VERSION);
    if (length != CL_SESSION_HEADER || !is_zero(header + 16, 44) || !is_zero(header + 192, 64))
        CL_FAIL(error, CELLAR_CORRUPT, 12, "the header is not as version %u has it", version);
    return CELLAR_OK;
}

static cellar_status read_header(cellar_session *session, cellar_error *error)
{
    unsigned char room[CL_SESSION_HEADER];
    uint64_t size = session->bytes.size;
    if (size < CL_SESSION_HEADER)
        CL_FAIL(error, CELLAR_CORRUPT, (int64_t)size,
                "%llu bytes are too few for a session's header of %u", (unsigned long long)size,
                CL_SESSION_HEADER);
    const unsigned char *header = cl_bytes_get(&session->bytes, 0, CL_SESSION_HEADER, room);
    if (!header) CL_FAIL(error, CELLAR_IO, 0, "the header of the session could not be read");
    CL_TRY(check_fixed(session, header, error));
    cl_session_commit a, b;
    bool has_a = get_commit(session, header + CL_SESSION_COMMIT_A, &a);
    bool has_b = get_commit(session, header + CL_SESSION_COMMIT_B, &b);
    session->is_journal = !is_zero(header + CL_SESSION_COMMIT_B, CL_SESSION_COMMIT);
    /* B is only written to a file whose A is whole; once A was written again its generation is above 1. */
    bool is_damaged = session->is_journal && !has_b && has_a && a.generation == 1;
    if (is_damaged || (!has_a && !has_b))
        CL_FAIL(error, CELLAR_CORRUPT, CL_SESSION_COMMIT_A,
                "no commit record is whole: the file was damaged, or cut short");
    session->commit = has_a && !(has_b && b.generation > a.generation) ? a : b;
    if (!session->is_journal && session->commit.length != size)
        CL_FAIL(error, CELLAR_CORRUPT, (int64_t)session->commit.length,
                "%llu bytes follow the session's %llu", (unsigned long long)(size - a.length),
                (unsigned long long)a.length);
    return CELLAR_OK;
}

/* ---- index ----------------------------------------------------------------------------------- */

static cellar_status read_entry(cellar_session *session, uint32_t i, cl_cursor *cursor,
                                uint64_t *end, cellar_error *error)
{
    int64_t at = (int64_t)session->commit.index_offset + CL_SESSION_INDEX_HEAD +
                 (int64_t)i * CL_SESSION_ENTRY;
    cl_session_entry *entry = &session->entries[i];
    entry->kind = cl_take_u32(cursor);
    entry->part = cl_take_u32(cursor);
    entry->first = cl_take_u32(cursor);
    entry->count = cl_take_u32(cursor);
    entry->offset = cl_take_u64(cursor);
    entry->length = cl_take_u64(cursor);
    entry->checksum = cl_take_u32(cursor);
    bool has_part = entry->kind == CL_SESSION_TOKENS || entry->kind == CL_SESSION_CELLS ||
                    entry->kind == CL_SESSION_ROWS;
    if (cl_take_u32(cursor) != 0 || entry->kind < CL_SESSION_MODEL ||
        entry->kind > CL_SESSION_SEQUENCES)
        CL_FAIL(error, CELLAR_CORRUPT, at, "section %u is of no known kind (%u)", i, entry->kind);
    if (has_part ? entry->count == 0 || entry->count > INT32_MAX - entry->first
                 : entry->part != 0 || entry->first != 0 || entry->count != 0)
        CL_FAIL(error, CELLAR_CORRUPT, at, "section %u: part, first and count do not fit its kind",
                i);
    if (entry->offset % CL_SESSION_ALIGN != 0 || entry->offset < *end ||
        entry->offset > session->commit.index_offset ||
        entry->length > session->commit.index_offset - entry->offset)
        CL_FAIL(error, CELLAR_CORRUPT, at,
                "section %u lies at %llu, %llu bytes long: not between its neighbours", i,
                (unsigned long long)entry->offset, (unsigned long long)entry->length);
    *end = entry->offset + entry->length;
    return CELLAR_OK;
}

static cellar_status read_index(cellar_session *session, cellar_error *error)
{
    const cl_session_commit *commit = &session->commit;
    const uint64_t least = CL_SESSION_INDEX_HEAD + CL_SESSION_INDEX_TAIL;
    int64_t at = (int64_t)commit->index_offset;
    if (commit->index_length < least || (commit->index_length - least) % CL_SESSION_ENTRY != 0 ||
        (commit->index_length - least) / CL_SESSION_ENTRY > UINT32_MAX)
        CL_FAIL(error, CELLAR_CORRUPT, at, "the index cannot have %llu bytes",
                (unsigned long long)commit->index_length);
    cl_session_entry whole = {.offset = commit->index_offset, .length = commit->index_length};
    cl_section section = {.size = (size_t)whole.length};
    if (!session->bytes.address) {
        section.held = cl_alloc_get(&session->alloc, CELLAR_BYTES_SCRATCH, section.size);
        if (!section.held) return cl_error_no_memory(error, "the index", section.size);
    }
    section.bytes = cl_bytes_get(&session->bytes, whole.offset, section.size, section.held);
    cellar_status status = CELLAR_OK;
    uint32_t n = (uint32_t)((commit->index_length - least) / CL_SESSION_ENTRY);
    if (!section.bytes) {
        status = cl_error_set(error, CELLAR_IO, CELLAR_REASON_STORE, at,
                              "the index of the session could not be read");
    } else {
        const unsigned char *tail = section.bytes + section.size - CL_SESSION_INDEX_TAIL;
        if (cl_get_u32(section.bytes) != CL_SESSION_INDEX || cl_get_u32(section.bytes + 4) != n ||
            cl_get_u32(tail) != 0 ||
            session->kernels.crc32c(0, section.bytes, section.size - 4) != cl_get_u32(tail + 4))
            status = cl_error_set(error, CELLAR_CORRUPT, CELLAR_REASON_NONE, at,
                                  "the index is damaged");
    }
    if (status == CELLAR_OK && n > 0) {
        size_t bytes = n * sizeof *session->entries; /* less than the index itself */
        session->entries = cl_alloc_get(&session->alloc, CELLAR_BYTES_SCRATCH, bytes);
        if (!session->entries) status = cl_error_no_memory(error, "the index", bytes);
        session->n_entries = session->entries ? n : 0;
    }
    if (status == CELLAR_OK) {
        uint64_t end = CL_SESSION_HEADER;
        cl_cursor cursor = {section.bytes + CL_SESSION_INDEX_HEAD, section.bytes + section.size,
                            false};
        for (uint32_t i = 0; status == CELLAR_OK && i < n; i++)
            status = read_entry(session, i, &cursor, &end, error);
    }
    cl_session_put_section(&session->alloc, &section);
    return status;
}

/* ---- single sections ------------------------------------------------------------------------- */

/* The only section of a kind. *out NULL: there is none. CELLAR_CORRUPT: there are two. */
static cellar_status find_single(const cellar_session *session, cl_session_kind kind,
                                 const char *name, const cl_session_entry **out,
                                 cellar_error *error)
{
    *out = NULL;
    for (uint32_t i = 0; i < session->n_entries; i++) {
        if (session->entries[i].kind != (uint32_t)kind) continue;
        if (*out)
            CL_FAIL(error, CELLAR_CORRUPT, (int64_t)session->entries[i].offset,
                    "there are two sections %s", name);
        *out = &session->entries[i];
    }
    return CELLAR_OK;
}

static cellar_status read_model(cellar_session *session, cellar_error *error)
{
    const cl_session_entry *entry;
    cl_section section;
    CL_TRY(find_single(session, CL_SESSION_MODEL, "MODEL", &entry, error));
    if (!entry) CL_FAIL(error, CELLAR_CORRUPT, -1, "there is no section MODEL");
    CL_TRY(cl_session_get_section(session, &session->alloc, entry, &section, error));
    cl_cursor cursor = {section.bytes, section.bytes + section.size, false};
    cellar_status status = cl_model_read(&cursor, &session->alloc, &session->model, entry->offset,
                                         error);
    cl_session_put_section(&session->alloc, &section);
    return status;
}

static cellar_status read_notes(cellar_session *session, cellar_error *error)
{
    const cl_session_entry *entry;
    cl_section section;
    CL_TRY(find_single(session, CL_SESSION_NOTES, "NOTES", &entry, error));
    if (!entry) return CELLAR_OK;
    CL_TRY(cl_session_get_section(session, &session->alloc, entry, &section, error));
    cl_cursor cursor = {section.bytes, section.bytes + section.size, false};
    uint32_t n;
    cellar_status status = cl_notes_read(&cursor, section.bytes, entry->offset, "note",
                                         &session->alloc, &session->notes, &n, error);
    if (status == CELLAR_OK) {
        session->n_notes = n;
        if (cl_cursor_left(&cursor) > 0)
            status = cl_error_set(error, CELLAR_CORRUPT, CELLAR_REASON_NONE, (int64_t)entry->offset,
                                  "bytes follow the notes");
    }
    cl_session_put_section(&session->alloc, &section);
    return status;
}

/* ---- logs ------------------------------------------------------------------------------------ */

/* How long each sequence's log is: its sections follow each other without a gap. */
static cellar_status measure_logs(cellar_session *session, cellar_error *error)
{
    for (uint32_t i = 0; i < session->n_entries; i++) {
        const cl_session_entry *entry = &session->entries[i];
        if (entry->kind != CL_SESSION_TOKENS) continue;
        int64_t at = (int64_t)entry->offset;
        if (entry->part >= session->n_sequences)
            CL_FAIL(error, CELLAR_CORRUPT, at, "a log of sequence %u, of which there are %u",
                    entry->part, session->n_sequences);
        cl_saved_sequence *sequence = &session->sequences[entry->part];
        if (entry->first != sequence->n_tokens || entry->length != 4ull * entry->count)
            CL_FAIL(error, CELLAR_CORRUPT, at,
                    "a part of a log has %llu bytes and begins at token %u, not %u",
                    (unsigned long long)entry->length, entry->first, sequence->n_tokens);
        sequence->n_tokens += entry->count;
    }
    return CELLAR_OK;
}

static cellar_status read_logs(cellar_session *session, cellar_error *error)
{
    CL_TRY(measure_logs(session, error));
    for (uint32_t i = 0; i < session->n_sequences; i++) {
        cl_saved_sequence *sequence = &session->sequences[i];
        if (sequence->n_tokens == 0) continue;
        size_t bytes = sequence->n_tokens * sizeof *sequence->tokens; /* as many as in the file */
        sequence->tokens = cl_alloc_get(&session->alloc, CELLAR_BYTES_SCRATCH, bytes);
        if (!sequence->tokens) return cl_error_no_memory(error, "a log", bytes);
    }
    for (uint32_t i = 0; i < session->n_entries; i++) {
        const cl_session_entry *entry = &session->entries[i];
        if (entry->kind != CL_SESSION_TOKENS) continue;
        cl_section section;
        CL_TRY(cl_session_get_section(session, &session->alloc, entry, &section, error));
        cellar_token *to = session->sequences[entry->part].tokens + entry->first;
        for (uint32_t t = 0; t < entry->count; t++)
            to[t] = (cellar_token)cl_get_u32(section.bytes + 4 * (size_t)t);
        cl_session_put_section(&session->alloc, &section);
    }
    return CELLAR_OK;
}

void cellar_close_session(cellar_session *session)
{
    if (!session) return;
    for (uint32_t i = 0; i < session->n_sequences; i++) {
        cl_saved_sequence *sequence = &session->sequences[i];
        if (sequence->tokens)
            cl_alloc_put(&session->alloc, CELLAR_BYTES_SCRATCH, sequence->tokens,
                         sequence->n_tokens * sizeof *sequence->tokens);
    }
    cl_session_free_lists(session);
    cl_notes_free(session->notes, session->n_notes, &session->alloc);
    cl_model_free(&session->model, &session->alloc);
    cl_alloc_put(&session->alloc, CELLAR_BYTES_SCRATCH, session->entries,
                 session->n_entries * sizeof *session->entries);
    cl_file_close(session->file);
    cl_alloc alloc = session->alloc;
    cl_alloc_put(&alloc, CELLAR_BYTES_OBJECT, session, sizeof *session);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static cellar_status read_everything(cellar_session *session, cellar_error *error)
{
    if (session->bytes.size > SIZE_MAX / 2)
        CL_FAIL(error, CELLAR_UNSUPPORTED, -1, "a session of %llu bytes is too large here",
                (unsigned long long)session->bytes.size);
    CL_TRY(read_header(session, error));
    CL_TRY(read_index(session, error));
    CL_TRY(read_model(session, error));
    CL_TRY(read_notes(session, error));
    CL_TRY(cl_session_read_cells(session, error));
    CL_TRY(cl_session_read_lists(session, error));
    return read_logs(session, error);
}

cellar_status cl_session_open(const cl_bytes *bytes, int file, const cellar_allocator *allocator,
                              cellar_session **out, cellar_error *error)
{
    cl_alloc alloc;
    cellar_allocator none = {0};
    cl_alloc_init(&alloc, allocator ? allocator : &none, 0);
    cellar_session *session = cl_alloc_get(&alloc, CELLAR_BYTES_OBJECT, sizeof *session);
    if (!session) return cl_error_no_memory(error, "a session", sizeof *session);
    memset(session, 0, sizeof *session);
    session->file = -1;
    session->alloc = alloc; /* counts what it gave for the session itself */
    session->bytes = *bytes;
    cl_kernels_fill(&session->kernels, CELLAR_CPU_ALL);
    cellar_status status = read_everything(session, error);
    if (status != CELLAR_OK) {
        cellar_close_session(session); /* has no file yet: that stays the caller's */
        return status;
    }
    session->file = file;
    *out = session;
    return CELLAR_OK;
}

cellar_status cellar_open_session_bytes(const void *bytes, size_t size,
                                        const cellar_allocator *allocator, cellar_session **session,
                                        cellar_error *error)
{
    static const unsigned char nothing;
    if (!session) CL_FAIL(error, CELLAR_INVALID, -1, "session is NULL");
    *session = NULL;
    if (!bytes && size > 0) CL_FAIL(error, CELLAR_INVALID, -1, "bytes is NULL");
    cl_bytes all = {.address = bytes ? bytes : &nothing, .size = size};
    return cl_session_open(&all, -1, allocator, session, error);
}

cellar_status cellar_open_session_reader(const cellar_reader *reader,
                                         const cellar_allocator *allocator,
                                         cellar_session **session, cellar_error *error)
{
    if (!session) CL_FAIL(error, CELLAR_INVALID, -1, "session is NULL");
    *session = NULL;
    if (!reader || !reader->read) CL_FAIL(error, CELLAR_INVALID, -1, "the reader is NULL");
    cl_bytes all = {.reader = *reader, .size = reader->size};
    return cl_session_open(&all, -1, allocator, session, error);
}
