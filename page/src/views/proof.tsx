/** A proof drawn as the path through the trie, each node decoded and hashed by the page. */

import { useState } from "preact/hooks";
import { call } from "../data/rpc.ts";
import { loadBlock } from "../data/blocks.ts";
import { useLoad } from "../data/load.ts";
import type { BlockAnswer } from "../data/types.ts";
import { count, many } from "../ui/format.ts";
import { AddressLink, Answer, BlockLink, Check, Ether, Facts, Hex, Section, Title } from "../ui/parts.tsx";
import { go, to } from "../ui/route.ts";
import { BlockSelector } from "../ui/blockselector.tsx";
import { type Account, accountOf, bytesOf, type Child, checkAccount, decode, equal, hexOf, keccak, minimalBytes, nibbleText, numberOf, type ProofAnswer, proofOf, slotKey, type Step, takenText, type Walk, walk } from "../verify/index.ts";

/** A byte that was changed: which node, and where in it. */
interface Forged {
  node: number;
  at: number;
}

function childText(child: Child): string {
  if (child.by === "nothing") return "–";
  const hex = child.by === "hash" ? hexOf(child.hash) : hexOf(child.bytes);
  return hex.slice(2, 8);
}

function Branch(props: { step: Step; children: readonly Child[]; next: number | undefined }) {
  return (
    <ol class="children" aria-label="Children of the branch by nibble">
      {props.children.map((child, nibble) => (
        <li key={nibble} class={nibble === props.next ? "taken" : child.by === "nothing" ? "none" : undefined} title={child.by === "nothing" ? "no child" : hexOf(child.by === "hash" ? child.hash : child.bytes)}>
          <b>{nibble.toString(16)}</b>
          <span>{childText(child)}</span>
        </li>
      ))}
    </ol>
  );
}

function LeafValue(props: { value: Uint8Array; storage: boolean }) {
  let account: Account | null = null;
  let number: bigint | null = null;
  try {
    if (props.storage) {
      const item = decode(props.value);
      if (item instanceof Uint8Array) number = numberOf(item);
    } else account = accountOf(props.value);
  } catch {
    // The value of a forged leaf needs not decode: its bytes are shown.
  }
  if (account) {
    return (
      <Facts
        rows={[
          ["nonce", <span class="num">{count(account.nonce)}</span>],
          ["balance", <Ether wei={account.balance} />],
          ["storage root", <Hex hex={hexOf(account.storageRoot)} whole />],
          ["code hash", <Hex hex={hexOf(account.codeHash)} whole />],
        ]}
      />
    );
  }
  return <Facts rows={[["value", <code class="hex whole">{number === null ? hexOf(props.value) : `0x${number.toString(16)}`}</code>]]} />;
}

/** The bytes of a node; the forged one is marked. */
function Bytes(props: { bytes: Uint8Array; forged: number | null }) {
  const hex = hexOf(props.bytes).slice(2);
  if (props.forged === null) return <code class="bytes">{hex}</code>;
  const at = 2 * props.forged;
  return (
    <code class="bytes">
      {hex.slice(0, at)}
      <mark>{hex.slice(at, at + 2)}</mark>
      {hex.slice(at + 2)}
    </code>
  );
}

function StepView(props: { index: number; step: Step; found: Walk; storage: boolean; forged: Forged | null; forge: (forged: Forged) => void; last: boolean }) {
  const { step, found, index } = props;
  const { node } = step;
  const mine = props.forged?.node === index ? props.forged.at : null;
  const taken = takenText(found, step);
  const state = step.below ? "below" : step.error !== null ? "bad" : "good";
  const nibble = node?.kind === "branch" && !step.below ? found.path[step.depth] : undefined;
  return (
    <li class={`step ${state}`}>
      <header>
        <h3>
          <span class="step-number">{index + 1}</span>
          {node ? node.kind : "not a node"}
        </h3>
        <p class="num">
          {many(step.bytes.length, "byte")}
          {!step.below && `, after ${many(step.depth, "nibble")} of the path`}
        </p>
      </header>
      <div class="hashes">
        {step.expected !== null && (
          <p>
            <span>{index === 0 ? "the root says" : "the node above says"}</span> <code>{hexOf(step.expected)}</code>
          </p>
        )}
        <p>
          <span>{step.hash ? "Keccak-256 here" : "stands in its parent"}</span> {step.hash && <code class={step.expected && !equal(step.hash, step.expected) ? "differs" : undefined}>{hexOf(step.hash)}</code>}
        </p>
        {step.below ? <p class="check none">not judged: the check failed above</p> : <Check error={step.error} good={step.hash ? "the hashes are the same" : "its bytes are in the node above, which is checked"} />}
      </div>
      {node?.kind === "branch" && <Branch step={step} children={node.children} next={nibble} />}
      {node && node.kind !== "branch" && (
        <p class="node-path">
          path <code>{nibbleText(node.path)}</code>
          {!step.below && (taken === "" ? (node.kind === "leaf" ? ": another key, so the trie has no value here" : ": the key leaves it, so the trie has no value here") : ": the same nibbles as in the key")}
        </p>
      )}
      {node?.kind === "branch" && props.last && !step.below && step.error === null && <p class="node-path">There is no child at nibble {nibble?.toString(16)}, so the trie has no value here.</p>}
      {node?.kind === "leaf" && <LeafValue value={node.value} storage={props.storage} />}
      <details open={mine !== null}>
        <summary>The node’s bytes</summary>
        <Bytes bytes={step.bytes} forged={mine} />
      </details>
      <button type="button" class="quiet" onClick={() => props.forge({ node: index, at: Math.floor(Math.random() * step.bytes.length) })}>
        Forge a byte of this node
      </button>
    </li>
  );
}

function PathLine(props: { found: Walk }) {
  const { found } = props;
  const ends = found.steps.filter((step) => !step.below && step.error === null);
  const last = ends[ends.length - 1];
  const depth = last ? last.depth + last.taken : 0;
  return (
    <p class="path-line">
      <span>hashed key, {found.path.length} nibbles</span>
      <code>
        {ends.map((step, i) => (
          <span key={i} class={`walked w${i % 2}`} title={`node ${i + 1} consumes this`}>
            {takenText(found, step)}
          </span>
        ))}
        <span class="unwalked">{nibbleText(found.path.slice(depth))}</span>
      </code>
    </p>
  );
}

/** One proof with its check, which can be forged. `root` is what was checked before. */
function Proof(props: { root: Uint8Array; rootName: string; keyBytes: Uint8Array; nodes: readonly Uint8Array[]; storage: boolean }) {
  const [forged, setForged] = useState<Forged | null>(null);
  const change = (node: Uint8Array, i: number) => {
    if (forged?.node !== i) return node;
    const copy = Uint8Array.from(node);
    copy[forged.at] = copy[forged.at]! ^ 1;
    return copy;
  };
  const found = walk(props.root, keccak(props.keyBytes), props.nodes.map(change));
  const bytesIn = props.nodes.reduce((sum, node) => sum + node.length, 0);
  const forgeAny = () => {
    let at = Math.floor(Math.random() * bytesIn);
    for (const [node, bytes] of props.nodes.entries()) {
      if (at < bytes.length) return setForged({ node, at });
      at -= bytes.length;
    }
  };
  const good = found.value === null ? "the trie has no value for this key, and the proof shows it" : "the proof holds: the value is in the trie with this root";
  return (
    <div class="proof">
      <div class={`verdict ${found.error === null ? "good" : "bad"}`} role="status">
        <Check error={found.error} good={good} />
        {forged && (
          <p>
            Byte {count(forged.at)} of node {forged.node + 1} was changed from <code>{hexOf(props.nodes[forged.node]!.slice(forged.at, forged.at + 1))}</code>.
          </p>
        )}
      </div>
      <p class="buttons">
        <button type="button" onClick={forgeAny} disabled={bytesIn === 0}>
          Forge one byte
        </button>
        <button type="button" onClick={() => setForged(null)} disabled={forged === null}>
          Take it back
        </button>
        <span class="num">
          {many(props.nodes.length, "node")}, {many(bytesIn, "byte")}
        </span>
      </p>
      <PathLine found={found} />
      <p class="root-line">
        <span>{props.rootName}</span> <code>{hexOf(props.root)}</code>
      </p>
      <ol class="steps">
        {found.steps.map((step, i) => (
          <StepView key={i} index={i} step={step} found={found} storage={props.storage} forged={forged} forge={setForged} last={i === found.steps.length - 1} />
        ))}
      </ol>
    </div>
  );
}

interface Proved {
  block: BlockAnswer;
  headerError: string | null;
  answer: ProofAnswer;
}

async function load(address: string, slots: readonly string[], at: string, signal: AbortSignal): Promise<Proved> {
  const { block, error } = await loadBlock(at, false, signal);
  const answer = await call<ProofAnswer>(["eth_getProof", address, slots, { blockHash: block.hash }], signal).catch((failed: unknown) => {
    if (signal.aborted) throw failed;
    // Servers before EIP-1898 know blocks by number alone.
    return call<ProofAnswer>(["eth_getProof", address, slots, block.number], signal);
  });
  return { block, headerError: error, answer };
}

function Proofs(props: { address: string; slots: readonly string[]; proved: Proved }) {
  const { block, headerError, answer } = props.proved;
  const stateRoot = bytesOf(block.stateRoot);
  const checked = checkAccount(stateRoot, props.address, props.slots, answer);
  let nodes: Uint8Array[] = [];
  let malformed: string | null = null;
  try {
    nodes = proofOf(answer.accountProof);
  } catch (error) {
    malformed = String(error);
  }
  return (
    <>
      <Section title="The block" explain="The page trusts the hash of the block, and nothing else: compare it with a source that you trust. The header has the state root.">
        <Facts
          rows={[
            ["block", <BlockLink number={block.number} />],
            ["hash", <Hex hex={block.hash} whole />],
            ["header", <Check error={headerError} good="Keccak-256 of its fields is the hash" />],
            ["state root", <Hex hex={block.stateRoot} whole />],
          ]}
        />
      </Section>
      <Section
        title="The account’s path"
        explain="From the state root down: each node is named by the hash of its bytes in the node above it, so one changed byte anywhere breaks the chain of hashes at that node."
      >
        <Facts rows={[["what the server claims", <Check error={malformed ?? checked.error} good="is what the trie has" />]]} />
        <Proof root={stateRoot} rootName="state root" keyBytes={bytesOf(props.address)} nodes={nodes} storage={false} />
      </Section>
      {props.slots.map((slot, i) => {
        const check = checked.slots[i];
        if (!check) return null;
        return (
          <Section key={slot} title={`The path of slot ${slotText(slot)}`} explain="From the account’s storage root down, in the same way.">
            <Facts
              rows={[
                ["what the server claims", <Check error={check.error} good="is what the trie has" />],
                ["value", check.value === null ? "–" : <code class="hex whole">0x{check.value.toString(16)}</code>],
              ]}
            />
            {checked.account && answer.storageProof?.[i] && check.walk.path.length > 0 && (
              <Proof root={checked.account.storageRoot} rootName="storage root" keyBytes={slotKey(slot)} nodes={proofOf(answer.storageProof[i].proof)} storage />
            )}
          </Section>
        );
      })}
    </>
  );
}

/** A slot's key without leading zeros. */
export function slotText(slot: string): string {
  return `0x${BigInt(slot).toString(16)}`;
}

export function ProofView(props: { address: string; slot: string | null; at: string }) {
  const slots = props.slot ? [slotFull(props.slot)] : [];
  const loaded = useLoad(`proof ${props.address} ${slots} ${props.at}`, (signal) => load(props.address, slots, props.at, signal));
  const place = (at: string) => to(["proof", props.address], { slot: props.slot, at });
  return (
    <>
      <Title kind="Proof" explain="The path through the trie from a block’s state root to this account, checked in this browser.">
        <AddressLink address={props.address} at={props.at} whole />
      </Title>
      <BlockSelector at={props.at} change={(at) => go(place(at))} />
      <Answer loaded={loaded} what="the proof">
        {(proved) => <Proofs key={`${proved.block.hash} ${slots}`} address={props.address} slots={slots} proved={proved} />}
      </Answer>
      <p class="explain">
        <a href={to(["walk", props.address], { slot: props.slot })}>How the server reads this account</a> without a proof is another path, through caches and pages.
      </p>
    </>
  );
}

/** A slot's key as 32 bytes in hexadecimal. */
export function slotFull(slot: string): string {
  return hexOf(slotKey(`0x${BigInt(slot).toString(16)}`));
}

/** Whether text is a slot's key: a decimal number or hexadecimal. */
export function isSlot(text: string): boolean {
  return (/^0x[0-9a-fA-F]{1,64}$/.test(text) || /^[0-9]{1,77}$/.test(text)) && minimalBytes(BigInt(text)).length <= 32;
}
