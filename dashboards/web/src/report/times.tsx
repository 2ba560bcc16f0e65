/** Plots on one clock: drag over a stretch to look closer, double click to see all again. */
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Span } from "../parts/timeline";
import type { Band } from "../parts/timeline-clock";
import { Timeline } from "../parts/timeline-stack";
import type { Stretch } from "./data";

export function Times(props: {
  label: string;
  span: Stretch;
  bands: readonly Band[];
  children: ComponentChildren;
}) {
  const { start, end } = props.span;
  const whole = useMemo(() => ({ from: start, to: end }), [start, end]);
  const [span, setSpan] = useState<Span>();
  return (
    <Timeline
      label={`${props.label}. Arrow keys, + and - move and zoom.`}
      span={span ?? whole}
      bands={props.bands}
      onSpan={setSpan}
      onBack={() => setSpan(undefined)}
    >
      {props.children}
    </Timeline>
  );
}
