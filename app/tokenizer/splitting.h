/*
 * splitting.h: what the pre-tokenizers are made of: rules, and how each finds its next match.
 *
 * A pre-tokenizer is a row of rules (pre_tokenizers.c). Each rule cuts the text where it matches;
 * what it matches and what lies between two matches are pieces, and the next rule cuts each piece
 * again as if it were a text of its own. That is what a sequence of "isolated" splits does in a
 * tokenizer.json.
 */
#ifndef APP_SPLITTING_H
#define APP_SPLITTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/unicode.h"

typedef struct code_range {
    uint32_t first, last; /* both belong to it */
} code_range;

/* A set of characters: classes and code points. */
typedef struct character_set {
    uint32_t classes; /* mask of UNICODE_... */
    const code_range *ranges;
    uint32_t n_ranges;
    bool is_inverted; /* all but these */
} character_set;

typedef enum rule_kind {
    RULE_END,
    RULE_WORDS,           /* a pattern of alternatives, see word_pattern */
    RULE_RUN,             /* least..most characters of a set, perhaps after a space */
    RULE_BYTE_DIGITS,     /* bytes that GPT-2 writes as numeric characters, as many as there are */
    RULE_TRAILING_SPACES, /* the white space that ends a piece */
} rule_kind;

typedef enum contractions {
    CONTRACTIONS_NONE,
    CONTRACTIONS_SMALL,    /* 's 't 're 've 'm 'll 'd, as a word */
    CONTRACTIONS_ANY_CASE, /* the same in either case */
    CONTRACTIONS_AFTER,    /* in either case, and as the end of the word before it */
} contractions;

/* What may stand before letters and belongs to their word. */
typedef enum word_prefix {
    PREFIX_SPACE, /* one U+0020 */
    PREFIX_ANY,   /* one character of the set that is neither CR nor LF */
} word_prefix;

/*
 * Alternatives, the first that matches counts, in this order:
 *   contractions | prefix? letters+ | numbers | space? symbols+ tail* | white space
 */
typedef struct word_pattern {
    contractions contractions;
    bool has_ascii_prefix; /* first of all: one ASCII punctuation or symbol, then ASCII letters */
    word_prefix prefix;
    uint32_t prefix_classes; /* for PREFIX_ANY */
    bool has_case;           /* capitals then small letters are a word, see words_cased */
    uint32_t letters;        /* classes */
    bool has_numbers;
    uint32_t most_digits; /* numbers of at most so many; 0: any, and perhaps after a space */
    uint32_t symbols;     /* classes */
    const char *tail;     /* ASCII characters that may follow symbols */
    bool has_lines;       /* white space up to its last line end is a word */
} word_pattern;

typedef struct split_rule {
    rule_kind kind;
    const word_pattern *words;
    character_set set;
    uint32_t least, most; /* of a run; most 0: any number */
    character_set before; /* one of these may stand before a run; no classes and ranges: none */
} split_rule;

/* A piece of text that is being cut. */
typedef struct split_text {
    const char *bytes;
    size_t end;
    uint64_t *steps; /* characters looked at */
} split_text;

typedef struct character {
    uint32_t code;   /* UINT32_MAX: a byte that is not UTF-8, or the end */
    uint32_t class;  /* one bit; 0 at the end */
    uint32_t length; /* bytes; 0 at the end */
} character;

/* What splitting_look does for all but ASCII. */
character splitting_look_far(const split_text *text, size_t at);

/* The character at a place; none at or beyond the end. */
static inline character splitting_look(const split_text *text, size_t at)
{
    if (at >= text->end) {
        return (character){UINT32_MAX, 0, 0};
    }
    ++*text->steps;
    unsigned char byte = (unsigned char)text->bytes[at];
    if (byte < 0x80) {
        return (character){byte, unicode_ascii[byte], 1};
    }
    return splitting_look_far(text, at);
}

bool splitting_has(const character_set *set, character c);

/*
 * Bytes of the match of the pattern that begins at `at`, 0: none. Where there is none, none begins
 * inside the first character either.
 */
size_t splitting_match_words(const word_pattern *pattern, const split_text *text, size_t at);

#endif /* APP_SPLITTING_H */
