/** A value that components follow. */

import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  private readonly followers = new Set<() => void>();

  constructor(private current: T) {}

  get(): T {
    return this.current;
  }

  set(value: T): void {
    this.current = value;
    for (const follower of [...this.followers]) follower();
  }

  /** Calls `follower` after each change, until the function that is returned is called. */
  follow(follower: () => void): () => void {
    this.followers.add(follower);
    return () => this.followers.delete(follower);
  }
}

/** The store's value; the component is drawn again when it changes. */
export function useStore<T>(store: Store<T>): T {
  const [, draw] = useState(0);
  useEffect(() => store.follow(() => draw((count) => count + 1)), [store]);
  return store.get();
}
