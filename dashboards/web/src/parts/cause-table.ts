/** The service's table of causes; empty until it is known. */
import { computed, signal } from "@preact/signals";
import type { CauseTable } from "../api/causes";

export const causeTable = signal<CauseTable>({ causes: [], reasons: [] });

export const causesByName = computed(
  () => new Map(causeTable.value.causes.map((cause) => [cause.name, cause])),
);
export const reasonsByName = computed(
  () => new Map(causeTable.value.reasons.map((reason) => [reason.name, reason])),
);
