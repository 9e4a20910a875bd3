/** The three layers of the state: blocks in memory, the merge under way, the snapshot; and the shards of a cluster. */

import { call } from "../data/rpc.ts";
import { history, live, ticks } from "../data/live.ts";
import { useLoad } from "../data/load.ts";
import { useStore } from "../data/store.ts";
import type { Cluster, Layers, Replica } from "../data/types.ts";
import { Spark } from "../ui/charts.tsx";
import { bytes, count, digits, many, percent, seconds } from "../ui/format.ts";
import { Answer, BlockLink, Facts, Hex, Section, Table, Title, useSome } from "../ui/parts.tsx";
import { useEffect, useState } from "preact/hooks";

/** Loads again every `ms` while the page is shown; the last answer stays until the next one is there. */
function useRepeated<T>(what: string, load: () => Promise<T>, ms: number) {
  const [turn, setTurn] = useState(0);
  const loaded = useLoad(`${what} ${turn}`, load);
  const [last, setLast] = useState(loaded);
  useEffect(() => {
    if (loaded.state === "loading") return;
    setLast(loaded);
    const timer = setInterval(() => {
      if (!document.hidden) setTurn((before) => before + 1);
    }, ms);
    return () => clearInterval(timer);
  }, [loaded]);
  return last;
}

/** Layers as bars, newest on top, as wide as their memory. */
function Stack(props: { layers: Layers["layers"] }) {
  const high = Math.max(1, ...props.layers.map((layer) => layer.bytes));
  const [some, more] = useSome(props.layers, 32);
  return (
    <>
      <ol class="stack">
        {some.map((layer) => (
          <li key={layer.hash}>
            <BlockLink number={layer.number} />
            <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
              <rect class="track" width="100" height="10" />
              <rect class="fillbar" width={(layer.bytes / high) * 100} height="10" />
            </svg>
            <span class="num">
              {bytes(layer.bytes)} <span class="unit">{many(layer.accounts, "account")}, {many(layer.slots, "slot")}</span>
            </span>
          </li>
        ))}
      </ol>
      {more}
    </>
  );
}

function Drawn(props: { layers: Layers }) {
  const { layers, merging, snapshot, head, lastMerge } = props.layers;
  const sum = layers.reduce((total, layer) => total + layer.bytes, 0);
  return (
    <div class="three">
      <section class="layer">
        <header>
          <h2>1 · Layers in memory</h2>
          <p class="num">
            {many(layers.length, "block")}, {bytes(sum)}
          </p>
        </header>
        <p class="explain">What each block above the snapshot changed. Reads look here first, newest first; every block is durable in the block log.</p>
        {layers.length ? <Stack layers={layers} /> : <p class="empty">No block is above the snapshot.</p>}
        <p class="place">
          The head is block <BlockLink number={head.number} />.
        </p>
      </section>
      <p class="flow" aria-hidden="true">
        ↓
      </p>
      <section class="layer">
        <header>
          <h2>2 · The merge</h2>
          <p class="num">{merging ? `${count(merging.partsDone)} of ${count(merging.parts)} shards` : "none under way"}</p>
        </header>
        <p class="explain">A merge writes the changes of the oldest layers into leaf pages, one of 256 shards of the state after another, while blocks go on.</p>
        {merging && (
          <>
            <svg class="meter tall" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={`${percent(merging.partsDone, merging.parts)} of the merge is done`}>
              <rect class="track" width="100" height="6" />
              <rect class="fillbar" width={merging.parts ? (merging.partsDone / merging.parts) * 100 : 0} height="6" />
            </svg>
            <p class="place">
              Up to block <BlockLink number={merging.upTo.number} />, {bytes(merging.bytes)}.
            </p>
          </>
        )}
        {lastMerge ? (
          <Facts
            rows={[
              ["last merge up to", <BlockLink number={lastMerge.upTo} />],
              ["blocks", <span class="num">{count(lastMerge.blocks)}</span>],
              ["took", <span class="num">{seconds(lastMerge.seconds)}</span>],
              ["pages written", <span class="num">{count(lastMerge.pagesWritten)}</span>],
              ["pages moved", <span class="num">{count(lastMerge.pagesMoved)} unchanged, out of segments with much dead space</span>],
              ["bytes written", <span class="num">{bytes(lastMerge.bytes)}{lastMerge.seconds > 0 && `, ${bytes(lastMerge.bytes / lastMerge.seconds)}/s`}</span>],
            ]}
          />
        ) : (
          <p class="empty">The server has made no merge since it started.</p>
        )}
      </section>
      <p class="flow" aria-hidden="true">
        ↓
      </p>
      <section class="layer">
        <header>
          <h2>3 · The snapshot on the device</h2>
          <p class="num">
            block <BlockLink number={snapshot.number} />
          </p>
        </header>
        <p class="explain">The state at one block, in leaf pages in segment files. The upper part of the trie, the index, is in memory and names the page of every key.</p>
        <Facts
          rows={[
            ["block hash", <Hex hex={snapshot.hash} head={12} tail={12} />],
            figureRow("pages", "cambium_pages", count),
            figureRow("segments", "cambium_segments", count),
            figureRow("size of segments", "cambium_segment_bytes", bytes),
            figureRow("of it in use", "cambium_segment_live_bytes", bytes),
            figureRow("index in memory", "cambium_index_bytes", bytes),
          ]}
        />
      </section>
    </div>
  );
}

function figureRow(name: string, figure: string, text: (value: number) => string) {
  const value = history.now(figure);
  return value === null ? null : ([name, <span class="num">{text(value)}</span>] as const);
}

function Backlog() {
  useStore(ticks);
  if (history.latest === null) return null;
  const waited = (history.now("cambium_seal_wait_ns_total") ?? 0) / 1e9;
  const rows = [
    ["cambium_layers", "layers", count],
    ["cambium_merging_bytes", "being merged", bytes],
    ["cambium_merging_parts", "shards merged", count],
  ] as const;
  return (
    <Section title="Backlog over time" explain={`Blocks wait when merges are behind: ${seconds(waited)} in all since the start. The lines show the time that this page is open.`}>
      <div class="tiles">
        {rows.map(([figure, title, text]) => (
          <div class="tile" key={figure}>
            <h3>{title}</h3>
            <p class="figure num">{text(history.now(figure) ?? 0)}</p>
            <Spark values={history.values(figure)} name={title} text={text} />
          </div>
        ))}
        <div class="tile">
          <h3>pages written a second</h3>
          <p class="figure num">{digits(history.rate("cambium_pages_written_total") ?? 0)}</p>
          <Spark values={history.rates("cambium_pages_written_total")} name="pages written a second" text={digits} />
        </div>
      </div>
    </Section>
  );
}

export function LayersView() {
  const layers = useRepeated("layers", () => call<Layers>(["cambium_layers"]), 2000);
  return (
    <>
      <Title explain="The state has three layers: recent blocks in memory, a merge that writes the oldest of them, and a snapshot on the device.">
        The three layers
      </Title>
      <Answer loaded={layers} what="the layers">
        {(value) => <Drawn layers={value} />}
      </Answer>
      <Backlog />
    </>
  );
}

function replicaText(replica: Replica) {
  if (replica.error !== null) return <span class="check bad">✕ {replica.error}</span>;
  if (replica.number === null) return <span class="check none">not known</span>;
  return (
    <span class={replica.behind ? "check none" : "check good"}>
      block {count(replica.number)}
      {replica.behind ? `, ${many(replica.behind, "block")} behind` : ""}
    </span>
  );
}

/** Prefixes of nibbles as a place in the range of all keys: 0 to 1. */
function placeOf(nibbles: string, end: boolean): number {
  if (nibbles === "") return end ? 1 : 0;
  const place = Number.parseInt(nibbles.slice(0, 8).padEnd(8, end ? "f" : "0"), 16) + (end ? 1 : 0);
  return Math.min(1, Math.max(0, place / 2 ** 32));
}

export function ClusterView() {
  const shards = useRepeated("shards", () => call<Cluster>(["cambium_shards"]), 3000);
  const head = useStore(live).head;
  return (
    <>
      <Title explain="A cluster keeps the state in the memory of several machines. Each shard has a range of hashed keys, and several replicas, which verify every update.">
        Shards
      </Title>
      <Answer loaded={shards} what="a cluster">
        {(value) => (
          <Section title="Shards and replicas" explain={head ? `The head here is block ${count(head.number)}. The bar shows the part of all hashed keys that a shard has.` : undefined}>
            <Table
              name="Shards"
              columns={["shard", "keys", "part", "replica", "address", "state"]}
              rows={value.shards.flatMap((shard, i) =>
                shard.replicas.map((replica, j) => ({
                  key: `${i} ${j}`,
                  cells: [
                    j === 0 ? String(i) : "",
                    j === 0 ? <code>{`${shard.from || "0…"} – ${shard.to || "f…"}`}</code> : "",
                    j === 0 ? (
                      <svg class="range-bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
                        <rect class="track" width="100" height="8" />
                        <rect class="fillbar" x={placeOf(shard.from, false) * 100} width={Math.max(0.5, (placeOf(shard.to, true) - placeOf(shard.from, false)) * 100)} height="8" />
                      </svg>
                    ) : (
                      ""
                    ),
                    replica.name,
                    <code>{replica.address}</code>,
                    replicaText(replica),
                  ],
                })),
              )}
            />
          </Section>
        )}
      </Answer>
    </>
  );
}
