/** The receipts of a block against its header: that they are these, all of them, and in this order. */

import { bytesOf, bytesOfLength, concat, equal, hexOf, minimalBytes } from "./bytes.ts";
import { encode, type Item } from "./rlp.ts";
import { listRoot } from "./root.ts";

/** A log as JSON-RPC has it. */
export interface Log {
  address: string;
  topics: string[];
  data: string;
  logIndex?: string;
  transactionHash?: string;
  transactionIndex?: string;
  blockNumber?: string;
  blockHash?: string;
}

/** A receipt as JSON-RPC has it: with `status` from Byzantium on, and with `root` before. */
export interface Receipt {
  type?: string;
  status?: string;
  root?: string;
  cumulativeGasUsed: string;
  logsBloom: string;
  logs: Log[];
  transactionHash?: string;
}

function logItem(log: Log): Item {
  return [bytesOfLength(log.address, 20), log.topics.map((topic) => bytesOfLength(topic, 32)), bytesOf(log.data)];
}

/** The consensus encoding of a receipt (EIP-2718): of any type but 0, the type's byte and then the list. */
export function receiptBytes(receipt: Receipt): Uint8Array {
  const outcome =
    typeof receipt.root === "string" ? bytesOfLength(receipt.root, 32) : minimalBytes(BigInt(receipt.status ?? "missing"));
  const list = encode([
    outcome,
    minimalBytes(BigInt(receipt.cumulativeGasUsed)),
    bytesOfLength(receipt.logsBloom, 256),
    receipt.logs.map(logItem),
  ]);
  const type = Number(receipt.type ?? "0x0");
  if (!(type >= 0 && type < 0x80)) throw new Error(`type ${receipt.type} is none of a transaction`);
  return type === 0 ? list : concat([Uint8Array.of(type), list]);
}

/** Verifies that `receipts` are exactly those of the block whose header has `receiptsRoot`. Returns what is wrong, or null. */
export function checkReceipts(receipts: readonly Receipt[], receiptsRoot: string): string | null {
  const encoded: Uint8Array[] = [];
  for (const [i, receipt] of receipts.entries()) {
    try {
      encoded.push(receiptBytes(receipt));
    } catch (error) {
      return `receipt ${i}: ${error instanceof Error ? error.message : error}`;
    }
  }
  const root = listRoot(encoded);
  if (equal(root, bytesOfLength(receiptsRoot, 32))) return null;
  return `${receipts.length} receipts have the root ${hexOf(root)}, and the header has ${receiptsRoot}`;
}
