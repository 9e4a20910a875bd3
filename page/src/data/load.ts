/** An answer that a component waits for. */

import { useEffect, useState } from "preact/hooks";

export type Loaded<T> = { state: "loading" } | { state: "done"; value: T } | { state: "failed"; error: unknown };

/**
 * Loads when the component is first drawn and when `key` changes. An answer that comes after that is dropped. While a new key
 * loads, the value of the old one is not shown.
 */
export function useLoad<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [got, set] = useState<{ key: string; loaded: Loaded<T> }>({ key, loaded: { state: "loading" } });
  useEffect(() => {
    const stop = new AbortController();
    const settle = (loaded: Loaded<T>) => {
      if (!stop.signal.aborted) set({ key, loaded });
    };
    settle({ state: "loading" });
    load(stop.signal).then(
      (value) => settle({ state: "done", value }),
      (error: unknown) => settle({ state: "failed", error }),
    );
    return () => stop.abort();
  }, [key]);
  return got.key === key ? got.loaded : { state: "loading" };
}
