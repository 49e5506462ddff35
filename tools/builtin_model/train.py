#!/usr/bin/python3
"""Trains the built-in model on generated stories.

Same commands, same torch build, same number of threads and same kind of processor: same weights.
(Elsewhere sums are rounded in another order; the model is then as good, but not bit-equal.)
What it reads depends on --seed and --split alone: the stories from number
seed * 1,000,000,000 + 1,000,000 on. Numbers below 1,000,000 are held out for evaluate.py.

Each training sequence is <s>, one story, </s>, cut at the context; a batch holds stories of about
the same length, so that little of it is padding. Matrix products run in bfloat16, everything else
in float32. Three things teach the model to remember, which it else would not in so short a time:
the starting weights (Model.initialise), sequences of random tokens that repeat themselves
(--repeat), and a greater weight of rare words that come again in their story (--recall).

Needs Debian's python3-torch, nothing more.

    train.py --out DIR [--steps N] [--until N] ...     train, or go on from DIR's checkpoint
"""

import argparse
import collections
import ctypes
import math
import os
import random
import time

import torch
import torch.nn.functional as F

import stories
from model import Model, Shape
from tokenizer import BOS, EOS, FIRST_PIECE, SPACE, WORD, Tokenizer, learn

BATCH_TOKENS = 4096
WARM_UP = 100
POOL = 512                # stories sorted by length together
VOCABULARY_STORIES = 4000
HELD_OUT = 1_000_000      # story numbers below this are for measuring
PADDING = -100
RARE = 0.08               # a word in fewer of all stories than this is one to remember
REPEATED_ROWS, REPEATED_LENGTH = 24, 96   # a batch of sequences that repeat themselves


def keep_memory():
    """Tell glibc to reuse freed memory: otherwise each large tensor is mapped and zeroed anew,
    which takes nearly half of the time. Changes no result; without glibc nothing happens."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-4, 0)              # M_MMAP_MAX: no mappings of their own
        libc.mallopt(-1, 2 ** 31 - 1)    # M_TRIM_THRESHOLD: give nothing back
    except (OSError, AttributeError):
        pass


def make_tokenizer(size):
    """The vocabulary, learnt from held-in stories of a fixed range: the same for every seed."""
    first = 900_000_000
    return learn([stories.story(first + i, joined=False) for i in range(VOCABULARY_STORIES)], size)


def common_words():
    """The words that stand in at least RARE of the stories: they need no memory."""
    count = collections.Counter()
    stories_read = 1500
    for i in range(stories_read):
        count.update({w.strip(SPACE) for w in split(stories.story(910_000_000 + i))})
    return {w for w, n in count.items() if n >= RARE * stories_read}


def split(text):
    return WORD.findall((" " + text).replace(" ", SPACE))


def encode_marked(tokenizer, text, common):
    """(ids, marks): a mark is 1 where a rare word comes again, so that it had to be remembered."""
    ids, marks, seen = [BOS], [0], set()
    for word in split(text):
        part = tokenizer.encode_word(word)
        plain = word.strip(SPACE)
        ids += part
        marks += [int(plain in seen and plain not in common)] * len(part)
        seen.add(plain)
    return ids + [EOS], marks + [0]


def repeated(tokenizer, source):
    """Sequences of random tokens that begin again and again: they teach looking back."""
    rows, marks = [], []
    for _ in range(REPEATED_ROWS):
        period = source.randint(4, REPEATED_LENGTH // 2)
        part = [source.randrange(FIRST_PIECE, len(tokenizer)) for _ in range(period)]
        ids = [BOS] + (part * REPEATED_LENGTH)[:REPEATED_LENGTH]
        rows.append(ids)
        marks.append([0] + [int(k >= period) for k in range(REPEATED_LENGTH)])
    return pad(list(zip(rows, marks)))


def batches(tokenizer, context, seed, joined, skip=0):
    """Endless (inputs, targets, marks). `skip` batches are passed over: for resuming."""
    common = common_words()
    number = seed * 1_000_000_000 + HELD_OUT
    order = random.Random(seed)
    while True:
        pool = []
        for _ in range(POOL):
            ids, marks = encode_marked(tokenizer, stories.story(number, joined), common)
            pool.append((ids[:context + 1], marks[:context + 1]))
            number += 1
        pool.sort(key=lambda entry: len(entry[0]))
        cut, batch = [], []
        for entry in pool:
            if (len(batch) + 1) * (len(entry[0]) - 1) > BATCH_TOKENS:
                cut.append(batch)
                batch = []
            batch.append(entry)
        cut.append(batch)
        order.shuffle(cut)
        for batch in cut:
            if skip > 0:
                skip -= 1
            else:
                yield pad(batch)


def pad(batch):
    length = max(len(ids) for ids, _ in batch) - 1
    inputs = torch.zeros(len(batch), length, dtype=torch.long)
    targets = torch.full((len(batch), length), PADDING, dtype=torch.long)
    marked = torch.zeros(len(batch), length)
    for row, (ids, marks) in enumerate(batch):
        inputs[row, :len(ids) - 1] = torch.tensor(ids[:-1])
        targets[row, :len(ids) - 1] = torch.tensor(ids[1:])
        marked[row, :len(ids) - 1] = torch.tensor(marks[1:], dtype=torch.float)
    return inputs, targets, marked


def learning_rate(step, steps, peak):
    """Up for WARM_UP steps, level, and down to nearly nothing over the last 30%. As the level part
    is the same for any `steps`, a run may be resumed with another number of them until then."""
    up = (step + 1) / WARM_UP
    down = (steps - step) / (0.3 * steps)
    return peak * min(1.0, up, 0.02 + 0.98 * down)


def loss_of(model, batch, weight, work):
    """(loss to minimise, plain loss, loss where memory is needed). Marked tokens weigh `weight`."""
    inputs, targets, marked = batch
    logits = model(inputs, work).float()
    each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING,
                           reduction="none")
    marked, real = marked.flatten(), (targets.flatten() != PADDING).float()
    weights = real + (weight - 1) * marked
    plain, recall = each.detach().sum() / real.sum(), (each.detach() * marked).sum() / marked.sum()
    return (each * weights).sum() / weights.sum(), plain, recall


def save(path, model, optimiser, step, options, tokenizer):
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step,
             "steps": options.steps, "seed": options.seed, "shape": vars(model.shape),
             "pieces": tokenizer.tokens[FIRST_PIECE:]}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def load(path):
    """(model, tokenizer, the whole state) of a checkpoint."""
    state = torch.load(path)
    model = Model(Shape(**state["shape"]))
    model.load_state_dict(state["model"])
    return model, Tokenizer(state["pieces"]), state


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", required=True, help="folder of the checkpoint")
    parser.add_argument("--steps", type=int, default=2200)
    parser.add_argument("--until", type=int, help="stop after this step (resume later)")
    parser.add_argument("--split", action="store_true", help="every paragraph on its own line")
    parser.add_argument("--recall", type=float, default=6, help="weight of words to remember")
    parser.add_argument("--repeat", type=int, default=300, help="steps with repeating sequences")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop early (resume later)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, default=3.5e-3)
    options = parser.parse_args()
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, "checkpoint.pt")

    if os.path.exists(path):
        model, tokenizer, state = load(path)
        first = state["step"]
    else:
        state, first = None, 0
        shape = Shape()
        tokenizer = make_tokenizer(shape.vocab)
        model = Model(shape)
        model.initialise(torch.Generator().manual_seed(options.seed))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimiser = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=options.rate, betas=(0.9, 0.98), eps=1e-9)
    if state:
        optimiser.load_state_dict(state["optimiser"])
    count = sum(p.numel() for p in model.parameters())
    print(f"{count} parameters, {len(tokenizer)} tokens", flush=True)

    data = batches(tokenizer, model.shape.context, options.seed,
                   not options.split, skip=first)
    start, seen, sums = time.time(), 0, torch.zeros(4)
    for step in range(first, options.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, options.steps, options.rate)
        batch = next(data)
        loss, plain, recall = loss_of(model, batch, options.recall, torch.bfloat16)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if step < options.repeat:
            extra = repeated(tokenizer, random.Random(f"{options.seed} {step}"))
            loss, _, copied = loss_of(model, extra, 1, torch.bfloat16)
            (0.5 * loss).backward()
            sums += torch.tensor([0, 0, copied, 0])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        seen += int((batch[1] != PADDING).sum())
        sums += torch.tensor([plain, recall, 0, 1])
        if (step + 1) % 20 == 0:
            passed = time.time() - start
            plain, recall, copied = (sums / sums[3])[:3].tolist()
            print(f"step {step + 1}/{options.steps} loss {plain:.4f} recall {recall:.3f} "
                  f"repeated {copied:.3f} {seen / passed:.0f} tokens/s {passed / 60:.1f} min",
                  flush=True)
            sums = torch.zeros(4)
        late = time.time() - start > options.minutes * 60
        finished = late or step + 1 in (options.steps, options.until)
        if (step + 1) % 50 == 0 or finished:
            save(path, model, optimiser, step + 1, options, tokenizer)
        if finished:
            break


if __name__ == "__main__":
    main()
