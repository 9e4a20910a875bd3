// The program `cambium`, for tests that ask a real server.

import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The target folder of the workspace. */
export const TARGET = fileURLToPath(new URL("../../target", import.meta.url));

/** The program. */
export const PROGRAM = process.env.CAMBIUM_PROGRAM ?? join(TARGET, "debug/cambium");

/** Whether the program is there. */
export const hasProgram = existsSync(PROGRAM);

/** A server of a chain that `prepare` makes in `data`, in a folder of its own. `prepare` is given a function that runs the program. */
export async function start(prepare) {
  mkdirSync(TARGET, { recursive: true });
  const folder = mkdtempSync(join(TARGET, "page-chain-"));
  const run = (...args) => execFileSync(PROGRAM, [...args, "--quiet", "--memory", "128M"], { cwd: folder });
  prepare(run);
  const server = spawn(PROGRAM, ["serve", "--datadir", "data", "--http", "0", "--memory", "128M"], { cwd: folder, stdio: ["ignore", "ignore", "pipe"] });
  const url = await new Promise((found, failed) => {
    let text = "";
    server.stderr.on("data", (part) => {
      text += part;
      const address = /http:\/\/[0-9.]+:[0-9]+/.exec(text);
      if (address) found(address[0]);
    });
    server.on("exit", () => failed(new Error(`the server ended: ${text}`)));
  });
  return {
    url,
    run,
    folder,
    pid: server.pid,
    /** Calls a method; an error of the server fails. */
    async ask(method, ...params) {
      const response = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }) });
      const { result, error } = await response.json();
      if (error) throw new Error(`${method}: ${error.message}`);
      return result;
    },
    async stop() {
      server.removeAllListeners("exit");
      await new Promise((done) => {
        server.on("exit", done);
        server.kill();
      });
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
