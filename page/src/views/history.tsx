/** The history of an account or a slot as a line to walk along. */

import { useEffect, useState } from "preact/hooks";
import { call } from "../data/rpc.ts";
import type { Changes, HistoryEntry } from "../data/types.ts";
import { count, ether, short, shortHex } from "../ui/format.ts";
import { BlockLink, Ether, Facts, Failure, Hex, Section } from "../ui/parts.tsx";
import { to } from "../ui/route.ts";
import { slotText } from "./proof.tsx";

/** Changes that are asked for at once, and most that are kept. */
const PAGE = 128;
const KEPT_MAX = 2048;

const [WIDTH, HEIGHT] = [1000, 160];

/** What the line shows of an entry: ether of a balance, or a slot's number. */
function heightOf(entry: HistoryEntry): number {
  return entry.value !== undefined ? Number(BigInt(entry.value)) : Number(BigInt(entry.balance ?? "0x0")) / 1e18;
}

/** The highest or lowest value of the line. */
function bound(value: number, slot: boolean): string {
  return slot ? short(value) : `${value.toLocaleString("en-US", { maximumFractionDigits: 6 })} ETH`;
}

/** A step line over block numbers, oldest left, with a mark at each change. */
function Line(props: { entries: readonly HistoryEntry[]; kept: readonly [number, number]; whole: boolean; chosen: number; choose: (index: number) => void; slot: boolean }) {
  const { entries } = props;
  const values = entries.map(heightOf);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const oldest = entries[entries.length - 1]!.number;
  const first = props.whole ? Math.min(props.kept[0], oldest) : oldest;
  const last = Math.max(props.kept[1], entries[0]!.number);
  const x = (number: number) => (last > first ? ((number - first) / (last - first)) * (WIDTH - 16) + 8 : WIDTH / 2);
  const y = (value: number) => HEIGHT - 12 - (high > low ? ((value - low) / (high - low)) * (HEIGHT - 24) : (HEIGHT - 24) / 2);
  const points = entries.map((entry, i) => ({ x: x(entry.number), y: y(values[i]!), i })).reverse();
  const path = points.map((point, i) => (i === 0 ? `M${point.x} ${point.y}` : `H${point.x}V${point.y}`)).join("");
  const move = (event: KeyboardEvent) => {
    const step = { ArrowLeft: 1, ArrowRight: -1, Home: entries.length, End: -entries.length }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    props.choose(Math.min(entries.length - 1, Math.max(0, props.chosen + step)));
  };
  const at = points[points.length - 1 - props.chosen]!;
  const entry = entries[props.chosen]!;
  return (
    <div
      class="history-line"
      role="slider"
      tabIndex={0}
      aria-label={`History of the ${props.slot ? "slot" : "balance"}. Arrow keys walk from change to change.`}
      aria-valuemin={0}
      aria-valuemax={entries.length - 1}
      aria-valuenow={entries.length - 1 - props.chosen}
      aria-valuetext={`block ${entry.number}: ${valueText(entry)}`}
      onKeyDown={move}
    >
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        aria-hidden="true"
        onClick={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const place = ((event.clientX - box.left) / box.width) * WIDTH;
          const nearest = points.reduce((best, point) => (Math.abs(point.x - place) < Math.abs(best.x - place) ? point : best));
          props.choose(nearest.i);
        }}
      >
        <path class="line" d={`${path}H${WIDTH - 8}`} vector-effect="non-scaling-stroke" />
        {points.map((point) => (
          <rect key={point.i} class="point" x={point.x - 1.5} y={point.y - 4} width="3" height="8" />
        ))}
        <line class="cursor" x1={at.x} x2={at.x} y1="0" y2={HEIGHT} vector-effect="non-scaling-stroke" />
      </svg>
      <p class="bound high num" aria-hidden="true">
        {bound(high, props.slot)}
      </p>
      {low < high && (
        <p class="bound low num" aria-hidden="true">
          {bound(low, props.slot)}
        </p>
      )}
      <p class="axis num" aria-hidden="true">
        <span>block {count(first)}</span>
        <span>block {count(last)}</span>
      </p>
    </div>
  );
}

function valueText(entry: HistoryEntry): string {
  return entry.value !== undefined ? shortHex(`0x${BigInt(entry.value).toString(16)}`, 10, 10) : `${ether(BigInt(entry.balance ?? "0x0"))} ETH`;
}

/** The difference to the change before, with its sign. */
function Difference(props: { entry: HistoryEntry; before: HistoryEntry | undefined }) {
  if (!props.before || props.entry.balance === undefined || props.before.balance === undefined) return null;
  const difference = BigInt(props.entry.balance) - BigInt(props.before.balance);
  return (
    <span class={difference < 0n ? "less num" : "more num"}>
      {difference > 0n ? "+" : ""}
      {ether(difference)} ETH
    </span>
  );
}

function Chosen(props: { entry: HistoryEntry; before: HistoryEntry | undefined; address: string; slot: string | null }) {
  const { entry, before } = props;
  const same = (name: "nonce" | "codeHash") => before !== undefined && before[name] === entry[name];
  return (
    <Facts
      rows={[
        ["changed in block", <BlockLink number={entry.number} />],
        entry.value !== undefined && ["value", <code class="hex whole">{entry.value}</code>],
        entry.balance !== undefined && [
          "balance",
          <span>
            <Ether wei={BigInt(entry.balance)} /> <Difference entry={entry} before={before} />
          </span>,
        ],
        entry.nonce !== undefined && ["nonce", <span class="num">{count(BigInt(entry.nonce))}{same("nonce") && <span class="unit"> unchanged</span>}</span>],
        entry.codeHash !== undefined && ["code hash", <span><Hex hex={entry.codeHash} head={12} tail={12} />{same("codeHash") && <span class="unit"> unchanged</span>}</span>],
        [
          "more",
          <span class="links">
            <a href={to(["address", props.address], { at: entry.number, slot: props.slot && slotText(props.slot) })}>the account at this block</a>
            <a href={to(["block", entry.number, "diff"])}>all that the block changed</a>
          </span>,
        ],
      ]}
    />
  );
}

export function HistoryLine(props: { address: string; slot: string | null }) {
  const [entries, setEntries] = useState<HistoryEntry[]>([]);
  const [kept, setKept] = useState<readonly [number, number]>([0, 0]);
  const [more, setMore] = useState(true);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [chosen, setChosen] = useState(0);
  const load = async (signal?: AbortSignal) => {
    setBusy(true);
    try {
      const before = entries.length ? entries[entries.length - 1]!.number : null;
      const got = await call<Changes>(["cambium_changes", props.address, props.slot, { before, limit: PAGE }], signal);
      setKept(got.kept);
      setEntries([...entries, ...got.changes]);
      setMore(got.more && got.changes.length > 0);
    } catch (failed) {
      if (!signal?.aborted) setError(failed);
    }
    if (!signal?.aborted) setBusy(false);
  };
  useEffect(() => {
    const stop = new AbortController();
    void load(stop.signal);
    return () => stop.abort();
  }, []);
  const title = props.slot ? `History of slot ${slotText(props.slot)}` : "History of the account";
  if (error) return <Failure error={error} what="the history" />;
  return (
    <Section
      title={title}
      explain={`Every block that changed it, as the history keeps them. The line is ${props.slot ? "the value as a number" : "the balance"}; each mark is a change. Walk along it with the arrow keys, the buttons, or a click.`}
    >
      {entries.length === 0 ? (
        <p class="empty">{busy ? "Loading the history …" : `Nothing changed it from block ${count(kept[0])} to ${count(kept[1])}, which are kept.`}</p>
      ) : (
        <>
          <Line entries={entries} kept={kept} whole={!more} chosen={chosen} choose={setChosen} slot={props.slot !== null} />
          <p class="buttons">
            <button type="button" onClick={() => setChosen(chosen + 1)} disabled={chosen >= entries.length - 1}>
              ← earlier
            </button>
            <button type="button" onClick={() => setChosen(chosen - 1)} disabled={chosen === 0}>
              later →
            </button>
            {more && entries.length < KEPT_MAX && (
              <button type="button" onClick={() => void load()} disabled={busy}>
                {busy ? "Loading …" : "Load earlier changes"}
              </button>
            )}
            <span class="num">
              change {count(entries.length - chosen)} of {count(entries.length)}
              {more ? " that are loaded" : ""}; blocks {count(kept[0])} to {count(kept[1])} are kept
            </span>
          </p>
          <Chosen entry={entries[chosen]!} before={entries[chosen + 1]} address={props.address} slot={props.slot} />
        </>
      )}
    </Section>
  );
}
