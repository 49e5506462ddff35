/*
 * charsmap.c: read and use SentencePiece's precompiled table of replacements.
 *
 * A unit of the double array has, from bit 0: the label, the byte that leads to it; bit 8: it has a
 * value; bits 10 to 30: the offset to its children, in units, or in 256 units if bit 9 is set. The
 * children of the unit at p are at p ^ offset ^ byte, its value at p ^ offset, in the lower 31 bits
 * of a unit whose bit 31 is set.
 *
 * At reading all units with bit 31 are checked, so that no walk can find a value that is none. A
 * walk ends where the next unit is outside the array or has another label. It takes one byte of the
 * text for each step, so no array, however twisted, can make it run on.
 */
#include "tokenizer/charsmap.h"

#include <stdbool.h>
#include <string.h>

#include "report.h"
#include "tokenizer/utf8.h"

#define KEY "tokenizer.ggml.precompiled_charsmap"
#define VALUE_BIT 0x80000000u

static uint32_t read_u32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Is there a NUL in the bytes that a replacement may have? */
static bool is_replacement(const charsmap *map, uint32_t at)
{
    if (at >= map->n_replacements) {
        return false;
    }
    const size_t left = map->n_replacements - at;
    const size_t most = left < CHARSMAP_LONGEST + 1 ? left : CHARSMAP_LONGEST + 1;
    return memchr(map->replacements + at, '\0', most) != NULL;
}

static cellar_status check_values(const charsmap *map, cellar_error *error)
{
    for (size_t i = 0; i < map->n_units; i++) {
        const uint32_t unit = read_u32(map->units + 4 * i);
        if ((unit & VALUE_BIT) && !is_replacement(map, unit & ~VALUE_BIT)) {
            return report(error, CELLAR_CORRUPT, (int64_t)(4 + 4 * i),
                          KEY ": unit %llu leads to byte %u, where no replacement of at most %u "
                              "bytes is",
                          (unsigned long long)i, (unsigned)(unit & ~VALUE_BIT), CHARSMAP_LONGEST);
        }
    }
    return CELLAR_OK;
}

cellar_status charsmap_read(const unsigned char *bytes, size_t n, charsmap *map,
                            cellar_error *error)
{
    *map = (charsmap){.n_units = 0};
    if (n == 0) {
        return CELLAR_OK;
    }
    const size_t n_trie = n >= 4 ? read_u32(bytes) : 0;
    if (n < 4 || n_trie < 4 || n_trie % 4 != 0 || n_trie > n - 4) {
        return report(error, CELLAR_CORRUPT, 0,
                      KEY " has %llu bytes and begins with the size %llu, which is not that of "
                          "whole units within them",
                      (unsigned long long)n, (unsigned long long)n_trie);
    }
    charsmap read = {
        .units = bytes + 4,
        .n_units = n_trie / 4,
        .replacements = (const char *)bytes + 4 + n_trie,
        .n_replacements = n - 4 - n_trie,
    };
    cellar_status status = check_values(&read, error);
    if (status == CELLAR_OK) {
        *map = read;
    }
    return status;
}

/* ---- replacing ------------------------------------------------------------------------------ */

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 0x200) >> 6);
}

/* The replacement of the longest text at the place, and in *used its length; NULL: none. */
static const char *find(const charsmap *map, const char *text, size_t length, size_t *used)
{
    const char *found = NULL;
    if (map->n_units == 0) {
        return NULL;
    }
    uint32_t at = offset_of(read_u32(map->units));
    for (size_t i = 0; i < length && i < CHARSMAP_LONGEST; i++) {
        const unsigned char byte = (unsigned char)text[i];
        at ^= byte;
        if (at >= map->n_units) {
            break;
        }
        const uint32_t unit = read_u32(map->units + (size_t)4 * at);
        if ((unit & (VALUE_BIT | 0xFF)) != byte) {
            break;
        }
        at ^= offset_of(unit);
        if ((unit & 0x100) && at < map->n_units) {
            const uint32_t value = read_u32(map->units + (size_t)4 * at);
            if (value & VALUE_BIT) {
                found = map->replacements + (value & ~VALUE_BIT);
                *used = i + 1;
            }
        }
    }
    return found;
}

const char *charsmap_next(const charsmap *map, const char *text, size_t length, size_t *n,
                          size_t *used)
{
    const char *replacement = find(map, text, length, used);
    if (replacement != NULL) {
        *n = strlen(replacement);
        return replacement;
    }
    if (utf8_scan((const unsigned char *)text, length, used) == UTF8_WHOLE) {
        *n = *used;
        return text;
    }
    *used = 1;
    *n = 3;
    return "\xEF\xBF\xBD";
}
