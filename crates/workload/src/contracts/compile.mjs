// Compiles the contracts beside it: with a folder to write to, the run-time code of each in hex,
// and SHA256SUMS of all that it depends on; else the codes as one JSON object on standard output.
//
//   node compile.mjs WHERE-SOLC-IS [FOLDER]
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const CONTRACTS = ["Token", "Pair", "Router", "SlotReader"];
const SOURCES = [...CONTRACTS, "IToken"].map((name) => `${name}.sol`);

const here = dirname(fileURLToPath(import.meta.url));
const read = (name) => readFileSync(join(here, name), "utf8");
const [, , where, folder] = process.argv;
const solc = createRequire(join(resolve(where), "package.json"))("solc");

const pinned = JSON.parse(read("package.json")).dependencies.solc;
if (!solc.version().startsWith(`${pinned}+`)) {
  throw new Error(`this is solc ${solc.version()}, not ${pinned}`);
}
const input = {
  language: "Solidity",
  sources: Object.fromEntries(SOURCES.map((name) => [name, { content: read(name) }])),
  settings: {
    // Prague is the oldest fork that workloads are made for.
    evmVersion: "prague",
    optimizer: { enabled: true, runs: 999999 },
    // No hash of the sources, comments included, behind the code.
    metadata: { appendCBOR: false, bytecodeHash: "none" },
    outputSelection: { "*": { "*": ["evm.deployedBytecode.object"] } },
  },
};
const output = JSON.parse(solc.compile(JSON.stringify(input)));
if (output.errors) {
  throw new Error(output.errors.map((error) => error.formattedMessage).join("\n"));
}
const codes = CONTRACTS.map((name) => {
  return [name, output.contracts[`${name}.sol`][name].evm.deployedBytecode.object];
});

if (folder === undefined) {
  console.log(JSON.stringify(Object.fromEntries(codes)));
} else {
  codes.forEach(([name, code]) => writeFileSync(join(folder, `${name}.hex`), `${code}\n`));
  const files = [
    ...SOURCES,
    ...CONTRACTS.map((name) => `${name}.hex`),
    "compile.mjs",
    "package.json",
    "package-lock.json",
  ];
  const line = (file) => {
    const bytes = readFileSync(join(file.endsWith(".hex") ? folder : here, file));
    return `${createHash("sha256").update(bytes).digest("hex")}  ${file}\n`;
  };
  writeFileSync(join(folder, "SHA256SUMS"), files.map(line).join(""));
}
