/** Logs by address and topic over a range of blocks. */

import { useEffect, useState } from "preact/hooks";
import { call } from "../data/rpc.ts";
import { useLoad } from "../data/load.ts";
import { live } from "../data/live.ts";
import { Logs } from "../ui/logtable.tsx";
import { many } from "../ui/format.ts";
import { Answer, Section, Title } from "../ui/parts.tsx";
import { go, to } from "../ui/route.ts";
import type { Log } from "../verify/index.ts";

/** The filter, as it stands in the route. */
interface Filter {
  address: string;
  topic: string;
  from: string;
  to: string;
}

function problem(filter: Filter): string | null {
  if (filter.address && !/^0x[0-9a-fA-F]{40}$/.test(filter.address)) return "An address has 20 bytes in hexadecimal.";
  if (filter.topic && !/^0x[0-9a-fA-F]{64}$/.test(filter.topic)) return "A topic has 32 bytes in hexadecimal.";
  for (const block of [filter.from, filter.to]) if (block && !/^[0-9]{1,15}$/.test(block)) return "Blocks are decimal numbers here.";
  if (filter.from && filter.to && Number(filter.from) > Number(filter.to)) return "The first block is above the last.";
  return null;
}

function Results(props: { filter: Filter }) {
  const { filter } = props;
  const number = (text: string, otherwise: string) => (text ? `0x${Number(text).toString(16)}` : otherwise);
  const asked = {
    fromBlock: number(filter.from, "latest"),
    toBlock: number(filter.to, "latest"),
    ...(filter.address ? { address: filter.address } : {}),
    ...(filter.topic ? { topics: [filter.topic] } : {}),
  };
  const loaded = useLoad(JSON.stringify(asked), (signal) => call<Log[]>(["eth_getLogs", asked], signal));
  return (
    <Answer loaded={loaded} what="the logs">
      {(logs) => (
        <Section title={many(logs.length, "log")} explain="As the server found them. Open a log’s block to see that its logs are complete.">
          <Logs key={JSON.stringify(asked)} logs={logs} withBlock />
        </Section>
      )}
    </Answer>
  );
}

export function LogsView(props: { query: URLSearchParams }) {
  const head = live.get().head?.number;
  const given: Filter = {
    address: props.query.get("address") ?? "",
    topic: props.query.get("topic") ?? "",
    from: props.query.get("from") ?? (head === undefined ? "" : String(Math.max(0, head - 100))),
    to: props.query.get("to") ?? (head === undefined ? "" : String(head)),
  };
  const [filter, setFilter] = useState(given);
  useEffect(() => setFilter(given), [props.query.toString()]);
  const wrong = problem(filter);
  const asked = props.query.size > 0 && problem(given) === null;
  const field = (name: keyof Filter, label: string, placeholder: string) => (
    <label>
      {label}
      <input type="text" value={filter[name]} onInput={(event) => setFilter({ ...filter, [name]: event.currentTarget.value.trim() })} spellcheck={false} autocomplete="off" placeholder={placeholder} />
    </label>
  );
  return (
    <>
      <Title explain="Logs of contracts by address and first topic, over a range of blocks.">Logs</Title>
      <form
        class="controls"
        onSubmit={(event) => {
          event.preventDefault();
          if (wrong === null) go(to(["logs"], { ...filter }));
        }}
      >
        {field("address", "Address", "any")}
        {field("topic", "Topic 0", "any")}
        {field("from", "From block", "0")}
        {field("to", "To block", "latest")}
        <button type="submit">Find</button>
      </form>
      {wrong !== null && (
        <p class="notice" role="status">
          {wrong}
        </p>
      )}
      {asked && <Results filter={given} />}
    </>
  );
}
