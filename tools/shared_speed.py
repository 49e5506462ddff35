#!/usr/bin/env python3
"""shared_speed.py: when a store that servers share is worth it, and what a slow one costs.

    tools/shared_speed.py CELLAR MODEL [--tokens N] [--rounds N] [--rates MBIT,...] [--cache-type T]

Two servers, a redis-server and a client in network namespaces of their own, joined by a bridge; both ends of the store's
link are limited by tc (a token bucket, which each kernel with traffic control has). Needs root, iproute2, redis-server.

first   time to the first token of a prompt of N tokens: read by a server without a store; and at a server that begins
        anew and finds the first N tokens of it in the store, where another one put them. It has read another one as
        long before, so that it knows how fast it reads. Once as users have it (it waits no longer than reading would take), once
        however long it takes (--shared-wait). What was taken over is counted. Each round has a prompt of its own.
decode  tokens a second of an answer of 128: without a store, and with one that is half a second away each way, which meanwhile
        is given what others have read. Both servers take turns.

The answers with and without the store have to be the same. Prints the rounds, then one line of JSON.
"""
import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

NAMES = ("a", "b", "store")


class Net:
    """Namespaces cs<pid>-hub, -a, -b, -store; everything in them ends with it."""

    def __init__(self):
        self.id = f"cs{os.getpid()}"
        self.processes = {}
        self.spaces = []

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def make(self):
        self.space("hub")
        self.ip("-n", f"{self.id}-hub", "link", "add", "br0", "type", "bridge")
        self.ip("-n", f"{self.id}-hub", "addr", "add", "10.78.0.1/24", "dev", "br0")
        self.ip("-n", f"{self.id}-hub", "link", "set", "br0", "up")
        for name in NAMES:
            self.space(name)
            its = f"{self.id}-{name}"
            self.ip("-n", its, "link", "add", "eth0", "type", "veth", "peer", "name", f"to-{name}",
                    "netns", f"{self.id}-hub")
            self.ip("-n", its, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            self.ip("-n", its, "link", "set", "eth0", "up")
            self.ip("-n", f"{self.id}-hub", "link", "set", f"to-{name}", "master", "br0")
            self.ip("-n", f"{self.id}-hub", "link", "set", f"to-{name}", "up")

    def space(self, name):
        self.ip("netns", "add", f"{self.id}-{name}")
        self.spaces.append(name)
        self.ip("-n", f"{self.id}-{name}", "link", "set", "lo", "up")

    def address(self, name):
        return "10.78.0." + {"hub": "1", "a": "11", "b": "12", "store": "14"}[name]

    def command(self, name, *words):
        return ["ip", "netns", "exec", f"{self.id}-{name}", *words]

    def begin(self, label, name, *words):
        self.processes[label] = subprocess.Popen(self.command(name, *words), stdout=subprocess.DEVNULL,
                                                 stderr=subprocess.DEVNULL)

    def end(self, label):
        its = self.processes.pop(label)
        its.send_signal(signal.SIGTERM)
        its.wait()

    def limit(self, mbit):
        """Both directions of the store's link."""
        for space, device in (("store", "eth0"), ("hub", "to-store")):
            subprocess.run(self.command(space, "tc", "qdisc", "del", "dev", device, "root"), stderr=subprocess.DEVNULL)
            if mbit:
                burst = max(65536, int(mbit * 1e6 / 8 / 250))  # what comes between two ticks of a slow clock
                subprocess.run(self.command(space, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                                            f"{mbit}mbit", "burst", str(burst), "latency", "50ms"), check=True)

    def clean(self):
        for label in list(self.processes):
            self.end(label)
        for name in self.spaces:
            subprocess.run(["ip", "netns", "del", f"{self.id}-{name}"], check=False)


class Lab:
    """Servers and what is asked of them."""

    def __init__(self, net, options, folder):
        self.net, self.options, self.folder = net, options, folder
        self.random = random.Random(1)

    def serve(self, name, *words):
        self.net.begin(name, name, self.options.cellar, "serve", "-m", self.options.model, "--host",
                       self.net.address(name), "--temp", "0", "--metrics", "-q", "-c", str(self.options.tokens * 2 + 2048),
                       "--cache-type-k", self.options.cache_type, "--cache-type-v", self.options.cache_type, *words)
        for _ in range(600):
            if self.curl(name, "/health").returncode == 0:
                return
            time.sleep(0.05)
        sys.exit(f"server {name} does not start")

    def curl(self, name, path, *words):
        return subprocess.run(self.net.command("hub", "curl", "-s", "-f", "--max-time", "600", *words,
                                               f"http://{self.net.address(name)}:8080{path}"), capture_output=True, text=True)

    def prompt(self, n):
        return [self.random.randrange(300, 20000) for _ in range(n)]

    def ask(self, name, prompt, n_predict=1):
        """(seconds until all of the answer was there, the answer). Of one token: the time to the first."""
        with open(f"{self.folder}/body", "w", encoding="ascii") as body:
            json.dump({"prompt": prompt, "n_predict": n_predict, "temperature": 0, "ignore_eos": True}, body)
        reply = self.curl(name, "/completion", "-d", f"@{self.folder}/body", "-w", "\n%{time_total}")
        if reply.returncode != 0:
            sys.exit(f"server {name} does not answer: {reply.stdout}")
        text, seconds = reply.stdout.rsplit("\n", 1)
        return float(seconds), json.loads(text)

    def metric(self, name, what):
        for line in self.curl(name, "/metrics").stdout.splitlines():
            if line.startswith(f"cellar:{what} "):
                return float(line.split()[1])
        return 0.0

    def until_written(self, name, n):
        while self.metric(name, "shared_written_total") < n:
            time.sleep(0.1)


def reused(answer):
    """How many tokens were not read, and where they came from."""
    its = answer["cellar"]
    return its["reused"], its["source"]


def median(numbers):
    return round(statistics.median(numbers), 3)


def measure_first(lab, store):
    """Rows of (rate, kind, seconds, tokens taken over)."""
    options, rows = lab.options, {}
    n_blocks = options.tokens // 64
    prompts = [lab.prompt(options.tokens + 32) for _ in range(options.rounds)]
    warm = lab.prompt(options.tokens)
    words = {}
    lab.serve("a", "--shared", store)
    size = 0
    for i, prompt in enumerate(prompts):
        lab.ask("a", prompt)
        lab.until_written("a", n_blocks * (i + 1))
        size = lab.metric("a", "shared_written_bytes_total") / (n_blocks * (i + 1))
    lab.net.end("a")
    kinds = [("read", None, ())]
    for rate in options.rates:
        kinds.append((f"{rate} Mbit/s", rate, ("--shared", store)))
        kinds.append((f"{rate} Mbit/s, however long", rate, ("--shared", store, "--shared-wait", "600000")))
    for i, prompt in enumerate(prompts):
        for kind, rate, more in kinds:
            lab.net.limit(rate)
            lab.serve("b", *more)
            lab.ask("b", warm)
            seconds, answer = lab.ask("b", prompt)
            lab.net.end("b")
            words.setdefault(i, answer["content"])
            if words[i] != answer["content"]:
                sys.exit(f"{kind}: another answer than without a store")
            n, source = reused(answer)
            print(f"round {i + 1}, {kind}: {seconds:.3f} s, {n} tokens taken over ({source})", flush=True)
            rows.setdefault(kind, []).append((seconds, n))
    lab.net.limit(None)
    return {"bytes_per_block": size,
            "first": {kind: {"seconds": median([s for s, _ in its]), "least": min(s for s, _ in its),
                             "most": max(s for s, _ in its), "reused": median([n for _, n in its])}
                      for kind, its in rows.items()}}


def measure_decode(lab, store):
    """Tokens a second, with the store half a second away and without one, by turns."""
    here = os.path.dirname(os.path.abspath(__file__))
    lab.net.begin("relay", "store", sys.executable, f"{here}/../tests/slow_relay.py", lab.net.address("store"), "6380",
                  lab.net.address("store"), "6379", "500")
    speeds = {"none": [], "slow": []}
    lab.serve("a")
    lab.serve("b", "--shared", store.replace("6379", "6380"))
    for _ in range(lab.options.rounds * 2):
        prompt = lab.prompt(512)
        texts = set()
        for name, kind in (("a", "none"), ("b", "slow")):
            _, answer = lab.ask(name, prompt, 128)
            texts.add(answer["content"])
            speeds[kind].append(answer["timings"]["predicted_per_second"])
        if len(texts) != 1:
            sys.exit("decode: another answer than without a store")
        print(f"decode: {speeds['none'][-1]:.2f} tokens a second without a store, {speeds['slow'][-1]:.2f} with a slow one",
              flush=True)
    written = lab.metric("b", "shared_written_total")
    for name in ("a", "b", "relay"):
        lab.net.end(name)
    return {"decode": {kind: {"median": median(its), "least": min(its), "most": max(its)} for kind, its in speeds.items()},
            "written_meanwhile": written}


def main():
    parser = argparse.ArgumentParser(description="time to the first token from a shared store, against reading again")
    parser.add_argument("cellar")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=lambda s: [int(x) for x in s.split(",")], default=[1000, 100])
    parser.add_argument("--cache-type", default="f16")
    parser.add_argument("--only", choices=("first", "decode"))
    options = parser.parse_args()
    net = Net()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        try:
            net.make()
            net.begin("redis", "store", "redis-server", "--bind", net.address("store"), "--save", "", "--protected-mode",
                      "no", "--dir", folder, "--loglevel", "warning")
            lab = Lab(net, options, folder)
            store = f"redis://{net.address('store')}:6379"
            result = {"model": os.path.basename(options.model), "tokens": options.tokens}
            if options.only != "decode":
                result.update(measure_first(lab, store))
            if options.only != "first":
                result.update(measure_decode(lab, store))
            print(json.dumps(result))
        finally:
            net.clean()


if __name__ == "__main__":
    main()
