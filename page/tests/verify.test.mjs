// The verifier against real chains, and against forged variants of what it accepts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DATA, chain, exchanges, lacking, mainnet, verifier } from "./data.mjs";

const verify = await verifier();
const { bytesOf, checkAccount, checkBody, checkHeader, checkReceipts, decode, encode, hexOf, keccak, listRoot, walk } = verify;
const data = { skip: lacking("execution-apis", "ethereum-tests", "zeth") };
const text = (string) => new TextEncoder().encode(string);

/** A copy of bytes with one of them changed. */
function flipped(bytes, at, mask = 1) {
  const copy = Uint8Array.from(bytes);
  copy[at] ^= mask;
  return copy;
}

test("keccak of nothing and the root of an empty trie are the constants of the Yellow Paper", () => {
  assert.equal(hexOf(verify.EMPTY_CODE), "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470");
  assert.equal(hexOf(verify.EMPTY_ROOT), "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");
});

test("RLP decodes what it encodes, of all lengths around the limits", () => {
  for (const length of [0, 1, 2, 54, 55, 56, 57, 255, 256, 257, 65_535, 65_536]) {
    const bytes = new Uint8Array(length).fill(0x80);
    assert.deepEqual(decode(encode(bytes)), bytes);
    assert.deepEqual(decode(encode([bytes, [bytes]])), [bytes, [bytes]]);
  }
});

test("RLP refuses encodings that are not canonical or are cut off", () => {
  const refused = {
    "": /missing/,
    8100: /single byte/,
    b800: /not canonical/,
    b80100: /not canonical/,
    b90000: /not canonical/,
    "82ff": /are named/,
    c2ff: /missing|are named/,
    8000: /follow the item/,
    "bf0000000000000001": /not canonical/,
    bfffffffffffffffff: /above 32 bits/,
    f8: /cut off/,
  };
  for (const [hex, message] of Object.entries(refused)) assert.throws(() => decode(bytesOf(`0x${hex}`)), message, hex);
  assert.throws(() => decode(bytesOf(`0x${"c1".repeat(40)}`)), /are named|nested/);
  let deep = encode([]);
  for (let i = 0; i < 20; i++) deep = encode([decode(encode(deep))]);
  let nested = [];
  for (let i = 0; i < 20; i++) nested = [nested];
  assert.throws(() => decode(encode(nested)), /nested deeper/);
});

test("the RLP cases of ethereum/tests are encoded to their bytes, and the invalid ones are refused", data, async () => {
  const { readFileSync } = await import("node:fs");
  const read = (file) => JSON.parse(readFileSync(`${DATA}/ethereum-tests/RLPTests/${file}`, "utf8"));
  const item = (value) => {
    if (Array.isArray(value)) return value.map(item);
    if (typeof value === "number") return verify.minimalBytes(BigInt(value));
    return value.startsWith("#") ? verify.minimalBytes(BigInt(value.slice(1))) : text(value);
  };
  let cases = 0;
  for (const [name, { in: value, out }] of Object.entries(read("rlptest.json"))) {
    assert.equal(hexOf(encode(item(value))), out.toLowerCase(), name);
    cases++;
  }
  for (const [name, { in: value, out }] of Object.entries(read("invalidRLPTest.json"))) {
    if (value !== "INVALID") continue;
    assert.throws(() => decode(bytesOf(out)), undefined, name);
    cases++;
  }
  assert.ok(cases > 30, `${cases} cases`);
});

test("headers of mainnet have their hashes, and a changed field is refused", data, () => {
  let headers = 0;
  for (const { file, blocks } of mainnet()) {
    for (const block of blocks) {
      assert.equal(checkHeader(block, block.hash), null, file);
      for (const field of ["parentHash", "miner", "stateRoot", "logsBloom", "extraData", "mixHash", "nonce", "gasUsed"]) {
        const digit = block[field].slice(-1) === "0" ? "1" : "0";
        const forged = { ...block, [field]: block[field] === "0x" ? "0x00" : block[field].slice(0, -1) + digit };
        assert.match(checkHeader(forged, block.hash), /is expected/, `${file} ${field}`);
      }
      headers++;
    }
  }
  assert.ok(headers >= 16, `${headers} headers`);
});

test("headers of all forks of the execution-apis chain have their hashes", data, () => {
  const hashes = new Map(chain(verify).map(({ header }) => [hexOf(keccak(encode(header))), header.length]));
  const blocks = exchanges("eth_getBlockByNumber").map(({ answer }) => answer.result).filter((block) => block?.hash);
  const lengths = new Set();
  for (const block of blocks) {
    assert.equal(checkHeader(block, block.hash), null, block.number);
    const missing = Object.fromEntries(Object.entries(block).filter(([name]) => name !== "baseFeePerGas"));
    if (block.withdrawalsRoot) assert.match(checkHeader(missing, block.hash), /baseFeePerGas: it is missing/);
    lengths.add(hashes.get(block.hash));
  }
  assert.ok(blocks.length >= 8 && lengths.size >= 5, `${blocks.length} blocks with ${[...lengths]} fields`);
});

test("the fields of Amsterdam come after those of Prague", () => {
  const zero = `0x${"00".repeat(32)}`;
  const header = {
    parentHash: zero, sha3Uncles: zero, miner: `0x${"00".repeat(20)}`, stateRoot: zero, transactionsRoot: zero, receiptsRoot: zero,
    logsBloom: `0x${"00".repeat(256)}`, difficulty: "0x0", number: "0x1", gasLimit: "0x2", gasUsed: "0x3", timestamp: "0x4",
    extraData: "0x", mixHash: zero, nonce: "0x0000000000000000", baseFeePerGas: "0x5", withdrawalsRoot: zero, blobGasUsed: "0x0",
    excessBlobGas: "0x0", parentBeaconBlockRoot: zero, requestsHash: zero, blockAccessListHash: `0x${"11".repeat(32)}`, slotNumber: "0x7",
  };
  const without = { ...header, slotNumber: undefined, blockAccessListHash: undefined };
  assert.notDeepEqual(verify.headerHash(header), verify.headerHash(without));
  assert.throws(() => verify.headerHash({ ...header, blockAccessListHash: undefined }), /blockAccessListHash: it is missing/);
});

test("bodies of all blocks of the execution-apis chain have the roots of their headers", data, () => {
  const names = ["parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot", "logsBloom", "difficulty", "number",
    "gasLimit", "gasUsed", "timestamp", "extraData", "mixHash", "nonce", ...verify.APPENDED.map(([name]) => name)];
  const numbers = new Set(["difficulty", "number", "gasLimit", "gasUsed", "timestamp", "baseFeePerGas", "blobGasUsed", "excessBlobGas"]);
  let transactions = 0;
  for (const { raw, header } of chain(verify)) {
    const fields = Object.fromEntries(header.map((item, i) => {
      const hex = hexOf(item);
      return [names[i], numbers.has(names[i]) ? (hex === "0x" ? "0x0" : hex) : hex];
    }));
    const checked = checkBody(raw, fields);
    assert.equal(checked.error, null, fields.number);
    transactions += checked.transactions;
    if (checked.transactions > 0) {
      assert.match(checkBody(flipped(raw, raw.length - (checked.withdrawals === null ? 10 : 60)), fields).error, /./);
    }
  }
  assert.ok(transactions > 50, `${transactions} transactions`);
});

test("receipts of the execution-apis chain have the roots of their headers, whole and in order", data, () => {
  const roots = new Map(chain(verify).map(({ header }) => [Number(BigInt(hexOf(header[8]))), hexOf(header[5])]));
  let blocks = 0;
  for (const { file, answer } of exchanges("eth_getBlockReceipts")) {
    const receipts = answer.result;
    if (!receipts?.length) continue;
    const root = roots.get(Number(receipts[0].blockNumber));
    assert.equal(checkReceipts(receipts, root), null, file);
    assert.match(checkReceipts(receipts.slice(1), root), /have the root/);
    const [first, ...rest] = receipts;
    assert.match(checkReceipts([{ ...first, cumulativeGasUsed: "0x1" }, ...rest], root), /have the root/);
    if (first.logs.length) {
      assert.match(checkReceipts([{ ...first, logs: first.logs.slice(1) }, ...rest], root), /have the root/);
      const log = { ...first.logs[0], topics: [...first.logs[0].topics].reverse().concat(`0x${"00".repeat(32)}`) };
      assert.match(checkReceipts([{ ...first, logs: [log] }, ...rest], root), /have the root/);
    }
    blocks++;
  }
  assert.ok(blocks >= 2, `${blocks} blocks with receipts`);
  for (const { file, call, answer } of exchanges("debug_getRawReceipts")) {
    if (!answer.result?.length) continue;
    const root = roots.get(Number(call.params[0]));
    if (root) assert.equal(hexOf(listRoot(answer.result.map(bytesOf))), root, file);
  }
});

test("the root of a list changes with its values and their number", () => {
  assert.equal(hexOf(listRoot([])), hexOf(verify.EMPTY_ROOT));
  for (const count of [1, 2, 16, 17, 127, 128, 129, 300]) {
    const values = Array.from({ length: count }, (_, i) => text(`value ${i} ${"x".repeat(i % 50)}`));
    const root = listRoot(values);
    assert.notDeepEqual(root, listRoot([...values.slice(0, -1), text("other")]));
    assert.notDeepEqual(root, listRoot(values.slice(0, -1)));
  }
});

test("proofs of accounts and slots of mainnet hold: values and exclusions", data, () => {
  let [accounts, absent, slots, empty] = [0, 0, 0, 0];
  for (const { file, blocks, proofs } of mainnet()) {
    const roots = new Map(blocks.map((block) => [Number(block.number), block.stateRoot]));
    for (const [{ block_no, address, indices }, answer] of proofs) {
      const checked = checkAccount(bytesOf(roots.get(block_no)), address, indices, answer);
      assert.equal(checked.error, null, `${file} ${address}`);
      accounts++;
      if (checked.account === null) absent++;
      for (const slot of checked.slots) {
        assert.equal(slot.error, null, `${file} ${address} ${hexOf(slot.key)}`);
        slots++;
        if (slot.value === 0n) empty++;
      }
    }
  }
  assert.ok(accounts > 500 && absent > 10 && slots > 500 && empty > 20, `${accounts} accounts, ${absent} absent, ${slots} slots, ${empty} empty`);
});

/** Proofs whose every byte is changed: from each recorded state one of a contract with slots, and one of exclusion. */
function someProofs() {
  const chosen = [];
  for (const { blocks, proofs } of mainnet()) {
    const roots = new Map(blocks.map((block) => [Number(block.number), bytesOf(block.stateRoot)]));
    const contract = proofs.find(([{ indices }]) => indices.length > 0);
    const absent = proofs.find(([, answer]) => answer.balance === "0x0" && answer.nonce === "0x0" && /^0x0*$/.test(answer.codeHash));
    for (const [asked, answer] of [contract, absent].filter(Boolean)) chosen.push({ root: roots.get(asked.block_no), asked, answer });
  }
  return chosen;
}

test("every byte of proofs, when changed, is refused, and the walk names the node", data, () => {
  let flips = 0;
  for (const { root, asked, answer } of someProofs().filter((_, i) => i % 4 < 2)) {
    const proof = answer.accountProof.map(bytesOf);
    const key = keccak(bytesOf(asked.address));
    assert.equal(walk(root, key, proof).error, null);
    for (const [i, node] of proof.entries()) {
      for (let at = 0; at < node.length; at++) {
        const forged = proof.map((it, j) => (j === i ? flipped(node, at, 1 << at % 8) : it));
        const found = walk(root, key, forged);
        assert.match(found.error, new RegExp(`^node ${i + 1}: its .* is expected`));
        assert.equal(found.steps[i].error !== null, true);
        assert.equal(found.value, null);
        flips++;
      }
    }
    const slot = answer.storageProof[0];
    for (const [n, hex] of slot?.proof.entries() ?? []) {
      const node = bytesOf(hex);
      for (let at = 0; at < node.length; at++) {
        const forged = { ...slot, proof: slot.proof.map((it, i) => (i === n ? hexOf(flipped(node, at)) : it)) };
        const found = walk(bytesOf(answer.storageHash), keccak(verify.slotKey(slot.key)), forged.proof.map(bytesOf));
        assert.match(found.error, new RegExp(`^node ${n + 1}: its .* is expected`), slot.key);
        if (at % 64 === 0) {
          const checked = checkAccount(root, asked.address, [slot.key], { ...answer, storageProof: [forged] });
          assert.match(checked.slots[0].error, new RegExp(`^node ${n + 1}: `), slot.key);
        }
        flips++;
      }
    }
  }
  assert.ok(flips > 10_000, `${flips} changed bytes`);
});

test("proofs with nodes left out, added, swapped or of another key are refused", data, () => {
  for (const { root, asked, answer } of someProofs()) {
    const proof = answer.accountProof.map(bytesOf);
    const key = keccak(bytesOf(asked.address));
    for (let i = 0; i < proof.length; i++) {
      assert.notEqual(walk(root, key, proof.filter((_, j) => j !== i)).error, null);
      assert.notEqual(walk(root, key, [...proof.slice(0, i), proof[i], ...proof.slice(i)]).error, null);
    }
    assert.match(walk(root, key, [...proof, proof[0]]).error, /path ends here/);
    assert.match(walk(root, key, []).error, /ends before/);
    const other = walk(root, keccak(key), proof);
    assert.ok(other.error !== null || other.value === null, "another key has no value by this proof");
    assert.notEqual(walk(keccak(root), key, proof).error, null);
  }
});

test("claims that differ from what is proved are refused", data, () => {
  for (const { root, asked, answer } of someProofs()) {
    const refused = (changed, message) =>
      assert.match(checkAccount(root, asked.address, asked.indices, { ...answer, ...changed }).error, message);
    refused({ balance: `0x${(BigInt(answer.balance) + 1n).toString(16)}` }, /the balance/);
    refused({ nonce: `0x${(BigInt(answer.nonce) + 1n).toString(16)}` }, /the nonce/);
    refused({ codeHash: `0x${"11".repeat(32)}` }, /the code hash/);
    refused({ storageHash: `0x${"11".repeat(32)}` }, /the storage root/);
    refused({ address: `0x${"11".repeat(20)}` }, /was asked for/);
    refused({ accountProof: null }, /not a list/);
    refused({ accountProof: Array(1000).fill("0x80") }, /longer than any path/);
    refused({ accountProof: ["0xzz"] }, /node 1: not hexadecimal/);
    refused({ accountProof: ["0x"] }, /node 1: /);
    for (const [i, slot] of answer.storageProof.entries()) {
      const storageProof = structuredClone(answer.storageProof);
      storageProof[i].value = `0x${(BigInt(slot.value) + 1n).toString(16)}`;
      const checked = checkAccount(root, asked.address, asked.indices, { ...answer, storageProof });
      assert.match(checked.slots[i].error, /the value/);
    }
    if (asked.indices.length) {
      assert.match(checkAccount(root, asked.address, asked.indices, { ...answer, storageProof: [] }).slots[0].error, /has no proof/);
    }
  }
});

test("proofs of the execution-apis chain hold against the head's state root", data, () => {
  const blocks = chain(verify).map(({ header }) => hexOf(header[3]));
  let held = 0;
  for (const { file, call, answer } of exchanges("eth_getProof")) {
    const root = bytesOf(call.params[2] === "latest" ? blocks.at(-1) : blocks.find((it) => checkAccount(bytesOf(it), call.params[0], call.params[1], answer.result).error === null) ?? blocks.at(-1));
    const checked = checkAccount(root, call.params[0], call.params[1], answer.result);
    assert.equal(checked.error, null, file);
    for (const slot of checked.slots) assert.equal(slot.error, null, file);
    held++;
  }
  assert.ok(held >= 3, `${held} proofs`);
});

test("small nodes that stand in their parents are walked", () => {
  // A branch with a leaf of 4 bytes in place of a hash: key 0x1234 after one nibble.
  const leaf = [Uint8Array.of(0x32, 0x34), Uint8Array.of(7)];
  const branch = Array.from({ length: 17 }, () => new Uint8Array(0));
  branch[1] = leaf;
  const bytes = encode(branch);
  const found = walk(keccak(bytes), Uint8Array.of(0x12, 0x34), [bytes]);
  assert.equal(found.error, null);
  assert.deepEqual(found.value, Uint8Array.of(7));
  assert.equal(found.steps.length, 2);
  assert.equal(walk(keccak(bytes), Uint8Array.of(0x12, 0x34), [bytes, encode(leaf)]).error, null);
  assert.equal(walk(keccak(bytes), Uint8Array.of(0x12, 0x35), [bytes]).value, null);
  assert.match(walk(keccak(bytes), Uint8Array.of(0x12, 0x34), [bytes, Uint8Array.of(0x80)]).error, /more nodes are listed/);
});
