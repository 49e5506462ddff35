/*
 * tokenizer_create.c: make a tokenizer from the metadata of a file.
 *
 * tokenizer.ggml.model names the algorithm and tokenizer.ggml.pre, for byte-level BPE, the pattern
 * that cuts words. Both are refused by name where they are unknown, never guessed.
 *
 * Special ids: a key that is there must name a token, else the file is refused. Where a key is
 * absent, SentencePiece has usual ids (unknown 0, BOS 1, EOS 2), which count if there is such a
 * token; the others have none. The switches have usual values too, by algorithm.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/tokenizer_internal.h"

/* ---- which algorithm ------------------------------------------------------------------------ */

/* What a model's name in tokenizer.ggml.model stands for. */
typedef struct algorithm {
    const char *name;
    tokenizer_kind kind;
    bool has_usual_ids;
    bool adds_bos, adds_eos, adds_space; /* unless the file says otherwise */
} algorithm;

static const algorithm algorithms[] = {
    {"llama", TOKENIZER_SPM, true, true, false, true},
    {"gpt2", TOKENIZER_BYTES, false, false, false, false},
    {"gemma4", TOKENIZER_CHARACTERS, false, true, false, false},
    {"t5", TOKENIZER_UNIGRAM, false, false, true, true},
    {"rwkv", TOKENIZER_GREEDY, false, false, false, false},
};

/* The names, as in "a", "b" or "c". */
static void list_algorithms(char *to, size_t size)
{
    const size_t n = sizeof algorithms / sizeof algorithms[0];
    for (size_t i = 0, used = 0; i < n && used < size; i++) {
        const char *before = i == 0 ? "" : i + 1 < n ? ", " : " or ";
        used += (size_t)snprintf(to + used, size - used, "%s\"%s\"", before, algorithms[i].name);
    }
}

static cellar_status read_algorithm(const gguf_file *file, const algorithm **out,
                                    cellar_error *error)
{
    gguf_string name;
    cellar_status status = gguf_get_string(file, "tokenizer.ggml.model", &name, error);
    if (status == CELLAR_NOT_FOUND) {
        return report(error, CELLAR_CORRUPT, -1, "no key tokenizer.ggml.model: no tokenizer");
    }
    if (status != CELLAR_OK) {
        return status;
    }
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        const algorithm *a = &algorithms[i];
        if (name.length == strlen(a->name) && memcmp(name.data, a->name, name.length) == 0) {
            *out = a;
            return CELLAR_OK;
        }
    }
    char names[200];
    list_algorithms(names, sizeof names);
    return report(error, CELLAR_UNSUPPORTED, -1,
                  "tokenizer.ggml.model is \"%.*s\"; supported is %s",
                  (int)(name.length < 40 ? name.length : 40), name.data, names);
}

static cellar_status read_pre_tokenizer(const gguf_file *file, const pre_tokenizer **out,
                                        cellar_error *error)
{
    gguf_string name;
    cellar_status status = gguf_get_string(file, "tokenizer.ggml.pre", &name, error);
    if (status == CELLAR_NOT_FOUND) {
        return report(
            error, CELLAR_UNSUPPORTED, -1,
            "no key tokenizer.ggml.pre: how the model cuts words is not known; convert it "
            "again with a newer program");
    }
    if (status != CELLAR_OK) {
        return status;
    }
    *out = pre_tokenizer_find(name.data, name.length);
    if (*out == NULL) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "tokenizer.ggml.pre is \"%.*s\", a way to cut words that is not supported",
                      (int)(name.length < 40 ? name.length : 40), name.data);
    }
    return CELLAR_OK;
}

/* ---- ids and switches ----------------------------------------------------------------------- */

static cellar_status read_id(const gguf_file *file, const char *key, uint32_t n_vocab, int usual,
                             cellar_token *id, cellar_error *error)
{
    uint32_t value = 0;
    cellar_status status = gguf_get_u32(file, key, &value, error);
    if (status == CELLAR_NOT_FOUND) {
        *id = usual < (int64_t)n_vocab ? usual : -1;
        return CELLAR_OK;
    }
    if (status != CELLAR_OK) {
        return status;
    }
    if (value >= n_vocab) {
        return report(error, CELLAR_CORRUPT, -1, "%s is %u, but there are only %u tokens", key,
                      (unsigned)value, (unsigned)n_vocab);
    }
    *id = (cellar_token)value;
    return CELLAR_OK;
}

static cellar_status read_ids(const gguf_file *file, bool has_usual, tokenizer *tok,
                              cellar_error *error)
{
    const struct {
        const char *key;
        int usual;
        cellar_token *id;
    } all[] = {
        {"tokenizer.ggml.unknown_token_id", has_usual ? 0 : -1, &tok->unknown},
        {"tokenizer.ggml.bos_token_id", has_usual ? 1 : -1, &tok->bos},
        {"tokenizer.ggml.eos_token_id", has_usual ? 2 : -1, &tok->eos},
        {"tokenizer.ggml.eot_token_id", -1, &tok->eot},
        {"tokenizer.ggml.eom_token_id", -1, &tok->eom},
    };
    cellar_status status = CELLAR_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == CELLAR_OK; i++) {
        status = read_id(file, all[i].key, tok->vocabulary.n, all[i].usual, all[i].id, error);
    }
    return status;
}

static cellar_status read_switches(const gguf_file *file, const algorithm *a, tokenizer *tok,
                                   cellar_error *error)
{
    const bool adds_bos = a->adds_bos ||
                          (a->kind == TOKENIZER_BYTES && pre_tokenizer_adds_bos(tok->bpe.pre));
    const struct {
        const char *key;
        bool usual;
        bool *is_on;
    } all[] = {
        {"tokenizer.ggml.add_bos_token", adds_bos, &tok->adds_bos},
        {"tokenizer.ggml.add_eos_token", a->adds_eos, &tok->adds_eos},
        {"tokenizer.ggml.add_space_prefix", a->adds_space, &tok->adds_space},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *all[i].is_on = all[i].usual;
        cellar_status status = gguf_get_bool(file, all[i].key, all[i].is_on, error);
        if (status != CELLAR_OK && status != CELLAR_NOT_FOUND) {
            return status;
        }
    }
    tok->adds_bos = tok->adds_bos && tok->bos >= 0;
    tok->adds_eos = tok->adds_eos && tok->eos >= 0;
    return CELLAR_OK;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* The vocabulary and what the algorithm makes of it. */
static cellar_status read_vocabulary(const gguf_file *file, tokenizer *tok, cellar_error *error)
{
    const pre_tokenizer *pre = NULL;
    const bool has_merges = tok->kind == TOKENIZER_BYTES || tok->kind == TOKENIZER_CHARACTERS;
    const vocabulary_wishes wishes = {
        .scores = tok->kind == TOKENIZER_SPM || tok->kind == TOKENIZER_UNIGRAM,
        .is_escaped = tok->kind == TOKENIZER_GREEDY,
    };
    cellar_status status = CELLAR_OK;
    if (tok->kind == TOKENIZER_BYTES) {
        status = read_pre_tokenizer(file, &pre, error);
    }
    if (status == CELLAR_OK) {
        status = vocabulary_read(file, wishes, &tok->vocabulary, error);
    }
    if (status == CELLAR_OK && has_merges) {
        status = bpe_create(file, &tok->vocabulary, pre, &tok->bpe, error);
    }
    if (status == CELLAR_OK && tok->kind == TOKENIZER_UNIGRAM) {
        status = unigram_create(file, &tok->vocabulary, &tok->unigram, error);
    }
    if (status == CELLAR_OK && tok->kind == TOKENIZER_GREEDY) {
        status = prefix_set_create(&tok->vocabulary, 1u << TOKEN_NORMAL, &tok->normal, error);
    }
    return status;
}

/* Is there a control token, or one that may be typed, with this spelling? */
static bool has_special(const tokenizer *tok, const char *text)
{
    size_t at;
    return special_find(&tok->specials, text, strlen(text), 0, true, &at) >= 0 && at == 0;
}

static cellar_status read_all(const gguf_file *file, tokenizer *tok, cellar_error *error)
{
    const algorithm *a = NULL;
    cellar_status status = read_algorithm(file, &a, error);
    if (status == CELLAR_OK) {
        tok->kind = a->kind;
        status = read_vocabulary(file, tok, error);
    }
    if (status == CELLAR_OK) {
        status = read_ids(file, a->has_usual_ids, tok, error);
    }
    if (status == CELLAR_OK) {
        status = read_switches(file, a, tok, error);
    }
    if (status == CELLAR_OK) {
        status = special_create(&tok->vocabulary, &tok->specials, error);
    }
    if (status == CELLAR_OK) {
        status = swallowing_create(file, &tok->vocabulary, &tok->swallows, error);
    }
    if (status == CELLAR_OK) {
        tok->has_harmony_ends = has_special(tok, "<|return|>") && has_special(tok, "<|call|>");
    }
    return status;
}

cellar_status tokenizer_create(const gguf_file *file, tokenizer **out, cellar_error *error)
{
    *out = NULL;
    tokenizer *tok = calloc(1, sizeof *tok);
    if (tok == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a tokenizer");
    }
    cellar_status status = read_all(file, tok, error);
    if (status != CELLAR_OK) {
        tokenizer_destroy(tok);
        return status;
    }
    if (error != NULL) {
        *error = (cellar_error){.status = CELLAR_OK, .at = -1}; /* absent keys left their message */
    }
    *out = tok;
    return CELLAR_OK;
}

void tokenizer_destroy(tokenizer *tok)
{
    if (tok != NULL) {
        prefix_set_free(&tok->specials);
        free(tok->swallows);
        bpe_free(&tok->bpe);
        unigram_free(&tok->unigram);
        prefix_set_free(&tok->normal);
        vocabulary_free(&tok->vocabulary);
        free(tok);
    }
}
