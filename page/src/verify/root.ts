/** The root of a trie from its entries, as headers have it of transactions, receipts and withdrawals. */

import { nibblesOf, minimalBytes } from "./bytes.ts";
import { EMPTY_ROOT, keccak } from "./keccak.ts";
import { encode, decode, type Item } from "./rlp.ts";

interface Entry {
  path: number[];
  value: Uint8Array;
}

function hexPrefix(path: readonly number[], leaf: boolean): Uint8Array {
  const odd = path.length % 2;
  const nibbles = [(leaf ? 2 : 0) + odd, ...(odd ? [] : [0]), ...path];
  return Uint8Array.from({ length: nibbles.length / 2 }, (_, i) => nibbles[2 * i]! * 16 + nibbles[2 * i + 1]!);
}

/** What a parent holds of a node: the hash of its encoding, or the node itself below 32 bytes. */
function reference(node: Item): Item {
  const bytes = encode(node);
  return bytes.length < 32 ? decode(bytes) : keccak(bytes);
}

/** The node of sorted entries that share their first `depth` nibbles. */
function node(entries: readonly Entry[], depth: number): Item {
  const [first] = entries;
  const last = entries[entries.length - 1]!;
  if (first === last) return [hexPrefix(first!.path.slice(depth), true), first!.value];
  let shared = depth;
  while (shared < first!.path.length && first!.path[shared] === last.path[shared]) shared++;
  if (shared > depth) return [hexPrefix(first!.path.slice(depth, shared), false), reference(node(entries, shared))];
  const items: Item[] = [];
  for (let nibble = 0; nibble < 16; nibble++) {
    const below = entries.filter((entry) => entry.path[depth] === nibble);
    items.push(below.length === 0 ? new Uint8Array(0) : reference(node(below, depth + 1)));
  }
  const ends = first!.path.length === depth ? first!.value : new Uint8Array(0);
  return [...items, ends];
}

/** The root of the trie that maps each index, encoded by RLP, to the value at that index. Values are not empty. */
export function listRoot(values: readonly Uint8Array[]): Uint8Array {
  if (values.length === 0) return EMPTY_ROOT;
  const entries = values.map((value, i) => ({ path: nibblesOf(encode(minimalBytes(BigInt(i)))), value }));
  entries.sort((a, b) => {
    for (let i = 0; i < a.path.length && i < b.path.length; i++) {
      if (a.path[i] !== b.path[i]) return a.path[i]! - b.path[i]!;
    }
    return a.path.length - b.path.length;
  });
  return keccak(encode(node(entries, 0)));
}
