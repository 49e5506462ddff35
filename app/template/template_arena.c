/*
 * template_arena.c: memory that is taken piece by piece and given back at once, up to a limit.
 *
 * Pieces are cut from chunks. A piece of more than a quarter of a chunk gets a chunk of its own size, with
 * as much room again behind it if the limit allows, so that a growing text can extend.
 */
#include "template/template_arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

struct template_arena_chunk {
    template_arena_chunk *next;
    alignas(max_align_t) char bytes[];
};

enum { CHUNK_BYTES = 16 * 1024, ALIGNMENT = alignof(max_align_t) };

static bool add_chunk(template_arena *arena, size_t size)
{
    size_t room = size > CHUNK_BYTES / 4 ? size : CHUNK_BYTES;
    const size_t left = arena->limit - arena->taken;
    if (size > left) {
        arena->is_over_limit = true;
        return false;
    }
    if (room == size && size <= left - size) room = 2 * size;
    if (room > left) room = left;
    template_arena_chunk *chunk = malloc(sizeof *chunk + room);
    if (chunk == NULL) return false;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->taken += room;
    arena->free_from = chunk->bytes;
    arena->free_to = chunk->bytes + room;
    return true;
}

void *template_arena_take(template_arena *arena, size_t size)
{
    if (size > SIZE_MAX / 4) {
        arena->is_over_limit = true;
        return NULL;
    }
    size_t padding = (size_t)(-(uintptr_t)arena->free_from % ALIGNMENT);
    if (arena->chunks == NULL || size + padding > (size_t)(arena->free_to - arena->free_from)) {
        if (!add_chunk(arena, size == 0 ? 1 : size)) return NULL;
        padding = 0;
    }
    char *piece = arena->free_from + padding;
    arena->free_from = piece + size;
    return piece;
}

bool template_arena_extend(template_arena *arena, const char *end, size_t size)
{
    if (end == NULL || end != arena->free_from) return false;
    if (size > (size_t)(arena->free_to - arena->free_from)) return false;
    arena->free_from += size;
    return true;
}

void template_arena_free(template_arena *arena)
{
    while (arena->chunks != NULL) {
        template_arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        free(chunk);
    }
    arena->free_from = NULL;
    arena->free_to = NULL;
    arena->taken = 0;
}
