// Public test data in the folder that CAMBIUM_DATA names, and the verifier as the page has it.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { build } from "esbuild";

/** The folder of public test data; null without it. */
export const DATA = process.env.CAMBIUM_DATA && existsSync(process.env.CAMBIUM_DATA) ? process.env.CAMBIUM_DATA : null;

/** Says that tests are skipped, on standard error too, so that it is not overlooked. */
export function skipped(reason) {
  console.error(`SKIPPED: ${reason}`);
  return reason;
}

/** Why tests that need these folders of test data are skipped; false if they are there. An error where data are required. */
export function lacking(...folders) {
  const missing = DATA === null ? "CAMBIUM_DATA names no folder of public test data" : folders.filter((folder) => !existsSync(join(DATA, folder))).map((folder) => `there is no ${folder} in CAMBIUM_DATA`)[0];
  if (missing === undefined) return false;
  if (process.env.CAMBIUM_DATA_REQUIRED) throw new Error(missing);
  return skipped(missing);
}

/** The verifier, bundled as the page's build does it. */
export async function verifier() {
  const built = await build({
    entryPoints: [new URL("../src/verify/index.ts", import.meta.url).pathname],
    bundle: true,
    format: "esm",
    write: false,
  });
  return import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].text).toString("base64")}`);
}

/** Calls and results of a folder of execution-apis: lines that begin with `>>` and `<<`. */
export function exchanges(method) {
  const folder = join(DATA, "execution-apis/tests", method);
  return readdirSync(folder)
    .sort()
    .map((file) => {
      const lines = readFileSync(join(folder, file), "utf8").split("\n");
      const line = (mark) => JSON.parse(lines.find((it) => it.startsWith(mark)).slice(3));
      return { file, call: line(">>"), answer: line("<<") };
    });
}

/** The bytes of each block of execution-apis' chain, and those of its header. */
export function chain(verify) {
  const bytes = readFileSync(join(DATA, "execution-apis/tests/chain.rlp"));
  const blocks = [];
  for (let at = 0; at < bytes.length; ) {
    const width = bytes[at] - 0xf7;
    if (width < 1) throw new Error(`chain.rlp: byte ${at}: no block`);
    const end = at + 1 + width + bytes.readUIntBE(at + 1, width);
    const raw = new Uint8Array(bytes.subarray(at, end));
    blocks.push({ raw, header: verify.decode(raw)[0] });
    at = end;
  }
  return blocks;
}

/** Recorded states of mainnet: blocks, and proofs of accounts and slots at the block before. */
export function mainnet() {
  const folder = join(DATA, "zeth");
  return readdirSync(folder)
    .filter((file) => file.endsWith(".json.gz"))
    .sort()
    .map((file) => {
      const { full_blocks, proofs } = JSON.parse(gunzipSync(readFileSync(join(folder, file))));
      return { file, blocks: full_blocks.map(([, block]) => block), proofs };
    });
}
