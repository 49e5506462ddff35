/*
 * tokenizer.c: text to token ids.
 *
 * What is the same for every algorithm lives here: cutting a text at the special tokens written in
 * it, and putting BOS and EOS around it. The stretches between special tokens go to the algorithm.
 *
 * Where a space is put: with add_space_prefix before the text and before the text after each
 * control token, as the models that want it were trained; a user-defined token is part of the text
 * around it, so none follows it, and none precedes it at the beginning. tokenizer_decode takes away
 * exactly these spaces. White space that a special token swallows is gone before that: what is left
 * of a stretch is what counts, and of a stretch of nothing else there is nothing left.
 */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "tokenizer/greedy.h"
#include "tokenizer/id_list.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/spm.h"
#include "tokenizer/tokenizer_internal.h"

#define LONGEST_TEXT ((size_t)1 << 30)

_Static_assert(LONGEST_TEXT <= SPM_LONGEST_TEXT, "what is accepted must fit the algorithm");

/* ---- questions ------------------------------------------------------------------------------ */

uint32_t tokenizer_size(const tokenizer *tok)
{
    return tok->vocabulary.n;
}

cellar_token tokenizer_bos(const tokenizer *tok)
{
    return tok->bos;
}

cellar_token tokenizer_eos(const tokenizer *tok)
{
    return tok->eos;
}

bool tokenizer_adds_bos(const tokenizer *tok)
{
    return tok->adds_bos;
}

bool tokenizer_adds_space(const tokenizer *tok)
{
    return tok->adds_space;
}

bool tokenizer_swallows_after(const tokenizer *tok, cellar_token id)
{
    return tokenizer_has(tok, id) && tokenizer_swallows(tok, id, SWALLOWS_AFTER);
}

bool tokenizer_swallows_before(const tokenizer *tok, cellar_token id)
{
    return tokenizer_has(tok, id) && tokenizer_swallows(tok, id, SWALLOWS_BEFORE);
}

size_t tokenizer_skip_space(const char *text, size_t length, size_t from)
{
    return swallowing_skip(text, length, from);
}

/* Names under which models end a turn or an answer, often without telling it by a key. */
static bool is_named_like_an_end(const tokenizer *tok, gguf_string text)
{
    static const char *const names[] = {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|eot|>",
        "<|eom|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|endofturn|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<turn|>",
        "<end_of_utterance>",
        "<EOT>",
        "<|EOT|>",
        "<|END_OF_TURN_TOKEN|>",
        "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (text.length == strlen(names[i]) && memcmp(text.data, names[i], text.length) == 0) {
            return !tok->has_harmony_ends || strcmp(names[i], "<|end|>") != 0;
        }
    }
    return false;
}

bool tokenizer_ends_text(const tokenizer *tok, cellar_token id)
{
    if (!tokenizer_has(tok, id)) {
        return false;
    }
    if (id == tok->eos || id == tok->eot || id == tok->eom) {
        return true;
    }
    uint8_t type = tok->vocabulary.types[id];
    return (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED) &&
           is_named_like_an_end(tok, tok->vocabulary.texts[id]);
}

/* ---- text to ids ---------------------------------------------------------------------------- */

static cellar_status report_too_long(size_t length, cellar_error *error)
{
    return report(error, CELLAR_INVALID, -1, "a text of %llu bytes is too long, the most is %llu",
                  (unsigned long long)length, (unsigned long long)LONGEST_TEXT);
}

static cellar_status append(id_list *ids, cellar_token id, cellar_error *error)
{
    if (!id_list_append(ids, id)) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for %llu tokens",
                      (unsigned long long)ids->n + 1);
    }
    return CELLAR_OK;
}

/* A space that is put is read by itself. */
static cellar_status encode_greedily(const tokenizer *tok, const char *text, size_t length,
                                     bool add_space, id_list *ids, cellar_error *error)
{
    cellar_status status = CELLAR_OK;
    if (add_space) {
        status = greedy_encode(&tok->normal, tok->unknown, " ", 1, ids, error);
    }
    if (status == CELLAR_OK) {
        status = greedy_encode(&tok->normal, tok->unknown, text, length, ids, error);
    }
    return status;
}

/* Byte-level BPE, over a composed text where the model was trained on such. */
static cellar_status encode_bytes(const tokenizer *tok, const char *text, size_t length,
                                  bool add_space, id_list *ids, cellar_error *error)
{
    char *composed = NULL;
    size_t n = 0;
    cellar_status status = CELLAR_OK;
    if (pre_tokenizer_composes(tok->bpe.pre)) {
        status = normal_form_make(NORMAL_FORM_C, text, length, &composed, &n, error);
    }
    if (status == CELLAR_OK && composed != NULL && n > LONGEST_TEXT) {
        status = report_too_long(n, error);
    }
    if (status == CELLAR_OK) {
        status = bpe_encode(&tok->bpe, tok->unknown, composed != NULL ? composed : text,
                            composed != NULL ? n : length, add_space, ids, NULL, error);
    }
    free(composed);
    return status;
}

/* An ordinary stretch: what the algorithms are for. */
static cellar_status encode_stretch(const tokenizer *tok, const char *text, size_t length,
                                    bool add_space, id_list *ids, cellar_error *error)
{
    switch (tok->kind) {
    case TOKENIZER_SPM:
        return spm_encode(&tok->vocabulary, tok->unknown, text, length, add_space, ids, error);
    case TOKENIZER_UNIGRAM:
        return unigram_encode(&tok->unigram, tok->unknown, text, length, add_space, ids, NULL,
                              error);
    case TOKENIZER_GREEDY:
        return encode_greedily(tok, text, length, add_space, ids, error);
    case TOKENIZER_BYTES:
        return encode_bytes(tok, text, length, add_space, ids, error);
    default:
        return bpe_encode(&tok->bpe, tok->unknown, text, length, add_space, ids, NULL, error);
    }
}

/* The text between BOS and EOS: ordinary stretches and the special tokens between them. */
static cellar_status encode_text(const tokenizer *tok, const char *text, size_t length,
                                 tokenize_options options, id_list *ids, cellar_error *error)
{
    const bool with_control = options.parse_special;
    bool is_space_due = tok->adds_space && !options.continues_text;
    size_t from = options.drops_space ? swallowing_skip(text, length, 0) : 0;
    while (from < length) {
        size_t at;
        cellar_token special = special_find(&tok->specials, text, length, from, with_control, &at);
        const bool trims = special >= 0 && tokenizer_swallows(tok, special, SWALLOWS_BEFORE);
        const size_t end = trims ? swallowing_trim(text, from, at) : at;
        if (end > from) {
            cellar_status status = encode_stretch(tok, text + from, end - from, is_space_due, ids,
                                                  error);
            if (status != CELLAR_OK) {
                return status;
            }
            is_space_due = false;
        }
        if (special < 0) {
            break;
        }
        cellar_status status = append(ids, special, error);
        if (status != CELLAR_OK) {
            return status;
        }
        is_space_due = tokenizer_adds_space_after(tok, special);
        from = at + tok->vocabulary.texts[special].length;
        if (tokenizer_swallows(tok, special, SWALLOWS_AFTER)) {
            from = swallowing_skip(text, length, from);
        }
    }
    return CELLAR_OK;
}

cellar_status tokenizer_encode(const tokenizer *tok, const char *text, size_t length,
                               tokenize_options options, cellar_token **ids, size_t *n,
                               cellar_error *error)
{
    *ids = NULL;
    *n = 0;
    if (length > LONGEST_TEXT) {
        return report_too_long(length, error);
    }
    id_list list = {0};
    cellar_status status = CELLAR_OK;
    if (options.add_special && tok->adds_bos) {
        status = append(&list, tok->bos, error);
    }
    if (status == CELLAR_OK) {
        status = encode_text(tok, text, length, options, &list, error);
    }
    if (status == CELLAR_OK && options.add_special && tok->adds_eos) {
        status = append(&list, tok->eos, error);
    }
    if (status != CELLAR_OK) {
        free(list.ids);
        return status;
    }
    *ids = list.ids;
    *n = list.n;
    return CELLAR_OK;
}
