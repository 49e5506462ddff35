/*
 * template_case.c: small and capital letters.
 *
 * Letters of Latin (with its supplement and extension A), Greek, Cyrillic and Armenian are changed; others
 * stay. Letters that change into two (as the sharp s) stay too.
 */
#include <string.h>

#include "safe_text.h"
#include "template/template_run.h"

/* Ranges in which a capital letter is `distance` before its small one; 1: they take turns. */
typedef struct case_range {
    uint16_t first; /* capital */
    uint16_t last;
    uint16_t distance;
} case_range;

static const case_range ranges[] = {
    {'A', 'Z', 32},       {0x00c0, 0x00d6, 32}, {0x00d8, 0x00de, 32}, {0x0100, 0x012e, 1},
    {0x0132, 0x0136, 1},  {0x0139, 0x0147, 1},  {0x014a, 0x0176, 1},  {0x0179, 0x017d, 1},
    {0x0391, 0x03a1, 32}, {0x03a3, 0x03ab, 32}, {0x0386, 0x0386, 38}, {0x0388, 0x038a, 37},
    {0x038c, 0x038c, 64}, {0x038e, 0x038f, 63}, {0x0410, 0x042f, 32}, {0x0400, 0x040f, 80},
    {0x0460, 0x0480, 1},  {0x048a, 0x04be, 1},  {0x04d0, 0x052e, 1},  {0x0531, 0x0556, 48},
    {0x1e00, 0x1e94, 1},  {0x1ea0, 0x1efe, 1},
};

static bool is_capital_in(const case_range *range, uint32_t code)
{
    return code >= range->first && code <= range->last &&
           (range->distance > 1 || (code - range->first) % 2 == 0);
}

static uint32_t to_lower(uint32_t code)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (is_capital_in(&ranges[i], code)) return code + ranges[i].distance;
    return code == 0x178 ? 0xff : code;
}

static uint32_t to_upper(uint32_t code)
{
    if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i].distance && is_capital_in(&ranges[i], code - ranges[i].distance))
            return code - ranges[i].distance;
    return code == 0xff ? 0x178 : code == 0x3c2 ? 0x3a3 : code == 0xb5 ? 0x39c : code;
}

bool template_change_case(template_run *run, template_text text, template_case wanted,
                          template_text *out)
{
    template_builder builder = {.run = run};
    bool begins = true; /* a word, or for CASE_CAPITALIZED the text */
    TEMPLATE_TRY(template_spend(run, text.length / 4));
    for (size_t at = 0, used; at < text.length; at += used) {
        const uint32_t code = safe_text_decode(text.data + at, text.length - at, &used);
        const bool rises = wanted == CASE_UPPER || (wanted != CASE_LOWER && begins);
        const uint32_t changed = rises ? to_upper(code) : to_lower(code);
        if (changed == code)
            TEMPLATE_TRY(template_builder_add(&builder, text.data + at, used));
        else
            TEMPLATE_TRY(template_builder_add_code(&builder, changed));
        const bool is_letter = to_upper(code) != to_lower(code) || code >= 0x80;
        if (wanted == CASE_WORDS)
            begins = template_space_at(text, at) > 0 ||
                     (code < 0x80 && code != 0 && strchr("-({[<", (int)code) != NULL);
        else
            begins = wanted == CASE_TITLE && !is_letter;
    }
    *out = template_builder_text(&builder);
    return true;
}
