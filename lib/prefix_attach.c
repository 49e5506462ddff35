/*
 * prefix_attach.c: a new sequence out of what was found.
 *
 * The entry of the new sequence is made first, the only part for which there may be no memory that is
 * not the memory's own. Then the best entry is taken; if that fails for a reason that lies in the entry, the next best
 * one, until one works or none is left. Each attempt leaves the sequence empty when it fails, so a failed
 * call leaves it as it was.
 */
#include "prefix_library.h"

#include "error.h"

/* What stood in the way of a better entry. */
typedef struct obstacle {
    uint32_t worth; /* what the entry would have been worth */
    cellar_prefix_reason reason;
} obstacle;

static void forget_sequence(cellar_library *library, cellar_seq seq)
{
    cellar_status status = cellar_remove(library->memory, seq, 0, -1, NULL);
    (void)status; /* of a whole sequence, with no step open: it cannot fail */
}

/* A whole sequence from the cells or a store, once. */
static cellar_status take_whole(cellar_library *library, cl_prefix_entry *entry,
                                cellar_prefix_source source, cellar_seq seq, cellar_error *error)
{
    if (source == CELLAR_PREFIX_FROM_CELLS)
        return cellar_copy(library->memory, entry->seq, seq, 0, -1, error);
    return cl_prefix_store_load(library, entry, seq, error);
}

/* The same, evicting as long as there is no room. */
static cellar_status make_room_and_take(cellar_library *library, cl_prefix_entry *entry,
                                        cellar_prefix_source source, cellar_seq seq,
                                        cellar_error *error)
{
    cellar_error lack = {0};
    uint32_t pool = cl_memory_pool_of(library->memory, seq);
    for (;;) {
        cellar_status status = take_whole(library, entry, source, seq, &lack);
        if (status == CELLAR_FULL && cl_prefix_evict_for(library, pool, lack.at)) continue;
        if (status != CELLAR_OK && error) *error = lack;
        return status;
    }
}

/*
 * What was loaded has cells of its own, also for what it has in common with sequences in the cells. Share
 * theirs instead, as if it had never left: a prompt that many begin with is there once again. Where
 * windows or states are kept the other sequence may have less than what was loaded, so not there.
 */
static void share_beginning(cellar_library *library, const cl_prefix_entry *entry, cellar_seq seq)
{
    cellar_memory *memory = library->memory;
    uint32_t pool = cl_memory_pool_of(memory, seq), common;
    if (!cl_prefix_places_keeps_all(memory)) return;
    cl_prefix_walk walk = cl_prefix_walk_begin(&entry->space->index, entry->text.tokens,
                                               entry->n_ready);
    for (cl_prefix_text *text; (text = cl_prefix_walk_next(&walk, &common));) {
        const cl_prefix_entry *other = (const cl_prefix_entry *)text;
        if (other->seq < 0 || cl_memory_pool_of(memory, other->seq) != pool) continue;
        uint32_t n = common < other->n_ready ? common : other->n_ready;
        if (n < CL_BLOCK) continue;
        cellar_status status = cellar_copy(memory, other->seq, seq, 0, (cellar_pos)n, NULL);
        (void)status; /* without memory it keeps its own cells */
        return;
    }
}

/* Make the sequence what the entry is, cut off after n tokens or before. */
static cellar_status take(cellar_library *library, cl_prefix_entry *entry,
                          cellar_prefix_source source, cellar_seq seq, uint32_t n, uint32_t *reused,
                          cellar_error *error)
{
    cellar_pos from;
    entry->n_guards++;
    cellar_status status = make_room_and_take(library, entry, source, seq, error);
    if (status == CELLAR_OK && source != CELLAR_PREFIX_FROM_CELLS)
        share_beginning(library, entry, seq);
    entry->n_guards--;
    if (status == CELLAR_OK)
        status = cellar_rewind(library->memory, seq, (cellar_pos)n, &from, error);
    if (status != CELLAR_OK) {
        forget_sequence(library, seq);
        return status;
    }
    *reused = (uint32_t)from;
    return CELLAR_OK;
}

/* What a failed attempt means: false: the whole call fails. */
static bool excuse(cellar_library *library, cl_prefix_entry *entry, cellar_prefix_source source,
                   cellar_status status, obstacle *in_the_way, uint32_t worth)
{
    cellar_prefix_reason reason;
    bool is_stored = source != CELLAR_PREFIX_FROM_CELLS;
    switch (status) {
    case CELLAR_FULL:
        reason = CELLAR_PREFIX_NO_ROOM;
        break;
    case CELLAR_IO:
        reason = CELLAR_PREFIX_UNREADABLE;
        library->counts.n_failures++;
        break;
    case CELLAR_CORRUPT:
    case CELLAR_MISMATCH:
    case CELLAR_NOT_FOUND:
    case CELLAR_UNSUPPORTED:
    case CELLAR_INVALID:
        if (!is_stored) return false;
        reason = CELLAR_PREFIX_DAMAGED;
        library->counts.n_damaged++;
        break;
    default:
        return false;
    }
    if (worth > in_the_way->worth) *in_the_way = (obstacle){worth, reason};
    entry->tried = library->attempt;
    if (reason == CELLAR_PREFIX_DAMAGED) {
        cl_prefix_entries_leave(library, entry,
                                source == CELLAR_PREFIX_FROM_RAM ? CL_PREFIX_RAM : CL_PREFIX_DISK);
        (void)cl_prefix_entries_settle(library, entry, false);
    }
    return true;
}

/* Take the best entry that can be taken. */
static cellar_status take_best(cellar_library *library, const cl_prefix_notes *key, cellar_seq seq,
                               cl_prefix_prompt prompt, cl_prefix_answer *answer,
                               obstacle *in_the_way, cellar_error *error)
{
    cellar_prefix *told = &answer->told;
    for (;;) {
        cl_prefix_find(library, key, prompt, answer);
        if (!answer->entry) return CELLAR_OK;
        cl_prefix_entry *entry = answer->entry;
        cellar_prefix_source source = told->source;
        uint32_t worth = told->reusable;
        cellar_status status = take(library, entry, source, seq, worth, &told->reused, error);
        if (status == CELLAR_OK) {
            cl_prefix_entries_touch(library, entry);
            if (entry->file > 0) cl_prefix_folder_touch(&library->disk, entry);
            return CELLAR_OK;
        }
        if (!excuse(library, entry, source, status, in_the_way, worth)) return status;
    }
}

static void count(cellar_library *library, const cellar_prefix *told, uint32_t n)
{
    cellar_library_statistics *counts = &library->counts;
    counts->n_attached++;
    counts->n_tokens_asked += n;
    counts->n_tokens_reused += told->reused;
    counts->by_source[told->source]++;
    counts->by_reason[told->reason]++;
}

/* The new sequence has an entry; fill it, and say what became of it. */
static cellar_status fill(cellar_library *library, const cl_prefix_notes *key,
                          cl_prefix_entry *entry, cellar_seq seq, cl_prefix_prompt prompt,
                          cellar_prefix *out, cellar_error *error)
{
    cl_prefix_answer answer;
    obstacle in_the_way = {0, CELLAR_PREFIX_WHOLE};
    library->attempt++;
    entry->n_guards++;
    cellar_status status = take_best(library, key, seq, prompt, &answer, &in_the_way, error);
    entry->n_guards--;
    library->attempt++;
    if (status != CELLAR_OK) return status;
    cellar_prefix *told = &answer.told;
    if (told->reused == 0) {
        told->source = CELLAR_PREFIX_FROM_NOWHERE;
        told->entry = 0;
    }
    told->reason = in_the_way.worth > told->reused
                       ? in_the_way.reason
                       : cl_prefix_find_reason(library, key, prompt, &answer, told->reused);
    entry->seq = seq;
    entry->is_running = true;
    entry->n_ready = told->reused;
    cl_prefix_entries_touch(library, entry);
    count(library, told, prompt.n);
    *out = *told;
    return CELLAR_OK;
}

static cellar_status check_prompt(const cellar_library *library, const cellar_token *tokens,
                                  uint32_t n, const cellar_prefix *out, cellar_error *error)
{
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    if (n > 0 && !tokens) CL_FAIL(error, CELLAR_INVALID, -1, "tokens is NULL");
    if (n > INT32_MAX) CL_FAIL(error, CELLAR_INVALID, n, "%u tokens have no positions", n);
    return cl_prefix_entries_check_tokens(tokens, n, error);
}

static cl_prefix_prompt prompt_of(const cellar_token *tokens, uint32_t n, uint32_t most)
{
    return (cl_prefix_prompt){tokens, n, most < n ? most : n};
}

cellar_status cellar_library_find(const cellar_library *library, const cellar_prefix_key *key,
                                  const cellar_token *tokens, uint32_t n_tokens, uint32_t most,
                                  cellar_prefix *out, cellar_error *error)
{
    cl_prefix_notes notes;
    cl_prefix_answer answer;
    CL_TRY(check_prompt(library, tokens, n_tokens, out, error));
    cl_alloc alloc = library->store; /* what is needed is given back at once: nothing is counted */
    alloc.limit = 0;
    CL_TRY(cl_prefix_key_collect(&library->base, key, &alloc, &notes, error));
    cl_prefix_prompt prompt = prompt_of(tokens, n_tokens, most);
    cl_prefix_find(library, &notes, prompt, &answer);
    *out = answer.told;
    out->reason = cl_prefix_find_reason(library, &notes, prompt, &answer, out->reusable);
    cl_prefix_notes_free(&notes, &alloc);
    return CELLAR_OK;
}

static cellar_status check_new(const cellar_library *library, cellar_seq seq, cellar_error *error)
{
    cellar_pos next, last;
    CL_TRY(cl_memory_check_idle(library->memory, error));
    if (seq < 0 || seq >= library->config.first_seq)
        CL_FAIL(error, CELLAR_INVALID, seq, "sequence %d: names of running ones are 0..%d",
                (int)seq, (int)(library->config.first_seq - 1));
    if (cl_prefix_entries_running(library, seq))
        CL_FAIL(error, CELLAR_INVALID, seq, "sequence %d is running already: retain or release it",
                (int)seq);
    cl_memory_position(library->memory, seq, &next, &last);
    if (next >= 0 || last >= 0)
        CL_FAIL(error, CELLAR_INVALID, seq, "sequence %d holds something: remove it first",
                (int)seq);
    return CELLAR_OK;
}

cellar_status cellar_library_attach(cellar_library *library, const cellar_prefix_key *key,
                                    cellar_seq seq, const cellar_token *tokens, uint32_t n_tokens,
                                    uint32_t most, cellar_prefix *out, cellar_error *error)
{
    cl_prefix_notes notes;
    cl_prefix_answer best;
    cl_prefix_entry *entry;
    CL_TRY(check_prompt(library, tokens, n_tokens, out, error));
    CL_TRY(check_new(library, seq, error));
    cl_alloc alloc = library->store;
    alloc.limit = 0;
    CL_TRY(cl_prefix_key_collect(&library->base, key, &alloc, &notes, error));
    cl_prefix_prompt prompt = prompt_of(tokens, n_tokens, most);
    cl_prefix_find(library, &notes, prompt, &best); /* not to be forgotten for the new entry */
    if (best.entry) best.entry->n_guards++;
    cellar_status status = cl_prefix_entries_add(library, &notes, tokens, n_tokens, &entry, error);
    if (best.entry) best.entry->n_guards--;
    if (status == CELLAR_OK) {
        status = fill(library, &notes, entry, seq, prompt, out, error);
        if (status != CELLAR_OK) cl_prefix_entries_remove(library, entry);
    }
    cl_prefix_notes_free(&notes, &alloc);
    return status;
}
