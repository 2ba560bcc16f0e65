/** How old data and evaluation are, asked for as long as the page is seen. */
import { computed, effect, signal } from "@preact/signals";
import { askFreshness, type Freshness } from "./api/freshness";
import { Asker } from "./asker";
import { learnClock, ticked } from "./time";

const PULSE_SECONDS = 10;

/** With the unix seconds at which it was answered, by this browser's clock. */
export const freshness = signal<{ readonly at: number; readonly told: Freshness } | undefined>(
  undefined,
);

const pulse = computed(() => Math.floor(ticked.value / PULSE_SECONDS));

export function keepAskingForAge(): void {
  let sent = 0;
  const asker = new Asker<Freshness>(askFreshness, {
    begun: () => {
      sent = Date.now() / 1000;
    },
    answered: (told) => {
      const at = Date.now() / 1000;
      if (told.now) learnClock(Date.parse(told.now) / 1000, sent, at);
      freshness.value = { at, told };
    },
    // The last answer grows older, and the mark with it.
    failed: () => undefined,
  });
  effect(() => {
    pulse.value;
    asker.ask("freshness");
  });
}
