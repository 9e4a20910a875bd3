/** Nodes of a Merkle Patricia trie (Yellow Paper, appendix D), decoded from their bytes. */

import { nibblesOf } from "./bytes.ts";
import { decode, encode, type Item, listOf, stringOf } from "./rlp.ts";

/** How a node names another: not at all, by the hash of its bytes, or by the bytes themselves if they are below 32. */
export type Child =
  | { by: "nothing" }
  | { by: "hash"; hash: Uint8Array }
  | { by: "value"; bytes: Uint8Array };

/** A decoded node. Paths are nibbles, values are what the trie maps a key to. */
export type Node =
  | { kind: "branch"; children: Child[]; value: Uint8Array }
  | { kind: "extension"; path: number[]; child: Child }
  | { kind: "leaf"; path: number[]; value: Uint8Array };

function childOf(item: Item): Child {
  if (Array.isArray(item)) {
    const bytes = encode(item);
    if (bytes.length >= 32) throw new Error(`a child of ${bytes.length} bytes stands in its parent instead of its hash`);
    return { by: "value", bytes };
  }
  if (item.length === 0) return { by: "nothing" };
  if (item.length !== 32) throw new Error(`a child is named by ${item.length} bytes instead of a hash's 32`);
  return { by: "hash", hash: item };
}

/** The hex-prefix encoding of a path: bit 5 of the first byte says leaf, bit 4 an odd number of nibbles. */
function pathOf(bytes: Uint8Array): { leaf: boolean; path: number[] } {
  const [flags, ...rest] = nibblesOf(bytes);
  if (flags === undefined || flags > 3) throw new Error(`the flags of a path are ${flags ?? "missing"}`);
  const odd = (flags & 1) === 1;
  if (!odd && rest[0] !== 0) throw new Error("the padding of an even path is not 0");
  return { leaf: flags >= 2, path: odd ? rest : rest.slice(1) };
}

/** Decodes a node. Throws an `Error` that says what is wrong with the bytes. */
export function nodeOf(bytes: Uint8Array): Node {
  const items = listOf(decode(bytes));
  if (items.length === 17) {
    return { kind: "branch", children: items.slice(0, 16).map(childOf), value: stringOf(items[16]) };
  }
  if (items.length !== 2) throw new Error(`a node has 2 or 17 items, not ${items.length}`);
  const { leaf, path } = pathOf(stringOf(items[0]));
  if (leaf) {
    const value = stringOf(items[1]);
    if (value.length === 0) throw new Error("a leaf has no value");
    return { kind: "leaf", path, value };
  }
  const child = childOf(items[1]!);
  if (path.length === 0) throw new Error("an extension has no path");
  if (child.by === "nothing") throw new Error("an extension has no child");
  return { kind: "extension", path, child };
}
