// What drawings are made of: schedules, series of figures, and text for people.

import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "esbuild";

async function load(path) {
  const built = await build({ entryPoints: [new URL(`../src/${path}`, import.meta.url).pathname], bundle: true, format: "esm", write: false });
  return import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].text).toString("base64")}`);
}

const { timeline, longestChain, readsInFlight } = await load("data/schedule.ts");
const { History, KEPT, seriesName } = await load("data/series.ts");
const { bytes, ether, etherCut, percent, printable, seconds, short } = await load("ui/format.ts");

/** Transactions with these times, each after the ones that are listed. */
const block = (...list) => list.map(([ns, after = [], reads = 2], index) => ({ index, ns, after, reads, hash: "", gasUsed: 0 }));

test("with the list no transaction waits for another", () => {
  const transactions = block([10], [10, [0]], [10, [1]], [10, [2]]);
  assert.equal(timeline(transactions, 4, false).end, 10);
  assert.equal(timeline(transactions, 2, false).end, 20);
  assert.equal(timeline(transactions, 4, true).end, 40);
  assert.equal(timeline(transactions, 1, true).end, 40);
  assert.deepEqual(longestChain(transactions), { indices: [0, 1, 2, 3], ns: 40 });
});

test("random schedules are possible, and no shorter than chain and work allow", () => {
  let state = 1;
  const random = (below) => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) % below;
  for (let round = 0; round < 200; round++) {
    const transactions = block(...Array.from({ length: 1 + random(60) }, (_, i) => [1 + random(50), i === 0 ? [] : Array.from({ length: random(3) }, () => random(i))]));
    const work = transactions.reduce((sum, it) => sum + it.ns, 0);
    for (const threads of [1, 2, 3, 8, 64]) {
      for (const waits of [false, true]) {
        const { runs, end } = timeline(transactions, threads, waits);
        const ends = new Map(runs.map((run) => [run.transaction.index, run.end]));
        for (const run of runs) {
          assert.ok(run.thread < threads && run.end - run.begin === run.transaction.ns);
          if (waits) for (const index of run.transaction.after) assert.ok(ends.get(index) <= run.begin);
          const beside = runs.filter((other) => other !== run && other.thread === run.thread);
          assert.ok(beside.every((other) => other.end <= run.begin || other.begin >= run.end), "a thread runs one at a time");
        }
        assert.ok(end >= work / threads && end <= work);
        if (waits) assert.ok(end >= longestChain(transactions).ns);
        if (threads === 1) assert.equal(end, work);
      }
    }
  }
});

test("reads in flight begin with all of them by the list, and with one a thread without", () => {
  const transactions = block([10], [10, [0]], [10]);
  const [first] = readsInFlight(timeline(transactions, 1, false), true);
  assert.deepEqual(first, { at: 0, reads: 4 });
  const without = readsInFlight(timeline(transactions, 2, true), false);
  assert.equal(Math.max(...without.map((step) => step.reads)), 2);
  assert.equal(without[without.length - 1].reads, 0);
});

const answer = (values, labels = {}) => ({ role: "server", figures: Object.entries(values).map(([name, value]) => ({ name, kind: "counter", help: "", samples: [{ labels, value }] })) });

test("an hour of figures takes no more than ten minutes of them", () => {
  const history = new History();
  for (let i = 0; i < 3600; i++) history.add(i * 1000, answer({ a: i * 7, [`b${i}`]: i }));
  assert.equal(history.values("a").length, KEPT);
  assert.equal(history.rate("a"), 7);
  assert.ok(history.rates("a").every((rate) => rate === 7));
  let series = 0;
  for (let i = 0; i < 3600; i++) if (history.values(`b${i}`).length > 0) series++;
  assert.ok(series < 1500, `${series} series`);
});

test("rates leave out a server that began anew, and pauses count by their time", () => {
  const history = new History();
  const times = [0, 1000, 2000, 62_000, 63_000];
  [100, 110, 120, 720, 5].forEach((value, i) => history.add(times[i], answer({ a: value })));
  assert.deepEqual(history.rates("a").map((rate) => (Number.isNaN(rate) ? null : rate)), [10, 10, 10, null]);
  assert.equal(history.rate("a"), null);
  assert.equal(history.now("missing"), null);
  assert.equal(seriesName("a", { z: "1", b: "2" }), 'a{b="2",z="1"}');
});

test("numbers have units and three digits", () => {
  assert.deepEqual([0, 999, 1234, 12_345, 1_234_567, 2.5e9].map(short), ["0", "999", "1,234", "12.3 k", "1.23 M", "2.50 G"]);
  assert.deepEqual([0, 1023, 1024, 1536, 5 << 20].map(bytes), ["0 B", "1,023 B", "1 KiB", "1.50 KiB", "5 MiB"]);
  assert.deepEqual([null, 0, 2e-9, 0.00015, 0.25, 3, 240].map(seconds), ["–", "0 s", "2 ns", "150 µs", "250 ms", "3 s", "4 min"]);
  assert.equal(percent(1, 0), "–");
  assert.equal(ether(10n ** 18n), "1");
  assert.equal(ether(-1n), "−0.000000000000000001");
  assert.equal(ether(1234n * 10n ** 18n + 5n * 10n ** 17n), "1,234.5");
  assert.deepEqual([0n, 1n, 10n ** 18n, 1_500_000_000_000n].map((wei) => etherCut(wei, 6)), ["0.000000", "< 0.000001", "1.000000", "0.000001"]);
});

test("text of strangers shows what would hide or turn it", () => {
  assert.equal(printable("plain ünïcode 😀"), "plain ünïcode 😀");
  assert.equal(printable("a\u202eb\u0000c\u200b\ud800"), "a\\u{202e}b\\u{0}c\\u{200b}\\u{d800}");
  assert.equal(printable("x".repeat(100), 10), `${"x".repeat(10)}…`);
});

test("no source writes markup or runs text, and every link is made by the page", async () => {
  const { readdirSync, readFileSync } = await import("node:fs");
  const home = new URL("../src/", import.meta.url);
  const files = readdirSync(home, { recursive: true }).filter((file) => /\.tsx?$/.test(file));
  assert.ok(files.length > 30);
  let links = 0;
  for (const file of files) {
    const text = readFileSync(new URL(file, home), "utf8");
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:/i, file);
    for (const [, value] of text.matchAll(/\bhref=(\{[^}]*|"[^"]*")/g)) {
      assert.match(value, /^\{(?:to\(|address$)|^"#main"$/, `${file}: href=${value}`);
      links++;
    }
    assert.doesNotMatch(text, /\bsrc=|\bstyle=/, file);
  }
  assert.ok(links > 20, `${links} links`);
});

test("every figure that is drawn is documented, with its kind in its name", async () => {
  const { readdirSync, readFileSync } = await import("node:fs");
  const docs = new URL("../../docs/", import.meta.url);
  const documented = new Set();
  const names = { counter: (name) => `cambium_${name}_total`, gauge: (name) => `cambium_${name}`, latency: (name) => `cambium_${name}_seconds` };
  for (const [, name, kind] of readFileSync(new URL("OPERATIONS.md", docs), "utf8").matchAll(/^\| `(\w+)` \| (counter|gauge|latency) \|/gm)) documented.add(names[kind](name));
  for (const file of ["RPC.md", "CLUSTER.md"]) {
    for (const [, name] of readFileSync(new URL(file, docs), "utf8").matchAll(/^\| `(\w+)` \| (?:counter|gauge|summary) \|/gm)) documented.add(name);
  }
  const methods = ["figures", "map", "mapShard", "walk", "schedule", "diff", "changes", "layers", "shards"].map((name) => `cambium_${name}`);
  const home = new URL("../src/", import.meta.url);
  let drawn = 0;
  for (const file of readdirSync(home, { recursive: true }).filter((file) => /\.tsx?$/.test(file))) {
    for (const [name] of readFileSync(new URL(file, home), "utf8").matchAll(/\b(?:cambium|process)_\w+/g)) {
      if (methods.includes(name) && !documented.has(name)) continue;
      assert.ok(documented.has(name), `${file}: ${name}`);
      drawn++;
    }
  }
  assert.ok(drawn > 40, `${drawn} figures`);
});
