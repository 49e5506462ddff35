#!/usr/bin/env python3
"""A SentencePiece-style BPE tokenizer: learns its vocabulary, encodes, decodes.

The vocabulary, in order: <unk>, <s>, </s>, the 256 byte tokens <0x00>..<0xFF>, the single
characters of the text, and the merged pieces. A piece's score is minus its rank; single
characters score below every merge, so that they are never the result of one.

Encoding puts one space before the text, writes spaces as U+2581, splits into characters and then
merges, again and again, the neighbouring pair whose joined piece scores highest, the leftmost of
equals. A character outside the vocabulary becomes its UTF-8 bytes. Decoding drops that one space.

Pieces never reach over a word: only their first character may be U+2581, and letters merge only
with letters and marks only with marks. The line break is not a piece: it is the byte token <0x0A>.

    tokenizer.py --self-test         encode and decode random strings, compare with a plain encoder
"""

import argparse
import collections
import heapq
import random
import re

SPACE = "\u2581"
UNKNOWN, BOS, EOS = 0, 1, 2
FIRST_BYTE = 3
FIRST_PIECE = FIRST_BYTE + 256
TYPE_NORMAL, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_BYTE = 1, 2, 3, 6

# A word with its space, or a run of marks with theirs; line breaks stand alone.
WORD = re.compile(r"\u2581?[^\W\d_]+|\u2581?[0-9]|\u2581?(?:[^\w\u2581\n]|_)+|\u2581|.|\n")


class Tokenizer:
    """tokens, scores and types are parallel lists; ids are indices into them."""

    def __init__(self, pieces):
        self.tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + list(pieces)
        self.scores = [0.0] * FIRST_PIECE + [-float(rank) for rank in range(len(pieces))]
        self.types = ([TYPE_UNKNOWN, TYPE_CONTROL, TYPE_CONTROL] + [TYPE_BYTE] * 256
                      + [TYPE_NORMAL] * len(pieces))
        self.ids = {piece: FIRST_PIECE + rank for rank, piece in enumerate(pieces)}
        self.cache = {}

    def __len__(self):
        return len(self.tokens)

    def encode(self, text, bos=True, eos=False):
        """Ids of the text. Splitting at words first changes nothing, as no piece spans two."""
        ids = [BOS] if bos else []
        if text:
            for word in WORD.findall((" " + text).replace(" ", SPACE)):
                ids += self.encode_word(word)
        return ids + [EOS] if eos else ids

    def encode_word(self, word):
        """Ids of one match of WORD."""
        if word not in self.cache:
            self.cache[word] = self.merge(word)
        return self.cache[word]

    def merge(self, text):
        """The merging itself, by a heap of candidate pairs over a linked list of symbols."""
        symbols = list(text)
        after = list(range(1, len(symbols) + 1))
        before = list(range(-1, len(symbols) - 1))
        heap = []

        def offer(left):
            right = after[left]
            if left >= 0 and right < len(symbols):
                joined = symbols[left] + symbols[right]
                if joined in self.ids:
                    heapq.heappush(heap, (-self.scores[self.ids[joined]], left, joined))

        for i in range(len(symbols)):
            offer(i)
        while heap:
            _, left, joined = heapq.heappop(heap)
            right = after[left] if symbols[left] else len(symbols)
            if right >= len(symbols) or symbols[left] + symbols[right] != joined:
                continue  # one of the two has been merged meanwhile
            symbols[left], symbols[right] = joined, ""
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
            offer(left)
            if before[left] >= 0:
                offer(before[left])
        return self.look_up(filter(None, symbols))

    def look_up(self, symbols):
        ids = []
        for symbol in symbols:
            if symbol in self.ids:
                ids.append(self.ids[symbol])
            else:
                ids += [FIRST_BYTE + b for b in symbol.encode("utf-8")]
        return ids

    def encode_plainly(self, text):
        """The rule word for word, slow: for comparison with `encode`."""
        symbols = list((" " + text).replace(" ", SPACE)) if text else []
        while True:
            best = None
            for i in range(len(symbols) - 1):
                joined = symbols[i] + symbols[i + 1]
                if joined in self.ids:
                    score = self.scores[self.ids[joined]]
                    if best is None or score > best[0]:
                        best = (score, i, joined)
            if best is None:
                return [BOS] + self.look_up(symbols)
            symbols[best[1]:best[1] + 2] = [best[2]]

    def decode(self, ids):
        """The text of the ids; control tokens are silent, one leading space is dropped."""
        data = b""
        for i in ids:
            if FIRST_BYTE <= i < FIRST_PIECE:
                data += bytes([i - FIRST_BYTE])
            elif i >= FIRST_PIECE:
                data += self.tokens[i].encode("utf-8")
        text = data.decode("utf-8", errors="replace").replace(SPACE, " ")
        return text[1:] if text.startswith(" ") else text


def learn(texts, size):
    """A tokenizer of `size` tokens: byte-pair merges by count, ties by the pair itself."""
    words = collections.Counter()
    for text in texts:
        words.update(w for w in WORD.findall((" " + text).replace(" ", SPACE)) if w != "\n")
    letters = collections.Counter()
    for word, count in words.items():
        for c in word:
            letters[c] += count
    # Every printable ASCII character, so that any plain prompt is read without byte tokens.
    letters.update({chr(c): 0 for c in range(33, 127)})
    characters = sorted(letters, key=lambda c: (-letters[c], c))
    split = {word: list(word) for word in words}
    merges = []
    while FIRST_PIECE + len(merges) + len(characters) < size:
        pairs = collections.Counter()
        for word, symbols in split.items():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += words[word]
        for pair, count in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
            if pair[0] + pair[1] not in merges:
                break
        merges.append(pair[0] + pair[1])
        for symbols in split.values():
            i = 0
            while i < len(symbols) - 1:
                if symbols[i] + symbols[i + 1] == merges[-1]:
                    symbols[i:i + 2] = [merges[-1]]
                i += 1
    return Tokenizer(merges + characters)


def self_test(tokenizer=None, rounds=2000, seed=1):
    """Round trips, and agreement with the plain encoder. Raises AssertionError on a fault."""
    if tokenizer is None:
        import stories
        tokenizer = learn([stories.story(i) for i in range(200)], 600)
    source = random.Random(seed)
    alphabet = list(" \n\n  abcdefghijklmnopqrstuvwxyzABCXYZ.,!?'\"0189-_\t") + list(
        "\u00e9\u00df\u00f8\u0416\u4e2d\u3042\U0001f600\u0301")
    vocabulary = [t.replace(SPACE, " ") for t in tokenizer.tokens[FIRST_PIECE:]]
    for _ in range(rounds):
        parts = [source.choice(alphabet if source.random() < 0.5 else vocabulary)
                 for _ in range(source.randrange(40))]
        text = "".join(parts)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text, (text, ids)
        assert ids == tokenizer.encode_plainly(text), (text, ids, tokenizer.encode_plainly(text))
    assert tokenizer.encode("") == [BOS]
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--self-test", action="store_true")
    if parser.parse_args().self_test:
        print(f"{self_test()} texts: encode and decode agree")
    else:
        parser.print_help()


if __name__ == "__main__":
    main()
