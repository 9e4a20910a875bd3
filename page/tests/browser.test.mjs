// The page in a browser, before a server that serves a real chain: with the server's own policy for scripts, and every error on
// the console a failure. Screenshots are left in target/page-screenshots.
//
// Needed: Chromium, the program `cambium` (CAMBIUM_PROGRAM, or target/debug/cambium), and the modules of package-lock.json.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { skipped } from "./data.mjs";
import { hasProgram, PROGRAM, start, TARGET } from "./program.mjs";
import { serve } from "./serve.mjs";

const chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", process.env.CHROMIUM].find((path) => path && existsSync(path));
const require = createRequire(import.meta.url);

function reason() {
  if (!chromium) return skipped("there is no Chromium (Debian's package chromium, or CHROMIUM)");
  if (!hasProgram) return skipped(`there is no program ${PROGRAM} (CAMBIUM_PROGRAM)`);
  return false;
}

const options = { skip: reason(), timeout: 120_000 };
const screenshots = join(TARGET, "page-screenshots");
const hostileName = '<img src=x onerror="window.hacked=1">\u202etxt.exe<script>window.hacked=1</script>';
let [server, page, browser, upstream] = [];
/** Facts of the chain that the tests look for. */
const chain = {};

/** Calls the server itself. */
const ask = (...call) => server.ask(...call);

/** What `name()` returns of a token with that name. */
function abiString(text) {
  const bytes = Buffer.from(text);
  const word = (value) => value.toString(16).padStart(64, "0");
  return `0x${word(32)}${word(bytes.length)}${bytes.toString("hex").padEnd(Math.ceil(bytes.length / 32) * 64, "0")}`;
}

/** Answers that a malicious chain or server may have: token names with markup. */
function hostile(call, answer) {
  if (call.method === "eth_call" && call.params[0].input === "0x06fdde03") return { jsonrpc: "2.0", id: call.id, result: abiString(hostileName) };
  return answer;
}

before(async () => {
  if (options.skip) return;
  mkdirSync(screenshots, { recursive: true });
  server = await start((run) => {
    run("workload", "--out", "chain", "--fork", "amsterdam", "--accounts", "2000", "--blocks", "20", "--transactions", "60", "--erc20", "40", "--seed", "3");
    run("import", "chain/chain.rlp", "--genesis", "chain/genesis.json", "--access-lists", "chain/access-lists.rlp", "--index", "--history", "flat", "--preimages", "--datadir", "data");
  });
  upstream = server.url;
  page = await serve({ upstream, change: hostile });
  const head = await ask("eth_getBlockByNumber", "latest", true);
  const receipts = await ask("eth_getBlockReceipts", "latest");
  const token = receipts.findIndex((receipt) => receipt.logs.length > 0 && receipt.to !== null && head.transactions[Number(receipt.transactionIndex)].input !== "0x");
  assert.ok(token >= 0, "the head has a token transfer");
  chain.head = Number(head.number);
  chain.recipient = head.miner;
  chain.payment = head.transactions.find((it) => it.input === "0x");
  chain.transfer = head.transactions[token];
  chain.receipt = receipts[token];
  const list = await ask("eth_createAccessList", { from: chain.transfer.from, to: chain.transfer.to, input: chain.transfer.input }, "latest");
  chain.token = chain.transfer.to;
  chain.slot = list.accessList.find((it) => it.address === chain.token).storageKeys[0];
  const { chromium: driver } = require("playwright-core");
  browser = await driver.launch({ executablePath: chromium, args: ["--no-sandbox"] });
});

after(async () => {
  await browser?.close();
  await page?.close();
  await server?.stop();
});

/** Opens a place, runs `look`, and fails for any message on the console or any request to another origin. */
async function open(hash, look, { width = 1280, height = 900, scheme = "light", allowed = [], reduced = false, change } = {}) {
  const served = change ? await serve({ upstream, change }) : page;
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: reduced ? "reduce" : "no-preference" });
  const tab = await context.newPage();
  const problems = [];
  tab.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !allowed.some((text) => message.text().includes(text))) problems.push(message.text());
  });
  tab.on("pageerror", (error) => problems.push(error.stack));
  tab.on("request", (request) => {
    if (new URL(request.url()).host !== new URL(served.url).host) problems.push(`a request to ${request.url()}`);
  });
  try {
    await tab.goto(`${served.url}/${hash}`);
    await look(tab, served);
    assert.equal(await tab.evaluate(() => window.hacked), undefined, "nothing of the chain ran");
    assert.deepEqual(problems, []);
  } finally {
    await context.close();
    if (served !== page) await served.close();
  }
}

const shot = (tab, name) => tab.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });

/** Findings of axe-core, which is run as a script of the test and not of the page. */
async function findings(tab) {
  await tab.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
  const { violations } = await tab.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`).join(" | ")}`);
}

const places = () => ({
  now: "#/",
  layers: "#/layers",
  map: "#/map/3f",
  block: `#/block/${chain.head}`,
  logs: `#/block/${chain.head}/logs`,
  schedule: `#/block/${chain.head}/schedule`,
  diff: `#/block/${chain.head}/diff`,
  header: `#/block/${chain.head}/header`,
  transaction: `#/tx/${chain.transfer.hash}`,
  account: `#/address/${chain.token}?slot=${chain.slot}`,
  history: `#/address/${chain.recipient}/history`,
  proof: `#/proof/${chain.token}?slot=${chain.slot}`,
  walk: `#/walk/${chain.payment.from}`,
  "find-logs": `#/logs?from=${chain.head - 2}&to=${chain.head}`,
  figures: "#/figures",
  shards: "#/shards",
});

/** The names of these places, which are known before there is a chain. */
const PLACES = ["now", "layers", "map", "block", "logs", "schedule", "diff", "header", "transaction", "account", "history", "proof", "walk", "find-logs", "figures", "shards"];

/** Waits until nothing of the view loads. */
const settled = (tab) => tab.waitForFunction(() => document.querySelector("main h1") && !document.querySelector("main .loading"), undefined, { timeout: 30_000 });

test("the page paints within 300 ms, and shows the head", options, () =>
  open("#/", async (tab) => {
    await tab.getByRole("heading", { name: "Now" }).waitFor();
    const times = [];
    for (let i = 0; i < 5; i++) {
      await tab.reload();
      await tab.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0);
      times.push(await tab.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
    }
    console.error(`first contentful paint: ${times.map((it) => it.toFixed(0)).join(", ")} ms`);
    assert.ok(Math.min(...times) < 300, `${times} ms`);
    await tab.locator(".head-number").getByText(String(chain.head)).waitFor();
    await tab.getByText("live", { exact: true }).waitFor();
  }));

test("an account is looked up at an old block, with its proof", options, () =>
  open("#/", async (tab) => {
    await tab.getByRole("searchbox").fill(chain.payment.from);
    await tab.getByRole("button", { name: "Look up" }).click();
    await tab.getByText("nonce, balance and code are proved").waitFor();
    const fact = (name) => tab.locator(".facts > div", { hasText: new RegExp(`^${name}`) }).first().locator("dd").innerText();
    const now = await fact("nonce");
    await tab.getByLabel("At block").fill("0");
    await tab.getByRole("button", { name: "Show", exact: true }).click();
    await tab.waitForFunction(() => location.hash.includes("at=0"));
    await settled(tab);
    assert.notEqual(await fact("nonce"), now);
    assert.equal(BigInt(await ask("eth_getTransactionCount", chain.payment.from, "0x0")), BigInt(await fact("nonce")));
    assert.match(await fact("proof"), /proved/);
  }));

test("a slot is looked up and proved", options, () =>
  open(`#/address/${chain.token}`, async (tab) => {
    await tab.getByLabel("Slot").fill(chain.slot);
    await tab.locator(".section", { hasText: "A slot" }).getByRole("button", { name: "Look up" }).click();
    await tab.getByText("checked against the block’s state root").waitFor();
    const value = await ask("eth_getStorageAt", chain.token, chain.slot, "latest");
    await tab.getByText(value, { exact: true }).waitFor();
  }));

test("a proof holds, and a forged byte is refused at its node", options, () =>
  open(places().proof, async (tab) => {
    await settled(tab);
    const section = tab.locator(".section", { hasText: "The account’s path" });
    await section.getByText("the proof holds").waitFor();
    await section.getByRole("button", { name: "Forge a byte of this node" }).nth(1).click();
    await section.locator(".verdict.bad").getByText("Check failed: node 2: its").waitFor();
    assert.equal(await section.locator(".step.bad").count(), 1);
    assert.ok((await section.locator(".step.below").count()) >= 1);
    assert.match(await section.locator(".step").nth(0).getAttribute("class"), /good/);
    await shot(tab, "proof-forged");
    await section.getByRole("button", { name: "Take it back" }).click();
    await section.getByText("the proof holds").waitFor();
    for (let i = 0; i < 10; i++) {
      await section.getByRole("button", { name: "Forge one byte" }).click();
      assert.equal(await section.locator(".verdict.bad").count(), 1);
    }
    const slot = tab.locator(".section", { hasText: "The path of slot" });
    await slot.getByText("the proof holds").waitFor();
  }));

test("a server that lies about a balance, a header or receipts is caught", options, async () => {
  const lies = (method, lie) => (call, answer) => {
    if (call.method === method && answer.result) lie(answer.result);
    return answer;
  };
  const account = `#/address/${chain.payment.from}`;
  await open(account, (tab) => tab.getByText("Check failed: the server says that the balance").waitFor(), { change: lies("eth_getProof", (it) => { it.balance = "0x1234567"; }) });
  await open(account, (tab) => tab.getByText("Check failed: the proof has another balance").waitFor(), {
    change: (call, answer) => (call.method === "eth_getBalance" ? { ...answer, result: "0x1234567" } : answer),
  });
  await open(`#/block/${chain.head}`, (tab) => tab.getByText("Check failed: the header's fields").first().waitFor(), { change: lies("eth_getBlockByNumber", (it) => { it.gasUsed = "0x5"; }) });
  await open(`#/block/${chain.head}/logs`, (tab) => tab.getByText("Check failed:").waitFor(), { change: lies("eth_getBlockReceipts", (it) => { it.find((receipt) => receipt.logs.length).logs.pop(); }) });
  await open(`#/tx/${chain.transfer.hash}`, (tab) => tab.getByText("Check failed:").waitFor(), { change: lies("eth_getTransactionReceipt", (it) => { it.logs[0].data = "0x00"; }) });
});

test("a transaction leads to its logs, which are complete in their block", options, () =>
  open(`#/tx/${chain.transfer.hash}`, async (tab) => {
    await tab.getByText("it is in the block: all receipts have").waitFor();
    assert.equal(await tab.locator(".logs > li").count(), chain.receipt.logs.length);
    await tab.getByRole("link", { name: "All logs of its block" }).click();
    await tab.getByText("complete: the 60 receipts have the header’s receipts root").waitFor();
    await tab.getByRole("link", { name: "Header and checks" }).click();
    await tab.getByText("it is the one to which the header commits").waitFor();
  }));

test("what users of the chain wrote is shown as text", options, () =>
  open(`#/address/${chain.token}`, async (tab) => {
    await tab.getByText("calls itself").waitFor();
    const shown = await tab.locator(".foreign").first().innerText();
    assert.match(shown, /^<img src=x onerror=/);
    assert.ok(shown.includes("\\u{202e}"), "text is not turned around");
    assert.equal(await tab.locator("main img, main script").count(), 0);
  }));

test("addresses that are no places show that", options, async () => {
  for (const hash of ["#/block/<script>", "#/address/0x12", "#/tx/javascript:alert(1)", "#/nowhere", "#/%E0%A4%A", "#/map/zz", `#/address/${"a".repeat(5000)}`]) {
    await open(hash, async (tab) => {
      await tab.getByRole("heading", { level: 1 }).waitFor();
    });
  }
});

for (const name of PLACES) {
  test(`${name}: no findings of axe-core, in light and dark`, options, () =>
    open(places()[name], async (tab) => {
      await settled(tab);
      await tab.waitForTimeout(name === "now" || name === "figures" ? 3500 : 300);
      assert.deepEqual(await findings(tab), []);
      await shot(tab, name);
      await tab.locator(".theme select").selectOption("dark");
      await tab.waitForTimeout(400);
      assert.deepEqual(await findings(tab), []);
      await shot(tab, `${name}-dark`);
    }));
}

test("all places fit the width of a phone", options, async () => {
  assert.deepEqual(Object.keys(places()), PLACES);
  for (const [name, hash] of Object.entries(places())) {
    await open(hash, async (tab) => {
      await settled(tab);
      await tab.waitForTimeout(300);
      const [inner, whole] = await tab.evaluate(() => [innerWidth, document.documentElement.scrollWidth]);
      assert.ok(whole <= inner, `${name}: ${whole} pixels in ${inner}`);
      await shot(tab, `${name}-phone`);
    }, { width: 360, height: 740, reduced: true });
  }
});

test("the page is used by keyboard alone", options, () =>
  open("#/", async (tab) => {
    await tab.getByRole("heading", { name: "Now" }).waitFor();
    await tab.keyboard.press("Tab");
    assert.equal(await tab.evaluate(() => document.activeElement.className), "skip");
    await tab.keyboard.press("Enter");
    assert.equal(await tab.evaluate(() => document.activeElement.id), "main");
    await tab.getByRole("searchbox").focus();
    await tab.keyboard.type(String(chain.head - 1));
    await tab.keyboard.press("Enter");
    await tab.getByRole("heading", { level: 1, name: String(chain.head - 1) }).waitFor();
    assert.equal(await tab.evaluate(() => document.activeElement.id), "main", "a new place has the focus");
    await tab.goto(`${page.url}/#/map`);
    const map = tab.getByRole("slider");
    await map.focus();
    await tab.keyboard.press("ArrowDown");
    await tab.keyboard.press("ArrowRight");
    assert.match(await map.getAttribute("aria-valuetext"), /^shard 11: /);
    const outline = await map.evaluate((it) => getComputedStyle(it).outlineStyle);
    assert.equal(outline, "solid", "focus is visible");
    await tab.keyboard.press("Enter");
    await tab.getByRole("heading", { name: "Pages of shard 11" }).waitFor();
    await tab.goto(`${page.url}/${places().history}`);
    const line = tab.getByRole("slider");
    await line.focus();
    await tab.keyboard.press("Home");
    const first = await line.getAttribute("aria-valuetext");
    await tab.keyboard.press("End");
    assert.notEqual(await line.getAttribute("aria-valuetext"), first);
  }));

test("a server without Cambium's own methods shows what it lacks, and the rest", options, async () => {
  const bare = await serve({ upstream, fixtures: false, change: (call, answer) => (call.method.startsWith("cambium_") ? { jsonrpc: "2.0", id: call.id, error: { code: -32601, message: "the method does not exist" } } : answer) });
  try {
    const context = await browser.newContext();
    const tab = await context.newPage();
    for (const [place, text] of [["#/", "does not serve its figures"], ["#/layers", "does not serve the layers"], ["#/map", "does not serve the map"], ["#/shards", "does not serve a cluster"], [`#/block/${chain.head}/diff`, "does not serve the state diff"], [places().walk, "does not serve the read"], [places().history, "does not serve the history"]]) {
      await tab.goto(`${bare.url}/${place}`);
      await tab.reload();
      await tab.getByText(text).waitFor();
    }
    await context.close();
  } finally {
    await bare.close();
  }
});

test("hidden pages ask nothing, and figures stay bounded", options, () =>
  open("#/", async (tab, served) => {
    await tab.locator(".tile").first().waitFor();
    let requests = 0;
    tab.on("request", () => requests++);
    await tab.evaluate(() => {
      Object.defineProperty(document, "hidden", { value: true, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await tab.waitForTimeout(600);
    requests = 0;
    await tab.waitForTimeout(2500);
    assert.equal(requests, 0);
    await tab.evaluate(() => {
      delete document.hidden;
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await tab.waitForTimeout(3200);
    assert.ok(requests >= 2 && requests <= 6, `${requests} requests in three seconds`);
    assert.ok(served.url);
  }));

test("the head is followed by subscription, also when it goes back", options, () =>
  open("#/", async (tab) => {
    const heads = [];
    tab.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => heads.push(JSON.parse(payload).params?.result?.number)));
    await tab.reload();
    await tab.locator(".head-number").getByText(String(chain.head), { exact: true }).waitFor();
    const { hash } = await ask("eth_getBlockByNumber", "latest", false);
    const setHead = (block) => server.run("set-head", block, "--datadir", "data");
    setHead(String(chain.head - 3));
    await tab.locator(".head-number").getByText(String(chain.head - 3), { exact: true }).waitFor();
    setHead(hash);
    await tab.locator(".head-number").getByText(String(chain.head), { exact: true }).waitFor();
    await tab.waitForFunction(() => document.querySelectorAll("main table").length > 0);
    assert.ok(heads.includes(`0x${chain.head.toString(16)}`), `heads by subscription: ${heads}`);
  }));

test("an answer of another shape is an error in its place, and the page goes on", options, () =>
  open(`#/tx/${chain.transfer.hash}`, async (tab) => {
    await tab.getByRole("heading", { name: "This can’t be shown" }).waitFor();
    await tab.getByRole("link", { name: "Layers" }).click();
    await tab.getByRole("heading", { name: "The three layers" }).waitFor();
  }, { change: (call, answer) => (call.method === "eth_getTransactionByHash" ? { ...answer, result: { ...answer.result, value: "not a number" } } : answer) }));

test("an access list is checked against its header", options, async () => {
  const raw = await ask("debug_getRawBlockAccessList", "latest").catch((error) => {
    if (!/does not exist/.test(error.message)) throw error;
    return skipped("the server has no debug_getRawBlockAccessList: a true list is not checked");
  });
  if (raw.startsWith("0x")) await open(`#/block/${chain.head}/schedule`, (tab) => tab.getByText("Keccak-256 of the list is in the header").waitFor());
  const list = (raw) => (call, answer) => (call.method === "debug_getRawBlockAccessList" ? { jsonrpc: "2.0", id: call.id, result: raw } : answer);
  await open(`#/block/${chain.head}/schedule`, (tab) => tab.getByText("Check failed: the list has the hash").waitFor(), { change: list("0xc0") });
  await open(`#/block/${chain.head}/schedule`, (tab) => tab.getByText("can’t be shown: RLP:").waitFor(), { change: list("0xc101ff") });
});
