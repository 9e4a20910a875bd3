/** Verifies the answers of `eth_getProof` (EIP-1186): an account against a state root, its slots against its storage root. */

import { bytesOfLength, equal, hexOf, minimalBytes, numberOf } from "./bytes.ts";
import { EMPTY_CODE, EMPTY_ROOT, keccak } from "./keccak.ts";
import { proofOf, type Walk, walk } from "./proof.ts";
import { decode, listOf, stringOf } from "./rlp.ts";

/** An account as the state trie has it. */
export interface Account {
  nonce: bigint;
  balance: bigint;
  storageRoot: Uint8Array;
  codeHash: Uint8Array;
}

/** The answer of `eth_getProof`, as claimed. */
export interface ProofAnswer {
  address: string;
  accountProof: string[];
  balance: string;
  nonce: string;
  codeHash: string;
  storageHash: string;
  storageProof: { key: string; value: string; proof: string[] }[];
}

/** A verified slot. */
export interface SlotCheck {
  key: Uint8Array;
  walk: Walk;
  /** The value that the trie has: 0 for none. Null if the proof fails. */
  value: bigint | null;
  error: string | null;
}

/** A verified account. */
export interface AccountCheck {
  walk: Walk;
  /** The account; null if the trie has none, or if the proof fails. */
  account: Account | null;
  slots: SlotCheck[];
  /** Why the account's proof or a claim about the account is wrong; null if nothing is. */
  error: string | null;
}

function uint(bytes: Uint8Array, name: string): bigint {
  if (bytes[0] === 0) throw new Error(`${name} has a leading zero`);
  if (bytes.length > 32) throw new Error(`${name} is longer than 32 bytes`);
  return numberOf(bytes);
}

/** Decodes the value of a leaf of the state trie. Throws an `Error` that names the field. */
export function accountOf(value: Uint8Array): Account {
  const [nonce, balance, storageRoot, codeHash] = listOf(decode(value), 4);
  return {
    nonce: uint(stringOf(nonce), "the nonce"),
    balance: uint(stringOf(balance), "the balance"),
    storageRoot: stringOf(storageRoot, 32),
    codeHash: stringOf(codeHash, 32),
  };
}

/** A slot's key from any number in JSON-RPC's forms: 32 bytes. */
export function slotKey(key: string): Uint8Array {
  if (!/^0x[0-9a-fA-F]{1,64}$/.test(key)) throw new Error(`not a slot: ${String(key).slice(0, 80)}`);
  const bytes = minimalBytes(BigInt(key));
  const whole = new Uint8Array(32);
  whole.set(bytes, 32 - bytes.length);
  return whole;
}

function claim(name: string, claimed: bigint | Uint8Array, proved: (bigint | Uint8Array)[]): string | null {
  const same = (value: bigint | Uint8Array) =>
    typeof value === "bigint" ? value === claimed : claimed instanceof Uint8Array && equal(value, claimed);
  if (proved.some(same)) return null;
  const text = (value: bigint | Uint8Array) => (typeof value === "bigint" ? `0x${value.toString(16)}` : hexOf(value));
  return `the server says that ${name} is ${text(claimed)}, and the trie has ${text(proved[0]!)}`;
}

const ZERO = new Uint8Array(32);

/** Compares what the answer claims with what was proved. Of an account that does not exist, servers send zeros or the empty hashes. */
function claims(answer: ProofAnswer, account: Account | null): string | null {
  return (
    claim("the nonce", BigInt(answer.nonce), [account?.nonce ?? 0n]) ??
    claim("the balance", BigInt(answer.balance), [account?.balance ?? 0n]) ??
    claim("the code hash", bytesOfLength(answer.codeHash, 32), account ? [account.codeHash] : [EMPTY_CODE, ZERO]) ??
    claim("the storage root", bytesOfLength(answer.storageHash, 32), account ? [account.storageRoot] : [EMPTY_ROOT, ZERO])
  );
}

function checkSlot(root: Uint8Array, asked: string, entry: ProofAnswer["storageProof"][number] | undefined): SlotCheck {
  const key = slotKey(asked);
  const none: Walk = { steps: [], path: [], value: null, error: "no proof" };
  try {
    if (entry === undefined) throw new Error(`the answer has no proof of slot ${asked}`);
    if (!equal(slotKey(entry.key), key)) throw new Error(`slot ${asked} was asked for, and ${entry.key} is proved`);
    const found = walk(root, keccak(key), proofOf(entry.proof));
    if (found.error !== null) return { key, walk: found, value: null, error: found.error };
    const value = found.value === null ? 0n : uint(stringOf(decode(found.value)), "the value");
    return { key, walk: found, value, error: claim("the value", BigInt(entry.value), [value]) };
  } catch (error) {
    return { key, walk: none, value: null, error: error instanceof Error ? error.message : String(error) };
  }
}

/**
 * Verifies an answer about `address` and `slots` against `stateRoot`. It never throws for what the answer holds: what is
 * wrong is in the `error` of the part.
 */
export function checkAccount(stateRoot: Uint8Array, address: string, slots: readonly string[], answer: ProofAnswer): AccountCheck {
  let found: Walk = { steps: [], path: [], value: null, error: "no proof" };
  try {
    if (String(answer.address).toLowerCase() !== address.toLowerCase()) {
      throw new Error(`${address} was asked for, and ${answer.address} is proved`);
    }
    found = walk(stateRoot, keccak(bytesOfLength(address, 20)), proofOf(answer.accountProof));
    if (found.error !== null) throw new Error(found.error);
    const account = found.value === null ? null : accountOf(found.value);
    const root = account?.storageRoot ?? EMPTY_ROOT;
    const checks = slots.map((slot, i) => checkSlot(root, slot, answer.storageProof?.[i]));
    return { walk: found, account, slots: checks, error: claims(answer, account) };
  } catch (error) {
    return { walk: found, account: null, slots: [], error: error instanceof Error ? error.message : String(error) };
  }
}
