/** Keccak-256 as Ethereum has it, and two hashes that are everywhere. */

import { keccak_256 } from "@noble/hashes/sha3.js";

/** Keccak-256 of some bytes: 32 bytes. */
export function keccak(bytes: Uint8Array): Uint8Array {
  return keccak_256(bytes);
}

/** The root of a trie without entries: the hash of the empty byte string's RLP. */
export const EMPTY_ROOT = keccak(Uint8Array.of(0x80));

/** The hash of no code. */
export const EMPTY_CODE = keccak(new Uint8Array(0));
