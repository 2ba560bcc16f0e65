/** The one door to the service: JSON in, JSON or a named failure out. */
import { computed, signal } from "@preact/signals";

/** A failed request: the service's `application/problem+json`, or no answer at all. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
  ) {
    super(detail || title);
  }

  /** The service was not reached at all. */
  get isUnreachable(): boolean {
    return this.status === 0;
  }
}

const TOKEN_KEY = "fabricscope.token";
/** Kept for this tab only. */
export const token = signal<string>(sessionStorage.getItem(TOKEN_KEY) ?? "");
/** The service asked for a token, or refused the one it got. */
export const isTokenAsked = signal(false);

export function useToken(text: string): void {
  sessionStorage.setItem(TOKEN_KEY, text);
  token.value = text;
  isTokenAsked.value = false;
}

const PASS_KEY = "fabricscope.pass";
/** From a notice's link: where this tab has no token, it opens one incident and acknowledges it. */
const pass = signal<string>(sessionStorage.getItem(PASS_KEY) ?? "");

export function usePass(text: string): void {
  sessionStorage.setItem(PASS_KEY, text);
  pass.value = text;
}

/** This tab may see one incident and nothing else. */
export const isPassOnly = computed(() => !token.value && !!pass.value);
/** What requests carry; empty: nothing. */
export const bearer = computed(() => token.value || pass.value);

export type Params = Readonly<
  Record<string, string | number | boolean | readonly string[] | undefined>
>;

export function address(path: string, params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === "") continue;
    if (Array.isArray(value)) for (const one of value) query.append(name, one);
    else query.set(name, String(value));
  }
  const words = query.toString();
  return words ? `${path}?${words}` : path;
}

/** The raw answer; a Failure is thrown for anything but success. */
export async function send(url: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (bearer.value) headers.set("Authorization", `Bearer ${bearer.value}`);
  let response: Response;
  try {
    response = await fetch(url, { ...init, headers });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Failure(0, "The service does not answer", "No connection. Is it running?");
  }
  if (response.ok) return response;
  if (response.status === 401) isTokenAsked.value = true;
  throw await failure(response);
}

async function failure(response: Response): Promise<Failure> {
  const text = await response.text().catch(() => "");
  const problem = parsed(text);
  return new Failure(
    response.status,
    String(problem.title ?? response.statusText ?? `Status ${response.status}`),
    String(problem.detail ?? problem.error ?? ""),
  );
}

/** A problem's JSON; of plain text (`/readyz`) its first line as the title, the others as detail. */
function parsed(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text);
  } catch {
    const [title, ...others] = text.startsWith("<") ? [] : text.trim().split("\n");
    return title ? { title, detail: others.join("; ") } : {};
  }
}

export async function ask<T>(path: string, params: Params = {}, abort?: AbortSignal): Promise<T> {
  const response = await send(address(path, params), abort ? { signal: abort } : {});
  return (await response.json()) as T;
}

export async function submit<T>(
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  body?: unknown,
): Promise<T | null> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "Content-Type": "application/json" };
  }
  const response = await send(path, init);
  return response.status === 204 ? null : ((await response.json()) as T);
}

export interface Page<T> {
  readonly items: readonly T[];
  readonly next: string | null;
}

/** All pages, up to a bound; `isCut`: the service has more. */
export async function askAll<T>(
  path: string,
  params: Params,
  most: number,
  abort?: AbortSignal,
): Promise<{ items: T[]; isCut: boolean }> {
  const items: T[] = [];
  let after: string | undefined;
  do {
    const page: Page<T> = await ask(path, { ...params, after, limit: Math.min(1000, most) }, abort);
    items.push(...page.items);
    after = page.next ?? undefined;
  } while (after && items.length < most);
  return { items, isCut: after !== undefined };
}

/** The float32 matrix of an answer: little-endian, base64. NaN: not known. */
export function floats(base64: string): Float32Array {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer, 0, bytes.length >> 2);
}
