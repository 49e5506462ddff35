/*
 * pre_tokenizer.c: apply a row of splitting rules to a text.
 *
 * A rule is asked at each place, from left to right, whether it matches there. A match is a piece;
 * so is what lies between two matches. Each piece goes to the next rule at once, so nothing is
 * stored and the depth of the calls is the number of rules (at most MOST_RULES). After the last
 * rule the piece is a word.
 *
 * Every rule either consumes what it looked at or, where it fails, has looked at no more than it
 * skips (white space that does not end the piece is skipped as a whole), so the time is linear.
 */
#include "tokenizer/pre_tokenizer.h"

#include <string.h>

#include "tokenizer/pre_tokenizers.h"
#include "tokenizer/utf8.h"

/* ---- characters ----------------------------------------------------------------------------- */

character splitting_look_far(const split_text *text, size_t at)
{
    const unsigned char *bytes = (const unsigned char *)text->bytes + at;
    size_t length;
    if (utf8_scan(bytes, text->end - at, &length) != UTF8_WHOLE) {
        return (character){UINT32_MAX, UNICODE_OTHER, 1};
    }
    uint32_t code = utf8_code(bytes, length);
    return (character){code, unicode_class(code), (uint32_t)length};
}

bool splitting_has(const character_set *set, character c)
{
    bool is_member = (set->classes & c.class) != 0;
    for (uint32_t i = 0; i < set->n_ranges && !is_member; i++) {
        is_member = c.code >= set->ranges[i].first && c.code <= set->ranges[i].last;
    }
    return c.class != 0 && is_member != set->is_inverted;
}

/* ---- rules ---------------------------------------------------------------------------------- */

/* Bytes of the run of set members at `at`; 0: shorter than the rule wants. */
static size_t run_length(const split_rule *rule, const split_text *text, size_t at)
{
    size_t end = at;
    uint32_t n = 0;
    while (rule->most == 0 || n < rule->most) {
        character c = splitting_look(text, end);
        if (!splitting_has(&rule->set, c)) {
            break;
        }
        end += c.length;
        n++;
    }
    return n < rule->least ? 0 : end - at;
}

/* A run, with the character before it if there may be one; else, like any "?", without. */
static size_t match_run(const split_rule *rule, const split_text *text, size_t at)
{
    if (rule->before.classes != 0 || rule->before.n_ranges > 0) {
        character c = splitting_look(text, at);
        size_t n = splitting_has(&rule->before, c) ? run_length(rule, text, at + c.length) : 0;
        if (n > 0) {
            return c.length + n;
        }
    }
    return run_length(rule, text, at);
}

/* GPT-2 writes these bytes as themselves, and as characters they are numeric: 0..9 2 3 1 1/4 .. */
static bool is_digit_byte(unsigned char byte)
{
    return (byte >= '0' && byte <= '9') || byte == 0xB2 || byte == 0xB3 || byte == 0xB9 ||
           (byte >= 0xBC && byte <= 0xBE);
}

static size_t match_byte_digits(const split_text *text, size_t at)
{
    size_t end = at;
    while (end < text->end && is_digit_byte((unsigned char)text->bytes[end])) {
        end++;
    }
    *text->steps += end - at + 1;
    return end - at;
}

/*
 * Bytes of the match at `at`, or 0; then *skip is how many bytes cannot begin a match either.
 */
static size_t match(const split_rule *rule, const split_text *text, size_t at, size_t *skip)
{
    size_t n = 0;
    switch (rule->kind) {
    case RULE_BYTE_DIGITS:
        *skip = 1;
        return match_byte_digits(text, at);
    case RULE_TRAILING_SPACES:
        n = run_length(rule, text, at);
        if (n > 0 && at + n < text->end) {
            *skip = n;
            return 0;
        }
        break;
    case RULE_WORDS:
        n = splitting_match_words(rule->words, text, at);
        break;
    default:
        n = match_run(rule, text, at);
    }
    if (n == 0) {
        *skip = splitting_look(text, at).length;
    }
    return n;
}

/* ---- pieces --------------------------------------------------------------------------------- */

typedef struct splitting {
    pre_tokenizer_visit visit;
    void *context;
    uint64_t steps;
} splitting;

static cellar_status split(splitting *s, const split_rule *rules, const char *text, size_t length)
{
    if (rules->kind == RULE_END) {
        return s->visit(s->context, text, length);
    }
    split_text piece = {text, length, &s->steps};
    size_t at = 0, gap = 0; /* text[gap..at) lies between two matches */
    cellar_status status = CELLAR_OK;
    while (at < length && status == CELLAR_OK) {
        size_t skip = 0, n = match(rules, &piece, at, &skip);
        if (n == 0) {
            at += skip;
            continue;
        }
        if (gap < at) {
            status = split(s, rules + 1, text + gap, at - gap);
        }
        if (status == CELLAR_OK) {
            status = split(s, rules + 1, text + at, n);
        }
        at += n;
        gap = at;
    }
    if (status == CELLAR_OK && gap < length) {
        status = split(s, rules + 1, text + gap, length - gap);
    }
    return status;
}

cellar_status pre_tokenizer_split(const pre_tokenizer *pre, const char *text, size_t length,
                                  pre_tokenizer_visit visit, void *context, uint64_t *steps)
{
    splitting s = {visit, context, 0};
    cellar_status status = length > 0 ? split(&s, pre->rules, text, length) : CELLAR_OK;
    if (steps != NULL) {
        *steps += s.steps;
    }
    return status;
}

/* ---- by name -------------------------------------------------------------------------------- */

const pre_tokenizer *pre_tokenizer_find(const char *name, size_t length)
{
    for (const pre_tokenizer_entry *e = pre_tokenizer_entries; e->name != NULL; e++) {
        if (strlen(e->name) == length && memcmp(e->name, name, length) == 0) {
            return e->pre;
        }
    }
    return NULL;
}

const char *pre_tokenizer_name(size_t index)
{
    return pre_tokenizer_entries[index].name;
}

bool pre_tokenizer_keeps_tokens(const pre_tokenizer *pre)
{
    return pre->keeps_tokens;
}

bool pre_tokenizer_adds_bos(const pre_tokenizer *pre)
{
    return pre->adds_bos;
}

bool pre_tokenizer_composes(const pre_tokenizer *pre)
{
    return pre->composes;
}
