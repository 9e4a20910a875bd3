// Serves the page before a running `cambium serve`: GET from `dist`, everything else passed on. Methods that the server lacks are
// answered from fixtures, unless there are to be none.
//
//   node tests/serve.mjs http://127.0.0.1:8545 [PORT] [--no-fixtures]

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { connect } from "node:net";
import { fileURLToPath } from "node:url";

const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml", txt: "text/plain; charset=utf-8" };

/** The policy that the server sends, from the source in which it stands. */
function policy() {
  const source = readFileSync(new URL("../../crates/page/src/lib.rs", import.meta.url), "utf8");
  const [, text] = /CONTENT_SECURITY_POLICY: &str = "([^"]*)"/.exec(source);
  return text.replace(/\\\n\s*/g, "");
}

/** Serves the page before `upstream`. Returns its address and a function that ends it. */
export async function serve({ upstream, port = 0, fixtures = true, change = (_call, answer) => answer }) {
  const target = new URL(upstream);
  const csp = policy();
  const { fixture } = fixtures ? await import("./fixtures.mjs") : { fixture: async () => undefined };
  const post = async (body) => {
    const response = await fetch(target, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    return response.json();
  };
  const ask = async (method, params) => {
    const { result, error } = await post({ jsonrpc: "2.0", id: 1, method, params });
    if (error) throw new Error(`${method}: ${error.message}`);
    return result;
  };
  const answer = async (call, got) => {
    if (got?.error?.code !== -32601) return change(call, got);
    try {
      const result = await fixture(call.method, call.params ?? [], ask);
      return change(call, result === undefined ? got : { jsonrpc: "2.0", id: call.id, result });
    } catch (error) {
      return { jsonrpc: "2.0", id: call.id, error: { code: -32000, message: error.message } };
    }
  };
  const server = createServer(async (request, response) => {
    try {
      if (request.method === "GET") {
        const name = request.url === "/" ? "index.html" : request.url.slice(1);
        if (!/^[a-z]+\.[a-z]+$/.test(name)) return response.writeHead(404).end();
        const bytes = readFileSync(new URL(`../dist/${name}`, import.meta.url));
        return response.writeHead(200, { "content-type": TYPES[name.split(".")[1]], "content-security-policy": csp, "x-content-type-options": "nosniff" }).end(bytes);
      }
      const parts = [];
      for await (const part of request) parts.push(part);
      const body = JSON.parse(Buffer.concat(parts).toString());
      const got = await post(body);
      const answers = Array.isArray(body) ? await Promise.all(body.map((call) => answer(call, got.find(({ id }) => id === call.id)))) : await answer(body, got);
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answers));
    } catch (error) {
      response.writeHead(error.code === "ENOENT" ? 404 : 502).end(String(error.message));
    }
  });
  server.on("upgrade", (request, socket, head) => {
    const behind = connect(Number(target.port), target.hostname, () => {
      const headers = { ...request.headers, host: target.host };
      delete headers.origin;
      behind.write(`GET / HTTP/1.1\r\n${Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`);
      behind.write(head);
      socket.pipe(behind).pipe(socket);
    });
    const end = () => {
      socket.destroy();
      behind.destroy();
    };
    for (const side of [socket, behind]) side.on("error", end).on("close", end);
  });
  await new Promise((done) => server.listen(port, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => {
      server.closeAllConnections();
      return new Promise((done) => server.close(done));
    },
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [upstream, port] = process.argv.slice(2).filter((it) => !it.startsWith("--"));
  const served = await serve({ upstream, port: Number(port ?? 8600), fixtures: !process.argv.includes("--no-fixtures") });
  console.log(served.url);
}
