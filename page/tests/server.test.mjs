// The verifier against all that a real server answers of a chain with every fork.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { DATA, lacking, skipped, verifier } from "./data.mjs";
import { hasProgram, PROGRAM, start } from "./program.mjs";

const verify = await verifier();
const options = { skip: lacking("execution-apis") || (!hasProgram && skipped(`there is no program ${PROGRAM} (CAMBIUM_PROGRAM)`)) };
let server;

before(async () => {
  if (options.skip) return;
  const chain = join(DATA, "execution-apis/tests");
  server = await start((run) => run("import", join(chain, "chain.rlp"), "--genesis", join(chain, "genesis.json"), "--index", "--history", "archive", "--datadir", "data"));
});

after(() => server?.stop());

/** All blocks of the chain, with their transactions. */
async function blocks() {
  const head = Number(await server.ask("eth_blockNumber"));
  return Promise.all(Array.from({ length: head + 1 }, (_, number) => server.ask("eth_getBlockByNumber", `0x${number.toString(16)}`, true)));
}

test("headers, receipts and bodies of all blocks are verified, before Byzantium too", options, async () => {
  let [receiptsOf, roots] = [0, 0];
  const all = await blocks();
  for (const [i, block] of all.entries()) {
    assert.equal(verify.checkHeader(block, block.hash), null, block.number);
    if (i > 0) assert.equal(block.parentHash, all[i - 1].hash);
    const receipts = await server.ask("eth_getBlockReceipts", block.hash);
    assert.equal(verify.checkReceipts(receipts, block.receiptsRoot), null, block.number);
    if (receipts.length > 0) {
      receiptsOf++;
      assert.notEqual(verify.checkReceipts(receipts.slice(0, -1), block.receiptsRoot), null);
      if (receipts[0].root) roots++;
    }
    const body = verify.checkBody(verify.bytesOf(await server.ask("debug_getRawBlock", block.number)), block);
    assert.equal(body.error, null, block.number);
    assert.equal(body.transactions, block.transactions.length);
  }
  assert.ok(all.length > 50 && receiptsOf > 20 && roots > 0, `${all.length} blocks, ${receiptsOf} with receipts, ${roots} with roots in them`);
});

test("accounts are verified at every block of an archive", options, async () => {
  let proofs = 0;
  for (const block of await blocks()) {
    const addresses = new Set([block.miner, ...block.transactions.flatMap((it) => [it.from, it.to]), `0x${"42".repeat(20)}`]);
    for (const address of [...addresses].filter(Boolean).slice(0, 6)) {
      const answer = await server.ask("eth_getProof", address, ["0x0", "0x1"], block.number);
      const checked = verify.checkAccount(verify.bytesOf(block.stateRoot), address, ["0x0", "0x1"], answer);
      assert.deepEqual([checked.error, ...checked.slots.map((slot) => slot.error)], [null, null, null], `${address} at ${block.number}`);
      proofs++;
    }
  }
  assert.ok(proofs > 100, `${proofs} proofs`);
});
