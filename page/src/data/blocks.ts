/** Blocks, and the checks that the page makes of them. */

import { call, type Call } from "./rpc.ts";
import type { BlockAnswer } from "./types.ts";
import { checkHeader } from "../verify/index.ts";

/** A block's name in a route: a number, a hash or a tag. */
export type BlockName = string;

const TAGS = ["latest", "earliest", "safe", "finalized", "pending"];

/** Reads what a person writes as a block: decimal or hexadecimal number, hash or tag. Null for anything else. */
export function blockName(text: string): BlockName | null {
  const trimmed = text.trim().toLowerCase().replaceAll(",", "");
  if (TAGS.includes(trimmed)) return trimmed;
  if (/^0x[0-9a-f]{64}$/.test(trimmed)) return trimmed;
  if (/^0x[0-9a-f]{1,14}$/.test(trimmed)) return String(Number(trimmed));
  if (/^[0-9]{1,15}$/.test(trimmed)) return String(Number(trimmed));
  return null;
}

/** The name as a parameter of JSON-RPC. */
export function blockParameter(name: BlockName): string {
  return /^[0-9]+$/.test(name) ? `0x${Number(name).toString(16)}` : name;
}

/** The call that returns a block, with its transactions or their hashes. */
export function blockCall(name: BlockName, full: boolean): Call {
  const method = name.length === 66 ? "eth_getBlockByHash" : "eth_getBlockByNumber";
  return [method, blockParameter(name), full];
}

/** Calls a method about a block by its number, and rejects an answer about another block, such as one of a new branch. */
export async function callAbout<T extends { hash: string }>(method: string, block: BlockAnswer, signal: AbortSignal): Promise<T> {
  const answer = await call<T>([method, block.number], signal);
  if (answer.hash !== block.hash) throw new Error(`The answer is about block ${answer.hash}, and ${block.hash} is shown. Load the block again.`);
  return answer;
}

/** A block whose header was hashed by the page. */
export interface CheckedBlock {
  block: BlockAnswer;
  /** Why the header does not have the block's hash; null if it has. */
  error: string | null;
}

/** Loads a block and checks its header. Rejects if there is none. */
export async function loadBlock(name: BlockName, full: boolean, signal?: AbortSignal): Promise<CheckedBlock> {
  const block = await call<BlockAnswer | null>(blockCall(name, full), signal);
  if (block === null) throw new Error(`The chain has no block ${name}.`);
  const asked = name.length === 66 ? name : block.hash;
  const wrongNumber = /^[0-9]+$/.test(name) && Number(block.number) !== Number(name);
  return { block, error: wrongNumber ? `block ${name} was asked for, and the header has ${block.number}` : checkHeader(block, asked) };
}
