/** What of the service's settings is for the page: `/v1/page`. */
import { ask } from "./client";

export interface PageSettings {
  /** Where traces are opened; null: nowhere, by the operator's wish. */
  readonly perfetto_url: string | null;
}

export const askPageSettings = (abort: AbortSignal) => ask<PageSettings>("/v1/page", {}, abort);
