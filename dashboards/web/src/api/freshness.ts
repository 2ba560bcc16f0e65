/** How old what can be seen is, by the service's clock: `/v1/freshness`. */
import { ask } from "./client";

export interface Age {
  /** Null: there was none yet. */
  readonly age_seconds: number | null;
  readonly bound_seconds: number;
}

export interface Freshness {
  /** The service's clock. */
  readonly now?: string;
  readonly data: Age;
  readonly evaluation: Age;
}

export const askFreshness = (abort: AbortSignal) => ask<Freshness>("/v1/freshness", {}, abort);
