/**
 * What the page follows: the head, by a subscription, and the figures, by one request a second. Both stop while the page is
 * hidden.
 */

import { batch, isMissing, valueOf } from "./rpc.ts";
import { History } from "./series.ts";
import { Store } from "./store.ts";
import type { BlockAnswer, Figures } from "./types.ts";

/** Heads that are kept for the list of the newest blocks. */
const HEADS_KEPT = 32;

/** A head as it came. */
export interface Head {
  number: number;
  hash: string;
  timestamp: number;
  gasUsed: number;
  gasLimit: number;
  /** Transactions; null of a head that only the subscription told. */
  transactions: number | null;
}

/** The state of the connection to the server. */
export interface Live {
  head: Head | null;
  /** Newest first. */
  heads: Head[];
  connection: "connecting" | "live" | "lost";
  /** Whether the server has `cambium_figures`; null before the first answer. */
  hasFigures: boolean | null;
}

export const history = new History();
export const live = new Store<Live>({ head: null, heads: [], connection: "connecting", hasFigures: null });

/** Counts the answers with figures, so that drawings follow them. */
export const ticks = new Store(0);

function headOf(header: BlockAnswer): Head {
  return {
    number: Number(header.number),
    hash: header.hash,
    timestamp: Number(header.timestamp),
    gasUsed: Number(header.gasUsed),
    gasLimit: Number(header.gasLimit),
    transactions: Array.isArray(header.transactions) ? header.transactions.length : null,
  };
}

function withHead(state: Live, head: Head): Live {
  const known = state.heads.find((other) => other.hash === head.hash);
  const told = known && head.transactions === null ? known : head;
  const below = state.heads.filter((other) => other.number < head.number);
  return { ...state, head: told, heads: [told, ...below].slice(0, HEADS_KEPT) };
}

async function poll(): Promise<void> {
  const asksFigures = live.get().hasFigures !== false;
  const latest = ["eth_getBlockByNumber", "latest", false] as const;
  try {
    const [block, figures] = await batch(asksFigures ? [latest, ["cambium_figures"]] : [latest]);
    let next: Live = { ...live.get(), connection: "live" };
    const header = valueOf<BlockAnswer>(block);
    if (header) next = withHead(next, headOf(header));
    const answer = valueOf<Figures>(figures);
    if (answer) {
      history.add(performance.now(), answer);
      next.hasFigures = true;
    } else if (figures && "error" in figures && isMissing(figures.error)) {
      next.hasFigures = false;
    }
    live.set(next);
    if (answer) ticks.set(ticks.get() + 1);
  } catch {
    live.set({ ...live.get(), connection: "lost" });
  }
}

let timer: ReturnType<typeof setTimeout> | undefined;

async function pollAgain(): Promise<void> {
  clearTimeout(timer);
  if (document.hidden) return;
  const begun = performance.now();
  await poll();
  if (document.hidden) return;
  clearTimeout(timer);
  timer = setTimeout(() => void pollAgain(), Math.max(200, 1000 - (performance.now() - begun)));
}

let socket: WebSocket | null = null;
let pending: Head | null = null;

/** Heads that come faster than the screen is drawn are skipped. */
function show(head: Head): void {
  const waits = pending !== null;
  pending = head;
  if (waits) return;
  requestAnimationFrame(() => {
    if (pending) live.set(withHead(live.get(), pending));
    pending = null;
  });
}

function subscribe(delay: number): void {
  if (document.hidden || socket !== null) return;
  const opened = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/`);
  socket = opened;
  let again = delay;
  opened.onopen = () => opened.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_subscribe", params: ["newHeads"] }));
  opened.onmessage = (event) => {
    again = 1000;
    const message = JSON.parse(String(event.data)) as { params?: { result?: BlockAnswer } };
    const header = message.params?.result;
    if (header?.hash) show(headOf(header));
  };
  opened.onclose = () => {
    if (socket === opened) socket = null;
    if (!document.hidden) setTimeout(() => subscribe(Math.min(again * 2, 60_000)), again);
  };
}

/** Begins to follow the server, and goes on whenever the page is shown. */
export function follow(): void {
  const shown = () => {
    if (document.hidden) {
      clearTimeout(timer);
      socket?.close();
      return;
    }
    void pollAgain();
    subscribe(2000);
  };
  document.addEventListener("visibilitychange", shown);
  shown();
}
