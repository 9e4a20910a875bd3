/** A block's body against its header, from the bytes of the whole block. */

import { concat, equal, hexOf, bytesOfLength } from "./bytes.ts";
import { headerBytes, type Header } from "./header.ts";
import { keccak } from "./keccak.ts";
import { decode, encode, type Item, listOf } from "./rlp.ts";
import { listRoot } from "./root.ts";

/** What a block's bytes come to. */
export interface BodyCheck {
  transactions: number;
  ommers: number;
  withdrawals: number | null;
  /** What is wrong; null if the body is the header's. */
  error: string | null;
}

/** The bytes that a transaction has in its trie: a legacy one its list, any other the bytes in the block (EIP-2718). */
function trieValue(item: Item): Uint8Array {
  return Array.isArray(item) ? encode(item) : concat([item]);
}

/** Verifies that the block `raw` has the fields of `header`, and the body to which they commit. */
export function checkBody(raw: Uint8Array, header: Header): BodyCheck {
  const checked: BodyCheck = { transactions: 0, ommers: 0, withdrawals: null, error: null };
  try {
    const [head, transactions, ommers, withdrawals] = listOf(decode(raw));
    if (!equal(encode(listOf(head)), headerBytes(header))) throw new Error("the block's bytes have another header");
    const same = (name: string, got: Uint8Array) => {
      const expected = bytesOfLength(String(header[name]), 32);
      if (!equal(got, expected)) throw new Error(`${name} is ${hexOf(got)} by the body, ${hexOf(expected)} in the header`);
    };
    const list = listOf(transactions);
    checked.transactions = list.length;
    same("transactionsRoot", listRoot(list.map(trieValue)));
    checked.ommers = listOf(ommers).length;
    same("sha3Uncles", keccak(encode(listOf(ommers))));
    if (withdrawals !== undefined) {
      checked.withdrawals = listOf(withdrawals).length;
      same("withdrawalsRoot", listRoot(listOf(withdrawals).map(encode)));
    }
  } catch (error) {
    checked.error = error instanceof Error ? error.message : String(error);
  }
  return checked;
}
