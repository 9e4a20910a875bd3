/** Small parts of every view. */

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { isMissing } from "../data/rpc.ts";
import type { Loaded } from "../data/load.ts";
import { count, ether, etherCut, printable, shortHex, time } from "./format.ts";
import { to } from "./route.ts";

/** A part of a view with a heading and a line that explains what one sees. */
export function Section(props: { title: string; explain?: ComponentChildren; aside?: ComponentChildren; class?: string; children: ComponentChildren }) {
  return (
    <section class={`section ${props.class ?? ""}`}>
      <header class="section-head">
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      {props.explain && <p class="explain">{props.explain}</p>}
      {props.children}
    </section>
  );
}

/** The heading of a view. */
export function Title(props: { kind?: string; children: ComponentChildren; explain?: ComponentChildren }) {
  return (
    <header class="title">
      {props.kind && <p class="kind">{props.kind}</p>}
      <h1 tabIndex={-1}>{props.children}</h1>
      {props.explain && <p class="explain">{props.explain}</p>}
    </header>
  );
}

/** Names and values, one a line. */
export function Facts(props: { rows: readonly (readonly [string, ComponentChildren] | null | false | undefined)[] }) {
  return (
    <dl class="facts">
      {props.rows.map((row) =>
        row ? (
          <div key={row[0]}>
            <dt>{row[0]}</dt>
            <dd>{row[1]}</dd>
          </div>
        ) : null,
      )}
    </dl>
  );
}

/** A value that is copied by a button. */
export function Copy(props: { text: string; name: string }) {
  const [done, set] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(props.text).then(() => {
      set(true);
      setTimeout(() => set(false), 1500);
    });
  };
  return (
    <button type="button" class="copy" onClick={copy} aria-label={`Copy ${props.name}`} title={`Copy ${props.name}`}>
      {done ? "copied" : "copy"}
    </button>
  );
}

/** Hexadecimal text, shortened in the middle unless `whole`. */
export function Hex(props: { hex: string; whole?: boolean; head?: number; tail?: number }) {
  return props.whole ? (
    <code class="hex whole">{props.hex}</code>
  ) : (
    <code class="hex" title={props.hex}>
      {shortHex(props.hex, props.head, props.tail)}
    </code>
  );
}

export function AddressLink(props: { address: string; at?: string | number | null; whole?: boolean }) {
  return (
    <a href={to(["address", props.address], { at: props.at })}>
      <Hex hex={props.address} whole={props.whole ?? false} />
    </a>
  );
}

export function BlockLink(props: { number: number | string; children?: ComponentChildren }) {
  return <a href={to(["block", String(Number(props.number))])}>{props.children ?? <span class="num">{count(Number(props.number))}</span>}</a>;
}

export function TransactionLink(props: { hash: string; whole?: boolean }) {
  return (
    <a href={to(["tx", props.hash])}>
      <Hex hex={props.hash} whole={props.whole ?? false} />
    </a>
  );
}

/** An amount of wei, in ether: exact, or cut off after `places` decimals, so that amounts line up in a table. */
export function Ether(props: { wei: bigint; places?: number }) {
  return (
    <span class="num" title={`${count(props.wei)} wei`}>
      {props.places === undefined ? ether(props.wei) : etherCut(props.wei, props.places)} <span class="unit">ETH</span>
    </span>
  );
}

/** Text of the chain's users. */
export function Foreign(props: { text: string; length?: number }) {
  return <bdi class="foreign">{printable(props.text, props.length)}</bdi>;
}

export function Time(props: { timestamp: number }) {
  return <span class="num">{time(props.timestamp)}</span>;
}

/** What the page checked itself: passed with `error` null, failed with a reason, or not checked. */
export function Check(props: { error: string | null | undefined; good: string; unknown?: string }) {
  if (props.error === undefined) return <span class="check none">{props.unknown ?? "not checked"}</span>;
  return props.error === null ? (
    <span class="check good">
      <span aria-hidden="true">✓ </span>
      {props.good}
    </span>
  ) : (
    <span class="check bad">
      <span aria-hidden="true">✕ </span>
      Check failed: {printable(props.error, 400)}
    </span>
  );
}

/** Why something is not shown. A method that the server lacks is said to be that. */
export function Failure(props: { error: unknown; what: string }) {
  const text = props.error instanceof Error ? props.error.message : String(props.error);
  return (
    <p class="notice" role="status">
      {isMissing(props.error) ? (
        <>This server does not serve {props.what}: it lacks the method.</>
      ) : (
        <>
          {props.what[0]?.toUpperCase() + props.what.slice(1)} can’t be shown: <Foreign text={text} length={400} />
        </>
      )}
    </p>
  );
}

/** An answer: what is drawn of it, or that it loads, or why there is none. */
export function Answer<T>(props: { loaded: Loaded<T>; what: string; children: (value: T) => ComponentChildren }): JSX.Element {
  if (props.loaded.state === "loading") return <p class="loading">Loading {props.what} …</p>;
  if (props.loaded.state === "failed") return <Failure error={props.loaded.error} what={props.what} />;
  return <>{props.children(props.loaded.value)}</>;
}

/** Places below a view. */
export function Tabs(props: { name: string; tabs: readonly (readonly [title: string, address: string, current: boolean])[] }) {
  return (
    <nav class="tabs" aria-label={props.name}>
      {props.tabs.map(([title, address, current]) => (
        <a key={title} href={address} aria-current={current ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

/** A table that scrolls sideways where it does not fit. Numeric columns are named in `numeric`, by index. */
export function Table(props: {
  name: string;
  columns: readonly string[];
  numeric?: readonly number[];
  rows: readonly { key: string | number; cells: readonly ComponentChildren[]; class?: string | undefined }[];
}) {
  const numeric = new Set(props.numeric);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={props.name}>
      <table>
        <thead>
          <tr>
            {props.columns.map((column, i) => (
              <th key={column} scope="col" class={numeric.has(i) ? "right" : undefined}>
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row) => (
            <tr key={row.key} class={row.class}>
              {row.cells.map((cell, i) => (
                <td key={i} class={numeric.has(i) ? "right num" : undefined}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A colour of a drawing with what it means. */
export function Key(props: { ink: string; children: ComponentChildren }) {
  return (
    <span class="key">
      <span class={`swatch ${props.ink}`} aria-hidden="true" />
      <span>{props.children}</span>
    </span>
  );
}

/** Shows `step` items of a long list, and more on demand. */
export function useSome<T>(items: readonly T[], step: number): [some: readonly T[], more: ComponentChildren] {
  const [shown, set] = useState(step);
  const left = items.length - shown;
  const more =
    left > 0 ? (
      <button type="button" onClick={() => set(shown + step)}>
        Show {count(Math.min(left, step))} more of {count(left)}
      </button>
    ) : null;
  return [items.slice(0, shown), more];
}
