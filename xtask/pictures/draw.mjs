// Draws boards, and programs on terminals: builds the pages once, serves them on 127.0.0.1, opens each in a Chromium and takes its picture.
//
//     node draw.mjs '{"from": MS, "to": MS, "out": DIR,
//                     "boards": [{"file": PATH, "prometheus": "http://127.0.0.1:9090", "every": SECONDS,
//                                 "chosen": {VARIABLE: "how its text begins"}, "empty": [TITLE],
//                                 "cut": {"file": PATH, "from": ROW, "to": ROW}}],
//                     "screens": [{"file": PATH, "command": SHELL, "columns": N, "rows": N, "seconds": N}],
//                     "pages": [{"file": PATH, "url": URL, "width": N, "height": N, "seconds": N, "columns": [NAME]}]}'
//
// A page polls its server for `seconds`, and then until some row has a number in each of `columns`.
// It says of each panel how many series came. It ends with 1 where one failed, or was empty and is not in `empty`, or the other way round.
// Of each board that is drawn without such a fault, the hash of its JSON goes into `drawn.sha256`, beside the pictures.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import sharp from "sharp";
import { build } from "vite";

const HERE = import.meta.dirname;
const WIDTH = 1600;
/** As page.tsx lays a board out. */
const HEAD = 56, CELL = 38;
const KIB = 1024;
const LARGEST = 250 * KIB;
const asked = JSON.parse(process.argv[2]);

await build({
  root: HERE, base: "./", logLevel: "error", esbuild: { jsx: "automatic" },
  build: { outDir: "dist", emptyOutDir: true, chunkSizeWarningLimit: 1e6, rollupOptions: { input: ["index.html", "screen.html"].map((page) => join(HERE, page)) } },
});

let resolveReport;
/** What is served besides the pages, by path. */
const served = {};
const types = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml", woff2: "font/woff2", woff: "font/woff" };
const server = createServer(async (request, response) => {
  const path = new URL(request.url, "http://here").pathname;
  if (path === "/report") {
    const parts = [];
    for await (const part of request) parts.push(part);
    resolveReport(JSON.parse(Buffer.concat(parts)));
    return response.end();
  }
  try {
    const body = served[path] ?? readFileSync(join(HERE, "dist", path));
    response.setHeader("content-type", types[path.split(".").at(-1)] ?? "application/octet-stream");
    response.end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));

const late = (url) => new Promise((_, reject) => setTimeout(() => reject(new Error(`no picture of ${url} within five minutes`)), 300_000).unref());

/** A Chromium with a profile of its own, which ends with `use`. `flags`: those of this run; they get the file for its picture. */
async function chromium({ width, height, stdio, flags }, use) {
  const profile = mkdtempSync(join(tmpdir(), "draw-"));
  const shot = join(profile, "shot.png");
  const all = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars", `--user-data-dir=${profile}`, `--window-size=${width},${height}`, ...flags(shot),
  ];
  const browser = spawn(process.env.CHROMIUM ?? "chromium", all, { stdio });
  const ended = new Promise((resolve, reject) => browser.on("exit", resolve).on("error", reject));
  try {
    return await use({ browser, ended, shot });
  } finally {
    browser.kill();
    await ended.catch(() => {});
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** A page in virtual time, which runs ahead of its server: `take` gets its picture, and what `ready` gave. */
async function shoot(url, width, height, ready, take) {
  const flags = (shot) => ["--virtual-time-budget=30000", `--screenshot=${shot}`, url];
  return chromium({ width, height, stdio: "ignore", flags }, async ({ ended, shot }) => {
    const [report] = await Promise.race([Promise.all([ready, ended]), late(url)]);
    return take(shot, report);
  });
}

/** Calls of the DevTools protocol: requests go to descriptor 3, answers come from 4, each ends with a zero byte. */
function devtools(browser) {
  const [requests, answers] = browser.stdio.slice(3);
  const calls = new Map();
  let last = 0, rest = "";
  // The end of the browser is an error of its own.
  requests.on("error", () => {});
  answers.setEncoding("utf8").on("data", (part) => {
    const messages = (rest + part).split("\0");
    rest = messages.pop();
    for (const { id, result, error } of messages.map((text) => JSON.parse(text))) {
      if (error) calls.get(id)?.reject(new Error(error.message));
      else calls.get(id)?.resolve(result);
      calls.delete(id);
    }
  });
  return (method, params, sessionId) => new Promise((resolve, reject) => {
    calls.set(++last, { resolve, reject });
    requests.write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
  });
}

/** What one of our pages reported, and its pictures: of the whole page, unless a cut is given. */
async function look(page, words, height, cuts) {
  const reported = new Promise((resolve) => (resolveReport = resolve));
  const url = `http://127.0.0.1:${server.address().port}/${page}?${new URLSearchParams(words)}`;
  return shoot(url, WIDTH, height, reported, async (shot, report) => {
    if (report.error) throw new Error(report.error);
    const cut = async ({ top = 0, width = report.width ?? WIDTH, height = report.height }) => small(shot, { left: 0, top, width, height });
    return { ...report, pictures: await Promise.all(cuts.map(cut)) };
  });
}

/** The hash of the board that a picture shows: a test fails when the board is newer. */
function record(name, json) {
  const file = join(asked.out, "drawn.sha256");
  const own = `../../dashboards/${name}.json`;
  const others = existsSync(file) ? readFileSync(file, "utf8").split("\n").filter((line) => line && !line.endsWith(`  ${own}`)) : [];
  const lines = [...others, `${createHash("sha256").update(json).digest("hex")}  ${own}`];
  writeFileSync(file, lines.sort((a, b) => (a.slice(64) < b.slice(64) ? -1 : 1)).join("\n") + "\n");
}

/** As few colours as make it small enough. */
async function small(shot, cut) {
  for (const colours of [256, 128, 64, 32, 16]) {
    const image = sharp(shot).extract(cut);
    const png = await image.png({ palette: true, colours, dither: 0, effort: 10, compressionLevel: 9 }).toBuffer();
    if (png.length <= LARGEST) return png;
  }
  throw new Error(`larger than ${LARGEST / KIB} KiB with 16 colours`);
}

async function board({ file, prometheus, every, chosen, empty, cut }) {
  const name = basename(file, ".json");
  served[`/${name}.json`] = readFileSync(file);
  const panels = JSON.parse(served[`/${name}.json`]).panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);
  const bottom = Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const { from, to } = asked;
  const words = { board: `/${name}.json`, prometheus, from, to, every, chosen: JSON.stringify(chosen) };
  const part = cut && { top: HEAD + cut.from * CELL, height: (cut.to - cut.from) * CELL };
  const report = await look("index.html", words, HEAD + bottom * CELL, part ? [{}, part] : [{}]);
  writeFileSync(join(asked.out, `${name}.png`), report.pictures[0]);
  if (cut) writeFileSync(cut.file, report.pictures[1]);
  console.log(`${name}: ${report.panels.length} panels, ${report.marks} marks`);
  let bad = 0;
  for (const { title, type, series, error } of report.panels) {
    const wrong = error || (series === 0) !== empty.includes(title);
    bad += wrong ? 1 : 0;
    console.log(`  ${wrong ? "WRONG" : "     "} ${String(series).padStart(3)} ${type.padEnd(14)} ${title}${error ? `: ${error}` : ""}`);
  }
  if (!bad) record(name, served[`/${name}.json`]);
  return bad;
}

/** Runs a program on a terminal of its own for some seconds; gives what it wrote. */
async function onTerminal({ command, columns, rows, seconds }) {
  const { NO_COLOR: _, ...env } = process.env;
  const program = spawn("script", ["-qfc", `stty rows ${rows} cols ${columns}; exec ${command}`, "/dev/null"], {
    stdio: ["pipe", "pipe", "ignore"], env: { ...env, TERM: "xterm-256color" },
  });
  const ended = new Promise((resolve, reject) => program.on("exit", resolve).on("error", reject));
  const parts = [];
  program.stdout.on("data", (part) => parts.push(part));
  await Promise.race([ended, new Promise((over) => setTimeout(over, seconds * 1000))]);
  const said = Buffer.concat(parts);
  program.kill();
  await ended;
  return said;
}

async function screen(it) {
  const name = basename(it.file, ".png");
  served[`/${name}`] = await onTerminal(it);
  const report = await look("screen.html", { said: `/${name}`, columns: it.columns, rows: it.rows }, 1000, [{}]);
  writeFileSync(it.file, report.pictures[0]);
  console.log(`${name}: ${served[`/${name}`].length} bytes on ${it.columns}x${it.rows}`);
  return 0;
}

/** As its server serves it: in real time, so that it has the rates between two readings. */
async function page({ file, url, width, height, seconds, columns }) {
  const filled = `${JSON.stringify(columns)}.every((name) => [...document.querySelectorAll("td.c-" + name)].some((cell) => /[1-9]/.test(cell.textContent)))`;
  const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
  await chromium({ width, height, stdio, flags: () => ["--remote-debugging-pipe"] }, async ({ browser, ended, shot }) => {
    const call = devtools(browser);
    const drawn = async () => {
      const { targetId } = await call("Target.createTarget", { url: "about:blank" });
      const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
      await call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false }, sessionId);
      await call("Emulation.setFocusEmulationEnabled", { enabled: true }, sessionId);
      await call("Page.navigate", { url }, sessionId);
      await pause(seconds * 1000);
      for (let tries = 0; ; tries++) {
        const { result } = await call("Runtime.evaluate", { expression: filled, returnByValue: true }, sessionId);
        if (result.value === true) break;
        if (tries === 240) throw new Error(`for a minute no row had a number in one of these columns: ${columns.join(", ")}`);
        await pause(250);
      }
      const { data } = await call("Page.captureScreenshot", { format: "png" }, sessionId);
      writeFileSync(shot, Buffer.from(data, "base64"));
    };
    const early = ended.then(() => { throw new Error("the browser ended before its picture was taken"); });
    await Promise.race([drawn(), early, late(url)]);
    const png = await small(shot, { left: 0, top: 0, width, height });
    writeFileSync(file, png);
    console.log(`${basename(file, ".png")}: ${png.length} bytes`);
  });
  return 0;
}

let bad = 0;
const all = [[board, asked.boards], [screen, asked.screens], [page, asked.pages]];
for (const [draw, it] of all.flatMap(([draw, list]) => (list ?? []).map((it) => [draw, it]))) {
  bad += await draw(it).catch((error) => {
    console.log(`WRONG ${basename(it.file)}: ${error.stack}`);
    return 1;
  });
}
server.close();
process.exitCode = bad ? 1 : 0;
