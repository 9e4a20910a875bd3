// Answers of Cambium's own methods, for servers that lack them. What can be is made from the chain of the server that is asked;
// the rest is the same in each run.

import { verifier } from "./data.mjs";

const verify = await verifier();

/** A generator of numbers from 0 to 1, the same for a seed. */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const COUNTERS = {
  cambium_reads_total: [9300, "Accounts and slots read through views."],
  cambium_overlay_hits_total: [2100, "Reads of accounts and slots answered by a layer above the snapshot."],
  cambium_value_cache_hits_total: [5200, "Reads of accounts and slots below the layers that the value cache answered."],
  cambium_value_cache_misses_total: [2000, "Reads of accounts and slots below the layers that the value cache did not answer."],
  cambium_page_reads_value_total: [380, "Pages read to answer reads of accounts and slots."],
  cambium_page_reads_ahead_total: [1450, "Pages read ahead of execution, because blocks that come next are likely to need them."],
  cambium_pages_ahead_used_total: [1310, "Pages read ahead that were used."],
  cambium_pages_ahead_wasted_total: [70, "Pages read ahead that were dropped before anything used them."],
  cambium_index_reads_total: [0, "Device reads of the index, each of one part or of a whole shard. 0 as long as the index is in memory."],
  cambium_page_waits_total: [390, "Times that the read of a single key waited for a page."],
  cambium_page_wait_ns_total: [41e6, "Time that reads of single keys waited for pages, in nanoseconds."],
  cambium_blocks_committed_total: [22, "Blocks made durable."],
  cambium_roots_total: [22, "State roots computed."],
  cambium_node_hashes_total: [52_000, "Trie nodes hashed, by state roots, merges and checks."],
  cambium_hash_ns_total: [19e6, "Time spent hashing tries, summed over threads, in nanoseconds."],
  cambium_merges_total: [0.4, "Merges into the snapshot."],
  cambium_pages_written_total: [640, "Pages written with changed content, by merges and by the loader."],
  cambium_log_bytes_written_total: [5.1e6, "Bytes written to the block log: records, and the zeros that extend its files."],
  cambium_seal_wait_ns_total: [2e6, "Time that blocks waited to be sealed because merges were behind, in nanoseconds."],
  cambium_import_blocks_total: [22, "Blocks that the import has committed."],
  cambium_import_transactions_total: [4400, "Transactions of the committed blocks."],
  cambium_import_gas_total: [170e6, "Gas used in the committed blocks."],
};

const GAUGES = {
  cambium_layers: [128, "Blocks above the snapshot, or above the state being merged."],
  cambium_overlay_bytes: [61e6, "Memory of the values of these blocks."],
  cambium_delta_bytes: [88e6, "Memory of the tries of these blocks."],
  cambium_index_bytes: [142e6, "Memory of the index."],
  cambium_value_cache_bytes: [268e6, "Memory of the value cache."],
  cambium_page_cache_bytes: [205e6, "Memory of the page cache."],
  cambium_code_cache_bytes: [24e6, "Memory of the code cache."],
  cambium_merging_bytes: [33e6, "Memory of the layers being merged; 0 if there is no merge."],
  cambium_merging_parts: [97, "Shards of the 256 that the merge under way has finished."],
  cambium_pinned_bytes: [0, "Memory that only views still hold."],
  cambium_pages: [412_331, "Pages in the index."],
  cambium_segments: [31, "Segment files."],
  cambium_segment_bytes: [1.9e9, "Size of all segments."],
  cambium_segment_live_bytes: [1.4e9, "Size of the pages in use."],
  process_resident_memory_bytes: [1.02e9, "Resident memory of the process."],
};

const CALLS = ["eth_getBlockByNumber", "eth_getProof", "eth_getBalance", "eth_call", "eth_getLogs", "eth_getBlockReceipts"];
const begun = Date.now();

function figures(head) {
  const seconds = 3600 + (Date.now() - begun) / 1000;
  const wave = (i) => 1 + 0.12 * Math.sin(seconds / 7 + i) + 0.05 * Math.sin(seconds * 1.7 + 2 * i);
  const figure = (name, kind, help, samples) => ({ name, kind, help, samples });
  const summary = (labels, count, scale) => ({ labels, count, p50: 0.0011 * scale, p99: 0.0062 * scale, p999: 0.018 * scale, max: 0.09 * scale });
  return {
    role: "server",
    figures: [
      figure("cambium_build_info", "gauge", "1; the labels are the version of the program, and what the process is.", [{ labels: { role: "server", version: "0.1.0" }, value: 1 }]),
      figure("cambium_head_block", "counter", "The newest block of the canonical chain.", [{ labels: {}, value: Math.floor(head + 22 * (seconds - 3600)) }]),
      ...Object.entries(COUNTERS).map(([name, [rate, help]], i) =>
        figure(name, "counter", help, [{ labels: {}, value: Math.floor(rate * (seconds + 1.2 * Math.sin(seconds / 7 + i / 9))) }])),
      ...Object.entries(GAUGES).map(([name, [value, help]], i) => figure(name, "gauge", help, [{ labels: {}, value: Math.floor(value * wave(i)) }])),
      figure("cambium_commit_seconds", "summary", "Duration of commits, including the time that they waited.", [summary({}, Math.floor(22 * seconds), 3)]),
      figure("cambium_seal_wait_seconds", "summary", "Time that blocks waited to be sealed, because merges were behind.", [{ labels: {}, count: 0, p50: null, p99: null, p999: null, max: null }]),
      figure("cambium_api_call_seconds", "summary", "Time of calls on their threads, by method.", CALLS.map((method, i) =>
        summary({ method, service: "rpc" }, Math.floor(seconds * (9 - i)), [0.05, 0.4, 0.03, 0.7, 8, 2][i]))),
      figure("cambium_api_requests_total", "counter", "Requests that were answered, each of them one call or a batch.", [{ labels: { service: "rpc" }, value: Math.floor(41 * seconds) }]),
    ],
  };
}

function map(head) {
  const next = random(7);
  const shards = Array.from({ length: 256 }, (_, i) => {
    const pages = i % 61 === 5 ? 0 : 900 + Math.floor(next() * 900) + (i === 0x3f ? 2400 : 0);
    return { pages, bytes: Math.floor(pages * (2100 + next() * 900)) };
  });
  const segments = Array.from({ length: 31 }, (_, i) => ({ number: i + 40, bytes: 64 << 20, liveBytes: Math.floor((64 << 20) * Math.min(1, 0.35 + i / 40 + next() * 0.2)) }));
  return { snapshot: { number: Math.max(0, head.number - 12), hash: head.hash }, shards, segments };
}

function mapShard(index) {
  const next = random(index + 1);
  const prefix = index.toString(16).padStart(2, "0");
  const pages = Array.from({ length: 1200 }, (_, i) => {
    const path = prefix + Math.floor((i / 1200) * 16 ** 4).toString(16).padStart(4, "0");
    const storage = i % 9 === 4 ? path.padEnd(64, "7") + Math.floor(next() * 256).toString(16).padStart(2, "0") : path;
    return { path: storage, segment: 40 + Math.floor(31 * Math.sqrt(next())), offset: Math.floor(next() * 1e7), bytes: 600 + Math.floor(next() * 3400), cached: next() < 0.3 };
  });
  return { pages, more: index === 0x3f };
}

async function blockOf(ask, name) {
  const method = name.length === 66 ? "eth_getBlockByHash" : "eth_getBlockByNumber";
  return ask(method, [name, true]);
}

async function schedule(ask, name) {
  const block = await blockOf(ask, name);
  const receipts = await ask("eth_getBlockReceipts", [block.hash]);
  const last = new Map();
  const transactions = block.transactions.map((transaction, index) => {
    const keys = [transaction.from, transaction.to, ...(receipts[index].logs[0]?.topics.slice(1) ?? []).map((topic) => `0x${topic.slice(26)}`)];
    const after = [...new Set(keys.filter((key) => key && last.has(key) && !/^0xfff/.test(key)).map((key) => last.get(key)))].sort((a, b) => a - b);
    for (const key of keys) if (key) last.set(key, index);
    const gasUsed = Number(receipts[index].gasUsed);
    return { index, hash: transaction.hash, gasUsed, ns: 4000 + gasUsed * 2 + ((index * 7919) % 30_000), reads: 2 + Math.floor(gasUsed / 9000), after };
  });
  return { number: Number(block.number), hash: block.hash, threads: 8, transactions };
}

async function diff(ask, name) {
  const block = await blockOf(ask, name);
  const number = Number(block.number);
  const before = `0x${Math.max(0, number - 1).toString(16)}`;
  const touched = [...new Set(block.transactions.flatMap((it) => [it.from, it.to]).filter(Boolean))].slice(0, 60);
  const accounts = await Promise.all(touched.map(async (address, i) => {
    const pair = (method) => Promise.all([ask(method, [address, before]), ask(method, [address, block.number])]);
    const [balance, nonce] = [await pair("eth_getBalance"), await pair("eth_getTransactionCount")];
    const changed = ([old, now]) => (old === now ? null : [old, now]);
    const slots = i % 5 === 2 ? [{ key: "0x5", path: verify.hexOf(verify.keccak(verify.slotKey("0x5"))), value: ["0x0", "0x2a"] }, { key: null, path: `0x${"ab".repeat(32)}`, value: [`0x${"11".repeat(32)}`, "0x0"] }] : [];
    return { address: i % 11 === 10 ? null : address, path: verify.hexOf(verify.keccak(verify.bytesOf(address))), balance: changed(balance), nonce: changed(nonce), codeHash: null, created: balance[0] === "0x0" && nonce[0] === "0x0", deleted: false, slots, moreSlots: false };
  }));
  return { number, hash: block.hash, accounts, more: false };
}

async function changes(ask, address, slot, { before, limit }) {
  const head = Number(await ask("eth_blockNumber", []));
  const numbers = Array.from({ length: head + 1 }, (_, i) => i);
  const at = (number) => `0x${number.toString(16)}`;
  const values = await Promise.all(numbers.map(async (number) =>
    slot === null
      ? { number, balance: await ask("eth_getBalance", [address, at(number)]), nonce: await ask("eth_getTransactionCount", [address, at(number)]), codeHash: verify.hexOf(verify.EMPTY_CODE) }
      : { number, value: await ask("eth_getStorageAt", [address, slot, at(number)]) }));
  const text = ({ number, ...rest }) => JSON.stringify(rest);
  const all = values.filter((value, i) => i > 0 && text(value) !== text(values[i - 1])).reverse();
  const wanted = all.filter(({ number }) => before === null || before === undefined || number < before);
  return { kept: [0, head], changes: wanted.slice(0, limit), more: wanted.length > limit };
}

async function walk(ask, address, slot) {
  const path = verify.hexOf(verify.keccak(verify.bytesOf(address)));
  const slotPath = slot === null ? null : verify.hexOf(verify.keccak(verify.slotKey(slot)));
  const proof = await ask("eth_getProof", [address, slot === null ? [] : [slot], "latest"]);
  const value = slot === null ? { nonce: proof.nonce, balance: proof.balance, codeHash: proof.codeHash, storageRoot: proof.storageHash } : proof.storageProof[0].value;
  return {
    path, slotPath, value, deviceReads: 1,
    steps: [
      { at: "layers", count: 12, found: null },
      { at: "valueCache", found: false },
      { at: "index", shard: Number.parseInt(path.slice(2, 4), 16), page: path.slice(2, 7), nodes: 5, deviceReads: 0 },
      { at: "page", segment: 61, offset: 1_048_576, bytes: 2612, cached: false, leaves: 17, found: true },
    ],
  };
}

async function layers(ask) {
  const head = await ask("eth_getBlockByNumber", ["latest", false]);
  const number = Number(head.number);
  const count = Math.min(12, number);
  const blocks = await Promise.all(Array.from({ length: count }, (_, i) => ask("eth_getBlockByNumber", [`0x${(number - i).toString(16)}`, false])));
  const id = (block) => ({ number: Number(block.number), hash: block.hash });
  const below = await ask("eth_getBlockByNumber", [`0x${(number - count).toString(16)}`, false]);
  return {
    head: id(head),
    layers: blocks.map((block, i) => ({ ...id(block), accounts: block.transactions.length * 2, slots: block.transactions.length, bytes: 40_000 + block.transactions.length * 311 + ((i * 7919) % 9000) })),
    merging: { upTo: id(below), partsDone: 97, parts: 256, bytes: 33_000_000 },
    snapshot: id(below),
    lastMerge: { upTo: number - count, seconds: 1.84, pagesWritten: 5312, pagesMoved: 210, bytes: 14_680_064, blocks: 48 },
  };
}

const CLUSTER = {
  shards: ["0", "4", "8", "c"].map((from, i) => ({
    from, to: ["3", "7", "b", "f"][i],
    replicas: [0, 1].map((n) => ({ name: `shard-${i}-${n}`, address: `10.0.${i}.${n + 1}:7400`, number: i === 2 && n === 1 ? null : 60 - n, behind: i === 2 && n === 1 ? null : n, error: i === 2 && n === 1 ? "connection refused" : null })),
  })),
};

/** The fixture of a call; undefined if there is none. `ask` calls the server. */
export async function fixture(method, params, ask) {
  const head = async () => {
    const block = await ask("eth_getBlockByNumber", ["latest", false]);
    return { number: Number(block.number), hash: block.hash };
  };
  switch (method) {
    case "cambium_figures": return figures((await head()).number);
    case "cambium_map": return map(await head());
    case "cambium_mapShard": return mapShard(params[0]);
    case "cambium_walk": return walk(ask, ...params);
    case "cambium_schedule": return schedule(ask, params[0]);
    case "cambium_diff": return diff(ask, params[0]);
    case "cambium_changes": return changes(ask, ...params);
    case "cambium_layers": return layers(ask);
    case "cambium_shards": return CLUSTER;
    default: return undefined;
  }
}
