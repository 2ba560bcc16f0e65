/** A line in a table: as ever, or not. The number beside it is the newest. */

import type { Curve } from "./host-questions";
import { sparkPath } from "./now-state";
import "../style/hosts.css";

export function HostSpark(props: {
  label: string;
  curve: Curve;
  format: (value: number) => string;
  /** Unix seconds. */
  from: number;
  to: number;
  /** What the full height means; at least the highest value. */
  top?: number;
  tone?: string;
}) {
  const { curve, from, to } = props;
  const last = curve.values.at(-1);
  if (last === undefined) return <span class="soft">–</span>;
  const most = curve.values.reduce((high, value) => Math.max(high, value), 0);
  const top = Math.max(props.top ?? 0, most, Number.MIN_VALUE);
  const summary = `${props.label}: ${props.format(last)}, at most ${props.format(most)}`;
  return (
    <span class={`host-spark ${props.tone ?? ""}`} title={summary}>
      <svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label={summary}>
        <path d={sparkPath(curve.times, curve.values, { from, to, top, gap: (to - from) / 8 })} />
      </svg>
      <span aria-hidden="true">{props.format(last)}</span>
    </span>
  );
}
