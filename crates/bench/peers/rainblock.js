// RainBlock's trie in memory, driven by lines on standard input: each begins a round, whose figures are a line of JSON.
// Time is the processor time of this process, so that what else runs on the machine does not count.
'use strict';
const { MerklePatriciaTree } = require('@rainblock/merkle-patricia-tree');
const { randomFillSync } = require('node:crypto');
const readline = require('node:readline');

const [accounts, operations] = process.argv.slice(2).map(Number);
// As long as the RLP of an account that is no contract.
const VALUE_BYTES = 78;
const BATCH = 1000;

const bytes = (length) => randomFillSync(Buffer.allocUnsafe(length));
const keys = [];
for (let i = 0; i < accounts; i++) keys.push(bytes(32));
const pick = () => keys[Math.floor(Math.random() * accounts)];
const batchOf = (count) => Array.from({ length: count }, () => ({ key: pick(), val: bytes(VALUE_BYTES) }));

const tree = new MerklePatriciaTree();
for (let i = 0; i < accounts; i += BATCH) {
  tree.batch(keys.slice(i, i + BATCH).map((key) => ({ key, val: bytes(VALUE_BYTES) })));
}
void tree.root;

// Operations a second of processor time.
const rate = (count, run) => {
  const start = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(start);
  return (1e6 * count) / (user + system);
};

function round() {
  const wanted = Array.from({ length: operations }, pick);
  const gets = rate(operations, () => {
    for (const key of wanted) tree.search(key);
  });
  const few = Math.ceil(operations / 5);
  const changes = batchOf(few);
  const puts = rate(few, () => {
    for (const { key, val } of changes) tree.put(key, val);
  });
  void tree.root;
  const batches = Array.from({ length: Math.ceil(few / BATCH) }, () => batchOf(BATCH));
  const roots = rate(batches.length * BATCH, () => {
    for (const batch of batches) {
      tree.batch(batch);
      void tree.root;
    }
  });
  console.log(JSON.stringify({ gets, puts, roots, memory_mb: process.memoryUsage().rss / 1e6 }));
}

console.log('{}');
readline.createInterface({ input: process.stdin }).on('line', round);
