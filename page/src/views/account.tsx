/** An account at a block: proved values, code, slots, and its history. */

import { useState } from "preact/hooks";
import { batch, type Outcome, valueOf } from "../data/rpc.ts";
import { loadBlock } from "../data/blocks.ts";
import { useLoad } from "../data/load.ts";
import type { BlockAnswer } from "../data/types.ts";
import { BlockSelector } from "../ui/blockselector.tsx";
import { count, many, textOf } from "../ui/format.ts";
import { Answer, BlockLink, Check, Copy, Ether, Facts, Foreign, Hex, Section, Tabs, Title } from "../ui/parts.tsx";
import { go, to } from "../ui/route.ts";
import { type AccountCheck, bytesOf, checkAccount, EMPTY_CODE, equal, hexOf, keccak, type ProofAnswer } from "../verify/index.ts";
import { HistoryLine } from "./history.tsx";
import { isSlot, slotFull, slotText } from "./proof.tsx";

/** Bytes of code that are shown at once. */
const CODE_SHOWN = 2048;

interface Loaded {
  block: BlockAnswer;
  headerError: string | null;
  /** The checked answer of `eth_getProof`; null if the server has no proof at this block. */
  checked: AccountCheck | null;
  proofError: string | null;
  nonce: bigint;
  balance: bigint;
  code: Uint8Array;
  /** What the code says of itself as a token. */
  token: { name: string | null; symbol: string | null; decimals: bigint | null };
}

/** Selectors of the optional functions of ERC-20: `name()`, `symbol()`, `decimals()`. */
const TOKEN_CALLS = ["0x06fdde03", "0x95d89b41", "0x313ce567"];

/** Text that a call returns: a string of the ABI, or 32 bytes that end in zeros, as old tokens have it. */
function tokenText(got: Outcome | undefined): string | null {
  const hex = valueOf<string>(got);
  if (!hex) return null;
  const data = bytesOf(hex);
  if (data.length === 32) return textOf(data.subarray(0, data.indexOf(0) < 0 ? 32 : data.indexOf(0)));
  if (data.length < 64) return null;
  const word = (at: number) => Number(BigInt(hexOf(data.subarray(at, at + 32))));
  const begin = word(0);
  if (!(begin + 32 <= data.length)) return null;
  const length = word(begin);
  return length <= 4096 && begin + 32 + length <= data.length ? textOf(data.subarray(begin + 32, begin + 32 + length)) : null;
}

async function tokenOf(address: string, at: string, signal: AbortSignal): Promise<Loaded["token"]> {
  const [name, symbol, decimals] = await batch(
    TOKEN_CALLS.map((input) => ["eth_call", { to: address, input }, at] as const),
    signal,
  );
  const number = valueOf<string>(decimals);
  return {
    name: tokenText(name),
    symbol: tokenText(symbol),
    decimals: number && number.length === 66 && BigInt(number) < 256n ? BigInt(number) : null,
  };
}

async function load(address: string, name: string, signal: AbortSignal): Promise<Loaded> {
  const { block, error } = await loadBlock(name, false, signal);
  const at = block.number;
  const [proof, nonce, balance, code] = await batch(
    [
      ["eth_getProof", address, [], at],
      ["eth_getTransactionCount", address, at],
      ["eth_getBalance", address, at],
      ["eth_getCode", address, at],
    ],
    signal,
  );
  for (const got of [nonce, balance, code]) if (got && "error" in got) throw got.error;
  const answer = valueOf<ProofAnswer>(proof);
  const bytes = bytesOf(valueOf<string>(code) ?? "0x");
  return {
    block,
    headerError: error,
    checked: answer ? checkAccount(bytesOf(block.stateRoot), address, [], answer) : null,
    proofError: proof && "error" in proof ? proof.error.message : null,
    nonce: BigInt(valueOf<string>(nonce) ?? "0x0"),
    balance: BigInt(valueOf<string>(balance) ?? "0x0"),
    code: bytes,
    token: bytes.length ? await tokenOf(address, at, signal) : { name: null, symbol: null, decimals: null },
  };
}

/** What is proved of the values that are shown. */
function proofState(loaded: Loaded): string | null | undefined {
  const { checked } = loaded;
  if (checked === null) return undefined;
  if (loaded.headerError !== null) return loaded.headerError;
  if (checked.error !== null) return checked.error;
  const { account } = checked;
  const codeHash = keccak(loaded.code);
  if ((account?.balance ?? 0n) !== loaded.balance) return "the proof has another balance";
  if ((account?.nonce ?? 0n) !== loaded.nonce) return "the proof has another nonce";
  return equal(account?.codeHash ?? EMPTY_CODE, codeHash) ? null : "the code has another hash than the account";
}

function Code(props: { code: Uint8Array; proved: boolean }) {
  const [shown, setShown] = useState(CODE_SHOWN);
  const hex = hexOf(props.code.subarray(0, shown)).slice(2);
  return (
    <Section
      title="Code"
      explain={`Keccak-256 of these ${count(props.code.length)} bytes is ${props.proved ? "the code hash that the account’s proof shows" : "computed here"}.`}
      aside={<Copy text={hexOf(props.code)} name="the code" />}
    >
      <p class="place">
        <Hex hex={hexOf(keccak(props.code))} whole />
      </p>
      <div class="scroll tall" tabIndex={0} role="region" aria-label="Code">
        <code class="bytes">{hex}</code>
      </div>
      {shown < props.code.length && (
        <button type="button" onClick={() => setShown(shown * 4)}>
          Show more of {many(props.code.length - shown, "byte")}
        </button>
      )}
    </Section>
  );
}

interface SlotValue {
  value: bigint;
  checked: string | null | undefined;
}

async function loadSlot(address: string, slot: string, block: BlockAnswer, signal: AbortSignal): Promise<SlotValue> {
  const [proof, plain] = await batch(
    [
      ["eth_getProof", address, [slot], block.number],
      ["eth_getStorageAt", address, slot, block.number],
    ],
    signal,
  );
  if (plain && "error" in plain) throw plain.error;
  const value = BigInt(valueOf<string>(plain) ?? "0x0");
  const answer = valueOf<ProofAnswer>(proof);
  if (!answer) return { value, checked: undefined };
  const checked = checkAccount(bytesOf(block.stateRoot), address, [slot], answer);
  const proved = checked.slots[0];
  const error = checked.error ?? proved?.error ?? null;
  return { value, checked: error ?? (proved?.value === value ? null : "the proof has another value") };
}

function Slot(props: { address: string; slot: string; block: BlockAnswer }) {
  const key = slotFull(props.slot);
  const at = Number(props.block.number);
  const loaded = useLoad(`slot ${props.address} ${key} ${props.block.hash}`, (signal) => loadSlot(props.address, key, props.block, signal));
  return (
    <Answer loaded={loaded} what="the slot">
      {({ value, checked }) => (
        <Facts
          rows={[
            ["slot", <Hex hex={key} whole />],
            ["value", <code class="hex whole">0x{value.toString(16).padStart(64, "0")}</code>],
            ["as a number", <span class="num long">{count(value)}</span>],
            ["proof", <Check error={checked} good="checked against the block’s state root" unknown="the server has no proof at this block" />],
            [
              "more",
              <span class="links">
                <a href={to(["proof", props.address], { slot: slotText(key), at })}>the path through the trie</a>
                <a href={to(["walk", props.address], { slot: slotText(key) })}>how it is read</a>
                <a href={to(["address", props.address, "history"], { slot: slotText(key) })}>its history</a>
              </span>,
            ],
          ]}
        />
      )}
    </Answer>
  );
}

function SlotForm(props: { address: string; at: string; slot: string | null; block: BlockAnswer }) {
  const [text, setText] = useState(props.slot ?? "");
  const valid = isSlot(text.trim());
  return (
    <Section title="A slot" explain="Storage of the account by its key: a number, decimal or hexadecimal, of up to 32 bytes.">
      <form
        class="controls"
        onSubmit={(event) => {
          event.preventDefault();
          if (valid) go(to(["address", props.address], { at: props.at, slot: text.trim() }));
        }}
      >
        <label>
          Slot
          <input type="text" value={text} onInput={(event) => setText(event.currentTarget.value)} aria-invalid={text !== "" && !valid} spellcheck={false} autocomplete="off" placeholder="0" />
        </label>
        <button type="submit">Look up</button>
      </form>
      {props.slot !== null && isSlot(props.slot) && <Slot address={props.address} slot={props.slot} block={props.block} />}
    </Section>
  );
}

function Values(props: { address: string; at: string; slot: string | null; loaded: Loaded }) {
  const { block, checked, token, code } = props.loaded;
  const state = proofState(props.loaded);
  const number = Number(block.number);
  const exists = checked?.error === null ? checked.account !== null : props.loaded.nonce > 0n || props.loaded.balance > 0n || code.length > 0;
  const named = token.name !== null || token.symbol !== null;
  return (
    <>
      <Facts
        rows={[
          ["balance", <Ether wei={props.loaded.balance} />],
          ["nonce", <span class="num">{count(props.loaded.nonce)}</span>],
          ["kind", !exists ? "no account at this block" : code.length === 0 ? "externally owned account" : code.length === 23 && hexOf(code).startsWith("0xef0100") ? <>externally owned account that delegates to <a href={to(["address", `0x${hexOf(code).slice(8)}`])}><Hex hex={`0x${hexOf(code).slice(8)}`} /></a> (EIP-7702)</> : "contract"],
          named && [
            "calls itself",
            <span>
              <Foreign text={token.name ?? "–"} /> (<Foreign text={token.symbol ?? "–"} length={20} />)
              {token.decimals !== null && <span class="unit"> {many(Number(token.decimals), "decimal")}</span>}
            </span>,
          ],
          checked?.account && ["storage root", <Hex hex={hexOf(checked.account.storageRoot)} whole />],
          ["block", <BlockLink number={number} />],
          ["proof", <Check error={state} good="nonce, balance and code are proved by the block’s state root" unknown={`not proved: ${props.loaded.proofError ?? "the server gave no proof"}`} />],
          [
            "more",
            <span class="links">
              <a href={to(["proof", props.address], { at: number })}>the path through the trie</a>
              <a href={to(["walk", props.address])}>how it is read</a>
              <a href={to(["logs"], { address: props.address, from: Math.max(0, number - 1000), to: number })}>its logs</a>
            </span>,
          ],
        ]}
      />
      <SlotForm key={props.slot ?? ""} address={props.address} at={props.at} slot={props.slot} block={block} />
      {code.length > 0 && <Code code={code} proved={state === null} />}
    </>
  );
}

export function AccountView(props: { address: string; tab: string | undefined; at: string; slot: string | null }) {
  const { address, at } = props;
  const isHistory = props.tab === "history";
  const loaded = useLoad(`account ${address} ${at} ${isHistory}`, (signal) => (isHistory ? Promise.resolve(null) : load(address, at, signal)));
  return (
    <>
      <Title kind="Account">
        <Hex hex={address} whole /> <Copy text={address} name="the address" />
      </Title>
      <Tabs
        name="Views of the account"
        tabs={[
          ["State", to(["address", address], { at }), !isHistory],
          ["History", to(["address", address, "history"]), isHistory],
          ["Proof", to(["proof", address], { at }), false],
          ["Read step by step", to(["walk", address]), false],
        ]}
      />
      {isHistory ? (
        <HistoryLine key={`${address} ${props.slot}`} address={address} slot={props.slot !== null && isSlot(props.slot) ? slotFull(props.slot) : null} />
      ) : (
        <>
          <BlockSelector at={at} change={(next) => go(to(["address", address], { at: next, slot: props.slot }))} />
          <Answer loaded={loaded} what="the account">
            {(value) => value && <Values address={address} at={at} slot={props.slot} loaded={value} />}
          </Answer>
        </>
      )}
    </>
  );
}
