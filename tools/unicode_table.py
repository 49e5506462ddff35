#!/usr/bin/env python3
"""Write app/tokenizer/unicode_table.c from the Unicode character database.

    tools/unicode_table.py [FOLDER] >app/tokenizer/unicode_table.c

FOLDER holds UnicodeData.txt and PropList.txt (Debian: package unicode-data, /usr/share/unicode).
The table is committed, so nothing needs this program to build.
"""
import sys

OTHER, LU, LL, LT, LM, LO, MARK, NUMBER, PUNCTUATION, SYMBOL, SPACE, LU_LL, LL_LU = range(13)
BY_CATEGORY = {"Lu": LU, "Ll": LL, "Lt": LT, "Lm": LM, "Lo": LO}
BY_LETTER = {"M": MARK, "N": NUMBER, "P": PUNCTUATION, "S": SYMBOL}
N_CODES = 0x110000


def class_of(category):
    return BY_CATEGORY.get(category, BY_LETTER.get(category[0], OTHER))


def read_classes(folder):
    classes = [OTHER] * N_CODES
    first = None
    for line in open(folder + "/UnicodeData.txt", encoding="ascii"):
        fields = line.split(";")
        code, kind = int(fields[0], 16), class_of(fields[2])
        if fields[1].endswith(", First>"):
            first = code
        elif fields[1].endswith(", Last>"):
            classes[first:code + 1] = [kind] * (code + 1 - first)
        else:
            classes[code] = kind
    for line in open(folder + "/PropList.txt", encoding="utf-8"):
        fields = line.split("#")[0].split(";")
        if len(fields) == 2 and fields[1].strip() == "White_Space":
            begin, _, end = fields[0].strip().partition("..")
            for code in range(int(begin, 16), int(end or begin, 16) + 1):
                classes[code] = SPACE
    return classes


def runs(classes):
    """(first code, class) of each run; capital and small letters in turns count as one run."""
    code = 0
    while code < N_CODES:
        kind, end = classes[code], code + 1
        while end < N_CODES and classes[end] == kind:
            end += 1
        if kind in (LU, LL) and end == code + 1:
            other = LU + LL - kind
            while end < N_CODES and classes[end] == (kind if (end - code) % 2 == 0 else other):
                end += 1
            if end - code >= 4:
                end -= (end - code) % 2  # a last one alone may begin a longer run
                yield code, LU_LL if kind == LU else LL_LU
                code = end
                continue
            end = code + 1
        yield code, kind
        code = end


def print_entries(entries):
    line = "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 100:
            print(line)
            line = "   "
        line += " " + entry + ","
    print(line)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode"
    classes = read_classes(folder)
    entries = ["0x%xu" % (code << 4 | kind) for code, kind in runs(classes)]
    print("""/*
 * unicode_table.c: which kind of character each code point is (Unicode 15.0).
 *
 * Made by tools/unicode_table.py from the Unicode character database; do not edit. Each entry is
 * the first code point of a run, shifted left by 4, and the class of the run (unicode.h); classes
 * 11 and 12 are runs in which Lu and Ll take turns, beginning with Lu and with Ll. ASCII has its
 * classes, as bits, in a table of its own.
 */
#include "tokenizer/unicode.h"

const uint32_t unicode_runs[] = {""")
    print_entries(entries)
    print("};\n\nconst uint32_t unicode_n_runs = %d;\n" % len(entries))
    print("const uint16_t unicode_ascii[128] = {")
    print_entries(["0x%x" % (1 << kind) for kind in classes[:128]])
    print("};")


main()
