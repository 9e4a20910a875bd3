/** All figures of the server in one table. */

import { useState } from "preact/hooks";
import { history, live, ticks } from "../data/live.ts";
import { seriesName } from "../data/series.ts";
import { useStore } from "../data/store.ts";
import type { Figure, Sample } from "../data/types.ts";
import { Spark } from "../ui/charts.tsx";
import { bytes, count, digits, seconds, short } from "../ui/format.ts";
import { Failure, Title } from "../ui/parts.tsx";
import { RpcError } from "../data/rpc.ts";

/** Rows that are drawn at once; the filter finds the others. */
const ROWS_MAX = 400;

function valueText(figure: Figure, sample: Sample): string {
  if (figure.kind === "summary") return `${count(sample.count ?? 0)} measured`;
  const value = sample.value;
  if (value === null || value === undefined) return "–";
  if (figure.name.includes("bytes")) return bytes(value);
  if (figure.name.endsWith("_ns_total")) return seconds(value / 1e9);
  return Number.isInteger(value) ? count(value) : digits(value);
}

function rateText(figure: Figure, name: string): string {
  if (figure.kind === "gauge") return "";
  const rate = history.rate(name);
  if (rate === null) return "";
  if (figure.name.includes("bytes")) return `${bytes(rate)}/s`;
  return figure.name.endsWith("_ns_total") ? `${digits(rate / 1e9)} s/s` : `${short(rate)}/s`;
}

function quantiles(sample: Sample): string {
  return [["p50", sample.p50], ["p99", sample.p99], ["p99.9", sample.p999], ["longest", sample.max]]
    .map(([name, value]) => `${name} ${seconds(value as number | null | undefined)}`)
    .join(", ");
}

export function FiguresView() {
  const state = useStore(live);
  useStore(ticks);
  const [filter, setFilter] = useState("");
  const [moved, setMoved] = useState(false);
  if (state.hasFigures === false) {
    return (
      <>
        <Title>All figures</Title>
        <Failure error={new RpcError(-32601, "")} what="its figures" />
      </>
    );
  }
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const all = (history.latest?.figures ?? []).flatMap((figure) =>
    figure.samples.map((sample) => ({ figure, sample, name: seriesName(figure.name, sample.labels) })),
  );
  const rows = all.filter(({ figure, name }) => {
    const text = `${name} ${figure.help}`.toLowerCase();
    return words.every((word) => text.includes(word)) && (!moved || (history.grown(name) ?? 0) !== 0);
  });
  return (
    <>
      <Title explain="Every figure that the server counts, as collectors get them. Counters are totals since the server started, with their rate over five seconds. Lines show the time that this page is open, ten minutes at most: of counters the rate, of others the value.">
        All figures
      </Title>
      <form class="controls" onSubmit={(event) => event.preventDefault()}>
        <label>
          Filter
          <input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} placeholder="cache hits" autocomplete="off" />
        </label>
        <label class="inline">
          <input type="checkbox" checked={moved} onChange={(event) => setMoved(event.currentTarget.checked)} />
          changed while the page was open
        </label>
        <p class="num">
          {count(rows.length)} of {count(all.length)}
        </p>
      </form>
      <div class="scroll" tabIndex={0} role="region" aria-label="All figures">
        <table class="figures">
          <thead>
            <tr>
              <th scope="col">figure</th>
              <th scope="col" class="right">
                value
              </th>
              <th scope="col" class="right">
                rate
              </th>
              <th scope="col">over time</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, ROWS_MAX).map(({ figure, sample, name }) => (
              <tr key={name}>
                <th scope="row">
                  <code>{figure.name}</code>
                  {Object.entries(sample.labels).map(([key, value]) => (
                    <span class="label" key={key}>
                      {key} {value}
                    </span>
                  ))}
                  <span class="help">
                    {figure.help} {figure.kind === "summary" && quantiles(sample)}
                  </span>
                </th>
                <td class="right num">{valueText(figure, sample)}</td>
                <td class="right num">{rateText(figure, name)}</td>
                <td class="line-cell">
                  <Spark
                    name={name}
                    values={figure.kind === "gauge" ? history.values(name) : history.rates(name)}
                    text={figure.name.includes("bytes") ? bytes : short}
                    from={figure.kind === "gauge" ? "lowest" : "zero"}
                  />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > ROWS_MAX && <p class="explain">{count(rows.length - ROWS_MAX)} more are found by the filter.</p>}
    </>
  );
}
