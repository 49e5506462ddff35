/*
 * prefix_store.c: sequences as sessions: in RAM, or on their way to and from a file.
 *
 * A stored sequence is a session of that one sequence (docs/session-format.md): the key as facts, the tokens as its
 * log, and a note of the places after which it can go on. The same bytes lie in RAM and in a file, so
 * going from one to the other is copying. Its size is measured first, and room made for exactly that
 * much; only then it is written.
 *
 * Loading believes nothing: the session checks itself, its facts are compared by the session's own code, its
 * tokens here, one by one.
 */
#include "prefix_library.h"

#include "error.h"

/* ---- what is written --------------------------------------------------------------------------- */

typedef struct saving {
    const cellar_library *library;
    const cl_prefix_entry *entry;
    cl_prefix_places places;
    unsigned char place_bytes[8 * CL_PREFIX_PLACES];
    cellar_note note;
    cellar_log log;
    cellar_save_options options;
} saving;

/* `s` must stay where it is. */
static void describe(saving *s, const cellar_library *library, const cl_prefix_entry *entry)
{
    s->library = library;
    s->entry = entry;
    cl_prefix_places_list(library->memory, entry->seq, entry->n_ready, &s->places);
    size_t n = cl_prefix_places_write(&s->places, s->place_bytes);
    s->note = (cellar_note){CL_PREFIX_PLACES_NOTE, s->place_bytes, n};
    s->log = (cellar_log){entry->seq, entry->n_ready, entry->text.tokens};
    s->options = cellar_save_options_init();
    s->options.sequences = &entry->seq;
    s->options.n_sequences = 1;
    s->options.facts = entry->space->key.items;
    s->options.n_facts = entry->space->key.n;
    s->options.notes = &s->note;
    s->options.n_notes = 1;
    s->options.logs = &s->log;
    s->options.n_logs = 1;
}

static cellar_status fill_from_cells(void *context, const cellar_writer *writer,
                                     cellar_error *error)
{
    const saving *s = context;
    return cellar_write_session(s->library->memory, &s->options, writer, error);
}

static cellar_status fill_from_ram(void *context, const cellar_writer *writer, cellar_error *error)
{
    const cl_prefix_entry *entry = context;
    if (writer->write(writer->context, entry->blob, entry->blob_bytes)) return CELLAR_OK;
    CL_FAIL(error, CELLAR_IO, -1, "a prefix could not be written");
}

/* ---- disk -------------------------------------------------------------------------------------- */

static bool has_disk(const cellar_library *library)
{
    return library->disk.handle >= 0;
}

/* Remove files until `bytes` more fit. */
static bool make_disk_room(cellar_library *library, uint64_t bytes, uint64_t before)
{
    uint64_t most = library->config.disk_bytes;
    if (bytes > most) return false;
    while (library->disk.bytes > most - bytes) {
        uint64_t had = library->disk.bytes;
        cl_prefix_entry *oldest = cl_prefix_entries_oldest(library, CL_PREFIX_DISK, 0, before);
        if (!oldest) return false;
        cl_prefix_entries_leave(library, oldest, CL_PREFIX_DISK);
        (void)cl_prefix_entries_settle(library, oldest, true);
        if (library->disk.bytes >= had) return false; /* files cannot be removed there */
    }
    return true;
}

static cellar_status write_bytes(cellar_library *library, cl_prefix_entry *entry, uint64_t bytes,
                                 uint64_t before, cl_prefix_fill *fill, void *context,
                                 cellar_error *error)
{
    if (!make_disk_room(library, bytes, before))
        CL_FAIL_BECAUSE(error, CELLAR_FULL, CELLAR_REASON_BUDGET, -1,
                        "%llu bytes do not fit in the folder", (unsigned long long)bytes);
    CL_TRY(cl_prefix_folder_write(&library->disk, entry, fill, context, error));
    library->counts.n_to_disk++;
    cl_prefix_entries_supersede(library, entry, CL_PREFIX_DISK);
    return CELLAR_OK;
}

static cellar_status write_file(cellar_library *library, cl_prefix_entry *entry, uint64_t before,
                                cellar_error *error)
{
    if (entry->blob)
        return write_bytes(library, entry, entry->blob_bytes, before, fill_from_ram, entry, error);
    saving s;
    uint64_t bytes;
    describe(&s, library, entry);
    CL_TRY(cellar_measure_session(library->memory, &s.options, &bytes, error));
    CL_TRY(cl_prefix_entries_set_places(library, entry, &s.places, error));
    return write_bytes(library, entry, bytes, before, fill_from_cells, &s, error);
}

cellar_status cl_prefix_store_write(cellar_library *library, cl_prefix_entry *entry,
                                    uint64_t before, cellar_error *error)
{
    entry->n_guards++;
    cellar_status status = write_file(library, entry, before, error);
    entry->n_guards--;
    if (status != CELLAR_OK && status != CELLAR_FULL) library->counts.n_failures++;
    return status;
}

/* ---- RAM --------------------------------------------------------------------------------------- */

void cl_prefix_store_free(cellar_library *library, cl_prefix_entry *entry)
{
    cl_alloc_put(&library->store, CELLAR_BYTES_ROWS, entry->blob, entry->blob_bytes);
    entry->blob = NULL;
    entry->blob_bytes = 0;
}

/* Move the one in RAM that was not used for longest to the disk, or away. False: there is none. */
static bool leave_ram(cellar_library *library)
{
    cl_prefix_entry *oldest = cl_prefix_entries_oldest(library, CL_PREFIX_RAM, 0, UINT64_MAX);
    if (!oldest) return false;
    if (has_disk(library) && oldest->file == 0) {
        cellar_status status = cl_prefix_store_write(library, oldest, UINT64_MAX, NULL);
        (void)status; /* without a file it is lost: somebody waits for the room */
    }
    cl_prefix_entries_leave(library, oldest, CL_PREFIX_RAM);
    (void)cl_prefix_entries_settle(library, oldest, true);
    return true;
}

/* Let others leave until `bytes` more fit. */
static bool make_ram_room(cellar_library *library, uint64_t bytes)
{
    uint64_t most = library->config.ram_bytes;
    if (bytes > most || bytes > SIZE_MAX) return false;
    while (library->store.total > most - bytes)
        if (!leave_ram(library)) return false;
    return true;
}

typedef struct block {
    unsigned char *bytes;
    size_t size, used;
} block;

static bool write_to_block(void *context, const void *bytes, size_t size)
{
    block *to = context;
    if (size > to->size - to->used) return false;
    memcpy(to->bytes + to->used, bytes, size);
    to->used += size;
    return true;
}

static cellar_status write_to_ram(cellar_library *library, cl_prefix_entry *entry, const saving *s,
                                  uint64_t bytes)
{
    CL_TRY(cl_prefix_entries_set_places(library, entry, &s->places, NULL));
    block to = {.size = (size_t)bytes};
    to.bytes = cl_alloc_get(&library->store, CELLAR_BYTES_ROWS, to.size);
    if (!to.bytes) return CELLAR_NO_MEMORY;
    const cellar_writer writer = {write_to_block, &to};
    entry->blob = to.bytes;
    entry->blob_bytes = to.size;
    cellar_status status = cellar_write_session(library->memory, &s->options, &writer, NULL);
    if (status != CELLAR_OK) cl_prefix_store_free(library, entry);
    return status;
}

static bool keep_in_ram(cellar_library *library, cl_prefix_entry *entry)
{
    saving s;
    uint64_t bytes;
    describe(&s, library, entry);
    cellar_status status = cellar_measure_session(library->memory, &s.options, &bytes, NULL);
    if (status == CELLAR_OK) {
        if (!make_ram_room(library, bytes)) return false;
        status = write_to_ram(library, entry, &s, bytes);
    }
    if (status != CELLAR_OK) {
        library->counts.n_failures++;
        return false;
    }
    library->counts.n_to_ram++;
    cl_prefix_entries_supersede(library, entry, CL_PREFIX_RAM);
    return true;
}

bool cl_prefix_store_keep(cellar_library *library, cl_prefix_entry *entry)
{
    bool has_ram = library->config.ram_bytes > 0;
    if (!has_ram && !has_disk(library)) return false;
    entry->n_guards++;
    bool is_kept = has_ram && keep_in_ram(library, entry);
    entry->n_guards--;
    if (!is_kept && has_disk(library))
        return cl_prefix_store_write(library, entry, UINT64_MAX, NULL) == CELLAR_OK;
    return is_kept;
}

/* ---- loading ----------------------------------------------------------------------------------- */

static cellar_status check_sequence(const cl_prefix_entry *entry, const cellar_session *session,
                                    cellar_session_sequence *its, cellar_error *error)
{
    cellar_session_info info;
    CL_TRY(cellar_describe_session(session, &info, error));
    if (info.n_sequences != 1)
        CL_FAIL(error, CELLAR_MISMATCH, -1, "a stored prefix has %u sequences, not 1",
                info.n_sequences);
    CL_TRY(cellar_get_session_sequence(session, 0, its, error));
    bool is_same = its->n_tokens == entry->n_ready && its->pos_max == (cellar_pos)its->n_tokens - 1;
    for (uint32_t i = 0; is_same && i < its->n_tokens; i++)
        is_same = its->tokens[i] == entry->text.tokens[i];
    if (!is_same)
        CL_FAIL(error, CELLAR_MISMATCH, -1, "a stored prefix has other tokens than it had");
    return CELLAR_OK;
}

static cellar_status load(cellar_library *library, const cl_prefix_entry *entry,
                          const cellar_session *session, cellar_seq seq, cellar_error *error)
{
    cellar_session_sequence its;
    CL_TRY(check_sequence(entry, session, &its, error));
    cellar_load_options options = cellar_load_options_init();
    options.sequences = &its.seq;
    options.as = &seq;
    options.n_sequences = 1;
    options.facts = entry->space->key.items;
    options.n_facts = entry->space->key.n;
    return cellar_load_session(library->memory, session, &options, error);
}

cellar_status cl_prefix_store_load(cellar_library *library, cl_prefix_entry *entry, cellar_seq seq,
                                   cellar_error *error)
{
    cellar_session *session;
    const cellar_allocator *allocator = &library->store.user;
    if (entry->blob)
        CL_TRY(
            cellar_open_session_bytes(entry->blob, entry->blob_bytes, allocator, &session, error));
    else
        CL_TRY(
            cl_prefix_folder_read(&library->disk, entry->file, allocator, &session, NULL, error));
    cellar_status status = load(library, entry, session, seq, error);
    cellar_close_session(session);
    return status;
}

/* ---- persisting -------------------------------------------------------------------------------- */

/* The last used of those that could have a file, have none, and were not tried now. */
static cl_prefix_entry *next_to_write(const cellar_library *library)
{
    cl_prefix_entry *last = NULL;
    for (uint32_t i = 0; i < library->n_entries; i++) {
        cl_prefix_entry *entry = library->entries[i];
        if (entry->is_running || entry->file > 0 || entry->tried == library->attempt) continue;
        if (!last || entry->last_used > last->last_used) last = entry;
    }
    return last;
}

static cellar_status persist(cellar_library *library, uint64_t most_bytes, uint64_t *n_bytes,
                             cellar_error *error)
{
    cl_prefix_entry *entry;
    while ((*n_bytes == 0 || *n_bytes < most_bytes) && (entry = next_to_write(library))) {
        entry->tried = library->attempt;
        cellar_status status = cl_prefix_store_write(library, entry, entry->last_used, error);
        if (status == CELLAR_OK)
            *n_bytes += entry->file_bytes;
        else if (status != CELLAR_FULL)
            return status;
    }
    return CELLAR_OK;
}

cellar_status cellar_library_persist(cellar_library *library, uint64_t most_bytes,
                                     uint64_t *n_bytes, cellar_error *error)
{
    uint64_t n = 0;
    if (n_bytes) *n_bytes = 0;
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    if (!has_disk(library))
        CL_FAIL(error, CELLAR_UNSUPPORTED, -1, "the prefix library has no folder");
    CL_TRY(cl_memory_check_idle(library->memory, error));
    library->attempt++;
    cellar_status status = persist(library, most_bytes, &n, error);
    library->attempt++;
    if (n_bytes) *n_bytes = n;
    return status;
}
