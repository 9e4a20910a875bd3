/** How the server reads an account or a slot now, step by step. */

import { call } from "../data/rpc.ts";
import { useLoad } from "../data/load.ts";
import type { Lookup, LookupStep } from "../data/types.ts";
import { bytes, count, many } from "../ui/format.ts";
import { AddressLink, Answer, BlockLink, Ether, Facts, Hex, Section, Title } from "../ui/parts.tsx";
import { to } from "../ui/route.ts";
import { isSlot, slotFull, slotText } from "./proof.tsx";

interface Told {
  title: string;
  outcome: "found" | "on" | "read";
  text: preact.ComponentChildren;
  explain: string;
}

function told(step: LookupStep): Told {
  switch (step.at) {
    case "layers":
      return {
        title: "Layers in memory",
        outcome: step.found === null ? "on" : "found",
        text: step.found === null ? <>Not in any of {many(step.count, "layer")}.</> : <>Found: block <BlockLink number={step.found} /> changed it.</>,
        explain: "What the blocks above the snapshot changed, newest first.",
      };
    case "valueCache":
      return {
        title: "Value cache",
        outcome: step.found ? "found" : "on",
        text: step.found ? "Found." : "Not there.",
        explain: "Accounts and slots of the snapshot that were read before.",
      };
    case "index":
      return {
        title: "Index",
        outcome: step.deviceReads ? "read" : "on",
        text: (
          <>
            Shard <a href={to(["map", step.shard.toString(16).padStart(2, "0")])}>{step.shard.toString(16).padStart(2, "0")}</a>, {" "}
            {step.page === null ? "which answers without a page" : <>down the path to the page at <code>{step.page}</code></>}
            {step.deviceReads ? `; ${many(step.deviceReads, "device read")}` : "; in memory"}.
          </>
        ),
        explain: "The upper part of the trie. Its leaves name pages.",
      };
    case "page":
      return {
        title: "Leaf page",
        outcome: step.found ? "found" : step.cached ? "on" : "read",
        text: (
          <>
            {bytes(step.bytes)} of segment {count(step.segment)} from byte {count(step.offset)}, {many(step.leaves, "leaf", "leaves")}; {step.cached ? "cached" : "read from the device"}. {step.found ? "Found." : "It has no such leaf."}
          </>
        ),
        explain: "Accounts and slots below one path, side by side.",
      };
  }
}

/** Whether a step has the value, so that a read ends there. */
const ends = (step: LookupStep) => (step.at === "layers" && step.found !== null) || (step.at === "valueCache" && step.found);

function Stations(props: { lookup: Lookup }) {
  const end = props.lookup.steps.findIndex(ends);
  return (
    <ol class="stations">
      {props.lookup.steps.map((step, i) => {
        const { title, outcome, text, explain } = told(step);
        const isNeeded = end < 0 || i <= end;
        const device = (step.at === "index" && step.deviceReads > 0) || (step.at === "page" && !step.cached);
        return (
          <li key={i} class={`station ${isNeeded ? outcome : "on"}`}>
            <h3>
              {title} {!isNeeded ? <span class="label">not needed</span> : device && <span class="label">device read</span>}
            </h3>
            <p>{text}</p>
            <p class="explain">{explain}</p>
          </li>
        );
      })}
    </ol>
  );
}

function Value(props: { value: Lookup["value"] }) {
  const { value } = props;
  if (value === null) return <p>The state has no value here.</p>;
  if (typeof value === "string") return <Facts rows={[["value", <code class="hex whole">{value}</code>]]} />;
  return (
    <Facts
      rows={[
        ["nonce", <span class="num">{count(BigInt(value.nonce))}</span>],
        ["balance", <Ether wei={BigInt(value.balance)} />],
        value.storageRoot !== undefined && ["storage root", <Hex hex={value.storageRoot} whole />],
        ["code hash", <Hex hex={value.codeHash} whole />],
      ]}
    />
  );
}

export function WalkView(props: { address: string; slot: string | null }) {
  const slot = props.slot !== null && isSlot(props.slot) ? slotFull(props.slot) : null;
  const loaded = useLoad(`walk ${props.address} ${slot}`, (signal) => call<Lookup>(["cambium_walk", props.address, slot], signal));
  return (
    <>
      <Title kind={slot ? `Read of slot ${slotText(slot)}` : "Read"} explain="One read of the newest state, and each place that may have the value, also those that a read does not reach since an earlier one has it. Looking now makes the next read warmer.">
        <AddressLink address={props.address} whole />
      </Title>
      <Answer loaded={loaded} what="the read">
        {(lookup) => (
          <>
            <Section title="The way" explain={`Keys are hashed first, which spreads them evenly over the trie. ${lookup.deviceReads === 0 ? "The device was not needed." : `The device was read ${many(lookup.deviceReads, "time")}.`}`}>
              <Facts
                rows={[
                  ["hashed address", <Hex hex={lookup.path} whole />],
                  lookup.slotPath !== null && ["hashed slot", <Hex hex={lookup.slotPath} whole />],
                ]}
              />
              <Stations lookup={lookup} />
            </Section>
            <Section title="What was read">
              <Value value={lookup.value} />
            </Section>
          </>
        )}
      </Answer>
      <p class="explain">
        <a href={to(["proof", props.address], { slot: slot && slotText(slot) })}>The path of its proof</a> leads from the state root down through the nodes of the trie instead.
      </p>
    </>
  );
}
