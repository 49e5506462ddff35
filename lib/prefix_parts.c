/*
 * prefix_parts.c: what a sequence has read, carried out of a library and into another one, in parts.
 *
 * A part is a session of one sequence, as in every store: the key as its facts, the tokens as its log. Where
 * everything is attended to it may hold a stretch of positions alone, and parts follow each other; where windows or
 * states are kept it is a whole beginning, as it was at a place to go on from. A part is made from a fork that is
 * cut to size and forgotten again, and taken in the same way: loaded under a name of the library's, compared, and only
 * then put into the running sequence, which is as it was if anything fails.
 *
 * What is taken in comes from anywhere: the session checks its bytes, this file its tokens and positions.
 */
#include "prefix_library.h"

#include "error.h"
#include "session_format.h"

static void forget_sequence(cellar_library *library, cellar_seq seq)
{
    cellar_status status = cellar_remove(library->memory, seq, 0, -1, NULL);
    (void)status; /* of a whole sequence, with no step open: it cannot fail */
}

/* ---- the key ----------------------------------------------------------------------------------- */

static bool write_sized(const cellar_writer *writer, const void *bytes, size_t size)
{
    unsigned char head[4];
    cl_put_u32(head, (uint32_t)size);
    return writer->write(writer->context, head, sizeof head) &&
           (size == 0 || writer->write(writer->context, bytes, size));
}

cellar_status cellar_library_write_key(const cellar_library *library, const cellar_prefix_key *key,
                                       const cellar_writer *writer, cellar_error *error)
{
    cl_prefix_notes notes;
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    if (!writer || !writer->write) CL_FAIL(error, CELLAR_INVALID, -1, "writer is NULL");
    cl_alloc alloc = library->store; /* given back at once: nothing is counted */
    alloc.limit = 0;
    CL_TRY(cl_prefix_key_collect(&library->base, key, &alloc, &notes, error));
    bool is_written = true;
    for (uint32_t i = 0; is_written && i < notes.n; i++)
        is_written = write_sized(writer, notes.items[i].name, strlen(notes.items[i].name)) &&
                     write_sized(writer, notes.items[i].value, notes.items[i].size);
    cl_prefix_notes_free(&notes, &alloc);
    if (!is_written) CL_FAIL(error, CELLAR_IO, -1, "a key could not be written");
    return CELLAR_OK;
}

/* ---- out --------------------------------------------------------------------------------------- */

bool cellar_library_divides(const cellar_library *library)
{
    return library && cl_prefix_places_keeps_all(library->memory);
}

/* A fork under a new name that holds what the part shall hold. */
static cellar_status fork_part(cellar_library *library, const cl_prefix_entry *entry, uint32_t from,
                               uint32_t to, cellar_seq name, cellar_error *error)
{
    cellar_memory *memory = library->memory;
    cellar_pos held;
    if (cl_prefix_places_keeps_all(memory))
        return cellar_copy(memory, entry->seq, name, (cellar_pos)from, (cellar_pos)to, error);
    if (from > 0)
        CL_FAIL(error, CELLAR_INVALID, from, "with windows or states a part begins at 0, not at %u",
                from);
    uint32_t can = cl_prefix_places_ask(memory, entry->seq, to, NULL);
    if (can != to)
        CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_NONE, can,
                        "entry %llu cannot be gone on from after %u tokens, but after %u",
                        (unsigned long long)entry->number, to, can);
    CL_TRY(cellar_copy(memory, entry->seq, name, 0, -1, error));
    return cellar_rewind(memory, name, (cellar_pos)to, &held, error);
}

static cellar_status write_part(cellar_library *library, const cl_prefix_entry *entry,
                                cellar_seq name, uint32_t to, const cellar_writer *writer,
                                cellar_error *error)
{
    const cellar_log log = {name, to, entry->text.tokens};
    cellar_save_options options = cellar_save_options_init();
    options.sequences = &name;
    options.n_sequences = 1;
    options.facts = entry->space->key.items;
    options.n_facts = entry->space->key.n;
    options.logs = &log;
    options.n_logs = 1;
    return cellar_write_session(library->memory, &options, writer, error);
}

cellar_status cellar_library_export(cellar_library *library, uint64_t entry, uint32_t from,
                                    uint32_t to, const cellar_writer *writer, cellar_error *error)
{
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    if (!writer || !writer->write) CL_FAIL(error, CELLAR_INVALID, -1, "writer is NULL");
    CL_TRY(cl_memory_check_idle(library->memory, error));
    cl_prefix_entry *its = cl_prefix_entries_numbered(library, entry);
    if (!its)
        CL_FAIL(error, CELLAR_NOT_FOUND, -1, "there is no entry %llu", (unsigned long long)entry);
    if (its->seq < 0)
        CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_NONE, -1,
                        "entry %llu is not in the cells", (unsigned long long)entry);
    if (from >= to || to > its->n_ready)
        CL_FAIL(error, CELLAR_INVALID, to, "tokens %u..%u of entry %llu, which has read %u", from,
                to, (unsigned long long)entry, its->n_ready);
    cellar_seq name = cl_prefix_library_name(library, its->seq);
    if (name < 0)
        CL_FAIL(error, CELLAR_FULL, library->config.first_seq, "no name is free for a part");
    cellar_status status = fork_part(library, its, from, to, name, error);
    if (status == CELLAR_OK) status = write_part(library, its, name, to, writer, error);
    forget_sequence(library, name);
    return status;
}

/* ---- in ---------------------------------------------------------------------------------------- */

/* Is the session a part that goes on where the running sequence ends, with what that is about to read? */
static cellar_status check_part(const cellar_library *library, const cl_prefix_entry *entry,
                                const cellar_session *session, cellar_session_sequence *its,
                                cellar_error *error)
{
    cellar_session_info info;
    CL_TRY(cellar_describe_session(session, &info, error));
    if (info.n_sequences != 1)
        CL_FAIL(error, CELLAR_MISMATCH, -1, "a part has %u sequences, not 1", info.n_sequences);
    CL_TRY(cellar_get_session_sequence(session, 0, its, error));
    if (its->n_tokens > entry->text.n || its->pos_max != (cellar_pos)its->n_tokens - 1 ||
        memcmp(its->tokens, entry->text.tokens, its->n_tokens * sizeof *its->tokens) != 0)
        CL_FAIL(error, CELLAR_MISMATCH, -1, "a part has other tokens than were asked for");
    if (!cl_prefix_places_keeps_all(library->memory)) return CELLAR_OK;
    uint64_t n = (uint64_t)(its->pos_max - its->pos_min) + 1;
    if (its->pos_min < 0 || its->n_cells != n * library->memory->n_groups)
        CL_FAIL(error, CELLAR_MISMATCH, -1, "a part has gaps");
    if ((uint32_t)its->pos_min > entry->n_ready)
        CL_FAIL(error, CELLAR_INVALID, its->pos_min,
                "a part begins at position %d; %u tokens are read, and what is between is missing",
                (int)its->pos_min, entry->n_ready);
    return CELLAR_OK;
}

static cellar_status load_part(cellar_library *library, const cl_prefix_entry *entry,
                               const cellar_session *session, cellar_seq from, cellar_seq name,
                               cellar_error *error)
{
    cellar_error lack = {0};
    uint32_t pool = cl_memory_pool_of(library->memory, name);
    cellar_load_options options = cellar_load_options_init();
    options.sequences = &from;
    options.as = &name;
    options.n_sequences = 1;
    options.facts = entry->space->key.items;
    options.n_facts = entry->space->key.n;
    for (;;) {
        cellar_status status = cellar_load_session(library->memory, session, &options, &lack);
        if (status == CELLAR_FULL && cl_prefix_evict_for(library, pool, lack.at)) continue;
        if (status != CELLAR_OK && error) *error = lack;
        return status;
    }
}

/* Put what was loaded into the running sequence: shared cells, no row is copied. */
static cellar_status join(cellar_library *library, const cl_prefix_entry *entry, cellar_seq name,
                          uint32_t to, cellar_error *error)
{
    cellar_memory *memory = library->memory;
    if (cl_prefix_places_keeps_all(memory))
        return cellar_copy(memory, name, entry->seq, (cellar_pos)entry->n_ready, (cellar_pos)to,
                           error);
    if (cl_prefix_places_ask(memory, name, to, NULL) != to)
        CL_FAIL(error, CELLAR_MISMATCH, to, "a part cannot be gone on from at its end");
    return cellar_copy(memory, name, entry->seq, 0, -1, error);
}

static cellar_status supply(cellar_library *library, cl_prefix_entry *entry,
                            const cellar_session *session, cellar_error *error)
{
    cellar_session_sequence its;
    CL_TRY(check_part(library, entry, session, &its, error));
    if (its.n_tokens <= entry->n_ready) return CELLAR_OK; /* nothing new */
    cellar_seq name = cl_prefix_library_name(library, entry->seq);
    if (name < 0)
        CL_FAIL(error, CELLAR_FULL, library->config.first_seq, "no name is free for a part");
    cellar_status status = load_part(library, entry, session, its.seq, name, error);
    if (status != CELLAR_OK) return status;
    status = join(library, entry, name, its.n_tokens, error);
    forget_sequence(library, name);
    if (status == CELLAR_OK) entry->n_ready = its.n_tokens;
    return status;
}

cellar_status cellar_library_supply(cellar_library *library, cellar_seq seq, const void *bytes,
                                    size_t size, uint32_t *n_ready, cellar_error *error)
{
    cellar_session *session;
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    if (!bytes) CL_FAIL(error, CELLAR_INVALID, -1, "bytes is NULL");
    CL_TRY(cl_memory_check_idle(library->memory, error));
    cl_prefix_entry *entry = cl_prefix_entries_running(library, seq);
    if (!entry)
        CL_FAIL(error, CELLAR_INVALID, seq, "sequence %d is not running: attach it", (int)seq);
    if (n_ready) *n_ready = entry->n_ready;
    CL_TRY(cellar_open_session_bytes(bytes, size, &library->store.user, &session, error));
    entry->n_guards++;
    cellar_status status = supply(library, entry, session, error);
    entry->n_guards--;
    cellar_close_session(session);
    if (n_ready) *n_ready = entry->n_ready;
    return status;
}
