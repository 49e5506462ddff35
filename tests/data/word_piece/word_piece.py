#!/usr/bin/env python3
"""Write texts.txt beside this file: what WordPiece makes of some texts, by Python's Unicode data.

    python3 tests/data/word_piece/word_piece.py

Lines "token KIND TEXT" are two vocabularies, uncased and cased, in the order of their ids and with
"##" as BERT's own lists have it; lines "text KIND TEXT IDS" are texts and the ids expected, without
[CLS] and [SEP]. Texts are in hexadecimal UTF-8, ids have commas between them.
"""
import pathlib
import random
import unicodedata

CHINESE = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
           (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]
WORDS = {
    "uncased": "the fox un ##aff ##able ##ing house cafe resume uber naive 's don ##t strasse "
               "\u03c3\u03bf\u03c6\u03bf\u03c3 \u043c\u0438\u0440 ##\u043c\u0438\u0440 \u4f60 \u597d "
               "##\u597d \u1112\u1161\u11ab \u0915 ##\u0915 12 ##34 ##5 \u20ac \u0958",
    "cased": "The the Fox un ##aff ##able caf\u00e9 \u00dcber 's \u03a3\u03bf \u041c\u0438\u0440 \u4f60 \ud55c "
             "##\u0301 12 ##34",
}
TEXTS = [
    "", " ", "The fox", "unaffable", "UNAFFABLE!", "Caf\u00e9 cafe\u0301 CAF\u00c9", "don't", "\u00dcber-naive",
    "\u4f60\u597d\u4f60", "a\u4f60b", "12345 1234 12", "\u03a3\u039f\u03a6\u039f\u03a3", "\u041c\u0418\u0420\u043c\u0438\u0440", "\ud55c\uae00",
    "x" * 100, "x" * 101, "the\u0000fox", "the\u200bfox \ufffdfox", "the\u000bfox the\u0085fox the\u2028fox",
    "\u2581the the\u2581the", "##able", "[CLS] the [MASK]", "\u0130\u0131", "Stra\u00dfe STRASSE", "$5+3=8^2|`~",
    "the\u3000fox\u00a0fox", "\u0915\u093f\u0915\u094d\u0958", "\u2126\u212b", "e\u0301\u0301\u0323", "\u0301\u0301", "\U0001f98a fox",
    "\uf900\U0002f800", "\u01c5\u01c4", "\u1e9e\u1fbc", "\U00010400\U00010428", "\u20ac5", "the\tfox\r\nfox",
]


def vocabulary(kind):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789" + ("ABCFX" if kind == "cased" else "")
    tokens += list(letters) + ["##" + letter for letter in letters]
    tokens += list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + WORDS[kind].split()
    return tokens


def is_control(char):
    return char not in "\t\n\r" and unicodedata.category(char).startswith("C")


def is_punctuation(char):
    return char in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" or unicodedata.category(char).startswith("P")


def words(text, is_cased):
    text = "".join(char for char in text if char != "\ufffd" and not is_control(char))
    text = "".join(" " if char.isspace() else char for char in text)
    text = "".join(" " + char + " " if any(a <= ord(char) <= b for a, b in CHINESE) else char
                   for char in text)
    if not is_cased:
        text = "".join(char for char in unicodedata.normalize("NFD", text)
                       if unicodedata.category(char) != "Mn")
        text = "".join(char.lower() for char in text)
    text = "".join(" " + char + " " if is_punctuation(char) else char for char in text)
    return text.split(" ")


def pieces(word, ids):
    if len(word) > 100:
        return [ids["[UNK]"]]
    found, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in ids:
                found.append(ids[piece])
                start = end
                break
        else:
            return [ids["[UNK]"]]
    return found


def random_texts():
    choice = random.Random(1810)
    pool = list("thefoxTHEFOX  ,.'-#[]12345") + ["un", "##", "able", "\u0301", "\u00e9", "\u0308", "\u4f60", "\u597d", "\u3042",
           "\ud55c", "\u0915", "\u093f", "\u094d", "\u03a3", "\u03c2", "\u041c", "\u0438", "\u0451", "\u200d", "\u00ad", "\u2028", "\u2014", "\u20ac", "\u2122",
           "\uff21", "\uff0c", "\u00df", "\U0001d400", "\ue000", "\u0378", "\u00a0", "\t", "\n", "\x7f", "\x1f", "\u0e01\u0e34"]
    return ["".join(choice.choice(pool) for _ in range(1 + i % 25)) for i in range(400)]


def main():
    lines = []
    for kind in ("uncased", "cased"):
        tokens = vocabulary(kind)
        ids = {}
        for i, token in enumerate(tokens):
            ids.setdefault(token, i)
        lines += ["token %s %s" % (kind, token.encode().hex()) for token in tokens]
        for text in TEXTS + random_texts():
            found = [i for word in words(text, kind == "cased") for i in pieces(word, ids)]
            lines.append("text %s %s %s" % (kind, text.encode().hex() or "-",
                                            ",".join(map(str, found)) or "-"))
    (pathlib.Path(__file__).parent / "texts.txt").write_text("\n".join(lines) + "\n")


main()
