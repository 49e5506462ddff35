#!/usr/bin/env python3
"""bench_table.py: all figures of docs/performance.md in one go, as Markdown.

    tools/bench_table.py [--cellar build/cellar] [--threads N] [--runs N] [--parts machine,memory,session,model,parallel]
                         [--quick] [--best] [MODEL.gguf ...]

Runs `cellar bench` machine, memory and session, then model and parallel for each model, and prints tables on
standard output, with the machine they were found on above them. A model's name is that of its file. --quick asks for
few runs and short texts: to see the shape, not to publish. --best
prints the best run where there is one figure in a cell, not the median: for a machine that is not quiet. A command that fails ends the script with its message.
"""
import argparse
import json
import os
import subprocess
import sys

DEPTHS = "0,4096"
TIME = "median"  # or "least", with --best


def bench(cellar, *arguments):
    """The JSON document of one `cellar bench`."""
    print("cellar bench", *arguments, file=sys.stderr, flush=True)
    done = subprocess.run([cellar, "bench", *arguments, "--json"], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit("bench_table.py: cellar bench %s: exit code %d" % (arguments[0], done.returncode))
    return json.loads(done.stdout)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def head(*cells):
    row(*cells)
    row(*["---"] * len(cells))


def time_text(ns):
    for unit, size in (("ns", 1), ("us", 1e3), ("ms", 1e6), ("s", 1e9)):
        if ns < 1000 * size or unit == "s":
            return "%.3g %s" % (ns / size, unit)


def bytes_text(count):
    return "%d B" % count if count < 10000 else "%d kB" % (count / 1000 + 0.5)


def time_of(figure):
    return time_text(figure[TIME])


def spread_text(figure, scale=1.0):
    """median (least..most)"""
    return "%.1f (%.1f..%.1f)" % tuple(figure[key] * scale for key in ("median", "least", "most"))


def print_machine(machine, threads, runs):
    print("%s, %d processors, %.1f GiB, %s; cellar %s, %s, kernels %s. %d threads; %s of %d runs (least..most).\n" % (
        machine["processor"], machine["processors"], machine["memory_bytes"] / 2**30, machine["system"].split()[0],
        machine["cellar"], machine["compiler"], machine["kernels"], threads,
        "best" if TIME == "least" else "median", runs))


def print_limits(document):
    print("### The machine\n")
    head("limit", "1 thread", "%d threads" % document["threads"])
    rows = {}
    for limit in document["limits"]:
        unit = "GB/s" if limit["unit"] == "bytes/s" else "GFLOP/s"
        rows.setdefault((limit["what"], unit), []).append(spread_text(limit, 1e-9))
    for (what, unit), cells in rows.items():
        row("%s, %s" % (what, unit), *cells)
    print()


def print_memory(document):
    columns = []
    for figure in document["figures"]:
        if "sequences" in figure:
            column = (figure["in_turns"], figure["sequences"])
            if column not in columns:
                columns.append(column)
    columns.sort()
    print("### The memory's operations, %d cells\n" % document["cells"])
    head("operation", *["%d, %s" % (n, "in turns" if in_turns else "apart") for in_turns, n in columns])
    names = []
    for figure in document["figures"]:
        if "sequences" in figure and (figure["section"], figure["what"]) not in names:
            names.append((figure["section"], figure["what"]))
    for section, what in names:
        cells = []
        for in_turns, n in columns:
            found = [f for f in document["figures"] if "sequences" in f and (f["section"], f["what"]) == (section, what)
                     and (f["in_turns"], f["sequences"]) == (in_turns, n)]
            if not found:
                cells.append("")
            elif "median" in found[0]:
                cells.append(time_of(found[0]))
            else:
                cells.append(bytes_text(found[0]["bytes"]))
        row(what, *cells)
    print("\n### Attention of one layer behind 4,096 tokens, 9 heads on 3 of 64, one thread\n")
    head("what", "time", "GFLOP/s", "GB/s of rows")
    for figure in document["figures"]:
        if "operations" in figure:
            row(figure["what"], time_of(figure), "%.1f" % (figure["operations"] / figure[TIME]),
                "%.2f" % (figure["bytes"] / figure[TIME]))
    print()


def print_session(document):
    print("### Sessions\n")
    head("sequences", "what", "MB", "time", "GB/s", "ratio")
    for figure in document["figures"]:
        ratio = "%.2f of %s" % (figure["ratio"], figure["against"]) if "ratio" in figure else ""
        row(figure["sequences"], figure["what"], "%.1f" % (figure["bytes"] / 1e6), time_of(figure),
            "%.2f" % (figure["bytes"] / figure[TIME]), ratio)
    print()


def print_models(documents):
    print("### Tokens a second\n")
    head("model", "what", "tokens", "depth", "tokens/s", "GB/s", "of memory", "GFLOP/s", "of f32")
    for name, document in documents:
        for figure in document["figures"]:
            rate = figure["most"] / figure["tokens"]  # of the best run, as of_memory and of_f32 are
            row(name, figure["what"], figure["tokens"], figure["depth"], spread_text(figure),
                "%.1f" % (figure["bytes"] * rate / 1e9), "%.0f %%" % (100 * figure["of_memory"]),
                "%.1f" % (figure["operations"] * rate / 1e9), "%.0f %%" % (100 * figure["of_f32"]))
    print()


def print_parallel(documents):
    print("### Several sequences, 64 tokens each\n")
    head("model", "sequences", "prefix", "tokens/s in all", "MiB of memory")
    for name, document in documents:
        figure = document["figures"][0]
        row(name, document["sequences"], "%d, %s" % (figure["depth"], "shared" if document["shared"] else "each its own"),
            spread_text(figure), "%.0f" % (document["memory_bytes"] / 2**20))
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cellar", default="build/cellar")
    parser.add_argument("--threads", type=int, default=0, help="default: one for each processor")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("models", nargs="*", metavar="MODEL.gguf")
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--parts", default="machine,memory,session,model,parallel")
    given = parser.parse_args()
    global TIME
    TIME = "least" if given.best else "median"
    runs = ["-r", str(1 if given.quick else given.runs)]
    threads = ["-t", str(given.threads)] if given.threads > 0 else []
    size = ["--size", "8" if given.quick else "256"]
    parts = given.parts.split(",")
    machine = bench(given.cellar, "machine", *runs, *threads, *(size if "machine" in parts else ["--size", "1"]))
    print_machine(machine["machine"], machine["threads"], machine["runs"])
    if "machine" in parts:
        print_limits(machine)
    if "memory" in parts:
        print_memory(bench(given.cellar, "memory", *runs, *(["-c", "4096", "-s", "1,4"] if given.quick else [])))
    if "session" in parts:
        print_session(bench(given.cellar, "session", *runs, *threads, *size))
    alone, together = [], []
    for model in given.models:
        name = os.path.splitext(os.path.basename(model))[0]
        work = ["-p", "16", "-n", "2", "-d", "0,32"] if given.quick else ["-d", DEPTHS]
        if "model" in parts:
            alone.append((name, bench(given.cellar, "model", "-m", model, "--roofline", *work, *runs, *threads)))
        work = ["-s", "2", "--prefix", "16", "-n", "2"] if given.quick else []
        for more in ([], ["--no-share"]) if "parallel" in parts else ():
            together.append((name, bench(given.cellar, "parallel", "-m", model, *work, *more, *runs, *threads)))
    if alone:
        print_models(alone)
    if together:
        print_parallel(together)


if __name__ == "__main__":
    main()
