/** The pages of the state as a map: 256 shards, the pages of one of them, and the segments beside. */

import { useState } from "preact/hooks";
import { call } from "../data/rpc.ts";
import { history, ticks } from "../data/live.ts";
import { useLoad } from "../data/load.ts";
import { useStore } from "../data/store.ts";
import type { Page, ShardPages, StateMap } from "../data/types.ts";
import { Cells, level, Scale, SegmentBars } from "../ui/charts.tsx";
import { bytes, count, many, percent } from "../ui/format.ts";
import { Answer, BlockLink, Facts, Key, Section, Table, Title, useSome } from "../ui/parts.tsx";
import { go, to } from "../ui/route.ts";

type Ink = "fill" | "age" | "heat";
type ShardInk = "bytes" | "pages" | "mean";

const byteText = (index: number) => index.toString(16).padStart(2, "0");

function Choice<T extends string>(props: { name: string; value: T; options: readonly (readonly [T, string])[]; choose: (value: T) => void }) {
  return (
    <fieldset class="choice">
      <legend>{props.name}</legend>
      {props.options.map(([value, text]) => (
        <label key={value}>
          <input type="radio" name={props.name} checked={props.value === value} onChange={() => props.choose(value)} />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}

function Shards(props: { map: StateMap; chosen: number | null }) {
  const [ink, setInk] = useState<ShardInk>("bytes");
  const valueOf = (shard: StateMap["shards"][number]) =>
    ink === "mean" ? (shard.pages ? shard.bytes / shard.pages : 0) : shard[ink];
  const values = props.map.shards.map(valueOf);
  const some = values.filter((_, i) => props.map.shards[i]!.pages > 0);
  const [low, high] = [Math.min(...some, Number.MAX_VALUE), Math.max(...some, 0)];
  const text = ink === "pages" ? (value: number) => many(value, "page") : bytes;
  const label = (i: number) => {
    const shard = props.map.shards[i];
    return shard ? `shard ${byteText(i)}: ${many(shard.pages, "page")}, ${bytes(shard.bytes)}` : "";
  };
  return (
    <Section
      title="The state by hashed key"
      explain="Each cell is one of 256 shards: the accounts and slots whose hashed keys begin with this byte, row by row from 00 to ff. Choose one to see its pages."
    >
      <Choice
        name="Colour of shards"
        value={ink}
        choose={setInk}
        options={[
          ["bytes", "size"],
          ["pages", "pages"],
          ["mean", "bytes a page"],
        ]}
      />
      <Cells
        name="Shards of the state"
        across={16}
        levels={values.map((value, i) => (props.map.shards[i]!.pages ? level(value, low, high) : null))}
        label={label}
        chosen={props.chosen}
        choose={(index) => go(to(["map", byteText(index)]))}
      />
      {some.length > 0 && <Scale low={text(Math.round(low))} high={text(Math.round(high))} none="no page" />}
    </Section>
  );
}

function pathText(path: string): string {
  return path.length > 64 ? `${path.slice(0, 64)} / ${path.slice(64)}` : path;
}

function PageFacts(props: { page: Page }) {
  const { page } = props;
  return (
    <Facts
      rows={[
        ["path", <code class="hex whole">{pathText(page.path) || "the root"}</code>],
        ["of", page.path.length > 64 ? "the storage of one account" : "accounts"],
        ["segment", <span class="num">{count(page.segment)}, from byte {count(page.offset)}</span>],
        ["size", <span class="num">{bytes(page.bytes)}</span>],
        ["in memory", page.cached ? "cached" : "no"],
      ]}
    />
  );
}

function Pages(props: { pages: readonly Page[]; more: boolean }) {
  const [ink, setInk] = useState<Ink>("fill");
  const [chosen, setChosen] = useState<number | null>(null);
  const { pages } = props;
  const sizes = pages.map((page) => page.bytes);
  const ages = pages.map((page) => page.segment);
  const [low, high] = ink === "age" ? [Math.min(...ages), Math.max(...ages)] : [0, Math.max(...sizes, 1)];
  const levelOf = (page: Page) =>
    ink === "heat" ? (page.cached ? 7 : null) : level(ink === "age" ? page.segment : page.bytes, low, high);
  const label = (i: number) => {
    const page = pages[i];
    if (!page) return "";
    return `page ${page.path.length > 64 ? `…${page.path.slice(60, 64)} / ${page.path.slice(64)}` : page.path || "(root)"}: ${bytes(page.bytes)}, segment ${page.segment}, ${page.cached ? "cached" : "not cached"}`;
  };
  const cached = pages.filter((page) => page.cached).length;
  const storage = pages.filter((page) => page.path.length > 64).length;
  if (pages.length === 0) return <p class="empty">This shard has no page.</p>;
  return (
    <>
      <p class="explain num">
        {many(pages.length, "page")}
        {props.more && " and more, which are not shown"}: {count(pages.length - storage)} of accounts, {count(storage)} of storage, {count(cached)} cached (
        {percent(cached, pages.length)}), {bytes(sizes.reduce((sum, size) => sum + size, 0))}.
      </p>
      <Choice
        name="Colour of pages"
        value={ink}
        choose={setInk}
        options={[
          ["fill", "fill"],
          ["age", "age"],
          ["heat", "heat"],
        ]}
      />
      <Cells name="Pages of the shard" size="small" across={64} levels={pages.map(levelOf)} label={label} chosen={chosen} choose={setChosen} />
      {ink === "fill" && <Scale low="empty" high={`${bytes(high)}, the fullest`} />}
      {ink === "age" && <Scale low={`segment ${low}, oldest`} high={`segment ${high}, newest`} />}
      {ink === "heat" && (
        <p class="scale-legend">
          <Key ink="none">on the device alone</Key>
          <Key ink="l7">cached</Key>
        </p>
      )}
      {chosen !== null && pages[chosen] && <PageFacts page={pages[chosen]} />}
    </>
  );
}

function PageTable(props: { pages: readonly Page[] }) {
  const [some, more] = useSome(props.pages, 50);
  return (
    <details>
      <summary>The pages as a table</summary>
      <Table
        name="Pages of the shard"
        columns={["path", "segment", "offset", "bytes", "cached"]}
        numeric={[1, 2, 3]}
        rows={some.map((page) => ({
          key: `${page.segment} ${page.offset}`,
          cells: [<code>{pathText(page.path)}</code>, count(page.segment), count(page.offset), count(page.bytes), page.cached ? "yes" : "no"],
        }))}
      />
      {more}
    </details>
  );
}

function Shard(props: { index: number }) {
  const loaded = useLoad(`shard ${props.index}`, (signal) => call<ShardPages>(["cambium_mapShard", props.index], signal));
  return (
    <Section
      title={`Pages of shard ${byteText(props.index)}`}
      explain="Each cell is a leaf page, in the order of paths. Fill is its size, age the segment in which it was written last, and heat whether it is in the page cache."
    >
      <Answer loaded={loaded} what="the shard’s pages">
        {(value) => (
          <>
            <Pages key={props.index} pages={value.pages} more={value.more} />
            {value.pages.length > 0 && <PageTable pages={value.pages} />}
          </>
        )}
      </Answer>
    </Section>
  );
}

function Segments(props: { map: StateMap }) {
  const { segments } = props.map;
  const whole = segments.reduce((sum, it) => sum + it.bytes, 0);
  const live = segments.reduce((sum, it) => sum + it.liveBytes, 0);
  return (
    <Section
      title="Segments"
      explain="Pages are appended to segment files and never overwritten. What a newer page replaced is dead space; merges move the live pages out of segments with much of it, and the file is removed."
      aside={
        <p class="aside num">
          {many(segments.length, "segment")}, {bytes(whole)}, {percent(live, whole)} in use
        </p>
      }
    >
      <SegmentBars segments={segments} />
      <p class="scale-legend">
        <Key ink="live">in use</Key>
        <Key ink="dead">dead space</Key>
        <span>oldest left, newest right</span>
      </p>
    </Section>
  );
}

/** The map in numbers, with what the figures say of its memory. */
function Whole(props: { map: StateMap }) {
  useStore(ticks);
  const { shards } = props.map;
  const pages = shards.reduce((sum, it) => sum + it.pages, 0);
  const size = shards.reduce((sum, it) => sum + it.bytes, 0);
  const largest = shards.reduce((best, it, i) => (it.bytes > shards[best]!.bytes ? i : best), 0);
  const figure = (name: string, title: string) => {
    const value = history.now(name);
    return value === null ? null : ([title, <span class="num">{bytes(value)}</span>] as const);
  };
  return (
    <Section title="In numbers">
      <Facts
        rows={[
          ["pages", <span class="num">{count(pages)}, {bytes(size)}</span>],
          ["bytes a page", <span class="num">{pages ? bytes(size / pages) : "–"} <span class="unit">on average</span></span>],
          ["largest shard", <a href={to(["map", byteText(largest)])}><span class="num">{byteText(largest)}</span></a>],
          figure("cambium_index_bytes", "index in memory"),
          figure("cambium_page_cache_bytes", "page cache"),
          figure("cambium_value_cache_bytes", "value cache"),
        ]}
      />
    </Section>
  );
}

export function MapView(props: { shard: string | undefined }) {
  const loaded = useLoad("map", (signal) => call<StateMap>(["cambium_map"], signal));
  const index = props.shard !== undefined && /^[0-9a-f]{1,2}$/.test(props.shard) ? Number.parseInt(props.shard, 16) : null;
  return (
    <>
      <Title explain="The state on the device, as the snapshot has it: every leaf page has its place by the path in the trie.">Map of the state’s pages</Title>
      <Answer loaded={loaded} what="the map">
        {(map) => (
          <>
            <p class="place">
              Snapshot at block <BlockLink number={map.snapshot.number} />: {many(map.shards.reduce((sum, it) => sum + it.pages, 0), "page")}.
            </p>
            <div class="map-columns">
              <Shards map={map} chosen={index} />
              <div class="map-side">
                <Segments map={map} />
                <Whole map={map} />
              </div>
            </div>
          </>
        )}
      </Answer>
      {index !== null && <Shard index={index} />}
    </>
  );
}
