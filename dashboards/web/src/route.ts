/**
 * Where the reader is: everything behind the `#`, so that each view is a link, on a server that knows
 * only one page and in a report that lies in a file.
 *
 *     #/job/llama-70b?last=1h&rank=5
 */
import { signal } from "@preact/signals";

export interface Route {
  /** The words of the path, decoded: `["job", "llama-70b"]`; empty at `/`. */
  readonly path: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

export function parse(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = cut < 0 ? text : text.slice(0, cut);
  const query: Record<string, string> = {};
  if (cut >= 0)
    for (const [name, value] of new URLSearchParams(text.slice(cut + 1))) query[name] = value;
  return { path: path.split("/").filter(Boolean).map(decoded), query };
}

/** A mangled link must not break the page. */
function decoded(word: string): string {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

export type Query = Readonly<Record<string, string | number | undefined>>;

/** The address of a view. What is undefined or empty is left out. */
export function href(path: readonly (string | number)[], query: Query = {}): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== "") asked.set(name, String(value));
  const words = asked.toString();
  return `#/${path.map((word) => encodeURIComponent(word)).join("/")}${words ? `?${words}` : ""}`;
}

export const route = signal<Route>(parse(location.hash));

addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

/** Go there. `replace`: without a step in the browser's history, for sliders and the like. */
export function go(address: string, { replace = false } = {}): void {
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(null, "", address);
    route.value = parse(address);
  } else {
    location.hash = address;
  }
}

/** The same view with other parameters; undefined takes one away. */
export function withQuery(change: Query, options?: { replace?: boolean }): void {
  go(href(route.value.path, { ...route.value.query, ...change }), options);
}
