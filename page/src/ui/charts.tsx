/** Drawings of numbers. Colours are classes, so that they follow the theme; each drawing has a text for those who don't see it. */

import { useState } from "preact/hooks";
import { bytes, percent, seconds } from "./format.ts";
import { Key } from "./parts.tsx";

/** The path of values from left to right, with gaps where there is none, in a box of `width` by `height`. */
export function linePath(values: readonly number[], width: number, height: number, low: number, high: number): string {
  const across = values.length > 1 ? width / (values.length - 1) : 0;
  const span = high - low || 1;
  let path = "";
  let drawing = false;
  for (const [i, value] of values.entries()) {
    if (Number.isNaN(value)) {
      drawing = false;
      continue;
    }
    path += `${drawing ? "L" : "M"}${(i * across).toFixed(1)} ${(height - ((value - low) / span) * height).toFixed(1)}`;
    drawing = true;
  }
  return path;
}

/** A line of the last values, from 0 to the highest. */
export function Spark(props: { values: readonly number[]; name: string; text: (value: number) => string; from?: "zero" | "lowest" }) {
  const [width, height] = [240, 40];
  const values = props.values.slice(-240);
  const known = values.filter((value) => !Number.isNaN(value));
  if (known.length < 2) return <div class="spark empty" aria-hidden="true" />;
  const low = props.from === "lowest" ? Math.min(...known) : Math.min(0, ...known);
  const high = Math.max(...known);
  const last = known[known.length - 1]!;
  const text = `${props.name}: ${props.text(last)} now, ${props.text(Math.min(...known))} to ${props.text(high)} while the page was open`;
  const line = linePath(values, width, height - 4, low, high);
  // Below the line only where the scale begins at 0, and the line has no gap.
  const under = props.from !== "lowest" && known.length === values.length ? `${line}L${width} ${height - 4}L0 ${height - 4}Z` : null;
  return (
    <svg class="spark" viewBox={`0 -2 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={text}>
      <title>{text}</title>
      {under && <path class="under" d={under} />}
      <path class="line" d={line} vector-effect="non-scaling-stroke" />
    </svg>
  );
}

/** A figure with its unit, and the line of its last values. */
export function Tile(props: { title: string; help: string; value: string; values: readonly number[]; text: (value: number) => string; note?: string | undefined }) {
  return (
    <div class="tile" title={props.help}>
      <h3>{props.title}</h3>
      <p class="figure num">{props.value}</p>
      <Spark values={props.values} name={props.title} text={props.text} />
      <p class="note">{props.note ?? props.help}</p>
    </div>
  );
}

export interface Part {
  name: string;
  value: number;
  help?: string;
}

/** Parts of a whole, side by side, with a legend in which each part has its value and share. */
export function Parts(props: { name: string; parts: readonly Part[]; text: (value: number) => string }) {
  const whole = props.parts.reduce((sum, part) => sum + part.value, 0);
  let at = 0;
  const label = props.parts.map((part) => `${part.name} ${props.text(part.value)}`).join(", ");
  return (
    <div class="parts">
      <svg viewBox="0 0 1000 22" preserveAspectRatio="none" role="img" aria-label={`${props.name}: ${label}`}>
        <rect class="track" width="1000" height="22" />
        {props.parts.map((part, i) => {
          const width = whole > 0 ? (part.value / whole) * 1000 : 0;
          const x = at;
          at += width;
          return width > 0 ? (
            <rect key={part.name} class={`part p${i}`} x={x} width={Math.max(width - 1.5, 0.8)} height="22">
              <title>{`${part.name}: ${props.text(part.value)}`}</title>
            </rect>
          ) : null;
        })}
      </svg>
      <ul class="legend">
        {props.parts.map((part, i) => (
          <li key={part.name} title={part.help}>
            <span class={`swatch p${i}`} aria-hidden="true" />
            <span class="legend-name">{part.name}</span>
            <span class="num">{props.text(part.value)}</span>
            <span class="num share">{percent(part.value, whole)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

export interface Latency {
  name: string;
  count: number;
  p50: number | null;
  p99: number | null;
  p999: number | null;
  max: number | null;
}

/** Quantiles on one logarithmic scale from 1 µs to 100 s, so that lines can be compared. */
export function Latencies(props: { rows: readonly Latency[]; name: string }) {
  const at = (value: number) => ((Math.log10(Math.min(Math.max(value, 1e-6), 100)) + 6) / 8) * 100;
  const ticks = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100];
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={props.name}>
      <table class="latencies">
        <thead>
          <tr>
            <th scope="col">what</th>
            <th scope="col" class="right">count</th>
            <th scope="col" class="right">p50</th>
            <th scope="col" class="right">p99</th>
            <th scope="col" class="right">p99.9</th>
            <th scope="col" class="right">longest</th>
            <th scope="col" class="scale">
              <span class="sr">scale from 1 µs to 100 s</span>
              <svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                {ticks.map((tick) => (
                  <rect key={tick} class="tick" x={Math.min(at(tick), 99.7)} y="1" width="0.3" height="3" />
                ))}
              </svg>
              <span class="scale-ends" aria-hidden="true">
                <span>1 µs</span>
                <span>10 ms</span>
                <span>100 s</span>
              </span>
            </th>
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row) => (
            <tr key={row.name}>
              <th scope="row">{row.name}</th>
              <td class="right num">{row.count.toLocaleString("en-US")}</td>
              {[row.p50, row.p99, row.p999, row.max].map((value, i) => (
                <td key={i} class="right num">
                  {seconds(value)}
                </td>
              ))}
              <td class="scale">
                <svg viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">
                  {ticks.map((tick) => (
                    <rect key={tick} class="tick" x={Math.min(at(tick), 99.7)} width="0.3" height="14" />
                  ))}
                  {row.p50 !== null && row.max !== null && (
                    <>
                      <rect class="range" x={at(row.p50)} y="6" width={Math.max(at(row.max) - at(row.p50), 0.5)} height="2" />
                      <rect class="mark" x={at(row.p50) - 0.5} y="2" width="1" height="10" />
                      <rect class="mark p99" x={at(row.p99 ?? row.p50) - 0.4} y="3.5" width="0.8" height="7" />
                      <rect class="mark max" x={at(row.max) - 0.3} y="4.5" width="0.6" height="5" />
                    </>
                  )}
                </svg>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Cells in rows, one of which is chosen by pointer or arrow keys. The colour of a cell is one of eight levels, or null for none. */
export function Cells(props: {
  name: string;
  levels: readonly (number | null)[];
  across: number;
  label: (index: number) => string;
  chosen: number | null;
  choose: (index: number) => void;
  size?: "small";
}) {
  const [active, setActive] = useState(props.chosen ?? 0);
  const last = props.levels.length - 1;
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -props.across, ArrowDown: props.across };
    const step = steps[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? last : step === undefined ? null : active + step;
    if (next !== null) {
      event.preventDefault();
      if (next >= 0 && next <= last) setActive(next);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      props.choose(active);
    }
  };
  const height = Math.ceil(props.levels.length / props.across);
  const pointed = (event: MouseEvent): number | null => {
    const index = (event.target as Element).getAttribute("data-index");
    return index === null ? null : Number(index);
  };
  const shown = Math.min(active, last);
  return (
    <figure class="cells-figure">
      <div
        class={`cells ${props.size ?? ""}`}
        role="slider"
        tabIndex={0}
        aria-label={`${props.name}. Arrow keys move, Enter chooses.`}
        aria-valuemin={0}
        aria-valuemax={Math.max(last, 0)}
        aria-valuenow={shown}
        aria-valuetext={props.label(shown)}
        onKeyDown={move}
      >
      <svg
        viewBox={`0 0 ${props.across * 10} ${height * 10}`}
        aria-hidden="true"
        onClick={(event) => {
          const index = pointed(event);
          if (index === null) return;
          setActive(index);
          props.choose(index);
        }}
        onPointerMove={(event) => {
          const index = pointed(event);
          if (index !== null && index !== active) setActive(index);
        }}
      >
        {props.levels.map((level, i) => (
          <rect key={i} data-index={i} class={level === null ? "cell none" : `cell l${level}`} x={(i % props.across) * 10 + 0.5} y={Math.floor(i / props.across) * 10 + 0.5} width="9" height="9" />
        ))}
        {props.chosen !== null && <rect class="chosen" x={(props.chosen % props.across) * 10} y={Math.floor(props.chosen / props.across) * 10} width="10" height="10" />}
        {shown !== props.chosen && <rect class="active" x={(shown % props.across) * 10} y={Math.floor(shown / props.across) * 10} width="10" height="10" />}
      </svg>
      </div>
      <figcaption class="num">{last >= 0 ? props.label(shown) : ""}</figcaption>
    </figure>
  );
}

/** The eight colours of cells with what they mean. */
export function Scale(props: { low: string; high: string; none?: string }) {
  return (
    <p class="scale-legend">
      {props.none && <Key ink="none">{props.none}</Key>}
      <span>{props.low}</span>
      <span class="ramp" aria-hidden="true">
        {Array.from({ length: 8 }, (_, i) => (
          <span key={i} class={`swatch l${i}`} />
        ))}
      </span>
      <span>{props.high}</span>
    </p>
  );
}

/** The level of a value between two others: 0 to 7. */
export function level(value: number, low: number, high: number): number {
  return high > low ? Math.min(7, Math.max(0, Math.floor(((value - low) / (high - low)) * 8))) : 4;
}

/** Segments as bars: bytes in use below, dead space above. More than 240 are added up in neighbours. */
export function SegmentBars(props: { segments: readonly { number: number; bytes: number; liveBytes: number }[] }) {
  const together = Math.max(1, Math.ceil(props.segments.length / 240));
  const bars = [];
  for (let i = 0; i < props.segments.length; i += together) {
    const group = props.segments.slice(i, i + together);
    bars.push({
      first: group[0]!.number,
      last: group[group.length - 1]!.number,
      bytes: group.reduce((sum, it) => sum + it.bytes, 0),
      live: group.reduce((sum, it) => sum + it.liveBytes, 0),
    });
  }
  const high = Math.max(1, ...bars.map((bar) => bar.bytes));
  const width = Math.min(24, 960 / Math.max(bars.length, 1));
  const whole = bars.reduce((sum, bar) => sum + bar.bytes, 0);
  const live = bars.reduce((sum, bar) => sum + bar.live, 0);
  return (
    <svg class="segments" viewBox={`0 0 ${Math.max(bars.length * width, 96)} 100`} preserveAspectRatio="none" role="img" aria-label={`${props.segments.length} segments, ${bytes(whole)}, of which ${percent(live, whole)} is in use`}>
      {bars.map((bar, i) => (
        <g key={bar.first}>
          <title>{`segment ${bar.first}${bar.last === bar.first ? "" : ` to ${bar.last}`}: ${bytes(bar.bytes)}, ${percent(bar.live, bar.bytes)} in use`}</title>
          <rect class="dead" x={i * width} y={100 - (bar.bytes / high) * 100} width={width * 0.85} height={((bar.bytes - bar.live) / high) * 100} />
          <rect class="live" x={i * width} y={100 - (bar.live / high) * 100} width={width * 0.85} height={(bar.live / high) * 100} />
        </g>
      ))}
    </svg>
  );
}
