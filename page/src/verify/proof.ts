/**
 * Verifies a proof by walking it from a trusted root to a key: each node's bytes must have the hash by which the node above
 * names it. A proof shows a value, or that the trie has none (exclusion). Every step is returned, also after a failure, so
 * that a drawing can show where a proof breaks.
 */

import { bytesOf, equal, hexOf, nibblesOf, nibbleText } from "./bytes.ts";
import { EMPTY_ROOT, keccak } from "./keccak.ts";
import { type Child, type Node, nodeOf } from "./node.ts";

/** One node on the path. */
export interface Step {
  /** The node's bytes. */
  bytes: Uint8Array;
  /** Keccak-256 of the bytes; null of a node that stands in its parent. */
  hash: Uint8Array | null;
  /** The hash by which the root or the node above names this one; null of a node that stands in its parent. */
  expected: Uint8Array | null;
  /** Nibbles of the key that were consumed above the node. */
  depth: number;
  /** Nibbles of the key that the node consumes. */
  taken: number;
  /** The decoded node; null if the bytes are none. */
  node: Node | null;
  /** What is wrong here; null if nothing is. Nodes below a failure are not judged. */
  error: string | null;
  /** Whether a step above this one failed. */
  below: boolean;
}

/** What a walk comes to. */
export interface Walk {
  steps: Step[];
  /** The key's nibbles. */
  path: number[];
  /** The value; null if the trie has none, or if the proof fails. */
  value: Uint8Array | null;
  /** Why the proof fails; null if it holds. */
  error: string | null;
}

/** Outcome of a node: the walk goes on at a child, or ends with a value or without one. */
type Next = { child: Child; taken: number } | { value: Uint8Array | null; taken: number };

function next(node: Node, rest: readonly number[]): Next {
  if (node.kind === "branch") {
    const nibble = rest[0];
    if (nibble === undefined) return { value: node.value.length ? node.value : null, taken: 0 };
    const child = node.children[nibble]!;
    return child.by === "nothing" ? { value: null, taken: 1 } : { child, taken: 1 };
  }
  const same = node.path.every((nibble, i) => nibble === rest[i]);
  if (node.kind === "extension") {
    return same ? { child: node.child, taken: node.path.length } : { value: null, taken: 0 };
  }
  const whole = same && node.path.length === rest.length;
  return { value: whole ? node.value : null, taken: whole ? rest.length : 0 };
}

function undecided(bytes: Uint8Array): Step {
  let node: Node | null = null;
  try {
    node = nodeOf(bytes);
  } catch {
    // A node below a failure is shown as bytes if it does not decode.
  }
  return { bytes, hash: keccak(bytes), expected: null, depth: 0, taken: 0, node, error: null, below: true };
}

/**
 * Walks `proof`, the nodes from the root down, to `key` (32 bytes in the state and in storage: already hashed).
 *
 * Accepted are exactly the nodes on the path. Nodes below 32 bytes stand in their parents; some servers list them as well,
 * which is accepted if they are the same bytes.
 */
export function walk(root: Uint8Array, key: Uint8Array, proof: readonly Uint8Array[]): Walk {
  const path = nibblesOf(key);
  const steps: Step[] = [];
  const fail = (error: string, rest: number): Walk => {
    for (const bytes of proof.slice(rest)) steps.push(undecided(bytes));
    return { steps, path, value: null, error };
  };
  const only = proof[0];
  if (equal(root, EMPTY_ROOT) && (only === undefined || (proof.length === 1 && equal(only, Uint8Array.of(0x80))))) {
    return { steps, path, value: null, error: null };
  }
  let child: Child = { by: "hash", hash: root };
  let depth = 0;
  let used = 0;
  for (;;) {
    let bytes: Uint8Array;
    let hash: Uint8Array | null = null;
    let expected: Uint8Array | null = null;
    if (child.by === "hash") {
      const listed = proof[used];
      if (listed === undefined) return fail(`the proof ends before the node ${hexOf(child.hash)}`, used);
      used++;
      [bytes, hash, expected] = [listed, keccak(listed), child.hash];
    } else if (child.by === "value") {
      bytes = child.bytes;
      const listed = proof[used];
      if (listed !== undefined && equal(listed, bytes)) used++;
    } else {
      return fail("an extension has no child", used);
    }
    const step: Step = { bytes, hash, expected, depth, taken: 0, node: null, error: null, below: false };
    steps.push(step);
    const place = `node ${steps.length}`;
    try {
      step.node = nodeOf(bytes);
    } catch (error) {
      step.error = error instanceof Error ? error.message : String(error);
    }
    if (hash !== null && expected !== null && !equal(hash, expected)) {
      step.error = `its ${bytes.length} bytes have the hash ${hexOf(hash)}, and ${hexOf(expected)} is expected`;
    }
    if (step.error !== null || step.node === null) return fail(`${place}: ${step.error}`, used);
    const went = next(step.node, path.slice(depth));
    step.taken = went.taken;
    if (!("child" in went)) {
      if (used !== proof.length) {
        step.error = `the path ends here, and ${proof.length - used} more nodes are listed`;
        return fail(`${place}: ${step.error}`, used);
      }
      return { steps, path, value: went.value, error: null };
    }
    depth += went.taken;
    child = went.child;
  }
}

/** Reads the nodes of a proof as JSON-RPC has them. Throws an `Error` that names the node. */
export function proofOf(nodes: unknown): Uint8Array[] {
  if (!Array.isArray(nodes)) throw new Error("a proof is not a list");
  if (nodes.length > 130) throw new Error(`a proof of ${nodes.length} nodes is longer than any path`);
  return nodes.map((node, i) => {
    try {
      return bytesOf(node);
    } catch (error) {
      throw new Error(`node ${i + 1}: ${error instanceof Error ? error.message : error}`);
    }
  });
}

/** The nibbles that a step consumes, as digits. */
export function takenText(found: Walk, step: Step): string {
  return nibbleText(found.path.slice(step.depth, step.depth + step.taken));
}
