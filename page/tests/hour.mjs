// The page, open for an hour beside an import: memory of the page and of the server, and the server's processor time.
//
//   node page/tests/hour.mjs [MINUTES]
//
// Needed: as browser.test.mjs. An import every two seconds adds blocks of 20 transactions, and the page goes through its places, a
// minute each. Fails if memory grows or the server takes 2 % of a processor or more.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { promisify } from "node:util";
import { PROGRAM, start } from "./program.mjs";

const minutes = Number(process.argv[2] ?? 60);
/** Blocks that come every two seconds. */
const TOGETHER = 4;
const blocks = minutes * 30 * TOGETHER + 40;
const PLACES = ["#/", "#/", "#/layers", "#/", "#/map", "#/block", "#/", "#/figures", "#/logs", "#/map/3f"];
/** Of the kernel's clock that counts processor time, in a second. */
const TICKS = 100;

/** Length of the list that begins a buffer, with its header. */
function lengthOfList(bytes) {
  const first = bytes[0];
  if (first < 0xf8) return 1 + first - 0xc0;
  const size = first - 0xf7;
  return 1 + size + bytes.readUIntBE(1, size);
}

/** Writes the chain's blocks into files of a few, and returns their number. */
function split(folder) {
  let [rest, parts] = [readFileSync(join(folder, "chain/chain.rlp")), 0];
  while (rest.length > 0) {
    let end = 0;
    for (let i = 0; i < TOGETHER && end < rest.length; i += 1) end += lengthOfList(rest.subarray(end));
    writeFileSync(join(folder, `part-${parts}.rlp`), rest.subarray(0, end));
    rest = rest.subarray(end);
    parts += 1;
  }
  return parts;
}

const server = await start((run) => {
  run("workload", "--out", "chain", "--accounts", "100000", "--blocks", String(blocks), "--transactions", "20");
  run("init", "chain/genesis.json", "--preimages", "--datadir", "data");
  run("index", "build", "--datadir", "data");
});
const parts = split(server.folder);
const { chromium: driver } = createRequire(import.meta.url)("playwright-core");
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await driver.launch({ executablePath, args: ["--no-sandbox", "--enable-precise-memory-info"] });
const tab = await browser.newPage();
const problems = [];
tab.on("pageerror", (error) => problems.push(error.stack));
tab.on("console", (message) => message.type() === "error" && problems.push(message.text()));
await tab.goto(`${server.url}/`);
const devtools = await tab.context().newCDPSession(tab);
await devtools.send("Performance.enable");

let ends = false;
const importing = (async () => {
  for (let part = 0; part < parts && !ends; part += 1) {
    const began = Date.now();
    await promisify(execFile)(PROGRAM, ["import", `part-${part}.rlp`, "--datadir", "data", "--quiet", "--memory", "128M"], { cwd: server.folder });
    await new Promise((done) => setTimeout(done, Math.max(0, 2000 - (Date.now() - began))));
  }
})();

const processorTime = () => {
  const fields = readFileSync(`/proc/${server.pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
};
const resident = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))[1]) / 1024;

const measured = [];
console.log("minute  place      head  server, MiB  server, % of a processor  page, MiB  nodes of the page");
for (let minute = 0; minute < minutes; minute += 1) {
  const place = PLACES[minute % PLACES.length];
  await tab.evaluate((hash) => (location.hash = hash), place);
  const [before, began] = [processorTime(), Date.now()];
  await new Promise((done) => setTimeout(done, 60_000));
  const share = (100 * 1000 * (processorTime() - before)) / (Date.now() - began);
  await devtools.send("HeapProfiler.collectGarbage");
  const { metrics } = await devtools.send("Performance.getMetrics");
  const metric = (name) => metrics.find((it) => it.name === name).value;
  const head = Number(await server.ask("eth_blockNumber"));
  const row = { place, head, server: resident(), share, page: metric("JSHeapUsedSize") / 2 ** 20, nodes: metric("Nodes") };
  measured.push(row);
  console.log(`${String(minute + 1).padStart(6)}  ${place.padEnd(9)}  ${String(head).padStart(4)}  ${row.server.toFixed(1).padStart(11)}  ${share.toFixed(2).padStart(24)}  ${row.page.toFixed(2).padStart(9)}  ${row.nodes}`);
}
ends = true;
await importing;
await browser.close();
await server.stop();

const mean = (rows, of) => rows.reduce((sum, row) => sum + of(row), 0) / rows.length;
const quarter = Math.max(1, Math.floor(measured.length / 4));
const [second, last] = [measured.slice(quarter, 2 * quarter), measured.slice(-quarter)];
console.log(`second quarter and last: server ${mean(second, (it) => it.server).toFixed(1)} and ${mean(last, (it) => it.server).toFixed(1)} MiB, page ${mean(second, (it) => it.page).toFixed(2)} and ${mean(last, (it) => it.page).toFixed(2)} MiB; processor ${mean(measured, (it) => it.share).toFixed(2)} %`);
assert.deepEqual(problems, []);
if (second.length > 0) {
  assert.ok(mean(last, (it) => it.server) < 1.1 * mean(second, (it) => it.server) + 4, "the server's memory grows");
  assert.ok(mean(last, (it) => it.page) < 1.1 * mean(second, (it) => it.page) + 1, "the page's memory grows");
}
assert.ok(mean(measured, (it) => it.share) < 2, "the server takes more than 2 % of a processor");
