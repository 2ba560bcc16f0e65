/** Ranks or communicators side by side, the culprit's in colour; arrow keys go from one to the next. */
import { useState } from "preact/hooks";
import type { SideBySide } from "./evidence-series";
import { quantity } from "./verdict-words";
import "../style/incident.css";

/** With more bars than this there is no room for their names. */
const NAMED_MAX = 24;

export function Bars({ drawn, label }: { drawn: SideBySide; label: string }) {
  const { bars, unit, usual } = drawn;
  const [place, setPlace] = useState<number>();
  const most = Math.max(usual ?? 0, ...bars.map((bar) => bar.value), Number.MIN_VALUE);
  const chosen = place === undefined ? undefined : bars[place];
  const culprits = bars.filter((bar) => bar.isCulprit);
  const summary = (culprits.length ? culprits : bars)
    .slice(0, 4)
    .map((bar) => `${bar.label}: ${quantity(bar.value, unit)}`)
    .join("; ");
  const move = (by: number) =>
    setPlace((old) => Math.min(bars.length - 1, Math.max(0, (old ?? (by > 0 ? -1 : 1)) + by)));
  return (
    <figure class="evidence-bars">
      <div
        class={`ground ${bars.length <= NAMED_MAX ? "has-names" : ""}`}
        role="img"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys read the bars one by one
        tabIndex={0}
        aria-label={`${label} ${drawn.note} ${summary}.`}
        onKeyDown={(event) => {
          if (event.key === "ArrowRight") move(1);
          else if (event.key === "ArrowLeft") move(-1);
          else return;
          event.preventDefault();
        }}
        onPointerLeave={() => setPlace(undefined)}
        onBlur={() => setPlace(undefined)}
      >
        {bars.map((bar, index) => (
          <span
            key={bar.label}
            class={`${bar.isCulprit ? "culprit" : ""} ${index === place ? "chosen" : ""}`}
            onPointerEnter={() => setPlace(index)}
          >
            <i style={{ height: `${(Math.max(0, bar.value) / most) * 100}%` }} />
            {bars.length <= NAMED_MAX && <small>{bar.short}</small>}
          </span>
        ))}
        {usual !== undefined && <hr style={{ bottom: `${(usual / most) * 100}%` }} />}
      </div>
      <figcaption class="soft">
        <span aria-live="polite">
          {chosen ? (
            <b>
              {chosen.label}: {quantity(chosen.value, unit)}.
            </b>
          ) : (
            <>
              Highest {quantity(most, unit)}
              {usual !== undefined && `, line at ${quantity(usual, unit)}`}.
            </>
          )}
        </span>{" "}
        {drawn.note}
      </figcaption>
    </figure>
  );
}
