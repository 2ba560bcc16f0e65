/** The plots of a timeline: stacked bars, lines, and strips of what held when. */
import type { ComponentChildren } from "preact";
import type { Line } from "../ui/plot";
import { type Bar, barAt, limitsOf, nearest } from "./timeline";
import { useCanvas } from "./timeline-canvas";
import { type Clock, useClock } from "./timeline-clock";
import {
  drawBands,
  drawBars,
  drawGaps,
  drawGrid,
  drawLine,
  drawSegments,
  inside,
  type Segment,
} from "./timeline-draw";
import { newestOf, stoppedWords, summaryOf } from "./timeline-words";

/** A plot's heading: what is seen, its legend with the values under the cursor, its controls. */
export function TrackHead(props: {
  title: string;
  hint?: string | undefined;
  /** That what is drawn is old. */
  warning?: string | undefined;
  keys?: ComponentChildren;
  aside?: ComponentChildren;
}) {
  return (
    <header class="track-head">
      <h3>{props.title}</h3>
      {props.hint && <span class="soft hint">{props.hint}</span>}
      {props.warning && <span class="track-warning">{props.warning}</span>}
      {props.keys && <div class="keys">{props.keys}</div>}
      {props.aside && <div class="aside">{props.aside}</div>}
    </header>
  );
}

interface Key {
  readonly label: string;
  readonly colour: string;
  readonly isDashed?: boolean;
  /** At this moment; undefined: at the end. */
  readonly valueAt: (time: number | undefined) => string;
}

/** With more lines than this a legend would be larger than its plot. */
const KEYS_MAX = 8;

/** Of many lines, who is highest and who is lowest at the cursor, or at the end. */
function Extremes(props: {
  clock: Clock;
  data: LinesData;
  format: (value: number) => string;
  placeAt: (time: number | undefined) => number | undefined;
}) {
  const { lines } = props.data;
  const place = props.placeAt(props.clock.cursor.value);
  const known = lines.flatMap(({ label, values }) => {
    const value = place === undefined ? null : (values[place] ?? null);
    return value === null ? [] : [{ label, value }];
  });
  known.sort((a, b) => b.value - a.value);
  const [high, low] = [known[0], known.at(-1)];
  if (!high || !low) return <span class="key">{lines.length} lines</span>;
  return (
    <>
      <span class="key">
        highest {high.label} <b>{props.format(high.value)}</b>
      </span>
      <span class="key">
        lowest {low.label} <b>{props.format(low.value)}</b>
      </span>
    </>
  );
}

/** A legend with the values at the cursor, or at the end. They have room, so that nothing moves. */
function Keys({ clock, keys }: { clock: Clock; keys: readonly Key[] }) {
  const cursor = clock.cursor.value;
  return (
    <>
      {keys.map(({ label, colour, isDashed, valueAt }) => (
        <span key={label} class="key">
          <i
            class={isDashed ? "dashed" : ""}
            style={{ "--key": `var(--${colour})` }}
            aria-hidden="true"
          />
          {label}
          <b class={cursor === undefined ? "soft" : ""}>{valueAt(cursor)}</b>
        </span>
      ))}
    </>
  );
}

export interface Part {
  readonly label: string;
  readonly colour: string;
}

export function BarTrack(props: {
  title: string;
  hint?: string;
  warning?: string | undefined;
  bars: readonly Bar[];
  parts: readonly Part[];
  format: (value: number) => string;
  height: number;
  /** Bars above this are cut; without it the highest fits. */
  most?: number;
  /** The text of a time without bars. */
  gap: (seconds: number) => string;
}) {
  const clock = useClock();
  const { bars, parts, format, height } = props;
  const sum = (bar: Bar) => bar.parts.reduce((all, value) => all + value, 0);
  const limits = limitsOf(props.most === undefined ? bars.map(sum) : [props.most], true);
  const canvas = useCanvas(clock, height, (context, field) => {
    drawGrid(context, field, height, limits, format);
    inside(context, field, height, () => {
      drawBands(context, field, height, clock.bands.peek());
      const colours = parts.map((part) => part.colour);
      drawBars(context, field, height, limits, bars, colours);
      drawGaps(context, field, height, bars, props.gap);
    });
  });
  const lines = [
    { label: "in all", values: bars.map(sum) },
    ...parts.map(({ label }, place) => ({
      label,
      values: bars.map((bar) => bar.parts[place] ?? null),
    })),
  ];
  const keys = parts.map((part, place) => ({
    ...part,
    valueAt: (time: number | undefined) => {
      const value = (time === undefined ? bars.at(-1) : barAt(bars, time))?.parts[place];
      return value === undefined ? "–" : format(value);
    },
  }));
  return (
    <section class="track">
      <TrackHead
        title={props.title}
        hint={props.hint}
        warning={props.warning}
        keys={<Keys clock={clock} keys={keys} />}
      />
      <canvas
        ref={canvas}
        role="img"
        aria-label={summaryOf(props.title, lines, format)}
        style={{ height: `${height}px` }}
      />
    </section>
  );
}

export interface LinesData {
  /** Unix seconds, growing, equally far apart. */
  readonly times: readonly number[];
  readonly lines: readonly Line[];
}

export function LineTrack(props: {
  title: string;
  hint?: string;
  data: LinesData;
  format: (value: number) => string;
  height: number;
  /** False where zero means nothing, as with degrees. */
  isFromZero?: boolean;
  /** Lines that are there only when something is wrong do not stop. */
  isSteady?: boolean;
}) {
  const clock = useClock();
  const { format, height } = props;
  const { times, lines } = props.data;
  const limits = limitsOf(
    lines.flatMap((line) => [...line.values]),
    props.isFromZero ?? true,
  );
  const canvas = useCanvas(clock, height, (context, field) => {
    drawGrid(context, field, height, limits, format);
    inside(context, field, height, () => {
      drawBands(context, field, height, clock.bands.peek());
      // The first matters most, so it lies on top.
      for (const line of [...lines].reverse())
        drawLine(context, field, height, limits, times, line);
    });
  });
  const apart = times.length > 1 ? (times[1] ?? 0) - (times[0] ?? 0) : 1;
  const placeAt = (time: number | undefined) =>
    time === undefined ? times.length - 1 : nearest(times, time, apart);
  const keys = lines.map(({ label, colour, isDashed, values }) => ({
    label,
    colour: colour ?? "ink",
    isDashed: isDashed ?? false,
    valueAt: (time: number | undefined) => {
      const place = placeAt(time);
      const value = place === undefined ? null : (values[place] ?? null);
      return value === null ? "–" : format(value);
    },
  }));
  return (
    <section class="track">
      <TrackHead
        title={props.title}
        hint={props.hint}
        warning={
          props.isSteady
            ? stoppedWords(newestOf(times, lines), times.at(-1) ?? 0, "after")
            : undefined
        }
        keys={
          lines.length > KEYS_MAX ? (
            <Extremes clock={clock} data={props.data} format={format} placeAt={placeAt} />
          ) : (
            <Keys clock={clock} keys={keys} />
          )
        }
      />
      <canvas
        ref={canvas}
        role="img"
        aria-label={summaryOf(props.title, lines, format)}
        style={{ height: `${height}px` }}
      />
    </section>
  );
}

const STRIP_PIXELS = 24;

/** What held when, in words: `clock held down by heat`. */
export function StripTrack(props: {
  title: string;
  hint?: string;
  segments: readonly Segment[];
  /** The text where there is no segment. */
  usual: string;
}) {
  const clock = useClock();
  const { segments } = props;
  const canvas = useCanvas(clock, STRIP_PIXELS, (context, field) => {
    inside(context, field, STRIP_PIXELS, () => {
      drawBands(context, field, STRIP_PIXELS, clock.bands.peek());
      drawSegments(context, field, STRIP_PIXELS, segments);
    });
  });
  const summary = [...new Set(segments.map((one) => one.label))].join(", ") || props.usual;
  return (
    <section class="track">
      <TrackHead
        title={props.title}
        hint={props.hint ?? (segments.length ? undefined : props.usual)}
        keys={<StripKey clock={clock} segments={segments} usual={props.usual} />}
      />
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${props.title}: ${summary}`}
        style={{ height: `${STRIP_PIXELS}px` }}
      />
    </section>
  );
}

function StripKey(props: { clock: Clock; segments: readonly Segment[]; usual: string }) {
  const time = props.clock.cursor.value;
  if (time === undefined || !props.segments.length) return null;
  const found = props.segments.find((one) => one.from <= time && time < one.to);
  return <span class="key">{found?.label ?? props.usual}</span>;
}
