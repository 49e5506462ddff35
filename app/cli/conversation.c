/*
 * conversation.c: tokens and the stretches of them that are held.
 *
 * The stretches are a short list (one for each shift that kept another beginning), so every
 * operation walks over it. What comes from a file is believed only when the stretches rise, do not
 * touch, lie inside the log and add up to what the sequence holds.
 */
#include "cli/conversation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define PART_DIGITS 24u /* bytes that a part's text needs at most, and a space */

void conversation_free(conversation *c)
{
    free(c->tokens);
    free(c->parts);
    *c = (conversation){.n_tokens = 0};
}

/* Room for n more elements of `size` bytes; the new array, or NULL. */
static void *grow(void *array, uint32_t *capacity, uint64_t n_wanted, size_t size)
{
    if (n_wanted <= *capacity) {
        return array;
    }
    uint64_t larger = *capacity < 64 ? 64 : 2 * (uint64_t)*capacity;
    larger = larger < n_wanted ? n_wanted : larger;
    void *moved = larger <= INT32_MAX ? realloc(array, (size_t)larger * size) : NULL;
    if (moved != NULL) {
        *capacity = (uint32_t)larger;
    }
    return moved;
}

cellar_status conversation_add(conversation *c, const cellar_token *tokens, size_t n,
                               cellar_error *error)
{
    if (n > (size_t)(INT32_MAX / 2) - c->n_tokens) {
        return report(error, CELLAR_FULL, -1, "a session keeps at most %d tokens of text",
                      INT32_MAX / 2);
    }
    if (n == 0) {
        return CELLAR_OK;
    }
    cellar_token *room = grow(c->tokens, &c->capacity, c->n_tokens + (uint64_t)n, sizeof *room);
    if (room == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a text of %" PRIu32 " tokens",
                      c->n_tokens);
    }
    c->tokens = room;
    memcpy(c->tokens + c->n_tokens, tokens, n * sizeof *tokens);
    c->n_tokens += (uint32_t)n;
    return CELLAR_OK;
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* Where the tokens that are not read begin. */
static uint32_t held_end(const conversation *c)
{
    return c->n_parts > 0 ? c->parts[c->n_parts - 1].first + c->parts[c->n_parts - 1].n : 0;
}

static cellar_status make_room_for_part(conversation *c, cellar_error *error)
{
    conversation_part *room = grow(c->parts, &c->parts_capacity, (uint64_t)c->n_parts + 1,
                                   sizeof *room);
    if (room == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for what a session holds");
    }
    c->parts = room;
    return CELLAR_OK;
}

/* Of the parts the first n positions stay. */
static void shorten(conversation *c, uint32_t n)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        if (before + c->parts[i].n >= n) {
            c->parts[i].n = n - before;
            c->n_parts = i + (n > before);
            break;
        }
        before += c->parts[i].n;
    }
    c->n_held = n;
}

cellar_status conversation_hold(conversation *c, uint32_t n, cellar_error *error)
{
    if (n <= c->n_held) {
        shorten(c, n);
        return CELLAR_OK;
    }
    if (n - c->n_held > c->n_tokens - held_end(c)) {
        return report(error, CELLAR_INVALID, n,
                      "the memory holds %" PRIu32 " positions, more than the text has", n);
    }
    if (c->n_parts == 0) {
        cellar_status status = make_room_for_part(c, error);
        if (status != CELLAR_OK) {
            return status;
        }
        c->parts[c->n_parts++] = (conversation_part){.first = 0};
    }
    c->parts[c->n_parts - 1].n += n - c->n_held;
    c->n_held = n;
    return CELLAR_OK;
}

cellar_status conversation_forget(conversation *c, uint32_t at, uint32_t n, cellar_error *error)
{
    if (n == 0 || at >= c->n_held || n >= c->n_held - at) {
        return report(error, CELLAR_INVALID, at,
                      "of %" PRIu32 " positions %" PRIu32 " cannot be forgotten from %" PRIu32
                      " on, with some behind them",
                      c->n_held, n, at);
    }
    cellar_status status = make_room_for_part(c, error);
    if (status != CELLAR_OK) {
        return status;
    }
    uint32_t i = 0, before = 0; /* the part with `at`, and the positions in front of it */
    while (before + c->parts[i].n <= at) {
        before += c->parts[i++].n;
    }
    c->n_held -= n;
    if (at > before) { /* its beginning stays: the rest becomes a part of its own */
        memmove(&c->parts[i + 1], &c->parts[i], (c->n_parts - i) * sizeof *c->parts);
        c->n_parts++;
        c->parts[i].n = at - before;
        i++;
        c->parts[i].first += at - before;
        c->parts[i].n -= at - before;
    }
    uint32_t gone = i; /* parts i .. gone - 1 go whole; one is left, by the check above */
    while (n >= c->parts[gone].n) {
        n -= c->parts[gone++].n;
    }
    c->parts[gone].first += n;
    c->parts[gone].n -= n;
    memmove(&c->parts[i], &c->parts[gone], (c->n_parts - gone) * sizeof *c->parts);
    c->n_parts -= gone - i;
    return CELLAR_OK;
}

void conversation_cut(conversation *c, uint32_t n)
{
    if (n < c->n_held) {
        shorten(c, n);
    }
    c->n_tokens = held_end(c) + (n - c->n_held);
}

uint32_t conversation_length(const conversation *c)
{
    return c->n_held + (c->n_tokens - held_end(c));
}

cellar_token conversation_at(const conversation *c, uint32_t i)
{
    uint32_t before = 0;
    for (uint32_t part = 0; part < c->n_parts; part++) {
        if (i < before + c->parts[part].n) {
            return c->tokens[c->parts[part].first + (i - before)];
        }
        before += c->parts[part].n;
    }
    return c->tokens[held_end(c) + (i - before)];
}

/* ---- in a session --------------------------------------------------------------------------- */

char *conversation_format(const conversation *c, size_t *n)
{
    const size_t capacity = (size_t)c->n_parts * PART_DIGITS + 1;
    char *text = malloc(capacity);
    *n = 0;
    for (uint32_t i = 0; text != NULL && i < c->n_parts; i++) {
        *n += (size_t)snprintf(text + *n, capacity - *n, "%s%" PRIu32 "+%" PRIu32, i > 0 ? " " : "",
                               c->parts[i].first, c->parts[i].n);
    }
    return text;
}

/* A number in decimal, at most INT32_MAX; false: there is none. */
static bool take_number(const char **at, const char *end, uint32_t *out)
{
    uint64_t number = 0;
    const char *begin = *at;
    while (*at < end && **at >= '0' && **at <= '9' && number <= INT32_MAX) {
        number = 10 * number + (uint64_t)(*(*at)++ - '0');
    }
    *out = (uint32_t)number;
    return *at > begin && number <= INT32_MAX;
}

static bool take_character(const char **at, const char *end, char wanted)
{
    return *at < end && *(*at)++ == wanted;
}

/* "0+3 7+5" into parts. The caller has looked at no byte of it. */
static cellar_status parse_parts(conversation *c, const cellar_note *note, cellar_error *error)
{
    const char *at = note->size > 0 ? note->value : "", *end = at + note->size;
    while (at < end) {
        cellar_status status = make_room_for_part(c, error);
        if (status != CELLAR_OK) {
            return status;
        }
        conversation_part part;
        const bool is_first = c->n_parts == 0;
        const uint64_t from = is_first ? 0 : (uint64_t)held_end(c) + 1;
        if (!(is_first || take_character(&at, end, ' ')) || !take_number(&at, end, &part.first) ||
            !take_character(&at, end, '+') || !take_number(&at, end, &part.n) || part.n == 0 ||
            part.first < from || (uint64_t)part.first + part.n > c->n_tokens) {
            return report(error, CELLAR_CORRUPT, -1,
                          "note \"%s\": expected rising parts of the %" PRIu32
                          " tokens, as \"0+3 7+5\", found another text",
                          CONVERSATION_NOTE, c->n_tokens);
        }
        c->parts[c->n_parts++] = part;
        c->n_held += part.n;
    }
    return CELLAR_OK;
}

bool conversation_find_note(const cellar_session *session, const char *name, cellar_note *out)
{
    cellar_session_info info;
    if (cellar_describe_session(session, &info, NULL) != CELLAR_OK) {
        return false;
    }
    for (uint32_t i = 0; i < info.n_notes; i++) {
        if (cellar_get_session_note(session, i, out, NULL) == CELLAR_OK &&
            strcmp(out->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static cellar_status read_parts(const cellar_session *session, uint32_t n_positions,
                                conversation *out, cellar_error *error)
{
    cellar_note note;
    if (!conversation_find_note(session, CONVERSATION_NOTE, &note)) {
        return n_positions > 0 ? conversation_hold(out, n_positions, error) : CELLAR_OK;
    }
    return parse_parts(out, &note, error);
}

cellar_status conversation_read(const cellar_session *session, conversation *out,
                                cellar_error *error)
{
    *out = (conversation){.n_tokens = 0};
    cellar_session_info info;
    cellar_session_sequence sequence;
    cellar_status status = cellar_describe_session(session, &info, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (info.n_sequences != 1) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "holds %" PRIu32 " sequences: expected one, as 'cellar run' saves it",
                      info.n_sequences);
    }
    status = cellar_get_session_sequence(session, 0, &sequence, error);
    if (status != CELLAR_OK) {
        return status;
    }
    if (sequence.n_tokens == 0) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "does not say which tokens it holds: it was not saved by 'cellar run'");
    }
    const uint32_t n_positions = (uint32_t)(sequence.pos_max + 1);
    status = conversation_add(out, sequence.tokens, sequence.n_tokens, error);
    if (status == CELLAR_OK) {
        status = read_parts(session, n_positions, out, error);
    }
    if (status == CELLAR_INVALID || (status == CELLAR_OK && out->n_held != n_positions)) {
        status = report(error, CELLAR_CORRUPT, -1,
                        "holds %" PRIu32 " positions, but its log of %" PRIu32
                        " tokens speaks of %" PRIu32,
                        n_positions, out->n_tokens, out->n_held);
    }
    if (status != CELLAR_OK) {
        conversation_free(out);
    }
    return status;
}
