"""What whoever operates `cellar serve` relies on, asked of the program itself from outside.

    tests/operation.py CELLAR

Who may come in, how much and how slowly, how many at once; what the log says and what it never says; how it ends, and
that what it promised to keep is there after that; that the systemd unit is one and lets the server do little. Only the
loopback address is spoken to. Nothing is held against a clock but that it ends at all. The last line counts.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PATIENCE = 120
passed = failed = skipped = 0


def check(what, holds, shown=""):
    global passed, failed
    if holds:
        passed += 1
    else:
        failed += 1
        print("FAIL %s%s" % (what, ": %s" % (shown,) if shown != "" else ""))


def skip(what):
    global skipped
    skipped += 1
    print("skip: " + what)


class Server:
    def __init__(self, *options):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([sys.argv[1], "serve", "--port", "0", "-t", "1", *options],
                                        stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL)
        self.url = self.process.stdout.readline().decode().split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def ask(self, path, body=None, key=None, data=None):
        """Status and body, as JSON if it is that."""
        request = urllib.request.Request(self.url + path, data if data is not None else
                                         json.dumps(body).encode() if body is not None else None)
        if key is not None:
            request.add_header("Authorization", "Bearer " + key)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                status, text = refused.code, refused.read()
        except (urllib.error.URLError, ConnectionError, socket.timeout):
            return 0, None
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text.decode(errors="replace")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def end(self, number=signal.SIGTERM):
        """The code it ends with, and its log."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.log.seek(0)
        return code, self.log.read().decode()


def is_closed(connection):
    """Wait until the other side closes; what it said before. None: it does not."""
    said = b""
    try:
        while True:
            piece = connection.recv(65536)
            if not piece:
                return said
            said += piece
    except socket.timeout:
        return None
    except ConnectionError:
        return said
    finally:
        connection.close()


def doors(scratch):
    keys = os.path.join(scratch, "keys")
    with open(keys, "w", encoding="ascii") as out:
        out.write("one-of-them\nanother\r\n\n")
    server = Server("--api-key-file", keys, "--api-key", "third-key", "--log-json", "--metrics")
    check("the loopback address is what it listens on", server.url.startswith("http://127.0.0.1:"), server.url)
    with socket.socket() as other:
        other.settimeout(5)
        names = {a[4][0] for a in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} \
            if _resolves() else set()
        outside = [a for a in names if not a.startswith("127.")]
        if outside:
            check("it is not there on others", other.connect_ex((outside[0], server.port)) != 0)
    check("health asks for no key", server.ask("/health")[0] == 200)
    for path in ("/v1/models", "/props", "/slots", "/metrics", "/cache", "/memory"):
        check("%s asks for a key" % path, server.ask(path)[0] == 401 and server.ask(path, key="wrong")[0] == 401)
    for key in ("one-of-them", "another", "third-key"):
        check("the key %s opens" % key, server.ask("/v1/models", key=key)[0] == 200)
    ask = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0}
    first = server.ask("/completion", ask, "another")
    check("an answer comes", first[0] == 200 and first[1]["timings"]["prompt_n"] > 0, first)
    server.ask("/no/such/path%0a{\"forged\":1}", key="another")
    with server.connect() as raw:
        raw.sendall(b"GET /x\x1b[31m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        is_closed(raw)
    code, log = server.end()
    check("it ends with 0 when it is told to", code == 0, code)
    lines = []
    for line in log.splitlines():
        if line.startswith("{"):
            lines.append(json.loads(line))
    check("each request is one line of JSON", len(lines) >= 19 and all(
        {"time", "method", "path", "status", "ms", "note"} <= set(line) for line in lines), log[:2000])
    check("a line says how much was reused, and why", any(
        line["path"] == "/completion" and "reused 0 (cold)" in line["note"] for line in lines), log[:2000])
    check("nobody can write lines of their own", not any("forged" in line for line in lines) and "\x1b" not in log)
    check("keys and prompts are not in the log", not any(
        word in log for word in ("one-of-them", "third-key", "Once upon")), log[:2000])


def _resolves():
    try:
        socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        return True
    except OSError:
        return False


def limits():
    server = Server("--max-body", "1", "--request-time", "1", "--connections", "8", "-q")
    check("a body that is too large is refused", server.ask("/tokenize", data=b"x" * (2 << 20))[0] in (413, 0))
    with server.connect() as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200000 + b"\r\n\r\n")
        said = is_closed(raw)
    check("so is a header that is too large", said == b"" or said.split()[1][:1] == b"4", said[:80])
    # As many as there may be say nothing, or nothing whole: others are served all the same.
    rude = [server.connect() for _ in range(8)]
    for i, connection in enumerate(rude):
        if i % 2:
            connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    end = time.monotonic() + PATIENCE
    is_served = False
    while not is_served and time.monotonic() < end:
        time.sleep(0.1)
        is_served = server.ask("/health")[0] == 200
    check("others are served in the end", is_served)
    check("those who overstay are closed", all([is_closed(connection) is not None for connection in rude]))
    code, log = server.end()
    check("quiet is quiet", code == 0 and log == "", log)


STORY = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, "n_predict": 400, "stream": True}


def begin_story(server):
    """Ask for a long answer and return when its first words are there."""
    raw = server.connect()
    body = json.dumps(STORY).encode()
    raw.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    said = b""
    while b"data: " not in said:
        piece = raw.recv(65536)
        assert piece, said
        said += piece
    return raw, said


def ending(scratch):
    folder = os.path.join(scratch, "kept")
    os.mkdir(folder, 0o700)
    server = Server("--cache-dir", folder, "-c", "512")
    raw, said = begin_story(server)
    server.process.send_signal(signal.SIGTERM)
    said += is_closed(raw)
    code, log = server.end()
    check("an answer that is being written comes to its end", b'"stop":true' in said and code == 0, said[-300:])
    check("nobody else gets in after that", server.ask("/health")[0] == 0)
    check("what is kept is kept in whole files", len(os.listdir(folder)) > 0 and not any(
        ".tmp" in name or ".new" in name for name in os.listdir(folder)), os.listdir(folder))
    check("which are nobody else's to read", all(
        os.stat(os.path.join(folder, name)).st_mode & 0o077 == 0 for name in os.listdir(folder)),
          [oct(os.stat(os.path.join(folder, name)).st_mode) for name in os.listdir(folder)])
    server = Server("--cache-dir", folder, "-c", "512", "-q")
    status, answer = server.ask("/completion", {**STORY, "n_predict": 4, "stream": False})
    check("after a restart it is there", status == 200 and answer["cellar"]["source"] == "disk" and
          answer["timings"]["prompt_n"] == 1, answer)
    check("it ends in peace again", server.end()[0] == 0)
    # With no grace the answer is cut short, and its client is told.
    server = Server("--grace", "0", "-c", "512", "-q")
    raw, said = begin_story(server)
    server.process.send_signal(signal.SIGINT)
    said += is_closed(raw)
    check("without grace it ends all the same", server.end()[0] == 0)
    check("the client has a whole answer or an error", b'"stop":true' in said or b'"error"' in said, said[-300:])


def unit(scratch):
    if shutil.which("systemd-analyze") is None:
        skip("the systemd unit: there is no systemd-analyze")
        return
    with open("packaging/systemd/cellar.service", encoding="ascii") as text:
        lines = text.read()
    path = os.path.join(scratch, "cellar.service")
    with open(path, "w", encoding="ascii") as out:
        out.write(lines.replace("/usr/bin/cellar", os.path.abspath(sys.argv[1])))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
    if "Failed to" in verified.stderr and "cellar.service" not in verified.stderr:
        skip("the systemd unit: " + verified.stderr.strip()[:100])
        return
    check("systemd takes the unit as it is", verified.returncode == 0 and "cellar.service" not in verified.stderr,
          verified.stderr)
    seen = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", path],
                          capture_output=True, text=True)
    if "unrecognized" in seen.stderr:
        skip("how much the unit may do: this systemd-analyze cannot tell")
    else:
        check("what it may do is little", seen.returncode == 0, (seen.stdout + seen.stderr)[-300:])
    command = next(line for line in lines.splitlines() if line.startswith("ExecStart="))
    words = [word for word in command.split()[2:] if not word.startswith("$")]
    state = os.path.join(scratch, "state")
    os.mkdir(state, 0o700)
    server = Server(*[word.replace("%S/cellar", state) for word in words])
    check("its command line is understood", server.ask("/health")[0] == 200)
    check("and ends in peace", server.end()[0] == 0)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        doors(scratch)
        limits()
        ending(scratch)
        unit(scratch)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
