/**
 * Recursive Length Prefix (Yellow Paper, appendix B). Decoding accepts the one canonical encoding of each item alone: no
 * length longer than needed, no single byte below 0x80 with a prefix, nothing after the item.
 */

import { concat, minimalBytes } from "./bytes.ts";

/** A byte string, or a list of items. */
export type Item = Uint8Array | Item[];

/** What a decoder is willing to follow. A trie node has two levels, a block five. */
const DEPTH_MAX = 16;

function prefixed(payload: Uint8Array, short: number, long: number): Uint8Array {
  if (payload.length < 56) return concat([Uint8Array.of(short + payload.length), payload]);
  const length = minimalBytes(BigInt(payload.length));
  return concat([Uint8Array.of(long + length.length), length, payload]);
}

/** Encodes an item. */
export function encode(item: Item): Uint8Array {
  if (Array.isArray(item)) return prefixed(concat(item.map(encode)), 0xc0, 0xf7);
  if (item.length === 1 && item[0]! < 0x80) return item;
  return prefixed(item, 0x80, 0xb7);
}

/** Where the payload of an item begins and ends. */
interface Extent {
  list: boolean;
  start: number;
  end: number;
}

function extentAt(bytes: Uint8Array, at: number, limit: number): Extent {
  const first = bytes[at];
  if (first === undefined || at >= limit) throw new Error(`RLP: byte ${at}: an item is missing`);
  if (first < 0x80) return { list: false, start: at, end: at + 1 };
  const list = first >= 0xc0;
  const short = list ? 0xc0 : 0x80;
  let start = at + 1;
  let length = first - short;
  if (length > 55) {
    const width = length - 55;
    start += width;
    if (start > limit) throw new Error(`RLP: byte ${at}: the length is cut off`);
    length = 0;
    for (let i = at + 1; i < start; i++) {
      length = length * 256 + bytes[i]!;
      if (length > 0xffffffff) throw new Error(`RLP: byte ${at}: the length is above 32 bits`);
    }
    if (bytes[at + 1] === 0 || length < 56) throw new Error(`RLP: byte ${at}: the length is not canonical`);
  }
  const end = start + length;
  if (end > limit) throw new Error(`RLP: byte ${at}: ${length} bytes are named, ${limit - start} are there`);
  if (!list && length === 1 && bytes[start]! < 0x80) {
    throw new Error(`RLP: byte ${at}: a single byte below 0x80 has a prefix`);
  }
  return { list, start, end };
}

function decodeAt(bytes: Uint8Array, at: number, limit: number, depth: number): [Item, number] {
  if (depth > DEPTH_MAX) throw new Error(`RLP: byte ${at}: lists are nested deeper than ${DEPTH_MAX}`);
  const { list, start, end } = extentAt(bytes, at, limit);
  if (!list) return [bytes.subarray(start, end), end];
  const items: Item[] = [];
  let next = start;
  while (next < end) {
    const [item, after] = decodeAt(bytes, next, end, depth + 1);
    items.push(item);
    next = after;
  }
  return [items, end];
}

/** Decodes bytes that are exactly one item. Throws an `Error` that names the first wrong byte. */
export function decode(bytes: Uint8Array): Item {
  const [item, end] = decodeAt(bytes, 0, bytes.length, 0);
  if (end !== bytes.length) throw new Error(`RLP: byte ${end}: ${bytes.length - end} bytes follow the item`);
  return item;
}

/** The item as a list of `length` items. Throws if it is not one. */
export function listOf(item: Item | undefined, length?: number): Item[] {
  if (!Array.isArray(item)) throw new Error("RLP: a list is expected, not bytes");
  if (length !== undefined && item.length !== length) {
    throw new Error(`RLP: a list of ${length} items is expected, not of ${item.length}`);
  }
  return item;
}

/** The item as bytes, of one length if that is given. Throws if it is not. */
export function stringOf(item: Item | undefined, length?: number): Uint8Array {
  if (item === undefined || Array.isArray(item)) throw new Error("RLP: bytes are expected, not a list");
  if (length !== undefined && item.length !== length) {
    throw new Error(`RLP: ${length} bytes are expected, not ${item.length}`);
  }
  return item;
}
