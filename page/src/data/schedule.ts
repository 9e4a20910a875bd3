/** What a number of threads makes of a block: with its access list, and without one. */

import type { ScheduledTransaction } from "./types.ts";

/** When and where a transaction runs. Times are nanoseconds from the block's begin. */
export interface Run {
  transaction: ScheduledTransaction;
  thread: number;
  begin: number;
  end: number;
}

/** All transactions of a block on their threads. */
export interface Timeline {
  runs: Run[];
  /** When the last transaction ends. */
  end: number;
  threads: number;
}

/**
 * Gives each transaction, in the block's order, the thread that is free first.
 *
 * With the access list a transaction may begin at once: the list has the values that earlier ones write. Without it (`waits`),
 * a transaction begins when those in `after` have ended, because it reads what they write.
 */
export function timeline(transactions: readonly ScheduledTransaction[], threads: number, waits: boolean): Timeline {
  const free = new Array<number>(threads).fill(0);
  const ends = new Map<number, number>();
  const runs: Run[] = [];
  for (const transaction of transactions) {
    const ready = waits ? Math.max(0, ...transaction.after.map((index) => ends.get(index) ?? 0)) : 0;
    // Of the threads that are free when it is ready the one that was last busy, else the one that is free first.
    let thread = 0;
    for (let i = 1; i < threads; i++) {
      const [best, other] = [free[thread]!, free[i]!];
      if (other <= ready ? best > ready || other > best : other < best) thread = i;
    }
    const begin = Math.max(ready, free[thread]!);
    const end = begin + transaction.ns;
    free[thread] = end;
    ends.set(transaction.index, end);
    runs.push({ transaction, thread, begin, end });
  }
  return { runs, end: Math.max(0, ...runs.map((run) => run.end)), threads };
}

/** The chain of transactions that each read what the one before writes and that takes longest: indices, first to last. */
export function longestChain(transactions: readonly ScheduledTransaction[]): { indices: number[]; ns: number } {
  const best = new Map<number, { ns: number; before: number | null }>();
  let last: number | null = null;
  for (const { index, ns, after } of transactions) {
    let before: number | null = null;
    for (const other of after) {
      if (best.has(other) && (before === null || best.get(other)!.ns > best.get(before)!.ns)) before = other;
    }
    best.set(index, { ns: ns + (before === null ? 0 : best.get(before)!.ns), before });
    if (last === null || best.get(index)!.ns > best.get(last)!.ns) last = index;
  }
  const indices: number[] = [];
  for (let at: number | null = last; at !== null; at = best.get(at)!.before) indices.unshift(at);
  return { indices, ns: last === null ? 0 : best.get(last)!.ns };
}

/**
 * Reads that may be in flight over time, as steps. With the list all reads of the block are known at its begin; those of a
 * transaction are needed when it begins. Without, a transaction finds its reads one after another: one for each that runs.
 */
export function readsInFlight(timeline: Timeline, withList: boolean): { at: number; reads: number }[] {
  const changes: [number, number][] = [];
  for (const { transaction, begin, end } of timeline.runs) {
    if (transaction.reads === 0) continue;
    if (withList) changes.push([0, transaction.reads], [begin, -transaction.reads]);
    else changes.push([begin, 1], [end, -1]);
  }
  changes.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  const steps: { at: number; reads: number }[] = [];
  let reads = 0;
  for (const [at, change] of changes) {
    reads += change;
    const last = steps[steps.length - 1];
    if (last && last.at === at) last.reads = reads;
    else steps.push({ at, reads });
  }
  return steps;
}
