/** What the server does now, from its figures. */

import { history, live, ticks, type Head } from "../data/live.ts";
import { useStore } from "../data/store.ts";
import type { Figure } from "../data/types.ts";
import { Latencies, type Latency, Parts, type Part, Spark, Tile } from "../ui/charts.tsx";
import { bytes, count, digits, percent, seconds, short } from "../ui/format.ts";
import { BlockLink, Hex, Section, Table, Time, Title } from "../ui/parts.tsx";
import { to } from "../ui/route.ts";
import { Way } from "./way.tsx";

/** The series of requests to the public service. */
const REQUESTS = 'cambium_api_requests_total{service="rpc"}';

const now = (name: string) => history.now(name) ?? 0;

function HeadLine(props: { head: Head | null }) {
  const head = props.head;
  if (head === null) return <p class="loading">Waiting for the head …</p>;
  return (
    <div class="headline">
      <p class="head-number">
        <span class="sr">The head is block </span>
        <a href={to(["block", head.number])} class="num">
          {count(head.number)}
        </a>
      </p>
      <dl class="headfacts">
        <div>
          <dt>hash</dt>
          <dd>
            <Hex hex={head.hash} head={10} tail={10} />
          </dd>
        </div>
        <div>
          <dt>timestamp</dt>
          <dd>
            <Time timestamp={head.timestamp} />
          </dd>
        </div>
        <div>
          <dt>transactions</dt>
          <dd class="num">{head.transactions === null ? "–" : count(head.transactions)}</dd>
        </div>
        <div>
          <dt>gas used</dt>
          <dd class="num">
            {count(head.gasUsed)} <span class="unit">of {count(head.gasLimit)}</span>
            <svg class="meter" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={`${percent(head.gasUsed, head.gasLimit)} of the gas limit`}>
              <rect class="track" width="100" height="4" />
              <rect class="fillbar" width={head.gasLimit ? (head.gasUsed / head.gasLimit) * 100 : 0} height="4" />
            </svg>
          </dd>
        </div>
      </dl>
    </div>
  );
}

/** Rates of the head's number: what is imported, by whichever process. */
function Speed(props: { head: Head | null }) {
  const imports = history.figure("cambium_import_blocks_total") !== undefined;
  const blocks = history.rate("cambium_head_block") ?? 0;
  const perBlock = props.head?.transactions ?? 0;
  const rate = (name: string, otherwise: number) => (imports ? (history.rate(name) ?? 0) : otherwise);
  const rates = (name: string, each: number) => (imports ? history.rates(name) : history.rates("cambium_head_block").map((value) => value * each));
  const source = imports ? "counted by the import" : "blocks a second, times what the newest block has";
  const gas = props.head?.gasUsed ?? 0;
  return (
    <>
      <Tile title="Blocks a second" help="How fast the head moves, over five seconds." value={digits(blocks)} values={history.rates("cambium_head_block")} text={digits} />
      <Tile
        title="Transactions a second"
        help={source}
        value={short(rate("cambium_import_transactions_total", blocks * perBlock))}
        values={rates("cambium_import_transactions_total", perBlock)}
        text={short}
      />
      <Tile title="Gas a second" help={source} value={short(rate("cambium_import_gas_total", blocks * gas))} values={rates("cambium_import_gas_total", gas)} text={short} />
    </>
  );
}

/** Device reads for one access to an account or a slot, between answers. */
function perAccess(): number[] {
  const reads = history.rates("cambium_reads_total");
  const pages = history.rates("cambium_page_reads_value_total");
  const index = history.rates("cambium_index_reads_total");
  return reads.map((value, i) => (value > 0 ? (pages[i]! + (index[i] ?? 0)) / value : Number.NaN));
}

function Tiles(props: { head: Head | null }) {
  const reads = now("cambium_reads_total");
  const device = now("cambium_page_reads_value_total") + now("cambium_index_reads_total");
  const backlog = now("cambium_merging_bytes");
  const parts = now("cambium_merging_parts");
  return (
    <div class="tiles">
      <Speed head={props.head} />
      <Tile title="Reads a second" help="Accounts and slots read through views." value={short(history.rate("cambium_reads_total") ?? 0)} values={history.rates("cambium_reads_total")} text={short} note={`${short(reads)} since the start`} />
      <Tile title="Device reads an access" help="Pages and index parts read from the device, for each account or slot read." value={reads ? digits(device / reads) : "–"} values={perAccess()} text={digits} note="since the start; the line shows the last second" />
      <Tile title="Layers" help="Blocks above the snapshot, or above the state being merged." value={count(now("cambium_layers"))} values={history.values("cambium_layers")} text={count} />
      <Tile title="Merge" help="Memory of the layers being merged; 0 if there is no merge." value={backlog ? `${count(parts)} of 256` : "none"} values={history.values("cambium_merging_bytes")} text={bytes} note={backlog ? `${bytes(backlog)} being merged into pages` : "no merge is under way"} />
      <Tile title="Requests a second" help="Requests over JSON-RPC that were answered. This page makes one a second." value={digits(history.rate(REQUESTS) ?? 0)} values={history.rates(REQUESTS)} text={digits} />
    </div>
  );
}

function Answered() {
  const misses = now("cambium_value_cache_misses_total");
  const device = Math.min(now("cambium_page_reads_value_total"), misses);
  const parts: Part[] = [
    { name: "layers", value: now("cambium_overlay_hits_total"), help: "Recent blocks, in memory above the snapshot." },
    { name: "value cache", value: now("cambium_value_cache_hits_total"), help: "Accounts and slots that were read before." },
    { name: "page in memory", value: misses - device, help: "The leaf page was cached, or read ahead." },
    { name: "device", value: device, help: "A page was read to answer." },
  ];
  return (
    <Section
      title="Where reads were answered"
      explain="A read looks in the layers of recent blocks first, then in the value cache, then in a leaf page. Only the last share waited for the device."
    >
      <Parts name="Reads answered by" parts={parts} text={short} />
    </Section>
  );
}

function ReadAhead() {
  const ahead = now("cambium_page_reads_ahead_total");
  const used = now("cambium_pages_ahead_used_total");
  const wasted = now("cambium_pages_ahead_wasted_total");
  const parts: Part[] = [
    { name: "used", value: used },
    { name: "not used yet", value: Math.max(0, ahead - used - wasted) },
    { name: "wasted", value: wasted, help: "Dropped before anything used them." },
  ];
  return (
    <Section title="Pages read ahead" explain="Pages that were read before execution asked for them, because blocks that come next are likely to need them.">
      <Parts name="Pages read ahead" parts={parts} text={short} />
    </Section>
  );
}

const MEMORY: readonly (readonly [figure: string, name: string])[] = [
  ["cambium_overlay_bytes", "values of layers"],
  ["cambium_delta_bytes", "tries of layers"],
  ["cambium_merging_bytes", "being merged"],
  ["cambium_index_bytes", "index"],
  ["cambium_value_cache_bytes", "value cache"],
  ["cambium_page_cache_bytes", "page cache"],
  ["cambium_code_cache_bytes", "code cache"],
  ["cambium_pinned_bytes", "held by views alone"],
];

function Memory() {
  const parts = MEMORY.map(([figure, name]) => ({
    name,
    value: now(figure),
    help: history.figure(figure)?.help ?? "",
  }));
  const resident = history.now("process_resident_memory_bytes");
  return (
    <Section
      title="Memory"
      explain="The parts that the engine counts, against each other. The rest of the process is its program, threads and buffers."
      aside={resident !== null && <p class="aside num">{bytes(resident)} resident in all</p>}
    >
      <Parts name="Memory" parts={parts} text={bytes} />
      <Spark values={history.values("process_resident_memory_bytes")} name="Resident memory" text={bytes} />
    </Section>
  );
}

function latenciesOf(figure: Figure | undefined, name: (labels: Record<string, string>) => string): Latency[] {
  return (figure?.samples ?? []).map((sample) => ({
    name: name(sample.labels),
    count: sample.count ?? 0,
    p50: sample.p50 ?? null,
    p99: sample.p99 ?? null,
    p999: sample.p999 ?? null,
    max: sample.max ?? null,
  }));
}

function Waits() {
  const calls = latenciesOf(history.figure("cambium_api_call_seconds"), (labels) => labels.method ?? "call");
  calls.sort((a, b) => b.count - a.count);
  const rows = [
    ...latenciesOf(history.figure("cambium_commit_seconds"), () => "commit"),
    ...latenciesOf(history.figure("cambium_seal_wait_seconds"), () => "wait for a merge"),
    ...calls.slice(0, 12),
  ];
  const waits = now("cambium_page_waits_total");
  const mean = waits ? now("cambium_page_wait_ns_total") / waits / 1e9 : null;
  return (
    <Section
      title="Latencies"
      explain={
        <>
          Each line runs from the median to the longest; the marks are p50, p99 and the longest.
          {mean !== null && ` ${short(waits)} reads of single keys waited for a page, ${seconds(mean)} each on average.`}
        </>
      }
    >
      <Latencies name="Latencies" rows={rows} />
    </Section>
  );
}

function Newest(props: { heads: readonly Head[] }) {
  return (
    <Section title="Newest blocks" explain="Those that the page saw since it was opened: of a fast import only some. A block opens with its transactions, logs, schedule and state diff.">
      <Table
        name="Newest blocks"
        columns={["block", "hash", "timestamp", "gas used", "of limit"]}
        numeric={[0, 3, 4]}
        rows={props.heads.slice(0, 12).map((head) => ({
          key: head.hash,
          cells: [
            <BlockLink number={head.number} />,
            <Hex hex={head.hash} />,
            <Time timestamp={head.timestamp} />,
            count(head.gasUsed),
            percent(head.gasUsed, head.gasLimit),
          ],
        }))}
      />
    </Section>
  );
}

export function Now() {
  const state = useStore(live);
  useStore(ticks);
  const figures = history.latest;
  return (
    <>
      <Title explain="Cambium keeps the state of an Ethereum chain: every account and slot after each block, with a root that proves them. This page shows what the server does, and checks what it says.">
        Now
      </Title>
      <HeadLine head={state.head} />
      {state.hasFigures === false && (
        <p class="notice" role="status">
          This server does not serve its figures to the page: it lacks the method <code>cambium_figures</code>.
        </p>
      )}
      {figures && (
        <>
          <h2 class="sr">Rates and backlog</h2>
          <Tiles head={state.head} />
          <Way />
          <div class="columns">
            <Answered />
            <ReadAhead />
          </div>
          <Memory />
          <Waits />
        </>
      )}
      <Newest heads={state.heads} />
      <Section title="Where to look next">
        <ul class="ways">
          <li>
            <a href={to(["layers"])}>The three layers</a>: blocks in memory, the merge, and pages on the device.
          </li>
          <li>
            <a href={to(["map"])}>The map of the state’s pages</a>: where the state is on the device, and which parts of it are in memory.
          </li>
          {state.head && (
            <li>
              <a href={to(["block", state.head.number, "schedule"])}>The schedule of the newest block</a>: what its access list lets run at once.
            </li>
          )}
          <li>
            <a href={to(["figures"])}>All figures</a>, each with its meaning.
          </li>
        </ul>
      </Section>
    </>
  );
}
