/*
 * pre_tokenizers.h: the table of the pre-tokenizers that there are, for pre_tokenizer.c alone.
 *
 * A name that GGUF files carry in tokenizer.ggml.pre leads to the rules of one tokenizer.json;
 * several names may lead to the same.
 */
#ifndef APP_PRE_TOKENIZERS_H
#define APP_PRE_TOKENIZERS_H

#include <stdbool.h>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/splitting.h"

#define MOST_RULES 6

struct pre_tokenizer {
    split_rule rules[MOST_RULES + 1];      /* ended by RULE_END */
    bool keeps_tokens, adds_bos, composes; /* the questions of pre_tokenizer.h */
};

typedef struct pre_tokenizer_entry {
    const char *name;
    const pre_tokenizer *pre;
} pre_tokenizer_entry;

/* Ended by an entry without a name. */
extern const pre_tokenizer_entry pre_tokenizer_entries[];

#endif /* APP_PRE_TOKENIZERS_H */
