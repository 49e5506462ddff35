/*
 * pre_tokenizers.c: which names stand for which splitting rules.
 *
 * The patterns are those of the models' own tokenizer.json files; each is written above its rules
 * as it stands there. "Digits" is split off by some as one number character at a time.
 *
 * Why no regular expressions at run time: the patterns differ in a few switches (splitting.h), and
 * matching them by hand is faster and needs no library. Splitting 22 MB of mixed text took 0.17 s
 * by GPT-2's pattern, 0.16 s by Llama 3's and 0.18 s by GPT-4o's; PCRE2 10.42 compiled to machine
 * code took 0.20, 0.21 and 0.25 s and gave the same words. Over 6000 random texts for each pattern
 * the words are also those of a regular expression module with the patterns as they stand here.
 */
#include "tokenizer/pre_tokenizers.h"

#include <stddef.h>

#define NOT_WORD (UNICODE_ALL & ~(UNICODE_SPACE | UNICODE_LETTER | UNICODE_NUMBER))
#define NOT_LETTER_NUMBER (UNICODE_ALL & ~(UNICODE_LETTER | UNICODE_NUMBER))
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- patterns of alternatives --------------------------------------------------------------- */

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static const word_pattern gpt2_words = {
    .contractions = CONTRACTIONS_SMALL,
    .prefix = PREFIX_SPACE,
    .letters = UNICODE_LETTER,
    .has_numbers = true,
    .symbols = NOT_WORD,
    .tail = "",
};

/*
 * (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+
 */
static const word_pattern llama3_words = {
    .contractions = CONTRACTIONS_ANY_CASE,
    .prefix = PREFIX_ANY,
    .prefix_classes = NOT_LETTER_NUMBER,
    .letters = UNICODE_LETTER,
    .has_numbers = true,
    .most_digits = 3,
    .symbols = NOT_WORD,
    .tail = "\r\n",
    .has_lines = true,
};

/* As Llama 3's, with \p{N} for \p{N}{1,3}. */
static const word_pattern qwen2_words = {
    .contractions = CONTRACTIONS_ANY_CASE,
    .prefix = PREFIX_ANY,
    .prefix_classes = NOT_LETTER_NUMBER,
    .letters = UNICODE_LETTER,
    .has_numbers = true,
    .most_digits = 1,
    .symbols = NOT_WORD,
    .tail = "\r\n",
    .has_lines = true,
};

/* As Qwen 2's, with marks as letters: [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ and [^\s\p{L}\p{M}\p{N}]+ */
static const word_pattern qwen35_words = {
    .contractions = CONTRACTIONS_ANY_CASE,
    .prefix = PREFIX_ANY,
    .prefix_classes = NOT_LETTER_NUMBER,
    .letters = UNICODE_LETTER | UNICODE_MARK,
    .has_numbers = true,
    .most_digits = 1,
    .symbols = NOT_WORD & ~UNICODE_MARK,
    .tail = "\r\n",
    .has_lines = true,
};

/*
 * [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|...)?|
 * [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|...)?|
 * \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
 */
static const word_pattern gpt4o_words = {
    .contractions = CONTRACTIONS_AFTER,
    .prefix = PREFIX_ANY,
    .prefix_classes = NOT_LETTER_NUMBER,
    .has_case = true,
    .has_numbers = true,
    .most_digits = 3,
    .symbols = NOT_WORD,
    .tail = "\r\n/",
    .has_lines = true,
};

/* As GPT-4o's, without contractions and with \p{N} for \p{N}{1,3}. */
static const word_pattern tekken_words = {
    .contractions = CONTRACTIONS_NONE,
    .prefix = PREFIX_ANY,
    .prefix_classes = NOT_LETTER_NUMBER,
    .has_case = true,
    .has_numbers = true,
    .most_digits = 1,
    .symbols = NOT_WORD,
    .tail = "\r\n/",
    .has_lines = true,
};

/*
 * [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
 *  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 */
static const word_pattern deepseek3_words = {
    .contractions = CONTRACTIONS_NONE,
    .has_ascii_prefix = true,
    .prefix = PREFIX_ANY,
    .prefix_classes = UNICODE_ALL & ~(UNICODE_LETTER | UNICODE_PUNCTUATION | UNICODE_SYMBOL),
    .letters = UNICODE_LETTER | UNICODE_MARK,
    .symbols = UNICODE_PUNCTUATION | UNICODE_SYMBOL,
    .tail = "\r\n",
    .has_lines = true,
};

/* ---- rules that several have ---------------------------------------------------------------- */

#define SET(...)                                                                                   \
    {                                                                                              \
        .ranges = __VA_ARGS__, .n_ranges = COUNT(__VA_ARGS__)                                      \
    }
#define CLASSES(mask)                                                                              \
    {                                                                                              \
        .classes = (mask)                                                                          \
    }
#define WORDS(pattern)                                                                             \
    {                                                                                              \
        .kind = RULE_WORDS, .words = &(pattern)                                                    \
    }
/* Each number character is a piece. */
#define SINGLE_DIGITS                                                                              \
    {                                                                                              \
        .kind = RULE_RUN, .set = CLASSES(UNICODE_NUMBER), .least = 1, .most = 1                    \
    }

static const code_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}};
static const code_range space[] = {{' ', ' '}};
static const code_range ascii_digits[] = {{'0', '9'}};
/* [\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF] */
static const code_range deepseek_han[] = {{0x0800, 0x9FA5}, {0xAC00, 0xD7FF}};
/* [\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF] */
static const code_range deepseek3_han[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};
/* [!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002] */
static const code_range deepseek_marks[] = {
    {'!', '/'}, {':', '~'}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}, {0x2018, 0x201F}, {0x3000, 0x3002},
};
/* Punctuation that is a symbol to Unicode: $ + < = > ^ ` | ~ */
static const code_range ascii_symbols[] = {
    {'$', '$'}, {'+', '+'}, {'<', '>'}, {'^', '^'}, {'`', '`'}, {'|', '|'}, {'~', '~'},
};
/* ( | ) . , ! ? and … 。 ， 、 । ۔ ، of [^(\s|[.,!?…。，、।۔،])] */
static const code_range bloom_marks[] = {
    {'!', '!'},       {'(', ')'},       {',', ','},       {'.', '.'},
    {'?', '?'},       {'|', '|'},       {0x060C, 0x060C}, {0x06D4, 0x06D4},
    {0x0964, 0x0964}, {0x2026, 0x2026}, {0x3001, 0x3002}, {0xFF0C, 0xFF0C},
};

/* The letters with case that the pattern of DeepSeek LLM lists. */
static const code_range deepseek_letters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x376},     {0x377, 0x377},
    {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},
    {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},
    {0x48A, 0x52F},     {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},
    {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},
    {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},
    {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},
    {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},
    {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},
    {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
    {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},
    {0x2184, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},
    {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},
    {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},
    {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
    {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2},
    {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

/* ---- pre-tokenizers ------------------------------------------------------------------------- */

static const pre_tokenizer gpt2 = {.rules = {WORDS(gpt2_words)}};
/* GPT-NeoX's tokenizer.json, which others took over: the same pattern, over composed texts. */
static const pre_tokenizer neox = {.rules = {WORDS(gpt2_words)}, .composes = true};
static const pre_tokenizer llama3 = {
    .rules = {WORDS(llama3_words)},
    .keeps_tokens = true,
    .adds_bos = true,
};
/* The same pattern in models that do not begin with BOS. */
static const pre_tokenizer cl100k = {.rules = {WORDS(llama3_words)}};
static const pre_tokenizer glm4 = {.rules = {WORDS(llama3_words)}, .keeps_tokens = true};
static const pre_tokenizer qwen2 = {.rules = {WORDS(qwen2_words)}, .composes = true};
/* The same pattern in models of which it is not known that they were trained on composed texts. */
static const pre_tokenizer qwen2_as_is = {.rules = {WORDS(qwen2_words)}};
static const pre_tokenizer qwen35 = {.rules = {WORDS(qwen35_words)}, .composes = true};
static const pre_tokenizer gpt4o = {.rules = {WORDS(gpt4o_words)}};
static const pre_tokenizer tekken = {.rules = {WORDS(tekken_words)}, .adds_bos = true};

/* Digits, then GPT-2's pattern. */
static const pre_tokenizer starcoder = {.rules = {SINGLE_DIGITS, WORDS(gpt2_words)}};
static const pre_tokenizer command_r = {
    .rules = {SINGLE_DIGITS, WORDS(gpt2_words)},
    .composes = true,
};

/*
 * Falcon: runs of punctuation; GPT-2's pattern; runs of numeric characters, but after bytes were
 * written as characters, so that bytes inside other characters count too; three digits at a time.
 */
static const pre_tokenizer falcon = {
    .rules = {
        {.kind = RULE_RUN,
         .set = {.classes = UNICODE_PUNCTUATION,
                 .ranges = ascii_symbols,
                 .n_ranges = COUNT(ascii_symbols)},
         .least = 1},
        WORDS(gpt2_words),
        {.kind = RULE_BYTE_DIGITS},
        {.kind = RULE_RUN, .set = SET(ascii_digits), .least = 3, .most = 3},
    }};

/* [\r\n] | \s?letters+ | \s?marks+ | \s+$ | [...]+ | digits, one after the other. */
static const pre_tokenizer deepseek_llm = {
    .rules = {
        {.kind = RULE_RUN, .set = SET(line_ends), .least = 1, .most = 1},
        {.kind = RULE_RUN,
         .set = SET(deepseek_letters),
         .least = 1,
         .before = CLASSES(UNICODE_SPACE)},
        {.kind = RULE_RUN,
         .set = SET(deepseek_marks),
         .least = 1,
         .before = CLASSES(UNICODE_SPACE)},
        {.kind = RULE_TRAILING_SPACES, .set = CLASSES(UNICODE_SPACE), .least = 1},
        {.kind = RULE_RUN, .set = SET(deepseek_han), .least = 1},
        SINGLE_DIGITS,
    }};

/* [\r\n] | \s?\p{L}+ | \s?\p{P}+ | [...]+ | digits, one after the other. */
static const pre_tokenizer deepseek_coder = {
    .rules = {
        {.kind = RULE_RUN, .set = SET(line_ends), .least = 1, .most = 1},
        {.kind = RULE_RUN,
         .set = CLASSES(UNICODE_LETTER),
         .least = 1,
         .before = CLASSES(UNICODE_SPACE)},
        {.kind = RULE_RUN,
         .set = CLASSES(UNICODE_PUNCTUATION),
         .least = 1,
         .before = CLASSES(UNICODE_SPACE)},
        {.kind = RULE_RUN, .set = SET(deepseek_han), .least = 1},
        SINGLE_DIGITS,
    }};

/* \p{N}{1,3} | [...]+ | a pattern, one after the other. */
static const pre_tokenizer deepseek3 = {
    .rules = {
        {.kind = RULE_RUN, .set = CLASSES(UNICODE_NUMBER), .least = 1, .most = 3},
        {.kind = RULE_RUN, .set = SET(deepseek3_han), .least = 1},
        WORDS(deepseek3_words),
    }};

/*  ?[^(\s|[.,!?...])]+ */
#define BLOOM_RULE                                                                                 \
    {                                                                                              \
        .kind = RULE_RUN,                                                                          \
        .set = {.classes = UNICODE_SPACE,                                                          \
                .ranges = bloom_marks,                                                             \
                .n_ranges = COUNT(bloom_marks),                                                    \
                .is_inverted = true},                                                              \
        .least = 1, .before = SET(space)                                                           \
    }
static const pre_tokenizer bloom = {.rules = {BLOOM_RULE}};
static const pre_tokenizer viking = {.rules = {BLOOM_RULE, SINGLE_DIGITS}};

const pre_tokenizer_entry pre_tokenizer_entries[] = {
    {"gpt-2", &gpt2},
    {"phi-2", &gpt2},
    {"mpt", &neox},
    {"olmo", &neox},
    {"jais", &gpt2},
    {"gigachat", &gpt2},
    {"exaone4", &gpt2},
    {"trillion", &gpt2},
    {"granite-docling", &gpt2},
    {"llama-bpe", &llama3},
    {"llama3", &llama3},
    {"llama-v3", &llama3},
    {"falcon3", &llama3},
    {"falcon-h1", &llama3},
    {"midm-2.0", &llama3},
    {"lfm2", &llama3},
    {"dbrx", &cl100k},
    {"smaug-bpe", &cl100k},
    {"chatglm-bpe", &glm4},
    {"glm4", &glm4},
    {"qwen2", &qwen2},
    {"stablelm2", &qwen2},
    {"megrez", &qwen2_as_is},
    {"hunyuan", &qwen2},
    {"kormo", &qwen2_as_is},
    {"solar-open", &qwen2_as_is},
    {"deepseek-r1-qwen", &qwen2},
    {"qwen35", &qwen35},
    {"gpt-4o", &gpt4o},
    {"llama4", &gpt4o},
    {"tekken", &tekken},
    {"starcoder", &starcoder},
    {"refact", &starcoder},
    {"command-r", &command_r},
    {"smollm", &starcoder},
    {"codeshell", &starcoder},
    {"exaone", &starcoder},
    {"minerva-7b", &starcoder},
    {"falcon", &falcon},
    {"deepseek-llm", &deepseek_llm},
    {"deepseek-coder", &deepseek_coder},
    {"deepseek-v3", &deepseek3},
    {"hunyuan-dense", &deepseek3},
    {"bloom", &bloom},
    {"poro-chat", &bloom},
    {"gpt3-finnish", &bloom},
    {"viking", &viking},
    {NULL, NULL},
};
