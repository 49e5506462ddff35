/*
 * reuse.c: the prefix library, asked in the server's words, for reuse.h.
 *
 * What the library calls a key is made here of owner and salt. Names of sequences count upwards and begin anew at
 * the top, past those in use. The notes are a short list, the oldest of which go when it is full; without a
 * note an entry serves as well.
 */
#include "serve/reuse.h"

#include <stdlib.h>
#include <string.h>

#include "engine/fingerprint.h"
#include "report.h"

#define MOST_NOTES 4096u

struct reuse {
    cellar_memory *memory;
    cellar_library *library;
    fingerprint who;
    bool shares_between_keys;
    reuse_entry *entries; /* that somebody works in */
    cellar_seq next, first_seq;
    reuse_note *notes; /* [n_notes] the oldest first */
    size_t n_notes;
    uint64_t n_conversations; /* so far */
};

cellar_status reuse_create(cellar_memory *memory, const reuse_options *options, reuse **out,
                           cellar_error *error)
{
    *out = NULL;
    reuse *r = calloc(1, sizeof *r);
    if (r == NULL || (r->notes = calloc(MOST_NOTES, sizeof *r->notes)) == NULL) {
        free(r);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for an index of what is retained");
    }
    r->memory = memory;
    r->shares_between_keys = options->shares_between_keys;
    fingerprint_make(options->model, &r->who);
    cellar_library_config config = cellar_library_config_init();
    config.facts = r->who.facts;
    config.n_facts = FINGERPRINT_FACTS;
    config.ram_bytes = options->ram_bytes;
    config.folder = options->folder;
    config.disk_bytes = options->folder != NULL ? options->disk_bytes : 0;
    r->first_seq = config.first_seq;
    const cellar_status status = cellar_library_create(memory, &config, &r->library, error);
    if (status != CELLAR_OK) {
        free(r->notes);
        free(r);
        return status;
    }
    *out = r;
    return CELLAR_OK;
}

void reuse_destroy(reuse *r)
{
    if (r != NULL) {
        while (r->entries != NULL) {
            reuse_drop(r, r->entries);
        }
        cellar_library_destroy(r->library);
        free(r->notes);
        free(r);
    }
}

static cellar_prefix_key key_of(const reuse *r, const char *owner, const char *salt)
{
    cellar_prefix_key key = cellar_prefix_key_init();
    key.is_shared = r->shares_between_keys;
    key.domain = owner;
    key.domain_size = key.is_shared ? 0 : strlen(owner);
    key.salt = salt;
    key.salt_size = salt != NULL ? strlen(salt) : 0;
    return key;
}

static uint32_t clamp(size_t n)
{
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

/* ---- notes ---------------------------------------------------------------------------------- */

static reuse_note *find_note(const reuse *r, uint64_t entry)
{
    for (size_t i = 0; i < r->n_notes; i++) {
        if (r->notes[i].entry == entry) {
            return &r->notes[i];
        }
    }
    return NULL;
}

static void note_hit(const reuse *r, uint64_t entry)
{
    reuse_note *note = find_note(r, entry);
    if (note != NULL) {
        note->n_hits++;
        note->since = job_now();
    }
}

static void add_note(reuse *r, uint64_t entry, int64_t slot, const reuse_entry *its)
{
    if (r->n_notes == MOST_NOTES) {
        r->n_notes -= MOST_NOTES / 4;
        memmove(r->notes, r->notes + MOST_NOTES / 4, r->n_notes * sizeof *r->notes);
    }
    r->notes[r->n_notes++] = (reuse_note){.entry = entry,
                                          .slot = slot,
                                          .since = job_now(),
                                          .conversation = its->conversation,
                                          .n_prompt = its->n_prompt};
}

/* Whoever takes over all that was asked somewhere (but its last token, which is always read) goes on with it. */
static uint64_t conversation_of(reuse *r, const cellar_prefix *found)
{
    const reuse_note *note = found->reused > 0 ? find_note(r, found->entry) : NULL;
    const bool goes_on = note != NULL && note->conversation != 0 &&
                         found->reused + (size_t)1 >= note->n_prompt;
    return goes_on ? note->conversation : ++r->n_conversations;
}

/* ---- sequences that somebody works in ------------------------------------------------------- */

static bool is_name_used(const reuse *r, cellar_seq seq)
{
    for (const reuse_entry *e = r->entries; e != NULL; e = e->next) {
        if (e->seq == seq) {
            return true;
        }
    }
    return false;
}

cellar_status reuse_name(reuse *r, reuse_entry **out, cellar_error *error)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a sequence");
    }
    do {
        r->next = r->next + 1 < r->first_seq ? r->next + 1 : 1;
    } while (is_name_used(r, r->next));
    (*out)->seq = r->next;
    (*out)->begun = job_now();
    (*out)->next = r->entries;
    r->entries = *out;
    return CELLAR_OK;
}

static void unlink_entry(reuse *r, reuse_entry *entry)
{
    reuse_entry **at = &r->entries;
    while (*at != entry) {
        at = &(*at)->next;
    }
    *at = entry->next;
    free(entry);
}

static reuse_answer answer_of(const cellar_prefix *p, size_t most)
{
    static const job_source sources[CELLAR_PREFIX_N_SOURCES] = {JOB_SOURCE_NONE, JOB_SOURCE_LIVE,
                                                                JOB_SOURCE_RAM, JOB_SOURCE_DISK};
    return (reuse_answer){.n_reusable = p->reusable,
                          .n_reused = p->reused,
                          .source = sources[p->source],
                          .reason = cellar_prefix_reason_text(p->reason),
                          .diverged_at = p->reason == CELLAR_PREFIX_DIVERGED ? p->diverged_at : -1,
                          .n_coming = p->coming < most ? p->coming : most,
                          .coming = p->coming_seq,
                          .is_in_cells = p->source == CELLAR_PREFIX_FROM_CELLS,
                          .entry = p->entry};
}

static cellar_prefix find(const reuse *r, const char *owner, const char *salt,
                          const cellar_token *tokens, size_t n)
{
    const cellar_prefix_key key = key_of(r, owner, salt);
    cellar_prefix found;
    if (cellar_library_find(r->library, &key, tokens, clamp(n), clamp(n) - 1, &found, NULL) !=
        CELLAR_OK) {
        found = (cellar_prefix){.reason = CELLAR_PREFIX_COLD, .diverged_at = -1, .coming_seq = -1};
    }
    return found;
}

reuse_answer reuse_look(const reuse *r, const char *owner, const char *salt,
                        const cellar_token *tokens, size_t n)
{
    const cellar_prefix found = find(r, owner, salt, tokens, n);
    return answer_of(&found, n - 1);
}

cellar_status reuse_begin(reuse *r, const char *owner, const char *salt, const cellar_token *tokens,
                          size_t n, size_t most, reuse_entry **out, reuse_answer *answer,
                          cellar_error *error)
{
    const cellar_prefix_key key = key_of(r, owner, salt);
    cellar_prefix found;
    cellar_status status = reuse_name(r, out, error);
    if (status != CELLAR_OK) {
        return status;
    }
    status = cellar_library_attach(r->library, &key, (*out)->seq, tokens, clamp(n), clamp(most),
                                   &found, error);
    if (status != CELLAR_OK) {
        unlink_entry(r, *out);
        *out = NULL;
        return status;
    }
    (*out)->is_in_library = true;
    (*out)->n_told = found.reused;
    *answer = answer_of(&found, most);
    (*out)->conversation = answer->conversation = conversation_of(r, &found);
    (*out)->n_prompt = n;
    if (found.reused > 0) {
        note_hit(r, found.entry);
    }
    return CELLAR_OK;
}

void reuse_tell(reuse *r, reuse_entry *entry, const cellar_token *tokens, size_t n)
{
    if (entry->is_in_library && n > entry->n_told &&
        cellar_library_extend(r->library, entry->seq, tokens + entry->n_told,
                              clamp(n - entry->n_told), NULL) == CELLAR_OK) {
        entry->n_told = n;
    }
}

void reuse_drop(reuse *r, reuse_entry *entry)
{
    if (entry->is_in_library) {
        (void)!cellar_library_release(r->library, entry->seq, NULL);
    }
    (void)!cellar_remove(r->memory, entry->seq, 0, -1, NULL); /* whole: never refused */
    unlink_entry(r, entry);
}

uint64_t reuse_retain(reuse *r, reuse_entry *entry, int64_t slot)
{
    uint64_t number = 0;
    if (!entry->is_in_library ||
        cellar_library_retain(r->library, entry->seq, &number, NULL) != CELLAR_OK) {
        reuse_drop(r, entry);
        return 0;
    }
    if (number != 0) {
        add_note(r, number, slot, entry);
    }
    unlink_entry(r, entry);
    return number;
}

/* ---- room ----------------------------------------------------------------------------------- */

bool reuse_makes_fit(reuse *r, const cellar_batch *batch)
{
    const bool fits = cellar_library_begin(r->library, batch, NULL) == CELLAR_OK;
    if (fits) {
        cellar_abort(r->memory);
    }
    return fits;
}

bool reuse_makes_room(reuse *r, const char *owner, const char *salt, const cellar_token *tokens,
                      size_t n_tokens, size_t n)
{
    const cellar_prefix found = find(r, owner, salt, tokens, n_tokens);
    /* Pinned already, by somebody else, is never the case: nothing is pinned for longer than here. */
    const bool is_pinned = found.entry != 0 &&
                           cellar_library_pin(r->library, found.entry, true, NULL) == CELLAR_OK;
    const bool has_room = cellar_library_make_room(r->library, 0, clamp(n), NULL) == CELLAR_OK;
    if (is_pinned) {
        (void)!cellar_library_pin(r->library, found.entry, false, NULL);
    }
    return has_room;
}

bool reuse_persist(reuse *r, uint64_t most_bytes)
{
    uint64_t n = 0;
    return cellar_library_persist(r->library, most_bytes, &n, NULL) == CELLAR_OK && n > 0;
}

/* ---- parts ---------------------------------------------------------------------------------- */

bool reuse_divides(const reuse *r)
{
    return cellar_library_divides(r->library);
}

bool reuse_write_key(const reuse *r, const char *owner, const char *salt,
                     const cellar_writer *writer)
{
    const cellar_prefix_key key = key_of(r, owner, salt);
    return cellar_library_write_key(r->library, &key, writer, NULL) == CELLAR_OK;
}

cellar_status reuse_export(reuse *r, uint64_t entry, size_t from, size_t to,
                           const cellar_writer *writer, cellar_error *error)
{
    return cellar_library_export(r->library, entry, clamp(from), clamp(to), writer, error);
}

cellar_status reuse_supply(reuse *r, reuse_entry *entry, const void *bytes, size_t size, size_t *n)
{
    uint32_t n_ready = 0;
    const cellar_status status = cellar_library_supply(r->library, entry->seq, bytes, size,
                                                       &n_ready, NULL);
    if (status == CELLAR_OK) {
        *n = entry->n_told = n_ready;
    }
    return status;
}

/* ---- looking -------------------------------------------------------------------------------- */

job_source reuse_tier(const cellar_entry *entry)
{
    if (entry->seq >= 0) {
        return JOB_SOURCE_LIVE;
    }
    return entry->ram_bytes > 0 ? JOB_SOURCE_RAM : JOB_SOURCE_DISK;
}

typedef struct visiting {
    const reuse *r;
    bool (*visit)(void *context, const cellar_entry *entry, const reuse_note *note);
    void *context;
} visiting;

static bool show(void *context, const cellar_entry *entry)
{
    const visiting *v = context;
    const reuse_note *its = find_note(v->r, entry->entry);
    reuse_note own = {.slot = -1};
    for (const reuse_entry *e = v->r->entries; entry->is_running && e != NULL; e = e->next) {
        if (e->seq == entry->seq) {
            own = (reuse_note){.slot = -1,
                               .since = e->begun,
                               .conversation = e->conversation,
                               .n_prompt = e->n_prompt};
        }
    }
    return v->visit(v->context, entry, its != NULL && !entry->is_running ? its : &own);
}

void reuse_visit(const reuse *r,
                 bool (*visit)(void *context, const cellar_entry *entry, const reuse_note *note),
                 void *context)
{
    visiting v = {.r = r, .visit = visit, .context = context};
    (void)!cellar_library_visit(r->library, show, &v, NULL);
}

/* The entry of a number. */
typedef struct looking {
    uint64_t entry;
    cellar_entry *out;
    bool is_found;
} looking;

static bool match(void *context, const cellar_entry *entry)
{
    looking *l = context;
    if (entry->entry == l->entry && !entry->is_running) {
        *l->out = *entry;
        l->is_found = true;
    }
    return !l->is_found;
}

static bool match_any(void *context, const cellar_entry *entry)
{
    looking *l = context;
    if (entry->entry == l->entry) {
        *l->out = *entry;
        l->is_found = true;
    }
    return !l->is_found;
}

bool reuse_find(const reuse *r, uint64_t number, cellar_entry *out)
{
    looking l = {.entry = number, .out = out};
    (void)!cellar_library_visit(r->library, match_any, &l, NULL);
    return l.is_found;
}

uint64_t reuse_in_slot(const reuse *r, int64_t slot, cellar_entry *entry)
{
    for (size_t i = r->n_notes; i > 0; i--) {
        if (r->notes[i - 1].slot == slot) {
            looking l = {.entry = r->notes[i - 1].entry, .out = entry};
            (void)!cellar_library_visit(r->library, match, &l, NULL);
            return l.is_found ? l.entry : 0;
        }
    }
    return 0;
}

bool reuse_is_owners(const reuse *r, const cellar_entry *entry, const char *owner)
{
    return r->shares_between_keys || (entry->domain_size == strlen(owner) &&
                                      memcmp(entry->domain, owner, entry->domain_size) == 0);
}

cellar_status reuse_forget(reuse *r, uint64_t entry, cellar_error *error)
{
    return cellar_library_drop(r->library, entry, error);
}

cellar_library_statistics reuse_statistics(const reuse *r)
{
    cellar_library_statistics its;
    if (cellar_library_stats(r->library, &its, NULL) != CELLAR_OK) {
        memset(&its, 0, sizeof its);
    }
    return its;
}

cellar_status reuse_check(const reuse *r, cellar_error *error)
{
    return cellar_library_check(r->library, error);
}
