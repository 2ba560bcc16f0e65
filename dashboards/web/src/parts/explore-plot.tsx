/** Many lines over time with the nearest one named at the pointer (uPlot). */
import { useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { moment } from "../format";
import { colour, isDark, lineColour } from "../theme";
import type { Chart, DrawnLine } from "./explore-lines";

/** Beyond eight colours dashes distinguish lines. */
const DASHES: readonly (readonly number[])[] = [[], [7, 4], [2, 3], [10, 3, 2, 3]];

export interface ExplorePlotProps {
  readonly chart: Chart;
  /** The lines that are drawn, of the chart's. */
  readonly lines: readonly DrawnLine[];
  readonly format: (value: number) => string;
  readonly onSelect: (from: number, to: number) => void;
}

const HEIGHT = 340;
const NARROW_HEIGHT = 240;

function options(props: { current: ExplorePlotProps }, width: number, tip: HTMLElement) {
  const { lines, format, chart } = props.current;
  const axis: uPlot.Axis = {
    stroke: colour("soft"),
    grid: { stroke: colour("rule"), width: 1 },
    ticks: { stroke: colour("rule"), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  const made: uPlot.Options = {
    width,
    height: width < 500 ? NARROW_HEIGHT : HEIGHT,
    padding: [10, 28, 0, 0],
    legend: { show: false },
    focus: { alpha: 0.25 },
    cursor: {
      drag: { x: true, y: false, setScale: false },
      focus: { prox: 24 },
      sync: { key: "explore" },
      points: { size: 6 },
    },
    scales: {
      x: { range: () => [chart.times[0] ?? 0, chart.times.at(-1) ?? 1] },
      y: { range: (_, least, most) => heights(least, most) },
    },
    series: [
      {},
      ...lines.map((line, place) => ({
        label: line.name,
        stroke: lineColour(line.place),
        width: lines.length > 20 ? 1 : 1.5,
        dash: [...(DASHES[Math.floor(line.place / 8) % DASHES.length] ?? [])],
        points: {
          show: true,
          size: 4,
          fill: lineColour(line.place),
          filter: () => lonely(props.current.lines[place]?.values ?? []),
        },
      })),
    ],
    axes: [
      { ...axis, space: 80, values: clock },
      { ...axis, size: 78, values: (_, splits) => splits.map((value) => format(value)) },
    ],
    hooks: {
      setCursor: [(plot) => showTip(plot, props.current, tip)],
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const from = plot.posToVal(plot.select.left, "x");
          const to = plot.posToVal(plot.select.left + plot.select.width, "x");
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          props.current.onSelect(from, to);
        },
      ],
    },
  };
  return made;
}

/** From zero, so that a half looks like a half; but not where all is far from it. */
function heights(least: number, most: number): uPlot.Range.MinMax {
  const isFromZero = least >= 0 && least < most / 2;
  const [low, high] = uPlot.rangeNum(least, most, 0.08, true);
  return [isFromZero ? 0 : low, high];
}

/** Clocks of 24 hours; the day where it is another one than the split's before. */
function clock(_: uPlot, splits: number[], __: number, ___: number, increment: number): string[] {
  let day = "";
  return splits.map((split) => {
    const date = new Date(split * 1000);
    const time = date.toLocaleTimeString(undefined, {
      hour12: false,
      hour: "2-digit",
      minute: "2-digit",
      ...(increment < 60 ? { second: "2-digit" } : {}),
    });
    const own = date.toLocaleDateString(undefined, { month: "short", day: "numeric" });
    const isNew = own !== day;
    day = own;
    return isNew ? `${time}\n${own}` : time;
  });
}

/** Values with gaps at both sides, which would be no line at all. */
function lonely(values: readonly (number | null)[]): number[] {
  const isGap = (place: number) => (values[place] ?? null) === null;
  return values.flatMap((value, place) =>
    value !== null && isGap(place - 1) && isGap(place + 1) ? [place] : [],
  );
}

/** Names the line that is nearest to the pointer. */
function showTip(plot: uPlot, { lines, chart, format }: ExplorePlotProps, tip: HTMLElement): void {
  const { idx, left = -1, top = -1 } = plot.cursor;
  const isHere = plot.root.matches(":hover");
  if (idx === null || idx === undefined || left < 0 || !isHere) {
    tip.hidden = true;
    return;
  }
  let [nearest, distance]: [DrawnLine | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const line of lines) {
    const value = line.values[idx];
    if (value === null || value === undefined) continue;
    const away = Math.abs(plot.valToPos(value, "y") - top);
    if (away < distance) [nearest, distance] = [line, away];
  }
  tip.hidden = nearest === undefined;
  if (!nearest) return;
  const [name, number, time] = [...tip.children];
  if (name) name.textContent = nearest.name;
  if (number) number.textContent = format(nearest.values[idx] ?? Number.NaN);
  if (time) time.textContent = moment(chart.times[idx] ?? 0);
  const isRight = left > plot.over.clientWidth * 0.6;
  const x = plot.over.offsetLeft + left;
  tip.style.left = isRight ? "" : `${x + 14}px`;
  tip.style.right = isRight ? `${plot.root.clientWidth - x + 14}px` : "";
  tip.style.top = `${Math.max(4, top - 10)}px`;
}

export function ExplorePlot(props: ExplorePlotProps & { label: string }) {
  const place = useRef<HTMLDivElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const latest = useRef<ExplorePlotProps>(props);
  latest.current = props;
  const data = [props.chart.times, ...props.lines.map((line) => line.values)] as uPlot.AlignedData;
  const shape = JSON.stringify([
    props.lines.map((line) => [line.key, line.place]),
    props.chart.unit,
    isDark.value,
  ]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `shape` holds what the options depend on
  useLayoutEffect(() => {
    const [node, hint] = [place.current, tip.current];
    if (!node || !hint) return;
    const width = Math.max(200, node.clientWidth);
    const drawn = new uPlot(options(latest, width, hint), data, node);
    plot.current = drawn;
    const watch = new ResizeObserver(() => {
      if (node.clientWidth > 0 && node.clientWidth !== drawn.width)
        drawn.setSize({ width: node.clientWidth, height: drawn.height });
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
  return (
    <div class="explore-plot">
      <div ref={place} role="img" aria-label={props.label} />
      <div ref={tip} class="explore-tip" aria-hidden="true" hidden>
        <span />
        <b />
        <span class="soft" />
      </div>
    </div>
  );
}
