/** A block's access list drawn as the schedule that it allows. */

import { useState } from "preact/hooks";
import { call } from "../data/rpc.ts";
import { callAbout } from "../data/blocks.ts";
import { useLoad } from "../data/load.ts";
import { longestChain, readsInFlight, type Run, timeline, type Timeline } from "../data/schedule.ts";
import type { BlockAnswer, Schedule, ScheduledTransaction } from "../data/types.ts";
import { count, digits, many, percent, seconds } from "../ui/format.ts";
import { AddressLink, Answer, Check, Facts, Key, Section, Table, TransactionLink, useSome } from "../ui/parts.tsx";
import { bytesOf, bytesOfLength, decode, equal, hexOf, type Item, keccak } from "../verify/index.ts";

const THREADS = [1, 2, 4, 8, 16, 32, 64];
const WIDTH = 1000;

function Reads(props: { timeline: Timeline; span: number; withList: boolean; high: number }) {
  const steps = readsInFlight(props.timeline, props.withList);
  const x = (ns: number) => (ns / props.span) * WIDTH;
  const y = (reads: number) => 36 - (reads / props.high) * 34;
  let path = "M0 36";
  for (const step of steps) path += `H${x(step.at).toFixed(1)}V${y(step.reads).toFixed(1)}`;
  const most = Math.max(0, ...steps.map((step) => step.reads));
  return (
    <svg class="inflight" viewBox={`0 0 ${WIDTH} 38`} preserveAspectRatio="none" role="img" aria-label={`At most ${count(most)} reads may be in flight`}>
      <path class="area" d={`${path}H${x(props.timeline.end).toFixed(1)}V36Z`} />
    </svg>
  );
}

function Gantt(props: { timeline: Timeline; span: number; name: string; chain: ReadonlySet<number>; chosen: number | null; choose: (index: number | null) => void; arrows: boolean }) {
  const { runs, threads } = props.timeline;
  const height = Math.max(8, Math.min(20, 240 / threads));
  const x = (ns: number) => (ns / props.span) * WIDTH;
  const byIndex = new Map(runs.map((run) => [run.transaction.index, run]));
  const chosen = props.chosen === null ? undefined : byIndex.get(props.chosen);
  const waited = new Set(chosen?.transaction.after);
  const className = (run: Run) => {
    const index = run.transaction.index;
    if (index === props.chosen) return "run chosen-run";
    if (props.chosen !== null && waited.has(index)) return "run waited";
    return props.arrows && props.chain.has(index) ? "run chain" : `run r${index % 2}`;
  };
  const middle = (run: Run) => run.thread * height + height / 2;
  return (
    <svg
      class="gantt"
      height={threads * height}
      viewBox={`0 0 ${WIDTH} ${threads * height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`${props.name}: ${many(runs.length, "transaction")} on ${many(threads, "thread")} take ${seconds(props.timeline.end / 1e9)}`}
      onClick={(event) => {
        const index = (event.target as Element).getAttribute("data-index");
        props.choose(index === null ? null : Number(index));
      }}
    >
      {Array.from({ length: threads }, (_, i) => (
        <rect key={i} class="lane" x="0" y={i * height + 0.5} width={WIDTH} height={height - 1} />
      ))}
      {runs.map((run) => (
        <rect key={run.transaction.index} data-index={run.transaction.index} class={className(run)} x={x(run.begin)} y={run.thread * height + 1} width={Math.max(0.6, x(run.end) - x(run.begin) - 0.5)} height={height - 2}>
          <title>{`transaction ${run.transaction.index}: ${seconds(run.transaction.ns / 1e9)}, ${many(run.transaction.reads, "read")}`}</title>
        </rect>
      ))}
      {props.arrows &&
        chosen?.transaction.after.map((index) => {
          const from = byIndex.get(index);
          return from ? <path key={index} class="arrow" vector-effect="non-scaling-stroke" d={`M${x(from.end)} ${middle(from)}L${x(chosen.begin)} ${middle(chosen)}`} /> : null;
        })}
    </svg>
  );
}

function Axis(props: { span: number }) {
  return (
    <p class="axis num" aria-hidden="true">
      {[0, 0.25, 0.5, 0.75, 1].map((part) => (
        <span key={part}>{seconds((props.span * part) / 1e9)}</span>
      ))}
    </p>
  );
}

function Chosen(props: { transaction: ScheduledTransaction; choose: (index: number | null) => void }) {
  const { transaction } = props;
  return (
    <div class="chosen-facts">
      <Facts
        rows={[
          ["transaction", <span><span class="num">{transaction.index}</span> <TransactionLink hash={transaction.hash} /></span>],
          ["took", <span class="num">{seconds(transaction.ns / 1e9)}, {count(transaction.gasUsed)} gas</span>],
          ["reads", <span class="num">{count(transaction.reads)}</span>],
          [
            "reads what these write",
            transaction.after.length ? (
              <span class="indices">
                {transaction.after.slice(0, 40).map((index) => (
                  <button type="button" key={index} onClick={() => props.choose(index)}>
                    {index}
                  </button>
                ))}
                {transaction.after.length > 40 && ` and ${transaction.after.length - 40} more`}
              </span>
            ) : (
              "none of this block: it may begin at once without the list, too"
            ),
          ],
        ]}
      />
    </div>
  );
}

function Drawn(props: { schedule: Schedule }) {
  const { transactions } = props.schedule;
  const [threads, setThreads] = useState(() => THREADS.find((it) => it >= props.schedule.threads) ?? 64);
  const [chosen, choose] = useState<number | null>(null);
  const [some, more] = useSome(transactions, 100);
  if (transactions.length === 0) return <p class="empty">The block has no transaction.</p>;
  const listed = timeline(transactions, threads, false);
  const waiting = timeline(transactions, threads, true);
  const whole = transactions.reduce((sum, it) => sum + it.ns, 0);
  const span = Math.max(listed.end, waiting.end, 1);
  const chain = longestChain(transactions);
  const chainSet = new Set(chain.indices);
  const reads = transactions.reduce((sum, it) => sum + it.reads, 0);
  const high = Math.max(1, ...readsInFlight(listed, true).map((step) => step.reads));
  const current = chosen === null ? undefined : transactions.find((it) => it.index === chosen);
  const begins = new Map(listed.runs.map((run) => [run.transaction.index, run]));
  const begunWaiting = new Map(waiting.runs.map((run) => [run.transaction.index, run]));
  return (
    <>
      <form class="controls" onSubmit={(event) => event.preventDefault()}>
        <label>
          Threads
          <select value={threads} onChange={(event) => setThreads(Number(event.currentTarget.value))}>
            {THREADS.map((it) => (
              <option key={it} value={it} selected={it === threads}>
                {it}
              </option>
            ))}
          </select>
        </label>
        <label>
          Transaction
          <input type="number" min={0} max={transactions.length - 1} value={chosen ?? ""} placeholder="none" onInput={(event) => choose(event.currentTarget.value === "" ? null : Number(event.currentTarget.value))} />
        </label>
        <p class="num">
          one after another {seconds(whole / 1e9)} · without the list {seconds(waiting.end / 1e9)} ({digits(whole / Math.max(waiting.end, 1))}×) · with it{" "}
          <strong>
            {seconds(listed.end / 1e9)} ({digits(whole / Math.max(listed.end, 1))}×)
          </strong>
        </p>
      </form>
      <div class="gantts">
        <h3>With the access list: every transaction may begin at once, on the values that the list has</h3>
        <Gantt timeline={listed} span={span} name="With the access list" chain={chainSet} chosen={chosen} choose={choose} arrows={false} />
        <h4>Reads that may be in flight: all {count(reads)} are known at the beginning</h4>
        <Reads timeline={listed} span={span} withList high={high} />
        <h3>Without it: a transaction waits for those whose writes it reads</h3>
        <Gantt timeline={waiting} span={span} name="Without an access list" chain={chainSet} chosen={chosen} choose={choose} arrows />
        <h4>Reads that may be in flight: each transaction that runs has found one at a time</h4>
        <Reads timeline={waiting} span={span} withList={false} high={high} />
        <Axis span={span} />
      </div>
      <p class="scale-legend">
        <Key ink="r0">a transaction</Key>
        <Key ink="chain">
          on the longest chain of waits: {many(chain.indices.length, "transaction")}, {seconds(chain.ns / 1e9)} ({percent(chain.ns, whole)} of the work)
        </Key>
        <Key ink="chosen-run">chosen</Key>
        <Key ink="waited">waited for</Key>
      </p>
      {current && <Chosen transaction={current} choose={choose} />}
      <details>
        <summary>The schedule as a table</summary>
        <Table
          name="Schedule"
          columns={["transaction", "hash", "gas", "took", "reads", "begins with the list", "without", "waits for"]}
          numeric={[0, 2, 3, 4, 5, 6]}
          rows={some.map((it) => ({
            key: it.index,
            cells: [
              it.index,
              <TransactionLink hash={it.hash} />,
              count(it.gasUsed),
              seconds(it.ns / 1e9),
              count(it.reads),
              seconds((begins.get(it.index)?.begin ?? 0) / 1e9),
              seconds((begunWaiting.get(it.index)?.begin ?? 0) / 1e9),
              <span class="num">{it.after.slice(0, 8).join(", ")}{it.after.length > 8 && ` and ${it.after.length - 8} more`}</span>,
            ],
          }))}
        />
        {more}
      </details>
    </>
  );
}

/** How much an access list names of an account. Slots are counted, and of the others the transactions that change them. */
interface Access {
  address: string;
  slotWrites: number;
  slotReads: number;
  balances: number;
  nonces: number;
  codes: number;
}

/** Reads a list's encoding (EIP-7928): accounts with changed slots, slots read, balances, nonces and codes. */
function accessesOf(raw: Uint8Array): Access[] {
  const list = (item: Item | undefined) => (Array.isArray(item) ? item : []);
  return list(decode(raw)).map((item) => {
    const account = list(item);
    const [slotWrites = 0, slotReads = 0, balances = 0, nonces = 0, codes = 0] = account.slice(1).map((part) => list(part).length);
    const address = account[0];
    return { address: address instanceof Uint8Array ? hexOf(address) : "0x", slotWrites, slotReads, balances, nonces, codes };
  });
}

/** An access list, and whether its header has its hash: undefined where headers have none. */
interface AccessList {
  accesses: Access[];
  bytes: number;
  error: string | null | undefined;
}

async function loadList(block: BlockAnswer, signal: AbortSignal): Promise<AccessList> {
  const raw = bytesOf(await call<string>(["debug_getRawBlockAccessList", block.number], signal));
  const named = block.blockAccessListHash;
  const hash = keccak(raw);
  const error = typeof named !== "string" ? undefined : equal(hash, bytesOfLength(named, 32)) ? null : `the list has the hash ${hexOf(hash)}, and the header has ${named}`;
  return { accesses: accessesOf(raw), bytes: raw.length, error };
}

function List(props: { list: AccessList }) {
  const { accesses, bytes, error } = props.list;
  const [some, more] = useSome(accesses, 50);
  const sum = (part: (access: Access) => number) => count(accesses.reduce((total, access) => total + part(access), 0));
  return (
    <>
      <Facts
        rows={[
          ["hash", <Check error={error} good="Keccak-256 of the list is in the header" unknown="headers of this fork have no hash of a list" />],
          ["names", <span class="num">{many(accesses.length, "account")}, {sum((it) => it.slotWrites)} slots that change, {sum((it) => it.slotReads)} that are only read</span>],
          ["size", <span class="num">{count(bytes)} bytes</span>],
        ]}
      />
      <details>
        <summary>The list by account</summary>
        <Table
          name="The access list by account"
          columns={["account", "slots that change", "slots only read", "changes of balance", "of nonce", "of code"]}
          numeric={[1, 2, 3, 4, 5]}
          rows={some.map((it) => ({
            key: it.address,
            cells: [<AddressLink address={it.address} />, count(it.slotWrites), count(it.slotReads), count(it.balances), count(it.nonces), count(it.codes)],
          }))}
        />
        {more}
      </details>
    </>
  );
}

export function ScheduleView(props: { block: BlockAnswer }) {
  const loaded = useLoad(`schedule ${props.block.hash}`, (signal) => callAbout<Schedule>("cambium_schedule", props.block, signal));
  const list = useLoad(`list ${props.block.hash}`, (signal) => loadList(props.block, signal));
  return (
    <>
      <Section
        title="The schedule"
        explain="The server executed the block once more, one transaction after another, and measured each. The drawings show what any number of threads makes of these times: a bar is a transaction, a row a thread, and time goes to the right on one scale. Choose a bar to see what it waits for."
      >
        <Answer loaded={loaded} what="the schedule">
          {(schedule) => <Drawn schedule={schedule} />}
        </Answer>
      </Section>
      <Section title="The access list" explain="The block’s list of every account and slot that it touches, with the values after each transaction (EIP-7928). Headers have its hash from Amsterdam on.">
        <Answer loaded={list} what="the access list">
          {(value) => <List list={value} />}
        </Answer>
      </Section>
    </>
  );
}
