/** Keeps the table of causes: asked for at the start, and when a service, perhaps a newer one, is back. */
import { effect } from "@preact/signals";
import { askCauses } from "./api/causes";
import { connection } from "./live";
import { causeTable } from "./parts/cause-table";

export function keepCauses(): void {
  void load();
  effect(() => {
    if (connection.value === "live") void load();
  });
}

/** Without an answer causes are spelled as they are written; the next connection asks again. */
async function load(): Promise<void> {
  const table = await askCauses().catch(() => undefined);
  if (table) causeTable.value = table;
}
