"""The page of `cellar serve` in a real browser: Chromium without a screen, driven through its debugging pipe.

    tests/live_page.py CHROMIUM CELLAR [--screenshots FOLDER]

Starts servers of the built-in model on free ports of the loopback address, and does what a person would: types, presses
keys, points, and looks at what is to be seen. What the page shows is held against what the server says of
itself. Needs python3 and nothing beside its own library. The last line counts.
"""

import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import urllib.request

PATIENCE = float(os.environ.get("PATIENCE", "120"))  # seconds for what should take one: machines may be busy


class Browser:
    """One page in a browser of its own; requests and answers are JSON, each ended by a NUL."""

    def __init__(self, program, folder):
        to_read, self.to = os.pipe()
        self.of, to_write = os.pipe()

        def arrange():  # the browser reads from descriptor 3 and writes to 4
            spare_read, spare_write = os.dup(to_read), os.dup(to_write)
            os.dup2(spare_read, 3)
            os.dup2(spare_write, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--disable-extensions",
             "--force-color-profile=srgb", "--hide-scrollbars", "--user-data-dir=" + folder, "about:blank"],
            preexec_fn=arrange, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.rest = b""
        self.number = 0
        self.session = None
        self.complaints = []  # errors and warnings of the console
        self.requested = []  # addresses of everything that was loaded
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def hear(self, seconds):
        """The next message; None: there was none in that time."""
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            if not select.select([self.of], [], [], max(0, end - time.monotonic()))[0]:
                return None
            piece = os.read(self.of, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(message)
        self.note(message)
        return message

    def note(self, message):
        method, what = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(what["exceptionDetails"])[:400])
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(what["args"])[:400])
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(what["entry"]["text"] + " " + what["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requested.append(what["request"]["url"])

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.hear(PATIENCE)
            if answer is None:
                raise RuntimeError("the browser does not answer to " + method)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(method + ": " + str(answer["error"]))
                return answer["result"]

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(expression + ": " + json.dumps(answer["exceptionDetails"])[:400])
        return answer["result"].get("value")

    def until(self, expression):
        """Wait until it is true; the value."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            value = self.value(expression)
            if value:
                return value
            self.hear(0.05)
        raise AssertionError("never came true: " + expression)

    def go(self, address):
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def size(self, width, height, scale=1):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                 mobile=False)

    def prefer(self, scheme, motion="no-preference"):
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                         {"name": "prefers-reduced-motion", "value": motion}])

    def press(self, key, text=None, code=0, modifiers=0):
        more = {"text": text} if text is not None else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, modifiers=modifiers,
                 **more)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def tab(self, back=False):
        self.press("Tab", code=9, modifiers=8 if back else 0)

    def enter(self):
        self.press("Enter", text="\r", code=13)

    def type(self, text):
        self.ask("Input.insertText", text=text)

    def point(self, x, y):
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector):
        x, y = self.value("(() => { const e = document.querySelector(%s); e.scrollIntoView({block: 'center'});"
                          " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
                          % json.dumps(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path):
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def end(self):
        try:
            self.session = None
            self.ask("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.of)


class Server:
    """`cellar serve` on a free port."""

    def __init__(self, program, *options):
        self.process = subprocess.Popen([program, "serve", "--port", "0", "-q", *options], stdout=subprocess.PIPE,
                                        stdin=subprocess.DEVNULL)
        self.address = self.process.stdout.readline().decode().split()[-1]

    def get(self, path, key=None):
        headers = {"Authorization": "Bearer " + key} if key else {}
        with urllib.request.urlopen(urllib.request.Request(self.address + path, headers=headers), timeout=PATIENCE) as a:
            return json.load(a)

    def post(self, path, body, key=None):
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = "Bearer " + key
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as a:
            return json.load(a)

    def end(self):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()


passed = failed = 0


def check(what, holds, shown=""):
    global passed, failed
    if holds:
        passed += 1
    else:
        failed += 1
        print("FAIL %s%s" % (what, ": %s" % (shown,) if shown != "" else ""))


IDLE = "document.querySelector('#stop').hidden && document.querySelectorAll('.assistant .figures').length === %d"
TEXT = "document.querySelector('%s').textContent"


def talk(browser, text, n):
    """Say something by keyboard and wait for answer n."""
    browser.value("document.querySelector('#say').focus()")
    browser.type(text)
    browser.enter()
    browser.until(IDLE % n)


def chat_and_memory(browser, server):
    """A conversation, and what is to be seen of it."""
    browser.go(server.address)
    browser.until("document.querySelector('#status').textContent === 'idle'")
    check("nothing is kept at first", browser.value(TEXT % "#kept") == "0 sequences")

    # The first answer: it comes in pieces.
    browser.value("""(() => { window.grown = []; const was = hear; hear = (talk, message, event) => {
        was(talk, message, event);
        window.grown.push(document.querySelector('.assistant:last-child .said').textContent.length); }; })()""")
    browser.value("document.querySelector('#say').focus()")
    browser.type("Once upon a time there was a fox who")
    browser.enter()
    browser.until(IDLE % 1)
    grown = browser.value("window.grown")
    check("the answer grew piece by piece", len(set(grown)) > 20 and grown == sorted(grown), grown)
    check("the answer is there", len(browser.value(TEXT % ".assistant .said")) == grown[-1] > 20)
    check("the field is empty again", browser.value("document.querySelector('#say').value") == "")

    # Cells appear, and the page says of them what the server says.
    browser.until("look.sequences.length === 1 && !look.sequences[0].is_running && look.at_work === 0")
    memory = server.get("/memory")
    used = memory["cells"]["used"]
    check("cells are in use", used > 20, used)
    check("the page has the same figure", str(used) in browser.value(TEXT % "#stores"))
    drawn = browser.value("maps[0].tiles.filter((t) => t !== null).length")
    check("a tile is drawn for each cell", drawn == used, (drawn, used))
    seen = browser.value("""(() => { const c = maps[0].canvas, d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const want = getComputedStyle(document.documentElement).getPropertyValue('--c0').trim();
        const rgb = [1, 3, 5].map((i) => parseInt(want.slice(i, i + 2), 16)); let n = 0;
        for (let i = 0; i < d.length; i += 4) n += rgb.every((v, k) => Math.abs(d[i + k] - v) < 3);
        return n; })()""")
    check("the last ones have the colour of the first conversation", seen > 30, seen)
    check("the first prompt was cold", "begins like this prompt" in browser.value(TEXT % "#last"))

    # The second message goes on from there.
    talk(browser, " and then", 2)
    browser.until("look.events.length === 2 && look.events[0].state !== 'running'")
    event = server.get("/memory")["events"][0]
    check("the second prompt was mostly in memory", event["reused"] > event["prompt_tokens"] // 2, event)
    check("it is the same conversation", event["conversation"] == 1, event)
    shown = browser.value(TEXT % "#last")
    check("the page says so", "%d %% was in memory" % (100 * event["reused"] // event["prompt_tokens"]) in shown, shown)
    check("the answer says so", "%d of %d from memory" % (event["reused"], event["prompt_tokens"]) in
          browser.value("[...document.querySelectorAll('.figures')].at(-1).textContent"))
    check("so does the line of the prompt", "%d of %d" % (event["reused"], event["prompt_tokens"]) in
          browser.value(TEXT % "#timeline li"))
    width = browser.value("document.querySelector('#timeline li .reused').getBoundingClientRect().width /"
                          "document.querySelector('#timeline li .bar').getBoundingClientRect().width")
    whole = event["prompt_tokens"] + event["written"]
    check("its bar is as long as that", abs(width - event["reused"] / whole) < 0.05, width)

    # Another way from the second message on: cells of two conversations.
    browser.click(".user:nth-of-type(3) button")
    check("the message is there to be changed", browser.value("document.querySelector('#say').value") == "and then")
    browser.value("document.querySelector('#say').select()")
    talk(browser, " but nobody", 1)
    browser.until("look.events.length === 3 && look.at_work === 0")
    memory = server.get("/memory")
    check("it is another conversation", memory["events"][0]["conversation"] == 2, memory["events"][0])
    check("cells are shared", memory["cells"]["shared"] > 0, memory["cells"])
    shared = browser.value("maps[0].tiles.filter((t) => t && t.shared > 0 && t.by.length === 2).length")
    check("each of them is drawn as shared by two", shared == memory["cells"]["shared"], (shared, memory["cells"]))
    check("there are two conversations to choose from", browser.value("document.querySelectorAll('#tabs button').length") == 2)


def by_hand(browser, server):
    """Pointing, the keyboard alone, forgetting."""
    at = browser.value("""(() => { const m = maps[0]; m.canvas.scrollIntoView({block: 'center'});
        const b = m.canvas.getBoundingClientRect(), t = m.tiles.findIndex((t) => t && t.shared > 0);
        return [b.x + (t % m.columns + .5) * m.size, b.y + (Math.floor(t / m.columns) + .5) * m.size, t]; })()""")
    browser.point(at[0], at[1])
    tip = browser.until("!document.querySelector('#tip').hidden && document.querySelector('#tip').textContent")
    check("pointing tells the sequence, position, age and sharing",
          all(word in tip for word in ("Conversation", "sequence ", "position ", "shared by 2", "ago" if "ago" in tip else "now")),
          tip)
    check("its conversation is lit in the list", browser.value("document.querySelectorAll('#sequences tr.lit').length") > 0)
    browser.point(2, 2)
    check("the tip goes with the pointer", browser.value("document.querySelector('#tip').hidden"))

    # The keyboard reaches everything, and shows where it is.
    browser.value("document.activeElement.blur(); window.scrollTo(0, 0)")
    seen = []
    for _ in range(60):
        browser.tab()
        seen.append(browser.value("(() => { const a = document.activeElement; return a === document.body ? 'body' :"
                                  " a.id || (a.closest('[id]') || a).id; })()"))
        if seen[-1].startswith("map-"):
            break
    for name in ("key", "theme", "tabs", "new", "log", "say", "send", "map-0"):
        check("Tab reaches " + name, name in seen, seen)
    check("focus can be seen", browser.value("getComputedStyle(document.activeElement).outlineStyle") != "none")
    browser.press("Home", code=36)
    browser.press("ArrowRight", code=39)
    tip = browser.value(TEXT % "#tip")
    check("arrow keys tell of cells", "Cell 1" in tip, tip)
    check("they are spoken too", browser.value(TEXT % "#spoken") != "")
    browser.press("Escape", code=27)
    check("Escape takes the tip away", browser.value("document.querySelector('#tip').hidden"))

    n = len(server.get("/memory")["sequences"])
    browser.click("#sequences tbody td:last-child button")
    browser.until("look.sequences.length === %d" % (n - 1))
    check("what is forgotten is gone", len(server.get("/memory")["sequences"]) == n - 1)

    browser.value("document.querySelector('#most').value = 1000000")
    browser.value("document.querySelector('#new').click()")
    browser.type("A long story:")
    browser.enter()
    browser.until("document.querySelector('#log .assistant') !== null")
    browser.until("document.querySelector('#stop').hidden")
    browser.value("document.querySelector('#most').value = 120")


def themes(browser, folder):
    """Dark and light, by the system's wish and by the button; wide and narrow."""
    brightness = ("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3)"
                  ".reduce((a, b) => a + Number(b), 0) / 3")
    # Text has to stand out: at least 4.5 to 1, as WCAG 2.1 counts it.
    contrast = """(() => { const lum = (c) => { const v = c.match(/[\\d.]+/g).slice(0, 3).map((x) => { x /= 255;
        return x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; }); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
        const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)|transparent/.test(c)) return c; } return 'rgb(0,0,0)'; };
        let worst = 99, where = ''; for (const e of document.querySelectorAll('body *')) {
        if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || e.closest('[hidden],noscript,dialog,.hidden') ||
            e.disabled || !e.offsetParent) continue;
        const a = lum(getComputedStyle(e).color), b = lum(ground(e)), r = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (r < worst) { worst = r; where = e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40); } }
        return [worst, where]; })()"""
    for scheme, is_dark in (("dark", True), ("light", False)):
        browser.prefer(scheme)
        browser.until("document.documentElement.dataset.theme === '%s'" % scheme)
        check("it is %s where that is wished" % scheme, (browser.value(brightness) < 128) == is_dark)
        worst, where = browser.value(contrast)
        check("text stands out in the %s" % scheme, worst >= 4.5, "%.2f: %s" % (worst, where))
        for width, height in ((1440, 900), (1024, 768), (375, 812), (320, 640)):
            browser.size(width, height, 2 if width < 400 else 1)
            browser.until("innerWidth === %d" % width)
            over = browser.value("document.documentElement.scrollWidth - innerWidth")
            check("nothing sticks out at %d pixels" % width, over <= 0, over)
            if folder:
                browser.until("new Promise((done) => setTimeout(() => done(true), 1200))")
                browser.picture(os.path.join(folder, "page_%s_%d.png" % (scheme, width)))
                if width < 400:
                    browser.value("document.querySelector('#memory').scrollIntoView()")
                    browser.picture(os.path.join(folder, "page_%s_%d_memory.png" % (scheme, width)))
                    browser.value("scrollTo(0, 0)")
        browser.size(1440, 900)
    browser.value("document.querySelector('#theme').focus()")
    for wanted in ("light", "dark"):
        browser.enter()
        check("the button makes it " + wanted, browser.value("document.documentElement.dataset.theme") == wanted)
    browser.enter()


def strangers(browser, server):
    """Markup is text, other people's cells are only cells, and a key is asked for and kept in the tab alone."""
    browser.go(server.address)
    browser.until("document.querySelector('#ask').open")
    browser.type("wrong")
    browser.enter()
    browser.until("!document.querySelector('#ask').open || document.querySelector('#key-text').value === 'wrong'")
    browser.until("document.querySelector('#ask').open && document.querySelector('#status').textContent.includes('key')")
    browser.value("document.querySelector('#key-text').select()")
    browser.type("first")
    browser.enter()
    browser.until("document.querySelector('#status').textContent === 'idle'")
    check("the key is in the tab's storage alone", browser.value(
        "sessionStorage.getItem('cellar-key') === 'first' && !JSON.stringify({...localStorage}).includes('first') &&"
        " document.cookie === '' && !location.href.includes('first')"))
    # The refusals were to be seen in the console, as they should.
    browser.complaints = [c for c in browser.complaints if "401" not in c]

    server.post("/completion", {"prompt": "The secret of the second key is", "n_predict": 30}, "second")
    talk(browser, "<img src=x onerror=alert(1)><b>bold</b> Once", 1)
    check("markup is shown as text", browser.value(
        "document.querySelectorAll('#log img, #log b').length === 0 &&"
        " document.querySelector('.user .said').textContent.includes('<b>bold</b>')"))
    browser.until("look.events.length === 1 && look.at_work === 0 && look.sequences.length === 1")
    other = browser.value("maps[0].tiles.filter((t) => t && t.sequence === -2).length")
    check("cells of others are there", other > 20, other)
    at = browser.value("""(() => { const m = maps[0]; m.canvas.scrollIntoView({block: 'center'});
        const b = m.canvas.getBoundingClientRect(), t = m.tiles.findIndex((t) => t && t.sequence === -2);
        return [b.x + (t % m.columns + .5) * m.size, b.y + (Math.floor(t / m.columns) + .5) * m.size]; })()""")
    browser.point(*at)
    tip = browser.until("!document.querySelector('#tip').hidden && document.querySelector('#tip').textContent")
    check("of them only that", "Somebody else's" in tip and "osition" not in tip and "onversation" not in tip, tip)
    memory = server.get("/memory", "first")
    check("the other one's sequences and prompts are not listed",
          len(memory["sequences"]) == 1 and len(memory["events"]) == 1, memory)


def main():
    program, cellar = sys.argv[1], sys.argv[2]
    folder = sys.argv[4] if len(sys.argv) > 4 and sys.argv[3] == "--screenshots" else None
    with tempfile.TemporaryDirectory() as scratch:
        plain = Server(cellar, "-c", "1024", "--context", "512", "--seed", "7")
        keys = os.path.join(scratch, "keys")
        with open(keys, "w", encoding="ascii") as out:
            out.write("first\nsecond\n")
        keyed = Server(cellar, "-c", "512", "--seed", "7", "--api-key-file", keys)
        browser = Browser(program, os.path.join(scratch, "profile"))
        try:
            browser.size(1440, 900)
            browser.prefer("dark", "reduce")
            for part in ((chat_and_memory, browser, plain), (by_hand, browser, plain), (themes, browser, folder),
                         (strangers, browser, keyed)):
                try:
                    part[0](*part[1:])
                except (AssertionError, RuntimeError) as wrong:
                    check(part[0].__name__, False, wrong)
            check("the console is silent", not browser.complaints, browser.complaints)
            outside = [a for a in browser.requested
                       if not a.startswith((plain.address + "/", keyed.address + "/", "about:"))]
            check("nothing was loaded from elsewhere", not outside, outside)
        finally:
            browser.end()
            plain.end()
            keyed.end()
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
