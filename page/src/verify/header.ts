/** The hash of a header from its fields, by the rules of every fork up to Amsterdam. */

import { bytesOf, bytesOfLength, equal, hexOf, minimalBytes } from "./bytes.ts";
import { keccak } from "./keccak.ts";
import { encode, type Item } from "./rlp.ts";

/** A header as JSON-RPC has it. */
export type Header = Record<string, unknown>;

type Kind = "hash" | "address" | "number" | "bloom" | "nonce" | "data";

/** The fields that every header has, in the order of their encoding. */
const FIELDS: readonly (readonly [string, Kind])[] = [
  ["parentHash", "hash"],
  ["sha3Uncles", "hash"],
  ["miner", "address"],
  ["stateRoot", "hash"],
  ["transactionsRoot", "hash"],
  ["receiptsRoot", "hash"],
  ["logsBloom", "bloom"],
  ["difficulty", "number"],
  ["number", "number"],
  ["gasLimit", "number"],
  ["gasUsed", "number"],
  ["timestamp", "number"],
  ["extraData", "data"],
  ["mixHash", "hash"],
  ["nonce", "nonce"],
];

/** The fields that forks appended, each with the fork and the EIP. A header with one of them has all before it. */
export const APPENDED: readonly (readonly [string, Kind, string])[] = [
  ["baseFeePerGas", "number", "London, EIP-1559"],
  ["withdrawalsRoot", "hash", "Shanghai, EIP-4895"],
  ["blobGasUsed", "number", "Cancun, EIP-4844"],
  ["excessBlobGas", "number", "Cancun, EIP-4844"],
  ["parentBeaconBlockRoot", "hash", "Cancun, EIP-4788"],
  ["requestsHash", "hash", "Prague, EIP-7685"],
  ["blockAccessListHash", "hash", "Amsterdam, EIP-7928"],
  ["slotNumber", "number", "Amsterdam, EIP-7843"],
];

const LENGTHS: Partial<Record<Kind, number>> = { hash: 32, address: 20, bloom: 256, nonce: 8 };

function fieldOf(header: Header, name: string, kind: Kind): Item {
  const value = header[name];
  try {
    if (typeof value !== "string") throw new Error("it is missing");
    if (kind === "data") return bytesOf(value);
    const length = LENGTHS[kind];
    if (length !== undefined) return bytesOfLength(value, length);
    if (!/^0x[0-9a-fA-F]{1,64}$/.test(value)) throw new Error(`not a number: ${value.slice(0, 40)}`);
    return minimalBytes(BigInt(value));
  } catch (error) {
    throw new Error(`header: ${name}: ${error instanceof Error ? error.message : error}`);
  }
}

/** The encoding of a header. Throws an `Error` that names a field that is missing, malformed, or there without those before it. */
export function headerBytes(header: Header): Uint8Array {
  const items = FIELDS.map(([name, kind]) => fieldOf(header, name, kind));
  const there = APPENDED.map(([name]) => header[name] !== undefined && header[name] !== null);
  const count = there.lastIndexOf(true) + 1;
  for (const [name, kind] of APPENDED.slice(0, count)) items.push(fieldOf(header, name, kind));
  return encode(items);
}

/** The hash of a header, of its fields alone. */
export function headerHash(header: Header): Uint8Array {
  return keccak(headerBytes(header));
}

/** Verifies that a header has the hash `expected`. Returns what is wrong, or null. */
export function checkHeader(header: Header, expected: string): string | null {
  try {
    const hash = headerHash(header);
    if (equal(hash, bytesOfLength(expected, 32))) return null;
    return `the header's fields have the hash ${hexOf(hash)}, and ${expected} is expected`;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
