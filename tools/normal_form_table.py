#!/usr/bin/env python3
"""Write app/tokenizer/normal_form_table.c from the Unicode character database.

    tools/normal_form_table.py [FOLDER] >app/tokenizer/normal_form_table.c

FOLDER holds UnicodeData.txt and DerivedNormalizationProps.txt (Debian: package unicode-data,
/usr/share/unicode). The table is committed, so nothing needs this program to build.
"""
import sys

N_CODES = 0x110000


def read_database(folder):
    """Combining classes by code point, and canonical decompositions (one or two code points)."""
    classes, decompositions = [0] * N_CODES, {}
    for line in open(folder + "/UnicodeData.txt", encoding="ascii"):
        fields = line.split(";")
        code = int(fields[0], 16)
        classes[code] = int(fields[3])
        if fields[5] and not fields[5].startswith("<"):
            decompositions[code] = [int(part, 16) for part in fields[5].split()]
    return classes, decompositions


def read_exclusions(folder):
    excluded = set()
    for line in open(folder + "/DerivedNormalizationProps.txt", encoding="utf-8"):
        fields = line.split("#")[0].split(";")
        if len(fields) == 2 and fields[1].strip() == "Full_Composition_Exclusion":
            begin, _, end = fields[0].strip().partition("..")
            excluded.update(range(int(begin, 16), int(end or begin, 16) + 1))
    return excluded


def print_entries(entries):
    line = "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 100:
            print(line)
            line = "   "
        line += " " + entry + ","
    print(line)


def packed(code, parts):
    first, second = (parts + [0])[:2]
    return "0x%x" % (code << 42 | first << 21 | second)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode"
    classes, decompositions = read_database(folder)
    excluded = read_exclusions(folder)
    codes = sorted(decompositions)
    composing = sorted((decompositions[code], index) for index, code in enumerate(codes)
                       if code not in excluded)
    assert all(len(pair) == 2 for pair, _ in composing)
    runs = ["0x%x" % (code << 8 | classes[code]) for code in range(N_CODES)
            if code == 0 or classes[code] != classes[code - 1]]
    print("""/*
 * normal_form_table.c: canonical decompositions and combining classes (Unicode 15.0).
 *
 * Made by tools/normal_form_table.py from the Unicode character database; do not edit. A
 * decomposition is a code point, shifted left by 42, its first part, shifted left by 21, and its
 * second part, or 0; the first part may have a decomposition of its own. Hangul syllables, which
 * follow a rule, are left out. Compositions are places in the list of decompositions, sorted by
 * first and second part. An entry of the classes is the first code point of a run, shifted left by
 * 8, and the class of the run.
 */
#include "tokenizer/normal_form.h"

const uint64_t normal_form_decompositions[] = {""")
    print_entries([packed(code, decompositions[code]) for code in codes])
    print("};\n\nconst uint32_t normal_form_n_decompositions = %d;\n" % len(codes))
    print("const uint16_t normal_form_compositions[] = {")
    print_entries([str(index) for _, index in composing])
    print("};\n\nconst uint32_t normal_form_n_compositions = %d;\n" % len(composing))
    print("const uint32_t normal_form_classes[] = {")
    print_entries(runs)
    print("};\n\nconst uint32_t normal_form_n_classes = %d;" % len(runs))


main()
