/*
 * fingerprint.c: the facts of fingerprint.h.
 *
 * The hash takes eight bytes at a time: xor, multiply by an odd constant, fold the upper half into
 * the lower. Every step can be undone, so a changed word always changes the state, and the
 * multiplication spreads it. Words are put together from bytes, so that the hash is the same on
 * every machine. Each thing that is hashed begins with its length, or "ab" and "c" would be the
 * same as "a" and "bc".
 */
#include "engine/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SAMPLES 256u       /* stretches of the weights that are looked at */
#define SAMPLE_BYTES 1024u /* of each */
#define SEED 0x43454c4c41520d0au

typedef struct hash {
    uint64_t state;
} hash;

static void hash_word(hash *h, uint64_t word)
{
    h->state = (h->state ^ word) * 0x9e3779b97f4a7c15u;
    h->state ^= h->state >> 32;
}

static uint64_t read_word(const unsigned char *from, size_t n)
{
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++) {
        word |= (uint64_t)from[i] << 8 * i;
    }
    return word;
}

static void hash_bytes(hash *h, const void *bytes, uint64_t n)
{
    const unsigned char *at = bytes;
    hash_word(h, n);
    for (; n >= 8; n -= 8, at += 8) {
        hash_word(h, read_word(at, 8));
    }
    if (n > 0) {
        hash_word(h, read_word(at, (size_t)n));
    }
}

static void hash_text(hash *h, gguf_string text)
{
    hash_bytes(h, text.data, text.length);
}

/* ---- metadata ------------------------------------------------------------------------------- */

/* Bytes of one element of a numeric value. */
static uint64_t element_bytes(gguf_type type)
{
    switch (type) {
    case GGUF_UINT8:
    case GGUF_INT8:
    case GGUF_BOOL:
        return 1;
    case GGUF_UINT16:
    case GGUF_INT16:
        return 2;
    case GGUF_UINT64:
    case GGUF_INT64:
    case GGUF_FLOAT64:
        return 8;
    default:
        return 4;
    }
}

static void hash_value(hash *h, const gguf_value *value)
{
    hash_text(h, value->key);
    hash_word(h, (uint64_t)value->type << 32 | (uint64_t)value->element_type);
    hash_word(h, value->count);
    if (value->strings == NULL) {
        hash_bytes(h, value->data, value->count * element_bytes(value->element_type));
        return;
    }
    for (uint64_t i = 0; i < value->count; i++) {
        hash_text(h, value->strings[i]);
    }
}

static uint64_t hash_metadata(const gguf_file *file)
{
    hash h = {SEED};
    for (uint32_t i = 0; i < gguf_count_values(file); i++) {
        hash_value(&h, gguf_value_at(file, i));
    }
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        hash_text(&h, tensor->name);
        hash_word(&h, tensor->type);
        for (int d = 0; d < 4; d++) {
            hash_word(&h, tensor->dims[d]);
        }
    }
    return h.state;
}

/* ---- weights -------------------------------------------------------------------------------- */

static uint64_t count_bytes(const gguf_file *file)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        total += gguf_tensor_at(file, i)->n_bytes;
    }
    return total;
}

/*
 * The tensors are taken as one long text of bytes, one behind the other, and a stretch is looked at
 * every `pace` bytes of it; a stretch ends where its tensor does. Of little text all is looked at.
 */
static uint64_t hash_weights(const gguf_file *file)
{
    hash h = {SEED};
    const uint64_t total = count_bytes(file);
    const bool is_small = total <= (uint64_t)SAMPLES * SAMPLE_BYTES;
    const uint64_t pace = is_small ? 1 : total / SAMPLES;
    uint64_t begin = 0, next = 0; /* of the tensor; of the stretch to look at */
    for (uint32_t i = 0; i < gguf_count_tensors(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        const unsigned char *data = tensor->data;
        if (is_small) {
            hash_bytes(&h, data, tensor->n_bytes);
            continue;
        }
        for (; next < begin + tensor->n_bytes; next += pace) {
            const uint64_t at = next - begin, left = tensor->n_bytes - at;
            hash_bytes(&h, data + at, left < SAMPLE_BYTES ? left : SAMPLE_BYTES);
        }
        begin += tensor->n_bytes;
    }
    return h.state;
}

/* ---- facts ---------------------------------------------------------------------------------- */

static cellar_note fact(const char *name, const char *text, size_t size)
{
    return (cellar_note){.name = name, .value = text, .size = size};
}

void fingerprint_make(const model *m, fingerprint *out)
{
    gguf_string name = {.data = "", .length = 0};
    if (gguf_get_string(m->file, "general.name", &name, NULL) != CELLAR_OK) {
        name = (gguf_string){.data = "", .length = 0};
    }
    const size_t most = 4096; /* bytes of a name worth keeping: the metadata's hash has it all */
    const char *architecture = m->architecture->name;
    snprintf(out->metadata, sizeof out->metadata, "%016" PRIx64, hash_metadata(m->file));
    snprintf(out->weights, sizeof out->weights, "%016" PRIx64, hash_weights(m->file));
    uint32_t n = 0;
    out->facts[n++] = fact("architecture", architecture, strlen(architecture));
    out->facts[n++] = fact("name", name.data, name.length < most ? name.length : most);
    out->facts[n++] = fact("metadata", out->metadata, 16);
    out->facts[n++] = fact("weights", out->weights, 16);
    out->facts[n++] = fact("rope", "as in the file", 14);
    out->facts[n++] = fact("adapters", "none", 4);
}
