/*
 * prefix_find.c: what a prompt can reuse, and why not more.
 *
 * A walk through the texts around the place of the prompt, those that agree longest first. Each is asked
 * what it is worth: after how many of the tokens in common its sequence can go on. A later one cannot be
 * worth more than it agrees, so the walk ends when agreement has fallen to the best worth; among
 * equals one more step is taken as long as the best is not in the cells.
 *
 * Nothing is changed and nothing fails here.
 */
#include "prefix_library.h"

/* What an entry is worth, and from where. */
typedef struct worth {
    uint32_t n;
    cellar_prefix_source source;
    cellar_reason why;
} worth;

static worth worth_of(const cellar_library *library, const cl_prefix_entry *entry, uint32_t common)
{
    worth best = {0, CELLAR_PREFIX_FROM_NOWHERE, CELLAR_REASON_NONE};
    uint32_t n = common < entry->n_ready ? common : entry->n_ready;
    if (entry->seq >= 0) {
        best.n = cl_prefix_places_ask(library->memory, entry->seq, n, &best.why);
        best.source = CELLAR_PREFIX_FROM_CELLS;
    }
    if ((entry->blob || entry->file > 0) && best.n < n) {
        uint32_t stored = cl_prefix_places_find(entry->places, entry->n_places, n);
        if (stored > best.n || best.source == CELLAR_PREFIX_FROM_NOWHERE) {
            best.n = stored;
            best.source = entry->blob ? CELLAR_PREFIX_FROM_RAM : CELLAR_PREFIX_FROM_DISK;
        }
    }
    return best;
}

/* Note where the text that agrees longest goes on otherwise. */
static void note_difference(cl_prefix_answer *answer, cl_prefix_prompt prompt,
                            const cl_prefix_text *text, uint32_t common)
{
    if (answer->has_diverged || common >= prompt.n || common >= text->n) return;
    answer->told.diverged_at = common;
    answer->told.diverged_token = text->tokens[common];
    answer->has_diverged = true;
}

static void look_at(const cellar_library *library, cl_prefix_answer *answer,
                    cl_prefix_prompt prompt, cl_prefix_entry *entry, uint32_t common)
{
    cellar_prefix *told = &answer->told;
    uint32_t planned = common < prompt.most ? common : prompt.most;
    uint32_t ready = planned < entry->n_ready ? planned : entry->n_ready;
    bool is_longest = ready > told->matched;
    if (is_longest) told->matched = ready;
    if (entry->is_running && planned > ready && planned > told->coming) {
        told->coming = planned;
        told->coming_seq = entry->seq;
    }
    if (library->attempt > 0 && entry->tried == library->attempt) return;
    worth its = worth_of(library, entry, planned);
    if (is_longest) answer->why = its.why;
    if (its.n < told->reusable || its.n == 0) return;
    if (its.n == told->reusable && its.source >= told->source) return;
    told->reusable = its.n;
    told->source = its.source;
    told->entry = entry->number;
    answer->entry = entry;
}

/* The new sequence is in the index before it holds anything. */
static bool is_being_made(const cl_prefix_entry *entry)
{
    return entry->seq < 0 && !entry->blob && entry->file == 0;
}

void cl_prefix_find(const cellar_library *library, const cl_prefix_notes *key,
                    cl_prefix_prompt prompt, cl_prefix_answer *answer)
{
    *answer =
        (cl_prefix_answer){.told = {.diverged_at = -1, .diverged_token = -1, .coming_seq = -1},
                           .space = cl_prefix_entries_space(library, key)};
    cellar_prefix *told = &answer->told;
    if (!answer->space) return;
    cl_prefix_walk walk = cl_prefix_walk_begin(&answer->space->index, prompt.tokens, prompt.n);
    uint32_t common, longest = 0;
    for (cl_prefix_text *text; (text = cl_prefix_walk_next(&walk, &common));) {
        if (is_being_made((const cl_prefix_entry *)text)) continue;
        if (longest == 0) longest = common;
        if (common == longest) note_difference(answer, prompt, text, common);
        uint32_t most = common < prompt.most ? common : prompt.most;
        bool can_win = most > told->reusable ||
                       (most == told->reusable && told->source > CELLAR_PREFIX_FROM_CELLS);
        if (!can_win) break;
        look_at(library, answer, prompt, (cl_prefix_entry *)text, common);
    }
    if (told->coming <= told->matched) {
        told->coming = 0;
        told->coming_seq = -1;
    }
}

/* ---- reasons ----------------------------------------------------------------------------------- */

/* Does somebody else have more of the prompt? */
static bool is_elsewhere(const cellar_library *library, const cl_prefix_notes *key,
                         cl_prefix_prompt prompt, uint32_t matched)
{
    for (uint32_t i = 0; i < library->n_spaces; i++) {
        const cl_prefix_space *space = library->spaces[i];
        if (!cl_prefix_key_is_elsewhere(&space->key, key)) continue;
        cl_prefix_walk walk = cl_prefix_walk_begin(&space->index, prompt.tokens, prompt.n);
        uint32_t common;
        for (cl_prefix_text *text; (text = cl_prefix_walk_next(&walk, &common));) {
            const cl_prefix_entry *entry = (const cl_prefix_entry *)text;
            if (common <= matched) break;
            if (entry->n_ready > matched) return true;
        }
    }
    return false;
}

cellar_prefix_reason cl_prefix_find_reason(const cellar_library *library,
                                           const cl_prefix_notes *key, cl_prefix_prompt prompt,
                                           const cl_prefix_answer *answer, uint32_t reused)
{
    const cellar_prefix *told = &answer->told;
    uint32_t matched = told->matched;
    if (reused >= prompt.most) return CELLAR_PREFIX_WHOLE;
    if (matched > reused) {
        bool is_state = answer->why == CELLAR_REASON_NO_STATE ||
                        (!answer->why && cl_prefix_places_has_states(library->memory));
        return is_state ? CELLAR_PREFIX_STATE_LOST : CELLAR_PREFIX_WINDOW_LOST;
    }
    if (told->coming > matched) return CELLAR_PREFIX_COMING;
    if (prompt.n > 0) {
        uint64_t space = answer->space ? answer->space->hash : cl_prefix_key_hash(key);
        if (cl_prefix_lost_has(&library->lost, space, prompt.tokens, prompt.n, matched))
            return CELLAR_PREFIX_EVICTED;
    }
    if (library->config.does_tell_domains && is_elsewhere(library, key, prompt, matched))
        return CELLAR_PREFIX_OTHER_DOMAIN;
    if (matched == 0) return CELLAR_PREFIX_COLD;
    return answer->has_diverged ? CELLAR_PREFIX_DIVERGED : CELLAR_PREFIX_ENDED;
}
