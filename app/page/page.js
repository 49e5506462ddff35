/*
 * page.js: the page of `cellar serve`: conversations on one side, the memory that answers them on the other.
 *
 * The server is asked for one look at its memory (/memory) a second, four times a second while an answer is written,
 * and not at all while nobody sees the page; everything on the right is drawn from the last look. Answers come from
 * /v1/chat/completions as a stream. The key, if one is asked for, stays in this tab's session storage.
 *
 * Whatever comes from a server, a model or a person is put into the page as text, never as markup.
 */
"use strict";

const by = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/* An element: el("p.quiet", { title: "a" }, "text", other). Texts stay texts. */
function el(what, attributes, ...content) {
  const [name, ...classes] = what.split(".");
  const made = document.createElement(name);
  made.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...content.filter((c) => c !== null));
  return made;
}

/* ---- words and numbers ---- */

const count = (n) => Math.round(n).toLocaleString("en").replace(/,/g, "\u202f");
const many = (n, one, more) => `${count(n)} ${n === 1 ? one : more || one + "s"}`;

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

function time(ms) {
  if (ms < 1) return "under 1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60000)} min`;
}

function ago(seconds) {
  if (seconds < 0) return "before this start";
  if (seconds < 2) return "now";
  if (seconds < 100) return `${Math.round(seconds)} s ago`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

const places = { none: "nowhere", live: "the cells", ram: "the store in RAM", disk: "a file on disk" };

/* Why no more of a prompt was in memory, as a sentence. */
function reasonText(event) {
  switch (event.reason) {
    case "whole": return "All of it was known; only the last token is always read.";
    case "cold": return "Nothing that is kept begins like this prompt.";
    case "ended": return "What was known ended there; the rest is new.";
    case "diverged": return `From token ${count(event.diverged_at)} on it says something else than what was known.`;
    case "window-lost": return "A sliding window had moved past that place, and no checkpoint was kept there.";
    case "state-lost": return "No recurrent state was kept at that place.";
    case "evicted": return "More had been known, and was given up for room.";
    case "coming": return "Another prompt was just about to read the rest.";
    case "other-domain": return "The rest belongs to another key.";
    case "damaged": return "A stored sequence was damaged, and was removed.";
    case "unreadable": return "A stored sequence could not be read.";
    case "no-room": return "There were no free cells to bring a stored sequence back.";
    case "disabled": return "The request asked to take over nothing.";
    default: return event.reason || "";
  }
}

/* ---- colours ---- */

const COLOURS = 8;
let colour = {};

const colourName = (conversation) => (conversation > 0 ? `--c${(conversation - 1) % COLOURS}` : "--stone");
const colourOf = (conversation) => colour[colourName(conversation)];
const conversationName = (conversation) => (conversation > 0 ? `Conversation ${conversation}` : "Stored before");

function readColours() {
  const style = getComputedStyle(document.documentElement);
  colour = {};
  for (let i = 0; i < COLOURS; i++) colour[`--c${i}`] = style.getPropertyValue(`--c${i}`).trim();
  for (const name of ["--stone", "--free", "--others", "--mark", "--line", "--accent"]) {
    colour[name] = style.getPropertyValue(name).trim();
  }
}

const prefersLight = matchMedia("(prefers-color-scheme: light)");
let theme = localStorage.getItem("cellar-theme") || "system";

function applyTheme() {
  const is = theme === "system" ? (prefersLight.matches ? "light" : "dark") : theme;
  document.documentElement.dataset.theme = is;
  by("theme").textContent = `Theme: ${theme}`;
  readColours();
  drawAll();
}

by("theme").addEventListener("click", () => {
  const order = ["system", "light", "dark"];
  theme = order[(order.indexOf(theme) + 1) % order.length];
  localStorage.setItem("cellar-theme", theme);
  applyTheme();
  showLast();
});
prefersLight.addEventListener("change", applyTheme);

/* ---- the server ---- */

let key = sessionStorage.getItem("cellar-key") || "";
let wantsKey = false; /* it was refused: ask nothing before there is another one */

function ask(path, options) {
  const headers = { ...(options && options.headers) };
  if (key) headers.Authorization = `Bearer ${key}`;
  return fetch(path, { cache: "no-store", ...options, headers });
}

async function errorOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

function askForKey() {
  if (by("ask").open) return;
  by("key-text").value = key;
  by("ask").showModal();
}

function useKey() {
  key = by("key-text").value.trim();
  by("key-text").value = "";
  if (key) sessionStorage.setItem("cellar-key", key);
  else sessionStorage.removeItem("cellar-key");
  wantsKey = false;
  lookSoon(0);
}

by("key").addEventListener("click", askForKey);
by("key-cancel").addEventListener("click", () => by("ask").close());
by("ask").addEventListener("submit", useKey);

/* ---- one look after another ---- */

let look = null; /* the last one */
let timer = 0;
let writing = null; /* the AbortController of the answer that is being written */

function lookSoon(ms) {
  clearTimeout(timer);
  timer = setTimeout(lookNow, ms);
}

async function lookNow() {
  if (document.hidden || wantsKey) return;
  let wait = writing ? 250 : 1000;
  try {
    const response = await ask("memory");
    if (response.status === 401) {
      wantsKey = true;
      say("a key is needed", "bad");
      askForKey();
      return;
    }
    if (!response.ok) throw new Error(await errorOf(response));
    take(await response.json());
  } catch (wrong) {
    say(wrong instanceof TypeError ? "no answer from the server" : wrong.message, "bad");
    wait = 3000;
  }
  lookSoon(wait);
}
document.addEventListener("visibilitychange", () => lookSoon(0));

function say(text, kind) {
  by("status").className = `pill ${kind}`;
  if (by("status").textContent !== text) by("status").textContent = text;
}

function take(next) {
  const before = look;
  look = next;
  by("model").textContent = next.model;
  const waits = next.waiting > 0 ? `, ${count(next.waiting)} waiting` : "";
  say(next.at_work > 0 ? `${many(next.at_work, "answer")} being written${waits}` : "idle", next.at_work > 0 ? "busy" : "");
  showStores();
  showGroups(before);
  showSequences();
  showTimeline();
  showLast();
  showRoom();
}

/* A bar of parts: [class, share of the whole]. */
function bar(parts, conversation) {
  const made = el("div.bar", { "aria-hidden": "true" });
  for (const [name, share] of parts) {
    const part = el(`i.${name}`);
    part.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    if (conversation !== undefined) part.style.setProperty("--its", `var(${colourName(conversation)})`);
    made.append(part);
  }
  return made;
}

/* The parts of a prompt and its answer, against a whole. */
function partsOf(event, whole) {
  return [["reused", event.reused / whole], ["read", (event.prompt_tokens - event.reused) / whole],
          ["written", event.written / whole]];
}

/* ---- stores ---- */

function showStores() {
  const { cells, stores } = look;
  const part = (n, of) => (of > 0 ? n / of : 0);
  const card = (name, figure, rest, parts) =>
    el("div.store", {}, el("p.quiet", {}, name), el("p", {}, el("b", {}, figure), el("span.quiet", {}, ` ${rest}`)), parts ? bar(parts) : null);
  const n_in = (tier) => look.sequences.filter((s) => s.tier === tier || s[`${tier}_bytes`] > 0).length;
  const shared = cells.shared > 0 ? `, ${count(cells.shared)} shared` : "";
  by("stores").replaceChildren(
    card("Cells", count(cells.used), `of ${count(cells.total)}${shared}`,
      [["reused", part(cells.shared, cells.total)], ["written", part(cells.used - cells.shared, cells.total)]]),
    card("RAM", bytes(stores.ram.bytes), stores.ram.limit > 0 ? `of ${bytes(stores.ram.limit)}, ${n_in("ram")} kept` : "switched off",
      [["reused", part(stores.ram.bytes, stores.ram.limit)]]),
    card("Disk", bytes(stores.disk.bytes), stores.disk.limit > 0 ? `of ${bytes(stores.disk.limit)}, ${n_in("disk")} kept` : "no folder given",
      [["reused", part(stores.disk.bytes, stores.disk.limit)]]),
    card("Memory", bytes(stores.memory.bytes), stores.memory.limit > 0 ? `of a budget of ${bytes(stores.memory.limit)}` : "taken at the start",
      stores.memory.limit > 0 ? [["written", part(stores.memory.bytes, stores.memory.limit)]] : null));
}

/* ---- the map ---- */

const OTHERS = -2, KEPT = -3;
const maps = []; /* one for each group: { canvas, caption, group, tiles, columns, size, cursor, since } */
let lit = null; /* a conversation or a sequence that is pointed at: { conversation } or { id } */

/* The stretches of a group as one entry for each tile; null: free. */
function unfold(group) {
  const tiles = new Array(group.tiles).fill(null);
  for (const [first, n, sequence, position, used, shared, kept, holders] of group.map) {
    for (let i = 0; i < n && first + i < tiles.length; i++) {
      tiles[first + i] = {
        sequence, used, shared, kept, holders, by: [],
        position: position < 0 ? -1 : position + i * used,
        checkpoint: null,
      };
    }
  }
  return tiles;
}

/* Who holds each tile, and where checkpoints lie. */
function addHolders(tiles, index, group) {
  look.sequences.forEach((sequence, at) => {
    for (const [g, cell, length, position] of sequence.runs || []) {
      if (g !== index) continue;
      const last = Math.floor((cell + length - 1) / group.cells_per_tile);
      for (let t = Math.floor(cell / group.cells_per_tile); t <= last && t < tiles.length; t++) {
        if (tiles[t] && !tiles[t].by.includes(at)) tiles[t].by.push(at);
      }
      for (const behind of sequence.checkpoints || []) {
        const offset = behind - 1 - position;
        if (offset < 0 || offset >= length) continue;
        const tile = tiles[Math.floor((cell + offset) / group.cells_per_tile)];
        if (tile) tile.checkpoint = behind;
      }
    }
  });
}

function showGroups(before) {
  const isSame = before && before.groups.length === look.groups.length && maps.length === look.groups.length;
  if (!isSame) {
    maps.length = 0;
    by("groups").replaceChildren(...look.groups.map(makeMap));
  }
  look.groups.forEach((group, i) => {
    const map = maps[i];
    const old = map.tiles;
    map.group = group;
    map.tiles = unfold(group);
    addHolders(map.tiles, i, group);
    const now = performance.now();
    map.since = map.tiles.map((tile, t) => (tile && old && old.length === map.tiles.length && !old[t] ? now : (tile && map.since[t]) || 0));
    const kinds = { attention: "attends to everything", window: `attends to the last ${count(group.window)}`, recurrent: "keeps states" };
    const each = (group.cells_per_tile > 1 ? `, ${count(group.cells_per_tile)} to a square` : "") +
      (group.shown < group.cells ? `, the first ${count(group.shown)} are shown` : "");
    const what = group.kind === "recurrent" ? "state" : "cell";
    map.caption.textContent = `${many(group.layers, "layer")} that ${kinds[group.kind].replace(/^(attend|keep)s/, group.layers === 1 ? "$1s" : "$1")}: ` +
      `${count(group.used)} of ${many(group.cells, what)} in use${each}, ${bytes(group.cell_bytes)} each`;
    map.canvas.setAttribute("aria-label", `Map of ${map.caption.textContent}. Arrow keys move from square to square.`);
  });
  drawAll();
}

function makeMap(group, index) {
  const caption = el("figcaption");
  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-roledescription": "map of the memory", id: `map-${index}` });
  const map = { canvas, caption, group, tiles: null, columns: 1, size: 8, cursor: -1, since: [] };
  canvas.addEventListener("pointermove", (e) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((e.clientX - box.left) / map.size), row = Math.floor((e.clientY - box.top) / map.size);
    const tile = column < map.columns ? row * map.columns + column : -1;
    pointAt(map, tile >= 0 && tile < map.tiles.length ? tile : -1, false);
  });
  canvas.addEventListener("pointerleave", () => pointAt(map, -1, false));
  canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && pointAt(map, Math.max(0, map.cursor), true));
  canvas.addEventListener("blur", () => pointAt(map, -1, false));
  canvas.addEventListener("keydown", (e) => {
    const last = map.tiles.length - 1, at = Math.max(0, map.cursor);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + map.columns, ArrowUp: at - map.columns,
                 Home: 0, End: last, PageDown: at + 8 * map.columns, PageUp: at - 8 * map.columns }[e.key];
    if (to !== undefined) {
      e.preventDefault();
      pointAt(map, Math.max(0, Math.min(last, to)), true);
    } else if (e.key === "Escape") {
      pointAt(map, -1, false);
    }
  });
  maps.push(map);
  return el("figure", {}, caption, canvas);
}

/* What a tile is, as lines of text. */
function describeTile(map, at) {
  const tile = map.tiles[at];
  const { group } = map;
  const first = at * group.cells_per_tile, last = Math.min(group.shown, first + group.cells_per_tile) - 1;
  const what = group.kind === "recurrent" ? "State" : "Cell";
  const where = first === last ? `${what} ${count(first)}` : `${what}s ${count(first)} to ${count(last)}`;
  if (!tile) return ["Free", where];
  if (tile.sequence === OTHERS) return ["Somebody else's", where, "What it holds is theirs alone."];
  if (tile.sequence === KEPT) return ["Kept by a checkpoint", where];
  const sequence = look.sequences[tile.sequence];
  if (!sequence) return [where];
  const end = tile.position + tile.used - 1;
  const lines = [conversationName(sequence.conversation), `sequence ${sequence.id}, position${tile.used > 1 ? `s ${count(tile.position)} to ${count(end)}` : ` ${count(tile.position)}`}`,
                 sequence.is_running ? "being written" : `used ${ago(sequence.age_seconds)}`];
  if (tile.shared > 0) {
    const among = [...new Set(tile.by.map((i) => look.sequences[i].conversation))].sort((a, b) => a - b).filter((c) => c > 0);
    const which = among.length > 1 && among.length <= 8 ? ` (conversations ${among.join(", ")})` : "";
    lines.push(`shared by ${many(tile.holders, "sequence")}${which}, stored once`);
  }
  if (tile.checkpoint !== null) lines.push(`a checkpoint lies behind position ${count(tile.checkpoint - 1)}`);
  lines.push(where);
  return lines;
}

function pointAt(map, at, isKeyboard) {
  map.cursor = at;
  const tip = by("tip");
  const sequence = at >= 0 && map.tiles[at] ? look.sequences[map.tiles[at].sequence] : null;
  light(sequence ? { conversation: sequence.conversation, id: sequence.conversation > 0 ? null : sequence.id } : null);
  tip.hidden = at < 0;
  if (at < 0) return;
  const [title, ...lines] = describeTile(map, at);
  tip.replaceChildren(el("b", {}, title), ...lines.map((line) => el("div", {}, line)));
  if (isKeyboard) by("spoken").textContent = [title, ...lines].join(", ");
  const box = map.canvas.getBoundingClientRect();
  const x = box.left + (at % map.columns) * map.size, y = box.top + Math.floor(at / map.columns) * map.size;
  const left = Math.max(6, Math.min(innerWidth - tip.offsetWidth - 6, x + map.size / 2 - tip.offsetWidth / 2));
  const above = y - tip.offsetHeight - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 4 ? above : y + map.size + 8}px`;
}

const isLit = (sequence) => lit && sequence && (lit.id ? sequence.id === lit.id : sequence.conversation === lit.conversation);

function light(what) {
  if (JSON.stringify(what) === JSON.stringify(lit)) {
    drawAll();
    return;
  }
  lit = what;
  for (const row of document.querySelectorAll("[data-conversation]")) {
    row.classList.toggle("lit", !!lit && (lit.id ? row.dataset.sequence === String(lit.id) : row.dataset.conversation === String(lit.conversation)));
  }
  drawAll();
}

function drawAll() {
  for (const map of maps) draw(map);
}

function layOut(map) {
  const width = map.canvas.parentElement.clientWidth;
  let size = 16;
  const rows = (s) => Math.ceil(map.tiles.length / Math.max(1, Math.floor(width / s)));
  while (size > 5 && rows(size) * size > 300) size--;
  map.size = size;
  map.columns = Math.max(1, Math.floor(width / size));
  const height = Math.ceil(map.tiles.length / map.columns) * size, scale = devicePixelRatio || 1;
  if (map.canvas.width !== Math.round(width * scale) || map.canvas.height !== Math.round(height * scale)) {
    map.canvas.width = Math.round(width * scale);
    map.canvas.height = Math.round(height * scale);
    map.canvas.style.height = `${height}px`;
  }
  const pen = map.canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

function draw(map) {
  if (!map.tiles) return;
  const pen = layOut(map), gap = map.size > 8 ? 2 : 1, side = map.size - gap;
  const now = performance.now();
  let isMoving = false;
  map.tiles.forEach((tile, at) => {
    const x = (at % map.columns) * map.size, y = Math.floor(at / map.columns) * map.size;
    drawTile(pen, tile, x, y, side);
    const young = 1 - (now - map.since[at]) / 900;
    if (tile && map.since[at] > 0 && young > 0 && !calm.matches) {
      isMoving = true;
      pen.globalAlpha = young * 0.85;
      pen.fillStyle = colour["--mark"];
      box(pen, x, y, side);
    }
    pen.globalAlpha = 1;
    if (at === map.cursor) {
      pen.strokeStyle = colour["--mark"];
      pen.lineWidth = 2;
      pen.strokeRect(x, y, side, side);
    }
  });
  if (isMoving && !map.frame) {
    map.frame = requestAnimationFrame(() => { map.frame = 0; draw(map); });
  }
}

function box(pen, x, y, side) {
  pen.beginPath();
  pen.roundRect(x, y, side, side, side > 7 ? 2.5 : 1);
  pen.fill();
}

function drawTile(pen, tile, x, y, side) {
  pen.globalAlpha = 1;
  pen.fillStyle = colour["--free"];
  box(pen, x, y, side);
  if (!tile) return;
  const sequence = look.sequences[tile.sequence];
  if (tile.sequence === OTHERS) {
    pen.strokeStyle = colour["--others"];
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x + 1, y + side - 1);
    pen.lineTo(x + side - 1, y + 1);
    pen.stroke();
    return;
  }
  const held = tile.by.map((i) => look.sequences[i]);
  /* The further on in its sequence, the stronger: so its order can be seen. */
  const far = sequence && tile.position >= 0 ? (tile.position + tile.used) / Math.max(1, sequence.tokens) : 1;
  pen.globalAlpha = lit && !isLit(sequence) && !held.some(isLit) ? 0.15 : tile.shared > 0 ? 1 : 0.55 + 0.45 * Math.min(1, far);
  /* Two conversations that share a cell have a half of it each; a dot stands for more, or for two of one. */
  const first = sequence ? sequence.conversation : 0;
  const others = new Set(held.map((s) => s.conversation).filter((c) => c !== first));
  pen.fillStyle = colourOf(first);
  box(pen, x, y, side);
  if (others.size > 0) {
    pen.fillStyle = colourOf([...others][0]);
    pen.beginPath();
    pen.moveTo(x + side, y);
    pen.lineTo(x + side, y + side);
    pen.lineTo(x, y + side);
    pen.fill();
  }
  if (side > 5 && (others.size > 1 || (others.size === 0 && tile.shared > 0))) {
    pen.fillStyle = colour["--mark"];
    pen.beginPath();
    pen.arc(x + side / 2, y + side / 2, Math.max(1, side / 8), 0, 7);
    pen.fill();
  }
  if (tile.checkpoint !== null || tile.sequence === KEPT) {
    pen.fillStyle = colour["--mark"];
    pen.fillRect(x + side - Math.max(2, side / 4), y, Math.max(2, side / 4), side);
  }
}

new ResizeObserver(drawAll).observe(by("groups"));

/* ---- what is kept ---- */

const tierNames = { live: "cells", ram: "RAM", disk: "disk" };

function sequenceRow(sequence) {
  const its = { conversation: sequence.conversation, id: sequence.conversation > 0 ? null : sequence.id };
  const dot = el("i.dot");
  dot.style.background = `var(${colourName(sequence.conversation)})`;
  const tier = sequence.is_running ? "writing" : tierNames[sequence.tier];
  const also = sequence.tier !== "disk" && sequence.disk_bytes > 0 ? " + disk" : "";
  const size = sequence.bytes || sequence.ram_bytes || sequence.disk_bytes;
  const name = sequence.conversation > 0 ? `${sequence.conversation}` : "stored";
  const forget = el("button", { type: "button", "aria-label": `Forget sequence ${sequence.id}`, onclick: () => forgetSequence(sequence.id) }, "Forget");
  return el("tr", {
    "data-conversation": sequence.conversation, "data-sequence": sequence.id,
    onpointerenter: () => light(its), onpointerleave: () => light(null),
  },
  el("td", {}, el("button", { type: "button", "aria-label": `${conversationName(sequence.conversation)}, sequence ${sequence.id}: show its cells`,
    onfocus: () => light(its), onblur: () => light(null) }, dot, name)),
  el("td", {}, el(`span.tier.${tier}`, {}, tier + also)),
  el("td", {}, count(sequence.tokens)),
  el("td", {}, sequence.shared_cells > 0 ? many(sequence.shared_cells, "cell") : "\u2013"),
  el("td", {}, sequence.n_checkpoints > 0 ? count(sequence.n_checkpoints) : "\u2013"),
  el("td", {}, size > 0 ? bytes(size) : "\u2013"),
  el("td", {}, sequence.is_running ? "now" : ago(sequence.age_seconds)),
  el("td", {}, sequence.hits > 0 ? (sequence.hits === 1 ? "once" : `${count(sequence.hits)} times`) : "\u2013"),
  el("td", {}, sequence.is_running ? "" : forget));
}

/* Put new rows in the place of old ones; the focus stays where it was. */
function replaceRows(parent, rows, keyOf) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const row = focused && focused.closest("[data-row]");
  const nth = row ? [...row.querySelectorAll("button")].indexOf(focused) : -1;
  parent.replaceChildren(...rows);
  rows.forEach((r, i) => { r.dataset.row = keyOf(i); });
  if (row) {
    const again = rows.find((r) => r.dataset.row === row.dataset.row);
    const button = again && again.querySelectorAll("button")[nth];
    if (button) button.focus({ preventScroll: true });
  }
}

function showSequences() {
  const ageOf = (s) => (s.is_running ? -2 : s.age_seconds < 0 ? Infinity : s.age_seconds);
  const sorted = [...look.sequences].sort((a, b) => ageOf(a) - ageOf(b));
  by("kept").textContent = look.n_sequences > sorted.length
    ? `${count(sorted.length)} of ${many(look.n_sequences, "sequence")}`
    : many(sorted.length, "sequence");
  by("nothing").hidden = sorted.length > 0;
  by("sequences").hidden = sorted.length === 0;
  const rows = sorted.map(sequenceRow);
  replaceRows(by("sequences").tBodies[0], rows, (i) => String(sorted[i].id));
  if (lit) relight();
}

function relight() {
  const what = lit;
  lit = null;
  light(what);
}

async function forgetSequence(id) {
  const response = await ask(`cache/${id}`, { method: "DELETE" });
  by("spoken").textContent = response.ok ? `Sequence ${id} is forgotten.` : await errorOf(response);
  lookSoon(0);
}

/* ---- prompts ---- */

function eventRow(event, whole) {
  const its = { conversation: event.conversation, id: null };
  const when = new Date(event.time_ms).toLocaleTimeString([], { hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const text = `${count(event.reused)} of ${count(event.prompt_tokens)}, ${event.reason}`;
  const more = `${conversationName(event.conversation)}, from ${places[event.source]}. ${reasonText(event)} ` +
    `Read ${count(event.prompt_tokens - event.reused)} in ${time(event.read_ms)}, wrote ${count(event.written)} in ${time(event.write_ms)}` +
    `${event.wait_ms >= 10 ? `, waited ${time(event.wait_ms)}` : ""}${event.set_aside > 0 ? ", set aside for a while" : ""}.`;
  return el("li", {}, el("button", {
    type: "button", title: more, "aria-label": `${when}: ${text}. ${more}`, "data-conversation": event.conversation,
    onpointerenter: () => light(its), onpointerleave: () => light(null), onfocus: () => light(its), onblur: () => light(null),
  }, el("span.quiet", {}, when), bar(partsOf(event, whole), event.conversation), el("span.quiet.reason", {}, text)));
}

let shownEvents = "";

function showTimeline() {
  const { events } = look;
  const mark = JSON.stringify(events.slice(0, 64).map((e) => [e.number, e.state, e.written]));
  if (mark === shownEvents) return;
  shownEvents = mark;
  const shown = events.slice(0, 64);
  const whole = Math.max(1, ...shown.map((e) => e.prompt_tokens + e.written));
  replaceRows(by("timeline"), shown.map((e) => eventRow(e, whole)), (i) => String(shown[i].number));
  const sum = (f) => events.reduce((n, e) => n + f(e), 0);
  const asked = sum((e) => e.prompt_tokens);
  by("rate").textContent = events.length === 0
    ? "Each prompt will be a line here: what of it was in memory, and why no more."
    : `${Math.round((100 * sum((e) => e.reused)) / asked)} % of the tokens of the last ${many(events.length, "prompt")} did not have to be read.`;
}

/* Reading one token takes this server so long, going by the prompts it shows; 0: not known. */
function msToRead() {
  const read = look.events.filter((e) => e.state !== "running" && e.prompt_tokens - e.reused >= 4);
  const tokens = read.reduce((n, e) => n + e.prompt_tokens - e.reused, 0);
  return tokens > 0 ? read.reduce((n, e) => n + e.read_ms, 0) / tokens : 0;
}

let shownLast = "";

function showLast() {
  if (!look) return;
  const event = look.events[0];
  const mark = event ? [event.number, event.state].join() : "none";
  if (mark === shownLast) return;
  shownLast = mark;
  if (!event) {
    by("last").replaceChildren(el("p.quiet", {}, "The last prompt"), el("p.figure", {}, "Nothing read yet"),
      el("p.quiet.why", {}, "What a prompt has in common with one before is not read again. You will see here how much that was."));
    return;
  }
  const percent = Math.floor((100 * event.reused) / event.prompt_tokens), read = event.prompt_tokens - event.reused;
  const spared = event.reused * msToRead();
  const dot = el("i.dot");
  dot.style.background = `var(${colourName(event.conversation)})`;
  by("last").replaceChildren(
    el("p.quiet", {}, "The last prompt ", dot, ` ${conversationName(event.conversation)}`),
    el("div.line", {}, el("p.figure", {}, event.reused > 0 ? `${percent} % was in memory` : "Read from the start"),
      el("p.quiet", {}, event.reused > 0 && spared >= 1 ? `about ${time(spared)} of reading spared` : "")),
    bar(partsOf(event, event.prompt_tokens + event.written), event.conversation),
    el("p.why", {}, event.reused > 0 ? `${many(event.reused, "token")} came from ${places[event.source]}; ` : "",
      `${many(read, "token")} ${read === 1 ? "was" : "were"} read${event.state === "running" ? "" : ` in ${time(event.read_ms)}`}. ${reasonText(event)}`));
}

/* ---- conversations ---- */

const talks = [];
let current = null;

function newTalk(messages) {
  const talk = { messages: messages || [], conversation: 0, tokens: 0 };
  talks.push(talk);
  current = talk;
  showTabs();
  showLog();
  return talk;
}

const titleOf = (talk) => (talk.messages[0] ? talk.messages[0].content : "New");

function showTabs() {
  by("tabs").replaceChildren(...talks.map((talk) => {
    const dot = el("i.dot");
    if (talk.conversation > 0) dot.style.background = `var(${colourName(talk.conversation)})`;
    return el("button", {
      type: "button", "aria-pressed": String(talk === current), title: titleOf(talk).slice(0, 200), disabled: writing !== null && talk !== current,
      onclick: () => { current = talk; showTabs(); showLog(); by("say").focus(); },
    }, dot, el("span", {}, titleOf(talk).slice(0, 40)));
  }));
  const pressed = by("tabs").querySelector("[aria-pressed=true]"), box = by("tabs");
  box.scrollLeft = pressed.offsetLeft - box.offsetLeft - 3;
}

function showRoom() {
  if (look) by("room").textContent = current.tokens > 0 ? `${count(current.tokens)} of ${many(look.n_ctx, "token")}` : "";
}

function figures(message) {
  const { usage, timings, cellar } = message.report;
  const event = { reused: usage.prompt_tokens_details.cached_tokens, prompt_tokens: usage.prompt_tokens, written: usage.completion_tokens };
  const whole = Math.max(1, event.prompt_tokens + event.written);
  const pace = timings.predicted_per_second > 0 ? ` at ${count(timings.predicted_per_second)}/s` : "";
  const reason = reasonText({ ...cellar, diverged_at: cellar.diverged_at });
  const parted = cellar.diverged_text ? ` There the prompt says \u201c${cellar.diverged_text.trim().slice(0, 60)}\u201d.` : "";
  return el("div.figures", { title: reason + parted }, bar(partsOf(event, whole), cellar.conversation),
    el("p.quiet", {}, `${count(event.reused)} of ${count(event.prompt_tokens)} from memory, read ${count(event.prompt_tokens - event.reused)} in ` +
      `${time(timings.prompt_ms)}, wrote ${count(event.written)}${pace}. ${reason}${parted}`));
}

function messageView(message, at) {
  const said = el("div.said", {}, message.content);
  if (message.role === "user") {
    return el("div.user", {}, said, el("button", { type: "button", onclick: () => branchAt(at) }, "Try another way"));
  }
  const view = el("div.assistant", {}, said);
  if (current.conversation > 0) said.style.borderColor = `var(${colourName(current.conversation)})`;
  view.classList.toggle("writing", message.isWriting === true);
  if (message.report) view.append(figures(message));
  if (message.wrong) view.append(el("p.error", {}, message.wrong));
  if (message.note) view.append(el("p.quiet.note", {}, message.note));
  return view;
}

function showLog() {
  const log = by("log");
  if (current.messages.length === 0) {
    log.replaceChildren(el("div.empty", {}, el("strong", {}, "Say something"),
      "Then watch where it goes: each token that is read takes one cell of the memory on the other side. What is said next goes on from there."));
  } else {
    log.replaceChildren(...current.messages.map(messageView));
  }
  log.scrollTop = log.scrollHeight;
  showRoom();
}

/* A conversation that has everything before a message in common with this one. */
function branchAt(at) {
  if (writing) return;
  const { content } = current.messages[at];
  newTalk(current.messages.slice(0, at).map(({ role, content: text }) => ({ role, content: text })));
  by("say").value = content;
  by("say").focus();
  by("say").select();
}

/* Give each event of a stream of server-sent events to `take_event`. */
async function readEvents(body, take_event) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") take_event(JSON.parse(line.slice(6)));
    }
  }
}

/* One event of an answer. */
function hear(talk, message, event) {
  if (event.error) throw new Error(event.error.message);
  const choice = event.choices && event.choices[0];
  if (choice && choice.delta && choice.delta.content) {
    message.content += choice.delta.content;
    const view = talk === current && by("log").lastElementChild;
    if (view) {
      const log = by("log"), isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
      view.firstElementChild.textContent = message.content;
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    }
  }
  if (choice && choice.finish_reason === "length") message.note = "It ends here because it was as long as it might be.";
  if (event.usage && event.cellar) {
    message.report = { usage: event.usage, timings: event.timings, cellar: event.cellar };
    talk.conversation = event.cellar.conversation || 0;
    talk.tokens = event.usage.total_tokens;
  }
}

function setWriting(controller) {
  writing = controller;
  by("send").disabled = controller !== null;
  by("stop").hidden = controller === null;
  by("new").disabled = controller !== null;
  showTabs();
}

async function send(text) {
  const talk = current;
  talk.messages.push({ role: "user", content: text });
  const system = by("system").value.trim();
  const messages = talk.messages.filter((m) => m.content).map(({ role, content }) => ({ role, content }));
  if (system) messages.unshift({ role: "system", content: system });
  const message = { role: "assistant", content: "", isWriting: true };
  talk.messages.push(message);
  setWriting(new AbortController());
  showLog();
  lookSoon(60);
  try {
    const response = await ask("v1/chat/completions", {
      method: "POST", signal: writing.signal, headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        messages, stream: true, stream_options: { include_usage: true },
        max_tokens: Math.max(1, Number(by("most").value) || 120), temperature: Math.max(0, Number(by("temperature").value) || 0),
      }),
    });
    if (response.status === 401) askForKey();
    if (!response.ok) throw new Error(await errorOf(response));
    await readEvents(response.body, (event) => hear(talk, message, event));
  } catch (wrong) {
    if (wrong.name === "AbortError") message.note = "Stopped. What was read is kept.";
    else message.wrong = wrong instanceof TypeError ? "The server does not answer." : wrong.message;
  }
  message.isWriting = false;
  setWriting(null);
  showLog();
  lookSoon(0);
}

by("composer").addEventListener("submit", (e) => {
  e.preventDefault();
  const text = by("say").value.trim();
  if (!text || writing) return;
  by("say").value = "";
  send(text);
});
by("say").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    by("composer").requestSubmit();
  }
});
by("stop").addEventListener("click", () => writing && writing.abort());
by("new").addEventListener("click", () => {
  if (current.messages.length > 0) newTalk();
  by("say").focus();
});

newTalk();
applyTheme();
lookNow();
