/*
 * tokenizer_internal.h: what a tokenizer holds, for the files that make it up.
 *
 * tokenizer_create.c fills it from a file, tokenizer.c turns text into ids, tokenizer_decode.c ids
 * into text. After creation nothing in it changes.
 */
#ifndef APP_TOKENIZER_INTERNAL_H
#define APP_TOKENIZER_INTERNAL_H

#include "tokenizer/bpe.h"
#include "tokenizer/special.h"
#include "tokenizer/swallowing.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"
#include "tokenizer/vocabulary.h"

typedef enum tokenizer_kind {
    TOKENIZER_SPM,        /* SentencePiece, byte-pair encoding by scores */
    TOKENIZER_BYTES,      /* byte-pair encoding of bytes */
    TOKENIZER_CHARACTERS, /* byte-pair encoding of characters */
    TOKENIZER_UNIGRAM,    /* SentencePiece, the best sum of scores */
    TOKENIZER_GREEDY,     /* the longest token */
} tokenizer_kind;

struct tokenizer {
    tokenizer_kind kind;
    vocabulary vocabulary;
    prefix_set specials;
    uint8_t *swallows;              /* [tokens], masks of SWALLOWS_...; NULL: none does */
    bpe bpe;                        /* of the two kinds that merge by rank */
    unigram unigram;                /* of TOKENIZER_UNIGRAM */
    prefix_set normal;              /* of TOKENIZER_GREEDY: the tokens it picks from */
    cellar_token bos, eos, unknown; /* -1: none */
    cellar_token eot, eom;          /* end of a turn, of a message; -1: none */
    bool adds_bos, adds_eos, adds_space;
    bool has_harmony_ends; /* <|return|> and <|call|> end an answer, <|end|> only a part of it */
};

static inline bool tokenizer_has(const tokenizer *tok, cellar_token id)
{
    return id >= 0 && (uint32_t)id < tok->vocabulary.n;
}

/* Does the token take the white space on this side (SWALLOWS_...)? */
static inline bool tokenizer_swallows(const tokenizer *tok, cellar_token id, uint8_t side)
{
    return tok->swallows != NULL && (tok->swallows[id] & side) != 0;
}

/* Does encoding put a space before ordinary text that follows this token? */
static inline bool tokenizer_adds_space_after(const tokenizer *tok, cellar_token id)
{
    return tok->adds_space && tok->vocabulary.types[id] == TOKEN_CONTROL;
}

#endif /* APP_TOKENIZER_INTERNAL_H */
