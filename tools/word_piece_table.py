#!/usr/bin/env python3
"""Write app/tokenizer/word_piece_table.c from the Unicode character database.

    tools/word_piece_table.py [FOLDER] >app/tokenizer/word_piece_table.c

FOLDER holds UnicodeData.txt (Debian: package unicode-data, /usr/share/unicode). The table is
committed, so nothing needs this program to build.
"""
import sys


def read_database(folder):
    """Code points of category Mn, and small letters by capital letter."""
    marks, small = [], {}
    for line in open(folder + "/UnicodeData.txt", encoding="ascii"):
        fields = line.split(";")
        code = int(fields[0], 16)
        if fields[2] == "Mn":
            assert not fields[1].endswith(", First>")
            marks.append(code)
        if fields[13]:
            small[code] = int(fields[13], 16)
    return marks, small


def mark_runs(marks):
    runs = []
    for code in marks:
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return ["{0x%X, 0x%X}" % tuple(run) for run in runs]


def case_runs(small):
    """[first, last, step, distance]: letters in a row, or every other one, at one distance."""
    runs = []
    for code in sorted(small):
        distance = small[code] - code
        if runs and runs[-1][3] == distance:
            first, last, step, _ = runs[-1]
            if code - last == step or (first == last and code - last in (1, 2)):
                runs[-1][1], runs[-1][2] = code, code - last
                continue
        runs.append([code, code, 1, distance])
    return ["{0x%X, 0x%X, %d, %d}" % tuple(run) for run in runs]


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
    marks, small = read_database(folder)
    print("""/*
 * word_piece_table.c: marks that take no space of their own, and small letters (Unicode 15.0).
 *
 * Made by tools/word_piece_table.py from the Unicode character database; do not edit. Marks are
 * runs of code points of category Mn. A run of capital letters is first, last, step and the
 * distance to the small letters (simple mappings).
 */
#include "tokenizer/word_piece.h"

/* clang-format off */
const word_piece_run word_piece_marks[] = {""")
    print_entries(mark_runs(marks))
    print("};\n\nconst word_piece_case word_piece_capitals[] = {")
    print_entries(case_runs(small))
    print("};\n/* clang-format on */\n")
    print("const uint32_t word_piece_n_marks = %d;" % len(mark_runs(marks)))
    print("const uint32_t word_piece_n_capitals = %d;" % len(case_runs(small)))


main()
