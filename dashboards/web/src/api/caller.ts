/** What this page's token may do: `/v1/whoami`. */
import { ask } from "./client";

export interface Caller {
  /** The token's; empty where no token is required. */
  readonly name: string;
  readonly allowed: readonly string[];
}

export const askCaller = (abort: AbortSignal) => ask<Caller>("/v1/whoami", {}, abort);

/** Whether the caller's token has a scope; also while that is not known, as the service has the last word. */
export const mayDo = (caller: Caller | undefined, scope: "operate" | "admin") =>
  caller === undefined || caller.allowed.includes(scope);
