// Builds the page into a folder, `dist` unless another is named. The same sources and lock file give the same bytes on every
// machine.

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const home = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(home, "dist"));
mkdirSync(out, { recursive: true });

const common = { absWorkingDir: home, bundle: true, minify: true, write: false, legalComments: "none", target: "es2022" };
const banner = { js: "/*! The licences of the libraries in this file are in licenses.txt. */" };
for (const [from, to] of [
  ["src/main.tsx", "app.js"],
  ["src/app.css", "app.css"],
]) {
  const built = await build({ ...common, entryPoints: [from], banner: to.endsWith(".js") ? banner : {}, format: "iife", charset: "utf8", jsx: "automatic", jsxImportSource: "preact" });
  writeFileSync(join(out, to), built.outputFiles[0].contents);
}
for (const file of ["index.html", "icon.svg"]) copyFileSync(join(home, "src", file), join(out, file));

// Both libraries in the bundle are under the MIT licence, which wants its text to come along.
const licenses = ["preact", "@noble/hashes"].map((name) => `${name}\n\n${readFileSync(join(home, "node_modules", name, "LICENSE"), "utf8").trim()}\n`);
writeFileSync(join(out, "licenses.txt"), licenses.join("\n"));
