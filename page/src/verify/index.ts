/** The page's own verifier: it trusts a block hash, and nothing else that a server says. It has no access to network or page. */

export { accountOf, checkAccount, slotKey } from "./account.ts";
export type { Account, AccountCheck, ProofAnswer, SlotCheck } from "./account.ts";
export { checkBody } from "./block.ts";
export type { BodyCheck } from "./block.ts";
export { bytesOf, bytesOfLength, equal, hexOf, minimalBytes, nibblesOf, nibbleText, numberOf } from "./bytes.ts";
export { APPENDED, checkHeader, headerHash } from "./header.ts";
export type { Header } from "./header.ts";
export { EMPTY_CODE, EMPTY_ROOT, keccak } from "./keccak.ts";
export { nodeOf } from "./node.ts";
export type { Child, Node } from "./node.ts";
export { proofOf, takenText, walk } from "./proof.ts";
export type { Step, Walk } from "./proof.ts";
export { checkReceipts, receiptBytes } from "./receipts.ts";
export type { Log, Receipt } from "./receipts.ts";
export { decode, encode } from "./rlp.ts";
export type { Item } from "./rlp.ts";
export { listRoot } from "./root.ts";
