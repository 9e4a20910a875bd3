/** Shapes of answers. Quantities are hexadecimal text, as in JSON-RPC; counts of `cambium_*` methods are numbers. */

import type { Header, Receipt } from "../verify/index.ts";

export interface BlockId {
  number: number;
  hash: string;
}

export interface Transaction {
  hash: string;
  type: string;
  from: string;
  to: string | null;
  value: string;
  nonce: string;
  gas: string;
  gasPrice?: string;
  maxFeePerGas?: string;
  maxPriorityFeePerGas?: string;
  input: string;
  blockHash: string | null;
  blockNumber: string | null;
  transactionIndex: string | null;
  accessList?: { address: string; storageKeys: string[] }[];
  blobVersionedHashes?: string[];
  authorizationList?: unknown[];
}

export interface BlockAnswer extends Header {
  hash: string;
  number: string;
  parentHash: string;
  stateRoot: string;
  receiptsRoot: string;
  transactionsRoot: string;
  timestamp: string;
  gasUsed: string;
  gasLimit: string;
  miner: string;
  extraData: string;
  baseFeePerGas?: string;
  blockAccessListHash?: string;
  size?: string;
  transactions: (string | Transaction)[];
  withdrawals?: { index: string; validatorIndex: string; address: string; amount: string }[];
}

export interface ReceiptAnswer extends Receipt {
  transactionHash: string;
  transactionIndex: string;
  blockHash: string;
  blockNumber: string;
  from: string;
  to: string | null;
  contractAddress: string | null;
  gasUsed: string;
  effectiveGasPrice?: string;
}

/** `cambium_figures`. */
export interface Figures {
  role: string;
  figures: Figure[];
}

export interface Figure {
  name: string;
  kind: "counter" | "gauge" | "summary";
  help: string;
  samples: Sample[];
}

export interface Sample {
  labels: Record<string, string>;
  value?: number | null;
  count?: number;
  p50?: number | null;
  p99?: number | null;
  p999?: number | null;
  max?: number | null;
}

/** `cambium_map`. */
export interface StateMap {
  snapshot: BlockId;
  shards: { pages: number; bytes: number }[];
  segments: { number: number; bytes: number; liveBytes: number }[];
}

/** `cambium_mapShard`. */
export interface ShardPages {
  pages: Page[];
  more: boolean;
}

export interface Page {
  path: string;
  segment: number;
  offset: number;
  bytes: number;
  cached: boolean;
}

/** `cambium_walk`. */
export interface Lookup {
  path: string;
  slotPath: string | null;
  steps: LookupStep[];
  value: { nonce: string; balance: string; codeHash: string; storageRoot?: string } | string | null;
  deviceReads: number;
}

export type LookupStep =
  | { at: "layers"; count: number; found: number | null }
  | { at: "valueCache"; found: boolean }
  | { at: "index"; shard: number; page: string | null; deviceReads: number }
  | { at: "page"; segment: number; offset: number; bytes: number; cached: boolean; leaves: number; found: boolean };

/** `cambium_schedule`. */
export interface Schedule {
  number: number;
  hash: string;
  threads: number;
  transactions: ScheduledTransaction[];
}

export interface ScheduledTransaction {
  index: number;
  hash: string;
  gasUsed: number;
  ns: number;
  reads: number;
  after: number[];
}

export type Change = [old: string, now: string];

/** `cambium_diff`. */
export interface Diff {
  number: number;
  hash: string;
  accounts: AccountDiff[];
  more: boolean;
}

export interface AccountDiff {
  address: string | null;
  path: string;
  balance: Change | null;
  nonce: Change | null;
  codeHash: Change | null;
  created: boolean;
  deleted: boolean;
  slots: { key: string | null; path: string; value: Change }[];
  moreSlots: boolean;
}

/** `cambium_changes`. */
export interface Changes {
  kept: [first: number, last: number];
  changes: HistoryEntry[];
  more: boolean;
}

export interface HistoryEntry {
  number: number;
  balance?: string;
  nonce?: string;
  codeHash?: string;
  value?: string;
}

/** `cambium_layers`. */
export interface Layers {
  head: BlockId;
  layers: { number: number; hash: string; accounts: number; slots: number; bytes: number }[];
  merging: null | { upTo: BlockId; partsDone: number; parts: number; bytes: number };
  snapshot: BlockId;
  lastMerge: null | { upTo: number; seconds: number; pagesWritten: number; pagesMoved: number; bytes: number; blocks: number };
}

/** `cambium_shards`. */
export interface Cluster {
  shards: { from: string; to: string; replicas: Replica[] }[];
}

export interface Replica {
  name: string;
  address: string;
  number: number | null;
  behind: number | null;
  error: string | null;
}
