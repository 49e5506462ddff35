/*
 * template_arena.h: memory that is taken piece by piece and given back at once, up to a limit.
 *
 * The compiled form of a template and the values of one rendering live in one of these each. What was
 * taken last can grow in place, so that a text that is being built need not move. A
 * request over the limit fails like one that malloc refuses; `is_over_limit` tells which it was.
 */
#ifndef APP_TEMPLATE_ARENA_H
#define APP_TEMPLATE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct template_arena_chunk template_arena_chunk;

typedef struct template_arena {
    template_arena_chunk *chunks; /* the newest first: pieces come from it */
    char *free_from;              /* in the newest chunk; aligned except after an extension */
    char *free_to;
    size_t taken; /* bytes of all chunks */
    size_t limit; /* taken <= limit */
    bool is_over_limit;
} template_arena;

/* Aligned for any type; not cleared. NULL: no memory, or over the limit. */
void *template_arena_take(template_arena *arena, size_t size);

/* Make the piece that ends at `end` longer by `size` bytes, if it is the last and there is room. */
bool template_arena_extend(template_arena *arena, const char *end, size_t size);

void template_arena_free(template_arena *arena);

#endif /* APP_TEMPLATE_ARENA_H */
