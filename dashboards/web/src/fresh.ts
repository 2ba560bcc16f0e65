/** How old data and evaluation are, asked for as long as the page is seen. */
import { computed, effect, signal } from "@preact/signals";
import { askFreshness, type Freshness } from "./api/freshness";
import { Asker } from "./asker";
import { now } from "./time";

const PULSE_SECONDS = 10;

/** With the unix seconds at which it was answered, by this browser's clock. */
export const freshness = signal<{ readonly at: number; readonly told: Freshness } | undefined>(
  undefined,
);

const pulse = computed(() => Math.floor(now.value / PULSE_SECONDS));

export function keepAskingForAge(): void {
  const asker = new Asker<Freshness>(askFreshness, {
    begun: () => undefined,
    answered: (told) => {
      freshness.value = { at: Date.now() / 1000, told };
    },
    // The last answer grows older, and the mark with it.
    failed: () => undefined,
  });
  effect(() => {
    pulse.value;
    asker.ask("freshness");
  });
}
