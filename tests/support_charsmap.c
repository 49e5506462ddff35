/*
 * support_charsmap.c: make tables of replacements for tests, in the plainest way.
 *
 * The trie is laid out from its root on: for each text that begins a key, the bytes that may follow
 * are collected (0 for the end of a key), and the first base that nobody has and from which all of
 * their places are free is taken. Units are made with small offsets only.
 */
#include "support_charsmap.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_UNITS 8192

typedef struct layout {
    const char *const (*pairs)[2];
    size_t n;
    size_t *places; /* of the replacements */
    uint32_t *units;
    bool *is_used, *is_base; /* places, and bases: two units with one base would share children */
} layout;

/* Do the key's first `depth` bytes equal those of `key`, and is it that long? */
static bool follows(const char *key, const char *other, size_t depth)
{
    return strlen(key) >= depth && memcmp(key, other, depth) == 0;
}

static bool fits(const layout *l, const bool *bytes, uint32_t base)
{
    if (l->is_base[base]) {
        return false;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (bytes[byte] && l->is_used[base ^ byte]) {
            return false;
        }
    }
    return true;
}

/* Lay out what follows the first `depth` bytes of `key`, whose own unit is at `at`. */
static void lay_out(layout *l, const char *key, size_t depth, uint32_t at)
{
    bool bytes[256] = {false};
    for (size_t i = 0; i < l->n; i++) {
        if (follows(l->pairs[i][0], key, depth)) {
            bytes[(unsigned char)l->pairs[i][0][depth]] = true;
        }
    }
    uint32_t base = 1;
    while (base < N_UNITS - 256 && !fits(l, bytes, base)) {
        base++;
    }
    if (base >= N_UNITS - 256) {
        fprintf(stderr, "support_charsmap: too many keys\n");
        exit(1);
    }
    l->units[at] |= (at ^ base) << 10 | (bytes[0] ? 0x100u : 0);
    l->is_base[base] = true;
    for (uint32_t byte = 0; byte < 256; byte++) {
        l->is_used[base ^ byte] = l->is_used[base ^ byte] || bytes[byte];
    }
    for (size_t i = 0; i < l->n; i++) {
        const char *own = l->pairs[i][0];
        if (!follows(own, key, depth)) {
            continue;
        }
        const unsigned char byte = (unsigned char)own[depth];
        if (byte == 0) {
            l->units[base] = 0x80000000u | (uint32_t)l->places[i];
        } else if (bytes[byte]) { /* the first key that goes on so lays out for all */
            bytes[byte] = false;
            l->units[base ^ byte] = byte;
            lay_out(l, own, depth + 1, base ^ byte);
        }
    }
}

static void *need(void *block)
{
    if (block == NULL) {
        fprintf(stderr, "support_charsmap: no memory\n");
        exit(1);
    }
    return block;
}

static void put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (unsigned char)(value >> (8 * i));
    }
}

unsigned char *charsmap_make(const char *const (*pairs)[2], size_t n, size_t *size)
{
    layout l = {.pairs = pairs, .n = n};
    l.places = need(calloc(n + 1, sizeof *l.places));
    l.units = need(calloc(N_UNITS, sizeof *l.units));
    l.is_used = need(calloc(N_UNITS, sizeof *l.is_used));
    l.is_base = need(calloc(N_UNITS, sizeof *l.is_base));
    l.is_used[0] = true;
    for (size_t i = 0; i < n; i++) {
        l.places[i + 1] = l.places[i] + strlen(pairs[i][1]) + 1;
    }
    if (n > 0) {
        lay_out(&l, "", 0, 0);
    }
    *size = 4 + 4 * N_UNITS + l.places[n];
    unsigned char *bytes = need(malloc(*size));
    put_u32(bytes, 4 * N_UNITS);
    for (size_t i = 0; i < N_UNITS; i++) {
        put_u32(bytes + 4 + 4 * i, l.units[i]);
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(bytes + 4 + 4 * N_UNITS + l.places[i], pairs[i][1], strlen(pairs[i][1]) + 1);
    }
    free(l.places);
    free(l.units);
    free(l.is_used);
    free(l.is_base);
    return bytes;
}
