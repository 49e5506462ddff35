#!/usr/bin/python3
"""Measures the built-in model as it is in the file: read back, dequantised, in float32.

Perplexity: over whole held-out stories, one figure a token (line breaks and the end included).
Recall: stories bring back, late, what they introduced early (see stories.py). A probe counts as
recalled if the greedy continuation of everything before it spells exactly those words. Two counts:
probes whose words were introduced at least --distance tokens earlier, and of these the ones whose
words stand nowhere in the last --distance tokens. Beside the latter stands what can be guessed:
with only the last 64 tokens in view, and by always giving the commonest answer.

    evaluate.py GGUF [--stories N]              perplexity and recall
    evaluate.py GGUF --sample PROMPT [...]      print continuations (--temperature 0 is greedy)
    evaluate.py GGUF --golden JSON              write token ids, logits and greedy continuations
"""

import argparse
import collections
import json
import math

import torch
import torch.nn.functional as F

import gguf
import stories
from tokenizer import BOS, EOS
from train import keep_memory

NEAR = 64


def generate(model, tokenizer, prompt, count, temperature, generator):
    """Ids of prompt and continuation; ends at </s>, at `count` new ones or at the context."""
    ids = tokenizer.encode(prompt)
    with torch.no_grad():
        for _ in range(min(count, model.shape.context - len(ids))):
            logits = model(torch.tensor([ids]))[0, -1]
            if temperature == 0:
                best = int(logits.argmax())
            else:
                chances = F.softmax(logits / temperature, 0)
                best = int(torch.multinomial(chances, 1, generator=generator))
            if best == EOS:
                break
            ids.append(best)
    return ids


def probes_of(number, tokenizer, context):
    """(ids, probes) of a held-out story.

    A probe is (first id, end, tokens since the first mention, tokens since the last one, words)."""
    text, probes = stories.story_with_probes(number)
    ids = tokenizer.encode(text, eos=True)[:context]
    offsets, at = [], -1  # where in the text each id starts, without its leading space
    for i in ids:
        offsets.append(at)
        token = tokenizer.tokens[i]
        at += 0 if i in (BOS, EOS) else 1 if token.startswith("<0x") else len(token)
    found = []
    for start, words in probes:
        covered = [k for k in range(1, len(ids)) if start - 1 <= offsets[k] < start + len(words)]
        mentions = [text.find(words), text.rfind(words, 0, start)]
        if not covered or ids[-1] in covered or mentions[0] < 0 or mentions[0] >= start:
            continue
        first, last = (sum(m <= o + 1 for o in offsets[:covered[0]]) for m in mentions)
        found.append((covered[0], covered[-1] + 1, first, last, words))
    return ids, found


def measure(model, tokenizer, count, distance):
    loss, tokens = 0.0, 0
    hits = collections.Counter()
    answers = collections.Counter()
    with torch.no_grad():
        for number in range(count):
            ids, probes = probes_of(number, tokenizer, model.shape.context)
            logits = model(torch.tensor([ids[:-1]]))[0]
            targets = torch.tensor(ids[1:])
            loss += F.cross_entropy(logits, targets, reduction="sum").item()
            tokens += len(ids) - 1
            greedy = logits.argmax(-1)
            for begin, end, first, last, words in probes:
                hit = all(greedy[k - 1] == ids[k] for k in range(begin, end))
                if first >= distance:
                    hits["introduced"] += 1
                    hits["introduced, recalled"] += hit
                if last < distance:
                    continue
                near = [BOS] + ids[begin - NEAR:end]
                blind = model(torch.tensor([near]))[0].argmax(-1)
                guess = all(blind[k - begin + NEAR] == ids[k] for k in range(begin, end))
                hits["unmentioned"] += 1
                hits["unmentioned, recalled"] += hit
                hits["unmentioned, recalled without the beginning"] += guess
                answers[words] += 1
    print(f"{count} held-out stories, {tokens} tokens")
    print(f"loss {loss / tokens:.4f} nats, perplexity {math.exp(loss / tokens):.3f} per token")
    print(f"introduced at least {distance} tokens earlier: {hits['introduced, recalled']} of "
          f"{hits['introduced']} recalled")
    print(f"not mentioned in the last {distance} tokens: {hits['unmentioned, recalled']} of "
          f"{hits['unmentioned']} recalled")
    print(f"  the same with only the last {NEAR} tokens in view: "
          f"{hits['unmentioned, recalled without the beginning']}")
    if answers:
        words, times = answers.most_common(1)[0]
        print(f"  the same by always answering \"{words}\": {times}")


GOLDEN_PROMPTS = ["Once upon a time", "One day, a little fox named Moss", "The key",
                  "Lily and Ben were", "In a small village, there was a",
                  "She said, \"Where is my red hat?\"",
                  "Old Tom gave Mia a silver whistle.\nThen", "Long  ago"]
GOLDEN_TEXTS = ["", " ", "a", "Hello, world!", "  two  spaces ", "line\nbreak\n\n", "tab\there",
                "caf\u00e9 \u00fc \u4e2d", "\U0001f600", "don't stop", "1234567890", "ZYGOTE",
                "a_b", "\u2581x", "x\u2581 y"]


def golden(model, tokenizer, path):
    """Facts for checking another implementation, in float64 from the dequantised weights."""
    model = model.double()
    cases = []
    for prompt in GOLDEN_PROMPTS:
        ids = tokenizer.encode(prompt)
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0, -1]
        top = torch.topk(logits, 10)
        top = [[int(i), round(v, 6)] for i, v in zip(top.indices, top.values.tolist())]
        continued = generate(model, tokenizer, prompt, 64, 0, None)
        with torch.no_grad():
            best = torch.topk(model(torch.tensor([continued]))[0, len(ids) - 1:], 2).values
            margins = (best[:, 0] - best[:, 1]).tolist()
        cases.append({"prompt": prompt, "ids": ids,
                      "top_logits": top,
                      "logits_sum": round(float(logits.sum()), 5),
                      "greedy_ids": continued[len(ids):],
                      "smallest_margin": round(min(margins), 5),
                      "greedy_text": tokenizer.decode(continued)})
    texts = [{"text": t, "ids": tokenizer.encode(t)} for t in GOLDEN_TEXTS]
    with open(path, "w", encoding="ascii") as file:
        json.dump({"about": "greedy continuations (up to 64 ids, without </s>) and first logits of "
                            "storyteller.gguf, from its dequantised weights in float64; ids "
                            "include <s>",
                   "cases": cases, "texts": texts}, file, indent=1)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description="Measure the built-in model.")
    parser.add_argument("gguf")
    parser.add_argument("--stories", type=int, default=500)
    parser.add_argument("--distance", type=int, default=250)
    parser.add_argument("--sample", nargs="+", metavar="PROMPT")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden", metavar="JSON")
    options = parser.parse_args()
    keep_memory()
    model, tokenizer, _ = gguf.read(options.gguf)
    if options.golden:
        golden(model, tokenizer, options.golden)
    elif options.sample:
        generator = torch.Generator().manual_seed(options.seed)
        for prompt in options.sample:
            ids = generate(model, tokenizer, prompt, options.count, options.temperature, generator)
            print(tokenizer.decode(ids))
            print("-" * 20)
    else:
        measure(model, tokenizer, options.stories, options.distance)


if __name__ == "__main__":
    main()
