/*
 * chat_text.c: arrays that grow, and a few walks over them, for chat_text.h.
 *
 * Everything that adds makes its room first, so a text that could not be extended is as it was.
 * Sizes stay below INT32_MAX: positions of a sequence do too.
 */
#include "chat/chat_text.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

#define MOST ((size_t)INT32_MAX)

void chat_text_free(chat_text *t)
{
    free(t->bytes);
    free(t->tokens);
    free(t->ends);
    free(t->starts);
    *t = (chat_text){.n_bytes = 0};
}

/* The array with room for `n` elements, or NULL with the old one untouched. */
static bool grow(void *array, size_t n, size_t size)
{
    void *old, *moved;
    memcpy(&old, array, sizeof old);
    moved = realloc(old, n * size);
    if (moved != NULL) {
        memcpy(array, &moved, sizeof moved);
    }
    return moved != NULL;
}

static size_t larger(size_t wanted, uint32_t capacity)
{
    size_t twice = 2 * (size_t)capacity;
    size_t n = wanted > twice ? wanted : twice;
    return n < 64 ? 64 : n > MOST ? MOST : n;
}

cellar_status chat_text_reserve(chat_text *t, size_t n_bytes, size_t n_tokens, cellar_error *error)
{
    if (n_bytes > MOST - t->n_bytes || n_tokens > MOST - t->n_tokens) {
        return report(error, CELLAR_FULL, -1, "a conversation of over 2^31 bytes is too long");
    }
    const size_t bytes = t->n_bytes + n_bytes, tokens = t->n_tokens + n_tokens;
    if (bytes > t->bytes_capacity) {
        const size_t n = larger(bytes, t->bytes_capacity);
        if (!grow(&t->bytes, n, 1)) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for a text of %zu bytes", bytes);
        }
        t->bytes_capacity = (uint32_t)n;
    }
    if (tokens > t->capacity) {
        const size_t n = larger(tokens, t->capacity);
        if (!grow(&t->tokens, n, sizeof *t->tokens) || !grow(&t->ends, n, sizeof *t->ends) ||
            !grow(&t->starts, n, sizeof *t->starts)) {
            return report(error, CELLAR_NO_MEMORY, -1, "no memory for %zu tokens", tokens);
        }
        t->capacity = (uint32_t)n;
    }
    return CELLAR_OK;
}

cellar_status chat_text_add_bytes(chat_text *t, const char *bytes, size_t n, cellar_error *error)
{
    cellar_status status = chat_text_reserve(t, n, 0, error);
    if (status == CELLAR_OK && n > 0) {
        memcpy(t->bytes + t->n_bytes, bytes, n);
        t->n_bytes += (uint32_t)n;
    }
    return status;
}

cellar_status chat_text_add_token(chat_text *t, cellar_token token, uint32_t end, chat_start start,
                                  cellar_error *error)
{
    cellar_status status = chat_text_reserve(t, 0, 1, error);
    if (status == CELLAR_OK) {
        t->tokens[t->n_tokens] = token;
        t->ends[t->n_tokens] = end;
        t->starts[t->n_tokens] = (uint8_t)start;
        t->n_tokens++;
    }
    return status;
}

cellar_status chat_text_copy(const chat_text *from, chat_text *to, cellar_error *error)
{
    *to = (chat_text){.n_bytes = 0};
    cellar_status status = chat_text_reserve(to, from->n_bytes, from->n_tokens, error);
    if (status != CELLAR_OK) {
        chat_text_free(to);
        return status;
    }
    if (from->n_bytes > 0) {
        memcpy(to->bytes, from->bytes, from->n_bytes);
    }
    if (from->n_tokens > 0) {
        memcpy(to->tokens, from->tokens, from->n_tokens * sizeof *to->tokens);
        memcpy(to->ends, from->ends, from->n_tokens * sizeof *to->ends);
        memcpy(to->starts, from->starts, from->n_tokens * sizeof *to->starts);
    }
    to->n_bytes = from->n_bytes;
    to->n_tokens = from->n_tokens;
    return CELLAR_OK;
}

uint32_t chat_text_place(const chat_text *t, uint32_t i)
{
    return i == 0 ? 0 : t->ends[i - 1];
}

void chat_text_cut(chat_text *t, uint32_t n)
{
    if (n < t->n_tokens) {
        t->n_bytes = chat_text_place(t, n);
        t->n_tokens = n;
    }
}

void chat_text_remove(chat_text *t, uint32_t first, uint32_t last)
{
    const uint32_t from = chat_text_place(t, first), to = chat_text_place(t, last);
    const size_t n_behind = t->n_tokens - last;
    if (first == last) {
        return;
    }
    memmove(t->bytes + from, t->bytes + to, t->n_bytes - to);
    memmove(t->tokens + first, t->tokens + last, n_behind * sizeof *t->tokens);
    memmove(t->ends + first, t->ends + last, n_behind * sizeof *t->ends);
    memmove(t->starts + first, t->starts + last, n_behind * sizeof *t->starts);
    t->n_bytes -= to - from;
    t->n_tokens -= last - first;
    for (uint32_t i = first; i < t->n_tokens; i++) {
        t->ends[i] -= t->ends[i] == CHAT_TEXT_UNKNOWN ? 0 : to - from;
    }
}

uint32_t chat_text_agreement(const chat_text *t, const char *bytes, size_t n)
{
    uint32_t same = 0;
    while (same < t->n_bytes && same < n && t->bytes[same] == bytes[same]) {
        same++;
    }
    return same;
}

uint32_t chat_text_start(const chat_text *t, uint32_t most)
{
    for (uint32_t i = t->n_tokens; i > 0; i--) {
        const bool is_start = i == t->n_tokens || t->starts[i] != CHAT_START_INSIDE;
        if (is_start && t->ends[i - 1] <= most) { /* an unknown end is none */
            return i;
        }
    }
    return 0;
}
