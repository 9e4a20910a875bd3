/** The way of a block through the engine, with what each stage does now: for those who see Cambium for the first time. */

import type { ComponentChildren } from "preact";
import { history } from "../data/live.ts";
import { bytes, count, many, seconds, short } from "../ui/format.ts";
import { Section } from "../ui/parts.tsx";
import { to } from "../ui/route.ts";

interface Stage {
  title: string;
  value: string;
  of: string;
  explain: ComponentChildren;
}

const now = (name: string) => history.now(name) ?? 0;

/** A total for each of a number of things; null before there is one. */
function each(total: string, number: string): number | null {
  const things = now(number);
  return things > 0 ? now(total) / things : null;
}

function stages(): Stage[] {
  const reads = each("cambium_reads_total", "cambium_blocks_committed_total");
  const hashing = each("cambium_hash_ns_total", "cambium_roots_total");
  const hashes = each("cambium_node_hashes_total", "cambium_roots_total");
  const commit = history.figure("cambium_commit_seconds")?.samples[0]?.p50 ?? null;
  const merging = now("cambium_merging_bytes");
  return [
    {
      title: "Execution",
      value: reads === null ? "–" : short(reads),
      of: "reads a block",
      explain: "Transactions run on the state; the pages that they need are read ahead.",
    },
    {
      title: "State root",
      value: hashing === null ? "–" : seconds(hashing / 1e9),
      of: hashes === null ? "of hashing a root" : `of hashing a root, ${short(hashes)} nodes`,
      explain: "The changed paths of the trie are hashed, and the root is compared with the header’s.",
    },
    {
      title: "Block log",
      value: seconds(commit),
      of: "a commit, median",
      explain: "The block and its changes are appended and synced: from here on it is durable.",
    },
    {
      title: "Layers",
      value: bytes(now("cambium_overlay_bytes") + now("cambium_delta_bytes")),
      of: `in ${many(now("cambium_layers"), "layer")}`,
      explain: <a href={to(["layers"])}>Recent blocks stay in memory, so that forks and reads of them are cheap.</a>,
    },
    {
      title: "Merge",
      value: merging ? `${count(now("cambium_merging_parts"))} of 256` : count(now("cambium_merges_total")),
      of: merging ? "shards merged" : now("cambium_merges_total") === 1 ? "merge so far" : "merges so far",
      explain: "Old layers are written into leaf pages in the background.",
    },
    {
      title: "Snapshot",
      value: short(now("cambium_pages")),
      of: `pages, ${bytes(now("cambium_segment_bytes"))}`,
      explain: <a href={to(["map"])}>The state on the device: pages, found by an index in memory.</a>,
    },
  ];
}

export function Way() {
  return (
    <Section title="The way of a block" explain="Every block passes these stages from left to right. The numbers are the server’s own, since it started.">
      <ol class="way">
        {stages().map((stage) => (
          <li key={stage.title}>
            <h3>{stage.title}</h3>
            <p class="figure num">{stage.value}</p>
            <p class="unit">{stage.of}</p>
            <p class="note">{stage.explain}</p>
          </li>
        ))}
      </ol>
    </Section>
  );
}
