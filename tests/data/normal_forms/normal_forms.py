#!/usr/bin/env python3
"""Write forms.txt beside this file: normal forms C and D as Python's unicodedata has them.

    python3 tests/data/normal_forms/normal_forms.py

First a line for every 4096 code points: "block", the first of them and a checksum (FNV-1a, 32 bits)
of the forms C and D of each, in UTF-8, one after the other. Then texts, chosen at random among
characters that combine: "text", the text, its form C and its form D, in hexadecimal UTF-8.
"""
import pathlib
import random
import unicodedata

N_TEXTS = 500


def form(name, text):
    return unicodedata.normalize(name, text).encode()


def checksum(first):
    value = 0x811C9DC5
    for code in range(first, first + 0x1000):
        if 0xD800 <= code < 0xE000:
            continue
        for byte in form("NFC", chr(code)) + form("NFD", chr(code)):
            value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def interesting():
    """Marks, and all characters that others are made of, in the version that Python has."""
    marks, parts = set(), set()
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        text = chr(code)
        if unicodedata.combining(text):
            marks.add(text)
        decomposed = unicodedata.normalize("NFD", text)
        if decomposed != text and not 0xAC00 <= code < 0xD7A4:
            parts.update(decomposed)
            parts.add(text)
    return sorted(marks), sorted(parts)


def main():
    choice = random.Random(15)
    marks, parts = interesting()
    hangul = [chr(code) for code in list(range(0x1100, 0x1113)) + list(range(0x1161, 0x1176)) +
              list(range(0x11A7, 0x11C3)) + [0xAC00, 0xAC01, 0xAC1B, 0xAC1C, 0xD7A3]]
    lines = ["block %x %08x" % (first, checksum(first)) for first in range(0, 0x110000, 0x1000)]
    for i in range(N_TEXTS):
        pools = [parts, marks, parts if i % 3 else hangul, ["a", " ", "\u4e00", "\u0345"]]
        text = "".join(choice.choice(choice.choice(pools)) for _ in range(1 + i % 14))
        lines.append("text %s %s %s" % (text.encode().hex(), form("NFC", text).hex(),
                                        form("NFD", text).hex()))
    here = pathlib.Path(__file__).parent
    (here / "forms.txt").write_text("\n".join(lines) + "\n")


main()
