/** Durations of single things as dots on a timeline: what varies from one to the next, and when it changed. */
import { useSignal } from "@preact/signals";
import { duration } from "../format";
import { colour } from "../theme";
import type { Field } from "./timeline";
import { toX } from "./timeline";
import { useCanvas } from "./timeline-canvas";
import { fieldOf, useClock } from "./timeline-clock";
import { type DotSet, type Meant, meantAt, type Rise, riseOf } from "./timeline-dots";
import { type Canvas, drawBands, drawGrid, inside, toY } from "./timeline-draw";
import { TrackHead } from "./timeline-tracks";
import { summaryOf } from "./timeline-words";

const TIP_PIXELS = 250;

export function DotTrack(props: {
  title: string;
  hint?: string;
  sets: readonly DotSet[];
  /** Seconds at the lower and at the upper edge; what lies beyond is drawn there. */
  low: number;
  high: number;
  isLog: boolean;
  height: number;
}) {
  const clock = useClock();
  const { sets, height } = props;
  const rise = riseOf(props.low, props.high, props.isLog);
  const heightOf = (seconds: number) => toY(rise.limits, height, rise.of(seconds));
  const canvas = useCanvas(clock, height, (context, field) => {
    drawGrid(context, field, height, rise.limits, labelOf(rise), rise.ticks);
    inside(context, field, height, () => {
      drawBands(context, field, height, clock.bands.peek());
      drawDots(context, field, sets, heightOf);
    });
  });
  const meant = useSignal<Meant | undefined>(undefined);
  const onMove = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    meant.value = meantAt(sets, fieldOf(clock), heightOf, x, y);
  };
  const lines = sets.flatMap(({ series }) =>
    series.map(({ label, seconds }) => ({ label, values: seconds })),
  );
  return (
    <section class="track">
      <TrackHead title={props.title} hint={props.hint} keys={<Legend sets={sets} />} />
      <div
        class="dots"
        onPointerMove={onMove}
        onPointerLeave={() => {
          meant.value = undefined;
        }}
      >
        <canvas
          ref={canvas}
          role="img"
          aria-label={summaryOf(props.title, lines, duration)}
          style={{ height: `${height}px` }}
        />
        {meant.value && <Tip sets={sets} meant={meant.value} field={fieldOf(clock)} />}
      </div>
    </section>
  );
}

const labelOf = (rise: Rise) => (tick: number) => duration(rise.back(tick));

const DOT_PIXELS = 4;

function drawDots(
  context: Canvas,
  field: Field,
  sets: readonly DotSet[],
  heightOf: (seconds: number) => number,
): void {
  context.globalAlpha = 0.8;
  for (const { at, series } of sets)
    for (const { colour: name, seconds } of series) {
      context.fillStyle = colour(name);
      at.forEach((time, place) => {
        if (time < field.span.from || time > field.span.to) return;
        const [x, y] = [toX(field, time), heightOf(seconds[place] ?? 0)];
        context.fillRect(x - DOT_PIXELS / 2, y - DOT_PIXELS / 2, DOT_PIXELS, DOT_PIXELS);
      });
    }
  context.globalAlpha = 1;
}

function Legend({ sets }: { sets: readonly DotSet[] }) {
  return (
    <>
      {sets
        .flatMap(({ series }) => series)
        .map(({ label, colour: name }) => (
          <span key={label} class="key">
            <i style={{ "--key": `var(--${name})` }} aria-hidden="true" />
            {label}
          </span>
        ))}
    </>
  );
}

/** What is under the pointer, beside it. */
function Tip({ sets, meant, field }: { sets: readonly DotSet[]; meant: Meant; field: Field }) {
  const set = sets[meant.set];
  if (!set) return null;
  const isRight = meant.x + TIP_PIXELS > field.left + field.width;
  return (
    <div
      class={`tip ${isRight ? "before" : ""}`}
      style={{ left: `${meant.x}px`, top: `${Math.max(0, meant.y - 20)}px` }}
      aria-hidden="true"
    >
      <b>{set.said[meant.place]}</b>
      {set.series.map(({ label, seconds }) => (
        <span key={label}>
          {label}: {duration(seconds[meant.place])}
        </span>
      ))}
    </div>
  );
}
