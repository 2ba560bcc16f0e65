/** Whether times are shown as the reader's clock has them or in UTC, as most logs have them. */
import { signal } from "@preact/signals";
import { storage } from "./storage";

export type Zone = "local" | "utc";
const KEY = "fabricscope.zone";

export const zone = signal<Zone>(storage?.getItem(KEY) === "utc" ? "utc" : "local");

export function chooseZone(wanted: Zone): void {
  zone.value = wanted;
  storage?.setItem(KEY, wanted);
}

/** As `Intl` names it; undefined: the reader's own. */
export function zoneName(): string | undefined {
  return zone.value === "utc" ? "UTC" : undefined;
}

/** What stands beside an axis of times: `UTC`, `CET`, `GMT-8`. */
export function zoneSign(unixSeconds: number): string {
  const form = new Intl.DateTimeFormat("en-GB", { timeZone: zoneName(), timeZoneName: "short" });
  const parts = form.formatToParts(new Date(unixSeconds * 1000));
  return parts.find(({ type }) => type === "timeZoneName")?.value ?? "";
}
