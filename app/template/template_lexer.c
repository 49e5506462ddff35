/*
 * template_lexer.c: the text of a template, cut into tokens.
 *
 * Outside of tags everything is text, from which white space goes by three rules, as Jinja2 has them with
 * trim_blocks and lstrip_blocks:
 *
 *     text \n    {%- if ... -%} \n  text      a minus takes all white space on its side
 *     text \n    {% if ... %}\n     text      else blanks between a line's begin and a tag or comment go,
 *                                             and the one line end right behind it
 *     text \n    {%+ if ... +%}\n   text      a plus keeps them; {{ }} never takes any
 *
 * Inside a tag, white space separates and brackets must close: within them, }} and %} do not end the tag.
 * Refused: what is not UTF-8, tags that never end, characters that begin no token.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "safe_text.h"
#include "template/template_syntax.h"

enum { LONGEST_NUMBER = 64 };

typedef struct template_lexer {
    template_compiler *compiler;
    template_text source;
    size_t at;
    bool line_begins; /* what came last ended in a line end, or nothing came yet */
} template_lexer;

/* ---- characters ------------------------------------------------------------------------------ */

static bool is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

size_t template_space_at(template_text text, size_t at)
{
    size_t used;
    if (at >= text.length) return 0;
    return is_space(safe_text_decode(text.data + at, text.length - at, &used)) ? used : 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_character(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static size_t skip_space(template_text text, size_t at)
{
    for (size_t used; (used = template_space_at(text, at)) > 0;)
        at += used;
    return at;
}

static bool has(const template_lexer *lexer, size_t at, const char *what)
{
    const size_t length = strlen(what);
    return at <= lexer->source.length && lexer->source.length - at >= length &&
           memcmp(lexer->source.data + at, what, length) == 0;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static template_token *add_token(template_lexer *lexer, template_token_kind kind, size_t offset,
                                 template_text text)
{
    template_compiler *compiler = lexer->compiler;
    if (compiler->n_tokens == compiler->capacity) {
        const size_t capacity = compiler->capacity == 0 ? 256 : 2 * compiler->capacity;
        template_token *more = realloc(compiler->tokens, capacity * sizeof *more);
        if (more == NULL) {
            template_syntax_fail(compiler, CELLAR_NO_MEMORY, (uint32_t)offset,
                                 "no memory for its tokens");
            return NULL;
        }
        compiler->tokens = more;
        compiler->capacity = capacity;
    }
    template_token *token = &compiler->tokens[compiler->n_tokens++];
    *token = (template_token){.kind = kind, .offset = (uint32_t)offset, .text = text};
    return token;
}

static template_text cut(const template_lexer *lexer, size_t from, size_t to)
{
    return (template_text){lexer->source.data + from, to - from};
}

/* Leave the white space at the end of text[from..to) out; the new `to`. */
static size_t strip_end(const template_lexer *lexer, size_t from, size_t to)
{
    size_t end = from;
    for (size_t at = from; at < to;) {
        const size_t space = template_space_at(lexer->source, at);
        at += space > 0 ? space : 1;
        if (space == 0) end = at;
    }
    return end;
}

/* Leave out the blanks between the begin of the last line and `to`, if nothing else stands there. */
static size_t strip_line(const template_lexer *lexer, size_t from, size_t to)
{
    size_t line = to;
    while (line > from && lexer->source.data[line - 1] != '\n')
        line--;
    if (line == from && !lexer->line_begins) return to;
    return skip_space(lexer->source, line) >= to ? line : to;
}

/* The text that ends where a tag begins; `sign` is what follows the tag's first two characters. */
static bool add_text(template_lexer *lexer, size_t from, size_t to, char sign, bool is_print)
{
    if (sign == '-')
        to = strip_end(lexer, from, to);
    else if (sign != '+' && !is_print)
        to = strip_line(lexer, from, to);
    return to == from || add_token(lexer, LEX_TEXT, from, cut(lexer, from, to)) != NULL;
}

/* Move behind the end of a tag or comment that begins at `at`. */
static void end_tag(template_lexer *lexer, size_t at, bool trims_line)
{
    if (lexer->source.data[at] == '-') {
        lexer->at = skip_space(lexer->source, at + 3);
    } else {
        lexer->at = at + (lexer->source.data[at] == '+' ? 3 : 2);
        if (trims_line && lexer->source.data[at] != '+' && has(lexer, lexer->at, "\n")) lexer->at++;
    }
    lexer->line_begins = lexer->source.data[lexer->at - 1] == '\n';
}

/* ---- inside a tag ---------------------------------------------------------------------------- */

static size_t copy_digits(const template_lexer *lexer, size_t at, char *to, size_t *n)
{
    while (at < lexer->source.length) {
        const char c = lexer->source.data[at];
        const bool joins = c == '_' && at > 0 && is_digit(lexer->source.data[at - 1]) &&
                           at + 1 < lexer->source.length && is_digit(lexer->source.data[at + 1]);
        if (!is_digit(c) && !joins) break;
        if (!joins && *n < LONGEST_NUMBER) to[(*n)++] = c;
        at++;
    }
    return at;
}

/* The end of an exponent that begins at `at`, or `at`. */
static size_t copy_exponent(const template_lexer *lexer, size_t at, char *to, size_t *n)
{
    if (!has(lexer, at, "e") && !has(lexer, at, "E")) return at;
    const bool is_signed = has(lexer, at + 1, "-") || has(lexer, at + 1, "+");
    const size_t digits = at + 1 + is_signed;
    if (digits >= lexer->source.length || !is_digit(lexer->source.data[digits])) return at;
    for (size_t i = at; i < digits && *n < LONGEST_NUMBER; i++)
        to[(*n)++] = lexer->source.data[i];
    return copy_digits(lexer, digits, to, n);
}

static bool lex_based_number(template_lexer *lexer, int base)
{
    const size_t from = lexer->at;
    char digits[LONGEST_NUMBER + 1];
    size_t n = 0, at = from + 2;
    for (; at < lexer->source.length; at++) {
        const char c = lexer->source.data[at];
        const bool is_hex = base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'));
        if (c != '_' && !is_hex && !(is_digit(c) && c - '0' < base)) break;
        if (c != '_' && n < LONGEST_NUMBER) digits[n++] = c;
    }
    digits[n] = '\0';
    errno = 0;
    const int64_t integer = strtoll(digits, NULL, base);
    if (n == 0 || n == LONGEST_NUMBER || errno != 0)
        return template_syntax_fail(lexer->compiler, CELLAR_CORRUPT, (uint32_t)from,
                                    "this is not a whole number of 64 bits");
    template_token *token = add_token(lexer, LEX_INTEGER, from, cut(lexer, from, at));
    if (token != NULL) token->integer = integer;
    lexer->at = at;
    return token != NULL;
}

static bool lex_number(template_lexer *lexer)
{
    const size_t from = lexer->at;
    if (has(lexer, from, "0x") || has(lexer, from, "0X")) return lex_based_number(lexer, 16);
    if (has(lexer, from, "0o") || has(lexer, from, "0O")) return lex_based_number(lexer, 8);
    if (has(lexer, from, "0b") || has(lexer, from, "0B")) return lex_based_number(lexer, 2);
    char digits[LONGEST_NUMBER + 1];
    size_t n = 0;
    const size_t whole = copy_digits(lexer, from, digits, &n);
    size_t to = whole;
    /* `list.0.1` is two places, not the number 0.1 */
    if (from == 0 || lexer->source.data[from - 1] != '.') {
        if (has(lexer, to, ".") && to + 1 < lexer->source.length &&
            is_digit(lexer->source.data[to + 1])) {
            if (n < LONGEST_NUMBER) digits[n++] = '.';
            to = copy_digits(lexer, to + 1, digits, &n);
        }
        to = copy_exponent(lexer, to, digits, &n);
    }
    digits[n] = '\0';
    errno = 0;
    const bool is_real = to > whole;
    const int64_t integer = is_real ? 0 : strtoll(digits, NULL, 10);
    if (n == LONGEST_NUMBER || (!is_real && errno != 0))
        return template_syntax_fail(lexer->compiler, CELLAR_UNSUPPORTED, (uint32_t)from,
                                    "this number is too long; write one of 64 bits");
    template_token *token = add_token(lexer, is_real ? LEX_REAL : LEX_INTEGER, from,
                                      cut(lexer, from, to));
    if (token == NULL) return false;
    if (is_real)
        token->real = strtod(digits, NULL);
    else
        token->integer = integer;
    lexer->at = to;
    return true;
}

static bool lex_string(template_lexer *lexer)
{
    const size_t from = lexer->at;
    const char quote = lexer->source.data[from];
    size_t at = from + 1;
    while (at < lexer->source.length && lexer->source.data[at] != quote)
        at += lexer->source.data[at] == '\\' ? 2 : 1;
    if (at >= lexer->source.length)
        return template_syntax_fail(lexer->compiler, CELLAR_CORRUPT, (uint32_t)from,
                                    "this text literal has no closing quote");
    template_text text;
    if (!template_unescape(lexer->compiler, (uint32_t)from, cut(lexer, from + 1, at), &text))
        return false;
    lexer->at = at + 1;
    return add_token(lexer, LEX_STRING, from, text) != NULL;
}

static bool lex_operator(template_lexer *lexer, char *open, uint32_t *n_open, uint32_t most_open)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const size_t from = lexer->at;
    size_t which = 0;
    const size_t n = sizeof operators / sizeof operators[0];
    while (which < n && !has(lexer, from, operators[which]))
        which++;
    if (which == n)
        return template_syntax_fail(lexer->compiler, CELLAR_CORRUPT, (uint32_t)from,
                                    "the character '%c' has no meaning here",
                                    lexer->source.data[from]);
    const char c = operators[which][0];
    if (c == '(' || c == '[' || c == '{') {
        if (*n_open == most_open)
            return template_syntax_fail(lexer->compiler, CELLAR_UNSUPPORTED, (uint32_t)from,
                                        "more than %u brackets are open", (unsigned)most_open);
        open[(*n_open)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (*n_open == 0 || open[*n_open - 1] != c)
            return template_syntax_fail(lexer->compiler, CELLAR_CORRUPT, (uint32_t)from,
                                        "'%c' closes no bracket that is open", c);
        (*n_open)--;
    }
    lexer->at = from + strlen(operators[which]);
    return add_token(lexer, LEX_OPERATOR, from, cut(lexer, from, lexer->at)) != NULL;
}

static bool is_tag_end(const template_lexer *lexer, bool is_print)
{
    const size_t at = lexer->at;
    return is_print ? has(lexer, at, "-}}") || has(lexer, at, "}}")
                    : has(lexer, at, "-%}") || has(lexer, at, "+%}") || has(lexer, at, "%}");
}

static bool lex_inside(template_lexer *lexer, size_t begin, bool is_print)
{
    enum { MOST_OPEN = 256 };
    char open[MOST_OPEN];
    uint32_t n_open = 0;
    for (;;) {
        lexer->at = skip_space(lexer->source, lexer->at);
        if (lexer->at >= lexer->source.length)
            return template_syntax_fail(lexer->compiler, CELLAR_CORRUPT, (uint32_t)begin,
                                        "the tag that begins here has no end");
        if (n_open == 0 && is_tag_end(lexer, is_print)) break;
        const char c = lexer->source.data[lexer->at];
        bool is_good;
        if (is_digit(c)) {
            is_good = lex_number(lexer);
        } else if (is_name_character(c)) {
            const size_t from = lexer->at;
            while (lexer->at < lexer->source.length &&
                   is_name_character(lexer->source.data[lexer->at]) &&
                   template_space_at(lexer->source, lexer->at) == 0)
                lexer->at++;
            is_good = add_token(lexer, LEX_NAME, from, cut(lexer, from, lexer->at)) != NULL;
        } else if (c == '\'' || c == '"') {
            is_good = lex_string(lexer);
        } else {
            is_good = lex_operator(lexer, open, &n_open, MOST_OPEN);
        }
        if (!is_good) return false;
    }
    if (add_token(lexer, is_print ? LEX_PRINT_END : LEX_TAG_END, lexer->at, (template_text){0}) ==
        NULL)
        return false;
    end_tag(lexer, lexer->at, !is_print);
    return true;
}

/* ---- between tags ---------------------------------------------------------------------------- */

static char sign_at(const template_lexer *lexer, size_t at)
{
    return has(lexer, at, "-") ? '-' : has(lexer, at, "+") ? '+' : '\0';
}

/* Is {% raw %} at `at`, whose tag begins there? *end: behind it. `word` is raw or endraw. */
static bool is_raw_tag(const template_lexer *lexer, size_t at, const char *word, size_t *end)
{
    if (!has(lexer, at, "{%")) return false;
    at += sign_at(lexer, at + 2) == '\0' ? 2 : 3;
    at = skip_space(lexer->source, at);
    if (!has(lexer, at, word)) return false;
    at = skip_space(lexer->source, at + strlen(word));
    *end = at;
    return has(lexer, at, "%}") || has(lexer, at, "-%}") ||
           (word[0] == 'e' && has(lexer, at, "+%}"));
}

static bool lex_raw(template_lexer *lexer, size_t begin, size_t end)
{
    end_tag(lexer, end, false);
    const size_t from = lexer->at;
    size_t to = from;
    while (to < lexer->source.length && !is_raw_tag(lexer, to, "endraw", &end))
        to++;
    if (to >= lexer->source.length)
        return template_syntax_fail(lexer->compiler, CELLAR_CORRUPT, (uint32_t)begin,
                                    "{%% raw %%} has no {%% endraw %%}");
    if (!add_text(lexer, from, to, sign_at(lexer, to + 2), false)) return false;
    end_tag(lexer, end, true);
    return true;
}

static bool lex_comment(template_lexer *lexer, size_t begin)
{
    size_t at = begin + (sign_at(lexer, begin + 2) == '\0' ? 2 : 3);
    while (at < lexer->source.length && !has(lexer, at, "#}"))
        at++;
    if (at >= lexer->source.length)
        return template_syntax_fail(lexer->compiler, CELLAR_CORRUPT, (uint32_t)begin,
                                    "the comment that begins here has no end");
    const size_t first = begin + (sign_at(lexer, begin + 2) == '\0' ? 2 : 3);
    if (at > first && (lexer->source.data[at - 1] == '-' || lexer->source.data[at - 1] == '+'))
        at--;
    end_tag(lexer, at, true);
    return true;
}

static bool lex_tag(template_lexer *lexer, size_t from, size_t tag)
{
    size_t end;
    const char kind = lexer->source.data[tag + 1], sign = sign_at(lexer, tag + 2);
    if (!add_text(lexer, from, tag, sign, kind == '{')) return false;
    if (is_raw_tag(lexer, tag, "raw", &end)) return lex_raw(lexer, tag, end);
    if (kind == '#') return lex_comment(lexer, tag);
    lexer->at = tag + (sign == '\0' ? 2 : 3);
    if (add_token(lexer, kind == '{' ? LEX_PRINT_BEGIN : LEX_TAG_BEGIN, tag, (template_text){0}) ==
        NULL)
        return false;
    return lex_inside(lexer, tag, kind == '{');
}

bool template_lex(template_compiler *compiler)
{
    template_lexer lexer = {
        .compiler = compiler, .source = compiler->program->source, .line_begins = true};
    const template_text source = lexer.source;
    while (lexer.at < source.length) {
        const size_t from = lexer.at;
        size_t tag = from;
        while (tag < source.length &&
               !(has(&lexer, tag, "{{") || has(&lexer, tag, "{%") || has(&lexer, tag, "{#")))
            tag++;
        if (tag == source.length) {
            if (add_token(&lexer, LEX_TEXT, from, cut(&lexer, from, tag)) == NULL) return false;
            break;
        }
        if (!lex_tag(&lexer, from, tag)) return false;
    }
    return add_token(&lexer, LEX_END, source.length, (template_text){0}) != NULL;
}
