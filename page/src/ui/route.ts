/** Routes, which are the fragment of the page's address: `#/block/17/logs?tx=3`. Every link of the page is made here. */

import { Store, useStore } from "../data/store.ts";

export interface Route {
  /** Parts of the path, decoded. */
  path: string[];
  query: URLSearchParams;
}

/** What a fragment names. Text that is not well formed names the first page. */
export function routeOf(fragment: string): Route {
  const [path = "", query = ""] = fragment.replace(/^#\/?/, "").split("?", 2);
  try {
    return { path: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
  } catch {
    return { path: [], query: new URLSearchParams() };
  }
}

/** The address of a place on the page. Parameters without a value are left out. */
export function to(path: readonly (string | number)[], query: Record<string, string | number | null | undefined> = {}): string {
  const entries = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(entries.map(([key, value]) => [key, String(value)])).toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text ? `?${text}` : ""}`;
}

/** Goes to a place as a link would. */
export function go(address: string): void {
  location.hash = address;
}

const route = new Store<Route>(routeOf(location.hash));

addEventListener("hashchange", () => route.set(routeOf(location.hash)));

/** The route; the component is drawn again when it changes. */
export function useRoute(): Route {
  return useStore(route);
}
