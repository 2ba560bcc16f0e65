/** Lines over time (uPlot), on one clock with the other plots of a view: cursors move together. */
import { useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { colour, isDark, lineColour } from "../theme";
import { zoneName } from "../zone";
import { roundTop } from "./axis";

export interface Line {
  readonly label: string;
  /** Of the plot's `times`; null: nothing known then. */
  readonly values: readonly (number | null)[];
  /** The name of a colour in the style sheet; else by its place. */
  readonly colour?: string;
  readonly width?: number;
  readonly isDashed?: boolean;
}

export interface Band {
  /** Unix seconds. */
  readonly from: number;
  readonly to: number;
  readonly label?: string;
}

export interface PlotProps {
  readonly label: string;
  /** Unix seconds, growing. */
  readonly times: readonly number[];
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
  readonly height?: number;
  /** Stretches that are shaded, such as an incident. */
  readonly bands?: readonly Band[];
  /** Dragging over a stretch of time selects it. */
  readonly onSelect?: (from: number, to: number) => void;
  /** Plots of one group share the cursor. */
  readonly group?: string;
  readonly hasLegend?: boolean;
  /** The axis begins at nought, and has three marks whatever the values are. */
  readonly isFromZero?: boolean;
  /** Names of the whole numbers from 0 on: values are these, and the axis has no others. */
  readonly marks?: readonly string[];
}

/**
 * Marks of the time axis by how far apart they are, with 24 hours as everywhere in the page, and the
 * day below where it begins or changes. The columns are uPlot's.
 */
const DAY = "\n{MMM} {D}";
const CLOCK: uPlot.Axis.Values = [
  [3600 * 24 * 28, "{MMM} {YYYY}", null, null, null, null, null, null, 1],
  [3600 * 24, "{MMM} {D}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", DAY, null, DAY, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", DAY, null, DAY, null, null, null, 1],
  [0.001, "{HH}:{mm}:{ss}.{fff}", DAY, null, DAY, null, null, null, 1],
];

/** Nought, the half and the top: a small plot has room for three. */
function fromZero(): { scale: uPlot.Scale; axis: Partial<uPlot.Axis> } {
  return {
    scale: { range: (_, __, most) => [0, roundTop(most)] },
    axis: { splits: (plot) => [0, 0.5, 1].map((share) => share * (plot.scales.y?.max ?? 1)) },
  };
}

/** A line of the axis for each name, and room for it. */
function named(marks: readonly string[]): { scale: uPlot.Scale; axis: Partial<uPlot.Axis> } {
  return {
    scale: { range: () => [-0.5, marks.length - 0.5] },
    axis: {
      size: 84,
      splits: () => marks.map((_, place) => place),
      values: (_, splits) => splits.map((place) => marks[place] ?? ""),
    },
  };
}

function options(props: PlotProps, width: number): uPlot.Options {
  const axis: uPlot.Axis = {
    stroke: colour("soft"),
    grid: { stroke: colour("rule"), width: 1 },
    ticks: { stroke: colour("rule"), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  const timeZone = zoneName();
  const own = props.marks ? named(props.marks) : props.isFromZero ? fromZero() : undefined;
  return {
    width,
    height: props.height ?? 160,
    ...(timeZone
      ? { tzDate: (time: number) => uPlot.tzDate(new Date(time * 1000), timeZone) }
      : {}),
    // On the right half of the widest label: the last one may stand at the very end.
    padding: [8, 28, 0, 0],
    legend: { show: props.hasLegend ?? props.lines.length > 1, live: true },
    cursor: {
      drag: { x: props.onSelect !== undefined, y: false, setScale: false },
      ...(props.group ? { sync: { key: props.group } } : {}),
      points: { size: 5 },
    },
    series: [
      {},
      ...props.lines.map((line, index) => ({
        label: line.label,
        stroke: line.colour ? colour(line.colour) : lineColour(index),
        width: line.width ?? 1.4,
        ...(line.isDashed ? { dash: [5, 4] } : {}),
        points: { show: props.times.length < 3 },
        // Without a pointer there is no moment to tell of: a dash would say that nothing is known.
        value: (_: uPlot, value: number | null, __: number, moment: number | null) =>
          moment === null ? "" : value === null ? "–" : props.format(value),
      })),
    ],
    ...(own ? { scales: { y: own.scale } } : {}),
    axes: [
      { ...axis, space: 70, values: CLOCK },
      {
        ...axis,
        size: 72,
        values: (_, splits) => splits.map((value) => props.format(value)),
        ...own?.axis,
      },
    ],
    hooks: {
      drawClear: [(plot) => shade(plot, props.bands ?? [])],
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const from = plot.posToVal(plot.select.left, "x");
          const to = plot.posToVal(plot.select.left + plot.select.width, "x");
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          props.onSelect?.(from, to);
        },
      ],
    },
  };
}

function shade(plot: uPlot, bands: readonly Band[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.fillStyle = colour("shade");
  for (const band of bands) {
    const left = Math.max(bbox.left, plot.valToPos(band.from, "x", true));
    const right = Math.min(bbox.left + bbox.width, plot.valToPos(band.to, "x", true));
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

export function Plot(props: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const dark = isDark.value;
  const data = [props.times, ...props.lines.map((line) => line.values)] as uPlot.AlignedData;
  const plot = useRef<uPlot | undefined>(undefined);
  const shape = JSON.stringify([
    props.lines.map((line) => line.label),
    props.bands,
    props.height,
    props.marks,
    dark,
    zoneName(),
  ]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `shape` holds what the options depend on
  useLayoutEffect(() => {
    const node = place.current;
    if (!node) return;
    const drawn = new uPlot(options(props, Math.max(200, node.clientWidth)), data, node);
    plot.current = drawn;
    const watch = new ResizeObserver(() => {
      if (node.clientWidth > 0 && node.clientWidth !== drawn.width)
        drawn.setSize({ width: node.clientWidth, height: props.height ?? 160 });
    });
    watch.observe(node);
    return () => {
      watch.disconnect();
      drawn.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useLayoutEffect(() => {
    plot.current?.setData(data);
  });
  return <div class="plot" ref={place} role="img" aria-label={props.label} />;
}

/** Series of different times on one axis: the union of times, null where one has nothing. */
export function aligned(
  series: readonly { times: readonly number[]; values: readonly number[] }[],
): { times: number[]; values: (number | null)[][] } {
  const times = [...new Set(series.flatMap((one) => one.times))].sort((a, b) => a - b);
  const places = new Map(times.map((time, index) => [time, index]));
  const values = series.map((one) => {
    const row: (number | null)[] = new Array(times.length).fill(null);
    one.times.forEach((time, index) => {
      const value = one.values[index];
      const place = places.get(time);
      if (place !== undefined && value !== undefined && Number.isFinite(value)) row[place] = value;
    });
    return row;
  });
  return { times, values };
}
