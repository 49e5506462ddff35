/*
 * gguf_names.c: look-up of keys and tensors by name: open addressing with linear probing.
 *
 * The names come from a stranger, who could choose 65,536 of them that fall into one slot of any
 * hash function he can compute and so make loading quadratic. The table therefore uses SipHash
 * (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; here with 1 round a word and 3
 * at the end, as hash tables commonly do) under a key drawn from the system's random source when
 * the table is made. Nothing that is visible outside depends on the key.
 *
 * The table is created for a known number of names and never grows; it stays at most half full, so
 * that probing always ends. It holds pointers to the names: whoever owns them must not move them.
 */
#define _POSIX_C_SOURCE 200809L

#include "gguf_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "../report.h"

static uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static uint64_t sip_hash(const uint64_t seed[2], const unsigned char *bytes, size_t length)
{
    uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575u, seed[1] ^ 0x646f72616e646f6du,
                     seed[0] ^ 0x6c7967656e657261u, seed[1] ^ 0x7465646279746573u};
    const size_t whole = length & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        const uint64_t word = gguf_read_u64(bytes + i);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)length << 56;
    for (size_t i = whole; i < length; i++)
        last |= (uint64_t)bytes[i] << (8 * (i - whole));
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Without a random source (a very early or very restricted system) the time has to do. */
static void draw_seed(uint64_t seed[2])
{
    if (getrandom(seed, 2 * sizeof *seed, GRND_NONBLOCK) == (ssize_t)(2 * sizeof *seed)) return;
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    seed[0] = (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u ^ (uintptr_t)seed;
    seed[1] = (uint64_t)now.tv_sec * 0xbf58476d1ce4e5b9u + seed[0];
}

cellar_status gguf_names_create(gguf_names *names, uint32_t n, cellar_error *error)
{
    uint64_t n_slots = 8;
    while (n_slots < 2 * (uint64_t)n)
        n_slots *= 2;
    names->slots = calloc((size_t)n_slots, sizeof *names->slots);
    if (names->slots == NULL)
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a table of %u names", n);
    names->mask = n_slots - 1;
    draw_seed(names->seed);
    return CELLAR_OK;
}

void gguf_names_destroy(gguf_names *names)
{
    free(names->slots);
    names->slots = NULL;
}

/* The slot that holds the name, or the empty one where it would go. */
static gguf_name_slot *probe(const gguf_names *names, const char *name, size_t length,
                             uint32_t *tag)
{
    const uint64_t hash = sip_hash(names->seed, (const unsigned char *)name, length);
    *tag = (uint32_t)(hash >> 32);
    for (uint64_t i = hash & names->mask;; i = (i + 1) & names->mask) {
        gguf_name_slot *slot = &names->slots[i];
        if (slot->name == NULL) return slot;
        if (slot->tag == *tag && slot->name->length == length &&
            memcmp(slot->name->data, name, length) == 0)
            return slot;
    }
}

bool gguf_names_insert(gguf_names *names, const gguf_string *name, uint32_t index)
{
    uint32_t tag = 0;
    gguf_name_slot *slot = probe(names, name->data, name->length, &tag);
    if (slot->name != NULL) return false;
    *slot = (gguf_name_slot){.name = name, .tag = tag, .index = index};
    return true;
}

bool gguf_names_find(const gguf_names *names, const char *name, size_t length, uint32_t *index)
{
    if (names->slots == NULL) return false;
    uint32_t tag = 0;
    const gguf_name_slot *slot = probe(names, name, length, &tag);
    if (slot->name == NULL) return false;
    *index = slot->index;
    return true;
}
