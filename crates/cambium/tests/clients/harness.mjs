// What the clients in JavaScript share: their arguments, a verifier of proofs that is none of the server's, and the way to a new block.
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

export const [, , place, url, secret, token] = process.argv;

/// A package from where it was installed.
export async function load(name) {
  const found = createRequire(join(place, "package.json")).resolve(name);
  return import(pathToFileURL(found));
}

export function equal(actual, expected, what) {
  const text = (value) => String(value).toLowerCase();
  if (text(actual) !== text(expected)) throw new Error(`${what}: ${actual}, not ${expected}`);
}

export function holds(condition, what) {
  if (!condition) throw new Error(what);
}

export async function rejects(promise, what) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error(`${what} does not fail`);
}

/// The value at a key of a Merkle Patricia trie, or null if the proof shows that there is none. A proof that shows neither is an error.
/// `decode` reads RLP into nested lists of hex, and `keccak` hashes hex.
export function proved(root, key, nodes, { decode, keccak }) {
  const path = keccak(key).slice(2);
  let [at, expected, next] = [0, root, undefined];
  for (let index = 0; ; ) {
    let node = next;
    if (node === undefined) {
      if (index === nodes.length) throw new Error("the proof ends early");
      equal(keccak(nodes[index]), expected, "hash of a node");
      node = decode(nodes[index++]);
    }
    let child;
    if (node.length === 17) {
      child = node[parseInt(path[at++], 16)];
      if (child === "0x") return end(null);
    } else {
      const flagged = node[0].slice(2);
      const flag = parseInt(flagged[0], 16);
      const own = flagged.slice(flag & 1 ? 1 : 2);
      if (path.slice(at, at + own.length) !== own) return end(null);
      at += own.length;
      if (flag & 2) return end(node[1]);
      child = node[1];
    }
    if (Array.isArray(child)) {
      next = child;
    } else {
      [next, expected] = [undefined, child];
    }
    function end(value) {
      if (index !== nodes.length) throw new Error("the proof has more nodes than it needs");
      return value;
    }
  }
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/// Has a block built of what waits, and made the head. Returns its hash.
export async function mine() {
  console.log("mine");
  const { value } = await lines.next();
  return value;
}

/// The first of what is told that is as wanted, within 20 seconds.
export function awaited(what, begin) {
  return new Promise((done, failed) => {
    const timer = setTimeout(() => failed(new Error(`${what} does not come`)), 20_000);
    begin((value) => {
      clearTimeout(timer);
      done(value);
    }, failed);
  });
}

export async function run(client) {
  try {
    await client();
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
  console.log("ok");
  process.exit(0);
}
