/*
 * reuse.c: a list of entries, walked from end to end, for reuse.h.
 *
 * Most entries differ from a prompt in one of the first tokens, so walking over hundreds of them costs
 * less than one row of a matrix. A memory that attends to everything can be cut anywhere; there an entry that
 * has to go loses its end piece by piece, and its beginning, which is what others share, stays longest.
 */
#define _POSIX_C_SOURCE 200809L

#include "serve/reuse.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define PIECE 256u /* tokens that an entry loses at a time */

struct reuse {
    cellar_memory *memory;
    reuse_entry **entries; /* [n] */
    size_t n, capacity;
    cellar_seq next; /* name to try first */
    uint64_t next_id, clock, n_evictions;
    bool can_cut; /* every group attends to everything */
};

static bool attends_to_all(const cellar_memory *memory)
{
    for (uint32_t i = 0; i < cellar_count_groups(memory); i++) {
        cellar_group_info group;
        if (cellar_get_group(memory, i, &group, NULL) != CELLAR_OK ||
            group.kind != CELLAR_LAYER_ATTENTION || group.window.kind != CELLAR_WINDOW_NONE) {
            return false;
        }
    }
    return true;
}

cellar_status reuse_create(cellar_memory *memory, reuse **out, cellar_error *error)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for an index of what is retained");
    }
    (*out)->memory = memory;
    (*out)->next_id = 1;
    (*out)->can_cut = attends_to_all(memory);
    return CELLAR_OK;
}

static void free_entry(reuse_entry *entry)
{
    if (!entry->is_live) {
        free(entry->tokens);
    }
    free(entry->owner);
    free(entry);
}

void reuse_destroy(reuse *r)
{
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < r->n; i++) {
        free_entry(r->entries[i]);
    }
    free(r->entries);
    free(r);
}

/* ---- entries -------------------------------------------------------------------------------- */

static bool is_name_used(const reuse *r, cellar_seq seq)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->entries[i]->seq == seq) {
            return true;
        }
    }
    return false;
}

static cellar_seq new_name(reuse *r)
{
    do {
        r->next = r->next < INT32_MAX ? r->next + 1 : 1;
    } while (is_name_used(r, r->next));
    return r->next;
}

static void touch(reuse *r, reuse_entry *entry)
{
    entry->used = ++r->clock;
    entry->since = job_now();
}

cellar_status reuse_open(reuse *r, const char *owner, reuse_entry **out, cellar_error *error)
{
    *out = NULL;
    if (r->n == r->capacity) {
        const size_t capacity = 2 * r->capacity + 16;
        reuse_entry **larger = realloc(r->entries, capacity * sizeof *larger);
        if (larger == NULL) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for %zu sequences", capacity);
        }
        r->entries = larger;
        r->capacity = capacity;
    }
    reuse_entry *entry = calloc(1, sizeof *entry);
    char *copy = strdup(owner);
    if (entry == NULL || copy == NULL) {
        free(entry);
        free(copy);
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a sequence");
    }
    entry->owner = copy;
    entry->id = r->next_id++;
    entry->seq = new_name(r);
    entry->is_live = true;
    entry->slot = -1;
    touch(r, entry);
    r->entries[r->n++] = entry;
    *out = entry;
    return CELLAR_OK;
}

void reuse_set(reuse_entry *entry, cellar_token *tokens, size_t n)
{
    entry->tokens = tokens;
    entry->n = n;
}

void reuse_drop(reuse *r, reuse_entry *entry)
{
    size_t i = 0;
    while (r->entries[i] != entry) {
        i++;
    }
    r->entries[i] = r->entries[--r->n];
    (void)!cellar_remove(r->memory, entry->seq, 0, -1, NULL); /* whole: never refused */
    free_entry(entry);
}

/* Do tokens [n] begin with those of the entry? */
static bool is_beginning(const reuse_entry *entry, const cellar_token *tokens, size_t n)
{
    return entry->n <= n && memcmp(entry->tokens, tokens, entry->n * sizeof *tokens) == 0;
}

/* Retained entries that are a beginning of this one serve nobody any more. */
static void drop_beginnings(reuse *r, const reuse_entry *of)
{
    for (size_t i = r->n; i > 0; i--) {
        reuse_entry *its = r->entries[i - 1];
        if (its != of && !its->is_live && strcmp(its->owner, of->owner) == 0 &&
            is_beginning(its, of->tokens, of->n)) {
            reuse_drop(r, its);
        }
    }
}

void reuse_retain(reuse *r, reuse_entry *entry, int64_t slot)
{
    cellar_token *copy = entry->n > 0 ? malloc(entry->n * sizeof *copy) : NULL;
    if (copy == NULL) {
        entry->tokens = NULL;
        reuse_drop(r, entry);
        return;
    }
    memcpy(copy, entry->tokens, entry->n * sizeof *copy);
    entry->tokens = copy;
    entry->is_live = false;
    entry->slot = slot;
    touch(r, entry);
    drop_beginnings(r, entry);
}

/* ---- finding -------------------------------------------------------------------------------- */

static size_t common(const reuse_entry *entry, const cellar_token *tokens, size_t n)
{
    const size_t most = entry->n < n ? entry->n : n;
    size_t i = 0;
    while (i < most && entry->tokens[i] == tokens[i]) {
        i++;
    }
    return i;
}

typedef struct found {
    reuse_entry *entry; /* NULL: none */
    size_t n_same;      /* most tokens that any entry shares with the prompt */
    bool is_diverged;   /* that entry has another token there */
    size_t n_usable;    /* of `entry` */
    cellar_reason reason;
} found;

/* How much of n tokens that a sequence holds can be gone on from. */
static size_t usable(const reuse *r, const reuse_entry *entry, size_t n, cellar_reason *reason)
{
    cellar_pos from = 0;
    cellar_error error = {.reason = CELLAR_REASON_NONE};
    const cellar_status status = cellar_can_continue(r->memory, entry->seq, (cellar_pos)n, &from,
                                                     &error);
    *reason = status == CELLAR_OK ? CELLAR_REASON_NONE : error.reason;
    return status == CELLAR_OK ? n : status == CELLAR_REPLAY ? (size_t)from : 0;
}

static found find(const reuse *r, const char *owner, const cellar_token *tokens, size_t n)
{
    found best = {.entry = NULL};
    for (size_t i = 0; i < r->n; i++) {
        reuse_entry *its = r->entries[i];
        if (its->n == 0 || strcmp(its->owner, owner) != 0) {
            continue;
        }
        const size_t n_same = common(its, tokens, n - 1);
        if (n_same > best.n_same) {
            best.n_same = n_same;
            best.is_diverged = n_same < its->n && n_same < n - 1;
        }
        cellar_reason reason;
        const size_t n_usable = n_same > best.n_usable ? usable(r, its, n_same, &reason) : 0;
        if (n_usable > best.n_usable) {
            best.entry = its;
            best.n_usable = n_usable;
            best.reason = reason;
        } else if (n_same > 0 && best.entry == NULL && n_same > best.n_usable) {
            best.reason = reason;
        }
    }
    return best;
}

static const char *reason_name(const found *best, size_t n)
{
    if (best->n_usable + 1 == n) {
        return "whole";
    }
    if (best->n_usable < best->n_same) {
        return best->reason == CELLAR_REASON_WINDOW_PASSED ? "window_passed" : "no_state";
    }
    return best->n_same == 0 ? "nothing_kept" : best->is_diverged ? "diverged" : "continued";
}

size_t reuse_look(reuse *r, const char *owner, const cellar_token *tokens, size_t n)
{
    const found best = find(r, owner, tokens, n);
    if (best.entry != NULL) {
        touch(r, best.entry);
    }
    return best.n_usable;
}

void reuse_take(reuse *r, reuse_entry *to, const cellar_token *tokens, size_t n,
                reuse_answer *answer)
{
    const found best = find(r, to->owner, tokens, n);
    *answer = (reuse_answer){.n_reusable = best.n_same,
                             .reason = reason_name(&best, n),
                             .diverged_at = best.is_diverged ? (int64_t)best.n_same : -1};
    if (best.entry == NULL) {
        return;
    }
    cellar_pos from = 0;
    cellar_status status = cellar_copy(r->memory, best.entry->seq, to->seq, 0, -1, NULL);
    if (status == CELLAR_OK) {
        status = cellar_rewind(r->memory, to->seq, (cellar_pos)best.n_usable, &from, NULL);
    }
    if (status != CELLAR_OK) {
        (void)!cellar_remove(r->memory, to->seq, 0, -1, NULL);
        answer->reason = "no_memory";
        return;
    }
    answer->n_reused = (size_t)from;
    answer->source = from > 0 ? JOB_SOURCE_LIVE : JOB_SOURCE_NONE;
    best.entry->n_hits++;
    touch(r, best.entry);
}

/* ---- giving up ------------------------------------------------------------------------------ */

bool reuse_evict(reuse *r)
{
    reuse_entry *oldest = NULL;
    for (size_t i = 0; i < r->n; i++) {
        reuse_entry *its = r->entries[i];
        if (!its->is_live && (oldest == NULL || its->used < oldest->used)) {
            oldest = its;
        }
    }
    if (oldest == NULL) {
        return false;
    }
    r->n_evictions++;
    if (!r->can_cut || oldest->n <= PIECE ||
        cellar_remove(r->memory, oldest->seq, (cellar_pos)(oldest->n - PIECE), -1, NULL) !=
            CELLAR_OK) {
        reuse_drop(r, oldest);
        return true;
    }
    oldest->n -= PIECE;
    return true;
}

size_t reuse_count(const reuse *r)
{
    return r->n;
}

reuse_entry *reuse_get(const reuse *r, size_t i)
{
    return r->entries[i];
}

uint64_t reuse_evictions(const reuse *r)
{
    return r->n_evictions;
}
