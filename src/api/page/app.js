// The page at / of allostat: reads this agent's API and nothing else. All text from outside enters the page as text nodes.
"use strict";
(() => {
const $ = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// ---- Elements

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    // "true" and "false" are values of ARIA; of other attributes it matters whether they are there.
    const aria = name.startsWith("aria-");
    if (value === undefined || value === null || (value === false && !aria)) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true && !aria ? "" : String(value));
  }
  node.append(...children.filter(child => child !== undefined && child !== null && child !== false));
  return node;
}
function svg(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, String(value));
  return node;
}
function setText(node, text) { if (node.textContent !== text) node.textContent = text; }
function setAttr(node, name, value) {
  if (value === null || value === undefined) { if (node.hasAttribute(name)) node.removeAttribute(name); }
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}
// Control characters and marks that reorder text are shown as such, so that no name can imitate another.
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const printable = text => String(text ?? "").replace(UNSAFE, "\ufffd");
function announce(text) { $("announce").textContent = text; }

// ---- Numbers

const digits = n => n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2);
function bytes(n, per = "") {
  if (n === null || n === undefined) return "–";
  const sign = n < 0 ? "−" : "";
  n = Math.abs(n);
  if (n < 1024) return `${sign}${n.toFixed(0)} B${per}`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let at = -1;
  do { n /= 1024; at++; } while (n >= 999.5 && at < units.length - 1);
  return `${sign}${digits(n)} ${units[at]}${per}`;
}
const rate = n => bytes(n, "/s");
function cores(n) {
  if (n === null || n === undefined) return "–";
  return n < 0.0005 ? "0" : n < 0.1 ? n.toFixed(3) : digits(n);
}
function percent(n) {
  if (n === null || n === undefined) return "–";
  n *= 100;
  return n === 0 ? "0%" : n < 0.1 ? "<0.1%" : `${n < 10 ? n.toFixed(1) : n.toFixed(0)}%`;
}
function span(seconds) {
  if (!(seconds >= 0)) return "–";
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}
const clock = ns => new Date(ns / 1e6).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const when = ns => new Date(ns / 1e6).toLocaleString([], { hour12: false });
const ago = ns => `${span(Math.max(0, (state.now - ns) / 1e9))} ago`;
const SIGNALS = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS".split(" ");

/** How an attempt ended, in the words of `src/model/exit_text.rs`. */
function ended(exit) {
  if (!exit) return "";
  const status = exit.status && typeof exit.status === "object" ? exit.status : {};
  const onRequest = exit.outcome === "killed";
  if ("not_started" in status) return onRequest ? "stopped before it started" : `not started: ${printable(status.not_started)}`;
  if ("unknown" in status) return `lost: ${printable(status.unknown)}`;
  if (exit.outcome === "oom") return "OOM killed";
  if ("code" in status) return onRequest ? `stopped on request (exit ${status.code})` : `exit ${status.code}`;
  if (onRequest) return "stopped on request";
  const name = SIGNALS[status.signal - 1];
  return name ? `signal ${status.signal} (SIG${name})` : `signal ${status.signal}`;
}
const isBadEnd = exit => !!exit && !["success", "killed"].includes(exit.outcome);

// ---- State

const state = {
  now: Date.now() * 1e6, taken: 0, epoch: 0, rows: new Map(), order: [], host: {}, hostBefore: null, series: new Map(), seriesDoc: null,
  view: "workloads", find: "", source: "", alert: "", sort: "memory", down: true, active: "", open: null, devices: null, ended: null,
  leftOut: 0,
};
const key = (alloc, task) => `${alloc}\n${task}`;

// ---- The agent

const tags = new Map();
/** null: nothing has changed since the last answer. */
async function get(path) {
  const headers = tags.has(path) ? { "if-none-match": tags.get(path) } : {};
  const answer = await fetch(path, { headers, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(15000) });
  if (answer.status === 304) return null;
  if (!answer.ok) {
    const why = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(why.message || `the agent answers ${answer.status}`), { status: answer.status });
  }
  const tag = answer.headers.get("etag");
  if (tag) tags.set(path, tag);
  return answer.json();
}

// ---- From documents to rows

const per = (now, before, time) => now === null || now === undefined || before === null || before === undefined || now < before || time <= 0 ? null : (now - before) / time;
const FIELDS = ["cpu_usage_ns", "cpu_cfs_periods", "cpu_cfs_throttled_periods", "io_read_bytes", "io_written_bytes", "network_receive_bytes", "network_transmit_bytes", "pressure_cpu_some_ns", "pressure_memory_some_ns", "pressure_io_some_ns"];
const share = n => n === null ? null : Math.min(1, n);

function read(doc) {
  state.now = doc.taken_at;
  if (doc.epoch < state.epoch) { state.rows.clear(); state.hostBefore = null; }
  state.epoch = doc.epoch;
  const at = Object.fromEntries(doc.fields.map((name, place) => [name, place]));
  const seen = new Set();
  state.order = [];
  for (const one of doc.tasks) {
    const id = key(one.alloc_id, one.task);
    const of = name => { const value = one.usage[at[name]]; return value === undefined ? null : value; };
    const lives = !one.state || one.state === "running" || one.state === "killing";
    if (one.state === "dead") continue;
    const row = state.rows.get(id) || { key: id, alloc: one.alloc_id, task: one.task, rates: {}, before: null };
    seen.add(id);
    state.rows.set(id, row);
    state.order.push(row);
    row.source = one.source;
    row.job = one.job || "";
    row.group = one.group || "";
    row.of = one.of;
    row.state = one.state || "";
    row.since = one.state_since ?? null;
    row.restarts = one.restarts ?? null;
    row.exit = one.last_exit || null;
    row.lives = lives;
    if (row.title === undefined) nameRow(row);
    const quota = of("cpu_quota_us"), period = of("cpu_period_us");
    row.cpuLimit = quota !== null && period > 0 ? quota / period : null;
    row.memory = lives ? of("memory_working_set_bytes") ?? of("memory_rss_bytes") : null;
    row.memoryLimit = of("memory_limit_bytes");
    row.peak = of("memory_peak_bytes") ?? of("memory_sampled_peak_bytes") ?? of("max_rss_bytes");
    row.swap = lives ? of("memory_swap_bytes") : null;
    row.oomKills = of("oom_kills");
    row.pids = lives ? of("pids_current") ?? of("processes") : null;
    row.cpuSeconds = of("cpu_usage_ns") === null ? null : of("cpu_usage_ns") / 1e9;
    const read = one.sampled_at ? Math.max(one.sampled_at, one.measured === "cgroup" ? doc.ticked_at : 0) : 0;
    if (!lives) { row.rates = {}; row.before = null; }
    else if (read && (!row.before || read > row.before.read)) {
      const now = { read };
      for (const name of FIELDS) now[name] = of(name);
      if (row.before) row.rates = rates(row.before, now);
      row.before = now;
    }
    withCurve(row);
  }
  for (const id of state.rows.keys()) if (!seen.has(id)) state.rows.delete(id);
  readHost(doc);
  countAlerts();
}
/** Before there are two readings its rate is that of its newest point. */
function withCurve(row) {
  const curve = state.series.get(row.key);
  row.cpu = row.rates.cpu ?? (row.lives && !row.before?.had && curve ? lastOf(curve.cpu_cores) : null);
  row.growth = curve?.memory_growth_bytes_per_hour ?? null;
}
function rates(before, now) {
  const time = now.read - before.read;
  const of = name => per(now[name], before[name], time);
  const periods = of("cpu_cfs_periods"), throttled = of("cpu_cfs_throttled_periods");
  const second = n => n === null ? null : n * 1e9;
  now.had = true;
  return {
    cpu: of("cpu_usage_ns"), throttled: periods > 0 && throttled !== null ? Math.min(1, throttled / periods) : null,
    read: second(of("io_read_bytes")), written: second(of("io_written_bytes")),
    received: second(of("network_receive_bytes")), sent: second(of("network_transmit_bytes")),
    waits: ["cpu", "memory", "io"].map(what => share(of(`pressure_${what}_some_ns`))),
  };
}
const lastOf = values => { for (let n = (values || []).length - 1; n >= 0; n--) if (values[n] !== null) return values[n]; return null; };
function nameRow(row) {
  const observed = row.source !== "managed";
  const named = row.alloc.startsWith(`${row.source}:`) ? row.alloc.slice(row.source.length + 1) : row.alloc;
  row.title = printable(observed ? (row.of > 1 ? `${named}/${row.task}` : named) : row.job && row.job !== row.task ? `${row.job}/${row.task}` : row.task);
  row.short = printable(observed ? row.job && row.job !== named ? row.job : "" : row.alloc.slice(0, 8));
  row.words = `${row.title} ${row.job} ${row.group} ${row.task} ${row.alloc} ${row.source}`.toLowerCase();
}
function readHost(doc) {
  const host = doc.host, before = state.hostBefore;
  if (!before || doc.ticked_at > before.at) {
    const time = before ? doc.ticked_at - before.at : 0;
    const of = name => before ? per(host[name], before.host[name], time) : null;
    const second = n => n === null ? null : n * 1e9;
    state.host = {
      name: host.hostname, cpus: host.cpus, busy: of("cpu_busy_ns"), waits: ["cpu", "memory", "io"].map(what => share(of(`pressure_${what}_some_ns`))),
      received: second(of("network_receive_bytes")), sent: second(of("network_transmit_bytes")),
    };
    state.hostBefore = { at: doc.ticked_at, host };
  }
  state.host.total = host.memory_total_bytes ?? null;
  state.host.used = host.memory_total_bytes && host.memory_available_bytes !== undefined ? host.memory_total_bytes - host.memory_available_bytes : null;
  state.host.swap = host.swap_used_bytes ?? null;
  state.host.devices = doc.devices;
}

// ---- What needs attention

const ALERTS = {
  restarting: { word: "restarting", level: "bad", is: row => row.state === "backoff" },
  oom: { word: "OOM killed", title: "in the last hour", level: "bad", is: row => row.exit?.outcome === "oom" && state.now - row.exit.finished_at < 3.6e12 },
  memory: { word: "near the limit", title: "at 90% of the memory limit or more", level: "bad", is: row => row.memoryLimit > 0 && row.memory / row.memoryLimit >= 0.9 },
  throttled: { word: "throttled", title: "in 25% of CPU periods or more", level: "warn", is: row => row.rates.throttled >= 0.25 },
  waiting: { word: "pressure", title: "waits for CPU, memory or I/O in 20% of the time or more", level: "warn", is: row => Math.max(...(row.rates.waits || [0]).map(n => n ?? 0)) >= 0.2 },
};
const alerts = {};
function countAlerts() {
  for (const [name, alert] of Object.entries(ALERTS)) alerts[name] = state.order.filter(alert.is).length;
}

// ---- Columns

const worst = row => { let at = -1; (row.rates.waits || []).forEach((n, place) => { if (n !== null && (at < 0 || n > row.rates.waits[at])) at = place; }); return at; };
const sum = (a, b) => a === null && b === null || a === undefined && b === undefined ? null : (a ?? 0) + (b ?? 0);
const COLUMNS = [
  { id: "name", head: "Workload", by: row => row.title.toLowerCase(), up: true },
  { id: "cpu", head: "CPU", by: row => row.cpu, title: "Cores in use, and the limit" },
  { id: "memory", head: "Memory", by: row => row.memory, title: "Working set; bar: part of the limit, with the peak" },
  { id: "growth", head: "Growth/h", by: row => row.growth, title: "Growth of memory in an hour, by the kept hour" },
  { id: "throttled", head: "Throttled", by: row => row.rates.throttled, title: "Share of CPU periods in which the quota held it" },
  { id: "pressure", head: "Pressure", by: row => { const at = worst(row); return at < 0 ? null : row.rates.waits[at]; }, title: "Share of time in which it waited for CPU, memory or I/O (PSI); the largest" },
  { id: "io", head: "Disk I/O", by: row => sum(row.rates.read, row.rates.written), title: "Read and written" },
  { id: "network", head: "Network", by: row => sum(row.rates.received, row.rates.sent), title: "Received and sent, where it has a network of its own" },
  { id: "restarts", head: "Restarts", by: row => row.restarts },
  { id: "age", head: "Since", by: row => row.since === null ? null : -row.since, title: "Time in the present state" },
];
const column = id => COLUMNS.find(one => one.id === id);

function shown() {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  const alert = ALERTS[state.alert];
  const rows = state.order.filter(row => (!state.source || row.source === state.source) && (!alert || alert.is(row)) && words.every(word => row.words.includes(word)));
  const { by } = column(state.sort), way = state.down ? -1 : 1;
  const keyed = rows.map(row => [by(row), row]);
  // Absent is below everything, whichever way is sorted.
  keyed.sort(([a, x], [b, y]) => {
    const none = v => v === null || v === undefined;
    if (none(a) || none(b)) return none(a) && none(b) ? x.words < y.words ? -1 : 1 : none(a) ? 1 : -1;
    return a < b ? -way : a > b ? way : x.words < y.words ? -1 : 1;
  });
  return keyed.map(([, row]) => row);
}

// ---- Curves

/** Lines with gaps where a value is absent. */
function paths(values, xs, y, floor) {
  let line = "", area = "", start = null, last = null;
  const close = () => { if (start !== null && start !== last) area += `L${last} ${floor}L${start} ${floor}Z`; else if (start !== null) line += "h.01"; start = null; };
  values.forEach((value, at) => {
    if (value === null || value === undefined || at > 0 && xs.gap?.(at)) { close(); if (value === null || value === undefined) return; }
    const x = xs(at).toFixed(1), point = `${x} ${y(value).toFixed(1)}`;
    if (start === null) { line += `M${point}`; area += `M${point}`; start = x; } else { line += `L${point}`; area += `L${point}`; }
    last = x;
  });
  close();
  return { line, area };
}
function spark(node, values, kind, most) {
  const width = 100, height = 26;
  if (!node.firstChild) {
    setAttr(node, "viewBox", `0 0 ${width} ${height}`); setAttr(node, "preserveAspectRatio", "none"); setAttr(node, "aria-hidden", "true");
    node.append(svg("path", { class: `area ${kind}` }), svg("path", { class: `line ${kind}` }));
  }
  const top = Math.max(most || 0, ...(values || []).map(v => v ?? 0)) || 1;
  const count = Math.max((values || []).length, 2);
  const xs = at => at / (count - 1) * width;
  const { line, area } = paths(values || [], xs, v => height - 1.5 - v / top * (height - 4), height);
  setAttr(node.firstChild, "d", area); setAttr(node.lastChild, "d", line);
}

// ---- Host

const cards = {};
function card(id, title, wide) {
  if (cards[id]) return cards[id];
  const head = el("span"), side = el("span"), big = el("p", { class: "big" }), curve = svg("svg", {});
  const node = el("section", { class: wide ? "card wide" : "card", "aria-label": title }, el("h2", null, head, side), big, curve);
  head.textContent = title;
  $("host").append(node);
  return cards[id] = { node, side, big, curve };
}
function big(one, value, rest) {
  if (!one.value) { one.value = el("span"); one.rest = el("small"); one.big.append(one.value, " ", one.rest); }
  setText(one.value, value); setText(one.rest, rest);
}
function trio(one, parts) {
  if (!one.parts) {
    one.big.className = "trio";
    one.parts = parts.map(([name]) => { const value = el("b"); one.big.append(el("span", null, el("span", null, `${name} `), value)); return value; });
  }
  parts.forEach(([, text], at) => setText(one.parts[at], text));
}
function drawHost() {
  const curves = state.seriesDoc?.host || {}, host = { ...state.host };
  host.busy ??= lastOf(curves.cpu_cores);
  host.waits = host.waits.map((wait, at) => wait ?? lastOf(curves[`${["cpu", "memory", "io"][at]}_pressure_ratio`]));
  host.received ??= lastOf(curves.network_receive_bytes_per_second);
  host.sent ??= lastOf(curves.network_transmit_bytes_per_second);
  setText($("hostname"), printable(host.name || ""));
  document.title = host.name ? `${printable(host.name)} · allostat` : "allostat";
  const cpu = card("cpu", "CPU");
  big(cpu, host.busy === null ? "–" : digits(host.busy), `of ${host.cpus} cores`);
  setText(cpu.side, host.busy === null ? "" : percent(host.busy / host.cpus));
  hostCurve(cpu, [[curves.cpu_cores, "cpu"]], host.cpus);
  const memory = card("memory", "Memory");
  big(memory, bytes(host.used), host.total ? `of ${bytes(host.total)}${host.swap ? `, swap ${bytes(host.swap)}` : ""}` : "");
  setText(memory.side, host.used === null ? "" : percent(host.used / host.total));
  hostCurve(memory, [[curves.memory_bytes, "memory"]], host.total);
  const waits = card("pressure", "Pressure");
  trio(waits, ["CPU", "mem", "I/O"].map((name, at) => [name, percent(host.waits[at])]));
  hostCurve(waits, [[curves.cpu_pressure_ratio, "cpu"], [curves.memory_pressure_ratio, "third"], [curves.io_pressure_ratio, "write"]], 0.1);
  const network = card("network", "Network");
  trio(network, [["in", rate(host.received)], ["out", rate(host.sent)]]);
  hostCurve(network, [[curves.network_receive_bytes_per_second, "read"], [curves.network_transmit_bytes_per_second, "write"]], 0);
  drawAlerts();
}
function hostCurve(one, lines, most) {
  if (one.drawn === state.seriesDoc) return;
  one.drawn = state.seriesDoc;
  const times = state.seriesDoc?.host.times || [], width = 300, height = 40;
  one.curve.replaceChildren();
  setAttr(one.curve, "viewBox", `0 0 ${width} ${height}`); setAttr(one.curve, "preserveAspectRatio", "none"); setAttr(one.curve, "aria-hidden", "true");
  const top = Math.max(most || 0, ...lines.flatMap(([values]) => values || []).map(v => v ?? 0)) || 1;
  const xs = timed(times, width, 0);
  for (const [values, kind] of lines) {
    const { line, area } = paths(values || [], xs, v => height - 1.5 - v / top * (height - 4), height);
    one.curve.append(svg("path", { class: `area ${kind}`, d: area }), svg("path", { class: `line ${kind}`, d: line }));
  }
}
/** Where a point lies in time: the right end is now, the left one an hour ago. A longer pause is a gap. */
function timed(times, width, left) {
  const kept = state.seriesDoc?.kept_ns || 3.6e12, end = times[times.length - 1] || state.now, pause = (state.seriesDoc?.interval_ns || 1e10) * 3;
  const xs = at => left + Math.max(0, 1 - (end - times[at]) / kept) * (width - left);
  xs.gap = at => times[at] - times[at - 1] > pause;
  return xs;
}
function drawAlerts() {
  const one = card("alerts", "Attention", true);
  if (one.curve.parentNode) { one.curve.remove(); one.big.remove(); one.list = el("div", { class: "alerts", role: "group", "aria-label": "Filter by problem" }); one.node.append(one.list); }
  const found = Object.entries(ALERTS).filter(([name]) => alerts[name] > 0 || state.alert === name);
  const text = JSON.stringify([found.map(([name]) => [name, alerts[name]]), state.alert]);
  setText(one.side, `${state.order.length} running`);
  if (one.text === text) return;
  one.text = text;
  const focus = one.list.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  one.list.replaceChildren(...found.map(([name, alert]) => el("button", { type: "button", class: `chip of-${alert.level}`, title: alert.title, "data-name": name, "aria-pressed": state.alert === name, onclick: () => { state.alert = state.alert === name ? "" : name; show("workloads"); } }, `${alerts[name]} ${alert.word}`)));
  if (!found.length) one.list.append(el("p", null, "Nothing"));
  if (focus) one.list.querySelector(`[data-name="${focus}"]`)?.focus();
}

// ---- The table of workloads

let table = null;
const rowHeight = 46;
function makeTable() {
  const heads = COLUMNS.map(one => el("th", { scope: "col", class: `c-${one.id}`, "aria-sort": "none", title: one.title }, el("button", { type: "button", onclick: () => sortBy(one.id) }, one.head)));
  const body = el("tbody"), above = el("tr", { class: "pad", "aria-hidden": true }, el("td")), below = el("tr", { class: "pad", "aria-hidden": true }, el("td"));
  const node = el("table", null, el("caption", { class: "hidden" }, "Running workloads of this host"), el("thead", null, el("tr", null, ...heads)), body);
  body.append(above, below);
  table = { node, body, above, below, heads, made: new Map(), view: [] };
  node.addEventListener("keydown", onTableKey);
  return table;
}
function makeRow(row) {
  const dot = el("span", { class: "dot", "aria-hidden": true }), name = el("bdi"), link = el("a", { class: "name", href: address(row), tabindex: -1 }, dot, name);
  const why = el("span"), rest = el("bdi"), sub = el("span", { class: "sub" }, why, rest);
  const cpuCurve = svg("svg", { class: "spark" }), cpu = el("span"), cpuRest = el("div", { class: "tiny" });
  const memoryCurve = svg("svg", { class: "spark" }), memory = el("span"), memoryRest = el("span", { class: "tiny c-extra" }), fill = el("i"), peak = el("b"), meter = el("div", { class: "meter" }, fill, peak), summary = el("span", { class: "hidden" });
  const cells = Object.fromEntries(["growth", "throttled", "pressure", "io", "network", "restarts", "age"].map(id => [id, el("td", { class: `c-${id}` })]));
  const node = el("tr", { class: "row" }, el("th", { scope: "row", class: "c-name" }, link, sub),
    el("td", { class: "c-cpu" }, el("div", { class: "pair" }, cpuCurve, el("div", { class: "value" }, cpu, cpuRest))),
    el("td", { class: "c-memory" }, el("div", { class: "pair" }, memoryCurve, el("div", { class: "stack" }, memory, memoryRest, summary, meter))), ...Object.values(cells));
  node.addEventListener("click", event => { if (!event.target.closest("a") && !getSelection().toString()) location.hash = link.hash; });
  link.addEventListener("focus", () => { state.active = row.key; });
  return { node, link, dot, name, why, rest, cpuCurve, cpu, cpuRest, memoryCurve, memory, memoryRest, fill, peak, meter, summary, cells };
}
const address = row => `#/${encodeURIComponent(row.alloc)}/${encodeURIComponent(row.task)}`;
const level = part => part >= 0.9 ? "bad" : part >= 0.75 ? "warn" : "good";
function reason(row) {
  if (row.state === "backoff") return [`restarting after ${ended(row.exit) || "its end"}`, "bad"];
  if (row.state && row.state !== "running") return [row.state, "warn"];
  if (row.exit && isBadEnd(row.exit) && state.now - row.exit.finished_at < 3.6e12) return [`${ended(row.exit)} ${ago(row.exit.finished_at)}`, row.exit.outcome === "oom" ? "bad" : "warn"];
  return ["", ""];
}
function drawRow(made, row, index) {
  setAttr(made.node, "aria-rowindex", index + 2);
  setAttr(made.node, "aria-current", state.open && state.open.key === row.key ? "true" : null);
  setAttr(made.link, "tabindex", row.key === state.active ? 0 : -1);
  setAttr(made.dot, "data-state", row.state || "running");
  setText(made.name, row.title);
  setAttr(made.link, "title", row.title);
  const [why, tone] = reason(row);
  setText(made.why, why ? `${why} · ` : "");
  setAttr(made.why, "class", tone);
  setText(made.rest, [row.source, row.short].filter(Boolean).join(" · "));
  const curve = state.series.get(row.key);
  if (made.drawn !== curve || made.limit !== row.cpuLimit) {
    made.drawn = curve; made.limit = row.cpuLimit;
    spark(made.cpuCurve, curve?.cpu_cores, "cpu", 0.02);
    spark(made.memoryCurve, curve?.memory_bytes, "memory", 1);
  }
  setText(made.cpu, cores(row.cpu));
  setText(made.cpuRest, row.cpuLimit === null ? "" : `of ${digits(row.cpuLimit)}`);
  setText(made.memory, bytes(row.memory));
  const limit = row.memoryLimit > 0 ? row.memoryLimit : null, part = limit && row.memory !== null ? row.memory / limit : null;
  setText(made.memoryRest, limit ? ` / ${bytes(limit)}` : "");
  made.meter.hidden = part === null;
  if (part !== null) {
    setAttr(made.meter, "data-level", level(part));
    made.fill.style.width = `${Math.min(100, part * 100).toFixed(1)}%`;
    const peak = row.peak === null ? null : Math.min(1, row.peak / limit);
    made.peak.hidden = peak === null;
    if (peak !== null) made.peak.style.left = `calc(${(peak * 100).toFixed(1)}% - 1px)`;
  }
  const peakText = row.peak === null ? "" : `peak ${bytes(row.peak)}`;
  setText(made.summary, part === null ? `, no limit${peakText && `, ${peakText}`}` : `, ${percent(part)} of the limit${peakText && `, ${peakText}`}`);
  setAttr(made.meter.parentNode, "title", [limit ? `limit ${bytes(limit)}` : "no limit", peakText].filter(Boolean).join(", "));
  const { growth, throttled, pressure, io, network, restarts, age } = made.cells;
  setText(growth, row.growth === null ? "–" : Math.abs(row.growth) < Math.max(1 << 20, (row.memory ?? 0) / 200) ? "0" : `${row.growth > 0 ? "+" : ""}${bytes(row.growth)}`);
  setText(throttled, row.rates.throttled === undefined ? "–" : percent(row.rates.throttled));
  setAttr(throttled, "class", `c-throttled ${row.rates.throttled >= 0.25 ? "warn" : ""}`);
  const at = worst(row), wait = at < 0 ? null : row.rates.waits[at];
  setText(pressure, wait === null ? "–" : wait < 0.0005 ? "0%" : `${["CPU", "mem", "I/O"][at]} ${percent(wait)}`);
  setAttr(pressure, "class", `c-pressure ${wait >= 0.2 ? "warn" : ""}`);
  const flow = (a, b) => { const all = sum(a, b); return all === null ? "–" : all < 1 ? "0" : rate(all); };
  setText(io, flow(row.rates.read, row.rates.written));
  setText(network, flow(row.rates.received, row.rates.sent));
  setText(restarts, row.restarts === null ? "–" : String(row.restarts));
  setText(age, row.since === null ? "–" : span((state.now - row.since) / 1e9));
}
/** Only the rows near the screen are in the document: a thousand cost as much as thirty. */
function drawTable() {
  if (state.view !== "workloads") return;
  if (!table) makeTable();
  const view = table.view = shown();
  const content = $("content");
  const wanted = view.length ? table.node : null;
  if (!wanted) {
    if (table.node.parentNode || !content.firstChild) content.replaceChildren(el("p", { class: "empty" }, state.taken ? "No running workload matches." : "Loading."));
    else setText(content.firstChild, state.taken ? "No running workload matches." : "Loading.");
    return;
  }
  if (table.node.parentNode !== content) content.replaceChildren(table.node);
  table.heads.forEach((head, at) => setAttr(head, "aria-sort", COLUMNS[at].id !== state.sort ? "none" : state.down ? "descending" : "ascending"));
  setAttr(table.node, "aria-rowcount", view.length + 1);
  if (!view.some(row => row.key === state.active)) state.active = view[0].key;
  drawWindow();
}
function drawWindow() {
  const { view, body, above, below, made } = table;
  const top = table.node.getBoundingClientRect().top + 30;
  const first = Math.max(0, Math.min(view.length - 1, Math.floor(-top / rowHeight) - 6));
  const last = Math.min(view.length, first + Math.ceil(innerHeight / rowHeight) + 14);
  const focus = body.contains(document.activeElement) ? state.active : "";
  const wanted = new Set();
  let place = above.nextSibling;
  for (let index = first; index < last; index++) {
    const row = view[index];
    wanted.add(row.key);
    let one = made.get(row.key);
    if (!one || one.row !== row) { one?.node.remove(); if (one && place === one.node) place = above.nextSibling; one = Object.assign(makeRow(row), { row }); made.set(row.key, one); }
    drawRow(one, row, index);
    if (place === one.node) place = place.nextSibling;
    else body.insertBefore(one.node, place && place.parentNode === body ? place : below);
  }
  for (const [id, one] of made) if (!wanted.has(id)) { one.node.remove(); made.delete(id); }
  above.firstChild.style.height = `${first * rowHeight}px`;
  below.firstChild.style.height = `${(view.length - last) * rowHeight}px`;
  if (focus && !body.contains(document.activeElement)) made.get(focus)?.link.focus({ preventScroll: true });
}
function sortBy(id) {
  if (state.sort === id) state.down = !state.down;
  else { state.sort = id; state.down = !column(id).up; }
  $("sort").value = id;
  announce(`Sorted by ${column(id).head}, ${state.down ? "descending" : "ascending"}`);
  drawTable();
}
function goTo(index) {
  const view = table?.view || [];
  if (!view.length) return;
  index = Math.max(0, Math.min(view.length - 1, index));
  state.active = view[index].key;
  const tabs = document.querySelector(".tabs").offsetHeight + 34;
  const top = table.node.getBoundingClientRect().top + 30 + index * rowHeight;
  if (top < tabs) scrollBy(0, top - tabs);
  else if (top + rowHeight > innerHeight) scrollBy(0, top + rowHeight - innerHeight + 8);
  drawWindow();
  table.made.get(state.active)?.link.focus({ preventScroll: true });
}
const activeIndex = () => (table?.view || []).findIndex(row => row.key === state.active);
function onTableKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const page = Math.max(1, Math.floor(innerHeight / rowHeight) - 3);
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 }[event.key];
  if (step === undefined || !table.body.contains(event.target)) return;
  event.preventDefault();
  goTo(activeIndex() + step);
}

// ---- Ended

function drawEnded() {
  const content = $("content");
  if (!state.ended) { content.replaceChildren(el("p", { class: "empty" }, "Loading.")); return; }
  if (state.ended.why) { content.replaceChildren(el("p", { class: "empty" }, printable(state.ended.why))); return; }
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = state.ended.rows.filter(row => (!state.source || row.source === state.source) && words.every(word => row.words.includes(word)));
  setText($("count-ended"), String(state.ended.rows.length) + (state.ended.more ? "+" : ""));
  if (!rows.length) { content.replaceChildren(el("p", { class: "empty" }, "No ended workload matches.")); return; }
  const head = (text, kind) => el("th", { scope: "col", class: kind }, el("div", { class: "text" }, text));
  const focus = content.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const body = rows.map(row => el("tr", null,
    el("th", { scope: "row", class: "c-name" }, el("a", { class: "name", href: address(row) }, el("span", { class: "dot", "data-state": row.bad ? "failed" : "", "aria-hidden": true }), el("bdi", { title: row.title }, row.title)), el("span", { class: "sub" }, el("bdi", null, `${row.source} · ${row.short}`))),
    el("td", { class: `text ${row.bad ? "bad" : ""}` }, row.how),
    el("td", { class: "c-age" }, el("time", { datetime: new Date(row.at / 1e6).toISOString(), title: when(row.at) }, ago(row.at))),
    el("td", { class: "c-restarts" }, row.ran === null ? "–" : span(row.ran / 1e9)),
    el("td", { class: "c-io" }, bytes(row.peak)),
    el("td", { class: "c-growth" }, row.cpu === null ? "–" : `${digits(row.cpu)} s`),
    el("td", { class: "c-restarts" }, row.restarts === null ? "–" : String(row.restarts))));
  content.replaceChildren(el("table", { class: "ended" }, el("caption", { class: "hidden" }, "Ended workloads, newest first"),
    el("thead", null, el("tr", null, head("Workload", "c-name"), head("How it ended", "c-how"), head("Ended", "c-age"), head("Ran for", "c-restarts"), head("Peak memory", "c-io"), head("CPU time", "c-growth"), head("Restarts", "c-restarts"))), el("tbody", null, ...body)));
  if (focus) [...content.querySelectorAll("a")].find(one => one.getAttribute("href") === focus)?.focus({ preventScroll: true });
}
function readEnded(doc) {
  const rows = doc.ended.map(one => {
    const { alloc, stats } = one, names = Object.keys(alloc.tasks || {});
    const exits = names.map(name => alloc.tasks[name].last_exit).filter(Boolean);
    const exit = exits.find(isBadEnd) || exits[exits.length - 1] || null;
    const usage = stats?.usage || {};
    const begun = Math.min(...names.map(name => alloc.tasks[name].started_at ?? Infinity), alloc.created_at ?? Infinity);
    const job = alloc.job || "", managed = alloc.source === "managed";
    const restarts = names.map(name => alloc.tasks[name].restarts).filter(n => n !== undefined);
    const task = names.find(name => isBadEnd(alloc.tasks[name].last_exit)) || names[names.length - 1] || "";
    return {
      alloc: alloc.id, task, at: one.ended_at, source: alloc.source, title: printable(managed ? alloc.name || job : alloc.id.replace(`${alloc.source}:`, "")), short: printable(managed ? alloc.id.slice(0, 8) : job),
      words: `${alloc.id} ${alloc.name} ${job} ${names.join(" ")} ${alloc.source}`.toLowerCase(),
      how: exit ? ended(exit) : printable(alloc.description || alloc.status || "ended"), bad: exit ? isBadEnd(exit) : alloc.status === "failed",
      ran: Number.isFinite(begun) ? one.ended_at - begun : null, peak: usage.memory_peak_bytes ?? usage.memory_sampled_peak_bytes ?? usage.max_rss_bytes ?? null,
      cpu: usage.cpu_usage_ns === undefined ? null : usage.cpu_usage_ns / 1e9, restarts: restarts.length ? restarts.reduce((a, b) => a + b, 0) : null,
    };
  });
  state.ended = { rows, more: doc.has_more };
}

// ---- Devices

function drawDevices() {
  const content = $("content"), doc = state.devices;
  if (!doc) { content.replaceChildren(el("p", { class: "empty" }, "Loading.")); return; }
  const wanted = doc.devices.filter(one => JSON.stringify([one.name, one.id, one.tasks]).toLowerCase().includes(state.find.toLowerCase()));
  if (!wanted.length) { content.replaceChildren(el("p", { class: "empty" }, doc.devices.length ? "No device matches." : "This host has no device that the agent follows. ")); return; }
  content.replaceChildren(el("div", { class: "devices" }, ...wanted.map(deviceCard)));
}
function deviceCard(one) {
  const values = one.values || {}, used = values.memory_used_bytes, total = values.memory_total_bytes;
  const fact = (name, text) => text && el("div", null, el("dt", null, name), el("dd", null, text));
  const busy = typeof values.utilization_ratio === "object" ? Object.values(values.utilization_ratio)[0] : values.utilization_ratio;
  const number = (value, unit) => typeof value === "number" ? `${digits(value)} ${unit}` : null;
  const temperature = typeof values.temperature_celsius === "object" ? Object.values(values.temperature_celsius)[0] : values.temperature_celsius;
  const part = typeof used === "number" && total > 0 ? used / total : null, fill = el("i");
  if (part !== null) fill.style.width = `${(part * 100).toFixed(1)}%`;
  const holders = (one.tasks || []).map(of => {
    const row = state.rows.get(key(of.alloc_id, of.task));
    const name = row ? row.title : printable(`${of.alloc_id}/${of.task}`);
    return el("li", null, row ? el("a", { href: address(row) }, el("bdi", null, name)) : el("bdi", null, name), el("span", { class: "muted" }, [of.reserved ? " reserved" : "", typeof of.memory_used_bytes === "number" ? ` ${bytes(of.memory_used_bytes)}` : ""].join("")));
  });
  return el("section", { class: "card", "aria-label": printable(one.name || one.id) },
    el("h3", null, el("bdi", null, printable(one.name || one.type)), el("span", { class: one.healthy && one.up ? "tiny good" : "tiny bad" }, !one.up ? "unavailable" : one.healthy ? "healthy" : "unhealthy")),
    el("p", { class: "mono muted" }, el("bdi", null, printable(one.id))),
    el("dl", { class: "facts" }, fact("In use", typeof busy === "number" ? percent(busy) : null), fact("Memory", part === null ? null : `${bytes(used)} of ${bytes(total)}`), fact("Power", number(values.power_watts, "W")), fact("Temperature", number(temperature, "°C"))),
    part === null ? null : el("div", { class: "meter", "data-level": level(part) }, fill),
    holders.length ? el("ul", { "aria-label": "Held by" }, ...holders) : el("p", { class: "muted" }, "Held by no task"));
}

// ---- One workload

const CHARTS = [
  { id: "cpu", title: "CPU", unit: cores, lines: [["cpu_cores", "cpu", "cores"]], limit: row => row?.cpuLimit, low: 0.02 },
  { id: "memory", title: "Memory", unit: bytes, lines: [["memory_bytes", "memory", "in use"]], limit: row => row?.memoryLimit, peak: row => row?.peak, low: 1 << 20 },
  { id: "throttled", title: "CPU throttling", unit: percent, lines: [["cpu_throttled_ratio", "write", "of periods"]], low: 0.1 },
  { id: "pressure", title: "Pressure", unit: percent, lines: [["cpu_pressure_ratio", "cpu", "CPU"], ["memory_pressure_ratio", "third", "memory"], ["io_pressure_ratio", "write", "I/O"]], low: 0.1 },
  { id: "io", title: "Disk I/O", unit: rate, lines: [["io_read_bytes_per_second", "read", "read"], ["io_written_bytes_per_second", "write", "written"]], low: 1024 },
  { id: "network", title: "Network", unit: rate, lines: [["network_receive_bytes_per_second", "read", "received"], ["network_transmit_bytes_per_second", "write", "sent"]], low: 1024 },
];
function openDetail(alloc, task) {
  const id = key(alloc, task);
  if (state.open?.key === id) return;
  state.open = { key: id, alloc, task, history: null, info: null, from: document.activeElement };
  const close = el("button", { type: "button", class: "plain", "aria-label": "Close the details", onclick: closeDetail }, "Close");
  const title = el("h2", { tabindex: -1 }, el("bdi")), facts = el("dl", { class: "facts" }), log = el("div"), charts = el("div"), why = el("p");
  $("detail").replaceChildren(el("div", { class: "detail-head" }, title, close), why, facts, charts, log);
  Object.assign(state.open, { title, facts, log, charts, why });
  $("detail").hidden = false;
  document.querySelector(".split").classList.add("open");
  document.body.classList.add("reading");
  drawDetail();
  drawTable();
  title.focus({ preventScroll: true });
  if (innerWidth <= 1100) scrollTo(0, 0);
  pollDetail();
}
function closeDetail() {
  const from = state.open?.from;
  state.open = null;
  $("detail").hidden = true;
  document.querySelector(".split").classList.remove("open");
  document.body.classList.remove("reading");
  history.replaceState(null, "", viewAddress());
  drawTable();
  if (from?.isConnected) from.focus({ preventScroll: true });
}
async function pollDetail() {
  const open = state.open;
  if (!open) return;
  const path = `/v1/allocs/${encodeURIComponent(open.alloc)}`;
  const [past, info] = await Promise.allSettled([get(`${path}/history`), get(path)]);
  if (state.open !== open) return;
  if (past.status === "fulfilled") open.history = past.value || open.history;
  else open.noHistory = past.reason.message;
  if (info.status === "fulfilled") open.info = info.value || open.info;
  open.gone = info.status === "rejected" && info.reason.status === 404;
  if (open.gone && !open.recorded) await readRecord(open, path.slice("/v1/allocs/".length));
  if (state.open !== open) return;
  drawDetail();
  drawCharts();
}
/** Of an alloc that was collected: the record of its end. */
async function readRecord(open, id) {
  try {
    const doc = await get(`/v1/history?limit=10&id=${id}`);
    open.recorded = doc?.ended.find(one => one.alloc.id === open.alloc)?.alloc ?? null;
    if (open.recorded) open.info = open.recorded;
  } catch { /* not recorded */ }
}
function drawDetail() {
  const open = state.open;
  if (!open) return;
  const row = state.rows.get(open.key), info = open.info, task = info?.tasks?.[open.task];
  setText(open.title.firstChild, row ? row.title : printable(`${info?.job || open.alloc}/${open.task}`));
  const exit = row?.exit || task?.last_exit;
  const why = row ? reason(row) : open.gone && !open.recorded ? ["It has ended and was collected", "muted"] : task ? [`${task.state === "dead" ? "ended" : task.state || ""}${exit ? `: ${ended(exit)}` : ""}`, isBadEnd(exit) ? "bad" : "muted"] : ["", ""];
  setText(open.why, why[0]);
  setAttr(open.why, "class", why[1]);
  const facts = [
    ["State", row ? row.state || "running" : task?.state], ["Since", row?.since ? `${span((state.now - row.since) / 1e9)}` : null],
    ["CPU", row ? `${cores(row.cpu)}${row.cpuLimit === null ? "" : ` of ${digits(row.cpuLimit)} cores`}` : null],
    ["Memory", row ? `${bytes(row.memory)}${row.memoryLimit > 0 ? ` of ${bytes(row.memoryLimit)}` : ""}` : null],
    ["Peak memory", row?.peak ? bytes(row.peak) : null], ["Growth in an hour", row && row.growth !== null ? bytes(row.growth) : null],
    ["Swap", row?.swap ? bytes(row.swap) : null], ["CPU time", row && row.cpuSeconds !== null ? `${digits(row.cpuSeconds)} s` : null],
    ["Processes", row?.pids ? String(row.pids) : null], ["Restarts", row && row.restarts !== null ? String(row.restarts) : null],
    ["OOM kills", row?.oomKills ? String(row.oomKills) : null], ["Source", row?.source || info?.source], ["Job", info?.job || row?.job], ["Group", info?.group], ["Driver", task?.driver], ["Image", task?.image],
    ["Devices", held(open)], ["Alloc", open.alloc],
  ].filter(([, text]) => text !== null && text !== undefined && text !== "");
  const text = JSON.stringify(facts);
  if (open.text !== text) {
    open.text = text;
    open.facts.replaceChildren(...facts.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", { class: name === "Alloc" || name === "Image" ? "mono" : null }, el("bdi", null, printable(value))))));
  }
  const exits = [...(task?.exits || [])].reverse().slice(0, 10), last = [task?.last_exit, ...exits].find(one => one?.last_output)?.last_output;
  const shownExits = JSON.stringify([exits, last, task?.last_exit]);
  if (open.shownExits !== shownExits) {
    open.shownExits = shownExits;
    open.log.replaceChildren(...lastOutput(last, task?.last_exit, open), ...(exits.length ? [el("div", { class: "chart" }, el("h3", null, "Ends of earlier attempts"), el("ol", { class: "log" }, ...exits.map(one => el("li", null,
      el("time", { datetime: new Date(one.finished_at / 1e6).toISOString() }, when(one.finished_at)), el("span", { class: isBadEnd(one) ? "bad" : null }, ended(one)), el("span", { class: "muted" }, `attempt ${one.attempt}`)))))] : []));
  }
}
/** The last lines of stderr, which only the owner of the agent may read: over its socket, or with a token or certificate. */
function lastOutput(last, exit, open) {
  if (last) {
    const text = last.text.replaceAll("\t", "    ").split("\n").map(printable).join("\n");
    return [el("section", { class: "chart" }, el("h3", null, last.cut ? "Last lines of stderr" : "stderr"), el("pre", { class: "output mono", role: "region", "aria-label": "Last output", tabindex: 0 }, text))];
  }
  if (!isBadEnd(exit)) return [];
  return [el("p", { class: "muted" }, "No last output is recorded, or this connection may not read it: ", el("code", null, printable(`allostat history ${open.alloc}`)))];
}
function held(open) {
  const names = (state.devices?.devices || []).filter(one => (one.tasks || []).some(of => of.alloc_id === open.alloc && of.task === open.task)).map(one => one.name || one.id);
  return names.length ? names.join(", ") : null;
}
function drawCharts() {
  const open = state.open, curves = open.history?.tasks?.[open.task], row = state.rows.get(open.key);
  if (!curves) {
    open.charts.replaceChildren(el("p", { class: "muted" }, printable(open.noHistory || (open.history ? "No point was recorded of it yet." : "Loading its last hour."))));
    open.made = null;
    return;
  }
  const focus = open.charts.contains(document.activeElement) ? document.activeElement.dataset.chart : null;
  const width = Math.max(240, open.charts.clientWidth || 480);
  const wanted = CHARTS.filter(one => one.lines.some(([name]) => curves[name]));
  open.charts.replaceChildren(...wanted.map(one => chart(one, curves, open.history.times, row, width)));
  if (focus) open.charts.querySelector(`[data-chart="${focus}"]`)?.focus({ preventScroll: true });
}
/** The next round number of its unit. */
function roundUp(n, unit) {
  const base = unit === bytes || unit === rate ? 1024 ** Math.max(0, Math.floor(Math.log(n) / Math.log(1024))) : 1;
  n /= base;
  const power = 10 ** Math.floor(Math.log10(n));
  return ([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find(step => step * power >= n * 0.9999) || 10) * power * base;
}
function chart(one, curves, times, row, width) {
  const height = innerWidth >= 1800 ? 150 : 118, left = 72, bottom = 18, top = 6;
  const lines = one.lines.filter(([name]) => curves[name]);
  const highest = Math.max(one.low, ...lines.flatMap(([name]) => curves[name]).map(v => v ?? 0));
  const limit = one.limit?.(row) || null, peak = one.peak?.(row) || null;
  // A limit far above everything would press the curve flat.
  const hasLimit = limit !== null && limit <= highest * 5, hasPeak = peak !== null && peak <= highest * 3;
  const most = roundUp(Math.max(highest, hasLimit ? limit : 0, hasPeak ? peak : 0), one.unit);
  const xs = timed(times, width - 4, left), y = v => height - bottom - v / most * (height - bottom - top);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "data-chart": one.id });
  for (const part of [0, 0.5, 1]) {
    drawing.append(svg("line", { class: "grid", x1: left, x2: width - 4, y1: y(most * part), y2: y(most * part) }));
    const label = svg("text", { x: left - 6, y: y(most * part) + 4, "text-anchor": "end" });
    label.textContent = one.unit(most * part);
    drawing.append(label);
  }
  const end = times[times.length - 1] || state.now;
  for (const minutes of [60, 45, 30, 15, 0]) {
    const label = svg("text", { x: left + (1 - minutes / 60) * (width - 4 - left), y: height - 3, "text-anchor": minutes === 60 ? "start" : minutes === 0 ? "end" : "middle" });
    label.textContent = new Date(end / 1e6 - minutes * 60000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
    drawing.append(label);
  }
  const across = (value, kind) => drawing.append(svg("line", { class: `line ${kind}`, x1: left, x2: width - 4, y1: y(value), y2: y(value) }));
  if (hasPeak) across(peak, "peak");
  if (hasLimit) across(limit, "limit");
  for (const [name, kind] of lines) {
    const { line, area } = paths(curves[name], xs, y, height - bottom);
    if (lines.length === 1) drawing.append(svg("path", { class: `area ${kind}`, d: area }));
    drawing.append(svg("path", { class: `line ${kind}`, d: line }));
  }
  const cross = svg("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
  drawing.append(cross);
  const legend = el("ul", { class: "legend" }), stamp = el("time");
  const shows = lines.map(([name, kind, word]) => { const value = el("b"); legend.append(el("li", null, el("i", { class: kind }), `${word} `, value)); return [name, value]; });
  if (limit !== null) legend.append(el("li", null, el("i", { class: "limit" }), "limit ", el("b", null, one.unit(limit))));
  if (peak !== null) legend.append(el("li", null, el("i", { class: "peak" }), "peak ", el("b", null, one.unit(peak))));
  let at = times.length - 1;
  const point = (place, moved) => {
    at = Math.max(0, Math.min(times.length - 1, place));
    for (const [name, value] of shows) setText(value, one.unit(curves[name][at]));
    setText(stamp, moved ? clock(times[at]) : "");
    setAttr(cross, "visibility", moved ? "visible" : "hidden");
    setAttr(cross, "x1", xs(at)); setAttr(cross, "x2", xs(at));
    if (moved === "key") announce(`${clock(times[at])}: ${lines.map(([name, , word]) => `${word} ${one.unit(curves[name][at])}`).join(", ")}`);
  };
  point(at, "");
  drawing.addEventListener("pointermove", event => {
    const box = drawing.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
    let best = 0;
    times.forEach((_, place) => { if (Math.abs(xs(place) - x) < Math.abs(xs(best) - x)) best = place; });
    point(best, "pointer");
  });
  const leave = () => point(times.length - 1, "");
  drawing.addEventListener("pointerleave", leave);
  drawing.addEventListener("blur", leave);
  drawing.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -1e9, End: 1e9 }[event.key];
    if (!step) return;
    event.preventDefault();
    point(at + step, "key");
  });
  const described = lines.map(([name, , word]) => { const known = curves[name].filter(v => v !== null); return `${word} now ${one.unit(lastOf(curves[name]))}, at least ${one.unit(Math.min(...known))}, at most ${one.unit(Math.max(...known))}`; });
  setAttr(drawing, "aria-label", `${one.title} in the last hour: ${described.join("; ")}. Arrow keys read single points.`);
  return el("section", { class: "chart" }, el("h3", null, el("span", null, one.title), stamp), drawing, legend);
}

// ---- Views, filters, theme

const VIEWS = ["workloads", "ended", "devices"];
const viewAddress = () => state.view === "workloads" ? location.pathname : `#${state.view}`;
function show(view) {
  state.view = view;
  if (!state.open) history.replaceState(null, "", viewAddress());
  if (view !== "workloads") state.alert = "";
  for (const name of VIEWS) { const tab = $(`tab-${name}`); setAttr(tab, "aria-selected", name === view); setAttr(tab, "tabindex", name === view ? 0 : -1); }
  setAttr($("content"), "aria-labelledby", `tab-${view}`);
  draw();
  if (view === "ended") pollEnded(); else if (view === "devices") pollDevices();
}
function draw() {
  if (!state.taken) return;
  drawHost();
  drawSources();
  setText($("count-workloads"), String(state.order.length));
  setText($("count-devices"), String(state.host.devices ?? ""));
  if (state.view === "workloads") drawTable(); else if (state.view === "ended") drawEnded(); else drawDevices();
  drawDetail();
}
function drawSources() {
  const counts = new Map();
  const rows = state.view === "ended" ? state.ended?.rows || [] : state.view === "devices" ? [] : state.order;
  for (const row of rows) counts.set(row.source, (counts.get(row.source) || 0) + 1);
  if (state.source && !counts.has(state.source)) counts.set(state.source, 0);
  const all = [...counts].sort(([a], [b]) => a === "managed" ? -1 : b === "managed" ? 1 : a < b ? -1 : 1);
  const text = JSON.stringify([all, state.source]);
  if (drawSources.text === text) return;
  drawSources.text = text;
  const box = $("sources"), focus = box.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  box.replaceChildren(...(all.length < 2 && !state.source ? [] : all.map(([name, count]) => el("button", { type: "button", class: "chip", "data-name": name, "aria-pressed": state.source === name, onclick: () => { state.source = state.source === name ? "" : name; draw(); announce(state.source ? `Only ${name}` : "All sources"); } }, name, " ", el("span", { class: "count" }, String(count))))));
  if (focus) [...box.children].find(one => one.dataset.name === focus)?.focus();
}
const THEMES = ["auto", "light", "dark"];
function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
  setText($("theme"), `Theme: ${theme}`);
  try { localStorage.setItem("allostat-theme", theme); } catch { /* not stored: it is auto again next time */ }
}
function storedTheme() { try { return THEMES.find(one => one === localStorage.getItem("allostat-theme")) || "auto"; } catch { return "auto"; } }
function nextTheme() { const now = document.documentElement.dataset.theme || "auto"; setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]); }

// ---- Polling: not while the page is hidden

const polls = { timer: 0, failed: 0, running: false, series: -1e9, slow: -1e9, node: -1e9 };
function live(kind, text) { const node = $("live"); if (node.dataset.state !== kind && kind !== "wait") announce(kind === "on" ? "Connected" : text); setAttr(node, "data-state", kind); setText(node, text); }
async function poll() {
  clearTimeout(polls.timer);
  if (document.hidden || polls.running) return;
  polls.running = true;
  try {
    const began = performance.now(), slow = began - polls.slow > 15000;
    const doc = await get("/v1/tasks");
    if (doc) { state.taken = doc.taken_at; read(doc); draw(); }
    if (began - polls.series > 30000) pollSeries();
    if (began - polls.node > 60000) { polls.node = began; pollNode(); }
    if (slow) { polls.slow = began; pollDetail(); if (state.view === "ended") pollEnded(); if (state.host.devices > 0 || state.view === "devices") pollDevices(); }
    polls.failed = 0;
    live("on", `updated ${clock(state.now)}`);
  } catch (error) {
    polls.failed++;
    live("off", error.status ? error.message : "no answer from the agent, retrying");
  }
  polls.running = false;
  const each = state.order.length > 250 ? 5000 : 2000;
  polls.timer = setTimeout(poll, polls.failed ? Math.min(15000, 1000 * 2 ** polls.failed) : each);
}
async function pollSeries() {
  polls.series = performance.now();
  try {
    const doc = await get("/v1/history/series");
    if (!doc) return;
    state.seriesDoc = doc;
    state.leftOut = doc.left_out_tasks;
    state.series = new Map(doc.tasks.map(one => [key(one.alloc_id, one.task), one]));
    state.order.forEach(withCurve);
    draw();
  } catch { /* without curves: the values are there */ }
}
async function pollEnded() {
  try { const doc = await get("/v1/history?limit=200"); if (doc) readEnded(doc); }
  catch (error) { state.ended = { rows: [], why: error.message }; }
  if (state.view === "ended") draw();
}
/** What this host is, and what cannot be measured here: it changes seldom. */
async function pollNode() {
  let node;
  try { node = await get("/v1/node"); } catch { return; }
  if (!node) return;
  const missing = (node.capabilities || []).filter(one => !one.available);
  const facts = [`Linux ${node.kernel}`, `cgroup ${node.cgroup_mode}`, node.booted_at ? `up ${span((node.taken_at - node.booted_at) / 1e9)}` : "", `${node.totals?.allocs ?? 0} allocs so far`];
  setText($("node-facts"), printable(facts.filter(Boolean).join(" · ")));
  $("node").hidden = false;
  $("missing").hidden = !missing.length;
  setText($("missing").firstElementChild, `${missing.length} values cannot be measured on this host`);
  $("missing-list").replaceChildren(...missing.map(one => el("div", null, el("dt", { class: "mono" }, printable(one.feature)), el("dd", null, el("bdi", null, printable([one.reason, one.instead].filter(Boolean).join("; ")))))));
}
async function pollDevices() {
  try { const doc = await get("/v1/devices"); if (doc) state.devices = doc; } catch { return; }
  if (state.view === "devices") draw();
}

// ---- Begin

function route() {
  const [begin, alloc, task] = location.hash.split("/");
  const view = begin.slice(1);
  if (VIEWS.includes(view) && view !== state.view) show(view);
  if (begin !== "#" || !task) { if (state.open) closeDetail(); return; }
  try { openDetail(decodeURIComponent(alloc), decodeURIComponent(task)); } catch { /* an address that is none */ }
}
$("sort").append(...COLUMNS.map(one => el("option", { value: one.id }, one.head)));
$("sort").value = state.sort;
$("sort").addEventListener("change", event => { state.sort = ""; sortBy(event.target.value); });
$("find").addEventListener("input", event => { state.find = event.target.value; draw(); });
$("theme").addEventListener("click", nextTheme);
$("help-open").addEventListener("click", () => $("help").showModal());
for (const name of VIEWS) $(`tab-${name}`).addEventListener("click", () => show(name));
document.querySelector('[role="tablist"]').addEventListener("keydown", event => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = VIEWS[(VIEWS.indexOf(state.view) + step + 3) % 3];
  show(next);
  $(`tab-${next}`).focus();
});
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "Escape") {
    if (typing && state.find) { $("find").value = state.find = ""; draw(); }
    else if (typing) event.target.blur();
    else if (state.open) closeDetail();
    return;
  }
  if (typing) return;
  const next = () => COLUMNS[(COLUMNS.findIndex(one => one.id === state.sort) + 1) % COLUMNS.length].id;
  const action = {
    "/": () => $("find").focus(), "?": () => $("help").showModal(), t: nextTheme, 1: () => show("workloads"), 2: () => show("ended"), 3: () => show("devices"),
    j: () => goTo(table?.body.contains(document.activeElement) ? activeIndex() + 1 : activeIndex()), k: () => goTo(activeIndex() - 1), s: () => sortBy(next()), S: () => sortBy(state.sort),
  }[event.key];
  if (action) { event.preventDefault(); action(); }
});
addEventListener("hashchange", route);
addEventListener("scroll", () => { if (state.view === "workloads" && table?.node.isConnected && !drawWindow.due) { drawWindow.due = true; requestAnimationFrame(() => { drawWindow.due = false; if (table.node.isConnected) drawWindow(); }); } }, { passive: true });
const measure = () => document.documentElement.style.setProperty("--tabs-height", `${document.querySelector(".tabs").offsetHeight}px`);
new ResizeObserver(measure).observe(document.querySelector(".tabs"));
let resized = 0;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => { drawTable(); if (state.open?.history) drawCharts(); }, 150); });
document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(polls.timer); else poll(); });
setTheme(storedTheme());
route();
poll();
})();
