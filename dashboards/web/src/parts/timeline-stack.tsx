/**
 * Plots above each other on one clock: they share the time axis, the cursor, what is selected by dragging,
 * and the incidents that are shaded in all of them. Plots are its children; see timeline-tracks and heat-track.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { duration } from "../format";
import "../style/job.css";
import { zoneSign } from "../zone";
import { type Span, timeTicks, toX } from "./timeline";
import { type Band, type Clock, ClockContext, fieldOf, newClock } from "./timeline-clock";
import { ticksThatFit } from "./timeline-draw";
import { type Hand, useHand } from "./timeline-hand";
import { clockAhead, clockText, lanesOf } from "./timeline-words";

export function Timeline(
  props: Hand & {
    label: string;
    span: Span;
    bands: readonly Band[];
    children: ComponentChildren;
  },
) {
  const { from, to } = props.span;
  // biome-ignore lint/correctness/useExhaustiveDependencies: one clock for as long as the timeline stands
  const clock = useMemo(() => newClock(props.span, props.bands), []);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    clock.shown.value = { from, to };
  }, [clock, from, to]);
  useEffect(() => {
    clock.bands.value = props.bands;
  }, [clock, props.bands]);
  useEffect(() => {
    const node = root.current;
    if (!node) return;
    const watch = new ResizeObserver(() => {
      clock.width.value = node.clientWidth;
    });
    watch.observe(node);
    return () => watch.disconnect();
  }, [clock]);
  useHand(clock, root, props);
  return (
    <ClockContext.Provider value={clock}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move the time of all plots */}
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset is for forms */}
      <div class="timeline" ref={root} role="group" tabIndex={0} aria-label={props.label}>
        <Axis clock={clock} />
        <Incidents clock={clock} />
        {props.children}
        <Overlay clock={clock} />
      </div>
    </ClockContext.Provider>
  );
}

/** Half of a tick's letters: nearer to the edge they would be cut. */
const TICK_ROOM = 16;
const NOW_ROOM = 26;

/** The time, once for all plots; it stays in sight while they are scrolled. */
function Axis({ clock }: { clock: Clock }) {
  const field = fieldOf(clock);
  const { step, times } = timeTicks(field.span, ticksThatFit(field), clockAhead(field.span.from));
  const cursor = clock.cursor.value;
  const brush = clock.brush.value;
  return (
    <div class="timeline-axis" aria-hidden="true">
      <span class="zone">{zoneSign(field.span.from)}</span>
      {times
        .filter((time) => toX(field, time) < field.left + field.width - TICK_ROOM)
        .map((time) => (
          <span key={time} class="tick" style={{ left: `${toX(field, time)}px` }}>
            {clockText(time, step)}
          </span>
        ))}
      {cursor !== undefined && (
        <span
          class="now"
          style={{ left: `${Math.min(toX(field, cursor), field.left + field.width - NOW_ROOM)}px` }}
        >
          {brush ? duration(brush.to - brush.from) : clockText(cursor, step < 60 ? 0.1 : 1)}
        </span>
      )}
    </div>
  );
}

/** Incidents as strips under the axis, each a link; those at the same time below each other. */
function Incidents({ clock }: { clock: Clock }) {
  const bands = clock.bands.value;
  const field = fieldOf(clock);
  if (!bands.length) return null;
  const { lanes, count } = lanesOf(bands);
  return (
    <div class="timeline-incidents" style={{ height: `${count * 22 + 4}px` }}>
      <span class="soft" aria-hidden="true">
        Incidents
      </span>
      {bands.map((band, place) => {
        const left = Math.max(field.left, toX(field, band.from));
        const right = Math.min(field.left + field.width, toX(field, band.to));
        if (right <= field.left || left >= field.left + field.width) return null;
        const style = {
          left: `${left}px`,
          width: `${Math.max(8, right - left - 1)}px`,
          top: `${(lanes[place] ?? 0) * 22 + 2}px`,
        };
        return band.href ? (
          <a key={band.id} class="band" href={band.href} style={style} title={band.label}>
            {band.label}
          </a>
        ) : (
          <span key={band.id} class="band" style={style} title={band.label}>
            {band.label}
          </span>
        );
      })}
    </div>
  );
}

/** The cursor's line and what is being dragged over, above all plots. */
function Overlay({ clock }: { clock: Clock }) {
  const field = fieldOf(clock);
  const cursor = clock.cursor.value;
  const brush = clock.brush.value;
  return (
    <div class="timeline-overlay" aria-hidden="true">
      {brush && (
        <i
          class="brush"
          style={{
            left: `${toX(field, brush.from)}px`,
            width: `${toX(field, brush.to) - toX(field, brush.from)}px`,
          }}
        />
      )}
      {cursor !== undefined && <i class="line" style={{ left: `${toX(field, cursor)}px` }} />}
    </div>
  );
}
