#!/usr/bin/env python3
"""serve_load.py: many clients of one server, to measure how many requests it answers and how soon each begins.

    tools/serve_load.py shared|turns [--port N] [--host H] [--clients N] [--rounds N] [--seed N] ...

shared  clients that all begin with one system prompt, each in short conversations of its own: a new one
        every --turns turns
turns   one long conversation for each client, all at once, on a server with fewer slots than clients

Every request is POST /completion, streamed, with the prompt as a list of tokens and an answer of a fixed length,
so that any server with this endpoint does the same work: the tokens of an answer are what the next turn begins with. A
client sends its next turn when it has the whole answer to the last one. Time to the first token counts from before the
connection is made to the arrival of the first event with a token. Prints one line of JSON. Nothing but the standard
library is needed.
"""
import argparse
import http.client
import json
import random
import sys
import threading
import time


class Client(threading.Thread):
    """One client, and the times of its requests. Each has a connection of its own: not every server keeps them."""

    def __init__(self, options, number, barrier, system):
        super().__init__()
        self.options, self.number, self.barrier, self.system = options, number, barrier, system
        self.first, self.whole, self.read, self.cached, self.failed = [], [], 0, 0, 0
        self.random = random.Random(options.seed * 1000 + number)

    def words(self, n):
        return [self.random.randrange(300, self.options.vocabulary) for _ in range(n)]

    def ask(self, prompt):
        """Send a prompt; the tokens that were written, or None."""
        body = json.dumps({"prompt": prompt, "n_predict": self.options.answer, "temperature": 0, "ignore_eos": True,
                           "stream": True, "return_tokens": True, "cache_prompt": True})
        start = time.perf_counter()
        connection = http.client.HTTPConnection(self.options.host, self.options.port, timeout=600)
        try:
            connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
            return self.take(connection.getresponse(), start)
        except (OSError, ValueError, http.client.HTTPException) as wrong:
            print(f"client {self.number}: {wrong}", file=sys.stderr)
            return None
        finally:
            connection.close()

    def take(self, reply, start):
        """Read an answer to its end, and note its times."""
        if reply.status != 200:
            print(f"client {self.number}: {reply.status}: {reply.read(300)!r}", file=sys.stderr)
            return None
        written, first, last = [], None, {}
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            last = json.loads(line[6:])
            if last.get("tokens"):
                first = first or time.perf_counter() - start
                if not last.get("stop"):
                    written += last["tokens"]
        timings = last.get("timings", {})
        if first is None or len(written) != self.options.answer or "prompt_n" not in timings:
            print(f"client {self.number}: {len(written)} tokens, not {self.options.answer}: {last}", file=sys.stderr)
            return None
        self.first.append(first)
        self.whole.append(time.perf_counter() - start)
        self.read += timings["prompt_n"]
        self.cached += timings.get("cache_n", 0)
        return written

    def run(self):
        options = self.options
        self.barrier.wait()
        prompt = []
        for i in range(options.rounds):
            if i % options.turns == 0:
                prompt = list(self.system)
            prompt += self.words(options.question)
            written = self.ask(prompt)
            if written is None:
                self.failed += 1
                return
            prompt += written


def at(values, share):
    """The value that this share of them does not exceed."""
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["shared", "turns"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--clients", type=int, help="16, or 8 with turns")
    parser.add_argument("--rounds", type=int, help="requests of each client: 12, or 20 with turns")
    parser.add_argument("--turns", type=int, help="of a conversation: 3, or all with turns")
    parser.add_argument("--system", type=int, help="tokens that all begin with: 1024, or 32 with turns")
    parser.add_argument("--question", type=int, default=32, help="tokens of a turn (32)")
    parser.add_argument("--answer", type=int, default=16, help="tokens of an answer (16)")
    parser.add_argument("--vocabulary", type=int, default=30000, help="tokens below this are used (30000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shared = options.kind == "shared"
    options.clients = options.clients or (16 if shared else 8)
    options.rounds = options.rounds or (12 if shared else 20)
    options.turns = options.turns or (3 if shared else options.rounds)
    options.system = options.system if options.system is not None else (1024 if shared else 32)

    source = random.Random(options.seed)
    system = [source.randrange(300, options.vocabulary) for _ in range(options.system)]
    barrier = threading.Barrier(options.clients + 1)
    clients = [Client(options, i, barrier, system) for i in range(options.clients)]
    for client in clients:
        client.start()
    barrier.wait()
    start = time.perf_counter()
    for client in clients:
        client.join()
    seconds = time.perf_counter() - start
    first = [t for c in clients for t in c.first]
    whole = [t for c in clients for t in c.whole]
    print(json.dumps({
        "kind": options.kind, "clients": options.clients, "requests": len(whole),
        "failed": sum(c.failed for c in clients), "seconds": round(seconds, 3),
        "requests_per_second": round(len(whole) / seconds, 3),
        "first_ms": {"p50": round(at(first, .5) * 1e3, 1), "p90": round(at(first, .9) * 1e3, 1),
                     "p99": round(at(first, .99) * 1e3, 1), "most": round(max(first, default=0) * 1e3, 1)},
        "whole_ms": {"p50": round(at(whole, .5) * 1e3, 1), "p99": round(at(whole, .99) * 1e3, 1)},
        "prompt_tokens_read": sum(c.read for c in clients), "prompt_tokens_reused": sum(c.cached for c in clients),
        "tokens_written": len(whole) * options.answer}))
    return 1 if any(c.failed for c in clients) else 0


if __name__ == "__main__":
    sys.exit(main())
